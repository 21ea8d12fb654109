//! Connections: list, look at, close.

use std::sync::Arc;

use amqp_wire::TableRef;
use axum::http::Method;
use broker::Connected;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::listing::{list, one};
use super::rates::{self, Subject};
use super::route::{Access, Route, route};
use super::values;

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/connections", Access::Management, all),
    route(Method::GET, "/connections/{connection}", Access::Management, show),
    route(Method::DELETE, "/connections/{connection}", Access::Management, close),
    route(Method::GET, "/connections/username/{name}", Access::Management, of_user),
    route(Method::DELETE, "/connections/username/{name}", Access::Management, close_of_user),
    route(Method::GET, "/vhosts/{vhost}/connections", Access::Vhost, of_vhost),
];

/// Why a connection is closed when nothing is said.
const REASON: &str = "Closed via management plugin";
/// Bytes of a reason that go to the client: its text is a short string.
const REASON_MAX: usize = 220;

/// Connections that who asks may see: his own, or all if he watches over them.
pub(crate) fn visible(call: &Call<'_>) -> Vec<Arc<Connected>> {
    let all = call.broker().connections().all();
    all.into_iter().filter(|one| call.who.monitors() || one.details.user == call.who.name()).collect()
}

/// The connection of the path.
///
/// # Errors
/// 404; 401: somebody else's.
pub(crate) fn connection_of(call: &Call<'_>) -> Result<Arc<Connected>, Refusal> {
    let wanted = call.path("connection");
    let found =
        call.broker().connections().all().into_iter().find(|one| one.name() == wanted).ok_or_else(Answer::not_found)?;
    if call.who.monitors() || found.details.user == call.who.name() {
        Ok(found)
    } else {
        Err(Answer::not_authorised("Not owner"))
    }
}

/// Who sees the connections of others does not close them by that.
fn may_close(call: &Call<'_>, one: &Connected) -> bool {
    call.who.is_administrator() || one.details.user == call.who.name()
}

fn described(call: &Call<'_>, connected: &Connected) -> Value {
    let details = &connected.details;
    let properties = TableRef::check(&details.client_properties).map_or_else(|_| json!({}), values::table);
    let name = properties.get("connection_name").cloned();
    let mut found = Map::new();
    let mut put = |name: &str, value: Value| drop(found.insert(name.to_owned(), value));
    put("name", connected.name().into());
    put("user", details.user.clone().into());
    put("user_who_performed_action", details.user.clone().into());
    put("vhost", details.vhost.clone().into());
    put("node", call.management.node.clone().into());
    put("type", "network".into());
    put("protocol", "AMQP 0-9-1".into());
    put("state", "running".into());
    put("auth_mechanism", details.mechanism.clone().into());
    put("host", details.local.ip().to_string().into());
    put("port", details.local.port().into());
    put("peer_host", details.peer.ip().to_string().into());
    put("peer_port", details.peer.port().into());
    put("frame_max", details.frame_max.into());
    put("channel_max", details.channel_max.into());
    put("timeout", details.heartbeat_s.into());
    put("connected_at", details.connected_at.into());
    put("channels", connected.channels().len().into());
    put("client_properties", properties);
    put("recv_cnt", connected.received_count.get().into());
    put("send_cnt", connected.sent_count.get().into());
    put("send_pend", 0.into());
    put("ssl", false.into());
    for name in [
        "ssl_protocol",
        "ssl_cipher",
        "ssl_hash",
        "ssl_key_exchange",
        "peer_cert_issuer",
        "peer_cert_subject",
        "peer_cert_validity",
        "peer_cert_serial_number",
    ] {
        put(name, Value::Null);
    }
    if let Some(name) = name {
        put("user_provided_name", name);
    }
    let growth = call.management.rates.of(Subject::Connection(connected.id().0));
    rates::put(&mut found, "recv_oct", connected.received_bytes.get(), growth[0]);
    rates::put(&mut found, "send_oct", connected.sent_bytes.get(), growth[1]);
    Value::Object(found)
}

fn all(call: &Call<'_>) -> Outcome {
    list(call, visible(call).iter().map(|one| described(call, one)))
}

fn of_vhost(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    let found = visible(call).into_iter().filter(|one| one.details.vhost == vhost.name());
    list(call, found.map(|one| described(call, &one)))
}

fn show(call: &Call<'_>) -> Outcome {
    one(call, described(call, &*connection_of(call)?))
}

fn reason(call: &Call<'_>) -> String {
    let given = call.headers.get("x-reason").and_then(|value| value.to_str().ok()).unwrap_or(REASON);
    let mut end = given.len().min(REASON_MAX);
    while !given.is_char_boundary(end) {
        end -= 1;
    }
    given[..end].to_owned()
}

/// One that is gone already is closed as well as it can be.
fn close(call: &Call<'_>) -> Outcome {
    let connected = connection_of(call)?;
    if !may_close(call, &connected) {
        return Err(Answer::not_authorised("Not owner"));
    }
    call.broker().dismiss_connection(&connected, &reason(call));
    Ok(Answer::done())
}

fn of_this_user(call: &Call<'_>) -> impl Iterator<Item = Arc<Connected>> {
    let name = call.path("name").to_owned();
    visible(call).into_iter().filter(move |one| one.details.user == name)
}

fn of_user(call: &Call<'_>) -> Outcome {
    let brief = |one: Arc<Connected>| {
        let details = &one.details;
        json!({"name": one.name(), "user": details.user, "vhost": details.vhost, "node": call.management.node})
    };
    list(call, of_this_user(call).map(brief))
}

fn close_of_user(call: &Call<'_>) -> Outcome {
    let reason = reason(call);
    of_this_user(call)
        .filter(|one| may_close(call, one))
        .for_each(|one| call.broker().dismiss_connection(&one, &reason));
    Ok(Answer::done())
}
