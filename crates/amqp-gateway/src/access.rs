//! What the user of a connection may do. Permissions are looked up once and again after each change of them; what an expression
//! allowed is remembered, so that a publish costs no matching of expressions. What declarations, deletions and bindings take is asked on the controller, where
//! they are carried out (`broker`, `queues/rights.rs`): the client comes along as a [`Principal`].
//!
//! | operation | permission | by entries, where they count |
//! |---|---|---|
//! | exchange.declare | configure on the exchange; with an alternate: read on it, write on the alternate | `Create`; `Read`, `Write` |
//! | exchange.declare, passive | any on the exchange | `Describe` |
//! | exchange.delete | configure | `Delete` |
//! | exchange.bind, exchange.unbind | write on the destination, read on the source; from a topic exchange: the key | `Write`, `Read` |
//! | queue.declare | configure on the queue; with a dead-letter exchange: read on it, write on the exchange | `Create`; `Read`, `Write`; `Read` on the group of `x-share-group` |
//! | … over a topic that is there | read and write on the queue | `Read`, `Write` and `Alter` on the topic |
//! | queue.declare, passive | any on the queue | `Describe` |
//! | queue.delete | configure | `Delete` |
//! | queue.bind, queue.unbind | write on the queue, read on the exchange; from a topic exchange: the key | `Write`, `Read` |
//! | queue.purge, basic.get, basic.consume | read on the queue | `Read` on it and, but for streams, on its group |
//! | basic.publish | write on the exchange; to a topic exchange: the key | `Write` on it; to the default exchange: on the queues named |
//!
//! Entries are access control entries. For them a queue and an exchange are topics, under the names that Kafka clients see
//! (`broker::Vhost::resource_name`), and the default exchange, where it is named as an alternate or for dead letters, is topic `amq.default`.
//!
//! Source of permissions: RabbitMQ 4.3, `rabbit_channel`, `rabbit_access_control`; of entries: `docs/adr/0021-acls.md`.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use amqp_wire::ReplyCode;
use broker::{
    AclAnswers, AclOperation, AclResource, Broker, LimitKind, NoChannel, Permission, Permissions, Principal, Resource,
    Seat, Security, TopicPermissions, User, Vhost, VhostSeat, Via,
};
use routing::{Exchange, Kind, Name};

use crate::error::Failure;

/// What was allowed lately and is remembered, of names and of keys: as much as RabbitMQ remembers.
const GRANTED_MAX: usize = 12;
/// Something that was allowed.
struct Granted {
    permission: Permission,
    exchange: bool,
    name: Box<[u8]>,
}

/// Of one connection.
#[derive(Default)]
pub(crate) struct Access {
    user: Option<Arc<User>>,
    /// From where he has logged in.
    address: Option<IpAddr>,
    vhost: Option<Arc<Vhost>>,
    /// Its place among the connections of the user, and among those of the virtual host.
    seats: Option<(Seat, VhostSeat)>,
    /// As of which the rest is.
    version: u64,
    permissions: Option<Arc<Permissions>>,
    topics: Arc<TopicPermissions>,
    granted: Vec<Granted>,
    /// Exchange and key of publishes.
    granted_keys: Vec<(Name, Box<[u8]>)>,
    /// `None`: access control entries do not count.
    acls: Option<(Box<AclAnswers>, IpAddr)>,
}

fn refused(text: impl fmt::Display) -> Failure {
    Failure::channel(ReplyCode::AccessRefused, text)
}

/// Moves what is found to the front.
fn found<T>(all: &mut [T], is: impl Fn(&T) -> bool) -> bool {
    let at = all.iter().position(is);
    if let Some(at) = at {
        all.swap(0, at);
    }
    at.is_some()
}

impl Access {
    /// Somebody has logged in, from this address.
    pub fn log_in(&mut self, user: Arc<User>, security: &Security, address: IpAddr) {
        (self.user, self.address) = (Some(user), Some(address));
        self.acls = AclAnswers::new(security, "amqp").map(|answers| (answers, address));
    }

    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// The user, for what is decided elsewhere. `None`: nobody has logged in.
    pub fn principal(&self) -> Option<Principal> {
        Some(Principal::new(Arc::clone(self.user.as_ref()?), self.address?, Via::Amqp))
    }

    fn names(&self) -> (&str, &str) {
        (self.user.as_ref().map_or("", |user| user.name()), self.vhost.as_ref().map_or("", |vhost| vhost.name()))
    }

    /// A virtual host is opened; the places are kept until [`Access::leave`].
    ///
    /// # Errors
    /// *530*: the user may not.
    pub fn enter(&mut self, security: &Security, vhost: Arc<Vhost>, seats: (Seat, VhostSeat)) -> Result<(), Failure> {
        (self.vhost, self.seats) = (Some(vhost), Some(seats));
        // No catalog has it: all is looked up.
        self.version = 0;
        self.refresh(security);
        self.check_vhost()
    }

    /// # Errors
    /// *530*: the user may not use his virtual host.
    pub fn check_vhost(&self) -> Result<(), Failure> {
        if self.permissions.is_some() && self.vhost.as_ref().is_some_and(|vhost| !vhost.is_deleted()) {
            return Ok(());
        }
        let (user, vhost) = self.names();
        Err(Failure::connection(
            ReplyCode::NotAllowed,
            format_args!("access to vhost '{vhost}' refused for user '{user}'"),
        ))
    }

    /// The connection ends.
    pub fn leave(&mut self) {
        self.seats = None;
    }

    /// # Errors
    /// *530*: the user or the node has as many channels as there may be.
    pub fn open_channel(&mut self, broker: &Broker) -> Result<(), Failure> {
        self.refresh(broker.security());
        let Some((seat, _)) = self.seats.as_mut() else { return Ok(()) };
        let of_user = self.user.as_ref().and_then(|user| user.limits().max_channels);
        let of_node = u32::try_from(broker.limit(LimitKind::Channels)).unwrap_or(u32::MAX);
        let (kind, text) = match seat.open_channel(of_user, of_node) {
            Ok(()) => return Ok(()),
            Err(NoChannel::OfUser(limit)) => {
                let text =
                    format!("for user '{}' has reached the maximum allowed user limit of {limit}", self.names().0);
                (LimitKind::UserChannels, text)
            }
            Err(NoChannel::OfNode(limit)) => {
                let text =
                    format!("on node '{}' has reached the maximum allowed limit of {limit}", broker::node_name());
                (LimitKind::Channels, text)
            }
        };
        broker.limits().note_refusal(kind);
        Err(Failure::connection(ReplyCode::NotAllowed, format_args!("number of channels opened {text}")))
    }

    pub fn close_channel(&mut self) {
        self.seats.iter_mut().for_each(|(seat, _)| seat.close_channel());
    }

    /// Looks everything up again that changed.
    pub fn refresh(&mut self, security: &Security) {
        let version = security.version();
        if version == self.version {
            return;
        }
        self.version = version;
        self.granted.clear();
        self.granted_keys.clear();
        let Some(user) = self.user.take() else { return };
        if let Some(vhost) = &self.vhost {
            self.permissions = security.permissions(vhost.name(), user.name());
            self.topics = security.topic_permissions(vhost.name(), user.name());
        }
        // One that was deleted is told so; until then he is who he was.
        self.user = security.user(user.name()).or(Some(user));
    }

    /// By permissions, and by entries for the operation that is usual with one.
    ///
    /// # Errors
    /// *403*: the user may not.
    pub fn check(
        &mut self,
        security: &Security,
        permission: Permission,
        resource: Resource<'_>,
    ) -> Result<(), Failure> {
        let operation = match permission {
            Permission::Configure => AclOperation::Create,
            Permission::Write => AclOperation::Write,
            Permission::Read => AclOperation::Read,
        };
        self.check_permission(security, permission, resource)?;
        self.check_acl(security, operation, resource)
    }

    /// By access control entries only.
    ///
    /// # Errors
    /// *403*: the user may not.
    pub fn check_acl(
        &mut self,
        security: &Security,
        operation: AclOperation,
        resource: Resource<'_>,
    ) -> Result<(), Failure> {
        let Some((answers, address)) = &mut self.acls else { return Ok(()) };
        answers.refresh(security, self.user.as_ref().map(|user| user.name()), *address);
        let name = resource.name();
        if let Some(vhost) = &self.vhost
            && answers.may_called(
                security,
                (operation, AclResource::Topic),
                name,
                || Cow::Owned(vhost.resource_name(name)),
                false,
            )
        {
            return Ok(());
        }
        let (user, vhost) = self.names();
        Err(refused(format_args!(
            "{} access to {resource} in vhost '{vhost}' refused for user '{user}'",
            operation.name()
        )))
    }

    /// May the user work for this group, by access control entries?
    ///
    /// # Errors
    /// *403*: he may not.
    pub fn check_group(&mut self, security: &Security, group: &str) -> Result<(), Failure> {
        let Some((answers, address)) = &mut self.acls else { return Ok(()) };
        answers.refresh(security, self.user.as_ref().map(|user| user.name()), *address);
        if answers.may(security, (AclOperation::Read, AclResource::Group), group, false) {
            return Ok(());
        }
        Err(refused(format_args!("Read access to group '{group}' refused for user '{}'", self.names().0)))
    }

    /// By permissions only.
    ///
    /// # Errors
    /// *403*: the user may not.
    pub fn check_permission(
        &mut self,
        security: &Security,
        permission: Permission,
        resource: Resource<'_>,
    ) -> Result<(), Failure> {
        self.refresh(security);
        let pattern = self.permissions.as_ref().map(|permissions| permissions.of(permission));
        if pattern.is_some_and(|pattern| pattern.is_everything()) {
            return Ok(());
        }
        let (name, exchange) = (resource.name(), matches!(resource, Resource::Exchange(_)));
        if found(&mut self.granted, |one| {
            one.permission == permission && one.exchange == exchange && *one.name == *name
        }) {
            return Ok(());
        }
        if pattern.is_none_or(|pattern| !pattern.matches(name)) {
            let (user, vhost) = self.names();
            return Err(refused(format_args!(
                "{permission} access to {resource} in vhost '{vhost}' refused for user '{user}'"
            )));
        }
        self.granted.insert(0, Granted { permission, exchange, name: name.into() });
        self.granted.truncate(GRANTED_MAX);
        Ok(())
    }

    /// Do access control entries count?
    pub fn has_acls(&self) -> bool {
        self.acls.is_some()
    }

    /// Is there a topic exchange of which the user may not use all keys?
    pub fn has_topics(&self) -> bool {
        !self.topics.is_empty()
    }

    /// May something be published with a key to an exchange? Only topic exchanges ask.
    ///
    /// # Errors
    /// *403*: not by this user.
    pub fn check_key(&mut self, exchange: &Exchange<'_>, key: &[u8]) -> Result<(), Failure> {
        if !self.has_topics() || exchange.kind() != Kind::Topic || exchange.delayed() {
            return Ok(());
        }
        let name = exchange.name();
        let rules = std::str::from_utf8(name).ok().and_then(|name| self.topics.get(name));
        let Some(pattern) = rules.and_then(|rules| rules.of(Permission::Write)) else { return Ok(()) };
        if found(&mut self.granted_keys, |(of, one)| of == name && **one == *key) {
            return Ok(());
        }
        if !pattern.matches(key) {
            let (user, vhost) = self.names();
            let key = String::from_utf8_lossy(key);
            let text = format!(
                "write access to topic '{key}' in exchange '{name}' in vhost '{vhost}' refused for user '{user}'"
            );
            return Err(refused(text));
        }
        self.granted_keys.insert(0, (name.clone(), key.into()));
        self.granted_keys.truncate(GRANTED_MAX);
        Ok(())
    }
}
