//! From a folder of schemas to formatted files, in memory: the binary writes them, a test compares them.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::emit::{api, registry};
use crate::parse::{Api, ParseError, parse};

/// Why there is no code.
#[derive(Debug)]
pub enum GenerateError {
    /// A schema, the folder or `rustfmt` cannot be read or run.
    Io(PathBuf, io::Error),
    /// A schema does not keep to the notation.
    Schema(PathBuf, ParseError),
    /// `rustfmt` does not take the code of this file.
    Format(String),
}

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Schema(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Format(file) => write!(f, "{file}: rustfmt failed"),
        }
    }
}

impl std::error::Error for GenerateError {}

/// The APIs of a folder of `*.kafka` files with the names of their files, without endings, by name.
///
/// # Errors
/// A file that cannot be read or does not keep to the notation.
pub fn read_schema(folder: &Path) -> Result<Vec<(String, Api)>, GenerateError> {
    let failed = |error| GenerateError::Io(folder.to_owned(), error);
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort();
    let mut apis = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| GenerateError::Io(path.clone(), error))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        apis.push((name, parse(&text).map_err(|error| GenerateError::Schema(path, error))?));
    }
    Ok(apis)
}

/// The names and contents of all files that belong into the folder of generated code.
///
/// # Errors
/// See [`read_schema`]; and when `rustfmt` is missing or refuses the code.
pub fn generate(schema: &Path) -> Result<Vec<(String, String)>, GenerateError> {
    let mut apis = read_schema(schema)?;
    let mut files = Vec::new();
    for (name, one) in &apis {
        files.push((format!("{name}.rs"), api(one)));
    }
    apis.sort_by_key(|(_, one)| one.key);
    let sorted: Vec<Api> = apis.into_iter().map(|(_, one)| one).collect();
    files.push(("mod.rs".to_owned(), registry(&sorted)));
    files.into_iter().map(|(name, code)| Ok((name.clone(), format(name, &code)?))).collect()
}

/// What `rustfmt` makes of `code`.
fn format(name: String, code: &str) -> Result<String, GenerateError> {
    let failed = |error| GenerateError::Io(PathBuf::from("rustfmt"), error);
    let mut child = Command::new("rustfmt")
        .args(["--edition=2024", "--config=max_width=120,use_small_heuristics=Max"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // It reads everything before it writes anything, so the pipes cannot fill up against each other.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(code.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    written.map_err(failed)?;
    match String::from_utf8(output.stdout) {
        Ok(formatted) if output.status.success() => Ok(formatted),
        _ => Err(GenerateError::Format(name)),
    }
}
