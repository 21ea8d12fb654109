//! Share sessions (KIP-932): which partitions a member of a share group works on. A session is known by group and member; it
//! ends with the connection that opened it, and what the member has is given back then.

use std::sync::Arc;

use broker::Broker;
use delivery::ConsumerId;
use hashbrown::HashMap;
use kafka_wire::ErrorCode;
use parking_lot::Mutex;
use types::{ConnectionId, ShardId};
use uuid::Uuid;

/// Epoch of the request that opens a session.
pub(crate) const OPEN: i32 = 0;
/// Partitions of one session.
const PARTITIONS_MAX: usize = 100_000;

/// Epoch of the request that ends it.
pub(crate) const CLOSE: i32 = -1;

/// A partition of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharePartition {
    pub topic: Uuid,
    pub partition: i32,
    /// The member has been told of it.
    pub told: bool,
}

/// What one member works on.
pub(crate) struct ShareSession {
    /// The next request's epoch.
    epoch: i32,
    pub consumer: ConsumerId,
    opener: (ShardId, ConnectionId),
    pub partitions: Vec<SharePartition>,
    /// Where the next answer begins, so that all get their turn.
    pub start: usize,
}

/// Group and member.
type Key = (String, String);

#[derive(Default)]
struct Inner {
    sessions: HashMap<Key, Arc<Mutex<ShareSession>>>,
    by_opener: HashMap<(ShardId, ConnectionId), Vec<Key>>,
}

/// All sessions.
pub(crate) struct ShareSessions {
    inner: Mutex<Inner>,
    limit: usize,
}

/// Who asks: a member of a group, over a connection.
pub(crate) struct Asker<'a> {
    pub group: &'a str,
    pub member: &'a str,
    pub connection: (ShardId, ConnectionId),
}

impl ShareSessions {
    pub fn new(limit: usize) -> Self {
        Self { inner: Mutex::default(), limit }
    }

    /// The session that a request with this epoch belongs to; one that opens a session replaces the member's last one.
    ///
    /// # Errors
    /// `ShareSessionNotFound`, `InvalidShareSessionEpoch`, `ShareSessionLimitReached`.
    pub fn enter(&self, asker: &Asker<'_>, epoch: i32, broker: &Broker) -> Result<Arc<Mutex<ShareSession>>, ErrorCode> {
        let key = (asker.group.to_owned(), asker.member.to_owned());
        if epoch != OPEN {
            let found = self.inner.lock().sessions.get(&key).cloned().ok_or(ErrorCode::ShareSessionNotFound)?;
            if epoch != CLOSE {
                let mut session = found.lock();
                if session.epoch != epoch {
                    return Err(ErrorCode::InvalidShareSessionEpoch);
                }
                session.epoch = epoch.checked_add(1).unwrap_or(1);
            }
            return Ok(found);
        }
        let mut inner = self.inner.lock();
        let before = inner.forget(&key);
        if before.is_none() && inner.sessions.len() >= self.limit {
            return Err(ErrorCode::ShareSessionLimitReached);
        }
        // Who opens another session keeps the records it has.
        let consumer = before.map_or_else(|| broker.subscriptions().new_consumer(), |before| before.lock().consumer);
        let session = ShareSession { epoch: 1, consumer, opener: asker.connection, partitions: Vec::new(), start: 0 };
        let session = Arc::new(Mutex::new(session));
        inner.by_opener.entry(asker.connection).or_default().push(key.clone());
        inner.sessions.insert(key, Arc::clone(&session));
        Ok(session)
    }

    /// Ends the session of a member.
    pub fn close(&self, group: &str, member: &str) {
        self.inner.lock().forget(&(group.to_owned(), member.to_owned()));
    }

    /// A connection is gone; returns the groups and consumers of the sessions that it had opened.
    pub fn close_of(&self, connection: (ShardId, ConnectionId)) -> Vec<(String, ConsumerId)> {
        let mut inner = self.inner.lock();
        let keys = inner.by_opener.remove(&connection).unwrap_or_default();
        let ended = keys.into_iter().filter_map(|key| inner.sessions.remove(&key).map(|session| (key.0, session)));
        ended.map(|(group, session)| (group, session.lock().consumer)).collect()
    }
}

impl Inner {
    fn forget(&mut self, key: &Key) -> Option<Arc<Mutex<ShareSession>>> {
        let session = self.sessions.remove(key)?;
        let opener = session.lock().opener;
        if let Some(keys) = self.by_opener.get_mut(&opener) {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.by_opener.remove(&opener);
            }
        }
        Some(session)
    }
}

impl ShareSession {
    /// Adds partitions that are not there yet, and forgets others.
    ///
    /// # Errors
    /// `ShareSessionLimitReached`: the session would have too many.
    pub fn update(&mut self, added: impl Iterator<Item = (Uuid, i32)>, forgotten: impl Iterator<Item = (Uuid, i32)>) -> Result<(), ErrorCode> {
        let gone: hashbrown::HashSet<(Uuid, i32)> = forgotten.collect();
        if !gone.is_empty() {
            self.partitions.retain(|one| !gone.contains(&(one.topic, one.partition)));
        }
        let mut added = added.peekable();
        let news = added.peek().is_some();
        let mut known: hashbrown::HashSet<(Uuid, i32)> = self.partitions.iter().filter(|_| news).map(|one| (one.topic, one.partition)).collect();
        for (topic, partition) in added {
            if known.insert((topic, partition)) {
                if self.partitions.len() >= PARTITIONS_MAX {
                    return Err(ErrorCode::ShareSessionLimitReached);
                }
                self.partitions.push(SharePartition { topic, partition, told: false });
            }
        }
        self.start = if self.partitions.is_empty() { 0 } else { (self.start + 1) % self.partitions.len() };
        Ok(())
    }
}
