//! Appends that journals' queues had no room for. They keep their order by journal, and go when there is room: whoever owns them
//! calls [`Unsent::send`] then, under the lock under which it appends.

use std::collections::VecDeque;
use std::sync::Arc;

use journal::{Append, Journal};

/// What takes an append, or gives it back.
pub(crate) trait Queue {
    fn append(&self, append: Append) -> Result<(), Append>;
}

impl Queue for Arc<Journal> {
    fn append(&self, append: Append) -> Result<(), Append> {
        Journal::append(self, append)
    }
}

/// By journal, oldest first.
#[derive(Default)]
pub(crate) struct Unsent {
    by_journal: Vec<VecDeque<Append>>,
}

impl Unsent {
    /// Appends behind everything that waits for this journal.
    pub fn append(&mut self, journals: &[impl Queue], journal: usize, append: Append) {
        if self.by_journal.len() <= journal {
            self.by_journal.resize_with(journal + 1, VecDeque::new);
        }
        self.by_journal[journal].push_back(append);
        send(&journals[journal], &mut self.by_journal[journal]);
    }

    /// Gives the journals what they have room for.
    pub fn send(&mut self, journals: &[impl Queue]) {
        for (journal, waiting) in journals.iter().zip(&mut self.by_journal) {
            send(journal, waiting);
        }
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.by_journal.iter().all(VecDeque::is_empty)
    }
}

fn send(journal: &impl Queue, waiting: &mut VecDeque<Append>) {
    while let Some(append) = waiting.pop_front() {
        if let Err(append) = journal.append(append) {
            waiting.push_front(append);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use journal::ReplyTo;
    use types::{ConnectionId, ShardId};

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
        Append { to: ReplyTo { shard: ShardId(0), connection: ConnectionId(0), token }, items: Vec::new(), acknowledge: false }
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
        assert_eq!(*journals[0].taken.borrow(), [0, 1, 2]);
        journals[0].room.set(5);
        unsent.send(&journals);
        assert_eq!(*journals[0].taken.borrow(), [0, 1, 2, 3, 4]);
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
