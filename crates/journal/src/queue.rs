//! The way into the journal: a bounded intake that every shard pushes to, and behind it, owned by the
//! writer, one lane per connection from which chunks are filled by deficit round-robin. Order within a
//! connection is kept; a connection with bulk cannot hold back the others.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use types::{ConnectionId, ShardId};

use crate::append::{Append, AppendItem, AppendResults, ReplyTo};
use crate::disk::Waker;

/// Bytes that may wait for the writer.
pub(crate) const QUEUE_BYTES_MAX: usize = 8 << 20;
/// Requests above this size may use only three quarters of the queue.
const SMALL_REQUEST_BYTES: usize = 64 << 10;
/// What a lane may place before the next one gets its turn.
const QUANTUM_BYTES: usize = 64 << 10;
/// Weight of an item beyond its body: directory entry and bookkeeping.
const ITEM_OVERHEAD_BYTES: usize = 64;

/// The shared end of the queue.
pub(crate) struct Intake {
    waiting: Mutex<Vec<Append>>,
    queued_bytes: AtomicUsize,
    /// Shards that were refused, as a bit set.
    refused: AtomicU64,
    writer_sleeps: AtomicBool,
    waker: OnceLock<Waker>,
}

fn weight(append: &Append) -> usize {
    append.items.iter().map(|item| item.body_bytes() + ITEM_OVERHEAD_BYTES).sum()
}

impl Intake {
    pub fn new() -> Self {
        Self {
            waiting: Mutex::new(Vec::new()),
            queued_bytes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            writer_sleeps: AtomicBool::new(false),
            waker: OnceLock::new(),
        }
    }

    pub fn set_waker(&self, waker: Waker) {
        assert!(self.waker.set(waker).is_ok(), "a journal has one writer");
    }

    /// Queues an append, or gives it back when the queue is full; `Space` follows then.
    pub fn push(&self, append: Append) -> Result<(), Append> {
        let bytes = weight(&append);
        let limit = if bytes > SMALL_REQUEST_BYTES { QUEUE_BYTES_MAX / 4 * 3 } else { QUEUE_BYTES_MAX };
        let fits = |queued: usize| (queued == 0 || queued + bytes <= limit).then_some(queued + bytes);
        if self.queued_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_err() {
            self.refused.fetch_or(1 << (append.to.shard.0 % 64), Ordering::SeqCst);
            // The writer may have emptied the queue meanwhile, and then nobody would send `Space`.
            if self.queued_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_err() {
                return Err(append);
            }
        }
        self.waiting.lock().push(append);
        self.wake();
        Ok(())
    }

    /// Makes the writer look again.
    pub fn wake(&self) {
        if self.writer_sleeps.swap(false, Ordering::SeqCst)
            && let Some(waker) = self.waker.get()
        {
            waker();
        }
    }

    /// Wakes the writer even if it did not say that it sleeps.
    pub fn wake_always(&self) {
        self.writer_sleeps.store(false, Ordering::SeqCst);
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// Says that the writer is about to wait; false when something is there already.
    pub fn may_sleep(&self) -> bool {
        self.writer_sleeps.store(true, Ordering::SeqCst);
        let nothing = self.waiting.lock().is_empty();
        if !nothing {
            self.writer_sleeps.store(false, Ordering::SeqCst);
        }
        nothing
    }

    /// Takes everything that waits.
    pub fn take(&self, into: &mut Vec<Append>) {
        self.writer_sleeps.store(false, Ordering::SeqCst);
        std::mem::swap(&mut *self.waiting.lock(), into);
    }

    /// Bytes that have left the queue; returns the shards to be told, as a bit set.
    pub fn leave(&self, bytes: usize) -> u64 {
        let before = self.queued_bytes.fetch_sub(bytes, Ordering::SeqCst);
        assert!(before >= bytes, "what leaves the queue had entered it");
        if before - bytes <= QUEUE_BYTES_MAX / 2 && self.refused.load(Ordering::SeqCst) != 0 {
            self.refused.swap(0, Ordering::SeqCst)
        } else {
            0
        }
    }

    /// Is there anything that the writer has not taken?
    pub fn has_waiting(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// Bytes waiting now.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Relaxed)
    }
}

/// An append that is being placed, item by item.
pub(crate) struct Placing {
    pub to: ReplyTo,
    pub acknowledge: bool,
    pub results: AppendResults,
    /// Some item needs a flush before the answer.
    pub fsync: bool,
    items: VecDeque<AppendItem>,
}

#[derive(Default)]
struct Lane {
    requests: VecDeque<Placing>,
    deficit: usize,
}

/// What the consumer of [`Lanes::fill`] says about an item.
pub(crate) enum Place {
    /// Placed, or answered with an error.
    Done,
    /// The chunk is full: the item stays.
    Full(AppendItem),
}

/// The writer's end of the queue.
#[derive(Default)]
pub(crate) struct Lanes {
    by_connection: HashMap<(ShardId, ConnectionId), Lane>,
    turn: VecDeque<(ShardId, ConnectionId)>,
    bytes: usize,
}

impl Lanes {
    pub fn push(&mut self, append: Append) {
        self.bytes += weight(&append);
        let key = (append.to.shard, append.to.connection);
        let lane = self.by_connection.entry(key).or_default();
        if lane.requests.is_empty() {
            self.turn.push_back(key);
        }
        lane.requests.push_back(Placing {
            to: append.to,
            acknowledge: append.acknowledge,
            results: AppendResults::new(),
            fsync: false,
            items: append.items.into(),
        });
    }

    pub fn is_empty(&self) -> bool {
        self.turn.is_empty()
    }

    /// Bytes waiting in the lanes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Offers items in fair order to `place` until it is full or nothing is left. Requests that are placed
    /// whole go to `finished`. Returns the weight that left the queue.
    pub fn fill(
        &mut self,
        mut place: impl FnMut(&mut Placing, AppendItem) -> Place,
        finished: &mut Vec<Placing>,
    ) -> usize {
        let before = self.bytes;
        while let Some(key) = self.turn.front().copied() {
            let alone = self.turn.len() == 1;
            let lane = self.by_connection.get_mut(&key).expect("a lane in turn exists");
            lane.deficit += QUANTUM_BYTES;
            while let Some(request) = lane.requests.front_mut() {
                let Some(item) = request.items.pop_front() else {
                    finished.extend(lane.requests.pop_front());
                    continue;
                };
                let bytes = item.body_bytes() + ITEM_OVERHEAD_BYTES;
                if bytes > lane.deficit && !alone {
                    // An item larger than a quantum waits until its lane has saved up for it.
                    request.items.push_front(item);
                    break;
                }
                match place(request, item) {
                    Place::Done => {
                        self.bytes -= bytes;
                        lane.deficit = lane.deficit.saturating_sub(bytes);
                    }
                    Place::Full(item) => {
                        request.items.push_front(item);
                        return before - self.bytes;
                    }
                }
            }
            if lane.requests.is_empty() {
                self.by_connection.remove(&key);
                self.turn.pop_front();
            } else {
                self.turn.rotate_left(1);
            }
        }
        before - self.bytes
    }

    /// Takes everything out, for a journal that has stopped.
    pub fn drain(&mut self) -> (Vec<Placing>, usize) {
        self.turn.clear();
        let requests = self.by_connection.drain().flat_map(|(_, lane)| lane.requests).collect();
        (requests, std::mem::take(&mut self.bytes))
    }
}

impl Placing {
    /// Items that have no result yet.
    pub fn unplaced(&self) -> usize {
        self.items.len()
    }
}
