//! Transactions of one log: which are open, and which were aborted. Pure; the writer enters what it places, recovery what it
//! replays, the checkpoint keeps it.
//!
//! * T1 The **last stable offset** is the first offset of the earliest transaction that is open, or whose marker readers do not
//!   see yet; without such a one it is the readable end.
//! * T2 Readers of committed records get nothing at or beyond it, and are told of every aborted transaction that overlaps
//!   what they get.
//! * T3 Aborted transactions are forgotten once the log's start has passed their markers.
//! * T4 One whose marker compaction has removed is forgotten with it: a reader that was told of it would skip what its producer
//!   committed later.

use std::ops::Range;

use record::Marker;
use types::{Offset, Timestamp};

/// A transaction that readers do not see the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Whose.
    pub producer_id: i64,
    /// Its first record in this log.
    pub first: Offset,
    /// When that was appended; ms since 1970.
    pub since: Timestamp,
    /// Its marker, when that is placed.
    pub marker: Option<Offset>,
}

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose.
    pub producer_id: i64,
    /// Its first record in this log.
    pub first: Offset,
    /// Its marker.
    pub last: Offset,
}

/// All transactions of one log that matter still.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transactions {
    /// By first offset.
    open: Vec<OpenTransaction>,
    /// By last offset.
    aborted: Vec<AbortedTransaction>,
}

impl Transactions {
    /// Enters a batch of records of a transaction. True when the transaction begins with it.
    pub fn add(&mut self, producer_id: i64, base: Offset, now: Timestamp) -> bool {
        let new = self.of(producer_id).is_none();
        if new {
            self.open.push(OpenTransaction { producer_id, first: base, since: now, marker: None });
        }
        new
    }

    /// Enters a marker at `at`. `start` and `readable` are the log's, for what can be forgotten.
    pub fn end(&mut self, producer_id: i64, marker: Marker, at: Offset, start: Offset, readable: Offset) {
        self.open.retain(|open| open.marker.is_none_or(|marker| marker >= readable));
        let gone = self.aborted.partition_point(|aborted| aborted.last < start);
        self.aborted.drain(..gone);
        let Some(open) = self.open.iter_mut().find(|open| open.producer_id == producer_id && open.marker.is_none()) else { return };
        open.marker = Some(at);
        if marker == Marker::Abort {
            self.aborted.push(AbortedTransaction { producer_id, first: open.first, last: at });
        }
    }

    /// The transaction of a producer that has no marker yet.
    pub fn of(&self, producer_id: i64) -> Option<&OpenTransaction> {
        self.open.iter().find(|open| open.producer_id == producer_id && open.marker.is_none())
    }

    /// See T1.
    pub fn last_stable(&self, readable: Offset) -> Offset {
        let holds = |open: &&OpenTransaction| open.marker.is_none_or(|marker| marker >= readable);
        self.open.iter().find(holds).map_or(readable, |open| open.first.min(readable))
    }

    /// Aborted transactions with records in `from..until`.
    pub fn aborted_between(&self, from: Offset, until: Offset) -> impl Iterator<Item = &AbortedTransaction> {
        let first = self.aborted.partition_point(|aborted| aborted.last < from);
        self.aborted[first..].iter().filter(move |aborted| aborted.first < until)
    }

    /// Of those aborted within `range` only these have their marker still (T4).
    pub fn keep_aborted(&mut self, range: Range<Offset>, kept: &[AbortedTransaction]) {
        self.aborted.retain(|aborted| !range.contains(&aborted.last) || kept.contains(aborted));
    }

    /// Those without a marker and those aborted, for the checkpoint.
    pub fn parts(&self) -> (&[OpenTransaction], &[AbortedTransaction]) {
        (&self.open, &self.aborted)
    }

    /// From a checkpoint.
    pub fn from_parts(open: Vec<OpenTransaction>, aborted: Vec<AbortedTransaction>) -> Self {
        Self { open, aborted }
    }

    /// Nothing to be kept.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.aborted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stable(transactions: &Transactions, readable: u64) -> u64 {
        transactions.last_stable(Offset(readable)).0
    }

    fn end(transactions: &mut Transactions, producer: i64, marker: Marker, at: u64, readable: u64) {
        transactions.end(producer, marker, Offset(at), Offset(0), Offset(readable));
    }

    #[test]
    fn the_earliest_open_transaction_holds_the_stable_end() {
        let mut log = Transactions::default();
        assert_eq!(stable(&log, 10), 10);
        assert!(log.add(1, Offset(10), 0));
        assert!(log.add(2, Offset(12), 0));
        assert!(!log.add(1, Offset(14), 0));
        // What is open begins beyond what is readable.
        assert_eq!(stable(&log, 9), 9);
        assert_eq!(stable(&log, 16), 10);
        end(&mut log, 1, Marker::Commit, 16, 16);
        assert_eq!(stable(&log, 16), 10, "the marker is not readable yet");
        assert_eq!(stable(&log, 17), 12);
        end(&mut log, 2, Marker::Abort, 17, 17);
        assert_eq!(stable(&log, 18), 18);
    }

    #[test]
    fn an_aborted_transaction_is_told_to_those_whom_it_concerns() {
        let mut log = Transactions::default();
        for (producer, base) in [(1, 10), (2, 12)] {
            log.add(producer, Offset(base), 0);
        }
        end(&mut log, 2, Marker::Abort, 15, 15);
        end(&mut log, 1, Marker::Abort, 16, 16);
        let told = |from, until| log.aborted_between(Offset(from), Offset(until)).map(|aborted| aborted.producer_id).collect::<Vec<_>>();
        assert_eq!(told(0, 10), []);
        assert_eq!(told(0, 11), [1]);
        assert_eq!(told(0, 20), [2, 1]);
        assert_eq!(told(15, 16), [2, 1]);
        assert_eq!(told(16, 17), [1]);
        assert_eq!(told(17, 30), []);
    }

    #[test]
    fn a_marker_without_a_transaction_changes_nothing_and_old_aborts_are_forgotten() {
        let mut log = Transactions::default();
        end(&mut log, 1, Marker::Abort, 3, 3);
        assert!(log.is_empty());
        log.add(1, Offset(4), 0);
        end(&mut log, 1, Marker::Abort, 6, 6);
        log.add(1, Offset(7), 0);
        log.end(1, Marker::Abort, Offset(9), Offset(7), Offset(9));
        assert_eq!(log.parts().1.len(), 1);
        log.add(2, Offset(10), 0);
        assert_eq!(log.of(2).map(|open| open.first), Some(Offset(10)));
        assert_eq!(log.of(1), None);
    }
}
