//! `mainstem queue` and `mainstem exchange`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Session;
use super::http::segment;
use super::sure::Sure;
use super::table::{self, Column, Form};
use super::topics::{said, trying};

pub const EXAMPLES: &str = "Examples:
  mainstem queue list
  mainstem queue declare work --type quorum
  mainstem queue show work
  mainstem queue purge work --dry-run
  mainstem queue delete work --if-empty
  mainstem queue list --vhost shop";

pub const EXAMPLES_OF_EXCHANGES: &str = "Examples:
  mainstem exchange list
  mainstem exchange declare events --type topic
  mainstem exchange bind events work --key 'orders.#'
  mainstem exchange bindings
  mainstem exchange unbind events work --key 'orders.#'
  mainstem exchange delete events";

/// Where a queue or an exchange is.
#[derive(Args, Debug)]
pub struct Place {
    /// The virtual host
    #[arg(long, value_name = "NAME", default_value = "/")]
    vhost: String,
}

impl Place {
    fn path(&self, kind: &str, name: &str) -> String {
        format!("/v1/{kind}/{}/{}", segment(&self.vhost), segment(name))
    }
}

#[derive(Debug, Subcommand)]
pub enum QueueVerb {
    /// List queues
    List {
        /// Part of the name
        search: Option<String>,
        /// Only those of a virtual host
        #[arg(long, value_name = "NAME")]
        vhost: Option<String>,
        /// A field, like messages or rates.in; - before it: the largest first
        #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
        sort: Option<String>,
    },
    /// A queue, its consumers and bindings
    #[command(visible_alias = "describe")]
    Show {
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Declare a durable queue
    #[command(visible_alias = "create")]
    Declare {
        name: String,
        #[command(flatten)]
        place: Place,
        /// classic, quorum or stream [default: that of the virtual host]
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Gone after a restart
        #[arg(long)]
        transient: bool,
        /// Gone with its last consumer
        #[arg(long)]
        auto_delete: bool,
        /// Arguments as a JSON object, like '{"x-max-length": 1000}'
        #[arg(long, value_name = "JSON")]
        arguments: Option<String>,
    },
    /// Delete the messages that are ready
    Purge {
        name: String,
        #[command(flatten)]
        place: Place,
        /// Say how many only
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        sure: Sure,
    },
    /// Delete a queue
    Delete {
        name: String,
        #[command(flatten)]
        place: Place,
        /// Only without consumers
        #[arg(long)]
        if_unused: bool,
        /// Only without messages
        #[arg(long)]
        if_empty: bool,
        /// Check only
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        sure: Sure,
    },
}

/// One end and the other of a binding.
#[derive(Args, Debug)]
pub struct Ends {
    /// The exchange that it leads from
    source: String,
    /// The queue or exchange that it leads to
    destination: String,
    #[command(flatten)]
    place: Place,
    /// The destination is an exchange
    #[arg(long)]
    to_exchange: bool,
    /// Routing key
    #[arg(long, value_name = "KEY", default_value = "")]
    key: String,
    /// Arguments as a JSON object
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ExchangeVerb {
    /// List exchanges
    List {
        /// Part of the name
        search: Option<String>,
    },
    /// An exchange and its bindings
    #[command(visible_alias = "describe")]
    Show {
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Declare a durable exchange
    #[command(visible_alias = "create")]
    Declare {
        name: String,
        #[command(flatten)]
        place: Place,
        /// direct, fanout, topic, headers …
        #[arg(long = "type", value_name = "TYPE", default_value = "direct")]
        kind: String,
        /// Arguments as a JSON object
        #[arg(long, value_name = "JSON")]
        arguments: Option<String>,
    },
    /// List bindings
    Bindings {
        /// Part of a name or key
        search: Option<String>,
    },
    /// Bind a queue or an exchange to an exchange
    Bind(Ends),
    /// Delete a binding
    Unbind(Ends),
    /// Delete an exchange
    Delete {
        name: String,
        #[command(flatten)]
        place: Place,
        /// Only if nothing leads from it
        #[arg(long)]
        if_unused: bool,
    },
}

const QUEUES: &[Column] = &[
    ("VHOST", "vhost", Form::Text),
    ("NAME", "name", Form::Text),
    ("TYPE", "type", Form::Text),
    ("READY", "ready", Form::Count),
    ("UNACKED", "unacknowledged", Form::Count),
    ("CONSUMERS", "consumers", Form::Count),
    ("SIZE", "bytes", Form::Bytes),
    ("IN", "rates.in", Form::Rate),
    ("OUT", "rates.out", Form::Rate),
];

const CONSUMERS: &[Column] = &[
    ("CONSUMER", "tag", Form::Text),
    ("CONNECTION", "connection", Form::Text),
    ("USER", "user", Form::Text),
    ("PREFETCH", "prefetch", Form::Count),
    ("ACTIVE", "active", Form::Text),
];

const EXCHANGES: &[Column] = &[
    ("VHOST", "vhost", Form::Text),
    ("NAME", "name", Form::Text),
    ("TYPE", "type", Form::Text),
    ("DURABLE", "durable", Form::Text),
    ("BINDINGS", "bindings", Form::Count),
];

const BINDINGS: &[Column] = &[
    ("VHOST", "vhost", Form::Text),
    ("SOURCE", "source", Form::Text),
    ("KEY", "routing_key", Form::Text),
    ("TO", "destination_kind", Form::Text),
    ("DESTINATION", "destination", Form::Text),
    ("ARGUMENTS", "arguments", Form::Text),
];

/// Arguments from the command line.
fn arguments_of(text: Option<&str>) -> anyhow::Result<Value> {
    let Some(text) = text else { return Ok(json!({})) };
    let value: Value =
        serde_json::from_str(text).map_err(|error| anyhow::anyhow!("--arguments is no JSON: {error}"))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(anyhow::anyhow!("--arguments is no object: write '{{\"x-max-length\": 1000}}'"))
    }
}

fn rows(found: &Value, field: &str, columns: &[Column], none: &str) -> String {
    let rows = found[field].as_array().cloned().unwrap_or_default();
    if rows.is_empty() { format!("{none}\n") } else { table::list(&rows, columns) }
}

fn shown(queue: &Value) -> String {
    let head: &[Column] = &[
        ("Name", "name", Form::Text),
        ("Virtual host", "vhost", Form::Text),
        ("Type", "type", Form::Text),
        ("Durable", "durable", Form::Text),
        ("Arguments", "arguments", Form::Text),
        ("Policy", "policy", Form::Text),
        ("Ready", "ready", Form::Count),
        ("Unacknowledged", "unacknowledged", Form::Count),
        ("Dying", "dying", Form::Count),
        ("Size", "bytes", Form::Bytes),
        ("Topic", "topic", Form::Text),
        ("Published", "statistics.published", Form::Count),
        ("Acknowledged", "statistics.acknowledged", Form::Count),
        ("Redelivered", "statistics.redelivered", Form::Count),
    ];
    let (consumers, bindings) =
        (rows(queue, "consumers_list", CONSUMERS, "No consumers."), rows(queue, "bindings", BINDINGS, "No bindings."));
    format!("{}\n{consumers}\n{bindings}", table::one(queue, head))
}

pub fn run(session: &Session, verb: QueueVerb) -> anyhow::Result<()> {
    match verb {
        QueueVerb::List { search, vhost, sort } => {
            let path = vhost.map_or_else(|| "/v1/queues".to_owned(), |vhost| format!("/v1/queues/{}", segment(&vhost)));
            let query: Vec<(&str, &str)> = [("search", &search), ("sort", &sort)]
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.as_deref()?)))
                .collect();
            session.list(&path, &query, QUEUES)
        }
        QueueVerb::Show { name, place } => session.print(&session.client.get(&place.path("queues", &name))?, shown),
        QueueVerb::Declare { name, place, kind, transient, auto_delete, arguments } => {
            let mut body = json!({"durable": !transient, "auto_delete": auto_delete, "arguments": arguments_of(arguments.as_deref())?});
            if let Some(kind) = kind {
                body["type"] = kind.into();
            }
            session.change("PUT", &place.path("queues", &name), Some(&body), |_| format!("queue {name} declared\n"))
        }
        QueueVerb::Purge { name, place, dry_run, sure } => {
            if !dry_run {
                sure.ask(&format!("Delete all messages of queue {name} that are ready"))?;
            }
            let path = trying(&format!("{}/purge", place.path("queues", &name)), dry_run);
            session.change("POST", &path, None, |found| {
                let count = &found["purged"];
                said(
                    dry_run,
                    &format!("{count} messages of queue {name} deleted"),
                    &format!("{count} messages of queue {name} would be deleted"),
                )
            })
        }
        QueueVerb::Delete { name, place, if_unused, if_empty, dry_run, sure } => {
            if !dry_run && !if_empty {
                sure.ask(&format!("Delete queue {name} and all its messages"))?;
            }
            let flags: Vec<(&str, &str)> = [("if_unused", if_unused), ("if_empty", if_empty)]
                .into_iter()
                .filter(|(_, set)| *set)
                .map(|(name, _)| (name, "true"))
                .collect();
            let path = trying(&super::http::with_query(&place.path("queues", &name), &flags), dry_run);
            session.change("DELETE", &path, None, |_| {
                said(dry_run, &format!("queue {name} deleted"), &format!("queue {name} can be deleted"))
            })
        }
    }
}

fn shown_exchange(exchange: &Value) -> String {
    let head: &[Column] = &[
        ("Name", "name", Form::Text),
        ("Virtual host", "vhost", Form::Text),
        ("Type", "type", Form::Text),
        ("Durable", "durable", Form::Text),
        ("Internal", "internal", Form::Text),
        ("Arguments", "arguments", Form::Text),
    ];
    let (outgoing, incoming) = (
        rows(exchange, "outgoing", BINDINGS, "Nothing leads from it."),
        rows(exchange, "incoming", BINDINGS, "Nothing leads to it."),
    );
    format!("{}\n{outgoing}\n{incoming}", table::one(exchange, head))
}

fn binding_of(ends: &Ends) -> anyhow::Result<Value> {
    let kind = if ends.to_exchange { "exchange" } else { "queue" };
    let arguments = arguments_of(ends.arguments.as_deref())?;
    Ok(
        json!({"source": ends.source, "destination": ends.destination, "destination_kind": kind, "routing_key": ends.key, "arguments": arguments}),
    )
}

pub fn run_exchanges(session: &Session, verb: ExchangeVerb) -> anyhow::Result<()> {
    let searched = |search: &Option<String>| search.clone().map(|text| ("search", text));
    match verb {
        ExchangeVerb::List { search } => {
            let query = searched(&search);
            session.list(
                "/v1/exchanges",
                &query.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>(),
                EXCHANGES,
            )
        }
        ExchangeVerb::Bindings { search } => {
            let query = searched(&search);
            session.list(
                "/v1/bindings",
                &query.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>(),
                BINDINGS,
            )
        }
        ExchangeVerb::Show { name, place } => {
            session.print(&session.client.get(&place.path("exchanges", &name))?, shown_exchange)
        }
        ExchangeVerb::Declare { name, place, kind, arguments } => {
            let body = json!({"type": kind, "arguments": arguments_of(arguments.as_deref())?});
            session
                .change("PUT", &place.path("exchanges", &name), Some(&body), |_| format!("exchange {name} declared\n"))
        }
        ExchangeVerb::Bind(ends) => {
            let path = format!("/v1/bindings/{}", segment(&ends.place.vhost));
            session.change("POST", &path, Some(&binding_of(&ends)?), |_| {
                format!("{} bound to {}\n", ends.destination, ends.source)
            })
        }
        ExchangeVerb::Unbind(ends) => {
            let path = format!("/v1/bindings/{}/delete", segment(&ends.place.vhost));
            session.change("POST", &path, Some(&binding_of(&ends)?), |_| {
                format!("{} unbound from {}\n", ends.destination, ends.source)
            })
        }
        ExchangeVerb::Delete { name, place, if_unused } => {
            let path = place.path("exchanges", &name);
            let path = if if_unused { super::http::with_query(&path, &[("if_unused", "true")]) } else { path };
            session.change("DELETE", &path, None, |_| format!("exchange {name} deleted\n"))
        }
    }
}
