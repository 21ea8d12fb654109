//! What one exchange delays, and when it is due. Owned by the thread `delays`.
//!
//! ```text
//! log of the exchange     in the order in which messages came; those that have left are acknowledged in its subscription
//!   near                  in memory: when each message of the log is due, 16 bytes each
//!   fresh                 in memory: those messages themselves, as far as there is room
//! sorted logs             in the order in which messages are due; those that have left are trimmed; of each a piece of at most 256 KiB is in memory
//! ```
//!
//! When [`NEAR_MAX`] messages are near, or [`UNSORTED_BYTES`] have come, all of them are written anew, as a sorted log:
//! memory is that of a bounded number of messages, and each message is read in order when it is due, instead of from where it happened to
//! come. A message is written twice at most. What a crash leaves of a sorted log that is not complete is not known by the catalog, and goes.
//!
//! After a restart the log of the exchange is read from the first message that is near, the sorted logs where they begin.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ::record::{BatchHeader, BatchWriter, HeaderPieces, Record};
use bytes::Bytes;
use journal::{AppendError, AppendItem, JournalStatus, Log};
use smallvec::SmallVec;

use super::clock::DelayClock;
use super::fresh::Fresh;
use super::record::{due_of, run_key, run_value};
use super::release::Copies;
use super::{DELAY_HEADER, Delays, SHARD, end_of_run};
use crate::Broker;
use crate::dead_letters::DeadLetterError;

/// Messages in the index in memory, beyond which they are sorted.
const NEAR_MAX: usize = 1 << 15;
/// Bytes of messages that have come, beyond which they are sorted.
const UNSORTED_BYTES: usize = 8 << 20;
/// A piece of a sorted log of which nothing is due within this time, in ms, is let go.
const SOON_MS: u64 = 2_000;
/// Read at once when looking for what has come.
const INDEX_BYTES: usize = 1 << 20;
/// Pieces of sorted logs in memory, together and each.
const PIECES_BYTES: usize = 16 << 20;
const PIECE_BYTES: usize = 256 << 10;
/// Read at once for single messages.
const SINGLE_BYTES: usize = 16 << 10;
/// Bytes of a batch, about: in a sorted log, where a piece is at least one; and of batches written together.
const SORTED_BATCH_BYTES: usize = 32 << 10;
const TOGETHER_BYTES: usize = 1 << 20;
/// What leaves together, at most: messages, and bytes.
const LEAVE_MAX: usize = 4_000;
const LEAVE_BYTES: usize = 2 << 20;
/// When some have left, those that follow leave together after so many ms; more of them while others come that nobody has looked at: what
/// is not known cannot leave in time.
const GATHER_MS: u64 = 10;
const GATHER_LONG_MS: u64 = 50;
/// After a failure it is tried again after so many ms.
const RETRY_MS: u64 = 1_000;

/// Why nothing is done for now.
#[derive(Debug, thiserror::Error)]
pub(super) enum DelayError {
    #[error(transparent)]
    Read(#[from] DeadLetterError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error("the journal does not take it")]
    NotWritten,
    #[error("no gateway is there yet")]
    NoGateway,
}

/// A log of messages in the order in which they are due.
struct Sorted {
    log: Arc<Log>,
    /// The next one that is to leave, and when it is due, if that is known.
    next: u64,
    head: Option<u64>,
    /// From the next one on.
    piece: VecDeque<(u64, Record)>,
}

impl Sorted {
    fn new(log: Arc<Log>) -> Self {
        Self { next: log.start().0, head: None, piece: VecDeque::new(), log }
    }

    fn left(&self) -> u64 {
        self.log.last_stable().0.saturating_sub(self.next)
    }

    /// When its next message is due; reads a piece if that is not known. `None`: there is none.
    fn head(&mut self, broker: &Broker, piece_bytes: usize) -> Result<Option<u64>, DelayError> {
        if self.head.is_none() && self.left() > 0 {
            self.fill(broker, piece_bytes)?;
        }
        Ok(self.head)
    }

    fn fill(&mut self, broker: &Broker, piece_bytes: usize) -> Result<(), DelayError> {
        while self.piece.is_empty() && self.left() > 0 {
            let (records, next) = broker.read_log(&self.log, self.next, u64::MAX - 1, piece_bytes)?;
            self.piece.extend(records.into_iter().map(|record| (due_of(&record), record)));
            if self.piece.is_empty() {
                self.next = next.max(self.next + 1);
            }
        }
        self.head = self.piece.front().map(|(due, _)| *due);
        Ok(())
    }

    /// Of the next one, as far as it is there.
    fn next_bytes(&mut self, broker: &Broker, piece_bytes: usize) -> Result<usize, DelayError> {
        self.fill(broker, piece_bytes)?;
        Ok(self.piece.front().map_or(0, |(_, record)| record_bytes(record)))
    }

    /// Takes out the next one.
    fn pop(&mut self, broker: &Broker, piece_bytes: usize) -> Result<Option<Record>, DelayError> {
        self.fill(broker, piece_bytes)?;
        let Some((_, record)) = self.piece.pop_front() else { return Ok(None) };
        self.next = record.offset.0 + 1;
        self.head = self.piece.front().map(|(due, _)| *due);
        Ok(Some(record))
    }
}

/// Messages that are due. They stay here until that they have left is durable.
#[derive(Default)]
struct Leaving {
    /// With when they were due; in that order once it is `whole`.
    records: Vec<(u64, Record)>,
    bytes: usize,
    /// Offsets in the exchange's own log.
    near: Vec<u64>,
    /// The records of `near` are among `records`.
    whole: bool,
    /// Where they go, once that was looked at.
    copies: Option<Copies>,
}

impl Leaving {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.near.is_empty()
    }
}

/// See the head of the file.
pub(super) struct Store {
    delays: Arc<Delays>,
    /// What lies before it in the log is near, or has left, or is sorted.
    indexed: u64,
    near: BinaryHeap<Reverse<(u64, u64)>>,
    fresh: Fresh,
    unsorted_bytes: usize,
    /// Of the messages that were looked at last, on average.
    each_bytes: u64,
    sorted: Vec<Sorted>,
    leaving: Leaving,
    /// Nothing leaves before.
    rests_until: u64,
    /// When it is to be looked after, by the time of delays.
    pub wakes_at: u64,
}

pub(super) fn record_bytes(record: &Record) -> usize {
    let value = record.value.as_ref().map_or(0, Bytes::len);
    value + record.headers.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Bytes::len)).sum::<usize>()
}

/// Adds a record to a batch, with its delay or without.
pub(super) fn put(record: &Record, timestamp: i64, with_delay: bool, out: &mut BatchWriter) {
    let values: SmallVec<[[&[u8]; 1]; 8]> =
        record.headers.iter().map(|(_, value)| [value.as_deref().unwrap_or_default()]).collect();
    let headers: SmallVec<[HeaderPieces<'_>; 8]> = record
        .headers
        .iter()
        .zip(&values)
        .filter(|((name, _), _)| with_delay || **name != *DELAY_HEADER)
        .map(|((name, _), value)| (&name[..], &value[..]))
        .collect();
    out.record(timestamp, record.value.as_slice(), &headers);
}

impl Store {
    /// `kept`: bytes of fresh messages of all exchanges.
    pub fn new(delays: Arc<Delays>, sorted: Vec<Arc<Log>>, kept: Arc<AtomicUsize>) -> Self {
        let indexed = delays.queue.shared.lock().start();
        Self {
            indexed,
            near: BinaryHeap::new(),
            fresh: Fresh::new(kept),
            unsorted_bytes: 0,
            each_bytes: 0,
            sorted: sorted.into_iter().map(Sorted::new).collect(),
            leaving: Leaving::default(),
            rests_until: 0,
            wakes_at: 0,
            delays,
        }
    }

    pub fn is_dropped(&self) -> bool {
        self.delays.queue.is_dropped()
    }

    /// Its exchange is gone: the sorted logs go as well.
    pub fn forget(self, broker: &Arc<Broker>) {
        let of = self.delays.queue.log().id();
        broker.note_unseen(of, 0, 0);
        if self.delays.queue.durable && !self.sorted.is_empty() {
            // What is not deleted now is deleted at the next start: the exchange is gone.
            let _ = broker
                .commit(broker.journal_number(of), self.sorted.iter().map(|one| end_of_run(of, &one.log)).collect());
        } else {
            self.sorted.iter().for_each(|one| broker.end_passing(&one.log));
        }
    }

    /// Does what there is to do, and says in `wakes_at` when there is more.
    pub fn step(&mut self, broker: &Arc<Broker>, clock: &DelayClock) {
        let log = self.delays.queue.log();
        // Watch first, then look: something may come in between.
        log.watch(SHARD);
        let journal = broker.journal_of(log.id());
        let outcome = self.index(broker).and_then(|more| {
            // On a full disk what is due leaves, which takes the place of what it was: a second writing of all has none.
            if journal.status() != JournalStatus::DiskFull {
                self.sort(broker)?;
            }
            if clock.now() >= self.rests_until && self.leave(broker, clock.now())? < LEAVE_MAX {
                self.rests_until = clock.now() + if more { GATHER_LONG_MS } else { GATHER_MS };
            }
            Ok(more)
        });
        let now = clock.now();
        self.wakes_at = match outcome {
            Ok(true) => now,
            Ok(false) => self.next_due().map_or(u64::MAX, |due| due.max(self.rests_until)),
            Err(DelayError::NoGateway) => now + RETRY_MS / 10,
            Err(error) => {
                tracing::warn!(%error, exchange = %self.delays.exchange, vhost = self.delays.vhost, "delayed messages wait to be routed");
                now + RETRY_MS
            }
        };
        let leaving = self.leaving.records.len() + if self.leaving.whole { 0 } else { self.leaving.near.len() };
        let held = (self.near.len() + leaving) as u64 + self.sorted.iter().map(Sorted::left).sum::<u64>();
        *self.delays.found.lock() = (held, self.indexed);
    }

    /// `None`: nothing is delayed. What was not looked at yet is due.
    fn next_due(&self) -> Option<u64> {
        let sorted = self.sorted.iter().map(|one| one.head.unwrap_or(0));
        self.near.peek().map(|Reverse((due, _))| *due).into_iter().chain(sorted).min()
    }

    /// Takes note of what has come; true: there is more.
    fn index(&mut self, broker: &Broker) -> Result<bool, DelayError> {
        let queue = &self.delays.queue;
        let end = queue.log().last_stable().0;
        // What lies before the start has left, some of it before the last restart: then the start may be beyond what was looked at.
        self.indexed = self.indexed.max(queue.log().start().0);
        if self.indexed >= end {
            return Ok(false);
        }
        broker.note_unseen(queue.log().id(), end - self.indexed, self.each_bytes);
        let (records, next) = broker.read_log(queue.log(), self.indexed, end - 1, INDEX_BYTES)?;
        self.each_bytes = records.iter().map(record_bytes).sum::<usize>() as u64 / records.len().max(1) as u64;
        let state = queue.shared.lock();
        for record in records {
            if state.state(record.offset.0) == delivery::RecordState::Available {
                let bytes = record_bytes(&record);
                self.unsorted_bytes += bytes;
                self.near.push(Reverse((due_of(&record), record.offset.0)));
                self.fresh.keep(record, bytes);
            }
        }
        drop(state);
        self.indexed = next.clamp(self.indexed + 1, end);
        broker.note_unseen(queue.log().id(), queue.log().last_stable().0 - self.indexed, self.each_bytes);
        Ok(self.indexed < end)
    }

    fn piece_bytes(&self) -> usize {
        (PIECES_BYTES / self.sorted.len().max(1)).clamp(SINGLE_BYTES, PIECE_BYTES)
    }

    /// Chooses what is due, the earliest first.
    fn choose(&mut self, broker: &Broker, now: u64) -> Result<(), DelayError> {
        let piece_bytes = self.piece_bytes();
        let bytes_max = broker.journal_of(self.delays.queue.log().id()).item_bytes_max();
        let leave_bytes = LEAVE_BYTES.min(bytes_max / 2);
        while self.leaving.near.len() + self.leaving.records.len() < LEAVE_MAX && self.leaving.bytes < leave_bytes {
            let mut first: Option<(u64, usize)> = None;
            for (place, one) in self.sorted.iter_mut().enumerate() {
                if let Some(due) =
                    one.head(broker, piece_bytes)?.filter(|due| first.is_none_or(|(other, _)| *due < other))
                {
                    first = Some((due, place));
                }
            }
            let near = self.near.peek().map(|Reverse((due, _))| *due);
            match (first, near) {
                // What is sorted came before what is near: of those that are due at once it goes first.
                (Some((due, place)), near) if due <= now && near.is_none_or(|near| due <= near) => {
                    let bytes = self.sorted[place].next_bytes(broker, piece_bytes)?;
                    if !self.leaving.is_empty() && self.leaving.bytes + bytes > bytes_max {
                        break;
                    }
                    let Some(record) = self.sorted[place].pop(broker, piece_bytes)? else { continue };
                    self.leaving.bytes += record_bytes(&record);
                    self.leaving.records.push((due, record));
                }
                (_, Some(due)) if due <= now => {
                    self.leaving.near.extend(self.near.pop().map(|Reverse((_, offset))| offset))
                }
                _ => break,
            }
        }
        self.leaving.near.sort_unstable();
        // Not due yet: a piece is read again when it is.
        for one in self.sorted.iter_mut().filter(|one| one.head.is_some_and(|due| due > now + SOON_MS)) {
            one.piece = VecDeque::new();
        }
        Ok(())
    }

    /// Routes what is due; how many messages that were.
    fn leave(&mut self, broker: &Arc<Broker>, now: u64) -> Result<usize, DelayError> {
        if self.leaving.is_empty() {
            self.choose(broker, now)?;
        }
        if self.leaving.is_empty() {
            return Ok(0);
        }
        if !self.leaving.whole {
            let near = std::mem::take(&mut self.leaving.near);
            let read = self.read(broker, &near);
            self.leaving.near = near;
            self.admit(read?, broker.journal_of(self.delays.queue.log().id()).item_bytes_max());
            self.leaving.records.sort_by_key(|(due, _)| *due);
            self.leaving.whole = true;
        }
        let copies = match &mut self.leaving.copies {
            Some(copies) => copies,
            unknown => unknown
                .insert(broker.address_delayed(&self.delays, self.leaving.records.iter().map(|(_, record)| record))?),
        };
        copies.commit_before(broker)?;
        let mut items = copies.together().to_vec();
        for one in self.sorted.iter().filter(|one| one.next > one.log.start().0) {
            items.push(AppendItem::Trim { log: Arc::clone(&one.log), to: types::Offset(one.next) });
        }
        self.written(broker, &self.leaving.near, items)?;
        let left = std::mem::take(&mut self.leaving);
        if self.near.is_empty() {
            self.forget_fresh();
        }
        self.drop_empty(broker)?;
        // What is large leaves in smaller numbers.
        Ok(if left.bytes >= LEAVE_BYTES { LEAVE_MAX } else { left.records.len() })
    }

    /// Those of the near ones that leave, the earliest first; the others wait for the next time. All that leaves is one item of the journal.
    fn admit(&mut self, mut read: Vec<(u64, Record)>, bytes_max: usize) {
        read.sort_by_key(|(due, record)| (*due, record.offset));
        for (due, record) in read {
            let bytes = record_bytes(&record);
            if self.leaving.records.is_empty() || self.leaving.bytes + bytes <= bytes_max {
                self.leaving.bytes += bytes;
                self.leaving.records.push((due, record));
                continue;
            }
            // Whoever is behind it does not overtake it.
            self.leaving.bytes = self.leaving.bytes.max(bytes_max);
            self.leaving.near.retain(|offset| *offset != record.offset.0);
            self.near.push(Reverse((due, record.offset.0)));
            self.fresh.put_back(record);
        }
    }

    /// Appends items together with the record that messages, ascending, have left the exchange's log. They have when that is durable.
    fn written(&self, broker: &Arc<Broker>, left: &[u64], mut items: Vec<AppendItem>) -> Result<(), DelayError> {
        let queue = &self.delays.queue;
        let mut leaving = None;
        let done = broker.durably(|asker| {
            let mut state = queue.shared.lock();
            let begun = state.begin_leaving(
                left.chunk_by(|one, next| one + 1 == *next).map(|run| (run[0], run[run.len() - 1])).collect(),
            );
            let to = types::Offset(begun.start());
            items.extend((to > queue.log().start()).then(|| AppendItem::Trim { log: Arc::clone(queue.log()), to }));
            broker.write_subscription_with(&queue.shared, &mut state, items, &begun.changes(), asker);
            leaving = Some(begun);
        });
        leaving.into_iter().for_each(|begun| queue.shared.lock().end_leaving(begun, done));
        if done { Ok(()) } else { Err(DelayError::NotWritten) }
    }

    /// Sorted logs of which all have left go.
    fn drop_empty(&mut self, broker: &Arc<Broker>) -> Result<(), DelayError> {
        let of = self.delays.queue.log().id();
        let (empty, sorted): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sorted).into_iter().partition(|one| one.left() == 0);
        self.sorted = sorted;
        if empty.is_empty() {
            return Ok(());
        }
        if self.delays.queue.durable {
            broker.commit(broker.journal_number(of), empty.iter().map(|one| end_of_run(of, &one.log)).collect())?;
        } else {
            empty.iter().for_each(|one| broker.end_passing(&one.log));
        }
        Ok(())
    }

    /// Messages of the exchange's log at these offsets, with when they are due; in no order.
    fn read(&mut self, broker: &Broker, offsets: &[u64]) -> Result<Vec<(u64, Record)>, DelayError> {
        let (mut found, mut missing) = (Vec::with_capacity(offsets.len()), Vec::new());
        for offset in offsets {
            match self.fresh.take(*offset) {
                Some(record) => found.push((due_of(&record), record)),
                None => missing.push(*offset),
            }
        }
        let read = fetch(broker, self.delays.queue.log(), missing)?;
        found.extend(read.into_iter().map(|record| (due_of(&record), record)));
        Ok(found)
    }

    /// Nothing is near.
    fn forget_fresh(&mut self) {
        self.fresh.clear();
        self.unsorted_bytes = 0;
    }

    /// Sorts what is near, when there is much of it.
    fn sort(&mut self, broker: &Arc<Broker>) -> Result<(), DelayError> {
        if self.near.is_empty() || (self.near.len() < NEAR_MAX && self.unsorted_bytes < UNSORTED_BYTES) {
            return Ok(());
        }
        let near = std::mem::take(&mut self.near).into_vec();
        let mut offsets: Vec<u64> = near.iter().map(|Reverse((_, offset))| *offset).collect();
        offsets.sort_unstable();
        match self.write_sorted(broker, &offsets) {
            Ok(()) => {
                self.forget_fresh();
                Ok(())
            }
            Err(error) => {
                self.near = near.into();
                Err(error)
            }
        }
    }

    /// Writes messages of the exchange's log, ascending, as a sorted one.
    fn write_sorted(&mut self, broker: &Arc<Broker>, offsets: &[u64]) -> Result<(), DelayError> {
        let queue = Arc::clone(&self.delays.queue);
        let of = queue.log().id();
        let mut records = self.read(broker, offsets)?;
        records.sort_unstable_by_key(|(due, record)| (*due, record.offset));
        let log = broker.new_log_beside(of, queue.topic.config().durability)?;
        // Written while what comes behind it is encoded; what says that it is there must not be written before all of it is.
        let done = broker.durably(|asker| {
            let (mut items, mut bytes, mut records) = (Vec::new(), 0, records.iter().peekable());
            while records.peek().is_some() {
                let mut batch = BatchWriter::with_capacity(SORTED_BATCH_BYTES + SORTED_BATCH_BYTES / 4);
                // What is large is alone: so it has found room when it came.
                while let Some((_, record)) = records
                    .next_if(|(_, next)| batch.count() == 0 || batch.bytes() + record_bytes(next) <= SORTED_BATCH_BYTES)
                {
                    put(record, record.timestamp, true, &mut batch);
                }
                let batch = batch.finish();
                bytes += batch.len();
                let header = BatchHeader::parse(&batch).expect("a batch that was just written");
                items.push(AppendItem::Batch { log: Arc::clone(&log), bytes: batch, header, gate: None });
                if bytes >= TOGETHER_BYTES || records.peek().is_none() {
                    broker.append_beside(&queue.shared, std::mem::take(&mut items), asker);
                    bytes = 0;
                }
            }
        });
        if !done {
            broker.end_passing(&log);
            return Err(DelayError::NotWritten);
        }
        let known =
            AppendItem::StateOf { log: Arc::clone(queue.log()), key: run_key(of, log.id()), value: Some(run_value()) };
        self.written(broker, offsets, if queue.durable { vec![known] } else { Vec::new() })
            .inspect_err(|_| broker.end_passing(&log))?;
        self.sorted.push(Sorted::new(log));
        Ok(())
    }
}

/// The records at these offsets of a log, in its order.
fn fetch(broker: &Broker, log: &Arc<Log>, mut offsets: Vec<u64>) -> Result<Vec<Record>, DelayError> {
    offsets.sort_unstable();
    let (mut found, mut at) = (Vec::with_capacity(offsets.len()), 0);
    let Some(last) = offsets.last().copied() else { return Ok(found) };
    // Where most of it is wanted, much is read at once.
    let dense = (last - offsets[0]) / 4 < offsets.len() as u64;
    while let Some(from) = offsets.get(at).copied() {
        let (records, next) = broker.read_log(log, from, last, if dense { INDEX_BYTES } else { SINGLE_BYTES })?;
        for record in records {
            while offsets.get(at).is_some_and(|offset| *offset < record.offset.0) {
                at += 1;
            }
            if offsets.get(at) == Some(&record.offset.0) {
                found.push(record);
                at += 1;
            }
        }
        while offsets.get(at).is_some_and(|offset| *offset < next.max(from + 1)) {
            at += 1;
        }
    }
    Ok(found)
}
