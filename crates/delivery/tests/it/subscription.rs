//! Subscriptions that consumers share: each offset beside a plain model that keeps one state an offset; ordered keys; restarts.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use delivery::{
    Acquired, Changes, ConsumerId, DEAD_LETTERS, Dead, DeadLettering, DeadReason, Done, NO_LOCK, RecordState, Rules,
    Subscription, SubscriptionName, SubscriptionRecord, Verdict, subscription_record,
};

const RULES: Rules = Rules { deliveries_max: Some(3), unfinished_max: 50, lock: 100, dead_letters: false, retry: None };
const ONE: ConsumerId = ConsumerId(1);
const TWO: ConsumerId = ConsumerId(2);

fn name() -> SubscriptionName {
    SubscriptionName { group: "workers".into(), topic: 7, partition: 3 }
}

fn take(subscription: &mut Subscription, consumer: ConsumerId, last: u64, limit: u64, now: u64) -> Vec<Acquired> {
    let mut out = Vec::new();
    if let Some(first) = subscription.wanted(consumer, &RULES) {
        subscription.acquire(consumer, first, last, limit, now, &RULES, &mut |_| None, &mut out);
    }
    out
}

fn say(subscription: &mut Subscription, consumer: ConsumerId, first: u64, last: u64, verdict: Verdict) -> Vec<Dead> {
    let mut dead = Vec::new();
    subscription.check(consumer, first, last).expect("the consumer has them");
    subscription.judge(consumer, first, last, verdict, 0, &RULES, &mut dead);
    dead
}

#[test]
fn what_is_accepted_in_order_moves_the_start_and_needs_no_page() {
    let mut subscription = Subscription::new(10);
    assert_eq!(take(&mut subscription, ONE, 29, 12, 0), [Acquired { first: 10, last: 21, count: 1 }]);
    subscription.take_changes();
    say(&mut subscription, ONE, 10, 19, Verdict::Accept);
    let changes = subscription.take_changes();
    assert_eq!((changes.start, changes.pages.len()), (Some(20), 0));
    assert_eq!(subscription.check(ONE, 19, 20), Ok(()), "what is done already is passed over");
    assert_eq!(subscription.check(TWO, 20, 20), Err(delivery::NotHeld));
    assert_eq!(subscription.check(ONE, 21, 22), Err(delivery::NotHeld));
}

#[test]
fn a_record_that_comes_back_too_often_is_dead() {
    let mut subscription = Subscription::new(0);
    for count in 1..3 {
        assert_eq!(take(&mut subscription, ONE, 0, 1, 0), [Acquired { first: 0, last: 0, count }]);
        assert_eq!(say(&mut subscription, ONE, 0, 0, Verdict::Release), []);
    }
    assert_eq!(take(&mut subscription, ONE, 0, 1, 0), [Acquired { first: 0, last: 0, count: 3 }]);
    let mut dead = Vec::new();
    assert_eq!(subscription.expire(99, &RULES, &mut dead), 0);
    assert_eq!(subscription.expire(100, &RULES, &mut dead), 1);
    assert_eq!(dead, [Dead { first: 0, last: 0, count: 3, failed: 3, reason: DeadReason::DeliveryLimit }]);
    assert_eq!((subscription.start(), subscription.backlog(1)), (1, 0));
}

#[test]
fn a_dead_letter_is_held_until_it_is_buried() {
    let rules = Rules { dead_letters: true, ..RULES };
    let mut subscription = Subscription::new(0);
    take(&mut subscription, ONE, 4, 5, 0);
    let mut dead = Vec::new();
    subscription.judge(ONE, 1, 2, Verdict::Reject, 0, &rules, &mut dead);
    assert_eq!(dead, [Dead { first: 1, last: 2, count: 1, failed: 0, reason: DeadReason::Rejected }]);
    assert_eq!(subscription.state(1), RecordState::Acquired(DEAD_LETTERS));
    // A copy that does not come about is tried again after a while.
    subscription.judge(ONE, 0, 4, Verdict::Renew, 1000, &rules, &mut dead);
    subscription.release_dead(1, 2, 0, &rules);
    assert_eq!(subscription.next_deadline(), Some(100));
    dead.clear();
    subscription.expire(100, &rules, &mut dead);
    assert_eq!(dead, [Dead { first: 1, last: 2, count: 1, failed: 1, reason: DeadReason::Rejected }]);
    subscription.buried(1, 2);
    assert_eq!(subscription.state(2), RecordState::Archived);
    assert_eq!(subscription.state(3), RecordState::Acquired(ONE));
}

#[test]
fn a_claimed_dead_letter_is_claimed_by_nobody_else_however_long_it_takes() {
    for lock in [RULES.lock, NO_LOCK] {
        let (rules, mut dead) = (Rules { dead_letters: true, lock, ..RULES }, Vec::new());
        let mut subscription = Subscription::new(0);
        assert_eq!(subscription.drop_available(0, 9, DeadReason::Expired, &rules, &mut dead), 10);
        assert_eq!(dead.len(), 1);
        assert_eq!(subscription.expire(u64::MAX / 2, &rules, &mut dead), 0, "it was not released");
        subscription.release_dead(3, 4, 1000, &rules);
        assert_eq!(subscription.claimed_dead(0, 9), [(0, 2), (5, 9)]);
        dead.clear();
        assert_eq!(subscription.expire(1000 + if lock == NO_LOCK { 29_999 } else { lock - 1 }, &rules, &mut dead), 0);
        assert_eq!(subscription.expire(1000 + 30_000, &rules, &mut dead), 2);
        assert_eq!(dead, [Dead { first: 3, last: 4, count: 0, failed: 0, reason: DeadReason::Expired }]);
    }
}

#[test]
fn what_dies_alike_one_after_the_other_is_one_run() {
    let (rules, mut dead) = (Rules { dead_letters: true, ..RULES }, Vec::new());
    let mut subscription = Subscription::new(0);
    take(&mut subscription, ONE, 3, 4, 0);
    for offset in 4..8 {
        subscription.drop_available(offset, offset, DeadReason::Expired, &rules, &mut dead);
    }
    subscription.drop_available(8, 8, DeadReason::MaxLength, &rules, &mut dead);
    for (offset, verdict) in [(0, Verdict::Reject), (1, Verdict::Reject), (2, Verdict::RejectFailed)] {
        subscription.judge(ONE, offset, offset, verdict, 0, &rules, &mut dead);
    }
    let runs: Vec<(u64, u64, u16)> = dead.iter().map(|one| (one.first, one.last, one.failed)).collect();
    assert_eq!(runs, [(4, 7, 0), (8, 8, 0), (0, 1, 0), (2, 2, 1)]);
}

#[test]
fn copies_that_were_not_taken_have_archived_nothing() {
    let (rules, mut dead) = (Rules { dead_letters: true, ..RULES }, Vec::new());
    let mut subscription = Subscription::new(0);
    subscription.drop_available(0, 9, DeadReason::Expired, &rules, &mut dead);
    let lost = subscription.begin_dead_lettering(vec![(0, 9)]);
    // Something else is written meanwhile.
    drop(subscription.take_changes());
    subscription.end_dead_lettering(lost, false);
    assert_eq!((subscription.start(), subscription.dying(), subscription.claimed_dead(0, 9)), (0, 10, vec![(0, 9)]));
    let kept = subscription.begin_dead_lettering(vec![(0, 3), (6, 9)]);
    assert_eq!(kept.changes().list.map(|(_, list)| list), Some(vec![(0, 3, Done::Archived), (6, 9, Done::Archived)]));
    subscription.end_dead_lettering(kept, true);
    assert_eq!((subscription.start(), subscription.dying(), subscription.claimed_dead(0, 9)), (4, 2, vec![(4, 5)]));
    // What was under way when the subscription was reset has no effect.
    let late = subscription.begin_dead_lettering(vec![(4, 5)]);
    subscription.reset(0);
    subscription.end_dead_lettering(late, true);
    assert_eq!((subscription.start(), subscription.dying(), subscription.ready(10)), (0, 0, 10));
}

#[test]
fn what_is_rejected_last_to_first_is_archived_by_a_list_that_ascends() {
    let (rules, mut dead) = (Rules { dead_letters: true, ..RULES }, Vec::new());
    let mut subscription = Subscription::new(0);
    take(&mut subscription, ONE, 9, 10, 0);
    for offset in [8, 7, 6, 4, 3, 9] {
        subscription.judge(ONE, offset, offset, Verdict::Reject, 0, &rules, &mut dead);
    }
    let runs = dead.iter().map(|one| (one.first, one.last)).collect();
    let lettering = subscription.begin_dead_lettering(runs);
    let changes = lettering.changes();
    assert_eq!(
        changes.list.as_ref().map(|(_, list)| list.clone()),
        Some(vec![(3, 4, Done::Archived), (6, 9, Done::Archived)])
    );
    assert_eq!(name().records(&changes).len(), 1);
    subscription.end_dead_lettering(lettering, true);
    assert_eq!(subscription.dying(), 0);
}

#[test]
fn beyond_the_bound_only_what_came_back_is_given_out() {
    let mut subscription = Subscription::new(0);
    assert_eq!(take(&mut subscription, ONE, 49, 100, 0), [Acquired { first: 0, last: 49, count: 1 }]);
    assert_eq!(subscription.wanted(TWO, &RULES), None);
    say(&mut subscription, ONE, 20, 22, Verdict::Release);
    assert_eq!(take(&mut subscription, TWO, 99, 100, 0), [Acquired { first: 20, last: 22, count: 2 }]);
}

#[test]
fn what_lies_behind_the_bound_is_not_lost() {
    let mut subscription = Subscription::new(0);
    let mut out = Vec::new();
    // Of three batches the bound lies in the second one.
    subscription.acquire(ONE, 0, 39, 100, 0, &RULES, &mut |_| None, &mut out);
    subscription.acquire(ONE, 40, 59, 100, 0, &RULES, &mut |_| None, &mut out);
    subscription.acquire(ONE, 60, 79, 100, 0, &RULES, &mut |_| None, &mut out);
    subscription.skip(80, 89);
    assert_eq!((out, subscription.end()), (vec![Acquired { first: 0, last: 59, count: 1 }], 60));
    say(&mut subscription, ONE, 0, 59, Verdict::Accept);
    assert_eq!(take(&mut subscription, ONE, 79, 100, 0), [Acquired { first: 60, last: 79, count: 1 }]);
}

#[test]
fn a_batch_is_looked_at_whole_or_not_at_all() {
    let mut subscription = Subscription::new(0);
    let mut give = |first, last| {
        let mut out = Vec::new();
        subscription.acquire(ONE, first, last, u64::MAX, 0, &RULES, &mut |_| None, &mut out);
        out
    };
    assert_eq!(give(0, 39), [Acquired { first: 0, last: 39, count: 1 }]);
    assert_eq!(give(40, 79), [Acquired { first: 40, last: 79, count: 1 }]);
    assert_eq!(give(80, 89), []);
    assert_eq!((subscription.end(), subscription.wanted(ONE, &RULES)), (80, None));
    // What a limit left of it may still be had.
    let (mut subscription, mut out) = (Subscription::new(0), Vec::new());
    subscription.acquire(ONE, 0, 79, 50, 0, &RULES, &mut |_| None, &mut out);
    assert_eq!(out, [Acquired { first: 0, last: 49, count: 1 }]);
    assert_eq!(subscription.wanted(TWO, &RULES), Some(50));
    out.clear();
    subscription.acquire(TWO, 50, 79, 50, 0, &RULES, &mut |_| None, &mut out);
    assert_eq!(out, [Acquired { first: 50, last: 79, count: 1 }]);
    assert_eq!(subscription.wanted(ONE, &RULES), None);
    say(&mut subscription, ONE, 0, 30, Verdict::Accept);
    assert_eq!(subscription.wanted(TWO, &RULES), Some(80));
}

#[test]
fn a_consumer_that_goes_gives_everything_back() {
    let mut subscription = Subscription::new(0);
    take(&mut subscription, ONE, 9, 10, 0);
    say(&mut subscription, ONE, 2, 3, Verdict::Accept);
    assert!(subscription.release_all(ONE, 0, &RULES, &mut Vec::new()));
    let given = take(&mut subscription, TWO, 9, 10, 0);
    assert_eq!(given, [Acquired { first: 0, last: 1, count: 2 }, Acquired { first: 4, last: 9, count: 2 }]);
}

#[test]
fn what_is_trimmed_or_holds_no_records_is_done() {
    let mut subscription = Subscription::new(0);
    take(&mut subscription, ONE, 4, 5, 0);
    subscription.skip(5, 6);
    // A hole in the log.
    subscription.skip(7, 8);
    let mut out = Vec::new();
    subscription.acquire(ONE, 9, 9, 1, 0, &RULES, &mut |_| None, &mut out);
    assert_eq!(out, [Acquired { first: 9, last: 9, count: 1 }]);
    assert_eq!(subscription.state(8), RecordState::Archived);
    subscription.trim(3);
    assert_eq!((subscription.start(), subscription.check(ONE, 0, 4)), (3, Ok(())));
    say(&mut subscription, ONE, 0, 4, Verdict::Accept);
    assert_eq!(subscription.start(), 9);
}

/// Hundreds of random steps of three consumers, each compared with a model that has one state an offset; now and then the
/// subscription is made anew from its records, as after a crash.
#[test]
fn each_record_is_in_one_state_as_in_the_model() {
    for seed in 0..120 {
        Run::new(seed, seed % 2 == 1, seed % 4 >= 2).run(400);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    Available(u16),
    Acquired(ConsumerId, u16, u64),
    /// Claimed, or released until then.
    Dead(u16, Option<u64>),
    Acknowledged,
    Archived,
}

/// Copies on their way, of these, and whether they become durable.
type OnTheWay = (DeadLettering, Vec<(u64, u64)>, bool);

struct Run {
    random: u64,
    subscription: Subscription,
    model: Vec<Model>,
    stored: HashMap<Bytes, Bytes>,
    now: u64,
    log_end: u64,
    ordered: bool,
    rules: Rules,
    burying: Option<OnTheWay>,
    what: String,
}

impl Run {
    fn new(seed: u64, ordered: bool, dead_letters: bool) -> Self {
        let rules = Rules { dead_letters, ..RULES };
        let mut subscription = Subscription::new(0);
        subscription.set_key_ordered(ordered);
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66;
        let (stored, what) = (HashMap::new(), format!("seed {seed}"));
        Self {
            random,
            subscription,
            model: Vec::new(),
            stored,
            now: 0,
            log_end: 0,
            ordered,
            rules,
            burying: None,
            what,
        }
    }

    fn next(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn key(offset: u64) -> Option<u64> {
        (!offset.is_multiple_of(7)).then_some(offset % 5)
    }

    fn owner(&self, key: Option<u64>) -> Option<ConsumerId> {
        let key = key?;
        (0u64..).zip(&self.model).find_map(|(offset, state)| match state {
            Model::Acquired(consumer, ..) if Self::key(offset) == Some(key) => Some(*consumer),
            _ => None,
        })
    }

    fn run(&mut self, steps: usize) {
        for step in 0..steps {
            self.now += self.next(15);
            match self.next(15) {
                0 | 1 => {
                    self.log_end += self.next(30);
                    self.model.resize(self.log_end as usize, Model::Available(0));
                }
                2..=5 => self.acquire(),
                6..=8 => self.judge(),
                9 => self.expire(),
                10 => {
                    let consumer = ConsumerId(self.next(3));
                    self.subscription.release_all(consumer, self.now, &self.rules, &mut Vec::new());
                    for at in 0..self.model.len() {
                        if let Model::Acquired(holder, count, _) = self.model[at]
                            && holder == consumer
                        {
                            self.model[at] = self.returned(count);
                        }
                    }
                }
                11 => {
                    let first = self.next(self.log_end.max(1));
                    let last = first + self.next(10);
                    self.subscription.buried(first, last);
                    for state in self.model.iter_mut().take(last as usize + 1).skip(first as usize) {
                        if let Model::Dead(..) = state {
                            *state = Model::Archived;
                        }
                    }
                }
                12 => self.release(),
                13 => self.bury(),
                _ => self.restart(),
            }
            self.compare(step);
        }
    }

    fn release(&mut self) {
        if self.burying.is_some() {
            return;
        }
        let first = self.next(self.log_end.max(1));
        let last = first + self.next(10);
        self.subscription.release_dead(first, last, self.now, &self.rules);
        for state in self.model.iter_mut().take(last as usize + 1).skip(first as usize) {
            if let Model::Dead(_, until @ None) = state {
                *until = Some(self.now + RULES.lock);
            }
        }
    }

    /// Copies of what is claimed are appended, or have their outcome.
    fn bury(&mut self) {
        if let Some((burying, runs, durable)) = self.burying.take() {
            self.subscription.end_dead_lettering(burying, durable);
            self.buried(&runs, durable);
            return;
        }
        let first = self.next(self.log_end.max(1));
        let runs = self.subscription.claimed_dead(first, first + 20);
        let claimed = |offset: &u64| matches!(self.model.get(*offset as usize), Some(Model::Dead(_, None)));
        let expected: Vec<u64> = (first..=first + 20).filter(claimed).collect();
        assert_eq!(runs.iter().flat_map(|(first, last)| *first..=*last).collect::<Vec<_>>(), expected, "{}", self.what);
        if runs.is_empty() {
            return;
        }
        self.write();
        let burying = self.subscription.begin_dead_lettering(runs.clone());
        let durable = self.next(3) > 0;
        if durable {
            self.store(&burying.changes());
        }
        self.burying = Some((burying, runs, durable));
    }

    fn buried(&mut self, runs: &[(u64, u64)], durable: bool) {
        for offset in runs.iter().flat_map(|(first, last)| *first..=*last).filter(|_| durable) {
            if let state @ Model::Dead(..) = &mut self.model[offset as usize] {
                *state = Model::Archived;
            }
        }
    }

    fn dead(&self, count: u16) -> Model {
        if self.rules.dead_letters { Model::Dead(count, None) } else { Model::Archived }
    }

    fn returned(&self, count: u16) -> Model {
        if self.rules.deliveries_max.is_some_and(|max| count >= max) {
            self.dead(count)
        } else {
            Model::Available(count)
        }
    }

    fn acquire(&mut self) {
        let consumer = ConsumerId(self.next(3));
        let (span, limit) = (self.next(20), if self.next(4) > 0 { 1 + self.next(15) } else { u64::MAX });
        let Some(first) = self.subscription.wanted(consumer, &RULES) else { return };
        if first >= self.log_end {
            return;
        }
        // Now and then something further on: a batch before it may not have been taken whole.
        let whole = self.next(4) > 0;
        let first = if whole { first } else { first + self.next(30) };
        let last = (first + span).min(self.log_end - 1);
        if last < first {
            return;
        }
        let mut out = Vec::new();
        let (end, unfinished) = (self.subscription.end(), self.unfinished());
        self.subscription.acquire(
            consumer,
            first,
            last,
            limit,
            self.now,
            &RULES,
            &mut |offset| Self::key(offset),
            &mut out,
        );
        let mut given = 0;
        for Acquired { first, last, count } in out {
            for offset in first..=last {
                if self.ordered {
                    let owner = self.owner(Self::key(offset));
                    assert!(owner.is_none_or(|owner| owner == consumer), "{}: a key is with two consumers", self.what);
                    let earlier = (0..offset)
                        .filter(|before| Self::key(*before).is_some() && Self::key(*before) == Self::key(offset));
                    for before in earlier.filter(|_| whole) {
                        assert!(
                            !matches!(self.model[before as usize], Model::Available(_)),
                            "{}: {offset} overtakes {before}",
                            self.what
                        );
                    }
                }
                assert_eq!(
                    self.model[offset as usize],
                    Model::Available(count - 1),
                    "{}: {offset} was not available",
                    self.what
                );
                self.model[offset as usize] = Model::Acquired(consumer, count, self.now + RULES.lock);
                given += 1;
            }
        }
        assert!(given <= limit);
        // The bound is kept, but for the batch in which it lies.
        let kept = self.unfinished() <= RULES.unfinished_max.max(unfinished);
        assert!(kept || !self.ordered && unfinished < RULES.unfinished_max, "{}: the bound", self.what);
        if !self.ordered && (first..=last).contains(&end) {
            let wanted = if unfinished < RULES.unfinished_max { last + 1 } else { end };
            assert_eq!(self.subscription.end(), wanted, "{}: all or nothing of what is new", self.what);
        }
        assert!(self.ordered || !whole || given > 0, "{}: what is wanted is given", self.what);
    }

    fn unfinished(&self) -> u64 {
        self.subscription.backlog(self.subscription.end())
    }

    fn judge(&mut self) {
        let consumer = ConsumerId(self.next(3));
        let verdict =
            [Verdict::Accept, Verdict::Release, Verdict::Reject, Verdict::Gap, Verdict::Renew][self.next(5) as usize];
        let first = self.next(self.log_end.max(1));
        let last = first + self.next(6);
        let start = self.subscription.start();
        let holds = |offset: u64| {
            offset < start
                || matches!(self.model.get(offset as usize), Some(Model::Acquired(holder, ..)) if *holder == consumer)
        };
        let allowed = (first..=last).all(holds);
        assert_eq!(self.subscription.check(consumer, first, last).is_ok(), allowed, "{}: {first} to {last}", self.what);
        if !allowed {
            return;
        }
        let mut dead = Vec::new();
        self.subscription.judge(consumer, first, last, verdict, self.now, &self.rules, &mut dead);
        for offset in first.max(start)..=last {
            let Model::Acquired(_, count, _) = self.model[offset as usize] else { unreachable!() };
            self.model[offset as usize] = match verdict {
                Verdict::Accept => Model::Acknowledged,
                Verdict::Gap => Model::Archived,
                Verdict::Reject | Verdict::RejectFailed => self.dead(count),
                Verdict::Release => self.returned(count),
                Verdict::Renew => Model::Acquired(consumer, count, self.now + RULES.lock),
                Verdict::Return => unreachable!("share groups do not say it"),
            };
        }
    }

    fn expire(&mut self) {
        let (mut dead, mut claimed) = (Vec::new(), Vec::new());
        self.subscription.expire(self.now, &self.rules, &mut dead);
        for at in 0..self.model.len() {
            match self.model[at] {
                Model::Acquired(_, count, deadline) if deadline <= self.now => {
                    self.model[at] = self.returned(count);
                    claimed.extend(matches!(self.model[at], Model::Dead(..) | Model::Archived).then_some(at as u64));
                }
                Model::Dead(count, Some(deadline)) if deadline <= self.now => {
                    self.model[at] = Model::Dead(count, None);
                    claimed.push(at as u64);
                }
                _ => {}
            }
        }
        assert_eq!(
            dead.iter().flat_map(|one| one.first..=one.last).collect::<Vec<_>>(),
            claimed,
            "{}: each is claimed once",
            self.what
        );
    }

    fn store(&mut self, changes: &Changes) {
        for (key, value) in name().records(changes) {
            match value {
                Some(value) => drop(self.stored.insert(key, value)),
                None => drop(self.stored.remove(&key)),
            }
        }
    }

    fn write(&mut self) {
        let changes = self.subscription.take_changes();
        self.store(&changes);
    }

    fn restart(&mut self) {
        self.write();
        if let Some((_, runs, durable)) = self.burying.take() {
            self.buried(&runs, durable);
        }
        let (mut start, mut runs, mut lists) = (None, BTreeMap::new(), Vec::new());
        for (key, value) in &self.stored {
            match subscription_record(key, value).expect("its kind").expect("whole") {
                (of, SubscriptionRecord::Start { start: from, .. }) => {
                    assert_eq!(of, name());
                    start = Some(from);
                }
                (_, SubscriptionRecord::Page(page)) => drop(runs.insert(key.clone(), page)),
                (_, SubscriptionRecord::Levels(..)) => panic!("there are no levels"),
                (_, SubscriptionRecord::List(number, list)) => lists.push((number, value.len(), list)),
            }
        }
        self.subscription = Subscription::restore_with(start.expect("a start"), runs.into_values().flatten(), lists);
        self.subscription.set_key_ordered(self.ordered);
        for state in &mut self.model {
            match state {
                Model::Acquired(_, count, _) => *state = Model::Available(*count - 1),
                Model::Dead(_, until) => *until = Some(0),
                _ => {}
            }
        }
    }

    fn compare(&self, step: usize) {
        for (offset, state) in (0u64..).zip(&self.model) {
            let ours = self.subscription.state(offset);
            let same = match (state, ours) {
                (Model::Available(_), RecordState::Available) | (Model::Acknowledged, RecordState::Acknowledged) => {
                    true
                }
                (Model::Archived, RecordState::Archived) => true,
                (Model::Archived, RecordState::Acknowledged) => offset < self.subscription.start(),
                (Model::Acquired(model, ..), RecordState::Acquired(ours)) => *model == ours,
                (Model::Dead(..), RecordState::Acquired(ours)) => ours == DEAD_LETTERS,
                _ => false,
            };
            assert!(same, "{}, step {step}: {offset} is {ours:?}, not {state:?}", self.what);
        }
        let unfinished = self
            .model
            .iter()
            .filter(|state| matches!(state, Model::Available(_) | Model::Acquired(..) | Model::Dead(..)))
            .count() as u64;
        assert_eq!(self.subscription.backlog(self.log_end), unfinished, "{}, step {step}", self.what);
    }
}
