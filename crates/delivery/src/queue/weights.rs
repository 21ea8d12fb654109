//! Bytes of what is ready, for queues that are bounded by them: a sum, and the size of each record that somebody has.
//!
//! The sum tells of the records before `to`. It is exact as long as every change goes through the queue; when another face of the same
//! subscription has changed something, or after a restart, the records are read and weighed again from the start, as many at a time as
//! the caller likes: what has not been weighed yet does not count.

use hashbrown::HashMap;

use crate::{ConsumerId, DEAD_LETTERS, RecordState, Subscription};

#[derive(Clone, Debug, Default)]
pub(super) struct Weights {
    ready: u64,
    held: HashMap<u64, u32>,
    to: u64,
    /// The subscription's turnover after the last change that is known of.
    seen: u64,
    wanted: bool,
}

impl Weights {
    pub fn new(wanted: bool, subscription: &Subscription) -> Self {
        Self { wanted, to: subscription.start(), seen: subscription.turnover(), ..Self::default() }
    }

    /// Before a change, or a look.
    pub fn check(&mut self, subscription: &Subscription) {
        if subscription.turnover() != self.seen {
            *self = Self::new(self.wanted, subscription);
        }
    }

    /// After a change that has been noted.
    pub fn note(&mut self, subscription: &Subscription) {
        self.seen = subscription.turnover();
        self.to = self.to.max(subscription.start());
    }

    /// The first record that is to be weighed; `None`: all of a log that ends at `log_end` have been.
    pub fn unweighed(&self, subscription: &Subscription, log_end: u64) -> Option<u64> {
        let from = if self.seen == subscription.turnover() { self.to } else { subscription.start() };
        (self.wanted && from < log_end).then_some(from)
    }

    pub fn ready(&self, subscription: &Subscription) -> u64 {
        if self.seen == subscription.turnover() { self.ready } else { 0 }
    }

    /// The next record in the log has this size; what lies between the last one and this is no record.
    pub fn weigh(&mut self, subscription: &Subscription, offset: u64, size: u32) {
        self.check(subscription);
        if !self.wanted || offset < self.to {
            return;
        }
        match subscription.state(offset) {
            RecordState::Available => self.ready += u64::from(size),
            RecordState::Acquired(DEAD_LETTERS) | RecordState::Acknowledged | RecordState::Archived => {}
            RecordState::Acquired(_) => drop(self.held.insert(offset, size)),
        }
        self.to = offset + 1;
    }

    /// Given to somebody who will say something of it, or for good.
    pub fn given(&mut self, offset: u64, size: u32, held: bool) {
        if self.wanted && offset < self.to {
            self.ready = self.ready.saturating_sub(u64::from(size));
            if held {
                self.held.insert(offset, size);
            }
        }
    }

    /// Something was said of what somebody had in these runs.
    pub fn settled(&mut self, subscription: &Subscription, runs: &[(u64, u64)]) {
        if !self.wanted {
            return;
        }
        for offset in runs.iter().flat_map(|(first, last)| *first..=*last) {
            if let Some(size) = self.held.remove(&offset)
                && subscription.state(offset) == RecordState::Available
            {
                self.ready += u64::from(size);
            }
        }
    }

    /// Nothing that has been weighed is ready.
    pub fn purged(&mut self) {
        self.ready = 0;
    }

    /// What is to be told to [`Weights::settled`] when `consumer` has said something.
    pub fn held_runs(&self, subscription: &Subscription, consumer: ConsumerId, first: u64, last: u64) -> Vec<(u64, u64)> {
        if self.wanted { subscription.held(consumer, first, last) } else { Vec::new() }
    }
}
