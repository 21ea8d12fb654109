//! Retention: which records of which logs may go, and which segments are thereby dead or mostly dead.
//!
//! A segment whose index cannot be read is left out until it can: it is neither freed nor rewritten, and what lies in it counts for nothing. So a log
//! keeps as many bytes as it should without those, and what is decided of later segments holds for what lies before them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use types::{ConnectionId, LogId, Offset, ShardId};

use super::setbacks::Setbacks;
use super::usage::Usage;
use super::{Keeper, KeeperError, LONG_LOOK_MS, LOOK_MAX_MS, LOOK_REST};
use crate::append::{Append, AppendItem, ReplyTo};
use crate::index::SealedIndex;
use crate::log::{Log, Retention};
use crate::run::Run;
use crate::segments::{Segment, SegmentError, segment_name};

/// Trims in one append.
const TRIMS_MAX: usize = 1000;

/// What one pass over the segments decided.
#[derive(Default)]
struct Pass {
    trims: BTreeMap<LogId, Offset>,
    /// Bytes that are left of a log by what is decided so far.
    left: HashMap<LogId, u64>,
    /// Logs whose next run must stay, and so all behind it.
    settled: HashSet<LogId>,
    /// Where logs with rules began when they were measured, and how much of them was archived.
    measured: HashMap<LogId, (Offset, Offset)>,
}

impl Pass {
    /// Where a log begins that is being measured, and how far it is archived: for all of its segments the same.
    fn measure(&mut self, log: &Log) -> (Offset, Offset) {
        let (retention, from) = considered_from(log);
        let now = (from, log.archived_until());
        if retention == Retention::default() { now } else { *self.measured.entry(log.id()).or_insert(now) }
    }

    /// Has a log changed since it was measured? Then what it has left is not known: nothing more of it is decided before the next look.
    fn has_moved(&mut self, log: &Log, now: (Offset, Offset)) -> bool {
        let moved = self.measured.get(&log.id()) != Some(&now);
        if moved {
            self.settled.insert(log.id());
        }
        moved
    }

    /// May the records of `log` that end at `next` go? `left` bytes it has before anything is decided.
    fn consider(
        &mut self,
        log: &Log,
        retention: Retention,
        left: u64,
        (next, bytes, age_ms): (Offset, u64, i64),
    ) -> bool {
        if self.settled.contains(&log.id()) {
            return false;
        }
        let left = self.left.entry(log.id()).or_insert(left);
        let too_old = retention.ms.is_some_and(|ms| age_ms >= 0 && age_ms as u64 > ms);
        let too_much = retention.bytes.is_some_and(|max| left.saturating_sub(bytes) >= max);
        if too_old || too_much {
            *left = left.saturating_sub(bytes);
            self.trims.insert(log.id(), next);
        } else {
            self.settled.insert(log.id());
        }
        too_old || too_much
    }
}

type Sealed = (Arc<Segment>, Arc<SealedIndex>);

impl Keeper {
    /// Trims what is past its retention, frees dead segments, rewrites mostly dead ones; with `whole` it looks also at what no
    /// sealed segment holds yet.
    pub(super) fn look_after_segments(&mut self, whole: bool) -> Result<(), KeeperError> {
        // Nobody knows what of the last chunks is on the disk: what a restart will find there needs its segments.
        #[cfg(feature = "planted")]
        let unwritten = self.journal.planted() == Some(crate::Planted::DropUnwritten);
        #[cfg(not(feature = "planted"))]
        let unwritten = false;
        if self.journal.has_stopped() && !unwritten {
            return Ok(());
        }
        let now = self.journal.now_ms();
        let mut sealed = self.journal.segments().sealed();
        let mut pass = Pass::default();
        let usage = self.measure(&mut sealed, &mut pass, now);
        self.consider_archived(&mut pass, now);
        self.consider_sealed(&sealed, &mut pass, now);
        // A segment that somebody holds is not written again.
        drop(sealed);
        if whole {
            self.consider_recent(&mut pass, now);
        }
        let took = (self.journal.now_ms() - now).min(LOOK_MAX_MS);
        if took >= LONG_LOOK_MS {
            self.look.not_before = now + took + took * LOOK_REST;
        }
        self.submit_trims(&pass);
        self.journal.set_live_segment_bytes(usage.iter().map(|used| used.live_bytes).sum());
        self.reclaim(usage)
    }

    /// How much of each segment is live, and of each log what lies in sealed segments: records may have been deleted since the last
    /// look. Segments that cannot be read do not stay in `sealed`.
    fn measure(&mut self, sealed: &mut Vec<Sealed>, pass: &mut Pass, now: i64) -> Vec<Usage> {
        let mut usage = Vec::with_capacity(sealed.len());
        let mut live: HashMap<LogId, u64> = HashMap::new();
        for log in self.archived_logs() {
            let (from, _) = pass.measure(&log);
            live.insert(log.id(), log.inner().archive.bytes_from(from));
        }
        let mut of_segment = Vec::new();
        sealed.retain(|(segment, index)| {
            if self.unmeasured.blocks(segment.sequence) {
                usage.push(Usage::unknown(segment, self.journal.config().segment_bytes));
                return false;
            }
            of_segment.clear();
            let measured = self.measure_segment(segment, index, |log, row| {
                let (from, archived) = pass.measure(log);
                if row.next > from.max(archived) {
                    of_segment.push((row.log, row.bytes_from(archived)));
                }
            });
            note_measured(
                &mut self.unmeasured,
                (self.journal.number(), segment.sequence),
                measured.as_ref().err(),
                now,
            );
            let is_measured = measured.is_ok();
            usage.push(measured.unwrap_or_else(|_| Usage::unknown(segment, self.journal.config().segment_bytes)));
            if is_measured {
                of_segment.iter().for_each(|(log, bytes)| *live.entry(*log).or_default() += bytes);
            }
            is_measured
        });
        for log in self.journal.all_logs() {
            log.set_sealed_bytes(live.get(&log.id()).copied().unwrap_or(0));
        }
        usage
    }

    fn archived_logs(&self) -> impl Iterator<Item = Arc<Log>> {
        self.journal.all_logs().into_iter().filter(|log| log.archived_until() > Offset::ZERO)
    }

    /// What a log has before anything is decided. What of an unsealed segment is in the archive too counts once.
    fn bytes_of(&self, log: &Log) -> u64 {
        let archived = log.archived_until();
        if archived == Offset::ZERO {
            return log.live_bytes();
        }
        // What a client has deleted may still be known of segments that are gone.
        let from = considered_from(log).1.max(archived);
        let mut bytes = log.inner().sealed_bytes;
        self.visit_unsealed(log, from, |run| {
            bytes += u64::from(run.bytes);
            true
        });
        bytes
    }

    /// The oldest of a log: what is in the archive.
    fn consider_archived(&self, pass: &mut Pass, now: i64) {
        for log in self.archived_logs() {
            let (retention, from) = considered_from(&log);
            if retention == Retention::default() {
                continue;
            }
            let (left, archived) = (self.bytes_of(&log), log.archived_until());
            let objects = log.inner().archive.from(from).to_vec();
            if pass.has_moved(&log, (from, archived)) {
                continue;
            }
            for object in objects {
                // Of what is left of its offsets nothing may be there.
                let age = if object.length > 0 { now - object.last_append } else { i64::MAX };
                if !pass.consider(&log, retention, left, (object.next, object.bytes, age)) {
                    break;
                }
            }
        }
    }

    fn consider_sealed(&mut self, sealed: &[Sealed], pass: &mut Pass, now: i64) {
        let ruled = |log: &&Arc<Log>| {
            let inner = log.inner();
            inner.retention != Retention::default() && inner.sealed_bytes > 0
        };
        let ruled = self.journal.all_logs().iter().filter(ruled).count();
        for (segment, index) in sealed {
            // Where no rule lets anything go, the oldest segments settle that.
            if pass.settled.len() == ruled {
                break;
            }
            let rows = match index.rows() {
                Ok(rows) => rows,
                Err(error) => {
                    // It could be read just now, and is part of what logs have: nothing behind it is decided before the next look.
                    note_measured(&mut self.unmeasured, (self.journal.number(), segment.sequence), Some(&error), now);
                    let here =
                        |log: &Arc<Log>| log.inner().segments.iter().any(|sequence| sequence == segment.sequence);
                    pass.settled.extend(self.journal.all_logs().iter().filter(|log| here(log)).map(|log| log.id()));
                    continue;
                }
            };
            for row in rows {
                let Some(log) = self.journal.log(row.log) else { continue };
                let (retention, from) = considered_from(&log);
                let archived = log.archived_until();
                if retention != Retention::default()
                    && row.next > from.max(archived)
                    && !pass.has_moved(&log, (from, archived))
                {
                    let left = pass.left.get(&log.id()).copied().unwrap_or_else(|| self.bytes_of(&log));
                    let bytes = row.bytes_from(archived);
                    pass.consider(&log, retention, left, (row.next, bytes, now - row.last_append));
                }
            }
        }
    }

    /// Runs that no sealed segment holds yet: an idle journal keeps its last segment open.
    fn consider_recent(&self, pass: &mut Pass, now: i64) {
        for log in self.journal.all_logs() {
            let (retention, from) = considered_from(&log);
            if retention == Retention::default() || pass.settled.contains(&log.id()) {
                continue;
            }
            let from = pass.trims.get(&log.id()).copied().unwrap_or(from).max(log.archived_until());
            // All that was sealed goes, so this is all that is left.
            let mut left = 0;
            if retention.bytes.is_some() {
                self.visit_unsealed(&log, from, |run| {
                    left += u64::from(run.bytes);
                    true
                });
            }
            pass.left.insert(log.id(), left);
            self.visit_unsealed(&log, from, |run| {
                pass.consider(&log, retention, left, (run.next, u64::from(run.bytes), now - run.append_time))
            });
        }
    }

    /// Shows the readable runs of a log from `from` on that no sealed segment holds, until `visit` says no.
    fn visit_unsealed(&self, log: &Log, from: Offset, mut visit: impl FnMut(&Run) -> bool) {
        let readable = log.high_watermark();
        self.journal.recent().visit_from(&log.inner().runs, from, |recent| {
            recent.run.next <= readable && (!self.journal.segments().is_unsealed(recent.segment) || visit(&recent.run))
        });
    }

    fn submit_trims(&self, pass: &Pass) {
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
                log.inner().trim_requested = to;
            }
            trims = rest;
        }
    }
}

/// A segment was measured, or could not be: that is logged once, and once more when it is over.
fn note_measured(unmeasured: &mut Setbacks, (journal, sequence): (u16, u64), error: Option<&SegmentError>, now: i64) {
    let Some(error) = error else {
        if unmeasured.leave(sequence) {
            tracing::info!(journal, segment = segment_name(sequence), "the index of a segment can be read again");
        }
        return;
    };
    // What is damaged may have been so on its way from the disk only.
    if unmeasured.enter(sequence, false, now) {
        tracing::error!(journal, segment = segment_name(sequence), %error, "the index of a segment cannot be read: its space does not come back until it can");
    }
}

/// What a log is to keep, and the offset from which that has not been decided yet.
fn considered_from(log: &Log) -> (Retention, Offset) {
    let inner = log.inner();
    (inner.retention, inner.trim_requested.max(log.start()))
}
