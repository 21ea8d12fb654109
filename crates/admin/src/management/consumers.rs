//! Consumers: of everybody, of a virtual host, of a queue, of a channel.

use std::sync::Arc;

use axum::http::Method;
use broker::{Connected, ConsumerLook, Queue};
use delivery::ChannelId;
use serde_json::{Value, json};

use super::answer::Outcome;
use super::call::Call;
use super::listing::list_each;
use super::route::{Access, Route, route};
use super::values;

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/consumers", Access::Management, all),
    route(Method::GET, "/consumers/{vhost}", Access::Vhost, all),
];

/// A channel as consumers show it.
fn channel(call: &Call<'_>, connected: &Connected, id: ChannelId) -> Value {
    let Some((number, _)) = connected.channels().into_iter().find(|(_, flow)| flow.id() == id) else {
        return json!({});
    };
    let (name, details) = (connected.name(), &connected.details);
    json!({
        "name": format!("{name} ({number})"),
        "number": number,
        "connection_name": name,
        "node": call.management.node,
        "peer_host": details.peer.ip().to_string(),
        "peer_port": details.peer.port(),
        "user": details.user,
    })
}

fn described(call: &Call<'_>, queue: &Queue, look: &ConsumerLook) -> Value {
    let connected = call.broker().connections().get(look.connection);
    let status = if look.waiting {
        "waiting"
    } else if look.active && queue.understood().single_active {
        "single_active"
    } else {
        "up"
    };
    json!({
        "consumer_tag": look.tag.to_string(),
        "queue": {"name": queue.name().to_string(), "vhost": queue.vhost()},
        "channel_details": connected.map_or_else(|| json!({}), |connected| channel(call, &connected, look.channel)),
        "ack_required": !look.no_ack,
        "active": look.active,
        "activity_status": status,
        "arguments": values::arguments(&look.arguments),
        "exclusive": look.exclusive,
        "prefetch_count": look.prefetch,
    })
}

/// Of a queue.
pub(crate) fn of_queue(call: &Call<'_>, queue: &Arc<Queue>) -> Vec<Value> {
    call.broker().consumers_of(queue).iter().map(|look| described(call, queue, look)).collect()
}

/// Of a channel of a virtual host.
pub(crate) fn of_channel(call: &Call<'_>, vhost: &str, channel: ChannelId) -> Vec<Value> {
    let mut found = Vec::new();
    for queue in call.broker().vhosts().get(vhost).iter().flat_map(|vhost| vhost.queues()) {
        let looks = call.broker().consumers_of(&queue);
        found.extend(looks.iter().filter(|look| look.channel == channel).map(|look| described(call, &queue, look)));
    }
    found
}

fn all(call: &Call<'_>) -> Outcome {
    let queues = call.chosen_vhosts()?.into_iter().flat_map(|vhost| vhost.queues());
    list_each(call, |put| {
        for queue in queues {
            call.broker().consumers_of(&queue).iter().for_each(|look| put(&described(call, &queue, look)));
        }
    })
}
