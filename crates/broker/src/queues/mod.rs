//! Virtual hosts: exchanges, bindings and queues, neutral of the protocol that made them.
//!
//! A queue is a log with one shared subscription. Look-ups and routing are immediate; what changes the catalog runs on the controller's
//! thread and is durable before it is answered. What a connection alone uses (exclusive queues) and what is declared not durable has
//! no record, and is gone after a restart.

mod admin;
mod admission;
mod arguments;
mod batches;
mod burials;
mod claims;
mod consumers;
mod dead;
mod declare;
mod delays;
mod delete;
mod dispatch;
mod erlang;
mod faces;
mod gaps;
mod gathered;
mod laggards;
mod look;
mod names;
mod on_the_way;
mod opening;
mod parameters;
mod parts;
mod policies;
mod policy_keys;
mod policy_pattern;
mod policy_rights;
mod policy_search;
mod policy_walk;
mod queue;
mod record;
mod removals;
mod restore;
mod rights;
mod searches;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
mod ticker;
mod traits;
mod unfinished;
mod unsettled_memory;
mod vhosts;
mod window;
mod window_memory;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use routing::{DefinitionMemory, Exchanges, Name, QueueId};
use types::{Durability, LogId};

use crate::arc_table::ArcTable;
use crate::topic::TopicConfig;

pub(crate) use admin::ONLY;
pub use admin::{BindingWish, ExchangeError, QueueDeclaration, QueueError, Unequal, made_up_name};
pub use admission::{Admission, QueueFull};
pub use arguments::{InvalidArgument, QueueArguments, kind_name};
use burials::BurialsUnderWay;
pub use consumers::{
    ChannelFlow, ConsumeError, Consuming, Deliveries, Delivery, Gone, GoneReason, Outcome, Settlement,
};
pub(crate) use dead::TheUndertaker;
pub use dead::{Address, Letter, Undertaker};
pub use declare::OwnQueue;
pub use delays::{DELAY_HEADER, Delay, Delays};
pub(crate) use delays::{DELAYS_KEY, DelayService, SHARD as DELAYS_SHARD};
pub(crate) use delete::Deletion;
pub(crate) use faces::MembersTally;
pub use faces::Sharing;
pub use gathered::{Gathered, Gathering};
pub use look::{ChannelMode, ChannelNotes, ChannelTally, ConsumerLook, QueueTally};
pub use on_the_way::OnTheWay;
pub use parameters::{ParameterError, Parameters, VhostSeat};
pub use parts::Part;
pub(crate) use parts::partition_of;
pub use policies::{Matched, Policies, Policy, PolicyScope, PolicyWish, Understood};
pub use queue::{Counts, Got, Queue};
pub(crate) use record::QUEUES_KEY;
pub(crate) use restore::FoundQueues;
pub use rights::Caller;
use searches::Searches;
pub use stream::{StreamFilter, StreamRead, StreamReading, StreamStart, age_ms};
pub(crate) use ticker::Ticker;
pub use traits::{MessageTraits, TRAITS_HEADER};
use unsettled_memory::UnsettledMemory;
pub use vhosts::{VhostDeleted, VhostMetadata};
pub(crate) use vhosts::{VhostEmptying, is_queue_type};
use window_memory::WindowMemory;

/// The virtual host that is always there.
pub const DEFAULT_VHOST: &str = "/";
/// The group under which the subscription of a queue is known to share groups, if its declaration names no other (`x-share-group`).
pub const QUEUE_GROUP: &str = "amqp.queue";

/// A name space of exchanges and queues.
pub struct Vhost {
    name: Arc<str>,
    exchanges: Exchanges,
    queues: RwLock<ArcTable<Queue, [u8]>>,
    metadata: RwLock<Arc<VhostMetadata>>,
    deleted: AtomicBool,
    /// By exchange.
    delays: RwLock<HashMap<Name, Arc<Delays>>>,
    policies: Policies,
    parameters: Parameters,
}

impl Vhost {
    fn new(name: &str, memory: &Arc<DefinitionMemory>, policies: &Arc<DefinitionMemory>) -> Self {
        let (policies, parameters, delays) =
            (Policies::counted(Arc::clone(policies)), Parameters::default(), RwLock::default());
        let (exchanges, metadata, deleted) =
            (Exchanges::counted(Arc::clone(memory)), RwLock::default(), AtomicBool::new(false));
        let queues = RwLock::new(ArcTable::new(|queue: &Queue| queue.name().as_bytes()));
        Self { name: name.into(), exchanges, queues, policies, parameters, metadata, deleted, delays }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its exchanges and bindings.
    pub fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    /// A queue by name.
    pub fn queue(&self, name: &[u8]) -> Option<Arc<Queue>> {
        self.queues.read().get(name).cloned()
    }

    /// What an exchange that delays has delayed.
    pub fn delays(&self, exchange: &[u8]) -> Option<Arc<Delays>> {
        self.delays.read().get(exchange).cloned()
    }

    /// All queues, by name.
    pub fn queues(&self) -> Vec<Arc<Queue>> {
        let mut all: Vec<_> = self.queues.read().values().cloned().collect();
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all
    }
}

/// All virtual hosts of the node, and all queues by id.
pub struct Vhosts {
    by_name: RwLock<HashMap<String, Arc<Vhost>>>,
    by_id: RwLock<ArcTable<Queue, QueueId>>,
    /// Memory of exchanges, bindings, and arguments of queues.
    definitions: Arc<DefinitionMemory>,
    /// Memory of policies.
    policies: Arc<DefinitionMemory>,
    /// Number of the next durable binding.
    next_binding: AtomicU64,
    /// Configurations of queues' own topics, by class.
    pub(crate) configs: Mutex<Vec<(Durability, Arc<TopicConfig>)>>,
    /// Of what queues have read and not given out.
    windows: Arc<WindowMemory>,
    /// Of messages that channels have not settled.
    unsettled: Arc<UnsettledMemory>,
    /// Parameters of the broker, by name.
    global: RwLock<BTreeMap<String, serde_json::Value>>,
    burials: BurialsUnderWay,
    /// Tries of dead messages for whose copies no segment had room.
    too_large_letters: AtomicU64,
    searches: Searches,
    walks: Mutex<policy_walk::WalkQueue>,
}

impl Default for Vhosts {
    fn default() -> Self {
        let (definitions, policies) = (Arc::default(), Arc::default());
        let first = (DEFAULT_VHOST.to_owned(), Arc::new(Vhost::new(DEFAULT_VHOST, &definitions, &policies)));
        Self {
            definitions,
            policies,
            by_name: RwLock::new(HashMap::from_iter([first])),
            by_id: RwLock::new(ArcTable::new(|queue| &queue.id)),
            next_binding: AtomicU64::new(0),
            configs: Mutex::default(),
            windows: Arc::default(),
            unsettled: Arc::default(),
            global: RwLock::default(),
            burials: BurialsUnderWay::default(),
            too_large_letters: AtomicU64::default(),
            searches: Searches::default(),
            walks: Mutex::default(),
        }
    }
}

impl Vhosts {
    /// Memory of exchanges, bindings, and arguments of queues.
    pub fn definitions(&self) -> &Arc<DefinitionMemory> {
        &self.definitions
    }

    /// Memory of policies.
    pub fn policy_memory(&self) -> &Arc<DefinitionMemory> {
        &self.policies
    }

    /// A virtual host by name.
    pub fn get(&self, name: &str) -> Option<Arc<Vhost>> {
        self.by_name.read().get(name).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Vhost>> {
        let mut all: Vec<_> = self.by_name.read().values().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    pub(crate) fn or_new(&self, name: &str) -> Arc<Vhost> {
        Arc::clone(
            self.by_name
                .write()
                .entry_ref(name)
                .or_insert_with(|| Arc::new(Vhost::new(name, &self.definitions, &self.policies))),
        )
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.by_name.read().len()
    }

    /// Queues of all of them.
    pub(crate) fn queue_count(&self) -> usize {
        self.by_name.read().values().map(|vhost| vhost.queues.read().len()).sum()
    }

    /// Exchanges of all of them.
    pub(crate) fn exchange_count(&self) -> usize {
        self.by_name.read().values().map(|vhost| vhost.exchanges.read().exchange_count()).sum()
    }

    /// A queue by id, which is that of its log.
    pub fn queue(&self, id: QueueId) -> Option<Arc<Queue>> {
        self.by_id.read().get(&id).cloned()
    }

    /// Memory that may be kept between turns for what queues have read and not given out.
    pub fn set_window_bytes_max(&self, bytes: usize) {
        self.windows.set_max(bytes);
    }

    /// What is kept so.
    pub fn window_bytes(&self) -> usize {
        self.windows.used()
    }

    /// Memory of messages that channels have and have not settled.
    pub fn set_unsettled_bytes_max(&self, bytes: usize) {
        self.unsettled.set_max(bytes);
    }

    /// What is reserved of it.
    pub fn unsettled_bytes(&self) -> usize {
        self.unsettled.used()
    }

    /// How often a channel was given nothing more because there was none.
    pub fn unsettled_short(&self) -> u64 {
        self.unsettled.short()
    }

    /// The queue that has this log.
    pub fn queue_of(&self, log: LogId) -> Option<Arc<Queue>> {
        self.queue(QueueId(log.0))
    }
}
