//! When messages are due: the schedule of one sending thread.
//!
//! Open loop: message `n` is due at `start + n / rate`, whatever became of those before it. A thread that was held up
//! sends what has become due in the meantime with the old due times, so that the wait appears in every latency that it
//! caused.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Nanos;

/// The due times that are measured, from the first on and below the second: what is due then counts whenever it ends, and nothing else does.
#[derive(Debug, Default)]
pub struct DueWindow {
    from: AtomicU64,
    to: AtomicU64,
}

impl DueWindow {
    /// Measures these from now on.
    pub fn set(&self, from: Nanos, to: Nanos) {
        self.to.store(0, Ordering::Relaxed);
        self.from.store(from, Ordering::Relaxed);
        self.to.store(to, Ordering::Release);
    }

    /// Whether a message that is due then is measured.
    pub fn holds(&self, due: Nanos) -> bool {
        due < self.to.load(Ordering::Acquire) && due >= self.from.load(Ordering::Relaxed)
    }
}

/// Due times of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    start: Nanos,
    interval: f64,
    sent: u64,
}

impl Pace {
    /// A schedule of so many messages a second. `phase`, 0 to 1, is the share of an interval by which it begins later,
    /// so that threads take turns.
    pub fn new(start: Nanos, rate: f64, phase: f64) -> Self {
        assert!(rate > 0.0, "a schedule has a rate");
        let interval = 1e9 / rate;
        Self { start: start.saturating_add((interval * phase) as Nanos), interval, sent: 0 }
    }

    /// When the next message is due.
    pub fn due(&self) -> Nanos {
        self.start.saturating_add((self.sent as f64 * self.interval) as Nanos)
    }

    /// Nanoseconds between two messages.
    pub fn interval(&self) -> f64 {
        self.interval
    }

    /// The next message was sent.
    pub fn advance(&mut self) {
        self.sent += 1;
    }
}

#[cfg(test)]
mod tests;
