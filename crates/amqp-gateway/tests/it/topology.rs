//! Exchanges, queues and bindings: what is made, and what is refused. The texts are RabbitMQ 4.3.6's.

use amqp_wire::{Encode, Table, channel, exchange, queue, short};

use crate::node::{Node, argument};

fn refused(node: &mut Node, client: usize, method: &impl Encode, code: u16, text: &str) {
    node.send(client, 1, method);
    assert_eq!(node.channel_error(client, 1), (code, text.to_owned()));
    assert_eq!(node.ask(client, 1, &channel::Open {}), "Channel(OpenOk(OpenOk))");
}

fn declare<'a>(name: &'static str, kind: &'static str) -> exchange::Declare<'a> {
    exchange::Declare { exchange: short(name), kind: short(kind), ..exchange::Declare::default() }
}

#[test]
fn exchanges() {
    let mut node = Node::start();
    let client = node.open();
    node.declare_exchange(client, "e", "topic");
    node.declare_exchange(client, "e", "topic");
    let default = "ACCESS_REFUSED - operation not permitted on the default exchange";
    refused(&mut node, client, &declare("", "direct"), 403, default);
    refused(
        &mut node,
        client,
        &declare("amq.foo", "direct"),
        403,
        "ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'",
    );
    refused(&mut node, client, &declare("f", "bar"), 406, "PRECONDITION_FAILED - invalid exchange type 'bar'");
    refused(
        &mut node,
        client,
        &exchange::Declare { passive: true, ..declare("nope", "") },
        404,
        "NOT_FOUND - no exchange 'nope' in vhost '/'",
    );
    let text = "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'e' in vhost '/': received 'fanout' but current is 'topic'";
    refused(&mut node, client, &declare("e", "fanout"), 406, text);
    let bind = exchange::Bind { destination: short("e"), source: short("nope"), ..exchange::Bind::default() };
    refused(&mut node, client, &bind, 404, "NOT_FOUND - no exchange 'nope' in vhost '/'");
    refused(&mut node, client, &exchange::Bind { source: short(""), ..bind }, 403, default);
    assert_eq!(
        node.ask(
            client,
            1,
            &exchange::Unbind { destination: short("e"), source: short("nope"), ..exchange::Unbind::default() }
        ),
        "Exchange(UnbindOk(UnbindOk))"
    );
    assert_eq!(
        node.ask(client, 1, &exchange::Bind { source: short("amq.direct"), ..bind }),
        "Exchange(BindOk(BindOk))"
    );
    node.declare(client, "q");
    node.bind(client, "q", "e", "#");
    let delete = exchange::Delete { exchange: short("e"), if_unused: true, no_wait: false };
    let system = exchange::Delete { exchange: short("amq.direct"), ..delete };
    refused(
        &mut node,
        client,
        &system,
        403,
        "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    );
    refused(&mut node, client, &delete, 406, "PRECONDITION_FAILED - exchange 'e' in vhost '/' in use");
    node.publish(client, "amq.direct", "", b"through both");
    assert_eq!(node.get(client, "q", true).body, b"through both");
    assert_eq!(node.ask(client, 1, &exchange::Delete { if_unused: false, ..delete }), "Exchange(DeleteOk(DeleteOk))");
    assert_eq!(
        node.ask(client, 1, &exchange::Delete { if_unused: false, ..delete }),
        "Exchange(DeleteOk(DeleteOk))",
        "it is not there already"
    );
    node.stop();
}

#[test]
fn queues() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    let q = queue::Declare { queue: short("q"), durable: true, ..queue::Declare::default() };
    refused(
        &mut node,
        client,
        &queue::Declare { queue: short("amq.foo"), ..q },
        403,
        "ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix 'amq.*'",
    );
    refused(
        &mut node,
        client,
        &queue::Declare { queue: short("nope"), passive: true, ..q },
        404,
        "NOT_FOUND - no queue 'nope' in vhost '/'",
    );
    let text = "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'";
    refused(&mut node, client, &queue::Declare { auto_delete: true, ..q }, 406, text);
    let text = "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'r' in vhost '/': {value_negative,-1}";
    let arguments = argument("x-message-ttl", -1i32);
    refused(&mut node, client, &queue::Declare { queue: short("r"), arguments: arguments.view(), ..q }, 406, text);
    let none = "NOT_FOUND - no previously declared queue";
    refused(&mut node, client, &queue::Purge::default(), 404, none);
    refused(&mut node, client, &queue::Delete::default(), 404, none);
    refused(&mut node, client, &queue::Bind { exchange: short("amq.direct"), ..queue::Bind::default() }, 404, none);
    refused(
        &mut node,
        client,
        &queue::Purge { queue: short("nope"), no_wait: false },
        404,
        "NOT_FOUND - no queue 'nope' in vhost '/'",
    );
    assert_eq!(
        node.ask(client, 1, &queue::Delete { queue: short("nope"), ..queue::Delete::default() }),
        "Queue(DeleteOk(DeleteOk { message_count: 0 }))"
    );
    node.publish(client, "", "q", b"x");
    let delete = queue::Delete { queue: short("q"), if_empty: true, ..queue::Delete::default() };
    refused(&mut node, client, &delete, 406, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty");
    assert!(node.ask(client, 1, &q).contains("message_count: 1"));
    assert_eq!(
        node.ask(client, 1, &queue::Purge::default()),
        "Queue(PurgeOk(PurgeOk { message_count: 1 }))",
        "the last that was declared"
    );
    assert_eq!(node.ask(client, 1, &delete), "Queue(DeleteOk(DeleteOk { message_count: 0 }))");
    node.stop();
}

#[test]
fn a_queue_without_a_name_gets_one_and_is_meant_by_none() {
    let mut node = Node::start();
    let client = node.open();
    let answer = node.ask(client, 1, &queue::Declare { exclusive: true, ..queue::Declare::default() });
    assert!(answer.starts_with("Queue(DeclareOk(DeclareOk { queue: \"amq.gen-"), "{answer}");
    let name = answer.split('"').nth(1).expect("a name").to_owned();
    // With neither queue nor key the key is the queue's name.
    assert_eq!(
        node.ask(client, 1, &queue::Bind { exchange: short("amq.direct"), ..queue::Bind::default() }),
        "Queue(BindOk(BindOk))"
    );
    node.publish(client, "amq.direct", &name, b"x");
    assert_eq!(node.get(client, "", true).body, b"x");
    assert_eq!(
        node.ask(client, 1, &queue::Unbind { exchange: short("amq.direct"), ..queue::Unbind::default() }),
        "Queue(UnbindOk(UnbindOk))"
    );
    node.publish(client, "amq.direct", &name, b"x");
    assert_eq!(node.get(client, "", true).method, "Basic(GetEmpty(GetEmpty))");
    node.stop();
}

#[test]
fn without_waiting_only_errors_are_answered() {
    let mut node = Node::start();
    let client = node.open();
    node.send(client, 1, &exchange::Declare { no_wait: true, ..declare("e", "direct") });
    node.send(
        client,
        1,
        &queue::Declare { queue: short("q"), durable: true, no_wait: true, ..queue::Declare::default() },
    );
    node.send(
        client,
        1,
        &queue::Bind { queue: short("q"), exchange: short("e"), no_wait: true, ..queue::Bind::default() },
    );
    node.publish(client, "e", "", b"x");
    assert_eq!(node.get(client, "q", true).body, b"x");
    node.send(client, 1, &queue::Purge { queue: short("q"), no_wait: true });
    node.send(client, 1, &queue::Delete { queue: short("q"), no_wait: true, ..queue::Delete::default() });
    node.send(client, 1, &exchange::Delete { exchange: short("e"), no_wait: true, ..exchange::Delete::default() });
    let text = "ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'";
    refused(&mut node, client, &exchange::Declare { no_wait: true, ..declare("amq.foo", "direct") }, 403, text);
    node.stop();
}

#[test]
fn what_follows_a_command_sees_what_it_did() {
    let mut node = Node::start();
    let client = node.open();
    let mut bytes = bytes::BytesMut::new();
    for number in 0..20 {
        let name = format!("q{number}");
        let queue = crate::node::string(&name);
        amqp_wire::write_method(
            &mut bytes,
            1,
            &queue::Declare { queue, durable: true, no_wait: true, ..queue::Declare::default() },
        );
        let publish = crate::node::publish("", &name, true);
        amqp_wire::write_content(
            &mut bytes,
            1,
            &publish,
            amqp_wire::EncodedProperties::default(),
            name.as_bytes(),
            8192,
        );
        amqp_wire::write_method(&mut bytes, 1, &amqp_wire::basic::Get { queue, no_ack: true });
    }
    node.raw(client, &bytes);
    for number in 0..20 {
        let seen = node.next(client);
        assert_eq!(seen.body, format!("q{number}").as_bytes(), "{seen:?}");
    }
    drop(Table::default());
    node.stop();
}
