//! What a gateway and a queue say to each other about consumers and their messages.

use std::sync::{Arc, Weak};

use delivery::{ChannelId, ConsumerId, Tries, Verdict};
use journal::ReplyTo;
use parking_lot::{Mutex, MutexGuard};
use record::Record;
use routing::{Arguments, Name, QueueId};

use super::look::{ChannelNotes, ChannelTally};
use super::unsettled_memory::{Reserved, UnsettledMemory};

/// Bytes of messages that may be on their way to the socket of a channel's connection, about.
const UNDER_WAY_MAX: usize = 1 << 20;

/// What the messages of a channel have in common, whatever queue they come from: how many of them it takes. Or those of a consumer within a
/// channel, where they come from several logs with one credit over all: what is counted there counts for the channel as well.
#[derive(Debug)]
pub struct ChannelFlow {
    id: ChannelId,
    /// Where its connection is told what it has not asked for.
    to: ReplyTo,
    within: Option<Arc<Self>>,
    /// Of what it has not settled; that of a consumer counts with the channel's.
    memory: Arc<UnsettledMemory>,
    me: Weak<Self>,
    state: Mutex<FlowState>,
    notes: ChannelNotes,
}

/// Somebody who was told to wait: a queue, and whom it had something for.
pub(super) type Waiter = (QueueId, ChannelId);

#[derive(Debug)]
struct FlowState {
    /// Bytes on their way to the socket.
    under_way: usize,
    /// Messages that are not acknowledged, and how many there may be; 0: any number.
    unacknowledged: u64,
    limit: u64,
    /// Those of streams, which have limits of their own.
    of_streams: u64,
    reserved: Reserved,
    /// What went through so far; not settled and the limit stand above.
    tally: ChannelTally,
    /// Those who were told to wait.
    waiting: Vec<Waiter>,
}

impl FlowState {
    fn new(limit: u64, memory: &Arc<UnsettledMemory>) -> Self {
        let (tally, waiting, reserved) = (ChannelTally::default(), Vec::new(), Reserved::none(memory));
        Self { under_way: 0, unacknowledged: 0, limit, of_streams: 0, reserved, tally, waiting }
    }

    /// Messages of which memory is taken.
    fn held(&self) -> u64 {
        self.unacknowledged + self.of_streams
    }

    fn is_open(&self, no_ack: bool) -> bool {
        self.under_way < UNDER_WAY_MAX && (no_ack || self.limit == 0 || self.unacknowledged < self.limit)
    }

    /// Those who were told to wait, now that something may have changed.
    fn wake(&mut self) -> Vec<Waiter> {
        if self.under_way <= UNDER_WAY_MAX / 2 && self.is_open(false) {
            std::mem::take(&mut self.waiting)
        } else {
            Vec::new()
        }
    }
}

impl ChannelFlow {
    pub(super) fn new(id: ChannelId, to: ReplyTo, memory: &Arc<UnsettledMemory>) -> Arc<Self> {
        let (memory, state) = (Arc::clone(memory), Mutex::new(FlowState::new(0, memory)));
        Arc::new_cyclic(|me| Self {
            id,
            to,
            within: None,
            memory,
            me: me.clone(),
            state,
            notes: ChannelNotes::default(),
        })
    }

    /// Of a consumer within a channel that may have so many messages unacknowledged; 0: any number.
    pub(super) fn within(self: &Arc<Self>, id: ChannelId, limit: u16) -> Arc<Self> {
        let (memory, state) = (Arc::clone(&self.memory), Mutex::new(FlowState::new(u64::from(limit), &self.memory)));
        let (to, within) = (self.to, Some(Arc::clone(self)));
        Arc::new_cyclic(|me| Self { id, to, within, memory, me: me.clone(), state, notes: ChannelNotes::default() })
    }

    /// Its number.
    pub fn id(&self) -> ChannelId {
        self.id
    }

    pub(super) fn to(&self) -> ReplyTo {
        self.to
    }

    /// What its gateway notes of it.
    pub fn notes(&self) -> &ChannelNotes {
        &self.notes
    }

    /// What went through it so far.
    pub fn tally(&self) -> ChannelTally {
        let state = self.state.lock();
        ChannelTally { unacknowledged: state.unacknowledged, limit: state.limit, ..state.tally }
    }

    /// Counts a message that is to be given to it, unless it takes none: then the queue waits.
    pub(super) fn admit(&self, queue: QueueId, no_ack: bool) -> bool {
        self.admit_for((queue, self.id), no_ack)
    }

    fn admit_for(&self, waiter: Waiter, no_ack: bool) -> bool {
        let mut state = self.state.lock();
        if !state.is_open(no_ack) {
            state.waiting.push(waiter);
            return false;
        }
        let admitted = match &self.within {
            Some(channel) => channel.admit_for(waiter, no_ack),
            None => no_ack || self.has_memory(&mut state),
        };
        if !admitted && self.within.is_none() {
            state.waiting.push(waiter);
        }
        if admitted && no_ack {
            state.tally.delivered_no_ack += 1;
        } else if admitted {
            state.tally.delivered += 1;
            state.unacknowledged += 1;
        }
        admitted
    }

    /// Is there memory for one more? Else it waits for others to give some back.
    fn has_memory(&self, state: &mut FlowState) -> bool {
        let held = state.held();
        if state.reserved.admits(held) {
            return true;
        }
        self.memory.wait(self.id, self.me.clone());
        // It may have been given back before that was known.
        state.reserved.admits(held)
    }

    /// May it be given a message that it asks for, and has to acknowledge?
    pub fn may_get(&self) -> bool {
        let mut state = self.state.lock();
        let held = state.held();
        state.reserved.admits(held)
    }

    /// Who is to go on, if something may have changed.
    pub(super) fn wake(&self) -> Vec<Waiter> {
        self.state.lock().wake()
    }

    /// Bytes of a stream that may go to it now; none: the stream waits.
    pub(super) fn room(&self, queue: QueueId) -> usize {
        let mut state = self.state.lock();
        let room = if self.has_memory(&mut state) { UNDER_WAY_MAX.saturating_sub(state.under_way) } else { 0 };
        if room == 0 {
            state.waiting.push((queue, self.id));
        }
        room
    }

    /// So many messages of a stream are given to it.
    pub(super) fn sends_of_stream(&self, messages: usize, bytes: usize) {
        let mut state = self.state.lock();
        state.under_way += bytes;
        state.of_streams += messages as u64;
    }

    /// So many messages of a stream are settled: who is to go on.
    pub(super) fn settled_of_stream(&self, count: u64) -> Vec<Waiter> {
        let mut state = self.state.lock();
        state.of_streams = state.of_streams.saturating_sub(count);
        self.after(state)
    }

    /// Something was settled. Gives back what it does not need.
    fn after(&self, mut state: MutexGuard<'_, FlowState>) -> Vec<Waiter> {
        let held = state.held();
        let (freed, mut woken) = (state.reserved.shrink(held), state.wake());
        drop(state);
        if freed {
            woken.extend(self.memory.wake());
        }
        woken
    }

    /// Its channel is closed: who is to go on, now that it has nothing.
    pub(super) fn closed(&self) -> Vec<Waiter> {
        let freed = self.state.lock().reserved.end();
        if freed { self.memory.wake() } else { Vec::new() }
    }

    /// Bytes count where they are sent, which is the channel.
    pub(super) fn sends(&self, bytes: usize, redelivered: bool) {
        if let Some(channel) = &self.within {
            return channel.sends(bytes, redelivered);
        }
        let mut state = self.state.lock();
        state.under_way += bytes;
        state.tally.redelivered += u64::from(redelivered);
    }

    /// Who is to go on, now that so many bytes were sent.
    pub(super) fn sent(&self, bytes: usize) -> Vec<Waiter> {
        let mut state = self.state.lock();
        state.under_way = state.under_way.saturating_sub(bytes);
        state.wake()
    }

    /// A message was given to it that it has asked for.
    pub(super) fn got(&self, no_ack: bool, redelivered: bool) {
        let mut state = self.state.lock();
        state.tally.redelivered += u64::from(redelivered);
        if no_ack {
            state.tally.got_no_ack += 1;
        } else {
            state.tally.got += 1;
            state.unacknowledged += 1;
        }
    }

    /// Who is to go on, now that so many messages are settled, and so many of them done.
    pub(super) fn settled(&self, count: u64, acknowledged: u64) -> Vec<Waiter> {
        let mut woken = {
            let mut state = self.state.lock();
            state.unacknowledged = state.unacknowledged.saturating_sub(count);
            state.tally.acknowledged += acknowledged;
            self.after(state)
        };
        woken.extend(self.within.iter().flat_map(|channel| channel.settled(count, acknowledged)));
        woken
    }

    /// Messages that it may have unacknowledged, over all its consumers; 0: any number.
    pub fn limit(&self) -> u64 {
        self.state.lock().limit
    }

    pub(super) fn set_limit(&self, limit: u64) -> Vec<Waiter> {
        let mut state = self.state.lock();
        state.limit = limit;
        state.wake()
    }
}

impl Drop for ChannelFlow {
    fn drop(&mut self) {
        self.memory.forget(self.id);
    }
}

/// Somebody who wants to be given messages.
#[derive(Clone, Debug)]
pub struct Consuming {
    /// Where [`Deliveries`] and [`Gone`] go, as [`crate::Reply::Done`].
    pub to: ReplyTo,
    /// Its channel.
    pub channel: Arc<ChannelFlow>,
    /// Its name on the channel, for those who look on.
    pub tag: Name,
    /// What is delivered is done.
    pub no_ack: bool,
    /// Nobody else may consume.
    pub exclusive: bool,
    /// Higher ones are served first.
    pub priority: i32,
    /// Messages that it may have unacknowledged; 0: any number.
    pub prefetch: u16,
    /// How long it may keep one, in ms, of a quorum queue; `None`: as long as the queue says.
    pub time_out_ms: Option<u64>,
    /// As they were said, for those who look on.
    pub arguments: Arguments,
}

/// Why nobody consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumeError {
    /// Somebody consumes exclusively, or somebody consumes and this one wanted to be alone.
    #[error("queue is in exclusive use")]
    Exclusive,
    /// It was deleted.
    #[error("the queue is gone")]
    Gone,
    /// A stream of several logs has no place of this number.
    #[error("x-stream-offset is a number, and the stream has {0} partitions")]
    Partitioned(usize),
}

/// A message for a consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its place in the queue's log.
    pub offset: u64,
    /// It may have been delivered before.
    pub redelivered: bool,
    /// How often it was delivered before, where the queue counts that.
    pub returned: Option<Tries>,
    /// A consumer waited for it when it came to a classic queue.
    pub at_once: bool,
    /// What was published.
    pub record: Record,
}

impl Delivery {
    /// Bytes of what was published.
    pub fn bytes(&self) -> usize {
        let value = self.record.value.as_ref().map_or(0, bytes::Bytes::len);
        value
            + self
                .record
                .headers
                .iter()
                .map(|(name, value)| name.len() + value.as_ref().map_or(0, bytes::Bytes::len))
                .sum::<usize>()
    }
}

/// Messages for one consumer, in order.
#[derive(Debug)]
pub struct Deliveries {
    /// For whom.
    pub consumer: ConsumerId,
    /// At least one.
    pub messages: Vec<Delivery>,
    /// Bytes of all, to be told to [`crate::Broker::taken`] when they have been sent.
    pub bytes: usize,
}

/// The broker has ended a consumer, or told it to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Whom.
    pub consumer: ConsumerId,
    /// Why.
    pub reason: GoneReason,
}

/// Why the broker ends a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoneReason {
    /// Its queue was deleted.
    QueueDeleted,
    /// It has kept something for too long: the queue has taken that back. It is a consumer still, and is served when it has settled all of that;
    /// or it has asked for single messages.
    TimedOut,
}

/// What a consumer says of messages that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Ack,
    /// Somebody may try again (*nack*): a limit of deliveries does not count this one.
    Requeue,
    /// Somebody may try again (*reject*): a limit of deliveries counts this one.
    RequeueFailed,
    /// Nobody is to try again (*nack*): dead-lettered where the queue says so.
    Reject,
    /// Nobody is to try again (*reject*): the delivery counts as one that failed.
    RejectFailed,
}

impl Outcome {
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::Ack => Verdict::Accept,
            Self::Requeue => Verdict::Return,
            Self::RequeueFailed => Verdict::Release,
            Self::Reject => Verdict::Reject,
            Self::RejectFailed => Verdict::RejectFailed,
        }
    }
}

/// What a consumer says of a run of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Who has them.
    pub consumer: ConsumerId,
    /// First offset.
    pub first: u64,
    /// Last offset, included.
    pub last: u64,
    /// What.
    pub outcome: Outcome,
}
