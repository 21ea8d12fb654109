//! What is dead and on its way to the dead letters. It is held like what a consumer has, by [`DEAD_LETTERS`], and claimed by one caller at a
//! time: while it is claimed it has no deadline.
//!
//! ```text
//!            returned as `Dead`      durable: `end_dead_lettering`, `buried`
//! dies ────▶ claimed, no deadline ───────────────────────────────────────────▶ archived
//!                 ▲         │ `release_dead`
//!          `expire` └───────┘ a deadline
//! ```
//!
//! A copy and the record that its original is archived lie in one chunk. That record is a list of what is done, and in memory the original
//! stays claimed until the list is durable: a list that is not changes nothing. What is written of the subscription meanwhile says that the
//! original is dead, and a list outweighs that.

use super::DEAD_LETTER_RETRY_MS;
use super::durable::Changes;
use super::{DEAD_LETTERS, Done, Flight, NO_LOCK, Rules, Subscription};
use crate::runs::Run;

/// Claimed records whose copies are being appended, and the list that archives them.
#[derive(Debug)]
#[must_use = "ends with `Subscription::end_dead_lettering`"]
pub struct DeadLettering {
    number: u64,
    runs: Vec<(u64, u64)>,
}

impl DeadLettering {
    /// What has to be durable together with the copies.
    pub fn changes(&self) -> Changes {
        let list = self.runs.iter().map(|(first, last)| (*first, *last, Done::Archived)).collect();
        Changes {
            start: None,
            given: None,
            pages: Vec::new(),
            levels: Vec::new(),
            list: Some((self.number, list)),
            lists_gone: Vec::new(),
        }
    }
}

impl Subscription {
    /// Records that are dead and wait until their copies are durable.
    pub fn dying(&self) -> u64 {
        self.dying
    }

    /// Is anything on its way to the dead letters?
    pub fn has_dying(&self) -> bool {
        self.dying > 0
    }

    /// What of `first..=last` is claimed: runs, both ends included.
    pub fn claimed_dead(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let mut claimed: Vec<(u64, u64)> = Vec::new();
        for run in self.claimed_within(first, last) {
            match claimed.last_mut() {
                Some((_, end)) if *end + 1 == run.first => *end = run.last,
                _ => claimed.push((run.first, run.last)),
            }
        }
        claimed
    }

    fn claimed_within(&self, first: u64, last: u64) -> impl Iterator<Item = Run<Flight>> + '_ {
        let claimed = |flight: &Flight| flight.consumer == DEAD_LETTERS && flight.deadline == NO_LOCK;
        self.in_flight.within(first, last).filter(move |run| claimed(&run.value))
    }

    /// What of these runs, which ascend, is dead and not yet done with.
    pub fn dying_of(&self, runs: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let dying = runs.iter().flat_map(|(first, last)| self.dying_within(*first, *last));
        dying.map(|run| (run.first, run.last)).collect()
    }

    fn dying_within(&self, first: u64, last: u64) -> Vec<Run<Flight>> {
        self.in_flight.within(first, last).filter(|run| run.value.consumer == DEAD_LETTERS).collect()
    }

    /// What is claimed of `first..=last` cannot be copied now: [`Subscription::expire`] returns it again after a while.
    pub fn release_dead(&mut self, first: u64, last: u64, now: u64, rules: &Rules) {
        let wait = if rules.lock == NO_LOCK { DEAD_LETTER_RETRY_MS } else { rules.lock };
        self.put_off_dead(first, last, now.saturating_add(wait));
    }

    /// What is claimed of `first..=last` is not copied before `at`, in steady ms: [`Subscription::expire`] returns it then.
    pub fn put_off_dead(&mut self, first: u64, last: u64, at: u64) {
        let claimed: Vec<Run<Flight>> = self.claimed_within(first, last).collect();
        for run in claimed {
            self.let_go(run.first, run.last);
            self.hold(run.first, run.last, Flight { deadline: at, ..run.value });
        }
    }

    /// Does anything wait that was put off until `at`?
    pub fn is_put_off_until(&self, at: u64) -> bool {
        self.has_dying()
            && self.in_flight.iter().any(|run| run.value.consumer == DEAD_LETTERS && run.value.deadline == at)
    }

    /// What is dead in `first..=last` is done with, without a copy or with one that is durable.
    pub fn buried(&mut self, first: u64, last: u64) {
        for run in self.dying_within(first, last) {
            self.let_go(run.first, run.last);
            self.settle(run.first, run.last, Done::Archived);
        }
        self.advance();
    }

    /// Copies of these, which the caller has claimed, are about to be appended, together with [`DeadLettering::changes`]. In any order, each
    /// offset once; a list of what is done ascends.
    pub fn begin_dead_lettering(&mut self, mut runs: Vec<(u64, u64)>) -> DeadLettering {
        runs.sort_unstable();
        runs.dedup_by(|next, run| {
            run.1 + 1 == next.0 && {
                run.1 = next.1;
                true
            }
        });
        DeadLettering { number: self.acks.begin(&runs), runs }
    }

    /// The copies are durable, or were not taken: then the originals are as they were.
    pub fn end_dead_lettering(&mut self, of: DeadLettering, durable: bool) {
        for (first, last) in self.acks.end(of.number, durable) {
            for run in self.dying_within(first, last) {
                self.let_go(run.first, run.last);
                self.balance.left += run.last - run.first + 1;
                // The list has said so.
                self.done.insert(run.first, run.last, Done::Archived);
            }
        }
        self.advance();
    }

    /// What is dead and could not be copied is gone without a copy, and with `all` what is yet to be copied as well; returns how many
    /// records that were.
    pub fn purge_dying(&mut self, all: bool) -> u64 {
        let put_off = |flight: &Flight| flight.deadline != NO_LOCK && flight.deadline > 0;
        let purged = if self.dying > 0 { self.purge_held(DEAD_LETTERS, |flight| all || put_off(flight)) } else { 0 };
        self.advance();
        purged
    }
}
