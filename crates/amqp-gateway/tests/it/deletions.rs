//! Queues whose deletion a full disk refuses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amqp_wire::{basic, queue, short};
use broker::{Caller, DEFAULT_VHOST, Principal, QueueDeclaration, VhostDeletion, VhostWish};
use routing::{Argument, Arguments, Declaration, Name, OwnedValue};
use types::ConnectionId;

use crate::node::Node;
use crate::pressure::{Faults, fill, start};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a short name")
}

/// A durable exchange whose record has so many bytes at least; false: there is no space for it.
fn write(node: &Node, exchange: &str, bytes: usize) -> bool {
    let vhost = node.broker.vhosts().get(DEFAULT_VHOST).expect("it is always there");
    let value = OwnedValue::Bytes(vec![b'x'; bytes].into());
    let arguments = Arguments::new(vec![Argument { name: b"x-what"[..].into(), tag: b'S', value }]);
    let name = name(exchange);
    node.broker
        .declare_exchange(
            &vhost,
            Declaration { name, kind: b"fanout", durable: true, auto_delete: false, internal: false, arguments },
            &Principal::broker(),
        )
        .is_ok()
}

/// No record of more bytes than that is written any more.
fn exhaust(node: &mut Node, faults: &Faults, bytes: usize) {
    let filler = node.open();
    node.declare(filler, "bulk");
    let names: Vec<&'static str> = (0..60).map(|number| &*format!("goes-{number}").leak()).collect();
    names.iter().for_each(|name| node.declare(filler, name));
    fill(node, filler, faults, "bulk");
    let mut number = 0;
    for bytes in [40_000, 8_000, 1].into_iter().filter(|size| *size >= bytes) {
        while write(node, &format!("{bytes}-{number}"), bytes) {
            number += 1;
            assert!(number < 10_000, "a bound");
        }
    }
    // What gives space back finds room some times more.
    let vhost = node.broker.vhosts().get(DEFAULT_VHOST).expect("it is always there");
    let mut queues = names.iter().filter_map(|name| vhost.queue(name.as_bytes()));
    assert!(
        bytes > 0 || queues.any(|queue| node.broker.delete_queue(&queue, false, false).is_err()),
        "there is no room even for that"
    );
}

fn give_space(node: &mut Node, faults: &Faults) {
    faults.space.store(false, Ordering::SeqCst);
    node.wait_until("space", |node| write(node, "space", 1));
}

fn refused(node: &mut Node) {
    let client = node.open();
    node.send(client, 1, &queue::Delete { queue: short("q"), ..queue::Delete::default() });
    assert_eq!(node.connection_error(client), (506, "RESOURCE_ERROR - disk is full".to_owned()));
}

#[test]
fn a_queue_whose_deletion_is_refused_is_as_it_was() {
    let (mut node, faults) = start();
    let (client, consumer) = (node.open(), node.open());
    node.declare(client, "q");
    node.bind(client, "q", "amq.direct", "key");
    node.publish(client, "amq.direct", "key", b"old");
    node.consume(consumer, "q", "c", false);
    assert_eq!(node.next(consumer).body, b"old");
    exhaust(&mut node, &faults, 0);
    refused(&mut node);
    refused(&mut node);

    give_space(&mut node, &faults);
    node.declare(client, "q");
    node.publish(client, "amq.direct", "key", b"new");
    assert_eq!(node.next(consumer).body, b"new", "it still consumes");
    let mut node = node.restart();
    let client = node.open();
    assert_eq!(node.get(client, "q", true).body, b"old");
    assert_eq!(node.get(client, "q", true).body, b"new");
    node.publish(client, "amq.direct", "key", b"newer");
    let answer = node.ask(client, 1, &queue::Delete { queue: short("q"), ..queue::Delete::default() });
    assert_eq!(answer, "Queue(DeleteOk(DeleteOk { message_count: 1 }))");
    assert!(node.broker.topic("q").is_none());
    let node = node.restart();
    assert!(node.broker.topic("q").is_none());
    node.stop();
}

#[test]
fn queues_that_go_by_themselves_are_deleted_when_there_is_space() {
    let (mut node, faults) = start();
    let (client, other) = (node.open(), node.open());
    node.ask(
        client,
        1,
        &queue::Declare { queue: short("last"), durable: true, auto_delete: true, ..queue::Declare::default() },
    );
    node.ask(
        client,
        1,
        &queue::Declare { queue: short("again"), durable: true, auto_delete: true, ..queue::Declare::default() },
    );
    for tag in ["last", "again"] {
        node.consume(client, tag, tag, true);
    }
    // What goes with it has a record.
    node.ask(other, 1, &queue::Declare { queue: short("own"), exclusive: true, ..queue::Declare::default() });
    let exchange = amqp_wire::exchange::Declare {
        exchange: short("e"),
        kind: short("fanout"),
        durable: true,
        auto_delete: true,
        ..Default::default()
    };
    assert_eq!(node.ask(other, 1, &exchange), "Exchange(DeclareOk(DeclareOk))");
    node.bind(other, "own", "e", "");
    exhaust(&mut node, &faults, 0);
    let there = |node: &Node, queue: &str| {
        node.broker.vhosts().get("/").expect("it is always there").queue(queue.as_bytes()).is_some()
    };

    for tag in ["last", "again"] {
        let cancel = basic::Cancel { consumer_tag: short(tag), no_wait: false };
        assert!(node.ask(client, 1, &cancel).starts_with("Basic(CancelOk("));
    }
    node.close(other);
    assert!(["last", "again", "own"].iter().all(|queue| there(&node, queue)));
    node.consume(client, "again", "again", true);
    give_space(&mut node, &faults);
    node.wait_until("they go", |node| !there(node, "last") && !there(node, "own"));
    assert!(there(&node, "again"), "it is used again");
    let node = node.restart();
    assert!(!there(&node, "last") && !there(&node, "own"));
    let vhost = node.broker.vhosts().get("/").expect("it is always there");
    assert!(vhost.exchanges().read().exchange(b"e").is_none());
    node.stop();
}

#[test]
fn a_virtual_host_whose_deletion_is_refused_halfway_is_deleted_later() {
    let (mut node, faults) = start();
    let wish = VhostWish { name: "shop".to_owned(), ..VhostWish::default() };
    assert!(node.broker.put_vhost(wish).expect("added"));
    let vhost = node.broker.vhosts().get("shop").expect("it is there");
    let mut queues = Vec::new();
    for number in 0..600 {
        let name = name(&format!("of-shop-with-a-rather-long-name-{number}"));
        let wish =
            QueueDeclaration { name, durable: true, owner: None, auto_delete: false, arguments: Arguments::default() };
        queues.push(node.broker.declare_queue(&vhost, wish, &Caller::broker(ConnectionId(1))).expect("declared"));
    }
    exhaust(&mut node, &faults, 40_000);
    assert!(node.broker.delete_vhost("shop").is_err());
    let left = vhost.queues();
    assert!(
        !left.is_empty()
            && left.iter().all(|queue| !queue.is_dropped() && node.broker.topic_by_id(queue.topic().id).is_some())
    );
    assert_eq!(queues.iter().filter(|queue| queue.is_dropped()).count(), queues.len() - left.len());
    give_space(&mut node, &faults);
    assert!(node.broker.delete_vhost("shop").expect("deleted"));
    let logs: Vec<_> = queues.iter().map(|queue| Arc::clone(queue.log())).collect();
    let node = node.restart();
    assert!(node.broker.vhosts().get("shop").is_none());
    assert!(logs.iter().all(|log| node.broker.journal_of(log.id()).log(log.id()).is_none()));
    node.stop();
}

/// What came into it meanwhile would go with the next start.
#[test]
fn a_deletion_of_a_virtual_host_that_has_begun_is_not_undone_when_it_is_refused_again() {
    const QUEUES: usize = 1_100;
    let (mut node, faults) = start();
    assert!(node.broker.put_vhost(VhostWish { name: "shop".to_owned(), ..VhostWish::default() }).expect("added"));
    let (vhost, caller) = (node.broker.vhosts().get("shop").expect("it is there"), Caller::broker(ConnectionId(1)));
    let wish = |name: &str| QueueDeclaration {
        name: self::name(name),
        durable: true,
        owner: None,
        auto_delete: false,
        arguments: Arguments::default(),
    };
    for number in 0..QUEUES {
        node.broker.declare_queue(&vhost, wish(&format!("q-{number}")), &caller).expect("declared");
    }
    let mut deletion = VhostDeletion::of("shop");
    assert!(deletion.go_on(&node.broker).is_none(), "a thousand at once");
    exhaust(&mut node, &faults, 0);
    assert!(matches!(deletion.go_on(&node.broker), Some(Err(_))), "there is no space");
    for _ in 0..2 {
        assert!(node.broker.delete_vhost("shop").is_err());
        assert!(vhost.is_deleted() && node.broker.declare_queue(&vhost, wish("late"), &caller).is_err());
    }
    give_space(&mut node, &faults);
    assert!(node.broker.delete_vhost("shop").expect("deleted"));
    assert!(node.broker.vhosts().get("shop").is_none());
    node.stop();
}
