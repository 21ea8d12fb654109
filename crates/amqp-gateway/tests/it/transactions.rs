//! Class tx, and its relation to confirms.

use amqp_wire::{basic, channel, confirm, queue, short, tx};

use crate::node::Node;

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
