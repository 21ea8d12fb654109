//! Memory for large requests: buffers in size classes that go back when the last slice of a request is dropped, so
//! that no request pays for fresh memory. All of them count against one bound.
//!
//! A request counts with those of its bytes that have arrived, never with the length that it announces. While less than half of the bound
//! is taken, every request is read on. Beyond that only those with a grant are: the bytes that are missing of them are set aside, so that
//! they can be finished whatever comes of others. While nothing is finished or granted, one grant is to be had also beyond the bound:
//! requests that wait for each other do not wait for ever. While clients of other addresses wait, grants of one address take at most a quarter of the bound,
//! apart from its only one. A request of which too little comes loses its grant ([`Frame::lapse`]).

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use broker::MemoryShare;
use bytes::{Buf, Bytes, BytesMut};

/// Requests from this size on use pooled memory.
pub const POOLED_FROM_BYTES: usize = 32 << 10;
const CLASSES: usize = 16;
/// A buffer begins with at most this length. Those of longer requests grow by the factor as bytes come: at most a third of a request is
/// copied, 8 MiB at once where the system does not move pages instead.
const FIRST_BYTES: usize = 2 << 20;
const GROWTH: usize = 4;
/// Bytes read at once.
const READ_BYTES_MAX: usize = 2 << 20;
/// Part of the bound up to which no grant is needed.
const FREELY: usize = 2;
/// Part of it that grants of one address may take while other addresses wait.
const ADDRESS_SHARE: usize = 4;
/// Part of it that buffers which nobody uses may take beside it …
const KEPT_SHARE: usize = 2;
/// … and those of one class, none of which is longer: so many in any case.
const KEPT_SHARE_OF_CLASS: usize = 8;
const KEPT_OF_CLASS: usize = 4;

/// The buffers of all shards.
pub struct FramePool {
    free: [Mutex<Vec<Vec<u8>>>; CLASSES],
    /// Bytes that have arrived, and those that grants set aside.
    taken: AtomicUsize,
    /// Requests that will go by themselves: those that are whole, and those with a grant.
    able: AtomicUsize,
    /// Requests that are not read because they get no grant.
    waiting: AtomicUsize,
    /// Bytes of buffers that are free, or were when a request that is not whole got them.
    kept: AtomicUsize,
    /// The class that lost a buffer last because there were too many.
    evicted: AtomicUsize,
    max_bytes: usize,
}

/// What requests from one address have, as long as they are not whole.
#[derive(Default)]
pub struct AddressUse {
    /// Bytes of grants.
    granted: AtomicUsize,
    /// Requests that wait for one.
    waiting: AtomicUsize,
}

fn class_of(bytes: usize) -> usize {
    let size = bytes.max(POOLED_FROM_BYTES).next_power_of_two();
    (size / POOLED_FROM_BYTES).trailing_zeros() as usize
}

fn class_bytes(class: usize) -> usize {
    POOLED_FROM_BYTES << class
}

impl FramePool {
    /// Holds at most about `max_bytes` at once, but always at least one request.
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            free: std::array::from_fn(|_| Mutex::default()),
            taken: AtomicUsize::new(0),
            able: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            evicted: AtomicUsize::new(0),
            max_bytes,
        })
    }

    /// For those who ask why somebody waits.
    pub fn share(self: &Arc<Self>) -> MemoryShare {
        let pool = Arc::clone(self);
        MemoryShare { used: Box::new(move || pool.used_bytes()), max: self.max_bytes }
    }

    /// Bytes that have arrived, and those that are set aside for what can be finished.
    pub fn used_bytes(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Does a request wait for memory, or is more taken than there is?
    pub fn is_scarce(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.used_bytes() > self.max_bytes
    }

    /// A buffer for a request of `bytes`, of which nothing has come yet.
    pub fn begin(self: &Arc<Self>, bytes: usize, of: &Arc<AddressUse>) -> Frame {
        let class = class_of(bytes);
        let recycled = self.free.get(class).and_then(|free| free.lock().ok()?.pop());
        let kept = recycled.as_ref().map_or(0, Vec::capacity);
        let memory = recycled.unwrap_or_else(|| Vec::with_capacity(class_bytes(class).min(FIRST_BYTES)));
        Frame { memory, bytes, counted: 0, granted: 0, kept, waits: false, pool: Arc::clone(self), of: Arc::clone(of) }
    }

    /// Keeps a buffer for other requests, in the place of one of another class if there are too many. `counted`: it is among those kept.
    fn keep(&self, mut memory: Vec<u8>, counted: bool) {
        memory.clear();
        let bytes = memory.capacity();
        let class = class_of(bytes);
        let free = self.free.get(class).filter(|_| class_bytes(class) == bytes).and_then(|free| free.lock().ok());
        let share = self.max_bytes / KEPT_SHARE_OF_CLASS;
        let wanted = free.filter(|free| bytes <= share && (free.len() < KEPT_OF_CLASS || (free.len() + 1) * bytes <= share));
        let fits = |kept: usize| (kept + bytes <= self.max_bytes / KEPT_SHARE).then_some(kept + bytes);
        let has_room = || self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        match wanted {
            Some(mut free) if counted || has_room() => free.push(memory),
            Some(free) => {
                drop(free);
                self.evict(class);
            }
            None if counted => _ = self.kept.fetch_sub(bytes, Ordering::Relaxed),
            None => {}
        }
    }

    /// Frees a buffer of another class, in turn: the next one of this class finds room.
    fn evict(&self, class: usize) {
        for _ in 0..CLASSES {
            let other = self.evicted.fetch_add(1, Ordering::Relaxed) % CLASSES;
            let freed = if other == class { None } else { self.free[other].lock().ok().and_then(|mut free| free.pop()) };
            if let Some(freed) = freed {
                self.kept.fetch_sub(freed.capacity(), Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Bytes of a small request that is not whole, which has no buffer of its own: they count, and wait for nothing.
pub struct Held {
    pool: Arc<FramePool>,
    bytes: usize,
}

impl Held {
    /// None yet.
    pub fn new(pool: &Arc<FramePool>) -> Self {
        Self { pool: Arc::clone(pool), bytes: 0 }
    }

    /// So many are there now.
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.pool.taken.fetch_add(bytes, Ordering::Relaxed);
            self.pool.taken.fetch_sub(self.bytes, Ordering::Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A buffer on loan, and what has come of its request.
pub struct Frame {
    /// What has come.
    memory: Vec<u8>,
    /// All that is to come.
    bytes: usize,
    /// Counted in the pool.
    counted: usize,
    /// What was missing when it was granted; 0: there is no grant.
    granted: usize,
    /// Bytes of the buffer that count as kept, as long as the request is not whole.
    kept: usize,
    waits: bool,
    pool: Arc<FramePool>,
    of: Arc<AddressUse>,
}

impl Frame {
    /// Bytes that have come.
    pub fn arrived(&self) -> usize {
        self.memory.len()
    }

    /// Bytes that have not.
    pub fn missing(&self) -> usize {
        self.bytes - self.memory.len()
    }

    /// Was it told to wait for memory when it last asked?
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// May more of it be read? Otherwise it waits, and is to ask again.
    pub fn may_read(&mut self) -> bool {
        let may = self.granted > 0 || self.pool.used_bytes() < self.pool.max_bytes / FREELY || self.ask_for_grant();
        self.set_waiting(!may);
        may
    }

    /// It wants nothing at the moment.
    pub fn rest(&mut self) {
        self.set_waiting(false);
        self.lapse();
    }

    fn set_waiting(&mut self, waits: bool) {
        if waits != self.waits {
            let count = |counter: &AtomicUsize| if waits { counter.fetch_add(1, Ordering::Relaxed) } else { counter.fetch_sub(1, Ordering::Relaxed) };
            count(&self.pool.waiting);
            count(&self.of.waiting);
            self.waits = waits;
        }
    }

    fn ask_for_grant(&mut self) -> bool {
        let (pool, missing, granted) = (&self.pool, self.missing(), self.of.granted.load(Ordering::Relaxed));
        let others_wait = pool.waiting.load(Ordering::Relaxed) > self.of.waiting.load(Ordering::Relaxed);
        if others_wait && granted > 0 && granted + missing > pool.max_bytes / ADDRESS_SHARE {
            return false;
        }
        let fits = |taken: usize| (taken + missing <= pool.max_bytes).then_some(taken + missing);
        if pool.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
            pool.able.fetch_add(1, Ordering::Relaxed);
        } else if pool.able.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            pool.taken.fetch_add(missing, Ordering::Relaxed);
        } else {
            return false;
        }
        self.of.granted.fetch_add(missing, Ordering::Relaxed);
        (self.granted, self.counted) = (missing, self.bytes);
        true
    }

    /// What was granted is for others: it has to ask again.
    pub fn lapse(&mut self) {
        if self.granted > 0 {
            self.pool.able.fetch_sub(1, Ordering::Relaxed);
            self.pool.taken.fetch_sub(self.missing(), Ordering::Relaxed);
            self.counted = self.memory.len();
            self.end_grant();
        }
    }

    fn end_grant(&mut self) {
        self.of.granted.fetch_sub(std::mem::take(&mut self.granted), Ordering::Relaxed);
    }

    /// Takes what has come already.
    pub fn take(&mut self, buffer: &mut BytesMut) {
        let taken = buffer.len().min(self.missing());
        self.grow_for(taken);
        self.memory.extend_from_slice(&buffer[..taken]);
        buffer.advance(taken);
        self.note_arrival();
    }

    /// Has `read` put at most as many bytes behind those that have come as it is told.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn fill(&mut self, read: impl FnOnce(&mut Vec<u8>, usize) -> io::Result<usize>) -> io::Result<usize> {
        self.grow_for(1);
        let room = (self.memory.capacity() - self.memory.len()).min(self.missing()).min(READ_BYTES_MAX);
        let got = read(&mut self.memory, room)?;
        self.note_arrival();
        Ok(got)
    }

    fn grow_for(&mut self, more: usize) {
        let (length, capacity) = (self.memory.len(), self.memory.capacity());
        if length + more > capacity && self.missing() > 0 {
            let wanted = class_bytes(class_of(self.bytes)).min(capacity * GROWTH).max(length + more);
            self.memory.reserve_exact(wanted - length);
            self.end_kept();
        }
    }

    fn note_arrival(&mut self) {
        if self.granted == 0 {
            let more = self.memory.len() - self.counted;
            self.pool.taken.fetch_add(more, Ordering::Relaxed);
            self.counted += more;
        }
        if self.missing() == 0 {
            if self.granted == 0 {
                self.pool.able.fetch_add(1, Ordering::Relaxed);
            }
            self.end_grant();
            self.end_kept();
        }
    }

    /// Its buffer counts with what is in it.
    fn end_kept(&mut self) {
        self.pool.kept.fetch_sub(std::mem::take(&mut self.kept), Ordering::Relaxed);
    }

    /// Whole: to be read and sliced.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.rest();
        self.pool.taken.fetch_sub(self.counted, Ordering::Relaxed);
        if self.missing() == 0 {
            self.pool.able.fetch_sub(1, Ordering::Relaxed);
        }
        self.pool.keep(std::mem::take(&mut self.memory), self.kept > 0);
    }
}

#[cfg(test)]
mod tests;
