//! A start that changes nothing: recovery itself, on a folder of which nothing is written. What it refuses a start refuses.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use types::{LogId, SystemClock};

use crate::archive::ArchiveStore;
use crate::disk::{Completion, File, RealStorage, Storage, Submitter, Wait, Waker, WriteOp};
use crate::journal::JournalConfig;
use crate::recovery::{OpenError, open};

/// Opens the journal in `folder` as a start does that knows logs `is_live`.
///
/// # Errors
/// Those of the start.
pub fn rehearse(folder: &Path, is_live: &dyn Fn(LogId) -> bool) -> Result<(), OpenError> {
    let storage = Rehearsal::of(folder).map_err(|source| OpenError::Io { what: "list the journal's folder", source })?;
    let config = JournalConfig { tail_bytes: 0, cold_bytes: 0, held_bytes: 0, index_bytes: 4 << 20, ..JournalConfig::default() };
    let opened = open(config, Arc::new(storage), Arc::new(NoArchive), Idle, Arc::new(SystemClock), uuid::Uuid::nil())?;
    opened.journal.check_segments(is_live)
}

/// Where a file's bytes are.
enum Place {
    /// In the folder, under this name.
    Disk(String),
    /// Made since.
    Memory(Arc<Made>),
}

/// A folder as it would be after what was done to it.
struct Rehearsal {
    disk: RealStorage,
    names: Mutex<BTreeMap<String, Place>>,
}

impl Rehearsal {
    fn of(folder: &Path) -> io::Result<Self> {
        let disk = RealStorage::read_only(folder);
        let names = disk.list()?.into_iter().map(|name| (name.clone(), Place::Disk(name))).collect();
        Ok(Self { disk, names: Mutex::new(names) })
    }
}

impl Storage for Rehearsal {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names.lock().keys().cloned().collect())
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        let mut names = self.names.lock();
        if names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(Made { name: name.to_owned(), size: Mutex::new(size) });
        names.insert(name.to_owned(), Place::Memory(Arc::clone(&file)));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        match self.names.lock().get(name) {
            Some(Place::Disk(there)) => Ok(Arc::new(Unchanged(self.disk.open(there)?))),
            Some(Place::Memory(file)) => Ok(Arc::clone(file) as Arc<dyn File>),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = self.names.lock();
        let place = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.insert(to.to_owned(), place);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.names.lock().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// A file of the folder. Flushing it is for nothing.
struct Unchanged(Arc<dyn File>);

impl File for Unchanged {
    fn name(&self) -> String {
        self.0.name()
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(position, into)
    }

    fn write_at(&self, _position: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _size: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

/// A file that recovery begins. What it writes there it does not read.
struct Made {
    name: String,
    size: Mutex<u64>,
}

impl File for Made {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(*self.size.lock())
    }

    fn read_at(&self, _position: u64, into: &mut [u8]) -> io::Result<usize> {
        into.fill(0);
        Ok(into.len())
    }

    fn write_at(&self, _position: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        *self.size.lock() = size;
        Ok(())
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

/// Nothing is submitted: the writer does not run.
struct Idle;

impl Submitter for Idle {
    fn write(&mut self, _op: WriteOp) {}

    fn write_now(&mut self, op: WriteOp) -> Completion {
        Completion { token: op.token, result: Err(io::ErrorKind::ReadOnlyFilesystem.into()) }
    }

    fn sync(&mut self, _token: u64, _file: Arc<dyn File>) {}

    fn poll(&mut self, _wait: Wait, _done: &mut Vec<Completion>) {}

    fn waker(&self) -> Waker {
        Arc::new(|| {})
    }

    fn capacity(&self) -> usize {
        1
    }
}

/// A start reads no objects.
struct NoArchive;

impl ArchiveStore for NoArchive {
    fn put(&self, _name: &str, _bytes: Bytes) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read_at(&self, _name: &str, _position: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&self, _prefix: &str) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn delete(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}
