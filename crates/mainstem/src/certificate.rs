//! The subject of an X.509 certificate as a user's name. The certificate was verified before; here it is only taken apart, and what is not
//! of the expected form has no name.
//!
//! ```text
//! Certificate    ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version OPTIONAL, serialNumber INTEGER, signature SEQUENCE,
//!                               issuer SEQUENCE, validity SEQUENCE, subject RDNSequence, … }, … }
//! RDNSequence    ::= SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value a string }
//! ```
//! Source: RFC 5280 §4.1, DER as ITU-T X.690; the text form: RFC 4514.

use crate::tls::LoginFrom;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const VERSION: u8 = 0xA0;
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

/// The content of the subject.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let mut outer = certificate;
    let mut whole = expect(&mut outer, SEQUENCE)?;
    let mut body = expect(&mut whole, SEQUENCE)?;
    if body.first() == Some(&VERSION) {
        element(&mut body)?;
    }
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        expect(&mut body, tag)?;
    }
    expect(&mut body, SEQUENCE)
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

/// The name of the user whose certificate it is. `None`: it does not say.
pub fn user_name(certificate: &[u8], from: LoginFrom) -> Option<String> {
    let mut rest = subject(certificate)?;
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
    let whole = relative_names.iter().rev().map(String::as_str).collect::<Vec<_>>().join(",");
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
        let body = [der(VERSION, &der(INTEGER, &[2])), der(INTEGER, &[1]), none.clone(), none.clone(), none.clone(), subject, key].concat();
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
}
