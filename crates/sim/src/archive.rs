//! An archive that is never kind: a put may end with an error whether the object is there or not, a process may die in the middle
//! of one, and what was deleted may be back after a power loss. What a put has confirmed stays.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use journal::ArchiveStore;
use parking_lot::Mutex;

use crate::disk::SimDisk;
use crate::random::Random;

/// What happened, for the coverage report.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArchiveCounters {
    pub failed_puts: u64,
    pub half_puts: u64,
    pub undeleted: u64,
    pub without_room: u64,
}

struct Objects {
    by_name: BTreeMap<String, Bytes>,
    /// Deleted since the last power loss.
    deleted: BTreeMap<String, Bytes>,
    random: Random,
    counters: ArchiveCounters,
    /// Of these logs nothing is taken.
    refused: Vec<u64>,
    /// All objects together may be so long.
    capacity: Option<u64>,
}

impl Objects {
    fn bytes(&self) -> u64 {
        self.by_name.values().map(|bytes| bytes.len() as u64).sum()
    }
}

/// Objects that outlive the processes that use them; it dies with their disk.
#[derive(Clone)]
pub struct SimArchive {
    disk: SimDisk,
    inner: Arc<Mutex<Objects>>,
}

impl SimArchive {
    /// An empty one.
    pub fn new(seed: u64, disk: &SimDisk) -> Self {
        let counters = ArchiveCounters::default();
        let objects = Objects {
            by_name: BTreeMap::new(),
            deleted: BTreeMap::new(),
            random: Random::new(seed),
            counters,
            refused: Vec::new(),
            capacity: None,
        };
        Self { disk: disk.clone(), inner: Arc::new(Mutex::new(objects)) }
    }

    /// Deletions that had not reached the disk are undone.
    pub fn lose_power(&self) {
        let mut objects = self.inner.lock();
        let Objects { by_name, deleted, random, counters, .. } = &mut *objects;
        for (name, bytes) in std::mem::take(deleted) {
            if random.one_in(3) {
                counters.undeleted += 1;
                by_name.insert(name, bytes);
            }
        }
    }

    /// One of the objects is gone, if there are any.
    pub fn take(&self, random: &mut Random) -> Option<(String, Bytes)> {
        let mut objects = self.inner.lock();
        let at = random.below(objects.by_name.len() as u64) as usize;
        let name = objects.by_name.keys().nth(at)?.clone();
        objects.by_name.remove_entry(&name)
    }

    /// The object that has this name is gone.
    pub fn take_named(&self, name: &str) -> Option<(String, Bytes)> {
        self.inner.lock().by_name.remove_entry(name)
    }

    /// It is back.
    pub fn put_back(&self, (name, bytes): (String, Bytes)) {
        self.inner.lock().by_name.insert(name, bytes);
    }

    /// From now on nothing of these logs is taken.
    pub fn refuse(&self, logs: Vec<u64>) {
        self.inner.lock().refused = logs;
    }

    /// From now on there is room for so many bytes more, and none fails for another reason; `None`: there is no limit.
    pub fn leave_room(&self, bytes: Option<u64>) {
        let mut objects = self.inner.lock();
        objects.capacity = bytes.map(|bytes| objects.bytes() + bytes);
    }

    /// How much of that is left.
    pub fn room(&self) -> Option<u64> {
        let objects = self.inner.lock();
        objects.capacity.map(|capacity| capacity.saturating_sub(objects.bytes()))
    }

    /// All of an object, if it is there.
    pub fn bytes_of(&self, name: &str) -> Option<Bytes> {
        self.inner.lock().by_name.get(name).cloned()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.inner.lock().by_name.len()
    }

    /// What happened so far.
    pub fn counters(&self) -> ArchiveCounters {
        self.inner.lock().counters
    }
}

/// Whose object it is, and its first offset, as its name says (docs/formats/archive.md).
pub fn log_and_base(name: &str) -> Option<(u64, u64)> {
    let (_, rest) = name.split_once('/')?;
    let (log, rest) = rest.split_once('/')?;
    let (base, _) = rest.split_once('-')?;
    Some((log.parse().ok()?, base.parse().ok()?))
}

impl ArchiveStore for SimArchive {
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        let before = self.disk.touch();
        let mut objects = self.inner.lock();
        if let Err(dead) = before {
            let end = objects.random.below(bytes.len() as u64) as usize;
            if objects.random.one_in(2) {
                objects.counters.half_puts += 1;
                objects.by_name.insert(name.to_owned(), bytes.slice(..end));
            }
            return Err(dead);
        }
        if log_and_base(name).is_some_and(|(log, _)| objects.refused.contains(&log)) {
            return Err(io::Error::other("nothing of this log is taken"));
        }
        if let Some(capacity) = objects.capacity {
            if objects.bytes() + bytes.len() as u64 > capacity {
                objects.counters.without_room += 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
        } else if objects.random.one_in(25) {
            objects.counters.failed_puts += 1;
            if objects.random.one_in(2) {
                objects.by_name.insert(name.to_owned(), bytes);
            }
            return Err(io::Error::other("the store does not answer"));
        }
        objects.by_name.insert(name.to_owned(), bytes);
        Ok(())
    }

    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.touch()?;
        let bytes = self.inner.lock().by_name.get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        let rest = bytes.get(position as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.disk.touch()?;
        let first = format!("{prefix}/");
        Ok(self.inner.lock().by_name.keys().filter(|name| name.starts_with(&first)).cloned().collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.disk.touch()?;
        let mut objects = self.inner.lock();
        if let Some(bytes) = objects.by_name.remove(name) {
            objects.deleted.insert(name.to_owned(), bytes);
        }
        Ok(())
    }
}
