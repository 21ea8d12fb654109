//! `mainstem quota`.

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Session;
use super::table::{self, Column, Form};
use super::topics::trying;

pub const EXAMPLES: &str = "Examples:
  mainstem quota set --for-user bob producer_byte_rate=10000000 consumer_byte_rate=20000000
  mainstem quota set --for-client-id default request_percentage=50
  mainstem quota set --for-ip 10.0.0.7 connection_creation_rate=10
  mainstem quota set --for-user bob producer_byte_rate=
  mainstem quota list
  mainstem quota use";

/// Whose.
#[derive(Args, Debug)]
pub struct Entity {
    /// A user, or default
    #[arg(long, value_name = "NAME", conflicts_with = "for_ip")]
    for_user: Option<String>,
    /// A client id, or default; with --for-user: of that user only
    #[arg(long, value_name = "ID", conflicts_with = "for_ip")]
    for_client_id: Option<String>,
    /// An address, or default
    #[arg(long, value_name = "ADDRESS")]
    for_ip: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// All quotas
    List,
    /// What is taken of quotas, those of topics and rules of groups too
    Use,
    /// Set quotas, as KEY=NUMBER; without a number a quota is taken away
    Set {
        #[command(flatten)]
        entity: Entity,
        #[arg(required = true, value_name = "KEY=NUMBER")]
        values: Vec<String>,
        /// Check only
        #[arg(long)]
        dry_run: bool,
    },
}

const COLUMNS: &[Column] = &[("WHOSE", "name", Form::Text), ("QUOTAS", "shown", Form::Text)];

const USES: &[Column] = &[
    ("WHOSE", "name", Form::Text),
    ("QUOTA", "key", Form::Text),
    ("A SECOND", "limit", Form::Count),
    ("TAKEN", "taken", Form::Count),
    ("NEXT WAITS", "wait_ms", Form::Duration),
];

/// With a text of its values.
fn shown(mut quota: Value) -> Value {
    let values = quota["values"].as_object().into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
    quota["shown"] = values.collect::<Vec<_>>().join(" ").into();
    quota
}

fn body(entity: &Entity, values: &[String]) -> anyhow::Result<Value> {
    let named = [("user", &entity.for_user), ("client-id", &entity.for_client_id), ("ip", &entity.for_ip)];
    let name = |name: &str| if name == "default" { Value::Null } else { json!(name) };
    let parts: Map<String, Value> =
        named.into_iter().filter_map(|(kind, value)| Some((kind.to_owned(), name(value.as_deref()?)))).collect();
    if parts.is_empty() {
        bail!("whose quota? Name --for-user, --for-client-id, both, or --for-ip");
    }
    let mut wanted = Map::new();
    for text in values {
        let value = match text.split_once('=') {
            Some((_, "")) => Some(Value::Null),
            // JSON has neither infinity nor what is no number: as null they would take the quota away.
            Some((_, number)) => {
                number.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| json!(number))
            }
            None => None,
        };
        let Some(value) = value else {
            bail!(
                "{text:?} is no quota: write KEY=NUMBER with a finite number, like producer_byte_rate=10000000, or KEY= to take it away"
            )
        };
        wanted.insert(text.split('=').next().unwrap_or_default().to_owned(), value);
    }
    Ok(json!({"entity": parts, "values": wanted}))
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List => {
            let items = session.client.list("/v1/quotas", &[])?;
            session.print(&Value::Array(items), |items| {
                table::list(&items.as_array().into_iter().flatten().cloned().map(shown).collect::<Vec<_>>(), COLUMNS)
            })
        }
        Verb::Use => session.list("/v1/quotas/use", &[], USES),
        Verb::Set { entity, values, dry_run } => {
            let body = body(&entity, &values)?;
            session.change("PUT", &trying("/v1/quotas", dry_run), Some(&body), |quota| {
                table::list(&[shown(quota.clone())], COLUMNS)
            })
        }
    }
}
