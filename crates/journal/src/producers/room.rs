//! Memory of the producers of all logs of a journal. Kafka's clients make a new producer id with each start, and a log remembers those that wrote to it
//! for a day: their number is bounded by nobody else.
//!
//! At the bound a log takes a new producer in place of one that has been silent for [`SILENT_MS`], which is longer than a client tries a batch again, so that
//! no duplicate can come of it. A few producers each log takes in any case: what is written elsewhere does not keep anybody from a log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What the first producer of a log takes beside what each of them does, about …
const LOG_BYTES: usize = 600;
/// … and each: in a table that may be half empty, and in a list.
const PRODUCER_BYTES: usize = 240;
/// Where memory is short a producer may be forgotten that has not written for this long, in ms: clients send a batch again for two minutes, or five.
pub(crate) const SILENT_MS: i64 = 300_000;
/// Producers that a log takes in any case.
pub(super) const ALWAYS: usize = 4;

/// The bound, and what is taken of it.
#[derive(Debug)]
pub(crate) struct ProducerRoom {
    bytes: AtomicUsize,
    bytes_max: usize,
    refused: AtomicU64,
}

impl ProducerRoom {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), bytes_max, refused: AtomicU64::new(0) }
    }

    /// Bytes of memory that producers take, about.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How often a batch of a new producer was refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes() + PRODUCER_BYTES > self.bytes_max
    }

    /// Is so much taken that silent producers go early?
    pub fn is_short(&self) -> bool {
        self.bytes() > self.bytes_max / 4 * 3
    }

    pub(super) fn note_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the producers of a log take of it, until they go.
#[derive(Debug, Default)]
pub(super) struct Counted {
    room: Option<Arc<ProducerRoom>>,
    bytes: usize,
}

impl Counted {
    pub fn new(room: Arc<ProducerRoom>, producers: usize) -> Self {
        let mut counted = Self { room: Some(room), bytes: 0 };
        counted.set(producers);
        counted
    }

    pub fn room(&self) -> Option<&ProducerRoom> {
        self.room.as_deref()
    }

    /// So many producers there are.
    pub fn set(&mut self, producers: usize) {
        let Some(room) = &self.room else { return };
        let now = LOG_BYTES + producers * PRODUCER_BYTES;
        room.bytes.fetch_add(now, Ordering::Relaxed);
        room.bytes.fetch_sub(std::mem::replace(&mut self.bytes, now), Ordering::Relaxed);
    }
}

/// A copy is no log's.
impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}
