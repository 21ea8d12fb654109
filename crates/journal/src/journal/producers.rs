//! What the journal tells of the idempotent producers that its logs know.

use super::Journal;
use crate::producers::ProducerRoom;

impl Journal {
    /// Memory of the idempotent producers that its logs know, in bytes, about, and how often a batch of a new one was refused for it.
    pub fn producer_memory(&self) -> (usize, u64) {
        (self.of_logs.producers.bytes(), self.of_logs.producers.refused())
    }

    pub(crate) fn producer_room(&self) -> &ProducerRoom {
        &self.of_logs.producers
    }
}
