//! Records of a queue that were read and not given out yet: a piece of its log, decoded once for many consumers.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use journal::{Log, TailRead};
use record::Record;
use smallvec::SmallVec;
use types::Offset;

use super::opening::{NotOpened, Opening};
use super::window_memory::{Charge, WindowMemory};
use crate::Broker;

/// Read at once, about.
pub(super) const WINDOW_BYTES: usize = 64 << 10;

/// Read at once, about, where memory is short: one batch at least.
const LEAST_BYTES: usize = 4 << 10;
/// What a record in memory takes beside its bytes, about.
pub(super) const RECORD_BYTES: usize = 256;

/// All records of a range of offsets.
#[derive(Default)]
pub(super) struct Window {
    covers: Range<u64>,
    /// Slices of caches that the records lie in, until these are moved out: what was taken and comes back is decoded from them again.
    slices: SmallVec<[Bytes; 1]>,
    /// Some records were unpacked: they lie elsewhere, and what they take is counted there.
    unpacked: bool,
    /// Of what is kept between turns.
    charge: Option<Charge>,
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

/// Of what was published.
pub(super) fn bytes_of(record: &Record) -> usize {
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    length(&record.key)
        + length(&record.value)
        + record.headers.iter().map(|(name, value)| name.len() + length(value)).sum::<usize>()
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

    /// Nobody takes what is left for now: it stays as long as there is room for it (see `window_memory.rs`).
    pub fn keep(&mut self, memory: &Arc<WindowMemory>) {
        if self.at >= self.records.len() {
            return self.clear();
        }
        if self.unpacked {
            if memory.is_over() {
                self.clear();
            } else if self.charge.is_none() {
                // The bytes of the records count already, and what they were unpacked from can be read again.
                self.slices = SmallVec::new();
                self.charge = Some(memory.count((self.records.len() - self.at) * RECORD_BYTES));
            }
            return;
        }
        if self.charge.is_some() {
            return;
        }
        self.charge = memory.pin(self.slices.len());
        if self.charge.is_none() {
            let left = || self.records[self.at..].iter().filter_map(|(_, record)| record.as_ref());
            let bytes = left().map(bytes_of).sum::<usize>();
            match memory.take(bytes + left().count() * RECORD_BYTES) {
                Some(charge) => {
                    self.move_out(bytes);
                    self.charge = Some(charge);
                }
                None => self.clear(),
            }
        }
    }

    /// Copies what is left, so many bytes, into memory of its own.
    fn move_out(&mut self, bytes: usize) {
        let mut memory = BytesMut::with_capacity(bytes);
        // What lies before has to be read again, if it is still wanted.
        self.covers.start = self.records.get(self.at).map_or(self.covers.end, |(at, _)| *at);
        self.records.drain(..self.at);
        self.at = 0;
        for record in self.records.iter_mut().filter_map(|(_, record)| record.as_mut()) {
            let mut own = |bytes: &mut Bytes| {
                memory.extend_from_slice(bytes);
                *bytes = memory.split().freeze();
            };
            record.key.iter_mut().chain(&mut record.value).for_each(&mut own);
            for (name, value) in &mut record.headers {
                own(name);
                value.iter_mut().for_each(&mut own);
            }
        }
        self.records.shrink_to_fit();
        self.slices = SmallVec::new();
    }

    /// Is there nothing in it?
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How much is read at once.
    pub fn piece(memory: &WindowMemory) -> usize {
        if memory.is_short() { LEAST_BYTES } else { WINDOW_BYTES }
    }

    /// Lets go of the memory.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Reads from `offset` on what is in memory.
    ///
    /// # Errors
    /// Batches that make no sense, or take longer to open than this thread may take.
    pub fn fill(&mut self, broker: &Broker, log: &Log, offset: u64, opening: Opening<'_>) -> Result<Filled, NotOpened> {
        let end = log.last_stable();
        if offset < log.start().0 {
            return Ok(Filled::Gone(log.start().0));
        }
        match broker.journal_of(log.id()).read_tail(
            log,
            Offset(offset)..end,
            Self::piece(&broker.vhosts().windows),
            true,
        ) {
            TailRead::Data { slices, next, .. } => {
                self.take(log, slices, offset..next.0, opening).map(|()| Filled::Yes)
            }
            TailRead::Cold => Ok(Filled::Cold),
            TailRead::Empty | TailRead::OutOfRange => Ok(Filled::Empty),
        }
    }

    /// Takes batches that cover `range`, or as much of them as there is room for.
    ///
    /// # Errors
    /// As [`Window::fill`].
    pub fn take(
        &mut self,
        log: &Log,
        slices: impl IntoIterator<Item = Bytes>,
        range: Range<u64>,
        mut opening: Opening<'_>,
    ) -> Result<(), NotOpened> {
        self.clear();
        let slices: SmallVec<[Bytes; 1]> = slices.into_iter().collect();
        let records = &mut self.records;
        let opened = opening.open(log, &slices, &range, |record| records.push((record.offset.0, Some(record))));
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.clear();
                return Err(error);
            }
        };
        (self.covers, self.slices, self.unpacked) = (range.start..opened.next, slices, opened.unpacked);
        Ok(())
    }

    /// Decodes all of it again if it covers `offset`, at which a record was taken. False: that has to be read.
    ///
    /// # Errors
    /// As [`Window::fill`].
    pub fn refill(&mut self, log: &Log, offset: u64, opening: Opening<'_>) -> Result<bool, NotOpened> {
        if self.slices.is_empty() || !self.covers.contains(&offset) {
            return Ok(false);
        }
        // What is unpacked may find no room for all that is before it.
        let from = if self.unpacked { offset } else { self.covers.start };
        let (slices, range) = (std::mem::take(&mut self.slices), from..self.covers.end);
        self.take(log, slices, range, opening).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u64) -> Record {
        Record {
            offset: Offset(offset),
            timestamp: 0,
            key: None,
            value: None,
            headers: record::Headers::new(),
            vouched: false,
        }
    }

    #[test]
    fn it_says_what_is_there_what_is_not_and_what_it_does_not_know() {
        let mut window = Window {
            covers: 10..20,
            records: [10, 11, 15].map(|at| (at, Some(record(at)))).into(),
            at: 0,
            ..Window::default()
        };
        let mut see = |offset| match window.see(offset) {
            Seen::Record(record) => (record.offset.0, "record"),
            Seen::Nothing(next) => (next, "nothing"),
            Seen::Unread => (offset, "unread"),
        };
        assert_eq!(
            [9, 10, 15, 11, 12, 16, 20].map(&mut see),
            [
                (9, "unread"),
                (10, "record"),
                (15, "record"),
                (11, "record"),
                (15, "nothing"),
                (20, "nothing"),
                (20, "unread"),
            ]
        );
        assert!(matches!(window.see(11), Seen::Record(_)));
        assert_eq!(window.take_seen().map(|record| record.offset.0), Some(11));
        assert!(matches!(window.see(11), Seen::Unread), "what was taken has to be read again");
        assert_eq!(window.next(11).map(|record| record.offset.0), Some(15));
        window.clear();
        assert!(matches!(window.see(10), Seen::Unread));
    }
    /// A window of ten records of 1,000 bytes that lie in one block of a cache.
    fn filled() -> (Window, Bytes) {
        let block = Bytes::from(vec![7u8; 10_000]);
        let whole = |at: u64| {
            let value = Some(block.slice(at as usize * 1000..(at as usize + 1) * 1000));
            Record { value, headers: [(Bytes::from_static(b"h"), None)].into(), ..record(at) }
        };
        (
            Window {
                covers: 0..10,
                slices: [block.clone()].into_iter().collect(),
                records: (0..10).map(|at| (at, Some(whole(at)))).collect(),
                ..Window::default()
            },
            block,
        )
    }

    #[test]
    fn what_is_kept_between_turns_has_a_bound() {
        let memory = Arc::new(WindowMemory::default());
        memory.set_max(8 << 20);
        let mut kept: Vec<(Window, Bytes)> = Vec::new();
        for number in 0..1000 {
            let (mut window, block) = filled();
            assert!(matches!(window.see(0), Seen::Record(_)));
            window.take_seen();
            window.keep(&memory);
            assert!(memory.used() <= 4 << 20);
            match number {
                0 | 1 => assert!(!block.is_unique(), "there is room for the block"),
                2..100 => {
                    assert!(block.is_unique(), "the block is free");
                    let Seen::Record(record) = window.see(1) else { panic!("it was copied") };
                    assert_eq!(record.value.as_deref(), Some(&[7; 1000][..]));
                }
                500.. => assert!(matches!(window.see(1), Seen::Unread) && memory.is_short(), "it is read again"),
                _ => {}
            }
            kept.push((window, block));
        }
        for (window, _) in &mut kept {
            while let Some(next) = window.next(0).map(|record| record.offset.0) {
                assert!(matches!(window.see(next), Seen::Record(_)));
                window.take_seen();
            }
            window.keep(&memory);
        }
        assert_eq!(memory.used(), 0);
    }
}
