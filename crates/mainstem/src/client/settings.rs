//! `mainstem config`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::table::{self, Column, Form};
use super::topics::{said, trying};
use super::{Session, settings_of};

pub const EXAMPLES: &str = "Examples:
  mainstem config list
  mainstem config list retention --changed
  mainstem config set num.partitions=6 log.retention.ms=86400000
  mainstem config unset num.partitions";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List settings: what is in force, where it comes from, whether it may change while the broker runs
    List {
        /// Part of the name
        search: Option<String>,
        /// Only what somebody has set
        #[arg(long)]
        changed: bool,
    },
    /// Change settings while the broker runs; it stays so after a restart
    Set {
        #[arg(value_name = "NAME=VALUE", required = true)]
        settings: Vec<String>,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
    /// Have what the broker was started with count again
    Unset {
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
}

const COLUMNS: &[Column] = &[
    ("SETTING", "name", Form::Text),
    ("VALUE", "value", Form::Text),
    ("DEFAULT", "default", Form::Text),
    ("FROM", "source", Form::Text),
    ("CHANGES", "apply", Form::Text),
];

fn changed(found: &Value, dry_run: bool) -> String {
    let rows = found["changed"].as_array().cloned().unwrap_or_default();
    format!("{}{}", table::list(&rows, COLUMNS), said(dry_run, "Changed.", "That can be changed"))
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { search, changed } => {
            let query: Vec<(&str, &str)> = search.as_deref().map(|text| ("search", text)).into_iter().collect();
            let mut all = session.client.list("/v1/config", &query)?;
            all.retain(|row| !changed || row["source"] != "default");
            session.print(&Value::Array(all), |all| table::list(all.as_array().map_or(&[], Vec::as_slice), COLUMNS))
        }
        Verb::Set { settings, dry_run } => {
            let body = json!({"set": settings_of(&settings)?});
            session.change("PATCH", &trying("/v1/config", dry_run), Some(&body), |found| changed(found, dry_run))
        }
        Verb::Unset { names, dry_run } => {
            session.change("PATCH", &trying("/v1/config", dry_run), Some(&json!({"unset": names})), |found| {
                changed(found, dry_run)
            })
        }
    }
}
