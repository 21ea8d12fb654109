//! Readers beside the writer and the keeper: while segments are sealed, rewritten and freed, every read gives the records that
//! belong there, or says that they were trimmed, and then they were.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use journal::{JournalConfig, Retention};
use types::{Durability, LogId, Offset};

use crate::node::{Node, Seen, modes, read, read_all, read_cold, small};

const VALUE_BYTES: usize = 400;
const LOGS: u64 = 5;

/// A sequence of numbers that looks random and is the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

#[test]
fn reads_are_right_while_segments_are_sealed_rewritten_and_freed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mode = modes()[0];
    for round in 0..4 {
        // In every second round segments are so long that parts of them are kept in memory while others are being written.
        let config = JournalConfig { segment_bytes: [1 << 20, 6 << 20][round as usize % 2], ..small() };
        let node = Node::open(folder.path(), mode, config).expect("it opens");
        let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for id in 1..=LOGS {
                let (node, stop) = (&node, &stop);
                scope.spawn(move || write(node, id, stop));
            }
            for seed in 1..=4 {
                let (node, stop, reads) = (&node, &stop, &reads);
                scope.spawn(move || read_anywhere(node, Random(seed + 10 * round), stop, reads));
            }
            let until = Instant::now() + Duration::from_millis(1500);
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
                let log = node.log(1);
                node.trim(&log, log.end().0.saturating_sub(200)).expect("trimmed");
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(reads.load(Ordering::Relaxed) > 100, "readers got somewhere");
        let ends: Vec<Offset> = (1..=LOGS).map(|id| read_all(&node.journal, &node.log(id), VALUE_BYTES)).collect();
        node.close();
        let node = Node::open(folder.path(), mode, small()).expect("it opens again");
        // Recovery may have left full segments to the keeper: the first reads run beside it.
        for (id, end) in (1..=LOGS).zip(ends) {
            assert_eq!(read_all(&node.journal, &node.log(id), VALUE_BYTES), end, "log {id} after a restart");
        }
        node.close();
    }
}

#[test]
fn appends_from_many_threads_are_all_answered_whoever_commits_them() {
    const APPENDS: u64 = 150;
    for mode in modes() {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Node::open(folder.path(), mode, small()).expect("it opens");
        std::thread::scope(|scope| {
            for id in 1..=8 {
                let node = &node;
                scope.spawn(move || {
                    let mut random = Random(id);
                    let durability = if id % 3 == 0 { Durability::Memory } else { Durability::Fsync };
                    let log = node.journal.create_log(LogId(id), durability);
                    for _ in 0..APPENDS {
                        // An answer that does not come fails in the node: the writer rests, and nobody woke it.
                        node.append_batch(&log, 1, VALUE_BYTES).expect("appended");
                        if random.below(2) == 0 {
                            std::thread::sleep(Duration::from_micros(random.below(3000)));
                        }
                    }
                });
            }
        });
        let direct = node.journal.metrics().direct_commits.get();
        assert!(direct > 0, "{mode}: some were committed by those who asked");
        for id in 1..=8 {
            assert_eq!(read_all(&node.journal, &node.log(id), VALUE_BYTES), Offset(APPENDS), "{mode}: log {id}");
        }
        node.close();
    }
}

/// Logs 2 and 3 keep a bounded number of bytes, log 4 is written rarely and keeps everything: its runs are moved by rewriting.
fn write(node: &Node, id: u64, stop: &AtomicBool) {
    let log = node.journal.create_log(LogId(id), Durability::Memory);
    if id != 4 {
        log.set_retention(Retention { ms: None, bytes: Some(1 << 20) });
    }
    let mut random = Random(id);
    while !stop.load(Ordering::Relaxed) {
        node.append_batch(&log, 1 + random.below(40), VALUE_BYTES).expect("appended");
        if id == 4 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn read_anywhere(node: &Node, mut random: Random, stop: &AtomicBool, reads: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let log = node.log(1 + random.below(LOGS));
        let (start, end) = (log.start().0, log.high_watermark().0);
        if start >= end {
            std::thread::yield_now();
            continue;
        }
        let mut at = Offset(start + random.below(end - start));
        for _ in 0..random.below(6) {
            let bytes = 1 + random.below(300 << 10) as usize;
            let from_disk = random.below(3) > 0 && at < log.high_watermark();
            let seen = if from_disk {
                read_cold(&node.journal, &log, at, bytes, VALUE_BYTES)
            } else {
                read(&node.journal, &log, at, bytes, VALUE_BYTES)
            };
            let Seen::Until(next) = seen else { break };
            at = next;
        }
        reads.fetch_add(1, Ordering::Relaxed);
    }
}
