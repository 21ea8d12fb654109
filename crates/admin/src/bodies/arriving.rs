//! Bodies while they come: their bytes count as they come, whatever was announced, and one that does not go on gives its room to those who wait for it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Unread;

/// So many bytes of each body have room in any case: the least that memory is taken for.
const FREE: usize = 16 << 10;
/// While others wait for its room, so many bytes of a body have to come …
const PACE_BYTES: usize = 32 << 10;
/// … in this time.
const PACE_SPAN: Duration = Duration::from_secs(2);

/// Room for the bodies that are read at once, in bytes. A user has at most as much as he leaves free.
pub(super) struct Room {
    total: usize,
    held: Mutex<Option<Held>>,
    freed: Notify,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Held {
    all: usize,
    of: HashMap<Box<str>, usize>,
}

impl Room {
    pub const fn new(total: usize) -> Self {
        Self { total, held: Mutex::new(None), freed: Notify::const_new(), waiting: AtomicUsize::new(0) }
    }

    /// Nothing yet, for a body that `user` sends.
    pub fn begin(&self, user: &str) -> Share<'_> {
        Share { room: self, user: user.into(), bytes: 0 }
    }

    pub fn take(&self, user: &str, more: usize) -> bool {
        let mut held = self.held.lock();
        let held = held.get_or_insert_default();
        let own = held.of.get(user).copied().unwrap_or(0) + more;
        if own > self.total.saturating_sub(held.all + more) {
            return false;
        }
        held.all += more;
        held.of.insert(user.into(), own);
        true
    }

    pub fn give_back(&self, user: &str, bytes: usize) {
        let mut held = self.held.lock();
        let held = held.get_or_insert_default();
        held.all -= bytes;
        if let Some(own) = held.of.get_mut(user) {
            *own -= bytes;
            if *own == 0 {
                held.of.remove(user);
            }
        }
        self.freed.notify_waiters();
    }
}

/// What a body has of a room, until this is dropped.
pub(super) struct Share<'a> {
    room: &'a Room,
    user: Box<str>,
    bytes: usize,
}

impl Share<'_> {
    /// Has room for so many bytes in all, once others have left it.
    async fn grow(&mut self, to: usize) {
        let more = to.saturating_sub(FREE).saturating_sub(self.bytes);
        if more == 0 {
            return;
        }
        let _waiting = Waiting::new(&self.room.waiting);
        loop {
            // Before the look, so that nothing is missed between that and the wait.
            let mut freed = std::pin::pin!(self.room.freed.notified());
            freed.as_mut().enable();
            if self.room.take(&self.user, more) {
                self.bytes += more;
                return;
            }
            freed.await;
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.give_back(&self.user, self.bytes);
        }
    }
}

/// Somebody who waits, as long as this lives.
pub(super) struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    pub fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Of what a body takes its bytes.
pub(super) enum Source<'a> {
    /// Of a room, as they come.
    Share(Share<'a>),
    /// It has room for all of them already, for which so many others wait.
    Reserved(&'a AtomicUsize),
}

impl<'a> Source<'a> {
    /// How many others wait for what this body has.
    fn waiting(&self) -> usize {
        match self {
            Self::Share(share) if share.bytes == 0 => 0,
            Self::Share(share) => share.room.waiting.load(Ordering::Relaxed),
            Self::Reserved(waiting) => waiting.load(Ordering::Relaxed),
        }
    }

    async fn grow(&mut self, to: usize, until: Instant) -> Result<(), Unread> {
        match self {
            Self::Share(share) => timeout_at(until, share.grow(to)).await.map_err(|_| Unread::Busy),
            Self::Reserved(_) => Ok(()),
        }
    }

    fn into_share(self) -> Option<Share<'a>> {
        match self {
            Self::Share(share) => Some(share),
            Self::Reserved(_) => None,
        }
    }
}

/// Gathers a body of at most `most` bytes, which has come `within` a time.
///
/// # Errors
/// It is longer, or too slow, or there was no room for it.
pub(super) async fn gather(mut body: Body, most: usize, within: Duration, mut source: Source<'_>) -> Result<(Vec<u8>, Option<Share<'_>>), Unread> {
    let began = Instant::now();
    // A time that nobody lives to see is none.
    let until = began.checked_add(within).unwrap_or_else(|| began + Duration::from_secs(86_400));
    let (mut bytes, mut span) = (Vec::new(), (began + PACE_SPAN, 0));
    loop {
        let next = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = match timeout_at(span.0.min(until), next).await {
            Ok(Some(frame)) => Some(frame.map_err(|_| Unread::TooLarge)?),
            Ok(None) => return Ok((bytes, source.into_share())),
            Err(_) => None,
        };
        if let Some(part) = frame.and_then(|frame| frame.into_data().ok()) {
            let length = bytes.len() + part.len();
            if length > most {
                return Err(Unread::TooLarge);
            }
            if length > bytes.capacity() {
                let capacity = length.next_power_of_two().min(most);
                let waits = Instant::now();
                source.grow(capacity, until).await?;
                // Nobody can be slow while he is kept waiting.
                span.0 += waits.elapsed();
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&part);
            span.1 += part.len();
        }
        let now = Instant::now();
        if now >= until {
            return Err(Unread::TooSlow);
        }
        if now >= span.0 {
            if span.1 < PACE_BYTES && source.waiting() > 0 {
                return Err(Unread::TooSlow);
            }
            span = (now + PACE_SPAN, 0);
        }
    }
}
