//! Limits at `/metrics`: how many there may be, how many there are, how often somebody was refused. Those of the node by setting; those of
//! virtual hosts and users that have some by whose they are. Looked up when somebody reads.

use std::sync::atomic::Ordering;

use broker::{Broker, LimitKind};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Label of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNode {
    limit: &'static str,
}

/// Label of a virtual host's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfVhost {
    vhost: String,
    limit: &'static str,
}

/// Label of a user's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfUser {
    user: String,
    limit: &'static str,
}

/// Gauges and counters of limits; cheap to clone.
#[derive(Clone, Default)]
pub struct LimitMetrics {
    limit: Family<OfNode, Gauge>,
    used: Family<OfNode, Gauge>,
    refused: Family<OfNode, Counter>,
    vhost_limit: Family<OfVhost, Gauge>,
    vhost_used: Family<OfVhost, Gauge>,
    user_limit: Family<OfUser, Gauge>,
    user_used: Family<OfUser, Gauge>,
}

impl LimitMetrics {
    /// Makes them visible in a registry that has the prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("limit", "How many there may be, by the setting that says it", self.limit.clone());
        registry.register(
            "limit_used",
            "How many there are of what mainstem_limit bounds for the whole node",
            self.used.clone(),
        );
        let help =
            "How often somebody was refused because there were as many as there may be, or something was too large";
        registry.register("limit_refused", help, self.refused.clone());
        registry.register(
            "vhost_limit",
            "Limits of virtual hosts that have some, a thousand at most",
            self.vhost_limit.clone(),
        );
        registry.register(
            "vhost_limit_used",
            "How many there are of what mainstem_vhost_limit bounds",
            self.vhost_used.clone(),
        );
        registry.register("user_limit", "Limits of users who have some, a thousand at most", self.user_limit.clone());
        registry.register(
            "user_limit_used",
            "How many there are of what mainstem_user_limit bounds",
            self.user_used.clone(),
        );
    }

    /// Looks everything up; `connections`: those of the node.
    pub fn refresh(&self, broker: &Broker, connections: usize) {
        for kind in LimitKind::ALL {
            let label = OfNode { limit: kind.name() };
            self.refused.get_or_create(&label).inner().store(broker.limits().refused(kind), Ordering::Relaxed);
            if kind.is_setting() {
                self.limit.get_or_create(&label).set(shown(broker.limit(kind)));
            }
            let used = if kind == LimitKind::Connections { Some(connections as u64) } else { broker.limit_use(kind) };
            if let Some(used) = used {
                self.used.get_or_create(&label).set(shown(used));
            }
        }
        self.vhost_limit.clear();
        self.vhost_used.clear();
        self.user_limit.clear();
        self.user_used.clear();
        for one in broker.own_limits() {
            let limit = one.kind.name().trim_start_matches("vhost.").trim_start_matches("user.");
            if matches!(one.kind, LimitKind::UserConnections | LimitKind::UserChannels) {
                let label = OfUser { user: one.of, limit };
                self.user_limit.get_or_create(&label).set(shown(one.limit));
                self.user_used.get_or_create(&label).set(shown(one.used));
            } else {
                let label = OfVhost { vhost: one.of, limit };
                self.vhost_limit.get_or_create(&label).set(shown(one.limit));
                self.vhost_used.get_or_create(&label).set(shown(one.used));
            }
        }
    }
}

fn shown(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
