//! What is done behind the start, as a copy, for those who keep records no longer than somebody needs them.

use super::{Done, Subscription};
use crate::runs::Runs;

/// Offsets that were done behind the start of a subscription when the copy was made.
#[derive(Clone, Debug)]
pub struct DoneOffsets(Runs<Done>);

impl DoneOffsets {
    /// Those in `first..=last` as runs, both ends included; they ascend, and do not touch each other.
    pub fn within(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let mut found: Vec<(u64, u64)> = Vec::new();
        for run in self.0.within(first, last) {
            match found.last_mut() {
                Some((_, end)) if *end + 1 == run.first => *end = run.last,
                _ => found.push((run.first, run.last)),
            }
        }
        found
    }
}

impl Subscription {
    /// Is anything done behind the start?
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// What is done behind the start now. What is dead and waits for its copy is not among it, nor what will be given out again. Takes as much
    /// memory as the subscription has for it.
    pub fn done_offsets(&self) -> DoneOffsets {
        DoneOffsets(self.done.clone())
    }

    /// How many offsets have been settled or trimmed since the state is in memory; the same number: nothing more is done.
    pub fn settled(&self) -> u64 {
        self.balance.left
    }
}
