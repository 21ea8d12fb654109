//! Retention, step by step: what it gives up stays readable, and recoverable, until the trim is on the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use journal::disk::{IoMode, RealStorage, Storage, Submitter, submitter};
use journal::{Append, AppendItem, Keeper, Log, Retention, Writer};
use record::BatchHeader;
use types::{Clock, ConnectionId, Durability, LogId, Offset, ShardId, Timestamp};

use crate::node::{Seen, batch, read_cold, small};
use crate::repair::flip;

const VALUE_BYTES: usize = 900;

/// Time that passes when it is told to: after a long look at old segments the keeper would rest, and here each of its turns is to look.
#[derive(Default)]
struct Still(AtomicI64);

impl Still {
    fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for Still {
    fn now_ms(&self) -> Timestamp {
        1_700_000_000_000 + self.0.load(Ordering::SeqCst)
    }

    fn steady_ms(&self) -> u64 {
        0
    }

    fn boot(&self) -> u128 {
        0
    }
}

struct ByHand {
    journal: Arc<journal::Journal>,
    writer: Writer<Box<dyn Submitter>>,
    keeper: Keeper,
    clock: Arc<Still>,
}

fn open(folder: &std::path::Path) -> ByHand {
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::open(folder, IoMode::Buffered).expect("a folder"));
    let submitter = submitter(IoMode::Buffered).expect("always there");
    let clock = Arc::new(Still::default());
    let archive = Arc::new(journal::MemoryArchive::default());
    let opened =
        journal::open(small(), storage, archive, submitter, Arc::clone(&clock) as Arc<dyn Clock>, uuid::Uuid::new_v4())
            .expect("it opens");
    let mut opened = ByHand { journal: opened.journal, writer: opened.writer, keeper: opened.keeper, clock };
    opened.write();
    opened
}

impl ByHand {
    fn write(&mut self) {
        for _ in 0..20 {
            self.writer.step(false);
        }
    }

    fn append(&mut self, item: AppendItem) {
        let to = journal::ReplyTo { shard: ShardId(0), connection: ConnectionId(1), token: 0 };
        self.journal.append(Append { to, items: vec![item], acknowledge: false }).expect("there is room");
        self.write();
        self.keep();
    }

    /// 6,000 records over several segments.
    fn fill(&mut self, log: &Arc<Log>) {
        for _ in 0..120 {
            let bytes = batch(log.id(), log.end(), 50, VALUE_BYTES);
            let header = BatchHeader::parse(&bytes).expect("a valid batch");
            self.append(AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None });
        }
    }

    fn keep(&mut self) {
        for _ in 0..5 {
            self.journal.check_retention();
            self.keeper.step(Duration::ZERO);
        }
    }
}

#[test]
fn a_segment_is_freed_only_when_the_trim_is_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = open(folder.path());
    let log = node.journal.create_log(LogId(1), Durability::Fsync);
    node.fill(&log);
    let (segments, end) = (node.journal.segment_usage().0, log.end());
    assert!(segments > 4 && end == Offset(6000), "{segments} segments, {end}");
    log.set_retention(Retention { ms: None, bytes: Some(1 << 20) });
    // The keeper decides, and the writer has not written it yet.
    node.keep();
    assert_eq!(log.start(), Offset(0));
    assert!(matches!(read_cold(&node.journal, &log, Offset(0), 1, VALUE_BYTES), Seen::Until(_)));
    drop((node, log));
    let mut node = open(folder.path());
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    let log = node.journal.create_log(LogId(1), Durability::Fsync);
    assert!(matches!(read_cold(&node.journal, &log, Offset(0), 1, VALUE_BYTES), Seen::Until(_)));
    // And now it does.
    log.set_retention(Retention { ms: None, bytes: Some(1 << 20) });
    for _ in 0..3 {
        node.keep();
        node.write();
    }
    assert!(log.start() > Offset(0) && log.end() == end);
    assert!(log.live_bytes() <= 2 << 20, "{} bytes are kept", log.live_bytes());
    assert!(node.journal.segment_usage().0 < segments, "space is given back");
    let start = log.start();
    drop((node, log));
    let node = open(folder.path());
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    let log = node.journal.create_log(LogId(1), Durability::Fsync);
    assert_eq!((log.start(), log.end()), (start, end));
}

/// What was deleted is not there any more, and so is no reason to let go of the rest.
#[test]
fn deleted_records_do_not_count_as_kept_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = open(folder.path());
    let log = node.journal.create_log(LogId(1), Durability::Fsync);
    node.fill(&log);
    let whole = log.live_bytes();
    node.append(AppendItem::Trim { log: Arc::clone(&log), to: Offset(4000) });
    assert_eq!(log.start(), Offset(4000));
    node.keep();
    assert!(log.live_bytes() < whole / 2, "{} of {whole} bytes are left", log.live_bytes());
    // Less than what is left, more than half of it.
    log.set_retention(Retention { ms: None, bytes: Some(1_500_000) });
    for _ in 0..3 {
        node.keep();
        node.write();
    }
    let left = log.end().since(log.start()) * VALUE_BYTES as u64;
    assert!(left >= 1_400_000, "{left} bytes of values are left from {}", log.start());
    drop(log);
    let node = open(folder.path());
    let log = node.journal.create_log(LogId(1), Durability::Fsync);
    assert!(log.end().since(log.start()) * VALUE_BYTES as u64 >= 1_400_000);
}

/// A log that has nothing in the oldest of the segments that are merged: the merged one takes that place, and the checkpoint of
/// before does not say that the log has records there.
#[test]
fn rewriting_after_the_last_checkpoint_loses_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = open(folder.path());
    let [large, late, early] = [1, 2, 3].map(|id| node.journal.create_log(LogId(id), Durability::Fsync));
    let mut token = 0;
    let mut append = |node: &mut ByHand, log: &Arc<journal::Log>, count| {
        let bytes = batch(log.id(), log.end(), count, VALUE_BYTES);
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        token += 1;
        let to = journal::ReplyTo { shard: ShardId(0), connection: ConnectionId(1), token };
        let items = vec![AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }];
        node.journal.append(Append { to, items, acknowledge: false }).expect("there is room");
        node.write();
        node.keep();
    };
    for number in 0..200 {
        append(&mut node, &large, 50);
        if number % 7 == 0 {
            append(&mut node, if number > 40 { &late } else { &early }, 1);
        }
    }
    let checkpoint = folder.path().join("checkpoint");
    let before = std::fs::read(&checkpoint).expect("a checkpoint");
    large.set_retention(Retention { ms: None, bytes: Some(1) });
    for _ in 0..4 {
        node.keep();
        node.write();
    }
    assert!(node.journal.metrics().segments_rewritten.get() > 1, "segments were merged");
    let end = late.end();
    drop((node, large, late, early));
    // As if the process had died between the rewriting and the next checkpoint, and with that checkpoint.
    let after = std::fs::read(&checkpoint).expect("a checkpoint");
    for bytes in [before, after] {
        std::fs::write(&checkpoint, &bytes).expect("writable");
        std::fs::write(folder.path().join("checkpoint-copy"), bytes).expect("writable");
        let node = open(folder.path());
        node.journal.check_segments(&|_| true).expect("nothing is missing");
        let late = node.journal.create_log(LogId(2), Durability::Fsync);
        assert_eq!((late.start(), late.end()), (Offset(0), end));
        assert_eq!(crate::node::read_all(&node.journal, &late, VALUE_BYTES), end);
    }
}

/// Length of a page of an index, and of what an index says of a log.
const PAGE_BYTES: u64 = 16 << 10;
const ROW_BYTES: u64 = 64;

/// Damages what the index of a sealed segment says of its logs.
fn damage_index(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("openable");
    let mut footer = [0; 4096];
    file.read_exact_at(&mut footer, file.metadata().expect("a file").len() - 4096).expect("readable");
    let number =
        |at: usize, bytes: usize| footer[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (table, logs) = (number(48, 8), number(44, 4));
    assert!(footer.starts_with(b"MSIX") && logs > 0 && logs * ROW_BYTES < PAGE_BYTES, "a sealed segment");
    flip(path, table + 32);
    table + 32
}

/// The index of one segment cannot be read: others are trimmed, freed and rewritten, and a log with records in it keeps as much as it should.
#[test]
fn an_index_that_cannot_be_read_stops_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = open(folder.path());
    let [first, second] = [1, 2].map(|id| node.journal.create_log(LogId(id), Durability::Fsync));
    node.fill(&first);
    node.fill(&second);
    let end = first.end();
    drop((node, first, second));
    // In the middle of what the first log has.
    let damaged = crate::repair::segments(folder.path()).remove(2);
    let at = damage_index(&damaged);
    let mut node = open(folder.path());
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    let [first, second] = [1, 2].map(|id| node.journal.create_log(LogId(id), Durability::Fsync));
    let segments = node.journal.segment_usage().0;
    second.set_retention(Retention { ms: None, bytes: Some(1 << 20) });
    let pass = |node: &mut ByHand| {
        for _ in 0..3 {
            node.keep();
            node.write();
        }
    };
    pass(&mut node);
    let left = second.end().since(second.start()) * VALUE_BYTES as u64;
    assert!((1 << 20..3 << 20).contains(&left), "{left} bytes of the other log are left from {}", second.start());
    assert!(node.journal.segment_usage().0 < segments, "space is given back");
    assert_eq!(first.start(), Offset(0));
    // Its records are kept as far as they are counted, and count as far as they can be read.
    first.set_retention(Retention { ms: None, bytes: Some(2 << 20) });
    pass(&mut node);
    let left = end.since(first.start()) * VALUE_BYTES as u64;
    assert!(left >= 2 << 20 && first.start() > Offset(0), "{left} bytes are left from {}", first.start());
    assert!(damaged.exists(), "nobody knows that nothing of it is live");
    // When it can be read again it is dead.
    flip(&damaged, at);
    node.clock.advance(10_000);
    pass(&mut node);
    assert!(!damaged.exists(), "it is freed");
    let start = first.start();
    drop((node, first, second));
    let node = open(folder.path());
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    assert_eq!(
        (
            node.journal.create_log(LogId(1), Durability::Fsync).start(),
            node.journal.create_log(LogId(1), Durability::Fsync).end()
        ),
        (start, end)
    );
}

/// What was deleted of the segment that is being written does not count for what is left, before and after a start.
#[test]
fn deleted_records_of_the_open_segment_do_not_count() {
    for sealed in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = open(folder.path());
        let log = node.journal.create_log(LogId(1), Durability::Fsync);
        if sealed {
            node.fill(&log);
        }
        let append = |node: &mut ByHand, count| {
            let bytes = batch(log.id(), log.end(), count, VALUE_BYTES);
            let header = BatchHeader::parse(&bytes).expect("a valid batch");
            node.append(AppendItem::Batch { log: Arc::clone(&log), bytes, header, gate: None });
        };
        // Into a segment of its own.
        let before = node.journal.metrics().segments_sealed.get();
        while sealed && node.journal.metrics().segments_sealed.get() == before {
            append(&mut node, 10);
        }
        (0..10).for_each(|_| append(&mut node, 10));
        let to = Offset(log.end().0 - 5);
        node.append(AppendItem::Trim { log: Arc::clone(&log), to });
        node.keep();
        let about = |bytes: u64| (5 * VALUE_BYTES as u64..8 * VALUE_BYTES as u64).contains(&bytes);
        assert!(about(log.live_bytes()), "{} bytes of five records", log.live_bytes());
        drop(node);
        drop(log);
        let mut node = open(folder.path());
        let log = node.journal.create_log(LogId(1), Durability::Fsync);
        assert_eq!(log.start(), to);
        node.keep();
        assert!(about(log.live_bytes()), "{} bytes of five records, after a start", log.live_bytes());
        node.append(AppendItem::Trim { log: Arc::clone(&log), to: log.end() });
        assert_eq!(log.live_bytes(), 0);
    }
}
