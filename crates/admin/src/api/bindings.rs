//! Bindings: list, make, delete. A binding has no name: what deletes it says all of it.

use std::sync::Arc;

use broker::{BindingWish, Vhost, Via};
use routing::{Binding, Destination};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, name_of};
use super::exchanges::refused;
use super::listing::list;
use super::queues::arguments_of;
use super::route::{self, Access, Route, Shape, Verb, change};
use super::schema::{Field, Kind, Schema};
use crate::bindings::{Known, Walk};
use crate::management::values;

pub(crate) const BINDING: Schema = Schema::new(
    "Binding",
    &[
        ("vhost", Kind::Text, "Its virtual host."),
        ("source", Kind::Text, "The exchange that it leads from; empty: the default exchange."),
        ("destination", Kind::Text, "The queue or exchange that it leads to."),
        ("destination_kind", Kind::Text, "queue or exchange."),
        ("routing_key", Kind::Text, "What messages have to have, by the type of the exchange."),
        ("arguments", Kind::Object, "As they were given."),
    ],
);

const WISH: Schema = Schema::body(
    "BindingWish",
    &["source", "destination"],
    &[
        ("source", Kind::Text, "An exchange."),
        ("destination", Kind::Text, "A queue or an exchange."),
        ("destination_kind", Kind::Text, "queue or exchange; queue if absent."),
        ("routing_key", Kind::Text, "Empty if absent."),
        ("arguments", Kind::Object, "As a client would give them."),
    ],
);

const OF_DEFAULT: &[Field] = &[("default", Kind::Bool, "true: those of the default exchange, too.")];

pub(crate) const ROUTES: &[Route] = &[
    route::list("/bindings", Access::LoggedIn, "Bindings of all virtual hosts", &BINDING, all).asks(OF_DEFAULT),
    route::list("/bindings/{vhost}", Access::LoggedIn, "Bindings of a virtual host", &BINDING, all).asks(OF_DEFAULT),
    change(
        Verb::Post,
        "/bindings/{vhost}",
        Access::LoggedIn,
        "Bind a queue or an exchange to an exchange",
        Shape::One(&BINDING),
        make,
    )
    .takes(&WISH)
    .makes(),
    change(
        Verb::Post,
        "/bindings/{vhost}/delete",
        Access::LoggedIn,
        "Delete a binding: the body says which",
        Shape::Nothing,
        delete,
    )
    .takes(&WISH),
];

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn described(vhost: &Vhost, binding: &Binding<'_>) -> Value {
    json!({
        "vhost": vhost.name(),
        "source": lossy(binding.source),
        "destination": binding.destination_name.to_string(),
        "destination_kind": if matches!(binding.destination, Destination::Queue(_)) { "queue" } else { "exchange" },
        "routing_key": lossy(binding.key),
        "arguments": values::arguments(&binding.arguments),
    })
}

/// What leads to a queue, beside the default exchange.
pub(crate) fn to_queue(vhost: &Vhost, name: &[u8]) -> Vec<Value> {
    let table = vhost.exchanges().read();
    let Some(id) = table.queue(name) else { return Vec::new() };
    table
        .bindings_to(Destination::Queue(id))
        .filter(|one| !one.source.is_empty())
        .map(|one| described(vhost, &one))
        .collect()
}

/// What leads to an exchange.
pub(crate) fn to_exchange(vhost: &Vhost, name: &[u8]) -> Vec<Value> {
    let table = vhost.exchanges().read();
    let Some(exchange) = table.exchange(name) else { return Vec::new() };
    table.bindings_to(Destination::Exchange(exchange.name())).map(|one| described(vhost, &one)).collect()
}

/// What leads from an exchange.
pub(crate) fn from_exchange(vhost: &Vhost, name: &[u8]) -> Vec<Value> {
    vhost.exchanges().read().bindings_from(name).map(|one| described(vhost, &one)).collect()
}

fn all(call: &Call<'_>) -> Outcome {
    let (vhosts, with_default) = (call.chosen_vhosts()?, call.flag("default"));
    let all = vhosts.iter().flat_map(|vhost| {
        let of_default = if with_default { vhost.queues() } else { Vec::new() };
        let known = Walk::new(vhost.exchanges()).chain(of_default.into_iter().map(|queue| Known::to_queue(&queue)));
        known.map(move |known| {
            let one = known.binding();
            (format!("{} → {} {}", lossy(one.source), one.destination_name, lossy(one.key)), (vhost, known))
        })
    });
    list(call, all, |(vhost, known)| Some(described(vhost, &known.binding())))
}

/// The binding of a body.
fn wish_of(call: &Call<'_>) -> Result<(Arc<Vhost>, BindingWish), Refusal> {
    let vhost = call.vhost()?;
    let body = call.object()?;
    body.only(&["source", "destination", "destination_kind", "routing_key", "arguments"])?;
    let to_queue = match body.text("destination_kind")?.unwrap_or("queue") {
        "queue" => true,
        "exchange" => false,
        _ => return Err(Answer::invalid("destination_kind", "it is queue or exchange")),
    };
    let (source, destination) = (body.needed("source")?, body.needed("destination")?);
    let key = body.text("routing_key")?.unwrap_or_default();
    let key = name_of("routing_key", key)?;
    let arguments = arguments_of(&body, &[])?;
    Ok((
        vhost,
        BindingWish {
            source: name_of("source", source)?,
            to_queue,
            destination: name_of("destination", destination)?,
            key,
            arguments,
        },
    ))
}

/// The binding, if it is there.
fn find(vhost: &Vhost, wish: &BindingWish) -> Option<Value> {
    let table = vhost.exchanges().read();
    let is_it = |one: &Binding<'_>| {
        matches!(one.destination, Destination::Queue(_)) == wish.to_queue
            && *one.destination_name == wish.destination
            && *one.key == *wish.key
            && one.arguments == wish.arguments
    };
    table.bindings_from(&wish.source).find(is_it).map(|one| described(vhost, &one))
}

fn make(call: &Call<'_>) -> Outcome {
    let (vhost, wish) = wish_of(call)?;
    let is_new = find(&vhost, &wish).is_none();
    let (place, again, caller) = (Arc::clone(&vhost), wish.clone(), call.caller.who.caller(Via::Administration));
    call.control(move |broker| broker.bind(&place, wish, &caller))?.map_err(refused)?;
    let found = find(&vhost, &again).ok_or_else(|| Answer::failed("the binding is gone"))?;
    Ok(Answer::made(is_new, found))
}

fn delete(call: &Call<'_>) -> Outcome {
    let (vhost, wish) = wish_of(call)?;
    let caller = call.caller.who.caller(Via::Administration);
    let deleted = call.control(move |broker| {
        let is_there = find(&vhost, &wish).is_some();
        broker.unbind(&vhost, &wish, &caller).map(|()| is_there)
    })?;
    if deleted.map_err(refused)? { Ok(Answer::done()) } else { Err(Answer::not_found("there is no such binding")) }
}
