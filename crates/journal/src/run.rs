//! A run: the batches of one log that lie side by side in one chunk. The unit of every index, look-up and
//! checksum below the chunk.

use types::{LogId, Offset, Timestamp};

/// Where the records `base..next` of a log lie in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whose records.
    pub log: LogId,
    /// Offset of the first record.
    pub base: Offset,
    /// Offset after the last record.
    pub next: Offset,
    /// Byte position of the first batch in the segment file.
    pub position: u32,
    /// Length of all batches together, in bytes.
    pub bytes: u32,
    /// CRC-32C of those bytes.
    pub crc: u32,
    /// Number of records.
    pub records: u32,
    /// Largest record timestamp.
    pub max_timestamp: Timestamp,
    /// Wall-clock time of the append, for retention.
    pub append_time: Timestamp,
}
