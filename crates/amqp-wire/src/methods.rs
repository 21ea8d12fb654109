//! Every method, as a table that reads like the specification's: number, name, struct, who sends it, arguments in their
//! order on the wire. Source: AMQP 0-9-1 and RabbitMQ's `amqp-rabbitmq-0.9.1.json`; what is RabbitMQ's own says so.
//!
//! Arguments in round brackets, before or after the others, are reserved (RabbitMQ calls the first one `ticket`): read
//! with any value and forgotten, written as zero or empty. `bool` is a bit, `&[u8]` a long string. A [`TableRef`] that
//! was decoded is well-formed.
//!
//! Decoding borrows and allocates nothing.

use crate::field::{Field, Reader, Writer};
use crate::{DecodeError, Problem, ShortBytes, ShortStr, TableRef};

/// Number of a class and of a method in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MethodId {
    /// Number of the class.
    pub class: u16,
    /// Number of the method in its class.
    pub method: u16,
}

/// Who sends a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client only.
    Client,
    /// The broker only.
    Broker,
    /// Either.
    Both,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodInfo {
    /// Its numbers.
    pub id: MethodId,
    /// Class and method as in the specification, such as `queue.declare-ok`.
    pub name: &'static str,
    /// Who sends it. A broker answers what it should not get with 503 COMMAND_INVALID.
    pub sender: Sender,
    /// Whether a content header follows.
    pub content: bool,
}

/// What can be written as a method frame.
pub trait Encode {
    /// Its numbers.
    fn id(&self) -> MethodId;
    /// Appends the arguments.
    fn write_arguments(&self, writer: &mut Writer<'_>);
}

/// A method that a content header and a body follow.
pub trait Content: Encode {}

macro_rules! content {
    ($name:ident content $(<$life:lifetime>)?) => {
        impl $(<$life>)? crate::Content for $name $(<$life>)? {}
    };
    ($name:ident $(<$life:lifetime>)?) => {};
}

macro_rules! has_content {
    (content) => {
        true
    };
    () => {
        false
    };
}

macro_rules! methods {
    ($(
        $(#[$class_doc:meta])*
        $class_number:literal $class:ident $Class:ident $(<$class_life:lifetime>)? {$(
            $(#[$doc:meta])*
            $number:literal $text:literal $name:ident $(<$life:lifetime>)? $sender:ident $($content:ident)?
                $(($($before:ty),*))? {$($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)?} $(($($after:ty),*))?;
        )*}
    )*) => {
        /// A method of any class.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Method<'a> {
            $($(#[$class_doc])* $Class($class::Method $(<$class_life>)?),)*
        }

        impl<'a> Method<'a> {
            /// Of the payload of a method frame.
            ///
            /// # Errors
            /// *UnknownMethod*: 540; *Short*, *Trailing*, *Utf8*: the arguments do not fit the method, 501;
            /// *ValueShort*, *ValueType*, *Depth*: a table is malformed, 502.
            pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
                let mut reader = Reader::new(payload);
                let class = u16::read(&mut reader, "class")?;
                let method = u16::read(&mut reader, "method")?;
                let decoded = match class {
                    $($class_number => Self::$Class($class::Method::read(method, &mut reader)?),)*
                    _ => return Err(reader.fail("class", Problem::UnknownMethod { class, method })),
                };
                reader.end()?;
                Ok(decoded)
            }
        }

        impl Encode for Method<'_> {
            fn id(&self) -> MethodId {
                match self {
                    $(Self::$Class(method) => method.id(),)*
                }
            }
            fn write_arguments(&self, writer: &mut Writer<'_>) {
                match self {
                    $(Self::$Class(method) => method.write_arguments(writer),)*
                }
            }
        }

        impl MethodInfo {
            /// Every method there is, by number.
            pub const ALL: &'static [Self] = &[$($(MethodInfo {
                id: $class::$name::ID,
                name: concat!(stringify!($class), ".", $text),
                sender: Sender::$sender,
                content: has_content!($($content)?),
            },)*)*];
        }

        $($(#[$class_doc])* pub mod $class {
            #[allow(unused_imports, reason = "not every class has every type of argument")]
            use super::*;

            /// A method of this class.
            #[derive(Clone, Copy, Debug, PartialEq)]
            pub enum Method $(<$class_life>)? {
                $($(#[$doc])* $name($name $(<$life>)?),)*
            }

            impl $(<$class_life>)? Method $(<$class_life>)? {
                pub(super) fn read(method: u16, reader: &mut Reader<$($class_life)?>) -> Result<Self, DecodeError> {
                    Ok(match method {
                        $($number => Self::$name($name::read(reader)?),)*
                        _ => {
                            let problem = Problem::UnknownMethod { class: $class_number, method };
                            return Err(reader.fail("method", problem));
                        }
                    })
                }
            }

            impl $(<$class_life>)? Encode for Method $(<$class_life>)? {
                fn id(&self) -> MethodId {
                    match self {
                        $(Self::$name(_) => $name::ID,)*
                    }
                }
                fn write_arguments(&self, writer: &mut Writer<'_>) {
                    match self {
                        $(Self::$name(method) => method.write_arguments(writer),)*
                    }
                }
            }

            $(
                $(#[$doc])*
                #[derive(Clone, Copy, Debug, Default, PartialEq)]
                #[allow(missing_docs, reason = "the arguments are the specification's")]
                pub struct $name $(<$life>)? {
                    $($(#[$field_doc])* pub $field: $type,)*
                }

                impl $(<$life>)? $name $(<$life>)? {
                    /// Its numbers.
                    pub const ID: MethodId = MethodId { class: $class_number, method: $number };

                    #[allow(unused_variables, reason = "some have no arguments")]
                    fn read(reader: &mut Reader<$($life)?>) -> Result<Self, DecodeError> {
                        $($(<$before as Field<'_>>::read(reader, "reserved")?;)*)?
                        let method = Self { $($field: <$type as Field<'_>>::read(reader, stringify!($field))?),* };
                        $($(<$after as Field<'_>>::read(reader, "reserved")?;)*)?
                        Ok(method)
                    }
                }

                impl $(<$life>)? Encode for $name $(<$life>)? {
                    fn id(&self) -> MethodId {
                        Self::ID
                    }
                    #[allow(unused_variables, reason = "some have no arguments")]
                    fn write_arguments(&self, writer: &mut Writer<'_>) {
                        $($(<$before as Field<'_>>::write(&Default::default(), writer);)*)?
                        $(Field::write(&self.$field, writer);)*
                        $($(<$after as Field<'_>>::write(&Default::default(), writer);)*)?
                    }
                }

                content!($name $($content)? $(<$life>)?);
            )*
        })*
    };
}

methods! {
    /// The connection itself, on channel 0.
    10 connection Connection<'a> {
        /// The broker tells who it is and how one may log in.
        10 "start" Start<'a> Broker {
            version_major: u8, version_minor: u8, server_properties: TableRef<'a>,
            /// Names with spaces between.
            mechanisms: &'a [u8],
            /// Names with spaces between.
            locales: &'a [u8],
        };
        /// The client tells who it is and logs in.
        11 "start-ok" StartOk<'a> Client {
            client_properties: TableRef<'a>, mechanism: ShortStr<'a>, response: &'a [u8], locale: ShortStr<'a>,
        };
        /// Another round of logging in.
        20 "secure" Secure<'a> Broker { challenge: &'a [u8] };
        /// Another round of logging in.
        21 "secure-ok" SecureOk<'a> Client { response: &'a [u8] };
        /// Limits that the broker proposes; 0 for none.
        30 "tune" Tune Broker {
            channel_max: u16,
            /// Bytes of a whole frame.
            frame_max: u32,
            /// Seconds.
            heartbeat: u16,
        };
        /// Limits that hold; 0 for none.
        31 "tune-ok" TuneOk Client {
            channel_max: u16,
            /// Bytes of a whole frame.
            frame_max: u32,
            /// Seconds.
            heartbeat: u16,
        };
        /// Enters a virtual host.
        40 "open" Open<'a> Client { virtual_host: ShortStr<'a> } (ShortBytes<'_>, bool);
        /// The connection may be used.
        41 "open-ok" OpenOk Broker {} (ShortBytes<'_>);
        /// Ends the connection; numbers of the method that was at fault, or 0.
        50 "close" Close<'a> Both { reply_code: u16, reply_text: ShortStr<'a>, class_id: u16, method_id: u16 };
        /// Agreed.
        51 "close-ok" CloseOk Both {};
        /// RabbitMQ: the broker does not read what this connection publishes.
        60 "blocked" Blocked<'a> Broker { reason: ShortStr<'a> };
        /// RabbitMQ: it reads again.
        61 "unblocked" Unblocked Broker {};
        /// RabbitMQ: a new password or token before the old one ends.
        70 "update-secret" UpdateSecret<'a> Client { new_secret: &'a [u8], reason: ShortStr<'a> };
        /// RabbitMQ: taken.
        71 "update-secret-ok" UpdateSecretOk Broker {};
    }
    /// Channels of a connection.
    20 channel Channel<'a> {
        /// Opens the channel.
        10 "open" Open Client {} (ShortBytes<'_>);
        /// The channel may be used.
        11 "open-ok" OpenOk Broker {} (&[u8]);
        /// Asks the peer to stop or go on sending content.
        20 "flow" Flow Both { active: bool };
        /// Done.
        21 "flow-ok" FlowOk Both { active: bool };
        /// Ends the channel; numbers of the method that was at fault, or 0.
        40 "close" Close<'a> Both { reply_code: u16, reply_text: ShortStr<'a>, class_id: u16, method_id: u16 };
        /// Agreed.
        41 "close-ok" CloseOk Both {};
    }
    /// Tickets of AMQP 0-8, which old clients ask for.
    30 access Access<'a> {
        /// Asks for a ticket.
        10 "request" Request<'a> Client {
            realm: ShortStr<'a>, exclusive: bool, passive: bool, active: bool, write: bool, read: bool,
        };
        /// Here it is; any number does.
        11 "request-ok" RequestOk Broker { ticket: u16 };
    }
    /// Exchanges.
    40 exchange Exchange<'a> {
        /// Makes an exchange, or looks whether it is there.
        10 "declare" Declare<'a> Client (u16) {
            exchange: ShortStr<'a>,
            /// The specification's `type`.
            kind: ShortStr<'a>,
            passive: bool, durable: bool, auto_delete: bool, internal: bool, no_wait: bool,
            arguments: TableRef<'a>,
        };
        /// Done.
        11 "declare-ok" DeclareOk Broker {};
        /// Removes an exchange.
        20 "delete" Delete<'a> Client (u16) { exchange: ShortStr<'a>, if_unused: bool, no_wait: bool };
        /// Done.
        21 "delete-ok" DeleteOk Broker {};
        /// RabbitMQ: from an exchange to an exchange.
        30 "bind" Bind<'a> Client (u16) {
            destination: ShortStr<'a>, source: ShortStr<'a>, routing_key: ShortStr<'a>, no_wait: bool,
            arguments: TableRef<'a>,
        };
        /// RabbitMQ: done.
        31 "bind-ok" BindOk Broker {};
        /// RabbitMQ: the reverse.
        40 "unbind" Unbind<'a> Client (u16) {
            destination: ShortStr<'a>, source: ShortStr<'a>, routing_key: ShortStr<'a>, no_wait: bool,
            arguments: TableRef<'a>,
        };
        /// RabbitMQ: done. The number is 51, not 41.
        51 "unbind-ok" UnbindOk Broker {};
    }
    /// Queues.
    50 queue Queue<'a> {
        /// Makes a queue, or looks whether it is there.
        10 "declare" Declare<'a> Client (u16) {
            /// Empty for a name that the broker makes up.
            queue: ShortStr<'a>,
            passive: bool, durable: bool, exclusive: bool, auto_delete: bool, no_wait: bool,
            arguments: TableRef<'a>,
        };
        /// Done.
        11 "declare-ok" DeclareOk<'a> Broker { queue: ShortStr<'a>, message_count: u32, consumer_count: u32 };
        /// From an exchange to a queue.
        20 "bind" Bind<'a> Client (u16) {
            queue: ShortStr<'a>, exchange: ShortStr<'a>, routing_key: ShortStr<'a>, no_wait: bool,
            arguments: TableRef<'a>,
        };
        /// Done.
        21 "bind-ok" BindOk Broker {};
        /// Removes all messages that nobody has taken.
        30 "purge" Purge<'a> Client (u16) { queue: ShortStr<'a>, no_wait: bool };
        /// Done.
        31 "purge-ok" PurgeOk Broker { message_count: u32 };
        /// Removes a queue.
        40 "delete" Delete<'a> Client (u16) {
            queue: ShortStr<'a>, if_unused: bool, if_empty: bool, no_wait: bool,
        };
        /// Done.
        41 "delete-ok" DeleteOk Broker { message_count: u32 };
        /// The reverse of bind; always answered.
        50 "unbind" Unbind<'a> Client (u16) {
            queue: ShortStr<'a>, exchange: ShortStr<'a>, routing_key: ShortStr<'a>, arguments: TableRef<'a>,
        };
        /// Done.
        51 "unbind-ok" UnbindOk Broker {};
    }
    /// Messages.
    60 basic Basic<'a> {
        /// How much may be on the way to a consumer without being acknowledged.
        10 "qos" Qos Client {
            /// Bytes; RabbitMQ refuses all but 0.
            prefetch_size: u32,
            /// Messages, 0 for any number.
            prefetch_count: u16,
            /// For RabbitMQ: false, each new consumer of the channel; true, all of the channel together.
            global: bool,
        };
        /// Done.
        11 "qos-ok" QosOk Broker {};
        /// Begins to consume.
        20 "consume" Consume<'a> Client (u16) {
            queue: ShortStr<'a>,
            /// Empty for a name that the broker makes up.
            consumer_tag: ShortStr<'a>,
            no_local: bool, no_ack: bool, exclusive: bool, no_wait: bool,
            arguments: TableRef<'a>,
        };
        /// Done.
        21 "consume-ok" ConsumeOk<'a> Broker { consumer_tag: ShortStr<'a> };
        /// Ends a consumer; RabbitMQ sends it too, when the queue goes away.
        30 "cancel" Cancel<'a> Both { consumer_tag: ShortStr<'a>, no_wait: bool };
        /// Done.
        31 "cancel-ok" CancelOk<'a> Both { consumer_tag: ShortStr<'a> };
        /// A message for an exchange.
        40 "publish" Publish<'a> Client content (u16) {
            exchange: ShortBytes<'a>, routing_key: ShortBytes<'a>, mandatory: bool, immediate: bool,
        };
        /// A message that could not be routed comes back.
        50 "return" Return<'a> Broker content {
            reply_code: u16, reply_text: ShortBytes<'a>, exchange: ShortBytes<'a>, routing_key: ShortBytes<'a>,
        };
        /// A message for a consumer.
        60 "deliver" Deliver<'a> Broker content {
            consumer_tag: ShortBytes<'a>, delivery_tag: u64, redelivered: bool, exchange: ShortBytes<'a>,
            routing_key: ShortBytes<'a>,
        };
        /// Asks for one message.
        70 "get" Get<'a> Client (u16) { queue: ShortStr<'a>, no_ack: bool };
        /// Here it is.
        71 "get-ok" GetOk<'a> Broker content {
            delivery_tag: u64, redelivered: bool, exchange: ShortBytes<'a>, routing_key: ShortBytes<'a>,
            /// Messages that are left.
            message_count: u32,
        };
        /// There is none.
        72 "get-empty" GetEmpty Broker {} (ShortBytes<'_>);
        /// Done with a message; from the broker: it has one that was published.
        80 "ack" Ack Both {
            delivery_tag: u64,
            /// All up to this one; with tag 0, all there are.
            multiple: bool,
        };
        /// Not done with a message.
        90 "reject" Reject Client { delivery_tag: u64, requeue: bool };
        /// As `Recover`, without an answer.
        100 "recover-async" RecoverAsync Client { requeue: bool };
        /// All that is not acknowledged on this channel is delivered again.
        110 "recover" Recover Client { requeue: bool };
        /// Done.
        111 "recover-ok" RecoverOk Broker {};
        /// RabbitMQ: not done with messages; from the broker: it does not have one that was published.
        120 "nack" Nack Both {
            delivery_tag: u64,
            /// All up to this one; with tag 0, all there are.
            multiple: bool,
            requeue: bool,
        };
    }
    /// RabbitMQ: the broker acknowledges what is published.
    85 confirm Confirm {
        /// From now on, on this channel.
        10 "select" Select Client { no_wait: bool };
        /// Done.
        11 "select-ok" SelectOk Broker {};
    }
    /// Transactions of a channel.
    90 tx Tx {
        /// From now on, on this channel.
        10 "select" Select Client {};
        /// Done.
        11 "select-ok" SelectOk Broker {};
        /// All since the last commit or rollback takes effect.
        20 "commit" Commit Client {};
        /// Done.
        21 "commit-ok" CommitOk Broker {};
        /// Nothing of it does.
        30 "rollback" Rollback Client {};
        /// Done.
        31 "rollback-ok" RollbackOk Broker {};
    }
}

impl MethodId {
    /// What a method frame's payload begins with, known or not; a close tells it as what was at fault.
    pub const fn of_payload(payload: &[u8]) -> Option<Self> {
        let Some(&[a, b, c, d]) = payload.first_chunk() else { return None };
        Some(Self { class: u16::from_be_bytes([a, b]), method: u16::from_be_bytes([c, d]) })
    }

    /// Its row in the table, if there is one.
    pub fn info(self) -> Option<&'static MethodInfo> {
        let index = MethodInfo::ALL.binary_search_by_key(&self, |info| info.id).ok()?;
        Some(&MethodInfo::ALL[index])
    }
}
