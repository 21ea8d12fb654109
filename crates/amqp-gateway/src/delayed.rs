//! Messages that are to be delayed: what header `x-delay` says, and what of a message an exchange of type `x-delayed-message` keeps.
//!
//! The delay is a number of milliseconds, an integer of any type but a signed byte, a float (cut off) or a decimal string; from 1 to 4,294,967,295
//! it delays, anything else does not. What is kept has its header negated, a 64-bit integer, so that exchanges further on do not delay it
//! again, and who gets it sees that it was delayed.
//!
//! Source: RabbitMQ's plugin `rabbitmq_delayed_message_exchange` 4.2, `rabbit_delayed_message_utils`, `rabbit_exchange_type_delayed_message`.

use amqp_wire::{EncodedProperties, TableRef, Value, short};
use broker::Delay;
use routing::Name;
use smallvec::{SmallVec, smallvec};

use crate::channel::Channel;
use crate::connection::Connection;
use crate::message::{Message, with_headers, without_bcc};
use crate::publisher::Wanted;

const DELAY: &str = "x-delay";
const DELAY_MS_MAX: i64 = 4_294_967_295;

/// How long a message is to be delayed, in ms; `None`: not at all.
pub(crate) fn delay_of(properties: EncodedProperties<'_>) -> Option<u64> {
    let delay = match properties.headers()?.get(DELAY)? {
        Value::I8(_) | Value::Timestamp(_) => None,
        Value::LongString(text) | Value::Bytes(text) => std::str::from_utf8(text).ok()?.parse::<i64>().ok(),
        Value::F32(value) => Some(f64::from(value) as i64),
        Value::F64(value) => Some(value as i64),
        other => other.as_integer(),
    };
    delay.filter(|delay| (1..=DELAY_MS_MAX).contains(delay)).map(i64::unsigned_abs)
}

/// What became of a message that exchanges were to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// None was to keep it.
    NotWanted,
    /// Who wanted to know hears of the outcome.
    Open,
    /// An exchange has just been declared, or is being deleted: it keeps nothing.
    Lost,
}

/// Hands a message to the exchanges that keep it; `wanted` hears of the outcome if that is [`Kept::Open`].
pub(crate) fn keep(
    connection: &mut Connection,
    channel: &Channel,
    message: &Message<'_>,
    keys: &[&[u8]],
    (delay, keepers): (Option<u64>, &[Name]),
    wanted: Option<Wanted>,
) -> Kept {
    let Some(delay) = delay.filter(|_| !keepers.is_empty()) else { return Kept::NotWanted };
    let known = keepers.iter().filter_map(|name| channel.vhost.delays(name));
    let queues: SmallVec<[_; 2]> = known.map(|delays| delays.queue().clone()).collect();
    if queues.len() < keepers.len() {
        return Kept::Lost;
    }
    let stripped = without_bcc(message.properties);
    let properties = stripped.as_ref().map_or(message.properties, |bytes| EncodedProperties::trusted(bytes));
    let negated = with_headers(properties.decode(), |fields| {
        let before: TableRef<'_> = properties.headers().unwrap_or_default();
        fields.copy_without(before, |name| name == DELAY);
        fields.put(short(DELAY), Value::I64(-delay.cast_signed()));
    });
    let kept = Message { properties: EncodedProperties::trusted(&negated), ..*message };
    let header =
        Delay { due: connection.gateway.broker.delayed_by(delay), keys: keys.iter().copied().collect() }.encode();
    let count = queues.len();
    for (number, queue) in queues.into_iter().enumerate() {
        // All are appended in this turn: the outcome of the last is known when that of the others is.
        let wanted = wanted.filter(|_| number + 1 == count);
        connection.publisher.add_delayed(smallvec![queue], &kept, connection.now_ms, &header, wanted);
    }
    Kept::Open
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp_wire::Properties;

    fn delay(value: Value<'_>) -> Option<u64> {
        let properties = with_headers(Properties::default(), |fields| fields.put(short(DELAY), value));
        delay_of(EncodedProperties::trusted(&properties))
    }

    #[test]
    fn a_delay_is_a_positive_number_of_milliseconds() {
        assert_eq!(delay_of(EncodedProperties::default()), None);
        let taken = [
            Value::I32(5),
            Value::I64(5),
            Value::U8(5),
            Value::I16(5),
            Value::U16(5),
            Value::U32(5),
            Value::LongString(b"5"),
            Value::F64(5.9),
        ];
        for value in taken {
            assert_eq!(delay(value), Some(5), "{value:?}");
        }
        assert_eq!(delay(Value::I64(DELAY_MS_MAX)), Some(4_294_967_295));
        let passed = [
            Value::I32(0),
            Value::I32(-5),
            Value::I8(5),
            Value::I64(DELAY_MS_MAX + 1),
            Value::LongString(b"soon"),
            Value::Bool(true),
            Value::Void,
        ];
        for value in passed {
            assert_eq!(delay(value), None, "{value:?}");
        }
    }
}
