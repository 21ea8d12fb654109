//! Little memory: appends wait for it, and go on when it is there again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use journal::disk::IoMode;
use journal::{AppendItem, BlockPool, JournalConfig, Log, TailRead};
use types::{Durability, LogId, Offset};

use crate::node::{Node, read_all, small};

const VALUE_BYTES: usize = 9000;
/// A batch of nearly a block.
const BATCH_RECORDS: u64 = 100;

fn open(folder: &std::path::Path) -> Node {
    Node::open(folder, IoMode::Buffered, JournalConfig { segment_bytes: 32 << 20, ..small() })
        .expect("an empty folder opens")
}

fn memory_log(node: &Node, id: u64) -> Arc<Log> {
    node.journal.create_log(LogId(id), Durability::Memory)
}

/// Chunks that wait for the next flush, 64 MiB of them, are more than all blocks together.
#[test]
fn what_waits_for_a_flush_holds_no_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    thread::scope(|scope| {
        for id in 1..=3 {
            let (node, log) = (&node, memory_log(&node, id));
            scope.spawn(move || {
                for _ in 0..50 {
                    node.append_batch(&log, BATCH_RECORDS, VALUE_BYTES).expect("appended");
                }
            });
        }
    });
    for id in 1..=3 {
        assert_eq!(read_all(&node.journal, &memory_log(&node, id), VALUE_BYTES), Offset(50 * BATCH_RECORDS));
    }
    node.close();
}

/// Readers that hold every block stop the writer, not for good. Each batch is read before the next one is appended, so that all are held: a writer that
/// took what it is not to have would go on.
#[test]
fn appends_wait_while_readers_hold_all_blocks() {
    const BATCHES: u64 = 100;
    const MEMORY: usize = 32 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let log = memory_log(&node, 1);
    let ((ask, asked), (tell, told)) = (channel(), channel());
    thread::scope(|scope| {
        let (node, log) = (&node, &log);
        scope.spawn(move || {
            for () in asked {
                node.append_batch(log, BATCH_RECORDS, VALUE_BYTES).expect("appended");
                tell.send(()).expect("somebody hears");
            }
        });
        let (mut held, mut at): (Vec<Bytes>, _) = (Vec::new(), Offset(0));
        let append = || ask.send(()).expect("somebody appends");
        append();
        loop {
            match told.recv_timeout(Duration::from_millis(200)) {
                Ok(()) => {}
                // It waits, or is slow.
                Err(RecvTimeoutError::Timeout) if node.journal.tail_memory().1 < MEMORY - (2 << 20) => continue,
                Err(_) => break,
            }
            while at < log.high_watermark() {
                let TailRead::Data { slices, next, .. } =
                    node.journal.read_tail(log, at..Offset(u64::MAX), 1 << 20, true)
                else {
                    panic!("what was appended last is in memory, {at} of {}", log.end());
                };
                held.extend(slices);
                at = next;
            }
            assert!(
                at < Offset(BATCHES / 2 * BATCH_RECORDS),
                "{at} records are held in {:?} bytes",
                node.journal.tail_memory()
            );
            append();
        }
        assert!(node.journal.tail_memory().0 <= MEMORY, "blocks beyond the bound");
        held.clear();
        (0..BATCHES - log.end().0 / BATCH_RECORDS).for_each(|_| append());
        drop(ask);
    });
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    assert!(log.end() >= Offset(BATCHES * BATCH_RECORDS) && node.journal.tail_memory().0 <= MEMORY);
    node.close();
}

/// Each has a block of its own, larger than what the cache of the newest chunks lets go of at once; one is larger than all memory for blocks.
#[test]
fn large_messages_one_after_the_other_have_memory() {
    const LARGE: usize = 6 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), IoMode::Buffered, JournalConfig { segment_bytes: 128 << 20, ..small() })
        .expect("an empty folder opens");
    let logs = [memory_log(&node, 1), node.journal.create_log(LogId(2), Durability::Fsync)];
    for number in 0..20 {
        for log in &logs {
            node.append_batch(log, 1, LARGE).expect("appended");
        }
        node.append_batch(&logs[number % 2], 1, 100).expect("a small one behind it");
        assert!(
            node.journal.tail_memory().0 <= (32 << 20) + LARGE + (1 << 20),
            "{} bytes in blocks",
            node.journal.tail_memory().0
        );
    }
    let huge = memory_log(&node, 3);
    for _ in 0..3 {
        node.append_batch(&huge, 1, 40 << 20).expect("appended");
    }
    assert_eq!(read_all(&node.journal, &huge, 40 << 20), Offset(3));
    node.close();
}

/// Between the writer's look at the memory for a large chunk and its taking it the keeper may touch the next block.
#[test]
fn memory_that_was_there_for_a_large_chunk_is_there_for_it() {
    let pool = BlockPool::new(16 << 20);
    let large = pool.take(31 << 19).expect("all of it is there");
    assert!(pool.may_take_single());
    let touched = pool.take(1 << 20).expect("a block");
    assert!(pool.take(2 << 20).is_some(), "the writer has seen that it may");
    assert!(!pool.may_take_single(), "not another one");
    drop((large, touched));
}

/// Keys that are written again and again take memory once; many keys take no more than they may: then the segment is sealed before it is full.
#[test]
fn keyed_state_takes_no_more_memory_than_it_may() {
    const STATE_BYTES: usize = 64 << 10;
    const KEYS: u64 = 5000;
    let folder = tempfile::tempdir().expect("a folder");
    let config = || JournalConfig { segment_bytes: 32 << 20, state_bytes: STATE_BYTES, ..small() };
    let node = Node::open(folder.path(), IoMode::Buffered, config()).expect("an empty folder opens");
    let bytes = |number: u64| Bytes::copy_from_slice(&number.to_be_bytes());
    let put = |key: u64, value: Option<u64>| AppendItem::State { key: bytes(key), value: value.map(bytes) };
    for round in 0..1000 {
        node.append(1, (0..10).map(|key| put(key, Some(round))).collect()).expect("appended");
    }
    assert!(node.journal.state_memory() < 1 << 10, "{} bytes for ten keys", node.journal.state_memory());
    assert_eq!(node.journal.metrics().segments_sealed.get(), 0);
    let mut wanted = BTreeMap::new();
    for key in 0..KEYS {
        let half = (key / 2, (key % 3 > 0).then_some(key));
        node.append(1, vec![put(key, Some(key)), put(half.0, half.1)]).expect("appended");
        for (key, value) in [(key, Some(key)), half] {
            match value {
                Some(value) => drop(wanted.insert(bytes(key), bytes(value))),
                None => drop(wanted.remove(&bytes(key))),
            }
        }
        let memory = node.journal.state_memory();
        assert!(memory <= 2 * STATE_BYTES, "{memory} bytes for keyed state");
    }
    assert!(node.journal.metrics().segments_sealed.get() >= 3);
    node.close();
    let again = Node::open(folder.path(), IoMode::Buffered, config()).expect("what is there opens");
    assert_eq!(again.journal.take_state().into_iter().collect::<BTreeMap<_, _>>(), wanted);
    again.close();
}
