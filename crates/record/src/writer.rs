//! Writes an uncompressed batch straight into the memory that is appended: for gateways that make a batch of the messages that came
//! together. Each byte is copied once. The broker vouches for these batches: what their records say of who sent them, it has checked.

use bytes::{BufMut, Bytes, BytesMut};
use types::Timestamp;

use crate::builder::put_varint;
use crate::crc32c;
use crate::header::{CRC_FROM, HEADER_BYTES, VOUCHED};

/// A batch being written. Records get offsets from 0 on.
#[derive(Debug)]
pub struct BatchWriter {
    out: BytesMut,
    count: i32,
    base_timestamp: Timestamp,
    max_timestamp: Timestamp,
}

/// A header of a record: its name, and its value in pieces.
pub type HeaderPieces<'a> = (&'a [u8], &'a [&'a [u8]]);

/// Bytes of a number as [`put_varint`] writes it.
fn varint_bytes(value: i64) -> usize {
    let bits = 64 - (((value << 1) ^ (value >> 63)) as u64).leading_zeros() as usize;
    bits.div_ceil(7).max(1)
}

fn pieces_bytes<P: AsRef<[u8]>>(pieces: &[P]) -> usize {
    pieces.iter().map(|piece| piece.as_ref().len()).sum()
}

fn field_bytes(bytes: usize) -> usize {
    varint_bytes(bytes as i64) + bytes
}

impl BatchWriter {
    /// With room for so many bytes of records.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut out = BytesMut::with_capacity(HEADER_BYTES + bytes);
        out.put_bytes(0, HEADER_BYTES);
        Self { out, count: 0, base_timestamp: 0, max_timestamp: 0 }
    }

    /// Records so far.
    pub fn count(&self) -> u32 {
        self.count as u32
    }

    /// Bytes so far, with the batch's own header.
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Adds a record without a key. `timestamp` is in milliseconds since 1970.
    pub fn record<P: AsRef<[u8]>>(&mut self, timestamp: Timestamp, value: &[P], headers: &[HeaderPieces<'_>]) {
        self.record_with_key(timestamp, None, value, headers);
    }

    /// The same, maybe with a key.
    pub fn record_with_key<P: AsRef<[u8]>>(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: &[P],
        headers: &[HeaderPieces<'_>],
    ) {
        if self.count == 0 {
            (self.base_timestamp, self.max_timestamp) = (timestamp, timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let (since_base, number, value_bytes) =
            (timestamp - self.base_timestamp, i64::from(self.count), pieces_bytes(value));
        let headers_bytes: usize =
            headers.iter().map(|(name, value)| field_bytes(name.len()) + field_bytes(pieces_bytes(value))).sum();
        let key_bytes = key.map_or(1, |key| field_bytes(key.len()));
        let bytes = 1
            + varint_bytes(since_base)
            + varint_bytes(number)
            + key_bytes
            + field_bytes(value_bytes)
            + varint_bytes(headers.len() as i64)
            + headers_bytes;
        let out = &mut self.out;
        out.reserve(bytes + varint_bytes(bytes as i64));
        put_varint(out, bytes as i64);
        out.put_u8(0);
        put_varint(out, since_base);
        put_varint(out, number);
        put_varint(out, key.map_or(-1, |key| key.len() as i64));
        out.put_slice(key.unwrap_or_default());
        put_varint(out, value_bytes as i64);
        value.iter().for_each(|piece| out.put_slice(piece.as_ref()));
        put_varint(out, headers.len() as i64);
        for (name, value) in headers {
            put_varint(out, name.len() as i64);
            out.put_slice(name);
            put_varint(out, pieces_bytes(value) as i64);
            value.iter().for_each(|piece| out.put_slice(piece));
        }
        self.count += 1;
    }

    /// The batch: as a producer would send it, but for the mark.
    ///
    /// # Panics
    /// Without any record.
    pub fn finish(self) -> Bytes {
        assert!(self.count > 0, "a batch holds at least one record");
        let mut out = self.out;
        let bytes = out.len();
        let mut head = &mut out[..HEADER_BYTES];
        head.put_i64(0);
        head.put_i32((bytes - 12) as i32);
        head.put_i32(-1);
        head.put_i8(2);
        head.put_u32(0);
        head.put_i16(VOUCHED);
        head.put_i32(self.count - 1);
        head.put_i64(self.base_timestamp);
        head.put_i64(self.max_timestamp);
        head.put_i64(-1);
        head.put_i16(-1);
        head.put_i32(-1);
        head.put_i32(self.count);
        let crc = crc32c(&out[CRC_FROM..]);
        out[17..21].copy_from_slice(&crc.to_be_bytes());
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, BatchError, records, validate_produced};

    /// Timestamp, key, value and headers of a record.
    type Case<'a> = (i64, Option<&'a [u8]>, Vec<&'a [u8]>, Vec<HeaderPieces<'a>>);

    #[test]
    fn it_writes_what_the_builder_builds() {
        let cases: [Case<'_>; 4] = [
            (1_700_000_000_000, Some(b"key"), vec![b"one", b" two"], vec![(b"a", &[b"x", b"yz"]), (b"", &[])]),
            (1_700_000_000_500, None, vec![], vec![]),
            (1_699_999_999_000, Some(b""), vec![&[7; 200]], vec![(b"name", &[&[1; 100]])]),
            (1_700_000_100_000, Some(&[5; 300]), vec![&[9; 20_000]], vec![]),
        ];
        let (mut writer, mut builder) = (BatchWriter::with_capacity(10), BatchBuilder::default());
        for (at, key, value, headers) in &cases {
            writer.record_with_key(*at, *key, value, headers);
            let joined: Vec<(&[u8], Vec<u8>)> = headers.iter().map(|(name, value)| (*name, value.concat())).collect();
            let headers: Vec<(&[u8], Option<&[u8]>)> =
                joined.iter().map(|(name, value)| (*name, Some(&value[..]))).collect();
            builder = builder.record_with_headers(*at, *key, Some(&value.concat()), &headers);
        }
        assert_eq!(writer.count(), 4);
        let written = writer.finish();
        assert_eq!(written, builder.vouched().build());
        assert!(records(&written).expect("readable").iter().all(|record| record.vouched));
        assert!(
            matches!(validate_produced(&written, 1 << 20), Err(BatchError::Invalid { .. })),
            "no producer may send such a batch"
        );
    }

    #[test]
    fn lengths_of_numbers_are_those_that_are_written() {
        for shift in 0..63 {
            for value in [1i64 << shift, (1 << shift) - 1, -(1 << shift), -(1 << shift) - 1] {
                let mut out = BytesMut::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_bytes(value), "{value}");
            }
        }
    }
}
