//! Share groups: records are with one member at a time, what was accepted never comes again, what was not comes back.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{
    Acl, AclOperation, AclPattern, AclPermission, AclResource, Caller, Cause, GroupChange, PasswordWish, Permissions,
    QueueDeclaration, UserWish,
};
use kafka_wire::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch as Acknowledgement, ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
};
use kafka_wire::share_fetch::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse,
};
use kafka_wire::{ErrorCode, Records};

use record::{BatchBuilder, Batches};
use routing::{Arguments, Name};
use types::Durability;

use crate::node::{Node, batch, flexible, wants};

const SHARE_FETCH: (i16, i16) = (78, 2);
const SHARE_ACKNOWLEDGE: (i16, i16) = (79, 2);
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;
/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(120);

/// A member with a connection of its own.
struct Worker {
    client: usize,
    member: &'static str,
    group: &'static str,
    topic: uuid::Uuid,
    epoch: i32,
}

/// First and last offset, and how often it was delivered.
type Acquired = Vec<(i64, i64, i16)>;

impl Worker {
    fn new(node: &mut Node, member: &'static str) -> Self {
        Self { client: node.connect(), member, group: "workers", topic: node.topic_id("t"), epoch: 0 }
    }

    fn send(&mut self, node: &mut Node, max_wait_ms: i32, acknowledge: &[(i64, i64, i8)]) {
        let batches = acknowledge.iter().map(|(first, last, kind)| AcknowledgementBatch {
            first_offset: *first,
            last_offset: *last,
            acknowledge_types: vec![*kind],
            ..AcknowledgementBatch::default()
        });
        let partition = FetchPartition {
            partition_index: 0,
            acknowledgement_batches: batches.collect(),
            ..FetchPartition::default()
        };
        let topic = FetchTopic { topic_id: self.topic, partitions: vec![partition], ..FetchTopic::default() };
        let request = ShareFetchRequest {
            group_id: Some(self.group.into()),
            member_id: Some(self.member.into()),
            share_session_epoch: self.epoch,
            max_wait_ms,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 100,
            batch_size: 100,
            topics: vec![topic],
            ..ShareFetchRequest::default()
        };
        self.epoch += 1;
        node.send(self.client, SHARE_FETCH, 0, |writer| request.encode(writer, SHARE_FETCH.1)).expect("taken");
    }

    /// What an answer gives: error codes of the fetch and of the acknowledgement, what was acquired, bytes of records.
    fn take(body: bytes::Bytes) -> (i16, i16, Acquired, usize) {
        let response = ShareFetchResponse::decode(&mut flexible(SHARE_FETCH, body), SHARE_FETCH.1).expect("an answer");
        assert_eq!(response.error_code, 0);
        let Some(partition) = response.responses.first().map(|topic| &topic.partitions[0]) else {
            return (0, 0, Vec::new(), 0);
        };
        let acquired =
            partition.acquired_records.iter().map(|run| (run.first_offset, run.last_offset, run.delivery_count));
        let bytes = partition.records.as_ref().map_or(0, Records::len);
        (partition.error_code, partition.acknowledge_error_code, acquired.collect(), bytes)
    }

    fn fetch(&mut self, node: &mut Node, acknowledge: &[(i64, i64, i8)]) -> Acquired {
        self.send(node, 0, acknowledge);
        let (_, body) = node.answer(self.client);
        let (code, acknowledge_code, acquired, bytes) = Self::take(body);
        assert_eq!((code, acknowledge_code, bytes > 0), (0, 0, !acquired.is_empty()));
        acquired
    }

    fn say(&mut self, node: &mut Node, first_offset: i64, last_offset: i64, kind: i8) -> i16 {
        self.say_all(node, &[(first_offset, last_offset, kind)])[0]
    }

    /// Names the partition once for each; the codes of the answer.
    fn say_all(&mut self, node: &mut Node, said: &[(i64, i64, i8)]) -> Vec<i16> {
        let one = |&(first_offset, last_offset, kind): &(i64, i64, i8)| {
            let batch = Acknowledgement {
                first_offset,
                last_offset,
                acknowledge_types: vec![kind],
                ..Acknowledgement::default()
            };
            AcknowledgePartition {
                partition_index: 0,
                acknowledgement_batches: vec![batch],
                ..AcknowledgePartition::default()
            }
        };
        let topic = AcknowledgeTopic {
            topic_id: self.topic,
            partitions: said.iter().map(one).collect(),
            ..AcknowledgeTopic::default()
        };
        let request = ShareAcknowledgeRequest {
            group_id: Some(self.group.into()),
            member_id: Some(self.member.into()),
            share_session_epoch: self.epoch,
            topics: vec![topic],
            ..ShareAcknowledgeRequest::default()
        };
        self.epoch += 1;
        node.send(self.client, SHARE_ACKNOWLEDGE, 0, |writer| request.encode(writer, SHARE_ACKNOWLEDGE.1))
            .expect("taken");
        let (_, body) = node.answer(self.client);
        let response = ShareAcknowledgeResponse::decode(&mut flexible(SHARE_ACKNOWLEDGE, body), SHARE_ACKNOWLEDGE.1)
            .expect("an answer");
        assert_eq!(response.error_code, 0);
        response.responses[0].partitions.iter().map(|one| one.error_code).collect()
    }
}

fn started(folder: &Path, counts: &[usize]) -> Node {
    let mut node = Node::start(folder, &[]);
    let producer = node.connect();
    node.create_topic(producer, "t", 1);
    for count in counts {
        assert_eq!(node.produce(producer, "t", 0, batch(*count)).0, 0);
    }
    node.make_share_group("workers", &[("share.auto.offset.reset", "earliest")]);
    node
}

#[test]
fn what_was_accepted_is_gone_after_a_restart_and_the_rest_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[4, 6]);
    let mut one = Worker::new(&mut node, "one");
    assert_eq!(one.fetch(&mut node, &[]), [(0, 9, 1)]);
    assert_eq!(one.say(&mut node, 0, 2, ACCEPT), 0);
    assert_eq!(one.say(&mut node, 5, 6, ACCEPT), 0);
    assert_eq!(one.say(&mut node, 7, 7, RELEASE), 0);
    assert_eq!(one.say(&mut node, 8, 8, REJECT), 0);
    node.stop();
    // Nothing is in memory any more: history is read.
    let mut node = Node::start(folder.path(), &[]);
    let mut two = Worker::new(&mut node, "two");
    assert_eq!(two.fetch(&mut node, &[]), [(3, 4, 1), (7, 7, 2), (9, 9, 1)]);
    node.stop();
}

/// As in Kafka, where the partitions of a request are keys.
#[test]
fn of_a_partition_that_is_named_again_and_again_the_last_word_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[4]);
    let mut one = Worker::new(&mut node, "one");
    assert_eq!(one.fetch(&mut node, &[]), [(0, 3, 1)]);
    // The first ones could not be done.
    let codes = one.say_all(&mut node, &[(2, 1, ACCEPT), (0, 90, ACCEPT), (0, 0, REJECT), (0, 1, RELEASE)]);
    assert_eq!(codes, [0], "it is answered once");
    assert_eq!(one.fetch(&mut node, &[]), [(0, 1, 2)]);
    node.stop();
}

#[test]
fn what_takes_a_filter_long_is_given_after_some_turns() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[]);
    let producer = node.connect();
    assert_eq!(node.produce(producer, "t", 0, crate::filters::numbered(500)).0, 0);
    node.configure_group(
        "workers",
        &[("share.auto.offset.reset", "earliest"), ("mainstem.filter", &crate::filters::long_filter())],
    );
    let mut one = Worker::new(&mut node, "one");
    let given = (0..100).find_map(|_| Some(one.fetch(&mut node, &[])).filter(|given| !given.is_empty()));
    let expected: Vec<(i64, i64, i16)> =
        (0..500).filter(|offset| offset % 10 == 3).map(|offset| (offset, offset, 1)).collect();
    assert_eq!(given.expect("it is given some day"), expected);
    node.stop();
}

#[test]
fn what_a_filter_does_not_want_is_done_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[]);
    let producer = node.connect();
    for _ in 0..3 {
        assert_eq!(node.produce(producer, "t", 0, keyed(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"])).0, 0);
    }
    let from_the_start = ("share.auto.offset.reset", "earliest");
    node.configure_group("workers", &[from_the_start, ("mainstem.filter", "key IN ('3', '4', '9')")]);
    let mut one = Worker::new(&mut node, "one");
    assert_eq!(one.fetch(&mut node, &[]), [(3, 4, 1), (9, 9, 1), (13, 14, 1), (19, 19, 1), (23, 24, 1), (29, 29, 1)]);
    assert_eq!(one.say(&mut node, 3, 4, ACCEPT), 0);
    assert_eq!(one.say(&mut node, 9, 9, RELEASE), 0);
    // Nothing of the next one is wanted; what came back is given again.
    node.configure_group(
        "workers",
        &[from_the_start, ("mainstem.filter", "key = '9' AND timestamp < 9 OR key = '8' OR key = '9'")],
    );
    assert_eq!(node.produce(producer, "t", 0, batch(4)).0, 0);
    assert_eq!(one.fetch(&mut node, &[]), [(9, 9, 2)]);
    for (first, last) in [(9, 9), (13, 14), (19, 19), (23, 24), (29, 29)] {
        assert_eq!(one.say(&mut node, first, last, ACCEPT), 0);
    }
    assert_eq!(one.fetch(&mut node, &[]), []);
    node.configure_group("workers", &[from_the_start]);
    node.stop();
    // All of it was done, also what nobody was given.
    let mut node = Node::start(folder.path(), &[]);
    let mut two = Worker::new(&mut node, "two");
    assert_eq!(two.fetch(&mut node, &[]), []);
    node.stop();
}

/// The group reads from the beginning, and somebody has named the topic for its dead letters.
fn name_letters(node: &Node, group: &str, user: &str, topic: &str) {
    let (here, broker) = ("127.0.0.1".parse().expect("an address"), node.broker());
    let set = [("share.auto.offset.reset", "earliest"), ("mainstem.share.dead.letter.topic", topic)];
    let overrides = set.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let change = GroupChange { group: group.to_owned(), overrides, set: Vec::new() };
    let outcome = broker.set_group_configs(vec![change], Some(&broker.security().setter(Some(user), here))).pop();
    outcome.expect("an outcome").expect("set");
}

/// A group of its own for each of them: what is written for the second says that the first was looked at before.
#[test]
fn dead_letters_are_written_with_the_rights_of_who_has_named_their_topic_as_of_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = [("mainstem.password.iterations", "1000"), ("auto.create.topics.enable", "true")];
    let mut node = Node::start(folder.path(), &settings);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    assert_eq!(node.produce(client, "t", 0, batch(2)).0, 0);
    for (name, permission) in [("eve", ""), ("bob", ".*")] {
        let wish = UserWish { name: name.to_owned(), password: PasswordWish::Remove, tags: None, limits: None };
        node.broker().put_user(wish).expect("added");
        node.broker()
            .set_permissions("/", name, Permissions::new("", permission, "").expect("expressions"))
            .expect("set");
    }
    let broker = Arc::clone(node.broker());
    // Both may write what is no queue, or is not there.
    name_letters(&node, "of-eve", "eve", "pay");
    name_letters(&node, "of-bob", "bob", "pay");
    // Now it is a queue, and in a virtual host in which one of them has rights.
    let vhost = broker.vhosts().get("/").expect("it is always there");
    let wish = QueueDeclaration {
        name: Name::new(b"pay").expect("a short name"),
        durable: true,
        owner: None,
        auto_delete: false,
        arguments: Arguments::default(),
    };
    broker.declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
    for group in ["of-eve", "of-bob"] {
        node.broker().make_share_group(group).expect("a name that is free");
        let mut worker = Worker { group, ..Worker::new(&mut node, "one") };
        assert_eq!(worker.fetch(&mut node, &[]), [(0, 1, 1)]);
        assert_eq!(worker.say(&mut node, 0, 0, REJECT), 0);
    }
    let queue = vhost.queue(b"pay").expect("it is there");
    let until = Instant::now() + PATIENCE;
    while broker.counts(&queue).ready == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(broker.counts(&queue).ready, 1, "one of them may write there");
    assert_eq!(broker.topic("pay").expect("a topic").logs()[0].high_watermark().0, 1);
    node.stop();
}

/// As above: the second letter says that the first group's was looked at.
#[test]
fn dead_letters_are_made_of_what_may_be_read_by_who_has_named_their_topic() {
    let folder = tempfile::tempdir().expect("a folder");
    let authorizer = ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
    let mut node = Node::start(folder.path(), &[authorizer, ("super.users", "User:ANONYMOUS")]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    node.create_topic(client, "dead", 1);
    assert_eq!(node.produce(client, "t", 0, batch(2)).0, 0);
    let entry = |user: &str, operation, topic: &str| Acl {
        resource: AclResource::Topic,
        name: topic.to_owned(),
        pattern: AclPattern::Literal,
        principal: format!("User:{user}"),
        host: "*".to_owned(),
        operation,
        permission: AclPermission::Allow,
    };
    let entries = vec![
        entry("eve", AclOperation::Write, "dead"),
        entry("bob", AclOperation::Write, "dead"),
        entry("bob", AclOperation::Read, "t"),
    ];
    assert_eq!(node.broker().create_acls(entries), [Ok(()), Ok(()), Ok(())]);
    for (group, user) in [("of-eve", "eve"), ("of-bob", "bob")] {
        name_letters(&node, group, user, "dead");
        node.broker().make_share_group(group).expect("a name that is free");
        let mut worker = Worker { group, ..Worker::new(&mut node, "one") };
        assert_eq!(worker.fetch(&mut node, &[]), [(0, 1, 1)]);
        assert_eq!(worker.say(&mut node, 0, 0, REJECT), 0);
    }
    let log = Arc::clone(&node.broker().topic("dead").expect("a topic").logs()[0]);
    let until = Instant::now() + PATIENCE;
    while log.high_watermark().0 == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(log.high_watermark().0, 1, "one of them may read what is dead");
    node.stop();
}

#[test]
fn a_group_that_is_far_behind_is_slowed_down_all_members_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[400, 400, 400, 400]);
    node.configure_group(
        "workers",
        &[("share.auto.offset.reset", "earliest"), ("mainstem.laggard.rules", "lag>1000 records 60KB/min")],
    );
    let (mut one, mut two) = (Worker::new(&mut node, "one"), Worker::new(&mut node, "two"));
    let got = one.fetch(&mut node, &[]);
    assert!(!got.is_empty() && !node.session(one.client).wants_read());
    assert_eq!(node.session(one.client).causes(), Cause::Laggard.bit());
    // What one member got is to be paid for before the other is read from again.
    assert!(node.session(two.client).wants_read());
    two.fetch(&mut node, &[]);
    assert!(!node.session(two.client).wants_read());
    node.advance(Duration::from_secs(120));
    assert!(node.session(one.client).wants_read() && node.session(two.client).wants_read());
    // It is not so far behind as this rule says.
    node.configure_group(
        "workers",
        &[("share.auto.offset.reset", "earliest"), ("mainstem.laggard.rules", "lag>10000 records 60KB/min")],
    );
    assert!(!one.fetch(&mut node, &[]).is_empty() && node.session(one.client).wants_read());
    node.stop();
}

/// Accepts record by record; whether each answer came with a flush.
fn accepted_with_a_flush(durability: Durability) -> Vec<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let producer = node.connect();
    node.create_topic(producer, "t", 1);
    node.set_durability("t", durability);
    assert_eq!(node.produce(producer, "t", 0, batch(20)).0, 0);
    node.make_share_group("workers", &[("share.auto.offset.reset", "earliest")]);
    let mut one = Worker::new(&mut node, "one");
    assert_eq!(one.fetch(&mut node, &[]), [(0, 19, 1)]);
    let accept = |offset| {
        let before = node.durable();
        assert_eq!(one.say(&mut node, offset, offset, ACCEPT), 0);
        node.durable() > before
    };
    let flushed = (0..10).map(accept).collect();
    node.stop();
    let mut node = Node::start(folder.path(), &[]);
    let mut two = Worker::new(&mut node, "two");
    assert_eq!(two.fetch(&mut node, &[]), [(10, 19, 1)]);
    node.stop();
    flushed
}

#[test]
fn an_acknowledgement_is_as_durable_as_the_records() {
    assert_eq!(accepted_with_a_flush(Durability::Fsync), [true; 10]);
    // Once a second all that is written is flushed.
    let flushes = accepted_with_a_flush(Durability::Memory).into_iter().filter(|flushed| *flushed).count();
    assert!(flushes < 5, "{flushes} of 10 answers of class memory came with a flush");
}

#[test]
fn history_is_given_piece_by_piece_and_what_follows_is_there_already() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = started(folder.path(), &[60, 60, 60]);
    node.stop();
    let mut node = Node::start(folder.path(), &[]);
    let (mut one, mut two) = (Worker::new(&mut node, "one"), Worker::new(&mut node, "two"));
    // All three batches are read at once, and two of them are enough for the first.
    assert_eq!(one.fetch(&mut node, &[]), [(0, 119, 1)]);
    two.send(&mut node, 0, &[]);
    let (_, body) = node.poll(two.client).expect("it is in memory");
    assert_eq!(Worker::take(body).2, [(120, 179, 1)]);
    // What comes back is read again.
    assert_eq!(one.fetch(&mut node, &[(0, 59, RELEASE), (60, 119, ACCEPT)]), [(0, 59, 2)]);
    assert_eq!(two.fetch(&mut node, &[(120, 179, ACCEPT)]), []);
    node.stop();
}

#[test]
fn a_connection_that_ends_gives_its_records_to_who_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[3]);
    let (mut one, mut two) = (Worker::new(&mut node, "one"), Worker::new(&mut node, "two"));
    assert_eq!(one.fetch(&mut node, &[]), [(0, 2, 1)]);
    two.send(&mut node, 60_000, &[]);
    assert!(node.poll(two.client).is_none(), "all of it is with the other");
    node.close(one.client);
    let (_, body) = node.answer(two.client);
    assert_eq!(Worker::take(body).2, [(0, 2, 2)]);
    node.stop();
}

#[test]
fn who_waits_gets_what_is_released_and_what_is_new() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[3]);
    let producer = node.connect();
    let (mut one, mut two) = (Worker::new(&mut node, "one"), Worker::new(&mut node, "two"));
    assert_eq!(one.fetch(&mut node, &[]), [(0, 2, 1)]);
    two.send(&mut node, 60_000, &[]);
    assert_eq!(one.say(&mut node, 1, 1, RELEASE), 0);
    let (_, body) = node.answer(two.client);
    assert_eq!(Worker::take(body).2, [(1, 1, 2)]);
    two.send(&mut node, 60_000, &[(1, 1, ACCEPT)]);
    assert!(node.poll(two.client).is_none());
    node.produce(producer, "t", 0, batch(2));
    let (_, body) = node.answer(two.client);
    assert_eq!(Worker::take(body).2, [(3, 4, 1)]);
    node.stop();
}

#[test]
fn another_members_records_cannot_be_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[3]);
    let (mut one, mut two) = (Worker::new(&mut node, "one"), Worker::new(&mut node, "two"));
    assert_eq!(one.fetch(&mut node, &[]), [(0, 2, 1)]);
    assert_eq!(two.fetch(&mut node, &[]), []);
    assert_eq!(two.say(&mut node, 0, 0, ACCEPT), ErrorCode::InvalidRecordState.code());
    // All or nothing: the second half is not there.
    assert_eq!(one.say(&mut node, 2, 3, ACCEPT), ErrorCode::InvalidRequest.code());
    assert_eq!(one.say(&mut node, 2, 2, ACCEPT), 0);
    assert_eq!(one.say(&mut node, 1, 2, ACCEPT), ErrorCode::InvalidRecordState.code());
    assert_eq!(one.say(&mut node, 0, 1, ACCEPT), 0);
    node.stop();
}

#[test]
fn a_fetch_without_news_ends_on_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[]);
    let mut one = Worker::new(&mut node, "one");
    one.send(&mut node, 500, &[]);
    assert!(node.poll(one.client).is_none());
    // What it acknowledges is nothing, and was answered at once: now it waits for records.
    assert_eq!(node.timeout(one.client), Some(Duration::from_millis(500)));
    node.advance(Duration::from_millis(500));
    let (_, body) = node.poll(one.client).expect("an empty answer on time");
    assert_eq!(Worker::take(body), (0, 0, Vec::new(), 0));
    node.stop();
}

#[test]
fn what_the_bound_keeps_back_comes_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[60, 60, 60]);
    node.configure_group(
        "workers",
        &[("share.auto.offset.reset", "earliest"), ("share.partition.max.record.locks", "100")],
    );
    let (mut one, mut two) = (Worker::new(&mut node, "one"), Worker::new(&mut node, "two"));
    // The batch in which the bound lies is given whole.
    assert_eq!(one.fetch(&mut node, &[]), [(0, 119, 1)]);
    assert_eq!(two.fetch(&mut node, &[]), []);
    assert_eq!(one.say(&mut node, 0, 19, ACCEPT), 0);
    assert_eq!(two.fetch(&mut node, &[]), []);
    assert_eq!(one.say(&mut node, 20, 49, ACCEPT), 0);
    assert_eq!(two.fetch(&mut node, &[]), [(120, 179, 1)]);
    assert_eq!(one.fetch(&mut node, &[(50, 119, ACCEPT)]), []);
    node.stop();
}

/// One batch of records with these keys.
fn keyed(keys: &[&str]) -> bytes::Bytes {
    let add = |batch: BatchBuilder, key: &&str| batch.record(1_000, Some(key.as_bytes()), Some(b"a value"));
    keys.iter().fold(BatchBuilder::default(), add).build()
}

#[test]
fn records_of_a_key_are_with_one_member_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[]);
    let producer = node.connect();
    node.configure_group("workers", &[("share.auto.offset.reset", "earliest"), ("mainstem.share.key.ordered", "true")]);
    node.produce(producer, "t", 0, keyed(&["a", "b"]));
    let (mut one, mut two) = (Worker::new(&mut node, "one"), Worker::new(&mut node, "two"));
    assert_eq!(one.fetch(&mut node, &[]), [(0, 1, 1)]);
    node.produce(producer, "t", 0, keyed(&["a", "c", "b", "c"]));
    assert_eq!(two.fetch(&mut node, &[]), [(3, 3, 1), (5, 5, 1)]);
    assert_eq!(one.fetch(&mut node, &[(0, 0, RELEASE)]), [(0, 0, 2), (2, 2, 1), (4, 4, 1)]);
    // The first of "b" goes back: nobody gets the second before it.
    assert_eq!(one.say(&mut node, 1, 1, RELEASE), 0);
    assert_eq!(two.fetch(&mut node, &[]), []);
    assert_eq!(one.say(&mut node, 4, 4, RELEASE), 0);
    assert_eq!(two.fetch(&mut node, &[]), [(1, 1, 2), (4, 4, 2)]);
    node.stop();
}

#[test]
fn what_nobody_can_do_is_copied_with_where_it_comes_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = started(folder.path(), &[]);
    let producer = node.connect();
    node.create_topic(producer, "dead", 1);
    node.configure_group(
        "workers",
        &[("share.auto.offset.reset", "earliest"), ("mainstem.share.dead.letter.topic", "dead")],
    );
    node.produce(producer, "t", 0, keyed(&["a", "b", "c"]));
    let mut one = Worker::new(&mut node, "one");
    assert_eq!(one.fetch(&mut node, &[]), [(0, 2, 1)]);
    assert_eq!(one.say(&mut node, 1, 1, REJECT), 0);
    let reader = node.connect();
    let mut read = Vec::new();
    for _ in 0..3000 {
        let found = node.fetch(reader, &wants("dead", &[(0, 0)]));
        let records = found.responses[0].partitions[0].records.clone().unwrap_or_default();
        read = records.0.concat();
        if !read.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (at, _) = Batches::new(&read).next().expect("a batch").expect("whole");
    let dead = record::records(&read[at..]).expect("records");
    assert_eq!((dead[0].key.as_deref(), dead[0].value.as_deref()), (Some(&b"b"[..]), Some(&b"a value"[..])));
    let header = |name: &[u8]| {
        dead[0]
            .headers
            .iter()
            .find(|(other, _)| other == name)
            .and_then(|(_, value)| value.clone())
            .expect("it is there")
    };
    let told: Vec<bytes::Bytes> = [
        &b"__dlq.errors.topic"[..],
        b"__dlq.errors.offset",
        b"__dlq.errors.group",
        b"__dlq.errors.delivery.count",
        b"__dlq.errors.message",
    ]
    .into_iter()
    .map(header)
    .collect();
    assert_eq!(told, ["t", "1", "workers", "1", "rejected"]);
    // It never comes back, and the others are as they were.
    assert_eq!(one.say(&mut node, 0, 0, ACCEPT), 0);
    node.stop();
    let mut node = Node::start(folder.path(), &[]);
    let mut two = Worker::new(&mut node, "two");
    assert_eq!(two.fetch(&mut node, &[]), [(2, 2, 1)]);
    node.stop();
}

/// Asks for the first partitions of `t`, and waits for so long.
fn ask_for(node: &mut Node, worker: &mut Worker, count: i32, max_wait_ms: i32) {
    let partitions: Vec<_> =
        (0..count).map(|partition_index| FetchPartition { partition_index, ..FetchPartition::default() }).collect();
    let topic = FetchTopic { topic_id: worker.topic, partitions, ..FetchTopic::default() };
    let request = ShareFetchRequest {
        group_id: Some(worker.group.into()),
        member_id: Some(worker.member.into()),
        share_session_epoch: worker.epoch,
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 1 << 20,
        max_records: 100,
        batch_size: 100,
        topics: if count == 0 { Vec::new() } else { vec![topic] },
        ..ShareFetchRequest::default()
    };
    worker.epoch += 1;
    node.send(worker.client, SHARE_FETCH, 0, |writer| request.encode(writer, SHARE_FETCH.1)).expect("taken");
}

/// The same, and waits for a minute.
fn ask_for_many(node: &mut Node, worker: &mut Worker, count: i32) {
    ask_for(node, worker, count, 60_000);
}

fn response(node: &mut Node, client: usize) -> ShareFetchResponse {
    let (_, body) = node.answer(client);
    ShareFetchResponse::decode(&mut flexible(SHARE_FETCH, body), SHARE_FETCH.1).expect("an answer")
}

/// Runs until the fetch of a client holds memory while it waits.
fn wait_for_room(node: &mut Node, client: usize) {
    let began = Instant::now();
    while node.gateway.long_poll_bytes() == 0 {
        assert!(node.poll(client).is_none() && began.elapsed() < PATIENCE, "it waits");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn without_memory_for_a_fetch_that_waits_it_is_answered_and_its_connection_rests() {
    let folder = tempfile::tempdir().expect("a folder");
    // For answers; half as much for those that wait, which the first is more than.
    let mut node = Node::start_with_answers(folder.path(), 32 << 10);
    let producer = node.connect();
    node.create_topic(producer, "t", 300);
    node.make_share_group("workers", &[("share.auto.offset.reset", "earliest")]);
    let [mut first, mut second, mut few] = ["one", "two", "three"].map(|member| Worker::new(&mut node, member));
    ask_for_many(&mut node, &mut first, 300);
    wait_for_room(&mut node, first.client);
    ask_for_many(&mut node, &mut second, 300);
    let (_, body) = node.answer(second.client);
    let response = ShareFetchResponse::decode(&mut flexible(SHARE_FETCH, body), SHARE_FETCH.1).expect("an answer");
    let acquires = |response: &ShareFetchResponse| {
        response.responses.iter().flat_map(|topic| &topic.partitions).any(|one| !one.acquired_records.is_empty())
    };
    assert_eq!(
        (response.error_code, response.throttle_time_ms, acquires(&response)),
        (0, 500, false),
        "at once, with what there is"
    );
    assert!(!node.session(second.client).wants_read(), "it asks again when it has rested");
    ask_for_many(&mut node, &mut few, 100);
    assert!(node.poll(few.client).is_none(), "few partitions may always wait");
    assert_eq!(node.produce(producer, "t", 200, batch(2)).0, 0);
    let (_, body) = node.answer(first.client);
    let response = ShareFetchResponse::decode(&mut flexible(SHARE_FETCH, body), SHARE_FETCH.1).expect("an answer");
    assert!(acquires(&response) && node.gateway.long_poll_bytes() == 0);
    node.advance(Duration::from_millis(500));
    assert!(node.session(second.client).wants_read());
    ask_for_many(&mut node, &mut second, 300);
    wait_for_room(&mut node, second.client);
    node.stop();
}

#[test]
fn a_session_of_many_partitions_is_gone_through_in_turns() {
    const COUNT: i32 = 20_000;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let producer = node.connect();
    node.create_topic(producer, "t", COUNT + 1);
    node.make_share_group("workers", &[("share.auto.offset.reset", "earliest")]);
    let mut one = Worker::new(&mut node, "one");
    ask_for(&mut node, &mut one, COUNT, 0);
    assert_eq!(response(&mut node, one.client).error_code, 0);
    assert!(node.turns > 0, "it had one turn only");
    // What comes while it waits.
    for partition in [0, COUNT / 2, COUNT - 1] {
        ask_for_many(&mut node, &mut one, 0);
        assert!(node.poll(one.client).is_none(), "there is nothing");
        assert_eq!(node.produce(producer, "t", partition, batch(1)).0, 0);
        let response = response(&mut node, one.client);
        let found: Vec<_> = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|one| (one.partition_index, one.acquired_records.len()))
            .collect();
        assert_eq!(found, [(partition, 1)]);
    }
    // Before it waits it goes through all of them twice: what comes meanwhile is found.
    ask_for_many(&mut node, &mut one, 0);
    assert!(node.session(one.client).goes_on());
    assert_eq!(node.produce(producer, "t", 1, batch(1)).0, 0);
    assert_eq!(response(&mut node, one.client).responses.len(), 1);
    node.stop();
}

#[test]
fn a_session_has_so_many_partitions_at_most() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let producer = node.connect();
    node.create_topic(producer, "t", 1);
    node.make_share_group("workers", &[("share.auto.offset.reset", "earliest")]);
    for (count, code) in [(20_000, 0), (20_001, ErrorCode::ShareSessionLimitReached.code())] {
        let mut one = Worker::new(&mut node, "one");
        ask_for(&mut node, &mut one, count, 0);
        assert_eq!(response(&mut node, one.client).error_code, code, "{count}");
    }
    node.stop();
}

/// Positions of share groups are memory as long as they are there: with so many of them a group gets nothing of other partitions, and is told so.
#[test]
fn there_are_as_many_subscriptions_as_there_is_memory_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let producer = node.connect();
    node.create_topic(producer, "t", 4);
    node.make_share_group("workers", &[("share.auto.offset.reset", "earliest")]);
    node.broker().subscriptions().set_bytes_max(3 * 1024);
    (0..4).for_each(|partition| assert_eq!(node.produce(producer, "t", partition, batch(1)).0, 0));
    let mut one = Worker::new(&mut node, "one");
    ask_for(&mut node, &mut one, 4, 0);
    let response = response(&mut node, one.client);
    let codes: Vec<_> =
        response.responses.iter().flat_map(|topic| &topic.partitions).map(|one| one.error_code).collect();
    let refused = codes.iter().filter(|code| **code == ErrorCode::UnknownServerError.code()).count();
    assert_eq!((refused, codes.len()), (1, 4), "{codes:?}");
    let (bytes, times) = node.broker().subscriptions().memory();
    assert_eq!((bytes, times > 0), (3 * 1024, true));
    node.broker().delete_topic(&node.broker().topic("t").expect("it is there")).expect("deleted");
    assert_eq!(node.broker().subscriptions().memory().0, 0);
    node.stop();
}

/// So many that the threads that unpack look for what it had.
#[test]
fn who_goes_from_a_group_of_many_partitions_leaves_what_it_had() {
    const COUNT: i32 = 2_000;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let producer = node.connect();
    node.create_topic(producer, "t", COUNT);
    node.make_share_group("workers", &[("share.auto.offset.reset", "earliest")]);
    for partition in [0, COUNT - 1] {
        assert_eq!(node.produce(producer, "t", partition, batch(1)).0, 0);
    }
    let mut one = Worker::new(&mut node, "one");
    ask_for(&mut node, &mut one, COUNT, 0);
    let given = response(&mut node, one.client);
    assert_eq!(
        given.responses[0].partitions.iter().filter(|partition| !partition.acquired_records.is_empty()).count(),
        2
    );
    node.close(one.client);
    let (mut two, began) = (Worker::new(&mut node, "two"), Instant::now());
    let mut came = hashbrown::HashSet::new();
    ask_for(&mut node, &mut two, COUNT, 0);
    while came.len() < 2 {
        assert!(began.elapsed() < PATIENCE, "{came:?} came");
        let response = response(&mut node, two.client);
        let given = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions)
            .filter(|partition| !partition.acquired_records.is_empty());
        came.extend(given.map(|partition| partition.partition_index));
        ask_for(&mut node, &mut two, 0, 0);
    }
    node.stop();
}
