//! From a method to its handler: one file per class or family. What is checked here is who may send what, and when.

mod access;
mod acknowledge;
mod connection;
mod consume;
mod exchange;
mod get;
mod letters;
mod publish;
mod queue;
mod stream;
mod token;
mod transactions;

use amqp_wire::{Encode, Method, MethodId, ReplyCode, Sender, basic, channel, confirm, queue as queues, tx};
use broker::{ChannelMode, Queue};
use routing::Name;
use std::borrow::Cow;
use std::sync::Arc;

use crate::channel::{Channel, Mode};
use crate::confirms::Confirms;
use crate::connection::Connection;
use crate::error::Failure;

pub(crate) use acknowledge::finish_settling;
pub(crate) use connection::{
    FRAME_MAX_BEFORE, Handshake, Step, handle as handshake, logged_in, not_open, start, update_secret,
};
pub(crate) use consume::{deliver, gone};
pub(crate) use get::UnderWay;
pub(crate) use letters::await_letters;
pub(crate) use publish::{Table, check_exchange, check_rights, expiration, keys, publish};
pub(crate) use transactions::{finish as finish_commit_of, finish_commit};

/// What names are without.
const LINE_ENDS: [char; 2] = ['\r', '\n'];

/// Refuses what a client may not send.
///
/// # Errors
/// *503*.
pub(crate) fn check_sender(method: MethodId) -> Result<(), Failure> {
    match method.info() {
        Some(info) if info.sender != Sender::Broker => Ok(()),
        _ => Err(unimplemented()),
    }
}

fn unimplemented() -> Failure {
    Failure::connection(ReplyCode::CommandInvalid, "unimplemented method")
}

/// Does a method look at queues, so that what was published before has to be in them?
pub(crate) fn looks_at_queues(method: &Method<'_>) -> bool {
    matches!(
        method,
        Method::Queue(queues::Method::Declare(_) | queues::Method::Purge(_) | queues::Method::Delete(_))
            | Method::Basic(basic::Method::Get(_))
            | Method::Channel(channel::Method::Close(_))
            | Method::Connection(amqp_wire::connection::Method::Close(_))
    )
}

/// A method for an open channel, other than publish and those that open and close it.
pub(crate) fn handle(connection: &mut Connection, channel: &mut Channel, method: Method<'_>) -> Result<(), Failure> {
    match method {
        Method::Exchange(method) => exchange::handle(connection, channel, method),
        Method::Queue(method) => queue::handle(connection, channel, method),
        Method::Basic(method) => match method {
            basic::Method::Qos(method) => consume::qos(connection, channel, method),
            basic::Method::Consume(method) => consume::consume(connection, channel, method),
            basic::Method::Cancel(method) => consume::cancel(connection, channel, method),
            // The answer to a cancel of ours, of a client that was not told to be silent.
            basic::Method::CancelOk(_) => Ok(()),
            basic::Method::Get(method) => get::get(connection, channel, method),
            basic::Method::Ack(method) => acknowledge::ack(connection, channel, method),
            basic::Method::Nack(method) => acknowledge::nack(connection, channel, method),
            basic::Method::Reject(method) => acknowledge::reject(connection, channel, method),
            basic::Method::Recover(method) => acknowledge::recover(connection, channel, method),
            basic::Method::RecoverAsync(method) => acknowledge::recover_async(connection, channel, method),
            _ => Err(unimplemented()),
        },
        Method::Confirm(confirm::Method::Select(method)) => confirm_select(connection, channel, method),
        Method::Tx(tx::Method::Select(_)) => transactions::select(connection, channel),
        Method::Tx(tx::Method::Commit(_)) => transactions::commit(connection, channel),
        Method::Tx(tx::Method::Rollback(_)) => transactions::rollback(connection, channel),
        Method::Access(method) => access::handle(connection, channel, method),
        Method::Channel(channel::Method::Flow(method)) if method.active => {
            connection.out.method(channel.number, &channel::FlowOk { active: true });
            Ok(())
        }
        Method::Channel(channel::Method::Flow(_)) => Err(Failure::not_implemented("active=false")),
        Method::Connection(_) | Method::Channel(_) | Method::Confirm(_) | Method::Tx(_) => Err(unimplemented()),
    }
    .map_err(|failure| failure.of(method.id()))
}

fn confirm_select(connection: &mut Connection, channel: &mut Channel, method: confirm::Select) -> Result<(), Failure> {
    match channel.mode {
        Mode::Transaction(_) => return Err(Failure::precondition("cannot switch from tx to confirm mode")),
        Mode::Plain => {
            channel.mode = Mode::Confirm(Confirms::default());
            channel.flow.notes().set_mode(ChannelMode::Confirm);
        }
        Mode::Confirm(_) => {}
    }
    if !method.no_wait {
        connection.out.method(channel.number, &confirm::SelectOk {});
    }
    Ok(())
}

/// The queue's name that a method means: an empty one is the last that was declared on the channel.
fn queue_name(channel: &Channel, name: &str) -> Result<Name, Failure> {
    if name.is_empty() {
        let last = channel.last_queue.clone();
        return last.ok_or_else(|| Failure::channel(ReplyCode::NotFound, "no previously declared queue"));
    }
    self::name(name.as_bytes())
}

/// The name of a queue or an exchange as it is declared, bound and deleted: line ends are taken off, as in RabbitMQ.
fn without_line_ends(name: &str) -> Cow<'_, str> {
    if name.contains(LINE_ENDS) { Cow::Owned(name.replace(LINE_ENDS, "")) } else { Cow::Borrowed(name) }
}

/// A name from the wire.
fn name(bytes: &[u8]) -> Result<Name, Failure> {
    Name::new(bytes).map_err(|error| Failure::connection(ReplyCode::FrameError, error))
}

/// The queue that a method means, if the connection may use it.
fn queue_of(connection: &Connection, channel: &Channel, name: &str) -> Result<Arc<Queue>, Failure> {
    let name = queue_name(channel, name)?;
    Ok(connection.broker().queue_for(&channel.vhost, &name, connection.id)?)
}
