//! Retention: which records of which logs may go, and which segments are thereby dead or mostly dead.

use hashbrown::{HashMap, HashSet};
use types::{ConnectionId, LogId, Offset, ShardId};

use super::{Keeper, KeeperError};
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
    /// Trims what is past its retention, frees dead segments, rewrites mostly dead ones.
    pub(super) fn look_after_segments(&mut self) -> Result<(), KeeperError> {
        let now = self.journal.now_ms();
        let mut pass = Pass::default();
        let mut usage = Vec::new();
        let mut live_by_log: HashMap<LogId, u64> = HashMap::new();
        for (segment, index) in self.journal.segments().sealed() {
            let mut used = Usage { sequence: segment.sequence, live_bytes: 0, total_bytes: 0 };
            for row in index.rows()? {
                used.total_bytes += row.bytes;
                let Some(log) = self.journal.log(row.log) else { continue };
                if row.next <= log.start() {
                    continue;
                }
                let retention = log.inner().retention;
                if !pass.consider(&log, retention, row.next, row.bytes, now - row.last_append) {
                    used.live_bytes += row.bytes;
                    *live_by_log.entry(row.log).or_default() += row.bytes;
                }
            }
            usage.push(used);
        }
        self.consider_recent(&mut pass, now);
        self.submit_trims(pass);
        self.journal.set_live_segment_bytes(usage.iter().map(|used| used.live_bytes).sum());
        self.reclaim(&usage)
    }

    /// Runs that no sealed segment holds yet: an idle journal keeps its last segment open.
    fn consider_recent(&self, pass: &mut Pass, now: i64) {
        for log in self.journal.all_logs() {
            let inner = log.inner();
            let retention = inner.retention;
            if retention == Retention::default() {
                continue;
            }
            let from = pass.trims.get(&log.id()).copied().unwrap_or_else(|| log.start());
            let readable = log.high_watermark();
            for recent in inner.runs.iter().filter(|recent| recent.run.next > from && recent.run.next <= readable) {
                if self.journal.segments().get(recent.segment).is_some_and(|segment| segment.index.get().is_some()) {
                    continue;
                }
                let age = now - recent.run.append_time;
                if !pass.consider(&log, retention, recent.run.next, u64::from(recent.run.bytes), age) {
                    break;
                }
            }
        }
    }

    fn submit_trims(&self, pass: Pass) {
        let mut items = Vec::new();
        for (id, to) in pass.trims {
            let Some(log) = self.journal.log(id) else { continue };
            log.subtract_bytes(pass.trimmed_bytes.get(&id).copied().unwrap_or(0));
            items.push(AppendItem::Trim { log, to });
        }
        let to = ReplyTo { shard: ShardId(63), connection: ConnectionId(u64::MAX), token: 0 };
        while !items.is_empty() {
            let rest = items.split_off(items.len().min(TRIMS_MAX));
            // A refused trim is decided again at the next pass.
            let _ = self.journal.append(Append { to, items, acknowledge: false });
            items = rest;
        }
    }
}
