//! Queues and consumers of streams that are far behind, by the rules of their group (`quotas/laggard.rs`): consumers get the room that their
//! messages took back late, and who asks for single messages waits. Queues that name no share group are all under one name: so each queue has a
//! lag and an account of its own, and each consumer of a stream, as they have places of their own. Rules of a group that a queue names hold for the queue
//! only if who has set them may configure it: a group of that name may be anybody's.

use std::sync::Arc;
use std::time::Instant;

use delivery::ConsumerId;

use super::Queue;
use crate::quotas::{Account, Lag, Single};
use crate::security::AclOperation;
use crate::{Broker, Setter};

impl Broker {
    /// The account of a queue, or of a stream's consumer, that is far behind. `None`: it has no rules, or none of them applies.
    pub fn laggard_account(&self, queue: &Queue, consumer: ConsumerId, now: Instant) -> Option<Arc<Account>> {
        let laggards = self.quotas().laggards();
        if !laggards.any() {
            return None;
        }
        let understood = queue.understood();
        let laggard = laggards.of_group(understood.group())?;
        let rules = |setter: &Setter| {
            self.security().setter_may(setter, AclOperation::AlterConfigs, queue.vhost(), queue.name())
        };
        if understood.share_group.is_some() && !laggard.setter.as_ref().is_none_or(rules) {
            return None;
        }
        match &queue.stream {
            None => laggard.hear_single(
                Single::Queue(queue.topic().id),
                || self.lag_of(queue, understood.group()),
                now,
                self.now_ms(),
            ),
            Some(stream) => {
                laggard.hear_single(Single::StreamConsumer(consumer), || stream.lag_of(consumer), now, self.now_ms())
            }
        }
    }

    /// What is not done of all partitions of a queue.
    fn lag_of(&self, queue: &Queue, group: &str) -> Lag {
        let (topic, logs) = (queue.topic(), queue.topic().logs());
        let of = |number| self.subscriptions().get(group, topic.id, number);
        let parts = (0..).zip(logs.iter()).filter_map(|(number, log)| Some((log, of(number)?)));
        parts.fold(Lag::default(), |sum, (log, shared)| sum.plus(self.lag_in(log, shared.lag())))
    }
}
