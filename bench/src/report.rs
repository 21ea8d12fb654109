//! The report: one HTML file that needs nothing else, charts as SVG for a README, and tables as Markdown.

mod csv;
mod markdown;
mod matrix;
mod svg;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::clock::seconds_since_1970;
use crate::experiment::Experiment;
use crate::result::{ExperimentRecord, FORMAT, Figure, Report, Run};
use crate::store::{self, Store};
use crate::{claims, findings};

/// The page; `report/` has its source. It holds one place for the data.
const PAGE: &str = include_str!("../report/dist/index.html");
const DATA_PLACE: &str = "/*DATA*/";

/// Experiments that nothing can run today, and why.
const NOT_TODAY: [(&str, &str); 2] = [
    ("layers", "no target can run its roles as separate nodes on this machine"),
    ("live-tuning", "no target here changes read mode and cache size while it runs"),
];

/// What a store holds, judged.
///
/// # Errors
/// A file in it is not what this version writes.
pub fn collect(store: &Store) -> Result<Report> {
    let runs = store.runs()?;
    let state = store.state();
    let mut missing: BTreeSet<String> = state.missing;
    missing.extend(NOT_TODAY.iter().map(|(name, why)| format!("{name}: {why}")));
    let cuts = state.cuts.into_iter().chain(state.left).collect();
    let mut report = judge(runs, missing.into_iter().collect());
    let figures = figures_of(&report.experiments);
    (report.cuts, report.claims) = (cuts, claims::judge(&report.runs, &figures)?);
    Ok(report)
}

fn judge(mut runs: Vec<Run>, missing: Vec<String>) -> Report {
    let shipped: Vec<&str> = Experiment::names().collect();
    let place = |id: &str| shipped.iter().position(|name| *name == id).unwrap_or(shipped.len());
    runs.sort_by_key(|run| (place(&run.experiment), run.experiment.clone(), run.pair, run.order));
    let mut experiments: Vec<ExperimentRecord> = Vec::new();
    for run in &runs {
        if !experiments.iter().any(|known| known.id == run.experiment) {
            experiments.push(record_of(run));
        }
    }
    let figures = figures_of(&experiments);
    Report {
        format: FORMAT,
        title: "Message brokers compared".to_owned(),
        made: seconds_since_1970(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        matrix: matrix::rows(&runs, &experiments),
        claims: Vec::new(),
        findings: findings::find(&runs, &figures),
        experiments,
        runs,
        missing,
        cuts: Vec::new(),
    }
}

fn figures_of(experiments: &[ExperimentRecord]) -> BTreeMap<String, Figure> {
    experiments.iter().map(|one| (one.id.clone(), one.figure)).collect()
}

/// The experiment that a run belongs to; a workload file that is none of the shipped ones stands for itself.
fn record_of(run: &Run) -> ExperimentRecord {
    match Experiment::find(&run.experiment, "quick") {
        Ok(experiment) => experiment.record,
        Err(_) => ExperimentRecord { id: run.experiment.clone(), title: run.title.clone(), ..Default::default() },
    }
}

/// Writes `report.html`, `report.md`, `runs.csv` and a chart for each experiment (`EXPERIMENT.svg`) into the folder.
///
/// # Errors
/// There are no runs, or the folder cannot be written.
pub fn write(report: &Report, folder: &Path) -> Result<PathBuf> {
    ensure!(!report.runs.is_empty(), "{} holds no runs", folder.display());
    let page = folder.join("report.html");
    fs::write(&page, html(report)?).with_context(|| format!("cannot write {}", page.display()))?;
    fs::write(folder.join("report.md"), markdown::tables(report))?;
    fs::write(folder.join("runs.csv"), csv::table(&report.runs))?;
    for experiment in &report.experiments {
        svg::write(report, experiment, &folder.join(format!("{}.svg", store::slug(&experiment.id))))?;
    }
    Ok(page)
}

/// The page with its data.
fn html(report: &Report) -> Result<String> {
    let (before, after) = PAGE.split_once(DATA_PLACE).context("the page has no place for data")?;
    // No `<` at all, so that nothing in the data is taken for the end of its element.
    let data = serde_json::to_string(report)?.replace('<', "\\u003c");
    Ok(format!("{before}{data}{after}"))
}

/// A run with all fields, from the page's own sample.
#[cfg(test)]
pub fn sample_run() -> Run {
    let sample = include_str!("../report/sample.json");
    let report: Report = serde_json::from_str(sample).expect("the sample is a report");
    report.runs.into_iter().next().expect("the sample has runs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_the_data_once() {
        assert_eq!(PAGE.matches(DATA_PLACE).count(), 1);
        let mut run = sample_run();
        run.command = "</script><b>".to_owned();
        let page = html(&judge(vec![run], Vec::new())).unwrap();
        assert!(!page.contains("</script><b>") && page.contains("\\u003c/script>"));
    }

    #[test]
    fn all_files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let run = sample_run();
        let chart = folder.path().join(format!("{}.svg", store::slug(&run.experiment)));
        write(&judge(vec![run], Vec::new()), folder.path()).unwrap();
        assert!(fs::read_to_string(chart).unwrap().contains("one node, not replicated"));
        assert!(fs::read_to_string(folder.path().join("report.md")).unwrap().contains('|'));
        assert_eq!(fs::read_to_string(folder.path().join("runs.csv")).unwrap().lines().count(), 2);
    }
}
