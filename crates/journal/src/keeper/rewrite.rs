//! Getting space back: dead segments are freed, and neighbouring segments of which little is live are merged
//! into one, sorted by log, that takes the place of the oldest of them.
//!
//! A crash leaves either the old segments or the new one: the new file lists those it replaces, and recovery
//! removes them if they are still there.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use types::{LogId, LogIndex, Term};

use super::retention::Usage;
use super::{Keeper, KeeperError};
use crate::chunk::{crc32c, padded};
use crate::disk::{File, SECTOR};
use crate::index::{SealInfo, SealedIndex, write_index};
use crate::run::Run;
use crate::segments::{
    REPLACES_MAX, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentKind, segment_name,
};

/// Name of a segment that is being rewritten.
pub(crate) const NAME_REWRITING: &str = "rewriting";
/// Runs are merged up to this length, so that history reads in large pieces.
const MERGED_RUN_BYTES: usize = 1 << 20;
/// … and to so many offsets, as an entry of the index can say.
const MERGED_OFFSETS_MAX: u64 = 1 << 32;

impl Keeper {
    pub(super) fn reclaim(&mut self, usage: &[Usage]) -> Result<(), KeeperError> {
        self.delete_undeleted()?;
        // A checkpoint names the segments of before the last rewriting only: recovery looks back one step, not two.
        if self.rewritten_since_checkpoint {
            self.write_checkpoint()?;
        }
        let covered = self.checkpointed;
        for used in usage.iter().filter(|used| used.live_bytes == 0 && used.sequence < covered) {
            self.free(used.sequence)?;
        }
        let kept: Vec<&Usage> = usage.iter().filter(|used| used.live_bytes > 0 && used.sequence < covered).collect();
        if self.is_room_coming(self.journal.file_bytes()) {
            self.look.wanted = true;
            return Ok(());
        }
        if let Some(victims) = choose(&kept, self.journal.config().segment_bytes) {
            self.rewrite(&victims)?;
        }
        Ok(())
    }

    fn rewrite(&mut self, victims: &[u64]) -> Result<(), KeeperError> {
        let sources: Vec<(Arc<Segment>, Arc<SealedIndex>)> =
            self.journal.segments().sealed().into_iter().filter(|(segment, _)| victims.contains(&segment.sequence)).collect();
        if sources.len() != victims.len() {
            return Ok(());
        }
        if self.storage.list()?.iter().any(|name| name == NAME_REWRITING) {
            self.storage.discard(NAME_REWRITING, None)?;
        }
        let sequence = victims[0];
        let file = self.storage.create(NAME_REWRITING, SEGMENT_HEADER_BYTES as u64)?;
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
        self.rewritten_since_checkpoint = true;
        self.storage.replace(NAME_REWRITING, &segment_name(sequence), Arc::clone(&sources[0].0.file))?;
        self.storage.sync_folder()?;
        self.replace(sources, sequence, file, &logs)?;
        self.journal.metrics().segments_rewritten.inc_by(victims.len() as u64);
        Ok(())
    }

    /// Puts the new segment into the table, points the logs at it, and frees the others.
    fn replace(
        &mut self,
        sources: Vec<(Arc<Segment>, Arc<SealedIndex>)>,
        sequence: u64,
        file: Arc<dyn File>,
        logs: &HashSet<LogId>,
    ) -> Result<(), KeeperError> {
        let cache = Arc::clone(self.journal.index_cache());
        let index = SealedIndex::open(Arc::clone(&file), self.journal.uuid(), sequence, cache)?;
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
        let replaced: Vec<u64> = sources[1..].iter().map(|(replaced, _)| replaced.sequence).collect();
        // A segment that somebody holds is not written again.
        drop(sources);
        for replaced in replaced {
            self.free(replaced)?;
        }
        Ok(())
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
                for run in self.live_runs(*id, index)? {
                    let pieces = self.journal.cold().read_run(&self.journal, segment, &run)?;
                    copy.add(&run, &pieces)?;
                    copied.insert(*id);
                }
            }
        }
        for (segment, index) in sources {
            let mut runs = Vec::new();
            for id in all.iter().filter(|id| sharing.contains(*id)) {
                runs.extend(self.live_runs(*id, index)?);
            }
            runs.sort_unstable_by_key(|run| (run.position, run.log));
            copied.extend(runs.iter().map(|run| run.log));
            for same in runs.chunk_by(|one, other| one.position == other.position) {
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

    /// What a log still has in a segment.
    fn live_runs(&self, id: LogId, index: &SealedIndex) -> Result<Vec<Run>, KeeperError> {
        let Some(log) = self.journal.log(id) else { return Ok(Vec::new()) };
        let start = log.start().max(log.archived_until());
        let Some(row) = index.row(id)?.filter(|row| row.next > start) else { return Ok(Vec::new()) };
        let numbers = index.first_run_after(&row, start)?..row.entries;
        Ok(numbers.map(|number| index.run(&row, number)).collect::<Result<_, _>>()?)
    }
}

/// Neighbouring segments, oldest first, that are at least half dead together and fit into one.
fn choose(usage: &[&Usage], segment_bytes: u64) -> Option<Vec<u64>> {
    let mostly_dead = |used: &&Usage| used.live_bytes * 2 < used.total_bytes.max(segment_bytes / 2);
    for from in 0..usage.len() {
        let mut live = 0;
        let victims: Vec<u64> = usage[from..]
            .iter()
            .take_while(|used| mostly_dead(used))
            .take(REPLACES_MAX)
            .take_while(|used| {
                live += used.live_bytes;
                live <= segment_bytes
            })
            .map(|used| used.sequence)
            .collect();
        let worth_it = victims.len() >= 4 || (!victims.is_empty() && live * 4 < victims.len() as u64 * segment_bytes && usage[from].total_bytes * 2 > segment_bytes);
        if worth_it {
            return Some(victims);
        }
    }
    None
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
            follows && (open.bytes + run.bytes) as usize <= MERGED_RUN_BYTES && run.next.since(open.base) <= MERGED_OFFSETS_MAX
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
