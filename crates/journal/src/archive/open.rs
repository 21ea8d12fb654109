//! Objects that readers use: their indexes, in a bounded cache, and the file that they read through.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use types::Offset;
use uuid::Uuid;

use super::{ArchiveStore, Archived, open_index};
use crate::disk::File;
use crate::run::Run;
use crate::segments::{Segment, SegmentError};

/// Memory of an open object, about.
const OPEN_BYTES: usize = 4 << 10;

/// An object that can be looked into.
pub(crate) struct OpenObject {
    /// What its extents are kept under.
    pub segment: Arc<Segment>,
    runs: Vec<Run>,
}

impl OpenObject {
    /// Reads its header, footer and index. `number` is unique among segments.
    fn load(
        store: &Arc<dyn ArchiveStore>,
        object: &Arc<Archived>,
        journal: Uuid,
        number: u64,
    ) -> Result<Self, SegmentError> {
        let name = object.name(journal);
        let read = |position: u64, bytes: usize| {
            let mut into = vec![0; bytes];
            let got = store
                .read_at(&name, position, &mut into)
                .map_err(|source| SegmentError::Io { file: name.clone(), source })?;
            into.truncate(got);
            Ok(into)
        };
        let runs = open_index(object, journal, &name, &read)?;
        let file = ArchiveFile { store: Arc::clone(store), name, object: Arc::clone(object) };
        Ok(Self { segment: Arc::new(Segment::archived(number, Arc::new(file))), runs })
    }

    /// The runs that end behind an offset.
    pub fn from(&self, offset: Offset) -> &[Run] {
        &self.runs[self.runs.partition_point(|run| run.next <= offset)..]
    }
}

/// Open objects by id, the latest used.
pub(crate) struct OpenObjects {
    held: Mutex<HashMap<u64, (Arc<OpenObject>, u64)>>,
    clock: AtomicU64,
    objects_max: usize,
}

impl OpenObjects {
    /// Holds about `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { held: Mutex::default(), clock: AtomicU64::new(0), objects_max: (bytes / OPEN_BYTES).max(16) }
    }

    /// An object, from memory or the store.
    pub fn get(
        &self,
        store: &Arc<dyn ArchiveStore>,
        object: &Arc<Archived>,
        journal: Uuid,
        number: impl FnOnce() -> u64,
    ) -> Result<Arc<OpenObject>, SegmentError> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        if let Some((open, used)) = self.held.lock().get_mut(&object.id) {
            *used = now;
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(OpenObject::load(store, object, journal, number())?);
        let mut held = self.held.lock();
        if held.len() >= self.objects_max {
            let oldest = held.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            oldest.map(|id| held.remove(&id));
        }
        held.insert(object.id, (Arc::clone(&open), now));
        Ok(open)
    }

    /// Lets go of an object; the number of its extents, if it was held.
    pub fn forget(&self, id: u64) -> Option<u64> {
        self.held.lock().remove(&id).map(|(open, _)| open.segment.id)
    }
}

/// An object as a file that can only be read.
struct ArchiveFile {
    store: Arc<dyn ArchiveStore>,
    name: String,
    /// Held so that the object is not deleted under a reader.
    object: Arc<Archived>,
}

impl ArchiveFile {
    fn refused() -> io::Error {
        io::Error::new(io::ErrorKind::Unsupported, "an archive object is never changed")
    }
}

impl File for ArchiveFile {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.object.length)
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let left = self.object.length.saturating_sub(position);
        let wanted = (into.len() as u64).min(left) as usize;
        let got = self.store.read_at(&self.name, position, &mut into[..wanted])?;
        if got < wanted {
            let what = format!(
                "object ends at byte {}, and has {} bytes in the journal's record",
                position + got as u64,
                self.object.length
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        Ok(got)
    }

    fn write_at(&self, _position: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(Self::refused())
    }

    fn sync(&self) -> io::Result<()> {
        Err(Self::refused())
    }

    fn allocate(&self, _size: u64) -> io::Result<()> {
        Err(Self::refused())
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}
