//! Bytes of what is ready, for queues that are bounded by them: a sum, and the size of each record that somebody has.
//!
//! The sum tells of the records before `to`. It is exact as long as every change goes through the queue; when another face of the same
//! subscription has changed something, or after a restart, the records are read and weighed again from the start, as many at a time as
//! the caller likes: what has not been weighed yet does not count.

use hashbrown::HashMap;

use crate::subscription::time_outs::DELAYED;
use crate::{ConsumerId, DEAD_LETTERS, RecordState, Subscription};

/// See the head of the file. A queue of which nobody wants to know keeps nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights(Option<Box<Known>>);

#[derive(Clone, Debug, Default)]
struct Known {
    ready: u64,
    held: HashMap<u64, u32>,
    to: u64,
    /// The subscription's turnover after the last change that is known of.
    seen: u64,
}

/// Ready, or come back and waiting to be.
fn takes_room(state: RecordState) -> bool {
    matches!(state, RecordState::Available | RecordState::Acquired(DELAYED))
}

impl Known {
    fn new(subscription: &Subscription) -> Self {
        Self { to: subscription.start(), seen: subscription.turnover(), ..Self::default() }
    }

    fn check(&mut self, subscription: &Subscription) {
        if subscription.turnover() != self.seen {
            *self = Self::new(subscription);
        }
    }
}

impl Weights {
    pub fn new(wanted: bool, subscription: &Subscription) -> Self {
        Self(wanted.then(|| Box::new(Known::new(subscription))))
    }

    /// Before a change, or a look.
    pub fn check(&mut self, subscription: &Subscription) {
        if let Some(known) = &mut self.0 {
            known.check(subscription);
        }
    }

    /// After a change that has been noted.
    pub fn note(&mut self, subscription: &Subscription) {
        if let Some(known) = &mut self.0 {
            known.seen = subscription.turnover();
            known.to = known.to.max(subscription.start());
        }
    }

    /// The first record that is to be weighed; `None`: all of a log that ends at `log_end` have been.
    pub fn unweighed(&self, subscription: &Subscription, log_end: u64) -> Option<u64> {
        let known = self.0.as_deref()?;
        let from = if known.seen == subscription.turnover() { known.to } else { subscription.start() };
        (from < log_end).then_some(from)
    }

    /// `ready` tells of the records before.
    pub fn until(&self, subscription: &Subscription) -> u64 {
        self.0.as_ref().filter(|known| known.seen == subscription.turnover()).map_or(0, |known| known.to)
    }

    pub fn ready(&self, subscription: &Subscription) -> u64 {
        self.0.as_ref().filter(|known| known.seen == subscription.turnover()).map_or(0, |known| known.ready)
    }

    /// The next record in the log has this size; what lies between the last one and this is no record.
    pub fn weigh(&mut self, subscription: &Subscription, offset: u64, size: u32) {
        self.check(subscription);
        let Some(known) = self.0.as_mut().filter(|known| offset >= known.to) else { return };
        match subscription.state(offset) {
            state if takes_room(state) => known.ready += u64::from(size),
            RecordState::Acquired(DEAD_LETTERS)
            | RecordState::Acknowledged
            | RecordState::Archived
            | RecordState::Available => {}
            RecordState::Acquired(_) => drop(known.held.insert(offset, size)),
        }
        known.to = offset + 1;
    }

    /// There is no record more before `until`.
    pub fn weigh_nothing(&mut self, subscription: &Subscription, until: u64) {
        self.check(subscription);
        if let Some(known) = &mut self.0 {
            known.to = known.to.max(until);
        }
    }

    /// Given to somebody who will say something of it, or for good.
    pub fn given(&mut self, offset: u64, size: u32, held: bool) {
        let Some(known) = self.0.as_mut().filter(|known| offset < known.to) else { return };
        known.ready = known.ready.saturating_sub(u64::from(size));
        if held {
            known.held.insert(offset, size);
        }
    }

    /// Something was said of what somebody had in these runs.
    pub fn settled(&mut self, subscription: &Subscription, runs: &[(u64, u64)]) {
        let Some(known) = &mut self.0 else { return };
        for offset in runs.iter().flat_map(|(first, last)| *first..=*last) {
            if let Some(size) = known.held.remove(&offset)
                && takes_room(subscription.state(offset))
            {
                known.ready += u64::from(size);
            }
        }
    }

    /// Nothing that has been weighed is ready.
    pub fn purged(&mut self) {
        if let Some(known) = &mut self.0 {
            known.ready = 0;
        }
    }

    /// What is to be told to [`Weights::settled`] when `consumer` has said something.
    pub fn held_runs(
        &self,
        subscription: &Subscription,
        consumer: ConsumerId,
        first: u64,
        last: u64,
    ) -> Vec<(u64, u64)> {
        if self.0.is_some() { subscription.held(consumer, first, last) } else { Vec::new() }
    }
}
