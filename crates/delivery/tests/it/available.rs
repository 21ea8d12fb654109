//! What a queue asks of a subscription: levels, what is given before, limits of deliveries, dropping, purging, counts.

use std::collections::BTreeMap;

use bytes::Bytes;
use delivery::{
    ConsumerId, DEAD_LETTERS, Dead, DeadReason, NO_LOCK, PageRun, RecordState, Rules, StoredState, Subscription,
    SubscriptionName, SubscriptionRecord, Tries, Verdict, subscription_record,
};

const RULES: Rules =
    Rules { deliveries_max: None, unfinished_max: u64::MAX, lock: NO_LOCK, dead_letters: false, retry: None };
const ONE: ConsumerId = ConsumerId(1);
const TWO: ConsumerId = ConsumerId(2);

fn say(subscription: &mut Subscription, first: u64, last: u64, verdict: Verdict, rules: &Rules) -> (u64, Vec<Dead>) {
    let mut dead = Vec::new();
    let count = subscription.judge(ONE, first, last, verdict, 0, rules, &mut dead);
    (count, dead)
}

fn name() -> SubscriptionName {
    SubscriptionName { group: "queue".into(), topic: 9, partition: 0 }
}

/// What is durable, through its bytes; and a subscription made of it.
fn restart(subscription: &mut Subscription, stored: &mut BTreeMap<Bytes, Bytes>) -> (Subscription, Option<u64>) {
    for (key, value) in name().records(&subscription.take_changes()) {
        match value {
            Some(value) => drop(stored.insert(key, value)),
            None => drop(stored.remove(&key)),
        }
    }
    let (mut begin, mut runs, mut levels, mut lists): (_, Vec<PageRun>, Vec<_>, Vec<_>) =
        (None, Vec::new(), Vec::new(), Vec::new());
    for (key, value) in stored {
        match subscription_record(key, value).expect("its kind").expect("whole") {
            (_, SubscriptionRecord::Start { start, given }) => begin = Some((start, given)),
            (_, SubscriptionRecord::Page(page)) => runs.extend(page),
            (_, SubscriptionRecord::Levels(page, one)) => levels.push((page, one)),
            (_, SubscriptionRecord::List(number, list)) => lists.push((number, value.len(), list)),
        }
    }
    let (start, given) = begin.expect("a start");
    let mut restored = Subscription::restore_with(start, runs, lists);
    levels.into_iter().for_each(|(page, one)| restored.restore_levels(page, one));
    (restored, given)
}

#[test]
fn higher_levels_go_first_and_what_is_returned_goes_back_to_its_place() {
    let level = |offset: u64| [1u8, 1, 5, 5, 1, 0][offset as usize];
    let mut subscription = Subscription::new(0);
    subscription.set_levelled(true);
    assert_eq!((subscription.head(6), subscription.unlevelled(6, &RULES)), (None, Some((0, 5))));
    subscription.set_levels(0, 5, &mut |offset| level(offset));
    assert_eq!(subscription.heads().collect::<Vec<_>>(), [(5, 2), (1, 0), (0, 5)]);
    assert_eq!(subscription.unlevelled(6, &RULES), None);
    let take = |subscription: &mut Subscription| {
        let head = subscription.head(6)?;
        subscription.give(ONE, head, NO_LOCK).map(|_| head)
    };
    assert_eq!([(); 3].map(|()| take(&mut subscription)), [Some(2), Some(3), Some(0)]);
    for offset in [0, 3, 2] {
        say(&mut subscription, offset, offset, Verdict::Return, &RULES);
    }
    assert_eq!([(); 7].map(|()| take(&mut subscription)), [Some(2), Some(3), Some(0), Some(1), Some(4), Some(5), None]);
}

#[test]
fn levels_are_found_again_after_a_restart() {
    let (mut subscription, mut stored) = (Subscription::new(0), BTreeMap::new());
    subscription.set_levelled(true);
    subscription.set_levels(0, 3, &mut |offset| (offset % 2) as u8);
    subscription.give(ONE, 3, NO_LOCK).expect("it is available");
    subscription.give(ONE, 1, NO_LOCK).expect("it is available");
    say(&mut subscription, 3, 3, Verdict::Accept, &RULES);
    say(&mut subscription, 1, 1, Verdict::Release, &RULES);
    let (mut after, _) = restart(&mut subscription, &mut stored);
    after.set_levelled(true);
    assert_eq!((after.head(6), after.ready(6)), (None, 5));
    // Read as far as it is allowed; what is known already is not asked for.
    while let Some((first, last)) = after.unlevelled(6, &RULES) {
        after.set_levels(first, last, &mut |offset| {
            assert_ne!(offset, 3, "it is done");
            (offset % 2) as u8
        });
    }
    assert_eq!(after.heads().collect::<Vec<_>>(), [(1, 1), (0, 0)]);
    assert_eq!(after.give(ONE, 1, NO_LOCK), Some(Tries { counted: 1, spared: 0 }));
    // A face that knows no levels works on the same records.
    let mut out = Vec::new();
    after.acquire(TWO, 0, 5, 10, 0, &RULES, &mut |_| None, &mut out);
    assert_eq!(out.iter().map(|run| (run.first, run.last)).collect::<Vec<_>>(), [(0, 0), (2, 2), (4, 5)]);
}

#[test]
fn levels_are_looked_for_no_further_than_the_bound() {
    let rules = Rules { unfinished_max: 10, ..RULES };
    let mut subscription = Subscription::new(0);
    subscription.set_levelled(true);
    assert_eq!(subscription.unlevelled(100, &rules), Some((0, 9)));
    subscription.set_levels(0, 9, &mut |_| 0);
    assert_eq!(subscription.unlevelled(100, &rules), None);
    subscription.give_away(0).expect("it is available");
    assert_eq!(subscription.unlevelled(100, &rules), Some((10, 10)));
    assert_eq!(subscription.ready(100), 99);
}

#[test]
fn without_a_limit_a_record_is_delivered_for_ever() {
    let (mut subscription, mut stored) = (Subscription::new(0), BTreeMap::new());
    for _ in 0..70_000 {
        subscription.give(ONE, 0, NO_LOCK).expect("it is available");
        assert_eq!(say(&mut subscription, 0, 0, Verdict::Release, &RULES), (1, Vec::new()));
    }
    let (mut after, _) = restart(&mut subscription, &mut stored);
    assert_eq!(after.give(ONE, 0, NO_LOCK), Some(Tries { counted: u16::MAX, spared: 0 }));
    assert_eq!(after.next_deadline(), None, "no delivery has a deadline");
}

#[test]
fn what_is_spared_does_not_count_to_the_limit() {
    let rules = Rules { deliveries_max: Some(2), ..RULES };
    let (mut subscription, mut stored) = (Subscription::new(0), BTreeMap::new());
    for spared in 0..5 {
        assert_eq!(subscription.give(ONE, 0, NO_LOCK), Some(Tries { counted: 0, spared }));
        say(&mut subscription, 0, 0, Verdict::Return, &rules);
    }
    subscription.give(ONE, 0, NO_LOCK).expect("it is available");
    assert_eq!(say(&mut subscription, 0, 0, Verdict::Release, &rules).1, []);
    let (mut subscription, _) = restart(&mut subscription, &mut stored);
    assert_eq!(subscription.give(ONE, 0, NO_LOCK), Some(Tries { counted: 1, spared: 5 }));
    let (_, dead) = say(&mut subscription, 0, 0, Verdict::Release, &rules);
    assert_eq!(dead, [Dead { first: 0, last: 0, count: 7, failed: 2, reason: DeadReason::DeliveryLimit }]);
}

#[test]
fn the_dead_keep_their_reason_over_a_restart() {
    let rules = Rules { dead_letters: true, lock: 100, deliveries_max: Some(1), ..RULES };
    let (mut subscription, mut stored, mut dead) = (Subscription::new(0), BTreeMap::new(), Vec::new());
    for offset in 0..2 {
        subscription.give(ONE, offset, NO_LOCK).expect("it is available");
    }
    say(&mut subscription, 0, 0, Verdict::Reject, &rules);
    say(&mut subscription, 1, 1, Verdict::Release, &rules);
    assert_eq!(subscription.drop_available(2, 3, DeadReason::Expired, &rules, &mut dead), 2);
    assert_eq!(subscription.drop_available(4, 4, DeadReason::MaxLength, &rules, &mut dead), 1);
    assert_eq!((subscription.ready(6), subscription.unacknowledged(), subscription.in_flight()), (1, 0, 5));
    let (mut after, _) = restart(&mut subscription, &mut stored);
    assert_eq!(after.state(4), RecordState::Acquired(DEAD_LETTERS));
    dead.clear();
    assert_eq!(after.expire(0, &rules, &mut dead), 5);
    let reasons: Vec<(u64, u16, DeadReason)> = dead.iter().map(|dead| (dead.last, dead.count, dead.reason)).collect();
    use DeadReason::{DeliveryLimit, Expired, MaxLength, Rejected};
    assert_eq!(reasons, [(0, 1, Rejected), (1, 1, DeliveryLimit), (3, 0, Expired), (4, 0, MaxLength)]);
    after.buried(0, 4);
    assert_eq!((after.start(), after.unacknowledged(), after.ready(6)), (5, 0, 1));
}

#[test]
fn a_purge_leaves_what_consumers_have() {
    let mut subscription = Subscription::new(0);
    let fresh = subscription.turnover();
    subscription.give(ONE, 0, NO_LOCK).expect("it is available");
    subscription.give(ONE, 1, NO_LOCK).expect("it is available");
    let before = subscription.turnover();
    assert_ne!(before, fresh);
    assert_eq!(subscription.purge(5), 3);
    assert_ne!(subscription.turnover(), before);
    assert_eq!((subscription.ready(7), subscription.unacknowledged()), (2, 2));
    assert_eq!(say(&mut subscription, 0, 4, Verdict::Return, &RULES), (2, Vec::new()));
    assert_eq!((subscription.ready(7), subscription.head(7)), (4, Some(0)));
}

#[test]
fn what_may_have_been_given_out_before_a_crash_is_known() {
    let (mut subscription, mut stored) = (Subscription::new(0), BTreeMap::new());
    subscription.remember_given(0);
    for offset in 0..3 {
        let before = subscription.give(ONE, offset, NO_LOCK).expect("it is available");
        assert!(!subscription.redelivered(offset, before));
    }
    let (mut after, given) = restart(&mut subscription, &mut stored);
    assert_eq!(given, Some(3));
    after.remember_given(3);
    let before = after.give(ONE, 2, NO_LOCK);
    assert_eq!(before, None, "nobody has looked at it");
    for (offset, redelivered) in [(0, true), (1, true), (2, true), (3, false)] {
        let before = after.give(TWO, offset, NO_LOCK).expect("it is available");
        assert_eq!((before, after.redelivered(offset, before)), (Tries::default(), redelivered));
    }
    // What was kept does not shrink when less is given out in the next life.
    let (_, given) = restart(&mut after, &mut stored);
    assert_eq!(given, Some(4));
}

#[test]
fn pages_of_earlier_versions_are_read() {
    let key = name()
        .records(&delivery::Changes {
            start: None,
            given: None,
            pages: vec![(0, Vec::new())],
            levels: Vec::new(),
            list: None,
            lists_gone: Vec::new(),
        })
        .remove(0)
        .0;
    let value = [&[1u8][..], &[0, 0, 0, 1, 0], &[0, 5, 0, 0, 1], &[0, 6, 0, 0, 2 + 3], &[0, 7, 0, 2, 128 + 4]].concat();
    let (_, record) = subscription_record(&key, &value).expect("its kind").expect("whole");
    let SubscriptionRecord::Page(runs) = record else { panic!("a page") };
    let counted = |counted| Tries { counted, spared: 0 };
    let states: Vec<(u64, u64, StoredState)> = runs.iter().map(|run| (run.first, run.last, run.state)).collect();
    let done = StoredState::Done;
    assert_eq!(
        states,
        [
            (0, 1, done(delivery::Done::Acknowledged)),
            (5, 5, done(delivery::Done::Archived)),
            (6, 6, StoredState::Returned(counted(3))),
            (7, 9, StoredState::Dead(counted(4), DeadReason::Rejected)),
        ]
    );
    let second = [&[2u8][..], &[0, 0, 0, 1, 0], &[0, 6, 0, 0, 2, 0, 3, 0, 1]].concat();
    let Some(Some((_, SubscriptionRecord::Page(runs)))) = subscription_record(&key, &second) else {
        panic!("a page of version 2")
    };
    assert_eq!(
        runs.iter().map(|run| (run.first, run.last, run.state)).collect::<Vec<_>>(),
        [(0, 1, done(delivery::Done::Acknowledged)), (6, 6, StoredState::Returned(Tries { counted: 3, spared: 1 })),]
    );
    let broken = [&[2u8][..], &[0, 0, 0, 1, 9, 0, 0, 0, 0]].concat();
    assert_eq!(subscription_record(&key, &broken), Some(None), "no such state");
    assert_eq!(subscription_record(&key, &[3]), Some(None), "a newer version");
}

/// What is done takes as few bytes as it can: a list of distances while it is short, bits when they are shorter; what else there is lies behind.
#[test]
fn a_page_is_written_as_a_list_or_as_bits_and_read_again() {
    let page = |runs: Vec<PageRun>| delivery::Changes {
        start: None,
        given: None,
        pages: vec![(3, runs)],
        levels: Vec::new(),
        list: None,
        lists_gone: Vec::new(),
    };
    let base = 3 * delivery::PAGE_OFFSETS;
    let done = |first: u64, last: u64| PageRun {
        first: base + first,
        last: base + last,
        state: StoredState::Done(delivery::Done::Acknowledged),
    };
    let archived =
        PageRun { first: base + 9000, last: base + 9000, state: StoredState::Done(delivery::Done::Archived) };
    let returned = PageRun {
        first: base + 9001,
        last: base + 9002,
        state: StoredState::Returned(Tries { counted: 2, spared: 1 }),
    };
    let few: Vec<PageRun> = (0..100).map(|at| done(at * 20, at * 20)).collect();
    let many: Vec<PageRun> = (0..2200).map(|at| done(at * 4, at * 4 + 1)).collect();
    for (mut runs, version, bytes) in [(few, 4, 3 + 100 + 3 + 9), (many, 3, 1 + 2048 + 5 + 9)] {
        runs.extend([archived, returned]);
        let (key, value) = name().records(&page(runs.clone())).remove(0);
        let value = value.expect("it is not empty");
        assert_eq!((value[0], value.len()), (version, bytes));
        assert_eq!(subscription_record(&key, &value), Some(Some((name(), SubscriptionRecord::Page(runs)))));
        for end in 1..value.len() {
            if let Some(Some((_, SubscriptionRecord::Page(found)))) = subscription_record(&key, &value[..end]) {
                assert!(found.len() < 2300, "what is cut is no longer than the whole");
            }
        }
    }
}
