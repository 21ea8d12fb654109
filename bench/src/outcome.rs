//! What became of published messages: the client library's completions, counted and timed.
//!
//! A message goes out with a [`Ticket`], which fits in the 64 bits that client libraries pass through. Its completion
//! comes back on whatever thread the library uses and is counted in one of a few shards, so that threads seldom meet.
//!
//! ```text
//! ticket, 64 bits:  34 bits due time, µs since the outcomes began (4.7 hours, then around again)
//!                   20 bits send time after the due time, in 16 µs (16.7 s at most; later counts as that)
//!                   10 bits account
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use crate::clock::{Clock, Nanos};
use crate::latency::Latency;
use crate::pace::DueWindow;

/// Accounts that a ticket can name.
pub const ACCOUNTS_MAX: usize = 1 << 10;
const SHARDS: usize = 8;
const DUE_BITS: u32 = 34;
const WAITED_BITS: u32 = 20;
const WAITED_UNIT_NS: u64 = 16_000;

/// One message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// What was counted since it was last taken.
#[derive(Clone, Debug, Default)]
pub struct Published {
    pub acknowledged: u64,
    pub failed: u64,
    /// Due time to acknowledgement.
    pub since_due: Latency,
    pub measured: Measured,
}

/// Acknowledgements of messages that were due in the measured time.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Due time to acknowledgement.
    pub since_due: Latency,
    /// Send to acknowledgement.
    pub since_sent: Latency,
}

impl Measured {
    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        self.since_due.add(&other.since_due);
        self.since_sent.add(&other.since_sent);
    }
}

impl Published {
    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        self.acknowledged = self.acknowledged.saturating_add(other.acknowledged);
        self.failed = self.failed.saturating_add(other.failed);
        self.since_due.add(&other.since_due);
        self.measured.add(&other.measured);
    }
}

/// The completions of all producers of a worker.
pub struct Outcomes {
    clock: Clock,
    epoch: Nanos,
    window: Arc<DueWindow>,
    accounts: Vec<Account>,
    shards: [Mutex<Published>; SHARDS],
    acknowledged: AtomicU64,
    trouble: OnceLock<String>,
}

/// The unacknowledged messages of a producer, and who waits for them.
#[derive(Default)]
struct Account {
    in_flight: AtomicU64,
    waiter: OnceLock<Thread>,
}

impl Outcomes {
    /// For so many producers; those beyond [`ACCOUNTS_MAX`] share accounts.
    pub fn new(clock: Clock, producers: usize, window: Arc<DueWindow>) -> Self {
        let accounts = (0..producers.clamp(1, ACCOUNTS_MAX)).map(|_| Account::default()).collect();
        Self {
            clock,
            epoch: clock.now(),
            window,
            accounts,
            shards: Default::default(),
            acknowledged: AtomicU64::new(0),
            trouble: OnceLock::new(),
        }
    }

    /// A message of this producer goes out now; it counts as in flight from here on.
    pub fn depart(&self, producer: usize, due: Nanos, now: Nanos) -> Ticket {
        let account = producer % self.accounts.len();
        self.accounts[account].in_flight.fetch_add(1, Ordering::Relaxed);
        let due_us = (due.saturating_sub(self.epoch) / 1000) & ((1 << DUE_BITS) - 1);
        let waited = (now.saturating_sub(due) / WAITED_UNIT_NS).min((1 << WAITED_BITS) - 1);
        Ticket(due_us << (64 - DUE_BITS) | waited << 10 | account as u64)
    }

    /// The library did not take it after all; it will be offered again.
    pub fn recall(&self, ticket: Ticket) {
        self.account(ticket).in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// The broker acknowledged it.
    pub fn acknowledged(&self, ticket: Ticket) {
        let now = self.clock.now();
        let elapsed = (now - self.epoch) / 1000;
        // The due time has the lower bits only; the upper ones are those of the latest moment that is not in the future.
        let around = 1u64 << DUE_BITS;
        let due_us = elapsed - elapsed.wrapping_sub(ticket.0 >> (64 - DUE_BITS)) % around;
        let since_due = now - (self.epoch + due_us * 1000);
        let waited = (ticket.0 >> 10 & ((1 << WAITED_BITS) - 1)) * WAITED_UNIT_NS;
        let mut shard = self.shard(ticket);
        shard.acknowledged += 1;
        shard.since_due.record(since_due);
        if self.window.holds(now - since_due) {
            shard.measured.since_due.record(since_due);
            shard.measured.since_sent.record(since_due.saturating_sub(waited));
        }
        drop(shard);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        self.settle(ticket);
    }

    /// The broker or the library gave it up. The first reason is kept.
    pub fn failed(&self, ticket: Ticket, reason: impl FnOnce() -> String) {
        self.trouble.get_or_init(reason);
        self.shard(ticket).failed += 1;
        self.settle(ticket);
    }

    /// Unacknowledged messages of a producer.
    pub fn in_flight(&self, producer: usize) -> u64 {
        self.accounts[producer % self.accounts.len()].in_flight.load(Ordering::Acquire)
    }

    /// Unacknowledged messages of all.
    pub fn in_flight_total(&self) -> u64 {
        self.accounts.iter().map(|account| account.in_flight.load(Ordering::Relaxed)).sum()
    }

    /// Messages acknowledged since the begin.
    pub fn acknowledged_total(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// The calling thread wants to be unparked at each completion of this producer.
    pub fn wake_me(&self, producer: usize) {
        let _ = self.accounts[producer % self.accounts.len()].waiter.set(std::thread::current());
    }

    /// What was counted since the last call.
    pub fn take(&self) -> Published {
        let mut all = Published::default();
        for shard in &self.shards {
            all.add(&std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        all
    }

    /// Why the first message failed.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.get().cloned()
    }

    fn settle(&self, ticket: Ticket) {
        let account = self.account(ticket);
        account.in_flight.fetch_sub(1, Ordering::AcqRel);
        if let Some(waiter) = account.waiter.get() {
            waiter.unpark();
        }
    }

    fn account(&self, ticket: Ticket) -> &Account {
        &self.accounts[ticket.0 as usize & (ACCOUNTS_MAX - 1)]
    }

    fn shard(&self, ticket: Ticket) -> MutexGuard<'_, Published> {
        self.shards[ticket.0 as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
