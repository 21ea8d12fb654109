//! A delay against guessing passwords. After `mainstem.login.failures` wrong ones for a name an address has to wait, and may then try one
//! for it each `mainstem.login.failure.recovery.ms`; for all names together it may ten times as much. Until then its logins are refused without
//! being looked at, on all protocols, but for passwords that are known to be right without being verified again. A wrong password that is
//! tried again and again is one guess; with SCRAM, which does not show what was tried, each is one.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;

use super::allowance::Allowance;
use super::waiting::place_of;
use crate::settings::Settings;

/// Addresses with names that are remembered.
const PLACES_MAX: usize = 10_000;

/// How much more an address may for all names together.
const ALL_NAMES: u32 = 10;

/// What is left to an address for a name, or for all of them.
type Places = HashMap<(IpAddr, Option<u64>), Allowance>;

/// What addresses have left.
pub(super) struct Guesses {
    /// `None`: any number.
    fresh: Option<(u32, Duration)>,
    places: Mutex<Places>,
    names: DefaultHashBuilder,
}

impl Guesses {
    pub fn new(settings: &Settings) -> Self {
        let most = u32::try_from(settings.int("mainstem.login.failures")).unwrap_or(u32::MAX);
        let each = Duration::from_millis(settings.int("mainstem.login.failure.recovery.ms").unsigned_abs());
        Self {
            fresh: (most > 0).then_some((most, each)),
            places: Mutex::default(),
            names: DefaultHashBuilder::default(),
        }
    }

    fn keys(&self, address: IpAddr, name: &[u8]) -> [(IpAddr, Option<u64>); 2] {
        let place = place_of(address);
        [(place, Some(self.names.hash_one(name))), (place, None)]
    }

    /// Has this address to wait, with this name?
    pub fn are_spent(&self, address: IpAddr, name: &[u8], now: Instant) -> bool {
        let mut places = self.places.lock();
        let spent = |key| places.get_mut(&key).is_some_and(|allowance| !allowance.any(now));
        self.keys(address, name).into_iter().any(spent)
    }

    /// A wrong password for this name has come from there.
    pub fn note_wrong(&self, address: IpAddr, name: &[u8], now: Instant) {
        let Some((most, each)) = self.fresh else { return };
        let mut places = self.places.lock();
        for key in self.keys(address, name) {
            if places.len() >= PLACES_MAX && !places.contains_key(&key) {
                places.retain(|_, allowance| !allowance.is_whole(now));
                if places.len() >= PLACES_MAX {
                    // As many as that are not one guesser's; whichever goes begins afresh.
                    let any = places.keys().next().copied();
                    any.map(|any| places.remove(&any));
                }
            }
            let fresh = || match key.1 {
                Some(_) => Allowance::new(most, each),
                None => Allowance::new(most.saturating_mul(ALL_NAMES), each / ALL_NAMES),
            };
            places.entry(key).or_insert_with(fresh).take(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_waits_and_others_do_not() {
        let mut settings = Settings::default();
        settings.set("mainstem.login.failures", "3").expect("a setting");
        settings.set("mainstem.login.failure.recovery.ms", "1000").expect("a setting");
        let (guesses, now) = (Guesses::new(&settings), Instant::now());
        let (one, other): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().expect("an address"), "2001:db8::1".parse().expect("an address"));
        let neighbour: IpAddr = "2001:db8::2".parse().expect("an address");
        for _ in 0..3 {
            assert!(!guesses.are_spent(one, b"bob", now));
            guesses.note_wrong(one, b"bob", now);
        }
        assert!(
            guesses.are_spent(one, b"bob", now)
                && !guesses.are_spent(other, b"bob", now)
                && !guesses.are_spent(one, b"ann", now)
        );
        (0..3).for_each(|_| guesses.note_wrong(other, b"bob", now));
        assert!(guesses.are_spent(neighbour, b"bob", now), "of one network");
        for number in 0..27_u8 {
            assert!(!guesses.are_spent(one, b"ann", now), "{number}");
            guesses.note_wrong(one, &[number], now);
        }
        assert!(guesses.are_spent(one, b"ann", now), "many names are guesses too");
        assert!(!guesses.are_spent(one, b"bob", now + Duration::from_secs(1)));
        for number in 0..PLACES_MAX as u32 {
            guesses.note_wrong(IpAddr::V4(number.into()), b"bob", now);
        }
        assert!(guesses.places.lock().len() <= PLACES_MAX);
        settings.set("mainstem.login.failures", "0").expect("a setting");
        let any = Guesses::new(&settings);
        (0..100).for_each(|_| any.note_wrong(one, b"bob", now));
        assert!(!any.are_spent(one, b"bob", now));
    }
}
