//! An X.509 certificate, taken apart: its subject as a user's name, who has issued it, and when it is good. Whether it is genuine was, or is,
//! found out elsewhere. What is not of the expected form has none of that.
//!
//! ```text
//! Certificate    ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version OPTIONAL, serialNumber INTEGER, signature SEQUENCE,
//!                               issuer RDNSequence, validity SEQUENCE { Time, Time }, subject RDNSequence, … }, … }
//! Time           ::= UTCTime YYMMDDhhmmssZ (1950 to 2049) or GeneralizedTime YYYYMMDDhhmmssZ
//! RDNSequence    ::= SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value a string }
//! ```
//! Source: RFC 5280 §4.1, DER as ITU-T X.690; the text form: RFC 4514.

use crate::tls::LoginFrom;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// Types of attributes that have a short name.
const SHORT_NAMES: [(&[u8], &str); 12] = [
    (COMMON_NAME, "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 42], "GN"),
    (&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 9, 1], "emailAddress"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25], "DC"),
];

/// Takes an element off the front: its tag and content.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], mut rest) = bytes.split_first_chunk::<2>()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let count = usize::from(first & 0x7F);
        if !(1..=4).contains(&count) {
            return None;
        }
        let (digits, after) = rest.split_at_checked(count)?;
        length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, content))
}

fn expect<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    element(bytes).filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

/// What a certificate says, as far as it is looked at here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The content of its issuer's name.
    issuer: &'a [u8],
    /// The content of its subject.
    subject: &'a [u8],
    /// From when it is good, in seconds since 1970 …
    pub from: i64,
    /// … and until when.
    pub until: i64,
}

/// A point in time, in seconds since 1970.
fn time(bytes: &mut &[u8]) -> Option<i64> {
    let (tag, text) = element(bytes)?;
    let (year_digits, century) = match tag {
        UTC_TIME => (2, true),
        GENERALIZED_TIME => (4, false),
        _ => return None,
    };
    let (digits, zone) = text.split_at_checked(year_digits + 10)?;
    if zone != b"Z" || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (year, rest) = digits.split_at(year_digits);
    let number = |digits: &[u8]| digits.iter().fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let year = if century { number(year) + if number(year) < 50 { 2000 } else { 1900 } } else { number(year) };
    let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|at| number(&rest[at..at + 2]));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from the first of 1970. Years begin in March here, so that a leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
        - 1
        - 719_468
}

impl<'a> Parts<'a> {
    /// Of a certificate; `None`: it is none.
    pub fn of(certificate: &'a [u8]) -> Option<Self> {
        let mut outer = certificate;
        let mut whole = expect(&mut outer, SEQUENCE)?;
        let mut body = expect(&mut whole, SEQUENCE)?;
        if body.first() == Some(&VERSION) {
            element(&mut body)?;
        }
        for tag in [INTEGER, SEQUENCE] {
            expect(&mut body, tag)?;
        }
        let issuer = expect(&mut body, SEQUENCE)?;
        let mut validity = expect(&mut body, SEQUENCE)?;
        let subject = expect(&mut body, SEQUENCE)?;
        Some(Self { issuer, subject, from: time(&mut validity)?, until: time(&mut validity)? })
    }

    /// Is the other one that of the authority that has issued this one, by name?
    pub fn is_issued_by(&self, authority: &Self) -> bool {
        self.issuer == authority.subject
    }

    /// Its subject, for people.
    pub fn subject(&self) -> String {
        text(self.subject).map(|(whole, _)| whole).unwrap_or_default()
    }

    /// The subject of its authority, for people.
    pub fn issuer(&self) -> String {
        text(self.issuer).map(|(whole, _)| whole).unwrap_or_default()
    }
}

/// A directory string of any kind.
fn string(tag: u8, bytes: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, NumericString, PrintableString, IA5String.
        12 | 18 | 19 | 22 => String::from_utf8(bytes.to_vec()).ok(),
        // TeletexString, in practice Latin-1.
        20 => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        // BMPString.
        30 if bytes.len().is_multiple_of(2) => {
            let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

/// An object identifier with points.
fn dotted(id: &[u8]) -> String {
    let mut numbers = Vec::new();
    let mut number: u64 = 0;
    for byte in id {
        number = number << 7 | u64::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            numbers.push(std::mem::take(&mut number));
        }
    }
    let mut out = match numbers.first() {
        Some(first) => format!("{}.{}", (first / 40).min(2), first - (first / 40).min(2) * 40),
        None => String::new(),
    };
    numbers.iter().skip(1).for_each(|number| out.push_str(&format!(".{number}")));
    out
}

/// RFC 4514 §2.4.
fn escape(value: &str, out: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, letter) in value.chars().enumerate() {
        let edge = (letter == ' ' && (at == 0 || at == last)) || (letter == '#' && at == 0);
        if edge || matches!(letter, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            out.push('\\');
        }
        out.push(letter);
    }
}

/// A name as RFC 4514 writes it, and its common name.
fn text(mut rest: &[u8]) -> Option<(String, Option<String>)> {
    let mut relative_names = Vec::new();
    let mut common_name = None;
    while !rest.is_empty() {
        let mut set = expect(&mut rest, SET)?;
        let mut relative = String::new();
        while !set.is_empty() {
            let mut attribute = expect(&mut set, SEQUENCE)?;
            let id = expect(&mut attribute, OBJECT_ID)?;
            let (tag, bytes) = element(&mut attribute)?;
            let value = string(tag, bytes)?;
            if !relative.is_empty() {
                relative.push('+');
            }
            match SHORT_NAMES.iter().find(|(one, _)| *one == id) {
                Some((_, short)) => relative.push_str(short),
                None => relative.push_str(&dotted(id)),
            }
            relative.push('=');
            escape(&value, &mut relative);
            if id == COMMON_NAME {
                common_name = Some(value);
            }
        }
        relative_names.push(relative);
    }
    Some((relative_names.iter().rev().map(String::as_str).collect::<Vec<_>>().join(","), common_name))
}

/// The name of the user whose certificate it is. `None`: it does not say.
pub fn user_name(certificate: &[u8], from: LoginFrom) -> Option<String> {
    let (whole, common_name) = text(Parts::of(certificate)?.subject)?;
    let name = match from {
        LoginFrom::DistinguishedName => Some(whole),
        LoginFrom::CommonName => common_name,
    };
    name.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = match content.len() {
            short @ 0..=0x7F => vec![short as u8],
            long => vec![0x82, (long >> 8) as u8, long as u8],
        };
        [&[tag][..], &length, content].concat()
    }

    fn attribute(id: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(SEQUENCE, &[der(OBJECT_ID, id), der(tag, value)].concat())
    }

    fn certificate(relative_names: &[Vec<u8>]) -> Vec<u8> {
        let subject = der(SEQUENCE, &relative_names.iter().map(|one| der(SET, one)).collect::<Vec<_>>().concat());
        let none = der(SEQUENCE, b"");
        let key = der(SEQUENCE, &[7; 300]);
        let validity =
            der(SEQUENCE, &[der(UTC_TIME, b"260228235959Z"), der(GENERALIZED_TIME, b"20500101000000Z")].concat());
        let body =
            [der(VERSION, &der(INTEGER, &[2])), der(INTEGER, &[1]), none.clone(), none.clone(), validity, subject, key]
                .concat();
        der(SEQUENCE, &[der(SEQUENCE, &body), none].concat())
    }

    #[test]
    fn the_subject_is_written_as_rfc_4514_does() {
        let names = [
            attribute(&[0x55, 4, 6], 19, b"DE"),
            attribute(&[0x55, 4, 10], 12, "Größe, \"GmbH\"".as_bytes()),
            [attribute(&[0x55, 4, 11], 12, b"#1 "), attribute(&[0x2A, 3, 4], 22, b"x")].concat(),
            attribute(COMMON_NAME, 30, &[0, b'b', 0, b'o', 0, b'b']),
        ];
        let certificate = certificate(&names);
        let whole = "CN=bob,OU=\\#1\\ +1.2.3.4=x,O=Größe\\, \\\"GmbH\\\",C=DE";
        assert_eq!(user_name(&certificate, LoginFrom::DistinguishedName).as_deref(), Some(whole));
        assert_eq!(user_name(&certificate, LoginFrom::CommonName).as_deref(), Some("bob"));
        for end in 0..certificate.len() {
            assert_eq!(user_name(&certificate[..end], LoginFrom::CommonName), None, "{end} bytes");
        }
        for at in 0..certificate.len() {
            let mut damaged = certificate.clone();
            damaged[at] ^= 0x85;
            user_name(&damaged, LoginFrom::DistinguishedName);
        }
        assert_eq!(user_name(&self::certificate(&[]), LoginFrom::DistinguishedName), None);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let certificate = certificate(&[]);
        let parts = Parts::of(&certificate).expect("a certificate");
        assert_eq!((parts.from, parts.until), (1_772_323_199, 2_524_608_000));
        let time = |tag, text: &[u8]| super::time(&mut &der(tag, text)[..]);
        assert_eq!(time(UTC_TIME, b"000229000000Z"), Some(951_782_400));
        assert_eq!(time(UTC_TIME, b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(time(UTC_TIME, b"500101000000Z"), Some(-631_152_000));
        assert_eq!(time(GENERALIZED_TIME, b"99991231235959Z"), Some(253_402_300_799));
        for (tag, text) in [
            (UTC_TIME, &b"2602282359Z"[..]),
            (UTC_TIME, b"260228235959+0000"),
            (UTC_TIME, b"26022823595xZ"),
            (UTC_TIME, b"261328235959Z"),
            (INTEGER, b"260228235959Z"),
        ] {
            assert_eq!(time(tag, text), None);
        }
    }
}
