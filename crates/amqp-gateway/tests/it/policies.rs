//! Policies, and what of them is in force for queues and exchanges; limits of a virtual host. What is expected is what RabbitMQ 4.3.6 did.

use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp_wire::{ProtocolHeader, basic, channel, connection, exchange, queue, short};
use broker::{Broker, ParameterError, PolicyScope, PolicyWish, Vhost};
use serde_json::{Value, json};

use crate::node::{Node, argument, capabilities, publish, start_ok, string};

fn vhost(node: &Node) -> Arc<Vhost> {
    node.vhost()
}

fn put(node: &Node, name: &str, pattern: &str, definition: Value) {
    let wish = PolicyWish { pattern: json!(pattern), definition, priority: None, apply_to: None };
    node.broker.put_policy(&vhost(node), PolicyScope::User, name, &wish).expect("a policy");
}

fn delete(node: &Node, name: &str) {
    node.broker.delete_policy(&vhost(node), PolicyScope::User, name).expect("it is there");
}

fn fill(node: &mut Node, client: usize, name: &str, bodies: &[&[u8]]) {
    node.select_confirms(client);
    for body in bodies {
        node.publish(client, "", name, body);
        assert!(node.next(client).method.starts_with("Basic(Ack("));
    }
}

#[test]
fn a_shorter_length_drops_what_is_too_much_at_once() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "jobs");
    fill(&mut node, client, "jobs", &[b"1", b"2", b"3"]);
    put(&node, "short", "^jobs$", json!({"max-length": 1}));
    assert_eq!(node.ready(b"jobs", 1), 1);
    let queue = vhost(&node).queue(b"jobs").expect("it is there");
    assert_eq!((queue.policy().as_deref(), queue.understood().length_max), (Some("short"), Some(1)));
    node.publish(client, "", "jobs", b"4");
    assert!(node.next(client).method.starts_with("Basic(Ack("));
    assert_eq!(node.ready(b"jobs", 1), 1);
    put(&node, "short", "^jobs$", json!({"max-length": 1, "overflow": "reject-publish"}));
    node.publish(client, "", "jobs", b"5");
    assert!(node.next(client).method.starts_with("Basic(Nack("), "the queue is full");
    delete(&node, "short");
    assert_eq!((queue.policy(), queue.understood().length_max, queue.may_refuse()), (None, None, false));
    node.publish(client, "", "jobs", b"6");
    assert!(node.next(client).method.starts_with("Basic(Ack("));
    assert_eq!(node.get(client, "jobs", true).body, b"4");
    node.stop();
}

#[test]
fn dead_letters_go_where_a_policy_says_as_long_as_it_does() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "jobs");
    node.declare(client, "dead");
    fill(&mut node, client, "jobs", &[b"1", b"2"]);
    put(&node, "letters", "^jobs$", json!({"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}));
    node.get(client, "jobs", false);
    node.send(client, 1, &basic::Reject { delivery_tag: 1, requeue: false });
    assert_eq!(node.ready(b"dead", 1), 1);
    delete(&node, "letters");
    node.get(client, "jobs", false);
    node.send(client, 1, &basic::Reject { delivery_tag: 2, requeue: false });
    assert_eq!(node.ready(b"jobs", 0), 0);
    assert_eq!(node.ready(b"dead", 1), 1);
    node.stop();
}

#[test]
fn a_queue_that_nobody_has_used_for_long_has_the_whole_time_from_the_policy_on() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "idle");
    std::thread::sleep(Duration::from_millis(600));
    let began = Instant::now();
    put(&node, "expires", "^idle$", json!({"expires": 500}));
    while vhost(&node).queue(b"idle").is_some() {
        assert!(began.elapsed() < Duration::from_secs(120), "it has not expired");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(began.elapsed() >= Duration::from_millis(500), "it was too early");
    node.stop();
}

#[test]
fn what_no_binding_takes_goes_where_a_policy_of_the_exchange_says() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "rest");
    node.bind(client, "rest", "amq.fanout", "");
    node.declare_exchange(client, "before", "direct");
    put(&node, "rest", "^(before|after)$", json!({"alternate-exchange": "amq.fanout"}));
    node.declare_exchange(client, "after", "direct");
    for exchange in ["before", "after"] {
        node.publish(client, exchange, "nobody", exchange.as_bytes());
        assert_eq!(node.ready(b"rest", 1), 1, "{exchange}");
        assert_eq!(node.get(client, "rest", true).body, exchange.as_bytes());
    }
    delete(&node, "rest");
    node.send_content(client, 1, &publish("before", "nobody", true), &[0, 0], b"x");
    assert!(node.next(client).method.contains("NO_ROUTE"));
    node.stop();
}

#[test]
fn an_operators_limit_holds_beside_the_arguments() {
    let mut node = Node::start();
    let client = node.open();
    let arguments = argument("x-max-length", 5i32);
    let declare = queue::Declare {
        queue: short("jobs"),
        durable: true,
        arguments: arguments.view(),
        ..queue::Declare::default()
    };
    assert!(node.ask(client, 1, &declare).starts_with("Queue(DeclareOk("));
    let wish = PolicyWish {
        pattern: json!(".*"),
        definition: json!({"max-length": 2, "expires": 90_000}),
        priority: None,
        apply_to: Some(json!("queues")),
    };
    node.broker.put_policy(&vhost(&node), PolicyScope::Operator, "limits", &wish).expect("a policy");
    let queue = vhost(&node).queue(b"jobs").expect("it is there");
    assert_eq!((queue.understood().length_max, queue.understood().expires), (Some(2), Some(90_000)));
    assert_eq!(Value::Object(queue.policies().definition()), json!({"max-length": 2, "expires": 90_000}));
    assert!(node.ask(client, 1, &declare).starts_with("Queue(DeclareOk("), "it is equivalent to what was declared");
    node.stop();
}

fn opening(node: &mut Node) -> usize {
    let client = node.connect();
    node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
    node.next(client);
    node.send(client, 0, &start_ok(b"\0guest\0guest", &capabilities()));
    node.next(client);
    node.send(client, 0, &connection::TuneOk { channel_max: 2047, frame_max: crate::node::FRAME_MAX, heartbeat: 0 });
    node.send(client, 0, &connection::Open { virtual_host: short("/") });
    client
}

#[test]
fn a_virtual_host_has_as_many_connections_and_queues_as_it_may() {
    let mut node = Node::start();
    let client = node.open();
    let host = vhost(&node);
    let broker: Arc<Broker> = Arc::clone(&node.broker);
    let limit = |name: &str, value: Value| broker.put_vhost_limit(&host, name, Some(value));
    limit("max-connections", json!(1)).expect("a limit");
    let second = opening(&mut node);
    let text = "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached";
    assert_eq!(node.connection_error(second), (530, text.to_owned()));
    limit("max-connections", json!(-1)).expect("no limit");
    let third = opening(&mut node);
    assert_eq!(node.next(third).method, "Connection(OpenOk(OpenOk))");
    assert_eq!(host.connections(), 2);
    node.close(third);
    node.declare(client, "one");
    limit("max-queues", json!(1)).expect("a limit");
    node.declare(client, "one");
    node.send(client, 1, &queue::Declare { queue: short("two"), ..queue::Declare::default() });
    let text = "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in vhost '/' (1) is reached";
    assert_eq!(node.channel_error(client, 1), (406, text.to_owned()));
    node.send(client, 1, &channel::Open {});
    node.next(client);
    let refused = limit("max-queues", json!("many")).expect_err("refused");
    assert!(matches!(refused, ParameterError::Invalid(_)), "{refused}");
    broker.delete_parameter(&host, "vhost-limits", "limits").expect("it is there");
    node.declare(client, "two");
    node.stop();
}

#[test]
fn policies_and_parameters_are_there_after_a_restart() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "jobs");
    let method = exchange::Declare {
        exchange: short("logs"),
        kind: short("direct"),
        durable: true,
        ..exchange::Declare::default()
    };
    assert_eq!(node.ask(client, 1, &method), "Exchange(DeclareOk(DeclareOk))");
    put(&node, "gone", "^jobs$", json!({"max-length": 7}));
    put(&node, "all", "^(jobs|logs)$", json!({"max-length": 2, "alternate-exchange": "rest"}));
    delete(&node, "gone");
    node.broker.put_vhost_limit(&vhost(&node), "max-queues", Some(json!(5))).expect("a limit");
    node.broker.put_global_parameter("cluster_name", json!("home")).expect("a parameter");
    let node = node.restart();
    let host = vhost(&node);
    let queue = host.queue(b"jobs").expect("it is there");
    assert_eq!((queue.policy().as_deref(), queue.understood().length_max), (Some("all"), Some(2)));
    let alternate = host.exchanges().read().exchange(b"logs").and_then(|found| found.alternate().cloned());
    assert_eq!(alternate.map(|name| name.to_string()).as_deref(), Some("rest"));
    assert_eq!(host.policies().all(PolicyScope::User).len(), 1);
    assert_eq!(Value::Object(host.parameters().limits()), json!({"max-queues": 5}));
    assert_eq!(node.broker.vhosts().global_parameter("cluster_name"), Some(json!("home")));
    node.stop();
}

#[test]
fn a_start_serves_while_policies_are_found_out_and_queues_wait_for_theirs() {
    const QUEUES: usize = 24;
    let ttl = argument("x-message-ttl", 2500);
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "letters");
    // Each question takes some ms, and none of them matches.
    let slow = format!("(){}[0-9]", r"(?=(?:a\1|a\1)*)".repeat(50));
    (0..60).for_each(|number| put(&node, &format!("slow-{number}"), &slow, json!({"max-length": 1})));
    put(&node, "with-letters", "^a", json!({"dead-letter-exchange": "", "dead-letter-routing-key": "letters"}));
    let names: Vec<String> =
        (0..QUEUES).map(|number| format!("{}{}", "a".repeat(250), char::from(b'b' + number as u8))).collect();
    for name in &names {
        let method =
            queue::Declare { queue: string(name), durable: true, arguments: ttl.view(), ..queue::Declare::default() };
        assert!(node.ask(client, 1, &method).starts_with("Queue(DeclareOk("));
    }
    node.select_confirms(client);
    for name in &names {
        // Delivery mode 2.
        node.send_content(client, 1, &publish("", name, false), &[0x10, 0, 2], b"1");
        assert!(node.next(client).method.starts_with("Basic(Ack("));
    }
    let mut node = node.restart();
    let host = vhost(&node);
    let queues: Vec<_> = names.iter().map(|name| host.queue(name.as_bytes()).expect("it is there")).collect();
    let unknown = queues.iter().filter(|queue| queue.policy().is_none()).count();
    assert!((1..=QUEUES).contains(&unknown), "{unknown}: it has not waited for all");
    // Who declares it again has its policy, and what ran out meanwhile goes where that says.
    let client = node.open();
    let method = queue::Declare {
        queue: string(names.last().expect("there are some")),
        durable: true,
        arguments: ttl.view(),
        ..queue::Declare::default()
    };
    assert!(node.ask(client, 1, &method).starts_with("Queue(DeclareOk("));
    assert_eq!(queues.last().and_then(|queue| queue.policy()).as_deref(), Some("with-letters"));
    while !host.policies().wait_until_applied(Duration::from_millis(5)) {
        node.pump();
    }
    assert!(queues.iter().all(|queue| queue.policy().as_deref() == Some("with-letters")));
    assert_eq!(node.ready(b"letters", QUEUES as u64), QUEUES as u64);
    node.stop();
}

#[test]
fn policies_take_no_more_memory_than_they_may() {
    let node = Node::start();
    let account = Arc::clone(node.broker.vhosts().policy_memory());
    put(&node, "small", "^orders", json!({"max-length": 1}));
    let small = account.bytes();
    assert!((10_000..50_000).contains(&small), "{small}");
    // A class with the letters of all languages, again and again.
    let wish = |pattern: &str, key: &str| PolicyWish {
        pattern: json!(pattern),
        definition: json!({"dead-letter-routing-key": key}),
        priority: None,
        apply_to: None,
    };
    account.set_bytes_max(small + (3 << 20));
    let large = wish(r"^[\w\p{L}]{20}x", "");
    let set = |name: &str, wish: &PolicyWish| node.broker.put_policy(&vhost(&node), PolicyScope::User, name, wish);
    let taken = (0..10).take_while(|number| set(&format!("large-{number}"), &large).is_ok()).count();
    assert!((1..=4).contains(&taken), "{taken}");
    assert!(matches!(set("larger", &large), Err(ParameterError::NoMemory { .. })));
    assert!(matches!(set("long", &wish("^a", &"k".repeat(3 << 20))), Err(ParameterError::NoMemory { .. })));
    // One that is there may become smaller, and what is gone takes nothing.
    set("large-0", &wish("^a", "k")).expect("it is smaller");
    (1..taken).for_each(|number| delete(&node, &format!("large-{number}")));
    delete(&node, "large-0");
    assert!(vhost(&node).policies().wait_until_applied(Duration::from_secs(60)));
    assert_eq!((account.bytes(), account.refused() > 1), (small, true));
    node.stop();
}
