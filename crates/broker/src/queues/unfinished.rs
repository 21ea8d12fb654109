//! Dead letters of one append to several journals of which some took their copies and others did not: what is left is appended before other letters
//! of the queue, so that nobody gets a copy twice. It is known until the end of the process: after that the letters are copied again.

use std::sync::Arc;

use journal::{AppendError, AppendItem, Journal};

use super::queue::Queue;
use crate::Broker;

/// Items with the journals that the letters in them go to.
pub(super) type Marked = Vec<(Journals, AppendItem)>;

/// Some of the journals; of more than 64 several count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Journals(u64);

impl Journals {
    pub fn of(numbers: impl Iterator<Item = usize>) -> Self {
        Self(numbers.fold(0, |all, number| all | 1 << (number % 64)))
    }

    pub fn add(&mut self, number: usize) {
        self.0 |= 1 << (number % 64);
    }

    pub fn join(&mut self, others: Self) {
        self.0 |= others.0;
    }

    pub fn has(self, number: usize) -> bool {
        self.meets(Self::of(std::iter::once(number)))
    }

    pub fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// What is left of an append.
pub(super) struct Unfinished {
    /// Its dead messages, which all wait for it.
    pub runs: Vec<(u64, u64)>,
    /// By journal, those that come before …
    pub far: Vec<(usize, Vec<AppendItem>)>,
    /// … and those of the queue's own, which go with the record that the messages are gone.
    pub near: Vec<AppendItem>,
}

impl Unfinished {
    /// Journals that have not taken all.
    pub fn journals(&self) -> Journals {
        Journals::of(self.far.iter().map(|(journal, _)| *journal))
    }

    /// Appends what is left. True: all of it is durable.
    pub fn finish(&mut self, broker: &Arc<Broker>, queue: &Queue) -> bool {
        // They may have been purged meanwhile.
        let runs = queue.shared.lock().dying_of(&self.runs);
        if runs.is_empty() {
            return true;
        }
        self.far.retain_mut(|(journal, items)| {
            *items = broker.commit_letters(*journal, std::mem::take(items));
            !items.is_empty()
        });
        if !self.far.is_empty() {
            return false;
        }
        match broker.dead_letters_are_there(&queue.shared, runs, std::mem::take(&mut self.near)) {
            Ok(()) => true,
            Err(near) => {
                self.near = near;
                false
            }
        }
    }
}

impl Broker {
    /// Appends copies of what is gone elsewhere then, and waits until they are durable; those that the journal has not taken come back.
    pub(super) fn commit_letters(&self, journal: usize, items: Vec<AppendItem>) -> Vec<AppendItem> {
        if items.is_empty() {
            return items;
        }
        // One after the other a later one may find the space that an earlier one did not.
        let items = if items.len() > 1 && self.journals()[journal].takes(&items, 0) {
            vec![AppendItem::Together(items)]
        } else {
            items
        };
        let mut results = self.commit_by(journal, items.clone(), Journal::append_from_reserve).into_iter();
        // A queue that is gone takes nothing.
        let refused = |_: &AppendItem| !matches!(results.next(), Some(Ok(_) | Err(AppendError::LogDeleted)));
        items.into_iter().filter(refused).collect()
    }
}
