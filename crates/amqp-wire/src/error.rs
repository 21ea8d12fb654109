//! What is wrong with bytes of a peer, and which reply code says so.
//!
//! | code | when |
//! |---|---|
//! | 501 FRAME_ERROR | a frame cannot be taken apart, or arguments are too short, too long or not UTF-8, as in RabbitMQ |
//! | 502 SYNTAX_ERROR | a table or properties of a known length make no sense. RabbitMQ ends the connection without a word |
//! | 505 UNEXPECTED_FRAME | a content header of another class or with a weight |
//! | 540 NOT_IMPLEMENTED | no such class or method. RabbitMQ ends the connection without a word |
//!
//! A method that exists but is not for its receiver (a client that sends basic.deliver) is decoded; `MethodInfo::sender`
//! tells who may send it, and a broker answers 503 COMMAND_INVALID, as RabbitMQ does.

use crate::ReplyCode;

/// Where and why bytes make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} at byte {offset}: {problem}")]
pub struct DecodeError {
    /// Byte position in what was decoded: a frame for `parse_frame`, a payload or a table otherwise.
    pub offset: usize,
    /// The field being read.
    pub field: &'static str,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No such type of frame.
    #[error("{0} is no type of frame")]
    FrameKind(u8),
    /// A payload that is longer than was negotiated.
    #[error("{bytes} bytes are announced, {max} are allowed")]
    FrameTooLarge {
        /// Length of the payload.
        bytes: u32,
        /// The most that is allowed.
        max: u32,
    },
    /// Another byte where a frame ends.
    #[error("{0:#04x} is not the end of a frame")]
    FrameEnd(u8),
    /// Arguments that end too early.
    #[error("needs {need} bytes, {have} are left")]
    Short {
        /// Bytes needed, at least.
        need: usize,
        /// Bytes left.
        have: usize,
    },
    /// Bytes after the end of the arguments.
    #[error("{0} bytes follow the arguments")]
    Trailing(usize),
    /// A short string of a method without content that is not UTF-8.
    #[error("is not UTF-8")]
    Utf8,
    /// No such class or method.
    #[error("class {class} has no method {method} here")]
    UnknownMethod {
        /// Number of the class.
        class: u16,
        /// Number of the method.
        method: u16,
    },
    /// A content header of another class than basic.
    #[error("class {0} has no content")]
    ContentClass(u16),
    /// A content header with a weight, which is reserved.
    #[error("a weight of {0} is not zero")]
    Weight(u16),
    /// A value in a table or among properties that ends too early.
    #[error("a value needs {need} bytes, {have} are left")]
    ValueShort {
        /// Bytes needed, at least.
        need: usize,
        /// Bytes left.
        have: usize,
    },
    /// A value of a table with an unknown type.
    #[error("{0:#04x} is no type of value")]
    ValueType(u8),
    /// Tables and arrays within each other beyond `TABLE_DEPTH_MAX`.
    #[error("tables and arrays are nested too deeply")]
    Depth,
    /// Property flags beyond the fourteen of the class basic.
    #[error("{0:#06x} has flags of unknown properties")]
    PropertyFlags(u16),
    /// Bytes after the last property.
    #[error("{0} bytes follow the properties")]
    PropertiesTrailing(usize),
}

impl DecodeError {
    /// The reply code to close with; each closes the connection.
    pub const fn reply_code(&self) -> ReplyCode {
        match self.problem {
            Problem::FrameKind(_)
            | Problem::FrameTooLarge { .. }
            | Problem::FrameEnd(_)
            | Problem::Short { .. }
            | Problem::Trailing(_)
            | Problem::Utf8 => ReplyCode::FrameError,
            Problem::ValueShort { .. }
            | Problem::ValueType(_)
            | Problem::Depth
            | Problem::PropertyFlags(_)
            | Problem::PropertiesTrailing(_) => ReplyCode::SyntaxError,
            Problem::ContentClass(_) | Problem::Weight(_) => ReplyCode::UnexpectedFrame,
            Problem::UnknownMethod { .. } => ReplyCode::NotImplemented,
        }
    }
}
