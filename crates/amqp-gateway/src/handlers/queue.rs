//! Class queue: declare, bind, unbind, purge, delete.

use std::sync::Arc;

use amqp_wire::{ReplyCode, ShortStr, TableRef, queue, short};
use broker::{BindingWish, Broker, OwnQueue, Permission, Queue, QueueDeclaration, QueueError, Resource};

use super::exchange::run;
use super::{name, queue_name, queue_of, without_line_ends};
use crate::arguments::arguments;
use crate::channel::Channel;
use crate::connection::Connection;
use crate::error::Failure;
use crate::reply;

pub(crate) fn handle(
    connection: &mut Connection,
    channel: &mut Channel,
    method: queue::Method<'_>,
) -> Result<(), Failure> {
    match method {
        queue::Method::Declare(method) => declare(connection, channel, method),
        queue::Method::Bind(method) => bind(connection, channel, method),
        queue::Method::Unbind(method) => unbind(connection, channel, method),
        queue::Method::Purge(method) => purge(connection, channel, method),
        queue::Method::Delete(method) => delete(connection, channel, method),
        queue::Method::DeclareOk(_)
        | queue::Method::BindOk(_)
        | queue::Method::UnbindOk(_)
        | queue::Method::PurgeOk(_)
        | queue::Method::DeleteOk(_) => Err(super::unimplemented()),
    }
}

/// A count for the wire.
pub(super) fn count(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn declared(connection: &mut Connection, channel: &mut Channel, found: &Arc<Queue>, no_wait: bool) {
    channel.last_queue = Some(found.name().clone());
    if no_wait {
        return;
    }
    let counts = connection.broker().counts(found);
    let queue = std::str::from_utf8(found.name()).ok().and_then(ShortStr::new).unwrap_or(short(""));
    let (message_count, consumer_count) = (count(counts.ready), count(counts.consumers as u64));
    connection.out.method(channel.number, &queue::DeclareOk { queue, message_count, consumer_count });
}

fn declare(connection: &mut Connection, channel: &mut Channel, method: queue::Declare<'_>) -> Result<(), Failure> {
    let queue::Declare { queue, passive, durable, exclusive, auto_delete, no_wait, arguments: table } = method;
    let queue = without_line_ends(&queue);
    if queue.starts_with(reply::PSEUDO_QUEUE) {
        return declare_reply_queue(connection, channel, &queue, no_wait);
    }
    if passive {
        connection.check_seen(Resource::Queue(queue.as_bytes()))?;
        let found = connection.broker().queue_for(&channel.vhost, queue.as_bytes(), connection.id)?;
        connection.broker().used(&found);
        declared(connection, channel, &found, no_wait);
        return Ok(());
    }
    let (owner, caller) = (exclusive.then_some(connection.id), connection.caller()?);
    let wish =
        QueueDeclaration { name: name(queue.as_bytes())?, durable, owner, auto_delete, arguments: arguments(table) };
    connection.declaring = exclusive.then(OwnQueue::default);
    let staged = Broker::staged_declaration(Arc::clone(&channel.vhost), wish, caller, connection.declaring.clone());
    connection.control_staged(
        channel,
        queue::Declare::ID,
        staged,
        move |connection, channel, outcome: Result<Arc<Queue>, QueueError>| {
            connection.declaring = None;
            let found = outcome?;
            if found.owner().is_some() {
                // Not each time: with many queues each new one would go through all of them.
                if connection.owned.len() == connection.owned.capacity() {
                    connection.owned.retain(|_, queue| !queue.is_dropped());
                }
                connection.owned.insert(found.id(), Arc::clone(&found));
            }
            declared(connection, channel, &found, no_wait);
            Ok(())
        },
    )
}

/// The queue of direct replies, or one that stands for who waits for them: there are none but those that are there, with one consumer.
///
/// # Errors
/// *404*.
fn declare_reply_queue(
    connection: &mut Connection,
    channel: &mut Channel,
    queue: &str,
    no_wait: bool,
) -> Result<(), Failure> {
    if !reply::is_waited_for(connection, queue.as_bytes()) {
        return Err(
            QueueError::NotFound { queue: name(queue.as_bytes())?, vhost: channel.vhost.name().to_owned() }.into()
        );
    }
    channel.last_queue = Some(name(queue.as_bytes())?);
    if !no_wait {
        let queue = ShortStr::new(queue).unwrap_or(short(""));
        connection.out.method(channel.number, &queue::DeclareOk { queue, message_count: 0, consumer_count: 1 });
    }
    Ok(())
}

fn bind(connection: &mut Connection, channel: &mut Channel, method: queue::Bind<'_>) -> Result<(), Failure> {
    let queue::Bind { queue, exchange, routing_key, no_wait, arguments: table } = method;
    let wish = wish(channel, &queue, &exchange, &routing_key, table)?;
    let (vhost, caller, ok) =
        (Arc::clone(&channel.vhost), connection.caller()?, (!no_wait).then_some(queue::BindOk {}));
    run(
        connection,
        channel,
        queue::Bind::ID,
        move |broker| broker.bind(&vhost, wish, &caller),
        move |connection, channel| {
            ok.inspect(|ok| connection.out.method(channel.number, ok));
        },
    )
}

fn unbind(connection: &mut Connection, channel: &mut Channel, method: queue::Unbind<'_>) -> Result<(), Failure> {
    let queue::Unbind { queue, exchange, routing_key, arguments: table } = method;
    let wish = wish(channel, &queue, &exchange, &routing_key, table)?;
    let (vhost, caller) = (Arc::clone(&channel.vhost), connection.caller()?);
    run(
        connection,
        channel,
        queue::Unbind::ID,
        move |broker| broker.unbind(&vhost, &wish, &caller),
        |connection, channel| {
            connection.out.method(channel.number, &queue::UnbindOk {});
        },
    )
}

/// The binding that is meant.
fn wish(
    channel: &Channel,
    queue: &str,
    exchange: &str,
    key: &str,
    table: TableRef<'_>,
) -> Result<BindingWish, Failure> {
    let (queue, exchange) = (without_line_ends(queue), without_line_ends(exchange));
    let destination = queue_name(channel, &queue)?;
    // spec: amqp-0-9-1 queue.bind, rule "queue-known": with neither queue nor key the key is the queue's name.
    let key = if queue.is_empty() && key.is_empty() { destination.clone() } else { name(key.as_bytes())? };
    Ok(BindingWish {
        source: name(exchange.as_bytes())?,
        to_queue: true,
        destination,
        key,
        arguments: arguments(table),
    })
}

fn purge(connection: &mut Connection, channel: &mut Channel, method: queue::Purge<'_>) -> Result<(), Failure> {
    let wanted = queue_name(channel, &method.queue)?;
    connection.check(Permission::Read, Resource::Queue(&wanted))?;
    let found = queue_of(connection, channel, &method.queue)?;
    connection.check_group_of(&found)?;
    if found.is_stream() {
        return Err(super::stream::not_supported("queue.purge", &found));
    }
    let message_count = count(connection.broker().purge(&found));
    if !method.no_wait {
        connection.out.method(channel.number, &queue::PurgeOk { message_count });
    }
    Ok(())
}

fn delete(connection: &mut Connection, channel: &mut Channel, method: queue::Delete<'_>) -> Result<(), Failure> {
    let queue::Delete { queue, if_unused, if_empty, no_wait } = method;
    let wanted = queue_name(channel, &without_line_ends(&queue))?;
    let staged = Broker::staged_deletion(Arc::clone(&channel.vhost), wanted, if_unused, if_empty, connection.caller()?);
    connection.control_staged(
        channel,
        queue::Delete::ID,
        staged,
        move |connection, channel, outcome: Result<u64, QueueError>| {
            let message_count = count(outcome?);
            if !no_wait {
                connection.out.method(channel.number, &queue::DeleteOk { message_count });
            }
            Ok(())
        },
    )
}

/// RabbitMQ's words for an argument of a method that is no integer.
pub(super) fn no_integer(argument: &str, found: amqp_wire::Value<'_>, queue: &Queue) -> Failure {
    let (name, vhost, kind) = (queue.name(), queue.vhost(), found.type_name());
    let text =
        format!("invalid arg '{argument}' for queue '{name}' in vhost '{vhost}': \"expected integer, got {kind}\"");
    Failure::channel(ReplyCode::PreconditionFailed, text)
}
