//! What all AMQP sessions share: the broker, numbers of channels, and measurements.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use broker::Broker;
use hashbrown::HashSet;
use parking_lot::Mutex;
use types::{ConnectionId, LogId, ShardId};

use crate::consumer_memory::ConsumerMemory;
use crate::letters::Letters;
use crate::metrics::GatewayMetrics;
use crate::session::pressure::HeldMemory;
use crate::unfinished::UnfinishedMemory;

/// The AMQP side of a broker.
pub struct Gateway {
    pub(crate) broker: Arc<Broker>,
    pub(crate) metrics: GatewayMetrics,
    /// From a connection's beginning to the opening of its virtual host.
    pub(crate) handshake_max: Duration,
    /// Memory of publishes that find no room.
    pub(crate) held: HeldMemory,
    /// Memory of contents and transactions that are not finished.
    pub(crate) unfinished: Arc<UnfinishedMemory>,
    /// Memory of consumers.
    pub(crate) consumers: Arc<ConsumerMemory>,
    /// The secrets of channels that consume direct replies.
    pub(crate) repliers: Mutex<HashSet<u64>>,
    next_channel: AtomicU64,
    /// By shard: who published last, and when somebody else did.
    publishers: Box<[Mutex<LastPublisher>]>,
}

/// Bytes of publishes that all connections together may hold, unless [`Gateway::set_held_max`] says otherwise.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Shards that are told apart.
const SHARDS: usize = 64;
/// A connection is alone on its shard when no other has published for this long.
const ALONE_AFTER: Duration = Duration::from_millis(1);

#[derive(Default)]
struct LastPublisher {
    last: Option<(ConnectionId, Instant)>,
    last_of_others: Option<Instant>,
}

impl Gateway {
    /// For one broker.
    pub fn new(broker: Arc<Broker>, metrics: GatewayMetrics) -> Arc<Self> {
        broker.set_undertaker(Arc::new(Letters));
        let publishers = (0..SHARDS).map(|_| Mutex::default()).collect();
        let held_max = broker.settings().int("mainstem.amqp.held.bytes").max(0) as usize;
        let handshake_max = Duration::from_millis(broker.settings().int("handshake_timeout").unsigned_abs());
        let held = HeldMemory::new(held_max, HELD_BYTES_MAX);
        let repliers = Mutex::default();
        let (unfinished, consumers) = (Arc::default(), Arc::default());
        Arc::new(Self {
            broker,
            metrics,
            handshake_max,
            held,
            unfinished,
            consumers,
            repliers,
            next_channel: AtomicU64::new(1),
            publishers,
        })
    }

    /// Measurements.
    pub fn metrics(&self) -> &GatewayMetrics {
        &self.metrics
    }

    /// Bytes of publishes that all connections together may hold while journals have no room for them.
    pub fn set_held_max(&self, bytes: usize) {
        self.held.set_max(bytes);
    }

    /// Bytes of publishes that are held.
    pub fn held_bytes(&self) -> usize {
        self.held.used()
    }

    /// Bytes that contents and transactions of all connections may take that are not finished.
    pub fn set_unfinished_max(&self, bytes: usize) {
        self.unfinished.set_max(bytes);
    }

    /// Bytes that they take.
    pub fn unfinished_bytes(&self) -> usize {
        self.unfinished.used()
    }

    /// How often a client was refused because they took as much as they may.
    pub fn unfinished_refused(&self) -> u64 {
        self.unfinished.refused()
    }

    /// Bytes that consumers of all connections may take.
    pub fn set_consumers_max(&self, bytes: usize) {
        self.consumers.set_max(bytes);
    }

    /// Bytes that they take, about.
    pub fn consumer_bytes(&self) -> usize {
        self.consumers.used()
    }

    /// How often one was refused because they took as much as they may.
    pub fn consumers_refused(&self) -> u64 {
        self.consumers.refused()
    }

    /// The readable end of a log has moved, as `shard` heard: the queue that has it gives out what there is.
    pub fn advanced(&self, log: LogId, shard: ShardId) {
        self.broker.queue_advanced(log, shard);
    }

    /// A number that no other channel has.
    pub(crate) fn next_channel(&self) -> u64 {
        self.next_channel.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that a connection publishes; true when no other of its shard does. The lock is the shard's own.
    pub(crate) fn is_alone(&self, shard: ShardId, connection: ConnectionId, now: Instant) -> bool {
        let mut publisher = self.publishers[usize::from(shard.0) % SHARDS].lock();
        if let Some((last, at)) = publisher.last.replace((connection, now))
            && last != connection
        {
            publisher.last_of_others = Some(at);
        }
        publisher.last_of_others.is_none_or(|at| now.saturating_duration_since(at) >= ALONE_AFTER)
    }
}
