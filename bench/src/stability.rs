//! When a system is primed or steady, and when a rate is stable: decisions over series, without I/O.

/// How far apart the rates of three windows may lie to count as steady, and their median latencies.
const RATES_WITHIN: f64 = 0.05;
const LATENCIES_WITHIN: f64 = 0.25;
/// Slope of the backlog, as a share of the rate, up to which consumers keep up.
pub const SLOPE_MAX: f64 = 0.01;
/// Schedule lag p99, milliseconds, up to which the generator keeps its schedule.
pub const LAG_P99_MAX_MS: f64 = 10.0;

/// A stretch of priming that is faster than all before by more than this share shows that the target still improves.
const IMPROVES_BY: f64 = 0.05;
/// Stretches that must have shown no improvement.
const LEVEL_STRETCHES: usize = 3;

/// Whether throughput has stopped improving: none of the last three stretches was faster than the best before them by more than 5 %.
pub fn is_level(rates: &[f64]) -> bool {
    let Some(before) = rates.len().checked_sub(LEVEL_STRETCHES).filter(|before| *before > 0) else { return false };
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let earlier = best(&rates[..before]);
    earlier > 0.0 && best(&rates[before..]) <= earlier * (1.0 + IMPROVES_BY)
}

/// Whether the last three windows agree in their rates.
pub fn steady(rates: &[f64]) -> bool {
    agree(rates, RATES_WITHIN)
}

/// Whether the last three windows agree in their median latencies: at a fixed rate the rate says nothing, and a virtual
/// machine that is still compiling is slow.
pub fn warm(latencies: &[f64]) -> bool {
    agree(latencies, LATENCIES_WITHIN)
}

fn agree(windows: &[f64], within: f64) -> bool {
    let Some(last) = windows.last_chunk::<3>() else { return false };
    let (low, high) = last.iter().fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(*value), high.max(*value)));
    low > 0.0 && high - low <= within * high
}

/// Slope of a straight line through points (seconds, messages), messages a second; 0 with fewer than two points.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (middle_x, middle_y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - middle_x).powi(2)).sum();
    let together: f64 = points.iter().map(|(x, y)| (x - middle_x) * (y - middle_y)).sum();
    if spread > 0.0 { together / spread } else { 0.0 }
}

/// Why a rate is not stable; nothing when it is. `slope` is the backlog's, as a share of the rate.
pub fn unstable(rate: f64, published: f64, slope: f64, lag_p99_ms: f64) -> Vec<String> {
    let mut reasons = Vec::new();
    if slope > SLOPE_MAX {
        reasons.push(format!("the backlog grows by {:.1} % of the rate", slope * 100.0));
    }
    if lag_p99_ms > LAG_P99_MAX_MS {
        reasons.push(format!("messages leave up to {lag_p99_ms:.0} ms late (p99)"));
    }
    if published < rate * (1.0 - 2.0 * SLOPE_MAX) {
        reasons.push(format!("{:.1} % of the rate is acknowledged", published / rate * 100.0));
    }
    reasons
}

#[cfg(test)]
mod tests;
