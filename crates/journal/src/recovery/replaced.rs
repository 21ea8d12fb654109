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
    use super::super::faulty::{Fault, Faulty};
    use super::*;
    use crate::segments::sequence_of;

    #[test]
    fn no_segment_is_taken_for_one_that_replaces_nothing_because_it_cannot_be_read_now() {
        let uuid = Uuid::from_u128(7);
        for fault in [None, Some(Fault::Open), Some(Fault::Read)] {
            let folder = tempfile::tempdir().expect("a folder");
            let storage = Faulty::refusing(folder.path(), String::new());
            for (sequence, replaces) in [(1, vec![]), (2, vec![2, 3]), (3, vec![]), (4, vec![])] {
                let kind = if replaces.is_empty() { SegmentKind::Journal } else { SegmentKind::Rewritten };
                let header = SegmentHeader { kind, journal: uuid, sequence, created: 0, replaces };
                let file = storage.create(&segment_name(sequence), 1 << 16).expect("there is space");
                file.write_at(0, &header.encode()).expect("written");
            }
            storage.fail_once(fault.map(|fault| (segment_name(2), fault)));
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
