//! What is no filter is refused with the place and the reason.

use filter::{FILTER_BYTES_MAX, FILTER_TESTS_MAX, Filter};

fn check(text: &str, expect: &str) {
    let refused = Filter::parse(text).map(|_| ()).expect_err(text);
    assert_eq!(refused.to_string(), expect, "{text}");
}

#[test]
fn where_and_why() {
    check("", "at character 1: expected a field: key, timestamp or header.NAME, found the end");
    check("name = 'x'", "at character 1: expected a field: key, timestamp or header.NAME, found name");
    check("key", "at character 4: expected =, <>, <, <=, >, >=, IN, BETWEEN, LIKE or IS, found the end");
    check("key ~ 'x'", "at character 5: expected =, <>, <, <=, >, >=, IN, BETWEEN, LIKE or IS, found '~'");
    check("key = ", "at character 7: expected a literal: 'text', X'00ff' or a number, found the end");
    check("key = value", "at character 7: expected a literal: 'text', X'00ff' or a number, found value");
    check("key = 'x", "at character 7: the closing ' is missing");
    check("key = 'x' key", "at character 11: expected AND, OR or the end, found key");
    check("(key = 'x'", "at character 11: expected AND, OR or ), found the end");
    check("key IN ()", "at character 9: expected a literal: 'text', X'00ff' or a number, found ')'");
    check("key IN ('a' 'b')", "at character 13: expected , or ), found '\\''");
    check("key NOT = 'x'", "at character 9: expected IN, BETWEEN or LIKE, found '='");
    check("key = 1.2.3", "at character 7: this is no number");
    check("key = X'0g'", "at character 7: between X' and ' are hexadecimal digits, two a byte");
    check("key = X'0", "at character 10: expected the closing ', found the end");
    check("header. = 'x'", "at character 9: expected the name of a header, found '='");
    check("header.\"x = 'x'", "at character 8: the closing \" is missing");
    check("timestamp > 'now'", "at character 13: timestamp is compared with a number, of milliseconds since 1970");
    check("timestamp LIKE '1%'", "at character 16: timestamp is a number, and LIKE compares text");
    check("key LIKE 5", "at character 10: expected a pattern: 'text', found 5");
    check(
        "key LIKE 'a!' ESCAPE '!'",
        "at character 10: in a pattern %, _ or the escape character follows the escape character",
    );
    check(
        "key LIKE 'a' ESCAPE '!!'",
        "at character 21: ESCAPE is followed by one character in quotes, neither % nor _",
    );
    check("key BETWEEN 1 OR 2", "at character 15: expected AND, found OR");
    check("key = 'größer' und", "at character 16: expected AND, OR or the end, found und");
}

#[test]
fn bounds() {
    let deep = format!("{}key = 'x'{}", "(".repeat(40), ")".repeat(40));
    check(&deep, "at character 34: parentheses and NOT are nested more than 32 deep");
    check(&"NOT ".repeat(8_000), "at character 133: parentheses and NOT are nested more than 32 deep");
    let long = format!("key = '{}'", "x".repeat(FILTER_BYTES_MAX));
    check(&long, "at character 1: the expression has 32775 bytes, at most 32767 are allowed");
    let pattern = format!("key LIKE '{}'", "%x".repeat(200));
    check(&pattern, "at character 10: a pattern has at most 256 characters");
    let wide: Vec<String> = (0..4000).map(|number| format!("'{number}'")).collect();
    assert!(Filter::parse(&format!("key IN ({})", wide.join(","))).is_ok());
    let tests = |count: usize| vec!["NOT key = 'x' OR TRUE"; count / 2].join(" AND ");
    assert!(Filter::parse(&tests(FILTER_TESTS_MAX)).is_ok());
    check(&tests(FILTER_TESTS_MAX + 2), "at character 1: the expression has 1002 tests, at most 1000 are allowed");
    assert!(Filter::parse_kept(&tests(FILTER_TESTS_MAX + 2)).is_ok(), "it was set before there was a bound");
}

/// Nothing that anybody writes panics, takes long, or is refused at a place that is not there.
#[test]
fn damaged_expressions() {
    let whole = "NOT (key IN ('a', X'00ff', 3) OR header.\"über all\" LIKE '%x_' ESCAPE '!') \
        AND timestamp BETWEEN -1 AND 2.5 OR key IS NOT NULL";
    assert!(Filter::parse(whole).is_ok());
    let chars: Vec<char> = whole.chars().collect();
    for at in 0..chars.len() {
        for with in ["", "'", "(", ")", "\"", "\u{1f600}", "-", "NOT "] {
            let text: String =
                chars[..at].iter().copied().chain(with.chars()).chain(chars[at + 1..].iter().copied()).collect();
            if let Err(refused) = Filter::parse(&text) {
                assert!((1..=text.chars().count() + 1).contains(&refused.position), "{text}: {refused}");
                assert!(!refused.reason.is_empty(), "{text}");
            }
        }
    }
}
