//! Deletes topics, with the queues that they are and what groups have done with them. On the controller's thread.

use std::ops::Range;
use std::sync::Arc;

use journal::{AppendError, AppendItem, AppendResults};

use crate::Broker;
use crate::catalog::topic_key;
use crate::jobs::{TOGETHER_MAX, durable};
use crate::log_ends::in_one;
use crate::queues::{Deletion, QueueError};
use crate::subscriptions::SharedSubscription;
use crate::topic::Topic;

/// What is still to be removed of topics and queues that have gone durably.
#[derive(Default)]
pub(crate) struct Leftovers {
    pub subscriptions: Vec<Arc<SharedSubscription>>,
    /// What groups have committed of these.
    pub offsets_of: Vec<Arc<Topic>>,
}

/// A deletion that has begun, with the items that are to be written.
struct TopicDeletion {
    topic: Arc<Topic>,
    queue: Option<(Deletion, Range<usize>)>,
    /// Of the topic itself; `None`: it goes with its queue, or is gone.
    own: Option<Range<usize>>,
}

impl Broker {
    /// Deletes a topic and all its records, and the queue that it is.
    ///
    /// # Errors
    /// When the journal does not take it.
    pub fn delete_topic(self: &Arc<Self>, topic: &Arc<Topic>) -> Result<(), AppendError> {
        self.delete_topics(std::slice::from_ref(topic)).pop().unwrap_or(Ok(()))
    }

    /// Deletes topics with the queues that they are, each for itself, many of them with one commit; an outcome for each. No topic is there twice.
    pub fn delete_topics(self: &Arc<Self>, topics: &[Arc<Topic>]) -> Vec<Result<(), AppendError>> {
        let mut outcomes = Vec::with_capacity(topics.len());
        let mut topics = topics.iter().peekable();
        while topics.peek().is_some() {
            let (mut items, mut begun) = (Vec::new(), Vec::new());
            while items.len() < TOGETHER_MAX
                && let Some(topic) = topics.peek()
            {
                // What exchanges go with a queue depends on those that have gone before.
                let alone = self.queue_on(topic).is_some_and(|queue| queue.may_take_exchanges(self));
                if alone && !begun.is_empty() {
                    break;
                }
                begun.push(self.begin_topic_deletion(topic, &mut items));
                topics.next();
                if alone {
                    break;
                }
            }
            let results = if items.is_empty() { AppendResults::new() } else { self.commit_all(0, items) };
            let mut leftovers = Leftovers::default();
            outcomes.extend(begun.into_iter().map(|begun| self.end_topic_deletion(begun?, &results, &mut leftovers)));
            self.forget(leftovers);
        }
        outcomes
    }

    /// Begins to delete a topic and the queue that it is; what is to be written comes to `items`: nothing if it is gone.
    fn begin_topic_deletion(
        self: &Arc<Self>,
        topic: &Arc<Topic>,
        items: &mut Vec<AppendItem>,
    ) -> Result<TopicDeletion, AppendError> {
        let mut begun = TopicDeletion { topic: Arc::clone(topic), queue: None, own: None };
        // Another one may have its name by now.
        if self.topic(&topic.name).is_none_or(|now| now.id != topic.id) {
            return Ok(begun);
        }
        let mut add = |mut own: Vec<AppendItem>| {
            let first = items.len();
            items.append(&mut own);
            first..items.len()
        };
        if let Some(queue) = self.queue_on(topic) {
            match self.begin_deletion(&queue, false, false) {
                Err(QueueError::Append(error)) => return Err(error),
                Ok(Some(mut deletion)) => {
                    let written = add(std::mem::take(&mut deletion.items));
                    begun.queue = Some((deletion, written));
                }
                // Nothing was asked that could be refused.
                Ok(None) | Err(_) => {}
            }
            if !queue.is_attached() {
                return Ok(begun);
            }
        }
        let mut own = vec![AppendItem::State { key: topic_key(&topic.name), value: None }];
        own.extend(self.ends_of(&topic.logs()));
        begun.own = Some(add(in_one(own, self.forgotten_offsets_of(topic))));
        Ok(begun)
    }

    /// What was to be written was, or was not.
    fn end_topic_deletion(
        self: &Arc<Self>,
        begun: TopicDeletion,
        results: &AppendResults,
        leftovers: &mut Leftovers,
    ) -> Result<(), AppendError> {
        let TopicDeletion { topic, queue, own } = begun;
        if let Some((deletion, mut items)) = queue {
            // The first of them counts.
            let of_queue = items.next().map_or(Ok(()), |item| durable(results.get(item)));
            if let Err(QueueError::Append(error)) = self.end_deletion(deletion, of_queue, leftovers) {
                return Err(error);
            }
        }
        let Some(mut own) = own else { return Ok(()) };
        own.try_for_each(|item| durable(results.get(item)))?;
        self.catalog.remove(&topic);
        self.follow_ends(&topic.logs());
        leftovers.subscriptions.extend(self.subscriptions().of_topic(topic.id));
        leftovers.offsets_of.push(topic);
        Ok(())
    }

    /// Forgets what is left of topics and queues that have gone durably, with a commit for each kind of it: subscriptions, what was committed of a topic, and
    /// what was under way when it went. What is written once more is little.
    pub(crate) fn forget(&self, leftovers: Leftovers) {
        let Leftovers { mut subscriptions, offsets_of } = leftovers;
        // Of a queue on a topic, and of that topic.
        subscriptions.sort_unstable_by_key(Arc::as_ptr);
        subscriptions.dedup_by(|one, other| Arc::ptr_eq(one, other));
        if !subscriptions.is_empty() {
            self.drop_leftovers(&subscriptions);
        }
        let names: Vec<&str> =
            offsets_of.iter().map(|topic| topic.name.as_str()).filter(|name| !name.is_empty()).collect();
        if !names.is_empty() {
            // What is not removed now is removed as expired.
            let _ = self.forget_committed_offsets(&names);
        }
    }

    /// Deletes what groups have committed of a topic, to be written together with the deletion of the topic; then
    /// [`Broker::forget`].
    pub(crate) fn forgotten_offsets_of(&self, topic: &Topic) -> Vec<AppendItem> {
        let keys = if topic.name.is_empty() { Vec::new() } else { self.groups().offset_keys(&topic.name) };
        keys.into_iter().map(|key| AppendItem::State { key, value: None }).collect()
    }
}
