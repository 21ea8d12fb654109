//! Gives out the messages of queues. Whoever notices that something may be given out (a record that was appended, a message that came
//! back, credit) has the queue take a turn, on his own thread and under the queue's lock; messages go to the consumers' shards.

mod gets;
mod opening;
mod outbox;
mod reading;
mod time_outs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use delivery::{ChannelId, Consume, ConsumerId, Dead, Head, Overflow, Queue as Machine, QueueKind, Searched};
use journal::ReplyTo;
use parking_lot::MutexGuard;
use record::Record;
use routing::QueueId;
use types::{LogId, ShardId};

use outbox::Outbox;

use super::Ticker;
use super::consumers::{ChannelFlow, ConsumeError, Consuming, Delivery, Gone, GoneReason, Outcome, Settlement, Waiter};
use super::gaps::{SearchedQueue, is_searched};
use super::look::QueueTally;
use super::opening::HERE_BYTES_MAX;
use super::policies::InForce;
use super::queue::Queue;
use super::window::{Seen, Window};
use super::window_memory::WindowMemory;
use crate::Broker;
use crate::groups::now;
use crate::mailbox::{Event, Reply};
use crate::subscriptions::{Acknowledgement, Held, SharedSubscription, Wake};

/// Messages of one turn, before others on the thread get theirs.
const TURN_MESSAGES: usize = 1000;
/// Messages that one turn throws out, for their time or the queue's length, before others get their turn: the next one is the thread's of queues.
const TURN_DEATHS: u64 = 1000;
/// What cannot be read is tried again after this many ms.
const RETRY_MS: u64 = 1000;
/// What was read for a get, and not given out, is kept for the next ones for this many ms.
const POLLED_MS: u64 = 5000;

/// What a queue has in memory beside its subscription.
pub(super) struct Dispatch {
    pub(super) machine: Machine,
    /// While somebody uses it.
    in_use: Option<Box<InUse>>,
    /// When the queue is to be looked after, as the thread `queues` knows it.
    due: Option<u64>,
    /// What is before this offset of the log was there in an earlier turn.
    arrived: u64,
    /// The head that was looked at last, and when its time is over, in ms since 1970.
    head: Option<(u64, Option<u64>)>,
    /// What went through since the log ended at `born`, for those who look on; nothing has.
    pub(super) tally: Option<Box<QueueTally>>,
    /// Moved up by offsets that turned out to hold no message …
    pub(super) born: u64,
    /// … of those from here on, which had not been searched for them.
    seen: u64,
}

/// What a queue has in memory that has consumers, or a message in its hands.
#[derive(Default)]
struct InUse {
    window: Window,
    consumers: BTreeMap<ConsumerId, Consuming>,
    /// Of consumers, and of those who have asked for a message.
    channels: BTreeMap<ChannelId, Arc<ChannelFlow>>,
    /// As [`Dispatch::head`], of the first of each level, where each has its time.
    level_heads: Vec<(u64, Option<u64>)>,
    /// While what was read for gets is kept.
    polled: Option<Polled>,
    /// A thread that may wait opens batches for it.
    opening: bool,
    /// The record of which it was said that it is too large for this node.
    too_large: Option<u64>,
}

/// When somebody got messages one by one, in steady ms.
#[derive(Clone, Copy)]
struct Polled {
    /// The last time.
    last: u64,
    /// When the thread `queues` looks whether there was another. It does not move with each get.
    look_at: u64,
}

impl InUse {
    fn is_over(&self) -> bool {
        let Self { window, consumers, channels, level_heads, polled, opening, too_large: _ } = self;
        window.is_empty()
            && consumers.is_empty()
            && channels.is_empty()
            && level_heads.is_empty()
            && polled.is_none()
            && !opening
    }

    fn note_get(&mut self, now_ms: u64) {
        let first = Polled { last: now_ms, look_at: now_ms + POLLED_MS };
        self.polled.get_or_insert(first).last = now_ms;
    }

    /// Was there a get not long ago?
    fn is_polled(&mut self, now_ms: u64) -> bool {
        self.polled = self.polled.filter(|polled| now_ms < polled.last + POLLED_MS);
        if let Some(polled) = self.polled.as_mut().filter(|polled| polled.look_at <= now_ms) {
            polled.look_at = polled.last + POLLED_MS;
        }
        self.polled.is_some()
    }
}

impl Dispatch {
    pub fn new(in_force: &InForce, auto_delete: bool, shared: &SharedSubscription) -> Self {
        let mut state = shared.lock();
        let machine = Machine::new(in_force.rules(auto_delete), in_force.understood.single_active, &mut state, now());
        let searched = Searched { until: state.start(), compactions: shared.log().compactions() };
        state.set_searched(searched);
        drop(state);
        let (arrived, born) = (shared.log().last_stable().0, shared.log().end().0);
        Self { machine, in_use: None, due: None, arrived, head: None, tally: None, born, seen: born }
    }

    /// These offsets hold no message.
    pub(super) fn note_no_messages(&mut self, first: u64, last: u64) {
        self.born += (last + 1).saturating_sub(first.max(self.seen));
    }

    /// Offsets before `until` were searched for such as hold no message.
    pub(super) fn note_seen(&mut self, until: u64) {
        self.seen = self.seen.max(until);
    }

    fn in_use(&mut self) -> &mut InUse {
        self.in_use.get_or_insert_default()
    }

    /// Who consumes, by number.
    pub(super) fn consumers(&self) -> impl Iterator<Item = (&ConsumerId, &Consuming)> {
        self.in_use.iter().flat_map(|in_use| &in_use.consumers)
    }

    /// When the times of the first of each level are over.
    fn level_times(&self) -> impl Iterator<Item = u64> + '_ {
        self.in_use.iter().flat_map(|in_use| &in_use.level_heads).filter_map(|(_, due)| *due)
    }

    /// When to look whether what was read for gets is still wanted.
    fn look_at(&self) -> Option<u64> {
        Some(self.in_use.as_ref()?.polled?.look_at)
    }

    /// Has nothing in memory that nobody needs. `is_empty`: nobody can be given anything.
    fn let_go(&mut self, memory: &Arc<WindowMemory>, is_empty: bool, now_ms: u64) {
        let Some(in_use) = &mut self.in_use else { return };
        if is_empty {
            in_use.polled = None;
        }
        if !is_empty && (in_use.is_polled(now_ms) || self.machine.consumers() > 0) {
            in_use.window.keep(memory);
        } else {
            in_use.window.clear();
        }
        if in_use.is_over() {
            self.in_use = None;
        }
    }

    fn tally(&mut self) -> &mut QueueTally {
        self.tally.get_or_insert_default()
    }

    /// Asks a channel whether it takes one more.
    fn admit(
        channels: &BTreeMap<ChannelId, Arc<ChannelFlow>>,
        queue: QueueId,
        channel: ChannelId,
        no_ack: bool,
    ) -> bool {
        channels.get(&channel).is_some_and(|flow| flow.admit(queue, no_ack))
    }
}

/// How a turn ended.
enum TurnEnd {
    /// Nothing more is to be done until something happens.
    Rest,
    /// Others are to have their turn before it goes on.
    More,
    /// It has thrown out as much as a turn may.
    Deaths,
    /// What it needs is being read, or what is dead has to be sent before more of it is thrown out: it is told with a turn.
    Reads,
}

/// One queue, locked.
struct Turn<'a> {
    broker: &'a Arc<Broker>,
    queue: &'a Arc<Queue>,
    own: MutexGuard<'a, Dispatch>,
    state: Held<'a>,
    out: Outbox,
    dead: Vec<Dead>,
    /// Who was told to wait, and need not any more.
    woken: Vec<Waiter>,
    /// How many it may throw out yet, once that was looked at, and whether the queue has to wait with that.
    deaths_left: Option<u64>,
    held_back: bool,
    /// What there is no room for is dropped before anything is given out.
    drops_first: bool,
    /// Bytes of batches that it may unpack yet.
    unpack_left: usize,
    /// The end of the log, as far as it is looked at.
    end: u64,
    now_ms: u64,
    /// Since 1970.
    wall_ms: u64,
}

impl Broker {
    fn turn<'a>(self: &'a Arc<Self>, queue: &'a Arc<Queue>) -> Turn<'a> {
        let (mut own, mut state) = (queue.dispatch.lock(), queue.shared.lock());
        let start = queue.log().start().0;
        if start > state.start() {
            // Records of the log were deleted: they are gone, and whoever had them has as much credit again.
            let woken = trim(&mut own, &mut state, start);
            drop((own, state));
            self.resume(woken);
            (own, state) = (queue.dispatch.lock(), queue.shared.lock());
        }
        let wall_ms = self.now_ms().max(0) as u64;
        let (end, now_ms) = (queue.log().last_stable().0, now());
        let (out, dead, woken) = (Outbox::default(), Vec::new(), Vec::new());
        let (deaths_left, held_back, drops_first) = (None, false, false);
        let unpack_left = HERE_BYTES_MAX;
        let mut turn = Turn {
            broker: self,
            queue,
            own,
            state,
            out,
            dead,
            woken,
            deaths_left,
            held_back,
            drops_first,
            unpack_left,
            end,
            now_ms,
            wall_ms,
        };
        turn.own.machine.set_time(now_ms);
        turn.search(end);
        turn
    }

    /// The shard that hears of a queue's log.
    fn home(&self, queue: QueueId) -> Option<ShardId> {
        let count = self.mailboxes.count();
        (count > 0).then(|| ShardId((queue.0 % count as u64) as u16))
    }

    /// Something may be given out, or has to be thrown out.
    pub(crate) fn run_queue(self: &Arc<Self>, queue: &Arc<Queue>) {
        if !queue.is_dropped() && !queue.is_stream() {
            self.turn(queue).run();
        }
    }

    /// The log of a queue has more to read, or its subscription more to give, as `shard` heard; other logs are passed over.
    pub fn queue_advanced(self: &Arc<Self>, log: LogId, shard: ShardId) {
        if let Some(queue) = self.vhosts.queue_of(log) {
            match &queue.stream {
                Some(stream) => self.run_stream(&queue, stream, shard),
                None => self.run_queue(&queue),
            }
        }
    }

    /// A queue begins its life, or the broker its own.
    pub(super) fn begin(self: &Arc<Self>, queue: &Arc<Queue>) {
        match &queue.stream {
            Some(stream) => stream.begin(queue.topic()),
            None => self.run_queue(queue),
        }
    }

    /// Has all queues look at what they have: shards are there that hear of them.
    pub fn wake_queues(self: &Arc<Self>) {
        for queue in self.vhosts.all().iter().flat_map(|vhost| vhost.queues()) {
            queue.parts().for_each(|part| self.run_queue(part));
        }
    }

    /// Time has passed. On the thread `queues`.
    pub(super) fn look_after(self: &Arc<Self>, queue: &Arc<Queue>) {
        if let Some(stream) = &queue.stream {
            return self.look_after_stream(queue, stream);
        }
        let expired = {
            let mut own = queue.dispatch.lock();
            own.due = None;
            own.machine.expires_at().is_some_and(|at| at <= now())
        };
        if expired {
            let doomed = (Arc::clone(queue), false);
            if !self.try_deletions(vec![doomed.clone()]) {
                self.ticker.delete_later(doomed);
            }
        } else {
            self.run_queue(queue);
        }
    }

    /// A channel of a gateway.
    pub fn new_channel(&self, to: ReplyTo) -> Arc<ChannelFlow> {
        ChannelFlow::new(ChannelId(self.subscriptions().new_consumer().0), to, &self.vhosts.unsettled)
    }

    /// Somebody consumes from now on.
    ///
    /// # Errors
    /// `Exclusive`, `Gone`.
    pub fn consume(self: &Arc<Self>, queue: &Arc<Queue>, wish: Consuming) -> Result<ConsumerId, ConsumeError> {
        let id = self.subscriptions().new_consumer();
        let mut turn = self.turn(queue);
        if queue.is_dropped() {
            return Err(ConsumeError::Gone);
        }
        let Consuming { no_ack, exclusive, priority, prefetch, time_out_ms, .. } = wish;
        let time_out_ms = self.time_out_ms(queue, time_out_ms);
        let consume = Consume {
            id,
            channel: wish.channel.id(),
            no_ack,
            exclusive,
            priority,
            prefetch: u32::from(prefetch),
            time_out_ms,
        };
        turn.own.machine.add_consumer(&consume).map_err(|_| ConsumeError::Exclusive)?;
        let in_use = turn.own.in_use();
        in_use.channels.insert(wish.channel.id(), Arc::clone(&wish.channel));
        in_use.consumers.insert(id, wish);
        turn.run();
        Ok(id)
    }

    /// Somebody consumes no longer; what it has stays unacknowledged. True: the queue goes with it.
    pub fn cancel(self: &Arc<Self>, queue: &Arc<Queue>, consumer: ConsumerId) -> bool {
        if let Some(stream) = &queue.stream {
            stream.cancel(consumer);
            return false;
        }
        let mut turn = self.turn(queue);
        turn.own.machine.cancel(consumer, turn.now_ms);
        turn.own.in_use().consumers.remove(&consumer);
        turn.run()
    }

    /// A channel has gone, with all its consumers: what they have goes back, first `had`, in its order. True: the queue goes with them.
    pub fn leave_channel(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        channel: &Arc<ChannelFlow>,
        had: &[(ConsumerId, u64, u64)],
    ) -> bool {
        if let Some(stream) = &queue.stream {
            stream.leave(channel.id());
            return false;
        }
        let mut turn = self.turn(queue);
        let Turn { own, state, dead, now_ms, .. } = &mut turn;
        let gone = own.machine.remove_channel(state, channel.id(), had, *now_ms, dead);
        let in_use = own.in_use();
        gone.iter().for_each(|consumer| drop(in_use.consumers.remove(consumer)));
        in_use.channels.remove(&channel.id());
        turn.drops_first = turn.own.machine.rules().kind == QueueKind::Classic;
        turn.run()
    }

    /// Consumers, or who has got them, say what is to become of messages that they have; what they do not have is passed over.
    pub fn settle(self: &Arc<Self>, queue: &Arc<Queue>, channel: &Arc<ChannelFlow>, said: &[Settlement]) {
        if let Some(stream) = &queue.stream {
            self.settle_stream(queue, stream, said);
            let count = said.iter().map(|run| run.last - run.first + 1).sum();
            return self.resume(channel.settled_of_stream(count));
        }
        let mut turn = self.turn(queue);
        let (mut count, mut acknowledged) = (0, 0);
        for one in said {
            let Turn { own, state, dead, now_ms, .. } = &mut turn;
            let settled =
                own.machine.settle(state, one.consumer, one.first, one.last, one.outcome.verdict(), *now_ms, dead);
            count += settled;
            acknowledged += if one.outcome == Outcome::Ack { settled } else { 0 };
        }
        turn.own.tally().acknowledged += acknowledged;
        turn.drops_first = turn.own.machine.rules().kind == QueueKind::Classic;
        turn.run();
        self.resume(channel.settled(count, acknowledged));
    }

    fn resume(self: &Arc<Self>, waiters: Vec<Waiter>) {
        for (queue, channel) in waiters {
            let Some(queue) = self.vhosts.queue(queue) else { continue };
            if let Some(stream) = &queue.stream {
                self.resume_stream(&queue, stream, channel);
                continue;
            }
            let mut turn = self.turn(&queue);
            if turn.own.machine.resume_channel(channel) {
                turn.run();
            }
        }
    }

    /// A channel is closed, and has left its queues: others may have the memory of what it had.
    pub fn channel_closed(self: &Arc<Self>, channel: &Arc<ChannelFlow>) {
        self.resume(channel.closed());
    }

    /// Messages of so many bytes have been handed to the socket of a channel.
    pub fn taken(self: &Arc<Self>, channel: &Arc<ChannelFlow>, bytes: usize) {
        self.resume(channel.sent(bytes));
    }

    /// A channel may have so many messages unacknowledged, over all its consumers; 0: any number.
    pub fn set_channel_prefetch(self: &Arc<Self>, channel: &Arc<ChannelFlow>, limit: u16) {
        self.resume(channel.set_limit(u64::from(limit)));
    }

    /// A queue was declared again, or somebody has asked whether it is there.
    pub fn used(&self, queue: &Queue) {
        queue.dispatch.lock().machine.touch(now());
        self.ticker.keep(queue);
    }

    /// Policies are others: what they throw out goes at once.
    pub(super) fn put_in_force(self: &Arc<Self>, queue: &Arc<Queue>, wanted: Arc<InForce>) {
        let rules = wanted.rules(queue.auto_delete);
        queue.topic.set_bounded(wanted.understood.is_bounded());
        queue.may_refuse.store(wanted.understood.overflow != Overflow::DropHead, Ordering::Relaxed);
        self.limit_stream(queue, &wanted.understood.stream);
        *queue.in_force.write() = wanted;
        if queue.is_stream() {
            return;
        }
        let mut turn = self.turn(queue);
        let Turn { own, state, now_ms, .. } = &mut turn;
        if own.machine.rules().expires_ms != rules.expires_ms {
            own.machine.touch(*now_ms);
        }
        own.machine.set_rules(rules, state);
        own.head = None;
        turn.run();
    }

    /// A queue has gone: its consumers hear of it.
    pub(super) fn end(&self, queue: &Queue) {
        if let Some(stream) = &queue.stream {
            return self.end_stream(queue, stream);
        }
        self.vhosts.burials.go_on(queue);
        let mut own = queue.dispatch.lock();
        self.ticker.set_due(queue.id, own.due.take(), None);
        let mut consumers: Vec<_> = own.in_use.take().into_iter().flat_map(|in_use| in_use.consumers).collect();
        // As RabbitMQ does: by their tags.
        consumers.sort_by(|(_, one), (_, other)| one.tag.cmp(&other.tag));
        for (consumer, wish) in consumers {
            let gone = Gone { consumer, reason: GoneReason::QueueDeleted };
            self.reply(wish.to, Reply::Done(Box::new(gone)));
        }
    }

    /// What changed in a queue's subscription is to be written soon.
    pub(super) fn touch_queue(&self, queue: &Arc<Queue>) {
        touch(&self.ticker, queue);
    }

    /// Writes what changed in a queue's subscription, and lets go what is done. `asker` waits for it.
    pub(crate) fn write_queue(&self, queue: &Arc<Queue>, asker: Option<&Arc<Acknowledgement>>) {
        queue.dirty.store(false, Ordering::SeqCst);
        if queue.is_dropped() {
            return;
        }
        let mut state = queue.shared.lock();
        if queue.attached {
            self.write_subscription(&queue.shared, &mut state, asker);
        } else {
            let wake = || {
                let (ticker, of) = (Arc::clone(&self.ticker), Arc::downgrade(queue));
                Box::new(move || of.upgrade().iter().for_each(|queue| touch(&ticker, queue))) as Wake
            };
            self.write_subscription_and_trim(&queue.shared, &mut state, asker, wake);
        }
        state.let_rest();
    }

    /// Writes what was said of messages of `queues`, and tells `asker` when it is durable.
    pub fn flush_queues(&self, queues: &[Arc<Queue>], asker: &Arc<Acknowledgement>) {
        for queue in queues {
            self.write_queue(queue, Some(asker));
        }
        self.close_acknowledgement(asker);
    }
}

fn touch(ticker: &Ticker, queue: &Arc<Queue>) {
    if !queue.dirty.swap(true, Ordering::SeqCst) {
        ticker.touch(queue);
    }
}

fn body_bytes(record: &Record) -> u32 {
    record.value.as_ref().map_or(0, |value| u32::try_from(value.len()).unwrap_or(u32::MAX))
}

/// The log begins at `start`: what lies before is gone. Tells who is to go on.
fn trim(own: &mut Dispatch, state: &mut delivery::Subscription, start: u64) -> Vec<Waiter> {
    let lost = own.machine.trim(state, start);
    let channels = own.in_use.iter().map(|in_use| &in_use.channels);
    let flows =
        channels.flat_map(|channels| lost.iter().filter_map(|(channel, count)| Some((channels.get(channel)?, *count))));
    flows.flat_map(|(flow, count)| flow.settled(count, 0)).collect()
}

impl Turn<'_> {
    /// Follows the start of the log.
    fn trim(&mut self) {
        let start = self.queue.log().start().0;
        if start > self.state.start() {
            let woken = trim(&mut self.own, &mut self.state, start);
            self.woken.extend(woken);
        }
    }

    /// Finds out which offsets of a log that is stable to before `end` hold no message.
    fn search(&mut self, end: u64) {
        let Self { broker, queue, own, state, .. } = self;
        if !is_searched(state, queue.log(), end) {
            broker.search_queue(queue, end, &mut SearchedQueue { own, state });
        }
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn delivery(&self, given: delivery::Delivery, record: Record) -> Delivery {
        let counts = self.own.machine.rules().kind == QueueKind::Quorum;
        let returned = counts.then_some(given.before);
        let at_once = !counts && given.offset >= self.own.arrived;
        Delivery { offset: given.offset, redelivered: given.redelivered, returned, at_once, record }
    }

    /// Is the head one that was looked at, for which nobody has become free, and whose time is not over?
    fn waits(&mut self) -> bool {
        let end = self.end();
        let known = match (self.own.machine.head(&self.state, end), self.own.head) {
            (Head::Record(offset), Some((looked_at, due))) => {
                offset == looked_at && due.is_none_or(|at| at > self.wall_ms)
            }
            (Head::Nothing, _) => true,
            _ => false,
        };
        let known = known && self.own.level_times().all(|at| at > self.wall_ms);
        known && !self.own.machine.has_taker()
    }

    /// Gives out what can be given, and drops what there is no room for.
    fn give(&mut self) -> Result<TurnEnd, ()> {
        self.weigh()?;
        if self.drops_first {
            self.drop_heads()?;
        }
        while self.out.count < TURN_MESSAGES && !self.waits() {
            let Some(offset) = self.next()? else { return Ok(TurnEnd::Rest) };
            self.own.head = Some((offset, self.time_of(offset)));
            if !self.own.machine.has_taker() {
                break;
            }
            let queue = self.queue.id;
            let Self { own, state, .. } = self;
            let Dispatch { machine, in_use, .. } = &mut **own;
            let InUse { window, channels, .. } = &mut **in_use.get_or_insert_default();
            let Seen::Record(record) = window.see(offset) else { return Err(()) };
            let size = body_bytes(record);
            let mut admit = |channel, no_ack| Dispatch::admit(channels, queue, channel, no_ack);
            let Some(given) = machine.dispatch(state, offset, size, &mut admit) else { break };
            let Some(record) = window.take_seen() else { return Err(()) };
            let (consumer, channel) = (given.consumer, given.channel);
            let message = self.delivery(given, record);
            if let Some(flow) = self.own.in_use().channels.get(&channel) {
                flow.sends(message.bytes(), message.redelivered);
            }
            self.own.tally().redelivered += u64::from(message.redelivered);
            self.out.push(channel, consumer, message);
        }
        if self.out.count >= TURN_MESSAGES {
            return Ok(TurnEnd::More);
        }
        self.drop_heads()?;
        self.look_at_head()?;
        Ok(TurnEnd::Rest)
    }

    fn drop_heads(&mut self) -> Result<(), ()> {
        while self.own.machine.over_limit(&self.state, self.end()) {
            let Some(offset) = self.next()? else { break };
            // What has gone because its time was over may have been enough.
            if !self.own.machine.over_limit(&self.state, self.end()) {
                break;
            }
            if !self.may_throw_out() {
                return Err(());
            }
            let Self { own, state, dead, .. } = self;
            let Seen::Record(record) = own.in_use().window.see(offset) else { return Err(()) };
            let size = body_bytes(record);
            own.machine.drop_head(state, offset, size, dead);
        }
        Ok(())
    }

    /// Looks when the time of the head is over, if that is another one than before.
    fn look_at_head(&mut self) -> Result<(), ()> {
        let known = match self.own.machine.head(&self.state, self.end()) {
            Head::Record(offset) => self.own.head.is_some_and(|(looked_at, _)| looked_at == offset),
            Head::Nothing | Head::Unread(..) => true,
        };
        if !known && let Some(offset) = self.next()? {
            self.own.head = Some((offset, self.time_of(offset)));
        }
        Ok(())
    }

    fn set_due(&mut self, at: Option<u64>) {
        let before = std::mem::replace(&mut self.own.due, at);
        self.broker.ticker.set_due(self.queue.id, before, at);
    }

    /// When the head's time is over, or the queue's.
    fn next_due(&mut self) -> Option<u64> {
        let expires = self.own.machine.expires_at();
        let head = match self.own.machine.head(&self.state, self.end()) {
            Head::Record(offset) => {
                self.own.head.filter(|(looked_at, _)| *looked_at == offset).and_then(|(_, due)| due)
            }
            _ => None,
        };
        let steady = |at: u64| self.now_ms + at.saturating_sub(self.wall_ms).max(1);
        let heads = head.into_iter().chain(self.own.level_times());
        heads.map(steady).chain(expires).chain(self.state.next_time()).chain(self.own.look_at()).min()
    }

    /// One turn; true: the queue goes, because its last consumer has gone.
    fn run(mut self) -> bool {
        let home = self.broker.home(self.queue.id);
        self.take_back();
        let outcome = loop {
            if self.queue.is_unjudged() {
                break TurnEnd::Reads;
            }
            let seen = self.queue.log().last_stable().0;
            self.trim();
            self.search(seen);
            self.end = self.next_stop(seen);
            let outcome = self.give().unwrap_or_else(|()| self.interrupted());
            self.drops_first = false;
            if matches!(outcome, TurnEnd::Rest) {
                self.own.arrived = self.own.arrived.max(self.end);
                if self.end < seen {
                    continue;
                }
            }
            // Watch first, then look once more: something may have come in between.
            if let Some(home) = home {
                self.queue.log().watch(home);
                self.queue.shared.watch(home);
                if self.queue.attached {
                    self.queue.log().watch_removals(home);
                }
            }
            let is_same = self.queue.log().last_stable().0 == seen && self.queue.log().start().0 <= self.state.start();
            if !matches!(outcome, TurnEnd::Rest) || is_same {
                break outcome;
            }
        };
        if let (TurnEnd::More, Some(home)) = (&outcome, home) {
            self.broker.mailboxes.push(home, Event::Advanced(self.queue.log().id()));
        }
        let is_empty = self.own.machine.head(&self.state, self.end()) == Head::Nothing;
        self.own.let_go(&self.broker.vhosts.windows, is_empty, self.now_ms);
        let due = match outcome {
            // Who waits for long, because nobody takes its dead messages, keeps nothing for gets.
            // Whether it is used does not depend on what can be read of it.
            TurnEnd::Reads => {
                self.own.due.into_iter().chain(self.own.look_at()).chain(self.own.machine.expires_at()).min()
            }
            TurnEnd::Deaths => Some(self.now_ms),
            TurnEnd::Rest | TurnEnd::More => self.next_due(),
        };
        self.set_due(due);
        let Self { own, state, end, .. } = &mut self;
        own.machine.note_fill(state, *end);
        // Members of a share group write what they say themselves: the log is trimmed behind it all the same.
        let changed =
            self.state.has_changes() || !self.queue.attached && self.state.start() > self.queue.log().start().0;
        if changed {
            self.broker.touch_queue(self.queue);
        }
        debug_assert_eq!(self.state.imbalance(), 0, "{:?}: each message is in one state", self.queue);
        let abandoned = self.own.machine.is_abandoned();
        // Under the lock: messages leave in the order in which they were given out.
        for deliveries in self.out.by_consumer.drain(..) {
            let consumer = self.own.in_use.as_ref().and_then(|in_use| in_use.consumers.get(&deliveries.consumer));
            if let Some(consumer) = consumer {
                let (to, no_ack, count) = (consumer.to, consumer.no_ack, deliveries.messages.len() as u64);
                let tally = self.own.tally();
                if no_ack {
                    tally.delivered_no_ack += count
                } else {
                    tally.delivered += count
                }
                self.broker.reply(to, Reply::Done(Box::new(deliveries)));
            }
        }
        let (mut dead, woken) = (std::mem::take(&mut self.dead), std::mem::take(&mut self.woken));
        if !self.own.machine.rules().dead_letters {
            // Gone already.
            dead.clear();
        }
        let (broker, queue) = (self.broker, self.queue);
        if !dead.is_empty() {
            // Likewise: they are buried in the order in which they died, however many threads give the queue its turns.
            broker.bury_of_queue(queue, dead);
        }
        drop(self);
        broker.resume(woken);
        abandoned
    }
}
