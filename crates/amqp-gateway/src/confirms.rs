//! Publisher confirms of a channel: which publishes are open, and how their outcomes are told with few methods.
//!
//! Publishes are numbered from 1 on. As in RabbitMQ, outcomes of one turn are told together: refusals one by one, then one
//! acknowledgement for all below the first that is open, then the others one by one.

use std::collections::VecDeque;

use amqp_wire::basic;

use crate::outgoing::Outgoing;

/// Numbers from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    first: u64,
    last: u64,
}

/// Confirms of a channel.
#[derive(Debug, Default)]
pub(crate) struct Confirms {
    /// Number of the last publish.
    last: u64,
    /// Publishes without an outcome, in order.
    open: VecDeque<Run>,
    acks: Vec<Run>,
    nacks: Vec<Run>,
}

impl Confirms {
    /// Numbers a publish.
    pub fn begin(&mut self) -> u64 {
        self.last += 1;
        match self.open.back_mut() {
            Some(run) if run.last + 1 == self.last => run.last = self.last,
            _ => self.open.push_back(Run { first: self.last, last: self.last }),
        }
        self.last
    }

    /// Publishes have their outcome, which [`Confirms::tell`] tells.
    pub fn settle(&mut self, first: u64, last: u64, kept: bool) {
        let told = if kept { &mut self.acks } else { &mut self.nacks };
        match told.last_mut() {
            Some(run) if run.last + 1 == first => run.last = last,
            _ => told.push(Run { first, last }),
        }
        self.close(Run { first, last });
    }

    /// Frees memory that is only kept for what comes next.
    pub fn rest(&mut self) {
        if self.open.is_empty() && self.acks.is_empty() && self.nacks.is_empty() {
            (self.open, self.acks, self.nacks) = (VecDeque::new(), Vec::new(), Vec::new());
        }
    }

    /// No publish gets another outcome than that it was not kept.
    pub fn refuse_open(&mut self) {
        self.nacks.extend(self.open.drain(..));
    }

    fn close(&mut self, closed: Run) {
        let at = self.open.partition_point(|run| run.last < closed.first);
        let Some(run) = self.open.get_mut(at) else { return };
        debug_assert!(run.first <= closed.first && closed.last <= run.last, "what is settled was open");
        let (before, after) = (Run { last: closed.first - 1, ..*run }, Run { first: closed.last + 1, ..*run });
        match (before.first <= before.last, after.first <= after.last) {
            (true, true) => {
                *run = before;
                self.open.insert(at + 1, after);
            }
            (true, false) => *run = before,
            (false, true) => *run = after,
            (false, false) => drop(self.open.remove(at)),
        }
    }

    /// Writes what is to be told; how many publishes that were.
    pub fn tell(&mut self, channel: u16, out: &mut Outgoing) -> u64 {
        let mut told = 0;
        for run in self.nacks.drain(..) {
            told += run.last - run.first + 1;
            for delivery_tag in run.first..=run.last {
                out.method(channel, &basic::Nack { delivery_tag, multiple: false, requeue: false });
            }
        }
        let end = self.open.front().map_or(self.last + 1, |run| run.first);
        let below = self.acks.iter().filter(|run| run.last < end);
        let (count, highest) =
            below.fold((0, 0), |(count, highest), run| (count + run.last - run.first + 1, highest.max(run.last)));
        if count > 0 {
            out.method(channel, &basic::Ack { delivery_tag: highest, multiple: count > 1 });
        }
        for run in self.acks.drain(..) {
            told += run.last - run.first + 1;
            if run.last < end {
                continue;
            }
            for delivery_tag in run.first..=run.last {
                out.method(channel, &basic::Ack { delivery_tag, multiple: false });
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp_wire::{Method, Parsed, parse_frame};

    fn told(confirms: &mut Confirms) -> Vec<(&'static str, u64, bool)> {
        let (mut outgoing, mut out) = (Outgoing::default(), VecDeque::new());
        confirms.tell(1, &mut outgoing);
        outgoing.poll(&mut out, |_| ());
        let bytes = out.into_iter().collect::<Vec<_>>().concat();
        let (mut rest, mut seen) = (&bytes[..], Vec::new());
        while let Ok(Parsed::Frame(frame)) = parse_frame(rest, 4096) {
            match Method::decode(frame.payload).expect("a method") {
                Method::Basic(basic::Method::Ack(ack)) => seen.push(("ack", ack.delivery_tag, ack.multiple)),
                Method::Basic(basic::Method::Nack(nack)) => seen.push(("nack", nack.delivery_tag, nack.multiple)),
                other => panic!("{other:?}"),
            }
            rest = &rest[frame.bytes()..];
        }
        seen
    }

    fn begun(count: u64) -> Confirms {
        let mut confirms = Confirms::default();
        (1..=count).for_each(|number| assert_eq!(confirms.begin(), number));
        confirms
    }

    #[test]
    fn all_below_the_first_open_one_are_told_at_once() {
        let mut confirms = begun(10);
        confirms.settle(1, 4, true);
        confirms.settle(6, 7, true);
        assert_eq!(told(&mut confirms), [("ack", 4, true), ("ack", 6, false), ("ack", 7, false)]);
        assert_eq!(told(&mut confirms), []);
        confirms.settle(5, 5, true);
        assert_eq!(told(&mut confirms), [("ack", 5, false)], "6 and 7 were told");
        confirms.settle(8, 10, true);
        assert_eq!(told(&mut confirms), [("ack", 10, true)]);
    }

    #[test]
    fn what_is_refused_is_told_before_an_acknowledgement_could_cover_it() {
        let mut confirms = begun(5);
        confirms.settle(4, 5, true);
        confirms.settle(3, 3, false);
        confirms.settle(1, 2, true);
        assert_eq!(told(&mut confirms), [("nack", 3, false), ("ack", 5, true)]);
    }

    #[test]
    fn what_is_open_is_refused_after_what_is_known() {
        let mut confirms = begun(6);
        confirms.settle(1, 2, true);
        confirms.settle(4, 4, true);
        confirms.refuse_open();
        assert_eq!(told(&mut confirms), [("nack", 3, false), ("nack", 5, false), ("nack", 6, false), ("ack", 4, true)]);
        assert_eq!(told(&mut confirms), []);
    }

    #[test]
    fn order_of_outcomes_does_not_matter() {
        let mut confirms = begun(3);
        confirms.settle(2, 2, true);
        assert_eq!(told(&mut confirms), [("ack", 2, false)]);
        confirms.settle(3, 3, true);
        confirms.settle(1, 1, true);
        assert_eq!(told(&mut confirms), [("ack", 3, true)]);
        assert_eq!(confirms.begin(), 4);
        confirms.settle(4, 4, false);
        assert_eq!(told(&mut confirms), [("nack", 4, false)]);
    }
}
