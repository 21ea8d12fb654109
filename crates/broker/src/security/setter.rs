//! Who has set something by which the broker acts later, when no client is there to be asked: the topic for dead letters of a share group, rules for
//! members that are far behind. He is kept with the setting, and what it does is decided by his rights at the moment in which it is done: under his
//! name as of then, and at the address from which he set it. A user of the broker who has been deleted has none, whatever entries still name him.
//!
//! ```text
//! setter   u8 flags (1: he has a name, 2: he was a user of the broker), text name, text address      text: u16 length and content
//! ```

use std::net::IpAddr;

use bytes::{BufMut, BytesMut};

use super::acl::{AclOperation, AclResource, CLUSTER};
use super::queue_rights::QueueRights;
use super::{Principal, Security, Subject};
use crate::Broker;
use crate::overrides::{put_text, take_text};
use crate::topic::Topic;

const NAMED: u8 = 1;
const DEFINED: u8 = 2;

/// Who has set something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setter {
    /// `None`: he did not say who he is.
    name: Option<String>,
    address: IpAddr,
    /// He was one of the broker's users, and not known by a certificate or a token alone.
    defined: bool,
}

impl Setter {
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u8(if self.name.is_some() { NAMED } else { 0 } | if self.defined { DEFINED } else { 0 });
        put_text(out, self.name.as_deref().unwrap_or_default());
        put_text(out, &self.address.to_string());
    }

    /// Reads what [`Setter::encode`] wrote; `None` when the bytes are none.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        *bytes = rest;
        let (name, address) = (take_text(bytes)?, take_text(bytes)?);
        Some(Self {
            name: (flags & NAMED != 0).then_some(name),
            address: address.parse().ok()?,
            defined: flags & DEFINED != 0,
        })
    }
}

impl Security {
    /// Somebody, as he is kept with what he sets. `guest` of a broker without users has no more than who does not say who he is.
    pub fn setter(&self, name: Option<&str>, address: IpAddr) -> Setter {
        let inner = self.inner.read();
        let name = name.filter(|name| !inner.users.is_empty() || *name != super::GUEST);
        Setter {
            name: name.map(str::to_owned),
            address,
            defined: name.is_some_and(|name| inner.users.contains_key(name)),
        }
    }

    /// The same of a principal; `None`: the broker itself.
    pub fn setter_of(&self, who: &Principal) -> Option<Setter> {
        who.name_and_address().map(|(name, address)| self.setter(Some(name), address))
    }

    /// `None`: he is not there any more.
    fn subject_now(&self, setter: &Setter) -> Option<Subject> {
        let name = setter.name.as_deref();
        let is_gone = setter.defined && name.is_none_or(|name| !self.inner.read().users.contains_key(name));
        (!is_gone).then(|| self.subject(name, setter.address))
    }

    /// May who has set something do this with a queue now, by permissions alone?
    pub(crate) fn setter_may(&self, setter: &Setter, operation: AclOperation, vhost: &str, queue: &[u8]) -> bool {
        let (name, mut rights) = (setter.name.as_deref(), QueueRights::default());
        rights.refresh(self, name, setter.address);
        self.subject_now(setter).is_some() && rights.may(self, name, operation, vhost, queue)
    }
}

impl Broker {
    /// May who has set something do this with a topic now: by entries, and by permissions if it is a queue? `topic`: the one of that name, if it is there.
    pub(crate) fn setter_may_with_topic(
        &self,
        setter: &Setter,
        operation: AclOperation,
        name: &str,
        topic: Option<&Topic>,
    ) -> bool {
        let Some(subject) = self.security().subject_now(setter) else { return false };
        let of_all = operation == AclOperation::Create
            && self.security().allows(&subject, operation, AclResource::Cluster, CLUSTER);
        if !of_all && !self.security().allows(&subject, operation, AclResource::Topic, name) {
            return false;
        }
        let Some(topic) = topic.filter(|topic| topic.is_queue()) else { return true };
        // One that comes to life or goes is nobody's yet, or any more.
        self.queue_on(topic)
            .is_some_and(|queue| self.security().setter_may(setter, operation, queue.vhost(), queue.name()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Permissions, User, UserLimits};
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn who_set_something_is_read_back() {
        let address = "::1".parse().expect("an address");
        for setter in [
            Setter { name: None, address, defined: false },
            Setter {
                name: Some("größe".to_owned()), address: "10.0.0.1".parse().expect("an address"), defined: true
            },
        ] {
            let mut out = BytesMut::new();
            setter.encode(&mut out);
            assert_eq!(Setter::decode(&mut &out[..]), Some(setter));
            (0..out.len()).for_each(|end| assert_eq!(Setter::decode(&mut &out[..end]), None, "{end} bytes"));
        }
    }

    #[test]
    fn rights_are_those_of_the_name_as_of_now_and_a_deleted_user_has_none() {
        let security = Security::new(&Settings::default());
        let here = "127.0.0.1".parse().expect("an address");
        let may = |setter: &Setter| security.setter_may(setter, AclOperation::Write, "/", b"q");
        let (guest, nobody) = (security.setter(Some("guest"), here), security.setter(None, here));
        assert!(may(&guest) && may(&nobody), "no user is defined");
        let add = |name: &str, write: &str| {
            let user = Arc::new(User::new(name.to_owned(), None, Vec::new(), UserLimits::default()));
            security.change(|inner| {
                inner.users.insert(name.to_owned(), user);
                inner.grant("/", name).permissions =
                    Some(Arc::new(Permissions::new("", write, "").expect("expressions")));
            });
        };
        add("bob", "^q$");
        let bob = security.setter(Some("bob"), here);
        assert!(may(&bob) && !may(&guest) && !may(&nobody), "somebody without a user has nothing once there are some");
        add("bob", "");
        assert!(!may(&bob), "as of now");
        add("bob", ".*");
        add("eve", ".*");
        security.change(|inner| drop(inner.users.remove("bob")));
        assert!(!may(&bob), "grants that outlive him are nobody's");
    }
}
