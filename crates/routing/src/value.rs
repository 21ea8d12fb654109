//! Values of headers and arguments, and how routing reads those of a message.
//!
//! Two values are equal when they are of one class and have the same content: integers of all widths are one class, as are the
//! two widths of floats, and strings and byte arrays. A number is never equal to a string, nor an integer to a float. Tables
//! and arrays are equal when they are encoded alike.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::Equivalent;

/// A value of a header or an argument, borrowed from where it is encoded.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// No value.
    Void,
    /// True or false.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A float of either width; equal when the bits are.
    Float(f64),
    /// A number with `scale` digits after the point.
    Decimal {
        /// Digits after the point.
        scale: u8,
        /// The digits.
        unscaled: u32,
    },
    /// Seconds since 1970.
    Timestamp(u64),
    /// A string, or an array of bytes.
    Bytes(&'a [u8]),
    /// A table as it is encoded.
    Table(&'a [u8]),
    /// An array as it is encoded.
    Array(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Class, a number, bytes: what equality and hashing look at.
    fn content(self) -> (u8, u64, &'a [u8]) {
        match self {
            Self::Void => (0, 0, &[]),
            Self::Bool(value) => (1, u64::from(value), &[]),
            Self::Int(value) => (2, value.cast_unsigned(), &[]),
            Self::Float(value) => (3, value.to_bits(), &[]),
            Self::Decimal { scale, unscaled } => (4, u64::from(scale) << 32 | u64::from(unscaled), &[]),
            Self::Timestamp(value) => (5, value, &[]),
            Self::Bytes(value) => (6, 0, value),
            Self::Table(value) => (7, 0, value),
            Self::Array(value) => (8, 0, value),
        }
    }

    /// A number for the value that is the same in every process.
    pub(crate) fn stable_hash(self) -> u64 {
        let (class, number, bytes) = self.content();
        // A string hashes as the same string as a routing key does.
        if class == 6 {
            stable_hash(bytes)
        } else {
            mix(stable_hash(bytes) ^ mix(number.wrapping_add(u64::from(class) << 56)))
        }
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.content() == other.content()
    }
}

impl Eq for Value<'_> {}

impl Hash for Value<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.content().hash(state);
    }
}

/// FNV-1a over the bytes, then [`mix`]ed: a hash that does not change from one version or process to the next.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
}

/// The finalizer of splitmix64: every bit of the input changes half of the output.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// A [`Value`] that owns its bytes.
#[derive(Clone, Debug)]
pub enum OwnedValue {
    /// [`Value::Void`].
    Void,
    /// [`Value::Bool`].
    Bool(bool),
    /// [`Value::Int`].
    Int(i64),
    /// [`Value::Float`].
    Float(f64),
    /// [`Value::Decimal`].
    Decimal {
        /// Digits after the point.
        scale: u8,
        /// The digits.
        unscaled: u32,
    },
    /// [`Value::Timestamp`].
    Timestamp(u64),
    /// [`Value::Bytes`].
    Bytes(Box<[u8]>),
    /// [`Value::Table`].
    Table(Box<[u8]>),
    /// [`Value::Array`].
    Array(Box<[u8]>),
}

impl OwnedValue {
    /// The same value, borrowed.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            Self::Void => Value::Void,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Float(value) => Value::Float(*value),
            Self::Decimal { scale, unscaled } => Value::Decimal { scale: *scale, unscaled: *unscaled },
            Self::Timestamp(value) => Value::Timestamp(*value),
            Self::Bytes(value) => Value::Bytes(value),
            Self::Table(value) => Value::Table(value),
            Self::Array(value) => Value::Array(value),
        }
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Void => Self::Void,
            Value::Bool(value) => Self::Bool(value),
            Value::Int(value) => Self::Int(value),
            Value::Float(value) => Self::Float(value),
            Value::Decimal { scale, unscaled } => Self::Decimal { scale, unscaled },
            Value::Timestamp(value) => Self::Timestamp(value),
            Value::Bytes(value) => Self::Bytes(value.into()),
            Value::Table(value) => Self::Table(value.into()),
            Value::Array(value) => Self::Array(value.into()),
        }
    }
}

impl PartialEq for OwnedValue {
    fn eq(&self, other: &Self) -> bool {
        self.as_value() == other.as_value()
    }
}

impl Eq for OwnedValue {}

impl Hash for OwnedValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_value().hash(state);
    }
}

impl Equivalent<OwnedValue> for Value<'_> {
    fn equivalent(&self, key: &OwnedValue) -> bool {
        *self == key.as_value()
    }
}

impl fmt::Display for OwnedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Void => f.write_str("undefined"),
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Decimal { scale, unscaled } => write!(f, "{{{scale},{unscaled}}}"),
            Self::Timestamp(value) => value.fmt(f),
            Self::Bytes(value) => f.write_str(&String::from_utf8_lossy(value)),
            Self::Table(value) | Self::Array(value) => write!(f, "{} bytes", value.len()),
        }
    }
}

/// A field of the arguments of an exchange or a binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Argument {
    /// The field's name.
    pub name: Box<[u8]>,
    /// The type as the client wrote it, the octet of AMQP's field tables. Part of the identity of a binding (an argument `1` of
    /// 16 bits and one of 64 bits make two bindings), not of matching.
    pub tag: u8,
    /// The value.
    pub value: OwnedValue,
}

impl Argument {
    /// RabbitMQ's word for its type.
    pub fn type_name(&self) -> &'static str {
        crate::error::type_name(self.tag)
    }
}

/// The octet of AMQP's field tables for a long string.
pub(crate) const LONG_STRING: u8 = b'S';

/// Arguments of an exchange or a binding, sorted by name. A copy shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arguments(Option<Arc<Box<[Argument]>>>);

impl Arguments {
    /// None.
    pub const NONE: Self = Self(None);

    /// Of two fields with one name the first counts; both are kept.
    pub fn new(mut fields: Vec<Argument>) -> Self {
        fields.sort_by(|one, other| one.name.cmp(&other.name));
        Self((!fields.is_empty()).then(|| Arc::new(fields.into_boxed_slice())))
    }

    /// Bytes of memory that they take, about, with the record of what they belong to.
    pub fn weight(&self) -> usize {
        const FIELDS: usize = 64;
        const FIELD: usize = 128;
        if self.fields().is_empty() { 0 } else { FIELDS + FIELD * self.fields().len() + 2 * self.bytes() }
    }

    /// Bytes of names and values.
    pub(crate) fn bytes(&self) -> usize {
        self.fields().iter().map(|field| field.name.len() + field.value.as_value().content().2.len()).sum()
    }

    /// All fields, sorted by name.
    pub fn fields(&self) -> &[Argument] {
        self.0.as_ref().map_or(&[], |fields| fields)
    }

    /// The field with that name.
    pub fn get(&self, name: &[u8]) -> Option<&Argument> {
        let fields = self.fields();
        let at = fields.partition_point(|field| &*field.name < name);
        fields.get(at).filter(|field| &*field.name == name)
    }
}

/// What `hash-property` of an `x-consistent-hash` exchange may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// `message_id`
    MessageId,
    /// `correlation_id`
    CorrelationId,
    /// `timestamp`
    Timestamp,
}

/// What routing reads of a message beside its routing keys.
pub trait Headers {
    /// The header with that name; of several the one that counts for the protocol.
    fn get(&self, name: &[u8]) -> Option<Value<'_>>;

    /// Visits the headers. Of several with one name the one that counts, see [`Headers::get`], is visited first.
    fn visit<'a>(&'a self, visitor: &mut dyn FnMut(&'a [u8], Value<'a>));

    /// A property of the message.
    fn property(&self, property: Property) -> Option<Value<'_>>;

    /// How many headers there are.
    fn count(&self) -> usize {
        let mut count = 0;
        self.visit(&mut |_, _| count += 1);
        count
    }
}

/// A message without headers and properties.
#[derive(Clone, Copy, Debug)]
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn get(&self, _: &[u8]) -> Option<Value<'_>> {
        None
    }

    fn visit<'a>(&'a self, _: &mut dyn FnMut(&'a [u8], Value<'a>)) {}

    fn property(&self, _: Property) -> Option<Value<'_>> {
        None
    }
}
