//! Class tx, and its relation to confirms.

use amqp_wire::{
    EncodedProperties, Properties, Table, basic, channel, confirm, queue, short, tx, write_content, write_method,
};
use broker::{QuotaChange, QuotaEntity};
use bytes::BytesMut;

use crate::node::{FRAME_MAX, Node, publish};

#[test]
fn a_transaction_takes_effect_at_its_commit() {
    let mut node = Node::start();
    let (client, other) = (node.open(), node.open());
    node.declare(client, "q");
    node.publish(client, "", "q", b"old");
    assert_eq!(node.get(client, "q", false).body, b"old");
    assert_eq!(node.ask(client, 1, &tx::Select {}), "Tx(SelectOk(SelectOk))");
    node.publish(client, "", "q", b"new");
    node.send(client, 1, &basic::Ack { delivery_tag: 1, multiple: false });
    assert_eq!(node.get(other, "q", true).method, "Basic(GetEmpty(GetEmpty))");
    assert_eq!(node.ask(client, 1, &tx::Commit {}), "Tx(CommitOk(CommitOk))");
    assert_eq!(node.get(other, "q", true).body, b"new");
    assert_eq!(node.ask(client, 1, &tx::Commit {}), "Tx(CommitOk(CommitOk))", "of nothing");
    node.stop();
}

#[test]
fn a_rollback_forgets() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    node.publish(client, "", "q", b"old");
    node.get(client, "q", false);
    node.ask(client, 1, &tx::Select {});
    node.publish(client, "", "q", b"new");
    node.send(client, 1, &basic::Ack { delivery_tag: 0, multiple: true });
    assert_eq!(node.ask(client, 1, &tx::Rollback {}), "Tx(RollbackOk(RollbackOk))");
    // The delivery is the client's again: it is given back with the channel.
    node.ask(client, 1, &channel::Close::default());
    node.ask(client, 1, &channel::Open {});
    let seen = node.get(client, "q", true);
    assert!(seen.body == b"old" && seen.method.contains("redelivered: true"), "{seen:?}");
    assert_eq!(node.get(client, "q", true).method, "Basic(GetEmpty(GetEmpty))");
    node.stop();
}

#[test]
fn a_channel_has_one_mode() {
    let mut node = Node::start();
    let client = node.open();
    let text = |text: &str| (406, format!("PRECONDITION_FAILED - {text}"));
    node.send(client, 1, &tx::Commit {});
    assert_eq!(node.channel_error(client, 1), text("channel is not transactional"));
    node.ask(client, 1, &channel::Open {});
    node.ask(client, 1, &tx::Select {});
    node.send(client, 1, &confirm::Select { no_wait: false });
    assert_eq!(node.channel_error(client, 1), text("cannot switch from tx to confirm mode"));
    node.ask(client, 1, &channel::Open {});
    node.select_confirms(client);
    node.send(client, 1, &tx::Select {});
    assert_eq!(node.channel_error(client, 1), text("cannot switch from confirm to tx mode"));
    node.ask(client, 1, &channel::Open {});
    node.send(client, 1, &queue::Purge { queue: short("nope"), no_wait: true });
    assert_eq!(node.channel_error(client, 1).0, 404);
    node.stop();
}

#[test]
fn a_commit_does_not_forget_what_was_lost_while_it_waited_for_acknowledgements() {
    for round in 0..20 {
        let mut node = Node::start();
        let client = node.open();
        node.declare(client, "q");
        node.publish(client, "", "q", b"old");
        assert_eq!(node.get(client, "q", false).body, b"old");
        node.ask(client, 1, &tx::Select {});
        // More than the journal takes.
        node.publish(client, "", "q", &vec![7; 3 << 20]);
        node.send(client, 1, &basic::Ack { delivery_tag: 1, multiple: false });
        node.send(client, 1, &tx::Commit {});
        let (code, text) = node.connection_error(client);
        assert_eq!((code, text.contains("partial tx completion")), (541, true), "round {round}: {text}");
        node.stop();
    }
}

/// Properties of a message with so many more routing keys of 127 words.
fn copies(count: usize) -> BytesMut {
    let key = vec!["a"; 127].join(".");
    let headers = Table::build(|fields| fields.array(short("CC"), |keys| (0..count).for_each(|_| keys.put(&key[..]))));
    let mut properties = BytesMut::new();
    Properties { headers: Some(headers.view()), ..Properties::default() }.encode(&mut properties);
    properties
}

/// A topic exchange with patterns of which a key of many words reaches some hundred nodes in vain, and one that everything matches.
fn bind_many(node: &mut Node, client: usize) {
    node.declare(client, "q");
    node.bind(client, "q", "amq.topic", "#");
    for first in ["#.#", "#.a.a", "a.a", "a.#.#"] {
        let pattern = format!("{first}.{}.b", vec!["#.a"; 60].join("."));
        let method = queue::Bind {
            queue: short("q"),
            exchange: short("amq.topic"),
            routing_key: amqp_wire::ShortStr::new(&pattern).expect("short"),
            ..queue::Bind::default()
        };
        assert_eq!(node.ask(client, 1, &method), "Queue(BindOk(BindOk))");
    }
}

#[test]
fn a_publish_that_reaches_too_much_in_vain_is_refused() {
    let mut node = Node::start();
    let client = node.open();
    bind_many(&mut node, client);
    node.send_content(client, 1, &publish("amq.topic", "a", false), &copies(100), b"some");
    assert_eq!(node.get(client, "q", true).body, b"some");
    node.send_content(client, 1, &publish("amq.topic", "a", false), &copies(480), b"many");
    let text = "PRECONDITION_FAILED - routing of the message takes more than 262144 steps";
    assert_eq!(node.channel_error(client, 1), (406, text.to_owned()));
    node.ask(client, 1, &channel::Open {});
    assert_eq!(node.get(client, "q", true).method, "Basic(GetEmpty(GetEmpty))");
    node.stop();
}

#[test]
fn a_commit_that_takes_long_has_several_turns_and_keeps_the_order() {
    let mut node = Node::start();
    let (client, other) = (node.open(), node.open());
    bind_many(&mut node, client);
    assert_eq!(node.ask(client, 1, &tx::Select {}), "Tx(SelectOk(SelectOk))");
    let properties = copies(100);
    for number in 0..40 {
        node.send_content(client, 1, &publish("amq.topic", "a", false), &properties, format!("{number}").as_bytes());
    }
    let mut more = BytesMut::new();
    write_method(&mut more, 1, &tx::Commit {});
    // What follows on the channel is of the next transaction.
    write_content(&mut more, 1, &publish("", "q", false), EncodedProperties::trusted(&[0, 0]), b"later", FRAME_MAX);
    let turns = node.turns_of(client, &more);
    // Some 40 times 70,000 steps.
    assert!((3..20).contains(&turns), "{turns}");
    assert_eq!(node.next(client).method, "Tx(CommitOk(CommitOk))");
    for number in 0..40 {
        assert_eq!(node.get(other, "q", true).body, format!("{number}").as_bytes());
    }
    assert_eq!(node.get(other, "q", true).method, "Basic(GetEmpty(GetEmpty))");
    assert_eq!(node.ask(client, 1, &tx::Commit {}), "Tx(CommitOk(CommitOk))");
    assert_eq!(node.get(other, "q", true).body, b"later");
    node.stop();
}

/// A commit of 40 messages that has had the first of its turns.
fn begin_long_commit(node: &mut Node, client: usize) {
    bind_many(node, client);
    node.ask(client, 1, &tx::Select {});
    let properties = copies(100);
    for number in 0..40 {
        node.send_content(client, 1, &publish("amq.topic", "a", false), &properties, format!("{number}").as_bytes());
    }
    let mut commit = BytesMut::new();
    write_method(&mut commit, 1, &tx::Commit {});
    node.hand(client, &commit);
    assert!(node.has_turn(client), "it takes several turns");
}

#[test]
fn a_commit_that_has_begun_is_carried_out_before_the_connection_ends() {
    let mut node = Node::start();
    let (client, other) = (node.open(), node.open());
    begin_long_commit(&mut node, client);
    let now = node.now;
    // It has no other turn.
    node.session(client).drain(now);
    assert!(!node.session(client).pauses() || !node.session(client).wants_read());
    node.pump();
    assert_eq!(node.next(client).method, "Tx(CommitOk(CommitOk))");
    assert!(node.next(client).method.starts_with("Connection(Close("));
    assert_eq!(node.ready(b"q", 40), 40);
    for number in 0..40 {
        assert_eq!(node.get(other, "q", true).body, format!("{number}").as_bytes());
    }
    node.stop();
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_commit_leaves_all_of_it() {
    for finishes in [true, false] {
        let mut node = Node::start();
        let (client, other) = (node.open(), node.open());
        begin_long_commit(&mut node, client);
        let now = node.now;
        if finishes {
            assert!(node.session(client).finish(now), "there is something left");
            node.pump();
        }
        node.session(client).close();
        assert_eq!(node.ready(b"q", 40), 40, "finishes {finishes}");
        for number in 0..40 {
            assert_eq!(node.get(other, "q", true).body, format!("{number}").as_bytes(), "finishes {finishes}");
        }
        assert_eq!(node.get(other, "q", true).method, "Basic(GetEmpty(GetEmpty))");
        node.stop();
    }
}

/// Ends what a connection of the node was about.
type End<'a> = dyn Fn(&mut Node, usize) + 'a;

#[test]
fn a_commit_that_a_quota_holds_back_is_kept_whole_whatever_ends_its_channel() {
    const MESSAGES: u32 = 400;
    // The connection stays until journals have taken what was published.
    let finishes = |node: &mut Node, client: usize| {
        let now = node.now;
        assert!(node.session(client).finish(now), "there is something left");
        while node.session(client).finish(now) {
            node.pump();
        }
        node.session(client).close();
    };
    let closes_channel = |node: &mut Node, client: usize| {
        node.send(client, 1, &channel::Close::default());
        finishes(node, client);
    };
    let drains = |node: &mut Node, client: usize| {
        let now = node.now;
        node.session(client).drain(now);
        while !node.next(client).method.starts_with("Connection(Close(") {}
    };
    let ways: [(&str, &End<'_>); 3] = [("channel", &closes_channel), ("client", &finishes), ("node", &drains)];
    for (way, end) in ways {
        let mut node = Node::start();
        let client = node.open();
        node.declare(client, "q");
        let entity = QuotaEntity::of([("user", None)]).expect("an entity");
        node.broker
            .alter_quotas(&[QuotaChange::of(entity, [("producer_byte_rate", Some(10_000.0))]).expect("a quota")])
            .expect("taken");
        node.ask(client, 1, &tx::Select {});
        for _ in 0..MESSAGES {
            node.publish(client, "", "q", &[b'x'; 30_000]);
        }
        let mut commit = BytesMut::new();
        write_method(&mut commit, 1, &tx::Commit {});
        node.hand(client, &commit);
        node.pump();
        let before = node.broker.counts(&node.vhost().queue(b"q").expect("there")).ready;
        assert!(before < u64::from(MESSAGES), "{way}: the quota holds it back");
        end(&mut node, client);
        assert_eq!(node.ready(b"q", u64::from(MESSAGES)), u64::from(MESSAGES), "{way}");
        node.stop();
    }
}

/// A channel in transaction mode that has so many messages of queue `q`.
fn begin_with_deliveries(node: &mut Node, client: usize, count: u64) {
    node.declare(client, "q");
    (0..count).for_each(|_| node.publish(client, "", "q", b"x"));
    assert_eq!(node.ask(client, 1, &tx::Select {}), "Tx(SelectOk(SelectOk))");
    node.consume(client, "q", "c", false);
    for _ in 0..count {
        assert!(node.next(client).method.contains("Deliver"));
    }
}

fn counts(node: &Node) -> (u64, u64) {
    let counts = node.broker.counts(&node.subscription("q").0);
    (counts.ready, counts.unacknowledged)
}

#[test]
fn what_a_transaction_says_of_many_deliveries_is_held_and_carried_out_in_several_turns() {
    const COUNT: u64 = 12_000;
    let mut node = Node::start();
    let (client, held) = (node.open(), |node: &Node| node.gateway().unfinished_bytes());
    begin_with_deliveries(&mut node, client, COUNT);
    let all = |requeue| basic::Nack { delivery_tag: 0, multiple: true, requeue };
    let said = |method: &basic::Nack| {
        let mut bytes = BytesMut::new();
        write_method(&mut bytes, 1, method);
        bytes
    };
    // A client that takes it back has them as before.
    assert_eq!(node.turns_of(client, &said(&all(true))), 3, "5,000 a turn");
    assert!(held(&node) as u64 >= 16 * COUNT);
    assert_eq!(node.ask(client, 1, &tx::Rollback {}), "Tx(RollbackOk(RollbackOk))");
    assert_eq!((held(&node), counts(&node)), (0, (0, COUNT)));
    node.turns_of(client, &said(&all(false)));
    let mut commit = BytesMut::new();
    write_method(&mut commit, 1, &tx::Commit {});
    assert!(node.turns_of(client, &commit) >= 3, "5,000 a turn");
    assert_eq!(node.next(client).method, "Tx(CommitOk(CommitOk))");
    assert_eq!((held(&node), counts(&node)), (0, (0, 0)));
    node.stop();
}

#[test]
fn a_channel_that_ends_between_the_turns_of_a_commit_has_said_all_of_it() {
    const COUNT: u64 = 12_000;
    for commits in [true, false] {
        let mut node = Node::start();
        let client = node.open();
        begin_with_deliveries(&mut node, client, COUNT);
        let mut more = BytesMut::new();
        write_method(&mut more, 1, &basic::Ack { delivery_tag: COUNT, multiple: true });
        if commits {
            node.turns_of(client, &more);
            more.clear();
            write_method(&mut more, 1, &tx::Commit {});
        }
        node.hand(client, &more);
        assert!(node.has_turn(client), "it takes several turns");
        node.session(client).close();
        let left = if commits { 0 } else { COUNT };
        node.wait_until("all are as they were, or gone", |node| counts(node) == (left, 0));
        node.stop();
    }
}
