//! The `mainstem` binary: `serve` runs a broker, `inspect` prints a file of its data folder, and the other commands tell a running broker
//! what to do or look after a data folder while none runs.

#![deny(clippy::print_stdout, reason = "a reader who has gone is no panic: see output.rs")]

mod admission;
mod archive_folder;
mod archive_lock;
mod backlogs;
mod backup;
mod certificate;
mod cli;
mod client;
mod closings;
mod config;
mod connection;
mod damage;
mod data_folder;
mod descriptors;
mod doctor;
mod ending;
mod frames;
mod idle;
mod input;
mod latencies;
mod limit_metrics;
mod log_file;
mod log_queue;
mod management;
mod measurements;
mod memory;
mod otlp;
mod output;
mod pace;
mod pem;
mod placement;
mod progress;
mod proof;
mod protocol;
mod read_room;
mod reload;
mod resting;
mod server;
mod service;
mod shard;
mod sockets;
mod stream;
mod tls;
mod token_keys;
mod turns;
mod unfinished;
mod upgrade;
mod utc;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command, JournalCommand};

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let writes = matches!(
        command,
        Command::Serve(_) | Command::Restore { .. } | Command::Doctor { .. } | Command::Upgrade { .. }
    );
    if writes || matches!(command, Command::Journal(JournalCommand::Salvage { .. })) {
        data_folder::keep_private();
    }
    let outcome = match command {
        Command::Serve(arguments) => server::run(*arguments),
        Command::Inspect { file } => inspect(&file),
        Command::Ask(command) => client::run(command),
        Command::Restore { from, data, archive } => backup::restore::run(&from, &data, archive),
        Command::Doctor { data, json } => doctor::run(&data, json),
        Command::Upgrade { data, finalize } => upgrade::run(&data, finalize),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "mainstem", &mut script);
            output::print_bytes(&script).map(drop)
        }
        Command::Man { folder } => man(&folder),
        Command::Journal(JournalCommand::Verify { data, archive, json }) => damage::verify(&data, archive, json),
        Command::Journal(JournalCommand::Salvage { data, out, archive }) => damage::salvage(&data, &out, archive),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::say(&output::told(&error));
            ExitCode::FAILURE
        }
    }
}

fn inspect(file: &std::path::Path) -> anyhow::Result<()> {
    if file.file_name().is_some_and(|name| name == "meta.toml" || name == "lock") {
        // Text as it is.
        let text = std::fs::read_to_string(file).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        return output::print(&text).map(drop);
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match journal::inspect(file, &mut out).and_then(|()| std::io::Write::flush(&mut out)) {
        // The reader of a pipe may have seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|error| anyhow::anyhow!("{}: {error}", file.display())),
    }
}

/// A page for each command, `mainstem.1`, `mainstem-serve.1` and so on.
fn man(folder: &std::path::Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| anyhow::anyhow!("{}: {error}", folder.display()))?;
    Ok(clap_mangen::generate_to(Cli::command(), folder)?)
}
