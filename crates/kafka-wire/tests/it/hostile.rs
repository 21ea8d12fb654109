//! Frames made to hurt: nothing panics, and what is decoded stays within a constant times the frame's size.

use bytes::Bytes;
use kafka_wire::api_versions::{ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_wire::{DecodeError, Problem, Reader, RequestHeader, Writer};

use crate::codecs::{Subject, joined, subjects};
use crate::memory::peak;
use crate::message::{Filling, Rng, message};

/// Memory per byte of a frame, at the worst: a struct of two empty lists takes three bytes on the wire and about a
/// hundred in memory, and a vector that grows holds its old and its new elements for a moment.
const FACTOR: usize = 128;

/// Memory that a frame may take whatever its size: what a few empty lists are given in advance.
const BASE_BYTES: usize = 4096;

/// Damaged frames of each message and version.
const DAMAGED: u64 = 150;

fn check_memory(subject: &Subject, version: i16, frame: Vec<u8>) -> Result<(), DecodeError> {
    let frame = Bytes::from(frame);
    let limit = FACTOR * frame.len() + BASE_BYTES;
    let (result, held) = peak(|| (subject.codec.decode)(frame.clone(), version));
    assert!(held <= limit, "{}: {held} bytes for {} bytes {frame:02x?}", subject.label(version), frame.len());
    result
}

fn each_version(mut check: impl FnMut(&Subject, i16)) {
    for subject in subjects() {
        for version in subject.versions() {
            check(&subject, version);
        }
    }
}

/// A frame of sixteen bytes, or of the few more that lead up to the list, which announces what is not there.
fn check_announcement(subject: &Subject, version: i16, array: usize, count: usize) -> bool {
    let filling = Filling::Bomb { array, count };
    let Some(mut frame) = message(&subject.api, subject.codec.response, version, filling) else { return false };
    frame.resize(frame.len().max(16), 0);
    let frame = Bytes::from(frame);
    let (result, held) = peak(|| (subject.codec.decode)(frame, version));
    let label = subject.label(version);
    assert!(result.is_err(), "{label}: array {array} of {count} elements");
    assert!(held < 4096, "{label}: array {array} of {count} elements that are not there takes {held} bytes");
    true
}

#[test]
fn an_announcement_costs_nothing() {
    // Beyond every limit, below the limit of items, and below what is reserved in advance.
    for count in [2_000_000_000, 900_000, 200] {
        let mut arrays = 0;
        each_version(|subject, version| {
            arrays += (0..).take_while(|array| check_announcement(subject, version, *array, count)).count();
        });
        assert!(arrays > 500, "{arrays} arrays are not all");
    }
}

#[test]
fn crowds_of_tiny_elements_are_bounded() {
    each_version(|subject, version| {
        for array in 0.. {
            let filling = Filling::Crowd { array, count: 5000 };
            let Some(frame) = message(&subject.api, subject.codec.response, version, filling) else { break };
            let result = check_memory(subject, version, frame);
            assert_eq!(result, Ok(()), "{}: array {array}", subject.label(version));
        }
    });
}

#[test]
fn crowds_of_unknown_tags_are_bounded() {
    each_version(|subject, version| {
        let filling = Filling::Tags { count: 5000 };
        if let Some(frame) = message(&subject.api, subject.codec.response, version, filling) {
            assert_eq!(check_memory(subject, version, frame), Ok(()), "{}", subject.label(version));
        }
    });
}

/// Small on the wire, large in memory: there is a limit of a million such items in a frame.
#[test]
fn too_many_items_are_refused() {
    let too_many = |name: &str, version: i16, filling: Filling| {
        let subject = subjects().into_iter().find(|subject| subject.codec.name == name).expect("a message");
        let frame = Bytes::from(message(&subject.api, false, version, filling).expect("a frame"));
        let (result, held) = peak(|| (subject.codec.decode)(frame, version));
        assert_eq!(result.map_err(|error| error.problem), Err(Problem::TooMany(1_000_000)), "{name}");
        assert!(held < 4096, "{name} takes {held} bytes");
    };
    too_many("DeleteGroupsRequest", 2, Filling::Crowd { array: 0, count: 1_000_001 });
    too_many("MetadataRequest", 12, Filling::Crowd { array: 0, count: 1_000_001 });
    too_many("HeartbeatRequest", 4, Filling::Tags { count: 1_000_001 });
}

/// What a frame may hold can be less, and the items of a request are counted without being kept.
#[test]
fn items_are_counted_without_memory() {
    each_version(|subject, version| {
        if subject.codec.response {
            return;
        }
        for filling in (0..20).map(|array| Filling::Crowd { array, count: 5000 }).chain([Filling::Tags { count: 5000 }])
        {
            let Some(frame) = message(&subject.api, false, version, filling) else { continue };
            let frame = Bytes::from(frame);
            let (items, held) = peak(|| kafka_wire::count_items(subject.api.key, version, &Reader::new(frame.clone())));
            let (items, label) = (items.expect("it can be read"), subject.label(version));
            assert!(held < 4096, "{label}: {held} bytes");
            // Integers too: an answer has an entry for each. Of bytes some together are one.
            assert!(items >= 5000 / 16, "{label}: {items} items");
            let within = |items: usize| {
                let mut reader = Reader::new(frame.clone());
                reader.allow(items);
                (subject.codec.within)(reader, version).map_err(|error| error.problem)
            };
            assert_eq!(within(items), Ok(()), "{label}");
            if items > 0 {
                assert_eq!(within(items - 1), Err(Problem::TooMany(items - 1)), "{label}");
            }
        }
    });
}

#[test]
fn a_request_can_be_read_again() {
    let filling = Filling::Crowd { array: 0, count: 5000 };
    let subject =
        subjects().into_iter().find(|subject| subject.codec.name == "DeleteGroupsRequest").expect("a message");
    let mut reader = Reader::new(Bytes::from(message(&subject.api, false, 2, filling).expect("a frame")));
    reader.allow(4999);
    let begin = reader.mark();
    let decode = |reader: &mut Reader| {
        kafka_wire::delete_groups::DeleteGroupsRequest::decode(reader, 2).map(|request| request.groups_names.len())
    };
    assert_eq!(decode(&mut reader).map_err(|error| error.problem), Err(Problem::TooMany(4999)));
    reader.rewind(begin);
    reader.allow(5000);
    assert_eq!(decode(&mut reader), Ok(5000));
    reader.rewind(begin);
    reader.allow(5000);
    let begin = reader.mark();
    for _ in 0..3 {
        assert_eq!(decode(&mut reader), Ok(5000), "what was read before counts no more");
        reader.rewind(begin);
    }
}

/// What tagged fields hold counts as well, and all of them together.
#[test]
fn too_many_items_in_tagged_fields_are_refused() {
    let decode = |count: usize| {
        let message = ApiVersionsResponse {
            supported_features: vec![SupportedFeatureKey::default(); count],
            finalized_features: vec![FinalizedFeatureKey::default(); count],
            ..ApiVersionsResponse::default()
        };
        let mut writer = Writer::new();
        message.encode(&mut writer, 3);
        let frame = Bytes::from(joined(writer));
        ApiVersionsResponse::decode(&mut Reader::new(frame), 3).map_err(|error| error.problem)
    };
    assert_eq!(decode(499_000).map(|message| message.finalized_features.len()), Ok(499_000));
    assert_eq!(decode(501_000), Err(Problem::TooMany(1_000_000)));
}

/// Overwrites a few bytes, mostly with those that lengths are made of.
fn damage(rng: &mut Rng, frame: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(4) {
        if frame.is_empty() {
            return;
        }
        let at = rng.below(frame.len());
        match rng.below(6) {
            0 => frame[at] ^= 1 << rng.below(8),
            1 => frame[at] = 0xff,
            2 => frame[at] = 0x7f,
            3 => frame[at] = 0,
            4 => frame[at] = rng.next() as u8,
            _ => frame.truncate(at),
        }
    }
}

#[test]
fn damaged_frames_are_harmless() {
    let mut rng = Rng(5);
    let (mut refused, mut accepted) = (0, 0);
    each_version(|subject, version| {
        for seed in 0..DAMAGED {
            let filling = Filling::Random { rng: Rng(seed), large: false };
            let mut frame = message(&subject.api, subject.codec.response, version, filling).expect("a message");
            damage(&mut rng, &mut frame);
            match check_memory(subject, version, frame) {
                Ok(()) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
    });
    assert!(refused > 1000 && accepted > 1000, "{refused} refused, {accepted} accepted: not much of a test");
}

#[test]
fn noise_is_harmless() {
    let mut rng = Rng(6);
    each_version(|subject, version| {
        for _ in 0..DAMAGED {
            let sparse = rng.below(2) == 0;
            let length = rng.below(200);
            let noise = |rng: &mut Rng| if sparse && rng.below(3) > 0 { rng.below(3) as u8 } else { rng.next() as u8 };
            let frame: Vec<u8> = (0..length).map(|_| noise(&mut rng)).collect();
            let _ = RequestHeader::decode(frame.clone().into());
            let _ = check_memory(subject, version, frame);
        }
    });
}

/// What Kafka refuses too: a length in seven bits a byte could say that a group has a name of 100 MB.
#[test]
fn strings_are_no_longer_than_old_versions_can_tell() {
    let read = |length: usize| {
        let mut frame = Writer::new();
        frame.uvarint(length as u32 + 1);
        let mut bytes = frame.finish_frame().concat().split_off(4);
        bytes.resize(bytes.len() + length, b'g');
        Reader::new(Bytes::from(bytes)).string(true, "group")
    };
    assert_eq!(read(32_767).expect("a string").map(|text| text.len()), Some(32_767));
    assert_eq!(read(32_768).expect_err("too long").problem, Problem::Long(32_768));
}
