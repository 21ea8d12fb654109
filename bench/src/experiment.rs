//! An experiment: a question, the workload that asks it, what varies, and which targets can answer.
//!
//! The shipped ones stand in `experiments/*.yaml`, one for each row that a published comparison has. A file has two
//! scales: `quick` fits two cores and a few minutes, `full` is for a figure that is to be quoted. A few have `graded` besides: every point,
//! as briefly as in `quick`, for figures that are judged together (`conformance/acceptance`).

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

use crate::nearest;
use crate::result::{ExperimentRecord, Figure};
use crate::target::Target;
use crate::workload::Workload;

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../experiments/", $name, ".yaml")))),*]
    };
}

/// The shipped experiments, in the order in which they run.
const SHIPPED: [(&str, &str); 18] = shipped![
    "peak-throughput",
    "latency",
    "confirm-modes",
    "fsync-batch",
    "single-partition",
    "many-partitions",
    "publish-latency",
    "catch-up",
    "one-in-two-out",
    "topics",
    "cache-size",
    "confirm-threads",
    "queues",
    "instances",
    "delay",
    "queue-latency",
    "routing",
    "filter",
];

/// An experiment file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    title: String,
    question: String,
    published: String,
    figure: Figure,
    /// Experiments of one group share starts of a target; without, it has starts of its own.
    #[serde(default)]
    group: Option<String>,
    targets: Vec<String>,
    #[serde(default)]
    workload: Mapping,
    #[serde(default)]
    vary: Vec<Mapping>,
    quick: Scale,
    full: Scale,
    #[serde(default)]
    graded: Option<Scale>,
}

/// What a scale changes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scale {
    /// Pairs that `suite` makes; `compare` makes at least six.
    pairs: u32,
    /// Targets that take part in the first pair only: far enough behind that one look tells.
    #[serde(default)]
    once: Vec<String>,
    #[serde(default)]
    workload: Mapping,
    /// Instead of the experiment's own.
    #[serde(default)]
    vary: Option<Vec<Mapping>>,
    /// Whether peers are run in each of their variants in the first pair, to find the better one.
    #[serde(default)]
    variants: bool,
}

/// An experiment in one scale.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub record: ExperimentRecord,
    pub scale: String,
    /// Experiments with the same word share starts of a target.
    pub group: String,
    pub targets: Vec<String>,
    pub variations: Vec<Variation>,
    pub pairs: u32,
    /// Targets that take part in the first of these pairs only.
    pub once: Vec<String>,
    pub variants: bool,
}

/// One point of what varies.
#[derive(Clone, Debug)]
pub struct Variation {
    /// Like `durability=fsync, batchBytes=10000`; empty when nothing varies.
    pub label: String,
    pub workload: Workload,
    /// Targets that this one is for; empty = all of the experiment.
    pub only: Vec<String>,
}

impl Variation {
    /// Whether this target takes part.
    pub fn is_for(&self, target: &Target) -> bool {
        self.only.is_empty() || target.is_among(&self.only)
    }
}

impl Experiment {
    /// Names of the shipped experiments.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// A shipped experiment.
    ///
    /// # Errors
    /// There is none of this name; the nearest is named.
    pub fn find(id: &str, scale: &str) -> Result<Self> {
        let found = SHIPPED.iter().find(|(name, _)| *name == id);
        let meant = nearest(Self::names(), id);
        let (_, text) = found.with_context(|| format!("no experiment `{id}`; did you mean `{meant}`?"))?;
        Self::parse(id, text, scale).with_context(|| format!("experiment {id}"))
    }

    /// One workload file as an experiment of its own.
    pub fn of_workload(id: &str, workload: Workload, target: String) -> Self {
        Self {
            record: ExperimentRecord {
                id: id.to_owned(),
                title: workload.name.clone(),
                question: "A workload file, as it is.".to_owned(),
                published: String::new(),
                figure: Figure::PublishRate,
            },
            scale: "as given".to_owned(),
            group: id.to_owned(),
            targets: vec![target],
            variations: vec![Variation { label: String::new(), workload, only: Vec::new() }],
            pairs: 1,
            once: Vec::new(),
            variants: false,
        }
    }

    fn parse(id: &str, text: &str, scale: &str) -> Result<Self> {
        let file: File = serde_yaml_ng::from_str(text)?;
        let chosen = match scale {
            "quick" => file.quick,
            "full" => file.full,
            "graded" => file.graded.context("this experiment has no scale `graded`")?,
            other => bail!("no scale `{other}`; there are `quick`, `full` and, of a few, `graded`"),
        };
        for target in file.targets.iter().chain(&chosen.once) {
            ensure!(Target::names().any(|name| name == target), "unknown target `{target}`");
        }
        let base = Workload { name: id.to_owned(), ..Workload::default() };
        let base = base.with(&file.workload)?.with(&chosen.workload)?;
        let vary = chosen.vary.unwrap_or(file.vary);
        let points = if vary.is_empty() { vec![Mapping::new()] } else { vary };
        let variations = points.into_iter().map(|point| vary_by(&base, point)).collect::<Result<_>>()?;
        Ok(Self {
            record: ExperimentRecord {
                id: id.to_owned(),
                title: file.title,
                question: file.question,
                published: file.published,
                figure: file.figure,
            },
            scale: scale.to_owned(),
            group: file.group.unwrap_or_else(|| id.to_owned()),
            targets: file.targets,
            variations,
            pairs: chosen.pairs,
            once: chosen.once,
            variants: chosen.variants,
        })
    }
}

/// The base with one point of what varies. The keys `label` and `only` are the point's own.
fn vary_by(base: &Workload, mut point: Mapping) -> Result<Variation> {
    let only = match point.remove("only") {
        Some(names) => serde_yaml_ng::from_value(names).context("only is a list of targets")?,
        None => Vec::new(),
    };
    let given = point.remove("label");
    let words = point.iter().map(|(key, value)| format!("{}={}", word(key), word(value)));
    let label = given.as_ref().map_or_else(|| words.collect::<Vec<_>>().join(", "), word);
    Ok(Variation { label, workload: base.with(&point)?, only })
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Sequence(all) => all.iter().map(word).collect::<Vec<_>>().join(" "),
        other => serde_yaml_ng::to_string(other).unwrap_or_default().trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_experiment_parses_in_both_scales() {
        for name in Experiment::names() {
            for scale in ["quick", "full"] {
                let experiment = Experiment::find(name, scale).unwrap_or_else(|error| panic!("{name}: {error:#}"));
                assert!(!experiment.variations.is_empty() && !experiment.targets.is_empty(), "{name}");
                let labels: std::collections::BTreeSet<_> =
                    experiment.variations.iter().map(|one| &one.label).collect();
                assert_eq!(labels.len(), experiment.variations.len(), "{name}: labels differ");
                let most = if scale == "quick" { 1 } else { 3 };
                assert!(experiment.pairs >= most, "{name}");
            }
        }
    }

    #[test]
    fn graded_points_are_all_those_of_the_experiment_in_pairs() {
        for (name, points, pairs) in [("queues", 18, 3), ("confirm-modes", 5, 3), ("confirm-threads", 9, 1)] {
            let experiment = Experiment::find(name, "graded").unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert_eq!((experiment.variations.len(), experiment.pairs), (points, pairs), "{name}");
        }
        let said = format!("{:#}", Experiment::find("topics", "graded").unwrap_err());
        assert_eq!(said, "experiment topics: this experiment has no scale `graded`");
    }

    #[test]
    fn mistakes_are_named() {
        let said = format!("{:#}", Experiment::find("peak-thruput", "quick").unwrap_err());
        assert_eq!(said, "no experiment `peak-thruput`; did you mean `peak-throughput`?");
        assert!(Experiment::find("latency", "small").is_err());
    }

    #[test]
    fn labels_say_what_varies() {
        let point: Mapping = serde_yaml_ng::from_str("{durability: fsync, batchBytes: 10000, only: [kafka]}").unwrap();
        let variation = vary_by(&Workload::default(), point).unwrap();
        assert_eq!(variation.label, "durability=fsync, batchBytes=10000");
        let is_for = |name| variation.is_for(&Target::find(name).unwrap());
        assert!(is_for("kafka") && !is_for("mainstem"));
    }
}
