//! `mainstem topic`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::http::segment;
use super::sure::Sure;
use super::table::{self, Column, Form};
use super::{Session, settings_of};

pub const EXAMPLES: &str = "Examples:
  mainstem topic list
  mainstem topic create orders --partitions 12 --set retention.ms=86400000
  mainstem topic alter orders --set cleanup.policy=compact --unset retention.ms
  mainstem topic alter orders --partitions 24 --dry-run
  mainstem topic show orders --json
  mainstem topic delete orders --yes";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List topics
    List {
        /// Part of the name
        search: Option<String>,
        /// Topics whose names begin with __, and those of queues, too
        #[arg(long)]
        internal: bool,
        /// A field, like bytes or rates.in_records; - before it: the largest first
        #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
        sort: Option<String>,
    },
    /// A topic, its partitions and settings
    #[command(visible_alias = "describe")]
    Show { name: String },
    /// Create a topic
    Create {
        name: String,
        /// How many [default: num.partitions of the broker]
        #[arg(long, value_name = "COUNT")]
        partitions: Option<u32>,
        /// A setting of its own; may be repeated
        #[arg(long, value_name = "NAME=VALUE")]
        set: Vec<String>,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
    /// Change settings, add partitions
    #[command(group(clap::ArgGroup::new("wish").args(["set", "unset", "partitions"]).required(true).multiple(true)))]
    Alter {
        name: String,
        /// A setting; may be repeated
        #[arg(long, value_name = "NAME=VALUE")]
        set: Vec<String>,
        /// A setting that is to have its default again; may be repeated
        #[arg(long, value_name = "NAME")]
        unset: Vec<String>,
        /// Partitions that it is to have in all
        #[arg(long, value_name = "COUNT")]
        partitions: Option<u32>,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
    /// Delete a topic and all its records
    Delete {
        name: String,
        /// Check only
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        sure: Sure,
    },
    /// Delete records from the beginning of a partition
    Truncate {
        name: String,
        #[arg(long)]
        partition: u32,
        /// Records before this offset go; -1: all
        #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
        before: i64,
        /// Check only
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        sure: Sure,
    },
}

const COLUMNS: &[Column] = &[
    ("NAME", "name", Form::Text),
    ("PARTITIONS", "partitions", Form::Count),
    ("RECORDS", "records", Form::Count),
    ("SIZE", "bytes", Form::Bytes),
    ("IN", "rates.in_records", Form::Rate),
    ("CLEANUP", "cleanup_policy", Form::Text),
    ("RETENTION", "retention_ms", Form::Duration),
    ("DURABILITY", "durability", Form::Text),
];

const PARTITIONS: &[Column] = &[
    ("PARTITION", "partition", Form::Count),
    ("START", "start", Form::Count),
    ("END", "high_watermark", Form::Count),
    ("RECORDS", "records", Form::Count),
    ("SIZE", "bytes", Form::Bytes),
    ("IN", "rates.in_records", Form::Rate),
    ("JOURNAL", "journal", Form::Count),
    ("ARCHIVED UNTIL", "archived_until", Form::Count),
];

/// Settings that are not defaults.
pub(super) fn own_settings(config: &Value) -> String {
    let own: Vec<Value> =
        config.as_array().into_iter().flatten().filter(|row| row["source"] != "default").cloned().collect();
    if own.is_empty() {
        return "All settings have their defaults.\n".to_owned();
    }
    table::list(
        &own,
        &[("SETTING", "name", Form::Text), ("VALUE", "value", Form::Text), ("SET FOR", "source", Form::Text)],
    )
}

fn shown(topic: &Value) -> String {
    let head: &[Column] = &[
        ("Name", "name", Form::Text),
        ("Id", "id", Form::Text),
        ("Records", "records", Form::Count),
        ("Size", "bytes", Form::Bytes),
        ("Durability", "durability", Form::Text),
        ("Cleanup", "cleanup_policy", Form::Text),
        ("Retention", "retention_ms", Form::Duration),
        ("Groups", "groups", Form::Text),
    ];
    let partitions = topic["partition_list"].as_array().cloned().unwrap_or_default();
    format!("{}\n{}\n{}", table::one(topic, head), table::list(&partitions, PARTITIONS), own_settings(&topic["config"]))
}

/// A topic; its partitions come a thousand at a time.
fn with_all_partitions(session: &Session, path: &str) -> anyhow::Result<Value> {
    let partitions = |topic: &Value| topic["partition_list"].as_array().cloned().unwrap_or_default();
    let mut topic = session.client.get(path)?;
    let mut all = partitions(&topic);
    while (all.len() as u64) < topic["partitions"].as_u64().unwrap_or(0) {
        let more = partitions(
            &session.client.get(&super::http::with_query(path, &[("partition_offset", &*all.len().to_string())]))?,
        );
        if more.is_empty() {
            break;
        }
        all.extend(more);
    }
    topic["partition_list"] = all.into();
    Ok(topic)
}

/// The parameter that has things only tried.
pub(super) fn trying(path: &str, dry_run: bool) -> String {
    if dry_run { super::http::with_query(path, &[("dry_run", "true")]) } else { path.to_owned() }
}

/// What is said of something that was done, or would have been.
pub(super) fn said(dry_run: bool, done: &str, tried: &str) -> String {
    if dry_run { format!("{tried}; nothing was done (--dry-run)\n") } else { format!("{done}\n") }
}

/// Changes settings, adds partitions: both or, if one of them is refused, neither.
fn alter(
    session: &Session,
    name: &str,
    config: Option<&Value>,
    partitions: Option<u32>,
    dry_run: bool,
) -> anyhow::Result<()> {
    let path = format!("/v1/topics/{}", segment(name));
    let (of_config, of_partitions) = (format!("{path}/config"), format!("{path}/partitions"));
    let count = partitions.map(|count| json!({"count": count}));
    if let (Some(_), Some(body)) = (config, &count) {
        session.client.change("POST", &trying(&of_partitions, true), Some(body))?;
    }
    let mut found = Value::Null;
    let mut lines = String::new();
    if let Some(body) = config {
        found = session.client.change("PATCH", &trying(&of_config, dry_run), Some(body))?;
        lines.push_str(&said(dry_run, &format!("topic {name} changed"), &format!("topic {name} can be changed")));
        lines.push_str(&own_settings(&found["config"]));
    }
    // Last, because it answers with the whole topic.
    if let Some(body) = &count {
        found = session.client.change("POST", &trying(&of_partitions, dry_run), Some(body))?;
        let count = &body["count"];
        lines.push_str(&said(
            dry_run,
            &format!("topic {name} has {count} partitions"),
            &format!("topic {name} can have {count} partitions"),
        ));
    }
    session.print(&found, |_| lines)
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { search, internal, sort } => {
            let mut query = vec![("internal", if internal { "true" } else { "false" })];
            query.extend(search.as_deref().map(|text| ("search", text)));
            query.extend(sort.as_deref().map(|text| ("sort", text)));
            session.list("/v1/topics", &query, COLUMNS)
        }
        Verb::Show { name } => {
            session.print(&with_all_partitions(session, &format!("/v1/topics/{}", segment(&name)))?, shown)
        }
        Verb::Create { name, partitions, set, dry_run } => {
            let body = json!({"name": name, "partitions": partitions, "config": settings_of(&set)?});
            session.change("POST", &trying("/v1/topics", dry_run), Some(&body), |made| {
                let count = &made["partitions"];
                said(
                    dry_run,
                    &format!("topic {name} created with {count} partitions"),
                    &format!("topic {name} can be created with {count} partitions"),
                )
            })
        }
        Verb::Alter { name, set, unset, partitions, dry_run } => {
            let config = if set.is_empty() && unset.is_empty() {
                None
            } else {
                Some(json!({"set": settings_of(&set)?, "unset": unset}))
            };
            alter(session, &name, config.as_ref(), partitions, dry_run)
        }
        Verb::Delete { name, dry_run, sure } => {
            if !dry_run {
                sure.ask(&format!("Delete topic {name} and all its records"))?;
            }
            let path = trying(&format!("/v1/topics/{}", segment(&name)), dry_run);
            session.change("DELETE", &path, None, |_| {
                said(dry_run, &format!("topic {name} deleted"), &format!("topic {name} can be deleted"))
            })
        }
        Verb::Truncate { name, partition, before, dry_run, sure } => {
            if !dry_run {
                let which =
                    if before == -1 { "all records".to_owned() } else { format!("the records before offset {before}") };
                sure.ask(&format!("Delete {which} of partition {partition} of topic {name}"))?;
            }
            let path = trying(&format!("/v1/topics/{}/truncate", segment(&name)), dry_run);
            let body = json!({"partitions": [{"partition": partition, "before": before}]});
            session.change("POST", &path, Some(&body), |found| {
                let start = &found["partitions"][0]["start"];
                said(
                    dry_run,
                    &format!("partition {partition} of topic {name} begins at {start}"),
                    &format!("partition {partition} of topic {name} would begin at {start}"),
                )
            })
        }
    }
}
