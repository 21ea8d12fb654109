//! A connection under its quotas: what limits it, and until when it is paused because more was taken than is paid for. Gateways stop
//! reading from a paused connection. Used by one thread.

use std::time::{Duration, Instant};

use super::{Account, ClientQuotas, QuotaKey, Quotas};

/// A shorter debt pauses nobody: it stays, and counts with the next.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// A paused connection looks so often whether quotas have changed.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Why a connection is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A quota of its user, client id or both.
    Client(QuotaKey),
    /// A quota of a topic.
    Topic,
    /// A rule for groups that are far behind.
    Laggard,
    /// There is no memory for what it would wait with.
    Memory,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    limit: Limit,
    since: Instant,
    until: Instant,
    look_at: Instant,
}

/// See the head.
#[derive(Debug, Default)]
pub struct Throttle {
    generation: u64,
    user: Box<str>,
    client_id: Box<str>,
    limits: Option<Box<ClientQuotas>>,
    pause: Option<Pause>,
}

impl Throttle {
    /// Makes sure that the limits are those in force. Before each request; free as long as there has been no quota.
    pub fn look(&mut self, quotas: &Quotas, user: &str, client_id: &str, now: Instant) {
        let generation = quotas.generation();
        if generation == self.generation && (generation == 0 || *self.client_id == *client_id && *self.user == *user) {
            return;
        }
        if *self.client_id != *client_id || *self.user != *user {
            (self.user, self.client_id) = (user.into(), client_id.into());
        }
        self.generation = generation;
        self.limits = quotas.of(user, client_id, now);
    }

    /// What limits it.
    pub fn limits(&self) -> Option<&ClientQuotas> {
        self.limits.as_deref()
    }

    /// Is the time of its requests to be measured?
    pub fn is_timed(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.request.is_some())
    }

    /// Its account of a key, if it is limited.
    pub fn account(&self, key: QuotaKey) -> Option<&Account> {
        let limits = self.limits.as_ref()?;
        match key {
            QuotaKey::ProducerByteRate => limits.produce.as_deref(),
            QuotaKey::ConsumerByteRate => limits.fetch.as_deref(),
            QuotaKey::RequestPercentage => limits.request.as_deref(),
            QuotaKey::ControllerMutationRate => limits.mutation.as_deref(),
            QuotaKey::ConnectionCreationRate => None,
        }
    }

    /// Takes units, if there are any, from an account of it, and pauses it if that makes a debt.
    pub fn take(&mut self, quotas: &Quotas, key: QuotaKey, units: u64, now: Instant) {
        let Some(account) = self.account(key).filter(|_| units > 0) else { return };
        let debt = account.take(units, now);
        let most = if key == QuotaKey::RequestPercentage { quotas.request_wait_max() } else { Duration::MAX };
        self.pause(quotas, Limit::Client(key), debt.min(most), now);
    }

    /// Pauses it for a debt; the longest counts.
    pub fn pause(&mut self, quotas: &Quotas, limit: Limit, debt: Duration, now: Instant) {
        if debt < PAUSE_MIN {
            return;
        }
        if let Limit::Client(key) = limit {
            quotas.note_throttled(key, debt);
        }
        let until = now + debt;
        let pause = self.pause.get_or_insert(Pause { limit, since: now, until, look_at: until });
        if until >= pause.until {
            (pause.until, pause.limit) = (until, limit);
        }
        pause.look_at = pause.until.min(now + LOOK_AGAIN);
    }

    /// Is it paused?
    pub fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Why, and since when, it is paused.
    pub fn paused(&self) -> Option<(Limit, Instant)> {
        self.pause.map(|pause| (pause.limit, pause.since))
    }

    /// Time has passed: does the pause end? It does with each change of quotas: what is taken next shows whether there is another.
    pub fn wake(&mut self, quotas: &Quotas, now: Instant) -> bool {
        let Some(pause) = &mut self.pause else { return false };
        if now >= pause.until || quotas.generation() != self.generation {
            self.pause = None;
            return true;
        }
        pause.look_at = pause.until.min(now + LOOK_AGAIN);
        false
    }

    /// When [`Throttle::wake`] is due.
    pub fn next(&self) -> Option<Instant> {
        self.pause.map(|pause| pause.look_at)
    }

    /// How long it is paused from now on, in whole milliseconds, as clients are told.
    pub fn told_ms(&self, now: Instant) -> i32 {
        self.pause.map_or(0, |pause| {
            let left = pause.until.saturating_duration_since(now);
            i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QuotaEntity, QuotaName, QuotaValues};
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_pause_lasts_as_long_as_the_debt_or_the_quota() {
        let quotas = Quotas::new(&Settings::default());
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let user = QuotaEntity::Client { user: Some(QuotaName::Named("u".to_owned())), client_id: None };
        quotas.put(&user, [(QuotaKey::ProducerByteRate, 1000.0), (QuotaKey::RequestPercentage, 1.0)].into());
        throttle.look(&quotas, "u", "c", start);
        throttle.take(&quotas, QuotaKey::ConsumerByteRate, 1 << 40, start);
        assert!(!throttle.is_paused() && throttle.is_timed());
        throttle.take(&quotas, QuotaKey::ProducerByteRate, 2500, start);
        assert_eq!((throttle.told_ms(start), throttle.next()), (2500, Some(start + LOOK_AGAIN)));
        let later = start + Duration::from_millis(2400);
        assert!(!throttle.wake(&quotas, later) && throttle.next() == Some(start + Duration::from_millis(2500)));
        assert!(throttle.wake(&quotas, start + Duration::from_millis(2500)) && !throttle.is_paused());
        // A share of time pauses nobody for longer than a window.
        throttle.take(&quotas, QuotaKey::RequestPercentage, 1_000_000_000, later);
        assert_eq!(throttle.told_ms(later), 1000);
        quotas.put(&user, QuotaValues::new());
        assert!(throttle.wake(&quotas, later) && !throttle.is_paused());
        throttle.look(&quotas, "u", "c", later);
        assert!(throttle.limits().is_none());
    }
}
