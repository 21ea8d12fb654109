//! What is written for what clients say: acknowledgements, and delayed messages that go to several queues.

use amqp_wire::{basic, exchange, short};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::node::{Node, argument, publish};

/// Bytes of all chunks so far, with their padding.
fn written(node: &Node) -> f64 {
    let (mut registry, mut text) = (Registry::default(), String::new());
    node.broker.journals()[0].metrics().register(&mut registry);
    encode(&mut text, &registry).expect("it is text");
    let sum = text
        .lines()
        .find_map(|line| line.strip_prefix("mainstem_journal_chunk_size_bytes_sum "))
        .expect("it is measured");
    sum.parse().expect("a number")
}

/// Until nothing more is written: longer than `mainstem.queue.ack.flush.ms`.
fn settle(node: &mut Node) -> f64 {
    let mut before = -1.0;
    while written(node) > before {
        before = written(node);
        std::thread::sleep(std::time::Duration::from_millis(150));
        node.pump();
    }
    before
}

#[test]
fn an_acknowledgement_costs_less_than_sixteen_bytes_of_the_disk() {
    const COUNT: u64 = 20_000;
    let mut node = Node::start();
    let client = node.open();
    for (name, step) in [("ordered", 1), ("scattered", 7_919)] {
        node.declare(client, name);
        for number in 0..COUNT {
            node.publish(client, "", name, &number.to_be_bytes());
        }
        node.consume(client, name, name, false);
        let tags: Vec<String> = (0..COUNT).map(|_| node.next(client).method).collect();
        let first = tags[0]
            .split("delivery_tag: ")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .and_then(|tag| tag.parse::<u64>().ok());
        let (before, first) = (settle(&mut node), first.expect("it has a tag"));
        // One by one, in an order that visits each of them once; in eight parts, so that several flushes share them.
        for part in 0..8 {
            for number in part * COUNT / 8..(part + 1) * COUNT / 8 {
                node.send(client, 1, &basic::Ack { delivery_tag: first + number * step % COUNT, multiple: false });
            }
            node.pump();
            std::thread::sleep(std::time::Duration::from_millis(60));
        }
        let each = (settle(&mut node) - before) / COUNT as f64;
        assert!(each > 0.1, "{name}: it is written at all");
        assert!(each < 16.0, "{name}: {each} bytes for an acknowledgement");
    }
    node.stop();
}

/// The journal's segments take chunks of 2 MiB: what arrives, and what falls due, at once is more.
#[test]
fn what_comes_together_is_more_than_a_chunk_and_comes_all_the_same() {
    const COUNT: usize = 100;
    let mut node = Node::start();
    let client = node.open();
    let kind = argument("x-delayed-type", "direct");
    let method = exchange::Declare {
        exchange: short("late"),
        kind: short("x-delayed-message"),
        durable: true,
        arguments: kind.view(),
        ..exchange::Declare::default()
    };
    assert_eq!(node.ask(client, 1, &method), "Exchange(DeclareOk(DeclareOk))");
    node.declare(client, "a");
    node.bind(client, "a", "late", "a");
    let table = [&[7u8][..], b"x-delay", b"I", &1000u32.to_be_bytes()].concat();
    let properties = [&[0x20u8, 0][..], &(table.len() as u32).to_be_bytes(), &table].concat();
    for number in 0..COUNT {
        node.send_content(client, 1, &publish("late", "a", false), &properties, &vec![number as u8; 100_000]);
        node.pump();
    }
    node.consume(client, "a", "a", true);
    let came: Vec<u8> = (0..COUNT).map(|_| node.next(client).body[0]).collect();
    assert_eq!(came, (0..COUNT as u8).collect::<Vec<_>>());
    node.stop();
}

#[test]
fn what_is_delayed_for_several_queues_is_written_once_when_it_leaves() {
    const BODY: usize = 100_000;
    let mut node = Node::start();
    let client = node.open();
    let kind = argument("x-delayed-type", "fanout");
    let method = exchange::Declare {
        exchange: short("late"),
        kind: short("x-delayed-message"),
        durable: true,
        arguments: kind.view(),
        ..exchange::Declare::default()
    };
    assert_eq!(node.ask(client, 1, &method), "Exchange(DeclareOk(DeclareOk))");
    for name in ["a", "b", "c", "d"] {
        node.declare(client, name);
        node.bind(client, name, "late", "");
    }
    let before = settle(&mut node);
    for (body, delay) in [(b'2', 400u32), (b'1', 200), (b'3', 600)] {
        // basic.properties: flags with headers, a table of one field.
        let table = [&[7u8][..], b"x-delay", b"I", &delay.to_be_bytes()].concat();
        let properties = [&[0x20u8, 0][..], &(table.len() as u32).to_be_bytes(), &table].concat();
        node.send_content(client, 1, &publish("late", "", false), &properties, &vec![body; BODY]);
    }
    for name in ["a", "b", "c", "d"] {
        node.consume(client, name, name, true);
    }
    let mut came: Vec<(String, u8)> =
        (0..12).map(|_| node.next(client)).map(|seen| (seen.method, seen.body[0])).collect();
    came.sort_by_key(|(method, _)| {
        ["a", "b", "c", "d"].iter().position(|name| method.contains(&format!("consumer_tag: {name:?}")))
    });
    assert_eq!(
        came.iter().map(|(_, body)| *body).collect::<Vec<_>>(),
        b"123123123123",
        "each queue gets them in the order in which they are due"
    );
    let times = (settle(&mut node) - before) / (3 * BODY) as f64;
    assert!(
        (1.9..2.6).contains(&times),
        "once when they come, and once for four queues when they leave: {times} times their bytes"
    );
    node.stop();
}
