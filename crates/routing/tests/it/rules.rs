//! What is refused, and with which words; what goes with what.

use std::thread;

use routing::{
    Arguments, BindError, Bound, Declaration, DeclareError, Declared, DeleteError, Destination, Exchanges, Kind,
};
use routing::{Name, NameTooLong, NoHeaders, QueueId, QueueTaken, RemovedDestination, Scratch, Table};

use crate::{add_queues, bind, declare, name, plain, queue, route, string, with};

fn exchange(name: &str) -> Destination<'_> {
    Destination::Exchange(name.as_bytes())
}

fn auto_delete<'a>(name: &str, kind: &'a str) -> Declaration<'a> {
    Declaration { auto_delete: true, ..plain(name, kind) }
}

#[test]
fn predeclared_exchanges_are_there_and_only_equivalent_ones_can_be_declared() {
    let mut table = Table::new();
    let names: Vec<_> = table.exchanges().map(|exchange| (exchange.name().to_string(), exchange.kind_name())).collect();
    let expected = [
        ("", "direct"),
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
        ("amq.rabbitmq.trace", "topic"),
    ];
    assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
    assert!(
        table
            .exchanges()
            .all(|exchange| exchange.durable() && !exchange.auto_delete() && exchange.alternate().is_none())
    );
    assert!(table.exchange(b"amq.rabbitmq.trace").unwrap().internal());
    assert_eq!(declare(&mut table, "amq.topic", "topic"), Ok(Declared::Existing));
    let text = declare(&mut table, "amq.topic", "fanout").unwrap_err().to_string();
    assert_eq!(text, "inequivalent arg 'type' for exchange 'amq.topic': received 'fanout' but current is 'topic'");
    let reserved = declare(&mut table, "amq.mine", "topic").unwrap_err();
    assert_eq!(reserved, DeclareError::Reserved(name("amq.mine")));
    assert_eq!(reserved.to_string(), "exchange name 'amq.mine' contains reserved prefix 'amq.*'");
    assert_eq!(table.delete(b"amq.topic", false), Err(DeleteError::Reserved(name("amq.topic"))));
    assert_eq!(table.delete(b"amq.none", false), Err(DeleteError::Reserved(name("amq.none"))));
}

#[test]
fn the_default_exchange_leads_to_queues_by_name_and_cannot_be_touched() {
    let mut table = Table::new();
    add_queues(&mut table, 3);
    assert_eq!(route(&table, "", &["q1"]), [1]);
    assert_eq!(route(&table, "", &["q2", "q0", "q2", "none"]), [0, 2]);
    assert_eq!(declare(&mut table, "", "direct"), Err(DeclareError::DefaultExchange));
    assert_eq!(table.delete(b"", false), Err(DeleteError::DefaultExchange));
    let none = Arguments::default();
    assert_eq!(table.bind(b"", queue(0), b"q0", &none), Err(BindError::DefaultExchange));
    assert_eq!(table.unbind(b"", queue(0), b"q0", &none), Err(BindError::DefaultExchange));
    assert_eq!(table.bind(b"amq.fanout", exchange(""), b"", &none), Err(BindError::DefaultExchange));
    let mut implicit: Vec<_> =
        table.bindings_from(b"").map(|binding| String::from_utf8(binding.key.into()).unwrap()).collect();
    implicit.sort();
    assert_eq!(implicit, ["q0", "q1", "q2"]);
    assert_eq!(table.bindings_to(queue(1)).count(), 1);
    assert_eq!(table.add_queue(name("q1"), QueueId(9), true), Err(QueueTaken));
    assert_eq!(table.add_queue(name("q9"), QueueId(1), true), Err(QueueTaken));
    table.remove_queue(QueueId(1));
    assert_eq!(route(&table, "", &["q1"]), [] as [u64; 0]);
}

#[test]
fn an_exchange_that_differs_is_named_with_what_differs() {
    let mut table = Table::new();
    let alternate = || vec![string("alternate-exchange", "ae")];
    table.declare(with("x", "direct", alternate())).unwrap();
    let differs = |table: &mut Table, declaration: Declaration<'_>| table.declare(declaration).unwrap_err().to_string();
    let same = with("x", "direct", [alternate(), vec![string("other", "argument")]].concat());
    assert_eq!(table.declare(same), Ok(Declared::Existing), "other arguments do not count");
    for (declaration, text) in [
        (
            with("x", "x-delayed-message", vec![string("x-delayed-type", "direct")]),
            "'type' # received 'x-delayed-message' but current is 'direct'",
        ),
        (Declaration { durable: false, ..plain("x", "direct") }, "'durable' # received 'false' but current is 'true'"),
        (auto_delete("x", "direct"), "'auto_delete' # received 'true' but current is 'false'"),
        (Declaration { internal: true, ..plain("x", "direct") }, "'internal' # received 'true' but current is 'false'"),
        (plain("x", "direct"), "'alternate-exchange' # received none but current is the value 'ae' of type 'longstr'"),
        (
            with("x", "direct", vec![string("alternate-exchange", "other")]),
            "'alternate-exchange' # received 'other' but current is 'ae'",
        ),
    ] {
        let text = text.replace('#', "for exchange 'x':");
        assert_eq!(differs(&mut table, declaration), format!("inequivalent arg {text}"));
    }
    table.declare(plain("y", "direct")).unwrap();
    assert_eq!(
        differs(&mut table, with("y", "direct", alternate())),
        "inequivalent arg 'alternate-exchange' for exchange 'y': received the value 'ae' of type 'longstr' but current is none"
    );
    assert_eq!(differs(&mut table, plain("z", "nonsense")), "unknown exchange type 'nonsense'");
    let number =
        routing::Argument { value: routing::OwnedValue::Int(1), tag: b'I', ..string("alternate-exchange", "") };
    let refused = table.declare(with("z", "direct", vec![number]));
    assert_eq!(refused, Err(DeclareError::ArgumentType { argument: "alternate-exchange", tag: b'I' }));
    assert!(table.exchange(b"z").is_none());
}

#[test]
fn a_delayed_exchange_routes_as_the_type_it_wraps() {
    let mut table = Table::new();
    add_queues(&mut table, 1);
    table.declare(with("late", "x-delayed-message", vec![string("x-delayed-type", "topic")])).unwrap();
    bind(&mut table, "late", queue(0), "a.#");
    let late = table.exchange(b"late").unwrap();
    assert_eq!((late.kind(), late.delayed(), late.kind_name()), (Kind::Topic, true, "x-delayed-message"));
    assert_eq!(route(&table, "late", &["a.b"]), [0]);
    for (inner, error) in [
        (vec![], DeclareError::DelayedKind),
        (vec![string("x-delayed-type", "x-delayed-message")], DeclareError::DelayedTwice),
        (vec![string("x-delayed-type", "nonsense")], DeclareError::UnknownKind("nonsense".to_owned())),
    ] {
        assert_eq!(table.declare(with("later", "x-delayed-message", inner)), Err(error));
    }
    // A message that is to be delayed stays with whoever delays it, also behind another exchange; one that is not passes.
    table.declare(with("before", "fanout", vec![])).unwrap();
    table.bind(b"before", Destination::Exchange(b"late"), b"", &Arguments::default()).unwrap();
    assert!(table.has_delayed());
    for from in ["late", "before"] {
        let (mut scratch, mut queues) = (Scratch::default(), Vec::new());
        let keepers = table
            .exchange(from.as_bytes())
            .unwrap()
            .route_delayed(&[b"a.b"], &NoHeaders, &mut scratch, &mut queues)
            .expect("few steps");
        assert_eq!((&keepers[..], queues.len()), (&[name("late")][..], 0));
        assert_eq!(route(&table, from, &["a.b"]), [0]);
    }
    table.delete(b"late", false).unwrap();
    assert!(!table.has_delayed());
}

#[test]
fn a_binding_is_its_ends_its_key_and_its_arguments() {
    let mut table = Table::new();
    add_queues(&mut table, 1);
    table.add_queue(name("transient"), QueueId(7), false).unwrap();
    let (none, some) = (Arguments::default(), Arguments::new(vec![string("b", "2"), string("a", "1")]));
    let swapped = Arguments::new(vec![string("a", "1"), string("b", "2")]);
    assert_eq!(table.bind(b"amq.direct", queue(0), b"k", &none), Ok(Bound::New { durable: true }));
    assert_eq!(table.bind(b"amq.direct", queue(0), b"k", &none), Ok(Bound::Existing));
    assert_eq!(table.bind(b"amq.direct", queue(0), b"k", &some), Ok(Bound::New { durable: true }));
    assert_eq!(table.bind(b"amq.direct", queue(0), b"k", &swapped), Ok(Bound::Existing));
    assert_eq!(table.bind(b"amq.direct", queue(7), b"k", &none), Ok(Bound::New { durable: false }));
    assert_eq!((route(&table, "amq.direct", &["k"]), table.binding_count()), (vec![0, 7], 3));
    let removal = table.unbind(b"amq.direct", queue(0), b"k", &none).unwrap();
    assert_eq!((removal.bindings.len(), removal.exchanges.len()), (1, 0));
    assert_eq!(removal.bindings[0].destination, RemovedDestination::Queue(QueueId(0)));
    assert_eq!(route(&table, "amq.direct", &["k"]), [0, 7], "the one with arguments is left");
    assert_eq!(table.unbind(b"amq.direct", queue(0), b"k", &none).unwrap().bindings, []);
    assert_eq!(table.unbind(b"none", queue(99), b"k", &none).unwrap().bindings, []);
    assert_eq!(table.bind(b"none", queue(0), b"k", &none), Err(BindError::NoExchange("none".into())));
    assert_eq!(table.bind(b"amq.direct", queue(99), b"k", &none), Err(BindError::NoQueue));
    assert_eq!(table.bind(b"amq.direct", exchange("none"), b"k", &none), Err(BindError::NoExchange("none".into())));
    assert_eq!(table.bind(b"amq.direct", queue(0), &[b'k'; 256], &none), Err(BindError::Key(NameTooLong)));
    assert_eq!(Name::new(&[b'n'; 256]), Err(NameTooLong));
    assert_eq!(table.all_bindings().count(), 2);
}

#[test]
fn an_alternate_gets_what_nothing_takes_and_cycles_end() {
    let mut table = Table::new();
    add_queues(&mut table, 3);
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "a")] {
        table.declare(with(from, "direct", vec![string("alternate-exchange", to)])).unwrap();
    }
    assert_eq!(route(&table, "a", &["k"]), [] as [u64; 0]);
    bind(&mut table, "c", queue(2), "k");
    assert_eq!(route(&table, "a", &["k"]), [2]);
    bind(&mut table, "b", queue(1), "k");
    assert_eq!(route(&table, "a", &["k"]), [1], "what b takes does not go on");
    bind(&mut table, "a", exchange("amq.fanout"), "k");
    assert_eq!(route(&table, "a", &["k"]), [] as [u64; 0], "a binding to an exchange is a match");
    assert_eq!(route(&table, "a", &["other", "k"]), [] as [u64; 0]);
    assert!(!table.set_policy_alternate(b"none", None));
    assert!(table.set_policy_alternate(b"amq.fanout", Some(name("c"))));
    assert_eq!(route(&table, "a", &["k"]), [2]);
    assert!(table.set_policy_alternate(b"a", Some(name("c"))), "the argument goes before the policy");
    assert_eq!(table.exchange(b"a").unwrap().alternate(), Some(&name("b")));
    table.declare(with("d", "direct", vec![string("alternate-exchange", "not declared")])).unwrap();
    table.declare(with("e", "direct", vec![string("alternate-exchange", "")])).unwrap();
    assert_eq!(route(&table, "d", &["q0"]), [] as [u64; 0]);
    assert_eq!(route(&table, "e", &["q0"]), [] as [u64; 0], "the default exchange is no alternate");
}

#[test]
fn exchanges_that_delete_themselves_go_one_after_the_other() {
    let mut table = Table::new();
    add_queues(&mut table, 2);
    let count = 10_000;
    for number in 0..count {
        table.declare(auto_delete(&format!("x{number}"), "fanout")).unwrap();
        match number {
            0 => bind(&mut table, "x0", queue(0), ""),
            _ => bind(&mut table, &format!("x{number}"), exchange(&format!("x{}", number - 1)), ""),
        }
    }
    bind(&mut table, "amq.fanout", exchange("x9999"), "");
    bind(&mut table, "x5000", queue(1), "");
    assert_eq!(route(&table, "amq.fanout", &[""]), [0, 1]);
    let removal = table.remove_queue(QueueId(0));
    assert_eq!((removal.exchanges.len(), removal.bindings.len()), (5_000, 5_001));
    assert_eq!(route(&table, "amq.fanout", &[""]), [1]);
    assert_eq!(table.delete(b"x5000", true), Err(DeleteError::InUse(name("x5000"))));
    let removal = table.delete(b"x5000", false).unwrap();
    assert_eq!((removal.exchanges.len(), removal.bindings.len()), (5_000, 5_001));
    assert_eq!((table.exchanges().count(), table.binding_count()), (7, 0));
    table.declare(auto_delete("never bound", "fanout")).unwrap();
    bind(&mut table, "amq.fanout", exchange("never bound"), "");
    table.unbind(b"amq.fanout", exchange("never bound"), b"", &Arguments::default()).unwrap();
    assert!(table.exchange(b"never bound").is_some(), "only the last binding from it ends it");
}

#[test]
fn threads_route_while_another_binds() {
    let exchanges = Exchanges::new();
    add_queues(&mut exchanges.write(), 2);
    bind(&mut exchanges.write(), "amq.topic", queue(0), "a.*");
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut scratch, mut queues) = (Scratch::default(), Vec::new());
                for _ in 0..2_000 {
                    let routes = exchanges.read();
                    routes
                        .exchange(b"amq.topic")
                        .unwrap()
                        .route(&[b"a.b"], &NoHeaders, &mut scratch, &mut queues)
                        .expect("few steps");
                    assert!(queues == [QueueId(0)] || queues == [QueueId(0), QueueId(1)], "{queues:?}");
                }
            });
        }
        for _ in 0..2_000 {
            bind(&mut exchanges.write(), "amq.topic", queue(1), "#");
            exchanges.write().unbind(b"amq.topic", queue(1), b"#", &Arguments::default()).unwrap();
        }
    });
    assert_eq!(exchanges.read().binding_count(), 1);
}

#[test]
fn a_queue_is_reached_over_bindings_and_alternates_whatever_their_keys_are() {
    let mut table = Table::new();
    add_queues(&mut table, 2);
    for (name, kind) in [("near", "direct"), ("far", "topic"), ("ring", "fanout"), ("elsewhere", "fanout")] {
        declare(&mut table, name, kind).expect("new");
    }
    let alternate = with("left", "direct", vec![string("alternate-exchange", "far")]);
    table.declare(alternate).expect("new");
    bind(&mut table, "near", queue(0), "key");
    bind(&mut table, "far", exchange("near"), "a.#");
    bind(&mut table, "ring", exchange("far"), "");
    bind(&mut table, "far", exchange("ring"), "b");
    bind(&mut table, "elsewhere", queue(1), "");
    let names: Vec<_> = table.exchanges().map(|exchange| exchange.name().to_string()).collect();
    let reach = table.exchanges_to(QueueId(0));
    let found: Vec<_> = names.iter().filter(|name| reach.contains(name.as_bytes())).map(String::as_str).collect();
    assert_eq!(found, ["near", "far", "ring", "left"]);
    assert!(!reach.contains(b"none"));
    assert!(!table.exchanges_to(QueueId(7)).contains(b"near"), "there is no such queue");
    // With more bindings than are looked at any exchange may lead there, and what does not exist does not.
    for key in 0..10_001 {
        bind(&mut table, "elsewhere", queue(1), &key.to_string());
    }
    let reach = table.exchanges_to(QueueId(1));
    assert!(reach.contains(b"near") && !reach.contains(b"none"));
}

#[test]
fn a_binding_that_is_removed_takes_nothing_with_it() {
    let mut table = Table::new();
    add_queues(&mut table, 1);
    table.declare(auto_delete("e", "direct")).unwrap();
    bind(&mut table, "e", queue(0), "a");
    let none = Arguments::default();
    assert_eq!(table.unbinding(b"e", queue(0), b"a", &none).unwrap().exchanges.len(), 1);
    table.remove_binding(b"e", queue(0), b"b", &none);
    assert_eq!(route(&table, "e", &["a"]), [0]);
    table.remove_binding(b"e", queue(0), b"a", &none);
    assert_eq!((table.binding_count(), route(&table, "e", &["a"])), (0, vec![]));
    assert!(table.exchange(b"e").is_some());
}
