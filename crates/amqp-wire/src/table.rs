//! Tables and arrays of typed values, read where they lie.
//!
//! ```text
//! table   fields, one after the other; the length before them is the container's
//! field   name (short string), type (1), value
//! array   values, each with its type before it
//! ```
//! | type | value | type | value |
//! |---|---|---|---|
//! | `t` | boolean, 1 | `f` | float, 4 |
//! | `b` `B` | integer, 1, signed and unsigned | `d` | float, 8 |
//! | `s` `u` | integer, 2 | `D` | decimal: scale 1, unsigned 4 |
//! | `I` `i` | integer, 4 | `T` | seconds since 1970, unsigned 8 |
//! | `l` `L` | integer, 8, both signed | `V` | nothing |
//! | `S` | long string: length 4, bytes | `x` | bytes: length 4, bytes |
//! | `F` | table: length 4, fields | `A` | array: length 4, values |
//!
//! Source: RabbitMQ's errata to AMQP 0-9-1, section 4.2.1; there `s` is a number, not a short string. Names may occur more
//! than once; the first one counts.
//!
//! [`TableRef::check`] goes through a table once, values within values included, and never deeper than
//! [`TABLE_DEPTH_MAX`]. Everything else assumes that this was done; on bytes that were not checked it does not panic
//! either, it ends where they make no sense. Nothing allocates.

use std::fmt;

use crate::{DecodeError, Problem, ShortBytes};

/// Tables and arrays within each other, the outermost included. RabbitMQ has no limit but memory; clients nest a handful.
pub const TABLE_DEPTH_MAX: usize = 64;

/// A table of fields, encoded, without its length. Equal means the same bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TableRef<'a>(&'a [u8]);

/// Values in a row, encoded, without their length. Equal means the same bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ArrayRef<'a>(&'a [u8]);

/// A value of a table or array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// `t`; any byte but 0 is true.
    Bool(bool),
    /// `b`.
    I8(i8),
    /// `B`.
    U8(u8),
    /// `s`.
    I16(i16),
    /// `u`.
    U16(u16),
    /// `I`.
    I32(i32),
    /// `i`.
    U32(u32),
    /// `l`, and `L` when reading.
    I64(i64),
    /// `f`.
    F32(f32),
    /// `d`.
    F64(f64),
    /// `D`: `unscaled` divided by ten to the `scale`.
    Decimal {
        /// Digits after the point.
        scale: u8,
        /// All digits.
        unscaled: u32,
    },
    /// `T`: seconds since 1970.
    Timestamp(u64),
    /// `S`: text as a rule, any bytes in truth.
    LongString(&'a [u8]),
    /// `x`.
    Bytes(&'a [u8]),
    /// `V`.
    Void,
    /// `A`.
    Array(ArrayRef<'a>),
    /// `F`.
    Table(TableRef<'a>),
}

fn take<'a>(rest: &mut &'a [u8], need: usize) -> Result<&'a [u8], Problem> {
    let Some((taken, after)) = rest.split_at_checked(need) else {
        return Err(Problem::ValueShort { need, have: rest.len() });
    };
    *rest = after;
    Ok(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Problem> {
    let Some((taken, after)) = rest.split_first_chunk::<N>() else {
        return Err(Problem::ValueShort { need: N, have: rest.len() });
    };
    *rest = after;
    Ok(*taken)
}

pub(crate) fn take_short<'a>(rest: &mut &'a [u8]) -> Result<ShortBytes<'a>, Problem> {
    let [length] = array(rest)?;
    Ok(ShortBytes::new(take(rest, length.into())?).unwrap_or_default())
}

pub(crate) fn take_long<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Problem> {
    let length = u32::from_be_bytes(array(rest)?);
    take(rest, length as usize)
}

impl<'a> Value<'a> {
    /// Takes a type and its value; what is in a table or array is not looked at.
    fn take(rest: &mut &'a [u8]) -> Result<Self, Problem> {
        let [tag] = array(rest)?;
        Ok(match tag {
            b'S' => Self::LongString(take_long(rest)?),
            b't' => Self::Bool(array(rest)? != [0]),
            b'I' => Self::I32(i32::from_be_bytes(array(rest)?)),
            b'l' | b'L' => Self::I64(i64::from_be_bytes(array(rest)?)),
            b'T' => Self::Timestamp(u64::from_be_bytes(array(rest)?)),
            b'F' => Self::Table(TableRef(take_long(rest)?)),
            b'A' => Self::Array(ArrayRef(take_long(rest)?)),
            b'b' => Self::I8(i8::from_be_bytes(array(rest)?)),
            b'B' => Self::U8(u8::from_be_bytes(array(rest)?)),
            b's' => Self::I16(i16::from_be_bytes(array(rest)?)),
            b'u' => Self::U16(u16::from_be_bytes(array(rest)?)),
            b'i' => Self::U32(u32::from_be_bytes(array(rest)?)),
            b'f' => Self::F32(f32::from_be_bytes(array(rest)?)),
            b'd' => Self::F64(f64::from_be_bytes(array(rest)?)),
            b'D' => {
                let [scale] = array(rest)?;
                Self::Decimal { scale, unscaled: u32::from_be_bytes(array(rest)?) }
            }
            b'x' => Self::Bytes(take_long(rest)?),
            b'V' => Self::Void,
            _ => return Err(Problem::ValueType(tag)),
        })
    }

    /// An integer of any width, or a timestamp; none for others and beyond 63 bits.
    pub fn as_integer(self) -> Option<i64> {
        match self {
            Self::I8(value) => Some(value.into()),
            Self::U8(value) => Some(value.into()),
            Self::I16(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::I32(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::I64(value) => Some(value),
            Self::Timestamp(value) => value.try_into().ok(),
            _ => None,
        }
    }

    /// A float of either width.
    pub fn as_float(self) -> Option<f64> {
        match self {
            Self::F32(value) => Some(value.into()),
            Self::F64(value) => Some(value),
            _ => None,
        }
    }

    /// A long string or bytes.
    pub const fn as_bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::LongString(value) | Self::Bytes(value) => Some(value),
            _ => None,
        }
    }

    /// A long string, if it is UTF-8.
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            Self::LongString(value) => std::str::from_utf8(value).ok(),
            _ => None,
        }
    }

    /// A boolean.
    pub const fn as_bool(self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// A table.
    pub const fn as_table(self) -> Option<TableRef<'a>> {
        match self {
            Self::Table(value) => Some(value),
            _ => None,
        }
    }

    /// An array.
    pub const fn as_array(self) -> Option<ArrayRef<'a>> {
        match self {
            Self::Array(value) => Some(value),
            _ => None,
        }
    }

    /// What RabbitMQ calls its type in error texts.
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::I8(_) => "byte",
            Self::U8(_) => "unsignedbyte",
            Self::I16(_) => "short",
            Self::U16(_) => "unsignedshort",
            Self::I32(_) => "signedint",
            Self::U32(_) => "unsignedint",
            Self::I64(_) => "long",
            Self::F32(_) => "float",
            Self::F64(_) => "double",
            Self::Decimal { .. } => "decimal",
            Self::Timestamp(_) => "timestamp",
            Self::LongString(_) => "longstr",
            Self::Bytes(_) => "binary",
            Self::Void => "void",
            Self::Array(_) => "array",
            Self::Table(_) => "table",
        }
    }

    /// Do two declarations agree on this argument, as RabbitMQ 4.3 compares? Integers of all widths and timestamps by
    /// number, floats by number, long strings and bytes by their bytes; integers and floats never agree. Tables and
    /// arrays agree when their fields do in the same order, types included.
    pub fn is_equivalent(self, other: Self) -> bool {
        if let (Some(one), Some(two)) = (self.as_float(), other.as_float()) {
            return one == two || one.to_bits() == two.to_bits();
        }
        if let (Some(one), Some(two)) = (self.as_bytes(), other.as_bytes()) {
            return one == two;
        }
        match (self.as_integer(), other.as_integer()) {
            (Some(one), Some(two)) => one == two,
            _ => self.is_identical(other),
        }
    }

    /// The same type and value, all the way down. `l` and `L` are one type.
    fn is_identical(self, other: Self) -> bool {
        match (self, other) {
            (Self::Table(one), Self::Table(two)) => {
                let agree = |(one, two): (Field<'_>, Field<'_>)| one.0 == two.0 && one.1.is_identical(two.1);
                one.0 == two.0 || one.iter().count() == two.iter().count() && one.iter().zip(two.iter()).all(agree)
            }
            (Self::Array(one), Self::Array(two)) => {
                let agree = |(one, two): (Value<'_>, Value<'_>)| one.is_identical(two);
                one.0 == two.0 || one.iter().count() == two.iter().count() && one.iter().zip(two.iter()).all(agree)
            }
            (Self::F32(one), Self::F32(two)) => one == two || one.to_bits() == two.to_bits(),
            (Self::F64(one), Self::F64(two)) => one == two || one.to_bits() == two.to_bits(),
            _ => self == other,
        }
    }
}

type Field<'a> = (ShortBytes<'a>, Value<'a>);

impl<'a> TableRef<'a> {
    /// Of the bytes after a table's length, which are gone through to the end.
    ///
    /// # Errors
    /// All are 502 SYNTAX_ERROR: *ValueShort*, *ValueType*, *Depth*.
    pub fn check(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::check_at(bytes, "table", 0)
    }

    /// `origin`: where in what is decoded the bytes begin.
    pub(crate) fn check_at(bytes: &'a [u8], field: &'static str, origin: usize) -> Result<Self, DecodeError> {
        match check_fields(bytes, true, 1) {
            Ok(()) => Ok(Self(bytes)),
            Err((left, problem)) => Err(DecodeError { offset: origin + bytes.len() - left, field, problem }),
        }
    }

    /// Of bytes that were checked before, after a table's length.
    pub const fn trusted(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes on the wire, without their length.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// No fields at all.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The fields in their order.
    pub fn iter(self) -> impl Iterator<Item = (ShortBytes<'a>, Value<'a>)> + Clone {
        self.spans().map(|(field, _)| field)
    }

    /// The first field of this name. Goes through those before it.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Do two declarations agree on the argument `name`? Both lack it, or both have it and the values agree.
    pub fn is_equivalent_in(self, other: TableRef<'_>, name: &str) -> bool {
        match (self.get(name), other.get(name)) {
            (Some(one), Some(two)) => one.is_equivalent(two),
            (one, two) => one.is_none() && two.is_none(),
        }
    }

    /// Fields, each with its bytes.
    pub(crate) fn spans(self) -> impl Iterator<Item = (Field<'a>, &'a [u8])> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let start = rest;
            let name = take_short(&mut rest).ok()?;
            let Ok(value) = Value::take(&mut rest) else {
                rest = &[];
                return None;
            };
            Some(((name, value), &start[..start.len() - rest.len()]))
        })
    }
}

impl<'a> ArrayRef<'a> {
    /// The bytes on the wire, without their length.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// No values at all.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The values in their order.
    pub fn iter(self) -> impl Iterator<Item = Value<'a>> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let value = Value::take(&mut rest).ok();
            if value.is_none() {
                rest = &[];
            }
            value
        })
    }
}

/// Goes through a table (`named`) or an array; an error tells how many bytes of it were left.
fn check_fields(bytes: &[u8], named: bool, depth: usize) -> Result<(), (usize, Problem)> {
    if depth > TABLE_DEPTH_MAX {
        return Err((bytes.len(), Problem::Depth));
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        let left = rest.len();
        if named {
            take_short(&mut rest).map_err(|problem| (left, problem))?;
        }
        let left = rest.len();
        let value = Value::take(&mut rest).map_err(|problem| (left, problem))?;
        let within = match value {
            Value::Table(table) => check_fields(table.0, true, depth + 1),
            Value::Array(array) => check_fields(array.0, false, depth + 1),
            _ => Ok(()),
        };
        within.map_err(|(left, problem)| (rest.len() + left, problem))?;
    }
    Ok(())
}

macro_rules! from {
    ($($type:ty => $variant:ident),*) => {$(
        impl<'a> From<$type> for Value<'a> {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}
from!(bool => Bool, i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, f32 => F32, f64 => F64);
from!(ArrayRef<'a> => Array, TableRef<'a> => Table);

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::LongString(text.as_bytes())
    }
}

impl fmt::Debug for TableRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Debug for ArrayRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// As error texts show it: strings as they are, numbers in decimal, tables and arrays in brackets.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bool(value) => value.fmt(f),
            Self::F32(value) => write!(f, "{value:?}"),
            Self::F64(value) => write!(f, "{value:?}"),
            Self::Decimal { scale, unscaled } => write!(f, "{unscaled}e-{scale}"),
            Self::Timestamp(value) => value.fmt(f),
            Self::LongString(value) | Self::Bytes(value) => f.write_str(&String::from_utf8_lossy(value)),
            Self::Void => f.write_str("void"),
            Self::Array(value) => write!(f, "{value:?}"),
            Self::Table(value) => write!(f, "{value:?}"),
            _ => self.as_integer().unwrap_or_default().fmt(f),
        }
    }
}
