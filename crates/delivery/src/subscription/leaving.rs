//! What leaves a subscription together with an append: available records whose copies, and the record that they are done with, lie in one chunk. In
//! memory they stay available until that is durable; an append that is refused changes nothing.

use super::durable::Changes;
use super::{Done, Subscription};

/// Available records whose copies are being appended.
#[derive(Debug)]
#[must_use = "ends with `Subscription::end_leaving`"]
pub struct Leaving {
    runs: Vec<(u64, u64)>,
    /// Everything before it is done with once they are; true: that is another one than before.
    start: u64,
    moves: bool,
    given: Option<u64>,
    /// Number of the list that says so of those that lie behind it.
    list: Option<u64>,
}

impl Leaving {
    /// Everything before this offset is done with once they have left.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// What has to be durable together with the copies.
    pub fn changes(&self) -> Changes {
        let behind = || {
            self.runs
                .iter()
                .filter(|(_, last)| *last >= self.start)
                .map(|(first, last)| (*first, *last, Done::Acknowledged))
                .collect()
        };
        let list = self.list.map(|number| (number, behind()));
        Changes {
            start: self.moves.then_some(self.start),
            given: self.given.filter(|_| self.moves),
            pages: Vec::new(),
            levels: Vec::new(),
            list,
            lists_gone: Vec::new(),
        }
    }
}

impl Subscription {
    /// Copies of these runs of available records, both ends included and ascending, are about to be appended, together with
    /// [`Leaving::changes`]. Nothing else of the subscription is written before it ends.
    pub fn begin_leaving(&mut self, runs: Vec<(u64, u64)>) -> Leaving {
        let start = self.start_without(&runs);
        let behind: Vec<(u64, u64)> = runs.iter().copied().filter(|(_, last)| *last >= start).collect();
        let list = (!behind.is_empty()).then(|| self.acks.begin(&behind));
        Leaving { runs, start, moves: start > self.start, given: self.given, list }
    }

    /// They are durable, or were refused: then they are available as before.
    pub fn end_leaving(&mut self, of: Leaving, durable: bool) {
        if let Some(number) = of.list {
            self.acks.end(number, durable);
        }
        if !durable {
            return;
        }
        let start = self.start;
        for (first, last) in
            of.runs.into_iter().map(|(first, last)| (first.max(start), last)).filter(|(first, last)| first <= last)
        {
            self.reach(self.end, last);
            for run in self.take_ready(first, last) {
                self.forget_keys(run.first, run.last, false);
                self.balance.left += run.last - run.first + 1;
                // The list has said so.
                self.done.insert(run.first, run.last, Done::Acknowledged);
            }
        }
        self.advance();
    }

    /// Where it begins when these are done with.
    fn start_without(&self, runs: &[(u64, u64)]) -> u64 {
        let behind_done = |from: u64| {
            let mut at = from;
            while let Some(run) = self.done.within(at, u64::MAX).next().filter(|run| run.first == at) {
                at = run.last + 1;
            }
            at
        };
        let mut start = behind_done(self.start);
        for (first, last) in runs {
            if *first > start {
                break;
            }
            start = behind_done(start.max(last + 1));
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RecordState, SubscriptionName, SubscriptionRecord, subscription_record};

    /// What a restart makes of these changes alone.
    fn restored(changes: &Changes) -> Subscription {
        let name = SubscriptionName { group: "g".into(), topic: 1, partition: 0 };
        let (mut start, mut lists) = (0, Vec::new());
        for (key, value) in name.records(changes) {
            let value = value.expect("nothing is deleted");
            match subscription_record(&key, &value).expect("its kind").expect("whole").1 {
                SubscriptionRecord::Start { start: from, .. } => start = from,
                SubscriptionRecord::List(number, list) => lists.push((number, value.len(), list)),
                SubscriptionRecord::Page(_) | SubscriptionRecord::Levels(..) => panic!("neither is written"),
            }
        }
        Subscription::restore_with(start, [], lists)
    }

    fn available(subscription: &Subscription) -> Vec<u64> {
        (0..10).filter(|offset| subscription.state(*offset) == RecordState::Available).collect()
    }

    #[test]
    fn what_leaves_is_available_until_that_is_durable_and_written_says_so() {
        let mut subscription = Subscription::new(0);
        drop(subscription.take_changes());
        let refused = subscription.begin_leaving(vec![(0, 1), (4, 4)]);
        assert_eq!((refused.start(), available(&restored(&refused.changes()))), (2, vec![2, 3, 5, 6, 7, 8, 9]));
        subscription.end_leaving(refused, false);
        assert_eq!((subscription.start(), available(&subscription).len()), (0, 10), "it was refused");
        for (runs, left) in [
            (vec![(4, 4)], vec![0, 1, 2, 3, 5, 6, 7, 8, 9]),
            (vec![(0, 1), (6, 6)], vec![2, 3, 5, 7, 8, 9]),
            (vec![(2, 3)], vec![5, 7, 8, 9]),
        ] {
            let begun = subscription.begin_leaving(runs);
            let start = begun.start();
            subscription.end_leaving(begun, true);
            assert_eq!((available(&subscription), subscription.start(), subscription.imbalance()), (left, start, 0));
        }
        assert_eq!(subscription.start(), 5);
    }
}
