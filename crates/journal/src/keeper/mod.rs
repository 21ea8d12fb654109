//! The keeper: the background thread of a journal. It prepares the next segment, seals full ones, writes
//! checkpoints, enforces retention, frees and rewrites old segments. The writer never waits for it but
//! for a segment to write into.
//!
//! * K1 A segment's index is on disk before its runs leave memory.
//! * K2 A checkpoint covers only segments whose index is on disk.
//! * K3 A segment is freed only when a checkpoint covers it and no live log has a record in it that is not in the archive.

mod checkpoints;
mod choose;
mod copy;
mod expiry;
mod failures;
mod pin;
mod retention;
mod rewrite;
mod room;
mod setbacks;
mod spares;
mod usage;

pub(crate) use checkpoints::FoundCheckpoint;
pub(crate) use copy::Copy;
pub(crate) use rewrite::NAME_REWRITING;
pub(crate) use room::{NAME_RESERVE, make_reserve};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use types::{LogId, LogIndex, Term};

use crate::archive;
use crate::checkpoint::{self, ReplayFrom};
use crate::disk::{File, Storage, naming};
use crate::index::{SealInfo, SealedIndex, write_index};
use crate::journal::Journal;
use crate::log::Log;
use crate::recent::SegmentRuns;
use crate::recovery::{note_reached, spare_name};
use crate::segments::{PreparedSegment, SEGMENT_HEADER_BYTES, SegmentError, SegmentHeader, SegmentKind, segment_name};
use crate::state::{StateChanges, StateMap};
use crate::touched::TouchedLogs;
use crate::window::{Gate, Grant};
use crate::writer::ActiveSegment;

/// Between looks whether files on their way out have made room, and between parts of work that is done in parts.
const DEAD_WAIT: Duration = Duration::from_millis(10);

/// Longest wait for the end of the writer at a shutdown.
const WRITER_END: Duration = Duration::from_secs(10);

/// A log's record for the checkpoint, without producers and transactions.
const SNAPSHOT_BYTES: usize = 60;

/// When nothing is sealed, what was let go is looked after once in so many ms.
const QUIET_LOOK_MS: i64 = 5_000;

/// After a look at old segments this many times as long as it took passes until the next …
const LOOK_REST: i64 = 19;
/// … if it took at least so many ms.
const LONG_LOOK_MS: i64 = 5;
/// A look, or a rewriting, counts as so long at most: the clock may have been set forward meanwhile.
const LOOK_MAX_MS: i64 = 10_000;

/// A full segment on its way to the keeper.
pub(crate) struct SealJob {
    pub sequence: u64,
    pub file: Arc<dyn File>,
    /// End of the last chunk.
    pub end: u64,
    pub last_index: LogIndex,
    pub last_term: Term,
    pub last_crc: u32,
    pub runs: SegmentRuns,
    pub state: StateChanges,
    pub logs: TouchedLogs,
    /// The logs' records for the checkpoint, as of the end of the segment, one behind the other; and where each ends. Nothing for those that
    /// ended in the segment.
    snapshots: Vec<u8>,
    snapshot_ends: Vec<usize>,
}

impl SealJob {
    pub fn runs_len(&self) -> usize {
        self.runs.len()
    }

    pub fn new(active: ActiveSegment, last_index: LogIndex, last_term: Term, last_crc: u32) -> Self {
        let mut snapshots = Vec::with_capacity(active.touched.len() * SNAPSHOT_BYTES);
        let snapshot = |log: &Option<Arc<Log>>| {
            // What is placed behind its end is in a later segment: it was dropped here, or has ended in this one.
            if let Some(log) = log.as_ref().filter(|log| !log.inner().ended) {
                checkpoint::encode_log(log, &mut snapshots);
            }
            snapshots.len()
        };
        let snapshot_ends = active.touched.logs().iter().map(snapshot).collect();
        Self {
            sequence: active.sequence,
            file: active.file,
            end: active.position,
            last_index,
            last_term,
            last_crc,
            runs: active.runs,
            state: active.state,
            logs: active.touched,
            snapshots,
            snapshot_ends,
        }
    }
}

/// The background work of one journal. `step` is called by its thread, or by a simulator.
pub struct Keeper {
    journal: Arc<Journal>,
    storage: Arc<dyn Storage>,
    /// What the next checkpoint says of each log, without the bitmap.
    logs: BTreeMap<LogId, Vec<u8>>,
    state: StateMap,
    /// Logs that have ended, of which the archive may still have something.
    ended: BTreeSet<LogId>,
    seals: VecDeque<SealJob>,
    /// Sealed segments whose chunks may still be in the tail cache.
    unpruned: VecDeque<Unpruned>,
    replay: ReplayFrom,
    checkpointed: u64,
    bytes_since_checkpoint: u64,
    numbers: checkpoints::Numbers,
    /// Where the newest checkpoint is that counts.
    newest: &'static str,
    /// The third name is taken.
    third: bool,
    /// Why the last checkpoint does not count, unless the disk was full.
    checkpoint_failed: Option<String>,
    /// On a full disk there was no space for the copy of the newest one.
    copy_owed: bool,
    /// Segments were replaced that the checkpoint on disk still names.
    rewritten_since_checkpoint: bool,
    checkpoint_bytes: u64,
    next_sequence: u64,
    /// Segments from here on stay as they are: a backup is about to give them second names.
    pinned_from: Option<u64>,
    spares: spares::Spares,
    undeleted: Vec<Undeleted>,
    /// A rewritten segment has its name, which may not be durable: files that it replaces stay until it is.
    unsynced: bool,
    /// Of rewritten segments of which is not known whether they have their names.
    in_doubt: Vec<SegmentHeader>,
    setbacks: setbacks::Setbacks,
    /// Segments whose indexes could not be read.
    unmeasured: setbacks::Setbacks,
    look: Look,
    expiry: expiry::Expiry,
    gate: Gate,
    /// Room in the window is taken by files on their way out.
    waits_for_dead: bool,
    /// Checkpoints leave too little of the window: that was told.
    narrow: bool,
    failures: failures::Failures,
}

/// When old segments are to be looked after; times in ms.
#[derive(Clone, Copy)]
struct Look {
    /// A segment was sealed.
    wanted: bool,
    /// Runs of no sealed segment are to be looked at too.
    whole: bool,
    /// The last time they were.
    last: i64,
    /// The last look at all.
    at: i64,
    not_before: i64,
    /// The last time a segment was sealed.
    sealed: i64,
    /// Space waits for a checkpoint that is due only when more is written.
    held_back: bool,
}

/// A sealed segment whose runs are still in memory.
struct Unpruned {
    sequence: u64,
    last_index: LogIndex,
    /// Its runs' numbers are below.
    runs_end: u64,
    logs: Vec<Arc<Log>>,
}

/// What recovery leaves to the keeper.
pub(crate) struct KeeperStart {
    pub logs: BTreeMap<LogId, Vec<u8>>,
    pub state: StateMap,
    /// Logs that had ended, of which the archive had something.
    pub ended: Vec<LogId>,
    pub replay: ReplayFrom,
    pub checkpoint: FoundCheckpoint,
    pub next_sequence: u64,
    pub spares: Vec<String>,
    /// Replaced segments whose files could not be removed, and the segments that replace them.
    pub undeleted: BTreeMap<u64, u64>,
}

/// The file of a segment that is in no table any more, which could not be removed yet.
struct Undeleted {
    name: String,
    /// The rewritten segment that says it replaces this one. It stays, as it is, as long as the file: a start would take the file for a segment.
    by: Option<u64>,
    /// It was said that the file stays.
    told: bool,
}

impl Keeper {
    pub(crate) fn new(journal: Arc<Journal>, storage: Arc<dyn Storage>, start: KeeperStart) -> Self {
        let now = journal.now_ms();
        let look = Look {
            wanted: !start.undeleted.is_empty(),
            whole: false,
            last: now,
            at: now,
            not_before: i64::MIN,
            sealed: i64::MIN,
            held_back: false,
        };
        let next = spare_name(start.next_sequence);
        let length = |name: &String| storage.open(name).and_then(|file| file.size());
        let fits =
            |name: &String| *name == next || length(name).is_ok_and(|length| length == journal.config().segment_bytes);
        let (whole, misfits): (Vec<_>, Vec<_>) = start.spares.into_iter().partition(fits);
        journal.set_spare_segments(whole.len() + misfits.len());
        let spares = spares::Spares::new(whole, misfits, journal.config().window_bytes.is_some(), now);
        Self {
            checkpointed: start.replay.segment,
            journal,
            storage,
            logs: start.logs,
            state: start.state,
            ended: start.ended.into_iter().collect(),
            seals: VecDeque::new(),
            unpruned: VecDeque::new(),
            replay: start.replay,
            bytes_since_checkpoint: 0,
            numbers: checkpoints::Numbers::new(start.checkpoint, start.replay, start.next_sequence),
            newest: checkpoint::NAME,
            third: start.checkpoint.third,
            checkpoint_failed: None,
            copy_owed: false,
            rewritten_since_checkpoint: true,
            checkpoint_bytes: 0,
            next_sequence: start.next_sequence,
            pinned_from: None,
            spares,
            undeleted: start
                .undeleted
                .into_iter()
                .map(|(sequence, by)| Undeleted { name: segment_name(sequence), by: Some(by), told: true })
                .collect(),
            unsynced: false,
            in_doubt: Vec::new(),
            setbacks: setbacks::Setbacks::default(),
            unmeasured: setbacks::Setbacks::default(),
            look,
            expiry: expiry::Expiry::default(),
            narrow: false,
            gate: Gate::default(),
            waits_for_dead: false,
            failures: failures::Failures::default(),
        }
    }

    /// Runs until the journal is shut down.
    pub fn run(mut self) {
        while !self.journal.is_shutting_down() {
            let soon = self.waits_for_dead || self.expiry.goes_on();
            self.step(if soon { DEAD_WAIT } else { Duration::from_millis(500) });
        }
        if self.journal.writer_ended.wait(WRITER_END) {
            note_reached(&*self.storage, &self.journal, self.journal.durable_index());
        }
    }

    /// One turn: everything that is due. Waits at most `wait` for something to do.
    pub fn step(&mut self, wait: Duration) {
        let inbox = self.journal.take_keeper_inbox(wait);
        self.journal.pool().touch_next();
        self.seals.extend(inbox.seals);
        self.prepare_next();
        let sealed = self.seal_all();
        inbox.pins.into_iter().for_each(|job| self.pin(job));
        self.prune();
        // On a full disk nothing is sealed, and what is trimmed is all that can help.
        self.look.wanted |= sealed || inbox.moved || self.journal.is_disk_full() || self.has_quiet_news();
        self.look.wanted |= self.setbacks.end_pauses(self.journal.now_ms());
        self.look.wanted |= self.unmeasured.end_pauses(self.journal.now_ms());
        self.look.whole |= inbox.check_retention;
        if !self.journal.is_unchecked() {
            self.look_if_due();
        }
        self.expire_producers();
        self.prepare_next();
        self.give_back_spare();
        self.allow_dead_files();
    }

    /// Were records let go since the last look, or is more to be had without a checkpoint, and is that look long enough ago?
    fn has_quiet_news(&self) -> bool {
        self.is_quiet_since(self.look.at)
            && (self.journal.take_released() || self.look.held_back || self.journal.held_up().is_some())
    }

    /// The clock may go back.
    fn is_quiet_since(&self, at: i64) -> bool {
        let now = self.journal.now_ms();
        now.saturating_sub(at) >= QUIET_LOOK_MS || now < at
    }

    /// Would so many bytes be within the full mark, were it not for files on their way out? These go in a hurry then.
    fn is_room_coming(&self, wanted: u64) -> bool {
        let coming = |full| wanted <= full && wanted + self.storage.dead_bytes() > full;
        self.journal.marks().is_some_and(|marks| coming(marks.full))
    }

    /// Files on their way out may take what the window leaves below the mark where archiving begins.
    fn allow_dead_files(&self) {
        if let Some(marks) = self.journal.marks() {
            let left = marks.calm.saturating_sub(self.journal.file_bytes()).max(1);
            self.storage.allow_dead_bytes(if self.waits_for_dead { 0 } else { left });
        }
    }

    /// Looks after old segments when one was sealed, when it was asked for, and now and then; but rarer when there is much to
    /// look at: looking may not cost more than a twentieth of a core.
    fn look_if_due(&mut self) {
        let now = self.journal.now_ms();
        self.look.whole |= now - self.look.last >= self.journal.config().retention_check_ms as i64;
        if now < self.look.at {
            // The clock was set back.
            (self.look.at, self.look.last, self.look.not_before) = (now, self.look.last.min(now), now);
        }
        // What is to be freed is waited for.
        let later = now < self.look.not_before && !self.journal.window().is_held() && !self.journal.is_disk_full();
        if !(self.look.wanted || self.look.whole) || later {
            return;
        }
        let whole = self.look.whole;
        let last = if whole { now } else { self.look.last };
        self.look = Look { wanted: false, whole: false, last, at: now, not_before: now, ..self.look };
        let outcome = self.look_after_segments(whole);
        let failed = outcome.as_ref().err().filter(|error| !error.is_full()).map(ToString::to_string);
        self.journal.set_held_up(failed.or_else(|| self.checkpoint_failed.clone()));
        self.report("look after old segments", outcome);
    }

    fn report(&mut self, what: &'static str, outcome: Result<(), KeeperError>) {
        if let Err(error) = outcome
            && self.failures.tell(what, self.journal.now_ms())
        {
            tracing::warn!(journal = self.journal.number(), what, %error, "background work failed, will be tried again");
        }
    }

    /// Keeps one segment ready for the writer.
    fn prepare_next(&mut self) {
        if self.journal.has_stopped() {
            return;
        }
        if self.journal.has_prepared() {
            return self.review_prepared();
        }
        let Some(grant) = self.ask_window() else { return self.prepare_for_state() };
        // Space that comes back on a full disk is first for what brings back more.
        if self.is_short() && self.spares.is_empty() && !self.is_room_kept() && self.journal.is_disk_full() {
            return self.prepare_for_state();
        }
        match self.make_segment() {
            Ok(prepared) => {
                if let Grant::Beyond(reason) = grant {
                    self.note_beyond(reason);
                } else {
                    self.note_narrow();
                }
                self.next_sequence += 1;
                self.spares.note_made(self.journal.now_ms());
                self.journal.offer_prepared(prepared, !self.has_another());
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.journal.set_disk_full(true);
                self.prepare_short();
            }
            Err(error) => {
                self.journal.note_segment_error(format!("prepare a segment: {error}"));
                self.report("prepare a segment", Err(error.into()));
            }
        }
    }

    /// Is there room for another segment in the window, or is it not to be waited for (see `window`)?
    fn ask_window(&mut self) -> Option<Grant> {
        let Some(marks) = self.journal.marks() else { return Some(Grant::Room) };
        // A file that is there already takes nothing more.
        let wanted =
            if self.spares.is_empty() { self.journal.file_bytes() + self.journal.config().segment_bytes } else { 0 };
        self.waits_for_dead = wanted > 0 && self.is_room_coming(wanted);
        if self.waits_for_dead {
            return None;
        }
        let held = self.journal.window().is_held();
        let grant = self.gate.ask(&marks, self.journal.window(), wanted, self.journal.now_ms());
        if grant.is_none() && !held {
            self.journal.wake_archiver();
        }
        grant
    }

    /// Each step may fail and is tried again: the file that an attempt has left under the segment's name is used by the next one.
    fn make_segment(&mut self) -> io::Result<PreparedSegment> {
        let (sequence, size) = (self.next_sequence, self.journal.config().segment_bytes);
        let name = segment_name(sequence);
        let is_there = self.storage.list()?.contains(&name);
        #[cfg(feature = "planted")]
        let is_there = is_there && self.journal.planted() != Some(crate::Planted::InsistOnNew);
        if !is_there && !self.use_spare(&name) {
            let file = self.storage.create(&name, size).map_err(naming(&name))?;
            return self.begin_segment(file, (sequence, size), SEGMENT_HEADER_BYTES as u64);
        }
        let file = self.storage.open(&name).map_err(naming(&name))?;
        if file.size()? != size {
            file.allocate(size).map_err(naming(&name))?;
        }
        self.begin_segment(file, (sequence, size), size)
    }

    fn begin_segment(
        &self,
        file: Arc<dyn File>,
        (sequence, size): (u64, u64),
        written_before: u64,
    ) -> io::Result<PreparedSegment> {
        let header = SegmentHeader {
            kind: SegmentKind::Journal,
            journal: self.journal.uuid(),
            sequence,
            created: self.journal.now_ms(),
            replaces: Vec::new(),
        };
        file.write_at(0, &header.encode()).and_then(|()| file.sync()).map_err(naming(&segment_name(sequence)))?;
        self.storage.sync_folder()?;
        self.journal.segments().insert(sequence, Arc::clone(&file));
        Ok(PreparedSegment { sequence, file, size, written_before, for_state: false })
    }

    /// The journal's files take more than its window.
    fn note_beyond(&self, reason: &str) {
        self.journal.metrics().window_exceeded.inc();
        let (bytes, window) = (self.journal.file_bytes(), self.journal.config().window_bytes);
        tracing::warn!(journal = self.journal.number(), reason, bytes, window, "the journal grows beyond its window");
    }

    /// There is one more segment; it may be beyond the window because checkpoints leave too little of that.
    fn note_narrow(&mut self) {
        let (journal, window) = (self.journal.number(), self.journal.config().window_bytes);
        let (bytes, others) = (self.journal.file_bytes(), self.journal.window().others());
        let is_beyond = self.journal.is_window_narrow() && window.is_some_and(|window| bytes > window);
        self.journal.metrics().window_exceeded.inc_by(u64::from(is_beyond));
        if is_beyond && !self.narrow {
            tracing::warn!(
                journal,
                bytes,
                window,
                checkpoints = others,
                "the journal grows beyond its window: checkpoints, and what is kept for them, leave too little of it"
            );
        }
        self.narrow = is_beyond;
    }

    /// True when something was sealed.
    fn seal_all(&mut self) -> bool {
        let mut any = false;
        while let Some(mut job) = self.seals.pop_front() {
            if let Err(error) = self.seal(&mut job) {
                self.report("seal a segment", Err(error));
                self.seals.push_front(job);
                break;
            }
            any = true;
        }
        if any {
            self.look.sealed = self.journal.now_ms();
            self.write_checkpoint_if_due();
            self.journal.wake_archiver();
        }
        any
    }

    fn seal(&mut self, job: &mut SealJob) -> Result<(), KeeperError> {
        let info = SealInfo {
            journal: self.journal.uuid(),
            sequence: job.sequence,
            last_index: job.last_index,
            last_term: job.last_term,
            last_crc: job.last_crc,
        };
        let name = segment_name(job.sequence);
        let rows = write_index(&*job.file, job.end, job.logs.ids(), job.runs.iter(), &info).map_err(naming(&name))?;
        job.file.sync().map_err(naming(&name))?;
        let cache = Arc::clone(self.journal.index_cache());
        let index = SealedIndex::open(Arc::clone(&job.file), info.journal, info.sequence, cache)?;
        let segment = self.journal.segments().get(job.sequence).expect("a segment is in the table from its creation");
        segment.set_bytes(job.file.size()?);
        for (log, row) in job.logs.logs().iter().zip(&rows).filter(|(_, row)| row.entries > 0) {
            let Some(log) = log else { continue };
            let mut inner = log.inner();
            inner.segments.insert(job.sequence);
            inner.sealed_bytes += row.bytes;
            log.set_sealed_until(row.next);
        }
        // The runs stay in memory until their chunks have left the tail cache.
        assert!(segment.index.set(Arc::new(index)).is_ok(), "a segment is sealed once");
        let mut from = 0;
        for (id, end) in job.logs.ids().iter().zip(&job.snapshot_ends) {
            let snapshot = &job.snapshots[std::mem::replace(&mut from, *end)..*end];
            if snapshot.is_empty() {
                self.logs.remove(id);
                self.ended.insert(*id);
                continue;
            }
            let record = self.logs.entry(*id).or_default();
            record.clear();
            record.extend_from_slice(snapshot);
        }
        for record in job.state.take() {
            // The archiver did not know yet that the log had ended.
            let late =
                archive::log_of(record.key()).filter(|id| record.value().is_some() && !self.logs.contains_key(id));
            self.ended.extend(late);
            self.state.apply(record);
        }
        self.unpruned.push_back(Unpruned {
            sequence: job.sequence,
            last_index: job.last_index,
            runs_end: job.runs.end(),
            logs: std::mem::replace(&mut job.logs, TouchedLogs::new(self.journal.drops())).into_live(),
        });
        self.replay =
            ReplayFrom { segment: job.sequence + 1, index: job.last_index, term: job.last_term, crc: job.last_crc };
        self.bytes_since_checkpoint += job.end;
        self.journal.metrics().segments_sealed.inc();
        Ok(())
    }

    /// Lets go of runs that are in a sealed segment and no longer cached.
    fn prune(&mut self) {
        let first_cached = self.journal.tail().first();
        while self.unpruned.front().is_some_and(|segment| segment.last_index < first_cached) {
            let Some(segment) = self.unpruned.pop_front() else { return };
            for log in segment.logs {
                log.inner().runs.remove_below(segment.runs_end);
            }
            self.journal.recent().remove_through(segment.sequence);
        }
    }

    /// Takes segments out of the table that are dead, or replaced `by` another, and keeps or removes their files. Those that cannot be removed are
    /// removed later.
    ///
    /// # Errors
    /// The folder cannot be flushed.
    fn free(&mut self, sequences: &[u64], by: Option<u64>) -> io::Result<()> {
        if sequences.is_empty() {
            return Ok(());
        }
        for sequence in sequences {
            let is_freed = self.free_one(*sequence, by);
            #[cfg(feature = "planted")]
            if !is_freed && self.journal.planted() == Some(crate::Planted::LeaveReplaced) {
                return Ok(());
            }
            #[cfg(not(feature = "planted"))]
            let _ = is_freed;
        }
        if self.unsynced { Ok(()) } else { self.storage.sync_folder() }
    }

    /// False: the file is there still.
    fn free_one(&mut self, sequence: u64, by: Option<u64>) -> bool {
        let Some(segment) = self.journal.segments().get(sequence) else { return true };
        self.journal.segments().remove(sequence);
        self.forget_setback(&segment);
        self.journal.cold().forget(segment.id);
        for log in self.journal.all_logs() {
            log.inner().segments.remove(sequence);
        }
        let name = segment_name(sequence);
        if self.unsynced {
            self.undeleted.push(Undeleted { name, by, told: false });
            return true;
        }
        // Two holders are left when no reader has it: this one and the index.
        let unread = Arc::strong_count(&segment) == 1 && Arc::strong_count(&segment.file) <= 2;
        let is_whole = || {
            Ok::<_, io::Error>(
                !segment.file.is_linked()? && segment.file.size()? == self.journal.config().segment_bytes,
            )
        };
        let reusable = unread && is_whole().unwrap_or(false);
        let outcome = if reusable && self.spares.has_room(self.journal.now_ms()) {
            let spare = self.spares.next_name(sequence);
            self.storage.rename(&name, &spare).map(|()| self.spares.put(spare))
        } else {
            self.storage.discard(&name, Some(Arc::clone(&segment.file)))
        };
        if let Err(error) = outcome {
            tell_undeleted(self.journal.number(), &name, &error);
            self.undeleted.push(Undeleted { name, by, told: true });
            return false;
        }
        self.journal.set_spare_segments(self.spares.files());
        self.journal.metrics().segments_freed.inc();
        true
    }

    /// Removes the files that could not be removed before.
    ///
    /// # Errors
    /// It is not certain that the rewritten segments are on the disk which replace them.
    fn delete_undeleted(&mut self) -> io::Result<()> {
        if self.unsynced {
            self.storage.sync_folder()?;
            self.unsynced = false;
        }
        let (storage, journal) = (&self.storage, self.journal.number());
        self.undeleted.retain_mut(|file| match storage.discard(&file.name, None) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                if !std::mem::replace(&mut file.told, true) {
                    tell_undeleted(journal, &file.name, &error);
                }
                true
            }
            _ => false,
        });
        Ok(())
    }

    /// Is a file still there that this segment replaces? Then it is neither freed nor rewritten: one that replaces it would not say so of that file.
    fn replaces_undeleted(&self, sequence: u64) -> bool {
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::ForgetReplacing) {
            return false;
        }
        self.undeleted.iter().any(|file| file.by == Some(sequence))
    }
}

fn tell_undeleted(journal: u16, file: &str, error: &io::Error) {
    tracing::warn!(journal, file, %error, "the file of a segment that is not needed any more cannot be removed, that will be tried again");
}

/// Why background work failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeeperError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Of a segment that is being rewritten.
    #[error("segment {sequence} cannot be rewritten: {error}")]
    Source { sequence: u64, error: SegmentError },
}

impl KeeperError {
    fn is_full(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::StorageFull)
    }
}
