//! The fixed head of a record batch, big-endian (Kafka protocol, record batch format v2).
//!
//! ```text
//!   0 i64 base offset          (written by the broker, outside the CRC)
//!   8 i32 batch length         (bytes after this field)
//!  12 i32 leader epoch         (written by the broker, outside the CRC)
//!  16 i8  magic, 2
//!  17 u32 CRC-32C of bytes 21..
//!  21 i16 attributes: 0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon, 14 vouched for (ours)
//!  23 i32 last offset delta
//!  27 i64 base timestamp
//!  35 i64 max timestamp
//!  43 i64 producer id, -1 none
//!  51 i16 producer epoch
//!  53 i32 base sequence
//!  57 i32 record count
//!  61     records
//! ```
//!
//! Bit 14 is none of Kafka's, whose clients look at the bits that they know. It says that the broker has written the batch and vouches for what its
//! records say of who sent them and by which way they came. No producer may set it.

use types::{Offset, Timestamp};

use crate::{BatchError, crc32c};

/// Length of the head of a batch.
pub const HEADER_BYTES: usize = 61;
/// Bytes before the batch length starts to count.
pub(crate) const LENGTH_PREFIX: usize = 12;
/// Where the checksummed part begins.
pub(crate) const CRC_FROM: usize = 21;

/// Attribute bits of the codec.
pub(crate) const CODEC: i16 = 7;
pub(crate) const APPEND_TIME: i16 = 1 << 3;
pub(crate) const TRANSACTIONAL: i16 = 1 << 4;
pub(crate) const CONTROL: i16 = 1 << 5;
pub(crate) const DELETE_HORIZON: i16 = 1 << 6;
pub(crate) const VOUCHED: i16 = 1 << 14;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip.
    Gzip,
    /// Snappy, raw or in Java's framing.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// Its number in a batch's attributes.
    pub(crate) fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }
}

/// The decoded head of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the format's, described above")]
pub struct BatchHeader {
    pub base_offset: i64,
    pub batch_length: i32,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records_count: i32,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl BatchHeader {
    /// Reads the head; checks that it is there, its magic, and that its length can hold it. Not the CRC.
    ///
    /// # Errors
    /// `Truncated`, `UnsupportedMagic`, `Corrupt`, `Invalid`.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        if bytes.len() > 16 && !(2..=2).contains(&(bytes[16] as i8)) {
            return Err(BatchError::UnsupportedMagic { magic: bytes[16] as i8 });
        }
        if bytes.len() < HEADER_BYTES {
            return Err(BatchError::Truncated { need: HEADER_BYTES, have: bytes.len() });
        }
        let header = Self {
            base_offset: i64::from_be_bytes(field(bytes, 0)),
            batch_length: i32::from_be_bytes(field(bytes, 8)),
            leader_epoch: i32::from_be_bytes(field(bytes, 12)),
            magic: bytes[16] as i8,
            crc: u32::from_be_bytes(field(bytes, 17)),
            attributes: i16::from_be_bytes(field(bytes, 21)),
            last_offset_delta: i32::from_be_bytes(field(bytes, 23)),
            base_timestamp: i64::from_be_bytes(field(bytes, 27)),
            max_timestamp: i64::from_be_bytes(field(bytes, 35)),
            producer_id: i64::from_be_bytes(field(bytes, 43)),
            producer_epoch: i16::from_be_bytes(field(bytes, 51)),
            base_sequence: i32::from_be_bytes(field(bytes, 53)),
            records_count: i32::from_be_bytes(field(bytes, 57)),
        };
        if header.batch_length < (HEADER_BYTES - LENGTH_PREFIX) as i32 {
            return Err(BatchError::Corrupt { what: "batch length" });
        }
        if header.last_offset_delta < 0 {
            return Err(BatchError::Invalid { what: "last offset delta is negative" });
        }
        Ok(header)
    }

    /// The whole batch, in bytes.
    pub fn total_bytes(&self) -> usize {
        LENGTH_PREFIX + self.batch_length as usize
    }

    /// The codec; `None` when the number stands for none.
    pub fn compression(&self) -> Option<Compression> {
        Some(match self.attributes & CODEC {
            0 => Compression::None,
            1 => Compression::Gzip,
            2 => Compression::Snappy,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            _ => return None,
        })
    }

    /// Timestamps were set by a broker.
    pub fn append_time(&self) -> bool {
        self.attributes & APPEND_TIME != 0
    }

    /// Part of a transaction.
    pub fn transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Holds markers instead of records.
    pub fn control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// The broker has written it for a client of a protocol whose messages say who sent them.
    pub fn vouched(&self) -> bool {
        self.attributes & VOUCHED != 0
    }

    /// When its tombstones, or it as a marker, may go; compaction has set it in place of the base timestamp.
    pub fn delete_horizon(&self) -> Option<Timestamp> {
        (self.attributes & DELETE_HORIZON != 0).then_some(self.base_timestamp)
    }

    /// Sent by an idempotent producer.
    pub fn idempotent(&self) -> bool {
        self.producer_id >= 0
    }

    /// The sequence number of the last record; wraps from `i32::MAX` to 0.
    pub fn last_sequence(&self) -> i32 {
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        if last > i64::from(i32::MAX) { (last - i64::from(i32::MAX) - 1) as i32 } else { last as i32 }
    }

    /// Offset of the first record, as stored.
    pub fn base(&self) -> Offset {
        Offset(self.base_offset.max(0) as u64)
    }

    /// Offset after the last record, as stored.
    pub fn next(&self) -> Offset {
        self.base().plus(self.last_offset_delta as u64 + 1)
    }
}

/// Writes the base offset of a batch.
pub fn set_base_offset(batch: &mut [u8], offset: Offset) {
    batch[..8].copy_from_slice(&(offset.0 as i64).to_be_bytes());
}

/// Writes the leader epoch of a batch.
pub fn set_leader_epoch(batch: &mut [u8], epoch: u32) {
    batch[12..16].copy_from_slice(&(epoch as i32).to_be_bytes());
}

/// Marks a batch as stamped by the broker at `now`: sets the attribute and the max timestamp and renews the CRC.
pub fn stamp_append_time(batch: &mut [u8], now: Timestamp) {
    let attributes = i16::from_be_bytes(field(batch, 21)) | APPEND_TIME;
    batch[21..23].copy_from_slice(&attributes.to_be_bytes());
    batch[35..43].copy_from_slice(&now.to_be_bytes());
    let crc = crc32c(&batch[CRC_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Walks batches that lie back to back, by their heads only.
pub struct Batches<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Batches<'a> {
    /// Over `bytes`, which begins with a batch.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl Iterator for Batches<'_> {
    /// Position of the batch in the bytes, and its head.
    type Item = Result<(usize, BatchHeader), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let rest = &self.bytes[self.at..];
        let header = match BatchHeader::parse(rest) {
            Ok(header) if header.total_bytes() <= rest.len() => header,
            outcome => {
                self.at = self.bytes.len();
                return Some(Err(outcome.err().unwrap_or(BatchError::Truncated { need: 0, have: rest.len() })));
            }
        };
        let position = self.at;
        self.at += header.total_bytes();
        Some(Ok((position, header)))
    }
}
