//! Messages on the wire: whole ones, their headers, and bodies in pieces.

use amqp_wire::{
    ContentHeader, EncodedProperties, FRAME_END, FrameKind, Method, Parsed, Problem, Properties, ReplyCode, basic,
    body_frames, parse_frame, short, write_body, write_content,
};
use bytes::BytesMut;

use crate::allocations;
use crate::golden;

fn deliver<'a>() -> basic::Deliver<'a> {
    basic::Deliver {
        consumer_tag: short("tag").into(),
        delivery_tag: 9,
        redelivered: true,
        exchange: short("ex").into(),
        routing_key: short("rk").into(),
    }
}

#[test]
fn a_message_is_rabbitmqs() {
    let mut encoded = BytesMut::new();
    Properties { delivery_mode: Some(2), ..Properties::default() }.encode(&mut encoded);
    let properties = EncodedProperties::check(&encoded).expect("well-formed");
    let body: Vec<u8> = (1..=20).collect();
    let mut out = BytesMut::with_capacity(200);
    let ((), allocated) = allocations::count(|| write_content(&mut out, 7, &deliver(), properties, &body, 16));
    assert_eq!((out.as_ref(), allocated), (&golden::bytes("content deliver")[..], 0));
}

#[test]
fn a_message_is_read_as_it_was_written() {
    for (size, frame_max) in [(0, 8192), (1, 9), (8184, 8192), (8185, 8192), (100_000, 4096), (3, 0), (3, 8)] {
        let body: Vec<u8> = (0..size).map(|at| at as u8).collect();
        let mut out = BytesMut::new();
        write_content(&mut out, 3, &deliver(), EncodedProperties::default(), &body, frame_max);
        let (mut rest, mut frames, mut read) = (&out[..], 0, Vec::<u8>::new());
        while !rest.is_empty() {
            let Ok(Parsed::Frame(frame)) = parse_frame(rest, 200_000) else { panic!("{size} and {frame_max}") };
            match frames {
                0 => assert_eq!(Method::decode(frame.payload), Ok(Method::Basic(basic::Method::Deliver(deliver())))),
                1 => {
                    let header = ContentHeader { body_size: size as u64, properties: EncodedProperties::default() };
                    assert_eq!((frame.kind, ContentHeader::decode(frame.payload)), (FrameKind::Header, Ok(header)));
                }
                _ => {
                    assert!(frame.kind == FrameKind::Body && frame.bytes() <= frame_max.max(9) as usize);
                    read.extend(frame.payload);
                }
            }
            frames += 1;
            rest = &rest[frame.bytes()..];
        }
        assert_eq!(read, body);
    }
}

#[test]
fn pieces_are_the_frames() {
    for (size, frame_max) in [(0, 100), (1, 100), (92, 100), (93, 100), (1000, 100)] {
        let body = vec![7u8; size];
        let mut out = BytesMut::new();
        write_body(&mut out, 5, &body, frame_max);
        let frames = body_frames(5, size, frame_max);
        assert_eq!((frames.len(), frames.len()), (size.div_ceil(92), frames.clone().count()));
        let pieces: Vec<u8> =
            frames.flat_map(|frame| [&frame.head, &body[frame.body], &[FRAME_END]].concat()).collect();
        assert_eq!(pieces, out);
    }
}

#[test]
fn malformed_headers_are_told_apart() {
    let header = [&[0, 60, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 5], &[0x10, 0, 2]].concat();
    let decoded = ContentHeader::decode(&header).expect("well-formed");
    assert_eq!((decoded.body_size, decoded.properties.delivery_mode()), (5, Some(2)));
    for length in 0..header.len() {
        let error = ContentHeader::decode(&header[..length]).expect_err("cut");
        let code = if length < 12 { ReplyCode::FrameError } else { ReplyCode::SyntaxError };
        assert_eq!((error.reply_code(), error.offset <= length), (code, true));
    }
    let changed = |at: usize, byte: u8| {
        let mut changed = header.clone();
        changed[at] = byte;
        ContentHeader::decode(&changed).map(|_| ()).map_err(|error| (error.problem, error.reply_code()))
    };
    assert_eq!(changed(1, 50), Err((Problem::ContentClass(50), ReplyCode::UnexpectedFrame)));
    assert_eq!(changed(3, 1), Err((Problem::Weight(1), ReplyCode::UnexpectedFrame)));
    assert_eq!(changed(13, 1), Err((Problem::PropertyFlags(0x1001), ReplyCode::SyntaxError)));
    assert_eq!(changed(4, 0xff), Ok(()), "a size is a number; its limit is the broker's");
}
