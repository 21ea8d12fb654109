//! Why a change is refused. Each variant says the reply code of AMQP that it stands for; the texts follow RabbitMQ's, without the
//! name of the virtual host, which the table does not know.

use std::fmt;

use thiserror::Error;

use crate::exchange::Kind;
use crate::name::Name;
use crate::ring::{POINTS_MAX, WEIGHT_MAX};
use crate::value::Argument;

/// A name has more than 255 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("name has more than 255 bytes")]
pub struct NameTooLong;

/// A queue with that name or that id is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the queue's name or id is in use")]
pub struct QueueTaken;

/// Why an exchange was not declared.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeclareError {
    /// 403 ACCESS_REFUSED
    #[error("operation not permitted on the default exchange")]
    DefaultExchange,
    /// 403 ACCESS_REFUSED: the name begins with `amq.`, and there is no such exchange.
    #[error("exchange name '{0}' contains reserved prefix 'amq.*'")]
    Reserved(Name),
    /// 406 PRECONDITION_FAILED: no such type of exchange.
    #[error("unknown exchange type '{0}'")]
    UnknownKind(String),
    /// 406 PRECONDITION_FAILED: there is an exchange of that name that differs.
    #[error("inequivalent arg '{}' for exchange '{name}': {difference}", difference.field())]
    Inequivalent {
        /// The exchange.
        name: Name,
        /// The first thing that differs.
        difference: Difference,
    },
    /// 406 PRECONDITION_FAILED: the argument has to be a long string.
    #[error("invalid type '{}' for arg '{argument}'", type_name(*tag))]
    ArgumentType {
        /// Its name.
        argument: &'static str,
        /// Its type, the octet of AMQP's field tables.
        tag: u8,
    },
    /// 406 PRECONDITION_FAILED: `x-delayed-message` without `x-delayed-type`, or one that is no string.
    #[error("Invalid argument, 'x-delayed-type' must be an existing exchange type")]
    DelayedKind,
    /// 406 PRECONDITION_FAILED: an exchange that delays cannot wrap another.
    #[error("Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'")]
    DelayedTwice,
    /// 406 PRECONDITION_FAILED: `hash-property` names something else.
    #[error("unsupported property: {0}")]
    HashProperty(String),
    /// 406 PRECONDITION_FAILED
    #[error("hash-header and hash-property are mutually exclusive")]
    HashTwice,
}

/// What a declaration and the exchange that exists do not agree on. Its text is the end of RabbitMQ's: `received 'fanout' but
/// current is 'direct'`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Field `type`.
    Kind {
        /// What the client asked for; with `delayed`, `x-delayed-message`.
        received: (Kind, bool),
        /// What the exchange is.
        current: (Kind, bool),
    },
    /// Field `durable`.
    Durable {
        /// What the client asked for.
        received: bool,
    },
    /// Field `auto_delete`.
    AutoDelete {
        /// What the client asked for.
        received: bool,
    },
    /// Field `internal`.
    Internal {
        /// What the client asked for.
        received: bool,
    },
    /// Argument `alternate-exchange`.
    AlternateExchange {
        /// What the client asked for.
        received: Option<Argument>,
        /// What the exchange has.
        current: Option<Argument>,
    },
}

impl Difference {
    /// The name of the field or argument.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Kind { .. } => "type",
            Self::Durable { .. } => "durable",
            Self::AutoDelete { .. } => "auto_delete",
            Self::Internal { .. } => "internal",
            Self::AlternateExchange { .. } => "alternate-exchange",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { received, current } => {
                write!(
                    f,
                    "received '{}' but current is '{}'",
                    received.0.spelling(received.1),
                    current.0.spelling(current.1)
                )
            }
            Self::Durable { received } | Self::AutoDelete { received } | Self::Internal { received } => {
                write!(f, "received '{received}' but current is '{}'", !received)
            }
            Self::AlternateExchange { received: Some(received), current: Some(current) } => {
                write!(f, "received '{}' but current is '{}'", received.value, current.value)
            }
            Self::AlternateExchange { received: Some(received), current: None } => {
                write!(
                    f,
                    "received the value '{}' of type '{}' but current is none",
                    received.value,
                    type_name(received.tag)
                )
            }
            Self::AlternateExchange { received: None, current } => {
                let current = current.as_ref().expect("one of them has it");
                write!(
                    f,
                    "received none but current is the value '{}' of type '{}'",
                    current.value,
                    type_name(current.tag)
                )
            }
        }
    }
}

/// RabbitMQ's word for a type of AMQP's field tables.
pub(crate) fn type_name(tag: u8) -> &'static str {
    match tag {
        b'S' => "longstr",
        b't' => "bool",
        b'b' => "byte",
        b'B' => "unsignedbyte",
        b's' => "short",
        b'u' => "unsignedshort",
        b'I' => "signedint",
        b'i' => "unsignedint",
        b'l' | b'L' => "long",
        b'f' => "float",
        b'd' => "double",
        b'D' => "decimal",
        b'T' => "timestamp",
        b'F' => "table",
        b'A' => "array",
        b'x' => "binary",
        _ => "void",
    }
}

/// Text as Erlang prints it.
fn as_binary(text: &str) -> String {
    if text.is_empty() { "<<>>".to_owned() } else { format!("<<{text:?}>>") }
}

/// Why an exchange was not deleted. One that is not there is no error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeleteError {
    /// 403 ACCESS_REFUSED
    #[error("operation not permitted on the default exchange")]
    DefaultExchange,
    /// 403 ACCESS_REFUSED: the name begins with `amq.`.
    #[error("deletion of system exchange '{0}' not allowed")]
    Reserved(Name),
    /// 406 PRECONDITION_FAILED: it was to be deleted only if nothing is bound to it.
    #[error("exchange '{0}' in use")]
    InUse(Name),
}

/// Why nothing was bound or unbound.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BindError {
    /// 403 ACCESS_REFUSED: source or destination is the default exchange.
    #[error("operation not permitted on the default exchange")]
    DefaultExchange,
    /// 404 NOT_FOUND; to unbind what is not there is no error.
    #[error("no exchange '{0}'")]
    NoExchange(String),
    /// 404 NOT_FOUND: no queue with that id.
    #[error("no such queue")]
    NoQueue,
    /// 501 FRAME_ERROR: a key of more than 255 bytes cannot have come through the protocol.
    #[error(transparent)]
    Key(#[from] NameTooLong),
    /// 406 PRECONDITION_FAILED: not a binding for this type of exchange.
    #[error(transparent)]
    Invalid(#[from] InvalidBinding),
}

/// What is wrong with a binding for the type of its exchange.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidBinding {
    /// A headers exchange: `x-match` has another value.
    #[error("Invalid x-match field value {}; expected all, any, all-with-x, or any-with-x", as_binary(.0))]
    Match(String),
    /// A headers exchange: `x-match` is no long string.
    #[error("Invalid x-match field type {} (value {value}); expected longstr", type_name(*tag))]
    MatchType {
        /// Its type, the octet of AMQP's field tables.
        tag: u8,
        /// Its value.
        value: String,
    },
    /// A consistent hash exchange: the key is a weight.
    #[error("The binding key must be an integer: {0:?}")]
    WeightNoInteger(String),
    /// A consistent hash exchange.
    #[error("The binding key must be greater than 0")]
    WeightTooSmall,
    /// A consistent hash exchange.
    #[error("The binding key must not exceed {WEIGHT_MAX}")]
    WeightTooLarge,
    /// A consistent hash exchange: the weights of all destinations are more than [`POINTS_MAX`].
    #[error("The weights of all bindings must not exceed {POINTS_MAX}")]
    TooManyPoints,
    /// A local random exchange: its bindings have no key.
    #[error("Non empty binding '{0}' key not permitted")]
    KeyGiven(String),
    /// A local random exchange: it leads to classic queues.
    #[error("Queue type {0} not valid for this exchange type")]
    QueueType(&'static str),
    /// A local random exchange: it leads to queues.
    #[error("Destination not found")]
    NoQueue,
}
