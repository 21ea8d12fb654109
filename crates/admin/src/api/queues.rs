//! Queues: list, look at, make, delete, purge.

use std::sync::Arc;

use broker::{ConsumerLook, Queue, QueueDeclaration, QueueError, Via, kind_name};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::bindings::{self, BINDING};
use super::call::{Call, Fields, name_of};
use super::listing::list;
use super::rights::denied;
use super::route::{self, Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};
use crate::control::{await_counts, await_policies};
use crate::management::rates::Subject;
use crate::management::values;

const RATES: Schema = Schema::new(
    "QueueRates",
    &[
        ("in", Kind::Number, "Messages that come in a second, over the last five."),
        ("out", Kind::Number, "Messages that are given out."),
        ("acknowledged", Kind::Number, "Messages that are acknowledged."),
    ],
);

const QUEUE: Schema = Schema::new(
    "Queue",
    &[
        ("name", Kind::Text, "Its name."),
        ("vhost", Kind::Text, "Its virtual host."),
        ("type", Kind::Text, "classic, quorum or stream."),
        ("durable", Kind::Bool, "It outlives a restart."),
        ("auto_delete", Kind::Bool, "It goes with its last consumer."),
        ("exclusive", Kind::Bool, "One connection alone may use it."),
        ("arguments", Kind::Object, "As it was declared."),
        ("policy", Kind::OrNull(&Kind::Text), "The policy that counts for it."),
        ("messages", Kind::Int, "Ready and unacknowledged."),
        ("ready", Kind::Int, "Messages that a consumer could get."),
        ("unacknowledged", Kind::Int, "Messages that consumers have."),
        (
            "dying",
            Kind::Int,
            "Dead messages that are not yet among the dead letters; a purge takes those that cannot be sent.",
        ),
        ("consumers", Kind::Int, "How many there are."),
        (
            "bytes",
            Kind::Int,
            "Of its messages, with what is stored beside them, by the mean size of batches that it has.",
        ),
        ("topic", Kind::Text, "Its topic, for Kafka clients."),
        ("rates", Kind::One(&RATES), "How fast messages come and go."),
    ],
);

const CONSUMER: Schema = Schema::new(
    "Consumer",
    &[
        ("tag", Kind::Text, "Its name on its channel."),
        ("connection", Kind::Text, "Its connection's id."),
        ("user", Kind::OrNull(&Kind::Text), "Whose."),
        ("prefetch", Kind::Int, "Messages that it may have unacknowledged; 0: any number."),
        ("ack_required", Kind::Bool, "It acknowledges what it gets."),
        ("active", Kind::Bool, "It is served."),
        ("exclusive", Kind::Bool, "Nobody else may consume."),
    ],
);

const STATISTICS: Schema = Schema::new(
    "QueueStatistics",
    &[
        ("published", Kind::Int, "Messages that came, since the start."),
        ("delivered", Kind::Int, "Given to consumers that acknowledge."),
        ("delivered_no_ack", Kind::Int, "Given to consumers that do not."),
        ("got", Kind::Int, "Taken one by one, to be acknowledged."),
        ("got_no_ack", Kind::Int, "Taken one by one, and done with that."),
        ("got_empty", Kind::Int, "Asked for when there was none."),
        ("redelivered", Kind::Int, "Given not for the first time."),
        ("acknowledged", Kind::Int, "Acknowledged."),
    ],
);

const QUEUE_FULL: Schema = Schema::more(
    "QueueFull",
    &QUEUE,
    &[
        ("consumers_list", Kind::List(&Kind::One(&CONSUMER)), "Who consumes."),
        ("bindings", Kind::List(&Kind::One(&BINDING)), "What leads to it, beside the default exchange."),
        ("statistics", Kind::One(&STATISTICS), "Since the start, or since it was declared."),
    ],
);

const WISH: Schema = Schema::body(
    "QueueWish",
    &[],
    &[
        ("durable", Kind::Bool, "It outlives a restart; true if absent."),
        ("auto_delete", Kind::Bool, "It goes with its last consumer."),
        ("type", Kind::Text, "classic, quorum or stream: argument x-queue-type."),
        ("arguments", Kind::Object, "As a client would give them."),
    ],
);

const PURGED: Schema = Schema::new("Purged", &[("purged", Kind::Int, "Messages that are gone.")]);

pub(crate) const ROUTES: &[Route] = &[
    route::list("/queues", Access::LoggedIn, "Queues of all virtual hosts", &QUEUE, all),
    route::list("/queues/{vhost}", Access::LoggedIn, "Queues of a virtual host", &QUEUE, all),
    get("/queues/{vhost}/{queue}", Access::LoggedIn, "A queue, its consumers and bindings", &QUEUE_FULL, show),
    change(Verb::Put, "/queues/{vhost}/{queue}", Access::LoggedIn, "Declare a queue", Shape::One(&QUEUE), put)
        .takes(&WISH)
        .makes(),
    change(Verb::Delete, "/queues/{vhost}/{queue}", Access::LoggedIn, "Delete a queue", Shape::Nothing, delete)
        .asks(&[
            ("if_unused", Kind::Bool, "true: only without consumers."),
            ("if_empty", Kind::Bool, "true: only without messages."),
        ])
        .tries(),
    change(
        Verb::Post,
        "/queues/{vhost}/{queue}/purge",
        Access::LoggedIn,
        "Delete the messages that are ready",
        Shape::One(&PURGED),
        purge,
    )
    .tries(),
];

/// The queue of the path.
///
/// # Errors
/// 404.
pub(crate) fn queue_of(call: &Call<'_>) -> Result<Arc<Queue>, Refusal> {
    let vhost = call.vhost()?;
    let name = call.path("queue");
    vhost
        .queue(name.as_bytes())
        .ok_or_else(|| Answer::not_found(format!("there is no queue {name:?} in virtual host {:?}", vhost.name())))
}

/// Why a queue is as it was.
fn refused(error: QueueError) -> Refusal {
    match error {
        QueueError::NotFound { .. } | QueueError::VhostDeleted(_) => Answer::not_found(error.to_string()),
        QueueError::Reserved(_) => Answer::not_allowed(error.to_string()),
        QueueError::Denied(denial) => denied(&denial),
        QueueError::NotEmpty { .. } | QueueError::Locked { .. } | QueueError::Unequal(_) => {
            Answer::conflict(error.to_string())
        }
        QueueError::TooMany { .. }
        | QueueError::NodeFull { .. }
        | QueueError::NoMemory { .. }
        | QueueError::Topics { .. }
        | QueueError::TopicTaken { .. } => Answer::conflict(error.to_string()),
        QueueError::Append(error) => Answer::failed(error),
        other => Answer::invalid("arguments", other.to_string()),
    }
}

fn described(call: &Call<'_>, queue: &Arc<Queue>) -> Value {
    let held = call.broker().counts(queue);
    let growth = call.rates().of(Subject::Queue(queue.id()));
    let messages = held.ready + held.unacknowledged;
    json!({
        "name": queue.name().to_string(),
        "vhost": queue.vhost(),
        "type": kind_name(queue.understood().kind),
        "durable": queue.is_durable(),
        "auto_delete": queue.is_auto_delete(),
        "exclusive": queue.owner().is_some(),
        "arguments": values::arguments(queue.arguments()),
        "policy": queue.policy(),
        "messages": messages,
        "ready": held.ready,
        "unacknowledged": held.unacknowledged,
        "dying": held.dying,
        "consumers": held.consumers,
        "bytes": call.broker().bytes_of_messages(queue, messages + held.dying),
        "topic": queue.topic().name,
        // In the order of `rates::of_queue`.
        "rates": {"in": growth[0], "out": growth[8], "acknowledged": growth[7]},
    })
}

fn consumer(call: &Call<'_>, look: &ConsumerLook) -> Value {
    let connected = call.broker().connections().get(look.connection);
    json!({
        "tag": look.tag.to_string(),
        "connection": look.connection.0.to_string(),
        "user": connected.map(|connected| connected.details.user.clone()),
        "prefetch": look.prefetch,
        "ack_required": !look.no_ack,
        "active": look.active,
        "exclusive": look.exclusive,
    })
}

fn all(call: &Call<'_>) -> Outcome {
    let queues = call.chosen_vhosts()?.into_iter().flat_map(|vhost| vhost.queues());
    list(call, queues.map(|queue| (queue.name().to_string(), queue)), |queue| Some(described(call, queue)))
}

fn show(call: &Call<'_>) -> Outcome {
    let queue = queue_of(call)?;
    let mut found = described(call, &queue);
    let tally = call.broker().tally(&queue);
    found["consumers_list"] = call.broker().consumers_of(&queue).iter().map(|look| consumer(call, look)).collect();
    found["bindings"] = bindings::to_queue(&*call.vhost()?, queue.name()).into();
    found["statistics"] = json!({
        "published": tally.published,
        "delivered": tally.delivered,
        "delivered_no_ack": tally.delivered_no_ack,
        "got": tally.got,
        "got_no_ack": tally.got_no_ack,
        "got_empty": tally.got_empty,
        "redelivered": tally.redelivered,
        "acknowledged": tally.acknowledged,
    });
    Ok(Answer::of(found))
}

/// Arguments of a body, and what it says beside them under a name of its own.
///
/// # Errors
/// 400.
pub(crate) fn arguments_of(body: &Fields, more: &[(&str, Option<&str>)]) -> Result<routing::Arguments, Refusal> {
    let mut given = match body.get("arguments") {
        None => Map::new(),
        Some(Value::Object(given)) => given.clone(),
        Some(_) => return Err(Answer::invalid("arguments", "it is an object")),
    };
    for (name, value) in more {
        if let Some(value) = value
            && given.insert((*name).to_owned(), (*value).into()).is_some_and(|before| before != **value)
        {
            return Err(Answer::invalid(&format!("arguments.{name}"), "it is given twice, with two values"));
        }
    }
    values::arguments_of(Some(&Value::Object(given))).map_err(|refusal| Answer::invalid("arguments", refusal.reason()))
}

fn put(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    let body = call.object()?;
    body.only(&["durable", "auto_delete", "type", "arguments"])?;
    let wish = QueueDeclaration {
        name: name_of("queue", call.path("queue"))?,
        durable: body.bool("durable", true)?,
        owner: None,
        auto_delete: body.bool("auto_delete", false)?,
        arguments: arguments_of(&body, &[("x-queue-type", body.text("type")?)])?,
    };
    let (place, caller) = (Arc::clone(&vhost), call.caller.who.caller(Via::Administration));
    let made = call.control(move |broker| {
        let is_new = place.queue(&wish.name).is_none();
        broker.declare_queue(&place, wish, &caller).map(|queue| (is_new, queue))
    })?;
    let (is_new, queue) = made.map_err(refused)?;
    if !await_policies(&vhost) {
        return Err(Answer::busy());
    }
    Ok(Answer::made(is_new, described(call, &queue)))
}

/// # Errors
/// 409: a connection alone may use it.
fn check_not_owned(queue: &Queue) -> Result<(), Refusal> {
    match queue.owner() {
        None => Ok(()),
        Some(_) => Err(refused(QueueError::Locked { queue: queue.name().clone(), vhost: queue.vhost().to_owned() })),
    }
}

fn delete(call: &Call<'_>) -> Outcome {
    let queue = queue_of(call)?;
    check_not_owned(&queue)?;
    let (if_unused, if_empty) = (call.flag("if_unused"), call.flag("if_empty"));
    if if_empty {
        await_counts(call.broker(), &queue);
    }
    let caller = call.caller.who.caller(Via::Administration);
    let done = call.control_or_try(move |broker, really| {
        if really {
            return broker.delete_queue_for(&caller.principal, &queue, if_unused, if_empty).map(drop);
        }
        broker.check_queue_deletion(&caller.principal, &queue)?;
        broker.check_deletion(&queue, if_unused, if_empty).map(drop)
    })?;
    done.map_err(|error| match error {
        error @ (QueueError::NotFound { .. } | QueueError::Denied(_) | QueueError::Append(_)) => refused(error),
        other => Answer::conflict(other.to_string()),
    })?;
    Ok(Answer::done())
}

fn purge(call: &Call<'_>) -> Outcome {
    let queue = queue_of(call)?;
    check_not_owned(&queue)?;
    await_counts(call.broker(), &queue);
    let caller = call.caller.who.caller(Via::Administration);
    let purged = call.control_or_try(move |broker, really| {
        broker.check_purge(&caller.principal, &queue)?;
        Ok::<_, QueueError>(
            (!queue.is_stream()).then(|| if really { broker.purge(&queue) } else { broker.counts(&queue).ready }),
        )
    })?;
    let purged =
        purged.map_err(refused)?.ok_or_else(|| Answer::conflict("a stream is not purged: truncate its topic"))?;
    Ok(Answer::of(json!({"purged": purged})))
}
