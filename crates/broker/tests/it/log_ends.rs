//! Deleted queues and topics stay deleted, and nothing else goes: through restarts, with one journal and with several, in folders of older releases.

use std::path::Path;

use broker::ReplyTo;
use broker::append::{Append, AppendItem};
use types::{ConnectionId, LogId, ShardId};

use crate::node::{Node, log_of, wait_for};

/// Two queues with records in sealed segments and in the open one, one of them deleted, and checkpoints after that.
fn after_a_deletion(data: &Path, journals: usize) -> u64 {
    let node = Node::open(data, journals);
    let queues = [node.queue("kept", true), node.queue("gone", true)];
    queues.iter().for_each(|queue| node.fill(queue.log(), 400));
    node.close();
    let node = Node::open(data, journals);
    let queues = [node.queue("kept", true), node.queue("gone", true)];
    queues.iter().for_each(|queue| node.fill(queue.log(), 3));
    let log = queues[1].log().id();
    node.broker.delete_queue(&queues[1], false, false).expect("deleted");
    wait_for("it is gone", || node.broker.journal_of(log).log(log).is_none());
    for journal in node.broker.journals() {
        let before = journal.metrics().checkpoints.get();
        journal.check_retention();
        // The first look after a start writes one.
        wait_for("a checkpoint", || journal.metrics().checkpoints.get() > before || before > 0);
    }
    node.close();
    log.0
}

#[test]
fn a_node_starts_again_after_a_queue_with_messages_was_deleted() {
    for journals in [1, 3] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = LogId(after_a_deletion(folder.path(), journals));
        for _ in 0..3 {
            let node = Node::open(folder.path(), journals);
            assert_eq!(node.queue("kept", true).log().end().0, 403);
            assert!(node.broker.journal_of(log).log(log).is_none(), "it stays gone");
            node.close();
        }
    }
}

fn exists(node: &Node, queue: &str) -> bool {
    node.vhost().queue(queue.as_bytes()).is_some()
}

#[test]
fn topics_end_with_all_their_partitions() {
    for (journals, partitions) in [(1, 4), (3, 7), (2, 600), (1, 600)] {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Node::open(folder.path(), journals);
        let (gone, kept) = (node.topic("gone", partitions), node.topic("kept", 1));
        let logs = gone.logs();
        logs.iter().take(20).for_each(|log| node.fill(log, 2));
        node.fill(&log_of(&kept), 2);
        node.broker.delete_topic(&gone).expect("deleted");
        wait_for("its logs end", || logs.iter().all(|log| node.broker.journal_of(log.id()).log(log.id()).is_none()));
        node.close();
        let node = Node::open(folder.path(), journals);
        assert!(node.broker.topic("gone").is_none());
        let left: Vec<LogId> = node.broker.journals().iter().flat_map(|journal| journal.log_ids()).collect();
        assert_eq!(left, [log_of(&kept).id()]);
        node.close();
    }
}

/// Only the catalog says that the logs are to end: the power went before they did.
#[test]
fn an_end_that_was_interrupted_is_made_up_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), 3);
    let topic = node.topic("gone", 6);
    topic.logs().iter().for_each(|log| node.fill(log, 2));
    let (mut key, mut value) = (vec![b'e'], vec![1]);
    key.extend(topic.logs()[0].id().0.to_be_bytes());
    value.extend(6u32.to_be_bytes());
    let delete = |key: &[u8], value: Option<Vec<u8>>| AppendItem::State {
        key: key.to_vec().into(),
        value: value.map(Into::into),
    };
    let items = vec![delete(b"tgone", None), delete(&key, Some(value))];
    let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(1), token: 0 };
    assert!(node.journal(0).append(Append { to, items, acknowledge: false }).is_ok());
    node.close();
    let node = Node::open(folder.path(), 3);
    wait_for("the logs end", || node.broker.journals().iter().all(|journal| journal.log_ids().is_empty()));
    node.close();
    let node = Node::open(folder.path(), 3);
    assert!(node.broker.topic("gone").is_none());
    node.close();
}

#[test]
fn what_needs_no_record_goes_with_a_restart_and_what_has_one_stays() {
    for journals in [1, 3] {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Node::open(folder.path(), journals);
        let (passing, kept) = (node.queue("passing", false), node.queue("kept", true));
        node.fill(passing.log(), 3);
        node.fill(kept.log(), 3);
        let unused = node.queue("unused", false);
        let log = unused.log().id();
        node.broker.delete_queue(&unused, false, false).expect("deleted");
        assert!(node.broker.journal_of(log).log(log).is_none(), "nothing of it was anywhere");
        let log = passing.log().id();
        node.close();
        let node = Node::open(folder.path(), journals);
        assert!(!exists(&node, "passing") && exists(&node, "kept"));
        wait_for("its log ends", || node.broker.journal_of(log).log(log).is_none());
        assert_eq!(node.queue("kept", true).log().end().0, 3);
        node.close();
    }
}

/// What of a topic's log is concluded from the catalog's silence: nothing.
#[test]
fn a_log_that_nobody_names_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), 1);
    let topic = node.topic("unnamed", 1);
    node.fill(&log_of(&topic), 3);
    wait_for("the journal is settled", || !node.journal(0).log_ids().is_empty());
    node.close();
    let node = Node::open(folder.path(), 1);
    let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(1), token: 0 };
    let items = vec![AppendItem::State { key: b"tunnamed"[..].into(), value: None }];
    assert!(node.journal(0).append(Append { to, items, acknowledge: false }).is_ok());
    node.close();
    for _ in 0..2 {
        let node = Node::open(folder.path(), 1);
        assert!(node.broker.topic("unnamed").is_none());
        let log = node.journal(0).log(log_of(&topic).id()).expect("its records are still there");
        assert_eq!(log.end().0, 3);
        node.close();
    }
}

#[test]
fn what_groups_committed_of_a_queue_goes_with_it() {
    let ways: [fn(&Node); 3] = [
        |node| {
            let (pattern, definition) = ("^work$".into(), serde_json::json!({"expires": 1}));
            let wish = broker::PolicyWish { pattern, definition, priority: None, apply_to: None };
            let (vhost, scope) = (node.vhost(), broker::PolicyScope::User);
            node.broker.put_policy(&vhost, scope, "short", &wish).expect("put");
            wait_for("it expires", || vhost.queue(b"work").is_none());
            node.broker.delete_policy(&vhost, scope, "short").expect("deleted");
        },
        |node| {
            node.broker.delete_queue(&node.queue("work", true), false, false).expect("deleted");
        },
        |node| node.broker.delete_topic(&node.broker.topic("work").expect("a topic")).expect("deleted"),
    ];
    for way in ways {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Node::open(folder.path(), 1);
        let queue = node.queue("work", true);
        node.topic("other", 1);
        node.write_offset("group", "work", 3);
        node.write_offset("group", "other", 4);
        node.fill(queue.log(), 5);
        node.close();
        let node = Node::open(folder.path(), 1);
        assert_eq!((node.offset("group", "work"), node.offset("group", "other")), (Some(3), Some(4)));
        way(&node);
        assert_eq!(node.offset("group", "work"), None, "nobody goes on where there is nothing");
        node.queue("work", true);
        assert_eq!((node.offset("group", "work"), node.offset("group", "other")), (None, Some(4)));
        node.close();
        let node = Node::open(folder.path(), 1);
        assert_eq!((node.offset("group", "work"), node.offset("group", "other")), (None, Some(4)));
        node.close();
    }
}

/// An older release has forgotten a queue whose deletion it could not write, and has attached the next of its name to its own topic.
#[test]
fn a_queue_that_is_attached_to_what_was_its_own_topic_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), 1);
    let queue = node.queue("work", true);
    node.fill(queue.log(), 3);
    let mut value = vec![1];
    value.extend(queue.topic().id.0.as_bytes());
    value.extend(queue.log().id().0.to_be_bytes());
    const ATTACHED: u8 = 8;
    value.push(ATTACHED);
    value.extend(0u32.to_be_bytes());
    let item = AppendItem::State { key: b"qq\x01/work"[..].into(), value: Some(value.into()) };
    node.append(LogId(0), item);
    node.close();
    for _ in 0..2 {
        let node = Node::open(folder.path(), 1);
        let queue = node.queue("work", true);
        assert_eq!((queue.log().end().0, queue.is_attached()), (3, false));
        node.close();
    }
    let node = Node::open(folder.path(), 1);
    let queue = node.queue("work", true);
    node.broker.delete_queue(&queue, false, false).expect("deleted");
    node.close();
    let node = Node::open(folder.path(), 1);
    assert!(!exists(&node, "work") && node.broker.topic("work").is_none() && node.journal(0).log_ids().is_empty());
    node.close();
}
