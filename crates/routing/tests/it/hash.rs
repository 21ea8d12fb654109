//! Consistent hash exchanges: even shares, few moves, what is hashed.

use std::collections::HashMap;

use routing::{BindError, DeclareError, InvalidBinding, OwnedValue, POINTS_MAX, Table};

use crate::{Message, add_queues, bind, name, plain, queue, route, route_with, string, with};

fn table(arguments: Vec<routing::Argument>) -> Table {
    let mut table = Table::new();
    table.declare(with("h", "x-consistent-hash", arguments)).unwrap();
    add_queues(&mut table, 20);
    table
}

/// Where each of 20,000 keys goes.
fn places(table: &Table) -> Vec<u64> {
    (0..20_000)
        .map(|key| match route(table, "h", &[&format!("key {key}")])[..] {
            [queue] => queue,
            ref more => panic!("one queue gets it, not {more:?}"),
        })
        .collect()
}

fn share(places: &[u64], queue: u64) -> usize {
    places.iter().filter(|found| **found == queue).count()
}

#[test]
fn each_gets_its_share_and_one_that_joins_or_leaves_moves_little() {
    let mut table = table(Vec::new());
    assert_eq!(route(&table, "h", &["nobody is bound"]), [] as [u64; 0]);
    for id in 0..9 {
        bind(&mut table, "h", queue(id), "10");
    }
    let nine = places(&table);
    bind(&mut table, "h", queue(9), "10");
    let ten = places(&table);
    for id in 0..10 {
        assert!((1_800..2_200).contains(&share(&ten, id)), "{id} has {}", share(&ten, id));
    }
    assert!(nine.iter().zip(&ten).all(|(before, after)| before == after || *after == 9), "keys move only to who joins");
    table.unbind(b"h", queue(3), b"10", &Default::default()).unwrap();
    let left = places(&table);
    let moved = ten.iter().zip(&left).filter(|(before, after)| before != after).count();
    assert_eq!(share(&left, 3), 0);
    assert!(moved < 4_400, "its own keys and the last one's, not {moved} of 20000");
    bind(&mut table, "h", queue(10), "30");
    let heavy = places(&table);
    assert!((4_500..5_500).contains(&share(&heavy, 10)), "30 of 120 points, not {}", share(&heavy, 10));
}

#[test]
fn a_destination_has_the_points_of_its_oldest_binding() {
    let mut table = table(Vec::new());
    bind(&mut table, "h", queue(0), "1");
    bind(&mut table, "h", queue(1), "1");
    bind(&mut table, "h", queue(1), "3");
    assert!((9_500..10_500).contains(&share(&places(&table), 1)));
    table.unbind(b"h", queue(1), b"1", &Default::default()).unwrap();
    assert!((14_500..15_500).contains(&share(&places(&table), 1)), "the next one's weight counts now");
    table.unbind(b"h", queue(1), b"3", &Default::default()).unwrap();
    assert_eq!(share(&places(&table), 0), 20_000);
}

#[test]
fn a_header_or_a_property_is_hashed_when_the_exchange_says_so() {
    let by = |arguments, message: &dyn Fn(u64) -> Message| {
        let mut table = table(arguments);
        (0..10).for_each(|id| bind(&mut table, "h", queue(id), "1"));
        let mut counts = HashMap::<u64, usize>::new();
        for number in 0..1_000 {
            let got = route_with(&table, "h", &[&format!("key {number}")], &message(number));
            assert_eq!(got.len(), 1);
            *counts.entry(got[0]).or_default() += 1;
        }
        counts.len()
    };
    let header = |value| Message { headers: vec![("user".into(), value)], ..Message::default() };
    assert_eq!(
        by(vec![string("hash-header", "user")], &|number| header(OwnedValue::Bytes(
            number.to_string().into_bytes().into()
        ))),
        10
    );
    assert_eq!(by(vec![string("hash-header", "user")], &|number| header(OwnedValue::Int(number.cast_signed()))), 10);
    assert_eq!(by(vec![string("hash-header", "user")], &|_| header(OwnedValue::Int(7))), 1);
    assert_eq!(
        by(vec![string("hash-header", "user")], &|_| Message::default()),
        1,
        "without the header all go to one place"
    );
    let id = |number: u64| Message { message_id: Some(number.to_string()), ..Message::default() };
    assert_eq!(by(vec![string("hash-property", "message_id")], &id), 10);
    assert_eq!(by(vec![string("hash-property", "correlation_id")], &id), 1);
    let time = |number| Message { timestamp: Some(number), ..Message::default() };
    assert_eq!(by(vec![string("hash-property", "timestamp")], &time), 10);
}

#[test]
fn what_is_no_weight_and_what_cannot_be_hashed_is_refused() {
    let mut table = table(Vec::new());
    let refused =
        |table: &mut Table, key: &str| table.bind(b"h", queue(0), key.as_bytes(), &Default::default()).unwrap_err();
    assert_eq!(refused(&mut table, "").to_string(), r#"The binding key must be an integer: """#);
    assert_eq!(refused(&mut table, "0").to_string(), "The binding key must be greater than 0");
    assert_eq!(refused(&mut table, "10001").to_string(), "The binding key must not exceed 10000");
    let both = vec![string("hash-header", "a"), string("hash-property", "message_id")];
    assert_eq!(table.declare(with("both", "x-consistent-hash", both)), Err(DeclareError::HashTwice));
    let other = vec![string("hash-property", "reply_to")];
    assert_eq!(
        table.declare(with("other", "x-consistent-hash", other)),
        Err(DeclareError::HashProperty("reply_to".into()))
    );
    assert!(table.exchange(b"both").is_none() && table.exchange(b"other").is_none());
}

#[test]
fn points_are_bounded() {
    let mut table = Table::new();
    table.declare(plain("h", "x-consistent-hash")).unwrap();
    let room = (POINTS_MAX / 10_000) as u64;
    for id in 0..=room {
        table.add_queue(name(&format!("q{id}")), routing::QueueId(id), false).unwrap();
        let bound = table.bind(b"h", queue(id), b"10000", &Default::default());
        assert_eq!(bound.is_ok(), id < room);
        assert!(id < room || bound == Err(BindError::Invalid(InvalidBinding::TooManyPoints)));
    }
}
