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

/// A client has so many messages of a queue that what it says of them takes three turns.
const MANY: u64 = 11_000;

fn with_many() -> (Node, usize) {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    (0..MANY).for_each(|_| node.publish(client, "", "q", b"x"));
    node.consume(client, "q", "c", false);
    (0..MANY).for_each(|_| assert!(node.next(client).method.contains("Deliver")));
    (node, client)
}

fn bytes_of(method: &impl amqp_wire::Encode) -> bytes::BytesMut {
    let mut out = bytes::BytesMut::new();
    amqp_wire::write_method(&mut out, 1, method);
    out
}

fn counts(node: &Node) -> (u64, u64) {
    let counts = node.broker.counts(&node.subscription("q").0);
    (counts.ready, counts.unacknowledged)
}

/// Others have turns between.
#[test]
fn what_is_said_of_very_many_takes_several_turns() {
    for tag in [0, MANY] {
        let (mut node, client) = with_many();
        assert_eq!(node.turns_of(client, &bytes_of(&basic::Ack { delivery_tag: tag, multiple: true })), 3);
        assert_eq!(counts(&node), (0, 0));
        node.publish(client, "", "q", b"behind");
        node.wait_until("it is delivered", |node| {
            node.poll(client).is_some_and(|seen| seen.method.contains("Deliver"))
        });
        assert_eq!(
            node.turns_of(client, &bytes_of(&basic::Ack { delivery_tag: MANY + 1, multiple: true })),
            1,
            "it is of this one"
        );
        node.stop();
    }
}

/// What it is about was known when it was said: messages that come back to the channel meanwhile are not among them.
#[test]
fn very_many_that_are_given_back_come_again_once() {
    let (mut node, client) = with_many();
    node.raw(client, &bytes_of(&basic::Nack { delivery_tag: 0, multiple: true, requeue: true }));
    (0..MANY).for_each(|_| assert!(node.next(client).method.contains("Deliver")));
    assert_eq!(counts(&node), (0, MANY));
    node.send(client, 1, &basic::Recover { requeue: true });
    let mut recovered = 0;
    for _ in 0..=MANY {
        recovered += u64::from(node.next(client).method.contains("RecoverOk"));
    }
    assert_eq!((recovered, counts(&node)), (1, (0, MANY)));
    node.stop();
}

/// The client has said it of all of them.
#[test]
fn who_goes_amid_what_was_said_of_very_many_has_settled_all() {
    let (mut node, client) = with_many();
    node.hand(client, &bytes_of(&basic::Ack { delivery_tag: MANY - 1, multiple: true }));
    assert!(node.has_turn(client), "there is more to do");
    node.close(client);
    node.wait_until("what is left is back", |node| counts(node) == (1, 0));
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
