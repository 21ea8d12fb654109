//! Each queue has its own topic, under a name of its own: in new folders, and in those of earlier releases, whose rule gave some queues of two virtual
//! hosts one name.

use std::sync::Arc;

use broker::append::AppendItem;
use broker::{Caller, CreateTopic, Queue, QueueDeclaration, QueueError, VhostWish};
use routing::{Arguments, Name};
use types::{ConnectionId, LogId};

use crate::node::{Node, wait_for};

const CONNECTION: ConnectionId = ConnectionId(1);
const ATTACHED: u8 = 8;
/// The two that were one: virtual host, queue.
const SLASH: (&str, &str) = ("/", "a b");
const OTHER: (&str, &str) = ("a", "20b");

fn make_vhost(node: &Node, name: &str) {
    let wish = VhostWish { name: name.to_owned(), description: None, tags: None, default_queue_type: None };
    node.broker.put_vhost(wish).expect("made");
}

fn declare(node: &Node, (vhost, queue): (&str, &str)) -> Result<Arc<Queue>, QueueError> {
    let vhost = node.broker.vhosts().get(vhost).expect("it is there");
    let name = Name::new(queue.as_bytes()).expect("a short name");
    let wish =
        QueueDeclaration { name, durable: true, owner: None, auto_delete: false, arguments: Arguments::default() };
    node.broker.declare_queue(&vhost, wish, &Caller::broker(CONNECTION))
}

/// One that is there.
fn found(node: &Node, (vhost, queue): (&str, &str)) -> Option<Arc<Queue>> {
    node.broker.vhosts().get(vhost)?.queue(queue.as_bytes())
}

fn ready(node: &Node, queue: (&str, &str)) -> u64 {
    node.broker.counts(&found(node, queue).expect("it is there")).ready
}

fn delete(node: &Node, queue: (&str, &str)) {
    node.broker.delete_queue(&found(node, queue).expect("it is there"), false, false).expect("deleted");
}

/// The record of a queue as an earlier release wrote it: with the topic and log of this one.
fn write_old(node: &Node, (vhost, queue): (&str, &str), of: &Queue, flags: u8) {
    let mut key = vec![b'q', b'q', vhost.len() as u8];
    key.extend(vhost.bytes().chain(queue.bytes()));
    let mut value = vec![1];
    value.extend(of.topic().id.0.as_bytes());
    value.extend(of.log().id().0.to_be_bytes());
    value.push(flags);
    value.extend(0u32.to_be_bytes());
    node.append(LogId(0), AppendItem::State { key: key.into(), value: Some(value.into()) });
}

#[test]
fn two_queues_that_were_one_topic_are_two() {
    for both in [[SLASH, OTHER], [OTHER, SLASH]] {
        for first in both {
            let folder = tempfile::tempdir().expect("a folder");
            let node = Node::open(folder.path(), 1);
            make_vhost(&node, OTHER.0);
            let queues = both.map(|queue| declare(&node, queue).expect("declared"));
            assert_ne!(queues[0].id(), queues[1].id(), "declared in the order {both:?}");
            assert_ne!(queues[0].topic().name, queues[1].topic().name);
            assert!(queues.iter().all(|queue| !queue.is_attached()));
            node.fill(queues[0].log(), 3);
            node.fill(queues[1].log(), 5);
            node.close();
            let node = Node::open(folder.path(), 1);
            assert_eq!(both.map(|queue| ready(&node, queue)), [3, 5]);
            delete(&node, first);
            let other = if first == both[0] { both[1] } else { both[0] };
            let left = if other == both[0] { 3 } else { 5 };
            assert_eq!((found(&node, first).is_none(), ready(&node, other)), (true, left), "{first:?} was deleted");
            node.close();
            let node = Node::open(folder.path(), 1);
            assert_eq!(
                (found(&node, first).is_none(), ready(&node, other)),
                (true, left),
                "{first:?} was deleted, and the node started again"
            );
            delete(&node, other);
            node.close();
            let node = Node::open(folder.path(), 1);
            wait_for("nothing is left", || node.journal(0).log_ids().is_empty());
            node.close();
        }
    }
}

/// An earlier release has declared it, and Kafka clients know it by that name.
#[test]
fn a_queue_of_an_earlier_release_keeps_its_name_until_it_is_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), 1);
    make_vhost(&node, OTHER.0);
    let queue = declare(&node, OTHER).expect("declared");
    node.fill(queue.log(), 3);
    write_old(&node, OTHER, &queue, 0);
    node.write_offset("group", "a~20b", 2);
    node.close();
    for _ in 0..2 {
        let node = Node::open(folder.path(), 1);
        let topic = node.broker.topic("a~20b").expect("as it was called");
        assert_eq!((topic.id, ready(&node, OTHER)), (queue.topic().id, 3));
        assert_eq!(node.offset("group", "a~20b"), Some(2));
        assert_eq!(
            node.broker.vhosts().get("a").expect("there").resource_name(OTHER.1.as_bytes()),
            "a~20b",
            "what entries call it"
        );
        let refused = declare(&node, SLASH).expect_err("another queue has the topic");
        assert!(matches!(refused, QueueError::TopicTaken { .. }), "{refused}");
        assert_eq!(refused.to_string(), "cannot declare queue 'a b' in vhost '/': topic 'a~20b' is another queue's");
        assert!(found(&node, SLASH).is_none());
        node.close();
    }
    let node = Node::open(folder.path(), 1);
    delete(&node, OTHER);
    let queues = [SLASH, OTHER].map(|queue| declare(&node, queue).expect("declared"));
    assert_eq!(queues.each_ref().map(|queue| queue.topic().name.as_str()), ["a~20b", "a~~320b"]);
    assert_eq!(node.broker.vhosts().get("a").expect("there").resource_name(OTHER.1.as_bytes()), "a~~320b");
    node.close();
}

/// An earlier release attached the second of them to the first one's own topic: what both were sent lies there.
#[test]
fn a_queue_that_an_earlier_release_put_into_anothers_topic_gets_its_own() {
    for (owner, other, name) in [(SLASH, OTHER, "a~~320b"), (OTHER, SLASH, "")] {
        for journals in [1, 3] {
            let folder = tempfile::tempdir().expect("a folder");
            let node = Node::open(folder.path(), journals);
            make_vhost(&node, OTHER.0);
            let queue = declare(&node, owner).expect("declared");
            node.fill(queue.log(), 3);
            write_old(&node, owner, &queue, 0);
            write_old(&node, other, &queue, ATTACHED);
            node.close();
            for kept in [0, 2] {
                let node = Node::open(folder.path(), journals);
                let queues = [owner, other].map(|queue| found(&node, queue).expect("both are there"));
                assert_ne!(queues[0].id(), queues[1].id());
                assert_eq!(queues.each_ref().map(|queue| queue.is_attached()), [false, false]);
                assert_eq!(queues.each_ref().map(|queue| queue.topic().name.as_str()), ["a~20b", name]);
                assert_eq!([owner, other].map(|queue| ready(&node, queue)), [3, kept], "{owner:?} has the topic");
                if kept == 0 {
                    node.fill(queues[1].log(), 2);
                }
                node.close();
            }
            let node = Node::open(folder.path(), journals);
            delete(&node, other);
            assert_eq!(ready(&node, owner), 3);
            node.close();
            let node = Node::open(folder.path(), journals);
            assert_eq!((ready(&node, owner), found(&node, other).is_none()), (3, true));
            node.close();
        }
    }
}

/// The log that the other one gets is none that anybody has had.
#[test]
fn what_a_start_has_made_of_two_queues_is_durable_before_anybody_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), 1);
    make_vhost(&node, OTHER.0);
    let queue = declare(&node, OTHER).expect("declared");
    write_old(&node, OTHER, &queue, 0);
    write_old(&node, SLASH, &queue, ATTACHED);
    node.close();
    let node = Node::open(folder.path(), 1);
    let queues = [SLASH, OTHER].map(|queue| found(&node, queue).expect("both are there"));
    let next = declare(&node, ("/", "next")).expect("declared");
    assert!(queues.iter().all(|queue| queue.id() < next.id()));
    node.fill(queues[0].log(), 4);
    // Who deletes the owner deletes nothing of the other.
    delete(&node, OTHER);
    node.close();
    let node = Node::open(folder.path(), 1);
    assert_eq!((ready(&node, SLASH), found(&node, OTHER).is_none()), (4, true));
    node.close();
}

/// An earlier release that was asked for both at once made two topics of one name, of which Kafka clients saw one.
#[test]
fn of_two_topics_of_one_name_both_queues_have_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), 1);
    make_vhost(&node, OTHER.0);
    for (records, queue) in [(3, SLASH), (5, OTHER)] {
        let declared = declare(&node, queue).expect("declared");
        node.fill(declared.log(), records);
        write_old(&node, queue, &declared, 0);
    }
    node.close();
    for _ in 0..2 {
        let node = Node::open(folder.path(), 1);
        assert_eq!([SLASH, OTHER].map(|queue| ready(&node, queue)), [3, 5]);
        let names = [SLASH, OTHER].map(|queue| found(&node, queue).expect("there").topic().name.clone());
        assert_eq!(names, ["a~20b", "a~~320b"]);
        node.close();
    }
}

/// Kafka makes no topics that its metrics could not tell apart. Queues have no such rule.
#[test]
fn topics_differ_in_more_than_dots_and_underscores() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), 1);
    let wish = |name: &str| CreateTopic {
        name: name.to_owned(),
        partitions: 1,
        replication: 1,
        overrides: Default::default(),
    };
    let create = |names: &[&str]| -> Vec<Option<String>> {
        let outcomes = node.broker.create_topics(names.iter().copied().map(wish).collect());
        outcomes.into_iter().map(|outcome| outcome.err().map(|error| error.to_string())).collect()
    };
    let collides = |name: &str, other: &str| Some(format!("Topic '{name}' collides with existing topic: {other}"));
    assert_eq!(create(&["a.b_c", "plain", "a.b"]), [None, None, None]);
    assert_eq!(create(&["a_b.c", "a-b", "ab"]), [collides("a_b.c", "a.b_c"), None, None]);
    assert_eq!(
        create(&["x.y", "x_y", "x.y"]),
        [None, collides("x_y", "x.y"), Some("Topic 'x.y' already exists.".to_owned())]
    );
    node.queue("a_b", true);
    node.broker.delete_topic(&node.broker.topic("a.b_c").expect("it is there")).expect("deleted");
    assert_eq!(create(&["a_b_c"]), [None]);
    node.close();
}
