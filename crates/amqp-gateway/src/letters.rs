//! Dead letters: what RabbitMQ writes into a message that a queue sends to its dead-letter exchange.
//!
//! `x-death` is an array of tables, the latest first: one a queue and reason, with how often. `x-first-death-*` and `x-last-death-*` name the
//! first and the latest. A message that a client publishes may have such headers from a broker that it came from before: they count for
//! nothing, as in RabbitMQ since 4.0. What this broker wrote is told by a record header of its own, `mainstem.dead`; its value is how many of
//! the message's deliveries have failed (u16, big-endian), or nothing: in its next queue they count as if they had been made there.
//!
//! Source: RabbitMQ 4.3, `mc`, `mc_amqpl`, `rabbit_dead_letter`.

use amqp_wire::{EncodedProperties, Properties, ShortBytes, TableRef, TableWriter, Value, short};
use broker::{Address, Letter, MessageTraits, Queue, Undertaker};
use bytes::BytesMut;
use delivery::{Dead, DeadReason};
use record::Record;
use routing::{Headers, Name, Property};

use crate::arguments::MessageHeaders;
use crate::message::{Message, Stored, with_headers};

/// Name of the record header that says that `x-death` is ours.
pub(crate) const DEAD_HEADER: &[u8] = b"mainstem.dead";
/// Queues and reasons that a message remembers.
const DEATHS_MAX: usize = 100;

/// Makes letters.
pub(crate) struct Letters;

/// A queue and a reason, and how often.
struct Death<'a> {
    queue: &'a [u8],
    reason: &'a [u8],
    count: i64,
    /// Of the first time, in seconds since 1970.
    time: u64,
    exchange: &'a [u8],
    keys: Vec<&'a [u8]>,
    expiration: Option<&'a [u8]>,
}

impl<'a> Death<'a> {
    fn read(table: TableRef<'a>) -> Option<Self> {
        let text = |name: &str| table.get(name).and_then(Value::as_bytes);
        let keys = table.get("routing-keys").and_then(Value::as_array);
        Some(Self {
            queue: text("queue")?,
            reason: text("reason")?,
            count: table.get("count").and_then(Value::as_integer)?,
            time: table.get("time").and_then(Value::as_integer).unwrap_or(0).unsigned_abs(),
            exchange: text("exchange").unwrap_or_default(),
            keys: keys
                .into_iter()
                .flat_map(|keys| keys.iter().filter_map(Value::as_bytes).collect::<Vec<_>>())
                .collect(),
            expiration: text("original-expiration"),
        })
    }

    fn write(&self, out: &mut TableWriter<'_>) {
        out.put(short("count"), Value::I64(self.count));
        out.put(short("reason"), Value::LongString(self.reason));
        out.put(short("queue"), Value::LongString(self.queue));
        out.put(short("time"), Value::Timestamp(self.time));
        out.put(short("exchange"), Value::LongString(self.exchange));
        out.array(short("routing-keys"), |keys| {
            for key in &self.keys {
                keys.put(Value::LongString(key));
            }
        });
        if let Some(expiration) = self.expiration {
            out.put(short("original-expiration"), Value::LongString(expiration));
        }
    }
}

fn reason(reason: DeadReason) -> &'static [u8] {
    match reason {
        DeadReason::Rejected => b"rejected",
        DeadReason::DeliveryLimit => b"delivery_limit",
        DeadReason::Expired => b"expired",
        DeadReason::MaxLength => b"maxlen",
    }
}

/// Routing keys of a message: its own, and those that its headers name.
pub(crate) fn keys_of<'a>(routing_key: &'a [u8], properties: EncodedProperties<'a>, names: &[&str]) -> Vec<&'a [u8]> {
    let mut keys = vec![routing_key];
    if let Some(table) = properties.headers() {
        for list in names.iter().filter_map(|name| table.get(name).and_then(Value::as_array)) {
            keys.extend(list.iter().filter_map(Value::as_bytes));
        }
    }
    keys
}

/// Deaths, the latest first, with this one.
fn deaths<'a>(before: Option<TableRef<'a>>, now: Death<'a>) -> Vec<Death<'a>> {
    let known = before.and_then(|table| table.get("x-death")).and_then(Value::as_array);
    let mut all: Vec<Death<'a>> = known
        .into_iter()
        .flat_map(|known| known.iter().filter_map(Value::as_table).filter_map(Death::read).collect::<Vec<_>>())
        .collect();
    let again = all.iter().position(|one| (one.queue, one.reason) == (now.queue, now.reason));
    let latest = match again {
        Some(place) => {
            let one = all.remove(place);
            Death { count: one.count + 1, ..one }
        }
        None => now,
    };
    all.insert(0, latest);
    all.truncate(DEATHS_MAX);
    all
}

/// Queues to which the message does not go: it would go round for ever without anybody having rejected it.
fn passed(deaths: &[Death<'_>]) -> Vec<Name> {
    if deaths.first().is_some_and(|latest| latest.reason == b"rejected") {
        return Vec::new();
    }
    // From the latest back to the first rejection: whoever comes before that has seen it without.
    let automatic = deaths.iter().take_while(|one| one.reason != b"rejected");
    automatic.filter_map(|one| Name::new(one.queue).ok()).collect()
}

impl Undertaker for Letters {
    fn letter(&self, queue: &Queue, record: &Record, dead: &Dead, now_ms: i64, address: &mut dyn Address) {
        let understood = queue.understood();
        let stored = Stored::of(record, queue.name(), None);
        let before = stored.properties();
        let ours = record.vouched && record.headers.iter().any(|(name, _)| **name == *DEAD_HEADER);
        let decoded = before.decode();
        let now = Death {
            queue: queue.name(),
            reason: reason(dead.reason),
            count: 1,
            time: u64::try_from(now_ms / 1000).unwrap_or(0),
            exchange: stored.exchange.as_bytes(),
            keys: keys_of(stored.routing_key.as_bytes(), before, &["CC"]),
            expiration: decoded.expiration.map(ShortBytes::as_bytes),
        };
        let all = deaths(before.headers().filter(|_| ours), now);
        let (first_queue, first_reason, first_exchange) = first(before, ours).unwrap_or_else(|| {
            let only = &all[0];
            (only.queue, only.reason, only.exchange)
        });
        let key_given = understood.dead_letter_key.as_ref();
        let written = with_headers(Properties { expiration: None, ..decoded }, |fields| {
            fields.copy_without(before.headers().unwrap_or_default(), is_of_deaths);
            fields.array(short("x-death"), |list| {
                for one in &all {
                    list.table(|out| one.write(out));
                }
            });
            for (name, value) in [
                ("x-first-death-exchange", first_exchange),
                ("x-first-death-queue", first_queue),
                ("x-first-death-reason", first_reason),
                ("x-last-death-exchange", stored.exchange.as_bytes()),
                ("x-last-death-queue", queue.name()),
                ("x-last-death-reason", reason(dead.reason)),
            ] {
                fields.put(short(name), Value::LongString(value));
            }
        });
        let properties = EncodedProperties::trusted(&written);
        let exchange = understood.dead_letter_exchange.as_ref().map_or(&b""[..], |name| name);
        let routing_key = key_given.map_or(stored.routing_key.as_bytes(), |key| key);
        // A key of the queue's stands for all that the message had.
        let others: &[&str] = if key_given.is_some() { &[] } else { &["CC"] };
        let keys = keys_of(routing_key, properties, others);
        let traits = MessageTraits { ttl: None, ..MessageTraits::of(record) };
        let message = Message { exchange, routing_key, properties, traits, body: &[&stored.body] };
        let headers = MessageHeaders(properties);
        let key = record.key.as_deref();
        let record_bytes = message.record_bytes() + key.map_or(0, <[u8]>::len);
        let letter = Letter { keys: &keys, headers: &headers, passed: &passed(&all), record_bytes };
        if let Some(batch) = address.batch_for(&letter) {
            message.write_dead(dead.failed, key, now_ms, batch);
        }
    }

    fn headers(&self, record: &Record) -> Box<dyn Headers> {
        let stored = Stored::of(record, b"", None);
        Box::new(OwnedHeaders(BytesMut::from(stored.properties().as_bytes())))
    }
}

/// Queue, reason and exchange of the first death, as this broker wrote them.
fn first(properties: EncodedProperties<'_>, ours: bool) -> Option<(&[u8], &[u8], &[u8])> {
    let table = properties.headers().filter(|_| ours)?;
    let text = |name: &str| table.get(name).and_then(Value::as_bytes);
    Some((text("x-first-death-queue")?, text("x-first-death-reason")?, text("x-first-death-exchange")?))
}

fn is_of_deaths(name: ShortBytes<'_>) -> bool {
    name == "x-death"
        || [&b"x-first-death-"[..], b"x-last-death-"].iter().any(|prefix| name.starts_with(prefix))
        || name == "x-delivery-count"
        || name == "x-acquired-count"
}

/// Headers and properties that own their bytes.
struct OwnedHeaders(BytesMut);

impl Headers for OwnedHeaders {
    fn get(&self, name: &[u8]) -> Option<routing::Value<'_>> {
        let fields = EncodedProperties::trusted(&self.0).headers()?;
        fields.iter().find(|(found, _)| found.as_bytes() == name).map(|(_, value)| crate::arguments::routed(value))
    }

    fn visit<'a>(&'a self, visitor: &mut dyn FnMut(&'a [u8], routing::Value<'a>)) {
        crate::arguments::visit_headers(EncodedProperties::trusted(&self.0), visitor);
    }

    fn property(&self, property: Property) -> Option<routing::Value<'_>> {
        let properties = EncodedProperties::trusted(&self.0);
        crate::arguments::property_of(properties, property)
    }
}
