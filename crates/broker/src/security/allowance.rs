//! How often something may happen: a number of times at once, then once each so often.

use std::time::{Duration, Instant};

/// See the head of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    most: u32,
    each: Duration,
    left: u32,
    /// As of when `left` is.
    at: Option<Instant>,
}

impl Allowance {
    pub fn new(most: u32, each: Duration) -> Self {
        Self { most, each, left: most, at: None }
    }

    fn refresh(&mut self, now: Instant) {
        let since = now.saturating_duration_since(*self.at.get_or_insert(now));
        let more = since.as_nanos() / self.each.as_nanos().max(1);
        if more >= u128::from(self.most - self.left) {
            (self.left, self.at) = (self.most, Some(now));
        } else if let (Ok(more), Some(at)) = (u32::try_from(more), self.at.as_mut()) {
            self.left += more;
            *at += self.each * more;
        }
    }

    /// Is there any left?
    pub fn any(&mut self, now: Instant) -> bool {
        self.refresh(now);
        self.left > 0
    }

    /// Is nothing taken of it?
    pub fn is_whole(&mut self, now: Instant) -> bool {
        self.refresh(now);
        self.left == self.most
    }

    /// Takes one; false: there was none.
    pub fn take(&mut self, now: Instant) -> bool {
        let any = self.any(now);
        self.left -= u32::from(any);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_at_once_then_one_each_so_often() {
        let second = Duration::from_secs(1);
        let (mut allowance, began) = (Allowance::new(3, second), Instant::now());
        assert!((0..3).all(|_| allowance.take(began)) && !allowance.take(began) && !allowance.any(began));
        let half = began + second / 2;
        assert!(!allowance.take(half));
        assert!(
            allowance.take(began + second) && !allowance.take(began + second + second / 2),
            "half of one is not lost"
        );
        assert!(allowance.take(began + second * 2) && !allowance.is_whole(began + second * 4));
        assert!(allowance.is_whole(began + second * 5));
        assert!((0..3).all(|_| allowance.take(began + second * 500)) && !allowance.take(began + second * 500));
    }
}
