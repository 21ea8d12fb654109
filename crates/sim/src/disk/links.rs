//! Second names of files, as a backup gives them, and disks that hold copies.

use std::io::{self, Write};
use std::sync::Arc;

use journal::CopiedFile;
use parking_lot::Mutex;

use super::{FileState, SimDisk};

/// What is copied to a disk, until it is all there.
struct Copied {
    disk: SimDisk,
    name: String,
    bytes: Vec<u8>,
}

impl SimDisk {
    /// The files that have second names, under these.
    pub fn linked(&self) -> Self {
        let linked = Self::new(0);
        linked.inner.lock().names.clone_from(&self.inner.lock().linked);
        linked
    }

    /// Nothing has a second name any more.
    pub fn unlink_all(&self) {
        self.inner.lock().linked.clear();
    }

    /// All bytes of a file, if it is there.
    pub fn bytes_of(&self, name: &str) -> Option<Vec<u8>> {
        self.inner.lock().names.get(name).map(|state| state.lock().bytes.clone())
    }

    /// A file that is there for good.
    pub fn put_file(&self, name: &str, bytes: Vec<u8>) {
        let state = Arc::new(Mutex::new(FileState { bytes, ..FileState::default() }));
        let mut disk = self.inner.lock();
        disk.durable_names.insert(name.to_owned(), Arc::clone(&state));
        disk.names.insert(name.to_owned(), state);
    }

    /// A file that is copied.
    pub fn copied(&self, name: &str) -> Box<dyn CopiedFile> {
        Box::new(Copied { disk: self.clone(), name: name.to_owned(), bytes: Vec::new() })
    }
}

impl Write for Copied {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CopiedFile for Copied {
    fn finish(mut self: Box<Self>, bytes: u64) -> io::Result<()> {
        self.bytes.resize(bytes as usize, 0);
        let file = std::mem::take(&mut self.bytes);
        self.disk.put_file(&self.name, file);
        Ok(())
    }
}
