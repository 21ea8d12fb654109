//! The records inside a batch, whole and in memory: for readers of other protocols, and for tests. Who only looks at records uses
//! `unpack.rs`, who needs some of them `open.rs`.

use std::ops::ControlFlow;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use types::{Offset, Timestamp};

use crate::unpack::{opened, scan, unpack};
use crate::{BatchError, BatchHeader};

/// Records of a batch may not unpack to more than this.
pub const UNPACKED_BYTES_MAX: usize = 256 << 20;

/// Names and values of headers. One, which all messages of AMQP have, takes no memory of its own.
pub type Headers = SmallVec<[(Bytes, Option<Bytes>); 1]>;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position in the log.
    pub offset: Offset,
    /// Milliseconds since 1970; the batch's when the broker stamped it.
    pub timestamp: Timestamp,
    /// The key, if there is one.
    pub key: Option<Bytes>,
    /// The value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Headers in order; names may repeat.
    pub headers: Headers,
    /// Its batch is one that the broker vouches for.
    pub vouched: bool,
}

impl Record {
    /// What it takes of memory, its bytes included.
    pub fn memory_bytes(&self) -> usize {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| size_of::<(Bytes, Option<Bytes>)>() + name.len() + length(value))
            .sum();
        size_of::<Self>() + length(&self.key) + length(&self.value) + headers
    }
}

/// Decodes all records of one batch.
///
/// # Errors
/// `Corrupt`, `UnknownCompression`, `TooLarge` beyond [`UNPACKED_BYTES_MAX`]; the batch's checksum is not looked at.
pub fn records(batch: &[u8]) -> Result<Vec<Record>, BatchError> {
    records_within(batch, UNPACKED_BYTES_MAX)
}

/// The same for who has less memory for it: what is unpacked, and what [`Record`]s and their headers take beside it, counts.
///
/// # Errors
/// As [`records`]; `TooLarge` beyond `bytes_max`.
pub fn records_within(batch: &[u8], bytes_max: usize) -> Result<Vec<Record>, BatchError> {
    let (header, codec, packed) = opened(batch)?;
    split(&header, Bytes::from(unpack(codec, packed, bytes_max)?), bytes_max)
}

/// The records of a batch with this head, which are not compressed.
fn split(header: &BatchHeader, mut bytes: Bytes, bytes_max: usize) -> Result<Vec<Record>, BatchError> {
    let count = usize::try_from(header.records_count).map_err(|_| BatchError::Corrupt { what: "record count" })?;
    // A record takes at least seven bytes.
    if count > bytes.len() / 7 + 1 {
        return Err(BatchError::Corrupt { what: "record count" });
    }
    let mut memory = HeaderMemory { used: bytes.len() + count * size_of::<Record>(), max: bytes_max, is_cut: false };
    memory.take(0)?;
    (0..count).map(|_| record(header, &mut bytes, &mut memory)).collect()
}

/// Memory for headers: one of two bytes in a batch is one of sixty here.
pub(crate) struct HeaderMemory {
    used: usize,
    max: usize,
    /// Headers for which there is no room are left out.
    is_cut: bool,
}

impl HeaderMemory {
    /// For readers that do without the headers that take more.
    pub fn cut(max: usize) -> Self {
        Self { used: 0, max, is_cut: true }
    }

    /// What was taken, in bytes.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Takes room for so many headers; for how many there was room.
    ///
    /// # Errors
    /// `TooLarge` when there is not room for all of them and none may be left out.
    fn take(&mut self, headers: usize) -> Result<usize, BatchError> {
        const EACH: usize = size_of::<(Bytes, Option<Bytes>)>();
        let room = if self.is_cut { headers.min(self.max.saturating_sub(self.used) / EACH) } else { headers };
        self.used += room * EACH;
        if self.is_cut || self.used <= self.max {
            Ok(room)
        } else {
            Err(BatchError::TooLarge { bytes: self.used, max: self.max })
        }
    }
}

fn varint(bytes: &mut Bytes) -> Result<i64, BatchError> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        if !bytes.has_remaining() || shift > 63 {
            return Err(BatchError::Corrupt { what: "varint in a record" });
        }
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
        shift += 7;
    }
}

fn field(bytes: &mut Bytes) -> Result<Option<Bytes>, BatchError> {
    let length = varint(bytes)?;
    if length < 0 {
        return Ok(None);
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > bytes.len() {
        return Err(BatchError::Corrupt { what: "length in a record" });
    }
    Ok(Some(bytes.split_to(length)))
}

/// The next record, with the first of its headers where `memory` has not room for all.
pub(crate) fn record(header: &BatchHeader, bytes: &mut Bytes, memory: &mut HeaderMemory) -> Result<Record, BatchError> {
    let length = varint(bytes)?;
    if length < 0 || length as usize > bytes.len() {
        return Err(BatchError::Corrupt { what: "record length" });
    }
    let mut body = bytes.split_to(length as usize);
    if !body.has_remaining() {
        return Err(BatchError::Corrupt { what: "record length" });
    }
    body.advance(1);
    let timestamp_delta = varint(&mut body)?;
    let offset_delta = varint(&mut body)?;
    let key = field(&mut body)?;
    let value = field(&mut body)?;
    let count = varint(&mut body)?;
    if count < 0 || count as usize > body.len() {
        return Err(BatchError::Corrupt { what: "header count" });
    }
    // Each takes at least two bytes.
    let likely = (count as usize).min(body.len() / 2);
    let kept = memory.take(likely)?;
    let mut headers = Headers::with_capacity(kept);
    for number in 0..count as usize {
        let name = field(&mut body)?.ok_or(BatchError::Corrupt { what: "header name" })?;
        let value = field(&mut body)?;
        if number < kept {
            headers.push((name, value));
        }
    }
    let timestamp =
        if header.append_time() { header.max_timestamp } else { header.base_timestamp.wrapping_add(timestamp_delta) };
    Ok(Record {
        offset: Offset(header.base().0.saturating_add_signed(offset_delta)),
        timestamp,
        key,
        value,
        headers,
        vouched: header.vouched(),
    })
}

/// The first record of a batch, from an offset on, whose timestamp is at least `at`. `None` as well when the batch cannot be read.
pub fn offset_for_timestamp(batch: &[u8], from: Offset, at: Timestamp) -> Option<(Offset, Timestamp)> {
    let mut found = None;
    let looked = scan(batch, UNPACKED_BYTES_MAX, |record| {
        if record.offset >= from && record.timestamp >= at {
            found = Some((record.offset, record.timestamp));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    looked.ok().and(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchBuilder;

    #[test]
    fn what_headers_take_of_memory_counts() {
        let none: (&[u8], Option<&[u8]>) = (b"", None);
        let batch = BatchBuilder::default().record_with_headers(1, None, None, &vec![none; 100_000]).build();
        assert!(batch.len() < 300_000);
        let found = records_within(&batch, 8 << 20).expect("there is room for them");
        assert_eq!(found[0].headers.len(), 100_000);
        assert!((6_400_000..8 << 20).contains(&found[0].memory_bytes()), "{}", found[0].memory_bytes());
        assert!(matches!(records_within(&batch, 4 << 20), Err(BatchError::TooLarge { max, .. }) if max == 4 << 20));
    }
}
