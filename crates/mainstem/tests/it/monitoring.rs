//! What is served at `/metrics` is what is documented, and what the dashboard and the alert rules name exists. (That Prometheus itself takes
//! them is tested in `conformance`.)

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::administration::{change, commit};
use crate::process::Process;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// A metric's name, type and help.
type Row = (String, String, String);

/// Metrics that are not there before something has happened which takes a client of its own: part of the name, and the rest of the row.
const LATER: [(&str, &str, &str); 8] = [
    ("transaction_open_seconds", "gauge", "How long a transaction is open that readers of committed records wait for."),
    (
        "group_without_offset_records",
        "gauge",
        "Records of partitions that members of a group read and of which it has no offset: it reads all of them if it begins with the first.",
    ),
    ("share_in_flight_records", "gauge", "Records that members of a share group have."),
    ("vhost_limit", "gauge", "Limits of virtual hosts that have some, a thousand at most."),
    ("vhost_limit_used", "gauge", "How many there are of what mainstem_vhost_limit bounds."),
    ("user_limit", "gauge", "Limits of users who have some, a thousand at most."),
    ("user_limit_used", "gauge", "How many there are of what mainstem_user_limit bounds."),
    (
        "tls_certificate_expiration_timestamp_seconds",
        "gauge",
        "When the first of the broker's certificates ends, since 1970.",
    ),
];

fn served() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &["--set", "mainstem.journals=2"]);
    // Metrics with labels are there once they have a sample.
    assert_eq!(change(&process, "POST", "/v1/topics", json!({"name": "t"})).status, 201);
    commit(&process, "g", "t");
    let page = process.ask_admin("/metrics").expect("a page");
    let text = page.split_once("\r\n\r\n").expect("a body").1.to_owned();
    let mut found: Vec<Row> = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ').skip(1);
        let (word, name, rest) = (words.next(), words.next(), words.next());
        match (line.starts_with("# "), word, name, rest) {
            (true, Some("HELP"), Some(name), Some(help)) => {
                assert!(!found.iter().any(|(known, _, _)| known == name), "{name} has two heads");
                found.push((name.to_owned(), String::new(), help.to_owned()));
            }
            (true, Some("TYPE"), Some(name), Some(kind)) => {
                let last = found.last_mut().expect("a help before it");
                assert_eq!(last.0, name);
                kind.clone_into(&mut last.1);
            }
            _ => {}
        }
    }
    let source = concat!(include_str!("../../src/measurements.rs"), include_str!("../../src/limit_metrics.rs"));
    for (name, kind, help) in LATER {
        assert!(source.contains(&format!("\"{name}\"")) && source.contains(help.trim_end_matches('.')), "{name}");
        found.push((format!("mainstem_{name}"), kind.to_owned(), help.to_owned()));
    }
    assert!(found.len() > 70, "{} metrics", found.len());
    found
}

/// Names of samples.
fn samples(rows: &[Row]) -> BTreeSet<String> {
    let one = |(name, kind, _): &Row| match kind.as_str() {
        "histogram" => ["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")).to_vec(),
        _ => vec![name.clone()],
    };
    rows.iter().flat_map(one).collect()
}

/// Words of a text that begin like our metrics.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("mainstem_")).map(str::to_owned).collect()
}

#[test]
fn metrics_are_documented_and_dashboard_and_rules_name_those_that_there_are() {
    let rows = served();
    let samples = samples(&rows);
    for name in ["monitoring/grafana-dashboard.json", "monitoring/alerts.yml"] {
        let text = fs::read_to_string(root().join(name)).expect(name);
        let used = named(&text);
        assert!(used.len() > 10, "{name} names {} metrics", used.len());
        let missing: Vec<_> = used.difference(&samples).collect();
        assert!(missing.is_empty(), "{name} names metrics that are not served: {missing:?}");
    }
    let mut table: Vec<String> =
        rows.iter().map(|(name, kind, help)| format!("| `{name}` | {kind} | {} |", help.replace('|', "\\|"))).collect();
    table.sort();
    let path = root().join("docs/metrics.md");
    let document = fs::read_to_string(&path).expect("docs/metrics.md");
    let (before, written) = document.split_once("| --- | --- | --- |\n").expect("a table");
    let table = format!("{}\n", table.join("\n"));
    if std::env::var("UPDATE").is_ok_and(|wish| wish == "1") {
        fs::write(&path, format!("{before}| --- | --- | --- |\n{table}")).expect("it is written");
        return;
    }
    assert_eq!(
        written, table,
        "docs/metrics.md differs from what is served: UPDATE=1 cargo test -p mainstem --test it monitoring"
    );
}
