//! What is known of batches that filters have gone through: what each filter lets through of it, and which values some fields have. A
//! bounded memory; what was entered first goes first, one filter's outcome of one batch at a time.
//!
//! Whoever asks for a batch holds the part of the memory that it is in until the answer is known, so that one batch is looked into
//! once, however many ask for it at once. The parts spread this lock and nothing else: the bound is one for all of them, so that neither a part
//! that got many batches by chance, nor outcomes of old filters for the same batches, push out what came last.
//!
//! I1 Every outcome in a part has an entry in the order, or is about to get one, or about to go.
//! I2 The lock of the order is never held together with that of a part: who waits for a batch must not hold up those who are through.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use record::{BatchError, BatchHeader, Selected, select, unpacked_bytes};
use filter::Summary;
use smallvec::SmallVec;
use types::LogId;

use super::{FilterCounts, SharedFilter, UnpackRoom};

/// Parts of the memory, each with a lock of its own.
const PARTS: usize = 64;
/// Memory until somebody says.
const BYTES_MAX: usize = 16 << 20;
/// Memory of an outcome beside its summary and batch, with its share of the tables, about.
const ENTRY_BYTES: usize = 256;

/// What a filter lets through of a batch.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// The batch.
    All,
    /// Nothing.
    Nothing,
    /// Another one in its place.
    Part(Bytes),
}

/// A batch: its log and base offset, and its checksum, because compaction puts others in the place of batches.
type Key = (LogId, i64, u32);

/// The number of the part that a batch is in: the upper bits of a product with 2^64 divided by the golden ratio spread any numbers.
fn part_of(key: &Key) -> usize {
    let mixed = (key.0.0 ^ key.1 as u64 ^ u64::from(key.2)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as usize % PARTS
}

/// What one filter lets through of a batch.
struct Outcome {
    /// The filter's.
    id: u64,
    verdict: Verdict,
    /// What was seen on the way.
    summary: Option<Summary>,
}

impl Outcome {
    fn memory_bytes(&self) -> usize {
        let part = match &self.verdict {
            Verdict::Part(bytes) => bytes.len(),
            Verdict::All | Verdict::Nothing => 0,
        };
        ENTRY_BYTES + part + self.summary.as_ref().map_or(0, Summary::memory_bytes)
    }
}

/// What is known of a batch.
type Note = SmallVec<[Outcome; 1]>;

/// An outcome in the order in which they were entered.
struct Entry {
    key: Key,
    id: u64,
    bytes: usize,
}

#[derive(Default)]
struct Order {
    entries: VecDeque<Entry>,
    bytes: usize,
}

/// The memory.
pub(super) struct Notes {
    parts: [Mutex<HashMap<Key, Note>>; PARTS],
    order: Mutex<Order>,
    bytes_max: AtomicUsize,
}

impl Default for Notes {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::default()), order: Mutex::default(), bytes_max: AtomicUsize::new(BYTES_MAX) }
    }
}

impl Notes {
    pub fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> usize {
        self.order.lock().bytes
    }

    /// What `filter` lets through of a batch, which `bytes` fetches if it has to be looked into. `None`: there is no room for that in this turn.
    pub fn verdict(
        &self,
        log: LogId,
        header: &BatchHeader,
        filter: &SharedFilter,
        (counts, unpack): (&FilterCounts, &mut UnpackRoom),
        bytes: impl FnOnce() -> Bytes,
    ) -> Option<Verdict> {
        let key = (log, header.base_offset, header.crc);
        let mut part = self.parts[part_of(&key)].lock();
        let known = part.get(&key).map_or(&[][..], SmallVec::as_slice);
        if let Some(outcome) = known.iter().find(|outcome| outcome.id == filter.id) {
            counts.remembered.fetch_add(1, Ordering::Relaxed);
            return Some(outcome.verdict.clone());
        }
        let wanted = filter.filter.wanted();
        let mut summaries = known.iter().filter_map(|outcome| outcome.summary.as_ref());
        let summary = wanted.and_then(|wanted| summaries.find(|summary| summary.is_about(wanted)));
        if wanted.zip(summary).is_some_and(|(wanted, summary)| !summary.may_have(wanted)) {
            counts.skipped.fetch_add(1, Ordering::Relaxed);
            return Some(Verdict::Nothing);
        }
        let limit = unpack.of(header.total_bytes())?;
        let mut made = wanted.filter(|_| summary.is_none()).map(Summary::new);
        let before = unpacked_bytes();
        let selected = select(&bytes(), limit, |record| {
            if let (Some(made), Some(wanted)) = (&mut made, wanted) {
                made.add(wanted, record);
            }
            filter.filter.matches(record)
        });
        unpack.take(unpacked_bytes() - before);
        let verdict = match selected {
            Ok(Selected::All) => Verdict::All,
            Ok(Selected::Nothing) => Verdict::Nothing,
            Ok(Selected::Part(bytes)) => Verdict::Part(bytes),
            Err(error) => {
                counts.unreadable.fetch_add(1, Ordering::Relaxed);
                if !matches!(error, BatchError::TooLarge { .. }) {
                    return Some(Verdict::All);
                }
                // It would be unpacked again and again.
                made = None;
                Verdict::All
            }
        };
        counts.decoded.fetch_add(1, Ordering::Relaxed);
        let outcome = Outcome { id: filter.id, verdict: verdict.clone(), summary: made };
        let entry = Entry { key, id: filter.id, bytes: outcome.memory_bytes() };
        part.entry(key).or_default().push(outcome);
        drop(part);
        self.enter(entry);
        Some(verdict)
    }

    /// Puts an outcome at the end of the order, and forgets those that were there first when there are too many. I2
    fn enter(&self, entry: Entry) {
        let gone: SmallVec<[Entry; 4]> = {
            let mut order = self.order.lock();
            order.bytes += entry.bytes;
            order.entries.push_back(entry);
            order.shrink(self.bytes_max.load(Ordering::Relaxed))
        };
        gone.iter().for_each(|entry| self.forget(entry));
    }

    fn forget(&self, entry: &Entry) {
        let mut part = self.parts[part_of(&entry.key)].lock();
        let Some(note) = part.get_mut(&entry.key) else { return };
        note.retain(|outcome| outcome.id != entry.id);
        if note.is_empty() {
            part.remove(&entry.key);
        }
    }
}

impl Order {
    /// Takes out what is too much.
    fn shrink(&mut self, bytes_max: usize) -> SmallVec<[Entry; 4]> {
        let mut gone = SmallVec::new();
        while self.bytes > bytes_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes;
            gone.push(oldest);
        }
        gone
    }
}
