//! Getting space back: dead segments are freed, and segments of which little is live are rewritten, with their neighbours where these
//! fit, into one, sorted by log, that takes the place of the oldest of them ([`choose`] says which). What records nobody needs leave is a
//! gap, a run of no bytes, so that whoever reads a log meets each of its offsets.
//!
//! A crash leaves either the old segments or the new one: the new file lists those it replaces, and recovery
//! removes them if they are still there.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use types::{LogId, LogIndex, Term};

use super::choose::{Limits, choose};
use super::room::NAME_ROOM;
use super::usage::Usage;
use super::{Keeper, KeeperError};
use crate::chunk::{crc32c, padded};
use crate::disk::{File, SECTOR};
use crate::index::{SealInfo, SealedIndex, write_index};
use crate::run::{OFFSETS_MAX, Run};
use crate::segments::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentKind, segment_name};

/// Name of a segment that is being rewritten.
pub(crate) const NAME_REWRITING: &str = "rewriting";
/// Runs are merged up to this length, so that history reads in large pieces.
const MERGED_RUN_BYTES: usize = 1 << 20;
/// When state has little room a checkpoint is written for this part of a segment; one for state alone is more than that.
const GAIN_WHEN_SHORT_SHARE: u64 = 16;
/// Rewritings of one turn, …
const TURN_MAX: usize = 32;
/// … which ends after so many ms.
const TURN_MS: i64 = 200;

impl Keeper {
    /// Frees what is dead and rewrites what is mostly dead, for a while; what is left is looked at again soon.
    pub(super) fn reclaim(&mut self, mut usage: Vec<Usage>) -> Result<(), KeeperError> {
        self.delete_undeleted()?;
        self.remove_leftover()?;
        // A checkpoint names the segments of before the last rewriting only: recovery looks back one step, not two.
        if self.rewritten_since_checkpoint || self.is_checkpoint_worth(&usage) {
            self.write_checkpoint()?;
        }
        let covered = self.checkpointed.min(self.pinned_from.unwrap_or(u64::MAX));
        usage.retain(|used| used.sequence < covered);
        let dead: Vec<u64> = usage.extract_if(.., |used| used.live_bytes == 0).map(|used| used.sequence).collect();
        self.free(&dead)?;
        if self.is_room_coming(self.journal.file_bytes()) {
            self.look.wanted = true;
            return Ok(());
        }
        self.rewrite_some(&mut usage)
    }

    /// Is there so much to be had of the segments behind the last checkpoint that it is worth another one before its time? While segments are
    /// sealed the next one comes by itself, unless the disk is short.
    fn is_checkpoint_worth(&mut self, usage: &[Usage]) -> bool {
        let behind = usage.iter().filter(|used| used.sequence >= self.checkpointed);
        let gain: u64 = behind.map(|used| used.file_bytes.saturating_sub(used.kept_bytes)).sum();
        // It is written twice.
        let segment_bytes = self.journal.config().segment_bytes;
        // Where what is said of records finds no room soon a little is enough; the space for a checkpoint is there.
        let is_worth = gain > 2 * self.checkpoint_bytes && gain >= segment_bytes / 2 || self.journal.is_state_short() && gain >= segment_bytes / GAIN_WHEN_SHORT_SHARE;
        self.look.held_back = is_worth && !self.is_quiet_since(self.look.sealed) && !self.is_short();
        is_worth && !self.look.held_back
    }

    /// Rewrites what is worth it, group by group, none of which has to do with another, until it has taken a turn's time.
    fn rewrite_some(&mut self, usage: &mut Vec<Usage>) -> Result<(), KeeperError> {
        let began = self.journal.now_ms();
        let mut outcome = Ok(());
        for _ in 0..TURN_MAX {
            let limits = self.limits()?;
            let blocked = |sequence| self.unreadable.contains(&sequence) || self.journal.window().is_being_emptied(sequence) && !limits.short;
            let Some(victims) = choose(usage, &limits, blocked) else { break };
            let first = victims[0].sequence;
            let at = usage.iter().position(|used| used.sequence == first).unwrap_or(0);
            // What was rewritten is rewritten again only behind a checkpoint. It parts its neighbours too.
            usage[at].kept_bytes = usage[at].file_bytes.max(limits.segment_bytes);
            usage[at].file_bytes = usage[at].kept_bytes;
            usage.drain(at + 1..at + victims.len());
            self.look.wanted = true;
            let sequences: Vec<u64> = victims.iter().map(|used| used.sequence).collect();
            match self.rewrite(&sequences, &limits) {
                Ok(()) => {}
                Err(KeeperError::Segment(error)) => {
                    // What is damaged stays as it is, and is in nobody's way.
                    tracing::error!(journal = self.journal.number(), segments = ?sequences, %error, "a segment cannot be rewritten");
                    self.unreadable.extend(sequences);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            self.prepare_next();
            if self.journal.now_ms() - began >= TURN_MS {
                break;
            }
        }
        let took = (self.journal.now_ms() - began).max(0);
        if !self.is_short() {
            // Half of the time is for others.
            self.look.not_before = self.look.not_before.max(self.journal.now_ms() + took);
        }
        outcome
    }

    fn rewrite(&mut self, victims: &[u64], limits: &Limits) -> Result<(), KeeperError> {
        let outcome = self.rewrite_into(victims, limits);
        if outcome.is_err() {
            // It takes the space that the next attempt needs.
            self.remove_leftover()?;
        }
        outcome
    }

    /// What an attempt that failed has left of a rewriting.
    fn remove_leftover(&mut self) -> Result<(), KeeperError> {
        if self.storage.list()?.iter().any(|name| name == NAME_REWRITING) {
            self.storage.remove(NAME_REWRITING)?;
        }
        Ok(())
    }

    fn rewrite_into(&mut self, victims: &[u64], limits: &Limits) -> Result<(), KeeperError> {
        let sources: Vec<(Arc<Segment>, Arc<SealedIndex>)> =
            self.journal.segments().sealed().into_iter().filter(|(segment, _)| victims.contains(&segment.sequence)).collect();
        if sources.len() != victims.len() {
            return Ok(());
        }
        let sequence = victims[0];
        let file = self.begin_rewriting(limits)?;
        let header = SegmentHeader {
            kind: SegmentKind::Rewritten,
            journal: self.journal.uuid(),
            sequence,
            created: self.journal.now_ms(),
            replaces: victims.to_vec(),
        };
        file.write_at(0, &header.encode())?;
        let mut copy = Copy::new(file);
        let logs = self.copy_live(&sources, &mut copy)?;
        let newest = sources.last().map(|(_, index)| *index.info());
        let info = SealInfo {
            journal: self.journal.uuid(),
            sequence,
            last_index: newest.map_or(LogIndex(0), |info| info.last_index),
            last_term: newest.map_or(Term(0), |info| info.last_term),
            last_crc: newest.map_or(0, |info| info.last_crc),
        };
        let (file, runs, end) = copy.finish()?;
        let mut ids: Vec<LogId> = runs.iter().map(|run| run.log).collect();
        ids.sort_unstable();
        ids.dedup();
        let places = runs.iter().map(|run| (ids.partition_point(|id| *id < run.log) as u32, *run));
        write_index(&*file, end, &ids, places, &info)?;
        file.sync()?;
        let index = SealedIndex::open(Arc::clone(&file), self.journal.uuid(), sequence, Arc::clone(self.journal.index_cache()))?;
        self.rewritten_since_checkpoint = true;
        self.storage.replace(NAME_REWRITING, &segment_name(sequence), Arc::clone(&sources[0].0.file))?;
        // The file has the name. Whatever fails from here on, the table says so too: else a segment might be rewritten that this one says it replaces.
        let synced = self.storage.sync_folder();
        self.unsynced |= synced.is_err();
        self.replace(&sources, sequence, file, index, &logs);
        let replaced: Vec<u64> = sources[1..].iter().map(|(replaced, _)| replaced.sequence).collect();
        // A segment that somebody holds is not written again.
        drop(sources);
        let freed = self.free(&replaced);
        self.journal.metrics().segments_rewritten.inc_by(victims.len() as u64);
        Ok(synced.and(freed)?)
    }

    /// The file that is to be a rewritten segment. On a short disk it takes the space that is kept for it, which nobody else can have then.
    fn begin_rewriting(&mut self, limits: &Limits) -> Result<Arc<dyn File>, KeeperError> {
        if limits.short && self.storage.list()?.iter().any(|name| name == NAME_ROOM) {
            self.storage.rename(NAME_ROOM, NAME_REWRITING)?;
            return Ok(self.storage.open(NAME_REWRITING)?);
        }
        Ok(self.storage.create(NAME_REWRITING, SEGMENT_HEADER_BYTES as u64)?)
    }

    /// Puts the new segment into the table, and points the logs at it.
    fn replace(&self, sources: &[(Arc<Segment>, Arc<SealedIndex>)], sequence: u64, file: Arc<dyn File>, index: SealedIndex, logs: &HashSet<LogId>) {
        self.journal.segments().insert_sealed(sequence, file, index);
        self.journal.cold().forget(sources[0].0.id);
        for log in self.journal.all_logs() {
            let mut inner = log.inner();
            if logs.contains(&log.id()) {
                inner.segments.insert(sequence);
            } else {
                inner.segments.remove(sequence);
            }
            for (replaced, _) in &sources[1..] {
                inner.segments.remove(replaced.sequence);
            }
        }
    }

    /// Copies what is live: log by log, but what belongs to logs that share runs in the order in which it lies, so that the runs of each
    /// stay in theirs and shared ones are copied once. Returns the logs that have something in the new segment.
    fn copy_live(&self, sources: &[(Arc<Segment>, Arc<SealedIndex>)], copy: &mut Copy) -> Result<HashSet<LogId>, KeeperError> {
        let (mut all, mut sharing) = (Vec::new(), HashSet::new());
        for (_, index) in sources {
            for row in index.rows()? {
                all.push(row.log);
                sharing.extend((row.shared_bytes > 0).then_some(row.log));
            }
        }
        all.sort_unstable();
        all.dedup();
        let mut copied = HashSet::new();
        for id in all.iter().filter(|id| !sharing.contains(*id)) {
            for (segment, index) in sources {
                for run in self.live_runs_of(*id, index)? {
                    let pieces = self.journal.cold().read_run(&self.journal, segment, &run)?;
                    copy.add(&run, &pieces)?;
                    copied.insert(*id);
                }
            }
        }
        for (segment, index) in sources {
            let mut runs = Vec::new();
            for id in all.iter().filter(|id| sharing.contains(*id)) {
                runs.extend(self.live_runs_of(*id, index)?);
            }
            runs.sort_unstable_by_key(|run| (run.position, !run.is_gap(), run.log));
            copied.extend(runs.iter().map(|run| run.log));
            for same in runs.chunk_by(|one, other| one.position == other.position && one.is_gap() == other.is_gap()) {
                if same[0].is_gap() {
                    same.iter().try_for_each(|gap| copy.add(gap, &[]))?;
                    continue;
                }
                let pieces = self.journal.cold().read_run(&self.journal, segment, &same[0])?;
                match same {
                    [run] if !run.shared => copy.add(run, &pieces)?,
                    #[cfg(feature = "planted")]
                    sharers if self.journal.planted() == Some(crate::Planted::FreeSharedBody) => copy.add_shared(&sharers[..1], &pieces)?,
                    sharers => copy.add_shared(sharers, &pieces)?,
                }
            }
        }
        Ok(copied)
    }

    fn live_runs_of(&self, id: LogId, index: &SealedIndex) -> Result<Vec<Run>, KeeperError> {
        let (Some(log), Some(row)) = (self.journal.log(id), index.row(id)?) else { return Ok(Vec::new()) };
        self.live_runs(&log, &row, index)
    }
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

    pub fn add(&mut self, run: &Run, pieces: &[Bytes]) -> std::io::Result<()> {
        let merges = self.open.as_ref().is_some_and(|(open, _)| {
            let follows = !open.shared && open.log == run.log && open.next == run.base;
            follows && (open.bytes + run.bytes) as usize <= MERGED_RUN_BYTES && run.next.since(open.base) <= OFFSETS_MAX
        });
        if !merges {
            self.close()?;
            let position = (self.written + self.pending.len() as u64) as u32;
            self.open = Some((Run { position, bytes: 0, next: run.base, records: 0, ..*run }, self.pending.len()));
        }
        pieces.iter().for_each(|piece| self.pending.extend_from_slice(piece));
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
    pub fn add_shared(&mut self, sharers: &[Run], pieces: &[Bytes]) -> std::io::Result<()> {
        self.close()?;
        let position = (self.written + self.pending.len() as u64) as u32;
        pieces.iter().for_each(|piece| self.pending.extend_from_slice(piece));
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
