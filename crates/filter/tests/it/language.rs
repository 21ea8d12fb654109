//! What expressions mean, record by record.

use bytes::Bytes;
use filter::Filter;
use record::{BatchBuilder, Fields, select};

/// A batch of one record.
fn batch(timestamp: i64, key: Option<&[u8]>, headers: &[(&[u8], Option<&[u8]>)]) -> Bytes {
    BatchBuilder::default().record_with_headers(timestamp, key, Some(b"value"), headers).build()
}

fn matches(text: &str, batch: &[u8]) -> bool {
    let filter = Filter::parse(text).unwrap_or_else(|refused| panic!("{text}: {refused}"));
    let mut answer = None;
    select(batch, 1 << 24, |record| {
        answer = Some(filter.matches(record));
        Some(true)
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
    assert!(
        matches("key = 9007199254740993", &large) && !matches("key = 9007199254740992", &large),
        "whole numbers are exact"
    );
}

#[test]
fn patterns_count_characters() {
    let of = |key: &[u8], pattern: &str| matches(&format!("key LIKE '{pattern}'"), &batch(0, Some(key), &[]));
    assert!(of("日".as_bytes(), "%_") && !of("日".as_bytes(), "%__"), "one character, however many bytes");
    assert!(of("日本".as_bytes(), "%__") && !of("日本".as_bytes(), "%___") && of("日本".as_bytes(), "%本"));
    assert!(of("a日b".as_bytes(), "a_b") && !of("a日b".as_bytes(), "a__b"));
    // Bytes that are no UTF-8 are a character each, and none that a pattern can name.
    assert!(of(b"a\xff\xfeb", "a__b") && !of(b"a\xff\xfeb", "a_b") && of(b"a\xff\xfeb", "a%b"));
    assert!(of(b"\xe6\x97", "__") && of(b"\xe6a", "%a") && !of(b"\xe6a", "a"));
    let long = "x".repeat(255);
    assert!(of(long.as_bytes(), &long) && of(format!("{long}y").as_bytes(), &format!("{long}_")));
    assert!(!of(format!("{long}y").as_bytes(), &long) && !of(&long.as_bytes()[1..], &long));
    for steps in 62..67 {
        let text = "ab".repeat(steps)[..steps].to_owned();
        assert!(
            of(format!("--{text}--").as_bytes(), &format!("%{text}%"))
                && !of(format!("--{text}").as_bytes(), &format!("%{text}_%"))
        );
    }
}

/// A record that has only this.
struct Key<'a>(&'a [u8]);

impl Fields for Key<'_> {
    fn key(&self) -> Option<&[u8]> {
        Some(self.0)
    }

    fn header(&self, _name: &[u8]) -> Option<&[u8]> {
        None
    }

    fn headers_bytes(&self) -> usize {
        0
    }

    fn timestamp(&self) -> i64 {
        0
    }
}

/// Patterns and texts of two letters, against the meaning of `%` and `_` spelt out.
#[test]
fn patterns_mean_what_they_say() {
    fn means(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'%', rest)) => (0..=text.len()).any(|taken| means(rest, &text[taken..])),
            Some((step, rest)) => {
                text.split_first().is_some_and(|(one, more)| (*step == b'_' || step == one) && means(rest, more))
            }
        }
    }
    let all = |letters: &[u8], length: u32| {
        let letters = letters.to_vec();
        (0..letters.len().pow(length)).map(move |number| {
            (0..length).map(|place| letters[number / letters.len().pow(place) % letters.len()]).collect::<Vec<u8>>()
        })
    };
    for pattern in (0..=5).flat_map(|length| all(b"ab%_", length)) {
        let text = format!("key LIKE '{}'", String::from_utf8_lossy(&pattern));
        let filter = Filter::parse(&text).expect("a pattern");
        for key in (0..=4).flat_map(|length| all(b"ab", length)) {
            assert_eq!(filter.matches(&Key(&key)), means(&pattern, &key), "{text} of {key:?}");
        }
    }
}

/// A matcher that goes back takes as many times longer as the pattern is longer.
#[test]
fn patterns_end() {
    let key = vec![b'a'; 1 << 20];
    let long = batch(0, Some(&key), &[]);
    assert!(!matches(&format!("key LIKE '{}b'", "a%".repeat(120)), &long));
    let took = |length: usize| {
        let text = format!("key LIKE '%{}b%'", "a".repeat(length));
        let one = || {
            let began = std::time::Instant::now();
            assert!(!matches(&text, &long));
            began.elapsed()
        };
        (0..3).map(|_| one()).min().expect("three")
    };
    let (short, slow) = (took(1), took(253));
    assert!(slow < short * 40, "{slow:?} for 253 characters, {short:?} for one");
}
