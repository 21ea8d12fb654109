//! Definitions out: in RabbitMQ 4's format, without what goes with a connection and what is always there.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use broker::{Broker, DEFAULT_VHOST, PolicyScope, Queue, Vhost, kind_name};
use routing::{Binding, Destination, Name};
use serde_json::{Value, json};

use super::super::{VERSION, permissions, users, values, vhosts};
use crate::answers::Part;

/// An object of definitions, its lists written item by item.
pub(crate) type Parts<'a> = BTreeMap<&'a str, Part<'a>>;

fn head(explanation: String, format: &str) -> Parts<'static> {
    let versions = ["rabbit_version", "rabbitmq_version", "product_version"].map(|name| (name, Value::from(VERSION)));
    let others = [
        ("product_name", "RabbitMQ".into()),
        ("rabbitmq_definition_format", format.into()),
        ("explanation", explanation.into()),
    ];
    versions.into_iter().chain(others).map(|(name, value)| (name, Part::Value(value))).collect()
}

/// A virtual host, and those of its queues that go with no connection.
pub(crate) struct Inside<'a> {
    vhost: &'a Vhost,
    queues: Vec<Arc<Queue>>,
}

/// What is to be written of these.
pub(crate) fn inside(vhosts: &[Arc<Vhost>]) -> Vec<Inside<'_>> {
    let one = |vhost| Inside {
        vhost,
        queues: Vhost::queues(vhost).into_iter().filter(|queue| queue.owner().is_none()).collect(),
    };
    vhosts.iter().map(|vhost| one(&**vhost)).collect()
}

impl Inside<'_> {
    fn queues(&self, put: &mut dyn FnMut(Value)) {
        for queue in &self.queues {
            let kind = kind_name(queue.understood().kind);
            let mut arguments = values::arguments(queue.arguments());
            arguments["x-queue-type"] = kind.into();
            let (durable, auto_delete) = (queue.is_durable(), queue.is_auto_delete());
            put(json!({
                "name": queue.name().to_string(), "durable": durable, "auto_delete": auto_delete, "arguments": arguments, "type": kind,
            }));
        }
    }

    fn exchanges(&self, put: &mut dyn FnMut(Value)) {
        let table = self.vhost.exchanges().read();
        let mut exchanges: Vec<_> =
            table.exchanges().filter(|one| !one.name().is_empty() && !one.name().starts_with(b"amq.")).collect();
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
            put(one);
        }
    }

    fn bindings(&self, put: &mut dyn FnMut(Value)) {
        let queues: HashSet<&Name> = self.queues.iter().map(|queue| queue.name()).collect();
        let table = self.vhost.exchanges().read();
        let is_kept = |one: &Binding<'_>| match one.destination {
            Destination::Exchange(_) => true,
            Destination::Queue(_) => queues.contains(one.destination_name),
        };
        let mut bindings: Vec<_> = table.all_bindings().filter(is_kept).collect();
        bindings.sort_by_cached_key(|one| (one.source.to_vec(), one.destination_name.to_vec(), one.key.to_vec()));
        for binding in bindings {
            put(json!({
                "source": String::from_utf8_lossy(binding.source),
                "destination": binding.destination_name.to_string(),
                "destination_type": if matches!(binding.destination, Destination::Queue(_)) { "queue" } else { "exchange" },
                "routing_key": String::from_utf8_lossy(binding.key),
                "arguments": values::arguments(&binding.arguments),
            }));
        }
    }

    fn policies(&self, put: &mut dyn FnMut(Value)) {
        for policy in self.vhost.policies().all(PolicyScope::User) {
            let mut one = policy.value();
            one["name"] = policy.name().into();
            put(one);
        }
    }

    fn parameters(&self, put: &mut dyn FnMut(Value)) {
        for policy in self.vhost.policies().all(PolicyScope::Operator) {
            put(json!({"component": "operator_policy", "name": policy.name(), "value": policy.value()}));
        }
        for (component, name, value) in self.vhost.parameters().all() {
            put(json!({"component": component, "name": name, "value": value}));
        }
    }
}

/// What a list of a virtual host has.
type Of<'a> = fn(&Inside<'a>, &mut dyn FnMut(Value));

/// The lists of what is in virtual hosts; each item says where it is if `named`.
fn put_inside<'a>(parts: &mut Parts<'a>, all: &'a [Inside<'a>], named: bool) {
    let lists: [(&'static str, Of<'a>); 5] = [
        ("queues", Inside::queues),
        ("exchanges", Inside::exchanges),
        ("bindings", Inside::bindings),
        ("policies", Inside::policies),
        ("parameters", Inside::parameters),
    ];
    for (name, of) in lists {
        let each = move |put: &mut dyn FnMut(&Value)| {
            for one in all {
                of(one, &mut |mut item| {
                    if named {
                        item["vhost"] = one.vhost.name().into();
                    }
                    put(&item);
                });
            }
        };
        parts.insert(name, Part::List(Box::new(each)));
    }
}

/// Of the whole broker.
pub(crate) fn all<'a>(broker: &'a Arc<Broker>, inside: &'a [Inside<'a>]) -> Parts<'a> {
    let mut parts = head(format!("Definitions of cluster '{}'", broker.cluster_id()), "cluster");
    parts.insert("original_cluster_name", Part::Value(broker.cluster_id().into()));
    put_inside(&mut parts, inside, true);
    let vhost = |Inside { vhost, .. }: &Inside<'_>| {
        let metadata = vhosts::metadata(&vhost.metadata());
        json!({"name": vhost.name(), "limits": vhost.parameters().limits(), "metadata": metadata})
    };
    parts.insert("vhosts", Part::items(inside.iter().map(vhost)));
    let security = broker.security();
    parts.insert("users", Part::items(security.users().into_iter().map(|user| users::described(&user))));
    let permitted = security.all_permissions().into_iter();
    parts.insert(
        "permissions",
        Part::items(permitted.map(|(vhost, user, found)| permissions::described(&vhost, &user, &found))),
    );
    let topics = security.all_topic_permissions().into_iter();
    parts.insert(
        "topic_permissions",
        Part::items(topics.flat_map(|(vhost, user, found)| permissions::topics_described(&vhost, &user, &found))),
    );
    let global = broker.vhosts().global_parameters().into_iter();
    parts.insert("global_parameters", Part::items(global.map(|(name, value)| json!({"name": name, "value": value}))));
    parts
}

/// Of one virtual host.
pub(crate) fn of_vhost<'a>(vhost: &'a Arc<Vhost>, inside: &'a [Inside<'a>]) -> Parts<'a> {
    let mut parts = head(format!("Definitions of virtual host '{}'", vhost.name()), "single_virtual_host");
    let metadata = vhosts::metadata(&vhost.metadata());
    let default = if vhost.name() == DEFAULT_VHOST { "Default virtual host".into() } else { Value::from("") };
    parts.insert("description", Part::Value(metadata.get("description").cloned().unwrap_or(default)));
    parts.insert("metadata", Part::Value(Value::Object(metadata)));
    parts.insert("limits", Part::Value(Value::Object(vhost.parameters().limits())));
    parts.insert("original_vhost_name", Part::Value(vhost.name().into()));
    put_inside(&mut parts, inside, false);
    parts
}
