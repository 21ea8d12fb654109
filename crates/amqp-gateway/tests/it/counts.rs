//! Lengths and counts are those of messages: markers and aborted records of Kafka's transactions are none, and what was deleted from the topic
//! that a queue stands on is gone, whoever had it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use amqp_wire::{Table, basic, queue, short};
use broker::{CreateTopic, Queue};
use bytes::Bytes;
use journal::Log;
use parking_lot::Mutex;
use record::{BatchBuilder, Marker};
use types::{ConnectionId, Offset, PartitionIndex, ShardId};

use crate::node::Node;

fn found(node: &Node, name: &str) -> Arc<Queue> {
    node.broker.vhosts().get("/").expect("it is always there").queue(name.as_bytes()).expect("it was declared")
}

/// The log of a new topic `t`.
fn topic(node: &Node) -> Arc<Log> {
    let topic = CreateTopic { name: "t".to_owned(), partitions: 1, replication: 1, overrides: BTreeMap::new() };
    let created = node.broker.create_topics(vec![topic]).remove(0).expect("a topic");
    created.log(PartitionIndex(0)).expect("a partition")
}

/// A producer of Kafka, and where its sequence stands.
struct Producer(i64, i32);

impl Producer {
    fn append(&self, node: &Node, queue: &Arc<Queue>, batch: &Bytes) {
        node.broker.deposit(std::slice::from_ref(queue), batch).expect("the journal takes it");
    }

    /// Records of a transaction, in one batch.
    fn begin(&mut self, node: &Node, queue: &Arc<Queue>, records: i32, what: &str) {
        let batch = BatchBuilder::default().producer(self.0, 0, self.1).transactional();
        let batch = (0..records)
            .fold(batch, |batch, number| batch.record(1, None, Some(format!("{what} {number}").as_bytes())));
        self.append(node, queue, &batch.build());
        self.1 += records;
    }

    /// Its end.
    fn end(&self, node: &Node, queue: &Arc<Queue>, end: Marker) {
        self.append(node, queue, &end.batch(self.0, 0, 0, 1));
    }

    /// Both.
    fn transact(&mut self, node: &Node, queue: &Arc<Queue>, records: i32, end: Marker) {
        self.begin(node, queue, records, &format!("{end:?}"));
        self.end(node, queue, end);
    }
}

fn declare(node: &mut Node, client: usize, name: &'static str, arguments: &Table) -> u32 {
    let method =
        queue::Declare { queue: short(name), durable: true, arguments: arguments.view(), ..queue::Declare::default() };
    count(&node.ask(client, 1, &method))
}

fn passively(node: &mut Node, client: usize, name: &'static str) -> u32 {
    count(&node.ask(client, 1, &queue::Declare { queue: short(name), passive: true, ..queue::Declare::default() }))
}

/// Of an answer, how many messages.
fn count(answer: &str) -> u32 {
    let after = answer.split("message_count: ").nth(1).unwrap_or_else(|| panic!("{answer}"));
    after.split([',', ' ']).next().and_then(|number| number.parse().ok()).expect("a number")
}

fn arguments(limit: i32, others: &[(&'static str, &'static str)]) -> Table {
    Table::build(|fields| {
        fields.put(short("x-max-length"), limit);
        others.iter().for_each(|(name, value)| fields.put(short(name), *value));
    })
}

fn publish(node: &mut Node, client: usize, name: &str, bodies: std::ops::Range<usize>) -> Vec<bool> {
    let confirm = |number: usize| {
        node.publish(client, "", name, number.to_string().as_bytes());
        node.next(client).method.starts_with("Basic(Ack(")
    };
    bodies.map(confirm).collect()
}

/// What is left, taken one by one.
fn drain(node: &mut Node, client: usize, name: &'static str) -> Vec<String> {
    let mut bodies = Vec::new();
    loop {
        let seen = node.get(client, name, true);
        if seen.method.starts_with("Basic(GetEmpty") {
            return bodies;
        }
        bodies.push(String::from_utf8(seen.body).expect("text"));
    }
}

#[test]
fn an_aborted_transaction_drops_nothing_from_a_queue_that_is_short() {
    for kind in ["classic", "quorum"] {
        let mut node = Node::start();
        let client = node.open();
        node.declare(client, "dead");
        let limited = arguments(
            5,
            &[("x-queue-type", kind), ("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", "dead")],
        );
        declare(&mut node, client, "jobs", &limited);
        node.select_confirms(client);
        assert_eq!(publish(&mut node, client, "jobs", 0..3), [true; 3]);
        let jobs = found(&node, "jobs");
        let mut producer = Producer(9, 0);
        producer.transact(&node, &jobs, 20, Marker::Abort);
        assert_eq!((passively(&mut node, client, "jobs"), passively(&mut node, client, "dead")), (3, 0), "{kind}");
        producer.transact(&node, &jobs, 1, Marker::Commit);
        assert_eq!(publish(&mut node, client, "jobs", 3..4), [true]);
        assert_eq!(passively(&mut node, client, "jobs"), 5);
        let tally = node.broker.tally(&jobs);
        assert_eq!(tally.published, 5, "{kind}: markers and aborted records were not published");

        let mut node = node.restart();
        let client = node.open();
        assert_eq!(
            (passively(&mut node, client, "jobs"), passively(&mut node, client, "dead")),
            (5, 0),
            "{kind}, after a restart"
        );
        node.select_confirms(client);
        // One too many now: the oldest goes.
        assert_eq!(publish(&mut node, client, "jobs", 4..5), [true]);
        // It is read from the disk for that.
        while passively(&mut node, client, "dead") == 0 {
            std::thread::yield_now();
        }
        assert_eq!(drain(&mut node, client, "jobs"), ["1", "2", "Commit 0", "3", "4"], "{kind}");
        assert_eq!(drain(&mut node, client, "dead"), ["0"], "{kind}");
        node.stop();
    }
}

#[test]
fn a_queue_that_refuses_counts_messages_only() {
    let mut node = Node::start();
    let client = node.open();
    declare(&mut node, client, "jobs", &arguments(4, &[("x-overflow", "reject-publish")]));
    node.select_confirms(client);
    assert_eq!(publish(&mut node, client, "jobs", 0..2), [true; 2]);
    Producer(9, 0).transact(&node, &found(&node, "jobs"), 1000, Marker::Abort);
    assert_eq!(publish(&mut node, client, "jobs", 2..6), [true, true, false, false]);
    let mut node = node.restart();
    let client = node.open();
    node.select_confirms(client);
    assert_eq!(passively(&mut node, client, "jobs"), 4);
    assert_eq!(publish(&mut node, client, "jobs", 6..7), [false], "it is full, also after a restart");
    assert_eq!(node.get(client, "jobs", true).body, b"0");
    assert_eq!(publish(&mut node, client, "jobs", 7..9), [true, false]);
    assert_eq!(
        node.ask(client, 1, &queue::Purge { queue: short("jobs"), no_wait: false }),
        "Queue(PurgeOk(PurgeOk { message_count: 4 }))"
    );
    node.stop();
}

#[test]
fn a_queue_that_is_bounded_by_bytes_counts_those_of_messages_only() {
    let mut node = Node::start();
    let client = node.open();
    let bytes = |overflow: &'static str| {
        Table::build(|fields| {
            fields.put(short("x-max-length-bytes"), 1000);
            fields.put(short("x-overflow"), overflow);
        })
    };
    let names = ["refuses", "drops"];
    declare(&mut node, client, names[0], &bytes("reject-publish"));
    declare(&mut node, client, names[1], &bytes("drop-head"));
    node.select_confirms(client);
    for name in names {
        node.publish(client, "", name, &[1; 100]);
        assert!(node.next(client).method.starts_with("Basic(Ack("));
        let (queue, mut producer) = (found(&node, name), Producer(9, 0));
        // More than is read at once.
        let large = "x".repeat(1000);
        (0..10).for_each(|_| producer.begin(&node, &queue, 50, &large));
        producer.end(&node, &queue, Marker::Abort);
    }
    let fill = |node: &mut Node, client, name| {
        (0..).find(|_| {
            node.publish(client, "", name, &[2; 100]);
            !node.next(client).method.starts_with("Basic(Ack(") || passively(node, client, name) == 11
        })
    };
    assert_eq!(fill(&mut node, client, names[0]), Some(9), "and one that was there before");
    (0..12).for_each(|_| {
        node.publish(client, "", names[1], &[2; 100]);
        assert!(node.next(client).method.starts_with("Basic(Ack("));
    });
    assert_eq!((passively(&mut node, client, names[0]), passively(&mut node, client, names[1])), (10, 10));
    let mut node = node.restart();
    let client = node.open();
    node.select_confirms(client);
    assert_eq!(fill(&mut node, client, names[0]), Some(0), "it is full, also after a restart");
    assert_eq!(node.get(client, names[0], true).body, [1; 100]);
    while fill(&mut node, client, names[0]) == Some(0) {
        std::thread::yield_now();
    }
    assert_eq!(passively(&mut node, client, names[0]), 10);
    node.stop();
}

#[test]
fn a_policy_that_comes_later_drops_no_message_for_what_was_aborted() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "jobs");
    node.select_confirms(client);
    let jobs = found(&node, "jobs");
    let mut producer = Producer(9, 0);
    for number in 0..5 {
        assert_eq!(publish(&mut node, client, "jobs", number..number + 1), [true]);
        producer.transact(&node, &jobs, 200, Marker::Abort);
    }
    let wish = broker::PolicyWish {
        pattern: serde_json::json!("^jobs$"),
        definition: serde_json::json!({"max-length": 500}),
        priority: None,
        apply_to: None,
    };
    let vhost = node.broker.vhosts().get("/").expect("it is always there");
    node.broker.put_policy(&vhost, broker::PolicyScope::User, "short", &wish).expect("a policy");
    assert_eq!(passively(&mut node, client, "jobs"), 5);
    assert_eq!(drain(&mut node, client, "jobs"), ["0", "1", "2", "3", "4"]);
    node.stop();
}

#[test]
fn streams_and_topics_that_become_queues_count_messages() {
    let mut node = Node::start();
    let client = node.open();
    declare(&mut node, client, "st", &Table::build(|fields| fields.put(short("x-queue-type"), "stream")));
    let mut producer = Producer(9, 0);
    producer.transact(&node, &found(&node, "st"), 2, Marker::Commit);
    producer.transact(&node, &found(&node, "st"), 1000, Marker::Abort);
    assert_eq!(passively(&mut node, client, "st"), 2);
    assert_eq!(node.broker.tally(&found(&node, "st")).published, 2);

    // A topic that has records before anybody declares a queue over it.
    let _ = topic(&node);
    declare(&mut node, client, "t", &Table::build(|_| ()));
    let first = found(&node, "t");
    producer = Producer(10, 0);
    producer.transact(&node, &first, 3, Marker::Commit);
    producer.transact(&node, &first, 1000, Marker::Abort);
    assert_eq!(
        node.ask(client, 1, &queue::Delete { queue: short("t"), ..queue::Delete::default() }),
        "Queue(DeleteOk(DeleteOk { message_count: 3 }))"
    );
    drop(first);
    assert_eq!(declare(&mut node, client, "t", &arguments(5, &[])), 3);
    let mut node = node.restart();
    let client = node.open();
    assert_eq!((passively(&mut node, client, "st"), passively(&mut node, client, "t")), (2, 3));
    assert_eq!(drain(&mut node, client, "t"), ["Commit 0", "Commit 1", "Commit 2"]);
    node.stop();
}

/// Threads of the broker that read history.
const READERS: usize = 2;

/// Work for all of them that does not end before this is dropped; what is wanted of them later comes behind it.
struct Held {
    came: Arc<AtomicUsize>,
    _open: Sender<()>,
}

impl Held {
    fn put(node: &Node) -> Self {
        let (open, closed) = channel::<()>();
        let (came, closed) = (Arc::<AtomicUsize>::default(), Arc::new(Mutex::new(closed)));
        for _ in 0..READERS {
            let (came, closed) = (Arc::clone(&came), Arc::clone(&closed));
            let work = move || {
                came.fetch_add(1, Ordering::SeqCst);
                // Nothing is ever sent.
                closed.lock().recv().expect_err("it is dropped");
            };
            assert!(node.broker.read_history(
                broker::NOBODY,
                broker::JobOwner::BROKER,
                Box::new(move |_| {
                    work();
                    Box::new(())
                })
            ));
        }
        Self { came, _open: open }
    }
}

/// The disk is searched for what is stable after the first of two transactions when the second one is aborted, too.
#[test]
fn who_waits_for_counts_hears_of_all_that_was_stable_when_it_was_asked() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "jobs");
    node.select_confirms(client);
    assert_eq!(publish(&mut node, client, "jobs", 0..1), [true]);
    let mut producers = [Producer(9, 0), Producer(10, 0)];
    let to = broker::ReplyTo { shard: ShardId(0), connection: ConnectionId(1000), token: 77 };
    for producer in &mut producers {
        // Otherwise a start would abort it.
        assert!(
            node.broker.init_transactions(&format!("id {}", producer.0), 60_000, None, Some(producer.0), to).is_ok()
        );
        producer.begin(&node, &found(&node, "jobs"), 7, "open");
    }
    node.wait_until("the ids are known", |node| node.others == [77, 77]);
    // After a start none of it is in memory.
    let mut node = node.restart();
    let jobs = found(&node, "jobs");
    let before = Held::put(&node);
    producers[0].end(&node, &jobs, Marker::Abort);
    node.broker.counts(&jobs);
    let behind = Held::put(&node);
    producers[1].end(&node, &jobs, Marker::Abort);
    assert_eq!((jobs.log().last_stable(), jobs.log().end()), (Offset(17), Offset(17)));
    assert!(node.broker.await_search(&jobs, to), "it is not known yet");
    drop(before);
    // What was wanted first is searched by now, and no more.
    node.wait_until("the threads that read come to what holds them", |_| behind.came.load(Ordering::SeqCst) == READERS);
    node.pump();
    if !node.others.is_empty() {
        assert_eq!(node.broker.counts(&jobs).ready, 1, "it is known when it is said to be");
    }
    drop(behind);
    node.wait_until("it is searched", |node| node.others == [77]);
    assert_eq!(node.broker.counts(&jobs).ready, 1);
    node.stop();
}

/// Who asks by HTTP whether a queue is empty waits on a thread of its own.
#[test]
fn a_thread_waits_until_counts_are_known() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "jobs");
    let to = broker::ReplyTo { shard: ShardId(0), connection: ConnectionId(1000), token: 77 };
    assert!(node.broker.init_transactions("id", 60_000, None, Some(9), to).is_ok());
    node.wait_until("the id is known", |node| node.others == [77]);
    let mut producer = Producer(9, 0);
    producer.begin(&node, &found(&node, "jobs"), 7, "open");
    // After a start none of it is in memory, and who reads it has other things to do.
    let node = node.restart();
    let jobs = found(&node, "jobs");
    let held = Held::put(&node);
    producer.end(&node, &jobs, Marker::Abort);
    assert!(!node.broker.wait_for_counts(&jobs, Duration::from_millis(50)), "they are not known");
    assert!(node.broker.delete_queue(&jobs, false, true).is_err(), "by what is known it has messages");
    let (broker, waited) = (Arc::clone(&node.broker), Arc::clone(&jobs));
    let waiter = std::thread::spawn(move || {
        let known = broker.wait_for_counts(&waited, Duration::from_secs(60));
        (known, broker.counts(&waited).ready)
    });
    drop(held);
    assert_eq!(waiter.join().expect("no panic"), (true, 0));
    assert!(node.broker.wait_for_counts(&jobs, Duration::ZERO), "nobody waits for what is known");
    assert_eq!(node.broker.delete_queue(&jobs, false, true).expect("it is empty"), 0);
    node.stop();
}

#[test]
fn what_is_deleted_from_its_topic_is_gone_from_a_queue() {
    let mut node = Node::start();
    let client = node.open();
    let log = topic(&node);
    assert_eq!(declare(&mut node, client, "t", &arguments(4, &[("x-overflow", "reject-publish")])), 0);
    node.select_confirms(client);
    assert_eq!(publish(&mut node, client, "t", 0..5), [true, true, true, true, false]);
    assert_eq!(
        node.ask(client, 1, &basic::Qos { prefetch_size: 0, prefetch_count: 2, global: false }),
        "Basic(QosOk(QosOk))"
    );
    node.consume(client, "t", "tag", false);
    assert_eq!([node.next(client).body, node.next(client).body], [b"0", b"1"]);
    assert_eq!(passively(&mut node, client, "t"), 2);

    // All but the last one are deleted, of which the consumer has two: it gets that one.
    node.broker.trim(&log, Offset(3)).expect("the journal takes it");
    assert_eq!(node.next(client).body, b"3");
    assert_eq!(passively(&mut node, client, "t"), 0);
    assert_eq!(node.broker.counts(&found(&node, "t")).unacknowledged, 1);
    // What it says of those that are gone is no error, and no credit either.
    node.send(client, 1, &basic::Ack { delivery_tag: 1, multiple: false });
    node.send(client, 1, &basic::Nack { delivery_tag: 2, multiple: false, requeue: true });
    assert_eq!(publish(&mut node, client, "t", 5..6), [true]);
    assert_eq!(node.next(client).body, b"5");
    assert_eq!(publish(&mut node, client, "t", 6..7), [true]);
    assert_eq!(passively(&mut node, client, "t"), 1, "it has two that it has not acknowledged");
    node.send(client, 1, &basic::Ack { delivery_tag: 0, multiple: true });
    assert_eq!(node.next(client).body, b"6");
    node.stop();
}

#[test]
fn a_full_queue_takes_messages_again_when_its_topic_was_emptied() {
    let mut node = Node::start();
    let client = node.open();
    let log = topic(&node);
    for kind in ["classic", "quorum"] {
        declare(&mut node, client, "t", &arguments(2, &[("x-overflow", "reject-publish"), ("x-queue-type", kind)]));
        if kind == "classic" {
            node.select_confirms(client);
        }
        while publish(&mut node, client, "t", 0..1) == [true] {}
        node.broker.trim(&log, log.end()).expect("the journal takes it");
        assert_eq!(publish(&mut node, client, "t", 5..6), [true], "{kind}");
        assert_eq!(passively(&mut node, client, "t"), 1, "{kind}");
        assert_eq!(
            node.ask(client, 1, &queue::Delete { queue: short("t"), ..queue::Delete::default() }),
            "Queue(DeleteOk(DeleteOk { message_count: 1 }))"
        );
        node.broker.trim(&log, log.end()).expect("the journal takes it");
    }
    node.stop();
}

/// What was acknowledged stays on the disk until its segment is looked at: a queue's size is that of what it has.
#[test]
fn a_queue_is_as_large_as_what_is_left_in_it() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    for _ in 0..30 {
        node.publish(client, "", "q", &[0; 100_000]);
        assert_eq!(node.get(client, "q", true).body.len(), 100_000);
    }
    let (queue, _) = node.subscription("q");
    node.wait_until("it is trimmed", |_| queue.log().start().0 == 30);
    assert_eq!(node.broker.bytes_of_messages(&queue, 0), 0);
    node.publish(client, "", "q", b"x");
    node.wait_until("it has come", |node| node.broker.counts(&queue).ready == 1);
    let bytes = node.broker.bytes_of_messages(&queue, 1);
    assert!((1..1000).contains(&bytes), "a message of a byte is {bytes} bytes");
    node.stop();
}
