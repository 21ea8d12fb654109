//! The broker's settings in DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: those of this node under its id, those of all nodes
//! under the empty name. What is set for the node goes before what is set for all, and both before what the node was started with.
//!
//! Source of the rules: Kafka 4.3, `ConfigAdminManager`, `DynamicBrokerConfig`, `ConfigHelper`. Which settings change while the broker runs
//! is ours to say (`broker::DYNAMIC`); Kafka keeps settings that it does not know, here they are refused.

use std::collections::BTreeMap;

use broker::{AlterError, BROKER, Broker, DYNAMIC, Kind, Setting, SettingScope, Source, find};
use kafka_wire::ErrorCode;

use super::configs::{Change, Refusal, Row, changed, source_code};
use crate::error_code::of_append;

/// In place of our own setting: what that, `--advertise` and `--kafka` come to for the client that asks.
static ADVERTISED_LISTENERS: Setting = Setting {
    name: "advertised.listeners",
    kind: Kind::Text,
    default: "",
    class: broker::Class::Enforced,
    doc: "What clients are told to connect to.",
};

fn invalid(text: impl Into<String>) -> Refusal {
    (ErrorCode::InvalidRequest, text.into())
}

/// Whose settings a name stands for.
pub(super) fn scope(broker: &Broker, name: &str) -> Result<SettingScope, Refusal> {
    let own = broker.node_id().0;
    match name.parse::<i32>() {
        _ if name.is_empty() => Ok(SettingScope::Cluster),
        Ok(node) if node == own => Ok(SettingScope::Node),
        Ok(_) => Err(invalid(format!("Unexpected broker id, expected {own}, but received {name}"))),
        Err(_) => Err(invalid(format!("Node id must be an integer, but it is: {name}"))),
    }
}

/// What there is under a name of what is wanted, for a client that reaches the broker under this address.
pub(super) fn describe(
    broker: &Broker,
    name: &str,
    (host, port): (&str, i32),
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Row>, Refusal> {
    if scope(broker, name)? == SettingScope::Cluster {
        let set = broker.dynamic_settings(SettingScope::Cluster);
        let values = |name| set.get(name).map(|value| vec![(value.clone(), Source::Cluster)]);
        return Ok(BROKER
            .iter()
            .filter(|setting| wanted(setting.name))
            .filter_map(|setting| Some(shown(setting, values(setting.name)?)))
            .collect());
    }
    let address = || {
        let values = vec![(format!("PLAINTEXT://{host}:{port}"), Source::Broker), (String::new(), Source::Default)];
        shown(&ADVERTISED_LISTENERS, values)
    };
    let own = BROKER.iter().filter(|setting| setting.name != ADVERTISED_LISTENERS.name && wanted(setting.name));
    let own = own.map(|setting| shown(setting, broker.values_of_setting(setting.name)));
    Ok(own.chain(wanted(ADVERTISED_LISTENERS.name).then(address)).collect())
}

/// A setting with all values that it has been given, of which the first counts.
fn shown(setting: &'static Setting, values: Vec<(String, Source)>) -> Row {
    let synonyms: Vec<_> =
        values.into_iter().map(|(value, source)| (setting.name, value, source_code(source))).collect();
    let (_, value, source) = synonyms.first().cloned().unwrap_or_default();
    Row { setting, value, source, synonyms, read_only: !DYNAMIC.contains(&setting.name) }
}

/// Changes settings one by one. What is deleted need not be there, nor be a setting: tools delete throttles without asking.
pub(super) fn alter(
    broker: &Broker,
    name: &str,
    changes: Vec<(&str, Change)>,
    validate_only: bool,
) -> Result<(), Refusal> {
    let scope = scope(broker, name)?;
    let mut overrides = (*broker.dynamic_settings(scope)).clone();
    for (name, change) in changes {
        if matches!(change, Change::Set(_)) {
            find(BROKER, name).map_err(|error| invalid(error.to_string()))?;
        }
        // Words are added to those that were set under the same name, or to the default.
        let default = || find(BROKER, name).map_or("", |setting| setting.default).to_owned();
        let current = |overrides: &BTreeMap<String, String>| overrides.get(name).cloned().unwrap_or_else(default);
        changed(&mut overrides, BROKER, current, name, change)?;
    }
    replace(broker, scope, &overrides, validate_only)
}

/// Sets these in place of all that was set under the name.
pub(super) fn replace(
    broker: &Broker,
    scope: SettingScope,
    overrides: &BTreeMap<String, String>,
    validate_only: bool,
) -> Result<(), Refusal> {
    let outcome = match validate_only {
        true => broker.check_replaced_settings(scope, overrides).map_err(AlterError::from),
        false => broker.replace_settings(scope, overrides),
    };
    outcome.map_err(|error| match error {
        AlterError::Append(error) => (of_append(error), error.to_string()),
        // Kafka says so of the request, not of the setting.
        AlterError::UnknownTopic | AlterError::NoMemory | AlterError::Setting(_) => invalid(error.to_string()),
    })
}
