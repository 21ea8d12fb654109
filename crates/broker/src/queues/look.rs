//! What those see who look on: counts of a queue's and of a channel's messages since the start, and who consumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use delivery::ChannelId;
use journal::{AppendError, AppendItem};
use record::BatchHeader;
use routing::{Arguments, Name};
use types::ConnectionId;

use super::gaps::is_searched;
use super::queue::{Counts, Queue};
use crate::Broker;
use crate::connections::Count;

/// Turns that who asks for counts waits for, where a queue is over its limit: a burst of published messages.
const LIMIT_TURNS: usize = 32;

/// Messages of a queue since the broker was started, or the queue was declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueTally {
    /// Came in.
    pub published: u64,
    /// Given to consumers that acknowledge.
    pub delivered: u64,
    /// Given to consumers that do not.
    pub delivered_no_ack: u64,
    /// Taken one by one, to be acknowledged.
    pub got: u64,
    /// Taken one by one, and done with that.
    pub got_no_ack: u64,
    /// Asked for when there was none.
    pub got_empty: u64,
    /// Of those given or taken: not for the first time.
    pub redelivered: u64,
    /// Acknowledged.
    pub acknowledged: u64,
}

/// What publishes of a channel come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChannelMode {
    /// Nothing is said of them.
    Plain,
    /// They are confirmed.
    Confirm,
    /// They wait for a commit.
    Transaction,
}

/// What a channel's gateway notes of it, on the connection's shard.
#[derive(Debug, Default)]
pub struct ChannelNotes {
    mode: AtomicU8,
    /// Of consumers to come; 0: any number.
    pub prefetch: Count,
    /// Messages that were published.
    pub published: Count,
    /// Of those, confirmed.
    pub confirmed: Count,
    /// Of those, taken by no queue and given back.
    pub returned: Count,
    /// Of those, taken by no queue.
    pub dropped: Count,
}

impl ChannelNotes {
    /// Publishes are treated otherwise from now on.
    pub fn set_mode(&self, mode: ChannelMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// No queue has taken a message; it is given back or not.
    pub fn unroutable(&self, given_back: bool) {
        if given_back { self.returned.add(1) } else { self.dropped.add(1) }
    }

    /// How publishes are treated.
    pub fn mode(&self) -> ChannelMode {
        match self.mode.load(Ordering::Relaxed) {
            1 => ChannelMode::Confirm,
            2 => ChannelMode::Transaction,
            _ => ChannelMode::Plain,
        }
    }
}

/// Messages of a channel since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelTally {
    /// Given to consumers that acknowledge.
    pub delivered: u64,
    /// Given to consumers that do not.
    pub delivered_no_ack: u64,
    /// Taken one by one, to be acknowledged.
    pub got: u64,
    /// Taken one by one, and done with that.
    pub got_no_ack: u64,
    /// Of those given or taken: not for the first time.
    pub redelivered: u64,
    /// Acknowledged.
    pub acknowledged: u64,
    /// Not settled.
    pub unacknowledged: u64,
    /// It may have so many unacknowledged; 0: any number.
    pub limit: u64,
}

/// Somebody who consumes, as others see it.
#[derive(Clone, Debug)]
pub struct ConsumerLook {
    /// Its name on its channel.
    pub tag: Name,
    /// Its channel.
    pub channel: ChannelId,
    /// Its connection.
    pub connection: ConnectionId,
    /// What is delivered is done.
    pub no_ack: bool,
    /// Nobody else may consume.
    pub exclusive: bool,
    /// Messages that it may have unacknowledged; 0: any number.
    pub prefetch: u16,
    /// As it was said.
    pub arguments: Arguments,
    /// It is the one that is served, or nobody has to wait.
    pub active: bool,
    /// It waits until the active one has gone.
    pub waiting: bool,
}

impl Broker {
    /// How many messages and consumers there are, of a queue with a limit after that was applied to all that has come.
    pub fn counts(self: &Arc<Self>, queue: &Arc<Queue>) -> Counts {
        if let Some(stream) = &queue.stream {
            return self.stream_counts(queue, stream);
        }
        let own = queue.dispatch.lock();
        let (consumers, drops_head) = (own.machine.consumers(), own.machine.rules().drops_head());
        drop(own);
        let mut counts = Counts { consumers, ..Counts::default() };
        for part in queue.parts() {
            let (log, mut state) = (part.log(), part.shared.lock());
            let (start, end) = (log.start().0, log.last_stable().0);
            let is_known = start <= state.start() && is_searched(&mut state, log, end);
            drop(state);
            if !is_known {
                self.run_queue(part);
            }
            if drops_head {
                self.apply_limit(part, end);
            }
            let state = part.shared.lock();
            counts.ready += state.ready(end);
            counts.unacknowledged += state.unacknowledged();
            counts.dying += state.dying();
        }
        counts
    }

    /// Who publishes hears of it before the queue has its turn: what is too much in the log below `end` is dropped now.
    fn apply_limit(self: &Arc<Self>, queue: &Arc<Queue>, end: u64) {
        let mut before = u64::MAX;
        for _ in 0..LIMIT_TURNS {
            let (own, state) = (queue.dispatch.lock(), queue.shared.lock());
            let ready = state.ready(end);
            // A turn that has dropped nothing waits for something.
            if ready >= before || !own.machine.may_be_over_limit(&state, end) {
                return;
            }
            drop((own, state));
            before = ready;
            self.run_queue(queue);
        }
    }

    /// Appends a batch to queues and waits until it is durable. Not on a shard's thread.
    ///
    /// # Errors
    /// When a journal does not take it; other queues may have it.
    pub fn deposit(&self, queues: &[Arc<Queue>], batch: &Bytes) -> Result<(), AppendError> {
        let Ok(header) = BatchHeader::parse(batch) else { return Ok(()) };
        for queue in queues {
            let log = Arc::clone(queue.log());
            let journal = self.journal_number(log.id());
            self.commit(journal, vec![AppendItem::Batch { log, bytes: batch.clone(), header, gate: None }])?;
        }
        Ok(())
    }

    /// Messages of a queue since the start, whoever had them: consumers, and members of share groups.
    pub fn tally(&self, queue: &Queue) -> QueueTally {
        let mut sum = QueueTally::default();
        for part in std::iter::once(queue).chain(queue.others.iter().map(|part| &**part)) {
            let (own, members) = (part.dispatch.lock(), part.shared.members());
            let found = part.stream.as_ref().map_or(0, |stream| stream.with_log(part.log().id(), |log| log.found));
            sum.published += part.log().last_stable().0.saturating_sub(own.born + found);
            if let Some(tally) = own.tally.as_deref() {
                sum.delivered += tally.delivered;
                sum.delivered_no_ack += tally.delivered_no_ack;
                sum.got += tally.got;
                sum.got_no_ack += tally.got_no_ack;
                sum.got_empty += tally.got_empty;
                sum.redelivered += tally.redelivered;
                sum.acknowledged += tally.acknowledged;
            }
            if let Some(members) = members {
                sum.delivered += members.delivered.load(Ordering::Relaxed);
                sum.redelivered += members.redelivered.load(Ordering::Relaxed);
                sum.acknowledged += members.acknowledged.load(Ordering::Relaxed);
            }
        }
        sum
    }

    /// Who consumes, in the order in which they came.
    pub fn consumers_of(&self, queue: &Arc<Queue>) -> Vec<ConsumerLook> {
        let own = queue.dispatch.lock();
        let single = queue.understood().single_active;
        let mut all: Vec<_> = own.consumers().collect();
        all.sort_by_key(|(id, _)| **id);
        let look = |(id, one): (&delivery::ConsumerId, &super::Consuming)| {
            let active = !single || own.machine.active() == Some(*id);
            ConsumerLook {
                tag: one.tag.clone(),
                channel: one.channel.id(),
                connection: one.to.connection,
                no_ack: one.no_ack,
                exclusive: one.exclusive,
                prefetch: one.prefetch,
                arguments: one.arguments.clone(),
                active,
                waiting: !active,
            }
        };
        all.into_iter().map(look).collect()
    }
}

#[cfg(test)]
mod tests;
