//! Latencies between two looks at histograms that only grow: percentiles of what came in between.

use serde_json::{Value, json};

/// A histogram at a moment: upper bounds in seconds, and how many were at most so long. The last bound is infinite.
pub type Buckets = Vec<(f64, u64)>;

/// How long things have taken since the start.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Requests of Kafka clients to store records.
    pub produce: Buckets,
    /// Requests of Kafka clients for records; those that wait for some are among them.
    pub fetch: Buckets,
    /// From a chunk's submission to stable storage, in all journals.
    pub commit: Buckets,
}

/// Percentiles of what came between two looks, in ms; nulls if nothing did.
pub(super) fn percentiles(before: &Buckets, now: &Buckets) -> Value {
    let earlier = |bound: f64| before.iter().find(|(known, _)| *known == bound).map_or(0, |(_, count)| *count);
    let between: Buckets = now.iter().map(|(bound, count)| (*bound, count.saturating_sub(earlier(*bound)))).collect();
    let of = |share| percentile(&between, share).map(|seconds| (seconds * 1e6).round() / 1e3);
    json!({"p50_ms": of(0.5), "p99_ms": of(0.99), "p999_ms": of(0.999)})
}

/// Evenly spread within its bucket; of the infinite one, its lower bound.
fn percentile(buckets: &Buckets, share: f64) -> Option<f64> {
    let total = buckets.last()?.1;
    if total == 0 {
        return None;
    }
    let wanted = share * total as f64;
    let (mut lower, mut below) = (0.0, 0);
    for (bound, count) in buckets {
        if *count as f64 >= wanted {
            if !bound.is_finite() {
                return Some(lower);
            }
            let inside = (wanted - below as f64) / (count - below).max(1) as f64;
            return Some(lower + (bound - lower) * inside.clamp(0.0, 1.0));
        }
        (lower, below) = (*bound, *count);
    }
    Some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_came_between() {
        let before = vec![(0.001, 100), (0.002, 100), (f64::INFINITY, 100)];
        let now = vec![(0.001, 150), (0.002, 199), (f64::INFINITY, 200)];
        // Of 100 that came, 50 took up to 1 ms, 49 up to 2 ms, and one longer.
        assert_eq!(percentiles(&before, &now), json!({"p50_ms": 1.0, "p99_ms": 2.0, "p999_ms": 2.0}));
        assert_eq!(percentiles(&now, &now), json!({"p50_ms": null, "p99_ms": null, "p999_ms": null}));
        assert_eq!(percentiles(&Vec::new(), &Vec::new())["p50_ms"], Value::Null);
        let first = vec![(0.001, 0), (0.003, 10), (f64::INFINITY, 10)];
        assert_eq!(percentiles(&Vec::new(), &first)["p50_ms"], json!(2.0));
    }
}
