//! Readers of history that is still in the segment being written.

use journal::{ColdWant, JournalConfig};
use types::{Durability, LogId, Offset};

use crate::node::{Node, check, modes, small};

const VALUE_BYTES: usize = 2000;
const LOGS: u64 = 40;
const ROUNDS: u64 = 60;
const RECORDS: u64 = 4;

#[test]
fn many_logs_that_share_a_segment_being_written_read_it_about_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = JournalConfig { segment_bytes: 64 << 20, ..small() };
    let node = Node::open(folder.path(), modes()[0], config).expect("it opens");
    let logs: Vec<_> = (1..=LOGS).map(|id| node.journal.create_log(LogId(id), Durability::Memory)).collect();
    for _ in 0..ROUNDS {
        for log in &logs {
            node.append_batch(log, RECORDS, VALUE_BYTES).expect("appended");
        }
    }
    let written = LOGS * ROUNDS * RECORDS * VALUE_BYTES as u64;
    assert_eq!(node.journal.metrics().segments_sealed.get(), 0, "all of it is in the segment being written");
    let mut wants: Vec<ColdWant> = logs
        .iter()
        .map(|log| ColdWant { log: log.clone(), from: Offset(0), until: Offset(u64::MAX), max_bytes: 256 << 10 })
        .collect();
    while wants.iter().any(|want| want.from < want.log.high_watermark()) {
        wants.retain(|want| want.from < want.log.high_watermark());
        let results = node.journal.read_cold(&wants, 2 << 20);
        for (want, data) in wants.iter_mut().zip(results) {
            let data = data.expect("readable");
            assert_eq!(check(&want.log, want.from, &data.slices, VALUE_BYTES), data.next);
            want.from = data.next;
        }
    }
    let read = node.journal.metrics().cold_read_bytes.get();
    assert!(read < 3 * written, "{written} bytes were written, {read} read");
    node.close();
}

#[test]
fn large_batches_of_logs_at_different_places_are_read_once() {
    const VALUE_BYTES: usize = 90_000;
    let folder = tempfile::tempdir().expect("a folder");
    let config = JournalConfig { segment_bytes: 64 << 20, ..small() };
    let node = Node::open(folder.path(), modes()[0], config).expect("it opens");
    let logs: Vec<_> = (1..=4).map(|id| node.journal.create_log(LogId(id), Durability::Memory)).collect();
    for _ in 0..10 {
        for log in &logs {
            node.append_batch(log, 10, VALUE_BYTES).expect("appended");
        }
    }
    for log in &logs {
        let mut at = Offset(0);
        while at < log.high_watermark() {
            let want = ColdWant { log: log.clone(), from: at, until: Offset(u64::MAX), max_bytes: 1 << 20 };
            let data = node.journal.read_cold(&[want], 1 << 20).remove(0).expect("readable");
            at = check(log, at, &data.slices, VALUE_BYTES);
            assert_eq!(at, data.next);
        }
    }
    let (written, read) = (logs.len() as u64 * 100 * VALUE_BYTES as u64, node.journal.metrics().cold_read_bytes.get());
    assert!(read < written / 20 * 21, "{written} bytes were written, {read} read");
    node.close();
}

/// After a restart nothing is in the tail cache, and what was written last is in an extent that is being written. With small runs there
/// are many in it: each is read with the others, and holds no memory of its own.
#[test]
fn small_runs_of_an_extent_being_written_are_read_once_after_a_restart() {
    const RUNS: u64 = 200;
    let folder = tempfile::tempdir().expect("a folder");
    let config = JournalConfig { segment_bytes: 64 << 20, ..small() };
    let write =
        |node: &Node, log: &_| (0..RUNS).for_each(|_| _ = node.append_batch(log, 1, VALUE_BYTES).expect("appended"));
    let node = Node::open(folder.path(), modes()[0], config.clone()).expect("it opens");
    write(&node, &node.log(1));
    node.close();
    let node = Node::open(folder.path(), modes()[0], config).expect("it opens");
    let log = node.log(1);
    let read = |from: u64, until: u64| {
        for at in from..until {
            let want = ColdWant { log: log.clone(), from: Offset(at), until: Offset(at + 1), max_bytes: VALUE_BYTES };
            let data = node.journal.read_cold(&[want], VALUE_BYTES).remove(0).expect("readable");
            assert_eq!(check(&log, Offset(at), &data.slices, VALUE_BYTES), Offset(at + 1));
        }
    };
    read(0, RUNS);
    let misses = node.journal.metrics().cold_misses.get();
    assert!((1..=4).contains(&misses), "{RUNS} runs took {misses} reads");
    // What comes into the same extent later is read, too.
    write(&node, &log);
    read(0, 2 * RUNS);
    let more = node.journal.metrics().cold_misses.get() - misses;
    assert!(more <= 4, "{RUNS} more runs took {more} reads");
    node.close();
}

#[test]
fn a_time_is_looked_up_among_what_a_trim_has_left_of_a_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), modes()[0], small()).expect("it opens");
    let log = node.log(1);
    // Records of a batch are a millisecond apart, from 1,000 on.
    node.append_batch(&log, 5, VALUE_BYTES).expect("appended");
    node.trim(&log, 2).expect("trimmed");
    assert_eq!(node.journal.find_by_time(&log, 1_000).expect("readable"), Some((Offset(2), 1_002)));
    assert_eq!(node.journal.find_by_time(&log, 1_004).expect("readable"), Some((Offset(4), 1_004)));
    assert_eq!(node.journal.max_timestamp(&log).expect("readable"), Some((Offset(4), 1_004)));
    // A shorter batch behind it: its largest is smaller than what was trimmed.
    node.append_batch(&log, 2, VALUE_BYTES).expect("appended");
    node.trim(&log, 5).expect("trimmed");
    assert_eq!(node.journal.max_timestamp(&log).expect("readable"), Some((Offset(6), 1_001)));
    assert_eq!(node.journal.find_by_time(&log, 1_002).expect("readable"), None);
    node.close();
}
