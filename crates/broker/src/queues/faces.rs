//! A queue as a share group has it: which subscriptions are queues', by which rules members of a share group work on them, and what went
//! through members. Queues' rules are those of both faces: the limit of deliveries, dead letters, that only committed records count. What
//! AMQP has no word for is the group's: how long a member may keep a record, and how many records may be out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use delivery::{Acquired, Rules};

use super::queue::Queue;
use crate::{Broker, ShareRules, SharedSubscription, Topic};

/// How members of a share group work on one subscription.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// For the subscription.
    pub rules: Rules,
    /// Records of transactions only when they are committed.
    pub committed_only: bool,
}

/// Messages of a queue that went through members of a share group since the start.
#[derive(Debug, Default)]
pub(crate) struct MembersTally {
    /// Given to a member.
    pub delivered: AtomicU64,
    /// Of those, not for the first time.
    pub redelivered: AtomicU64,
    /// Accepted by a member.
    pub acknowledged: AtomicU64,
}

impl MembersTally {
    /// These were given to a member.
    pub fn note_given(&self, acquired: &[Acquired]) {
        let messages = |one: &Acquired| one.last - one.first + 1;
        self.delivered.fetch_add(acquired.iter().map(messages).sum(), Ordering::Relaxed);
        self.redelivered.fetch_add(acquired.iter().filter(|one| one.count > 1).map(messages).sum(), Ordering::Relaxed);
    }
}

impl Broker {
    /// The queue whose subscription it is.
    pub(crate) fn queue_with(&self, shared: &SharedSubscription) -> Option<Arc<Queue>> {
        let queue = shared.is_of_queue().then(|| self.vhosts().queue_of(shared.log().id())).flatten();
        queue.filter(|queue| std::ptr::eq(&raw const *queue.shared, &raw const *shared))
    }

    /// How members of a group work on one of its subscriptions.
    pub fn sharing(&self, shared: &SharedSubscription, group: &ShareRules) -> Sharing {
        let Some(queue) = self.queue_with(shared) else {
            return Sharing { rules: group.rules, committed_only: group.committed_only() };
        };
        let own = queue.rules().subscription();
        let unfinished_max = own.unfinished_max.min(group.rules.unfinished_max);
        Sharing { rules: Rules { lock: group.rules.lock, unfinished_max, ..own }, committed_only: true }
    }

    /// The rules of a subscription, whoever works on it.
    pub(crate) fn rules_of(&self, shared: &SharedSubscription) -> Rules {
        self.sharing(shared, &self.share_rules(&shared.name().group)).rules
    }

    /// Is the subscription of a group to a topic a queue's? Then only what clients of the queue do moves it.
    pub fn is_queue_of(&self, group: &str, topic: &Topic) -> bool {
        self.subscriptions().get(group, topic.id, 0).is_some_and(|shared| self.queue_with(&shared).is_some())
    }
}
