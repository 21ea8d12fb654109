//! Reading configuration, certificates and keys of tokens again while the broker runs. What is wrong changes nothing; what can change does
//! so together.

use std::sync::Arc;

use broker::Broker;
use serde_json::{Value, json};

use crate::cli::ServeArguments;
use crate::config::Config;
use crate::log_file::RotatingLog;
use crate::tls::Tls;
use crate::token_keys::KeySource;

/// What the process was started with, and what it may change.
pub struct Reload {
    arguments: ServeArguments,
    /// As the start found it.
    fixed: Vec<(&'static str, String)>,
    broker: Arc<Broker>,
    tls: Option<Arc<Tls>>,
    token_keys: Option<KeySource>,
    log: Option<RotatingLog>,
}

/// What has come of it.
#[derive(Debug, Default)]
pub struct Reloaded {
    /// Settings in force from now on.
    pub changed: Vec<(&'static str, String)>,
    /// What waits for the next start.
    pub waiting: Vec<&'static str>,
    /// What was set while the broker ran goes before these.
    pub overruled: Vec<&'static str>,
    /// New connections have the certificates as they are now.
    pub certificates: bool,
}

impl Reload {
    /// For a broker that was started with `arguments`, which came to `config`.
    pub fn new(
        arguments: ServeArguments,
        config: &Config,
        broker: &Arc<Broker>,
        tls: Option<&Arc<Tls>>,
        log: Option<RotatingLog>,
    ) -> Arc<Self> {
        let (fixed, token_keys) = (config.fixed(), config.token_keys.clone());
        Arc::new(Self { arguments, fixed, broker: Arc::clone(broker), tls: tls.cloned(), token_keys, log })
    }

    /// Reads everything again.
    ///
    /// # Errors
    /// The first value or file that cannot be taken; nothing has changed then.
    pub fn run(&self) -> Result<Reloaded, String> {
        // Whatever becomes of the rest: this is how those who rotate logs have a moved file let go.
        if let Some(Err(error)) = self.log.as_ref().map(RotatingLog::reopen) {
            tracing::error!(%error, "the log goes on in the file that was moved");
        }
        let outcome = self.read();
        match &outcome {
            Ok(Reloaded { changed, waiting, overruled, certificates }) => {
                for (setting, value) in changed {
                    tracing::warn!(target: "audit", setting, value, "setting changed");
                }
                tracing::info!(
                    changed = changed.len(),
                    waiting = waiting.join(", "),
                    overruled = overruled.join(", "),
                    certificates,
                    "configuration read again"
                );
            }
            Err(error) => tracing::error!(error, "configuration stays as it was"),
        }
        outcome
    }

    fn read(&self) -> Result<Reloaded, String> {
        let fresh = Config::load(self.arguments.clone()).map_err(|error| error.to_string())?;
        let keys = match &self.token_keys {
            Some(file @ KeySource::File(_)) => Some(file.fetch().map_err(|error| error.to_string())?),
            _ => None,
        };
        let loaded = self.tls.as_ref().map(|tls| tls.load()).transpose().map_err(|error| error.to_string())?;
        let settings = fresh.settings.clone();
        let change =
            admin::control(&self.broker, broker::JobOwner::BROKER, move |broker| broker.change_settings(&settings));
        let change = change.ok_or("the broker has too much to do: try again")?.map_err(|error| error.to_string())?;
        // Nothing can be wrong any more.
        if let Some((tls, loaded)) = self.tls.as_ref().zip(loaded) {
            tls.put(loaded);
        }
        let tokens = self.broker.security().tokens();
        match keys {
            Some(keys) => tokens.put_keys(keys),
            // They come a little later.
            None if self.token_keys.is_some() => tokens.want_keys(),
            None => {}
        }
        let moved =
            fresh.fixed().into_iter().zip(&self.fixed).filter(|(new, old)| new != *old).map(|((name, _), _)| name);
        let waiting = moved.chain(change.waiting).collect();
        Ok(Reloaded { changed: change.changed, waiting, overruled: change.overruled, certificates: self.tls.is_some() })
    }
}

impl Reloaded {
    /// For who asked over the administration port.
    pub fn json(&self) -> Value {
        let changed: Vec<Value> =
            self.changed.iter().map(|(setting, value)| json!({"setting": setting, "value": value})).collect();
        json!({"changed": changed, "restart": self.waiting, "overruled": self.overruled, "certificates": self.certificates})
    }
}
