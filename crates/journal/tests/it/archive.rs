//! The archive: what is beyond the journal's window moves into objects and is read, counted, trimmed and deleted there as
//! before; restarts, leftovers of crashes, damage.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use journal::{ArchiveHold, ArchiveStore, ColdWant, JournalConfig, Log, MemoryArchive, ReadError, Retention};
use types::{LogId, Offset};

use crate::node::{Node, Seen, read_all, read_cold, small};

const VALUE_BYTES: usize = 900;
const WINDOW: u64 = 4 << 20;

fn windowed() -> JournalConfig {
    JournalConfig { window_bytes: Some(WINDOW), object_bytes: 256 << 10, tail_bytes: 1 << 20, ..small() }
}

/// Until it is so.
pub fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `batches` of fifty records each into each of the logs, in turns.
fn fill(node: &Node, logs: &[&Arc<Log>], batches: u64) {
    for number in 0..batches {
        for log in logs {
            // The larger its number, the rarer it is written.
            if number % log.id().0 == 0 {
                node.append_batch(log, 50, VALUE_BYTES).expect("appended");
            }
        }
    }
}

fn within_window(node: &Node) {
    // A segment may be asked for at any time.
    wait_for("the journal is within its window", || node.journal.segment_usage().0 as u64 * (1 << 20) <= WINDOW);
}

#[test]
fn what_is_beyond_the_window_is_read_from_objects_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(MemoryArchive::default());
    let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
    let logs: Vec<_> = [1, 2, 5, 40].map(|id| node.log(id)).into();
    fill(&node, &logs.iter().collect::<Vec<_>>(), 200);
    within_window(&node);
    assert!(node.journal.metrics().segments_freed.get() > 8, "segments are freed");
    let ends: Vec<Offset> = logs.iter().map(|log| read_all(&node.journal, log, VALUE_BYTES)).collect();
    assert!(logs[0].archived_until() > Offset(5000), "{} is archived", logs[0].archived_until());
    let objects = archive.lengths();
    assert!(objects.len() > 20 && objects.iter().filter(|(_, length)| *length < 20_000).count() == 0, "{objects:?}");
    let bytes: usize = objects.iter().map(|(_, length)| length).sum();
    let live: u64 = logs.iter().map(|log| log.live_bytes()).sum();
    assert!(bytes as u64 + WINDOW > live && live > 11 << 20, "{bytes} bytes in objects, {live} live");
    node.close();

    let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
    let logs: Vec<_> = [1, 2, 5, 40].map(|id| node.log(id)).into();
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    for (log, end) in logs.iter().zip(&ends) {
        assert_eq!(read_all(&node.journal, log, VALUE_BYTES), *end);
    }
    // Every offset by itself, and the times of records.
    for from in (0..ends[0].0).step_by(333) {
        assert_eq!(
            read_cold(&node.journal, &logs[0], Offset(from), 1, VALUE_BYTES),
            Seen::Until(Offset(from / 50 * 50 + 50))
        );
    }
    assert_eq!(node.journal.find_by_time(&logs[0], 1_049).expect("readable"), Some((Offset(49), 1_049)));
    assert_eq!(node.journal.max_timestamp(&logs[0]).expect("readable"), Some((Offset(49), 1_049)));
    fill(&node, &logs.iter().collect::<Vec<_>>(), 40);
    for log in &logs {
        read_all(&node.journal, log, VALUE_BYTES);
    }
    node.close();
}

#[test]
fn retention_trims_and_deletion_reach_objects() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(MemoryArchive::default());
    let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
    let (kept, trimmed, deleted) = (node.log(1), node.log(2), node.log(3));
    fill(&node, &[&kept, &trimmed, &deleted], 240);
    within_window(&node);
    let of = |log: u64| archive.lengths().iter().filter(|(name, _)| name.contains(&format!("/{log}/"))).count();
    assert!(of(1) > 8 && of(2) > 4 && of(3) > 4, "{:?}", archive.lengths());

    let before = of(2);
    let to = trimmed.archived_until().0 / 2;
    node.trim(&trimmed, to).expect("trimmed");
    wait_for("objects before the start are deleted", || of(2) < before);
    assert_eq!(read_cold(&node.journal, &trimmed, Offset(to - 1), 1, VALUE_BYTES), Seen::Gone);
    assert_eq!(read_all(&node.journal, &trimmed, VALUE_BYTES), trimmed.end());
    node.trim(&trimmed, trimmed.end().0).expect("trimmed");
    wait_for("all objects are deleted", || of(2) == 0);
    fill(&node, &[&trimmed], 2);
    assert_eq!(read_all(&node.journal, &trimmed, VALUE_BYTES), trimmed.end());

    node.drop_log(&node.log(3)).expect("dropped");
    wait_for("a deleted log leaves nothing", || of(3) == 0);

    let (start, bytes) = (kept.start(), kept.live_bytes());
    assert!(bytes > 9 << 20, "{bytes} bytes are kept");
    kept.set_retention(Retention { ms: None, bytes: Some(6 << 20) });
    wait_for("retention by size", || kept.live_bytes() < 7 << 20 && kept.start() > start);
    assert!(kept.live_bytes() >= 6 << 20, "{} bytes are kept", kept.live_bytes());
    assert!(kept.start() < kept.archived_until(), "from {}, archived until {}", kept.start(), kept.archived_until());
    kept.set_retention(Retention { ms: Some(1), bytes: None });
    wait_for("retention by time", || of(1) == 0 && kept.start() == kept.end());
    node.close();
    let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
    let (kept, trimmed) = (node.log(1), node.log(2));
    assert!(node.journal.log(LogId(3)).is_none(), "what was dropped is");
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    assert_eq!(kept.start(), kept.end());
    assert_eq!(read_all(&node.journal, &trimmed, VALUE_BYTES), trimmed.end());
    node.close();
}

/// Objects that nobody names are deleted, unless one that is named is not there: then somebody may have moved them. That is an error for its readers only.
#[test]
fn leftovers_go_and_what_is_missing_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(MemoryArchive::default());
    let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
    let log = node.log(1);
    fill(&node, &[&log], 200);
    within_window(&node);
    node.close();
    let objects = archive.lengths();
    let (first, length) = &objects[0];
    let orphan = first.rsplit_once('-').map(|(name, _)| format!("{name}-00000000000000ff")).expect("a name");
    archive.put(&orphan, bytes::Bytes::from(vec![7; *length])).expect("put");
    let foreign = format!("{}/1/x", uuid::Uuid::from_u128(9));
    archive.put(&foreign, bytes::Bytes::from_static(b"somebody else's")).expect("put");
    // In the same folder, and no object.
    let moved = first.replacen("/1/", "/1.aside/", 1);
    archive.put(&moved, bytes::Bytes::from_static(b"moved")).expect("put");
    let mut whole = vec![0; *length];
    archive.read_at(first, 0, &mut whole).expect("read");
    archive.delete(first).expect("deleted");
    let is_there = |wanted: &str| archive.lengths().iter().any(|(name, _)| name == wanted);

    let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
    let log = node.log(1);
    // Behind that nothing is deleted any more.
    let objects = archive.lengths().len();
    fill(&node, &[&log], 200);
    wait_for("more is archived", || archive.lengths().len() > objects);
    assert!(is_there(&orphan), "nothing goes while something is missing");
    let want =
        |from| ColdWant { log: Arc::clone(&log), from: Offset(from), until: Offset(u64::MAX), max_bytes: 1 << 20 };
    match node.journal.read_cold(&[want(0)], 1 << 20).remove(0) {
        Err(ReadError::Segment(error)) => assert!(error.to_string().contains(first.as_str()), "{error}"),
        other => panic!("a missing object: {other:?}"),
    }
    assert!(node.journal.read_cold(&[want(4000)], 1 << 20).remove(0).is_ok(), "the others are readable");
    drop(log);
    node.close();

    archive.put(first, bytes::Bytes::from(whole)).expect("put");
    let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
    wait_for("the leftover is deleted", || !is_there(&orphan));
    assert!(is_there(&foreign) && is_there(&moved), "what is no object of this journal is not touched");
    assert_eq!(read_all(&node.journal, &node.log(1), VALUE_BYTES), node.log(1).end());
    node.close();
}

/// As where one folder of it cannot be read.
#[derive(Default)]
struct Unlisted {
    objects: MemoryArchive,
    lists: AtomicBool,
}

impl ArchiveStore for Unlisted {
    fn put(&self, name: &str, bytes: bytes::Bytes) -> io::Result<()> {
        self.objects.put(name, bytes)
    }
    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.objects.read_at(name, position, into)
    }
    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        if self.lists.load(Ordering::SeqCst) {
            self.objects.list(prefix)
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.objects.delete(name)
    }
}

#[test]
fn a_store_that_cannot_be_listed_takes_objects_and_is_tidied_up_when_it_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive: Arc<Unlisted> = Arc::default();
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, windowed()).expect("it opens");
    let log = node.log(1);
    fill(&node, &[&log], 200);
    within_window(&node);
    assert!(node.journal.archive_trouble().is_some_and(|told| told.contains("listed")), "it is told");
    let objects = archive.objects.lengths();
    let (first, length) = &objects[0];
    let orphan = first.rsplit_once('-').map(|(name, _)| format!("{name}-00000000000000ff")).expect("a name");
    archive.put(&orphan, bytes::Bytes::from(vec![7; *length])).expect("put");
    archive.lists.store(true, Ordering::SeqCst);
    node.clock.advance(61_000);
    fill(&node, &[&log], 100);
    wait_for("the leftover is deleted", || archive.objects.lengths().iter().all(|(name, _)| *name != orphan));
    wait_for("nothing is told any more", || node.journal.archive_trouble().is_none());
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    node.close();
}

/// Every byte of an object that is changed is noticed, or changes nothing of what is read; nothing is skipped.
#[test]
fn damage_is_reported_with_file_and_position() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(MemoryArchive::default());
    let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
    let log = node.log(1);
    fill(&node, &[&log], 200);
    within_window(&node);
    node.close();
    let (name, length) = archive.lengths()[0].clone();
    let mut noticed = 0;
    for at in (0..length).step_by(length / 23).chain([length - 1, length - 100, length - 130, length - 150]) {
        assert!(archive.change(&name, |bytes| bytes[at] ^= 0x40));
        let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
        let log = node.log(1);
        let mut from = Offset(0);
        while from < Offset(500) {
            let want = ColdWant { log: Arc::clone(&log), from, until: Offset(u64::MAX), max_bytes: 1 };
            match node.journal.read_cold(&[want], 1).remove(0) {
                Ok(data) => from = crate::node::check(&log, from, &data.slices, VALUE_BYTES),
                Err(ReadError::Segment(error)) => {
                    let text = error.to_string();
                    assert!(text.contains(&name) && text.contains("corrupt at byte"), "{text}");
                    noticed += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        node.close();
        assert!(archive.change(&name, |bytes| bytes[at] ^= 0x40));
    }
    assert!(noticed > 10, "{noticed} noticed");
    // Cut short.
    assert!(archive.change(&name, |bytes| bytes.truncate(length / 2)));
    let node = Node::open_with(folder.path(), &archive, windowed()).expect("it opens");
    let want = ColdWant { log: node.log(1), from: Offset(0), until: Offset(u64::MAX), max_bytes: 1 };
    assert!(matches!(node.journal.read_cold(&[want], 1).remove(0), Err(ReadError::Segment(_))));
    node.close();
}

/// An archive that takes its time to delete, and tells when it begins.
#[derive(Default)]
struct Slow {
    objects: MemoryArchive,
    deletes: AtomicU64,
    begins: OnceLock<Sender<()>>,
}

impl ArchiveStore for Slow {
    fn put(&self, name: &str, bytes: bytes::Bytes) -> io::Result<()> {
        self.objects.put(name, bytes)
    }

    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.objects.read_at(name, position, into)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.objects.list(prefix)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.deletes.fetch_add(1, Ordering::SeqCst);
        if let Some(begins) = self.begins.get() {
            let _ = begins.send(());
        }
        std::thread::sleep(Duration::from_millis(10));
        self.objects.delete(name)
    }
}

#[test]
fn no_object_goes_while_somebody_holds_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(Slow::default());
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, windowed()).expect("it opens");
    let log = node.log(1);
    fill(&node, &[&log], 240);
    within_window(&node);
    let (begins, begun) = channel();
    archive.begins.set(begins).expect("once");
    node.trim(&log, log.end().0).expect("trimmed");
    begun.recv_timeout(Duration::from_secs(30)).expect("objects are deleted");
    // In the midst of many that go together.
    let hold = ArchiveHold::new(&node.journal);
    let deletes = archive.deletes.load(Ordering::SeqCst);
    assert!(archive.objects.lengths().len() > 5, "{} objects are left", archive.objects.lengths().len());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(archive.deletes.load(Ordering::SeqCst), deletes);
    drop(hold);
    wait_for("they go when nobody holds them", || archive.objects.lengths().is_empty());
    node.close();
}
