//! Compaction: of each key of a log only the newest record is kept.
//!
//! ```text
//!            cleaned objects        objects and runs that are not      the last batch
//! offsets  ├──────────────────────┼────────────────────────────────┼──────────────────┤
//!                                 │        1. keys noted           │
//!          │   2. read, looked up, written into objects            │
//! ```
//!
//! * C1 A record goes only when a newer one of its key lies before the last stable offset, or when it is a tombstone whose delete
//!   horizon has passed. Offsets never change.
//! * C2 What is younger than `min_lag_ms` is not touched, nor what may belong to an open transaction, nor the last batch of a log
//!   while it lies in the journal; in an object it keeps its place at least, so that readers get to the end of the log.
//! * C3 Objects are exchanged one by one, from the start on: each exchange by itself is right, so that a pass may end
//!   anywhere. When the keys do not fit into memory, a pass ends where it was full, and the next begins there.
//! * C4 What a pass has gone through is marked as cleaned: no key is twice in it and in what lies before it.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use record::{BatchHeader, Batches, Marker, Retained};
use types::{LogId, Offset, Timestamp};

use super::keys::Keys;
use super::rules::{Rules, Verdict};
use super::{Archiver, ArchiverError, FAILED_REST_MS, Pending, Turn};
use crate::archive::{Archived, ObjectWriter};
use crate::cold::{ColdWant, ReadError};
use crate::log::{Compaction, Log};
use crate::run::Run;
use crate::sweep::Sweep;
use crate::transactions::AbortedTransaction;

/// A log on its way through compaction.
pub(super) struct Pass {
    log: Arc<Log>,
    delete_retention_ms: i64,
    now: Timestamp,
    /// Not beyond this offset.
    until: Offset,
    /// The next to be read.
    at: Offset,
    keys: Keys,
    rules: Rules,
    /// Keys are being noted; otherwise records are looked up.
    noting: bool,
    aborted: Vec<AbortedTransaction>,
    /// The last offset of each producer that is known.
    lasts: HashMap<i64, Offset>,
    /// The keys did not fit: another pass is to follow.
    full: bool,
    output: Option<Output>,
}

/// What the next object will be.
struct Output {
    object: ObjectWriter,
    replaces: Vec<Arc<Archived>>,
    kept_aborted: Vec<AbortedTransaction>,
    /// Something is different from what it replaces.
    changed: bool,
}

impl Output {
    fn new(object: ObjectWriter) -> Self {
        Self { object, replaces: Vec::new(), kept_aborted: Vec::new(), changed: false }
    }
}

/// What is read at once.
struct Part {
    runs: Sweep,
    next: Offset,
    object: Option<Arc<Archived>>,
}

/// How much of a log is to be compacted, and how urgent that is.
struct Dirt {
    from: Offset,
    until: Offset,
    ratio: f64,
}

/// Where the cleaned objects of a log end, their bytes, and when the first of their tombstones may go.
fn cleaned(log: &Log) -> (Offset, u64, Timestamp) {
    let inner = log.inner();
    let start = log.start();
    let (mut until, mut bytes, mut horizon) = (start, 0, Timestamp::MAX);
    for object in inner.archive.from(start).iter().take_while(|object| object.cleaned) {
        until = object.next;
        bytes += object.bytes;
        horizon = horizon.min(object.horizon);
    }
    (until, bytes, horizon)
}

impl Pass {
    /// Is it this log's?
    pub fn is_of(&self, log: LogId) -> bool {
        self.log.id() == log
    }
}

impl Archiver {
    /// Goes on with compaction, or begins with the log that needs it most.
    pub(super) fn compact(&mut self) -> Result<Turn, ArchiverError> {
        let Some(mut pass) = self.pass.take() else {
            self.pass = self.choose();
            return Ok(if self.pass.is_some() { Turn::Worked } else { Turn::Idle });
        };
        if self.journal.log(pass.log.id()).is_none() || pass.log.compaction().is_none() {
            return Ok(Turn::Worked);
        }
        let outcome = if pass.noting { self.note_keys(&mut pass) } else { self.clean(&mut pass) };
        match outcome {
            Ok(true) => {
                self.journal.metrics().compaction_passes.inc();
                if !pass.full {
                    self.put_to_rest(pass.log.id(), 0);
                }
                Ok(self.turn_of_pass())
            }
            Ok(false) => {
                self.pass = Some(pass);
                Ok(self.turn_of_pass())
            }
            // The start has passed what was to be read: the next pass begins there.
            Err(ArchiverError::Read(ReadError::Gone)) => Ok(Turn::Worked),
            Err(error) => {
                // Not again before others had their turn: each failure takes some time.
                self.put_off(&pass, FAILED_REST_MS);
                Err(error)
            }
        }
    }

    /// Ends a pass in the middle; the log has its turn again later.
    pub(super) fn give_up_pass(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.put_off(&pass, 0);
        }
    }

    /// A log is left alone as long as there is between two looks, and not for less than `least` ms.
    fn put_to_rest(&mut self, log: LogId, least: i64) {
        let rest = (self.journal.config().archive_check_ms as i64).max(least);
        self.resting.insert(log, self.journal.now_ms().saturating_add(rest));
    }

    fn put_off(&mut self, pass: &Pass, least: i64) {
        self.put_to_rest(pass.log.id(), least);
        // It was not gone through.
        self.compacted.remove(&pass.log.id());
    }

    fn turn_of_pass(&self) -> Turn {
        if self.pending.is_some() { Turn::Waiting } else { Turn::Worked }
    }

    /// The log with the largest dirty part, of those that are due.
    fn choose(&mut self) -> Option<Pass> {
        let now = self.journal.now_ms();
        let rest = self.journal.config().archive_check_ms as i64;
        if self.looked.is_some_and(|at| (at..at.saturating_add(rest)).contains(&now)) {
            return None;
        }
        // The clock may go back.
        let longest = now.saturating_add(rest.max(FAILED_REST_MS));
        self.resting.retain(|_, until| (now + 1..=longest).contains(until));
        let mut best: Option<(Arc<Log>, Compaction, Dirt)> = None;
        for log in self.logs() {
            let Some(policy) = log.compaction().filter(|_| !self.resting.contains_key(&log.id())) else { continue };
            let Some(dirt) = self.dirt(&log, &policy, now) else { continue };
            if best.as_ref().is_none_or(|(_, _, other)| other.ratio < dirt.ratio) {
                best = Some((log, policy, dirt));
            }
        }
        self.compacted.retain(|log, _| self.journal.log(*log).is_some());
        let Some((log, policy, dirt)) = best else {
            self.looked = Some(now);
            return None;
        };
        self.compacted.insert(log.id(), (dirt.from, dirt.until));
        let last = |producer: &crate::Producer| {
            producer.batches().last().map(|seen| seen.base.plus(u64::from(seen.last_delta)))
        };
        let lasts = log.producers().iter().filter_map(|(id, producer, _)| Some((*id, last(producer)?))).collect();
        let aborted = log.aborted_between(Offset::ZERO, dirt.until);
        Some(Pass {
            delete_retention_ms: i64::try_from(policy.delete_retention_ms).unwrap_or(i64::MAX),
            now,
            until: dirt.until,
            at: dirt.from,
            keys: Keys::new(self.journal.config().key_bytes),
            rules: Rules::new(aborted.clone(), dirt.from),
            noting: true,
            aborted,
            lasts,
            full: false,
            output: None,
            log,
        })
    }

    /// What of a log is to be compacted now; `None`: nothing.
    fn dirt(&self, log: &Arc<Log>, policy: &Compaction, now: Timestamp) -> Option<Dirt> {
        let (from, clean_bytes, horizon) = cleaned(log);
        let mut until = compactable_until(log);
        let passed = horizon <= now;
        let nothing = passed.then_some(Dirt { from, until: from, ratio: 0.0 });
        if from >= until {
            return nothing;
        }
        let dirty_bytes = self.journal.bytes_from(log, from).ok()?;
        let ratio = dirty_bytes as f64 / (dirty_bytes + clean_bytes).max(1) as f64;
        let hurried = policy.max_lag_ms < i64::MAX as u64;
        if ratio <= policy.dirty_ratio && !hurried {
            return nothing;
        }
        let (mut oldest, mut bytes) = (None, 0);
        let want = ColdWant { log: Arc::clone(log), from, until, max_bytes: 0 };
        let looked = self.journal.visit_runs(
            &want,
            |_| true,
            |_, run, _| {
                oldest.get_or_insert(run.append_time);
                if now - run.append_time < policy.min_lag_ms as i64 {
                    until = until.min(run.base);
                    return false;
                }
                bytes += u64::from(run.bytes);
                // Only a part that is too young need be looked for.
                policy.min_lag_ms > 0 && run.next < until
            },
        );
        let oldest = looked.ok().and(oldest)?;
        until = before_object(log, until);
        if from >= until || self.compacted.get(&log.id()) == Some(&(from, until)) {
            return nothing;
        }
        let age = (now - oldest).max(0) as u64;
        if age >= policy.max_lag_ms {
            return Some(Dirt { from, until, ratio: 2.0 });
        }
        let cleanable = if policy.min_lag_ms > 0 { bytes } else { dirty_bytes };
        let ratio = cleanable as f64 / (cleanable + clean_bytes).max(1) as f64;
        let rolled = dirty_bytes >= policy.segment_bytes || age >= policy.segment_ms;
        if rolled && ratio > policy.dirty_ratio { Some(Dirt { from, until, ratio }) } else { nothing }
    }

    /// The next part of a log, about an object long.
    fn part(&self, log: &Arc<Log>, at: Offset, until: Offset) -> Result<Part, ArchiverError> {
        let object = log.inner().archive.at(at).cloned();
        if let Some(object) = object {
            let runs = if object.length > 0 {
                let open = self.journal.open_object(&object)?;
                open.from(at).iter().map(|run| (Arc::clone(&open.segment), *run)).collect()
            } else {
                Vec::new()
            };
            return Ok(Part { runs: Sweep::new(runs), next: object.next, object: Some(object) });
        }
        let (runs, _) = self.runs_between(log, at, until, self.journal.config().object_bytes)?;
        let next = runs.last().map_or(until, |(_, run)| run.next);
        Ok(Part { runs: Sweep::new(runs), next, object: None })
    }

    /// Notes the keys of the next part. Never the end of a pass.
    fn note_keys(&mut self, pass: &mut Pass) -> Result<bool, ArchiverError> {
        let mut full = false;
        if pass.at < pass.until {
            let mut part = self.part(&pass.log, pass.at, pass.until)?;
            'part: while let Some((run, bytes)) = part.runs.next() {
                let bytes = bytes?;
                self.journal.metrics().compaction_read_bytes.inc_by(u64::from(run.bytes));
                for (header, batch) in batches(bytes) {
                    if header.next() <= pass.at {
                        continue;
                    }
                    if header.next() > pass.until {
                        break 'part;
                    }
                    if pass.keys.is_full() && part.object.is_none() {
                        // The rest is for the next pass.
                        pass.until = header.base().max(pass.at);
                        full = true;
                        break 'part;
                    }
                    if pass.rules.judge(&header, batch, pass.now) == Verdict::Records {
                        record::visit_keys(batch, |record| {
                            if let Some(key) = record.key {
                                pass.keys.put(key, record.offset);
                            }
                        })
                        .map_err(|error| self.damaged(&run, &header, &error))?;
                    }
                }
            }
            if part.object.is_some() && pass.keys.is_full() {
                // Objects are exchanged whole.
                (pass.until, full) = (pass.until.min(part.next), part.next < pass.until);
            }
            pass.at = part.next;
        }
        pass.full |= full;
        if full || pass.at >= pass.until {
            pass.noting = false;
            pass.at = cleaning_start(&pass.log);
            pass.rules = Rules::new(pass.aborted.clone(), pass.at);
        }
        Ok(false)
    }

    /// Cleans the next part. True at the end of the pass.
    fn clean(&mut self, pass: &mut Pass) -> Result<bool, ArchiverError> {
        if pass.at >= pass.until {
            // What was read behind the last exchange.
            if let Some(output) = pass.output.take() {
                self.exchange(output)?;
            }
            return Ok(true);
        }
        let mut part = self.part(&pass.log, pass.at, pass.until)?;
        let mut output = match pass.output.take() {
            Some(output) => output,
            None => Output::new(self.begin_object(pass.log.id(), pass.at)),
        };
        let mut ended = false;
        while let Some((run, bytes)) = part.runs.next() {
            let bytes = bytes?;
            self.journal.metrics().compaction_read_bytes.inc_by(u64::from(run.bytes));
            for (header, batch) in batches(bytes) {
                if header.next() <= output.object.next() {
                    continue;
                }
                if header.next() > pass.until && part.object.is_none() {
                    ended = true;
                    break;
                }
                self.clean_batch(pass, &mut output, &run, &header, batch)?;
            }
            if ended {
                break;
            }
            output.object.add(&[], run.next, 0, Timestamp::MIN, Timestamp::MIN);
        }
        if !ended {
            output.object.add(&[], part.next, 0, Timestamp::MIN, Timestamp::MIN);
        }
        output.changed |= part.object.as_ref().is_none_or(|object| !object.cleaned);
        output.replaces.extend(part.object);
        pass.at = if ended { pass.until } else { part.next };
        let whole = output.object.batch_bytes() >= self.journal.config().object_bytes / 2;
        if whole || pass.at >= pass.until {
            self.exchange(output)?;
        } else {
            pass.output = Some(output);
        }
        Ok(pass.at >= pass.until)
    }

    fn clean_batch(
        &self,
        pass: &mut Pass,
        output: &mut Output,
        run: &Run,
        header: &BatchHeader,
        batch: &[u8],
    ) -> Result<(), ArchiverError> {
        let verdict = pass.rules.judge(header, batch, pass.now);
        let horizon = pass.now.saturating_add(pass.delete_retention_ms);
        let damaged = |error| self.damaged(run, header, &error);
        let mut removed = header.records_count.max(0) as u32;
        let kept: Option<Bytes> = match verdict {
            Verdict::Keep => {
                header
                    .delete_horizon()
                    .filter(|at| *at > pass.now)
                    .into_iter()
                    .for_each(|at| output.object.note_horizon(at));
                removed = 0;
                Some(Bytes::copy_from_slice(batch))
            }
            Verdict::SetHorizon => {
                output.object.note_horizon(horizon);
                (removed, output.changed) = (0, true);
                Some(record::with_delete_horizon(batch, horizon).map_err(damaged)?)
            }
            Verdict::Discard => None,
            Verdict::Records => {
                let passed = header.delete_horizon().is_some_and(|horizon| horizon <= pass.now);
                let keep = |record: &record::RecordKey<'_>| {
                    record.offset >= pass.until
                        || record
                            .key
                            .is_some_and(|key| !(pass.keys.has_newer(key, record.offset) || record.tombstone && passed))
                };
                match record::retain(batch, horizon, keep).map_err(damaged)? {
                    Retained::All => {
                        removed = 0;
                        // One that has passed has nothing left to do.
                        header
                            .delete_horizon()
                            .filter(|at| *at > pass.now)
                            .into_iter()
                            .for_each(|at| output.object.note_horizon(at));
                        Some(Bytes::copy_from_slice(batch))
                    }
                    Retained::Changed { batch, removed: count, horizon } => {
                        horizon.filter(|at| *at > pass.now).into_iter().for_each(|at| output.object.note_horizon(at));
                        removed = count;
                        output.changed = true;
                        Some(batch)
                    }
                    Retained::Nothing => None,
                }
            }
        };
        let last_of_producer =
            !header.control() && pass.lasts.get(&header.producer_id).is_some_and(|last| last.0 + 1 == header.next().0);
        let kept = match kept {
            // Readers of committed records get to their end, too, while a transaction is open.
            None if last_of_producer || header.next() >= pass.log.last_stable() => {
                output.changed |= header.records_count > 0;
                Some(record::emptied(batch).map_err(damaged)?)
            }
            None => {
                output.changed = true;
                None
            }
            kept => kept,
        };
        self.journal.metrics().compaction_removed.inc_by(u64::from(removed));
        let left = header.records_count.max(0) as u32 - removed;
        if let Some(kept) = &kept {
            if Marker::of(header, batch) == Some(Marker::Abort) {
                output.kept_aborted.extend(pass.aborted.iter().find(|aborted| aborted.last == header.base()));
            }
            let max_timestamp = BatchHeader::parse(kept).map_or(header.max_timestamp, |header| header.max_timestamp);
            output.object.add(kept, header.next(), left, max_timestamp, run.append_time);
        } else {
            output.object.add(&[], header.next(), 0, Timestamp::MIN, Timestamp::MIN);
        }
        Ok(())
    }

    /// Puts a new object in the place of those that it was made of.
    fn exchange(&mut self, output: Output) -> Result<(), ArchiverError> {
        let Output { object, replaces, kept_aborted, changed } = output;
        // One that would come out as it went in stays.
        if object.next() == object.base() || !changed && replaces.len() == 1 {
            return Ok(());
        }
        self.journal.metrics().compaction_written_bytes.inc_by(object.batch_bytes());
        // Whatever is left of it, it was dealt with; of what was in the archive before nothing lay in segments.
        let taken = if replaces.is_empty() { object.batch_bytes() } else { 0 } + 1;
        let stored = self.put(vec![(object, kept_aborted)], true);
        if stored.made.is_empty() {
            return Err(stored.error());
        }
        self.commit(Pending { append: None, made: stored.made, gone: replaces, passed: Vec::new(), taken });
        Ok(())
    }

    fn damaged(&self, run: &Run, header: &BatchHeader, error: &record::BatchError) -> ArchiverError {
        ArchiverError::Batch { log: run.log, offset: header.base(), what: error.to_string() }
    }
}

/// Where the part of a log ends that may be compacted at all: before what readers of committed records may not see yet, and before
/// the last batch, if that is not in an object.
fn compactable_until(log: &Log) -> Offset {
    let (stable, readable) = (log.last_stable(), log.high_watermark());
    if stable == readable && log.archived_until() == readable {
        return readable;
    }
    before_object(log, stable.min(Offset(readable.0.saturating_sub(1))))
}

/// Objects are exchanged whole: the end of a part is not inside one.
fn before_object(log: &Log, until: Offset) -> Offset {
    log.inner().archive.at(until).map_or(until, |object| object.base)
}

/// Where a pass reads from: the first object that is still part of the log, or its start.
fn cleaning_start(log: &Log) -> Offset {
    let start = log.start();
    log.inner().archive.at(start).map_or(start, |object| object.base)
}

/// The batches of a run.
fn batches(run: &[u8]) -> impl Iterator<Item = (BatchHeader, &[u8])> {
    Batches::new(run)
        .map_while(Result::ok)
        .map(|(position, header)| (header, &run[position..position + header.total_bytes()]))
}
