//! A record as JSON: bytes that are UTF-8 as text, others as base64, long ones cut off.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use record::Record;
use serde_json::{Value, json};

use super::search::size;

/// What the AMQP gateway says of a message (`docs/formats/amqp-message.md`).
const AMQP: &[u8] = b"mainstem.amqp";

/// What a header counts beside its bytes: it may have none, and there may be millions.
const HEADER_BYTES: usize = 64;

/// Of a record, with at most `most` bytes of its key, of its value and of each header, and as many headers as are in `room` bytes.
pub(super) fn record(partition: u32, record: &Record, most: usize, mut room: usize) -> Value {
    let mut headers = Vec::new();
    for (name, value) in &record.headers {
        let shown = name.len().min(most) + value.as_ref().map_or(0, |value| value.len().min(most));
        let Some(left) = room.checked_sub(HEADER_BYTES + shown) else { break };
        room = left;
        headers.push(json!({"name": String::from_utf8_lossy(&name[..name.len().min(most)]), "value": field(value.as_ref(), most)}));
    }
    json!({
        "headers_left_out": record.headers.len() - headers.len(),
        "partition": partition,
        "offset": record.offset.0,
        "timestamp": record.timestamp,
        "bytes": size(record),
        "key": field(record.key.as_ref(), most),
        "value": field(record.value.as_ref(), most),
        "headers": headers,
        "amqp": record.headers.iter().find(|(name, _)| record.vouched && &name[..] == AMQP).and_then(|(_, value)| published(value.as_ref()?)),
    })
}

fn field(bytes: Option<&Bytes>, most: usize) -> Value {
    let Some(bytes) = bytes else { return Value::Null };
    let truncated = bytes.len() > most;
    let part = &bytes[..bytes.len().min(most)];
    match text(part, truncated) {
        Some(text) => json!({"text": text, "base64": null, "bytes": bytes.len(), "truncated": truncated}),
        None => json!({"text": null, "base64": STANDARD.encode(part), "bytes": bytes.len(), "truncated": truncated}),
    }
}

/// What is text; a letter that was cut in two is left out.
fn text(bytes: &[u8], cut: bool) -> Option<&str> {
    let readable = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if cut && error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let printable = |letter: char| !letter.is_control() || ['\n', '\r', '\t'].contains(&letter);
    readable.chars().all(printable).then_some(readable)
}

/// Exchange and routing key of a message that came over AMQP.
fn published(header: &[u8]) -> Option<Value> {
    let (version, rest) = header.split_first()?;
    let (exchange, rest) = short(rest)?;
    let (routing_key, _) = short(rest)?;
    (*version == 1).then(|| json!({"exchange": exchange, "routing_key": routing_key}))
}

fn short(bytes: &[u8]) -> Option<(std::borrow::Cow<'_, str>, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((String::from_utf8_lossy(text), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_or_base64_and_cut_between_letters() {
        let shown = |bytes: &'static [u8], most| field(Some(&Bytes::from_static(bytes)), most);
        assert_eq!(shown(b"abc", 10), json!({"text": "abc", "base64": null, "bytes": 3, "truncated": false}));
        assert_eq!(shown("aé".as_bytes(), 2), json!({"text": "a", "base64": null, "bytes": 3, "truncated": true}));
        assert_eq!(shown(&[0xff, 0], 10), json!({"text": null, "base64": "/wA=", "bytes": 2, "truncated": false}));
        assert_eq!(shown(&[b'a', 0xc3], 10), json!({"text": null, "base64": "YcM=", "bytes": 2, "truncated": false}));
        assert_eq!(shown(b"a\0", 10)["base64"], "YQA=");
        assert_eq!(field(None, 10), Value::Null);
    }

    #[test]
    fn headers_are_shown_as_far_as_there_is_room() {
        let mut one = Record {
            offset: types::Offset(7),
            timestamp: 1,
            key: None,
            value: None,
            headers: record::Headers::new(),
            vouched: false,
        };
        one.headers =
            std::iter::repeat_n((Bytes::from_static(b"a long name"), Some(Bytes::from_static(b"value"))), 10).collect();
        let shown = record(0, &one, 6, 4 * (HEADER_BYTES + 11) + 1);
        assert_eq!((shown["headers"].as_array().map(Vec::len), &shown["headers_left_out"]), (Some(4), &json!(6)));
        assert_eq!(
            shown["headers"][0],
            json!({"name": "a long", "value": {"text": "value", "base64": null, "bytes": 5, "truncated": false}})
        );
        let all = record(0, &one, 1000, 1000);
        assert_eq!((all["headers"].as_array().map(Vec::len), &all["headers_left_out"]), (Some(10), &json!(0)));
    }

    #[test]
    fn messages_of_amqp_say_where_they_went() {
        assert_eq!(published(b"\x01\x02ex\x03key\0\0"), Some(json!({"exchange": "ex", "routing_key": "key"})));
        for damaged in [&b""[..], b"\x01", b"\x01\x05ex", b"\x02\x00\x00", b"\x01\x00"] {
            assert_eq!(published(damaged), None, "{damaged:?}");
        }
    }
}
