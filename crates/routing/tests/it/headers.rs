//! Headers exchanges: `x-match`, presence, and which values are equal.

use routing::{
    Argument, Arguments, BindError, Destination, InvalidBinding, OwnedValue, STEPS_MAX, Scratch, Table, TooFar,
};

use crate::{Message, add_queues, queue, route_with, string, with};

fn value(name: &str, tag: u8, value: OwnedValue) -> Argument {
    Argument { name: name.as_bytes().into(), tag, value }
}

fn void(name: &str) -> Argument {
    value(name, b'V', OwnedValue::Void)
}

fn matches(arguments: Vec<Argument>, headers: &[(&str, OwnedValue)]) -> bool {
    let mut table = Table::new();
    add_queues(&mut table, 1);
    table.bind(b"amq.headers", queue(0), b"ignored", &Arguments::new(arguments)).unwrap();
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let message = Message { headers, ..Message::default() };
    !route_with(&table, "amq.headers", &["other"], &message).is_empty()
}

fn text(value: &str) -> OwnedValue {
    OwnedValue::Bytes(value.as_bytes().into())
}

#[test]
fn all_any_and_headers_that_begin_with_x() {
    let message = [("a", text("1")), ("b", text("2")), ("x-c", text("3"))];
    for (rule, arguments, expected) in [
        (None, vec![string("a", "1"), string("b", "2")], true),
        (None, vec![string("a", "1"), string("b", "3")], false),
        (None, vec![string("a", "1"), string("x-c", "other")], true),
        (None, vec![], true),
        (Some("all"), vec![string("a", "1"), string("d", "1")], false),
        (Some("any"), vec![string("a", "1"), string("b", "3")], true),
        (Some("any"), vec![string("a", "0"), string("x-c", "3")], false),
        (Some("any"), vec![], false),
        (Some("all-with-x"), vec![string("a", "1"), string("x-c", "3")], true),
        (Some("all-with-x"), vec![string("a", "1"), string("x-c", "4")], false),
        (Some("any-with-x"), vec![string("a", "0"), string("x-c", "3")], true),
        (Some("any-with-x"), vec![], false),
        (Some("all-with-x"), vec![], true),
    ] {
        let all: Vec<_> = arguments.iter().cloned().chain(rule.map(|rule| string("x-match", rule))).collect();
        assert_eq!(matches(all, &message), expected, "{rule:?} {arguments:?}");
    }
}

#[test]
fn values_are_equal_by_class_and_content() {
    let int = OwnedValue::Int;
    assert!(matches(vec![value("n", b'l', int(1))], &[("n", int(1))]), "the width of an integer does not count");
    assert!(!matches(vec![value("n", b'l', int(1))], &[("n", int(2))]));
    assert!(!matches(vec![value("n", b'l', int(1))], &[("n", OwnedValue::Float(1.0))]));
    assert!(!matches(vec![string("n", "1")], &[("n", int(1))]));
    assert!(!matches(vec![value("n", b't', OwnedValue::Bool(true))], &[("n", int(1))]));
    assert!(!matches(vec![value("n", b'T', OwnedValue::Timestamp(1))], &[("n", int(1))]));
    assert!(matches(vec![value("n", b'T', OwnedValue::Timestamp(1))], &[("n", OwnedValue::Timestamp(1))]));
    assert!(matches(vec![value("n", b'f', OwnedValue::Float(0.5))], &[("n", OwnedValue::Float(0.5))]));
    assert!(matches(vec![void("n")], &[("n", int(9))]), "an argument without a value asks for presence");
    assert!(matches(vec![void("n")], &[("n", OwnedValue::Void)]));
    assert!(!matches(vec![void("n")], &[("m", int(9))]));
    assert!(!matches(vec![string("n", "")], &[("n", OwnedValue::Void)]));
}

#[test]
fn of_a_header_that_comes_twice_the_one_that_counts_decides() {
    let message = [("a", text("old")), ("a", text("new"))];
    for rule in ["all", "any"] {
        assert!(!matches(vec![string("x-match", rule), string("a", "old")], &message));
        assert!(matches(vec![string("x-match", rule), string("a", "new")], &message));
    }
}

#[test]
fn many_headers_are_gone_through_once_however_many_conditions_there_are() {
    const COUNT: usize = 2000;
    let names: Vec<String> = (0..COUNT).map(|number| format!("h{number:04}")).collect();
    let mut table = Table::new();
    add_queues(&mut table, 4);
    let conditions = |rule: &str, value: &str| {
        names.iter().map(|name| string(name, value)).chain([string("x-match", rule)]).collect()
    };
    for (id, arguments) in [
        (0, conditions("all", "1")),
        (1, conditions("all", "2")),
        (2, conditions("any", "1")),
        (3, conditions("any", "2")),
    ] {
        table.bind(b"amq.headers", queue(id), b"", &Arguments::new(arguments)).unwrap();
    }
    // The first of the headers comes twice, once with each value; the one that came last counts.
    let mut headers: Vec<_> = names.iter().map(|name| (name.clone(), text("1"))).collect();
    headers.insert(0, (names[0].clone(), text("2")));
    let message = Message { headers, ..Message::default() };
    assert_eq!(route_with(&table, "amq.headers", &[""], &message), [0, 2]);
    assert!(message.steps.get() <= 2 * (COUNT + 1), "{}", message.steps.get());
}

/// Each exchange goes through them for itself.
#[test]
fn many_headers_go_through_so_many_exchanges_and_no_more() {
    const COUNT: usize = 4000;
    // Half of them are headers of a name that is there.
    let headers = (0..COUNT).map(|number| (format!("h{:04}", number / 2), text("1"))).collect();
    let message = Message { headers, ..Message::default() };
    let hash = vec![string("hash-header", "h0000")];
    for (kind, arguments, key, match_all) in
        [("headers", vec![], "", vec![string("h0000", "1")]), ("x-consistent-hash", hash, "1", vec![])]
    {
        let outcome = |exchanges: usize| {
            let mut table = Table::new();
            add_queues(&mut table, 1);
            for number in 0..exchanges {
                let name = format!("x{number}");
                table.declare(with(&name, kind, arguments.clone())).unwrap();
                table.bind(b"amq.fanout", Destination::Exchange(name.as_bytes()), b"", &Arguments::NONE).unwrap();
                let conditions = Arguments::new(match_all.clone());
                table.bind(name.as_bytes(), queue(0), key.as_bytes(), &conditions).unwrap();
            }
            let mut queues = Vec::new();
            let exchange = table.exchange(b"amq.fanout").unwrap();
            let outcome = exchange.route(&[b""], &message, &mut Scratch::default(), &mut queues);
            outcome.map(|()| queues.len())
        };
        assert_eq!(outcome(400), Ok(1), "{kind}");
        let before = message.steps.get();
        assert_eq!(outcome(4000), Err(TooFar), "{kind}");
        let steps = message.steps.get() - before;
        assert!(steps < 9 * STEPS_MAX, "{kind}: {steps} headers were gone through");
    }
}

#[test]
fn x_match_has_to_be_one_of_four_strings() {
    let mut table = Table::new();
    add_queues(&mut table, 1);
    let mut refused = |argument| table.bind(b"amq.match", queue(0), b"", &Arguments::new(vec![argument])).unwrap_err();
    assert_eq!(refused(string("x-match", "some")), BindError::Invalid(InvalidBinding::Match("some".into())));
    let number = InvalidBinding::MatchType { tag: b'I', value: "1".into() };
    assert_eq!(refused(value("x-match", b'I', OwnedValue::Int(1))), BindError::Invalid(number));
    assert_eq!(
        refused(value("x-match", b'I', OwnedValue::Int(1))).to_string(),
        "Invalid x-match field type signedint (value 1); expected longstr"
    );
    assert_eq!(table.binding_count(), 0);
}
