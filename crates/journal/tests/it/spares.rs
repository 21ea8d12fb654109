//! Segment files that are kept to be written again: enough of them under load, one at rest.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use journal::disk::{File, IoMode, RealStorage, Storage, submitter};
use journal::{JournalConfig, Log, MemoryArchive};

use crate::node::{Node, small};

const VALUE_BYTES: usize = 1000;
const SEGMENT: u64 = 1 << 20;
const MINUTE_MS: i64 = 60_000;

fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Name, inode and length of each file of the folder.
fn files(folder: &Path) -> Vec<(String, u64, u64)> {
    let entries = std::fs::read_dir(folder).expect("a folder").filter_map(Result::ok);
    // A file may go while it is looked at.
    entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?)))
        .map(|(name, of)| (name, of.ino(), of.len()))
        .collect()
}

fn spares(folder: &Path) -> usize {
    files(folder).iter().filter(|(name, ..)| name.starts_with("spare-")).count()
}

fn sealed(node: &Node) -> u64 {
    node.journal.metrics().segments_sealed.get()
}

/// Writes until so many segments more are sealed.
fn write_segments(node: &Node, log: &Arc<Log>, count: u64) {
    let until = sealed(node) + count;
    while sealed(node) < until {
        node.append_batch(log, 50, VALUE_BYTES).expect("there is space");
    }
}

/// Deletes what was written; each segment that is sealed is freed then.
fn delete(node: &Node, log: &Arc<Log>, freed_before: u64) {
    node.trim(log, log.end().0).expect("trimmed");
    node.journal.check_retention();
    wait_for("dead segments are freed", || node.journal.metrics().segments_freed.get() + freed_before >= sealed(node));
}

/// Ten segments that are deleted, and the log of a record at their beginning that stays.
fn work(node: &Node) -> (Arc<Log>, Arc<Log>) {
    let (bulk, keep) = (node.log(1), node.log(2));
    node.append_batch(&keep, 1, VALUE_BYTES).expect("there is space");
    write_segments(node, &bulk, 10);
    // The first segment is rewritten, not freed.
    delete(node, &bulk, 1);
    wait_for("what stays is rewritten", || node.journal.metrics().segments_rewritten.get() >= 1);
    (bulk, keep)
}

fn bytes(folder: &Path) -> u64 {
    files(folder).iter().map(|(.., bytes)| bytes).sum()
}

#[test]
fn at_rest_all_files_take_four_segments_beside_what_is_live() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), IoMode::Buffered, small()).expect("it opens");
    let (bulk, keep) = work(&node);
    wait_for("four are kept", || spares(folder.path()) == 4);
    node.clock.advance(MINUTE_MS);
    wait_for("spares are given back", || spares(folder.path()) == 1);
    let live = keep.live_bytes();
    wait_for(&format!("{:?} for {live}", files(folder.path())), || bytes(folder.path()) <= live + 4 * SEGMENT);
    // There is work again.
    write_segments(&node, &bulk, 10);
    delete(&node, &bulk, 1);
    wait_for("four are kept again", || spares(folder.path()) == 4);
    node.close();
}

#[test]
fn under_load_no_file_is_removed_and_none_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), IoMode::Buffered, small()).expect("it opens");
    let (bulk, _keep) = work(&node);
    let whole = || {
        files(folder.path()).into_iter().filter(|(name, _, bytes)| *bytes == SEGMENT && !name.starts_with("reserve"))
    };
    let of_segments = || -> BTreeSet<u64> { whole().map(|(_, inode, _)| inode).collect() };
    let named = |prefix: &str| whole().filter(|(name, ..)| name.starts_with(prefix)).count();
    // Files on their way out are in neither number.
    wait_for("one is open, one is ready, four are kept", || {
        named("segment-") == 2 && named("spare-") == 4 && of_segments().len() == 6
    });
    let before = of_segments();
    for round in 0..30 {
        node.clock.advance(MINUTE_MS / 12);
        write_segments(&node, &bulk, 1);
        delete(&node, &bulk, 1);
        // All of them at rest: the next round needs one that is kept.
        wait_for(&format!("the same files in round {round}"), || named("spare-") == 4 && of_segments() == before);
    }
    node.close();
}

#[test]
fn what_a_start_finds_is_kept_for_a_minute_and_not_what_does_not_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |config: JournalConfig| Node::open(folder.path(), IoMode::Buffered, config).expect("it opens");
    let node = open(small());
    drop(work(&node));
    node.close();
    let node = open(small());
    // The segment that was ready was put aside and is ready again.
    let (bulk, mut round) = (node.log(1), 0);
    wait_for("the next segment is ready", || {
        files(folder.path()).iter().filter(|(name, _, bytes)| name.starts_with("segment-") && *bytes == SEGMENT).count()
            == 2
    });
    assert_eq!(spares(folder.path()), 4);
    node.clock.advance(MINUTE_MS);
    wait_for("at rest one is kept", || spares(folder.path()) == 1);
    while spares(folder.path()) < 4 {
        round += 1;
        assert!(round < 10, "spares are kept again");
        write_segments(&node, &bulk, 6);
        delete(&node, &bulk, 0);
    }
    drop(bulk);
    node.close();
    let node = open(JournalConfig { segment_bytes: SEGMENT / 2, ..small() });
    wait_for("files of another length go", || spares(folder.path()) == 0);
    node.close();
}

/// Says of each file that was discarded that it is still on its way out, until it may go.
struct SlowRemoval {
    storage: RealStorage,
    discarded: Arc<AtomicU64>,
    gone: Arc<AtomicU64>,
}

impl Storage for SlowRemoval {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        self.storage.create(name, size)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.storage.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.storage.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }
    fn discard(&self, name: &str, held: Option<Arc<dyn File>>) -> io::Result<()> {
        if name.starts_with("spare-") {
            self.discarded.fetch_add(1, Ordering::SeqCst);
        }
        self.storage.discard(name, held)
    }
    fn dead_bytes(&self) -> u64 {
        (self.discarded.load(Ordering::SeqCst) - self.gone.load(Ordering::SeqCst)) * SEGMENT
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.storage.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.storage.free_bytes()
    }
}

#[test]
fn spares_are_given_back_one_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (discarded, gone) = (Arc::default(), Arc::default());
    let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("a folder");
    let slow = SlowRemoval { storage, discarded: Arc::clone(&discarded), gone: Arc::clone(&gone) };
    let submitter = submitter(IoMode::Buffered).expect("always there");
    let node = Node::start(Arc::new(slow), Arc::new(MemoryArchive::default()), submitter, small()).expect("it opens");
    drop(work(&node));
    node.clock.advance(MINUTE_MS);
    for number in 1..=3 {
        wait_for(&format!("number {number} goes"), || discarded.load(Ordering::SeqCst) == number);
        // Some turns of the keeper.
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(discarded.load(Ordering::SeqCst), number, "the next one waits");
        gone.store(number, Ordering::SeqCst);
    }
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!((discarded.load(Ordering::SeqCst), spares(folder.path())), (3, 1), "one is kept");
    node.close();
}
