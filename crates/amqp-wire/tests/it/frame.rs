//! Frames: what is missing, what is wrong, and what a connection begins with.

use amqp_wire::{FRAME_OVERHEAD, Frame, FrameKind, Parsed, ParsedHeader, Problem, ProtocolHeader, ReplyCode};
use amqp_wire::{parse_frame, write_heartbeat};
use bytes::{Bytes, BytesMut};

use crate::golden;
use crate::random::Rng;

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&[kind][..], &channel.to_be_bytes(), &length, payload, &[0xCE]].concat()
}

#[test]
fn every_prefix_tells_what_is_missing() {
    for payload in [&b""[..], b"x", b"payload"] {
        let bytes = frame(3, 258, payload);
        for length in 0..bytes.len() {
            let Ok(Parsed::More(missing)) = parse_frame(&bytes[..length], 8192) else { panic!("{length} bytes") };
            let whole = if length < 7 { 8 } else { bytes.len() };
            assert_eq!(missing, whole - length);
        }
        let behind = [&bytes[..], b"more"].concat();
        let expected = Frame { kind: FrameKind::Body, channel: 258, payload };
        for input in [&bytes, &behind] {
            assert_eq!(parse_frame(input, 8192), Ok(Parsed::Frame(expected)));
        }
        assert_eq!(expected.bytes(), bytes.len());
    }
}

#[test]
fn a_payload_is_a_slice_of_the_input() {
    let input = Bytes::from(frame(3, 1, b"body"));
    let Ok(Parsed::Frame(frame)) = parse_frame(&input, 100) else { panic!("a frame") };
    let shared = input.slice_ref(frame.payload);
    assert_eq!((shared.as_ref(), shared.as_ptr()), (&b"body"[..], input[7..].as_ptr()));
}

#[test]
fn a_payload_that_is_too_long_is_refused_before_it_is_there() {
    let problem = |bytes: u32, max: u32| {
        let head = [&[1, 0, 0][..], &bytes.to_be_bytes()].concat();
        match parse_frame(&head, max) {
            Ok(Parsed::More(missing)) => Ok(missing),
            Ok(Parsed::Frame(_)) => panic!("there is no payload"),
            Err(error) => Err((error.problem, error.reply_code())),
        }
    };
    assert_eq!(problem(8192, 8192), Ok(8193));
    let refused = |bytes| Err((Problem::FrameTooLarge { bytes, max: 8192 }, ReplyCode::FrameError));
    assert_eq!(problem(8193, 8192), refused(8193));
    assert_eq!(problem(u32::MAX, 8192), refused(u32::MAX));
    assert_eq!(problem(u32::MAX, u32::MAX), Ok(u32::MAX as usize + 1));
}

#[test]
fn types_and_ends_are_looked_at() {
    for kind in 0..=u8::MAX {
        let known = [1, 2, 3, 8].contains(&kind);
        for length in [1, 7, 8] {
            let bytes = frame(kind, 0, b"");
            let result = parse_frame(&bytes[..length], 100).map_err(|error| error.problem);
            assert_eq!(result.is_ok(), known, "{kind}");
            assert!(known || result == Err(Problem::FrameKind(kind)));
        }
    }
    let mut bytes = frame(1, 0, b"abc");
    *bytes.last_mut().unwrap() = 0xCF;
    let error = parse_frame(&bytes, 100).expect_err("another end");
    assert_eq!((error.problem, error.offset), (Problem::FrameEnd(0xCF), 10));
}

#[test]
fn a_heartbeat_is_rabbitmqs() {
    let mut out = BytesMut::new();
    write_heartbeat(&mut out);
    assert_eq!(out, golden::bytes("heartbeat"));
    assert_eq!(out.len(), FRAME_OVERHEAD as usize);
}

#[test]
fn noise_does_not_panic() {
    let mut rng = Rng(31);
    for _ in 0..20_000 {
        let count = rng.below(40);
        let mut bytes = rng.bytes(count);
        if let Some(first) = bytes.first_mut().filter(|_| rng.flip()) {
            *first = [1, 2, 3, 8][rng.below(4)];
        }
        let max = [0, 30, 8192, u32::MAX][rng.below(4)];
        match parse_frame(&bytes, max) {
            Ok(Parsed::Frame(frame)) => assert!(frame.bytes() <= bytes.len() && frame.payload.len() <= max as usize),
            Ok(Parsed::More(more)) => assert!(more > 0 && more as u64 <= u64::from(max) + 8),
            Err(error) => assert_eq!(error.reply_code(), ReplyCode::FrameError),
        }
    }
}

#[test]
fn a_connection_begins_with_a_header() {
    let parse = |bytes: &[u8]| ProtocolHeader::parse(bytes);
    for (bytes, spoken) in [
        (b"AMQP\0\0\x09\x01", true),
        (b"AMQP\x01\x01\0\x09", true),
        (b"AMQP\0\x01\0\0", false),
        (b"AMQP\x03\x01\0\0", false),
        (b"AMQP\x01\x01\x08\0", false),
    ] {
        let ParsedHeader::Header(header) = parse(bytes) else { panic!("{bytes:?}") };
        assert_eq!((header.is_spoken(), &header.to_bytes()), (spoken, bytes));
        assert_eq!(parse(&[&bytes[..], b"more"].concat()), ParsedHeader::Header(header));
        for length in 0..8 {
            assert_eq!(parse(&bytes[..length]), ParsedHeader::More(8 - length));
        }
    }
    for foreign in [&b"GET / HTTP/1.1"[..], b"\x16\x03\x01", b"AMQX", b"a", b"AMQ\0"] {
        assert_eq!(parse(foreign), ParsedHeader::Foreign);
    }
    assert_eq!(&ProtocolHeader::AMQP_0_9_1.to_bytes(), b"AMQP\0\0\x09\x01");
}
