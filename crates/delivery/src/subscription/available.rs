//! What a queue does with available records: gives one out at a time, finds the next by its level, drops, purges and counts them.

use super::ready::Waiting;
use super::returned::RETURNED;
use super::time_outs::DELAYED;
use super::{ConsumerId, DEAD_LETTERS, Dead, DeadReason, Done, Flight, Rules, Subscription, Tries};
use crate::runs::Run;

impl Subscription {
    /// Available records of a log that ends at `log_end`: what nobody has, and is not done. Gaps that are not known count.
    pub fn ready(&self, log_end: u64) -> u64 {
        log_end.saturating_sub(self.end) - self.gaps_ahead(log_end) + self.ready.count()
    }

    /// As [`Subscription::ready`], of what has been searched for gaps: so many there are at least.
    pub fn ready_for_certain(&self, log_end: u64) -> u64 {
        let until = self.searched.until;
        if until >= self.end || log_end <= until {
            self.ready(log_end.min(until))
        } else if until > self.start {
            self.ready.within(self.start, until - 1).iter().map(|run| run.last - run.first + 1).sum()
        } else {
            0
        }
    }

    /// Offsets below `until` that nobody was given, and that were not searched for gaps.
    pub fn unsearched(&self, until: u64) -> u64 {
        until.saturating_sub(self.searched.until.max(self.end))
    }

    /// Records that consumers have; not what is on its way to the dead letters, nor what came back and waits.
    pub fn unacknowledged(&self) -> u64 {
        self.in_flight.count() - self.dying - self.delayed
    }

    /// A number that changes whenever a record ceases to be available or becomes so again, whoever does it; not when one is appended.
    pub fn turnover(&self) -> u64 {
        self.turnover
    }

    /// Gives out records of higher levels first from now on, or no longer. What is available has to be read for that.
    pub fn set_levelled(&mut self, levelled: bool) {
        if levelled != self.levelled {
            self.levelled = levelled;
            if levelled {
                self.apply_found_levels();
            } else {
                self.ready.forget_levels();
                self.levels.forget();
            }
        }
    }

    /// Where there are levels, what was returned is given out before all others from now on, in the order in which it came back.
    pub fn set_returned_first(&mut self, first: bool) {
        if first != self.returned_first {
            self.returned_first = first;
            self.ready.set_returned_first(first);
        }
    }

    /// Are records given out by level?
    pub fn is_levelled(&self) -> bool {
        self.levelled
    }

    /// What has to be read, and told to [`Subscription::set_levels`], before the next record can be given out by level, both
    /// included: while no more than `rules.unfinished_max` records are ready, the order beyond them is that of the log. `None`:
    /// all levels are known, or there are none.
    pub fn unlevelled(&self, log_end: u64, rules: &Rules) -> Option<(u64, u64)> {
        if !self.levelled {
            return None;
        }
        if let Some(run) = self.ready.first_plain() {
            return Some((run.first, run.last));
        }
        let room = rules.unfinished_max.saturating_sub(self.ready.count());
        let until = log_end.min(self.end.saturating_add(room));
        (until > self.end).then(|| (self.end, until - 1))
    }

    /// What is available in `first..=last`, which has been read, gets its level.
    pub fn set_levels(&mut self, first: u64, last: u64, level: &mut dyn FnMut(u64) -> u8) {
        if !self.levelled || last < first {
            return;
        }
        self.reach(first, last);
        self.level_plain(first, last, level);
        self.note_levels(first, last);
    }

    /// Gives what is available in `first..=last` and has no level its level.
    pub(super) fn level_plain(&mut self, first: u64, last: u64, level: &mut dyn FnMut(u64) -> u8) {
        for Run { first, last, value: tries } in self.ready.take_plain(first, last) {
            if self.returned_first && tries.deliveries() > 0 {
                self.ready.insert(first, last, Waiting { level: Some(RETURNED), tries });
            } else {
                self.ready.insert_levelled(first, last, tries, level);
            }
        }
    }

    /// The record that is to be given out next, of a log that ends at `log_end`: of what has a level, where there are levels.
    pub fn head(&self, log_end: u64) -> Option<u64> {
        if self.levelled {
            return self.ready.heads().next().map(|(_, offset)| offset);
        }
        Some(self.available_from()).filter(|offset| *offset < log_end)
    }

    /// The first available record of each level, the highest first.
    pub fn heads(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        self.ready.heads()
    }

    /// Gives one record to `consumer`, until `deadline` ([`NO_LOCK`](super::NO_LOCK): for ever). Tells how often it was delivered
    /// before; `None`: it is not available.
    pub fn give(&mut self, consumer: ConsumerId, offset: u64, deadline: u64) -> Option<Tries> {
        let Waiting { tries, level } = self.take_available(offset)?;
        if let Some(keys) = &mut self.keys {
            keys.own(offset, consumer);
        }
        self.hold(offset, offset, Flight { consumer, deadline, tries: tries.delivered(), level, reason: None });
        Some(tries)
    }

    /// Gives out one record for good: nobody has to say that it is done. Otherwise as [`Subscription::give`].
    pub fn give_away(&mut self, offset: u64) -> Option<Tries> {
        let Waiting { tries, .. } = self.take_available(offset)?;
        self.forget_keys(offset, offset, false);
        self.settle(offset, offset, Done::Acknowledged);
        self.advance();
        Some(tries)
    }

    /// What is available in `first..=last` is dead, for the reason given; returns how many records that are. What follows on something
    /// that has not been looked at stays as it is.
    pub fn drop_available(
        &mut self,
        first: u64,
        last: u64,
        reason: DeadReason,
        rules: &Rules,
        dead: &mut Vec<Dead>,
    ) -> u64 {
        self.reach(first, last);
        let dropped = self.take_ready(first, last);
        for Run { first, last, value: Waiting { tries, level } } in &dropped {
            let flight =
                Flight { consumer: DEAD_LETTERS, deadline: 0, tries: *tries, level: *level, reason: Some(reason) };
            self.bury(Run { first: *first, last: *last, value: flight }, reason, rules).add_to(dead);
        }
        self.advance();
        dropped.iter().map(|run| run.last - run.first + 1).sum()
    }

    /// What is available in `first..=last` is acknowledged without having been given to anybody, and so is what has not been looked at
    /// there; what lies between that and what has is available.
    pub fn accept_available(&mut self, first: u64, last: u64) {
        self.reach(self.end, last);
        for run in self.take_ready(first, last) {
            self.forget_keys(run.first, run.last, false);
            self.settle(run.first, run.last, Done::Acknowledged);
        }
        self.advance();
    }

    /// All that is available of a log that ends at `log_end` is gone, and what came back and waits; returns how many records that were. What is
    /// in flight stays.
    pub fn purge(&mut self, log_end: u64) -> u64 {
        if log_end <= self.start {
            return 0;
        }
        self.reach(self.end, log_end - 1);
        let purged = self.take_ready(self.start, log_end - 1);
        for run in &purged {
            self.forget_keys(run.first, run.last, false);
            self.settle(run.first, run.last, Done::Archived);
        }
        let delayed = if self.delayed > 0 { self.purge_held(DELAYED, |_| true) } else { 0 };
        self.advance();
        purged.iter().map(|run| run.last - run.first + 1).sum::<u64>() + delayed
    }

    /// What is new in `first..=last` has been looked at. What follows on something that has not stays as it is.
    pub(super) fn reach(&mut self, first: u64, last: u64) {
        if (first..=last).contains(&self.end) {
            self.extend(last);
        }
    }

    fn take_available(&mut self, offset: u64) -> Option<Waiting> {
        let found = if offset == self.end {
            self.end += 1;
            if !self.gaps.is_empty() {
                self.pass_gaps();
            }
            Waiting::NEW
        } else {
            self.ready.take_one(offset)?
        };
        self.turnover += 1;
        Some(found)
    }
}
