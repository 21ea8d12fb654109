//! What consumers of a queue keep for too long, as RabbitMQ 4.3 takes it from them; and what waits before it is given out again.

use delivery::{
    ChannelId, Consume, ConsumerId, ConsumerStatus, Dead, DeadReason, Head, Overflow, Queue, QueueKind, QueueRules,
    Retry, RetryOf, Subscription, TakenBack, Verdict,
};

const CHANNEL: ChannelId = ChannelId(1);
const A: ConsumerId = ConsumerId('A' as u64);
const B: ConsumerId = ConsumerId('B' as u64);
const GETTER: ConsumerId = ConsumerId(1000);

/// A quorum queue of so many messages; consumers may keep each for 100 ms.
struct Rig {
    queue: Queue,
    subscription: Subscription,
    end: u64,
    dead: Vec<Dead>,
}

impl Rig {
    fn new(rules: QueueRules, single: bool, messages: u64) -> Self {
        let mut subscription = Subscription::new(0);
        Self { queue: Queue::new(rules, single, &mut subscription, 0), subscription, end: messages, dead: Vec::new() }
    }

    fn consume(&mut self, id: ConsumerId, prefetch: u32) {
        let consume = Consume {
            id,
            channel: CHANNEL,
            no_ack: false,
            exclusive: false,
            priority: 0,
            prefetch,
            time_out_ms: Some(100),
        };
        self.queue.add_consumer(&consume).expect("it may");
    }

    /// Who is given what now: "A0 B1".
    fn give(&mut self) -> String {
        let mut seen = Vec::new();
        while let Head::Record(offset) = self.queue.head(&self.subscription, self.end) {
            let Some(given) = self.queue.dispatch(&mut self.subscription, offset, 1, &mut |_, _| true) else { break };
            seen.push(format!("{}{offset}", char::from_u32(given.consumer.0 as u32).expect("a letter")));
        }
        seen.join(" ")
    }

    fn take_back(&mut self, now_ms: u64) -> Vec<(ConsumerId, u64)> {
        self.queue.set_time(now_ms);
        let taken = self.queue.take_back(&mut self.subscription, &mut self.dead);
        taken
            .into_iter()
            .map(|TakenBack { holder, channel, count }| (holder, if channel == CHANNEL { count } else { 0 }))
            .collect()
    }

    fn say(&mut self, holder: ConsumerId, offset: u64, verdict: Verdict, now_ms: u64) {
        assert_eq!(
            self.queue.settle(&mut self.subscription, holder, offset, offset, verdict, now_ms, &mut self.dead),
            1
        );
    }

    fn ack(&mut self, holder: ConsumerId, offset: u64) -> u64 {
        self.queue.settle(&mut self.subscription, holder, offset, offset, Verdict::Accept, 0, &mut self.dead)
    }
}

fn quorum() -> QueueRules {
    QueueRules { priority_max: None, ..QueueRules::new(QueueKind::Quorum) }
}

#[test]
fn a_consumer_that_keeps_something_too_long_waits_until_it_has_settled_it() {
    let mut rig = Rig::new(quorum(), false, 4);
    rig.consume(A, 2);
    assert_eq!(rig.give(), "A0 A1");
    assert_eq!(rig.subscription.next_time(), Some(100));
    assert_eq!(rig.take_back(99), []);
    assert_eq!(rig.take_back(100), [(A, 2)]);
    assert_eq!((rig.subscription.next_time(), rig.queue.unacknowledged_of(A)), (None, 0));
    assert_eq!(rig.queue.consumer_status(A), Some(ConsumerStatus::TimedOut));
    assert_eq!((rig.subscription.ready(rig.end), rig.give().as_str()), (4, ""));
    assert_eq!((rig.ack(A, 0), rig.give().as_str()), (0, ""), "too late, and not all");
    assert_eq!(rig.ack(A, 1), 0);
    assert_eq!(rig.give(), "A0 A1", "again");
    assert_eq!(rig.queue.consumer_status(A), Some(ConsumerStatus::Blocked));
    assert_eq!((rig.ack(A, 0), rig.ack(A, 1), rig.give().as_str()), (1, 1, "A2 A3"));
}

#[test]
fn others_get_what_was_taken_and_the_limit_of_deliveries_does_not_count_it() {
    let rules = QueueRules { delivery_limit: Some(0), ..quorum() };
    let mut rig = Rig::new(rules, false, 2);
    rig.consume(A, 1);
    assert_eq!(rig.give(), "A0");
    rig.queue.set_time(50);
    rig.consume(B, 10);
    assert_eq!(rig.give(), "B1");
    assert_eq!(rig.take_back(100), [(A, 1)]);
    assert_eq!(rig.give(), "B0");
    assert_eq!(rig.subscription.next_time(), Some(150));
    assert_eq!(rig.ack(B, 1), 1);
    assert_eq!(rig.take_back(150), []);
    assert_eq!(rig.take_back(200), [(B, 1)]);
    assert_eq!((rig.dead.len(), rig.subscription.ready(2)), (0, 1));
}

#[test]
fn the_next_of_single_consumers_comes_when_the_late_one_has_nothing() {
    let mut rig = Rig::new(quorum(), true, 4);
    rig.consume(A, 2);
    rig.consume(B, 2);
    assert_eq!(rig.give(), "A0 A1");
    assert_eq!(rig.ack(A, 0), 1);
    rig.queue.set_time(60);
    assert_eq!(rig.give(), "A2");
    assert_eq!(rig.take_back(100), [(A, 1)]);
    assert_eq!((rig.queue.active(), rig.give().as_str()), (Some(A), ""), "it has one more");
    assert_eq!(rig.ack(A, 2), 1);
    assert_eq!(rig.queue.active(), Some(B));
    assert_eq!(rig.give(), "B1 B3");
    assert_eq!(rig.ack(A, 1), 0);
    assert_eq!(rig.queue.consumer_status(A), Some(ConsumerStatus::Waiting));
}

#[test]
fn what_was_got_comes_back_as_well_and_cancelled_consumers_are_reported() {
    let mut rig = Rig::new(quorum(), false, 2);
    let got = rig.queue.get(&mut rig.subscription, 0, 1, CHANNEL, GETTER, false, Some(10));
    assert_eq!(got.map(|given| given.offset), Some(0));
    rig.consume(A, 1);
    assert_eq!(rig.give(), "A1");
    rig.queue.cancel(A, 0);
    assert_eq!(rig.subscription.next_time(), Some(10));
    assert_eq!(rig.take_back(1000), [(A, 1), (GETTER, 1)]);
    assert_eq!((rig.subscription.ready(2), rig.queue.consumers()), (2, 0));
    // Whoever has no limit keeps it.
    let got = rig.queue.get(&mut rig.subscription, 0, 1, CHANNEL, GETTER, false, None);
    assert_eq!((got.map(|given| given.offset), rig.subscription.next_time()), (Some(0), None));
}

#[test]
fn time_outs_of_half_an_hour_are_kept_together() {
    let mut rig = Rig::new(quorum(), false, 1000);
    let minutes_30 = 1_800_000;
    for offset in 0..1000 {
        rig.queue.set_time(offset * 10);
        rig.queue.get(&mut rig.subscription, offset, 1, CHANNEL, GETTER, false, Some(minutes_30)).expect("it is there");
    }
    let next = rig.subscription.next_time().expect("one");
    assert!((minutes_30..=minutes_30 * 65 / 64).contains(&next), "never early, up to 1/64 late: {next}");
    assert!(rig.subscription.held(GETTER, 0, u64::MAX).len() <= 2, "{:?}", rig.subscription.held(GETTER, 0, u64::MAX));
    assert_eq!(rig.take_back(next - 1), []);
    assert_eq!(rig.subscription.expire(u64::MAX / 2, &rules(), &mut Vec::new()), 0, "they are no locks");
}

fn rules() -> delivery::Rules {
    delivery::Rules { deliveries_max: None, unfinished_max: u64::MAX, lock: 1000, dead_letters: false, retry: None }
}

fn retry(of: RetryOf) -> QueueRules {
    QueueRules { retry: Some(Retry { of, min_ms: 10, max_ms: 25 }), delivery_limit: Some(3), ..quorum() }
}

#[test]
fn what_comes_back_waits_longer_each_time_and_then_comes_before_all_others() {
    let mut rig = Rig::new(retry(RetryOf::All), false, 3);
    rig.consume(A, 1);
    assert_eq!(rig.give(), "A0");
    let mut now = 0;
    for (times, wait) in [(1, 10), (2, 20), (3, 25)] {
        rig.say(A, 0, Verdict::Release, now);
        assert_eq!(
            (rig.subscription.delayed(), rig.subscription.ready(3), rig.subscription.unacknowledged()),
            (1, 2, 0),
            "time {times}"
        );
        assert_eq!(rig.subscription.next_time(), Some(now + wait));
        assert_eq!(rig.take_back(now + wait - 1), []);
        assert_eq!(rig.subscription.delayed(), 1);
        now += wait;
        assert_eq!(rig.take_back(now), []);
        assert_eq!((rig.subscription.delayed(), rig.give().as_str()), (0, "A0"), "time {times}");
    }
    rig.say(A, 0, Verdict::Release, now);
    assert_eq!(
        rig.dead.iter().map(|dead| (dead.first, dead.reason)).collect::<Vec<_>>(),
        [(0, DeadReason::DeliveryLimit)]
    );
    assert_eq!(rig.give(), "A1");
}

#[test]
fn only_what_is_meant_waits_and_it_takes_its_room() {
    for (of, failed, returned) in [(RetryOf::Failed, 1, 0), (RetryOf::Returned, 0, 1)] {
        for (verdict, waits) in [(Verdict::Release, failed), (Verdict::Return, returned)] {
            let rules = QueueRules { length_max: Some(2), overflow: Overflow::DropHead, ..retry(of) };
            let mut rig = Rig::new(rules, false, 2);
            rig.consume(A, 1);
            assert_eq!(rig.give(), "A0");
            rig.say(A, 0, verdict, 0);
            assert_eq!(rig.subscription.delayed(), waits, "{of:?} {verdict:?}");
            assert!(!rig.queue.over_limit(&rig.subscription, 2) && rig.queue.over_limit(&rig.subscription, 3));
            assert_eq!(rig.queue.purge(&mut rig.subscription, 2), 2);
            assert_eq!((rig.subscription.delayed(), rig.subscription.start()), (0, 2));
        }
    }
}

#[test]
fn what_was_kept_too_long_waits_as_well() {
    let mut rig = Rig::new(retry(RetryOf::Returned), false, 1);
    rig.consume(A, 1);
    assert_eq!(rig.give(), "A0");
    assert_eq!(rig.take_back(100), [(A, 1)]);
    assert_eq!((rig.subscription.delayed(), rig.subscription.next_time()), (1, Some(110)));
    assert_eq!(rig.take_back(110), []);
    assert_eq!(rig.subscription.ready(1), 1);
}
