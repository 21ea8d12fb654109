//! Whose turn it is, what is dropped and what comes back, as RabbitMQ 4.3 answered when it was asked the same.

use QueueKind::{Classic, Quorum};
use delivery::{
    ChannelId, Consume, ConsumerId, ConsumerStatus, Dead, DeadReason, DeleteRefused, Head, InExclusiveUse, Line,
    Overflow, Queue, QueueKind, QueueRules, Subscription, Verdict,
};

const CHANNEL: ChannelId = ChannelId(1);
const GETTER: ConsumerId = ConsumerId(1000);

/// A queue with its messages; what is told is "A1": consumer A has got the first message, "*" if it may have been delivered before.
struct Rig {
    queue: Queue,
    subscription: Subscription,
    /// Size and level.
    log: Vec<(u32, u8)>,
    seen: Vec<String>,
    dead: Vec<Dead>,
}

impl Rig {
    fn new(rules: QueueRules, single: bool) -> Self {
        let mut subscription = Subscription::new(0);
        Self {
            queue: Queue::new(rules, single, &mut subscription, 0),
            subscription,
            log: Vec::new(),
            seen: Vec::new(),
            dead: Vec::new(),
        }
    }

    fn end(&self) -> u64 {
        self.log.len() as u64
    }

    fn consume(&mut self, name: char, priority: i32, prefetch: u32) {
        let id = ConsumerId(name as u64);
        self.queue
            .add_consumer(&Consume {
                id,
                channel: CHANNEL,
                no_ack: false,
                exclusive: false,
                priority,
                prefetch,
                time_out_ms: None,
            })
            .expect("it may");
        self.run();
    }

    fn head(&mut self) -> Option<u64> {
        loop {
            match self.queue.head(&self.subscription, self.end()) {
                Head::Nothing => return None,
                Head::Unread(first, last) => {
                    let log = &self.log;
                    self.subscription.set_levels(first, last, &mut |offset| log[offset as usize].1);
                }
                Head::Record(offset) => return Some(offset),
            }
        }
    }

    fn run(&mut self) {
        while let Some(offset) = self.head() {
            let size = self.log[offset as usize].0;
            let Some(told) = self.queue.dispatch(&mut self.subscription, offset, size, &mut |_, _| true) else { break };
            let name = char::from_u32(told.consumer.0 as u32).expect("a letter");
            self.seen.push(format!("{name}{}{}", offset + 1, if told.redelivered { "*" } else { "" }));
        }
        while self.queue.over_limit(&self.subscription, self.end()) {
            let offset = self.head().expect("there is one");
            self.queue.drop_head(&mut self.subscription, offset, self.log[offset as usize].0, &mut self.dead);
        }
    }

    fn publish_sized(&mut self, size: u32, level: u8) -> bool {
        if self.queue.refuses(&self.subscription, (self.end(), self.end()), &Line::default(), (1, u64::from(size))) {
            return false;
        }
        self.log.push((size, level));
        self.queue.weigh(&self.subscription, self.end() - 1, size);
        self.run();
        true
    }

    fn publish(&mut self, count: u32) {
        (0..count).for_each(|_| assert!(self.publish_sized(1, 0)));
    }

    fn say(&mut self, holder: ConsumerId, number: u64, verdict: Verdict) {
        self.queue.settle(&mut self.subscription, holder, number - 1, number - 1, verdict, 0, &mut self.dead);
        self.run();
    }

    fn ack(&mut self, name: char, number: u64) {
        self.say(ConsumerId(name as u64), number, Verdict::Accept);
    }

    fn get(&mut self) -> Option<u64> {
        let offset = self.head()?;
        let size = self.log[offset as usize].0;
        self.queue.get(&mut self.subscription, offset, size, CHANNEL, GETTER, false, None).map(|told| told.offset + 1)
    }

    fn drain(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.get()).collect()
    }

    fn close(&mut self) {
        self.queue.remove_channel(&mut self.subscription, CHANNEL, &[], 0, &mut self.dead);
        self.run();
    }

    fn ready(&self) -> u64 {
        self.subscription.ready(self.end())
    }

    #[track_caller]
    fn saw(&self, wanted: &str) {
        assert_eq!(self.seen.join(" "), wanted);
    }
}

#[test]
fn a_consumer_without_credit_loses_its_turn_when_that_kind_of_queue_notices() {
    for (kind, wanted) in [(Classic, "A1 B2 C3 A4 B5 C6 A7"), (Quorum, "A1 B2 C3 A4 C5 B6 A7")] {
        let mut rig = Rig::new(QueueRules::new(kind), false);
        "ABC".chars().for_each(|name| rig.consume(name, 0, 1));
        rig.publish(2);
        rig.ack('A', 1);
        rig.publish(2);
        [('C', 3), ('B', 2), ('A', 4)].into_iter().for_each(|(name, number)| rig.ack(name, number));
        rig.publish(3);
        rig.saw(wanted);
    }
}

#[test]
fn who_is_served_goes_to_the_back_and_a_cancelled_one_is_left_out() {
    for kind in [Classic, Quorum] {
        let mut rig = Rig::new(QueueRules::new(kind), false);
        "ABC".chars().for_each(|name| rig.consume(name, 0, 2));
        rig.publish(4);
        assert!(rig.queue.cancel(ConsumerId('B' as u64), 5));
        rig.publish(2);
        [('A', 1), ('A', 4), ('C', 3)].into_iter().for_each(|(name, number)| rig.ack(name, number));
        rig.publish(3);
        rig.saw("A1 B2 C3 A4 C5 A6 A7 C8");
        assert_eq!((rig.queue.unacknowledged_of(ConsumerId('B' as u64)), rig.ready()), (1, 1));
    }
}

#[test]
fn higher_consumers_are_served_first_while_they_have_credit() {
    for kind in [Classic, Quorum] {
        let mut rig = Rig::new(QueueRules::new(kind), false);
        [('L', 0), ('H', 10), ('M', 5), ('h', 10)]
            .into_iter()
            .for_each(|(name, priority)| rig.consume(name, priority, 2));
        rig.publish(8);
        rig.ack('h', 2);
        rig.publish(1);
        rig.saw("H1 h2 H3 h4 M5 M6 L7 L8 h9");
    }
}

#[test]
fn the_next_single_active_consumer_is_that_of_the_highest_priority() {
    let mut rig = Rig::new(QueueRules::new(Classic), true);
    [('A', 0), ('B', 0), ('C', 5)].into_iter().for_each(|(name, priority)| rig.consume(name, priority, 10));
    rig.publish(2);
    rig.queue.cancel(ConsumerId('A' as u64), 0);
    rig.publish(2);
    // What the old one has is not acknowledged, until it is returned: then the new one gets it.
    assert_eq!((rig.ready(), rig.subscription.unacknowledged()), (0, 4));
    rig.say(ConsumerId('A' as u64), 1, Verdict::Return);
    rig.saw("A1 A2 C3 C4 C1*");
}

#[test]
fn a_single_active_consumer_of_a_quorum_queue_gives_way_when_it_has_nothing() {
    for (kind, wanted) in [(Classic, "A1 A2 A3 A4 A5 A6"), (Quorum, "A1 A2 C3 C4 C5 A6")] {
        let mut rig = Rig::new(QueueRules::new(kind), true);
        rig.consume('A', 0, 10);
        rig.publish(2);
        rig.consume('C', 5, 10);
        rig.publish(2);
        assert_eq!(rig.ready(), if kind == Classic { 0 } else { 2 });
        [1, 2].into_iter().for_each(|number| rig.ack('A', number));
        rig.publish(1);
        rig.queue.cancel(ConsumerId('C' as u64), 0);
        rig.publish(1);
        rig.saw(wanted);
    }
    let mut rig = Rig::new(QueueRules::new(Quorum), true);
    [('A', 0), ('B', 0), ('C', 5)].into_iter().for_each(|(name, priority)| rig.consume(name, priority, 10));
    rig.publish(1);
    rig.saw("C1");
    assert_eq!(rig.queue.consumer_status(ConsumerId('A' as u64)), Some(ConsumerStatus::Waiting));
}

#[test]
fn what_a_closed_channel_had_comes_again() {
    let mut rig = Rig::new(QueueRules::new(Classic), true);
    rig.consume('A', 0, 10);
    let b = Consume {
        id: ConsumerId('B' as u64),
        channel: ChannelId(2),
        no_ack: false,
        exclusive: false,
        priority: 0,
        prefetch: 10,
        time_out_ms: None,
    };
    rig.queue.add_consumer(&b).expect("it may");
    rig.publish(2);
    rig.close();
    rig.publish(1);
    rig.saw("A1 A2 B1* B2* B3");
    rig.ack('A', 1);
    assert_eq!(rig.subscription.unacknowledged(), 3, "who has gone says nothing any more");
}

#[test]
fn what_is_returned_is_where_it_was() {
    let mut rig = Rig::new(QueueRules::new(Classic), false);
    rig.publish(5);
    assert_eq!([rig.get(), rig.get(), rig.get()], [Some(1), Some(2), Some(3)]);
    rig.say(GETTER, 2, Verdict::Return);
    assert_eq!(rig.get(), Some(2));
    rig.say(GETTER, 3, Verdict::Return);
    rig.say(GETTER, 1, Verdict::Return);
    assert_eq!(rig.drain(), [1, 3, 4, 5]);
    // All of a channel at once, and what others have stays.
    rig.queue.settle(&mut rig.subscription, GETTER, 0, 2, Verdict::Return, 0, &mut rig.dead);
    assert_eq!((rig.ready(), rig.drain()), (3, vec![1, 2, 3]));
    rig.queue.settle(&mut rig.subscription, ConsumerId(7), 0, 4, Verdict::Accept, 0, &mut rig.dead);
    assert_eq!(rig.subscription.unacknowledged(), 5);
}

#[test]
fn priorities_are_served_in_order_and_the_head_of_the_highest_is_dropped() {
    let rules = QueueRules { priority_max: Some(9), ..QueueRules::new(Classic) };
    let mut rig = Rig::new(rules, false);
    [1, 1, 5, 5, 1, 0].into_iter().for_each(|level| assert!(rig.publish_sized(1, level)));
    assert_eq!([rig.get(), rig.get(), rig.get()], [Some(3), Some(4), Some(1)]);
    [1, 4, 3].into_iter().for_each(|number| rig.say(GETTER, number, Verdict::Return));
    assert_eq!(rig.drain(), [3, 4, 1, 2, 5, 6]);

    let mut rig = Rig::new(QueueRules { length_max: Some(2), ..rules }, false);
    [1, 5, 1, 7].into_iter().for_each(|level| assert!(rig.publish_sized(1, level)));
    assert_eq!(rig.drain(), [1, 3]);
    assert_eq!((rules.level(None), rules.level(Some(200))), (0, 9));
    let quorum = QueueRules { kind: Quorum, priority_max: Some(31), ..rules };
    assert_eq!((quorum.level(None), quorum.level(Some(200))), (4, 31));
}

#[test]
fn the_length_counts_what_is_ready_and_the_head_is_dropped() {
    for kind in [Classic, Quorum] {
        let mut rig = Rig::new(QueueRules { length_max: Some(2), ..QueueRules::new(kind) }, false);
        rig.publish(2);
        assert_eq!([rig.get(), rig.get()], [Some(1), Some(2)]);
        rig.publish(3);
        assert_eq!(rig.dead, [Dead { first: 2, last: 2, count: 0, failed: 0, reason: DeadReason::MaxLength }]);
        rig.queue.settle(&mut rig.subscription, GETTER, 0, 1, Verdict::Return, 0, &mut rig.dead);
        rig.run();
        assert_eq!(rig.drain(), [4, 5]);
    }
    // With room for none, a consumer that waits gets what is published.
    let mut rig = Rig::new(QueueRules { length_max: Some(0), ..QueueRules::new(Classic) }, false);
    rig.consume('A', 0, 1);
    rig.publish(2);
    rig.saw("A1");
    assert_eq!((rig.ready(), rig.dead.len()), (0, 1));
}

#[test]
fn bytes_count_as_messages_do() {
    let rules = QueueRules { bytes_max: Some(10), ..QueueRules::new(Classic) };
    let mut rig = Rig::new(rules, false);
    assert!(rig.publish_sized(4, 0) && rig.publish_sized(4, 0));
    assert_eq!(rig.get(), Some(1));
    assert!(rig.publish_sized(4, 0));
    assert_eq!((rig.ready(), rig.queue.ready_bytes(&rig.subscription)), (2, 8));
    assert!(rig.publish_sized(12, 0));
    assert_eq!((rig.ready(), rig.queue.ready_bytes(&rig.subscription)), (0, 0));
    rig.say(GETTER, 1, Verdict::Return);
    assert_eq!(rig.queue.ready_bytes(&rig.subscription), 4);
    let mut rig = Rig::new(QueueRules { overflow: Overflow::RejectPublish, ..rules }, false);
    assert_eq!([4, 6, 1].map(|size| rig.publish_sized(size, 0)), [true, true, false]);
}

#[test]
fn a_full_queue_refuses_what_is_published() {
    let rules = QueueRules { length_max: Some(2), overflow: Overflow::RejectPublish, ..QueueRules::new(Classic) };
    let mut rig = Rig::new(rules, false);
    assert_eq!([(); 4].map(|()| rig.publish_sized(1, 0)), [true, true, false, false]);
    assert_eq!(rig.get(), Some(1));
    assert_eq!([(); 2].map(|()| rig.publish_sized(1, 0)), [true, false]);
    assert_eq!(rig.get(), Some(2));
    let mut line = Line::default();
    assert!(!rig.queue.refuses(&rig.subscription, (rig.end(), rig.end()), &line, (1, 1)), "for one there is room");
    assert!(rig.queue.refuses(&rig.subscription, (rig.end(), rig.end()), &line, (2, 2)), "not for two together");
    let other = line.join();
    line.push(other, rig.end(), (1, 1));
    assert!(rig.queue.refuses(&rig.subscription, (rig.end(), rig.end()), &line, (1, 1)), "it is another's");
    line.leave(other, 1, 0);
    assert!(!rig.queue.refuses(&rig.subscription, (rig.end(), rig.end()), &line, (1, 1)), "which does not come");
    let mut rig = Rig::new(QueueRules { length_max: Some(0), ..rules }, false);
    rig.consume('A', 0, 0);
    assert!(!rig.publish_sized(1, 0), "also while a consumer waits");
}

#[test]
fn only_failed_deliveries_count_to_the_limit() {
    for (verdict, dies) in [(Verdict::Return, false), (Verdict::Release, true)] {
        let mut rig = Rig::new(QueueRules { delivery_limit: Some(2), ..QueueRules::new(Quorum) }, false);
        rig.publish(1);
        for _ in 0..3 {
            assert_eq!(rig.get(), Some(1));
            rig.say(GETTER, 1, verdict);
        }
        let dead = [Dead { first: 0, last: 0, count: 3, failed: 3, reason: DeadReason::DeliveryLimit }];
        assert_eq!((rig.get().is_none(), rig.dead == dead), (dies, dies));
    }
    let mut rig = Rig::new(QueueRules { delivery_limit: Some(2), ..QueueRules::new(Quorum) }, false);
    rig.publish(1);
    for _ in 0..3 {
        assert_eq!(rig.get(), Some(1));
        rig.close();
    }
    assert_eq!((rig.get(), rig.dead.len()), (None, 1));
}

#[test]
fn somebody_who_is_alone_keeps_others_out() {
    let consume = |id: u64, exclusive| Consume {
        id: ConsumerId(id),
        channel: CHANNEL,
        no_ack: false,
        exclusive,
        priority: 0,
        prefetch: 0,
        time_out_ms: None,
    };
    let mut queue = Rig::new(QueueRules::new(Classic), false).queue;
    assert_eq!(queue.add_consumer(&consume(1, false)), Ok(()));
    assert_eq!(queue.add_consumer(&consume(2, true)), Err(InExclusiveUse));
    assert!(queue.cancel(ConsumerId(1), 0));
    assert_eq!(queue.add_consumer(&consume(3, true)), Ok(()));
    assert_eq!(queue.add_consumer(&consume(4, false)), Err(InExclusiveUse));
    assert!(queue.cancel(ConsumerId(3), 0));
    assert_eq!(queue.add_consumer(&consume(5, false)), Ok(()));
    let mut single = Rig::new(QueueRules::new(Classic), true).queue;
    assert_eq!(single.add_consumer(&consume(1, true)), Err(InExclusiveUse));
}

#[test]
fn a_queue_is_purged_deleted_and_forgotten_by_what_is_ready_and_who_is_there() {
    let rules = QueueRules { expires_ms: Some(100), auto_delete: true, ..QueueRules::new(Classic) };
    let mut rig = Rig::new(rules, false);
    rig.publish(5);
    assert_eq!([rig.get(), rig.get()], [Some(1), Some(2)]);
    assert_eq!(rig.queue.check_delete(&rig.subscription, 5, false, true), Err(DeleteRefused::NotEmpty));
    assert_eq!(rig.queue.purge(&mut rig.subscription, 5), 3);
    assert_eq!(
        rig.queue.check_delete(&rig.subscription, 5, true, true),
        Ok(()),
        "what is unacknowledged does not count"
    );
    assert_eq!((rig.queue.expires_at(), rig.queue.is_abandoned()), (Some(100), false));
    rig.queue.touch(50);
    assert_eq!(rig.queue.expires_at(), Some(150));
    rig.consume('A', 0, 0);
    assert_eq!(
        (rig.queue.expires_at(), rig.queue.check_delete(&rig.subscription, 5, true, false)),
        (None, Err(DeleteRefused::InUse))
    );
    rig.queue.cancel(ConsumerId('A' as u64), 300);
    assert_eq!((rig.queue.expires_at(), rig.queue.is_abandoned()), (Some(400), true));
}

#[test]
fn the_shorter_time_counts() {
    let rules = QueueRules { ttl_ms: Some(50), ..QueueRules::new(Classic) };
    assert_eq!(
        (rules.due(1000, None), rules.due(1000, Some(20)), rules.due(1000, Some(70))),
        (Some(1050), Some(1020), Some(1050))
    );
    assert_eq!(
        (QueueRules::new(Classic).due(1000, None), QueueRules::new(Classic).due(1000, Some(0))),
        (None, Some(1000))
    );
}

#[test]
fn a_channel_that_takes_nothing_is_passed_over_until_it_does() {
    let mut rig = Rig::new(QueueRules::new(Classic), false);
    rig.consume('A', 0, 0);
    let b = Consume {
        id: ConsumerId('B' as u64),
        channel: ChannelId(2),
        no_ack: true,
        exclusive: false,
        priority: 0,
        prefetch: 1,
        time_out_ms: None,
    };
    rig.queue.add_consumer(&b).expect("it may");
    rig.queue.suspend_channel(CHANNEL);
    // Without acknowledgements a prefetch bounds nothing.
    rig.publish(3);
    assert!(rig.queue.resume_channel(CHANNEL));
    assert!(!rig.queue.resume_channel(CHANNEL));
    rig.publish(2);
    rig.saw("B1 B2 B3 B4 A5");
    rig.queue.suspend_channel(ChannelId(2));
    rig.queue.suspend_channel(CHANNEL);
    assert!(!rig.queue.has_taker());
    assert_eq!(rig.queue.consumer_status(ConsumerId('A' as u64)), Some(ConsumerStatus::Blocked));
}

/// Letters that wait for whoever takes them take room, and a purge takes them along; without at-least-once they are on their way.
#[test]
fn a_purge_takes_dead_letters_that_wait() {
    for (letters_wait, purged) in [(true, 3), (false, 2)] {
        let rules = QueueRules {
            dead_letters: true,
            letters_wait,
            priority_max: None,
            overflow: Overflow::RejectPublish,
            ..QueueRules::new(Quorum)
        };
        let mut rig = Rig::new(rules, false);
        rig.publish(3);
        assert_eq!(rig.get(), Some(1));
        rig.say(GETTER, 1, Verdict::Reject);
        assert_eq!((rig.subscription.dying(), rig.ready()), (1, 2));
        let end = rig.end();
        assert_eq!(rig.queue.purge(&mut rig.subscription, end), purged);
        assert_eq!((rig.subscription.dying(), rig.ready()), (3 - purged, 0));
        rig.subscription.buried(0, 0);
        assert_eq!(rig.subscription.start(), 3);
    }
}

/// Without at-least-once, too, a purge takes letters that could not be sent.
#[test]
fn a_purge_takes_dead_letters_that_nobody_took() {
    let mut rig = Rig::new(QueueRules { dead_letters: true, ..QueueRules::new(Classic) }, false);
    rig.publish(3);
    assert_eq!(rig.get(), Some(1));
    rig.say(GETTER, 1, Verdict::Reject);
    let rules = rig.queue.rules().subscription();
    rig.subscription.release_dead(0, 0, 0, &rules);
    let end = rig.end();
    assert_eq!(rig.queue.purge(&mut rig.subscription, end), 3);
    assert_eq!((rig.subscription.dying(), rig.subscription.start(), rig.ready()), (0, 3, 0));
}

#[test]
fn what_waits_for_the_end_of_a_transaction_takes_room() {
    let rules = QueueRules { length_max: Some(6), overflow: Overflow::RejectPublish, ..QueueRules::new(Classic) };
    let mut rig = Rig::new(rules, false);
    assert!(rig.publish_sized(1, 0) && rig.publish_sized(1, 0));
    let mut line = Line::default();
    let one = line.join();
    let mut refuses = |line: &Line, readable| rig.queue.refuses(&rig.subscription, (2, readable), line, (1, 1));
    assert!(!refuses(&line, 2 + 3) && refuses(&line, 2 + 4));
    // One that is on its way is among those that wait, or comes behind them.
    line.push(one, 2 + 3, (1, 1));
    assert!(refuses(&line, 2 + 3) && refuses(&line, 2 + 4));
    line.arrived(one, 1, 0);
    assert!(refuses(&line, 2 + 4));
    // The record that ends the transaction is nobody's.
    line.push(one, 2, (1, 1));
    assert!(!refuses(&line, 2 + 1));
    line.pass(1);
    assert_eq!((line.in_log(2 + 1), line.in_log(2 + 2)), (0, 1));
}

#[test]
fn bytes_that_wait_for_the_end_of_a_transaction_count_as_they_were_admitted() {
    let rules = QueueRules { bytes_max: Some(100), overflow: Overflow::RejectPublish, ..QueueRules::new(Classic) };
    let mut rig = Rig::new(rules, false);
    assert!(rig.publish_sized(10, 0) && rig.publish_sized(10, 0));
    let mut line = Line::default();
    let (one, other) = (line.join(), line.join());
    let room = |rig: &mut Rig, line: &mut Line, readable| {
        let end = rig.end();
        line.note_stable((end, readable), 0, || 7);
        (1..)
            .find(|bytes| rig.queue.refuses(&rig.subscription, (end, readable), line, (1, *bytes)))
            .expect("it is full at last")
            - 1
    };
    line.push(one, 2, (1, 30));
    assert_eq!(room(&mut rig, &mut line, 3), 50, "the log has it, and nobody has been told");
    line.arrived(one, 1, 3);
    assert_eq!(room(&mut rig, &mut line, 3), 50);
    line.push(other, 3, (1, 5));
    assert_eq!(room(&mut rig, &mut line, 4), 45);
    line.arrived(other, 1, 4);
    assert_eq!(room(&mut rig, &mut line, 4), 45);
    assert_eq!(room(&mut rig, &mut line, 6), 31, "two of which nothing is known");
    assert!(rig.publish_sized(25, 0));
    assert_eq!(room(&mut rig, &mut line, 4), 50, "what is stable counts as it was found");
    assert!(rig.publish_sized(0, 0));
    assert_eq!(room(&mut rig, &mut line, 4), 55);
    for number in 0..5000 {
        line.push(one, 4 + number, (1, 0));
        line.arrived(one, 1, 5 + number);
    }
    line.push(one, 5004, (1, 15));
    line.arrived(one, 1, 5005);
    assert_eq!(room(&mut rig, &mut line, 5005), 40);
}

#[test]
fn what_several_publishers_have_in_line_is_counted_once_in_any_order() {
    let rules = QueueRules { length_max: Some(6), overflow: Overflow::RejectPublish, ..QueueRules::new(Classic) };
    let mut rig = Rig::new(rules, false);
    let mut line = Line::default();
    let (one, other) = (line.join(), line.join());
    for publisher in [one, other, one, other] {
        line.push(publisher, rig.end(), (1, 1));
    }
    let room = |rig: &mut Rig, line: &Line| {
        let end = rig.end();
        (1..)
            .find(|count| rig.queue.refuses(&rig.subscription, (end, end), line, (*count, 1)))
            .expect("it is full at last")
            - 1
    };
    assert_eq!(room(&mut rig, &line), 2);
    // All are in the log, and nobody has been told.
    [(); 4].iter().for_each(|()| assert!(rig.publish_sized(1, 0)));
    assert_eq!(room(&mut rig, &line), 2);
    line.arrived(other, 2, 4);
    assert_eq!(room(&mut rig, &line), 2);
    line.push(other, rig.end(), (1, 1));
    assert_eq!(room(&mut rig, &line), 1);
    line.arrived(one, 2, 3);
    assert_eq!(room(&mut rig, &line), 1);
    // What has come by another way is known once the log's end is told.
    assert!(rig.publish_sized(1, 0) && rig.publish_sized(1, 0));
    line.arrived(other, 1, 6);
    assert_eq!(room(&mut rig, &line), 0);
}

#[test]
fn bytes_in_line_are_those_of_what_the_log_has_not_got() {
    let rules = QueueRules { bytes_max: Some(100), overflow: Overflow::RejectPublish, ..QueueRules::new(Classic) };
    let mut rig = Rig::new(rules, false);
    let mut line = Line::default();
    let (one, other) = (line.join(), line.join());
    line.push(one, 0, (3, 30));
    line.push(other, 0, (1, 20));
    line.push(one, 0, (1, 5));
    let room = |rig: &mut Rig, line: &Line| {
        let end = rig.end();
        (1..)
            .find(|bytes| rig.queue.refuses(&rig.subscription, (end, end), line, (1, *bytes)))
            .expect("it is full at last")
            - 1
    };
    assert_eq!(room(&mut rig, &line), 45);
    assert!(rig.publish_sized(10, 0));
    assert_eq!(room(&mut rig, &line), 45, "a third of those that came together");
    assert!(rig.publish_sized(10, 0) && rig.publish_sized(10, 0));
    line.arrived(one, 3, 3);
    assert_eq!(room(&mut rig, &line), 45);
    line.leave(one, 1, 0);
    assert_eq!(room(&mut rig, &line), 45, "it is behind another's");
    line.leave(other, 1, 0);
    assert_eq!(room(&mut rig, &line), 70, "neither comes");
}

#[test]
fn what_a_publisher_leaves_behind_is_counted_until_the_log_has_it() {
    let rules = QueueRules { length_max: Some(5), overflow: Overflow::RejectPublish, ..QueueRules::new(Classic) };
    let mut rig = Rig::new(rules, false);
    let mut line = Line::default();
    let (one, other) = (line.join(), line.join());
    (0..3).for_each(|_| line.push(one, 0, (1, 1)));
    line.push(other, 0, (1, 1));
    line.leave(one, 1, 1_000);
    let room = |rig: &mut Rig, line: &mut Line, now| {
        let end = rig.end();
        line.look(end, now);
        (1..)
            .find(|count| rig.queue.refuses(&rig.subscription, (end, end), line, (*count, 1)))
            .expect("it is full at last")
            - 1
    };
    assert_eq!(room(&mut rig, &mut line, 1_000), 1, "nobody is told of what it sent");
    assert!(rig.publish_sized(1, 0) && rig.publish_sized(1, 0));
    assert_eq!(room(&mut rig, &mut line, 2_000), 2, "the third was not sent");
    line.push(other, 2, (1, 1));
    line.leave(other, 0, 20_000);
    assert_eq!(room(&mut rig, &mut line, 25_000), 1);
    assert_eq!(room(&mut rig, &mut line, 31_000), 3, "these do not come any more");
}
