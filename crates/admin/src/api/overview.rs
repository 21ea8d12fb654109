//! The node at a glance.

use broker::JournalStatus;
use serde_json::{Value, json};

use super::answer::{Answer, Outcome};
use super::call::Call;
use super::journals::{self, JOURNAL};
use super::route::{Access, Route, get};
use super::schema::{Kind, Schema};
use super::topics::is_internal;
use super::vitals::{Memory, NodeTotals};
use crate::management::Management;
use crate::management::rates::Subject;

/// Of all where who asks has tag `monitoring`, otherwise of what he may see: of users and connections his own.
const COUNTS: Schema = Schema::new(
    "Counts",
    &[
        ("topics", Kind::Int, "Topics, without those that are queues or whose names begin with __."),
        ("partitions", Kind::Int, "Their partitions."),
        ("groups", Kind::Int, "Groups of all kinds."),
        ("vhosts", Kind::Int, "Virtual hosts."),
        ("queues", Kind::Int, "Queues."),
        ("exchanges", Kind::Int, "Exchanges, the predefined ones too."),
        ("users", Kind::Int, "Users that are defined."),
        ("connections", Kind::Int, "Open connections of all protocols."),
        ("channels", Kind::Int, "Open channels of AMQP."),
        ("consumers", Kind::Int, "Consumers of queues."),
    ],
);

const FLOWS: &[(&str, Kind, &str)] = &[
    ("in_bytes", Kind::Number, "Bytes that clients of all protocols sent."),
    ("out_bytes", Kind::Number, "Bytes that were sent to them."),
    ("kafka_in_records", Kind::Number, "Records accepted from Kafka clients."),
    ("kafka_in_bytes", Kind::Number, "Bytes of their batches."),
    ("kafka_out_bytes", Kind::Number, "Bytes of batches served to Kafka clients."),
    ("amqp_published", Kind::Number, "Messages published by AMQP clients."),
    ("amqp_confirmed", Kind::Number, "Messages confirmed to them."),
    ("amqp_delivered", Kind::Number, "Messages given to AMQP clients."),
    ("amqp_acknowledged", Kind::Number, "Messages that AMQP clients have settled."),
    ("amqp_in_bytes", Kind::Number, "Bytes of frames from AMQP clients."),
    ("amqp_out_bytes", Kind::Number, "Bytes of frames to them."),
];

/// What has passed clients, as counts or a second.
pub(crate) const TOTALS: Schema = Schema::new("Totals", FLOWS);

const MEMORY_USE: Schema = Schema::new(
    "MemoryUse",
    &[
        ("name", Kind::Text, "A word that does not change."),
        ("bytes", Kind::Int, "How much."),
        ("text", Kind::Text, "For people."),
    ],
);

pub(crate) const MEMORY: Schema = Schema::new(
    "Memory",
    &[
        ("budget_bytes", Kind::Int, "What the process may use for buffers and caches."),
        ("resident_bytes", Kind::Int, "What it has of the machine's memory."),
        ("uses", Kind::List(&Kind::One(&MEMORY_USE)), "Parts of it that are known."),
    ],
);

const DISK: Schema = Schema::new(
    "Disk",
    &[
        ("folder", Kind::Text, "The folder of all data."),
        ("free_bytes", Kind::Int, "Free on its file system."),
        ("journal_bytes", Kind::Int, "What the files of the journals take."),
    ],
);

const LISTENER: Schema = Schema::new(
    "Listener",
    &[
        ("protocol", Kind::Text, "kafka, amqp or http."),
        ("address", Kind::Text, "Where."),
        ("tls", Kind::Bool, "Behind TLS?"),
    ],
);

const WARNING: Schema = Schema::new(
    "Warning",
    &[("code", Kind::Text, "A word that does not change."), ("text", Kind::Text, "What is wrong and what to do.")],
);

const OVERVIEW: Schema = Schema::new(
    "Overview",
    &[
        ("version", Kind::Text, "Of the broker."),
        ("cluster_id", Kind::Text, "The same for the life of the data."),
        ("node_id", Kind::Int, "This node."),
        ("host", Kind::Text, "The machine's name."),
        (
            "phase",
            Kind::Text,
            "recovering, ready, degraded (some journals have stopped), stopped (reads only) or draining.",
        ),
        ("started_at", Kind::Int, "ms since 1970."),
        ("uptime_ms", Kind::Int, "Since the start."),
        ("now_at", Kind::Int, "The broker's clock, ms since 1970."),
        (
            "counts",
            Kind::One(&COUNTS),
            "How many there are of what who asks may see; without tag monitoring one user, and connections of his own.",
        ),
        (
            "totals",
            Kind::OrNull(&Kind::One(&TOTALS)),
            "Since the start; this and what follows to the listeners is null without tag monitoring.",
        ),
        (
            "rates",
            Kind::OrNull(&Kind::One(&TOTALS)),
            "A second, over the last five; 0 until somebody has asked for that long.",
        ),
        ("memory", Kind::OrNull(&Kind::One(&MEMORY)), "What memory is used for."),
        ("disk", Kind::OrNull(&Kind::One(&DISK)), "The disk."),
        ("journals", Kind::OrNull(&Kind::List(&Kind::One(&JOURNAL))), "The journals."),
        ("listeners", Kind::OrNull(&Kind::List(&Kind::One(&LISTENER))), "Who is served where."),
        ("warnings", Kind::List(&Kind::One(&WARNING)), "What somebody ought to look at."),
    ],
);

pub(crate) const ROUTES: &[Route] = &[get("/overview", Access::LoggedIn, "The node at a glance", &OVERVIEW, overview)];

/// Counts, or rates of them, in the order of [`NodeTotals::counts`].
fn flows<T: Copy + std::ops::Add<Output = T> + Into<Value>>(of: &[T]) -> Value {
    let [received, sent, records, produced, fetched, frames_in, frames_out, published, confirmed, delivered, settled] =
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(|at| of[at]);
    let all = [
        received + frames_in,
        sent + frames_out,
        records,
        produced,
        fetched,
        published,
        confirmed,
        delivered,
        settled,
        frames_in,
        frames_out,
    ];
    Value::Object(FLOWS.iter().zip(all).map(|((name, _, _), value)| ((*name).to_owned(), value.into())).collect())
}

/// What has passed clients since the start.
pub(crate) fn totals(totals: &NodeTotals) -> Value {
    flows(&totals.counts())
}

/// What passes clients in a second.
pub(crate) fn rates(management: &Management) -> Value {
    flows(&management.rates.of(Subject::Protocols))
}

/// The same between two looks that are so many seconds apart.
pub(crate) fn rates_between(before: &NodeTotals, now: &NodeTotals, seconds: f64) -> Value {
    let (before, now) = (before.counts(), now.counts());
    let rates: Vec<f64> = now
        .iter()
        .zip(before)
        .map(|(now, before)| (now.saturating_sub(before) as f64 / seconds * 10.0).round() / 10.0)
        .collect();
    flows(&rates)
}

/// What memory is used for.
pub(crate) fn memory(memory: &Memory) -> Value {
    let one = |one: &super::MemoryUse| json!({"name": one.name, "bytes": one.bytes, "text": one.text});
    let Memory { budget_bytes, resident_bytes, uses } = memory;
    json!({"budget_bytes": budget_bytes, "resident_bytes": resident_bytes, "uses": uses.iter().map(one).collect::<Vec<_>>()})
}

/// Of what who asks may see, as in lists.
fn counts(call: &Call<'_>) -> Value {
    let (broker, who) = (call.broker(), &call.caller.who);
    let topics: Vec<_> = broker
        .topics()
        .into_iter()
        .filter(|topic| !is_internal(broker, topic) && who.sees_topic(&topic.name))
        .collect();
    let mut vhosts = broker.vhosts().all();
    vhosts.retain(|vhost| who.sees(vhost.name()));
    let (mut queues, mut consumers) = (0, 0);
    for queue in vhosts.iter().flat_map(|vhost| vhost.queues()) {
        queues += 1;
        consumers += broker.counts(&queue).consumers;
    }
    let all = who.monitors();
    let mut connections = broker.connections().all();
    connections.retain(|one| all || one.details.user == who.name());
    let of_kafka = |one: &broker::ClientConnection| all || one.said().user.is_some_and(|(user, _)| user == who.name());
    let clients = broker.kafka_connections().all().iter().filter(|(_, one)| of_kafka(one)).count();
    let channels: usize = connections.iter().map(|one| one.channels().len()).sum();
    json!({
        "topics": topics.len(),
        "partitions": topics.iter().map(|topic| topic.logs().len()).sum::<usize>(),
        "groups": broker.groups().names().iter().filter(|name| who.sees_group(name)).count(),
        "vhosts": vhosts.len(),
        "queues": queues,
        "exchanges": vhosts.iter().map(|vhost| vhost.exchanges().read().exchanges().count()).sum::<usize>(),
        "users": if all { broker.security().users().len() } else { usize::from(broker.security().has_users()) },
        "connections": connections.len() + clients,
        "channels": channels,
        "consumers": consumers,
    })
}

/// Places of history that warnings name, of each journal.
const UNREADABLE_SHOWN: usize = 5;

fn warnings(call: &Call<'_>) -> Vec<Value> {
    let mut found = Vec::new();
    for journal in call.broker().journals() {
        let number = journal.number();
        let mut warn = |code: &str, text: String| found.push(json!({"code": code, "text": text}));
        match journal.status() {
            JournalStatus::Running => {}
            JournalStatus::DiskFull => warn(
                "disk_full",
                format!("journal {number} refuses data because the disk is full: free space, or delete topics"),
            ),
            JournalStatus::Hindered { reason } => {
                warn(
                    "journal_hindered",
                    format!("journal {number} takes no writes at the moment and tries again ({reason})"),
                );
            }
            JournalStatus::Stopped { reason } => {
                warn(
                    "journal_stopped",
                    format!(
                        "journal {number} has stopped and serves reads only ({reason}): look at the disk, then restart"
                    ),
                );
            }
        }
        for part in journal.unreadable().into_iter().take(UNREADABLE_SHOWN) {
            warn(
                "history_unreadable",
                format!("journal {number} cannot read {} from offset {}: {}", part.log, part.from, part.what),
            );
        }
        if let Some(why) = journal.held_up() {
            warn("space_held_up", format!("space that is free in journal {number} does not come back: {why}"));
        }
        if let Some(why) = journal.archive_trouble() {
            warn("archive", format!("archive of journal {number}: {why}"));
        }
        if journal.waits_for_archive() {
            warn(
                "waits_for_archive",
                format!("journal {number} waits for the archive to take what lies beyond its window"),
            );
        }
    }
    if call.broker().security().users().is_empty() {
        let text = "nobody has to log in: no user is defined, so whoever is on this machine may do everything. Define one, with tag administrator";
        found.push(json!({"code": "no_users", "text": text}));
    }
    found
}

fn overview(call: &Call<'_>) -> Outcome {
    let (management, broker) = (call.management, call.broker());
    let (now, uptime_ms) = (broker.now_ms(), management.started.elapsed().as_millis() as i64);
    let mut found = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "cluster_id": broker.cluster_id(),
        "node_id": broker.node_id().0,
        "host": management.node.split_once('@').map_or("", |(_, host)| host),
        "phase": management.vitals.phase(),
        "started_at": now - uptime_ms,
        "uptime_ms": uptime_ms,
        "now_at": now,
        "counts": counts(call),
        "warnings": warnings(call),
    });
    let of_node = if call.caller.who.monitors() { of_node(management) } else { [const { Value::Null }; OF_NODE.len()] };
    OF_NODE.into_iter().zip(of_node).for_each(|(name, value)| found[name] = value);
    Ok(Answer::of(found))
}

/// What is for those who look after the node, as it is elsewhere (`/journals`, `/live`).
const OF_NODE: [&str; 6] = ["totals", "rates", "memory", "disk", "journals", "listeners"];

/// The values of these.
fn of_node(management: &Management) -> [Value; OF_NODE.len()] {
    let (broker, facts) = (&management.broker, &management.facts);
    let listener = |one: &crate::management::Listening| json!({"protocol": one.protocol, "address": one.address.to_string(), "tls": one.tls});
    let disk = json!({
        "folder": facts.data.display().to_string(),
        "free_bytes": (facts.free_bytes)(&facts.data),
        "journal_bytes": broker.journals().iter().map(|journal| journal.file_bytes()).sum::<u64>(),
    });
    [
        totals(&management.vitals.totals()),
        rates(management),
        memory(&management.vitals.memory()),
        disk,
        broker.journals().iter().map(|journal| journals::described(journal)).collect(),
        facts.listeners.iter().map(listener).collect(),
    ]
}
