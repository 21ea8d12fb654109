//! Exchanges and bindings of one virtual host, as a routing table: which queues get a message that is published to an
//! exchange with a routing key and headers. Pure: no I/O, no clock, no protocol codec.
//!
//! [`Table`] holds the exchanges, the bindings and the names of queues; changes take `&mut`, routing takes `&`.
//! [`Exchanges`] is a table that network threads share.
//!
//! The rules are RabbitMQ's (AMQP 0-9-1 §3.1 with its extensions: bindings between exchanges, alternate exchanges,
//! `x-consistent-hash`, `x-modulus-hash`, `x-random`, `x-local-random`, `x-delayed-message`). Queues are known by an id that the caller gives; messages come in as routing keys
//! and an implementation of [`Headers`].

mod account;
mod binding;
mod error;
mod exchange;
mod header_index;
mod key_index;
mod leaving;
mod listed;
mod matcher;
mod name;
mod one_of;
mod reach;
mod removal;
mod ring;
mod route;
mod shared;
mod table;
mod trie;
mod value;

pub use account::{Counted, DefinitionMemory};
pub use binding::{Binding, Bound, Destination, QueueId};
pub use error::{BindError, DeclareError, DeleteError, Difference, InvalidBinding, NameTooLong, QueueTaken};
pub use exchange::{Declaration, Declared, Exchange, Kind};
pub use name::{NAME_BYTES_MAX, Name};
pub use reach::Reach;
pub use removal::{Removal, RemovedBinding, RemovedDestination, RemovedExchange};
pub use ring::{POINTS_MAX, WEIGHT_MAX};
pub use route::{Keepers, STEPS_MAX, Scratch, TooFar};
pub use shared::{Changes, Exchanges, Routes};
pub use table::Table;
pub use trie::KEY_BYTES_MAX;
pub use value::{Argument, Arguments, Headers, NoHeaders, OwnedValue, Property, Value};
