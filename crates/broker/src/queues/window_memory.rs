//! The memory of what queues have read and not given out. Between turns the records of a queue whose consumers take nothing more stay where they
//! were read, as long as few queues have some: each holds up to two blocks of a cache for that. With more, what is left is copied
//! out of the blocks, and where there is no room for the copies either it is forgotten, and read again in small pieces.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a slice of a cache holds, at most.
const BLOCK_BYTES: usize = 1 << 20;
/// Unless [`WindowMemory::set_max`] says otherwise.
const DEFAULT_MAX: usize = 64 << 20;

/// See the head of the file.
pub(super) struct WindowMemory {
    used: AtomicUsize,
    max: AtomicUsize,
}

/// Part of it, until it is dropped.
pub(super) struct Charge {
    of: Arc<WindowMemory>,
    bytes: usize,
}

impl Default for WindowMemory {
    fn default() -> Self {
        Self { used: AtomicUsize::new(0), max: AtomicUsize::new(DEFAULT_MAX) }
    }
}

impl WindowMemory {
    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Is little room left, so that only what is needed is to be read?
    pub fn is_short(&self) -> bool {
        self.used() > self.max.load(Ordering::Relaxed) / 4 * 3
    }

    /// Room for so many slices of caches, of which half of the memory at most is for.
    pub fn pin(self: &Arc<Self>, slices: usize) -> Option<Charge> {
        self.charge(slices * BLOCK_BYTES, self.max.load(Ordering::Relaxed) / 2)
    }

    /// Room for so many bytes.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.charge(bytes, self.max.load(Ordering::Relaxed))
    }

    fn charge(self: &Arc<Self>, bytes: usize, max: usize) -> Option<Charge> {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Charge { of: Arc::clone(self), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
