//! Settings of the broker that change while it runs: those of [`DYNAMIC`]; all others wait for the next start. Two things change them: the
//! configuration is read again, or somebody sets one, for this node or for all nodes of the cluster. What is set for the node goes before
//! what is set for all, that before what is configured; it stays until it is unset, and is kept as a record of the journal's state for each
//! of the two. All of it happens on the controller's thread.
//!
//! Who needs a setting of [`DYNAMIC`] asks [`Broker::live_settings`] each time, or is told in `settings_changed`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use journal::AppendItem;
use parking_lot::RwLock;

use crate::Broker;
use crate::admin::AlterError;
use crate::overrides::{self, Overrides};
use crate::settings::{BROKER, SettingError, Settings, find};
use crate::topic::Source;

/// Settings that count as soon as they are changed.
pub const DYNAMIC: &[&str] = &[
    "num.partitions",
    "auto.create.topics.enable",
    "log.retention.ms",
    "log.retention.bytes",
    "log.cleanup.policy",
    "log.segment.bytes",
    "log.roll.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.delete.retention.ms",
    "message.max.bytes",
    "log.message.timestamp.type",
    "min.insync.replicas",
    "compression.type",
    "compression.gzip.level",
    "compression.zstd.level",
    "max.connections",
    "max.connections.per.ip",
    "mainstem.unauthenticated.connections",
    "mainstem.unauthenticated.connections.per.ip",
    "channel_max",
    "channel_max_per_node",
    "consumer_max_per_channel",
    "cluster_queue_limit",
    "cluster_exchange_limit",
    "vhost_max",
    "max_message_size",
    "mainstem.max.topics",
    "mainstem.max.partitions",
    "mainstem.queue.consumer.timeout.ms",
    "mainstem.shutdown.timeout.ms",
];

/// The record of what is set for this node: u8 version, then as `overrides.rs` has it.
pub(crate) const SETTINGS_KEY: &[u8] = b"msettings";
/// The same of what is set for all nodes.
pub(crate) const CLUSTER_SETTINGS_KEY: &[u8] = b"mdefaults";
const VERSION: u8 = 1;

/// For whom a setting is set while brokers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingScope {
    /// For all nodes of the cluster.
    Cluster,
    /// For this one.
    Node,
}

/// What is in force, and where it is from.
pub(crate) struct Live {
    inner: RwLock<Layers>,
}

struct Layers {
    in_force: Arc<Settings>,
    /// By flags, environment and file, as they were read last.
    configured: Arc<Settings>,
    /// Set while the broker ran.
    set: SetWhileRunning,
}

/// What was set for all nodes, and for this one.
#[derive(Clone, Default)]
struct SetWhileRunning {
    cluster: Arc<Overrides>,
    node: Arc<Overrides>,
}

impl SetWhileRunning {
    fn of(&self, scope: SettingScope) -> &Arc<Overrides> {
        match scope {
            SettingScope::Cluster => &self.cluster,
            SettingScope::Node => &self.node,
        }
    }

    fn put(&mut self, scope: SettingScope, overrides: Overrides) {
        match scope {
            SettingScope::Cluster => self.cluster = Arc::new(overrides),
            SettingScope::Node => self.node = Arc::new(overrides),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.cluster.contains_key(name) || self.node.contains_key(name)
    }

    /// What is in force with these values before those that are configured.
    fn over(&self, configured: &Settings) -> Result<Settings, SettingError> {
        let mut settings = configured.clone();
        self.cluster.iter().try_for_each(|(name, value)| settings.change(name, value, Source::Cluster))?;
        self.node.iter().try_for_each(|(name, value)| settings.change(name, value, Source::Node))?;
        settings.check()?;
        let lag = |name| settings.int(name);
        if lag("log.cleaner.min.compaction.lag.ms") > lag("log.cleaner.max.compaction.lag.ms") {
            let (name, value) =
                ("log.cleaner.min.compaction.lag.ms", lag("log.cleaner.min.compaction.lag.ms").to_string());
            return Err(refused(name, &value, "it is at most log.cleaner.max.compaction.lag.ms"));
        }
        Ok(settings)
    }
}

impl Live {
    pub fn new(settings: &Settings) -> Self {
        let settings = Arc::new(settings.clone());
        Self {
            inner: RwLock::new(Layers {
                in_force: Arc::clone(&settings),
                configured: settings,
                set: SetWhileRunning::default(),
            }),
        }
    }

    fn put(&self, in_force: Settings, set: SetWhileRunning) {
        let mut layers = self.inner.write();
        (layers.in_force, layers.set) = (Arc::new(in_force), set);
    }
}

/// What became of settings that were read again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// In force from now on, with their new values.
    pub changed: Vec<(&'static str, String)>,
    /// Of these other values were read, which wait for the next start.
    pub waiting: Vec<&'static str>,
    /// Of these other values were read, but what was set while the broker ran goes before them.
    pub overruled: Vec<&'static str>,
}

fn refused(name: &str, value: &str, expected: &str) -> SettingError {
    SettingError { name: name.to_owned(), value: Some(value.to_owned()), expected: expected.to_owned() }
}

/// Is it one that may change while the broker runs?
fn check_dynamic(name: &str, value: Option<&str>) -> Result<(), SettingError> {
    let row = find(BROKER, name)?;
    if !DYNAMIC.contains(&row.name) {
        let value = value.filter(|value| !value.is_empty()).unwrap_or("default");
        return Err(refused(name, value, "it counts from the start: change it in the configuration and restart"));
    }
    value.map_or(Ok(()), |value| row.check(value))
}

impl Broker {
    /// The settings in force, as of now.
    pub fn live_settings(&self) -> Arc<Settings> {
        Arc::clone(&self.live.inner.read().in_force)
    }

    /// What was set while the broker ran.
    pub fn dynamic_settings(&self, scope: SettingScope) -> Arc<BTreeMap<String, String>> {
        Arc::clone(self.live.inner.read().set.of(scope))
    }

    /// All values that a setting has been given, and its default; that which counts comes first.
    ///
    /// # Panics
    /// When there is no such setting.
    pub fn values_of_setting(&self, name: &'static str) -> Vec<(String, Source)> {
        let layers = self.live.inner.read();
        let set = |overrides: &Overrides, source| overrides.get(name).map(|value| (value.clone(), source));
        let configured = Some(layers.configured.text(name))
            .filter(|(_, set)| *set)
            .map(|(value, _)| (value.to_owned(), Source::Broker));
        let default = BROKER.iter().find(|row| row.name == name).map(|row| (row.default.to_owned(), Source::Default));
        let (node, cluster) = (set(&layers.set.node, Source::Node), set(&layers.set.cluster, Source::Cluster));
        [node, cluster, configured, default].into_iter().flatten().collect()
    }

    /// What would be in force with these values before those that are configured.
    fn with(&self, set: &SetWhileRunning) -> Result<Settings, SettingError> {
        let configured = Arc::clone(&self.live.inner.read().configured);
        set.over(&configured)
    }

    /// Takes over what may change of a configuration that was read again. On the controller's thread.
    ///
    /// # Errors
    /// What does not fit with what was set while the broker ran; nothing has changed then.
    pub fn change_settings(&self, fresh: &Settings) -> Result<SettingsChange, SettingError> {
        let (before, configured, set) = {
            let layers = self.live.inner.read();
            (Arc::clone(&layers.in_force), Arc::clone(&layers.configured), layers.set.clone())
        };
        let (mut next, mut change) = ((*configured).clone(), SettingsChange::default());
        for name in BROKER.iter().map(|row| row.name) {
            let (value, _) = fresh.text(name);
            if value == configured.text(name).0 {
                continue;
            }
            if !DYNAMIC.contains(&name) {
                change.waiting.push(name);
                continue;
            }
            next.set(name, value)?;
            match set.has(name) {
                true => change.overruled.push(name),
                false => change.changed.push((name, value.to_owned())),
            }
        }
        let settings = set.over(&next)?;
        let differs = BROKER.iter().any(|row| settings.text(row.name).0 != before.text(row.name).0);
        {
            let mut layers = self.live.inner.write();
            (layers.in_force, layers.configured) = (Arc::new(settings), Arc::new(next));
        }
        if differs {
            self.settings_changed();
        }
        Ok(change)
    }

    /// What is set after this change, as [`Broker::alter_settings`] makes it.
    fn altered(&self, changes: &[(String, Option<String>)]) -> Result<SetWhileRunning, SettingError> {
        let mut set = self.live.inner.read().set.clone();
        let (mut cluster, mut node) = ((*set.cluster).clone(), (*set.node).clone());
        for (name, value) in changes {
            check_dynamic(name, value.as_deref())?;
            match value {
                Some(value) => drop(node.insert(name.clone(), value.trim().to_owned())),
                None => drop((node.remove(name), cluster.remove(name))),
            }
        }
        set.put(SettingScope::Cluster, cluster);
        set.put(SettingScope::Node, node);
        self.with(&set)?;
        Ok(set)
    }

    /// Would this change be taken?
    ///
    /// # Errors
    /// The first setting that is unknown, impossible, or counts from the next start only.
    pub fn check_settings(&self, changes: &[(String, Option<String>)]) -> Result<(), SettingError> {
        self.altered(changes).map(drop)
    }

    /// Changes settings of this node, all or none. `None` for a value: what the broker was started with counts again, whatever was set for
    /// this node or for all. On the controller's thread.
    ///
    /// # Errors
    /// As [`Broker::check_settings`]; `Append`.
    pub fn alter_settings(&self, changes: &[(String, Option<String>)]) -> Result<(), AlterError> {
        let set = self.altered(changes)?;
        self.keep(set)
    }

    fn replaced(
        &self,
        scope: SettingScope,
        overrides: &BTreeMap<String, String>,
    ) -> Result<SetWhileRunning, SettingError> {
        overrides.iter().try_for_each(|(name, value)| check_dynamic(name, Some(value)))?;
        let mut set = self.live.inner.read().set.clone();
        set.put(scope, overrides.iter().map(|(name, value)| (name.clone(), value.trim().to_owned())).collect());
        self.with(&set)?;
        Ok(set)
    }

    /// Would these be taken in place of all that was set for the node or the cluster?
    ///
    /// # Errors
    /// As [`Broker::check_settings`].
    pub fn check_replaced_settings(
        &self,
        scope: SettingScope,
        overrides: &BTreeMap<String, String>,
    ) -> Result<(), SettingError> {
        self.replaced(scope, overrides).map(drop)
    }

    /// Sets these in place of all that was set for the node or the cluster. On the controller's thread.
    ///
    /// # Errors
    /// As [`Broker::check_settings`]; `Append`.
    pub fn replace_settings(
        &self,
        scope: SettingScope,
        overrides: &BTreeMap<String, String>,
    ) -> Result<(), AlterError> {
        let set = self.replaced(scope, overrides)?;
        self.keep(set)
    }

    /// Makes durable what is set, and puts it in force.
    fn keep(&self, set: SetWhileRunning) -> Result<(), AlterError> {
        let settings = self.with(&set)?;
        let before = self.live.inner.read().set.clone();
        let mut items = Vec::new();
        for (scope, key) in [(SettingScope::Node, SETTINGS_KEY), (SettingScope::Cluster, CLUSTER_SETTINGS_KEY)] {
            let overrides = set.of(scope);
            if overrides != before.of(scope) {
                items.push(AppendItem::State {
                    key: Bytes::from_static(key),
                    value: (!overrides.is_empty()).then(|| encode(overrides)),
                });
            }
        }
        if items.is_empty() {
            return Ok(());
        }
        self.commit(0, items)?;
        self.live.put(settings, set);
        self.settings_changed();
        Ok(())
    }

    /// Topics that do not say otherwise have the new defaults.
    fn settings_changed(&self) {
        self.limits.follow(&self.live_settings());
        self.vhosts.configs.lock().clear();
        for topic in self.topics() {
            let before = topic.config();
            // The class of a log is no setting that changes here: where the topic does not say it, it stays.
            topic.set_config(self.topic_config(before.overrides.clone(), before.durability));
        }
        self.journals.iter().for_each(|journal| journal.check_retention());
    }

    /// Takes a record at the start; false: it is of another version, or damaged. A value that is not possible any more is passed
    /// over: the broker was started with another. What is taken counts with [`Broker::settle_settings`].
    pub(crate) fn restore_settings(&self, scope: SettingScope, mut value: &[u8]) -> bool {
        let known =
            value.try_get_u8().ok().filter(|version| *version == VERSION).and_then(|_| overrides::decode(&mut value));
        let Some(mut overrides) = known else { return false };
        overrides.retain(|name, value| {
            let taken = check_dynamic(name, Some(value)).is_ok();
            if !taken {
                tracing::warn!(
                    name,
                    value,
                    "a setting that was changed while the broker ran is not possible any more: that of the start counts"
                );
            }
            taken
        });
        self.live.inner.write().set.put(scope, overrides);
        true
    }

    /// All records have been taken at the start.
    pub(crate) fn settle_settings(&self) {
        let set = self.live.inner.read().set.clone();
        match self.with(&set) {
            Ok(settings) => {
                self.limits.follow(&settings);
                self.live.put(settings, set);
            }
            Err(error) => {
                tracing::warn!(%error, "settings that were changed while the broker ran do not fit those of the start, which count");
                self.live.inner.write().set = SetWhileRunning::default();
            }
        }
    }
}

fn encode(overrides: &Overrides) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    overrides::encode(overrides, &mut out);
    out.freeze()
}
