//! The time by which delays run. It is the wall clock's when the machine has booted, and goes on at the pace of the machine from there: who
//! sets the wall clock neither hastens nor holds up anybody. After a restart of the process it goes on as if nothing had been; after one of the
//! machine it begins with the wall clock again, but never before what it was seen to be.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use types::Clock;

use super::record::ClockRecord;

pub(super) struct DelayClock {
    clock: Arc<dyn Clock>,
    /// Added to the steady time, in ms.
    ahead: AtomicI64,
}

impl DelayClock {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let own = Self { clock, ahead: AtomicI64::new(0) };
        own.resume(None);
        own
    }

    /// Goes on where an earlier process was.
    pub fn resume(&self, found: Option<ClockRecord>) {
        let (steady, wall) = (self.clock.steady_ms().cast_signed(), self.clock.now_ms());
        let ahead = match found {
            Some(found) if found.boot == self.clock.boot() && found.boot != 0 => found.ahead,
            Some(found) => wall.max(found.seen.cast_signed()) - steady,
            None => wall - steady,
        };
        self.ahead.store(ahead, Ordering::SeqCst);
    }

    /// Now, in ms.
    pub fn now(&self) -> u64 {
        self.clock.steady_ms().saturating_add_signed(self.ahead.load(Ordering::SeqCst))
    }

    /// What a later process has to know.
    pub fn record(&self) -> ClockRecord {
        ClockRecord { boot: self.clock.boot(), ahead: self.ahead.load(Ordering::SeqCst), seen: self.now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use types::Timestamp;

    /// Wall, steady, boot.
    struct Hands(Mutex<(i64, u64, u128)>);

    impl Clock for Hands {
        fn now_ms(&self) -> Timestamp {
            self.0.lock().0
        }

        fn steady_ms(&self) -> u64 {
            self.0.lock().1
        }

        fn boot(&self) -> u128 {
            self.0.lock().2
        }
    }

    const HOUR: i64 = 3_600_000;

    #[test]
    fn setting_the_wall_clock_changes_nothing() {
        let hands = Arc::new(Hands(Mutex::new((10 * HOUR, 500, 1))));
        let clock = DelayClock::new(Arc::clone(&hands) as Arc<dyn Clock>);
        assert_eq!(clock.now(), 36_000_000);
        for wall in [11 * HOUR, 9 * HOUR] {
            *hands.0.lock() = (wall, 1500, 1);
            assert_eq!(clock.now(), 36_001_000, "the wall clock says {wall}");
            // A process that begins now goes on as this one does, whenever the wall clock was set.
            let next = DelayClock::new(Arc::clone(&hands) as Arc<dyn Clock>);
            next.resume(Some(clock.record()));
            assert_eq!(next.now(), 36_001_000);
        }
    }

    #[test]
    fn after_a_boot_the_wall_clock_counts_but_time_never_goes_back() {
        let hands = Arc::new(Hands(Mutex::new((10 * HOUR, 500, 1))));
        let seen = DelayClock::new(Arc::clone(&hands) as Arc<dyn Clock>).record();
        for (wall, boot, now) in [(12 * HOUR, 2, 12 * HOUR), (9 * HOUR, 2, 10 * HOUR), (12 * HOUR, 0, 12 * HOUR)] {
            *hands.0.lock() = (wall, 7, boot);
            let clock = DelayClock::new(Arc::clone(&hands) as Arc<dyn Clock>);
            clock.resume(Some(ClockRecord { boot: if boot == 0 { 0 } else { 1 }, ..seen }));
            assert_eq!(clock.now().cast_signed(), now);
        }
    }
}
