//! Chunks on their way to the disk, the two watermarks, and what is released when they move.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use types::{LogIndex, Offset, ShardId};

use super::build::LOGS_AHEAD;
use super::{FLUSH_BYTES, Writer};
use crate::append::{AppendResults, JournalEvent, ReplyTo};
use crate::disk::{Completion, File, Submitter};
use crate::log::Log;
use crate::queue::Placing;

/// Token of a write of zeroes; chunks use their index.
pub(super) const TOKEN_ZERO: u64 = u64::MAX;
/// Token of a sync.
const TOKEN_SYNC: u64 = u64::MAX - 1;

/// Commits below this size count as small for the decision to write zeroes ahead.
const SMALL_COMMIT_BYTES: usize = 64 << 10;

/// A chunk from its submission until it is durable.
pub(super) struct Flight {
    pub index: LogIndex,
    /// Length; the bytes themselves belong to the submitter until they are written, and to the tail cache.
    pub bytes: usize,
    pub file: Arc<dyn File>,
    pub position: u64,
    /// Somebody waits for stable storage.
    pub fsync: bool,
    pub dsync: bool,
    /// When it was made, which is when it is submitted.
    pub submitted: Instant,
    /// New ends of the logs in the chunk, for readers to see once it is received …
    pub ends_memory: Vec<(Arc<Log>, Offset)>,
    /// … or once it is durable.
    pub ends_fsync: Vec<(Arc<Log>, Offset)>,
    pub trims: Vec<(Arc<Log>, Offset)>,
    /// Logs that end with it.
    pub drops: Vec<Arc<Log>>,
    written: bool,
    answers_memory: Vec<(ReplyTo, AppendResults)>,
    answers_fsync: Vec<(ReplyTo, AppendResults)>,
}

impl Flight {
    pub fn new(index: LogIndex, bytes: usize, file: Arc<dyn File>, position: u64) -> Self {
        Self {
            index,
            bytes,
            file,
            position,
            fsync: false,
            dsync: false,
            submitted: Instant::now(),
            ends_memory: Vec::new(),
            ends_fsync: Vec::new(),
            trims: Vec::new(),
            drops: Vec::new(),
            written: false,
            answers_memory: Vec::new(),
            answers_fsync: Vec::new(),
        }
    }

    /// The requests that are whole with this chunk are answered when it is.
    pub fn take_answers(&mut self, finished: &mut Vec<Placing>) {
        for request in finished.drain(..) {
            self.take_answer(request);
        }
    }

    fn take_answer(&mut self, request: Placing) {
        if !request.acknowledge {
            return;
        }
        let answers = if request.fsync { &mut self.answers_fsync } else { &mut self.answers_memory };
        answers.push((request.to, request.results));
    }
}

/// All chunks that are not durable yet, in index order.
pub(super) struct Flights {
    flights: VecDeque<Flight>,
    /// Everything up to here is on stable storage.
    durable: LogIndex,
    /// Number of flights, from the front, whose writes have all completed and been released as received.
    received: usize,
    /// Number of flights that somebody waits for to be flushed, and how many of them are received. Counted as they come and go:
    /// a second of small commits of class `memory` is tens of thousands of flights, too many to look through for each commit.
    awaited: usize,
    awaited_received: usize,
    /// Last index that the sync under way covers.
    syncing: Option<LogIndex>,
    unflushed_bytes: u64,
    /// In ms of the steady clock.
    first_unflushed: Option<u64>,
    mean_bytes: usize,
}

impl Flights {
    pub fn new(durable: LogIndex) -> Self {
        Self {
            flights: VecDeque::new(),
            durable,
            received: 0,
            awaited: 0,
            awaited_received: 0,
            syncing: None,
            unflushed_bytes: 0,
            first_unflushed: None,
            mean_bytes: 0,
        }
    }

    pub fn durable(&self) -> LogIndex {
        self.durable
    }

    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub fn push(&mut self, flight: Flight) {
        self.mean_bytes = (self.mean_bytes * 7 + flight.bytes) / 8;
        self.awaited += usize::from(flight.fsync);
        self.flights.push_back(flight);
    }

    /// Commits have been small lately.
    pub fn small_commits(&self) -> bool {
        self.mean_bytes > 0 && self.mean_bytes <= SMALL_COMMIT_BYTES
    }

    pub fn writes_under_way(&self) -> usize {
        self.under_way().count()
    }

    /// Length of the longest chunk that is being written, 0 when none is.
    pub fn longest_under_way(&self) -> usize {
        self.under_way().map(|flight| flight.bytes).max().unwrap_or(0)
    }

    /// Length of the shortest chunk that is being written, without bound when none is.
    pub fn shortest_under_way(&self) -> usize {
        self.under_way().map(|flight| flight.bytes).min().unwrap_or(usize::MAX)
    }

    fn under_way(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter().skip(self.received).filter(|flight| !flight.written)
    }

    pub fn any_write_under_way(&self) -> bool {
        self.writes_under_way() > 0
    }

    /// Chunks that somebody waits for to be flushed.
    pub fn unflushed_chunks(&self) -> usize {
        self.awaited
    }

    pub fn sync_under_way(&self) -> bool {
        self.syncing.is_some()
    }

    /// Is there a chunk that is to be flushed without delay?
    pub fn wait_for_sync(&self) -> bool {
        self.unflushed_bytes >= FLUSH_BYTES || self.awaited_received > 0
    }

    pub fn oldest_unflushed(&self) -> Option<u64> {
        self.first_unflushed
    }

    /// Ties a request that placed nothing to the newest chunk under way: a duplicate of a batch in flight
    /// waits for its outcome. With nothing under way it is answered at once.
    pub fn attach_to_newest(&mut self, request: Placing) -> Option<(ShardId, JournalEvent)> {
        if !request.acknowledge {
            return None;
        }
        let anything_placed = request.results.iter().any(Result::is_ok);
        let all_received = self.received == self.flights.len();
        match self.flights.back_mut() {
            Some(newest) if anything_placed => {
                if request.fsync && !newest.fsync {
                    newest.fsync = true;
                    self.awaited += 1;
                    self.awaited_received += usize::from(all_received);
                }
                if all_received && !request.fsync {
                    return Some((
                        request.to.shard,
                        JournalEvent::Appended { to: request.to, results: request.results },
                    ));
                }
                newest.take_answer(request);
                None
            }
            _ => Some((request.to.shard, JournalEvent::Appended { to: request.to, results: request.results })),
        }
    }

    /// The next flight counts as received; only for one whose write has completed.
    fn receive_next(&mut self) {
        self.awaited_received += usize::from(self.flights[self.received].fsync);
        self.received += 1;
    }

    /// The oldest flight is durable; `None` when there is none.
    fn take_durable(&mut self) -> Option<Flight> {
        let flight = self.flights.pop_front()?;
        assert!(flight.written, "durable means written");
        assert_eq!(flight.index, self.durable.next(), "durability is a prefix");
        self.received -= 1;
        self.awaited -= usize::from(flight.fsync);
        self.awaited_received -= usize::from(flight.fsync);
        self.durable = flight.index;
        Some(flight)
    }

    /// Are the counts what a look through all flights would find?
    fn counted_well(&self) -> bool {
        let awaited = |flights: usize| self.flights.iter().take(flights).filter(|flight| flight.fsync).count();
        (self.awaited, self.awaited_received) == (awaited(self.flights.len()), awaited(self.received))
    }

    /// Answers that will never be given, when the journal stops.
    pub fn abandon(&mut self) -> Vec<(ReplyTo, AppendResults)> {
        self.first_unflushed = None;
        (self.received, self.awaited, self.awaited_received) = (0, 0, 0);
        self.flights
            .drain(..)
            .flat_map(|flight| flight.answers_memory.into_iter().chain(flight.answers_fsync))
            .collect()
    }
}

impl<S: Submitter> Writer<S> {
    pub(super) fn take_completions(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        for Completion { token, result } in completions.drain(..) {
            match (token, result) {
                (TOKEN_ZERO, Ok(())) => self.zeroes_written(),
                (TOKEN_ZERO, Err(error)) => self.stop("write", &error),
                (TOKEN_SYNC, Ok(())) => self.synced(),
                (TOKEN_SYNC, Err(error)) => self.stop("sync", &error),
                (index, Ok(())) => self.written(LogIndex(index)),
                (_, Err(error)) => self.stop("write", &error),
            }
        }
        self.completions = completions;
        if !self.stopped {
            self.release_received();
            self.release_durable_front();
        }
    }

    fn zeroes_written(&mut self) {
        if let Some(until) = self.zeroing.take() {
            self.active.written_before = self.active.written_before.max(until);
        }
    }

    fn written(&mut self, index: LogIndex) {
        let Some(first) = self.flights.flights.front().map(|flight| flight.index) else { return };
        let at = index.0.checked_sub(first.0).expect("a chunk completes once") as usize;
        let flight = &mut self.flights.flights[at];
        assert_eq!(flight.index, index, "flights are consecutive");
        assert!(!flight.written, "a chunk completes once");
        flight.written = true;
        let (bytes, took) = (flight.bytes, flight.submitted.elapsed());
        self.journal.metrics().write_seconds.observe(took.as_secs_f64());
        if bytes <= SMALL_COMMIT_BYTES {
            self.journal.note_small_write(took);
        }
    }

    /// Moves `received` over all completed writes and answers what waits for no flush.
    fn release_received(&mut self) {
        while let Some(flight) = self.flights.flights.get_mut(self.flights.received) {
            if !flight.written {
                break;
            }
            let answers = std::mem::take(&mut flight.answers_memory);
            let memory = std::mem::take(&mut flight.ends_memory);
            let bytes = flight.bytes as u64;
            if !flight.dsync {
                self.flights.unflushed_bytes += bytes;
                self.flights.first_unflushed.get_or_insert_with(|| self.journal.steady_ms());
            }
            self.flights.receive_next();
            self.answer(answers);
            self.advance(memory);
            #[cfg(feature = "planted")]
            if self.journal.planted() == Some(crate::Planted::AcknowledgeBeforeSync) {
                let flight = &mut self.flights.flights[self.flights.received - 1];
                let (answers, ends) =
                    (std::mem::take(&mut flight.answers_fsync), std::mem::take(&mut flight.ends_fsync));
                self.answer(answers);
                self.advance(ends);
            }
        }
    }

    /// A chunk written with `RWF_DSYNC` is durable on completion, because everything before it was.
    fn release_durable_front(&mut self) {
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::DsyncOverUnflushed) {
            while self.flights.flights.iter().take(self.flights.received).any(|flight| flight.dsync) {
                self.release_durable_one();
            }
        }
        while self.flights.received > 0 && self.flights.flights.front().is_some_and(|flight| flight.dsync) {
            self.release_durable_one();
        }
        self.after_durable();
    }

    fn release_durable_one(&mut self) {
        let Some(flight) = self.flights.take_durable() else { return };
        self.journal.metrics().note_commit(flight.submitted.elapsed());
        for (log, to) in &flight.trims {
            log.trim(*to);
            self.tell(log, log.take_removal_watchers());
            self.journal.note_released();
        }
        self.journal.forget_logs(&flight.drops);
        self.answer(flight.answers_fsync);
        self.advance(flight.ends_fsync);
    }

    fn after_durable(&mut self) {
        if self.flights.flights.iter().take(self.flights.received).all(|flight| flight.dsync) {
            self.flights.first_unflushed = None;
            self.flights.unflushed_bytes = 0;
        }
        self.journal.set_durable(self.flights.durable);
        self.hand_over_sealed();
    }

    fn synced(&mut self) {
        let Some(covered) = self.flights.syncing.take() else { return };
        while self.flights.flights.front().is_some_and(|flight| flight.index <= covered) {
            self.release_durable_one();
        }
        self.flights.first_unflushed = None;
        self.flights.unflushed_bytes = 0;
        self.release_durable_front();
        if self.flights.received > 0 {
            self.flights.first_unflushed = Some(self.journal.steady_ms());
        }
    }

    /// Starts a sync of the oldest file with unflushed chunks, when somebody waits for it or it is due.
    pub(super) fn maybe_sync(&mut self) {
        if self.stopped || self.flights.syncing.is_some() || self.flights.received == 0 {
            return;
        }
        let overdue = self.until_flush().is_some_and(|left| left.is_zero());
        if !self.flights.wait_for_sync() && !overdue && !self.shutting_down && self.sealing.is_empty() {
            return;
        }
        debug_assert!(self.flights.counted_well());
        let Some(front) = self.flights.flights.front() else { return };
        let file = Arc::clone(&front.file);
        let covered = self.flights.flights.iter().take(self.flights.received);
        let last = covered.take_while(|flight| Arc::ptr_eq(&flight.file, &file)).last().map(|flight| flight.index);
        self.flights.syncing = last;
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::SkipSync) {
            self.synced();
            return;
        }
        self.journal.metrics().syncs.inc();
        self.submitter.sync(TOKEN_SYNC, file);
    }

    fn answer(&mut self, answers: Vec<(ReplyTo, AppendResults)>) {
        for (to, results) in answers {
            self.post(to.shard, JournalEvent::Appended { to, results });
        }
    }

    fn advance(&mut self, ends: Vec<(Arc<Log>, Offset)>) {
        for at in 0..ends.len() {
            if let Some((ahead, _)) = ends.get(at + LOGS_AHEAD) {
                ahead.prefetch_ends();
            }
            let (log, end) = &ends[at];
            let shards = log.advance(*end);
            self.tell(log, shards);
        }
    }

    /// Tells shards, a bit set, that a log has changed.
    fn tell(&mut self, log: &Log, mut shards: u64) {
        while shards != 0 {
            let shard = ShardId(shards.trailing_zeros() as u16);
            shards &= shards - 1;
            self.post(shard, JournalEvent::Advanced(log.id()));
        }
    }
}
