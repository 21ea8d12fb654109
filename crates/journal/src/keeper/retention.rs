//! Retention: which records of which logs may go, and which segments are thereby dead or mostly dead.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use types::{ConnectionId, LogId, Offset, ShardId};

use super::{Keeper, KeeperError, LONG_LOOK_MS, LOOK_REST};
use crate::append::{Append, AppendItem, ReplyTo};
use crate::log::{Log, Retention};

/// Trims in one append.
const TRIMS_MAX: usize = 1000;

/// How much of a segment is live.
pub(super) struct Usage {
    pub sequence: u64,
    pub live_bytes: u64,
    pub total_bytes: u64,
}

/// What one pass over the segments decided.
#[derive(Default)]
struct Pass {
    trims: HashMap<LogId, Offset>,
    trimmed_bytes: HashMap<LogId, u64>,
    /// Logs whose next run must stay, and so all behind it.
    settled: HashSet<LogId>,
}

impl Pass {
    /// May the records of `log` that end at `next` go?
    fn consider(&mut self, log: &Log, retention: Retention, next: Offset, bytes: u64, age_ms: i64) -> bool {
        if self.settled.contains(&log.id()) {
            return false;
        }
        let trimmed = self.trimmed_bytes.entry(log.id()).or_default();
        let left = log.live_bytes().saturating_sub(*trimmed);
        let too_old = retention.ms.is_some_and(|ms| age_ms >= 0 && age_ms as u64 > ms);
        let too_much = retention.bytes.is_some_and(|max| left.saturating_sub(bytes) >= max);
        if too_old || too_much {
            *trimmed += bytes;
            self.trims.insert(log.id(), next);
        } else {
            self.settled.insert(log.id());
        }
        too_old || too_much
    }
}

impl Keeper {
    /// Trims what is past its retention, frees dead segments, rewrites mostly dead ones; with `whole` it looks also at what no
    /// sealed segment holds yet.
    pub(super) fn look_after_segments(&mut self, whole: bool) -> Result<(), KeeperError> {
        let now = self.journal.now_ms();
        let mut pass = Pass::default();
        let mut usage = Vec::new();
        for (segment, index) in self.journal.segments().sealed() {
            let mut used = Usage { sequence: segment.sequence, live_bytes: 0, total_bytes: 0 };
            for row in index.rows()? {
                used.total_bytes += row.bytes;
                let Some(log) = self.journal.log(row.log) else { continue };
                // A trim counts when it is durable: after a crash before that the records are still the log's.
                if row.next > log.start() {
                    used.live_bytes += row.bytes;
                }
                let (retention, from) = considered_from(&log);
                if row.next > from {
                    pass.consider(&log, retention, row.next, row.bytes, now - row.last_append);
                }
            }
            usage.push(used);
        }
        if whole {
            self.consider_recent(&mut pass, now);
        }
        let took = self.journal.now_ms() - now;
        if took >= LONG_LOOK_MS {
            self.look.not_before = now + took + took * LOOK_REST;
        }
        self.submit_trims(pass);
        self.journal.set_live_segment_bytes(usage.iter().map(|used| used.live_bytes).sum());
        self.reclaim(&usage)
    }

    /// Runs that no sealed segment holds yet: an idle journal keeps its last segment open.
    fn consider_recent(&self, pass: &mut Pass, now: i64) {
        for log in self.journal.all_logs() {
            let (retention, from) = considered_from(&log);
            if retention == Retention::default() {
                continue;
            }
            let from = pass.trims.get(&log.id()).copied().unwrap_or(from);
            let inner = log.inner();
            let readable = log.high_watermark();
            self.journal.recent().visit_from(&inner.runs, from, |recent| {
                let run = recent.run;
                let sealed = || self.journal.segments().get(recent.segment).is_some_and(|segment| segment.index.get().is_some());
                run.next <= readable
                    && (sealed() || pass.consider(&log, retention, run.next, u64::from(run.bytes), now - run.append_time))
            });
        }
    }

    fn submit_trims(&self, pass: Pass) {
        let mut trims: Vec<(Arc<Log>, Offset)> =
            pass.trims.iter().filter_map(|(id, to)| Some((self.journal.log(*id)?, *to))).collect();
        let to = ReplyTo { shard: ShardId(63), connection: ConnectionId(u64::MAX), token: 0 };
        while !trims.is_empty() {
            let rest = trims.split_off(trims.len().min(TRIMS_MAX));
            let items = trims.iter().map(|(log, to)| AppendItem::Trim { log: Arc::clone(log), to: *to }).collect();
            if self.journal.append(Append { to, items, acknowledge: false }).is_err() {
                // The queue is full: they are decided again at the next pass.
                return;
            }
            for (log, to) in trims {
                log.subtract_bytes(pass.trimmed_bytes.get(&log.id()).copied().unwrap_or(0));
                log.inner().trim_requested = to;
            }
            trims = rest;
        }
    }
}

/// What a log is to keep, and the offset from which that has not been decided yet.
fn considered_from(log: &Log) -> (Retention, Offset) {
    let inner = log.inner();
    (inner.retention, inner.trim_requested.max(log.start()))
}
