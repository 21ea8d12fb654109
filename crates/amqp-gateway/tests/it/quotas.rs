//! Rules for groups that are far behind, of the queues that they work on.

use std::time::Duration;

use crate::node::Node;

const BODY: [u8; 1000] = [b'x'; 1000];
const MESSAGES: usize = 4000;

fn rules(node: &Node, group: &str, text: &str) {
    let settings = [("mainstem.laggard.rules".to_owned(), text.to_owned())];
    node.broker.set_group_config(group, settings.into()).expect("rules");
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
