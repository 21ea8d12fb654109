//! `mainstem why`.

use clap::Args;
use serde_json::Value;

use super::Session;
use super::http::with_query;
use super::table::{self, Column, Form};

pub const EXAMPLES: &str = "Examples:
  mainstem why
  mainstem why etl
  mainstem why --client etl
  mainstem why --topic orders --seconds 5
  mainstem why --group billing --json";

/// Who is slow.
#[derive(Args, Debug)]
pub struct About {
    /// A client, a topic or a group, if only one of these has the name
    #[arg(value_name = "CLIENT|TOPIC|GROUP", conflicts_with_all = ["client", "topic", "group"])]
    name: Option<String>,
    /// Connections of this client id (over AMQP: of this connection name)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["topic", "group"])]
    client: Option<String>,
    /// Connections that use this topic
    #[arg(long, value_name = "NAME", conflicts_with = "group")]
    topic: Option<String>,
    /// Connections of this group's members
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Look for so long, in seconds, at most 30
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    seconds: String,
}

const CONNECTIONS: &[Column] = &[
    ("PEER", "peer", Form::Text),
    ("PROTOCOL", "protocol", Form::Text),
    ("USER", "user", Form::Text),
    ("CLIENT", "client_id", Form::Text),
    ("WAITS FOR", "waits", Form::Text),
];

/// What a connection waits for, most first: `quota 93 %, client 7 %`.
fn waits(connection: &Value) -> String {
    let shares = connection["shares"].as_object().into_iter().flatten();
    let mut shares: Vec<(&String, f64)> = shares
        .map(|(cause, share)| (cause, share.as_f64().unwrap_or(0.0)))
        .filter(|(_, share)| *share >= 0.01)
        .collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    shares.iter().map(|(cause, share)| format!("{cause} {:.0} %", share * 100.0)).collect::<Vec<_>>().join(", ")
}

fn shown(found: &Value) -> String {
    let list = |name: &str| found[name].as_array().cloned().unwrap_or_default();
    let mut text: String = list("reasons")
        .iter()
        .map(|reason| format!("{}\n", table::plain(reason["text"].as_str().unwrap_or_default())))
        .collect();
    if text.is_empty() {
        text.push_str("nothing waits\n");
    }
    let mut connections = list("connections");
    for connection in &mut connections {
        connection["waits"] = waits(connection).into();
    }
    if !connections.is_empty() {
        text.push_str(&format!("\n{}", table::list(&connections, CONNECTIONS)));
    }
    let more = found["connection_count"].as_u64().unwrap_or(0).saturating_sub(connections.len() as u64);
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

pub fn run(session: &Session, about: &About) -> anyhow::Result<()> {
    let About { name, client, topic, group, seconds } = about;
    let named = [("name", name), ("client", client), ("topic", topic), ("group", group)];
    let named = named.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
    let query: Vec<(&str, &str)> = named.chain([("seconds", seconds.as_str())]).collect();
    session.print(&session.client.get(&with_query("/v1/why", &query))?, shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reasons_come_first_and_then_who_waits() {
        let found = json!({
            "reasons": [{"text": "1 connection paused by quota for 93 % of the time"}],
            "connections": [{"peer": "127.0.0.1:4", "protocol": "kafka", "user": "", "client_id": "etl", "shares": {"client": 0.07, "quota": 0.93, "disk": 0.001}}],
            "connection_count": 3,
        });
        let text = shown(&found);
        assert!(text.starts_with("1 connection paused by quota for 93 % of the time\n\nPEER"), "{text}");
        assert!(text.contains("quota 93 %, client 7 %") && text.ends_with("and 2 more\n"), "{text}");
        assert_eq!(shown(&json!({})), "nothing waits\n");
    }
}
