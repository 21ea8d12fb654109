//! What readers of committed records pass over.

use bytes::Bytes;
use hashbrown::HashSet;
use journal::Log;
use record::{Marker, SlicedBatch, whole};
use types::Offset;

/// Which of the batches, which are all of `from` to before `next`, belong to transactions that were aborted.
pub fn aborted(log: &Log, slices: &[Bytes], found: &[SlicedBatch], from: Offset, next: Offset) -> Vec<bool> {
    let mut begins = log.aborted_between(from, next);
    begins.sort_by_key(|one| one.first);
    let mut begins = begins.into_iter().peekable();
    let mut open: HashSet<i64> = HashSet::new();
    let judge = |one: &SlicedBatch| {
        while let Some(begun) = begins.next_if(|begun| begun.first < one.header.next()) {
            open.insert(begun.producer_id);
        }
        let of_aborted = one.header.transactional() && open.contains(&one.header.producer_id);
        if one.header.control()
            && Marker::of(&one.header, &whole(slices, one.at, one.header.total_bytes())) == Some(Marker::Abort)
        {
            open.remove(&one.header.producer_id);
        }
        of_aborted
    };
    found.iter().map(judge).collect()
}
