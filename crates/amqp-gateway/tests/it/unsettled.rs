//! The memory of messages that are not settled: who consumes without a prefetch is given as many as there is memory for.

use amqp_wire::{basic, channel, queue, short};

use crate::node::Node;

const BYTES_MAX: usize = 64_000;
/// What of it a channel gets that is alone.
const GIVEN: u64 = 512;
const MESSAGES: u64 = 3000;

fn filled(node: &mut Node, client: usize) {
    node.broker.vhosts().set_unsettled_bytes_max(BYTES_MAX);
    node.declare(client, "q");
    (0..MESSAGES).for_each(|_| node.publish(client, "", "q", b"x"));
}

fn unacknowledged(node: &Node) -> u64 {
    node.broker.counts(&node.subscription("q").0).unacknowledged
}

#[test]
fn a_consumer_without_prefetch_waits_as_if_it_had_one() {
    let mut node = Node::start();
    let (client, other) = (node.open(), node.open());
    filled(&mut node, client);
    node.consume(client, "q", "greedy", false);
    for received in 1..=MESSAGES {
        let seen = node.next(client);
        assert!(seen.method.contains("Deliver"), "{seen:?}");
        if received % GIVEN == 0 {
            assert_eq!(unacknowledged(&node), GIVEN, "no more than there is memory for");
            assert!(node.broker.vhosts().unsettled_bytes() <= BYTES_MAX);
            // Whoever keeps few goes on.
            if received == GIVEN {
                node.ask(other, 1, &basic::Qos { prefetch_size: 0, prefetch_count: 50, global: false });
                node.consume(other, "q", "modest", false);
                (0..50).for_each(|_| assert!(node.next(other).method.contains("Deliver")));
                node.ask(other, 1, &channel::Close::default());
            }
            node.send(client, 1, &basic::Ack { delivery_tag: 0, multiple: true });
        }
    }
    assert!(node.broker.vhosts().unsettled_short() > 0);
    node.close(client);
    assert_eq!(node.broker.vhosts().unsettled_bytes(), 0);
    node.stop();
}

#[test]
fn what_one_gives_back_another_gets() {
    let mut node = Node::start();
    let (client, other) = (node.open(), node.open());
    filled(&mut node, client);
    node.consume(client, "q", "first", false);
    (0..GIVEN).for_each(|_| drop(node.next(client)));
    node.consume(other, "q", "second", false);
    let before = GIVEN / 2;
    (0..before).for_each(|_| assert!(node.next(other).method.contains("Deliver")));
    // It has what is left; now it can have more without settling anything.
    node.close(client);
    (before..GIVEN).for_each(|_| assert!(node.next(other).method.contains("Deliver")));
    node.stop();
}

/// Nobody waits beside free memory for others to settle, who may never.
#[test]
fn all_who_wait_go_on_when_memory_is_free_again() {
    let mut node = Node::start();
    let client = node.open();
    filled(&mut node, client);
    node.consume(client, "q", "greedy", false);
    (0..GIVEN).for_each(|_| drop(node.next(client)));
    let others: Vec<usize> = (0..6).map(|_| node.open()).collect();
    let mut had = Vec::new();
    for other in &others {
        node.consume(*other, "q", "modest", false);
        node.wait_until("it has some", |node| node.poll(*other).is_some());
        let mut count = 1;
        while node.poll(*other).is_some() {
            count += 1;
        }
        had.push(count);
    }
    node.close(client);
    for (other, had) in others.iter().zip(had) {
        node.wait_until("there is more", |node| had > 64 || node.poll(*other).is_some());
    }
    node.stop();
}

#[test]
fn one_who_gets_too_many_is_refused() {
    let mut node = Node::start();
    let client = node.open();
    filled(&mut node, client);
    for _ in 0..GIVEN {
        assert!(node.get(client, "q", false).method.contains("GetOk"));
    }
    assert!(node.get(client, "q", true).method.contains("GetOk"), "what is not to be settled takes nothing");
    node.send(client, 1, &basic::Get { queue: short("q"), no_ack: false });
    let text = "PRECONDITION_FAILED - unacknowledged messages take as much memory as they may";
    assert_eq!(node.channel_error(client, 1), (406, text.to_owned()));
    node.ask(client, 1, &channel::Open {});
    node.ask(client, 1, &queue::Purge { queue: short("q"), no_wait: false });
    assert_eq!((unacknowledged(&node), node.broker.vhosts().unsettled_bytes()), (0, 0));
    node.stop();
}
