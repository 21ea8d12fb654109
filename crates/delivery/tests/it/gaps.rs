//! Offsets without messages: they are no length, wherever they lie and whenever they are found.

use delivery::{
    ChannelId, Consume, ConsumerId, Dead, Head, Line, NO_LOCK, Overflow, Queue, QueueKind, QueueRules, Rules, Searched,
    Subscription, Verdict,
};

const RULES: Rules =
    Rules { deliveries_max: None, unfinished_max: u64::MAX, lock: NO_LOCK, dead_letters: false, retry: None };
const ONE: ConsumerId = ConsumerId(1);

fn queue(subscription: &mut Subscription, length_max: u64, overflow: Overflow) -> Queue {
    Queue::new(
        QueueRules { length_max: Some(length_max), overflow, ..QueueRules::new(QueueKind::Classic) },
        false,
        subscription,
        0,
    )
}

#[test]
fn what_was_aborted_is_no_length() {
    let mut subscription = Subscription::new(0);
    let mut queue = queue(&mut subscription, 5, Overflow::DropHead);
    // Three messages, twenty aborted ones with their marker, one more message.
    queue.note_gap(&mut subscription, 3, 23);
    assert_eq!((subscription.ready(24), subscription.ready(10), subscription.ready(25)), (3, 3, 4));
    assert!(!queue.over_limit(&subscription, 25));
    assert!(queue.over_limit(&subscription, 28), "with two more it is too long, with three messages behind the gap");
    assert_eq!(queue.purge(&mut subscription, 25), 4);
    assert_eq!((subscription.start(), subscription.ready(25)), (25, 0));
}

#[test]
fn a_limit_counts_only_what_was_searched() {
    let mut subscription = Subscription::new(0);
    let mut drops = queue(&mut subscription, 5, Overflow::DropHead);
    subscription.set_searched(Searched { until: 4, compactions: 0 });
    assert_eq!((subscription.ready(1000), subscription.ready_for_certain(1000)), (1000, 4));
    assert!(!drops.over_limit(&subscription, 1000));
    let mut refuses = queue(&mut subscription, 5, Overflow::RejectPublish);
    assert!(!refuses.refuses(&subscription, (1000, 1000), &Line::default(), (1, 1)));
    // Found later: five messages at either end.
    drops.note_gap(&mut subscription, 5, 994);
    subscription.set_searched(Searched { until: 1000, compactions: 0 });
    assert_eq!((subscription.ready(1000), subscription.ready_for_certain(1000)), (10, 10));
    assert!(
        drops.over_limit(&subscription, 1000) && refuses.refuses(&subscription, (1000, 1000), &Line::default(), (1, 1))
    );
}

#[test]
fn what_waited_for_a_transaction_takes_room_until_it_is_searched() {
    let mut subscription = Subscription::new(0);
    let mut refuses = queue(&mut subscription, 5, Overflow::RejectPublish);
    subscription.set_searched(Searched { until: 0, compactions: 0 });
    let mut line = Line::default();
    let look = |refuses: &mut Queue, subscription: &Subscription, line: &mut Line, stable, readable| {
        line.note_stable((stable, readable), subscription.searched().until, || 1);
        (1..)
            .find(|count| refuses.refuses(subscription, (stable, readable), line, (*count, *count)))
            .expect("it is full at last")
            - 1
    };
    assert_eq!(look(&mut refuses, &subscription, &mut line, 0, 3), 2);
    assert_eq!(look(&mut refuses, &subscription, &mut line, 0, 5), 0);
    // It has ended, and who has not looked does not know whether it was aborted.
    assert_eq!(
        [look(&mut refuses, &subscription, &mut line, 6, 6), look(&mut refuses, &subscription, &mut line, 6, 6)],
        [0, 0]
    );
    refuses.note_gap(&mut subscription, 0, 2);
    subscription.set_searched(Searched { until: 3, compactions: 0 });
    assert_eq!(look(&mut refuses, &subscription, &mut line, 6, 6), 2, "three are not searched");
    refuses.note_gap(&mut subscription, 5, 5);
    subscription.set_searched(Searched { until: 6, compactions: 0 });
    assert_eq!(look(&mut refuses, &subscription, &mut line, 6, 6), 3);
    // One that nobody has seen open.
    line.pass(1);
    assert_eq!(
        [look(&mut refuses, &subscription, &mut line, 9, 9), look(&mut refuses, &subscription, &mut line, 9, 9)],
        [0, 0]
    );
    refuses.note_gap(&mut subscription, 6, 8);
    subscription.set_searched(Searched { until: 9, compactions: 0 });
    assert_eq!(look(&mut refuses, &subscription, &mut line, 9, 9), 3);
    subscription.set_searched(Searched { until: 0, compactions: 1 });
    assert_eq!(look(&mut refuses, &subscription, &mut line, 9, 9), 5, "compaction was there");
    assert_eq!(look(&mut refuses, &subscription, &mut line, 1_000, 1_000), 5, "there was no transaction");
}

#[test]
fn compaction_makes_a_queue_shorter_also_where_it_was_looked_at() {
    let (mut subscription, mut dead) = (Subscription::new(0), Vec::new());
    let mut queue = queue(&mut subscription, 5, Overflow::DropHead);
    for offset in 0..6 {
        subscription.give(ONE, offset, NO_LOCK).expect("it is available");
    }
    subscription.judge(ONE, 3, 5, Verdict::Release, 0, &RULES, &mut dead);
    assert!(queue.over_limit(&subscription, 12));
    // One is held, one has come back, the others nobody has looked at.
    [(1, 1), (4, 4), (6, 9)].iter().for_each(|(first, last)| queue.note_gap(&mut subscription, *first, *last));
    assert_eq!((subscription.ready(12), subscription.unacknowledged()), (4, 3));
    assert!(!queue.over_limit(&subscription, 12));
    assert_eq!(subscription.judge(ONE, 0, 2, Verdict::Return, 0, &RULES, &mut dead), 3);
    assert_eq!(
        (subscription.ready(12), subscription.unacknowledged(), dead.len()),
        (6, 0, 0),
        "what is not there does not come back"
    );
    let mut heads = Vec::new();
    while let Head::Record(offset) = queue.head(&subscription, 12) {
        subscription.give_away(offset).expect("it is available");
        heads.push(offset);
    }
    assert_eq!(heads, [0, 2, 3, 5, 10, 11]);
    assert_eq!((subscription.start(), subscription.end()), (12, 12));
}

#[test]
fn what_was_searched_is_known_to_a_queue_that_rested() {
    let mut subscription = Subscription::new(7);
    subscription.set_searched(Searched { until: 40, compactions: 2 });
    let _ = subscription.take_changes();
    let woken = subscription.rest().expect("nobody has used it").wake();
    assert_eq!((woken.searched(), woken.ready_for_certain(50)), (Searched { until: 40, compactions: 2 }, 33));
    subscription.reset(3);
    assert_eq!(
        subscription.searched(),
        Searched { until: 3, compactions: 2 },
        "what lies before may come again, and is searched again"
    );
}

#[test]
fn a_consumer_whose_messages_were_deleted_has_its_credit_again() {
    let (mut subscription, mut dead): (_, Vec<Dead>) = (Subscription::new(0), Vec::new());
    let mut queue = queue(&mut subscription, 3, Overflow::RejectPublish);
    let consume = Consume {
        id: ONE,
        channel: ChannelId(7),
        no_ack: false,
        exclusive: false,
        priority: 0,
        prefetch: 2,
        time_out_ms: None,
    };
    queue.add_consumer(&consume).expect("nobody is alone");
    let mut admit = |_: ChannelId, _: bool| true;
    for offset in 0..2 {
        assert!(queue.dispatch(&mut subscription, offset, 1, &mut admit).is_some());
    }
    assert!(
        !queue.has_taker() && queue.refuses(&subscription, (5, 5), &Line::default(), (1, 1)),
        "two are out, three wait"
    );
    assert_eq!(queue.trim(&mut subscription, 4), [(ChannelId(7), 2)]);
    assert!(queue.has_taker() && !queue.refuses(&subscription, (5, 5), &Line::default(), (1, 1)));
    assert_eq!(queue.settle(&mut subscription, ONE, 0, 1, Verdict::Accept, 0, &mut dead), 0, "they are gone");
    assert_eq!(queue.dispatch(&mut subscription, 4, 1, &mut admit).map(|given| given.consumer), Some(ONE));
    assert!(queue.trim(&mut subscription, 4).is_empty(), "it is there already");
    assert_eq!(queue.unacknowledged_of(ONE), 1);
}
