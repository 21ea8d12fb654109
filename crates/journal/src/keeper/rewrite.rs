//! Getting space back: dead segments are freed, and segments of which little is live are rewritten, with their neighbours where these
//! fit, into one that takes the place of the oldest of them ([`choose`] says which, `copy` how it is filled). What records nobody needs leave
//! is a gap, a run of no bytes, so that a reader of a log meets each of its offsets.
//!
//! A crash leaves either the old segments or the new one: the new file lists those it replaces, and recovery
//! removes them if they are still there.

use std::io;
use std::sync::Arc;

use hashbrown::HashSet;
use types::{LogId, LogIndex, Term};

use super::choose::{Limits, choose};
use super::copy::{Copy, Source};
use super::room::NAME_ROOM;
use super::usage::Usage;
use super::{Keeper, KeeperError, LOOK_MAX_MS};
use crate::disk::{File, naming};
use crate::index::{SealInfo, SealedIndex, write_index};
use crate::segments::{SEGMENT_HEADER_BYTES, Segment, SegmentError, SegmentHeader, SegmentKind, segment_name};

/// Name of a segment that is being rewritten.
pub(crate) const NAME_REWRITING: &str = "rewriting";
/// When state has little room, or checkpoints fill the window, a checkpoint is written for this part of a segment; one for state alone is more
/// than that.
const GAIN_WHEN_SHORT_SHARE: u64 = 16;
/// When data waits for the next segment one is written for this part: no other segment may be sealed that would make one due.
const GAIN_WHEN_HELD_SHARE: u64 = 2;
/// Rewritings of one turn, …
const TURN_MAX: usize = 32;
/// … which ends after so many ms.
const TURN_MS: i64 = 200;

impl Keeper {
    /// Frees what is dead and rewrites what is mostly dead, for a while; what is left is looked at again soon.
    pub(super) fn reclaim(&mut self, mut usage: Vec<Usage>) -> Result<(), KeeperError> {
        self.delete_undeleted()?;
        self.settle_doubts();
        // As long as it stays nothing is rewritten.
        let leftover = self.remove_leftover();
        // A checkpoint names the segments of before the last rewriting only: recovery looks back one step, not two.
        let owed = self.copy_owed && !self.journal.is_disk_full();
        if self.rewritten_since_checkpoint
            || owed
            || self.checkpoint_failed.is_some()
            || self.is_checkpoint_worth(&usage)
        {
            self.write_checkpoint()?;
        }
        let covered = self.checkpointed.min(self.pinned_from.unwrap_or(u64::MAX));
        usage.retain(|used| used.sequence < covered);
        let dead: Vec<u64> = usage
            .extract_if(.., |used| used.live_bytes == 0 && !self.stays(used.sequence))
            .map(|used| used.sequence)
            .collect();
        self.free(&dead, None)?;
        if self.is_room_coming(self.journal.file_bytes()) {
            self.look.wanted = true;
            return leftover;
        }
        leftover?;
        self.rewrite_some(&mut usage)
    }

    /// Is there so much to be had of the segments behind the last checkpoint that it is worth another one before its time? While segments are
    /// sealed the next one comes by itself, unless the disk is short.
    fn is_checkpoint_worth(&mut self, usage: &[Usage]) -> bool {
        let behind = usage.iter().filter(|used| used.sequence >= self.checkpointed);
        // What is dead goes whole.
        let kept = |used: &Usage| if used.live_bytes == 0 { 0 } else { used.kept_bytes };
        let gain: u64 = behind.map(|used| used.file_bytes.saturating_sub(kept(used))).sum();
        let segment_bytes = self.journal.config().segment_bytes;
        let is_held = self.journal.window().is_held();
        // Where what is said of records finds no room soon, or data waits for room, a little is enough; the space for a checkpoint is there.
        let enough = if self.journal.is_state_short() || is_held && self.journal.is_window_narrow() {
            segment_bytes / GAIN_WHEN_SHORT_SHARE
        } else if is_held {
            segment_bytes / GAIN_WHEN_HELD_SHARE
        } else {
            // It is written twice.
            (segment_bytes / 2).max(2 * self.checkpoint_bytes + 1)
        };
        let is_worth = gain >= enough;
        self.look.held_back = is_worth && !self.is_quiet_since(self.look.sealed) && !self.is_short() && !is_held;
        is_worth && !self.look.held_back
    }

    /// Rewrites what is worth it, group by group, none of which has to do with another, until it has taken a turn's time.
    fn rewrite_some(&mut self, usage: &mut Vec<Usage>) -> Result<(), KeeperError> {
        let began = self.journal.now_ms();
        let mut outcome = Ok(());
        for _ in 0..TURN_MAX {
            let limits = self.limits()?;
            let blocked = |sequence| {
                self.setbacks.blocks(sequence)
                    || self.stays(sequence)
                    || self.journal.window().is_being_emptied(sequence) && !limits.short
            };
            #[cfg(feature = "planted")]
            let blocked = |sequence| {
                let is_left = |used: &Usage| used.sequence == sequence && used.kept_bytes > used.file_bytes / 20;
                blocked(sequence)
                    || self.journal.planted() == Some(crate::Planted::LeaveTwentieth) && usage.iter().any(is_left)
            };
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
                Err(KeeperError::Source { sequence, error }) => {
                    self.set_back(sequence, &error);
                    #[cfg(feature = "planted")]
                    if self.journal.planted() == Some(crate::Planted::ForsakeUnreadable) {
                        sequences.iter().for_each(|victim| _ = self.setbacks.enter(*victim, true, began));
                    }
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
        let took = (self.journal.now_ms() - began).clamp(0, LOOK_MAX_MS);
        if !self.is_short() {
            // Half of the time is for others.
            self.look.not_before = self.look.not_before.max(self.journal.now_ms() + took);
        }
        outcome
    }

    fn rewrite(&mut self, victims: &[u64], limits: &Limits) -> Result<(), KeeperError> {
        let outcome = self.rewrite_into(victims, limits);
        if !matches!(outcome, Ok(true)) {
            // It takes the space that the next attempt needs.
            self.remove_leftover()?;
        }
        outcome.map(drop)
    }

    /// One of the segments that were to be rewritten could not be read, or its file not be replaced.
    fn set_back(&mut self, sequence: u64, error: &SegmentError) {
        let damaged = !matches!(error, SegmentError::Io { .. });
        if !self.setbacks.enter(sequence, damaged, self.journal.now_ms()) {
            return;
        }
        let (journal, segment) = (self.journal.number(), segment_name(sequence));
        if damaged {
            tracing::error!(journal, segment, %error, "a segment is damaged and cannot be rewritten, the space of what is dead in it does not come back");
        } else {
            tracing::warn!(journal, segment, %error, "a segment cannot be rewritten now, that will be tried again");
        }
    }

    /// It is not there any more as it was.
    pub(super) fn forget_setback(&mut self, segment: &Segment) {
        self.journal.unreadable_places().forget(&segment.file.name());
        if self.setbacks.leave(segment.sequence) {
            tracing::info!(
                journal = self.journal.number(),
                segment = segment_name(segment.sequence),
                "a segment that could not be rewritten is, or all of it is dead"
            );
        }
    }

    /// What an attempt that failed, or was given up, has left of a rewriting.
    fn remove_leftover(&mut self) -> Result<(), KeeperError> {
        if self.storage.list()?.iter().any(|name| name == NAME_REWRITING) {
            self.storage.remove(NAME_REWRITING).map_err(naming(NAME_REWRITING))?;
        }
        Ok(())
    }

    /// False: it was given up, and everything is as it was.
    fn rewrite_into(&mut self, victims: &[u64], limits: &Limits) -> Result<bool, KeeperError> {
        let sources: Vec<Source> = self
            .journal
            .segments()
            .sealed()
            .into_iter()
            .filter(|(segment, _)| victims.contains(&segment.sequence))
            .collect();
        if sources.len() != victims.len() {
            return Ok(false);
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
        file.write_at(0, &header.encode()).map_err(naming(NAME_REWRITING))?;
        let mut copy = Copy::new(file);
        let Some(logs) = self.copy_live(&sources, &mut copy, limits)? else { return Ok(false) };
        let newest = sources.last().map(|(_, index)| *index.info());
        let info = SealInfo {
            journal: self.journal.uuid(),
            sequence,
            last_index: newest.map_or(LogIndex(0), |info| info.last_index),
            last_term: newest.map_or(Term(0), |info| info.last_term),
            last_crc: newest.map_or(0, |info| info.last_crc),
        };
        let (file, mut runs, end) = copy.finish().map_err(naming(NAME_REWRITING))?;
        // The index has those of each log in the order of its offsets, wherever they lie.
        runs.sort_unstable_by_key(|run| (run.log, run.base));
        let ids: Vec<LogId> = runs.chunk_by(|one, other| one.log == other.log).map(|same| same[0].log).collect();
        let places = runs.iter().map(|run| (ids.partition_point(|id| *id < run.log) as u32, *run));
        write_index(&*file, end, &ids, places, &info).map_err(naming(NAME_REWRITING))?;
        file.sync().map_err(naming(NAME_REWRITING))?;
        let index = self.open_index(&file, sequence)?;
        if let Err(error) =
            self.storage.replace(NAME_REWRITING, &segment_name(sequence), Arc::clone(&sources[0].0.file))
        {
            self.look_what_replaced(header, error)?;
        }
        // The file has the name. Whatever fails from here on, the table says so too: else a segment might be rewritten that this one says it replaces.
        let synced = self.storage.sync_folder();
        self.unsynced |= synced.is_err();
        let (file, index) = self.open_rewritten(sequence).unwrap_or((file, index));
        let freed = self.put_rewritten(sources, sequence, file, index, &logs);
        Ok(synced.and(freed).map(|()| true)?)
    }

    /// A file was to have the name of a segment, and that was said to have failed. Ok: it has it nevertheless.
    fn look_what_replaced(&mut self, new: SegmentHeader, source: io::Error) -> Result<(), KeeperError> {
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::StopAtUnreplaced) {
            return Err(source.into());
        }
        let file = segment_name(new.sequence);
        match self.has_replaced(&new) {
            Some(true) => Ok(()),
            // Only that segment is left alone.
            Some(false) => {
                Err(KeeperError::Source { sequence: new.sequence, error: SegmentError::Io { file, source } })
            }
            None => {
                self.in_doubt.push(new);
                Err(naming(&file)(source).into())
            }
        }
    }

    /// Has the file with this header the name of its segment? None: that cannot be found out now.
    fn has_replaced(&self, new: &SegmentHeader) -> Option<bool> {
        let header =
            |name: &str| self.storage.open_to_read(name).ok().and_then(|file| SegmentHeader::read(&*file).ok());
        match header(&segment_name(new.sequence)) {
            Some(there) => Some(there == *new),
            None => (header(NAME_REWRITING)? == *new).then_some(false),
        }
    }

    /// Is a segment neither to be freed nor to be rewritten?
    fn stays(&self, sequence: u64) -> bool {
        self.replaces_undeleted(sequence) || self.is_in_doubt(sequence)
    }

    /// May this segment be one that another replaces, by what is on the disk? Then it stays as it is: a start would remove what is written under its name.
    fn is_in_doubt(&self, sequence: u64) -> bool {
        self.in_doubt.iter().any(|new| new.replaces.contains(&sequence))
    }

    /// Looks again which files have the names of segments.
    fn settle_doubts(&mut self) {
        for new in std::mem::take(&mut self.in_doubt) {
            let settled = match self.has_replaced(&new) {
                Some(true) => self.take_over(&new),
                Some(false) => Ok(()),
                None => Err(io::Error::from(io::ErrorKind::Other).into()),
            };
            if settled.is_err() {
                self.in_doubt.push(new);
            }
        }
    }

    /// A rewritten segment was found to have its name: puts it into the table.
    fn take_over(&mut self, new: &SegmentHeader) -> Result<(), KeeperError> {
        let (file, index) = self.open_rewritten(new.sequence)?;
        let logs: HashSet<LogId> = index.rows()?.iter().map(|row| row.log).collect();
        let sources: Vec<Source> = self
            .journal
            .segments()
            .sealed()
            .into_iter()
            .filter(|(segment, _)| new.replaces.contains(&segment.sequence))
            .collect();
        if sources.first().is_none_or(|(first, _)| first.sequence != new.sequence) {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        self.unsynced = true;
        self.put_rewritten(sources, new.sequence, file, index, &logs)?;
        Ok(())
    }

    /// Puts a rewritten segment that has its name in the place of those it was made of, and frees these.
    fn put_rewritten(
        &mut self,
        sources: Vec<Source>,
        sequence: u64,
        file: Arc<dyn File>,
        index: SealedIndex,
        logs: &HashSet<LogId>,
    ) -> io::Result<()> {
        // Before any of them is rewritten once more.
        self.rewritten_since_checkpoint = true;
        self.replace(&sources, sequence, file, index, logs);
        self.forget_setback(&sources[0].0);
        let replaced: Vec<u64> = sources[1..].iter().map(|(replaced, _)| replaced.sequence).collect();
        self.journal.metrics().segments_rewritten.inc_by(sources.len() as u64);
        // A segment that somebody holds is not written again.
        drop(sources);
        self.free(&replaced, Some(sequence))
    }

    /// The file that is to be a rewritten segment. On a short disk it takes the space that is kept for it, which nobody else can have then.
    fn begin_rewriting(&mut self, limits: &Limits) -> Result<Arc<dyn File>, KeeperError> {
        if limits.short && self.storage.list()?.iter().any(|name| name == NAME_ROOM) {
            match self.storage.rename(NAME_ROOM, NAME_REWRITING) {
                Ok(()) => return Ok(self.storage.open(NAME_REWRITING).map_err(naming(NAME_REWRITING))?),
                // Then of what is free.
                Err(error) => {
                    self.report("use the space that is kept for a rewriting", Err(naming(NAME_ROOM)(error).into()))
                }
            }
        }
        Ok(self.storage.create(NAME_REWRITING, SEGMENT_HEADER_BYTES as u64).map_err(naming(NAME_REWRITING))?)
    }

    fn open_index(&self, file: &Arc<dyn File>, sequence: u64) -> Result<SealedIndex, KeeperError> {
        Ok(SealedIndex::open(Arc::clone(file), self.journal.uuid(), sequence, Arc::clone(self.journal.index_cache()))?)
    }

    /// Opened by the name that it has now, so that what is said of it later says which segment it is.
    fn open_rewritten(&self, sequence: u64) -> Result<(Arc<dyn File>, SealedIndex), KeeperError> {
        let file = self.storage.open(&segment_name(sequence))?;
        let index = self.open_index(&file, sequence)?;
        Ok((file, index))
    }

    /// Puts the new segment into the table, and points the logs at it.
    fn replace(
        &self,
        sources: &[Source],
        sequence: u64,
        file: Arc<dyn File>,
        index: SealedIndex,
        logs: &HashSet<LogId>,
    ) {
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
}
