//! Commands that look at a running broker and change it: a client of its administration API (`docs/api.md`), one file a resource.

mod acls;
mod connections;
mod filters;
mod groups;
mod http;
mod nodes;
mod operations;
mod queues;
mod quotas;
mod settings;
mod sure;
mod table;
mod top;
mod topics;
mod users;
mod why;

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::Value;

use http::Client;
pub use http::Target;
use table::Column;

use crate::output;

/// What is to be looked at or changed.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Topics: list, look at, create, change, delete
    #[command(after_help = topics::EXAMPLES)]
    Topic {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: topics::Verb,
    },
    /// Groups of consumers: list, look at, have them go on elsewhere, delete
    #[command(after_help = groups::EXAMPLES)]
    Group {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: groups::Verb,
    },
    /// Queues: list, look at, declare, purge, delete
    #[command(after_help = queues::EXAMPLES)]
    Queue {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: queues::QueueVerb,
    },
    /// Exchanges and bindings: list, look at, declare, bind, delete
    #[command(after_help = queues::EXAMPLES_OF_EXCHANGES)]
    Exchange {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: queues::ExchangeVerb,
    },
    /// Users and their permissions: list, add, change, delete
    #[command(after_help = users::EXAMPLES)]
    User {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: users::Verb,
    },
    /// Settings of the broker: list, change those that may change while it runs
    #[command(after_help = settings::EXAMPLES)]
    Config {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: settings::Verb,
    },
    /// Filters of groups: list, set, take away
    #[command(after_help = filters::EXAMPLES)]
    Filter {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: filters::Verb,
    },
    /// Connections of all protocols: list, look at, close
    #[command(after_help = connections::EXAMPLES)]
    Connection {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: connections::Verb,
    },
    /// The node at a glance
    #[command(after_help = nodes::EXAMPLES)]
    Overview {
        #[command(flatten)]
        target: Target,
    },
    /// Access control entries: list, add, delete
    #[command(after_help = acls::EXAMPLES)]
    Acl {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: acls::Verb,
    },
    /// Quotas of users, client ids and addresses: list, set
    #[command(after_help = quotas::EXAMPLES)]
    Quota {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        verb: quotas::Verb,
    },
    /// Have a running broker make a backup of its data folder, while it serves
    #[command(after_help = operations::EXAMPLES_OF_BACKUP)]
    Backup {
        #[command(flatten)]
        target: Target,
        /// A new or empty folder on the broker's machine; on the file system of the data folder it takes little space
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Have a running broker read its configuration file and certificates again
    #[command(after_help = operations::EXAMPLES_OF_RELOAD)]
    Reload {
        #[command(flatten)]
        target: Target,
    },
    /// Have a running broker finish what has begun, and end
    #[command(after_help = operations::EXAMPLES_OF_DRAIN)]
    Drain {
        #[command(flatten)]
        target: Target,
        /// Return when the broker has been told, not when it has ended
        #[arg(long)]
        no_wait: bool,
    },
    /// Why a client, a topic's or a group's connections are slow; without one, all connections
    #[command(after_help = why::EXAMPLES)]
    Why {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        about: why::About,
    },
    /// What the node does, live, in the terminal; q ends it
    #[command(after_help = top::EXAMPLES)]
    Top {
        #[command(flatten)]
        target: Target,
        /// Seconds between two looks
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=60))]
        every: u64,
    },
}

/// Does what a command says.
///
/// # Errors
/// Nobody is there; the broker's reason why it does not do it.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Topic { target, verb } => topics::run(&Session::of(&target)?, verb),
        Command::Group { target, verb } => groups::run(&Session::of(&target)?, verb),
        Command::Queue { target, verb } => queues::run(&Session::of(&target)?, verb),
        Command::Exchange { target, verb } => queues::run_exchanges(&Session::of(&target)?, verb),
        Command::User { target, verb } => users::run(&Session::of(&target)?, verb),
        Command::Config { target, verb } => settings::run(&Session::of(&target)?, verb),
        Command::Filter { target, verb } => filters::run(&Session::of(&target)?, verb),
        Command::Connection { target, verb } => connections::run(&Session::of(&target)?, verb),
        Command::Overview { target } => nodes::overview(&Session::of(&target)?),
        Command::Acl { target, verb } => acls::run(&Session::of(&target)?, verb),
        Command::Quota { target, verb } => quotas::run(&Session::of(&target)?, verb),
        Command::Backup { target, to } => operations::backup(&Session::of(&target)?, &to),
        Command::Reload { target } => operations::reload(&Session::of(&target)?),
        Command::Drain { target, no_wait } => operations::drain(&Session::of(&target)?, no_wait),
        Command::Why { target, about } => why::run(&Session::of(&target)?, &about),
        Command::Top { target, every } => top::run(&Session::of(&target)?, every),
    }
}

/// A broker that is asked, and how its answers are printed.
pub struct Session {
    client: Client,
    json: bool,
}

impl Session {
    fn of(target: &Target) -> anyhow::Result<Self> {
        Ok(Self { client: Client::of(target)?, json: target.json })
    }

    /// Prints JSON, or what `shown` makes of it.
    fn print(&self, value: &Value, shown: impl FnOnce(&Value) -> String) -> anyhow::Result<()> {
        let text = if self.json { format!("{}\n", serde_json::to_string_pretty(value)?) } else { shown(value) };
        output::print(&text).map(drop)
    }

    /// Prints a list.
    fn list(&self, path: &str, query: &[(&str, &str)], columns: &[Column]) -> anyhow::Result<()> {
        let items = self.client.list(path, query)?;
        if self.json {
            return self.print(&Value::Array(items), |_| String::new());
        }
        output::print(&table::list(&items, columns)).map(drop)
    }

    /// Asks for a change and prints what came of it.
    fn change(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        shown: impl FnOnce(&Value) -> String,
    ) -> anyhow::Result<()> {
        let answer = self.client.change(method, path, body)?;
        self.print(&answer, shown)
    }
}

/// `NAME=VALUE` arguments as an object.
///
/// # Errors
/// One that is none.
fn settings_of(texts: &[String]) -> anyhow::Result<Value> {
    let one = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| anyhow::anyhow!("{text:?} is no setting: write NAME=VALUE, like retention.ms=3600000"))?;
        if name.trim().is_empty() {
            anyhow::bail!("{text:?} is no setting: write NAME=VALUE, like retention.ms=3600000");
        }
        Ok((name.trim().to_owned(), Value::from(value.trim())))
    };
    texts.iter().map(one).collect::<anyhow::Result<serde_json::Map<_, _>>>().map(Value::Object)
}
