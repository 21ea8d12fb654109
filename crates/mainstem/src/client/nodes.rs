//! `mainstem overview`.

use serde_json::Value;

use super::Session;
use super::table::{self, Column, Form};

pub const EXAMPLES: &str = "Examples:
  mainstem overview
  mainstem overview --json --admin 10.0.0.5:8160 --user anna --password-file ~/.mainstem-password";

const LINES: &[Column] = &[
    ("Mainstem", "version", Form::Text),
    ("Phase", "phase", Form::Text),
    ("Up for", "uptime_ms", Form::Duration),
    ("Cluster", "cluster_id", Form::Text),
    ("Topics", "counts.topics", Form::Count),
    ("Partitions", "counts.partitions", Form::Count),
    ("Groups", "counts.groups", Form::Count),
    ("Queues", "counts.queues", Form::Count),
    ("Connections", "counts.connections", Form::Count),
    ("In", "rates.in_bytes", Form::ByteRate),
    ("Out", "rates.out_bytes", Form::ByteRate),
    ("Resident memory", "memory.resident_bytes", Form::Bytes),
    ("Memory budget", "memory.budget_bytes", Form::Bytes),
    ("Journals on disk", "disk.journal_bytes", Form::Bytes),
    ("Free on disk", "disk.free_bytes", Form::Bytes),
];

const JOURNALS: &[Column] = &[
    ("JOURNAL", "journal", Form::Count),
    ("STATUS", "status", Form::Text),
    ("SEGMENTS", "segment_count", Form::Count),
    ("ON DISK", "file_bytes", Form::Bytes),
    ("LIVE", "live_bytes", Form::Bytes),
    ("QUEUED", "queued_bytes", Form::Bytes),
];

const LISTENERS: &[Column] =
    &[("LISTENER", "protocol", Form::Text), ("ADDRESS", "address", Form::Text), ("TLS", "tls", Form::Text)];

fn shown(found: &Value) -> String {
    let rows = |field: &str| found[field].as_array().cloned().unwrap_or_default();
    let mut text = table::one(found, LINES);
    // Those who may not look after the node are told neither.
    for (rows, columns) in [(rows("journals"), JOURNALS), (rows("listeners"), LISTENERS)] {
        if !rows.is_empty() {
            text.push_str(&format!("\n{}", table::list(&rows, columns)));
        }
    }
    for warning in rows("warnings") {
        text.push_str(&format!("\nWARNING  {}", table::plain(warning["text"].as_str().unwrap_or_default())));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

pub fn overview(session: &Session) -> anyhow::Result<()> {
    session.print(&session.client.get("/v1/overview")?, shown)
}
