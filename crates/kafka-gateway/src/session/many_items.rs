//! Requests of many items: entries of lists and tagged fields take up to a hundred times as much memory as on the wire, in the request, in what a
//! handler makes of them, and in the answer. A request of few is decoded at once and counts for nothing. One of more is counted first, without
//! being decoded, and waits until the owner of the session has reserved memory for it ([`Session::wants_room`]). The reservation ends with
//! the answer, or with what works on it elsewhere, whichever is later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::JobOwner;
use bytes::Bytes;
use kafka_wire::{DecodeError, Problem, Reader, RequestHeader, count_items};

use super::{CloseReason, Context, News, Request, Session, ShardContext, Slot, SlotState};

/// Items of a request that need no reservation.
pub(super) const FREE_ITEMS: usize = 1000;
/// What an item counts for, in bytes of memory: the most that was measured for an API, rounded.
const ITEM_BYTES: usize = 512;
/// And what the items of a request count for that needs no reservation, times the bytes of the request: so much they may take.
const ITEMS_FACTOR: usize = 100;
/// Requests from this size on have memory of their own, which is counted where they are read. Smaller ones share it with others that were read at once.
const OWN_FROM_BYTES: usize = 32 << 10;
/// APIs of which requests are frequent, and that keep nothing of them in the line for the controller: Produce, Fetch, OffsetCommit, Heartbeat, ApiVersions,
/// ConsumerGroupHeartbeat, ShareFetch, ShareAcknowledge.
const FREQUENT: [i16; 8] = [0, 1, 8, 12, 18, 68, 78, 79];
/// A reservation is for others after so long, if they wait for it, where the request waits for what others do: a long poll, members of a group.
const WANTED_AFTER: Duration = Duration::from_millis(250);

/// Memory that is reserved for a request, until it is dropped.
pub trait RequestRoom: Send + Sync {
    /// Do others wait for it?
    fn is_wanted(&self) -> bool;
}

/// A request that is not decoded yet.
pub(super) struct Parked {
    header: RequestHeader,
    reader: Reader,
    length: usize,
    items: usize,
    since: Instant,
}

/// What a request was given for its items, and since when it was there.
pub(super) struct Given {
    pub room: Arc<dyn RequestRoom>,
    pub since: Instant,
}

/// Bytes of memory that a request keeps as long as somebody works on it, beside what is counted where it is read: `reserved`, its items are.
fn kept_bytes(length: usize, reserved: bool) -> usize {
    let own = if length < OWN_FROM_BYTES { length } else { 0 };
    let items = if reserved { 0 } else { (length * ITEMS_FACTOR).min(FREE_ITEMS * ITEM_BYTES) };
    own + items
}

/// A request with memory of its own: one that may wait for its turn is not to keep what was read together with it.
pub(super) fn owned(request: Bytes) -> Bytes {
    let api = request.first_chunk::<2>().map(|api| i16::from_be_bytes(*api));
    if request.len() >= OWN_FROM_BYTES || api.is_none_or(|api| FREQUENT.contains(&api)) {
        request
    } else {
        Bytes::copy_from_slice(&request)
    }
}

impl Context<'_> {
    /// Whose turn it is when the controller, or a reader of history, does something for this request.
    pub fn job_owner(&self) -> JobOwner {
        JobOwner::of(self.name().unwrap_or_default(), Some(self.peer.ip()))
    }

    /// The same of the request as a whole, with what it keeps until it is answered and is not counted elsewhere.
    pub fn job_owner_for_all(&self) -> JobOwner {
        self.job_owner().holding(kept_bytes(self.length, self.room.is_some()))
    }
}

/// Was a request not decoded because there is more of it than needs no reservation?
pub(super) fn is_many<T>(outcome: &Result<T, DecodeError>) -> bool {
    matches!(outcome, Err(DecodeError { problem: Problem::TooMany(_), .. }))
}

/// Does a request have more items than `reader` allows, which stands at its body?
pub(super) fn has_many(header: &RequestHeader, reader: &Reader) -> Result<bool, CloseReason> {
    let counted = count_items(header.api_key, header.api_version, reader);
    if is_many(&counted) { Ok(true) } else { Ok(counted.map(|_| false)?) }
}

impl Slot {
    /// Its answer has been made: what was reserved for it is free.
    pub(super) fn set_ready(&mut self, pieces: Vec<Bytes>) {
        self.state = SlotState::Ready(pieces);
        self.room = None;
    }
}

impl Session {
    /// Keeps a request until there is memory for its items.
    pub(super) fn park(
        &mut self,
        header: &RequestHeader,
        reader: &mut Reader,
        length: usize,
        now: Instant,
    ) -> Result<(), CloseReason> {
        reader.allow(self.gateway.items_max());
        let items = count_items(header.api_key, header.api_version, reader)?;
        let reader = std::mem::replace(reader, Reader::new(Bytes::new()));
        self.parked = Some(Box::new(Parked { header: header.clone(), reader, length, items, since: now }));
        Ok(())
    }

    /// Bytes of memory that a request waits for, which is to be served once they are reserved, and its frame. Nothing is read meanwhile.
    pub fn wants_room(&self) -> Option<(usize, &Bytes)> {
        self.parked.as_ref().map(|parked| (parked.items * ITEM_BYTES, parked.reader.frame()))
    }

    /// Serves the request that waited for memory.
    ///
    /// # Errors
    /// When the connection cannot go on; a log line is the caller's.
    pub fn give_room(
        &mut self,
        room: Arc<dyn RequestRoom>,
        shard: &mut ShardContext,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let Some(parked) = self.parked.take() else { return Ok(()) };
        let Parked { header, mut reader, length, since, .. } = *parked;
        let outcome = self.serve(
            Request { header: &header, reader: &mut reader, length, given: Some(Given { room, since }) },
            shard,
            now,
        );
        if outcome.is_err() {
            self.gateway.metrics.refused_frames.inc();
        }
        outcome
    }

    /// What is reserved for requests that only wait is for others, if they want it: those are answered as if the time that they may wait was over.
    pub(super) fn yield_room(&mut self, shard: &mut ShardContext, now: Instant) {
        if self.room_looked_at.take_if(|at| now >= *at).is_none() {
            return;
        }
        for at in 0..self.slots.len() {
            if self.slots[at].room.as_ref().is_some_and(|room| room.is_wanted()) {
                self.advance_slot(at, News::End, shard, now);
            }
        }
        self.note_room(now);
    }

    /// Notes when to look whether others want what is reserved.
    pub(super) fn note_room(&mut self, now: Instant) {
        if self.room_looked_at.is_none() && self.slots.iter().any(|slot| slot.room.is_some()) {
            self.room_looked_at = Some(now + WANTED_AFTER);
        }
    }
}
