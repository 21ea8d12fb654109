//! The aborted transactions of one log, in the order of their markers. Asked for those with records in a range of offsets, it looks
//! at as many as there are in the answer, about, however many there are in all: above the list lie the smallest first offsets
//! of groups of them, of groups of groups, and so on.

use std::ops::Range;

use types::Offset;

use crate::transactions::AbortedTransaction;

/// How many make a group.
const GROUP: usize = 32;

/// The list.
#[derive(Clone, Debug, Default)]
pub(crate) struct AbortedList {
    /// By last offset. Those before `begin` are forgotten.
    all: Vec<AbortedTransaction>,
    begin: usize,
    /// Smallest first offsets: of groups of `all`, of groups of those, … up to a single one.
    smallest: Vec<Vec<Offset>>,
}

impl From<Vec<AbortedTransaction>> for AbortedList {
    fn from(all: Vec<AbortedTransaction>) -> Self {
        let mut list = Self::default();
        all.into_iter().for_each(|one| list.push(one));
        list
    }
}

impl PartialEq for AbortedList {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for AbortedList {}

impl AbortedList {
    /// All of them, by last offset.
    pub fn as_slice(&self) -> &[AbortedTransaction] {
        &self.all[self.begin..]
    }

    /// Adds one whose marker lies behind those of all others.
    pub fn push(&mut self, one: AbortedTransaction) {
        let mut at = self.all.len();
        self.all.push(one);
        for level in 0.. {
            at /= GROUP;
            if level == self.smallest.len() {
                let below =
                    self.smallest.last().map_or(one.first, |below| below.iter().copied().min().unwrap_or(one.first));
                self.smallest.push(vec![below]);
            } else if let Some(smallest) = self.smallest[level].get_mut(at) {
                *smallest = one.first.min(*smallest);
            } else {
                self.smallest[level].push(one.first);
            }
            if self.smallest[level].len() == 1 {
                return;
            }
        }
    }

    /// Forgets those with markers below `start`.
    pub fn forget_below(&mut self, start: Offset) {
        self.begin += self.as_slice().partition_point(|one| one.last < start);
        // Moving the others is paid by as many that go.
        if self.begin > self.all.len() / 2 {
            *self = self.as_slice().to_vec().into();
        }
    }

    /// Of those with markers in `range` only `kept` stay.
    pub fn keep(&mut self, range: Range<Offset>, kept: &[AbortedTransaction]) {
        let stays = |one: &&AbortedTransaction| !range.contains(&one.last) || kept.contains(one);
        if !self.as_slice().iter().all(|one| stays(&one)) {
            *self = self.as_slice().iter().filter(stays).copied().collect::<Vec<_>>().into();
        }
    }

    /// Those with records in `from..until`, by last offset.
    pub fn between(&self, from: Offset, until: Offset) -> impl Iterator<Item = &AbortedTransaction> {
        let mut at = self.begin + self.as_slice().partition_point(|one| one.last < from);
        std::iter::from_fn(move || {
            let found = self.next_below(at, until, &mut 0)?;
            at = found + 1;
            self.all.get(found)
        })
    }

    /// The next one, from `at` on, with a first offset below `until`. Counts the offsets that it looks at.
    fn next_below(&self, mut at: usize, until: Offset, looks: &mut usize) -> Option<usize> {
        // 0: single ones; above that, groups.
        let mut level = 0;
        loop {
            let first = match level {
                0 => self.all.get(at)?.first,
                _ => *self.smallest[level - 1].get(at)?,
            };
            *looks += 1;
            match (first < until, level) {
                (true, 0) => return Some(at),
                (true, _) => (level, at) = (level - 1, at * GROUP),
                (false, _) => {
                    at += 1;
                    // The group is through: its neighbour on the level above is next.
                    if at.is_multiple_of(GROUP) && level < self.smallest.len() {
                        (level, at) = (level + 1, at / GROUP);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(first: u64, last: u64) -> AbortedTransaction {
        AbortedTransaction { producer_id: first as i64, first: Offset(first), last: Offset(last) }
    }

    fn plain(all: &[AbortedTransaction], from: u64, until: u64) -> Vec<AbortedTransaction> {
        all.iter().filter(|one| one.last >= Offset(from) && one.first < Offset(until)).copied().collect()
    }

    fn between(list: &AbortedList, from: u64, until: u64) -> Vec<AbortedTransaction> {
        list.between(Offset(from), Offset(until)).copied().collect()
    }

    #[test]
    fn the_answer_is_what_a_look_at_all_finds() {
        let (mut list, mut all, mut random) = (AbortedList::default(), Vec::new(), 1u64);
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for last in 1..5000u64 {
            let reach = if next(10) == 0 { last } else { 20.min(last) };
            let new = one(last - 1 - next(reach), last);
            list.push(new);
            all.push(new);
            match next(500) {
                0 => {
                    let start = next(last);
                    list.forget_below(Offset(start));
                    all.retain(|one| one.last >= Offset(start));
                }
                1 => {
                    let (begin, length) = (next(last), next(100));
                    let range = Offset(begin)..Offset(begin + length);
                    let kept: Vec<_> = all.iter().filter(|one| one.last.0.is_multiple_of(3)).copied().collect();
                    list.keep(range.clone(), &kept);
                    all.retain(|one| !range.contains(&one.last) || kept.contains(one));
                }
                _ => {}
            }
            let from = next(last + 5);
            let until = from + next(60);
            assert_eq!(between(&list, from, until), plain(&all, from, until), "{from}..{until} at {last}");
            assert_eq!(list.as_slice(), all);
        }
        assert_eq!(list, AbortedList::from(all));
    }

    #[test]
    fn what_was_aborted_later_is_not_looked_at() {
        const ALL: u64 = 100_000;
        let mut list = AbortedList::default();
        (0..ALL).for_each(|number| list.push(one(number * 10, number * 10 + 5)));
        // One that was open all the time ends last.
        list.push(one(3, ALL * 10));
        for from in [0, 500_000, 999_990] {
            let found = between(&list, from, from + 10);
            assert_eq!(found, [one(from, from + 5), one(3, ALL * 10)]);
            let (mut looks, mut at) = (0, list.as_slice().partition_point(|one| one.last < Offset(from)));
            while let Some(found) = list.next_below(at, Offset(from + 10), &mut looks) {
                at = found + 1;
            }
            assert!(looks < 500, "{looks} of {ALL} were looked at for two");
        }
    }
}
