//! A system under test: how it is started, stopped and wiped, which processes are its, and how it is set.
//!
//! A target is a TOML file, shipped (`targets/*.toml`) or given by path. Words in braces are replaced:
//! `{peers}` the folder of the peers' scripts, `{peers_home}` where they keep their data, `{mainstem}` our binary, `{data}`
//! a scratch folder of this run, `{durability}` the workload's, `{port NAME}` a free port, the same wherever the name stands, `{env NAME}` an
//! environment variable, so that no password has to stand in a file.
//! A target without `start` is one that runs already.
//!
//! A file is one target, or a list of them (`[[target]]`), of any names. A target takes part in an experiment that names it, or the shipped
//! target that it is `like`: by default Kafka, RabbitMQ, Pulsar or NATS, by its driver.

mod running;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

pub use running::{Running, Setup, drop_page_cache};

use crate::nearest;
use crate::result::Setting;
use crate::workload::Durability;

/// Where free ports are looked for: what systems give to connections by themselves begins above.
const PORTS: Range<u16> = 20_000..32_000;

/// How the name of a target ends that is a second one of the same binary: what differs between the two is noise.
pub const AGAIN: &str = "-again";

/// Whether a target of this name is a second one of the same binary.
pub fn is_again(name: &str) -> bool {
    name.ends_with(AGAIN)
}

/// The shipped targets.
const SHIPPED: [(&str, &str); 6] = [
    ("mainstem", include_str!("../targets/mainstem.toml")),
    ("mainstem-amqp", include_str!("../targets/mainstem-amqp.toml")),
    ("kafka", include_str!("../targets/kafka.toml")),
    ("rabbitmq", include_str!("../targets/rabbitmq.toml")),
    ("pulsar", include_str!("../targets/pulsar.toml")),
    ("nats", include_str!("../targets/nats.toml")),
];

/// A target file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub name: String,
    /// The system's own name, for people.
    pub title: String,
    /// One of `drivers::NAMES`.
    pub driver: String,
    /// The shipped target in whose place it takes part in experiments.
    #[serde(default)]
    pub like: Option<String>,
    /// Words for the driver, whatever the durability: who logs in, how the connection is protected. They are in no result.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Copies of each message that topics and queues are made with; 0 = whatever the broker does by itself.
    #[serde(default = "one")]
    pub replication: u16,
    /// Where clients connect, `host:port`.
    pub address: String,
    /// Starts it; returns when it is ready unless `foreground`. Absent: it runs already and is left alone.
    #[serde(default)]
    pub start: Vec<String>,
    /// `start` stays in the foreground and is the broker itself; it is ended by SIGTERM.
    #[serde(default)]
    pub foreground: bool,
    /// A page that answers 200 when a foreground broker is ready.
    #[serde(default)]
    pub ready: Option<String>,
    #[serde(default)]
    pub stop: Vec<String>,
    /// Deletes its data; for a foreground broker `{data}` is deleted anyway.
    #[serde(default)]
    pub wipe: Vec<String>,
    /// A command whose output holds its version.
    #[serde(default)]
    pub version: Vec<String>,
    /// Files with the ids of its processes; descendants belong to them.
    #[serde(default)]
    pub pid_files: Vec<String>,
    /// Its logs, whose last lines are shown when it does not start.
    #[serde(default)]
    pub logs: Vec<String>,
    /// Bound on its memory, page cache included, unless the workload names one; 2^20 bytes.
    #[serde(default)]
    pub memory_limit_mb: u64,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// How settings reach it: the name of an environment variable that names a file of them, and a line of that file.
    #[serde(default)]
    pub settings_file: Option<SettingsFile>,
    #[serde(default)]
    pub stock: Variant,
    #[serde(default)]
    pub tuned: Option<Variant>,
    /// How long after a deletion its files are gone from the disk, at most, seconds.
    #[serde(default = "ten")]
    pub deletes_within_s: f64,
    /// How long starting, settling and stopping it takes, about, seconds; for plans.
    #[serde(default = "fourteen")]
    pub starts_within_s: f64,
    /// How it provides durability `memory`; absent when it does not.
    #[serde(default)]
    pub memory: Option<Promise>,
    /// How it provides durability `fsync`; absent when it does not.
    #[serde(default)]
    pub fsync: Option<Promise>,
}

fn ten() -> f64 {
    10.0
}

fn one() -> u16 {
    1
}

fn fourteen() -> f64 {
    14.0
}

/// A file of several targets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    target: Vec<Target>,
}

/// Where settings go.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsFile {
    pub variable: String,
    /// With `{name}` and `{value}`.
    pub line: String,
}

/// One way of setting a target up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Said in the report; set by the environment.
    #[serde(default)]
    pub heap: String,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    pub settings: Vec<VariantSetting>,
}

/// A setting and why.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantSetting {
    pub name: String,
    pub value: String,
    pub reason: String,
    /// It is appended to this environment variable as `NAME VALUE` instead of standing in the settings file.
    #[serde(default)]
    pub environment: Option<String>,
    /// It is a further argument of `start`: `NAME VALUE`.
    #[serde(default)]
    pub argument: bool,
}

/// How a durability is provided.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// In the system's own words.
    pub note: String,
    /// Words for the driver.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Lines for the settings file.
    #[serde(default)]
    pub settings: Vec<VariantSetting>,
}

/// What braces stand for.
#[derive(Clone, Debug)]
pub struct Places {
    pub peers: PathBuf,
    pub peers_home: PathBuf,
    pub mainstem: PathBuf,
    pub scratch: PathBuf,
}

impl Target {
    /// Names of the shipped targets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// A shipped target by name, or the only one of a file by its path.
    ///
    /// # Errors
    /// As [`Target::find_all`], or the file has several.
    pub fn find(word: &str) -> Result<Self> {
        let mut found = Self::find_all(word)?;
        ensure!(found.len() == 1, "target file {word} has {} targets: one is wanted here", found.len());
        Ok(found.remove(0))
    }

    /// A shipped target by name, or all of a file by its path.
    ///
    /// # Errors
    /// No such target (the nearest is named), or a mistake in its file.
    pub fn find_all(word: &str) -> Result<Vec<Self>> {
        let text = if word.ends_with(".toml") || word.contains('/') {
            std::fs::read_to_string(word).with_context(|| format!("target file {word}"))?
        } else {
            let found = SHIPPED.iter().find(|(name, _)| *name == word);
            let meant = nearest(Self::names(), word);
            found.with_context(|| format!("no target `{word}`; did you mean `{meant}`?"))?.1.to_owned()
        };
        let parse = || {
            let text = with_free_ports(with_environment(text)?)?;
            let table: toml::Table = toml::from_str(&text)?;
            let all = if table.contains_key("target") {
                toml::from_str::<List>(&text)?.target
            } else {
                vec![toml::from_str(&text)?]
            };
            all.iter().try_for_each(Self::check)?;
            Ok::<_, anyhow::Error>(all)
        };
        parse().with_context(|| format!("target {word}"))
    }

    fn check(&self) -> Result<()> {
        let Self { name, driver, .. } = self;
        // It is part of the names of files and groups.
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        ensure!(
            name.starts_with(|letter: char| letter.is_ascii_alphanumeric())
                && name.len() <= 60
                && name.chars().all(allowed),
            "name `{name}`: begin with a letter or digit, then letters, digits, `-`, `_` and `.`, 60 at most"
        );
        ensure!(!is_again(name), "name `{name}`: names that end in `{AGAIN}` are made by the benchmark");
        ensure!(
            crate::drivers::NAMES.contains(&driver.as_str()),
            "no driver `{driver}`; did you mean `{}`?",
            nearest(crate::drivers::NAMES.into_iter(), driver)
        );
        if let Some(like) = &self.like {
            let meant = nearest(Self::names(), like);
            ensure!(Self::names().any(|name| name == like), "like: no target `{like}`; did you mean `{meant}`?");
        }
        ensure!(
            self.memory.is_some() || self.fsync.is_some(),
            "neither [memory] nor [fsync]: say what its acknowledgements promise"
        );
        Ok(())
    }

    /// The same target again, for the floor of a session.
    pub fn again(&self) -> Self {
        Self { name: format!("{}{AGAIN}", self.name), ..self.clone() }
    }

    /// Whether a list of an experiment means it: by its own name, or that of the shipped target in whose place it stands.
    pub fn is_among(&self, names: &[String]) -> bool {
        let own = self.name.strip_suffix(AGAIN).unwrap_or(&self.name);
        let known = self.known_as(own);
        names.iter().any(|name| name == own || name == known)
    }

    /// The shipped target in whose place one of this name stands.
    fn known_as<'a>(&'a self, own: &'a str) -> &'a str {
        match (&self.like, self.driver.as_str()) {
            (Some(like), _) => like,
            (None, _) if Self::names().any(|name| name == own) => own,
            (None, "amqp") => "rabbitmq",
            // The others are called like their drivers.
            (None, driver) => driver,
        }
    }

    /// How it provides this durability.
    pub fn promise(&self, durability: Durability) -> Option<&Promise> {
        match durability {
            Durability::Memory => self.memory.as_ref(),
            Durability::Fsync => self.fsync.as_ref(),
        }
    }

    /// How long starting, settling and stopping it takes, about.
    pub fn start_time(&self) -> Duration {
        Duration::from_secs_f64(self.starts_within_s.clamp(0.0, 3600.0))
    }

    /// The durability that it must be started with for this one: the same for both where only the driver's words differ.
    pub fn started_for(&self, durability: Durability) -> Durability {
        let named = self.start.iter().any(|word| word.contains("{durability}"));
        let alike =
            |one: &Promise, other: &Promise| one.environment == other.environment && one.settings == other.settings;
        match (&self.memory, &self.fsync) {
            (Some(memory), Some(fsync)) if !named && alike(memory, fsync) => Durability::Memory,
            _ => durability,
        }
    }

    /// Its variants by name, `stock` first.
    pub fn variants(&self) -> Vec<&'static str> {
        if self.tuned.is_some() { vec!["stock", "tuned"] } else { vec!["stock"] }
    }

    /// A variant by name; what it has no own of is stock.
    pub fn variant(&self, name: &str) -> &Variant {
        self.tuned.as_ref().filter(|_| name == "tuned").unwrap_or(&self.stock)
    }

    /// When our own broker was built, seconds since 1970; nothing for any other target.
    pub fn built(&self, places: &Places) -> Option<u64> {
        let ours = self.start.iter().any(|word| word == "{mainstem}");
        let changed =
            ours.then(|| std::fs::metadata(&places.mainstem).and_then(|file| file.modified()).ok()).flatten()?;
        changed.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
    }

    /// All settings that differ from the default, for the report.
    pub fn settings(&self, variant: &str, durability: Durability) -> Vec<Setting> {
        let promised = self.promise(durability).map_or(&[][..], |promise| &promise.settings);
        let all = self.variant(variant).settings.iter().chain(promised);
        all.map(|one| Setting { name: one.name.clone(), value: one.value.clone(), reason: one.reason.clone() })
            .collect()
    }
}

/// The text with each `{port NAME}` replaced.
fn with_free_ports(mut text: String) -> Result<String> {
    while let Some((_, rest)) = text.split_once("{port ") {
        let name = rest.split_once('}').context("`{port` without its end")?.0;
        text = text.replace(&format!("{{port {name}}}"), &free_port()?.to_string());
    }
    Ok(text)
}

/// The text with each `{env NAME}` replaced.
fn with_environment(mut text: String) -> Result<String> {
    while let Some((_, rest)) = text.split_once("{env ") {
        let name = rest.split_once('}').context("`{env` without its end")?.0.to_owned();
        let value = std::env::var(&name).with_context(|| format!("the environment variable {name} is not set"))?;
        ensure!(
            !value.contains("{env ") && !value.contains(['"', '\\', '\n']),
            "{name} has characters that cannot stand in a target file"
        );
        text = text.replace(&format!("{{env {name}}}"), &value);
    }
    Ok(text)
}

/// A port that is free and stays so until the target listens: below those that the system gives to connections,
/// and none twice; each process begins at another.
fn free_port() -> Result<u16> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(61);
    for _ in PORTS {
        let next = first.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (next % u32::from(PORTS.end - PORTS.start)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("all ports from {} to {} are taken", PORTS.start, PORTS.end - 1)
}

impl Places {
    /// A text with its braces replaced.
    pub fn fill(&self, text: &str, durability: Durability) -> String {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        text.replace("{peers}", &path(&self.peers))
            .replace("{peers_home}", &path(&self.peers_home))
            .replace("{mainstem}", &path(&self.mainstem))
            .replace("{data}", &path(&self.scratch.join("data")))
            .replace("{durability}", durability.name())
    }
}

#[cfg(test)]
mod tests;
