//! RabbitMQ's HTTP API for clients and tools, under `/api`: one file a resource, each with its table of routes. Documented in
//! `docs/management.md`.
//!
//! A request is authenticated before its body is read, and answered on a thread that may wait; changes run on the broker's controller.
//! Answers, status codes and the words of errors are RabbitMQ 4.3's.
//!
//! Source: RabbitMQ 4.3, `rabbit_mgmt_dispatcher` and `rabbit_mgmt_wm_*`; asked of the real one (`conformance/amqp/management`).

mod answer;
pub(crate) mod authority;
mod bindings;
mod call;
mod channels;
mod connections;
mod consumers;
mod definitions;
mod exchanges;
mod health;
mod listing;
mod messages;
mod nodes;
mod overview;
mod parameters;
mod permissions;
mod policies;
pub(crate) mod queues;
pub(crate) mod rates;
mod route;
mod server;
mod users;
pub(crate) mod values;
mod vhosts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use broker::{Broker, Delivery, Vhost};
use types::ByteSize;

pub use definitions::{Imported, InvalidDefinitions, NotTaken, load as load_definitions};
pub use messages::Message;
pub use server::Server;

use crate::api::Vitals;

use rates::Rates;

/// The release of RabbitMQ whose API this is.
pub const VERSION: &str = "4.3.6";

/// What management needs of a gateway of AMQP, which it does not know.
pub trait Gateway: Send + Sync {
    /// Publishes a message and waits until it is durable; true: a queue has it.
    ///
    /// # Errors
    /// Why not, in words.
    fn publish(&self, broker: &Arc<Broker>, vhost: &Vhost, message: &Message) -> Result<bool, String>;

    /// Takes a message apart that was taken from a queue.
    fn open(&self, delivery: &Delivery, queue: &[u8]) -> Message;

    /// Messages since the start, of all connections.
    fn totals(&self) -> Totals;
}

/// Messages since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Published.
    pub published: u64,
    /// Confirmed.
    pub confirmed: u64,
    /// Taken by no queue.
    pub unroutable: u64,
    /// Given to consumers.
    pub delivered: u64,
    /// Taken one by one.
    pub got: u64,
    /// Settled by who had them.
    pub settled: u64,
}

/// An address that clients are served at.
#[derive(Clone, Debug)]
pub struct Listening {
    /// RabbitMQ's word: `amqp`, `http`, or `kafka`.
    pub protocol: &'static str,
    /// Where.
    pub address: SocketAddr,
    /// Behind TLS?
    pub tls: bool,
}

/// What the process knows of itself.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Bytes that the process may use for buffers and caches.
    pub memory: ByteSize,
    /// The folder of all data.
    pub data: std::path::PathBuf,
    /// Bytes that are free on the disk of a folder.
    pub free_bytes: fn(&std::path::Path) -> u64,
    /// Who is served where.
    pub listeners: Vec<Listening>,
}

/// What is managed.
pub struct Management {
    pub(crate) broker: Arc<Broker>,
    pub(crate) gateway: Arc<dyn Gateway>,
    pub(crate) vitals: Arc<dyn Vitals>,
    pub(crate) facts: NodeFacts,
    pub(crate) node: String,
    pub(crate) started: Instant,
    pub(crate) rates: Rates,
}

impl Management {
    /// Of one broker.
    pub fn new(broker: Arc<Broker>, gateway: Arc<dyn Gateway>, vitals: Arc<dyn Vitals>, facts: NodeFacts) -> Arc<Self> {
        let (node, started) = (broker::node_name(), Instant::now());
        Arc::new(Self { broker, gateway, vitals, facts, node, started, rates: Rates::default() })
    }
}
