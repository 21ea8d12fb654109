//! Time and the seam through which it enters: what the wall clock says, and what has passed.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// Milliseconds since the Unix epoch, UTC; the unit of every timestamp in a record batch.
pub type Timestamp = i64;

/// Where the engine takes wall-clock time from, so that a simulator can supply its own.
pub trait Clock: Send + Sync + 'static {
    /// Now, in milliseconds since the Unix epoch. May step backwards; nothing relies on it for order.
    fn now_ms(&self) -> Timestamp;

    /// Milliseconds that have passed since a moment that is the same for all processes of one boot of the machine. It never steps,
    /// whoever sets the wall clock, and goes on while the machine sleeps.
    fn steady_ms(&self) -> u64;

    /// The boot of the machine within which [`Clock::steady_ms`] of different processes may be compared; 0 when that is not known.
    fn boot(&self) -> u128;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::try_from(since_epoch.as_millis()).unwrap_or(Timestamp::MAX)
    }

    fn steady_ms(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes one `timespec`, which is there.
        let failed = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
        assert_eq!(failed, 0, "Linux has had this clock since 2.6.39");
        time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
    }

    fn boot(&self) -> u128 {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Uuid::parse_str(text.trim()).map_or(0, |id| id.as_u128())
    }
}
