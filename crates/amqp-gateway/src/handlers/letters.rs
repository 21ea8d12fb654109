//! Before a method looks at a queue: are dead letters on their way there? A client that rejects a message finds it right afterwards where the
//! queue sends it, as in RabbitMQ, where one queue hands it to the other.
//!
//! | method | waits for |
//! |---|---|
//! | basic.get of an empty queue; queue.declare, purge and delete that are answered with a count, or depend on it | all letters that may come there |
//! | basic.get of a queue that has a message | the same, if the connection has just published, rejected or given back: it may count on what it did |
//!
//! A method that is answered with a count also waits while the queue's log is searched for what is no message, after a start for example.
//!
//! So who only empties a queue where letters come all the time does not wait for each of them. What dies meanwhile is not waited for.

use std::sync::Arc;
use std::time::Duration;

use amqp_wire::{Method, basic, queue};
use broker::Queue;

use super::{queue_name, without_line_ends};
use crate::channel::Channel;
use crate::connection::Connection;

/// Counts have to be right for who has done something so short a time ago that it may concern them.
const STIRRED_FOR: Duration = Duration::from_secs(1);

/// The queue that a method will count the messages of; true: it wants one of them.
fn looked_at(channel: &Channel, method: &Method<'_>) -> Option<(Arc<Queue>, bool)> {
    let (name, gets) = match method {
        Method::Basic(basic::Method::Get(basic::Get { queue, .. })) => (queue, true),
        Method::Queue(queue::Method::Declare(queue::Declare { queue, no_wait: false, .. })) if !queue.is_empty() => {
            (queue, false)
        }
        Method::Queue(queue::Method::Purge(queue::Purge { queue, no_wait: false })) => (queue, false),
        Method::Queue(queue::Method::Delete(queue::Delete { queue, if_empty, no_wait, .. }))
            if *if_empty || !no_wait =>
        {
            (queue, false)
        }
        _ => return None,
    };
    let name = queue_name(channel, &without_line_ends(name)).ok()?;
    Some((channel.vhost.queue(&name)?, gets))
}

/// The token under which the letters for which a method has to wait are reported, if there are such.
pub(crate) fn await_letters(connection: &mut Connection, channel: &mut Channel, method: &Method<'_>) -> Option<u64> {
    let has_awaited = std::mem::take(&mut channel.has_awaited_letters);
    let buries = connection.broker().buries();
    if has_awaited || !buries && matches!(method, Method::Basic(_)) {
        return None;
    }
    let (queue, gets) = looked_at(channel, method)?;
    if !gets {
        let token = connection.take_token();
        if connection.broker().await_search(&queue, connection.reply_to(token)) {
            return Some(token);
        }
    }
    let stirred = connection.stirred.is_some_and(|at| connection.now.saturating_duration_since(at) < STIRRED_FOR);
    if gets && !stirred && connection.broker().counts(&queue).ready > 0 {
        return None;
    }
    let token = connection.take_token();
    connection.broker().await_letters(&queue, connection.reply_to(token)).then_some(token)
}
