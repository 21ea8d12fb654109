//! Memory for large requests: buffers in size classes that go back when the last slice of a request is dropped, so
//! that no request pays for fresh memory. All of them count against one bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use broker::MemoryShare;
use bytes::Bytes;

/// Requests from this size on use pooled memory.
pub const POOLED_FROM_BYTES: usize = 32 << 10;
const CLASSES: usize = 16;

/// The buffers of all shards.
pub struct FramePool {
    free: [Mutex<Vec<Vec<u8>>>; CLASSES],
    used_bytes: AtomicUsize,
    max_bytes: usize,
}

fn class_of(bytes: usize) -> usize {
    let size = bytes.max(POOLED_FROM_BYTES).next_power_of_two();
    (size / POOLED_FROM_BYTES).trailing_zeros() as usize
}

fn class_bytes(class: usize) -> usize {
    POOLED_FROM_BYTES << class
}

impl FramePool {
    /// Hands out at most `max_bytes` at once, but always at least one buffer.
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self { free: std::array::from_fn(|_| Mutex::default()), used_bytes: AtomicUsize::new(0), max_bytes })
    }

    /// For those who ask why somebody waits.
    pub fn share(self: &Arc<Self>) -> MemoryShare {
        let pool = Arc::clone(self);
        MemoryShare { used: Box::new(move || pool.used_bytes()), max: self.max_bytes }
    }

    /// Bytes handed out.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// A buffer of `bytes`; `None` when the bound is reached: stop reading for now.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Frame> {
        let class = class_of(bytes);
        let size = class_bytes(class);
        let fits = |used: usize| (used == 0 || used + size <= self.max_bytes).then_some(used + size);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let recycled = self.free.get(class).and_then(|free| free.lock().ok()?.pop());
        let memory = recycled.unwrap_or_else(|| vec![0; size]);
        Some(Frame { memory, bytes, class, pool: Arc::clone(self) })
    }
}

/// A buffer on loan.
pub struct Frame {
    memory: Vec<u8>,
    bytes: usize,
    class: usize,
    pool: Arc<FramePool>,
}

impl Frame {
    /// To be filled.
    pub fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes]
    }

    /// Filled: to be read and sliced.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let size = class_bytes(self.class);
        self.pool.used_bytes.fetch_sub(size, Ordering::Relaxed);
        // What is free may be as much as an eighth of what may be used at once, and never nothing.
        let keep = (self.pool.max_bytes / 8 / size).max(4);
        if let Some(Ok(mut free)) = self.pool.free.get(self.class).map(Mutex::lock)
            && free.len() < keep
        {
            free.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests;
