//! Short strings: a length byte and at most 255 bytes. The types hold that bound, so that writing one cannot fail.
//!
//! The specification wants UTF-8. RabbitMQ looks at it in methods without content and lets anything pass in methods with
//! content, in names of headers and in properties; hence two types.

use std::fmt;
use std::ops::Deref;

/// The most bytes of a short string.
pub(crate) const SHORT_BYTES_MAX: usize = 255;

/// UTF-8 of at most 255 bytes, borrowed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShortStr<'a>(&'a str);

/// Any bytes, at most 255, borrowed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShortBytes<'a>(&'a [u8]);

/// A literal as a short string.
///
/// # Panics
/// When it is longer than 255 bytes; while compiling, in a constant.
pub const fn short(literal: &'static str) -> ShortStr<'static> {
    assert!(literal.len() <= SHORT_BYTES_MAX, "a short string has at most 255 bytes");
    ShortStr(literal)
}

impl<'a> ShortStr<'a> {
    /// None if `text` is longer than 255 bytes.
    pub const fn new(text: &'a str) -> Option<Self> {
        if text.len() <= SHORT_BYTES_MAX { Some(Self(text)) } else { None }
    }

    /// As much of `text` as fits, whole characters only; for texts that people read.
    pub fn cut(text: &'a str) -> Self {
        Self(&text[..text.floor_char_boundary(SHORT_BYTES_MAX)])
    }

    /// As a plain string slice.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

impl<'a> ShortBytes<'a> {
    /// None if there are more than 255.
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() <= SHORT_BYTES_MAX { Some(Self(bytes)) } else { None }
    }

    /// As a plain slice.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// As text; none if it is not UTF-8.
    pub fn as_str(self) -> Option<ShortStr<'a>> {
        std::str::from_utf8(self.0).ok().map(ShortStr)
    }
}

impl Deref for ShortStr<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        self.0
    }
}

impl Deref for ShortBytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl<'a> From<ShortStr<'a>> for ShortBytes<'a> {
    fn from(text: ShortStr<'a>) -> Self {
        Self(text.0.as_bytes())
    }
}

impl PartialEq<str> for ShortStr<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for ShortStr<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl PartialEq<str> for ShortBytes<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for ShortBytes<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Debug for ShortStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ShortStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for ShortBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
