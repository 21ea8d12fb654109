//! The few kinds of protobuf fields that OTLP's messages for metrics have, written and, for answers, read. Source: "Protocol Buffers
//! Encoding".

/// Kinds of fields on the wire.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// A message that is being written. Fields with the value that an absent one has are left out, except where they are alternatives.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A whole number, true or false, a word of an enumeration.
    pub fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3 | VARINT);
            self.varint(value);
        }
    }

    /// Eight bytes, little-endian: fixed64, sfixed64 or double. Written also when it is 0.
    pub fn fixed(&mut self, field: u64, bits: u64) {
        self.varint(field << 3 | FIXED64);
        self.0.extend_from_slice(&bits.to_le_bytes());
    }

    /// Text; none: the field is absent.
    pub fn text(&mut self, field: u64, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A message in this one; also when it is empty.
    pub fn message(&mut self, field: u64, inner: &Self) {
        self.bytes(field, &inner.0);
    }

    /// A list of values of eight bytes, packed.
    pub fn packed(&mut self, field: u64, values: impl ExactSizeIterator<Item = u64>) {
        self.varint(field << 3 | BYTES);
        self.varint(values.len() as u64 * 8);
        values.for_each(|bits| self.0.extend_from_slice(&bits.to_le_bytes()));
    }

    /// As it is sent.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A field of a message that was received.
#[derive(Debug, PartialEq, Eq)]
pub enum Field<'b> {
    /// A whole number.
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'b [u8]),
    /// Of four or eight bytes.
    Fixed,
}

/// Fields of a message that was received; ends where it makes no sense.
pub struct Fields<'b>(pub &'b [u8]);

impl<'b> Fields<'b> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..10 {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: u64) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = (u64, Field<'b>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            VARINT => Field::Number(self.varint()?),
            BYTES => {
                let count = self.varint()?;
                Field::Bytes(self.take(count)?)
            }
            FIXED64 => self.take(8).map(|_| Field::Fixed)?,
            FIXED32 => self.take(4).map(|_| Field::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut inner = Message::default();
        inner.text(1, "testing");
        let mut message = Message::default();
        message.number(1, 150);
        message.number(9, 0);
        message.fixed(2, 1);
        message.message(3, &inner);
        message.packed(16, [1, 2].into_iter());
        let bytes = message.into_bytes();
        // The first two are the examples of the documentation.
        assert_eq!(
            (&bytes[..3], &bytes[12..23]),
            (&[0x08, 0x96, 0x01][..], &[0x1a, 9, 0x0a, 7, b't', b'e', b's', b't', b'i', b'n', b'g'][..])
        );
        let fields: Vec<_> = Fields(&bytes).collect();
        assert_eq!((&fields[0], &fields[1]), (&(1, Field::Number(150)), &(2, Field::Fixed)));
        assert_eq!((fields.len(), fields[3].0), (4, 16));
    }

    #[test]
    fn what_makes_no_sense_ends() {
        for wrong in [&[0x08][..], &[0x0a, 0x7f, 1], &[0xff; 12], &[0x0b], &[0x09, 1, 2]] {
            assert_eq!(Fields(wrong).count(), 0, "{wrong:?}");
        }
    }
}
