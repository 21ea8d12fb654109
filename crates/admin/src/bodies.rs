//! Bodies of requests, read once it is known that who sends them may: how long they may be and may take to come, and how much memory may be made
//! of their JSON, of which a byte can become a hundred. What a body takes is given back when the work on it ends, also if who has sent it has
//! gone by then.

mod arriving;
mod room;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use arriving::{Times, gather};
use room::{Room, Rule, Share};

/// A body that is not longer is small.
pub(crate) const SMALL_MAX: usize = 1 << 20;
/// Room for these together, in bytes: a part of the memory budget …
const SMALL_SHARE: usize = 32;
/// … within these bounds.
const SMALL_TOGETHER: (usize, usize) = (4 << 20, 16 << 20);
/// The longest body, in bytes …
pub(crate) const LARGEST: usize = 32 << 20;
/// … which is also room for all that are not small, and at most this part of the memory budget.
const LARGE_SHARE: usize = 8;
/// One that is not small may take so many times as long to come …
const LARGE_TIMES: u32 = 4;
/// … but comes at a pace at which it has come in this time while others wait for its room: they wait for less long.
const LARGE_PACED: Duration = Duration::from_secs(10);
/// What is made of all bodies that are worked on takes this part of the memory budget …
const MEMORY_SHARE: usize = 8;
/// … beyond which a body is worked on alone, up to so much memory, in KiB.
const ALONE_MAX_KIB: usize = 64 << 10;
/// What takes no more is not counted.
const UNCOUNTED: usize = 64 << 10;
/// So many bytes of memory may be made of any body beside those of its length.
const MEMORY_BASE: usize = 1 << 20;
/// What an object, an element and a key of an object take in memory beside their texts.
const OBJECT_BYTES: usize = 640;
const ELEMENT_BYTES: usize = 72;
const KEY_BYTES: usize = 40;

/// How much is made of a body of a kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Of the body.
    pub bytes: usize,
    /// Bytes of memory for each, at most, about.
    pub memory_of_byte: usize,
}

impl Bounds {
    /// What many short objects come to.
    const MADE_OF_OBJECTS: usize = 24;
    /// Most requests.
    pub const USUAL: Self = Self { bytes: SMALL_MAX, memory_of_byte: Self::MADE_OF_OBJECTS };
    /// Tens of thousands of queues.
    pub const DEFINITIONS: Self = Self { bytes: LARGEST, ..Self::USUAL };
    /// One message, most of it text.
    pub const MESSAGE: Self = Self { bytes: LARGEST, memory_of_byte: 2 };

    /// The longest body, in bytes: no longer than what there is room for.
    pub fn longest(self) -> usize {
        self.bytes.min(LARGE.total())
    }
}

/// How long a body may take to come, after its head; it may wait as long for others to be done with. Requests carry it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within(pub Duration);

static SMALL: Room = Room::new(SMALL_TOGETHER.1, SMALL_MAX, Rule::Half);
static LARGE: Room = Room::new(LARGEST, LARGEST, Rule::OneEach);

/// Memory for what is made of bodies.
struct Memory {
    free: Semaphore,
    total_kib: AtomicUsize,
}

static MEMORY: Memory =
    Memory { free: Semaphore::const_new(ALONE_MAX_KIB), total_kib: AtomicUsize::new(ALONE_MAX_KIB) };

/// Bounds the memory of bodies, and of what is made of them, by the memory budget of the node, in bytes.
pub(crate) fn set_memory_budget(budget: usize) {
    SMALL.resize((budget / SMALL_SHARE).clamp(SMALL_TOGETHER.0, SMALL_TOGETHER.1));
    LARGE.resize((budget / LARGE_SHARE).min(LARGEST));
    MEMORY.resize((budget / MEMORY_SHARE) >> 10);
}

/// Bytes that bodies have room for, and what is made of them.
pub fn body_bytes() -> usize {
    SMALL.held() + LARGE.held() + MEMORY.used()
}

impl Memory {
    fn resize(&self, to_kib: usize) {
        let before = self.total_kib.swap(to_kib, Ordering::SeqCst);
        self.free.add_permits(to_kib.saturating_sub(before));
        self.free.forget_permits(before.saturating_sub(to_kib));
    }

    fn used(&self) -> usize {
        self.total_kib.load(Ordering::SeqCst).saturating_sub(self.free.available_permits()) << 10
    }

    /// Memory for a body of which so many bytes will be made. Where that is more than all, it is worked on while no other is.
    async fn take(&self, bytes: usize, time: Duration) -> Result<Option<SemaphorePermit<'_>>, Unread> {
        if bytes <= UNCOUNTED {
            return Ok(None);
        }
        let (kib, total) = (bytes.div_ceil(1 << 10), self.total_kib.load(Ordering::SeqCst));
        if kib > total.max(ALONE_MAX_KIB) {
            return Err(Unread::TooMuch);
        }
        let kib = u32::try_from(kib.min(total)).map_err(|_| Unread::TooMuch)?;
        timeout(time, self.free.acquire_many(kib)).await.map_err(|_| Unread::Busy)?.map(Some).map_err(|_| Unread::Busy)
    }
}

/// Why a body is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLarge,
    TooSlow,
    /// Others have to be done with first.
    Busy,
    /// More would be made of it than of others of its length.
    TooManyValues,
    /// More would be made of it than there is memory for.
    TooMuch,
}

/// A body, and what it takes until the work on it ends: whoever works on it holds all of this.
pub(crate) struct Read {
    bytes: Vec<u8>,
    _room: Option<Share<'static>>,
    _memory: Option<SemaphorePermit<'static>>,
}

impl Read {
    pub fn none() -> Self {
        Self { bytes: Vec::new(), _room: None, _memory: None }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body that `user` sends; nobody yet, if that is empty.
///
/// # Errors
/// See [`Unread`].
pub(crate) async fn read(parts: &Parts, body: Body, bounds: Bounds, user: &str) -> Result<Read, Unread> {
    let Within(time) = parts.extensions.get().copied().unwrap_or(Within(Duration::MAX));
    read_within(time, &parts.headers, body, bounds, user).await
}

async fn read_within(
    time: Duration,
    headers: &HeaderMap,
    body: Body,
    bounds: Bounds,
    user: &str,
) -> Result<Read, Unread> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let longest = bounds.longest();
    if announced.is_some_and(|bytes| bytes > longest) {
        return Err(Unread::TooLarge);
    }
    let expected = announced.unwrap_or(longest);
    let (room, times) = if expected <= SMALL_MAX {
        (&SMALL, Times { waits: time, comes: time, paced: time })
    } else {
        (&LARGE, Times { waits: time, comes: time.saturating_mul(LARGE_TIMES), paced: time.min(LARGE_PACED) })
    };
    let (bytes, share) = gather(body, expected, times, room.begin(user)).await?;
    Ok(Read { _room: Some(share), ..made_of(bytes, bounds, times.comes).await? })
}

/// A body that has come, and memory for what will be made of it.
async fn made_of(bytes: Vec<u8>, bounds: Bounds, time: Duration) -> Result<Read, Unread> {
    let made = memory(&bytes);
    if made > MEMORY_BASE + bytes.len() * bounds.memory_of_byte {
        return Err(Unread::TooManyValues);
    }
    let memory = MEMORY.take(bytes.len() + made, time).await?;
    Ok(Read { bytes, _memory: memory, ..Read::none() })
}

/// Bytes of memory that values of JSON take beside their texts, about.
fn memory(json: &[u8]) -> usize {
    let (mut bytes, mut in_text, mut escaped, mut before) = (0, false, false, 0);
    for byte in json {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (true, _) => {}
            (false, b'{') => bytes += OBJECT_BYTES,
            // An empty one takes nothing.
            (false, b'}') if before == b'{' => bytes -= OBJECT_BYTES,
            (false, b',' | b'[') => bytes += ELEMENT_BYTES,
            (false, b':') => bytes += KEY_BYTES,
            (false, _) => {}
        }
        before = *byte;
    }
    bytes
}

#[cfg(test)]
mod tests;
