//! Exchanges: list, look at, make, delete. What leads from and to them is in `bindings`.

use std::sync::Arc;

use axum::http::Method;
use broker::{ExchangeError, QueueError, Vhost, Via};
use routing::{BindError, Declaration, DeclareError, Declared, DeleteError, Exchange};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, await_policies, boolean, name, text};
use super::listing::{list_each, one};
use super::route::{Access, Route, route};
use super::values;

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/exchanges", Access::Management, all),
    route(Method::GET, "/exchanges/{vhost}", Access::Vhost, all),
    route(Method::GET, "/exchanges/{vhost}/{name}", Access::Vhost, show),
    route(Method::PUT, "/exchanges/{vhost}/{name}", Access::Vhost, put),
    route(Method::DELETE, "/exchanges/{vhost}/{name}", Access::Vhost, delete),
];

/// Types of exchanges, and what they are.
pub(crate) const TYPES: [(&str, &str); 9] = [
    ("direct", "AMQP direct exchange, as per the AMQP specification"),
    ("fanout", "AMQP fanout exchange, as per the AMQP specification"),
    ("headers", "AMQP headers exchange, as per the AMQP specification"),
    ("topic", "AMQP topic exchange, as per the AMQP specification"),
    ("x-consistent-hash", "Consistent Hashing Exchange"),
    ("x-delayed-message", "Delayed Message Exchange."),
    ("x-local-random", "Picks one random local binding (queue) to route via (to)."),
    ("x-modulus-hash", "Modulus Hashing Exchange"),
    ("x-random", "Randomly picks a binding (queue) to route via (to)."),
];

/// The name under which paths know the default exchange.
pub(crate) const DEFAULT: &str = "amq.default";

/// An exchange's name from a path.
pub(crate) fn plain_name(given: &str) -> &str {
    if given == DEFAULT { "" } else { given }
}

/// As RabbitMQ lists it.
pub(crate) fn described(vhost: &Vhost, exchange: &Exchange<'_>) -> Value {
    json!({
        "name": exchange.name().to_string(),
        "vhost": vhost.name(),
        "type": exchange.kind_name(),
        "durable": exchange.durable(),
        "auto_delete": exchange.auto_delete(),
        "internal": exchange.internal(),
        "arguments": values::arguments(exchange.arguments()),
        "user_who_performed_action": if exchange.name().is_empty() || exchange.name().starts_with(b"amq.") { "rmq-internal" } else { "" },
    })
}

fn all(call: &Call<'_>) -> Outcome {
    let vhosts = call.chosen_vhosts()?;
    list_each(call, |put| {
        for vhost in &vhosts {
            let table = vhost.exchanges().read();
            let mut exchanges: Vec<_> = table.exchanges().collect();
            exchanges.sort_by(|one, other| one.name().cmp(other.name()));
            exchanges.iter().for_each(|exchange| put(&described(vhost, exchange)));
        }
    })
}

fn show(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    let table = vhost.exchanges().read();
    let exchange = table.exchange(plain_name(call.path("name")).as_bytes()).ok_or_else(Answer::not_found)?;
    let mut found = described(&vhost, &exchange);
    found["incoming"] = json!([]);
    found["outgoing"] = json!([]);
    drop(table);
    one(call, found)
}

fn put(call: &Call<'_>) -> Outcome {
    let vhost = call.broker().vhosts().get(call.path("vhost")).ok_or_else(|| Answer::no_such("vhost_not_found"))?;
    let body = call.object()?;
    let kind = match text(&body, "type")? {
        "" => "direct".to_owned(),
        kind => kind.to_owned(),
    };
    let wished = name(plain_name(call.path("name")))?;
    let (durable, auto_delete) = (boolean(&body, "durable", false)?, boolean(&body, "auto_delete", false)?);
    let internal = boolean(&body, "internal", false)?;
    let arguments = values::arguments_of(body.get("arguments"))?;
    let (place, caller) = (Arc::clone(&vhost), call.who.caller(Via::Management));
    let made = call.control(move |broker| {
        let kind = kind.as_bytes();
        broker.declare_exchange(
            &place,
            Declaration { name: wished, kind, durable, auto_delete, internal, arguments },
            &caller.principal,
        )
    })?;
    let declared = made.map_err(|error| refused(error, vhost.name()))?;
    await_policies(&vhost)?;
    Ok(Answer::put(declared == Declared::New))
}

fn delete(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    let wanted = plain_name(call.path("name")).as_bytes().to_vec();
    if vhost.exchanges().read().exchange(&wanted).is_none() {
        return Err(Answer::not_found());
    }
    let if_unused = call.flag("if-unused");
    let (host, caller) = (vhost.name().to_owned(), call.who.caller(Via::Management));
    call.control(move |broker| broker.delete_exchange(&vhost, &wanted, if_unused, &caller.principal))?
        .map_err(|error| refused(error, &host))?;
    Ok(Answer::done())
}

/// Why an exchange or a binding is not as it was wanted.
pub(crate) fn refused(error: ExchangeError, vhost: &str) -> Refusal {
    match error {
        ExchangeError::Declare(DeclareError::Reserved(_) | DeclareError::DefaultExchange)
        | ExchangeError::Delete(DeleteError::Reserved(_) | DeleteError::DefaultExchange)
        | ExchangeError::Bind(BindError::DefaultExchange)
        | ExchangeError::Denied(_) => Answer::not_authorised("Access refused."),
        ExchangeError::Bind(BindError::NoExchange(name)) => {
            Answer::no_such(format!("no exchange '{name}' in vhost '{vhost}'"))
        }
        ExchangeError::Declare(DeclareError::Inequivalent { name, difference }) => {
            let field = difference.field();
            Answer::bad_request(format!(
                "inequivalent arg '{field}' for exchange '{name}' in vhost '{vhost}': {difference}"
            ))
        }
        ExchangeError::Delete(DeleteError::InUse(name)) => {
            Answer::bad_request(format!("exchange '{name}' in vhost '{vhost}' in use"))
        }
        ExchangeError::Queue(error @ QueueError::NotFound { .. }) => Answer::no_such(error.to_string()),
        ExchangeError::Queue(QueueError::VhostDeleted(_)) => Answer::not_found(),
        ExchangeError::Append(error) => Answer::failed(error),
        other => Answer::bad_request(other.to_string()),
    }
}
