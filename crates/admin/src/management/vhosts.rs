//! Virtual hosts: list, look at, make, change, delete.

use std::sync::Arc;

use axum::http::Method;
use broker::{Permissions, SecurityError, Vhost, VhostDeletion, VhostMetadata, VhostWish};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, text};
use super::listing::{list, one};
use super::rates::{self, COUNTS, Subject};
use super::route::{Access, Route, route};
use super::users::{refused, tags_of};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/vhosts", Access::Management, all),
    route(Method::GET, "/vhosts/{vhost}", Access::Administrator, show),
    route(Method::PUT, "/vhosts/{vhost}", Access::Administrator, put),
    route(Method::DELETE, "/vhosts/{vhost}", Access::Administrator, delete),
    route(Method::POST, "/vhosts/{vhost}/start/{node}", Access::Administrator, start),
];

/// What is said of a virtual host.
pub(crate) fn metadata(metadata: &VhostMetadata) -> Map<String, Value> {
    let VhostMetadata { description, tags, default_queue_type } = metadata;
    let mut found = Map::new();
    found.insert("description".to_owned(), description.clone().into());
    found.insert("tags".to_owned(), tags.clone().into());
    found.insert("default_queue_type".to_owned(), default_queue_type.as_deref().unwrap_or("classic").into());
    found
}

fn described(call: &Call<'_>, vhost: &Arc<Vhost>) -> Value {
    let broker = call.broker();
    let (mut sums, mut growth) = ([0; COUNTS], [0.0; COUNTS]);
    for queue in vhost.queues() {
        let held = broker.counts(&queue);
        let counts = rates::of_queue(&broker.tally(&queue), held.ready, held.unacknowledged);
        let rates = call.management.rates.of(Subject::Queue(queue.id()));
        for at in 0..COUNTS {
            sums[at] += counts[at];
            growth[at] += rates[at];
        }
    }
    let said = metadata(&vhost.metadata());
    let mut found = said.clone();
    let mut put = |name: &str, value: Value| drop(found.insert(name.to_owned(), value));
    put("name", vhost.name().into());
    put("protected_from_deletion", false.into());
    put("metadata", Value::Object(said));
    put("tracing", false.into());
    put("cluster_state", json!({call.management.node.clone(): "running"}));
    rates::put_messages(&mut found, &sums, &growth);
    if let Some(stats) = rates::message_stats(&sums, &growth) {
        found.insert("message_stats".to_owned(), stats);
    }
    let connections = broker.connections().all().into_iter().filter(|one| one.details.vhost == vhost.name());
    let (mut received, mut sent, mut rate) = (0, 0, [0.0; 2]);
    for connected in connections {
        let own = call.management.rates.of(Subject::Connection(connected.id().0));
        (received, sent) = (received + connected.received_bytes.get(), sent + connected.sent_bytes.get());
        rate = [rate[0] + own[0], rate[1] + own[1]];
    }
    rates::put(&mut found, "recv_oct", received, rate[0]);
    rates::put(&mut found, "send_oct", sent, rate[1]);
    Value::Object(found)
}

fn all(call: &Call<'_>) -> Outcome {
    list(call, call.vhosts().iter().map(|vhost| described(call, vhost)))
}

fn show(call: &Call<'_>) -> Outcome {
    one(call, described(call, &call.vhost()?))
}

/// A virtual host as JSON describes one: in a request, or under `metadata` in definitions.
///
/// # Errors
/// 400.
pub(crate) fn wish(name: &str, body: &Map<String, Value>) -> Result<VhostWish, Refusal> {
    let inner = body.get("metadata").and_then(Value::as_object);
    let field = |name: &str| body.get(name).or_else(|| inner?.get(name)).filter(|value| !value.is_null());
    let words = |name: &str| {
        field(name)
            .map(|_| text(if body.contains_key(name) { body } else { inner.unwrap_or(body) }, name).map(str::to_owned))
    };
    let kind = words("default_queue_type").transpose()?.filter(|kind| !["", "undefined"].contains(&kind.as_str()));
    Ok(VhostWish {
        name: name.to_owned(),
        description: words("description").transpose()?,
        tags: field("tags").map(tags_of).transpose()?,
        default_queue_type: kind.map(Some),
    })
}

fn put(call: &Call<'_>) -> Outcome {
    let wish = wish(call.path("vhost"), &call.object()?)?;
    // `tracing` is taken and has no effect: there is none, as the virtual host says when it is looked at.
    let creator = call.who.name().to_owned();
    let made = call.control(move |broker| {
        let name = wish.name.clone();
        let is_new = broker.put_vhost(wish)?;
        // Whoever makes a virtual host may work in it. The guest who is there without any user may anyway.
        if is_new && broker.security().users().iter().any(|user| user.name() == creator) {
            let everything = Permissions::new(".*", ".*", ".*")?;
            broker.set_permissions(&name, &creator, everything)?;
        }
        Ok::<_, SecurityError>(is_new)
    })?;
    made.map(Answer::put).map_err(refused)
}

fn delete(call: &Call<'_>) -> Outcome {
    let mut deletion = VhostDeletion::of(call.path("vhost"));
    match call.control_in_turns(move |broker| deletion.go_on(broker))? {
        Ok(true) => Ok(Answer::done()),
        Ok(false) => Err(Answer::not_found()),
        Err(error @ SecurityError::DefaultVhost) => Err(Answer::precondition(error.to_string())),
        Err(error) => Err(refused(error)),
    }
}

/// A virtual host is never stopped.
fn start(call: &Call<'_>) -> Outcome {
    call.vhost()?;
    match call.path("node") {
        node if node == call.management.node => Ok(Answer::done()),
        node => Err(Answer::bad_request(format!("Unknown node: {node}"))),
    }
}
