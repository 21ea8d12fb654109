//! What it takes to judge a record is counted, and bounded before it is done.

use filter::{Filter, Steps, UsedUp};
use record::Fields;

/// A record with one key and a header of this name.
struct One<'a> {
    key: &'a [u8],
    header: (&'a [u8], &'a [u8]),
    headers_bytes: usize,
}

impl Fields for One<'_> {
    fn key(&self) -> Option<&[u8]> {
        Some(self.key)
    }

    fn header(&self, name: &[u8]) -> Option<&[u8]> {
        (name == self.header.0).then_some(self.header.1)
    }

    fn headers_bytes(&self) -> usize {
        self.headers_bytes
    }

    fn timestamp(&self) -> i64 {
        0
    }
}

fn steps(text: &str, record: &One<'_>) -> usize {
    let filter = Filter::parse(text).expect(text);
    let mut steps = Steps::new(usize::MAX);
    let judged = filter.judge(record, &mut steps).expect("there are enough");
    let needed = usize::MAX - steps.left();
    // As many suffice, and one less does not.
    assert_eq!(filter.judge(record, &mut Steps::new(needed)), Ok(judged), "{text}");
    assert_eq!(filter.judge(record, &mut Steps::new(needed - 1)), Err(UsedUp), "{text}");
    assert_eq!(filter.matches(record), judged);
    needed
}

#[test]
fn steps_grow_with_tests_and_with_what_they_look_at() {
    let short = One { key: b"k", header: (b"h", b"1"), headers_bytes: 4 };
    assert!(steps("key = 'x'", &short) <= 4);
    for test in [
        "key = 'x'",
        "key < 0",
        "key LIKE '%a%b'",
        "header.h = 'x'",
        "timestamp < 0",
        "key BETWEEN 'x' AND 'y'",
        "key IN ('x', 5)",
    ] {
        let (one, hundred) = (steps(test, &short), steps(&vec![test; 100].join(" OR "), &short));
        assert_eq!(hundred, 100 * one, "{test}");
    }
    // What is decided is looked at no further.
    assert_eq!(steps("key = 'k' OR key LIKE '%x' OR key < 0", &short), steps("key = 'k'", &short));
    let long = One { key: &[b'k'; 100_000], header: (b"h", &[b'1'; 100_000]), headers_bytes: 200_000 };
    for test in ["key < 0", "key LIKE '%a%b'", "header.h < 0", "header.h LIKE '%x'", "key IN (1, 2)"] {
        assert!(steps(test, &long) >= 100_000, "{test}");
    }
    assert!(steps("header.none IS NULL", &long) >= 10_000, "all headers are gone through");
    let wide = format!("key LIKE '%{}'", "a".repeat(200));
    assert!(steps(&wide, &long) >= 3 * 100_000, "a long pattern has more words");
    // Many literals are looked up, not gone through.
    let many: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    assert!(steps(&format!("key IN ({})", many.join(",")), &short) <= 16);
}
