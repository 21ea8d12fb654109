//! An archive in memory, for tests and simulations: nothing of it outlives the process.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use parking_lot::Mutex;

use super::ArchiveStore;

/// Objects by name.
#[derive(Default)]
pub struct MemoryArchive {
    objects: Mutex<BTreeMap<String, Bytes>>,
}

impl MemoryArchive {
    /// Does something to the bytes of an object, as damage would. False when it is not there.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut objects = self.objects.lock();
        let Some(bytes) = objects.get_mut(name) else { return false };
        let mut changed = bytes.to_vec();
        change(&mut changed);
        *bytes = Bytes::from(changed);
        true
    }

    /// Names and lengths of all objects.
    pub fn lengths(&self) -> Vec<(String, usize)> {
        self.objects.lock().iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect()
    }
}

impl ArchiveStore for MemoryArchive {
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        self.objects.lock().insert(name.to_owned(), bytes);
        Ok(())
    }

    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.objects.lock().get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        let rest = bytes.get(position as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let first = format!("{prefix}/");
        Ok(self.objects.lock().keys().filter(|name| name.starts_with(&first)).cloned().collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.objects.lock().remove(name);
        Ok(())
    }
}
