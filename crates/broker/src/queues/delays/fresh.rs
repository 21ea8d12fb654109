//! Messages that came lately, as they were read to find out when they are due: until they are sorted, or have left, they are at hand. Without this
//! each of them would be read by itself when it is due, from wherever it came, with all that was published in the same batch.
//!
//! What all exchanges keep so is at most [`KEPT_BYTES_MAX`], and of each what has not been sorted. What is not kept is read again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::record::Record;

/// Bytes that all exchanges keep together, about.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// What a record takes beside its bytes, about.
const AROUND_RECORD: usize = 256;

/// What is kept of one exchange.
pub(super) struct Fresh {
    /// By offset, ascending; each until it is taken.
    records: Vec<Option<Record>>,
    offsets: Vec<u64>,
    bytes: usize,
    /// Of all exchanges.
    all: Arc<AtomicUsize>,
}

impl Fresh {
    pub fn new(all: Arc<AtomicUsize>) -> Self {
        Self { records: Vec::new(), offsets: Vec::new(), bytes: 0, all }
    }

    /// Keeps a record of `bytes`, which comes behind all others, if there is room.
    pub fn keep(&mut self, record: Record, bytes: usize) {
        if self.all.load(Ordering::Relaxed) >= KEPT_BYTES_MAX {
            return;
        }
        self.bytes += bytes + AROUND_RECORD;
        self.all.fetch_add(bytes + AROUND_RECORD, Ordering::Relaxed);
        self.offsets.push(record.offset.0);
        self.records.push(Some(record));
    }

    /// Takes out the record at an offset; `None`: it is not kept.
    pub fn take(&mut self, offset: u64) -> Option<Record> {
        let at = self.offsets.binary_search(&offset).ok()?;
        self.records[at].take()
    }

    /// Takes back a record that was taken out.
    pub fn put_back(&mut self, record: Record) {
        if let Ok(at) = self.offsets.binary_search(&record.offset.0) {
            self.records[at] = Some(record);
        }
    }

    /// Lets go of everything.
    pub fn clear(&mut self) {
        self.all.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
        (self.records, self.offsets) = (Vec::new(), Vec::new());
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Offset;

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
    fn what_is_kept_is_taken_once_and_all_of_it_is_bounded() {
        let all = Arc::new(AtomicUsize::new(0));
        let (mut one, mut other) = (Fresh::new(Arc::clone(&all)), Fresh::new(Arc::clone(&all)));
        for offset in [3, 4, 9] {
            one.keep(record(offset), 100);
        }
        assert_eq!(
            [4, 4, 5, 9].map(|offset| one.take(offset).map(|record| record.offset.0)),
            [Some(4), None, None, Some(9)]
        );
        other.keep(record(7), KEPT_BYTES_MAX);
        one.keep(record(10), 1);
        assert!(one.take(10).is_none(), "there is no room");
        drop(other);
        one.keep(record(11), 1);
        assert!(one.take(11).is_some(), "there is room again");
        one.clear();
        assert_eq!((all.load(Ordering::Relaxed), one.take(3)), (0, None));
    }
}
