//! A message by hand, to an exchange: as an AMQP client would publish it, and held to the same rules. (Records of a topic: `records`.)

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker::{AclOperation, AclResource, Permission, Vhost, Via};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, Fields};
use super::exchanges::{missing, wanted};
use super::rights::denied;
use super::route::{Access, Route, Shape, Verb, change};
use super::schema::{Kind, Schema};
use crate::management::{Message, values};

const NEW_MESSAGE: Schema = Schema::body(
    "NewMessage",
    &[],
    &[
        ("routing_key", Kind::OrNull(&Kind::Text), "Empty if absent; at most 255 bytes."),
        ("body", Kind::OrNull(&Kind::Text), "Empty if absent."),
        ("body_encoding", Kind::OrNull(&Kind::Text), "text or base64."),
        ("headers", Kind::OrNull(&Kind::Object), "Names and values of the headers table."),
        (
            "properties",
            Kind::OrNull(&Kind::Object),
            "content_type, correlation_id, delivery_mode, expiration, priority …, as AMQP has them.",
        ),
    ],
);

const ROUTED: Schema = Schema::new("Routed", &[("routed", Kind::Bool, "At least one queue has it, durably.")]);

pub(crate) const ROUTES: &[Route] = &[change(
    Verb::Post,
    "/exchanges/{vhost}/{exchange}/publish",
    Access::LoggedIn,
    "Publish a message to an exchange",
    Shape::One(&ROUTED),
    publish,
)
.takes(&NEW_MESSAGE)];

/// Properties of a message, and whether they are text; the others are numbers, at most 255 but for the time.
const PROPERTIES: [(&str, bool); 13] = [
    ("content_type", true),
    ("content_encoding", true),
    ("delivery_mode", false),
    ("priority", false),
    ("correlation_id", true),
    ("reply_to", true),
    ("expiration", true),
    ("message_id", true),
    ("timestamp", false),
    ("type", true),
    ("user_id", true),
    ("app_id", true),
    ("cluster_id", true),
];

fn object(body: &Fields, name: &str) -> Result<Map<String, Value>, Refusal> {
    match body.get(name) {
        None => Ok(Map::new()),
        Some(Value::Object(given)) => Ok(given.clone()),
        Some(_) => Err(Answer::invalid(name, "it is an object")),
    }
}

/// What one property can be.
fn check_property(name: &str, value: &Value) -> Result<(), Refusal> {
    let refuse = |reason: &str| Err(Answer::invalid(&format!("properties.{name}"), reason));
    let Some((_, is_text)) = PROPERTIES.iter().find(|(known, _)| *known == name) else {
        let names = PROPERTIES.map(|(known, _)| known).join(", ");
        return refuse(&format!("there is no such property; there are {names}"));
    };
    if values::properties_of(&json!({name: value})).is_err() {
        let most = if name == "timestamp" { "" } else { ", at most 255" };
        return refuse(
            if *is_text {
                "it is a text of at most 255 bytes".to_owned()
            } else {
                format!("it is a whole number{most}")
            }
            .as_str(),
        );
    }
    if name == "expiration" && value.as_str().is_none_or(|text| text.parse::<u32>().is_err()) {
        return refuse("it is a number of milliseconds, as a text of digits");
    }
    Ok(())
}

/// The properties of a message, encoded; all of them are looked at one by one, so that a refusal names its place.
fn properties_of(body: &Fields, headers: &Map<String, Value>) -> Result<Bytes, Refusal> {
    let mut all = object(body, "properties")?;
    all.iter().try_for_each(|(name, value)| check_property(name, value))?;
    for (name, value) in headers {
        let refuse = |reason: String| Answer::invalid(&format!("headers.{name}"), reason);
        if name.len() > usize::from(u8::MAX) {
            return Err(refuse("the name of a header has at most 255 bytes".to_owned()));
        }
        values::properties_of(&json!({"headers": {name: value}}))
            .map_err(|refusal| refuse(format!("it cannot be a header: {}", refusal.reason())))?;
    }
    if !headers.is_empty() {
        all.insert("headers".to_owned(), headers.clone().into());
    }
    values::properties_of(&Value::Object(all)).map_err(|refusal| Answer::invalid("properties", refusal.reason()))
}

/// The routing key, and the further ones that headers name.
fn keys<'k>(routing_key: &'k str, headers: &'k Map<String, Value>) -> impl Iterator<Item = &'k str> {
    let more =
        ["CC", "BCC"].into_iter().filter_map(|name| headers.get(name)?.as_array()).flatten().filter_map(Value::as_str);
    std::iter::once(routing_key).chain(more)
}

/// A publish writes to an exchange; by the default exchange to the queues that it names.
fn check_rights(call: &Call<'_>, vhost: &Vhost, exchange: &str, keys: &[String]) -> Result<(), Refusal> {
    let who = &call.caller.who;
    if who.is_administrator() {
        return Ok(());
    }
    if !exchange.is_empty() {
        call.check_permission(vhost.name(), Permission::Write, exchange.as_bytes())?;
    } else {
        call.check_only_permission(vhost.name(), Permission::Write, b"")?;
    }
    for key in keys {
        if exchange.is_empty() && who.check_acl(vhost.name(), AclOperation::Write, key.as_bytes()).is_err() {
            return Err(call.not_granted(AclOperation::Write, AclResource::Topic, key));
        }
    }
    Ok(())
}

fn body_of(call: &Call<'_>, body: &Fields) -> Result<Bytes, Refusal> {
    let text = body.text("body")?.unwrap_or_default();
    let bytes = match body.text("body_encoding")?.unwrap_or("text") {
        "text" => text.as_bytes().to_vec(),
        "base64" => STANDARD.decode(text).map_err(|_| Answer::invalid("body", "it is no base64"))?,
        _ => return Err(Answer::invalid("body_encoding", "it is text or base64")),
    };
    let most = call.broker().limits().message_bytes_max();
    if bytes.len() as u64 > most {
        return Err(Answer::invalid("body", format!("a message has at most {most} bytes")));
    }
    Ok(bytes.into())
}

fn publish(call: &Call<'_>) -> Outcome {
    let (vhost, exchange) = (call.vhost()?, wanted(call));
    let body = call.object()?;
    body.only(&["routing_key", "body", "body_encoding", "headers", "properties"])?;
    let internal = vhost.exchanges().read().exchange(exchange.as_bytes()).map(|found| found.internal());
    let internal = internal.ok_or_else(|| missing(exchange))?;
    let routing_key = body.text("routing_key")?.unwrap_or_default();
    if routing_key.len() > usize::from(u8::MAX) {
        return Err(Answer::invalid("routing_key", "it has at most 255 bytes"));
    }
    let headers = object(&body, "headers")?;
    let keys: Vec<String> = keys(routing_key, &headers).map(str::to_owned).collect();
    check_rights(call, &vhost, exchange, &keys)?;
    call.caller
        .who
        .check_claim(&body.get("properties").cloned().unwrap_or_default())
        .map_err(|reason| Answer::invalid("properties.user_id", reason))?;
    if internal {
        return Err(Answer::conflict("the exchange is internal: it takes messages from other exchanges only"));
    }
    let message = Message {
        exchange: exchange.into(),
        routing_key: routing_key.into(),
        properties: properties_of(&body, &headers)?,
        body: body_of(call, &body)?,
    };
    let (gateway, caller) = (Arc::clone(&call.management.gateway), call.caller.who.caller(Via::Administration));
    let routed = call.control(move |broker| {
        broker
            .check_publish(&caller.principal, &vhost, &message.exchange, &keys)
            .map(|()| gateway.publish(broker, &vhost, &message))
    })?;
    let routed = routed.map_err(|denial| denied(&denial))?;
    Ok(Answer::of(json!({"routed": routed.map_err(Answer::bad_request)?})))
}
