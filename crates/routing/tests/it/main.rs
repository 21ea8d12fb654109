//! Tests of the routing table as its callers see it.

mod account;
mod hash;
mod headers;
mod model;
mod one_of;
mod random;
mod rules;
mod topics;

use std::cell::Cell;

use routing::{Argument, Arguments, Declaration, DeclareError, Declared, Destination, Headers, NoHeaders, Table};
use routing::{Name, OwnedValue, Property, QueueId, Scratch, Value};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("short")
}

fn queue(id: u64) -> Destination<'static> {
    Destination::Queue(QueueId(id))
}

fn string(name: &str, value: &str) -> Argument {
    Argument { name: name.as_bytes().into(), tag: b'S', value: OwnedValue::Bytes(value.as_bytes().into()) }
}

fn plain<'a>(name: &str, kind: &'a str) -> Declaration<'a> {
    with(name, kind, Vec::new())
}

fn with<'a>(name: &str, kind: &'a str, arguments: Vec<Argument>) -> Declaration<'a> {
    let (durable, auto_delete, internal) = (true, false, false);
    let arguments = Arguments::new(arguments);
    Declaration { name: self::name(name), kind: kind.as_bytes(), durable, auto_delete, internal, arguments }
}

fn declare(table: &mut Table, name: &str, kind: &str) -> Result<Declared, DeclareError> {
    table.declare(plain(name, kind))
}

fn add_queues(table: &mut Table, count: u64) {
    for id in 0..count {
        table.add_queue(name(&format!("q{id}")), QueueId(id), true).expect("new");
    }
}

fn bind(table: &mut Table, source: &str, destination: Destination<'_>, key: &str) {
    table.bind(source.as_bytes(), destination, key.as_bytes(), &Arguments::default()).expect("valid");
}

fn route(table: &Table, exchange: &str, keys: &[&str]) -> Vec<u64> {
    route_with(table, exchange, keys, &NoHeaders)
}

fn route_with(table: &Table, exchange: &str, keys: &[&str], headers: &dyn Headers) -> Vec<u64> {
    let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
    let mut queues = vec![QueueId(u64::MAX)];
    let exchange = table.exchange(exchange.as_bytes()).expect("the exchange exists");
    exchange.route(&keys, headers, &mut Scratch::default(), &mut queues).expect("few steps");
    queues.into_iter().map(|queue| queue.0).collect()
}

/// Headers and properties in lists. Of two headers with one name the last counts.
#[derive(Default)]
struct Message {
    headers: Vec<(String, OwnedValue)>,
    message_id: Option<String>,
    timestamp: Option<u64>,
    /// Headers that were gone through.
    steps: Cell<usize>,
}

impl Headers for Message {
    fn get(&self, name: &[u8]) -> Option<Value<'_>> {
        self.steps.set(self.steps.get() + self.headers.len());
        self.headers.iter().rev().find(|(found, _)| found.as_bytes() == name).map(|(_, value)| value.as_value())
    }

    fn visit<'a>(&'a self, visitor: &mut dyn FnMut(&'a [u8], Value<'a>)) {
        self.steps.set(self.steps.get() + self.headers.len());
        self.headers.iter().rev().for_each(|(name, value)| visitor(name.as_bytes(), value.as_value()));
    }

    fn property(&self, property: Property) -> Option<Value<'_>> {
        match property {
            Property::MessageId => self.message_id.as_ref().map(|id| Value::Bytes(id.as_bytes())),
            Property::CorrelationId => None,
            Property::Timestamp => self.timestamp.map(Value::Timestamp),
        }
    }
}
