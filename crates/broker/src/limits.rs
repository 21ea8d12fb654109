//! How many of a thing there may be: the setting that says it, how many there are, and how often somebody was refused for it. Those of
//! virtual hosts and users are kept with them (`queues/parameters.rs`, `security/user.rs`); here they are counted and shown.
//!
//! Whoever makes a thing asks [`Broker::enforce_limit`] before, on the controller's thread where the thing is in the catalog. A limit that is
//! lowered below what there is refuses what is new and takes nothing away. After a start everything is there again, whatever the limits say.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Broker;
use crate::settings::Settings;

/// Of the memory budget for each partition: it takes about half of that, without what is known of its producers and readers.
const PARTITION_BYTES: usize = 1024;
/// What a queue takes, and a channel, about; and their parts of the budget.
const QUEUE_BYTES: usize = 1536;
const QUEUES_SHARE: usize = 2;
const CHANNEL_BYTES: usize = 1024;
const CHANNELS_SHARE: usize = 8;
/// Virtual hosts, and users, of which limits are told; those behind them in the alphabet are not.
const TOLD_MAX: usize = 1000;

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Connections of the node, whatever they speak.
    Connections,
    /// Those of one address.
    ConnectionsOfAddress,
    /// Those of whom it is not known who they are.
    Strangers,
    /// Those of one address of whom it is not known who they are.
    StrangersOfAddress,
    /// AMQP channels of all connections.
    Channels,
    /// AMQP channels of one connection.
    ChannelsOfConnection,
    /// Consumers of one AMQP channel.
    ConsumersOfChannel,
    /// Queues of all virtual hosts.
    Queues,
    /// Exchanges of all virtual hosts.
    Exchanges,
    /// Virtual hosts.
    Vhosts,
    /// Topics, and queues that are topics.
    Topics,
    /// Their partitions.
    Partitions,
    /// Bytes of an AMQP message's body.
    MessageBytes,
    /// Bytes of a Kafka client's batch.
    BatchBytes,
    /// Connections of a virtual host.
    VhostConnections,
    /// Queues of a virtual host.
    VhostQueues,
    /// Connections of a user.
    UserConnections,
    /// AMQP channels of a user.
    UserChannels,
}

impl LimitKind {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Connections,
        Self::ConnectionsOfAddress,
        Self::Strangers,
        Self::StrangersOfAddress,
        Self::Channels,
        Self::ChannelsOfConnection,
        Self::ConsumersOfChannel,
        Self::Queues,
        Self::Exchanges,
        Self::Vhosts,
        Self::Topics,
        Self::Partitions,
        Self::MessageBytes,
        Self::BatchBytes,
        Self::VhostConnections,
        Self::VhostQueues,
        Self::UserConnections,
        Self::UserChannels,
    ];

    /// The setting that says it; of virtual hosts and users what RabbitMQ calls it, behind whose it is.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "max.connections",
            Self::ConnectionsOfAddress => "max.connections.per.ip",
            Self::Strangers => "mainstem.unauthenticated.connections",
            Self::StrangersOfAddress => "mainstem.unauthenticated.connections.per.ip",
            Self::Channels => "channel_max_per_node",
            Self::ChannelsOfConnection => "channel_max",
            Self::ConsumersOfChannel => "consumer_max_per_channel",
            Self::Queues => "cluster_queue_limit",
            Self::Exchanges => "cluster_exchange_limit",
            Self::Vhosts => "vhost_max",
            Self::Topics => "mainstem.max.topics",
            Self::Partitions => "mainstem.max.partitions",
            Self::MessageBytes => "max_message_size",
            Self::BatchBytes => "message.max.bytes",
            Self::VhostConnections => "vhost.max-connections",
            Self::VhostQueues => "vhost.max-queues",
            Self::UserConnections => "user.max-connections",
            Self::UserChannels => "user.max-channels",
        }
    }

    /// What there may be so many of, in words.
    fn things(self) -> &'static str {
        match self {
            Self::Connections | Self::ConnectionsOfAddress | Self::Strangers | Self::StrangersOfAddress => {
                "connections"
            }
            Self::VhostConnections | Self::UserConnections => "connections",
            Self::Channels | Self::ChannelsOfConnection | Self::UserChannels => "channels",
            Self::ConsumersOfChannel => "consumers",
            Self::Queues | Self::VhostQueues => "queues",
            Self::Exchanges => "exchanges",
            Self::Vhosts => "virtual hosts",
            Self::Topics => "topics",
            Self::Partitions => "partitions",
            Self::MessageBytes | Self::BatchBytes => "bytes",
        }
    }

    /// Is it a setting of the node?
    pub fn is_setting(self) -> bool {
        !matches!(self, Self::VhostConnections | Self::VhostQueues | Self::UserConnections | Self::UserChannels)
    }
}

/// There are as many as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The node may have {limit} {} and no more ({}).", kind.things(), kind.name())]
pub struct LimitReached {
    /// Of what.
    pub kind: LimitKind,
    /// As many.
    pub limit: u64,
}

/// A limit of a virtual host or a user, and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLimit {
    /// The virtual host or the user.
    pub of: String,
    /// What.
    pub kind: LimitKind,
    /// At most so many.
    pub limit: u64,
    /// So many there are.
    pub used: u64,
}

/// What is counted as it happens, and what is asked for too often to look it up.
#[derive(Debug)]
pub struct Limits {
    refused: [AtomicU64; LimitKind::ALL.len()],
    message_bytes: AtomicU64,
    /// As many partitions, queues and channels as the memory budget has room for.
    partitions_in_memory: AtomicU64,
    queues_in_memory: AtomicU64,
    channels_in_memory: AtomicU64,
}

impl Limits {
    pub(crate) fn new(settings: &Settings) -> Self {
        let all = || AtomicU64::new(u64::MAX);
        let limits = Self {
            refused: Default::default(),
            message_bytes: AtomicU64::default(),
            partitions_in_memory: all(),
            queues_in_memory: all(),
            channels_in_memory: all(),
        };
        limits.follow(settings);
        limits
    }

    /// Other settings are in force.
    pub(crate) fn follow(&self, settings: &Settings) {
        self.message_bytes.store(value(settings, LimitKind::MessageBytes), Ordering::Relaxed);
    }

    /// Partitions, queues and channels take memory as long as they are there, whether they are used or not: with so much in all there are so many.
    pub fn bound_by_memory(&self, memory_budget: usize) {
        self.partitions_in_memory.store((memory_budget / PARTITION_BYTES) as u64, Ordering::Relaxed);
        self.queues_in_memory.store((memory_budget / QUEUES_SHARE / QUEUE_BYTES) as u64, Ordering::Relaxed);
        self.channels_in_memory.store((memory_budget / CHANNELS_SHARE / CHANNEL_BYTES) as u64, Ordering::Relaxed);
    }

    /// Bytes of an AMQP message's body, at most.
    pub fn message_bytes_max(&self) -> u64 {
        self.message_bytes.load(Ordering::Relaxed)
    }

    /// Somebody was refused.
    pub fn note_refusal(&self, kind: LimitKind) {
        self.refused[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often somebody was refused since the start.
    pub fn refused(&self, kind: LimitKind) -> u64 {
        self.refused[kind as usize].load(Ordering::Relaxed)
    }
}

fn value(settings: &Settings, kind: LimitKind) -> u64 {
    settings.int(kind.name()).unsigned_abs()
}

impl Broker {
    /// Refusals, and what is asked for often.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A limit of the node in force: of partitions, queues and channels, what the memory budget has room for, if that is less.
    ///
    /// # Panics
    /// When it is one of virtual hosts or users.
    pub fn limit(&self, kind: LimitKind) -> u64 {
        let limit = value(&self.live_settings(), kind);
        match kind {
            // Names and settings of topics take of the same memory.
            LimitKind::Partitions => {
                let texts = (self.catalog.text_bytes() / PARTITION_BYTES) as u64;
                limit.min(self.limits.partitions_in_memory.load(Ordering::Relaxed).saturating_sub(texts))
            }
            LimitKind::Queues => limit.min(self.limits.queues_in_memory.load(Ordering::Relaxed)),
            LimitKind::Channels => limit.min(self.limits.channels_in_memory.load(Ordering::Relaxed)),
            _ => limit,
        }
    }

    /// How many there are; `None`: the broker does not count them, or it is a limit for each of several.
    pub fn limit_use(&self, kind: LimitKind) -> Option<u64> {
        match kind {
            LimitKind::Channels => Some(self.security.seats().channels().into()),
            LimitKind::Queues => Some(self.vhosts.queue_count() as u64),
            LimitKind::Exchanges => Some(self.vhosts.exchange_count() as u64),
            LimitKind::Vhosts => Some(self.vhosts.count() as u64),
            LimitKind::Topics => Some(self.catalog.topic_count() as u64),
            LimitKind::Partitions => Some(self.catalog.partition_count() as u64),
            _ => None,
        }
    }

    /// As many partitions as would take so many bytes of memory.
    pub(crate) fn partitions_for(bytes: usize) -> u64 {
        (bytes / PARTITION_BYTES) as u64
    }

    /// May there be `more` beside those that there are?
    ///
    /// # Errors
    /// The limit, which would be exceeded.
    pub fn check_limit(&self, kind: LimitKind, more: u64) -> Result<(), LimitReached> {
        let limit = self.limit(kind);
        let there = self.limit_use(kind).unwrap_or(0);
        if there.saturating_add(more) <= limit { Ok(()) } else { Err(LimitReached { kind, limit }) }
    }

    /// The same of what is about to be made: a refusal is counted.
    ///
    /// # Errors
    /// The limit, which would be exceeded.
    pub(crate) fn enforce_limit(&self, kind: LimitKind, more: u64) -> Result<(), LimitReached> {
        self.check_limit(kind, more).inspect_err(|reached| self.limits.note_refusal(reached.kind))
    }

    /// Limits of virtual hosts and users that have some, the first thousand of each by name.
    pub fn own_limits(&self) -> Vec<OwnLimit> {
        let mut found = Vec::new();
        for vhost in self.vhosts.all().into_iter().filter(|vhost| vhost.has_limits()).take(TOLD_MAX) {
            for (kind, limit, used) in vhost.limits_in_force() {
                found.push(OwnLimit { of: vhost.name().to_owned(), kind, limit, used });
            }
        }
        for user in self.security.users().into_iter().filter(|user| user.limits() != Default::default()).take(TOLD_MAX)
        {
            let (limits, (connections, channels)) = (user.limits(), self.security.seats().used_by(user.name()));
            let mut tell = |kind, limit: Option<u32>, used: u32| {
                found.extend(limit.map(|limit| OwnLimit {
                    of: user.name().to_owned(),
                    kind,
                    limit: limit.into(),
                    used: used.into(),
                }));
            };
            tell(LimitKind::UserConnections, limits.max_connections, connections);
            tell(LimitKind::UserChannels, limits.max_channels, channels);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{BROKER, find};

    #[test]
    fn a_limit_of_the_node_is_a_setting_that_changes_while_it_runs() {
        for (at, kind) in LimitKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{kind:?}");
            assert_eq!(find(BROKER, kind.name()).is_ok(), kind.is_setting(), "{kind:?}");
            assert_eq!(crate::DYNAMIC.contains(&kind.name()), kind.is_setting(), "{kind:?}");
        }
        let text = LimitReached { kind: LimitKind::Topics, limit: 3 }.to_string();
        assert_eq!(text, "The node may have 3 topics and no more (mainstem.max.topics).");
    }

    #[test]
    fn refusals_are_counted_and_the_size_of_messages_follows_the_settings() {
        let mut settings = Settings::default();
        let limits = Limits::new(&settings);
        assert_eq!(limits.message_bytes_max(), 16_777_216);
        settings.set("max_message_size", "1000").expect("possible");
        limits.follow(&settings);
        assert_eq!(limits.message_bytes_max(), 1000);
        limits.note_refusal(LimitKind::Queues);
        assert_eq!((limits.refused(LimitKind::Queues), limits.refused(LimitKind::Topics)), (1, 0));
    }
}
