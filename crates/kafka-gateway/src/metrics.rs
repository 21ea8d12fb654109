//! What the gateway measures.

use std::sync::{Arc, OnceLock};

use kafka_wire::ApiKey;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The label of a family by API.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ApiLabel {
    /// Kafka's name of the API.
    pub api: &'static str,
}

/// What is measured of one API.
pub(crate) struct ApiMetrics {
    pub requests: Counter,
    pub seconds: Histogram,
}

/// Counters of the Kafka gateway; cheap to clone.
#[derive(Clone)]
#[expect(missing_docs, reason = "each is explained where it is registered")]
pub struct GatewayMetrics {
    pub requests: Family<ApiLabel, Counter>,
    pub request_seconds: Family<ApiLabel, Histogram>,
    by_api: Arc<[OnceLock<ApiMetrics>]>,
    pub produced_bytes: Counter,
    pub produced_records: Counter,
    pub fetched_bytes: Counter,
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
    pub connections: Gauge,
    pub refused_frames: Counter,
    pub logins: Counter,
    pub refused_logins: Counter,
}

impl Default for GatewayMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 2.0, 18))),
            by_api: ApiKey::all().iter().map(|_| OnceLock::new()).collect(),
            produced_bytes: Counter::default(),
            produced_records: Counter::default(),
            fetched_bytes: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            connections: Gauge::default(),
            refused_frames: Counter::default(),
            logins: Counter::default(),
            refused_logins: Counter::default(),
        }
    }
}

impl GatewayMetrics {
    /// Those of an API, which are shown from the first use on. Looked up by name once, not for every request.
    pub(crate) fn of(&self, api: &ApiKey) -> &ApiMetrics {
        let place = ApiKey::all().binary_search_by_key(&api.key, |known| known.key);
        let known = place.ok().and_then(|place| self.by_api.get(place)).expect("every API that is served has a codec");
        known.get_or_init(|| {
            let label = ApiLabel { api: api.name };
            ApiMetrics {
                requests: self.requests.get_or_create_owned(&label),
                seconds: self.request_seconds.get_or_create_owned(&label),
            }
        })
    }

    /// Makes them visible under `mainstem_kafka_…`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("mainstem_kafka");
        registry.register("requests", "Requests by API", self.requests.clone());
        registry.register(
            "request_duration_seconds",
            "From a request's arrival to its answer",
            self.request_seconds.clone(),
        );
        registry.register("produced_bytes", "Record batches accepted, in bytes", self.produced_bytes.clone());
        registry.register("produced_records", "Records accepted", self.produced_records.clone());
        registry.register("fetched_bytes", "Record batches served, in bytes", self.fetched_bytes.clone());
        registry.register("received_bytes", "Requests, in bytes", self.received_bytes.clone());
        registry.register("sent_bytes", "Answers, in bytes", self.sent_bytes.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register("logins", "Logins and renewed sessions", self.logins.clone());
        registry.register("refused_logins", "Logins that were refused", self.refused_logins.clone());
        registry.register(
            "refused_frames",
            "Requests that made no sense and ended their connection",
            self.refused_frames.clone(),
        );
    }
}
