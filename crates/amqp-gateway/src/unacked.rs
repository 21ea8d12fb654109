//! What a channel has been given and has not settled, by delivery tag.
//!
//! Tags ascend, with gaps where a consumer needs no acknowledgements. Settled entries in the middle stay as gaps until what is before
//! them has gone, or until they are more than half.

use std::collections::VecDeque;

use delivery::ConsumerId;

/// Gaps that are not worth being closed.
const GAPS_MIN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u64,
    consumer: ConsumerId,
    offset: u64,
    settled: bool,
}

/// The unacknowledged messages of a channel.
#[derive(Debug, Default)]
pub(crate) struct Unacked {
    entries: VecDeque<Entry>,
    open: usize,
}

impl Unacked {
    /// Tags only grow.
    pub fn push(&mut self, tag: u64, consumer: ConsumerId, offset: u64) {
        debug_assert!(self.entries.back().is_none_or(|last| last.tag < tag), "tags ascend");
        self.entries.push_back(Entry { tag, consumer, offset, settled: false });
        self.open += 1;
    }

    fn find(&self, tag: u64) -> Option<usize> {
        let first = self.entries.front()?.tag;
        let guess = usize::try_from(tag.checked_sub(first)?).ok()?;
        let at = match self.entries.get(guess) {
            Some(entry) if entry.tag == tag => guess,
            _ => self.entries.binary_search_by_key(&tag, |entry| entry.tag).ok()?,
        };
        (!self.entries[at].settled).then_some(at)
    }

    /// Takes one out; none if the channel does not have it.
    pub fn take(&mut self, tag: u64) -> Option<(ConsumerId, u64)> {
        let at = self.find(tag)?;
        let entry = &mut self.entries[at];
        entry.settled = true;
        let found = (entry.consumer, entry.offset);
        self.open -= 1;
        while self.entries.front().is_some_and(|first| first.settled) {
            self.entries.pop_front();
        }
        if self.entries.len() > GAPS_MIN + 2 * self.open {
            self.entries.retain(|entry| !entry.settled);
        }
        Some(found)
    }

    /// Takes out all up to this one, oldest first; false, and nothing done, if the channel does not have it.
    pub fn take_through(&mut self, tag: u64, mut each: impl FnMut(u64, ConsumerId, u64)) -> bool {
        let Some(at) = self.find(tag) else { return false };
        for entry in self.entries.drain(..=at).filter(|entry| !entry.settled) {
            self.open -= 1;
            each(entry.tag, entry.consumer, entry.offset);
        }
        while self.entries.front().is_some_and(|first| first.settled) {
            self.entries.pop_front();
        }
        true
    }

    /// Takes out all, oldest first.
    pub fn take_all(&mut self, mut each: impl FnMut(u64, ConsumerId, u64)) {
        self.open = 0;
        for entry in self.entries.drain(..).filter(|entry| !entry.settled) {
            each(entry.tag, entry.consumer, entry.offset);
        }
    }

    /// Puts back what was taken, which is as it was before.
    pub fn restore(&mut self, taken: impl Iterator<Item = (u64, ConsumerId, u64)>) {
        let mut all: Vec<Entry> = self.entries.drain(..).filter(|entry| !entry.settled).collect();
        all.extend(taken.map(|(tag, consumer, offset)| Entry { tag, consumer, offset, settled: false }));
        all.sort_by_key(|entry| entry.tag);
        self.open = all.len();
        self.entries = all.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(tags: &[u64]) -> Unacked {
        let mut unacked = Unacked::default();
        tags.iter().for_each(|tag| unacked.push(*tag, ConsumerId(1), tag * 10));
        unacked
    }

    #[test]
    fn each_is_taken_once() {
        let mut unacked = filled(&[1, 2, 5, 6, 9]);
        assert_eq!(unacked.take(5), Some((ConsumerId(1), 50)));
        assert_eq!(unacked.take(5), None);
        assert_eq!(unacked.take(3), None);
        assert_eq!(unacked.take(0), None);
        assert_eq!(unacked.take(1), Some((ConsumerId(1), 10)));
        let mut seen = Vec::new();
        assert!(!unacked.take_through(5, |_, _, offset| seen.push(offset)), "it was taken");
        assert!(unacked.take_through(6, |_, _, offset| seen.push(offset)));
        assert_eq!(seen, [20, 60]);
        unacked.take_all(|_, _, offset| seen.push(offset));
        assert_eq!(seen, [20, 60, 90]);
        assert_eq!(unacked.take(9), None);
    }

    #[test]
    fn gaps_do_not_pile_up_behind_one_that_stays() {
        let mut unacked = filled(&[1]);
        for tag in 2..10_000 {
            unacked.push(tag, ConsumerId(1), tag);
            assert!(unacked.take(tag).is_some());
        }
        assert!(unacked.entries.len() <= GAPS_MIN + 4);
        assert_eq!(unacked.take(1), Some((ConsumerId(1), 10)));
    }

    #[test]
    fn what_is_put_back_is_in_order_again() {
        let mut unacked = filled(&[1, 2, 3, 4]);
        let taken: Vec<_> = [2, 3].map(|tag| unacked.take(tag).map(|(consumer, offset)| (tag, consumer, offset)).expect("there")).to_vec();
        unacked.restore(taken.into_iter());
        let mut seen = Vec::new();
        unacked.take_all(|_, _, offset| seen.push(offset));
        assert_eq!(seen, [10, 20, 30, 40]);
    }
}
