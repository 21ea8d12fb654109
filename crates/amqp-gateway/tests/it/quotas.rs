//! Rules for groups that are far behind: of queues, of those who ask for single messages, and of consumers of streams.

use std::time::Duration;

use amqp_wire::{Table, Value, basic, queue, short};

use crate::node::Node;

const BODY: [u8; 1000] = [b'x'; 1000];
const MESSAGES: usize = 4000;

fn rules(node: &Node, group: &str, text: &str) {
    rules_of(node, group, text, None);
}

/// The same, set by a user.
fn rules_of(node: &Node, group: &str, text: &str, user: Option<&str>) {
    let settings = [("mainstem.laggard.rules".to_owned(), text.to_owned())];
    let change = broker::GroupChange { group: group.to_owned(), overrides: settings.into(), set: Vec::new() };
    let setter = user.map(|user| node.broker.security().setter(Some(user), "127.0.0.1".parse().expect("an address")));
    node.broker.set_group_configs(vec![change], setter.as_ref()).pop().expect("an outcome").expect("rules");
}

/// Messages that have come meanwhile.
fn delivered(node: &mut Node, client: usize) -> usize {
    node.pump();
    std::iter::from_fn(|| node.poll(client)).filter(|seen| seen.method.starts_with("Basic(Deliver(")).count()
}

/// All that come until none comes any more for a while.
fn settled(node: &mut Node, client: usize) -> usize {
    let (mut sum, mut idle) = (0, 0);
    while idle < 50 {
        let more = delivered(node, client);
        sum += more;
        idle = if more > 0 { 0 } else { idle + 1 };
        std::thread::sleep(Duration::from_millis(2));
    }
    sum
}

#[test]
fn consumers_of_a_queue_that_is_far_behind_are_slowed_down_until_the_rules_change() {
    let mut node = Node::start();
    let (publisher, consumer, other) = (node.open(), node.open(), node.open());
    node.select_confirms(publisher);
    for queue in ["full", "short"] {
        node.declare(publisher, queue);
    }
    for number in 0..MESSAGES {
        node.publish(publisher, "", "full", &BODY);
        if number % 100 == 0 {
            node.pump();
        }
    }
    node.publish(publisher, "", "short", b"1");
    settled(&mut node, publisher);
    rules(&node, "amqp.queue", "lag>100 records 60KB/min");
    node.consume(consumer, "full", "c", true);
    let first = settled(&mut node, consumer);
    assert!((100..MESSAGES / 2).contains(&first), "{first} messages");
    // Each queue is limited for itself.
    node.consume(other, "short", "c", true);
    assert_eq!(settled(&mut node, other), 1);
    // About a thousand bytes a second: what came first is paid for after a quarter of an hour.
    node.advance(Duration::from_secs(20));
    let more = settled(&mut node, consumer);
    assert!(more < 200, "{more} messages in 20 s");
    rules(&node, "amqp.queue", "");
    node.advance(Duration::from_millis(200));
    assert_eq!(first + more + settled(&mut node, consumer), MESSAGES);
    node.stop();
}

/// Of a group that a queue names, whose name may be anybody's.
#[test]
fn rules_of_a_group_hold_for_a_queue_if_who_has_set_them_may_configure_it() {
    let mut node = Node::start();
    let (publisher, consumer) = (node.open(), node.open());
    node.select_confirms(publisher);
    let arguments = crate::node::argument("x-share-group", "g");
    let method = queue::Declare {
        queue: short("full"),
        durable: true,
        arguments: arguments.view(),
        ..queue::Declare::default()
    };
    assert!(node.ask(publisher, 1, &method).starts_with("Queue(DeclareOk("));
    for number in 0..MESSAGES {
        node.publish(publisher, "", "full", &BODY);
        if number % 100 == 0 {
            node.pump();
        }
    }
    settled(&mut node, publisher);
    for name in ["guest", "bob", "eve"] {
        let tags = (name == "guest").then(|| vec!["administrator".to_owned()]);
        let wish =
            broker::UserWish { name: name.to_owned(), password: broker::PasswordWish::Remove, tags, limits: None };
        node.broker.put_user(wish).expect("added");
        let configure = if name == "eve" { "^eve" } else { ".*" };
        let permissions = broker::Permissions::new(configure, ".*", ".*").expect("expressions");
        node.broker.set_permissions("/", name, permissions).expect("set");
    }
    rules_of(&node, "g", "lag>100 records 60KB/min", Some("bob"));
    node.consume(consumer, "full", "c", true);
    let first = settled(&mut node, consumer);
    assert!((100..MESSAGES / 2).contains(&first), "{first} messages");
    rules_of(&node, "g", "lag>101 records 60KB/min", Some("eve"));
    node.advance(Duration::from_millis(200));
    assert_eq!(first + settled(&mut node, consumer), MESSAGES, "she has no say in it");
    node.stop();
}

/// Messages in a queue or stream, and the rule that a thousand bytes a second are enough for who is behind.
fn filled(node: &mut Node, publisher: usize, name: &str) {
    node.select_confirms(publisher);
    for number in 0..MESSAGES {
        node.publish(publisher, "", name, &BODY);
        if number % 100 == 0 {
            node.pump();
        }
    }
    settled(node, publisher);
    rules(node, "amqp.queue", "lag>100 records 60KB/min");
}

#[test]
fn single_messages_of_a_queue_that_is_far_behind_come_when_the_last_one_is_paid_for() {
    let mut node = Node::start();
    let (publisher, client) = (node.open(), node.open());
    node.declare(publisher, "full");
    node.declare(publisher, "short");
    filled(&mut node, publisher, "full");
    let ask =
        |node: &mut Node, name: &'static str| node.send(client, 1, &basic::Get { queue: short(name), no_ack: true });
    let got = |node: &mut Node| {
        node.pump();
        node.poll(client).map(|seen| seen.method.split('(').nth(1).unwrap_or_default().to_owned())
    };
    ask(&mut node, "full");
    assert_eq!(got(&mut node).as_deref(), Some("GetOk"), "the first costs a second");
    ask(&mut node, "full");
    assert_eq!(got(&mut node), None);
    let wait = node.timeout(client).expect("it looks again");
    assert!(wait <= Duration::from_millis(200), "{wait:?}");
    node.advance(Duration::from_millis(600));
    assert_eq!(got(&mut node), None, "it is not paid for yet");
    node.advance(Duration::from_millis(600));
    assert_eq!(got(&mut node).as_deref(), Some("GetOk"));
    // A change of the rules counts for who waits.
    ask(&mut node, "full");
    assert_eq!(got(&mut node), None);
    rules(&node, "amqp.queue", "");
    node.advance(Duration::from_millis(200));
    assert_eq!(got(&mut node).as_deref(), Some("GetOk"));
    rules(&node, "amqp.queue", "lag>100 records 60KB/min");
    ask(&mut node, "full");
    assert_eq!(got(&mut node).as_deref(), Some("GetOk"));
    ask(&mut node, "full");
    assert_eq!(got(&mut node), None);
    node.stop();
}

#[test]
fn each_consumer_of_a_stream_is_limited_by_how_far_it_is_behind() {
    let mut node = Node::start();
    let (publisher, late, early) = (node.open(), node.open(), node.open());
    let arguments = Table::build(|fields| fields.put(short("x-queue-type"), "stream"));
    let method =
        queue::Declare { queue: short("st"), durable: true, arguments: arguments.view(), ..queue::Declare::default() };
    assert!(node.ask(publisher, 1, &method).starts_with("Queue(DeclareOk("));
    filled(&mut node, publisher, "st");
    let consume = |node: &mut Node, client: usize, from: Value<'_>| {
        node.ask(client, 1, &basic::Qos { prefetch_size: 0, prefetch_count: 50_000, global: false });
        let arguments = Table::build(|fields| fields.put(short("x-stream-offset"), from));
        let method = basic::Consume {
            queue: short("st"),
            consumer_tag: short("c"),
            arguments: arguments.view(),
            ..basic::Consume::default()
        };
        assert!(node.ask(client, 1, &method).starts_with("Basic(ConsumeOk("));
    };
    consume(&mut node, late, Value::LongString(b"first"));
    let first = settled(&mut node, late);
    assert!((100..MESSAGES / 2).contains(&first), "{first} messages");
    // Who is near the end gets on beside it, as often as there is something.
    consume(&mut node, early, Value::LongString(b"next"));
    for number in 0..5 {
        node.publish(publisher, "", "st", &BODY);
        assert_eq!(settled(&mut node, early), 1, "message {number}");
        settled(&mut node, publisher);
    }
    node.advance(Duration::from_secs(20));
    let more = settled(&mut node, late);
    assert!(more < 200, "{more} messages in 20 s");
    rules(&node, "amqp.queue", "");
    node.advance(Duration::from_millis(200));
    assert_eq!(first + more + settled(&mut node, late), MESSAGES + 5);
    node.stop();
}
