//! Streams through sessions: credit, offsets, what is refused, what goes on when history is read and when retention trims.

use std::time::Duration;

use amqp_wire::{EncodedProperties, Table, Value, basic, channel, queue, short, write_method};
use bytes::BytesMut;

use crate::node::{Node, Seen};

fn declare(node: &mut Node, client: usize, name: &'static str) {
    let arguments = Table::build(|fields| fields.put(short("x-queue-type"), "stream"));
    let method =
        queue::Declare { queue: short(name), durable: true, arguments: arguments.view(), ..queue::Declare::default() };
    assert!(node.ask(client, 1, &method).starts_with("Queue(DeclareOk("));
}

/// A consumer on channel 1 that has `credit`.
fn consume(node: &mut Node, client: usize, name: &'static str, tag: &'static str, credit: u16, offset: Value<'_>) {
    assert_eq!(
        node.ask(client, 1, &basic::Qos { prefetch_size: 0, prefetch_count: credit, global: false }),
        "Basic(QosOk(QosOk))"
    );
    let arguments = Table::build(|fields| fields.put(short("x-stream-offset"), offset));
    let method = basic::Consume {
        queue: short(name),
        consumer_tag: short(tag),
        arguments: arguments.view(),
        ..basic::Consume::default()
    };
    assert!(node.ask(client, 1, &method).starts_with("Basic(ConsumeOk("));
}

fn offset(seen: &Seen) -> i64 {
    let headers = EncodedProperties::trusted(&seen.properties).headers().expect("headers");
    headers.get("x-stream-offset").and_then(Value::as_integer).expect("an offset")
}

/// Does nothing come for a while?
fn nothing(node: &mut Node, client: usize) -> bool {
    std::thread::sleep(Duration::from_millis(50));
    node.poll(client).is_none()
}

fn publish(node: &mut Node, client: usize, name: &'static str, count: usize) {
    for number in 0..count {
        node.publish(client, "", name, format!("{number}").as_bytes());
    }
}

#[test]
fn each_consumer_gets_all_as_its_credit_allows() {
    let mut node = Node::start();
    let client = node.open();
    declare(&mut node, client, "st");
    publish(&mut node, client, "st", 10);
    consume(&mut node, client, "st", "two", 2, Value::LongString(b"first"));
    for number in 0..2 {
        let seen = node.next(client);
        assert_eq!((offset(&seen), &seen.body[..]), (number, number.to_string().as_bytes()));
    }
    assert!(nothing(&mut node, client));
    node.send(client, 1, &basic::Ack { delivery_tag: 1, multiple: false });
    assert_eq!(offset(&node.next(client)), 2);
    node.send(client, 1, &basic::Nack { delivery_tag: 3, multiple: true, requeue: true });
    assert_eq!([offset(&node.next(client)), offset(&node.next(client))], [3, 4]);
    assert!(nothing(&mut node, client));
    let other = node.open();
    consume(&mut node, other, "st", "all", 100, Value::I64(3));
    let rest: Vec<i64> = (3..10).map(|_| offset(&node.next(other))).collect();
    assert_eq!(rest, (3..10).collect::<Vec<_>>());
    node.publish(client, "", "st", b"more");
    assert_eq!(node.next(other).body, b"more");
    node.stop();
}

#[test]
fn a_consumer_that_ends_gets_nothing_more_and_others_go_on() {
    let mut node = Node::start();
    let client = node.open();
    declare(&mut node, client, "st");
    consume(&mut node, client, "st", "one", 10, Value::LongString(b"next"));
    consume(&mut node, client, "st", "two", 10, Value::LongString(b"next"));
    publish(&mut node, client, "st", 1);
    let tags: Vec<String> = (0..2).map(|_| node.next(client).method).collect();
    assert!(
        tags.iter().any(|method| method.contains("\"one\"")) && tags.iter().any(|method| method.contains("\"two\"")),
        "{tags:?}"
    );
    assert!(
        node.ask(client, 1, &basic::Cancel { consumer_tag: short("one"), no_wait: false })
            .starts_with("Basic(CancelOk(")
    );
    publish(&mut node, client, "st", 1);
    assert!(node.next(client).method.contains("\"two\""));
    assert!(nothing(&mut node, client));
    let queue = node.broker.vhosts().get("/").and_then(|vhost| vhost.queue(b"st")).expect("it is there");
    let counts = node.broker.counts(&queue);
    assert_eq!((counts.ready, counts.unacknowledged, counts.consumers), (2, 2, 1));
    node.close(client);
    node.pump();
    assert_eq!(node.broker.counts(&queue).consumers, 0);
    node.stop();
}

/// Where it begins is being looked for when its channel is closed.
#[test]
fn a_consumer_may_go_before_its_first_message_is_found() {
    let mut node = Node::start();
    let client = node.open();
    declare(&mut node, client, "st");
    publish(&mut node, client, "st", 10);
    let arguments = Table::build(|fields| fields.put(short("x-stream-offset"), Value::Timestamp(1)));
    for number in 2..42 {
        assert_eq!(node.ask(client, number, &channel::Open {}), "Channel(OpenOk(OpenOk))");
        let mut both = BytesMut::new();
        write_method(&mut both, number, &basic::Qos { prefetch_size: 0, prefetch_count: 10, global: false });
        write_method(
            &mut both,
            number,
            &basic::Consume {
                queue: short("st"),
                consumer_tag: short("c"),
                arguments: arguments.view(),
                ..basic::Consume::default()
            },
        );
        write_method(
            &mut both,
            number,
            &channel::Close { reply_code: 200, reply_text: short(""), class_id: 0, method_id: 0 },
        );
        node.raw(client, &both);
        while !node.next(client).method.starts_with("Channel(CloseOk(") {}
    }
    consume(&mut node, client, "st", "stays", 10, Value::Timestamp(1));
    assert_eq!(offset(&node.next(client)), 0);
    node.stop();
}

#[test]
fn readers_go_on_from_what_is_on_the_disk_to_what_is_in_memory() {
    let mut node = Node::start();
    let client = node.open();
    declare(&mut node, client, "st");
    let (body, count) = (vec![7; 100_000], 600usize);
    for _ in 0..count {
        node.publish(client, "", "st", &body);
    }
    // Answered when all is there.
    assert!(
        node.ask(client, 1, &queue::Declare { queue: short("st"), passive: true, ..queue::Declare::default() })
            .contains("message_count: 600")
    );
    let reader = node.open();
    consume(&mut node, reader, "st", "slow", 10, Value::LongString(b"first"));
    for number in 0..count as i64 {
        let seen = node.next(reader);
        assert_eq!((offset(&seen), seen.body.len()), (number, body.len()));
        node.send(reader, 1, &basic::Ack { delivery_tag: number as u64 + 1, multiple: false });
    }
    let last = node.open();
    consume(&mut node, last, "st", "last", 1, Value::LongString(b"last"));
    assert_eq!(offset(&node.next(last)), count as i64 - 1);
    let since = node.open();
    consume(&mut node, since, "st", "since", 1, Value::Timestamp(0));
    assert_eq!(offset(&node.next(since)), 0);
    node.stop();
}

#[test]
fn what_was_trimmed_is_passed_over() {
    let mut node = Node::start();
    let client = node.open();
    declare(&mut node, client, "st");
    publish(&mut node, client, "st", 10);
    consume(&mut node, client, "st", "slow", 1, Value::LongString(b"first"));
    assert_eq!(offset(&node.next(client)), 0);
    let queue = node.broker.vhosts().get("/").and_then(|vhost| vhost.queue(b"st")).expect("it is there");
    node.broker.trim(queue.log(), types::Offset(8)).expect("the journal takes it");
    let late = node.open();
    consume(&mut node, late, "st", "late", 10, Value::I64(2));
    assert_eq!([offset(&node.next(late)), offset(&node.next(late))], [8, 9]);
    node.stop();
}

#[test]
fn what_takes_a_filter_long_is_judged_by_other_threads() {
    let mut node = Node::start();
    let client = node.open();
    declare(&mut node, client, "st");
    publish(&mut node, client, "st", 3000);
    node.ask(client, 1, &basic::Qos { prefetch_size: 0, prefetch_count: 1000, global: false });
    let turns = |node: &Node| node.broker.unpacking().counts().turns.load(std::sync::atomic::Ordering::Relaxed);
    let ask = |node: &mut Node, tag: &'static str, filter: &str| {
        let arguments = Table::build(|fields| {
            fields.put(short("x-stream-offset"), Value::LongString(b"first"));
            fields.put(short("x-mainstem-filter"), Value::LongString(filter.as_bytes()));
        });
        let method = basic::Consume {
            queue: short("st"),
            consumer_tag: short(tag),
            arguments: arguments.view(),
            ..basic::Consume::default()
        };
        node.ask(client, 1, &method)
    };
    let never = vec!["key LIKE '%never%'"; 900].join(" OR ");
    assert!(ask(&mut node, "many", &format!("{never} OR {never}")).contains("at most"), "it has too many tests");
    node.send(client, 1, &channel::CloseOk {});
    node.ask(client, 1, &channel::Open {});
    node.ask(client, 1, &basic::Qos { prefetch_size: 0, prefetch_count: 1000, global: false });
    assert!(ask(&mut node, "short", "timestamp > 0").starts_with("Basic(ConsumeOk("));
    (0..1000).for_each(|_| drop(node.next(client)));
    assert_eq!(turns(&node), 0);
    node.ask(client, 1, &basic::Cancel { consumer_tag: short("short"), no_wait: false });
    // Names of headers are looked for in each test; all messages pass the last one.
    let never = vec!["header.\"x\" LIKE '%never%' OR timestamp < 0"; 450].join(" OR ");
    assert!(ask(&mut node, "long", &format!("{never} OR timestamp > 0")).starts_with("Basic(ConsumeOk("));
    let offsets: Vec<i64> = (0..1000).map(|_| offset(&node.next(client))).collect();
    assert_eq!(offsets, (0..1000).collect::<Vec<_>>());
    node.stop();
}
