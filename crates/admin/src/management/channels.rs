//! Channels: list, look at.

use std::sync::Arc;

use axum::http::Method;
use broker::{ChannelFlow, ChannelMode, Connected};
use delivery::ChannelId;
use hashbrown::HashMap;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome};
use super::call::Call;
use super::connections::{connection_of, visible};
use super::consumers;
use super::listing::{list_each, one};
use super::rates::{self, Subject};
use super::route::{Access, Route, route};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/channels", Access::Management, all),
    route(Method::GET, "/channels/{channel}", Access::Management, show),
    route(Method::GET, "/connections/{connection}/channels", Access::Management, of_connection),
    route(Method::GET, "/vhosts/{vhost}/channels", Access::Vhost, of_vhost),
];

/// How many consumers each channel has.
fn consumers_by_channel(call: &Call<'_>) -> HashMap<ChannelId, usize> {
    let mut counts = HashMap::new();
    for queue in call.broker().vhosts().all().iter().flat_map(|vhost| vhost.queues()) {
        for look in call.broker().consumers_of(&queue) {
            *counts.entry(look.channel).or_default() += 1;
        }
    }
    counts
}

fn described(
    call: &Call<'_>,
    connected: &Connected,
    number: u16,
    flow: &ChannelFlow,
    consumers: usize,
) -> Map<String, Value> {
    let (name, details, notes, tally) = (connected.name(), &connected.details, flow.notes(), flow.tally());
    let counts = rates::of_channel(notes, &tally);
    let growth = call.management.rates.of(Subject::Channel(flow.id().0));
    let mut found = Map::new();
    let mut put = |name: &str, value: Value| drop(found.insert(name.to_owned(), value));
    put("name", format!("{name} ({number})").into());
    put("number", number.into());
    put("node", call.management.node.clone().into());
    put("user", details.user.clone().into());
    put("user_who_performed_action", details.user.clone().into());
    put("vhost", details.vhost.clone().into());
    put("state", "running".into());
    put("confirm", (notes.mode() == ChannelMode::Confirm).into());
    put("transactional", (notes.mode() == ChannelMode::Transaction).into());
    put("prefetch_count", notes.prefetch.get().into());
    put("global_prefetch_count", tally.limit.into());
    put("consumer_count", consumers.into());
    put("messages_unacknowledged", tally.unacknowledged.into());
    let unconfirmed = if notes.mode() == ChannelMode::Confirm { counts[0].saturating_sub(counts[1]) } else { 0 };
    put("messages_unconfirmed", unconfirmed.into());
    let peer = details.peer;
    put("connection_details", json!({"name": name, "peer_host": peer.ip().to_string(), "peer_port": peer.port()}));
    if counts.iter().any(|count| *count > 0) {
        let mut stats = Map::new();
        for (name, (count, rate)) in rates::NAMES_OF_CHANNEL.iter().zip(counts.iter().zip(growth)) {
            rates::put(&mut stats, name, *count, rate);
        }
        put("message_stats", Value::Object(stats));
    }
    found
}

fn listed(call: &Call<'_>, connections: impl Iterator<Item = Arc<Connected>>) -> Outcome {
    let consumers = consumers_by_channel(call);
    list_each(call, |put| {
        for connected in connections {
            for (number, flow) in connected.channels() {
                let count = consumers.get(&flow.id()).copied().unwrap_or(0);
                put(&Value::Object(described(call, &connected, number, &flow, count)));
            }
        }
    })
}

fn all(call: &Call<'_>) -> Outcome {
    listed(call, visible(call).into_iter())
}

fn of_vhost(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    listed(call, visible(call).into_iter().filter(|one| one.details.vhost == vhost.name()))
}

fn of_connection(call: &Call<'_>) -> Outcome {
    listed(call, std::iter::once(connection_of(call)?))
}

fn show(call: &Call<'_>) -> Outcome {
    let wanted = call.path("channel");
    for connected in visible(call) {
        let name = connected.name();
        let number = wanted
            .strip_prefix(name.as_str())
            .and_then(|rest| rest.strip_prefix(" (")?.strip_suffix(')')?.parse::<u16>().ok());
        let Some((number, flow)) = connected.channels().into_iter().find(|(open, _)| Some(*open) == number) else {
            continue;
        };
        let consumers = consumers::of_channel(call, &connected.details.vhost, flow.id());
        let mut found = described(call, &connected, number, &flow, consumers.len());
        found.insert("consumer_details".to_owned(), Value::Array(consumers));
        found.insert("publishes".to_owned(), json!([]));
        found.insert("deliveries".to_owned(), json!([]));
        return one(call, Value::Object(found));
    }
    Err(Answer::not_found())
}
