//! Class basic, get: one message, now. Messages that others have published and that are being written are there in a moment: who finds none waits for
//! those that were under way when he asked, also in sockets that nobody has read yet. From RabbitMQ, where a queue has them in memory, clients know them to be there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp_wire::{ReplyCode, basic};
use broker::{Broker, Cause, Got, Permission, Queue, Resource};
use delivery::{ConsumerId, QueueKind};
use smallvec::SmallVec;
use types::Offset;

use super::queue::count;
use super::{queue_name, queue_of};
use crate::channel::Channel;
use crate::connection::{Connection, Consumer, Waiting};
use crate::error::Failure;
use crate::message::Stored;

/// A message that is being read from the disk is asked for again after this long.
const AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Who waits because the queue is far behind looks so often whether the rules have changed.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Messages that are being written are waited for so long, at most, and looked for so often.
const WRITTEN_MAX: Duration = Duration::from_millis(500);
const WRITTEN_AGAIN: Duration = Duration::from_millis(1);
/// Shards are waited for so long, at most, until they have read their sockets.
const POLLED_MAX: Duration = Duration::from_millis(20);
/// A shorter debt delays nothing: it counts with the next.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// What was being written of a queue when somebody asked it for a message.
pub(crate) struct UnderWay {
    since: Instant,
    /// Of each partition: how many batches had been handed to its journal, and where its log ended.
    parts: SmallVec<[(u32, Offset); 1]>,
}

impl UnderWay {
    /// `None`: nothing.
    fn of(broker: &Broker, queue: &Arc<Queue>, now: Instant) -> Option<Self> {
        let parts: SmallVec<[(u32, Offset); 1]> =
            queue.parts().map(|part| (part.batches_begun(), part.log().end())).collect();
        Some(Self { since: now, parts }).filter(|under_way| !under_way.is_over(broker, queue))
    }

    fn is_over(&self, broker: &Broker, queue: &Arc<Queue>) -> bool {
        queue.parts().zip(&self.parts).all(|(part, (begun, end))| {
            // What a writer has not placed yet is in no log; what Kafka's producers write is known by the log alone.
            let is_written = part.batches_are_over(*begun) && *end <= part.log().high_watermark();
            is_written || broker.journal_of(part.log().id()).has_stopped()
        })
    }
}

/// Asks the partitions of a queue in turn, from another one on each time; most queues have one.
fn from_parts(
    broker: &Arc<Broker>,
    channel: &mut Channel,
    queue: &Arc<Queue>,
    no_ack: bool,
) -> (Arc<Queue>, ConsumerId, Got) {
    let parts: SmallVec<[&Arc<Queue>; 1]> = queue.parts().collect();
    let (first, mut outcome) = (channel.tag as usize, Got::Empty);
    for place in (first..first + parts.len()).map(|place| place % parts.len()) {
        let part = parts[place];
        let known = channel.getters.get(&part.id()).copied();
        let holder = known.unwrap_or_else(|| broker.subscriptions().new_consumer());
        let got = broker.get(part, &channel.flow, holder, no_ack);
        // Of a queue that had nothing nothing is remembered.
        if known.is_none() && !matches!(got, Got::Empty) {
            channel.getters.insert(part.id(), holder);
        }
        match got {
            Got::Message(message, left) if parts.len() == 1 => {
                return (Arc::clone(part), holder, Got::Message(message, left));
            }
            Got::Message(message, _) => {
                return (Arc::clone(part), holder, Got::Message(message, broker.counts(queue).ready));
            }
            Got::Empty => {}
            Got::Later => outcome = Got::Later,
        }
    }
    (Arc::clone(queue), ConsumerId(0), outcome)
}

/// Single messages of a quorum queue with one active consumer go to nobody else.
fn check_unlocked(queue: &Queue) -> Result<(), Failure> {
    if !queue.understood().single_active || queue.understood().kind != QueueKind::Quorum {
        return Ok(());
    }
    let text = format!(
        "cannot obtain access to locked queue '{}' in vhost '{}'. basic.get operations are not supported by <<\"quorum\">> queues with \
         single active consumer",
        queue.name(),
        queue.vhost()
    );
    Err(Failure::channel(ReplyCode::ResourceLocked, text))
}

pub(crate) fn get(connection: &mut Connection, channel: &mut Channel, method: basic::Get<'_>) -> Result<(), Failure> {
    let basic::Get { queue, no_ack } = method;
    let wanted = queue_name(channel, &queue)?;
    connection.check(Permission::Read, Resource::Queue(&wanted))?;
    let queue = queue_of(connection, channel, &queue)?;
    connection.check_group_of(&queue)?;
    if queue.is_stream() {
        return Err(super::stream::not_supported("basic.get", &queue));
    }
    check_unlocked(&queue)?;
    let broker = Arc::clone(connection.broker());
    let laggard = broker.laggard_account(&queue, ConsumerId(0), connection.now);
    let debt = laggard.as_ref().map_or(Duration::ZERO, |account| account.debt(connection.now));
    if debt >= DELAY_MIN {
        connection.waiting = Some(Waiting::Later(connection.now + debt.min(LOOK_AGAIN), Cause::Laggard));
        return Ok(());
    }
    if !no_ack && !channel.flow.may_get() {
        return Err(Failure::precondition("unacknowledged messages take as much memory as they may"));
    }
    let under_way = channel.under_way.take().or_else(|| UnderWay::of(&broker, &queue, connection.now));
    // Asked before the queue is: what is written by then it has.
    let waits = under_way.filter(|under_way| {
        connection.now.saturating_duration_since(under_way.since) < WRITTEN_MAX && !under_way.is_over(&broker, &queue)
    });
    let (queue, holder, got) = from_parts(&broker, channel, &queue, no_ack);
    match got {
        Got::Empty if waits.is_some() => {
            channel.under_way = waits;
            connection.waiting = Some(Waiting::Later(connection.now + WRITTEN_AGAIN, Cause::Disk));
        }
        Got::Empty if !std::mem::take(&mut channel.sockets_polled) && connection.poll_sockets(&queue) => {
            channel.sockets_polled = true;
            connection.waiting = Some(Waiting::Later(connection.now + POLLED_MAX, Cause::Records));
        }
        Got::Empty => {
            connection.out.method(channel.number, &basic::GetEmpty {});
        }
        // The frame is looked at again then.
        Got::Later => connection.waiting = Some(Waiting::Later(connection.now + AGAIN_AFTER, Cause::History)),
        Got::Message(message, left) => {
            channel.sockets_polled = false;
            let delivery_tag = channel.next_tag();
            if !no_ack {
                channel.unacked.push(delivery_tag, holder, message.offset);
                let (number, channel_id, tag) = (channel.number, channel.id, super::name(b"")?);
                let (flow, of) = (Arc::clone(&channel.flow), Arc::clone(&queue));
                let consumer = connection.consumers.entry(holder).or_insert_with(|| Consumer {
                    channel: number,
                    channel_id,
                    flow,
                    queue: of,
                    tag,
                    no_ack,
                    cancelled: false,
                    open: 0,
                    _charge: None,
                });
                consumer.open += 1;
            }
            let mut stored = Stored::of(&message.record, queue.name(), message.returned);
            stored.fit(connection.limits.frame_max);
            let (exchange, routing_key, redelivered) = (
                stored.exchange,
                stored.routing_key,
                message.redelivered || stored.failed_before > 0 && !message.at_once,
            );
            let method = basic::GetOk { delivery_tag, redelivered, exchange, routing_key, message_count: count(left) };
            connection.out.shared(
                channel.number,
                &method,
                stored.properties(),
                &stored.body,
                connection.limits.frame_max,
            );
            connection.gateway.metrics.got.inc();
            connection.take_got(message.bytes());
            if let Some(account) = laggard {
                account.take(message.bytes() as u64, connection.now);
            }
        }
    }
    Ok(())
}
