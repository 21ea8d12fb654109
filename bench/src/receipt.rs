//! What arrived: messages that consumers received, timed from when they were due and counted per subscription.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::clock::Clock;
use crate::latency::Latency;
use crate::pace::DueWindow;
use crate::stamp::{Fingerprint, Lane, Stamp, is_intact};

const SHARDS: usize = 8;

/// What was counted since it was last taken.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub bytes: u64,
    pub prints: Fingerprint,
    /// Messages without a stamp: not ours.
    pub strange: u64,
    /// Messages after a later one of the same producer, partition and consumer.
    pub disordered: u64,
    /// Messages whose content is not what was sent.
    pub changed: u64,
    /// Bytes that came over the network, where the driver counts them.
    pub wire_bytes: u64,
    /// Due time to receipt.
    pub since_due: Latency,
    /// The same, of messages that were due in the measured time.
    pub measured: Latency,
}

impl Received {
    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.prints.merge(other.prints);
        self.strange = self.strange.saturating_add(other.strange);
        self.disordered = self.disordered.saturating_add(other.disordered);
        self.changed = self.changed.saturating_add(other.changed);
        self.wire_bytes = self.wire_bytes.saturating_add(other.wire_bytes);
        self.since_due.add(&other.since_due);
        self.measured.add(&other.measured);
    }
}

/// The receipts of all consumers of a worker.
pub struct Receipts {
    clock: Clock,
    window: Arc<DueWindow>,
    shards: [Mutex<Received>; SHARDS],
    received: AtomicU64,
    /// Not in a shard: a library may count while its consumer has messages at hand.
    wire_bytes: AtomicU64,
    trouble: OnceLock<String>,
}

/// A consumer's hold on its shard, for as many messages as it has at hand.
pub struct Intake<'a> {
    clock: Clock,
    taken: u64,
    window: &'a DueWindow,
    received: &'a AtomicU64,
    shard: MutexGuard<'a, Received>,
}

impl Intake<'_> {
    /// Counts one message of a partition or queue.
    pub fn receive(&mut self, lane: &mut Lane, message: &[u8]) {
        self.shard.bytes += message.len() as u64;
        let Some(stamp) = Stamp::read(message) else {
            self.shard.strange += 1;
            return;
        };
        self.taken += 1;
        let now = self.clock.now();
        self.shard.prints.add(stamp.number);
        self.shard.disordered += u64::from(!lane.is_in_order(stamp.number));
        self.shard.changed += u64::from(!is_intact(message));
        // A clock of another machine may be ahead by its uncertainty; that is no negative latency.
        self.shard.since_due.record(now.saturating_sub(stamp.due));
        if self.window.holds(stamp.due) {
            self.shard.measured.record(now.saturating_sub(stamp.due));
        }
    }
}

impl Drop for Intake<'_> {
    fn drop(&mut self) {
        self.received.fetch_add(self.taken, Ordering::Relaxed);
    }
}

impl Receipts {
    /// Nothing has arrived.
    pub fn new(clock: Clock, window: Arc<DueWindow>) -> Self {
        Self {
            clock,
            window,
            shards: Default::default(),
            received: AtomicU64::new(0),
            wire_bytes: AtomicU64::new(0),
            trouble: OnceLock::new(),
        }
    }

    /// For a consumer that has messages at hand; to be dropped before it waits.
    pub fn intake(&self, consumer: usize) -> Intake<'_> {
        let shard = self.shards[consumer % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        Intake { clock: self.clock, taken: 0, window: &self.window, received: &self.received, shard }
    }

    /// So many bytes more have come over the network.
    pub fn came(&self, bytes: u64) {
        self.wire_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Messages received since the begin, all subscriptions together.
    pub fn received_total(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// A consumer cannot go on. The first reason is kept.
    pub fn fail(&self, reason: String) {
        self.trouble.get_or_init(|| reason);
    }

    /// Why a consumer could not go on.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.get().cloned()
    }

    /// What was counted since the last call.
    pub fn take(&self) -> Received {
        let mut all = Received { wire_bytes: self.wire_bytes.swap(0, Ordering::Relaxed), ..Received::default() };
        for shard in &self.shards {
            all.add(&std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_timed_from_when_they_were_due() {
        let clock = Clock::local();
        let receipts = Receipts::new(clock, Arc::default());
        let mut message = [0; 64];
        crate::stamp::seal(&mut message);
        Stamp { due: clock.now() - 3_000_000_000, number: 9 }.write(&mut message);
        let mut intake = receipts.intake(3);
        let mut lane = Lane::default();
        intake.receive(&mut lane, &message);
        intake.receive(&mut lane, b"short");
        drop(intake);
        let found = receipts.take();
        assert_eq!((found.bytes, found.prints.messages, found.strange), (69, 1, 1));
        assert_eq!((found.disordered, found.changed), (0, 0));
        assert!((3000.0..3100.0).contains(&found.since_due.quantile_ms(1.0).unwrap()));
        assert_eq!(receipts.take().bytes, 0);
    }
}
