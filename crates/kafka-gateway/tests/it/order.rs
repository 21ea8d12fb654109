//! Answers leave in the order of the requests, whatever is ready first.

use kafka_wire::api_versions::ApiVersionsRequest;
use kafka_wire::fetch::FetchRequest;

use crate::node::{Node, batch, produced, wants};

#[test]
fn pipelined_requests_are_answered_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    for correlation in 1..=5 {
        node.send_produce(client, correlation, "t", 0, batch(1));
    }
    // This one needs nobody, and waits for the others all the same.
    node.send(client, (18, 3), 6, |writer| ApiVersionsRequest::default().encode(writer, 3)).expect("taken");
    let mut seen = Vec::new();
    while seen.len() < 6 {
        let (correlation, body) = node.answer(client);
        if correlation < 6 {
            assert_eq!(produced(body), (0, i64::from(correlation) - 1));
        }
        seen.push(correlation);
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
    node.stop();
}

#[test]
fn a_long_poll_of_one_connection_holds_back_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (waiting, busy) = (node.connect(), node.connect());
    node.create_topic(waiting, "t", 1);
    node.create_topic(waiting, "other", 1);
    node.send_fetch(waiting, 1, &FetchRequest { max_wait_ms: 60_000, ..wants("t", &[(0, 0)]) });
    for number in 0..20 {
        assert_eq!(node.produce(busy, "other", 0, batch(1)), (0, number));
    }
    assert!(node.poll(waiting).is_none());
    node.stop();
}
