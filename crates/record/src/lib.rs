//! RecordBatch v2, the one stored unit: its layout, checksum, validation, iteration and construction.
//! Knows nothing of logs, files or protocols beyond Kafka's batch format.

mod builder;
mod header;
mod marker;
mod open;
mod records;
mod retain;
mod select;
mod sliced;
mod unpack;
mod validate;
mod writer;

pub use builder::{BatchBuilder, Packing};
pub use header::{
    BatchHeader, Batches, Compression, HEADER_BYTES, set_base_offset, set_leader_epoch, stamp_append_time,
};
pub use marker::Marker;
pub use open::{OpenLimits, Opened, open_records};
pub use records::{Headers, Record, UNPACKED_BYTES_MAX, offset_for_timestamp, records, records_within};
pub use retain::{RecordKey, Retained, emptied, filler, repacked, retain, visit_keys, with_delete_horizon};
pub use select::{Fields, RecordView, Selected, gap_marker, select};
pub use sliced::{SlicedBatch, cut, sliced_batches, whole};
pub use unpack::{Scanned, scan, scan_keys, unpacked_bytes};
pub use validate::{BatchError, validate_produced, without_vouching};
pub use writer::{BatchWriter, HeaderPieces};

/// CRC-32C (Castagnoli), the checksum of record batches.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
