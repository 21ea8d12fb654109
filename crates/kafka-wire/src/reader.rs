//! Takes messages apart. Never trusts a length.

use bytes::Bytes;
use uuid::Uuid;

use crate::Str;

/// Items that one frame may hold, unless it is told otherwise: entries of lists and tagged fields. Each takes up to a hundred times as much memory as
/// on the wire, decoded or in the answer that is made of it, so that the largest frames would otherwise take gigabytes.
pub const ITEMS_MAX: usize = 1_000_000;

/// Elements of a list that room is made for before they are there.
const RESERVED_MAX: usize = 1024;

/// Where and why a frame makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} at byte {offset}: {problem}")]
pub struct DecodeError {
    /// Byte position in the frame.
    pub offset: usize,
    /// The field being read.
    pub field: &'static str,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The frame is too short.
    #[error("needs {need} bytes, {have} are left")]
    Short {
        /// Bytes needed, at least.
        need: usize,
        /// Bytes left.
        have: usize,
    },
    /// Null where there must be something.
    #[error("is null")]
    Null,
    /// A negative length that is not null.
    #[error("has a negative length")]
    Negative,
    /// A string beyond [`STRING_BYTES_MAX`].
    #[error("has {0} bytes, a string has at most {STRING_BYTES_MAX}")]
    Long(usize),
    /// Not UTF-8.
    #[error("is not UTF-8")]
    Utf8,
    /// A variable-length number that does not end.
    #[error("is an endless number")]
    Endless,
    /// Bytes after the end of the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// More entries of lists and tagged fields than a frame may hold.
    #[error("holds more than {0} items")]
    TooMany(usize),
}

/// Bytes of a string.
pub const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// A position in a frame.
pub struct Reader {
    frame: Bytes,
    at: usize,
    origin: usize,
    items_max: usize,
    items_left: usize,
    /// What is read is only counted.
    counts: bool,
}

/// A position of a [`Reader`], and how many items it could still read there.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: usize,
    items_left: usize,
}

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident -> $type:ty),* $(,)?) => {
        $(
            $(#[$doc])*
            pub fn $name(&mut self, field: &'static str) -> Result<$type, DecodeError> {
                let mut bytes = [0; size_of::<$type>()];
                let taken = self.take(bytes.len(), field)?;
                bytes.copy_from_slice(&self.frame[taken]);
                Ok(<$type>::from_be_bytes(bytes))
            }
        )*
    };
}

#[expect(clippy::missing_errors_doc, reason = "all fail alike: the frame is too short or malformed")]
impl Reader {
    /// At the start of `frame`.
    pub fn new(frame: Bytes) -> Self {
        Self { frame, at: 0, origin: 0, items_max: ITEMS_MAX, items_left: ITEMS_MAX, counts: false }
    }

    /// From here on it may hold at most so many items.
    pub fn allow(&mut self, items: usize) {
        (self.items_max, self.items_left) = (items, items);
    }

    /// The same position, for what is only counted: nothing is kept of what is decoded, and strings are empty.
    pub(crate) fn counting(&self) -> Self {
        let mut reader = Self { frame: self.frame.clone(), counts: true, ..*self };
        reader.allow(self.items_max);
        reader
    }

    /// Items that were read since it was said how many there may be.
    pub(crate) fn items(&self) -> usize {
        self.items_max - self.items_left
    }

    /// Does what is decoded stay?
    pub(crate) fn keeps(&self) -> bool {
        !self.counts
    }

    /// Room for the first elements of a list: there may be fewer than it says.
    pub(crate) fn capacity(&self, count: usize) -> usize {
        if self.counts { 0 } else { count.min(RESERVED_MAX) }
    }

    /// All of the frame.
    pub fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// Where it is, to go back to.
    pub fn mark(&self) -> Mark {
        Mark { at: self.at, items_left: self.items_left }
    }

    /// Reads again from where it was before, as if nothing had been read since.
    pub fn rewind(&mut self, to: Mark) {
        (self.at, self.items_left) = (to.at.min(self.at), to.items_left);
    }

    fn fail(&self, field: &'static str, problem: Problem) -> DecodeError {
        DecodeError { offset: self.origin + self.at, field, problem }
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.frame.len() - self.at
    }

    fn take(&mut self, need: usize, field: &'static str) -> Result<std::ops::Range<usize>, DecodeError> {
        let have = self.remaining();
        if need > have {
            return Err(self.fail(field, Problem::Short { need, have }));
        }
        self.at += need;
        Ok(self.at - need..self.at)
    }

    number! {
        /// One byte, signed.
        int8 -> i8,
        /// Big-endian.
        int16 -> i16,
        /// Big-endian.
        uint16 -> u16,
        /// Big-endian.
        int32 -> i32,
        /// Big-endian.
        uint32 -> u32,
        /// Big-endian.
        int64 -> i64,
        /// IEEE 754, big-endian.
        float64 -> f64,
    }

    /// One byte, not 0.
    pub fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        Ok(self.int8(field)? != 0)
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self, field: &'static str) -> Result<Uuid, DecodeError> {
        let mut bytes = [0; 16];
        let taken = self.take(16, field)?;
        bytes.copy_from_slice(&self.frame[taken]);
        Ok(Uuid::from_bytes(bytes))
    }

    /// Seven bits a byte, low first, at most five bytes.
    pub fn uvarint(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.int8(field)? as u8;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| self.fail(field, Problem::Endless));
            }
        }
        Err(self.fail(field, Problem::Endless))
    }

    /// A length that may stand for null.
    fn length(&mut self, flexible: bool, short: bool, field: &'static str) -> Result<Option<usize>, DecodeError> {
        if flexible {
            return Ok((self.uvarint(field)? as usize).checked_sub(1));
        }
        let length = if short { i32::from(self.int16(field)?) } else { self.int32(field)? };
        match length {
            -1 => Ok(None),
            0.. => Ok(Some(length as usize)),
            _ => Err(self.fail(field, Problem::Negative)),
        }
    }

    /// A string, or null. Where its length could be told to be more, it may not be, as in Kafka.
    pub fn string(&mut self, flexible: bool, field: &'static str) -> Result<Option<Str>, DecodeError> {
        let Some(length) = self.length(flexible, true, field)? else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(self.fail(field, Problem::Long(length)));
        }
        let taken = self.take(length, field)?;
        if self.counts {
            return Ok(Some(Str::default()));
        }
        Str::from_utf8(self.frame.slice(taken)).map(Some).ok_or_else(|| self.fail(field, Problem::Utf8))
    }

    /// Bytes, or null.
    pub fn bytes(&mut self, flexible: bool, field: &'static str) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.length(flexible, false, field)? else { return Ok(None) };
        let taken = self.take(length, field)?;
        Ok(Some(if self.counts { Bytes::new() } else { self.frame.slice(taken) }))
    }

    /// Takes `count` items off what the frame may still hold.
    fn spend(&mut self, count: usize, field: &'static str) -> Result<(), DecodeError> {
        let left =
            self.items_left.checked_sub(count).ok_or_else(|| self.fail(field, Problem::TooMany(self.items_max)))?;
        self.items_left = left;
        Ok(())
    }

    /// The number of elements of an array, or null, each of at least `element` bytes. So many `together` are one item.
    pub fn array(
        &mut self,
        flexible: bool,
        element: usize,
        together: usize,
        field: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        let Some(count) = self.length(flexible, false, field)? else { return Ok(None) };
        let (need, have) = (count.saturating_mul(element), self.remaining());
        if need > have {
            return Err(self.fail(field, Problem::Short { need, have }));
        }
        self.spend(count.div_ceil(together), field)?;
        Ok(Some(count))
    }

    /// Is a nullable struct there?
    pub fn present(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        Ok(self.int8(field)? >= 0)
    }

    /// What must not be null.
    pub fn required<T>(&self, value: Option<T>, field: &'static str) -> Result<T, DecodeError> {
        value.ok_or_else(|| self.null(field))
    }

    /// The error for a null that may not be.
    pub fn null(&self, field: &'static str) -> DecodeError {
        self.fail(field, Problem::Null)
    }

    /// How many tagged fields follow.
    pub fn tag_count(&mut self) -> Result<u32, DecodeError> {
        let count = self.uvarint("tagged fields")?;
        let have = self.remaining();
        if count as usize > have / 2 {
            return Err(self.fail("tagged fields", Problem::Short { need: count as usize * 2, have }));
        }
        self.spend(count as usize, "tagged fields")?;
        Ok(count)
    }

    /// A tagged field: its number and its bytes.
    pub fn tag(&mut self) -> Result<(u32, Bytes), DecodeError> {
        let tag = self.uvarint("tag")?;
        let length = self.uvarint("tagged field")? as usize;
        let taken = self.take(length, "tagged field")?;
        Ok((tag, self.frame.slice(taken)))
    }

    /// What `decode` makes of `bytes`, all of them, which are those of the tagged field that was just read.
    pub fn inside<T>(
        &mut self,
        bytes: Bytes,
        decode: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let origin = self.origin + self.at - bytes.len();
        let mut inner = Self { frame: bytes, at: 0, origin, ..*self };
        let value = decode(&mut inner)?;
        inner.end()?;
        self.items_left = inner.items_left;
        Ok(value)
    }

    /// Nothing may follow.
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            more => Err(self.fail("end", Problem::Trailing(more))),
        }
    }
}
