//! Time as the generator uses it: nanoseconds since 1970, never going backwards, the same on all workers.
//!
//! Every message carries the moment it was due in this time. With one machine that is its monotonic clock laid onto the
//! wall clock once at start; a worker elsewhere adds the offset that its coordinator measured.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// Nanoseconds since 1970, as of this clock.
pub type Nanos = u64;

/// A clock that can be copied to every thread.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    began_at: Nanos,
}

impl Clock {
    /// The clock of this process, moved by the offset (nanoseconds) to the coordinator's.
    pub fn with_offset(offset: i64) -> Self {
        static BEGAN: OnceLock<(Instant, Nanos)> = OnceLock::new();
        let (began, at) = *BEGAN.get_or_init(|| {
            let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            (Instant::now(), wall.as_nanos() as Nanos)
        });
        Self { began, began_at: at.saturating_add_signed(offset) }
    }

    /// The clock of this process.
    pub fn local() -> Self {
        Self::with_offset(0)
    }

    /// Now.
    pub fn now(&self) -> Nanos {
        self.began_at + self.began.elapsed().as_nanos() as Nanos
    }

    /// Sleeps until then; not at all when it is past.
    pub fn sleep_until(&self, moment: Nanos) {
        let now = self.now();
        if moment > now {
            std::thread::sleep(Duration::from_nanos(moment - now));
        }
    }
}

/// Seconds since 1970, for names and records.
pub fn seconds_since_1970() -> u64 {
    Clock::local().now() / 1_000_000_000
}
