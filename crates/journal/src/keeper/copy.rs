//! Copying what is live of some segments into one, so that each part of them is read once however their runs lie.
//!
//! * What was written in small pieces lies mixed: it is taken in the order in which it lies, and a *section*, some MiB of it, is put in the
//!   order of logs in memory. Nothing is read twice.
//! * Where runs are long sections are taken in the order of logs, and each run is read for itself: then all of a log lies together, which its
//!   readers like best.
//!
//! All live runs are in memory at the beginning, and those of the new segment at the end: the ones go as the others come, and `choose` sees to it that they are not too
//! many.
//!
//! Runs of one log that follow each other become one. What belongs to logs that share runs stays in the order in which it lies, so that shared
//! ones are copied once.

use std::cmp::Reverse;
use std::sync::Arc;

use hashbrown::HashSet;
use types::{LogId, Offset};

use super::choose::Limits;
use super::{Keeper, KeeperError, SealJob};
use crate::chunk::{crc32c, padded};
use crate::disk::{File, SECTOR};
use crate::index::SealedIndex;
use crate::log::Log;
use crate::run::{OFFSETS_MAX, Run};
use crate::segments::{SEGMENT_HEADER_BYTES, SEGMENT_RUNS_MAX, Segment, SegmentError};
use crate::sweep::Sweep;

/// Runs are merged up to this length, so that history reads in large pieces.
const MERGED_RUN_BYTES: usize = 1 << 20;
/// Longest section, …
const SECTION_BYTES_MAX: u64 = 16 << 20;
/// … which is also no more than this part of the memory for history, …
const CACHE_SHARE: u64 = 4;
/// … and of a segment.
const SEGMENT_SHARE: u64 = 16;
/// The writer gets new segments while a rewriting goes on until so many runs of full ones wait for its end: those of one segment at its most.
const RUNS_TO_SEAL_MAX: usize = SEGMENT_RUNS_MAX;
/// Runs of this mean length are long …
const LONG_RUN_BYTES: u64 = 16 << 10;
/// … and what lies between two of them is passed over from this length on: reading them takes no more than twice their length.
const LONG_RUN_GAP_BYTES: u64 = 8 << 10;
/// So many rows of an index are gone through before the writer is looked after.
const ROWS_AT_ONCE: usize = 1000;

/// A segment that is copied from.
pub(super) type Source = (Arc<Segment>, Arc<SealedIndex>);

/// A run that is to be copied.
#[derive(Clone, Copy)]
struct Part {
    /// Number of its source.
    source: u16,
    /// Its log has none that others share too.
    alone: bool,
    run: Run,
    /// Where its bytes are in the memory of the section.
    at: u32,
}

/// Where a part lies: its source, and its position there. A gap lies before what begins where it does.
type Place = (u16, u32, bool);

impl Part {
    fn place(&self) -> Place {
        (self.source, self.run.position, !self.run.is_gap())
    }

    /// What is sorted by this comes log by log; last what stays in its order.
    fn by_log(&self) -> (bool, LogId, Place, LogId, Offset) {
        let log = if self.alone { self.run.log } else { LogId(u64::MAX) };
        let place = if self.alone { (0, 0, false) } else { self.place() };
        (!self.alone, log, place, self.run.log, self.run.base)
    }

    fn by_place(&self) -> (Place, LogId, Offset) {
        (self.place(), self.run.log, self.run.base)
    }

    /// Is it the same body, or beside it none either?
    fn lies_with(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

/// How a copy is made.
struct Plan<'a> {
    sources: &'a [Source],
    /// Logs that share runs.
    sharing: HashSet<LogId>,
    /// Runs are long.
    long: bool,
    section_bytes: u64,
    /// Live runs, at most.
    runs: usize,
}

/// What a body takes while its section is read, beside its bytes and parts.
const WANTED_BYTES: usize = size_of::<(Arc<Segment>, Run)>();

/// Takes parts from the end, until they are a section; those of one body together.
fn next_section(parts: &mut Vec<Part>, section_bytes: u64) -> Vec<Part> {
    let (mut from, mut bytes) = (parts.len(), 0);
    for same in parts.chunk_by(Part::lies_with).rev() {
        if bytes >= section_bytes {
            break;
        }
        bytes += u64::from(same[0].run.bytes) + (size_of_val(same) + WANTED_BYTES) as u64;
        from -= same.len();
    }
    let section = parts.split_off(from);
    parts.shrink_to_fit();
    section
}

impl Keeper {
    /// Copies what is live. Returns the logs that have something in the new segment; `None`: the journal is being shut down.
    pub(super) fn copy_live(
        &mut self,
        sources: &[Source],
        copy: &mut Copy,
        limits: &Limits,
    ) -> Result<Option<HashSet<LogId>>, KeeperError> {
        let plan = self.plan(sources)?;
        let mut parts = self.live_parts(&plan, limits)?;
        // The last ones first: sections are taken from the end.
        match plan.long {
            true => parts.sort_unstable_by_key(|part| Reverse(part.by_log())),
            false => parts.sort_unstable_by_key(|part| Reverse(part.by_place())),
        }
        let copied = parts.iter().map(|part| part.run.log).collect();
        while !parts.is_empty() {
            let section = next_section(&mut parts, plan.section_bytes);
            if !self.copy_section(&plan, section, copy, limits)? {
                return Ok(None);
            }
        }
        Ok(Some(copied))
    }

    fn plan<'a>(&self, sources: &'a [Source]) -> Result<Plan<'a>, KeeperError> {
        let (mut sharing, mut bytes, mut entries, mut runs) = (HashSet::new(), 0, 0, 0);
        for (segment, index) in sources {
            for row in index.rows().map_err(|error| KeeperError::Source { sequence: segment.sequence, error })? {
                let is_live = |log: Arc<Log>| row.next > log.start().max(log.archived_until());
                runs += if self.journal.log(row.log).is_some_and(is_live) { row.entries as usize } else { 0 };
                if row.shared_bytes > 0 {
                    sharing.insert(row.log);
                } else {
                    bytes += row.bytes;
                    entries += u64::from(row.entries);
                }
            }
        }
        let config = self.journal.config();
        let section_bytes =
            SECTION_BYTES_MAX.min(config.cold_bytes as u64 / CACHE_SHARE).min(config.segment_bytes / SEGMENT_SHARE);
        Ok(Plan { sources, sharing, long: bytes >= entries * LONG_RUN_BYTES, section_bytes, runs })
    }

    /// What is live of the sources.
    fn live_parts(&mut self, plan: &Plan<'_>, limits: &Limits) -> Result<Vec<Part>, KeeperError> {
        // Of those that are done nobody knows yet.
        let mut parts = Vec::with_capacity(plan.runs.min(SEGMENT_RUNS_MAX));
        for (source, (segment, index)) in (0u16..).zip(plan.sources) {
            let all = index.rows().map_err(|error| KeeperError::Source { sequence: segment.sequence, error })?;
            for rows in all.chunks(ROWS_AT_ONCE) {
                self.prepare_meanwhile(limits);
                for row in rows {
                    let Some(log) = self.journal.log(row.log) else { continue };
                    let alone = !plan.sharing.contains(&row.log);
                    let runs = self
                        .live_runs(&log, row, index)
                        .map_err(|error| self.unreadable(segment, None, (row.log, row.base), error))?;
                    parts.extend(runs.into_iter().map(|run| Part { source, alone, run, at: 0 }));
                }
            }
        }
        Ok(parts)
    }

    /// Copies what is in a section. False: the journal is being shut down.
    fn copy_section(
        &mut self,
        plan: &Plan<'_>,
        mut section: Vec<Part>,
        copy: &mut Copy,
        limits: &Limits,
    ) -> Result<bool, KeeperError> {
        section.sort_unstable_by_key(Part::by_place);
        let Some(memory) = self.read_section(plan, &mut section, limits)? else { return Ok(false) };
        section.sort_unstable_by_key(Part::by_log);
        copy.runs.reserve_exact(section.len());
        for same in section.chunk_by(|one, other| !one.alone && !other.alone && one.lies_with(other)) {
            let first = &same[0];
            let bytes = &memory[first.at as usize..][..first.run.bytes as usize];
            if first.run.is_gap() || !first.run.shared {
                same.iter().try_for_each(|part| copy.add(&part.run, bytes))?;
                continue;
            }
            let sharers: Vec<Run> = same.iter().map(|part| part.run).collect();
            #[cfg(feature = "planted")]
            let sharers =
                if self.journal.planted() == Some(crate::Planted::FreeSharedBody) { vec![sharers[0]] } else { sharers };
            copy.add_shared(&sharers, bytes)?;
        }
        Ok(true)
    }

    /// Reads the bodies of a section, which is in the order in which they lie, and notes where each is in memory.
    fn read_section(
        &mut self,
        plan: &Plan<'_>,
        section: &mut [Part],
        limits: &Limits,
    ) -> Result<Option<Vec<u8>>, KeeperError> {
        let bodies = section.chunk_by(Part::lies_with).filter(|same| !same[0].run.is_gap()).count();
        let (mut wanted, mut bytes) = (Vec::with_capacity(bodies), 0u32);
        for same in section.chunk_by_mut(|one, other| one.lies_with(other)) {
            same.iter_mut().for_each(|part| part.at = bytes);
            if !same[0].run.is_gap() {
                wanted.push((Arc::clone(&plan.sources[usize::from(same[0].source)].0), same[0].run));
                bytes += same[0].run.bytes;
            }
        }
        let mut memory = Vec::with_capacity(bytes as usize);
        let mut sweep = Sweep::in_order(wanted);
        if plan.long {
            sweep = sweep.with_gap(LONG_RUN_GAP_BYTES);
        }
        let mut bodies =
            section.chunk_by(|one, other| one.lies_with(other)).map(|same| same[0]).filter(|part| !part.run.is_gap());
        let mut read = 0;
        while let Some((run, body)) = sweep.next_as_written() {
            let part = bodies.next();
            let segment = &plan.sources[part.map_or(0, |part| usize::from(part.source))].0;
            let body =
                body.and_then(|body| check_place(part, &run, memory.len(), || segment.file.name()).map(|()| body));
            let unreadable = |error| self.unreadable(segment, Some(run.position), (run.log, run.base), error);
            memory.extend_from_slice(body.map_err(unreadable)?);
            if sweep.read_bytes() > read {
                self.journal.metrics().rewriting_read_bytes.inc_by(sweep.read_bytes() - read);
                read = sweep.read_bytes();
                self.prepare_meanwhile(limits);
                if self.journal.is_shutting_down() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(memory))
    }

    /// A run, or what an index says of a log, cannot be read.
    fn unreadable(
        &self,
        segment: &Segment,
        position: Option<u32>,
        at: (LogId, Offset),
        error: SegmentError,
    ) -> KeeperError {
        self.journal.note_unreadable(&segment.file.name(), position, at, &error);
        KeeperError::Source { sequence: segment.sequence, error }
    }

    /// The writer waits for no rewriting, unless it has filled segments with so many runs since that they take much memory: none is sealed before it ends.
    /// On a short disk space is first for what brings back more.
    fn prepare_meanwhile(&mut self, limits: &Limits) {
        let waiting = || self.journal.runs_to_seal() + self.seals.iter().map(SealJob::runs_len).sum::<usize>();
        if !limits.short && !self.journal.has_prepared() && waiting() < RUNS_TO_SEAL_MAX && !self.is_short() {
            self.prepare_next();
        }
    }
}

/// Bodies come in the order in which they lie: one at another place would be taken for another log's.
fn check_place(part: Option<Part>, run: &Run, at: usize, file: impl FnOnce() -> String) -> Result<(), SegmentError> {
    if part.is_some_and(|part| part.run == *run && part.at as usize == at) {
        return Ok(());
    }
    let what = format!("the order of its runs ({} from offset {})", run.log, run.base);
    Err(SegmentError::Corrupt { file: file(), position: u64::from(run.position), what })
}

/// The new segment while it is filled: bodies are gathered into whole megabytes.
pub(crate) struct Copy {
    file: Arc<dyn File>,
    written: u64,
    pending: Vec<u8>,
    runs: Vec<Run>,
    /// The run being merged, and where it begins in the file.
    open: Option<(Run, usize)>,
}

impl Copy {
    pub fn new(file: Arc<dyn File>) -> Self {
        Self { file, written: SEGMENT_HEADER_BYTES as u64, pending: Vec::new(), runs: Vec::new(), open: None }
    }

    pub fn add(&mut self, run: &Run, bytes: &[u8]) -> std::io::Result<()> {
        let merges = self.open.as_ref().is_some_and(|(open, _)| {
            let follows = !open.shared && open.log == run.log && open.next == run.base;
            follows && (open.bytes + run.bytes) as usize <= MERGED_RUN_BYTES && run.next.since(open.base) <= OFFSETS_MAX
        });
        if !merges {
            self.close()?;
            let position = (self.written + self.pending.len() as u64) as u32;
            self.open = Some((Run { position, bytes: 0, next: run.base, records: 0, ..*run }, self.pending.len()));
        }
        self.pending.extend_from_slice(bytes);
        if let Some((open, _)) = &mut self.open {
            open.next = run.next;
            open.bytes += run.bytes;
            open.records = open.records.saturating_add(run.records);
            open.max_timestamp = open.max_timestamp.max(run.max_timestamp);
            open.append_time = open.append_time.max(run.append_time);
        }
        Ok(())
    }

    /// A body that logs share; each of these runs is one of its logs'.
    pub fn add_shared(&mut self, sharers: &[Run], bytes: &[u8]) -> std::io::Result<()> {
        self.close()?;
        let position = (self.written + self.pending.len() as u64) as u32;
        self.pending.extend_from_slice(bytes);
        self.runs.extend(sharers.iter().map(|run| Run { position, ..*run }));
        Ok(())
    }

    /// Ends the open run and writes whole sectors.
    fn close(&mut self) -> std::io::Result<()> {
        if let Some((mut run, start)) = self.open.take() {
            run.crc = crc32c(&self.pending[start..]);
            self.runs.push(run);
        }
        let whole = self.pending.len() / SECTOR * SECTOR;
        if whole >= 1 << 20 {
            self.write(whole)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: usize) -> std::io::Result<()> {
        let end = self.written + bytes as u64;
        if self.file.size()? < end {
            self.file.allocate(end)?;
        }
        self.file.write_at(self.written, &self.pending[..bytes])?;
        self.pending.drain(..bytes);
        self.written = end;
        Ok(())
    }

    pub fn finish(mut self) -> std::io::Result<(Arc<dyn File>, Vec<Run>, u64)> {
        self.close()?;
        self.pending.resize(padded(self.pending.len()), 0);
        let rest = self.pending.len();
        if rest > 0 {
            self.write(rest)?;
        }
        Ok((self.file, self.runs, self.written))
    }
}

#[cfg(test)]
mod tests;
