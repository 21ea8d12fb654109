//! Reads of a log wherever its records are, in memory or on the disk: for threads that may wait.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use journal::{ColdWant, Log, ReadError, TailRead};
use smallvec::SmallVec;
use types::Offset;

use crate::Broker;

/// Batches that cover a range of offsets.
pub(crate) struct Slices {
    /// The batches, in order. The first may begin before the range.
    pub slices: SmallVec<[Bytes; 4]>,
    /// Offset after the last of them.
    pub next: Offset,
}

impl Broker {
    /// Reads about so many bytes from the begin of a range on. `None`: the log does not have it any more, or not yet.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn read_slices(
        &self,
        log: &Arc<Log>,
        range: Range<Offset>,
        max_bytes: usize,
    ) -> Result<Option<Slices>, ReadError> {
        let journal = self.journal_of(log.id());
        match journal.read_tail(log, range.clone(), max_bytes, true) {
            TailRead::Data { slices, next, .. } => Ok(Some(Slices { slices, next })),
            TailRead::Cold => {
                let want = ColdWant { log: Arc::clone(log), from: range.start, until: range.end, max_bytes };
                match journal.read_cold(&[want], max_bytes).pop() {
                    Some(Ok(data)) if data.next > range.start => {
                        Ok(Some(Slices { slices: data.slices, next: data.next }))
                    }
                    Some(Ok(_) | Err(ReadError::Gone)) | None => Ok(None),
                    Some(Err(error)) => Err(error),
                }
            }
            TailRead::Empty | TailRead::OutOfRange => Ok(None),
        }
    }
}
