//! A delay against guessing passwords: an address from which many wrong ones came (`mainstem.login.failures`) has to wait, and may then
//! try one each `mainstem.login.failure.recovery.ms`. Until then its logins are refused without being looked at, on all protocols, but for
//! passwords that are known to be right without being verified again. A wrong password that is tried again and again is one guess.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::allowance::Allowance;
use super::waiting::place_of;
use crate::settings::Settings;

/// Addresses that are remembered.
const PLACES_MAX: usize = 10_000;

/// What addresses have left.
pub(super) struct Guesses {
    /// `None`: any number.
    fresh: Option<Allowance>,
    places: Mutex<HashMap<IpAddr, Allowance>>,
}

impl Guesses {
    pub fn new(settings: &Settings) -> Self {
        let most = u32::try_from(settings.int("mainstem.login.failures")).unwrap_or(u32::MAX);
        let each = Duration::from_millis(settings.int("mainstem.login.failure.recovery.ms").unsigned_abs());
        Self { fresh: (most > 0).then(|| Allowance::new(most, each)), places: Mutex::default() }
    }

    /// Has this address to wait?
    pub fn are_spent(&self, address: IpAddr, now: Instant) -> bool {
        let mut places = self.places.lock();
        places.get_mut(&place_of(address)).is_some_and(|allowance| !allowance.any(now))
    }

    /// A wrong password has come from there.
    pub fn note_wrong(&self, address: IpAddr, now: Instant) {
        let Some(fresh) = self.fresh else { return };
        let mut places = self.places.lock();
        if places.len() >= PLACES_MAX && !places.contains_key(&place_of(address)) {
            places.retain(|_, allowance| !allowance.is_whole(now));
            if places.len() >= PLACES_MAX {
                // As many addresses as that are not one guesser's; whichever goes begins afresh.
                let any = places.keys().next().copied();
                any.map(|any| places.remove(&any));
            }
        }
        places.entry(place_of(address)).or_insert(fresh).take(now);
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
        let (one, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().expect("an address"), "2001:db8::1".parse().expect("an address"));
        let neighbour: IpAddr = "2001:db8::2".parse().expect("an address");
        for _ in 0..3 {
            assert!(!guesses.are_spent(one, now));
            guesses.note_wrong(one, now);
        }
        assert!(guesses.are_spent(one, now) && !guesses.are_spent(other, now));
        assert!(!guesses.are_spent(one, now + Duration::from_secs(1)));
        (0..3).for_each(|_| guesses.note_wrong(other, now));
        assert!(guesses.are_spent(neighbour, now), "of one network");
        for number in 0..2 * PLACES_MAX as u32 {
            guesses.note_wrong(IpAddr::V4(number.into()), now);
        }
        assert!(guesses.places.lock().len() <= PLACES_MAX);
        settings.set("mainstem.login.failures", "0").expect("a setting");
        let any = Guesses::new(&settings);
        (0..100).for_each(|_| any.note_wrong(one, now));
        assert!(!any.are_spent(one, now));
    }
}
