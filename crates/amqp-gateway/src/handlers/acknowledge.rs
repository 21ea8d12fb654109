//! Class basic, what is said of deliveries: ack, nack, reject, recover.

use amqp_wire::basic;
use broker::Outcome;

use crate::channel::{Channel, Mode};
use crate::connection::Connection;
use crate::error::Failure;
use crate::transaction::{HeldOutcome, OUTCOME_BYTES};

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

fn settle(connection: &mut Connection, channel: &mut Channel, tag: u64, multiple: bool, outcome: Outcome) -> Result<(), Failure> {
    let unknown = || Failure::precondition(format_args!("unknown delivery tag {tag}"));
    if matches!(channel.mode, Mode::Transaction(_)) {
        return hold(connection, channel, tag, multiple, outcome);
    }
    if !multiple {
        let (consumer, offset) = channel.unacked.take(tag).ok_or_else(unknown)?;
        connection.settle(consumer, offset, outcome);
        return Ok(());
    }
    if tag == 0 {
        channel.unacked.take_all(|_, consumer, offset| connection.settle(consumer, offset, outcome));
        return Ok(());
    }
    let known = channel.unacked.take_through(tag, |_, consumer, offset| connection.settle(consumer, offset, outcome));
    if known { Ok(()) } else { Err(unknown()) }
}

/// In a transaction: the deliveries are no longer the client's to speak of, unless it rolls back.
fn hold(connection: &mut Connection, channel: &mut Channel, tag: u64, multiple: bool, outcome: Outcome) -> Result<(), Failure> {
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
        (true, _) => channel.unacked.take_through(tag, each).then_some(()).ok_or_else(unknown)?,
    }
    // They cannot wait: they are not the client's any more. If there is no room for them they go back with the channel.
    let has_room = connection.has_room_now(taken.len() * OUTCOME_BYTES);
    for one in taken {
        connection.unfinished.add(OUTCOME_BYTES);
        transaction.hold_outcome(one, connection.now)?;
    }
    if has_room { Ok(()) } else { Err(Failure::no_room()) }
}

pub(crate) fn recover(connection: &mut Connection, channel: &mut Channel, method: basic::Recover) -> Result<(), Failure> {
    give_back(connection, channel, method.requeue)?;
    connection.out.method(channel.number, &basic::RecoverOk {});
    Ok(())
}

pub(crate) fn recover_async(connection: &mut Connection, channel: &mut Channel, method: basic::RecoverAsync) -> Result<(), Failure> {
    give_back(connection, channel, method.requeue)
}

fn give_back(connection: &mut Connection, channel: &mut Channel, requeue: bool) -> Result<(), Failure> {
    if !requeue {
        return Err(Failure::not_implemented("requeue=false"));
    }
    channel.unacked.take_all(|_, consumer, offset| connection.settle(consumer, offset, Outcome::Requeue));
    Ok(())
}
