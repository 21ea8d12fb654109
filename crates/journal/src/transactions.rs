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

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use record::Marker;
use types::{Offset, Timestamp};

use crate::aborted::AbortedList;

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

/// All transactions of one log that matter still. However many there are, entering a batch or a marker and asking for the last
/// stable offset look at few of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transactions {
    /// Without a marker, by first offset.
    open: BTreeMap<Offset, OpenTransaction>,
    /// Where those are, by producer.
    of_producer: HashMap<i64, Offset>,
    /// With a marker that readers may not see yet, by marker.
    ending: VecDeque<EndingTransaction>,
    aborted: AbortedList,
}

/// A transaction whose marker is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndingTransaction {
    marker: Offset,
    open: OpenTransaction,
}

impl Transactions {
    /// Enters a batch of records of a transaction. True when the transaction begins with it.
    pub fn add(&mut self, producer_id: i64, base: Offset, now: Timestamp) -> bool {
        self.enter(OpenTransaction { producer_id, first: base, since: now, marker: None })
    }

    /// Enters one without a marker, unless its producer has one.
    fn enter(&mut self, open: OpenTransaction) -> bool {
        let Entry::Vacant(place) = self.of_producer.entry(open.producer_id) else { return false };
        place.insert(open.first);
        self.open.insert(open.first, open);
        true
    }

    /// Enters a marker at `at`. `start` and `readable` are the log's, for what can be forgotten.
    pub fn end(&mut self, producer_id: i64, marker: Marker, at: Offset, start: Offset, readable: Offset) {
        while self.ending.front().is_some_and(|ending| ending.marker < readable) {
            self.ending.pop_front();
        }
        self.aborted.forget_below(start);
        let Some(open) = self.of_producer.remove(&producer_id).and_then(|first| self.open.remove(&first)) else {
            return;
        };
        self.ending.push_back(EndingTransaction { marker: at, open: OpenTransaction { marker: Some(at), ..open } });
        if marker == Marker::Abort {
            self.aborted.push(AbortedTransaction { producer_id, first: open.first, last: at });
        }
    }

    /// The transaction of a producer that has no marker yet.
    pub fn of(&self, producer_id: i64) -> Option<&OpenTransaction> {
        self.of_producer.get(&producer_id).and_then(|first| self.open.get(first))
    }

    /// See T1.
    pub fn last_stable(&self, readable: Offset) -> Offset {
        let unseen = self.ending.partition_point(|ending| ending.marker < readable);
        let ending = self.ending.range(unseen..).map(|ending| ending.open.first).min();
        let open = self.open.keys().next().copied();
        open.into_iter().chain(ending).fold(readable, Offset::min)
    }

    /// Aborted transactions with records in `from..until`, by last offset. Looks at few others.
    pub fn aborted_between(&self, from: Offset, until: Offset) -> impl Iterator<Item = &AbortedTransaction> {
        self.aborted.between(from, until)
    }

    /// Of those aborted within `range` only these have their marker still (T4).
    pub fn keep_aborted(&mut self, range: Range<Offset>, kept: &[AbortedTransaction]) {
        self.aborted.keep(range, kept);
    }

    /// Those that readers may not see the end of, for the checkpoint.
    pub fn open(&self) -> Vec<OpenTransaction> {
        self.ending.iter().map(|ending| ending.open).chain(self.open.values().copied()).collect()
    }

    /// Those that were aborted, for the checkpoint.
    pub fn aborted(&self) -> &[AbortedTransaction] {
        self.aborted.as_slice()
    }

    /// From a checkpoint.
    pub fn from_parts(open: Vec<OpenTransaction>, aborted: Vec<AbortedTransaction>) -> Self {
        let mut restored = Self { aborted: aborted.into(), ..Self::default() };
        for open in open {
            match open.marker {
                Some(marker) => restored.ending.push_back(EndingTransaction { marker, open }),
                None => drop(restored.enter(open)),
            }
        }
        restored.ending.make_contiguous().sort_by_key(|ending| ending.marker);
        restored
    }

    /// Nothing to be kept.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.ending.is_empty() && self.aborted().is_empty()
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
        let told = |from, until| {
            log.aborted_between(Offset(from), Offset(until)).map(|aborted| aborted.producer_id).collect::<Vec<_>>()
        };
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
        assert_eq!(log.aborted().len(), 1);
        log.add(2, Offset(10), 0);
        assert_eq!(log.of(2).map(|open| open.first), Some(Offset(10)));
        assert_eq!(log.of(1), None);
    }

    #[test]
    fn a_checkpoint_gives_back_what_was_open_and_what_was_ending() {
        let mut log = Transactions::default();
        for producer in 0..6 {
            log.add(producer, Offset(10 + producer as u64), 0);
        }
        end(&mut log, 4, Marker::Commit, 20, 15);
        end(&mut log, 1, Marker::Abort, 21, 15);
        let mut open = log.open();
        open.reverse();
        let mut again = Transactions::from_parts(open, log.aborted().to_vec());
        assert_eq!(again, log);
        for (producer, at) in [(0, 22), (2, 23), (3, 24), (5, 25)] {
            end(&mut again, producer, Marker::Commit, at, 15);
        }
        let stables: Vec<u64> = (19..=26).map(|readable| stable(&again, readable)).collect();
        assert_eq!(stables, [10, 10, 10, 10, 12, 13, 15, 26]);
    }

    /// The same by looking at all of them.
    #[derive(Default)]
    struct Plain(Vec<OpenTransaction>);

    impl Plain {
        fn last_stable(&self, readable: Offset) -> Offset {
            let holds = |open: &&OpenTransaction| open.marker.is_none_or(|marker| marker >= readable);
            self.0.iter().filter(holds).map(|open| open.first).fold(readable, Offset::min)
        }
    }

    #[test]
    fn the_stable_end_is_what_a_look_at_all_transactions_finds() {
        let (mut log, mut plain, mut random) = (Transactions::default(), Plain::default(), 1u64);
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut readable = 0;
        for at in 0..5000u64 {
            let producer = next(40) as i64;
            let open = plain.0.iter_mut().find(|open| open.producer_id == producer && open.marker.is_none());
            match (next(3), open) {
                (0, open) => {
                    if let Some(open) = open {
                        open.marker = Some(Offset(at));
                    }
                    end(&mut log, producer, if next(2) == 0 { Marker::Abort } else { Marker::Commit }, at, readable);
                }
                (_, None) => {
                    plain.0.push(OpenTransaction { producer_id: producer, first: Offset(at), since: 0, marker: None });
                    assert!(log.add(producer, Offset(at), 0));
                }
                (_, Some(_)) => assert!(!log.add(producer, Offset(at), 0)),
            }
            readable += next(at + 2 - readable);
            assert_eq!(
                log.last_stable(Offset(readable)),
                plain.last_stable(Offset(readable)),
                "at {at}, readable to {readable}"
            );
        }
    }

    #[test]
    fn thousands_of_transactions_at_once_cost_no_more_than_a_few() {
        const TRANSACTIONS: i64 = 100_000;
        let mut log = Transactions::default();
        let began = std::time::Instant::now();
        for producer in 0..TRANSACTIONS {
            log.add(producer, Offset(producer as u64), 0);
            assert_eq!(stable(&log, producer as u64 + 1), 0);
        }
        // The last one first: each look at all of them would be one of a hundred thousand.
        for (at, producer) in (0..TRANSACTIONS).rev().enumerate() {
            let at = (TRANSACTIONS as usize + at) as u64;
            end(&mut log, producer, Marker::Abort, at, at);
            assert_eq!(log.of(producer), None);
        }
        assert_eq!(
            (stable(&log, 2 * TRANSACTIONS as u64), log.aborted().len()),
            (2 * TRANSACTIONS as u64, TRANSACTIONS as usize)
        );
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
    }
}
