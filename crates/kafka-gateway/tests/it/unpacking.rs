//! Batches that unpack to much: a network thread, which here is the test's, unpacks little of them, and what another thread has looked into is
//! appended in order.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use kafka_gateway::CloseReason;
use kafka_wire::ErrorCode;
use kafka_wire::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse};
use kafka_wire::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
};
use kafka_wire::{Records, Str};
use record::{BatchBuilder, BatchHeader, Compression, unpacked_bytes};

use crate::node::{CREATE_TOPICS, Node, PRODUCE, batch, flexible, partitions, wants};

/// What a request may unpack on a network thread, and what comes out of a codec at once.
const HERE: u64 = (1 << 20) + (64 << 10);

fn create(node: &mut Node, client: usize, name: &str, configs: &[(&str, &str)]) {
    let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
        name: (*name).into(),
        value: Some((*value).into()),
        ..Default::default()
    };
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: 100,
        replication_factor: 1,
        configs: configs.iter().map(config).collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..CreateTopicsRequest::default() };
    node.send(client, CREATE_TOPICS, 0, |writer| request.encode(writer, CREATE_TOPICS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        CreateTopicsResponse::decode(&mut flexible(CREATE_TOPICS, body), CREATE_TOPICS.1).expect("an answer");
    assert_eq!(response.topics[0].error_code, 0, "created");
}

/// Records with keys that unpack to `mebibytes`, and one behind them of this time.
fn large(mebibytes: usize, last: i64) -> Bytes {
    let now = now();
    let value = vec![b'x'; 1 << 10];
    let add = |batch: BatchBuilder, _| batch.record(now, Some(b"key"), Some(&value));
    (0..mebibytes << 10)
        .fold(BatchBuilder::default().compression(Compression::Zstd), add)
        .record(last, Some(b"key"), None)
        .build()
}

fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is after 1970").as_millis() as i64
}

fn send(node: &mut Node, client: usize, acks: i16, topic: &str, batches: &[(i32, Bytes)]) -> Result<(), CloseReason> {
    let data = |(index, batch): &(i32, Bytes)| PartitionProduceData {
        index: *index,
        records: Some(Records(vec![batch.clone()])),
        ..Default::default()
    };
    let topic = TopicProduceData {
        name: Str::from(topic),
        partition_data: batches.iter().map(data).collect(),
        ..Default::default()
    };
    let request = ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![topic], ..ProduceRequest::default() };
    node.send(client, PRODUCE, 7, |writer| request.encode(writer, PRODUCE.1))
}

fn produce(node: &mut Node, client: usize, topic: &str, batches: &[(i32, Bytes)]) -> Vec<PartitionProduceResponse> {
    send(node, client, -1, topic, batches).expect("taken");
    let (_, body) = node.answer(client);
    let response = ProduceResponse::decode(&mut flexible(PRODUCE, body), PRODUCE.1).expect("an answer");
    response.responses.into_iter().next().expect("a topic").partition_responses
}

#[test]
fn records_whose_time_is_out_of_range_are_named_by_another_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    create(&mut node, client, "t", &[]);
    let bad = large(3, now() + 7_200_000);
    assert!(bad.len() < 16 << 10);
    let batches: Vec<(i32, Bytes)> =
        (0..40).map(|partition| (partition, bad.clone())).chain([(50, batch(1))]).collect();
    let before = unpacked_bytes();
    let answers = produce(&mut node, client, "t", &batches);
    assert!(unpacked_bytes() - before <= HERE, "{} bytes on the network thread", unpacked_bytes() - before);
    assert!(node.broker().unpacking().counts().bytes.load(Ordering::Relaxed) >= 40 * (3 << 20));
    for answer in &answers[..40] {
        let named: Vec<i32> = answer.record_errors.iter().map(|error| error.batch_index).collect();
        assert_eq!(
            (answer.error_code, &named[..]),
            (ErrorCode::InvalidTimestamp.code(), &[3 << 10][..]),
            "partition {}",
            answer.index
        );
    }
    assert_eq!(
        (answers[40].index, answers[40].error_code, answers[40].base_offset),
        (50, 0, 0),
        "what is behind them is appended"
    );
    node.stop();
}

#[test]
fn what_another_thread_looks_into_is_appended_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (client, other) = (node.connect(), node.connect());
    create(&mut node, client, "t", &[("cleanup.policy", "compact")]);
    let keyed = || BatchBuilder::default().record(now(), Some(b"key"), Some(b"small")).build();
    let before = unpacked_bytes();
    send(&mut node, client, -1, "t", &[(0, large(3, now())), (0, keyed()), (1, keyed())]).expect("taken");
    assert!(!node.session(client).wants_read(), "what follows is read when this is appended");
    assert!(node.session(other).wants_read());
    assert_eq!(produce(&mut node, other, "t", &[(2, keyed())])[0].error_code, 0, "others are served meanwhile");
    let (_, body) = node.answer(client);
    let response = ProduceResponse::decode(&mut flexible(PRODUCE, body), PRODUCE.1).expect("an answer");
    let of = |at: usize| {
        (
            response.responses[0].partition_responses[at].error_code,
            response.responses[0].partition_responses[at].base_offset,
        )
    };
    assert_eq!((of(0), of(1), of(2)), ((0, 0), (0, (3 << 10) + 1), (0, 0)));
    assert!(node.session(client).wants_read());
    assert_eq!(produce(&mut node, client, "t", &[(0, keyed())])[0].base_offset, (3 << 10) + 2);
    // Small ones are looked into at once.
    let turns = node.broker().unpacking().counts().turns.load(Ordering::Relaxed);
    let small = BatchBuilder::default().compression(Compression::Zstd).record(now(), None, Some(b"no key")).build();
    assert_eq!(produce(&mut node, client, "t", &[(0, small)])[0].error_code, ErrorCode::InvalidRecord.code());
    assert_eq!(node.broker().unpacking().counts().turns.load(Ordering::Relaxed), turns);
    assert!(unpacked_bytes() - before <= HERE);
    node.stop();
}

#[test]
fn batches_that_unpack_to_more_than_may_be_are_too_large() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("mainstem.batch.unpacked.max.bytes", "2097152")]);
    let client = node.connect();
    create(&mut node, client, "keys", &[("cleanup.policy", "compact")]);
    create(&mut node, client, "packed", &[("compression.type", "gzip")]);
    create(&mut node, client, "plain", &[]);
    for (topic, codes) in [
        ("keys", [ErrorCode::MessageTooLarge.code(), 0]),
        ("packed", [ErrorCode::MessageTooLarge.code(), 0]),
        ("plain", [0, 0]),
    ] {
        let answers = produce(&mut node, client, topic, &[(0, large(3, now())), (1, large(1, now()))]);
        assert_eq!([answers[0].error_code, answers[1].error_code], codes, "{topic}");
    }
    node.stop();
}

#[test]
fn batches_are_packed_again_by_another_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    create(&mut node, client, "t", &[("compression.type", "gzip")]);
    let value = vec![b'x'; 500_000];
    let plain = BatchBuilder::default().record(now(), None, Some(&value)).build();
    assert_eq!(produce(&mut node, client, "t", &[(0, plain), (1, batch(3))])[0].error_code, 0);
    assert!(node.broker().unpacking().counts().turns.load(Ordering::Relaxed) >= 2);
    let fetched = node.fetch(client, &wants("t", &[(0, 0), (1, 0)]));
    let sizes = partitions(&fetched);
    assert!(sizes[0].2 < 10_000, "{sizes:?}");
    for partition in &fetched.responses[0].partitions {
        let bytes = partition.records.as_ref().expect("records").to_bytes();
        assert_eq!(BatchHeader::parse(&bytes).expect("a batch").compression(), Some(Compression::Gzip));
    }
    node.stop();
}

#[test]
fn who_wants_no_answers_gets_none_and_learns_of_a_refusal_by_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    create(&mut node, client, "t", &[("cleanup.policy", "compact")]);
    send(&mut node, client, 0, "t", &[(0, large(3, now()))]).expect("taken");
    let keyed = BatchBuilder::default().record(now(), Some(b"key"), Some(b"small")).build();
    while !node.session(client).wants_read() {
        assert!(node.poll(client).is_none());
        std::thread::yield_now();
    }
    let answers = produce(&mut node, client, "t", &[(0, keyed)]);
    assert_eq!((answers[0].error_code, answers[0].base_offset), (0, (3 << 10) + 1), "it was appended");
    let keyless =
        BatchBuilder::default().compression(Compression::Zstd).record(now(), None, Some(&vec![b'x'; 3 << 20])).build();
    send(&mut node, client, 0, "t", &[(0, keyless)]).expect("taken");
    while !node.session(client).is_idle() {
        assert!(node.poll(client).is_none());
        std::thread::yield_now();
    }
    assert!(matches!(node.refusal(client), Some(CloseReason::Unanswered("INVALID_RECORD"))));
    node.stop();
}
