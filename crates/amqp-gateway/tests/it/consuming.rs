//! Consumers, single messages, and what is said of them.

use amqp_wire::{Table, basic, channel, connection, queue, short};

use crate::node::{Node, argument, none};

#[test]
fn a_consumer_gets_what_is_published_and_acknowledges_it() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    node.publish(client, "", "q", b"before");
    node.consume(client, "q", "c", false);
    let seen = node.next(client);
    let expected = "Basic(Deliver(Deliver { consumer_tag: \"c\", delivery_tag: 1, redelivered: false, exchange: \"\", routing_key: \"q\" }))";
    assert_eq!((&*seen.method, &seen.body[..]), (expected, &b"before"[..]));
    node.publish(client, "", "q", b"after");
    assert_eq!(node.next(client).body, b"after");
    node.send(client, 1, &basic::Ack { delivery_tag: 2, multiple: true });
    assert_eq!(
        node.ask(client, 1, &queue::Delete { queue: short("q"), if_empty: true, ..queue::Delete::default() }),
        "Queue(DeleteOk(DeleteOk { message_count: 0 }))"
    );
    assert_eq!(
        node.next(client).method,
        "Basic(Cancel(Cancel { consumer_tag: \"c\", no_wait: true }))",
        "after the answer"
    );
    node.stop();
}

#[test]
fn prefetch_limits_what_is_on_its_way() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    for number in 0..5 {
        node.publish(client, "", "q", &[number]);
    }
    assert_eq!(node.ask(client, 1, &basic::Qos { prefetch_count: 2, ..basic::Qos::default() }), "Basic(QosOk(QosOk))");
    node.consume(client, "q", "c", false);
    assert_eq!([node.next(client).body, node.next(client).body], [[0], [1]]);
    // Whatever is asked now is answered behind what was delivered.
    assert_eq!(node.ask(client, 1, &basic::Qos::default()), "Basic(QosOk(QosOk))");
    node.send(client, 1, &basic::Ack { delivery_tag: 2, multiple: false });
    assert_eq!(node.next(client).body, [2]);
    node.send(client, 1, &basic::Ack { delivery_tag: 0, multiple: true });
    assert_eq!([node.next(client).body, node.next(client).body], [[3], [4]]);
    node.stop();
}

/// In the words of RabbitMQ 4.3.6.
#[test]
fn quorum_queues_know_neither_conditions_of_a_deletion_nor_a_limit_of_the_channel() {
    let mut node = Node::start();
    let setter = node.open();
    let kind = argument("x-queue-type", "quorum");
    let declare =
        queue::Declare { queue: short("q"), durable: true, arguments: kind.view(), ..queue::Declare::default() };
    assert!(node.ask(setter, 1, &declare).starts_with("Queue(DeclareOk"));
    let conditions = "cannot delete queue 'q' in vhost '/'. queue.delete operations with";
    let delete =
        |if_unused, if_empty| queue::Delete { queue: short("q"), if_unused, if_empty, ..queue::Delete::default() };
    for (if_unused, if_empty, told) in
        [(true, false, "if-unused"), (false, true, "if-empty"), (true, true, "if-unused")]
    {
        let client = node.open();
        node.send(client, 1, &delete(if_unused, if_empty));
        let expected = format!("NOT_IMPLEMENTED - {conditions} {told} flag set are not supported by quorum queues");
        assert_eq!(node.connection_error(client), (540, expected));
    }
    let client = node.open();
    assert_eq!(
        node.ask(client, 1, &basic::Qos { prefetch_count: 1, global: true, ..basic::Qos::default() }),
        "Basic(QosOk(QosOk))"
    );
    let consume = basic::Consume { queue: short("q"), consumer_tag: short("c"), ..basic::Consume::default() };
    node.send(client, 1, &consume);
    assert_eq!(
        node.connection_error(client),
        (540, "NOT_IMPLEMENTED - queue 'q' in vhost '/' does not support global qos".to_owned())
    );
    // None is none, and one of each consumer is what they know.
    let client = node.open();
    for qos in [
        basic::Qos { global: true, ..basic::Qos::default() },
        basic::Qos { prefetch_count: 1, ..basic::Qos::default() },
    ] {
        assert_eq!(node.ask(client, 1, &qos), "Basic(QosOk(QosOk))");
    }
    assert!(node.ask(client, 1, &consume).starts_with("Basic(ConsumeOk"));
    assert_eq!(node.ask(client, 1, &delete(false, false)), "Queue(DeleteOk(DeleteOk { message_count: 0 }))");
    node.stop();
}

#[test]
fn what_is_given_back_comes_again() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    node.publish(client, "", "q", b"x");
    let ways: [fn(&mut Node, usize, u64); 4] = [
        |node, client, tag| node.send(client, 1, &basic::Nack { delivery_tag: tag, multiple: false, requeue: true }),
        |node, client, tag| node.send(client, 1, &basic::Reject { delivery_tag: tag, requeue: true }),
        |node, client, _| {
            assert_eq!(node.ask(client, 1, &basic::Recover { requeue: true }), "Basic(RecoverOk(RecoverOk))")
        },
        |node, client, _| node.send(client, 1, &basic::RecoverAsync { requeue: true }),
    ];
    for (tag, give_back) in (1..).zip(ways) {
        let seen = node.get(client, "q", false);
        assert!(seen.method.contains(&format!("delivery_tag: {tag}, redelivered: {}", tag > 1)), "{seen:?}");
        give_back(&mut node, client, tag);
    }
    let seen = node.get(client, "q", false);
    assert!(seen.method.contains("redelivered: true"), "{seen:?}");
    node.send(client, 1, &basic::Reject { delivery_tag: 5, requeue: false });
    assert_eq!(node.get(client, "q", false).method, "Basic(GetEmpty(GetEmpty))");
    node.stop();
}

#[test]
fn a_quorum_queue_says_how_often_a_message_came_back() {
    let mut node = Node::start();
    let client = node.open();
    let arguments = argument("x-queue-type", "quorum");
    node.ask(
        client,
        1,
        &queue::Declare { queue: short("q"), durable: true, arguments: arguments.view(), ..queue::Declare::default() },
    );
    node.publish(client, "", "q", b"x");
    assert!(node.get(client, "q", false).properties[..] == [0, 0]);
    node.send(client, 1, &basic::Reject { delivery_tag: 1, requeue: true });
    let seen = node.get(client, "q", false);
    let properties = amqp_wire::EncodedProperties::check(&seen.properties).expect("properties");
    assert_eq!(properties.headers().and_then(|table| table.get("x-delivery-count")), Some(amqp_wire::Value::I64(1)));
    node.stop();
}

#[test]
fn tags_that_the_channel_does_not_have_close_it() {
    let mut node = Node::start();
    let client = node.open();
    let text = |tag| (406, format!("PRECONDITION_FAILED - unknown delivery tag {tag}"));
    node.send(client, 1, &basic::Ack { delivery_tag: 5, multiple: false });
    assert_eq!(node.channel_error(client, 1), text(5));
    for (number, multiple, tag) in [(2, true, 7), (3, false, 0)] {
        node.ask(client, number, &channel::Open {});
        node.send(client, number, &basic::Nack { delivery_tag: tag, multiple, requeue: true });
        assert_eq!(node.channel_error(client, number), text(tag));
    }
    node.ask(client, 4, &channel::Open {});
    node.send(client, 4, &basic::Ack { delivery_tag: 0, multiple: true });
    assert_eq!(node.ask(client, 4, &basic::Qos::default()), "Basic(QosOk(QosOk))", "of nothing, all");
    node.send(client, 4, &basic::Recover { requeue: false });
    assert_eq!(node.connection_error(client), (540, "NOT_IMPLEMENTED - requeue=false".to_owned()));
    node.stop();
}

#[test]
fn a_closed_channel_or_connection_gives_back_what_it_had() {
    let mut node = Node::start();
    let (client, other) = (node.open(), node.open());
    node.declare(client, "q");
    node.publish(client, "", "q", b"x");
    node.consume(client, "q", "c", false);
    node.next(client);
    assert_eq!(node.get(other, "q", false).method, "Basic(GetEmpty(GetEmpty))");
    assert_eq!(node.ask(client, 1, &channel::Close::default()), "Channel(CloseOk(CloseOk))");
    let seen = node.get(other, "q", false);
    assert!(seen.method.contains("redelivered: true"), "{seen:?}");
    node.close(other);
    node.ask(client, 1, &channel::Open {});
    assert!(node.get(client, "q", true).method.contains("redelivered: true"));
    node.stop();
}

#[test]
fn a_cancelled_consumer_keeps_what_it_has_and_gets_no_more() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    node.publish(client, "", "q", b"1");
    node.consume(client, "q", "c", false);
    node.next(client);
    assert_eq!(
        node.ask(client, 1, &basic::Cancel { consumer_tag: short("c"), no_wait: false }),
        "Basic(CancelOk(CancelOk { consumer_tag: \"c\" }))"
    );
    node.publish(client, "", "q", b"2");
    assert!(node.get(client, "q", true).body == b"2");
    node.send(client, 1, &basic::Nack { delivery_tag: 1, multiple: false, requeue: true });
    assert_eq!(node.get(client, "q", true).body, b"1");
    assert_eq!(
        node.ask(client, 1, &basic::Cancel { consumer_tag: short("none"), no_wait: false }),
        "Basic(CancelOk(CancelOk { consumer_tag: \"none\" }))"
    );
    node.stop();
}

#[test]
fn a_consumer_hears_that_its_queue_is_gone() {
    let mut node = Node::start();
    let (client, other) = (node.open(), node.open());
    node.declare(client, "q");
    node.consume(client, "q", "c", false);
    assert_eq!(
        node.ask(other, 1, &queue::Delete { queue: short("q"), ..queue::Delete::default() }),
        "Queue(DeleteOk(DeleteOk { message_count: 0 }))"
    );
    assert_eq!(node.next(client).method, "Basic(Cancel(Cancel { consumer_tag: \"c\", no_wait: true }))");
    node.stop();
}

#[test]
fn consumers_are_refused_with_rabbitmqs_words() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    let consume = |queue, tag, exclusive| basic::Consume {
        queue: short(queue),
        consumer_tag: short(tag),
        exclusive,
        ..basic::Consume::default()
    };
    node.consume(client, "q", "a", false);
    node.send(client, 1, &consume("q", "b", true));
    assert_eq!(
        node.channel_error(client, 1),
        (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use".to_owned())
    );
    node.ask(client, 1, &channel::Open {});
    node.send(client, 1, &consume("nope", "a", false));
    assert_eq!(node.channel_error(client, 1), (404, "NOT_FOUND - no queue 'nope' in vhost '/'".to_owned()));
    node.ask(client, 1, &channel::Open {});
    let text = argument("x-priority", "x");
    node.send(client, 1, &basic::Consume { arguments: text.view(), ..consume("q", "a", false) });
    let expected =
        "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer, got longstr\"";
    assert_eq!(node.channel_error(client, 1), (406, expected.to_owned()));
    node.ask(client, 1, &channel::Open {});
    let made_up = node.ask(client, 1, &consume("q", "", false));
    assert!(made_up.starts_with("Basic(ConsumeOk(ConsumeOk { consumer_tag: \"amq.ctag-"), "{made_up}");
    node.consume(client, "q", "a", false);
    node.send(client, 1, &consume("q", "a", false));
    assert_eq!(node.connection_error(client), (530, "NOT_ALLOWED - attempt to reuse consumer tag 'a'".to_owned()));
    let client = node.open();
    node.send(client, 1, &basic::Qos { prefetch_size: 3, ..basic::Qos::default() });
    assert_eq!(node.connection_error(client), (540, "NOT_IMPLEMENTED - prefetch_size!=0 (3)".to_owned()));
    node.stop();
}

#[test]
fn queues_of_a_connection_or_of_consumers_go_with_them() {
    let mut node = Node::start();
    let (client, other) = (node.open(), node.open());
    let declare = |queue, exclusive, auto_delete| queue::Declare {
        queue: short(queue),
        exclusive,
        auto_delete,
        arguments: none(),
        ..queue::Declare::default()
    };
    node.ask(client, 1, &declare("mine", true, false));
    node.ask(client, 1, &declare("passing", false, true));
    node.consume(client, "passing", "c", true);
    let locked = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.";
    node.send(other, 1, &declare("mine", true, false));
    assert_eq!(node.channel_error(other, 1), (405, locked.to_owned()));
    node.ask(other, 1, &channel::Open {});
    assert_eq!(node.ask(client, 0, &connection::Close::default()), "Connection(CloseOk(CloseOk))");
    for name in ["mine", "passing"] {
        node.send(other, 1, &queue::Declare { queue: short(name), passive: true, ..queue::Declare::default() });
        assert_eq!(node.channel_error(other, 1), (404, format!("NOT_FOUND - no queue '{name}' in vhost '/'")));
        node.ask(other, 1, &channel::Open {});
    }
    node.stop();
}

#[test]
fn a_queue_goes_with_a_connection_that_ends_while_it_is_declared() {
    let mut node = Node::start();
    let other = node.open();
    for durable in [false, true] {
        let client = node.open();
        let mine = queue::Declare { queue: short("mine"), durable, exclusive: true, ..queue::Declare::default() };
        node.send(client, 1, &mine);
        node.close(client);
        // The controller works in order: what comes behind is answered when that is done.
        node.ask(other, 1, &queue::Declare { queue: short("next"), ..queue::Declare::default() });
        node.send(other, 1, &queue::Declare { queue: short("mine"), passive: true, ..queue::Declare::default() });
        assert_eq!(node.channel_error(other, 1), (404, "NOT_FOUND - no queue 'mine' in vhost '/'".to_owned()));
        node.ask(other, 1, &channel::Open {});
    }
    node.stop();
}

#[test]
fn a_durable_queue_of_one_connection_is_gone_after_a_restart() {
    let mut node = Node::start();
    let client = node.open();
    let mine = queue::Declare { queue: short("mine"), durable: true, exclusive: true, ..queue::Declare::default() };
    node.ask(client, 1, &mine);
    node.bind(client, "mine", "amq.direct", "key");
    node.ask(client, 1, &queue::Declare { queue: short("everybody's"), durable: true, ..queue::Declare::default() });
    let mut node = node.restart();
    let client = node.open();
    node.ask(client, 1, &queue::Declare { queue: short("everybody's"), durable: true, ..queue::Declare::default() });
    node.send(client, 1, &queue::Declare { queue: short("mine"), passive: true, ..queue::Declare::default() });
    assert_eq!(node.channel_error(client, 1), (404, "NOT_FOUND - no queue 'mine' in vhost '/'".to_owned()));
    node.stop();
}

#[test]
fn large_bodies_are_shared_and_arrive_whole() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    let bodies: Vec<Vec<u8>> = (1..20u8).map(|number| vec![number; 100_000]).collect();
    for body in &bodies {
        node.publish(client, "", "q", body);
    }
    node.consume(client, "q", "c", true);
    for body in bodies {
        assert_eq!(node.next(client).body, body);
    }
    drop(Table::default());
    node.stop();
}

fn declare_quorum(node: &mut Node, client: usize, time_out_ms: i32) {
    let arguments = Table::build(|fields| {
        fields.put(short("x-queue-type"), "quorum");
        fields.put(short("x-consumer-timeout"), time_out_ms);
    });
    let answer = node.ask(
        client,
        1,
        &queue::Declare { queue: short("q"), durable: true, arguments: arguments.view(), ..queue::Declare::default() },
    );
    assert!(answer.starts_with("Queue(DeclareOk("), "{answer}");
}

#[test]
fn what_a_consumer_keeps_too_long_is_taken_back_and_it_is_told_to_stop() {
    let mut node = Node::start();
    let client = node.open();
    declare_quorum(&mut node, client, 100);
    node.publish(client, "", "q", b"x");
    node.consume(client, "q", "c", false);
    assert_eq!(node.next(client).body, b"x");
    assert_eq!(node.next(client).method, "Basic(Cancel(Cancel { consumer_tag: \"c\", no_wait: true }))");
    let got = node.get(client, "q", false);
    assert!(got.method.contains("delivery_tag: 2, redelivered: true"), "{got:?}");
    node.send(client, 1, &basic::Ack { delivery_tag: 2, multiple: false });
    // Settled too late, it is a consumer again.
    node.publish(client, "", "q", b"y");
    assert_eq!(ask_ready(&mut node, client), 1);
    node.send(client, 1, &basic::Ack { delivery_tag: 1, multiple: false });
    assert_eq!(node.next(client).body, b"y");
    node.stop();
}

fn ask_ready(node: &mut Node, client: usize) -> u64 {
    let answer = node.ask(client, 1, &queue::Declare { queue: short("q"), passive: true, ..queue::Declare::default() });
    let count = answer.split("message_count: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a count");
    count.parse().expect("a number")
}

#[test]
fn who_has_got_a_message_for_too_long_loses_the_channel() {
    let mut node = Node::start();
    let client = node.open();
    declare_quorum(&mut node, client, 100);
    node.publish(client, "", "q", b"x");
    assert_eq!(node.get(client, "q", false).body, b"x");
    let (code, text) = node.channel_error(client, 1);
    let wanted = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: -1 ms. This timeout value can be \
                  configured, see consumers doc guide to learn more";
    assert_eq!((code, text.as_str()), (406, wanted));
    node.ask(client, 1, &channel::Open {});
    assert!(node.get(client, "q", true).method.contains("redelivered: true"));
    node.stop();
}

#[test]
fn only_consumers_of_quorum_queues_have_a_time() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "classic");
    let arguments = argument("x-consumer-timeout", 100);
    let method = basic::Consume { queue: short("classic"), arguments: arguments.view(), ..basic::Consume::default() };
    node.send(client, 1, &method);
    let text = "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue 'classic' in vhost '/' of queue type rabbit_classic_queue";
    assert_eq!(node.channel_error(client, 1), (406, text.to_owned()));
    node.ask(client, 1, &channel::Open {});
    declare_quorum(&mut node, client, 60_000);
    let arguments = argument("x-consumer-timeout", -1);
    let method = basic::Consume { queue: short("q"), arguments: arguments.view(), ..basic::Consume::default() };
    node.send(client, 1, &method);
    let text = "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue 'q' in vhost '/': {value_negative,-1}";
    assert_eq!(node.channel_error(client, 1), (406, text.to_owned()));
    node.ask(client, 1, &channel::Open {});
    // What the consumer says counts, not the queue.
    node.publish(client, "", "q", b"x");
    let arguments = argument("x-consumer-timeout", 100);
    let method = basic::Consume {
        queue: short("q"),
        consumer_tag: short("c"),
        arguments: arguments.view(),
        ..basic::Consume::default()
    };
    assert!(node.ask(client, 1, &method).starts_with("Basic(ConsumeOk("));
    assert_eq!(node.next(client).body, b"x");
    assert_eq!(node.next(client).method, "Basic(Cancel(Cancel { consumer_tag: \"c\", no_wait: true }))");
    node.stop();
}
