//! Class basic, what is said of deliveries: ack, nack, reject, recover.

use amqp_wire::basic;
use broker::Outcome;

use crate::channel::{Channel, Mode};
use crate::connection::Connection;
use crate::error::Failure;
use crate::transaction::{HeldOutcome, OUTCOME_BYTES};

/// What one turn does of what is said of many messages.
pub(super) const SETTLED_AT_ONCE: usize = 5_000;

pub(crate) fn ack(connection: &mut Connection, channel: &mut Channel, method: basic::Ack) -> Result<(), Failure> {
    settle(connection, channel, method.delivery_tag, method.multiple, Outcome::Ack)
}

pub(crate) fn nack(connection: &mut Connection, channel: &mut Channel, method: basic::Nack) -> Result<(), Failure> {
    let outcome = if method.requeue { Outcome::Requeue } else { Outcome::Reject };
    settle(connection, channel, method.delivery_tag, method.multiple, outcome)
}

pub(crate) fn reject(connection: &mut Connection, channel: &mut Channel, method: basic::Reject) -> Result<(), Failure> {
    let outcome = if method.requeue { Outcome::RequeueFailed } else { Outcome::RejectFailed };
    settle(connection, channel, method.delivery_tag, false, outcome)
}

fn settle(
    connection: &mut Connection,
    channel: &mut Channel,
    tag: u64,
    multiple: bool,
    outcome: Outcome,
) -> Result<(), Failure> {
    let unknown = || Failure::precondition(format_args!("unknown delivery tag {tag}"));
    if multiple {
        return if settle_through(connection, channel, tag, outcome, true)? { Ok(()) } else { Err(unknown()) };
    }
    let (consumer, offset) = channel.unacked.take(tag).ok_or_else(unknown)?;
    match &mut channel.mode {
        Mode::Transaction(transaction) => {
            let held = transaction.hold_outcome(HeldOutcome { tag, consumer, offset, outcome }, connection.now);
            held.and(keep_room(connection, 1))
        }
        Mode::Plain | Mode::Confirm(_) => {
            connection.settle(consumer, offset, outcome);
            Ok(())
        }
    }
}

/// One turn of what is said of all messages up to this one, or of all that the channel has now (0). Where there are more than fit into a turn the
/// connection pauses, and the method is looked at again. In a transaction it is held, if it can be: the deliveries are no longer the client's to
/// speak of, unless it rolls back. False: the channel does not have this one.
///
/// # Errors
/// The transaction has no room for it.
fn settle_through(
    connection: &mut Connection,
    channel: &mut Channel,
    tag: u64,
    outcome: Outcome,
    may_hold: bool,
) -> Result<bool, Failure> {
    let through = match (channel.settling, tag) {
        (Some((through, _)), _) => through,
        (None, 0) => match channel.unacked.newest() {
            Some(newest) => newest,
            None => return Ok(true),
        },
        (None, tag) => tag,
    };
    let (now, mut count, mut held) = (connection.now, 0, Ok(()));
    let taken = match &mut channel.mode {
        Mode::Transaction(transaction) if may_hold => {
            channel.unacked.take_through(through, SETTLED_AT_ONCE, |tag, consumer, offset| {
                count += 1;
                let one = transaction.hold_outcome(HeldOutcome { tag, consumer, offset, outcome }, now);
                if held.is_ok() {
                    held = one;
                }
            })
        }
        _ => channel
            .unacked
            .take_through(through, SETTLED_AT_ONCE, |_, consumer, offset| connection.settle(consumer, offset, outcome)),
    };
    if count > 0 {
        held.and(keep_room(connection, count))?;
    }
    channel.settling = (taken == Some(false)).then_some((through, outcome));
    connection.pauses |= channel.settling.is_some();
    Ok(taken.is_some())
}

/// Counts what a transaction holds now. It cannot wait for memory: the deliveries are not the client's any more. If there is no room for it they go back with the
/// channel.
fn keep_room(connection: &mut Connection, count: usize) -> Result<(), Failure> {
    let has_room = connection.has_room_now(count * OUTCOME_BYTES);
    connection.unfinished.add(count * OUTCOME_BYTES);
    if has_room { Ok(()) } else { Err(Failure::no_room()) }
}

/// The channel ends: what it has begun to say of many messages counts for all of them, but in a transaction, which is not committed.
pub(crate) fn finish_settling(connection: &mut Connection, channel: &mut Channel) {
    let begun = channel.settling.take();
    if let Some((through, outcome)) = begun.filter(|_| !matches!(channel.mode, Mode::Transaction(_))) {
        channel
            .unacked
            .take_through(through, usize::MAX, |_, consumer, offset| connection.settle(consumer, offset, outcome));
    }
}

pub(crate) fn recover(
    connection: &mut Connection,
    channel: &mut Channel,
    method: basic::Recover,
) -> Result<(), Failure> {
    give_back(connection, channel, method.requeue)?;
    if channel.settling.is_none() {
        connection.out.method(channel.number, &basic::RecoverOk {});
    }
    Ok(())
}

pub(crate) fn recover_async(
    connection: &mut Connection,
    channel: &mut Channel,
    method: basic::RecoverAsync,
) -> Result<(), Failure> {
    give_back(connection, channel, method.requeue)
}

fn give_back(connection: &mut Connection, channel: &mut Channel, requeue: bool) -> Result<(), Failure> {
    if !requeue {
        return Err(Failure::not_implemented("requeue=false"));
    }
    settle_through(connection, channel, 0, Outcome::Requeue, false).map(drop)
}
