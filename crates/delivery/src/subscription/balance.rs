//! A check of the books: each offset that was looked at is ready, held by somebody or done, and in one of these only; and what has left is
//! as much as was settled or trimmed, one by one, since the state is in memory. A few additions; whoever works with a subscription may ask at any time.

use super::Subscription;

/// What has left since the state is in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Balance {
    /// The start then.
    pub from: u64,
    /// Offsets that were settled or trimmed since, and what was done already behind the start.
    pub left: u64,
}

impl Subscription {
    /// The state has just been restored.
    pub(super) fn begin_balance(&mut self) {
        self.balance = Balance { from: self.start, left: self.done.count() };
    }

    /// By how many offsets the books are wrong; always 0, unless there is a defect: then messages may be lost, or given out again.
    pub fn imbalance(&self) -> u64 {
        let looked_at =
            self.end.abs_diff(self.start).abs_diff(self.done.count() + self.ready.count() + self.in_flight.count());
        let has_left = self.balance.left.abs_diff(self.start - self.balance.from + self.done.count());
        looked_at + has_left
    }
}
