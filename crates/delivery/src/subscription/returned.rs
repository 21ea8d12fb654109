//! In which order records are given out again that were returned, where that is the order of their returns: a quorum queue serves them
//! before all others. They are a level of their own, above all others; here is their order in it.
//!
//! The order is kept as runs, and only of so many: with more it is that of the log from then on, until none is left. After a restart it
//! is that of the log, too.

use std::collections::VecDeque;

use super::Tries;
use crate::runs::Runs;

/// The level of what was returned.
pub(super) const RETURNED: u8 = u8::MAX;
/// Runs, at most.
const RUNS_MAX: usize = 4096;
/// Everything, in the order of the log.
const ALL: (u64, u64) = (0, u64::MAX);

#[derive(Clone, Debug, Default)]
pub(super) struct Returned {
    /// Both ends included; none lies within another.
    order: VecDeque<(u64, u64)>,
}

impl Returned {
    /// These have come back.
    pub fn push(&mut self, first: u64, last: u64) {
        if self.order.front() == Some(&ALL) {
            return;
        }
        match self.order.back_mut() {
            Some(run) if run.1 + 1 == first => run.1 = last,
            _ => self.order.push_back((first, last)),
        }
        if self.order.len() > RUNS_MAX {
            self.order = VecDeque::from([ALL]);
        }
    }

    /// These have gone; they are some of what came back.
    pub fn take(&mut self, first: u64, last: u64) {
        match self.order.front_mut() {
            None | Some(&mut ALL) => {}
            Some(run) if *run == (first, last) => drop(self.order.pop_front()),
            Some(run) if run.0 == first && last < run.1 => run.0 = last + 1,
            Some(_) => {
                let without = |run: (u64, u64)| {
                    let (before, after) = ((run.0, run.1.min(first.wrapping_sub(1))), (run.0.max(last + 1), run.1));
                    let apart = run.1 < first || last < run.0;
                    let parts = if apart {
                        [Some(run), None]
                    } else {
                        [Some(before).filter(|_| run.0 < first), Some(after).filter(|_| last < run.1)]
                    };
                    parts.into_iter().flatten()
                };
                self.order = std::mem::take(&mut self.order).into_iter().flat_map(without).collect();
            }
        }
    }

    /// None is left.
    pub fn clear(&mut self) {
        self.order.clear();
    }

    /// The first of `runs`, which are all that came back.
    pub fn head(&self, runs: &Runs<Tries>) -> Option<u64> {
        let found = self.order.iter().find_map(|(first, last)| runs.within(*first, *last).next());
        found.or_else(|| runs.first()).map(|run| run.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(runs: &[(u64, u64)]) -> Runs<Tries> {
        let mut out = Runs::default();
        runs.iter().for_each(|(first, last)| out.insert(*first, *last, Tries::default()));
        out
    }

    #[test]
    fn what_comes_back_first_goes_out_first() {
        let (mut returned, mut runs) = (Returned::default(), all(&[(2, 3), (5, 9)]));
        returned.push(5, 9);
        returned.push(2, 3);
        let mut seen = Vec::new();
        while let Some(head) = returned.head(&runs).filter(|_| seen.len() < 3) {
            seen.push(head);
            runs.take_one(head);
            returned.take(head, head);
        }
        assert_eq!(seen, [5, 6, 7]);
        // One of the middle goes to somebody else, and comes back at the end.
        runs.take_one(9);
        returned.take(9, 9);
        runs.insert(9, 9, Tries::default());
        returned.push(9, 9);
        assert_eq!(returned.order, [(8, 8), (2, 3), (9, 9)]);
        returned.take(2, 9);
        assert!(returned.order.is_empty());
    }

    #[test]
    fn with_too_many_runs_the_order_is_that_of_the_log() {
        let mut returned = Returned::default();
        let runs: Vec<(u64, u64)> = (0..=RUNS_MAX as u64).map(|number| (number * 2, number * 2)).collect();
        runs.iter().rev().for_each(|(first, last)| returned.push(*first, *last));
        assert_eq!(returned.order.len(), 1);
        assert_eq!(returned.head(&all(&runs)), Some(0));
        returned.take(0, 0);
        assert_eq!(returned.head(&all(&runs[1..])), Some(2));
    }
}
