//! Who is better, by how much, and how sure that is: Mainstem against each peer, variation by variation.

use std::collections::BTreeMap;

use crate::result::{Conclusion, Figure, Finding, Run};
use crate::target::is_again;

/// Is this target Mainstem, by whatever protocol it is asked? It is compared with all others.
pub fn is_ours(target: &str) -> bool {
    target == "mainstem" || target.starts_with("mainstem-")
}

/// Pairs from which on a result is more than indicative.
pub const PAIRS_WANTED: u32 = 6;
/// Pairs from which on there is an interval, and a floor.
pub const PAIRS_MIN: usize = 3;
/// Samples that the bootstrap draws.
const RESAMPLES: usize = 4000;
/// How much of them the interval leaves out on each side.
const OUTSIDE: f64 = 0.025;

/// Why a run is not ranked; nothing when it is.
pub fn flaws(run: &Run) -> Vec<&'static str> {
    let verdict = &run.verdict;
    let flaws = [
        ("stopped", run.stopped.is_some()),
        ("invalid", !verdict.valid),
        ("unstable", !verdict.stable),
        ("not complete", verdict.complete == Some(false)),
        ("out of order", verdict.ordered == Some(false)),
        ("content changed", verdict.intact == Some(false)),
        ("messages failed", run.measured.failed > 0),
        ("not primed", run.priming.is_none()),
    ];
    flaws.into_iter().filter_map(|(name, holds)| holds.then_some(name)).collect()
}

/// The figure of a run by which it is ranked; nothing when the run has none, or a flaw.
pub fn figure_of(run: &Run, figure: Figure) -> Option<f64> {
    flaws(run).is_empty().then(|| shown_figure_of(run, figure)).flatten()
}

/// The figure of a run, whatever its flaws: to be shown beside them.
pub fn shown_figure_of(run: &Run, figure: Figure) -> Option<f64> {
    let measured = &run.measured;
    match figure {
        Figure::PublishRate => (measured.publish_rate > 0.0).then_some(measured.publish_rate),
        Figure::PublishP99 => measured.publish_latency.as_ref().and_then(|curve| curve.p99_ms),
        Figure::EndToEndP99 => measured.end_to_end_latency.as_ref().and_then(|curve| curve.p99_ms),
        Figure::CpuPerGb => run.broker.cpu_s_per_gb,
        Figure::DrainRate => measured.drain.as_ref().map(|drain| drain.read_mb_s),
    }
}

/// Whether more of it is better.
pub fn more_is_better(figure: Figure) -> bool {
    matches!(figure, Figure::PublishRate | Figure::DrainRate)
}

/// Median of values; the mean of the middle two when their number is even.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)))
}

/// The 95 % interval of the median of ratios, by bootstrap of their logarithms. The same ratios give the same interval.
pub fn interval(ratios: &[f64]) -> Option<(f64, f64)> {
    if ratios.len() < PAIRS_MIN {
        return None;
    }
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        logs[(state % logs.len() as u64) as usize]
    };
    let mut medians: Vec<f64> =
        (0..RESAMPLES).map(|_| median(&(0..logs.len()).map(|_| draw()).collect::<Vec<_>>())).collect();
    medians.sort_by(f64::total_cmp);
    let cut = (RESAMPLES as f64 * OUTSIDE) as usize;
    Some((medians[cut].exp(), medians[RESAMPLES - 1 - cut].exp()))
}

/// The largest factor between two runs of the same binary that were made in the same pair: of this experiment, or of all that have this figure where
/// it has too few.
pub fn floor(runs: &[Run], figures: &BTreeMap<String, Figure>, experiment: &str, figure: Figure) -> Option<f64> {
    let of = |wanted: &dyn Fn(&Run) -> bool| {
        let mut factors = Vec::new();
        for again in runs.iter().filter(|run| is_again(&run.target.name) && wanted(run)) {
            let first = runs.iter().find(|run| {
                again
                    .target
                    .name
                    .strip_prefix(run.target.name.as_str())
                    .is_some_and(|rest| rest == crate::target::AGAIN)
                    && (&run.experiment, &run.variation, run.pair) == (&again.experiment, &again.variation, again.pair)
                    && run.target.durability == again.target.durability
            });
            let values = first.and_then(|first| Some((figure_of(first, figure)?, figure_of(again, figure)?)));
            factors.extend(values.map(|(one, other)| (one / other).ln().abs().exp()));
        }
        (factors.len() >= PAIRS_MIN).then(|| factors.into_iter().fold(1.0, f64::max))
    };
    of(&|run| run.experiment == experiment)
        .or_else(|| of(&|run| figures.get(&run.experiment).copied().unwrap_or_default() == figure))
}

/// What the ratios tell.
fn conclude(advantage: f64, interval: Option<(f64, f64)>, floor: Option<f64>) -> Conclusion {
    let (Some((low, high)), Some(floor)) = (interval, floor) else { return Conclusion::NoDifference };
    if low > 1.0 && advantage > floor {
        Conclusion::Better
    } else if high < 1.0 && advantage < 1.0 / floor {
        Conclusion::Worse
    } else {
        Conclusion::NoDifference
    }
}

/// All findings of these runs, those where Mainstem loses most first.
pub fn find(runs: &[Run], figures: &BTreeMap<String, Figure>) -> Vec<Finding> {
    let mut by_question: BTreeMap<(&str, &str, &str), Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| !is_again(&run.target.name)) {
        by_question.entry((&run.experiment, &run.variation, &run.target.durability)).or_default().push(run);
    }
    let mut findings = Vec::new();
    for ((experiment, ..), of_question) in by_question {
        let figure = figures.get(experiment).copied().unwrap_or_default();
        let floor = floor(runs, figures, experiment, figure);
        let mut names: Vec<&str> = of_question.iter().map(|run| run.target.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let (ours, peers): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| is_ours(name));
        let of = |wanted: Vec<&str>| {
            wanted.into_iter().filter_map(|name| better_variant(&of_question, name, figure)).collect::<Vec<_>>()
        };
        let peers = of(peers);
        for ours in of(ours) {
            findings.extend(peers.iter().filter_map(|theirs| compare(&ours, theirs, figure, floor)));
        }
    }
    findings.sort_by(|one, other| one.advantage.total_cmp(&other.advantage));
    findings
}

/// The usable runs of a target's better variant, with their figures.
fn better_variant<'a>(runs: &[&'a Run], target: &str, figure: Figure) -> Option<Vec<(&'a Run, f64)>> {
    let mut variants: BTreeMap<&str, Vec<(&Run, f64)>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.target.name == target) {
        if let Some(value) = figure_of(run, figure) {
            variants.entry(&run.target.variant).or_default().push((run, value));
        }
    }
    let middle = |runs: &Vec<(&Run, f64)>| {
        let value = median(&runs.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        if more_is_better(figure) { value } else { -value }
    };
    variants.into_values().max_by(|one, other| middle(one).total_cmp(&middle(other)))
}

/// `kafka tuned`; a target as it comes has no second word.
fn name_with_variant(run: &Run) -> String {
    let target = &run.target;
    if target.variant == "stock" { target.name.clone() } else { format!("{} {}", target.name, target.variant) }
}

fn compare(ours: &[(&Run, f64)], theirs: &[(&Run, f64)], figure: Figure, floor: Option<f64>) -> Option<Finding> {
    let mut ratios = Vec::new();
    for (run, value) in ours {
        for (_, their_value) in theirs.iter().filter(|(other, _)| other.pair == run.pair) {
            let ratio = if more_is_better(figure) { value / their_value } else { their_value / value };
            ratios.push(ratio);
        }
    }
    let ((run, _), (peer, _)) = (ours.first()?, theirs.first()?);
    if ratios.is_empty() {
        return None;
    }
    let values = |side: &[(&Run, f64)]| side.iter().map(|(_, value)| *value).collect::<Vec<_>>();
    let limited = |side: &[(&Run, f64)]| side.iter().any(|(run, _)| run.verdict.client_limited);
    let pairs = ratios.len() as u32;
    let (advantage, interval) = (median(&ratios), interval(&ratios));
    Some(Finding {
        experiment: run.experiment.clone(),
        variation: run.variation.clone(),
        durability: run.target.durability.clone(),
        figure,
        ours: median(&values(ours)),
        ours_range: range(&values(ours)),
        peer: name_with_variant(peer),
        theirs: median(&values(theirs)),
        theirs_range: range(&values(theirs)),
        advantage,
        advantage_range: range(&ratios),
        interval,
        floor,
        conclusion: conclude(advantage, interval, floor),
        pairs,
        indicative: pairs < PAIRS_WANTED,
        client_limited: limited(ours) || limited(theirs),
    })
}

#[cfg(test)]
mod tests;
