//! What somebody has taken of what he may take in a second. One number says it all: the moment until which everything taken is paid for at
//! the rate. What lies behind that moment is credit, what lies before it is debt, which is how long to wait.
//!
//! Connections on several shards take from one account: one compare-and-swap a request.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SECOND_NS: f64 = 1e9;
/// Debts and credits end here: ten years.
const DEBT_NS_MAX: f64 = 3.15e17;

/// Nanoseconds since the first call.
fn nanoseconds(now: Instant) -> i64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let first = *FIRST.get_or_init(|| now);
    match now.checked_duration_since(first) {
        Some(since) => since.as_nanos() as i64,
        None => -(first.duration_since(now).as_nanos() as i64),
    }
}

/// An account, of whatever unit.
#[derive(Debug)]
pub struct Account {
    /// See the head.
    paid_until: AtomicI64,
    /// Units a second; above 0.
    rate: f64,
    /// Most credit, in ns.
    credit: i64,
    /// Everything taken.
    taken: AtomicU64,
}

impl Account {
    /// Whoever has taken nothing for `credit` may take at once what he may in that time. `full`: he has that from the start, otherwise
    /// nothing.
    pub fn new(rate: f64, credit: Duration, full: bool, now: Instant) -> Self {
        let (now, credit) = (nanoseconds(now), credit.as_nanos().min(DEBT_NS_MAX as u128) as i64);
        let paid_until = AtomicI64::new(if full { now - credit } else { now });
        Self { paid_until, rate, credit, taken: AtomicU64::new(0) }
    }

    /// Units a second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Units taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes units; how long to wait before anything else is taken.
    pub fn take(&self, units: u64, now: Instant) -> Duration {
        let now = nanoseconds(now);
        let cost = (units as f64 / self.rate * SECOND_NS).min(DEBT_NS_MAX) as i64;
        let latest = now.saturating_add(DEBT_NS_MAX as i64);
        let paid = |until: i64| until.max(now - self.credit).saturating_add(cost).min(latest);
        self.taken.fetch_add(units, Ordering::Relaxed);
        let mut before = self.paid_until.load(Ordering::Relaxed);
        loop {
            let after = paid(before);
            match self.paid_until.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return debt(after, now),
                Err(other) => before = other,
            }
        }
    }

    /// How long to wait before anything is taken.
    pub fn debt(&self, now: Instant) -> Duration {
        debt(self.paid_until.load(Ordering::Relaxed), nanoseconds(now))
    }

    /// Is there as much credit as there can be?
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.paid_until.load(Ordering::Relaxed) <= nanoseconds(now) - self.credit
    }
}

fn debt(paid_until: i64, now: i64) -> Duration {
    Duration::from_nanos(u64::try_from(paid_until.saturating_sub(now)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDIT: Duration = Duration::from_secs(10);

    #[test]
    fn what_is_taken_is_paid_at_the_rate() {
        let start = Instant::now();
        let account = Account::new(1000.0, CREDIT, false, start);
        assert_eq!(account.take(500, start), Duration::from_millis(500));
        assert_eq!(account.take(500, start), Duration::from_secs(1));
        assert_eq!(account.debt(start + Duration::from_millis(600)), Duration::from_millis(400));
        assert_eq!(account.debt(start + Duration::from_secs(2)), Duration::ZERO);
        assert_eq!(account.taken(), 1000);
    }

    #[test]
    fn credit_comes_with_time_and_ends_at_its_bound() {
        let start = Instant::now();
        let account = Account::new(1000.0, CREDIT, false, start);
        assert_eq!(account.take(3000, start + Duration::from_secs(3)), Duration::ZERO);
        assert_eq!(account.take(1, start + Duration::from_secs(3)), Duration::from_millis(1));
        let later = start + Duration::from_secs(1000);
        assert!(account.is_full(later));
        assert_eq!(account.take(10_000, later), Duration::ZERO);
        assert_eq!(account.take(100, later), Duration::from_millis(100));
        let full = Account::new(1.0, CREDIT, true, start);
        assert_eq!((full.take(10, start), full.take(1, start)), (Duration::ZERO, Duration::from_secs(1)));
    }

    #[test]
    fn no_number_is_too_large() {
        let start = Instant::now();
        let account = Account::new(f64::MIN_POSITIVE, CREDIT, false, start);
        let most = account.take(u64::MAX, start);
        assert!(most >= Duration::from_secs(300_000_000) && account.take(u64::MAX, start) == most);
        let patient = Account::new(1.0, Duration::from_secs(u64::MAX), true, start);
        assert_eq!(patient.take(1, start), Duration::ZERO);
        assert_eq!(Account::new(f64::MAX, CREDIT, false, start).take(1 << 40, start), Duration::ZERO);
    }

    #[test]
    fn several_threads_lose_nothing() {
        let start = Instant::now();
        let account = Account::new(1e6, CREDIT, false, start);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| assert!(account.take(1, start) > Duration::ZERO)));
            }
        });
        assert_eq!((account.taken(), account.debt(start)), (40_000, Duration::from_millis(40)));
    }
}
