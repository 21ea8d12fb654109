//! Small windows that several logs fill evenly: nobody waits for an archiver that has nothing to do, and segments go at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use journal::{AppendItem, ArchiveStore, JournalConfig, Log, MemoryArchive};
use record::BatchHeader;

use crate::node::{Node, batch, read_all, small};

const VALUE_BYTES: usize = 900;
const SEGMENT: u64 = 1 << 20;
/// Of one append.
const RECORDS: u64 = 200;

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
        assert_eq!(metrics.segments_rewritten.get(), 0, "{segments} segments");
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

    fn put_all(&self, objects: &[(String, bytes::Bytes)]) -> io::Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(objects.len() as u64, Ordering::Relaxed);
        objects.iter().try_for_each(|(name, bytes)| self.put(name, bytes.clone()))
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
    let config = JournalConfig {
        window_bytes: Some(8 * SEGMENT),
        segment_bytes: SEGMENT,
        object_bytes: 256 << 10,
        tail_bytes: 1 << 20,
        ..small()
    };
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, config).expect("it opens");
    let all: Vec<_> = (0..LOGS).map(|id| node.log(id + 1)).collect();
    fill(&node, &all, RECORDS / LOGS, 24 * SEGMENT);
    let (calls, most) = (archive.calls.load(Ordering::Relaxed), archive.most.load(Ordering::Relaxed));
    let objects = node.journal.metrics().archive_objects.get();
    assert!(most >= LOGS && calls * 10 <= objects, "{objects} objects in {calls} calls, at most {most} at once");
    node.close();
}
