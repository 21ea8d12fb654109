//! Values that are slices of a frame: strings, record data, tagged fields that this codec does not know.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::Writer;

/// A UTF-8 string that shares the memory of its frame.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Str(Bytes);

impl Str {
    /// Of a literal, without a copy.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    pub(crate) fn from_utf8(bytes: Bytes) -> Option<Self> {
        std::str::from_utf8(&bytes).ok()?;
        Some(Self(bytes))
    }

    /// As a plain string slice.
    pub fn as_str(&self) -> &str {
        // SAFETY: every constructor takes UTF-8 or checks for it.
        unsafe { std::str::from_utf8_unchecked(&self.0) }
    }
}

impl Deref for Str {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Record batches, as slices that are sent without being copied together.
#[derive(Clone, Debug, Default)]
pub struct Records(pub Vec<Bytes>);

impl Records {
    /// Length of all slices.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In one piece; copies unless there is just one slice.
    pub fn to_bytes(&self) -> Bytes {
        match self.0.as_slice() {
            [one] => one.clone(),
            many => Bytes::from(many.concat()),
        }
    }
}

impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Self {
        Self(vec![bytes])
    }
}

/// Tagged fields of versions to come; kept, so that a message can be passed on whole. Nearly all structures have none, and there may be 100,000 of them
/// in a message: each has one word for it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UnknownTags(Option<Box<Tags>>);

#[derive(Clone, Default, PartialEq, Eq)]
struct Tags(Vec<(u32, Bytes)>);

impl fmt::Debug for UnknownTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnknownTags").field(&self.as_slice()).finish()
    }
}

impl UnknownTags {
    fn as_slice(&self) -> &[(u32, Bytes)] {
        self.0.as_ref().map_or(&[], |tags| &tags.0)
    }

    pub(crate) fn push(&mut self, tag: u32, bytes: Bytes) {
        self.0.get_or_insert_default().0.push((tag, bytes));
    }

    /// Writes `known` tags, which ascend, and these.
    pub(crate) fn encode(&self, writer: &mut Writer, known: Vec<(u32, Writer)>) {
        let unknown = self.as_slice();
        writer.uvarint((known.len() + unknown.len()) as u32);
        for (tag, value) in known {
            writer.uvarint(tag);
            writer.uvarint(value.len() as u32);
            writer.append(value);
        }
        for (tag, bytes) in unknown {
            writer.uvarint(*tag);
            writer.uvarint(bytes.len() as u32);
            writer.raw(bytes);
        }
    }
}
