//! The fourteen properties of a message: sixteen flags, then the values of those that are there.
//!
//! ```text
//! flag  bit     property          type            flag  bit     property     type
//! 15    0x8000  content-type      short string    8     0x0100  expiration   short string, milliseconds
//! 14    0x4000  content-encoding  short string    7     0x0080  message-id   short string
//! 13    0x2000  headers           table           6     0x0040  timestamp    unsigned 8, seconds
//! 12    0x1000  delivery-mode     unsigned 1      5     0x0020  type         short string
//! 11    0x0800  priority          unsigned 1      4     0x0010  user-id      short string
//! 10    0x0400  correlation-id    short string    3     0x0008  app-id       short string
//!  9    0x0200  reply-to          short string    2     0x0004  cluster-id   short string
//! ```
//! Source: AMQP 0-9-1, section 4.2.6.1. Flag 0 would announce another sixteen flags and flag 1 is unused: the class basic has
//! nothing to say there, so that either is an error. RabbitMQ ignores both, and passes them on to consumers.
//!
//! [`EncodedProperties`] reads single properties where they lie; a broker stores and sends those bytes as they are.
//! [`Properties`] has them all as fields, to write them or to change some. Both borrow; nothing allocates.

use bytes::{BufMut, BytesMut};

use crate::table::{take_long, take_short};
use crate::{DecodeError, Problem, ShortBytes, TableRef, TableWriter};

const UNKNOWN_FLAGS: u16 = 0b11;
const HEADERS: u16 = 0x2000;
/// Flags of properties whose values lie before the headers.
const BEFORE_HEADERS: u16 = 0xc000;

/// Properties on the wire, flags included. Equal means the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedProperties<'a>(&'a [u8]);

/// None of them.
impl Default for EncodedProperties<'_> {
    fn default() -> Self {
        Self(&[0, 0])
    }
}

enum Type {
    Short,
    Table,
    Octet,
    Timestamp,
}

impl Type {
    /// Takes the value's bytes, without a length before them.
    fn take<'a>(self, rest: &mut &'a [u8]) -> Result<&'a [u8], Problem> {
        let need = match self {
            Self::Short => return take_short(rest).map(ShortBytes::as_bytes),
            Self::Table => return take_long(rest),
            Self::Octet => 1,
            Self::Timestamp => 8,
        };
        let (value, after) = rest.split_at_checked(need).ok_or(Problem::ValueShort { need, have: rest.len() })?;
        *rest = after;
        Ok(value)
    }
}

trait Property<'a>: Sized {
    const TYPE: Type;
    /// Of the value's bytes, without a length before them.
    fn of(bytes: &'a [u8]) -> Option<Self>;
    fn write(self, out: &mut BytesMut);
}

impl<'a> Property<'a> for ShortBytes<'a> {
    const TYPE: Type = Type::Short;
    fn of(bytes: &'a [u8]) -> Option<Self> {
        Self::new(bytes)
    }
    fn write(self, out: &mut BytesMut) {
        out.put_u8(self.len() as u8);
        out.put_slice(&self);
    }
}

impl<'a> Property<'a> for TableRef<'a> {
    const TYPE: Type = Type::Table;
    fn of(bytes: &'a [u8]) -> Option<Self> {
        Some(Self::trusted(bytes))
    }
    fn write(self, out: &mut BytesMut) {
        out.put_u32(self.as_bytes().len() as u32);
        out.put_slice(self.as_bytes());
    }
}

impl<'a> Property<'a> for u8 {
    const TYPE: Type = Type::Octet;
    fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.first().copied()
    }
    fn write(self, out: &mut BytesMut) {
        out.put_u8(self);
    }
}

impl<'a> Property<'a> for u64 {
    const TYPE: Type = Type::Timestamp;
    fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self::from_be_bytes(*bytes))
    }
    fn write(self, out: &mut BytesMut) {
        out.put_u64(self);
    }
}

macro_rules! properties {
    ($($(#[$doc:meta])* $flag:literal $name:ident: $type:ty;)*) => {
        /// The properties of a message, each of which may be there or not.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Properties<'a> {
            $($(#[$doc])* pub $name: Option<$type>,)*
        }

        impl Properties<'_> {
            /// Appends flags and values.
            pub fn encode(&self, out: &mut BytesMut) {
                let mut flags = 0u16;
                $(flags |= if self.$name.is_some() { $flag } else { 0 };)*
                out.put_u16(flags);
                $(if let Some(value) = self.$name {
                    value.write(out);
                })*
            }
        }

        impl<'a> EncodedProperties<'a> {
            $($(#[$doc])* pub fn $name(self) -> Option<$type> {
                <$type as Property<'_>>::of(self.find($flag)?)
            })*

            /// All of them as fields.
            pub fn decode(self) -> Properties<'a> {
                let mut properties = Properties::default();
                self.each(|flag, value| {
                    match flag {
                        $($flag => properties.$name = <$type as Property<'_>>::of(value),)*
                        _ => {}
                    }
                    true
                });
                properties
            }

            /// The type and name of the property with this flag.
            const fn type_of(flag: u16) -> Option<(Type, &'static str)> {
                match flag {
                    $($flag => Some((<$type as Property<'_>>::TYPE, stringify!($name))),)*
                    _ => None,
                }
            }
        }
    };
}

properties! {
    /// MIME type of the body.
    0x8000 content_type: ShortBytes<'a>;
    /// MIME encoding of the body.
    0x4000 content_encoding: ShortBytes<'a>;
    /// The application's headers, and some with a meaning to the broker.
    0x2000 headers: TableRef<'a>;
    /// 2 for a message that outlives a restart; anything else for one that does not.
    0x1000 delivery_mode: u8;
    /// From 0.
    0x0800 priority: u8;
    /// The application's.
    0x0400 correlation_id: ShortBytes<'a>;
    /// Where an answer should go.
    0x0200 reply_to: ShortBytes<'a>;
    /// Milliseconds in decimal, after which the message is no longer wanted.
    0x0100 expiration: ShortBytes<'a>;
    /// The application's.
    0x0080 message_id: ShortBytes<'a>;
    /// Seconds since 1970.
    0x0040 timestamp: u64;
    /// The application's; the specification's `type`.
    0x0020 kind: ShortBytes<'a>;
    /// Who publishes; the broker compares it with who has logged in.
    0x0010 user_id: ShortBytes<'a>;
    /// The application's.
    0x0008 app_id: ShortBytes<'a>;
    /// Not used any more.
    0x0004 cluster_id: ShortBytes<'a>;
}

impl<'a> EncodedProperties<'a> {
    /// Of flags and values, which are gone through to the end, headers included.
    ///
    /// # Errors
    /// All are 502 SYNTAX_ERROR: *ValueShort*, *PropertyFlags*, *PropertiesTrailing*, and those of `TableRef::check`.
    pub fn check(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::check_at(bytes, 0)
    }

    /// `origin`: where in what is decoded the bytes begin.
    pub(crate) fn check_at(bytes: &'a [u8], origin: usize) -> Result<Self, DecodeError> {
        let fail =
            |left: &[u8], field, problem| DecodeError { offset: origin + bytes.len() - left.len(), field, problem };
        let Some((flags, mut rest)) = bytes.split_first_chunk() else {
            return Err(fail(bytes, "flags", Problem::ValueShort { need: 2, have: bytes.len() }));
        };
        let flags = u16::from_be_bytes(*flags);
        if flags & UNKNOWN_FLAGS != 0 {
            return Err(fail(bytes, "flags", Problem::PropertyFlags(flags)));
        }
        for (flag, kind, name) in present(flags) {
            let before = rest;
            let is_table = matches!(kind, Type::Table);
            let value = kind.take(&mut rest).map_err(|problem| fail(before, name, problem))?;
            if is_table {
                debug_assert!(flag == HEADERS, "headers are the only table");
                TableRef::check_at(value, name, origin + bytes.len() - rest.len() - value.len())?;
            }
        }
        if rest.is_empty() {
            Ok(Self(bytes))
        } else {
            Err(fail(rest, "properties", Problem::PropertiesTrailing(rest.len())))
        }
    }

    /// Of bytes that were checked before, flags included. If they are malformed after all, properties are missing.
    pub const fn trusted(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes on the wire, flags included.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Appends the same properties with the headers that `fields` writes; the others are copied as they are.
    pub fn write_with_headers(self, out: &mut BytesMut, fields: impl FnOnce(&mut TableWriter<'_>)) {
        let Some((flags, mut rest)) = self.0.split_first_chunk() else { return };
        let flags = u16::from_be_bytes(*flags);
        out.put_u16(flags | HEADERS);
        let values = rest;
        for (_, kind, _) in present(flags & BEFORE_HEADERS) {
            if kind.take(&mut rest).is_err() {
                break;
            }
        }
        out.put_slice(&values[..values.len() - rest.len()]);
        let start = out.len();
        out.put_u32(0);
        fields(&mut TableWriter::to(out));
        let bytes = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&bytes.to_be_bytes());
        if flags & HEADERS != 0 {
            let _ = Type::Table.take(&mut rest);
        }
        out.put_slice(rest);
    }

    /// Calls with flags and values, in order, until it returns false.
    fn each(self, mut call: impl FnMut(u16, &'a [u8]) -> bool) {
        let Some((flags, mut rest)) = self.0.split_first_chunk() else { return };
        for (flag, kind, _) in present(u16::from_be_bytes(*flags)) {
            match kind.take(&mut rest) {
                Ok(value) if call(flag, value) => {}
                _ => return,
            }
        }
    }

    /// Goes over the properties before it, if it is there.
    fn find(self, wanted: u16) -> Option<&'a [u8]> {
        let flags = u16::from_be_bytes(*self.0.first_chunk()?);
        if flags & wanted == 0 {
            return None;
        }
        let mut found = None;
        self.each(|flag, value| {
            found = (flag == wanted).then_some(value);
            found.is_none()
        });
        found
    }
}

/// The properties whose flags are set, highest first.
fn present(flags: u16) -> impl Iterator<Item = (u16, Type, &'static str)> {
    let mut left = flags;
    std::iter::from_fn(move || {
        let flag = 0x8000u16.checked_shr(left.leading_zeros())?;
        left &= !flag;
        let (kind, name) = EncodedProperties::type_of(flag)?;
        Some((flag, kind, name))
    })
}
