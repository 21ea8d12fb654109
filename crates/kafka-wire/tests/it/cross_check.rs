//! Our codec and the crate `kafka-protocol`'s agree on every message in every version that both know: the bytes,
//! the names of the fields, their order and values, defaults of fields that a version lacks included.
//!
//! A schema that is wrong may show as an abort for want of memory: the other codec believes the lengths that it reads.

use crate::codecs::{Subject, subjects};
use crate::message::{Filling, Rng, message};

const ROUNDS: u64 = 100;

/// Versions that the other codec does not have, so that only our own round trip is checked.
const UNKNOWN_TO_THEM: &[(&str, i16, i16)] = &[
    // Newer than the schemas that they were made from.
    ("DescribeLogDirsRequest", 5, 5),
    ("DescribeLogDirsResponse", 5, 5),
    ("DescribeShareGroupOffsetsRequest", 1, 1),
    ("DescribeShareGroupOffsetsResponse", 1, 1),
    ("ListOffsetsRequest", 11, 11),
    ("ListOffsetsResponse", 11, 11),
    // Not stable yet in those schemas, where they have it for the responses alone.
    ("OffsetCommitRequest", 10, 10),
    ("OffsetFetchRequest", 10, 10),
    // Newer again.
    ("ShareAcknowledgeRequest", 2, 2),
    ("ShareAcknowledgeResponse", 2, 2),
    ("ShareFetchRequest", 2, 2),
    ("ShareFetchResponse", 2, 2),
    // They do not have these messages.
    ("StreamsGroupDescribeRequest", 0, 0),
    ("StreamsGroupDescribeResponse", 0, 0),
    ("StreamsGroupHeartbeatRequest", 0, 0),
    ("StreamsGroupHeartbeatResponse", 0, 0),
    // Newer again.
    ("WriteTxnMarkersRequest", 2, 2),
    ("WriteTxnMarkersResponse", 2, 2),
];

/// Fields that the other codec does not have in any version, and how many words their values have.
const OURS_ALONE: &[(&str, &str, usize)] = &[
    // Of version 5, which is newer than they are.
    ("DescribeLogDirsResponse", "is_cordoned", 1),
    // Of version 1.
    ("DescribeShareGroupOffsetsResponse", "lag", 1),
    // Of version 2.
    ("ShareAcknowledgeRequest", "is_renew_ack", 1),
    ("ShareAcknowledgeResponse", "acquisition_lock_timeout_ms", 1),
    ("ShareFetchRequest", "is_renew_ack", 1),
    ("ShareFetchRequest", "share_acquire_mode", 1),
    ("WriteTxnMarkersRequest", "transaction_version", 1),
    // No version has tagged fields, so there is nothing to hold.
    ("OffsetDeleteRequest", "unknown_tagged_fields", 0),
    ("OffsetDeleteResponse", "unknown_tagged_fields", 0),
    ("SaslHandshakeRequest", "unknown_tagged_fields", 0),
    ("SaslHandshakeResponse", "unknown_tagged_fields", 0),
];

/// Fields that only the other codec has, because we do not speak their versions.
const THEIRS_ALONE: &[(&str, &str, usize)] = &[("ShareFetchRequest", "partition_max_bytes", 1)];

/// Fields whose names differ, ours first; the wire is the same.
const OTHER_NAMES: &[(&str, &str)] =
    &[("unknown_tags", "unknown_tagged_fields"), ("enable2_pc", "enable_2_pc"), ("match_name", "match")];

/// Names and values of a `Debug` text, in order, without the names of types.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let quoted = first == '"' || rest.starts_with("b\"");
        let length = if quoted { quoted_length(rest) } else { word_length(rest) };
        if length == 0 {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(length);
        rest = after;
        let type_name = word.starts_with(|letter: char| letter.is_ascii_uppercase());
        if !type_name || word == "None" {
            words.push(if after.starts_with(": ") { named(word) } else { word.to_owned() });
        }
    }
    words
}

fn named(word: &str) -> String {
    let plain = word.trim_start_matches('_');
    let other = OTHER_NAMES.iter().find(|(ours, _)| *ours == plain);
    other.map_or(plain, |(_, theirs)| theirs).to_owned()
}

fn word_length(text: &str) -> usize {
    text.find(|letter: char| !letter.is_ascii_alphanumeric() && !"_-.".contains(letter)).unwrap_or(text.len())
}

fn quoted_length(text: &str) -> usize {
    let mut escaped = false;
    let start = text.find('"').expect("a quote") + 1;
    for (at, letter) in text[start..].char_indices() {
        match letter {
            '"' if !escaped => return start + at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// The words of a text without the fields that only this side has.
fn comparable(message: &str, text: &str, alone: &[(&str, &str, usize)]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut all = words(text).into_iter();
    while let Some(word) = all.next() {
        match alone.iter().find(|(of, field, _)| *of == message && *field == word) {
            Some((_, _, values)) => all.by_ref().take(*values).for_each(drop),
            None => kept.push(word),
        }
    }
    kept
}

fn check(subject: &Subject, version: i16, bytes: &[u8]) -> Result<(), String> {
    let codec = subject.codec;
    let ours = (codec.ours)(bytes.to_vec().into(), version).map_err(|error| format!("ours: {error}"))?;
    if ours.bytes != bytes {
        return Err(format!("ours gives {:02x?} for {}", ours.bytes, ours.text));
    }
    let (first, last) = codec.their_versions;
    if !(first..=last).contains(&version) {
        return Ok(());
    }
    let theirs = (codec.theirs)(ours.bytes.into(), version);
    let theirs = theirs.map_err(|error| format!("theirs: {error} for {}", ours.text))?;
    if theirs.bytes != bytes {
        return Err(format!("theirs gives {:02x?} of {} for {}", theirs.bytes, theirs.text, ours.text));
    }
    let our_words = comparable(codec.name, &ours.text, OURS_ALONE);
    let their_words = comparable(codec.name, &theirs.text, THEIRS_ALONE);
    if let Some(at) = our_words.iter().zip(&their_words).position(|(ours, theirs)| ours != theirs) {
        let around = at.saturating_sub(3)..=at;
        return Err(format!("{:?} is with them {:?}", &our_words[around.clone()], &their_words[around]));
    }
    if our_words.len() != their_words.len() {
        return Err(format!("{} is with them {}", ours.text, theirs.text));
    }
    let again = (codec.ours)(theirs.bytes.into(), version).map_err(|error| format!("ours of theirs: {error}"))?;
    if again.text == ours.text { Ok(()) } else { Err(format!("{} becomes {}", ours.text, again.text)) }
}

/// The first failure of a message in a version.
fn check_version(subject: &Subject, number: usize, version: i16) -> Option<String> {
    (0..ROUNDS).find_map(|round| {
        let seed = (number as u64) << 32 | (version as u64) << 16 | round;
        let filling = Filling::Random { rng: Rng(seed), large: round % 8 == 0 };
        let bytes = message(&subject.api, subject.codec.response, version, filling).expect("a message");
        let failure = check(subject, version, &bytes).err()?;
        Some(format!("{}: {failure}\n    {bytes:02x?}", subject.label(version)))
    })
}

#[test]
fn both_codecs_agree() {
    let mut failures = Vec::new();
    for (number, subject) in subjects().iter().enumerate() {
        failures.extend(subject.versions().filter_map(|version| check_version(subject, number, version)));
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn versions_that_only_we_know_are_listed() {
    let mut unknown = Vec::new();
    for subject in subjects() {
        let (first, last) = subject.codec.their_versions;
        let missing: Vec<i16> = subject.versions().filter(|version| !(first..=last).contains(version)).collect();
        if let (Some(low), Some(high)) = (missing.first(), missing.last()) {
            unknown.push((subject.codec.name, *low, *high));
        }
    }
    assert_eq!(unknown, UNKNOWN_TO_THEM);
}

#[test]
fn words_of_a_text_are_told_apart() {
    let text = r#"A { name: Some("x: \"y"), _type: -1, ids: [B { raw: b"\0\"", at: 1.5 }], none: None }"#;
    let expected = ["name", r#""x: \"y""#, "type", "-1", "ids", "raw", r#"b"\0\"""#, "at", "1.5", "none", "None"];
    assert_eq!(words(text), expected);
}
