//! Space that comes back: of segments of which any part is dead, on a disk that is full, and behind a record that nobody takes.

mod small_disk;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::disk::{File, IoMode, RealStorage, Storage, submitter};
use journal::{
    AppendError, AppendItem, ArchiveStore, ColdWant, DoneRecords, JournalConfig, JournalStatus, Log, MemoryArchive,
};
use parking_lot::Mutex;
use record::{BatchHeader, Batches};
use types::{LogId, Offset};

use small_disk::{Kept, open_small, open_small_with, start_small, used_bytes};

use crate::node::{Node, batch, read_all, small};

const VALUE_BYTES: usize = 1000;
const SEGMENT: u64 = 1 << 20;

/// What the segments of a folder take.
fn segment_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder").filter_map(Result::ok);
    let segments = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment-"));
    // A file may go while it is looked at.
    segments.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One batch for each of two logs, in one chunk.
fn append_both(node: &Node, logs: [(&Arc<Log>, u64); 2]) -> Result<(), AppendError> {
    let item = |(log, records): (&Arc<Log>, u64)| {
        let bytes = batch(log.id(), log.end(), records, VALUE_BYTES);
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }
    };
    node.append(1, logs.into_iter().filter(|(_, records)| *records > 0).map(item).collect()).map(drop)
}

#[test]
fn files_take_twice_of_what_is_live_at_most_whatever_the_mixture() {
    for percent in [2, 20, 30, 40, 49] {
        let folder = tempfile::tempdir().expect("a folder");
        // Nobody looks for retention meanwhile.
        let config = JournalConfig { retention_check_ms: 3_600_000, ..small() };
        let node = Node::open(folder.path(), IoMode::Buffered, config).expect("it opens");
        let (bulk, keep) = (node.log(1), node.log(2));
        for _ in 0..240 {
            append_both(&node, [(&bulk, 100 - percent), (&keep, percent)]).expect("there is space");
        }
        let live = keep.live_bytes();
        node.trim(&bulk, bulk.end().0).expect("trimmed");
        let bytes = || segment_bytes(folder.path());
        wait_for(&format!("{percent} % live: {live} bytes"), || bytes() <= 2 * live + 4 * SEGMENT);
        assert_eq!(read_all(&node.journal, &keep, VALUE_BYTES), keep.end());
        drop((bulk, keep));
        node.close();
        let node = Node::open(folder.path(), IoMode::Buffered, small()).expect("it opens");
        let keep = node.log(2);
        assert_eq!(
            (keep.end(), read_all(&node.journal, &keep, VALUE_BYTES)),
            (Offset(240 * percent), Offset(240 * percent))
        );
        node.close();
    }
}

/// The next checkpoint of a large one is due when twenty times as much has been written: nothing of that may come.
#[test]
fn what_is_dead_behind_the_last_checkpoint_goes_when_nothing_more_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = JournalConfig { retention_check_ms: 3_600_000, ..small() };
    let node = Node::open(folder.path(), IoMode::Buffered, config).expect("it opens");
    let state =
        |number: u8| AppendItem::State { key: vec![1, number].into(), value: Some(vec![number; 50_000].into()) };
    for number in 0..20 {
        node.append(1, vec![state(number)]).expect("there is space");
    }
    let log = node.log(1);
    let sealed = || node.journal.metrics().segments_sealed.get();
    while sealed() < 3 || node.journal.metrics().checkpoints.get() == 0 {
        node.append_batch(&log, 50, VALUE_BYTES).expect("there is space");
    }
    while sealed() < 15 {
        node.append_batch(&log, 50, VALUE_BYTES).expect("there is space");
    }
    let checkpoint = std::fs::metadata(folder.path().join("checkpoint")).expect("it is there").len();
    assert!(20 * checkpoint > 16 * SEGMENT, "{checkpoint}");
    node.trim(&log, log.end().0).expect("trimmed");
    let bytes = || segment_bytes(folder.path());
    wait_for(&format!("{} bytes", bytes()), || bytes() <= 3 * SEGMENT);
    node.close();
}

/// As when a clock that was ahead is put right: the next look is not as far away as it was ahead.
#[test]
fn what_is_dead_goes_when_the_clock_was_set_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), IoMode::Buffered, small()).expect("it opens");
    let log = node.log(1);
    while node.journal.metrics().segments_sealed.get() < 15 {
        node.append_batch(&log, 50, VALUE_BYTES).expect("there is space");
    }
    node.clock.advance(-86_400_000);
    node.trim(&log, log.end().0).expect("trimmed");
    wait_for("files come down", || segment_bytes(folder.path()) <= 4 * SEGMENT);
    node.close();
}

/// Nothing more is written, and nobody looks for retention.
#[test]
fn what_was_let_go_just_before_a_stop_goes_after_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = || JournalConfig { retention_check_ms: 3_600_000, ..small() };
    let node = Node::open(folder.path(), IoMode::Buffered, config()).expect("it opens");
    let log = node.log(1);
    while node.journal.metrics().segments_sealed.get() < 15 {
        node.append_batch(&log, 50, VALUE_BYTES).expect("there is space");
    }
    drop(log);
    node.close();
    // Nothing is sealed, and it ends at once: nobody looks.
    let node = Node::open(folder.path(), IoMode::Buffered, config()).expect("it opens");
    let log = node.log(1);
    node.trim(&log, log.end().0).expect("trimmed");
    drop(log);
    node.close();
    let bytes = || segment_bytes(folder.path());
    assert!(bytes() > 10 * SEGMENT, "{} bytes", bytes());
    let node = Node::open(folder.path(), IoMode::Buffered, config()).expect("it opens");
    wait_for(&format!("{} bytes", bytes()), || bytes() <= 3 * SEGMENT);
    node.close();
}

/// An archive on the disk that is full.
struct FullArchive;

impl ArchiveStore for FullArchive {
    fn put(&self, _name: &str, _bytes: Bytes) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
    fn read_at(&self, _name: &str, _position: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::NotFound.into())
    }
    fn list(&self, _prefix: &str) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
    fn delete(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Two logs side by side until nothing more is taken.
fn fill(node: &Node, percent: u64) -> (Arc<Log>, Arc<Log>) {
    let (bulk, keep) = (node.log(1), node.log(2));
    while append_both(node, [(&bulk, 100 - percent), (&keep, percent)]).is_ok() {}
    assert_eq!(node.journal.status(), JournalStatus::DiskFull);
    (bulk, keep)
}

#[test]
fn a_full_disk_serves_again_when_most_of_it_is_deleted() {
    for percent in [5, 10, 30, 49] {
        let folder = tempfile::tempdir().expect("a folder");
        let node = open_small(folder.path(), 14 * SEGMENT + 300_000);
        let (bulk, keep) = fill(&node, percent);
        // More than once: what is kept back is there again.
        for round in 0..3 {
            node.trim(&bulk, bulk.end().0).expect("deleting goes on");
            node.journal.check_retention();
            wait_for(&format!("{percent} %, round {round}: space comes back"), || {
                append_both(&node, [(&bulk, 60), (&keep, 0)]).is_ok()
            });
            while append_both(&node, [(&bulk, 60), (&keep, 0)]).is_ok() {}
        }
        assert_eq!(read_all(&node.journal, &keep, VALUE_BYTES), keep.end());
        node.close();
    }
}

#[test]
fn a_full_disk_serves_again_beside_a_reserve_that_is_immutable() {
    for stuck in ["reserve", "reserve-rewriting"] {
        let folder = tempfile::tempdir().expect("a folder");
        let kept: Arc<Kept> = Arc::default();
        let node = start_small(
            folder.path(),
            14 * SEGMENT + 300_000,
            Arc::new(MemoryArchive::default()),
            small(),
            Arc::clone(&kept),
        );
        let bulk = node.log(1);
        while segment_bytes(folder.path()) < 4 * SEGMENT {
            append_both(&node, [(&bulk, 60), (&bulk, 0)]).expect("there is space");
        }
        wait_for("space is kept", || folder.path().join(stuck).exists());
        *kept.stuck.lock() = stuck;
        // Others fill it, and give it back.
        let others = std::fs::File::create(folder.path().join("others")).expect("a file");
        others.set_len(5 * SEGMENT).expect("a length");
        while append_both(&node, [(&bulk, 60), (&bulk, 0)]).is_ok() {}
        std::fs::remove_file(folder.path().join("others")).expect("it goes");
        wait_for(&format!("{stuck}: there is space again"), || append_both(&node, [(&bulk, 60), (&bulk, 0)]).is_ok());
        // What is written fills it, and is deleted.
        for round in 0..3 {
            while append_both(&node, [(&bulk, 60), (&bulk, 0)]).is_ok() {}
            node.trim(&bulk, bulk.end().0).expect("deleting goes on");
            node.journal.check_retention();
            wait_for(&format!("{stuck}, round {round}: space comes back"), || {
                append_both(&node, [(&bulk, 60), (&bulk, 0)]).is_ok()
            });
        }
        node.close();
    }
}

/// A quota gives nothing for a new file as long as it is exceeded, whatever has been given back for it. More than once, and over a restart.
#[test]
fn space_comes_back_under_a_quota_that_was_lowered_below_what_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept: Arc<Kept> = Arc::default();
    let start =
        || start_small(folder.path(), 40 * SEGMENT, Arc::new(MemoryArchive::default()), small(), Arc::clone(&kept));
    let (mut node, backup) = (start(), tempfile::tempdir().expect("a folder"));
    let rounds = [
        (false, 0, false, ""),
        (true, 0, false, ""),
        (false, 2, false, ""),
        (true, 1, false, ""),
        (false, 0, true, ""),
        (true, 0, true, ""),
        (true, 0, false, "checkpoint"),
        (true, 0, false, "checkpoint-copy"),
    ];
    for (round, (restarts, unanswered, with_state, stuck)) in rounds.into_iter().enumerate() {
        let bulk = node.log(1);
        while segment_bytes(folder.path()) < 20 * SEGMENT {
            wait_for("there is space", || append_both(&node, [(&bulk, 60), (&bulk, 0)]).is_ok());
        }
        wait_for("space is kept", || folder.path().join("reserve").exists());
        kept.unanswered.store(unanswered, Ordering::SeqCst);
        // As in a backup; nothing is written into it.
        let copy = backup.path().join(round.to_string());
        std::fs::hard_link(folder.path().join("checkpoint"), &copy).expect("linked");
        let was = std::fs::read(&copy).expect("read");
        *kept.stuck.lock() = stuck;
        kept.quota.store(10 * SEGMENT, Ordering::SeqCst);
        while append_both(&node, [(&bulk, 60), (&bulk, 0)]).is_ok() {}
        assert_eq!(node.journal.status(), JournalStatus::DiskFull);
        // As groups do that commit: until no more of it is taken.
        let state = |number: u32| AppendItem::State {
            key: vec![1, (number % 7) as u8].into(),
            value: Some(number.to_be_bytes().to_vec().into()),
        };
        let refused = with_state.then(|| (0..10_000).find(|&number| node.append(1, vec![state(number)]).is_err()));
        assert!(refused != Some(None), "a quota that is exceeded gives no space for more");
        node.trim(&bulk, bulk.end().0).expect("deleting goes on");
        drop(bulk);
        if restarts {
            node.close();
            node = start();
        }
        let bulk = node.log(1);
        node.journal.check_retention();
        wait_for(&format!("round {round}: there is space again"), || {
            append_both(&node, [(&bulk, 60), (&bulk, 0)]).is_ok()
        });
        kept.quota.store(u64::MAX, Ordering::SeqCst);
        *kept.stuck.lock() = "";
        wait_for("files come down", || segment_bytes(folder.path()) < 10 * SEGMENT);
        assert_eq!(kept.unanswered.load(Ordering::SeqCst), 0, "names were exchanged");
        assert!(std::fs::read(&copy).expect("read") == was, "it is as it was");
        let keep = node.log(2);
        wait_for("there is space above the quota that was", || append_both(&node, [(&keep, 10), (&keep, 0)]).is_ok());
        assert_eq!(read_all(&node.journal, &keep, VALUE_BYTES), keep.end());
    }
    node.close();
    let node = Node::open(folder.path(), IoMode::Buffered, small()).expect("it opens");
    assert_eq!(node.log(2).end(), Offset(80));
    node.close();
}

/// Records go from one log into another, as dead letters do: a piece is written together with what lets go of its originals. A restart in between
/// finds what there was.
#[test]
fn what_takes_the_place_of_other_data_is_written_on_a_full_disk() {
    for (percent, more, restarts) in [(0, 0, true), (5, 300_000, false), (40, 600_000, true), (40, 900_000, false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = open_small(folder.path(), 14 * SEGMENT + more);
        let (mut bulk, mut keep) = fill(&node, percent);
        let (mut moved, end, kept) = (node.log(3), bulk.end().0, keep.end());
        for (number, from) in (0..end).step_by(60).enumerate() {
            if restarts && number % 40 == 39 {
                drop((bulk, keep, moved));
                node.close();
                node = open_small(folder.path(), 14 * SEGMENT + more);
                (bulk, keep, moved) = (node.log(1), node.log(2), node.log(3));
                assert_eq!((bulk.start(), moved.end(), keep.end()), (Offset(from), Offset(from), kept));
            }
            let to = (from + 60).min(end);
            let copy = || {
                let bytes = batch(moved.id(), Offset(from), to - from, VALUE_BYTES);
                let header = BatchHeader::parse(&bytes).expect("a valid batch");
                let copy = AppendItem::Batch { log: Arc::clone(&moved), bytes, header, gate: None };
                let gone = AppendItem::Trim { log: Arc::clone(&bulk), to: Offset(to) };
                node.append_from_reserve(1, vec![AppendItem::Together(vec![copy, gone])])
            };
            wait_for(&format!("{percent} %, {more}: {from} of {end} are moved"), || copy().is_ok());
        }
        assert_eq!((moved.end(), bulk.start()), (Offset(end), Offset(end)));
        assert_eq!(read_all(&node.journal, &moved, VALUE_BYTES), moved.end());
        assert_eq!(read_all(&node.journal, &keep, VALUE_BYTES), kept);
        // Everybody is served when they go.
        node.trim(&moved, end).expect("deleting goes on");
        for _ in 0..30 {
            wait_for(&format!("{percent} %, {more}: space comes back"), || {
                append_both(&node, [(&bulk, 60), (&keep, 0)]).is_ok()
            });
        }
        drop((bulk, keep, moved));
        node.close();
        let node = open_small(folder.path(), 14 * SEGMENT + more);
        assert_eq!(node.log(3).start(), Offset(end));
        node.close();
    }
}

/// Acknowledgements that free nothing, attempts that fail: far more of it than a segment takes, with restarts.
#[test]
fn what_is_said_of_records_finds_room_on_a_full_disk_however_much_it_is() {
    for (percent, more) in [(0, 0), (30, 300_000), (45, 900_000)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = open_small(folder.path(), 14 * SEGMENT + more);
        let (mut bulk, mut keep) = fill(&node, percent);
        let (end, kept) = (bulk.end().0, keep.end());
        // Nothing is let go with them: they use up what is there for data that takes the place of other data.
        let copy = |node: &Node, log: &Arc<Log>| {
            let bytes = batch(log.id(), log.end(), 20, VALUE_BYTES);
            let header = BatchHeader::parse(&bytes).expect("a valid batch");
            node.append_from_reserve(1, vec![AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }])
        };
        let copies = node.log(3);
        while copy(&node, &copies).is_ok() {}
        drop(copies);
        for number in 0..1200_u64 {
            if number % 500 == 499 {
                drop((bulk, keep));
                node.close();
                node = open_small(folder.path(), 14 * SEGMENT + more);
                (bulk, keep) = (node.log(1), node.log(2));
            }
            let state = || AppendItem::State {
                key: vec![1, (number % 7) as u8].into(),
                value: Some(number.to_be_bytes().to_vec().into()),
            };
            wait_for(&format!("{percent} %, {more}: state {number} is taken"), || {
                node.append(1, vec![state()]).is_ok()
            });
            assert_eq!(
                append_both(&node, [(&bulk, 1), (&keep, 1)]),
                Err(AppendError::DiskFull),
                "what is kept for state is for nothing else"
            );
        }
        assert!(used_bytes(folder.path()) <= 14 * SEGMENT + more);
        assert_eq!((bulk.end(), keep.end()), (Offset(end), kept));
        assert_eq!(read_all(&node.journal, &keep, VALUE_BYTES), kept);
        node.trim(&bulk, end).expect("deleting goes on");
        let copies = node.log(3);
        node.trim(&copies, copies.end().0).expect("deleting goes on");
        for _ in 0..30 {
            wait_for(&format!("{percent} %, {more}: space comes back"), || {
                append_both(&node, [(&bulk, 60), (&keep, 0)]).is_ok()
            });
        }
        node.close();
    }
}

/// The last checkpoint is of the start before.
#[test]
fn a_start_on_a_full_disk_keeps_the_space_for_a_large_checkpoint() {
    let folder = tempfile::tempdir().expect("a folder");
    let capacity = 14 * SEGMENT + 300_000;
    let node = open_small(folder.path(), capacity);
    for number in 0..20 {
        let state = AppendItem::State { key: vec![1, number].into(), value: Some(vec![number; 50_000].into()) };
        node.append(1, vec![state]).expect("there is space");
    }
    let (bulk, _) = fill(&node, 0);
    // What is kept is used for a checkpoint that is being written.
    let length = |name: &str| std::fs::metadata(folder.path().join(name)).map_or(0, |file| file.len());
    wait_for("the space is kept", || length("checkpoint") > 900_000 && length("reserve") >= length("checkpoint"));
    drop(bulk);
    node.close();
    let kept: Arc<Kept> = Arc::default();
    let node = start_small(folder.path(), capacity, Arc::new(MemoryArchive::default()), small(), Arc::clone(&kept));
    let bulk = node.log(1);
    while append_both(&node, [(&bulk, 60), (&bulk, 0)]).is_ok() {}
    node.trim(&bulk, bulk.end().0).expect("deleting goes on");
    wait_for("space comes back", || append_both(&node, [(&bulk, 60), (&bulk, 0)]).is_ok());
    node.close();
    let least = kept.least.load(Ordering::SeqCst);
    assert!(least >= length("checkpoint").min(900_000), "cut to {least} bytes");
}

#[test]
fn the_copy_of_a_checkpoint_that_had_no_space_comes_back_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let capacity = 14 * SEGMENT + 300_000;
    let node = open_small(folder.path(), capacity);
    let bulk = node.log(1);
    while segment_bytes(folder.path()) < 4 * SEGMENT {
        append_both(&node, [(&bulk, 60), (&bulk, 0)]).expect("there is space");
    }
    drop(bulk);
    node.close();
    let read = |name: &str| std::fs::read(folder.path().join(name)).ok();
    // A start may give something back that the last one left: that is taken before the next.
    let without_copy = || {
        let others = std::fs::File::create(folder.path().join("others")).expect("a file");
        others.set_len(capacity - used_bytes(folder.path())).expect("a length");
        let node = open_small(folder.path(), capacity);
        node.journal.check_retention();
        let began = Instant::now();
        while read("checkpoint-copy").is_some() && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if read("checkpoint-copy").is_none() {
            return Some(node);
        }
        node.close();
        None
    };
    let node = (0..10).find_map(|_| without_copy()).expect("a checkpoint has no copy");
    std::fs::remove_file(folder.path().join("others")).expect("it goes");
    wait_for("the copy is there again", || {
        read("checkpoint-copy").is_some_and(|copy| read("checkpoint") == Some(copy))
    });
    node.close();
}

/// Copies that are larger than their originals end when the reserve does: what was there before goes on.
#[test]
fn what_is_larger_than_its_original_leaves_rewriting_its_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open_small(folder.path(), 14 * SEGMENT + 300_000);
    let (bulk, keep) = fill(&node, 10);
    let (moved, mut gone) = (node.log(3), 0);
    let refused = (0..1000).find_map(|_| {
        let bytes = batch(moved.id(), moved.end(), 60, VALUE_BYTES);
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        let copy = AppendItem::Batch { log: Arc::clone(&moved), bytes, header, gate: None };
        let item = AppendItem::Together(vec![copy, AppendItem::Trim { log: Arc::clone(&bulk), to: Offset(gone + 1) }]);
        gone += 1;
        node.append_from_reserve(1, vec![item]).err()
    });
    assert_eq!(refused, Some(AppendError::DiskFull));
    node.trim(&bulk, bulk.end().0).expect("deleting goes on");
    for _ in 0..30 {
        wait_for("space comes back", || append_both(&node, [(&bulk, 60), (&keep, 0)]).is_ok());
    }
    assert_eq!(read_all(&node.journal, &keep, VALUE_BYTES), keep.end());
    node.close();
}

/// The disk is smaller than the window of the journal.
#[test]
fn a_full_disk_serves_again_when_the_archive_cannot_help() {
    for percent in [10, 30, 49] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = JournalConfig { window_bytes: Some(20 * SEGMENT), archive_check_ms: 100, ..small() };
        let node = open_small_with(folder.path(), 14 * SEGMENT + 300_000, Arc::new(FullArchive), config);
        let (bulk, keep) = fill(&node, percent);
        node.trim(&bulk, bulk.end().0).expect("deleting goes on");
        node.journal.check_retention();
        for _ in 0..30 {
            wait_for(&format!("{percent} %: space comes back"), || {
                append_both(&node, [(&bulk, 60), (&keep, 0)]).is_ok()
            });
        }
        assert_eq!(read_all(&node.journal, &keep, VALUE_BYTES), keep.end());
        node.close();
    }
}

/// A folder of before anything was kept back, with what a rewriting had got to when the disk was full.
#[test]
fn a_full_disk_without_anything_kept_back_serves_again() {
    for (percent, left) in [(5, 200_000), (15, 400_000)] {
        let folder = tempfile::tempdir().expect("a folder");
        let capacity = 14 * SEGMENT;
        let node = open_small(folder.path(), capacity);
        let (bulk, keep) = fill(&node, percent);
        let end = keep.end();
        drop((bulk, keep));
        node.close();
        for name in ["reserve-rewriting", "reserve"] {
            std::fs::remove_file(folder.path().join(name)).expect("it was kept");
        }
        for entry in std::fs::read_dir(folder.path()).expect("a folder").filter_map(Result::ok) {
            if entry.file_name().to_string_lossy().starts_with("spare-") {
                std::fs::remove_file(entry.path()).expect("removed");
            }
        }
        std::fs::write(folder.path().join("rewriting"), vec![0; left]).expect("written");
        // Exactly full.
        let node = open_small(folder.path(), used_bytes(folder.path()));
        let (bulk, keep) = (node.log(1), node.log(2));
        assert_eq!(keep.end(), end);
        node.trim(&bulk, bulk.end().0).expect("deleting goes on");
        let other = node.log(3);
        wait_for(&format!("{percent} %: space comes back"), || append_both(&node, [(&other, 60), (&keep, 0)]).is_ok());
        for _ in 0..40 {
            wait_for(&format!("{percent} %: there is more"), || append_both(&node, [(&other, 60), (&keep, 0)]).is_ok());
        }
        assert_eq!(read_all(&node.journal, &keep, VALUE_BYTES), end);
        node.close();
    }
}

/// All is done but the first record and what comes from an offset on, and every hundredth in between.
struct AllBut {
    from: AtomicU64,
}

impl DoneRecords for AllBut {
    fn done_within(&self, range: Range<Offset>) -> Vec<Range<Offset>> {
        let until = range.end.0.min(self.from.load(Ordering::SeqCst));
        let hundreds = range.start.0 / 1000..=until / 1000;
        let piece = |at: u64| Offset((at * 1000 + 1).max(range.start.0))..Offset((at * 1000 + 1000).min(until));
        hundreds.map(piece).filter(|piece| piece.start < piece.end).collect()
    }
}

/// Reads what is left, whole batches; each begins behind the one before it, and the end is that of the log.
fn offsets_left(node: &Node, log: &Arc<Log>, from: Offset) -> Vec<u64> {
    let (mut at, mut found) = (from, Vec::new());
    while at < log.high_watermark() {
        let want = ColdWant { log: Arc::clone(log), from: at, until: Offset(u64::MAX), max_bytes: 100_000 };
        let data = node.journal.read_cold(&[want], 100_000).remove(0).expect("it can be read");
        assert!(data.next > at, "it gets somewhere");
        for one in Batches::new(&data.slices.concat()) {
            let (_, header) = one.expect("whole batches");
            assert!(header.next() > at && found.last().is_none_or(|last| *last < header.base().0), "in order");
            found.push(header.base().0);
        }
        at = data.next;
    }
    assert_eq!(at, log.high_watermark());
    found
}

#[test]
fn what_is_done_behind_a_record_that_nobody_takes_is_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Node::open(folder.path(), IoMode::Buffered, small()).expect("it opens");
    let node = open();
    let log = node.log(7);
    let done = Arc::new(AllBut { from: AtomicU64::new(0) });
    log.set_done(Some(Arc::downgrade(&done) as Weak<dyn DoneRecords>));
    for round in 1..=4 {
        for _ in 0..1000 {
            node.append_batch(&log, 10, VALUE_BYTES).expect("appended");
        }
        done.from.store(log.end().0 - 500, Ordering::SeqCst);
        node.journal.note_released();
        let bytes = || segment_bytes(folder.path());
        // Of each thousand one batch is left, and what lies in a chunk or merged run with it.
        wait_for(&format!("round {round}: {} bytes", bytes()), || bytes() <= 4 * SEGMENT);
    }
    let end = log.end();
    let is_needed = |offset: &u64| offset.is_multiple_of(1000) || *offset >= end.0 - 500;
    // From anywhere inside a gap it goes on behind it.
    let check = |node: &Node, log: &Arc<Log>| {
        for from in [0, 1, 11, 777, 20_003, 39_000] {
            let found = offsets_left(node, log, Offset(from));
            let needed = (0..end.0).step_by(10).filter(is_needed).filter(|base| base + 10 > from);
            assert!(needed.into_iter().all(|base| found.contains(&base)), "from {from}: {found:?}");
            assert!(found.len() < 1000, "from {from}: {} of 4000 batches are left", found.len());
        }
    };
    check(&node, &log);
    drop(log);
    node.close();
    // Nobody says what is done any more: gaps stay gaps.
    let node = open();
    let log = node.log(7);
    assert_eq!((log.start(), log.end()), (Offset(0), end));
    check(&node, &log);
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    // What is left goes with the start.
    node.trim(&log, end.0).expect("trimmed");
    node.journal.check_retention();
    wait_for("all is given back", || segment_bytes(folder.path()) <= 3 * SEGMENT);
    node.append_batch(&log, 10, VALUE_BYTES).expect("appended");
    assert_eq!(offsets_left(&node, &log, end), [end.0]);
    node.close();
}

/// Logs that share bodies: one of them is done with them, and each keeps its own order.
#[test]
fn shared_bodies_stay_as_long_as_one_log_needs_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Node::open(folder.path(), IoMode::Buffered, small()).expect("it opens");
    let node = open();
    let logs = [node.log(1), node.log(2)];
    let done = [1, 2].map(|_| Arc::new(AllBut { from: AtomicU64::new(0) }));
    for (log, done) in logs.iter().zip(&done) {
        log.set_done(Some(Arc::downgrade(done) as Weak<dyn DoneRecords>));
    }
    for _ in 0..4000 {
        let bytes = batch(LogId(0), Offset(0), 1, VALUE_BYTES);
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        node.append(1, AppendItem::for_all(&logs, &bytes, header).collect()).expect("appended");
    }
    let end = logs[0].end();
    assert!(segment_bytes(folder.path()) > 4 * SEGMENT);
    // One of the two has done with all.
    done[0].from.store(end.0, Ordering::SeqCst);
    node.journal.note_released();
    assert_eq!(offsets_left(&node, &logs[1], Offset(0)).len() as u64, end.0);
    done[1].from.store(end.0, Ordering::SeqCst);
    node.journal.note_released();
    wait_for("both have", || segment_bytes(folder.path()) <= 4 * SEGMENT);
    let check = |node: &Node| {
        for left in [1, 2].map(|id| offsets_left(node, &node.log(id), Offset(0))) {
            assert!([0, 1000, 2000, 3000].iter().all(|offset| left.contains(offset)), "{left:?}");
        }
    };
    check(&node);
    drop(logs);
    node.close();
    let node = open();
    check(&node);
    node.close();
}
