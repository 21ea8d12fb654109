//! Idempotent producers of one log: which sequence numbers have been seen. Pure; the writer asks before it
//! places a batch, recovery replays into it, the checkpoint keeps it.
//!
//! Rules (Apache Kafka's `ProducerStateManager`): the last five batches of a producer are remembered, a
//! batch equal to one of them is a duplicate and answered with its offset; a new epoch starts at
//! sequence 0; a producer that is not known may start anywhere, because its state may have been
//! removed with its records.

use hashbrown::HashMap;
use record::BatchHeader;
use types::{Offset, Timestamp};

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
}

/// All producers of one log.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    by_id: HashMap<i64, Producer>,
}

impl Producers {
    /// Judges a batch; changes nothing.
    pub fn judge(&self, header: &BatchHeader) -> Verdict {
        let Some(known) = self.by_id.get(&header.producer_id) else {
            return Verdict::Append;
        };
        if header.producer_epoch < known.epoch {
            return Verdict::Fenced;
        }
        if header.producer_epoch > known.epoch {
            return if header.base_sequence == 0 { Verdict::Append } else { Verdict::OutOfOrder };
        }
        let same = |seen: &&Seen| seen.first == header.base_sequence && seen.last == header.last_sequence();
        if let Some(seen) = known.batches().iter().find(same) {
            return Verdict::Duplicate { base: seen.base, last_delta: seen.last_delta };
        }
        match known.batches().last() {
            Some(last) if header.base_sequence != following(last.last) => Verdict::OutOfOrder,
            _ => Verdict::Append,
        }
    }

    /// Remembers a batch that was placed at `base`.
    pub fn remember(&mut self, header: &BatchHeader, base: Offset, time: Timestamp) {
        let producer = self.by_id.entry(header.producer_id).or_default();
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

    /// Forgets producers that have not written since `before`; returns how many are left.
    pub fn expire(&mut self, before: Timestamp) -> usize {
        self.by_id.retain(|_, producer| producer.time >= before);
        self.by_id.len()
    }

    /// All of them, for the checkpoint.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (i64, &Producer)> {
        self.by_id.iter().map(|(id, producer)| (*id, producer))
    }

    /// Puts one back from a checkpoint.
    pub fn restore(&mut self, id: i64, producer: Producer) {
        self.by_id.insert(id, producer);
    }
}

fn following(sequence: i32) -> i32 {
    sequence.checked_add(1).unwrap_or(0)
}

#[cfg(test)]
mod tests;
