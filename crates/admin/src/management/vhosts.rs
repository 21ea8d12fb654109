//! Virtual hosts: list, look at.

use std::sync::Arc;

use axum::http::Method;
use broker::Vhost;
use serde_json::{Map, Value, json};

use super::answer::Outcome;
use super::call::Call;
use super::listing::{list, one};
use super::rates::{self, COUNTS, Subject};
use super::route::{Access, Route, route};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/vhosts", Access::Management, all),
    route(Method::GET, "/vhosts/{vhost}", Access::Vhost, show),
];

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
    let mut found = Map::new();
    let mut put = |name: &str, value: Value| drop(found.insert(name.to_owned(), value));
    let description = "Default virtual host";
    put("name", vhost.name().into());
    put("description", description.into());
    put("tags", json!([]));
    put("default_queue_type", "classic".into());
    put("protected_from_deletion", false.into());
    put("metadata", json!({"description": description, "tags": [], "default_queue_type": "classic"}));
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
    list(call, call.vhosts().iter().map(|vhost| described(call, vhost)).collect())
}

fn show(call: &Call<'_>) -> Outcome {
    one(call, described(call, &call.vhost()?))
}
