//! Offsets that hold no message: markers of transactions, records of aborted ones, what compaction removed. Whoever reads the log tells of
//! them ([`Subscription::note_gap`]), so that they do not count as available.
//!
//! ```text
//!      start          end                 searched            log end
//! ─────┴──────────────┴───────────────────┴───────────────────┴──▶ offsets
//!      a gap is done   gaps are kept here  may hold gaps that nobody has found
//! ```
//!
//! Below `end` a gap is archived. Above it the gaps are a set of their own, because what is done is kept durably, and gaps are found again.
//! From `searched` on each offset counts as a message for those who ask how many there may be ([`Subscription::ready`]), and as none for
//! limits ([`Subscription::ready_for_certain`]): a message is never dropped because of an offset that may hold none.

use super::ready::Waiting;
use super::time_outs::DELAYED;
use super::{DEAD_LETTERS, Done, Flight, Subscription};
use crate::runs::{Run, Runs};

/// A set of offsets that hold no message.
#[derive(Clone, Debug, Default)]
pub struct Gaps(Runs<()>);

impl Gaps {
    /// Enters `first..=last`; parts may be there already. Returns how many offsets are new.
    pub fn insert(&mut self, first: u64, last: u64) -> u64 {
        let before = self.0.count();
        let known: Vec<Run<()>> = self.0.within(first, last).collect();
        let mut from = first;
        for run in known {
            if from < run.first {
                self.0.insert(from, run.first - 1, ());
            }
            from = run.last + 1;
        }
        if from <= last {
            self.0.insert(from, last, ());
        }
        self.0.count() - before
    }

    /// Forgets what lies below `to`.
    pub fn trim(&mut self, to: u64) {
        if to > 0 && !self.0.is_empty() {
            self.0.take(0, to - 1);
        }
    }

    /// How many offsets below `end` it holds.
    pub fn count_below(&self, end: u64) -> u64 {
        if self.0.is_empty() {
            return 0;
        }
        self.0.count() - self.0.within(end, u64::MAX).map(|run| run.last - run.first + 1).sum::<u64>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, first: u64, last: u64) -> Vec<Run<()>> {
        self.0.take(first, last)
    }
}

/// How far a subscription's log was searched for gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Searched {
    /// To before this offset; `u64::MAX`: there are none to be searched for.
    pub until: u64,
    /// How often the log had been compacted by then.
    pub compactions: u64,
}

impl Searched {
    /// Nobody searches: what is told of gaps is all there is.
    pub const ALL: Self = Self { until: u64::MAX, compactions: 0 };
}

impl Subscription {
    /// How far the log was searched for gaps.
    pub fn searched(&self) -> Searched {
        self.searched
    }

    /// The log was searched so far, and what was found was told.
    pub fn set_searched(&mut self, searched: Searched) {
        self.searched = searched;
    }

    /// There are no messages in `first..=last`, wherever that lies. What a consumer has of it stays with the consumer until it is settled, and is
    /// not given out again.
    pub fn note_gap(&mut self, first: u64, last: u64) {
        let first = first.max(self.start);
        if first < self.end.min(last.saturating_add(1)) {
            let until = last.min(self.end - 1);
            for run in self.take_ready(first, until) {
                self.forget_keys(run.first, run.last, false);
                self.settle(run.first, run.last, Done::Archived);
            }
            let held: Vec<Run<Flight>> = self.in_flight.within(first, until).collect();
            for run in held {
                match run.value.consumer {
                    DEAD_LETTERS => {}
                    DELAYED => {
                        self.let_go(run.first, run.last);
                        self.settle(run.first, run.last, Done::Archived);
                    }
                    _ => drop(self.removed.insert(run.first, run.last)),
                }
            }
            self.advance();
        }
        if last >= self.end {
            self.gaps.insert(first.max(self.end), last);
            self.pass_gaps();
        }
    }

    /// Gaps below the end of the log that nobody has come to.
    pub(super) fn gaps_ahead(&self, log_end: u64) -> u64 {
        self.gaps.count_below(log_end)
    }

    /// What lies behind `end`, up to `last`, has been looked at: it is ready, but for the gaps.
    pub(super) fn extend(&mut self, last: u64) {
        let mut from = self.end;
        self.end = last + 1;
        let has_gaps = !self.gaps.is_empty();
        if has_gaps {
            for gap in self.gaps.take(from, last) {
                if from < gap.first {
                    self.ready.insert(from, gap.first - 1, Waiting::NEW);
                }
                self.settle(gap.first, gap.last, Done::Archived);
                from = gap.last + 1;
            }
        }
        if from <= last {
            self.ready.insert(from, last, Waiting::NEW);
        }
        if has_gaps {
            self.pass_gaps();
        }
    }

    /// A gap right behind what was looked at has been looked at, too.
    pub(super) fn pass_gaps(&mut self) {
        while let Some(gap) = self.gaps.0.first().filter(|gap| gap.first <= self.end) {
            self.gaps.take(gap.first, gap.last);
            if gap.last >= self.end {
                self.settle(self.end, gap.last, Done::Archived);
                self.end = gap.last + 1;
            }
        }
        self.advance();
    }

    /// Takes those parts of a run, which nobody has any more, that are not in the log any more; returns the other parts.
    pub(super) fn settle_removed(&mut self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let (mut from, mut left) = (first, Vec::new());
        for gap in self.removed.take(first, last) {
            if from < gap.first {
                left.push((from, gap.first - 1));
            }
            self.forget_keys(gap.first, gap.last, true);
            self.settle(gap.first, gap.last, Done::Archived);
            from = gap.last + 1;
        }
        if from <= last {
            left.push((from, last));
        }
        left
    }

    /// Has compaction removed something that consumers have?
    pub(super) fn has_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// Some of what consumers had is settled.
    pub(super) fn forget_removed(&mut self, first: u64, last: u64) {
        if self.has_removed() {
            self.removed.take(first, last);
        }
    }

    /// The log begins at `to`.
    pub(super) fn trim_gaps(&mut self, to: u64) {
        self.gaps.trim(to);
        self.removed.trim(to);
    }
}
