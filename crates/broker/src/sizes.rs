//! What records and messages take, for those who show it and for rules that go by it. The bytes of a log go on to count what was deleted or acknowledged until its segment is
//! looked at, so they say little of the few messages that a queue has: these are told by the batches that it still has.

use std::sync::Arc;

use journal::Log;

use crate::Broker;
use crate::queues::Queue;
use crate::quotas::Lag;

/// Batches that are looked at: those of all logs together, if a queue has several.
const SAMPLE: usize = 1000;

impl Broker {
    /// Bytes and records of batches that a log still has, the oldest ones of those at hand. Nothing is read from the disk: where all of it is older, those of the whole log.
    fn sample(&self, log: &Log, batches: usize) -> (u64, u64) {
        match self.journal_of(log.id()).sample(log, batches) {
            (_, 0) => (log.live_bytes(), log.high_watermark().0.saturating_sub(log.start().0)),
            found => found,
        }
    }

    /// So many records of a log, which are not done, with their bytes, about.
    pub fn lag_in(&self, log: &Log, records: u64) -> Lag {
        Lag { records, bytes: share(self.sample(log, SAMPLE), records) }
    }

    /// Bytes of so many messages of a queue, about, with what is stored beside them.
    pub fn bytes_of_messages(&self, queue: &Arc<Queue>, messages: u64) -> u64 {
        let each = (SAMPLE / queue.parts().count()).max(1);
        let all = queue
            .parts()
            .map(|part| self.sample(part.log(), each))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        share(all, messages)
    }
}

/// What `wanted` of so many records take of their bytes.
fn share((bytes, records): (u64, u64), wanted: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(wanted) / u128::from(records.max(1))).unwrap_or(u64::MAX)
}
