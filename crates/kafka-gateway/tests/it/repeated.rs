//! Requests that repeat things by the hundred thousand take as long as they are large: compared each with each they would not end in these tests.

use std::path::Path;

use kafka_wire::ErrorCode;
use kafka_wire::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
};
use kafka_wire::consumer_group_heartbeat::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use kafka_wire::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use kafka_wire::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse};
use kafka_wire::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse};
use kafka_wire::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse};
use kafka_wire::describe_producers::{DescribeProducersRequest, DescribeProducersResponse, TopicRequest};
use kafka_wire::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsResponse,
};
use kafka_wire::describe_transactions::{DescribeTransactionsRequest, DescribeTransactionsResponse};
use kafka_wire::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use kafka_wire::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic};
use kafka_wire::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use kafka_wire::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
};
use kafka_wire::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerPartitionResult, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
};

use crate::node::{Node, flexible};

const LIST_OFFSETS: (i16, i16) = (2, 7);
const DESCRIBE_LOG_DIRS: (i16, i16) = (35, 4);
const ALTER_SHARE_OFFSETS: (i16, i16) = (91, 0);
const DESCRIBE_CONFIGS: (i16, i16) = (32, 4);
const OFFSET_FETCH: (i16, i16) = (9, 8);
const CREATE_TOPICS: (i16, i16) = (19, 7);
const METADATA: (i16, i16) = (3, 12);
const DESCRIBE_PRODUCERS: (i16, i16) = (61, 0);
const DESCRIBE_TRANSACTIONS: (i16, i16) = (65, 0);
const DESCRIBE_SHARE_OFFSETS: (i16, i16) = (90, 0);
const JOIN_GROUP: (i16, i16) = (11, 7);
const DESCRIBE_GROUPS: (i16, i16) = (15, 5);
const CONSUMER_HEARTBEAT: (i16, i16) = (68, 1);
const WRITE_TXN_MARKERS: (i16, i16) = (27, 1);
const MANY: i32 = 300_000;
/// Of 60 KB each.
const MEMBERS: i32 = 320;

fn start(folder: &Path, partitions: i32) -> (Node, usize) {
    let mut node = Node::start(folder, &[]);
    let client = node.connect();
    node.create_topic(client, "t", partitions);
    (node, client)
}

#[test]
fn offsets_of_partitions_that_are_all_named_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 1);
    let partition = |index| ListOffsetsPartition {
        partition_index: index,
        current_leader_epoch: -1,
        timestamp: -1,
        ..Default::default()
    };
    let partitions = (0..MANY).chain(0..MANY).map(partition).collect();
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic { name: "t".into(), partitions, ..Default::default() }],
        ..Default::default()
    };
    node.send(client, LIST_OFFSETS, 1, |writer| request.encode(writer, LIST_OFFSETS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = ListOffsetsResponse::decode(&mut flexible(LIST_OFFSETS, body), LIST_OFFSETS.1).expect("an answer");
    let answers = &response.topics[0].partitions;
    let refused =
        |index, code| code == ErrorCode::InvalidRequest.code() && answers[index as usize].partition_index == index;
    assert!(
        answers.len() == MANY as usize && (0..MANY).all(|index| refused(index, answers[index as usize].error_code)),
        "each once"
    );
    node.stop();
}

#[test]
fn sizes_of_a_topic_that_is_named_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 5_000);
    let topic =
        |index| DescribableLogDirTopic { topic: "t".into(), partitions: vec![index % 4_000], ..Default::default() };
    let request = DescribeLogDirsRequest { topics: Some((0..MANY).map(topic).collect()), ..Default::default() };
    node.send(client, DESCRIBE_LOG_DIRS, 1, |writer| request.encode(writer, DESCRIBE_LOG_DIRS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = DescribeLogDirsResponse::decode(&mut flexible(DESCRIBE_LOG_DIRS, body), DESCRIBE_LOG_DIRS.1)
        .expect("an answer");
    let topics: Vec<_> = response.results.iter().flat_map(|result| &result.topics).collect();
    assert_eq!(topics.iter().map(|topic| topic.partitions.len()).sum::<usize>(), 4_000, "each once");
    node.stop();
}

#[test]
fn topics_that_cannot_be_are_refused_one_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 1);
    let topic = |number| CreatableTopic {
        name: format!("!{number}").into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request =
        CreateTopicsRequest { topics: (0..MANY).map(topic).collect(), timeout_ms: 60_000, ..Default::default() };
    node.send(client, CREATE_TOPICS, 1, |writer| request.encode(writer, CREATE_TOPICS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        CreateTopicsResponse::decode(&mut flexible(CREATE_TOPICS, body), CREATE_TOPICS.1).expect("an answer");
    let refused = response.topics.iter().filter(|topic| topic.error_code == ErrorCode::InvalidTopicException.code());
    assert_eq!(refused.count(), MANY as usize);
    node.stop();
}

#[test]
fn starts_of_a_partition_that_is_named_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 1);
    let partition = |start_offset| AlterShareGroupOffsetsRequestPartition {
        partition_index: 0,
        start_offset,
        ..Default::default()
    };
    let partitions = (1..=i64::from(MANY)).map(partition).collect();
    let topics = vec![AlterShareGroupOffsetsRequestTopic { topic_name: "t".into(), partitions, ..Default::default() }];
    let request = AlterShareGroupOffsetsRequest { group_id: "g".into(), topics, ..Default::default() };
    node.send(client, ALTER_SHARE_OFFSETS, 1, |writer| request.encode(writer, ALTER_SHARE_OFFSETS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        AlterShareGroupOffsetsResponse::decode(&mut flexible(ALTER_SHARE_OFFSETS, body), ALTER_SHARE_OFFSETS.1)
            .expect("an answer");
    let answers = &response.responses[0].partitions;
    assert!(answers.len() == MANY as usize && answers.iter().all(|one| one.error_code == 0));
    let topic = node.topic_id("t");
    let shared = node.broker().subscriptions().get("g", types::TopicId(topic), 0).expect("it is there");
    assert_eq!(shared.lock().start(), u64::try_from(MANY).expect("positive"), "the last word counts");
    node.stop();
}

#[test]
fn settings_of_a_topic_that_is_named_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 1);
    let topic = |_| DescribeConfigsResource { resource_type: 2, resource_name: "t".into(), ..Default::default() };
    let request = DescribeConfigsRequest { resources: (0..MANY).map(topic).collect(), ..Default::default() };
    node.send(client, DESCRIBE_CONFIGS, 1, |writer| request.encode(writer, DESCRIBE_CONFIGS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        DescribeConfigsResponse::decode(&mut flexible(DESCRIBE_CONFIGS, body), DESCRIBE_CONFIGS.1).expect("an answer");
    assert!(response.results.len() == 1 && response.results[0].configs.len() > 20, "once");
    node.stop();
}

#[test]
fn offsets_of_a_group_that_is_named_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 1);
    let whole = |_| OffsetFetchRequestGroup { group_id: "g".into(), topics: None, ..Default::default() };
    let topics = Some(vec![
        OffsetFetchRequestTopics {
            name: "t".into(),
            partition_indexes: vec![0; MANY as usize],
            ..Default::default()
        };
        2
    ]);
    let groups = (0..MANY)
        .map(whole)
        .chain([OffsetFetchRequestGroup { group_id: "g".into(), topics, ..Default::default() }])
        .collect();
    let request = OffsetFetchRequest { groups, ..Default::default() };
    node.send(client, OFFSET_FETCH, 1, |writer| request.encode(writer, OFFSET_FETCH.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = OffsetFetchResponse::decode(&mut flexible(OFFSET_FETCH, body), OFFSET_FETCH.1).expect("an answer");
    assert_eq!(response.groups.len(), 2, "all of it once, and what was named");
    assert_eq!(response.groups[1].topics.iter().map(|topic| topic.partitions.len()).collect::<Vec<_>>(), [1, 0]);
    node.stop();
}

#[test]
fn topics_that_are_asked_for_and_cannot_be_created() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("mainstem.max.topics", "1")]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let topic = |number| MetadataRequestTopic { name: Some(format!("new{number}").into()), ..Default::default() };
    let request = MetadataRequest {
        topics: Some((0..MANY).map(topic).collect()),
        allow_auto_topic_creation: true,
        ..Default::default()
    };
    node.send(client, METADATA, 1, |writer| request.encode(writer, METADATA.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = MetadataResponse::decode(&mut flexible(METADATA, body), METADATA.1).expect("an answer");
    assert!(
        response.topics.len() == MANY as usize
            && response.topics.iter().all(|topic| topic.error_code == ErrorCode::PolicyViolation.code())
    );
    node.stop();
}

#[test]
fn what_may_be_long_is_described_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 2);
    let topic = |_| TopicRequest { name: "t".into(), partition_indexes: vec![0, 1, 0, 7], ..Default::default() };
    let request = DescribeProducersRequest { topics: (0..MANY / 5).map(topic).collect(), ..Default::default() };
    node.send(client, DESCRIBE_PRODUCERS, 1, |writer| request.encode(writer, DESCRIBE_PRODUCERS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = DescribeProducersResponse::decode(&mut flexible(DESCRIBE_PRODUCERS, body), DESCRIBE_PRODUCERS.1)
        .expect("an answer");
    let partitions: Vec<i32> =
        response.topics.iter().flat_map(|topic| topic.partitions.iter().map(|one| one.partition_index)).collect();
    assert_eq!(partitions, [0, 1, 7]);

    let request =
        DescribeTransactionsRequest { transactional_ids: vec!["a".into(); MANY as usize], ..Default::default() };
    node.send(client, DESCRIBE_TRANSACTIONS, 2, |writer| request.encode(writer, DESCRIBE_TRANSACTIONS.1))
        .expect("taken");
    let (_, body) = node.answer(client);
    let response =
        DescribeTransactionsResponse::decode(&mut flexible(DESCRIBE_TRANSACTIONS, body), DESCRIBE_TRANSACTIONS.1)
            .expect("an answer");
    assert_eq!(response.transaction_states.len(), 1);

    let group = |_| DescribeShareGroupOffsetsRequestGroup { group_id: "g".into(), topics: None, ..Default::default() };
    let request = DescribeShareGroupOffsetsRequest { groups: (0..MANY).map(group).collect(), ..Default::default() };
    node.send(client, DESCRIBE_SHARE_OFFSETS, 3, |writer| request.encode(writer, DESCRIBE_SHARE_OFFSETS.1))
        .expect("taken");
    let (_, body) = node.answer(client);
    let response = DescribeShareGroupOffsetsResponse::decode(
        &mut flexible(DESCRIBE_SHARE_OFFSETS, body),
        DESCRIBE_SHARE_OFFSETS.1,
    )
    .expect("an answer");
    assert_eq!(response.groups.len(), 1);
    node.stop();
}

/// Codes and members of the groups in an answer.
fn described(node: &mut Node, client: usize, groups: &[&str]) -> Vec<(i16, usize)> {
    let request =
        DescribeGroupsRequest { groups: groups.iter().map(|group| (*group).into()).collect(), ..Default::default() };
    node.send(client, DESCRIBE_GROUPS, 1, |writer| request.encode(writer, DESCRIBE_GROUPS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        DescribeGroupsResponse::decode(&mut flexible(DESCRIBE_GROUPS, body), DESCRIBE_GROUPS.1).expect("an answer");
    response.groups.iter().map(|group| (group.error_code, group.members.len())).collect()
}

#[test]
fn groups_are_described_once_and_as_far_as_there_is_room_for_the_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 1);
    for group in ["a", "b", "c"] {
        let members = node.connect();
        for number in 0..MEMBERS {
            let request = JoinGroupRequest {
                group_id: group.into(),
                session_timeout_ms: 30_000,
                rebalance_timeout_ms: 30_000,
                group_instance_id: Some(format!("{number}{}", "x".repeat(30_000)).into()),
                protocol_type: "consumer".into(),
                protocols: vec![JoinGroupRequestProtocol { name: "range".into(), ..Default::default() }],
                ..Default::default()
            };
            node.send(members, JOIN_GROUP, number, |writer| request.encode(writer, JOIN_GROUP.1)).expect("taken");
        }
    }
    let again: Vec<&str> = ["a", "b", "c"].into_iter().chain(std::iter::repeat_n("a", MANY as usize)).collect();
    let later = (ErrorCode::CoordinatorLoadInProgress.code(), 0);
    assert_eq!(
        described(&mut node, client, &again),
        [(0, MEMBERS as usize), later, later],
        "each once, and half of the memory for answers"
    );
    assert_eq!(described(&mut node, client, &["b"]), [(0, MEMBERS as usize)], "who asks again gets on");
    node.stop();
}

#[test]
fn a_member_names_so_many_topics_and_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 1);
    let mut beat = |member: &str, names: Vec<String>| {
        let request = ConsumerGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: member.into(),
            rebalance_timeout_ms: 30_000,
            subscribed_topic_names: Some(names.into_iter().map(Into::into).collect()),
            topic_partitions: Some(Vec::new()),
            ..Default::default()
        };
        node.send(client, CONSUMER_HEARTBEAT, 1, |writer| request.encode(writer, CONSUMER_HEARTBEAT.1)).expect("taken");
        let (_, body) = node.answer(client);
        ConsumerGroupHeartbeatResponse::decode(&mut flexible(CONSUMER_HEARTBEAT, body), CONSUMER_HEARTBEAT.1)
            .expect("an answer")
            .error_code
    };
    let invalid = ErrorCode::InvalidRequest.code();
    assert_eq!(beat("one", (0..MANY).map(|number| format!("t{number}")).collect()), invalid);
    assert_eq!(beat("one", vec!["t".repeat(250)]), invalid, "no topic has such a name");
    assert_eq!(beat("one", (0..MANY).map(|number| format!("t{}", number % 10_000)).collect()), 0, "each counts once");
    node.stop();
}

/// A partition has a marker once, and two markers twice.
#[test]
fn markers_of_partitions_that_are_named_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path(), 2);
    let topic = |indexes: &[i32]| WritableTxnMarkerTopic {
        name: "t".into(),
        partition_indexes: indexes.to_vec(),
        ..Default::default()
    };
    let marker =
        |producer_id, topics| WritableTxnMarker { producer_id, producer_epoch: 0, topics, ..Default::default() };
    let many = std::iter::once(topic(&[0, 0, 7])).chain((0..MANY / 10).map(|_| topic(&[0]))).collect();
    let request = WriteTxnMarkersRequest {
        markers: vec![marker(1, many), marker(2, vec![topic(&[1])]), marker(1, vec![topic(&[0, 7, 1])])],
        ..Default::default()
    };
    node.send(client, WRITE_TXN_MARKERS, 1, |writer| request.encode(writer, WRITE_TXN_MARKERS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = WriteTxnMarkersResponse::decode(&mut flexible(WRITE_TXN_MARKERS, body), WRITE_TXN_MARKERS.1);
    let told: Vec<_> = response
        .expect("an answer")
        .markers
        .iter()
        .map(|one| {
            let partitions =
                |partition: &WritableTxnMarkerPartitionResult| (partition.partition_index, partition.error_code);
            let topics = one.topics.iter().flat_map(|topic| topic.partitions.iter().map(partitions));
            (one.producer_id, one.topics.len(), topics.collect::<Vec<_>>())
        })
        .collect();
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(told, [(1, 1, vec![(0, 0), (7, unknown), (1, 0)]), (2, 1, vec![(1, 0)])]);
    let ends = node.broker().topic("t").expect("it is there");
    let ends: Vec<u64> = ends.logs().iter().map(|log| log.end().0).collect();
    assert_eq!(ends, [2, 2], "each marker once");
    node.stop();
}
