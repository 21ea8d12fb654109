//! Records of a queue that were read and not given out yet: a piece of its log, decoded once for many consumers.

use std::ops::Range;

use bytes::Bytes;
use journal::{Log, TailRead};
use record::{BatchError, Record, sliced_batches, sliced_records};
use smallvec::SmallVec;
use types::Offset;

use crate::{Broker, aborted};

/// Read at once, about.
pub(super) const WINDOW_BYTES: usize = 64 << 10;

/// All records of a range of offsets.
#[derive(Default)]
pub(super) struct Window {
    covers: Range<u64>,
    /// Each until it is taken.
    records: Vec<(u64, Option<Record>)>,
    /// Where the last look ended: the next one is most often right behind it.
    at: usize,
}

/// What there is at an offset.
pub(super) enum Seen<'a> {
    /// A record.
    Record(&'a Record),
    /// No record for consumers, up to before this offset.
    Nothing(u64),
    /// It was not read.
    Unread,
}

/// How a read went.
pub(super) enum Filled {
    /// The window begins with the offset that was asked for.
    Yes,
    /// Nothing is there yet.
    Empty,
    /// It has to be read from the disk.
    Cold,
    /// Records before this offset are gone.
    Gone(u64),
}

impl Window {
    pub fn see(&mut self, offset: u64) -> Seen<'_> {
        if !self.covers.contains(&offset) {
            return Seen::Unread;
        }
        if self.records.get(self.at).is_none_or(|(at, _)| *at != offset) {
            self.at = self.records.partition_point(|(at, _)| *at < offset);
        }
        match self.records.get(self.at) {
            Some((at, Some(record))) if *at == offset => Seen::Record(record),
            Some((at, None)) if *at == offset => Seen::Unread,
            Some((at, _)) => Seen::Nothing(*at),
            None => Seen::Nothing(self.covers.end),
        }
    }

    /// The first record from `offset` on, as far as the window goes.
    pub fn next(&self, offset: u64) -> Option<&Record> {
        let from = self.records.partition_point(|(at, _)| *at < offset);
        self.records[from..].iter().find_map(|(_, record)| record.as_ref())
    }

    /// To before which offset it goes, if it knows this one.
    pub fn end_from(&self, offset: u64) -> Option<u64> {
        self.covers.contains(&offset).then_some(self.covers.end)
    }

    /// Takes out what was seen last; it is unread from now on.
    pub fn take_seen(&mut self) -> Option<Record> {
        let taken = self.records.get_mut(self.at)?.1.take();
        self.at += 1;
        taken
    }

    /// Lets go of the memory.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Reads from `offset` on what is in memory.
    ///
    /// # Errors
    /// Batches that make no sense.
    pub fn fill(&mut self, broker: &Broker, log: &Log, offset: u64) -> Result<Filled, BatchError> {
        let end = log.last_stable();
        if offset < log.start().0 {
            return Ok(Filled::Gone(log.start().0));
        }
        match broker.journal_of(log.id()).read_tail(log, Offset(offset)..end, WINDOW_BYTES, true) {
            TailRead::Data { slices, next, .. } => self.take(log, &slices, offset..next.0).map(|()| Filled::Yes),
            TailRead::Cold => Ok(Filled::Cold),
            TailRead::Empty | TailRead::OutOfRange => Ok(Filled::Empty),
        }
    }

    /// Takes batches that cover `range`.
    ///
    /// # Errors
    /// Batches that make no sense.
    pub fn take(&mut self, log: &Log, slices: &SmallVec<[Bytes; 4]>, range: Range<u64>) -> Result<(), BatchError> {
        self.clear();
        let found = sliced_batches(slices)?;
        let dead = aborted(log, slices, &found, Offset(range.start), Offset(range.end));
        for (batch, _) in found.iter().zip(dead).filter(|(batch, dead)| !batch.header.control() && !dead) {
            let records = sliced_records(slices, batch)?;
            self.records.extend(records.into_iter().filter(|record| range.contains(&record.offset.0)).map(|record| (record.offset.0, Some(record))));
        }
        self.covers = range;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u64) -> Record {
        Record { offset: Offset(offset), timestamp: 0, key: None, value: None, headers: Vec::new() }
    }

    #[test]
    fn it_says_what_is_there_what_is_not_and_what_it_does_not_know() {
        let mut window = Window { covers: 10..20, records: [10, 11, 15].map(|at| (at, Some(record(at)))).into(), at: 0 };
        let mut see = |offset| match window.see(offset) {
            Seen::Record(record) => (record.offset.0, "record"),
            Seen::Nothing(next) => (next, "nothing"),
            Seen::Unread => (offset, "unread"),
        };
        assert_eq!([9, 10, 15, 11, 12, 16, 20].map(&mut see), [
            (9, "unread"),
            (10, "record"),
            (15, "record"),
            (11, "record"),
            (15, "nothing"),
            (20, "nothing"),
            (20, "unread"),
        ]);
        assert!(matches!(window.see(11), Seen::Record(_)));
        assert_eq!(window.take_seen().map(|record| record.offset.0), Some(11));
        assert!(matches!(window.see(11), Seen::Unread), "what was taken has to be read again");
        assert_eq!(window.next(11).map(|record| record.offset.0), Some(15));
        window.clear();
        assert!(matches!(window.see(10), Seen::Unread));
    }
}
