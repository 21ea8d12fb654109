//! Large batches given out by queues and streams: what this thread unpacks for it, and what all of it takes of memory.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::record::{BatchBuilder, Compression};
use routing::Arguments;
use types::{ConnectionId, ShardId};

use super::super::testing::{Node, arguments, name};
use super::*;
use crate::jobs::NOBODY;
use crate::mailbox::{Event, Mailbox, Reply};
use crate::queues::{Consuming, Deliveries, Got, Queue, StreamRead, StreamReading, StreamStart};
use journal::ReplyTo;

/// Longest wait for anything: a machine that has much else to do takes long to unpack what is large.
const PATIENCE: Duration = Duration::from_secs(240);
const RECORDS: u64 = 4_000;

/// Records of 5,000 bytes each, in one batch of some KB.
fn packed(records: u64) -> Bytes {
    let value = vec![b'v'; 5_000];
    let add = |batch: BatchBuilder, number: u64| batch.record(number as i64, None, Some(&value));
    (0..records).fold(BatchBuilder::default().compression(Compression::Zstd), add).build()
}

/// What is unpacked at once on the thread that asks: one byte more tells that there is more.
const HERE: u64 = HERE_BYTES_MAX as u64 + 1;

fn start() -> (Node, Vec<JoinHandle<()>>) {
    let node = Node::open(1);
    let threads = node.broker.start();
    node.broker.vhosts().set_window_bytes_max(8 << 20);
    (node, threads)
}

fn end(node: Node, threads: Vec<JoinHandle<()>>) {
    node.broker.shutdown();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    node.close();
}

/// The most that pieces may take: what is kept, and what a thread or two have opened.
fn assert_bounded(node: &Node) {
    let bytes = node.broker.vhosts().window_bytes();
    assert!(bytes <= 32 << 20, "{bytes}");
}

/// The next message, for which somebody else may have to unpack something.
fn next(node: &Node, queue: &Arc<Queue>) -> u64 {
    let (channel, holder) = (node.broker.new_channel(NOBODY), node.broker.subscriptions().new_consumer());
    let until = Instant::now() + PATIENCE;
    loop {
        let before = unpacked_bytes();
        let got = node.broker.get(queue, &channel, holder, true);
        // Before it gives somebody a message, a queue looks what else there is to be done.
        assert!(unpacked_bytes() - before <= 3 * HERE, "{}", unpacked_bytes() - before);
        assert_bounded(node);
        match got {
            Got::Message(message, _) => return message.offset,
            Got::Later => assert!(Instant::now() < until, "it comes"),
            Got::Empty => panic!("there are messages"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_queue_gives_out_a_large_batch_piece_by_piece() {
    let (node, threads) = start();
    let queue = node.queue("q", Arguments::default());
    node.broker.deposit(std::slice::from_ref(&queue), &packed(RECORDS)).expect("the journal takes it");
    for offset in 0..RECORDS {
        assert_eq!(next(&node, &queue), offset);
    }
    assert_eq!(node.broker.unpacking().counts().passed_over.load(Ordering::Relaxed), 0);
    end(node, threads);
}

#[test]
fn a_queue_gives_out_all_that_it_has_taken_when_the_bound_is_smaller_later() {
    let (node, threads) = start();
    let queue = node.queue("q", Arguments::default());
    for batch in [packed(RECORDS), packed(1)] {
        node.broker.deposit(std::slice::from_ref(&queue), &batch).expect("the journal takes it");
    }
    node.broker.bound_unpacking(128 << 20);
    assert_eq!(node.broker.unpacking().bytes_max(), 8 << 20);
    for offset in 0..=RECORDS {
        assert_eq!(next(&node, &queue), offset);
    }
    assert_eq!(node.broker.unpacking().counts().passed_over.load(Ordering::Relaxed), 0);
    end(node, threads);
}

#[test]
fn a_queue_waits_at_a_message_that_is_too_large_for_the_memory_until_there_is_more() {
    let (node, threads) = start();
    let queue = node.queue("q", Arguments::default());
    let large =
        BatchBuilder::default().compression(Compression::Zstd).record(1, None, Some(&vec![b'v'; 20 << 20])).build();
    for batch in [packed(1), large, packed(1)] {
        node.broker.deposit(std::slice::from_ref(&queue), &batch).expect("the journal takes it");
    }
    // One record may take 16 MiB.
    node.broker.bound_unpacking(64 << 20);
    assert_eq!(next(&node, &queue), 0);
    let (channel, holder) = (node.broker.new_channel(NOBODY), node.broker.subscriptions().new_consumer());
    for _ in 0..50 {
        assert!(matches!(node.broker.get(&queue, &channel, holder, true), Got::Later), "nothing is passed over");
        std::thread::sleep(Duration::from_millis(10));
    }
    node.broker.bound_unpacking(128 << 20);
    assert_eq!((next(&node, &queue), next(&node, &queue)), (1, 2));
    end(node, threads);
}

/// A batch whose records make no sense from a byte on.
fn damaged(batch: &Bytes, from: usize) -> Bytes {
    let mut batch = batch.to_vec();
    batch[from..].fill(0xff);
    batch.into()
}

#[test]
fn what_makes_no_sense_is_passed_over_and_what_is_behind_it_is_given_out() {
    let (node, threads) = start();
    let queue = node.queue("q", Arguments::default());
    let plain =
        (0..3).fold(BatchBuilder::default(), |batch, number| batch.record(number, None, Some(b"value"))).build();
    let (small, large) = (packed(3), packed(RECORDS));
    let header = ::record::HEADER_BYTES;
    let all = [
        packed(1),
        damaged(&small, header),
        packed(1),
        damaged(&plain, header),
        damaged(&plain, plain.len() - 10),
        damaged(&large, header + large.len() / 2),
        packed(1),
    ];
    let mut begins = Vec::new();
    for batch in &all {
        begins.push(queue.log().high_watermark().0);
        node.broker.deposit(std::slice::from_ref(&queue), batch).expect("the journal takes it");
    }
    let mut found = Vec::new();
    while found.last() != Some(&begins[6]) {
        found.push(next(&node, &queue));
    }
    assert!(found.is_sorted() && [0, 2, 6].iter().all(|whole| found.contains(&begins[*whole])), "{found:?}");
    assert!(
        !found.iter().any(|offset| (begins[1]..begins[2]).contains(offset) || (begins[3]..begins[4]).contains(offset))
    );
    assert_eq!(
        found.iter().filter(|offset| (begins[4]..begins[5]).contains(offset)).count(),
        2,
        "those before the damage"
    );
    assert!(node.broker.unpacking().counts().damaged.load(Ordering::Relaxed) >= 4);
    end(node, threads);
}

#[test]
fn a_message_with_more_headers_than_there_is_memory_for_is_given_out_with_some() {
    let (node, threads) = start();
    let queue = node.queue("q", Arguments::default());
    node.broker.bound_unpacking(128 << 20);
    let header: (&[u8], Option<&[u8]>) = (b"", None);
    for compression in [Compression::None, Compression::Zstd] {
        let batch = BatchBuilder::default()
            .compression(compression)
            .record_with_headers(1, None, Some(b"many"), &vec![header; 140_000])
            .build();
        node.broker.deposit(std::slice::from_ref(&queue), &batch).expect("the journal takes it");
    }
    assert_eq!((next(&node, &queue), next(&node, &queue)), (0, 1));
    end(node, threads);
}

#[test]
fn a_stream_gives_out_large_batches_piece_by_piece() {
    let (node, threads) = start();
    let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
    node.broker.add_shard(ShardId(0), Arc::clone(&mailbox));
    let stream = node.queue("s", arguments(&[("x-queue-type", "stream")]));
    for _ in 0..3 {
        node.broker.deposit(std::slice::from_ref(&stream), &packed(RECORDS)).expect("the journal takes it");
    }
    let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(1), token: 0 };
    let channel = node.broker.new_channel(to);
    let wish = Consuming {
        to,
        channel: Arc::clone(&channel),
        tag: name("c"),
        no_ack: false,
        exclusive: false,
        priority: 0,
        prefetch: u16::MAX,
        time_out_ms: None,
        arguments: Arguments::default(),
    };
    let reading =
        StreamReading { start: StreamStart::First, filter: None, address: std::net::IpAddr::from([127, 0, 0, 1]) };
    let before = unpacked_bytes();
    node.broker.read_stream(&stream, wish, reading).expect("it is there");
    assert!(unpacked_bytes() - before <= 2 * HERE, "{}", unpacked_bytes() - before);
    let (until, mut expected) = (Instant::now() + PATIENCE, 0);
    while expected < 3 * RECORDS {
        let mut events = Vec::new();
        mailbox.drain(&mut events);
        for event in events {
            let before = unpacked_bytes();
            match event {
                Event::Reply { reply: Reply::Done(done), .. } => match done.downcast::<Deliveries>() {
                    Ok(deliveries) => {
                        for message in &deliveries.messages {
                            assert_eq!(message.offset, expected);
                            expected += 1;
                        }
                        node.broker.taken(&channel, deliveries.bytes);
                    }
                    Err(done) => node.broker.stream_read(*done.downcast::<StreamRead>().expect("what it asked for")),
                },
                Event::Advanced(log) => node.broker.queue_advanced(log, ShardId(0)),
                Event::Reply { .. } | Event::Space | Event::PollSockets(_) => {}
            }
            assert!(unpacked_bytes() - before <= 2 * HERE, "{}", unpacked_bytes() - before);
            assert_bounded(&node);
        }
        assert!(Instant::now() < until, "{expected} have come");
        std::thread::sleep(Duration::from_millis(1));
    }
    end(node, threads);
}
