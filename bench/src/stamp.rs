//! What every message begins with, so that its receipt can be timed and counted.
//!
//! ```text
//! offset  bytes  field
//!      0      8  due time, nanoseconds since 1970, little-endian
//!      8      8  number of the message: the producer's in the upper 16 bits, its own in the lower 48
//!     16      4  CRC-32C of what follows, little-endian; in messages of 24 bytes and more
//! ```
//!
//! Whether every message arrived once at each subscription is told without remembering messages: both sides add up a hash
//! of each number, and equal sums with equal counts mean equal messages.

use std::collections::BTreeMap;

use crate::clock::Nanos;
use crate::workload::MESSAGE_BYTES_MIN;

/// Due time and number of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub due: Nanos,
    pub number: u64,
}

impl Stamp {
    /// The number of a producer's message.
    pub fn number(producer: usize, message: u64) -> u64 {
        (producer as u64) << 48 | (message & ((1 << 48) - 1))
    }

    /// Writes it over the first bytes of a message.
    pub fn write(self, message: &mut [u8]) {
        message[..8].copy_from_slice(&self.due.to_le_bytes());
        message[8..16].copy_from_slice(&self.number.to_le_bytes());
    }

    /// Reads it; absent when the message is too short to be one of ours.
    pub fn read(message: &[u8]) -> Option<Self> {
        let (due, rest) = message.split_first_chunk::<8>()?;
        let (number, _) = rest.split_first_chunk::<8>()?;
        Some(Self { due: u64::from_le_bytes(*due), number: u64::from_le_bytes(*number) })
    }
}

const _: () = assert!(MESSAGE_BYTES_MIN == 16);

/// Where the checksum of a message's content is, and from which length on there is one.
const CHECKSUM_AT: usize = 16;
const CHECKED_MIN: usize = 24;

/// Writes the checksum of a message's content; once for each payload, as the stamp is not part of it.
pub fn seal(message: &mut [u8]) {
    if message.len() >= CHECKED_MIN {
        let sum = checksum(&message[CHECKSUM_AT + 4..]);
        message[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Whether the content is that which was sealed; messages that are too short for a checksum count as such.
pub fn is_intact(message: &[u8]) -> bool {
    let sum = message.get(CHECKSUM_AT..).and_then(<[u8]>::split_first_chunk::<4>);
    message.len() < CHECKED_MIN || sum.is_some_and(|(sum, content)| u32::from_le_bytes(*sum) == checksum(content))
}

fn checksum(content: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, content) as u32
}

/// The messages of one partition or queue, as one consumer sees them: those of each producer come in the order of their numbers.
#[derive(Debug, Default)]
pub struct Lane {
    last: BTreeMap<u16, u64>,
}

impl Lane {
    /// Whether no later message of the same producer came before this one. That the same comes again is told by the fingerprint.
    pub fn is_in_order(&mut self, number: u64) -> bool {
        let last = self.last.entry((number >> 48) as u16).or_default();
        let before = *last;
        *last = before.max(number);
        number >= before
    }
}

/// Which messages there were, whatever their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fingerprint {
    pub messages: u64,
    pub sum: u64,
}

impl Fingerprint {
    /// Counts one message.
    pub fn add(&mut self, number: u64) {
        self.merge(Self::of(number));
    }

    /// That of one message.
    pub fn of(number: u64) -> Self {
        // splitmix64's finaliser: neighbouring numbers become unrelated ones.
        let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self { messages: 1, sum: hash ^ (hash >> 31) }
    }

    /// Those of both.
    pub fn merge(&mut self, other: Self) {
        self.messages = self.messages.saturating_add(other.messages);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Those of this, so many times over.
    pub fn times(self, count: u64) -> Self {
        Self { messages: self.messages * count, sum: self.sum.wrapping_mul(count) }
    }
}

#[cfg(test)]
mod tests;
