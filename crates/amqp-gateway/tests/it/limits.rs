//! Limits of the node: each is met with RabbitMQ's error, counted, and follows its setting.

use amqp_wire::{Table, basic, channel, exchange, queue, short};
use broker::{LimitKind, VhostWish};

use crate::node::{Node, string};

fn set(node: &Node, name: &str, value: &str) {
    node.broker.alter_settings(&[(name.to_owned(), Some(value.to_owned()))]).expect("a limit");
}

fn unset(node: &Node, name: &str) {
    node.broker.alter_settings(&[(name.to_owned(), None)]).expect("no limit");
}

/// Opens channel 1 again, which an error has closed.
fn reopen(node: &mut Node, client: usize) {
    assert_eq!(node.ask(client, 1, &channel::Open {}), "Channel(OpenOk(OpenOk))");
}

#[test]
fn channels_of_the_node_are_counted_over_all_connections() {
    let mut node = Node::start();
    let (one, other) = (node.open(), node.open());
    assert_eq!(node.broker.limit_use(LimitKind::Channels), Some(2));
    set(&node, "channel_max_per_node", "3");
    assert_eq!(node.ask(one, 2, &channel::Open {}), "Channel(OpenOk(OpenOk))");
    node.send(other, 2, &channel::Open {});
    let text = format!(
        "NOT_ALLOWED - number of channels opened on node '{}' has reached the maximum allowed limit of 3",
        broker::node_name()
    );
    assert_eq!(node.connection_error(other), (530, text));
    assert_eq!(node.broker.limits().refused(LimitKind::Channels), 1);
    node.close(other);
    // They went with their connection.
    let third = node.open();
    assert_eq!(node.broker.limit_use(LimitKind::Channels), Some(3));
    let close = channel::Close { reply_code: 200, reply_text: short(""), class_id: 0, method_id: 0 };
    assert_eq!(node.ask(one, 2, &close), "Channel(CloseOk(CloseOk))");
    assert_eq!(node.ask(third, 2, &channel::Open {}), "Channel(OpenOk(OpenOk))");
    node.stop();
}

#[test]
fn queues_of_all_virtual_hosts_are_counted() {
    let mut node = Node::start();
    node.broker.put_vhost(VhostWish { name: "shop".to_owned(), ..VhostWish::default() }).expect("a virtual host");
    let client = node.open();
    node.declare(client, "one");
    set(&node, "cluster_queue_limit", "2");
    assert_eq!(
        node.ask(client, 1, &queue::Declare { exclusive: true, ..queue::Declare::default() }).find("DeclareOk"),
        Some(6)
    );
    assert_eq!(node.broker.limit_use(LimitKind::Queues), Some(2));
    node.declare(client, "one");
    for durable in [true, false] {
        node.send(
            client,
            1,
            &queue::Declare { queue: short("two"), durable, exclusive: !durable, ..queue::Declare::default() },
        );
        let text = "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in cluster (2) is reached";
        assert_eq!(node.channel_error(client, 1), (406, text.to_owned()));
        reopen(&mut node, client);
    }
    assert_eq!(node.broker.limits().refused(LimitKind::Queues), 2);
    node.ask(client, 1, &queue::Delete { queue: short("one"), ..queue::Delete::default() });
    node.declare(client, "two");
    node.stop();
}

#[test]
fn exchanges_of_all_virtual_hosts_are_counted() {
    let mut node = Node::start();
    let client = node.open();
    let there = node.broker.limit_use(LimitKind::Exchanges).expect("counted");
    assert!(there >= 7, "{there} are always there");
    set(&node, "cluster_exchange_limit", &(there + 1).to_string());
    node.declare_exchange(client, "one", "fanout");
    node.declare_exchange(client, "one", "fanout");
    node.send(
        client,
        1,
        &exchange::Declare { exchange: short("two"), kind: short("fanout"), ..exchange::Declare::default() },
    );
    let text = format!(
        "PRECONDITION_FAILED - cannot declare exchange 'two' in vhost '/': exchange limit of {} is reached",
        there + 1
    );
    assert_eq!(node.channel_error(client, 1), (406, text));
    assert_eq!(node.broker.limits().refused(LimitKind::Exchanges), 1);
    unset(&node, "cluster_exchange_limit");
    reopen(&mut node, client);
    node.declare_exchange(client, "two", "fanout");
    node.stop();
}

#[test]
fn virtual_hosts_are_as_many_as_there_may_be() {
    let node = Node::start();
    set(&node, "vhost_max", "2");
    let wish = |name: &str| VhostWish { name: name.to_owned(), ..VhostWish::default() };
    assert!(node.broker.put_vhost(wish("shop")).expect("a virtual host"));
    let refused = node.broker.put_vhost(wish("other")).expect_err("refused");
    assert_eq!(refused.to_string(), "cannot create vhost 'other': vhost limit of 2 is reached");
    assert!(!node.broker.put_vhost(wish("shop")).expect("as it was"));
    assert!(node.broker.delete_vhost("shop").expect("deleted"));
    assert!(node.broker.put_vhost(wish("other")).expect("a virtual host"));
    node.stop();
}

#[test]
fn a_queue_is_a_topic_of_those_that_there_may_be() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "one");
    for (name, things) in [("mainstem.max.topics", "topics"), ("mainstem.max.partitions", "partitions")] {
        set(&node, name, "1");
        node.send(client, 1, &queue::Declare { queue: short("two"), durable: true, ..queue::Declare::default() });
        let text = format!(
            "PRECONDITION_FAILED - cannot declare queue 'two': The node may have 1 {things} and no more ({name})."
        );
        assert_eq!(node.channel_error(client, 1), (406, text));
        reopen(&mut node, client);
        // What Kafka clients do not see is none.
        node.ask(client, 1, &queue::Declare { exclusive: true, ..queue::Declare::default() });
        unset(&node, name);
    }
    node.declare(client, "two");
    assert_eq!(
        (node.broker.limit_use(LimitKind::Topics), node.broker.limit_use(LimitKind::Partitions)),
        (Some(2), Some(2))
    );
    node.stop();
}

#[test]
fn a_message_is_as_large_as_it_may_be() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    set(&node, "max_message_size", "1000");
    node.publish(client, "", "q", &[b'x'; 1000]);
    node.publish(client, "", "q", &[b'x'; 1001]);
    let text = "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000";
    assert_eq!(node.channel_error(client, 1), (406, text.to_owned()));
    assert_eq!(node.broker.limits().refused(LimitKind::MessageBytes), 1);
    unset(&node, "max_message_size");
    reopen(&mut node, client);
    node.publish(client, "", "q", &[b'x'; 1001]);
    assert_eq!(node.get(client, "q", true).body.len(), 1000);
    assert_eq!(node.get(client, "q", true).body.len(), 1001);
    node.stop();
}

#[test]
fn a_connection_is_told_how_many_channels_it_may_have() {
    let mut node = Node::start();
    set(&node, "channel_max", "2");
    let client = node.connect();
    node.raw(client, &amqp_wire::ProtocolHeader::AMQP_0_9_1.to_bytes());
    node.next(client);
    node.send(client, 0, &crate::node::start_ok(b"\0guest\0guest", &crate::node::capabilities()));
    assert_eq!(node.next(client).method, "Connection(Tune(Tune { channel_max: 2, frame_max: 131072, heartbeat: 60 }))");
    // What it was told counts, whatever is set meanwhile.
    unset(&node, "channel_max");
    node.send(
        client,
        0,
        &amqp_wire::connection::TuneOk { channel_max: 3, frame_max: crate::node::FRAME_MAX, heartbeat: 0 },
    );
    let text = "NOT_ALLOWED - negotiated channel_max = 3 is higher than the maximum allowed value (2)";
    assert_eq!(node.connection_error(client), (530, text.to_owned()));
    node.stop();
}

#[test]
fn a_channel_has_as_many_consumers_as_it_may() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    set(&node, "consumer_max_per_channel", "1");
    node.consume(client, "q", "a", true);
    node.send(client, 1, &basic::Consume { queue: short("q"), consumer_tag: short("b"), ..basic::Consume::default() });
    assert_eq!(
        node.connection_error(client),
        (530, "NOT_ALLOWED - reached maximum (1) of consumers per channel".to_owned())
    );
    assert_eq!(node.broker.limits().refused(LimitKind::ConsumersOfChannel), 1);
    node.stop();
}

#[test]
fn limits_of_virtual_hosts_and_users_are_told_with_their_use() {
    let mut node = Node::start();
    let host = node.broker.vhosts().get("/").expect("it is always there");
    node.broker.put_vhost_limit(&host, "max-queues", Some(1.into())).expect("a limit");
    node.broker.put_vhost_limit(&host, "max-connections", Some((-1).into())).expect("none");
    let client = node.open();
    node.declare(client, "q");
    let found = node.broker.own_limits();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&*found[0].of, found[0].kind, found[0].limit, found[0].used), ("/", LimitKind::VhostQueues, 1, 1));
    node.send(client, 1, &queue::Declare { queue: short("more"), ..queue::Declare::default() });
    assert_eq!(node.channel_error(client, 1).0, 406);
    assert_eq!(node.broker.limits().refused(LimitKind::VhostQueues), 1);
    node.stop();
}

#[test]
fn exchanges_bindings_and_arguments_take_no_more_memory_than_they_may() {
    const KEYS: [&str; 6] = ["0", "1", "2", "3", "4", "5"];
    let mut node = Node::start();
    let client = node.open();
    let arguments = Table::build(|fields| {
        fields.put(short("a"), &*"x".repeat(3000));
    });
    node.declare(client, "q");
    let memory = |node: &Node| node.broker.vhosts().definitions().bytes();
    assert_eq!(memory(&node), 0);
    node.broker.vhosts().definitions().set_bytes_max(40_000);
    let bind = |key: &'static str| queue::Bind {
        queue: short("q"),
        exchange: short("amq.topic"),
        routing_key: short(key),
        arguments: arguments.view(),
        ..queue::Bind::default()
    };
    // Each takes 6 kB and some hundred bytes.
    KEYS.iter().for_each(|key| assert_eq!(node.ask(client, 1, &bind(key)), "Queue(BindOk(BindOk))"));
    assert_eq!(node.ask(client, 1, &bind("0")), "Queue(BindOk(BindOk))", "it is there");
    let full = memory(&node);
    assert!((36_000..40_000).contains(&full), "{full}");

    let no_memory = "no memory is left for exchanges, bindings and arguments";
    node.send(client, 1, &bind("7"));
    let text = format!("PRECONDITION_FAILED - cannot bind to exchange 'amq.topic' in vhost '/': {no_memory}");
    assert_eq!(node.channel_error(client, 1), (406, text));
    reopen(&mut node, client);
    node.send(
        client,
        1,
        &exchange::Declare {
            exchange: short("e"),
            kind: short("fanout"),
            arguments: arguments.view(),
            ..exchange::Declare::default()
        },
    );
    let text = format!("PRECONDITION_FAILED - cannot declare exchange 'e' in vhost '/': {no_memory}");
    assert_eq!(node.channel_error(client, 1), (406, text));
    for durable in [true, false] {
        reopen(&mut node, client);
        node.send(
            client,
            1,
            &queue::Declare {
                queue: short("long"),
                durable,
                exclusive: !durable,
                arguments: arguments.view(),
                ..queue::Declare::default()
            },
        );
        let text = format!("PRECONDITION_FAILED - cannot declare queue 'long' in vhost '/': {no_memory}");
        assert_eq!(node.channel_error(client, 1), (406, text));
    }
    reopen(&mut node, client);
    node.declare(client, "plain");
    assert_eq!((memory(&node), node.broker.vhosts().definitions().refused()), (full, 4));

    // It comes back whatever it takes, and goes with the queue.
    let mut node = node.restart();
    node.broker.vhosts().definitions().set_bytes_max(1000);
    assert_eq!(memory(&node), full);
    let client = node.open();
    node.ask(client, 1, &queue::Delete { queue: short("q"), ..queue::Delete::default() });
    assert_eq!(memory(&node), 0);
    node.broker.vhosts().definitions().set_bytes_max(10_000);
    let declare = queue::Declare {
        queue: short("long"),
        durable: true,
        arguments: arguments.view(),
        ..queue::Declare::default()
    };
    assert!(node.ask(client, 1, &declare).starts_with("Queue(DeclareOk"), "there is room");
    assert!((6_000..7_000).contains(&memory(&node)), "{}", memory(&node));
    node.ask(client, 1, &queue::Delete { queue: short("long"), ..queue::Delete::default() });
    assert_eq!(memory(&node), 0);
    node.stop();
}

#[test]
fn consumers_have_a_part_of_the_memory() {
    let mut node = Node::start();
    node.gateway().set_consumers_max(0);
    let (client, other) = (node.open(), node.open());
    node.declare(client, "q");
    // What clients say of themselves counts with their consumers.
    let said = node.gateway().consumer_bytes();
    let consume = |node: &mut Node, number: usize| {
        let tag = number.to_string();
        node.send(
            client,
            1,
            &basic::Consume {
                queue: short("q"),
                consumer_tag: string(&tag),
                no_wait: true,
                ..basic::Consume::default()
            },
        );
    };
    let begun = (0..3_000).find(|number| {
        consume(&mut node, *number);
        node.has_answer(client)
    });
    let begun = begun.expect("one is refused");
    assert!((1_000..1_200).contains(&begun), "{begun} are never refused");
    assert_eq!(
        node.channel_error(client, 1),
        (406, "PRECONDITION_FAILED - consumers take as much memory as they may".to_owned())
    );
    assert_eq!(
        (node.gateway().consumer_bytes(), node.gateway().consumers_refused()),
        (said, 1),
        "all went with their channel"
    );
    assert_eq!(node.broker.counts(&node.subscription("q").0).consumers, 0);
    // One that is cancelled makes room, and what each has counts for the user.
    reopen(&mut node, client);
    (0..begun).for_each(|number| consume(&mut node, number));
    node.ask(client, 1, &basic::Cancel { consumer_tag: short("7"), no_wait: false });
    node.consume(other, "q", "mine", false);
    node.send(
        other,
        1,
        &basic::Consume { queue: short("q"), consumer_tag: short("another"), ..basic::Consume::default() },
    );
    assert_eq!(node.channel_error(other, 1).0, 406);
    node.gateway().set_consumers_max(16 << 20);
    reopen(&mut node, other);
    node.consume(other, "q", "another", false);
    node.close(client);
    node.close(other);
    assert_eq!(node.gateway().consumer_bytes(), 0);
    node.stop();
}

/// Its connection stays: it has one such command at a time, which is tried again.
#[test]
fn a_command_for_which_the_controller_has_no_room_waits_for_some() {
    const NAMES: [&str; 4] = ["q-0", "q-1", "q-2", "q-3"];
    let mut node = Node::start();
    let clients = NAMES.map(|_| node.open());
    node.broker.set_control_bytes_max(4_000);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let wait = move |_: &std::sync::Arc<broker::Broker>| {
        let _ = held.recv();
        Box::new(()) as Box<dyn std::any::Any + Send>
    };
    assert!(node.broker.control(broker::NOBODY, broker::JobOwner::BROKER, Box::new(wait)), "it has room");
    for (client, name) in clients.iter().zip(NAMES) {
        node.send(*client, 1, &queue::Declare { queue: short(name), durable: true, ..queue::Declare::default() });
    }
    assert!(clients.iter().all(|client| !node.has_answer(*client)));
    assert!(node.broker.control_bytes() <= 4_000, "not all are in the line");
    drop(release);
    for (client, name) in clients.into_iter().zip(NAMES) {
        let answer = node.next(client).method;
        assert!(answer.contains("DeclareOk") && answer.contains(name), "{answer}");
    }
    node.wait_until("all is done", |node| node.broker.control_bytes() == 0);
    node.stop();
}
