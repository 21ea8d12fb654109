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
fn the_table_of_kafkas_apis_is_what_is_served() {
    let path = docs().join("compatibility.md");
    let document = fs::read_to_string(&path).expect("docs/compatibility.md");
    const MARK: &str = "| --- | --- | --- | --- |\n";
    let (before, written) = document.split_once(MARK).expect("the table of APIs");
    let mut expected = String::new();
    for api in kafka_gateway::apis() {
        let (key, (first, last)) = (api.key(), api.range());
        let versions = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let _ = writeln!(expected, "| {} | {} | {versions} | {} |", key.name, key.key, key.last);
    }
    if std::env::var("UPDATE").is_ok_and(|wish| wish == "1") {
        fs::write(&path, format!("{before}{MARK}{expected}")).expect("it is written");
        return;
    }
    assert!(written == expected, "docs/compatibility.md differs from what is served: UPDATE=1 cargo test -p mainstem --test it reference");
}

/// Files of the site; parts of the acceptance figures are in the page of those.
fn pages(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            pages(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "md") {
            found.insert(entry);
        }
    }
}

/// Targets of the links of a page, without what is behind `#`; those of other places are left out.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let own = targets.filter_map(|target| target.split('#').next()).filter(|target| !target.is_empty() && !target.contains("://"));
    own.map(str::to_owned).collect()
}

#[test]
fn the_site_has_all_pages_and_no_link_leads_nowhere() {
    let docs = docs();
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("docs/SUMMARY.md");
    let named: BTreeSet<PathBuf> = links(&summary).into_iter().map(|name| docs.join(name)).collect();
    let mut there = BTreeSet::new();
    pages(&docs, &mut there);
    assert!(there.len() > 40, "{}", there.len());
    let wrong = |page: &&PathBuf| {
        let is_part = page.parent() == Some(&docs.join("acceptance")) || **page == docs.join("SUMMARY.md");
        !is_part && !named.contains(*page)
    };
    assert_eq!(there.iter().filter(wrong).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "docs/SUMMARY.md does not name these");
    // The site writes a README.md as index.html.
    let lost: Vec<&PathBuf> = there.iter().filter(|page| page.ends_with("index.md")).collect();
    assert!(lost.is_empty(), "these may be written over by the README.md beside them: {lost:?}");
    for page in &there {
        let text = fs::read_to_string(page).expect("a page");
        for link in links(&text) {
            let target = page.parent().expect("a folder").join(&link).canonicalize();
            let is_there = target.is_ok_and(|target| named.contains(&target) || !link.ends_with(".md") && target.starts_with(&docs));
            assert!(is_there, "{} links to {link}, which is no page of the site", page.display());
        }
    }
}
