//! What a queue was declared with, as numbers.

use super::QueueKind;
use crate::{NO_LOCK, Retry, Rules};

/// The priority of a message without one, in a quorum queue.
const QUORUM_PRIORITY: u8 = 4;
/// The highest priority of a quorum queue.
const QUORUM_PRIORITY_MAX: u8 = 31;

/// What happens when a queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// What is at the head is dropped.
    #[default]
    DropHead,
    /// What is published is refused.
    RejectPublish,
    /// What is published is refused, and goes to the dead letters.
    RejectPublishDeadLetter,
}

/// The rules of a queue; they may change in between.
#[derive(Clone, Copy, Debug)]
pub struct QueueRules {
    /// In whose way it works where the two differ.
    pub kind: QueueKind,
    /// Messages have levels of priority: the highest of them. A quorum queue has 31 at most. `None`: the log's order.
    pub priority_max: Option<u8>,
    /// Ready messages.
    pub length_max: Option<u64>,
    /// Bytes of the bodies of ready messages.
    pub bytes_max: Option<u64>,
    /// What happens at either.
    pub overflow: Overflow,
    /// How long a message may wait, in ms.
    pub ttl_ms: Option<u64>,
    /// How long the queue may be unused, in ms.
    pub expires_ms: Option<u64>,
    /// How often a message may be returned by a delivery that failed; `None`: any number of times, as are numbers above 65,534.
    pub delivery_limit: Option<u32>,
    /// Dead messages are held until their copy is durable, instead of being gone at once.
    pub dead_letters: bool,
    /// Dead messages whose copy has not come about yet take the room of ready ones.
    pub letters_wait: bool,
    /// What comes back waits before it is given out again.
    pub retry: Option<Retry>,
    /// The queue goes with its last consumer.
    pub auto_delete: bool,
    /// How many ready messages are read ahead for their priority: beyond it the order is that of the log. Where priorities change from
    /// message to message one costs as many bits as there are levels, at most 32 bytes: [`look_ahead_max`] keeps that within 64 MiB.
    pub look_ahead_max: u64,
}

/// Ready messages of a queue with levels up to this one of which the order by priority is kept: what takes at most 64 MiB.
pub fn look_ahead_max(priority_max: Option<u8>) -> u64 {
    const BITS: u64 = 64 << 23;
    BITS / (u64::from(priority_max.unwrap_or(0)) + 1).max(16)
}

impl QueueRules {
    /// A queue that was declared without arguments.
    pub fn new(kind: QueueKind) -> Self {
        Self {
            kind,
            priority_max: None,
            length_max: None,
            bytes_max: None,
            overflow: Overflow::DropHead,
            ttl_ms: None,
            expires_ms: None,
            delivery_limit: (kind == QueueKind::Quorum).then_some(20),
            dead_letters: false,
            letters_wait: false,
            retry: None,
            auto_delete: false,
            look_ahead_max: look_ahead_max(None),
        }
    }

    /// Does the oldest go when there are too many?
    pub fn drops_head(&self) -> bool {
        self.overflow == Overflow::DropHead && (self.length_max.is_some() || self.bytes_max.is_some())
    }

    /// The level of a message that has this priority, or none.
    pub fn level(&self, priority: Option<u8>) -> u8 {
        let Some(max) = self.priority_max else { return 0 };
        match self.kind {
            QueueKind::Classic | QueueKind::Stream => priority.unwrap_or(0).min(max),
            QueueKind::Quorum => priority.unwrap_or(QUORUM_PRIORITY).min(max.min(QUORUM_PRIORITY_MAX)),
        }
    }

    /// When a message expires that was published at `published_ms`; `None`: never.
    pub fn due(&self, published_ms: u64, message_ttl_ms: Option<u64>) -> Option<u64> {
        let ttl = self.ttl_ms.into_iter().chain(message_ttl_ms).min()?;
        Some(published_ms.saturating_add(ttl))
    }

    /// As rules of its subscription.
    pub fn subscription(&self) -> Rules {
        Rules {
            deliveries_max: self.delivery_limit.and_then(|limit| u16::try_from(limit.saturating_add(1)).ok()),
            unfinished_max: if self.priority_max.is_some() { self.look_ahead_max } else { u64::MAX },
            lock: NO_LOCK,
            dead_letters: self.dead_letters,
            retry: self.retry,
        }
    }
}
