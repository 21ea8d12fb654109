//! Bytes of messages, made from the schema alone: the generated code has no part in it, so that it can be checked.
//!
//! What is made is canonical: a tagged field is there only with a value that is not its default, tags ascend, and
//! null appears only where the version allows it. An encoder must give the same bytes back.

use kafka_wire_gen::{Api, Field, Struct, Type, Versions};

/// SplitMix64: small, and the same everywhere.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `end`, without `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// What to fill a message with.
pub enum Filling {
    /// Anything; record data is larger than what the writer copies now and then, if so wanted.
    Random { rng: Rng, large: bool },
    /// As little as possible, one element an array, but the array of this number has `count` elements.
    Crowd { array: usize, count: usize },
    /// Likewise, but the array of this number only claims to have `count` elements, and there the bytes end.
    Bomb { array: usize, count: usize },
    /// As little as possible, with `count` tagged fields of no known number in the outermost struct.
    Tags { count: usize },
}

/// Makes one message.
pub struct Maker<'a> {
    api: &'a Api,
    version: i16,
    flexible: bool,
    filling: Filling,
    /// Arrays begun.
    arrays: usize,
    /// The bytes have ended.
    ended: bool,
    /// Inside a tagged field, where a default would not be written.
    tagged: bool,
    depth: usize,
}

fn within(versions: Versions, version: i16) -> bool {
    (versions.first..=versions.last).contains(&version)
}

/// The bytes of a request or a response; `None` when `filling` names an array that the version does not have.
pub fn message(api: &Api, response: bool, version: i16, filling: Filling) -> Option<Vec<u8>> {
    let flexible = api.flexible.is_some_and(|range| within(range, version));
    let mut maker = Maker { api, version, flexible, filling, arrays: 0, ended: false, tagged: false, depth: 0 };
    let outer = if response { &api.response[0] } else { &api.request[0] };
    let mut out = Vec::new();
    maker.structure(&mut out, outer);
    match maker.filling {
        Filling::Crowd { array, .. } if array >= maker.arrays => None,
        Filling::Bomb { .. } if !maker.ended => None,
        Filling::Tags { .. } if !flexible => None,
        _ => Some(out),
    }
}

pub fn uvarint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl Maker<'_> {
    fn structure(&mut self, out: &mut Vec<u8>, one: &Struct) {
        self.depth += 1;
        let present = |field: &&Field| within(field.versions, self.version);
        let (tagged, plain): (Vec<_>, Vec<_>) =
            one.fields.iter().filter(present).partition(|field| field.tag.is_some());
        for field in plain {
            self.field(out, field);
        }
        if self.flexible && !self.ended {
            self.tags(out, tagged);
        }
        self.depth -= 1;
    }

    fn tags(&mut self, out: &mut Vec<u8>, mut known: Vec<&Field>) {
        known.sort_by_key(|field| field.tag);
        let mut tags = Vec::new();
        for field in known {
            let wanted = match &mut self.filling {
                Filling::Random { rng, .. } => rng.below(2) == 0,
                _ => true,
            };
            if wanted && !self.ended {
                let outside = std::mem::replace(&mut self.tagged, true);
                let mut value = Vec::new();
                self.field(&mut value, field);
                self.tagged = outside;
                tags.push((u64::from(field.tag.expect("a tag")), value));
            }
        }
        match &mut self.filling {
            Filling::Random { rng, .. } => {
                for number in [100, 20_000, 3_000_000].into_iter().take(rng.below(9).saturating_sub(5)) {
                    let length = rng.below(6);
                    tags.push((number, (0..length).map(|_| rng.next() as u8).collect()));
                }
            }
            Filling::Tags { count } if self.depth == 1 => tags.extend((0..*count).map(|_| (100, Vec::new()))),
            _ => {}
        }
        uvarint(out, tags.len() as u64);
        for (number, value) in tags {
            uvarint(out, number);
            uvarint(out, value.len() as u64);
            out.extend(value);
        }
    }

    fn field(&mut self, out: &mut Vec<u8>, field: &Field) {
        if self.ended {
            return;
        }
        let may_be_null = !self.tagged && field.nullable.is_some_and(|range| within(range, self.version));
        let null = match &mut self.filling {
            Filling::Random { rng, .. } => may_be_null && rng.below(3) == 0,
            _ => false,
        };
        if let Type::Struct(_) = field.kind
            && field.nullable.is_some_and(|range| within(range, self.version))
        {
            out.push(if null { 0xff } else { 1 });
            if null {
                return;
            }
        } else if null {
            return self.length(out, is_short(&field.kind), None);
        }
        self.value(out, &field.kind, field.default.as_deref());
    }

    fn length(&self, out: &mut Vec<u8>, short: bool, length: Option<usize>) {
        match (self.flexible, short) {
            (true, _) => uvarint(out, length.map_or(0, |length| length as u64 + 1)),
            (false, true) => out.extend(length.map_or(-1, |length| length as i16).to_be_bytes()),
            (false, false) => out.extend(length.map_or(-1, |length| length as i32).to_be_bytes()),
        }
    }

    fn value(&mut self, out: &mut Vec<u8>, kind: &Type, default: Option<&str>) {
        match kind {
            Type::Plain(name) => self.plain(out, name, default),
            Type::Struct(name) => {
                let api = self.api;
                let found = api.request.iter().chain(&api.response).find(|one| one.name == *name);
                self.structure(out, found.expect("a struct of the schema"));
            }
            Type::Array(element) => self.array(out, element),
        }
    }

    fn array(&mut self, out: &mut Vec<u8>, element: &Type) {
        let number = self.arrays;
        self.arrays += 1;
        let least = usize::from(self.tagged);
        let count = match &mut self.filling {
            Filling::Random { rng, .. } => least.max([0, 1, 1, 2, 3][rng.below(5)]),
            Filling::Crowd { array, count } if *array == number => *count,
            Filling::Crowd { array, .. } => usize::from(number < *array),
            Filling::Bomb { array, count } if *array == number => {
                self.ended = true;
                *count
            }
            Filling::Bomb { .. } => 1,
            Filling::Tags { .. } => least,
        };
        self.length(out, false, Some(count));
        if !self.ended {
            let outside = std::mem::replace(&mut self.tagged, false);
            for _ in 0..count {
                if !self.ended {
                    self.value(out, element, None);
                }
            }
            self.tagged = outside;
        }
    }

    fn plain(&mut self, out: &mut Vec<u8>, name: &str, default: Option<&str>) {
        if let "string" | "bytes" | "records" = name {
            let content = self.content(name);
            self.length(out, name == "string", Some(content.len()));
            return out.extend(content);
        }
        if name == "bool" {
            return out.push(self.boolean(default));
        }
        let number = self.number();
        match name {
            "int8" => out.push(number as u8),
            "int16" | "uint16" => out.extend((number as u16).to_be_bytes()),
            "int32" | "uint32" => out.extend((number as u32).to_be_bytes()),
            "int64" => out.extend(number.to_be_bytes()),
            "float64" => out.extend((f64::from(number as u16) / 8.0).to_be_bytes()),
            "uuid" => {
                out.extend(number.to_be_bytes());
                out.extend((number ^ 0x5555).to_be_bytes());
            }
            other => panic!("type {other} has no bytes"),
        }
    }

    fn boolean(&mut self, default: Option<&str>) -> u8 {
        match &mut self.filling {
            _ if self.tagged => u8::from(default != Some("true")),
            Filling::Random { rng, .. } => rng.below(2) as u8,
            _ => 0,
        }
    }

    /// In a tagged field never one of the values that serve as defaults, in no width.
    fn number(&mut self) -> u64 {
        let Filling::Random { rng, .. } = &mut self.filling else { return 77 };
        let any = rng.next();
        match any % 8 {
            _ if self.tagged => 0x1111_1111_1111_1111 * (1 + any % 6),
            0 => 0,
            1 => u64::MAX,
            2 => i64::MAX as u64,
            3 => 0x8000_0000_8000_8080,
            4 | 5 => any % 100,
            _ => any.rotate_left(20),
        }
    }

    fn content(&mut self, name: &str) -> Vec<u8> {
        let least = usize::from(self.tagged);
        let Filling::Random { rng, large } = &mut self.filling else { return vec![b'x'; least] };
        if name == "string" {
            let length = least + rng.below(9);
            let letters = ['a', 'Z', '0', '-', '.', '_', '/', 'é', '☃', '𝄞'];
            return (0..length).map(|_| letters[rng.below(letters.len())]).collect::<String>().into_bytes();
        }
        let length = if *large && rng.below(6) == 0 { 4090 + rng.below(12) } else { least + rng.below(40) };
        (0..length).map(|_| rng.next() as u8).collect()
    }
}

fn is_short(kind: &Type) -> bool {
    *kind == Type::Plain("string".to_owned())
}
