//! Settings of the broker that change while it runs. What is set so goes before what the broker was started with, and stays until it is
//! unset. Kept as one record of the journal's state; changed on the controller's thread, durable before it counts.
//!
//! Who needs a setting of [`DYNAMIC`] asks [`Broker::live_settings`] each time, or is told in [`Broker::alter_settings`]. All others are
//! as they were at the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use journal::AppendItem;
use parking_lot::RwLock;

use crate::Broker;
use crate::admin::AlterError;
use crate::overrides::{self, Overrides};
use crate::settings::{BROKER, SettingError, Settings, find};

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
    "mainstem.queue.consumer.timeout.ms",
];

/// The record of what is set: u8 version, then as `overrides.rs` has it.
pub(crate) const SETTINGS_KEY: &[u8] = b"msettings";
const VERSION: u8 = 1;

/// What is in force, and what of it was set while the broker ran.
pub(crate) struct Live {
    inner: RwLock<(Arc<Settings>, Arc<Overrides>)>,
}

impl Live {
    pub fn new(settings: &Settings) -> Self {
        Self { inner: RwLock::new((Arc::new(settings.clone()), Arc::default())) }
    }

    fn put(&self, settings: Settings, overrides: Overrides) {
        *self.inner.write() = (Arc::new(settings), Arc::new(overrides));
    }
}

fn refused(name: &str, value: &str, expected: &str) -> SettingError {
    SettingError { name: name.to_owned(), value: value.to_owned(), expected: expected.to_owned() }
}

impl Broker {
    /// The settings in force, as of now.
    pub fn live_settings(&self) -> Arc<Settings> {
        Arc::clone(&self.live.inner.read().0)
    }

    /// What was set while the broker ran.
    pub fn dynamic_settings(&self) -> Arc<BTreeMap<String, String>> {
        Arc::clone(&self.live.inner.read().1)
    }

    /// What would be in force with these values in place of those the broker was started with.
    fn with_overrides(&self, overrides: &Overrides) -> Result<Settings, SettingError> {
        let mut settings = self.settings().clone();
        overrides.iter().try_for_each(|(name, value)| settings.set(name, value))?;
        settings.check()?;
        let lag = |name| settings.int(name);
        if lag("log.cleaner.min.compaction.lag.ms") > lag("log.cleaner.max.compaction.lag.ms") {
            let (name, value) = ("log.cleaner.min.compaction.lag.ms", lag("log.cleaner.min.compaction.lag.ms").to_string());
            return Err(refused(name, &value, "it is at most log.cleaner.max.compaction.lag.ms"));
        }
        Ok(settings)
    }

    /// Would this change be taken? `None` for a value: what the broker was started with counts again.
    ///
    /// # Errors
    /// The first setting that is unknown, impossible, or counts from the next start only.
    pub fn check_settings(&self, changes: &[(String, Option<String>)]) -> Result<BTreeMap<String, String>, SettingError> {
        let mut overrides = (*self.dynamic_settings()).clone();
        for (name, value) in changes {
            let row = find(BROKER, name)?;
            if !DYNAMIC.contains(&row.name) {
                let value = value.as_deref().filter(|value| !value.is_empty()).unwrap_or("default");
                return Err(refused(name, value, "it counts from the start: change it in the configuration and restart"));
            }
            match value {
                Some(value) => {
                    row.check(value)?;
                    overrides.insert(name.clone(), value.trim().to_owned());
                }
                None => drop(overrides.remove(name)),
            }
        }
        self.with_overrides(&overrides)?;
        Ok(overrides)
    }

    /// Changes settings, all or none. On the controller's thread.
    ///
    /// # Errors
    /// As [`Broker::check_settings`]; `Append`.
    pub fn alter_settings(&self, changes: &[(String, Option<String>)]) -> Result<(), AlterError> {
        let overrides = self.check_settings(changes)?;
        let settings = self.with_overrides(&overrides)?;
        let value = (!overrides.is_empty()).then(|| {
            let mut out = BytesMut::new();
            out.put_u8(VERSION);
            overrides::encode(&overrides, &mut out);
            out.freeze()
        });
        self.commit(0, vec![AppendItem::State { key: Bytes::from_static(SETTINGS_KEY), value }])?;
        self.live.put(settings, overrides);
        self.settings_changed();
        Ok(())
    }

    /// Topics that do not say otherwise have the new defaults.
    fn settings_changed(&self) {
        self.vhosts.configs.lock().clear();
        for topic in self.topics() {
            let before = topic.config();
            // The class of a log is no setting that changes here: where the topic does not say it, it stays.
            topic.set_config(self.topic_config(before.overrides.clone(), before.durability));
        }
        self.journals.iter().for_each(|journal| journal.check_retention());
    }

    /// Puts the record back at the start; false: it is of another version, or damaged. A value that is not possible any more is passed
    /// over: the broker was started with another.
    pub(crate) fn restore_settings(&self, mut value: &[u8]) -> bool {
        let known = value.try_get_u8().ok().filter(|version| *version == VERSION).and_then(|_| overrides::decode(&mut value));
        let Some(mut overrides) = known else { return false };
        overrides.retain(|name, value| {
            let taken = DYNAMIC.contains(&name.as_str()) && find(BROKER, name).is_ok_and(|row| row.check(value).is_ok());
            if !taken {
                tracing::warn!(name, value, "a setting that was changed while the broker ran is not possible any more: that of the start counts");
            }
            taken
        });
        match self.with_overrides(&overrides) {
            Ok(settings) => self.live.put(settings, overrides),
            Err(error) => tracing::warn!(%error, "settings that were changed while the broker ran do not fit those of the start, which count"),
        }
        true
    }
}
