//! Puts messages together: small values are gathered in a buffer, record data is passed on as slices.

use bytes::Bytes;
use uuid::Uuid;

use crate::reader::STRING_BYTES_MAX;
use crate::{Records, Str};

/// Slices from this size on are passed on, smaller ones copied.
const SHARE_BYTES: usize = 4096;
/// So many bytes are gathered in one piece of memory: a long message is not copied as it grows, and takes little more than its bytes.
const PIECE_BYTES: usize = 1 << 20;

/// A message in the making.
#[derive(Debug, Default)]
pub struct Writer {
    /// What comes first, and how long that is.
    before: Vec<Bytes>,
    before_bytes: usize,
    gathered: Vec<u8>,
    /// Slices, each with its place among the gathered bytes.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
}

impl Writer {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empty, with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { gathered: Vec::with_capacity(bytes), ..Self::default() }
    }

    pub(crate) fn nested(fill: impl FnOnce(&mut Self)) -> Self {
        let mut writer = Self::new();
        fill(&mut writer);
        writer
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.before_bytes + self.gathered.len() + self.shared_bytes
    }

    /// Nothing so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    pub fn finish(self) -> Vec<Bytes> {
        let gathered = Bytes::from(self.gathered);
        let mut pieces = self.before;
        pieces.reserve_exact(2 * self.shared.len() + 1);
        let mut from = 0;
        for (place, slice) in self.shared {
            if place > from {
                pieces.push(gathered.slice(from..place));
            }
            pieces.push(slice);
            from = place;
        }
        if gathered.len() > from {
            pieces.push(gathered.slice(from..));
        }
        pieces
    }

    /// The pieces behind a four-byte length.
    pub fn finish_frame(self) -> Vec<Bytes> {
        let prefix = (self.len() as u32).to_be_bytes();
        // Small answers leave in one piece.
        if self.len() < SHARE_BYTES && self.shared.is_empty() && self.before.is_empty() {
            return vec![[&prefix, &self.gathered[..]].concat().into()];
        }
        let mut pieces = self.finish();
        pieces.insert(0, Bytes::copy_from_slice(&prefix));
        pieces
    }

    pub(crate) fn append(&mut self, other: Self) {
        for piece in other.finish() {
            self.share(&piece);
        }
    }

    /// Bytes as they are; many are passed on as a slice.
    pub fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_BYTES {
            self.raw(bytes);
        } else {
            self.shared_bytes += bytes.len();
            self.shared.push((self.gathered.len(), bytes.clone()));
        }
    }

    /// What was encoded before.
    pub fn pieces(&mut self, pieces: &[Bytes]) {
        pieces.iter().for_each(|piece| self.share(piece));
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.gathered.len() + bytes.len() > PIECE_BYTES {
            self.begin_piece();
        }
        self.gathered.extend_from_slice(bytes);
    }

    #[cold]
    fn begin_piece(&mut self) {
        let full = Self {
            gathered: std::mem::replace(&mut self.gathered, Vec::with_capacity(PIECE_BYTES)),
            shared: std::mem::take(&mut self.shared),
            ..Self::default()
        };
        self.before_bytes += full.gathered.len() + std::mem::take(&mut self.shared_bytes);
        self.before.extend(full.finish());
    }

    /// One byte.
    pub fn int8(&mut self, value: i8) {
        self.gathered.push(value as u8);
    }
    /// One byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.gathered.push(u8::from(value));
    }
    /// Big-endian.
    pub fn int16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }
    /// Big-endian.
    pub fn uint16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }
    /// Big-endian.
    pub fn int32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }
    /// Big-endian.
    pub fn uint32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }
    /// Big-endian.
    pub fn int64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }
    /// IEEE 754, big-endian.
    pub fn float64(&mut self, value: f64) {
        self.raw(&value.to_be_bytes());
    }
    /// Sixteen bytes.
    pub fn uuid(&mut self, value: Uuid) {
        self.raw(value.as_bytes());
    }

    /// Seven bits a byte, low first.
    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.gathered.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.gathered.push(value as u8);
    }

    fn length(&mut self, flexible: bool, short: bool, length: Option<usize>) {
        if flexible {
            self.uvarint(length.map_or(0, |length| length as u32 + 1));
        } else if short {
            self.int16(length.map_or(-1, |length| i16::try_from(length).expect("strings are cut")));
        } else {
            self.int32(length.map_or(-1, |length| length as i32));
        }
    }

    /// A string or null. Beyond [`STRING_BYTES_MAX`] it is cut: what is said of a name may be longer than one may be.
    pub fn string(&mut self, flexible: bool, value: Option<&Str>) {
        let value = value.map(|value| &value[..value.floor_char_boundary(STRING_BYTES_MAX)]);
        self.length(flexible, true, value.map(str::len));
        self.raw(value.map_or(&[], str::as_bytes));
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
