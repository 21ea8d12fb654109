//! Times of a queue: until when its consumers may keep what they have, and from when on what came back may be given out again. They stand
//! where the lock of a member of a share group stands, above all of those: [`Subscription::expire`] leaves them alone, because a queue
//! has more to do than to give back.

use super::ready::Waiting;
use super::returned::RETURNED;
use super::{ConsumerId, DEAD_LETTERS, Flight, NO_LOCK, Subscription, Tries};
use crate::runs::Run;

/// Holds what came back and waits until it may be given out again.
pub(crate) const DELAYED: ConsumerId = ConsumerId(u64::MAX - 1);
/// The first of the queue's times, 0 ms.
pub(super) const FIRST: u64 = 1 << 63;
/// Times are rounded up to this part of how far they are away, so that messages which are given out one after the other have the same and
/// are kept together.
const PARTS: u64 = 64;

/// As a deadline: what begins at `now` and takes `wait`, both in ms.
pub(crate) fn deadline(now: u64, wait: u64) -> u64 {
    let part = (wait / PARTS).max(1);
    let at = now.saturating_add(wait).div_ceil(part).saturating_mul(part);
    FIRST.saturating_add(at).min(NO_LOCK - 1)
}

/// The time of a deadline, if it is a queue's.
fn time(deadline: u64) -> Option<u64> {
    (deadline != NO_LOCK).then(|| deadline.checked_sub(FIRST)).flatten()
}

/// Which of what comes back waits before it is given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryOf {
    /// All.
    All,
    /// What came back by a delivery that failed.
    Failed,
    /// What came back by one that the limit does not count.
    Returned,
}

/// How long what comes back waits before it is given out again: `min_ms` for each delivery that failed, at least for one, and at most
/// `max_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Of what.
    pub of: RetryOf,
    /// In ms.
    pub min_ms: u64,
    /// In ms.
    pub max_ms: u64,
}

impl Retry {
    /// How long something waits that has come back, in ms.
    pub(super) fn wait(self, tries: Tries, failed: bool) -> Option<u64> {
        let wanted = match self.of {
            RetryOf::All => true,
            RetryOf::Failed => failed,
            RetryOf::Returned => !failed,
        };
        wanted.then(|| self.min_ms.saturating_mul(u64::from(tries.counted).max(1)).min(self.max_ms))
    }
}

impl Subscription {
    /// No time of a queue is over earlier, in ms; `None`: there is none.
    pub fn next_time(&self) -> Option<u64> {
        time(self.earliest_time)
    }

    pub(super) fn note_time(&mut self, deadline: u64) {
        if deadline >= FIRST {
            self.earliest_time = self.earliest_time.min(deadline);
        }
    }

    /// Records that came back and wait until they may be given out again.
    pub fn delayed(&self) -> u64 {
        self.delayed
    }

    /// What queues' consumers have kept until `now` or before and should not have: who, first and last offset.
    pub fn timed_out(&self, now: u64) -> Vec<(ConsumerId, u64, u64)> {
        let due = self.in_flight.iter().filter(|run| time(run.value.deadline).is_some_and(|at| at <= now));
        let of_consumers = due.filter(|run| ![DEAD_LETTERS, DELAYED].contains(&run.value.consumer));
        of_consumers.map(|run| (run.value.consumer, run.first, run.last)).collect()
    }

    /// What has waited until `now` may be given out again, in the order of those times. Looks at all that is in flight, and knows then when the
    /// next time is over.
    pub fn end_waits(&mut self, now: u64) {
        let waits =
            |run: &Run<Flight>| run.value.consumer == DELAYED && time(run.value.deadline).is_some_and(|at| at <= now);
        let mut due: Vec<Run<Flight>> = self.in_flight.iter().filter(waits).collect();
        due.sort_by_key(|run| (run.value.deadline, run.first));
        for Run { first, last, value: Flight { tries, level, .. } } in due {
            self.let_go(first, last);
            let level = if self.returned_first { Some(RETURNED) } else { level };
            self.ready.insert(first, last, Waiting { tries, level: level.filter(|_| self.levelled) });
            self.turnover += 1;
        }
        self.earliest_time =
            self.in_flight.iter().map(|run| run.value.deadline).filter(|at| *at >= FIRST).min().unwrap_or(NO_LOCK);
    }

    /// What `holder`, who is none of the consumers, holds is gone, where `also` says so; returns how many records that were.
    pub(super) fn purge_held(&mut self, holder: ConsumerId, also: impl Fn(&Flight) -> bool) -> u64 {
        let purged: Vec<Run<Flight>> =
            self.in_flight.iter().filter(|run| run.value.consumer == holder && also(&run.value)).collect();
        for run in &purged {
            self.let_go(run.first, run.last);
            self.forget_keys(run.first, run.last, false);
            self.settle(run.first, run.last, super::Done::Archived);
        }
        purged.iter().map(|run| run.last - run.first + 1).sum()
    }
}
