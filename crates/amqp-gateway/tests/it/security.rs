//! Users other than guest: who comes in where, and what is refused in RabbitMQ's words.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp_wire::{
    MethodInfo, Properties, ProtocolHeader, Sender, ShortBytes, basic, channel as chan, connection, exchange, queue,
    short,
};
use broker::append::{Append, AppendItem};
use broker::{
    Caller, NOBODY, PasswordHash, PasswordWish, Permissions, QueueDeclaration, ReplyTo, UserLimits, UserWish, Vhost,
    VhostWish,
};
use bytes::BytesMut;
use routing::{Arguments, Name};
use types::{ConnectionId, ShardId};

use crate::node::{FRAME_MAX, Node, argument, capabilities, publish, start_ok, string};

fn add(node: &Node, name: &str, tags: &[&str], limits: UserLimits) {
    let password = PasswordWish::Hash(PasswordHash::of(b"secret", NonZeroU32::new(1000).expect("not 0")));
    let tags = Some(tags.iter().map(|tag| (*tag).to_owned()).collect());
    node.broker.put_user(UserWish { name: name.to_owned(), password, tags, limits: Some(limits) }).expect("added");
}

fn permit(node: &Node, vhost: &str, user: &str, configure: &str, write: &str, read: &str) {
    node.broker
        .set_permissions(vhost, user, Permissions::new(configure, write, read).expect("expressions"))
        .expect("set");
}

/// A connection that has logged in and is tuned.
fn log_in(node: &mut Node, user: &str) -> usize {
    let client = node.connect();
    node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
    node.next(client);
    node.send(client, 0, &start_ok(format!("\0{user}\0secret").as_bytes(), &capabilities()));
    assert!(node.next(client).method.starts_with("Connection(Tune("));
    node.send(client, 0, &connection::TuneOk { channel_max: 2047, frame_max: FRAME_MAX, heartbeat: 0 });
    client
}

fn enter(node: &mut Node, client: usize, vhost: &str) {
    assert_eq!(node.ask(client, 0, &connection::Open { virtual_host: string(vhost) }), "Connection(OpenOk(OpenOk))");
}

fn open(node: &mut Node, user: &str, vhost: &str) -> usize {
    let client = log_in(node, user);
    enter(node, client, vhost);
    assert_eq!(node.ask(client, 1, &chan::Open {}), "Channel(OpenOk(OpenOk))");
    client
}

/// The error of a channel, which is opened again.
fn channel_error(node: &mut Node, client: usize) -> (u16, String) {
    let error = node.channel_error(client, 1);
    assert_eq!(node.ask(client, 1, &chan::Open {}), "Channel(OpenOk(OpenOk))");
    error
}

fn refused(what: &str) -> (u16, String) {
    (403, format!("ACCESS_REFUSED - {what} in vhost '/' refused for user 'bob'"))
}

/// Somebody who may not publish is told so before the content has come, of which nothing is kept.
#[test]
fn rights_are_asked_before_a_body_comes() {
    let mut node = Node::start();
    add(&node, "bob", &[], UserLimits::default());
    permit(&node, "/", "bob", "^bob", "^bob", ".*");
    let client = open(&mut node, "bob", "/");
    let mut method = BytesMut::new();
    amqp_wire::write_method(&mut method, 1, &publish("", "q", false));
    node.raw(client, &method);
    assert_eq!(node.channel_error(client, 1), refused("write access to exchange 'amq.default'"));
    assert_eq!(node.ask(client, 1, &chan::Open {}), "Channel(OpenOk(OpenOk))");
    // One who sends it all nevertheless hears the same, once.
    node.publish(client, "", "q", &vec![0; 1 << 20]);
    assert_eq!(channel_error(&mut node, client), refused("write access to exchange 'amq.default'"));
    assert_eq!(node.gateway().unfinished_bytes(), 0);
    node.publish(client, "bob.none", "q", &vec![0; 1 << 20]);
    assert_eq!(channel_error(&mut node, client), (404, "NOT_FOUND - no exchange 'bob.none' in vhost '/'".to_owned()));
    node.stop();
}

#[test]
fn a_user_takes_the_place_of_guest() {
    let mut node = Node::start();
    let guest = node.open();
    add(&node, "bob", &[], UserLimits::default());
    assert_eq!(node.connection_error(guest), (320, "CONNECTION_FORCED - user 'guest' is deleted".to_owned()));
    for (response, name) in
        [(&b"\0guest\0guest"[..], "guest"), (b"\0bob\0wrong", "bob"), (b"\0nobody\0secret", "nobody")]
    {
        let client = node.connect();
        node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
        node.next(client);
        node.send(client, 0, &start_ok(response, &capabilities()));
        assert!(node.next(client).method.contains("Login was refused using authentication mechanism PLAIN"));
        assert_eq!(node.ended(client), Some(&*format!("login of {name:?} refused: invalid credentials")));
    }
    let bob = log_in(&mut node, "bob");
    node.send(bob, 0, &connection::Open { virtual_host: short("/") });
    assert_eq!(
        node.connection_error(bob),
        (530, "NOT_ALLOWED - access to vhost '/' refused for user 'bob'".to_owned())
    );
    permit(&node, "/", "bob", "", "", "");
    let bob = open(&mut node, "bob", "/");
    assert_eq!(
        node.ask(bob, 0, &connection::UpdateSecret { new_secret: b"x", reason: short("") }),
        "Connection(UpdateSecretOk(UpdateSecretOk))"
    );
    assert!(node.broker.delete_user("bob").expect("deleted"));
    assert_eq!(node.connection_error(bob), (320, "CONNECTION_FORCED - user 'bob' is deleted".to_owned()));
    assert!(node.broker.security().all_permissions().is_empty());
    let guest = node.open();
    node.declare(guest, "work");
    node.stop();
}

/// A virtual host is opened by who has logged in, and by nobody who has got his name since.
#[test]
fn a_login_is_that_of_the_user_who_began_it() {
    let mut node = Node::start();
    for again in [false, true] {
        add(&node, "bob", &[], UserLimits::default());
        permit(&node, "/", "bob", "", "", "");
        let bob = log_in(&mut node, "bob");
        assert!(node.broker.delete_user("bob").expect("deleted"));
        if again {
            add(&node, "bob", &["administrator"], UserLimits::default());
            permit(&node, "/", "bob", ".*", ".*", ".*");
        }
        node.send(bob, 0, &connection::Open { virtual_host: short("/") });
        assert_eq!(
            node.connection_error(bob),
            (530, "NOT_ALLOWED - access to vhost '/' refused for user 'bob'".to_owned())
        );
    }
    node.stop();
}

#[test]
fn what_is_not_permitted_is_refused() {
    let mut node = Node::start();
    add(&node, "bob", &[], UserLimits::default());
    permit(&node, "/", "bob", "^own", "^(own|amq\\.direct$)", "^(own|amq\\.direct$)");
    let bob = open(&mut node, "bob", "/");
    let declare = |name| queue::Declare { queue: short(name), durable: true, ..queue::Declare::default() };
    node.declare(bob, "own-queue");
    node.send(bob, 1, &declare("other"));
    assert_eq!(channel_error(&mut node, bob), refused("configure access to queue 'other'"));
    node.send(bob, 1, &queue::Declare { passive: true, ..declare("other") });
    assert_eq!(channel_error(&mut node, bob), refused("configure access to queue 'other'"));
    node.send(
        bob,
        1,
        &exchange::Declare { exchange: short("amq.fanout"), passive: true, ..exchange::Declare::default() },
    );
    assert_eq!(channel_error(&mut node, bob), refused("configure access to exchange 'amq.fanout'"));
    let seen = exchange::Declare { exchange: short("amq.direct"), passive: true, ..exchange::Declare::default() };
    assert_eq!(node.ask(bob, 1, &seen), "Exchange(DeclareOk(DeclareOk))", "any permission will do");
    node.send(bob, 1, &declare(""));
    let (code, text) = channel_error(&mut node, bob);
    assert!(code == 403 && text.starts_with("ACCESS_REFUSED - configure access to queue 'amq.gen-"), "{text}");
    let dead = argument("x-dead-letter-exchange", "amq.fanout");
    node.send(bob, 1, &queue::Declare { arguments: dead.view(), ..declare("own-dead") });
    assert_eq!(channel_error(&mut node, bob), refused("write access to exchange 'amq.fanout'"));
    node.declare_exchange(bob, "own-exchange", "direct");
    let method = exchange::Declare { exchange: short("other"), kind: short("direct"), ..exchange::Declare::default() };
    node.send(bob, 1, &method);
    assert_eq!(channel_error(&mut node, bob), refused("configure access to exchange 'other'"));
    let alternate = argument("alternate-exchange", "amq.fanout");
    node.send(bob, 1, &exchange::Declare { exchange: short("own-other"), arguments: alternate.view(), ..method });
    assert_eq!(channel_error(&mut node, bob), refused("write access to exchange 'amq.fanout'"));
    node.send(bob, 1, &exchange::Delete { exchange: short("other"), ..exchange::Delete::default() });
    assert_eq!(channel_error(&mut node, bob), refused("configure access to exchange 'other'"));
    let bind = queue::Bind { queue: short("own-queue"), exchange: short("amq.fanout"), ..queue::Bind::default() };
    node.send(bob, 1, &bind);
    assert_eq!(channel_error(&mut node, bob), refused("read access to exchange 'amq.fanout'"));
    node.send(bob, 1, &queue::Bind { queue: short("other"), exchange: short("amq.direct"), ..bind });
    assert_eq!(channel_error(&mut node, bob), refused("write access to queue 'other'"));
    node.send(
        bob,
        1,
        &queue::Unbind { queue: short("other"), exchange: short("amq.direct"), ..queue::Unbind::default() },
    );
    assert_eq!(channel_error(&mut node, bob), refused("write access to queue 'other'"));
    node.send(
        bob,
        1,
        &exchange::Bind { destination: short("amq.fanout"), source: short("amq.direct"), ..exchange::Bind::default() },
    );
    assert_eq!(channel_error(&mut node, bob), refused("write access to exchange 'amq.fanout'"));
    node.bind(bob, "own-queue", "amq.direct", "key");
    for (exchange, name) in
        [("", "amq.default"), ("amq.fanout", "amq.fanout"), ("no-such-exchange", "no-such-exchange")]
    {
        node.publish(bob, exchange, "own-queue", b"x");
        assert_eq!(channel_error(&mut node, bob), refused(&format!("write access to exchange '{name}'")));
    }
    node.send(bob, 1, &queue::Purge { queue: short("other"), no_wait: false });
    assert_eq!(channel_error(&mut node, bob), refused("read access to queue 'other'"));
    node.send(bob, 1, &basic::Get { queue: short("other"), no_ack: true });
    assert_eq!(channel_error(&mut node, bob), refused("read access to queue 'other'"));
    node.send(bob, 1, &basic::Consume { queue: short("other"), ..basic::Consume::default() });
    assert_eq!(channel_error(&mut node, bob), refused("read access to queue 'other'"));
    node.send(bob, 1, &queue::Delete { queue: short("other"), ..queue::Delete::default() });
    assert_eq!(channel_error(&mut node, bob), refused("configure access to queue 'other'"));
    node.publish(bob, "amq.direct", "key", b"x");
    assert_eq!(node.get(bob, "own-queue", true).body, b"x");
    node.stop();
}

#[test]
fn nothing_comes_or_goes_by_way_of_what_is_ones_own() {
    let mut node = Node::start();
    add(&node, "bob", &[], UserLimits::default());
    permit(&node, "/", "bob", "^own", "^(own|amq\\.direct$)", "^(own|amq\\.direct$)");
    add(&node, "root", &[], UserLimits::default());
    permit(&node, "/", "root", ".*", ".*", ".*");
    let bob = open(&mut node, "bob", "/");
    let declare = |name| queue::Declare { queue: short(name), durable: true, ..queue::Declare::default() };
    node.declare(bob, "own-queue");
    node.declare_exchange(bob, "own-exchange", "direct");
    let own =
        exchange::Bind { destination: short("own-exchange"), source: short("amq.fanout"), ..exchange::Bind::default() };
    node.send(bob, 1, &own);
    assert_eq!(channel_error(&mut node, bob), refused("read access to exchange 'amq.fanout'"));
    node.send(
        bob,
        1,
        &exchange::Unbind {
            destination: short("own-exchange"),
            source: short("amq.fanout"),
            ..exchange::Unbind::default()
        },
    );
    assert_eq!(channel_error(&mut node, bob), refused("read access to exchange 'amq.fanout'"));
    node.send(
        bob,
        1,
        &exchange::Unbind {
            destination: short("amq.fanout"),
            source: short("own-exchange"),
            ..exchange::Unbind::default()
        },
    );
    assert_eq!(channel_error(&mut node, bob), refused("write access to exchange 'amq.fanout'"));
    node.send(
        bob,
        1,
        &queue::Unbind { queue: short("own-queue"), exchange: short("amq.fanout"), ..queue::Unbind::default() },
    );
    assert_eq!(channel_error(&mut node, bob), refused("read access to exchange 'amq.fanout'"));
    // Messages must not come by way of one's own queue from where one may not write to, or by one's own exchange.
    for exchange in ["", "other"] {
        let name = if exchange.is_empty() { "amq.default" } else { exchange };
        let dead = argument("x-dead-letter-exchange", exchange);
        node.send(bob, 1, &queue::Declare { arguments: dead.view(), ..declare("own-dead") });
        assert_eq!(channel_error(&mut node, bob), refused(&format!("write access to exchange '{name}'")));
    }
    let stream = argument("x-queue-type", "stream");
    let guest = open(&mut node, "root", "/");
    let log = queue::Declare { arguments: stream.view(), ..declare("log") };
    assert!(node.ask(guest, 1, &log).starts_with("Queue(DeclareOk("));
    node.send(bob, 1, &basic::Get { queue: short("log"), no_ack: true });
    assert_eq!(channel_error(&mut node, bob), refused("read access to queue 'log'"));
    node.send(bob, 1, &basic::Consume { queue: short("log"), ..basic::Consume::default() });
    assert_eq!(channel_error(&mut node, bob), refused("read access to queue 'log'"));
    node.stop();
}

/// What waits on the controller is carried out when this goes.
fn hold_the_controller(node: &Node) -> std::sync::mpsc::Sender<()> {
    let (release, held) = std::sync::mpsc::channel();
    let wait = move |_: &Arc<broker::Broker>| {
        let _ = held.recv();
        Box::new(()) as Box<dyn std::any::Any + Send>
    };
    assert!(node.broker.control(NOBODY, broker::JobOwner::BROKER, Box::new(wait)), "it has room");
    release
}

#[test]
fn what_is_there_when_a_declaration_comes_may_be_gone_when_it_is_carried_out() {
    let mut node = Node::start();
    add(&node, "bob", &[], UserLimits::default());
    permit(&node, "/", "bob", "^own", "^(own|amq\\.direct$)", "^(own|amq\\.direct$)");
    add(&node, "root", &[], UserLimits::default());
    permit(&node, "/", "root", ".*", ".*", ".*");
    let (root, bob) = (open(&mut node, "root", "/"), open(&mut node, "bob", "/"));
    let dead = argument("x-dead-letter-exchange", "amq.fanout");
    let queue =
        queue::Declare { queue: short("own"), durable: true, arguments: dead.view(), ..queue::Declare::default() };
    assert!(node.ask(root, 1, &queue).starts_with("Queue(DeclareOk("));
    let alternate = argument("alternate-exchange", "amq.fanout");
    let exchange = exchange::Declare {
        exchange: short("own"),
        kind: short("direct"),
        arguments: alternate.view(),
        ..exchange::Declare::default()
    };
    assert_eq!(node.ask(root, 1, &exchange), "Exchange(DeclareOk(DeclareOk))");
    assert!(node.ask(bob, 1, &queue).starts_with("Queue(DeclareOk("), "as it is");
    let release = hold_the_controller(&node);
    node.send(root, 1, &queue::Delete { queue: short("own"), ..queue::Delete::default() });
    node.send(bob, 1, &queue);
    drop(release);
    assert_eq!(channel_error(&mut node, bob), refused("write access to exchange 'amq.fanout'"));
    assert!(node.next(root).method.starts_with("Queue(DeleteOk("));
    let release = hold_the_controller(&node);
    node.send(root, 1, &exchange::Delete { exchange: short("own"), ..exchange::Delete::default() });
    node.send(bob, 1, &exchange);
    drop(release);
    assert_eq!(channel_error(&mut node, bob), refused("write access to exchange 'amq.fanout'"));
    assert!(node.next(root).method.starts_with("Exchange(DeleteOk("));
    let vhost = node.broker.vhosts().get("/").expect("it is always there");
    assert!(vhost.queue(b"own").is_none() && vhost.exchanges().read().exchange(b"own").is_none());
    node.stop();
}

#[test]
fn who_may_not_delete_any_more_when_his_turn_comes_deletes_nothing() {
    let mut node = Node::start();
    add(&node, "bob", &[], UserLimits::default());
    permit(&node, "/", "bob", "^own", "^own", "^own");
    let bob = open(&mut node, "bob", "/");
    node.declare(bob, "own-queue");
    node.declare_exchange(bob, "own-exchange", "direct");
    let queue = queue::Delete { queue: short("own-queue"), ..queue::Delete::default() };
    let exchange = exchange::Delete { exchange: short("own-exchange"), ..exchange::Delete::default() };
    let release = hold_the_controller(&node);
    node.send(bob, 1, &queue);
    permit(&node, "/", "bob", "", "^own", "^own");
    drop(release);
    assert_eq!(channel_error(&mut node, bob), refused("configure access to queue 'own-queue'"));
    permit(&node, "/", "bob", "^own", "^own", "^own");
    let release = hold_the_controller(&node);
    node.send(bob, 1, &exchange);
    permit(&node, "/", "bob", "", "^own", "^own");
    drop(release);
    assert_eq!(channel_error(&mut node, bob), refused("configure access to exchange 'own-exchange'"));
    let vhost = node.broker.vhosts().get("/").expect("it is always there");
    assert!(vhost.queue(b"own-queue").is_some() && vhost.exchanges().read().exchange(b"own-exchange").is_some());
    permit(&node, "/", "bob", "^own", "", "");
    assert!(node.ask(bob, 1, &queue).starts_with("Queue(DeleteOk("));
    assert_eq!(node.ask(bob, 1, &exchange), "Exchange(DeleteOk(DeleteOk))");
    node.stop();
}

#[test]
fn the_table_says_of_each_method_what_it_needs() {
    // Of what these name, somebody was let have it before.
    const OF_WHAT_ONE_HAS: [&str; 8] = [
        "basic.qos",
        "basic.cancel",
        "basic.cancel-ok",
        "basic.ack",
        "basic.nack",
        "basic.reject",
        "basic.recover",
        "basic.recover-async",
    ];
    let table = include_str!("../../src/access.rs");
    let rows: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("//! | ")?.split('|').next()).collect();
    let named = |method: &str| rows.iter().flat_map(|row| row.split([',', ' '])).any(|word| word == method);
    let asked = MethodInfo::ALL.iter().filter(|method| method.sender != Sender::Broker);
    let about = asked
        .map(|method| method.name)
        .filter(|name| ["exchange.", "queue.", "basic."].iter().any(|class| name.starts_with(class)));
    let without: Vec<&str> = about.filter(|name| !named(name) && !OF_WHAT_ONE_HAS.contains(name)).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn a_change_of_permissions_counts_at_once() {
    let mut node = Node::start();
    add(&node, "bob", &[], UserLimits::default());
    permit(&node, "/", "bob", ".*", "^amq\\.(default|topic)$", ".*");
    let bob = open(&mut node, "bob", "/");
    node.declare(bob, "work");
    for body in [b"1", b"2"] {
        node.publish(bob, "", "work", body);
        assert_eq!(node.get(bob, "work", true).body, body);
    }
    permit(&node, "/", "bob", ".*", "^amq\\.topic$", ".*");
    node.publish(bob, "", "work", b"3");
    assert_eq!(channel_error(&mut node, bob), refused("write access to exchange 'amq.default'"));
    assert!(node.broker.clear_permissions("/", "bob").expect("cleared"));
    node.publish(bob, "amq.topic", "a", b"4");
    assert_eq!(channel_error(&mut node, bob), refused("write access to exchange 'amq.topic'"));
    node.stop();
}

#[test]
fn keys_of_topic_exchanges_have_permissions_of_their_own() {
    let mut node = Node::start();
    add(&node, "bob", &[], UserLimits::default());
    permit(&node, "/", "bob", ".*", ".*", ".*");
    node.broker.set_topic_permission("/", "bob", "amq.topic", "^{username}\\.", "^public\\.").expect("set");
    let bob = open(&mut node, "bob", "/");
    node.declare(bob, "work");
    node.bind(bob, "work", "amq.topic", "public.#");
    let bind = queue::Bind {
        queue: short("work"),
        exchange: short("amq.topic"),
        routing_key: short("bob.#"),
        ..queue::Bind::default()
    };
    node.send(bob, 1, &bind);
    assert_eq!(channel_error(&mut node, bob), (403, topic("read access to topic 'bob.#'")));
    for _ in 0..2 {
        node.publish(bob, "amq.topic", "bob.news", b"x");
    }
    node.publish(bob, "amq.topic", "alice.news", b"x");
    assert_eq!(channel_error(&mut node, bob), (403, topic("write access to topic 'alice.news'")));
    node.publish(bob, "amq.direct", "alice.news", b"x");
    assert!(node.broker.clear_topic_permissions("/", "bob", None).expect("cleared"));
    node.publish(bob, "amq.topic", "public.news", b"y");
    assert_eq!(node.get(bob, "work", true).body, b"y");
    node.stop();
}

fn topic(what: &str) -> String {
    format!("ACCESS_REFUSED - {what} in exchange 'amq.topic' in vhost '/' refused for user 'bob'")
}

#[test]
fn only_impersonators_speak_for_others() {
    let mut node = Node::start();
    add(&node, "bob", &[], UserLimits::default());
    permit(&node, "/", "bob", ".*", ".*", ".*");
    let bob = open(&mut node, "bob", "/");
    let mut properties = BytesMut::new();
    Properties { user_id: ShortBytes::new(b"alice"), ..Properties::default() }.encode(&mut properties);
    node.send_content(bob, 1, &publish("", "nowhere", false), &properties, b"x");
    let text = "PRECONDITION_FAILED - user_id property set to 'alice' but authenticated user was 'bob'";
    assert_eq!(channel_error(&mut node, bob), (406, text.to_owned()));
    add(&node, "bob", &["impersonator"], UserLimits::default());
    node.declare(bob, "work");
    node.send_content(bob, 1, &publish("", "work", false), &properties, b"x");
    assert_eq!(node.get(bob, "work", true).body, b"x");
    node.stop();
}

#[test]
fn users_have_limits() {
    let mut node = Node::start();
    add(&node, "bob", &[], UserLimits { max_connections: Some(1), max_channels: Some(2) });
    permit(&node, "/", "bob", ".*", ".*", ".*");
    let bob = open(&mut node, "bob", "/");
    let second = log_in(&mut node, "bob");
    node.send(second, 0, &connection::Open { virtual_host: short("/") });
    let text = "NOT_ALLOWED - connection refused for user 'bob': user connection limit (1) is reached";
    assert_eq!(node.connection_error(second), (530, text.to_owned()));
    assert_eq!(node.ask(bob, 2, &chan::Open {}), "Channel(OpenOk(OpenOk))");
    assert_eq!(
        node.ask(bob, 2, &chan::Close { reply_code: 200, reply_text: short(""), class_id: 0, method_id: 0 }),
        "Channel(CloseOk(CloseOk))"
    );
    assert_eq!(node.ask(bob, 2, &chan::Open {}), "Channel(OpenOk(OpenOk))");
    node.send(bob, 3, &chan::Open {});
    let text = "NOT_ALLOWED - number of channels opened for user 'bob' has reached the maximum allowed user limit of 2";
    assert_eq!(node.connection_error(bob), (530, text.to_owned()));
    let again = open(&mut node, "bob", "/");
    node.close(again);
    open(&mut node, "bob", "/");
    node.stop();
}

#[test]
fn a_virtual_host_goes_with_all_that_is_in_it() {
    let mut node = Node::start();
    let wish = VhostWish {
        name: "shop".to_owned(),
        description: Some("orders".to_owned()),
        default_queue_type: Some(Some("quorum".to_owned())),
        ..VhostWish::default()
    };
    assert!(node.broker.put_vhost(wish.clone()).expect("added"));
    assert!(!node.broker.put_vhost(VhostWish { name: "shop".to_owned(), ..VhostWish::default() }).expect("as it was"));
    assert_eq!(node.broker.vhosts().get("shop").expect("it is there").metadata().description, "orders");
    assert!(
        node.broker.put_vhost(VhostWish { default_queue_type: Some(Some("odd".to_owned())), ..wish.clone() }).is_err()
    );
    add(&node, "bob", &[], UserLimits::default());
    for vhost in ["/", "shop"] {
        permit(&node, vhost, "bob", ".*", ".*", ".*");
    }
    let bob = open(&mut node, "bob", "shop");
    node.declare(bob, "orders");
    let vhost = node.broker.vhosts().get("shop").expect("it is there");
    let queue = vhost.queue(b"orders").expect("declared");
    assert_eq!(
        queue.arguments().get(b"x-queue-type").map(|argument| argument.value.to_string()).as_deref(),
        Some("quorum")
    );
    node.declare_exchange(bob, "events", "fanout");
    node.bind(bob, "orders", "amq.topic", "#");
    let between =
        exchange::Bind { destination: short("amq.fanout"), source: short("amq.direct"), ..exchange::Bind::default() };
    assert_eq!(node.ask(bob, 1, &between), "Exchange(BindOk(BindOk))");
    let elsewhere = open(&mut node, "bob", "/");
    node.declare(elsewhere, "orders");
    assert!(node.broker.delete_vhost("/").is_err());
    assert!(node.broker.delete_vhost("shop").expect("deleted"));
    assert!(!node.broker.delete_vhost("shop").expect("it is gone"));
    assert_eq!(node.connection_error(bob), (320, "CONNECTION_FORCED - vhost 'shop' is deleted".to_owned()));
    let late = log_in(&mut node, "bob");
    node.send(late, 0, &connection::Open { virtual_host: short("shop") });
    assert_eq!(node.connection_error(late), (530, "NOT_ALLOWED - vhost shop not found".to_owned()));
    assert!(queue.is_dropped() && node.broker.topic("shop~orders").is_none() && node.broker.topic("orders").is_some());
    assert_eq!(
        (vhost.exchanges().read().binding_count(), vhost.exchanges().read().exchange(b"events").is_none()),
        (0, true)
    );
    assert!(node.broker.security().permissions("shop", "bob").is_none());
    assert!(node.broker.put_vhost(wish).expect("a new one"));
    permit(&node, "shop", "bob", ".*", ".*", ".*");
    let again = open(&mut node, "bob", "shop");
    assert_eq!(node.get(again, "orders", true).method.split('(').next(), Some("Channel"), "there is no queue");
    node.stop();
}

/// Virtual host `shop` with so many queues.
fn shop_of(node: &Node, queues: usize) -> Arc<Vhost> {
    assert!(node.broker.put_vhost(VhostWish { name: "shop".to_owned(), ..VhostWish::default() }).expect("added"));
    let vhost = node.broker.vhosts().get("shop").expect("it is there");
    for number in 0..queues {
        let name = Name::new(format!("of-shop-{number}").as_bytes()).expect("a short name");
        let wish =
            QueueDeclaration { name, durable: true, owner: None, auto_delete: false, arguments: Arguments::default() };
        node.broker.declare_queue(&vhost, wish, &Caller::broker(ConnectionId(1))).expect("declared");
    }
    vhost
}

#[test]
fn queues_of_a_virtual_host_are_deleted_many_at_once() {
    let node = Node::start();
    let vhost = shop_of(&node, 200);
    let before = node.chunks();
    assert!(node.broker.delete_vhost("shop").expect("deleted"));
    assert!(vhost.queues().is_empty());
    assert!(node.chunks() < before + 50, "{} writes", node.chunks() - before);
    node.stop();
}

#[test]
fn a_virtual_host_of_which_the_end_leaves_something_is_deleted_by_the_next_start() {
    let node = Node::start();
    let vhost = shop_of(&node, 20);
    node.broker.shutdown();
    assert!(node.broker.delete_vhost("shop").expect("it is deleted"));
    assert_eq!(vhost.queues().len(), 20, "the end does not wait for them");
    let node = node.restart();
    let began = Instant::now();
    while node.broker.vhosts().get("shop").is_some() {
        assert!(began.elapsed() < Duration::from_secs(120), "it is deleted");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(node.broker.topic("shop~of-shop-0").is_none());
    let node = node.restart();
    assert!(node.broker.vhosts().get("shop").is_none(), "it stays deleted");
    assert!(node.broker.put_vhost(VhostWish { name: "shop".to_owned(), ..VhostWish::default() }).expect("a new one"));
    let node = node.restart();
    assert!(node.broker.vhosts().get("shop").is_some_and(|vhost| !vhost.is_deleted()));
    node.stop();
}

/// Bob in virtual hosts `/` and `a`.
fn bob_in_two(node: &mut Node) -> [usize; 2] {
    add(node, "bob", &[], UserLimits::default());
    node.broker.put_vhost(VhostWish { name: "a".to_owned(), ..VhostWish::default() }).expect("added");
    ["/", "a"].map(|vhost| {
        permit(node, vhost, "bob", ".*", ".*", ".*");
        open(node, "bob", vhost)
    })
}

/// By the rule of earlier releases the names of their topics were one.
#[test]
fn a_message_for_a_queue_is_in_no_queue_of_another_virtual_host() {
    let mut node = Node::start();
    let [slash, other] = bob_in_two(&mut node);
    node.declare(slash, "a b");
    node.declare(other, "20b");
    node.publish(slash, "", "a b", b"of /");
    node.publish(other, "", "20b", b"of a");
    assert_eq!(node.get(other, "20b", true).body, b"of a");
    assert!(node.get(other, "20b", true).method.starts_with("Basic(GetEmpty("));
    assert_eq!(node.get(slash, "a b", true).body, b"of /");
    node.stop();
}

/// Its record is as an earlier release wrote it.
#[test]
fn a_topic_that_a_queue_has_kept_is_no_other_queue() {
    let mut node = Node::start();
    let [_, other] = bob_in_two(&mut node);
    node.declare(other, "20b");
    let declared = node.broker.vhosts().get("a").and_then(|vhost| vhost.queue(b"20b")).expect("declared");
    let mut value = vec![1];
    value.extend(declared.topic().id.0.as_bytes());
    value.extend(declared.log().id().0.to_be_bytes());
    value.extend([0; 5]);
    let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(1), token: 0 };
    let items = vec![AppendItem::State { key: b"qq\x01a20b"[..].into(), value: Some(value.into()) }];
    assert!(node.broker.journals()[0].append(Append { to, items, acknowledge: false }).is_ok());
    let mut node = node.restart();
    assert!(node.broker.topic("a~20b").is_some());
    let slash = open(&mut node, "bob", "/");
    node.send(slash, 1, &queue::Declare { queue: short("a b"), durable: true, ..queue::Declare::default() });
    let text = "PRECONDITION_FAILED - cannot declare queue 'a b' in vhost '/': topic 'a~20b' is another queue's";
    assert_eq!(channel_error(&mut node, slash), (406, text.to_owned()));
    node.stop();
}
