//! What a gateway and a queue say to each other about consumers and their messages.

use std::sync::Arc;

use delivery::ConsumerId;
use journal::ReplyTo;
use record::Record;
use routing::Name;

use super::queue::Queue;

/// Somebody who wants to be given messages.
#[derive(Clone, Debug)]
pub struct Consuming {
    /// Where [`Deliveries`] and [`Gone`] go, as [`crate::Reply::Done`].
    pub to: ReplyTo,
    /// Its channel, a number that no other channel of the node has: prefetch may be counted over all of a channel.
    pub channel: u64,
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
}

/// Why nobody consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumeError {
    /// Somebody consumes exclusively, or somebody consumes and this one wanted to be alone.
    #[error("queue is consumed exclusively")]
    Exclusive,
    /// It was deleted.
    #[error("the queue is gone")]
    Gone,
}

/// A message for a consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its place in the queue's log.
    pub offset: u64,
    /// It may have been delivered before.
    pub redelivered: bool,
    /// How often it came back, where the queue counts that.
    pub returned: Option<u32>,
    /// What was published.
    pub record: Record,
}

/// Messages for one consumer, in order.
#[derive(Debug)]
pub struct Deliveries {
    /// For whom.
    pub consumer: ConsumerId,
    /// At least one.
    pub messages: Vec<Delivery>,
    /// Bytes of their values and headers; to be told to [`crate::Broker::taken`] when they have been sent.
    pub bytes: usize,
}

/// The broker has ended a consumer.
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
}

/// What a consumer says of messages that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Ack,
    /// Somebody may try again.
    Requeue,
    /// Nobody is to try again: dead-lettered where the queue says so.
    Reject,
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

/// A consumer as those who look on see it.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// As it was asked for.
    pub wish: Consuming,
    /// Its queue.
    pub queue: Arc<Queue>,
}
