//! Conditions on JSON: what they find, what they refuse and where.

use super::*;

fn holds(condition: &str, value: &str) -> bool {
    JsonCondition::parse(condition).unwrap_or_else(|wrong| panic!("{condition}: {wrong:?}")).holds(value.as_bytes())
}

#[test]
fn paths_find_what_is_there() {
    let value = r#"{"order": {"id": 42, "total": 99.5, "lines": [{"sku": "A-1"}, {"sku": "B-17"}], "a.b": "dot", "note": null}, "vip": true}"#;
    for condition in [
        "order.id = 42",
        "$.order.id=42.0",
        "order.id == 42",
        "order.total < 100",
        "order.total >= 99.5",
        "order.lines[1].sku = B-17",
        "order.lines[*].sku ~ 17",
        r#"$["order"]["a.b"] = "dot""#,
        "vip",
        "vip = true",
        "order.id != 43",
        "order.lines",
        "order.lines[0].sku != B-17",
    ] {
        assert!(holds(condition, value), "{condition}");
    }
    for condition in [
        "order.id = 43",
        "order.total > 100",
        "order.total > 99.5",
        "order.note",
        "order.nothing",
        "order.lines[2].sku",
        "order.lines[*].sku = C",
        "order.id.more",
        "order.lines.sku = A-1",
        "vip = false",
        "order.id ~ 5",
    ] {
        assert!(!holds(condition, value), "{condition}");
    }
}

#[test]
fn what_is_no_json_has_nothing() {
    for value in ["", "text", "42", "{", "{\"a\": 1", "\u{0}\u{1}"] {
        assert!(!holds("a", value), "{value}");
    }
    assert!(holds("[0] = 1", " [1, 2]"));
}

#[test]
fn wrong_conditions_say_where() {
    for (condition, position) in [
        ("", 0),
        ("= 3", 0),
        ("a..b", 2),
        ("a.", 2),
        ("a[x]", 1),
        ("a[1", 1),
        ("a[\"b\"", 1),
        ("a < b", 1),
        ("a 7", 1),
        ("$", 1),
    ] {
        let wrong = JsonCondition::parse(condition).expect_err(condition);
        assert_eq!(wrong.position, position, "{condition}: {}", wrong.reason);
    }
}

#[test]
fn all_conditions_have_to_hold() {
    let record = Record {
        offset: types::Offset(0),
        timestamp: 0,
        key: Some("anna".into()),
        value: Some(r#"{"n": 1}"#.into()),
        headers: [("trace".into(), Some("7".into())), ("empty".into(), None)].into_iter().collect(),
        vouched: false,
    };
    let all = |key: &str, header: (&str, Option<&str>), text: &str| Conditions {
        key_part: Some(finder(key)),
        header: Some((header.0.to_owned(), header.1.map(str::to_owned))),
        text: Some(finder(text)),
        json: JsonCondition::parse("n = 1").ok(),
        ..Conditions::default()
    };
    assert!(all("nn", ("trace", Some("7")), "n\"").hold(&record));
    assert!(all("anna", ("empty", None), "").hold(&record));
    assert!(!all("bert", ("trace", None), "").hold(&record));
    assert!(!all("anna", ("trace", Some("8")), "").hold(&record));
    assert!(!all("anna", ("other", None), "").hold(&record));
    assert!(!all("anna", ("trace", None), "m").hold(&record));
    assert!(!Conditions { key: Some("ann".into()), ..Conditions::default() }.hold(&record));
}

#[test]
fn a_part_that_nearly_fits_everywhere_costs_no_more_than_another() {
    let value = vec![b'a'; 8 << 20];
    let part = "a".repeat(256 << 10) + "b";
    let record = Record {
        offset: types::Offset(0),
        timestamp: 0,
        key: None,
        value: Some(value.into()),
        headers: record::Headers::new(),
        vouched: false,
    };
    let began = std::time::Instant::now();
    assert!(!Conditions { text: Some(finder(&part)), ..Conditions::default() }.hold(&record));
    assert!(Conditions { text: Some(finder(&part[1 << 10..256 << 10])), ..Conditions::default() }.hold(&record));
    // Compared at each place it would be 2,000,000,000,000 bytes.
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
}
