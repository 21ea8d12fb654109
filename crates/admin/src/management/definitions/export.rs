//! Definitions out: in RabbitMQ 4's format, without what goes with a connection and what is always there.

use std::sync::Arc;

use broker::{Broker, DEFAULT_VHOST, PolicyScope, Vhost, kind_name};
use routing::{Binding, Destination};
use serde_json::{Map, Value, json};

use super::super::{VERSION, permissions, users, values, vhosts};

fn head(explanation: String, format: &str) -> Map<String, Value> {
    let mut found = Map::new();
    for name in ["rabbit_version", "rabbitmq_version", "product_version"] {
        found.insert(name.to_owned(), VERSION.into());
    }
    found.insert("product_name".to_owned(), "RabbitMQ".into());
    found.insert("rabbitmq_definition_format".to_owned(), format.into());
    found.insert("explanation".to_owned(), explanation.into());
    found
}

/// What is in a virtual host; each says where it is if `named`.
#[derive(Default)]
struct Inside {
    queues: Vec<Value>,
    exchanges: Vec<Value>,
    bindings: Vec<Value>,
    policies: Vec<Value>,
    parameters: Vec<Value>,
}

impl Inside {
    fn add(&mut self, vhost: &Vhost, named: bool) {
        let put = |into: &mut Vec<Value>, mut one: Value| {
            if named {
                one["vhost"] = vhost.name().into();
            }
            into.push(one);
        };
        let queues: Vec<_> = vhost.queues().into_iter().filter(|queue| queue.owner().is_none()).collect();
        for queue in &queues {
            let kind = kind_name(queue.understood().kind);
            let mut arguments = values::arguments(queue.arguments());
            arguments["x-queue-type"] = kind.into();
            let (durable, auto_delete) = (queue.is_durable(), queue.is_auto_delete());
            put(&mut self.queues, json!({
                "name": queue.name().to_string(), "durable": durable, "auto_delete": auto_delete, "arguments": arguments, "type": kind,
            }));
        }
        let table = vhost.exchanges().read();
        let mut exchanges: Vec<_> = table.exchanges().filter(|one| !one.name().is_empty() && !one.name().starts_with(b"amq.")).collect();
        exchanges.sort_by(|one, other| one.name().cmp(other.name()));
        for exchange in exchanges {
            let mut one = json!({
                "name": exchange.name().to_string(),
                "type": exchange.kind_name(),
                "durable": exchange.durable(),
                "auto_delete": exchange.auto_delete(),
                "arguments": values::arguments(exchange.arguments()),
            });
            if exchange.internal() {
                one["internal"] = true.into();
            }
            put(&mut self.exchanges, one);
        }
        let is_kept = |one: &Binding<'_>| match one.destination {
            Destination::Exchange(_) => true,
            Destination::Queue(_) => queues.iter().any(|queue| queue.name() == one.destination_name),
        };
        let mut bindings: Vec<_> = table.all_bindings().filter(is_kept).collect();
        bindings.sort_by_cached_key(|one| (one.source.to_vec(), one.destination_name.to_vec(), one.key.to_vec()));
        for binding in bindings {
            put(&mut self.bindings, json!({
                "source": String::from_utf8_lossy(binding.source),
                "destination": binding.destination_name.to_string(),
                "destination_type": if matches!(binding.destination, Destination::Queue(_)) { "queue" } else { "exchange" },
                "routing_key": String::from_utf8_lossy(binding.key),
                "arguments": values::arguments(&binding.arguments),
            }));
        }
        drop(table);
        for policy in vhost.policies().all(PolicyScope::User) {
            let mut one = policy.value();
            one["name"] = policy.name().into();
            put(&mut self.policies, one);
        }
        for policy in vhost.policies().all(PolicyScope::Operator) {
            put(&mut self.parameters, json!({"component": "operator_policy", "name": policy.name(), "value": policy.value()}));
        }
        for (component, name, value) in vhost.parameters().all() {
            put(&mut self.parameters, json!({"component": component, "name": name, "value": value}));
        }
    }

    fn put_into(self, found: &mut Map<String, Value>) {
        let Self { queues, exchanges, bindings, policies, parameters } = self;
        for (name, all) in [("queues", queues), ("exchanges", exchanges), ("bindings", bindings), ("policies", policies), ("parameters", parameters)] {
            found.insert(name.to_owned(), all.into());
        }
    }
}

/// Of the whole broker.
pub(crate) fn all(broker: &Arc<Broker>) -> Value {
    let mut found = head(format!("Definitions of cluster '{}'", broker.cluster_id()), "cluster");
    found.insert("original_cluster_name".to_owned(), broker.cluster_id().into());
    let mut inside = Inside::default();
    let all = broker.vhosts().all();
    all.iter().for_each(|vhost| inside.add(vhost, true));
    inside.put_into(&mut found);
    let vhost = |vhost: &Arc<Vhost>| {
        let metadata = vhosts::metadata(&vhost.metadata());
        json!({"name": vhost.name(), "limits": vhost.parameters().limits(), "metadata": metadata})
    };
    found.insert("vhosts".to_owned(), all.iter().map(vhost).collect());
    let security = broker.security();
    found.insert("users".to_owned(), security.users().iter().map(|user| users::described(user)).collect());
    let permitted = security.all_permissions();
    let rows = permitted.iter().map(|(vhost, user, found)| permissions::described(vhost, user, found)).collect();
    found.insert("permissions".to_owned(), rows);
    let topics = security.all_topic_permissions();
    let rows = topics.iter().flat_map(|(vhost, user, found)| permissions::topics_described(vhost, user, found)).collect();
    found.insert("topic_permissions".to_owned(), rows);
    let global = broker.vhosts().global_parameters();
    found.insert("global_parameters".to_owned(), global.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect());
    Value::Object(found)
}

/// Of one virtual host.
pub(crate) fn of_vhost(_broker: &Arc<Broker>, vhost: &Arc<Vhost>) -> Value {
    let mut found = head(format!("Definitions of virtual host '{}'", vhost.name()), "single_virtual_host");
    let metadata = vhosts::metadata(&vhost.metadata());
    let default = if vhost.name() == DEFAULT_VHOST { "Default virtual host".into() } else { Value::from("") };
    found.insert("description".to_owned(), metadata.get("description").cloned().unwrap_or(default));
    found.insert("metadata".to_owned(), Value::Object(metadata));
    found.insert("limits".to_owned(), Value::Object(vhost.parameters().limits()));
    found.insert("original_vhost_name".to_owned(), vhost.name().into());
    let mut inside = Inside::default();
    inside.add(vhost, false);
    inside.put_into(&mut found);
    Value::Object(found)
}
