//! Rules of the tree: which crate may name which, how long files are, and that documents name what exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Crate, and the crates of this workspace that it may depend on. A gateway names the broker and its own codec,
/// never the journal.
const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("record", &["types"]),
    ("filter", &["record"]),
    ("delivery", &["types"]),
    ("amqp-wire", &[]),
    ("routing", &[]),
    ("kafka-wire", &[]),
    ("kafka-wire-gen", &[]),
    ("journal", &["types", "record"]),
    ("broker", &["types", "record", "filter", "delivery", "routing", "journal"]),
    ("kafka-gateway", &["types", "record", "filter", "delivery", "kafka-wire", "broker"]),
    ("amqp-gateway", &["types", "record", "delivery", "routing", "amqp-wire", "broker"]),
    ("admin", &["types", "record", "delivery", "routing", "amqp-wire", "broker"]),
    ("mainstem", &["types", "journal", "broker", "kafka-gateway", "amqp-gateway", "admin"]),
    ("sim", &["types", "record", "journal"]),
    ("raw-load", &["record", "kafka-wire"]),
    ("queue-load", &["amqp-wire"]),
];
/// Crates that may name an asynchronous runtime or HTTP.
const EDGES: &[&str] = &["mainstem", "admin"];
const RUNTIMES: &[&str] = &["tokio", "axum", "socket2"];
/// Lines of a source file; generated ones are exempt.
const LINES_MAX: usize = 800;
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs"];
/// What a document may name although it appears only when something runs or is built.
const MADE_LATER: &[&str] = &["target/", "mainstem-bench", "mainstem-data", "journal-0/", "journal-N/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["target", "node_modules"].contains(&name.as_str()) && !name.starts_with('.') {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let table: toml::Table = fs::read_to_string(manifest).expect("a manifest").parse().expect("valid TOML");
    table
        .get("dependencies")
        .and_then(toml::Value::as_table)
        .map(|all| all.keys().cloned().collect())
        .unwrap_or_default()
}

#[test]
fn crates_depend_downwards_only() {
    let crates = root().join("crates");
    for entry in fs::read_dir(&crates).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
            panic!("crate {name} has no row in LAYERS");
        };
        for dependency in dependencies(&folder.join("Cargo.toml")) {
            let ours = crates.join(&dependency).exists();
            assert!(!ours || allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
            let runtime = RUNTIMES.contains(&dependency.as_str());
            assert!(!runtime || EDGES.contains(&name.as_str()), "{name} must not depend on {dependency}");
        }
    }
}

#[test]
fn source_files_are_short_and_say_what_they_own() {
    let mut sources = Vec::new();
    files(&root().join("crates"), "rs", &mut sources);
    files(&root().join("bench"), "rs", &mut sources);
    assert!(sources.len() > 50, "the tree was found");
    for path in sources {
        let text = fs::read_to_string(&path).unwrap();
        let generated = path.components().any(|part| part.as_os_str() == "generated");
        let lines = text.lines().count();
        assert!(generated || lines <= LINES_MAX, "{} has {lines} lines", path.display());
        assert!(generated || text.starts_with("//!"), "{} has no header", path.display());
    }
}

#[test]
fn documents_name_what_exists() {
    let root = root();
    let mut documents = Vec::new();
    for name in DOCUMENTS {
        let path = root.join(name);
        if path.is_dir() { files(&path, "md", &mut documents) } else { documents.push(path) }
    }
    for document in documents {
        let text = fs::read_to_string(&document).unwrap_or_else(|error| panic!("{}: {error}", document.display()));
        let folder = document.parent().unwrap();
        for named in named_paths(&text) {
            let exists = root.join(&named).exists() || folder.join(&named).exists();
            assert!(exists, "{} names {named}, which does not exist", document.display());
        }
    }
}

/// Targets of links and words in backquotes that look like paths of the tree.
fn named_paths(text: &str) -> BTreeSet<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let candidates = quoted.chain(linked).map(|word| word.split('#').next().unwrap_or_default());
    let path = |word: &&str| {
        let rooted = ["crates/", "docs/", "conformance/", "console/", ".ci/", "bench/", "fuzz/", "mainstem-"];
        let document = word.ends_with(".md") && !word.contains("://");
        (document || rooted.iter().any(|start| word.starts_with(start)))
            && !word.contains([' ', '*', '<', '{', '\n'])
            && !MADE_LATER.iter().any(|later| word.starts_with(later))
    };
    candidates.filter(path).map(str::to_owned).collect()
}
