//! Latencies for those who look on: histograms of requests and commits, read from the text that Prometheus would get, because the library
//! shows what is in them in no other way. Only these are written down, so that looking each second costs little.

use std::sync::Arc;

use admin::api::{Buckets, Latencies};
use journal::Journal;
use kafka_gateway::GatewayMetrics;
use prometheus_client::registry::Registry;

/// The histograms.
pub struct LatencyLook(Registry);

impl LatencyLook {
    /// Of the Kafka gateway and the journals.
    pub fn new(metrics: &GatewayMetrics, journals: &[Arc<Journal>]) -> Self {
        let mut registry = Registry::default();
        registry.register("request", "", metrics.request_seconds.clone());
        for journal in journals {
            let number = journal.number().to_string();
            registry.sub_registry_with_label(("journal".into(), number.into())).register(
                "commit",
                "",
                journal.metrics().commit_seconds.clone(),
            );
        }
        Self(registry)
    }

    /// As they are now.
    pub fn read(&self) -> Latencies {
        let mut text = String::new();
        if prometheus_client::encoding::text::encode(&mut text, &self.0).is_err() {
            return Latencies::default();
        }
        Latencies {
            produce: buckets(&text, "request_bucket{", "api=\"Produce\""),
            fetch: buckets(&text, "request_bucket{", "api=\"Fetch\""),
            commit: buckets(&text, "commit_bucket{", ""),
        }
    }
}

/// The buckets of a histogram whose labels contain `wanted`; those of several are added up.
fn buckets(text: &str, name: &str, wanted: &str) -> Buckets {
    let mut found = Buckets::new();
    for line in text.lines().filter_map(|line| line.strip_prefix(name)) {
        let Some((labels, count)) = line.split_once("} ").filter(|(labels, _)| labels.contains(wanted)) else {
            continue;
        };
        let bound = labels.split("le=\"").nth(1).and_then(|rest| rest.split('"').next());
        let bound = bound.and_then(|bound| if bound == "+Inf" { Some(f64::INFINITY) } else { bound.parse().ok() });
        let (Some(bound), Ok(count)) = (bound, count.trim().parse::<u64>()) else { continue };
        match found.iter_mut().find(|(known, _)| *known == bound) {
            Some((_, sum)) => *sum += count,
            None => found.push((bound, count)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_gateway::ApiLabel;

    #[test]
    fn histograms_are_read_back() {
        let metrics = GatewayMetrics::default();
        for (api, seconds) in [("Produce", 0.000_15), ("Produce", 0.000_15), ("Produce", 1e9), ("Fetch", 0.003)] {
            metrics.request_seconds.get_or_create(&ApiLabel { api }).observe(seconds);
        }
        let found = LatencyLook::new(&metrics, &[]).read();
        assert_eq!(found.produce.first(), Some(&(0.0001, 0)));
        assert_eq!(found.produce.get(1), Some(&(0.0002, 2)));
        assert_eq!(found.produce.last(), Some(&(f64::INFINITY, 3)));
        assert_eq!(found.fetch.last(), Some(&(f64::INFINITY, 1)));
        assert!(found.commit.is_empty());
    }

    #[test]
    fn journals_are_added_up() {
        let text = "commit_bucket{le=\"0.1\",journal=\"0\"} 1\ncommit_bucket{le=\"0.1\",journal=\"1\"} 2\ncommit_bucket{le=\"+Inf\",journal=\"0\"} 5\nother 1\n";
        assert_eq!(buckets(text, "commit_bucket{", ""), vec![(0.1, 3), (f64::INFINITY, 5)]);
    }
}
