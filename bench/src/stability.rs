//! When a system is primed or steady, and when a rate is stable: decisions over series, without I/O.

/// How far apart the rates of three windows may lie to count as steady, and their median latencies.
const RATES_WITHIN: f64 = 0.05;
const LATENCIES_WITHIN: f64 = 0.25;
/// Of the messages that are due, this share is acknowledged at a stable rate.
const ACKNOWLEDGED_MIN: f64 = 0.98;
/// Up to this share of the rate, messages in flight and unread ones may grow.
const SLOPE_MAX: f64 = 0.01;
/// Percent of the processor time that nobody uses at a stable rate.
const IDLE_PERCENT_MIN: f64 = 5.0;
/// Due time to acknowledgement, p99, at a stable rate.
const PUBLISH_P99_MAX_MS: f64 = 200.0;
/// Schedule lag p99, milliseconds, up to which the generator keeps its schedule while its client has room.
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

/// What was seen of a fixed rate while it was watched. Rates and slopes are messages a second.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub due: f64,
    pub acknowledged: f64,
    /// By which messages that are due and not acknowledged grow: also those that wait in the generator, because a client's window is full.
    pub in_flight_slope: f64,
    /// By which messages that are acknowledged and not received grow, all subscriptions together.
    pub backlog_slope: f64,
    pub idle_percent: f64,
    /// Due time to acknowledgement; absent when nothing was acknowledged.
    pub publish_p99_ms: Option<f64>,
}

/// Why a rate is not stable; nothing when it is. The rule is the same for every target, client and window: no client's buffer is judged.
pub fn unstable(seen: &Seen) -> Vec<String> {
    let mut reasons = Vec::new();
    if seen.acknowledged < seen.due * ACKNOWLEDGED_MIN {
        reasons.push(format!("{:.1} % of the rate is acknowledged", seen.acknowledged / seen.due * 100.0));
    }
    for (what, slope) in [("messages in flight grow", seen.in_flight_slope), ("the backlog grows", seen.backlog_slope)]
    {
        if slope > seen.due * SLOPE_MAX {
            reasons.push(format!("{what} by {:.1} % of the rate", slope / seen.due * 100.0));
        }
    }
    if seen.idle_percent < IDLE_PERCENT_MIN {
        reasons.push(format!("{:.1} % of the processor time is idle", seen.idle_percent));
    }
    if let Some(p99) = seen.publish_p99_ms.filter(|p99| *p99 > PUBLISH_P99_MAX_MS) {
        reasons.push(format!("publish p99 is {p99:.0} ms"));
    }
    reasons
}

/// The rule of [`unstable`] for readers.
pub fn rule() -> String {
    format!(
        "stable: at least {:.0} % of what is due is acknowledged, messages in flight and the backlog grow by at most {:.0} % of the rate, \
         at least {IDLE_PERCENT_MIN:.0} % of the processor time is idle, publish p99 is at most {PUBLISH_P99_MAX_MS:.0} ms",
        ACKNOWLEDGED_MIN * 100.0,
        SLOPE_MAX * 100.0
    )
}

#[cfg(test)]
mod tests;
