//! What RabbitMQ writes is read, and written again as the same bytes.

use std::collections::BTreeSet;

use amqp_wire::{Encode, Method, MethodId, MethodInfo, Parsed, parse_frame, write_method};
use bytes::BytesMut;

/// A block of the file.
pub struct Golden {
    pub title: &'static str,
    pub bytes: Vec<u8>,
    pub meaning: Option<&'static str>,
}

pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal")).collect()
}

pub fn all() -> Vec<Golden> {
    let mut goldens: Vec<Golden> = Vec::new();
    for line in include_str!("../../testdata/rabbitmq.txt").lines().filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix("    "), goldens.last_mut()) {
            (None, _) => goldens.push(Golden { title: line, bytes: Vec::new(), meaning: None }),
            (Some(hex), Some(golden)) if golden.bytes.is_empty() => golden.bytes = unhex(hex),
            (Some(meaning), Some(golden)) => golden.meaning = Some(meaning),
            (Some(_), None) => panic!("{line:?} has no title"),
        }
    }
    goldens
}

/// The bytes of the block with this title.
pub fn bytes(title: &str) -> Vec<u8> {
    all().into_iter().find(|golden| golden.title == title).expect(title).bytes
}

/// Name, payload and meaning of every method's blocks.
pub fn methods() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let named = all().into_iter().filter_map(|golden| {
        let name = golden.title.strip_prefix("method ")?;
        Some((name, golden.bytes, golden.meaning.expect("a method has values")))
    });
    named.collect()
}

/// The payload that a method is written as.
pub fn payload(method: &impl Encode) -> Vec<u8> {
    let mut out = BytesMut::new();
    write_method(&mut out, 9, method);
    let Ok(Parsed::Frame(frame)) = parse_frame(&out, u32::MAX) else { panic!("{out:?} is no frame") };
    assert_eq!((frame.channel, frame.bytes()), (9, out.len()));
    frame.payload.to_vec()
}

#[test]
fn methods_are_rabbitmqs() {
    for (name, bytes, meaning) in methods() {
        let method = Method::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let class = name.split_once('.').expect(name).0;
        let class = class[..1].to_uppercase() + &class[1..];
        let variant = meaning.split_once(' ').map_or(meaning, |(variant, _)| variant);
        assert_eq!(format!("{method:?}"), format!("{class}({variant}({meaning}))"), "{name}");
        assert_eq!(payload(&method), bytes, "{name}");
        assert_eq!(method.id().info().expect(name).name, name);
        assert_eq!(MethodId::of_payload(&bytes), Some(method.id()));
    }
}

#[test]
fn every_method_is_rabbitmqs() {
    let golden: BTreeSet<_> = methods().into_iter().map(|(name, ..)| name).collect();
    let ours: BTreeSet<_> = MethodInfo::ALL.iter().map(|info| info.name).collect();
    assert_eq!(ours, golden);
    assert!(MethodInfo::ALL.is_sorted_by_key(|info| info.id), "look-ups rely on it");
    let content: Vec<_> = MethodInfo::ALL.iter().filter(|info| info.content).map(|info| info.name).collect();
    assert_eq!(content, ["basic.publish", "basic.return", "basic.deliver", "basic.get-ok"]);
}
