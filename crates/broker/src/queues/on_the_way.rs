//! What is on its way into a queue: batches that were handed to a journal and of which no outcome is known. Until the journal's writer has placed them the log does not show
//! them, so that a client that asks the queue for a message waits for these first (`docs/adr/0013-queues.md`, 15).
//!
//! What publishers have sent may also lie unread in their sockets. For a client that finds nothing, the shards that may have such publishers read their sockets first
//! ([`Broker::poll_sockets`]). A queue has that done 15 times in a row at most while nothing is published to it, so that clients that ask an empty queue again and again cost no
//! other thread anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use journal::ReplyTo;
use types::ShardId;

use super::queue::Queue;
use crate::Broker;
use crate::mailbox::{Event, SocketPoll};

/// Shards whose numbers differ by so many share a bit.
const BITS: u16 = 12;
const ALL: u16 = (1 << BITS) - 1;
/// After so many polls in a row with nothing published, none is made before something is. A poll counts one in the bits above those of shards.
const IN_VAIN_MAX: u16 = 15;
const ONE_IN_VAIN: u16 = 1 << BITS;

/// Counts of batches; they wrap.
#[derive(Debug, Default)]
pub(super) struct Batches {
    begun: AtomicU32,
    over: AtomicU32,
}

/// Shards with connections that may publish to a queue, a bit each: all of them at first, later those that have. And how often their sockets were polled since something
/// was published. Two bytes, as each queue has them.
#[derive(Debug)]
pub(super) struct Publishers(AtomicU16);

impl Default for Publishers {
    fn default() -> Self {
        Self(AtomicU16::new(ALL))
    }
}

impl Publishers {
    fn note(&self, shard: ShardId) {
        let noted = |state: u16| state & ALL | bit_of(shard);
        let state = self.0.load(Ordering::Relaxed);
        // Written only when that changes something: publishers of many shards do this with each batch.
        if state != noted(state) {
            let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(noted(state)));
        }
    }

    /// The shards to be polled now, by their bits.
    fn take_poll(&self) -> u16 {
        let is_due = |state: u16| state / ONE_IN_VAIN < IN_VAIN_MAX;
        let next = |state: u16| {
            if is_due(state) { Some(state + ONE_IN_VAIN) } else { (state & ALL != 0).then_some(state & !ALL) }
        };
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(state) if is_due(state) => state & ALL,
            _ => 0,
        }
    }
}

fn bit_of(shard: ShardId) -> u16 {
    1 << (shard.0 % BITS)
}

/// A batch on its way into a queue, until it is dropped.
#[derive(Debug)]
pub struct OnTheWay(Arc<Queue>);

impl Drop for OnTheWay {
    fn drop(&mut self) {
        self.0.on_the_way.over.fetch_add(1, Ordering::Release);
    }
}

impl Queue {
    /// A batch of a connection of `shard` is handed to its journal; it is on its way as long as what is returned is kept.
    pub fn begin_batch(self: &Arc<Self>, shard: ShardId) -> OnTheWay {
        self.publishers.note(shard);
        self.on_the_way.begun.fetch_add(1, Ordering::Release);
        OnTheWay(Arc::clone(self))
    }

    /// How many batches were handed to its journal so far.
    pub fn batches_begun(&self) -> u32 {
        self.on_the_way.begun.load(Ordering::Acquire)
    }

    /// Are the first `begun` of them over? False also when others are over instead.
    pub fn batches_are_over(&self, begun: u32) -> bool {
        self.on_the_way.over.load(Ordering::Acquire).wrapping_sub(begun) < u32::MAX / 2
    }
}

impl Broker {
    /// Has the shards read their sockets that have connections which may publish to a queue. The connection `to` gets [`SocketsPolled`](crate::SocketsPolled) when all have:
    /// what had come there by now is on its way then, unless a shard has more to do than it can do in a turn. False: there is no such shard, or it was done in vain too often.
    pub fn poll_sockets(&self, queue: &Arc<Queue>, to: ReplyTo) -> bool {
        let bits = queue.parts().fold(0, |bits, part| bits | part.publishers.take_poll());
        if bits == 0 {
            return false;
        }
        let poll = SocketPoll::new(self.mailboxes.clone(), to);
        self.mailboxes.push_to(|shard| bits & bit_of(shard) != 0, || Event::PollSockets(Arc::clone(&poll)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_may_have_publishers_are_polled_until_that_was_in_vain() {
        let publishers = Publishers::default();
        for _ in 0..IN_VAIN_MAX {
            assert_eq!(publishers.take_poll(), ALL, "nobody knows yet who publishes");
        }
        assert_eq!((publishers.take_poll(), publishers.take_poll()), (0, 0));
        publishers.note(ShardId(1));
        publishers.note(ShardId(26));
        for _ in 0..IN_VAIN_MAX {
            assert_eq!(publishers.take_poll(), 0b110);
        }
        assert_eq!((publishers.take_poll(), publishers.take_poll()), (0, 0));
        publishers.note(ShardId(1));
        assert_eq!(publishers.take_poll(), 0b10);
    }
}
