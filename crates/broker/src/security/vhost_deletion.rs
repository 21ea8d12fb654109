//! Deletes virtual hosts, with all that is in them.

use std::sync::Arc;

use super::admin::{drop_key, put};
use super::error::SecurityError;
use super::record;
use crate::jobs::{JobOwner, NOBODY};
use crate::queues::{ExchangeError, QueueError, VhostEmptying};
use crate::{Broker, DEFAULT_VHOST};

/// The deletion of a virtual host, and the end of the connections that have opened it. That it is deleted is durable first: what is left of it when the broker ends,
/// or dies, the next start deletes. In parts, between which the controller does other things: there may be ten thousands of queues.
pub struct VhostDeletion {
    name: String,
    /// Once that it is deleted is durable.
    begun: Option<VhostEmptying>,
}

impl VhostDeletion {
    /// Nothing is done yet.
    pub fn of(name: &str) -> Self {
        Self { name: name.to_owned(), begun: None }
    }

    /// Does a part, on the controller's thread. `None`: there is more to do; false: there is no such virtual host.
    ///
    /// # Errors
    /// `DefaultVhost`, `Append`.
    pub fn go_on(&mut self, broker: &Arc<Broker>) -> Option<Result<bool, SecurityError>> {
        let begun = match self.begun.take() {
            Some(begun) => begun,
            None => match self.begin(broker) {
                Ok(Some(begun)) => begun,
                Ok(None) => return Some(Ok(false)),
                Err(error) => return Some(Err(error)),
            },
        };
        self.empty(begun, broker).transpose()
    }

    fn begin(&self, broker: &Broker) -> Result<Option<VhostEmptying>, SecurityError> {
        let Some(vhost) = broker.vhosts.get(&self.name) else { return Ok(None) };
        if self.name == DEFAULT_VHOST {
            return Err(SecurityError::DefaultVhost);
        }
        // That an earlier deletion has begun is durable: it is gone on with, and nothing makes the virtual host be used again.
        if !vhost.is_deleted() {
            vhost.set_deleted(true);
            let begun = put(record::deletion_key(&self.name), record::encode_deletion());
            if let Err(error) = broker.commit(0, vec![begun]) {
                vhost.set_deleted(false);
                return Err(error.into());
            }
        }
        Ok(Some(VhostEmptying::of(vhost)))
    }

    fn empty(&mut self, mut begun: VhostEmptying, broker: &Arc<Broker>) -> Result<Option<bool>, SecurityError> {
        // Another has deleted it meanwhile.
        if !broker.vhosts.get(&self.name).is_some_and(|vhost| Arc::ptr_eq(&vhost, &begun.vhost)) {
            return Ok(Some(true));
        }
        match begun.go_on(broker) {
            Ok(None) => {
                self.begun = Some(begun);
                Ok(None)
            }
            Ok(Some(true)) => self.end(broker).map(|()| Some(true)),
            Ok(Some(false)) => {
                let queues = begun.vhost.queues().len();
                tracing::info!(vhost = self.name, queues, "the next start goes on deleting the virtual host");
                Ok(Some(true))
            }
            Err(ExchangeError::Append(error) | ExchangeError::Queue(QueueError::Append(error))) => Err(error.into()),
            Err(error) => panic!("what is there is deleted whatever it is used for: {error}"),
        }
    }

    fn end(&self, broker: &Broker) -> Result<(), SecurityError> {
        let name = self.name.as_str();
        let mut items = vec![drop_key(record::vhost_key(name))];
        if let Some(users) = broker.security.inner.read().grants.get(name) {
            for (user, grant) in users {
                items.extend(grant.permissions.iter().map(|_| drop_key(record::permissions_key(name, user))));
                items.extend(grant.topics.keys().map(|exchange| drop_key(record::topic_key(name, user, exchange))));
            }
        }
        items.push(drop_key(record::deletion_key(name)));
        broker.commit(0, items)?;
        broker.vhosts.remove(name);
        broker.security.change(|inner| drop(inner.grants.remove(name)));
        broker.dismiss(&format!("vhost '{name}' is deleted"), |_, vhost| vhost == name);
        Ok(())
    }
}

impl Broker {
    /// Deletes a virtual host in one go: see [`VhostDeletion`]. False: there is none.
    ///
    /// # Errors
    /// `DefaultVhost`, `Append`.
    pub fn delete_vhost(self: &Arc<Self>, name: &str) -> Result<bool, SecurityError> {
        let mut deletion = VhostDeletion::of(name);
        loop {
            if let Some(outcome) = deletion.go_on(self) {
                return outcome;
            }
        }
    }

    /// Goes on with deletions of virtual hosts that had begun before the start.
    pub(crate) fn go_on_deleting_vhosts(&self) {
        for vhost in self.vhosts.all().into_iter().filter(|vhost| vhost.is_deleted()) {
            let mut deletion = VhostDeletion::of(vhost.name());
            let turns = move |broker: &Arc<Self>| {
                let outcome = deletion.go_on(broker)?;
                if let Err(error) = outcome {
                    tracing::warn!(%error, vhost = vhost.name(), "the next start goes on deleting the virtual host");
                }
                Some(Box::new(()) as Box<dyn std::any::Any + Send>)
            };
            let _ = self.control_in_turns(NOBODY, JobOwner::BROKER, Box::new(turns));
        }
    }
}
