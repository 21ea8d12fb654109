//! What is written in parts is what is written as a whole, in pieces that are bounded.

use kafka_wire::describe_configs::{DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult};

use super::*;

fn bytes(body: &dyn Body, version: i16) -> Vec<u8> {
    let mut writer = Writer::new();
    body.encode(&mut writer, version);
    writer.finish().concat()
}

fn of_groups(count: usize) -> Vec<DescribeConfigsResult> {
    let config = |number: usize| DescribeConfigsResourceResult { name: format!("setting-{number}").into(), value: Some("x".repeat(100).into()), ..Default::default() };
    let group = |number: usize| DescribeConfigsResult { resource_type: 32, resource_name: format!("g{number}").into(), configs: (0..20).map(config).collect(), ..Default::default() };
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

/// No piece holds more than it has, however long the list is.
#[test]
fn pieces_are_bounded() {
    let mut parts = Parts::default();
    of_groups(3_000).iter().for_each(|result| parts.add(|writer| result.encode(writer, 4)));
    let written = parts.of(DescribeConfigsResponse::default());
    assert!(written.pieces.len() > 3 && written.pieces.iter().all(|piece| piece.len() <= PIECE_BYTES), "{} pieces", written.pieces.len());
}
