//! Fitting a plan into a budget of time: fewer pairs and shorter runs, never below what a figure needs.
//!
//! | step | least |
//! |---|---|
//! | 1. pairs, from six down | what the experiment's file asks for |
//! | 2. how long a rate is watched in a search (not the run that confirms it) | 10 s |
//! | 3. how long is measured | 5 s, and 10,000 messages at a fixed rate, so that there is a p99 |
//! | 4. pairs that are left | one; two would tell no more than one, so that they are not made |
//!
//! Priming is never cut. Experiments that stand first are cut last, so the same budget always gives the same plan.

use std::time::Duration;

use super::Outline;
use crate::experiment::Experiment;
use crate::findings::{PAIRS_MIN, PAIRS_WANTED};
use crate::workload::Workload;

/// What the quick suite may take.
pub const SUITE_MINUTES: f64 = 90.0;
/// The shortest watch of a rate in a search.
const TRIAL_MIN_S: f64 = 10.0;
/// The shortest measurement.
const TEST_MIN_S: f64 = 5.0;
/// Messages that a p99 needs.
const P99_MESSAGES: f64 = 10_000.0;

/// Experiments within a budget, and what they lost.
#[derive(Debug)]
pub struct Fitted {
    pub experiments: Vec<Experiment>,
    /// A sentence for each thing that was cut.
    pub cuts: Vec<String>,
    pub time: Duration,
}

/// Cuts until the whole plan takes no longer than `budget`, or nothing more can be cut. `outline` says all but the experiments.
pub fn fit(outline: Outline<'_>, budget: Duration, priming: Duration) -> Fitted {
    let asked = outline.experiments;
    let mut made: Vec<Experiment> = asked.to_vec();
    for experiment in &mut made {
        experiment.pairs = experiment.pairs.max(PAIRS_WANTED);
    }
    let time = |experiments: &[Experiment]| Outline { experiments, ..outline }.time_of_all(priming);
    let fits = |experiments: &[Experiment]| time(experiments) <= budget;
    let whole = |number: usize| asked[number].pairs.max(PAIRS_WANTED);
    let mut step = 1;
    while step <= 4 && !fits(&made) {
        let cut = match step {
            1 => take_a_pair(&mut made, |number| asked[number].pairs),
            2 => shorten(&mut made, watch_less),
            3 => shorten(&mut made, measure_less),
            _ => take_a_pair(&mut made, |_| 1),
        };
        step += u32::from(!cut);
    }
    use_rest(&mut made, whole, fits);
    let cuts = made
        .iter()
        .enumerate()
        .flat_map(|(number, experiment)| told(&asked[number], experiment, whole(number)))
        .collect();
    Fitted { time: time(&made), experiments: made, cuts }
}

/// Takes a pair from the experiment that has most of them, the last of those; false when all have the least.
fn take_a_pair(experiments: &mut [Experiment], least: impl Fn(usize) -> u32) -> bool {
    let numbered = experiments.iter_mut().enumerate();
    let found =
        numbered.filter(|(number, one)| one.pairs > least(*number)).max_by_key(|(number, one)| (one.pairs, *number));
    let Some((number, experiment)) = found else { return false };
    let fewer = experiment.pairs - 1;
    experiment.pairs = if fewer < PAIRS_MIN as u32 { least(number) } else { fewer };
    true
}

/// Gives pairs back where there is time for them, to the first experiments first.
fn use_rest(experiments: &mut [Experiment], whole: impl Fn(usize) -> u32, fits: impl Fn(&[Experiment]) -> bool) {
    for number in 0..experiments.len() {
        let before = experiments[number].pairs;
        let more = (before + 1).max(PAIRS_MIN as u32);
        if more <= whole(number) {
            experiments[number].pairs = more;
            if !fits(experiments) {
                experiments[number].pairs = before;
            }
        }
    }
}

/// Changes the workloads of the last experiment that can be changed; false when none can.
fn shorten(experiments: &mut [Experiment], change: fn(&mut Workload) -> bool) -> bool {
    experiments.iter_mut().rev().any(|experiment| {
        let changed =
            experiment.variations.iter_mut().filter_map(|variation| change(&mut variation.workload).then_some(()));
        changed.count() > 0
    })
}

fn watch_less(workload: &mut Workload) -> bool {
    let shorter = workload.trial_time().as_secs_f64() > TRIAL_MIN_S
        && workload.searches()
        && workload.rate_of_slowest_peak.is_none();
    if shorter {
        workload.search_seconds = Some(TRIAL_MIN_S);
    }
    shorter
}

fn measure_less(workload: &mut Workload) -> bool {
    let fixed = !workload.saturate && workload.producer_rate > 0.0;
    let least = if fixed { (P99_MESSAGES / workload.producer_rate * 1.05).max(TEST_MIN_S) } else { TEST_MIN_S };
    let shorter = workload.test_time().as_secs_f64() > least && !workload.searches();
    if shorter {
        workload.test_seconds = Some(least);
    }
    shorter
}

/// What an experiment lost.
fn told(asked: &Experiment, made: &Experiment, pairs: u32) -> Vec<String> {
    let id = &asked.record.id;
    let mut said = Vec::new();
    if made.pairs < pairs {
        let why = if (made.pairs as usize) < PAIRS_MIN { ", too few to tell a difference" } else { "" };
        said.push(format!("{id}: {} of {pairs} pairs{why}", made.pairs));
    }
    let both = || asked.variations.iter().zip(&made.variations).map(|(asked, made)| (&asked.workload, &made.workload));
    if let Some((before, now)) = both().find(|(before, now)| now.trial_time() < before.trial_time()) {
        let seconds = |workload: &Workload| workload.trial_time().as_secs_f64();
        said.push(format!(
            "{id}: rates of the search are watched for {:.0} s instead of {:.0} s",
            seconds(now),
            seconds(before)
        ));
    }
    if let Some((before, now)) = both().find(|(before, now)| now.test_time() < before.test_time()) {
        let seconds = |workload: &Workload| workload.test_time().as_secs_f64();
        said.push(format!("{id}: measured for {:.0} s instead of {:.0} s", seconds(now), seconds(before)));
    }
    said
}

/// The longest priming of these experiments.
pub fn priming(experiments: &[Experiment]) -> Duration {
    let variations = experiments.iter().flat_map(|experiment| &experiment.variations);
    Duration::from_secs_f64(variations.map(|variation| variation.workload.priming_seconds).fold(0.0, f64::max))
}
