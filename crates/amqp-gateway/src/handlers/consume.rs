//! Class basic, consumers: qos, consume, cancel, deliver; and cancel towards the client when a queue is gone.

use std::sync::Arc;

use amqp_wire::{ReplyCode, ShortBytes, ShortStr, TableRef, basic, short};
use broker::{Consuming, Deliveries, Gone, GoneReason, LimitKind, Part, Permission, Queue, Resource, made_up_name};
use delivery::QueueKind;
use routing::Name;
use smallvec::{SmallVec, smallvec};

use super::queue::no_integer;
use super::{queue_name, queue_of};
use crate::channel::Channel;
use crate::connection::{CONSUMER_TOKEN, Connection, Consumer};
use crate::consumer_memory;
use crate::error::Failure;
use crate::message::Stored;
use crate::outgoing::Taken;
use crate::reply;

/// How long a consumer may keep a message.
const TIME_OUT: &str = "x-consumer-timeout";

pub(crate) fn qos(connection: &mut Connection, channel: &mut Channel, method: basic::Qos) -> Result<(), Failure> {
    let basic::Qos { prefetch_size, prefetch_count, global } = method;
    if prefetch_size != 0 {
        return Err(Failure::not_implemented(format_args!("prefetch_size!=0 ({prefetch_size})")));
    }
    if global {
        connection.broker().set_channel_prefetch(&channel.flow, prefetch_count);
    } else {
        channel.prefetch = prefetch_count;
        channel.flow.notes().prefetch.set(u64::from(prefetch_count));
    }
    connection.out.method(channel.number, &basic::QosOk {});
    Ok(())
}

pub(crate) fn consume(
    connection: &mut Connection,
    channel: &mut Channel,
    method: basic::Consume<'_>,
) -> Result<(), Failure> {
    let basic::Consume { queue, consumer_tag, no_ack, exclusive, no_wait, arguments, .. } = method;
    let tag = match &*consumer_tag {
        "" => made_up_name("amq.ctag-"),
        given => super::name(given.as_bytes())?,
    };
    let in_use =
        channel.consumers.contains_key(&tag) || channel.replies.as_ref().is_some_and(|replies| replies.tag == tag);
    if in_use {
        return Err(Failure::connection(ReplyCode::NotAllowed, format_args!("attempt to reuse consumer tag '{tag}'")));
    }
    if queue == *reply::PSEUDO_QUEUE {
        reply::consume(&connection.gateway, channel, tag.clone(), no_ack)?;
        if !no_wait && let Some(consumer_tag) = text(&tag) {
            connection.out.method(channel.number, &basic::ConsumeOk { consumer_tag });
        }
        return Ok(());
    }
    let most = connection.broker().limit(LimitKind::ConsumersOfChannel);
    if channel.consumers.len() as u64 >= most {
        connection.broker().limits().note_refusal(LimitKind::ConsumersOfChannel);
        return Err(Failure::connection(
            ReplyCode::NotAllowed,
            format_args!("reached maximum ({most}) of consumers per channel"),
        ));
    }
    let wanted = queue_name(channel, &queue)?;
    connection.check(Permission::Read, Resource::Queue(&wanted))?;
    let queue = queue_of(connection, channel, &queue)?;
    connection.check_group_of(&queue)?;
    let count = if queue.is_stream() { 1 } else { queue.parts().count() };
    let charges = connection.begin_consumers(count, consumer_memory::weight(tag.len(), arguments.as_bytes().len()))?;
    let (to, flow) = (connection.reply_to(CONSUMER_TOKEN), Arc::clone(&channel.flow));
    let wish = Consuming {
        to,
        channel: flow,
        tag: tag.clone(),
        no_ack,
        exclusive,
        priority: 0,
        prefetch: channel.prefetch,
        time_out_ms: None,
        arguments: crate::arguments::arguments(arguments),
    };
    let parts = begin(connection, &queue, wish, arguments)?;
    connection.waits.use_topic(queue.topic().id);
    if !no_wait {
        let consumer_tag = std::str::from_utf8(&tag).ok().and_then(ShortStr::new).unwrap_or(short(""));
        connection.out.method(channel.number, &basic::ConsumeOk { consumer_tag });
    }
    channel.consumers.insert(tag.clone(), parts.iter().map(|part| part.consumer).collect());
    connection.gateway.metrics.consumers.inc();
    let mut charges = charges.into_iter();
    for Part { queue, consumer, flow } in parts {
        let (number, channel_id, tag) = (channel.number, channel.id, tag.clone());
        connection.consumers.insert(
            consumer,
            Consumer {
                channel: number,
                channel_id,
                flow,
                queue,
                tag,
                no_ack,
                cancelled: false,
                open: 0,
                _charge: charges.next(),
            },
        );
    }
    Ok(())
}

/// Begins to consume: from one queue, or from all partitions of one.
fn begin(
    connection: &Connection,
    queue: &Arc<Queue>,
    wish: Consuming,
    arguments: TableRef<'_>,
) -> Result<SmallVec<[Part; 1]>, Failure> {
    let wish = Consuming { time_out_ms: time_out(queue, arguments)?, ..wish };
    let flow = Arc::clone(&wish.channel);
    let alone = |consumer| smallvec![Part { queue: Arc::clone(queue), consumer, flow }];
    if queue.is_stream() {
        return super::stream::read(connection, queue, wish, arguments).map(alone);
    }
    super::stream::refuse(queue, arguments)?;
    // One limit for all consumers of the channel, as of now: RabbitMQ's quorum queues know none.
    if queue.understood().kind == QueueKind::Quorum && wish.channel.limit() > 0 {
        return Err(Failure::not_implemented(format_args!(
            "queue '{}' in vhost '{}' does not support global qos",
            queue.name(),
            queue.vhost()
        )));
    }
    let wish = Consuming { priority: priority(queue, arguments)?, ..wish };
    let begun = if queue.is_partitioned() {
        connection.broker().consume_parts(queue, &wish).map(SmallVec::from_vec)
    } else {
        connection.broker().consume(queue, wish).map(alone)
    };
    begun.map_err(|error| Failure::of_consume(error, queue.name(), queue.vhost()))
}

/// `x-priority` of a consumer.
fn priority(queue: &Queue, arguments: TableRef<'_>) -> Result<i32, Failure> {
    match arguments.get("x-priority") {
        None => Ok(0),
        Some(value) => match value.as_integer() {
            Some(number) => Ok(number.clamp(i32::MIN.into(), i32::MAX.into()) as i32),
            None => Err(no_integer("x-priority", value, queue)),
        },
    }
}

/// `x-consumer-timeout` of a consumer, in ms.
fn time_out(queue: &Queue, arguments: TableRef<'_>) -> Result<Option<u64>, Failure> {
    let Some(value) = arguments.get(TIME_OUT) else { return Ok(None) };
    let (name, vhost) = (queue.name(), queue.vhost());
    let negative =
        |ms| format!("invalid arg '{TIME_OUT}' for queue '{name}' in vhost '{vhost}': {{value_negative,{ms}}}");
    match value.as_integer() {
        _ if queue.understood().kind != QueueKind::Quorum => Err(super::stream::not_taken(TIME_OUT, queue)),
        Some(ms) => u64::try_from(ms).map(Some).map_err(|_| Failure::precondition(negative(ms))),
        None => Err(no_integer(TIME_OUT, value, queue)),
    }
}

pub(crate) fn cancel(
    connection: &mut Connection,
    channel: &mut Channel,
    method: basic::Cancel<'_>,
) -> Result<(), Failure> {
    let basic::Cancel { consumer_tag, no_wait } = method;
    channel.replies.take_if(|replies| *replies.tag == *consumer_tag.as_bytes());
    let Some(ids) = channel.consumers.get(consumer_tag.as_bytes()) else {
        if !no_wait {
            connection.out.method(channel.number, &basic::CancelOk { consumer_tag });
        }
        return Ok(());
    };
    let mut abandoned = Vec::new();
    for (id, consumer) in ids.iter().filter_map(|id| Some((*id, connection.consumers.get(id)?))) {
        if connection.broker().cancel(&consumer.queue, id) {
            abandoned.push(Arc::clone(&consumer.queue));
        }
    }
    let tag = super::name(consumer_tag.as_bytes())?;
    // What is on its way to the consumer has come when the controller answers, so that nothing is delivered after the answer.
    let work = move |broker: &Arc<broker::Broker>| {
        abandoned.iter().for_each(|queue| broker.delete_by_itself(queue, false));
    };
    connection.control(channel, basic::Cancel::ID, work, move |connection, channel, ()| {
        forget(connection, channel, &tag);
        if !no_wait && let Some(consumer_tag) = text(&tag) {
            connection.out.method(channel.number, &basic::CancelOk { consumer_tag });
        }
        Ok(())
    })
}

fn text(tag: &Name) -> Option<ShortStr<'_>> {
    std::str::from_utf8(tag).ok().and_then(ShortStr::new)
}

/// A consumer gets nothing more; what it has stays with the channel.
fn forget(connection: &mut Connection, channel: &mut Channel, tag: &Name) {
    let Some(ids) = channel.consumers.remove(tag) else { return };
    connection.gateway.metrics.consumers.dec();
    for id in ids {
        if let Some(consumer) = connection.consumers.get_mut(&id) {
            consumer.cancelled = true;
            if consumer.open == 0 {
                connection.consumers.remove(&id);
            }
        }
    }
}

/// The queue of a consumer was deleted, or has taken back what it had for too long.
///
/// # Errors
/// *406*: it has kept something for too long, and cannot be told in another way.
pub(crate) fn gone(connection: &mut Connection, channel: &mut Channel, gone: Gone) -> Result<(), Failure> {
    let Some(tag) = connection.consumers.get(&gone.consumer).map(|consumer| consumer.tag.clone()) else {
        return Ok(());
    };
    let consumes = channel.consumers.get(&tag).is_some_and(|ids| ids.contains(&gone.consumer));
    let understands = connection.understands.consumer_cancel_notify;
    match gone.reason {
        GoneReason::QueueDeleted if !consumes => return Ok(()),
        GoneReason::QueueDeleted => forget(connection, channel, &tag),
        GoneReason::TimedOut if !consumes || !understands => {
            let number = channel.number;
            let text = format!(
                "delivery acknowledgement on channel {number} timed out. Timeout value used: -1 ms. This timeout value can be \
                 configured, see consumers doc guide to learn more"
            );
            return Err(Failure::precondition(text));
        }
        // It stays: what it settles too late lets it go on.
        GoneReason::TimedOut => {}
    }
    if understands && let Some(consumer_tag) = text(&tag) {
        connection.out.method(channel.number, &basic::Cancel { consumer_tag, no_wait: true });
    }
    Ok(())
}

/// Messages for a consumer of this channel.
pub(crate) fn deliver(connection: &mut Connection, channel: &mut Channel, deliveries: &Deliveries) {
    let Some(consumer) = connection.consumers.get_mut(&deliveries.consumer) else { return };
    let consumer_tag = ShortBytes::new(&consumer.tag).unwrap_or_default();
    for message in &deliveries.messages {
        let delivery_tag = channel.next_tag();
        if !consumer.no_ack {
            channel.unacked.push(delivery_tag, deliveries.consumer, message.offset);
            consumer.open += 1;
        }
        let frame_max = connection.limits.frame_max;
        let stored = if consumer.queue.is_stream() {
            Stored::of_stream(&message.record, consumer.queue.name(), frame_max, &mut connection.properties)
        } else {
            let mut stored = Stored::of(&message.record, consumer.queue.name(), message.returned);
            stored.fit(frame_max);
            stored
        };
        let redelivered = message.redelivered || stored.failed_before > 0 && !message.at_once;
        let (exchange, routing_key) = (stored.exchange, stored.routing_key);
        let method = basic::Deliver { consumer_tag, delivery_tag, redelivered, exchange, routing_key };
        connection.out.shared(channel.number, &method, stored.properties(), &stored.body, frame_max);
    }
    let laggard = connection.gateway.broker.laggard_account(&consumer.queue, deliveries.consumer, connection.now);
    connection.out.note(Taken { channel: Arc::clone(&channel.flow), bytes: deliveries.bytes, laggard });
    connection.gateway.metrics.delivered.inc_by(deliveries.messages.len() as u64);
}
