//! Queues that are far behind, by the rules of their group (`quotas/laggard.rs`): consumers get the room that their messages took back late.
//! Each queue has a lag and an account of its own, as queues that name no share group are all under one name.

use std::sync::Arc;
use std::time::Instant;

use super::Queue;
use crate::Broker;
use crate::quotas::{Account, Lag};

impl Broker {
    /// The account of a queue that is far behind. `None`: it has no rules, none of them applies, or it is a stream, whose consumers have
    /// places of their own.
    pub fn laggard_account(&self, queue: &Queue, now: Instant) -> Option<Arc<Account>> {
        let laggards = self.quotas().laggards();
        if !laggards.any() || queue.is_stream() {
            return None;
        }
        let understood = queue.understood();
        let laggard = laggards.of_group(understood.group())?;
        laggard.hear_queue(queue.topic().id, || self.lag_of(queue, understood.group()), now, self.now_ms())
    }

    /// What is not done of all partitions of a queue.
    fn lag_of(&self, queue: &Queue, group: &str) -> Lag {
        let (topic, logs) = (queue.topic(), queue.topic().logs());
        let of = |number| self.subscriptions().get(group, topic.id, number);
        let parts = (0..).zip(logs.iter()).filter_map(|(number, log)| Some((log, of(number)?)));
        parts.fold(Lag::default(), |sum, (log, shared)| sum.plus(Lag::in_log(log, shared.lock().backlog(log.high_watermark().0))))
    }
}
