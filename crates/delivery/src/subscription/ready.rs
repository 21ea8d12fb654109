//! What is ready to be given out: runs of offsets, each with how often it was delivered; by level where there are levels.
//!
//! Levels are runs over one log, never copies. Without levels, which is most often, there is one map of runs, `plain`, and nothing
//! else. With levels `plain` holds what has not been read yet, so that its level is not known.

use std::collections::BTreeSet;

use super::Tries;
use super::returned::{RETURNED, Returned};
use crate::runs::{Run, Runs};
use crate::subscription_record::PAGE_OFFSETS;

/// What is kept of a ready run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub tries: Tries,
    /// `None`: not known, or there are no levels.
    pub level: Option<u8>,
}

impl Waiting {
    /// Of what has just been looked at.
    pub const NEW: Self = Self { tries: Tries { counted: 0, spared: 0 }, level: None };
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ready {
    /// Pages into which something came that was delivered before; it may have left.
    tried: BTreeSet<u64>,
    plain: Runs<Tries>,
    /// Highest first; none is empty.
    levels: Vec<(u8, Runs<Tries>)>,
    /// The order within [`RETURNED`], where that is the level of what was returned; elsewhere it is one like all others.
    returned: Option<Returned>,
}

impl Ready {
    /// Offsets.
    pub fn count(&self) -> u64 {
        self.plain.count() + self.levels.iter().map(|(_, runs)| runs.count()).sum::<u64>()
    }

    /// Is nothing ready, and nothing kept of what was?
    pub fn is_empty(&self) -> bool {
        self.tried.is_empty() && self.count() == 0
    }

    /// The first offset of all.
    pub fn first(&self) -> Option<u64> {
        let plain = self.plain.first().map(|run| run.first);
        let levels = self.levels.iter().filter_map(|(_, runs)| runs.first()).map(|run| run.first);
        plain.into_iter().chain(levels).min()
    }

    /// The first run of which no level is known.
    pub fn first_plain(&self) -> Option<Run<Tries>> {
        self.plain.first()
    }

    /// Levels with the offset that is first in each, highest first.
    pub fn heads(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        self.levels.iter().filter_map(|(level, runs)| {
            let returned = self.returned.as_ref().filter(|_| *level == RETURNED);
            let first = returned.map_or_else(|| runs.first().map(|run| run.first), |returned| returned.head(runs));
            first.map(|offset| (*level, offset))
        })
    }

    /// The first offset that is wanted.
    pub fn find(&self, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let first =
            |runs: &Runs<Tries>| runs.iter().flat_map(|run| run.first..=run.last).find(|offset| wanted(*offset));
        first(&self.plain).into_iter().chain(self.levels.iter().filter_map(|(_, runs)| first(runs))).min()
    }

    pub fn insert(&mut self, first: u64, last: u64, Waiting { tries, level }: Waiting) {
        if tries != Tries::default() {
            self.tried.extend(first / PAGE_OFFSETS..=last / PAGE_OFFSETS);
        }
        let Some(level) = level else { return self.plain.insert(first, last, tries) };
        self.of_level(level).insert(first, last, tries);
        if let Some(returned) = self.returned.as_mut().filter(|_| level == RETURNED) {
            returned.push(first, last);
        }
    }

    fn of_level(&mut self, level: u8) -> &mut Runs<Tries> {
        let at = self.levels.binary_search_by(|(other, _)| level.cmp(other)).unwrap_or_else(|at| {
            self.levels.insert(at, (level, Runs::default()));
            at
        });
        &mut self.levels[at].1
    }

    /// As [`Ready::insert`], where each offset has a level of its own.
    pub fn insert_levelled(&mut self, first: u64, last: u64, tries: Tries, level: &mut dyn FnMut(u64) -> u8) {
        let (mut from, mut current) = (first, level(first));
        for offset in first + 1..=last {
            let next = level(offset);
            if next != current {
                self.of_level(current).insert(from, offset - 1, tries);
                (from, current) = (offset, next);
            }
        }
        self.of_level(current).insert(from, last, tries);
    }

    /// Takes out what has no level and lies in `first..=last`.
    pub fn take_plain(&mut self, first: u64, last: u64) -> Vec<Run<Tries>> {
        self.plain.take(first, last)
    }

    /// Is there something in `first..=last` that has no level?
    pub fn has_plain(&self, first: u64, last: u64) -> bool {
        self.plain.within(first, last).next().is_some()
    }

    /// Tells runs with their levels, level by level.
    pub fn levels_within(&self, first: u64, last: u64, each: &mut dyn FnMut(u64, u64, u8)) {
        for (level, runs) in &self.levels {
            runs.within(first, last).for_each(|run| each(run.first, run.last, *level));
        }
    }

    /// Nothing lies before `page` any more.
    pub fn forget_tried(&mut self, page: u64) {
        self.tried = self.tried.split_off(&page);
    }

    /// Takes out whatever lies in `first..=last`, in the order of offsets.
    pub fn take(&mut self, first: u64, last: u64) -> Vec<Run<Waiting>> {
        let waiting = |level| {
            move |Run { first, last, value }| Run { first, last, value: Waiting { tries: value, level: Some(level) } }
        };
        let unlevelled = |Run { first, last, value }| Run { first, last, value: Waiting { tries: value, level: None } };
        let mut taken: Vec<Run<Waiting>> = self.plain.take(first, last).into_iter().map(unlevelled).collect();
        if !self.levels.is_empty() {
            for (level, runs) in &mut self.levels {
                let of_level = runs.take(first, last);
                if let Some(returned) = self.returned.as_mut().filter(|_| *level == RETURNED) {
                    of_level.iter().for_each(|run| returned.take(run.first, run.last));
                }
                taken.extend(of_level.into_iter().map(waiting(*level)));
            }
            self.drop_empty_levels();
            taken.sort_unstable_by_key(|run| run.first);
        }
        taken
    }

    /// Takes out one offset.
    pub fn take_one(&mut self, offset: u64) -> Option<Waiting> {
        if let Some(tries) = self.plain.take_one(offset) {
            return Some(Waiting { tries, level: None });
        }
        let (at, tries) =
            self.levels.iter_mut().enumerate().find_map(|(at, (_, runs))| Some((at, runs.take_one(offset)?)))?;
        let level = self.levels[at].0;
        if let Some(returned) = self.returned.as_mut().filter(|_| level == RETURNED) {
            returned.take(offset, offset);
        }
        if self.levels[at].1.is_empty() {
            self.drop_empty_levels();
        }
        Some(Waiting { tries, level: Some(level) })
    }

    fn drop_empty_levels(&mut self) {
        self.levels.retain(|(_, runs)| !runs.is_empty());
        if self.levels.first().is_none_or(|(level, _)| *level != RETURNED)
            && let Some(returned) = &mut self.returned
        {
            returned.clear();
        }
    }

    /// The parts of runs that lie in `first..=last`, in order.
    pub fn within(&self, first: u64, last: u64) -> Vec<Run<Tries>> {
        let mut found: Vec<Run<Tries>> = self.plain.within(first, last).collect();
        if !self.levels.is_empty() {
            found.extend(self.levels.iter().flat_map(|(_, runs)| runs.within(first, last)));
            found.sort_unstable_by_key(|run| run.first);
        }
        found
    }

    /// The parts of runs that lie in `first..=last` and were delivered before, in order.
    pub fn tried_within(&self, first: u64, last: u64) -> Vec<Run<Tries>> {
        let pages = first / PAGE_OFFSETS..=last / PAGE_OFFSETS;
        if self.tried.range(pages).next().is_none() {
            return Vec::new();
        }
        self.within(first, last).into_iter().filter(|run| run.value != Tries::default()).collect()
    }

    /// All runs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Run<Tries>> + '_ {
        self.plain.iter().chain(self.levels.iter().flat_map(|(_, runs)| runs.iter()))
    }

    /// What was returned is a level of its own from now on, or no longer; all levels are forgotten.
    pub fn set_returned_first(&mut self, first: bool) {
        self.forget_levels();
        self.returned = first.then(Returned::default);
    }

    /// Forgets all levels: what they held has to be read again.
    pub fn forget_levels(&mut self) {
        self.returned.iter_mut().for_each(Returned::clear);
        for (_, runs) in std::mem::take(&mut self.levels) {
            for run in runs.iter() {
                self.plain.insert(run.first, run.last, run.value);
            }
        }
    }
}
