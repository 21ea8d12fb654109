//! What is said of a virtual host beside what is in it, what that means for declarations, and how it is emptied when it is deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use journal::AppendError;
use routing::{Argument, Arguments, OwnedValue};

use super::admin::{ExchangeError, QueueDeclaration, QueueError};
use super::delete::ManyDeletions;
use super::parameters::{parameter_key, policy_key};
use super::{PolicyScope, QueueArguments, Vhost, Vhosts};
use crate::Broker;

/// The octet of AMQP's field tables for a long string.
const LONG_STRING: u8 = b'S';

/// Description of a virtual host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VhostMetadata {
    /// For people; at most 65,535 bytes, like each of the other texts.
    pub description: String,
    /// For people and tools.
    pub tags: Vec<String>,
    /// Type of queues that are declared without one: `x-queue-type`, where what is declared can be of that type.
    pub default_queue_type: Option<String>,
}

/// It is deleted, or is being deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vhost '{0}' is deleted")]
pub struct VhostDeleted(pub String);

impl Vhost {
    /// What is said of it, as of now.
    pub fn metadata(&self) -> Arc<VhostMetadata> {
        Arc::clone(&self.metadata.read())
    }

    pub(crate) fn set_metadata(&self, metadata: VhostMetadata) {
        *self.metadata.write() = Arc::new(metadata);
    }

    /// Is it being deleted, or was it?
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    /// Nothing is taken for it any more; or, when its deletion could not begin, it is as it was.
    pub(crate) fn set_deleted(&self, deleted: bool) {
        self.deleted.store(deleted, Ordering::SeqCst);
    }

    /// To be asked on the controller's thread before a record is written or deleted that names it: the caller has found it earlier, and
    /// it may have gone since, or another of its name have come.
    ///
    /// # Errors
    /// `VhostDeleted`.
    pub(crate) fn check_alive(&self) -> Result<(), VhostDeleted> {
        if self.is_deleted() { Err(VhostDeleted(self.name.to_string())) } else { Ok(()) }
    }

    /// A declaration as it counts here: with the type that queues have by default, where they can have it.
    ///
    /// # Errors
    /// `VhostDeleted`.
    pub(super) fn complete(&self, mut wish: QueueDeclaration) -> Result<QueueDeclaration, QueueError> {
        self.check_alive()?;
        let metadata = self.metadata();
        let Some(kind) =
            metadata.default_queue_type.as_deref().filter(|_| wish.arguments.get(b"x-queue-type").is_none())
        else {
            return Ok(wish);
        };
        let replicated = kind != "classic";
        if replicated && (!wish.durable || wish.owner.is_some() || wish.auto_delete) {
            return Ok(wish);
        }
        let mut fields = wish.arguments.fields().to_vec();
        fields.push(type_argument(kind));
        wish.arguments = Arguments::new(fields);
        Ok(wish)
    }
}

fn type_argument(kind: &str) -> Argument {
    Argument { name: b"x-queue-type"[..].into(), tag: LONG_STRING, value: OwnedValue::Bytes(kind.as_bytes().into()) }
}

/// Is it a type that queues can have?
pub(crate) fn is_queue_type(kind: &str) -> bool {
    QueueArguments::new(&Arguments::new(vec![type_argument(kind)])).is_ok()
}

impl Vhost {
    /// Keys of the records of its policies and parameters.
    fn rule_keys(&self) -> Vec<Bytes> {
        let policies = [PolicyScope::User, PolicyScope::Operator].into_iter().flat_map(|scope| {
            let all = self.policies.all(scope);
            all.into_iter().map(move |policy| policy_key(&self.name, scope, policy.name()))
        });
        let parameters =
            self.parameters.all().into_iter().map(|(component, name, _)| parameter_key(&self.name, &component, &name));
        policies.chain(parameters).collect()
    }
}

impl Vhosts {
    pub(crate) fn remove(&self, name: &str) {
        self.by_name.write().remove(name);
    }
}

/// A virtual host for which nothing is taken any more loses all that is in it, in parts.
pub(crate) struct VhostEmptying {
    pub vhost: Arc<Vhost>,
    queues: ManyDeletions,
}

impl VhostEmptying {
    pub fn of(vhost: Arc<Vhost>) -> Self {
        Self { queues: ManyDeletions::of(vhost.queues()), vhost }
    }

    /// Does a part. On the controller's thread. `None`: there is more; false: the broker ends, and something is left.
    ///
    /// # Errors
    /// `Append`.
    pub fn go_on(&mut self, broker: &Arc<Broker>) -> Result<Option<bool>, ExchangeError> {
        if broker.controller.is_closed() {
            return Ok(Some(false));
        }
        if self.queues.delete_some(broker)? {
            return Ok(None);
        }
        if broker.controller.is_closed() {
            return Ok(Some(false));
        }
        match broker.delete_exchanges(&self.vhost) {
            Err(AppendError::Stopped) if broker.controller.is_closed() => return Ok(Some(false)),
            deleted => deleted?,
        }
        let rules = self.vhost.rule_keys();
        if !rules.is_empty() {
            broker.commit_state(rules.into_iter().map(|key| (key, None)).collect())?;
        }
        Ok(Some(true))
    }
}
