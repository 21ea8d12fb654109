//! The folder of a comparison: a JSON file for each run, and what was found out on the way. A comparison that was
//! interrupted goes on from here.
//!
//! ```text
//! state.json                                              variants, ceilings, what could not be run
//! EXPERIMENT/VARIATION/TARGET-VARIANT-pair-N.json         a run (`result::Run`)
//! EXPERIMENT/VARIATION/TARGET-VARIANT-pair-N.omb.json     the same in OpenMessaging's result layout
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::result::{Curve, FORMAT, Run};

/// What was found out besides runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// The better variant of a target.
    pub variants: BTreeMap<String, String>,
    /// Messages a second against a broker that does nothing, by pair, driver and what of the workload matters to it.
    pub ceilings: BTreeMap<String, f64>,
    /// The slowest target's peak, by experiment and durability.
    pub slowest_peaks: BTreeMap<String, f64>,
    pub missing: BTreeSet<String>,
    /// What was cut from the plan so that it fits its budget of time.
    #[serde(default)]
    pub cuts: Vec<String>,
    /// What there was no time for.
    #[serde(default)]
    pub left: BTreeSet<String>,
    /// The build that has found all planted faults (`self_check`).
    #[serde(default)]
    pub self_checked: Option<String>,
    /// From which orders are drawn.
    #[serde(default)]
    pub seed: Option<u32>,
}

/// A folder of results.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens or creates one.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn open(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("result folder {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Its place.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was found out.
    pub fn state(&self) -> State {
        let text = fs::read_to_string(self.folder.join("state.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Keeps what was found out.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_state(&self, state: &State) -> Result<()> {
        write(&self.folder.join("state.json"), &serde_json::to_vec_pretty(state)?)
    }

    /// Where a run's file is, without its ending.
    fn place(&self, experiment: &str, variation: &str, target: &str, pair: u32) -> PathBuf {
        let variation = if variation.is_empty() { "all".to_owned() } else { slug(variation) };
        self.folder.join(slug(experiment)).join(variation).join(format!("{target}-pair-{pair}"))
    }

    /// A whole run that is there; one that broke off is made again.
    pub fn whole(&self, experiment: &str, variation: &str, target: &str, pair: u32) -> Option<Run> {
        let path = self.place(experiment, variation, target, pair).with_extension("json");
        read(&path).ok().filter(|run| run.stopped.is_none())
    }

    /// Keeps a run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, run: &Run) -> Result<()> {
        let target = format!("{}-{}", run.target.name, run.target.variant);
        let place = self.place(&run.experiment, &run.variation, &target, run.pair);
        fs::create_dir_all(place.parent().unwrap_or(&self.folder))?;
        write(&place.with_extension("omb.json"), &serde_json::to_vec_pretty(&open_messaging(run))?)?;
        write(&place.with_extension("json"), &serde_json::to_vec_pretty(run)?)
    }

    /// All runs, in the order of their files.
    ///
    /// # Errors
    /// A file is not what this version writes.
    pub fn runs(&self) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        for experiment in entries(&self.folder) {
            for variation in entries(&experiment) {
                for file in entries(&variation) {
                    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    if name.ends_with(".json") && !name.ends_with(".omb.json") {
                        runs.push(read(&file)?);
                    }
                }
            }
        }
        Ok(runs)
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn read(path: &Path) -> Result<Run> {
    let text = fs::read_to_string(path)?;
    let value: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    let format = value.get("format").and_then(Value::as_u64);
    ensure!(format == Some(u64::from(FORMAT)), "{} has format {format:?}, this version reads {FORMAT}", path.display());
    serde_json::from_value(value).with_context(|| format!("{} is not a run", path.display()))
}

/// Writes beside and renames, so that a file is there whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, bytes)
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// A text as a part of a file's name.
pub fn slug(text: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-.=".contains(letter);
    text.chars().map(|letter| if allowed(letter) { letter } else { '_' }).collect()
}

/// A run in the layout of OpenMessaging Benchmark's result files, as far as it has the figures: its per-second series,
/// and the aggregated publish and end-to-end latencies, in milliseconds.
fn open_messaging(run: &Run) -> Value {
    let series = |of: fn(&crate::result::Moment) -> Option<f64>| -> Vec<f64> {
        run.timeline.iter().map(|moment| of(moment).unwrap_or(0.0)).collect()
    };
    let mut result = json!({
        "workload": run.workload.name,
        "driver": run.target.name,
        "messageSize": run.workload.message_size,
        "topics": run.workload.topics,
        "partitions": run.workload.partitions_per_topic,
        "producersPerTopic": run.workload.producers_per_topic,
        "consumersPerTopic": run.workload.consumer_per_subscription,
        "publishRate": series(|moment| Some(moment.publish_rate)),
        "consumeRate": series(|moment| Some(moment.receive_rate)),
        "backlog": series(|moment| Some(moment.backlog)),
        "publishLatency50pct": series(|moment| moment.publish_p50_ms),
        "publishLatency99pct": series(|moment| moment.publish_p99_ms),
        "endToEndLatency50pct": series(|moment| moment.end_to_end_p50_ms),
        "endToEndLatency99pct": series(|moment| moment.end_to_end_p99_ms),
    });
    for (name, curve) in [
        ("PublishLatency", &run.measured.acknowledge_latency),
        ("PublishDelayLatency", &run.measured.schedule_lag),
        ("EndToEndLatency", &run.measured.end_to_end_latency),
    ] {
        let Some(curve) = curve else { continue };
        for (suffix, value) in aggregated(curve) {
            if let Some(value) = value {
                result[format!("aggregated{name}{suffix}")] = json!(value);
            }
        }
        let quantiles: serde_json::Map<String, Value> =
            curve.points.iter().map(|(percentile, ms)| (percentile.to_string(), json!(ms))).collect();
        result[format!("aggregated{name}Quantiles")] = Value::Object(quantiles);
    }
    result
}

/// A percentile that the curve has not is left out.
fn aggregated(curve: &Curve) -> [(&'static str, Option<f64>); 8] {
    [
        ("Avg", Some(curve.mean_ms)),
        ("50pct", curve.p50_ms),
        ("75pct", curve.p75_ms),
        ("95pct", curve.p95_ms),
        ("99pct", curve.p99_ms),
        ("999pct", curve.p999_ms),
        ("9999pct", curve.p9999_ms),
        ("Max", Some(curve.max_ms)),
    ]
}
