//! Definitions in: exchanges, queues and bindings. What is there stays as it is; if it differs that is told.

use std::sync::Arc;

use broker::{BindingWish, Broker, Caller, ExchangeError, Principal, QueueDeclaration, QueueError};
use routing::{Argument, Arguments, DeclareError, Declaration, Declared, Destination, Name};
use serde_json::Value;

use super::super::exchanges::plain_name;
use super::super::values;
use super::import::{Came, Item, reason, vhost_of};

fn name(text: &str) -> Result<Name, String> {
    Name::new(text.as_bytes()).map_err(|error| error.to_string())
}

/// # Errors
/// The journal.
pub(super) fn exchange(broker: &Arc<Broker>, item: &Item) -> Result<Came, String> {
    let vhost = vhost_of(broker, item)?;
    let declaration = Declaration {
        name: name(plain_name(item.text("name")))?,
        kind: item.text("type").as_bytes(),
        durable: item.flag("durable"),
        auto_delete: item.flag("auto_delete"),
        internal: item.flag("internal"),
        arguments: values::arguments_of(item.fields.get("arguments")).map_err(reason)?,
    };
    match broker.declare_exchange(&vhost, declaration, &Principal::broker()) {
        Ok(Declared::New) => Ok(Came::Changed),
        Ok(Declared::Existing) => Ok(Came::Same),
        Err(ExchangeError::Declare(DeclareError::Inequivalent { difference, .. })) => {
            Ok(Came::Not(format!("it is there and differs in {}: {difference}", difference.field())))
        }
        Err(error @ (ExchangeError::Declare(_) | ExchangeError::TooMany { .. })) => Ok(Came::Not(error.to_string())),
        Err(error) => Err(error.to_string()),
    }
}

/// # Errors
/// The journal.
pub(super) fn queue(broker: &Arc<Broker>, item: &Item) -> Result<Came, String> {
    let vhost = vhost_of(broker, item)?;
    let wanted = name(item.text("name"))?;
    let mut arguments = values::arguments_of(item.fields.get("arguments")).map_err(reason)?;
    // RabbitMQ 4 names the type beside the arguments as well.
    let kind = item.text("type").strip_prefix("rabbit_").and_then(|text| text.strip_suffix("_queue")).unwrap_or(item.text("type"));
    if arguments.get(b"x-queue-type").is_none() && !kind.is_empty() {
        let added = values::arguments_of(Some(&serde_json::json!({"x-queue-type": kind}))).map_err(reason)?;
        arguments = Arguments::new(arguments.fields().iter().chain(added.fields()).cloned().collect());
    }
    let mut missing = Vec::new();
    loop {
        let is_new = vhost.queue(&wanted).is_none();
        let (durable, auto_delete) = (item.flag("durable"), item.flag("auto_delete"));
        let wish = QueueDeclaration { name: wanted.clone(), durable, owner: None, auto_delete, arguments: arguments.clone() };
        match broker.declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)) {
            Ok(_) if missing.is_empty() => return Ok(if is_new { Came::Changed } else { Came::Same }),
            Ok(_) => return Ok(Came::Partly(is_new, missing)),
            Err(QueueError::Argument { error, .. }) if error.name != "x-queue-type" && arguments.get(error.name.as_bytes()).is_some() => {
                missing.push(error.text(&wanted, vhost.name()));
                let kept: Vec<Argument> = arguments.fields().iter().filter(|one| *one.name != *error.name.as_bytes()).cloned().collect();
                arguments = Arguments::new(kept);
            }
            Err(QueueError::Unequal(error)) => return Ok(Came::Not(format!("it is there and differs: {error}"))),
            Err(QueueError::Append(error)) => return Err(error.to_string()),
            Err(error) => return Ok(Came::Not(error.to_string())),
        }
    }
}

/// Two arguments that JSON does not tell apart: integers of another width are the same.
fn alike(one: &Arguments, other: &Arguments) -> bool {
    let values = |all: &Arguments| -> Value { values::arguments(all) };
    values(one) == values(other)
}

/// # Errors
/// The journal.
pub(super) fn binding(broker: &Arc<Broker>, item: &Item) -> Result<Came, String> {
    let vhost = vhost_of(broker, item)?;
    let to_queue = item.text("destination_type") != "exchange";
    let arguments = values::arguments_of(item.fields.get("arguments")).map_err(reason)?;
    let (source, destination, key) = (item.text("source"), item.text("destination"), item.text("routing_key"));
    // The default exchange leads to all queues as it is.
    if source.is_empty() {
        return Ok(Came::Same);
    }
    let is_there = {
        let table = vhost.exchanges().read();
        let to = if to_queue { table.queue(destination.as_bytes()).map(Destination::Queue) } else { Some(Destination::Exchange(destination.as_bytes())) };
        to.is_some_and(|to| table.bindings_between(source.as_bytes(), to).any(|one| one.key == key.as_bytes() && alike(&one.arguments, &arguments)))
    };
    if is_there {
        return Ok(Came::Same);
    }
    let wish = BindingWish { source: name(source)?, to_queue, destination: name(destination)?, key: name(key)?, arguments };
    match broker.bind(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)) {
        Ok(()) => Ok(Came::Changed),
        Err(ExchangeError::Append(error)) => Err(error.to_string()),
        Err(error) => Ok(Came::Not(error.to_string())),
    }
}
