//! Transactions over sessions: both versions of the protocol, what readers see meanwhile, offsets of groups, restarts.

use bytes::Bytes;
use kafka_wire::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic,
};
use kafka_wire::end_txn::{EndTxnRequest, EndTxnResponse};
use kafka_wire::fetch::PartitionData;
use kafka_wire::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use kafka_wire::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
};
use kafka_wire::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use kafka_wire::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic, TxnOffsetCommitResponse,
};
use kafka_wire::{ErrorCode, Records};
use record::BatchBuilder;

use crate::node::{Node, flexible, wants};

const INIT: (i16, i16) = (22, 5);
const ADD: (i16, i16) = (24, 3);
const END_V1: (i16, i16) = (26, 3);
pub const END_V2: (i16, i16) = (26, 5);
const OFFSETS: (i16, i16) = (28, 5);
const OFFSET_FETCH: (i16, i16) = (9, 8);
const PRODUCE_V1: (i16, i16) = (0, 11);
pub const PRODUCE_V2: (i16, i16) = (0, 12);

const ID: &str = "orders";
pub const DONE: i16 = 0;

pub type Producer = (i64, i16);

pub fn init(node: &mut Node, client: usize) -> (i16, Producer) {
    init_of(node, client, ID, 60_000)
}

pub fn init_of(node: &mut Node, client: usize, id: &str, timeout: i32) -> (i16, Producer) {
    let request = InitProducerIdRequest {
        transactional_id: Some(id.into()),
        transaction_timeout_ms: timeout,
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdRequest::default()
    };
    node.send(client, INIT, 1, |writer| request.encode(writer, INIT.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = InitProducerIdResponse::decode(&mut flexible(INIT, body), INIT.1).expect("an answer");
    (response.error_code, (response.producer_id, response.producer_epoch))
}

pub fn batch((id, epoch): Producer, sequence: i32) -> Bytes {
    BatchBuilder::default().producer(id, epoch, sequence).transactional().record(1, None, Some(b"one")).build()
}

/// Error code and offset.
fn produce(node: &mut Node, client: usize, api: (i16, i16), partition: i32, batch: Bytes) -> (i16, i64) {
    produce_of(node, client, ID, api, partition, batch)
}

pub fn produce_of(
    node: &mut Node,
    client: usize,
    id: &str,
    api: (i16, i16),
    partition: i32,
    batch: Bytes,
) -> (i16, i64) {
    let data = PartitionProduceData {
        index: partition,
        records: Some(Records(vec![batch])),
        ..PartitionProduceData::default()
    };
    let topic = TopicProduceData { name: "t".into(), partition_data: vec![data], ..TopicProduceData::default() };
    let request = ProduceRequest {
        transactional_id: Some(id.into()),
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..ProduceRequest::default()
    };
    node.send(client, api, 2, |writer| request.encode(writer, api.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = ProduceResponse::decode(&mut flexible(api, body), api.1).expect("an answer");
    let answer = &response.responses[0].partition_responses[0];
    (answer.error_code, answer.base_offset)
}

fn add(node: &mut Node, client: usize, producer: Producer, partitions: &[i32]) -> Vec<i16> {
    let request = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: ID.into(),
        v3_and_below_producer_id: producer.0,
        v3_and_below_producer_epoch: producer.1,
        v3_and_below_topics: vec![AddPartitionsToTxnTopic {
            name: "t".into(),
            partitions: partitions.to_vec(),
            ..Default::default()
        }],
        ..AddPartitionsToTxnRequest::default()
    };
    node.send(client, ADD, 3, |writer| request.encode(writer, ADD.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = AddPartitionsToTxnResponse::decode(&mut flexible(ADD, body), ADD.1).expect("an answer");
    response.results_by_topic_v3_and_below[0].results_by_partition.iter().map(|one| one.partition_error_code).collect()
}

fn end(node: &mut Node, client: usize, api: (i16, i16), producer: Producer, committed: bool) -> (i16, Producer) {
    end_of(node, client, ID, api, producer, committed)
}

pub fn end_of(
    node: &mut Node,
    client: usize,
    id: &str,
    api: (i16, i16),
    producer: Producer,
    committed: bool,
) -> (i16, Producer) {
    let request = EndTxnRequest {
        transactional_id: id.into(),
        producer_id: producer.0,
        producer_epoch: producer.1,
        committed,
        ..EndTxnRequest::default()
    };
    node.send(client, api, 4, |writer| request.encode(writer, api.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = EndTxnResponse::decode(&mut flexible(api, body), api.1).expect("an answer");
    (response.error_code, (response.producer_id, response.producer_epoch))
}

/// What a reader of committed records, or of all, gets of partition 0 from an offset on.
fn read(node: &mut Node, client: usize, offset: i64, committed_only: bool) -> PartitionData {
    read_of(node, client, 0, offset, committed_only)
}

pub fn read_of(node: &mut Node, client: usize, partition: i32, offset: i64, committed_only: bool) -> PartitionData {
    let mut request = wants("t", &[(partition, offset)]);
    request.isolation_level = i8::from(committed_only);
    node.fetch(client, &request).responses.remove(0).partitions.remove(0)
}

fn bytes(data: &PartitionData) -> usize {
    data.records.as_ref().map_or(0, Records::len)
}

pub fn commit_offset(node: &mut Node, client: usize, producer: Producer, offset: i64) -> i16 {
    commit_offsets(
        node,
        client,
        producer,
        vec![TxnOffsetCommitRequestPartition { committed_offset: offset, ..Default::default() }],
    )
}

/// Offsets of partitions of "t"; the code of the first.
fn commit_offsets(
    node: &mut Node,
    client: usize,
    producer: Producer,
    partitions: Vec<TxnOffsetCommitRequestPartition>,
) -> i16 {
    let request = TxnOffsetCommitRequest {
        transactional_id: ID.into(),
        group_id: "readers".into(),
        producer_id: producer.0,
        producer_epoch: producer.1,
        generation_id: -1,
        topics: vec![TxnOffsetCommitRequestTopic { name: "t".into(), partitions, ..Default::default() }],
        ..TxnOffsetCommitRequest::default()
    };
    node.send(client, OFFSETS, 5, |writer| request.encode(writer, OFFSETS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = TxnOffsetCommitResponse::decode(&mut flexible(OFFSETS, body), OFFSETS.1).expect("an answer");
    response.topics[0].partitions[0].error_code
}

/// Error code and committed offset.
pub fn committed(node: &mut Node, client: usize, stable: bool) -> (i16, i64) {
    let topic = OffsetFetchRequestTopics { name: "t".into(), partition_indexes: vec![0], ..Default::default() };
    let group = OffsetFetchRequestGroup { group_id: "readers".into(), topics: Some(vec![topic]), ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], require_stable: stable, ..OffsetFetchRequest::default() };
    node.send(client, OFFSET_FETCH, 6, |writer| request.encode(writer, OFFSET_FETCH.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = OffsetFetchResponse::decode(&mut flexible(OFFSET_FETCH, body), OFFSET_FETCH.1).expect("an answer");
    let partition = &response.groups[0].topics[0].partitions[0];
    (partition.error_code, partition.committed_offset)
}

#[test]
fn the_second_protocol_adds_by_writing_and_raises_the_epoch() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 2);
    let (code, first) = init(&mut node, client);
    assert_eq!((code, first.1), (DONE, 0));
    assert_eq!(produce(&mut node, client, PRODUCE_V2, 0, batch(first, 0)), (DONE, 0));
    assert_eq!(produce(&mut node, client, PRODUCE_V2, 1, batch(first, 0)), (DONE, 0));
    let open = read(&mut node, client, 0, true);
    assert_eq!((bytes(&open), open.last_stable_offset, open.high_watermark), (0, 0, 1));
    assert!(bytes(&read(&mut node, client, 0, false)) > 0, "others see all records");

    let (code, second) = end(&mut node, client, END_V2, first, true);
    assert_eq!((code, second), (DONE, (first.0, 1)));
    assert_eq!(end(&mut node, client, END_V2, first, true), (DONE, second), "sent again");
    let done = read(&mut node, client, 0, true);
    assert_eq!((done.last_stable_offset, done.high_watermark), (2, 2));
    assert!(bytes(&done) > 0 && done.aborted_transactions.is_some_and(|aborted| aborted.is_empty()));

    assert_eq!(produce(&mut node, client, PRODUCE_V2, 0, batch(first, 1)).0, ErrorCode::InvalidProducerEpoch.code());
    assert_eq!(produce(&mut node, client, PRODUCE_V2, 0, batch(second, 0)), (DONE, 2));
    let (code, third) = end(&mut node, client, END_V2, second, false);
    assert_eq!((code, third.1), (DONE, 2));
    let aborted = read(&mut node, client, 0, true).aborted_transactions.expect("a list");
    assert_eq!(aborted.iter().map(|one| (one.producer_id, one.first_offset)).collect::<Vec<_>>(), [(first.0, 2)]);
    assert_eq!(end(&mut node, client, END_V2, third, true).0, ErrorCode::InvalidTxnState.code(), "nothing was written");
    node.stop();
}

#[test]
fn the_first_protocol_asks_before_it_writes_and_keeps_the_epoch() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 2);
    let (_, producer) = init(&mut node, client);
    assert_eq!(produce(&mut node, client, PRODUCE_V1, 0, batch(producer, 0)).0, ErrorCode::TransactionAbortable.code());
    let unknown = [ErrorCode::OperationNotAttempted.code(), ErrorCode::UnknownTopicOrPartition.code()];
    assert_eq!(add(&mut node, client, producer, &[0, 7]), unknown);
    assert_eq!(add(&mut node, client, producer, &[0]), [DONE]);
    assert_eq!(produce(&mut node, client, PRODUCE_V1, 0, batch(producer, 0)), (DONE, 0));
    assert_eq!(produce(&mut node, client, PRODUCE_V1, 1, batch(producer, 0)).0, ErrorCode::TransactionAbortable.code());
    assert_eq!(end(&mut node, client, END_V1, producer, true).0, DONE);
    assert_eq!(end(&mut node, client, END_V1, producer, true).0, DONE, "sent again");
    assert_eq!(end(&mut node, client, END_V1, producer, false).0, ErrorCode::InvalidTxnState.code());
    assert_eq!(
        produce(&mut node, client, PRODUCE_V1, 0, batch(producer, 1)).0,
        ErrorCode::TransactionAbortable.code(),
        "too late"
    );
    assert_eq!(add(&mut node, client, producer, &[0]), [DONE]);
    assert_eq!(produce(&mut node, client, PRODUCE_V1, 0, batch(producer, 1)), (DONE, 2), "the sequence goes on");
    assert_eq!(add(&mut node, client, (producer.0, 7), &[0]), [ErrorCode::ProducerFenced.code()]);
    assert_eq!(add(&mut node, client, (99, 0), &[0]), [ErrorCode::InvalidProducerIdMapping.code()]);
    node.stop();
}

#[test]
fn a_restart_finds_what_was_under_way_and_a_new_producer_aborts_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let (_, first) = init(&mut node, client);
    assert_eq!(produce(&mut node, client, PRODUCE_V2, 0, batch(first, 0)), (DONE, 0));
    node.stop();

    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    assert_eq!(read(&mut node, client, 0, true).last_stable_offset, 0);
    assert_eq!(produce(&mut node, client, PRODUCE_V2, 0, batch(first, 1)), (DONE, 1), "it goes on");
    let mut attempts = 0;
    let second = loop {
        match init(&mut node, client) {
            (DONE, producer) => break producer,
            (code, _) => assert_eq!(code, ErrorCode::ConcurrentTransactions.code()),
        }
        attempts += 1;
        assert!(attempts < 1000, "the abort ends");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert!(attempts > 0 && second == (first.0, 2), "{attempts} {second:?}");
    let read = read(&mut node, client, 0, true);
    assert_eq!((read.last_stable_offset, read.aborted_transactions.map(|aborted| aborted.len())), (3, Some(1)));
    assert_eq!(end(&mut node, client, END_V2, first, true).0, ErrorCode::ProducerFenced.code());
    node.stop();
}

#[test]
fn offsets_take_effect_with_the_commit_and_only_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let (_, mut producer) = init(&mut node, client);
    for (number, commits) in [(10, false), (20, true), (30, false)] {
        let before = committed(&mut node, client, false);
        assert_eq!(commit_offset(&mut node, client, producer, number), DONE);
        assert_eq!(committed(&mut node, client, false), before);
        assert_eq!(committed(&mut node, client, true), (ErrorCode::UnstableOffsetCommit.code(), -1));
        node.stop();
        node = Node::start(folder.path(), &[]);
        assert_eq!(node.connect(), client, "the first");
        assert_eq!(
            committed(&mut node, client, true).0,
            ErrorCode::UnstableOffsetCommit.code(),
            "also after a restart"
        );
        let (code, next) = end(&mut node, client, END_V2, producer, commits);
        assert_eq!(code, DONE);
        producer = next;
        let expected = if commits { number } else { before.1 };
        assert_eq!(committed(&mut node, client, true), (DONE, expected));
    }
    node.stop();
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    assert_eq!(committed(&mut node, client, true), (DONE, 20));
    node.stop();
}

#[test]
fn a_transaction_that_would_not_fit_into_a_segment_is_refused_what_is_too_much_and_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1_000);
    let (_, mut producer) = init(&mut node, client);
    for committed in [false, true] {
        assert_eq!(produce(&mut node, client, PRODUCE_V2, 0, batch(producer, 0)).0, DONE);
        let metadata = "m".repeat(4_000);
        let long = |partition_index| TxnOffsetCommitRequestPartition {
            partition_index,
            committed_offset: 1,
            committed_metadata: Some(metadata.as_str().into()),
            ..Default::default()
        };
        let codes: Vec<i16> = (0..20)
            .map(|number| {
                commit_offsets(&mut node, client, producer, (10 * number..10 * number + 10).map(long).collect())
            })
            .collect();
        let taken = codes.iter().take_while(|code| **code == DONE).count();
        assert!((1..10).contains(&taken), "a segment has 1 MiB: {codes:?}");
        assert!(codes[taken..].iter().all(|code| *code == ErrorCode::PolicyViolation.code()), "{codes:?}");
        let before = read(&mut node, client, 0, false).high_watermark;
        let (code, next) = end(&mut node, client, END_V2, producer, committed);
        assert_eq!((code, read(&mut node, client, 0, false).high_watermark), (DONE, before + 1), "one marker");
        producer = next;
    }
    node.stop();
}

#[test]
fn records_of_a_transaction_need_its_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let (_, producer) = init(&mut node, client);
    let refused = node.produce(client, "t", 0, batch(producer, 0)).0;
    assert_eq!(refused, ErrorCode::TransactionalIdAuthorizationFailed.code());
    assert_eq!(
        produce(&mut node, client, PRODUCE_V2, 0, batch((99, 0), 0)).0,
        ErrorCode::InvalidProducerIdMapping.code()
    );
    node.stop();
}

#[test]
fn ids_beyond_their_memory_are_refused_and_come_back_at_a_start_whatever_they_take() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let id = |number: usize| format!("{number}{}", "i".repeat(30_000));
    node.broker().transactions().set_bytes_max(200_000);
    let codes: Vec<i16> = (0..5).map(|number| init_of(&mut node, client, &id(number), 60_000).0).collect();
    assert_eq!(codes, [0, 0, 0, ErrorCode::PolicyViolation.code(), ErrorCode::PolicyViolation.code()]);
    assert_eq!(init_of(&mut node, client, &id(0), 60_000).0, 0, "it is there");
    let (bytes, refused) = node.broker().transactions().memory();
    assert!(bytes < 200_000 && refused == 2, "{bytes} {refused}");
    node.stop();
    let mut node = Node::start(folder.path(), &[]);
    node.broker().transactions().set_bytes_max(1000);
    let client = node.connect();
    assert_eq!(node.broker().transactions().memory().0, bytes);
    assert_eq!(init_of(&mut node, client, &id(2), 60_000).0, 0, "it is there");
    assert_eq!(init_of(&mut node, client, &id(3), 60_000).0, ErrorCode::PolicyViolation.code());
    node.stop();
}
