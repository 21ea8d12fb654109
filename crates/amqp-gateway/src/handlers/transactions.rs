//! Class tx: select, commit, rollback. What is published and said of deliveries is held until the commit; that is answered when all of
//! it is durable. As in RabbitMQ a commit is not atomic: a failure of the journal in the middle leaves a part.

use std::sync::Arc;

use amqp_wire::{MethodId, ReplyCode, tx};
use broker::{Acknowledged, Acknowledgement, ChannelMode};
use routing::STEPS_MAX;

use super::acknowledge::SETTLED_AT_ONCE;
use super::publish::{Table, route};
use crate::channel::{Channel, Mode};
use crate::connection::{Connection, Waiting};
use crate::error::Failure;
use crate::transaction::{OUTCOME_BYTES, Transaction};

/// A message of a commit stands for so many steps, beside those of its routing and one for each of its queues.
const MESSAGE_STEPS: usize = 16;
/// What a commit may take at once whose channel ends: some 200,000 messages.
const LAST_STEPS_MAX: usize = 16 * STEPS_MAX;

pub(crate) fn select(connection: &mut Connection, channel: &mut Channel) -> Result<(), Failure> {
    match channel.mode {
        Mode::Confirm(_) => return Err(Failure::precondition("cannot switch from confirm to tx mode")),
        Mode::Plain => {
            channel.mode = Mode::Transaction(Transaction::default());
            channel.flow.notes().set_mode(ChannelMode::Transaction);
        }
        Mode::Transaction(_) => {}
    }
    connection.out.method(channel.number, &tx::SelectOk {});
    Ok(())
}

fn transaction(channel: &mut Channel) -> Result<&mut Transaction, Failure> {
    match &mut channel.mode {
        Mode::Transaction(transaction) => Ok(transaction),
        Mode::Plain | Mode::Confirm(_) => Err(Failure::precondition("channel is not transactional")),
    }
}

/// Routes messages, and says what was said of deliveries, for one turn; the caller calls again when the connection pauses.
pub(crate) fn commit(connection: &mut Connection, channel: &mut Channel) -> Result<(), Failure> {
    transaction(channel)?.commit(connection.publisher.lost());
    if !route_on(connection, channel, STEPS_MAX)? || !settle_on(connection, channel, SETTLED_AT_ONCE)? {
        connection.pauses = true;
        return Ok(());
    }
    let (lost_before, publishes, queues) =
        transaction(channel)?.end().map_or((connection.publisher.lost(), false, Vec::new()), |commit| {
            (commit.lost_before, commit.publishes, commit.queues.into_values().collect::<Vec<_>>())
        });
    connection.flush();
    let token = connection.take_token();
    let asker = Acknowledgement::new(connection.reply_to(token));
    connection.broker().flush_queues(&queues, &asker);
    connection.wait_for_channel(token, channel, COMMIT, move |connection, channel, Acknowledged(durable)| {
        if !durable {
            return Err(incomplete());
        }
        if !publishes {
            return finish_commit(connection, channel, connection.publisher.lost());
        }
        connection.waiting = Some(Waiting::Commit { channel: channel.number, lost_before });
        Ok(())
    });
    Ok(())
}

/// The channel ends: a commit that has begun is gone through with, so that a queue has all of it or nothing. One that takes very long leaves a part.
pub(crate) fn finish(connection: &mut Connection, channel: &mut Channel) {
    if !matches!(&channel.mode, Mode::Transaction(transaction) if transaction.is_committing()) {
        return;
    }
    if matches!(route_on(connection, channel, LAST_STEPS_MAX), Ok(true)) {
        let _ = settle_on(connection, channel, usize::MAX);
    }
}

/// Goes on with the messages of a commit. False: so many steps were taken, and there are more.
///
/// # Errors
/// See [`route`]. What was not routed is forgotten.
fn route_on(connection: &mut Connection, channel: &mut Channel, steps_max: usize) -> Result<bool, Failure> {
    let vhost = Arc::clone(&channel.vhost);
    let (mut table, mut steps) = (Table::new(&vhost), 0);
    // Each is gone when it has been routed: what is routed is counted as held.
    while let Some((held, bytes)) = transaction(channel)?.next_message() {
        connection.unfinished.sub(bytes);
        let routed =
            held.with_message(|message| route(connection, channel, &mut table, &message, (held.mandatory, None)));
        if let Err(failure) = routed {
            let rest = std::mem::take(transaction(channel)?);
            connection.unfinished.sub(rest.memory());
            return Err(failure);
        }
        steps += MESSAGE_STEPS + connection.scratch.steps() + connection.routed.len();
        if steps >= steps_max {
            return Ok(false);
        }
    }
    Ok(true)
}

/// All messages were routed: what was said of deliveries holds now, so many of them at once. False: there are more.
fn settle_on(connection: &mut Connection, channel: &mut Channel, most: usize) -> Result<bool, Failure> {
    let transaction = transaction(channel)?;
    for _ in 0..most {
        let Some((one, queues)) = transaction.next_outcome() else { return Ok(true) };
        connection.unfinished.sub(OUTCOME_BYTES);
        if let Some(consumer) = connection.consumers.get(&one.consumer) {
            queues.entry(consumer.queue.id()).or_insert_with(|| Arc::clone(&consumer.queue));
        }
        connection.settle(one.consumer, one.offset, one.outcome);
    }
    Ok(false)
}

const COMMIT: MethodId = tx::Commit::ID;

fn incomplete() -> Failure {
    Failure::connection(ReplyCode::InternalError, "partial tx completion").of(COMMIT)
}

/// All that the transaction published has its outcome.
///
/// # Errors
/// *541*: something was not kept. *406*: a queue has refused something.
pub(crate) fn finish_commit(
    connection: &mut Connection,
    channel: &mut Channel,
    lost_before: u64,
) -> Result<(), Failure> {
    if connection.publisher.lost() > lost_before {
        return Err(incomplete());
    }
    if let Mode::Transaction(transaction) = &mut channel.mode
        && std::mem::take(&mut transaction.refused)
    {
        return Err(Failure::precondition("partial tx completion").of(COMMIT));
    }
    connection.out.method(channel.number, &tx::CommitOk {});
    Ok(())
}

pub(crate) fn rollback(connection: &mut Connection, channel: &mut Channel) -> Result<(), Failure> {
    let transaction = std::mem::take(transaction(channel)?);
    connection.unfinished.sub(transaction.memory());
    channel.unacked.restore(transaction.unsaid().map(|one| (one.tag, one.consumer, one.offset)));
    connection.out.method(channel.number, &tx::RollbackOk {});
    Ok(())
}
