//! What a node is told to do. Three layers meet here, later ones win: the configuration file, the environment,
//! the flags. Every refusal names the setting, the value, and what would be right.

mod layer;
mod listener;
mod named;
mod security;
#[cfg(test)]
mod tests;
mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use broker::Settings;
use journal::disk::IoMode;
use types::{ByteSize, Durability};

use crate::cli::ServeArguments;
use crate::log_file::LogFile;
use crate::tls::ClientCertificates;
use crate::token_keys::KeySource;
use layer::Layer;
pub use listener::Listener;
use listener::Names;
pub use named::NamedListener;
pub use security::{Security, SecurityArguments};

/// Smallest memory budget that the pools fit in.
pub const MEMORY_MIN: ByteSize = ByteSize::mib(64);

/// A log file that has grown to this size is ended …
const LOG_FILE_SIZE: ByteSize = ByteSize::mib(100);
/// … which is no less than this, …
const LOG_FILE_SIZE_MIN: ByteSize = ByteSize::mib(1);
/// … and so many are kept.
const LOG_FILE_COUNT: usize = 9;

/// In place of an address: nobody is listened to.
const NO_LISTENER: &str = "none";

/// A value that cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such key.
    #[error("{origin}: unknown key {key:?}; did you mean {nearest:?}?")]
    UnknownKey { origin: String, key: String, nearest: String },
    /// The value is not possible.
    #[error("{name} = {value:?} is not possible: {expected}")]
    Value { name: &'static str, value: String, expected: String },
    /// A broker setting.
    #[error("{origin}: {source}")]
    Setting { origin: String, source: broker::SettingError },
    /// The file cannot be read.
    #[error("--config {path}: {source}")]
    File { path: String, source: std::io::Error },
    /// A value of the file.
    #[error("{path}, line {line}: {source}")]
    InFile { path: String, line: usize, source: Box<ConfigError> },
    /// The file is not TOML.
    #[error("--config {path}: {reason}")]
    Syntax { path: String, reason: String },
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("it is \"text\" or \"json\""),
        }
    }
}

/// A node's configuration, checked.
#[derive(Debug)]
pub struct Config {
    pub data: PathBuf,
    pub listeners: Vec<Listener>,
    /// Those of setting `listeners`.
    pub named: Vec<NamedListener>,
    /// `None`: the default address, if nobody else has it.
    pub amqp: Option<Vec<SocketAddr>>,
    pub security: Security,
    /// Where the keys of tokens are; `None`: no tokens are taken.
    pub token_keys: Option<KeySource>,
    pub admin: SocketAddr,
    /// Of management alone; `None`: only under the address above.
    pub management: Option<SocketAddr>,
    /// Taken over at the start.
    pub definitions: Option<PathBuf>,
    pub durability: Durability,
    pub memory: ByteSize,
    pub io: Option<IoMode>,
    pub log: LogFormat,
    /// `None`: stderr.
    pub log_file: Option<LogFile>,
    /// Damage that the operator knows of.
    pub accept_loss: Vec<String>,
    pub settings: Settings,
}

impl Config {
    /// From flags, the process environment and the file that either names.
    ///
    /// # Errors
    /// The first value that cannot be taken.
    pub fn load(arguments: ServeArguments) -> Result<Self, ConfigError> {
        Self::resolve(arguments, std::env::vars())
    }

    fn resolve(
        arguments: ServeArguments,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let (environment, named) = Layer::from_environment(environment)?;
        let path = arguments.config.clone().or(named);
        let file = match &path {
            Some(path) => Layer::from_file(path)?,
            None => Layer::default(),
        };
        let accept_loss = arguments.accept_loss.clone();
        let merged = file.under(environment).under(Layer::from_flags(arguments)?);
        let checked = Self::check(merged).map_err(|error| error.located(path.as_deref()))?;
        Ok(Self { accept_loss, ..checked })
    }

    fn check(layer: Layer) -> Result<Self, ConfigError> {
        let mut settings = Settings::default();
        for (name, (value, origin)) in &layer.settings {
            let refused = |source| ConfigError::Setting { origin: origin.clone(), source };
            settings.set(name, value).map_err(refused)?;
        }
        settings.check().map_err(|source| ConfigError::Setting { origin: "settings".to_owned(), source })?;
        let memory = match layer.memory {
            Some(text) => parse::<ByteSize>("--memory", &text)?,
            None => crate::memory::default_budget(),
        };
        if memory < MEMORY_MIN {
            let expected = format!("the least is {MEMORY_MIN}");
            return Err(ConfigError::Value { name: "--memory", value: memory.to_string(), expected });
        }
        let named = NamedListener::all(&settings)?;
        let default = if named.is_empty() { vec!["127.0.0.1:9092".to_owned()] } else { Vec::new() };
        let kafka = layer.kafka.unwrap_or(default);
        let advertise = layer.advertise.unwrap_or_default();
        let checked = Self {
            data: PathBuf::from(layer.data.unwrap_or_else(|| "./mainstem-data".to_owned())),
            listeners: Listener::pair(Names { address: "--kafka", advertise: "--advertise" }, &kafka, &advertise)?,
            amqp: layer.amqp.map(|texts| amqp_addresses(&texts)).transpose()?,
            security: layer.security.check(named.iter().find(|one| one.tls).map(|one| one.name.clone()))?,
            token_keys: tokens::source(&settings, &named)?,
            named,
            definitions: layer.definitions.map(PathBuf::from),
            management: match layer.management.as_deref() {
                None | Some(NO_LISTENER) => None,
                Some(text) => Some(listener::address("--management", text)?),
            },
            admin: listener::address("--admin", layer.admin.as_deref().unwrap_or("127.0.0.1:8160"))?,
            durability: layer.durability.map_or(Ok(Durability::Fsync), |text| parse("--durability", &text))?,
            memory,
            io: layer.io.map(|text| parse("--io", &text)).transpose()?,
            log: layer.log.map_or(Ok(LogFormat::Text), |text| parse("--log", &text))?,
            log_file: log_file(layer.log_file)?,
            accept_loss: Vec::new(),
            settings,
        };
        checked.check_anonymous()?;
        Ok(checked)
    }

    /// Whoever lets others in without a login has said so.
    fn check_anonymous(&self) -> Result<(), ConfigError> {
        const ALLOWED: &str = "mainstem.anonymous.clients";
        if self.settings.text(ALLOWED).0 == "anywhere" {
            return Ok(());
        }
        let certified = self.security.tls.as_ref().is_some_and(|tls| tls.clients == ClientCertificates::Required);
        let plain = self.listeners.iter().map(|one| ("--kafka", one.address));
        let encrypted = self.security.kafka_tls.iter().filter(|_| !certified).map(|one| ("--kafka-tls", one.address));
        let named = self
            .named
            .iter()
            .filter(|one| one.sasl.is_none() && !(one.tls && certified))
            .map(|one| ("listeners", one.address));
        let open = plain.chain(encrypted).chain(named).find(|(_, address)| !address.ip().is_loopback());
        open.map_or(Ok(()), |(name, address)| {
            let expected = format!(
                "others would reach it, and nobody has to log in there. Have clients log in (--set listeners=SASL_SSL://…), show certificates \
                 (--tls-clients required), or let anybody in: --set {ALLOWED}=anywhere"
            );
            Err(ConfigError::Value { name, value: address.to_string(), expected })
        })
    }
}

fn log_file([path, size, count]: [Option<String>; 3]) -> Result<Option<LogFile>, ConfigError> {
    let bytes_max = size.as_deref().map_or(Ok(LOG_FILE_SIZE), |text| parse::<ByteSize>("--log-file-size", text))?;
    let count = count.as_deref().map_or(Ok(LOG_FILE_COUNT), |text| parse::<usize>("--log-file-count", text))?;
    if bytes_max < LOG_FILE_SIZE_MIN {
        let expected = format!("it is at least {LOG_FILE_SIZE_MIN}");
        return Err(ConfigError::Value { name: "--log-file-size", value: bytes_max.to_string(), expected });
    }
    Ok(path.map(|path| LogFile { path: path.into(), bytes_max: bytes_max.bytes(), count }))
}

impl ConfigError {
    /// With the line of the configuration file, if the value stands there.
    fn located(self, file: Option<&std::path::Path>) -> Self {
        let Self::Value { name, value, .. } = &self else { return self };
        let Some(text) = file.and_then(|path| std::fs::read_to_string(path).ok()) else { return self };
        let key = name.trim_start_matches('-').replace('-', "_");
        // A size is shown with its unit.
        let shown = value.split(' ').next().unwrap_or_default();
        let there = layer::line_of(&text, &key)
            .filter(|line| text.lines().nth(line - 1).is_some_and(|text| text.contains(shown)));
        match (there, file) {
            (Some(line), Some(path)) => Self::InFile { path: path.display().to_string(), line, source: Box::new(self) },
            _ => self,
        }
    }
}

impl Config {
    /// What only a start takes over, as text: each part with a name that people know.
    pub fn fixed(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--data", format!("{:?}", self.data)),
            ("--kafka, --advertise", format!("{:?}", self.listeners)),
            ("listeners", format!("{:?}", self.named)),
            ("--amqp", format!("{:?}", self.amqp)),
            ("TLS and the first user", format!("{:?}", self.security)),
            ("--admin", self.admin.to_string()),
            ("--management", format!("{:?}", self.management)),
            ("--definitions", format!("{:?}", self.definitions)),
            ("--durability", self.durability.to_string()),
            ("--memory", self.memory.to_string()),
            ("--io", format!("{:?}", self.io)),
            ("--log", format!("{:?} {:?}", self.log, self.log_file)),
        ]
    }
}

fn amqp_addresses(texts: &[String]) -> Result<Vec<SocketAddr>, ConfigError> {
    texts.iter().filter(|text| *text != NO_LISTENER).map(|text| listener::address("--amqp", text)).collect()
}

fn parse<T: FromStr<Err: std::fmt::Display>>(name: &'static str, text: &str) -> Result<T, ConfigError> {
    let refused = |error: T::Err| ConfigError::Value { name, value: text.to_owned(), expected: error.to_string() };
    text.parse().map_err(refused)
}
