//! What a start reads.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use journal::disk::{File, IoMode, RealStorage, Storage, submitter};
use journal::{ArchiveStore, JournalConfig, MemoryArchive};

use crate::node::{Node, small};

const SEGMENT: u64 = 32 << 20;

/// A folder of which it is counted what the thread of a test reads.
struct Counting {
    storage: RealStorage,
    read: Arc<AtomicU64>,
    thread: ThreadId,
}

struct Counted {
    file: Arc<dyn File>,
    read: Arc<AtomicU64>,
    thread: ThreadId,
}

impl Counting {
    fn new(folder: &Path, read: &Arc<AtomicU64>) -> Arc<Self> {
        let storage = RealStorage::open(folder, IoMode::Buffered).expect("a folder");
        Arc::new(Self { storage, read: Arc::clone(read), thread: thread::current().id() })
    }

    fn count(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Counted { file, read: Arc::clone(&self.read), thread: self.thread })
    }
}

impl Storage for Counting {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        Ok(self.count(self.storage.create(name, size)?))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.count(self.storage.open(name)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.storage.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.storage.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.storage.free_bytes()
    }
}

impl File for Counted {
    fn name(&self) -> String {
        self.file.name()
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(position, into)?;
        if thread::current().id() == self.thread {
            self.read.fetch_add(got as u64, Ordering::SeqCst);
        }
        Ok(got)
    }
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(position, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        self.file.allocate(size)
    }
    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        self.file.raw_fd()
    }
}

/// Recovery looks behind the end of the journal for what says that more had been durable: in its segment, and where the next one begins.
#[test]
fn a_start_reads_the_segment_that_was_written_once_and_hardly_anything_of_the_prepared_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let read = Arc::new(AtomicU64::new(0));
    let open = || {
        let config = JournalConfig { segment_bytes: SEGMENT, ..small() };
        Node::open_on(Counting::new(folder.path(), &read), submitter(IoMode::Buffered).expect("always there"), config)
            .expect("it opens")
    };
    let node = open();
    let log = node.log(1);
    for _ in 0..10 {
        node.append_batch(&log, 50, 900).expect("appended");
    }
    let end = log.end();
    drop(log);
    node.close();
    let segments = || {
        std::fs::read_dir(folder.path()).expect("a folder").filter(|entry| {
            entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("segment-"))
        })
    };
    assert_eq!(segments().count(), 2, "one is prepared");
    read.store(0, Ordering::SeqCst);
    let node = open();
    let bytes = read.load(Ordering::SeqCst);
    assert_eq!(node.log(1).end(), end);
    assert!(bytes <= SEGMENT + (12 << 20), "{bytes} bytes were read of two segments of {SEGMENT}");
    node.close();
}

/// What is missing is judged before keeper and archiver run, which move what is left while somebody looks: a start was refused that had everything.
#[test]
fn what_the_archive_has_is_not_looked_for_when_others_have_begun_to_work() {
    let (folder, archive) = (tempfile::tempdir().expect("a folder"), Arc::new(MemoryArchive::default()));
    let read = Arc::new(AtomicU64::new(0));
    let config = JournalConfig { window_bytes: Some(4 << 20), object_bytes: 256 << 10, tail_bytes: 1 << 20, ..small() };
    let open = || {
        let archive = Arc::clone(&archive) as Arc<dyn ArchiveStore>;
        Node::start(
            Counting::new(folder.path(), &read),
            archive,
            submitter(IoMode::Buffered).expect("always there"),
            config.clone(),
        )
        .expect("it opens")
    };
    let node = open();
    let log = node.log(1);
    while node.journal.metrics().segments_freed.get() < 8 {
        node.append_batch(&log, 50, 900).expect("appended");
    }
    let end = log.end();
    drop(log);
    node.close();
    let node = open();
    read.store(0, Ordering::SeqCst);
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    assert_eq!(read.load(Ordering::SeqCst), 0, "bytes read");
    assert_eq!(node.log(1).end(), end);
    node.close();
}
