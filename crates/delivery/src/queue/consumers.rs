//! Consumers of a queue, and whose turn it is.
//!
//! **Competing.** Consumers of the highest priority that can take a record are served in turn: who was served goes to the back.
//! One that cannot take a record leaves the rotation, and returns at the back when it can. A classic queue notices that when it is
//! that one's turn, a quorum queue when its last credit is used up: between the two the order differs, as it does in RabbitMQ.
//!
//! **Single active.** One consumer is served until it goes. The next is that of the highest priority, of those the one that has been
//! there longest; in a quorum queue credit counts before age, and one of a higher priority takes over as soon as the active one has
//! nothing unacknowledged: until then that one gets nothing new.
//!
//! **Holders.** Who has unacknowledged records stays known after it was cancelled, until its channel closes or it has none left. What
//! was fetched with *get* is held by a number that the channel has for it.
//!
//! Source: RabbitMQ 4.3, `rabbit_queue_consumers`, `rabbit_limiter`, `rabbit_fifo`; asked of the real one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::QueueKind;
use crate::ConsumerId;

/// A channel, or whatever else ends with all its consumers: chosen by the caller, one number each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

/// A consumer that wants to be served.
#[derive(Clone, Copy, Debug)]
pub struct Consume {
    /// A number that no other consumer of the subscription has had.
    pub id: ConsumerId,
    /// Its channel.
    pub channel: ChannelId,
    /// Records are done when they are given to it.
    pub no_ack: bool,
    /// It wants to be alone.
    pub exclusive: bool,
    /// Higher ones are served first.
    pub priority: i32,
    /// Records that it may have unacknowledged; 0: any number. Without acknowledgements it counts for nothing.
    pub prefetch: u32,
    /// How long it may keep one, in ms; `None`: for ever.
    pub time_out_ms: Option<u64>,
}

/// Somebody is alone with the queue, or cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is in exclusive use")]
pub struct InExclusiveUse;

/// What a consumer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerStatus {
    /// It is served in turn.
    Up,
    /// It has no credit, or its channel cannot take anything.
    Blocked,
    /// It alone is served.
    SingleActive,
    /// Another is served.
    Waiting,
    /// It has kept something for too long, and is not served until it has settled that.
    TimedOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the rotation.
    Turn,
    /// In the list of its channel.
    Blocked,
    /// One of those of which one is active.
    Single,
    /// Out of the rotation: it has something that it should not have any more.
    Aside,
    /// No consumer any more, or never was: it only has records.
    Holder,
}

#[derive(Clone, Debug)]
struct Consumer {
    channel: ChannelId,
    no_ack: bool,
    priority: i32,
    /// 0: no bound.
    prefetch: u32,
    arrived: u64,
    unacknowledged: u64,
    time_out_ms: Option<u64>,
    /// What it had for too long and has not settled, as runs of offsets, both ends included.
    late: Vec<(u64, u64)>,
    place: Place,
    /// By which it is in the rotation, or among those of its channel that are blocked: others of its entries are of no account. 0: it is in neither.
    ticket: u64,
}

impl Consumer {
    fn credit(&self) -> u64 {
        if self.no_ack || self.prefetch == 0 {
            u64::MAX
        } else {
            u64::from(self.prefetch).saturating_sub(self.unacknowledged)
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Channel {
    /// Consumers and other holders.
    members: BTreeSet<ConsumerId>,
    /// In the order in which they were found to be blocked. As long as it is not suspended none of them has credit.
    blocked: Line,
    /// It cannot take anything until it says so.
    suspended: bool,
}

/// Those of a priority who are served in turn, or those of a channel who are blocked. Who leaves is not looked for: the entry stays until it comes to the
/// front, or until half of them are such.
#[derive(Clone, Debug, Default)]
struct Line {
    /// With their tickets. The first one is in the line.
    entries: VecDeque<(ConsumerId, u64)>,
    /// Who is in it.
    count: usize,
}

impl Line {
    fn push(&mut self, id: ConsumerId, ticket: u64) {
        self.entries.push_back((id, ticket));
        self.count += 1;
    }

    /// One that had its ticket has given it back.
    fn left(&mut self, all: &BTreeMap<ConsumerId, Consumer>) {
        self.count -= 1;
        self.tidy(all);
    }

    /// The first entries of those who have left go, or all where these are many.
    fn tidy(&mut self, all: &BTreeMap<ConsumerId, Consumer>) {
        if self.entries.len() == self.count {
            return;
        }
        let is_in = |(id, ticket): &(ConsumerId, u64)| all.get(id).is_some_and(|one| one.ticket == *ticket);
        while self.entries.front().is_some_and(|entry| !is_in(entry)) {
            self.entries.pop_front();
        }
        if self.entries.len() > 2 * self.count {
            self.entries.retain(is_in);
        }
    }
}

/// Who is to be given the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taker {
    pub id: ConsumerId,
    pub channel: ChannelId,
    pub no_ack: bool,
}

/// See the head of the file.
#[derive(Clone, Debug)]
pub(super) struct Consumers {
    kind: QueueKind,
    single: bool,
    all: BTreeMap<ConsumerId, Consumer>,
    channels: BTreeMap<ChannelId, Channel>,
    /// By priority, negated: the highest first. None is empty.
    turns: BTreeMap<i64, Line>,
    tickets: u64,
    count: usize,
    arrivals: u64,
    exclusive: Option<ConsumerId>,
    active: Option<ConsumerId>,
    /// The active one gets nothing new: one of a higher priority waits.
    quiescing: bool,
}

impl Consumers {
    pub fn new(kind: QueueKind, single: bool) -> Self {
        Self {
            kind,
            single,
            all: BTreeMap::new(),
            channels: BTreeMap::new(),
            turns: BTreeMap::new(),
            tickets: 0,
            count: 0,
            arrivals: 0,
            exclusive: None,
            active: None,
            quiescing: false,
        }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Is there neither a consumer nor anybody who has something?
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.channels.is_empty()
    }

    pub fn unacknowledged(&self, id: ConsumerId) -> u64 {
        self.all.get(&id).map_or(0, |consumer| consumer.unacknowledged)
    }

    pub fn active(&self) -> Option<ConsumerId> {
        self.active
    }

    pub fn status(&self, id: ConsumerId) -> Option<ConsumerStatus> {
        let consumer = self.all.get(&id)?;
        let suspended = self.channels.get(&consumer.channel).is_some_and(|channel| channel.suspended);
        Some(match consumer.place {
            Place::Holder => return None,
            _ if !consumer.late.is_empty() => ConsumerStatus::TimedOut,
            Place::Single if self.active == Some(id) => ConsumerStatus::SingleActive,
            Place::Single => ConsumerStatus::Waiting,
            Place::Turn if !suspended && consumer.credit() > 0 => ConsumerStatus::Up,
            Place::Turn | Place::Blocked | Place::Aside => ConsumerStatus::Blocked,
        })
    }

    /// Ids and channels of all, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (ConsumerId, ChannelId)> + '_ {
        self.all.iter().filter(|(_, one)| one.place != Place::Holder).map(|(id, one)| (*id, one.channel))
    }

    pub fn add(&mut self, wish: &Consume) -> Result<(), InExclusiveUse> {
        if self.exclusive.is_some() || wish.exclusive && (self.single || self.count > 0) {
            return Err(InExclusiveUse);
        }
        if wish.exclusive {
            self.exclusive = Some(wish.id);
        }
        let Consume { id, channel, no_ack, priority, prefetch, time_out_ms, .. } = *wish;
        self.arrivals += 1;
        self.count += 1;
        let place = if self.single { Place::Single } else { Place::Turn };
        let arrived = self.arrivals;
        let late = Vec::new();
        self.all.insert(
            id,
            Consumer {
                channel,
                no_ack,
                priority,
                prefetch,
                arrived,
                unacknowledged: 0,
                time_out_ms,
                late,
                place,
                ticket: 0,
            },
        );
        self.channels.entry(channel).or_default().members.insert(id);
        if self.single {
            self.activate();
        } else {
            self.queue(id, priority);
        }
        Ok(())
    }

    /// It is served no longer; what it has stays with it. False: it is no consumer.
    pub fn cancel(&mut self, id: ConsumerId) -> bool {
        let Some(consumer) = self.all.get_mut(&id).filter(|consumer| consumer.place != Place::Holder) else {
            return false;
        };
        let (place, priority, channel) = (consumer.place, consumer.priority, consumer.channel);
        consumer.place = Place::Holder;
        self.count -= 1;
        match place {
            Place::Turn => self.leave(id, priority),
            Place::Blocked => self.leave_blocked(id, channel),
            Place::Single | Place::Aside | Place::Holder => {}
        }
        self.exclusive = self.exclusive.filter(|other| *other != id);
        if self.active == Some(id) {
            (self.active, self.quiescing) = (None, false);
        }
        self.forget_if_empty(id);
        if self.single {
            self.activate();
        }
        true
    }

    /// All consumers of a channel go, and it is forgotten; tells who they were, with other holders, and who of them had records.
    pub fn remove_channel(&mut self, channel: ChannelId) -> (BTreeSet<ConsumerId>, BTreeMap<ConsumerId, u64>) {
        // Without it none of them is looked for among the others.
        let members = self.channels.remove(&channel).map(|one| one.members).unwrap_or_default();
        // None of them is to become active while the others go.
        for id in &members {
            if let Some(consumer) =
                self.all.get_mut(id).filter(|one| one.place == Place::Single && self.active != Some(*id))
            {
                consumer.place = Place::Holder;
                self.count -= 1;
            }
        }
        for id in &members {
            self.cancel(*id);
        }
        let holds = |id: &ConsumerId| {
            self.all.remove(id).filter(|one| one.unacknowledged > 0).map(|one| (*id, one.unacknowledged))
        };
        let holders = members.iter().filter_map(holds).collect();
        (members, holders)
    }

    /// How many records those who may take one can take together; `most` at most. What their channels say is not known.
    pub fn spare(&self, most: u64) -> u64 {
        let credit = |id: &ConsumerId| {
            let Some(one) = self.all.get(id) else { return 0 };
            let suspended = self.channels.get(&one.channel).is_some_and(|channel| channel.suspended);
            if suspended { 0 } else { one.credit() }
        };
        if self.single {
            return self.active.filter(|_| !self.quiescing).as_ref().map_or(0, credit).min(most);
        }
        let mut spare = 0u64;
        let is_in = |(id, ticket): &&(ConsumerId, u64)| self.all.get(id).is_some_and(|one| one.ticket == *ticket);
        for (id, _) in self.turns.values().flat_map(|turn| &turn.entries).filter(is_in) {
            spare = spare.saturating_add(credit(id));
            if spare >= most {
                return most;
            }
        }
        spare
    }

    /// Is there anybody who may take a record? Those who cannot leave the rotation. What channels say when they are asked is not known.
    pub fn has_taker(&mut self) -> bool {
        self.front().is_some()
    }

    /// Whose turn it is, if its channel admits one more record.
    pub fn next(&mut self, admit: &mut dyn FnMut(ChannelId, bool) -> bool) -> Option<Taker> {
        loop {
            let taker = self.front()?;
            if admit(taker.channel, taker.no_ack) {
                return Some(taker);
            }
            self.suspend(taker.channel);
        }
    }

    /// The first of the rotation that can take a record.
    fn front(&mut self) -> Option<Taker> {
        loop {
            let id = if self.single {
                self.active.filter(|_| !self.quiescing)?
            } else {
                self.turns.first_key_value()?.1.entries.front()?.0
            };
            let consumer = self.all.get_mut(&id)?;
            let (channel, no_ack, priority) = (consumer.channel, consumer.no_ack, consumer.priority);
            let suspended = self.channels.get(&channel).is_some_and(|channel| channel.suspended);
            if consumer.credit() > 0 && !suspended {
                return Some(Taker { id, channel, no_ack });
            }
            if self.single {
                return None;
            }
            self.block(id, channel, priority);
        }
    }

    /// It was given a record.
    pub fn served(&mut self, id: ConsumerId) {
        let Some(consumer) = self.all.get_mut(&id) else { return };
        if !consumer.no_ack {
            consumer.unacknowledged += 1;
        }
        let (channel, priority, credit) = (consumer.channel, consumer.priority, consumer.credit());
        if consumer.place != Place::Turn {
            return;
        }
        if self.kind == QueueKind::Quorum && credit == 0 {
            self.block(id, channel, priority);
        } else if let Some(turn) = self.turns.get_mut(&-i64::from(priority))
            && turn.entries.front().is_some_and(|(first, _)| *first == id)
        {
            turn.entries.rotate_left(1);
            turn.tidy(&self.all);
        }
    }

    /// A channel has got a record by asking for it.
    pub fn got(&mut self, channel: ChannelId, holder: ConsumerId) {
        self.all.entry(holder).or_insert_with(|| {
            self.channels.entry(channel).or_default().members.insert(holder);
            let (late, place) = (Vec::new(), Place::Holder);
            Consumer {
                channel,
                no_ack: false,
                priority: 0,
                prefetch: 0,
                arrived: 0,
                unacknowledged: 0,
                time_out_ms: None,
                late,
                place,
                ticket: 0,
            }
        });
        self.served(holder);
    }

    /// It has so many records less.
    pub fn settled(&mut self, id: ConsumerId, count: u64) {
        let Some(consumer) = self.all.get_mut(&id).filter(|_| count > 0) else { return };
        consumer.unacknowledged = consumer.unacknowledged.saturating_sub(count);
        let (channel, priority, drained) = (consumer.channel, consumer.priority, consumer.unacknowledged == 0);
        let suspended = self.channels.get(&channel).is_some_and(|channel| channel.suspended);
        if consumer.place == Place::Blocked && consumer.credit() > 0 && !suspended {
            consumer.place = Place::Turn;
            self.leave_blocked(id, channel);
            self.queue(id, priority);
        }
        if self.active == Some(id) && self.quiescing && drained {
            (self.active, self.quiescing) = (None, false);
            self.activate();
        }
        self.forget_if_empty(id);
    }

    /// How long one may keep a record, in ms.
    pub fn time_out(&self, id: ConsumerId) -> Option<u64> {
        self.all.get(&id)?.time_out_ms
    }

    /// Its channel.
    pub fn channel(&self, id: ConsumerId) -> Option<ChannelId> {
        self.all.get(&id).map(|one| one.channel)
    }

    /// These were taken from it, `count` records in the order of the log: it had them for too long, and is not served until it has
    /// settled them.
    pub fn taken_back(&mut self, id: ConsumerId, count: u64, runs: &[(u64, u64)]) {
        let Some(consumer) = self.all.get_mut(&id) else { return };
        consumer.unacknowledged = consumer.unacknowledged.saturating_sub(count);
        if consumer.place == Place::Holder {
            return self.forget_if_empty(id);
        }
        consumer.late.extend_from_slice(runs);
        let (place, priority, channel, has_more) =
            (consumer.place, consumer.priority, consumer.channel, consumer.unacknowledged > 0);
        match place {
            Place::Turn => self.leave(id, priority),
            Place::Blocked => self.leave_blocked(id, channel),
            Place::Single => {
                if self.active == Some(id) {
                    // The next one comes when this one has nothing any more.
                    self.quiescing = has_more;
                    self.active = self.active.filter(|_| has_more);
                    self.activate();
                }
                return;
            }
            Place::Aside | Place::Holder => return,
        }
        if let Some(consumer) = self.all.get_mut(&id) {
            consumer.place = Place::Aside;
        }
    }

    /// It says what is to become of these; what was taken from it counts as settled now.
    pub fn settled_late(&mut self, id: ConsumerId, first: u64, last: u64) {
        let Some(consumer) = self.all.get_mut(&id).filter(|one| !one.late.is_empty()) else { return };
        let without = |(from, to): (u64, u64)| {
            let before = (from < first).then(|| (from, to.min(first.wrapping_sub(1))));
            let after = (to > last).then(|| (from.max(last.wrapping_add(1)), to));
            [before, after].into_iter().flatten()
        };
        consumer.late = std::mem::take(&mut consumer.late).into_iter().flat_map(without).collect();
        if !consumer.late.is_empty() {
            return;
        }
        match consumer.place {
            Place::Aside => {
                consumer.place = Place::Turn;
                let priority = consumer.priority;
                self.queue(id, priority);
            }
            Place::Single => self.activate(),
            Place::Turn | Place::Blocked | Place::Holder => {}
        }
        self.forget_if_empty(id);
    }

    /// A channel cannot take anything for now.
    pub fn suspend(&mut self, channel: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.suspended = true;
        }
    }

    /// A channel can take something again; true: it could not before.
    pub fn resume(&mut self, channel: ChannelId) -> bool {
        let Some(found) = self.channels.get_mut(&channel).filter(|one| one.suspended) else { return false };
        found.suspended = false;
        self.unblock(channel);
        true
    }

    /// What each holder has is counted anew; tells how many fewer those of a channel have.
    pub fn recount(&mut self, held: impl Fn(ConsumerId) -> u64) -> Vec<(ChannelId, u64)> {
        let counts: Vec<(ConsumerId, ChannelId, u64)> =
            self.all.iter().map(|(id, one)| (*id, one.channel, one.unacknowledged)).collect();
        let mut lost = Vec::new();
        for (id, channel, before) in counts {
            let now = held(id);
            if now < before {
                self.settled(id, before - now);
                lost.push((channel, before - now));
            } else if let Some(consumer) = self.all.get_mut(&id) {
                consumer.unacknowledged = now;
            }
        }
        lost
    }

    fn queue(&mut self, id: ConsumerId, priority: i32) {
        let Some(consumer) = self.all.get_mut(&id) else { return };
        self.tickets += 1;
        consumer.ticket = self.tickets;
        self.turns.entry(-i64::from(priority)).or_default().push(id, self.tickets);
    }

    fn leave(&mut self, id: ConsumerId, priority: i32) {
        let key = -i64::from(priority);
        let Some(consumer) = self.all.get_mut(&id).filter(|one| one.ticket > 0) else { return };
        consumer.ticket = 0;
        let Some(turn) = self.turns.get_mut(&key) else { return };
        turn.left(&self.all);
        if turn.count == 0 {
            self.turns.remove(&key);
        }
    }

    fn block(&mut self, id: ConsumerId, channel: ChannelId, priority: i32) {
        self.leave(id, priority);
        self.tickets += 1;
        if let Some(consumer) = self.all.get_mut(&id) {
            (consumer.place, consumer.ticket) = (Place::Blocked, self.tickets);
        }
        self.channels.entry(channel).or_default().blocked.push(id, self.tickets);
    }

    fn leave_blocked(&mut self, id: ConsumerId, channel: ChannelId) {
        let Some(consumer) = self.all.get_mut(&id).filter(|one| one.ticket > 0) else { return };
        consumer.ticket = 0;
        if let Some(found) = self.channels.get_mut(&channel) {
            found.blocked.left(&self.all);
        }
    }

    /// Those of a channel that are blocked and need not be go to the back of the rotation.
    fn unblock(&mut self, channel: ChannelId) {
        let Some(found) = self.channels.get_mut(&channel).filter(|one| !one.suspended && one.blocked.count > 0) else {
            return;
        };
        let mut stay = Line::default();
        for (id, ticket) in std::mem::take(&mut found.blocked).entries {
            let Some(consumer) = self.all.get_mut(&id).filter(|one| one.ticket == ticket) else { continue };
            if consumer.credit() > 0 {
                consumer.place = Place::Turn;
                let priority = consumer.priority;
                self.queue(id, priority);
            } else {
                stay.push(id, ticket);
            }
        }
        if let Some(found) = self.channels.get_mut(&channel) {
            found.blocked = stay;
        }
    }

    /// The single active consumer, chosen when there is none, or when a better one has come to a quorum queue.
    fn activate(&mut self) {
        let active = self.active;
        if active.is_some() && (self.quiescing || self.kind == QueueKind::Classic) {
            return;
        }
        let waiting = self
            .all
            .iter()
            .filter(|(id, one)| one.place == Place::Single && one.late.is_empty() && active != Some(**id));
        let quorum = self.kind == QueueKind::Quorum;
        let rank =
            |one: &Consumer| (one.priority, if quorum { one.credit() } else { 0 }, std::cmp::Reverse(one.arrived));
        let Some((next, priority)) = waiting.max_by_key(|(_, one)| rank(one)).map(|(id, one)| (*id, one.priority))
        else {
            return;
        };
        match active.and_then(|id| self.all.get(&id)) {
            None => self.active = Some(next),
            Some(current) if priority > current.priority => {
                if current.unacknowledged == 0 {
                    self.active = Some(next);
                } else {
                    self.quiescing = true;
                }
            }
            Some(_) => {}
        }
    }

    fn forget_if_empty(&mut self, id: ConsumerId) {
        let Some(consumer) = self
            .all
            .get(&id)
            .filter(|one| one.place == Place::Holder && one.unacknowledged == 0 && one.late.is_empty())
        else {
            return;
        };
        let channel = consumer.channel;
        self.all.remove(&id);
        if let Some(found) = self.channels.get_mut(&channel) {
            found.members.remove(&id);
            if found.members.is_empty() {
                self.channels.remove(&channel);
            }
        }
    }
}
