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
    beat_at: Instant,
    received_at: Instant,
    has_sent: bool,
    /// What is sent next is a beat of ours.
    beats: bool,
}

impl Heartbeat {
    /// `None` with an interval of 0.
    pub fn new(interval_s: u16, now: Instant) -> Option<Self> {
        let interval = Duration::from_secs(interval_s.into());
        (interval_s > 0).then(|| Self { interval, beat_at: now + interval / 2, received_at: now, has_sent: false, beats: false })
    }

    /// Bytes came.
    pub fn received(&mut self, now: Instant) {
        self.received_at = now;
    }

    /// Bytes went.
    pub fn sent(&mut self) {
        self.has_sent |= !std::mem::take(&mut self.beats);
    }

    /// When to look.
    pub fn next(&self) -> Instant {
        self.beat_at.min(self.received_at + 2 * self.interval)
    }

    /// What is due by now.
    pub fn look(&mut self, now: Instant) -> Due {
        if now >= self.received_at + 2 * self.interval {
            return Due::GiveUp;
        }
        if now < self.beat_at {
            return Due::Nothing;
        }
        self.beat_at = now + self.interval / 2;
        self.beats = !std::mem::take(&mut self.has_sent);
        if self.beats { Due::Beat } else { Due::Nothing }
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
        assert_eq!(heartbeat.look(after(5)), Due::Beat);
        heartbeat.sent();
        heartbeat.sent();
        assert_eq!(heartbeat.look(after(10)), Due::Nothing, "something else was sent");
        assert_eq!(heartbeat.look(after(15)), Due::Beat);
        heartbeat.received(after(16));
        assert_eq!(heartbeat.look(after(35)), Due::Beat);
        assert_eq!(heartbeat.look(after(36)), Due::GiveUp);
    }
}
