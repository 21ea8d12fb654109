//! Deletes queues. What is deleted of the catalog goes to the journal together with the end of a queue's log and with what other declarations
//! and deletions that wait have to write (see `declare.rs`). The queue is there as before until that is durable: what is published to it
//! meanwhile goes with it. When it cannot be written the queue stays with all it has, and the client may ask again; where nobody
//! would, because it goes with its connection or its last consumer or nobody has used it, the thread `queues` does.

use std::any::Any;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::vec::IntoIter;

use delivery::QueueKind;
use journal::{AppendError, AppendItem, AppendResults};
use routing::{Name, Removal};

use super::Vhost;
use super::admin::QueueError;
use super::queue::{Counts, Queue};
use super::record::{ExchangeRecord, QueueRecord};
use super::rights::Caller;
use super::ticker::Doomed;
use crate::Broker;
use crate::catalog::topic_key;
use crate::groups::now;
use crate::jobs::{NOBODY, Pending, Stage, Staged, TOGETHER_MAX, durable};
use crate::log_ends::in_one;
use crate::security::{Principal, Resource};
use crate::topic_deletion::Leftovers;

/// A deletion that has begun.
pub(crate) struct Deletion {
    queue: Arc<Queue>,
    host: Arc<Vhost>,
    /// To be written; the first of them counts.
    pub items: Vec<AppendItem>,
    /// How many messages were ready.
    ready: u64,
}

/// Queues that are to be deleted, many of them with one write each time.
pub(super) struct ManyDeletions {
    queues: Peekable<IntoIter<Arc<Queue>>>,
    /// It was looked at, and is deleted alone.
    alone: Option<Arc<Queue>>,
}

impl ManyDeletions {
    pub fn of(queues: Vec<Arc<Queue>>) -> Self {
        Self { queues: queues.into_iter().peekable(), alone: None }
    }

    /// Deletes those that are written together. On the controller's thread. False: none are left.
    ///
    /// # Errors
    /// `Append`.
    pub fn delete_some(&mut self, broker: &Arc<Broker>) -> Result<bool, QueueError> {
        let (mut items, mut begun) = (Vec::new(), Vec::new());
        while begun.len() < TOGETHER_MAX
            && let Some(queue) = self.alone.take().or_else(|| self.queues.next())
        {
            let alone = queue.may_take_exchanges(broker);
            if alone && !items.is_empty() {
                self.alone = Some(queue);
                break;
            }
            let Some(mut deletion) = broker.begin_deletion(&queue, false, false)? else { continue };
            let item = (!deletion.items.is_empty()).then_some(items.len());
            items.append(&mut deletion.items);
            begun.push((deletion, item));
            if alone {
                break;
            }
        }
        let results = if items.is_empty() { AppendResults::new() } else { broker.commit_all(0, items) };
        let (mut outcome, mut leftovers) = (Ok(()), Leftovers::default());
        for (deletion, item) in begun {
            let written = item.map_or(Ok(()), |item| durable(results.get(item)));
            outcome = outcome.and(broker.end_deletion(deletion, written, &mut leftovers).map(drop));
        }
        broker.forget(leftovers);
        outcome.map(|()| self.alone.is_some() || self.queues.peek().is_some())
    }
}

impl Queue {
    /// Is it to outlive a restart?
    pub(super) fn is_recorded(&self) -> bool {
        self.durable && self.owner.is_none()
    }

    /// Has its last consumer gone, or has nobody used it for as long as it may be?
    fn goes_by_itself(&self) -> bool {
        let own = self.dispatch.lock();
        own.machine.consumers() == 0 && (self.auto_delete || own.machine.expires_at().is_some_and(|at| at <= now()))
    }

    pub(crate) fn may_take_exchanges(&self, broker: &Broker) -> bool {
        broker.vhosts.get(&self.vhost).is_some_and(|host| host.exchanges.read().may_take_exchanges(self.id))
    }
}

impl Broker {
    /// Deletes a queue, for any caller; how many messages were ready. On the controller's thread.
    ///
    /// # Errors
    /// `InUse`, `NotEmpty`, `Append`.
    pub fn delete_queue(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, QueueError> {
        let Some(mut deletion) = self.begin_deletion(queue, if_unused, if_empty)? else { return Ok(0) };
        let items = std::mem::take(&mut deletion.items);
        let written = if items.is_empty() { Ok(()) } else { durable(self.commit_all(0, items).first()) };
        self.end_deletion_alone(deletion, written)
    }

    /// Deletes a queue, if who asks may. On the controller's thread.
    ///
    /// # Errors
    /// `Denied`, and those of [`Broker::delete_queue`].
    pub fn delete_queue_for(
        self: &Arc<Self>,
        who: &Principal,
        queue: &Arc<Queue>,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, QueueError> {
        self.check_queue_deletion(who, queue)?;
        self.delete_queue(queue, if_unused, if_empty)
    }

    /// May who asks delete it?
    ///
    /// # Errors
    /// `Denied`.
    pub fn check_queue_deletion(&self, who: &Principal, queue: &Queue) -> Result<(), QueueError> {
        // One of a virtual host that is gone is gone as well.
        let Some(vhost) = self.vhosts.get(&queue.vhost) else { return Ok(()) };
        Ok(self.check_deletable(who, &vhost, Resource::Queue(&queue.name))?)
    }

    /// Deletes a queue that goes by itself: with its connection, or with its last consumer, or because nobody has used it; then it stays if
    /// it is used again. On the controller's thread.
    pub fn delete_by_itself(self: &Arc<Self>, queue: &Arc<Queue>, with_connection: bool) {
        if !with_connection && !queue.goes_by_itself() {
            return self.run_queue(queue);
        }
        match self.delete_queue(queue, false, false) {
            // Nothing is written any more until a restart.
            Ok(_) | Err(QueueError::Append(AppendError::Stopped)) => {}
            Err(error) => {
                tracing::warn!(%error, ?queue, "queue that goes by itself: tried again");
                self.ticker.delete_later((Arc::clone(queue), with_connection));
            }
        }
    }

    /// Tries again what [`Broker::delete_by_itself`] could not do. False: the controller is too busy.
    pub(super) fn try_deletions(&self, doomed: Vec<Doomed>) -> bool {
        let work = move |broker: &Arc<Self>| {
            doomed.iter().for_each(|(queue, with_connection)| broker.delete_by_itself(queue, *with_connection));
            Box::new(()) as Box<dyn Any + Send>
        };
        self.control(NOBODY, crate::jobs::JobOwner::BROKER, Box::new(work))
    }

    /// The deletion of the queue that has a name when its turn comes, if who asks may, for the controller, which writes those that wait together. The
    /// outcome is that of [`Broker::delete_queue`]; what is not there need not be deleted.
    pub fn staged_deletion(vhost: Arc<Vhost>, name: Name, if_unused: bool, if_empty: bool, caller: Caller) -> Staged {
        Box::new(move |broker: &Arc<Self>, pending: &Pending| {
            if pending.holds(&vhost.name, &name) {
                return Stage::Wait(Self::staged_deletion(vhost, name, if_unused, if_empty, caller));
            }
            let found =
                broker.check_deletable(&caller.principal, &vhost, Resource::Queue(&name)).map_err(QueueError::from);
            let queue = match found.and_then(|()| broker.queue_for(&vhost, &name, caller.connection)) {
                Ok(queue) => queue,
                Err(QueueError::NotFound { .. }) => return Stage::Done(Box::new(Ok::<_, QueueError>(0u64))),
                Err(error) => return Stage::Done(Box::new(Err::<u64, _>(error))),
            };
            if let Err(error) = Self::check_conditions(&queue, if_unused, if_empty) {
                return Stage::Done(Box::new(Err::<u64, _>(error)));
            }
            if !pending.is_empty() && queue.may_take_exchanges(broker) {
                return Stage::Wait(Self::staged_deletion(vhost, name, if_unused, if_empty, caller));
            }
            let mut deletion = match broker.begin_deletion(&queue, if_unused, if_empty) {
                Ok(Some(deletion)) => deletion,
                other => return Stage::Done(Box::new(other.map(|_| 0u64))),
            };
            let items = std::mem::take(&mut deletion.items);
            if items.is_empty() {
                return Stage::Done(Box::new(broker.end_deletion_alone(deletion, Ok(()))));
            }
            let of = (queue.vhost.to_string(), queue.name.clone());
            let then = move |broker: &Arc<Self>, written: Result<(), AppendError>| {
                Box::new(broker.end_deletion_alone(deletion, written)) as Box<dyn Any + Send>
            };
            Stage::Write { items, of, comes: false, then: Box::new(then) }
        })
    }

    /// Do clients of RabbitMQ's protocols delete queues of this type under such conditions?
    ///
    /// # Errors
    /// `Condition`.
    pub fn check_conditions(queue: &Queue, if_unused: bool, if_empty: bool) -> Result<(), QueueError> {
        let asked = [(if_unused, "if-unused"), (if_empty, "if-empty")].into_iter().find(|(asked, _)| *asked);
        match asked.filter(|_| queue.understood().kind == QueueKind::Quorum) {
            None => Ok(()),
            Some((_, condition)) => {
                Err(QueueError::Condition { condition, queue: queue.name.clone(), vhost: queue.vhost.to_string() })
            }
        }
    }

    /// May the queue go? Its counts.
    ///
    /// # Errors
    /// `NotEmpty`, `InUse`.
    pub fn check_deletion(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<Counts, QueueError> {
        let counts = self.counts(queue);
        // As in RabbitMQ, a stream goes whoever reads it and whatever is in it, and does not count.
        let (if_unused, if_empty) = (if_unused && !queue.is_stream(), if_empty && !queue.is_stream());
        let (name, vhost) = (queue.name.clone(), queue.vhost.to_string());
        // In this order, as RabbitMQ.
        // What a transaction of Kafka's has written may be a message yet.
        let is_open = || queue.parts().any(|part| part.log().last_stable() < part.log().high_watermark());
        if if_empty && (counts.ready > 0 || is_open()) {
            return Err(QueueError::NotEmpty { queue: name, vhost });
        }
        if if_unused && counts.consumers > 0 {
            return Err(QueueError::InUse { queue: name, vhost });
        }
        Ok(counts)
    }

    /// `None`: it is deleted already.
    pub(crate) fn begin_deletion(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<Option<Deletion>, QueueError> {
        let counts = self.check_deletion(queue, if_unused, if_empty)?;
        let Some(host) = self.vhosts.get(&queue.vhost) else { return Ok(None) };
        if queue.is_dropped() {
            return Ok(None);
        }
        let removal = host.exchanges.read().queue_removal(queue.id);
        let mut own = Vec::new();
        let mut rest = self.records_of_removal(&host, &removal);
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
        Ok(Some(Deletion { queue: Arc::clone(queue), host, items, ready }))
    }

    fn end_deletion_alone(
        self: &Arc<Self>,
        deletion: Deletion,
        written: Result<(), AppendError>,
    ) -> Result<u64, QueueError> {
        let mut leftovers = Leftovers::default();
        let ready = self.end_deletion(deletion, written, &mut leftovers)?;
        self.forget(leftovers);
        Ok(ready)
    }

    /// How many messages were ready. Then [`Broker::forget`] what is left.
    pub(crate) fn end_deletion(
        self: &Arc<Self>,
        deletion: Deletion,
        written: Result<(), AppendError>,
        leftovers: &mut Leftovers,
    ) -> Result<u64, QueueError> {
        written?;
        let Deletion { queue, host, ready, .. } = deletion;
        queue.parts().for_each(|part| part.dropped.store(true, Ordering::SeqCst));
        let removal = host.exchanges.write().remove_queue(queue.id);
        host.queues.write().remove(queue.name.as_bytes());
        for part in queue.parts() {
            self.vhosts.by_id.write().remove(&part.id);
            self.end(part);
            self.vhosts.burials.forget(part);
        }
        queue.topic.set_bounded(false);
        queue.topic.set_queued(false);
        if queue.attached {
            queue.topic.set_queue(false);
            self.security.look_again();
        }
        if queue.has_kept_its_name() {
            // What connections know of entries for it holds for the next of its name no more.
            self.security.look_again();
        }
        self.drop_delays(self.close_delays(&host, &removal, &mut Vec::new()));
        if queue.attached && queue.is_stream() {
            // A share group of that name is any other.
        } else if queue.attached {
            leftovers.subscriptions.extend(self.subscriptions_of(queue.understood().group(), queue.topic.id));
        } else {
            self.catalog.remove(&queue.topic);
            match queue.is_recorded() {
                true => self.follow_ends(&queue.topic.logs()),
                false => self.end_passing(queue.log()),
            }
            self.forget_subscriptions_to(queue.topic.id);
            leftovers.offsets_of.push(Arc::clone(&queue.topic));
        }
        Ok(ready)
    }

    /// What is to be written so that what goes with a queue has no record.
    fn records_of_removal(&self, host: &Vhost, removal: &Removal) -> Vec<AppendItem> {
        let delete = |key| AppendItem::State { key, value: None };
        let mut items = Vec::new();
        for one in &removal.exchanges {
            items.extend(one.durable.then(|| delete(ExchangeRecord::key(&host.name, &one.name))));
            items.extend(self.ends_of_delays(host, &one.name));
        }
        let records = removal.bindings.iter().filter_map(|one| self.binding_record(one));
        items.extend(records.map(|record| delete(record.key(&host.name))));
        items
    }
}
