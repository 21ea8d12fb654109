//! Very many consumers of one queue in one channel cost as much each as few do.

use delivery::{ChannelId, Consume, ConsumerId, Head, Queue, QueueKind, QueueRules, Subscription, Verdict};

const CHANNEL: ChannelId = ChannelId(1);
/// Ten times as many may cost so many times as much: what grows with the square costs a hundred times as much.
const TIMES: u64 = 30;
/// Less than this is no fault, in ns.
const FLOOR: u64 = 500_000_000;

/// Processor time of this thread, in ns.
fn processor() -> u64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    line.split(' ').next().and_then(|time| time.parse().ok()).expect("a number")
}

/// Consumers with a record each; what `end` does with them, in processor time.
fn cost(kind: QueueKind, count: u64, end: &dyn Fn(&mut Queue, &mut Subscription)) -> u64 {
    let mut subscription = Subscription::new(0);
    let mut queue = Queue::new(QueueRules::new(kind), false, &mut subscription, 0);
    for id in 0..count {
        let (id, no_ack, exclusive) = (ConsumerId(id), false, false);
        let wish = Consume { id, channel: CHANNEL, no_ack, exclusive, priority: 0, prefetch: 1, time_out_ms: None };
        queue.add_consumer(&wish).expect("it may");
    }
    for offset in 0..count {
        let told = loop {
            match queue.head(&subscription, count) {
                Head::Unread(first, last) => subscription.set_levels(first, last, &mut |_| 0),
                Head::Record(head) => break queue.dispatch(&mut subscription, head, 1, &mut |_, _| true),
                Head::Nothing => break None,
            }
        };
        assert_eq!(told.map(|told| told.consumer.0), Some(offset), "each has its turn");
    }
    assert!(queue.head(&subscription, count) == Head::Nothing && !queue.has_taker(), "none has credit");
    let before = processor();
    end(&mut queue, &mut subscription);
    processor() - before
}

fn check(what: &str, end: &dyn Fn(&mut Queue, &mut Subscription, u64)) {
    for kind in [QueueKind::Classic, QueueKind::Quorum] {
        let [few, many] = [1_000, 10_000].map(|count| cost(kind, count, &|queue, of| end(queue, of, count)));
        assert!(many < FLOOR.max(TIMES * few), "{what}, {kind:?}: {many} ns for ten times what costs {few}");
    }
}

#[test]
fn an_acknowledgement_looks_at_its_own_consumer() {
    check("acknowledgements", &|queue, subscription, count| {
        for id in 0..count {
            queue.settle(subscription, ConsumerId(id), id, id, Verdict::Accept, 0, &mut Vec::new());
        }
        assert!(queue.has_taker());
    });
}

#[test]
fn a_consumer_that_goes_is_not_looked_for() {
    check("cancellations", &|queue, _, count| {
        assert!((0..count).all(|id| queue.cancel(ConsumerId(id), 0)));
        assert_eq!(queue.consumers(), 0);
    });
    check("the end of a channel", &|queue, subscription, count| {
        let had: Vec<_> = (0..count).map(|id| (ConsumerId(id), id, id)).collect();
        queue.remove_channel(subscription, CHANNEL, &had, 0, &mut Vec::new());
        assert_eq!(subscription.ready(count), count, "all of it is back");
        assert_eq!(queue.consumers(), 0);
    });
}
