//! Who asks: HTTP Basic authentication, and what the tags and permissions of a user allow.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker::{Broker, Credentials, Permission, Refused, User};

use super::Management;
use super::answer::{Answer, Refusal};
use super::exchanges::DEFAULT;
use super::route::Access;

/// A user who has logged in.
pub(crate) struct Identity {
    user: Arc<User>,
    broker: Arc<Broker>,
}

impl Identity {
    pub fn new(user: Arc<User>, broker: &Arc<Broker>) -> Self {
        Self { user, broker: Arc::clone(broker) }
    }

    pub fn name(&self) -> &str {
        self.user.name()
    }

    pub fn tags(&self) -> &[String] {
        self.user.tags()
    }

    pub fn has(&self, tags: &[&str]) -> bool {
        tags.iter().any(|tag| self.user.has_tag(tag))
    }

    pub fn is_administrator(&self) -> bool {
        self.has(&["administrator"])
    }

    pub fn monitors(&self) -> bool {
        self.has(&["administrator", "monitoring"])
    }

    /// May it look into a virtual host, in lists and by name?
    pub fn sees(&self, vhost: &str) -> bool {
        self.monitors() || self.enters(vhost)
    }

    /// Has it permissions in a virtual host?
    pub fn enters(&self, vhost: &str) -> bool {
        self.broker.security().permissions(vhost, self.name()).is_some()
    }

    /// May it do that with what has this name?
    pub fn may(&self, vhost: &str, permission: Permission, name: &[u8]) -> bool {
        // The default exchange has this name for permissions.
        let name = if name.is_empty() { DEFAULT.as_bytes() } else { name };
        let permissions = self.broker.security().permissions(vhost, self.name());
        permissions.is_some_and(|permissions| permissions.of(permission).matches(name))
    }

    /// # Errors
    /// 401: it may not do that with what has this name.
    pub fn check_permission(&self, vhost: &str, permission: Permission, name: &[u8]) -> Result<(), Refusal> {
        if self.may(vhost, permission, name) { Ok(()) } else { Err(Answer::not_authorised("Access refused.")) }
    }

    /// # Errors
    /// 401 in RabbitMQ's words, by what is missing; 404: a virtual host that it may not look into.
    pub fn check(&self, access: Access, vhost: Option<&str>) -> Result<(), Refusal> {
        if !self.has(&["administrator", "monitoring", "policymaker", "management"]) {
            return Err(Answer::not_authorised("Not management user"));
        }
        match access {
            Access::Management | Access::Vhost => {}
            Access::Monitoring if self.monitors() => {}
            Access::Monitoring => return Err(Answer::not_authorised("Not monitor user")),
            Access::Policymaker if self.has(&["administrator", "policymaker"]) => {}
            Access::Policymaker => return Err(Answer::not_authorised("Not policymaker user")),
            Access::Administrator if self.is_administrator() => {}
            Access::Administrator => return Err(Answer::not_authorised("Not administrator user")),
        }
        let known = |vhost: &str| self.broker.vhosts().get(vhost).is_some();
        match vhost.filter(|_| access != Access::Administrator) {
            Some(vhost) if known(vhost) && !self.sees(vhost) => Err(Answer::no_such("Not Found")),
            _ => Ok(()),
        }
    }
}

/// Name and password of the header `Authorization`.
pub(crate) fn credentials(headers: &HeaderMap) -> Option<(Vec<u8>, Vec<u8>)> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = given.split_once(' ')?;
    let decoded = STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

impl Management {
    /// Who sent a request. May take a tenth of a second.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn authenticate(&self, headers: &HeaderMap, peer: SocketAddr) -> Result<Identity, Refusal> {
        let (name, password) = credentials(headers).ok_or_else(Answer::who_are_you)?;
        match self.broker.security().authenticate(Credentials { name: &name, password: &password, peer }) {
            Ok(user) => Ok(Identity::new(user, &self.broker)),
            Err(Refused::Busy) => Err(Answer::busy()),
            Err(Refused::Credentials | Refused::NotLocal) => Err(Answer::wrong_credentials()),
        }
    }
}
