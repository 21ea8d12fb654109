//! Settings that change while the broker runs: those of [`DYNAMIC`]; all others wait for the next start.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::Broker;
use crate::settings::{BROKER, DYNAMIC, Settings};

/// Settings in force now.
pub(crate) struct Current(RwLock<Arc<Settings>>);

/// What became of settings that were read again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// In force from now on, with their new values.
    pub changed: Vec<(&'static str, String)>,
    /// Of these other values were read, which wait for the next start.
    pub waiting: Vec<&'static str>,
}

impl Current {
    pub fn new(settings: &Settings) -> Self {
        Self(RwLock::new(Arc::new(settings.clone())))
    }
}

impl Broker {
    /// Settings as they are now; [`Broker::settings`] are those of the start.
    pub fn current_settings(&self) -> Arc<Settings> {
        Arc::clone(&self.current.0.read())
    }

    /// Takes over what may change of settings that were read again.
    pub fn change_settings(&self, fresh: &Settings) -> SettingsChange {
        let mut current = self.current.0.write();
        let (mut change, mut next) = (SettingsChange::default(), (**current).clone());
        for name in BROKER.iter().map(|row| row.name) {
            let (value, _) = fresh.text(name);
            if value == current.text(name).0 {
                continue;
            }
            if DYNAMIC.contains(&name) && next.set(name, value).is_ok() {
                change.changed.push((name, value.to_owned()));
            } else {
                change.waiting.push(name);
            }
        }
        *current = Arc::new(next);
        change
    }
}
