//! Writes the code; see the library for the notation. An argument names another folder to write to.

use std::path::Path;
use std::process::ExitCode;

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("kafka-wire");
    let target = std::env::args_os().nth(1).map_or_else(|| root.join("src/generated"), Into::into);
    let files = kafka_wire_gen::generate(&root.join("schema"))?;
    std::fs::create_dir_all(&target)?;
    for (name, code) in files {
        std::fs::write(target.join(name), code)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kafka-wire-gen: {error}");
            ExitCode::FAILURE
        }
    }
}
