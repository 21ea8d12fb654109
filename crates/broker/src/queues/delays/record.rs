//! What is durable of delayed messages beside their records: keyed state, and a header of each record.
//!
//! ```text
//! key    "l" kind, then by kind
//!   "c"                                         value  u8 version (1), u128 boot of the machine, i64 time of delays less steady time, in ms,
//!                                                      u64 time of delays when this was written, in ms
//!   "e"  u8 length, virtual host, exchange      value  u8 version (1), [16] topic id, u64 log id: where its messages are when they come
//!   "r"  u64 log id of "e", u64 log id          value  u8 version (1): messages in the order of their time
//! header "mainstem.delay"                       u8 version (1), u64 time, in ms of the time of delays; then the routing keys,
//!                                               u8 length and bytes each
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use record::Record;
use routing::Name;
use smallvec::SmallVec;
use types::{LogId, TopicId};
use uuid::Uuid;

/// First byte of all keys.
pub(crate) const DELAYS_KEY: u8 = b'l';
/// Name of the header of a delayed message's record.
pub const DELAY_HEADER: &[u8] = b"mainstem.delay";
const CLOCK: u8 = b'c';
const EXCHANGE: u8 = b'e';
const RUN: u8 = b'r';
const VERSION: u8 = 1;

/// The time of delays as it was when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockRecord {
    pub boot: u128,
    pub ahead: i64,
    pub seen: u64,
}

/// Where the delayed messages of an exchange are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DelaysRecord {
    pub topic: TopicId,
    pub log: LogId,
}

/// Any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundDelays {
    Clock(ClockRecord),
    Exchange(String, Name, DelaysRecord),
    /// Of the first log, the second one.
    Run(LogId, LogId),
}

impl ClockRecord {
    pub fn key() -> Bytes {
        Bytes::from_static(&[DELAYS_KEY, CLOCK])
    }

    pub fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(33);
        out.put_u8(VERSION);
        out.put_u128(self.boot);
        out.put_i64(self.ahead);
        out.put_u64(self.seen);
        out.freeze()
    }
}

impl DelaysRecord {
    pub fn key(vhost: &str, exchange: &[u8]) -> Bytes {
        let mut key = BytesMut::with_capacity(3 + vhost.len() + exchange.len());
        key.put_slice(&[DELAYS_KEY, EXCHANGE, u8::try_from(vhost.len()).expect("names of virtual hosts are short")]);
        key.put_slice(vhost.as_bytes());
        key.put_slice(exchange);
        key.freeze()
    }

    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(25);
        out.put_u8(VERSION);
        out.put_slice(self.topic.0.as_bytes());
        out.put_u64(self.log.0);
        out.freeze()
    }
}

pub(super) fn run_key(of: LogId, run: LogId) -> Bytes {
    let mut key = BytesMut::with_capacity(18);
    key.put_slice(&[DELAYS_KEY, RUN]);
    key.put_u64(of.0);
    key.put_u64(run.0);
    key.freeze()
}

pub(super) fn run_value() -> Bytes {
    Bytes::from_static(&[VERSION])
}

/// Reads a record; `None`: it is none of this or an older version.
pub(crate) fn decode(mut key: &[u8], mut value: &[u8]) -> Option<FoundDelays> {
    (key.try_get_u8().ok()? == DELAYS_KEY).then_some(())?;
    let kind = key.try_get_u8().ok()?;
    (value.try_get_u8().ok()? == VERSION).then_some(())?;
    Some(match kind {
        CLOCK => FoundDelays::Clock(ClockRecord {
            boot: value.try_get_u128().ok()?,
            ahead: value.try_get_i64().ok()?,
            seen: value.try_get_u64().ok()?,
        }),
        EXCHANGE => {
            let length = usize::from(key.try_get_u8().ok()?);
            let (vhost, name) = key.split_at_checked(length)?;
            let topic = TopicId(Uuid::from_u128(value.try_get_u128().ok()?));
            let record = DelaysRecord { topic, log: LogId(value.try_get_u64().ok()?) };
            FoundDelays::Exchange(String::from_utf8(vhost.to_vec()).ok()?, Name::new(name).ok()?, record)
        }
        RUN => FoundDelays::Run(LogId(key.try_get_u64().ok()?), LogId(key.try_get_u64().ok()?)),
        _ => return None,
    })
}

/// When a message is to be routed, and by which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay<'a> {
    /// In ms of the time of delays: see [`crate::Broker::delayed_by`].
    pub due: u64,
    /// Its routing key, and those that its headers name; each has at most 255 bytes.
    pub keys: SmallVec<[&'a [u8]; 4]>,
}

fn header_of(record: &Record) -> Option<&[u8]> {
    record.headers.iter().find(|(name, _)| **name == *DELAY_HEADER).and_then(|(_, value)| value.as_deref())
}

/// When a record is due, in ms of the time of delays; one that does not say so was due long ago.
pub(super) fn due_of(record: &Record) -> u64 {
    let due = |mut bytes: &[u8]| {
        bytes.try_get_u8().ok().filter(|version| *version == VERSION).and_then(|_| bytes.try_get_u64().ok())
    };
    header_of(record).and_then(due).unwrap_or(0)
}

impl<'a> Delay<'a> {
    /// The header's value.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(9 + self.keys.iter().map(|key| 1 + key.len()).sum::<usize>());
        out.put_u8(VERSION);
        out.put_u64(self.due);
        for key in &self.keys {
            out.put_u8(u8::try_from(key.len()).unwrap_or(u8::MAX));
            out.put_slice(&key[..key.len().min(255)]);
        }
        out.freeze()
    }

    /// Of a record; one that has no such header was due long ago, and leads nowhere.
    pub(super) fn of(record: &'a Record) -> Self {
        header_of(record).and_then(Self::decode).unwrap_or(Self { due: 0, keys: SmallVec::new() })
    }

    fn decode(mut bytes: &'a [u8]) -> Option<Self> {
        (bytes.try_get_u8().ok()? == VERSION).then_some(())?;
        let (due, mut keys) = (bytes.try_get_u64().ok()?, SmallVec::new());
        while let Some((length, rest)) = bytes.split_first() {
            let (key, rest) = rest.split_at_checked(usize::from(*length))?;
            keys.push(key);
            bytes = rest;
        }
        Some(Self { due, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_shorter() {
        let clock = ClockRecord { boot: 7, ahead: -5, seen: 9 };
        let exchange = DelaysRecord { topic: TopicId(Uuid::from_u128(3)), log: LogId(4) };
        let late = Name::new(b"late").expect("short");
        let cases = [
            (ClockRecord::key(), clock.encode(), FoundDelays::Clock(clock)),
            (DelaysRecord::key("/", b"late"), exchange.encode(), FoundDelays::Exchange("/".to_owned(), late, exchange)),
            (run_key(LogId(4), LogId(5)), run_value(), FoundDelays::Run(LogId(4), LogId(5))),
        ];
        for (key, value, found) in cases {
            assert_eq!(decode(&key, &value), Some(found));
            for end in 0..value.len() {
                assert_eq!(decode(&key, &value[..end]), None, "{end} bytes of a value");
            }
        }
    }

    #[test]
    fn a_header_says_when_and_by_which_keys() {
        let keys: [&[u8]; 3] = [b"a.b", b"", b"c"];
        let bytes = Delay { due: 12_345, keys: SmallVec::from_slice(&keys) }.encode();
        let back = Delay::decode(&bytes).expect("whole");
        assert_eq!((back.due, &back.keys[..]), (12_345, &keys[..]));
        assert_eq!(Delay::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Delay::decode(&bytes[..5]), None);
    }
}
