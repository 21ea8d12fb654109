//! A folder for the tests of starts that has faults.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{File, IoMode, RealStorage, Storage};

/// What fails once of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Open,
    /// Each read of it, as it is opened the next time.
    Read,
}

/// Refuses to rename or remove one file, and fails once at another.
pub(super) struct Faulty {
    storage: RealStorage,
    refused: String,
    once: Mutex<Option<(String, Fault)>>,
}

struct Unreadable(Arc<dyn File>);

fn fault() -> io::Error {
    io::Error::other("a fault")
}

impl Faulty {
    pub fn refusing(folder: &Path, refused: String) -> Self {
        Self {
            storage: RealStorage::open(folder, IoMode::Buffered).expect("a folder"),
            refused,
            once: Mutex::default(),
        }
    }

    pub fn fail_once(&self, fault: Option<(String, Fault)>) {
        *self.once.lock() = fault;
    }

    fn check(&self, name: &str) -> io::Result<()> {
        if name == self.refused { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Storage for Faulty {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        self.storage.create(name, size)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.storage.open(name)?;
        match self.once.lock().take_if(|(failing, _)| failing == name) {
            None => Ok(file),
            Some((_, Fault::Open)) => Err(fault()),
            Some((_, Fault::Read)) => Ok(Arc::new(Unreadable(file))),
        }
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check(from)?;
        self.storage.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.check(name)?;
        self.storage.remove(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.storage.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.storage.free_bytes()
    }
}

impl File for Unreadable {
    fn name(&self) -> String {
        self.0.name()
    }
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn read_at(&self, _position: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(fault())
    }
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(position, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        self.0.allocate(size)
    }
    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}
