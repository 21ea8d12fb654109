//! Names of exchanges and queues: short strings of the protocol, which are bytes.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::NameTooLong;

/// What a short string holds at most, in bytes (AMQP 0-9-1 §4.2.5.3).
pub const NAME_BYTES_MAX: usize = 255;

/// A name of at most [`NAME_BYTES_MAX`] bytes. A copy shares the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// # Errors
    /// [`NameTooLong`]: more than [`NAME_BYTES_MAX`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, NameTooLong> {
        if bytes.len() > NAME_BYTES_MAX { Err(NameTooLong) } else { Ok(Self(bytes.into())) }
    }

    /// The bytes; UTF-8 if the client kept to the protocol.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Names that only the broker gives.
    pub(crate) fn reserved(&self) -> bool {
        self.starts_with(b"amq.")
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}
