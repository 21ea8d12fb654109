//! Which expressions ask for a field, and how much a summary keeps.

use filter::{Filter, Summary};
use record::{BatchBuilder, select};

fn wants(text: &str) -> bool {
    Filter::parse(text).expect("valid").wanted().is_some()
}

#[test]
fn what_has_to_be_there() {
    for text in [
        "key = 'a'",
        "header.x IN ('a', 'b')",
        "key = 'a' AND timestamp > 5",
        "key = 'a' OR key IN ('b')",
        "TRUE AND key = 'a'",
    ] {
        assert!(wants(text), "{text}");
    }
    for text in [
        "key <> 'a'",
        "NOT key = 'a'",
        "key = 5",
        "key IN ('a', 5)",
        "key = 'a' OR header.x = 'a'",
        "key = 'a' OR TRUE",
        "TRUE",
    ] {
        assert!(!wants(text), "{text}");
    }
}

#[test]
fn a_summary_is_small_and_of_one_field() {
    let filter = Filter::parse("key = 'absent'").expect("valid");
    let other = Filter::parse("header.key = 'absent'").expect("valid");
    let (wanted, other) = (filter.wanted().unwrap(), other.wanted().unwrap());
    for (different, skips) in [(1, true), (64, true), (65, false), (5000, false)] {
        let mut builder = BatchBuilder::default();
        for number in 0..5000 {
            builder = builder.record(0, Some((number % different).to_string().as_bytes()), None);
        }
        let mut summary = Summary::new(wanted);
        select(&builder.build(), 1 << 24, |record| {
            summary.add(wanted, record);
            Some(false)
        })
        .expect("a batch");
        assert_eq!(!summary.may_have(wanted), skips, "{different} keys");
        assert!(summary.memory_bytes() <= 64 * 8 * 2 + 64, "{}", summary.memory_bytes());
        assert!(summary.is_about(wanted) && !summary.is_about(other));
    }
}
