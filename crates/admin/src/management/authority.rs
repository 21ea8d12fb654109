//! Who asks: HTTP Basic authentication, and what the tags of a user allow.

use std::net::SocketAddr;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Management;
use super::answer::{Answer, Refusal};
use super::route::Access;

/// A user who has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub name: String,
    pub tags: Vec<String>,
}

impl Identity {
    fn has(&self, tags: &[&str]) -> bool {
        self.tags.iter().any(|tag| tags.contains(&tag.as_str()))
    }

    pub fn is_administrator(&self) -> bool {
        self.has(&["administrator"])
    }

    pub fn monitors(&self) -> bool {
        self.has(&["administrator", "monitoring"])
    }

    /// May it look into a virtual host?
    pub fn sees(&self, _vhost: &str) -> bool {
        self.is_administrator()
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
            Access::Administrator if self.is_administrator() => {}
            Access::Administrator => return Err(Answer::not_authorised("Not administrator user")),
        }
        match vhost {
            Some(vhost) if !self.sees(vhost) => Err(Answer::no_such("Not Found")),
            _ => Ok(()),
        }
    }
}

/// Name and password of the header `Authorization`.
fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = given.split_once(' ')?;
    let decoded = STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let text = String::from_utf8(decoded).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

impl Management {
    /// Who sent a request.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn authenticate(&self, headers: &HeaderMap, peer: &SocketAddr) -> Result<Identity, Refusal> {
        let (name, password) = credentials(headers).ok_or_else(Answer::who_are_you)?;
        if peer.ip().to_canonical().is_loopback() && name == "guest" && password == "guest" {
            return Ok(Identity { name, tags: vec!["administrator".to_owned()] });
        }
        Err(Answer::wrong_credentials())
    }
}
