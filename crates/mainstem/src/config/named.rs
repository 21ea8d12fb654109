//! Listeners for Kafka clients under names, as Kafka's operators write them: `listeners`, `advertised.listeners`,
//! `listener.security.protocol.map`, and what is said of each of them.

use std::net::SocketAddr;
use std::time::Duration;

use broker::Settings;
use kafka_gateway::{Advertise, PrincipalRules, SaslMechanism, SaslRules};

use super::ConfigError;
use super::listener;

const LISTENERS: &str = "listeners";
const ADVERTISED: &str = "advertised.listeners";
const PROTOCOLS: &str = "listener.security.protocol.map";
const RULES: &str = "ssl.principal.mapping.rules";
const MECHANISMS: &str = "sasl.enabled.mechanisms";
const SESSION_MAX: &str = "connections.max.reauth.ms";

/// A listener with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedListener {
    pub name: String,
    pub address: SocketAddr,
    pub advertise: Advertise,
    pub tls: bool,
    /// `None`: nobody has to log in.
    pub sasl: Option<SaslRules>,
}

fn refuse(name: &'static str, value: &str, expected: impl Into<String>) -> ConfigError {
    ConfigError::Value { name, value: value.to_owned(), expected: expected.into() }
}

/// The parts of a list, without spaces around them.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// `NAME://HOST:PORT` in two.
fn named<'a>(setting: &'static str, text: &'a str) -> Result<(&'a str, &'a str), ConfigError> {
    let split = text.split_once("://").filter(|(name, _)| is_name(name));
    split.ok_or_else(|| refuse(setting, text, "it is NAME://HOST:PORT, like SASL_SSL://0.0.0.0:9093"))
}

/// Does the name stand for TLS, and for SASL?
fn protocol(settings: &Settings, name: &str) -> Result<(bool, bool), ConfigError> {
    const KNOWN: &str = "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL";
    let (map, _) = settings.text(PROTOCOLS);
    for part in parts(map) {
        let pair = part.split_once(':').map(|(one, other)| (one.trim(), other.trim()));
        let meaning = pair.and_then(|(one, protocol)| {
            let meaning = match protocol.to_ascii_uppercase().as_str() {
                "PLAINTEXT" => (false, false),
                "SSL" => (true, false),
                "SASL_PLAINTEXT" => (false, true),
                "SASL_SSL" => (true, true),
                _ => return None,
            };
            Some((one, meaning))
        });
        let Some((one, meaning)) = meaning else {
            return Err(refuse(PROTOCOLS, part, format!("it is NAME:PROTOCOL, and PROTOCOL is {KNOWN}")));
        };
        if one.eq_ignore_ascii_case(name) {
            return Ok(meaning);
        }
    }
    Err(refuse(LISTENERS, name, format!("{PROTOCOLS} has to say which of {KNOWN} it is")))
}

fn sasl(settings: &Settings, name: &str) -> Result<SaslRules, ConfigError> {
    let offered = settings.of_listener(name, MECHANISMS);
    let mechanisms: Vec<_> = parts(offered).filter_map(SaslMechanism::of_name).collect();
    if mechanisms.is_empty() {
        return Err(refuse(
            MECHANISMS,
            offered,
            format!("listener {name} asks clients to log in, so it has to offer a mechanism"),
        ));
    }
    let millis = |text: &str| text.parse().map(Duration::from_millis).unwrap_or_default();
    let session_max = millis(settings.of_listener(name, SESSION_MAX));
    Ok(SaslRules {
        mechanisms,
        session_max: (!session_max.is_zero()).then_some(session_max),
        request_bytes_max: usize::try_from(settings.int("sasl.server.max.receive.size")).unwrap_or(usize::MAX),
        login_max: millis(settings.text("mainstem.login.timeout.ms").0),
        refusal_delay: millis(settings.text("connection.failed.authentication.delay.ms").0),
    })
}

impl NamedListener {
    /// Those of the settings.
    ///
    /// # Errors
    /// The first value that cannot be taken.
    pub fn all(settings: &Settings) -> Result<Vec<Self>, ConfigError> {
        let rules = settings.text(RULES).0;
        PrincipalRules::parse(rules).map_err(|error| refuse(RULES, rules, error.to_string()))?;
        let mut all: Vec<Self> = Vec::new();
        for part in parts(settings.text(LISTENERS).0) {
            let (name, place) = named(LISTENERS, part)?;
            if all.iter().any(|other| other.name.eq_ignore_ascii_case(name)) {
                return Err(refuse(LISTENERS, part, "each name is there once"));
            }
            // As in Kafka no host means all addresses of the machine.
            let everywhere = place.strip_prefix(':').map(|port| format!("0.0.0.0:{port}"));
            let address = listener::address(LISTENERS, everywhere.as_deref().unwrap_or(place))?;
            let (tls, asks) = protocol(settings, name)?;
            let sasl = if asks { Some(sasl(settings, name)?) } else { None };
            all.push(Self { name: name.to_owned(), address, advertise: Advertise::default(), tls, sasl });
        }
        for part in parts(settings.text(ADVERTISED).0) {
            let (name, place) = named(ADVERTISED, part)?;
            let Some(one) = all.iter_mut().find(|one| one.name.eq_ignore_ascii_case(name)) else {
                return Err(refuse(ADVERTISED, part, format!("{LISTENERS} has no listener of this name")));
            };
            one.advertise = listener::advertise(ADVERTISED, place)?;
        }
        let unknown =
            settings.listeners_named().find(|name| !all.iter().any(|one| one.name.eq_ignore_ascii_case(name)));
        match unknown {
            Some(name) => Err(refuse("listener.name", name, format!("{LISTENERS} has no listener of this name"))),
            None => Ok(all),
        }
    }
}
