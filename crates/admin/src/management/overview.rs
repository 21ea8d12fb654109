//! What the whole broker has and does, who asks, and what management itself can do.

use axum::http::Method;
use serde_json::{Map, Value, json};

use super::VERSION;
use super::answer::{Answer, Outcome};
use super::call::Call;
use super::nodes::exchange_types;
use super::rates::{self, NAMES_OF_NODE, Subject};
use super::route::{Access, Route, route};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/overview", Access::Management, overview),
    route(Method::GET, "/whoami", Access::Management, whoami),
    route(Method::GET, "/cluster-name", Access::Management, cluster_name),
    route(Method::GET, "/extensions", Access::Management, |_| Ok(Answer::of(json!([])))),
    route(Method::GET, "/feature-flags", Access::Management, |_| Ok(Answer::of(json!([])))),
    route(Method::GET, "/deprecated-features", Access::Management, |_| Ok(Answer::of(json!([])))),
    route(Method::GET, "/deprecated-features/used", Access::Management, |_| Ok(Answer::of(json!([])))),
];

/// Who is served where, as RabbitMQ lists it.
pub(crate) fn listeners(call: &Call<'_>) -> Vec<Value> {
    let one = |one: &super::Listening| {
        json!({
            "node": call.management.node,
            "protocol": one.protocol,
            "ip_address": one.address.ip().to_string(),
            "port": one.address.port(),
            "tls": one.tls,
            "socket_opts": {"nodelay": true},
        })
    };
    call.management.facts.listeners.iter().map(one).collect()
}

/// Messages of all queues that who asks may look into, and how many things there are.
fn totals(call: &Call<'_>) -> (Value, Value) {
    let broker = call.broker();
    let (mut messages, mut growth) = ([0; rates::COUNTS], [0.0; rates::COUNTS]);
    let (mut queues, mut consumers, mut exchanges) = (0, 0, 0);
    for vhost in call.vhosts() {
        exchanges += vhost.exchanges().read().exchanges().count();
        for queue in vhost.queues() {
            let held = broker.counts(&queue);
            (queues, consumers) = (queues + 1, consumers + held.consumers);
            let rates = call.management.rates.of(Subject::Queue(queue.id()));
            for (at, count) in [(9, held.ready), (10, held.unacknowledged), (11, held.ready + held.unacknowledged)] {
                messages[at] += count;
                growth[at] += rates[at];
            }
        }
    }
    let mut queue_totals = Map::new();
    if queues > 0 {
        rates::put_messages(&mut queue_totals, &messages, &growth);
    }
    let connections = super::connections::visible(call);
    let channels: usize = connections.iter().map(|one| one.channels().len()).sum();
    let objects = json!({
        "channels": channels, "connections": connections.len(), "consumers": consumers, "exchanges": exchanges, "queues": queues,
    });
    (Value::Object(queue_totals), objects)
}

fn overview(call: &Call<'_>) -> Outcome {
    let management = call.management;
    let counts = rates::of_node(&management.gateway.totals(), management.broker.connections().churn());
    let growth = management.rates.of(Subject::Node);
    let mut stats = Map::new();
    for (name, (count, rate)) in NAMES_OF_NODE.iter().zip(counts.iter().zip(growth)) {
        rates::put(&mut stats, name, *count, rate);
    }
    rates::put(&mut stats, "deliver", counts[5], growth[5]);
    rates::put(&mut stats, "deliver_get", counts[6], growth[6]);
    let mut churn = Map::new();
    for (name, at) in
        [("connection_created", 7), ("connection_closed", 8), ("channel_created", 9), ("channel_closed", 10)]
    {
        rates::put(&mut churn, name, counts[at], growth[at]);
    }
    let (queue_totals, object_totals) = totals(call);
    let mut found = json!({
        "management_version": VERSION,
        "rabbitmq_version": VERSION,
        "product_name": "RabbitMQ",
        "product_version": VERSION,
        "erlang_version": "",
        "erlang_full_version": "",
        "crypto_lib_version": "",
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [5], "basic": [5], "detailed": [5]},
        "exchange_types": exchange_types(),
        "cluster_name": management.broker.cluster_id(),
        "cluster_tags": {},
        "node_tags": {},
        "node": management.node,
        "default_queue_type": "classic",
        "disable_stats": false,
        "enable_queue_totals": false,
        "is_op_policy_updating_enabled": true,
        "require_definition_json_extension": false,
        "statistics_db_event_queue": 0,
        "message_stats": stats,
        "churn_rates": churn,
        "queue_totals": queue_totals,
        "object_totals": object_totals,
    });
    if call.who.monitors() {
        found["listeners"] = listeners(call).into();
        found["contexts"] = json!([]);
    }
    super::listing::one(call, found)
}

fn whoami(call: &Call<'_>) -> Outcome {
    Ok(Answer::of(json!({"name": call.who.name(), "tags": call.who.tags(), "is_internal_user": true})))
}

fn cluster_name(call: &Call<'_>) -> Outcome {
    Ok(Answer::of(json!({"name": call.broker().cluster_id()})))
}
