//! The `mainstem` binary: `serve` runs a broker, `inspect` prints a file of its data folder.

mod config;
mod connection;
mod data_folder;
mod frames;
mod server;
mod shard;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One binary, one log, the wire protocols people already use.
#[derive(Parser)]
#[command(name = "mainstem", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  mainstem serve
  mainstem serve --data /var/lib/mainstem --kafka 127.0.0.1:9092 --memory 2GiB
  mainstem serve --set num.partitions=8 --set log.retention.hours=24
  mainstem inspect mainstem-data/journal-0/segment-000000000001";

#[derive(Subcommand)]
enum Command {
    /// Runs a broker in the foreground until SIGTERM or SIGINT
    Serve(Box<config::ServeArguments>),
    /// Prints a file of the data folder as text
    Inspect {
        /// A segment or a checkpoint
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(arguments) => config::resolve(*arguments).map_err(Into::into).and_then(server::run),
        Command::Inspect { file } => inspect(&file),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mainstem: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn inspect(file: &std::path::Path) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match journal::inspect(file, &mut out).and_then(|()| std::io::Write::flush(&mut out)) {
        // The reader of a pipe may have seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|error| anyhow::anyhow!("{}: {error}", file.display())),
    }
}
