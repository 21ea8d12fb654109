//! Wall-clock time and the seam through which it enters.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, UTC; the unit of every timestamp in a record batch.
pub type Timestamp = i64;

/// Where the engine takes wall-clock time from, so that a simulator can supply its own.
pub trait Clock: Send + Sync + 'static {
    /// Now, in milliseconds since the Unix epoch. May step backwards; nothing relies on it for order.
    fn now_ms(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::try_from(since_epoch.as_millis()).unwrap_or(Timestamp::MAX)
    }
}
