//! Class exchange: declare, delete, bind, unbind.

use std::sync::Arc;

use amqp_wire::{MethodId, ReplyCode, exchange};
use broker::{BindingWish, ExchangeError, Resource};
use routing::{Declaration, DeclareError};

use super::{name, without_line_ends};
use crate::arguments::arguments;
use crate::channel::Channel;
use crate::connection::Connection;
use crate::error::Failure;

pub(crate) fn handle(
    connection: &mut Connection,
    channel: &mut Channel,
    method: exchange::Method<'_>,
) -> Result<(), Failure> {
    match method {
        exchange::Method::Declare(method) => declare(connection, channel, method),
        exchange::Method::Delete(method) => delete(connection, channel, method),
        exchange::Method::Bind(exchange::Bind { destination, source, routing_key, no_wait, arguments }) => {
            let (destination, source) = (without_line_ends(&destination), without_line_ends(&source));
            let (wish, caller) = (wish(&destination, &source, &routing_key, arguments)?, connection.caller()?);
            let ok = (!no_wait).then_some(exchange::BindOk {});
            let vhost = Arc::clone(&channel.vhost);
            let method = exchange::Bind::ID;
            run(
                connection,
                channel,
                method,
                move |broker| broker.bind(&vhost, wish, &caller),
                move |connection, channel| {
                    ok.inspect(|ok| connection.out.method(channel.number, ok));
                },
            )
        }
        exchange::Method::Unbind(exchange::Unbind { destination, source, routing_key, no_wait, arguments }) => {
            let (destination, source) = (without_line_ends(&destination), without_line_ends(&source));
            let (wish, caller) = (wish(&destination, &source, &routing_key, arguments)?, connection.caller()?);
            let ok = (!no_wait).then_some(exchange::UnbindOk {});
            let vhost = Arc::clone(&channel.vhost);
            let method = exchange::Unbind::ID;
            run(
                connection,
                channel,
                method,
                move |broker| broker.unbind(&vhost, &wish, &caller),
                move |connection, channel| {
                    ok.inspect(|ok| connection.out.method(channel.number, ok));
                },
            )
        }
        exchange::Method::DeclareOk(_)
        | exchange::Method::DeleteOk(_)
        | exchange::Method::BindOk(_)
        | exchange::Method::UnbindOk(_) => Err(super::unimplemented()),
    }
}

fn wish(destination: &str, source: &str, key: &str, table: amqp_wire::TableRef<'_>) -> Result<BindingWish, Failure> {
    let (source, destination, key) = (name(source.as_bytes())?, name(destination.as_bytes())?, name(key.as_bytes())?);
    Ok(BindingWish { source, to_queue: false, destination, key, arguments: arguments(table) })
}

/// Has the controller do it, and answers with `then`.
pub(super) fn run<T: Send + 'static>(
    connection: &mut Connection,
    channel: &Channel,
    method: MethodId,
    work: impl FnOnce(&Arc<broker::Broker>) -> Result<T, ExchangeError> + Send + 'static,
    then: impl FnOnce(&mut Connection, &mut Channel) + 'static,
) -> Result<(), Failure> {
    connection.control(channel, method, work, move |connection, channel, outcome| match outcome {
        Ok(_) => {
            then(connection, channel);
            Ok(())
        }
        Err(error) => Err(Failure::of_exchange(error, channel.vhost.name())),
    })
}

fn declare(connection: &mut Connection, channel: &mut Channel, method: exchange::Declare<'_>) -> Result<(), Failure> {
    let exchange::Declare { exchange, kind, passive, durable, auto_delete, internal, no_wait, arguments: table } =
        method;
    let exchange = without_line_ends(&exchange);
    if exchange.is_empty() {
        return Err(Failure::channel(ReplyCode::AccessRefused, "operation not permitted on the default exchange"));
    }
    let ok = (!no_wait).then_some(exchange::DeclareOk {});
    if passive {
        connection.check_seen(Resource::Exchange(exchange.as_bytes()))?;
        if channel.vhost.exchanges().read().exchange(exchange.as_bytes()).is_none() {
            return Err(Failure::no_exchange(exchange.as_bytes(), channel.vhost.name()));
        }
        ok.inspect(|ok| connection.out.method(channel.number, ok));
        return Ok(());
    }
    let told = exchange.to_string();
    let (name, kind, arguments) = (name(exchange.as_bytes())?, kind.as_bytes().to_vec(), arguments(table));
    let (vhost, caller) = (Arc::clone(&channel.vhost), connection.caller()?);
    let work = move |broker: &Arc<broker::Broker>| {
        let declaration = Declaration { name, kind: &kind, durable, auto_delete, internal, arguments };
        broker.declare_exchange(&vhost, declaration, &caller.principal)
    };
    connection.control(channel, exchange::Declare::ID, work, move |connection, channel, outcome| match outcome {
        Ok(_) => {
            ok.inspect(|ok| connection.out.method(channel.number, ok));
            Ok(())
        }
        Err(ExchangeError::Declare(error @ DeclareError::ArgumentType { .. })) => {
            let vhost = channel.vhost.name();
            Err(Failure::precondition(format_args!("{error} in exchange '{told}' in vhost '{vhost}'")))
        }
        Err(error) => Err(Failure::of_exchange(error, channel.vhost.name())),
    })
}

fn delete(connection: &mut Connection, channel: &mut Channel, method: exchange::Delete<'_>) -> Result<(), Failure> {
    let exchange::Delete { exchange, if_unused, no_wait } = method;
    let exchange = without_line_ends(&exchange);
    let (name, ok) = (name(exchange.as_bytes())?, (!no_wait).then_some(exchange::DeleteOk {}));
    let (vhost, caller) = (Arc::clone(&channel.vhost), connection.caller()?);
    let work = move |broker: &Arc<broker::Broker>| broker.delete_exchange(&vhost, &name, if_unused, &caller.principal);
    run(connection, channel, exchange::Delete::ID, work, move |connection, channel| {
        ok.inspect(|ok| connection.out.method(channel.number, ok));
    })
}
