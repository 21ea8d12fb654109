//! What is begun and not finished, over all channels of a connection: bounded, counted, and given back.

use std::time::Duration;

use amqp_wire::{EncodedProperties, basic, channel, confirm, exchange, tx, write_content};
use bytes::BytesMut;

use crate::node::{FRAME_MAX, Node, publish, string};

const MIB: usize = 1 << 20;
/// Of the smallest memory for all connections, 34 MiB, the most that a connection gets.
const CONNECTION_MAX: usize = 17 * MIB;

/// A publish without its last frame.
fn all_but_the_end(channel: u16, body_bytes: usize) -> BytesMut {
    let (mut whole, body) = (BytesMut::new(), vec![0; body_bytes]);
    write_content(&mut whole, channel, &publish("", "q", false), EncodedProperties::trusted(&[0, 0]), &body, FRAME_MAX);
    let last = body_bytes % (FRAME_MAX as usize - 8) + 8;
    whole.truncate(whole.len() - last);
    whole
}

/// A connection with half bodies that take all it may.
fn four_bodies(node: &mut Node) -> usize {
    let client = node.open();
    for number in 2..6u16 {
        node.ask(client, number, &channel::Open {});
        node.raw(client, &all_but_the_end(number, 4 * MIB));
    }
    client
}

fn smallest(node: &Node) {
    node.gateway().set_unfinished_max(0);
}

#[test]
fn bodies_on_many_channels_are_bounded_together() {
    let mut node = Node::start();
    smallest(&node);
    let (client, other) = (node.open(), node.open());
    node.declare(client, "q");
    let mut refused = Vec::new();
    for number in 2..32u16 {
        assert_eq!(node.ask(client, number, &channel::Open {}), "Channel(OpenOk(OpenOk))");
        node.raw(client, &all_but_the_end(number, 4 * MIB));
        assert!(node.gateway().unfinished_bytes() <= CONNECTION_MAX);
        if let Some(seen) = node.poll(client) {
            assert!(seen.method.starts_with("Channel(Close("), "{seen:?}");
            refused.push(seen.channel);
        }
    }
    assert_eq!(refused, (2 + (CONNECTION_MAX / (4 * MIB)) as u16..32).collect::<Vec<u16>>());
    assert!(node.gateway().unfinished_bytes() >= CONNECTION_MAX / 2);
    assert_eq!(node.gateway().unfinished_refused(), refused.len() as u64);
    // Messages of one frame need none of it, and others have a share of their own.
    node.publish(client, "", "q", b"small");
    node.publish(other, "", "q", &vec![1; MIB / 2]);
    for body in [5, MIB / 2] {
        node.wait_until("it is there", |node| {
            node.broker
                .vhosts()
                .get("/")
                .and_then(|host| host.queue(&b"q"[..]))
                .is_some_and(|queue| node.broker.counts(&queue).ready > 0)
        });
        assert_eq!(node.get(other, "q", true).body.len(), body);
    }
    // What goes with the connection is given back.
    node.close(client);
    assert_eq!(node.gateway().unfinished_bytes(), 0);
    node.stop();
}

#[test]
fn transactions_of_many_channels_are_bounded_together() {
    let mut node = Node::start();
    smallest(&node);
    let client = node.open();
    node.declare(client, "q");
    let (mut open, body) = (0, vec![0; 100_000]);
    'all: for number in 2..10u16 {
        node.ask(client, number, &channel::Open {});
        node.ask(client, number, &tx::Select {});
        for _ in 0..50 {
            node.send_content(client, number, &publish("", "q", false), &[0, 0], &body);
            if node.poll(client).is_some_and(|seen| seen.method.starts_with("Channel(Close(")) {
                break 'all;
            }
            open += body.len();
        }
    }
    assert!((CONNECTION_MAX / 2..=CONNECTION_MAX).contains(&open), "{open}");
    // What was not refused can be carried out, and is counted no more.
    assert_eq!(node.ask(client, 2, &tx::Commit {}), "Tx(CommitOk(CommitOk))");
    assert_eq!(node.ask(client, 3, &tx::Rollback {}), "Tx(RollbackOk(RollbackOk))");
    node.close(client);
    assert_eq!(node.gateway().unfinished_bytes(), 0);
    node.stop();
}

#[test]
fn acknowledgements_of_a_transaction_count_until_it_ends() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    (0..200).for_each(|_| node.publish(client, "", "q", b"x"));
    node.ask(client, 1, &tx::Select {});
    (0..200).for_each(|_| drop(node.get(client, "q", false)));
    node.send(client, 1, &basic::Ack { delivery_tag: 0, multiple: true });
    assert!(node.gateway().unfinished_bytes() >= 200 * 32);
    assert_eq!(node.ask(client, 1, &tx::Rollback {}), "Tx(RollbackOk(RollbackOk))");
    assert_eq!(node.gateway().unfinished_bytes(), 0);
    node.stop();
}

/// Acknowledgements that find no room end their channel; it has the messages as long as that, and gives them back.
#[test]
fn what_a_refused_transaction_was_to_acknowledge_comes_again() {
    let mut node = Node::start();
    smallest(&node);
    let (client, other) = (node.open(), node.open());
    node.declare(client, "q");
    (0..200).for_each(|_| node.publish(client, "", "q", b"x"));
    node.ask(client, 1, &tx::Select {});
    (0..200).for_each(|_| drop(node.get(client, "q", false)));
    node.ask(client, 2, &channel::Open {});
    node.ask(client, 2, &tx::Select {});
    for body in [vec![0; 100_000], vec![0; 1000]] {
        while node.gateway().unfinished_bytes() + 2 * body.len() < CONNECTION_MAX {
            node.send_content(client, 2, &publish("", "nobody", false), &[0, 0], &body);
            assert_eq!(node.poll(client), None);
        }
    }
    node.send(client, 1, &basic::Ack { delivery_tag: 0, multiple: true });
    let closed = node.next(client);
    assert!(closed.channel == 1 && closed.method.contains("reply_code: 311"), "{closed:?}");
    let queue = node.broker.vhosts().get("/").and_then(|host| host.queue(&b"q"[..])).expect("it is there");
    node.wait_until("all are ready", |node| node.broker.counts(&queue).ready == 200);
    assert!(node.get(other, "q", true).method.contains("redelivered: true"));
    node.stop();
}

/// Who finds no room because of others waits for them, and goes on when they are done.
#[test]
fn a_body_waits_for_others_to_be_finished() {
    let mut node = Node::start();
    smallest(&node);
    let (greedy, patient) = (node.open(), node.open());
    node.declare(greedy, "q");
    for number in 2..6u16 {
        node.ask(greedy, number, &channel::Open {});
        node.raw(greedy, &all_but_the_end(number, 4 * MIB));
    }
    node.raw(patient, &all_but_the_end(1, 8 * MIB));
    assert_eq!(node.poll(patient), None, "it waits");
    assert!(!node.session(patient).wants_read());
    node.close(greedy);
    node.advance(Duration::from_secs(1));
    assert!(node.session(patient).wants_read());
    assert!(node.gateway().unfinished_bytes() >= 7 * MIB);
    node.stop();
}

/// While somebody waits, what does not get on gives way; what gets on does not.
#[test]
fn a_body_that_does_not_get_on_gives_way() {
    let mut node = Node::start();
    smallest(&node);
    let (silent, patient) = (node.open(), node.open());
    node.declare(silent, "q");
    for number in 2..6u16 {
        node.ask(silent, number, &channel::Open {});
        node.raw(silent, &all_but_the_end(number, 4 * MIB));
    }
    node.advance(Duration::from_secs(60));
    assert_eq!(node.poll(silent), None, "nobody needs the room");
    node.raw(patient, &all_but_the_end(1, 8 * MIB));
    assert_eq!((node.poll(patient), node.session(patient).wants_read()), (None, false), "it waits");
    node.advance(Duration::from_millis(500));
    let mut closed: Vec<(u16, bool)> =
        (0..4).map(|_| node.next(silent)).map(|seen| (seen.channel, seen.method.contains("reply_code: 311"))).collect();
    closed.sort_unstable();
    assert_eq!(closed, [(2, true), (3, true), (4, true), (5, true)]);
    node.advance(Duration::from_millis(500));
    assert!(node.session(patient).wants_read());
    assert!(node.gateway().unfinished_bytes() >= 7 * MIB);
    node.stop();
}

/// Also where its connection waits for the outcome of something else that it has asked for.
#[test]
fn a_body_that_does_not_get_on_gives_way_whatever_else_is_asked_for() {
    let mut node = Node::start();
    smallest(&node);
    let patient = node.open();
    let busy = four_bodies(&mut node);
    node.ask(busy, 7, &channel::Open {});
    node.advance(Duration::from_secs(60));
    node.raw(patient, &all_but_the_end(1, 8 * MIB));
    assert_eq!((node.poll(patient), node.session(patient).wants_read()), (None, false), "it waits");
    let declare = exchange::Declare { exchange: string("e"), kind: string("fanout"), ..exchange::Declare::default() };
    node.send(busy, 7, &declare);
    assert!(!node.session(busy).wants_read(), "it waits, too");
    node.advance(Duration::from_millis(500));
    let told: Vec<String> = (0..5).map(|_| node.next(busy).method).collect();
    assert_eq!(told.iter().filter(|method| method.contains("reply_code: 311")).count(), 4, "{told:?}");
    assert!(told.iter().any(|method| method.contains("DeclareOk")), "{told:?}");
    node.stop();
}

/// Nor does one wait for ever where all get on.
#[test]
fn a_body_that_finds_no_room_for_long_has_its_turn() {
    let mut node = Node::start();
    smallest(&node);
    let (patient, busy) = (node.open(), four_bodies(&mut node));
    node.raw(patient, &all_but_the_end(1, 8 * MIB));
    assert_eq!((node.poll(patient), node.session(patient).wants_read()), (None, false), "it waits");
    node.advance(Duration::from_millis(500));
    assert!(!node.session(patient).wants_read());
    node.advance(Duration::from_millis(500));
    assert_eq!((node.poll(patient), node.poll(busy)), (None, None), "nobody is refused");
    assert!(node.session(patient).wants_read() && node.gateway().unfinished_bytes() >= 23 * MIB);
    node.close(patient);
    node.close(busy);
    assert_eq!(node.gateway().unfinished_bytes(), 0);
    node.stop();
}

/// Publishers that each have begun what does not fit beside the others' finish one after the other.
#[test]
fn large_bodies_that_come_together_are_all_taken() {
    const BODY: usize = 12 * MIB;
    let mut node = Node::start();
    smallest(&node);
    let clients: Vec<usize> = (0..6).map(|_| node.open()).collect();
    clients.iter().for_each(|client| _ = node.ask(*client, 1, &confirm::Select { no_wait: false }));
    let mut whole = BytesMut::new();
    write_content(
        &mut whole,
        1,
        &publish("", "nobody", false),
        EncodedProperties::trusted(&[0, 0]),
        &vec![0; BODY],
        FRAME_MAX,
    );
    for piece in whole.chunks(400_000) {
        clients.iter().for_each(|client| node.raw(*client, piece));
        node.advance(Duration::from_millis(50));
        assert!(node.gateway().unfinished_bytes() <= 34 * MIB + BODY);
    }
    let mut taken = Vec::new();
    for _ in 0..60 * 20 {
        node.advance(Duration::from_millis(50));
        for client in &clients {
            if let Some(seen) = node.poll(*client) {
                assert!(seen.method.starts_with("Basic(Ack("), "{seen:?}");
                taken.push(*client);
            }
        }
    }
    taken.sort_unstable();
    assert_eq!(taken, clients);
    assert_eq!((node.gateway().unfinished_bytes(), node.gateway().unfinished_refused()), (0, 0));
    node.stop();
}
