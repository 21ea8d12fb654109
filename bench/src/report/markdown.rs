//! The figures as Markdown tables, for documents.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::findings::{figure_of, flaws, is_ours, median};
use crate::progress::count;
use crate::result::{Conclusion, ExperimentRecord, Figure, Finding, Judgement, Report, Run};
use crate::stability;

/// Of a broker whose processes are not to be seen.
const NOT_MEASURED: &str = "not measured";

/// Experiments by systems, published claims, losses, wins, then a table for each experiment.
pub fn tables(report: &Report) -> String {
    let mut text = String::new();
    matrix_table(&mut text, report);
    claims_table(&mut text, report);
    for (title, conclusion) in [
        ("Where Mainstem loses", Conclusion::Worse),
        ("Where it wins", Conclusion::Better),
        ("No difference that this session can tell", Conclusion::NoDifference),
    ] {
        let rows: Vec<&Finding> = report.findings.iter().filter(|one| one.conclusion == conclusion).collect();
        let _ = writeln!(text, "### {title}\n");
        if rows.is_empty() {
            let _ = writeln!(text, "Nowhere in these runs.\n");
            continue;
        }
        let _ = writeln!(
            text,
            "| experiment | variation | figure | Mainstem | peer | | Mainstem is … times as good (95 %) | the same binary differs by | pairs |"
        );
        let _ = writeln!(text, "|---|---|---|---|---|---|---|---|---|");
        for row in rows {
            let _ = writeln!(text, "{}", finding_row(row));
        }
        let _ = writeln!(text);
    }
    let _ = writeln!(
        text,
        "A run that is invalid, not stable, not primed, or that lost or repeated a message is not ranked. {}. A percentile with fewer than 100 \
         samples beyond it prints as –.\n",
        stability::rule()
    );
    for experiment in &report.experiments {
        experiment_table(&mut text, report, experiment);
    }
    for (title, lines) in [("Not run", &report.missing), ("Cut to end in time", &report.cuts)] {
        if !lines.is_empty() {
            let _ = writeln!(text, "### {title}\n");
        }
        for line in lines {
            let _ = writeln!(text, "- {line}");
        }
        if !lines.is_empty() {
            let _ = writeln!(text);
        }
    }
    text
}

fn matrix_table(text: &mut String, report: &Report) {
    let Some(first) = report.matrix.first() else { return };
    let names: Vec<&str> = first.cells.iter().map(|cell| cell.system.as_str()).collect();
    let _ = writeln!(text, "### What was run\n\nVariations with a ranked run, of those that were run.\n");
    let _ = writeln!(text, "| experiment | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for row in &report.matrix {
        let cells = row.cells.iter().map(|cell| match (cell.runs, cell.remark.as_str()) {
            (0, remark) => remark.to_owned(),
            (_, "") => format!("{} of {}", cell.variations_ranked, cell.variations),
            (_, remark) => format!("{} of {}: {remark}", cell.variations_ranked, cell.variations),
        });
        let _ = writeln!(text, "| {} | {} |", row.experiment, cells.collect::<Vec<_>>().join(" | "));
    }
    let _ = writeln!(text);
}

fn claims_table(text: &mut String, report: &Report) {
    if report.claims.is_empty() {
        return;
    }
    let _ = writeln!(text, "### Published claims\n");
    let _ = writeln!(
        text,
        "| experiment | claim | here | times as good (95 %) | pairs | why | source |\n|---|---|---|---|---|---|---|"
    );
    for claim in &report.claims {
        let judged = match claim.judgement {
            Judgement::Confirmed => "**confirmed**",
            Judgement::Refuted => "**refuted**",
            Judgement::NotDecidable => "not decidable",
        };
        let _ = writeln!(
            text,
            "| {} | {} | {judged} | {}{} | {} | {} | {} |",
            claim.experiment,
            claim.says,
            claim.ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
            claim.interval.map_or(String::new(), |(low, high)| format!(" ({low:.2}–{high:.2})")),
            claim.pairs,
            claim.reason,
            claim.source
        );
    }
    let _ = writeln!(text);
}

fn finding_row(finding: &Finding) -> String {
    let marks = match (finding.indicative, finding.client_limited) {
        (true, true) => ", *indicative*, client-limited",
        (true, false) => ", *indicative*",
        (false, true) => ", client-limited",
        (false, false) => "",
    };
    format!(
        "| {} | {} | {} | {} | {} | {} | {:.2}{}{marks} | {} | {} |",
        finding.experiment,
        if finding.variation.is_empty() { &finding.durability } else { &finding.variation },
        name_of(finding.figure),
        value(finding.figure, finding.ours),
        finding.peer,
        value(finding.figure, finding.theirs),
        finding.advantage,
        finding.interval.map_or(String::new(), |(low, high)| format!(" ({low:.2}–{high:.2})")),
        finding.floor.map_or("not known".to_owned(), |floor| format!("{floor:.2}")),
        finding.pairs
    )
}

fn experiment_table(text: &mut String, report: &Report, experiment: &ExperimentRecord) {
    let _ = writeln!(text, "### {}: {}\n", experiment.id, experiment.title);
    let _ = writeln!(
        text,
        "| variation | target | durability | msg/s | MB/s | publish p50 / p99 / p99.9 ms | end to end p50 / p99 ms \
         | CPU-s/GB | peak MB + page cache | disk bytes/byte | runs | |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut groups: BTreeMap<(usize, bool, &str, &str), Vec<&Run>> = BTreeMap::new();
    let mut variations: Vec<&str> = Vec::new();
    for run in report.runs.iter().filter(|run| run.experiment == experiment.id) {
        if !variations.contains(&run.variation.as_str()) {
            variations.push(&run.variation);
        }
        let place = variations.iter().position(|name| *name == run.variation).unwrap_or(0);
        // Mainstem's row comes first.
        groups.entry((place, !is_ours(&run.target.name), &run.target.name, &run.target.variant)).or_default().push(run);
    }
    for runs in groups.values() {
        let _ = writeln!(text, "{}", run_row(runs, experiment.figure));
    }
    let _ = writeln!(text);
}

fn run_row(runs: &[&Run], figure: Figure) -> String {
    let usable: Vec<&Run> = runs.iter().copied().filter(|run| figure_of(run, figure).is_some()).collect();
    let shown = if usable.is_empty() { runs } else { &usable };
    let middle = |of: &dyn Fn(&Run) -> Option<f64>| {
        let values: Vec<f64> = shown.iter().filter_map(|run| of(run)).collect();
        (!values.is_empty()).then(|| median(&values))
    };
    let text = |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |value| format!("{value:.digits$}"));
    let publish = |of: fn(&crate::result::Curve) -> Option<f64>| {
        text(middle(&|run: &Run| run.measured.publish_latency.as_ref().and_then(of)), 2)
    };
    let arrival = |of: fn(&crate::result::Curve) -> Option<f64>| {
        text(middle(&|run: &Run| run.measured.end_to_end_latency.as_ref().and_then(of)), 2)
    };
    let seen = shown.iter().any(|run| run.broker.processes > 0);
    let used = |value: Option<f64>, digits: usize| if seen { text(value, digits) } else { NOT_MEASURED.to_owned() };
    let memory = |resident: Option<f64>, cache: Option<f64>| match cache {
        Some(cache) => format!("{} + {cache:.0}", used(resident, 0)),
        None => used(resident, 0),
    };
    let first = shown[0];
    let mut remarks: Vec<&str> = Vec::new();
    if usable.is_empty() {
        remarks.push("not ranked");
    }
    if shown.iter().any(|run| run.verdict.client_limited) {
        remarks.push("client-limited");
    }
    // Of all runs: also what was left out is said.
    for flaw in runs.iter().flat_map(|run| flaws(run)) {
        if !remarks.contains(&flaw) {
            remarks.push(flaw);
        }
    }
    if let Some(reason) = shown.iter().find_map(|run| run.stopped.as_deref()) {
        remarks.push(reason);
    }
    let drain = first.measured.drain.as_ref().map(|drain| {
        format!(
            "backlog of {:.0} MB read at {:.0} MB/s; publish p99 before / during / after {} / {} / {} ms",
            drain.backlog_mb,
            drain.read_mb_s,
            text(drain.publish_p99_before_ms, 2),
            text(drain.publish_p99_during_ms, 2),
            text(drain.publish_p99_after_ms, 2)
        )
    });
    remarks.extend(drain.as_deref());
    format!(
        "| {} | {} {} {} | {} | {} | {} | {} / {} / {} | {} / {} | {} | {} | {} | {} | {} |",
        first.variation,
        first.target.name,
        first.target.version,
        first.target.variant,
        first.target.durability,
        count(middle(&|run: &Run| Some(run.measured.publish_rate)).unwrap_or(0.0)),
        text(middle(&|run: &Run| Some(run.measured.publish_mb_s)), 1),
        publish(|curve| curve.p50_ms),
        publish(|curve| curve.p99_ms),
        publish(|curve| curve.p999_ms),
        arrival(|curve| curve.p50_ms),
        arrival(|curve| curve.p99_ms),
        used(middle(&|run: &Run| run.broker.cpu_s_per_gb), 2),
        memory(middle(&|run: &Run| run.broker.memory_peak_mb), middle(&|run: &Run| run.broker.page_cache_peak_mb)),
        used(middle(&|run: &Run| run.broker.disk_bytes_per_byte), 2),
        shown.len(),
        remarks.join("; ")
    )
}

fn name_of(figure: Figure) -> &'static str {
    match figure {
        Figure::PublishRate => "msg/s",
        Figure::PublishP99 => "publish p99",
        Figure::EndToEndP99 => "end-to-end p99",
        Figure::CpuPerGb => "CPU-s/GB",
        Figure::DrainRate => "backlog read",
    }
}

fn value(figure: Figure, value: f64) -> String {
    match figure {
        Figure::PublishRate => count(value),
        Figure::PublishP99 | Figure::EndToEndP99 => format!("{value:.2} ms"),
        Figure::CpuPerGb => format!("{value:.2}"),
        Figure::DrainRate => format!("{value:.0} MB/s"),
    }
}
