//! A node that ends answers what waits for others at once, and what waits for the disk when it is there.

use kafka_wire::ErrorCode;
use kafka_wire::fetch::FetchRequest;
use kafka_wire::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};

use crate::node::{Node, batch, fetched, flexible, partitions, produced, wants};

const JOIN_GROUP: (i16, i16) = (11, 6);

#[test]
fn long_polls_are_answered_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("group.initial.rebalance.delay.ms", "60000")]);
    let (reader, member, producer) = (node.connect(), node.connect(), node.connect());
    node.create_topic(reader, "t", 1);
    node.send_fetch(reader, 5, &FetchRequest { max_wait_ms: 60_000, min_bytes: 1, ..wants("t", &[(0, 0)]) });
    let join = |member_id: &str| JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        member_id: member_id.into(),
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), ..JoinGroupRequestProtocol::default() }],
        ..JoinGroupRequest::default()
    };
    // The first time a member is only given a name.
    node.send(member, JOIN_GROUP, 1, |writer| join("").encode(writer, JOIN_GROUP.1)).expect("taken");
    let named =
        JoinGroupResponse::decode(&mut flexible(JOIN_GROUP, node.answer(member).1), JOIN_GROUP.1).expect("an answer");
    node.send(member, JOIN_GROUP, 2, |writer| join(&named.member_id).encode(writer, JOIN_GROUP.1)).expect("taken");
    node.send_produce(producer, 3, "t", 0, batch(1));
    assert!(node.poll(member).is_none(), "it waits for other members");
    (0..3).for_each(|client| node.drain(client));
    let (_, body) = node.answer(producer);
    assert_eq!(produced(body), (0, 0), "what was sent is acknowledged");
    let (correlation, body) = node.answer(reader);
    let found = partitions(&fetched(body));
    assert_eq!((correlation, found[0].1), (5, 0));
    let (correlation, body) = node.answer(member);
    let answer = JoinGroupResponse::decode(&mut flexible(JOIN_GROUP, body), JOIN_GROUP.1).expect("an answer");
    assert_eq!((correlation, answer.error_code), (2, ErrorCode::CoordinatorNotAvailable.code()));
    assert!((0..3).all(|client| node.session(client).is_idle()), "nothing is left to be answered");
    node.stop();
}
