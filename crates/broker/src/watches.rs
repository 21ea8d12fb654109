//! Which connections of a shard wait for which logs. Owned by the shard's thread.

use hashbrown::HashMap;
use smallvec::SmallVec;
use types::{ConnectionId, LogId};

/// The waiting connections of one shard.
#[derive(Default)]
pub struct Watches {
    by_log: HashMap<LogId, SmallVec<[ConnectionId; 2]>>,
}

impl Watches {
    /// `connection` wants to hear of `log`.
    pub fn watch(&mut self, connection: ConnectionId, log: LogId) {
        let waiting = self.by_log.entry(log).or_default();
        if !waiting.contains(&connection) {
            waiting.push(connection);
        }
    }

    /// `connection` no longer does.
    pub fn unwatch(&mut self, connection: ConnectionId, log: LogId) {
        if let Some(waiting) = self.by_log.get_mut(&log) {
            waiting.retain(|other| *other != connection);
            if waiting.is_empty() {
                self.by_log.remove(&log);
            }
        }
    }

    /// Who waits for `log`; they have to ask again.
    pub fn advanced(&mut self, log: LogId) -> SmallVec<[ConnectionId; 2]> {
        self.by_log.remove(&log).unwrap_or_default()
    }
}
