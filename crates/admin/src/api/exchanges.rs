//! Exchanges: list, look at, make, delete.

use broker::{ExchangeError, QueueError, Vhost, Via};
use routing::{BindError, Declaration, DeclareError, Declared, DeleteError, Exchange};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::bindings::{self, BINDING};
use super::call::{Call, name_of};
use super::listing::list;
use super::queues::arguments_of;
use super::rights::denied;
use super::route::{self, Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};
use crate::control::await_policies;
use crate::management::values;

const EXCHANGE: Schema = Schema::new(
    "Exchange",
    &[
        ("name", Kind::Text, "Its name; empty: the default exchange."),
        ("vhost", Kind::Text, "Its virtual host."),
        ("type", Kind::Text, "direct, fanout, topic, headers, x-delayed-message …"),
        ("durable", Kind::Bool, "It outlives a restart."),
        ("auto_delete", Kind::Bool, "It goes with its last binding."),
        ("internal", Kind::Bool, "Clients do not publish to it."),
        ("arguments", Kind::Object, "As it was declared."),
        ("bindings", Kind::Int, "How many lead from it; of the default exchange one for each queue."),
    ],
);

const EXCHANGE_FULL: Schema = Schema::more(
    "ExchangeFull",
    &EXCHANGE,
    &[
        ("outgoing", Kind::List(&Kind::One(&BINDING)), "What leads from it."),
        ("incoming", Kind::List(&Kind::One(&BINDING)), "What leads to it."),
    ],
);

const WISH: Schema = Schema::body(
    "ExchangeWish",
    &[],
    &[
        ("type", Kind::Text, "direct if absent."),
        ("durable", Kind::Bool, "It outlives a restart; true if absent."),
        ("auto_delete", Kind::Bool, "It goes with its last binding."),
        ("internal", Kind::Bool, "Clients do not publish to it."),
        ("arguments", Kind::Object, "As a client would give them."),
    ],
);

/// The name under which paths know the default exchange.
const DEFAULT: &str = "amq.default";

pub(crate) const ROUTES: &[Route] = &[
    route::list("/exchanges", Access::LoggedIn, "Exchanges of all virtual hosts", &EXCHANGE, all),
    route::list("/exchanges/{vhost}", Access::LoggedIn, "Exchanges of a virtual host", &EXCHANGE, all),
    get(
        "/exchanges/{vhost}/{exchange}",
        Access::LoggedIn,
        "An exchange and its bindings; the default one is amq.default",
        &EXCHANGE_FULL,
        show,
    ),
    change(
        Verb::Put,
        "/exchanges/{vhost}/{exchange}",
        Access::LoggedIn,
        "Declare an exchange",
        Shape::One(&EXCHANGE),
        put,
    )
    .takes(&WISH)
    .makes(),
    change(
        Verb::Delete,
        "/exchanges/{vhost}/{exchange}",
        Access::LoggedIn,
        "Delete an exchange",
        Shape::Nothing,
        delete,
    )
    .asks(&[("if_unused", Kind::Bool, "true: only if nothing leads from it.")]),
];

fn described(vhost: &Vhost, exchange: &Exchange<'_>, bindings: usize) -> Value {
    json!({
        "name": exchange.name().to_string(),
        "vhost": vhost.name(),
        "type": exchange.kind_name(),
        "durable": exchange.durable(),
        "auto_delete": exchange.auto_delete(),
        "internal": exchange.internal(),
        "arguments": values::arguments(exchange.arguments()),
        "bindings": bindings,
    })
}

/// One by its name, if it is still there.
fn one(vhost: &Vhost, name: &[u8]) -> Option<Value> {
    let table = vhost.exchanges().read();
    let exchange = table.exchange(name)?;
    Some(described(vhost, &exchange, table.bindings_from(name).count()))
}

/// The exchange of the path, as the broker has it.
pub(crate) fn wanted<'c>(call: &'c Call<'_>) -> &'c str {
    Some(call.path("exchange")).filter(|name| *name != DEFAULT).unwrap_or_default()
}

fn all(call: &Call<'_>) -> Outcome {
    let mut found = Vec::new();
    for vhost in call.chosen_vhosts()? {
        let names: Vec<_> = vhost.exchanges().read().exchanges().map(|exchange| exchange.name().clone()).collect();
        found.extend(names.into_iter().map(|name| (name.to_string(), (std::sync::Arc::clone(&vhost), name))));
    }
    list(call, found, |(vhost, name)| one(vhost, name))
}

pub(crate) fn missing(name: &str) -> Refusal {
    Answer::not_found(format!("there is no exchange {name:?}"))
}

fn show(call: &Call<'_>) -> Outcome {
    let (vhost, name) = (call.vhost()?, wanted(call));
    let mut found = one(&vhost, name.as_bytes()).ok_or_else(|| missing(name))?;
    found["outgoing"] = bindings::from_exchange(&vhost, name.as_bytes()).into();
    found["incoming"] = bindings::to_exchange(&vhost, name.as_bytes()).into();
    Ok(Answer::of(found))
}

/// Why an exchange or a binding is as it was.
pub(crate) fn refused(error: ExchangeError) -> Refusal {
    match error {
        ExchangeError::Declare(DeclareError::Reserved(_) | DeclareError::DefaultExchange) => {
            Answer::not_allowed("the name is reserved, or it is the default exchange")
        }
        ExchangeError::Delete(DeleteError::Reserved(_) | DeleteError::DefaultExchange) => {
            Answer::not_allowed("predefined exchanges stay")
        }
        ExchangeError::Bind(BindError::DefaultExchange) => {
            Answer::not_allowed("the default exchange has a binding to each queue, and no others")
        }
        ExchangeError::Bind(BindError::NoExchange(name)) => missing(&name.to_string()),
        ExchangeError::Declare(DeclareError::Inequivalent { name, difference }) => Answer::conflict(format!(
            "exchange '{name}' is there already, with another {}: {difference}",
            difference.field()
        )),
        ExchangeError::Denied(denial) => denied(&denial),
        ExchangeError::TooMany { .. } | ExchangeError::NoMemory { .. } => Answer::conflict(error.to_string()),
        ExchangeError::Delete(DeleteError::InUse(name)) => Answer::conflict(format!("exchange '{name}' is in use")),
        ExchangeError::Queue(error @ (QueueError::NotFound { .. } | QueueError::VhostDeleted(_))) => {
            Answer::not_found(error.to_string())
        }
        ExchangeError::Append(error) => Answer::failed(error),
        other => Answer::bad_request(other.to_string()),
    }
}

fn put(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    let body = call.object()?;
    body.only(&["type", "durable", "auto_delete", "internal", "arguments"])?;
    let kind = body.text("type")?.unwrap_or("direct").to_owned();
    let wished = name_of("exchange", wanted(call))?;
    let (durable, auto_delete, internal) =
        (body.bool("durable", true)?, body.bool("auto_delete", false)?, body.bool("internal", false)?);
    let arguments = arguments_of(&body, &[])?;
    let (place, name, caller) =
        (std::sync::Arc::clone(&vhost), wished.clone(), call.caller.who.caller(Via::Administration));
    let made = call.control(move |broker| {
        let declaration = Declaration { name, kind: kind.as_bytes(), durable, auto_delete, internal, arguments };
        broker.declare_exchange(&place, declaration, &caller.principal)
    })?;
    let declared = made.map_err(refused)?;
    if !await_policies(&vhost) {
        return Err(Answer::busy());
    }
    let found = one(&vhost, &wished).ok_or_else(|| missing(wanted(call)))?;
    Ok(Answer::made(declared == Declared::New, found))
}

fn delete(call: &Call<'_>) -> Outcome {
    let (vhost, name) = (call.vhost()?, wanted(call).as_bytes().to_vec());
    if vhost.exchanges().read().exchange(&name).is_none() {
        return Err(missing(wanted(call)));
    }
    let (if_unused, caller) = (call.flag("if_unused"), call.caller.who.caller(Via::Administration));
    call.control(move |broker| broker.delete_exchange(&vhost, &name, if_unused, &caller.principal))?
        .map_err(refused)?;
    Ok(Answer::done())
}
