//! One source of configuration before its values are looked at: which keys it names, as text.
//!
//! File: the keys of [`KEYS`] at the top, broker settings in the table `settings` (dotted keys nest in TOML and
//! are joined again here). Environment: `MAINSTEM_` and the key in capitals; lists separated by commas;
//! `MAINSTEM_SET_` and a setting's name with `_` for `.`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::security::SecurityLayer;
use super::ConfigError;
use crate::cli::ServeArguments;

/// Keys other than broker settings.
const KEYS: [&str; 11] = ["data", "kafka", "amqp", "admin", "management", "definitions", "advertise", "durability", "memory", "io", "log"];
/// Those of them that may have several values.
const LISTS: [&str; 3] = ["kafka", "amqp", "advertise"];
const PREFIX: &str = "MAINSTEM_";
const PREFIX_SET: &str = "MAINSTEM_SET_";

/// What one source says.
#[derive(Debug, Default)]
pub struct Layer {
    pub data: Option<String>,
    pub kafka: Option<Vec<String>>,
    pub amqp: Option<Vec<String>>,
    pub security: SecurityLayer,
    pub admin: Option<String>,
    pub management: Option<String>,
    pub definitions: Option<String>,
    pub advertise: Option<Vec<String>>,
    pub durability: Option<String>,
    pub memory: Option<String>,
    pub io: Option<String>,
    pub log: Option<String>,
    /// Value and where it was said.
    pub settings: BTreeMap<String, (String, String)>,
}

impl Layer {
    /// This layer where `over` says nothing.
    pub fn under(self, over: Self) -> Self {
        let mut settings = self.settings;
        settings.extend(over.settings);
        Self {
            data: over.data.or(self.data),
            kafka: over.kafka.or(self.kafka),
            amqp: over.amqp.or(self.amqp),
            security: self.security.under(over.security),
            admin: over.admin.or(self.admin),
            management: over.management.or(self.management),
            definitions: over.definitions.or(self.definitions),
            advertise: over.advertise.or(self.advertise),
            durability: over.durability.or(self.durability),
            memory: over.memory.or(self.memory),
            io: over.io.or(self.io),
            log: over.log.or(self.log),
            settings,
        }
    }

    /// The command line.
    pub fn from_flags(arguments: ServeArguments) -> Result<Self, ConfigError> {
        let list = |values: Vec<String>| (!values.is_empty()).then_some(values);
        let mut settings = BTreeMap::new();
        for text in &arguments.set {
            let Some((name, value)) = text.split_once('=') else {
                let expected = "write KEY=VALUE, like num.partitions=3".to_owned();
                return Err(ConfigError::Value { name: "--set", value: text.clone(), expected });
            };
            settings.insert(name.trim().to_owned(), (value.trim().to_owned(), "--set".to_owned()));
        }
        Ok(Self {
            data: arguments.data,
            kafka: list(arguments.kafka),
            amqp: list(arguments.amqp),
            security: SecurityLayer::from_flags(arguments.security),
            admin: arguments.admin,
            management: arguments.management,
            definitions: arguments.definitions,
            advertise: list(arguments.advertise),
            durability: arguments.durability,
            memory: arguments.memory,
            io: arguments.io,
            log: arguments.log,
            settings,
        })
    }

    /// The environment, and the file that it names in `MAINSTEM_CONFIG`.
    pub fn from_environment(
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let (mut layer, mut file) = (Self::default(), None);
        for (name, value) in variables {
            if let Some(setting) = name.strip_prefix(PREFIX_SET) {
                let setting = setting.to_ascii_lowercase().replace('_', ".");
                layer.settings.insert(setting, (value, name));
            } else if name == "MAINSTEM_CONFIG" {
                file = Some(PathBuf::from(value));
            } else if let Some(key) = name.strip_prefix(PREFIX).filter(|key| !is_foreign(key)) {
                let key = key.to_ascii_lowercase();
                let is_list = LISTS.contains(&key.as_str()) || SecurityLayer::is_list(&key);
                let list = || value.split(',').map(|part| part.trim().to_owned()).collect();
                layer.put(&key, &name, if is_list { list() } else { vec![value] })?;
            }
        }
        Ok((layer, file))
    }

    /// A TOML file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::File { path: shown.clone(), source })?;
        Self::from_toml(&text, &shown)
    }

    /// The text of a TOML file.
    pub fn from_toml(text: &str, path: &str) -> Result<Self, ConfigError> {
        let syntax = |reason: String| ConfigError::Syntax { path: path.to_owned(), reason };
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| syntax(error.to_string()))?;
        let mut layer = Self::default();
        for (key, value) in table {
            match value {
                toml::Value::Table(settings) if key == "settings" => layer.put_settings("", settings, path),
                toml::Value::Array(values) => layer.put(&key, path, values.iter().map(plain).collect())?,
                value => layer.put(&key, path, vec![plain(&value)])?,
            }
        }
        Ok(layer)
    }

    fn put_settings(&mut self, prefix: &str, table: toml::Table, path: &str) {
        for (key, value) in table {
            let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
            match value {
                toml::Value::Table(nested) => self.put_settings(&name, nested, path),
                value => {
                    self.settings.insert(name, (plain(&value), path.to_owned()));
                }
            }
        }
    }

    fn put(&mut self, key: &str, origin: &str, values: Vec<String>) -> Result<(), ConfigError> {
        let single = Some(values.join(","));
        match key {
            "data" => self.data = single,
            "kafka" => self.kafka = Some(values),
            "amqp" => self.amqp = Some(values),
            "admin" => self.admin = single,
            "management" => self.management = single,
            "definitions" => self.definitions = single,
            "advertise" => self.advertise = Some(values),
            "durability" => self.durability = single,
            "memory" => self.memory = single,
            "io" => self.io = single,
            "log" => self.log = single,
            _ if self.security.put(key, &values) => {}
            _ => {
                let keys = KEYS.into_iter().chain(SecurityLayer::keys()).chain(["settings", "config"]);
                let nearest = broker::nearest(keys, key).to_owned();
                return Err(ConfigError::UnknownKey { origin: origin.to_owned(), key: key.to_owned(), nearest });
            }
        }
        Ok(())
    }
}

/// Variables that are no keys: the log's filter, the cache of the test suite, who asks a running broker, service links of Kubernetes.
fn is_foreign(key: &str) -> bool {
    matches!(key, "LOG_LEVEL" | "CACHE" | "OPERATOR" | "OPERATOR_PASS") || key.ends_with("SERVICE_HOST") || key.contains("SERVICE_PORT") || key.starts_with("PORT")
}

fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
