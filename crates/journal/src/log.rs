//! One log as the journal sees it: its counters, readable without a lock, and behind a short lock the runs
//! that are not yet findable in a sealed segment, its producers, and the segments that hold the rest.
//! The writer appends to it, readers look up, the keeper prunes.
//!
//! `start <= readable <= end`: records below `start` are gone, below `readable` visible for the log's
//! durability class, below `end` placed in a chunk.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use types::{Durability, LogId, Offset, ShardId, Term};

use crate::archive::{Archived, ArchivedLog};
use crate::producers::{Producer, ProducerRoom, Producers};
use crate::recent::RunNumbers;
use crate::segment_set::SegmentSet;
use crate::transactions::{AbortedTransaction, OpenTransaction};

/// Aborted transactions that are copied under one hold of a log's lock.
const ABORTED_AT_ONCE: usize = 1000;

/// When a log's old records may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Keep records this long after their append, in ms; `None`: for ever.
    pub ms: Option<u64>,
    /// Keep about this many bytes; `None`: any number.
    pub bytes: Option<u64>,
}

/// How a log is compacted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compaction {
    /// Not before a record has been there this long, in ms.
    pub min_lag_ms: u64,
    /// Whatever else is said, when a record has been there this long, in ms.
    pub max_lag_ms: u64,
    /// When more than this part of the log has not been compacted yet.
    pub dirty_ratio: f64,
    /// Records without a value, and markers of transactions, stay this long after they were first met, in ms.
    pub delete_retention_ms: u64,
    /// When the oldest record that has not been compacted has been there this long, in ms, …
    pub segment_ms: u64,
    /// … or when so many bytes have not.
    pub segment_bytes: u64,
}

/// What only the writer, the keeper and look-ups touch. In memory first what every append touches.
#[derive(Default)]
#[repr(C)]
pub(crate) struct LogInner {
    /// Its end is durable, and it is gone.
    pub dropped: bool,
    /// Its end is placed in a chunk: nothing is placed behind it.
    pub ended: bool,
    /// The last of `terms`, at hand without following a pointer.
    newest_term: Option<Term>,
    pub producers: Option<Box<Producers>>,
    /// Numbers of its runs in the journal's table of recent ones.
    pub runs: RunNumbers,
    pub segments: SegmentSet,
    /// The part of the log's bytes that lies in sealed segments or in the archive.
    pub sealed_bytes: u64,
    /// (term, first offset written in it), ascending.
    pub terms: Vec<(Term, Offset)>,
    pub retention: Retention,
    /// Start after the last trim that was placed in a chunk, durable or not: what a checkpoint says.
    pub start_placed: Offset,
    /// Retention has asked for a trim to here; it takes effect when it is durable.
    pub trim_requested: Offset,
    /// What of it lies in archive objects.
    pub archive: ArchivedLog,
    pub compaction: Option<Box<Compaction>>,
    /// Who knows which records behind the start nobody needs any more.
    done: Option<Weak<dyn DoneRecords>>,
}

/// Who knows which records of a log nobody needs any more, although its start is before them.
pub trait DoneRecords: Send + Sync {
    /// Ascending ranges in `range`, which is not empty, that do not touch each other. What is in them may be gone at any time after that, and stays out of use,
    /// whatever a crash undoes. Called by the keeper, without any lock of the log.
    fn done_within(&self, range: Range<Offset>) -> Vec<Range<Offset>>;
}

impl LogInner {
    /// Notes that `first` is written in `term`.
    pub fn enter_term(&mut self, term: Term, first: Offset) {
        if self.newest_term.is_none_or(|newest| newest < term) {
            self.terms.push((term, first));
            self.newest_term = Some(term);
        }
    }

    /// What a checkpoint says.
    pub fn set_terms(&mut self, terms: Vec<(Term, Offset)>) {
        self.newest_term = terms.last().map(|(term, _)| *term);
        self.terms = terms;
    }
}

/// What is left of ascending ranges without others, which come in any order and may overlap.
fn without(ranges: Vec<Range<Offset>>, mut others: Vec<Range<Offset>>) -> Vec<Range<Offset>> {
    others.sort_unstable_by_key(|other| other.start);
    let (mut left, mut at, mut covered) = (Vec::with_capacity(ranges.len()), 0, Offset::ZERO);
    for Range { start, end } in ranges {
        let mut from = start.max(covered);
        while let Some(other) = others.get(at).filter(|other| other.start < end) {
            if from < other.start {
                left.push(from..other.start);
            }
            covered = covered.max(other.end);
            from = from.max(covered);
            at += 1;
        }
        if from < end {
            left.push(from..end);
        }
    }
    left
}

/// A hint that `bytes` from `first` on will be written soon. No effect on other processors than x86-64.
fn prefetch(first: *const u8, bytes: usize) {
    const LINE: usize = 64;
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, bytes, LINE);
    #[cfg(target_arch = "x86_64")]
    for at in (first.addr() / LINE * LINE..first.addr() + bytes).step_by(LINE) {
        // SAFETY: a hint; it reads nothing and faults at no address. The intrinsic would leave out that it is for writing.
        unsafe { std::arch::asm!("prefetchw [{0}]", in(reg) at, options(nostack, preserves_flags)) };
    }
}

/// What the logs of a journal share.
#[derive(Debug)]
pub(crate) struct OfJournal {
    /// The writer's current term.
    pub term: AtomicU32,
    pub producers: Arc<ProducerRoom>,
}

impl OfJournal {
    pub fn new(term: Term, producer_bytes: usize) -> Arc<Self> {
        Arc::new(Self { term: AtomicU32::new(term.0), producers: Arc::new(ProducerRoom::new(producer_bytes)) })
    }
}

/// A log; shared as `Arc<Log>`. In memory first what shards read, beside the counts of the `Arc`, then what every append
/// changes.
#[repr(C)]
pub struct Log {
    id: LogId,
    start: AtomicU64,
    /// What all logs of the journal share.
    shared: Arc<OfJournal>,
    durability: AtomicU8,
    /// There are or have been transactions: what is stable may end before what is readable.
    transactional: AtomicBool,
    /// Something of it is in the archive: it may be there that is to be read.
    archives: AtomicBool,
    end: AtomicU64,
    readable: AtomicU64,
    bytes: AtomicU64,
    watchers: AtomicU64,
    /// Segment in whose list of touched logs this one is, and its place there.
    touched_in: AtomicU64,
    touched_at: AtomicU32,
    inner: Mutex<LogInner>,
    /// What lies below is in the archive.
    archived: AtomicU64,
    /// Offset after the last batch of a transaction, of markers, or in the place of lost records.
    marked: AtomicU64,
    /// Compaction has gone through what lies below, …
    compacted: AtomicU64,
    /// … so often.
    compactions: AtomicU64,
    /// Shards that asked to hear when records are taken away.
    removal_watchers: AtomicU64,
    /// Offset after the last record that a sealed segment holds, or held.
    sealed_until: AtomicU64,
}

const FSYNC: u8 = 0;
const MEMORY: u8 = 1;

impl Log {
    pub(crate) fn new(id: LogId, durability: Durability, shared: Arc<OfJournal>) -> Self {
        let log = Self {
            id,
            durability: AtomicU8::new(FSYNC),
            transactional: AtomicBool::new(false),
            start: AtomicU64::new(0),
            readable: AtomicU64::new(0),
            end: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            watchers: AtomicU64::new(0),
            touched_in: AtomicU64::new(0),
            touched_at: AtomicU32::new(0),
            shared,
            inner: Mutex::new(LogInner::default()),
            archives: AtomicBool::new(false),
            archived: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            removal_watchers: AtomicU64::new(0),
            sealed_until: AtomicU64::new(0),
        };
        log.set_durability(durability);
        log
    }

    /// Asks the processor to have at hand soon, to be changed, what an asker of appends touches: with many logs in a request,
    /// waiting for memory that another core has changed is most of the work.
    pub fn prefetch(self: &Arc<Self>) {
        self.prefetch_until(std::mem::offset_of!(Self, end));
    }

    /// The same for what moving the readable end touches.
    pub(crate) fn prefetch_ends(self: &Arc<Self>) {
        self.prefetch_until(std::mem::offset_of!(Self, inner));
    }

    /// The same for what giving offsets touches.
    pub(crate) fn prefetch_claim(self: &Arc<Self>) {
        self.prefetch_until(std::mem::offset_of!(Self, inner) + std::mem::offset_of!(LogInner, runs));
    }

    /// The same for what entering a run touches.
    pub(crate) fn prefetch_whole(self: &Arc<Self>) {
        self.prefetch_until(std::mem::offset_of!(Self, inner) + std::mem::offset_of!(LogInner, segments));
    }

    fn prefetch_until(self: &Arc<Self>, end: usize) {
        // The counts of an `Arc` are in front of what it holds.
        const COUNTS_BYTES: usize = 2 * size_of::<usize>();
        prefetch(Arc::as_ptr(self).cast::<u8>().wrapping_sub(COUNTS_BYTES), end + COUNTS_BYTES);
    }

    /// Its name, never reused.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// First offset that is still there, or will be next when the log is empty.
    pub fn start(&self) -> Offset {
        Offset(self.start.load(Ordering::Acquire))
    }

    /// Offset after the last record that a reader may see.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.readable.load(Ordering::Acquire))
    }

    /// Offset after the last record that a reader of committed records may see: the first offset of the earliest transaction
    /// whose end readers do not see yet, or the high watermark.
    pub fn last_stable(&self) -> Offset {
        let readable = self.high_watermark();
        if !self.transactional.load(Ordering::Acquire) {
            return readable;
        }
        let inner = self.inner.lock();
        let stable =
            inner.producers.as_ref().map_or(readable, |producers| producers.transactions().last_stable(readable));
        stable.max(self.start())
    }

    /// Aborted transactions with records in `from..until`, by last offset. Copied in pieces: the writer needs the lock.
    pub fn aborted_between(&self, from: Offset, until: Offset) -> Vec<AbortedTransaction> {
        if !self.transactional.load(Ordering::Acquire) {
            return Vec::new();
        }
        let (mut found, mut from) = (Vec::new(), from);
        loop {
            let before = found.len();
            if let Some(producers) = &self.inner.lock().producers {
                found.extend(producers.transactions().aborted_between(from, until).take(ABORTED_AT_ONCE));
            }
            match found.last() {
                Some(AbortedTransaction { last, .. }) if found.len() - before == ABORTED_AT_ONCE => from = last.plus(1),
                _ => return found,
            }
        }
    }

    /// The producers that are known, each with its open transaction.
    pub fn producers(&self) -> Vec<(i64, Producer, Option<OpenTransaction>)> {
        let inner = self.inner.lock();
        let producers = inner.producers.as_deref().into_iter();
        producers
            .flat_map(|all| all.iter().map(|(id, known)| (id, *known, all.transactions().of(id).copied())))
            .collect()
    }

    /// The memory of which its producers have a part.
    pub(crate) fn producer_room(&self) -> Arc<ProducerRoom> {
        Arc::clone(&self.shared.producers)
    }

    /// How many producers are known.
    pub fn producer_count(&self) -> usize {
        self.inner.lock().producers.as_deref().map_or(0, |all| all.iter().len())
    }

    /// From now on what is stable is looked up.
    pub(crate) fn set_transactional(&self) {
        self.transactional.store(true, Ordering::Release);
    }

    /// A batch of a transaction, of markers, or in the place of lost records ends at `next`.
    pub(crate) fn set_marked(&self, next: Offset) {
        self.marked.fetch_max(next.0, Ordering::AcqRel);
    }

    /// Offset after the last batch of a transaction, of markers, or in the place of lost records.
    pub(crate) fn marked(&self) -> Offset {
        Offset(self.marked.load(Ordering::Acquire))
    }

    /// From this offset on each one holds a record that readers of committed records get. Below it there may be markers, records of
    /// aborted transactions, and offsets whose records compaction removed or damage has cost.
    pub fn dense_from(&self) -> Offset {
        self.marked().max(Offset(self.compacted.load(Ordering::Acquire)))
    }

    /// How often compaction has replaced a part of the log since the start. When it changes, records below [`Log::dense_from`] may have gone.
    pub fn compactions(&self) -> u64 {
        self.compactions.load(Ordering::Acquire)
    }

    /// Asks for one `Advanced` event to `shard` when the start moves or compaction removes records.
    pub fn watch_removals(&self, shard: ShardId) {
        self.removal_watchers.fetch_or(1 << (shard.0 % 64), Ordering::SeqCst);
    }

    /// The shards that asked to hear of removals, as a bit set.
    pub(crate) fn take_removal_watchers(&self) -> u64 {
        if self.removal_watchers.load(Ordering::SeqCst) == 0 {
            0
        } else {
            self.removal_watchers.swap(0, Ordering::SeqCst)
        }
    }

    /// Offset that the next record gets.
    pub fn end(&self) -> Offset {
        Offset(self.end.load(Ordering::Acquire))
    }

    /// Bytes of batches between start and end, about: what was deleted of a sealed segment counts until the keeper's next look, and where its records
    /// are in one with live ones longer. What was deleted of newer segments is taken to be of the mean length there.
    pub fn live_bytes(&self) -> u64 {
        // In this order: the start is never beyond the end.
        let (start, end) = (self.start(), self.end());
        let counted_from = start.min(Offset(self.sealed_until.load(Ordering::Acquire)));
        let (left, counted) = (end.since(start), end.since(counted_from));
        if left == counted {
            self.counted_bytes()
        } else {
            (u128::from(self.counted_bytes()) * u128::from(left) / u128::from(counted)) as u64
        }
    }

    /// The same with all that was deleted of segments that are not sealed yet: it grows by what is appended, and falls when segments are looked at.
    pub fn counted_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A sealed segment has its records up to `offset`.
    pub(crate) fn set_sealed_until(&self, offset: Offset) {
        self.sealed_until.fetch_max(offset.0, Ordering::AcqRel);
    }

    /// Its durability class.
    pub fn durability(&self) -> Durability {
        if self.durability.load(Ordering::Relaxed) == FSYNC { Durability::Fsync } else { Durability::Memory }
    }

    /// Changes the class, for appends from now on.
    pub fn set_durability(&self, durability: Durability) {
        let code = if durability == Durability::Fsync { FSYNC } else { MEMORY };
        self.durability.store(code, Ordering::Relaxed);
    }

    /// The journal's term; a gateway's leader epoch.
    pub fn leader_epoch(&self) -> u32 {
        self.shared.term.load(Ordering::Relaxed)
    }

    /// The offset before which everything is in the archive; 0 when nothing is.
    pub fn archived_until(&self) -> Offset {
        if self.archives.load(Ordering::Acquire) { Offset(self.archived.load(Ordering::Acquire)) } else { Offset::ZERO }
    }

    /// An object is part of the log from now on; returns those whose place it takes.
    ///
    /// # Errors
    /// The object, when the log is deleted.
    pub(crate) fn enter_archived(&self, object: Arc<Archived>) -> Result<Vec<Arc<Archived>>, Arc<Archived>> {
        let mut inner = self.inner.lock();
        if inner.dropped {
            return Err(object);
        }
        if object.cleaned
            && let Some(producers) = &mut inner.producers
        {
            producers.keep_aborted(object.base..object.next, &object.aborted);
        }
        let compacted = object.cleaned.then_some(object.next);
        let replaced = inner.archive.enter(object);
        self.set_archived_until(&inner.archive);
        if let Some(next) = compacted {
            self.compacted.fetch_max(next.0, Ordering::AcqRel);
            self.compactions.fetch_add(1, Ordering::AcqRel);
        }
        Ok(replaced)
    }

    /// The objects up to `offset`, where one ends, are no part of it any more.
    pub(crate) fn forget_archived(&self, offset: Offset) {
        let mut inner = self.inner.lock();
        inner.archive.remove_through(offset);
        self.set_archived_until(&inner.archive);
    }

    fn set_archived_until(&self, archive: &ArchivedLog) {
        self.archived.store(archive.until().0, Ordering::Release);
        self.archives.store(!archive.is_empty(), Ordering::Release);
    }

    /// Asks for one `Advanced` event to `shard` when the readable end moves. Look at
    /// [`Log::high_watermark`] once more after the call: it may have moved before.
    pub fn watch(&self, shard: ShardId) {
        self.watchers.fetch_or(1 << (shard.0 % 64), Ordering::SeqCst);
    }

    /// The largest term not above `term` in which this log was written, and the offset at which it ended.
    /// For a term before the first: that term itself and the log's start, so that nothing is assumed of it.
    pub fn term_end(&self, term: Term) -> Option<(Term, Offset)> {
        let inner = self.inner.lock();
        let after = inner.terms.partition_point(|(written, _)| *written <= term);
        let end = inner.terms.get(after).map_or_else(|| self.end(), |(_, first)| *first);
        let found = inner.terms.get(after.checked_sub(1)?)?.0;
        Some((found, end))
    }

    /// Sets what the keeper enforces.
    pub fn set_retention(&self, retention: Retention) {
        self.inner.lock().retention = retention;
    }

    /// Sets whether and how it is compacted.
    pub fn set_compaction(&self, compaction: Option<Compaction>) {
        self.inner.lock().compaction = compaction.map(Box::new);
    }

    /// Sets who knows which records are done, as long as there are any. They are not kept when segments are rewritten.
    pub fn set_done(&self, done: Option<Weak<dyn DoneRecords>>) {
        self.inner.lock().done = done;
    }

    pub(crate) fn has_done(&self) -> bool {
        self.inner.lock().done.is_some()
    }

    /// What nobody needs of a range. Aborted transactions are not among it: readers of committed records are told of them, and one that does
    /// not find the marker of an aborted transaction takes what its producer commits later for a part of it.
    pub(crate) fn done_within(&self, range: Range<Offset>) -> Vec<Range<Offset>> {
        let done = if range.start < range.end { self.inner.lock().done.clone() } else { None };
        let done = done.and_then(|done| done.upgrade()).map_or_else(Vec::new, |done| done.done_within(range.clone()));
        if done.is_empty() {
            return done;
        }
        without(
            done,
            self.aborted_between(range.start, range.end)
                .into_iter()
                .map(|aborted| aborted.first..aborted.last.plus(1))
                .collect(),
        )
    }

    pub(crate) fn compaction(&self) -> Option<Compaction> {
        self.inner.lock().compaction.as_deref().copied()
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, LogInner> {
        self.inner.lock()
    }

    /// Claims `count` offsets for the writer.
    pub(crate) fn claim(&self, count: u64) -> Offset {
        Offset(self.end.fetch_add(count, Ordering::AcqRel))
    }

    /// Undoes claims of chunks that were never acknowledged, at recovery or fail-stop.
    pub(crate) fn reset(&self, start: Offset, end: Offset, bytes: u64) {
        self.start.store(start.0, Ordering::Release);
        self.end.store(end.0, Ordering::Release);
        self.readable.store(end.0, Ordering::Release);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Notes that a segment holds something of this log. Its place in the segment's list of such logs, and whether it is new there:
    /// then it is `next`. For the writer and recovery, one at a time.
    pub(crate) fn touch(&self, segment: u64, next: u32) -> (u32, bool) {
        if self.touched_in.load(Ordering::Relaxed) == segment {
            return (self.touched_at.load(Ordering::Relaxed), false);
        }
        self.touched_in.store(segment, Ordering::Relaxed);
        self.touched_at.store(next, Ordering::Relaxed);
        (next, true)
    }

    /// Is anything of it on the disk, or on the way there?
    pub(crate) fn is_touched(&self) -> bool {
        self.touched_in.load(Ordering::Relaxed) != 0 || self.end() > Offset::ZERO
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Tells what of the log lies in sealed segments and is still there.
    pub(crate) fn set_sealed_bytes(&self, bytes: u64) {
        let before = std::mem::replace(&mut self.inner.lock().sealed_bytes, bytes);
        // In this order it never seems smaller than it is.
        self.add_bytes(bytes);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// Moves the readable end and returns the shards that asked to hear of it, as a bit set.
    pub(crate) fn advance(&self, to: Offset) -> u64 {
        let before = self.readable.fetch_max(to.0, Ordering::SeqCst);
        if before < to.0 && self.watchers.load(Ordering::SeqCst) != 0 {
            self.watchers.swap(0, Ordering::SeqCst)
        } else {
            0
        }
    }

    /// Moves the start, never backwards and never past the end.
    pub(crate) fn trim(&self, to: Offset) {
        let to = to.min(self.end());
        self.start.fetch_max(to.0, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_ranges_is_what_a_look_at_each_offset_finds() {
        let mut random = 5u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..2000 {
            let (mut ranges, mut at) = (Vec::new(), next(4));
            while at < 50 {
                let end = at + 1 + next(8);
                ranges.push(Offset(at)..Offset(end));
                at = end + 1 + next(6);
            }
            let others: Vec<Range<Offset>> =
                (0..next(6)).map(|_| next(60)).map(|from| Offset(from)..Offset(from + 1 + from % 13)).collect();
            let is_in = |ranges: &[Range<Offset>], at: u64| ranges.iter().any(|range| range.contains(&Offset(at)));
            let left = without(ranges.clone(), others.clone());
            for at in 0..80 {
                assert_eq!(
                    is_in(&left, at),
                    is_in(&ranges, at) && !is_in(&others, at),
                    "{at} of {ranges:?} without {others:?}: {left:?}"
                );
            }
            assert!(
                left.iter().all(|range| range.start < range.end)
                    && left.windows(2).all(|pair| pair[0].end < pair[1].start),
                "{left:?}"
            );
        }
    }
}
