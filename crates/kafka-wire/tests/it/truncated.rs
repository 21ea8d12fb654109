//! No message can be cut short: every strict prefix of a valid one is an error.
//!
//! There is no exception. Kafka's layout has no optional end: what a version lacks it lacks always, and tagged
//! fields are counted before they come.

use kafka_wire::{Problem, RequestHeader, Str, Writer};

use crate::codecs::{Subject, joined, subjects};
use crate::message::{Filling, Rng, message};

const ROUNDS: u64 = 4;

fn random(subject: &Subject, version: i16, seed: u64) -> Vec<u8> {
    let filling = Filling::Random { rng: Rng(seed), large: false };
    message(&subject.api, subject.codec.response, version, filling).expect("a message")
}

#[test]
fn prefixes_are_errors() {
    for subject in subjects() {
        for version in subject.versions() {
            for seed in 0..ROUNDS {
                let whole = bytes::Bytes::from(random(&subject, version, seed));
                for length in 0..whole.len() {
                    let cut = (subject.codec.decode)(whole.slice(..length), version);
                    let error = cut.err();
                    assert!(error.is_some(), "{} of {} bytes, cut to {length}", subject.label(version), whole.len());
                    assert!(error.is_some_and(|error| error.offset <= length), "{error:?} is behind byte {length}");
                }
            }
        }
    }
}

#[test]
fn bytes_behind_a_message_are_an_error() {
    for subject in subjects() {
        for version in subject.versions() {
            let mut longer = random(&subject, version, 1);
            longer.extend([0, 0, 0]);
            let problem = (subject.codec.decode)(longer.into(), version).map_err(|error| error.problem);
            assert_eq!(problem, Err(Problem::Trailing(3)), "{}", subject.label(version));
        }
    }
}

#[test]
fn prefixes_of_heads_are_errors() {
    for (api_key, api_version) in [(0, 8), (0, 9), (18, 0), (18, 4), (999, 0)] {
        let head = RequestHeader { api_key, api_version, correlation_id: 7, client_id: Some(Str::from("client")) };
        let mut writer = Writer::new();
        head.encode(&mut writer);
        let whole = bytes::Bytes::from(joined(writer));
        let (again, reader) = RequestHeader::decode(whole.clone()).expect("a head");
        assert_eq!((again, reader.remaining()), (head, 0));
        for length in 0..whole.len() {
            assert!(RequestHeader::decode(whole.slice(..length)).is_err(), "{api_key} {api_version} cut to {length}");
        }
    }
}
