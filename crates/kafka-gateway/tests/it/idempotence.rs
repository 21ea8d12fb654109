//! Idempotent producers: duplicates, gaps and old epochs, also after a restart.

use kafka_wire::ErrorCode;
use record::BatchBuilder;

use crate::node::{Node, batch_of, wants};

const PRODUCER: i64 = 77;

#[test]
fn batches_sent_again_keep_their_offsets_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    for number in 0..6 {
        assert_eq!(node.produce(client, "t", 0, batch_of(PRODUCER, 0, number * 2, 2)), (0, i64::from(number) * 2));
    }
    assert_eq!(node.produce(client, "t", 0, batch_of(PRODUCER, 0, 6, 2)), (0, 6), "one of the last five");
    node.stop();
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    assert_eq!(node.produce(client, "t", 0, batch_of(PRODUCER, 0, 4, 2)), (0, 4), "remembered");
    assert_eq!(node.produce(client, "t", 0, batch_of(PRODUCER, 0, 12, 1)), (0, 12), "and it goes on");
    node.stop();
}

#[test]
fn gaps_and_old_epochs_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    assert_eq!(node.produce(client, "t", 0, batch_of(PRODUCER, 1, 0, 3)), (0, 0));
    assert_eq!(
        node.produce(client, "t", 0, batch_of(PRODUCER, 1, 4, 1)).0,
        ErrorCode::OutOfOrderSequenceNumber.code(),
        "3 is missing"
    );
    assert_eq!(node.produce(client, "t", 0, batch_of(PRODUCER, 0, 3, 1)).0, ErrorCode::InvalidProducerEpoch.code());
    assert_eq!(
        node.produce(client, "t", 0, batch_of(PRODUCER, 2, 1, 1)).0,
        ErrorCode::OutOfOrderSequenceNumber.code(),
        "an epoch begins at 0"
    );
    assert_eq!(node.produce(client, "t", 0, batch_of(PRODUCER, 2, 0, 1)), (0, 3), "nothing refused took an offset");
    node.stop();
}

#[test]
fn a_duplicate_beside_its_original_is_answered_once_both_are_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (one, other) = (node.connect(), node.connect());
    node.create_topic(one, "t", 1);
    for round in 0..50 {
        let batch = batch_of(PRODUCER, 0, round, 1);
        node.send_produce(one, 1, "t", 0, batch.clone());
        node.send_produce(other, 1, "t", 0, batch);
        for client in [one, other] {
            let (_, body) = node.answer(client);
            assert_eq!(crate::node::produced(body), (0, i64::from(round)));
        }
    }
    node.stop();
}

/// It says that the broker vouches for what records say of who sent them.
#[test]
fn nobody_sets_the_mark_of_the_broker() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let batch = || BatchBuilder::default().record(1_700_000_000_000, None, Some(b"value"));
    let marked = batch().vouched().build();
    let mut damaged = marked.to_vec();
    *damaged.last_mut().expect("a byte") ^= 1;
    assert_eq!(node.produce(client, "t", 0, damaged.into()).0, ErrorCode::CorruptMessage.code());
    // As Kafka takes it, which leaves the bit unused.
    assert_eq!(node.produce(client, "t", 0, marked), (0, 0));
    let response = node.fetch(client, &wants("t", &[(0, 0)]));
    let records = response.responses[0].partitions[0].records.as_ref().expect("records").0.concat();
    let header = record::BatchHeader::parse(&records).expect("a batch");
    assert_eq!((header.vouched(), header.crc), (false, record::crc32c(&records[21..])));
    node.stop();
}
