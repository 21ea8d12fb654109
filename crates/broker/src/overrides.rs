//! Settings that were set for one topic or group, by name, and how records of keyed state keep them.
//!
//! ```text
//! u32 count, (u16 length, name, u16 length, value) each
//! ```

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, BytesMut};

/// Values by name.
pub(crate) type Overrides = BTreeMap<String, String>;

pub(crate) fn encode(overrides: &Overrides, out: &mut BytesMut) {
    out.put_u32(overrides.len() as u32);
    for text in overrides.iter().flat_map(|(name, value)| [name, value]) {
        put_text(out, text);
    }
}

/// Values and names are bounded where they are set. What is longer all the same is cut: what follows it stays readable.
pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    let text = &text[..text.floor_char_boundary(u16::MAX.into())];
    out.put_u16(text.len() as u16);
    out.put_slice(text.as_bytes());
}

/// Reads what [`encode`] wrote; `None` when the bytes are none.
pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Overrides> {
    let mut overrides = Overrides::new();
    for _ in 0..bytes.try_get_u32().ok()? {
        let (name, value) = (take_text(bytes)?, take_text(bytes)?);
        overrides.insert(name, value);
    }
    Some(overrides)
}

pub(crate) fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let length = bytes.try_get_u16().ok()? as usize;
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    String::from_utf8(head.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_shorter() {
        let overrides: Overrides = [("retention.ms", "100"), ("cleanup.policy", ""), ("ключ", "значение")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into();
        let mut out = BytesMut::new();
        encode(&overrides, &mut out);
        out.extend_from_slice(b"rest");
        let mut bytes = &out[..];
        assert_eq!(decode(&mut bytes), Some(overrides));
        assert_eq!(bytes, b"rest");
        for end in 0..out.len() - 4 {
            assert_eq!(decode(&mut &out[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn a_text_that_is_too_long_leaves_what_follows_readable() {
        let overrides: Overrides =
            [("a", "é".repeat(40_000)), ("b", "2".to_owned())].map(|(a, b)| (a.to_owned(), b)).into();
        let mut out = BytesMut::new();
        encode(&overrides, &mut out);
        let read = decode(&mut &out[..]).expect("readable");
        assert_eq!((read["a"].len(), &*read["b"]), (65_534, "2"));
    }

    #[test]
    fn a_count_that_promises_more_than_there_is_costs_nothing() {
        assert_eq!(decode(&mut &[0xff; 6][..]), None);
    }
}
