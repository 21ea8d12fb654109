//! Offsets of a queue's log that hold no message: markers, records of aborted transactions, what compaction removed. They are searched for
//! ahead of deliveries, so that lengths and counts are those of messages (`docs/adr/0026-counts.md`).
//!
//! | part of the log | how it is searched |
//! |---|---|
//! | from [`Log::dense_from`] on, of most logs all of it | not at all |
//! | what is in memory | at once, by whoever looks at the queue |
//! | what has to be read from the disk | by the threads that read history, a piece at a time; who asks for counts may wait ([`Broker::await_search`]) |
//!
//! What compaction has gone through is searched again from the queue's start.

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use delivery::{Gaps, Searched};
use journal::{ColdData, ColdWant, Log, ReplyTo, TailRead};
use record::{BatchError, SlicedBatch, UNPACKED_BYTES_MAX, scan, sliced_batches, whole};
use types::Offset;

use super::dispatch::Dispatch;
use super::queue::Queue;
use super::searches::{Asker, Search};
use crate::jobs::NOBODY;
use crate::{Broker, aborted};

/// Read of memory at once, about.
const TAIL_BYTES: usize = 1 << 20;
/// Read from the disk at once, about.
const PIECE_BYTES: usize = 4 << 20;
/// Read from the disk at most before a declaration over a topic is answered.
const ATTACH_BYTES_MAX: usize = 64 << 20;
/// What came of a piece that was to be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// It was searched to before this offset, and had so many bytes.
    Searched { next: u64, bytes: usize },
    /// It is not to be searched any more: it was trimmed or compacted, or somebody else has gone on.
    Passed,
    /// Nobody will know what is in it.
    Unreadable,
}

/// A log without subscription that is searched for gaps: a stream's.
#[derive(Default)]
pub(super) struct SearchedLog {
    gaps: Gaps,
    searched: Option<Searched>,
    /// Gaps that were found, but for those that compaction has made later.
    pub found: u64,
    seen: u64,
}

impl SearchedLog {
    /// Nothing before `seen` is of the time of this stream.
    pub fn new(seen: u64) -> Self {
        Self { seen, ..Self::default() }
    }

    /// Messages between the start and the last stable offset, as far as known.
    pub fn messages(&self, log: &Log) -> u64 {
        let (start, end) = (log.start().0, log.last_stable().0);
        end.saturating_sub(start).saturating_sub(self.gaps.count_below(end))
    }
}

/// Somebody whose log is searched.
pub(super) trait Searcher {
    /// How far it was searched.
    fn searched(&self, log: &Log) -> Searched;
    /// All of it is searched again, because compaction has gone through it.
    fn begin_again(&mut self);
    /// There are no messages here.
    fn note_gap(&mut self, first: u64, last: u64);
    /// It was searched so far.
    fn set_searched(&mut self, searched: Searched);
}

impl Searcher for SearchedLog {
    fn searched(&self, log: &Log) -> Searched {
        let Searched { until, compactions } =
            self.searched.unwrap_or(Searched { until: 0, compactions: log.compactions() });
        Searched { until: until.max(log.start().0), compactions }
    }

    fn begin_again(&mut self) {}

    fn note_gap(&mut self, first: u64, last: u64) {
        self.gaps.insert(first, last);
        self.found += (last + 1).saturating_sub(first.max(self.seen));
    }

    fn set_searched(&mut self, searched: Searched) {
        self.seen = self.seen.max(searched.until);
        self.searched = Some(searched);
    }
}

/// A queue, locked.
pub(super) struct SearchedQueue<'a> {
    pub own: &'a mut Dispatch,
    pub state: &'a mut delivery::Subscription,
}

impl Searcher for SearchedQueue<'_> {
    fn searched(&self, _: &Log) -> Searched {
        let Searched { until, compactions } = self.state.searched();
        Searched { until: until.max(self.state.start()), compactions }
    }

    fn begin_again(&mut self) {
        self.own.machine.forget_weights(self.state);
    }

    fn note_gap(&mut self, first: u64, last: u64) {
        self.own.machine.note_gap(self.state, first, last);
        self.own.note_no_messages(first, last);
    }

    fn set_searched(&mut self, searched: Searched) {
        self.own.note_seen(searched.until);
        self.state.set_searched(searched);
    }
}

/// Where the batches of `from` to before `next` leave offsets without a message: first and last offsets, ascending.
fn gaps_of(log: &Log, slices: &[Bytes], from: u64, next: u64) -> Result<Vec<(u64, u64)>, BatchError> {
    let found = sliced_batches(slices)?;
    let dead = aborted(log, slices, &found, Offset(from), Offset(next));
    gaps_between(slices, &found, &dead, from, next)
}

/// The same of batches of which it is known whether they were aborted.
fn gaps_between(
    slices: &[Bytes],
    found: &[SlicedBatch],
    dead: &[bool],
    from: u64,
    next: u64,
) -> Result<Vec<(u64, u64)>, BatchError> {
    let total: usize = slices.iter().map(Bytes::len).sum();
    let is_whole = found.last().map_or(0, |last| last.at + last.header.total_bytes()) == total;
    let (mut gaps, mut at) = (Vec::new(), from);
    let mut messages = |first: u64, end: u64| {
        if first > at {
            gaps.push((at, first.min(next) - 1));
        }
        at = at.max(end);
    };
    for (batch, dead) in found.iter().zip(dead.iter().copied()) {
        let (base, end) = (batch.header.base().0, batch.header.next().0);
        if batch.header.control() || dead || end <= from || base >= next || batch.header.records_count <= 0 {
            continue;
        }
        if batch.header.records_count as u64 == end - base {
            messages(base, end);
        } else {
            let looked = scan(&whole(slices, batch.at, batch.header.total_bytes()), UNPACKED_BYTES_MAX, |record| {
                messages(record.offset.0, record.offset.0 + 1);
                ControlFlow::Continue(())
            });
            if looked.is_err() {
                // Nobody knows what there is: whoever opens it passes over what makes no sense.
                messages(base, end);
            }
        }
    }
    // Behind a piece of a batch nobody knows: what is not read is not called a gap.
    if is_whole {
        messages(next, next);
    }
    gaps.retain(|(first, last)| first <= last);
    Ok(gaps)
}

/// How a search of what is in memory ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    All,
    /// To be read from the disk, from here to before there.
    Cold(u64, u64),
    /// It makes no sense, or is not there yet.
    Nothing,
}

/// Is all below `end` of a queue's log known? Most logs need no search for that.
pub(super) fn is_searched(state: &mut delivery::Subscription, log: &Log, end: u64) -> bool {
    let searched = state.searched();
    if searched.compactions != log.compactions() || searched.until < end.min(log.dense_from().0) {
        return false;
    }
    if searched.until < end {
        state.set_searched(Searched { until: end, ..searched });
    }
    true
}

impl Broker {
    /// Searches what is in memory of a log that is stable to before `end`.
    fn search_tail(&self, log: &Log, end: u64, searcher: &mut impl Searcher) -> Found {
        let mut searched = searcher.searched(log);
        let compactions = log.compactions();
        if searched.compactions != compactions {
            searcher.set_searched(Searched { until: 0, compactions });
            searcher.begin_again();
            searched = searcher.searched(log);
        }
        let found = loop {
            // After the end, which was asked for before: what is readable by now is told of.
            let dense = log.dense_from().0.min(end);
            if searched.until >= dense {
                searched.until = searched.until.max(end);
                break Found::All;
            }
            let journal = self.journal_of(log.id());
            match journal.read_tail(log, Offset(searched.until)..Offset(dense), TAIL_BYTES, true) {
                TailRead::Data { slices, next, .. } if next.0 > searched.until => {
                    match gaps_of(log, &slices, searched.until, next.0) {
                        Ok(gaps) => {
                            gaps.into_iter().for_each(|(first, last)| searcher.note_gap(first, last));
                            searched.until = next.0;
                        }
                        Err(error) => {
                            tracing::error!(%error, log = %log.id(), offset = searched.until, "records of a queue make no sense");
                            break Found::Nothing;
                        }
                    }
                }
                TailRead::Cold => break Found::Cold(searched.until, dense),
                TailRead::Data { .. } | TailRead::Empty | TailRead::OutOfRange => break Found::Nothing,
            }
        };
        searcher.set_searched(searched);
        found
    }

    /// Searches the log of a queue, as far as it is in memory; what is not is read and searched by others.
    pub(super) fn search_queue(self: &Arc<Self>, queue: &Arc<Queue>, end: u64, searcher: &mut SearchedQueue<'_>) {
        if let Found::Cold(from, until) = self.search_tail(queue.log(), end, searcher) {
            self.search_later(queue, queue.log(), from, until);
        }
    }

    /// The same for a log of a stream.
    pub(super) fn search_stream(self: &Arc<Self>, queue: &Arc<Queue>, log: &Arc<Log>, searched: &mut SearchedLog) {
        searched.gaps.trim(log.start().0);
        if let Found::Cold(from, until) = self.search_tail(log, log.last_stable().0, searched) {
            self.search_later(queue, log, from, until);
        }
    }

    fn search_later(self: &Arc<Self>, queue: &Arc<Queue>, log: &Arc<Log>, from: u64, until: u64) {
        if let Some(search) = Search::begin(self, log.id()) {
            self.search_on(search, Arc::clone(queue), Arc::clone(log), from, until);
        }
    }

    /// Reads a piece on a thread that may wait, and then the next.
    fn search_on(&self, search: Search, queue: Arc<Queue>, log: Arc<Log>, from: u64, until: u64) {
        let work = Box::new(move |broker: &Arc<Self>| {
            match broker.search_piece(&queue, &log, from, until) {
                Piece::Searched { next, .. } if next < until && !queue.is_dropped() => {
                    broker.search_on(search, queue, log, next, until)
                }
                Piece::Searched { .. } | Piece::Passed => broker.end_search(search, queue, log),
                Piece::Unreadable => drop(search),
            }
            Box::new(()) as Box<dyn Any + Send>
        });
        // There is no room for another read: whoever looks next begins again.
        let _ = self.read_history(NOBODY, crate::jobs::JobOwner::BROKER, work);
    }

    /// What it was begun for is searched. What has become stable meanwhile may be on the disk too, right after a start for instance: then it goes
    /// on, so that those who hear of its end see all of it.
    fn end_search(self: &Arc<Self>, mut search: Search, queue: Arc<Queue>, log: Arc<Log>) {
        self.look_again(&queue);
        while !search.end_if_done() {
            match self.search_again(&queue, &log) {
                Found::Cold(from, until) if !queue.is_dropped() => {
                    search.answer_below(from);
                    return self.search_on(search, queue, log, from, until);
                }
                Found::Cold(..) | Found::Nothing => return,
                Found::All => {}
            }
        }
    }

    fn look_again(self: &Arc<Self>, queue: &Arc<Queue>) {
        if queue.is_stream() {
            self.counts(queue);
        } else {
            self.run_queue(queue);
        }
    }

    /// Reads and searches a piece.
    fn search_piece(self: &Arc<Self>, queue: &Arc<Queue>, log: &Arc<Log>, from: u64, until: u64) -> Piece {
        let compactions = log.compactions();
        let want = ColdWant { log: Arc::clone(log), from: Offset(from), until: Offset(until), max_bytes: PIECE_BYTES };
        let ColdData { slices, bytes, next } = match self.journal_of(log.id()).read_cold(&[want], PIECE_BYTES).pop() {
            Some(Ok(data)) if data.next.0 > from => data,
            _ if log.start().0 > from => return Piece::Passed,
            Some(Err(error)) => {
                tracing::warn!(%error, log = %log.id(), from, "a log cannot be searched for what is no message; its count is too large");
                return Piece::Unreadable;
            }
            Some(Ok(_)) | None => return Piece::Unreadable,
        };
        let gaps = match gaps_of(log, &slices, from, next.0) {
            Ok(gaps) => gaps,
            Err(error) => {
                tracing::error!(%error, log = %log.id(), from, "records of a queue make no sense");
                return Piece::Unreadable;
            }
        };
        let note = |searcher: &mut dyn Searcher| {
            let searched = searcher.searched(log);
            if searched.compactions != compactions || !(from..next.0).contains(&searched.until) {
                return Piece::Passed;
            }
            gaps.iter().for_each(|(first, last)| searcher.note_gap(*first, *last));
            searcher.set_searched(Searched { until: next.0, compactions });
            Piece::Searched { next: next.0, bytes }
        };
        match &queue.stream {
            Some(stream) => stream.with_log(log.id(), |one| note(one)),
            None => {
                let (mut own, mut state) = (queue.dispatch.lock(), queue.shared.lock());
                note(&mut SearchedQueue { own: &mut own, state: &mut state })
            }
        }
    }

    /// Searches the logs of a queue that has just been declared over a topic, so that the answer has the right count; of a long topic only the
    /// first part, the rest later. On a thread that may wait.
    pub(super) fn search_attached(self: &Arc<Self>, queue: &Arc<Queue>) {
        let mut left = ATTACH_BYTES_MAX;
        if let Some(stream) = &queue.stream {
            stream.begin(queue.topic());
        }
        let logs: Vec<(Arc<Queue>, Arc<Log>)> = match queue.is_stream() {
            true => queue.topic().logs().iter().map(|log| (Arc::clone(queue), Arc::clone(log))).collect(),
            false => queue.parts().map(|part| (Arc::clone(part), Arc::clone(part.log()))).collect(),
        };
        for (part, log) in logs {
            let Some(search) = Search::begin(self, log.id()) else { continue };
            while left > 0 {
                let Found::Cold(from, until) = self.search_again(&part, &log) else { break };
                let Piece::Searched { bytes, .. } = self.search_piece(&part, &log, from, until) else { break };
                left = left.saturating_sub(bytes.max(1));
            }
            self.end_search(search, part, log);
        }
    }

    /// Searches what is in memory.
    fn search_again(&self, queue: &Queue, log: &Log) -> Found {
        let end = log.last_stable().0;
        match &queue.stream {
            Some(stream) => stream.with_log(log.id(), |one| self.search_tail(log, end, one)),
            None => {
                let (mut own, mut state) = (queue.dispatch.lock(), queue.shared.lock());
                self.search_tail(log, end, &mut SearchedQueue { own: &mut own, state: &mut state })
            }
        }
    }

    /// Are the counts of a queue not known yet? True: `to` hears when they are.
    pub fn await_search(self: &Arc<Self>, queue: &Arc<Queue>, to: ReplyTo) -> bool {
        // Which begins the search where that is necessary.
        self.counts(queue);
        self.vhosts.searches.await_one(queue.parts().map(|part| part.log()), Asker::Connection(to))
    }

    /// Waits until the counts of a queue are known, or nobody can know them. Not on a shard's thread, nor on the controller's. False: it takes
    /// longer than that.
    pub fn wait_for_counts(self: &Arc<Self>, queue: &Arc<Queue>, max: Duration) -> bool {
        let until = Instant::now() + max;
        for _ in queue.parts() {
            let (to, answer) = mpsc::sync_channel(1);
            // Which begins the search where that is necessary.
            self.counts(queue);
            if !self.vhosts.searches.await_one(queue.parts().map(|part| part.log()), Asker::Thread(to)) {
                break;
            }
            if let Err(RecvTimeoutError::Timeout) = answer.recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use record::{BatchBuilder, Marker};

    use super::*;

    fn at(bytes: &Bytes, offset: u64) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        bytes
    }

    fn plain(count: i64) -> BatchBuilder {
        (0..count).fold(BatchBuilder::default(), |batch, number| batch.record(number, None, Some(b"v")))
    }

    #[test]
    fn what_batches_leave_out_is_a_gap() {
        let marker = Marker::Commit.batch(9, 0, 0, 1);
        // Offsets 10 to 12, a marker at 13, nothing up to 19, 20 and 21, nothing at 22, and of what follows nobody wants more than one.
        let bytes: Vec<u8> =
            [at(&plain(3).build(), 10), at(&marker, 13), at(&plain(2).build(), 20), at(&plain(5).build(), 23)].concat();
        let slices = [Bytes::from(bytes)];
        let batches = sliced_batches(&slices).expect("batches");
        let found = |from, next| gaps_between(&slices, &batches, &[false; 4], from, next).expect("whole batches");
        assert_eq!(found(10, 24), [(13, 19), (22, 22)]);
        assert_eq!(found(8, 30), [(8, 9), (13, 19), (22, 22), (28, 29)]);
        assert_eq!(found(14, 18), [(14, 17)]);
        assert_eq!(found(21, 23), [(22, 22)]);
        let aborted = gaps_between(&slices, &batches, &[true, false, false, false], 10, 24).expect("whole batches");
        assert_eq!(aborted, [(10, 19), (22, 22)]);
        assert_eq!(gaps_between(&[], &[], &[], 5, 9).expect("nothing"), [(5, 8)]);
        // Of a piece of a batch nothing is known.
        let cut = [slices[0].slice(..slices[0].len() - 3)];
        let batches = sliced_batches(&cut).expect("batches");
        assert_eq!(gaps_between(&cut, &batches, &[false; 3], 10, 30).expect("whole batches before it"), [(13, 19)]);
    }
}
