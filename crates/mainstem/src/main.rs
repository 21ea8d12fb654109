//! The `mainstem` binary: `serve` runs a broker, `inspect` prints a file of its data folder, the other commands ask a running broker.

mod admission;
mod archive_folder;
mod certificate;
mod cli;
mod client;
mod config;
mod connection;
mod data_folder;
mod frames;
mod management;
mod latencies;
mod measurements;
mod memory;
mod placement;
mod protocol;
mod server;
mod shard;
mod stream;
mod tls;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(arguments) => config::Config::load(*arguments).map_err(Into::into).and_then(server::run),
        Command::Inspect { file } => inspect(&file),
        Command::Ask(command) => client::run(command),
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
    if file.file_name().is_some_and(|name| name == "meta.toml" || name == "lock") {
        // Text as it is.
        let text = std::fs::read_to_string(file).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        return Ok(std::io::Write::write_all(&mut out, text.as_bytes())?);
    }
    match journal::inspect(file, &mut out).and_then(|()| std::io::Write::flush(&mut out)) {
        // The reader of a pipe may have seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|error| anyhow::anyhow!("{}: {error}", file.display())),
    }
}
