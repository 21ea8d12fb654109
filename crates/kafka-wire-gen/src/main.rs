//! Writes the code; see the library for the notation.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{fs, io};

use kafka_wire_gen::{api, parse, registry};

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("kafka-wire");
    let target = std::env::args_os().nth(1).map_or_else(|| root.join("src/generated"), Into::into);
    let mut names: Vec<_> = fs::read_dir(root.join("schema"))?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    names.sort();
    fs::create_dir_all(&target)?;
    let mut apis = Vec::new();
    let mut written = Vec::new();
    for path in names {
        let parsed = parse(&fs::read_to_string(&path)?).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = target.join(path.with_extension("rs").file_name().ok_or("schema without a name")?);
        fs::write(&file, api(&parsed))?;
        written.push(file);
        apis.push(parsed);
    }
    apis.sort_by_key(|one| one.key);
    let list = target.join("mod.rs");
    fs::write(&list, registry(&apis))?;
    let status = Command::new("rustfmt").arg("--edition=2024").arg("--config=max_width=120,use_small_heuristics=Max,skip_children=true").args(&written).arg(list).status()?;
    if status.success() { Ok(()) } else { Err("rustfmt failed".into()) }
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
