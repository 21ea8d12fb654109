//! What a channel has been given and has not settled, by delivery tag.
//!
//! Tags ascend, with gaps where a consumer needs no acknowledgements. Settled entries in the middle stay as gaps until what is before
//! them has gone, or until they are a fifth of all: who acknowledges in any order what he has by the thousand costs little more than what is open.
//! Memory that was needed for many is given back when few are left.

use std::collections::VecDeque;

use delivery::ConsumerId;

/// Room for so many entries is not given back.
const SPARE_MIN: usize = 1024;
/// Gaps that are not worth being closed.
const GAPS_MIN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u64,
    consumer: ConsumerId,
    /// Or [`SETTLED`].
    offset: u64,
}

/// In place of an offset, which is never so large.
const SETTLED: u64 = u64::MAX;

impl Entry {
    fn is_settled(&self) -> bool {
        self.offset == SETTLED
    }
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
        self.entries.push_back(Entry { tag, consumer, offset });
        self.open += 1;
    }

    /// Frees memory that is only kept for what comes next.
    pub fn rest(&mut self) {
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
    }

    fn find(&self, tag: u64) -> Option<usize> {
        let first = self.entries.front()?.tag;
        let guess = usize::try_from(tag.checked_sub(first)?).ok()?;
        let at = match self.entries.get(guess) {
            Some(entry) if entry.tag == tag => guess,
            _ => self.entries.binary_search_by_key(&tag, |entry| entry.tag).ok()?,
        };
        (!self.entries[at].is_settled()).then_some(at)
    }

    /// Takes one out; none if the channel does not have it.
    pub fn take(&mut self, tag: u64) -> Option<(ConsumerId, u64)> {
        let at = self.find(tag)?;
        let entry = &mut self.entries[at];
        let found = (entry.consumer, std::mem::replace(&mut entry.offset, SETTLED));
        self.open -= 1;
        while self.entries.front().is_some_and(|first| first.is_settled()) {
            self.entries.pop_front();
        }
        if self.entries.len() > GAPS_MIN + self.open + self.open / 4 {
            self.entries.retain(|entry| !entry.is_settled());
        }
        self.give_back();
        Some(found)
    }

    /// Gives memory back when three quarters of it are free.
    fn give_back(&mut self) {
        let (used, room) = (self.entries.len(), self.entries.capacity());
        if room > SPARE_MIN && used < room / 4 {
            self.entries.shrink_to(2 * used);
        }
    }

    /// The newest.
    pub fn newest(&self) -> Option<u64> {
        self.entries.iter().rev().find(|entry| !entry.is_settled()).map(|entry| entry.tag)
    }

    /// Takes out all up to this one, oldest first, or the first `most` of them; true: that was all. `None`, and nothing done, if the channel does not have
    /// it. After a part it has it still.
    pub fn take_through(&mut self, tag: u64, most: usize, mut each: impl FnMut(u64, ConsumerId, u64)) -> Option<bool> {
        let all = self.find(tag)? + 1;
        let count = all.min(most);
        for entry in self.entries.drain(..count).filter(|entry| !entry.is_settled()) {
            self.open -= 1;
            each(entry.tag, entry.consumer, entry.offset);
        }
        while self.entries.front().is_some_and(|first| first.is_settled()) {
            self.entries.pop_front();
        }
        self.give_back();
        Some(count == all)
    }

    /// Takes out all, oldest first.
    pub fn take_all(&mut self, mut each: impl FnMut(u64, ConsumerId, u64)) {
        self.open = 0;
        for entry in self.entries.drain(..).filter(|entry| !entry.is_settled()) {
            each(entry.tag, entry.consumer, entry.offset);
        }
        self.give_back();
    }

    /// Puts back what was taken, which is as it was before.
    pub fn restore(&mut self, taken: impl Iterator<Item = (u64, ConsumerId, u64)>) {
        let mut all: Vec<Entry> = self.entries.drain(..).filter(|entry| !entry.is_settled()).collect();
        all.extend(taken.map(|(tag, consumer, offset)| Entry { tag, consumer, offset }));
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
        assert_eq!(unacked.take_through(5, 9, |_, _, offset| seen.push(offset)), None, "it was taken");
        assert_eq!(unacked.take_through(6, 9, |_, _, offset| seen.push(offset)), Some(true));
        assert_eq!(seen, [20, 60]);
        unacked.take_all(|_, _, offset| seen.push(offset));
        assert_eq!(seen, [20, 60, 90]);
        assert_eq!(unacked.take(9), None);
    }

    #[test]
    fn many_are_taken_in_parts() {
        let mut unacked = filled(&[1, 2, 3, 4, 5, 7]);
        assert!(unacked.take(3).is_some() && unacked.take(7).is_some());
        assert_eq!(unacked.newest(), Some(5));
        let mut seen = Vec::new();
        let mut part = |unacked: &mut Unacked| unacked.take_through(5, 2, |tag, _, _| seen.push(tag));
        assert_eq!([part(&mut unacked), part(&mut unacked), part(&mut unacked)], [Some(false), Some(true), None]);
        assert_eq!((seen, unacked.newest()), (vec![1, 2, 4, 5], None));
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

    /// Ten thousand messages, of which one anywhere is settled for each that comes.
    #[test]
    fn settled_anywhere_they_take_little_more_than_what_is_open() {
        const OPEN: u64 = 10_000;
        let mut unacked = Unacked::default();
        let mut tags: Vec<u64> = (1..=OPEN).collect();
        tags.iter().for_each(|tag| unacked.push(*tag, ConsumerId(1), *tag));
        let mut random = 1u64;
        for tag in OPEN + 1..20 * OPEN {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let settled = std::mem::replace(&mut tags[(random >> 33) as usize % OPEN as usize], tag);
            assert_eq!(unacked.take(settled), Some((ConsumerId(1), settled)));
            unacked.push(tag, ConsumerId(1), tag);
        }
        let bytes = unacked.entries.capacity() * size_of::<Entry>();
        assert!(bytes <= 40 * OPEN as usize, "{bytes} bytes for {OPEN} messages");
    }

    #[test]
    fn memory_of_many_is_given_back_when_few_are_left() {
        let all: Vec<u64> = (1..=100_000).collect();
        let mut one_by_one = filled(&all);
        assert!(all.iter().all(|tag| one_by_one.take(*tag).is_some()));
        let mut at_once = filled(&all);
        assert_eq!(at_once.take_through(99_990, 100_000, |_, _, _| ()), Some(true));
        let mut ended = filled(&all);
        ended.take_all(|_, _, _| ());
        for left in [one_by_one, at_once, ended] {
            assert!(left.entries.capacity() <= SPARE_MIN, "{}", left.entries.capacity());
        }
    }

    #[test]
    fn what_is_put_back_is_in_order_again() {
        let mut unacked = filled(&[1, 2, 3, 4]);
        let taken: Vec<_> = [2, 3]
            .map(|tag| unacked.take(tag).map(|(consumer, offset)| (tag, consumer, offset)).expect("there"))
            .to_vec();
        unacked.restore(taken.into_iter());
        let mut seen = Vec::new();
        unacked.take_all(|_, _, offset| seen.push(offset));
        assert_eq!(seen, [10, 20, 30, 40]);
    }
}
