//! The memory of what queues have read and not given out. Between turns the records of a queue whose consumers take nothing more stay where they
//! were read, as long as few queues have some: each holds up to two blocks of a cache for that. With more, what is left is copied
//! out of the blocks, and where there is no room for the copies either it is forgotten, and read again in small pieces.
//!
//! What was unpacked of batches counts until its last record has been sent, however few of them are left. What is kept leaves half of the memory to that.
//!
//! What was read of history and waits for its queue counts as well, as does what consumers of streams have not been given: they would not get on
//! without it, so it counts even where there is no room, and whoever reads next reads less.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use smallvec::SmallVec;

/// What a slice of a cache holds, at most.
const BLOCK_BYTES: usize = 1 << 20;
/// Unless [`WindowMemory::set_max`] says otherwise.
const DEFAULT_MAX: usize = 128 << 20;

/// See the head of the file.
pub(super) struct WindowMemory {
    used: AtomicUsize,
    /// Of what is kept, in bytes: half of all.
    max: AtomicUsize,
}

/// Part of it, until it is dropped.
pub(super) struct Charge {
    of: Arc<WindowMemory>,
    bytes: usize,
}

impl Default for WindowMemory {
    fn default() -> Self {
        Self { used: AtomicUsize::new(0), max: AtomicUsize::new(DEFAULT_MAX / 2) }
    }
}

impl WindowMemory {
    /// So many bytes in all: half of it for what is kept.
    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes / 2, Ordering::Relaxed);
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Is little room left, so that only what is needed is to be read?
    pub fn is_short(&self) -> bool {
        self.used() > self.max.load(Ordering::Relaxed) / 4 * 3
    }

    /// Room for so many slices of caches, which take half of what is kept, at most.
    pub fn pin(self: &Arc<Self>, slices: usize) -> Option<Charge> {
        self.charge(slices * BLOCK_BYTES, self.max.load(Ordering::Relaxed) / 2)
    }

    /// Room for so many bytes.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.charge(bytes, self.max.load(Ordering::Relaxed))
    }

    /// So many bytes, whether there is room for them or not.
    pub fn count(self: &Arc<Self>, bytes: usize) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { of: Arc::clone(self), bytes }
    }

    /// What was read and waits to be taken: the blocks of caches in which it lies, or a copy where there is no room for these.
    pub fn hold(self: &Arc<Self>, slices: &mut SmallVec<[Bytes; 4]>) -> Charge {
        self.pin(slices.len()).unwrap_or_else(|| {
            let copy = Bytes::from(slices.concat());
            let bytes = copy.len();
            *slices = [copy].into_iter().collect();
            self.count(bytes)
        })
    }

    /// What was unpacked: it counts until the last slice of it is dropped, by whoever sends it at last.
    pub fn own(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        let _charge = self.count(bytes.capacity());
        Bytes::from_owner(Unpacked { bytes, _charge })
    }

    /// Is there more than is to be kept between turns?
    pub fn is_over(&self) -> bool {
        self.used() > self.max.load(Ordering::Relaxed)
    }

    /// Nothing more may be unpacked until consumers have taken some of it.
    pub fn is_full(&self) -> bool {
        self.used() >= self.max.load(Ordering::Relaxed).saturating_mul(2)
    }

    fn charge(self: &Arc<Self>, bytes: usize, max: usize) -> Option<Charge> {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Charge { of: Arc::clone(self), bytes })
    }
}

/// Records that were unpacked, and their account.
struct Unpacked {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Unpacked {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_unpacked_counts_until_its_last_record_is_gone() {
        let memory = Arc::new(WindowMemory::default());
        memory.set_max(2 << 20);
        let whole = memory.own(vec![7; 1 << 20]);
        let last = whole.slice(100..101);
        drop(whole);
        assert!(memory.is_short() && !memory.is_full());
        let more = memory.own(vec![7; 1 << 20]);
        assert!(memory.is_full());
        drop((last, more));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn what_is_kept_and_what_was_unpacked_take_no_more_than_the_bound() {
        let memory = Arc::new(WindowMemory::default());
        memory.set_max(4 << 20);
        let kept: Vec<Charge> = std::iter::from_fn(|| memory.take(64 << 10)).collect();
        let unpacked: Vec<Bytes> =
            std::iter::from_fn(|| (!memory.is_full()).then(|| memory.own(vec![7; 64 << 10]))).collect();
        assert_eq!((kept.len(), unpacked.len(), memory.used()), (32, 32, 4 << 20));
    }

    #[test]
    fn what_waits_counts_and_lets_go_of_its_blocks_where_there_is_little_room() {
        let memory = Arc::new(WindowMemory::default());
        memory.set_max(8 * BLOCK_BYTES);
        let block = Bytes::from(vec![7u8; 1000]);
        let mut waiting = Vec::new();
        for number in 0..5000 {
            let mut slices: SmallVec<[Bytes; 4]> = [block.slice(..500), block.slice(500..)].into_iter().collect();
            let before = memory.used();
            let charge = memory.hold(&mut slices);
            assert_eq!(slices.concat(), vec![7u8; 1000]);
            assert_eq!(
                (slices.len(), memory.used() - before),
                if number == 0 { (2, 2 * BLOCK_BYTES) } else { (1, 1000) }
            );
            waiting.push((charge, slices));
        }
        assert!(memory.is_short() && memory.take(1).is_none(), "nobody else keeps anything");
        drop(waiting);
        assert_eq!(memory.used(), 0);
        assert!(block.is_unique());
    }
}
