//! Distributions of latency: HDR histograms in microseconds, and the curve that a report draws.
//!
//! Three significant digits from 1 µs to an hour; what is longer counts as an hour. Histograms of threads and workers
//! are added up, never averaged.

use hdrhistogram::Histogram;

use crate::clock::Nanos;
use crate::result::Curve;

/// A percentile is told only where so many samples lie beyond it: one of fewer is chance.
const BEYOND_MIN: f64 = 100.0;
const LONGEST_US: u64 = 3_600_000_000;
/// Points of a curve for each halving of what is above.
const POINTS_PER_HALVING: u32 = 4;

/// Latencies of one kind.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_US, 3).expect("bounds within what the library takes"))
    }
}

impl Latency {
    /// Counts one.
    pub fn record(&mut self, nanos: Nanos) {
        self.0.saturating_record((nanos / 1000).max(1));
    }

    /// Counts so many that were given up after this long.
    pub fn record_unended(&mut self, nanos: Nanos, count: u64) {
        self.0.saturating_record_n((nanos / 1000).max(1), count);
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("same bounds");
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Milliseconds below which so much of 0 to 1 lies; absent when nothing was counted.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1000.0)
    }

    /// The same where at least 100 samples lie beyond it.
    pub fn sure_quantile_ms(&self, quantile: f64) -> Option<f64> {
        // A hair more, for what 1 − 0.99 is in binary.
        ((1.0 - quantile) * self.count() as f64 + 1e-6 >= BEYOND_MIN).then(|| self.quantile_ms(quantile)).flatten()
    }

    /// The curve, of which `unended` were given up; absent when nothing was counted. It has no percentile with fewer than 100 samples beyond it.
    pub fn curve(&self, unended: u64) -> Option<Curve> {
        if self.0.is_empty() {
            return None;
        }
        let at = |quantile| self.sure_quantile_ms(quantile);
        Some(Curve {
            count: self.count(),
            unended,
            mean_ms: self.0.mean() / 1000.0,
            p50_ms: at(0.5),
            p75_ms: at(0.75),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            p9999_ms: at(0.9999),
            max_ms: self.0.max() as f64 / 1000.0,
            points: self
                .0
                .iter_quantiles(POINTS_PER_HALVING)
                .filter(|point| at(point.quantile_iterated_to()).is_some())
                .map(|point| (point.quantile_iterated_to() * 100.0, point.value_iterated_to() as f64 / 1000.0))
                .collect(),
        })
    }

    /// As bytes, for the way from a worker to its coordinator.
    pub fn to_bytes(&self) -> Vec<u8> {
        use hdrhistogram::serialization::{Serializer, V2Serializer};
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.0, &mut bytes).expect("a vector takes all");
        bytes
    }

    /// From those bytes.
    ///
    /// # Errors
    /// The bytes are no histogram of these bounds.
    pub fn from_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        use hdrhistogram::serialization::Deserializer;
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut &bytes[..])
            .map_err(|error| anyhow::anyhow!("not a histogram: {error:?}"))?;
        let mut latency = Self::default();
        latency.0.add(&read).map_err(|error| anyhow::anyhow!("a histogram of other bounds: {error}"))?;
        Ok(latency)
    }
}

#[cfg(test)]
mod tests;
