//! What changes exchanges, bindings and queues. Runs on the controller's thread, one command after the other; what is durable is so
//! before it is answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use delivery::{Overflow, QueueKind};
use journal::{AppendError, AppendItem};
use parking_lot::{Mutex, RwLock};
use routing::{
    Arguments, BindError, Bound, Declaration, DeclareError, Declared, DeleteError, Destination, InvalidBinding, Kind,
    Name, QueueId,
};
use types::{ConnectionId, Durability, PartitionIndex};
use uuid::Uuid;

use super::arguments::{InvalidArgument, QueueArguments, is_known};
use super::dispatch::Dispatch;
use super::parts::PARTS_MAX;
use super::policies::Matched;
use super::policy_walk::Subjected;
use super::queue::{OwnArguments, Queue};
use super::record::{BindingRecord, ExchangeRecord};
use super::rights::Caller;
use super::stream::{Stream, shown_age};
use super::{QUEUE_GROUP, Vhost, VhostDeleted};
use crate::Broker;
use crate::catalog::TopicRecord;
use crate::limits::{LimitKind, LimitReached};
use crate::security::{Denial, Principal};
use crate::topic::{Topic, TopicConfig};

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
#[error(
    "inequivalent arg '{field}' for queue '{queue}' in vhost '{vhost}': received {received} but current is {current}"
)]
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
    #[error(
        "cannot obtain exclusive access to locked queue '{queue}' in vhost '{vhost}'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration."
    )]
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
    /// The node has as many as it may.
    #[error("cannot declare queue '{queue}': queue limit in cluster ({limit}) is reached")]
    NodeFull {
        /// As asked for.
        queue: Name,
        /// As many.
        limit: u64,
    },
    /// Exchanges, bindings and arguments take as much memory as they may.
    #[error(
        "cannot declare queue '{queue}' in vhost '{vhost}': no memory is left for exchanges, bindings and arguments"
    )]
    NoMemory {
        /// As asked for.
        queue: Name,
        /// Where.
        vhost: String,
    },
    /// The node may not have the topic that the queue would be.
    #[error("cannot declare queue '{queue}': {reached}")]
    Topics {
        /// As asked for.
        queue: Name,
        /// Which limit.
        reached: LimitReached,
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
        error: Box<InvalidArgument>,
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
    /// A type of queue whose names are not made up.
    #[error("Cannot declare a server-named queue for type rabbit_{}_queue", super::kind_name(*.0))]
    ServerNamed(QueueKind),
    /// A topic of that name is another queue: one that has kept the name that an earlier release gave it.
    #[error("cannot declare queue '{queue}' in vhost '{vhost}': topic '{topic}' is another queue's")]
    TopicTaken {
        /// As asked for.
        queue: Name,
        /// Where.
        vhost: String,
        /// Its name.
        topic: String,
    },
    /// A topic of that name that cannot be a queue.
    #[error("topic '{0}' has more than {PARTS_MAX} partitions: it cannot be a queue")]
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
    /// A condition that queues of its type are not deleted under.
    #[error(
        "cannot delete queue '{queue}' in vhost '{vhost}'. queue.delete operations with {condition} flag set are not supported by quorum queues"
    )]
    Condition {
        /// `if-unused` or `if-empty`.
        condition: &'static str,
        /// Of the queue.
        queue: Name,
        /// Where.
        vhost: String,
    },
    /// The virtual host is gone, and with it the caller.
    #[error(transparent)]
    VhostDeleted(#[from] VhostDeleted),
    /// Who asks may not.
    #[error(transparent)]
    Denied(#[from] Box<Denial>),
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
    /// The node has as many as it may.
    #[error("cannot declare exchange '{exchange}' in vhost '{vhost}': exchange limit of {limit} is reached")]
    TooMany {
        /// As asked for.
        exchange: Name,
        /// Where.
        vhost: String,
        /// As many.
        limit: u64,
    },
    /// Exchanges, bindings and arguments take as much memory as they may.
    #[error(
        "cannot {what} exchange '{exchange}' in vhost '{vhost}': no memory is left for exchanges, bindings and arguments"
    )]
    NoMemory {
        /// `declare`, or `bind to`.
        what: &'static str,
        /// As asked for.
        exchange: Name,
        /// Where.
        vhost: String,
    },
    /// Of a queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Who asks may not.
    #[error(transparent)]
    Denied(#[from] Box<Denial>),
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

impl From<VhostDeleted> for ExchangeError {
    fn from(error: VhostDeleted) -> Self {
        Self::Queue(error.into())
    }
}

impl QueueDeclaration {
    /// Is there a record of it? What goes with its connection goes with a restart, durable or not.
    pub(super) fn is_recorded(&self) -> bool {
        self.durable && self.owner.is_none()
    }
}

impl BindingWish {
    fn record(self) -> BindingRecord {
        let Self { source, to_queue, destination, key, arguments } = self;
        BindingRecord { source, to_queue, destination, key, arguments }
    }
}

/// How a queue comes to life.
#[derive(Clone, Copy, Default)]
pub(super) struct Life {
    /// Its topic was there before.
    pub attached: bool,
    /// It was there before a restart.
    pub restored: bool,
}

/// A queue that exists as a declaration wants it?
pub(super) fn check_equivalent(queue: &Queue, wish: &QueueDeclaration) -> Result<(), Box<Unequal>> {
    let unequal = |field: &str, received: String, current: String| {
        let (queue, vhost) = (queue.name.clone(), queue.vhost.to_string());
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
        if let (Some(one), Some(other)) = (received.and_then(shown_age), current.and_then(shown_age))
            && one == other
        {
            continue;
        }
        if **name == *b"x-queue-type" {
            // None is the usual one.
            let kind =
                |one: Option<&routing::Argument>| one.map_or_else(|| "classic".to_owned(), |one| one.value.to_string());
            let (received, current) = (kind(received), kind(current));
            if received == current {
                continue;
            }
            return unequal("x-queue-type", format!("'{received}'"), format!("'{current}'"));
        }
        let both = received.is_some() && current.is_some();
        let shown = |one: Option<&routing::Argument>| match one {
            None => "none".to_owned(),
            Some(one) => {
                let value = shown_age(one).unwrap_or_else(|| one.value.to_string());
                if both { format!("'{value}'") } else { format!("the value '{value}' of type '{}'", one.type_name()) }
            }
        };
        return unequal(&String::from_utf8_lossy(name), shown(received), shown(current));
    }
    Ok(())
}

/// An exchange that was begun is not written.
pub(super) fn undo_exchange(vhost: &Vhost, name: &[u8]) {
    let _ = vhost.exchanges.write().delete(name, false);
}

/// A binding that was begun is not written.
pub(super) fn undo_binding(vhost: &Vhost, wish: &BindingWish) {
    let mut table = vhost.exchanges.write();
    let to = match wish.to_queue {
        true => table.queue(&wish.destination).map(Destination::Queue),
        false => Some(Destination::Exchange(&wish.destination)),
    };
    if let Some(to) = to {
        table.remove_binding(&wish.source, to, &wish.key, &wish.arguments);
    }
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
pub(crate) const ONLY: [(&str, &str); 3] =
    [("retention.ms", "-1"), ("retention.bytes", "-1"), ("cleanup.policy", "delete")];

pub(super) fn queue_overrides() -> BTreeMap<String, String> {
    ONLY.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

impl Broker {
    pub(super) fn not_found(vhost: &Vhost, name: &[u8]) -> QueueError {
        QueueError::NotFound {
            queue: Name::new(name).expect("names come from short strings"),
            vhost: vhost.name.to_string(),
        }
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
            Some(owner) if owner != connection => {
                Err(QueueError::Locked { queue: queue.name.clone(), vhost: vhost.name.to_string() })
            }
            _ => Ok(queue),
        }
    }

    /// Declares an exchange, if who asks may. On the controller's thread.
    ///
    /// # Errors
    /// `Declare`, `Denied`, `TooMany`, `Append`.
    pub fn declare_exchange(
        self: &Arc<Self>,
        vhost: &Vhost,
        declaration: Declaration<'_>,
        who: &Principal,
    ) -> Result<Declared, ExchangeError> {
        let (name, durable) = (declaration.name.clone(), declaration.durable);
        let (declared, item) = self.begin_exchange(vhost, declaration, who)?;
        if let Some(item) = item
            && let Err(error) = self.commit(0, vec![item])
        {
            undo_exchange(vhost, &name);
            return Err(error.into());
        }
        let delayed = vhost.exchanges.read().exchange(&name).is_some_and(|exchange| exchange.delayed());
        if delayed
            && vhost.delays(&name).is_none()
            && let Err(error) = self.open_delays(vhost, &name, durable)
        {
            self.delete_exchange(vhost, &name, false, &Principal::broker())?;
            return Err(error.into());
        }
        Ok(declared)
    }

    /// Declares an exchange in memory; what is to be written of it, of which it is undone if that does not succeed.
    pub(super) fn begin_exchange(
        &self,
        vhost: &Vhost,
        declaration: Declaration<'_>,
        who: &Principal,
    ) -> Result<(Declared, Option<AppendItem>), ExchangeError> {
        vhost.check_alive()?;
        self.check_exchange(who, vhost, &declaration.name)?;
        let (name, durable) = (declaration.name.clone(), declaration.durable);
        let record = ExchangeRecord {
            kind: Name::new(declaration.kind).unwrap_or_else(|_| Name::new(b"").expect("short")),
            auto_delete: declaration.auto_delete,
            internal: declaration.internal,
            arguments: declaration.arguments.clone(),
        };
        let is_new = vhost.exchanges.read().exchange(&name).is_none();
        let too_many = |LimitReached { limit, .. }| ExchangeError::TooMany {
            exchange: name.clone(),
            vhost: vhost.name.to_string(),
            limit,
        };
        if is_new && !name.starts_with(b"amq.") {
            self.check_new_exchange(who, vhost, &name, &declaration.arguments)?;
        }
        if is_new {
            self.enforce_limit(LimitKind::Exchanges, 1).map_err(too_many)?;
            if !self.vhosts.definitions.admits(declaration.weight()) {
                return Err(ExchangeError::NoMemory { what: "declare", exchange: name, vhost: vhost.name.to_string() });
            }
        }
        let declared = vhost.exchanges.write().declare(declaration)?;
        if declared != Declared::New {
            self.declared_again(vhost, || Subjected::Exchange(name.clone()));
        } else if let Some(search) = vhost.begin_alternate(&name) {
            self.search_policies(vhost, Subjected::Exchange(name.clone()), search);
        }
        let item = || AppendItem::State { key: ExchangeRecord::key(&vhost.name, &name), value: Some(record.encode()) };
        Ok((declared, (declared == Declared::New && durable).then(item)))
    }

    /// Binds, if who asks may. On the controller's thread.
    ///
    /// # Errors
    /// `Bind`, `Denied`, `Queue`, `Append`.
    pub fn bind(&self, vhost: &Vhost, wish: BindingWish, caller: &Caller) -> Result<(), ExchangeError> {
        let Some(item) = self.begin_binding(vhost, &wish, caller)? else { return Ok(()) };
        self.commit(0, vec![item]).map_err(|error| {
            undo_binding(vhost, &wish);
            error.into()
        })
    }

    /// Binds in memory; what is to be written of it, of which it is undone if that does not succeed.
    pub(super) fn begin_binding(
        &self,
        vhost: &Vhost,
        wish: &BindingWish,
        caller: &Caller,
    ) -> Result<Option<AppendItem>, ExchangeError> {
        vhost.check_alive()?;
        self.check_binding(caller, vhost, wish)?;
        Self::check_local(vhost, wish)?;
        let mut table = vhost.exchanges.write();
        let to = if wish.to_queue {
            match table.queue(&wish.destination) {
                Some(id) => Destination::Queue(id),
                // Of two that are not there the exchange is named.
                None if table.exchange(&wish.source).is_none() => {
                    return Err(BindError::NoExchange(wish.source.to_string()).into());
                }
                None => return Err(Self::not_found(vhost, &wish.destination).into()),
            }
        } else {
            Destination::Exchange(&wish.destination)
        };
        let weight = table.weight_of_new(&wish.source, to, &wish.key, &wish.arguments);
        if weight > 0 && !self.vhosts.definitions.admits(weight) {
            return Err(ExchangeError::NoMemory {
                what: "bind to",
                exchange: wish.source.clone(),
                vhost: vhost.name.to_string(),
            });
        }
        let bound = table.bind(&wish.source, to, &wish.key, &wish.arguments)?;
        drop(table);
        let item = || {
            let number = self.vhosts.next_binding.fetch_add(1, Ordering::SeqCst);
            AppendItem::State {
                key: wish.clone().record().key(&vhost.name),
                value: Some(BindingRecord::encode(number)),
            }
        };
        Ok((bound == (Bound::New { durable: true })).then(item))
    }

    /// A local random exchange leads to classic queues.
    fn check_local(vhost: &Vhost, wish: &BindingWish) -> Result<(), BindError> {
        let local =
            vhost.exchanges.read().exchange(&wish.source).is_some_and(|exchange| exchange.kind() == Kind::LocalRandom);
        let kind = if local && wish.to_queue {
            vhost.queue(&wish.destination).map(|queue| queue.understood().kind)
        } else {
            None
        };
        match kind {
            Some(QueueKind::Quorum) => Err(InvalidBinding::QueueType("rabbit_quorum_queue").into()),
            Some(QueueKind::Stream) => Err(InvalidBinding::QueueType("rabbit_stream_queue").into()),
            Some(QueueKind::Classic) | None => Ok(()),
        }
    }

    /// Enters the topic of a queue that Kafka clients do not see.
    pub(super) fn publish_hidden(&self, record: TopicRecord, durability: Durability) -> Arc<Topic> {
        let logs = record.logs.iter().map(|id| self.journal_of(*id).create_log(*id, durability)).collect();
        let topic =
            Arc::new(Topic::new(record.id, String::new(), logs, self.topic_config(record.overrides, durability)));
        self.catalog.insert_hidden(Arc::clone(&topic));
        topic
    }

    /// The configuration of a topic; all queues' own topics of a class share one.
    pub(crate) fn topic_config(&self, overrides: BTreeMap<String, String>, durability: Durability) -> Arc<TopicConfig> {
        let new = |overrides| Arc::new(TopicConfig::new(overrides, &self.live_settings(), durability));
        if overrides.len() != ONLY.len()
            || !ONLY.iter().all(|(name, value)| overrides.get(*name).is_some_and(|set| set == value))
        {
            return new(overrides);
        }
        let mut known = self.vhosts.configs.lock();
        if let Some((_, config)) = known.iter().find(|(class, _)| *class == durability) {
            return Arc::clone(config);
        }
        let config = new(overrides);
        known.push((durability, Arc::clone(&config)));
        config
    }

    /// A queue comes to life.
    ///
    /// # Errors
    /// `TopicTaken`.
    pub(super) fn enter_queue(
        self: &Arc<Self>,
        vhost: &Vhost,
        wish: QueueDeclaration,
        understood: QueueArguments,
        topic: Arc<Topic>,
        life: Life,
    ) -> Result<Arc<Queue>, QueueError> {
        self.check_untaken(&vhost.name, &wish.name, &topic)?;
        let recorded = wish.is_recorded();
        let QueueDeclaration { name, durable, owner, auto_delete, arguments } = wish;
        let stream = (understood.kind == QueueKind::Stream).then(Arc::<Stream>::default);
        let Life { attached, restored } = life;
        let (in_force, rest) = match restored {
            true => vhost.policies.in_force_at_start(&name, &arguments, understood),
            false => vhost.policies.begin_in_force(&name, &arguments, understood),
        };
        let understood = &in_force.understood;
        topic.set_bounded(understood.is_bounded());
        topic.set_queued(stream.is_none());
        if !attached || !self.security.acls_enforced() {
            topic.set_queue(true);
            if attached {
                // Who was let in to the topic need not be to the queue.
                self.security.look_again();
            }
        }
        let make = |partition: PartitionIndex, others: Box<[Arc<Queue>]>| {
            let shared = match &stream {
                Some(_) => {
                    self.subscriptions().unlisted(QUEUE_GROUP, &topic, partition).expect("a topic has its partitions")
                }
                None => self.remembered_subscription(understood.group(), &topic, partition, recorded, restored),
            };
            Arc::new(Queue {
                id: QueueId(shared.log().id().0),
                vhost: Arc::clone(&vhost.name),
                name: name.clone(),
                durable,
                owner,
                auto_delete,
                arguments: OwnArguments::new(arguments.clone(), partition.0 == 0, &self.vhosts.definitions),
                in_force: RwLock::new(Arc::clone(&in_force)),
                may_refuse: AtomicBool::new(understood.overflow != Overflow::DropHead),
                line: OnceLock::new(),
                topic: Arc::clone(&topic),
                attached,
                dispatch: Mutex::new(Dispatch::new(&in_force, auto_delete, &shared)),
                shared,
                burials: Mutex::default(),
                stream: stream.clone(),
                others,
                on_the_way: Default::default(),
                publishers: Default::default(),
                dropped: AtomicBool::new(false),
                dirty: AtomicBool::new(false),
            })
        };
        let others =
            (1..topic.logs().len()).map(|partition| make(PartitionIndex(partition as u32), Box::default())).collect();
        let queue = make(PartitionIndex(0), others);
        queue.parts().for_each(|part| self.vhosts.by_id.write().insert(Arc::clone(part)));
        vhost.queues.write().insert(Arc::clone(&queue));
        let added = vhost.exchanges.write().add_queue(name, queue.id, recorded);
        debug_assert!(added.is_ok(), "the controller makes queues one after the other");
        if !in_force.matched.is(&Matched::default()) {
            self.limit_stream(&queue, &in_force.understood.stream);
        }
        if let Some(rest) = rest {
            let subject = Subjected::Queue(Arc::clone(&queue));
            if restored {
                self.search_policies_at_start(vhost, subject, rest)
            } else {
                self.search_policies(vhost, subject, rest)
            }
        }
        if attached && !restored {
            self.search_attached(&queue);
        }
        queue.parts().for_each(|part| self.begin(part));
        Ok(queue)
    }

    /// The subscription of a queue, which knows what may have been given to somebody: what an earlier life had, whether or not its end
    /// let that be written.
    fn remembered_subscription(
        &self,
        group: &str,
        topic: &Arc<Topic>,
        partition: PartitionIndex,
        durable: bool,
        restored: bool,
    ) -> Arc<crate::SharedSubscription> {
        let known = restored || self.subscriptions().get(group, topic.id, partition.0).is_some();
        let shared =
            self.queue_subscription(group, topic, partition, durable).expect("a queue's topic has its partitions");
        let given = if known { shared.log().end().0 } else { shared.log().start().0 };
        shared.lock().remember_given(given);
        self.subscriptions().set_of_queue(&shared);
        shared
    }
}
