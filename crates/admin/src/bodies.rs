//! Bodies of requests, read once it is known that who sends them may: how long they may be and may take to come, and how much memory may be made
//! of their JSON, of which a byte can become a hundred. What a body takes is given back when the work on it ends, also if who has sent it has
//! gone by then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// A body that is not longer is read at once, whatever others there are.
pub(crate) const SMALL_MAX: usize = 1 << 20;
/// Longer ones together, in KiB.
const LARGE_TOGETHER_KIB: usize = 32 << 10;
/// The longest body, in bytes: all that may be there together.
pub(crate) const LARGEST: usize = LARGE_TOGETHER_KIB << 10;
/// One that is not small may take so many times as long to come.
const LARGE_TIMES: u32 = 4;
/// What is made of all bodies that are worked on may take so much memory in any case, in KiB.
const MEMORY_MIN_KIB: usize = 64 << 10;
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
}

/// How long a body may take to come, after its head; one that is not small waits as long for others to be done with. Requests carry it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within(pub Duration);

static LARGE: Semaphore = Semaphore::const_new(LARGE_TOGETHER_KIB);

/// Memory for what is made of bodies.
struct Memory {
    free: Semaphore,
    total_kib: AtomicUsize,
}

static MEMORY: Memory = Memory { free: Semaphore::const_new(MEMORY_MIN_KIB), total_kib: AtomicUsize::new(MEMORY_MIN_KIB) };

/// Bodies that are worked on, with all that is made of them, may take so many bytes of memory; 64 MiB at least. At the start.
pub fn set_body_memory(bytes: usize) {
    MEMORY.enlarge(bytes >> 10);
}

impl Memory {
    fn enlarge(&self, to_kib: usize) {
        let before = self.total_kib.fetch_max(to_kib, Ordering::SeqCst);
        self.free.add_permits(to_kib.saturating_sub(before));
    }

    /// Memory for a body of which so many bytes will be made.
    async fn take(&self, bytes: usize, time: Duration) -> Result<Option<SemaphorePermit<'_>>, Unread> {
        if bytes <= UNCOUNTED {
            return Ok(None);
        }
        let kib = bytes.div_ceil(1 << 10);
        if kib > self.total_kib.load(Ordering::SeqCst) {
            return Err(Unread::TooMuch);
        }
        let kib = u32::try_from(kib).map_err(|_| Unread::TooMuch)?;
        timeout(time, self.free.acquire_many(kib)).await.map_err(|_| Unread::Busy)?.map(Some).map_err(|_| Unread::Busy)
    }
}

/// Why a body is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLarge,
    TooSlow,
    /// Others that are large have to be done with first.
    Busy,
    /// More would be made of it than of others of its length.
    TooManyValues,
    /// More would be made of it than there is memory for.
    TooMuch,
}

/// A body, and what it takes until the work on it ends: whoever works on it holds all of this.
pub(crate) struct Read {
    bytes: Vec<u8>,
    _room: Option<SemaphorePermit<'static>>,
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

/// Reads a body.
///
/// # Errors
/// See [`Unread`].
pub(crate) async fn read(parts: &Parts, body: Body, bounds: Bounds) -> Result<Read, Unread> {
    let Within(time) = parts.extensions.get().copied().unwrap_or(Within(Duration::MAX));
    read_within(time, &parts.headers, body, bounds).await
}

async fn read_within(time: Duration, headers: &HeaderMap, body: Body, bounds: Bounds) -> Result<Read, Unread> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > bounds.bytes) {
        return Err(Unread::TooLarge);
    }
    let expected = announced.unwrap_or(bounds.bytes);
    let room = if expected > SMALL_MAX {
        let kib = u32::try_from(expected.div_ceil(1 << 10)).map_err(|_| Unread::TooLarge)?;
        Some(timeout(time, LARGE.acquire_many(kib)).await.map_err(|_| Unread::Busy)?.map_err(|_| Unread::Busy)?)
    } else {
        None
    };
    let time = if room.is_some() { time.saturating_mul(LARGE_TIMES) } else { time };
    let read = timeout(time, axum::body::to_bytes(body, expected)).await.map_err(|_| Unread::TooSlow)?;
    let bytes: Vec<u8> = read.map_err(|_| Unread::TooLarge)?.into();
    let made = memory(&bytes);
    if made > MEMORY_BASE + bytes.len() * bounds.memory_of_byte {
        return Err(Unread::TooManyValues);
    }
    let memory = MEMORY.take(bytes.len() + made, time).await?;
    Ok(Read { bytes, _room: room, _memory: memory })
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
mod tests {
    use super::*;

    #[test]
    fn values_outside_of_text_take_memory() {
        assert_eq!(memory(b"{}"), 0);
        assert_eq!(memory(br#"{"a,[": [1, 2, "\",,,", {"b": null}]}"#), 2 * OBJECT_BYTES + 4 * ELEMENT_BYTES + 2 * KEY_BYTES);
        assert_eq!(memory("[".repeat(1000).as_bytes()), 1000 * ELEMENT_BYTES);
    }

    fn announces(bytes: usize) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_LENGTH, bytes.to_string().parse().expect("digits"))])
    }

    fn refused(outcome: Result<Read, Unread>) -> Option<Unread> {
        outcome.err()
    }

    #[tokio::test]
    async fn bodies_are_bounded_in_bytes_values_and_together() {
        let nested = "[1],".repeat(30_000);
        assert_eq!(refused(read_within(LONG, &HeaderMap::new(), Body::from(nested), Bounds::USUAL).await), Some(Unread::TooManyValues));
        let queues = r#"{"name": "orders", "durable": true, "arguments": {}},"#.repeat(30_000);
        let read_all = read_within(LONG, &HeaderMap::new(), Body::from(queues.clone()), Bounds::DEFINITIONS).await.map(|read| read.bytes().len());
        assert_eq!(read_all, Ok(queues.len()));
        assert_eq!(refused(read_within(LONG, &announces(SMALL_MAX + 1), Body::empty(), Bounds::USUAL).await), Some(Unread::TooLarge));
        assert_eq!(refused(read_within(LONG, &announces(10), Body::from("x".repeat(11)), Bounds::USUAL).await), Some(Unread::TooLarge), "it is longer than was said");
    }

    #[tokio::test]
    async fn what_is_made_of_bodies_is_bounded_together() {
        let memory = Memory { free: Semaphore::const_new(100), total_kib: AtomicUsize::new(100) };
        let refused = async |bytes: usize| memory.take(bytes, SHORT).await.err();
        assert_eq!((refused(1 << 20).await, refused(UNCOUNTED).await), (Some(Unread::TooMuch), None));
        let first = memory.take(80 << 10, SHORT).await.expect("there is room");
        assert_eq!((refused(80 << 10).await, refused(UNCOUNTED).await), (Some(Unread::Busy), None));
        drop(first);
        assert_eq!(refused(80 << 10).await, None);
        memory.enlarge(2000);
        memory.enlarge(1000);
        assert_eq!((refused(1 << 20).await, memory.free.available_permits()), (None, 2000));
    }

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn who_is_slow_or_large_keeps_others_waiting_for_a_time_at_most() {
        let first = read_within(LONG, &announces(LARGEST), Body::from("{}"), Bounds::DEFINITIONS).await.expect("there is room");
        let large = || announces(SMALL_MAX + 1);
        assert_eq!(refused(read_within(SHORT, &large(), Body::from("{}"), Bounds::DEFINITIONS).await), Some(Unread::Busy));
        assert!(read_within(SHORT, &announces(2), Body::from("{}"), Bounds::DEFINITIONS).await.is_ok(), "small ones do not wait");
        drop(first);
        assert!(read_within(SHORT, &large(), Body::from("{}"), Bounds::DEFINITIONS).await.is_ok());
        let silent = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
        assert_eq!(refused(read_within(SHORT, &announces(10), silent, Bounds::USUAL).await), Some(Unread::TooSlow));
    }
}
