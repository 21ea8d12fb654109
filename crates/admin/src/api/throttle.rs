//! Slows those down who try passwords: after some wrong logins the next one has to wait, each time longer. Counted by the address and
//! the name that is tried, and with more patience by the address alone. Bounded: the failures that are oldest are forgotten.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;

/// Wrong logins that cost nothing: with one name, and of one address.
const FREE: [u32; 2] = [5, 50];
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// After so long without a failure it is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// Addresses and names that are remembered.
const KEPT_MAX: usize = 10_000;
/// Bytes of a name that count.
const NAME_BYTES: usize = 64;

type Key = (IpAddr, Option<Vec<u8>>);

struct Failures {
    count: u32,
    last: Instant,
    until: Instant,
}

/// Wrong logins of late.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<HashMap<Key, Failures>>);

fn keys(address: IpAddr, name: &[u8]) -> [Key; 2] {
    let place = broker::place_of(address);
    [(place, Some(name[..name.len().min(NAME_BYTES)].to_vec())), (place, None)]
}

impl Throttle {
    /// How long a login has to wait; it is refused until then.
    pub fn wait(&self, address: IpAddr, name: &[u8], now: Instant) -> Option<Duration> {
        let all = self.0.lock();
        let left = |key: &Key| all.get(key).map(|failures| failures.until.saturating_duration_since(now));
        keys(address, name).iter().filter_map(left).max().filter(|left| !left.is_zero())
    }

    /// A login was wrong.
    pub fn failed(&self, address: IpAddr, name: &[u8], now: Instant) {
        let mut all = self.0.lock();
        if all.len() >= KEPT_MAX {
            all.retain(|_, failures| now.saturating_duration_since(failures.last) < FORGOTTEN_AFTER);
        }
        for (key, free) in keys(address, name).into_iter().zip(FREE) {
            if all.len() >= KEPT_MAX && !all.contains_key(&key) {
                let oldest = all.iter().min_by_key(|(_, failures)| failures.last).map(|(key, _)| key.clone());
                oldest.map(|key| all.remove(&key));
            }
            let failures = all.entry(key).or_insert(Failures { count: 0, last: now, until: now });
            if now.saturating_duration_since(failures.last) >= FORGOTTEN_AFTER {
                failures.count = 0;
            }
            (failures.count, failures.last) = (failures.count.saturating_add(1), now);
            if let Some(over) = failures.count.checked_sub(free + 1) {
                let wait = Duration::from_secs(1 << over.min(10)).min(WAIT_MAX);
                failures.until = now + wait;
            }
        }
    }

    /// A login was right: the name's failures are forgotten, the address's are not.
    pub fn succeeded(&self, address: IpAddr, name: &[u8]) {
        let [key, _] = keys(address, name);
        self.0.lock().remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_becomes_slow_and_a_right_login_ends_that() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        let (one, other): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for _ in 0..5 {
            throttle.failed(one, b"anna", start);
        }
        assert_eq!(throttle.wait(one, b"anna", start), None);
        throttle.failed(one, b"anna", start);
        assert_eq!(throttle.wait(one, b"anna", start), Some(Duration::from_secs(1)));
        assert_eq!(throttle.wait(other, b"anna", start), None, "another address");
        assert_eq!(throttle.wait(one, b"bert", start), None, "another name");
        for _ in 0..20 {
            throttle.failed(one, b"anna", start);
        }
        assert_eq!(throttle.wait(one, b"anna", start), Some(WAIT_MAX));
        assert_eq!(throttle.wait(one, b"anna", start + WAIT_MAX), None);
        throttle.succeeded(one, b"anna");
        assert_eq!(throttle.wait(one, b"anna", start), None);
        throttle.failed(one, b"anna", start + FORGOTTEN_AFTER);
        assert_eq!(throttle.wait(one, b"anna", start + FORGOTTEN_AFTER), None);
    }

    #[test]
    fn many_names_from_one_address_are_too_many() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        let address: IpAddr = [10, 0, 0, 1].into();
        for name in 0..51_u32 {
            throttle.failed(address, &name.to_be_bytes(), start);
        }
        assert!(throttle.wait(address, b"new", start).is_some());
    }

    #[test]
    fn memory_is_bounded() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        for number in 0..KEPT_MAX as u32 + 10 {
            throttle.failed(std::net::Ipv4Addr::from_bits(number).into(), b"x", start + Duration::from_micros(u64::from(number)));
        }
        assert!(throttle.0.lock().len() <= KEPT_MAX);
    }
}
