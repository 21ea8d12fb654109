//! What of a subscription outlives a restart: changes as pages, and a subscription made of them.

use super::ready::Waiting;
use super::{DEAD_LETTERS, Done, Flight, LevelPage, Subscription, Tries, Written};
use crate::runs::Run;
use crate::subscription_record::{PAGE_OFFSETS, PageRun, RUN_BYTES, StoredState, page_bytes_max};

impl Subscription {
    /// From what was durable: the start and the runs of all pages.
    pub fn restore(start: u64, runs: impl IntoIterator<Item = PageRun>) -> Self {
        Self::restore_with(start, runs, [])
    }

    /// The same with lists of what is done, each with its number and its bytes.
    pub fn restore_with(
        start: u64,
        runs: impl IntoIterator<Item = PageRun>,
        lists: impl IntoIterator<Item = (u64, usize, DoneList)>,
    ) -> Self {
        let mut restored = Self { start_changed: false, ..Self::new(start) };
        for (number, bytes, list) in lists {
            let list: Vec<Run<Done>> =
                list.into_iter().map(|(first, last, value)| Run { first, last, value }).collect();
            restored.acks.restore(number, bytes, &list);
            for run in list {
                for (first, last) in restored.not_done(run.first.max(start), run.last) {
                    restored.done.insert(first, last, run.value);
                }
                restored.end = restored.end.max(run.last + 1);
            }
        }
        for PageRun { first, last, state } in runs {
            *restored.stored.entry(first / PAGE_OFFSETS).or_default() += RUN_BYTES;
            // A page may be older than the start, and than what lists say.
            for (first, last) in restored.not_done(first.max(start), last) {
                match state {
                    StoredState::Done(done) => restored.done.insert(first, last, done),
                    StoredState::Returned(tries) => restored.ready.insert(first, last, Waiting { tries, level: None }),
                    StoredState::Dead(tries, reason) => {
                        let flight =
                            Flight { consumer: DEAD_LETTERS, deadline: 0, tries, level: None, reason: Some(reason) };
                        restored.hold(first, last, flight);
                    }
                }
            }
            restored.end = restored.end.max(last + 1);
        }
        let mut free = restored.start;
        let mut known = restored.known();
        known.sort_unstable();
        for (first, last) in known {
            if free < first {
                restored.ready.insert(free, first - 1, Waiting::NEW);
            }
            free = last + 1;
        }
        restored.advance();
        restored.begin_balance();
        restored
    }

    /// Keeps the end of what was given out from now on: with `start`, for eight bytes more. `before`: what was kept in an earlier
    /// life, or the end of the log, if that life did not end in order.
    pub fn remember_given(&mut self, before: u64) {
        if self.given.is_none() || before > self.given_before {
            self.given_before = self.given_before.max(before);
            self.given = Some(self.given.unwrap_or(0).max(before));
            self.start_changed |= !self.unwritten || before > self.start;
        }
    }

    /// May this record, which was delivered so often before that is known of, have been delivered before?
    pub fn redelivered(&self, offset: u64, before: Tries) -> bool {
        before.deliveries() > 0 || offset < self.given_before
    }

    /// What has to be made durable since the last call: the new start, if it moved, and pages with their runs; an empty page
    /// is to be deleted.
    pub fn take_changes(&mut self) -> Changes {
        let mut pages = Vec::new();
        let first_page = self.start / PAGE_OFFSETS;
        let passed: Vec<u64> = self.stored.range(..first_page).map(|(page, _)| *page).collect();
        for page in passed {
            self.stored.remove(&page);
            pages.push((page, Vec::new()));
        }
        self.ready.forget_tried(first_page);
        let mut changed = std::mem::take(&mut self.changed).split_off(&first_page);
        changed.iter().for_each(|page| self.acks.written(*page));
        let stored = &self.stored;
        let list = match self.acks.take(self.start, |page| stored.get(&page).copied().unwrap_or(0)) {
            Written::List(number, runs) => {
                Some((number, runs.into_iter().map(|run| (run.first.max(self.start), run.last, run.value)).collect()))
            }
            Written::Pages(lagging) => {
                changed.extend(lagging);
                None
            }
        };
        for page in changed {
            let (first, last) = (page * PAGE_OFFSETS, page * PAGE_OFFSETS + (PAGE_OFFSETS - 1));
            let done = self.done.within(first, last).map(|run| PageRun {
                first: run.first,
                last: run.last,
                state: StoredState::Done(run.value),
            });
            let mut runs: Vec<PageRun> = done.chain(self.returned(first, last)).collect();
            runs.sort_unstable_by_key(|run| run.first);
            if runs.is_empty() {
                if self.stored.remove(&page).is_some() {
                    pages.push((page, runs));
                }
            } else {
                self.stored.insert(page, (runs.len() * RUN_BYTES).min(page_bytes_max()));
                pages.push((page, runs));
            }
        }
        let levels = self.take_level_changes();
        let first = self.unwritten && !(pages.is_empty() && levels.is_empty() && list.is_none());
        let start = (std::mem::take(&mut self.start_changed) || first).then_some(self.start);
        self.unwritten &= start.is_none();
        Changes {
            start,
            given: self.given.filter(|_| start.is_some()),
            pages,
            levels,
            list,
            lists_gone: self.acks.take_gone(),
        }
    }

    /// What has been delivered and came back, or is out again, and what is dead: how often it was delivered must outlive a restart.
    fn returned(&self, first: u64, last: u64) -> impl Iterator<Item = PageRun> + '_ {
        let ready = self.ready.tried_within(first, last).into_iter();
        let ready =
            ready.map(|run| PageRun { first: run.first, last: run.last, state: StoredState::Returned(run.value) });
        let out = self.in_flight.within(first, last).map(|run| {
            let tries = run.value.tries;
            let returned = StoredState::Returned(tries.not_delivered());
            let state = run.value.reason.map_or(returned, |reason| StoredState::Dead(tries, reason));
            PageRun { first: run.first, last: run.last, state }
        });
        ready.chain(out).filter(|run| run.state != StoredState::Returned(Tries::default()))
    }

    /// Is there no record of it yet?
    pub fn is_unwritten(&self) -> bool {
        self.unwritten
    }

    /// Is there something that [`Subscription::take_changes`] would give?
    pub fn has_changes(&self) -> bool {
        self.start_changed || !self.changed.is_empty() || self.acks.has_changes() || self.levels.has_changes()
    }

    /// The changes taken last did not become durable: everything counts as changed.
    pub fn set_changed(&mut self) {
        self.start_changed = true;
        self.changed.extend(self.stored.keys().copied());
        self.acks.forget();
        self.levels.set_changed();
        for (first, last) in self.known() {
            self.touch(first, last);
        }
    }

    /// All runs, in no order.
    fn known(&self) -> Vec<(u64, u64)> {
        let done = self.done.iter().map(|run| (run.first, run.last));
        let ready = self.ready.iter().map(|run| (run.first, run.last));
        done.chain(ready).chain(self.in_flight.iter().map(|run| (run.first, run.last))).collect()
    }

    /// The parts of a range that are not done.
    fn not_done(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let (mut free, mut parts) = (first, Vec::new());
        for run in self.done.within(first, last) {
            if free < run.first {
                parts.push((free, run.first - 1));
            }
            free = run.last + 1;
        }
        if free <= last {
            parts.push((free, last));
        }
        parts
    }

    /// Numbers of the lists of what is done that are durable, or on their way.
    pub fn stored_lists(&self) -> impl Iterator<Item = u64> + '_ {
        self.acks.lists()
    }

    /// Numbers of the pages of levels that are durable, or on their way.
    pub fn stored_levels(&self) -> impl Iterator<Item = u64> + '_ {
        self.levels.stored()
    }

    /// Numbers of the pages that are durable, or on their way.
    pub fn stored_pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.stored.keys().copied()
    }
}

/// What is done: first and last offsets, ascending.
pub type DoneList = Vec<(u64, u64, Done)>;

/// What changed in a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The new start.
    pub start: Option<u64>,
    /// The end of what was given out, where that is kept; never without the start.
    pub given: Option<u64>,
    /// Pages by number, with their runs.
    pub pages: Vec<(u64, Vec<PageRun>)>,
    /// Pages of levels by number; `None`: to be deleted.
    pub levels: Vec<(u64, Option<LevelPage>)>,
    /// A list of what is done, with its number.
    pub list: Option<(u64, DoneList)>,
    /// Lists that are to be deleted.
    pub lists_gone: Vec<u64>,
}

impl Changes {
    /// Nothing changed.
    pub fn is_empty(&self) -> bool {
        self.start.is_none()
            && self.pages.is_empty()
            && self.levels.is_empty()
            && self.list.is_none()
            && self.lists_gone.is_empty()
    }
}
