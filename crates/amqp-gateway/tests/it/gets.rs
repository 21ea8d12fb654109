//! What a get finds of messages that have come on the sockets of other connections and that nobody has read yet.

use std::time::Duration;

use amqp_wire::{Encode, basic, queue, short, tx, write_method};
use bytes::BytesMut;

use crate::node::{Node, content, publish};

/// After so many polls in a row that found nothing no more are made.
const IN_VAIN_MAX: usize = 15;

/// A publisher of another shard, and one who asks.
fn start() -> (Node, usize, usize) {
    let mut node = Node::start();
    let (publisher, getter) = (node.open_on_other_shard(), node.open());
    node.declare(getter, "q");
    (node, publisher, getter)
}

fn message(body: &[u8]) -> BytesMut {
    content(1, &publish("", "q", false), &[0, 0], body)
}

fn bytes(method: &impl Encode) -> BytesMut {
    let mut out = BytesMut::new();
    write_method(&mut out, 1, method);
    out
}

fn ask(node: &mut Node, getter: usize) {
    node.send(getter, 1, &basic::Get { queue: short("q"), no_ack: true });
}

fn is_empty(method: &str) -> bool {
    method.contains("GetEmpty")
}

/// Nobody has published to the queue before, and somebody has.
#[test]
fn a_get_finds_what_lies_in_a_socket_of_another_shard() {
    let (mut node, publisher, getter) = start();
    for body in [b"1", b"2"] {
        node.leave_unread(publisher, &message(body));
        ask(&mut node, getter);
        assert_eq!(node.poll(getter), None, "it waits");
        assert_eq!(node.poll_other_sockets(), 1);
        assert_eq!(node.next(getter).body, body);
    }
    ask(&mut node, getter);
    assert_eq!(node.poll_other_sockets(), 1);
    assert!(is_empty(&node.next(getter).method), "it is asked once");
    node.stop();
}

#[test]
fn a_get_finds_what_lies_in_another_socket_of_its_shard() {
    let mut node = Node::start();
    let (publisher, getter) = (node.open(), node.open());
    node.declare(getter, "q");
    node.leave_unread(publisher, &message(b"x"));
    assert_eq!(node.get(getter, "q", true).body, b"x");
    node.stop();
}

#[test]
fn a_get_finds_what_a_transaction_publishes_whose_commit_nobody_has_read() {
    let (mut node, publisher, getter) = start();
    assert_eq!(node.ask(publisher, 1, &tx::Select {}), "Tx(SelectOk(SelectOk))");
    node.raw(publisher, &message(b"x"));
    ask(&mut node, getter);
    assert_eq!(node.poll_other_sockets(), 1);
    assert!(is_empty(&node.next(getter).method), "it is not committed");
    node.leave_unread(publisher, &bytes(&tx::Commit {}));
    ask(&mut node, getter);
    assert_eq!(node.poll_other_sockets(), 1);
    assert_eq!(node.next(getter).body, b"x");
    assert_eq!(node.next(publisher).method, "Tx(CommitOk(CommitOk))");
    node.stop();
}

/// Clients that ask an empty queue again and again cost other shards nothing, until something is published.
#[test]
fn sockets_are_polled_in_vain_so_often_only() {
    let (mut node, publisher, getter) = start();
    let polls_in_vain = |node: &mut Node| {
        let mut polls = 0;
        for _ in 0..3 * IN_VAIN_MAX {
            ask(node, getter);
            polls += node.poll_other_sockets();
            assert!(is_empty(&node.next(getter).method));
        }
        polls
    };
    assert_eq!(polls_in_vain(&mut node), IN_VAIN_MAX);
    node.publish(publisher, "", "q", b"x");
    assert_eq!(node.get(getter, "q", true).body, b"x");
    assert_eq!(polls_in_vain(&mut node), IN_VAIN_MAX);
    // Nobody of the other shard publishes any more.
    node.publish(getter, "", "q", b"x");
    assert_eq!(node.get(getter, "q", true).body, b"x");
    assert_eq!(polls_in_vain(&mut node), 0);
    node.stop();
}

/// What came behind it is answered behind it, and each get is judged by itself.
#[test]
fn gets_that_came_together_are_answered_in_their_order() {
    let (mut node, publisher, getter) = start();
    node.leave_unread(publisher, &message(b"1"));
    let get = basic::Get { queue: short("q"), no_ack: true };
    let declare = queue::Declare { queue: short("q"), passive: true, ..queue::Declare::default() };
    node.raw(getter, &[bytes(&get), bytes(&get), bytes(&declare), bytes(&get)].concat());
    let mut polls = 0;
    let mut next = |node: &mut Node| {
        node.wait_until("an answer, or a poll", |node| {
            polls += node.poll_other_sockets();
            node.advance(Duration::from_millis(1));
            node.has_answer(getter)
        });
        node.next(getter)
    };
    assert_eq!(next(&mut node).body, b"1");
    assert!(is_empty(&next(&mut node).method));
    assert!(next(&mut node).method.starts_with("Queue(DeclareOk("));
    assert!(is_empty(&next(&mut node).method));
    assert_eq!(polls, 3);
    node.stop();
}

/// A shard that is busy, or has ended, is not waited for.
#[test]
fn a_get_waits_for_other_shards_so_long_only() {
    let (mut node, publisher, getter) = start();
    node.leave_unread(publisher, &message(b"x"));
    ask(&mut node, getter);
    assert_eq!(node.poll(getter), None, "it waits");
    let wait = node.timeout(getter).expect("not for ever");
    assert!(wait <= Duration::from_millis(20), "{wait:?}");
    node.advance(wait);
    assert!(is_empty(&node.next(getter).method));
    // What is said too late is nothing to another get that waits.
    ask(&mut node, getter);
    assert_eq!(node.poll(getter), None, "it waits");
    assert_eq!(node.poll_other_sockets(), 2);
    assert_eq!(node.next(getter).body, b"x");
    assert_eq!(node.poll(getter), None);
    node.stop();
}

#[test]
fn a_queue_may_go_while_a_get_waits_for_other_shards() {
    let (mut node, _, getter) = start();
    let other = node.open();
    ask(&mut node, getter);
    assert_eq!(node.poll(getter), None, "it waits");
    assert!(node.ask(other, 1, &queue::Delete { queue: short("q"), ..queue::Delete::default() }).contains("DeleteOk"));
    node.poll_other_sockets();
    assert_eq!(node.channel_error(getter, 1), (404, "NOT_FOUND - no queue 'q' in vhost '/'".to_owned()));
    node.stop();
}

#[test]
fn a_connection_may_go_while_its_get_waits_for_other_shards() {
    let (mut node, publisher, getter) = start();
    let other = node.open();
    node.leave_unread(publisher, &message(b"x"));
    ask(&mut node, getter);
    assert_eq!(node.poll(getter), None, "it waits");
    node.close(getter);
    assert_eq!(node.poll_other_sockets(), 1);
    assert_eq!(node.get(other, "q", true).body, b"x", "nobody else has it");
    node.stop();
}
