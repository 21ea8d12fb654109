//! Appends that journals' queues had no room for. They keep their order by journal and lane, and go when there is room: whoever owns
//! them calls [`Unsent::send`] then, under the lock under which it appends. Lanes do not wait for each other: a journal refuses data
//! before it refuses state.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashSet;
use journal::{Append, Journal};
use types::{ConnectionId, ShardId};

/// What takes an append, or gives it back.
pub(crate) trait Queue {
    fn append(&self, append: Append) -> Result<(), Append>;
}

impl Queue for Arc<Journal> {
    fn append(&self, append: Append) -> Result<(), Append> {
        Journal::append(self, append)
    }
}

/// A journal that writes data into its reserve when the disk is full.
pub(crate) struct FromReserve(pub Arc<Journal>);

impl Queue for FromReserve {
    fn append(&self, append: Append) -> Result<(), Append> {
        self.0.append_from_reserve(append)
    }
}

/// Whose order is kept.
type Lane = (ShardId, ConnectionId);

fn lane(append: &Append) -> Lane {
    (append.to.shard, append.to.connection)
}

/// What waits for one journal.
#[derive(Default)]
struct Waiting {
    /// Oldest first.
    appends: VecDeque<Append>,
    lanes: HashSet<Lane>,
}

/// By journal.
#[derive(Default)]
pub(crate) struct Unsent {
    by_journal: Vec<Waiting>,
}

impl Unsent {
    /// Appends behind everything of its lane that waits for this journal.
    pub fn append(&mut self, journals: &[impl Queue], journal: usize, append: Append) {
        if self.by_journal.len() <= journal {
            self.by_journal.resize_with(journal + 1, Waiting::default);
        }
        self.by_journal[journal].append(&journals[journal], append);
    }

    /// Gives the journals what they have room for.
    pub fn send(&mut self, journals: &[impl Queue]) {
        for (journal, waiting) in journals.iter().zip(&mut self.by_journal) {
            waiting.send(journal);
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.by_journal.iter().map(|waiting| waiting.appends.len()).sum()
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.by_journal.iter().all(|waiting| waiting.appends.is_empty())
    }
}

impl Waiting {
    fn append(&mut self, journal: &impl Queue, append: Append) {
        let lane = lane(&append);
        let refused = if self.lanes.contains(&lane) { Err(append) } else { journal.append(append) };
        if let Err(append) = refused {
            self.lanes.insert(lane);
            self.appends.push_back(append);
        }
    }

    fn send(&mut self, journal: &impl Queue) {
        self.lanes.clear();
        for append in std::mem::take(&mut self.appends) {
            self.append(journal, append);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use journal::ReplyTo;

    use super::*;

    /// A queue with room for so many.
    #[derive(Default)]
    struct Room {
        room: Cell<usize>,
        taken: RefCell<Vec<u64>>,
    }

    impl Queue for Room {
        fn append(&self, append: Append) -> Result<(), Append> {
            let Some(left) = self.room.get().checked_sub(1) else { return Err(append) };
            self.room.set(left);
            self.taken.borrow_mut().push(append.to.token);
            Ok(())
        }
    }

    fn append(token: u64) -> Append {
        Append {
            to: ReplyTo { shard: ShardId(0), connection: ConnectionId(0), token },
            items: Vec::new(),
            acknowledge: false,
        }
    }

    #[test]
    fn what_was_refused_goes_in_order_and_before_what_comes_later() {
        let journals = [Room::default()];
        let mut unsent = Unsent::default();
        journals[0].room.set(1);
        for token in 0..4 {
            unsent.append(&journals, 0, append(token));
        }
        assert_eq!(*journals[0].taken.borrow(), [0]);
        assert!(!unsent.is_empty());
        journals[0].room.set(2);
        unsent.append(&journals, 0, append(4));
        assert_eq!(*journals[0].taken.borrow(), [0], "it is not there before the others");
        unsent.send(&journals);
        assert_eq!(*journals[0].taken.borrow(), [0, 1, 2]);
        journals[0].room.set(5);
        unsent.send(&journals);
        assert_eq!(*journals[0].taken.borrow(), [0, 1, 2, 3, 4]);
        assert!(unsent.is_empty());
    }

    #[test]
    fn a_lane_waits_for_no_other() {
        /// Takes what has an even token; all else when there is room.
        struct Even(Room);
        impl Queue for Even {
            fn append(&self, append: Append) -> Result<(), Append> {
                if append.to.token.is_multiple_of(2) {
                    self.0.taken.borrow_mut().push(append.to.token);
                    return Ok(());
                }
                self.0.append(append)
            }
        }
        let journals = [Even(Room::default())];
        let in_lane = |lane, token| Append {
            to: ReplyTo { connection: ConnectionId(lane), ..append(token).to },
            ..append(token)
        };
        let mut unsent = Unsent::default();
        for (lane, token) in [(1, 1), (2, 2), (1, 4), (2, 6), (3, 3), (3, 8)] {
            unsent.append(&journals, 0, in_lane(lane, token));
        }
        assert_eq!(*journals[0].0.taken.borrow(), [2, 6], "what is behind 1 and 3 waits, and nobody else");
        journals[0].0.room.set(1);
        unsent.send(&journals);
        assert_eq!(*journals[0].0.taken.borrow(), [2, 6, 1, 4]);
        journals[0].0.room.set(1);
        unsent.send(&journals);
        assert_eq!(*journals[0].0.taken.borrow(), [2, 6, 1, 4, 3, 8]);
        assert!(unsent.is_empty());
    }

    #[test]
    fn a_full_journal_holds_up_no_other() {
        let journals = [Room::default(), Room::default()];
        let mut unsent = Unsent::default();
        journals[1].room.set(2);
        for token in 0..4 {
            unsent.append(&journals, token as usize % 2, append(token));
        }
        assert_eq!((journals[0].taken.borrow().len(), journals[1].taken.borrow().clone()), (0, vec![1, 3]));
        journals[0].room.set(9);
        unsent.send(&journals);
        assert_eq!(*journals[0].taken.borrow(), [0, 2]);
        assert!(unsent.is_empty());
    }
}
