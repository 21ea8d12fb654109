//! A subscription in which nothing is ready, out or done out of order, as a few numbers: what a queue that is not in use keeps. Between
//! whiles it is made whole again.

use super::{Searched, Subscription};

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    start: u64,
    end: u64,
    given_before: u64,
    given: Option<u64>,
    turnover: u64,
    searched: Searched,
    levelled: bool,
    returned_first: bool,
    start_changed: bool,
    unwritten: bool,
}

impl Subscription {
    /// The numbers that are all there is to it; `None`: there is more. They cost nothing to ask for.
    pub fn rest(&self) -> Option<Rest> {
        let Self { done, ready, levels, in_flight, keys, changed, stored, acks, gaps, .. } = self;
        let nothing_open = done.is_empty()
            && ready.is_empty()
            && in_flight.is_empty()
            && self.dying == 0
            && keys.is_none()
            && gaps.is_empty();
        let nothing_stored = stored.is_empty() && changed.is_empty() && levels.is_empty() && acks.is_empty();
        (nothing_open && nothing_stored).then_some(Rest {
            start: self.start,
            end: self.end,
            given_before: self.given_before,
            given: self.given,
            turnover: self.turnover,
            searched: self.searched,
            levelled: self.levelled,
            returned_first: self.returned_first,
            start_changed: self.start_changed,
            unwritten: self.unwritten,
        })
    }
}

impl Rest {
    /// The subscription that it was made of.
    pub fn wake(self) -> Subscription {
        let Self {
            start,
            end,
            given_before,
            given,
            turnover,
            searched,
            levelled,
            returned_first,
            start_changed,
            unwritten,
        } = self;
        let mut woken = Subscription {
            end,
            given_before,
            given,
            turnover,
            searched,
            levelled,
            start_changed,
            unwritten,
            ..Subscription::new(start)
        };
        woken.set_returned_first(returned_first);
        woken
    }
}

#[cfg(test)]
mod tests {
    use crate::{ConsumerId, NO_LOCK, Rules, Subscription, Verdict};

    #[test]
    fn what_is_done_with_rests_and_goes_on_where_it_was() {
        let rules =
            Rules { deliveries_max: None, unfinished_max: u64::MAX, lock: NO_LOCK, dead_letters: false, retry: None };
        let (consumer, mut dead) = (ConsumerId(7), Vec::new());
        let mut subscription = Subscription::unwritten(5);
        subscription.remember_given(0);
        subscription.set_returned_first(true);
        subscription.set_levelled(true);
        let fresh = subscription.rest().expect("nobody has used it");
        assert!(fresh.wake().is_unwritten() && !fresh.wake().has_changes() && fresh.wake().is_levelled());

        subscription.set_levels(5, 9, &mut |_| 0);
        for offset in 5..9 {
            subscription.give(consumer, offset, NO_LOCK).expect("it is available");
        }
        assert_eq!(subscription.rest(), None, "somebody has something");
        subscription.judge(consumer, 6, 8, Verdict::Accept, 0, &rules, &mut dead);
        assert_eq!(subscription.rest(), None, "the first is out");
        subscription.judge(consumer, 5, 5, Verdict::Accept, 0, &rules, &mut dead);
        assert_eq!(subscription.rest(), None, "one is ready that was looked at");
        subscription.give_away(9).expect("it is available");
        let _ = subscription.take_changes();
        let woken = subscription.rest().expect("all is done, and written").wake();
        assert_eq!((woken.start(), woken.end(), woken.turnover()), (10, 10, subscription.turnover()));
        assert!(!woken.is_unwritten() && !woken.has_changes());
        assert_eq!((woken.ready(12), woken.rest()), (2, subscription.rest()));
    }
}
