//! The reply codes of connection.close, channel.close and basic.return: number, name, and what they close.
//! Source: AMQP 0-9-1, "constants"; the spelling of names is RabbitMQ's, which clients look for in reply texts.

use crate::short::SHORT_BYTES_MAX;

/// What a reply code closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Nothing: the normal end of a connection or channel.
    Success,
    /// The channel.
    Soft,
    /// The connection.
    Hard,
}

macro_rules! reply_codes {
    ($($(#[$doc:meta])* $number:literal $name:ident $text:literal $severity:ident;)*) => {
        /// Why a connection or channel is closed, or a message returned.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum ReplyCode {
            $($(#[$doc])* $name = $number,)*
        }

        impl ReplyCode {
            /// All of them, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Of a number on the wire.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The name that begins a reply text, such as `NOT_FOUND`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// What it closes.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }
        }
    };
}

reply_codes! {
    /// No error.
    200 ReplySuccess "REPLY_SUCCESS" Success;
    /// A body larger than the receiver takes.
    311 ContentTooLarge "CONTENT_TOO_LARGE" Soft;
    /// A mandatory message that no queue gets.
    312 NoRoute "NO_ROUTE" Soft;
    /// An immediate message that no consumer gets at once.
    313 NoConsumers "NO_CONSUMERS" Soft;
    /// An operator closed the connection, or the broker stops.
    320 ConnectionForced "CONNECTION_FORCED" Hard;
    /// A virtual host that does not exist.
    402 InvalidPath "INVALID_PATH" Hard;
    /// Not permitted to this user, or credentials that are wrong.
    403 AccessRefused "ACCESS_REFUSED" Soft;
    /// No such queue, exchange or binding.
    404 NotFound "NOT_FOUND" Soft;
    /// Exclusive to another connection or consumer.
    405 ResourceLocked "RESOURCE_LOCKED" Soft;
    /// A declaration that contradicts what exists, or arguments that are not valid.
    406 PreconditionFailed "PRECONDITION_FAILED" Soft;
    /// A frame that cannot be taken apart.
    501 FrameError "FRAME_ERROR" Hard;
    /// A frame with values that make no sense.
    502 SyntaxError "SYNTAX_ERROR" Hard;
    /// A method that is not for its receiver, or not now.
    503 CommandInvalid "COMMAND_INVALID" Hard;
    /// A channel that is not open, or is open already.
    504 ChannelError "CHANNEL_ERROR" Hard;
    /// A frame that does not follow the one before.
    505 UnexpectedFrame "UNEXPECTED_FRAME" Hard;
    /// Too little memory or space.
    506 ResourceError "RESOURCE_ERROR" Hard;
    /// Against a limit or a policy of the broker.
    530 NotAllowed "NOT_ALLOWED" Hard;
    /// A method, or a value of an argument, that the broker does not carry out.
    540 NotImplemented "NOT_IMPLEMENTED" Hard;
    /// A defect of the broker.
    541 InternalError "INTERNAL_ERROR" Hard;
}

impl ReplyCode {
    /// The number on the wire.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Does it close the connection?
    pub const fn is_hard(self) -> bool {
        matches!(self.severity(), Severity::Hard)
    }

    /// A reply text as RabbitMQ makes it: the name, a dash, the explanation, ending in `...` if 255 bytes are not enough.
    pub fn text(self, explanation: &str) -> String {
        let mut text = format!("{} - {explanation}", self.name());
        if text.len() > SHORT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(SHORT_BYTES_MAX - 3));
            text.push_str("...");
        }
        text
    }
}
