//! `mainstem group`.

use anyhow::bail;
use clap::Subcommand;
use serde_json::{Value, json};

use super::Session;
use super::http::segment;
use super::settings_of;
use super::table::{self, Column, Form};
use super::topics::{own_settings, said, trying};

pub const EXAMPLES: &str = "Examples:
  mainstem group list
  mainstem group show readers
  mainstem group reset-offsets readers --to-earliest                  (shows what would be done)
  mainstem group reset-offsets readers --to-earliest --execute
  mainstem group reset-offsets readers --by-duration-ms 3600000 --topic orders --partition 0 --execute
  mainstem group config readers --set consumer.session.timeout.ms=50000
  mainstem group delete readers";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List groups of all kinds
    List {
        /// Part of the name
        search: Option<String>,
        /// classic, consumer, share or streams
        #[arg(long)]
        kind: Option<String>,
        /// As Kafka calls it, like Stable or Empty
        #[arg(long)]
        state: Option<String>,
    },
    /// A group, its members, and how far it is in each partition
    #[command(visible_alias = "describe")]
    Show { name: String },
    /// Have a group without members go on elsewhere; without --execute it is only shown
    #[command(group(clap::ArgGroup::new("to").args(["to_earliest", "to_latest", "to_offset", "to_timestamp", "by_duration_ms", "shift_by"]).required(true)))]
    ResetOffsets {
        name: String,
        /// With the first record that there is
        #[arg(long)]
        to_earliest: bool,
        /// With what comes from now on
        #[arg(long)]
        to_latest: bool,
        /// With this offset
        #[arg(long, value_name = "OFFSET")]
        to_offset: Option<u64>,
        /// With the first record that is not older, ms since 1970
        #[arg(long, value_name = "MS")]
        to_timestamp: Option<u64>,
        /// With the first record that is not older than so many ms
        #[arg(long, value_name = "MS")]
        by_duration_ms: Option<u64>,
        /// So many records after where it is; negative: before
        #[arg(long, value_name = "RECORDS", allow_hyphen_values = true)]
        shift_by: Option<i64>,
        /// Of this topic; may be repeated [default: all that it has offsets of]
        #[arg(long = "topic", value_name = "NAME")]
        topics: Vec<String>,
        /// Of this partition; may be repeated [default: all]
        #[arg(long = "partition", value_name = "INDEX")]
        partitions: Vec<u32>,
        /// Do it
        #[arg(long)]
        execute: bool,
    },
    /// Settings of a group: show them, or change them
    Config {
        name: String,
        /// A setting; may be repeated
        #[arg(long, value_name = "NAME=VALUE")]
        set: Vec<String>,
        /// A setting that is to have its default again; may be repeated
        #[arg(long, value_name = "NAME")]
        unset: Vec<String>,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
    /// Forget offsets of a topic that no member reads
    DeleteOffsets {
        name: String,
        #[arg(long)]
        topic: String,
        /// [default: all]
        #[arg(long)]
        partition: Option<u32>,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
    /// Delete a group without members
    Delete {
        name: String,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
}

const COLUMNS: &[Column] = &[
    ("NAME", "name", Form::Text),
    ("KIND", "kind", Form::Text),
    ("STATE", "state", Form::Text),
    ("MEMBERS", "members", Form::Count),
    ("TOPICS", "topics", Form::Count),
    ("LAG", "lag", Form::Count),
    ("NO OFFSET", "without_offset.partitions", Form::Count),
    ("FILTER", "filter", Form::Text),
];

const MEMBERS: &[Column] = &[
    ("MEMBER", "id", Form::Text),
    ("CLIENT", "client_id", Form::Text),
    ("HOST", "host", Form::Text),
    ("EPOCH", "epoch", Form::Count),
    ("READS", "reads", Form::Text),
];

const OFFSETS: &[Column] = &[
    ("TOPIC", "topic", Form::Text),
    ("PARTITION", "partition", Form::Count),
    ("COMMITTED", "committed", Form::Count),
    ("START", "start", Form::Count),
    ("END", "high_watermark", Form::Count),
    ("LAG", "lag", Form::Count),
    ("IN FLIGHT", "in_flight", Form::Count),
    ("COMMITTED AT", "committed_at", Form::Time),
    ("MEMBER", "member", Form::Text),
];

const MOVES: &[Column] = &[
    ("TOPIC", "topic", Form::Text),
    ("PARTITION", "partition", Form::Count),
    ("FROM", "from", Form::Count),
    ("TO", "to", Form::Count),
    ("CHANGE", "change", Form::Count),
];

/// What a member reads, in one word.
fn reads(member: &Value) -> Value {
    let one = |assigned: &Value| {
        let partitions: Vec<String> =
            assigned["partitions"].as_array().into_iter().flatten().map(Value::to_string).collect();
        format!("{}[{}]", assigned["topic"].as_str().unwrap_or_default(), partitions.join(","))
    };
    let all: Vec<String> = member["assignment"].as_array().into_iter().flatten().map(one).collect();
    let mut member = member.clone();
    member["reads"] = all.join(" ").into();
    member
}

fn shown(group: &Value) -> String {
    let head: &[Column] = &[
        ("Name", "name", Form::Text),
        ("Kind", "kind", Form::Text),
        ("State", "state", Form::Text),
        ("Assignor", "assignor", Form::Text),
        ("Epoch", "epoch", Form::Count),
        ("Lag", "lag", Form::Count),
        ("Partitions without an offset", "without_offset.partitions", Form::Count),
        ("Records in these", "without_offset.records", Form::Count),
        ("Filter", "filter", Form::Text),
    ];
    let members: Vec<Value> = group["member_list"].as_array().into_iter().flatten().map(reads).collect();
    let offsets = group["offsets"].as_array().cloned().unwrap_or_default();
    let members = if members.is_empty() { "No members.\n".to_owned() } else { table::list(&members, MEMBERS) };
    let offsets = if offsets.is_empty() { "No offsets.\n".to_owned() } else { table::list(&offsets, OFFSETS) };
    format!("{}\n{members}\n{offsets}", table::one(group, head))
}

/// What a reset comes to, or would.
fn moved(found: &Value, name: &str) -> String {
    let rows = found["offsets"].as_array().cloned().unwrap_or_default();
    if rows.is_empty() {
        return format!("group {name} has no offset there: nothing is to be done\n");
    }
    let table = table::list(&rows, MOVES);
    if found["dry_run"] == true { format!("{table}Nothing was done: --execute does it.\n") } else { table }
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    let path = |name: &str| format!("/v1/groups/{}", segment(name));
    match verb {
        Verb::List { search, kind, state } => {
            let query = [("search", &search), ("kind", &kind), ("state", &state)];
            let query: Vec<(&str, &str)> =
                query.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
            session.list("/v1/groups", &query, COLUMNS)
        }
        Verb::Show { name } => session.print(&session.client.get(&path(&name))?, shown),
        Verb::ResetOffsets {
            name,
            to_earliest,
            to_latest,
            to_offset,
            to_timestamp,
            by_duration_ms,
            shift_by,
            topics,
            partitions,
            execute,
        } => {
            let to = match (to_offset, to_timestamp, by_duration_ms, shift_by) {
                _ if to_earliest => json!("earliest"),
                _ if to_latest => json!("latest"),
                (Some(offset), ..) => json!({"offset": offset}),
                (_, Some(at), ..) => json!({"timestamp": at}),
                (_, _, Some(ms), _) => json!({"duration_ms": ms}),
                (.., Some(by)) => json!({"shift": by}),
                _ => bail!(
                    "say where to: --to-earliest, --to-latest, --to-offset, --to-timestamp, --by-duration-ms or --shift-by"
                ),
            };
            let mut body = json!({"to": to});
            if !topics.is_empty() {
                body["topics"] = topics.into();
            }
            if !partitions.is_empty() {
                body["partitions"] = partitions.into();
            }
            session.change("POST", &trying(&format!("{}/reset", path(&name)), !execute), Some(&body), |found| {
                moved(found, &name)
            })
        }
        Verb::Config { name, set, unset, .. } if set.is_empty() && unset.is_empty() => session
            .print(&session.client.get(&format!("{}/config", path(&name)))?, |found| own_settings(&found["config"])),
        Verb::Config { name, set, unset, dry_run } => {
            let body = json!({"set": settings_of(&set)?, "unset": unset});
            session.change("PATCH", &trying(&format!("{}/config", path(&name)), dry_run), Some(&body), |found| {
                format!(
                    "{}{}",
                    said(dry_run, &format!("group {name} changed"), &format!("group {name} can be changed")),
                    own_settings(&found["config"])
                )
            })
        }
        Verb::DeleteOffsets { name, topic, partition, dry_run } => {
            let index = partition.map(|index| index.to_string());
            let query = [Some(("topic", topic.as_str())), index.as_deref().map(|index| ("partition", index))];
            let query: Vec<(&str, &str)> = query.into_iter().flatten().collect();
            let path = trying(&super::http::with_query(&format!("{}/offsets", path(&name)), &query), dry_run);
            session.change("DELETE", &path, None, |_| {
                said(dry_run, &format!("offsets of {topic} forgotten"), &format!("offsets of {topic} can be forgotten"))
            })
        }
        Verb::Delete { name, dry_run } => {
            let path = trying(&path(&name), dry_run);
            session.change("DELETE", &path, None, |_| {
                said(dry_run, &format!("group {name} deleted"), &format!("group {name} can be deleted"))
            })
        }
    }
}
