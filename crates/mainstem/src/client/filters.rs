//! `mainstem filter`.

use anyhow::bail;
use clap::Subcommand;
use serde_json::json;

use super::Session;
use super::http::segment;
use super::table::{Column, Form};
use super::topics::{said, trying};

pub const EXAMPLES: &str = "Examples:
  mainstem filter set readers \"key IN ('a', 'b') AND header.type = 'created'\"
  mainstem filter check \"key = 'a\"
  mainstem filter list
  mainstem filter delete readers";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Groups that have a filter
    List,
    /// Is this an expression?
    Check { expression: String },
    /// Give a group a filter: its members get only records for which the expression is true
    Set {
        group: String,
        expression: String,
        /// A client id under which members of the group alone fetch; may be repeated
        #[arg(long = "client-id", value_name = "ID")]
        client_ids: Vec<String>,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
    /// Take a group's filter away
    Delete { group: String },
}

const COLUMNS: &[Column] = &[
    ("GROUP", "name", Form::Text),
    ("EXPRESSION", "expression", Form::Text),
    ("CLIENT IDS", "client_ids", Form::Text),
];

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List => session.list("/v1/filters", &[], COLUMNS),
        Verb::Check { expression } => {
            let found = session.client.change("POST", "/v1/filters/check", Some(&json!({"expression": expression})))?;
            if found["valid"] == true {
                return session.print(&found, |_| "it is an expression\n".to_owned());
            }
            if session.json {
                session.print(&found, |_| String::new())?;
            }
            let at = usize::try_from(found["position"].as_u64().unwrap_or(1)).unwrap_or(1).max(1) - 1;
            bail!("{}\n  {expression}\n  {}^", found["reason"].as_str().unwrap_or_default(), " ".repeat(at))
        }
        Verb::Set { group, expression, client_ids, dry_run } => {
            let path = trying(&format!("/v1/filters/{}", segment(&group)), dry_run);
            let body = json!({"expression": expression, "client_ids": client_ids});
            session.change("PUT", &path, Some(&body), |_| {
                said(dry_run, &format!("group {group} has a filter"), &format!("group {group} can have this filter"))
            })
        }
        Verb::Delete { group } => session.change("DELETE", &format!("/v1/filters/{}", segment(&group)), None, |_| {
            format!("group {group} has no filter any more\n")
        }),
    }
}
