//! A transactional id as a keyed record, big-endian.
//!
//! ```text
//! key "x" transactional id
//! value u8 version (1), i64 producer id, i16 epoch, u8 0 or 1 and i64 previous producer id, i16 previous epoch,
//!       u64 time-out, u8 state (0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete abort),
//!       u64 started, u64 updated, i16 epoch of markers, u32 count, u64 log ids,
//!       u32 count, groups: text group, u32 count, offsets: text topic, u32 partition, bytes committed offset as under "o"; then, if there are any,
//!       u32 pieces that it contains, see `transaction_pieces.rs`
//! ```

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::LogId;

use crate::offsets::CommittedOffset;
use crate::record::{put, take, take_text};
use crate::transaction_pieces::Pieces;
use crate::transactions::{PendingOffsets, Transaction, TransactionState};
use crate::weight;

/// Offsets that take effect with a commit, by group.
pub(crate) type Groups = BTreeMap<String, PendingOffsets>;

const VERSION: u8 = 1;
const STATES: [TransactionState; 6] = [
    TransactionState::Empty,
    TransactionState::Ongoing,
    TransactionState::PrepareCommit,
    TransactionState::PrepareAbort,
    TransactionState::CompleteCommit,
    TransactionState::CompleteAbort,
];

pub(crate) fn key_of(id: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(id.len() + 1);
    key.put_u8(b'x');
    key.put_slice(id.as_bytes());
    key.freeze()
}

pub(crate) fn put_logs<'a>(out: &mut BytesMut, logs: impl ExactSizeIterator<Item = &'a LogId>) {
    out.put_u32(logs.len() as u32);
    logs.for_each(|log| out.put_u64(log.0));
}

pub(crate) fn take_logs<T: FromIterator<LogId>>(from: &mut &[u8]) -> Option<T> {
    (0..from.try_get_u32().ok()?).map(|_| from.try_get_u64().ok().map(LogId)).collect()
}

pub(crate) fn put_groups(out: &mut BytesMut, groups: &Groups) {
    out.put_u32(groups.len() as u32);
    for (group, offsets) in groups {
        put(out, group.as_bytes());
        out.put_u32(offsets.len() as u32);
        for ((topic, partition), offset) in offsets {
            put(out, topic.as_bytes());
            out.put_u32(*partition);
            put(out, &offset.encode());
        }
    }
}

pub(crate) fn take_groups(from: &mut &[u8]) -> Option<Groups> {
    let mut groups = Groups::new();
    for _ in 0..from.try_get_u32().ok()? {
        let group = take_text(from)?;
        let mut pending = PendingOffsets::new();
        for _ in 0..from.try_get_u32().ok()? {
            let (topic, partition) = (take_text(from)?, from.try_get_u32().ok()?);
            pending.insert((topic, partition), CommittedOffset::decode(&take(from)?)?);
        }
        groups.insert(group, pending);
    }
    Some(groups)
}

impl Transaction {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_i64(self.producer.0);
        out.put_i16(self.producer.1);
        out.put_u8(u8::from(self.previous.is_some()));
        if let Some((id, epoch)) = self.previous {
            out.put_i64(id);
            out.put_i16(epoch);
        }
        out.put_u64(self.timeout);
        out.put_u8(STATES.iter().position(|state| *state == self.state).unwrap_or(0) as u8);
        out.put_u64(self.started);
        out.put_u64(self.updated);
        out.put_i16(self.marker_epoch);
        put_logs(&mut out, self.logs.iter());
        // Of an abort none takes effect.
        let none = Groups::new();
        put_groups(&mut out, if self.state == TransactionState::PrepareAbort { &none } else { &self.offsets });
        if self.state == TransactionState::Ongoing && self.pieces.contained() > 0 {
            out.put_u32(self.pieces.contained());
        }
        out.freeze()
    }
}

/// The transactional id and what is known of it.
pub(crate) fn decode(key: &[u8], mut from: &[u8]) -> Option<(String, Transaction)> {
    let id = String::from_utf8(key.strip_prefix(b"x")?.to_vec()).ok()?;
    (from.try_get_u8().ok()? == VERSION).then_some(())?;
    let producer = (from.try_get_i64().ok()?, from.try_get_i16().ok()?);
    let previous = match from.try_get_u8().ok()? {
        0 => None,
        _ => Some((from.try_get_i64().ok()?, from.try_get_i16().ok()?)),
    };
    let timeout = from.try_get_u64().ok()?;
    let state = *STATES.get(usize::from(from.try_get_u8().ok()?))?;
    let (started, updated) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
    let marker_epoch = from.try_get_i16().ok()?;
    let (logs, offsets) = (take_logs(&mut from)?, take_groups(&mut from)?);
    let contained = if from.is_empty() { 0 } else { from.try_get_u32().ok()? };
    let offset_bytes = weight::offsets_of_transaction(&id, &offsets);
    let transaction = Transaction::new(producer, timeout, updated);
    let pieces = Pieces::of_record(contained);
    Some((
        id,
        Transaction { previous, state, started, logs, offsets, marker_epoch, offset_bytes, pieces, ..transaction },
    ))
}
