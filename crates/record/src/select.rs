//! Batches for readers that want some of the records only: offsets, producer, sequence and codec stay what they were, as after compaction;
//! but a batch ends with its last record, so that who makes an answer can say what follows.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use types::{Offset, Timestamp};

use crate::retain::{Walk, rebuilt, unpacked};
use crate::{BatchBuilder, BatchError, BatchHeader, Record, set_base_offset, set_leader_epoch};

/// What a reader can be asked about: a record in place, nothing of it copied.
#[derive(Debug)]
pub struct RecordView<'a> {
    /// Its position in the log.
    pub offset: Offset,
    /// Milliseconds since 1970; the batch's when the broker stamped it.
    pub timestamp: Timestamp,
    /// The key, if there is one.
    pub key: Option<&'a [u8]>,
    /// Count, then name and value of each.
    headers: &'a [u8],
    damaged: Cell<bool>,
}

/// What a record can be asked for, wherever it lies.
pub trait Fields {
    /// The key, if there is one.
    fn key(&self) -> Option<&[u8]>;
    /// The value of the last header of this name; `None` when there is none, or it has none.
    fn header(&self, name: &[u8]) -> Option<&[u8]>;
    /// Bytes of its headers, about, which a look for one of them goes through.
    fn headers_bytes(&self) -> usize;
    /// Milliseconds since 1970.
    fn timestamp(&self) -> Timestamp;
}

impl Fields for RecordView<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.key
    }

    fn header(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.find(name);
        self.damaged.set(self.damaged.get() || found.is_err());
        found.unwrap_or(None)
    }

    fn headers_bytes(&self) -> usize {
        self.headers.len()
    }

    fn timestamp(&self) -> Timestamp {
        self.timestamp
    }
}

impl Fields for Record {
    fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    fn header(&self, name: &[u8]) -> Option<&[u8]> {
        self.headers.iter().rev().find(|(one, _)| **one == *name)?.1.as_deref()
    }

    fn headers_bytes(&self) -> usize {
        // What lies between names is not gone through.
        self.headers.len() * 8
    }

    fn timestamp(&self) -> Timestamp {
        self.timestamp
    }
}

impl<'a> RecordView<'a> {
    fn find(&self, name: &[u8]) -> Result<Option<&'a [u8]>, BatchError> {
        let (mut rest, mut found) = (self.headers, None);
        for _ in 0..crate::retain::varint(&mut rest)? {
            let one = crate::retain::field(&mut rest)?;
            let value = crate::retain::field(&mut rest)?;
            if one == Some(name) {
                found = value;
            }
        }
        Ok(found)
    }
}

/// What of a batch is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// All of it, as it is.
    All,
    /// Some records: another batch in its place.
    Part(Bytes),
    /// No record.
    Nothing,
    /// It was not gone through to its end.
    Stopped,
}

/// Leaves out of a batch the records that `wants` says no to; when it says nothing, the batch is gone through no further.
///
/// # Errors
/// `Corrupt`, `UnknownCompression`, `TooLarge` when it unpacks to more than `unpacked_max`; the batch's checksum is not looked at.
pub fn select(
    batch: &[u8],
    unpacked_max: usize,
    mut wants: impl FnMut(&RecordView<'_>) -> Option<bool>,
) -> Result<Selected, BatchError> {
    let (header, records) = unpacked(batch, unpacked_max)?;
    let mut kept = Vec::new();
    for record in Walk::new(header, &records)? {
        let record = record?;
        let timestamp = if header.append_time() {
            header.max_timestamp
        } else {
            header.base_timestamp.wrapping_add(record.timestamp_delta)
        };
        let view = RecordView {
            offset: record.key.offset,
            timestamp,
            key: record.key.key,
            headers: record.headers,
            damaged: Cell::new(false),
        };
        let wanted = wants(&view);
        if view.damaged.get() {
            return Err(BatchError::Corrupt { what: "headers of a record" });
        }
        match wanted {
            Some(true) => kept.push(record),
            Some(false) => {}
            None => return Ok(Selected::Stopped),
        }
    }
    Ok(if kept.len() == header.records_count as usize {
        Selected::All
    } else if kept.is_empty() {
        Selected::Nothing
    } else {
        let last = kept.last().map_or(header.base(), |record| record.key.offset);
        let last_offset_delta = (last.0 - header.base().0) as i32;
        Selected::Part(rebuilt(&BatchHeader { last_offset_delta, ..header }, &kept, None)?)
    })
}

/// A control batch of one offset that says nothing: a reader goes on behind it, and clients that commit only behind what they were
/// given commit behind it as well. It is a marker of a commit, of no producer.
pub fn gap_marker(offset: Offset, leader_epoch: u32, now: Timestamp) -> Bytes {
    let (key, value) = ([0, 0, 0, 1], [0; 6]);
    let batch = BatchBuilder::default().control().record(now, Some(&key), Some(&value)).build();
    let mut batch = BytesMut::from(&batch[..]);
    set_base_offset(&mut batch, offset);
    set_leader_epoch(&mut batch, leader_epoch);
    batch.freeze()
}

#[cfg(test)]
mod tests;
