//! Share groups: records are with one member at a time, what was accepted never comes again, what was not comes back.

use std::path::Path;
use std::time::Duration;

use kafka_wire::share_acknowledge::{AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch as Acknowledgement, ShareAcknowledgeRequest, ShareAcknowledgeResponse};
use kafka_wire::share_fetch::{AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse};
use kafka_wire::{ErrorCode, Records};

use crate::node::{Node, batch, flexible};

const SHARE_FETCH: (i16, i16) = (78, 2);
const SHARE_ACKNOWLEDGE: (i16, i16) = (79, 2);
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;

/// A member with a connection of its own.
struct Worker {
    client: usize,
    member: &'static str,
    topic: uuid::Uuid,
    epoch: i32,
}

/// First and last offset, and how often it was delivered.
type Acquired = Vec<(i64, i64, i16)>;

impl Worker {
    fn new(node: &mut Node, member: &'static str) -> Self {
        Self { client: node.connect(), member, topic: node.topic_id("t"), epoch: 0 }
    }

    fn send(&mut self, node: &mut Node, max_wait_ms: i32, acknowledge: &[(i64, i64, i8)]) {
        let batches = acknowledge.iter().map(|(first, last, kind)| AcknowledgementBatch {
            first_offset: *first,
            last_offset: *last,
            acknowledge_types: vec![*kind],
            ..AcknowledgementBatch::default()
        });
        let partition = FetchPartition { partition_index: 0, acknowledgement_batches: batches.collect(), ..FetchPartition::default() };
        let topic = FetchTopic { topic_id: self.topic, partitions: vec![partition], ..FetchTopic::default() };
        let request = ShareFetchRequest {
            group_id: Some("workers".into()),
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
        let Some(partition) = response.responses.first().map(|topic| &topic.partitions[0]) else { return (0, 0, Vec::new(), 0) };
        let acquired = partition.acquired_records.iter().map(|run| (run.first_offset, run.last_offset, run.delivery_count));
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
        let batch = Acknowledgement { first_offset, last_offset, acknowledge_types: vec![kind], ..Acknowledgement::default() };
        let partition = AcknowledgePartition { partition_index: 0, acknowledgement_batches: vec![batch], ..AcknowledgePartition::default() };
        let topic = AcknowledgeTopic { topic_id: self.topic, partitions: vec![partition], ..AcknowledgeTopic::default() };
        let request = ShareAcknowledgeRequest {
            group_id: Some("workers".into()),
            member_id: Some(self.member.into()),
            share_session_epoch: self.epoch,
            topics: vec![topic],
            ..ShareAcknowledgeRequest::default()
        };
        self.epoch += 1;
        node.send(self.client, SHARE_ACKNOWLEDGE, 0, |writer| request.encode(writer, SHARE_ACKNOWLEDGE.1)).expect("taken");
        let (_, body) = node.answer(self.client);
        let response = ShareAcknowledgeResponse::decode(&mut flexible(SHARE_ACKNOWLEDGE, body), SHARE_ACKNOWLEDGE.1).expect("an answer");
        assert_eq!(response.error_code, 0);
        response.responses[0].partitions[0].error_code
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
