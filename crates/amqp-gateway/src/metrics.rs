//! What the gateway measures.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters of the AMQP gateway; cheap to clone.
#[derive(Clone, Default)]
#[expect(missing_docs, reason = "each is explained where it is registered")]
pub struct GatewayMetrics {
    pub connections: Gauge,
    pub blocked: Gauge,
    pub channels: Gauge,
    pub consumers: Gauge,
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
    pub published: Counter,
    pub published_bytes: Counter,
    pub unroutable: Counter,
    pub not_kept: Counter,
    pub confirmed: Counter,
    pub delivered: Counter,
    pub got: Counter,
    pub settled: Counter,
    pub channel_errors: Counter,
    pub connection_errors: Counter,
    pub refused_logins: Counter,
}

impl GatewayMetrics {
    /// Makes them visible under `mainstem_amqp_…`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("mainstem_amqp");
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register("blocked_connections", "Connections whose publishes find no room", self.blocked.clone());
        registry.register("channels", "Open channels", self.channels.clone());
        registry.register("consumers", "Consumers", self.consumers.clone());
        registry.register("received_bytes", "Frames received, in bytes", self.received_bytes.clone());
        registry.register("sent_bytes", "Frames sent, in bytes", self.sent_bytes.clone());
        registry.register("published", "Messages published", self.published.clone());
        registry.register("published_bytes", "Bodies of messages published, in bytes", self.published_bytes.clone());
        registry.register("unroutable", "Messages published that no queue got", self.unroutable.clone());
        registry.register("not_kept", "Messages that a queue or the journal did not take", self.not_kept.clone());
        registry.register("confirmed", "Messages confirmed to their publishers", self.confirmed.clone());
        registry.register("delivered", "Messages given to consumers", self.delivered.clone());
        registry.register("got", "Messages given to those who asked for one", self.got.clone());
        registry.register("settled", "Messages acknowledged, rejected or given back by clients", self.settled.clone());
        registry.register("channel_errors", "Channels closed because of an error", self.channel_errors.clone());
        registry.register(
            "connection_errors",
            "Connections closed because of an error",
            self.connection_errors.clone(),
        );
        registry.register("refused_logins", "Logins refused", self.refused_logins.clone());
    }
}
