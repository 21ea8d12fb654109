//! Exchanges to which delayed messages are published faster than is found out when they are due. What nobody has looked at cannot leave in
//! time: so publishers wait, as they do for a journal that has no room. The thread `delays` says which exchanges are behind; a publish to one of them is given
//! back, and its shard hears [`Event::Space`](crate::Event::Space) when none of those that it waits for is behind any more.

use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashSet;
use journal::{Append, AppendItem};
use parking_lot::Mutex;
use types::{LogId, ShardId};

/// Bytes that nobody has looked at, beyond which an exchange is behind, about; it no longer is at half of them.
const UNSEEN_BYTES: u64 = 8 << 20;

#[derive(Default)]
struct State {
    logs: HashSet<LogId>,
    /// Shards that wait, as bits.
    waiting: u64,
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Behind {
    /// There are some: most publishes look no further.
    any: AtomicBool,
    state: Mutex<State>,
}

impl Behind {
    /// Of the exchange with this log so many messages of so many bytes each have not been looked at. Tells which shards go on.
    pub fn note(&self, log: LogId, unseen: u64, each: u64) -> impl Iterator<Item = ShardId> + use<> {
        let bytes = unseen.saturating_mul(each.max(1));
        let mut woken = 0;
        if bytes > UNSEEN_BYTES {
            self.state.lock().logs.insert(log);
            self.any.store(true, Ordering::SeqCst);
        } else if bytes <= UNSEEN_BYTES / 2 && self.any.load(Ordering::SeqCst) {
            let mut state = self.state.lock();
            if state.logs.remove(&log) {
                self.any.store(!state.logs.is_empty(), Ordering::SeqCst);
                // Who waits for another one asks again, and is noted again.
                woken = std::mem::take(&mut state.waiting);
            }
        }
        (0..u64::BITS as u16).filter(move |shard| woken >> shard & 1 == 1).map(ShardId)
    }

    /// Is this for an exchange that is behind? Then its shard is told when it no longer is.
    pub fn holds_up(&self, append: &Append) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut state = self.state.lock();
        let held_up = append
            .items
            .iter()
            .any(|item| matches!(item, AppendItem::Batch { log, .. } if state.logs.contains(&log.id())));
        if held_up {
            state.waiting |= 1 << append.to.shard.0;
        }
        held_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::ReplyTo;
    use types::ConnectionId;

    fn noted(behind: &Behind, log: u64, unseen: u64) -> Vec<u16> {
        behind.note(LogId(log), unseen, 1024).map(|shard| shard.0).collect()
    }

    #[test]
    fn what_is_for_others_is_never_held_up_and_each_shard_is_told_once() {
        let behind = Behind::default();
        let nothing = Append {
            to: ReplyTo { shard: ShardId(3), connection: ConnectionId(1), token: 1 },
            items: Vec::new(),
            acknowledge: true,
        };
        assert!(
            noted(&behind, 1, 8192).is_empty() && !behind.any.load(Ordering::SeqCst),
            "at the bound it is not behind"
        );
        assert!(noted(&behind, 1, 8193).is_empty() && behind.any.load(Ordering::SeqCst));
        assert!(noted(&behind, 2, 20_000).is_empty());
        assert!(!behind.holds_up(&nothing));
        behind.state.lock().waiting = 1 << 3 | 1 << 56;
        assert!(noted(&behind, 1, 5000).is_empty(), "between half of it and the bound nothing changes");
        assert_eq!(noted(&behind, 1, 4096), [3, 56]);
        assert!(behind.any.load(Ordering::SeqCst), "the other one is behind still");
        assert!(noted(&behind, 1, 0).is_empty() && noted(&behind, 2, 0).is_empty(), "nobody waits");
        assert!(!behind.any.load(Ordering::SeqCst));
    }
}
