//! Memory of what clients have begun and not finished: contents whose frames have not all come, and open transactions, over all channels.
//! Publishes that wait for a journal finish by themselves, and are counted in [`crate::session::pressure`].
//!
//! Only its client can finish what has begun, so a content is counted whole when the first frame of its body has come: what finds room then can be finished,
//! whatever comes of others. What finds none waits, and nothing is read from its connection meanwhile; the first in line, where holders take turns, may go beyond the bound after
//! [`BEYOND_AFTER`], one connection at a time until it has nothing left. So none waits for ever, apart from a connection that holds something on other channels and lets
//! others wait for that: it is refused with 311 after [`WAIT_MAX`]. While somebody waits, what does not get on and is in the way gives way: its channel is closed with 311.
//!
//! A connection counts with plain additions, and settles with the node when a turn of reading ends.
//!
//! | holder | bound |
//! |---|---|
//! | connection | half of all, at least [`CONNECTION_MIN`]; [`ALWAYS_BYTES`] are counted and never refused |
//! | user, or address of clients without one | what it leaves free: half of all while no other holds anything |
//! | node | a share of the memory budget, and what one connection may hold |
//!
//! A body that comes in one frame is not kept, so a connection that publishes such messages never waits for this.

use std::collections::VecDeque;
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
const CONNECTION_SHARE: usize = 2;
/// Who is first in line goes beyond the bound after so long: most finish sooner.
const BEYOND_AFTER: Duration = Duration::from_secs(1);
/// Who is beyond the bound may begin more for so long.
const BEYOND_MAX: Duration = Duration::from_secs(10);
/// Who holds something waits so long, at most.
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
    line: Mutex<Line>,
    /// Of those with a connection that holds, or held, more than [`ALWAYS_BYTES`].
    holders: Mutex<HashMap<Holder, Arc<HolderUse>>>,
}

/// Connections that wait, in order.
#[derive(Default)]
struct Line {
    /// The number of the next.
    next: u64,
    /// Each with the holder, by where that is counted.
    waiting: VecDeque<(u64, usize)>,
    /// A connection is beyond the bound.
    beyond: bool,
    /// The holder of the one that was last.
    last: usize,
}

impl Line {
    /// Who goes beyond the bound next: the first whose holder was not the last to do so, or the first of all.
    fn first(&self) -> Option<u64> {
        let of_another = self.waiting.iter().find(|(_, holder)| *holder != self.last);
        of_another.or(self.waiting.front()).map(|(number, _)| *number)
    }
}

/// What all connections of a holder have.
#[derive(Default)]
struct HolderUse {
    bytes: AtomicUsize,
    waiting: AtomicUsize,
}

impl Default for UnfinishedMemory {
    fn default() -> Self {
        let (used, max, waiting) = (AtomicUsize::new(0), AtomicUsize::new(DEFAULT_MAX), AtomicUsize::new(0));
        Self { used, max, refused: AtomicU64::new(0), waiting, line: Mutex::default(), holders: Mutex::default() }
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
    shared: Option<(Holder, Arc<HolderUse>)>,
    /// Its number in line, since then.
    waits: Option<(u64, Instant)>,
    /// It may go beyond the bound, since then.
    beyond: Option<Instant>,
    /// Nothing was read of it the last time that it was looked at, by the broker's own decision.
    unread: Option<Instant>,
    /// It was looked at whether it gives way.
    looked: Option<Instant>,
}

impl Unfinished {
    pub fn new(of: &Arc<UnfinishedMemory>) -> Self {
        Self {
            of: Arc::clone(of),
            bytes: 0,
            settled: 0,
            shared: None,
            waits: None,
            beyond: None,
            unread: None,
            looked: None,
        }
    }

    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub fn sub(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.bytes, "what was not added goes");
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// When to look whether [`Self::gives_way`], however much is done meanwhile.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        (self.bytes > ALWAYS_BYTES).then(|| self.looked.map_or(now, |looked| looked + LOOK_AGAIN))
    }

    /// Does somebody else wait for room that is taken here: one of the same holder, or any while the holder has more than it leaves free?
    pub fn gives_way(&self) -> bool {
        let Some((_, shared)) = self.shared.as_ref().filter(|_| self.bytes > ALWAYS_BYTES && self.waits.is_none())
        else {
            return false;
        };
        let free = || self.of.max.load(Ordering::Relaxed).saturating_sub(self.of.used());
        self.of.waiting.load(Ordering::Relaxed) > 0
            && (shared.waiting.load(Ordering::Relaxed) > 0 || shared.bytes.load(Ordering::Relaxed) > free())
    }

    /// It is looked at whether it gives way.
    pub fn note_look(&mut self, now: Instant) {
        self.looked = Some(now);
    }

    /// The broker itself reads nothing of the connection now.
    pub fn note_unread(&mut self, now: Instant) {
        self.unread = Some(now);
    }

    /// What came last of something that has begun came at `at`, or could have come since then.
    pub fn could_come_since(&self, at: Instant) -> Instant {
        self.unread.map_or(at, |unread| unread.max(at))
    }

    /// What it waited for has room, or is gone.
    pub fn wait_no_more(&mut self) {
        if let Some((number, _)) = self.waits.take() {
            self.of.line.lock().waiting.retain(|(other, _)| *other != number);
            self.count_waiting(false);
        }
    }

    fn count_waiting(&self, more: bool) {
        for counter in std::iter::once(&self.of.waiting).chain(self.shared.iter().map(|(_, shared)| &shared.waiting)) {
            if more {
                counter.fetch_add(1, Ordering::Relaxed);
            } else {
                counter.fetch_sub(1, Ordering::Relaxed);
            }
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
            shared.bytes.fetch_add(self.settled, Ordering::Relaxed);
            (holder, shared)
        });
        let max = self.of.max.load(Ordering::Relaxed);
        let connection_max = (max / CONNECTION_SHARE).max(CONNECTION_MIN);
        let with_own = |all: &AtomicUsize| all.load(Ordering::Relaxed).saturating_sub(self.settled) + own;
        let (of_node, of_holder) = (with_own(&self.of.used), with_own(&shared.bytes));
        if own <= connection_max {
            if of_holder <= max.saturating_sub(of_node) || self.is_beyond(now) {
                self.wait_no_more();
                return Room::Yes;
            }
            if let Some(now) = now {
                let since = self.wait(now);
                if self.goes_beyond(now, since) {
                    self.wait_no_more();
                    return Room::Yes;
                }
                if self.bytes <= ALWAYS_BYTES || now.saturating_duration_since(since) < WAIT_MAX {
                    return Room::Later(now + RETRY);
                }
            }
        }
        self.wait_no_more();
        self.of.refused.fetch_add(1, Ordering::Relaxed);
        Room::No
    }

    /// It is in line; since when.
    fn wait(&mut self, now: Instant) -> Instant {
        if let Some((_, since)) = self.waits {
            return since;
        }
        let mut line = self.of.line.lock();
        let number = line.next;
        line.next += 1;
        line.waiting.push_back((number, self.holder()));
        drop(line);
        self.waits = Some((number, now));
        self.count_waiting(true);
        now
    }

    fn holder(&self) -> usize {
        self.shared.as_ref().map_or(0, |(_, shared)| Arc::as_ptr(shared) as usize)
    }

    fn is_beyond(&self, now: Option<Instant>) -> bool {
        let is_over = |since| now.is_some_and(|now| now.saturating_duration_since(since) >= BEYOND_MAX);
        self.beyond.is_some_and(|since| self.of.waiting.load(Ordering::Relaxed) == 0 || !is_over(since))
    }

    /// Is it the first in line, and no other beyond the bound? Then it is.
    fn goes_beyond(&mut self, now: Instant, since: Instant) -> bool {
        let Some((number, _)) = self.waits.filter(|_| now.saturating_duration_since(since) >= BEYOND_AFTER) else {
            return false;
        };
        let mut line = self.of.line.lock();
        let goes = !line.beyond && line.first() == Some(number);
        if goes {
            (line.beyond, line.last) = (true, self.holder());
            self.beyond = Some(now);
        }
        goes
    }

    /// Counts what has changed with what all hold.
    pub fn settle(&mut self) {
        if self.bytes <= ALWAYS_BYTES && self.beyond.take().is_some() {
            self.of.line.lock().beyond = false;
        }
        if self.bytes == self.settled {
            return;
        }
        let (from, to) = (std::mem::replace(&mut self.settled, self.bytes), self.bytes);
        for all in std::iter::once(&self.of.used).chain(self.shared.iter().map(|(_, shared)| &shared.bytes)) {
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
        self.wait_no_more();
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
