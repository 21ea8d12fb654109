//! Why somebody is slow, as JSON, whichever API is asked. It takes as long as it looks, a second unless told otherwise.
//!
//! ```text
//! subject      { "client" | "topic" | "group": name }, empty for all connections
//! seconds      what was looked at
//! reasons      what weighs most first: { cause, share, worst, connections, text }, shares from 0 to 1
//! connections  at most 100, those that wait most first: { peer, protocol, user, client_id, topics, groups, shares: { cause: share } }
//! connection_count
//! ```

use std::time::Duration;

use broker::{Broker, Why, WhyConnection, WhyReason, WhySubject};
use serde_json::{Map, Value, json};

/// Seconds to look for, at most.
const SECONDS_MAX: f64 = 30.0;

/// Why there is no answer.
pub(crate) enum Refused {
    /// What was asked makes no sense.
    Invalid(&'static str),
    /// There is no such client, topic or group.
    Unknown,
}

/// Answers `client=…`, `topic=…` or `group=…`, and `seconds=…`. On a thread that may wait.
pub(crate) fn why<'a>(broker: &Broker, query: impl Fn(&str) -> Option<&'a str>) -> Result<Value, Refused> {
    let text = |name: &str| query(name).map(str::to_owned);
    let subject = match (text("client"), text("topic"), text("group")) {
        (None, None, None) => WhySubject::All,
        (Some(client), None, None) => WhySubject::Client(client),
        (None, Some(topic), None) => WhySubject::Topic(topic),
        (None, None, Some(group)) => WhySubject::Group(group),
        _ => return Err(Refused::Invalid("there is one of client, topic and group")),
    };
    let seconds = match query("seconds").map(str::parse::<f64>) {
        None => 1.0,
        Some(Ok(seconds)) if seconds > 0.0 && seconds <= SECONDS_MAX => seconds,
        Some(_) => return Err(Refused::Invalid("seconds is a number above 0, at most 30")),
    };
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
    let shares: Map<String, Value> = one.shares.iter().map(|(cause, share)| (cause.name().to_owned(), json!(rounded(*share)))).collect();
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
