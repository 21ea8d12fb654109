//! Queues against a model that keeps one state a message, and looks for whose turn it is by looking at everybody: random consumers,
//! credit, cancels, acknowledgements, returns, gets, limits, levels, expiry, purges, offsets without messages, compaction, trims, another face on the same messages, and crashes after
//! which only what was written is left.

mod crashes;
mod removals;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use delivery::{
    ChannelId, Consume, ConsumerId, DEAD_LETTERS, Dead, DeadReason, Head, Line, Overflow, Queue, QueueKind, QueueRules,
    RecordState, Rules, Subscription, SubscriptionName, SubscriptionRecord, Tries, Verdict, subscription_record,
};

const FOREIGN: ConsumerId = ConsumerId(9_000);
const CHANNELS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ready,
    /// With somebody who got it at this count.
    Held(ConsumerId),
    /// Its copy is on the way.
    Dying(DeadReason),
    DeadLettered(DeadReason),
    Acked,
    Purged,
    /// There never was one, or compaction has removed it.
    Gap,
    /// The log begins behind it.
    Trimmed,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    state: State,
    tries: Tries,
    level: u8,
    size: u32,
    due: Option<u64>,
    /// When it came back to a queue that serves such messages first.
    returned: Option<u64>,
    /// Compaction has removed it while somebody had it.
    removed: bool,
}

#[derive(Clone, Debug)]
struct Member {
    id: ConsumerId,
    channel: ChannelId,
    no_ack: bool,
    priority: i32,
    prefetch: u32,
    arrived: u64,
    /// Its place in the rotation.
    turn: u64,
    /// When it was found to be blocked.
    blocked: Option<u64>,
}

struct World {
    random: u64,
    what: String,
    rules: QueueRules,
    single: bool,
    /// Bound over a channel; 0: none.
    channel_max: u64,
    queue: Queue,
    subscription: Subscription,
    stored: BTreeMap<Bytes, Bytes>,
    /// As of the last write.
    written: (Vec<Message>, u64),
    messages: Vec<Message>,
    given: u64,
    given_before: u64,
    /// Of the log.
    start: u64,
    members: Vec<Member>,
    suspended: Vec<ChannelId>,
    active: Option<ConsumerId>,
    quiescing: bool,
    refusing: bool,
    tick: u64,
    ids: u64,
    now: u64,
    deliveries: u64,
}

fn name() -> SubscriptionName {
    SubscriptionName { group: "amqp.queue".into(), topic: 1, partition: 0 }
}

/// What came back goes first, in the order of its returns; then by level, then by offset.
fn first<'a>(ready: impl Iterator<Item = (u64, &'a Message)>) -> Option<u64> {
    let rank = |(offset, message): &(u64, &Message)| {
        let level = if message.returned.is_some() { 0 } else { message.level };
        (message.returned.is_some(), std::cmp::Reverse(message.returned), level, std::cmp::Reverse(*offset))
    };
    ready.max_by_key(rank).map(|(offset, _)| offset)
}

fn getter(channel: ChannelId) -> ConsumerId {
    ConsumerId(5_000 + channel.0)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xA5A5_1234;
        let mut draw = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let kind = if draw(2) == 0 { QueueKind::Classic } else { QueueKind::Quorum };
        let rules = QueueRules {
            priority_max: (draw(3) == 0).then_some(9),
            length_max: (draw(4) == 0).then_some(draw(12)),
            bytes_max: (draw(4) == 0).then_some(draw(120)),
            overflow: if draw(3) == 0 { Overflow::RejectPublish } else { Overflow::DropHead },
            delivery_limit: (draw(2) == 0).then_some(draw(4) as u32),
            dead_letters: draw(2) == 0,
            look_ahead_max: if draw(4) == 0 { 12 } else { 1 << 20 },
            ..QueueRules::new(kind)
        };
        let (single, channel_max) = (draw(4) == 0, if draw(4) == 0 { 1 + draw(4) } else { 0 });
        let mut subscription = Subscription::new(0);
        subscription.remember_given(0);
        let queue = Queue::new(rules, single, &mut subscription, 0);
        Self {
            random,
            what: format!("seed {seed}"),
            rules,
            single,
            channel_max,
            queue,
            subscription,
            stored: BTreeMap::new(),
            written: (Vec::new(), 0),
            messages: Vec::new(),
            given: 0,
            given_before: 0,
            start: 0,
            members: Vec::new(),
            suspended: Vec::new(),
            active: None,
            quiescing: false,
            refusing: false,
            tick: 0,
            ids: 0,
            now: 0,
            deliveries: 0,
        }
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn end(&self) -> u64 {
        self.messages.len() as u64
    }

    fn run(&mut self, steps: u64) {
        self.write();
        for step in 0..steps {
            self.what = format!("{}, step {step}", self.what.split(',').next().unwrap_or_default());
            self.now += self.draw(10);
            match self.draw(32) {
                0..=6 => self.publish(),
                7..=9 => self.add(),
                10 => self.cancel(),
                11 => self.close(),
                12..=19 => self.settle(),
                20..=22 => self.get(),
                23 => self.purge(),
                24 => self.foreign(),
                25 => self.bury(),
                26 => self.retry(),
                27 => {
                    let to = self.now + self.draw(20);
                    self.now = to;
                }
                28 | 29 => self.write(),
                30 => self.crash(),
                _ if self.draw(2) == 0 => self.compact(),
                _ => self.trim(),
            }
            if self.draw(5) > 0 {
                self.dispatch();
                self.weigh();
                self.drop_heads();
            }
            self.compare();
        }
    }

    // The model.

    fn unacknowledged(&self, id: ConsumerId) -> u64 {
        self.messages.iter().filter(|message| message.state == State::Held(id)).count() as u64
    }

    fn credit(&self, member: &Member) -> u64 {
        if member.no_ack || member.prefetch == 0 {
            return u64::MAX;
        }
        u64::from(member.prefetch).saturating_sub(self.unacknowledged(member.id))
    }

    fn ready(&self) -> u64 {
        self.messages.iter().filter(|message| message.state == State::Ready).count() as u64
    }

    fn bytes(&self) -> u64 {
        self.messages
            .iter()
            .filter(|message| message.state == State::Ready)
            .map(|message| u64::from(message.size))
            .sum()
    }

    fn volume(&self, channel: ChannelId) -> u64 {
        let of = |id: ConsumerId| id == getter(channel) || (id.0 < 5_000 && id.0 % CHANNELS == channel.0);
        self.messages.iter().filter(|message| matches!(message.state, State::Held(id) if of(id))).count() as u64
    }

    fn head(&self) -> Option<u64> {
        let ready = (0u64..).zip(&self.messages).filter(|(_, message)| message.state == State::Ready);
        if self.rules.priority_max.is_none() {
            return ready.map(|(offset, _)| offset).next();
        }
        first(ready)
    }

    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// Whose turn it is, as the documents and the broker say: the highest priority, then who waits longest.
    fn taker(&mut self) -> Option<usize> {
        loop {
            let at = if self.single {
                let active = self.active.filter(|_| !self.quiescing)?;
                self.members.iter().position(|member| member.id == active)?
            } else {
                let free = self.members.iter().enumerate().filter(|(_, member)| member.blocked.is_none());
                free.min_by_key(|(_, member)| (-member.priority, member.turn)).map(|(at, _)| at)?
            };
            let (channel, has_credit) = (self.members[at].channel, self.credit(&self.members[at]) > 0);
            if has_credit && !self.suspended.contains(&channel) {
                if self.channel_max == 0 || self.volume(channel) < self.channel_max {
                    return Some(at);
                }
                self.suspended.push(channel);
                continue;
            }
            if self.single {
                return None;
            }
            self.members[at].blocked = Some(self.tick());
        }
    }

    fn unblock(&mut self, channel: ChannelId) {
        if self.suspended.contains(&channel) {
            return;
        }
        let mut blocked: Vec<(u64, usize)> = Vec::new();
        for (at, member) in self.members.iter().enumerate() {
            if let Some(when) = member.blocked.filter(|_| member.channel == channel && self.credit(member) > 0) {
                blocked.push((when, at));
            }
        }
        blocked.sort_unstable();
        for (_, at) in blocked {
            let turn = self.tick();
            (self.members[at].blocked, self.members[at].turn) = (None, turn);
        }
    }

    fn activate(&mut self) {
        if !self.single {
            return;
        }
        let active = self.active.and_then(|id| self.members.iter().find(|member| member.id == id));
        let quorum = self.rules.kind == QueueKind::Quorum;
        let waiting = self.members.iter().filter(|member| Some(member.id) != self.active);
        let best = waiting.max_by_key(|one| {
            (one.priority, if quorum { self.credit(one) } else { 0 }, std::cmp::Reverse(one.arrived))
        });
        let Some((next, priority)) = best.map(|one| (one.id, one.priority)) else { return };
        match active {
            None => self.active = Some(next),
            Some(current) if quorum && priority > current.priority && !self.quiescing => {
                if self.unacknowledged(current.id) == 0 { self.active = Some(next) } else { self.quiescing = true }
            }
            Some(_) => {}
        }
    }

    /// After `id` had something less.
    fn has_less(&mut self, id: ConsumerId, had_credit: bool) {
        let member = self.members.iter().find(|member| member.id == id).cloned();
        if let Some(member) = member {
            if !had_credit {
                self.unblock(member.channel);
            }
            if self.quiescing && self.active == Some(id) && self.unacknowledged(id) == 0 {
                (self.active, self.quiescing) = (None, false);
                self.activate();
            }
        }
        self.resume();
    }

    fn resume(&mut self) {
        for number in 0..CHANNELS {
            let channel = ChannelId(number);
            if self.suspended.contains(&channel) && self.volume(channel) < self.channel_max {
                self.suspended.retain(|other| *other != channel);
                // A channel without anything is not known any more.
                self.queue.resume_channel(channel);
                self.unblock(channel);
            }
        }
    }

    fn remove(&mut self, offset: u64, reason: DeadReason) {
        let state = if self.rules.dead_letters { State::Dying(reason) } else { State::DeadLettered(reason) };
        self.messages[offset as usize].state = state;
    }

    fn said(&mut self, offset: u64, verdict: Verdict, expected: &mut Vec<(u64, DeadReason)>) {
        let back = (self.rules.kind == QueueKind::Quorum && self.rules.priority_max.is_some()).then(|| self.tick());
        let message = &mut self.messages[offset as usize];
        message.returned = back;
        if message.removed && matches!(verdict, Verdict::Return | Verdict::Release) {
            message.state = State::Gap;
            return;
        }
        match verdict {
            Verdict::Accept => message.state = State::Acked,
            Verdict::Return => {
                message.tries = Tries { counted: message.tries.counted - 1, spared: message.tries.spared + 1 };
                message.state = State::Ready;
            }
            Verdict::Release => message.state = State::Ready,
            Verdict::Reject | Verdict::RejectFailed => {
                self.remove(offset, DeadReason::Rejected);
                expected.push((offset, DeadReason::Rejected));
                return;
            }
            Verdict::Gap | Verdict::Renew => unreachable!("not said here"),
        }
        let limit = self.rules.delivery_limit.map(|limit| limit + 1);
        if verdict != Verdict::Accept
            && limit.is_some_and(|max| u32::from(self.messages[offset as usize].tries.counted) >= max)
        {
            self.remove(offset, DeadReason::DeliveryLimit);
            expected.push((offset, DeadReason::DeliveryLimit));
        }
    }

    fn check_dead(&self, dead: &[Dead], mut expected: Vec<(u64, DeadReason)>) {
        let all = dead.iter().flat_map(|one| (one.first..=one.last).map(|offset| (offset, one.reason)));
        let mut found: Vec<(u64, DeadReason)> = all.collect();
        found.sort_unstable_by_key(|(offset, _)| *offset);
        expected.sort_unstable_by_key(|(offset, _)| *offset);
        assert_eq!(found, expected, "{}", self.what);
    }

    // Steps.

    fn publish(&mut self) {
        for _ in 0..1 + self.draw(4) {
            let due = if self.draw(5) == 0 { Some(self.now + self.draw(40)) } else { None };
            let (size, level) = (self.draw(20) as u32, if self.draw(3) == 0 { 4 } else { self.draw(10) as u8 });
            self.weigh();
            let refused = self.queue.refuses(
                &self.subscription,
                (self.end(), self.end()),
                &Line::default(),
                (1, u64::from(size)),
            );
            let over = self.rules.length_max.is_some_and(|max| self.ready() + 1 > max)
                || self.rules.bytes_max.is_some_and(|max| self.bytes() + u64::from(size) > max);
            self.note_fill();
            let full = if self.rules.kind == QueueKind::Quorum { self.refusing } else { over };
            assert_eq!(refused, full && self.rules.overflow != Overflow::DropHead, "{}", self.what);
            if !refused {
                self.messages.push(Message {
                    state: State::Ready,
                    tries: Tries::default(),
                    level,
                    size,
                    due,
                    returned: None,
                    removed: false,
                });
            }
            if self.draw(6) == 0 {
                // A transaction that is aborted, with its marker.
                let (first, count) = (self.end(), 1 + self.draw(3));
                let none = Message {
                    state: State::Gap,
                    tries: Tries::default(),
                    level: 0,
                    size: 0,
                    due: None,
                    returned: None,
                    removed: false,
                };
                self.messages.extend((0..count).map(|_| none));
                self.queue.note_gap(&mut self.subscription, first, first + count - 1);
            }
        }
    }

    /// A quorum queue that is too full refuses until it is down to four fifths.
    fn note_fill(&mut self) {
        let limits = [(self.rules.length_max, self.ready()), (self.rules.bytes_max, self.bytes())];
        if limits.iter().any(|(max, found)| max.is_some_and(|max| *found > max)) {
            self.refusing = true;
        } else if limits.iter().all(|(max, found)| max.is_none_or(|max| *found * 5 <= max * 4 || *found <= max * 4 / 5))
        {
            self.refusing = false;
        }
    }

    fn add(&mut self) {
        if self.members.len() >= 6 {
            return;
        }
        self.ids += 1;
        let id = ConsumerId(self.ids);
        let channel = ChannelId(self.ids % CHANNELS);
        let (no_ack, priority) = (self.draw(5) == 0, [0, 0, 0, 5, -1][self.draw(5) as usize]);
        let (exclusive, prefetch) = (self.draw(12) == 0, self.draw(4) as u32);
        let added =
            self.queue.add_consumer(&Consume { id, channel, no_ack, exclusive, priority, prefetch, time_out_ms: None });
        let alone = self.members.iter().any(|member| member.arrived == u64::MAX);
        let allowed = !alone && !(exclusive && (self.single || !self.members.is_empty()));
        assert_eq!(added.is_ok(), allowed, "{}", self.what);
        if allowed {
            let turn = self.tick();
            let arrived = if exclusive { u64::MAX } else { turn };
            self.members.push(Member { id, channel, no_ack, priority, prefetch, arrived, turn, blocked: None });
            self.activate();
        }
    }

    fn cancel(&mut self) {
        if self.members.is_empty() {
            return;
        }
        let at = self.draw(self.members.len() as u64) as usize;
        let id = self.members.remove(at).id;
        assert!(self.queue.cancel(id, self.now));
        assert!(!self.queue.cancel(id, self.now), "it has gone");
        if self.active == Some(id) {
            (self.active, self.quiescing) = (None, false);
        }
        self.activate();
        self.forget_suspended();
    }

    /// The queue forgets a channel that has neither consumers nor messages; that it was suspended is forgotten with it.
    fn forget_suspended(&mut self) {
        for number in 0..CHANNELS {
            let channel = ChannelId(number);
            if self.members.iter().all(|member| member.channel != channel) && self.volume(channel) == 0 {
                self.suspended.retain(|other| *other != channel);
            }
        }
    }

    fn close(&mut self) {
        let channel = ChannelId(self.draw(CHANNELS));
        let (mut dead, mut expected) = (Vec::new(), Vec::new());
        let of = |id: ConsumerId| id == getter(channel) || id.0 < 5_000 && id.0 % CHANNELS == channel.0;
        let held = (0u64..).zip(&self.messages).filter_map(|(offset, message)| match message.state {
            State::Held(id) if of(id) => Some((id, offset, offset)),
            _ => None,
        });
        let had: Vec<(ConsumerId, u64, u64)> = held.collect();
        self.queue.remove_channel(&mut self.subscription, channel, &had, self.now, &mut dead);
        self.members.retain(|member| member.channel != channel);
        for offset in 0..self.end() {
            if let State::Held(id) = self.messages[offset as usize].state
                && (id == getter(channel) || id.0 < 5_000 && id.0 % CHANNELS == channel.0)
            {
                self.said(offset, Verdict::Release, &mut expected);
            }
        }
        self.check_dead(&dead, expected);
        self.suspended.retain(|other| *other != channel);
        if self.active.is_some_and(|active| self.members.iter().all(|member| member.id != active)) {
            (self.active, self.quiescing) = (None, false);
        }
        self.activate();
    }

    /// Anybody, also one that has gone, says something of any range; only what it has is meant.
    fn settle(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let holder = |message: &Message| if let State::Held(id) = message.state { Some(id) } else { None };
        let held: Vec<ConsumerId> = self.messages.iter().filter_map(holder).filter(|id| *id != FOREIGN).collect();
        let anybody = held.is_empty() || self.draw(8) == 0;
        let id =
            if anybody { ConsumerId(1 + self.draw(self.ids + 1)) } else { held[self.draw(held.len() as u64) as usize] };
        let verdict = [
            Verdict::Accept,
            Verdict::Accept,
            Verdict::Return,
            Verdict::Release,
            Verdict::Reject,
            Verdict::RejectFailed,
        ][self.draw(6) as usize];
        let first = if self.draw(2) == 0 { 0 } else { self.draw(self.end()) };
        let last = first + self.draw(self.end());
        let (mut dead, mut expected) = (Vec::new(), Vec::new());
        let count = self.queue.settle(&mut self.subscription, id, first, last, verdict, self.now, &mut dead);
        let had_credit =
            self.members.iter().find(|member| member.id == id).is_none_or(|member| self.credit(member) > 0);
        let range = first..=last.min(self.end() - 1);
        let meant: Vec<u64> = range.filter(|offset| self.messages[*offset as usize].state == State::Held(id)).collect();
        assert_eq!(count, meant.len() as u64, "{}", self.what);
        for offset in meant {
            self.said(offset, verdict, &mut expected);
        }
        self.check_dead(&dead, expected);
        if count > 0 {
            self.has_less(id, had_credit);
            self.forget_suspended();
        }
    }

    /// Looks at the head as a caller does: reads levels, drops what has expired.
    fn look(&mut self) -> Option<u64> {
        loop {
            match self.queue.head(&self.subscription, self.end()) {
                Head::Nothing => {
                    assert_eq!(self.visible(), None, "{}", self.what);
                    return None;
                }
                Head::Unread(first, last) => {
                    let last = last.min(first + 3);
                    let messages = &self.messages;
                    self.subscription.set_levels(first, last, &mut |offset| messages[offset as usize].level);
                }
                Head::Record(offset) => {
                    assert_eq!(
                        Some(offset),
                        self.visible(),
                        "{}: the head; {:?}",
                        self.what,
                        self.messages[offset as usize]
                    );
                    let Message { size, due, .. } = self.messages[offset as usize];
                    if due.is_none_or(|due| due > self.now) {
                        return Some(offset);
                    }
                    let mut dead = Vec::new();
                    assert!(self.queue.expire_head(&mut self.subscription, offset, size, &mut dead));
                    self.remove(offset, DeadReason::Expired);
                    self.check_dead(&dead, vec![(offset, DeadReason::Expired)]);
                }
            }
        }
    }

    /// The head of the model, or with a short look ahead that of what has been looked at.
    fn visible(&self) -> Option<u64> {
        if self.rules.priority_max.is_none() || self.rules.look_ahead_max > self.end() {
            return self.head();
        }
        let seen = &self.messages[..self.subscription.end().min(self.end()) as usize];
        let ready = (0u64..).zip(seen).filter(|(_, message)| message.state == State::Ready);
        first(ready)
    }

    fn delivered(&mut self, offset: u64, id: ConsumerId, no_ack: bool, told: delivery::Delivery) {
        let message = &mut self.messages[offset as usize];
        assert_eq!(
            (told.consumer, told.offset, told.no_ack, told.before),
            (id, offset, no_ack, message.tries),
            "{}",
            self.what
        );
        assert_eq!(told.redelivered, message.tries.deliveries() > 0 || offset < self.given_before, "{}", self.what);
        if no_ack {
            message.state = State::Acked;
        } else {
            message.tries.counted += 1;
            message.state = State::Held(id);
            self.given = self.given.max(offset + 1);
        }
        self.deliveries += 1;
    }

    fn dispatch(&mut self) {
        while self.draw(50) > 0 {
            // Asked beforehand or not: who is blocked is found out either way.
            let Some(offset) = self.look() else { return };
            let taker = self.taker().map(|at| self.members[at].clone());
            let channels = (0..CHANNELS).map(ChannelId);
            let volumes: HashMap<ChannelId, u64> = channels.map(|channel| (channel, self.volume(channel))).collect();
            let channel_max = self.channel_max;
            let size = self.messages[offset as usize].size;
            let mut admit = |channel: ChannelId, _: bool| channel_max == 0 || volumes[&channel] < channel_max;
            let told = self.queue.dispatch(&mut self.subscription, offset, size, &mut admit);
            assert_eq!(
                told.map(|told| told.consumer),
                taker.as_ref().map(|taker| taker.id),
                "{}: whose turn it is",
                self.what
            );
            let (Some(told), Some(taker)) = (told, taker) else { return };
            self.delivered(offset, taker.id, taker.no_ack, told);
            let (turn, eager) = (self.tick(), self.rules.kind == QueueKind::Quorum && !self.single);
            let spent = self.credit(&taker) == 0;
            if let Some(member) = self.members.iter_mut().find(|member| member.id == taker.id) {
                member.turn = turn;
                if eager && spent {
                    member.blocked = Some(turn);
                }
            }
        }
    }

    fn get(&mut self) {
        let Some(offset) = self.look() else { return };
        let (channel, no_ack) = (ChannelId(self.draw(CHANNELS)), self.draw(3) == 0);
        let size = self.messages[offset as usize].size;
        let told = self
            .queue
            .get(&mut self.subscription, offset, size, channel, getter(channel), no_ack, None)
            .expect("it is available");
        self.delivered(offset, getter(channel), no_ack, told);
    }

    fn purge(&mut self) {
        let end = self.end();
        assert_eq!(self.queue.purge(&mut self.subscription, end), self.ready(), "{}", self.what);
        self.messages
            .iter_mut()
            .filter(|message| message.state == State::Ready)
            .for_each(|message| message.state = State::Purged);
    }

    /// A share group works on the same messages, in the order of the log.
    fn foreign(&mut self) {
        let rules = Rules { lock: 100, ..self.rules.subscription() };
        let verdict = [Verdict::Accept, Verdict::Release][self.draw(2) as usize];
        let (mut dead, mut expected, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for offset in 0..self.end() {
            if self.messages[offset as usize].state == State::Held(FOREIGN) && self.draw(2) == 0 {
                assert_eq!(self.subscription.judge(FOREIGN, offset, offset, verdict, self.now, &rules, &mut dead), 1);
                self.said(offset, verdict, &mut expected);
            }
        }
        self.check_dead(&dead, expected);
        let Some(first) = self.subscription.wanted(FOREIGN, &rules).filter(|first| *first < self.end()) else { return };
        let limit = 1 + self.draw(3);
        self.subscription.acquire(FOREIGN, first, self.end() - 1, limit, self.now, &rules, &mut |_| None, &mut out);
        for run in out {
            for offset in run.first..=run.last {
                let message = &mut self.messages[offset as usize];
                assert_eq!((message.state, message.tries.deliveries() + 1), (State::Ready, run.count), "{}", self.what);
                message.state = State::Held(FOREIGN);
                message.tries.counted += 1;
                self.given = self.given.max(offset + 1);
            }
        }
    }

    fn bury(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let first = self.draw(self.end());
        let last = first + self.draw(8);
        self.subscription.buried(first, last);
        for message in self.messages.iter_mut().take(last as usize + 1).skip(first as usize) {
            if let State::Dying(reason) = message.state {
                message.state = State::DeadLettered(reason);
            }
        }
    }

    /// Long after: what a share group has comes back, copies that did not come about are due again; consumers keep what they have.
    fn retry(&mut self) {
        self.subscription.release_dead(0, u64::MAX, self.now, &self.rules.subscription());
        self.now += 30_000;
        let rules = Rules { lock: 100, ..self.rules.subscription() };
        let (mut dead, mut expected) = (Vec::new(), Vec::new());
        self.subscription.expire(self.now, &rules, &mut dead);
        for offset in 0..self.end() {
            match self.messages[offset as usize].state {
                State::Dying(reason) => expected.push((offset, reason)),
                State::Held(FOREIGN) => self.said(offset, Verdict::Release, &mut expected),
                _ => {}
            }
        }
        self.check_dead(&dead, expected);
    }

    fn weigh(&mut self) {
        while let Some(from) = self.queue.unweighed(&self.subscription, self.end()) {
            // What is not there is passed over.
            let next = (from..self.end()).find(|offset| {
                !matches!(self.messages[*offset as usize].state, State::Gap) && !self.messages[*offset as usize].removed
            });
            let Some(next) = next else { return };
            self.queue.weigh(&self.subscription, next, self.messages[next as usize].size);
        }
    }

    fn drop_heads(&mut self) {
        let over = |world: &Self| {
            let length = world.rules.length_max.is_some_and(|max| world.ready() > max);
            world.rules.overflow == Overflow::DropHead
                && (length || world.rules.bytes_max.is_some_and(|max| world.bytes() > max))
        };
        while over(self) {
            assert!(self.queue.over_limit(&self.subscription, self.end()), "{}", self.what);
            let Some(offset) = self.look() else { return };
            if !over(self) {
                break;
            }
            let (mut dead, size) = (Vec::new(), self.messages[offset as usize].size);
            assert!(self.queue.drop_head(&mut self.subscription, offset, size, &mut dead));
            self.remove(offset, DeadReason::MaxLength);
            self.check_dead(&dead, vec![(offset, DeadReason::MaxLength)]);
        }
        assert!(!self.queue.over_limit(&self.subscription, self.end()), "{}", self.what);
    }

    fn compare(&mut self) {
        assert_eq!(self.subscription.imbalance(), 0, "{}", self.what);
        let start = self.subscription.start();
        for (offset, message) in (0u64..).zip(&self.messages) {
            let ours = self.subscription.state(offset);
            let same = match (message.state, ours) {
                (State::Ready, RecordState::Available) => true,
                (State::Held(id), RecordState::Acquired(other)) => id == other,
                (State::Dying(_), RecordState::Acquired(other)) => other == DEAD_LETTERS,
                (State::Acked, RecordState::Acknowledged) => true,
                (State::DeadLettered(_) | State::Purged, RecordState::Acknowledged) => offset < start,
                (State::DeadLettered(_) | State::Purged | State::Gap, RecordState::Archived) => true,
                (State::Gap, RecordState::Available) => offset >= self.subscription.end(),
                (State::Gap | State::Trimmed, RecordState::Acknowledged) => offset < start,
                _ => false,
            };
            assert!(same, "{}: {offset} is {ours:?}, not {message:?}", self.what);
        }
        let end = self.end();
        let held = self.messages.iter().filter(|message| matches!(message.state, State::Held(_))).count() as u64;
        let counts = (self.subscription.ready(end), self.subscription.unacknowledged(), self.queue.consumers());
        assert_eq!(counts, (self.ready(), held, self.members.len()), "{}", self.what);
        for member in &self.members {
            assert_eq!(self.queue.unacknowledged_of(member.id), self.unacknowledged(member.id), "{}", self.what);
        }
        assert_eq!(self.queue.active(), self.active, "{}", self.what);
        self.weigh();
        let end = self.end();
        self.queue.note_fill(&self.subscription, end);
        self.note_fill();
        if self.rules.bytes_max.is_some() {
            assert_eq!(self.queue.ready_bytes(&self.subscription), self.bytes(), "{}", self.what);
        }
    }
}

#[test]
fn each_message_is_in_one_state_and_goes_to_whose_turn_it_is() {
    let mut deliveries = 0;
    for seed in 0..2_400 {
        let mut world = World::new(seed);
        world.run(90);
        deliveries += world.deliveries;
    }
    assert!(deliveries > 50_000, "{deliveries} deliveries: the model is hardly used");
}
