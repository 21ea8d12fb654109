//! `mainstem acl`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Session;
use super::table::{Column, Form};
use super::topics::trying;

pub const EXAMPLES: &str = "Examples:
  mainstem acl add --principal User:carol --operation Read --resource Topic --name orders
  mainstem acl add --principal User:carol --operation Read --resource Group --name billing --pattern Prefixed
  mainstem acl list
  mainstem acl delete --principal User:carol --dry-run";

/// Fields of an entry.
#[derive(Args, Debug)]
pub struct Entry {
    /// User:NAME, or User:* for everybody
    #[arg(long)]
    principal: Option<String>,
    /// An address, or * for all
    #[arg(long)]
    host: Option<String>,
    /// All, Read, Write, Create, Delete, Alter, Describe, …, as kafka-acls has them
    #[arg(long)]
    operation: Option<String>,
    /// Allow or Deny
    #[arg(long)]
    permission: Option<String>,
    /// Topic, Group, Cluster, TransactionalId, DelegationToken or User
    #[arg(long)]
    resource: Option<String>,
    /// Literal or Prefixed
    #[arg(long)]
    pattern: Option<String>,
    /// Of the resource
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// All entries
    List,
    /// Do entries count, and how many are there?
    State,
    /// Add an entry; it needs a principal, an operation, a resource and a name
    #[command(visible_alias = "create")]
    Add {
        #[command(flatten)]
        entry: Entry,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove the entries that have all of these
    Delete {
        #[command(flatten)]
        entry: Entry,
        /// Show them only
        #[arg(long)]
        dry_run: bool,
    },
}

const COLUMNS: &[Column] = &[
    ("PRINCIPAL", "principal", Form::Text),
    ("HOST", "host", Form::Text),
    ("PERMISSION", "permission", Form::Text),
    ("OPERATION", "operation", Form::Text),
    ("RESOURCE", "resource", Form::Text),
    ("PATTERN", "pattern", Form::Text),
    ("NAME", "name", Form::Text),
];

impl Entry {
    fn body(&self) -> Value {
        let Self { principal, host, operation, permission, resource, pattern, name } = self;
        let all = [
            ("principal", principal),
            ("host", host),
            ("operation", operation),
            ("permission", permission),
            ("resource", resource),
            ("pattern", pattern),
            ("name", name),
        ];
        let given = all.into_iter().filter_map(|(field, value)| Some((field.to_owned(), json!(value.as_deref()?))));
        Value::Object(given.collect::<Map<_, _>>())
    }
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List => session.list("/v1/acls", &[], COLUMNS),
        Verb::State => session.print(&session.client.get("/v1/acls/state")?, |found| {
            let count = found["count"].as_u64().unwrap_or(0);
            match found["enforced"] == true {
                true => format!("entries count; there are {count}\n"),
                false => format!("entries do not count (authorizer.class.name is not set); there are {count}\n"),
            }
        }),
        Verb::Add { entry, dry_run } => {
            session.change("POST", &trying("/v1/acls", dry_run), Some(&entry.body()), |made| {
                let said = if dry_run { "it could be added; nothing was done\n" } else { "" };
                format!("{}{said}", super::table::list(std::slice::from_ref(made), COLUMNS))
            })
        }
        Verb::Delete { entry, dry_run } => {
            session.change("POST", &trying("/v1/acls/delete", dry_run), Some(&entry.body()), |answer| {
                let gone = answer["deleted"].as_array().cloned().unwrap_or_default();
                let what = if dry_run { "would go" } else { "gone" };
                format!("{}{} {what}\n", super::table::list(&gone, COLUMNS), gone.len())
            })
        }
    }
}
