//! Memory for large requests: buffers in size classes that go back when the last slice of a request is dropped, so
//! that no request pays for fresh memory. All of them count against one bound.
//!
//! A request counts with those of its bytes that have arrived, never with the length that it announces. While less than half of the bound
//! is taken, every request is read on. Beyond that only those with a grant are:
//!
//! | grant | when | what counts |
//! |---|---|---|
//! | reserved | the bytes that are missing fit into the bound, and into the share of its address | they are set aside, so that it can be finished whatever comes of others |
//! | beyond | nothing fits, and no other request has this grant | nothing more: one request is beside the bound, until it is dropped |
//!
//! An address has its share as long as it holds at most [`LEFT_FREE`] times of what it leaves free: alone three quarters, so that another one always finds
//! room. Requests without a grant wait in line ([`line`]) and are woken when it is their turn. A request that comes too slowly loses what was reserved
//! ([`Frame::lapse`]); one that is in the way of others ends ([`Frame::is_in_the_way`]).
//!
//! What has come of requests that wait counts as well, so that connections beyond a number end instead of waiting ([`Frame::is_one_too_many`]).
//!
//! What a whole request of many items is decoded to counts as well, and is granted in the same line ([`room`]).

mod line;
mod room;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use broker::MemoryShare;
use bytes::{Buf, Bytes, BytesMut};
use tokio::sync::Notify;

use line::{Grant, Line, Waiter};

pub use room::RoomRequest;

/// Requests from this size on use pooled memory.
pub const POOLED_FROM_BYTES: usize = 32 << 10;
const CLASSES: usize = 16;
/// A buffer begins with at most this length. Those of longer requests grow by the factor as bytes come: at most a third of a request is
/// copied, 8 MiB at once where the system does not move pages instead. It is what a request takes that does not come: an allocator gives out memory
/// that was in use before, so that what nobody writes to is resident all the same.
const FIRST_BYTES: usize = 128 << 10;
const GROWTH: usize = 4;
/// Bytes read at once.
const READ_BYTES_MAX: usize = 2 << 20;
/// Part of the bound up to which no grant is needed.
const FREELY: usize = 2;
/// An address may hold so many times what it leaves free.
const LEFT_FREE: usize = 3;
/// A request that is read is to come whole within so many spans (of [`Pace`](crate::pace::Pace)) while it is in the way of others.
const SPANS_MAX: usize = 20;
/// Who has a grant and sends less at once lets others go before, if some wait.
const AT_ONCE: usize = 8 << 10;
/// What has come of requests that wait may take this part of the bound beside it: beyond that none begins to wait …
const WAITING_SHARE: usize = 2;
/// … of an address that has more than this part.
const WAITING_SHARE_OF_ADDRESS: usize = 64;
/// Part of it that buffers which nobody uses may take beside it …
const KEPT_SHARE: usize = 2;
/// … and those of one class, none of which is longer: so many in any case.
const KEPT_SHARE_OF_CLASS: usize = 8;
const KEPT_OF_CLASS: usize = 4;

/// The buffers of all shards.
pub struct FramePool {
    free: [Mutex<Vec<Vec<u8>>>; CLASSES],
    /// Bytes that have arrived, and those that are reserved, without those of the request beyond the bound.
    taken: AtomicUsize,
    /// Bytes that have arrived of the request beyond the bound, since it is.
    beyond: AtomicUsize,
    /// Requests that wait in line.
    waiting: AtomicUsize,
    line: parking_lot::Mutex<Line>,
    /// Bytes of buffers that are free, or were when a request that is not whole got them.
    kept: AtomicUsize,
    /// The class that lost a buffer last because there were too many.
    evicted: AtomicUsize,
    max_bytes: AtomicUsize,
}

/// What requests from one address have.
#[derive(Default)]
pub struct AddressUse {
    /// Its part of what is taken.
    used: AtomicUsize,
    /// Requests that wait in line.
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
            beyond: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            line: parking_lot::Mutex::default(),
            kept: AtomicUsize::new(0),
            evicted: AtomicUsize::new(0),
            max_bytes: AtomicUsize::new(max_bytes),
        })
    }

    fn max_bytes(&self) -> usize {
        self.max_bytes.load(Ordering::Relaxed)
    }

    /// Holds at most about so much from now on. What is there stays.
    pub fn set_max(&self, bytes: usize) {
        self.max_bytes.store(bytes, Ordering::Relaxed);
        // There may be room for those who wait.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.serve(&mut self.line.lock());
        }
    }

    /// For those who ask why somebody waits.
    pub fn share(self: &Arc<Self>) -> MemoryShare {
        let pool = Arc::clone(self);
        MemoryShare { used: Box::new(move || pool.used_bytes()), max: self.max_bytes() }
    }

    /// Bytes that have arrived, and those that are reserved.
    pub fn used_bytes(&self) -> usize {
        self.taken() + self.beyond.load(Ordering::Relaxed)
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Is so much taken that requests are read with a grant only?
    pub fn asks_for_grants(&self) -> bool {
        self.taken() >= self.max_bytes() / FREELY
    }

    /// Is more taken than there is?
    pub fn is_over(&self) -> bool {
        self.taken() > self.max_bytes()
    }

    /// Does a request wait for memory, or is more taken than there is?
    pub fn is_scarce(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.is_over()
    }

    /// May an address have so much, once so much is taken?
    fn is_share(&self, used: usize, taken: usize) -> bool {
        used <= self.max_bytes().saturating_sub(taken).saturating_mul(LEFT_FREE)
    }

    fn count(&self, of: &AddressUse, bytes: usize) {
        of.used.fetch_add(bytes, Ordering::Relaxed);
        self.taken.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Bytes are free: who waits may have them.
    fn give_back(&self, of: &AddressUse, bytes: usize) {
        of.used.fetch_sub(bytes, Ordering::Relaxed);
        // Who begins to wait counts itself before it looks at what is taken: one of both sees the other.
        self.taken.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.serve(&mut self.line.lock());
        }
    }

    /// A buffer for a request of `bytes`, of which nothing has come yet.
    pub fn begin(self: &Arc<Self>, bytes: usize, of: &Arc<AddressUse>) -> Frame {
        let class = class_of(bytes);
        let recycled = self.free.get(class).and_then(|free| free.lock().ok()?.pop());
        let kept = recycled.as_ref().map_or(0, Vec::capacity);
        let first = if self.asks_for_grants() { POOLED_FROM_BYTES } else { FIRST_BYTES };
        let memory = recycled.unwrap_or_else(|| Vec::with_capacity(class_bytes(class).min(first)));
        Frame {
            memory,
            bytes,
            counted: 0,
            grant: None,
            granted_at: 0,
            waiter: None,
            kept,
            pool: Arc::clone(self),
            of: Arc::clone(of),
        }
    }

    /// Keeps a buffer for other requests, in the place of one of another class if there are too many. `counted`: it is among those kept.
    fn keep(&self, mut memory: Vec<u8>, counted: bool) {
        memory.clear();
        let bytes = memory.capacity();
        let class = class_of(bytes);
        let free = self.free.get(class).filter(|_| class_bytes(class) == bytes).and_then(|free| free.lock().ok());
        let share = self.max_bytes() / KEPT_SHARE_OF_CLASS;
        let wanted =
            free.filter(|free| bytes <= share && (free.len() < KEPT_OF_CLASS || (free.len() + 1) * bytes <= share));
        let fits = |kept: usize| (kept + bytes <= self.max_bytes() / KEPT_SHARE).then_some(kept + bytes);
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
            let freed =
                if other == class { None } else { self.free[other].lock().ok().and_then(|mut free| free.pop()) };
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
    of: Arc<AddressUse>,
    bytes: usize,
}

impl Held {
    /// None yet.
    pub fn new(pool: &Arc<FramePool>, of: &Arc<AddressUse>) -> Self {
        Self { pool: Arc::clone(pool), of: Arc::clone(of), bytes: 0 }
    }

    /// So many are there now.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes > before {
            self.pool.count(&self.of, bytes - before);
        } else if bytes < before {
            self.pool.give_back(&self.of, before - bytes);
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
    /// Of the bytes that have come or are reserved, those that count as taken.
    counted: usize,
    grant: Option<Grant>,
    /// What had come when it got that.
    granted_at: usize,
    /// It waits in line for a grant.
    waiter: Option<Arc<Waiter>>,
    /// Bytes of the buffer that count as kept, as long as the request is not whole.
    kept: usize,
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
        self.waiter.is_some()
    }

    /// Does it wait although what has come of those that wait takes too much, and its address has a part in that?
    pub fn is_one_too_many(&self) -> bool {
        let max = self.pool.max_bytes();
        let over = self.waits() && self.pool.taken() > max + max / WAITING_SHARE;
        over && self.of.used.load(Ordering::Relaxed) > max / WAITING_SHARE_OF_ADDRESS
    }

    /// Is it the one beyond the bound?
    pub fn is_beyond(&self) -> bool {
        self.grant == Some(Grant::Beyond)
    }

    /// May more of it be read? Otherwise it waits in line, and `wake` is notified when it has a grant.
    pub fn may_read(&mut self, wake: &Arc<Notify>) -> bool {
        let granted = match &self.waiter {
            Some(waiter) => waiter.grant(),
            None if self.grant.is_some() || !self.pool.asks_for_grants() => return true,
            None => match self.pool.ask(&self.of, self.missing(), wake) {
                Ok(grant) => Some(grant),
                Err(waiter) => {
                    self.waiter = Some(waiter);
                    None
                }
            },
        };
        let Some(grant) = granted else { return false };
        self.accept(grant);
        true
    }

    fn accept(&mut self, grant: Grant) {
        self.waiter = None;
        if grant == Grant::Reserved {
            self.counted = self.bytes;
        }
        (self.grant, self.granted_at) = (Some(grant), self.memory.len());
    }

    /// Its socket has no more for now. Who waited for a grant has sent all that the socket takes meanwhile: where that was little, others that wait have more to send, and
    /// it asks again when more has come.
    pub fn note_drained(&mut self) {
        if self.memory.len() - self.granted_at >= AT_ONCE
            || self.missing() == 0
            || self.pool.waiting.load(Ordering::Relaxed) == 0
        {
            return;
        }
        let few = self.memory.len() - self.counted.min(self.memory.len());
        match self.grant {
            Some(Grant::Reserved) => self.lapse(),
            Some(Grant::Beyond) if self.pool.taken() + few <= self.pool.max_bytes() => {
                self.grant = None;
                self.counted += few;
                self.pool.count(&self.of, few);
                self.pool.beyond.fetch_sub(few, Ordering::Relaxed);
                self.pool.end_beyond();
            }
            Some(Grant::Beyond) | None => {}
        }
    }

    /// It wants nothing at the moment.
    pub fn rest(&mut self) {
        if let Some(waiter) = self.waiter.take()
            && let Some(grant) = self.pool.leave(&self.of, &waiter)
        {
            self.accept(grant);
        }
        self.lapse();
    }

    /// What is reserved is for others: it has to ask again.
    pub fn lapse(&mut self) {
        if self.missing() > 0 && self.grant.take_if(|grant| *grant == Grant::Reserved).is_some() {
            let missing = self.missing();
            self.counted -= missing;
            self.pool.give_back(&self.of, missing);
        }
    }

    /// While it is in the way of others, so many bytes are to come in each span.
    pub fn pace_floor(&self) -> usize {
        (if self.grant.is_some() { self.bytes } else { self.arrived() }) / SPANS_MAX
    }

    /// Does it hold what requests that wait need? It is beyond the bound, or they come from its address, or that has more than its share.
    pub fn is_in_the_way(&self) -> bool {
        let (pool, of) = (&self.pool, &self.of);
        let over_share = || !pool.is_share(of.used.load(Ordering::Relaxed), pool.taken());
        pool.waiting.load(Ordering::Relaxed) > 0
            && (self.grant == Some(Grant::Beyond) || of.waiting.load(Ordering::Relaxed) > 0 || over_share())
    }

    /// Takes what has come already.
    pub fn take(&mut self, buffer: &mut BytesMut) {
        let taken = buffer.len().min(self.missing());
        self.grow_for(taken);
        self.memory.extend_from_slice(&buffer[..taken]);
        buffer.advance(taken);
        self.note_arrival(taken);
    }

    /// Has `read` put at most as many bytes behind those that have come as it is told.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn fill(&mut self, read: impl FnOnce(&mut Vec<u8>, usize) -> io::Result<usize>) -> io::Result<usize> {
        self.grow_for(1);
        let room = (self.memory.capacity() - self.memory.len()).min(self.missing()).min(READ_BYTES_MAX);
        let got = read(&mut self.memory, room)?;
        self.note_arrival(got);
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

    fn note_arrival(&mut self, more: usize) {
        match self.grant {
            Some(Grant::Reserved) => {}
            Some(Grant::Beyond) => _ = self.pool.beyond.fetch_add(more, Ordering::Relaxed),
            None => {
                self.pool.count(&self.of, more);
                self.counted += more;
            }
        }
        if self.missing() == 0 {
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

    /// Whole, and no longer counted: what is made of it has memory of its own.
    pub fn into_bytes(mut self) -> Bytes {
        self.end_kept();
        self.release().into()
    }

    /// Nothing of it counts any more.
    fn release(&mut self) -> Vec<u8> {
        self.rest();
        let (memory, counted) = (std::mem::take(&mut self.memory), std::mem::take(&mut self.counted));
        self.pool.give_back(&self.of, counted);
        if self.grant.take() == Some(Grant::Beyond) {
            self.pool.beyond.fetch_sub(memory.len() - counted, Ordering::Relaxed);
            self.pool.end_beyond();
        }
        memory
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let memory = self.release();
        self.pool.keep(memory, self.kept > 0);
    }
}

#[cfg(test)]
mod tests;
