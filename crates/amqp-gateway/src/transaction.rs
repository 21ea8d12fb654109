//! What a channel in transaction mode has been told and not yet been told to carry out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp_wire::EncodedProperties;
use broker::{MessageTraits, Outcome, Queue};
use bytes::Bytes;
use delivery::ConsumerId;
use routing::QueueId;
use smallvec::{SmallVec, smallvec};

use crate::error::Failure;
use crate::message::Message;

/// Bytes that the messages of a transaction take, at most.
const BYTES_MAX: usize = 64 << 20;
/// Messages and acknowledgements of a transaction, at most.
const COUNT_MAX: usize = 1_000_000;

/// A transaction is stalled when nothing was added to it for this long …
const STALLED_AFTER: Duration = Duration::from_secs(5);
/// … or when it is older than this.
const OPEN_MAX: Duration = Duration::from_secs(60);
/// What a message takes beside its bytes: four allocations, and its part of a list that grows by doubling.
const AROUND_MESSAGE: usize = 384;
/// What a block of its body takes beside its bytes, where there are several.
const AROUND_BLOCK: usize = 128;
/// What an acknowledgement takes in such a list.
pub(crate) const OUTCOME_BYTES: usize = 2 * size_of::<HeldOutcome>();

/// A message that waits for the commit.
#[derive(Debug)]
pub(crate) struct Held {
    exchange: Bytes,
    routing_key: Bytes,
    properties: Bytes,
    traits: MessageTraits,
    body: SmallVec<[Bytes; 1]>,
    pub mandatory: bool,
}

impl Held {
    /// Copies: it may be kept for long, and would hold on to all that was read with it.
    pub fn new(message: &Message<'_>, mandatory: bool) -> Self {
        Self::with_body(message, mandatory, smallvec![message.body.concat().into()])
    }

    /// The same of a message whose body was kept in blocks while it came, but for its last piece: those are not copied again.
    pub fn of_blocks(message: &Message<'_>, mandatory: bool, blocks: &[Bytes], last: &[u8]) -> Self {
        Self::with_body(message, mandatory, blocks.iter().cloned().chain([Bytes::copy_from_slice(last)]).collect())
    }

    fn with_body(message: &Message<'_>, mandatory: bool, body: SmallVec<[Bytes; 1]>) -> Self {
        let copy = Bytes::copy_from_slice;
        let (exchange, routing_key) = (copy(message.exchange), copy(message.routing_key));
        Self {
            exchange,
            routing_key,
            properties: copy(message.properties.as_bytes()),
            traits: message.traits,
            body,
            mandatory,
        }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let body = self.body.iter().map(Bytes::len).sum::<usize>() + self.body.len().saturating_sub(1) * AROUND_BLOCK;
        AROUND_MESSAGE + self.exchange.len() + self.routing_key.len() + self.properties.len() + body
    }

    /// What one will take, about, whose properties and body have so many bytes.
    pub fn bytes_of(content: usize) -> usize {
        AROUND_MESSAGE + content
    }

    /// As it was published.
    pub fn with_message<T>(&self, take: impl FnOnce(Message<'_>) -> T) -> T {
        let properties = EncodedProperties::trusted(&self.properties);
        let body: SmallVec<[&[u8]; 4]> = self.body.iter().map(|block| &block[..]).collect();
        take(Message {
            exchange: &self.exchange,
            routing_key: &self.routing_key,
            properties,
            traits: self.traits,
            body: &body,
        })
    }
}

/// What became of a delivery, to be said at the commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldOutcome {
    pub tag: u64,
    pub consumer: ConsumerId,
    pub offset: u64,
    pub outcome: Outcome,
}

/// A commit that is under way.
#[derive(Debug)]
pub(crate) struct Commit {
    /// Those that were not routed yet.
    messages: std::vec::IntoIter<Held>,
    /// What is still to be said of deliveries, and of those of which queues it was said.
    outcomes: std::vec::IntoIter<HeldOutcome>,
    pub queues: BTreeMap<QueueId, Arc<Queue>>,
    /// Messages of the connection that were not kept before it.
    pub lost_before: u64,
    /// There were messages.
    pub publishes: bool,
}

/// A transaction.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub messages: Vec<Held>,
    outcomes: Vec<HeldOutcome>,
    /// A queue has refused something of a commit that is under way.
    pub refused: bool,
    commit: Option<Commit>,
    bytes: usize,
    /// When something was added first, and last.
    added: Option<(Instant, Instant)>,
}

impl Transaction {
    /// Holds a message.
    ///
    /// # Errors
    /// *406*: there are too many, or they are too large together.
    pub fn hold(&mut self, message: Held, now: Instant) -> Result<(), Failure> {
        self.note_added(now);
        self.bytes += message.bytes();
        self.messages.push(message);
        self.check()
    }

    /// The commit begins, or goes on.
    pub fn commit(&mut self, lost_before: u64) {
        let publishes = !self.messages.is_empty();
        self.commit.get_or_insert_with(|| Commit {
            messages: std::mem::take(&mut self.messages).into_iter(),
            outcomes: std::mem::take(&mut self.outcomes).into_iter(),
            queues: BTreeMap::new(),
            lost_before,
            publishes,
        });
    }

    /// Has a commit begun that has not ended?
    pub fn is_committing(&self) -> bool {
        self.commit.is_some()
    }

    /// The next message to be routed, and the memory that it no longer takes.
    pub fn next_message(&mut self) -> Option<(Held, usize)> {
        let held = self.commit.as_mut()?.messages.next()?;
        let bytes = held.bytes();
        self.bytes = self.bytes.saturating_sub(bytes);
        Some((held, bytes))
    }

    /// The next one of what is said of deliveries, once all messages were routed, and where the queue is noted.
    pub fn next_outcome(&mut self) -> Option<(HeldOutcome, &mut BTreeMap<QueueId, Arc<Queue>>)> {
        let commit = self.commit.as_mut()?;
        commit.outcomes.next().map(|outcome| (outcome, &mut commit.queues))
    }

    /// All messages were routed, and all was said. Another transaction begins.
    pub fn end(&mut self) -> Option<Commit> {
        let ended = std::mem::take(self);
        self.refused = ended.refused;
        ended.commit
    }

    /// What was held of deliveries and not said.
    pub fn unsaid(&self) -> impl Iterator<Item = &HeldOutcome> {
        self.commit.iter().flat_map(|commit| commit.outcomes.as_slice()).chain(&self.outcomes)
    }

    /// Holds an outcome.
    ///
    /// # Errors
    /// *406*: there are too many.
    pub fn hold_outcome(&mut self, outcome: HeldOutcome, now: Instant) -> Result<(), Failure> {
        self.note_added(now);
        self.outcomes.push(outcome);
        self.check()
    }

    fn note_added(&mut self, now: Instant) {
        let first = self.added.map_or(now, |(first, _)| first);
        self.added = Some((first, now));
    }

    /// Does it hold something, and was nothing added lately, or is it open for long? `since`: when something could have been added, after a time.
    pub fn is_stalled(&self, now: Instant, since: impl FnOnce(Instant) -> Instant) -> bool {
        let is_over = |(first, last)| {
            now.saturating_duration_since(first) >= OPEN_MAX
                || now.saturating_duration_since(since(last)) >= STALLED_AFTER
        };
        self.memory() > 0 && self.added.is_some_and(is_over)
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        let committed = self.commit.as_ref().map_or(0, |commit| commit.outcomes.len());
        self.bytes + (committed + self.outcomes.len()) * OUTCOME_BYTES
    }

    fn check(&self) -> Result<(), Failure> {
        if self.bytes <= BYTES_MAX && self.messages.len() + self.outcomes.len() <= COUNT_MAX {
            return Ok(());
        }
        Err(Failure::precondition(format_args!(
            "a transaction holds at most {BYTES_MAX} bytes and {COUNT_MAX} messages and acknowledgements"
        )))
    }
}
