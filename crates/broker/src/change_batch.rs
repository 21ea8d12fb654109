//! Changes of users, permissions, virtual hosts, parameters and policies that are planned one after the other and written together, as definitions
//! have them. All of a change is durable or none of it is, and it counts once it is. On the controller's thread, within one turn.

use std::sync::Arc;

use hashbrown::HashSet;
use journal::{AppendError, AppendItem, AppendResults};
use serde_json::{Map, Value};

use crate::Broker;
use crate::jobs::{TOGETHER_MAX, durable};
use crate::log_ends::in_one;
use crate::queues::{Gathering, ParameterError, PolicyScope, PolicyWish, Vhost};
use crate::security::{Permissions, PlannedVhost, SecurityError, UserWish, VhostWish};

type Then = Box<dyn FnOnce(&Arc<Broker>)>;

/// What is to be written, and what happens once that is durable.
pub(crate) struct Change {
    item: AppendItem,
    then: Then,
    /// Queues and exchanges of this virtual host follow its policies then.
    policies_of: Option<Arc<Vhost>>,
}

impl Change {
    /// `None`: there is nothing to be written.
    pub fn new(items: Vec<AppendItem>, then: impl FnOnce(&Arc<Broker>) + 'static) -> Option<Self> {
        let item = in_one(items, Vec::new()).pop()?;
        Some(Self { item, then: Box::new(then), policies_of: None })
    }

    pub fn with_policies_of(self, vhost: &Arc<Vhost>) -> Self {
        Self { policies_of: Some(Arc::clone(vhost)), ..self }
    }
}

/// Changes that are planned and not written.
#[derive(Default)]
#[must_use]
pub struct ChangeBatch {
    items: Vec<AppendItem>,
    changes: Vec<(Then, Option<Arc<Vhost>>)>,
    /// What they are of: another change of that is planned when they are written.
    subjects: HashSet<(&'static str, String)>,
    /// Of them, virtual hosts that are new.
    vhosts: u64,
}

/// Whether something changes is told at once: [`Gathering::Done`] says that nothing does, [`Gathering::Later`] that something does unless it cannot be
/// written, which [`ChangeBatch::write`] tells.
impl ChangeBatch {
    /// Are they as many as go together?
    pub fn is_full(&self) -> bool {
        self.items.len() >= TOGETHER_MAX
    }

    fn plan<E>(
        &mut self,
        subject: (&'static str, String),
        plan: impl FnOnce() -> Result<Option<Change>, E>,
    ) -> Result<Gathering<()>, E> {
        if self.subjects.contains(&subject) {
            return Ok(Gathering::AfterOthers);
        }
        let Some(Change { item, then, policies_of }) = plan()? else { return Ok(Gathering::Done(())) };
        self.items.push(item);
        self.changes.push((then, policies_of));
        self.subjects.insert(subject);
        Ok(Gathering::Later)
    }

    /// Plans [`Broker::put_user`].
    ///
    /// # Errors
    /// The same, but for `Append`.
    pub fn put_user(&mut self, broker: &Arc<Broker>, wish: UserWish) -> Result<Gathering<()>, SecurityError> {
        self.plan(("user", wish.name.clone()), || broker.plan_user(wish).map(|(_, change)| change))
    }

    /// Plans [`Broker::put_vhost`], with limits beside those that it has.
    ///
    /// # Errors
    /// The same, and those of [`Broker::put_parameter`], but for `Append`.
    pub fn put_vhost(
        &mut self,
        broker: &Arc<Broker>,
        wish: VhostWish,
        limits: &Map<String, Value>,
    ) -> Result<Gathering<()>, VhostError> {
        let (others, mut more) = (self.vhosts, 0);
        let outcome = self.plan(("vhost", wish.name.clone()), || {
            let PlannedVhost { name, metadata, is_new, mut items } = broker.plan_vhost(wish, others)?;
            let limits = broker.plan_vhost_limits(&name, limits)?.map(|(item, limits)| {
                items.push(item);
                limits
            });
            more = u64::from(is_new);
            Ok(Change::new(items, move |broker| {
                let vhost = broker.vhosts().or_new(&name);
                vhost.set_metadata(metadata);
                if let Some(limits) = limits {
                    vhost.set_limits(limits);
                }
            }))
        });
        self.vhosts += more;
        outcome
    }

    /// Plans [`Broker::set_permissions`].
    ///
    /// # Errors
    /// The same, but for `Append`.
    pub fn set_permissions(
        &mut self,
        broker: &Arc<Broker>,
        vhost: &str,
        user: &str,
        permissions: Permissions,
    ) -> Result<Gathering<()>, SecurityError> {
        self.plan(("permissions", format!("{vhost}\0{user}")), || broker.plan_permissions(vhost, user, permissions))
    }

    /// Plans [`Broker::set_topic_permission`].
    ///
    /// # Errors
    /// The same, but for `Append`.
    pub fn set_topic_permission(
        &mut self,
        broker: &Arc<Broker>,
        vhost: &str,
        user: &str,
        exchange: &str,
        [write, read]: [&str; 2],
    ) -> Result<Gathering<()>, SecurityError> {
        self.plan(("topic permission", format!("{vhost}\0{user}\0{exchange}")), || {
            broker.plan_topic_permission(vhost, user, exchange, write, read)
        })
    }

    /// Plans [`Broker::put_global_parameter`].
    pub fn put_global_parameter(&mut self, broker: &Arc<Broker>, name: &str, value: Value) -> Gathering<()> {
        let plan = || Ok::<_, std::convert::Infallible>(broker.plan_global_parameter(name, value));
        self.plan(("global parameter", name.to_owned()), plan).unwrap_or_else(|never| match never {})
    }

    /// Plans [`Broker::put_parameter`].
    ///
    /// # Errors
    /// The same, but for `Append`.
    pub fn put_parameter(
        &mut self,
        broker: &Arc<Broker>,
        vhost: &Arc<Vhost>,
        component: &str,
        name: &str,
        value: &Value,
    ) -> Result<Gathering<()>, ParameterError> {
        self.plan(("parameter", format!("{}\0{component}\0{name}", vhost.name())), || {
            broker.plan_parameter(vhost, component, name, value)
        })
    }

    /// Plans [`Broker::put_policy`].
    ///
    /// # Errors
    /// The same, but for `Append`.
    pub fn put_policy(
        &mut self,
        broker: &Arc<Broker>,
        vhost: &Arc<Vhost>,
        scope: PolicyScope,
        name: &str,
        wish: &PolicyWish,
    ) -> Result<Gathering<()>, ParameterError> {
        self.plan((scope.component(), format!("{}\0{name}", vhost.name())), || {
            broker.plan_policy(vhost, scope, name, wish)
        })
    }

    /// Writes what was planned, with one commit; for each, in its order, what came of it.
    pub fn write(&mut self, broker: &Arc<Broker>) -> Vec<Result<(), AppendError>> {
        let Self { items, changes, .. } = std::mem::take(self);
        let results = if items.is_empty() { AppendResults::new() } else { broker.commit_all(0, items) };
        let mut results = results.iter();
        let (mut outcomes, mut vhosts) = (Vec::with_capacity(changes.len()), Vec::<Arc<Vhost>>::new());
        for (then, policies_of) in changes {
            let written = durable(results.next());
            if written.is_ok() {
                then(broker);
                vhosts.extend(policies_of.filter(|vhost| !vhosts.iter().any(|known| known.name() == vhost.name())));
            }
            outcomes.push(written);
        }
        // Each queue is looked at once, however many policies there are.
        vhosts.iter().for_each(|vhost| broker.apply_policies(vhost));
        outcomes
    }
}

/// Why a virtual host is not put.
#[derive(Debug, thiserror::Error)]
pub enum VhostError {
    /// It itself.
    #[error(transparent)]
    Vhost(#[from] SecurityError),
    /// Its limits.
    #[error(transparent)]
    Limits(#[from] ParameterError),
}

impl Broker {
    /// Writes one change alone.
    pub(crate) fn carry_out(self: &Arc<Self>, change: Option<Change>) -> Result<(), AppendError> {
        let Some(Change { item, then, policies_of }) = change else { return Ok(()) };
        self.commit(0, vec![item])?;
        then(self);
        if let Some(vhost) = policies_of {
            self.apply_policies(&vhost);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
