//! Class basic, what is said of deliveries: ack, nack, reject, recover.

use amqp_wire::basic;
use broker::Outcome;

use crate::channel::{Channel, Mode};
use crate::connection::Connection;
use crate::error::Failure;
use crate::transaction::{HeldOutcome, OUTCOME_BYTES};

/// What one turn does of what is said of many messages.
const SETTLED_AT_ONCE: usize = 5_000;

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
    if matches!(channel.mode, Mode::Transaction(_)) {
        return hold(connection, channel, tag, multiple, outcome);
    }
    if !multiple {
        let (consumer, offset) = channel.unacked.take(tag).ok_or_else(unknown)?;
        connection.settle(consumer, offset, outcome);
        return Ok(());
    }
    if settle_through(connection, channel, tag, outcome) { Ok(()) } else { Err(unknown()) }
}

/// One turn of what is said of all messages up to this one, or of all that the channel has now (0). Where there are more than fit into a turn the
/// connection pauses, and the method is looked at again. False: the channel does not have this one.
fn settle_through(connection: &mut Connection, channel: &mut Channel, tag: u64, outcome: Outcome) -> bool {
    let through = match (channel.settling, tag) {
        (Some((through, _)), _) => through,
        (None, 0) => match channel.unacked.newest() {
            Some(newest) => newest,
            None => return true,
        },
        (None, tag) => tag,
    };
    let taken = channel
        .unacked
        .take_through(through, SETTLED_AT_ONCE, |_, consumer, offset| connection.settle(consumer, offset, outcome));
    channel.settling = (taken == Some(false)).then_some((through, outcome));
    connection.pauses |= channel.settling.is_some();
    taken.is_some()
}

/// The channel ends: what it has begun to say of many messages counts for all of them.
pub(crate) fn finish_settling(connection: &mut Connection, channel: &mut Channel) {
    if let Some((through, outcome)) = channel.settling.take() {
        channel
            .unacked
            .take_through(through, usize::MAX, |_, consumer, offset| connection.settle(consumer, offset, outcome));
    }
}

/// In a transaction: the deliveries are no longer the client's to speak of, unless it rolls back.
fn hold(
    connection: &mut Connection,
    channel: &mut Channel,
    tag: u64,
    multiple: bool,
    outcome: Outcome,
) -> Result<(), Failure> {
    let Mode::Transaction(transaction) = &mut channel.mode else { return Ok(()) };
    let unknown = || Failure::precondition(format_args!("unknown delivery tag {tag}"));
    let mut taken = Vec::new();
    let mut each = |tag, consumer, offset| taken.push(HeldOutcome { tag, consumer, offset, outcome });
    match (multiple, tag) {
        (false, _) => {
            let (consumer, offset) = channel.unacked.take(tag).ok_or_else(unknown)?;
            each(tag, consumer, offset);
        }
        (true, 0) => channel.unacked.take_all(each),
        (true, _) => drop(channel.unacked.take_through(tag, usize::MAX, each).ok_or_else(unknown)?),
    }
    // They cannot wait: they are not the client's any more. If there is no room for them they go back with the channel.
    let has_room = connection.has_room_now(taken.len() * OUTCOME_BYTES);
    for one in taken {
        connection.unfinished.add(OUTCOME_BYTES);
        transaction.hold_outcome(one, connection.now)?;
    }
    if has_room { Ok(()) } else { Err(Failure::no_room()) }
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
    settle_through(connection, channel, 0, Outcome::Requeue);
    Ok(())
}
