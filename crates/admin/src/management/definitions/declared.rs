//! Definitions in: what is begun and not written, and exchanges, queues and bindings. Those that are there stay as they are; if one differs that is told.
//! What a piece has of one kind is written together.

use std::sync::Arc;

use broker::{
    BindingWish, Broker, Caller, ChangeBatch, ExchangeError, Gathered, Gathering, QueueDeclaration, QueueError,
};
use hashbrown::HashSet;
use routing::{Argument, Arguments, Declaration, DeclareError, Declared, Destination, Name};
use serde_json::Value;

use super::super::exchanges::plain_name;
use super::super::values;
use super::import::{Came, Failed, Item, reason, vhost_of};

fn name(text: &str) -> Result<Name, String> {
    Name::new(text.as_bytes()).map_err(|error| error.to_string())
}

/// How far one thing has come.
pub(super) enum Step {
    /// This is what came of it.
    Came(Came),
    /// It is known when what is open is written.
    Later,
    /// What is open has to be written before.
    AfterOthers,
}

/// What is begun and not written, and what came of each if it can be written.
#[derive(Default)]
pub(super) struct Open {
    gathered: Gathered,
    /// Of users, permissions, virtual hosts, parameters and policies.
    pub changes: ChangeBatch,
    then: Vec<Came>,
    /// What the changes are of, by virtual host and what they are known by.
    changed: HashSet<(String, String)>,
    /// All of it is of this kind: others may need it.
    kind: &'static str,
}

impl Open {
    /// Is it to be written before something of this kind is looked at?
    pub fn is_over_with(&self, kind: &str) -> bool {
        !self.then.is_empty() && (self.kind != kind || self.gathered.is_full() || self.changes.is_full())
    }

    /// Is something open of which this is another change? It is looked at when that is written.
    pub fn holds(&self, item: &Item) -> bool {
        !self.changed.is_empty() && self.changed.contains(&(item.vhost.clone(), item.shown()))
    }

    /// How far a change has come that was planned; `came`: what comes of it, told whether something changes.
    pub fn planned(&mut self, item: &Item, planned: Gathering<()>, came: impl FnOnce(bool) -> Came) -> Step {
        match planned {
            Gathering::Done(()) => Step::Came(came(false)),
            Gathering::AfterOthers => Step::AfterOthers,
            Gathering::Later => {
                self.changed.insert((item.vhost.clone(), item.shown()));
                self.later(item, came(true))
            }
        }
    }

    fn later(&mut self, item: &Item, came: Came) -> Step {
        self.kind = item.kind;
        self.then.push(came);
        Step::Later
    }

    /// Writes it with one commit; what came of each, in their order.
    pub fn write(&mut self, broker: &Arc<Broker>) -> Vec<Result<Came, Failed>> {
        let outcome = |(came, outcome): (Came, Result<(), ExchangeError>)| match outcome {
            Ok(()) => Ok(came),
            Err(ExchangeError::Append(error) | ExchangeError::Queue(QueueError::Append(error))) => Err(error.into()),
            Err(error) => Ok(Came::Not(error.to_string())),
        };
        self.changed.clear();
        // All of it is of one kind: one of the two has nothing.
        let (gathered, changes) = (self.gathered.write(broker), self.changes.write(broker));
        let written =
            gathered.into_iter().chain(changes.into_iter().map(|written| written.map_err(ExchangeError::from)));
        std::mem::take(&mut self.then).into_iter().zip(written).map(outcome).collect()
    }
}

fn broker_itself() -> Caller {
    Caller::broker(Caller::NO_CONNECTION)
}

/// # Errors
/// The journal.
pub(super) fn exchange(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, Failed> {
    let vhost = vhost_of(broker, item)?;
    let declaration = Declaration {
        name: name(plain_name(item.text("name")))?,
        kind: item.text("type").as_bytes(),
        durable: item.flag("durable"),
        auto_delete: item.flag("auto_delete"),
        internal: item.flag("internal"),
        arguments: values::arguments_of(item.fields.get("arguments")).map_err(reason)?,
    };
    Ok(Step::Came(match open.gathered.declare_exchange(broker, &vhost, declaration, &broker_itself()) {
        Ok(Gathering::Later) => return Ok(open.later(item, Came::Changed)),
        Ok(Gathering::AfterOthers) => return Ok(Step::AfterOthers),
        Ok(Gathering::Done(Declared::New)) => Came::Changed,
        Ok(Gathering::Done(Declared::Existing)) => Came::Same,
        Err(ExchangeError::Declare(DeclareError::Inequivalent { difference, .. })) => {
            Came::Not(format!("it is there and differs in {}: {difference}", difference.field()))
        }
        Err(error @ (ExchangeError::Declare(_) | ExchangeError::TooMany { .. } | ExchangeError::NoMemory { .. })) => {
            Came::Not(error.to_string())
        }
        Err(ExchangeError::Append(error) | ExchangeError::Queue(QueueError::Append(error))) => return Err(error.into()),
        Err(error) => return Err(error.to_string().into()),
    }))
}

/// # Errors
/// The journal.
pub(super) fn queue(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, Failed> {
    let vhost = vhost_of(broker, item)?;
    let wanted = name(item.text("name"))?;
    let mut arguments = values::arguments_of(item.fields.get("arguments")).map_err(reason)?;
    // RabbitMQ 4 names the type beside the arguments as well.
    let kind = item
        .text("type")
        .strip_prefix("rabbit_")
        .and_then(|text| text.strip_suffix("_queue"))
        .unwrap_or(item.text("type"));
    if arguments.get(b"x-queue-type").is_none() && !kind.is_empty() {
        let added = values::arguments_of(Some(&serde_json::json!({"x-queue-type": kind}))).map_err(reason)?;
        arguments = Arguments::new(arguments.fields().iter().chain(added.fields()).cloned().collect());
    }
    let mut missing = Vec::new();
    loop {
        let is_new = vhost.queue(&wanted).is_none();
        let (durable, auto_delete) = (item.flag("durable"), item.flag("auto_delete"));
        let wish =
            QueueDeclaration { name: wanted.clone(), durable, owner: None, auto_delete, arguments: arguments.clone() };
        let came = |missing: Vec<String>| match missing.is_empty() {
            true if is_new => Came::Changed,
            true => Came::Same,
            false => Came::Partly(is_new, missing),
        };
        return Ok(Step::Came(match open.gathered.declare_queue(broker, &vhost, wish, &broker_itself()) {
            Ok(Gathering::Later) => return Ok(open.later(item, came(missing))),
            Ok(Gathering::AfterOthers) => return Ok(Step::AfterOthers),
            Ok(Gathering::Done(_)) => came(missing),
            Err(QueueError::Argument { error, .. })
                if error.name != "x-queue-type" && arguments.get(error.name.as_bytes()).is_some() =>
            {
                missing.push(error.text(&wanted, vhost.name()));
                let kept: Vec<Argument> =
                    arguments.fields().iter().filter(|one| *one.name != *error.name.as_bytes()).cloned().collect();
                arguments = Arguments::new(kept);
                continue;
            }
            Err(QueueError::Unequal(error)) => Came::Not(format!("it is there and differs: {error}")),
            Err(QueueError::Append(error)) => return Err(error.into()),
            Err(error) => Came::Not(error.to_string()),
        }));
    }
}

/// Two arguments that JSON does not tell apart: integers of another width are the same.
fn alike(one: &Arguments, other: &Arguments) -> bool {
    let values = |all: &Arguments| -> Value { values::arguments(all) };
    values(one) == values(other)
}

/// # Errors
/// The journal.
pub(super) fn binding(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, Failed> {
    let vhost = vhost_of(broker, item)?;
    let to_queue = item.text("destination_type") != "exchange";
    let arguments = values::arguments_of(item.fields.get("arguments")).map_err(reason)?;
    let (source, destination, key) = (item.text("source"), item.text("destination"), item.text("routing_key"));
    // The default exchange leads to all queues as it is.
    if source.is_empty() {
        return Ok(Step::Came(Came::Same));
    }
    let is_there = {
        let table = vhost.exchanges().read();
        let to = if to_queue {
            table.queue(destination.as_bytes()).map(Destination::Queue)
        } else {
            Some(Destination::Exchange(destination.as_bytes()))
        };
        to.is_some_and(|to| {
            table
                .bindings_between(source.as_bytes(), to)
                .any(|one| one.key == key.as_bytes() && alike(&one.arguments, &arguments))
        })
    };
    if is_there {
        return Ok(Step::Came(Came::Same));
    }
    let wish =
        BindingWish { source: name(source)?, to_queue, destination: name(destination)?, key: name(key)?, arguments };
    Ok(Step::Came(match open.gathered.bind(broker, &vhost, wish, &broker_itself()) {
        Ok(Gathering::Later) => return Ok(open.later(item, Came::Changed)),
        Ok(Gathering::AfterOthers) => return Ok(Step::AfterOthers),
        Ok(Gathering::Done(())) => Came::Changed,
        Err(ExchangeError::Append(error)) => return Err(error.into()),
        Err(error) => Came::Not(error.to_string()),
    }))
}
