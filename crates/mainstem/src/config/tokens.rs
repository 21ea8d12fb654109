//! What the settings say of tokens, as far as it has to be right before a node starts.

use broker::{BROKER, Settings};

use super::{ConfigError, NamedListener};
use crate::token_keys::KeySource;

const PREFIX: &str = "sasl.oauthbearer.";
const URL: &str = "sasl.oauthbearer.jwks.endpoint.url";
const CLAIMS: [&str; 2] = ["sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.scope.claim.name"];
const BACKOFF: &str = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms";
const BACKOFF_MAX: &str = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms";

fn refuse<T>(name: &'static str, value: &str, expected: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::Value { name, value: value.to_owned(), expected: expected.into() })
}

/// Where the keys of tokens are; `None`: no tokens are taken.
///
/// # Errors
/// The first value that cannot be taken.
pub(super) fn source(settings: &Settings, named: &[NamedListener]) -> Result<Option<KeySource>, ConfigError> {
    for name in CLAIMS {
        let value = settings.text(name).0;
        if value.trim().is_empty() {
            return refuse(name, value, "it is the name of a claim");
        }
    }
    if settings.int(BACKOFF) > settings.int(BACKOFF_MAX) {
        return refuse(
            BACKOFF,
            settings.text(BACKOFF).0,
            format!("it is no more than {BACKOFF_MAX}, which is {}", settings.int(BACKOFF_MAX)),
        );
    }
    let url = settings.text(URL).0;
    if !url.is_empty() {
        // What may be a password is not repeated.
        let shown = url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, place)| format!("…@{place}"));
        return KeySource::parse(url).map(Some).or_else(|expected| refuse(URL, &shown, expected));
    }
    if let Some(one) = named.iter().find(|one| one.sasl.as_ref().is_some_and(|sasl| sasl.takes_tokens())) {
        return refuse(
            URL,
            url,
            format!("listener {} offers OAUTHBEARER, so it has to say where the keys of tokens are", one.name),
        );
    }
    let unused = BROKER.iter().find(|row| row.name.starts_with(PREFIX) && settings.text(row.name).1);
    match unused {
        Some(row) => refuse(
            URL,
            url,
            format!("{} is set, which counts only where it says where the keys of tokens are", row.name),
        ),
        None => Ok(None),
    }
}
