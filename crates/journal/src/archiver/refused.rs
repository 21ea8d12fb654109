//! Logs of which the store takes nothing, as one does whose folder in the archive cannot be used: they are set aside for a while, ever longer, and
//! all others go on. When one of them is taken again all are tried: it may have been the whole store.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use types::{LogId, Timestamp};

use crate::journal::Journal;
use crate::log::Log;

/// From the second refusal on a log is left alone for this long, each time twice as long as before, …
const REST_MS: i64 = 2_000;
/// … and for this long at most.
const REST_MAX_MS: i64 = 60_000;
/// Then it is forgotten, if it was not tried again: one is at a time, and none while there is no need.
const KEPT_MS: i64 = 3_600_000;

struct Aside {
    times: u32,
    until: Timestamp,
    /// What the store said last.
    error: String,
}

#[derive(Default)]
pub(super) struct Refused {
    logs: HashMap<LogId, Aside>,
}

impl Refused {
    /// Of some logs something was refused, and of others all was taken that was put.
    pub fn note(&mut self, failed: &[(LogId, io::Error)], taken: impl Iterator<Item = LogId>, now: Timestamp) {
        for (log, error) in failed {
            let times = self.logs.get(log).map_or(0, |aside| aside.times) + 1;
            // The first refusal may be a chance.
            let rest = if times == 1 { 0 } else { (REST_MS << (times - 2).min(16)).min(REST_MAX_MS) };
            let until = now.saturating_add(rest);
            self.logs.insert(*log, Aside { times, until, error: format!("archive store: {error}") });
        }
        let failed: HashSet<LogId> = failed.iter().map(|(log, _)| *log).collect();
        let mut recovered = taken.filter(|log| !failed.contains(log) && self.logs.contains_key(log));
        if recovered.next().is_some() {
            self.logs.retain(|log, _| failed.contains(log));
        }
    }

    /// Logs that were deleted, have nothing that could be archived, or were not tried again for long, because nothing had to be.
    pub fn forget_what_is_gone(&mut self, journal: &Journal, now: Timestamp) {
        self.logs.retain(|log, aside| {
            let is_left = |log: Arc<Log>| log.start().max(log.archived_until()) < log.end();
            now <= aside.until.saturating_add(KEPT_MS) && journal.log(*log).is_some_and(is_left)
        });
    }

    /// Was something of a log refused last?
    pub fn has(&self, log: LogId) -> bool {
        self.logs.contains_key(&log)
    }

    /// The one of these logs that is tried again now, if one was refused and its time has come: the one that has waited longest. The clock may go back.
    pub fn next(&self, among: impl Iterator<Item = LogId>, now: Timestamp) -> Option<LogId> {
        let is_due = |aside: &Aside| !(now + 1..=now.saturating_add(REST_MAX_MS)).contains(&aside.until);
        let due =
            among.filter_map(|log| self.logs.get(&log).filter(|aside| is_due(aside)).map(|aside| (aside.until, log)));
        due.min().map(|(_, log)| log)
    }

    /// What is wrong, in words.
    pub fn told(&self) -> Option<String> {
        let (log, aside) = self.logs.iter().min_by_key(|(log, _)| **log)?;
        Some(match self.logs.len() - 1 {
            0 => format!("nothing of {log} can be archived: {}", aside.error),
            others => format!("nothing of {log} and {others} others can be archived: {}", aside.error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_left_alone_ever_longer_and_never_for_long() {
        let (mut refused, mut now) = (Refused::default(), 1_000);
        let mut rests = Vec::new();
        for _ in 0..100 {
            refused.note(&[(LogId(7), io::Error::other("no"))], std::iter::empty(), now);
            let began = now;
            while refused.next([LogId(7)].into_iter(), now).is_none() {
                now += 1_000;
            }
            rests.push((now - began) / 1_000);
        }
        assert_eq!(rests[..8], [0, 2, 4, 8, 16, 32, 60, 60]);
        assert!(rests[8..].iter().all(|rest| *rest == 60), "{rests:?}");
    }

    #[test]
    fn a_log_that_cannot_be_tried_keeps_no_other_from_its_turn() {
        let mut refused = Refused::default();
        for log in 1..=3 {
            refused.note(&[(LogId(log), io::Error::other("no"))], std::iter::empty(), 1_000 * log as i64);
        }
        let next = |among: &[u64]| refused.next(among.iter().map(|log| LogId(*log)), 10_000);
        assert_eq!(next(&[3, 2, 1, 9]), Some(LogId(1)), "it has waited longest");
        assert_eq!(next(&[3, 2, 9]), Some(LogId(2)));
        assert_eq!(next(&[9]), None, "it was not refused");
    }
}
