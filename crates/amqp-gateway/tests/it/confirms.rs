//! Publishing: confirms, returns, order, what is refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use amqp_wire::{
    ContentHeader, EncodedProperties, FrameKind, Properties, ShortBytes, Table, basic, queue, short, write_content,
    write_method,
};
use broker::CreateTopic;
use bytes::BytesMut;

use crate::node::{FRAME_MAX, Node, argument, publish};

/// Highest tag confirmed, and the refused ones, once `count` publishes have their outcome.
fn outcomes(node: &mut Node, client: usize, count: u64) -> (u64, Vec<u64>) {
    let (mut acked, mut nacked) = (0, Vec::new());
    while acked.max(nacked.iter().copied().max().unwrap_or(0)) < count {
        let method = node.next(client).method;
        let tag = method
            .split("delivery_tag: ")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .and_then(|tag| tag.parse().ok())
            .expect("a tag");
        if method.starts_with("Basic(Ack(") { acked = acked.max(tag) } else { nacked.push(tag) }
    }
    (acked, nacked)
}

/// Compaction would remove what has no key, and so what was confirmed.
#[test]
fn a_queue_over_a_compacted_topic_takes_no_message_without_a_key() {
    let mut node = Node::start();
    let client = node.open();
    for (name, policy) in [("compacted", "compact"), ("both", "compact,delete"), ("plain", "delete")] {
        let overrides = BTreeMap::from([("cleanup.policy".to_owned(), policy.to_owned())]);
        let topic = CreateTopic { name: name.to_owned(), partitions: 1, replication: 1, overrides };
        node.broker.create_topics(vec![topic]).remove(0).expect("a topic");
        node.declare(client, name);
    }
    node.select_confirms(client);
    for name in ["plain", "compacted", "both", "plain"] {
        node.publish(client, "", name, b"no key");
    }
    assert_eq!(outcomes(&mut node, client, 4), (4, vec![2, 3]));
    let counts = ["plain", "compacted", "both"].map(|name| {
        let queue =
            node.broker.vhosts().get("/").expect("it is always there").queue(name.as_bytes()).expect("it was declared");
        queue.log().end().0
    });
    assert_eq!(counts, [2, 0, 0]);
    node.stop();
}

#[test]
fn messages_are_confirmed_kept_in_order_and_come_back_as_they_were() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    node.select_confirms(client);
    let mut properties = BytesMut::new();
    let headers = Table::build(|fields| {
        fields.put(short("a"), "b");
        fields.put(short("n"), 5i32);
    });
    Properties {
        headers: Some(headers.view()),
        delivery_mode: Some(2),
        message_id: ShortBytes::new(b"id"),
        ..Properties::default()
    }
    .encode(&mut properties);
    let mut bytes = BytesMut::new();
    for number in 0..100 {
        let body = format!("message {number}");
        write_content(
            &mut bytes,
            1,
            &publish("", "q", false),
            EncodedProperties::trusted(&properties),
            body.as_bytes(),
            FRAME_MAX,
        );
    }
    node.raw(client, &bytes);
    assert_eq!(outcomes(&mut node, client, 100), (100, vec![]));
    for number in 0..100 {
        let seen = node.get(client, "q", true);
        assert!(
            seen.method.starts_with(&format!(
                "Basic(GetOk(GetOk {{ delivery_tag: {}, redelivered: false, exchange: \"\", routing_key: \"q\", message_count: {}",
                number + 1,
                99 - number
            )),
            "{seen:?}"
        );
        assert_eq!((&seen.properties[..], seen.body), (&properties[..], format!("message {number}").into_bytes()));
    }
    assert_eq!(node.get(client, "q", true).method, "Basic(GetEmpty(GetEmpty))");
    node.stop();
}

#[test]
fn bodies_of_any_size_come_through_however_they_are_cut() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    for size in [0, 1, 8191, 8192, 131_064, 131_065, 400_000] {
        let body: Vec<u8> = (0..size).map(|at: u32| (at * 7) as u8).collect();
        let mut bytes = BytesMut::new();
        write_content(&mut bytes, 1, &publish("", "q", false), EncodedProperties::default(), &body, FRAME_MAX);
        for piece in bytes.chunks(50_001) {
            node.raw(client, piece);
        }
        assert_eq!(node.get(client, "q", true).body, body, "{size} bytes");
    }
    node.stop();
}

#[test]
fn frames_may_come_byte_by_byte() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    let mut bytes = BytesMut::new();
    write_content(&mut bytes, 1, &publish("", "q", false), EncodedProperties::default(), b"slowly", FRAME_MAX);
    bytes.iter().for_each(|byte| node.raw(client, &[*byte]));
    assert_eq!(node.get(client, "q", true).body, b"slowly");
    node.stop();
}

#[test]
fn what_no_queue_gets_is_returned_before_it_is_confirmed() {
    let mut node = Node::start();
    let client = node.open();
    node.select_confirms(client);
    node.send_content(client, 1, &publish("amq.direct", "nobody", true), &[0x10, 0, 2], b"back");
    let seen = node.next(client);
    assert_eq!(
        seen.method,
        "Basic(Return(Return { reply_code: 312, reply_text: \"NO_ROUTE\", exchange: \"amq.direct\", routing_key: \"nobody\" }))"
    );
    assert_eq!((&seen.properties[..], &seen.body[..]), (&[0x10, 0, 2][..], &b"back"[..]));
    assert_eq!(node.next(client).method, "Basic(Ack(Ack { delivery_tag: 1, multiple: false }))");
    node.publish(client, "", "nobody", b"gone");
    assert_eq!(node.next(client).method, "Basic(Ack(Ack { delivery_tag: 2, multiple: false }))");
    node.stop();
}

#[test]
fn each_queue_keeps_the_order_of_messages_that_go_different_ways() {
    let mut node = Node::start();
    let client = node.open();
    for name in ["a", "b"] {
        node.declare(client, name);
        node.bind(client, name, "amq.fanout", "");
    }
    let mut bytes = BytesMut::new();
    let ways = [("", "a"), ("amq.fanout", ""), ("", "b"), ("", "a"), ("amq.fanout", ""), ("", "a")];
    for (number, (exchange, key)) in ways.iter().cycle().take(60).enumerate() {
        write_content(
            &mut bytes,
            1,
            &publish(exchange, key, false),
            EncodedProperties::default(),
            number.to_string().as_bytes(),
            FRAME_MAX,
        );
    }
    node.raw(client, &bytes);
    for name in ["a", "b"] {
        let expected: Vec<String> = (0..60)
            .filter(|number| ways[number % 6].1.is_empty() || ways[number % 6].1 == name)
            .map(|number| number.to_string())
            .collect();
        let got: Vec<String> =
            expected.iter().map(|_| String::from_utf8(node.get(client, name, true).body).expect("text")).collect();
        assert_eq!(got, expected, "of {name}");
    }
    node.stop();
}

#[test]
fn copies_go_to_more_queues_and_blind_ones_are_not_seen() {
    let mut node = Node::start();
    let client = node.open();
    for name in ["to", "copy", "blind"] {
        node.declare(client, name);
    }
    let headers = Table::build(|fields| {
        fields.array(short("CC"), |values| values.put("copy"));
        fields.array(short("BCC"), |values| values.put("blind"));
    });
    let mut properties = BytesMut::new();
    Properties { headers: Some(headers.view()), ..Properties::default() }.encode(&mut properties);
    node.send_content(client, 1, &publish("", "to", false), &properties, b"x");
    for name in ["to", "copy", "blind"] {
        let seen = node.get(client, name, true);
        let table = EncodedProperties::check(&seen.properties).expect("properties").headers().expect("a table");
        assert!(table.get("CC").is_some() && table.get("BCC").is_none(), "{seen:?}");
    }
    node.stop();
}

#[test]
fn messages_that_cannot_be_are_refused_with_rabbitmqs_words() {
    let mut node = Node::start();
    let client = node.open();
    let encoded = |properties: Properties<'_>| {
        let mut out = BytesMut::new();
        properties.encode(&mut out);
        out
    };
    let plain = encoded(Properties::default());
    let cc = argument("CC", "abc");
    let copies = |count: usize, key: &str| {
        Table::build(|fields| fields.array(short("CC"), |keys| (0..count).for_each(|_| keys.put(key))))
    };
    let (many, long) = (copies(1000, "q"), copies(1, &"x".repeat(256)));
    let cases = [
        ("nope", plain.clone(), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
        (
            "amq.rabbitmq.trace",
            plain,
            403,
            "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'",
        ),
        (
            "",
            encoded(Properties { user_id: ShortBytes::new(b"bob"), ..Properties::default() }),
            406,
            "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'",
        ),
        (
            "",
            encoded(Properties { expiration: ShortBytes::new(b"12x"), ..Properties::default() }),
            406,
            "PRECONDITION_FAILED - invalid expiration '12x': {leftover_string,\"x\"}",
        ),
        (
            "",
            encoded(Properties { headers: Some(cc.view()), ..Properties::default() }),
            406,
            "PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,\"CC\",longstr}",
        ),
        // RabbitMQ has no bound for these.
        (
            "",
            encoded(Properties { headers: Some(many.view()), ..Properties::default() }),
            406,
            "PRECONDITION_FAILED - invalid message: more than 1000 routing keys",
        ),
        (
            "",
            encoded(Properties { headers: Some(long.view()), ..Properties::default() }),
            406,
            "PRECONDITION_FAILED - invalid message: a routing key in header 'CC' of more than 255 bytes",
        ),
    ];
    for (exchange, properties, code, text) in cases {
        node.send_content(client, 1, &publish(exchange, "q", false), &properties, b"x");
        assert_eq!(node.channel_error(client, 1), (code, text.to_owned()));
        assert_eq!(node.ask(client, 1, &amqp_wire::channel::Open {}), "Channel(OpenOk(OpenOk))");
    }
    node.send(client, 1, &basic::Publish { immediate: true, ..publish("", "q", false) });
    assert_eq!(node.connection_error(client), (540, "NOT_IMPLEMENTED - immediate=true".to_owned()));
    node.stop();
}

#[test]
fn a_body_that_is_too_large_is_read_and_refused() {
    let mut node = Node::start();
    let client = node.open();
    let mut bytes = BytesMut::new();
    write_method(&mut bytes, 1, &publish("", "q", false));
    let body_size = (16 << 20) + 1;
    ContentHeader { body_size, properties: EncodedProperties::default() }.write(&mut bytes, 1);
    amqp_wire::write_body(&mut bytes, 1, &vec![7; body_size as usize], FRAME_MAX);
    for piece in bytes.chunks(1 << 20) {
        node.raw(client, piece);
    }
    let text = "PRECONDITION_FAILED - message size 16777217 is larger than configured max size 16777216";
    assert_eq!(node.channel_error(client, 1), (406, text.to_owned()));
    node.stop();
}

/// A queue that refuses what is more than `most`, and a client that wants confirms.
fn refusing(node: &mut Node, most: i32) -> usize {
    let client = node.open();
    let arguments = Table::build(|fields| {
        fields.put(short("x-max-length"), most);
        fields.put(short("x-overflow"), "reject-publish");
    });
    node.ask(
        client,
        1,
        &queue::Declare {
            queue: short("full"),
            durable: true,
            arguments: arguments.view(),
            ..queue::Declare::default()
        },
    );
    node.select_confirms(client);
    client
}

fn publishes(count: usize) -> BytesMut {
    let mut bytes = BytesMut::new();
    for _ in 0..count {
        write_content(&mut bytes, 1, &publish("", "full", false), EncodedProperties::default(), b"x", FRAME_MAX);
    }
    bytes
}

/// How many of the next `count` publishes are confirmed and refused.
fn kept_and_refused(node: &mut Node, client: usize, count: u64) -> (u64, u64) {
    let mut seen = (0, 0);
    while seen.0 + seen.1 < count {
        let method = node.next(client).method;
        let last: u64 = method
            .split("delivery_tag: ")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .and_then(|tag| tag.parse().ok())
            .expect("a tag");
        match method.starts_with("Basic(Ack(") {
            true if method.contains("multiple: true") => seen.0 = last,
            true => seen.0 += 1,
            false => seen.1 += 1,
        }
    }
    seen
}

#[test]
fn a_full_queue_refuses_and_the_publisher_hears_of_it() {
    let mut node = Node::start();
    let client = refusing(&mut node, 2);
    node.raw(client, &publishes(5));
    assert_eq!(kept_and_refused(&mut node, client, 5), (2, 3), "two are kept");
    node.stop();
}

#[test]
fn what_the_queue_has_got_is_not_counted_as_being_under_way_too() {
    let mut node = Node::start();
    let client = refusing(&mut node, 4);
    let log = Arc::clone(node.subscription("full").0.log());
    node.raw_alone(client, &publishes(3));
    // The log has them, and the connection does not know.
    while log.last_stable().0 < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    node.raw_alone(client, &publishes(2));
    assert_eq!(kept_and_refused(&mut node, client, 5), (4, 1));
    node.stop();
}

#[test]
fn what_all_publishers_have_under_way_is_counted() {
    let mut node = Node::start();
    for (round, kind) in ["classic", "quorum"].into_iter().cycle().take(10).enumerate() {
        let client = node.open();
        let arguments = Table::build(|fields| {
            fields.put(short("x-max-length"), 50);
            fields.put(short("x-overflow"), "reject-publish");
            fields.put(short("x-queue-type"), kind);
        });
        node.ask(
            client,
            1,
            &queue::Declare {
                queue: short("full"),
                durable: true,
                arguments: arguments.view(),
                ..queue::Declare::default()
            },
        );
        let clients: Vec<usize> = (0..10).map(|_| node.open()).collect();
        clients.iter().for_each(|client| node.select_confirms(*client));
        for _ in 0..5 {
            clients.iter().for_each(|client| node.raw_alone(*client, &publishes(10)));
        }
        // One goes without having been told.
        node.close(clients[0]);
        let kept: u64 = clients[1..].iter().map(|client| kept_and_refused(&mut node, *client, 50).0).sum();
        let end = node.subscription("full").0.log().last_stable().0;
        assert!(
            kept <= end && end == if kind == "classic" { 50 } else { 51 },
            "round {round}, {kind}: {kept} of {end}"
        );
        node.ask(client, 1, &queue::Delete { queue: short("full"), ..queue::Delete::default() });
    }
    node.stop();
}

#[test]
fn frames_in_a_wrong_order_end_the_connection() {
    let mut node = Node::start();
    let mut header = BytesMut::new();
    ContentHeader { body_size: 1, properties: EncodedProperties::default() }.write(&mut header, 1);
    let frame = |kind: FrameKind, payload: &[u8]| {
        let mut out = vec![kind as u8, 0, 1, 0, 0, 0, payload.len() as u8];
        out.extend_from_slice(payload);
        out.push(0xce);
        out
    };
    let mut method = BytesMut::new();
    write_method(&mut method, 1, &publish("", "q", false));
    let (method, header, body) = (method.to_vec(), header.to_vec(), frame(FrameKind::Body, b"x"));
    let other_class = frame(FrameKind::Header, &[0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let cases: [(Vec<Vec<u8>>, u16, &str); 7] = [
        (vec![body.clone()], 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead"),
        (vec![header.clone()], 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead"),
        (
            vec![method.clone(), method.clone()],
            505,
            "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        ),
        (
            vec![method.clone(), body.clone()],
            505,
            "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        ),
        (
            vec![method.clone(), other_class],
            505,
            "UNEXPECTED_FRAME - expected content header for class 60, got one for class 80 instead",
        ),
        (
            vec![method.clone(), header.clone(), method.clone()],
            505,
            "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
        ),
        (
            vec![method, header, frame(FrameKind::Body, b"xy")],
            501,
            "FRAME_ERROR - content body frame exceeds remaining content size",
        ),
    ];
    for (frames, code, text) in cases {
        let client = node.open();
        frames.iter().for_each(|frame| node.raw(client, frame));
        assert_eq!(node.connection_error(client), (code, text.to_owned()));
    }
    node.stop();
}
