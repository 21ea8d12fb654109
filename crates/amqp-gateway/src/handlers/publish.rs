//! Class basic, publish: checks a message, routes it, and adds it to the batches of this turn.

use amqp_wire::{EncodedProperties, ReplyCode, Value, basic};
use broker::{AclOperation, MessageTraits, Permission, Resource, User, Vhost};
use delivery::Overflow;
use record::BatchWriter;
use routing::{KEY_BYTES_MAX, Keepers, Routes};
use smallvec::SmallVec;
use std::sync::Arc;

use crate::arguments::MessageHeaders;
use crate::channel::{Channel, Mode};
use crate::connection::Connection;
use crate::delayed::{self, Kept};
use crate::error::Failure;
use crate::message::{Message, without_bcc};
use crate::publisher::{Targets, Wanted};
use crate::reply;
use crate::transaction::Held;

/// A time to live may not be longer, in ms: ten years, as in RabbitMQ.
const TTL_MS_MAX: u64 = 315_360_000_000;

/// Routing keys of a message, at most: its own, and those that its headers name.
const KEYS_MAX: usize = 1000;
/// Routing a message that takes more steps is looked at by the clock: others may be due.
const LONG_STEPS: usize = 1 << 12;

/// The routing table of a virtual host, held from the first message on. To be released before anything else is asked of the broker.
pub(crate) struct Table<'v> {
    vhost: &'v Vhost,
    held: Option<Routes<'v>>,
}

impl<'v> Table<'v> {
    pub fn new(vhost: &'v Vhost) -> Self {
        Self { vhost, held: None }
    }

    fn read(&mut self) -> &Routes<'v> {
        self.held.get_or_insert_with(|| self.vhost.exchanges().read())
    }

    pub fn release(&mut self) {
        self.held = None;
    }
}

/// Routing keys of a message: its own, and those of its headers `CC` and `BCC`.
pub(crate) type Keys<'a> = SmallVec<[&'a [u8]; 4]>;

pub(crate) fn keys<'a>(message: &Message<'a>) -> Result<Keys<'a>, Failure> {
    let mut keys = Keys::from_slice(&[message.routing_key]);
    let Some(table) = message.properties.headers() else { return Ok(keys) };
    for name in ["CC", "BCC"] {
        match table.get(name) {
            None => {}
            Some(Value::Array(array)) => {
                let found = array.iter().filter_map(|value| match value {
                    Value::LongString(key) => Some(key),
                    _ => None,
                });
                let before = keys.len();
                keys.extend(found.take(KEYS_MAX + 1 - before));
                if keys.len() > KEYS_MAX {
                    return Err(Failure::precondition(format_args!(
                        "invalid message: more than {KEYS_MAX} routing keys"
                    )));
                }
                if keys[before..].iter().any(|key| key.len() > KEY_BYTES_MAX) {
                    return Err(Failure::precondition(format_args!(
                        "invalid message: a routing key in header '{name}' of more than {KEY_BYTES_MAX} bytes"
                    )));
                }
            }
            Some(other) => {
                let kind = other.type_name();
                return Err(Failure::precondition(format_args!(
                    "invalid message: {{unacceptable_type_in_header,\"{name}\",{kind}}}"
                )));
            }
        }
    }
    Ok(keys)
}

pub(crate) fn expiration(properties: EncodedProperties<'_>) -> Result<Option<u64>, Failure> {
    let Some(text) = properties.expiration() else { return Ok(None) };
    let text = String::from_utf8_lossy(text.as_bytes());
    let refuse = |reason: String| Err(Failure::precondition(format_args!("invalid expiration '{text}': {reason}")));
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(&text)),
    };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let (number, rest) = digits.split_at(end);
    if number.is_empty() {
        return refuse("no_integer".to_owned());
    }
    if !rest.is_empty() {
        return refuse(format!("{{leftover_string,\"{rest}\"}}"));
    }
    let number = number.trim_start_matches('0');
    match (sign, number.parse::<u64>()) {
        (_, Ok(value)) if value <= TTL_MS_MAX && sign.is_empty() => Ok(Some(value)),
        (_, Err(_)) if number.is_empty() => Ok(Some(0)),
        ("", _) => refuse(format!("{{value_too_large,{number}}}")),
        (_, _) => refuse(format!("{{value_negative,-{number}}}")),
    }
}

/// # Errors
/// *406*: somebody else's name, of a user who may not speak for others.
fn check_user(user: Option<&User>, properties: EncodedProperties<'_>) -> Result<(), Failure> {
    let name = user.map_or("", User::name);
    match properties.user_id() {
        Some(claimed) if !user.map_or(claimed.as_bytes().is_empty(), |user| user.may_send_as(claimed.as_bytes())) => {
            let claimed = String::from_utf8_lossy(claimed.as_bytes());
            Err(Failure::precondition(format_args!(
                "user_id property set to '{claimed}' but authenticated user was '{name}'"
            )))
        }
        _ => Ok(()),
    }
}

/// # Errors
/// *404*, *403*.
pub(crate) fn check_exchange(table: &Routes<'_>, vhost: &str, name: &[u8]) -> Result<(), Failure> {
    let exchange = table.exchange(name).ok_or_else(|| Failure::no_exchange(name, vhost))?;
    if exchange.internal() {
        let text = format!("cannot publish to internal exchange '{}' in vhost '{vhost}'", exchange.name());
        return Err(Failure::channel(ReplyCode::AccessRefused, text));
    }
    Ok(())
}

/// A publish writes to an exchange; by the default exchange to the queues that it names.
///
/// # Errors
/// *403*.
fn check_acls<K: AsRef<[u8]>>(connection: &mut Connection, exchange: &[u8], keys: &[K]) -> Result<(), Failure> {
    let security = connection.gateway.broker.security();
    if exchange.is_empty() {
        // An address for replies is known to those only who were told it.
        let keys = || keys.iter().filter(|key| !reply::is_address(key.as_ref()));
        return keys().try_for_each(|key| {
            connection.access.check_acl(security, AclOperation::Write, Resource::Queue(key.as_ref()))
        });
    }
    connection.access.check_acl(security, AclOperation::Write, Resource::Exchange(exchange))
}

/// Rights that do not depend on the content: asked before memory is taken for that, and again when it has come.
///
/// # Errors
/// *403*: of the channel.
pub(crate) fn check_rights(connection: &mut Connection, exchange: &[u8], routing_key: &[u8]) -> Result<(), Failure> {
    connection.access.check_permission(
        connection.gateway.broker.security(),
        Permission::Write,
        Resource::Exchange(exchange),
    )?;
    if connection.access.has_acls() {
        check_acls(connection, exchange, &[routing_key])?;
    }
    Ok(())
}

/// A message was published.
///
/// # Errors
/// *403*, *404*, *406*: of the channel.
pub(crate) fn publish(
    connection: &mut Connection,
    channel: &mut Channel,
    table: &mut Table<'_>,
    message: Message<'_>,
    mandatory: bool,
    hold: impl FnOnce(&Message<'_>) -> Held,
) -> Result<(), Failure> {
    connection.access.check_permission(
        connection.gateway.broker.security(),
        Permission::Write,
        Resource::Exchange(message.exchange),
    )?;
    check_exchange(table.read(), channel.vhost.name(), message.exchange)?;
    let addressed = reply::addressed(connection, channel, message.properties)?;
    let traits = MessageTraits { priority: message.properties.priority(), ttl: expiration(message.properties)? };
    let message = Message { traits, ..message };
    let keys = keys(&message)?;
    if connection.access.has_topics()
        && let Some(exchange) = table.read().exchange(message.exchange)
    {
        keys.iter().try_for_each(|key| connection.access.check_key(&exchange, key))?;
    }
    if connection.access.has_acls() {
        check_acls(connection, message.exchange, &keys)?;
    }
    check_user(connection.access.user().map(|user| &**user), message.properties)?;
    let properties = addressed.as_ref().map_or(message.properties, |bytes| EncodedProperties::trusted(bytes));
    let message = Message { properties, ..message };
    connection.gateway.metrics.published.inc();
    channel.flow.notes().published.add(1);
    connection.gateway.metrics.published_bytes.inc_by(message.body_bytes() as u64);
    match &mut channel.mode {
        Mode::Transaction(transaction) => {
            let held = hold(&message);
            connection.unfinished.add(held.bytes());
            transaction.hold(held, connection.now)
        }
        Mode::Plain => route(connection, channel, table, &message, (mandatory, None)),
        Mode::Confirm(confirms) => {
            let number = confirms.begin();
            let wanted = Wanted { channel: channel.number, id: channel.id, first: number, last: number };
            route(connection, channel, table, &message, (mandatory, Some(wanted)))
        }
    }
}

/// Leaves those queues that take a message; true: one does not. The routing table is not held.
fn refuse(connection: &mut Connection, message: &Message<'_>, targets: &mut Targets) -> bool {
    let (before, size) = (targets.len(), message.body_bytes());
    let (broker, publisher) = (&connection.gateway.broker, &mut connection.publisher);
    targets.retain(|queue| {
        let admitted = !queue.may_refuse() || publisher.admit(broker, queue, size);
        if !admitted && queue.understood().overflow == Overflow::RejectPublishDeadLetter {
            let mut alone = BatchWriter::with_capacity(message.record_bytes());
            message.write(connection.now_ms, &mut alone);
            broker.bury_refused(queue, alone.finish());
        }
        admitted
    });
    targets.len() < before
}

/// Sends a message that was checked on its way.
///
/// # Errors
/// *404*: the exchange was deleted meanwhile. *406*: routing it takes too long.
pub(super) fn route(
    connection: &mut Connection,
    channel: &mut Channel,
    table: &mut Table<'_>,
    message: &Message<'_>,
    (mandatory, wanted): (bool, Option<Wanted>),
) -> Result<(), Failure> {
    let routes = table.read();
    let found = routes.exchange(message.exchange);
    let exchange = found.ok_or_else(|| Failure::no_exchange(message.exchange, channel.vhost.name()))?;
    let mut routed = std::mem::take(&mut connection.routed);
    let (keys, headers) = (keys(message)?, MessageHeaders(message.properties));
    let delay = if routes.has_delayed() { delayed::delay_of(message.properties) } else { None };
    let keepers = if delay.is_some() {
        exchange.route_delayed(&keys, &headers, &mut connection.scratch, &mut routed)
    } else {
        exchange.route(&keys, &headers, &mut connection.scratch, &mut routed).map(|()| Keepers::new())
    };
    connection.routed_long |= connection.scratch.steps() >= LONG_STEPS;
    let keepers = match keepers {
        Ok(keepers) => keepers,
        Err(refused) => {
            connection.routed = routed;
            return Err(Failure::precondition(refused));
        }
    };
    let mut targets = connection.publisher.targets(&routed, connection.gateway.broker.vhosts());
    connection.routed = routed;
    for target in targets.iter_mut().filter(|queue| queue.is_partitioned()) {
        let turn = connection.id.0 + connection.publisher.turn();
        let part = Arc::clone(target.part(&MessageHeaders(message.properties), turn));
        *target = part;
    }
    let answered = reply::is_answer(message) && reply::send(connection, message);
    let settle = |connection: &mut Connection, channel: &mut Channel, kept| {
        if let (Some(wanted), Mode::Confirm(confirms)) = (wanted, &mut channel.mode) {
            confirms.settle(wanted.first, wanted.last, kept);
            connection.to_tell.push(channel.number);
        }
    };
    if targets.is_empty() {
        if !answered && keepers.is_empty() {
            connection.gateway.metrics.unroutable.inc();
            channel.flow.notes().unroutable(mandatory);
        }
        // Also what is delayed: nobody knows yet whether somebody will get it. So it is in RabbitMQ's plugin.
        if mandatory && !answered {
            give_back(connection, channel, message);
        }
        match delayed::keep(connection, channel, message, &keys, (delay, &keepers), wanted) {
            Kept::Open => {}
            other => settle(connection, channel, other == Kept::NotWanted),
        }
        return Ok(());
    }
    let stripped = without_bcc(message.properties);
    let properties = stripped.as_ref().map_or(message.properties, |bytes| EncodedProperties::trusted(bytes));
    let (whole, message) = (message, &Message { properties, ..*message });
    let mut refused = false;
    if targets.iter().any(|queue| queue.may_refuse()) {
        // A queue that refuses may dead-letter under its lock, and so read the table.
        table.release();
        refused = refuse(connection, message, &mut targets);
    }
    if refused {
        note_refused(connection, channel);
        settle(connection, channel, false);
    }
    channel.published = Some(connection.publisher.rests());
    if !targets.is_empty() {
        // The publisher of a message that one queue refused knows by now.
        let wanted = wanted.filter(|_| !refused && keepers.is_empty());
        connection.publisher.add(targets, message, connection.now_ms, wanted);
    }
    let kept = delayed::keep(connection, channel, whole, &keys, (delay, &keepers), wanted.filter(|_| !refused));
    if kept == Kept::Lost && !refused {
        settle(connection, channel, false);
    }
    Ok(())
}

/// A queue has refused a message.
fn note_refused(connection: &Connection, channel: &mut Channel) {
    connection.gateway.metrics.not_kept.inc();
    if let Mode::Transaction(transaction) = &mut channel.mode {
        transaction.refused = true;
    }
}

fn give_back(connection: &mut Connection, channel: &Channel, message: &Message<'_>) {
    let stripped = without_bcc(message.properties);
    let properties = stripped.as_ref().map_or(message.properties, |bytes| EncodedProperties::trusted(bytes));
    let short = |bytes| amqp_wire::ShortBytes::new(bytes).unwrap_or_default();
    let method = basic::Return {
        reply_code: ReplyCode::NoRoute.number(),
        reply_text: short(b"NO_ROUTE"),
        exchange: short(message.exchange),
        routing_key: short(message.routing_key),
    };
    connection.out.content(channel.number, &method, properties, message.body, connection.limits.frame_max);
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp_wire::{Properties, ShortBytes};
    use bytes::BytesMut;

    fn check(text: &str) -> Result<Option<u64>, String> {
        let mut encoded = BytesMut::new();
        Properties { expiration: ShortBytes::new(text.as_bytes()), ..Properties::default() }.encode(&mut encoded);
        expiration(EncodedProperties::trusted(&encoded)).map_err(|failure| failure.text)
    }

    #[test]
    fn an_expiration_is_a_number_of_milliseconds() {
        assert_eq!(expiration(EncodedProperties::default()).ok(), Some(None));
        for (text, value) in [("0", 0), ("00", 0), ("60000", 60_000), ("+5", 5), ("315360000000", TTL_MS_MAX)] {
            assert_eq!(check(text), Ok(Some(value)), "{text}");
        }
        // Answers of RabbitMQ 4.3.6.
        let refused = [
            ("abc", "no_integer"),
            ("", "no_integer"),
            ("-1", "{value_negative,-1}"),
            ("12x", "{leftover_string,\"x\"}"),
            ("1.5", "{leftover_string,\".5\"}"),
            ("315360000001", "{value_too_large,315360000001}"),
        ];
        for (text, reason) in refused {
            assert_eq!(check(text), Err(format!("PRECONDITION_FAILED - invalid expiration '{text}': {reason}")));
        }
        assert!(check("99999999999999999999").is_err());
    }
}
