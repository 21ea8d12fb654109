//! What is known of batches that filters have gone through: what each filter lets through of it, and which values some fields have. A
//! bounded memory; what was entered first goes first, one filter's outcome of one batch at a time.
//!
//! Whoever asks for a batch holds the part of the memory that it is in until the answer is known, so that one batch is looked into
//! once, however many ask for it at once. The parts spread this lock and nothing else: the bound is one for all of them, so that neither a part
//! that got many batches by chance, nor outcomes of old filters for the same batches, push out what came last.
//!
//! A batch of which the judgement takes longer than a turn has is remembered as begun, with what is known of its first records, and gone on
//! with in the next turn of those who ask for it.
//!
//! I1 Every outcome in a part has an entry in the order, or is about to get one, or about to go.
//! I2 The lock of the order is never held together with that of a part: who waits for a batch must not hold up those who are through.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use filter::Summary;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use record::{BatchError, BatchHeader, Selected, select, unpacked_bytes};
use smallvec::SmallVec;
use types::LogId;

use super::{FilterCounts, SharedFilter, UnpackRoom};

/// Parts of the memory, each with a lock of its own.
const PARTS: usize = 64;
/// Memory until somebody says.
const BYTES_MAX: usize = 16 << 20;
/// Memory of an outcome beside its summary and batch, with its share of the tables, about.
const ENTRY_BYTES: usize = 256;
/// Memory of a summary, at most, about.
const SUMMARY_BYTES: usize = 1024;

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

/// What is known of one filter and a batch.
struct Outcome {
    /// The filter's.
    id: u64,
    known: Known,
    /// What was seen on the way, when all of it was seen.
    summary: Option<Summary>,
}

enum Known {
    Verdict(Verdict),
    Begun(Box<Begun>),
}

/// A batch that is not judged to its end.
#[derive(Default)]
struct Begun {
    /// Which of the first records are wanted, a bit each.
    wanted: SmallVec<[u64; 8]>,
    /// How many these are.
    judged: usize,
    summary: Option<Summary>,
    /// It has had all of a turn.
    long: bool,
    /// Something was added since it was to be forgotten last.
    used: bool,
}

impl Begun {
    fn push(&mut self, wanted: bool) {
        if self.judged.is_multiple_of(64) {
            self.wanted.push(0);
        }
        if let Some(word) = self.wanted.last_mut() {
            *word |= u64::from(wanted) << (self.judged % 64);
        }
        self.judged += 1;
    }

    /// Goes on with judging records, those of all of a batch.
    fn judge(
        &mut self,
        batch: &Bytes,
        limit: usize,
        filter: &SharedFilter,
        unpack: &mut UnpackRoom,
    ) -> Result<Selected, BatchError> {
        let wanted = filter.filter.wanted();
        let (mut at, unpacked_before) = (0, unpacked_bytes());
        let selected = select(batch, limit, |record| {
            at += 1;
            if let Some(known) = self.get(at - 1) {
                return Some(known);
            }
            let verdict = unpack.judge(&filter.filter, record)?;
            if let (Some(made), Some(wanted)) = (&mut self.summary, wanted) {
                made.add(wanted, record);
            }
            self.push(verdict);
            Some(verdict)
        });
        unpack.take(unpacked_bytes() - unpacked_before);
        selected
    }

    /// Is record `at` wanted? `None`: it was not judged.
    fn get(&self, at: usize) -> Option<bool> {
        (at < self.judged).then(|| self.wanted[at / 64] >> (at % 64) & 1 == 1)
    }
}

/// No record is shorter, in bytes.
const RECORD_BYTES_LEAST: usize = 6;

/// Memory of a batch that is begun: a bit for each record that it may have, when it unpacks to `unpacked_max`, and a summary.
fn begun_bytes(header: &BatchHeader, unpacked_max: usize) -> usize {
    let records = usize::try_from(header.records_count).unwrap_or(0).min(unpacked_max / RECORD_BYTES_LEAST);
    // What grows by itself has up to twice the room that it needs.
    2 * (records / 8) + ENTRY_BYTES + size_of::<Begun>() + SUMMARY_BYTES
}

impl Outcome {
    fn memory_bytes(&self) -> usize {
        let part = match &self.known {
            Known::Verdict(Verdict::Part(bytes)) => bytes.len(),
            Known::Verdict(Verdict::All | Verdict::Nothing) | Known::Begun(_) => 0,
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
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            order: Mutex::default(),
            bytes_max: AtomicUsize::new(BYTES_MAX),
        }
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
        let mut spot = Spot { part: self.parts[part_of(&key)].lock(), key, place: None };
        let has_summary = match spot.look_up(filter, counts, unpack) {
            Before::Known(verdict) => return verdict,
            Before::Unknown { has_summary } => has_summary,
        };
        let has_whole_turn = unpack.is_whole();
        let limit = unpack.of(header.total_bytes())?;
        let wanted = filter.filter.wanted().filter(|_| !has_summary);
        let mut begun =
            spot.take_begun().unwrap_or_else(|| Begun { summary: wanted.map(Summary::new), ..Begun::default() });
        let selected = begun.judge(&bytes(), limit, filter, unpack);
        let begun_bytes = begun_bytes(header, limit);
        let verdict = match selected {
            Ok(Selected::All) => Verdict::All,
            Ok(Selected::Nothing) => Verdict::Nothing,
            Ok(Selected::Part(bytes)) => Verdict::Part(bytes),
            // There is memory for what is begun, or it would be begun again and again.
            Ok(Selected::Stopped) if begun_bytes <= self.bytes_max.load(Ordering::Relaxed) => {
                begun.used = true;
                begun.long |= has_whole_turn;
                unpack.use_up();
                if begun.long {
                    unpack.leave_long();
                }
                let was_begun =
                    spot.put(Outcome { id: filter.id, known: Known::Begun(Box::new(begun)), summary: None });
                if !was_begun {
                    self.enter(Entry { key, id: filter.id, bytes: begun_bytes });
                }
                return None;
            }
            Ok(Selected::Stopped) => {
                counts.unreadable.fetch_add(1, Ordering::Relaxed);
                begun.summary = None;
                Verdict::All
            }
            Err(error) => {
                counts.unreadable.fetch_add(1, Ordering::Relaxed);
                // What is begun goes with its entry.
                if !matches!(error, BatchError::TooLarge { .. }) {
                    return Some(Verdict::All);
                }
                // It would be unpacked again and again.
                begun.summary = None;
                Verdict::All
            }
        };
        counts.decoded.fetch_add(1, Ordering::Relaxed);
        let outcome = Outcome { id: filter.id, known: Known::Verdict(verdict.clone()), summary: begun.summary };
        let bytes = outcome.memory_bytes();
        // Where it was begun the outcome has an entry, with which it goes; what that counts too little has another one.
        let entered = if spot.put(outcome) { bytes.saturating_sub(begun_bytes) } else { bytes };
        if entered > 0 {
            self.enter(Entry { key, id: filter.id, bytes: entered });
        }
        Some(verdict)
    }

    /// Puts an outcome at the end of the order, and forgets those that were there first when there are too many. I2
    fn enter(&self, entry: Entry) {
        let gone: SmallVec<[Entry; 4]> = {
            let mut order = self.order.lock();
            order.push(entry);
            order.shrink(self.bytes_max.load(Ordering::Relaxed))
        };
        let used: SmallVec<[Entry; 4]> = gone.into_iter().filter(|entry| !self.forgets(entry)).collect();
        if !used.is_empty() {
            // Beyond the bound until the next one comes: as little as was begun and gone on with meanwhile.
            let mut order = self.order.lock();
            used.into_iter().for_each(|entry| order.push(entry));
        }
    }

    /// Forgets an outcome; not one that is begun and was gone on with since the last time: false.
    fn forgets(&self, entry: &Entry) -> bool {
        let mut part = self.parts[part_of(&entry.key)].lock();
        let Some(note) = part.get_mut(&entry.key) else { return true };
        let begun = note.iter_mut().find_map(|outcome| match &mut outcome.known {
            Known::Begun(begun) if outcome.id == entry.id => Some(begun),
            Known::Begun(_) | Known::Verdict(_) => None,
        });
        if begun.is_some_and(|begun| std::mem::take(&mut begun.used)) {
            return false;
        }
        note.retain(|outcome| outcome.id != entry.id);
        if note.is_empty() {
            part.remove(&entry.key);
        }
        true
    }
}

/// The note of a batch, under the lock of its part.
struct Spot<'a> {
    part: MutexGuard<'a, HashMap<Key, Note>>,
    key: Key,
    /// Where the outcome of the filter is, if it has one.
    place: Option<usize>,
}

/// What is known of a batch before it is looked into.
enum Before {
    /// What the filter lets through; `None`: that takes more than this turn has left.
    Known(Option<Verdict>),
    /// Nothing, or some of its first records are judged. There is a summary that is about what the filter wants.
    Unknown { has_summary: bool },
}

impl Spot<'_> {
    /// Looks what is known, and where.
    fn look_up(&mut self, filter: &SharedFilter, counts: &FilterCounts, unpack: &mut UnpackRoom) -> Before {
        let known = self.part.get(&self.key).map_or(&[][..], SmallVec::as_slice);
        self.place = known.iter().position(|outcome| outcome.id == filter.id);
        match self.place.map(|place| &known[place].known) {
            Some(Known::Verdict(verdict)) => {
                counts.remembered.fetch_add(1, Ordering::Relaxed);
                return Before::Known(Some(verdict.clone()));
            }
            Some(Known::Begun(begun)) if begun.long && !unpack.goes_on() => {
                unpack.leave_long();
                return Before::Known(None);
            }
            Some(Known::Begun(_)) | None => {}
        }
        let wanted = filter.filter.wanted();
        let mut summaries = known.iter().filter_map(|outcome| outcome.summary.as_ref());
        let summary = wanted.and_then(|wanted| summaries.find(|summary| summary.is_about(wanted)));
        if wanted.zip(summary).is_some_and(|(wanted, summary)| !summary.may_have(wanted)) {
            counts.skipped.fetch_add(1, Ordering::Relaxed);
            return Before::Known(Some(Verdict::Nothing));
        }
        Before::Unknown { has_summary: summary.is_some() }
    }

    /// What is begun, to be gone on with and [put](Self::put) back.
    fn take_begun(&mut self) -> Option<Begun> {
        match &mut self.part.get_mut(&self.key)?.get_mut(self.place?)?.known {
            Known::Begun(begun) => Some(std::mem::take(&mut **begun)),
            Known::Verdict(_) => None,
        }
    }

    /// Enters the outcome of the filter. True: in the place of one that was begun.
    fn put(mut self, outcome: Outcome) -> bool {
        let note = self.part.entry(self.key).or_default();
        match self.place.and_then(|place| note.get_mut(place)) {
            Some(begun) => {
                *begun = outcome;
                true
            }
            None => {
                note.push(outcome);
                false
            }
        }
    }
}

impl Order {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
    }

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
