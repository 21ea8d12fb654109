//! What a rewriting that was interrupted has left: the segments that the new one replaces. They go before anything is loaded, since their records are in the new one.
//!
//! A file that cannot be read now may be the one that replaces others, and be read a moment later: the same records would be there twice, and the next start would
//! remove what has been made of the second ones since. So it ends the start. One that is damaged replaces nothing here; what was lost with it is judged later.
//!
//! A replaced segment whose file cannot be removed is not loaded, and no start fails because it stays: the keeper tries to remove it again, and leaves the
//! segment alone which says what it replaces, so that it is there as long as the file is.

use std::collections::BTreeMap;
use std::io;

use uuid::Uuid;

use super::{OpenError, open_named};
use crate::disk::Storage;
use crate::segments::{SegmentError, SegmentHeader, SegmentKind, segment_name};

/// Those of `segments`, which ascend, that another of them replaces, and by which.
///
/// # Errors
/// `Io`, `Segment`: one of them cannot be opened or read now. A later start asks again.
pub(super) fn find(storage: &dyn Storage, segments: &[u64], uuid: Uuid) -> Result<BTreeMap<u64, u64>, OpenError> {
    let mut replaced = BTreeMap::new();
    for sequence in segments {
        if !replaced.contains_key(sequence) {
            let others = replaced_by(storage, *sequence, uuid)?
                .into_iter()
                .filter(|other| other != sequence && segments.binary_search(other).is_ok());
            replaced.extend(others.map(|other| (other, *sequence)));
        }
    }
    Ok(replaced)
}

/// Removes their files. Leaves in `replaced` those whose files stay.
pub(super) fn remove(storage: &dyn Storage, journal: u16, replaced: &mut BTreeMap<u64, u64>) {
    replaced.retain(|sequence, _| {
        let file = segment_name(*sequence);
        match storage.discard(&file, None) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(journal, file, %error, "a replaced segment could not be removed, that will be tried again");
                true
            }
            _ => false,
        }
    });
}

/// What a segment of the journal says that it replaces.
fn replaced_by(storage: &dyn Storage, sequence: u64, uuid: Uuid) -> Result<Vec<u64>, OpenError> {
    let file = open_named(storage, &segment_name(sequence))?;
    match SegmentHeader::read(&*file) {
        Ok(header)
            if header.kind == SegmentKind::Rewritten && header.journal == uuid && header.sequence == sequence =>
        {
            Ok(header.replaces)
        }
        Ok(_) | Err(SegmentError::Corrupt { .. } | SegmentError::NewerVersion { .. }) => Ok(Vec::new()),
        Err(error @ SegmentError::Io { .. }) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::faulty::{Fault, Faulty};
    use super::*;
    use crate::segments::sequence_of;

    /// Segments 1 to 4, of which 2 was made of 2 and 3.
    fn segments(storage: &Faulty, uuid: Uuid) {
        for (sequence, replaces) in [(1, vec![]), (2, vec![2, 3]), (3, vec![]), (4, vec![])] {
            let kind = if replaces.is_empty() { SegmentKind::Journal } else { SegmentKind::Rewritten };
            let header = SegmentHeader { kind, journal: uuid, sequence, created: 0, replaces };
            let file = storage.create(&segment_name(sequence), 1 << 16).expect("there is space");
            file.write_at(0, &header.encode()).expect("written");
        }
    }

    #[test]
    fn no_segment_is_taken_for_one_that_replaces_nothing_because_it_cannot_be_read_now() {
        let uuid = Uuid::from_u128(7);
        for fault in [None, Some(Fault::Open), Some(Fault::Read)] {
            let folder = tempfile::tempdir().expect("a folder");
            let storage = Faulty::refusing(folder.path(), String::new());
            segments(&storage, uuid);
            storage.fail_once(fault.map(|fault| (segment_name(2), fault)));
            let outcome = find(&storage, &[1, 2, 3, 4], uuid);
            assert_eq!(outcome.is_err(), fault.is_some(), "{fault:?}: {outcome:?}");
            assert_eq!(find(&storage, &[1, 2, 3, 4], uuid).expect("the next start"), BTreeMap::from([(3, 2)]));
        }
    }

    #[test]
    fn a_replaced_segment_that_cannot_be_removed_is_told_of_and_ends_no_start() {
        let uuid = Uuid::from_u128(7);
        let folder = tempfile::tempdir().expect("a folder");
        segments(&Faulty::refusing(folder.path(), String::new()), uuid);
        for (refused, left) in [(segment_name(3), BTreeMap::from([(3, 2)])), (String::new(), BTreeMap::new())] {
            let storage = Faulty::refusing(folder.path(), refused);
            let mut replaced = find(&storage, &[1, 2, 3, 4], uuid).expect("all can be read");
            remove(&storage, 0, &mut replaced);
            assert_eq!(replaced, left);
        }
        let mut there: Vec<u64> = Faulty::refusing(folder.path(), String::new())
            .list()
            .expect("a folder")
            .iter()
            .filter_map(|name| sequence_of(name))
            .collect();
        there.sort_unstable();
        assert_eq!(there, [1, 2, 4]);
    }
}
