//! What changes exchanges, bindings and queues. Runs on the controller's thread, one command after the other; what is durable is so
//! before it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use delivery::{Overflow, QueueKind};
use journal::{AppendError, AppendItem};
use parking_lot::{Mutex, RwLock};
use routing::{Arguments, BindError, Bound, Declaration, Declared, DeclareError, DeleteError, Destination, Name, QueueId, Removal, RemovedDestination};
use types::{ConnectionId, Durability, LogId, PartitionIndex, TopicId};
use uuid::Uuid;

use super::arguments::{InvalidArgument, QueueArguments, is_known};
use super::dispatch::Dispatch;
use super::queue::Queue;
use super::record::{BindingRecord, ExchangeRecord, QueueRecord};
use super::{QUEUE_GROUP, Vhost, topic_name};
use crate::Broker;
use crate::catalog::{NEXT_LOG_KEY, TopicRecord, topic_key};
use crate::topic::{Topic, TopicConfig};

/// Log ids taken from the catalog at once for queues that have no record.
const LOG_BLOCK: u64 = 1000;

/// A queue to be declared.
#[derive(Clone, Debug)]
pub struct QueueDeclaration {
    /// Empty: the broker makes one up.
    pub name: Name,
    /// It outlives a restart.
    pub durable: bool,
    /// Only this connection may use it, and it goes with the connection.
    pub owner: Option<ConnectionId>,
    /// It goes with its last consumer.
    pub auto_delete: bool,
    /// See [`QueueArguments`].
    pub arguments: Arguments,
}

/// What a declaration and the queue that exists do not agree on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("inequivalent arg '{field}' for queue '{queue}' in vhost '{vhost}': received {received} but current is {current}")]
pub struct Unequal {
    /// Of the queue.
    pub queue: Name,
    /// Where it is.
    pub vhost: String,
    /// A field of the declaration, or an argument.
    pub field: String,
    /// As the declaration has it.
    pub received: String,
    /// As the queue has it.
    pub current: String,
}

/// Why nothing is done with a queue.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// No such queue.
    #[error("no queue '{queue}' in vhost '{vhost}'")]
    NotFound {
        /// As asked for.
        queue: Name,
        /// Where.
        vhost: String,
    },
    /// Another connection's.
    #[error("cannot obtain exclusive access to locked queue '{queue}' in vhost '{vhost}'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.")]
    Locked {
        /// As asked for.
        queue: Name,
        /// Where.
        vhost: String,
    },
    /// The virtual host has as many as it may.
    #[error("cannot declare queue '{queue}': queue limit in vhost '{vhost}' ({limit}) is reached")]
    TooMany {
        /// As asked for.
        queue: Name,
        /// Where.
        vhost: String,
        /// As many.
        limit: u64,
    },
    /// Only the broker gives such names.
    #[error("queue name '{0}' contains reserved prefix 'amq.*'")]
    Reserved(Name),
    /// There is one that differs.
    #[error(transparent)]
    Unequal(#[from] Box<Unequal>),
    /// An argument that is not taken.
    #[error("{}", error.text(queue, vhost))]
    Argument {
        /// Of the queue.
        queue: Name,
        /// Where.
        vhost: String,
        /// Which, and why.
        error: InvalidArgument,
    },
    /// A property that this type of queue does not have.
    #[error("invalid property '{property}' for queue '{queue}' in vhost '{vhost}'")]
    Property {
        /// Which.
        property: &'static str,
        /// Of the queue.
        queue: Name,
        /// Where.
        vhost: String,
    },
    /// A topic of that name that cannot be a queue.
    #[error("topic '{0}' has more than one partition: it cannot be a queue")]
    Partitioned(String),
    /// `if-unused`, and somebody consumes.
    #[error("queue '{queue}' in vhost '{vhost}' in use")]
    InUse {
        /// Of the queue.
        queue: Name,
        /// Where.
        vhost: String,
    },
    /// `if-empty`, and it is not.
    #[error("queue '{queue}' in vhost '{vhost}' is not empty")]
    NotEmpty {
        /// Of the queue.
        queue: Name,
        /// Where.
        vhost: String,
    },
    /// The virtual host is gone, and with it whoever asks.
    #[error("vhost '{0}' is deleted")]
    VhostDeleted(String),
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Why an exchange or a binding is not changed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Not declared.
    #[error(transparent)]
    Declare(#[from] DeclareError),
    /// Not deleted.
    #[error(transparent)]
    Delete(#[from] DeleteError),
    /// Not bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Of a queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// A binding to be made or taken away.
#[derive(Clone, Debug)]
pub struct BindingWish {
    /// The exchange it leads from.
    pub source: Name,
    /// It leads to a queue, otherwise to an exchange.
    pub to_queue: bool,
    /// Its name.
    pub destination: Name,
    /// The routing key.
    pub key: Name,
    /// The arguments.
    pub arguments: Arguments,
}

impl BindingWish {
    fn record(self) -> BindingRecord {
        let Self { source, to_queue, destination, key, arguments } = self;
        BindingRecord { source, to_queue, destination, key, arguments }
    }
}

/// A queue that exists as a declaration wants it?
fn check_equivalent(queue: &Queue, wish: &QueueDeclaration) -> Result<(), Box<Unequal>> {
    let unequal = |field: &str, received: String, current: String| {
        let (queue, vhost) = (queue.name.clone(), queue.vhost.clone());
        Err(Box::new(Unequal { queue, vhost, field: field.to_owned(), received, current }))
    };
    let flag = |field, received: bool, current: bool| {
        if received == current { Ok(()) } else { unequal(field, format!("'{received}'"), format!("'{current}'")) }
    };
    flag("durable", wish.durable, queue.durable)?;
    flag("auto_delete", wish.auto_delete, queue.auto_delete)?;
    let names = wish.arguments.fields().iter().chain(queue.arguments.fields()).map(|field| &field.name);
    for name in names.filter(|name| is_known(name)) {
        let (received, current) = (wish.arguments.get(name), queue.arguments.get(name));
        if received.map(|one| &one.value) == current.map(|one| &one.value) {
            continue;
        }
        let classic = |one: Option<&routing::Argument>| one.is_none_or(|one| one.value == routing::OwnedValue::Bytes(b"classic"[..].into()));
        if **name == *b"x-queue-type" && classic(received) && classic(current) {
            continue;
        }
        let both = received.is_some() && current.is_some();
        let shown = |one: Option<&routing::Argument>| match one {
            None => "none".to_owned(),
            Some(one) if both => format!("'{}'", one.value),
            Some(one) => format!("the value '{}' of type '{}'", one.value, one.type_name()),
        };
        return unequal(&String::from_utf8_lossy(name), shown(received), shown(current));
    }
    Ok(())
}

/// A name that nobody else has, as RabbitMQ makes them: 16 random bytes in URL-safe base64 behind a prefix.
pub fn made_up_name(prefix: &str) -> Name {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let random = Uuid::new_v4().as_u128();
    let mut name = prefix.as_bytes().to_vec();
    name.extend((0..22).map(|number| LETTERS[(random.rotate_left(6 * number) & 63) as usize]));
    Name::new(&name).expect("prefixes are short")
}

/// Settings of a queue's own topic: only what consumers say, time to live, length limits and purging remove its messages.
pub(crate) const ONLY: [(&str, &str); 3] = [("retention.ms", "-1"), ("retention.bytes", "-1"), ("cleanup.policy", "delete")];

pub(super) fn queue_overrides() -> BTreeMap<String, String> {
    ONLY.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

impl Broker {
    fn not_found(vhost: &Vhost, name: &[u8]) -> QueueError {
        QueueError::NotFound { queue: Name::new(name).expect("names come from short strings"), vhost: vhost.name.clone() }
    }

    /// The queue that a topic is, or that is attached to it.
    pub fn queue_on(&self, topic: &Topic) -> Option<Arc<Queue>> {
        self.vhosts.queue_of(topic.logs().first()?.id())
    }

    /// A queue that this connection may use.
    ///
    /// # Errors
    /// `NotFound`, `Locked`.
    pub fn queue_for(&self, vhost: &Vhost, name: &[u8], connection: ConnectionId) -> Result<Arc<Queue>, QueueError> {
        let queue = vhost.queue(name).ok_or_else(|| Self::not_found(vhost, name))?;
        match queue.owner {
            Some(owner) if owner != connection => Err(QueueError::Locked { queue: queue.name.clone(), vhost: vhost.name.clone() }),
            _ => Ok(queue),
        }
    }

    /// Declares an exchange.
    ///
    /// # Errors
    /// `Declare`, `Append`.
    pub fn declare_exchange(self: &Arc<Self>, vhost: &Vhost, declaration: Declaration<'_>) -> Result<Declared, ExchangeError> {
        vhost.check_alive()?;
        let (name, durable) = (declaration.name.clone(), declaration.durable);
        let record = ExchangeRecord {
            kind: Name::new(declaration.kind).unwrap_or_else(|_| Name::new(b"").expect("short")),
            auto_delete: declaration.auto_delete,
            internal: declaration.internal,
            arguments: declaration.arguments.clone(),
        };
        let declared = vhost.exchanges.write().declare(declaration)?;
        if declared == Declared::New {
            vhost.set_alternate(&name);
        }
        if declared == Declared::New && durable {
            let item = AppendItem::State { key: ExchangeRecord::key(&vhost.name, &name), value: Some(record.encode()) };
            if let Err(error) = self.commit(0, vec![item]) {
                let _ = vhost.exchanges.write().delete(&name, false);
                return Err(error.into());
            }
        }
        let delayed = vhost.exchanges.read().exchange(&name).is_some_and(|exchange| exchange.delayed());
        if delayed
            && vhost.delays(&name).is_none()
            && let Err(error) = self.open_delays(vhost, &name, durable)
        {
            self.delete_exchange(vhost, &name, false)?;
            return Err(error.into());
        }
        Ok(declared)
    }

    /// Deletes an exchange with its bindings.
    ///
    /// # Errors
    /// `Delete`, `Append`.
    pub fn delete_exchange(&self, vhost: &Vhost, name: &[u8], if_unused: bool) -> Result<(), ExchangeError> {
        let removal = vhost.exchanges.write().delete(name, if_unused)?;
        Ok(self.forget(vhost, removal, Vec::new())?)
    }

    /// Binds.
    ///
    /// # Errors
    /// `Bind`, `Queue`, `Append`.
    pub fn bind(&self, vhost: &Vhost, wish: BindingWish) -> Result<(), ExchangeError> {
        vhost.check_alive()?;
        let mut table = vhost.exchanges.write();
        let to = if wish.to_queue {
            Destination::Queue(table.queue(&wish.destination).ok_or_else(|| Self::not_found(vhost, &wish.destination))?)
        } else {
            Destination::Exchange(&wish.destination)
        };
        let bound = table.bind(&wish.source, to, &wish.key, &wish.arguments)?;
        drop(table);
        if bound == (Bound::New { durable: true }) {
            let record = wish.clone().record();
            let item = AppendItem::State { key: record.key(&vhost.name), value: Some(BindingRecord::encode(self.vhosts.next_binding.fetch_add(1, Ordering::SeqCst))) };
            if let Err(error) = self.commit(0, vec![item]) {
                let _ = vhost.exchanges.write().unbind(&wish.source, to, &wish.key, &wish.arguments);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Takes a binding away; one that is not there is no error.
    ///
    /// # Errors
    /// `Bind`, `Append`.
    pub fn unbind(&self, vhost: &Vhost, wish: &BindingWish) -> Result<(), ExchangeError> {
        let mut table = vhost.exchanges.write();
        let to = if wish.to_queue {
            match table.queue(&wish.destination) {
                Some(id) => Destination::Queue(id),
                None => return Ok(()),
            }
        } else {
            Destination::Exchange(&wish.destination)
        };
        let removal = table.unbind(&wish.source, to, &wish.key, &wish.arguments)?;
        drop(table);
        Ok(self.forget(vhost, removal, Vec::new())?)
    }

    /// Deletes the records of what was removed, with `more`.
    fn forget(&self, vhost: &Vhost, removal: Removal, more: Vec<Bytes>) -> Result<(), AppendError> {
        let mut keys = more;
        let delays = self.close_delays(vhost, &removal, &mut keys);
        for one in removal.exchanges.into_iter().filter(|one| one.durable) {
            keys.push(ExchangeRecord::key(&vhost.name, &one.name));
        }
        for one in removal.bindings.into_iter().filter(|one| one.durable) {
            let (to_queue, destination) = match one.destination {
                RemovedDestination::Exchange(name) => (false, name),
                RemovedDestination::Queue(id) => match self.vhosts.queue(id) {
                    Some(queue) => (true, queue.name.clone()),
                    None => continue,
                },
            };
            let key = Name::new(&one.key).expect("keys come from short strings");
            let record = BindingRecord { source: one.source, to_queue, destination, key, arguments: one.arguments };
            keys.push(record.key(&vhost.name));
        }
        if !keys.is_empty() {
            self.commit(0, keys.into_iter().map(|key| AppendItem::State { key, value: None }).collect())?;
        }
        self.drop_delays(delays);
        Ok(())
    }

    /// Declares a queue for a connection.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub fn declare_queue(self: &Arc<Self>, vhost: &Vhost, wish: QueueDeclaration, connection: ConnectionId) -> Result<Arc<Queue>, QueueError> {
        let wish = vhost.complete(wish)?;
        if !wish.name.is_empty() {
            match self.queue_for(vhost, &wish.name, connection) {
                // Whoever wants it for himself alone, or shared when it is not, is told so before anything else.
                Ok(queue) if queue.owner.is_some() != wish.owner.is_some() => {
                    return Err(QueueError::Locked { queue: queue.name.clone(), vhost: vhost.name.clone() });
                }
                Ok(queue) => {
                    check_equivalent(&queue, &wish)?;
                    self.used(&queue);
                    return Ok(queue);
                }
                Err(QueueError::NotFound { .. }) if wish.name.starts_with(b"amq.") => return Err(QueueError::Reserved(wish.name)),
                Err(QueueError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let made_up = wish.name.is_empty();
        let name = if made_up { made_up_name("amq.gen-") } else { wish.name };
        let refuse = |error| QueueError::Argument { queue: name.clone(), vhost: vhost.name.clone(), error };
        let rules = QueueArguments::new(&wish.arguments).map_err(refuse)?;
        let wrong = [(!wish.durable, "non-durable"), (wish.auto_delete, "auto-delete"), (wish.owner.is_some(), "exclusive-owner")];
        if let Some((_, property)) = wrong.into_iter().find(|(wrong, _)| *wrong && rules.kind == QueueKind::Quorum) {
            return Err(QueueError::Property { property, queue: name, vhost: vhost.name.clone() });
        }
        if let Some(limit) = vhost.queue_limit_reached() {
            return Err(QueueError::TooMany { queue: name, vhost: vhost.name.clone(), limit });
        }
        let shown = wish.durable && wish.owner.is_none() && !wish.auto_delete && !made_up;
        let known_as = topic_name(&vhost.name, &name).filter(|_| shown);
        let (topic, attached) = match known_as.as_ref().and_then(|name| self.topic(name)) {
            Some(topic) if topic.logs().len() == 1 => (topic, true),
            Some(topic) => return Err(QueueError::Partitioned(topic.name.clone())),
            None => {
                let record = |topic: &TopicRecord| QueueRecord {
                    topic: topic.id,
                    log: topic.logs[0],
                    auto_delete: wish.auto_delete,
                    hidden: known_as.is_none(),
                    attached: false,
                    arguments: wish.arguments.clone(),
                };
                let made = self.make_log(known_as.clone(), wish.durable, |topic| {
                    let (key, value) = (QueueRecord::key(&vhost.name, &name), record(topic).encode());
                    AppendItem::State { key, value: Some(value) }
                })?;
                (made, false)
            }
        };
        if attached && wish.durable {
            let log = topic.logs()[0].id();
            let record = QueueRecord { topic: topic.id, log, auto_delete: false, hidden: false, attached, arguments: wish.arguments.clone() };
            self.commit(0, vec![AppendItem::State { key: QueueRecord::key(&vhost.name, &name), value: Some(record.encode()) }])?;
        }
        let described = QueueDeclaration { name, ..wish };
        Ok(self.enter_queue(vhost, described, rules, topic, attached))
    }

    /// A log for a queue, with its record if it is durable; under a name if Kafka clients are to see it.
    pub(super) fn make_log(&self, name: Option<String>, durable: bool, record: impl FnOnce(&TopicRecord) -> AppendItem) -> Result<Arc<Topic>, AppendError> {
        let overrides = queue_overrides();
        let id = TopicId(Uuid::new_v4());
        if !durable {
            let log = self.take_log_id()?;
            let topic = TopicRecord { id, logs: vec![log], overrides };
            return Ok(self.publish_hidden(topic, Durability::Memory));
        }
        let mut next = self.next_log.lock();
        let topic = TopicRecord { id, logs: vec![LogId(*next)], overrides };
        *next += 1;
        let mut items = vec![record(&topic), AppendItem::State { key: Bytes::from_static(NEXT_LOG_KEY), value: Some(Bytes::copy_from_slice(&next.to_be_bytes())) }];
        if let Some(name) = &name {
            items.push(AppendItem::State { key: topic_key(name), value: Some(topic.encode()) });
        }
        self.commit(0, items)?;
        drop(next);
        Ok(match name {
            Some(name) => self.publish(name, topic),
            None => self.publish_hidden(topic, self.durability()),
        })
    }

    /// A new log in the journal of another one; whoever wants it after a restart says so in the catalog.
    pub(super) fn new_log_beside(&self, other: LogId, durability: Durability) -> Result<Arc<journal::Log>, AppendError> {
        let journal = self.journal_number(other);
        loop {
            let id = self.take_log_id()?;
            if self.journal_number(id) == journal {
                return Ok(self.journals[journal].create_log(id, durability));
            }
        }
    }

    /// A log id that nobody has had and nobody will have, for a log that goes with a restart.
    fn take_log_id(&self) -> Result<LogId, AppendError> {
        let mut ids = self.log_ids.lock();
        if ids.is_empty() {
            let mut next = self.next_log.lock();
            let after = *next + LOG_BLOCK;
            self.commit(0, vec![AppendItem::State { key: Bytes::from_static(NEXT_LOG_KEY), value: Some(Bytes::copy_from_slice(&after.to_be_bytes())) }])?;
            *ids = *next..after;
            *next = after;
        }
        Ok(LogId(ids.next().expect("not empty")))
    }

    /// Enters the topic of a queue that Kafka clients do not see.
    pub(super) fn publish_hidden(&self, record: TopicRecord, durability: Durability) -> Arc<Topic> {
        let config = TopicConfig { durability, ..TopicConfig::new(record.overrides, &self.config.settings, durability) };
        let logs = record.logs.iter().map(|id| self.journal_of(*id).create_log(*id, durability)).collect();
        let topic = Arc::new(Topic::new(record.id, String::new(), logs, config));
        self.catalog.insert_hidden(Arc::clone(&topic));
        topic
    }

    /// A queue comes to life.
    pub(super) fn enter_queue(self: &Arc<Self>, vhost: &Vhost, wish: QueueDeclaration, understood: QueueArguments, topic: Arc<Topic>, attached: bool) -> Arc<Queue> {
        let QueueDeclaration { name, durable, owner, auto_delete, arguments } = wish;
        let known = self.subscriptions().get(QUEUE_GROUP, topic.id, 0).is_some();
        let shared = self.queue_subscription(&topic, durable);
        // What an earlier life had may have been given to somebody, whether or not its end let that be written.
        let given = if known { shared.log().end().0 } else { shared.log().start().0 };
        shared.lock().remember_given(given);
        let id = QueueId(shared.log().id().0);
        let in_force = vhost.policies.in_force(&name, &arguments, understood);
        let understood = &in_force.understood;
        topic.set_bounded(understood.is_bounded());
        let may_refuse = AtomicBool::new(understood.overflow != Overflow::DropHead);
        let dispatch = Mutex::new(Dispatch::new(understood, auto_delete, &shared));
        let queue = Queue {
            id,
            vhost: vhost.name.clone(),
            name: name.clone(),
            durable,
            owner,
            auto_delete,
            arguments,
            in_force: RwLock::new(in_force),
            may_refuse,
            topic,
            attached,
            shared,
            dispatch,
            burials: Mutex::default(),
            dropped: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
        };
        let queue = Arc::new(queue);
        self.vhosts.by_id.write().insert(id, Arc::clone(&queue));
        vhost.queues.write().insert(name.clone(), Arc::clone(&queue));
        let added = vhost.exchanges.write().add_queue(name, id, durable);
        debug_assert!(added.is_ok(), "the controller makes queues one after the other");
        self.begin(&queue);
        queue
    }

    /// Deletes a queue; how many messages were ready.
    ///
    /// # Errors
    /// `InUse`, `NotEmpty`, `Append`.
    pub fn delete_queue(self: &Arc<Self>, queue: &Arc<Queue>, if_unused: bool, if_empty: bool) -> Result<u64, QueueError> {
        let counts = self.counts(queue);
        let (name, vhost) = (queue.name.clone(), queue.vhost.clone());
        // In this order, as RabbitMQ.
        if if_empty && counts.ready > 0 {
            return Err(QueueError::NotEmpty { queue: name, vhost });
        }
        if if_unused && counts.consumers > 0 {
            return Err(QueueError::InUse { queue: name, vhost });
        }
        let Some(host) = self.vhosts.get(&queue.vhost) else { return Ok(0) };
        if queue.dropped.swap(true, Ordering::SeqCst) {
            return Ok(0);
        }
        let removal = host.exchanges.write().remove_queue(queue.id);
        let mut keys = Vec::new();
        if queue.durable {
            keys.push(QueueRecord::key(&queue.vhost, &queue.name));
            if !queue.attached && !queue.topic.name.is_empty() {
                keys.push(topic_key(&queue.topic.name));
            }
        }
        let forgotten = self.forget(&host, removal, keys);
        host.queues.write().remove(&queue.name);
        self.vhosts.by_id.write().remove(&queue.id);
        self.end(queue);
        queue.topic.set_bounded(false);
        if queue.attached {
            let _ = self.drop_subscription(QUEUE_GROUP, queue.topic.id);
        } else {
            self.catalog.remove(&queue.topic);
            self.journal_of(queue.log().id()).drop_log(queue.log().id());
            self.drop_subscriptions_to(queue.topic.id);
        }
        forgotten?;
        Ok(counts.ready)
    }

    fn queue_subscription(&self, topic: &Arc<Topic>, durable: bool) -> Arc<crate::SharedSubscription> {
        let made = if durable {
            self.subscription(QUEUE_GROUP, topic, PartitionIndex(0), journal::Log::start)
        } else {
            self.volatile_subscription(QUEUE_GROUP, topic, PartitionIndex(0))
        };
        made.expect("a queue's topic has a log")
    }
}
