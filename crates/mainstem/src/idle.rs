//! Connections of Kafka clients with nothing under way end after `connections.max.idle.ms`, as in Kafka. One alarm for each connection, set anew only
//! when it goes off: what is asked and answered meanwhile costs nothing.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};

/// How long a connection has been idle.
pub struct Idle {
    max: Duration,
    active: Instant,
    /// `None`: it may be idle for ever.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Idle {
    /// A fresh connection. `max`: `None` for ever.
    pub fn new(max: Option<Duration>, now: Instant) -> Self {
        let alarm = max.and_then(|max| now.checked_add(max)).map(|at| Box::pin(sleep_until(at.into())));
        Self { max: max.unwrap_or_default(), active: now, alarm }
    }

    /// Something was sent or received.
    pub fn note_activity(&mut self, now: Instant) {
        self.active = now;
    }

    /// Does it end at some time?
    pub fn is_bounded(&self) -> bool {
        self.alarm.is_some()
    }

    /// Waits until [`Idle::is_over`] is to be asked.
    pub async fn alarm(&mut self) {
        match &mut self.alarm {
            Some(alarm) => alarm.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Has it been idle for too long? `busy`: something is under way. If not, the alarm is set anew.
    pub fn is_over(&mut self, busy: bool, now: Instant) -> bool {
        if busy {
            self.active = now;
        }
        let Some(alarm) = &mut self.alarm else { return false };
        let until = self.active + self.max;
        if now < until {
            alarm.as_mut().reset(until.into());
        }
        now >= until
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
        assert!(!Idle::new(None, start).is_bounded() && !Idle::new(Some(Duration::MAX), start).is_bounded());
    }
}
