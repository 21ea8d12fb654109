//! Requests of many items are not decoded before there is memory for what that takes, and give it back when they have been answered.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kafka_gateway::{CloseReason, RequestRoom};
use kafka_wire::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic,
};
use kafka_wire::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use kafka_wire::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse};
use kafka_wire::elect_leaders::{ElectLeadersRequest, ElectLeadersResponse, TopicPartitions};
use kafka_wire::fetch::{FetchPartition, FetchRequest, FetchTopic};
use kafka_wire::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use kafka_wire::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use kafka_wire::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
};
use kafka_wire::{ErrorCode, Problem};

use crate::memory::peak;
use crate::node::{Node, fetched, flexible};

const FETCH: (i16, i16) = (1, 12);
const METADATA: (i16, i16) = (3, 12);
const OFFSET_COMMIT: (i16, i16) = (8, 9);
const OFFSET_FETCH: (i16, i16) = (9, 8);
const DESCRIBE_GROUPS: (i16, i16) = (15, 5);
const DELETE_TOPICS: (i16, i16) = (20, 6);
const ADD_PARTITIONS_TO_TXN: (i16, i16) = (24, 3);
const ELECT_LEADERS: (i16, i16) = (43, 2);
/// What items may take together that wait for nothing.
const FREE: usize = 1000;
const MANY: usize = 100_000;

/// Memory that is reserved for a request.
#[derive(Default)]
struct Reserved {
    wanted: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
}

impl RequestRoom for Reserved {
    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Gives a client what its request waits for; how much is reserved from now on.
fn give(node: &mut Node, client: usize, wanted: &Arc<AtomicBool>) -> Arc<AtomicUsize> {
    let open = Arc::new(AtomicUsize::new(1));
    let room = Reserved { wanted: Arc::clone(wanted), open: Arc::clone(&open) };
    node.give_room(client, Arc::new(room)).expect("it is served");
    open
}

fn start(folder: &Path) -> (Node, usize) {
    let mut node = Node::start(folder, &[]);
    let client = node.connect();
    node.create_topic(client, "t", 2);
    (node, client)
}

fn name(number: usize) -> kafka_wire::Str {
    format!("n{number}").into()
}

fn describe(count: usize) -> DescribeGroupsRequest {
    DescribeGroupsRequest { groups: (0..count).map(name).collect(), ..Default::default() }
}

fn delete(count: usize) -> DeleteTopicsRequest {
    let topic = |number| DeleteTopicState { name: Some(name(number)), ..DeleteTopicState::default() };
    DeleteTopicsRequest {
        topics: (0..count).map(topic).collect(),
        timeout_ms: 30_000,
        ..DeleteTopicsRequest::default()
    }
}

/// Of partition 0 again and again, with ascending offsets, and of one that is not there.
fn commit(count: usize) -> OffsetCommitRequest {
    let partition = |(partition_index, committed_offset)| OffsetCommitRequestPartition {
        partition_index,
        committed_offset,
        ..Default::default()
    };
    let topic = |offset: usize| OffsetCommitRequestTopic {
        name: "t".into(),
        partitions: vec![partition((0, offset as i64))],
        ..Default::default()
    };
    let mut topics: Vec<_> = (1..=count).map(topic).collect();
    topics.push(OffsetCommitRequestTopic {
        name: "t".into(),
        partitions: vec![partition((7, 1))],
        ..Default::default()
    });
    OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics,
        ..OffsetCommitRequest::default()
    }
}

#[test]
fn few_items_wait_for_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    for count in [1, FREE] {
        let request = describe(count);
        node.send_alone(client, DESCRIBE_GROUPS, 1, |writer| request.encode(writer, DESCRIBE_GROUPS.1)).expect("taken");
        assert!(node.session(client).wants_room().is_none());
        node.answer(client);
    }
    let request = describe(FREE + 1);
    node.send_alone(client, DESCRIBE_GROUPS, 1, |writer| request.encode(writer, DESCRIBE_GROUPS.1)).expect("taken");
    let wanted = node.session(client).wants_room().map(|(bytes, frame)| (bytes, frame.is_empty()));
    assert_eq!(wanted, Some(((FREE + 1) * 512, false)));
    assert!(!node.session(client).wants_read() && !node.session(client).is_idle());
    node.stop();
}

#[test]
fn many_items_take_no_memory_before_there_is_some_and_give_it_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    let (groups, topics) = (describe(MANY), delete(MANY));
    let nobody = Arc::default();
    // One is looked at elsewhere, one is for the controller.
    let groups = node.frame(DESCRIBE_GROUPS, 1, |writer| groups.encode(writer, DESCRIBE_GROUPS.1));
    let topics = node.frame(DELETE_TOPICS, 2, |writer| topics.encode(writer, DELETE_TOPICS.1));
    for (frame, correlation) in [(groups, 1), (topics, 2)] {
        let (outcome, held) = peak(|| node.hand(client, frame));
        outcome.expect("taken");
        assert!(held < 400_000, "{held} bytes");
        assert_eq!(node.session(client).wants_room().map(|(bytes, _)| bytes), Some(MANY * 512));
        assert!(node.poll(client).is_none());
        let open = give(&mut node, client, &nobody);
        assert_eq!(open.load(Ordering::Relaxed), 1, "it is being answered");
        let (told, body) = node.answer(client);
        assert_eq!(told, correlation);
        let answered = match correlation {
            1 => DescribeGroupsResponse::decode(&mut flexible(DESCRIBE_GROUPS, body), DESCRIBE_GROUPS.1)
                .expect("an answer")
                .groups
                .len(),
            _ => DeleteTopicsResponse::decode(&mut flexible(DELETE_TOPICS, body), DELETE_TOPICS.1)
                .expect("an answer")
                .responses
                .len(),
        };
        assert_eq!((answered, open.load(Ordering::Relaxed)), (MANY, 0));
        assert!(node.session(client).wants_read() && node.session(client).is_idle());
    }
    node.stop();
}

/// They are decoded twice: here, where it turns out how much they ask for, and there.
#[test]
fn what_other_threads_answer_may_have_as_many_items_as_anything() {
    const BOUND: usize = 4000;
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    node.gateway.bound_items(BOUND << 10);
    for count in [499, 501, 600, FREE - 1, FREE, FREE + 1, BOUND / 2 + 1, BOUND] {
        let topics = (0..count)
            .map(|number| MetadataRequestTopic { name: Some(name(number)), ..MetadataRequestTopic::default() })
            .collect();
        let request = MetadataRequest { topics: Some(topics), ..MetadataRequest::default() };
        node.send_alone(client, METADATA, 1, |writer| request.encode(writer, METADATA.1)).expect("taken");
        assert_eq!(node.session(client).wants_room().is_some(), count > FREE, "{count}");
        if count > FREE {
            give(&mut node, client, &Arc::default());
        }
        assert_eq!(node.session(client).wants_read(), count <= 500, "{count}: other threads have what names more");
        let (_, body) = node.answer(client);
        let response = MetadataResponse::decode(&mut flexible(METADATA, body), METADATA.1).expect("an answer");
        assert_eq!(response.topics.len(), count);
    }
    node.stop();
}

/// Each is a partition that the answer tells of.
#[test]
fn integers_are_items_too() {
    // Of a group and a topic.
    const OTHERS: usize = 2;
    // As many as are looked up on the thread of the connection.
    const SOME: usize = 15_000;
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    node.gateway.bound_items(MANY << 10);
    let ask = |count: usize| {
        let topic = OffsetFetchRequestTopics {
            name: "t".into(),
            partition_indexes: (0..count as i32).collect(),
            ..Default::default()
        };
        let group = OffsetFetchRequestGroup { group_id: "g".into(), topics: Some(vec![topic]), ..Default::default() };
        OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() }
    };
    let send = |node: &mut Node, count| {
        let request = ask(count);
        node.send_alone(client, OFFSET_FETCH, 1, |writer| request.encode(writer, OFFSET_FETCH.1))
    };
    send(&mut node, FREE - OTHERS).expect("taken");
    assert!(node.session(client).wants_room().is_none());
    node.answer(client);
    send(&mut node, SOME).expect("taken");
    assert_eq!(node.session(client).wants_room().map(|(bytes, _)| bytes), Some((SOME + OTHERS) * 512));
    let (open, held) = peak(|| give(&mut node, client, &Arc::default()));
    assert!(held < SOME * 256, "{held} bytes");
    let (_, body) = node.answer(client);
    let response = OffsetFetchResponse::decode(&mut flexible(OFFSET_FETCH, body), OFFSET_FETCH.1).expect("an answer");
    assert_eq!((response.groups[0].topics[0].partitions.len(), open.load(Ordering::Relaxed)), (SOME, 0));
    let refused = send(&mut node, MANY);
    assert!(matches!(refused, Err(CloseReason::Malformed(error)) if error.problem == Problem::TooMany(MANY)));
    node.stop();
}

#[test]
fn what_is_given_is_held_until_the_work_is_done_though_the_connection_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let busy = Box::new(move |_: &Arc<broker::Broker>| {
        _ = wait.recv();
        Box::new(()) as Box<dyn std::any::Any + Send>
    });
    assert!(node.broker().control(broker::NOBODY, broker::JobOwner::BROKER, busy));
    let request = delete(MANY);
    node.send_alone(client, DELETE_TOPICS, 1, |writer| request.encode(writer, DELETE_TOPICS.1)).expect("taken");
    let open = give(&mut node, client, &Arc::default());
    node.end(client);
    assert_eq!(open.load(Ordering::Relaxed), 1, "the controller has the request");
    go.send(()).expect("it waits");
    let other = node.connect();
    node.create_topic(other, "after", 1);
    assert_eq!(open.load(Ordering::Relaxed), 0);
    node.stop();
}

#[test]
fn more_items_than_there_is_memory_for_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    node.gateway.bound_items(MANY << 10);
    let mut send = |count| {
        let request = describe(count);
        node.send_alone(client, DESCRIBE_GROUPS, 1, |writer| request.encode(writer, DESCRIBE_GROUPS.1))
    };
    assert!(matches!(send(MANY + 1), Err(CloseReason::Malformed(error)) if error.problem == Problem::TooMany(MANY)));
    send(MANY).expect("taken");
    node.stop();
}

#[test]
fn a_partition_that_is_committed_again_and_again_is_written_once_and_the_last_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    let request = commit(MANY);
    let frame = node.frame(OFFSET_COMMIT, 1, |writer| request.encode(writer, OFFSET_COMMIT.1));
    node.hand(client, frame).expect("taken");
    let (open, held) = peak(|| give(&mut node, client, &Arc::default()));
    assert!(held < 400_000, "{held} bytes on the thread of the connection");
    // What follows comes after it.
    assert!(!node.session(client).wants_read());
    let (_, body) = node.answer(client);
    let response =
        OffsetCommitResponse::decode(&mut flexible(OFFSET_COMMIT, body), OFFSET_COMMIT.1).expect("an answer");
    let codes: Vec<i16> =
        response.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code).collect();
    assert_eq!(codes.len(), MANY + 1, "each is answered");
    assert!(codes[..MANY].iter().all(|code| *code == 0) && codes[MANY] == ErrorCode::UnknownTopicOrPartition.code());
    let offset = node.broker().groups().offset("g", "t", 0).expect("it is there");
    assert_eq!((offset.offset, open.load(Ordering::Relaxed)), (MANY as i64, 0));
    node.stop();
}

/// A text that is too long is refused, and takes the place of no other.
#[test]
fn what_is_refused_of_a_repeated_partition_leaves_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    let partition = |committed_offset, text: usize| OffsetCommitRequestPartition {
        committed_offset,
        committed_metadata: Some("x".repeat(text).into()),
        ..OffsetCommitRequestPartition::default()
    };
    let partitions = vec![partition(1, 0), partition(2, 4096), partition(3, 4097)];
    let topics = vec![OffsetCommitRequestTopic { name: "t".into(), partitions, ..Default::default() }];
    let request = OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics,
        ..OffsetCommitRequest::default()
    };
    node.send(client, OFFSET_COMMIT, 1, |writer| request.encode(writer, OFFSET_COMMIT.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        OffsetCommitResponse::decode(&mut flexible(OFFSET_COMMIT, body), OFFSET_COMMIT.1).expect("an answer");
    let codes: Vec<i16> = response.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!(codes, [0, 0, ErrorCode::OffsetMetadataTooLarge.code()]);
    assert_eq!(node.broker().groups().offset("g", "t", 0).map(|offset| offset.offset), Some(2));
    node.stop();
}

#[test]
fn a_long_poll_of_many_partitions_lets_others_have_its_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    let wanted = Arc::new(AtomicBool::new(false));
    let partition = |_| FetchPartition { partition: 0, partition_max_bytes: 1 << 20, ..FetchPartition::default() };
    let topic = |number| FetchTopic {
        topic: "t".into(),
        partitions: (0..1).map(|_| partition(number)).collect(),
        ..FetchTopic::default()
    };
    let request = FetchRequest {
        min_bytes: 1,
        max_bytes: 1 << 20,
        max_wait_ms: i32::MAX,
        topics: (0..FREE).map(topic).collect(),
        ..FetchRequest::default()
    };
    node.send_alone(client, FETCH, 1, |writer| request.encode(writer, FETCH.1)).expect("taken");
    let open = give(&mut node, client, &wanted);
    node.advance(Duration::from_secs(10));
    node.advance(Duration::from_secs(10));
    assert!(node.poll(client).is_none() && open.load(Ordering::Relaxed) == 1, "nobody wants it");
    wanted.store(true, Ordering::Relaxed);
    let at = node.timeout(client).expect("it looks again");
    assert!(at < Duration::from_secs(1), "{at:?}");
    node.advance(at);
    let (_, body) = node.poll(client).expect("an answer");
    assert_eq!(fetched(body).error_code, 0);
    assert_eq!(open.load(Ordering::Relaxed), 0);
    node.stop();
}

/// Only what is missing is made by the controller; that it is, and that the rest is looked up elsewhere, nobody else waits for.
#[test]
fn metadata_of_many_names_is_looked_up_elsewhere_and_creates_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    let names = (0..MANY)
        .map(|number| format!("no name {number}").into())
        .chain(["t", "new-1", "new-2"].map(kafka_wire::Str::from));
    let topics =
        names.map(|name| MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() }).collect();
    let request =
        MetadataRequest { topics: Some(topics), allow_auto_topic_creation: true, ..MetadataRequest::default() };
    let frame = node.frame(METADATA, 1, |writer| request.encode(writer, METADATA.1));
    let (outcome, held) = peak(|| node.hand(client, frame));
    outcome.expect("taken");
    let (open, more) = peak(|| give(&mut node, client, &Arc::default()));
    assert!(held < 400_000 && more < 400_000, "{held} and {more} bytes on the thread of the connection");
    let (_, body) = node.answer(client);
    // The thread that has created what was missing may be about to end that.
    let until = Instant::now() + Duration::from_secs(30);
    while open.load(Ordering::Relaxed) > 0 {
        assert!(Instant::now() < until, "it is given back");
        std::thread::yield_now();
    }
    let response = MetadataResponse::decode(&mut flexible(METADATA, body), METADATA.1).expect("an answer");
    let codes: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
    assert!(
        codes.len() == MANY + 3 && codes[..MANY].iter().all(|code| *code == ErrorCode::InvalidTopicException.code())
    );
    assert_eq!(codes[MANY..], [0; 3]);
    assert!(response.topics[MANY..].iter().all(|topic| !topic.partitions.is_empty()));
    assert!(node.broker().topic("new-1").is_some() && node.broker().topic("new-2").is_some());
    assert!(node.session(client).is_idle());
    node.stop();
}

#[test]
fn partitions_of_transactions_and_elections_are_looked_up_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    let partitions = || (0..MANY as i32).collect::<Vec<_>>();
    let topic = AddPartitionsToTxnTopic { name: "t".into(), partitions: partitions(), ..Default::default() };
    let added = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: "none".into(),
        v3_and_below_topics: vec![topic],
        ..Default::default()
    };
    let elected = ElectLeadersRequest {
        topic_partitions: Some(vec![TopicPartitions {
            topic: "t".into(),
            partitions: partitions(),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let added = node.frame(ADD_PARTITIONS_TO_TXN, 1, |writer| added.encode(writer, ADD_PARTITIONS_TO_TXN.1));
    let elected = node.frame(ELECT_LEADERS, 2, |writer| elected.encode(writer, ELECT_LEADERS.1));
    for (frame, correlation) in [(added, 1), (elected, 2)] {
        node.hand(client, frame).expect("taken");
        give(&mut node, client, &Arc::default());
        assert!(!node.session(client).wants_read(), "other threads have it");
        let (told, body) = node.answer(client);
        assert_eq!(told, correlation);
        let codes: Vec<i16> = match correlation {
            1 => {
                let response = AddPartitionsToTxnResponse::decode(
                    &mut flexible(ADD_PARTITIONS_TO_TXN, body),
                    ADD_PARTITIONS_TO_TXN.1,
                )
                .expect("an answer");
                response.results_by_topic_v3_and_below[0]
                    .results_by_partition
                    .iter()
                    .map(|one| one.partition_error_code)
                    .collect()
            }
            _ => {
                let response = ElectLeadersResponse::decode(&mut flexible(ELECT_LEADERS, body), ELECT_LEADERS.1)
                    .expect("an answer");
                response.replica_election_results[0].partition_result.iter().map(|one| one.error_code).collect()
            }
        };
        let there = if correlation == 1 { ErrorCode::OperationNotAttempted } else { ErrorCode::ElectionNotNeeded };
        let unknown = ErrorCode::UnknownTopicOrPartition.code();
        assert!(
            codes.len() == MANY && codes[..2] == [there.code(); 2] && codes[2..].iter().all(|code| *code == unknown)
        );
    }
    node.stop();
}
