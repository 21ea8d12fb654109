//! What is known of batches that filters have gone through: what each filter lets through of it, and which values some fields have. A
//! bounded memory; what was entered first goes first.
//!
//! Whoever asks for a batch holds the part of the memory that it is in until the answer is known, so that one batch is looked into
//! once, however many ask for it at once. The batches of a log are in all parts, so that few logs may have all of the memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use record::{BatchHeader, Selected, select};
use filter::Summary;
use smallvec::SmallVec;
use types::LogId;

use super::{FilterCounts, SharedFilter};

/// Parts of the memory, each with a lock of its own.
const PARTS: usize = 64;
/// Memory until somebody says.
const BYTES_MAX: usize = 16 << 20;
/// Memory of a note beside its summaries and batches, about.
const NOTE_BYTES: usize = 256;

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

#[derive(Default)]
struct Note {
    summaries: SmallVec<[Summary; 1]>,
    /// By the id of the filter.
    verdicts: SmallVec<[(u64, Verdict); 2]>,
}

impl Note {
    fn memory_bytes(&self) -> usize {
        let parts = self.verdicts.iter().map(|(_, verdict)| match verdict {
            Verdict::Part(bytes) => bytes.len(),
            Verdict::All | Verdict::Nothing => 0,
        });
        NOTE_BYTES + self.summaries.iter().map(Summary::memory_bytes).sum::<usize>() + parts.sum::<usize>()
    }
}

#[derive(Default)]
struct Part {
    notes: HashMap<Key, Note>,
    order: VecDeque<Key>,
    bytes: usize,
}

/// The memory.
pub(super) struct Notes {
    parts: [Mutex<Part>; PARTS],
    bytes_max: AtomicUsize,
}

impl Default for Notes {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::default()), bytes_max: AtomicUsize::new(BYTES_MAX) }
    }
}

impl Notes {
    pub fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.lock().bytes).sum()
    }

    /// What `filter` lets through of a batch, which `bytes` fetches if it has to be looked into.
    pub fn verdict(
        &self,
        log: LogId,
        header: &BatchHeader,
        filter: &SharedFilter,
        counts: &FilterCounts,
        bytes: impl FnOnce() -> Bytes,
    ) -> Verdict {
        let key = (log, header.base_offset, header.crc);
        let mut part = self.parts[part_of(&key)].lock();
        let known = part.notes.get(&key);
        if let Some((_, verdict)) = known.and_then(|note| note.verdicts.iter().find(|(id, _)| *id == filter.id)) {
            counts.remembered.fetch_add(1, Ordering::Relaxed);
            return verdict.clone();
        }
        let wanted = filter.filter.wanted();
        let summary = wanted.and_then(|wanted| known?.summaries.iter().find(|summary| summary.is_about(wanted)));
        if wanted.zip(summary).is_some_and(|(wanted, summary)| !summary.may_have(wanted)) {
            counts.skipped.fetch_add(1, Ordering::Relaxed);
            return Verdict::Nothing;
        }
        let mut made = wanted.filter(|_| summary.is_none()).map(Summary::new);
        let selected = select(&bytes(), |record| {
            if let (Some(made), Some(wanted)) = (&mut made, wanted) {
                made.add(wanted, record);
            }
            filter.filter.matches(record)
        });
        let verdict = match selected {
            Ok(Selected::All) => Verdict::All,
            Ok(Selected::Nothing) => Verdict::Nothing,
            Ok(Selected::Part(bytes)) => Verdict::Part(bytes),
            Err(_) => {
                counts.unreadable.fetch_add(1, Ordering::Relaxed);
                return Verdict::All;
            }
        };
        counts.decoded.fetch_add(1, Ordering::Relaxed);
        part.enter(key, made, (filter.id, verdict.clone()));
        part.shrink(self.bytes_max.load(Ordering::Relaxed) / PARTS);
        verdict
    }
}

impl Part {
    fn enter(&mut self, key: Key, summary: Option<Summary>, verdict: (u64, Verdict)) {
        let order = &mut self.order;
        let note = self.notes.entry(key).or_insert_with(|| {
            order.push_back(key);
            Note::default()
        });
        let before = if note.verdicts.is_empty() { 0 } else { note.memory_bytes() };
        note.summaries.extend(summary);
        note.verdicts.push(verdict);
        self.bytes += note.memory_bytes() - before;
    }

    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(oldest) = self.order.pop_front() else { return };
            if let Some(note) = self.notes.remove(&oldest) {
                self.bytes -= note.memory_bytes();
            }
        }
    }
}
