//! What is kept of a message on its way in.

use amqp_wire::ShortBytes;

use super::*;
use crate::transaction::Held;

const MAX: u64 = 16 << 20;

fn publish() -> Content {
    let (exchange, routing_key) = (ShortBytes::new(b"orders").expect("short"), ShortBytes::new(b"new").expect("short"));
    Content::new(&basic::Publish { exchange, routing_key, mandatory: false, immediate: false }, Instant::now())
}

fn frame(kind: FrameKind, payload: &[u8]) -> Frame<'_> {
    Frame { kind, channel: 1, payload }
}

/// The payload of a header that announces `size` bytes.
fn announced(size: u64) -> Vec<u8> {
    [&60u16.to_be_bytes()[..], &[0, 0], &size.to_be_bytes(), &[0, 0]].concat()
}

fn take<'f>(content: &mut Content, kind: FrameKind, payload: &'f [u8]) -> Taken<'f> {
    let frame = frame(kind, payload);
    let (before, keeps) = (content.kept(), content.keeps(&frame));
    let taken = content.take(&frame, MAX, Instant::now()).expect("it is due");
    assert_eq!(content.kept() - before, keeps, "what was said before");
    taken
}

#[test]
fn a_body_of_one_frame_is_not_kept() {
    let mut content = publish();
    let size = 100_000;
    assert_eq!(take(&mut content, FrameKind::Header, &announced(size)), Taken::Part);
    let (before, body) = (content.kept(), vec![7; size as usize]);
    assert_eq!(take(&mut content, FrameKind::Body, &body), Taken::Whole(&body));
    assert_eq!(content.kept(), before);
    let length = content.with_message(&body, |message| {
        Ok((message.exchange.to_vec(), message.routing_key.to_vec(), message.body_bytes()))
    });
    assert_eq!(length.ok(), Some((b"orders".to_vec(), b"new".to_vec(), body.len())));
}

#[test]
fn memory_is_counted_whole_and_allocated_as_pieces_come() {
    for piece_bytes in [1usize, 13, 4088, 100_000] {
        let mut content = publish();
        take(&mut content, FrameKind::Header, &announced(16 << 20));
        assert!(content.kept() < 1000, "nothing of the body has come");
        let (mut came, piece) = (0, vec![1; piece_bytes]);
        while came + piece_bytes < 1_000_000.min(piece_bytes * 20_000) {
            take(&mut content, FrameKind::Body, &piece);
            came += piece_bytes;
            let Part::Body { body, .. } = &content.part else { panic!("the header has come") };
            let allocated: usize = body.iter().map(Vec::capacity).sum();
            assert!(allocated <= 2 * came + BLOCK_BYTES.min(2 * came) + AROUND, "{allocated} for {came} bytes");
            assert!(
                allocated + body.len() * AROUND <= content.kept() && content.kept() <= 17 << 20,
                "{allocated} counted as {}",
                content.kept()
            );
        }
        let Part::Body { body, .. } = &content.part else { panic!("the header has come") };
        assert_eq!(body.iter().map(Vec::len).sum::<usize>(), came);
    }
}

#[test]
fn the_whole_is_what_came() {
    let all: Vec<u8> = (0..200_000u32).map(|number| (number % 251) as u8).collect();
    let mut content = publish();
    take(&mut content, FrameKind::Header, &announced(all.len() as u64));
    let mut last = &[][..];
    for piece in all.chunks(4088) {
        if let Taken::Whole(piece) = take(&mut content, FrameKind::Body, piece) {
            last = piece;
        }
    }
    let joined = content.with_message(last, |message| Ok(message.body.concat()));
    assert_eq!(joined.ok(), Some(all));
}

#[test]
fn nothing_is_kept_of_a_body_that_is_too_large() {
    let mut content = publish();
    take(&mut content, FrameKind::Header, &announced(MAX + 1));
    let before = content.kept();
    take(&mut content, FrameKind::Body, &vec![0; 100_000]);
    assert_eq!(content.kept(), before);
}

#[test]
fn a_body_of_which_little_comes_is_stalled() {
    let (mut content, begin) = (publish(), Instant::now());
    content.take(&frame(FrameKind::Header, &announced(900 << 10)), MAX, begin).expect("it is due");
    let at = |tenths: u32| begin + STALLED_AFTER * tenths / 10;
    for tenths in 1..10 {
        content.take(&frame(FrameKind::Body, &[0; 100]), MAX, at(tenths)).expect("it is due");
    }
    assert!(!content.is_stalled(at(9), |since| since) && content.is_stalled(at(11), |since| since));
    assert!(
        !content.is_stalled(at(19), |_| at(10)) && content.is_stalled(at(20), |_| at(10)),
        "nothing was read meanwhile"
    );
    content.take(&frame(FrameKind::Body, &[0; PROGRESS_BYTES]), MAX, at(12)).expect("it is due");
    assert!(!content.is_stalled(at(20), |since| since) && content.is_stalled(at(23), |since| since));
}

#[test]
fn a_large_body_has_to_come_in_a_minute() {
    let (mut content, begin) = (publish(), Instant::now());
    content.take(&frame(FrameKind::Header, &announced(MAX)), MAX, begin).expect("it is due");
    let mut take = |bytes, seconds| {
        let now = begin + Duration::from_secs(seconds);
        content.take(&frame(FrameKind::Body, &vec![0; bytes]), MAX, now).expect("it is due");
        content.is_stalled(now, |since| since)
    };
    assert!(!take(400_000, 0) && take(100_000, 2), "too little in two seconds");
    assert!(!take(600_000, 3) && !take(600_000, 4) && take(400_000, 6));
}

#[test]
fn a_transaction_goes_on_keeping_what_was_kept_of_a_body() {
    let all: Vec<u8> = (0..2_000_000u32).map(|number| (number % 251) as u8).collect();
    let mut content = publish();
    take(&mut content, FrameKind::Header, &announced(all.len() as u64));
    let mut last = &[][..];
    for piece in all.chunks(100_000) {
        if let Taken::Whole(piece) = take(&mut content, FrameKind::Body, piece) {
            last = piece;
        }
    }
    let (kept, mut shared) = (content.kept(), Vec::new());
    let held = content.with_blocks(last, |message, blocks| {
        shared.extend(blocks.iter().map(|block| block.as_ptr_range()));
        Ok(Held::of_blocks(&message, false, blocks, last))
    });
    let held = held.unwrap_or_else(|_| panic!("it is whole"));
    assert!(held.bytes() <= kept + 1000, "{} bytes of {kept} that were counted before", held.bytes());
    held.with_message(|message| {
        let copied: usize =
            message.body.iter().filter(|piece| !shared.contains(&piece.as_ptr_range())).map(|piece| piece.len()).sum();
        assert_eq!(copied, last.len(), "bytes that were copied again");
        assert_eq!(message.body.concat(), all);
    });
}
