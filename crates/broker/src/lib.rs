//! The broker API, neutral of protocols: topics, appends, reads, groups, configuration. Gateways name this
//! crate and nothing below it; it sits on one or more journals.
//!
//! * Look-ups ([`Broker::topic`], …) are immediate and take no lock across I/O.
//! * Appends and reads of the tail go straight to a journal.
//! * What blocks runs as a job ([`Broker::control`], [`Broker::read_history`]) and answers by mailbox.

mod aborted;
mod admin;
mod arc_table;
mod browse;
mod catalog;
mod change_batch;
mod clients;
mod connections;
mod dead_letters;
mod dynamic;
mod expressions;
mod filters;
mod group_config;
mod group_offsets;
mod group_progress;
mod group_reset;
mod groups;
mod internal_topics;
mod jobs;
mod lane;
mod limits;
mod log_ends;
mod log_names;
mod mailbox;
mod overrides;
mod queues;
mod quotas;
mod read;
mod read_ahead;
mod security;
mod settings;
mod share_rules;
mod sizes;
mod subscriptions;
mod topic;
mod topic_deletion;
mod transactions;
mod unpacking;
mod unsent;
mod vouched;
mod waits;
mod watches;
mod why;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hashbrown::HashMap;
use journal::{Append, AppendError, AppendItem, AppendResults, EventSink, JournalEvent};
use parking_lot::{Condvar, Mutex, ReentrantMutex};
use types::{Clock, ConnectionId, Durability, LogId, NodeId, ShardId, TopicId};

pub use aborted::aborted;
pub use admin::{AlterError, CreateError, CreateTopic, PartitionsError, TOPIC_NAME_BYTES_MAX, check_topic_name};
pub use browse::{NewRecord, Page, PublishError, Published};
pub use change_batch::{ChangeBatch, VhostError};
pub use clients::{ClientConnection, ClientSaid, Clients};
pub use connections::{Churn, Connected, ConnectionDetails, Connections, Count, node_name};
pub use dynamic::{DYNAMIC, SettingScope, SettingsChange};
pub use expressions::{EXPRESSION_BYTES_MAX, EXPRESSION_TEXT_MAX, Expression, Matching};
pub use filter::Filter;
pub use filters::{FilterCounts, Filters, GroupFilter, Let, Passed, Room, SharedFilter, UnpackRoom};
pub use group_config::{DEAD_LETTER_TOPIC, GROUP, GroupChange, GroupConfig, GroupValue, ShareStart};
pub use group_offsets::{CommitRefused, OffsetsRefused};
pub use group_progress::{GroupLag, GroupProgress};
pub use group_reset::{GoOn, ResetError};
pub use groups::{GroupReply, GroupTold, Groups, Heard, NotDurable, now as steady_ms};
pub use jobs::{AfterWrite, JobOwner, NOBODY, Pending, Stage, Staged, Turns, Work};
pub use journal::{
    AbortedTransaction, Appended, ColdData, ColdWant, HISTORY_BYTES_MAX, Journal, JournalStatus, Log, ReadError,
    ReplyTo, Retention, SegmentLook, TailRead,
};
/// The journal's vocabulary for appends, as gateways use it.
pub mod append {
    pub use journal::{Append, AppendError, AppendItem, AppendResults, Appended};
}
pub use limits::{LimitKind, LimitReached, Limits, OwnLimit};
pub use log_names::log_names;
pub use mailbox::{Event, Mailbox, Reply, SocketPoll, SocketsPolled};
pub use queues::{
    Address, Admission, BindingWish, Caller, ChannelFlow, ChannelMode, ChannelNotes, ChannelTally, ConsumeError,
    ConsumerLook, Consuming, Counts, DEFAULT_VHOST, DELAY_HEADER, Delay, Delays, Deliveries, Delivery, ExchangeError,
    Gone, GoneReason, Got, InvalidArgument, Letter, Matched, MessageTraits, Outcome, ParameterError, Parameters,
    Policies, Policy, PolicyScope, PolicyWish, QUEUE_GROUP, Queue, QueueArguments, QueueDeclaration, QueueError,
    QueueFull, QueueTally, Settlement, Sharing, TRAITS_HEADER, Understood, Undertaker, Unequal, Vhost, VhostDeleted,
    VhostMetadata, VhostSeat, Vhosts, kind_name, made_up_name,
};
pub use queues::{
    Gathered, Gathering, OnTheWay, OwnQueue, Part, StreamFilter, StreamRead, StreamReading, StreamStart, age_ms,
};
pub use quotas::{
    ANONYMOUS_NAME, Account, AlterQuotaError, ClientQuotas, InvalidQuota, Lag, Laggard, Laggards, Limit, QuotaChange,
    QuotaEntity, QuotaFilter, QuotaKey, QuotaMatch, QuotaName, QuotaSubject, QuotaUse, QuotaValues, Quotas, Supposed,
    Throttle, Throttled,
};
pub use read_ahead::{Ahead, AheadWant, HoldAhead};
pub use security::{
    ACLS_MAX, ANONYMOUS, Acl, AclAnswers, AclError, AclFilter, AclOperation, AclPattern, AclPatternFilter,
    AclPermission, AclResource, AuditLine, CLUSTER, Credentials, Crowd, Denial, Dismissed, EVERYBODY, Full, GUEST,
    HashAlgorithm, InvalidHash, InvalidKeys, InvalidPattern, InvalidScram, LoginOutcome, NoChannel, PasswordHash,
    PasswordWish, Pattern, Permission, Permissions, Principal, QueueRights, Refused, Resource, Rule,
    SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN, ScramChange, ScramCredential, ScramCredentials, ScramError,
    ScramExchange, ScramMechanism, ScramRefused, ScramWish, Seat, Seats, Security, SecurityError, Setter, Subject,
    TOKEN_KEYS_MAX, TokenKeys, TokenLogin, TokenRefusal, TokenRefused, Tokens, TopicPermission, TopicPermissions, User,
    UserLimits, UserWish, VhostDeletion, VhostWish, Via, WILDCARD, place_of,
};
pub use settings::{
    BROKER, Class, Kind, RETENTION, Setting, SettingError, Settings, TOPIC, distance, find, nearest, retention_in_ms,
};
pub use share_rules::ShareRules;
pub use subscriptions::{
    Acknowledged, Acknowledgement, NotReset, NotWritten, ShareEvent, SharedSubscription, Subscriptions,
};
pub use topic::{Source, Topic, TopicConfig, TopicQuotas, broker_name, effective};
pub use transactions::{Told, Transactions};
pub use unpacking::{Unpack, UnpackCounts, Unpacking};
pub use waits::{About, Cause, Causes, MemoryShare, ThreadTime, WaitBook, Waits};
pub use watches::Watches;
pub use why::{Why, WhyConnection, WhyReason, WhySubject};

use catalog::{Catalog, NEXT_LOG_KEY, NEXT_PRODUCER_KEY, TOPIC_KEY, TopicRecord};
use group_config::{GROUP_CONFIG_KEY, GroupConfigs};
use internal_topics::InternalTopics;
use jobs::{Job, JobQueue, Task};
use log_ends::{DROPS_KEY, ENDS_KEY};
use mailbox::Mailboxes;

/// Shard numbers from here on are those of threads that append for themselves: 57 delays, 58 archiver, 59 subscriptions, 60 transactions, 61
/// groups and transactions, 62 the broker, 63 the keeper.
const SHARDS_END: ShardId = ShardId(SHARDS_MAX as u16);
/// Network threads there may be.
pub const SHARDS_MAX: usize = 57;
/// The shard number under which the broker itself appends.
const OWN_SHARD: ShardId = ShardId(62);
/// Producer ids taken from the catalog at once.
const PRODUCER_BLOCK: u64 = 1000;

/// What a broker is opened with.
pub struct BrokerConfig {
    /// Told to clients; the same for the life of the data.
    pub cluster_id: String,
    /// This node.
    pub node_id: NodeId,
    /// In force.
    pub settings: Settings,
    /// Of topics that do not say.
    pub durability: Durability,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
}

/// The catalog in the journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BrokerOpenError {
    /// A record of another version, or damaged.
    #[error("catalog record of topic {name:?} is not readable by this release")]
    Topic {
        /// Whose.
        name: String,
    },
    /// A record of another version, or damaged. Were it passed over, somebody might come in who may not.
    #[error("catalog record {key:?} of users, virtual hosts or permissions is not readable by this release")]
    Security {
        /// Of the record.
        key: String,
    },
    /// A record of another version, or damaged.
    #[error("catalog record {key:?} of quotas is not readable by this release")]
    Quota {
        /// Of the record.
        key: String,
    },
    /// A record of another version, or damaged.
    #[error("catalog record {key:?} of logs that end is not readable by this release")]
    Ends {
        /// Of the record.
        key: String,
    },
    /// The record of settings that were changed while the broker ran is of another version, or damaged.
    #[error("catalog record of settings is not readable by this release")]
    Settings,
    /// What belongs to which queue was left open by an earlier release, and cannot be written.
    #[error("queues of an earlier release that had one topic cannot be told apart: {0}")]
    Queues(append::AppendError),
    /// Records of a topic are not there.
    #[error("journal {number}: {error}")]
    Journal {
        /// Of the journal, from 0.
        number: usize,
        /// What is missing.
        error: journal::OpenError,
    },
}

/// One node's broker.
pub struct Broker {
    config: BrokerConfig,
    journals: Vec<Arc<Journal>>,
    catalog: Arc<Catalog>,
    next_log: Mutex<u64>,
    producer_ids: Mutex<std::ops::Range<u64>>,
    next_producer: AtomicU64,
    mailboxes: Mailboxes,
    controller: JobQueue,
    cold: JobQueue,
    /// Dead letters to be written.
    letters: JobQueue,
    /// For who copies those that were packed.
    unpacked_letters: ReentrantMutex<()>,
    /// Passwords to be verified.
    logins: security::Logins,
    /// Batches to be looked into.
    unpacking: Unpacking,
    security: Security,
    own: Arc<OwnSink>,
    lane: Arc<lane::Lane>,
    groups: Groups,
    group_configs: GroupConfigs,
    filters: Filters,
    quotas: Quotas,
    waits: WaitBook,
    internal_topics: InternalTopics,
    transactions: Transactions,
    subscriptions: Subscriptions,
    vhosts: Vhosts,
    connections: Connections,
    clients: Clients,
    live: dynamic::Live,
    limits: Limits,
    ticker: Arc<queues::Ticker>,
    delays: Arc<queues::DelayService>,
    undertaker: queues::TheUndertaker,
    ends: log_ends::Ends,
    /// Ids for logs that have no record.
    log_ids: Mutex<std::ops::Range<u64>>,
    /// By journal.
    vouched: Vec<vouched::VouchedSince>,
}

/// Receives the outcomes of the broker's own appends.
#[derive(Default)]
struct OwnSink {
    done: Mutex<HashMap<u64, AppendResults>>,
    arrives: Condvar,
    next_token: AtomicU64,
}

impl EventSink for OwnSink {
    fn deliver(&self, events: &mut Vec<JournalEvent>) {
        let mut done = self.done.lock();
        for event in events.drain(..) {
            if let JournalEvent::Appended { to, results } = event {
                done.insert(to.token, results);
            }
        }
        self.arrives.notify_all();
    }
}

impl Broker {
    /// Takes over recovered journals: reads catalog and groups from the state of journal 0.
    ///
    /// # Errors
    /// When the catalog is not readable, or records of a log that is in use are missing.
    pub fn open(config: BrokerConfig, journals: Vec<Arc<Journal>>) -> Result<Arc<Self>, BrokerOpenError> {
        let (broker, state, settled) = Self::assemble(config, journals);
        broker.listen();
        let mut queues = broker.restore(state, &settled)?;
        broker.write_claims(&mut queues).map_err(BrokerOpenError::Queues)?;
        broker.write_vouched();
        broker.resume_transactions();
        let broker = Arc::new(broker);
        broker.restore_queues(queues);
        broker.forget_offsets_left_over();
        Ok(broker)
    }

    /// Would [`Broker::open`] take these journals, which nobody writes ([`journal::rehearse`])? Nothing is resumed. In memory is meanwhile what a
    /// broker has of topics, groups and subscriptions.
    ///
    /// # Errors
    /// As [`Broker::open`].
    pub fn rehearse(config: BrokerConfig, journals: Vec<Arc<Journal>>) -> Result<(), BrokerOpenError> {
        let (broker, state, settled) = Self::assemble(config, journals);
        broker.restore(state, &settled).map(drop)
    }

    /// From now on it hears what becomes of its own appends.
    fn listen(&self) {
        for journal in &self.journals {
            journal.add_sink(subscriptions::SHARD, self.subscriptions.sink());
            journal.add_sink(OWN_SHARD, Arc::clone(&self.own) as Arc<dyn EventSink>);
            journal.add_sink(transactions::SHARD, self.transactions.sink());
            journal.add_sink(queues::DELAYS_SHARD, Arc::clone(&self.delays) as Arc<dyn EventSink>);
        }
        self.journals[0].add_sink(lane::SHARD, Arc::clone(&self.lane) as Arc<dyn EventSink>);
    }

    /// A broker without anything in it, the keyed state of all its journals, and which of them end logs by entries.
    fn assemble(config: BrokerConfig, journals: Vec<Arc<Journal>>) -> (Self, Vec<(Bytes, Bytes)>, Vec<bool>) {
        let own = Arc::new(OwnSink::default());
        let lane = Arc::new(lane::Lane::default());
        let transactions =
            Transactions::new(&config.settings, journals[0].item_bytes_max(), Arc::clone(lane.transactions()));
        let mailboxes = Mailboxes::default();
        let subscriptions = Subscriptions::new(mailboxes.clone(), &journals);
        let (mut state, mut settled, mut vouched) = (Vec::new(), Vec::new(), Vec::new());
        for journal in &journals {
            let own = journal.take_state();
            settled.push(own.iter().any(|(key, _)| key == DROPS_KEY));
            vouched.push(vouched::VouchedSince::find(journal, &own));
            state.extend(own);
        }
        let catalog = Arc::new(Catalog::default());
        let groups = Groups::new(
            &config.settings,
            expressions::Expressions::new(Arc::clone(&catalog)),
            Arc::clone(lane.groups()),
        );
        subscriptions.looked_after_by(Arc::clone(lane.groups()));
        let group_configs = GroupConfigs::new(&config.settings);
        let security = Security::new(&config.settings);
        let quotas = Quotas::new(&config.settings);
        let live = dynamic::Live::new(&config.settings);
        let limits = Limits::new(&config.settings);
        let unpacking = Unpacking::new(&config.settings);
        let delays = queues::DelayService::new(Arc::clone(&config.clock));
        let broker = Self {
            config,
            journals,
            catalog,
            next_log: Mutex::new(1),
            producer_ids: Mutex::new(0..0),
            next_producer: AtomicU64::new(0),
            mailboxes: mailboxes.clone(),
            subscriptions,
            controller: JobQueue::default(),
            cold: JobQueue::default(),
            letters: JobQueue::default(),
            unpacked_letters: ReentrantMutex::default(),
            logins: security::Logins::default(),
            unpacking,
            security,
            own,
            lane,
            groups,
            group_configs,
            filters: Filters::default(),
            quotas,
            waits: WaitBook::default(),
            internal_topics: InternalTopics::default(),
            transactions,
            vhosts: Vhosts::default(),
            connections: Connections::default(),
            clients: Clients::default(),
            live,
            limits,
            ticker: Arc::default(),
            delays,
            undertaker: queues::TheUndertaker::default(),
            ends: log_ends::Ends::default(),
            log_ids: Mutex::new(0..0),
            vouched,
        };
        (broker, state, settled)
    }

    /// `settled`: journals whose logs end by entries.
    fn restore(&self, state: Vec<(Bytes, Bytes)>, settled: &[bool]) -> Result<queues::FoundQueues, BrokerOpenError> {
        let number = |value: &[u8]| value.try_into().map(u64::from_be_bytes).unwrap_or(0);
        let (mut topics, mut ends) = (Vec::new(), log_ends::Found::default());
        let (mut live, mut shared, mut queues) =
            (hashbrown::HashSet::new(), subscriptions::Found::default(), queues::FoundQueues::default());
        for (key, value) in state {
            match key.first() {
                Some(&TOPIC_KEY) => {
                    let name = String::from_utf8_lossy(&key[1..]).into_owned();
                    let record = TopicRecord::decode(&value).ok_or(BrokerOpenError::Topic { name: name.clone() })?;
                    live.extend(record.logs.iter().copied());
                    topics.push((name, record));
                }
                _ if key == DROPS_KEY || key == vouched::VOUCHED_KEY => {}
                Some(&ENDS_KEY) if !ends.take(&key, &value) => {
                    return Err(BrokerOpenError::Ends { key: key.escape_ascii().to_string() });
                }
                Some(&ENDS_KEY) => {}
                _ if key == NEXT_LOG_KEY => *self.next_log.lock() = number(&value),
                _ if key == dynamic::SETTINGS_KEY || key == dynamic::CLUSTER_SETTINGS_KEY => {
                    let scope = if key == dynamic::SETTINGS_KEY { SettingScope::Node } else { SettingScope::Cluster };
                    if !self.restore_settings(scope, &value) {
                        return Err(BrokerOpenError::Settings);
                    }
                }
                _ if key == NEXT_PRODUCER_KEY => self.next_producer.store(number(&value), Ordering::Relaxed),
                Some(&security::SECURITY_KEY) => self.restore_security(&key, &value)?,
                Some(&quotas::QUOTAS_KEY) if !self.restore_quota(&key, &value) => {
                    return Err(BrokerOpenError::Quota { key: key.escape_ascii().to_string() });
                }
                Some(&quotas::QUOTAS_KEY) => {}
                Some(&queues::QUEUES_KEY | &queues::DELAYS_KEY) => queues.take(&key, &value),
                Some(&GROUP_CONFIG_KEY) => self.restore_group_config(&key, &value),
                _ if self.transactions.restore(&key, &value) || shared.take(&key, &value) => {}
                _ => self.groups.restore(&key, &value),
            }
        }
        self.settle_settings();
        queues.settle(&topics, &mut self.next_log.lock());
        live.extend(queues.own_logs());
        self.restore_ends(ends, &live, settled)?;
        for (name, record) in topics {
            self.publish(name, record);
        }
        self.restore_own_topics(&queues);
        self.restore_subscriptions(shared);
        self.groups.resume();
        Ok(queues)
    }

    /// Enters a topic that is durable into memory.
    fn publish(&self, name: String, record: TopicRecord) -> Arc<Topic> {
        self.publish_as(name, record, |_| {})
    }

    /// The same; `is` says what it is before anybody sees it.
    fn publish_as(&self, name: String, record: TopicRecord, is: impl FnOnce(&Topic)) -> Arc<Topic> {
        let config = self.topic_config(record.overrides, self.config.durability);
        let logs = record.logs.iter().map(|id| self.journal_of(*id).create_log(*id, config.durability)).collect();
        let topic = Arc::new(Topic::new(record.id, name, logs, config));
        self.note_topic_quotas(&topic, false);
        is(&topic);
        self.catalog.insert(Arc::clone(&topic));
        topic
    }

    /// Starts the threads of controller, cold reads, dead letters, logins, unpacking, groups and transactions; they end with [`Broker::shutdown`].
    pub fn start(self: &Arc<Self>) -> Vec<std::thread::JoinHandle<()>> {
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread at start")
        };
        let mut threads = Vec::new();
        let broker = Arc::clone(self);
        threads.push(spawn("controller", Box::new(move || broker.controller.run(&broker))));
        self.schedule_ends();
        self.go_on_deleting_vhosts();
        for number in 0..2 {
            let broker = Arc::clone(self);
            let body = move || {
                jobs::lower_priority();
                broker.cold.run(&broker);
            };
            threads.push(spawn(&format!("cold-read-{number}"), Box::new(body)));
            let broker = Arc::clone(self);
            threads.push(spawn(&format!("letters-{number}"), Box::new(move || broker.letters.run(&broker))));
            let broker = Arc::clone(self);
            let body = move || {
                jobs::lower_priority();
                broker.logins.run(&broker);
            };
            threads.push(spawn(&format!("login-{number}"), Box::new(body)));
        }
        for number in 0..unpacking::THREADS {
            let broker = Arc::clone(self);
            let body = move || {
                jobs::lower_priority();
                broker.unpacking.run(&broker);
            };
            threads.push(spawn(&format!("unpack-{number}"), Box::new(body)));
        }
        let broker = Arc::clone(self);
        threads.push(spawn("groups", Box::new(move || broker.groups.run(&broker))));
        let broker = Arc::clone(self);
        threads.push(spawn("transactions", Box::new(move || broker.transactions.run(&broker))));
        let broker = Arc::clone(self);
        threads.push(spawn("queues", Box::new(move || broker.ticker.run(&broker))));
        let broker = Arc::clone(self);
        threads.push(spawn("delays", Box::new(move || broker.delays.run(&broker))));
        threads
    }

    /// Ends the threads; the journals are the caller's.
    pub fn shutdown(&self) {
        self.controller.close();
        self.cold.close();
        self.letters.close();
        self.logins.close();
        self.unpacking.close();
        self.groups.close();
        self.transactions.close();
        self.ticker.close();
        self.delays.close();
    }

    /// Told to clients.
    pub fn cluster_id(&self) -> &str {
        &self.config.cluster_id
    }

    /// This node.
    pub fn node_id(&self) -> NodeId {
        self.config.node_id
    }

    /// As the broker was started with. Those of [`DYNAMIC`] that are in force are in [`Broker::live_settings`].
    pub fn settings(&self) -> &Settings {
        &self.config.settings
    }

    /// Of topics that do not say.
    pub fn durability(&self) -> Durability {
        self.config.durability
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.config.clock.now_ms()
    }

    /// The consumer groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Where groups and transactions append.
    pub(crate) fn lane(&self) -> &lane::Lane {
        &self.lane
    }

    /// Filters of groups.
    pub fn filters(&self) -> &Filters {
        &self.filters
    }

    /// What connections wait for.
    pub fn waits(&self) -> &WaitBook {
        &self.waits
    }

    pub(crate) fn group_configs(&self) -> &GroupConfigs {
        &self.group_configs
    }

    /// The transactions.
    pub fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// The subscriptions that consumers share.
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// Users and permissions.
    pub fn security(&self) -> &Security {
        &self.security
    }

    /// Exchanges and queues.
    pub fn vhosts(&self) -> &Vhosts {
        &self.vhosts
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.catalog.by_name(name)
    }

    /// A topic by id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.catalog.by_id(id)
    }

    /// All topics, by name.
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        self.catalog.all()
    }

    /// The state of all topics: rises with every one that is created, deleted or enlarged.
    pub fn topics_version(&self) -> u64 {
        self.catalog.version()
    }

    /// How many topics there are …
    pub fn topic_count(&self) -> usize {
        self.catalog.topic_count()
    }

    /// … and partitions of theirs.
    pub fn partition_count(&self) -> usize {
        self.catalog.partition_count()
    }

    /// All journals, by number.
    pub fn journals(&self) -> &[Arc<Journal>] {
        &self.journals
    }

    /// Number of the journal that holds a log.
    pub fn journal_number(&self, log: LogId) -> usize {
        (log.0 % self.journals.len() as u64) as usize
    }

    /// The journal that holds a log.
    pub fn journal_of(&self, log: LogId) -> &Arc<Journal> {
        &self.journals[self.journal_number(log)]
    }

    /// Gives a shard its mailbox.
    pub fn add_shard(&self, shard: ShardId, mailbox: Arc<Mailbox>) {
        assert!(shard < SHARDS_END, "at most {SHARDS_END} shards");
        for journal in &self.journals {
            journal.add_sink(shard, Arc::clone(&mailbox) as Arc<dyn EventSink>);
        }
        self.mailboxes.add(shard, mailbox);
    }

    /// Hands a result to the connection that waits for it.
    pub(crate) fn reply(&self, to: ReplyTo, reply: Reply) {
        self.mailboxes.push(to.shard, Event::Reply { to, reply });
    }

    /// Says something to another connection, as [`Reply::Done`]; one that is gone hears nothing.
    pub fn tell(&self, to: ReplyTo, what: Box<dyn std::any::Any + Send>) {
        self.reply(to, Reply::Done(what));
    }

    /// Runs administrative work, that of one asker in order; what it returns arrives as [`Reply::Done`]. False: too busy.
    pub fn control(&self, to: ReplyTo, of: JobOwner, work: Work) -> bool {
        self.controller.push(Job { to, of, task: Task::Work(work) })
    }

    /// Are changes taken, as far as there is room? Otherwise the broker ends.
    pub fn takes_changes(&self) -> bool {
        !self.controller.is_closed()
    }

    /// As [`Broker::control`], for work that is done in parts.
    pub fn control_in_turns(&self, to: ReplyTo, of: JobOwner, turns: Turns) -> bool {
        self.controller.push(Job { to, of, task: Task::Turns(turns) })
    }

    /// As [`Broker::control`], for work that writes together with others'.
    pub fn control_staged(&self, to: ReplyTo, of: JobOwner, staged: Staged) -> bool {
        self.controller.push(Job { to, of, task: Task::Staged(staged) })
    }

    /// As [`Broker::control`] for what is bounded by what there is of other things, and of which nobody hears. It is not done once the broker ends.
    pub fn control_in_any_case(&self, of: JobOwner, work: Work) {
        self.controller.push_always(Job { to: NOBODY, of, task: Task::Work(work) });
    }

    /// What waits for the controller may take so many bytes.
    pub fn set_control_bytes_max(&self, bytes: usize) {
        self.controller.set_bytes_max(bytes);
    }

    /// Bytes that it takes, about.
    pub fn control_bytes(&self) -> usize {
        self.controller.bytes()
    }

    /// Runs work that reads history from disk; what it returns arrives as [`Reply::Done`]. False: too busy.
    pub fn read_history(&self, to: ReplyTo, of: JobOwner, work: Work) -> bool {
        self.cold.push(Job { to, of, task: Task::Work(work) })
    }

    /// Runs work that writes dead letters, of which nobody hears. Somebody may wait for them who has no patience with readers of history.
    /// How many wait is bounded by what is dead: a queue has one, a subscription of a group those of what its members may have. After the end
    /// of the broker nothing is run.
    fn write_letters(&self, work: Work) {
        self.letters.push_always(Job { to: NOBODY, of: JobOwner::BROKER, task: Task::Work(work) });
    }

    /// Appends to a journal and waits until it is durable. Not on a shard's thread.
    fn commit(&self, journal: usize, items: Vec<AppendItem>) -> Result<(), AppendError> {
        self.commit_all(journal, items).into_iter().find_map(Result::err).map_or(Ok(()), Err)
    }

    /// The same, and where each item is.
    fn commit_all(&self, journal: usize, items: Vec<AppendItem>) -> AppendResults {
        self.commit_by(journal, items, Journal::append)
    }

    /// The same as [`Broker::commit`] for what takes the place of other data.
    fn commit_from_reserve(&self, journal: usize, items: Vec<AppendItem>) -> Result<(), AppendError> {
        self.commit_by(journal, items, Journal::append_from_reserve)
            .into_iter()
            .find_map(Result::err)
            .map_or(Ok(()), Err)
    }

    fn commit_by(
        &self,
        journal: usize,
        items: Vec<AppendItem>,
        take: fn(&Journal, Append) -> Result<(), Append>,
    ) -> AppendResults {
        let token = self.own.next_token.fetch_add(1, Ordering::Relaxed);
        let to = ReplyTo { shard: OWN_SHARD, connection: ConnectionId(token), token };
        let mut append = Append { to, items, acknowledge: true };
        while let Err(refused) = take(&self.journals[journal], append) {
            append = refused;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let mut done = self.own.done.lock();
        loop {
            if let Some(results) = done.remove(&token) {
                return results;
            }
            self.own.arrives.wait(&mut done);
        }
    }

    /// A producer id that nobody has had; `None`: ask the controller for a block.
    pub fn take_producer_id(&self) -> Option<i64> {
        self.producer_ids.lock().next().map(|id| id as i64)
    }

    /// Reserves a block of producer ids durably and takes the first. On the controller's thread.
    ///
    /// # Errors
    /// When the journal does not take it.
    pub fn reserve_producer_ids(&self) -> Result<i64, AppendError> {
        if let Some(id) = self.take_producer_id() {
            return Ok(id);
        }
        let first = self.next_producer.load(Ordering::Relaxed);
        let next = first + PRODUCER_BLOCK;
        let value = Some(Bytes::copy_from_slice(&next.to_be_bytes()));
        self.commit(0, vec![AppendItem::State { key: Bytes::from_static(NEXT_PRODUCER_KEY), value }])?;
        self.next_producer.store(next, Ordering::Relaxed);
        *self.producer_ids.lock() = first + 1..next;
        Ok(first as i64)
    }

    /// The settings of a topic in force, in the table's order.
    pub fn describe_topic(&self, overrides: &BTreeMap<String, String>) -> Vec<(&'static Setting, String, Source)> {
        self.describe_topic_settings(overrides, |_| true)
    }

    /// The same of those that are wanted, by name; nothing is made of others.
    pub fn describe_topic_settings(
        &self,
        overrides: &BTreeMap<String, String>,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<(&'static Setting, String, Source)> {
        let settings = self.live_settings();
        TOPIC
            .iter()
            .filter(|row| wanted(row.name))
            .map(|row| {
                let (value, source) = effective(overrides, &settings, self.config.durability, row.name);
                (row, value, source)
            })
            .collect()
    }
}
