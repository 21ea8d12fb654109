//! Connections of all protocols: list, look at, close.

use std::sync::Arc;

use amqp_wire::TableRef;
use broker::{ClientConnection, Connected};
use serde_json::{Value, json};
use types::ConnectionId;

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::listing::list;
use super::route::{self, Access, Route, Shape, Verb, change, get};
use super::schema::{Field, Kind, Schema};
use crate::management::rates::Subject;
use crate::management::values;

const RATES: Schema = Schema::new(
    "ConnectionRates",
    &[
        ("in_bytes", Kind::Number, "Bytes that the client sends in a second."),
        ("out_bytes", Kind::Number, "Bytes that it is sent."),
    ],
);

const CONNECTION: Schema = Schema::new(
    "Connection",
    &[
        ("id", Kind::Text, "Its number in this run of the broker."),
        ("name", Kind::Text, "Both ends."),
        ("protocol", Kind::Text, "kafka or amqp."),
        ("user", Kind::OrNull(&Kind::Text), "Who has logged in."),
        ("address", Kind::Text, "Of the client."),
        ("local", Kind::Text, "Of the broker."),
        ("client_id", Kind::OrNull(&Kind::Text), "As the client says; of AMQP the connection_name of its properties."),
        ("software", Kind::OrNull(&Kind::Text), "Name and version, as the client says."),
        ("vhost", Kind::OrNull(&Kind::Text), "The virtual host of a connection of AMQP."),
        ("mechanism", Kind::OrNull(&Kind::Text), "How the user has logged in."),
        ("connected_at", Kind::Int, "ms since 1970."),
        ("channels", Kind::OrNull(&Kind::Int), "Open channels of AMQP."),
        ("received_bytes", Kind::Int, "Bytes that came."),
        ("sent_bytes", Kind::Int, "Bytes that went."),
        ("rates", Kind::One(&RATES), "A second, over the last five."),
    ],
);

const PROTOCOL: &[Field] =
    &[("protocol", Kind::Text, "Only those of kafka or amqp."), ("user", Kind::Text, "Only those of a user.")];

pub(crate) const ROUTES: &[Route] = &[
    route::list(
        "/connections",
        Access::LoggedIn,
        "Open connections: all with tag monitoring, otherwise those of the user who asks",
        &CONNECTION,
        all,
    )
    .asks(PROTOCOL),
    get("/connections/{connection}", Access::LoggedIn, "A connection", &CONNECTION, |call| {
        Ok(Answer::of(one_of(call)?.described(call)))
    }),
    change(Verb::Delete, "/connections/{connection}", Access::LoggedIn, "Close a connection", Shape::Nothing, close)
        .asks(&[("reason", Kind::Text, "What the client is told.")]),
];

/// Bytes of a reason that go to the client: its text is a short string.
const REASON_MAX: usize = 220;

/// A connection of either kind.
enum One {
    Kafka(ConnectionId, Arc<ClientConnection>),
    Amqp(Arc<Connected>),
}

impl One {
    fn id(&self) -> ConnectionId {
        match self {
            Self::Kafka(id, _) => *id,
            Self::Amqp(connected) => connected.id(),
        }
    }

    fn user(&self) -> Option<String> {
        match self {
            Self::Kafka(_, client) => client.said().user.map(|(name, _)| name),
            Self::Amqp(connected) => Some(connected.details.user.clone()),
        }
    }

    fn protocol(&self) -> &'static str {
        match self {
            Self::Kafka(..) => "kafka",
            Self::Amqp(_) => "amqp",
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Kafka(_, client) => format!("{} -> {}", client.peer, client.local),
            Self::Amqp(connected) => connected.name(),
        }
    }

    /// What a search looks at: its name, the user's, that of the client and of its software.
    fn words(&self) -> String {
        let (user, client, software) = match self {
            Self::Kafka(_, client) => {
                let said = client.said();
                (said.user.map(|(name, _)| name), Some(said.client_id), said.software.map(|(name, _)| name))
            }
            Self::Amqp(connected) => {
                let properties =
                    TableRef::check(&connected.details.client_properties).map_or_else(|_| json!({}), values::table);
                let said = |name: &str| properties[name].as_str().map(str::to_owned);
                (self.user(), said("connection_name"), said("product"))
            }
        };
        let mut words = self.name();
        for word in [user, client, software].into_iter().flatten() {
            words.push(' ');
            words.push_str(&word);
        }
        words
    }

    fn described(&self, call: &Call<'_>) -> Value {
        let rates = call.rates().of(Subject::Connection(self.id().0));
        let mut found = match self {
            Self::Kafka(_, client) => {
                let said = client.said();
                let (user, mechanism) =
                    said.user.map_or((None, None), |(name, mechanism)| (Some(name), Some(mechanism)));
                json!({
                    "user": user,
                    "address": client.peer.to_string(),
                    "local": client.local.to_string(),
                    "client_id": Some(said.client_id).filter(|id| !id.is_empty()),
                    "software": said.software.map(|(name, version)| format!("{name} {version}")),
                    "vhost": null,
                    "mechanism": mechanism,
                    "connected_at": client.connected_at,
                    "channels": null,
                    "received_bytes": client.received_bytes.get(),
                    "sent_bytes": client.sent_bytes.get(),
                })
            }
            Self::Amqp(connected) => of_amqp(connected),
        };
        found["id"] = self.id().0.to_string().into();
        found["name"] = self.name().into();
        found["protocol"] = self.protocol().into();
        found["rates"] = json!({"in_bytes": rates[0], "out_bytes": rates[1]});
        found
    }
}

fn of_amqp(connected: &Connected) -> Value {
    let details = &connected.details;
    let properties = TableRef::check(&details.client_properties).map_or_else(|_| json!({}), values::table);
    let said = |name: &str| properties.get(name).and_then(Value::as_str);
    let software = said("product")
        .map(|product| format!("{product} {}", said("version").unwrap_or_default()).trim_end().to_owned());
    json!({
        "user": details.user,
        "address": details.peer.to_string(),
        "local": details.local.to_string(),
        "client_id": said("connection_name"),
        "software": software,
        "vhost": details.vhost,
        "mechanism": details.mechanism,
        "connected_at": details.connected_at,
        "channels": connected.channels().len(),
        "received_bytes": connected.received_bytes.get(),
        "sent_bytes": connected.sent_bytes.get(),
    })
}

/// Those that who asks may see.
fn visible(call: &Call<'_>) -> Vec<One> {
    let broker = call.broker();
    let kafka = broker.kafka_connections().all().into_iter().map(|(id, client)| One::Kafka(id, client));
    let all = kafka.chain(broker.connections().all().into_iter().map(One::Amqp));
    let who = &call.caller.who;
    all.filter(|one| who.monitors() || one.user().as_deref() == Some(who.name())).collect()
}

fn all(call: &Call<'_>) -> Outcome {
    let mut found = visible(call);
    if let Some(protocol) = call.query("protocol") {
        if !["kafka", "amqp"].contains(&protocol) {
            return Err(Answer::invalid("protocol", "it is kafka or amqp"));
        }
        found.retain(|one| one.protocol() == protocol);
    }
    if let Some(user) = call.query("user") {
        found.retain(|one| one.user().as_deref() == Some(user));
    }
    list(call, found.into_iter().map(|one| (one.words(), one)), |one| Some(one.described(call)))
}

/// The connection of the path, by its number or both ends.
fn one_of(call: &Call<'_>) -> Result<One, Refusal> {
    let wanted = call.path("connection");
    let found = visible(call).into_iter().find(|one| one.id().0.to_string() == wanted || one.name() == wanted);
    found.ok_or_else(|| Answer::not_found(format!("there is no connection {wanted:?}")))
}

fn close(call: &Call<'_>) -> Outcome {
    let found = one_of(call)?;
    let who = &call.caller.who;
    if !who.is_administrator() && found.user().as_deref() != Some(who.name()) {
        return Err(Answer::not_allowed("connections of others are closed by administrators"));
    }
    let reason = call.query("reason").filter(|reason| !reason.is_empty()).unwrap_or("closed by an administrator");
    let reason = &reason[..reason.floor_char_boundary(REASON_MAX)];
    match &found {
        One::Kafka(_, client) => call.broker().dismiss_client(client, reason),
        One::Amqp(connected) => call.broker().dismiss_connection(connected, reason),
    }
    Ok(Answer::done())
}
