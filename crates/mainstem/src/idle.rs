//! One alarm for each connection: for requests that have begun and do not come to their end, and for Kafka clients that ask for nothing during
//! `connections.max.idle.ms`, after which their connection ends, as in Kafka. It is set anew when it goes off, or when something is due before
//! that: what is asked and answered meanwhile costs nothing.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};

/// How long a connection has been idle, and when to look at it.
pub struct Idle {
    /// `None`: it may be idle for ever.
    max: Option<Duration>,
    active: Instant,
    /// When something was sent or received last.
    moved: Instant,
    /// When it goes off; `None`: not.
    at: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Idle {
    /// A fresh connection. `max`: `None` for ever.
    pub fn new(max: Option<Duration>, now: Instant) -> Self {
        let mut idle = Self {
            max: max.filter(|max| now.checked_add(*max).is_some()),
            active: now,
            moved: now,
            at: None,
            alarm: None,
        };
        idle.set(idle.max.map(|max| now + max));
        idle
    }

    fn set(&mut self, at: Option<Instant>) {
        self.at = at;
        let Some(at) = at else { return };
        match &mut self.alarm {
            Some(alarm) => alarm.as_mut().reset(at.into()),
            None => self.alarm = Some(Box::pin(sleep_until(at.into()))),
        }
    }

    /// Something was sent or received.
    pub fn note_activity(&mut self, now: Instant) {
        (self.active, self.moved) = (now, now);
    }

    /// For how long has nothing been sent or received, whatever is under way?
    pub fn quiet(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.moved)
    }

    /// It is to be looked at by then. If that is no longer so when the alarm goes off, nothing happens.
    pub fn look_by(&mut self, wanted: Option<Instant>) {
        if let Some(wanted) = wanted.filter(|wanted| self.at.is_none_or(|at| *wanted < at)) {
            self.set(Some(wanted));
        }
    }

    /// Does an alarm go off at some time?
    pub fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Waits until [`Idle::is_over`] is to be asked.
    pub async fn alarm(&mut self) {
        match &mut self.alarm {
            Some(alarm) if self.at.is_some() => alarm.as_mut().await,
            _ => std::future::pending().await,
        }
    }

    /// The alarm has gone off: has it been idle for too long? `busy`: something is under way. If not, the alarm is set anew.
    pub fn is_over(&mut self, busy: bool, now: Instant) -> bool {
        if busy {
            self.active = now;
        }
        let until = self.max.map(|max| self.active + max);
        self.set(until.filter(|until| now < *until));
        until.is_some_and(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_asks_or_is_answered_is_not_idle() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut idle = Idle::new(Some(Duration::from_secs(10)), start);
        idle.note_activity(after(5));
        assert!(!idle.is_over(false, after(10)), "something came meanwhile");
        assert!(!idle.is_over(true, after(15)), "something is under way");
        assert!(!idle.is_over(false, after(24)) && idle.is_over(false, after(25)));
        for max in [None, Some(Duration::MAX)] {
            let mut idle = Idle::new(max, start);
            assert!(!idle.is_set() && !idle.is_over(false, after(1000)));
        }
    }

    #[tokio::test]
    async fn it_goes_off_for_what_is_due_first() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut idle = Idle::new(Some(Duration::from_secs(10)), start);
        for (wanted, at) in [(Some(20), 10), (None, 10), (Some(5), 5), (Some(7), 5)] {
            idle.look_by(wanted.map(after));
            assert_eq!(idle.at, Some(after(at)));
        }
        assert!(!idle.is_over(false, after(5)), "not idle for so long");
        assert_eq!(idle.at, Some(after(10)));
        let mut endless = Idle::new(None, start);
        endless.look_by(Some(start));
        endless.alarm().await;
        assert!(!endless.is_over(false, start) && !endless.is_set());
    }
}
