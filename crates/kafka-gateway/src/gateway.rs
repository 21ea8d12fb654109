//! What all sessions share: the broker, how listeners are advertised, fetch sessions, measurements.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use broker::{Broker, MemoryShare};
use kafka_wire::ITEMS_MAX;

use crate::fetch_sessions::FetchSessions;
use crate::group_of::Asked;
use crate::long_polls::LongPolls;
use crate::metrics::GatewayMetrics;
use crate::pinned::{MemoryPressure, Pinned};
use crate::principal_rules::PrincipalRules;
use crate::share_sessions::ShareSessions;

/// What clients are told to connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertise {
    /// `None`: the address that the client connected to.
    pub host: Option<String>,
    /// `None`: the port that the client connected to.
    pub port: Option<u16>,
}

impl Advertise {
    /// Host and port for a client that is connected to `local`.
    pub(crate) fn resolve(&self, local: SocketAddr) -> (String, i32) {
        let host = self.host.clone().unwrap_or_else(|| local.ip().to_canonical().to_string());
        (host, i32::from(self.port.unwrap_or(local.port())))
    }
}

/// Share sessions of all members together, as Kafka's default of `group.share.max.share.sessions`.
const SHARE_SESSIONS_MAX: usize = 2000;

/// A request may have an item for so many bytes of the memory budget: one at a time may have more than its part of that.
const BUDGET_OF_ITEM: usize = 1 << 10;

/// The Kafka side of a broker.
pub struct Gateway {
    pub(crate) broker: Arc<Broker>,
    pub(crate) metrics: GatewayMetrics,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) share_sessions: ShareSessions,
    /// Members that are to look for their coordinator.
    pub(crate) asked: Asked,
    /// Limits taken from the settings once.
    pub(crate) frame_bytes_max: usize,
    pub(crate) fetch_bytes_max: usize,
    /// Who shows a certificate.
    pub(crate) principal_rules: PrincipalRules,
    /// Memory of answers that clients have not read.
    pub(crate) pinned: Arc<Pinned>,
    /// Memory of fetches that wait for records.
    pub(crate) long_polls: LongPolls,
    /// Items that a request may have.
    items_max: AtomicUsize,
}

impl Gateway {
    /// For one broker. Answers that clients have not read hold at most about `pinned_bytes_max`, and fetches that wait half as much.
    ///
    /// # Panics
    /// When `ssl.principal.mapping.rules` has not been checked.
    pub fn new(broker: Arc<Broker>, metrics: GatewayMetrics, pinned_bytes_max: usize) -> Arc<Self> {
        let int = |name| broker.settings().int(name).max(0) as usize;
        let pinned = Pinned::new(pinned_bytes_max);
        // Those who ask why somebody is slow want to know how much memory answers hold.
        let held = Arc::clone(&pinned);
        broker.waits().set_answer_memory(MemoryShare { used: Box::new(move || held.used()), max: pinned_bytes_max });
        Arc::new(Self {
            fetch_sessions: FetchSessions::new(int("max.incremental.fetch.session.cache.slots")),
            share_sessions: ShareSessions::new(SHARE_SESSIONS_MAX),
            asked: Asked::default(),
            frame_bytes_max: int("socket.request.max.bytes"),
            fetch_bytes_max: int("fetch.max.bytes").min(pinned.answer_max()),
            principal_rules: PrincipalRules::parse(broker.settings().text("ssl.principal.mapping.rules").0)
                .expect("checked at the start"),
            pinned,
            long_polls: LongPolls::new(pinned_bytes_max / 2),
            items_max: AtomicUsize::new(ITEMS_MAX),
            broker,
            metrics,
        })
    }

    /// Bounds the items of a request by the memory budget.
    pub fn bound_items(&self, budget: usize) {
        self.items_max.store((budget / BUDGET_OF_ITEM).min(ITEMS_MAX), Ordering::Relaxed);
    }

    /// Items that a request may have: entries of lists and tagged fields.
    pub(crate) fn items_max(&self) -> usize {
        self.items_max.load(Ordering::Relaxed)
    }

    /// The broker.
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// Measurements.
    pub fn metrics(&self) -> &GatewayMetrics {
        &self.metrics
    }

    /// Answers that clients have not read hold at most about so much from now on.
    pub fn set_pinned_max(&self, bytes: usize) {
        self.pinned.set_max(bytes);
    }

    /// Bytes of memory held by answers that clients have not read.
    pub fn pinned_bytes(&self) -> usize {
        self.pinned.used()
    }

    /// Bytes of memory held by fetches of many partitions that wait.
    pub fn long_poll_bytes(&self) -> usize {
        self.long_polls.used()
    }

    /// How much of the memory for answers is held by clients that do not read.
    pub fn memory_pressure(&self) -> MemoryPressure {
        self.pinned.pressure()
    }

    /// Largest request.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }
}
