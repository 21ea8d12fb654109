//! What a queue has to know of a message beside its bytes, as a header of its record. Messages without any have no such header.
//!
//! ```text
//! u8 version (1), u8 flags (1: priority, 2: time to live), u8 priority, u64 time to live in ms
//! ```

use bytes::Buf;
use record::Record;

/// Name of the header.
pub const TRAITS_HEADER: &[u8] = b"mainstem.traits";

const VERSION: u8 = 1;
const PRIORITY: u8 = 1;
const TTL: u8 = 2;

/// What a queue does with a message depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageTraits {
    /// Higher ones are delivered first, where a queue has priorities.
    pub priority: Option<u8>,
    /// Milliseconds after its timestamp nobody wants it any more.
    pub ttl: Option<u64>,
}

impl MessageTraits {
    /// The header's value; `None` when there is nothing to say.
    pub fn encode(self) -> Option<[u8; 11]> {
        if self == Self::default() {
            return None;
        }
        let mut out = [0; 11];
        out[0] = VERSION;
        out[1] = u8::from(self.priority.is_some()) * PRIORITY + u8::from(self.ttl.is_some()) * TTL;
        out[2] = self.priority.unwrap_or(0);
        out[3..].copy_from_slice(&self.ttl.unwrap_or(0).to_be_bytes());
        Some(out)
    }

    /// Of a record, whoever made it. A header of another form says nothing.
    pub fn of(record: &Record) -> Self {
        let found =
            record.headers.iter().find(|(name, _)| **name == *TRAITS_HEADER).and_then(|(_, value)| value.as_deref());
        found.and_then(Self::decode).unwrap_or_default()
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        (bytes.try_get_u8().ok()? == VERSION).then_some(())?;
        let (flags, priority, ttl) = (bytes.try_get_u8().ok()?, bytes.try_get_u8().ok()?, bytes.try_get_u64().ok()?);
        Some(Self { priority: (flags & PRIORITY != 0).then_some(priority), ttl: (flags & TTL != 0).then_some(ttl) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(MessageTraits::default().encode(), None);
        for (priority, ttl) in [(Some(9), None), (None, Some(0)), (Some(255), Some(60_000)), (Some(0), None)] {
            let traits = MessageTraits { priority, ttl };
            let bytes = traits.encode().expect("something to say");
            assert_eq!(MessageTraits::decode(&bytes), Some(traits));
            assert_eq!(MessageTraits::decode(&bytes[..10]), None);
        }
        assert_eq!(MessageTraits::decode(&[2; 11]), None);
    }
}
