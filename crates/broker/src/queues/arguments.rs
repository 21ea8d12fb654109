//! What the arguments of a queue's declaration mean, which of them each type of queue takes, and what is wrong with those it does not.

use std::collections::BTreeMap;

use delivery::{Overflow, QueueKind, QueueRules, Retry, RetryOf};
use routing::{Argument, Arguments, Name, OwnedValue};

use super::stream::StreamArguments;

/// Priorities of a queue, at most.
const PRIORITIES_MAX: i64 = 255;
/// A time to live may not be longer, in ms (as in RabbitMQ).
const TTL_MAX: i64 = 315_360_000_000;
/// Returns after which a message of a quorum queue is dead, when nothing is said.
const DELIVERY_LIMIT_DEFAULT: u32 = 20;
/// Of the name of a share group, in bytes.
const GROUP_BYTES_MAX: usize = 255;
/// Priorities of a quorum queue.
const QUORUM_PRIORITY_MAX: u8 = 31;

/// Arguments that mean something, but not here: to queues of another type, or nothing that is served. What nobody knows is passed over, as
/// in RabbitMQ.
const NOT_HERE: [&[u8]; 16] = [
    b"x-queue-mode",
    b"x-queue-version",
    b"x-delivery-limit",
    b"x-dead-letter-strategy",
    b"x-max-priority",
    b"x-quorum-initial-group-size",
    b"x-quorum-target-group-size",
    b"x-consumer-timeout",
    b"x-consumer-disconnected-timeout",
    b"x-max-age",
    b"x-stream-max-segment-size-bytes",
    b"x-stream-filter-size-bytes",
    b"x-initial-cluster-size",
    b"x-delayed-retry-type",
    b"x-delayed-retry-min",
    b"x-delayed-retry-max",
];

/// Does an argument mean something to a queue? Others are not compared when a queue is declared again, nor are those of retries, as in RabbitMQ.
pub(super) fn is_known(name: &[u8]) -> bool {
    const SERVED: [&[u8]; 13] = [
        b"x-queue-type",
        b"x-message-ttl",
        b"x-expires",
        b"x-max-length",
        b"x-max-length-bytes",
        b"x-dead-letter-exchange",
        b"x-dead-letter-routing-key",
        b"x-single-active-consumer",
        b"x-overflow",
        b"x-queue-mode",
        b"x-queue-version",
        b"x-queue-leader-locator",
        b"x-share-group",
    ];
    SERVED.contains(&name) || NOT_HERE.contains(&name) && !name.starts_with(b"x-delayed-retry-")
}

/// Which of what comes back to a quorum queue waits, and how long. As in RabbitMQ what is no such value stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RetryArguments {
    /// `None`: nothing waits.
    pub of: Option<RetryOf>,
    pub min_ms: Option<u64>,
    pub max_ms: Option<u64>,
}

impl RetryArguments {
    fn rule(self) -> Option<Retry> {
        let (of, min_ms) = (self.of?, self.min_ms?);
        Some(Retry { of, min_ms, max_ms: self.max_ms.unwrap_or(min_ms) })
    }
}

/// The word of a policy or an argument.
pub(super) fn retry_of(word: &str) -> Option<RetryOf> {
    match word {
        "all" => Some(RetryOf::All),
        "failed" => Some(RetryOf::Failed),
        "returned" => Some(RetryOf::Returned),
        _ => None,
    }
}

/// The arguments of a queue, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueArguments {
    /// `x-queue-type`
    pub kind: QueueKind,
    /// `x-message-ttl`, in ms.
    pub ttl: Option<u64>,
    /// `x-expires`, in ms without use.
    pub expires: Option<u64>,
    /// `x-max-length`, in messages that are ready.
    pub length_max: Option<u64>,
    /// `x-max-length-bytes`, of bodies that are ready.
    pub bytes_max: Option<u64>,
    /// `x-overflow`
    pub overflow: Overflow,
    /// `x-dead-letter-exchange`
    pub dead_letter_exchange: Option<Name>,
    /// `x-dead-letter-routing-key`
    pub dead_letter_key: Option<Name>,
    /// `x-max-priority`; quorum queues have 31 without it. `None`: no priorities.
    pub priority_max: Option<u8>,
    /// `x-single-active-consumer`
    pub single_active: bool,
    /// `x-dead-letter-strategy`, with `x-overflow=reject-publish`: a dead message that nobody takes stays until somebody does.
    pub letters_wait: bool,
    /// `x-delivery-limit`: after so many returns a message is dead. `None`: never.
    pub delivery_limit: Option<u32>,
    /// `x-consumer-timeout` of a quorum queue: how long a consumer may keep a message, in ms. `None`: as long as the broker's setting says.
    pub consumer_time_out: Option<u64>,
    /// `x-delayed-retry-type`, `-min` and `-max`.
    pub(super) retry: RetryArguments,
    /// `x-share-group`: the share group whose members work on it; `None`: [`QUEUE_GROUP`](super::QUEUE_GROUP).
    pub share_group: Option<String>,
    /// What only streams have.
    pub(crate) stream: StreamArguments,
}

/// An argument that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidArgument {
    /// Its name.
    pub name: String,
    /// What is wrong with it; `None`: this type of queue does not take it.
    pub reason: Option<String>,
    /// The type of queue.
    pub kind: QueueKind,
    /// It is no name of an exchange, but of this type.
    pub no_exchange: Option<&'static str>,
    /// All that is said.
    pub words: Option<&'static str>,
}

impl InvalidArgument {
    /// As RabbitMQ says it.
    pub fn text(&self, queue: &Name, vhost: &str) -> String {
        let Self { name, reason, kind, no_exchange, words } = self;
        if let Some(words) = words {
            return (*words).to_owned();
        }
        if let Some(found) = no_exchange {
            return format!("invalid type '{found}' for arg '{name}' in queue '{queue}' in vhost '{vhost}'");
        }
        match reason {
            Some(reason) => format!("invalid arg '{name}' for queue '{queue}' in vhost '{vhost}': {reason}"),
            None => format!(
                "invalid arg '{name}' for queue '{queue}' in vhost '{vhost}' of queue type rabbit_{}_queue",
                kind_name(*kind)
            ),
        }
    }
}

impl InvalidArgument {
    /// One that this type of queue does not take.
    pub(super) fn unknown(argument: &Argument, kind: QueueKind) -> Self {
        Self {
            name: String::from_utf8_lossy(&argument.name).into_owned(),
            reason: None,
            kind,
            no_exchange: None,
            words: None,
        }
    }
}

pub(super) fn refuse<T>(name: &str, reason: impl Into<String>) -> Result<T, InvalidArgument> {
    let (name, reason) = (name.to_owned(), Some(reason.into()));
    Err(InvalidArgument { name, reason, kind: QueueKind::Classic, no_exchange: None, words: None })
}

fn unacceptable<T>(argument: &Argument) -> Result<T, InvalidArgument> {
    refuse(&String::from_utf8_lossy(&argument.name), format!("{{unacceptable_type,{}}}", argument.type_name()))
}

pub(super) fn int(argument: &Argument, least: i64, most: i64) -> Result<i64, InvalidArgument> {
    let name = String::from_utf8_lossy(&argument.name);
    match argument.value {
        OwnedValue::Int(value) if value < least && value < 0 => refuse(&name, format!("{{value_negative,{value}}}")),
        OwnedValue::Int(value) if value < least => refuse(&name, format!("{{value_zero,{value}}}")),
        OwnedValue::Int(value) if value > most && most == PRIORITIES_MAX => {
            refuse(&name, format!("{{max_value_exceeded,{value}}}"))
        }
        OwnedValue::Int(value) if value > most => refuse(&name, format!("{{value_too_large,{value}}}")),
        OwnedValue::Int(value) => Ok(value),
        _ => refuse(&name, format!("\"expected integer, got {}\"", argument.type_name())),
    }
}

/// The type of a field that holds bytes which are no text.
const BINARY: u8 = b'x';

pub(super) fn text(argument: &Argument) -> Result<&str, InvalidArgument> {
    let name = String::from_utf8_lossy(&argument.name);
    match &argument.value {
        OwnedValue::Bytes(bytes) if argument.tag != BINARY => {
            std::str::from_utf8(bytes).or_else(|_| refuse(&name, "it is not UTF-8"))
        }
        _ => unacceptable(argument),
    }
}

fn short(argument: &Argument) -> Result<Name, InvalidArgument> {
    Name::new(text(argument)?.as_bytes())
        .or_else(|error| refuse(&String::from_utf8_lossy(&argument.name), error.to_string()))
}

fn flag(argument: &Argument) -> Result<bool, InvalidArgument> {
    match argument.value {
        OwnedValue::Bool(value) => Ok(value),
        _ => unacceptable(argument),
    }
}

/// There is one node: any place is this one.
pub(super) fn check_locator(argument: &Argument) -> Result<(), InvalidArgument> {
    match text(argument)? {
        "client-local" | "balanced" => Ok(()),
        _ => refuse("x-queue-leader-locator", "invalid_queue_locator_arg"),
    }
}

impl QueueArguments {
    /// From the arguments of a declaration.
    ///
    /// # Errors
    /// The first argument that this type of queue does not take.
    pub fn new(arguments: &Arguments) -> Result<Self, InvalidArgument> {
        let kind = match arguments.get(b"x-queue-type") {
            None => QueueKind::Classic,
            Some(argument) => match text(argument)? {
                // An empty one is the usual one.
                "classic" | "" => QueueKind::Classic,
                "quorum" => QueueKind::Quorum,
                "stream" => QueueKind::Stream,
                other => return refuse("x-queue-type", format!("\"unsupported queue type '{other}'\"")),
            },
        };
        let quorum = kind == QueueKind::Quorum;
        let mut rules = Self {
            kind,
            ttl: None,
            expires: None,
            length_max: None,
            bytes_max: None,
            overflow: Overflow::DropHead,
            dead_letter_exchange: None,
            dead_letter_key: None,
            priority_max: quorum.then_some(QUORUM_PRIORITY_MAX),
            single_active: false,
            letters_wait: false,
            delivery_limit: quorum.then_some(DELIVERY_LIMIT_DEFAULT),
            consumer_time_out: None,
            retry: RetryArguments::default(),
            share_group: None,
            stream: StreamArguments::default(),
        };
        for argument in arguments.fields() {
            rules.take(argument)?;
        }
        if rules.dead_letter_key.is_some() && rules.dead_letter_exchange.is_none() {
            return refuse("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined");
        }
        // Without it messages that wait could not be kept from being dropped; RabbitMQ falls back, too.
        rules.letters_wait &= rules.overflow == Overflow::RejectPublish && rules.dead_letter_exchange.is_some();
        Ok(rules)
    }

    fn take(&mut self, argument: &Argument) -> Result<(), InvalidArgument> {
        if self.kind == QueueKind::Stream {
            return self.stream.take(argument);
        }
        let (quorum, name) = (self.kind == QueueKind::Quorum, &*argument.name);
        let count = |least| int(argument, least, i64::MAX).map(|value| Some(value.unsigned_abs()));
        match name {
            b"x-queue-type" => {}
            b"x-message-ttl" => self.ttl = Some(int(argument, 0, TTL_MAX)?.unsigned_abs()),
            b"x-expires" => self.expires = Some(int(argument, 1, TTL_MAX)?.unsigned_abs()),
            b"x-max-length" => self.length_max = count(0)?,
            b"x-max-length-bytes" => self.bytes_max = count(0)?,
            b"x-dead-letter-exchange" => {
                let found = argument.type_name();
                self.dead_letter_exchange =
                    Some(short(argument).map_err(|error| InvalidArgument { no_exchange: Some(found), ..error })?);
            }
            b"x-dead-letter-routing-key" => self.dead_letter_key = Some(short(argument)?),
            b"x-single-active-consumer" => self.single_active = flag(argument)?,
            b"x-overflow" => {
                self.overflow = match text(argument)? {
                    "drop-head" => Overflow::DropHead,
                    "reject-publish" => Overflow::RejectPublish,
                    "reject-publish-dlx" if !quorum => Overflow::RejectPublishDeadLetter,
                    _ => return refuse("x-overflow", "invalid_overflow"),
                };
            }
            b"x-max-priority" if !quorum => self.priority_max = Some(int(argument, 0, PRIORITIES_MAX)? as u8),
            b"x-delivery-limit" if quorum => {
                let limit = int(argument, -1, i64::from(u32::MAX))?;
                self.delivery_limit = u32::try_from(limit).ok();
            }
            b"x-consumer-timeout" if quorum => self.consumer_time_out = count(0)?,
            b"x-delayed-retry-type" if quorum => self.retry.of = text(argument).ok().and_then(retry_of),
            b"x-delayed-retry-min" if quorum => {
                self.retry.min_ms = int(argument, 1, i64::MAX).ok().map(i64::unsigned_abs)
            }
            b"x-delayed-retry-max" if quorum => {
                self.retry.max_ms = int(argument, 1, i64::MAX).ok().map(i64::unsigned_abs)
            }
            // The node of a consumer is this one: none is ever out of reach.
            b"x-consumer-disconnected-timeout" if quorum => drop(count(0)?),
            // Of one node, in memory or not: nothing that is not so already.
            b"x-queue-mode" if !quorum => {}
            b"x-queue-version" if !quorum => match int(argument, 0, i64::MAX)? {
                2 => {}
                other => return refuse("x-queue-version", format!("\"unsupported queue version '{other}'\"")),
            },
            b"x-queue-leader-locator" => check_locator(argument)?,
            b"x-share-group" => match text(argument)? {
                "" => return refuse("x-share-group", "it is empty"),
                name if name.len() > GROUP_BYTES_MAX => {
                    return refuse("x-share-group", format!("longer than {GROUP_BYTES_MAX} bytes"));
                }
                name => self.share_group = Some(name.to_owned()),
            },
            b"x-quorum-initial-group-size" | b"x-quorum-target-group-size" if quorum => {
                int(argument, 1, i64::MAX)?;
            }
            b"x-dead-letter-strategy" if quorum => match text(argument)? {
                "at-most-once" => {}
                "at-least-once" => self.letters_wait = true,
                _ => return refuse("x-dead-letter-strategy", "invalid_dlx_strategy"),
            },
            _ if !NOT_HERE.contains(&name) => {}
            _ => return Err(InvalidArgument::unknown(argument, self.kind)),
        }
        Ok(())
    }
}

impl QueueArguments {
    /// Settings of the queue's own topic.
    pub(super) fn overrides(&self) -> BTreeMap<String, String> {
        if self.kind == QueueKind::Stream { self.stream.overrides() } else { super::admin::queue_overrides() }
    }

    /// The share group whose members work on the queue.
    pub fn group(&self) -> &str {
        self.share_group.as_deref().unwrap_or(super::QUEUE_GROUP)
    }

    /// May messages be refused?
    pub(super) fn is_bounded(&self) -> bool {
        self.overflow != Overflow::DropHead && (self.length_max.is_some() || self.bytes_max.is_some())
    }

    /// As rules of the queue's machine.
    pub(super) fn rules(&self, auto_delete: bool) -> QueueRules {
        QueueRules {
            priority_max: self.priority_max,
            length_max: self.length_max,
            bytes_max: self.bytes_max,
            overflow: self.overflow,
            ttl_ms: self.ttl,
            expires_ms: self.expires,
            delivery_limit: self.delivery_limit,
            dead_letters: self.dead_letter_exchange.is_some(),
            letters_wait: self.letters_wait,
            retry: self.retry.rule(),
            auto_delete,
            look_ahead_max: delivery::look_ahead_max(self.priority_max),
            ..QueueRules::new(self.kind)
        }
    }
}

/// As in `x-queue-type`.
pub fn kind_name(kind: QueueKind) -> &'static str {
    match kind {
        QueueKind::Classic => "classic",
        QueueKind::Quorum => "quorum",
        QueueKind::Stream => "stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&str, OwnedValue)]) -> Result<QueueArguments, InvalidArgument> {
        let field = |(name, value): &(&str, OwnedValue)| Argument {
            name: name.as_bytes().into(),
            tag: b'I',
            value: value.clone(),
        };
        QueueArguments::new(&Arguments::new(fields.iter().map(field).collect()))
    }

    fn text(value: &str) -> OwnedValue {
        OwnedValue::Bytes(value.as_bytes().into())
    }

    #[test]
    fn each_type_takes_its_own() {
        let classic = of(&[
            ("x-max-priority", OwnedValue::Int(5)),
            ("x-message-ttl", OwnedValue::Int(0)),
            ("anything", OwnedValue::Void),
        ])
        .expect("taken");
        assert_eq!((classic.priority_max, classic.ttl, classic.delivery_limit), (Some(5), Some(0), None));
        let quorum = of(&[("x-queue-type", text("quorum")), ("x-overflow", text("reject-publish"))]).expect("taken");
        assert_eq!(
            (quorum.priority_max, quorum.delivery_limit, quorum.overflow),
            (Some(31), Some(20), Overflow::RejectPublish)
        );
        let endless =
            of(&[("x-queue-type", text("quorum")), ("x-delivery-limit", OwnedValue::Int(-1))]).expect("taken");
        assert_eq!(endless.delivery_limit, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases: [(&[(&str, OwnedValue)], &str); 9] = [
            (&[("x-message-ttl", OwnedValue::Int(-1))], "x-message-ttl"),
            (&[("x-message-ttl", text("100"))], "x-message-ttl"),
            (&[("x-expires", OwnedValue::Int(0))], "x-expires"),
            (&[("x-max-priority", OwnedValue::Int(256))], "x-max-priority"),
            (&[("x-queue-type", text("quorum")), ("x-max-priority", OwnedValue::Int(1))], "x-max-priority"),
            (&[("x-queue-type", text("quorum")), ("x-overflow", text("reject-publish-dlx"))], "x-overflow"),
            (&[("x-delivery-limit", OwnedValue::Int(3))], "x-delivery-limit"),
            (&[("x-dead-letter-routing-key", text("key"))], "x-dead-letter-routing-key"),
            (&[("x-single-active-consumer", OwnedValue::Int(1))], "x-single-active-consumer"),
        ];
        for (fields, name) in cases {
            assert_eq!(of(fields).expect_err(name).name, name);
        }
    }
}
