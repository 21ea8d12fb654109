//! Committed frames, byte for byte: `testdata/<api>/v<version>.<request or response>.hex`.
//!
//! A file has the fields of the message in lines that begin with `#`, then the frame in hexadecimal digits: its head
//! and its body, without the length in front. The frames are made by the crate `kafka-protocol` from `samples`;
//! `UPDATE=1 cargo test -p kafka-wire golden` writes them, except for those in `BY_HAND`.

mod groups;
mod samples;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader as TheirRequestHeader, ResponseHeader as TheirResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, Request, StrBytes};
use kafka_wire::{ApiKey, RequestHeader, Writer, encode_response_header};

use crate::codecs::{Codec, Subject, joined, subjects};

const CORRELATION_ID: i32 = 7;

/// Frames that the other codec cannot make.
const BY_HAND: &[&str] = &["offset_commit/v10.request"];

/// Frames by the paths of their files, without ending.
#[derive(Default)]
struct Frames(BTreeMap<String, Vec<u8>>);

impl Frames {
    fn add<M: Encodable + HeaderVersion>(&mut self, path: String, head: &impl Encodable, version: i16, body: &M) {
        let mut frame = BytesMut::new();
        head.encode(&mut frame, M::header_version(version)).expect("a head");
        body.encode(&mut frame, version).unwrap_or_else(|error| panic!("{path}: {error:#}"));
        self.0.insert(path, frame.to_vec());
    }

    /// All versions of an API.
    fn api<R: Request>(&mut self, name: &str, request: impl Fn(i16) -> R, response: impl Fn(i16) -> R::Response) {
        for version in R::VERSIONS.min..=R::VERSIONS.max {
            let head = TheirRequestHeader::default()
                .with_request_api_key(R::KEY)
                .with_request_api_version(version)
                .with_correlation_id(CORRELATION_ID)
                .with_client_id(Some(StrBytes::from_static_str("golden")));
            self.add(format!("{name}/v{version}.request"), &head, version, &request(version));
        }
        for version in R::Response::VERSIONS.min..=R::Response::VERSIONS.max {
            let head = TheirResponseHeader::default().with_correlation_id(CORRELATION_ID);
            self.add(format!("{name}/v{version}.response"), &head, version, &response(version));
        }
    }
}

fn frames() -> BTreeMap<String, Vec<u8>> {
    let mut frames = Frames::default();
    frames.api("produce", samples::produce_request, samples::produce_response);
    frames.api("fetch", samples::fetch_request, samples::fetch_response);
    frames.api("metadata", samples::metadata_request, samples::metadata_response);
    frames.api("api_versions", samples::api_versions_request, samples::api_versions_response);
    frames.api("join_group", groups::join_group_request, groups::join_group_response);
    frames.api("offset_commit", groups::offset_commit_request, groups::offset_commit_response);
    frames.0
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

/// The files that there are, by the same paths.
fn committed() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for api in fs::read_dir(folder()).expect("the folder of frames") {
        let api = api.expect("an entry").path();
        for file in fs::read_dir(&api).expect("the folder of an API") {
            let path = file.expect("an entry").path();
            let inner = path.strip_prefix(folder()).expect("inside").with_extension("");
            found.insert(inner.to_string_lossy().into_owned(), fs::read_to_string(&path).expect("a text"));
        }
    }
    found
}

fn bytes_of(file: &str) -> Vec<u8> {
    let digits: String = file.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}

/// A frame and its fields as a file has them.
fn file_of(frame: &[u8], fields: &str) -> String {
    let mut out = String::new();
    for line in fields.lines() {
        let _ = writeln!(out, "# {line}");
    }
    for line in frame.chunks(32) {
        let digits: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(out, "{digits}");
    }
    out
}

fn subject<'a>(subjects: &'a [Subject], path: &str) -> (&'a Subject, &'static ApiKey, i16) {
    let (module, rest) = path.split_once("/v").expect("an API and a version");
    let (version, direction) = rest.split_once('.').expect("a version and a direction");
    let matches = |subject: &&Subject| subject.module == module && subject.codec.response == (direction == "response");
    let found = subjects.iter().find(matches).unwrap_or_else(|| panic!("{path} is of no API"));
    (found, ApiKey::find(found.api.key).expect("an API"), version.parse().expect("a number"))
}

/// What our codec makes of a frame: the frame again, and the file of it.
fn pass(codec: &Codec, api: &ApiKey, version: i16, frame: &Bytes) -> (Vec<u8>, String) {
    let mut writer = Writer::new();
    let body = if codec.response {
        encode_response_header(&mut writer, api, version, CORRELATION_ID);
        frame.slice(writer.len()..)
    } else {
        let (head, reader) = RequestHeader::decode(frame.clone()).expect("a head");
        assert_eq!((head.api_key, head.api_version, head.correlation_id), (api.key, version, CORRELATION_ID));
        assert_eq!(head.client_id.as_deref(), Some("golden"));
        head.encode(&mut writer);
        frame.slice(frame.len() - reader.remaining()..)
    };
    let passed = (codec.ours)(body, version).unwrap_or_else(|error| panic!("{} {version}: {error}", codec.name));
    let again = [joined(writer), passed.bytes].concat();
    let file = file_of(&again, &format!("{} version {version}\n{}", api.name, passed.text));
    (again, file)
}

#[test]
fn our_codec_keeps_golden_frames() {
    let subjects = subjects();
    for (path, file) in committed() {
        let (subject, api, version) = subject(&subjects, &path);
        let frame = Bytes::from(bytes_of(&file));
        let (again, expected) = pass(subject.codec, api, version, &frame);
        assert!(again == frame, "{path}: the frame becomes\n{again:02x?}");
        assert_eq!(file, expected, "{path}");
    }
}

#[test]
fn golden_frames_are_what_the_other_codec_makes() {
    let made = frames();
    if std::env::var_os("UPDATE").is_some() {
        let subjects = subjects();
        for (path, frame) in &made {
            let (subject, api, version) = subject(&subjects, path);
            let (_, file) = pass(subject.codec, api, version, &Bytes::copy_from_slice(frame));
            let target = folder().join(format!("{path}.hex"));
            fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
            fs::write(target, file).expect("a file");
        }
    }
    let mut found: BTreeMap<_, _> = committed().into_iter().map(|(path, file)| (path, bytes_of(&file))).collect();
    for path in BY_HAND {
        assert!(found.remove(*path).is_some(), "{path} is missing");
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
    for (path, frame) in &made {
        assert!(found[path] == *frame, "{path}: the file has\n{:02x?}\nand not\n{frame:02x?}", found[path]);
    }
}

/// The other codec reads what we wrote by hand as far as it can: as the version before, up to the topic's id.
#[test]
fn frames_by_hand_begin_like_others() {
    let files = committed();
    let by_hand = Bytes::from(bytes_of(&files["offset_commit/v10.request"]));
    let before = bytes_of(&files["offset_commit/v9.request"]);
    let head = TheirRequestHeader::decode(&mut by_hand.clone(), 2).expect("a head");
    assert_eq!((head.request_api_key, head.request_api_version), (8, 10));
    let topic = before.windows(7).position(|window| window == b"\x07orders").expect("a topic's name");
    assert_eq!(by_hand[4..topic], before[4..topic]);
    assert_eq!(by_hand[topic + 16..], before[topic + 7..]);
}
