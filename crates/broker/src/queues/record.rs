//! What is durable of exchanges, bindings and queues: keyed state in journal 0. What is not declared durable has no record.
//!
//! ```text
//! key    "q" kind, u8 length, virtual host, then by kind
//!   "e"  name                                   value  u8 version (1), u8 length, type, u8 flags, arguments
//!   "q"  name                                   value  u8 version (1), [16] topic id, u64 log id, u8 flags, arguments
//!   "b"  u8 length, source, u8 "q" or "e",
//!        u8 length, destination,
//!        u8 length, routing key, arguments      value  u8 version (1), u64 number
//! number    rises from one binding to the next: bindings are made again in this order, on which hashing depends
//! flags     1 auto-delete, 2 internal, 4 not shown as a topic, 8 of a topic that was there before, 16 its own topic is called as `names.rs`
//!           says; without it by the old rule there, unless the topic has a record of its own, which has its name
//! arguments u32 count, (u8 length, name, u8 tag of AMQP's field tables, u8 class, content) each
//! content   void: nothing; bool: u8; int, float, timestamp: u64; decimal: u8 scale, u32; bytes, table, array: u32 length, bytes
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use routing::{Argument, Arguments, Name, OwnedValue};
use types::{LogId, TopicId};
use uuid::Uuid;

/// First byte of all keys.
pub(crate) const QUEUES_KEY: u8 = b'q';
const EXCHANGE: u8 = b'e';
const QUEUE: u8 = b'q';
const BINDING: u8 = b'b';
const VERSION: u8 = 1;

const AUTO_DELETE: u8 = 1;
const INTERNAL: u8 = 2;
const HIDDEN: u8 = 4;
const ATTACHED: u8 = 8;
const OWN_NAME: u8 = 16;

/// A durable exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExchangeRecord {
    pub kind: Name,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: Arguments,
}

/// A durable queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueRecord {
    pub topic: TopicId,
    pub log: LogId,
    pub auto_delete: bool,
    pub hidden: bool,
    pub attached: bool,
    /// Its topic is called as no other queue's can be; what earlier releases declared is not.
    pub own_name: bool,
    pub arguments: Arguments,
}

/// A binding between durable ends; all of it is its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindingRecord {
    pub source: Name,
    /// Or an exchange.
    pub to_queue: bool,
    pub destination: Name,
    pub key: Name,
    pub arguments: Arguments,
}

/// Any of them, of a virtual host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Exchange(Name, ExchangeRecord),
    Queue(Name, QueueRecord),
    Binding(BindingRecord, u64),
}

/// Without room to grow: the journal keeps it.
fn exact(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn put_short(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u8(u8::try_from(bytes.len()).expect("names have at most 255 bytes"));
    out.put_slice(bytes);
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}

fn short(bytes: &mut &[u8]) -> Option<Name> {
    let length = usize::from(bytes.try_get_u8().ok()?);
    Name::new(take(bytes, length)?).ok()
}

fn put_arguments(out: &mut BytesMut, arguments: &Arguments) {
    out.put_u32(arguments.fields().len() as u32);
    for Argument { name, tag, value } in arguments.fields() {
        put_short(out, name);
        out.put_u8(*tag);
        let mut long = |class: u8, bytes: &[u8]| {
            out.put_u8(class);
            out.put_u32(bytes.len() as u32);
            out.put_slice(bytes);
        };
        match value {
            OwnedValue::Bytes(bytes) => long(6, bytes),
            OwnedValue::Table(bytes) => long(7, bytes),
            OwnedValue::Array(bytes) => long(8, bytes),
            OwnedValue::Void => out.put_u8(0),
            OwnedValue::Bool(value) => out.put_slice(&[1, u8::from(*value)]),
            OwnedValue::Decimal { scale, unscaled } => {
                out.put_slice(&[4, *scale]);
                out.put_u32(*unscaled);
            }
            OwnedValue::Int(value) => {
                out.put_u8(2);
                out.put_i64(*value);
            }
            OwnedValue::Float(value) => {
                out.put_u8(3);
                out.put_f64(*value);
            }
            OwnedValue::Timestamp(value) => {
                out.put_u8(5);
                out.put_u64(*value);
            }
        }
    }
}

fn arguments(bytes: &mut &[u8]) -> Option<Arguments> {
    let mut fields = Vec::new();
    for _ in 0..bytes.try_get_u32().ok()? {
        let name = short(bytes)?.as_bytes().into();
        let tag = bytes.try_get_u8().ok()?;
        let long = |bytes: &mut &[u8]| {
            let length = bytes.try_get_u32().ok()? as usize;
            Some(Box::from(take(bytes, length)?))
        };
        let value = match bytes.try_get_u8().ok()? {
            0 => OwnedValue::Void,
            1 => OwnedValue::Bool(bytes.try_get_u8().ok()? != 0),
            2 => OwnedValue::Int(bytes.try_get_i64().ok()?),
            3 => OwnedValue::Float(bytes.try_get_f64().ok()?),
            4 => OwnedValue::Decimal { scale: bytes.try_get_u8().ok()?, unscaled: bytes.try_get_u32().ok()? },
            5 => OwnedValue::Timestamp(bytes.try_get_u64().ok()?),
            6 => OwnedValue::Bytes(long(bytes)?),
            7 => OwnedValue::Table(long(bytes)?),
            8 => OwnedValue::Array(long(bytes)?),
            _ => return None,
        };
        fields.push(Argument { name, tag, value });
    }
    Some(Arguments::new(fields))
}

fn key(kind: u8, vhost: &str) -> BytesMut {
    let mut key = BytesMut::new();
    key.put_slice(&[QUEUES_KEY, kind]);
    put_short(&mut key, vhost.as_bytes());
    key
}

fn flags(set: &[(bool, u8)]) -> u8 {
    set.iter().map(|(is, flag)| u8::from(*is) * flag).sum()
}

impl ExchangeRecord {
    pub fn key(vhost: &str, name: &[u8]) -> Bytes {
        let mut key = key(EXCHANGE, vhost);
        key.put_slice(name);
        exact(&key)
    }

    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        put_short(&mut out, &self.kind);
        out.put_u8(flags(&[(self.auto_delete, AUTO_DELETE), (self.internal, INTERNAL)]));
        put_arguments(&mut out, &self.arguments);
        exact(&out)
    }
}

impl QueueRecord {
    pub fn key(vhost: &str, name: &[u8]) -> Bytes {
        let mut key = key(QUEUE, vhost);
        key.put_slice(name);
        exact(&key)
    }

    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_slice(self.topic.0.as_bytes());
        out.put_u64(self.log.0);
        let set = [
            (self.auto_delete, AUTO_DELETE),
            (self.hidden, HIDDEN),
            (self.attached, ATTACHED),
            (self.own_name, OWN_NAME),
        ];
        out.put_u8(flags(&set));
        put_arguments(&mut out, &self.arguments);
        exact(&out)
    }
}

impl BindingRecord {
    pub fn key(&self, vhost: &str) -> Bytes {
        let mut key = key(BINDING, vhost);
        put_short(&mut key, &self.source);
        key.put_u8(if self.to_queue { QUEUE } else { EXCHANGE });
        put_short(&mut key, &self.destination);
        put_short(&mut key, &self.key);
        put_arguments(&mut key, &self.arguments);
        exact(&key)
    }

    pub fn encode(number: u64) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_u64(number);
        exact(&out)
    }
}

/// Reads a record and its virtual host; `None`: it is none of this or an older version.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<(String, Found)> {
    let (mut key, mut value) = (key, value);
    (key.try_get_u8().ok()? == QUEUES_KEY).then_some(())?;
    let kind = key.try_get_u8().ok()?;
    let vhost = String::from_utf8(short(&mut key)?.to_vec()).ok()?;
    (value.try_get_u8().ok()? == VERSION).then_some(())?;
    let found = match kind {
        EXCHANGE => {
            let (kind, flags) = (short(&mut value)?, value.try_get_u8().ok()?);
            let (auto_delete, internal) = (flags & AUTO_DELETE != 0, flags & INTERNAL != 0);
            Found::Exchange(
                Name::new(key).ok()?,
                ExchangeRecord { kind, auto_delete, internal, arguments: arguments(&mut value)? },
            )
        }
        QUEUE => {
            let topic = TopicId(Uuid::from_u128(value.try_get_u128().ok()?));
            let (log, flags) = (LogId(value.try_get_u64().ok()?), value.try_get_u8().ok()?);
            let is = |flag: u8| flags & flag != 0;
            let (auto_delete, hidden, attached, own_name) = (is(AUTO_DELETE), is(HIDDEN), is(ATTACHED), is(OWN_NAME));
            Found::Queue(
                Name::new(key).ok()?,
                QueueRecord { topic, log, auto_delete, hidden, attached, own_name, arguments: arguments(&mut value)? },
            )
        }
        BINDING => {
            let source = short(&mut key)?;
            let to_queue = key.try_get_u8().ok()? == QUEUE;
            let (destination, routing_key) = (short(&mut key)?, short(&mut key)?);
            let record =
                BindingRecord { source, to_queue, destination, key: routing_key, arguments: arguments(&mut key)? };
            Found::Binding(record, value.try_get_u64().ok()?)
        }
        _ => return None,
    };
    Some((vhost, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("short")
    }

    fn all_arguments() -> Arguments {
        let values = [
            OwnedValue::Void,
            OwnedValue::Bool(true),
            OwnedValue::Int(-5),
            OwnedValue::Float(0.5),
            OwnedValue::Decimal { scale: 2, unscaled: 314 },
            OwnedValue::Timestamp(1_700_000_000),
            OwnedValue::Bytes(Box::from(&b"text"[..])),
            OwnedValue::Table(Box::from(&b"\x01aV"[..])),
            OwnedValue::Array(Box::from(&b"V"[..])),
        ];
        let field = |(number, value): (usize, OwnedValue)| Argument {
            name: format!("x-{number}").into_bytes().into(),
            tag: b'a' + number as u8,
            value,
        };
        Arguments::new(values.into_iter().enumerate().map(field).collect())
    }

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_shorter() {
        let arguments = all_arguments();
        let exchange =
            ExchangeRecord { kind: name("topic"), auto_delete: true, internal: false, arguments: arguments.clone() };
        let queue = QueueRecord {
            topic: TopicId(Uuid::from_u128(7)),
            log: LogId(9),
            auto_delete: false,
            hidden: true,
            attached: false,
            own_name: true,
            arguments: arguments.clone(),
        };
        let binding = BindingRecord {
            source: name("from"),
            to_queue: true,
            destination: name("to"),
            key: name("a.*"),
            arguments,
        };
        let cases = [
            (ExchangeRecord::key("/", b"logs"), exchange.encode(), Found::Exchange(name("logs"), exchange)),
            (QueueRecord::key("/", b"work"), queue.encode(), Found::Queue(name("work"), queue)),
            (binding.key("/"), BindingRecord::encode(7), Found::Binding(binding, 7)),
        ];
        for (key, value, found) in cases {
            assert_eq!(decode(&key, &value), Some(("/".to_owned(), found)));
            for end in 0..value.len() {
                assert_eq!(decode(&key, &value[..end]), None, "{end} bytes of a value");
            }
            assert_eq!(decode(&key[..3], &value), None);
        }
    }
}
