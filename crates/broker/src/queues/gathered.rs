//! Exchanges, queues and bindings that are declared one after the other and written together, as definitions have them. What is to be written is
//! gathered; exchanges and bindings are there at once, queues when that is durable. On the controller's thread, within one turn.

use std::sync::Arc;

use journal::{AppendItem, AppendResults};
use routing::{Declaration, Declared, Name};

use super::Vhost;
use super::admin::{BindingWish, ExchangeError, QueueDeclaration, QueueError, undo_binding, undo_exchange};
use super::declare::{DeclareStage, Plan};
use super::queue::Queue;
use super::rights::Caller;
use crate::Broker;
use crate::jobs::{Pending, TOGETHER_MAX, durable};

/// What is begun and not written.
#[derive(Default)]
#[must_use]
pub struct Gathered {
    items: Vec<AppendItem>,
    /// Each with the item that counts.
    begun: Vec<(Arc<Vhost>, Begun, usize)>,
    pending: Pending,
}

enum Begun {
    Exchange(Name),
    Queue(Box<Plan>),
    Binding(BindingWish),
}

/// How far a declaration has come.
pub enum Gathering<T> {
    /// It is over.
    Done(T),
    /// It is told by [`Gathered::write`], in the order in which they were begun.
    Later,
    /// What was gathered has to be written before.
    AfterOthers,
}

impl Gathered {
    /// Is it as much as goes together?
    pub fn is_full(&self) -> bool {
        self.items.len() >= TOGETHER_MAX
    }

    fn add(&mut self, vhost: &Arc<Vhost>, begun: Begun, items: Vec<AppendItem>) {
        self.begun.push((Arc::clone(vhost), begun, self.items.len()));
        self.items.extend(items);
    }

    /// Begins to declare an exchange. One that delays messages is declared at once.
    ///
    /// # Errors
    /// As [`Broker::declare_exchange`], but for `Append`.
    pub fn declare_exchange(
        &mut self,
        broker: &Arc<Broker>,
        vhost: &Arc<Vhost>,
        declaration: Declaration<'_>,
        caller: &Caller,
    ) -> Result<Gathering<Declared>, ExchangeError> {
        if declaration.kind == b"x-delayed-message" {
            return broker.declare_exchange(vhost, declaration, &caller.principal).map(Gathering::Done);
        }
        let name = declaration.name.clone();
        match broker.begin_exchange(vhost, declaration, &caller.principal)? {
            (declared, None) => Ok(Gathering::Done(declared)),
            (_, Some(item)) => {
                self.add(vhost, Begun::Exchange(name), vec![item]);
                Ok(Gathering::Later)
            }
        }
    }

    /// Begins to declare a queue.
    ///
    /// # Errors
    /// As [`Broker::declare_queue`], but for `Append`.
    pub fn declare_queue(
        &mut self,
        broker: &Arc<Broker>,
        vhost: &Arc<Vhost>,
        wish: QueueDeclaration,
        caller: &Caller,
    ) -> Result<Gathering<Arc<Queue>>, QueueError> {
        match broker.begin_declaration(vhost, wish, caller, &self.pending) {
            DeclareStage::Done(outcome) => outcome.map(Gathering::Done),
            DeclareStage::Wait(_) => Ok(Gathering::AfterOthers),
            DeclareStage::Write(items, plan) => {
                self.pending.add(vhost.name.to_string(), plan.name().clone(), true);
                self.add(vhost, Begun::Queue(plan), items);
                Ok(Gathering::Later)
            }
        }
    }

    /// Begins to bind.
    ///
    /// # Errors
    /// As [`Broker::bind`], but for `Append`.
    pub fn bind(
        &mut self,
        broker: &Arc<Broker>,
        vhost: &Arc<Vhost>,
        wish: BindingWish,
        caller: &Caller,
    ) -> Result<Gathering<()>, ExchangeError> {
        let Some(item) = broker.begin_binding(vhost, &wish, caller)? else { return Ok(Gathering::Done(())) };
        self.add(vhost, Begun::Binding(wish), vec![item]);
        Ok(Gathering::Later)
    }

    /// Writes what was begun, with one commit; for each, in its order, what came of it.
    pub fn write(&mut self, broker: &Arc<Broker>) -> Vec<Result<(), ExchangeError>> {
        let Self { items, begun, .. } = std::mem::take(self);
        let results = if items.is_empty() { AppendResults::new() } else { broker.commit_all_with_next_log(items) };
        let next_log = durable(results.last());
        let outcome = |(vhost, begun, item): (Arc<Vhost>, Begun, usize)| {
            let written = durable(results.get(item));
            match begun {
                Begun::Queue(plan) => {
                    written.and(next_log).map_err(QueueError::from)?;
                    broker.end_declaration(&vhost, *plan)?;
                }
                Begun::Exchange(name) => written.inspect_err(|_| undo_exchange(&vhost, &name))?,
                Begun::Binding(wish) => written.inspect_err(|_| undo_binding(&vhost, &wish))?,
            }
            Ok(())
        };
        begun.into_iter().map(outcome).collect()
    }
}

#[cfg(test)]
mod tests;
