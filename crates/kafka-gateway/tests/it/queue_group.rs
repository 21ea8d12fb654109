//! The group of all queues is the broker's own, and a topic to which a queue is attached is used as the queue.

use broker::{Caller, PasswordWish, Permissions, QUEUE_GROUP, QueueDeclaration, UserWish};
use kafka_wire::consumer_group_heartbeat::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use kafka_wire::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
use kafka_wire::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use kafka_wire::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use kafka_wire::share_group_heartbeat::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use kafka_wire::{ErrorCode, Str};
use routing::{Arguments, Name};

use crate::node::{Node, batch, fetched, flexible, partitions, wants};

const JOIN: (i16, i16) = (11, 7);
const COMMIT: (i16, i16) = (8, 8);
const HEARTBEAT: (i16, i16) = (68, 1);
const SHARE_HEARTBEAT: (i16, i16) = (76, 1);
const DELETE: (i16, i16) = (42, 2);
const DENIED: i16 = ErrorCode::GroupAuthorizationFailed.code();
/// As if there were no such topic.
const ABSENT: i16 = ErrorCode::UnknownTopicOrPartition.code();

fn declare(node: &Node, queue: &str) {
    let vhost = node.broker().vhosts().get("/").expect("it is always there");
    let name = Name::new(queue.as_bytes()).expect("a short name");
    let wish =
        QueueDeclaration { name, durable: true, owner: None, auto_delete: false, arguments: Arguments::default() };
    node.broker().declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
}

fn user(node: &Node, name: &str, permissions: &str) {
    let wish = UserWish { name: name.to_owned(), password: PasswordWish::Remove, tags: None, limits: None };
    node.broker().put_user(wish).expect("added");
    node.broker()
        .set_permissions("/", name, Permissions::new(permissions, permissions, permissions).expect("expressions"))
        .expect("set");
}

/// How each way to be a member, or to leave offsets, ends.
fn tries(node: &mut Node, client: usize, group: &str) -> [i16; 3] {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), ..JoinGroupRequestProtocol::default() };
    let join = JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..JoinGroupRequest::default()
    };
    node.send(client, JOIN, 1, |writer| join.encode(writer, JOIN.1)).expect("taken");
    let joined =
        JoinGroupResponse::decode(&mut flexible(JOIN, node.answer(client).1), JOIN.1).expect("an answer").error_code;
    let partition = OffsetCommitRequestPartition { committed_leader_epoch: -1, ..Default::default() };
    let topic = OffsetCommitRequestTopic { name: "t".into(), partitions: vec![partition], ..Default::default() };
    let commit = OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..OffsetCommitRequest::default()
    };
    node.send(client, COMMIT, 1, |writer| commit.encode(writer, COMMIT.1)).expect("taken");
    let committed =
        OffsetCommitResponse::decode(&mut flexible(COMMIT, node.answer(client).1), COMMIT.1).expect("an answer");
    let heartbeat = ConsumerGroupHeartbeatRequest {
        group_id: group.into(),
        member_id: "m".into(),
        rebalance_timeout_ms: 10_000,
        subscribed_topic_names: Some(vec![Str::from("t")]),
        topic_partitions: Some(Vec::new()),
        ..ConsumerGroupHeartbeatRequest::default()
    };
    node.send(client, HEARTBEAT, 1, |writer| heartbeat.encode(writer, HEARTBEAT.1)).expect("taken");
    let heard = ConsumerGroupHeartbeatResponse::decode(&mut flexible(HEARTBEAT, node.answer(client).1), HEARTBEAT.1)
        .expect("an answer")
        .error_code;
    [joined, committed.topics[0].partitions[0].error_code, heard]
}

fn share(node: &mut Node, client: usize, topic: &str) -> i16 {
    let request = ShareGroupHeartbeatRequest {
        group_id: QUEUE_GROUP.into(),
        member_id: topic.into(),
        subscribed_topic_names: Some(vec![Str::from(topic)]),
        ..ShareGroupHeartbeatRequest::default()
    };
    node.send(client, SHARE_HEARTBEAT, 1, |writer| request.encode(writer, SHARE_HEARTBEAT.1)).expect("taken");
    let (_, body) = node.answer(client);
    ShareGroupHeartbeatResponse::decode(&mut flexible(SHARE_HEARTBEAT, body), SHARE_HEARTBEAT.1)
        .expect("an answer")
        .error_code
}

#[test]
fn the_group_of_all_queues_is_a_share_group_for_queues_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    assert_eq!(tries(&mut node, client, QUEUE_GROUP), [DENIED; 3]);
    assert_ne!(tries(&mut node, client, "other"), [DENIED; 3]);
    assert_eq!(share(&mut node, client, "t"), DENIED, "it is no queue");
    declare(&node, "q");
    assert_eq!(share(&mut node, client, "q"), 0);
    user(&node, "CN=bob", ".*");
    user(&node, "CN=eve", "^eve");
    let delete = |node: &mut Node, name: &str| {
        let client = node.connect();
        node.set_certified(client, name);
        let request = DeleteGroupsRequest { groups_names: vec![QUEUE_GROUP.into()], ..DeleteGroupsRequest::default() };
        node.send(client, DELETE, 1, |writer| request.encode(writer, DELETE.1)).expect("taken");
        DeleteGroupsResponse::decode(&mut flexible(DELETE, node.answer(client).1), DELETE.1).expect("an answer").results
            [0]
        .error_code
    };
    assert_eq!(delete(&mut node, "CN=bob"), DENIED);
    let eve = node.connect();
    node.set_certified(eve, "CN=eve");
    assert_eq!(
        (tries(&mut node, eve, QUEUE_GROUP), share(&mut node, eve, "q")),
        ([DENIED; 3], DENIED),
        "of no queue of hers"
    );
    node.stop();
}

fn fetch(node: &mut Node, client: usize) -> (i16, usize) {
    let response = node.fetch(client, &wants("pay", &[(0, 0)]));
    let (_, code, bytes) = partitions(&response)[0];
    (code, bytes)
}

/// Who made a topic under the name that a queue gets is no reader of what is published there.
#[test]
fn a_topic_to_which_a_queue_is_attached_is_used_by_permissions_for_the_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    user(&node, "CN=vic", ".*");
    let (anonymous, waiting, vic) = (node.connect(), node.connect(), node.connect());
    node.set_certified(vic, "CN=vic");
    node.create_topic(anonymous, "pay", 1);
    assert_eq!(fetch(&mut node, anonymous), (0, 0));
    // It waits when the queue comes.
    let patient = kafka_wire::fetch::FetchRequest { max_wait_ms: 300_000, ..wants("pay", &[(0, 0)]) };
    node.send_fetch(waiting, 1, &patient);
    assert!(node.poll(waiting).is_none());
    declare(&node, "pay");
    assert_eq!(node.produce(vic, "pay", 0, batch(1)).0, 0);
    let answer = fetched(node.answer(waiting).1);
    assert_eq!((partitions(&answer)[0].1, partitions(&answer)[0].2), (ABSENT, 0));
    assert_eq!((fetch(&mut node, anonymous).0, node.produce(anonymous, "pay", 0, batch(1)).0), (ABSENT, ABSENT));
    assert!(matches!(fetch(&mut node, vic), (0, bytes) if bytes > 0));
    node.stop();
    // And after a restart.
    let mut node = Node::start(folder.path(), &[]);
    let anonymous = node.connect();
    assert_eq!(fetch(&mut node, anonymous).0, ABSENT);
    node.stop();
    // Where entries count they say who may use it, whoever attaches a queue.
    let folder = tempfile::tempdir().expect("a folder");
    let entries = [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("allow.everyone.if.no.acl.found", "true"),
    ];
    let mut node = Node::start(folder.path(), &entries);
    user(&node, "CN=vic", ".*");
    let anonymous = node.connect();
    node.create_topic(anonymous, "pay", 1);
    declare(&node, "pay");
    assert_eq!(fetch(&mut node, anonymous).0, 0);
    node.stop();
}
