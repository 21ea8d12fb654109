//! The window of a journal: its files stay within it while it is written as fast as it goes; data waits for an archive that is
//! slow, state does not, and nobody waits for one that fails.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::{AppendError, AppendItem, ArchiveStore, JournalConfig, MemoryArchive};
use parking_lot::{Condvar, Mutex};

use crate::node::{Node, read_all, small};

const VALUE_BYTES: usize = 900;
const WINDOW: u64 = 6 << 20;

fn windowed() -> JournalConfig {
    JournalConfig { window_bytes: Some(WINDOW), object_bytes: 256 << 10, tail_bytes: 1 << 20, ..small() }
}

/// What the archive does with what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Takes,
    Refuses,
    /// Until it is told otherwise.
    Waits,
}

/// The first object that is to be deleted is not.
#[derive(Debug, PartialEq, Eq)]
enum Kept {
    Nothing,
    Next,
    This(String),
}

struct Moody {
    inner: MemoryArchive,
    mood: Mutex<Mood>,
    /// Of this one it does not let go.
    kept: Mutex<Kept>,
    changes: Condvar,
}

impl Moody {
    fn new(mood: Mood) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryArchive::default(),
            mood: Mutex::new(mood),
            kept: Mutex::new(Kept::Nothing),
            changes: Condvar::new(),
        })
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock() = mood;
        self.changes.notify_all();
    }
}

impl ArchiveStore for Moody {
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        let mut mood = self.mood.lock();
        self.changes.wait_while(&mut mood, |mood| *mood == Mood::Waits);
        if *mood == Mood::Refuses { Err(io::ErrorKind::StorageFull.into()) } else { self.inner.put(name, bytes) }
    }
    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(name, position, into)
    }
    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.inner.list(prefix)
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        let mut kept = self.kept.lock();
        if *kept == Kept::Next {
            *kept = Kept::This(name.to_owned());
        }
        if *kept == Kept::This(name.to_owned()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.inner.delete(name)
    }
}

fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What the files of a folder take on the disk.
fn disk_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder");
    // A file may go while it is looked at.
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.blocks() * 512).sum()
}

#[test]
fn files_stay_within_the_window_while_several_windows_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Moody::new(Mood::Takes);
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, windowed()).expect("it opens");
    let logs = [1, 2, 3].map(|id| node.log(id));
    let (worst, writing) = (Mutex::new(0), AtomicBool::new(true));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while writing.load(Ordering::Relaxed) {
                let now = disk_bytes(folder.path());
                let mut worst = worst.lock();
                *worst = now.max(*worst);
            }
        });
        for _ in 0..300 {
            for log in &logs {
                node.append_batch(log, 50, VALUE_BYTES).expect("appended");
            }
        }
        writing.store(false, Ordering::Relaxed);
    });
    let worst = *worst.lock();
    assert!(worst <= WINDOW, "{worst} bytes, at most {WINDOW}");
    assert!(worst > WINDOW / 2, "{worst} bytes: the window is used");
    assert_eq!(node.journal.metrics().window_exceeded.get(), 0);
    for log in &logs {
        assert_eq!(read_all(&node.journal, log, VALUE_BYTES), log.end());
    }
    node.close();
}

#[test]
fn data_waits_for_a_slow_archive_and_state_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Moody::new(Mood::Waits);
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, windowed()).expect("it opens");
    let log = node.log(1);
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            for _ in 0..220 {
                node.append_batch(&log, 50, VALUE_BYTES).expect("appended");
            }
        });
        wait_for("data waits", || node.journal.waits_for_archive());
        let end = log.end();
        let state =
            |value: u8| AppendItem::State { key: Bytes::from_static(b"k"), value: Some(Bytes::from(vec![value; 100])) };
        for value in 0..50 {
            node.append(7, vec![state(value)]).expect("state is taken");
            // Nobody has waited for long, however long this takes.
            node.clock.advance(-1_000);
        }
        assert!(node.journal.waits_for_archive() && !written.is_finished() && log.end() == end, "data waits on");
        assert!(disk_bytes(folder.path()) <= WINDOW);
        archive.set(Mood::Takes);
    });
    assert!(!node.journal.waits_for_archive());
    assert_eq!(node.journal.metrics().window_exceeded.get(), 0);
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    node.close();
}

#[test]
fn nobody_waits_for_an_archive_that_fails_or_does_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Moody::new(Mood::Refuses);
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, windowed()).expect("it opens");
    let log = node.log(1);
    let write = |batches: u64| (0..batches).for_each(|_| assert!(node.append_batch(&log, 50, VALUE_BYTES).is_ok()));
    write(300);
    assert!(
        disk_bytes(folder.path()) > WINDOW && node.journal.metrics().window_exceeded.get() > 0,
        "it grows beyond its window"
    );
    archive.set(Mood::Takes);
    wait_for("it is back within its window", || disk_bytes(folder.path()) <= WINDOW);
    // One that takes long: everybody has waited long enough when the clock says so.
    archive.set(Mood::Waits);
    let before = node.journal.metrics().window_exceeded.get();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| write(300));
        while !written.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
            node.clock.advance(1_000);
        }
    });
    assert!(node.journal.metrics().window_exceeded.get() > before);
    archive.set(Mood::Takes);
    wait_for("it is back within its window", || disk_bytes(folder.path()) <= WINDOW);
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    node.close();
}

/// What waits at a shutdown is refused, and everything that was acknowledged is there.
#[test]
fn a_shutdown_does_not_wait_for_the_archive() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Moody::new(Mood::Waits);
    let open = || {
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, windowed()).expect("it opens")
    };
    let node = open();
    let log = node.log(1);
    let outcome = std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            loop {
                if let Err(error) = node.append_batch(&log, 50, VALUE_BYTES) {
                    return error;
                }
            }
        });
        wait_for("data waits", || node.journal.waits_for_archive());
        node.journal.shutdown();
        written.join().expect("no panic")
    });
    assert_eq!(outcome, AppendError::Stopped);
    archive.set(Mood::Takes);
    let end = log.high_watermark();
    node.close();
    let node = open();
    let log = node.log(1);
    assert_eq!((log.end(), read_all(&node.journal, &log, VALUE_BYTES)), (end, end));
    node.close();
}

#[test]
fn an_object_that_cannot_be_deleted_holds_up_neither_others_nor_the_archive() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Moody::new(Mood::Takes);
    let store = || Arc::clone(&archive) as Arc<dyn ArchiveStore>;
    let mut node = Node::open_storing(folder.path(), store(), windowed()).expect("it opens");
    let uuid = node.journal.uuid().to_string();
    let objects = || archive.inner.list(&uuid).expect("a list").len();
    let fill = |node: &Node, id: u64| {
        let log = node.log(id);
        for _ in 0..300 {
            node.append_batch(&log, 50, VALUE_BYTES).expect("appended");
        }
        log
    };
    let log = fill(&node, 1);
    wait_for("there are objects", || objects() > 4);
    *archive.kept.lock() = Kept::Next;
    let to = log.high_watermark();
    node.append(1, vec![AppendItem::Trim { log, to }]).expect("trimmed");
    for round in 0..2 {
        wait_for("all others are deleted", || objects() == 1);
        wait_for("it is told", || {
            node.journal.archive_trouble().is_some_and(|trouble| trouble.contains("cannot be deleted"))
        });
        let beyond = node.journal.metrics().window_exceeded.get();
        let id = 2 + round;
        fill(&node, id);
        wait_for("others are archived", || objects() > 1);
        assert_eq!(node.journal.metrics().window_exceeded.get(), beyond, "the archive helps");
        let log = node.log(id);
        let to = log.high_watermark();
        node.append(id, vec![AppendItem::Trim { log, to }]).expect("trimmed");
        wait_for("these are deleted", || objects() == 1);
        // After a start it is an object that no record names.
        node.close();
        node = Node::open_storing(folder.path(), store(), windowed()).expect("it opens");
    }
    *archive.kept.lock() = Kept::Nothing;
    wait_for("it is tried again", || objects() == 0 && node.journal.archive_trouble().is_none());
    node.close();
}

#[test]
fn a_segment_that_was_begun_when_segments_were_longer_is_left_when_it_has_as_much_as_one_has_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |segment_bytes: u64, window: u64| {
        let config = JournalConfig { segment_bytes, window_bytes: Some(window), ..windowed() };
        Node::open_storing(folder.path(), Moody::new(Mood::Takes) as Arc<dyn ArchiveStore>, config).expect("it opens")
    };
    let node = open(16 << 20, 128 << 20);
    let log = node.log(1);
    for _ in 0..60 {
        node.append_batch(&log, 50, VALUE_BYTES).expect("appended");
    }
    node.close();
    let node = open(1 << 20, WINDOW);
    let log = node.log(1);
    wait_for("the long one goes", || {
        node.append_batch(&log, 1, VALUE_BYTES).expect("appended");
        let trim = AppendItem::Trim { log: Arc::clone(&log), to: log.high_watermark() };
        node.append(1, vec![trim]).expect("trimmed");
        disk_bytes(folder.path()) <= WINDOW
    });
    node.close();
}

/// A segment is added when one is freed, and none is freed before a checkpoint covers it. Where checkpoints take two thirds of a window it is full
/// before there is so much to be had that one is worth its bytes: the archiver had nothing to do, and each segment came after seconds.
#[test]
fn data_that_waits_for_a_segment_gets_the_checkpoint_that_frees_one() {
    const VALUE: usize = 64 << 10;
    const SEGMENT: u64 = 256 << 10;
    for values in 4..=8_u32 {
        let folder = tempfile::tempdir().expect("a folder");
        let config = JournalConfig { segment_bytes: SEGMENT, window_bytes: Some(16 * SEGMENT), ..windowed() };
        let archive = Moody::new(Mood::Takes);
        let node = Node::open_storing(folder.path(), archive as Arc<dyn ArchiveStore>, config).expect("it opens");
        for value in 0..values {
            let key = Bytes::copy_from_slice(&value.to_be_bytes());
            let state = AppendItem::State { key, value: Some(Bytes::from(vec![1; VALUE])) };
            node.append(7, vec![state]).expect("state is taken");
        }
        let log = node.log(1);
        while log.end().0 * (VALUE_BYTES as u64) < 30 * SEGMENT {
            node.append_batch(&log, 50, VALUE_BYTES).expect("appended");
            node.trim(&log, log.high_watermark().0).expect("trimmed");
        }
        // What has waited long enough gets a segment beyond the window.
        let exceeded = node.journal.metrics().window_exceeded.get();
        assert_eq!(exceeded, 0, "{values} values: all but the newest is dead");
        node.close();
    }
}
