//! Queues: list, look at, make, delete, purge.

use std::sync::Arc;

use axum::http::Method;
use broker::{Broker, Policy, Queue, QueueDeclaration, QueueError, Via, kind_name};
use delivery::QueueKind;
use routing::Name;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, await_policies, boolean, name};
use super::consumers;
use super::listing::{list, one};
use super::rates::{self, Subject};
use super::route::{Access, Route, route};
use super::values;
use crate::control::await_counts;

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/queues", Access::Management, all),
    route(Method::GET, "/queues/detailed", Access::Management, all),
    route(Method::GET, "/queues/{vhost}", Access::Vhost, all),
    route(Method::GET, "/queues/{vhost}/{name}", Access::Vhost, show),
    route(Method::PUT, "/queues/{vhost}/{name}", Access::Vhost, put),
    route(Method::DELETE, "/queues/{vhost}/{name}", Access::Vhost, delete),
    route(Method::DELETE, "/queues/{vhost}/{name}/contents", Access::Vhost, purge),
    route(Method::POST, "/queues/{vhost}/{name}/actions", Access::Administrator, act),
    route(Method::POST, "/rebalance/queues", Access::Administrator, rebalance),
];

/// The queue of the path.
///
/// # Errors
/// 404.
pub(crate) fn queue_of(call: &Call<'_>) -> Result<Arc<Queue>, Refusal> {
    call.vhost()?.queue(call.path("name").as_bytes()).ok_or_else(Answer::not_found)
}

/// Why a queue is not as it was wanted.
pub(crate) fn refused(error: QueueError) -> Refusal {
    match error {
        QueueError::NotFound { .. } | QueueError::VhostDeleted(_) => Answer::not_found(),
        QueueError::Reserved(_) | QueueError::Denied(_) => Answer::not_authorised("Access refused."),
        QueueError::NotEmpty { queue, vhost } => {
            Answer::bad_request(format!("queue '{queue}' in vhost '{vhost}' not empty"))
        }
        error @ QueueError::Condition { .. } => Answer::bad_request(format!("540 NOT_IMPLEMENTED - {error}")),
        QueueError::Append(error) => Answer::failed(error),
        other => Answer::bad_request(other.to_string()),
    }
}

/// The arguments of a queue, its type among them.
fn arguments(queue: &Queue) -> Value {
    let mut found = values::arguments(queue.arguments());
    if let Value::Object(fields) = &mut found {
        fields.entry("x-queue-type").or_insert_with(|| kind_name(queue.understood().kind).into());
    }
    found
}

/// What does not change while a queue lives, or seldom.
fn declared(call: &Call<'_>, queue: &Queue) -> Map<String, Value> {
    let mut found = Map::new();
    let mut put = |name: &str, value: Value| drop(found.insert(name.to_owned(), value));
    put("name", queue.name().to_string().into());
    put("vhost", queue.vhost().into());
    put("durable", queue.is_durable().into());
    put("auto_delete", queue.is_auto_delete().into());
    put("exclusive", queue.owner().is_some().into());
    put("arguments", arguments(queue));
    put("type", kind_name(queue.understood().kind).into());
    put("node", call.management.node.clone().into());
    put("state", "running".into());
    found
}

/// The name of a policy.
fn named(policy: Option<&Arc<Policy>>) -> Value {
    policy.map_or(Value::Null, |policy| policy.name().into())
}

fn put_policy(queue: &Queue, found: &mut Map<String, Value>) {
    let matched = queue.policies();
    found.insert("policy".to_owned(), named(matched.policy.as_ref()));
    found.insert("operator_policy".to_owned(), named(matched.operator.as_ref()));
    found.insert("effective_policy_definition".to_owned(), Value::Object(matched.definition()));
    for name in ["internal", "internal_owner"] {
        found.insert(name.to_owned(), false.into());
    }
}

fn put_counts(call: &Call<'_>, queue: &Arc<Queue>, found: &mut Map<String, Value>) {
    let held = call.broker().counts(queue);
    let counts = rates::of_queue(&call.broker().tally(queue), held.ready, held.unacknowledged);
    let growth = call.management.rates.of(Subject::Queue(queue.id()));
    rates::put_messages(found, &counts, &growth);
    if let Some(stats) = rates::message_stats(&counts, &growth) {
        found.insert("message_stats".to_owned(), stats);
    }
    let messages = held.ready + held.unacknowledged;
    let bytes = call.broker().bytes_of_messages(queue, messages + held.dying);
    let ready_bytes = (u128::from(bytes) * u128::from(held.ready) / u128::from(messages.max(1))) as u64;
    let persistent = |value: u64| if queue.is_durable() { value } else { 0 };
    let capacity = if held.consumers > 0 && held.ready == 0 { 1 } else { 0 };
    let numbers = [
        ("consumers", held.consumers as u64),
        ("consumer_capacity", capacity),
        ("consumer_utilisation", capacity),
        ("messages_persistent", persistent(messages)),
        ("message_bytes", bytes),
        ("message_bytes_ready", ready_bytes),
        ("message_bytes_unacknowledged", bytes - ready_bytes),
        ("message_bytes_persistent", persistent(bytes)),
    ];
    // As RabbitMQ names it, where there are any.
    let dying = (held.dying > 0).then_some(("messages_dlx", held.dying));
    for (name, value) in numbers.into_iter().chain(dying) {
        found.insert(name.to_owned(), value.into());
    }
    let consumers = call.broker().consumers_of(queue);
    let tag = |found: Option<&broker::ConsumerLook>| found.map_or(Value::Null, |one| one.tag.to_string().into());
    let single = queue.understood().single_active;
    found.insert("exclusive_consumer_tag".to_owned(), tag(consumers.iter().find(|one| one.exclusive)));
    found.insert("single_active_consumer_tag".to_owned(), tag(consumers.iter().find(|one| single && one.active)));
    found.insert("head_message_timestamp".to_owned(), Value::Null);
    if queue.understood().kind == QueueKind::Quorum {
        put_quorum(call, queue, found);
    }
    if let Some(owner) = queue.owner().and_then(|id| call.broker().connections().get(id)) {
        let peer = owner.details.peer;
        let details = json!({"name": owner.name(), "peer_host": peer.ip().to_string(), "peer_port": peer.port()});
        found.insert("owner_pid_details".to_owned(), details);
    }
}

/// A quorum queue has one member: this node.
fn put_quorum(call: &Call<'_>, queue: &Queue, found: &mut Map<String, Value>) {
    let node = &call.management.node;
    found.insert("leader".to_owned(), node.clone().into());
    found.insert("members".to_owned(), json!([node]));
    found.insert("online".to_owned(), json!([node]));
    let limit = queue.understood().delivery_limit.map_or_else(|| Value::from("unlimited"), Value::from);
    found.insert("delivery_limit".to_owned(), limit);
}

/// As RabbitMQ lists it; how much of it depends on the query.
fn described(call: &Call<'_>, queue: &Arc<Queue>) -> Map<String, Value> {
    let mut found = declared(call, queue);
    let (without, totals) = (call.flag("disable_stats"), call.flag("enable_queue_totals"));
    if without && totals {
        let held = call.broker().counts(queue);
        let counts = [
            ("messages", held.ready + held.unacknowledged),
            ("messages_ready", held.ready),
            ("messages_unacknowledged", held.unacknowledged),
        ];
        for (name, count) in counts {
            found.insert(name.to_owned(), count.into());
        }
        return found;
    }
    put_policy(queue, &mut found);
    if !without {
        put_counts(call, queue, &mut found);
    }
    found
}

fn all(call: &Call<'_>) -> Outcome {
    let queues = call.chosen_vhosts()?.into_iter().flat_map(|vhost| vhost.queues());
    list(call, queues.map(|queue| Value::Object(described(call, &queue))))
}

fn show(call: &Call<'_>) -> Outcome {
    let queue = queue_of(call)?;
    let mut found = described(call, &queue);
    if !call.flag("disable_stats") {
        found.insert("consumer_details".to_owned(), Value::Array(consumers::of_queue(call, &queue)));
        found.insert("deliveries".to_owned(), json!([]));
        found.insert("incoming".to_owned(), json!([]));
    }
    one(call, Value::Object(found))
}

fn put(call: &Call<'_>) -> Outcome {
    let vhost = call.broker().vhosts().get(call.path("vhost")).ok_or_else(|| Answer::no_such("vhost_not_found"))?;
    let body = call.object()?;
    let wish = QueueDeclaration {
        name: name(call.path("name"))?,
        durable: boolean(&body, "durable", false)?,
        owner: None,
        auto_delete: boolean(&body, "auto_delete", false)?,
        arguments: values::arguments_of(body.get("arguments"))?,
    };
    let (place, caller) = (Arc::clone(&vhost), call.who.caller(Via::Management));
    let made = call.control(move |broker| {
        let is_new = place.queue(&wish.name).is_none();
        broker.declare_queue(&place, wish, &caller).map(|_| is_new)
    })?;
    let is_new = made.map_err(refused)?;
    await_policies(&vhost)?;
    Ok(Answer::put(is_new))
}

fn delete(call: &Call<'_>) -> Outcome {
    let queue = queue_of(call)?;
    check_not_owned(&queue)?;
    let (if_unused, if_empty) = (call.flag("if-unused"), call.flag("if-empty"));
    if if_empty {
        await_counts(call.broker(), &queue);
    }
    let caller = call.who.caller(Via::Management);
    let deleted = call.control(move |broker| {
        broker.check_queue_deletion(&caller.principal, &queue)?;
        Broker::check_conditions(&queue, if_unused, if_empty)?;
        broker.delete_queue(&queue, if_unused, if_empty)
    })?;
    deleted.map_err(refused)?;
    Ok(Answer::done())
}

/// # Errors
/// 400: a connection alone may use it.
pub(crate) fn check_not_owned(queue: &Queue) -> Result<(), Refusal> {
    let (queue_name, vhost): (&Name, _) = (queue.name(), queue.vhost());
    match queue.owner() {
        None => Ok(()),
        Some(_) => Err(refused(QueueError::Locked { queue: queue_name.clone(), vhost: vhost.to_owned() })),
    }
}

/// # Errors
/// 400, in the words of AMQP: its messages are not taken away.
pub(crate) fn check_no_stream(queue: &Queue, what: &str) -> Result<(), Refusal> {
    match queue.is_stream() {
        true => Err(Answer::bad_request(format!(
            "540 NOT_IMPLEMENTED - {what} not supported by stream queues queue '{}' in vhost '{}'",
            queue.name(),
            queue.vhost()
        ))),
        false => Ok(()),
    }
}

fn purge(call: &Call<'_>) -> Outcome {
    let queue = queue_of(call)?;
    check_not_owned(&queue)?;
    await_counts(call.broker(), &queue);
    let caller = call.who.caller(Via::Management);
    check_no_stream(&queue, "queue.purge")?;
    call.control(move |broker| broker.check_purge(&caller.principal, &queue).map(|()| broker.purge(&queue)))?
        .map_err(|denial| refused(denial.into()))?;
    Ok(Answer::done())
}

/// RabbitMQ 4 knows no action any more.
fn act(call: &Call<'_>) -> Outcome {
    queue_of(call)?;
    let body = call.object_with(&["action"])?;
    Err(Answer::bad_request(json!(["unknown", body["action"]])))
}

/// Of one node, all queues are where they can be.
fn rebalance(_: &Call<'_>) -> Outcome {
    Ok(Answer::done())
}
