//! Writes tables and arrays, and owns the tables that a broker keeps. To change a table, its fields are copied as the
//! bytes they are, without those that go, and new ones are added: nothing is decoded but names.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::{ArrayRef, DecodeError, ShortBytes, TableRef, Value};

/// A table that owns its encoded bytes, which are well-formed. A clone shares them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Table(Bytes);

impl Table {
    /// Written by `fields`. One allocation, more when it grows.
    pub fn build(fields: impl FnOnce(&mut TableWriter<'_>)) -> Self {
        let mut out = BytesMut::new();
        fields(&mut TableWriter { out: &mut out });
        Self(out.freeze())
    }

    /// Of encoded bytes, without their length, that are kept as they are.
    ///
    /// # Errors
    /// As `TableRef::check`.
    pub fn check(bytes: Bytes) -> Result<Self, DecodeError> {
        TableRef::check(&bytes)?;
        Ok(Self(bytes))
    }

    /// To read from.
    pub fn view(&self) -> TableRef<'_> {
        TableRef::trusted(&self.0)
    }

    /// The bytes on the wire, without their length.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

/// Copies.
impl From<TableRef<'_>> for Table {
    fn from(table: TableRef<'_>) -> Self {
        Self(Bytes::copy_from_slice(table.as_bytes()))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// Appends fields. Does not look whether a name is there already.
pub struct TableWriter<'o> {
    out: &'o mut BytesMut,
}

/// Appends values.
pub struct ArrayWriter<'o> {
    out: &'o mut BytesMut,
}

impl<'o> TableWriter<'o> {
    pub(crate) fn to(out: &'o mut BytesMut) -> Self {
        Self { out }
    }

    fn name<'n>(&mut self, name: impl Into<ShortBytes<'n>>) {
        let name = name.into();
        self.out.put_u8(name.len() as u8);
        self.out.put_slice(&name);
    }

    /// A field.
    pub fn put<'n, 'v>(&mut self, name: impl Into<ShortBytes<'n>>, value: impl Into<Value<'v>>) {
        self.name(name);
        write_value(self.out, value.into());
    }

    /// A field that is a table.
    pub fn table<'n>(&mut self, name: impl Into<ShortBytes<'n>>, fields: impl FnOnce(&mut TableWriter<'_>)) {
        self.name(name);
        write_table(self.out, fields);
    }

    /// A field that is an array.
    pub fn array<'n>(&mut self, name: impl Into<ShortBytes<'n>>, values: impl FnOnce(&mut ArrayWriter<'_>)) {
        self.name(name);
        write_array(self.out, values);
    }

    /// All fields of a table.
    pub fn copy(&mut self, table: TableRef<'_>) {
        self.out.put_slice(table.as_bytes());
    }

    /// Those fields of a table whose name `is_dropped` does not want gone.
    pub fn copy_without(&mut self, table: TableRef<'_>, is_dropped: impl Fn(ShortBytes<'_>) -> bool) {
        for ((name, _), bytes) in table.spans() {
            if !is_dropped(name) {
                self.out.put_slice(bytes);
            }
        }
    }
}

impl ArrayWriter<'_> {
    /// A value.
    pub fn put<'v>(&mut self, value: impl Into<Value<'v>>) {
        write_value(self.out, value.into());
    }

    /// A value that is a table.
    pub fn table(&mut self, fields: impl FnOnce(&mut TableWriter<'_>)) {
        write_table(self.out, fields);
    }

    /// A value that is an array.
    pub fn array(&mut self, values: impl FnOnce(&mut ArrayWriter<'_>)) {
        write_array(self.out, values);
    }

    /// All values of an array.
    pub fn copy(&mut self, array: ArrayRef<'_>) {
        self.out.put_slice(array.as_bytes());
    }
}

fn write_table(out: &mut BytesMut, fields: impl FnOnce(&mut TableWriter<'_>)) {
    write_within(out, b'F', |out| fields(&mut TableWriter { out }));
}

fn write_array(out: &mut BytesMut, values: impl FnOnce(&mut ArrayWriter<'_>)) {
    write_within(out, b'A', |out| values(&mut ArrayWriter { out }));
}

fn write_within(out: &mut BytesMut, tag: u8, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    let start = out.len();
    out.put_u32(0);
    write(out);
    let bytes = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&bytes.to_be_bytes());
}

fn write_value(out: &mut BytesMut, value: Value<'_>) {
    let mut tagged = |tag: u8, bytes: &[u8]| {
        out.put_u8(tag);
        out.put_slice(bytes);
    };
    match value {
        Value::Bool(value) => tagged(b't', &[value.into()]),
        Value::I8(value) => tagged(b'b', &value.to_be_bytes()),
        Value::U8(value) => tagged(b'B', &value.to_be_bytes()),
        Value::I16(value) => tagged(b's', &value.to_be_bytes()),
        Value::U16(value) => tagged(b'u', &value.to_be_bytes()),
        Value::I32(value) => tagged(b'I', &value.to_be_bytes()),
        Value::U32(value) => tagged(b'i', &value.to_be_bytes()),
        Value::I64(value) => tagged(b'l', &value.to_be_bytes()),
        Value::F32(value) => tagged(b'f', &value.to_be_bytes()),
        Value::F64(value) => tagged(b'd', &value.to_be_bytes()),
        Value::Decimal { scale, unscaled } => {
            tagged(b'D', &[scale]);
            out.put_u32(unscaled);
        }
        Value::Timestamp(value) => tagged(b'T', &value.to_be_bytes()),
        Value::LongString(value) => write_within(out, b'S', |out| out.put_slice(value)),
        Value::Bytes(value) => write_within(out, b'x', |out| out.put_slice(value)),
        Value::Void => tagged(b'V', &[]),
        Value::Array(value) => write_within(out, b'A', |out| out.put_slice(value.as_bytes())),
        Value::Table(value) => write_within(out, b'F', |out| out.put_slice(value.as_bytes())),
    }
}
