//! Deletes queues. Nobody finds a queue from the beginning of its deletion on; what is deleted of the catalog goes to the journal
//! together with the end of its log and with what other declarations and deletions that wait have to write (see `declare.rs`), and when that
//! is durable its topic and its subscription go. When it cannot be written they stay: the next start finds the queue.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use journal::{AppendError, AppendItem};

use super::admin::QueueError;
use super::queue::Queue;
use super::record::QueueRecord;
use super::{Delays, Vhost};
use crate::Broker;
use crate::catalog::topic_key;
use crate::jobs::{Pending, Stage, Staged, TOGETHER_MAX};
use crate::log_ends::in_one;

/// A deletion that has begun.
struct Deletion {
    queue: Arc<Queue>,
    host: Arc<Vhost>,
    /// To be written.
    items: Vec<AppendItem>,
    delays: Vec<Arc<Delays>>,
    /// How many messages were ready.
    ready: u64,
}

impl Queue {
    /// Is it to outlive a restart?
    pub(super) fn is_recorded(&self) -> bool {
        self.durable && self.owner.is_none()
    }
}

impl Broker {
    /// Deletes a queue; how many messages were ready.
    ///
    /// # Errors
    /// `InUse`, `NotEmpty`, `Append`.
    pub fn delete_queue(self: &Arc<Self>, queue: &Arc<Queue>, if_unused: bool, if_empty: bool) -> Result<u64, QueueError> {
        let Some(mut deletion) = self.begin_deletion(queue, if_unused, if_empty)? else { return Ok(0) };
        let items = std::mem::take(&mut deletion.items);
        let written = if items.is_empty() { Ok(()) } else { self.commit(0, items) };
        self.end_deletion(deletion, written)
    }

    /// Deletes queues, many of them with one write. On the controller's thread. False: the broker ends, and some are left.
    ///
    /// # Errors
    /// `Append`.
    pub(super) fn delete_queues(self: &Arc<Self>, queues: Vec<Arc<Queue>>) -> Result<bool, QueueError> {
        let mut queues = queues.into_iter().peekable();
        while queues.peek().is_some() {
            if self.controller.is_closed() {
                return Ok(false);
            }
            let (mut items, mut begun) = (Vec::new(), Vec::new());
            while items.len() < TOGETHER_MAX
                && let Some(queue) = queues.next()
            {
                let Some(mut deletion) = self.begin_deletion(&queue, false, false)? else { continue };
                items.append(&mut deletion.items);
                begun.push(deletion);
            }
            let written = if items.is_empty() { Ok(()) } else { self.commit(0, items) };
            let mut outcome = Ok(());
            for deletion in begun {
                outcome = outcome.and(self.end_deletion(deletion, written).map(drop));
            }
            outcome?;
        }
        Ok(true)
    }

    /// A deletion for the controller, which writes those that wait together. The outcome is that of [`Broker::delete_queue`].
    pub fn staged_deletion(queue: Arc<Queue>, if_unused: bool, if_empty: bool) -> Staged {
        Box::new(move |broker: &Arc<Self>, pending: &Pending| {
            if pending.holds(&queue.vhost, &queue.name) {
                return Stage::Wait(Self::staged_deletion(queue, if_unused, if_empty));
            }
            let mut deletion = match broker.begin_deletion(&queue, if_unused, if_empty) {
                Ok(Some(deletion)) => deletion,
                other => return Stage::Done(Box::new(other.map(|_| 0u64))),
            };
            let items = std::mem::take(&mut deletion.items);
            if items.is_empty() {
                return Stage::Done(Box::new(broker.end_deletion(deletion, Ok(()))));
            }
            let of = (queue.vhost.to_string(), queue.name.clone());
            let then = move |broker: &Arc<Self>, written: Result<(), AppendError>| {
                Box::new(broker.end_deletion(deletion, written)) as Box<dyn Any + Send>
            };
            Stage::Write { items, of, comes: false, then: Box::new(then) }
        })
    }

    /// `None`: it is deleted already.
    fn begin_deletion(self: &Arc<Self>, queue: &Arc<Queue>, if_unused: bool, if_empty: bool) -> Result<Option<Deletion>, QueueError> {
        let counts = self.counts(queue);
        // As in RabbitMQ, a stream goes whoever reads it and whatever is in it, and does not count.
        let (if_unused, if_empty) = (if_unused && !queue.is_stream(), if_empty && !queue.is_stream());
        let (name, vhost) = (queue.name.clone(), queue.vhost.to_string());
        // In this order, as RabbitMQ.
        if if_empty && counts.ready > 0 {
            return Err(QueueError::NotEmpty { queue: name, vhost });
        }
        if if_unused && counts.consumers > 0 {
            return Err(QueueError::InUse { queue: name, vhost });
        }
        let Some(host) = self.vhosts.get(&queue.vhost) else { return Ok(None) };
        if queue.dropped.swap(true, Ordering::SeqCst) {
            return Ok(None);
        }
        let removal = host.exchanges.write().remove_queue(queue.id);
        let mut own = Vec::new();
        let (mut rest, delays) = self.forgotten(&host, removal);
        if queue.is_recorded() {
            let delete = |key| AppendItem::State { key, value: None };
            own.push(delete(QueueRecord::key(&queue.vhost, &queue.name)));
            if !queue.attached {
                own.extend((!queue.topic.name.is_empty()).then(|| delete(topic_key(&queue.topic.name))));
                own.extend(self.ends_of(&queue.topic.logs()));
                rest.extend(self.forgotten_offsets_of(&queue.topic));
            }
        }
        let items = in_one(own, rest);
        let ready = if queue.is_stream() { 0 } else { counts.ready };
        Ok(Some(Deletion { queue: Arc::clone(queue), host, items, delays, ready }))
    }

    fn end_deletion(self: &Arc<Self>, deletion: Deletion, written: Result<(), AppendError>) -> Result<u64, QueueError> {
        let Deletion { queue, host, delays, ready, .. } = deletion;
        host.queues.write().remove(queue.name.as_bytes());
        for part in queue.parts() {
            part.dropped.store(true, Ordering::SeqCst);
            self.vhosts.by_id.write().remove(&part.id);
            self.end(part);
        }
        queue.topic.set_bounded(false);
        written?;
        self.drop_delays(delays);
        if queue.attached && queue.is_stream() {
            // A share group of that name is any other.
        } else if queue.attached {
            let _ = self.drop_subscription(queue.understood().group(), queue.topic.id);
        } else {
            self.catalog.remove(&queue.topic);
            match queue.is_recorded() {
                true => self.follow_ends(&queue.topic.logs()),
                false => self.end_passing(queue.log()),
            }
            self.forget_subscriptions_to(queue.topic.id);
            self.forget_late_offsets_of(&queue.topic);
        }
        Ok(ready)
    }
}
