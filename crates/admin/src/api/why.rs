//! Why somebody is slow: what the connections of a client, a topic or a group wait for. It takes as long as it looks, a second unless told
//! otherwise, and a thread as long, so that only some look at once.

use std::time::Duration;

use broker::{Broker, Why, WhyConnection, WhyReason, WhySubject};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome};
use super::call::Call;
use super::places::LOOKS;
use super::route::{Access, Route, get};
use super::schema::{Kind, Schema};

const REASON: Schema = Schema::new(
    "Reason",
    &[
        (
            "cause",
            Kind::Text,
            "A word for it: quota, topic-quota, laggard-rule, disk, memory, slow-reader, client and others of docs/quotas.md.",
        ),
        ("share", Kind::Number, "Of the time, over the connections that wait for it, 0 to 1."),
        ("worst", Kind::Number, "Of the time, of the connection that waits most for it, 0 to 1."),
        ("connections", Kind::Int, "How many wait for it."),
        ("text", Kind::Text, "The same in a sentence, with figures."),
    ],
);

const CONNECTION: Schema = Schema::new(
    "WaitingConnection",
    &[
        ("peer", Kind::Text, "Where it comes from."),
        ("protocol", Kind::Text, "kafka or amqp."),
        ("user", Kind::Text, "Who has logged in."),
        ("client_id", Kind::Text, "As the client calls itself."),
        ("topics", Kind::List(&Kind::Text), "What it uses."),
        ("groups", Kind::List(&Kind::Text), "What it is a member of."),
        ("shares", Kind::Object, "Of the time, by the cause of the reason that it belongs to, 0 to 1."),
    ],
);

const WHY: Schema = Schema::new(
    "Why",
    &[
        ("subject", Kind::Object, "client, topic or group, with its name; empty for all connections."),
        ("seconds", Kind::Number, "How long was looked."),
        ("reasons", Kind::List(&Kind::One(&REASON)), "What weighs most first."),
        ("connections", Kind::List(&Kind::One(&CONNECTION)), "At most 100, those that wait most first."),
        ("connection_count", Kind::Int, "All of them."),
    ],
);

pub(crate) const ROUTES: &[Route] = &[get("/why", Access::Monitoring, "Why somebody is slow", &WHY, answer).asks(&[
    ("name", Kind::Text, "A client, a topic or a group, if only one of these has the name."),
    ("client", Kind::Text, "A client id."),
    ("topic", Kind::Text, "Its producers and consumers."),
    ("group", Kind::Text, "Its members."),
    ("seconds", Kind::Number, "Look for so long: 1, at most 30."),
])];

fn answer(call: &Call<'_>) -> Outcome {
    match why(call.broker(), |name| call.query(name)) {
        Ok(found) => Ok(Answer::of(found)),
        Err(Refused::Invalid(name, reason)) => Err(Answer::invalid(name, reason)),
        Err(Refused::Busy) => Err(Answer::unavailable("busy", "others are looking: try again in a few seconds")),
        Err(Refused::Unknown) => Err(Answer::not_found("there is no such client, topic or group")),
    }
}

/// Seconds to look for, at most.
const SECONDS_MAX: f64 = 30.0;

/// Why there is no answer.
enum Refused {
    /// What was asked makes no sense.
    Invalid(&'static str, String),
    /// There is no such client, topic or group.
    Unknown,
    /// Others are looking.
    Busy,
}

/// The only one of clients, topics and groups that has this name.
fn named(broker: &Broker, name: &str) -> Result<WhySubject, Refused> {
    let mut found = broker.why_subjects(name);
    match found.pop() {
        None => Err(Refused::Unknown),
        Some(only) if found.is_empty() => Ok(only),
        Some(last) => {
            found.push(last);
            let kinds: Vec<&str> = found.iter().map(kind_of).collect();
            Err(Refused::Invalid("name", format!("{} have this name: ask for one of them", kinds.join(" and "))))
        }
    }
}

fn kind_of(subject: &WhySubject) -> &'static str {
    match subject {
        WhySubject::Client(_) => "a client",
        WhySubject::Topic(_) => "a topic",
        WhySubject::Group(_) => "a group",
        WhySubject::All => "all",
    }
}

/// Answers `name=…`, `client=…`, `topic=…` or `group=…`, and `seconds=…`. On a thread that may wait.
fn why<'a>(broker: &Broker, query: impl Fn(&str) -> Option<&'a str>) -> Result<Value, Refused> {
    let text = |name: &str| query(name).map(str::to_owned);
    let subject = match (query("name"), text("client"), text("topic"), text("group")) {
        (None, None, None, None) => WhySubject::All,
        (Some(name), None, None, None) => named(broker, name)?,
        (None, Some(client), None, None) => WhySubject::Client(client),
        (None, None, Some(topic), None) => WhySubject::Topic(topic),
        (None, None, None, Some(group)) => WhySubject::Group(group),
        _ => return Err(Refused::Invalid("client", "there is one of name, client, topic and group".to_owned())),
    };
    let seconds = match query("seconds").map(str::parse::<f64>) {
        None => 1.0,
        Some(Ok(seconds)) if seconds > 0.0 && seconds <= SECONDS_MAX => seconds,
        Some(_) => return Err(Refused::Invalid("seconds", "it is a number above 0, at most 30".to_owned())),
    };
    let _place = LOOKS.take().ok_or(Refused::Busy)?;
    let why = broker.why(&subject, Duration::from_secs_f64(seconds)).ok_or(Refused::Unknown)?;
    Ok(shown(broker, &subject, &why))
}

fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}

fn shown(broker: &Broker, subject: &WhySubject, why: &Why) -> Value {
    let subject = match subject {
        WhySubject::Client(name) => json!({"client": name}),
        WhySubject::Topic(name) => json!({"topic": name}),
        WhySubject::Group(name) => json!({"group": name}),
        WhySubject::All => json!({}),
    };
    json!({
        "subject": subject,
        "seconds": rounded(why.window.as_secs_f64()),
        "reasons": why.reasons.iter().map(reason).collect::<Vec<_>>(),
        "connections": why.connections.iter().map(|one| connection(broker, one)).collect::<Vec<_>>(),
        "connection_count": why.connection_count,
    })
}

fn reason(one: &WhyReason) -> Value {
    json!({
        "cause": one.cause,
        "share": rounded(one.share),
        "worst": rounded(one.worst),
        "connections": one.connections,
        "text": one.text,
    })
}

fn connection(broker: &Broker, one: &WhyConnection) -> Value {
    let topics = one.about.topics.iter().filter_map(|id| broker.topic_by_id(*id)).map(|topic| topic.name.clone());
    let shares: Map<String, Value> =
        one.shares.iter().map(|(cause, share)| ((*cause).to_owned(), json!(rounded(*share)))).collect();
    json!({
        "peer": one.peer.to_string(),
        "protocol": one.protocol,
        "user": one.about.user,
        "client_id": one.about.client_id,
        "topics": topics.collect::<Vec<_>>(),
        "groups": one.about.groups,
        "shares": shares,
    })
}
