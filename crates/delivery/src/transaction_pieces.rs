//! Pieces of a long transaction. Its record says all that it holds: written anew for each offset it would cost more with every one. So what is
//! added is a record of its own, a *piece*, and the whole is written again when pieces have come to a part of it. Big-endian:
//!
//! ```text
//! key "f" u16 length, transactional id, u32 number
//! value u8 version (1), i64 producer id, i16 epoch, u64 started, then logs and groups as in the record of the id
//! ```
//!
//! * A piece follows a whole record of the same transaction that is durable: of an older one it would be a part of nothing.
//! * A whole record says how many pieces it contains; those are removed when it is durable. What was added last holds.
//! * Pieces go with the decision how the transaction ends, which names everything again.

use std::ops::Range;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::LogId;

use crate::coordinator::Commit;
use crate::transaction_record::{Groups, put_groups, put_logs, take_groups, take_logs};
use crate::transactions::{ProducerEpoch, Transaction, TransactionState};

const VERSION: u8 = 1;
/// From so many bytes on, as a transaction is weighed, it is written in pieces.
const WEIGHT_MIN: usize = 64 << 10;
/// The whole is written again when its pieces have this part of its weight, which is twice its length or more.
const PART: usize = 8;

/// Which pieces a transaction has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    /// A whole record of the transaction is durable.
    based: bool,
    /// Those that are there, about.
    numbers: Range<u32>,
    /// Bytes of those that are newer than the last whole record.
    bytes: usize,
}

impl Pieces {
    /// Of a transaction that was brought back, whose record contains so many.
    pub fn of_record(contained: u32) -> Self {
        Self { based: true, numbers: contained..contained, bytes: 0 }
    }

    /// How many a whole record contains that is written now.
    pub fn contained(&self) -> u32 {
        self.numbers.end
    }

    /// The keys of those that are there: not needed any more.
    pub fn keys(&self, id: &str) -> Vec<Bytes> {
        self.numbers.clone().map(|number| key_of(id, number)).collect()
    }
}

/// What one request adds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Addition<'a> {
    pub logs: &'a [LogId],
    pub group: Option<(&'a str, &'a [Commit])>,
}

/// A whole record of a transaction under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    id: String,
    started: u64,
    contained: u32,
}

/// What makes a change of a transaction durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Key of the record.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// It says all that the transaction holds. [`TransactionCoordinator::written`](crate::TransactionCoordinator::written) is told when it is durable.
    pub whole: Option<Whole>,
}

/// A piece that a start has found.
#[derive(Debug)]
pub(crate) struct FoundPiece {
    pub id: String,
    pub number: u32,
    producer: ProducerEpoch,
    started: u64,
    bytes: usize,
    logs: Vec<LogId>,
    groups: Groups,
}

fn key_of(id: &str, number: u32) -> Bytes {
    let mut key = BytesMut::with_capacity(id.len() + 7);
    key.put_u8(b'f');
    key.put_u16(id.len() as u16);
    key.put_slice(id.as_bytes());
    key.put_u32(number);
    key.freeze()
}

/// A piece; `None`: the record is none.
pub(crate) fn decode(key: &[u8], mut from: &[u8]) -> Option<FoundPiece> {
    let bytes = key.len() + from.len();
    let mut key = key.strip_prefix(b"f")?;
    let length = usize::from(key.try_get_u16().ok()?);
    let (id, mut number) = key.split_at_checked(length)?;
    let (id, number) = (String::from_utf8(id.to_vec()).ok()?, number.try_get_u32().ok()?);
    (from.try_get_u8().ok()? == VERSION).then_some(())?;
    let producer = (from.try_get_i64().ok()?, from.try_get_i16().ok()?);
    let started = from.try_get_u64().ok()?;
    Some(FoundPiece {
        id,
        number,
        producer,
        started,
        bytes,
        logs: take_logs(&mut from)?,
        groups: take_groups(&mut from)?,
    })
}

impl FoundPiece {
    pub fn key(&self) -> Bytes {
        key_of(&self.id, self.number)
    }
}

impl Transaction {
    /// The value of a piece that says this, if the transaction is written in pieces.
    pub(crate) fn piece(&self, addition: Addition<'_>) -> Option<Bytes> {
        if !self.pieces.based || self.record_weight() < WEIGHT_MIN || self.state != TransactionState::Ongoing {
            return None;
        }
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_i64(self.producer.0);
        out.put_i16(self.producer.1);
        out.put_u64(self.started);
        put_logs(&mut out, addition.logs.iter());
        let offsets = |commits: &[Commit]| {
            commits.iter().map(|one| ((one.topic.clone(), one.partition), one.offset.clone())).collect()
        };
        put_groups(
            &mut out,
            &addition.group.map(|(group, commits)| (group.to_owned(), offsets(commits))).into_iter().collect(),
        );
        Some(out.freeze())
    }

    /// What makes durable what was added: the piece, or the whole.
    pub(crate) fn change(&mut self, id: &str, piece: Option<Bytes>) -> Change {
        let most = self.record_weight() / PART;
        let pieces = &mut self.pieces;
        if let Some(value) = piece {
            let key = key_of(id, pieces.numbers.end);
            pieces.bytes += key.len() + value.len();
            if pieces.bytes <= most && pieces.numbers.end < u32::MAX {
                pieces.numbers.end += 1;
                return Change { key, value, whole: None };
            }
        }
        pieces.bytes = 0;
        let whole = Whole { id: id.to_owned(), started: self.started, contained: self.pieces.contained() };
        let (key, value) = self.whole(id);
        Change { key, value, whole: Some(whole) }
    }

    /// A whole record is durable: the keys of the pieces that it contains.
    pub(crate) fn written(&mut self, whole: &Whole) -> Vec<Bytes> {
        if self.state != TransactionState::Ongoing || self.started != whole.started {
            return Vec::new();
        }
        self.pieces.based = true;
        let numbers =
            self.pieces.numbers.start..whole.contained.clamp(self.pieces.numbers.start, self.pieces.numbers.end);
        self.pieces.numbers.start = numbers.end;
        numbers.map(|number| key_of(&whole.id, number)).collect()
    }

    /// At a start, in the order of their numbers. False: it is not of the transaction under way, or contained in its record.
    pub(crate) fn take_piece(&mut self, found: FoundPiece) -> bool {
        let is_of =
            self.state == TransactionState::Ongoing && self.producer == found.producer && self.started == found.started;
        if !is_of || found.number < self.pieces.numbers.end {
            return false;
        }
        self.pieces.numbers.end = found.number.saturating_add(1);
        self.pieces.bytes += found.bytes;
        self.logs.extend(found.logs);
        for (group, offsets) in found.groups {
            self.offsets.entry(group).or_default().extend(offsets);
        }
        true
    }
}

impl Whole {
    /// Its transactional id.
    pub fn id(&self) -> &str {
        &self.id
    }
}
