//! What a table holds is counted, and gone from the account when it is gone.

use std::sync::Arc;

use routing::{Arguments, DefinitionMemory, Destination, OwnedValue, QueueId, Table};

use crate::{add_queues, bind, declare, plain, queue, string, with};

fn long(number: usize, bytes: usize) -> Arguments {
    Arguments::new(vec![string(&format!("h{number}"), &"x".repeat(bytes))])
}

#[test]
fn exchanges_bindings_and_their_arguments_are_counted_until_they_go() {
    let account = Arc::new(DefinitionMemory::default());
    let mut table = Table::counted(Arc::clone(&account));
    assert_eq!(account.bytes(), 0, "what is always there is not counted");
    add_queues(&mut table, 10);
    for number in 0..100 {
        table.bind(b"amq.headers", queue(number % 10), b"", &long(number as usize, 30_000)).expect("valid");
    }
    let bound = account.bytes();
    assert!((9_000_000..10_000_000).contains(&bound), "3 MB, in the table, in its index and in their records: {bound}");
    table.bind(b"amq.headers", queue(5), b"", &long(5, 30_000)).expect("it is there");
    assert_eq!(account.bytes(), bound);
    assert_eq!(table.weight_of_new(b"amq.headers", queue(5), b"", &long(5, 30_000)), 0, "it is there");
    let more = table.weight_of_new(b"amq.headers", queue(5), b"", &long(500, 30_000));
    assert!(more > 90_000, "{more}");
    for _ in 0..2 {
        table.unbind(b"amq.headers", queue(5), b"", &long(5, 30_000)).expect("valid");
    }
    let one = bound - account.bytes();
    assert!((90_000..100_000).contains(&one), "{one}");

    // Words of a topic and points of a ring count.
    let at = |table: &mut Table, kind: &str, key: &str| {
        declare(table, kind, kind).expect("new");
        let before = account.bytes();
        bind(table, kind, queue(1), key);
        account.bytes() - before
    };
    let (fanout, topic, ring) = (
        at(&mut table, "fanout", "1"),
        at(&mut table, "topic", &"a.".repeat(100)),
        at(&mut table, "x-consistent-hash", "10000"),
    );
    assert!(topic > fanout + 100 * 80 && ring > fanout + 40_000, "{fanout} {topic} {ring}");

    // All ways to go.
    table.declare(with("long", "direct", vec![string("a", &"x".repeat(50_000))])).expect("new");
    bind(&mut table, "long", Destination::Exchange(b"topic"), "k");
    table.remove_binding(b"long", Destination::Exchange(b"topic"), b"k", &Arguments::default());
    bind(&mut table, "topic", Destination::Exchange(b"long"), "k");
    table.delete(b"long", false).expect("it is there");
    table.delete(b"topic", false).expect("it is there");
    (0..10).for_each(|id| drop(table.remove_queue(QueueId(id))));
    ["fanout", "x-consistent-hash"]
        .iter()
        .for_each(|name| drop(table.delete(name.as_bytes(), false).expect("it is there")));
    assert_eq!(account.bytes(), 0);

    declare(&mut table, "again", "topic").expect("new");
    table.clear();
    assert_eq!((account.bytes(), table.exchange_count()), (0, 7));
    declare(&mut table, "again", "topic").expect("new");
    assert!(account.bytes() > 0);
    drop(table);
    assert_eq!(account.bytes(), 0);
}

#[test]
fn what_does_not_fit_is_refused_and_counted() {
    let account = Arc::new(DefinitionMemory::default());
    let mut table = Table::counted(Arc::clone(&account));
    account.set_bytes_max(100_000);
    let weight = plain("e", "direct").weight();
    let made = (0..1000)
        .take_while(|number| account.admits(weight) && declare(&mut table, &format!("e{number}"), "direct").is_ok())
        .count();
    assert!((50..200).contains(&made), "{made}");
    assert!(account.bytes() <= 100_000 + 10 * made, "{}", account.bytes());
    assert_eq!(account.refused(), 1);
    let void = Arguments::new(vec![routing::Argument { name: b"a"[..].into(), tag: b'V', value: OwnedValue::Void }]);
    assert!(void.weight() > 0);
}
