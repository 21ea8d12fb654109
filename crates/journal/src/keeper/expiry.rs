//! Producers that have been silent for long are forgotten, on time and in pieces: the writer needs the lock of their log.

use std::sync::Arc;

use super::Keeper;
use crate::log::Log;
use crate::producers::SILENT_MS;

/// Producers that are looked at under one hold of a log's lock, …
const AT_ONCE: usize = 256;
/// … and in one turn of the keeper.
const IN_A_TURN: usize = 20_000;
/// All are looked through once in a tenth of the time after which they are forgotten, within these bounds; in ms.
const INTERVAL_MS: std::ops::RangeInclusive<i64> = 1_000..=60_000;

/// How far the keeper is.
#[derive(Default)]
pub(super) struct Expiry {
    /// When they are next looked through, by the journal's clock.
    due: i64,
    /// Logs that are not looked through yet.
    logs: Vec<Arc<Log>>,
    /// Place in the last of them.
    at: usize,
    /// Checkpoints that had been written then.
    #[cfg(feature = "planted")]
    checkpoints: u64,
}

impl Expiry {
    /// Is it to go on without delay?
    pub fn goes_on(&self) -> bool {
        !self.logs.is_empty()
    }
}

impl Keeper {
    /// Looks through the producers, or a part of them, when that is due.
    pub(super) fn expire_producers(&mut self) {
        let (now, mut expiry) = (self.journal.now_ms(), self.journal.config().producer_expiry_ms as i64);
        if self.journal.producer_room().is_short() {
            expiry = expiry.min(SILENT_MS);
        }
        if !self.expiry.goes_on() {
            #[cfg(feature = "planted")]
            if self.journal.planted() == Some(crate::Planted::ExpireAtCheckpoints) {
                let written = self.journal.metrics().checkpoints.get();
                if std::mem::replace(&mut self.expiry.checkpoints, written) == written {
                    return;
                }
            }
            if now < self.expiry.due {
                return;
            }
            self.expiry.due = now + (expiry / 10).clamp(*INTERVAL_MS.start(), *INTERVAL_MS.end());
            self.expiry.logs = self.journal.all_logs();
            self.expiry.logs.retain(|log| log.inner().producers.is_some());
        }
        let (before, mut left) = (now.saturating_sub(expiry), IN_A_TURN);
        while left > 0
            && let Some(log) = self.expiry.logs.last()
        {
            let mut inner = log.inner();
            let known = inner.producers.as_ref().map_or(0, |producers| producers.iter().len());
            let next = inner.producers.as_mut().and_then(|producers| producers.expire(before, self.expiry.at, AT_ONCE));
            if inner.producers.as_ref().is_some_and(|producers| producers.is_empty()) {
                inner.producers = None;
            }
            drop(inner);
            left = left.saturating_sub(known.clamp(1, AT_ONCE));
            match next {
                Some(at) => self.expiry.at = at,
                None => {
                    self.expiry.at = 0;
                    self.expiry.logs.pop();
                }
            }
        }
    }
}
