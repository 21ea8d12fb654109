//! A request, authenticated and read: what handlers ask it, and how they have the controller do something.

use std::cell::Cell;
use std::sync::Arc;

use axum::http::HeaderMap;
use broker::{Broker, JobOwner, Vhost};
use routing::Name;
use serde_json::{Map, Value};

use super::Management;
use super::answer::{Answer, Refusal};
use super::authority::Identity;
use super::route::Access;
use crate::answers::Text;
use crate::paths::Filled;

/// A request.
pub(crate) struct Call<'a> {
    pub management: &'a Arc<Management>,
    pub who: &'a Identity,
    pub filled: Filled<'a>,
    pub query: Vec<(String, String)>,
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
    /// What the route takes.
    pub access: Access,
    /// For the answer, until it is begun.
    pub text: Cell<Text>,
}

impl Call<'_> {
    pub fn broker(&self) -> &Arc<Broker> {
        &self.management.broker
    }

    /// What stands in the path in place of `{name}`.
    pub fn path(&self, name: &str) -> &str {
        self.filled.iter().find(|(found, _)| *found == name).map_or("", |(_, value)| value)
    }

    /// The virtual host of the path.
    ///
    /// # Errors
    /// 404: there is none.
    pub fn vhost(&self) -> Result<Arc<Vhost>, Refusal> {
        self.broker().vhosts().get(self.path("vhost")).ok_or_else(Answer::not_found)
    }

    /// Virtual hosts that who asks may look into.
    pub fn vhosts(&self) -> Vec<Arc<Vhost>> {
        self.broker().vhosts().all().into_iter().filter(|vhost| self.who.sees(vhost.name())).collect()
    }

    /// The virtual host of the path if there is one in it, otherwise all that who asks may look into.
    ///
    /// # Errors
    /// 404.
    pub fn chosen_vhosts(&self) -> Result<Vec<Arc<Vhost>>, Refusal> {
        if self.filled.iter().any(|(name, _)| *name == "vhost") { Ok(vec![self.vhost()?]) } else { Ok(self.vhosts()) }
    }

    /// A parameter of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Is a parameter of the query true?
    pub fn flag(&self, name: &str) -> bool {
        self.query(name) == Some("true")
    }

    /// The body as an object; an empty body is an empty object.
    ///
    /// # Errors
    /// 400: it is none.
    pub fn object(&self) -> Result<Map<String, Value>, Refusal> {
        if self.body.is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_slice(self.body) {
            Ok(Value::Object(object)) => Ok(object),
            _ => Err(Answer::bad_request("not_json")),
        }
    }

    /// The body as an object that has these keys.
    ///
    /// # Errors
    /// 400: it has not.
    pub fn object_with(&self, keys: &[&str]) -> Result<Map<String, Value>, Refusal> {
        let object = self.object()?;
        let missing: Vec<String> =
            keys.iter().filter(|key| !object.contains_key(**key)).map(|key| format!("{{key_missing,{key}}}")).collect();
        if missing.is_empty() { Ok(object) } else { Err(Answer::bad_request(format!("[{}]", missing.join(",")))) }
    }

    /// Has the controller do something, if the caller still has there and then what the route takes, and waits for what comes of it.
    ///
    /// # Errors
    /// 401, 404: he has not; 503: it has too much to do.
    pub fn control<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Broker>) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (who, access) = (self.who.clone(), self.access);
        let vhost = self.filled.iter().find(|(name, _)| *name == "vhost").map(|(_, value)| (*value).to_owned());
        control(self.broker(), who.job_owner(), move |broker| {
            who.now().check(access, vhost.as_deref()).map(|()| work(broker))
        })?
    }

    /// The same for work in parts. Whether he may is asked before the first of them: what has begun comes to its end.
    ///
    /// # Errors
    /// 401, 404, 503.
    pub fn control_in_turns<T: Send + 'static>(
        &self,
        part: impl FnMut(&Arc<Broker>) -> Option<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (who, access, of) = (self.who.clone(), self.access, self.who.job_owner());
        let vhost = self.filled.iter().find(|(name, _)| *name == "vhost").map(|(_, value)| (*value).to_owned());
        let judge = move || who.now().check(access, vhost.as_deref());
        crate::control::control_in_turns(self.broker(), of, judge, part).ok_or_else(Answer::busy)?
    }
}

/// Waits until queues and exchanges follow what was changed of policies.
///
/// # Errors
/// 503: that takes too long, though it is still done.
pub(crate) fn await_policies(vhost: &Vhost) -> Result<(), Refusal> {
    if crate::control::await_policies(vhost) { Ok(()) } else { Err(Answer::busy()) }
}

/// See [`Call::control`].
pub(crate) fn control<T: Send + 'static>(
    broker: &Arc<Broker>,
    of: JobOwner,
    work: impl FnOnce(&Arc<Broker>) -> T + Send + 'static,
) -> Result<T, Refusal> {
    crate::control::control(broker, of, work).ok_or_else(Answer::busy)
}

/// A name as the broker has it.
///
/// # Errors
/// 400: it is too long.
pub(crate) fn name(text: &str) -> Result<Name, Refusal> {
    Name::new(text.as_bytes()).map_err(|error| Answer::bad_request(error.to_string()))
}

/// A field that is true or false, or says so in words; `absent` if it is not there.
///
/// # Errors
/// 400: it is neither.
pub(crate) fn boolean(object: &Map<String, Value>, key: &str, absent: bool) -> Result<bool, Refusal> {
    match object.get(key) {
        None => Ok(absent),
        Some(Value::Bool(value)) => Ok(*value),
        Some(Value::String(text)) if text == "true" => Ok(true),
        Some(Value::String(text)) if text == "false" => Ok(false),
        Some(other) => Err(Answer::bad_request(Value::Array(vec!["not_boolean".into(), other.clone()]))),
    }
}

/// A field that is text; empty if it is not there.
///
/// # Errors
/// 400: it is not text.
pub(crate) fn text<'o>(object: &'o Map<String, Value>, key: &str) -> Result<&'o str, Refusal> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Answer::bad_request(Value::Array(vec!["not_string".into(), key.into()]))),
    }
}
