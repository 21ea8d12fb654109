//! Who is connected: sessions of gateways enter here once they are open, for those who look on, and by what stands here they are
//! asked to go. Counters have one writer, the connection's shard: they are loaded and stored, never added to in one step.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hashbrown::HashMap;
use journal::ReplyTo;
use parking_lot::{Mutex, RwLock};
use types::ConnectionId;

use crate::Broker;
use crate::queues::ChannelFlow;
use crate::security::Dismissed;

/// A count that one thread adds to and others read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds; by one thread at a time.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// So far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// In place of what was there.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// What is known of a connection when it is opened.
#[derive(Clone, Debug)]
pub struct ConnectionDetails {
    /// Who has logged in.
    pub user: String,
    /// The virtual host that it works in.
    pub vhost: String,
    /// Our address.
    pub local: SocketAddr,
    /// The client's.
    pub peer: SocketAddr,
    /// How it has logged in.
    pub mechanism: String,
    /// Bytes of a frame, at most.
    pub frame_max: u32,
    /// Channels, at most.
    pub channel_max: u16,
    /// Seconds between heartbeats; 0: none.
    pub heartbeat_s: u16,
    /// What the client says of itself, as a field table of AMQP 0-9-1 without its length.
    pub client_properties: Bytes,
    /// Milliseconds since 1970.
    pub connected_at: i64,
}

/// An open connection.
#[derive(Debug)]
pub struct Connected {
    /// What was known when it was opened.
    pub details: ConnectionDetails,
    /// Bytes that came.
    pub received_bytes: Count,
    /// Times that something came.
    pub received_count: Count,
    /// Bytes that went.
    pub sent_bytes: Count,
    /// Times that something went.
    pub sent_count: Count,
    to: ReplyTo,
    channels: Mutex<BTreeMap<u16, Arc<ChannelFlow>>>,
}

impl Connected {
    /// Peer and local address, which is how RabbitMQ names connections.
    pub fn name(&self) -> String {
        format!("{} -> {}", self.details.peer, self.details.local)
    }

    /// Its number.
    pub fn id(&self) -> ConnectionId {
        self.to.connection
    }

    /// A channel is opened.
    pub fn open_channel(&self, number: u16, flow: &Arc<ChannelFlow>) {
        self.channels.lock().insert(number, Arc::clone(flow));
    }

    /// A channel is gone; one that was opened under its number since then stays.
    pub fn close_channel(&self, number: u16, flow: &Arc<ChannelFlow>) {
        let mut channels = self.channels.lock();
        if channels.get(&number).is_some_and(|open| Arc::ptr_eq(open, flow)) {
            channels.remove(&number);
        }
    }

    /// Open channels, by number.
    pub fn channels(&self) -> Vec<(u16, Arc<ChannelFlow>)> {
        self.channels.lock().iter().map(|(number, flow)| (*number, Arc::clone(flow))).collect()
    }
}

/// How often things came and went since the start.
#[derive(Debug, Default)]
pub struct Churn {
    /// Connections opened.
    pub connections_opened: AtomicU64,
    /// Connections closed.
    pub connections_closed: AtomicU64,
    /// Channels opened.
    pub channels_opened: AtomicU64,
    /// Channels closed.
    pub channels_closed: AtomicU64,
}

/// All open connections of the node.
#[derive(Debug, Default)]
pub struct Connections {
    by_id: RwLock<HashMap<ConnectionId, Arc<Connected>>>,
    churn: Churn,
}

impl Connections {
    /// A connection is open; `to` is where its session hears that it is to end ([`Dismissed`]).
    pub fn enter(&self, details: ConnectionDetails, to: ReplyTo) -> Arc<Connected> {
        let connected = Arc::new(Connected {
            details,
            received_bytes: Count::default(),
            received_count: Count::default(),
            sent_bytes: Count::default(),
            sent_count: Count::default(),
            to,
            channels: Mutex::default(),
        });
        self.churn.connections_opened.fetch_add(1, Ordering::Relaxed);
        self.by_id.write().insert(to.connection, Arc::clone(&connected));
        connected
    }

    /// A connection is gone.
    pub fn leave(&self, id: ConnectionId) {
        if self.by_id.write().remove(&id).is_some() {
            self.churn.connections_closed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One of them.
    pub fn get(&self, id: ConnectionId) -> Option<Arc<Connected>> {
        self.by_id.read().get(&id).cloned()
    }

    /// All of them, in the order in which they came.
    pub fn all(&self) -> Vec<Arc<Connected>> {
        let mut all: Vec<_> = self.by_id.read().values().cloned().collect();
        all.sort_by_key(|one| one.id());
        all
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_id.read().len()
    }

    /// How often they came and went.
    pub fn churn(&self) -> &Churn {
        &self.churn
    }
}

/// What the node is called where RabbitMQ names a node: `mainstem@` and the machine's name.
pub fn node_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("mainstem@{}", if host.trim().is_empty() { "localhost" } else { host.trim() })
}

impl Broker {
    /// Who is connected.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Asks a connection to go.
    pub fn dismiss_connection(&self, connected: &Connected, reason: &str) {
        self.tell(connected.to, Box::new(Dismissed { reason: reason.to_owned() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ShardId;

    #[test]
    fn connections_come_and_go() {
        let all = Connections::default();
        let address: SocketAddr = "127.0.0.1:5672".parse().expect("an address");
        let details = ConnectionDetails {
            user: "guest".to_owned(),
            vhost: "/".to_owned(),
            local: address,
            peer: "127.0.0.1:40000".parse().expect("an address"),
            mechanism: "PLAIN".to_owned(),
            frame_max: 131_072,
            channel_max: 2047,
            heartbeat_s: 60,
            client_properties: Bytes::new(),
            connected_at: 0,
        };
        let to = |number| ReplyTo { shard: ShardId(0), connection: ConnectionId(number), token: 0 };
        let second = all.enter(details.clone(), to(2));
        all.enter(details, to(1));
        assert_eq!(second.name(), "127.0.0.1:40000 -> 127.0.0.1:5672");
        assert_eq!(all.all().iter().map(|one| one.id().0).collect::<Vec<_>>(), [1, 2]);
        all.leave(ConnectionId(2));
        all.leave(ConnectionId(2));
        assert_eq!((all.count(), all.churn().connections_closed.load(Ordering::Relaxed)), (1, 1));
    }
}
