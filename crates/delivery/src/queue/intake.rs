//! Whether a queue that refuses messages when it is full takes one more.
//!
//! A classic queue refuses what would be too much. A quorum queue takes the message with which it is too full, and refuses from then on,
//! until it is down to four fifths. What consumers wait for does not stay, and so does not fill a queue.
//!
//! Source: RabbitMQ 4.3, `rabbit_amqqueue_process`, `rabbit_fifo`; asked of the real one.

use super::{Overflow, Queue, QueueKind};
use crate::Subscription;

/// Messages that were taken in for a queue and are not in its log yet, in their order.
#[derive(Clone, Copy)]
pub struct UnderWay<'a> {
    /// How many.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Bytes of the bodies of the first so many.
    pub bytes_of_first: &'a dyn Fn(u64) -> u64,
    /// Where the log ended when none of them was in it. What it has got since is taken for the first of them: who took them in is told later.
    pub log_end: u64,
}

impl UnderWay<'static> {
    /// None at all.
    pub const NONE: Self = Self { messages: 0, bytes: 0, bytes_of_first: &|_| 0, log_end: u64::MAX };
}

impl UnderWay<'_> {
    /// How many of them are in the log that ends at `log_end`.
    fn arrived(&self, log_end: u64) -> u64 {
        log_end.saturating_sub(self.log_end).min(self.messages)
    }
}

impl Queue {
    /// Is a message refused that has a body of `size` bytes and comes behind `under_way`? The log ends at `log_end`. A classic queue asks
    /// for room also when a consumer waits for this one.
    pub fn refuses(&mut self, subscription: &Subscription, log_end: u64, under_way: UnderWay<'_>, size: u32) -> bool {
        if self.rules.overflow == Overflow::DropHead {
            return false;
        }
        self.note_fill(subscription, log_end);
        if self.refusing {
            return true;
        }
        let more = if self.rules.kind == QueueKind::Classic { (1, u64::from(size)) } else { (0, 0) };
        let fits = |messages: u64, bytes: u64| !self.exceeds(messages + more.0, bytes + more.1);
        let (ready, ready_bytes) = (subscription.ready_for_certain(log_end), self.weights.ready(subscription));
        let arrived = under_way.arrived(log_end);
        let weighed = under_way.arrived(self.weights.until(subscription).min(log_end));
        let left = (under_way.messages - arrived, under_way.bytes - (under_way.bytes_of_first)(weighed));
        let messages = ready + left.0;
        if fits(messages, ready_bytes + left.1) {
            return false;
        }
        let taken = if left.0 == 0 { 0 } else { self.consumers.get().map_or(0, |all| all.spare(messages)) };
        if taken < ready || taken == 0 {
            return true;
        }
        let gone = arrived + (taken - ready).min(left.0);
        !fits(under_way.messages - gone, under_way.bytes - (under_way.bytes_of_first)(gone))
    }

    /// Something has changed: a quorum queue that is too full refuses from now on, one that has room enough no longer.
    pub fn note_fill(&mut self, subscription: &Subscription, log_end: u64) {
        if self.rules.overflow == Overflow::DropHead || self.rules.kind == QueueKind::Classic {
            return;
        }
        let waiting = if self.rules.letters_wait { subscription.dying() } else { 0 };
        let (messages, bytes) = (subscription.ready_for_certain(log_end) + subscription.delayed() + waiting, self.weights.ready(subscription));
        let is_low = |max: Option<u64>, found: u64| max.is_none_or(|max| found <= max.saturating_mul(4) / 5);
        if self.exceeds(messages, bytes) {
            self.refusing = true;
        } else if is_low(self.rules.length_max, messages) && is_low(self.rules.bytes_max, bytes) {
            self.refusing = false;
        }
    }

    /// Is that more than the queue may have?
    pub(super) fn exceeds(&self, messages: u64, bytes: u64) -> bool {
        self.rules.length_max.is_some_and(|max| messages > max) || self.rules.bytes_max.is_some_and(|max| bytes > max)
    }
}
