//! Why a channel or a connection is closed: code, text and method, as RabbitMQ 4.3 words them, and which reasons of the broker and
//! the routing table become which code.
//!
//! | reason | code | closes |
//! |---|---|---|
//! | frames that cannot be taken apart | 501, 502, 505, 540: `DecodeError::reply_code` | connection |
//! | method for the broker's side only | 503 | connection |
//! | channel not open, or open already | 504 | connection |
//! | not found | 404 | channel |
//! | another connection's | 405 | channel |
//! | exclusive use, reserved names, the default exchange | 403 | channel |
//! | other arguments than what exists, or invalid ones | 406 | channel |
//! | no memory for what is not finished | 311 | channel |
//! | journal without space | 506 | connection |
//! | journal failed | 541 | connection |

use amqp_wire::{DecodeError, MethodId, ReplyCode, short};
use broker::append::AppendError;
use broker::{ConsumeError, ExchangeError, QueueError};
use routing::{BindError, DeclareError, DeleteError};

/// Why a connection is to be closed.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// No AMQP 0-9-1; the answer names what is spoken.
    #[error("another protocol than AMQP 0-9-1")]
    Foreign,
    /// The client said goodbye.
    #[error("closed by the client")]
    Client,
    /// The client was told why.
    #[error("{0}")]
    Error(String),
    /// A login was refused.
    #[error("login of {name:?} refused: {reason}")]
    Login {
        /// Who it was said to be.
        name: String,
        /// Why.
        reason: broker::Refused,
        /// The client was told so: it says that it understands that. To others the end of the connection says it.
        told: bool,
    },
    /// Frames during the handshake that make no sense.
    #[error("handshake failed: {0}")]
    Handshake(String),
    /// The client took too long to log in.
    #[error("handshake took too long")]
    HandshakeTimeout,
    /// Nothing came for two heartbeats.
    #[error("missed heartbeats from the client")]
    Heartbeat,
    /// The node stops.
    #[error("the node stops")]
    Shutdown,
}

/// What an error closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closes {
    Channel,
    Connection,
}

/// An error that the client is told of.
#[derive(Debug)]
pub(crate) struct Failure {
    pub code: ReplyCode,
    /// With the code's name before it, at most 255 bytes.
    pub text: String,
    pub closes: Closes,
    /// The method at fault, if there is one.
    pub method: Option<MethodId>,
}

impl Failure {
    /// Closes the channel.
    pub fn channel(code: ReplyCode, explanation: impl std::fmt::Display) -> Self {
        Self { code, text: code.text(&explanation.to_string()), closes: Closes::Channel, method: None }
    }

    /// Closes the connection.
    pub fn connection(code: ReplyCode, explanation: impl std::fmt::Display) -> Self {
        Self { closes: Closes::Connection, ..Self::channel(code, explanation) }
    }

    /// It was this method, unless it is known already.
    pub fn of(mut self, method: MethodId) -> Self {
        self.method.get_or_insert(method);
        self
    }

    /// A frame that may not come here.
    pub fn unexpected(explanation: &str) -> Self {
        Self::connection(ReplyCode::UnexpectedFrame, explanation)
    }

    /// A value that is refused.
    pub fn precondition(explanation: impl std::fmt::Display) -> Self {
        Self::channel(ReplyCode::PreconditionFailed, explanation)
    }

    /// No exchange of that name.
    pub fn no_exchange(name: &[u8], vhost: &str) -> Self {
        Self::channel(
            ReplyCode::NotFound,
            format_args!("no exchange '{}' in vhost '{vhost}'", String::from_utf8_lossy(name)),
        )
    }

    /// Something that only AMQP's words know.
    pub fn not_implemented(explanation: impl std::fmt::Display) -> Self {
        Self::connection(ReplyCode::NotImplemented, explanation)
    }

    /// More commands wait than the controller takes.
    pub fn busy() -> Self {
        Self::connection(ReplyCode::ResourceError, "too many administrative commands wait")
    }

    /// What is not finished takes as much memory as it may.
    pub fn no_room() -> Self {
        Self::channel(
            ReplyCode::ContentTooLarge,
            "unfinished messages and transactions take as much memory as they may, try again later",
        )
    }

    /// The close that says so on the connection.
    pub fn connection_close(&self) -> amqp_wire::connection::Close<'_> {
        let MethodId { class, method } = self.method.unwrap_or(MethodId { class: 0, method: 0 });
        let reply_text = amqp_wire::ShortStr::new(&self.text).unwrap_or(short(""));
        amqp_wire::connection::Close { reply_code: self.code.number(), reply_text, class_id: class, method_id: method }
    }

    /// The close that says so on a channel.
    pub fn channel_close(&self) -> amqp_wire::channel::Close<'_> {
        let amqp_wire::connection::Close { reply_code, reply_text, class_id, method_id } = self.connection_close();
        amqp_wire::channel::Close { reply_code, reply_text, class_id, method_id }
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::connection(error.reply_code(), error)
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        let code = match error {
            AppendError::DiskFull | AppendError::NoSegment | AppendError::TooLarge => ReplyCode::ResourceError,
            AppendError::OutOfOrderSequence
            | AppendError::InvalidProducerEpoch
            | AppendError::NotInTransaction
            | AppendError::TooManyProducers
            | AppendError::TransactionEnded
            | AppendError::LogDeleted
            | AppendError::Stopped => ReplyCode::InternalError,
        };
        Self::connection(code, error)
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::NotFound { .. } => Self::channel(ReplyCode::NotFound, error),
            QueueError::Locked { .. } => Self::channel(ReplyCode::ResourceLocked, error),
            QueueError::Reserved(_) | QueueError::Denied(_) => Self::channel(ReplyCode::AccessRefused, error),
            QueueError::Unequal(_)
            | QueueError::TopicTaken { .. }
            | QueueError::Partitioned(_)
            | QueueError::ServerNamed(_)
            | QueueError::TooMany { .. }
            | QueueError::NodeFull { .. }
            | QueueError::NoMemory { .. }
            | QueueError::Topics { .. }
            | QueueError::InUse { .. }
            | QueueError::Argument { .. }
            | QueueError::Property { .. } => Self::precondition(error),
            QueueError::NotEmpty { queue, vhost } => {
                Self::precondition(format_args!("queue '{queue}' in vhost '{vhost}' not empty"))
            }
            QueueError::Condition { .. } => Self::not_implemented(error),
            QueueError::VhostDeleted(_) => Self::connection(ReplyCode::ConnectionForced, error),
            QueueError::Append(error) => error.into(),
        }
    }
}

impl Failure {
    /// Of a command about exchanges or bindings.
    pub fn of_exchange(error: ExchangeError, vhost: &str) -> Self {
        match error {
            ExchangeError::Declare(error) => Self::of_declaration(error, vhost),
            ExchangeError::Delete(DeleteError::InUse(name)) => {
                Self::precondition(format_args!("exchange '{name}' in vhost '{vhost}' in use"))
            }
            ExchangeError::Delete(DeleteError::Reserved(name)) => {
                let text = format!("deletion of system exchange '{name}' in vhost '{vhost}' not allowed");
                Self::channel(ReplyCode::AccessRefused, text)
            }
            ExchangeError::Delete(error @ DeleteError::DefaultExchange) => {
                Self::channel(ReplyCode::AccessRefused, error)
            }
            ExchangeError::Bind(BindError::NoExchange(name)) => Self::no_exchange(name.as_bytes(), vhost),
            ExchangeError::Bind(error @ BindError::DefaultExchange) => Self::channel(ReplyCode::AccessRefused, error),
            ExchangeError::Bind(error @ BindError::NoQueue) => Self::channel(ReplyCode::NotFound, error),
            ExchangeError::Bind(error @ BindError::Key(_)) => Self::connection(ReplyCode::FrameError, error),
            ExchangeError::Bind(error @ BindError::Invalid(_)) => Self::precondition(error),
            ExchangeError::TooMany { .. } | ExchangeError::NoMemory { .. } => Self::precondition(error),
            ExchangeError::Denied(_) => Self::channel(ReplyCode::AccessRefused, error),
            ExchangeError::Queue(error) => error.into(),
            ExchangeError::Append(error) => error.into(),
        }
    }

    fn of_declaration(error: DeclareError, vhost: &str) -> Self {
        match error {
            DeclareError::DefaultExchange | DeclareError::Reserved(_) => Self::channel(ReplyCode::AccessRefused, error),
            DeclareError::Inequivalent { name, difference } => {
                let field = difference.field();
                Self::precondition(format_args!(
                    "inequivalent arg '{field}' for exchange '{name}' in vhost '{vhost}': {difference}"
                ))
            }
            DeclareError::UnknownKind(kind) => Self::precondition(format_args!("invalid exchange type '{kind}'")),
            DeclareError::ArgumentType { .. }
            | DeclareError::DelayedKind
            | DeclareError::DelayedTwice
            | DeclareError::HashProperty(_)
            | DeclareError::HashTwice => Self::precondition(error),
        }
    }

    /// Of a wish to consume.
    pub fn of_consume(error: ConsumeError, queue: &routing::Name, vhost: &str) -> Self {
        match error {
            ConsumeError::Exclusive => Self::channel(
                ReplyCode::AccessRefused,
                format_args!("queue '{queue}' in vhost '{vhost}' in exclusive use"),
            ),
            ConsumeError::Partitioned(_) => Self::precondition(error),
            ConsumeError::Gone => {
                Self::channel(ReplyCode::NotFound, format_args!("no queue '{queue}' in vhost '{vhost}'"))
            }
        }
    }
}
