//! Batches made of batches. With some of their records taken out, for compaction: offsets, producer, sequence and codec stay what they
//! were, and a batch covers the offsets that it covered before. And in the codec that a topic asks for.
//!
//! A batch with tombstones or markers that are to go some day says when: its delete horizon stands in place of the base
//! timestamp (attribute bit 6), and the records' timestamps count from there.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use types::{Offset, Timestamp};

use crate::builder::{Packing, pack, put_varint};
use crate::header::{APPEND_TIME, CODEC, CONTROL, CRC_FROM, DELETE_HORIZON, HEADER_BYTES, TRANSACTIONAL};
use crate::records::UNPACKED_BYTES_MAX;
use crate::unpack::{opened, scan_keys, unpack};
use crate::{BatchError, BatchHeader, Compression, crc32c};

/// See [`retain`].
const RETAIN_BYTES_MAX: usize = 64 << 20;

/// What compaction looks at in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKey<'a> {
    /// Its position in the log.
    pub offset: Offset,
    /// The key, if there is one.
    pub key: Option<&'a [u8]>,
    /// It has no value.
    pub tombstone: bool,
}

/// What is left of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retained {
    /// The batch as it was.
    All,
    /// Another one.
    Changed {
        /// In its place.
        batch: Bytes,
        /// Records that were taken out.
        removed: u32,
        /// It holds a tombstone, so that it says when that may go.
        horizon: Option<Timestamp>,
    },
    /// No record.
    Nothing,
}

/// Bytes of the records of one batch, one at a time.
pub(crate) struct Walk<'a> {
    header: BatchHeader,
    rest: &'a [u8],
    left: usize,
}

/// One record: what it is, and its bytes with and without the length, attributes and timestamp in front.
pub(crate) struct Raw<'a> {
    pub key: RecordKey<'a>,
    whole: &'a [u8],
    attributes: u8,
    pub timestamp_delta: i64,
    behind: &'a [u8],
    /// Behind the value.
    pub headers: &'a [u8],
}

pub(crate) fn varint(bytes: &mut &[u8]) -> Result<i64, BatchError> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let Some((byte, rest)) = bytes.split_first().filter(|_| shift <= 63) else {
            return Err(BatchError::Corrupt { what: "varint in a record" });
        };
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
        shift += 7;
    }
}

pub(crate) fn field<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, BatchError> {
    let length = varint(bytes)?;
    if length < 0 {
        return Ok(None);
    }
    let corrupt = BatchError::Corrupt { what: "length in a record" };
    let (field, rest) =
        usize::try_from(length).ok().and_then(|length| bytes.split_at_checked(length)).ok_or(corrupt)?;
    *bytes = rest;
    Ok(Some(field))
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Raw<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let record = self.record();
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

impl<'a> Walk<'a> {
    pub fn new(header: BatchHeader, unpacked: &'a [u8]) -> Result<Self, BatchError> {
        let left = usize::try_from(header.records_count).map_err(|_| BatchError::Corrupt { what: "record count" })?;
        Ok(Self { header, rest: unpacked, left })
    }

    fn record(&mut self) -> Result<Raw<'a>, BatchError> {
        let corrupt = || BatchError::Corrupt { what: "record length" };
        let start = self.rest;
        let body = field(&mut self.rest)?.ok_or_else(corrupt)?;
        let whole = &start[..start.len() - self.rest.len()];
        let (attributes, mut body) = body.split_first().ok_or_else(corrupt)?;
        let timestamp_delta = varint(&mut body)?;
        let behind = body;
        let delta = varint(&mut body)?;
        if !(0..=i64::from(self.header.last_offset_delta)).contains(&delta) {
            return Err(BatchError::Corrupt { what: "offset of a record" });
        }
        let offset = self.header.base().plus(delta as u64);
        let key = field(&mut body)?;
        let tombstone = field(&mut body)?.is_none();
        let key = RecordKey { offset, key, tombstone };
        Ok(Raw { key, whole, attributes: *attributes, timestamp_delta, behind, headers: body })
    }
}

pub(crate) fn unpacked(batch: &[u8], limit: usize) -> Result<(BatchHeader, Cow<'_, [u8]>), BatchError> {
    let (header, codec, packed) = opened(batch)?;
    let records = match codec {
        Compression::None => Cow::Borrowed(packed),
        _ if header.records_count == 0 => Cow::Borrowed(&[][..]),
        codec => Cow::Owned(unpack(codec, packed, limit)?),
    };
    Ok((header, records))
}

/// Shows offset and key of each record of a batch.
///
/// # Errors
/// `Corrupt`, `UnknownCompression`, `TooLarge` beyond [`crate::UNPACKED_BYTES_MAX`]; the batch's checksum is not looked at.
pub fn visit_keys(batch: &[u8], mut visit: impl FnMut(&RecordKey<'_>)) -> Result<(), BatchError> {
    let header = BatchHeader::parse(batch)?;
    if header.records_count == 0 {
        return Ok(());
    }
    let (offsets, mut inside) = (header.base()..header.next(), true);
    scan_keys(batch, UNPACKED_BYTES_MAX, |record, key| {
        inside &= offsets.contains(&record.offset);
        if inside {
            visit(&RecordKey { offset: record.offset, key: record.keyed.then_some(key), tombstone: record.tombstone });
        }
    })?;
    if inside { Ok(()) } else { Err(BatchError::Corrupt { what: "offset of a record" }) }
}

/// Takes out of a batch the records that `keep` does not want. A batch that keeps a tombstone and has no delete horizon yet gets
/// `horizon`. One that unpacks to more than 64 MiB stays as it is: it has to be in memory whole to be made anew.
///
/// # Errors
/// As [`visit_keys`].
pub fn retain(
    batch: &[u8],
    horizon: Timestamp,
    mut keep: impl FnMut(&RecordKey<'_>) -> bool,
) -> Result<Retained, BatchError> {
    let (header, records) = match unpacked(batch, RETAIN_BYTES_MAX) {
        Err(BatchError::TooLarge { .. }) => return Ok(Retained::All),
        unpacked => unpacked?,
    };
    let (mut kept, mut tombstones) = (Vec::new(), false);
    for record in Walk::new(header, &records)? {
        let record = record?;
        if keep(&record.key) {
            tombstones |= record.key.tombstone;
            kept.push(record);
        }
    }
    let removed = (header.records_count as usize - kept.len()) as u32;
    let horizon = (tombstones && header.delete_horizon().is_none()).then_some(horizon);
    if kept.is_empty() {
        return Ok(Retained::Nothing);
    }
    if removed == 0 && horizon.is_none() {
        return Ok(Retained::All);
    }
    let batch = rebuilt(&header, &kept, horizon)?;
    Ok(Retained::Changed { batch, removed, horizon: horizon.or(header.delete_horizon().filter(|_| tombstones)) })
}

/// A batch with the same records that says when it may go: for markers.
///
/// # Errors
/// As [`visit_keys`].
pub fn with_delete_horizon(batch: &[u8], horizon: Timestamp) -> Result<Bytes, BatchError> {
    let (header, records) = unpacked(batch, UNPACKED_BYTES_MAX)?;
    let all: Vec<Raw<'_>> = Walk::new(header, &records)?.collect::<Result<_, _>>()?;
    rebuilt(&header, &all, Some(horizon))
}

/// A batch without records that covers the same offsets, with the same producer and sequence.
///
/// # Errors
/// When it is no batch.
pub fn emptied(batch: &[u8]) -> Result<Bytes, BatchError> {
    let header = BatchHeader::parse(batch)?;
    let attributes = header.attributes & (APPEND_TIME | TRANSACTIONAL | CONTROL);
    Ok(assembled(&header, attributes, header.max_timestamp, header.max_timestamp, 0, &[]))
}

/// A batch without records that stands for the offsets from `base` to `next`, of no producer: as compaction leaves it where records were.
/// At most `i32::MAX` offsets.
pub fn filler(base: Offset, next: Offset, time: Timestamp) -> Bytes {
    let last_offset_delta = i32::try_from(next.since(base)).expect("not more than a batch can have") - 1;
    let header = BatchHeader {
        base_offset: base.0 as i64,
        batch_length: 0,
        leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta,
        base_timestamp: time,
        max_timestamp: time,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count: 0,
    };
    assembled(&header, 0, time, time, 0, &[])
}

/// The same records, offsets, timestamps and producer in another codec; `None` when it is that codec already.
///
/// # Errors
/// As [`visit_keys`]; `TooLarge` when the batch would have more than `bytes_max`, or unpacks to more than `unpacked_max`.
pub fn repacked(
    batch: &[u8],
    packing: Packing,
    bytes_max: usize,
    unpacked_max: usize,
) -> Result<Option<Bytes>, BatchError> {
    if BatchHeader::parse(batch)?.compression() == Some(packing.codec) {
        return Ok(None);
    }
    // What stays unpacked need not be unpacked further than it may become large.
    let limit = if packing.codec == Compression::None { bytes_max.min(unpacked_max) } else { unpacked_max };
    let (header, records) = unpacked(batch, limit)?;
    let mut walk = Walk::new(header, &records)?;
    for (place, record) in (header.base_offset..).zip(&mut walk) {
        if record?.key.offset.0 as i64 != place {
            return Err(BatchError::Invalid { what: "records are not numbered from 0 on" });
        }
    }
    if !walk.rest.is_empty() {
        return Err(BatchError::Invalid { what: "more records than it counts" });
    }
    let attributes = header.attributes & !CODEC | packing.codec.code();
    let batch = assembled(
        &header,
        attributes,
        header.base_timestamp,
        header.max_timestamp,
        header.records_count,
        &pack(packing, &records),
    );
    if batch.len() > bytes_max {
        return Err(BatchError::TooLarge { bytes: batch.len(), max: bytes_max });
    }
    Ok(Some(batch))
}

pub(crate) fn rebuilt(header: &BatchHeader, kept: &[Raw<'_>], horizon: Option<Timestamp>) -> Result<Bytes, BatchError> {
    let mut records = BytesMut::with_capacity(kept.iter().map(|record| record.whole.len() + 10).sum());
    let timestamp = |record: &Raw<'_>| header.base_timestamp.wrapping_add(record.timestamp_delta);
    let base_timestamp = horizon.unwrap_or(header.base_timestamp);
    for record in kept {
        if horizon.is_none() {
            records.put_slice(record.whole);
            continue;
        }
        let mut front = BytesMut::new();
        front.put_u8(record.attributes);
        put_varint(&mut front, timestamp(record).wrapping_sub(base_timestamp));
        put_varint(&mut records, (front.len() + record.behind.len()) as i64);
        records.put_slice(&front);
        records.put_slice(record.behind);
    }
    let max_timestamp = if header.append_time() {
        header.max_timestamp
    } else {
        kept.iter().map(timestamp).max().unwrap_or(header.max_timestamp)
    };
    let codec = header.compression().ok_or(BatchError::UnknownCompression)?;
    let attributes = header.attributes | if horizon.is_some() { DELETE_HORIZON } else { 0 };
    let packed = pack(Packing::fast(codec), &records);
    Ok(assembled(header, attributes, base_timestamp, max_timestamp, kept.len() as i32, &packed))
}

fn assembled(
    header: &BatchHeader,
    attributes: i16,
    base: Timestamp,
    max: Timestamp,
    count: i32,
    packed: &[u8],
) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_BYTES + packed.len());
    out.put_i64(header.base_offset);
    out.put_i32((HEADER_BYTES - 12 + packed.len()) as i32);
    out.put_i32(header.leader_epoch);
    out.put_i8(2);
    out.put_u32(0);
    out.put_i16(attributes);
    out.put_i32(header.last_offset_delta);
    out.put_i64(base);
    out.put_i64(max);
    out.put_i64(header.producer_id);
    out.put_i16(header.producer_epoch);
    out.put_i32(header.base_sequence);
    out.put_i32(count);
    out.put_slice(packed);
    let crc = crc32c(&out[CRC_FROM..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    out.freeze()
}

#[cfg(test)]
mod tests;
