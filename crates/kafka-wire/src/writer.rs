//! Puts messages together: small values are gathered in a buffer, record data is passed on as slices.

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::{Records, Str};

/// Slices from this size on are passed on, smaller ones copied.
const SHARE_BYTES: usize = 4096;

/// A message in the making.
#[derive(Debug, Default)]
pub struct Writer {
    done: Vec<Bytes>,
    done_bytes: usize,
    open: BytesMut,
}

impl Writer {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empty, with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { open: BytesMut::with_capacity(bytes), ..Self::default() }
    }

    pub(crate) fn nested(fill: impl FnOnce(&mut Self)) -> Self {
        let mut writer = Self::new();
        fill(&mut writer);
        writer
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.done_bytes + self.open.len()
    }

    /// Nothing so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    pub fn finish(mut self) -> Vec<Bytes> {
        self.close();
        self.done
    }

    /// The pieces behind a four-byte length.
    pub fn finish_frame(mut self) -> Vec<Bytes> {
        self.close();
        let mut prefix = BytesMut::with_capacity(4);
        prefix.put_u32(self.done_bytes as u32);
        // Small answers leave in one piece.
        if let [one] = self.done.as_slice()
            && one.len() < SHARE_BYTES
        {
            prefix.extend_from_slice(one);
            return vec![prefix.freeze()];
        }
        self.done.insert(0, prefix.freeze());
        self.done
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.done_bytes += self.open.len();
            self.done.push(self.open.split().freeze());
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        for piece in other.finish() {
            self.share(&piece);
        }
    }

    fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_BYTES {
            self.open.extend_from_slice(bytes);
        } else {
            self.close();
            self.done_bytes += bytes.len();
            self.done.push(bytes.clone());
        }
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
    }

    /// One byte.
    pub fn int8(&mut self, value: i8) {
        self.open.put_i8(value);
    }
    /// One byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.open.put_u8(u8::from(value));
    }
    /// Big-endian.
    pub fn int16(&mut self, value: i16) {
        self.open.put_i16(value);
    }
    /// Big-endian.
    pub fn uint16(&mut self, value: u16) {
        self.open.put_u16(value);
    }
    /// Big-endian.
    pub fn int32(&mut self, value: i32) {
        self.open.put_i32(value);
    }
    /// Big-endian.
    pub fn uint32(&mut self, value: u32) {
        self.open.put_u32(value);
    }
    /// Big-endian.
    pub fn int64(&mut self, value: i64) {
        self.open.put_i64(value);
    }
    /// IEEE 754, big-endian.
    pub fn float64(&mut self, value: f64) {
        self.open.put_f64(value);
    }
    /// Sixteen bytes.
    pub fn uuid(&mut self, value: Uuid) {
        self.open.put_slice(value.as_bytes());
    }

    /// Seven bits a byte, low first.
    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.open.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.open.put_u8(value as u8);
    }

    fn length(&mut self, flexible: bool, short: bool, length: Option<usize>) {
        if flexible {
            self.uvarint(length.map_or(0, |length| length as u32 + 1));
        } else if short {
            self.int16(length.map_or(-1, |length| i16::try_from(length).expect("strings are shorter than 32 KiB")));
        } else {
            self.int32(length.map_or(-1, |length| length as i32));
        }
    }

    /// A string or null.
    pub fn string(&mut self, flexible: bool, value: Option<&Str>) {
        self.length(flexible, true, value.map(|value| value.len()));
        self.raw(value.map_or(&[], |value| value.as_bytes()));
    }

    /// Bytes or null.
    pub fn bytes(&mut self, flexible: bool, value: Option<&Bytes>) {
        self.length(flexible, false, value.map(Bytes::len));
        if let Some(value) = value {
            self.share(value);
        }
    }

    /// Record data or null.
    pub fn records(&mut self, flexible: bool, value: Option<&Records>) {
        self.length(flexible, false, value.map(Records::len));
        for slice in value.map_or(&[][..], |value| &value.0) {
            self.share(slice);
        }
    }

    /// The number of elements, or null.
    pub fn array(&mut self, flexible: bool, count: Option<usize>) {
        self.length(flexible, false, count);
    }
}
