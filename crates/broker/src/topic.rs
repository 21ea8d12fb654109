//! A topic: its identity, its logs, and its configuration in force.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use journal::{Compaction, Log, Retention};
use parking_lot::RwLock;
use record::{Compression, Packing};
use types::{Durability, PartitionIndex, TopicId};

use crate::quotas::Account;
use crate::settings::{Settings, TOPIC};

/// What the hot path needs of a topic's settings, decoded.
#[derive(Clone, Debug)]
pub struct TopicConfig {
    /// What was set for this topic, by name.
    pub overrides: BTreeMap<String, String>,
    /// Largest batch, in bytes.
    pub max_message_bytes: usize,
    /// Timestamps are the broker's.
    pub append_time: bool,
    /// How far timestamps may lie in the past and the future, in ms.
    pub timestamp_window_ms: (i64, i64),
    /// Of its logs.
    pub durability: Durability,
    /// Of its logs.
    pub retention: Retention,
    /// Of its logs, when its records need a key.
    pub compaction: Option<Compaction>,
    /// Its records need a key.
    pub compacted: bool,
    /// Its records go by compaction only.
    pub compacted_only: bool,
    /// Bytes that may be produced and fetched in a second.
    pub byte_rates: (Option<u64>, Option<u64>),
    /// What has been taken of these; of a topic's own configuration only.
    quotas: Option<Arc<TopicQuotas>>,
    /// What batches of another codec are packed into.
    pub packing: Option<Packing>,
}

/// The broker setting that gives a topic setting its default.
pub fn broker_name(topic_setting: &str) -> Option<&'static str> {
    Some(match topic_setting {
        "retention.ms" => "log.retention.ms",
        "retention.bytes" => "log.retention.bytes",
        "cleanup.policy" => "log.cleanup.policy",
        "segment.bytes" => "log.segment.bytes",
        "segment.ms" => "log.roll.ms",
        "min.cleanable.dirty.ratio" => "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms" => "log.cleaner.min.compaction.lag.ms",
        "max.compaction.lag.ms" => "log.cleaner.max.compaction.lag.ms",
        "delete.retention.ms" => "log.cleaner.delete.retention.ms",
        "max.message.bytes" => "message.max.bytes",
        "message.timestamp.type" => "log.message.timestamp.type",
        "min.insync.replicas" => "min.insync.replicas",
        "compression.type" => "compression.type",
        "compression.gzip.level" => "compression.gzip.level",
        "compression.zstd.level" => "compression.zstd.level",
        _ => return None,
    })
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Set for the topic.
    Topic,
    /// Set for this node while it ran.
    Node,
    /// Set for all nodes while they ran.
    Cluster,
    /// The broker was configured with it.
    Broker,
    /// Nobody set it.
    Default,
}

impl TopicConfig {
    /// From overrides that have been checked.
    pub fn new(overrides: BTreeMap<String, String>, settings: &Settings, durability: Durability) -> Self {
        let value = |name: &str| effective(&overrides, settings, durability, name).0;
        let int = |name: &str| value(name).parse::<i64>().unwrap_or(i64::MAX);
        let limit = |name: &str| u64::try_from(int(name)).ok();
        let flushes = overrides.get("flush.messages").is_some_and(|count| count == "1");
        let policy = value("cleanup.policy");
        let deletes = policy.split(',').any(|word| word.trim() == "delete");
        let retention = if !deletes {
            Retention::default()
        } else {
            Retention { ms: limit("retention.ms"), bytes: limit("retention.bytes") }
        };
        let compacted = policy.split(',').any(|word| word.trim() == "compact");
        let time = |name: &str| int(name).max(0) as u64;
        let compaction = compacted.then(|| Compaction {
            min_lag_ms: time("min.compaction.lag.ms"),
            max_lag_ms: time("max.compaction.lag.ms"),
            dirty_ratio: value("min.cleanable.dirty.ratio").trim().parse().unwrap_or(1.0),
            delete_retention_ms: time("delete.retention.ms"),
            segment_ms: time("segment.ms"),
            segment_bytes: time("segment.bytes"),
        });
        Self {
            max_message_bytes: int("max.message.bytes").max(0) as usize,
            append_time: value("message.timestamp.type") == "LogAppendTime",
            timestamp_window_ms: (int("message.timestamp.before.max.ms"), int("message.timestamp.after.max.ms")),
            durability: if flushes {
                Durability::Fsync
            } else {
                value("mainstem.durability").parse().unwrap_or(durability)
            },
            retention,
            compaction,
            compacted,
            compacted_only: !deletes && !policy.is_empty(),
            byte_rates: (limit("mainstem.producer.byte.rate"), limit("mainstem.consumer.byte.rate")),
            quotas: None,
            packing: packing(value),
            overrides,
        }
    }
}

/// What `compression.type` and the level of that codec come to.
fn packing(value: impl Fn(&str) -> String) -> Option<Packing> {
    let level = |name: &str| value(name).trim().parse().unwrap_or(-1);
    Some(match value("compression.type").as_str() {
        "uncompressed" => Packing::fast(Compression::None),
        "gzip" => Packing { codec: Compression::Gzip, level: level("compression.gzip.level") },
        "snappy" => Packing::fast(Compression::Snappy),
        "lz4" => Packing::fast(Compression::Lz4),
        "zstd" => Packing { codec: Compression::Zstd, level: level("compression.zstd.level") },
        _ => return None,
    })
}

/// The value of a topic setting in force, and where it comes from.
pub fn effective(
    overrides: &BTreeMap<String, String>,
    settings: &Settings,
    durability: Durability,
    name: &str,
) -> (String, Source) {
    if let Some(value) = overrides.get(name) {
        let row = TOPIC.iter().find(|row| row.name == name);
        return (row.map_or_else(|| value.clone(), |row| row.shown(value)), Source::Topic);
    }
    let default = TOPIC.iter().find(|row| row.name == name).map_or("", |row| row.default);
    if name == "mainstem.durability" {
        let value = durability.to_string();
        let source = if value == default { Source::Default } else { Source::Broker };
        return (value, source);
    }
    if let Some(name) = broker_name(name)
        && let (value, true) = settings.text(name)
    {
        return (value.to_owned(), settings.source(name));
    }
    (default.to_owned(), Source::Default)
}

/// How much may be produced to and fetched from a topic, by all clients together.
#[derive(Debug)]
pub struct TopicQuotas {
    rates: (Option<u64>, Option<u64>),
    /// Bytes produced.
    pub produce: Option<Account>,
    /// Bytes fetched.
    pub fetch: Option<Account>,
}

/// Credit of who uses less than he may.
const CREDIT: Duration = Duration::from_secs(1);

impl TopicQuotas {
    fn new(rates: (Option<u64>, Option<u64>)) -> Option<Arc<Self>> {
        let account =
            |rate: Option<u64>| rate.map(|rate| Account::new(rate.max(1) as f64, CREDIT, false, Instant::now()));
        let (produce, fetch) = (account(rates.0), account(rates.1));
        (produce.is_some() || fetch.is_some()).then(|| Arc::new(Self { rates, produce, fetch }))
    }
}

/// A topic as clients see it.
pub struct Topic {
    /// Its identity.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    logs: RwLock<Arc<[Arc<Log>]>>,
    config: RwLock<Arc<TopicConfig>>,
    /// Compaction keeps the newest record of each key, and none without a key.
    compacted: AtomicBool,
    /// It is a queue that may be full.
    bounded: AtomicBool,
    /// It is a queue that gives its records to AMQP consumers.
    queued: AtomicBool,
    /// It came with a queue and goes with it.
    queue: AtomicBool,
}

impl Topic {
    pub(crate) fn new(id: TopicId, name: String, logs: Vec<Arc<Log>>, config: Arc<TopicConfig>) -> Self {
        let topic = Self {
            id,
            name,
            logs: RwLock::new(Arc::from([])),
            config: RwLock::new(Arc::clone(&config)),
            compacted: AtomicBool::new(false),
            bounded: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            queue: AtomicBool::new(false),
        };
        topic.set_logs(logs);
        topic.set_config(config);
        topic
    }

    /// May it have records without a key? Compaction would remove them.
    pub fn takes_keyless(&self) -> bool {
        !self.compacted.load(Ordering::Relaxed)
    }

    /// Is it a queue that refuses messages when it is full?
    pub fn is_bounded(&self) -> bool {
        self.bounded.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bounded(&self, bounded: bool) {
        self.bounded.store(bounded, Ordering::Relaxed);
    }

    /// Is it a queue that gives its records to AMQP consumers? Streams are none: who reads one passes over what it cannot get.
    pub fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn set_queued(&self, queued: bool) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Do permissions for the queue that it is say who may use it? A topic of its own to which a queue is attached is used by entries where they count, and
    /// otherwise as the queue: what is published there is for those who may read that.
    pub fn is_queue(&self) -> bool {
        self.queue.load(Ordering::Acquire)
    }

    pub(crate) fn set_queue(&self, queue: bool) {
        self.queue.store(queue, Ordering::Release);
    }

    /// Its partitions, in order.
    pub fn logs(&self) -> Arc<[Arc<Log>]> {
        Arc::clone(&self.logs.read())
    }

    /// One partition.
    pub fn log(&self, partition: PartitionIndex) -> Option<Arc<Log>> {
        self.logs.read().get(partition.0 as usize).cloned()
    }

    /// Its configuration.
    pub fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&self.config.read())
    }

    pub(crate) fn set_logs(&self, logs: Vec<Arc<Log>>) {
        *self.logs.write() = logs.into();
    }

    /// Puts a configuration in force for all partitions.
    pub(crate) fn set_config(&self, config: Arc<TopicConfig>) {
        for log in self.logs().iter() {
            log.set_durability(config.durability);
            log.set_retention(config.retention);
            log.set_compaction(config.compaction);
        }
        let mut place = self.config.write();
        self.compacted.store(config.compacted, Ordering::Relaxed);
        *place = if config.byte_rates == (None, None) {
            config
        } else {
            // Topics share configurations, but not what is taken.
            let same = place.quotas.clone().filter(|quotas| quotas.rates == config.byte_rates);
            Arc::new(TopicConfig { quotas: same.or_else(|| TopicQuotas::new(config.byte_rates)), ..(*config).clone() })
        };
    }

    /// How much may be produced and fetched. Asked for only while [`crate::Quotas::limits_topics`].
    pub fn quotas(&self) -> Option<Arc<TopicQuotas>> {
        self.config.read().quotas.clone()
    }
}

#[cfg(test)]
mod tests;
