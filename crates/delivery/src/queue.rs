//! A queue: what it has beside its subscription, in RabbitMQ's ways. Its consumers, whose turn it is, and its
//! limits. It has no clock, no I/O and no protocol, and no state of a message: that is in the [`Subscription`], which is passed in, so
//! that another face, say a share group, works on the same one; what that one has counts as unacknowledged here, and the other
//! way round.
//!
//! The caller holds one lock around both. When something may be given out (a publish counts, something was returned, credit came):
//!
//! ```text
//! loop {
//!     queue.has_taker()                      nobody: done
//!     match queue.head(subscription, log_end)
//!         Nothing                            done
//!         Unread(first, last)                read; subscription.set_levels, or subscription.skip where there is no record
//!         Record(offset)                     read; expired: queue.expire_head, else queue.dispatch: somebody's, or done
//! }
//! ```
//!
//! Then, and after whatever makes messages ready, `queue.over_limit` and `queue.drop_head`. Memory: one entry a consumer, a channel
//! and a holder of messages; the size of each unacknowledged message where bytes are limited; nothing for a ready one.
//!
//! **Returned.** A message that is returned to a classic queue is where it was. A quorum queue serves what was returned first, in the order
//! in which it was returned.
//!
//! **Time-outs.** What a consumer keeps for longer than it may is taken back, as if it had been returned with *nack*, and it is served no longer
//! until it has settled all of that, too late. What comes back may have to wait before it is given out again ([`QueueRules::retry`]).
//!
//! Tested in `tests/it/queue.rs` against RabbitMQ's answers, and in `tests/it/queue_model.rs` against one state a message.

mod consumers;
mod crowd;
mod intake;
mod rules;
mod time_outs;
mod weights;

pub use consumers::{ChannelId, Consume, ConsumerStatus, InExclusiveUse};
pub use intake::Line;
pub use rules::{Overflow, QueueRules, look_ahead_max};
pub use time_outs::TakenBack;

use std::sync::Arc;

use consumers::Consumers;
use crowd::Crowd;
use weights::Weights;

use crate::{ConsumerId, Dead, DeadReason, Subscription, Tries, Verdict};

/// Where RabbitMQ's kinds of queues differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// No limit of deliveries; a single active consumer stays until it goes.
    Classic,
    /// A limit of deliveries; a single active consumer gives way to one of a higher priority.
    Quorum,
    /// Read without being emptied: its machine has nothing to do.
    Stream,
}

/// What is to be done for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// There is none.
    Nothing,
    /// These, both included, are to be read for their levels.
    Unread(u64, u64),
    /// This one is next.
    Record(u64),
}

/// A message that somebody is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Who gets it.
    pub consumer: ConsumerId,
    /// The channel of that one.
    pub channel: ChannelId,
    /// Nothing will be said of it.
    pub no_ack: bool,
    /// Which one.
    pub offset: u64,
    /// How often it was delivered before.
    pub before: Tries,
    /// It may have been delivered before.
    pub redelivered: bool,
}

/// Why a queue is not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteRefused {
    /// There are ready messages.
    #[error("the queue is not empty")]
    NotEmpty,
    /// There are consumers.
    #[error("the queue is in use")]
    InUse,
}

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct Queue {
    rules: Arc<QueueRules>,
    consumers: Crowd,
    weights: Weights,
    /// A quorum queue that was too full, and has not enough room yet.
    refusing: bool,
    had_consumers: bool,
    /// Since when nobody uses it, in ms; while there are consumers it says when the first came.
    used_ms: u64,
    /// When it is, for time-outs.
    now_ms: u64,
}

/// In which order messages are given out.
fn order(subscription: &mut Subscription, rules: &QueueRules) {
    // Before there are levels, which it would make forgotten.
    subscription.set_returned_first(rules.kind == QueueKind::Quorum);
    subscription.set_levelled(rules.priority_max.is_some());
}

impl Queue {
    /// A queue without consumers. Queues of the same rules may share them.
    pub fn new(
        rules: impl Into<Arc<QueueRules>>,
        single_active: bool,
        subscription: &mut Subscription,
        now_ms: u64,
    ) -> Self {
        let rules = rules.into();
        order(subscription, &rules);
        Self {
            consumers: Crowd::new(rules.kind, single_active),
            weights: Weights::new(rules.bytes_max.is_some(), subscription),
            refusing: false,
            had_consumers: false,
            used_ms: now_ms,
            now_ms,
            rules,
        }
    }

    /// Its rules.
    pub fn rules(&self) -> &QueueRules {
        &self.rules
    }

    /// The rules are others from now on.
    pub fn set_rules(&mut self, rules: impl Into<Arc<QueueRules>>, subscription: &mut Subscription) {
        let rules = rules.into();
        order(subscription, &rules);
        if rules.bytes_max.is_some() != self.rules.bytes_max.is_some() {
            self.weights = Weights::new(rules.bytes_max.is_some(), subscription);
        }
        self.rules = rules;
    }

    // Consumers.

    /// A consumer comes.
    ///
    /// # Errors
    /// When somebody is alone with the queue, or this one cannot be.
    pub fn add_consumer(&mut self, wish: &Consume) -> Result<(), InExclusiveUse> {
        self.consumers.admit(|all| all.add(wish))?;
        self.had_consumers = true;
        Ok(())
    }

    /// A consumer is served no longer; it keeps what it has. False: there was none.
    pub fn cancel(&mut self, consumer: ConsumerId, now_ms: u64) -> bool {
        let was = self.consumers.change(|all| all.cancel(consumer));
        if was {
            self.used_ms = now_ms;
        }
        was
    }

    /// A channel ends: its consumers go, and what they and it have goes back, by deliveries that failed: first `had`, which are who has it and
    /// offsets, both included, in their order. Tells who they were.
    pub fn remove_channel(
        &mut self,
        subscription: &mut Subscription,
        channel: ChannelId,
        had: &[(ConsumerId, u64, u64)],
        now_ms: u64,
        dead: &mut Vec<Dead>,
    ) -> Vec<ConsumerId> {
        let before = self.consumers.count();
        // What each of them has yet.
        let (members, mut holders) = self.consumers.change(|all| all.remove_channel(channel));
        for (holder, first, last) in had {
            if let Some(left) = holders.get_mut(holder) {
                *left = left.saturating_sub(self.judge(
                    subscription,
                    *holder,
                    *first,
                    *last,
                    Verdict::Release,
                    now_ms,
                    dead,
                ));
            }
        }
        // To look for the rest takes as long as all that the queue has in flight, of all consumers: mostly there is none.
        for (holder, _) in holders.into_iter().filter(|(_, left)| *left > 0) {
            self.judge(subscription, holder, 0, u64::MAX, Verdict::Release, now_ms, dead);
        }
        if self.consumers.count() < before {
            self.used_ms = now_ms;
        }
        members.into_iter().collect()
    }

    /// A channel takes nothing until [`Queue::resume_channel`].
    pub fn suspend_channel(&mut self, channel: ChannelId) {
        self.consumers.change(|all| all.suspend(channel));
    }

    /// A channel takes something again, after it was suspended or has refused; true: there was something to resume.
    pub fn resume_channel(&mut self, channel: ChannelId) -> bool {
        self.consumers.change(|all| all.resume(channel))
    }

    /// How many there are.
    pub fn consumers(&self) -> usize {
        self.consumers.count()
    }

    /// All, with their channels, in no order.
    pub fn iter_consumers(&self) -> impl Iterator<Item = (ConsumerId, ChannelId)> + '_ {
        self.consumers.get().into_iter().flat_map(Consumers::iter)
    }

    /// What a consumer is doing; `None`: it is none.
    pub fn consumer_status(&self, consumer: ConsumerId) -> Option<ConsumerStatus> {
        self.consumers.get()?.status(consumer)
    }

    /// What one has that is not acknowledged.
    pub fn unacknowledged_of(&self, holder: ConsumerId) -> u64 {
        self.consumers.get().map_or(0, |all| all.unacknowledged(holder))
    }

    /// The single active consumer.
    pub fn active(&self) -> Option<ConsumerId> {
        self.consumers.get()?.active()
    }

    // Deliveries.

    /// Is there a consumer that has credit, as far as the queue knows?
    pub fn has_taker(&mut self) -> bool {
        self.consumers.get_mut().is_some_and(Consumers::has_taker)
    }

    /// What is next, of a log that ends at `log_end`.
    pub fn head(&self, subscription: &Subscription, log_end: u64) -> Head {
        if let Some((first, last)) = subscription.unlevelled(log_end, &self.rules.subscription()) {
            return Head::Unread(first, last);
        }
        subscription.head(log_end).map_or(Head::Nothing, Head::Record)
    }

    /// Gives the head, which has a body of `size` bytes, to whose turn it is. `admit` says whether a channel takes one more record
    /// (and whether without acknowledgement), and counts it: for a bound over all queues of a channel, or for what its connection has
    /// not sent yet. One that does not take it is asked again after [`Queue::resume_channel`]. `None`: nobody takes it, or it is not
    /// available.
    pub fn dispatch(
        &mut self,
        subscription: &mut Subscription,
        offset: u64,
        size: u32,
        admit: &mut dyn FnMut(ChannelId, bool) -> bool,
    ) -> Option<Delivery> {
        let all = self.consumers.get_mut()?;
        let taker = all.next(admit)?;
        let time_out = all.time_out(taker.id);
        let delivery = self.give(subscription, offset, size, taker.id, taker.channel, (taker.no_ack, time_out))?;
        self.consumers.change(|all| all.served(taker.id));
        Some(delivery)
    }

    /// Gives the head to a channel that asks for it. `holder`: the number under which the channel has what it asked for, one that
    /// no consumer has; `time_out_ms`: how long it may keep it.
    #[expect(clippy::too_many_arguments, reason = "what is given, and to whom")]
    pub fn get(
        &mut self,
        subscription: &mut Subscription,
        offset: u64,
        size: u32,
        channel: ChannelId,
        holder: ConsumerId,
        no_ack: bool,
        time_out_ms: Option<u64>,
    ) -> Option<Delivery> {
        let delivery = self.give(subscription, offset, size, holder, channel, (no_ack, time_out_ms))?;
        if !no_ack {
            self.consumers.admit(|all| all.got(channel, holder));
        }
        Some(delivery)
    }

    #[expect(clippy::too_many_arguments, reason = "what is given, and to whom")]
    fn give(
        &mut self,
        subscription: &mut Subscription,
        offset: u64,
        size: u32,
        consumer: ConsumerId,
        channel: ChannelId,
        (no_ack, time_out_ms): (bool, Option<u64>),
    ) -> Option<Delivery> {
        self.weights.check(subscription);
        let before = if no_ack {
            subscription.give_away(offset)
        } else {
            subscription.give(consumer, offset, self.deadline(time_out_ms))
        }?;
        self.weights.given(offset, size, !no_ack);
        self.weights.note(subscription);
        Some(Delivery {
            consumer,
            channel,
            no_ack,
            offset,
            before,
            redelivered: subscription.redelivered(offset, before),
        })
    }

    /// A consumer, or who got it, says what is to become of what it has in `first..=last`: `Accept` (acknowledged), `Return`
    /// (returned with *nack*: the limit does not count it), `Release` (returned by a delivery that failed, or with *reject*: it
    /// counts), `Reject` (not to be delivered again). Returns how many messages that was; what others have, or had, is as it was.
    #[expect(clippy::too_many_arguments, reason = "a range and what is said of it")]
    pub fn settle(
        &mut self,
        subscription: &mut Subscription,
        holder: ConsumerId,
        first: u64,
        last: u64,
        verdict: Verdict,
        now_ms: u64,
        dead: &mut Vec<Dead>,
    ) -> u64 {
        let count = self.judge(subscription, holder, first, last, verdict, now_ms, dead);
        if verdict != Verdict::Renew {
            self.consumers.change(|all| {
                all.settled(holder, count);
                all.settled_late(holder, first, last);
            });
        }
        count
    }

    #[expect(clippy::too_many_arguments, reason = "a range and what is said of it")]
    fn judge(
        &mut self,
        subscription: &mut Subscription,
        holder: ConsumerId,
        first: u64,
        last: u64,
        verdict: Verdict,
        now_ms: u64,
        dead: &mut Vec<Dead>,
    ) -> u64 {
        self.weights.check(subscription);
        let held = self.weights.held_runs(subscription, holder, first, last);
        let count = subscription.judge(holder, first, last, verdict, now_ms, &self.rules.subscription(), dead);
        self.weights.settled(subscription, &held);
        self.weights.note(subscription);
        count
    }

    /// The log begins at `to`: what lies before is gone, whoever has it. Tells what that took from each channel, in messages: their holders have
    /// as much credit again.
    pub fn trim(&mut self, subscription: &mut Subscription, to: u64) -> Vec<(ChannelId, u64)> {
        if to <= subscription.start() {
            return Vec::new();
        }
        let had_some = subscription.unacknowledged() > 0;
        // The weights see by the turnover that what is ready is to be weighed again.
        subscription.trim(to);
        if had_some { self.recount(subscription) } else { Vec::new() }
    }

    /// Counts anew what each holder has, after somebody has taken messages away; tells what each channel has lost.
    pub fn recount(&mut self, subscription: &Subscription) -> Vec<(ChannelId, u64)> {
        let held =
            |holder| subscription.held(holder, 0, u64::MAX).iter().map(|(first, last)| last - first + 1).sum::<u64>();
        self.consumers.change(|all| all.recount(held))
    }

    // Limits.

    /// Is something to be dropped from the head? Asked when whatever can be given out has been.
    pub fn over_limit(&self, subscription: &Subscription, log_end: u64) -> bool {
        self.rules.overflow == Overflow::DropHead
            && self.exceeds(
                subscription.ready_for_certain(log_end) + subscription.delayed(),
                self.weights.ready(subscription),
            )
    }

    /// Is something to be dropped, or is it not known yet, because what has come was not weighed?
    pub fn may_be_over_limit(&self, subscription: &Subscription, log_end: u64) -> bool {
        self.over_limit(subscription, log_end)
            || self.rules.overflow == Overflow::DropHead && self.unweighed(subscription, log_end).is_some()
    }

    /// There is no room for the head, which has a body of `size` bytes. False: it is not available.
    pub fn drop_head(&mut self, subscription: &mut Subscription, offset: u64, size: u32, dead: &mut Vec<Dead>) -> bool {
        self.remove(subscription, offset, size, DeadReason::MaxLength, dead)
    }

    /// The time of the head is over (see [`QueueRules::due`]). False: it is not available.
    pub fn expire_head(
        &mut self,
        subscription: &mut Subscription,
        offset: u64,
        size: u32,
        dead: &mut Vec<Dead>,
    ) -> bool {
        self.remove(subscription, offset, size, DeadReason::Expired, dead)
    }

    fn remove(
        &mut self,
        subscription: &mut Subscription,
        offset: u64,
        size: u32,
        reason: DeadReason,
        dead: &mut Vec<Dead>,
    ) -> bool {
        self.weights.check(subscription);
        let removed = subscription.drop_available(offset, offset, reason, &self.rules.subscription(), dead) > 0;
        if removed {
            self.weights.given(offset, size, false);
        }
        self.weights.note(subscription);
        removed
    }

    /// There are no messages in `first..=last`.
    pub fn skip(&mut self, subscription: &mut Subscription, first: u64, last: u64) {
        self.weights.check(subscription);
        subscription.skip(first, last);
        self.weights.note(subscription);
    }

    /// There are no messages in `first..=last`, wherever that lies.
    pub fn note_gap(&mut self, subscription: &mut Subscription, first: u64, last: u64) {
        self.weights.check(subscription);
        subscription.note_gap(first, last);
        self.weights.note(subscription);
    }

    /// Messages that were weighed may be gone from the log: all are weighed again.
    pub fn forget_weights(&mut self, subscription: &Subscription) {
        self.weights = Weights::new(self.rules.bytes_max.is_some(), subscription);
    }

    /// All that is ready is gone; returns how many messages that were.
    pub fn purge(&mut self, subscription: &mut Subscription, log_end: u64) -> u64 {
        self.weights.check(subscription);
        // What waits for a target of dead letters takes the room of ready messages, and goes as they do. So does what nobody takes for the
        // moment, such as a full disk: where all that fills it is dead, this is how it ends.
        let waiting = subscription.purge_dying(self.rules.letters_wait);
        let purged = subscription.purge(log_end) + waiting;
        self.weights.purged();
        self.weights.note(subscription);
        purged
    }

    /// The first message whose size has to be told with [`Queue::weigh`] before the bytes of all that is ready are known; of a log that
    /// ends at `log_end`. `None`: they are, or nobody wants to know.
    pub fn unweighed(&self, subscription: &Subscription, log_end: u64) -> Option<u64> {
        self.weights.unweighed(subscription, log_end)
    }

    /// The next message of the log has a body of `size` bytes: one that was appended, or one that is read again.
    pub fn weigh(&mut self, subscription: &Subscription, offset: u64, size: u32) {
        self.weights.weigh(subscription, offset, size);
    }

    /// There is no record more to be weighed before `until`.
    pub fn weigh_nothing(&mut self, subscription: &Subscription, until: u64) {
        self.weights.weigh_nothing(subscription, until);
    }

    /// Bytes of the bodies of what is ready, as far as it was weighed.
    pub fn ready_bytes(&self, subscription: &Subscription) -> u64 {
        self.weights.ready(subscription)
    }

    // Its life.

    /// Somebody has declared it again, or asked for a message.
    pub fn touch(&mut self, now_ms: u64) {
        self.used_ms = now_ms;
    }

    /// When it is to be deleted because nobody uses it; `None`: never, as things stand.
    pub fn expires_at(&self) -> Option<u64> {
        self.rules.expires_ms.filter(|_| self.consumers.count() == 0).map(|ms| self.used_ms.saturating_add(ms))
    }

    /// Is it to be deleted because its last consumer has gone?
    pub fn is_abandoned(&self) -> bool {
        self.rules.auto_delete && self.had_consumers && self.consumers.count() == 0
    }

    /// May it be deleted?
    ///
    /// # Errors
    /// When it has ready messages or consumers and may not have them. What is unacknowledged keeps nobody from deleting it.
    pub fn check_delete(
        &self,
        subscription: &Subscription,
        log_end: u64,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<(), DeleteRefused> {
        if if_empty && subscription.ready(log_end) > 0 {
            return Err(DeleteRefused::NotEmpty);
        }
        if if_unused && self.consumers.count() > 0 {
            return Err(DeleteRefused::InUse);
        }
        Ok(())
    }
}
