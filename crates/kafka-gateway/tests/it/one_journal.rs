//! Of two journals one meets an I/O error: partitions on it take nothing more, those on the other go on, and what was there is read.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use journal::disk::{File, IoMode, RealStorage, Storage};
use kafka_wire::ErrorCode;

use crate::node::{Node, batch, partitions, wants};

/// "Input/output error" on Linux.
const EIO: i32 = 5;

/// A disk whose writes fail once it is broken.
struct Disk {
    storage: RealStorage,
    broken: Arc<AtomicBool>,
}

struct Breaking {
    file: Arc<dyn File>,
    broken: Arc<AtomicBool>,
}

impl Breaking {
    fn check(&self) -> io::Result<()> {
        if self.broken.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    }
}

impl File for Breaking {
    fn name(&self) -> String {
        self.file.name()
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(position, into)
    }
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.check().and_then(|()| self.file.write_at(position, bytes))
    }
    fn sync(&self) -> io::Result<()> {
        self.check().and_then(|()| self.file.sync())
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        self.check().and_then(|()| self.file.allocate(size))
    }
    fn raw_fd(&self) -> Option<RawFd> {
        // Without one the submitter cannot write either.
        self.check().ok().and_then(|()| self.file.raw_fd())
    }
}

impl Disk {
    fn new(folder: &Path) -> Arc<Self> {
        Arc::new(Self {
            storage: RealStorage::open(folder, IoMode::Buffered).expect("a folder"),
            broken: Arc::default(),
        })
    }
    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Breaking { file, broken: Arc::clone(&self.broken) })
    }
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        self.storage.create(name, size).map(|file| self.wrap(file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.storage.open(name).map(|file| self.wrap(file))
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

#[test]
fn the_other_journal_goes_on() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let disks = [Disk::new(folders[0].path()), Disk::new(folders[1].path())];
    let mut node = Node::start_on(disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Storage>).collect(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 8);
    for partition in 0..8 {
        assert_eq!(node.produce(client, "t", partition, batch(2)), (0, 0));
    }
    disks[1].broken.store(true, Ordering::SeqCst);
    let refused = ErrorCode::KafkaStorageError.code();
    let outcomes: Vec<i16> = (0..8).map(|partition| node.produce(client, "t", partition, batch(1)).0).collect();
    let stopped = outcomes.iter().filter(|code| **code == refused).count();
    assert!((1..8).contains(&stopped) && outcomes.iter().all(|code| [0, refused].contains(code)), "{outcomes:?}");
    let again: Vec<i16> = (0..8).map(|partition| node.produce(client, "t", partition, batch(1)).0).collect();
    assert_eq!(again, outcomes, "the same partitions go on");
    let all: Vec<(i32, i64)> = (0..8).map(|partition| (partition, 0)).collect();
    let found = partitions(&node.fetch(client, &wants("t", &all)));
    assert!(found.iter().all(|(_, code, bytes)| *code == 0 && *bytes > 0), "what was acknowledged is read: {found:?}");
    node.stop();
}
