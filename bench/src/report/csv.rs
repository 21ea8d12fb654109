//! All runs as a table for other programs: one row a run, RFC 4180. A figure that was not measured says so; one that a run has not is empty.

use crate::findings::flaws;
use crate::result::{Curve, Run};

const NOT_MEASURED: &str = "not measured";

const HEAD: [&str; 24] = [
    "experiment",
    "variation",
    "target",
    "variant",
    "version",
    "durability",
    "pair",
    "ranked",
    "flaws",
    "publish_rate",
    "receive_rate",
    "publish_mb_s",
    "publish_p50_ms",
    "publish_p99_ms",
    "publish_p999_ms",
    "end_to_end_p50_ms",
    "end_to_end_p99_ms",
    "broker_cpu_s_per_gb",
    "broker_memory_peak_mb",
    "broker_page_cache_peak_mb",
    "broker_disk_bytes_per_byte",
    "broker_handles",
    "broker_connections",
    "others_percent_of_processors",
];

/// The table.
pub fn table(runs: &[Run]) -> String {
    let mut text = HEAD.join(",") + "\r\n";
    for run in runs {
        text.push_str(&row(run).map(|field| quoted(&field)).join(","));
        text.push_str("\r\n");
    }
    text
}

fn row(run: &Run) -> [String; HEAD.len()] {
    let flaws = flaws(run);
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let seen = |value: Option<f64>| value.map_or(NOT_MEASURED.to_owned(), |value| value.to_string());
    let publish = |of: fn(&Curve) -> Option<f64>| number(run.measured.publish_latency.as_ref().and_then(of));
    let arrival = |of: fn(&Curve) -> Option<f64>| number(run.measured.end_to_end_latency.as_ref().and_then(of));
    let others = run.processor.and_then(|time| time.others_s.map(|seconds| seconds / time.all_s.max(1e-9) * 100.0));
    let (target, broker) = (&run.target, &run.broker);
    [
        run.experiment.clone(),
        run.variation.clone(),
        target.name.clone(),
        target.variant.clone(),
        target.version.clone(),
        target.durability.clone(),
        run.pair.to_string(),
        flaws.is_empty().to_string(),
        flaws.join("; "),
        run.measured.publish_rate.to_string(),
        run.measured.receive_rate.to_string(),
        run.measured.publish_mb_s.to_string(),
        publish(|curve| curve.p50_ms),
        publish(|curve| curve.p99_ms),
        publish(|curve| curve.p999_ms),
        arrival(|curve| curve.p50_ms),
        arrival(|curve| curve.p99_ms),
        seen(broker.cpu_s_per_gb),
        seen(broker.memory_peak_mb),
        seen(broker.page_cache_peak_mb),
        seen(broker.disk_bytes_per_byte),
        seen(broker.handles.map(|count| count as f64)),
        seen(broker.connections.map(|count| count as f64)),
        seen(others),
    ]
}

fn quoted(field: &str) -> String {
    let plain = !field.contains(['"', ',', '\n', '\r']);
    if plain { field.to_owned() } else { format!("\"{}\"", field.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::BrokerAccount;

    #[test]
    fn a_broker_that_is_not_to_be_seen_has_no_zeros() {
        let mut run = crate::report::sample_run();
        run.variation = "a, \"b\"".to_owned();
        (run.broker, run.processor) = (BrokerAccount::default(), None);
        let text = table(std::slice::from_ref(&run));
        let (head, rest) = text.split_once("\r\n").unwrap();
        assert_eq!(head.split(',').count(), HEAD.len());
        assert!(rest.contains("\"a, \"\"b\"\"\""), "{rest}");
        assert_eq!(rest.matches("not measured").count(), 7, "{rest}");
    }
}
