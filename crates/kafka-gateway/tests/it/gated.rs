//! A disk that waits when a test wants it.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use journal::disk::{File, IoMode, RealStorage, Storage};

/// Lets threads pass, or not.
#[derive(Default)]
pub struct Gate {
    closed: Mutex<bool>,
    opens: Condvar,
}

impl Gate {
    pub fn close(&self) {
        *self.closed.lock().expect("no panic") = true;
    }
    pub fn open(&self) {
        *self.closed.lock().expect("no panic") = false;
        self.opens.notify_all();
    }
    fn pass(&self) {
        drop(self.opens.wait_while(self.closed.lock().expect("no panic"), |closed| *closed).expect("no panic"));
    }
}

/// A disk whose writes and flushes wait while their gates are closed.
pub struct Disk {
    storage: RealStorage,
    pub writes: Arc<Gate>,
    pub flushes: Arc<Gate>,
}

struct Gated {
    file: Arc<dyn File>,
    writes: Arc<Gate>,
    flushes: Arc<Gate>,
}

impl File for Gated {
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
        self.file.write_at(position, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.flushes.pass();
        self.file.sync()
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        self.file.allocate(size)
    }
    fn raw_fd(&self) -> Option<RawFd> {
        // The submitter asks for it before each write.
        self.writes.pass();
        self.file.raw_fd()
    }
}

impl Disk {
    pub fn new(folder: &Path) -> Arc<Self> {
        Arc::new(Self {
            storage: RealStorage::open(folder, IoMode::Buffered).expect("a folder"),
            writes: Arc::default(),
            flushes: Arc::default(),
        })
    }
    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Gated { file, writes: Arc::clone(&self.writes), flushes: Arc::clone(&self.flushes) })
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
