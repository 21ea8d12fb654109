//! The command line, as clap reads it. Values of `serve` are checked in `config`, where flags, environment and file meet; commands for a
//! running broker are in `client`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::client;
use crate::config::SecurityArguments;

const EXAMPLES: &str = "Examples:
  mainstem serve
  mainstem serve --data /var/lib/mainstem --kafka 0.0.0.0:9092 --advertise broker.example.org --set mainstem.anonymous.clients=anywhere
  mainstem serve --durability memory --set num.partitions=12 --set log.retention.hours=24
  mainstem serve --config mainstem.toml --log json
  mainstem topic create orders --partitions 12
  mainstem overview
  mainstem inspect mainstem-data/journal-0/segment-000000000001";
const EXAMPLES_OF_SERVE: &str = "Examples:
  mainstem serve
  mainstem serve --data /var/lib/mainstem --kafka 0.0.0.0:9092 --advertise broker.example.org --set mainstem.anonymous.clients=anywhere
  mainstem serve --durability memory --set num.partitions=12 --set log.retention.hours=24
  mainstem serve --config mainstem.toml --log json";
const EXAMPLES_OF_INSPECT: &str = "Examples:
  mainstem inspect mainstem-data/journal-0/segment-000000000001 | head
  mainstem inspect mainstem-data/meta.toml";
const EXAMPLES_OF_RESTORE: &str = "Examples:
  mainstem restore --from /backups/monday --data /var/lib/mainstem";
const EXAMPLES_OF_DOCTOR: &str = "Examples:
  mainstem doctor --data /var/lib/mainstem
  mainstem doctor --data /var/lib/mainstem --json";
const EXAMPLES_OF_UPGRADE: &str = "Examples:
  mainstem upgrade --data /var/lib/mainstem
  mainstem upgrade --data /var/lib/mainstem --finalize";
const EXAMPLES_OF_COMPLETIONS: &str = "Examples:
  mainstem completions bash > mainstem.bash
  mainstem completions zsh > _mainstem";
const EXAMPLES_OF_MAN: &str = "Examples:
  mainstem man man1";
const EXAMPLES_OF_JOURNAL: &str = "Examples:
  mainstem journal verify --data /var/lib/mainstem
  mainstem journal verify --data /backups/monday --json
  mainstem journal salvage --data /var/lib/mainstem --out /var/lib/mainstem-salvaged";

/// A durable log engine that speaks the protocols of Kafka and RabbitMQ (AMQP 0-9-1).
#[derive(Debug, Parser)]
#[command(name = "mainstem", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a broker until SIGTERM or SIGINT.
    #[command(after_help = EXAMPLES_OF_SERVE)]
    Serve(Box<ServeArguments>),
    /// Print a file of the data folder as text.
    #[command(after_help = EXAMPLES_OF_INSPECT)]
    Inspect {
        /// A segment or checkpoint.
        file: PathBuf,
    },
    #[command(flatten)]
    Ask(client::Command),
    /// Make a data folder from a backup, after checking all of it.
    #[command(after_help = EXAMPLES_OF_RESTORE)]
    Restore {
        /// The backup
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
        /// A new or empty folder
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Folder for archive objects, if the broker will have mainstem.archive.folder set [default: archive in the data folder]
        #[arg(long, value_name = "DIR")]
        archive: Option<PathBuf>,
    },
    /// Look at disk, limits, clock and permissions of this machine, and say what to do.
    #[command(after_help = EXAMPLES_OF_DOCTOR)]
    Doctor {
        /// The data folder of the broker, if it is to be there or is there already
        #[arg(long, value_name = "DIR", default_value = "./mainstem-data")]
        data: PathBuf,
        /// One JSON array
        #[arg(long)]
        json: bool,
    },
    /// Say of which format a data folder is, and with --finalize have it written in this release's.
    #[command(after_help = EXAMPLES_OF_UPGRADE)]
    Upgrade {
        /// The data folder; no broker may have it open
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// From now on; older releases refuse the folder then
        #[arg(long)]
        finalize: bool,
    },
    /// Print a script for a shell that completes commands and flags.
    #[command(after_help = EXAMPLES_OF_COMPLETIONS)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write man pages, one a command, to a folder.
    #[command(after_help = EXAMPLES_OF_MAN)]
    Man {
        /// Where to
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Look after a data folder that no broker has open.
    #[command(subcommand, after_help = EXAMPLES_OF_JOURNAL)]
    Journal(JournalCommand),
}

/// What can be done with a data folder that no broker has open.
#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// Read everything in a data folder or a backup, and say what is damaged and lost; status 1 if anything is.
    Verify {
        /// The data folder, or the folder of a backup
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Folder of archive objects, if mainstem.archive.folder is set [default: archive in the data folder]
        #[arg(long, value_name = "DIR")]
        archive: Option<PathBuf>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Write what is whole to a new data folder, and list what is lost.
    Salvage {
        /// The damaged data folder; it stays as it is
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// A new or empty folder
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Folder of archive objects, if mainstem.archive.folder is set [default: archive in the data folder]
        #[arg(long, value_name = "DIR")]
        archive: Option<PathBuf>,
    },
}

/// Every flag has a key of the same name in the configuration file and an environment variable (`MAINSTEM_DATA`,
/// …; `MAINSTEM_SET_NUM_PARTITIONS` for `--set num.partitions=…`). Flags win over the environment, the
/// environment over the file.
#[derive(Args, Clone, Debug, Default)]
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
    /// Start without what is damaged under this name (`mainstem journal verify` lists names); may be repeated. Only as a flag
    #[arg(long, value_name = "ID")]
    pub accept_loss: Vec<String>,
    /// Format of the log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<String>,
    /// File for the log [default: stderr]
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<String>,
    /// A log file that has grown to this size is renamed to FILE.1, and so on [default: 100MiB]
    #[arg(long, value_name = "SIZE")]
    pub log_file_size: Option<String>,
    /// Log files that are kept beside the one that is written [default: 9]
    #[arg(long, value_name = "COUNT")]
    pub log_file_count: Option<String>,
}
