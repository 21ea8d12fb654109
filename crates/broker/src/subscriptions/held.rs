//! The state of a subscription in memory, and behind its lock: one that nobody uses is a few numbers, and whole while it is held.

use std::ops::{Deref, DerefMut};

use delivery::{Rest, Subscription};
use parking_lot::MutexGuard;

use super::SharedSubscription;

/// The state of a subscription: of one that nobody uses only what cannot be done without.
pub(super) enum Kept {
    Rest(Rest),
    Whole(Box<Subscription>),
}

/// The state of a subscription, locked, and made whole.
pub struct Held<'a> {
    state: MutexGuard<'a, Kept>,
    of: &'a SharedSubscription,
    /// It goes back to rest if there is nothing more to it.
    rests: bool,
}

impl Kept {
    /// Takes as little as it can.
    pub fn new(state: Subscription) -> Self {
        state.rest().map_or_else(|| Self::Whole(Box::new(state)), Self::Rest)
    }
}

impl<'a> Held<'a> {
    /// What is locked, of a subscription.
    pub(super) fn new(mut state: MutexGuard<'a, Kept>, of: &'a SharedSubscription) -> Self {
        let rests = matches!(*state, Kept::Rest(_));
        if let Kept::Rest(rest) = *state {
            *state = Kept::Whole(Box::new(rest.wake()));
        }
        Self { state, of, rests }
    }

    /// What happened last was some time ago.
    pub(crate) fn let_rest(&mut self) {
        self.rests = true;
    }
}

impl Deref for Held<'_> {
    type Target = Subscription;

    fn deref(&self) -> &Subscription {
        match &*self.state {
            Kept::Whole(whole) => whole,
            Kept::Rest(_) => unreachable!("it was made whole when it was locked"),
        }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Subscription {
        match &mut *self.state {
            Kept::Whole(whole) => whole,
            Kept::Rest(_) => unreachable!("it was made whole when it was locked"),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.next_deadline().is_some() {
            self.of.look_after();
        }
        if self.rests
            && let Some(rest) = self.rest()
        {
            *self.state = Kept::Rest(rest);
        }
    }
}
