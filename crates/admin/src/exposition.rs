//! Measurements as text, in the two forms that Prometheus and its kin read: OpenMetrics 1.0 for those who ask for it, otherwise
//! Prometheus' own text format 0.0.4, in which the head of a counter has the name of its samples.
//!
//! What is encoded has a head for each registry in which a metric is; here all samples of a metric come under one head, as both forms want it.
//!
//! Source: OpenMetrics 1.0; Prometheus' "Exposition formats".

use std::fmt::Write;

use axum::http::{HeaderMap, header};
use hashbrown::HashMap;

/// Content types of both.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric: its head, and its samples of all registries.
#[derive(Debug, Default)]
pub struct Family<'t> {
    /// What it measures.
    pub help: &'t str,
    /// counter, gauge, histogram, …
    pub kind: &'t str,
    /// seconds, bytes, …, which its name ends with.
    pub unit: Option<&'t str>,
    /// Its lines, those of a histogram with the same labels one after the other.
    pub samples: Vec<&'t str>,
}

/// The name and the rest of a line of a head.
fn head<'t>(line: &'t str, word: &str) -> Option<(&'t str, &'t str)> {
    line.strip_prefix("# ")?.strip_prefix(word)?.strip_prefix(' ')?.split_once(' ')
}

/// The metrics of an encoded registry by their names, each once, in order; the names of counters are without `_total`.
pub fn families(text: &str) -> Vec<(&str, Family<'_>)> {
    let (mut found, mut places): (Vec<(&str, Family<'_>)>, HashMap<&str, usize>) = (Vec::new(), HashMap::new());
    let mut place = |name, found: &mut Vec<_>| {
        *places.entry(name).or_insert_with(|| {
            found.push((name, Family::default()));
            found.len() - 1
        })
    };
    let mut current = None;
    for line in text.lines() {
        if let Some((name, help)) = head(line, "HELP") {
            let at = place(name, &mut found);
            (found[at].1.help, current) = (help, Some(at));
        } else if let Some((name, kind)) = head(line, "TYPE") {
            let at = place(name, &mut found);
            (found[at].1.kind, current) = (kind, Some(at));
        } else if let Some((name, unit)) = head(line, "UNIT") {
            let at = place(name, &mut found);
            found[at].1.unit = Some(unit);
        } else if !line.starts_with('#')
            && let Some(at) = current
        {
            found[at].1.samples.push(line);
        }
    }
    found
}

/// Does a client ask for OpenMetrics?
fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    accepted.into_iter().any(|value| value.contains("application/openmetrics-text"))
}

/// The content type and the text for a client, of what was encoded as OpenMetrics.
pub(crate) fn of(headers: &HeaderMap, encoded: &str) -> (&'static str, String) {
    let open = wants_open_metrics(headers);
    let mut out = String::with_capacity(encoded.len());
    for (name, family) in families(encoded) {
        let suffix = if !open && family.kind == "counter" { "_total" } else { "" };
        let kind = if open || family.kind != "unknown" { family.kind } else { "untyped" };
        let _ = writeln!(out, "# HELP {name}{suffix} {}\n# TYPE {name}{suffix} {kind}", family.help);
        if let Some(unit) = family.unit.filter(|_| open) {
            let _ = writeln!(out, "# UNIT {name} {unit}");
        }
        for sample in family.samples {
            out.push_str(sample);
            out.push('\n');
        }
    }
    if open {
        out.push_str("# EOF\n");
    }
    (if open { OPEN_METRICS } else { PLAIN }, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENCODED: &str = "# HELP a_runs Runs.\n# TYPE a_runs counter\na_runs_total{journal=\"0\"} 1\n# HELP b_bytes Size.\n# TYPE b_bytes gauge\n# UNIT b_bytes bytes\n\
        b_bytes 5\n# HELP a_runs Runs.\n# TYPE a_runs counter\na_runs_total{journal=\"1\"} 2\n# EOF\n";

    #[test]
    fn samples_of_a_metric_come_under_one_head_in_both_forms() {
        let (kind, text) = of(&HeaderMap::new(), ENCODED);
        assert_eq!(kind, PLAIN);
        let expected = "# HELP a_runs_total Runs.\n# TYPE a_runs_total counter\na_runs_total{journal=\"0\"} 1\na_runs_total{journal=\"1\"} 2\n\
            # HELP b_bytes Size.\n# TYPE b_bytes gauge\nb_bytes 5\n";
        assert_eq!(text, expected);
        let headers = HeaderMap::from_iter([(
            header::ACCEPT,
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5".parse().expect("a header"),
        )]);
        let (kind, text) = of(&headers, ENCODED);
        assert_eq!(kind, OPEN_METRICS);
        let expected = "# HELP a_runs Runs.\n# TYPE a_runs counter\na_runs_total{journal=\"0\"} 1\na_runs_total{journal=\"1\"} 2\n\
            # HELP b_bytes Size.\n# TYPE b_bytes gauge\n# UNIT b_bytes bytes\nb_bytes 5\n# EOF\n";
        assert_eq!(text, expected);
    }
}
