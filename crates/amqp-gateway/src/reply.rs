//! Direct reply-to: answers that go from channel to channel without a queue. Who consumes `amq.rabbitmq.reply-to` publishes with that as
//! `reply-to`, which leaves as an address of his channel; who publishes to that address in the default exchange reaches him. Nothing is
//! stored: an answer for a channel that is gone, or for a client that does not read, is lost, as in RabbitMQ.
//!
//! An address is the pseudo-queue's name, a dot, and in hexadecimal: shard (2 bytes), connection (8), channel's number (2) and
//! id (8), secret (8).

use std::sync::Arc;

use amqp_wire::{EncodedProperties, Properties, ShortBytes, ShortStr, basic, short};
use broker::ReplyTo;
use bytes::{Bytes, BytesMut};
use routing::Name;
use types::{ConnectionId, ShardId};

use crate::channel::Channel;
use crate::connection::{CONSUMER_TOKEN, Connection};
use crate::error::Failure;
use crate::gateway::Gateway;
use crate::message::Message;

/// The pseudo-queue.
pub(crate) const PSEUDO_QUEUE: &str = "amq.rabbitmq.reply-to";
const PREFIX: &str = "amq.rabbitmq.reply-to.";

/// The consumer of answers of a channel. Its address is known as long as it is there.
pub(crate) struct Replies {
    pub tag: Name,
    secret: u64,
    gateway: Arc<Gateway>,
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.gateway.repliers.lock().remove(&self.secret);
    }
}

/// Where answers for a channel go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    shard: ShardId,
    connection: ConnectionId,
    channel: u16,
    id: u64,
    secret: u64,
}

impl Address {
    fn text(self) -> String {
        let Self { shard, connection, channel, id, secret } = self;
        format!("{PREFIX}{:04x}{:016x}{channel:04x}{id:016x}{secret:016x}", shard.0, connection.0)
    }

    fn parse(key: &[u8]) -> Option<Self> {
        let digits = std::str::from_utf8(key.strip_prefix(PREFIX.as_bytes())?)
            .ok()
            .filter(|digits| digits.len() == 56 && digits.is_ascii())?;
        let number = |from: usize, to: usize| u64::from_str_radix(&digits[from..to], 16).ok();
        let small = |from, to| number(from, to).and_then(|number| u16::try_from(number).ok());
        Some(Self {
            shard: ShardId(small(0, 4)?),
            connection: ConnectionId(number(4, 20)?),
            channel: small(20, 24)?,
            id: number(24, 40)?,
            secret: number(40, 56)?,
        })
    }
}

/// An answer on its way.
pub(crate) struct Answer {
    pub channel: u16,
    to: Address,
    routing_key: Bytes,
    properties: Bytes,
    body: Bytes,
}

/// A channel consumes answers.
///
/// # Errors
/// *406*: with acknowledgements, or twice.
pub(crate) fn consume(gateway: &Arc<Gateway>, channel: &mut Channel, tag: Name, no_ack: bool) -> Result<(), Failure> {
    if channel.replies.is_some() {
        return Err(Failure::precondition("reply consumer already set"));
    }
    if !no_ack {
        return Err(Failure::precondition("reply consumer cannot acknowledge"));
    }
    let secret = uuid::Uuid::new_v4().as_u64_pair().0;
    gateway.repliers.lock().insert(secret);
    channel.replies = Some(Replies { tag, secret, gateway: Arc::clone(gateway) });
    Ok(())
}

/// Is it the pseudo-queue, or the address of a channel that consumes answers?
pub(crate) fn is_waited_for(connection: &Connection, name: &[u8]) -> bool {
    let known = |to: Address| connection.gateway.repliers.lock().contains(&to.secret);
    name == PSEUDO_QUEUE.as_bytes() || Address::parse(name).is_some_and(known)
}

/// Properties with the channel's address in place of the pseudo-queue; none if they do not ask for it.
///
/// # Errors
/// *406*: nobody consumes answers on this channel.
pub(crate) fn addressed(
    connection: &Connection,
    channel: &Channel,
    properties: EncodedProperties<'_>,
) -> Result<Option<BytesMut>, Failure> {
    if properties.reply_to().is_none_or(|to| to != *PSEUDO_QUEUE) {
        return Ok(None);
    }
    let replies =
        channel.replies.as_ref().ok_or_else(|| Failure::precondition("fast reply consumer does not exist"))?;
    let (shard, id) = (connection.shard, channel.id);
    let address =
        Address { shard, connection: connection.id, channel: channel.number, id, secret: replies.secret }.text();
    let mut out = BytesMut::new();
    Properties { reply_to: ShortStr::new(&address).map(ShortBytes::from), ..properties.decode() }.encode(&mut out);
    Ok(Some(out))
}

/// Does a key say where an answer goes?
pub(crate) fn is_address(key: &[u8]) -> bool {
    Address::parse(key).is_some()
}

/// Is it a message for an address?
pub(crate) fn is_answer(message: &Message<'_>) -> bool {
    message.exchange.is_empty() && message.routing_key.starts_with(PREFIX.as_bytes())
}

/// Sends an answer; false: it is no address.
pub(crate) fn send(connection: &Connection, message: &Message<'_>) -> bool {
    let Some(to) = Address::parse(message.routing_key) else { return false };
    let answer = Answer {
        channel: to.channel,
        to,
        routing_key: Bytes::copy_from_slice(message.routing_key),
        properties: Bytes::copy_from_slice(message.properties.as_bytes()),
        body: message.body.concat().into(),
    };
    let place = ReplyTo { shard: to.shard, connection: to.connection, token: CONSUMER_TOKEN };
    connection.broker().tell(place, Box::new(answer));
    true
}

/// An answer has come for a channel.
pub(crate) fn deliver(connection: &mut Connection, channel: &mut Channel, answer: &Answer) {
    let Some(replies) =
        channel.replies.as_ref().filter(|replies| (channel.id, replies.secret) == (answer.to.id, answer.to.secret))
    else {
        return;
    };
    if connection.out.is_crowded() {
        connection.gateway.metrics.not_kept.inc();
        return;
    }
    let consumer_tag = ShortBytes::new(&replies.tag).unwrap_or_default();
    let routing_key = ShortBytes::new(&answer.routing_key).unwrap_or_default();
    channel.tag += 1;
    let method = basic::Deliver {
        consumer_tag,
        delivery_tag: channel.tag,
        redelivered: false,
        exchange: short("").into(),
        routing_key,
    };
    let properties = EncodedProperties::trusted(&answer.properties);
    connection.out.content(channel.number, &method, properties, &[&answer.body], connection.limits.frame_max);
    connection.gateway.metrics.delivered.inc();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_back_and_nothing_else() {
        let address =
            Address { shard: ShardId(3), connection: ConnectionId(u64::MAX), channel: 65_535, id: 7, secret: 1 << 63 };
        let text = address.text();
        assert_eq!(Address::parse(text.as_bytes()), Some(address));
        assert_eq!(Address::parse(&text.as_bytes()[..text.len() - 1]), None);
        for other in [
            "amq.rabbitmq.reply-to",
            "amq.rabbitmq.reply-to.",
            "orders",
            &text.replace('3', "g"),
            &format!("{PREFIX}{}", "é".repeat(28)),
        ] {
            assert_eq!(Address::parse(other.as_bytes()), None, "{other}");
        }
    }
}
