//! A chart of an experiment as an SVG file: bars of its figure with their range, for a README.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::findings::{flaws, is_ours, median, shown_figure_of};
use crate::result::{ExperimentRecord, Figure, Report, Run};

const WIDTH: u32 = 860;
const ROW: u32 = 30;
/// Room for the caption above and the axis below.
const MARGIN: u32 = 120;

/// The same colour for a system everywhere; apart for colour-blind readers (Okabe and Ito).
fn colour_of(target: &str) -> RGBColor {
    match target {
        "mainstem" | "mainstem-amqp" => RGBColor(0, 114, 178),
        "kafka" => RGBColor(213, 94, 0),
        "rabbitmq" => RGBColor(230, 159, 0),
        "pulsar" => RGBColor(0, 158, 115),
        "nats" => RGBColor(204, 121, 167),
        _ => RGBColor(110, 110, 110),
    }
}

/// The colour of what is shown and not ranked.
const NOT_RANKED: RGBColor = RGBColor(205, 205, 205);

struct Bar {
    label: String,
    colour: RGBColor,
    middle: f64,
    low: f64,
    high: f64,
    /// Why its runs are not ranked, if none is; or that some are not.
    marks: String,
}

/// Writes the chart; none when no run of the experiment can be used.
///
/// # Errors
/// The file cannot be written.
pub fn write(report: &Report, experiment: &ExperimentRecord, path: &Path) -> Result<()> {
    let bars = bars(report, experiment);
    if bars.is_empty() {
        return Ok(());
    }
    draw(&bars, experiment, &report.runs, path).map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

fn bars(report: &Report, experiment: &ExperimentRecord) -> Vec<Bar> {
    let runs: Vec<&Run> = report.runs.iter().filter(|run| run.experiment == experiment.id).collect();
    let mut keys: Vec<(&str, &str, &str)> = Vec::new();
    for run in &runs {
        let key = (run.variation.as_str(), run.target.name.as_str(), run.target.variant.as_str());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let places: Vec<&str> = keys.iter().map(|key| key.0).collect();
    keys.sort_by_key(|key| (places.iter().position(|place| *place == key.0), !is_ours(key.1), key.1));
    let bar = |(variation, target, variant): (&str, &str, &str)| {
        let of = |run: &&&Run| run.variation == variation && run.target.name == target && run.target.variant == variant;
        let all: Vec<&Run> = runs.iter().filter(of).copied().collect();
        let ranked: Vec<&Run> = all.iter().copied().filter(|run| flaws(run).is_empty()).collect();
        let shown = if ranked.is_empty() { &all } else { &ranked };
        let values: Vec<f64> = shown.iter().filter_map(|run| shown_figure_of(run, experiment.figure)).collect();
        let scale = scale_of(experiment.figure);
        let extreme = |pick: fn(f64, f64) -> f64, from: f64| values.iter().copied().fold(from, pick) / scale;
        (!values.is_empty()).then(|| Bar {
            label: format!("{target} {variant}  {variation}"),
            colour: if ranked.is_empty() { NOT_RANKED } else { colour_of(target) },
            middle: median(&values) / scale,
            low: extreme(f64::min, f64::MAX),
            high: extreme(f64::max, 0.0),
            marks: marks(&all, &ranked),
        })
    };
    keys.into_iter().filter_map(bar).collect()
}

/// What a reader of the chart must know of these runs, of which some are ranked.
fn marks(all: &[&Run], ranked: &[&Run]) -> String {
    let mut found: Vec<&str> = all.iter().flat_map(|run| flaws(run)).collect();
    found.sort_unstable();
    found.dedup();
    let mut words = Vec::new();
    if !found.is_empty() && ranked.is_empty() {
        words.push(format!("not ranked: {}", found.join(", ")));
    } else if !found.is_empty() {
        words.push(format!("{} of {} runs left out: {}", all.len() - ranked.len(), all.len(), found.join(", ")));
    }
    if all.iter().any(|run| run.verdict.client_limited) {
        words.push("client-limited".to_owned());
    }
    words.join("; ")
}

/// How many copies of each message there were.
fn copies<'a>(runs: impl Iterator<Item = &'a Run>) -> String {
    let found: std::collections::BTreeSet<u16> = runs.map(|run| run.target.replication).collect();
    if found.iter().all(|number| *number == 1) {
        return "one node, not replicated".to_owned();
    }
    let words =
        found.into_iter().map(|number| if number == 0 { "as the broker sets".to_owned() } else { number.to_string() });
    format!("copies of each message: {}", words.collect::<Vec<_>>().join(", "))
}

fn scale_of(figure: Figure) -> f64 {
    if figure == Figure::PublishRate { 1000.0 } else { 1.0 }
}

fn unit_of(figure: Figure) -> &'static str {
    match figure {
        Figure::PublishRate => "thousand messages a second (more is better)",
        Figure::PublishP99 => "publish latency p99, ms (less is better)",
        Figure::EndToEndP99 => "end-to-end latency p99, ms (less is better)",
        Figure::CpuPerGb => "broker CPU-seconds per GB (less is better)",
        Figure::DrainRate => "MB/s of backlog read (more is better)",
    }
}

fn draw(
    bars: &[Bar],
    experiment: &ExperimentRecord,
    runs: &[Run],
    path: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let height = MARGIN + ROW * bars.len() as u32;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let scale = runs.iter().find(|run| run.experiment == experiment.id).map_or("", |run| run.scale.as_str());
    let caption = format!(
        "{} ({scale}; {})",
        experiment.title,
        copies(runs.iter().filter(|run| run.experiment == experiment.id))
    );
    area.draw(&Text::new(caption, (16, 14), ("sans-serif", 18).into_font().color(&BLACK)))?;
    area.draw(&Text::new(unit_of(experiment.figure), (16, 40), ("sans-serif", 13).into_font().color(&BLACK)))?;
    let most = bars.iter().map(|bar| bar.high).fold(0.0, f64::max).max(1e-9);
    let (left, right) = (340_i32, WIDTH as i32 - 90);
    let x = |value: f64| left + ((right - left) as f64 * value / most) as i32;
    for (number, bar) in bars.iter().enumerate() {
        let top = 70 + number as i32 * ROW as i32;
        let middle = top + ROW as i32 / 2;
        let label = ("sans-serif", 13).into_font().color(&BLACK);
        area.draw(&Text::new(bar.label.clone(), (16, top + 8), label.clone()))?;
        area.draw(&Rectangle::new([(left, top + 4), (x(bar.middle), top + ROW as i32 - 4)], bar.colour.filled()))?;
        area.draw(&PathElement::new(vec![(x(bar.low), middle), (x(bar.high), middle)], BLACK.stroke_width(2)))?;
        for end in [bar.low, bar.high] {
            area.draw(&PathElement::new(vec![(x(end), middle - 5), (x(end), middle + 5)], BLACK.stroke_width(2)))?;
        }
        let digits = if bar.middle < 10.0 { 2 } else { 0 };
        let shown = format!("{:.digits$}", bar.middle);
        area.draw(&Text::new(shown, (x(bar.high) + 8, top + 8), label))?;
        let small = ("sans-serif", 11).into_font().color(&BLACK);
        area.draw(&Text::new(bar.marks.clone(), (left + 6, top + 9), small))?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_keeps_the_marks_of_what_is_not_ranked() {
        let mut run = crate::report::sample_run();
        (run.verdict.stable, run.verdict.complete, run.experiment) = (false, Some(false), "one".to_owned());
        let experiment = ExperimentRecord { id: "one".to_owned(), figure: Figure::PublishRate, ..Default::default() };
        let report = Report {
            format: 0,
            title: String::new(),
            made: 0,
            version: String::new(),
            experiments: vec![experiment.clone()],
            runs: vec![run],
            matrix: Vec::new(),
            claims: Vec::new(),
            findings: Vec::new(),
            missing: Vec::new(),
            cuts: Vec::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chart.svg");
        write(&report, &experiment, &path).unwrap();
        let chart = std::fs::read_to_string(path).unwrap();
        assert!(chart.contains("not ranked: not complete, unstable"), "{chart}");
    }
}
