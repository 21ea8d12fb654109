//! Who asks: by name and password or by a token with each request, by the cookie of a session that was opened with them, or, while no user is defined,
//! anybody on this machine, as for the protocols.
//!
//! A session ends 12 hours after it began, an hour after its last request, and when its user is changed or deleted. Its cookie is of no use
//! to pages of other sites: it is sent to ours only (`SameSite=Strict`), scripts cannot read it (`HttpOnly`), and a change needs the
//! session's second token, which our page alone can have read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use broker::{AuditLine, Broker, Credentials, GUEST, Refused, TokenRefused, User};
use hashbrown::HashMap;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};

use super::answer::{Answer, Refusal};
use crate::management::authority::{
    Identity, NAME_SHOWN_MAX, bearer, check_place, credentials, login_by_token, verified,
};
use crate::origin;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "mainstem_session";
/// The header that a change by cookie needs.
pub(crate) const CSRF_HEADER: &str = "x-mainstem-csrf";
/// A session lasts so long at most …
pub(crate) const LASTS: Duration = Duration::from_secs(12 * 3600);
/// … and ends after so long without a request.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// Sessions at once: of him who has most the one that has been idle longest goes.
const SESSIONS_MAX: usize = 1000;
/// Of one user; likewise.
const OF_USER_MAX: usize = 50;

struct Session {
    user: Arc<User>,
    csrf: String,
    began: Instant,
    used: Instant,
}

/// How it is known who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// By a session: its second token, and how long it lasts.
    Cookie { csrf: String, left: Duration },
    /// By name and password.
    Basic,
    /// By a token.
    Bearer,
    /// No user is defined.
    Nothing,
}

/// Who asks, and how that is known.
pub(crate) struct Caller {
    pub who: Identity,
    pub via: Via,
}

/// Open sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<String, Session>>,
}

/// The user whose session ends when `name` opens one; `None`: there is room.
fn gives_way(open: &HashMap<String, Session>, name: &str) -> Option<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    open.values().for_each(|session| *counts.entry(session.user.name()).or_default() += 1);
    if counts.get(name).is_some_and(|count| *count >= OF_USER_MAX) {
        return Some(name.to_owned());
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count).filter(|_| open.len() >= SESSIONS_MAX);
    most.map(|(name, _)| name.to_owned())
}

fn secret() -> String {
    let mut bytes = [0; 24];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The value of our cookie.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|text| text.split(';')).find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

impl Sessions {
    /// Opens one; the value of its cookie.
    pub fn open(&self, user: &Arc<User>, now: Instant) -> (String, Via) {
        let (token, csrf) = (secret(), secret());
        let mut open = self.open.lock();
        if let Some(user) = gives_way(&open, user.name()) {
            let own = open.iter().filter(|(_, session)| session.user.name() == user);
            let oldest = own.min_by_key(|(_, session)| session.used).map(|(token, _)| token.clone());
            oldest.map(|token| open.remove(&token));
        }
        open.insert(token.clone(), Session { user: Arc::clone(user), csrf: csrf.clone(), began: now, used: now });
        (token, Via::Cookie { csrf, left: LASTS })
    }

    /// Ends one.
    pub fn close(&self, token: &str) {
        self.open.lock().remove(token);
    }

    /// The user of a session that has not ended.
    fn user(&self, token: &str, broker: &Broker, now: Instant) -> Option<(Arc<User>, Via)> {
        let mut open = self.open.lock();
        let session = open.get_mut(token)?;
        let age = now.saturating_duration_since(session.began);
        let is_over = age >= LASTS || now.saturating_duration_since(session.used) >= IDLE_MAX;
        let current = broker.security().user(session.user.name());
        // Each change of a user makes another one.
        let current = current.filter(|user| !is_over && Arc::ptr_eq(user, &session.user));
        let Some(user) = current else {
            open.remove(token);
            return None;
        };
        session.used = now;
        Some((user, Via::Cookie { csrf: session.csrf.clone(), left: LASTS - age }))
    }

    /// The user with this name and password. May take a tenth of a second.
    ///
    /// # Errors
    /// 401, 429, 503.
    pub async fn login(
        broker: &Arc<Broker>,
        credentials: Credentials<'_>,
        headers: &HeaderMap,
        basic: bool,
    ) -> Result<Arc<User>, Refusal> {
        let reason = match verified(broker, credentials, headers).await {
            Ok(user) => return Ok(user),
            Err(reason) => reason,
        };
        let Credentials { name, peer, .. } = credentials;
        let (who, outcome) = (String::from_utf8_lossy(&name[..name.len().min(NAME_SHOWN_MAX)]), reason.to_string());
        broker.security().audit_refusal(AuditLine {
            who: &who,
            from: peer.ip(),
            through: "http",
            act: "login",
            what: "",
            outcome: &outcome,
        });
        Err(match reason {
            Refused::Busy => Answer::busy(),
            Refused::Throttled => throttled(broker),
            Refused::Credentials | Refused::NotLocal | Refused::Token => {
                Answer::not_authenticated("name and password are not those of a user", basic)
            }
        })
    }

    /// Who sends a request. May take a tenth of a second.
    ///
    /// # Errors
    /// 401, 429, 503.
    pub async fn caller(&self, broker: &Arc<Broker>, headers: &HeaderMap, peer: SocketAddr) -> Result<Caller, Refusal> {
        let is_program = !origin::is_of_browser(headers);
        let (user, via) = if let Some(token) = bearer(broker, headers) {
            let user = login_by_token(broker, token, headers, peer).map_err(|reason| match reason {
                TokenRefused::Throttled => throttled(broker),
                _ => Answer::not_authenticated("the token is not valid", is_program),
            })?;
            (user, Via::Bearer)
        } else if headers.contains_key(header::AUTHORIZATION) {
            let refused = || {
                Answer::not_authenticated(
                    "the header Authorization is not of scheme Basic, or Bearer where tokens are taken",
                    is_program,
                )
            };
            let (name, password) = credentials(headers).ok_or_else(refused)?;
            (
                Self::login(broker, Credentials { name: &name, password: &password, peer }, headers, is_program)
                    .await?,
                Via::Basic,
            )
        } else if let Some(found) = cookie(headers).and_then(|token| self.user(token, broker, Instant::now())) {
            found
        } else if let Some(guest) = anybody(broker, headers, peer) {
            (guest, Via::Nothing)
        } else {
            return Err(Answer::not_authenticated("who asks has to log in", is_program));
        };
        let who = Identity::new(user, broker, peer.ip());
        if !who.has(&["administrator", "monitoring", "policymaker", "management"]) {
            return Err(Answer::not_allowed(format!(
                "user {:?} has none of the tags administrator, monitoring, policymaker and management",
                who.name()
            )));
        }
        Ok(Caller { who, via })
    }
}

/// Whoever is to wait is told how long.
fn throttled(broker: &Broker) -> Refusal {
    Answer::throttled(broker.settings().int("mainstem.login.failure.recovery.ms").unsigned_abs() / 1000 + 1)
}

/// `guest`, who needs no password while no user is defined, on this machine. Not for those for whom a program on this machine asks.
fn anybody(broker: &Broker, headers: &HeaderMap, peer: SocketAddr) -> Option<Arc<User>> {
    if !broker.security().users().is_empty() || !peer.ip().to_canonical().is_loopback() {
        return None;
    }
    broker.security().user(GUEST).and_then(|guest| check_place(guest, headers).ok())
}
