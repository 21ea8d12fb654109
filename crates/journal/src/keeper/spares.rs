//! Freed segment files that are kept, so that a new segment takes no allocation: as many as new segments were made in the last minute, at least
//! one. Files beyond that are removed one at a time, the next one when the disk has the space of the one before, so that flushes of the writer do
//! not wait for it (`disk/remover.rs`).

use std::collections::VecDeque;
use std::io;

use super::Keeper;
use crate::disk::naming;
use crate::recovery::spare_name;

/// Most files that are kept.
const FILES_MAX: usize = 4;
/// The same within a window.
const FILES_MAX_IN_WINDOW: usize = 1;
/// Segments count that were made within so many ms.
const DEMAND_MS: i64 = 60_000;

pub(super) struct Spares {
    names: Vec<String>,
    /// Files that an earlier start has left and that have not the length of a segment: none is kept.
    misfits: Vec<String>,
    /// Part of the next name.
    number: u64,
    max: usize,
    /// When the newest segments were made, at most `max`.
    made: VecDeque<i64>,
    /// When a file could not be removed.
    failed: i64,
}

impl Spares {
    /// A start counts as a minute of demand: the load of before may go on.
    pub fn new(names: Vec<String>, misfits: Vec<String>, has_window: bool, now: i64) -> Self {
        let max = if has_window { FILES_MAX_IN_WINDOW } else { FILES_MAX };
        Self { names, misfits, number: 0, max, made: VecDeque::from(vec![now; max]), failed: i64::MIN }
    }

    /// With those that cannot be used and are still there.
    pub fn files(&self) -> usize {
        self.names.len() + self.misfits.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The file that becomes segment `sequence`. A spare of its name comes first: it would say for ever that a start has put this segment aside.
    pub fn choose(&self, sequence: u64) -> Option<(usize, &str)> {
        let own = self.names.iter().position(|name| *name == spare_name(sequence));
        let at = own.or_else(|| self.names.len().checked_sub(1))?;
        Some((at, &self.names[at]))
    }

    pub fn take(&mut self, at: usize) {
        self.names.swap_remove(at);
    }

    /// It cannot be used: it is removed when that goes.
    pub fn set_aside(&mut self, at: usize) {
        let name = self.names.swap_remove(at);
        self.misfits.push(name);
    }

    pub fn note_made(&mut self, now: i64) {
        if self.made.len() >= self.max {
            self.made.pop_front();
        }
        self.made.push_back(now);
    }

    /// How many files are kept.
    fn wanted(&self, now: i64) -> usize {
        // The clock may go back.
        let is_recent = |at: &&i64| (0..DEMAND_MS).contains(&now.saturating_sub(**at));
        self.made.iter().filter(is_recent).count().max(1)
    }

    pub fn has_room(&self, now: i64) -> bool {
        self.names.len() < self.wanted(now)
    }

    /// A name for the file of segment `sequence`.
    pub fn next_name(&mut self, sequence: u64) -> String {
        self.number += 1;
        format!("spare-{sequence}-{}", self.number)
    }

    pub fn put(&mut self, name: String) {
        self.names.push(name);
    }

    /// The list with a file at its end that is not kept.
    fn surplus(&mut self, now: i64) -> Option<&mut Vec<String>> {
        if !self.misfits.is_empty() {
            return Some(&mut self.misfits);
        }
        (self.names.len() > self.wanted(now)).then_some(&mut self.names)
    }
}

impl Keeper {
    /// A spare becomes the file of a segment. False: there is none that does.
    pub(super) fn use_spare(&mut self, name: &str) -> bool {
        let sequence = self.next_sequence;
        while let Some((at, spare)) = self.spares.choose(sequence).map(|(at, spare)| (at, spare.to_owned())) {
            let renamed = self.storage.rename(&spare, name);
            #[cfg(feature = "planted")]
            if self.journal.planted() == Some(crate::Planted::InsistOnSpare) && renamed.is_err() {
                // As if there were nothing to make a segment of.
                return true;
            }
            // Where its name fails once, its space is there for the file that is made instead.
            if renamed.is_ok() || self.discard_spare(&spare) {
                self.spares.take(at);
            } else {
                self.spares.set_aside(at);
            }
            self.journal.set_spare_segments(self.spares.files());
            match renamed {
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(journal = self.journal.number(), file = spare, %error, "a spare segment file cannot be used")
                }
            }
        }
        false
    }

    /// Removes a spare, if there is one.
    pub(super) fn drop_spare(&mut self) {
        let Some((at, name)) = self.spares.choose(u64::MAX).map(|(at, name)| (at, name.to_owned())) else { return };
        if self.discard_spare(&name) {
            self.spares.take(at);
            self.journal.set_spare_segments(self.spares.files());
        }
    }

    /// False: it is still there.
    fn discard_spare(&mut self, name: &str) -> bool {
        match self.storage.discard(name, None) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.report("remove a spare segment file", Err(naming(name)(error).into()));
                false
            }
            _ => true,
        }
    }

    /// Removes a spare that is not kept, unless other files are on their way out.
    pub(super) fn give_back_spare(&mut self) {
        if self.journal.has_stopped() || self.journal.is_unchecked() || !self.is_quiet_since(self.spares.failed) {
            return;
        }
        let now = self.journal.now_ms();
        let surplus = self.spares.surplus(now).and_then(|names| names.last().cloned());
        let Some(name) = surplus.filter(|_| self.storage.dead_bytes() == 0) else { return };
        if !self.discard_spare(&name) {
            self.spares.failed = now;
            return;
        }
        self.spares.surplus(now).into_iter().for_each(|names| drop(names.pop()));
        self.journal.set_spare_segments(self.spares.files());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spares(count: usize, has_window: bool) -> Spares {
        let mut spares = Spares::new(Vec::new(), Vec::new(), has_window, 0);
        for sequence in 0..count as u64 {
            let name = spares.next_name(sequence);
            spares.put(name);
        }
        spares
    }

    #[test]
    fn as_many_are_kept_as_segments_were_made_in_the_last_minute() {
        let mut spares = spares(4, false);
        assert!(spares.surplus(DEMAND_MS - 1).is_none(), "a start is demand");
        assert_eq!(spares.wanted(DEMAND_MS), 1);
        for (made, wanted) in [(100_000, 1), (110_000, 2), (120_000, 3), (130_000, 4), (131_000, 4)] {
            spares.note_made(made);
            assert_eq!(spares.wanted(made), wanted);
        }
        assert_eq!([169_999, 170_000, 180_000, 190_000, 500_000].map(|now| spares.wanted(now)), [4, 3, 2, 1, 1]);
        spares.note_made(50_000);
        assert_eq!(spares.wanted(50_000), 1, "the clock went back");
    }

    #[test]
    fn one_is_kept_in_a_window_and_at_rest_and_none_that_does_not_fit() {
        let mut within = spares(2, true);
        assert!(within.surplus(0).is_some_and(|names| names.pop().is_some()) && within.surplus(0).is_none());
        assert!(!within.has_room(0));
        let mut other = Spares::new(vec!["spare-1-1".to_owned()], vec!["spare-2-2".to_owned()], false, 0);
        assert_eq!(other.surplus(DEMAND_MS).and_then(Vec::pop).as_deref(), Some("spare-2-2"));
        assert!(other.surplus(DEMAND_MS).is_none() && other.has_room(0) && !other.has_room(DEMAND_MS));
    }

    #[test]
    fn a_segment_that_was_put_aside_comes_back_first() {
        let mut spares = spares(1, false);
        spares.put(spare_name(9));
        spares.put("spare-5-1".to_owned());
        assert_eq!(spares.choose(9), Some((1, spare_name(9).as_str())));
        assert_eq!(spares.choose(8), Some((2, "spare-5-1")));
    }
}
