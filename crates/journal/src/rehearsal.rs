//! A start that changes nothing: recovery itself, on a folder of which nothing is written. What it refuses a start refuses.
//!
//! It costs what a start costs: the checkpoint, the indexes of the sealed segments and the chunks behind the checkpoint are read, through the page
//! cache; in memory are the logs and the keyed state, and a few MiB.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use types::SystemClock;

use crate::archive::ArchiveStore;
use crate::disk::{Completion, File, RealStorage, Storage, Submitter, Wait, Waker, WriteOp};
use crate::journal::{Journal, JournalConfig};
use crate::recovery::{OpenError, open};

/// Journal `number` of a node as a start has it that opens `folder`. Nobody writes it: appends to it are never answered.
/// [`Journal::check_segments`] is the caller's, who knows which logs are in use.
///
/// # Errors
/// Those of the start.
pub fn rehearse(folder: &Path, number: u16) -> Result<Arc<Journal>, OpenError> {
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::read_only(folder));
    rehearse_on(&storage, &JournalConfig { number, ..JournalConfig::default() })
}

/// [`rehearse`] of the journal in `storage`, which is only read.
pub(crate) fn rehearse_on(storage: &Arc<dyn Storage>, config: &JournalConfig) -> Result<Arc<Journal>, OpenError> {
    let storage =
        Rehearsal::of(storage).map_err(|source| OpenError::Io { what: "list the journal's folder", source })?;
    let config = JournalConfig { tail_bytes: 0, cold_bytes: 0, held_bytes: 0, index_bytes: 4 << 20, ..config.clone() };
    let opened = open(config, Arc::new(storage), Arc::new(NoArchive), Idle, Arc::new(SystemClock), uuid::Uuid::nil())?;
    Ok(opened.journal)
}

/// Where a file's bytes are.
enum Place {
    /// In the folder, under this name.
    Disk(String),
    /// Nowhere: it was made since.
    Made(Arc<Apart>),
}

/// A folder as it would be after what was done to it.
struct Rehearsal {
    disk: Arc<dyn Storage>,
    names: Mutex<BTreeMap<String, Place>>,
}

impl Rehearsal {
    fn of(disk: &Arc<dyn Storage>) -> io::Result<Self> {
        let names = disk.list()?.into_iter().map(|name| (name.clone(), Place::Disk(name))).collect();
        Ok(Self { disk: Arc::clone(disk), names: Mutex::new(names) })
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
        let file = Arc::new(Apart { name: name.to_owned(), there: None, size: Mutex::new(size) });
        names.insert(name.to_owned(), Place::Made(Arc::clone(&file)));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        match self.names.lock().get(name) {
            Some(Place::Disk(there)) => {
                let file = self.disk.open(there)?;
                let size = Mutex::new(file.size()?);
                Ok(Arc::new(Apart { name: file.name(), there: Some(file), size }))
            }
            Some(Place::Made(file)) => Ok(Arc::clone(file) as Arc<dyn File>),
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

/// A file of which what is written is kept nowhere: recovery reads nothing again that it has written.
struct Apart {
    name: String,
    /// The file of the folder, if it is one.
    there: Option<Arc<dyn File>>,
    /// As it would be, in bytes.
    size: Mutex<u64>,
}

impl File for Apart {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(*self.size.lock())
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let wanted = self.size.lock().saturating_sub(position).min(into.len() as u64) as usize;
        let got = self.there.as_ref().map_or(Ok(0), |file| file.read_at(position, &mut into[..wanted]))?;
        // What it was made longer by is empty.
        into[got..wanted].fill(0);
        Ok(wanted)
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let mut size = self.size.lock();
        *size = (*size).max(position + bytes.len() as u64);
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
