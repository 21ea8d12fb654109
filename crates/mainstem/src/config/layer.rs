//! One source of configuration before its values are looked at: which keys it names, as text.
//!
//! File: the keys of [`KEYS`] at the top, broker settings in the table `settings` (dotted keys nest in TOML and
//! are joined again here). Environment: `MAINSTEM_` and the key in capitals; lists separated by commas;
//! `MAINSTEM_SET_` and a setting's name with `_` for `.`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::ConfigError;
use super::security::SecurityLayer;
use crate::cli::ServeArguments;

/// Keys other than broker settings.
const KEYS: [&str; 14] = [
    "data",
    "kafka",
    "amqp",
    "admin",
    "management",
    "definitions",
    "advertise",
    "durability",
    "memory",
    "io",
    "log",
    "log_file",
    "log_file_size",
    "log_file_count",
];
/// Those of them that may have several values.
const LISTS: [&str; 3] = ["kafka", "amqp", "advertise"];
const PREFIX: &str = "MAINSTEM_";
const PREFIX_SET: &str = "MAINSTEM_SET_";

/// The setting of a variable: some have underscores of their own.
fn setting_called(variable: &str) -> String {
    let wanted = variable.to_ascii_lowercase();
    let known = broker::BROKER.iter().map(|row| row.name).find(|name| name.replace('.', "_") == wanted);
    known.map_or_else(|| wanted.replace('_', "."), str::to_owned)
}

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
    /// File, size, count.
    pub log_file: [Option<String>; 3],
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
            log_file: over
                .log_file
                .into_iter()
                .zip(self.log_file)
                .map(|(over, own)| over.or(own))
                .collect::<Vec<_>>()
                .try_into()
                .unwrap_or_default(),
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
            log_file: [arguments.log_file, arguments.log_file_size, arguments.log_file_count],
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
                layer.settings.insert(setting_called(setting), (value, name));
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
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: shown.clone(), source })?;
        Self::from_toml(&text, &shown)
    }

    /// The text of a TOML file.
    pub fn from_toml(text: &str, path: &str) -> Result<Self, ConfigError> {
        let syntax = |reason: String| ConfigError::Syntax { path: path.to_owned(), reason };
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| syntax(error.to_string()))?;
        let mut layer = Self::default();
        for (key, value) in table {
            match value {
                toml::Value::Table(settings) if key == "settings" => layer.put_settings("", settings, (text, path)),
                toml::Value::Array(values) => {
                    layer.put(&key, &place(text, path, &key), values.iter().map(plain).collect())?
                }
                value => layer.put(&key, &place(text, path, &key), vec![plain(&value)])?,
            }
        }
        Ok(layer)
    }

    fn put_settings(&mut self, prefix: &str, table: toml::Table, (text, path): (&str, &str)) {
        for (key, value) in table {
            let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
            match value {
                toml::Value::Table(nested) => self.put_settings(&name, nested, (text, path)),
                value => {
                    let origin = place(text, path, &format!("settings.{name}"));
                    self.settings.insert(name, (plain(&value), origin));
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
            "log_file" => self.log_file[0] = single,
            "log_file_size" => self.log_file[1] = single,
            "log_file_count" => self.log_file[2] = single,
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

/// The file, and the line of a key in it.
fn place(text: &str, path: &str, key: &str) -> String {
    line_of(text, key).map_or_else(|| path.to_owned(), |line| format!("{path}, line {line}"))
}

/// The line, from 1, on which a TOML text gives a key its value; the key with the tables that it is in, dots between.
pub fn line_of(text: &str, key: &str) -> Option<usize> {
    let bare =
        |text: &str| text.chars().filter(|letter| !matches!(letter, '"' | '\'' | ' ' | '\t')).collect::<String>();
    let mut table = String::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            table = format!("{}.", bare(name));
        } else if let Some((name, _)) = line.split_once('=')
            && format!("{table}{}", bare(name)) == key
        {
            return Some(number + 1);
        }
    }
    None
}

/// Variables that are no keys: the log's filter, who asks a running broker, the cache of the test suite, service links of Kubernetes.
fn is_foreign(key: &str) -> bool {
    matches!(key, "LOG_LEVEL" | "CACHE" | "OPERATOR" | "OPERATOR_PASS")
        || key.ends_with("SERVICE_HOST")
        || key.contains("SERVICE_PORT")
        || key.starts_with("PORT")
}

fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
