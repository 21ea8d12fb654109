//! Memory for what a whole request is decoded to, and what is made of that: with that of large requests, in the same line and from the same bound. Who waits
//! for it holds nothing but its request, and gets it whole or not at all, before anything is begun: what has been granted waits for nobody.
//!
//! A request that was read beyond the bound is decoded there too. It is one at a time as before.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kafka_gateway::RequestRoom;
use tokio::sync::Notify;

use super::line::{Grant, Waiter};
use super::{AddressUse, FramePool};

/// Memory that a request has.
pub struct Room {
    pool: Arc<FramePool>,
    of: Arc<AddressUse>,
    bytes: usize,
    of_what: Of,
}

/// What it is taken of.
enum Of {
    /// Set aside within the bound.
    Bound,
    /// One request is beyond it.
    Beyond,
    /// It is that of this frame.
    Frame(#[expect(dead_code, reason = "held so that no other request is beyond the bound meanwhile")] Bytes),
}

impl Room {
    fn granted(pool: &Arc<FramePool>, of: &Arc<AddressUse>, bytes: usize, grant: Grant) -> Self {
        let of_what = match grant {
            Grant::Reserved => Of::Bound,
            Grant::Beyond => {
                pool.beyond.fetch_add(bytes, Ordering::Relaxed);
                Of::Beyond
            }
        };
        Self { pool: Arc::clone(pool), of: Arc::clone(of), bytes, of_what }
    }
}

impl RequestRoom for Room {
    fn is_wanted(&self) -> bool {
        self.pool.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        match self.of_what {
            Of::Bound => self.pool.give_back(&self.of, self.bytes),
            Of::Beyond => {
                self.pool.beyond.fetch_sub(self.bytes, Ordering::Relaxed);
                self.pool.end_beyond();
            }
            Of::Frame(_) => {}
        }
    }
}

/// A request that asks for memory, or waits for it.
pub struct RoomRequest {
    pool: Arc<FramePool>,
    of: Arc<AddressUse>,
    bytes: usize,
    state: State,
}

enum State {
    Waits(Arc<Waiter>),
    Granted(Room),
    Taken,
}

impl RoomRequest {
    /// Asks for so many bytes; `wake` is notified when they are granted later. `beyond`: the frame of the request, if that was read beyond the bound.
    pub fn new(
        pool: &Arc<FramePool>,
        of: &Arc<AddressUse>,
        bytes: usize,
        beyond: Option<Bytes>,
        wake: &Arc<Notify>,
    ) -> Self {
        let state = match beyond {
            Some(frame) => {
                State::Granted(Room { pool: Arc::clone(pool), of: Arc::clone(of), bytes, of_what: Of::Frame(frame) })
            }
            None => match pool.ask(of, bytes, wake) {
                Ok(grant) => State::Granted(Room::granted(pool, of, bytes, grant)),
                Err(waiter) => State::Waits(waiter),
            },
        };
        Self { pool: Arc::clone(pool), of: Arc::clone(of), bytes, state }
    }

    /// What it has got, once.
    pub fn take(&mut self) -> Option<Room> {
        if let State::Waits(waiter) = &self.state
            && let Some(grant) = waiter.grant()
        {
            self.state = State::Granted(Room::granted(&self.pool, &self.of, self.bytes, grant));
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Granted(room) => Some(room),
            other => {
                self.state = other;
                None
            }
        }
    }
}

impl Drop for RoomRequest {
    fn drop(&mut self) {
        if let State::Waits(waiter) = &self.state
            && let Some(grant) = self.pool.leave(&self.of, waiter)
        {
            drop(Room::granted(&self.pool, &self.of, self.bytes, grant));
        }
    }
}
