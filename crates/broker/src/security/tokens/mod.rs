//! Who somebody is by a token: a JSON Web Token (RFC 7519) that an authority has signed, in whose name nothing is asked for. What makes a token
//! good is what Kafka asks of one: a signature by a key of the set (`keys.rs`), times (`exp` and `iat` are needed, `nbf` counts), the issuer and
//! an audience that the settings name, the user in the claim that they name.
//!
//! Verifying one takes 30 to 200 µs, so it happens where the token is met and nothing is remembered of it: a token that its authority
//! no longer signs is out with the next set of keys. Whoever fetches keys is told when a token names one that is not there.
//!
//! A token's user need not be in the catalog. Where he is, his tags and permissions count; where not, he has none, and access control
//! entries go by his name.

mod keys;
mod signature;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, dangerous, decode, decode_header};
use parking_lot::RwLock;
use serde_json::{Map, Value};

pub use keys::{InvalidKeys, TOKEN_KEYS_MAX, TokenKeys};

use super::Security;
use super::login::check_place;
use super::user::{NAME_BYTES_MAX, User};
use crate::settings::Settings;

/// Keys that are tried for a token that does not say which it is.
const TRIED_MAX: usize = 8;
/// Letters of what a token says that a refusal repeats.
const SHOWN_MAX: usize = 100;

type Claims = Map<String, Value>;

/// Why a token lets nobody in. For the log: clients are told that it is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// Another kind of text, or an algorithm that is not known, as `none`.
    #[error("it is no JSON Web Token, or not signed by an algorithm that is known")]
    Malformed,
    /// Whoever can verify could sign as well; or an extension that has to be understood.
    #[error("tokens signed by {0} are not taken")]
    Algorithm(String),
    /// Nothing could be fetched yet.
    #[error("the keys of tokens are not there yet")]
    NoKeys,
    /// Keys may have been changed.
    #[error("no key {0:?} is there for its algorithm")]
    UnknownKey(String),
    /// Nobody who may has signed it.
    #[error("its signature is wrong")]
    Signature,
    /// By `exp`.
    #[error("it has expired")]
    Expired,
    /// By `nbf`.
    #[error("it is not valid yet")]
    Early,
    /// By `iss`.
    #[error("its issuer is another: {0:?}")]
    Issuer(String),
    /// By `aud`.
    #[error("it is meant for others: {0:?}")]
    Audience(String),
    /// It has to be there, or is of another kind.
    #[error("claim {0:?} is missing or is not what it has to be")]
    Claim(String),
    /// Too many forged ones have come from this address.
    #[error("too many wrong passwords from this address")]
    Throttled,
    /// `guest` from another machine.
    #[error("this user can only connect from the broker's machine")]
    NotLocal,
}

/// Somebody who has shown a good token.
#[derive(Clone, Debug)]
pub struct TokenLogin {
    /// Who he is.
    pub user: Arc<User>,
    /// Until when, in milliseconds since 1970.
    pub expires_ms: i64,
}

/// Somebody who has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRefusal {
    /// Who the token says he is; empty when it does not.
    pub name: String,
    /// Why it does not count.
    pub reason: TokenRefused,
}

/// Who a good token is about.
#[derive(Debug, PartialEq, Eq)]
struct Subject {
    name: String,
    expires_ms: i64,
}

/// What the settings ask of a token.
struct Rules {
    audiences: Vec<String>,
    issuer: Option<String>,
    subject: String,
    scope: String,
    skew_ms: i64,
}

/// See the head of the file.
pub struct Tokens {
    /// Does the node take any?
    is_configured: bool,
    rules: Rules,
    keys: RwLock<Option<Arc<TokenKeys>>>,
    /// A token named a key that is not there.
    wanted: AtomicBool,
    fetcher: RwLock<Option<Thread>>,
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

/// A number of seconds, as milliseconds.
fn time(claims: &Claims, name: &str) -> Result<Option<i64>, TokenRefused> {
    const SECONDS_MAX: f64 = 1e14;
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().filter(|seconds| (0.0..SECONDS_MAX).contains(seconds));
    seconds.map(|seconds| Some((seconds * 1000.0) as i64)).ok_or_else(|| TokenRefused::Claim(name.to_owned()))
}

/// A text or a list of texts.
fn texts<'a>(claims: &'a Claims, name: &str) -> Result<Vec<&'a str>, TokenRefused> {
    let wrong = || TokenRefused::Claim(name.to_owned());
    match claims.get(name) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text]),
        Some(Value::Array(all)) => all.iter().map(|one| one.as_str().ok_or_else(wrong)).collect(),
        Some(_) => Err(wrong()),
    }
}

impl Rules {
    fn new(settings: &Settings) -> Self {
        let text = |name: &str| settings.text(name).0.to_owned();
        let audiences = settings.text("sasl.oauthbearer.expected.audience").0.split(',').map(str::trim);
        Self {
            audiences: audiences.filter(|one| !one.is_empty()).map(str::to_owned).collect(),
            issuer: Some(text("sasl.oauthbearer.expected.issuer")).filter(|issuer| !issuer.is_empty()),
            subject: text("sasl.oauthbearer.sub.claim.name"),
            scope: text("sasl.oauthbearer.scope.claim.name"),
            skew_ms: settings.int("sasl.oauthbearer.clock.skew.seconds") * 1000,
        }
    }

    /// Who these claims are about, if they count now.
    fn check(&self, claims: &Claims, now_ms: i64) -> Result<Subject, TokenRefused> {
        let needed = |name: &str| TokenRefused::Claim(name.to_owned());
        let expires_ms = time(claims, "exp")?.ok_or_else(|| needed("exp"))?;
        time(claims, "iat")?.ok_or_else(|| needed("iat"))?;
        if now_ms - self.skew_ms >= expires_ms {
            return Err(TokenRefused::Expired);
        }
        if time(claims, "nbf")?.is_some_and(|from| now_ms + self.skew_ms < from) {
            return Err(TokenRefused::Early);
        }
        if let Some(expected) = &self.issuer {
            let issuer = claims.get("iss").and_then(Value::as_str).ok_or_else(|| needed("iss"))?;
            if issuer != expected {
                return Err(TokenRefused::Issuer(shown(issuer)));
            }
        }
        // Whom a token is for has to find himself in it, if it says so at all (RFC 7519 §4.1.3).
        let audience = texts(claims, "aud")?;
        let is_meant = audience.iter().any(|one| self.audiences.iter().any(|expected| expected == one));
        if !is_meant && (claims.contains_key("aud") || !self.audiences.is_empty()) {
            return Err(TokenRefused::Audience(shown(&audience.join(", "))));
        }
        let scopes = texts(claims, &self.scope)?;
        let is_odd = |at: usize| scopes[at].trim().is_empty() || scopes[..at].contains(&scopes[at]);
        if scopes.len() > 1000 || (0..scopes.len()).any(is_odd) {
            return Err(needed(&self.scope));
        }
        let name = claims
            .get(&self.subject)
            .and_then(Value::as_str)
            .filter(|name| !name.trim().is_empty() && name.len() <= NAME_BYTES_MAX);
        Ok(Subject { name: name.ok_or_else(|| needed(&self.subject))?.to_owned(), expires_ms })
    }
}

/// The claims of a token that one of these keys has signed.
fn signed(token: &str, keys: &TokenKeys) -> Result<Claims, TokenRefused> {
    let header = decode_header(token).map_err(|_| TokenRefused::Malformed)?;
    if let Some(extension) = header.crit.iter().flatten().next() {
        return Err(TokenRefused::Algorithm(format!("extension {:?}", shown(extension))));
    }
    if !keys::is_asymmetric(header.alg) {
        return Err(TokenRefused::Algorithm(format!("{:?}", header.alg)));
    }
    let id = header.kid.as_deref();
    let mut refused = TokenRefused::UnknownKey(shown(id.unwrap_or_default()));
    let rules = only_signature(header.alg);
    for key in keys.of(id, header.alg).take(TRIED_MAX) {
        match decode::<Claims>(token, key, &rules) {
            Ok(found) => return Ok(found.claims),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => refused = TokenRefused::Signature,
            Err(_) => return Err(TokenRefused::Malformed),
        }
    }
    Err(refused)
}

/// The claims are ours to look at, by the broker's clock.
fn only_signature(algorithm: Algorithm) -> Validation {
    let mut rules = Validation::new(algorithm);
    (rules.validate_exp, rules.validate_nbf, rules.validate_aud) = (false, false, false);
    rules.required_spec_claims.clear();
    rules
}

impl Tokens {
    pub(super) fn new(settings: &Settings) -> Self {
        signature::install();
        let is_configured = !settings.text("sasl.oauthbearer.jwks.endpoint.url").0.is_empty();
        Self {
            is_configured,
            rules: Rules::new(settings),
            keys: RwLock::default(),
            wanted: AtomicBool::new(false),
            fetcher: RwLock::default(),
        }
    }

    /// Does the node take tokens?
    pub fn are_configured(&self) -> bool {
        self.is_configured
    }

    /// The token that stands in the place of a password, where the node takes any.
    pub fn in_place_of<'a>(&self, password: &'a [u8]) -> Option<&'a str> {
        // The header of each is a JSON object, which in base64 begins so.
        let is_token = password.starts_with(b"eyJ") && password.iter().filter(|byte| **byte == b'.').count() == 2;
        std::str::from_utf8(password).ok().filter(|_| is_token && self.is_configured)
    }

    /// From now on tokens are verified by these.
    pub fn put_keys(&self, keys: TokenKeys) {
        *self.keys.write() = Some(Arc::new(keys));
    }

    /// Are there keys? Without them nobody comes in by a token.
    pub fn are_taken(&self) -> bool {
        self.keys.read().is_some()
    }

    /// This thread is woken when other keys are wanted.
    pub fn set_fetcher(&self, fetcher: Thread) {
        *self.fetcher.write() = Some(fetcher);
    }

    /// Has the keys fetched soon.
    pub fn want_keys(&self) {
        if !self.wanted.swap(true, Ordering::AcqRel)
            && let Some(fetcher) = &*self.fetcher.read()
        {
            fetcher.unpark();
        }
    }

    /// Are they wanted? From now on they are not.
    pub fn take_wanted(&self) -> bool {
        self.wanted.swap(false, Ordering::AcqRel)
    }

    /// Who the token says its bearer is, whether that is true or not.
    fn claimed(&self, token: &str) -> String {
        let claims = dangerous::insecure_decode_claims::<Claims>(token).unwrap_or_default();
        let name = claims.get(&self.rules.subject).and_then(Value::as_str).unwrap_or_default();
        let end = (0..=name.len().min(NAME_BYTES_MAX)).rev().find(|at| name.is_char_boundary(*at));
        name[..end.unwrap_or(0)].to_owned()
    }

    fn verify(&self, token: &str, now_ms: i64) -> Result<Subject, TokenRefused> {
        let keys = self.keys.read().clone();
        let Some(keys) = keys else {
            self.want_keys();
            return Err(TokenRefused::NoKeys);
        };
        let claims = signed(token, &keys).inspect_err(|reason| {
            if matches!(reason, TokenRefused::UnknownKey(id) if !keys.has(id)) {
                self.want_keys();
            }
        })?;
        self.rules.check(&claims, now_ms)
    }
}

impl Security {
    /// What tokens are verified by.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Whose is this token? Takes a fraction of a millisecond. A forged one counts as a wrong password of whom it names.
    ///
    /// # Errors
    /// See [`TokenRefused`].
    pub fn authenticate_by_token(
        &self,
        token: &str,
        peer: SocketAddr,
        now_ms: i64,
    ) -> Result<TokenLogin, TokenRefusal> {
        let refuse = |name: String, reason| Err(TokenRefusal { name, reason });
        let claimed = self.tokens.claimed(token);
        if self.is_throttled(peer, &claimed) {
            return refuse(claimed, TokenRefused::Throttled);
        }
        let Subject { name, expires_ms } = match self.tokens.verify(token, now_ms) {
            Ok(subject) => subject,
            Err(reason) => {
                if reason == TokenRefused::Signature {
                    self.note_wrong_guess(peer, &claimed);
                }
                return refuse(claimed, reason);
            }
        };
        let defined = self.inner.read().users.get(&name).cloned();
        let user = defined.unwrap_or_else(|| Arc::new(User::undefined(name.clone())));
        match check_place(user, peer) {
            Ok(user) => Ok(TokenLogin { user, expires_ms }),
            Err(_) => refuse(name, TokenRefused::NotLocal),
        }
    }
}
