//! Share sessions (KIP-932): which partitions a member of a share group works on. A session is known by group and member; it
//! ends with the connection that opened it, and what the member has is given back then. The partitions of all sessions together are bounded.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use broker::Broker;
use delivery::ConsumerId;
use hashbrown::{HashMap, HashSet};
use kafka_wire::ErrorCode;
use parking_lot::Mutex;
use types::{ConnectionId, ShardId};
use uuid::Uuid;

use crate::fetch_sessions::Room;

/// Epoch of the request that opens a session.
pub(crate) const OPEN: i32 = 0;
/// Partitions of one session, as of a fetch session: it is a few bytes that ask for all of them, and each is looked at.
const PARTITIONS_MAX: usize = 20_000;

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
    known: HashSet<(Uuid, i32)>,
    room: Room,
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
    partitions: Arc<AtomicUsize>,
}

/// Who asks: a member of a group, over a connection.
pub(crate) struct Asker<'a> {
    pub group: &'a str,
    pub member: &'a str,
    pub connection: (ShardId, ConnectionId),
}

impl ShareSessions {
    pub fn new(limit: usize) -> Self {
        Self { inner: Mutex::default(), limit, partitions: Arc::default() }
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
        let session = ShareSession {
            epoch: 1,
            consumer,
            opener: asker.connection,
            partitions: Vec::new(),
            known: HashSet::new(),
            room: Room::new(&self.partitions),
            start: 0,
        };
        let session = Arc::new(Mutex::new(session));
        inner.by_opener.entry(asker.connection).or_default().push(key.clone());
        inner.sessions.insert(key, Arc::clone(&session));
        Ok(session)
    }

    /// Ends the session of a member.
    pub fn close(&self, group: &str, member: &str) {
        self.inner.lock().forget(&(group.to_owned(), member.to_owned()));
    }

    /// A connection is gone; returns the groups of the sessions that it had opened, and their consumers.
    pub fn close_of(&self, connection: (ShardId, ConnectionId)) -> HashMap<String, Vec<ConsumerId>> {
        let mut inner = self.inner.lock();
        let keys = inner.by_opener.remove(&connection).unwrap_or_default();
        let mut ended: HashMap<String, Vec<ConsumerId>> = HashMap::new();
        for key in keys {
            if let Some(session) = inner.sessions.remove(&key) {
                ended.entry(key.0).or_default().push(session.lock().consumer);
            }
        }
        ended
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
    /// `ShareSessionLimitReached`: the session would have too many, or all sessions together would. Then none is added.
    pub fn update(
        &mut self,
        added: impl Iterator<Item = (Uuid, i32)>,
        forgotten: impl Iterator<Item = (Uuid, i32)>,
    ) -> Result<(), ErrorCode> {
        let mut some = false;
        forgotten.for_each(|one| some |= self.known.remove(&one));
        if some {
            self.partitions.retain(|one| self.known.contains(&(one.topic, one.partition)));
        }
        let kept = self.partitions.len();
        for (topic, partition) in added {
            if self.partitions.len() > PARTITIONS_MAX {
                break;
            }
            if self.known.insert((topic, partition)) {
                self.partitions.push(SharePartition { topic, partition, told: false });
            }
        }
        let fits = self.partitions.len() <= PARTITIONS_MAX
            && (self.partitions.len() == self.room.count() || self.room.resize(self.partitions.len()));
        if !fits {
            for one in self.partitions.drain(kept..) {
                self.known.remove(&(one.topic, one.partition));
            }
            self.partitions.shrink_to_fit();
            self.known.shrink_to_fit();
            self.room.resize(kept);
        }
        self.start = if self.partitions.is_empty() { 0 } else { (self.start + 1) % self.partitions.len() };
        if fits { Ok(()) } else { Err(ErrorCode::ShareSessionLimitReached) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(all: &Arc<AtomicUsize>) -> ShareSession {
        let opener = (ShardId(0), ConnectionId(0));
        ShareSession {
            epoch: 1,
            consumer: ConsumerId(1),
            opener,
            partitions: Vec::new(),
            known: HashSet::new(),
            room: Room::new(all),
            start: 0,
        }
    }

    #[test]
    fn partitions_of_all_sessions_have_one_bound() {
        let all = Arc::default();
        let topic = |number: usize| Uuid::from_u128(number as u128);
        let partitions = |topic: Uuid, count: i32| (0..count).map(move |partition| (topic, partition));
        let mut sessions: Vec<ShareSession> = (0..25).map(|_| session(&all)).collect();
        for (number, session) in sessions.iter_mut().enumerate() {
            assert_eq!(session.update(partitions(topic(number), 20_000), std::iter::empty()), Ok(()));
            let one_more = session.update([(topic(99), 1)].into_iter(), std::iter::empty());
            assert_eq!((one_more, session.partitions.len()), (Err(ErrorCode::ShareSessionLimitReached), 20_000));
        }
        let mut last = session(&all);
        assert_eq!(last.update(partitions(topic(9), 1), std::iter::empty()), Err(ErrorCode::ShareSessionLimitReached));
        assert!(last.partitions.is_empty(), "none was added");
        assert_eq!(sessions[0].update(std::iter::empty(), partitions(topic(0), 10)), Ok(()));
        assert_eq!(last.update(partitions(topic(9), 10), std::iter::empty()), Ok(()));
        assert!(last.update(partitions(topic(8), 1), std::iter::empty()).is_err());
        drop(sessions);
        assert_eq!(last.update(partitions(topic(8), 19_990), std::iter::empty()), Ok(()));
    }
}
