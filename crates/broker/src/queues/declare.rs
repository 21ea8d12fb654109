//! Declares queues. What is durable of many declarations that wait goes to the journal in one append: a declaration says what is to be
//! written, others follow it, and it goes on when that is durable. Nobody sees the queue before.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use delivery::QueueKind;
use journal::{AppendError, AppendItem, AppendResults};
use routing::{Counted, Name};
use types::{Durability, LogId, TopicId};
use uuid::Uuid;

use super::Vhost;
use super::admin::{Life, QueueDeclaration, QueueError, Unequal, check_equivalent, made_up_name, queue_overrides};
use super::arguments::QueueArguments;
use super::names::topic_name;
use super::parts::{self, PARTS_MAX};
use super::policy_walk::Subjected;
use super::queue::Queue;
use super::record::QueueRecord;
use super::rights::Caller;
use crate::Broker;
use crate::catalog::{NEXT_LOG_KEY, TopicRecord};
use crate::jobs::{Pending, Stage, Staged};
use crate::limits::LimitKind;
use crate::log_ends::passing;
use crate::topic::Topic;

/// Where a queue is left that is its connection's own.
pub type OwnQueue = Arc<OnceLock<Arc<Queue>>>;

/// Log ids taken from the catalog at once for queues that have no record.
const LOG_BLOCK: u64 = 1000;

/// How far a declaration has come.
pub(super) enum DeclareStage {
    /// It is over.
    Done(Result<Arc<Queue>, QueueError>),
    /// This is to be written.
    Write(Vec<AppendItem>, Box<Plan>),
    /// Another declaration of that name is to be over before.
    Wait(QueueDeclaration),
}

/// A queue that is to come to life when its record is durable.
pub(super) struct Plan {
    described: QueueDeclaration,
    rules: QueueArguments,
    topic: Planned,
    /// Its arguments are in the account from now on.
    _counted: Counted,
}

enum Planned {
    /// One that was there.
    Attached(Arc<Topic>),
    /// One that is new, under a name if Kafka clients are to see it.
    New(Option<String>, TopicRecord),
}

impl Plan {
    /// The name that the queue will have.
    pub fn name(&self) -> &Name {
        &self.described.name
    }
}

impl Broker {
    /// Declares a queue, if who asks may. On the controller's thread.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub fn declare_queue(
        self: &Arc<Self>,
        vhost: &Vhost,
        wish: QueueDeclaration,
        caller: &Caller,
    ) -> Result<Arc<Queue>, QueueError> {
        match self.begin_declaration(vhost, wish, caller, &Pending::default()) {
            DeclareStage::Done(outcome) => outcome,
            DeclareStage::Write(items, plan) => {
                self.commit_with_next_log(items)?;
                self.end_declaration(vhost, *plan)
            }
            DeclareStage::Wait(wish) => Err(QueueError::Reserved(wish.name)),
        }
    }

    /// A declaration for the controller, which writes those that wait together. The outcome is that of [`Broker::declare_queue`].
    /// What is the connection's own is left at `own` as well, whether or not there still is somebody to take the outcome.
    pub fn staged_declaration(
        vhost: Arc<Vhost>,
        wish: QueueDeclaration,
        caller: Caller,
        own: Option<OwnQueue>,
    ) -> Staged {
        let connection = caller.connection;
        let leave = move |outcome: Result<Arc<Queue>, QueueError>, own: Option<OwnQueue>| {
            if let (Some(own), Ok(queue)) = (own, &outcome)
                && queue.owner == Some(connection)
            {
                own.get_or_init(|| Arc::clone(queue));
            }
            outcome
        };
        Box::new(move |broker, pending| match broker.begin_declaration(&vhost, wish, &caller, pending) {
            DeclareStage::Done(outcome) => Stage::Done(Box::new(leave(outcome, own))),
            DeclareStage::Wait(wish) => Stage::Wait(Self::staged_declaration(vhost, wish, caller, own)),
            DeclareStage::Write(items, plan) => {
                let of = (vhost.name.to_string(), plan.described.name.clone());
                let then = move |broker: &Arc<Self>, written: Result<(), AppendError>| {
                    let outcome =
                        written.map_err(QueueError::from).and_then(|()| broker.end_declaration(&vhost, *plan));
                    Box::new(leave(outcome, own)) as Box<dyn Any + Send>
                };
                Stage::Write { items, of, comes: true, then: Box::new(then) }
            }
        })
    }

    /// Commits what takes ids of logs, with the next one. Whoever takes others meanwhile waits: the number that is written never falls.
    pub(crate) fn commit_with_next_log(&self, items: Vec<AppendItem>) -> Result<(), AppendError> {
        self.commit_all_with_next_log(items).into_iter().find_map(Result::err).map_or(Ok(()), Err)
    }

    /// The same, with the outcome of each item, and behind them that of the id.
    pub(crate) fn commit_all_with_next_log(&self, mut items: Vec<AppendItem>) -> AppendResults {
        let next = self.next_log.lock();
        let value = Some(Bytes::copy_from_slice(&next.to_be_bytes()));
        items.push(AppendItem::State { key: Bytes::from_static(NEXT_LOG_KEY), value });
        self.commit_all(0, items)
    }

    pub(super) fn begin_declaration(
        self: &Arc<Self>,
        vhost: &Vhost,
        wish: QueueDeclaration,
        caller: &Caller,
        pending: &Pending,
    ) -> DeclareStage {
        let wish = match vhost.complete(wish) {
            Ok(wish) if pending.holds(&vhost.name, &wish.name) => return DeclareStage::Wait(wish),
            Ok(wish) => wish,
            Err(error) => return DeclareStage::Done(Err(error)),
        };
        match self.check_declaration(vhost, &wish, caller) {
            Ok(Some(queue)) => DeclareStage::Done(Ok(queue)),
            Ok(None) => self.plan(vhost, wish, caller, pending).unwrap_or_else(|error| DeclareStage::Done(Err(error))),
            Err(error) => DeclareStage::Done(Err(error)),
        }
    }

    /// The queue, if it is there as it is wanted.
    fn check_declaration(
        &self,
        vhost: &Vhost,
        wish: &QueueDeclaration,
        caller: &Caller,
    ) -> Result<Option<Arc<Queue>>, QueueError> {
        if wish.name.is_empty() {
            return Ok(None);
        }
        self.check_queue(&caller.principal, vhost, &wish.name)?;
        match self.queue_for(vhost, &wish.name, caller.connection) {
            // Whoever wants it for himself alone, or shared when it is not, is told so before anything else.
            Ok(queue) if queue.owner.is_some() != wish.owner.is_some() => {
                Err(QueueError::Locked { queue: queue.name.clone(), vhost: vhost.name.to_string() })
            }
            Ok(queue) => {
                check_equivalent(&queue, wish)?;
                self.used(&queue);
                self.declared_again(vhost, || Subjected::Queue(Arc::clone(&queue)));
                Ok(Some(queue))
            }
            Err(QueueError::NotFound { .. }) if wish.name.starts_with(b"amq.") => {
                Err(QueueError::Reserved(wish.name.clone()))
            }
            Err(QueueError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn plan(
        self: &Arc<Self>,
        vhost: &Vhost,
        wish: QueueDeclaration,
        caller: &Caller,
        pending: &Pending,
    ) -> Result<DeclareStage, QueueError> {
        let (made_up, who) = (wish.name.is_empty(), &caller.principal);
        let name = if made_up { made_up_name("amq.gen-") } else { wish.name.clone() };
        if made_up {
            self.check_queue(who, vhost, &name)?;
        }
        let refuse =
            |error| QueueError::Argument { queue: name.clone(), vhost: vhost.name.to_string(), error: Box::new(error) };
        let rules = QueueArguments::new(&wish.arguments).map_err(refuse)?;
        let wrong = [
            (wish.auto_delete, "auto-delete"),
            (wish.owner.is_some(), "exclusive-owner"),
            (!wish.durable, "non-durable"),
        ];
        if made_up && rules.kind != QueueKind::Classic {
            return Err(QueueError::ServerNamed(rules.kind));
        }
        if let Some((_, property)) = wrong.into_iter().find(|(wrong, _)| *wrong && rules.kind != QueueKind::Classic) {
            return Err(QueueError::Property { property, queue: name, vhost: vhost.name.to_string() });
        }
        if let Some(limit) = vhost.queue_limit_reached(pending.count(&vhost.name)) {
            self.limits().note_refusal(LimitKind::VhostQueues);
            return Err(QueueError::TooMany { queue: name, vhost: vhost.name.to_string(), limit });
        }
        let coming = pending.count_all() as u64;
        if let Err(reached) = self.enforce_limit(LimitKind::Queues, coming + 1) {
            return Err(QueueError::NodeFull { queue: name, limit: reached.limit });
        }
        let shown = wish.durable && wish.owner.is_none() && !wish.auto_delete && !made_up;
        let known_as = topic_name(&vhost.name, &name).filter(|_| shown);
        if rules.share_group.is_some() && known_as.is_none() {
            super::arguments::refuse::<()>("x-share-group", "Kafka clients do not see such a queue").map_err(refuse)?;
        }
        let there = known_as.as_ref().and_then(|name| self.topic(name));
        self.check_new_queue(who, vhost, &name, &rules, there.as_deref())?;
        if known_as.is_some() && there.is_none() {
            // Those that come need not all be topics: near the limit they are written before.
            let is_near = |kind| self.limit_use(kind).unwrap_or(0) + coming >= self.limit(kind);
            if coming > 0 && (is_near(LimitKind::Topics) || is_near(LimitKind::Partitions)) {
                return Ok(DeclareStage::Wait(wish));
            }
            let checked =
                self.enforce_limit(LimitKind::Topics, 1).and_then(|()| self.enforce_limit(LimitKind::Partitions, 1));
            checked.map_err(|reached| QueueError::Topics { queue: name.clone(), reached })?;
        }
        let weight = wish.arguments.weight();
        if weight > 0 && !self.vhosts().definitions().admits(weight) {
            return Err(QueueError::NoMemory { queue: name, vhost: vhost.name.to_string() });
        }
        let described = QueueDeclaration { name, ..wish };
        if let Some(topic) = &there {
            self.check_untaken(&vhost.name, &described.name, topic)?;
            check_topic(vhost, &described.name, &rules, topic)?;
        }
        if !described.is_recorded() {
            let record = TopicRecord {
                id: TopicId(Uuid::new_v4()),
                logs: vec![self.take_log_id()?],
                overrides: rules.overrides(),
            };
            let topic = self.publish_hidden(record, Durability::Memory);
            return Ok(DeclareStage::Done(self.enter_queue(vhost, described, rules, topic, Life::default())));
        }
        let topic = match there {
            Some(topic) => Planned::Attached(topic),
            None => {
                let record = TopicRecord {
                    id: TopicId(Uuid::new_v4()),
                    logs: vec![self.reserve_log_id()],
                    overrides: rules.overrides(),
                };
                Planned::New(known_as, record)
            }
        };
        let items = vec![topic.queue_item(&vhost.name, &described)];
        let counted = Counted::new(Arc::clone(self.vhosts().definitions()), weight);
        Ok(DeclareStage::Write(items, Box::new(Plan { described, rules, topic, _counted: counted })))
    }

    pub(super) fn end_declaration(
        self: &Arc<Self>,
        vhost: &Vhost,
        Plan { described, rules, topic, _counted }: Plan,
    ) -> Result<Arc<Queue>, QueueError> {
        let (topic, attached) = match topic {
            Planned::Attached(topic) => (topic, true),
            Planned::New(Some(name), record) => (self.publish_as(name, record, |topic| topic.set_queue(true)), false),
            Planned::New(None, record) => (self.publish_hidden(record, self.durability()), false),
        };
        self.enter_queue(vhost, described, rules, topic, Life { attached, restored: false })
    }

    /// A topic is one queue at most: its log is that queue's, with what of it is done.
    pub(super) fn check_untaken(&self, vhost: &str, queue: &Name, topic: &Topic) -> Result<(), QueueError> {
        match self.queue_on(topic) {
            Some(_) => {
                Err(QueueError::TopicTaken { queue: queue.clone(), vhost: vhost.to_owned(), topic: topic.name.clone() })
            }
            None => Ok(()),
        }
    }

    /// A log of which somebody but a queue has the record, as a topic that Kafka clients do not see.
    pub(super) fn make_log(
        &self,
        durable: bool,
        record: impl FnOnce(&TopicRecord) -> AppendItem,
    ) -> Result<Arc<Topic>, AppendError> {
        let new = |log| TopicRecord { id: TopicId(Uuid::new_v4()), logs: vec![log], overrides: queue_overrides() };
        if !durable {
            return Ok(self.publish_hidden(new(self.take_log_id()?), Durability::Memory));
        }
        let topic = new(self.reserve_log_id());
        self.commit_with_next_log(vec![record(&topic)])?;
        Ok(self.publish_hidden(topic, self.durability()))
    }

    /// A new log in the journal of another one; whoever wants it after a restart says so in the catalog.
    pub(super) fn new_log_beside(
        &self,
        other: LogId,
        durability: Durability,
    ) -> Result<Arc<journal::Log>, AppendError> {
        let journal = self.journal_number(other);
        loop {
            let id = self.take_log_id()?;
            if self.journal_number(id) == journal {
                return Ok(self.journals[journal].create_log(id, durability));
            }
        }
    }

    /// A log id for a queue whose record is not written yet.
    fn reserve_log_id(&self) -> LogId {
        let mut next = self.next_log.lock();
        *next += 1;
        LogId(*next - 1)
    }

    /// A log id that nobody has had and nobody will have, for a log that goes with a restart.
    fn take_log_id(&self) -> Result<LogId, AppendError> {
        let mut ids = self.log_ids.lock();
        if ids.is_empty() {
            let range = {
                let mut next = self.next_log.lock();
                *next += LOG_BLOCK;
                *next - LOG_BLOCK..*next
            };
            self.commit_with_next_log(Vec::new())?;
            *ids = range;
        }
        Ok(passing(ids.next().expect("not empty")))
    }
}

/// Can the topic be the queue?
fn check_topic(vhost: &Vhost, queue: &Name, rules: &QueueArguments, topic: &Topic) -> Result<(), QueueError> {
    if topic.logs().len() > PARTS_MAX {
        return Err(QueueError::Partitioned(topic.name.clone()));
    }
    let refuse =
        |error| QueueError::Argument { queue: queue.clone(), vhost: vhost.name.to_string(), error: Box::new(error) };
    parts::check(rules, &topic.name, topic.logs().len()).map_err(refuse)?;
    match rules.stream.differs(topic.config().retention) {
        None => Ok(()),
        Some((field, received, current)) => {
            let (queue, vhost, field, received) =
                (queue.clone(), vhost.name.to_string(), field.to_owned(), format!("'{received}'"));
            Err(Box::new(Unequal { queue, vhost, field, received, current }).into())
        }
    }
}

impl Planned {
    /// The record of the queue.
    fn queue_item(&self, vhost: &str, queue: &QueueDeclaration) -> AppendItem {
        let (topic, log, hidden, attached) = match self {
            Self::Attached(topic) => (topic.id, topic.logs()[0].id(), false, true),
            Self::New(name, record) => (record.id, record.logs[0], name.is_none(), false),
        };
        let (auto_delete, arguments) = (queue.auto_delete, queue.arguments.clone());
        let record = QueueRecord { topic, log, auto_delete, hidden, attached, own_name: true, arguments };
        AppendItem::State { key: QueueRecord::key(vhost, &queue.name), value: Some(record.encode()) }
    }
}
