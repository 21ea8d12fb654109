//! What a change took away: the caller persists and announces it.

use crate::binding::QueueId;
use crate::exchange::Kind;
use crate::name::Name;
use crate::value::Arguments;

/// Exchanges and bindings that a change took away, itself or because an exchange deletes itself with its last binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// In the order in which they went.
    pub exchanges: Vec<RemovedExchange>,
    /// In the order in which they went.
    pub bindings: Vec<RemovedBinding>,
}

/// An exchange that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedExchange {
    /// Its name.
    pub name: Name,
    /// Its type.
    pub kind: Kind,
    /// Whether it was durable.
    pub durable: bool,
}

/// A binding that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedBinding {
    /// Name of the exchange it led from.
    pub source: Name,
    /// Where it led.
    pub destination: RemovedDestination,
    /// The routing key.
    pub key: Box<[u8]>,
    /// The arguments.
    pub arguments: Arguments,
    /// Whether both ends were durable.
    pub durable: bool,
}

/// Where a binding led that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovedDestination {
    /// To a queue.
    Queue(QueueId),
    /// To an exchange.
    Exchange(Name),
}
