//! What one request changes of many topics or groups is written together: a few chunks of the journal, not one for each.

use broker::{ScramChange, ScramError, ScramMechanism, ScramWish};
use kafka_wire::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, AlteredEntity, AlteredEntry, OpData,
};
use kafka_wire::alter_configs::{self, AlterConfigsRequest, AlterConfigsResponse};
use kafka_wire::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
};
use kafka_wire::create_partitions::{CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic};
use kafka_wire::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use kafka_wire::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
use kafka_wire::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use kafka_wire::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic, DeleteShareGroupOffsetsResponse,
};
use kafka_wire::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use kafka_wire::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use kafka_wire::offset_commit::{OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_wire::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic, OffsetDeleteResponse,
};
use kafka_wire::{ErrorCode, Reader};

use crate::node::{Node, batch, flexible};

const CREATE_TOPICS: (i16, i16) = (19, 7);
const DELETE_TOPICS: (i16, i16) = (20, 6);
const DELETE_RECORDS: (i16, i16) = (21, 2);
const CREATE_PARTITIONS: (i16, i16) = (37, 3);
const ALTER_SHARE_OFFSETS: (i16, i16) = (91, 0);
const DELETE_SHARE_OFFSETS: (i16, i16) = (92, 0);
const ALTER_QUOTAS: (i16, i16) = (49, 1);
const OFFSET_COMMIT: (i16, i16) = (8, 9);
const OFFSET_DELETE: (i16, i16) = (47, 0);
const DELETE_GROUPS: (i16, i16) = (42, 2);
const ALTER_CONFIGS: (i16, i16) = (33, 2);
const INCREMENTAL_ALTER_CONFIGS: (i16, i16) = (44, 1);
const TOPIC: i8 = 2;
const GROUP: i8 = 32;
const MANY: usize = 500;
/// Each alone they would be as many as there are topics.
const CHUNKS_MAX: u64 = 50;

fn create(node: &mut Node, client: usize) {
    let topic = |number| CreatableTopic {
        name: format!("t{number}").into(),
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
    assert!(response.topics.iter().all(|topic| topic.error_code == 0));
}

#[test]
fn topics_are_deleted_together_and_each_for_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    create(&mut node, client);
    let id = node.topic_id("t7");
    let named = |name: String| DeleteTopicState { name: Some(name.into()), ..Default::default() };
    let topics = (0..MANY).map(|number| named(format!("t{number}")));
    let topics = topics
        .chain([named("missing".to_owned()), DeleteTopicState { name: None, topic_id: id, ..Default::default() }]);
    let request = DeleteTopicsRequest { topics: topics.collect(), timeout_ms: 60_000, ..Default::default() };
    let before = node.durable();
    node.send(client, DELETE_TOPICS, 1, |writer| request.encode(writer, DELETE_TOPICS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        DeleteTopicsResponse::decode(&mut flexible(DELETE_TOPICS, body), DELETE_TOPICS.1).expect("an answer");
    let codes: Vec<i16> = response.responses.iter().map(|one| one.error_code).collect();
    assert!(codes[..MANY].iter().all(|code| *code == 0), "{codes:?}");
    assert_eq!(
        codes[MANY..],
        [ErrorCode::UnknownTopicOrPartition.code(), ErrorCode::UnknownTopicId.code()],
        "what has gone by its name"
    );
    assert!(node.durable() - before < CHUNKS_MAX, "{} chunks", node.durable() - before);
    assert!(node.broker().topics().is_empty());
    node.stop();
    let node = Node::start(folder.path(), &[]);
    assert!(node.broker().topics().is_empty(), "also after a restart");
    node.stop();
}

#[test]
fn settings_of_topics_and_groups_are_written_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    create(&mut node, client);
    let resource = |kind, name: String, setting: &str, value: &str| AlterConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        configs: vec![AlterableConfig { name: setting.into(), value: Some(value.into()), ..Default::default() }],
        ..Default::default()
    };
    let topics = (0..MANY).map(|number| resource(TOPIC, format!("t{number}"), "retention.ms", "7000"));
    let groups = (0..MANY).map(|number| resource(GROUP, format!("g{number}"), "share.delivery.count.limit", "3"));
    let wrong = [
        resource(TOPIC, "missing".to_owned(), "retention.ms", "1"),
        resource(GROUP, "h".to_owned(), "share.delivery.count.limit", "x"),
    ];
    let twice = [
        resource(GROUP, "twice".to_owned(), "share.delivery.count.limit", "3"),
        resource(GROUP, "twice".to_owned(), "share.delivery.count.limit", "4"),
    ];
    let request = IncrementalAlterConfigsRequest {
        resources: topics.chain(wrong).chain(groups).chain(twice).collect(),
        ..Default::default()
    };
    let before = node.durable();
    node.send(client, INCREMENTAL_ALTER_CONFIGS, 1, |writer| request.encode(writer, INCREMENTAL_ALTER_CONFIGS.1))
        .expect("taken");
    let (_, body) = node.answer(client);
    let response = IncrementalAlterConfigsResponse::decode(
        &mut flexible(INCREMENTAL_ALTER_CONFIGS, body),
        INCREMENTAL_ALTER_CONFIGS.1,
    )
    .expect("an answer");
    let refused: Vec<(&str, i16)> = response
        .responses
        .iter()
        .filter(|one| one.error_code != 0)
        .map(|one| (&*one.resource_name, one.error_code))
        .collect();
    let (invalid, unknown, twice) =
        (ErrorCode::InvalidConfig.code(), ErrorCode::UnknownTopicOrPartition.code(), ErrorCode::InvalidRequest.code());
    assert_eq!(refused, [("missing", unknown), ("h", invalid), ("twice", twice), ("twice", twice)]);
    assert!(node.durable() - before < CHUNKS_MAX, "{} chunks", node.durable() - before);
    let kept = |node: &Node| {
        let topics =
            node.broker().topics().iter().filter(|topic| topic.config().overrides["retention.ms"] == "7000").count();
        let groups = (0..MANY)
            .filter(|number| node.broker().group_config(&format!("g{number}")).share_delivery_limit == 3)
            .count();
        (topics, groups, node.broker().configured_groups().len())
    };
    assert_eq!(kept(&node), (MANY, MANY, MANY));
    // The older request, which replaces all that is set.
    let group = |number| alter_configs::AlterConfigsResource {
        resource_type: GROUP,
        resource_name: format!("g{number}").into(),
        ..Default::default()
    };
    let request = AlterConfigsRequest { resources: (0..MANY / 2).map(group).collect(), ..Default::default() };
    let before = node.durable();
    node.send(client, ALTER_CONFIGS, 2, |writer| request.encode(writer, ALTER_CONFIGS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        AlterConfigsResponse::decode(&mut flexible(ALTER_CONFIGS, body), ALTER_CONFIGS.1).expect("an answer");
    assert!(response.responses.iter().all(|one| one.error_code == 0));
    assert!(node.durable() - before < CHUNKS_MAX, "{} chunks", node.durable() - before);
    assert_eq!(node.broker().configured_groups().len(), MANY / 2);
    node.stop();
    let node = Node::start(folder.path(), &[]);
    assert_eq!(node.broker().configured_groups().len(), MANY / 2, "also after a restart");
    node.stop();
}

#[test]
fn records_of_partitions_are_deleted_together() {
    const PARTITIONS: i32 = 200;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", PARTITIONS);
    for partition in 0..PARTITIONS {
        assert_eq!(node.produce(client, "t", partition, batch(3)), (0, 0));
    }
    let cut = |(partition_index, offset)| DeleteRecordsPartition { partition_index, offset, ..Default::default() };
    // Of what is named more than once the last offset counts; one that is beyond the end is refused and moves nothing.
    let more = [(0, 2), (0, 4), (PARTITIONS, 1)];
    let partitions = (0..PARTITIONS).map(|partition| (partition, 1)).chain(more).map(cut).collect();
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic { name: "t".into(), partitions, ..Default::default() }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let before = node.durable();
    node.send(client, DELETE_RECORDS, 1, |writer| request.encode(writer, DELETE_RECORDS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        DeleteRecordsResponse::decode(&mut flexible(DELETE_RECORDS, body), DELETE_RECORDS.1).expect("an answer");
    let told: Vec<(i64, i16)> =
        response.topics[0].partitions.iter().map(|one| (one.low_watermark, one.error_code)).collect();
    let (beyond, unknown) = (ErrorCode::OffsetOutOfRange.code(), ErrorCode::UnknownTopicOrPartition.code());
    assert!(told[0] == (2, 0) && told[1..PARTITIONS as usize].iter().all(|one| *one == (1, 0)), "{told:?}");
    assert_eq!(told[PARTITIONS as usize..], [(2, 0), (-1, beyond), (-1, unknown)]);
    assert!(node.durable() - before < CHUNKS_MAX, "{} chunks", node.durable() - before);
    node.stop();
}

#[test]
fn quotas_are_written_together_and_each_for_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let entry = |name: String, key: &str| AlteredEntry {
        entity: vec![AlteredEntity {
            entity_type: "user".into(),
            entity_name: Some(name.into()),
            ..Default::default()
        }],
        ops: vec![OpData { key: key.into(), value: 1000.0, ..Default::default() }],
        ..Default::default()
    };
    let users = (0..MANY).map(|number| entry(format!("u{number}"), "producer_byte_rate"));
    let entries =
        users.chain([entry("u7".to_owned(), "no_such_rate"), entry("u8".to_owned(), "consumer_byte_rate")]).collect();
    let request = AlterClientQuotasRequest { entries, ..Default::default() };
    let before = node.durable();
    node.send(client, ALTER_QUOTAS, 1, |writer| request.encode(writer, ALTER_QUOTAS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        AlterClientQuotasResponse::decode(&mut flexible(ALTER_QUOTAS, body), ALTER_QUOTAS.1).expect("an answer");
    let refused: Vec<usize> = (0..MANY + 2).filter(|at| response.entries[*at].error_code != 0).collect();
    assert_eq!(refused, [MANY]);
    assert!(node.durable() - before < CHUNKS_MAX, "{} chunks", node.durable() - before);
    node.stop();
}

#[test]
fn committed_offsets_are_deleted_together() {
    const PARTITIONS: i32 = 300;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", PARTITIONS);
    let commit = |partition_index| OffsetCommitRequestPartition {
        partition_index,
        committed_offset: 7,
        committed_leader_epoch: -1,
        ..Default::default()
    };
    let topic = OffsetCommitRequestTopic {
        name: "t".into(),
        partitions: (0..PARTITIONS).map(commit).collect(),
        ..Default::default()
    };
    let request = OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    node.send(client, OFFSET_COMMIT, 1, |writer| request.encode(writer, OFFSET_COMMIT.1)).expect("taken");
    node.answer(client);
    assert_eq!(node.broker().groups().offsets("g").len(), PARTITIONS as usize);
    let place = |partition_index| OffsetDeleteRequestPartition { partition_index, ..Default::default() };
    // Named twice, and one that is not there.
    let partitions = (1..PARTITIONS).chain([1, PARTITIONS]).map(place).collect();
    let request = OffsetDeleteRequest {
        group_id: "g".into(),
        topics: vec![OffsetDeleteRequestTopic { name: "t".into(), partitions, ..Default::default() }],
        ..Default::default()
    };
    let before = node.durable();
    node.send(client, OFFSET_DELETE, 2, |writer| request.encode(writer, OFFSET_DELETE.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = OffsetDeleteResponse::decode(&mut Reader::new(body), OFFSET_DELETE.1).expect("an answer");
    let codes: Vec<i16> = response.topics[0].partitions.iter().map(|one| one.error_code).collect();
    let (last, others) = codes.split_last().expect("an answer for each");
    assert!(others.iter().all(|code| *code == 0) && *last == ErrorCode::UnknownTopicOrPartition.code(), "{codes:?}");
    assert!(node.durable() - before < CHUNKS_MAX, "{} chunks", node.durable() - before);
    assert_eq!(node.broker().groups().offsets("g").iter().map(|(_, partition, _)| *partition).collect::<Vec<_>>(), [0]);
    node.stop();
    let node = Node::start(folder.path(), &[]);
    assert_eq!(node.broker().groups().offsets("g").len(), 1, "also after a restart");
    node.stop();
}

#[test]
fn partitions_of_topics_are_added_together_and_within_the_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("mainstem.max.partitions", "1500")]);
    let client = node.connect();
    create(&mut node, client);
    let wish = |(name, count): (String, i32)| CreatePartitionsTopic {
        name: name.into(),
        count,
        assignments: None,
        ..Default::default()
    };
    let topics =
        (0..MANY).map(|number| (format!("t{number}"), 3)).chain([("missing".to_owned(), 2), ("t0".to_owned(), 3)]);
    let request =
        CreatePartitionsRequest { topics: topics.map(wish).collect(), timeout_ms: 60_000, ..Default::default() };
    let before = node.durable();
    node.send(client, CREATE_PARTITIONS, 1, |writer| request.encode(writer, CREATE_PARTITIONS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = CreatePartitionsResponse::decode(&mut flexible(CREATE_PARTITIONS, body), CREATE_PARTITIONS.1)
        .expect("an answer");
    let refused: Vec<(&str, i16)> =
        response.results.iter().filter(|one| one.error_code != 0).map(|one| (&*one.name, one.error_code)).collect();
    assert_eq!(
        refused,
        [("t0", ErrorCode::InvalidRequest.code()), ("missing", ErrorCode::UnknownTopicOrPartition.code())],
        "t0 is named twice"
    );
    assert!(node.durable() - before < CHUNKS_MAX, "{} chunks", node.durable() - before);
    // 1498 are there: of two that want one more each and one that wants another there is room for the first two.
    let more = [("t0", 2), ("t1", 4), ("t2", 4)].map(|(name, count)| wish((name.to_owned(), count))).to_vec();
    let request = CreatePartitionsRequest { topics: more, timeout_ms: 60_000, ..Default::default() };
    node.send(client, CREATE_PARTITIONS, 2, |writer| request.encode(writer, CREATE_PARTITIONS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = CreatePartitionsResponse::decode(&mut flexible(CREATE_PARTITIONS, body), CREATE_PARTITIONS.1)
        .expect("an answer");
    assert_eq!(
        response.results.iter().map(|one| one.error_code).collect::<Vec<_>>(),
        [0, 0, ErrorCode::PolicyViolation.code()]
    );
    let counts = |node: &Node| {
        ["t0", "t1", "t2", "t499"].map(|name| node.broker().topic(name).expect("it is there").logs().len())
    };
    assert_eq!(counts(&node), [2, 4, 3, 3]);
    let last = node.broker().topic("t499").expect("it is there").logs()[2].id();
    assert_eq!(node.produce(client, "t499", 2, batch(1)), (0, 0));
    node.stop();
    let mut node = Node::start(folder.path(), &[]);
    assert_eq!(counts(&node), [2, 4, 3, 3], "also after a restart");
    let client = node.connect();
    node.create_topic(client, "new", 1);
    assert!(node.broker().topic("new").expect("it is there").logs()[0].id() > last, "no id is given twice");
    node.stop();
}

#[test]
fn starts_of_a_share_group_are_moved_together() {
    const PARTITIONS: i32 = 500;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", PARTITIONS);
    let place = |(partition_index, start_offset)| AlterShareGroupOffsetsRequestPartition {
        partition_index,
        start_offset,
        ..Default::default()
    };
    let partitions =
        (0..PARTITIONS).map(|partition| (partition, 7)).chain([(0, 9), (PARTITIONS, 1)]).map(place).collect();
    let topics = vec![AlterShareGroupOffsetsRequestTopic { topic_name: "t".into(), partitions, ..Default::default() }];
    let request = AlterShareGroupOffsetsRequest { group_id: "g".into(), topics, ..Default::default() };
    let before = node.durable();
    node.send(client, ALTER_SHARE_OFFSETS, 1, |writer| request.encode(writer, ALTER_SHARE_OFFSETS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        AlterShareGroupOffsetsResponse::decode(&mut flexible(ALTER_SHARE_OFFSETS, body), ALTER_SHARE_OFFSETS.1)
            .expect("an answer");
    let codes: Vec<i16> = response.responses[0].partitions.iter().map(|one| one.error_code).collect();
    let (last, others) = codes.split_last().expect("an answer for each");
    assert!(others.iter().all(|code| *code == 0) && *last == ErrorCode::UnknownTopicOrPartition.code(), "{codes:?}");
    // Each goes its own way to the journal, which takes those together that come while it writes.
    assert!(node.durable() - before < PARTITIONS as u64 / 2, "{} chunks", node.durable() - before);
    let starts = |node: &Node| {
        let topic = types::TopicId(node.topic_id("t"));
        let start = |partition: i32| {
            node.broker().subscriptions().get("g", topic, partition as u32).map(|shared| shared.lock().start())
        };
        (start(0), (1..PARTITIONS).filter(|partition| start(*partition) == Some(7)).count())
    };
    assert_eq!(starts(&node), (Some(9), PARTITIONS as usize - 1));
    node.stop();
    let node = Node::start(folder.path(), &[]);
    assert_eq!(starts(&node), (Some(9), PARTITIONS as usize - 1), "also after a restart");
    node.stop();
}

#[test]
fn a_share_group_forgets_topics_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    create(&mut node, client);
    let start = |number| {
        let partitions =
            vec![AlterShareGroupOffsetsRequestPartition { partition_index: 0, start_offset: 3, ..Default::default() }];
        AlterShareGroupOffsetsRequestTopic { topic_name: format!("t{number}").into(), partitions, ..Default::default() }
    };
    let request = AlterShareGroupOffsetsRequest {
        group_id: "g".into(),
        topics: (1..MANY).map(start).collect(),
        ..Default::default()
    };
    node.send(client, ALTER_SHARE_OFFSETS, 1, |writer| request.encode(writer, ALTER_SHARE_OFFSETS.1)).expect("taken");
    node.answer(client);
    let topic = |name: String| DeleteShareGroupOffsetsRequestTopic { topic_name: name.into(), ..Default::default() };
    let topics = (0..MANY)
        .map(|number| topic(format!("t{number}")))
        .chain([topic("missing".to_owned()), topic("t7".to_owned())])
        .collect();
    let request = DeleteShareGroupOffsetsRequest { group_id: "g".into(), topics, ..Default::default() };
    let before = node.durable();
    node.send(client, DELETE_SHARE_OFFSETS, 2, |writer| request.encode(writer, DELETE_SHARE_OFFSETS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        DeleteShareGroupOffsetsResponse::decode(&mut flexible(DELETE_SHARE_OFFSETS, body), DELETE_SHARE_OFFSETS.1)
            .expect("an answer");
    let refused: Vec<(&str, i16)> = response
        .responses
        .iter()
        .filter(|one| one.error_code != 0)
        .map(|one| (&*one.topic_name, one.error_code))
        .collect();
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(
        (response.responses.len(), refused),
        (MANY + 1, vec![("t0", unknown), ("missing", unknown)]),
        "each once"
    );
    assert!(node.durable() - before < MANY as u64 / 2, "{} chunks", node.durable() - before);
    assert!(node.broker().subscriptions().of_group("g").is_empty());
    node.stop();
    let node = Node::start(folder.path(), &[]);
    assert!(node.broker().subscriptions().of_group("g").is_empty(), "also after a restart");
    node.stop();
}

#[test]
fn groups_are_deleted_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    for number in 0..MANY {
        let partition = OffsetCommitRequestPartition {
            partition_index: 0,
            committed_offset: 7,
            committed_leader_epoch: -1,
            ..Default::default()
        };
        let topic = OffsetCommitRequestTopic { name: "t".into(), partitions: vec![partition], ..Default::default() };
        let group_id = format!("g{number}").into();
        let request = OffsetCommitRequest {
            group_id,
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        node.send(client, OFFSET_COMMIT, 1, |writer| request.encode(writer, OFFSET_COMMIT.1)).expect("taken");
        node.answer(client);
    }
    let names = (0..MANY).map(|number| format!("g{number}")).chain(["missing".to_owned(), "g7".to_owned()]);
    let request = DeleteGroupsRequest { groups_names: names.map(Into::into).collect(), ..Default::default() };
    let before = node.durable();
    node.send(client, DELETE_GROUPS, 2, |writer| request.encode(writer, DELETE_GROUPS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        DeleteGroupsResponse::decode(&mut flexible(DELETE_GROUPS, body), DELETE_GROUPS.1).expect("an answer");
    let refused: Vec<(&str, i16)> =
        response.results.iter().filter(|one| one.error_code != 0).map(|one| (&*one.group_id, one.error_code)).collect();
    assert_eq!(
        (response.results.len(), refused),
        (MANY + 1, vec![("missing", ErrorCode::GroupIdNotFound.code())]),
        "each once"
    );
    assert!(node.durable() - before < MANY as u64 / 2, "{} chunks", node.durable() - before);
    assert!(node.broker().groups().list().is_empty());
    node.stop();
    let node = Node::start(folder.path(), &[]);
    assert!(node.broker().groups().list().is_empty(), "also after a restart");
    node.stop();
}

#[test]
fn keys_of_users_are_written_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(folder.path(), &[]);
    let change = |name: String, wish| ScramChange { name, mechanism: Some(ScramMechanism::Sha256), wish };
    let put = || ScramWish::Put { salt: vec![7; 16], iterations: 4096, salted_password: vec![9; 32] };
    let mut changes: Vec<ScramChange> = (0..MANY).map(|number| change(format!("u{number:03}"), put())).collect();
    changes.extend([
        change("nobody".to_owned(), ScramWish::Delete),
        change("twice".to_owned(), put()),
        change("twice".to_owned(), put()),
    ]);
    let before = node.durable();
    let outcomes = node.broker().alter_scram(&changes);
    let refused: Vec<(String, ScramError)> =
        outcomes.into_iter().filter_map(|(name, outcome)| Some((name, outcome.err()?))).collect();
    assert_eq!(refused, [("nobody".to_owned(), ScramError::Missing), ("twice".to_owned(), ScramError::Twice)]);
    assert!(node.durable() - before < CHUNKS_MAX, "{} chunks", node.durable() - before);
    // The same once more writes nothing, and is done. The broker may write something of its own meanwhile.
    let writes_nothing = |_| {
        let before = node.durable();
        assert!(node.broker().alter_scram(&changes[..MANY]).iter().all(|(_, outcome)| outcome.is_ok()));
        node.durable() == before
    };
    assert!((0..20).any(writes_nothing));
    let with_keys =
        |node: &Node| node.broker().security().users().iter().filter(|user| user.scram().iter().count() == 1).count();
    assert_eq!(with_keys(&node), MANY);
    node.stop();
    let node = Node::start(folder.path(), &[]);
    assert_eq!(with_keys(&node), MANY, "also after a restart");
    node.stop();
}
