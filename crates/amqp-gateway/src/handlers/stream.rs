//! Class basic, consumers of streams: where they begin, and which messages they want.
//!
//! RabbitMQ keeps a Bloom filter for each of its chunks and sends chunks that may have what a consumer wants, so that clients filter once
//! more. Here every message is looked at, and a consumer gets what it wants and nothing else.

use std::net::IpAddr;
use std::sync::Arc;

use amqp_wire::{TableRef, Value};
use broker::{Consuming, Filter, Queue, StreamFilter, StreamReading, StreamStart, age_ms, kind_name};
use bytes::Bytes;
use delivery::ConsumerId;

use crate::connection::Connection;
use crate::error::Failure;

const OFFSET: &str = "x-stream-offset";
const FILTER: &str = "x-stream-filter";
const UNFILTERED: &str = "x-stream-match-unfiltered";
/// An expression of our own; RabbitMQ has one over AMQP 1.0 only.
const EXPRESSION: &str = "x-mainstem-filter";

/// Something that can be done with other queues.
pub(super) fn not_supported(method: &str, queue: &Queue) -> Failure {
    let (name, vhost) = (queue.name(), queue.vhost());
    Failure::not_implemented(format_args!("{method} not supported by stream queues queue '{name}' in vhost '{vhost}'"))
}

/// Refuses arguments of a consumer that only streams take.
///
/// # Errors
/// *406*
pub(super) fn refuse(queue: &Queue, arguments: TableRef<'_>) -> Result<(), Failure> {
    match [OFFSET, FILTER, UNFILTERED, EXPRESSION].into_iter().find(|argument| arguments.get(argument).is_some()) {
        Some(argument) => Err(not_taken(argument, queue)),
        None => Ok(()),
    }
}

/// An argument that this type of queue does not take of consumers.
pub(super) fn not_taken(argument: &str, queue: &Queue) -> Failure {
    let (name, vhost, kind) = (queue.name(), queue.vhost(), kind_name(queue.understood().kind));
    Failure::precondition(format_args!(
        "invalid arg '{argument}' for queue '{name}' in vhost '{vhost}' of queue type rabbit_{kind}_queue"
    ))
}

/// Begins to read a stream.
///
/// # Errors
/// *406*: arguments that make no sense, or no prefetch, which is the only bound of what is on its way; *540*: without acknowledgements.
pub(super) fn read(
    connection: &Connection,
    queue: &Arc<Queue>,
    wish: Consuming,
    arguments: TableRef<'_>,
) -> Result<ConsumerId, Failure> {
    let (name, vhost) = (queue.name(), queue.vhost());
    let reading = reading(queue, arguments, (connection.now_ms, connection.peer.ip()))?;
    // A bound for all consumers of the channel is one for each, as in RabbitMQ since it has no other.
    let prefetch = if wish.prefetch > 0 { wish.prefetch } else { wish.channel.limit().try_into().unwrap_or(u16::MAX) };
    if prefetch == 0 {
        return Err(Failure::precondition(format_args!(
            "consumer prefetch count is not set for stream queue '{name}' in vhost '{vhost}'"
        )));
    }
    if wish.no_ack {
        let text = format_args!("automatic acknowledgement not supported by stream queue '{name}' in vhost '{vhost}'");
        return Err(Failure::not_implemented(text));
    }
    let begun = connection.broker().read_stream(queue, Consuming { prefetch, ..wish }, reading);
    begun.map_err(|error| Failure::of_consume(error, name, vhost))
}

fn reading(queue: &Queue, arguments: TableRef<'_>, (now_ms, address): (i64, IpAddr)) -> Result<StreamReading, Failure> {
    if arguments.get("x-priority").is_some() {
        return Err(not_taken("x-priority", queue));
    }
    let invalid = |argument: &str, what: String| {
        let (name, vhost) = (queue.name(), queue.vhost());
        Failure::precondition(format_args!("invalid arg '{argument}' for queue '{name}' in vhost '{vhost}': {what}"))
    };
    let start = match arguments.get(OFFSET) {
        None => StreamStart::Next,
        Some(value) => start(value, now_ms).map_err(|what| invalid(OFFSET, what))?,
    };
    let values = match arguments.get(FILTER) {
        Some(Value::LongString(value)) => Some([Bytes::copy_from_slice(value)].into_iter().collect()),
        Some(Value::Array(array)) => {
            Some(array.iter().filter_map(Value::as_bytes).map(Bytes::copy_from_slice).collect())
        }
        // As in RabbitMQ, anything else asks for nothing.
        _ => None,
    };
    let unfiltered = matches!(arguments.get(UNFILTERED), Some(Value::Bool(true)));
    let expression = match arguments.get(EXPRESSION) {
        None => None,
        Some(value) => Some(expression(value).map_err(|what| invalid(EXPRESSION, what))?),
    };
    let filter = (values.is_some() || expression.is_some()).then_some(StreamFilter { values, unfiltered, expression });
    Ok(StreamReading { start, filter, address })
}

/// An expression, or what is wrong with it.
fn expression(value: Value<'_>) -> Result<Arc<Filter>, String> {
    let text = value.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or("it is no text")?;
    Filter::parse(text).map(Arc::new).map_err(|error| error.to_string())
}

/// Where a consumer begins, or what is wrong.
fn start(value: Value<'_>, now_ms: i64) -> Result<StreamStart, String> {
    match value {
        Value::LongString(b"first") => Ok(StreamStart::First),
        Value::LongString(b"last") => Ok(StreamStart::Last),
        Value::LongString(b"next") => Ok(StreamStart::Next),
        Value::LongString(text) => match age_ms(text) {
            Some(age) => Ok(StreamStart::Time(now_ms.saturating_sub_unsigned(age))),
            None if text.is_empty() => Err("{invalid_stream_offset_arg,{longstr,<<>>}}".to_owned()),
            None => Err(format!("{{invalid_stream_offset_arg,{{longstr,<<\"{}\">>}}}}", String::from_utf8_lossy(text))),
        },
        Value::Timestamp(seconds) => {
            Ok(StreamStart::Time(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000)))
        }
        other => match other.as_integer() {
            // What lies before the start is the start.
            Some(number) => Ok(StreamStart::Offset(u64::try_from(number).unwrap_or(0))),
            None => Err(format!("{{unacceptable_type,{}}}", other.type_name())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_begins_where_it_says() {
        let at = |value| start(value, 10_000_000);
        assert_eq!(at(Value::LongString(b"first")), Ok(StreamStart::First));
        assert_eq!(at(Value::LongString(b"last")), Ok(StreamStart::Last));
        assert_eq!(at(Value::LongString(b"next")), Ok(StreamStart::Next));
        assert_eq!(at(Value::LongString(b"1h")), Ok(StreamStart::Time(6_400_000)));
        assert_eq!(at(Value::Timestamp(5)), Ok(StreamStart::Time(5000)));
        assert_eq!(at(Value::U8(7)), Ok(StreamStart::Offset(7)));
        assert_eq!(at(Value::I32(-1)), Ok(StreamStart::Offset(0)));
        assert!(expression(Value::LongString(b"header.type = 'x'")).is_ok());
        let refused = "at character 5: expected =, <>, <, <=, >, >=, IN, BETWEEN, LIKE or IS, found '~'";
        assert_eq!(expression(Value::LongString(b"key ~ 5")), Err(refused.to_owned()));
        assert_eq!(expression(Value::I32(5)), Err("it is no text".to_owned()));
        // Words of RabbitMQ 4.3.6.
        assert_eq!(at(Value::LongString(b"")), Err("{invalid_stream_offset_arg,{longstr,<<>>}}".to_owned()));
        assert_eq!(at(Value::LongString(b"foo")), Err("{invalid_stream_offset_arg,{longstr,<<\"foo\">>}}".to_owned()));
        assert_eq!(at(Value::Bool(true)), Err("{unacceptable_type,bool}".to_owned()));
    }
}
