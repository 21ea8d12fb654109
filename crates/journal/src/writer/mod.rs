//! The writer: the one thread that gives a journal its order. It drains the queue, builds a chunk, submits
//! it, and on completion moves the watermarks and answers. No async, no timer on the way of an append:
//! what arrives while a write is under way goes into the next chunk.
//!
//! ```text
//! queue ─ fill (build.rs) ─ chunk ─ submit ─ completion (commit.rs) ─ received ─ sync ─ durable ─ answers
//! ```
//!
//! * W1 At most [`WRITES_MAX`] chunk writes are under way, and one more of small requests that go ahead of others' bulk;
//!   completions are released in index order.
//! * W2 `received` is the last index up to which all writes have completed, `durable` the last up to which
//!   all are on stable storage. A log of class `memory` is answered and readable at the first, of class
//!   `fsync` at the second.
//! * W3 `RWF_DSYNC` only when everything before is durable; otherwise the write completes and a sync of
//!   its file, submitted after that, makes it durable.
//! * W4 After a failed write or sync nothing is written, answered or made readable again.
//! * W5 While nothing is under way the writer rests, and whoever asks for a small commit may carry it out ([`shared`]).
//!
//! Tested by the simulator (`crates/sim`), which drives [`Writer::step`] by hand.

mod build;
mod commit;
mod shared;
mod shared_bodies;

use std::sync::Arc;
use std::time::{Duration, Instant};

use types::{LogIndex, ShardId, Term};

use crate::append::{AppendError, JournalEvent};
use crate::disk::{Completion, File, Submitter, Wait};
use crate::journal::Journal;
use crate::keeper::SealJob;
use crate::pool::Block;
use crate::queue::{Lanes, Pass, Placing};
use crate::recent::SegmentRuns;
use crate::segments::PreparedSegment;
use crate::state::StateChanges;
use crate::touched::TouchedLogs;
use commit::Flights;
pub(crate) use shared::CommitHere;
use shared::SharedWriter;

/// Chunk writes under way at once.
pub const WRITES_MAX: usize = 2;
/// A chunk of small requests that go ahead of bulk is no longer than this.
const SMALL_CHUNK_BYTES: usize = 64 << 10;
/// Chunks of class `fsync` that may wait for a flush before no more are built.
const UNFLUSHED_CHUNKS_MAX: usize = 8;
/// While a chunk is under way, less than this waits for it, so that commits group.
const SECOND_CHUNK_BYTES: usize = 128 << 10;
/// `memory` logs are flushed after this long: a flush that makes the file system note a whole second's blocks holds up writes beside it …
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// … or this much.
const FLUSH_BYTES: u64 = 64 << 20;
/// Zeroes written ahead of small commits in a fresh segment, at most this much at once.
const ZERO_STEP_BYTES: usize = 1 << 20;
/// Zeroes written ahead per process, at most: about a segment, after which recycled ones are to be expected.
const ZERO_BYTES_MAX: u64 = 256 << 20;

/// The segment that is being written.
pub(crate) struct ActiveSegment {
    pub sequence: u64,
    pub file: Arc<dyn File>,
    pub size: u64,
    /// Where the next chunk goes.
    pub position: u64,
    /// Up to here the file's blocks have been written before; a commit there costs no metadata.
    pub written_before: u64,
    /// No data goes into it. After a restart it is like others.
    pub for_state: bool,
    pub runs: SegmentRuns,
    pub state: StateChanges,
    /// Logs that have something in it, each once.
    pub touched: TouchedLogs,
}

impl ActiveSegment {
    /// Enters a log into the list of those that have something here, and returns its place there.
    pub fn touch(&mut self, log: &Arc<crate::Log>) -> u32 {
        let (place, new) = log.touch(self.sequence, self.touched.len() as u32);
        if new {
            self.touched.push(log);
        }
        place
    }
}

/// The block that is being filled.
struct OpenBlock {
    block: Arc<Block>,
    filled: usize,
    number: u64,
}

/// The state machine of one journal's writes. `step` is called by its thread, or by a simulator.
pub struct Writer<S> {
    journal: Arc<Journal>,
    submitter: S,
    lanes: Lanes,
    arrived: Vec<crate::queue::Arrival>,
    /// Empty between chunks; its memory is used again.
    batches: Vec<build::PlacedBatch>,
    finished: Vec<crate::queue::Placing>,
    completions: Vec<Completion>,
    active: ActiveSegment,
    open_block: Option<OpenBlock>,
    /// Follows when the open one is full.
    spare_block: Option<Block>,
    block_number: u64,
    flights: Flights,
    next_index: LogIndex,
    previous_crc: u32,
    term: Term,
    /// Sealed segments whose last chunk is not durable yet.
    sealing: std::collections::VecDeque<SealJob>,
    zeroing: Option<u64>,
    zeroed_bytes: u64,
    /// Data waits for the archive since.
    window_wait: Option<Instant>,
    outbox: Vec<Vec<JournalEvent>>,
    stopped: bool,
    shutting_down: bool,
    /// The thread that asked for the commit carries it out: writes are done at once.
    here: bool,
}

/// What recovery leaves to the writer.
pub(crate) struct WriterStart {
    pub active: ActiveSegment,
    pub next_index: LogIndex,
    pub previous_crc: u32,
    pub term: Term,
    pub sealing: Vec<SealJob>,
}

impl<S: Submitter> Writer<S> {
    pub(crate) fn new(journal: Arc<Journal>, submitter: S, start: WriterStart) -> Self {
        journal.intake().set_waker(submitter.waker());
        let durable = LogIndex(start.next_index.0 - 1);
        let mut writer = Self {
            journal,
            submitter,
            lanes: Lanes::default(),
            arrived: Vec::new(),
            batches: Vec::new(),
            finished: Vec::new(),
            completions: Vec::new(),
            active: start.active,
            open_block: None,
            spare_block: None,
            block_number: 0,
            flights: Flights::new(durable),
            next_index: start.next_index,
            previous_crc: start.previous_crc,
            term: start.term,
            sealing: start.sealing.into(),
            zeroing: None,
            zeroed_bytes: 0,
            window_wait: None,
            outbox: Vec::new(),
            stopped: false,
            shutting_down: false,
            here: false,
        };
        writer.write_new_term();
        writer
    }

    /// Runs until [`Journal::shutdown`] has been called and everything accepted is durable and answered.
    pub fn run(self)
    where
        S: 'static,
    {
        SharedWriter::run(self);
    }

    /// One turn: completions, arrivals, chunks, answers. May block when `may_wait` and there is nothing to
    /// do. Returns false when the journal has been shut down and nothing is left.
    pub fn step(&mut self, may_wait: bool) -> bool {
        let wait = self.wait_for(may_wait);
        self.submitter.poll(wait, &mut self.completions);
        self.take_completions();
        self.take_arrivals();
        self.tell_of_space();
        while !self.stopped && self.build_next() {}
        self.maybe_zero_ahead();
        self.maybe_sync();
        self.deliver();
        !(self.shutting_down && self.idle())
    }

    /// From when on what finds no room is refused, those try again to whom the queue was full: they hear of it then. Afterwards those do that were turned
    /// away.
    fn tell_of_space(&mut self) {
        self.post_space(self.journal.intake().take_refused());
        if !self.journal.intake().turns_away() {
            self.post_space(self.journal.intake().take_turned_away());
        }
    }

    /// Nothing queued, nothing under way, nothing unflushed.
    pub fn idle(&self) -> bool {
        self.lanes.is_empty() && (self.stopped || self.flights.is_empty()) && !self.journal.intake().has_waiting()
    }

    /// A turn on the thread of whoever queued a request when the writer rested: one chunk, written at once. True when nothing is
    /// left to be done, so that the writer rests on.
    pub fn commit_here(&mut self) -> bool {
        let timed = self.flights.oldest_unflushed().is_some();
        self.here = true;
        self.take_arrivals();
        if !self.stopped {
            self.build_next();
        }
        self.here = false;
        self.take_completions();
        self.deliver();
        let as_before = timed == self.flights.oldest_unflushed().is_some();
        as_before && self.sealing.is_empty() && !self.wants_zeroes() && !self.flights.wait_for_sync() && self.rests()
    }

    /// Nothing is under way and nothing waits.
    pub fn rests(&self) -> bool {
        let under_way = self.flights.any_write_under_way() || self.flights.sync_under_way() || self.zeroing.is_some();
        !under_way && self.lanes.is_empty() && !self.shutting_down
    }

    /// How long a writer with nothing under way may do nothing.
    fn until_flush(&self) -> Option<Duration> {
        let elapsed = |since| Duration::from_millis(self.journal.steady_ms().saturating_sub(since));
        self.flights.oldest_unflushed().map(|since| FLUSH_INTERVAL.saturating_sub(elapsed(since)))
    }

    fn wait_for(&self, may_wait: bool) -> Wait {
        if !may_wait || !self.journal.intake().may_wait() {
            return Wait::No;
        }
        if self.stopped {
            return Wait::For(None);
        }
        if self.shutting_down {
            return Wait::For(Some(Duration::from_millis(1)));
        }
        if self.lanes.is_empty() || self.flights.any_write_under_way() {
            return Wait::For(self.until_flush());
        }
        // Something waits for a block, or for the keeper to bring a segment: both wake, or look again.
        Wait::For(Some(Duration::from_millis(5)))
    }

    fn take_arrivals(&mut self) {
        if self.journal.is_shutting_down() {
            self.shutting_down = true;
        }
        self.journal.intake().take(&mut self.arrived);
        let mut arrived = std::mem::take(&mut self.arrived);
        for arrival in arrived.drain(..) {
            self.lanes.push(arrival);
        }
        self.arrived = arrived;
        if self.stopped && !self.lanes.is_empty() {
            self.refuse_all();
        }
    }

    /// Builds what is due; false when nothing is, or there is no room for it.
    fn build_next(&mut self) -> bool {
        (self.may_build_small() && self.build_chunk(Pass::Small)) || (self.may_build() && self.build_chunk(Pass::Fair))
    }

    fn may_build(&self) -> bool {
        if self.lanes.is_empty() || self.flights.unflushed_chunks() >= UNFLUSHED_CHUNKS_MAX {
            return false;
        }
        let writes = self.flights.writes_under_way();
        writes == 0 || writes < self.writes_max(WRITES_MAX) && self.lanes.bytes() >= SECOND_CHUNK_BYTES
    }

    /// Small requests do not share the fate of bulk: neither its place nor its length. One such chunk at a time, so that they
    /// still commit in groups.
    fn may_build_small(&self) -> bool {
        self.lanes.has_small()
            && (self.lanes.has_large() || self.flights.longest_under_way() > SMALL_CHUNK_BYTES)
            && self.flights.shortest_under_way() > SMALL_CHUNK_BYTES
            && self.flights.writes_under_way() < self.writes_max(WRITES_MAX + 1)
            && self.flights.unflushed_chunks() <= UNFLUSHED_CHUNKS_MAX
    }

    /// `wanted` writes at once, or as many as leave room for a sync.
    fn writes_max(&self, wanted: usize) -> usize {
        wanted.min(self.submitter.capacity().saturating_sub(1).max(1))
    }

    /// Takes the segment that the keeper has prepared; the old one is sealed once it is durable. Its last chunk says that the other is there,
    /// so that recovery misses that one if it is gone.
    fn roll(&mut self) -> bool {
        let Some(PreparedSegment { sequence, file, size, written_before, for_state }) = self.journal.take_prepared()
        else {
            return false;
        };
        assert_eq!(sequence, self.active.sequence + 1, "segments follow each other");
        self.end_segment();
        let next = ActiveSegment {
            sequence,
            file,
            size,
            position: crate::segments::SEGMENT_HEADER_BYTES as u64,
            written_before,
            for_state,
            runs: SegmentRuns::new(self.journal.recent(), sequence),
            state: StateChanges::default(),
            touched: TouchedLogs::new(self.journal.drops()),
        };
        let sealed = std::mem::replace(&mut self.active, next);
        self.sealing.push_back(SealJob::new(sealed, LogIndex(self.next_index.0 - 1), self.term, self.previous_crc));
        self.hand_over_sealed();
        true
    }

    fn hand_over_sealed(&mut self) {
        while self.sealing.front().is_some_and(|job| job.last_index <= self.flights.durable()) {
            if let Some(job) = self.sealing.pop_front() {
                self.journal.seal(job);
            }
        }
    }

    /// Ends all writing: a failed write or sync leaves unknown what is on the disk.
    fn stop(&mut self, what: &'static str, error: &std::io::Error) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        tracing::error!(journal = self.journal.number(), what, %error, "journal stopped: appends are refused until a restart, committed records stay readable");
        self.journal.set_stopped(format!("{what}: {error}"));
        for (to, mut results) in self.flights.abandon() {
            results.iter_mut().for_each(|result| *result = Err(AppendError::Stopped));
            self.post(to.shard, JournalEvent::Appended { to, results });
        }
        self.refuse_all();
    }

    /// Answers everything that waits with `Stopped`.
    fn refuse_all(&mut self) {
        let (requests, bytes) = self.lanes.drain();
        for request in requests {
            self.refuse(request, AppendError::Stopped);
        }
        self.release_queue(bytes);
    }

    fn refuse(&mut self, mut request: Placing, error: AppendError) {
        let unplaced = request.unplaced();
        request.results.iter_mut().for_each(|result| *result = Err(error));
        request.results.extend((0..unplaced).map(|_| Err(error)));
        if request.acknowledge {
            self.post(request.to.shard, JournalEvent::Appended { to: request.to, results: request.results });
        }
    }

    fn release_queue(&mut self, bytes: usize) {
        if bytes > 0 {
            self.post_space(self.journal.intake().leave(bytes));
        }
    }

    /// To the shards of a bit set.
    fn post_space(&mut self, mut shards: u64) {
        while shards != 0 {
            let shard = ShardId(shards.trailing_zeros() as u16);
            shards &= shards - 1;
            self.post(shard, JournalEvent::Space);
        }
    }

    fn post(&mut self, shard: ShardId, event: JournalEvent) {
        let at = usize::from(shard.0);
        if self.outbox.len() <= at {
            self.outbox.resize_with(at + 1, Vec::new);
        }
        self.outbox[at].push(event);
    }

    /// One delivery, and so at most one wake, per shard and turn.
    fn deliver(&mut self) {
        for (shard, events) in self.outbox.iter_mut().enumerate() {
            if !events.is_empty() {
                self.journal.deliver(ShardId(shard as u16), events);
                events.clear();
            }
        }
    }

    /// Writes zeroes ahead of small commits in a fresh segment: a first write to unwritten space costs a
    /// commit of the file system's own journal, four times the latency of the write.
    fn maybe_zero_ahead(&mut self) {
        if !self.wants_zeroes() {
            return;
        }
        let from = self.zeroes_from();
        let until = from + ZERO_STEP_BYTES as u64;
        self.zeroing = Some(until);
        self.zeroed_bytes += ZERO_STEP_BYTES as u64;
        let file = Arc::clone(&self.active.file);
        let data = crate::pool::zeroes(ZERO_STEP_BYTES);
        let token = commit::TOKEN_ZERO;
        self.submitter.write(crate::disk::WriteOp { token, file, position: from, data, dsync: false });
    }

    fn wants_zeroes(&self) -> bool {
        let ahead = self.active.written_before.saturating_sub(self.active.position);
        let wanted = self.flights.small_commits() && ahead < ZERO_STEP_BYTES as u64 / 2;
        let fits = self.zeroes_from() + ZERO_STEP_BYTES as u64 <= self.active.size;
        let may = !self.stopped && self.zeroing.is_none() && !self.flights.any_write_under_way();
        wanted && fits && may && self.zeroed_bytes < ZERO_BYTES_MAX
    }

    fn zeroes_from(&self) -> u64 {
        self.active.written_before.max(self.active.position)
    }
}
