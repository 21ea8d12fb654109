//! Class basic, consumers: qos, consume, cancel, deliver; and cancel towards the client when a queue is gone.

use std::sync::Arc;

use amqp_wire::{ReplyCode, ShortBytes, ShortStr, basic, short};
use broker::{Consuming, Deliveries, Gone, Permission, made_up_name};
use routing::Name;

use super::queue::no_integer;
use super::{queue_name, queue_of};
use crate::access::Resource;
use crate::channel::Channel;
use crate::connection::{CONSUMER_TOKEN, Connection, Consumer};
use crate::error::Failure;
use crate::message::Stored;
use crate::outgoing::Taken;
use crate::reply;

pub(crate) fn qos(connection: &mut Connection, channel: &mut Channel, method: basic::Qos) -> Result<(), Failure> {
    let basic::Qos { prefetch_size, prefetch_count, global } = method;
    if prefetch_size != 0 {
        return Err(Failure::not_implemented(format_args!("prefetch_size!=0 ({prefetch_size})")));
    }
    if global {
        connection.broker().set_channel_prefetch(&channel.flow, prefetch_count);
    } else {
        channel.prefetch = prefetch_count;
    }
    connection.out.method(channel.number, &basic::QosOk {});
    Ok(())
}

pub(crate) fn consume(connection: &mut Connection, channel: &mut Channel, method: basic::Consume<'_>) -> Result<(), Failure> {
    let basic::Consume { queue, consumer_tag, no_ack, exclusive, no_wait, arguments, .. } = method;
    let tag = match &*consumer_tag {
        "" => made_up_name("amq.ctag-"),
        given => super::name(given.as_bytes())?,
    };
    let in_use = channel.consumers.contains_key(&tag) || channel.replies.as_ref().is_some_and(|replies| replies.tag == tag);
    if in_use {
        return Err(Failure::connection(ReplyCode::NotAllowed, format_args!("attempt to reuse consumer tag '{tag}'")));
    }
    if queue == *reply::PSEUDO_QUEUE {
        reply::consume(channel, tag.clone(), no_ack)?;
        if !no_wait && let Some(consumer_tag) = text(&tag) {
            connection.out.method(channel.number, &basic::ConsumeOk { consumer_tag });
        }
        return Ok(());
    }
    let wanted = queue_name(channel, &queue)?;
    connection.check(Permission::Read, Resource::Queue(&wanted))?;
    let queue = queue_of(connection, channel, &queue)?;
    let priority = match arguments.get("x-priority") {
        None => 0,
        Some(value) => match value.as_integer() {
            Some(number) => number.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
            None => return Err(no_integer("x-priority", value, &queue)),
        },
    };
    let to = connection.reply_to(CONSUMER_TOKEN);
    let flow = Arc::clone(&channel.flow);
    let wish = Consuming { to, channel: Arc::clone(&flow), tag: tag.clone(), no_ack, exclusive, priority, prefetch: channel.prefetch };
    let id = connection.broker().consume(&queue, wish).map_err(|error| Failure::of_consume(error, queue.name(), queue.vhost()))?;
    if !no_wait {
        let consumer_tag = std::str::from_utf8(&tag).ok().and_then(ShortStr::new).unwrap_or(short(""));
        connection.out.method(channel.number, &basic::ConsumeOk { consumer_tag });
    }
    channel.consumers.insert(tag.clone(), id);
    connection.gateway.metrics.consumers.inc();
    let (number, channel_id, of) = (channel.number, channel.id, Arc::clone(&queue));
    let consumer = Consumer { channel: number, channel_id, flow, queue: of, tag, no_ack, cancelled: false, open: 0 };
    connection.consumers.insert(id, consumer);
    Ok(())
}

pub(crate) fn cancel(connection: &mut Connection, channel: &mut Channel, method: basic::Cancel<'_>) -> Result<(), Failure> {
    let basic::Cancel { consumer_tag, no_wait } = method;
    channel.replies.take_if(|replies| *replies.tag == *consumer_tag.as_bytes());
    let Some(id) = channel.consumers.get(consumer_tag.as_bytes()).copied() else {
        if !no_wait {
            connection.out.method(channel.number, &basic::CancelOk { consumer_tag });
        }
        return Ok(());
    };
    let Some(queue) = connection.consumers.get(&id).map(|consumer| Arc::clone(&consumer.queue)) else { return Ok(()) };
    let abandoned = connection.broker().cancel(&queue, id);
    let tag = super::name(consumer_tag.as_bytes())?;
    // What is on its way to the consumer has come when the controller answers, so that nothing is delivered after the answer.
    let work = move |broker: &Arc<broker::Broker>| {
        if abandoned {
            // One that is used again stays.
            let _ = broker.delete_queue(&queue, true, false);
        }
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
    let Some(id) = channel.consumers.remove(tag) else { return };
    connection.gateway.metrics.consumers.dec();
    if let Some(consumer) = connection.consumers.get_mut(&id) {
        consumer.cancelled = true;
        if consumer.open == 0 {
            connection.consumers.remove(&id);
        }
    }
}

/// The queue of a consumer was deleted.
pub(crate) fn gone(connection: &mut Connection, channel: &mut Channel, gone: Gone) {
    let Some(tag) = connection.consumers.get(&gone.consumer).map(|consumer| consumer.tag.clone()) else { return };
    if !channel.consumers.contains_key(&tag) {
        return;
    }
    forget(connection, channel, &tag);
    if connection.understands.consumer_cancel_notify
        && let Some(consumer_tag) = text(&tag)
    {
        connection.out.method(channel.number, &basic::Cancel { consumer_tag, no_wait: true });
    }
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
        let mut stored = Stored::of(&message.record, consumer.queue.name(), message.returned);
        stored.fit(connection.limits.frame_max);
        let (exchange, routing_key, redelivered) = (stored.exchange, stored.routing_key, message.redelivered || stored.failed_before > 0 && !message.at_once);
        let method = basic::Deliver { consumer_tag, delivery_tag, redelivered, exchange, routing_key };
        connection.out.shared(channel.number, &method, stored.properties(), &stored.body, connection.limits.frame_max);
    }
    connection.out.note(Taken { channel: Arc::clone(&channel.flow), bytes: deliveries.bytes });
    connection.gateway.metrics.delivered.inc_by(deliveries.messages.len() as u64);
}
