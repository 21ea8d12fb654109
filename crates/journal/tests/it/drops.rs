//! Logs that end: their end is in the journal, and what was written before, at whatever checkpoint, is replayed up to it. Folders of releases that
//! said nowhere that a log had ended open too.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use journal::disk::IoMode;
use journal::{AppendError, AppendItem, JournalConfig, Log, OpenError};
use types::{LogId, Offset};

use crate::ends::segments_of;
use crate::node::{Node, batch, read_all, small};
use crate::repair::{VALUE_BYTES, look};

/// The keeper looks after segments when it is asked for and when one is sealed, so that no checkpoint comes before it is waited for.
fn open(folder: &Path) -> Node {
    Node::open(folder, IoMode::Buffered, JournalConfig { retention_check_ms: 3_600_000, ..small() }).expect("it opens")
}

/// What `act` does and all that was written since the start is behind a checkpoint then: the first look after a start writes one. It is asked for
/// here, and comes by itself where a test is held up for seconds behind `act`, so that none is counted before.
fn with_checkpoint(node: &Node, act: impl FnOnce(&Node)) {
    assert_eq!(node.journal.metrics().checkpoints.get(), 0, "none since the start");
    act(node);
    let began = Instant::now();
    while node.journal.metrics().checkpoints.get() == 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "a checkpoint in time");
        node.journal.check_retention();
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Logs 1 and 2 have records in sealed segments.
fn filled() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    for _ in 0..60 {
        node.append_batch(&node.log(1), 50, VALUE_BYTES).expect("appended");
        node.append_batch(&node.log(2), 10, VALUE_BYTES).expect("appended");
    }
    node.close();
    folder
}

/// Both get records in the open segment, log 2 ends, and the checkpoint on the disk is written behind that.
fn dropped() -> (tempfile::TempDir, Offset) {
    let folder = filled();
    let node = open(folder.path());
    for _ in 0..3 {
        node.append_batch(&node.log(1), 5, VALUE_BYTES).expect("appended");
        node.append_batch(&node.log(2), 5, VALUE_BYTES).expect("appended");
    }
    let end = node.log(1).end();
    with_checkpoint(&node, |node| _ = node.drop_log(&node.log(2)).expect("dropped"));
    node.close();
    (folder, end)
}

#[test]
fn a_journal_starts_again_after_a_log_with_records_in_the_open_segment_was_dropped() {
    let (folder, end) = dropped();
    for _ in 0..3 {
        let node = open(folder.path());
        node.journal.check_segments(&|_| true).expect("nothing is missing");
        assert!(node.journal.log(LogId(2)).is_none(), "it is gone");
        assert_eq!(read_all(&node.journal, &node.log(1), VALUE_BYTES), end);
        node.close();
    }
    let found = look(folder.path());
    assert!(found.damages.is_empty() && !found.logs.contains_key(&LogId(2)), "{:?}", found.logs.keys());
    // Its end is sealed, and covered by a checkpoint.
    let node = open(folder.path());
    while segments_of(&node) < 4 {
        node.append_batch(&node.log(1), 50, VALUE_BYTES).expect("appended");
    }
    node.close();
    let node = open(folder.path());
    assert!(node.journal.log(LogId(2)).is_none(), "it stays gone");
    read_all(&node.journal, &node.log(1), VALUE_BYTES);
    node.close();
}

#[test]
fn nothing_is_placed_behind_the_end_of_a_log() {
    let folder = filled();
    let node = open(folder.path());
    let log = node.log(2);
    node.drop_log(&log).expect("dropped");
    assert_eq!(node.append_batch(&log, 1, VALUE_BYTES), Err(AppendError::LogDeleted));
    assert_eq!(node.trim(&log, 5), Err(AppendError::LogDeleted));
    assert!(node.drop_log(&log).is_ok(), "it ends once");
    let other = node.log(3);
    assert!(node.journal.forget_unused(&other) && node.journal.log(LogId(3)).is_none(), "nothing of it is on the disk");
    assert!(!node.journal.forget_unused(&node.log(1)));
    node.close();
    open(folder.path()).close();
}

#[test]
fn an_end_and_what_belongs_to_it_are_there_together() {
    let folder = filled();
    let node = open(folder.path());
    let log = node.log(2);
    let bytes = batch(LogId(1), node.log(1).end(), 1, VALUE_BYTES);
    let header = record::BatchHeader::parse(&bytes).expect("a valid batch");
    let items = vec![
        AppendItem::State { key: "of 2"[..].into(), value: None },
        AppendItem::Batch { log: node.log(1), bytes, header, gate: None },
        AppendItem::Drop { log: Arc::clone(&log) },
    ];
    node.append(7, vec![AppendItem::Together(items)]).expect("there is room");
    node.close();
    let node = open(folder.path());
    assert!(node.journal.log(LogId(2)).is_none());
    read_all(&node.journal, &node.log(1), VALUE_BYTES);
    node.close();
}

/// Makes the checkpoint one of a release that left out what it had dropped: this log.
fn make_older(folder: &Path, omitted: u64) {
    let path = folder.join("checkpoint");
    let bytes = fs::read(&path).expect("readable");
    let u32_at = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("long enough"));
    let (logs, states) = (u32_at(48), u32_at(52));
    let (mut out, mut at, mut kept) = (bytes[..56].to_vec(), 56, 0u32);
    for _ in 0..logs {
        let next = at + 4 + u32_at(at) as usize;
        let id = u64::from_le_bytes(*bytes[at + 4..].first_chunk().expect("long enough"));
        if id != omitted {
            kept += 1;
            out.extend_from_slice(&bytes[at..next]);
        }
        at = next;
    }
    assert_eq!((states, u32_at(at)), (0, 0), "there is nothing else");
    out[4..6].copy_from_slice(&3u16.to_le_bytes());
    out[48..52].copy_from_slice(&kept.to_le_bytes());
    out.extend(record::crc32c(&out).to_le_bytes());
    out.resize(out.len().next_multiple_of(4096), 0);
    fs::write(&path, out).expect("writable");
}

/// A folder as an older release left it, which does not start again: log 2 has records in the open segment, and the checkpoint does not know it.
fn older() -> (tempfile::TempDir, Offset) {
    let folder = filled();
    let node = open(folder.path());
    node.append_batch(&node.log(1), 5, VALUE_BYTES).expect("appended");
    node.append_batch(&node.log(2), 5, VALUE_BYTES).expect("appended");
    node.append_batch(&node.log(2), 5, VALUE_BYTES).expect("appended");
    let end = node.log(1).end();
    with_checkpoint(&node, |_| {});
    node.close();
    make_older(folder.path(), 2);
    (folder, end)
}

#[test]
fn a_folder_that_an_older_release_could_not_open_any_more_opens() {
    let (folder, end) = older();
    let mut starts = Vec::new();
    for _ in 0..3 {
        let node = open(folder.path());
        node.journal.check_segments(&|id| id.0 == 1).expect("nothing is missing of what is wanted");
        let rest = node.journal.log(LogId(2)).expect("it has not ended");
        starts.push(rest.start());
        assert_eq!(rest.end(), Offset(610));
        assert_eq!(read_all(&node.journal, &node.log(1), VALUE_BYTES), end);
        // The next start replays the same behind a checkpoint of today.
        with_checkpoint(&node, |_| {});
        node.close();
    }
    assert!(starts[0] > Offset::ZERO && starts.iter().all(|start| *start == starts[0]), "{starts:?}");
    let node = open(folder.path());
    with_checkpoint(&node, |node| _ = node.drop_log(&node.log(2)).expect("dropped"));
    node.close();
    let node = open(folder.path());
    assert!(node.journal.log(LogId(2)).is_none());
    assert_eq!(read_all(&node.journal, &node.log(1), VALUE_BYTES), end);
    node.close();
}

#[test]
fn records_that_somebody_wants_are_missed_in_an_older_folder() {
    let (folder, _) = older();
    let node = Node::open(folder.path(), IoMode::Buffered, small()).expect("the caller knows what is wanted");
    let error = node.journal.check_segments(&|_| true).expect_err("records are missing");
    assert!(matches!(error, OpenError::MissingRecords { log: LogId(2), .. }) && error.is_damage(), "{error}");
    node.close();
}

#[test]
fn inspect_prints_the_end_of_a_log() {
    let (folder, _) = dropped();
    let mut text = Vec::new();
    for path in crate::repair::segments(folder.path()) {
        journal::inspect(&path, &mut text).expect("printable");
    }
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("drop log-2 at 615") && text.contains("end of the segment"), "{text}");
}

#[test]
fn a_log_that_was_never_written_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let log: Arc<Log> = node.log(1);
    node.drop_log(&log).expect("dropped");
    node.close();
    let node = open(folder.path());
    assert!(node.journal.log_ids().is_empty());
    node.close();
}
