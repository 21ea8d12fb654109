//! Small windows that several logs fill evenly: nobody waits for an archiver that has nothing to do, and segments go at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use journal::{AppendItem, ArchiveStore, JournalConfig, Log, MemoryArchive, Put};
use record::BatchHeader;

use crate::node::{Node, batch, read_all, small};

const VALUE_BYTES: usize = 900;
const SEGMENT: u64 = 1 << 20;
/// Of one append.
const RECORDS: u64 = 200;

/// Eight segments.
fn small_window(object_bytes: u64) -> JournalConfig {
    JournalConfig {
        window_bytes: Some(8 * SEGMENT),
        segment_bytes: SEGMENT,
        object_bytes,
        tail_bytes: 1 << 20,
        ..small()
    }
}

/// Appends records evenly, about so many bytes.
fn fill(node: &Node, logs: &[Arc<Log>], each: u64, bytes: u64) {
    for _ in 0..bytes / (each * logs.len() as u64 * VALUE_BYTES as u64) {
        let item = |log: &Arc<Log>| {
            let bytes = batch(log.id(), log.end(), each, VALUE_BYTES);
            let header = BatchHeader::parse(&bytes).expect("a valid batch");
            AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }
        };
        node.append(1, logs.iter().map(item).collect()).expect("appended");
    }
}

/// Between the mark up to which segments are added and that from which the archiver takes logs with little data too there is no place for
/// both to wait: in small windows these marks lie closer together than a segment is long.
#[test]
fn whatever_the_window_and_the_number_of_logs_the_archiver_takes_what_the_keeper_waits_for() {
    for logs in [1, 20, 100] {
        // A node refuses smaller ones.
        for segments in 8..=12 {
            let folder = tempfile::tempdir().expect("a folder");
            let config = JournalConfig {
                window_bytes: Some(segments * SEGMENT),
                segment_bytes: SEGMENT,
                object_bytes: 256 << 10,
                tail_bytes: 1 << 20,
                archive_check_ms: 15_000,
                retention_check_ms: 300_000,
                ..small()
            };
            let node = Node::open_with(folder.path(), &Arc::new(MemoryArchive::default()), config).expect("it opens");
            let all: Vec<_> = (0..logs).map(|id| node.log(id + 1)).collect();
            let each = RECORDS / logs;
            fill(&node, &all, each, 3 * segments * SEGMENT);
            // An archive that takes nothing for long is waited for no longer, and this counts that.
            let exceeded = node.journal.metrics().window_exceeded.get();
            assert_eq!(exceeded, 0, "{logs} logs in a window of {segments} segments");
            for log in &all {
                assert_eq!(read_all(&node.journal, log, VALUE_BYTES), log.end());
            }
            node.close();
        }
    }
}

/// What is enough of a log for an object in a hurry lies between what two logs have in two segments: one would go, and the other stay and be
/// rewritten, for which a small window has no time.
#[test]
fn logs_with_about_as_much_as_is_enough_go_together_and_nothing_is_rewritten() {
    const LOGS: u64 = 100;
    const ENOUGH: u64 = 20_000;
    for segments in [8, 12] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = JournalConfig {
            window_bytes: Some(segments * SEGMENT),
            segment_bytes: SEGMENT,
            object_bytes: ENOUGH * 128,
            tail_bytes: 1 << 20,
            archive_check_ms: 15_000,
            retention_check_ms: 300_000,
            ..small()
        };
        let node = Node::open_with(folder.path(), &Arc::new(MemoryArchive::default()), config).expect("it opens");
        let all: Vec<_> = (0..LOGS).map(|id| node.log(id + 1)).collect();
        fill(&node, &all, RECORDS / LOGS, 6 * segments * SEGMENT);
        let metrics = node.journal.metrics();
        assert_eq!(metrics.window_exceeded.get(), 0, "{segments} segments");
        // Where the archiver gets no time one or the other is.
        assert!(metrics.segments_rewritten.get() <= segments / 4, "{segments} segments");
        for log in &all {
            assert_eq!(read_all(&node.journal, log, VALUE_BYTES), log.end());
        }
        node.close();
    }
}

/// Many small objects take their store little longer than few: it has all of a piece of work at once.
#[derive(Default)]
struct Counting {
    objects: MemoryArchive,
    calls: AtomicU64,
    most: AtomicU64,
}

impl ArchiveStore for Counting {
    fn put(&self, name: &str, bytes: bytes::Bytes) -> io::Result<()> {
        self.objects.put(name, bytes)
    }

    fn put_all(&self, objects: &[(String, bytes::Bytes)]) -> Vec<Put> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(objects.len() as u64, Ordering::Relaxed);
        self.objects.put_all(objects)
    }

    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.objects.read_at(name, position, into)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.objects.list(prefix)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.objects.delete(name)
    }
}

#[test]
fn the_store_gets_all_objects_of_a_piece_of_work_at_once() {
    const LOGS: u64 = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(Counting::default());
    let config = small_window(256 << 10);
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, config).expect("it opens");
    let all: Vec<_> = (0..LOGS).map(|id| node.log(id + 1)).collect();
    fill(&node, &all, RECORDS / LOGS, 24 * SEGMENT);
    let (calls, most) = (archive.calls.load(Ordering::Relaxed), archive.most.load(Ordering::Relaxed));
    let objects = node.journal.metrics().archive_objects.get();
    assert!(most >= LOGS && calls * 10 <= objects, "{objects} objects in {calls} calls, at most {most} at once");
    node.close();
}

/// A store that refuses some objects, by their names.
struct Unreliable<F> {
    objects: MemoryArchive,
    refuses: F,
}

impl<F: Fn(&str) -> bool + Send + Sync> ArchiveStore for Unreliable<F> {
    fn put(&self, name: &str, bytes: bytes::Bytes) -> io::Result<()> {
        if (self.refuses)(name) {
            return Err(io::Error::other("the store does not answer"));
        }
        self.objects.put(name, bytes)
    }

    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.objects.read_at(name, position, into)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.objects.list(prefix)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.objects.delete(name)
    }
}

#[test]
fn a_store_that_refuses_one_object_of_some_takes_the_others() {
    const LOGS: u64 = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let puts = AtomicU64::new(0);
    let refuses = move |_: &str| puts.fetch_add(1, Ordering::Relaxed) % 60 == 59;
    let archive = Arc::new(Unreliable { objects: MemoryArchive::default(), refuses });
    let config = small_window(256 << 10);
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, config).expect("it opens");
    let all: Vec<_> = (0..LOGS).map(|id| node.log(id + 1)).collect();
    fill(&node, &all, RECORDS / LOGS, 12 * SEGMENT);
    // It fails, and nobody waits for it.
    let until = Instant::now() + Duration::from_secs(120);
    while node.journal.file_bytes() > 8 * SEGMENT {
        assert!(Instant::now() < until, "{} objects are stored", archive.objects.lengths().len());
        std::thread::sleep(Duration::from_millis(50));
    }
    for log in &all {
        assert_eq!(read_all(&node.journal, log, VALUE_BYTES), log.end());
    }
    node.close();
}

/// So many logs of twenty are refused, those that come first.
fn archive_beside_refused(refused: u64) {
    const LOGS: u64 = 20;
    let folder = tempfile::tempdir().expect("a folder");
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let refuses = move |name: &str| {
        let log: u64 = name.split('/').nth(1).and_then(|log| log.parse().ok()).expect("the name of an object");
        log <= refused && broken.load(Ordering::Relaxed)
    };
    let archive = Arc::new(Unreliable { objects: MemoryArchive::default(), refuses });
    let config = small_window(64 << 10);
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, config).expect("it opens");
    let all: Vec<_> = (0..LOGS).map(|id| node.log(id + 1)).collect();
    let wait = |what: &str, so: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(120);
        while !so() {
            let (trouble, bytes) = (node.journal.archive_trouble(), node.journal.file_bytes());
            assert!(Instant::now() < until, "{refused} are refused, {what}: {trouble:?}, {bytes} bytes");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let is_told = || node.journal.archive_trouble().is_some_and(|told| told.contains("nothing of log-1 "));
    fill(&node, &all, RECORDS / LOGS, 24 * SEGMENT);
    let own = refused * 24 * SEGMENT / LOGS;
    wait("the others are archived", &|| all[refused as usize..].iter().all(|log| log.archived_until() > log.start()));
    wait("it holds its window beside them", &|| node.journal.file_bytes() <= 8 * SEGMENT + 2 * own);
    wait("it is told", &is_told);
    assert!(all[..refused as usize].iter().all(|log| log.archived_until().0 == 0));
    is_broken.store(false, Ordering::Relaxed);
    fill(&node, &all, RECORDS / LOGS, 8 * SEGMENT);
    wait("they are archived", &|| all.iter().all(|log| log.archived_until() > log.start()));
    wait("it is within its window", &|| node.journal.file_bytes() <= 8 * SEGMENT);
    wait("nothing is told any more", &|| node.journal.archive_trouble().is_none());
    for log in &all {
        assert_eq!(read_all(&node.journal, log, VALUE_BYTES), log.end());
    }
    node.close();
}

#[test]
fn a_log_of_which_nothing_can_be_archived_holds_up_no_other() {
    archive_beside_refused(1);
}

#[test]
fn logs_of_which_nothing_can_be_archived_hold_up_no_other_though_they_are_most() {
    archive_beside_refused(16);
}

/// What is refused is most of what there is, and comes first by what it has; a start knows nothing of it.
#[test]
fn a_few_logs_are_archived_beside_very_many_that_are_refused() {
    const LOGS: u64 = 220;
    const REFUSED: u64 = 200;
    let folder = tempfile::tempdir().expect("a folder");
    let refuses =
        |name: &str| name.split('/').nth(1).and_then(|log| log.parse().ok()).is_some_and(|log: u64| log <= REFUSED);
    let archive = Arc::new(Unreliable { objects: MemoryArchive::default(), refuses });
    let open = || {
        let config = small_window(64 << 10);
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, config).expect("it opens")
    };
    for round in 0..2 {
        let node = open();
        let all: Vec<_> = (0..LOGS).map(|id| node.log(id + 1)).collect();
        fill(&node, &all, 1, 24 * SEGMENT);
        let healthy = &all[REFUSED as usize..];
        let ends: Vec<_> = healthy.iter().map(|log| log.end()).collect();
        fill(&node, healthy, 10, 12 * SEGMENT);
        let until = Instant::now() + Duration::from_secs(120);
        while !healthy.iter().zip(&ends).all(|(log, end)| log.archived_until() >= *end) {
            let trouble = node.journal.archive_trouble();
            assert!(Instant::now() < until, "start {round}: {trouble:?}, {} bytes", node.journal.file_bytes());
            std::thread::sleep(Duration::from_millis(20));
        }
        for log in &all {
            assert_eq!(read_all(&node.journal, log, VALUE_BYTES), log.end());
        }
        drop(all);
        node.close();
    }
}

/// One of the refused logs has nothing left that could be moved: all of it is in the segment that is being written.
#[test]
fn a_refused_log_without_anything_to_move_keeps_no_other_from_its_turn() {
    const LOGS: u64 = 3;
    let folder = tempfile::tempdir().expect("a folder");
    let tries: Arc<[AtomicUsize; LOGS as usize]> = Arc::default();
    let counted = Arc::clone(&tries);
    let refuses = move |name: &str| {
        let log: usize = name.split('/').nth(1).and_then(|log| log.parse().ok()).expect("the name of an object");
        counted[log - 1].fetch_add(1, Ordering::Relaxed);
        true
    };
    let archive = Arc::new(Unreliable { objects: MemoryArchive::default(), refuses });
    let config = small_window(64 << 10);
    let node = Node::open_storing(folder.path(), archive, config).expect("it opens");
    let all: Vec<_> = (0..LOGS).map(|id| node.log(id + 1)).collect();
    fill(&node, &all, RECORDS / LOGS, 16 * SEGMENT);
    let until = Instant::now() + Duration::from_secs(120);
    let wait = |what: &str, so: &dyn Fn() -> bool| {
        while !so() {
            assert!(Instant::now() < until, "{what}: {:?}", node.journal.archive_trouble());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait("all are refused", &|| tries.iter().all(|tries| tries.load(Ordering::Relaxed) > 0));
    let newest = node.append_batch(&all[0], 1, VALUE_BYTES).expect("appended").base;
    node.trim(&all[0], newest.0).expect("trimmed");
    for _ in 0..4 {
        let tried = || tries[1..].iter().map(|tries| tries.load(Ordering::Relaxed)).sum::<usize>();
        let before = tried();
        // Longer than any of them is left alone.
        node.clock.advance(61_000);
        wait("the others are tried again", &|| tried() > before);
    }
    node.close();
}
