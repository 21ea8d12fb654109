//! Signs of life: one is sent when nothing else was for half of the interval, and the client is given up after two intervals without
//! any byte from it.

use std::time::{Duration, Instant};

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Beat,
    GiveUp,
}

/// The times of a connection with heartbeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heartbeat {
    interval: Duration,
    /// When to look whether a beat is due: not before it can be.
    beat_at: Instant,
    sent_at: Instant,
    received_at: Instant,
}

impl Heartbeat {
    /// `None` with an interval of 0.
    pub fn new(interval_s: u16, now: Instant) -> Option<Self> {
        let interval = Duration::from_secs(interval_s.into());
        (interval_s > 0).then(|| Self { interval, beat_at: now + interval / 2, sent_at: now, received_at: now })
    }

    /// Bytes came.
    pub fn received(&mut self, now: Instant) {
        self.received_at = now;
    }

    /// Bytes went.
    pub fn sent(&mut self, now: Instant) {
        self.sent_at = now;
    }

    /// When to look.
    pub fn next(&self) -> Instant {
        self.beat_at.min(self.received_at + 2 * self.interval)
    }

    /// What is due by now. A beat counts as sent.
    pub fn look(&mut self, now: Instant) -> Due {
        if now >= self.received_at + 2 * self.interval {
            return Due::GiveUp;
        }
        if now < self.beat_at {
            return Due::Nothing;
        }
        let due = now >= self.sent_at + self.interval / 2;
        if due {
            self.sent_at = now;
        }
        self.beat_at = self.sent_at + self.interval / 2;
        if due { Due::Beat } else { Due::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_beats_when_nothing_was_sent_and_gives_up_after_two_intervals() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(Heartbeat::new(0, start).is_none());
        let mut heartbeat = Heartbeat::new(10, start).expect("an interval");
        assert_eq!((heartbeat.look(after(4)), heartbeat.next()), (Due::Nothing, after(5)));
        assert_eq!((heartbeat.look(after(5)), heartbeat.next()), (Due::Beat, after(10)));
        heartbeat.sent(after(8));
        assert_eq!((heartbeat.look(after(10)), heartbeat.next()), (Due::Nothing, after(13)), "something else was sent");
        assert_eq!((heartbeat.look(after(13)), heartbeat.next()), (Due::Beat, after(18)));
        heartbeat.received(after(16));
        assert_eq!(heartbeat.look(after(35)), Due::Beat);
        assert_eq!(heartbeat.look(after(36)), Due::GiveUp);
    }
}
