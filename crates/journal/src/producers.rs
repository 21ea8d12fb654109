//! Idempotent producers of one log: which sequence numbers have been seen. Pure; the writer asks before it
//! places a batch, recovery replays into it, the checkpoint keeps it.
//!
//! Rules (Apache Kafka's `ProducerStateManager`): the last five batches of a producer are remembered, a
//! batch equal to one of them is a duplicate and answered with its offset; a new epoch starts at
//! sequence 0; a producer that is not known may start anywhere, because its state may have been
//! removed with its records.
//!
//! A marker that ends a transaction counts as written by its producer: with a newer epoch it fences the older one, and the next
//! batch begins at sequence 0.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use record::{BatchHeader, Marker};
use types::{Offset, Timestamp};

use crate::transactions::{AbortedTransaction, Transactions};
use room::{ALWAYS, Counted};
pub(crate) use room::{ProducerRoom, SILENT_MS};

mod room;

/// Producers that are looked at for one that is silent, for one that is new.
const LOOKED_AT: usize = 32;

/// Batches remembered per producer.
pub const REMEMBERED: usize = 5;

/// One remembered batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Sequence of the first record.
    pub first: i32,
    /// Sequence of the last record.
    pub last: i32,
    /// Offset of the first record.
    pub base: Offset,
    /// Offsets after the first.
    pub last_delta: u32,
}

/// What is known of one producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Producer {
    /// Its epoch.
    pub epoch: i16,
    /// Number of batches in `seen`.
    pub count: u8,
    /// The last batches, oldest first.
    pub seen: [Seen; REMEMBERED],
    /// When it last wrote; ms since 1970.
    pub time: Timestamp,
}

impl Producer {
    /// The remembered batches, oldest first.
    pub fn batches(&self) -> &[Seen] {
        &self.seen[..usize::from(self.count)]
    }

    fn push(&mut self, seen: Seen) {
        if usize::from(self.count) == REMEMBERED {
            self.seen.copy_within(1.., 0);
            self.seen[REMEMBERED - 1] = seen;
        } else {
            self.seen[usize::from(self.count)] = seen;
            self.count += 1;
        }
    }
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Append it.
    Append,
    /// It is there already.
    Duplicate {
        /// At this offset.
        base: Offset,
        /// With this many offsets after the first.
        last_delta: u32,
    },
    /// Records are missing before it.
    OutOfOrder,
    /// An older epoch of this producer.
    Fenced,
    /// Records outside of the transaction that the producer has open.
    NotInTransaction,
}

/// All producers of one log.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    by_id: HashMap<i64, Producer>,
    /// Each of them once: so they can be looked through in pieces.
    ids: Vec<i64>,
    transactions: Transactions,
    counted: Counted,
    /// Place from which on silent ones are looked for, for one that is new.
    hand: usize,
}

impl Producers {
    /// None yet, of a log of the journal that has this room.
    pub fn counted(room: Arc<ProducerRoom>) -> Self {
        Self { counted: Counted::new(room, 0), ..Self::default() }
    }

    /// They are a log's of the journal that has this room, whatever they take of it.
    pub fn count_in(&mut self, room: Arc<ProducerRoom>) {
        self.counted = Counted::new(room, self.by_id.len());
    }

    /// Is there room for this producer, if need be in place of others that have been silent?
    pub fn admit(&mut self, id: i64, now: Timestamp) -> bool {
        let Some(room) = self.counted.room() else { return true };
        let known = self.by_id.len();
        if known < ALWAYS || !room.is_full() || self.by_id.contains_key(&id) {
            return true;
        }
        self.hand = self.expire(now.saturating_sub(SILENT_MS), self.hand, LOOKED_AT).unwrap_or(0);
        let admitted = self.by_id.len() < known;
        if let Some(room) = self.counted.room().filter(|_| !admitted) {
            room.note_refusal();
        }
        admitted
    }

    /// Judges a batch; changes nothing.
    pub fn judge(&self, header: &BatchHeader) -> Verdict {
        let Some(known) = self.by_id.get(&header.producer_id) else {
            return Verdict::Append;
        };
        if header.producer_epoch < known.epoch {
            return Verdict::Fenced;
        }
        if header.control() {
            return Verdict::Append;
        }
        if header.producer_epoch > known.epoch {
            return if header.base_sequence == 0 { Verdict::Append } else { Verdict::OutOfOrder };
        }
        let same = |seen: &&Seen| seen.first == header.base_sequence && seen.last == header.last_sequence();
        if let Some(seen) = known.batches().iter().find(same) {
            return Verdict::Duplicate { base: seen.base, last_delta: seen.last_delta };
        }
        let expected = known.batches().last().map_or(0, |last| following(last.last));
        if header.base_sequence != expected {
            return Verdict::OutOfOrder;
        }
        if !header.transactional() && self.transactions.of(header.producer_id).is_some() {
            return Verdict::NotInTransaction;
        }
        Verdict::Append
    }

    fn enter(&mut self, id: i64) -> &mut Producer {
        match self.by_id.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                self.ids.push(id);
                self.counted.set(self.ids.len());
                new.insert(Producer::default())
            }
        }
    }

    /// Remembers a batch that was placed at `base`.
    pub fn remember(&mut self, header: &BatchHeader, base: Offset, time: Timestamp) {
        if header.transactional() {
            self.transactions.add(header.producer_id, base, time);
        }
        let producer = self.enter(header.producer_id);
        if producer.epoch != header.producer_epoch {
            *producer = Producer { epoch: header.producer_epoch, ..Producer::default() };
        }
        producer.time = time;
        producer.push(Seen {
            first: header.base_sequence,
            last: header.last_sequence(),
            base,
            last_delta: header.last_offset_delta as u32,
        });
    }

    /// Enters a marker that was placed at `at`; `start` and `readable` are the log's.
    pub fn end_transaction(
        &mut self,
        header: &BatchHeader,
        marker: Marker,
        at: Offset,
        time: Timestamp,
        (start, readable): (Offset, Offset),
    ) {
        // Transactions that wrote nothing here leave markers, too. Without room they leave no more.
        if self.admit(header.producer_id, time) {
            let producer = self.enter(header.producer_id);
            if producer.epoch != header.producer_epoch {
                *producer = Producer { epoch: header.producer_epoch, ..Producer::default() };
            }
            producer.time = time;
        }
        self.transactions.end(header.producer_id, marker, at, start, readable);
    }

    /// Looks at most at so many producers, from place `at` on, and forgets those that have not written since `before` and have no
    /// transaction open. Returns the place from which to go on; `None` when all were looked at.
    pub fn expire(&mut self, before: Timestamp, mut at: usize, most: usize) -> Option<usize> {
        for _ in 0..most {
            let Some(id) = self.ids.get(at).copied() else { break };
            let silent = self.by_id.get(&id).is_none_or(|producer| producer.time < before);
            if silent && self.transactions.of(id).is_none() {
                self.by_id.remove(&id);
                self.ids.swap_remove(at);
            } else {
                at += 1;
            }
        }
        self.counted.set(self.ids.len());
        if at < self.ids.len() {
            return Some(at);
        }
        if self.ids.len() < self.ids.capacity() / 4 {
            self.ids.shrink_to(self.ids.len() * 2);
            self.by_id.shrink_to(self.ids.len() * 2);
        }
        None
    }

    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.transactions.is_empty()
    }

    /// Their transactions.
    pub fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// Of the transactions that were aborted within `range` only these have their marker still.
    pub fn keep_aborted(&mut self, range: Range<Offset>, aborted: &[AbortedTransaction]) {
        self.transactions.keep_aborted(range, aborted);
    }

    /// Puts transactions back from a checkpoint.
    pub fn restore_transactions(&mut self, transactions: Transactions) {
        self.transactions = transactions;
    }

    /// All of them, for the checkpoint.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (i64, &Producer)> {
        self.by_id.iter().map(|(id, producer)| (*id, producer))
    }

    /// Puts one back from a checkpoint.
    pub fn restore(&mut self, id: i64, producer: Producer) {
        *self.enter(id) = producer;
    }
}

fn following(sequence: i32) -> i32 {
    sequence.checked_add(1).unwrap_or(0)
}

#[cfg(test)]
mod tests;
