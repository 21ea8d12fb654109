//! The way into the journal: a bounded intake that every shard pushes to, and behind it, owned by the
//! writer, one lane per connection from which chunks are filled by deficit round-robin. Order within a
//! connection is kept; a connection with bulk cannot hold back the others.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use types::{ConnectionId, ShardId};

use crate::append::{Append, AppendError, AppendItem, AppendResults, ReplyTo};
use crate::bell::Bell;
use crate::disk::Waker;

/// Bytes that may wait for the writer.
pub(crate) const QUEUE_BYTES_MAX: usize = 8 << 20;
/// Requests above this size may use only three quarters of the queue.
const SMALL_REQUEST_BYTES: usize = 64 << 10;
/// What a lane may place before the next one gets its turn.
const QUANTUM_BYTES: usize = 64 << 10;
/// Requests up to this size may go ahead of the bulk of other connections, in a chunk of their own.
pub(crate) const AHEAD_BYTES_MAX: usize = 16 << 10;
/// Requests without data may go beyond the limit by this much: what holds data back need not hold them.
const STATE_BYTES_MAX: usize = 2 << 20;

/// Lanes whose memory is kept, and for how many requests each.
const SPARE_LANES: usize = 64;
const SPARE_REQUESTS: usize = 8;

/// Logs are fetched from memory this many items before they are needed.
const ITEMS_AHEAD: usize = 8;

/// The writer looks into the queue before it waits.
const AWAKE: u8 = 0;
/// It waits for its submitter.
const WAITS: u8 = 1;
/// Nothing is under way: its thread rests, and somebody else may run it.
const RESTS: u8 = 2;

/// What its caller does with an append for which the disk has no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// He wants to hear of it.
    Answer,
    /// He keeps it, or it waits in its lane, until there is space.
    Wait,
    /// It frees as much as it takes: he wants it written into what is kept for that, and hears when that is used up.
    FromReserve,
}

/// An append on its way into its lane.
pub(crate) struct Arrival {
    pub append: Append,
    pub when_full: WhenFull,
}

/// The shared end of the queue.
pub(crate) struct Intake {
    waiting: Mutex<Vec<Arrival>>,
    queued_bytes: AtomicUsize,
    /// Data is not taken, or only where it finds room: who wants to hear of that need not wait for what waits.
    turns_away: AtomicBool,
    /// That has begun, and those that were refused by a full queue have not been told.
    begun: AtomicBool,
    /// Shards that were refused because the queue was full, as a bit set …
    refused: AtomicU64,
    /// … and those from which nothing was taken that would wait.
    turned_away: AtomicU64,
    /// What the writer does: `AWAKE`, `WAITS` or `RESTS`.
    writer: AtomicU8,
    waker: OnceLock<Waker>,
    bell: Bell,
}

fn bit(shard: ShardId) -> u64 {
    1 << (shard.0 % 64)
}

pub(crate) fn weight(append: &Append) -> usize {
    append.items.iter().map(AppendItem::weight).sum()
}

impl Intake {
    pub fn new() -> Self {
        Self {
            waiting: Mutex::new(Vec::new()),
            queued_bytes: AtomicUsize::new(0),
            turns_away: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            writer: AtomicU8::new(AWAKE),
            waker: OnceLock::new(),
            bell: Bell::default(),
        }
    }

    pub fn set_waker(&self, waker: Waker) {
        assert!(self.waker.set(waker).is_ok(), "a journal has one writer");
    }

    /// Queues an append, or gives it back when the queue is full; `Space` follows then.
    pub fn push(&self, append: Append, when_full: WhenFull) -> Result<(), Append> {
        self.queue(append, when_full)?;
        self.wake();
        Ok(())
    }

    /// Queues an append like [`Intake::push`]. True when the writer rested, and now is the caller's to be run or to be woken
    /// with [`Intake::ring`].
    pub fn push_for_me(&self, append: Append, when_full: WhenFull) -> Result<bool, Append> {
        self.queue(append, when_full)?;
        let mine = self.writer.compare_exchange(RESTS, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !mine {
            self.wake();
        }
        Ok(mine)
    }

    /// From now on data that finds no room is refused, or not any more.
    pub fn set_turns_away(&self, turns_away: bool) {
        if !self.turns_away.swap(turns_away, Ordering::SeqCst) && turns_away {
            self.begun.store(true, Ordering::SeqCst);
        }
    }

    /// Is it so?
    pub fn turns_away(&self) -> bool {
        self.turns_away.load(Ordering::SeqCst)
    }

    /// Notes that nothing that would wait was taken from a shard: it is to be told of `Space` when that is over.
    pub fn turn_away(&self, shard: ShardId) {
        self.turned_away.fetch_or(bit(shard), Ordering::SeqCst);
    }

    /// The shards that [`Intake::turn_away`] has noted, as a bit set, if there are any; they are noted no more.
    pub fn take_turned_away(&self) -> u64 {
        if self.turned_away.load(Ordering::SeqCst) == 0 { 0 } else { self.turned_away.swap(0, Ordering::SeqCst) }
    }

    /// When data is refused that finds no room: the shards that were refused before, as a bit set, however much is in the queue. They are told once, and noted
    /// no more.
    pub fn take_refused(&self) -> u64 {
        let begun = self.begun.load(Ordering::SeqCst) && self.begun.swap(false, Ordering::SeqCst);
        if begun { self.refused.swap(0, Ordering::SeqCst) } else { 0 }
    }

    fn queue(&self, append: Append, when_full: WhenFull) -> Result<(), Append> {
        let bytes = weight(&append);
        let data = append.items.iter().any(AppendItem::has_batch);
        let limit = match bytes {
            // One at a time, and what holds the others back may wait for it.
            _ if append.to.shard == crate::archiver::SHARD => usize::MAX / 2,
            _ if !data => QUEUE_BYTES_MAX + STATE_BYTES_MAX,
            _ if bytes > SMALL_REQUEST_BYTES => QUEUE_BYTES_MAX / 4 * 3,
            _ => QUEUE_BYTES_MAX,
        };
        let enters = || {
            // What waits for space on the disk leaves room for those who are to hear that there is none, and they find some however much waits.
            let limit = match when_full {
                WhenFull::Wait if data => limit / 4 * 3,
                WhenFull::Answer if data && self.turns_away() => usize::MAX / 2,
                _ => limit,
            };
            let fits = |queued: usize| (queued == 0 || queued + bytes <= limit).then_some(queued + bytes);
            self.queued_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
        };
        if !enters() {
            self.refused.fetch_or(bit(append.to.shard), Ordering::SeqCst);
            // The writer may have emptied the queue meanwhile, or turned others away, and then nobody would send `Space`.
            if !enters() {
                return Err(append);
            }
        }
        self.waiting.lock().push(Arrival { append, when_full });
        Ok(())
    }

    /// Makes the writer look again.
    pub fn wake(&self) {
        match self.writer.swap(AWAKE, Ordering::SeqCst) {
            WAITS => self.wake_waiting(),
            RESTS => self.ring(),
            _ => {}
        }
    }

    /// Wakes the writer even if it did not say that it waits.
    pub fn wake_always(&self) {
        self.writer.store(AWAKE, Ordering::SeqCst);
        self.wake_waiting();
        self.ring();
    }

    fn wake_waiting(&self) {
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// Ends the rest of the writer's thread, or the next one before it begins.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Rests until the bell rings, or for `limit`.
    pub fn rest(&self, limit: Option<Duration>) {
        self.bell.wait(limit);
    }

    /// Says that the writer is about to wait for its submitter; false when something is there already.
    pub fn may_wait(&self) -> bool {
        self.may_pause(WAITS)
    }

    /// Says that the writer rests; false when something is there already.
    pub fn may_rest(&self) -> bool {
        self.may_pause(RESTS)
    }

    fn may_pause(&self, how: u8) -> bool {
        self.writer.store(how, Ordering::SeqCst);
        let nothing = self.waiting.lock().is_empty();
        // Whoever came in between may have seen the pause and taken it, or woken the writer: both have been told.
        nothing || self.writer.compare_exchange(how, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_err()
    }

    /// Takes everything that waits.
    pub fn take(&self, into: &mut Vec<Arrival>) {
        self.writer.store(AWAKE, Ordering::SeqCst);
        std::mem::swap(&mut *self.waiting.lock(), into);
    }

    /// Bytes that have left the queue; returns the shards to be told, as a bit set.
    pub fn leave(&self, bytes: usize) -> u64 {
        let before = self.queued_bytes.fetch_sub(bytes, Ordering::SeqCst);
        assert!(before >= bytes, "what leaves the queue had entered it");
        // What waits stays in it, while others are refused.
        let enough = if self.turns_away() { QUEUE_BYTES_MAX / 4 * 3 } else { QUEUE_BYTES_MAX / 2 };
        if before - bytes <= enough && self.refused.load(Ordering::SeqCst) != 0 {
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
    /// Some item found no space, and why.
    pub no_space: Option<AppendError>,
    /// What is done with data for which the disk has no space.
    pub when_full: WhenFull,
    small: bool,
    items: VecDeque<AppendItem>,
}

#[derive(Default)]
struct Lane {
    requests: VecDeque<Placing>,
    deficit: usize,
}

/// Which requests go into a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// All, in fair order.
    Fair,
    /// Small ones that are first in their lanes.
    Small,
}

/// What the consumer of [`Lanes::fill`] says about an item.
pub(crate) enum Place {
    /// Placed, or answered with an error.
    Done,
    /// The chunk is full: the item stays.
    Full(AppendItem),
    /// It stays for now, and what is behind it; those of other connections are looked at.
    Held(AppendItem),
}

/// The writer's end of the queue.
#[derive(Default)]
pub(crate) struct Lanes {
    by_connection: HashMap<(ShardId, ConnectionId), Lane>,
    /// Empty; their memory is used again.
    spare: Vec<Lane>,
    turn: VecDeque<(ShardId, ConnectionId)>,
    bytes: usize,
    small_requests: usize,
    large_requests: usize,
}

impl Lanes {
    pub fn push(&mut self, Arrival { append, when_full }: Arrival) {
        let bytes = weight(&append);
        let small = bytes <= AHEAD_BYTES_MAX;
        self.bytes += bytes;
        *self.count(small) += 1;
        let key = (append.to.shard, append.to.connection);
        let spare = &mut self.spare;
        let lane = self.by_connection.entry(key).or_insert_with(|| spare.pop().unwrap_or_default());
        if lane.requests.is_empty() {
            self.turn.push_back(key);
        }
        lane.requests.push_back(Placing {
            to: append.to,
            acknowledge: append.acknowledge,
            results: AppendResults::with_capacity(append.items.len()),
            fsync: false,
            no_space: None,
            when_full,
            small,
            items: append.items.into(),
        });
    }

    fn count(&mut self, small: bool) -> &mut usize {
        if small { &mut self.small_requests } else { &mut self.large_requests }
    }

    pub fn is_empty(&self) -> bool {
        self.turn.is_empty()
    }

    /// Bytes waiting in the lanes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Does a small request wait?
    pub fn has_small(&self) -> bool {
        self.small_requests > 0
    }

    /// Does a request wait that is not small?
    pub fn has_large(&self) -> bool {
        self.large_requests > 0
    }

    /// Offers items to `place` until it is full or nothing of the pass is left: in fair order, or the small requests once
    /// around. Requests that are placed whole go to `finished`. Returns the weight that left the queue.
    pub fn fill(
        &mut self,
        pass: Pass,
        mut place: impl FnMut(&mut Placing, AppendItem) -> Place,
        finished: &mut Vec<Placing>,
    ) -> usize {
        let (before, placed_before) = (self.bytes, finished.len());
        let mut turns = if pass == Pass::Small { self.turn.len() } else { usize::MAX };
        // In a row.
        let mut held = 0;
        while turns > 0
            && held < self.turn.len()
            && let Some(key) = self.turn.front().copied()
        {
            turns -= 1;
            let alone = self.turn.len() == 1;
            let lane = self.by_connection.get_mut(&key).expect("a lane in turn exists");
            match lane.serve(pass, alone, &mut self.bytes, &mut place, finished) {
                Served::Full => break,
                Served::Held => held += 1,
                Served::Turn => held = 0,
            }
            if lane.requests.is_empty() {
                let lane = self.by_connection.remove(&key).filter(|_| self.spare.len() < SPARE_LANES);
                self.spare.extend(lane.map(Lane::emptied));
                self.turn.pop_front();
            } else {
                self.turn.rotate_left(1);
            }
        }
        for request in &finished[placed_before..] {
            *self.count(request.small) -= 1;
        }
        before - self.bytes
    }

    /// Takes everything out, for a journal that has stopped.
    pub fn drain(&mut self) -> (Vec<Placing>, usize) {
        (self.small_requests, self.large_requests) = (0, 0);
        let lanes = self.turn.drain(..).filter_map(|connection| self.by_connection.remove(&connection));
        let requests = lanes.flat_map(|lane| lane.requests).collect();
        assert!(self.by_connection.is_empty(), "every lane has its turn");
        (requests, std::mem::take(&mut self.bytes))
    }
}

impl Lane {
    /// As new, with memory for a few requests.
    fn emptied(mut self) -> Self {
        self.requests.shrink_to(SPARE_REQUESTS);
        self.deficit = 0;
        self
    }

    /// Offers what the lane may place in this turn.
    fn serve(
        &mut self,
        pass: Pass,
        alone: bool,
        queued_bytes: &mut usize,
        place: &mut impl FnMut(&mut Placing, AppendItem) -> Place,
        finished: &mut Vec<Placing>,
    ) -> Served {
        if pass == Pass::Fair {
            self.deficit += QUANTUM_BYTES;
        }
        while let Some(request) = self.requests.front_mut() {
            if pass == Pass::Small && !request.small {
                return Served::Turn;
            }
            let Some(item) = request.items.pop_front() else {
                finished.extend(self.requests.pop_front());
                continue;
            };
            if let Some(AppendItem::Batch { log, .. }) = request.items.get(ITEMS_AHEAD) {
                log.prefetch_claim();
            }
            let bytes = item.weight();
            if pass == Pass::Fair && bytes > self.deficit && !alone {
                // An item larger than a quantum waits until its lane has saved up for it.
                request.items.push_front(item);
                return Served::Turn;
            }
            match place(request, item) {
                Place::Done => {
                    *queued_bytes -= bytes;
                    self.deficit = self.deficit.saturating_sub(bytes);
                }
                Place::Full(item) => {
                    request.items.push_front(item);
                    return Served::Full;
                }
                Place::Held(item) => {
                    request.items.push_front(item);
                    // Waiting earns nothing.
                    self.deficit = self.deficit.saturating_sub(QUANTUM_BYTES);
                    return Served::Held;
                }
            }
        }
        Served::Turn
    }
}

/// How a lane's turn ended.
enum Served {
    /// It has placed what it may, or all that it has.
    Turn,
    /// The chunk is full.
    Full,
    /// What is first in it has to wait.
    Held,
}

impl Placing {
    /// Items that have no result yet.
    pub fn unplaced(&self) -> usize {
        self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn append(connection: u64, token: u64, bytes: usize) -> Arrival {
        let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(connection), token };
        let item = AppendItem::State { key: Bytes::from_static(b"k"), value: Some(Bytes::from(vec![0; bytes])) };
        Arrival { append: Append { to, items: vec![item], acknowledge: true }, when_full: WhenFull::Answer }
    }

    fn tokens(requests: &[Placing]) -> Vec<u64> {
        requests.iter().map(|request| request.to.token).collect()
    }

    fn take(lanes: &mut Lanes, pass: Pass, most: usize) -> Vec<u64> {
        let (mut finished, mut placed) = (Vec::new(), 0);
        let before = lanes.bytes();
        let left = lanes.fill(
            pass,
            |_, item| {
                if placed == most {
                    return Place::Full(item);
                }
                placed += 1;
                Place::Done
            },
            &mut finished,
        );
        assert_eq!(before - left, lanes.bytes());
        tokens(&finished)
    }

    #[test]
    fn small_requests_go_ahead_but_not_of_their_own_connection() {
        let mut lanes = Lanes::default();
        for (connection, token, bytes) in
            [(1, 10, 900_000), (1, 11, 100), (2, 20, 100), (2, 21, 100), (2, 22, 500_000), (3, 30, 50)]
        {
            lanes.push(append(connection, token, bytes));
        }
        assert!(lanes.has_small() && lanes.has_large());
        assert_eq!(take(&mut lanes, Pass::Small, 100), [20, 21, 30]);
        assert_eq!(take(&mut lanes, Pass::Small, 100), [0; 0], "11 and 22 are behind, or large");
        assert!(lanes.has_small(), "11 still waits");
        let rest = take(&mut lanes, Pass::Fair, 100);
        assert_eq!(rest.len(), 3);
        assert!(rest.iter().position(|token| *token == 10) < rest.iter().position(|token| *token == 11));
        assert!(lanes.is_empty() && !lanes.has_small() && !lanes.has_large() && lanes.bytes() == 0);
    }

    #[test]
    fn what_does_not_fit_stays_in_order() {
        let mut lanes = Lanes::default();
        (0..6).for_each(|token| lanes.push(append(1, token, 100)));
        assert_eq!(take(&mut lanes, Pass::Small, 2), [0, 1]);
        assert_eq!(take(&mut lanes, Pass::Fair, 3), [2, 3, 4]);
        assert_eq!(take(&mut lanes, Pass::Small, 3), [5]);
    }

    #[test]
    fn what_is_held_lets_others_pass_and_keeps_its_order() {
        let mut lanes = Lanes::default();
        for (connection, token, bytes) in [(1, 10, 100), (1, 11, 100), (2, 20, 300_000), (3, 30, 100), (3, 31, 200_000)]
        {
            lanes.push(append(connection, token, bytes));
        }
        let fill = |lanes: &mut Lanes, pass: Pass, holds: &[u64]| {
            let mut finished = Vec::new();
            let place = |request: &mut Placing, item| {
                if holds.contains(&request.to.token) { Place::Held(item) } else { Place::Done }
            };
            lanes.fill(pass, place, &mut finished);
            tokens(&finished)
        };
        for _ in 0..50 {
            assert_eq!(fill(&mut lanes, Pass::Fair, &[10, 20, 30]), [0; 0], "all wait");
        }
        assert_eq!(fill(&mut lanes, Pass::Small, &[10]), [30]);
        assert_eq!(fill(&mut lanes, Pass::Fair, &[10, 20]), [31]);
        let deficits: Vec<usize> = lanes.by_connection.values().map(|lane| lane.deficit).collect();
        assert!(
            deficits.iter().all(|deficit| *deficit <= 300_000 + QUANTUM_BYTES),
            "waiting earns nothing: {deficits:?}"
        );
        assert_eq!(fill(&mut lanes, Pass::Fair, &[20]), [10, 11]);
        assert_eq!(fill(&mut lanes, Pass::Fair, &[]), [20]);
        assert!(lanes.is_empty() && lanes.bytes() == 0);
    }

    #[test]
    fn bulk_waits_until_its_lane_has_saved_up() {
        let mut lanes = Lanes::default();
        lanes.push(append(1, 1, 300_000));
        (0..40).for_each(|token| lanes.push(append(2, 100 + token, 30_000)));
        let order = take(&mut lanes, Pass::Fair, 100);
        let bulk = order.iter().position(|token| *token == 1).expect("placed");
        assert!((5..20).contains(&bulk), "a lane of 300 KB is served among those of 30 KB: place {bulk}");
    }
}
