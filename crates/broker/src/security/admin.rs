//! What changes users, permissions and virtual hosts. Runs on the controller's thread, one command after the other; what is said here is
//! durable before it is answered.

use std::sync::Arc;

use bytes::Bytes;
use journal::{AppendError, AppendItem};

use super::error::SecurityError;
use super::password::PasswordHash;
use super::permissions::{Permissions, TopicPermission};
use super::record::{self, Found};
use super::scram::{ScramCredentials, ScramMechanism};
use super::seats::Dismissed;
use super::user::{GUEST, NAME_BYTES_MAX, PasswordWish, User, UserWish};
use crate::change_batch::Change;
use crate::limits::{LimitKind, LimitReached};
use crate::mailbox::Reply;
use crate::queues::{VhostMetadata, is_queue_type};
use crate::{Broker, BrokerOpenError, DEFAULT_VHOST};

/// A virtual host as it is to be; what is `None` stays as it is, or is the default of a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VhostWish {
    /// 1 to 255 bytes.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// For people and tools.
    pub tags: Option<Vec<String>>,
    /// Type of queues that are declared without one.
    pub default_queue_type: Option<Option<String>>,
}

/// A virtual host, and what is to be written of it.
pub(crate) struct PlannedVhost {
    pub name: String,
    pub metadata: VhostMetadata,
    /// There is none of this name.
    pub is_new: bool,
    pub items: Vec<AppendItem>,
}

fn check_name(what: &'static str, name: &str) -> Result<(), SecurityError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        Err(SecurityError::Name { what, name: name.to_owned() })
    } else {
        Ok(())
    }
}

/// Can a record hold them?
fn check_texts<'a>(what: &'static str, texts: impl IntoIterator<Item = &'a str>) -> Result<(), SecurityError> {
    let mut count = 0;
    for text in texts {
        count += 1;
        if text.len() > usize::from(u16::MAX) || count > usize::from(u16::MAX) {
            return Err(SecurityError::TooLong { what });
        }
    }
    Ok(())
}

pub(super) fn put(key: Bytes, value: Bytes) -> AppendItem {
    AppendItem::State { key, value: Some(value) }
}

/// What makes of one set of keys the other.
pub(super) fn scram_items(name: &str, old: Option<&ScramCredentials>, new: &ScramCredentials) -> Vec<AppendItem> {
    let change = |mechanism: ScramMechanism| {
        let (before, after) = (old.and_then(|old| old.get(mechanism)), new.get(mechanism));
        let key = || record::scram_key(mechanism, name);
        match (before, after) {
            (Some(_), None) => Some(drop_key(key())),
            (before, Some(after)) if before != Some(after) => Some(put(key(), record::encode_scram(after))),
            _ => None,
        }
    };
    ScramMechanism::ALL.into_iter().filter_map(change).collect()
}

pub(super) fn put_user_item(user: &User) -> AppendItem {
    put(record::user_key(user.name()), record::encode_user(user))
}

pub(super) fn drop_key(key: Bytes) -> AppendItem {
    AppendItem::State { key, value: None }
}

/// Users.
impl Broker {
    /// Adds or changes a user. Hashes a clear password, which takes a tenth of a second. The first user that is defined takes the place
    /// of the `guest` that is there without.
    ///
    /// # Errors
    /// `Name`, `EmptyPassword`, `TooLong`, `Append`.
    pub fn put_user(self: &Arc<Self>, wish: UserWish) -> Result<Arc<User>, SecurityError> {
        let (user, change) = self.plan_user(wish)?;
        self.carry_out(change)?;
        Ok(user)
    }

    pub(crate) fn plan_user(&self, wish: UserWish) -> Result<(Arc<User>, Option<Change>), SecurityError> {
        let UserWish { name, password, tags, limits } = wish;
        check_name("user name", &name)?;
        let old = self.security.inner.read().users.get(&name).cloned();
        let scram = match &password {
            PasswordWish::Keep => old.as_ref().map(|user| user.scram().clone()).unwrap_or_default(),
            PasswordWish::Clear(text) => ScramCredentials::of(&self.security.scram.read().clone(), text.as_bytes()),
            // Keys of another password are not to let anybody in.
            PasswordWish::Remove | PasswordWish::Hash(_) | PasswordWish::Both(..) => ScramCredentials::default(),
        };
        let rabbitmq = match &password {
            PasswordWish::Keep => old.as_ref().and_then(|user| user.rabbitmq_hash()).cloned(),
            PasswordWish::Clear(text) => {
                self.security.hashes_for_rabbitmq.then(|| PasswordHash::for_rabbitmq(text.as_bytes()))
            }
            PasswordWish::Both(_, rabbitmq) => Some(rabbitmq.clone()),
            PasswordWish::Remove | PasswordWish::Hash(_) => None,
        };
        let hash = match password {
            PasswordWish::Keep => old.as_ref().and_then(|user| user.password()).cloned(),
            PasswordWish::Remove => None,
            PasswordWish::Clear(text) if text.is_empty() => return Err(SecurityError::EmptyPassword),
            PasswordWish::Clear(text) => Some(PasswordHash::of(text.as_bytes(), self.security.iterations)),
            PasswordWish::Hash(hash) | PasswordWish::Both(hash, _) => Some(hash),
        };
        let tags = tags.unwrap_or_else(|| old.as_ref().map(|user| user.tags().to_vec()).unwrap_or_default());
        check_texts("the list of tags", tags.iter().map(String::as_str))?;
        let limits = limits.unwrap_or_else(|| old.as_ref().map(|user| user.limits()).unwrap_or_default());
        let user = User::new(name.clone(), hash, tags, limits).with_rabbitmq_hash(rabbitmq).with_scram(scram);
        // Who was verified with a password that is still the same need not be again.
        let same = |old: &Arc<User>| old.password() == user.password() && old.scram() == user.scram();
        if let Some(verified) = old.clone().filter(same).and_then(|old| old.verified()) {
            user.set_verified(verified);
        }
        let user = Arc::new(user);
        let mut items = vec![put(record::user_key(&name), record::encode_user(&user))];
        items.extend(scram_items(&name, old.as_ref().map(|old| old.scram()), user.scram()));
        let written = Arc::clone(&user);
        let change = Change::new(items, move |broker| {
            let mut first = false;
            broker.security.change(|inner| {
                first = inner.users.is_empty();
                inner.users.insert(name.clone(), written);
            });
            if first && name != GUEST {
                broker.dismiss_user(GUEST);
            }
        });
        Ok((user, change))
    }

    /// Deletes a user with his permissions, and ends his connections. False: there is none.
    ///
    /// # Errors
    /// `Append`.
    pub fn delete_user(&self, name: &str) -> Result<bool, SecurityError> {
        let mut items = Vec::new();
        {
            let inner = self.security.inner.read();
            if !inner.users.contains_key(name) {
                return Ok(false);
            }
            items.push(drop_key(record::user_key(name)));
            items.extend(scram_items(
                name,
                inner.users.get(name).map(|user| user.scram()),
                &ScramCredentials::default(),
            ));
            for (vhost, users) in &inner.grants {
                let Some(grant) = users.get(name) else { continue };
                items.extend(grant.permissions.iter().map(|_| drop_key(record::permissions_key(vhost, name))));
                items.extend(grant.topics.keys().map(|exchange| drop_key(record::topic_key(vhost, name, exchange))));
            }
        }
        self.commit(0, items)?;
        self.security.change(|inner| {
            inner.users.remove(name);
            inner.grants.values_mut().for_each(|users| drop(users.remove(name)));
            inner.tidy();
        });
        self.dismiss_user(name);
        Ok(true)
    }

    /// Makes the first user, with all permissions in virtual host `/`, unless one is there: the user that a node is configured with.
    /// False: there are users already.
    ///
    /// # Errors
    /// See [`Broker::put_user`].
    pub fn ensure_first_user(self: &Arc<Self>, name: &str, password: &str) -> Result<bool, SecurityError> {
        if !self.security.users().is_empty() {
            return Ok(false);
        }
        let tags = Some(vec!["administrator".to_owned()]);
        self.put_user(UserWish {
            name: name.to_owned(),
            password: PasswordWish::Clear(password.to_owned()),
            tags,
            limits: None,
        })?;
        self.set_permissions(DEFAULT_VHOST, name, Permissions::all())?;
        Ok(true)
    }

    pub(super) fn dismiss_user(&self, name: &str) {
        self.dismiss(&format!("user '{name}' is deleted"), |user, _| user == name);
    }

    /// Tells connections that they are to end.
    pub(super) fn dismiss(&self, reason: &str, wanted: impl Fn(&str, &str) -> bool) {
        for to in self.security.seats.addresses(wanted) {
            self.reply(to, Reply::Done(Box::new(Dismissed { reason: reason.to_owned() })));
        }
    }
}

/// Permissions.
impl Broker {
    fn check_both(&self, vhost: &str, user: &str) -> Result<(), SecurityError> {
        if self.vhosts.get(vhost).is_none_or(|vhost| vhost.check_alive().is_err()) {
            return Err(SecurityError::NoVhost(vhost.to_owned()));
        }
        if !self.security.inner.read().users.contains_key(user) {
            return Err(SecurityError::NoUser(user.to_owned()));
        }
        Ok(())
    }

    /// Says what a user may do in a virtual host.
    ///
    /// # Errors
    /// `NoVhost`, `NoUser`, `TooLong`, `Append`.
    pub fn set_permissions(
        self: &Arc<Self>,
        vhost: &str,
        user: &str,
        permissions: Permissions,
    ) -> Result<(), SecurityError> {
        let change = self.plan_permissions(vhost, user, permissions)?;
        Ok(self.carry_out(change)?)
    }

    pub(crate) fn plan_permissions(
        &self,
        vhost: &str,
        user: &str,
        permissions: Permissions,
    ) -> Result<Option<Change>, SecurityError> {
        self.check_both(vhost, user)?;
        let Permissions { configure, write, read } = &permissions;
        check_texts("an expression", [configure.text(), write.text(), read.text()])?;
        let items = vec![put(record::permissions_key(vhost, user), record::encode_permissions(&permissions))];
        let (vhost, user) = (vhost.to_owned(), user.to_owned());
        Ok(Change::new(items, move |broker| {
            broker.security.change(|inner| inner.grant(&vhost, &user).permissions = Some(Arc::new(permissions)))
        }))
    }

    /// Takes a user's permissions in a virtual host away. False: he has none.
    ///
    /// # Errors
    /// `Append`.
    pub fn clear_permissions(&self, vhost: &str, user: &str) -> Result<bool, SecurityError> {
        let known = |grant: &super::Grant| grant.permissions.is_some();
        if !self.security.inner.read().grants.get(vhost).and_then(|users| users.get(user)).is_some_and(known) {
            return Ok(false);
        }
        self.commit(0, vec![drop_key(record::permissions_key(vhost, user))])?;
        self.security.change(|inner| {
            inner.grant(vhost, user).permissions = None;
            inner.tidy();
        });
        Ok(true)
    }

    /// Says with which routing keys a user may use a topic exchange, which need not be there. `{username}` and `{vhost}` in the
    /// expressions stand for the names.
    ///
    /// # Errors
    /// `NoVhost`, `NoUser`, `Name`, `TooLong`, `Pattern`, `Append`.
    pub fn set_topic_permission(
        self: &Arc<Self>,
        vhost: &str,
        user: &str,
        exchange: &str,
        write: &str,
        read: &str,
    ) -> Result<(), SecurityError> {
        let change = self.plan_topic_permission(vhost, user, exchange, write, read)?;
        Ok(self.carry_out(change)?)
    }

    pub(crate) fn plan_topic_permission(
        &self,
        vhost: &str,
        user: &str,
        exchange: &str,
        write: &str,
        read: &str,
    ) -> Result<Option<Change>, SecurityError> {
        self.check_both(vhost, user)?;
        check_texts("an expression", [write, read])?;
        if exchange.len() > NAME_BYTES_MAX {
            return Err(SecurityError::Name { what: "exchange name", name: exchange.to_owned() });
        }
        let permission = TopicPermission::new(write, read, user, vhost)?;
        let items = vec![put(record::topic_key(vhost, user, exchange), record::encode_topic(&permission))];
        let [vhost, user, exchange] = [vhost, user, exchange].map(str::to_owned);
        let then = move |broker: &Arc<Self>| {
            broker.security.change(|inner| {
                drop(Arc::make_mut(&mut inner.grant(&vhost, &user).topics).insert(exchange, permission))
            })
        };
        Ok(Change::new(items, then))
    }

    /// Takes a user's topic permissions in a virtual host away, of one exchange or of all. False: he has none.
    ///
    /// # Errors
    /// `Append`.
    pub fn clear_topic_permissions(
        &self,
        vhost: &str,
        user: &str,
        exchange: Option<&str>,
    ) -> Result<bool, SecurityError> {
        let topics = self.security.topic_permissions(vhost, user);
        let gone = |name: &str| exchange.is_none_or(|exchange| exchange == name);
        let items: Vec<_> = topics
            .keys()
            .filter(|name| gone(name))
            .map(|name| drop_key(record::topic_key(vhost, user, name)))
            .collect();
        if items.is_empty() {
            return Ok(false);
        }
        self.commit(0, items)?;
        self.security.change(|inner| {
            Arc::make_mut(&mut inner.grant(vhost, user).topics).retain(|name, _| !gone(name));
            inner.tidy();
        });
        Ok(true)
    }
}

/// Virtual hosts.
impl Broker {
    /// Adds a virtual host, or changes what is said of one. True: it is new. One that is only half deleted goes before.
    ///
    /// # Errors
    /// `Name`, `TooLong`, `QueueType`, `TooManyVhosts`, `Append`.
    pub fn put_vhost(self: &Arc<Self>, wish: VhostWish) -> Result<bool, SecurityError> {
        let PlannedVhost { name, metadata, is_new, items } = self.plan_vhost(wish, 0)?;
        self.carry_out(Change::new(items, move |broker| broker.vhosts.or_new(&name).set_metadata(metadata)))?;
        Ok(is_new)
    }

    /// `others`: virtual hosts that are about to be there.
    pub(crate) fn plan_vhost(self: &Arc<Self>, wish: VhostWish, others: u64) -> Result<PlannedVhost, SecurityError> {
        let VhostWish { name, description, tags, default_queue_type } = wish;
        check_name("vhost name", &name)?;
        if self.vhosts.get(&name).is_some_and(|vhost| vhost.is_deleted()) {
            self.delete_vhost(&name)?;
            if self.vhosts.get(&name).is_some() {
                return Err(AppendError::Stopped.into());
            }
        }
        let there = self.vhosts.get(&name);
        let old = there.as_ref().map(|vhost| vhost.metadata()).unwrap_or_default();
        let metadata = VhostMetadata {
            description: description.unwrap_or_else(|| old.description.clone()),
            tags: tags.unwrap_or_else(|| old.tags.clone()),
            default_queue_type: default_queue_type.unwrap_or_else(|| old.default_queue_type.clone()),
        };
        check_texts("the description", [metadata.description.as_str()])?;
        check_texts("the list of tags", metadata.tags.iter().map(String::as_str))?;
        if let Some(kind) = metadata.default_queue_type.as_ref().filter(|kind| !is_queue_type(kind)) {
            return Err(SecurityError::QueueType(kind.clone()));
        }
        if there.is_none() {
            let too_many = |LimitReached { limit, .. }| SecurityError::TooManyVhosts { name: name.clone(), limit };
            self.enforce_limit(LimitKind::Vhosts, others + 1).map_err(too_many)?;
        }
        let is_new = there.is_none();
        let item = (is_new || metadata != *old).then(|| put(record::vhost_key(&name), record::encode_vhost(&metadata)));
        Ok(PlannedVhost { name, metadata, is_new, items: item.into_iter().collect() })
    }
}

/// The start.
impl Broker {
    /// Takes a state record.
    ///
    /// # Errors
    /// When it is of another version, or damaged.
    pub(crate) fn restore_security(&self, key: &[u8], value: &[u8]) -> Result<(), BrokerOpenError> {
        let found = record::decode(key, value)
            .ok_or_else(|| BrokerOpenError::Security { key: key.escape_ascii().to_string() })?;
        match found {
            Found::Vhost(name, metadata) => self.vhosts.or_new(&name).set_metadata(metadata),
            Found::Deletion(name) => self.vhosts.or_new(&name).set_deleted(true),
            Found::User(user) => self.security.change(|inner| {
                let scram = inner.scram_first.remove(user.name()).unwrap_or_default();
                inner.users.insert(user.name().to_owned(), Arc::new(user.with_scram(scram)));
            }),
            Found::Scram(name, keys) => self.security.change(|inner| match inner.users.get_mut(&name) {
                Some(user) => {
                    let mut scram = user.scram().clone();
                    scram.put(keys);
                    *user = Arc::new(user.again().with_scram(scram));
                }
                None => inner.scram_first.entry(name).or_default().put(keys),
            }),
            Found::Permissions { vhost, user, permissions } => {
                self.security.change(|inner| inner.grant(&vhost, &user).permissions = Some(Arc::new(permissions)));
            }
            Found::Topic { vhost, user, exchange, permission } => {
                self.security.change(|inner| {
                    drop(Arc::make_mut(&mut inner.grant(&vhost, &user).topics).insert(exchange, permission))
                });
            }
            Found::Acl(acl) => self.security.change(|inner| inner.acls.insert(acl)),
        }
        Ok(())
    }
}
