//! What a batch from a producer must fulfil before it is stored.

use bytes::Bytes;

use crate::header::{CRC_FROM, VOUCHED};
use crate::{BatchHeader, crc32c};

/// Where the attributes are, which come first of what the checksum is about.
const ATTRIBUTES: usize = CRC_FROM;

/// Why bytes are not an acceptable batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end too early.
    #[error("batch is cut short: {have} bytes of at least {need}")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// An older or unknown message format.
    #[error("message format {magic} is not supported, only 2")]
    UnsupportedMagic {
        /// The format found.
        magic: i8,
    },
    /// Fields contradict each other.
    #[error("batch is malformed: {what}")]
    Corrupt {
        /// Which field.
        what: &'static str,
    },
    /// The checksum does not match.
    #[error("batch checksum is {got:#010x}, expected {expected:#010x}")]
    Checksum {
        /// In the batch.
        expected: u32,
        /// Of its bytes.
        got: u32,
    },
    /// Not exactly one batch.
    #[error("a partition gets exactly one batch, and {left} bytes follow it")]
    NotOne {
        /// Bytes behind the first batch.
        left: usize,
    },
    /// A legal format that a producer may not send.
    #[error("batch is invalid: {what}")]
    Invalid {
        /// What is not allowed.
        what: &'static str,
    },
    /// Larger than the topic takes.
    #[error("batch of {bytes} bytes is larger than the {max} bytes allowed")]
    TooLarge {
        /// Size of the batch.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The codec number stands for none.
    #[error("unknown compression codec")]
    UnknownCompression,
}

/// Checks what a producer sent for one partition: exactly one batch, whole, unharmed and allowed.
///
/// # Errors
/// See [`BatchError`]; `Corrupt` and `Checksum` mean that bytes were damaged on the way.
pub fn validate_produced(bytes: &[u8], max_bytes: usize) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(bytes)?;
    let total = header.total_bytes();
    if total > bytes.len() {
        return Err(BatchError::Truncated { need: total, have: bytes.len() });
    }
    if total < bytes.len() {
        return Err(BatchError::NotOne { left: bytes.len() - total });
    }
    if total > max_bytes {
        return Err(BatchError::TooLarge { bytes: total, max: max_bytes });
    }
    let got = crc32c(&bytes[CRC_FROM..]);
    if got != header.crc {
        return Err(BatchError::Checksum { expected: header.crc, got });
    }
    check_fields(&header)?;
    Ok(header)
}

/// What a producer sent without the broker's bit, which Kafka leaves unused: what is set there is passed over, as Kafka does. `None`: it is not set, or the
/// bytes are no unharmed batch.
pub fn without_vouching(bytes: &[u8]) -> Option<Bytes> {
    // One look at one byte is all that other batches cost.
    if bytes.get(ATTRIBUTES).is_none_or(|first| i16::from_be_bytes([*first, 0]) & VOUCHED == 0) {
        return None;
    }
    let header = BatchHeader::parse(bytes).ok().filter(|header| header.total_bytes() == bytes.len())?;
    if crc32c(&bytes[CRC_FROM..]) != header.crc {
        return None;
    }
    let mut batch = bytes.to_vec();
    batch[ATTRIBUTES..ATTRIBUTES + 2].copy_from_slice(&(header.attributes & !VOUCHED).to_be_bytes());
    let crc = crc32c(&batch[CRC_FROM..]);
    batch[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    Some(batch.into())
}

fn check_fields(header: &BatchHeader) -> Result<(), BatchError> {
    if header.compression().is_none() {
        return Err(BatchError::UnknownCompression);
    }
    if header.control() {
        return Err(BatchError::Invalid { what: "control batches are not for clients" });
    }
    if header.vouched() {
        return Err(BatchError::Invalid { what: "attribute bit 14 is the broker's" });
    }
    if header.records_count < 1 || header.last_offset_delta != header.records_count - 1 {
        return Err(BatchError::Invalid { what: "record count does not fit the offsets" });
    }
    if header.idempotent() && (header.producer_epoch < 0 || header.base_sequence < 0) {
        return Err(BatchError::Invalid { what: "idempotent producer without epoch or sequence" });
    }
    if header.transactional() && !header.idempotent() {
        return Err(BatchError::Invalid { what: "transactional batch without a producer id" });
    }
    Ok(())
}
