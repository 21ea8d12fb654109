//! What a channel in transaction mode has been told and not yet been told to carry out.

use amqp_wire::EncodedProperties;
use broker::{MessageTraits, Outcome};
use bytes::Bytes;
use delivery::ConsumerId;

use crate::error::Failure;
use crate::message::Message;

/// Bytes that the messages of a transaction take, at most.
const BYTES_MAX: usize = 64 << 20;
/// Messages and acknowledgements of a transaction, at most.
const COUNT_MAX: usize = 1_000_000;

/// A message that waits for the commit.
#[derive(Debug)]
pub(crate) struct Held {
    exchange: Bytes,
    routing_key: Bytes,
    properties: Bytes,
    traits: MessageTraits,
    body: Bytes,
    pub mandatory: bool,
}

impl Held {
    /// Copies: it may be kept for long, and would hold on to all that was read with it.
    pub fn new(message: &Message<'_>, mandatory: bool) -> Self {
        let copy = Bytes::copy_from_slice;
        let (exchange, routing_key) = (copy(message.exchange), copy(message.routing_key));
        Self {
            exchange,
            routing_key,
            properties: copy(message.properties.as_bytes()),
            traits: message.traits,
            body: message.body.concat().into(),
            mandatory,
        }
    }

    fn bytes(&self) -> usize {
        const AROUND: usize = 256;
        self.exchange.len() + self.routing_key.len() + self.properties.len() + self.body.len() + AROUND
    }

    /// As it was published.
    pub fn with_message<T>(&self, take: impl FnOnce(Message<'_>) -> T) -> T {
        let properties = EncodedProperties::trusted(&self.properties);
        take(Message { exchange: &self.exchange, routing_key: &self.routing_key, properties, traits: self.traits, body: &[&self.body] })
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

/// A transaction.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub messages: Vec<Held>,
    pub outcomes: Vec<HeldOutcome>,
    /// A queue has refused something of a commit that is under way.
    pub refused: bool,
    bytes: usize,
}

impl Transaction {
    /// Holds a message.
    ///
    /// # Errors
    /// *406*: there are too many, or they are too large together.
    pub fn hold(&mut self, message: Held) -> Result<(), Failure> {
        self.bytes += message.bytes();
        self.messages.push(message);
        self.check()
    }

    /// Holds an outcome.
    ///
    /// # Errors
    /// *406*: there are too many.
    pub fn hold_outcome(&mut self, outcome: HeldOutcome) -> Result<(), Failure> {
        self.outcomes.push(outcome);
        self.check()
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
