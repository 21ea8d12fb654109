//! Messages by hand: publish one to an exchange, get some from a queue.

use std::time::Duration;

use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker::{AclOperation, AclResource, Got, NOBODY, Outcome as Said, Permission, Settlement, Via};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, text};
use super::exchanges::plain_name;
use super::queues::{check_no_stream, check_not_owned};
use super::route::{Access, Route, route};
use super::values;

pub(crate) const ROUTES: &[Route] = &[
    route(Method::POST, "/exchanges/{vhost}/{name}/publish", Access::Vhost, publish),
    route(Method::POST, "/queues/{vhost}/{name}/get", Access::Vhost, get),
];

/// Messages that are got at once, at most.
const GET_MAX: u64 = 10_000;
/// Bytes of messages that are got at once, after which there is an end.
const GET_BYTES_MAX: usize = 64 << 20;
/// A message that is being read from the disk is asked for again after this long.
const AGAIN_AFTER: Duration = Duration::from_millis(5);
/// And so often at most.
const AGAIN_MAX: u32 = 2_000;

/// A message, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Name of the exchange; empty: the default one.
    pub exchange: Vec<u8>,
    /// The routing key.
    pub routing_key: Vec<u8>,
    /// Properties as AMQP 0-9-1 encodes them: flags and values.
    pub properties: Bytes,
    /// The body.
    pub body: Bytes,
}

/// A publish writes to an exchange; by the default exchange to the queues that it names.
///
/// # Errors
/// 401, by access control entries.
fn check_acls(call: &Call<'_>, vhost: &str, exchange: &str, body: &Map<String, Value>) -> Result<(), Refusal> {
    if !exchange.is_empty() {
        return call.who.check_acl(vhost, AclOperation::Write, exchange.as_bytes());
    }
    keys(body).try_for_each(|key| call.who.check_acl(vhost, AclOperation::Write, key.as_bytes()))
}

/// All keys by which a message is routed.
fn keys(body: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let more =
        ["CC", "BCC"].into_iter().filter_map(move |name| body["properties"]["headers"][name].as_array()).flatten();
    body.get("routing_key").into_iter().chain(more).filter_map(Value::as_str)
}

fn publish(call: &Call<'_>) -> Outcome {
    let vhost = call.broker().vhosts().get(call.path("vhost")).ok_or_else(|| Answer::no_such("vhost_not_found"))?;
    let exchange = plain_name(call.path("name"));
    let body = call.object_with(&["routing_key", "payload", "payload_encoding", "properties"]);
    if vhost.exchanges().read().exchange(exchange.as_bytes()).is_none() {
        return Err(Answer::no_such("exchange_not_found"));
    }
    call.who.check_only_permission(vhost.name(), Permission::Write, exchange.as_bytes())?;
    let body = body?;
    check_acls(call, vhost.name(), exchange, &body)?;
    call.who.check_claim(&body["properties"]).map_err(Answer::bad_request)?;
    let payload = text(&body, "payload")?;
    let payload = match text(&body, "payload_encoding")? {
        "string" => payload.as_bytes().to_vec(),
        "base64" => STANDARD.decode(payload).map_err(|_| Answer::bad_request(json!(["not_base64", payload])))?,
        other => return Err(Answer::bad_request(json!(["unsupported_encoding", other]))),
    };
    let message = Message {
        exchange: exchange.into(),
        routing_key: text(&body, "routing_key")?.into(),
        properties: values::properties_of(&body["properties"])?,
        body: payload.into(),
    };
    if message.routing_key.len() > usize::from(u8::MAX) {
        return Err(Answer::bad_request("the routing key has more than 255 bytes"));
    }
    let (gateway, caller) = (std::sync::Arc::clone(&call.management.gateway), call.who.caller(Via::Management));
    let keys: Vec<String> = keys(&body).map(str::to_owned).collect();
    let routed = call.control(move |broker| {
        broker
            .check_publish(&caller.principal, &vhost, &message.exchange, &keys)
            .map(|()| gateway.publish(broker, &vhost, &message))
    })?;
    let routed = routed.map_err(|_| Answer::not_authorised("Access refused."))?;
    Ok(Answer::of(json!({"routed": routed.map_err(Answer::bad_request)?})))
}

/// What becomes of messages that were got.
fn said(mode: &str) -> Option<(bool, Said)> {
    match mode {
        "ack_requeue_true" => Some((false, Said::Requeue)),
        "ack_requeue_false" => Some((true, Said::Ack)),
        "reject_requeue_true" => Some((false, Said::RequeueFailed)),
        "reject_requeue_false" => Some((false, Said::Reject)),
        _ => None,
    }
}

fn payload(bytes: &[u8], encoding: &str) -> (Value, &'static str) {
    match std::str::from_utf8(bytes).ok().filter(|_| encoding == "auto") {
        Some(text) => (text.into(), "string"),
        None => (STANDARD.encode(bytes).into(), "base64"),
    }
}

fn get(call: &Call<'_>) -> Outcome {
    let vhost = call.broker().vhosts().get(call.path("vhost")).ok_or_else(|| Answer::no_such("vhost_not_found"))?;
    let Some(queue) = vhost.queue(call.path("name").as_bytes()) else { return Err(Answer::no_such("queue_not_found")) };
    check_not_owned(&queue)?;
    call.who.check_permission(vhost.name(), Permission::Read, queue.name())?;
    call.who.check_resource(AclOperation::Read, AclResource::Group, queue.understood().group())?;
    check_no_stream(&queue, "basic.get")?;
    let body = call.object_with(&["count", "ackmode", "encoding"])?;
    let count = match &body["count"] {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let count = count.ok_or_else(|| Answer::bad_request(json!(["not_int", body["count"]])))?.min(GET_MAX);
    let mode = text(&body, "ackmode")?;
    let (no_ack, said) = said(mode).ok_or_else(|| {
        let valid = "ack_requeue_true, ack_requeue_false, reject_requeue_true, reject_requeue_false";
        Answer::bad_request(format!("Invalid ackmode value: {mode}. Valid values are: {valid}"))
    })?;
    let encoding = text(&body, "encoding")?;
    if !["auto", "base64"].contains(&encoding) {
        return Err(Answer::bad_request(json!(["unsupported_encoding", encoding])));
    }
    let most = body.get("truncate").and_then(Value::as_u64).map_or(usize::MAX, |most| most as usize);
    let broker = call.broker();
    let (flow, holder) = (broker.new_channel(NOBODY), broker.subscriptions().new_consumer());
    let (mut text, mut bytes, mut waited, mut taken) = (call.text.take(), 0, 0, Vec::new());
    let mut found = text.begin_list();
    while (taken.len() as u64) < count && bytes < GET_BYTES_MAX && !found.is_tight() {
        match broker.get(&queue, &flow, holder, no_ack) {
            Got::Empty => break,
            Got::Later if waited < AGAIN_MAX => {
                waited += 1;
                std::thread::sleep(AGAIN_AFTER);
            }
            Got::Later => break,
            Got::Message(message, left) => {
                bytes += message.bytes();
                taken.push(message.offset);
                let opened = call.management.gateway.open(&message, queue.name());
                let (payload, encoding) = payload(&opened.body[..opened.body.len().min(most)], encoding);
                found.put(&json!({
                    "payload_bytes": opened.body.len(),
                    "redelivered": message.redelivered,
                    "exchange": String::from_utf8_lossy(&opened.exchange),
                    "routing_key": String::from_utf8_lossy(&opened.routing_key),
                    "message_count": left,
                    "properties": values::properties(&opened.properties),
                    "payload": payload,
                    "payload_encoding": encoding,
                }));
            }
        }
    }
    if !no_ack {
        // Back in one go, behind the last: none of them is got twice by this request.
        let settled: Vec<_> = taken
            .iter()
            .map(|offset| Settlement { consumer: holder, first: *offset, last: *offset, outcome: said })
            .collect();
        broker.settle(&queue, &flow, &settled);
    }
    broker.leave_channel(&queue, &flow, &[]);
    found.end();
    Ok(Answer::of_text(text))
}
