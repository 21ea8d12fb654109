//! `mainstem connection`.

use clap::Subcommand;

use super::Session;
use super::http::{segment, with_query};
use super::table::{self, Column, Form};

pub const EXAMPLES: &str = "Examples:
  mainstem connection list
  mainstem connection list --protocol kafka --sort -rates.in_bytes
  mainstem connection show 17
  mainstem connection close 17 --reason 'maintenance'";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List open connections
    List {
        /// Part of an address
        search: Option<String>,
        /// kafka or amqp
        #[arg(long)]
        protocol: Option<String>,
        /// Only those of a user
        #[arg(long = "of-user", value_name = "NAME")]
        of_user: Option<String>,
        /// A field, like connected_at or rates.in_bytes; - before it: the largest first
        #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
        sort: Option<String>,
    },
    /// A connection
    #[command(visible_alias = "describe")]
    Show { id: String },
    /// Close a connection
    Close {
        id: String,
        /// What the client is told
        #[arg(long)]
        reason: Option<String>,
    },
}

const COLUMNS: &[Column] = &[
    ("ID", "id", Form::Text),
    ("PROTOCOL", "protocol", Form::Text),
    ("ADDRESS", "address", Form::Text),
    ("USER", "user", Form::Text),
    ("CLIENT", "client_id", Form::Text),
    ("SOFTWARE", "software", Form::Text),
    ("SINCE", "connected_at", Form::Time),
    ("IN", "rates.in_bytes", Form::ByteRate),
    ("OUT", "rates.out_bytes", Form::ByteRate),
];

const LINES: &[Column] = &[
    ("Id", "id", Form::Text),
    ("Protocol", "protocol", Form::Text),
    ("Address", "address", Form::Text),
    ("At", "local", Form::Text),
    ("User", "user", Form::Text),
    ("Login", "mechanism", Form::Text),
    ("Client", "client_id", Form::Text),
    ("Software", "software", Form::Text),
    ("Virtual host", "vhost", Form::Text),
    ("Channels", "channels", Form::Count),
    ("Since", "connected_at", Form::Time),
    ("Received", "received_bytes", Form::Bytes),
    ("Sent", "sent_bytes", Form::Bytes),
];

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { search, protocol, of_user, sort } => {
            let query = [("search", &search), ("protocol", &protocol), ("user", &of_user), ("sort", &sort)];
            let query: Vec<(&str, &str)> =
                query.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
            session.list("/v1/connections", &query, COLUMNS)
        }
        Verb::Show { id } => {
            let found = session.client.get(&format!("/v1/connections/{}", segment(&id)))?;
            session.print(&found, |found| table::one(found, LINES))
        }
        Verb::Close { id, reason } => {
            let path = format!("/v1/connections/{}", segment(&id));
            let path = reason.map_or_else(|| path.clone(), |reason| with_query(&path, &[("reason", reason.as_str())]));
            session.change("DELETE", &path, None, |_| format!("connection {id} is asked to end\n"))
        }
    }
}
