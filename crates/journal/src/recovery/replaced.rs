//! What a rewriting that was interrupted has left: the segments that the new one replaces. They go before anything is loaded, since their records are in the new one.
//!
//! A file that cannot be read now may be the one that replaces others, and be read a moment later: the same records would be there twice, and the next start would
//! remove what has been made of the second ones since. So it ends the start. One that is damaged replaces nothing here; what was lost with it is judged later.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{OpenError, io_error};
use crate::disk::Storage;
use crate::segments::{SegmentError, SegmentHeader, SegmentKind, segment_name};

/// Removes those of `segments` that another of them replaces.
///
/// # Errors
/// `Io`, `Segment`: one of them cannot be opened or read now, or one that is replaced cannot be removed. A later start does all of it again.
pub(super) fn remove(storage: &dyn Storage, segments: &[u64], uuid: Uuid) -> Result<(), OpenError> {
    let mut left: BTreeSet<u64> = segments.iter().copied().collect();
    for sequence in segments {
        let replaces = if left.contains(sequence) { replaced_by(storage, *sequence, uuid)? } else { Vec::new() };
        for replaced in replaces.iter().filter(|replaced| *replaced != sequence) {
            if left.remove(replaced) {
                storage.discard(&segment_name(*replaced), None).map_err(io_error("remove a replaced segment"))?;
            }
        }
    }
    Ok(())
}

/// What a segment of the journal says that it replaces.
fn replaced_by(storage: &dyn Storage, sequence: u64, uuid: Uuid) -> Result<Vec<u64>, OpenError> {
    let file = storage.open(&segment_name(sequence)).map_err(io_error("open a segment"))?;
    match SegmentHeader::read(&*file) {
        Ok(header) if header.kind == SegmentKind::Rewritten && header.journal == uuid && header.sequence == sequence => Ok(header.replaces),
        Ok(_) | Err(SegmentError::Corrupt { .. } | SegmentError::NewerVersion { .. }) => Ok(Vec::new()),
        Err(error @ SegmentError::Io { .. }) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;
    use std::os::fd::RawFd;
    use std::sync::Arc;

    use super::*;
    use crate::disk::{File, IoMode, RealStorage};
    use crate::segments::sequence_of;

    /// Of a segment.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        Open,
        Read,
    }

    /// Fails once at one segment.
    struct FailingOnce(RealStorage, u64, Cell<Option<Fault>>);

    // SAFETY: the test has one thread.
    unsafe impl Sync for FailingOnce {}

    struct Unreadable(Arc<dyn File>);

    fn fault() -> io::Error {
        io::Error::other("a fault")
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

    impl Storage for FailingOnce {
        fn list(&self) -> io::Result<Vec<String>> {
            self.0.list()
        }
        fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
            self.0.create(name, size)
        }
        fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
            let file = self.0.open(name)?;
            match (name == segment_name(self.1)).then(|| self.2.take()).flatten() {
                None => Ok(file),
                Some(Fault::Open) => Err(fault()),
                Some(Fault::Read) => Ok(Arc::new(Unreadable(file))),
            }
        }
        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&self, name: &str) -> io::Result<()> {
            self.0.remove(name)
        }
        fn sync_folder(&self) -> io::Result<()> {
            self.0.sync_folder()
        }
        fn free_bytes(&self) -> io::Result<u64> {
            self.0.free_bytes()
        }
    }

    #[test]
    fn no_segment_is_taken_for_one_that_replaces_nothing_because_it_cannot_be_read_now() {
        let uuid = Uuid::from_u128(7);
        for fault in [None, Some(Fault::Open), Some(Fault::Read)] {
            let folder = tempfile::tempdir().expect("a folder");
            let storage = FailingOnce(RealStorage::open(folder.path(), IoMode::Buffered).expect("a folder"), 2, Cell::new(None));
            for (sequence, replaces) in [(1, vec![]), (2, vec![2, 3]), (3, vec![]), (4, vec![])] {
                let kind = if replaces.is_empty() { SegmentKind::Journal } else { SegmentKind::Rewritten };
                let header = SegmentHeader { kind, journal: uuid, sequence, created: 0, replaces };
                let file = storage.create(&segment_name(sequence), 1 << 16).expect("there is space");
                file.write_at(0, &header.encode()).expect("written");
            }
            storage.2.set(fault);
            let outcome = remove(&storage, &[1, 2, 3, 4], uuid);
            assert_eq!(outcome.is_err(), fault.is_some(), "{fault:?}: {outcome:?}");
            let list = || {
                let mut names = storage.list().expect("a folder");
                names.sort();
                names
            };
            let there: Vec<u64> = list().iter().filter_map(|name| sequence_of(name)).collect();
            remove(&storage, &there, uuid).expect("the next start");
            let left = list();
            assert_eq!(left, [1, 2, 4].map(segment_name));
        }
    }
}
