//! Subscriptions that are deleted: by who administers groups, and with groups and topics.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use journal::AppendItem;
use types::TopicId;

use super::writes::Write;
use super::{Acknowledgement, NotWritten, SharedSubscription};
use crate::Broker;
use crate::jobs::TOGETHER_MAX;

impl Broker {
    /// Deletes subscriptions, durably; what consumers say of them from now on has no effect. Returns how many there were. Not on
    /// a shard's thread.
    ///
    /// # Errors
    /// When the journal does not take it.
    fn drop_subscriptions(&self, dropped: &[Arc<SharedSubscription>]) -> Result<usize, NotWritten> {
        let durable = self.durably(|asker| self.end_subscriptions(dropped, Some(asker)));
        if durable { Ok(dropped.len()) } else { Err(NotWritten) }
    }

    fn end_subscriptions(&self, dropped: &[Arc<SharedSubscription>], asker: Option<&Arc<Acknowledgement>>) {
        for shared in dropped {
            // Under its lock: no record of it may come after those that delete it.
            let state = shared.lock();
            shared.dropped.store(true, Ordering::SeqCst);
            self.subscriptions().remove(shared);
            self.subscriptions().writes.done.forget(shared);
            if !shared.volatile && !state.is_unwritten() {
                let items =
                    shared.name.keys(&state).into_iter().map(|key| AppendItem::State { key, value: None }).collect();
                let write = Write::alone(asker);
                self.subscriptions().writes.append(self.journal_number(shared.log.id()), shared.lane, items, write);
            }
            self.wake_subscription(shared);
        }
    }

    /// Groups are deleted; subscriptions of queues stay with their queues. For each: does the journal take it? On the controller's thread.
    pub(crate) fn drop_subscriptions_of_groups(&self, groups: &[&str]) -> Vec<Result<(), NotWritten>> {
        let of_group = |group: &str| {
            let mut doomed = self.subscriptions().of_group(group);
            doomed.retain(|shared| self.queue_with(shared).is_none());
            doomed
        };
        let dropped = groups
            .chunks(TOGETHER_MAX)
            .flat_map(|piece| self.drop_each(piece.iter().map(|group| of_group(group)).collect()));
        dropped.map(|dropped| dropped.map(drop)).collect()
    }

    /// Deletes several lots of subscriptions, durably, together; for each lot: is there something in it?
    fn drop_each(&self, lots: Vec<Vec<Arc<SharedSubscription>>>) -> Vec<Result<bool, NotWritten>> {
        let durable = self.durably_each(
            lots.iter().map(|lot| move |asker: &Arc<Acknowledgement>| self.end_subscriptions(lot, Some(asker))),
        );
        lots.iter()
            .zip(durable)
            .map(|(lot, durable)| if durable { Ok(!lot.is_empty()) } else { Err(NotWritten) })
            .collect()
    }

    /// Subscriptions are deleted because what they were of has gone, with one commit. On the controller's thread.
    pub(crate) fn drop_leftovers(&self, dropped: &[Arc<SharedSubscription>]) {
        // What is not deleted now is deleted at the next start, since the topic is gone.
        let _ = self.drop_subscriptions(dropped);
    }

    /// That of a group to a topic, but for a queue's.
    pub(crate) fn subscriptions_of(&self, group: &str, topic: TopicId) -> Vec<Arc<SharedSubscription>> {
        let mut found = self.subscriptions().of_topic(topic);
        found.retain(|shared| *shared.name.group == *group && self.queue_with(shared).is_none());
        found
    }

    /// Those to a topic are deleted, without waiting: the topic's own deletion is durable.
    pub(crate) fn forget_subscriptions_to(&self, topic: TopicId) {
        self.end_subscriptions(&self.subscriptions().of_topic(topic), None);
    }

    /// A group forgets a topic; false: it had no subscription to it that was not a queue's. On the controller's thread.
    ///
    /// # Errors
    /// When the journal does not take it.
    pub fn drop_subscription(&self, group: &str, topic: TopicId) -> Result<bool, NotWritten> {
        self.drop_subscriptions_to_each(group, &[topic]).pop().unwrap_or(Ok(false))
    }

    /// A group forgets topics, many of them with one commit; for each what [`Broker::drop_subscription`] says. On the controller's thread.
    pub fn drop_subscriptions_to_each(&self, group: &str, topics: &[TopicId]) -> Vec<Result<bool, NotWritten>> {
        let of_topic = |topic: &TopicId| self.subscriptions_of(group, *topic);
        topics.chunks(TOGETHER_MAX).flat_map(|piece| self.drop_each(piece.iter().map(of_topic).collect())).collect()
    }
}
