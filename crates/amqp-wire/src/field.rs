//! Arguments of methods, one after the other: numbers big-endian, strings with their length before them, bits that stand
//! side by side packed into octets, the first one lowest. Source: AMQP 0-9-1, section 4.2.5.

use bytes::{BufMut, BytesMut};

use crate::short::SHORT_BYTES_MAX;
use crate::{DecodeError, Problem, ShortBytes, ShortStr, TableRef};

/// A position in the payload of a method frame.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
    bits: u8,
    /// The next bit of `bits`; zero when the next bit begins an octet.
    mask: u8,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload, length: payload.len(), bits: 0, mask: 0 }
    }

    pub(crate) const fn fail(&self, field: &'static str, problem: Problem) -> DecodeError {
        DecodeError { offset: self.length - self.rest.len(), field, problem }
    }

    pub(crate) fn take(&mut self, need: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        self.mask = 0;
        let Some((taken, rest)) = self.rest.split_at_checked(need) else {
            return Err(self.fail(field, Problem::Short { need, have: self.rest.len() }));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        self.mask = 0;
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.fail(field, Problem::Short { need: N, have: self.rest.len() }));
        };
        self.rest = rest;
        Ok(*taken)
    }

    fn short(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = u8::read(self, field)?;
        self.take(length.into(), field)
    }

    fn long(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = u32::read(self, field)?;
        self.take(length as usize, field)
    }

    fn bit(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        if self.mask == 0 {
            self.bits = u8::read(self, field)?;
            self.mask = 1;
        }
        let set = self.bits & self.mask != 0;
        self.mask <<= 1;
        Ok(set)
    }

    /// Nothing may follow, as in RabbitMQ.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.fail("arguments", Problem::Trailing(self.rest.len()))) }
    }
}

/// Appends arguments to a frame.
pub struct Writer<'o> {
    out: &'o mut BytesMut,
    mask: u8,
}

impl<'o> Writer<'o> {
    pub(crate) const fn new(out: &'o mut BytesMut) -> Self {
        Self { out, mask: 0 }
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.mask = 0;
        self.out.put_slice(bytes);
    }

    fn short(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= SHORT_BYTES_MAX, "its type holds that");
        self.raw(&[bytes.len() as u8]);
        self.raw(bytes);
    }

    fn long(&mut self, bytes: &[u8]) {
        self.raw(&(bytes.len() as u32).to_be_bytes());
        self.raw(bytes);
    }

    fn bit(&mut self, set: bool) {
        if self.mask == 0 {
            self.raw(&[0]);
            self.mask = 1;
        }
        if set && let Some(octet) = self.out.last_mut() {
            *octet |= self.mask;
        }
        self.mask <<= 1;
    }
}

/// A type of argument.
pub(crate) trait Field<'a>: Sized {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError>;
    fn write(&self, writer: &mut Writer<'_>);
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl<'a> Field<'a> for $type {
            fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(reader.array(field)?))
            }
            fn write(&self, writer: &mut Writer<'_>) {
                writer.raw(&self.to_be_bytes());
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64);

impl<'a> Field<'a> for bool {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.bit(field)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.bit(*self);
    }
}

impl<'a> Field<'a> for ShortBytes<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        Ok(Self::new(reader.short(field)?).unwrap_or_default())
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.short(self);
    }
}

impl<'a> Field<'a> for ShortStr<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let bytes = ShortBytes::read(reader, field)?;
        bytes.as_str().ok_or_else(|| reader.fail(field, Problem::Utf8))
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.short(self.as_bytes());
    }
}

/// A long string.
impl<'a> Field<'a> for &'a [u8] {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.long(field)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.long(self);
    }
}

impl<'a> Field<'a> for TableRef<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let bytes = reader.long(field)?;
        let start = reader.length - reader.rest.len() - bytes.len();
        TableRef::check_at(bytes, field, start)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.long(self.as_bytes());
    }
}
