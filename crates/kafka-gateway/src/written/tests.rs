//! What is written in parts is what is written as a whole, in pieces that are bounded.

use kafka_wire::describe_configs::{DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult};
use kafka_wire::describe_transactions::{DescribeTransactionsResponse, TopicData, TransactionState as Described};
use kafka_wire::list_transactions::{ListTransactionsResponse, TransactionState as Listed};

use super::*;

fn bytes(body: &dyn Body, version: i16) -> Vec<u8> {
    let mut writer = Writer::new();
    body.encode(&mut writer, version);
    writer.finish().concat()
}

fn of_groups(count: usize) -> Vec<DescribeConfigsResult> {
    let config = |number: usize| DescribeConfigsResourceResult {
        name: format!("setting-{number}").into(),
        value: Some("x".repeat(100).into()),
        ..Default::default()
    };
    let group = |number: usize| DescribeConfigsResult {
        resource_type: 32,
        resource_name: format!("g{number}").into(),
        configs: (0..20).map(config).collect(),
        ..Default::default()
    };
    (0..count).map(group).collect()
}

#[test]
fn what_is_written_in_parts_is_what_is_written_as_a_whole() {
    for count in [0, 1, 3, 200, 2_000] {
        for version in 1..=4 {
            let results = of_groups(count);
            let mut parts = Parts::default();
            results.iter().for_each(|result| parts.add(|writer| result.encode(writer, version)));
            let mut written = parts.of(DescribeConfigsResponse::default());
            written.set_throttle(7);
            let whole = DescribeConfigsResponse { throttle_time_ms: 7, results, ..Default::default() };
            assert!(bytes(&written, version) == bytes(&whole, version), "{count} in version {version}");
        }
    }
}

#[test]
fn lists_of_transactions_are() {
    for version in 0..=2 {
        for transaction_states in [
            Vec::new(),
            vec![
                Listed {
                    transactional_id: "a".into(),
                    producer_id: 7,
                    transaction_state: "Empty".into(),
                    ..Default::default()
                };
                200
            ],
        ] {
            let mut parts = Parts::default();
            transaction_states.iter().for_each(|one| parts.add(|writer| one.encode(writer, version)));
            let unknown_state_filters = vec!["odd".into()];
            let written = parts.of(ListTransactionsResponse {
                unknown_state_filters: unknown_state_filters.clone(),
                ..Default::default()
            });
            let whole = ListTransactionsResponse { unknown_state_filters, transaction_states, ..Default::default() };
            assert_eq!(bytes(&written, version), bytes(&whole, version));
        }
    }
    let described = Described {
        transactional_id: "a".into(),
        topics: vec![TopicData { topic: "t".into(), partitions: vec![1, 2], ..Default::default() }],
        ..Default::default()
    };
    let mut parts = Parts::default();
    (0..200).for_each(|_| parts.add(|writer| described.encode(writer, 0)));
    assert_eq!(
        parts.bytes(),
        200 * {
            let mut writer = Writer::new();
            described.encode(&mut writer, 0);
            writer.len()
        }
    );
    let whole = DescribeTransactionsResponse { transaction_states: vec![described; 200], ..Default::default() };
    assert_eq!(bytes(&parts.of(DescribeTransactionsResponse::default()), 0), bytes(&whole, 0));
}

#[test]
fn parts_count_from_when_they_are_written_until_the_answer_is_gone() {
    let pinned = Pinned::new(1 << 30);
    let mut parts = Parts::counted(&pinned);
    for (number, result) in of_groups(100).iter().enumerate() {
        parts.add(|writer| result.encode(writer, 4));
        assert!(pinned.used() == parts.bytes() && parts.bytes() > 2_000 * (number + 1));
    }
    let (bytes, answer) = (parts.bytes(), parts.of(DescribeConfigsResponse::default()));
    assert_eq!(pinned.used(), bytes);
    drop(answer);
    assert_eq!(pinned.used(), 0);
}

/// No piece holds more than it has, however long the list is.
#[test]
fn pieces_are_bounded() {
    let mut parts = Parts::default();
    of_groups(3_000).iter().for_each(|result| parts.add(|writer| result.encode(writer, 4)));
    let written = parts.of(DescribeConfigsResponse::default());
    assert!(
        written.pieces.len() > 3 && written.pieces.iter().all(|piece| piece.len() <= PIECE_BYTES),
        "{} pieces",
        written.pieces.len()
    );
}
