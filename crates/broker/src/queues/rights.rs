//! What declarations, deletions and bindings take, asked on the controller's thread in the turn in which they are carried out: whether a queue or
//! an exchange is there, what a topic carries, and of which type an exchange is, is known only then.
//!
//! | what | permission | by entries, where they count |
//! |---|---|---|
//! | declare a queue | configure on it | `Create` |
//! | … that is new, with a dead-letter exchange | read on it, write on the exchange | `Read`, `Write` |
//! | … that is new, on a topic that is there | read and write on the queue | `Read`, `Write` and `Alter` on the topic |
//! | … that is new, with `x-share-group` | | `Read` on the group |
//! | declare an exchange | configure on it | `Create` |
//! | … that is new, with an alternate exchange | read on it, write on the alternate | `Read`, `Write` |
//! | delete a queue or an exchange | configure on it | `Delete` |
//! | purge a queue by HTTP | read on it | `Read` on it and on its group |
//! | change or delete a topic by HTTP | as the operation has it, in the queue's virtual host if it is one, otherwise in `/` | the operation |
//! | change or delete a group by HTTP | as the operation has it, in `/`; the group of all queues: tag `administrator` | the operation |
//! | publish by HTTP | write on the exchange; to a topic exchange: on the key | `Write` on it; to the default exchange: on the queues named |
//! | bind and unbind | write on the destination, read on the source; from a topic exchange: the key | `Write`, `Read` |
//!
//! For entries a queue and an exchange are topics (`names.rs`). Source of permissions: RabbitMQ 4.3, `rabbit_channel`.

use routing::{BindError, Kind, OwnedValue};
use types::ConnectionId;

use super::admin::{BindingWish, ExchangeError, QueueError};
use super::arguments::QueueArguments;
use super::{DEFAULT_VHOST, QUEUE_GROUP, Queue, Vhost};
use crate::Broker;
use crate::security::{AclOperation, AclQuestion, AclResource, CLUSTER, Denial, Permission, Principal, Resource};
use crate::topic::Topic;

/// Who asks for a declaration or a binding, and by which connection.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who asks.
    pub principal: Principal,
    /// What this connection alone may use is for it.
    pub connection: ConnectionId,
}

impl Caller {
    /// Of no connection.
    pub const NO_CONNECTION: ConnectionId = ConnectionId(u64::MAX);

    /// The broker itself, for a connection.
    pub fn broker(connection: ConnectionId) -> Self {
        Self { principal: Principal::broker(), connection }
    }
}

impl Broker {
    /// # Errors
    /// He may not.
    fn check_as(
        &self,
        who: &Principal,
        vhost: &Vhost,
        permission: Permission,
        operation: AclOperation,
        resource: Resource<'_>,
    ) -> Result<(), Box<Denial>> {
        self.security().check_permission(who, &vhost.name, permission, resource)?;
        self.check_entries(who, vhost, operation, resource)
    }

    /// By access control entries alone, for which a queue and an exchange are topics.
    pub(super) fn check_entries(
        &self,
        who: &Principal,
        vhost: &Vhost,
        operation: AclOperation,
        resource: Resource<'_>,
    ) -> Result<(), Box<Denial>> {
        if !self.security().acls_enforced() {
            return Ok(());
        }
        let (entry, kind, name) = (vhost.resource_name(resource.name()), resource.kind(), resource.name());
        let question = AclQuestion { operation, resource: AclResource::Topic, entry: &entry, kind, name };
        Ok(self.security().check_acl(who, &vhost.name, question)?)
    }

    /// Who declares something that passes messages on reads from the one and writes to the other.
    ///
    /// # Errors
    /// He may not.
    fn check_passing_on(
        &self,
        who: &Principal,
        vhost: &Vhost,
        from: Resource<'_>,
        to: &[u8],
    ) -> Result<(), Box<Denial>> {
        self.check_as(who, vhost, Permission::Read, AclOperation::Read, from)?;
        self.check_as(who, vhost, Permission::Write, AclOperation::Write, Resource::Exchange(to))
    }

    /// May he declare a queue of this name, whether it is there or not?
    ///
    /// # Errors
    /// He may not.
    pub(super) fn check_queue(&self, who: &Principal, vhost: &Vhost, queue: &[u8]) -> Result<(), Box<Denial>> {
        self.check_as(who, vhost, Permission::Configure, AclOperation::Create, Resource::Queue(queue))
    }

    /// May he declare this queue, which is not there? `topic`: the one that it is to be attached to.
    ///
    /// # Errors
    /// He may not.
    pub(super) fn check_new_queue(
        &self,
        who: &Principal,
        vhost: &Vhost,
        queue: &[u8],
        rules: &QueueArguments,
        topic: Option<&Topic>,
    ) -> Result<(), Box<Denial>> {
        if let Some(exchange) = &rules.dead_letter_exchange {
            self.check_passing_on(who, vhost, Resource::Queue(queue), exchange)?;
        }
        let ask = |operation, resource, entry: &str, kind| {
            self.security().check_acl(
                who,
                &vhost.name,
                AclQuestion { operation, resource, entry, kind, name: entry.as_bytes() },
            )
        };
        if let Some(topic) = topic {
            // Its consumers get what others have written, and its publishers write where others read.
            self.check_as(who, vhost, Permission::Read, AclOperation::Read, Resource::Queue(queue))?;
            self.check_as(who, vhost, Permission::Write, AclOperation::Write, Resource::Queue(queue))?;
            // Its limits would count for those who write to the topic, and its messages expire.
            ask(AclOperation::Alter, AclResource::Topic, &topic.name, "topic")?;
        }
        if let Some(group) = &rules.share_group {
            ask(AclOperation::Read, AclResource::Group, group, "group")?;
        }
        Ok(())
    }

    /// May he declare an exchange of this name, whether it is there or not?
    ///
    /// # Errors
    /// He may not.
    pub(super) fn check_exchange(&self, who: &Principal, vhost: &Vhost, exchange: &[u8]) -> Result<(), Box<Denial>> {
        self.check_as(who, vhost, Permission::Configure, AclOperation::Create, Resource::Exchange(exchange))
    }

    /// May he declare this exchange, which is not there?
    ///
    /// # Errors
    /// He may not.
    pub(super) fn check_new_exchange(
        &self,
        who: &Principal,
        vhost: &Vhost,
        exchange: &[u8],
        arguments: &routing::Arguments,
    ) -> Result<(), Box<Denial>> {
        match arguments.get(b"alternate-exchange").map(|argument| &argument.value) {
            Some(OwnedValue::Bytes(alternate)) => {
                self.check_passing_on(who, vhost, Resource::Exchange(exchange), alternate)
            }
            _ => Ok(()),
        }
    }

    /// May he delete a queue or an exchange of this name, whether it is there or not?
    ///
    /// # Errors
    /// He may not.
    pub(super) fn check_deletable(
        &self,
        who: &Principal,
        vhost: &Vhost,
        resource: Resource<'_>,
    ) -> Result<(), Box<Denial>> {
        self.check_as(who, vhost, Permission::Configure, AclOperation::Delete, resource)
    }

    /// May he take away the messages of a queue that are ready?
    ///
    /// # Errors
    /// He may not.
    pub fn check_purge(&self, who: &Principal, queue: &Queue) -> Result<(), Box<Denial>> {
        // One of a virtual host that is gone has no messages.
        let Some(vhost) = self.vhosts.get(&queue.vhost) else { return Ok(()) };
        self.check_as(who, &vhost, Permission::Read, AclOperation::Read, Resource::Queue(&queue.name))?;
        self.check_entry(who, (AclOperation::Read, AclResource::Group), queue.understood().group())
    }

    /// By access control entries alone.
    fn check_entry(
        &self,
        who: &Principal,
        (operation, resource): (AclOperation, AclResource),
        name: &str,
    ) -> Result<(), Box<Denial>> {
        let question = AclQuestion {
            operation,
            resource,
            entry: name,
            kind: if resource == AclResource::Group { "group" } else { "topic" },
            name: name.as_bytes(),
        };
        Ok(self.security().check_acl(who, DEFAULT_VHOST, question)?)
    }

    /// May he do this with a topic of this name? Who may create or delete topics of the cluster need not be named at each.
    ///
    /// # Errors
    /// He may not.
    pub fn check_topic(
        &self,
        who: &Principal,
        permission: Permission,
        operation: AclOperation,
        name: &str,
    ) -> Result<(), Box<Denial>> {
        let (vhost, thing) = self.thing_of_topic(name);
        self.security().check_permission(who, &vhost, permission, Resource::Queue(&thing))?;
        let of_all = matches!(operation, AclOperation::Create | AclOperation::Delete);
        if of_all && self.security().allows_quietly(who, operation, AclResource::Cluster, CLUSTER) {
            return Ok(());
        }
        self.check_entry(who, (operation, AclResource::Topic), name)
    }

    /// May he do this with a group of this name?
    ///
    /// # Errors
    /// He may not.
    pub fn check_group(
        &self,
        who: &Principal,
        permission: Permission,
        operation: AclOperation,
        name: &str,
    ) -> Result<(), Box<Denial>> {
        if name == QUEUE_GROUP {
            return Ok(self.security().check_administrator(who, "group", name)?);
        }
        self.security().check_permission(who, DEFAULT_VHOST, permission, Resource::Queue(name.as_bytes()))?;
        self.check_entry(who, (operation, AclResource::Group), name)
    }

    /// May he publish with these routing keys to an exchange? By the default exchange he writes to the queues that they name. For what is published
    /// by the controller.
    ///
    /// # Errors
    /// He may not.
    pub fn check_publish(
        &self,
        who: &Principal,
        vhost: &Vhost,
        exchange: &[u8],
        keys: &[String],
    ) -> Result<(), Box<Denial>> {
        let resource = Resource::Exchange(exchange);
        if exchange.is_empty() {
            self.security().check_permission(who, &vhost.name, Permission::Write, resource)?;
            keys.iter().try_for_each(|key| {
                self.check_entries(who, vhost, AclOperation::Write, Resource::Queue(key.as_bytes()))
            })?;
        } else {
            self.check_as(who, vhost, Permission::Write, AclOperation::Write, resource)?;
        }
        if !has_keys(vhost, exchange) {
            return Ok(());
        }
        Ok(keys.iter().try_for_each(|key| {
            self.security().check_key(who, &vhost.name, Permission::Write, exchange, key.as_bytes())
        })?)
    }

    /// May he make and take away this binding? Of what is not there he is told when he may.
    ///
    /// # Errors
    /// `Denied`, `Bind`, `Queue`.
    pub(super) fn check_binding(
        &self,
        caller: &Caller,
        vhost: &Vhost,
        wish: &BindingWish,
    ) -> Result<(), ExchangeError> {
        let (who, destination) = (&caller.principal, &*wish.destination);
        let resource = if wish.to_queue { Resource::Queue(destination) } else { Resource::Exchange(destination) };
        self.check_as(who, vhost, Permission::Write, AclOperation::Write, resource)?;
        if wish.source.is_empty() || resource == Resource::Exchange(b"") {
            return Err(BindError::DefaultExchange.into());
        }
        self.check_as(who, vhost, Permission::Read, AclOperation::Read, Resource::Exchange(&wish.source))?;
        if has_keys(vhost, &wish.source) {
            self.security().check_key(who, &vhost.name, Permission::Read, &wish.source, &wish.key).map_err(Box::new)?;
        }
        match self.queue_for(vhost, destination, caller.connection) {
            Err(error @ QueueError::Locked { .. }) if wish.to_queue => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Are keys looked at?
fn has_keys(vhost: &Vhost, exchange: &[u8]) -> bool {
    vhost
        .exchanges
        .read()
        .exchange(exchange)
        .is_some_and(|exchange| exchange.kind() == Kind::Topic && !exchange.delayed())
}

#[cfg(test)]
mod tests;
