//! A message of AMQP as a record of a log, and back.
//!
//! ```text
//! record     timestamp: when it was published, ms since 1970; no key; value: the body
//! headers    "mainstem.amqp"; "mainstem.dead" if the message came out of a dead-letter exchange; while it is delayed, "mainstem.delay";
//!            "mainstem.traits" if there is a priority or a time to live (what queues have to know, laid out in the broker); then each field of the message's headers table with a simple value
//!
//! "mainstem.amqp"
//! offset     bytes  what
//! 0          1      version, 1
//! 1          1      length of the exchange's name
//! 2          e      name of the exchange
//! 2 + e      1      length of the routing key
//! 3 + e      k      routing key
//! 3 + e + k  rest   property flags and values, as in a content header (AMQP 0-9-1 §4.2.6.1)
//! ```
//! Properties go out as they came in. Three changes are made: `BCC` leaves the headers table when a message is published,
//! `x-acquired-count` and `x-delivery-count` enter it when a message comes back from a queue that counts, and `x-stream-offset` when it
//! comes from a stream.
//!
//! A field is simple if it is a string or bytes (as they are), an integer (in decimal) or a boolean (`true`, `false`), and its name is
//! UTF-8; Kafka clients see it as a header of that name. They are for reading only: what counts for AMQP is in the first header.
//!
//! The broker vouches for the batches in which it writes such records. A record with that header in another batch was written by a client of Kafka,
//! who may set the properties that a publisher may set: exchange and routing key are those of a record without the header, `user-id` is left out, and
//! `mainstem.dead` says nothing.
//!
//! A record without that header was made by a client of Kafka: exchange "", the queue's name as routing key, its headers as long
//! strings (a null as void), its key as `x-record-key` (a long string, or bytes if it is not UTF-8), and `timestamp` in seconds.
//! Of headers with one name the last counts; one whose name is longer than 255 bytes is left out.
//!
//! Described for others in `docs/formats/amqp-message.md`.

use std::io::Write;

use amqp_wire::{EncodedProperties, Properties, ShortBytes, Table, TableRef, TableWriter, Value, short};
use broker::{DELAY_HEADER, MessageTraits, TRAITS_HEADER};
use bytes::{Bytes, BytesMut};
use delivery::Tries;
use record::{BatchWriter, HeaderPieces, Record};
use smallvec::SmallVec;

use crate::letters::DEAD_HEADER;

/// Name of the header that makes a record a message of AMQP.
pub(crate) const HEADER: &[u8] = b"mainstem.amqp";
const VERSION: u8 = 1;
/// What stands for the key of a record that has one.
const RECORD_KEY: &str = "x-record-key";
/// Deliveries before this one, and those of them that failed.
const COUNTS: [&str; 2] = ["x-acquired-count", "x-delivery-count"];
/// Headers of a Kafka record that become fields of a table.
const FIELDS_MAX: usize = 1000;
/// So many are compared with each other, more are counted.
const FEW_FIELDS: usize = 16;
const STREAM_OFFSET: &str = "x-stream-offset";

/// A message as it was published.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    pub properties: EncodedProperties<'a>,
    /// Priority and time to live of the properties.
    pub traits: MessageTraits,
    /// In pieces.
    pub body: &'a [&'a [u8]],
}

/// Is it the name of a header that is not the application's?
fn is_reserved(name: &[u8]) -> bool {
    [HEADER, TRAITS_HEADER, DEAD_HEADER, DELAY_HEADER].contains(&name)
}

/// A field's value as Kafka clients see it.
enum Simple<'a> {
    Bytes(&'a [u8]),
    Number([u8; 20], usize),
}

impl<'a> Simple<'a> {
    fn of(value: Value<'a>) -> Option<Self> {
        match value {
            Value::LongString(bytes) | Value::Bytes(bytes) => Some(Self::Bytes(bytes)),
            Value::Bool(value) => Some(Self::Bytes(if value { b"true" } else { b"false" })),
            Value::Timestamp(_) => None,
            other => {
                let mut digits = [0; 20];
                let mut rest = &mut digits[..];
                write!(rest, "{}", other.as_integer()?).ok()?;
                let length = 20 - rest.len();
                Some(Self::Number(digits, length))
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(digits, length) => &digits[..*length],
        }
    }
}

impl Message<'_> {
    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.body.iter().map(|piece| piece.len()).sum()
    }

    /// Bytes that its record takes, about.
    pub fn record_bytes(&self) -> usize {
        const AROUND: usize = 64;
        let headers = self.properties.headers().map_or(0, |table| table.as_bytes().len());
        self.body_bytes()
            + self.exchange.len()
            + self.routing_key.len()
            + self.properties.as_bytes().len()
            + headers
            + AROUND
    }

    /// Adds its record to a batch.
    pub fn write(&self, now_ms: i64, out: &mut BatchWriter) {
        self.write_with(now_ms, None, None, out);
    }

    /// Adds its record, which is to be delayed as this says.
    pub fn write_delayed(&self, now_ms: i64, delay: &[u8], out: &mut BatchWriter) {
        self.write_with(now_ms, None, Some((DELAY_HEADER, &[delay])), out);
    }

    /// Adds its record, which says that its `x-death` was written by this broker, and how many deliveries of it have failed. `key`: of the record that has
    /// died, if a client of Kafka has given it one.
    pub fn write_dead(&self, failed: u16, key: Option<&[u8]>, now_ms: i64, out: &mut BatchWriter) {
        let count = failed.to_be_bytes();
        let value: [&[u8]; 1] = [&count];
        self.write_with(now_ms, key, Some((DEAD_HEADER, if failed > 0 { &value } else { &[] })), out);
    }

    fn write_with(&self, now_ms: i64, key: Option<&[u8]>, mark: Option<HeaderPieces<'_>>, out: &mut BatchWriter) {
        let mut fields: SmallVec<[(&[u8], Simple<'_>); 8]> = SmallVec::new();
        for (name, value) in self.properties.headers().into_iter().flat_map(TableRef::iter) {
            let name = name.as_bytes();
            if !is_reserved(name)
                && std::str::from_utf8(name).is_ok()
                && let Some(value) = Simple::of(value)
            {
                fields.push((name, value));
            }
        }
        let (exchange_bytes, key_bytes) = ([VERSION, self.exchange.len() as u8], [self.routing_key.len() as u8]);
        let own: [&[u8]; 5] =
            [&exchange_bytes, self.exchange, &key_bytes, self.routing_key, self.properties.as_bytes()];
        let traits = self.traits.encode();
        let traits = traits.as_ref().map(|traits| &traits[..]);
        if fields.is_empty() && traits.is_none() && mark.is_none() {
            return out.record(now_ms, self.body, &[(HEADER, &own)]);
        }
        let values: SmallVec<[&[u8]; 8]> = fields.iter().map(|(_, value)| value.as_bytes()).collect();
        let mut headers: SmallVec<[HeaderPieces<'_>; 9]> = SmallVec::new();
        headers.push((HEADER, &own));
        headers.extend(mark);
        headers.extend(traits.as_ref().map(|traits| (TRAITS_HEADER, std::slice::from_ref(traits))));
        headers.extend(fields.iter().zip(&values).map(|((name, _), value)| (*name, std::slice::from_ref(value))));
        out.record_with_key(now_ms, key, self.body, &headers);
    }
}

/// Properties without the field `BCC`, whose receivers nobody is to see; none if they have none.
pub(crate) fn without_bcc(properties: EncodedProperties<'_>) -> Option<BytesMut> {
    let table = properties.headers()?;
    table.get("BCC")?;
    let rest = Table::build(|fields| fields.copy_without(table, |name| name == "BCC"));
    let mut out = BytesMut::new();
    // As in RabbitMQ a table stays, and be it empty.
    Properties { headers: Some(rest.view()), ..properties.decode() }.encode(&mut out);
    Some(out)
}

/// Properties with the headers that `fields` writes; without any there is no table.
pub(crate) fn with_headers(properties: Properties<'_>, fields: impl FnOnce(&mut TableWriter<'_>)) -> BytesMut {
    let table = Table::build(fields);
    let headers = (!table.view().is_empty()).then(|| table.view());
    let mut out = BytesMut::new();
    Properties { headers, ..properties }.encode(&mut out);
    out
}

/// A record as a message.
#[derive(Debug)]
pub(crate) struct Stored<'a> {
    pub exchange: ShortBytes<'a>,
    pub routing_key: ShortBytes<'a>,
    properties: Encoded<'a>,
    pub body: Bytes,
    /// Deliveries that failed in the queue that it comes from as a dead letter.
    pub failed_before: u16,
}

#[derive(Debug)]
enum Encoded<'a> {
    AsTheyAre(&'a [u8]),
    Changed(BytesMut),
}

impl Encoded<'_> {
    fn view(&self) -> EncodedProperties<'_> {
        EncodedProperties::trusted(match self {
            Self::AsTheyAre(bytes) => bytes,
            Self::Changed(bytes) => bytes,
        })
    }
}

/// Exchange and routing key of what did not come by an exchange.
fn addressed_to(queue: &[u8]) -> (ShortBytes<'_>, ShortBytes<'_>) {
    (ShortBytes::default(), ShortBytes::new(queue).unwrap_or_default())
}

/// Properties for which the broker does not vouch: without the user, whom it has not checked.
fn claimed(properties: &[u8]) -> Encoded<'_> {
    let decoded = EncodedProperties::trusted(properties).decode();
    if decoded.user_id.is_none() {
        return Encoded::AsTheyAre(properties);
    }
    let mut out = BytesMut::new();
    Properties { user_id: None, ..decoded }.encode(&mut out);
    Encoded::Changed(out)
}

impl<'a> Stored<'a> {
    /// `queue`: the name of the queue it comes from; `returned`: how often it was delivered before, where that is counted.
    pub fn of(record: &'a Record, queue: &'a [u8], returned: Option<Tries>) -> Self {
        let body = record.value.clone().unwrap_or_default();
        let own =
            record.headers.iter().find(|(name, _)| name == HEADER).and_then(|(_, value)| parse(value.as_deref()?));
        let Some((exchange, routing_key, properties)) = own else {
            let properties = Encoded::Changed(of_kafka(record, returned));
            let (exchange, routing_key) = addressed_to(queue);
            return Self { exchange, routing_key, properties, body, failed_before: 0 };
        };
        let (exchange, routing_key) = if record.vouched { (exchange, routing_key) } else { addressed_to(queue) };
        let properties = if record.vouched { Encoded::AsTheyAre(properties) } else { claimed(properties) };
        let failed_before = failed_before(record);
        let properties = match returned.and_then(|tries| Counts::of(tries, failed_before)) {
            None => properties,
            Some(counts) => Encoded::Changed(with_counts(properties.view(), counts)),
        };
        Self { exchange, routing_key, properties, body, failed_before }
    }

    /// Of a stream: with its offset among the headers. The properties are written into `memory`, which has no more than a frame takes.
    pub fn of_stream(record: &'a Record, queue: &'a [u8], frame_max: u32, memory: &'a mut BytesMut) -> Self {
        let body = record.value.clone().unwrap_or_default();
        let own =
            record.headers.iter().find(|(name, _)| name == HEADER).and_then(|(_, value)| parse(value.as_deref()?));
        let offset = Value::I64(record.offset.0 as i64);
        memory.clear();
        let (exchange, routing_key) = match own {
            Some((exchange, routing_key, properties)) => {
                let properties = if record.vouched { Encoded::AsTheyAre(properties) } else { claimed(properties) };
                let properties = properties.view();
                properties.write_with_headers(memory, |fields| {
                    fields.copy_without(properties.headers().unwrap_or_default(), |name| name == STREAM_OFFSET);
                    fields.put(short(STREAM_OFFSET), offset);
                });
                if record.vouched { (exchange, routing_key) } else { addressed_to(queue) }
            }
            None => {
                let mut before = BytesMut::with_capacity(16);
                kafka_properties(record).encode(&mut before);
                EncodedProperties::trusted(&before).write_with_headers(memory, |fields| {
                    put_kafka_fields(record, fields);
                    fields.put(short(STREAM_OFFSET), offset);
                });
                addressed_to(queue)
            }
        };
        if !fits(memory, frame_max) {
            let whole = memory.split();
            let alone = EncodedProperties::trusted(&whole);
            alone.write_with_headers(memory, |fields| fields.put(short(STREAM_OFFSET), offset));
        }
        Self { exchange, routing_key, properties: Encoded::AsTheyAre(memory), body, failed_before: 0 }
    }

    /// As they are sent.
    pub fn properties(&self) -> EncodedProperties<'_> {
        self.properties.view()
    }

    /// Leaves the headers table out when the properties do not fit into a frame, which cannot be split.
    pub fn fit(&mut self, frame_max: u32) {
        let properties = self.properties();
        if !fits(properties.as_bytes(), frame_max) {
            let mut out = BytesMut::new();
            Properties { headers: None, ..properties.decode() }.encode(&mut out);
            self.properties = Encoded::Changed(out);
        }
    }
}

/// Do properties fit into one frame with their content header?
fn fits(properties: &[u8], frame_max: u32) -> bool {
    const AROUND: usize = 32;
    properties.len() + AROUND <= frame_max as usize
}

fn parse(header: &[u8]) -> Option<(ShortBytes<'_>, ShortBytes<'_>, &[u8])> {
    fn name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (length, rest) = bytes.split_first()?;
        rest.split_at_checked(usize::from(*length))
    }
    let (version, rest) = header.split_first()?;
    let (exchange, rest) = name(rest)?;
    let (routing_key, properties) = name(rest)?;
    let whole = *version == VERSION && EncodedProperties::check(properties).is_ok();
    whole.then_some((ShortBytes::new(exchange)?, ShortBytes::new(routing_key)?, properties))
}

/// Of a dead letter: its header follows that of its properties.
fn failed_before(record: &Record) -> u16 {
    let mark = record
        .headers
        .get(1)
        .filter(|(name, _)| record.vouched && name == DEAD_HEADER)
        .and_then(|(_, value)| value.as_deref());
    mark.and_then(|value| value.try_into().ok()).map_or(0, u16::from_be_bytes)
}

/// What a queue that counts tells of deliveries before.
#[derive(Clone, Copy)]
struct Counts {
    acquired: u16,
    failed: u16,
}

impl Counts {
    /// `failed_before`: in another queue. `None`: it comes for the first time.
    fn of(tries: Tries, failed_before: u16) -> Option<Self> {
        let failed = failed_before.saturating_add(tries.counted);
        let acquired = if tries.deliveries() > 0 { tries.deliveries() } else { failed };
        (acquired > 0).then_some(Self { acquired, failed })
    }
}

fn with_counts(properties: EncodedProperties<'_>, counts: Counts) -> BytesMut {
    with_headers(properties.decode(), |fields| {
        fields.copy_without(properties.headers().unwrap_or_default(), |name| COUNTS.iter().any(|count| name == *count));
        put_counts(fields, counts);
    })
}

/// A count of none is left out, as in RabbitMQ.
fn put_counts(fields: &mut TableWriter<'_>, counts: Counts) {
    for (name, count) in COUNTS.into_iter().zip([counts.acquired, counts.failed]).filter(|(_, count)| *count > 0) {
        fields.put(short(name), Value::I64(count.into()));
    }
}

fn of_kafka(record: &Record, returned: Option<Tries>) -> BytesMut {
    with_headers(kafka_properties(record), |fields| {
        put_kafka_fields(record, fields);
        if let Some(counts) = returned.and_then(|tries| Counts::of(tries, 0)) {
            put_counts(fields, counts);
        }
    })
}

/// Of a record that a client of Kafka made, without the headers.
fn kafka_properties(record: &Record) -> Properties<'static> {
    let timestamp = u64::try_from(record.timestamp).ok().map(|ms| ms / 1000);
    Properties { timestamp, ..Properties::default() }
}

/// The headers and the key of a record as fields.
fn put_kafka_fields(record: &Record, fields: &mut TableWriter<'_>) {
    let mut put = |name: &[u8], value: &Option<Bytes>| {
        if let Some(name) = ShortBytes::new(name).filter(|name| !is_reserved(name)) {
            fields.put(name, value.as_deref().map_or(Value::Void, Value::LongString));
        }
    };
    let headers = &record.headers;
    if headers.len() <= FEW_FIELDS {
        for (place, (name, value)) in headers.iter().enumerate() {
            if headers[place + 1..].iter().all(|(later, _)| later != name) {
                put(name, value);
            }
        }
    } else {
        let mut seen = hashbrown::HashSet::new();
        let last_of_each = headers.iter().rev().filter(|(name, _)| seen.insert(name)).take(FIELDS_MAX);
        let mut kept: Vec<_> = last_of_each.collect();
        kept.reverse();
        kept.into_iter().for_each(|(name, value)| put(name, value));
    }
    if let Some(key) = &record.key {
        let text = std::str::from_utf8(key).is_ok();
        fields.put(short(RECORD_KEY), if text { Value::LongString(key) } else { Value::Bytes(key) });
    }
}

#[cfg(test)]
mod tests;
