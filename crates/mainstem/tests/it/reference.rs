//! The reference of settings is made of their tables, and the site's table of contents names what there is.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use broker::{BROKER, Class, DYNAMIC, GROUP, Kind, Setting, TOPIC};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").canonicalize().expect("the documents")
}

fn values(kind: Kind) -> String {
    match kind {
        Kind::Bool => "`true`, `false`".to_owned(),
        Kind::Int(least, i64::MAX) => format!("a whole number from {least}"),
        Kind::Int(least, most) => format!("a whole number from {least} to {most}"),
        Kind::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::ListOf(words) => format!("a list of {}", words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")),
        Kind::Ratio => "a number from 0 to 1".to_owned(),
        Kind::Replicas => "a list of partition:node, or `*`".to_owned(),
        Kind::Text => "text".to_owned(),
    }
}

fn table(rows: &[Setting], of_broker: bool) -> String {
    let mut out = String::from("| setting | values | default | effect |\n| --- | --- | --- | --- |\n");
    for row in rows {
        let default = if row.default.is_empty() { "empty".to_owned() } else { format!("`{}`", row.default) };
        let class = match row.class {
            Class::Enforced if of_broker && DYNAMIC.contains(&row.name) => " **Dynamic.**",
            Class::Enforced => "",
            Class::Inert => " *Without effect.*",
            Class::DefaultOnly => " *Only the default is taken.*",
        };
        let _ = writeln!(out, "| `{}` | {} | {default} | {}{class} |", row.name, values(row.kind).replace('|', "\\|"), row.doc.replace('|', "\\|"));
    }
    out
}

#[test]
fn the_reference_of_settings_is_that_of_the_tables() {
    let path = docs().join("configuration.md");
    let document = fs::read_to_string(&path).expect("docs/configuration.md");
    const MARK: &str = "## Settings of the broker\n";
    let (before, written) = document.split_once(MARK).expect("the heading of the reference");
    let tables = [table(BROKER, true), table(TOPIC, false), table(GROUP, false)];
    let expected = format!("\n{}\n## Settings of a topic\n\n{}\n## Settings of a group\n\n{}", tables[0], tables[1], tables[2]);
    if std::env::var("UPDATE").is_ok_and(|wish| wish == "1") {
        fs::write(&path, format!("{before}{MARK}{expected}")).expect("it is written");
        return;
    }
    assert!(written == expected, "docs/configuration.md differs from the tables: UPDATE=1 cargo test -p mainstem --test it reference");
}

#[test]
fn the_table_of_contents_names_what_there_is() {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).expect("docs/SUMMARY.md");
    let named: BTreeSet<String> = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect();
    assert!(named.len() > 10, "{named:?}");
    let gone: Vec<_> = named.iter().filter(|name| !docs().join(name).exists()).collect();
    assert!(gone.is_empty(), "docs/SUMMARY.md names {gone:?}, which do not exist");
}
