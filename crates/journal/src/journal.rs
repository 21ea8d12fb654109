//! The journal as the broker holds it: a thread-safe front of the writer, the keeper and the caches.

mod archiving;
mod prepared;
mod producers;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, RwLock};
use smallvec::SmallVec;
use types::{Clock, Durability, LogId, LogIndex, Offset, ShardId, Term};
use uuid::Uuid;

use crate::append::{Append, EventSink, JournalEvent};
use crate::archive::{Archive, ArchiveStore};
use crate::archiver;
use crate::backup::PinJob;
use crate::cold::ColdReader;
use crate::index::IndexCache;
use crate::keeper::SealJob;
use crate::log::{Log, OfJournal};
use crate::metrics::JournalMetrics;
use crate::pool::BlockPool;
use crate::queue::{AHEAD_BYTES_MAX, Intake, WhenFull, weight};
use crate::recent::{RecentRun, RecentRuns, RunNumbers};
use crate::recovery::OpenError;
use crate::segments::{PreparedSegment, SegmentLook, SegmentTable};
use crate::state::StateMap;
use crate::tail::TailCache;
use crate::touched::Drops;
use crate::unreadable::UnreadablePlaces;
use crate::window::WindowState;
use crate::writer::CommitHere;

/// Memory for blocks is never less: chunks are built and read while two are written.
const BLOCKS_BYTES_MIN: usize = 32 << 20;

/// The table of recent runs has rows for what is in the tail cache: at most this part of its memory …
const ROWS_SHARE: usize = 8;
/// … at so much a row.
const ROW_BYTES: usize = 64;

/// Appends that wait for a segment this long, in ms, are a state of the journal and no longer a moment.
const SEGMENT_LATE_MS: u64 = 10_000;

/// How a journal is sized.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// Its number in the node, from 0.
    pub number: u16,
    /// Length of a segment file; at least 256 KiB.
    pub segment_bytes: u64,
    /// Memory for the newest chunks: two thirds for those that are kept for readers, the rest for those that are built, written or
    /// held by slow readers.
    pub tail_bytes: usize,
    /// Memory for history read from disk, as a cache.
    pub cold_bytes: usize,
    /// Memory for history that readers hold when it is no longer in the cache. They are not to hold more: what does not fit
    /// takes memory from the system.
    pub held_bytes: usize,
    /// Memory for index pages.
    pub index_bytes: usize,
    /// Memory for keyed state of the segment that is being written: one whose keys take more is sealed before it is full.
    pub state_bytes: usize,
    /// Memory for the idempotent producers that its logs know.
    pub producer_bytes: usize,
    /// Producers that have been silent this long are forgotten, in ms.
    pub producer_expiry_ms: u64,
    /// How often retention is looked after, in ms.
    pub retention_check_ms: u64,
    /// [`Journal::append_here`] leaves the write to the journal's thread when small ones have taken longer than this lately.
    pub quick_write: Duration,
    /// The journal's files may take so much, four segments at least: the oldest goes into the archive in time. `None`: any number.
    pub window_bytes: Option<u64>,
    /// Archive objects are about this long.
    pub object_bytes: u64,
    /// Memory for batches that go into the archive with one append; four objects in any case.
    pub gather_bytes: u64,
    /// Memory for the keys of a part of a log while it is compacted.
    pub key_bytes: usize,
    /// How often the archiver looks for work that nobody tells it of, in ms.
    pub archive_check_ms: u64,
    /// A defect to be found by the simulator.
    #[cfg(feature = "planted")]
    pub planted: Option<crate::Planted>,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            number: 0,
            segment_bytes: 256 << 20,
            tail_bytes: 384 << 20,
            cold_bytes: 64 << 20,
            held_bytes: 64 << 20,
            index_bytes: 16 << 20,
            state_bytes: 32 << 20,
            producer_bytes: 64 << 20,
            producer_expiry_ms: 86_400_000,
            retention_check_ms: 300_000,
            quick_write: Duration::from_micros(500),
            window_bytes: None,
            object_bytes: 8 << 20,
            gather_bytes: 128 << 20,
            key_bytes: 128 << 20,
            archive_check_ms: 15_000,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}

/// Can the journal be written?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalStatus {
    /// Yes.
    Running,
    /// Not data, until space is freed; deletes and trims, yes.
    DiskFull,
    /// Not at the moment: there is no segment to write into. It is tried again without end.
    Hindered {
        /// Why there is none.
        reason: String,
    },
    /// No, until a restart: a write or sync has failed.
    Stopped {
        /// What failed.
        reason: String,
    },
}

/// What [`Journal::read_tail`] found.
#[derive(Debug)]
pub enum TailRead {
    /// Whole batches, from the one that holds the offset.
    Data {
        /// In order; together the batches.
        slices: SmallVec<[Bytes; 4]>,
        /// Their length.
        bytes: usize,
        /// Offset after the last batch.
        next: Offset,
    },
    /// Nothing beyond this offset yet.
    Empty,
    /// The records are on disk only: [`Journal::read_cold`].
    Cold,
    /// Below the start or above the end.
    OutOfRange,
}

/// One journal of a node.
pub struct Journal {
    config: JournalConfig,
    uuid: Uuid,
    clock: Arc<dyn Clock>,
    intake: Intake,
    writer: OnceLock<Weak<dyn CommitHere>>,
    /// Moving mean of how long small writes take, in ns; 0 before the first.
    small_write_ns: AtomicU64,
    sinks: RwLock<Vec<Option<Arc<dyn EventSink>>>>,
    logs: RwLock<HashMap<LogId, Arc<Log>>>,
    of_logs: Arc<OfJournal>,
    tail: TailCache,
    pool: Arc<BlockPool>,
    recent: Arc<RecentRuns>,
    segments: SegmentTable,
    index_cache: Arc<IndexCache>,
    cold: ColdReader,
    archive: Archive,
    durable: AtomicU64,
    prepared: Mutex<Option<PreparedSegment>>,
    disk_full: AtomicBool,
    /// On a full disk something was written into the reserve of the segment that is written, and more may come.
    reserve_used: AtomicBool,
    /// It had no room for what came last.
    reserve_spent: AtomicBool,
    /// Of what is kept for state on a full disk less than half is left.
    state_short: AtomicBool,
    stopped: Mutex<Option<String>>,
    /// Since when the writer waits for a segment, by the steady clock in ms, at least 1; 0 when it does not.
    segment_wanted: AtomicU64,
    /// Records were let go since the keeper asked last.
    released: AtomicBool,
    /// Why the last attempt to prepare a segment failed.
    segment_error: Mutex<Option<String>>,
    /// That goes on for so long that what finds no room is refused.
    lacks_segments: AtomicBool,
    shutting_down: AtomicBool,
    keeper: Mutex<KeeperInbox>,
    keeper_wakes: Condvar,
    archiver: Mutex<ArchiverInbox>,
    archiver_wakes: Condvar,
    spare_segments: AtomicUsize,
    window: WindowState,
    recovered_state: Mutex<StateMap>,
    /// Logs that miss records, as recovery has found, and how a start that wants them is refused.
    lacking: Mutex<Vec<(LogId, OpenError)>>,
    /// Logs that an older release has dropped without saying so, and where what is left of them begins.
    begun_late: Mutex<Vec<(LogId, Offset)>>,
    /// Records may be missing, and nobody has said yet that they are not wanted: no checkpoint may hide that.
    unchecked: AtomicBool,
    pub(crate) writer_ended: crate::reached::WriterEnded,
    metrics: JournalMetrics,
    live_segment_bytes: AtomicUsize,
    state_bytes: AtomicUsize,
    drops: Drops,
    unreadable: UnreadablePlaces,
}

/// What the keeper is asked to do.
#[derive(Default)]
pub(crate) struct KeeperInbox {
    pub seals: Vec<SealJob>,
    pub woken: bool,
    pub check_retention: bool,
    /// Runs of sealed segments have moved.
    pub moved: bool,
    /// Files to be pinned.
    pub pins: Vec<PinJob>,
}

/// What the archiver is told.
#[derive(Default)]
pub(crate) struct ArchiverInbox {
    pub woken: bool,
    /// The outcome of its last append.
    pub results: Option<crate::AppendResults>,
}

impl Journal {
    pub(crate) fn new(
        config: JournalConfig,
        uuid: Uuid,
        term: Term,
        clock: Arc<dyn Clock>,
        archive: Arc<dyn ArchiveStore>,
    ) -> Self {
        let index_cache = Arc::new(IndexCache::new(config.index_bytes));
        let blocks = config.tail_bytes / 3 * 2 / crate::pool::BLOCK_BYTES;
        Self {
            uuid,
            clock,
            intake: Intake::new(),
            writer: OnceLock::new(),
            small_write_ns: AtomicU64::new(0),
            sinks: RwLock::default(),
            logs: RwLock::default(),
            of_logs: OfJournal::new(term, config.producer_bytes),
            tail: TailCache::new(blocks as u64, (config.tail_bytes / ROWS_SHARE / ROW_BYTES) as u64),
            pool: BlockPool::new(config.tail_bytes.max(BLOCKS_BYTES_MIN)),
            recent: Arc::default(),
            segments: SegmentTable::default(),
            index_cache,
            cold: ColdReader::new(config.cold_bytes, config.held_bytes),
            archive: Archive::new(archive, config.index_bytes),
            durable: AtomicU64::new(0),
            prepared: Mutex::new(None),
            disk_full: AtomicBool::new(false),
            reserve_used: AtomicBool::new(false),
            reserve_spent: AtomicBool::new(false),
            state_short: AtomicBool::new(false),
            stopped: Mutex::new(None),
            segment_wanted: AtomicU64::new(0),
            // What was let go before a start, nobody has looked after yet.
            released: AtomicBool::new(true),
            segment_error: Mutex::new(None),
            lacks_segments: AtomicBool::new(false),
            shutting_down: AtomicBool::new(false),
            keeper: Mutex::default(),
            keeper_wakes: Condvar::new(),
            archiver: Mutex::default(),
            archiver_wakes: Condvar::new(),
            spare_segments: AtomicUsize::new(0),
            window: WindowState::default(),
            recovered_state: Mutex::default(),
            lacking: Mutex::default(),
            begun_late: Mutex::default(),
            unchecked: AtomicBool::new(false),
            writer_ended: Default::default(),
            metrics: JournalMetrics::default(),
            live_segment_bytes: AtomicUsize::new(0),
            state_bytes: AtomicUsize::new(0),
            drops: Drops::default(),
            unreadable: UnreadablePlaces::default(),
            config,
        }
    }

    /// Queues an append; the outcome comes as [`JournalEvent::Appended`].
    ///
    /// # Errors
    /// The append itself, when the queue is full; `Space` follows.
    pub fn append(&self, append: Append) -> Result<(), Append> {
        self.intake.push(append, WhenFull::Answer)
    }

    /// Like [`Journal::append`], for a caller who has nothing better to do: a small append to a journal at rest is written on
    /// the calling thread, if the disk has been quick lately, and its outcome has been delivered when this returns. Saves two
    /// wake-ups, and blocks for the time of one write.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn append_here(&self, append: Append) -> Result<(), Append> {
        self.queue_here(append, WhenFull::Answer)
    }

    /// Like [`Journal::append`], or with `here` like [`Journal::append_here`], for a caller who keeps what is refused for as long as that
    /// takes: while there is no space, or no segment, data is refused as well, or waits in the order of its connection; it never comes back as
    /// `DiskFull` or `NoSegment` unless the journal is shut down.
    ///
    /// # Errors
    /// The append itself, when the queue or the disk is full or no segment can be made; `Space` follows.
    pub fn append_when_possible(&self, append: Append, here: bool) -> Result<(), Append> {
        if self.turns_away() {
            self.intake.turn_away(append.to.shard);
            // Space may have come meanwhile, and then nobody would send `Space`.
            if self.turns_away() {
                return Err(append);
            }
        }
        if here { self.queue_here(append, WhenFull::Wait) } else { self.intake.push(append, WhenFull::Wait) }
    }

    /// Like [`Journal::append`], for data that takes the place of other data, which is let go with it or right after: on a full disk it goes
    /// into space that is kept for it, and is refused as `DiskFull` when that is used up.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn append_from_reserve(&self, append: Append) -> Result<(), Append> {
        self.intake.push(append, WhenFull::FromReserve)
    }

    fn queue_here(&self, append: Append, when_full: WhenFull) -> Result<(), Append> {
        let took = self.small_write_ns.load(Ordering::Relaxed);
        let quick = (1..=self.config.quick_write.as_nanos() as u64).contains(&took);
        if !quick || weight(&append) > AHEAD_BYTES_MAX {
            return self.intake.push(append, when_full);
        }
        if self.intake.push_for_me(append, when_full)? {
            match self.writer.get().and_then(Weak::upgrade) {
                Some(writer) => writer.commit_here(),
                None => self.intake.ring(),
            }
        }
        Ok(())
    }

    /// Where the events of a shard go. Before its first append.
    pub fn add_sink(&self, shard: ShardId, sink: Arc<dyn EventSink>) {
        let mut sinks = self.sinks.write();
        let at = usize::from(shard.0);
        if sinks.len() <= at {
            sinks.resize_with(at + 1, || None);
        }
        sinks[at] = Some(sink);
    }

    pub(crate) fn deliver(&self, shard: ShardId, events: &mut Vec<JournalEvent>) {
        if shard == archiver::SHARD {
            return events.drain(..).for_each(|event| self.answer_archiver(event));
        }
        if let Some(Some(sink)) = self.sinks.read().get(usize::from(shard.0)) {
            sink.deliver(events);
        }
    }

    /// Tells who asked for it that records of a log were removed.
    pub(crate) fn tell_removals(&self, log: &Log) {
        let mut shards = log.take_removal_watchers();
        while shards != 0 {
            let shard = ShardId(shards.trailing_zeros() as u16);
            shards &= shards - 1;
            self.deliver(shard, &mut vec![JournalEvent::Advanced(log.id())]);
        }
    }

    /// A log by its id.
    pub fn log(&self, id: LogId) -> Option<Arc<Log>> {
        self.logs.read().get(&id).cloned()
    }

    /// The log with this id, created empty if it is new.
    pub fn create_log(&self, id: LogId, durability: Durability) -> Arc<Log> {
        let mut logs = self.logs.write();
        let log = logs.entry(id).or_insert_with(|| Arc::new(Log::new(id, durability, Arc::clone(&self.of_logs))));
        log.set_durability(durability);
        Arc::clone(log)
    }

    /// Forgets a log of which nothing is on the disk; false: there is something, and it ends by an [`crate::AppendItem::Drop`].
    pub fn forget_unused(&self, log: &Arc<Log>) -> bool {
        let mut inner = log.inner();
        if inner.ended || log.is_touched() {
            return false;
        }
        inner.ended = true;
        drop(inner);
        self.forget_logs(std::slice::from_ref(log));
        true
    }

    /// The end of these logs is durable: their space is freed by and by.
    pub(crate) fn forget_logs(&self, ended: &[Arc<Log>]) {
        for log in ended {
            self.logs.write().remove(&log.id());
            let mut inner = log.inner();
            inner.dropped = true;
            inner.runs = RunNumbers::default();
            inner.producers = None;
            self.archive.leave(std::mem::take(&mut inner.archive).iter().cloned());
            drop(inner);
            self.drops.fetch_add(1, Ordering::Relaxed);
        }
        if !ended.is_empty() {
            self.wake_archiver();
            self.wake_keeper(true);
        }
    }

    /// Logs deleted so far.
    pub(crate) fn drops(&self) -> &Drops {
        &self.drops
    }

    /// All logs that have not ended, in no order.
    pub fn log_ids(&self) -> Vec<LogId> {
        self.logs.read().keys().copied().collect()
    }

    /// The keyed state as recovered; taken once.
    pub fn take_state(&self) -> Vec<(Bytes, Bytes)> {
        let state = std::mem::take(&mut *self.recovered_state.lock());
        let copy = |(key, value)| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        state.iter().filter(|(key, _)| !crate::archive::is_record(key)).map(copy).collect()
    }

    pub(crate) fn set_lacking(&self, lacking: Vec<(LogId, OpenError)>) {
        self.unchecked.fetch_or(!lacking.is_empty(), Ordering::SeqCst);
        *self.lacking.lock() = lacking;
    }

    pub(crate) fn take_lacking(&self) -> Vec<(LogId, OpenError)> {
        std::mem::take(&mut *self.lacking.lock())
    }

    pub(crate) fn note_begun_late(&self, log: LogId, base: Offset) {
        self.begun_late.lock().push((log, base));
        self.unchecked.store(true, Ordering::SeqCst);
    }

    /// Nothing that is wanted is missing.
    pub(crate) fn set_checked(&self) {
        self.unchecked.store(false, Ordering::SeqCst);
        self.wake_keeper(false);
    }

    pub(crate) fn is_unchecked(&self) -> bool {
        self.unchecked.load(Ordering::SeqCst)
    }

    pub(crate) fn take_begun_late(&self) -> Vec<(LogId, Offset)> {
        std::mem::take(&mut *self.begun_late.lock())
    }

    pub(crate) fn set_recovered_state(&self, state: StateMap) {
        *self.recovered_state.lock() = state;
    }

    /// Can it be written?
    pub fn status(&self) -> JournalStatus {
        if let Some(reason) = self.stopped.lock().clone() {
            JournalStatus::Stopped { reason }
        } else if self.is_disk_full() {
            JournalStatus::DiskFull
        } else if let Some(reason) = self.hindrance() {
            JournalStatus::Hindered { reason }
        } else {
            JournalStatus::Running
        }
    }

    /// Why appends wait for a segment, if that is more than a moment. Waiting for the archive has an end of its own.
    fn hindrance(&self) -> Option<String> {
        let waited = self.waited_for_segment().filter(|_| !self.waits_for_archive())?;
        let late = || {
            (waited >= SEGMENT_LATE_MS).then(|| format!("no segment is ready to be written for {} s", waited / 1000))
        };
        self.segment_error.lock().clone().or_else(late)
    }

    /// How long the writer has waited for a segment, in ms, if it does.
    fn waited_for_segment(&self) -> Option<u64> {
        let since = self.segment_wanted.load(Ordering::Relaxed);
        (since > 0).then(|| self.clock.steady_ms().max(1).saturating_sub(since))
    }

    /// The reign that writes now.
    pub fn term(&self) -> Term {
        Term(self.of_logs.term.load(Ordering::Relaxed))
    }

    /// Everything up to here is on stable storage.
    pub fn durable_index(&self) -> LogIndex {
        LogIndex(self.durable.load(Ordering::Acquire))
    }

    /// Measurements.
    pub fn metrics(&self) -> &JournalMetrics {
        &self.metrics
    }

    /// Sizes.
    pub fn config(&self) -> &JournalConfig {
        &self.config
    }

    /// Memory held in blocks of the tail cache, in bytes: allocated, and of that in use.
    pub fn tail_memory(&self) -> (usize, usize) {
        (self.pool.allocated_bytes(), self.pool.used_bytes())
    }

    /// Memory of the keyed state of the segment that is being written, about.
    pub fn state_memory(&self) -> usize {
        self.state_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_state_memory(&self, bytes: usize) {
        self.state_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes waiting to be written.
    pub fn queued_bytes(&self) -> usize {
        self.intake.queued_bytes()
    }

    /// Number of segment files and bytes of them that are live, as of the keeper's last look.
    pub fn segment_usage(&self) -> (usize, usize) {
        (self.segments.len(), self.live_segment_bytes.load(Ordering::Relaxed))
    }

    /// Its segments, oldest first.
    pub fn segments_listed(&self) -> Vec<SegmentLook> {
        self.segments.looks()
    }

    /// Its number in the node.
    pub fn number(&self) -> u16 {
        self.config.number
    }

    /// Asks writer and keeper to finish: what is queued is written and flushed first.
    pub fn shutdown(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
        self.intake.wake_always();
        self.wake_keeper(false);
        self.wake_archiver();
    }

    /// Asks the keeper to look after retention now.
    pub fn check_retention(&self) {
        self.wake_keeper(true);
    }

    /// The records of `range`, as far as they are readable, out of memory; never blocks on the disk.
    pub fn read_tail(
        &self,
        log: &Log,
        range: std::ops::Range<Offset>,
        max_bytes: usize,
        min_one_batch: bool,
    ) -> TailRead {
        let (from, readable) = (range.start, log.high_watermark());
        if from < log.start() || from > readable {
            return TailRead::OutOfRange;
        }
        if from >= range.end.min(readable) {
            return TailRead::Empty;
        }
        if from < log.archived_until() {
            return TailRead::Cold;
        }
        let wanted = self.recent_runs(log, from, readable, max_bytes);
        let Some(first) = wanted.first() else { return TailRead::Cold };
        if first.run.base > from {
            return TailRead::Cold;
        }
        let mut cut = crate::cut::Cut::new(range, max_bytes, min_one_batch);
        self.tail.visit(wanted.iter().map(|recent| (recent.chunk, recent)), |chunk, recent| {
            let at = (recent.run.position - chunk.position) as usize;
            let bytes: SmallVec<[Bytes; 1]> =
                SmallVec::from_buf([chunk.bytes.slice(at..at + recent.run.bytes as usize)]);
            cut.add(&recent.run.placed(bytes), &recent.run);
        });
        if !cut.visited() {
            return TailRead::Cold;
        }
        self.metrics.tail_read_bytes.inc_by(cut.bytes() as u64);
        let (slices, bytes, next) = cut.finish();
        TailRead::Data { slices, bytes, next }
    }

    // What the writer, the keeper and cold reads use.

    /// The recent runs from the one that holds `from`, about `max_bytes` of them, none beyond `readable`.
    pub(crate) fn recent_runs(
        &self,
        log: &Log,
        from: Offset,
        readable: Offset,
        max_bytes: usize,
    ) -> SmallVec<[RecentRun; 8]> {
        let (mut runs, mut bytes) = (SmallVec::new(), 0);
        self.recent.visit_from(&log.inner().runs, from, |recent| {
            let wanted = bytes < max_bytes.max(1) && recent.run.next <= readable;
            bytes += recent.run.bytes as usize;
            if wanted {
                runs.push(recent);
            }
            wanted
        });
        runs
    }
    pub(crate) fn recent(&self) -> &Arc<RecentRuns> {
        &self.recent
    }

    pub(crate) fn share_writer(&self, writer: Weak<dyn CommitHere>) {
        assert!(self.writer.set(writer).is_ok(), "a journal has one writer");
    }
    pub(crate) fn note_small_write(&self, took: Duration) {
        let (took, mean) = (took.as_nanos() as u64, self.small_write_ns.load(Ordering::Relaxed));
        let mean = if mean == 0 { took } else { mean - mean / 8 + took / 8 };
        self.small_write_ns.store(mean.max(1), Ordering::Relaxed);
    }
    pub(crate) fn intake(&self) -> &Intake {
        &self.intake
    }
    pub(crate) fn pool(&self) -> &Arc<BlockPool> {
        &self.pool
    }
    pub(crate) fn tail(&self) -> &TailCache {
        &self.tail
    }
    pub(crate) fn segments(&self) -> &SegmentTable {
        &self.segments
    }
    pub(crate) fn index_cache(&self) -> &Arc<IndexCache> {
        &self.index_cache
    }
    pub(crate) fn cold(&self) -> &ColdReader {
        &self.cold
    }
    pub(crate) fn unreadable_places(&self) -> &UnreadablePlaces {
        &self.unreadable
    }
    pub(crate) fn archive(&self) -> &Archive {
        &self.archive
    }
    /// Its identity.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }
    pub(crate) fn steady_ms(&self) -> u64 {
        self.clock.steady_ms()
    }
    pub(crate) fn set_durable(&self, index: LogIndex) {
        self.durable.store(index.0, Ordering::Release);
    }
    /// Is there no space for data?
    pub fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::SeqCst)
    }
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::SeqCst)
    }
    pub(crate) fn set_stopped(&self, reason: String) {
        self.stopped.lock().get_or_insert(reason);
        self.wake_keeper(false);
    }

    pub(crate) fn set_term(&self, term: Term) {
        self.of_logs.term.store(term.0, Ordering::Relaxed);
    }
    /// Has a write or a flush failed? Then nothing that is not written will be.
    pub fn has_stopped(&self) -> bool {
        self.stopped.lock().is_some()
    }
    pub(crate) fn set_live_segment_bytes(&self, bytes: u64) {
        self.live_segment_bytes.store(bytes as usize, Ordering::Relaxed);
    }
    pub(crate) fn all_logs(&self) -> Vec<Arc<Log>> {
        self.logs.read().values().cloned().collect()
    }

    /// The writer has something to write and no segment for it.
    pub(crate) fn note_segment_wanted(&self) {
        let prepared = self.prepared.lock();
        if prepared.is_none() && self.segment_wanted.load(Ordering::Relaxed) == 0 {
            self.segment_wanted.store(self.clock.steady_ms().max(1), Ordering::Relaxed);
        }
    }

    /// Records of some log are not needed any more.
    pub fn note_released(&self) {
        if !self.released.load(Ordering::Relaxed) {
            self.released.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn take_released(&self) -> bool {
        self.released.load(Ordering::Relaxed) && self.released.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn seal(&self, job: SealJob) {
        let mut inbox = self.keeper.lock();
        inbox.seals.push(job);
        inbox.woken = true;
        self.keeper_wakes.notify_one();
    }

    pub(crate) fn wake_keeper(&self, check_retention: bool) {
        let mut inbox = self.keeper.lock();
        inbox.woken = true;
        inbox.check_retention |= check_retention;
        self.keeper_wakes.notify_one();
    }

    pub(crate) fn take_keeper_inbox(&self, wait: std::time::Duration) -> KeeperInbox {
        let mut inbox = self.keeper.lock();
        if !inbox.woken && !wait.is_zero() {
            self.keeper_wakes.wait_for(&mut inbox, wait);
        }
        std::mem::take(&mut inbox)
    }

    /// Runs of full segments that the keeper has not taken.
    pub(crate) fn runs_to_seal(&self) -> usize {
        self.keeper.lock().seals.iter().map(SealJob::runs_len).sum()
    }

    /// Has the keeper pin the journal's files.
    pub(crate) fn ask_for_pins(&self, job: PinJob) {
        let mut inbox = self.keeper.lock();
        inbox.pins.push(job);
        inbox.woken = true;
        self.keeper_wakes.notify_one();
    }

    /// Tells the keeper that sealed segments hold less than before.
    pub(crate) fn runs_moved(&self) {
        let mut inbox = self.keeper.lock();
        (inbox.woken, inbox.moved) = (true, true);
        self.keeper_wakes.notify_one();
    }

    /// Number of segment files that are kept to be written again.
    pub(crate) fn set_spare_segments(&self, count: usize) {
        self.spare_segments.store(count, Ordering::Relaxed);
    }
}
