//! Virtual hosts: list, make, change, delete.

use std::sync::Arc;

use broker::{Permissions, SecurityError, Vhost, VhostDeletion, VhostWish};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::listing::list;
use super::route::{self, Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};

const VHOST: Schema = Schema::new(
    "Vhost",
    &[
        ("name", Kind::Text, "Its name."),
        ("description", Kind::Text, "For people."),
        ("tags", Kind::List(&Kind::Text), "For people and tools."),
        ("default_queue_type", Kind::OrNull(&Kind::Text), "Type of queues that are declared without one."),
        ("queues", Kind::Int, "How many it has."),
        ("exchanges", Kind::Int, "How many it has."),
        ("connections", Kind::Int, "Connections of AMQP that have opened it."),
        ("messages", Kind::Int, "Of all its queues."),
    ],
);

const WISH: Schema = Schema::body(
    "VhostWish",
    &[],
    &[
        ("description", Kind::Text, "For people."),
        ("tags", Kind::List(&Kind::Text), "For people and tools."),
        ("default_queue_type", Kind::OrNull(&Kind::Text), "classic, quorum or stream."),
    ],
);

pub(crate) const ROUTES: &[Route] = &[
    route::list("/vhosts", Access::LoggedIn, "Virtual hosts", &VHOST, all),
    get("/vhosts/{vhost}", Access::LoggedIn, "A virtual host", &VHOST, |call| {
        Ok(Answer::of(described(call, &call.vhost()?)))
    }),
    change(
        Verb::Put,
        "/vhosts/{vhost}",
        Access::Administrator,
        "Make a virtual host, or change what is said of it",
        Shape::One(&VHOST),
        put,
    )
    .takes(&WISH)
    .makes(),
    change(
        Verb::Delete,
        "/vhosts/{vhost}",
        Access::Administrator,
        "Delete a virtual host and all that is in it",
        Shape::Nothing,
        delete,
    ),
];

fn described(call: &Call<'_>, vhost: &Arc<Vhost>) -> Value {
    let (said, queues) = (vhost.metadata(), vhost.queues());
    let held = queues.iter().map(|queue| call.broker().counts(queue));
    json!({
        "name": vhost.name(),
        "description": said.description,
        "tags": said.tags,
        "default_queue_type": said.default_queue_type,
        "queues": queues.len(),
        "exchanges": vhost.exchanges().read().exchanges().count(),
        "connections": vhost.connections(),
        "messages": held.map(|counts| counts.ready + counts.unacknowledged).sum::<u64>(),
    })
}

fn all(call: &Call<'_>) -> Outcome {
    list(call, call.chosen_vhosts()?.into_iter().map(|vhost| (vhost.name().to_owned(), vhost)), |vhost| {
        Some(described(call, vhost))
    })
}

/// Why users, permissions and virtual hosts are as they were.
pub(crate) fn refused(field: &str, error: SecurityError) -> Refusal {
    match error {
        SecurityError::NoUser(_) | SecurityError::NoVhost(_) => Answer::not_found(error.to_string()),
        SecurityError::Append(error) => Answer::failed(error),
        SecurityError::DefaultVhost | SecurityError::TooManyVhosts { .. } => Answer::conflict(error.to_string()),
        other => Answer::invalid(field, other.to_string()),
    }
}

fn put(call: &Call<'_>) -> Outcome {
    let body = call.object()?;
    body.only(&["description", "tags", "default_queue_type"])?;
    let name = call.path("vhost").to_owned();
    // What is not said stays as it is; null takes the default type away.
    let default_queue_type =
        if body.has("default_queue_type") { Some(body.text("default_queue_type")?.map(str::to_owned)) } else { None };
    let description = body.text("description")?.map(str::to_owned);
    let wish = VhostWish { name: name.clone(), description, tags: body.words("tags")?, default_queue_type };
    let creator = call.caller.who.name().to_owned();
    let made = call.control(move |broker| {
        let name = wish.name.clone();
        let is_new = broker.put_vhost(wish)?;
        // Whoever makes a virtual host may work in it. The guest who is there without any user may anyway.
        if is_new && broker.security().users().iter().any(|user| user.name() == creator) {
            broker.set_permissions(&name, &creator, Permissions::new(".*", ".*", ".*")?)?;
        }
        Ok::<_, SecurityError>(is_new)
    })?;
    let is_new = made.map_err(|error| refused("default_queue_type", error))?;
    let vhost = call.broker().vhosts().get(&name).ok_or_else(|| Answer::failed("the virtual host is gone"))?;
    Ok(Answer::made(is_new, described(call, &vhost)))
}

fn delete(call: &Call<'_>) -> Outcome {
    let mut deletion = VhostDeletion::of(call.vhost()?.name());
    call.control_in_turns(move |broker| deletion.go_on(broker))?.map_err(|error| refused("vhost", error))?;
    Ok(Answer::done())
}
