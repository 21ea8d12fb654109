//! Makes batches: for gateways of other protocols, the simulator and tests.

use std::io::Write;

use bytes::{BufMut, Bytes, BytesMut};
use types::Timestamp;

use crate::header::{CONTROL, CRC_FROM, HEADER_BYTES, TRANSACTIONAL, VOUCHED};
use crate::{Compression, crc32c};

/// A batch in the making. Records get offsets from 0 on.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    records: BytesMut,
    count: i32,
    base_timestamp: Timestamp,
    max_timestamp: Timestamp,
    producer: (i64, i16, i32),
    compression: Compression,
    /// Attributes besides the codec.
    flags: i16,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self {
            records: BytesMut::new(),
            count: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            producer: (-1, -1, -1),
            compression: Compression::None,
            flags: 0,
        }
    }
}

pub(crate) fn put_varint(into: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        into.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    into.put_u8(rest as u8);
}

fn put_field(into: &mut BytesMut, field: Option<&[u8]>) {
    put_varint(into, field.map_or(-1, |field| field.len() as i64));
    into.put_slice(field.unwrap_or_default());
}

/// How records are packed: the codec, and how hard it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The codec.
    pub codec: Compression,
    /// Gzip 0 to 9, -1 for its default; zstd -131072 to 22. The others have one level.
    pub level: i32,
}

impl Packing {
    /// As fast as the codec can.
    pub fn fast(codec: Compression) -> Self {
        Self { codec, level: 1 }
    }
}

/// Records as a batch of this codec carries them.
pub(crate) fn pack(packing: Packing, records: &[u8]) -> Vec<u8> {
    const NO_FAILURE: &str = "compressing into memory does not fail";
    match packing.codec {
        Compression::None => records.to_vec(),
        Compression::Gzip => {
            let level = u32::try_from(packing.level)
                .map_or(flate2::Compression::default(), |level| flate2::Compression::new(level.min(9)));
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(records).expect(NO_FAILURE);
            encoder.finish().expect(NO_FAILURE)
        }
        Compression::Snappy => pack_snappy(records),
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(records).expect(NO_FAILURE);
            encoder.finish().expect(NO_FAILURE)
        }
        // Of a length that is known, so that a high level asks for no more memory than the records are worth.
        Compression::Zstd => zstd::bulk::compress(records, packing.level).expect(NO_FAILURE),
    }
}

/// In Java's framing, which every client reads: a head of magic, version and compatible version, then blocks with their length.
fn pack_snappy(records: &[u8]) -> Vec<u8> {
    const BLOCK_BYTES: usize = 32 << 10;
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for block in records.chunks(BLOCK_BYTES) {
        let packed = snap::raw::Encoder::new().compress_vec(block).expect("a block is not too long");
        out.extend_from_slice(&(packed.len() as u32).to_be_bytes());
        out.extend_from_slice(&packed);
    }
    out
}

impl BatchBuilder {
    /// Sets the idempotent producer: id, epoch, sequence of the first record.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, sequence: i32) -> Self {
        self.producer = (id, epoch, sequence);
        self
    }

    /// Sets the codec.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Makes it part of a transaction of its producer.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.flags |= TRANSACTIONAL;
        self
    }

    /// Marks it as one that the broker vouches for.
    #[must_use]
    pub fn vouched(mut self) -> Self {
        self.flags |= VOUCHED;
        self
    }

    /// Makes it a control batch of a transaction.
    #[must_use]
    pub(crate) fn control(mut self) -> Self {
        self.flags |= TRANSACTIONAL | CONTROL;
        self
    }

    /// Adds a record.
    #[must_use]
    pub fn record(self, timestamp: Timestamp, key: Option<&[u8]>, value: Option<&[u8]>) -> Self {
        self.record_with_headers(timestamp, key, value, &[])
    }

    /// Adds a record with headers.
    #[must_use]
    pub fn record_with_headers(
        mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Self {
        if self.count == 0 {
            (self.base_timestamp, self.max_timestamp) = (timestamp, timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let mut body = BytesMut::new();
        body.put_u8(0);
        put_varint(&mut body, timestamp - self.base_timestamp);
        put_varint(&mut body, i64::from(self.count));
        put_field(&mut body, key);
        put_field(&mut body, value);
        put_varint(&mut body, headers.len() as i64);
        for (name, value) in headers {
            put_field(&mut body, Some(name));
            put_field(&mut body, *value);
        }
        put_varint(&mut self.records, body.len() as i64);
        self.records.extend_from_slice(&body);
        self.count += 1;
        self
    }

    /// The batch, as a producer would send it.
    ///
    /// # Panics
    /// Without any record.
    pub fn build(self) -> Bytes {
        assert!(self.count > 0, "a batch holds at least one record");
        let packed = pack(Packing::fast(self.compression), &self.records);
        let mut out = BytesMut::with_capacity(HEADER_BYTES + packed.len());
        out.put_i64(0);
        out.put_i32((HEADER_BYTES - 12 + packed.len()) as i32);
        out.put_i32(-1);
        out.put_i8(2);
        out.put_u32(0);
        out.put_i16(self.compression.code() | self.flags);
        out.put_i32(self.count - 1);
        out.put_i64(self.base_timestamp);
        out.put_i64(self.max_timestamp);
        out.put_i64(self.producer.0);
        out.put_i16(self.producer.1);
        out.put_i32(self.producer.2);
        out.put_i32(self.count);
        out.put_slice(&packed);
        let crc = crc32c(&out[CRC_FROM..]);
        out[17..21].copy_from_slice(&crc.to_be_bytes());
        out.freeze()
    }
}
