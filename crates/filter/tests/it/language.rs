//! What expressions mean, record by record.

use bytes::Bytes;
use filter::Filter;
use record::{BatchBuilder, select};

/// A batch of one record.
fn batch(timestamp: i64, key: Option<&[u8]>, headers: &[(&[u8], Option<&[u8]>)]) -> Bytes {
    BatchBuilder::default().record_with_headers(timestamp, key, Some(b"value"), headers).build()
}

fn matches(text: &str, batch: &[u8]) -> bool {
    let filter = Filter::parse(text).unwrap_or_else(|refused| panic!("{text}: {refused}"));
    let mut answer = None;
    select(batch, |record| {
        answer = Some(filter.matches(record));
        true
    })
    .expect("a batch");
    answer.expect("one record")
}

#[test]
fn what_matches() {
    let headers: [(&[u8], Option<&[u8]>); 4] =
        [(b"type", Some(b"created")), (b"price", Some(b"12.50")), (b"empty", None), (b"content-type", Some(b"a/b"))];
    let one = batch(1000, Some(b"order-17"), &headers);
    for text in [
        "key = 'order-17'",
        "KEY = 'order-17' and Header.type = 'created'",
        "key = X'6f726465722d3137'",
        "key <> 'order-18'",
        "key IN ('a', 'order-17')",
        "key NOT IN ('a', 'b')",
        "key LIKE 'order-%'",
        "key LIKE '%-1_'",
        "key LIKE 'order-!_' ESCAPE '!' OR key LIKE '%7'",
        "key BETWEEN 'order-10' AND 'order-20'",
        "header.price > 12",
        "header.price = 12.5",
        "header.price BETWEEN 12 AND 13",
        "header.price IN (1, 12.50)",
        "header.type = 'created' AND NOT header.price < 12.5",
        "header.missing IS NULL AND header.empty IS NULL AND header.type IS NOT NULL",
        "header.content-type = 'a/b'",
        "header.\"content-type\" = 'a/b'",
        "timestamp = 1000 AND timestamp >= 1000 AND timestamp < 1000.5",
        "timestamp BETWEEN 900 AND 1100",
        "timestamp IN (1, 1000)",
        "timestamp IS NOT NULL",
        "TRUE",
        "FALSE OR (TRUE AND NOT FALSE)",
        "key = 'x' OR key = 'y' OR key = 'order-17'",
        "key = 'x' AND key = 'y' OR key = 'order-17'",
        "  key\n=\t'order-17'  ",
    ] {
        assert!(matches(text, &one), "{text}");
    }
    for text in [
        "key = 'order-1'",
        "key = 'ORDER-17'",
        "key LIKE 'order-'",
        "key LIKE '_'",
        "header.Type = 'created'",
        "header.price > 12.5",
        "header.type > 5",
        "NOT header.type > 5",
        "header.missing = 'x'",
        "header.missing <> 'x'",
        "NOT header.missing = 'x'",
        "header.missing NOT IN ('x')",
        "header.missing LIKE '%'",
        "header.empty = ''",
        "timestamp > 1000",
        "FALSE",
        "key = 'order-17' AND (header.type = 'x' OR header.price = 3)",
    ] {
        assert!(!matches(text, &one), "{text}");
    }
}

#[test]
fn records_without_a_key_and_with_quotes() {
    let none = batch(-5, None, &[(b"it's", Some("it's größer".as_bytes()))]);
    assert!(matches("key IS NULL", &none));
    assert!(!matches("key = ''", &none) && !matches("key <> 'x'", &none));
    assert!(matches("header.\"it's\" = 'it''s größer'", &none));
    assert!(matches("header.\"it's\" LIKE 'it''s gr__er'", &none), "_ is a character, of however many bytes");
    assert!(matches("timestamp = -5", &none));
    let empty = batch(0, Some(b""), &[]);
    assert!(matches("key = '' AND key IS NOT NULL AND key LIKE '%'", &empty));
    let wild = batch(0, Some(b"50%_x"), &[]);
    assert!(matches("key LIKE '50!%!__' ESCAPE '!'", &wild) && !matches("key LIKE '51!%%' ESCAPE '!'", &wild));
    let large = batch(0, Some(b"9007199254740993"), &[]);
    assert!(matches("key = 9007199254740993", &large) && !matches("key = 9007199254740992", &large), "whole numbers are exact");
}

/// A pattern that would take a matcher of two minds for ever.
#[test]
fn patterns_end() {
    let key = vec![b'a'; 100_000];
    let long = batch(0, Some(&key), &[]);
    let pattern = format!("key LIKE '{}b'", "a%".repeat(120));
    assert!(!matches(&pattern, &long));
}
