//! The command line, as clap reads it. Values of `serve` are checked in `config`, where flags, environment and file meet; commands for a
//! running broker are in `client`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::client;
use crate::config::SecurityArguments;

const EXAMPLES: &str = "Examples:
  mainstem serve
  mainstem serve --data /var/lib/mainstem --kafka 0.0.0.0:9092 --advertise broker.example.org
  mainstem serve --durability memory --set num.partitions=12 --set log.retention.hours=24
  mainstem serve --config mainstem.toml --log json
  mainstem topic create orders --partitions 12
  mainstem overview
  mainstem inspect mainstem-data/journal-0/checkpoint";

/// A durable log engine that speaks the protocols of Kafka and RabbitMQ (AMQP 0-9-1).
#[derive(Debug, Parser)]
#[command(name = "mainstem", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a broker until SIGTERM or SIGINT.
    #[command(after_help = EXAMPLES)]
    Serve(Box<ServeArguments>),
    /// Print a file of the data folder as text.
    Inspect {
        /// A segment or checkpoint.
        file: PathBuf,
    },
    #[command(flatten)]
    Ask(client::Command),
}

/// Every flag has a key of the same name in the configuration file and an environment variable (`MAINSTEM_DATA`,
/// …; `MAINSTEM_SET_NUM_PARTITIONS` for `--set num.partitions=…`). Flags win over the environment, the
/// environment over the file.
#[derive(Args, Debug, Default)]
pub struct ServeArguments {
    /// Folder of all data [default: ./mainstem-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Address for Kafka clients; may be repeated [default: 127.0.0.1:9092]
    #[arg(long, value_name = "ADDR")]
    pub kafka: Vec<String>,
    /// Address for AMQP 0-9-1 clients (RabbitMQ's), or none; may be repeated [default: 127.0.0.1:5672]
    #[arg(long, value_name = "ADDR")]
    pub amqp: Vec<String>,
    #[command(flatten)]
    pub security: SecurityArguments,
    /// Address for health and metrics [default: 127.0.0.1:8160]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// Address for RabbitMQ's management API alone, like 127.0.0.1:15672, or none; it is always on --admin under /api [default: none]
    #[arg(long, value_name = "ADDR")]
    pub management: Option<String>,
    /// Definitions as RabbitMQ exports them (JSON), taken over at the start: what is there already stays as it is
    #[arg(long, value_name = "FILE")]
    pub definitions: Option<String>,
    /// What clients are told to connect to, one per --kafka in the same order [default: where they connected]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertise: Vec<String>,
    /// When a record counts as acknowledged: fsync or memory [default: fsync]
    #[arg(long, value_name = "CLASS")]
    pub durability: Option<String>,
    /// Memory budget, like 2GiB [default: a quarter of the machine's or cgroup's]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// A broker setting, under Kafka's name where Kafka has it; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How the journal does its I/O: uring, direct or buffered [default: the best that works]
    #[arg(long, value_name = "MODE")]
    pub io: Option<String>,
    /// Format of the log on stderr: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<String>,
}
