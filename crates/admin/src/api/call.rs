//! A request, authenticated and read: what handlers ask it, and how they have the controller do something. What who asks may do is in `rights`.

use std::cell::Cell;
use std::sync::Arc;

use axum::http::HeaderMap;
use broker::{Broker, Denial, Principal, SettingError, Vhost, Via};
use routing::Name;
use serde_json::{Map, Value};

use super::answer::{Answer, Refusal};
use super::rights::{check_access, denied};
use super::route::Access;
use super::server::Api;
use super::sessions::Caller;
use crate::answers::Text;
use crate::management::Management;
use crate::management::rates::Rates;
use crate::paths::Filled;

/// A request.
pub(crate) struct Call<'a> {
    pub api: &'a Api,
    pub management: &'a Arc<Management>,
    pub caller: &'a Caller,
    pub filled: Filled<'a>,
    pub query: Vec<(String, String)>,
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
    /// The route can be asked what it would do.
    pub tries: bool,
    /// What the route takes.
    pub access: Access,
    /// For the answer, until it is begun.
    pub text: Cell<Text>,
}

impl Call<'_> {
    pub fn broker(&self) -> &Arc<Broker> {
        &self.management.broker
    }

    pub fn rates(&self) -> &Rates {
        &self.management.rates
    }

    /// What stands in the path in place of `{name}`.
    pub fn path(&self, name: &str) -> &str {
        self.filled.iter().find(|(found, _)| *found == name).map_or("", |(_, value)| value)
    }

    /// A parameter of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Is a parameter of the query true?
    pub fn flag(&self, name: &str) -> bool {
        self.query(name) == Some("true")
    }

    /// A parameter that is a number.
    ///
    /// # Errors
    /// 400.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let parse =
            |text: &str| text.parse().map_err(|_| Answer::invalid(name, "it is a whole number that is not negative"));
        self.query(name).map(parse).transpose()
    }

    /// Is only to be said what would be done?
    pub fn dry_run(&self) -> bool {
        self.tries && self.flag("dry_run")
    }

    /// The body as an object.
    ///
    /// # Errors
    /// 400: it is none.
    pub fn object(&self) -> Result<Fields, Refusal> {
        match serde_json::from_slice(self.body) {
            Ok(Value::Object(object)) => Ok(Fields(object)),
            Ok(_) => Err(Answer::bad_request("the body is an object")),
            Err(error) => Err(Answer::bad_request(format!("the body is no JSON: {error}"))),
        }
    }

    /// The virtual host of the path.
    ///
    /// # Errors
    /// 404: there is none, or none that who asks may look into.
    pub fn vhost(&self) -> Result<Arc<Vhost>, Refusal> {
        let name = self.path("vhost");
        let found = self.broker().vhosts().get(name).filter(|vhost| self.caller.who.sees(vhost.name()));
        found.ok_or_else(|| Answer::not_found(format!("there is no virtual host {name:?}")))
    }

    /// The virtual host of the path if there is one in it, otherwise all that who asks may look into.
    ///
    /// # Errors
    /// 404.
    pub fn chosen_vhosts(&self) -> Result<Vec<Arc<Vhost>>, Refusal> {
        if self.filled.iter().any(|(name, _)| *name == "vhost") {
            return Ok(vec![self.vhost()?]);
        }
        Ok(self.broker().vhosts().all().into_iter().filter(|vhost| self.caller.who.sees(vhost.name())).collect())
    }

    /// Has the controller do something, if the caller still has there and then the tag that the route takes, and waits for what comes of it.
    ///
    /// # Errors
    /// 403: he has not; 503: it has too much to do.
    pub fn control<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Broker>) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (who, access) = (self.caller.who.clone(), self.access);
        let judged = move |broker: &Arc<Broker>| check_access(&who.now(), access).map(|()| work(broker));
        crate::control::control(self.broker(), self.caller.who.job_owner(), judged).ok_or_else(Answer::busy)?
    }

    /// The same for work in parts. Whether he may is asked before the first of them: what has begun comes to its end.
    ///
    /// # Errors
    /// 403, 503.
    pub fn control_in_turns<T: Send + 'static>(
        &self,
        part: impl FnMut(&Arc<Broker>) -> Option<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (who, access, of) = (self.caller.who.clone(), self.access, self.caller.who.job_owner());
        let judge = move || check_access(&who.now(), access);
        crate::control::control_in_turns(self.broker(), of, judge, part).ok_or_else(Answer::busy)?
    }

    /// The same as [`Call::control`] for what takes rights as well: `judge` says in the same turn, of what is there and of the rights that he has then, whether he may.
    ///
    /// # Errors
    /// 403, 503.
    pub fn control_judged<T: Send + 'static>(
        &self,
        judge: impl FnOnce(&Broker, &Principal) -> Result<(), Box<Denial>> + Send + 'static,
        work: impl FnOnce(&Arc<Broker>, bool) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let who = self.principal();
        self.control_or_try(move |broker, really| judge(broker, &who).map(|()| work(broker, really)))?
            .map_err(|denial| denied(&denial))
    }

    /// The caller, for what is decided elsewhere.
    pub fn principal(&self) -> Principal {
        self.caller.who.caller(Via::Administration).principal
    }

    /// As [`Call::control`], unless it is only to be tried: then `work` is carried out here, and told not to change anything. What a change depends on
    /// is looked at by `work`: on the controller changes come one after the other.
    ///
    /// # Errors
    /// 503.
    pub fn control_or_try<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Broker>, bool) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        if self.dry_run() { Ok(work(self.broker(), false)) } else { self.control(move |broker| work(broker, true)) }
    }
}

/// The fields of a body. What is missing or of another kind is refused by its name.
pub(crate) struct Fields(pub Map<String, Value>);

impl Fields {
    /// A field that is there and is not null.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Is it there, as null or not?
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// # Errors
    /// 400: another field than these is there, which would be passed over.
    pub fn only(&self, names: &[&str]) -> Result<(), Refusal> {
        match self.0.keys().find(|name| !names.contains(&name.as_str())) {
            Some(other) => {
                Err(Answer::invalid(other, format!("there is no such field; there are {}", names.join(", "))))
            }
            None => Ok(()),
        }
    }

    /// Text.
    ///
    /// # Errors
    /// 400: it is something else.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        self.get(name).map(|value| value.as_str().ok_or_else(|| Answer::invalid(name, "it is a text"))).transpose()
    }

    /// Text that has to be there.
    ///
    /// # Errors
    /// 400.
    pub fn needed(&self, name: &str) -> Result<&str, Refusal> {
        self.text(name)?.ok_or_else(|| Answer::invalid(name, "it is needed"))
    }

    /// # Errors
    /// 400.
    pub fn bool(&self, name: &str, absent: bool) -> Result<bool, Refusal> {
        match self.get(name) {
            None => Ok(absent),
            Some(value) => value.as_bool().ok_or_else(|| Answer::invalid(name, "it is true or false")),
        }
    }

    /// A whole number in a range.
    ///
    /// # Errors
    /// 400.
    pub fn int(&self, name: &str, range: std::ops::RangeInclusive<i64>) -> Result<Option<i64>, Refusal> {
        let check = |value: &Value| {
            let number = value.as_i64().filter(|number| range.contains(number));
            number.ok_or_else(|| {
                Answer::invalid(name, format!("it is a whole number from {} to {}", range.start(), range.end()))
            })
        };
        self.get(name).map(check).transpose()
    }

    /// A list of words.
    ///
    /// # Errors
    /// 400.
    pub fn words(&self, name: &str) -> Result<Option<Vec<String>>, Refusal> {
        let refuse = || Answer::invalid(name, "it is a list of texts");
        let word = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(refuse);
        let all = |value: &Value| value.as_array().ok_or_else(refuse)?.iter().map(word).collect();
        self.get(name).map(all).transpose()
    }

    /// Names with values as texts; numbers and true or false are taken as they are written.
    ///
    /// # Errors
    /// 400, for `name.key`.
    pub fn settings(&self, name: &str) -> Result<Vec<(String, String)>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let object = value.as_object().ok_or_else(|| Answer::invalid(name, "it is an object"))?;
        let one = |(key, value): (&String, &Value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            Value::Number(_) | Value::Bool(_) => Ok((key.clone(), value.to_string())),
            _ => Err(Answer::invalid(&format!("{name}.{key}"), "it is a text, a number, true or false")),
        };
        object.iter().map(one).collect()
    }
}

/// A name as the broker has it.
///
/// # Errors
/// 400: it is too long.
pub(crate) fn name_of(field: &str, text: &str) -> Result<Name, Refusal> {
    Name::new(text.as_bytes()).map_err(|error| Answer::invalid(field, error.to_string()))
}

/// A setting that is refused; `under` is the object of the body that has it.
pub(crate) fn setting_refused(under: &str, error: &SettingError) -> Refusal {
    Answer::invalid(&format!("{under}.{}", error.name), error.to_string())
}
