//! The account of the memory that transactional ids take, with the logs, groups and offsets of their transactions. It is the length of their ids
//! that counts, which may be 32 KiB each.

use crate::coordinator::Commit;
use crate::transactions::{PendingOffsets, Transaction, TransactionError};
use crate::weight;

/// What the transaction of an id that is there may hold, whatever the others take: a start may have brought back more ids than there is memory for now. Some partitions, or
/// an offset of a group.
const OWN_BYTES: usize = 1024;

/// Memory of all transactional ids.
pub(crate) struct Account {
    pub bytes: usize,
    pub bytes_max: usize,
    pub refused: u64,
}

impl Default for Account {
    fn default() -> Self {
        Self { bytes: 0, bytes_max: usize::MAX, refused: 0 }
    }
}

impl Account {
    /// Of an id that is there, whose transaction may have changed.
    pub fn recount(&mut self, id: &str, known: &mut Transaction) {
        let now = weight::transaction(id, known);
        self.bytes = self.bytes + now - std::mem::replace(&mut known.counted, now);
    }

    fn check(&mut self, bytes: usize, max: usize) -> Result<(), TransactionError> {
        if bytes == 0 || self.bytes.saturating_add(bytes) <= max {
            return Ok(());
        }
        self.refused += 1;
        Err(TransactionError::NoMemory)
    }

    /// Of an id that would be new.
    ///
    /// # Errors
    /// `NoMemory`
    pub fn check_new(&mut self, bytes: usize) -> Result<(), TransactionError> {
        self.check(bytes, self.bytes_max)
    }

    /// Of an id that is there, whose transaction holds so much.
    ///
    /// # Errors
    /// `NoMemory`
    pub fn check_more(&mut self, holds: usize, bytes: usize) -> Result<(), TransactionError> {
        if holds.saturating_add(bytes) <= OWN_BYTES {
            return Ok(());
        }
        self.check(bytes, self.bytes_max.saturating_add(self.bytes_max / 4))
    }
}

/// What these offsets take beside those that they replace.
pub(crate) fn more_bytes(there: Option<&PendingOffsets>, commits: &[Commit]) -> usize {
    let of = |commit: &Commit| {
        let bytes = weight::offset_of_transaction(&commit.topic, &commit.offset.metadata);
        let before = there
            .filter(|there| !there.is_empty())
            .and_then(|there| there.get(&(commit.topic.clone(), commit.partition)));
        bytes.saturating_sub(before.map_or(0, |before| weight::offset_of_transaction(&commit.topic, &before.metadata)))
    };
    commits.iter().map(of).sum()
}
