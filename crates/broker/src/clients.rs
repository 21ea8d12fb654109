//! Who is connected by Kafka's protocol: sessions enter here when they begin, for those who look on, and by what stands here they are
//! asked to go. Counters have one writer, the connection's shard. (Connections of AMQP, which have channels, are in `connections.rs`.)

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use journal::ReplyTo;
use parking_lot::{Mutex, RwLock};
use types::ConnectionId;

use crate::Broker;
use crate::connections::Count;
use crate::security::Dismissed;

/// Bytes of what a client calls itself, or its software, that are kept for those who look on.
const NAME_SHOWN: usize = 256;

fn shown(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_SHOWN)].to_owned()
}

/// What a client has said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSaid {
    /// In the header of its requests; the beginning, if it is long.
    pub client_id: String,
    /// Name and version of its software.
    pub software: Option<(String, String)>,
    /// Who has logged in, and how. `None`: nobody has to.
    pub user: Option<(String, &'static str)>,
}

/// An open connection.
#[derive(Debug)]
pub struct ClientConnection {
    /// Our address.
    pub local: SocketAddr,
    /// The client's.
    pub peer: SocketAddr,
    /// Milliseconds since 1970.
    pub connected_at: i64,
    /// Bytes of requests.
    pub received_bytes: Count,
    /// Bytes of answers.
    pub sent_bytes: Count,
    /// Requests.
    pub requests: Count,
    said: Mutex<ClientSaid>,
    to: ReplyTo,
}

impl ClientConnection {
    /// What the client has said of itself so far.
    pub fn said(&self) -> ClientSaid {
        self.said.lock().clone()
    }

    /// The header of a request says so.
    pub fn set_client_id(&self, client_id: &str) {
        self.said.lock().client_id = shown(client_id);
    }

    /// The client says what it is.
    pub fn set_software(&self, name: &str, version: &str) {
        self.said.lock().software = Some((shown(name), shown(version)));
    }

    /// Somebody has logged in.
    pub fn set_user(&self, name: &str, mechanism: &'static str) {
        self.said.lock().user = Some((name.to_owned(), mechanism));
    }
}

/// All open connections of the node.
#[derive(Debug, Default)]
pub struct Clients(RwLock<HashMap<ConnectionId, Arc<ClientConnection>>>);

impl Clients {
    /// A connection is there; `to` is where its session hears that it is to end ([`Dismissed`]).
    pub fn enter(&self, local: SocketAddr, peer: SocketAddr, connected_at: i64, to: ReplyTo) -> Arc<ClientConnection> {
        let counts = [Count::default(), Count::default(), Count::default()];
        let [received_bytes, sent_bytes, requests] = counts;
        let one = Arc::new(ClientConnection {
            local,
            peer,
            connected_at,
            received_bytes,
            sent_bytes,
            requests,
            said: Mutex::default(),
            to,
        });
        self.0.write().insert(to.connection, Arc::clone(&one));
        one
    }

    /// A connection is gone.
    pub fn leave(&self, id: ConnectionId) {
        self.0.write().remove(&id);
    }

    /// One of them.
    pub fn get(&self, id: ConnectionId) -> Option<Arc<ClientConnection>> {
        self.0.read().get(&id).cloned()
    }

    /// All of them, in the order in which they came.
    pub fn all(&self) -> Vec<(ConnectionId, Arc<ClientConnection>)> {
        let mut all: Vec<_> = self.0.read().iter().map(|(id, one)| (*id, Arc::clone(one))).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.read().len()
    }
}

impl Broker {
    /// Who is connected by Kafka's protocol.
    pub fn kafka_connections(&self) -> &Clients {
        &self.clients
    }

    /// Asks a connection of Kafka's protocol to go.
    pub fn dismiss_client(&self, connection: &ClientConnection, reason: &str) {
        self.tell(connection.to, Box::new(Dismissed { reason: reason.to_owned() }));
    }
}
