//! Filters of groups: which group has one, and what of a batch it lets through. What is found out about a batch is kept for a while
//! (`notes.rs`), so that groups with one filter look into it once, and groups with others may not have to.
//!
//! Read by network threads and cold reads; changed by the controller. While no group has a filter nobody asks further than
//! [`Filters::any`], one load.

mod notes;
mod room;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use filter::{Filter, FilterError};
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use record::{BatchHeader, SlicedBatch, cut, sliced_batches, visit_keys, whole};
use smallvec::SmallVec;
use types::{LogId, Offset};

use notes::{Notes, Verdict};
pub use room::UnpackRoom;

/// An expression that is in force, once however many groups have it.
#[derive(Debug)]
pub struct SharedFilter {
    /// Of this run of the broker.
    id: u64,
    filter: Filter,
}

/// The filter of a group.
#[derive(Clone, Debug)]
pub struct GroupFilter {
    /// Whose.
    pub group: String,
    /// What its members get.
    pub filter: Arc<SharedFilter>,
    /// Client ids that are the group's alone, as its operator says.
    pub client_ids: Vec<String>,
}

/// What of the bytes that were read a filter lets through.
#[derive(Debug, Default)]
pub struct Let {
    /// Whole batches, in order.
    pub slices: SmallVec<[Bytes; 4]>,
    /// Their length.
    pub bytes: usize,
    /// The offset after the last of them; 0 when there is none.
    pub next: Offset,
    /// Where the first batch begins that passes and for which there was no room; nothing behind that was looked at.
    pub full_at: Option<Offset>,
}

/// How much may pass at once.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// In bytes.
    pub bytes: usize,
    /// What passes first may be larger: a reader has to get on.
    pub first_fits: bool,
}

impl Room {
    /// Whatever there is.
    pub const ANY: Self = Self { bytes: usize::MAX, first_fits: true };
}

/// What of one batch a filter lets through.
#[derive(Debug)]
pub enum Passed {
    /// All of it.
    All,
    /// Nothing.
    Nothing,
    /// Some records.
    Part {
        /// In place of the batch.
        batch: Bytes,
        /// First and last offsets of the records, of neighbours together.
        runs: Vec<(u64, u64)>,
    },
}

/// What filters have done since the start.
#[derive(Debug, Default)]
pub struct FilterCounts {
    /// Batches that were looked into.
    pub decoded: AtomicU64,
    /// Batches that a summary told to have nothing wanted.
    pub skipped: AtomicU64,
    /// Batches of which the outcome was known.
    pub remembered: AtomicU64,
    /// Batches that cannot be looked into, and were sent as they are.
    pub unreadable: AtomicU64,
    /// Bytes of batches that filters have gone through, and let through.
    pub bytes_in: AtomicU64,
    /// See `bytes_in`.
    pub bytes_out: AtomicU64,
    /// Connections whose fetches could be those of a member of a group with a filter, and were not proven to be: they get everything.
    pub unproven: AtomicU64,
}

/// Texts of filters that nobody uses any more may be kept, as many as are in use and so many beside.
const UNUSED_MAX: usize = 16;

/// Filters that groups share.
#[derive(Default)]
struct Known {
    by_text: HashMap<String, Weak<SharedFilter>>,
    /// Those that were in use when the others were removed last.
    used: usize,
}

/// Groups with filters.
#[derive(Default)]
struct Groups {
    by_name: HashMap<String, Arc<GroupFilter>>,
    /// By the hash of a client id that was given to the group, and its name.
    by_client_id: BTreeMap<(u64, Arc<str>), Arc<GroupFilter>>,
    hasher: RandomState,
}

impl Groups {
    fn remove(&mut self, name: &str) {
        let Some(group) = self.by_name.remove(name) else { return };
        for id in &group.client_ids {
            self.by_client_id.remove(&(self.hasher.hash_one(id), name.into()));
        }
    }

    fn insert(&mut self, group: GroupFilter) {
        self.remove(&group.group);
        let (name, group) = (Arc::<str>::from(&*group.group), Arc::new(group));
        for id in &group.client_ids {
            self.by_client_id.insert((self.hasher.hash_one(id), Arc::clone(&name)), Arc::clone(&group));
        }
        self.by_name.insert(group.group.clone(), group);
    }

    /// The only one that a client id is of: it was given to the group, or is the Java client's default for its name.
    fn named(&self, client_id: &str) -> Option<&Arc<GroupFilter>> {
        let id = self.hasher.hash_one(client_id);
        let given = self
            .by_client_id
            .range((id, Arc::from(""))..)
            .take_while(|((other, _), _)| *other == id)
            .map(|(_, group)| group);
        let mut given = given.filter(|group| group.client_ids.iter().any(|own| own == client_id));
        let default = default_group(client_id).and_then(|name| self.by_name.get(name));
        match (default, given.next(), given.next()) {
            (Some(group), None, _) | (None, Some(group), None) => Some(group),
            (Some(group), Some(same), None) if Arc::ptr_eq(group, same) => Some(group),
            _ => None,
        }
    }
}

/// The group that the Java client calls itself by unless it is told otherwise: `consumer-GROUP-NUMBER`.
fn default_group(client_id: &str) -> Option<&str> {
    let (group, number) = client_id.strip_prefix("consumer-")?.rsplit_once('-')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(group)
}

/// All filters, and what is known of batches.
#[derive(Default)]
pub struct Filters {
    any: AtomicBool,
    generation: AtomicU64,
    groups: RwLock<Groups>,
    known: Mutex<Known>,
    next_id: AtomicU64,
    notes: Notes,
    counts: FilterCounts,
}

/// Reads an expression to see whether it is one.
pub(crate) fn check(text: &str) -> Result<(), FilterError> {
    Filter::parse(text).map(drop)
}

impl Filters {
    /// Has any group a filter?
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Another number than before when a filter has come, changed or gone.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// That of a group.
    pub fn of_group(&self, group: &str) -> Option<Arc<GroupFilter>> {
        self.groups.read().by_name.get(group).cloned()
    }

    /// The only group with a filter that a client id is of: it was given to the group, or is the Java client's default for its name.
    pub fn named(&self, client_id: &str) -> Option<Arc<GroupFilter>> {
        self.groups.read().named(client_id).cloned()
    }

    /// Those of these groups that have one.
    pub fn of_groups(&self, names: &[Arc<str>]) -> Vec<Arc<GroupFilter>> {
        let groups = self.groups.read();
        names.iter().filter_map(|name| groups.by_name.get(&**name)).cloned().collect()
    }

    /// Sets what is kept of batches to at most so many bytes of memory.
    pub fn set_notes_bytes_max(&self, bytes: usize) {
        self.notes.set_bytes_max(bytes);
    }

    /// Memory of what is kept of batches.
    pub fn notes_bytes(&self) -> usize {
        self.notes.bytes()
    }

    /// Measurements.
    pub fn counts(&self) -> &FilterCounts {
        &self.counts
    }

    /// A group's filter is this expression, which has been checked; empty: it has none.
    pub fn set(&self, group: &str, text: &str, client_ids: &str) {
        let filter = if text.is_empty() { None } else { self.shared(text) };
        let mut groups = self.groups.write();
        match filter {
            Some(filter) => {
                let client_ids =
                    client_ids.split(',').map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()).collect();
                groups.insert(GroupFilter { group: group.to_owned(), filter, client_ids });
            }
            None if !groups.by_name.contains_key(group) => return,
            None => groups.remove(group),
        }
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.any.store(!groups.by_name.is_empty(), Ordering::Relaxed);
    }

    fn shared(&self, text: &str) -> Option<Arc<SharedFilter>> {
        let mut known = self.known.lock();
        if let Some(filter) = known.by_text.get(text).and_then(Weak::upgrade) {
            return Some(filter);
        }
        let parsed = match Filter::parse_kept(text) {
            Ok(parsed) => parsed,
            Err(error) => {
                // Checked when it was set: only a record of another release can get here.
                tracing::error!(filter = text, %error, "the filter of a group is not understood by this release; it gets everything");
                return None;
            }
        };
        let filter = Arc::new(SharedFilter { id: self.next_id.fetch_add(1, Ordering::Relaxed), filter: parsed });
        // Not each time: with many filters each new one would go through all of them.
        if known.by_text.len() > 2 * known.used + UNUSED_MAX {
            known.by_text.retain(|_, filter| filter.strong_count() > 0);
            known.used = known.by_text.len();
        }
        known.by_text.insert(text.to_owned(), Arc::downgrade(&filter));
        Some(filter)
    }

    /// What a filter lets through of a batch of a log, which is no marker and lies in `slices`. `None`: there is no room to look into it, or to
    /// the end of it, in this turn.
    pub fn pass_one(
        &self,
        log: LogId,
        slices: &[Bytes],
        batch: &SlicedBatch,
        filter: &SharedFilter,
        unpack: &mut UnpackRoom,
    ) -> Option<Passed> {
        let length = batch.header.total_bytes();
        let verdict = self
            .notes
            .verdict(log, &batch.header, filter, (&self.counts, unpack), || whole(slices, batch.at, length))?;
        Some(match verdict {
            Verdict::All => Passed::All,
            Verdict::Nothing => Passed::Nothing,
            Verdict::Part(part) => {
                let mut runs: Vec<(u64, u64)> = Vec::new();
                let visited = visit_keys(&part, |record| match runs.last_mut() {
                    Some((_, last)) if *last + 1 == record.offset.0 => *last += 1,
                    _ => runs.push((record.offset.0, record.offset.0)),
                });
                debug_assert!(visited.is_ok(), "it was made here");
                Passed::Part { batch: part, runs }
            }
        })
    }

    /// What a filter lets through of whole batches of a log, as far as there is room. Markers of transactions always pass, and so does a
    /// batch that cannot be looked into: nothing that is wanted is lost.
    pub fn pass(
        &self,
        log: LogId,
        slices: &[Bytes],
        filter: &SharedFilter,
        room: Room,
        unpack: &mut UnpackRoom,
    ) -> Let {
        let mut let_through = Let::default();
        let total: usize = slices.iter().map(Bytes::len).sum();
        let count = |counter: &AtomicU64, by: usize| counter.fetch_add(by as u64, Ordering::Relaxed);
        let Ok(batches) = sliced_batches(slices) else {
            count(&self.counts.unreadable, 1);
            count(&self.counts.bytes_in, total);
            count(&self.counts.bytes_out, total);
            return Let { slices: slices.into(), bytes: total, next: Offset(u64::MAX), full_at: None };
        };
        let mut gone_through = 0;
        for batch in batches {
            let length = batch.header.total_bytes();
            let verdict = if batch.header.control() {
                Some(Verdict::All)
            } else {
                self.notes.verdict(log, &batch.header, filter, (&self.counts, &mut *unpack), || {
                    whole(slices, batch.at, length)
                })
            };
            let Some(verdict) = verdict else {
                let_through.full_at = Some(batch.header.base());
                break;
            };
            let passes = match &verdict {
                Verdict::Nothing => 0,
                Verdict::All => length,
                Verdict::Part(part) => part.len(),
            };
            let first = room.first_fits && let_through.bytes == 0;
            if !first && let_through.bytes + passes > room.bytes {
                let_through.full_at = Some(batch.header.base());
                break;
            }
            gone_through += length;
            let_through.enter(slices, &batch, verdict);
        }
        count(&self.counts.bytes_in, gone_through);
        count(&self.counts.bytes_out, let_through.bytes);
        let_through
    }
}

impl Let {
    fn enter(&mut self, slices: &[Bytes], batch: &SlicedBatch, verdict: Verdict) {
        match verdict {
            Verdict::Nothing => {}
            Verdict::All => {
                let length = batch.header.total_bytes();
                self.slices.extend(cut(slices, batch.at, length));
                self.bytes += length;
                self.next = batch.header.next();
            }
            Verdict::Part(part) => {
                self.next = BatchHeader::parse(&part).map_or(batch.header.base(), |header| header.next());
                self.bytes += part.len();
                self.slices.push(part);
            }
        }
    }
}

impl PartialEq for SharedFilter {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for SharedFilter {}

impl Hash for SharedFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

#[cfg(test)]
mod tests;
