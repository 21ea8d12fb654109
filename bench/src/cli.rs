//! The command line, as clap reads it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "Examples:
  mainstem-bench list
  mainstem-bench compare peak-throughput --targets mainstem,kafka
  mainstem-bench compare latency catch-up --scale full --out results
  mainstem-bench suite --plan
  mainstem-bench run 1-topic-16-partitions-1kb.yaml --target mainstem --seconds 20
  mainstem-bench report results";

/// Compares message brokers on one machine: the same clients, the same payloads, honest where each loses.
#[derive(Debug, Parser)]
#[command(name = "mainstem-bench", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Experiments and targets, each in a line.
    List,
    /// Run some experiments against targets in turn, at least six pairs.
    #[command(after_help = EXAMPLES)]
    Compare {
        /// Names of experiments; `list` shows them.
        #[arg(required = true)]
        experiments: Vec<String>,
        /// quick (two cores, minutes), full (a figure to quote), or of a few graded (every point, briefly).
        #[arg(long, default_value = "quick")]
        scale: String,
        /// Pairs of runs [default: 6, or the experiment's own where that is more]
        #[arg(long)]
        pairs: Option<u32>,
        #[command(flatten)]
        common: Common,
    },
    /// Run every experiment that the targets allow, each with its own number of pairs.
    Suite {
        /// quick (within a budget of time) or full (may be interrupted and resumed).
        #[arg(long, default_value = "quick")]
        scale: String,
        /// Make as many pairs, and measure as long, as the plan allows within so many minutes; the report says what was cut [default: 90 for
        /// quick, none for full]
        #[arg(long, value_name = "MINUTES")]
        budget: Option<f64>,
        #[command(flatten)]
        common: Common,
    },
    /// Run workload files, OpenMessaging Benchmark's or ours, against one target.
    Run {
        /// YAML files.
        #[arg(required = true)]
        workloads: Vec<PathBuf>,
        /// A target by name, or the path of its TOML file.
        #[arg(long, default_value = "mainstem")]
        target: String,
        /// Instead of the workload's own duration.
        #[arg(long)]
        seconds: Option<f64>,
        #[command(flatten)]
        common: Common,
    },
    /// Write report.html, report.md and charts from a folder of results.
    Report {
        /// The folder that `--out` named.
        folder: PathBuf,
    },
    /// Read workload files and say what is wrong with them.
    Check {
        /// YAML files.
        #[arg(required = true)]
        workloads: Vec<PathBuf>,
    },
    /// Make load for a coordinator on another machine (`--workers HOST:PORT`).
    ///
    /// Whoever reaches this port decides what the worker connects to: keep it on a network that you trust.
    Worker {
        /// Where to listen.
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8190")]
        listen: String,
    },
    /// Serve a broker that acknowledges what is published and keeps nothing, until standard input ends: what a client shows alone.
    Null {
        /// kafka, amqp, pulsar or nats.
        protocol: String,
        /// Of every topic, for protocols whose topics have partitions.
        #[arg(long, default_value_t = 1)]
        partitions: u32,
    },
    /// Compare instructions per record, processor time and the ratio to Kafka with a baseline; fails when one is worse.
    Gate {
        /// The baseline.
        #[arg(long, value_name = "FILE", default_value = "bench/baseline.json")]
        baseline: PathBuf,
        /// Write what was measured as the new baseline.
        #[arg(long)]
        update: bool,
        /// Leave Kafka out.
        #[arg(long)]
        without_peer: bool,
        /// An older build of the broker: measured in turns with this one, it stands for the baseline's processor time and ratio.
        #[arg(long, value_name = "FILE", conflicts_with = "update")]
        older: Option<PathBuf>,
        /// Compare a broker that has neither access control entries nor quotas with one that has both, and nothing else; +5 % is allowed
        #[arg(long, conflicts_with_all = ["update", "older"])]
        guarded: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Measure the machine's yardsticks.
    Yardsticks,
}

/// What comparing and running share.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Targets by name, or paths of TOML files, which may hold several of any names, separated by commas [default: all shipped ones]
    #[arg(long, value_delimiter = ',')]
    pub targets: Vec<String>,
    /// Folder of results; what is there already is not run again [default: target/bench/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Start no target that would run beyond so many minutes, but for the first; the same command goes on from there.
    #[arg(long)]
    pub minutes: Option<f64>,
    /// Draw the orders of targets and variations from this number [default: one made of the folder's path]
    #[arg(long)]
    pub seed: Option<u32>,
    /// Leave out the second target of our own binary. Without it there is no floor of noise, and no difference is told.
    #[arg(long)]
    pub without_floor: bool,
    /// Print what would be run and how long it takes, and end.
    #[arg(long)]
    pub plan: bool,
    /// Folder of the scripts that install and start the peers.
    #[arg(long, value_name = "DIR", env = "MAINSTEM_BENCH_PEERS", default_value = "../shared/peers")]
    pub peers: PathBuf,
    /// Our broker [default: `mainstem` beside this binary]
    #[arg(long, value_name = "FILE", env = "MAINSTEM_BENCH_BROKER")]
    pub mainstem: Option<PathBuf>,
    /// Folder for the brokers' data, on the disk that is to be measured [default: target/bench-scratch]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Workers on other machines (`mainstem-bench worker`), separated by commas; without, this process makes the load.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    pub workers: Vec<String>,
}
