//! Where a reader is in one log, and the records that it has read there and not been given yet.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use bytes::Bytes;
use journal::{ColdData, ColdWant, Log, ReadError, TailRead};
use record::{BatchError, Record, UNPACKED_BYTES_MAX, scan, sliced_batches, unpacked_bytes, whole};
use smallvec::SmallVec;
use types::{Offset, ShardId};

use super::super::opening::{HERE_BYTES_MAX, NotOpened, Opening};
use super::super::window::{RECORD_BYTES, Window, bytes_of};
use super::super::window_memory::{Charge, WindowMemory};
use super::start::{StreamFilter, StreamStart};
use crate::{Broker, UnpackRoom, aborted};

/// Read at once of history, in bytes, about, and what is copied out of caches at most.
const HISTORY_BYTES: usize = 256 << 10;
/// Batches that are looked at for the last message, at most: what comes before is markers and what was aborted.
const LAST_LOOKS_MAX: usize = 1000;

/// What a cursor has to give.
pub(super) enum Next {
    /// At least one record: [`Cursor::take`].
    Record,
    /// Nothing now. If the log has no more, the reader's shard hears when it has.
    Nothing,
    /// Nothing until somebody who may wait has answered.
    Asks(Question),
    /// Nothing that makes sense.
    Broken(BatchError),
}

/// What a cursor waits for before it looks at its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    No,
    /// The answer to its question.
    Answer,
    /// Time to pass after something has failed.
    Retry,
}

/// What only a thread that may wait can find out.
pub(super) enum Question {
    /// Where this is.
    Start(StreamStart),
    /// The records from the first of these offsets on, which are on the disk.
    History(Range<u64>),
    /// The same, wherever they are: they take longer to open than a network thread may take.
    Open(Range<u64>),
    /// The same of records that take longer to judge. It is asked turn by turn.
    Judge(Range<u64>),
}

/// What was found out.
#[derive(Default)]
pub(super) struct Answer {
    /// Offset after what was looked at.
    pub at: u64,
    piece: Piece,
    /// What comes next takes longer to judge than a turn.
    pub long: bool,
}

impl Answer {
    fn at(at: u64) -> Self {
        Self { at, ..Self::default() }
    }

    /// Is there a record?
    pub fn has_some(&self) -> bool {
        !self.piece.is_empty()
    }
}

/// Records that were read and not given out, and their account in the memory of queues.
#[derive(Default)]
pub(super) struct Piece {
    records: std::vec::IntoIter<Record>,
    _held: Option<Charge>,
}

impl Piece {
    fn new(Decoded { records, unpacked, .. }: Decoded, memory: &Arc<WindowMemory>) -> Self {
        // What was unpacked is counted where it lies.
        let bytes_of = |record: &Record| if unpacked { 0 } else { bytes_of(record) };
        let bytes = records.iter().map(|record| bytes_of(record) + RECORD_BYTES).sum();
        Self { records: records.into_iter(), _held: Some(memory.count(bytes)) }
    }

    fn is_empty(&self) -> bool {
        self.records.as_slice().is_empty()
    }
}

/// Records that a reader wants.
struct Decoded {
    records: Vec<Record>,
    /// Offset after what was looked at.
    next: u64,
    /// Some of them were unpacked, into memory of their own.
    unpacked: bool,
    /// There was no room to judge those from `next` on in this turn.
    stopped: bool,
}

/// One log of a reader.
pub(super) struct Cursor {
    pub log: Arc<Log>,
    /// What lies below was given, or is in the piece, or is not wanted.
    pub at: u64,
    piece: Piece,
    /// Where it begins, as long as that is not known.
    seeks: Option<StreamStart>,
    pub waits: Waits,
    /// What comes next takes longer to judge than a turn of a network thread.
    long: bool,
}

impl Cursor {
    pub fn new(log: &Arc<Log>, start: StreamStart) -> Self {
        let (at, seeks) = match start {
            StreamStart::First => (log.start().0, None),
            StreamStart::Next => (log.last_stable().0, None),
            StreamStart::Offset(offset) => (offset, None),
            StreamStart::Last | StreamStart::Time(_) => (log.start().0, Some(start)),
        };
        Self { log: Arc::clone(log), at, piece: Piece::default(), seeks, waits: Waits::No, long: false }
    }

    /// Goes on with the answer.
    pub fn set(&mut self, answer: Answer) {
        (self.at, self.piece, self.long) = (answer.at, answer.piece, answer.long);
        (self.seeks, self.waits) = (None, Waits::No);
    }

    /// What lies below was given, or is not wanted.
    pub fn given(&self) -> u64 {
        self.piece.records.as_slice().first().map_or(self.at, |record| record.offset.0)
    }

    pub fn take(&mut self) -> Option<Record> {
        let record = self.piece.records.next();
        if self.piece.is_empty() {
            self.piece = Piece::default();
        }
        record
    }

    /// Looks for the next record; `looked_at` grows by the bytes that were read for that, and by what a filter took, up to about `bytes_max`.
    pub fn next(
        &mut self,
        broker: &Broker,
        shard: ShardId,
        filter: Option<&StreamFilter>,
        looked_at: &mut usize,
        bytes_max: usize,
    ) -> Next {
        loop {
            if !self.piece.is_empty() {
                return Next::Record;
            }
            if self.waits != Waits::No || *looked_at >= bytes_max {
                return Next::Nothing;
            }
            if let Some(start) = self.seeks {
                return Next::Asks(Question::Start(start));
            }
            self.at = self.at.max(self.log.start().0);
            let end = self.log.last_stable().0;
            if self.at >= end {
                // Watch first, then look once more: something may have come in between.
                self.log.watch(shard);
                if self.at >= self.log.last_stable().0 {
                    return Next::Nothing;
                }
                continue;
            }
            if std::mem::take(&mut self.long) {
                return Next::Asks(Question::Judge(self.at..end));
            }
            let memory = &broker.vhosts.windows;
            match broker.journal_of(self.log.id()).read_tail(
                &self.log,
                Offset(self.at)..Offset(end),
                Window::piece(memory),
                true,
            ) {
                TailRead::Data { slices, bytes, next } => {
                    let (turn, has_whole_turn) = (bytes_max.saturating_sub(*looked_at), *looked_at == 0);
                    let (mut left, mut room) = (turn.min(HERE_BYTES_MAX), UnpackRoom::of_bytes(turn));
                    let before = unpacked_bytes();
                    let decoded = decode(
                        &self.log,
                        &slices,
                        self.at..next.0,
                        (filter, &mut room),
                        Opening::here(broker, &mut left),
                    );
                    *looked_at += bytes + (unpacked_bytes() - before) as usize + room.spent_of(turn);
                    match decoded {
                        Ok(decoded) => {
                            let (at, stopped) = (decoded.next, decoded.stopped);
                            self.set(Answer {
                                at,
                                piece: Piece::new(decoded, memory),
                                long: stopped && has_whole_turn,
                            });
                            if stopped {
                                *looked_at = bytes_max.max(*looked_at);
                            }
                        }
                        Err(NotOpened::Later) if memory.is_full() => {
                            self.waits = Waits::Retry;
                            return Next::Nothing;
                        }
                        Err(NotOpened::Later | NotOpened::TooLarge(_)) => {
                            return Next::Asks(Question::Open(self.at..end));
                        }
                        Err(NotOpened::Broken(error)) => return Next::Broken(error),
                    }
                }
                TailRead::Cold => return Next::Asks(Question::History(self.at..end)),
                // The start has passed by.
                TailRead::Empty | TailRead::OutOfRange => {}
            }
        }
    }
}

impl Question {
    /// Up to before which offset was read, and the records there that a reader wants. Blocks.
    ///
    /// # Errors
    /// What the disk says.
    pub fn answer(
        self,
        broker: &Broker,
        log: &Arc<Log>,
        filter: Option<&StreamFilter>,
        bytes_max: usize,
    ) -> Result<Answer, ReadError> {
        match self {
            Self::Start(StreamStart::Last) => Ok(Answer::at(find_last(broker, log)?)),
            Self::Start(StreamStart::Time(at)) => {
                let found = broker.journal_of(log.id()).find_by_time(log, at)?;
                Ok(Answer::at(found.map_or_else(|| log.last_stable(), |(offset, _)| offset).0))
            }
            Self::Start(StreamStart::First) => Ok(Answer::at(log.start().0)),
            Self::Start(StreamStart::Next) => Ok(Answer::at(log.last_stable().0)),
            Self::Start(StreamStart::Offset(offset)) => Ok(Answer::at(offset)),
            Self::History(range) => read_history(broker, log, range, filter, bytes_max),
            // Others may have unpacked much since this was asked for.
            Self::Open(range) if broker.vhosts.windows.is_full() => Ok(Answer::at(range.start)),
            Self::Open(range) | Self::Judge(range) => {
                let piece_bytes = Window::piece(&broker.vhosts.windows);
                let read = broker.read_slices(log, Offset(range.start)..Offset(range.end), piece_bytes)?;
                let Some(read) = read else { return Ok(Answer::at(range.start)) };
                Ok(opened(broker, log, &read.slices, range.start..read.next.0, (filter, &mut { UnpackRoom::HISTORY })))
            }
        }
    }
}

/// The records of a range of offsets that a reader wants, as many as there is room for. They keep no more memory than they need: what is a
/// small part of the blocks in which it was read is copied.
fn decode(
    log: &Log,
    slices: &SmallVec<[Bytes; 4]>,
    range: Range<u64>,
    (filter, room): (Option<&StreamFilter>, &mut UnpackRoom),
    mut opening: Opening<'_>,
) -> Result<Decoded, NotOpened> {
    let bytes: usize = slices.iter().map(Bytes::len).sum();
    let own: SmallVec<[Bytes; 4]>;
    let slices = if bytes <= HISTORY_BYTES {
        own = [Bytes::from(slices.concat())].into_iter().collect();
        &own
    } else {
        slices
    };
    let (mut records, mut stopped) = (Vec::new(), None);
    let opened = opening.open(log, slices, &range, |record| {
        if stopped.is_some() {
            return;
        }
        match filter.map_or(Some(true), |filter| filter.wants(&record, room)) {
            Some(true) => records.push(record),
            Some(false) => {}
            None => stopped = Some(record.offset.0),
        }
    })?;
    Ok(Decoded { records, next: stopped.unwrap_or(opened.next), unpacked: opened.unpacked, stopped: stopped.is_some() })
}

/// The same on a thread that may wait.
fn opened(
    broker: &Broker,
    log: &Log,
    slices: &SmallVec<[Bytes; 4]>,
    range: Range<u64>,
    filter: (Option<&StreamFilter>, &mut UnpackRoom),
) -> Answer {
    let (from, next) = (range.start, range.end);
    match decode(log, slices, range, filter, Opening::elsewhere(broker)) {
        Ok(decoded) => {
            let (at, long) = (decoded.next, decoded.stopped);
            let piece =
                if decoded.records.is_empty() { Piece::default() } else { Piece::new(decoded, &broker.vhosts.windows) };
            Answer { at, piece, long }
        }
        Err(NotOpened::Broken(error)) => {
            tracing::error!(%error, log = %log.id(), from, "records of a stream make no sense, and are passed over");
            Answer::at(next)
        }
        Err(NotOpened::Later | NotOpened::TooLarge(_)) => Answer::at(from),
    }
}

fn read_history(
    broker: &Broker,
    log: &Arc<Log>,
    range: Range<u64>,
    filter: Option<&StreamFilter>,
    bytes_max: usize,
) -> Result<Answer, ReadError> {
    let memory = &broker.vhosts.windows;
    let piece_bytes = HISTORY_BYTES.min(4 * Window::piece(memory));
    let (mut at, mut looked_at, mut room) = (range.start, 0, UnpackRoom::HISTORY);
    while at < range.end && looked_at < bytes_max {
        let want =
            ColdWant { log: Arc::clone(log), from: Offset(at), until: Offset(range.end), max_bytes: piece_bytes };
        let ColdData { slices, bytes, next } = match broker.journal_of(log.id()).read_cold(&[want], piece_bytes).pop() {
            Some(Ok(data)) if data.next.0 > at => data,
            // What is left is in memory, or retention was faster.
            Some(Ok(_) | Err(ReadError::Gone)) | None => break,
            Some(Err(error)) => return Err(error),
        };
        let before = unpacked_bytes();
        let answer = opened(broker, log, &slices, at..next.0, (filter, &mut room));
        if answer.has_some() || answer.long {
            return Ok(answer);
        }
        (at, looked_at) = (answer.at, looked_at + bytes + (unpacked_bytes() - before) as usize);
    }
    Ok(Answer::at(at))
}

/// The offset of the last record that a consumer may see; the end if there is none.
fn find_last(broker: &Broker, log: &Arc<Log>) -> Result<u64, ReadError> {
    let end = log.last_stable().0;
    let mut until = end;
    for _ in 0..LAST_LOOKS_MAX {
        let Some(from) = until.checked_sub(1).filter(|from| *from >= log.start().0) else { break };
        let range = Offset(from)..Offset(until);
        let slices = match broker.journal_of(log.id()).read_tail(log, range.clone(), 1, true) {
            TailRead::Data { slices, .. } => slices,
            TailRead::Cold => {
                let want = ColdWant { log: Arc::clone(log), from: range.start, until: range.end, max_bytes: 1 };
                match broker.journal_of(log.id()).read_cold(&[want], 1).pop() {
                    Some(Ok(data)) => data.slices,
                    Some(Err(ReadError::Gone)) | None => break,
                    Some(Err(error)) => return Err(error),
                }
            }
            TailRead::Empty | TailRead::OutOfRange => break,
        };
        let found = sliced_batches(&slices).unwrap_or_default();
        let begins = found.first().map_or(from, |batch| batch.header.base().0).min(from);
        match last_record(log, &slices, begins..until) {
            Some(last) => return Ok(last),
            None => until = begins,
        }
    }
    Ok(end)
}

/// The offset of the last record of a range that a consumer may see.
fn last_record(log: &Log, slices: &[Bytes], range: Range<u64>) -> Option<u64> {
    let found = sliced_batches(slices).ok()?;
    let dead = aborted(log, slices, &found, Offset(range.start), Offset(range.end));
    let seen = found.iter().zip(dead).rev().filter(|(batch, dead)| !batch.header.control() && !dead);
    seen.map(|(batch, _)| batch).find_map(|batch| {
        let (base, end) = (batch.header.base().0, batch.header.next().0);
        if u64::try_from(batch.header.records_count) == Ok(end - base) {
            return (end <= range.end).then(|| end - 1);
        }
        let mut last = None;
        let looked = scan(&whole(slices, batch.at, batch.header.total_bytes()), UNPACKED_BYTES_MAX, |record| {
            last = last.max(Some(record.offset.0).filter(|offset| *offset < range.end));
            ControlFlow::Continue(())
        });
        looked.ok().and(last)
    })
}
