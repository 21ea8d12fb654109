//! Configuration: defaults, then a TOML file, then environment variables, then flags. What is wrong is named, with
//! its value and what would be right.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use broker::Settings;
use clap::Args;
use journal::disk::IoMode;
use kafka_gateway::Advertise;
use types::{ByteSize, Durability};

/// Flags of `mainstem serve`; each may also be given as an environment variable.
#[derive(Args, Default)]
pub struct ServeArguments {
    /// Folder that holds all data [default: ./mainstem-data]
    #[arg(long, env = "MAINSTEM_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address for Kafka clients; may be repeated [default: 127.0.0.1:9092]
    #[arg(long, env = "MAINSTEM_KAFKA", value_name = "ADDR", value_delimiter = ',')]
    kafka: Vec<String>,
    /// Address for health and metrics [default: 127.0.0.1:8160]
    #[arg(long, env = "MAINSTEM_ADMIN", value_name = "ADDR")]
    admin: Option<String>,
    /// What clients are told to connect to, one for each --kafka [default: the address they connected to]
    #[arg(long, env = "MAINSTEM_ADVERTISE", value_name = "HOST[:PORT]", value_delimiter = ',')]
    advertise: Vec<String>,
    /// When a record counts as acknowledged: fsync or memory [default: fsync]
    #[arg(long, env = "MAINSTEM_DURABILITY", value_name = "CLASS")]
    durability: Option<String>,
    /// Memory budget [default: a quarter of the machine's or the cgroup's]
    #[arg(long, env = "MAINSTEM_MEMORY", value_name = "SIZE")]
    memory: Option<String>,
    /// A broker setting under Kafka's name; may be repeated
    #[arg(long = "set", env = "MAINSTEM_SET", value_name = "KEY=VALUE", value_delimiter = ',')]
    settings: Vec<String>,
    /// TOML file with any of these, and a table [settings]
    #[arg(long, env = "MAINSTEM_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Way of disk I/O: uring, direct or buffered [default: the first that works]
    #[arg(long, env = "MAINSTEM_IO", value_name = "MODE")]
    io: Option<String>,
    /// Form of the log: text or json [default: text]
    #[arg(long, env = "MAINSTEM_LOG", value_name = "FORM")]
    log: Option<String>,
}

/// Everything that `serve` needs, checked.
pub struct Config {
    /// Folder that holds all data.
    pub data: PathBuf,
    /// Listeners for Kafka clients.
    pub listeners: Vec<(SocketAddr, Advertise)>,
    /// Health and metrics.
    pub admin: SocketAddr,
    /// Of topics that do not say.
    pub durability: Durability,
    /// Memory budget.
    pub memory: ByteSize,
    /// Broker settings.
    pub settings: Settings,
    /// Forced I/O mode.
    pub io: Option<IoMode>,
    /// Log as JSON.
    pub json_log: bool,
}

/// A part of the configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("--config {path}: {problem}")]
    File {
        /// As given.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A value makes no sense.
    #[error("{name} = {value:?} is not possible: {expected}")]
    Value {
        /// Flag or key.
        name: &'static str,
        /// As given.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// A broker setting is unknown or impossible.
    #[error(transparent)]
    Setting(#[from] broker::SettingError),
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    data: Option<PathBuf>,
    #[serde(default)]
    kafka: OneOrMany,
    admin: Option<String>,
    #[serde(default)]
    advertise: OneOrMany,
    durability: Option<String>,
    memory: Option<String>,
    io: Option<String>,
    log: Option<String>,
    #[serde(default)]
    settings: BTreeMap<String, toml::Value>,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

fn value_error(name: &'static str, value: &str, expected: impl Into<String>) -> ConfigError {
    ConfigError::Value { name, value: value.to_owned(), expected: expected.into() }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(name: &'static str, text: &str) -> Result<T, ConfigError> {
    text.parse().map_err(|error: T::Err| value_error(name, text, error.to_string()))
}

fn address(name: &'static str, text: &str) -> Result<SocketAddr, ConfigError> {
    use std::net::ToSocketAddrs;
    let expected = "it is HOST:PORT, like 127.0.0.1:9092";
    let found = text.to_socket_addrs().map_err(|_| value_error(name, text, expected))?.next();
    found.ok_or_else(|| value_error(name, text, expected))
}

fn advertise(text: &str) -> Result<Advertise, ConfigError> {
    let expected = "it is HOST or HOST:PORT, and not an address that stands for all interfaces";
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, Some(port.parse().map_err(|_| value_error("--advertise", text, expected))?))
        }
        _ => (text, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_unspecified()) {
        return Err(value_error("--advertise", text, expected));
    }
    Ok(Advertise { host: Some(host.to_owned()), port })
}

fn read_file(path: &std::path::Path) -> Result<ConfigFile, ConfigError> {
    let fail = |problem: String| ConfigError::File { path: path.display().to_string(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    toml::from_str(&text).map_err(|error| fail(error.to_string()))
}

/// A quarter of what this process may use.
fn default_memory() -> ByteSize {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?.to_owned();
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
    });
    let limits = [number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory/memory.limit_in_bytes"), machine];
    ByteSize(limits.into_iter().flatten().min().unwrap_or(4 << 30) / 4)
}

/// Puts the layers together and checks everything.
///
/// # Errors
/// The first thing that is wrong.
pub fn resolve(arguments: ServeArguments) -> Result<Config, ConfigError> {
    let file = arguments.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
    let first = |flag: Vec<String>, file: OneOrMany| if flag.is_empty() { file.into_vec() } else { flag };
    let mut settings = Settings::default();
    for (name, value) in &file.settings {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        settings.set(name, &text)?;
    }
    for pair in &arguments.settings {
        let (name, value) = pair.split_once('=').ok_or_else(|| value_error("--set", pair, "it is KEY=VALUE"))?;
        settings.set(name.trim(), value)?;
    }
    let mut kafka = first(arguments.kafka, file.kafka);
    if kafka.is_empty() {
        kafka.push("127.0.0.1:9092".to_owned());
    }
    let advertised = first(arguments.advertise, file.advertise);
    if advertised.len() > kafka.len() {
        let expected = format!("there are only {} --kafka addresses", kafka.len());
        return Err(value_error("--advertise", &advertised.join(","), expected));
    }
    let mut listeners = Vec::new();
    for (number, listen) in kafka.iter().enumerate() {
        let told = advertised.get(number).map(|text| advertise(text)).transpose()?.unwrap_or_default();
        listeners.push((address("--kafka", listen)?, told));
    }
    let admin = arguments.admin.or(file.admin).unwrap_or_else(|| "127.0.0.1:8160".to_owned());
    let durability = arguments.durability.or(file.durability).map(|text| parse("--durability", &text)).transpose()?;
    let memory = arguments.memory.or(file.memory).map(|text| parse::<ByteSize>("--memory", &text)).transpose()?;
    if let Some(small) = memory.filter(|memory| *memory < ByteSize::mib(64)) {
        return Err(value_error("--memory", &small.to_string(), "it is at least 64 MiB"));
    }
    let json_log = match arguments.log.or(file.log).as_deref() {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => return Err(value_error("--log", other, "it is text or json")),
    };
    Ok(Config {
        data: arguments.data.or(file.data).unwrap_or_else(|| "mainstem-data".into()),
        listeners,
        admin: address("--admin", &admin)?,
        durability: durability.unwrap_or_default(),
        memory: memory.unwrap_or_else(default_memory),
        settings,
        io: arguments.io.or(file.io).map(|text| parse("--io", &text)).transpose()?,
        json_log,
    })
}
