//! Incremental fetch sessions (KIP-227): what a consumer asks for is remembered, so that a poll names only what
//! changed and gets only what has news. A bounded number of sessions, and of partitions in them, is kept for all connections, and nothing of the
//! requests in which they were named. Who finds no room goes on without a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::handlers::fetch::{Wanted, kept};

/// A session that was used within this time is not given up for another, in ms.
const EVICT_AFTER_MS: u64 = 120_000;

/// Partitions of all sessions of a kind together: each takes about 120 bytes.
const PARTITIONS_MAX: usize = 500_000;

/// Partitions of one session: it is a few bytes that ask for all of them, and each is looked at.
const SESSION_PARTITIONS_MAX: usize = 20_000;

/// Room for a session's partitions among those of all sessions of its kind; given back with it.
pub(crate) struct Room {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Room {
    /// Of a session without partitions.
    pub fn new(all: &Arc<AtomicUsize>) -> Self {
        Self { all: Arc::clone(all), own: 0 }
    }

    /// Partitions that it has room for.
    pub fn count(&self) -> usize {
        self.own
    }

    /// The session has so many now. False: they find no room.
    pub fn resize(&mut self, count: usize) -> bool {
        let before = std::mem::replace(&mut self.own, count);
        let all = self.all.fetch_add(count, Ordering::Relaxed) + count;
        self.all.fetch_sub(before, Ordering::Relaxed);
        all - before <= PARTITIONS_MAX
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// What one consumer asks for.
pub(crate) struct FetchSession {
    pub id: i32,
    /// The next request's epoch.
    pub epoch: i32,
    pub wanted: Vec<Wanted>,
    pub room: Room,
    /// Topics are named by their ids.
    pub by_id: bool,
    /// Where the next answer begins, so that all get their turn.
    pub start: usize,
    pub used: std::time::Instant,
    /// As of which answers it is noted what may be read (`Asking::stamp`).
    pub judged: u64,
    /// As of which topics it is noted what is read (`Broker::topics_version`).
    pub found: u64,
}

impl FetchSession {
    /// Is there room for what it asks for by now?
    pub fn make_room(&mut self) -> bool {
        self.wanted.len() <= SESSION_PARTITIONS_MAX && self.room.resize(self.wanted.len())
    }
}

/// All sessions.
pub(crate) struct FetchSessions {
    sessions: Mutex<HashMap<i32, Arc<Mutex<FetchSession>>>>,
    slots: usize,
    partitions: Arc<AtomicUsize>,
    next: AtomicI32,
}

impl FetchSessions {
    pub fn new(slots: usize) -> Self {
        let seed =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.subsec_nanos());
        Self {
            sessions: Mutex::default(),
            slots,
            partitions: Arc::default(),
            next: AtomicI32::new((seed >> 2) as i32 | 1),
        }
    }

    pub fn get(&self, id: i32) -> Option<Arc<Mutex<FetchSession>>> {
        self.sessions.lock().get(&id).cloned()
    }

    pub fn remove(&self, id: i32) {
        self.sessions.lock().remove(&id);
    }

    /// A new session, unless all slots are in use, or it has more partitions than there is room for. Those give way that nobody has used for long. `found`:
    /// as of which topics it is noted what is read.
    pub fn create(
        &self,
        wanted: &[Wanted],
        by_id: bool,
        found: u64,
        now: std::time::Instant,
    ) -> Option<Arc<Mutex<FetchSession>>> {
        if wanted.len() > SESSION_PARTITIONS_MAX {
            return None;
        }
        let wanted = kept(wanted)?;
        let mut room = Room::new(&self.partitions);
        let mut sessions = self.sessions.lock();
        while sessions.len() >= self.slots || !room.resize(wanted.len()) {
            let idle = |session: &Arc<Mutex<FetchSession>>| {
                session
                    .try_lock()
                    .is_some_and(|session| now.duration_since(session.used).as_millis() as u64 >= EVICT_AFTER_MS)
            };
            let old = sessions.iter().find(|(_, session)| idle(session)).map(|(id, _)| *id)?;
            sessions.remove(&old);
        }
        let id = loop {
            let id = self.next.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if id != 0 && !sessions.contains_key(&id) {
                break id;
            }
        };
        let (start, judged) = (0, 0);
        let session =
            Arc::new(Mutex::new(FetchSession { id, epoch: 1, wanted, room, by_id, start, used: now, judged, found }));
        sessions.insert(id, Arc::clone(&session));
        Some(session)
    }
}
