//! Time goes on when the simulator says so.

use std::sync::atomic::{AtomicI64, Ordering};

use types::{Clock, Timestamp};

pub(super) struct SimClock(pub AtomicI64);

impl Clock for SimClock {
    fn now_ms(&self) -> Timestamp {
        self.0.load(Ordering::Relaxed)
    }

    fn steady_ms(&self) -> u64 {
        self.now_ms().unsigned_abs()
    }

    fn boot(&self) -> u128 {
        0
    }
}
