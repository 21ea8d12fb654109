//! A workload: how many topics, producers and consumers, which messages, at which rate, for how long.
//!
//! The file is YAML. Every field of OpenMessaging Benchmark's workload files is accepted under its own name and with its
//! own meaning and default (`io.openmessaging.benchmark.Workload`); the fields after them are additions. An unknown key is
//! refused with the nearest valid one. Nothing here does I/O but [`Workload::read`] and the payload's loading elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::nearest;

/// The largest number of minutes or seconds that a time may have.
const TIME_MAX: f64 = 1e6;
/// Bytes of the stamp that every message begins with; a message is never shorter.
pub const MESSAGE_BYTES_MIN: u32 = 16;

/// One workload, as read from YAML. Rates are messages a second over all producers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Workload {
    pub name: String,
    pub topics: u32,
    pub partitions_per_topic: u32,
    /// Bytes of a message, its stamp included.
    pub message_size: u32,
    /// Bytes that every message carries, instead of random ones; of `messageSize` bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_file: Option<PathBuf>,
    /// Random payloads with `randomBytesRatio`; without it and without a file they are random too, because zeros would
    /// flatter whoever compresses.
    pub use_randomized_payloads: bool,
    /// Share of random bytes in a payload, 0 to 1; the rest are zeros.
    pub random_bytes_ratio: f64,
    /// Number of different payloads; 0 = chosen by size.
    pub randomized_payload_pool_size: u32,
    pub key_distributor: KeyDistributor,
    pub subscriptions_per_topic: u32,
    pub producers_per_topic: u32,
    pub consumer_per_subscription: u32,
    /// Messages a second, all producers together; 0 = search the highest stable rate.
    pub producer_rate: f64,
    /// 10^9 bytes that are written before consumers begin; 0 = they read along.
    #[serde(rename = "consumerBacklogSizeGB")]
    pub consumer_backlog_size_gb: f64,
    /// Share of the backlog that must be read for the drain to count as finished, 0 to 1.
    pub backlog_drain_ratio: f64,
    pub test_duration_minutes: f64,
    pub warmup_duration_minutes: f64,

    // Additions.
    /// Instead of `testDurationMinutes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_seconds: Option<f64>,
    /// The longest warm-up, instead of `warmupDurationMinutes`; it ends earlier once three windows agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_seconds: Option<f64>,
    /// Length of a warm-up window.
    pub warmup_window_seconds: f64,
    /// How long a rate is watched before it is called stable.
    pub stability_seconds: f64,
    /// How long a rate is watched while the highest stable one is searched, instead of `stabilitySeconds`, which then holds for the run that
    /// confirms it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_seconds: Option<f64>,
    /// How long the target is driven at full speed before anything is measured, at least; 0 = not at all, and then the run is not ranked.
    pub priming_seconds: f64,
    pub durability: Durability,
    /// No schedule: every producer sends as fast as its confirms, its window and its consumers allow. Latency then means
    /// little.
    pub saturate: bool,
    /// Instead of a fixed rate: this share of the slowest target's peak, found before the experiment begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_of_slowest_peak: Option<f64>,
    /// The longest that a client waits for a batch to fill.
    pub linger_ms: f64,
    /// The largest batch that a client makes.
    pub batch_bytes: u32,
    pub confirm: Confirm,
    /// Messages between two waits with `confirm: batch`.
    pub confirm_batch: u32,
    /// Unacknowledged messages of a producer with `confirm: async`; 0 = the client library's own bound.
    pub window: u32,
    /// Threads that send; with `confirm: each` or `batch` every producer has its own.
    pub threads: u32,
    /// Client instances (connections) that producers share, and again those of each subscription.
    pub clients: u32,
    /// Messages survive a restart of the broker, where the protocol leaves the choice (AMQP).
    pub persistent: bool,
    /// Consumers acknowledge, where the protocol leaves the choice (AMQP).
    pub consumer_acks: bool,
    /// Unacknowledged messages that a consumer is sent, where the protocol has it.
    pub prefetch: u32,
    /// AMQP: what the producers publish to.
    pub exchange_type: ExchangeType,
    /// AMQP: queues bound to the exchange, beyond those that are read.
    pub bound_queues: u32,
    /// Share of the messages that each of `filterSubscriptions` wants; messages are of as many classes.
    pub filter_selectivity: f64,
    /// The last so many of a topic's subscriptions want one class only.
    pub filter_subscriptions: u32,
    /// They read the first so many topics; 0 = all.
    pub filter_topics: u32,
    /// The broker selects for them, where the target can; otherwise their clients do.
    pub filter_on_server: bool,
    /// Memory of the broker, page cache included, where a cgroup can be had; 0 = the target's own default.
    pub memory_limit_mb: u64,
    /// Settings of the target for this workload alone, by target name: broker flags, as its file allows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broker_arguments: Vec<String>,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            name: String::new(),
            topics: 1,
            partitions_per_topic: 1,
            message_size: 1024,
            payload_file: None,
            use_randomized_payloads: false,
            random_bytes_ratio: 1.0,
            randomized_payload_pool_size: 0,
            key_distributor: KeyDistributor::NoKey,
            subscriptions_per_topic: 1,
            producers_per_topic: 1,
            consumer_per_subscription: 1,
            producer_rate: 0.0,
            consumer_backlog_size_gb: 0.0,
            backlog_drain_ratio: 1.0,
            test_duration_minutes: 5.0,
            warmup_duration_minutes: 1.0,
            test_seconds: None,
            warmup_seconds: None,
            warmup_window_seconds: 5.0,
            stability_seconds: 20.0,
            search_seconds: None,
            priming_seconds: 30.0,
            durability: Durability::Memory,
            saturate: false,
            rate_of_slowest_peak: None,
            linger_ms: 1.0,
            batch_bytes: 1_000_000,
            confirm: Confirm::Async,
            confirm_batch: 100,
            window: 0,
            threads: 2,
            clients: 4,
            persistent: true,
            consumer_acks: true,
            prefetch: 500,
            exchange_type: ExchangeType::Default,
            bound_queues: 0,
            filter_selectivity: 1.0,
            filter_subscriptions: 0,
            filter_topics: 0,
            filter_on_server: true,
            memory_limit_mb: 0,
            broker_arguments: Vec::new(),
        }
    }
}

/// Which key a message has. OpenMessaging's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum KeyDistributor {
    NoKey,
    KeyRoundRobin,
    RandomNano,
}

/// When an acknowledgement counts; experiments.md's durability parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Written, not flushed.
    #[default]
    Memory,
    /// On stable storage.
    Fsync,
}

impl Durability {
    /// As in YAML and in target files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Fsync => "fsync",
        }
    }
}

/// How a producer waits for confirms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confirm {
    /// After each message.
    Each,
    /// After `confirmBatch` messages, for all of them.
    Batch,
    /// Never, up to `window` unacknowledged ones.
    Async,
}

/// What AMQP producers publish to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExchangeType {
    Default,
    Direct,
    Topic,
    Fanout,
    Headers,
}

impl Workload {
    /// Reads a workload file. A payload file is looked for beside it, one folder up (OpenMessaging's layout) and in the
    /// working folder.
    ///
    /// # Errors
    /// What is wrong, with file, key and the nearest valid key.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("workload {}", path.display()))?;
        let mut workload = Self::parse(&text).with_context(|| format!("workload {}", path.display()))?;
        if workload.name.is_empty() {
            workload.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        }
        if let Some(file) = &workload.payload_file {
            let beside = path.parent().unwrap_or(Path::new("."));
            let places = [file.clone(), beside.join(file), beside.join("..").join(file)];
            if let Some(found) = places.into_iter().find(|place| place.is_file()) {
                workload.payload_file = Some(found);
            }
        }
        Ok(workload)
    }

    /// Parses and checks.
    ///
    /// # Errors
    /// An unknown key with the nearest valid one, a value of the wrong kind, or one out of range.
    pub fn parse(text: &str) -> Result<Self> {
        let table: serde_yaml_ng::Mapping = serde_yaml_ng::from_str(text).context("not a YAML mapping")?;
        Self::default().with(&table)
    }

    /// This workload with some keys replaced, checked.
    ///
    /// # Errors
    /// As [`Workload::parse`].
    pub fn with(&self, changes: &serde_yaml_ng::Mapping) -> Result<Self> {
        let Ok(serde_yaml_ng::Value::Mapping(mut all)) = serde_yaml_ng::to_value(self) else {
            bail!("a workload is a mapping")
        };
        let optional =
            ["payloadFile", "testSeconds", "warmupSeconds", "searchSeconds", "rateOfSlowestPeak", "brokerArguments"];
        let known: Vec<String> = all.keys().filter_map(|key| key.as_str()).chain(optional).map(str::to_owned).collect();
        for (key, value) in changes {
            let name = key.as_str().context("keys are words")?;
            if !known.iter().any(|known| known == name) {
                bail!("unknown key `{name}`; did you mean `{}`?", nearest(known.iter().map(String::as_str), name));
            }
            all.insert(key.clone(), value.clone());
        }
        let changed: Self = serde_yaml_ng::from_value(serde_yaml_ng::Value::Mapping(all))?;
        changed.check()?;
        Ok(changed)
    }

    /// Whether every value is in its range.
    ///
    /// # Errors
    /// The first that is not, with what would be right.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.message_size >= MESSAGE_BYTES_MIN,
            "messageSize is {}: at least {MESSAGE_BYTES_MIN} bytes, which hold the stamp that latency is read from",
            self.message_size
        );
        for (name, value) in [
            ("topics", self.topics),
            ("partitionsPerTopic", self.partitions_per_topic),
            ("producersPerTopic", self.producers_per_topic),
            ("threads", self.threads),
            ("clients", self.clients),
            ("confirmBatch", self.confirm_batch),
            ("prefetch", self.prefetch),
        ] {
            ensure!(value > 0, "{name} is 0: at least 1");
        }
        for (name, value) in [
            ("randomBytesRatio", self.random_bytes_ratio),
            ("backlogDrainRatio", self.backlog_drain_ratio),
            ("filterSelectivity", self.filter_selectivity),
        ] {
            ensure!((0.0..=1.0).contains(&value), "{name} is {value}: from 0 to 1");
        }
        for (name, value) in [
            ("producerRate", self.producer_rate),
            ("consumerBacklogSizeGB", self.consumer_backlog_size_gb),
            ("lingerMs", self.linger_ms),
        ] {
            ensure!(value >= 0.0 && value.is_finite(), "{name} is {value}: at least 0");
        }
        for (name, value, least) in [
            ("testDurationMinutes", self.test_duration_minutes, 0.0),
            ("warmupDurationMinutes", self.warmup_duration_minutes, 0.0),
            ("testSeconds", self.test_seconds.unwrap_or(0.0), 0.0),
            ("warmupSeconds", self.warmup_seconds.unwrap_or(0.0), 0.0),
            ("primingSeconds", self.priming_seconds, 0.0),
            ("warmupWindowSeconds", self.warmup_window_seconds, 1.0),
            ("stabilitySeconds", self.stability_seconds, 3.0),
            ("searchSeconds", self.search_seconds.unwrap_or(3.0), 3.0),
        ] {
            ensure!((least..=TIME_MAX).contains(&value), "{name} is {value}: from {least} to {TIME_MAX}");
        }
        for (name, value, of, most) in [
            ("filterSubscriptions", self.filter_subscriptions, "subscriptionsPerTopic", self.subscriptions_per_topic),
            ("filterTopics", self.filter_topics, "topics", self.topics),
        ] {
            ensure!(value <= most, "{name} is {value}: at most {of}, which is {most}");
        }
        ensure!(
            self.filter_subscriptions == 0 || (0.001..1.0).contains(&self.filter_selectivity),
            "filterSelectivity is {}: with filterSubscriptions it is from 0.001 to below 1",
            self.filter_selectivity
        );
        ensure!(
            self.filter_subscriptions == 0 || self.key_distributor == KeyDistributor::NoKey,
            "keyDistributor: with filterSubscriptions the key is the class of a message"
        );
        let closed = self.confirm != Confirm::Async;
        ensure!(
            !closed || self.producers() <= crate::outcome::ACCOUNTS_MAX,
            "{} producers that wait for their confirms: at most {}",
            self.producers(),
            crate::outcome::ACCOUNTS_MAX
        );
        Ok(())
    }

    /// Producers over all topics.
    pub fn producers(&self) -> usize {
        self.topics as usize * self.producers_per_topic as usize
    }

    /// How long it is measured.
    pub fn test_time(&self) -> Duration {
        Duration::from_secs_f64(self.test_seconds.unwrap_or(self.test_duration_minutes * 60.0))
    }

    /// How long a rate is watched before it is called stable.
    pub fn watch_time(&self) -> Duration {
        Duration::from_secs_f64(self.stability_seconds)
    }

    /// How long a rate is watched in a search.
    pub fn trial_time(&self) -> Duration {
        Duration::from_secs_f64(self.search_seconds.unwrap_or(self.stability_seconds))
    }

    /// The longest warm-up.
    pub fn warmup_time(&self) -> Duration {
        Duration::from_secs_f64(self.warmup_seconds.unwrap_or(self.warmup_duration_minutes * 60.0))
    }

    /// The same as a load that primes: at full speed, whatever rate is asked for.
    pub fn at_full_speed(&self) -> Self {
        Self {
            saturate: true,
            producer_rate: 0.0,
            consumer_backlog_size_gb: 0.0,
            rate_of_slowest_peak: None,
            ..self.clone()
        }
    }

    /// Whether a rate is searched for.
    pub fn searches(&self) -> bool {
        self.producer_rate == 0.0 && !self.saturate
    }

    /// The same within so many seconds, for a look rather than a figure: measuring, warming up and watching are cut,
    /// and a backlog is made smaller in the same proportion.
    ///
    /// # Errors
    /// So many seconds are out of range.
    pub fn within(mut self, seconds: f64) -> Result<Self> {
        ensure!(seconds > 0.0 && seconds <= TIME_MAX, "--seconds is {seconds}: above 0 and up to {TIME_MAX}");
        let share = seconds / self.test_time().as_secs_f64().max(seconds);
        self.test_seconds = Some(seconds);
        self.warmup_seconds = Some(self.warmup_time().as_secs_f64().min(seconds));
        self.warmup_window_seconds = (seconds / 3.0).clamp(1.0, self.warmup_window_seconds);
        self.stability_seconds = self.stability_seconds.min(seconds.max(3.0));
        self.search_seconds = self.search_seconds.map(|watch| watch.min(self.stability_seconds));
        self.priming_seconds = self.priming_seconds.min(seconds);
        self.consumer_backlog_size_gb *= share;
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
