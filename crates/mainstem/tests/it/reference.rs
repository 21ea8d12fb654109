//! The reference of settings is made of their tables, and the site's table of contents names what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use amqp_wire::{MethodInfo, Sender};
use broker::{BROKER, Class, DYNAMIC, GROUP, Kind, Setting, TOPIC};
use serde_json::{Value, json};

use crate::administration::change;
use crate::process::Process;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").canonicalize().expect("the documents")
}

fn values(kind: Kind) -> String {
    match kind {
        Kind::Bool => "`true`, `false`".to_owned(),
        Kind::Int(least, i64::MAX) => format!("a whole number from {least}"),
        Kind::Int(least, most) => format!("a whole number from {least} to {most}"),
        Kind::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::ListOf(words) => {
            format!("a list of {}", words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "))
        }
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
        let _ = writeln!(
            out,
            "| `{}` | {} | {default} | {}{class} |",
            row.name,
            values(row.kind).replace('|', "\\|"),
            row.doc.replace('|', "\\|")
        );
    }
    out
}

#[test]
fn the_reference_of_settings_is_that_of_the_tables() {
    hold_section("configuration.md", "## Settings of the broker\n", &format!("\n{}\n", table(BROKER, true)));
    hold_section("configuration.md", "## Settings of a topic\n", &format!("\n{}\n", table(TOPIC, false)));
    hold_section("configuration.md", "## Settings of a group\n", &format!("\n{}", table(GROUP, false)));
}

/// Holds a part of a document, from a line to the next heading of the same level or the end, against what it is to be; with `UPDATE=1` it
/// is written.
fn hold_section(name: &str, heading: &str, expected: &str) {
    // Several tests write the same file.
    static WRITING: Mutex<()> = Mutex::new(());
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = docs().join(name);
    let document = fs::read_to_string(&path).expect("a document");
    let (before, rest) = document.split_once(heading).unwrap_or_else(|| panic!("{name} has no {heading:?}"));
    let next = rest.find("\n## ").map_or(rest.len(), |place| place + 1);
    let (written, after) = rest.split_at(next);
    if std::env::var("UPDATE").is_ok_and(|wish| wish == "1") {
        fs::write(&path, format!("{before}{heading}{expected}{after}")).expect("it is written");
        return;
    }
    assert!(
        written == expected,
        "docs/{name}, {heading:?}, differs from what is served: UPDATE=1 cargo test -p mainstem --test it reference"
    );
}

#[test]
fn the_reference_of_flags_is_that_of_the_help() {
    let done = Command::new(env!("CARGO_BIN_EXE_mainstem")).args(["serve", "--help"]).output().expect("it runs");
    let help = String::from_utf8(done.stdout).expect("UTF-8");
    let mut expected = String::from(
        "\nEach but `--config`, `--set` and `--accept-loss` is a key of the file, too (`log-file` is `log_file`), and a variable of the environment (`MAINSTEM_LOG_FILE`).\n\n| flag | |\n| --- | --- |\n",
    );
    let mut count = 0;
    for line in help.lines().filter_map(|line| line.strip_prefix("      --")) {
        let (flag, text) = line.split_once("  ").expect("a flag and what it is");
        let _ = writeln!(expected, "| `--{flag}` | {} |", text.trim().replace('|', "\\|"));
        count += 1;
    }
    assert!(count > 20, "{help}");
    expected.push('\n');
    hold_section("configuration.md", "## Flags\n", &expected);
}

#[test]
fn the_table_of_kafkas_apis_is_what_is_served() {
    let mut expected = String::from(
        "\nVersions that are served, and the last one of Kafka 4.3's schemas. An API that is not here answers UNSUPPORTED_VERSION.\n\n",
    );
    expected.push_str("| API | number | versions | last of Kafka 4.3 |\n| --- | --- | --- | --- |\n");
    for api in kafka_gateway::apis() {
        let (key, (first, last)) = (api.key(), api.range());
        let versions = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let _ = writeln!(expected, "| {} | {} | {versions} | {} |", key.name, key.key, key.last);
    }
    hold_section("compatibility.md", "## Kafka's APIs\n", &expected);
}

#[test]
fn the_table_of_amqps_methods_is_what_is_served() {
    let mut expected = String::from(
        "\nEach that a client may send is served (`channel.flow` with `active=true` and `basic.recover` with `requeue=true` only, as in RabbitMQ); another one is refused with 503 COMMAND_INVALID.\n\n",
    );
    expected.push_str("| class | number | a client sends | the broker sends |\n| --- | --- | --- | --- |\n");
    let mut classes: Vec<(u16, &str)> =
        MethodInfo::ALL.iter().map(|info| (info.id.class, info.name.split('.').next().unwrap_or_default())).collect();
    classes.dedup();
    for (number, class) in classes {
        let of = |other: Sender| {
            let sent = MethodInfo::ALL.iter().filter(|info| info.id.class == number && info.sender != other);
            let named = sent.map(|info| {
                format!("{} ({})", info.name.trim_start_matches(class).trim_start_matches('.'), info.id.method)
            });
            named.collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(expected, "| {class} | {number} | {} | {} |", of(Sender::Broker), of(Sender::Client));
    }
    expected.push('\n');
    hold_section("compatibility.md", "## AMQP's methods\n", &expected);
}

/// An argument of queues as RabbitMQ has it, and a value that it may have there.
fn queue_arguments() -> Vec<(&'static str, Value)> {
    vec![
        ("x-message-ttl", json!(60_000)),
        ("x-expires", json!(60_000)),
        ("x-max-length", json!(10)),
        ("x-max-length-bytes", json!(1000)),
        ("x-overflow", json!("reject-publish")),
        ("x-dead-letter-exchange", json!("letters")),
        ("x-dead-letter-routing-key", json!("letters")),
        ("x-dead-letter-strategy", json!("at-least-once")),
        ("x-delivery-limit", json!(5)),
        ("x-single-active-consumer", json!(true)),
        ("x-max-priority", json!(10)),
        ("x-consumer-timeout", json!(60_000)),
        ("x-consumer-disconnected-timeout", json!(60_000)),
        ("x-delayed-retry-type", json!("all")),
        ("x-delayed-retry-min", json!(1000)),
        ("x-delayed-retry-max", json!(2000)),
        ("x-max-age", json!("1D")),
        ("x-stream-max-segment-size-bytes", json!(1_000_000)),
        ("x-stream-filter-size-bytes", json!(16)),
        ("x-quorum-initial-group-size", json!(1)),
        ("x-quorum-target-group-size", json!(1)),
        ("x-initial-cluster-size", json!(1)),
        ("x-queue-leader-locator", json!("client-local")),
        ("x-queue-mode", json!("default")),
        ("x-queue-version", json!(2)),
        ("x-share-group", json!("workers")),
    ]
}

#[test]
fn the_tables_of_amqps_arguments_and_exchanges_are_what_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let mut expected = String::from(
        "\nA queue that is declared with an argument that its type does not take is refused with PRECONDITION_FAILED. `x-share-group` is ours (`docs/adr/0013-queues.md`).\n\n",
    );
    expected.push_str("| argument | classic | quorum | stream |\n| --- | --- | --- | --- |\n");
    for (argument, value) in queue_arguments() {
        let takes = ["classic", "quorum", "stream"].map(|kind| {
            let mut arguments = json!({argument: value});
            if argument == "x-dead-letter-routing-key" || argument == "x-dead-letter-strategy" {
                arguments["x-dead-letter-exchange"] = json!("letters");
            }
            let made = change(
                &process,
                "PUT",
                &format!("/v1/queues/%2F/{kind}-{argument}"),
                json!({"type": kind, "arguments": arguments}),
            );
            if made.status == 201 { "yes" } else { "refused" }
        });
        let _ = writeln!(expected, "| `{argument}` | {} |", takes.join(" | "));
    }
    let kinds = [
        "direct",
        "fanout",
        "topic",
        "headers",
        "x-consistent-hash",
        "x-modulus-hash",
        "x-random",
        "x-local-random",
        "x-delayed-message",
        "x-recent-history",
    ];
    let taken: Vec<String> = kinds
        .into_iter()
        .filter(|kind| {
            let arguments = if *kind == "x-delayed-message" { json!({"x-delayed-type": "direct"}) } else { json!({}) };
            change(&process, "PUT", &format!("/v1/exchanges/%2F/{kind}"), json!({"type": kind, "arguments": arguments}))
                .status
                == 201
        })
        .map(|kind| format!("`{kind}`"))
        .collect();
    let _ = writeln!(expected, "\nTypes of exchanges: {}.\n", taken.join(", "));
    hold_section("compatibility.md", "## Arguments of AMQP's queues\n", &expected);
}

/// Why answers to recorded cases differ from those of a peer, and of how many.
fn differences(of: &str) -> (usize, String) {
    let path = docs().join("..").join(of);
    let found: serde_json::Map<String, Value> =
        serde_json::from_str(&fs::read_to_string(&path).expect(of)).expect("JSON");
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for difference in found.values() {
        *reasons.entry(difference["reason"].as_str().expect("a reason")).or_default() += 1;
    }
    let mut rows: Vec<(&str, usize)> = reasons.into_iter().collect();
    rows.sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
    let rows: String =
        rows.iter().map(|(reason, count)| format!("| {count} | {} |\n", reason.replace('|', "\\|"))).collect();
    (found.len(), format!("| cases | why |\n| --- | --- |\n{rows}"))
}

#[test]
fn differences_from_rabbitmq_are_those_of_the_comparison() {
    let recorded =
        fs::read_to_string(docs().join("../conformance/amqp/peers/rabbitmq-4.3.6.json")).expect("the record");
    let cases = serde_json::from_str::<serde_json::Map<String, Value>>(&recorded).expect("JSON").len();
    let (differ, table) = differences("conformance/amqp/peers/differences.json");
    let expected = format!(
        "\n`conformance/amqp/peers` asks what a real RabbitMQ 4.3.6 was asked, most of it wrong on purpose: {cases} sequences of frames. {differ} are answered otherwise, on purpose:\n\n{table}\n"
    );
    hold_section("compatibility.md", "## Where AMQP answers differ from RabbitMQ's\n", &expected);
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
    let own = targets
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty() && !target.contains("://"));
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
    assert_eq!(
        there.iter().filter(wrong).collect::<Vec<_>>(),
        Vec::<&PathBuf>::new(),
        "docs/SUMMARY.md does not name these"
    );
    // The site writes a README.md as index.html.
    let lost: Vec<&PathBuf> = there.iter().filter(|page| page.ends_with("index.md")).collect();
    assert!(lost.is_empty(), "these may be written over by the README.md beside them: {lost:?}");
    for page in &there {
        let text = fs::read_to_string(page).expect("a page");
        for link in links(&text) {
            let target = page.parent().expect("a folder").join(&link).canonicalize();
            let is_there = target
                .is_ok_and(|target| named.contains(&target) || !link.ends_with(".md") && target.starts_with(&docs));
            assert!(is_there, "{} links to {link}, which is no page of the site", page.display());
        }
    }
}
