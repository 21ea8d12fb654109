//! Transaction markers: control batches of one record that end a transaction in one log.
//!
//! ```text
//! key    i16 version (0), i16 kind: 0 abort, 1 commit
//! value  i16 version (0), i32 coordinator epoch
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use types::Timestamp;

use crate::{BatchBuilder, BatchHeader, HEADER_BYTES};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// Its records do not count.
    Abort,
    /// Its records count.
    Commit,
}

impl Marker {
    /// The control batch that says so of the transaction of a producer.
    pub fn batch(self, producer_id: i64, epoch: i16, coordinator_epoch: i32, now: Timestamp) -> Bytes {
        let mut key = BytesMut::with_capacity(4);
        key.put_i16(0);
        key.put_i16(i16::from(self == Self::Commit));
        let mut value = BytesMut::with_capacity(6);
        value.put_i16(0);
        value.put_i32(coordinator_epoch);
        BatchBuilder::default().producer(producer_id, epoch, -1).control().record(now, Some(&key), Some(&value)).build()
    }

    /// What a batch with this head says; `None` when it is no marker, but records or a control batch of another kind.
    pub fn of(header: &BatchHeader, batch: &[u8]) -> Option<Self> {
        if !header.control() || !header.transactional() {
            return None;
        }
        let mut records = batch.get(HEADER_BYTES..)?;
        // Length, attributes, timestamp delta, offset delta, key length.
        for field in 0..5 {
            if field == 1 {
                records = records.get(1..)?;
            } else {
                records = after_varint(records)?;
            }
        }
        match *records.get(..4)? {
            [_, _, 0, 0] => Some(Self::Abort),
            [_, _, 0, 1] => Some(Self::Commit),
            _ => None,
        }
    }
}

fn after_varint(bytes: &[u8]) -> Option<&[u8]> {
    let last = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    bytes.get(last + 1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back() {
        for marker in [Marker::Abort, Marker::Commit] {
            for now in [0, 1, 1_795_306_066_123] {
                let batch = marker.batch(7, 3, 9, now);
                let header = BatchHeader::parse(&batch).unwrap();
                assert!(header.control() && header.transactional());
                assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (7, 3, -1));
                assert_eq!((header.records_count, header.last_offset_delta), (1, 0));
                assert_eq!(Marker::of(&header, &batch), Some(marker));
            }
        }
    }

    #[test]
    fn other_batches_and_damaged_ones_are_no_markers() {
        let records =
            BatchBuilder::default().producer(7, 0, 0).transactional().record(1, Some(&[0, 0, 0, 1]), None).build();
        assert_eq!(Marker::of(&BatchHeader::parse(&records).unwrap(), &records), None);
        let marker = Marker::Commit.batch(7, 3, 9, 1);
        let header = BatchHeader::parse(&marker).unwrap();
        for length in 0..marker.len() - 8 {
            assert_eq!(Marker::of(&header, &marker[..length]), None, "cut to {length}");
        }
    }
}
