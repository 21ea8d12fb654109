//! The one node: what it uses and what it may use. Fields of RabbitMQ that are about Erlang are left out.

use axum::http::Method;
use broker::JournalStatus;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome};
use super::call::Call;
use super::exchanges::TYPES;
use super::listing::{list, one};
use super::rates::{self, Subject};
use super::route::{Access, Route, route};
use super::{Management, VERSION};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/nodes", Access::Monitoring, all),
    route(Method::GET, "/nodes/{node}", Access::Monitoring, show),
    route(Method::GET, "/nodes/{node}/memory", Access::Monitoring, memory),
];

/// Bytes of memory that the process has in use.
fn resident_bytes() -> u64 {
    const PAGE: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * PAGE)
}

/// Files, of which sockets, that the process has open.
fn open_files() -> (usize, usize) {
    let all: Vec<_> = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().collect();
    let is_socket = |entry: &&std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
    };
    (all.len(), all.iter().filter(is_socket).count())
}

/// Files that the process may have open.
fn files_max() -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok()).unwrap_or(0)
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Is a disk of a journal full?
pub(crate) fn is_disk_full(management: &Management) -> bool {
    management.broker.journals().iter().any(|journal| journal.status() == JournalStatus::DiskFull)
}

/// Names and texts of the exchange types.
pub(crate) fn exchange_types() -> Value {
    TYPES.iter().map(|(name, description)| json!({"name": name, "description": description, "enabled": true})).collect()
}

fn described(call: &Call<'_>) -> Value {
    let management = call.management;
    let facts = &management.facts;
    let (files, sockets) = open_files();
    let mut found = Map::new();
    let mut put = |name: &str, value: Value| drop(found.insert(name.to_owned(), value));
    put("name", management.node.clone().into());
    put("type", "disc".into());
    put("running", true.into());
    put("being_drained", false.into());
    put("rabbitmq_version", VERSION.into());
    put("os_pid", std::process::id().to_string().into());
    put("uptime", (management.started.elapsed().as_millis() as u64).into());
    put("processors", std::thread::available_parallelism().map_or(1, usize::from).into());
    put("run_queue", 0.into());
    put("mem_limit", facts.memory.bytes().into());
    put("mem_alarm", false.into());
    put("mem_calculation_strategy", "rss".into());
    put("disk_free_alarm", is_disk_full(management).into());
    put("disk_free_limit", 0.into());
    put("fd_total", files_max().into());
    put("sockets_total", files_max().into());
    put("proc_total", threads().into());
    put("rates_mode", "basic".into());
    put("db_dir", facts.data.display().to_string().into());
    for name in ["partitions", "config_files", "log_files", "cluster_links", "contexts", "applications"] {
        put(name, json!([]));
    }
    put("enabled_plugins", json!(["rabbitmq_management", "rabbitmq_consistent_hash_exchange"]));
    put("exchange_types", exchange_types());
    let mechanism = |(name, text): (&str, &str)| json!({"name": name, "description": text, "enabled": true});
    let mechanisms = [
        ("PLAIN", "SASL PLAIN authentication mechanism"),
        ("AMQPLAIN", "QPid AMQPLAIN mechanism"),
        ("ANONYMOUS", "SASL ANONYMOUS authentication mechanism"),
    ];
    put("auth_mechanisms", mechanisms.map(mechanism).into_iter().collect());
    let counts = rates::of_node(&management.gateway.totals(), management.broker.connections().churn());
    let growth = management.rates.of(Subject::Node);
    let gauges = [
        ("mem_used", resident_bytes()),
        ("disk_free", (facts.free_bytes)(&facts.data)),
        ("fd_used", files as u64),
        ("sockets_used", sockets as u64),
        ("proc_used", threads() as u64),
    ];
    for (name, value) in gauges {
        rates::put(&mut found, name, value, 0.0);
    }
    for (name, at) in
        [("connection_created", 7), ("connection_closed", 8), ("channel_created", 9), ("channel_closed", 10)]
    {
        rates::put(&mut found, name, counts[at], growth[at]);
    }
    Value::Object(found)
}

fn all(call: &Call<'_>) -> Outcome {
    list(call, vec![described(call)])
}

fn show(call: &Call<'_>) -> Outcome {
    if call.path("node") != call.management.node {
        return Err(Answer::not_found());
    }
    one(call, described(call))
}

fn memory(call: &Call<'_>) -> Outcome {
    if call.path("node") != call.management.node {
        return Err(Answer::not_found());
    }
    let used = resident_bytes();
    Ok(Answer::of(json!({"memory": {"strategy": "rss", "total": {"rss": used, "allocated": used, "erlang": 0}}})))
}
