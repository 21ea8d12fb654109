//! What published comparisons say, judged by what was run: `claims.yaml` has each sentence as data.
//!
//! | judgement | when |
//! |---|---|
//! | confirmed | the interval of the ratio lies beyond the floor on the side that is claimed, and reaches the factor that is claimed; for *equal*: it lies within the bound |
//! | refuted | the interval lies beyond the floor on the other side, or stays short of the factor; for *equal*: it lies beyond the bound |
//! | not decidable | all else: fewer than three pairs, no floor, a side that was not run or not ranked, an interval that leaves both open |
//!
//! The ratio is that of two runs of the same pair, and says how many times better the first is; better means more messages a second, or
//! fewer milliseconds.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::findings::{PAIRS_MIN, figure_of, floor, interval, median, more_is_better};
use crate::result::{Claim, Figure, Judgement, Run};
use crate::target::is_again;

const SHIPPED: &str = include_str!("../claims.yaml");

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sources: BTreeMap<String, String>,
    claims: Vec<Sentence>,
}

/// One sentence.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sentence {
    experiment: String,
    says: String,
    source: String,
    #[serde(default)]
    one: Option<Side>,
    #[serde(default)]
    other: Option<Side>,
    #[serde(default)]
    figure: Option<Measure>,
    #[serde(default)]
    times: Option<(f64, f64)>,
    #[serde(default)]
    equal: Option<f64>,
    #[serde(default)]
    not_today: Option<String>,
}

/// Runs of a target.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Side {
    target: String,
    /// The words of the variation's label, separated by commas.
    #[serde(default, rename = "where")]
    words: String,
}

/// What is compared, where it is not the figure of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Measure {
    /// How many times longer the publish p99 is while a backlog is read than before, in one run.
    PublishP99Rise,
}

/// Judges all sentences by these runs; `figures` are those of their experiments. Where none of them is about a sentence, there is nothing to judge.
///
/// # Errors
/// The shipped file has a mistake.
pub fn judge(runs: &[Run], figures: &BTreeMap<String, Figure>) -> Result<Vec<Claim>> {
    let file = read()?;
    if !file.claims.iter().any(|sentence| figures.contains_key(&sentence.experiment)) {
        return Ok(Vec::new());
    }
    let all = file.claims.iter().map(|sentence| {
        let (judgement, reason, ratios) = decide(sentence, runs, figures);
        Claim {
            experiment: sentence.experiment.clone(),
            says: sentence.says.clone(),
            source: file.sources.get(&sentence.source).cloned().unwrap_or_default(),
            judgement,
            reason,
            ratio: (!ratios.is_empty()).then(|| median(&ratios)),
            interval: interval(&ratios),
            pairs: ratios.len() as u32,
        }
    });
    Ok(all.collect())
}

fn read() -> Result<File> {
    let file: File = serde_yaml_ng::from_str(SHIPPED).context("claims.yaml")?;
    for sentence in &file.claims {
        let says = &sentence.says;
        ensure!(file.sources.contains_key(&sentence.source), "claims.yaml: no source `{}` ({says})", sentence.source);
        let asked = sentence.one.is_some() && sentence.times.is_some() != sentence.equal.is_some();
        let rise = sentence.figure == Some(Measure::PublishP99Rise);
        ensure!(
            sentence.not_today.is_some() != asked,
            "claims.yaml: who, and by how much or equal, or not-today ({says})"
        );
        ensure!(!asked || rise != sentence.other.is_some(), "claims.yaml: against whom ({says})");
    }
    Ok(file)
}

fn undecided(reason: impl Into<String>) -> (Judgement, String, Vec<f64>) {
    (Judgement::NotDecidable, reason.into(), Vec::new())
}

fn decide(sentence: &Sentence, runs: &[Run], figures: &BTreeMap<String, Figure>) -> (Judgement, String, Vec<f64>) {
    if let Some(reason) = &sentence.not_today {
        return undecided(reason);
    }
    let Some(figure) = figures.get(&sentence.experiment).copied() else {
        return undecided("the experiment was not run");
    };
    let Some(one) = &sentence.one else { return undecided("nobody is named") };
    let of_experiment: Vec<&Run> = runs.iter().filter(|run| run.experiment == sentence.experiment).collect();
    let (ratios, floor) = match &sentence.other {
        None => match rises(&of_experiment, one) {
            Ok(ratios) => (ratios, Some(1.0)),
            Err(reason) => return undecided(reason),
        },
        Some(other) => match ratios(&of_experiment, one, other, figure) {
            Ok(ratios) => (ratios, floor(runs, figures, &sentence.experiment, figure)),
            Err(reason) => return undecided(reason),
        },
    };
    let (judgement, reason) = conclude(sentence, &ratios, floor);
    (judgement, reason, ratios)
}

/// What the ratios say about the sentence, and why.
fn conclude(sentence: &Sentence, ratios: &[f64], floor: Option<f64>) -> (Judgement, String) {
    let Some((low, high)) = interval(ratios) else {
        return (Judgement::NotDecidable, format!("{} of {PAIRS_MIN} pairs that an interval needs", ratios.len()));
    };
    let Some(floor) = floor else {
        return (Judgement::NotDecidable, "how far the same binary differs from itself is not known".to_owned());
    };
    if let Some(bound) = sentence.equal {
        // What the same binary differs by is equal.
        let bound = bound.max(floor);
        return if low >= 1.0 / bound && high <= bound {
            (Judgement::Confirmed, format!("within a factor of {bound:.2}"))
        } else if low > bound || high < 1.0 / bound {
            (Judgement::Refuted, format!("beyond a factor of {bound:.2}"))
        } else {
            (Judgement::NotDecidable, format!("the interval reaches beyond a factor of {bound:.2} and below it"))
        };
    }
    let Some((least, most)) = sentence.times else {
        return (Judgement::NotDecidable, "no factor is claimed".to_owned());
    };
    let claimed = if least == most { format!("{least}") } else { format!("{least} to {most}") };
    if high < 1.0 / floor {
        (Judgement::Refuted, "it is the other way round".to_owned())
    } else if high * floor < least {
        (Judgement::Refuted, format!("less than the {claimed} times that are claimed"))
    } else if low > floor && low >= least {
        let more = if low > most { ", and more" } else { "" };
        (Judgement::Confirmed, format!("the {claimed} times that are claimed{more}"))
    } else if low > floor && median(ratios) >= least {
        (Judgement::Confirmed, format!("the interval reaches the {claimed} times that are claimed"))
    } else {
        (Judgement::NotDecidable, format!("the interval leaves open whether it is {claimed} times"))
    }
}

/// For each pair that has both: how many times better the first is.
fn ratios(runs: &[&Run], one: &Side, other: &Side, figure: Figure) -> Result<Vec<f64>, String> {
    let sign = if more_is_better(figure) { 1.0 } else { -1.0 };
    let ranked = |side: &Side| side.ranked(runs, sign, |run| figure_of(run, figure));
    let (ones, others) = (ranked(one)?, ranked(other)?);
    let mut found = Vec::new();
    for (pair, value) in &ones {
        for (_, against) in others.iter().filter(|(number, _)| number == pair) {
            found.push(if more_is_better(figure) { value / against } else { against / value });
        }
    }
    if found.is_empty() { Err("no pair has ranked runs of both".to_owned()) } else { Ok(found) }
}

/// For each run: how many times longer its publish p99 is while a backlog is read than before.
fn rises(runs: &[&Run], one: &Side) -> Result<Vec<f64>, String> {
    let rise = |run: &Run| {
        let drain = run.measured.drain.as_ref().filter(|_| crate::findings::flaws(run).is_empty())?;
        Some(drain.publish_p99_during_ms? / drain.publish_p99_before_ms.filter(|before| *before > 0.0)?)
    };
    Ok(one.ranked(runs, -1.0, rise)?.into_iter().map(|(_, value)| value).collect())
}

impl Side {
    /// Pairs and figures of the ranked runs of its better variant; why there are none otherwise. `sign` is negative where less is better.
    fn ranked(&self, runs: &[&Run], sign: f64, of: impl Fn(&Run) -> Option<f64>) -> Result<Vec<(u32, f64)>, String> {
        let named: Vec<&&Run> =
            runs.iter().filter(|run| run.target.name == self.target && !is_again(&run.target.name)).collect();
        if named.is_empty() {
            return Err(format!("{} was not run", self.target));
        }
        let meant: Vec<&&Run> = named.into_iter().filter(|run| self.means(&run.variation)).collect();
        if meant.is_empty() {
            return Err(format!("{} was not asked with {}", self.target, self.words));
        }
        let mut variants: BTreeMap<&str, Vec<(u32, f64)>> = BTreeMap::new();
        for run in &meant {
            if let Some(value) = of(run) {
                variants.entry(&run.target.variant).or_default().push((run.pair, value));
            }
        }
        let middle = |found: &[(u32, f64)]| median(&found.iter().map(|(_, value)| *value).collect::<Vec<_>>()) * sign;
        if let Some(found) = variants.into_values().max_by(|one, other| middle(one).total_cmp(&middle(other))) {
            return Ok(found);
        }
        let mut flaws: Vec<&str> = meant.iter().flat_map(|run| crate::findings::flaws(run)).collect();
        flaws.sort_unstable();
        flaws.dedup();
        let why = if flaws.is_empty() { "too few messages for the figure".to_owned() } else { flaws.join(", ") };
        Err(format!("no run of {} is ranked: {why}", self.target))
    }

    /// Whether this variation has these words, in whatever order, and no others.
    fn means<'a>(&'a self, variation: &'a str) -> bool {
        let parts = |text: &'a str| -> BTreeSet<&'a str> {
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
        };
        parts(variation) == parts(&self.words)
    }
}

#[cfg(test)]
mod tests;
