//! Memory of what clients have begun and not finished: contents whose frames have not all come, and open transactions, over all channels.
//! Only their client can finish them, so reading less of it frees nothing. What finds no room waits for a while, because other clients may
//! finish, and is then refused with 311. While somebody waits, what does not get on gives way: its channel is closed with 311. Publishes that wait for a journal finish by themselves, and are counted in
//! [`crate::session::pressure`].
//!
//! A connection counts with plain additions, and settles with the node when a turn of reading ends.
//!
//! | holder | bound |
//! |---|---|
//! | connection | a quarter of all, at least [`CONNECTION_MIN`]; [`ALWAYS_BYTES`] are counted and never refused |
//! | user, or address of clients without one | what it leaves free: half of all while no other holds anything |
//! | node | a share of the memory budget |
//!
//! A body that comes in one frame is not kept, so a connection that publishes such messages never waits for this.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;

/// Unless [`UnfinishedMemory::set_max`] says otherwise.
const DEFAULT_MAX: usize = 256 << 20;
/// Bytes of a connection that are counted and never refused: one message on its way, without its body.
const ALWAYS_BYTES: usize = 4 << 10;
/// A connection may hold so much in any case, while there is room: the largest message, with its properties.
const CONNECTION_MIN: usize = 17 << 20;
/// Part of all that a connection may hold.
const CONNECTION_SHARE: usize = 4;
/// Who finds no room waits so long, at most.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// While a connection holds something, it is looked at whether others wait, after this long.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// It is looked for again after this long.
const RETRY: Duration = Duration::from_millis(50);

/// Whose memory it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    User(Box<str>),
    /// Of clients that have not logged in. Of IPv6 its network of 64 bits.
    Address(IpAddr),
}

impl Holder {
    pub fn of(user: Option<&str>, address: IpAddr) -> Self {
        match (user, address) {
            (Some(user), _) => Self::User(user.into()),
            (None, IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
                Self::Address(IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()))
            }
            (None, address) => Self::Address(address.to_canonical()),
        }
    }
}

/// What all connections hold.
pub(crate) struct UnfinishedMemory {
    used: AtomicUsize,
    max: AtomicUsize,
    refused: AtomicU64,
    /// Connections that wait for room.
    waiting: AtomicUsize,
    /// Of those with a connection that holds, or held, more than [`ALWAYS_BYTES`].
    holders: Mutex<HashMap<Holder, Arc<AtomicUsize>>>,
}

impl Default for UnfinishedMemory {
    fn default() -> Self {
        let (used, max, waiting) = (AtomicUsize::new(0), AtomicUsize::new(DEFAULT_MAX), AtomicUsize::new(0));
        Self { used, max, refused: AtomicU64::new(0), waiting, holders: Mutex::default() }
    }
}

impl UnfinishedMemory {
    /// Bytes of all, at most; never less than what the largest message takes.
    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes.max(2 * CONNECTION_MIN), Ordering::Relaxed);
    }

    /// Bytes, as of the last turn of each connection.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How often something was refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// May more be held?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Yes,
    /// Not yet: to be asked again then.
    Later(Instant),
    No,
}

/// What a connection holds.
pub(crate) struct Unfinished {
    of: Arc<UnfinishedMemory>,
    bytes: usize,
    /// Of these, what is counted with the node's.
    settled: usize,
    /// With other connections of the same holder, once it has held more than [`ALWAYS_BYTES`].
    shared: Option<(Holder, Arc<AtomicUsize>)>,
    short_since: Option<Instant>,
}

impl Unfinished {
    pub fn new(of: &Arc<UnfinishedMemory>) -> Self {
        Self { of: Arc::clone(of), bytes: 0, settled: 0, shared: None, short_since: None }
    }

    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub fn sub(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.bytes, "what was not added goes");
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// When to look whether [`Self::gives_way`].
    pub fn next(&self, now: Instant) -> Option<Instant> {
        (self.bytes > ALWAYS_BYTES).then(|| now + LOOK_AGAIN)
    }

    /// Does somebody else wait for room that is taken here?
    pub fn gives_way(&self) -> bool {
        self.bytes > ALWAYS_BYTES && self.short_since.is_none() && self.of.waiting.load(Ordering::Relaxed) > 0
    }

    fn waits_no_more(&mut self) {
        if self.short_since.take().is_some() {
            self.of.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// May so many bytes be added? They are not. Without a time who asks cannot wait.
    pub fn room(&mut self, more: usize, now: Option<Instant>, holder: impl FnOnce() -> Holder) -> Room {
        let own = self.bytes + more;
        if more == 0 || own <= ALWAYS_BYTES {
            return Room::Yes;
        }
        let (_, shared) = self.shared.get_or_insert_with(|| {
            let holder = holder();
            let shared = Arc::clone(self.of.holders.lock().entry(holder.clone()).or_default());
            shared.fetch_add(self.settled, Ordering::Relaxed);
            (holder, shared)
        });
        let max = self.of.max.load(Ordering::Relaxed);
        let connection_max = (max / CONNECTION_SHARE).max(CONNECTION_MIN);
        let with_own = |all: &AtomicUsize| all.load(Ordering::Relaxed).saturating_sub(self.settled) + own;
        let (of_node, of_holder) = (with_own(&self.of.used), with_own(shared));
        if own <= connection_max && of_holder <= max.saturating_sub(of_node) {
            self.waits_no_more();
            return Room::Yes;
        }
        // Where nobody else holds anything, nobody else can finish.
        if let Some(now) = now.filter(|_| own <= connection_max && of_node > own) {
            let since = *self.short_since.get_or_insert_with(|| {
                self.of.waiting.fetch_add(1, Ordering::Relaxed);
                now
            });
            if now.saturating_duration_since(since) < WAIT_MAX {
                return Room::Later(now + RETRY);
            }
        }
        self.waits_no_more();
        self.of.refused.fetch_add(1, Ordering::Relaxed);
        Room::No
    }

    /// Counts what has changed with what all hold.
    pub fn settle(&mut self) {
        if self.bytes == self.settled {
            return;
        }
        let (from, to) = (std::mem::replace(&mut self.settled, self.bytes), self.bytes);
        for all in std::iter::once(&self.of.used).chain(self.shared.iter().map(|(_, shared)| &**shared)) {
            if to >= from {
                all.fetch_add(to - from, Ordering::Relaxed);
            } else {
                all.fetch_sub(from - to, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.bytes = 0;
        self.settle();
        self.waits_no_more();
        if let Some((holder, shared)) = self.shared.take() {
            let mut holders = self.of.holders.lock();
            drop(shared);
            if holders.get(&holder).is_some_and(|shared| Arc::strong_count(shared) == 1) {
                holders.remove(&holder);
            }
        }
    }
}

#[cfg(test)]
mod tests;
