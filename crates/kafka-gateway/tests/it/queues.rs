//! Topics that are queues are used by permissions in the virtual host of the queue, with an authorizer and without; and who does not say who he is has
//! none once a user is defined, unless the settings say so.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{Caller, NOBODY, PasswordWish, Permissions, QueueDeclaration, UserWish, VhostWish};
use kafka_wire::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use kafka_wire::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse};
use kafka_wire::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
};
use kafka_wire::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use kafka_wire::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use kafka_wire::list_config_resources::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use kafka_wire::metadata::{MetadataRequest, MetadataResponse};
use kafka_wire::streams_group_describe::{StreamsGroupDescribeRequest, StreamsGroupDescribeResponse};
use kafka_wire::streams_group_heartbeat::{
    StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse, Subtopology, Topology,
};
use kafka_wire::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
use kafka_wire::{ErrorCode, Reader};
use record::{BatchBuilder, Compression};
use routing::{Argument, Arguments, Name, OwnedValue};

use crate::node::{Node, batch, flexible, partitions, wants};
use crate::transactions;

const AUTHORIZER: (&str, &str) = ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
/// Entries count, and there are none.
const OPEN: (&str, &str) = ("allow.everyone.if.no.acl.found", "true");
const JOIN_GROUP: (i16, i16) = (11, 3);
const SYNC_GROUP: (i16, i16) = (14, 2);
const DESCRIBE_GROUPS: (i16, i16) = (15, 5);
const METADATA: (i16, i16) = (3, 12);
const DELETE: (i16, i16) = (20, 6);
const ALTER_CONFIGS: (i16, i16) = (44, 1);
const LIST_CONFIG_RESOURCES: (i16, i16) = (74, 1);
const SHARE_OFFSETS: (i16, i16) = (90, 0);
const STREAMS_HEARTBEAT: (i16, i16) = (88, 0);
const STREAMS_DESCRIBE: (i16, i16) = (89, 0);
/// Of queue `pay` of virtual host `shop`.
const QUEUE: &str = "shop~pay";
const DENIED: i16 = 29;
/// What is said of a queue to a caller who has no permission for it: what is said where there is none.
const ABSENT: i16 = 3;

/// A node with that queue, and topic `t`.
fn start(folder: &Path, settings: &[(&str, &str)]) -> Node {
    let mut node = Node::start(folder, settings);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let broker = node.broker();
    broker.put_vhost(VhostWish { name: "shop".to_owned(), ..VhostWish::default() }).expect("made");
    let vhost = broker.vhosts().get("shop").expect("it is there");
    let name = Name::new(b"pay").expect("a short name");
    let wish =
        QueueDeclaration { name, durable: true, owner: None, auto_delete: false, arguments: Arguments::default() };
    broker.declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
    node
}

fn add(node: &Node, name: &str, permissions: Option<[&str; 3]>) {
    let tags = (name == "CN=root").then(|| vec!["administrator".to_owned()]);
    node.broker()
        .put_user(UserWish { name: name.to_owned(), password: PasswordWish::Remove, tags, limits: None })
        .expect("added");
    if let Some([configure, write, read]) = permissions {
        node.broker()
            .set_permissions("shop", name, Permissions::new(configure, write, read).expect("expressions"))
            .expect("set");
    }
}

fn connect(node: &mut Node, name: Option<&str>) -> usize {
    let client = node.connect();
    name.into_iter().for_each(|name| node.set_certified(client, name));
    client
}

fn fetch(node: &mut Node, client: usize, topic: &str) -> i16 {
    let response = node.fetch(client, &wants(topic, &[(0, 0)]));
    partitions(&response)[0].1
}

fn produce(node: &mut Node, client: usize, topic: &str) -> i16 {
    node.produce(client, topic, 0, batch(1)).0
}

/// Topics that are shown.
fn listed(node: &mut Node, client: usize) -> Vec<String> {
    let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
    node.send(client, METADATA, 1, |writer| request.encode(writer, METADATA.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = MetadataResponse::decode(&mut flexible(METADATA, body), METADATA.1).expect("an answer");
    let mut names: Vec<String> =
        response.topics.iter().filter_map(|topic| topic.name.as_ref().map(ToString::to_string)).collect();
    names.sort();
    names
}

fn delete(node: &mut Node, client: usize, topic: &str) -> i16 {
    let topics = vec![DeleteTopicState { name: Some(topic.into()), ..DeleteTopicState::default() }];
    let request = DeleteTopicsRequest { topics, timeout_ms: 30_000, ..DeleteTopicsRequest::default() };
    node.send(client, DELETE, 1, |writer| request.encode(writer, DELETE.1)).expect("taken");
    let (_, body) = node.answer(client);
    DeleteTopicsResponse::decode(&mut flexible(DELETE, body), DELETE.1).expect("an answer").responses[0].error_code
}

#[test]
fn a_queue_is_used_by_permissions_whatever_entries_say() {
    for settings in [&[][..], &[AUTHORIZER, OPEN]] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = start(folder.path(), settings);
        for (name, permissions) in [
            ("CN=root", None),
            ("CN=reader", Some(["", "", "^pay$"])),
            ("CN=writer", Some(["", "^pay$", ""])),
            ("CN=eve", None),
        ] {
            add(&node, name, permissions);
        }
        for (name, reads, writes, sees) in [
            ("CN=root", 0, 0, true),
            ("CN=reader", 0, DENIED, true),
            ("CN=writer", DENIED, 0, true),
            ("CN=eve", ABSENT, ABSENT, false),
        ] {
            let client = connect(&mut node, Some(name));
            let found = (
                produce(&mut node, client, QUEUE),
                fetch(&mut node, client, QUEUE),
                listed(&mut node, client).contains(&QUEUE.to_owned()),
            );
            assert_eq!(found, (writes, reads, sees), "{name} {settings:?}");
            assert_eq!(
                (produce(&mut node, client, "t"), fetch(&mut node, client, "t")),
                (0, 0),
                "{name}: what is no queue is Kafka's"
            );
        }
        for (name, code) in [("CN=reader", DENIED), ("CN=writer", DENIED), ("CN=eve", ABSENT)] {
            let client = connect(&mut node, Some(name));
            assert_eq!(delete(&mut node, client, QUEUE), code, "{name}");
        }
        // What is permitted now counts with the next request.
        let eve = connect(&mut node, Some("CN=eve"));
        assert_eq!(fetch(&mut node, eve, QUEUE), ABSENT);
        add(&node, "CN=eve", Some([".*", "", ".*"]));
        assert_eq!((fetch(&mut node, eve, QUEUE), produce(&mut node, eve, QUEUE)), (0, DENIED));
        assert_eq!(delete(&mut node, eve, QUEUE), 0);
        node.stop();
    }
}

/// What waits on the controller is carried out when this goes.
fn hold_the_controller(node: &Node) -> std::sync::mpsc::Sender<()> {
    let (release, held) = std::sync::mpsc::channel();
    let wait = move |_: &Arc<broker::Broker>| {
        let _ = held.recv();
        Box::new(()) as Box<dyn std::any::Any + Send>
    };
    assert!(node.broker().control(NOBODY, broker::JobOwner::BROKER, Box::new(wait)), "it has room");
    release
}

/// A name may be a queue's by the time at which its deletion is carried out.
#[test]
fn a_deletion_is_judged_when_it_is_carried_out() {
    for settings in [&[][..], &[AUTHORIZER, OPEN]] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = start(folder.path(), settings);
        add(&node, "CN=root", None);
        add(&node, "CN=eve", None);
        let eve = connect(&mut node, Some("CN=eve"));
        let vhost = node.broker().vhosts().get("shop").expect("it is there");
        let queue = |name: &str| {
            let name = Name::new(name.as_bytes()).expect("a short name");
            QueueDeclaration { name, durable: true, owner: None, auto_delete: false, arguments: Arguments::default() }
        };
        let release = hold_the_controller(&node);
        let topics = vec![DeleteTopicState { name: Some("shop~late".into()), ..DeleteTopicState::default() }];
        let request = DeleteTopicsRequest { topics, timeout_ms: 30_000, ..DeleteTopicsRequest::default() };
        node.send(eve, DELETE, 1, |writer| request.encode(writer, DELETE.1)).expect("taken");
        node.broker().declare_queue(&vhost, queue("late"), &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
        drop(release);
        let (_, body) = node.answer(eve);
        let response = DeleteTopicsResponse::decode(&mut flexible(DELETE, body), DELETE.1).expect("an answer");
        assert_eq!(response.responses[0].error_code, ABSENT, "{settings:?}");
        assert!(vhost.queue(b"late").is_some());
        // What was a queue's when it came, and is nobody's any more, is only not there.
        let release = hold_the_controller(&node);
        node.send(eve, DELETE, 1, |writer| request.encode(writer, DELETE.1)).expect("taken");
        node.broker().delete_queue(&vhost.queue(b"late").expect("it is there"), false, false).expect("deleted");
        drop(release);
        let (_, body) = node.answer(eve);
        let response = DeleteTopicsResponse::decode(&mut flexible(DELETE, body), DELETE.1).expect("an answer");
        assert_eq!(response.responses[0].error_code, ErrorCode::UnknownTopicOrPartition.code(), "{settings:?}");
        node.stop();
    }
}

/// A fetch session names what is not there yet; when it is, it may be a queue.
#[test]
fn a_session_does_not_read_a_queue_that_came_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = start(folder.path(), &[]);
    add(&node, "CN=root", None);
    add(&node, "CN=eve", None);
    let [eve, root] = ["CN=eve", "CN=root"].map(|name| connect(&mut node, Some(name)));
    let wants = kafka_wire::fetch::FetchRequest { session_epoch: 0, ..wants("shop~late", &[(0, 0)]) };
    let sessions = [eve, root].map(|client| node.fetch(client, &wants).session_id);
    let vhost = node.broker().vhosts().get("shop").expect("it is there");
    let name = Name::new(b"late").expect("a short name");
    let wish =
        QueueDeclaration { name, durable: true, owner: None, auto_delete: false, arguments: Arguments::default() };
    node.broker().declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
    assert_eq!(produce(&mut node, root, "shop~late"), 0);
    let found = [(eve, sessions[0]), (root, sessions[1])].map(|(client, session_id)| {
        let request = kafka_wire::fetch::FetchRequest { session_id, session_epoch: 1, ..crate::node::wants_news() };
        partitions(&node.fetch(client, &request))
    });
    assert_eq!(found[0], [(0, ABSENT, 0)]);
    assert!(found[1].len() == 1 && found[1][0].1 == 0 && found[1][0].2 > 0, "{found:?}");
    node.stop();
}

#[test]
fn who_says_no_name_has_no_permissions_once_a_user_is_defined() {
    for (settings, allowed) in [
        (&[][..], false),
        (&[("mainstem.anonymous.clients", "loopback")], true),
        (&[("super.users", "User:ANONYMOUS")], true),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = start(folder.path(), settings);
        let client = connect(&mut node, None);
        assert_eq!((produce(&mut node, client, QUEUE), fetch(&mut node, client, QUEUE)), (0, 0), "no user is defined");
        add(&node, "CN=bob", None);
        let code = if allowed { 0 } else { ABSENT };
        assert_eq!((produce(&mut node, client, QUEUE), fetch(&mut node, client, QUEUE)), (code, code), "{settings:?}");
        assert_eq!(listed(&mut node, client).contains(&QUEUE.to_owned()), allowed);
        assert_eq!((produce(&mut node, client, "t"), fetch(&mut node, client, "t")), (0, 0));
        node.stop();
    }
    assert_eq!(
        (DENIED, ABSENT),
        (ErrorCode::TopicAuthorizationFailed.code(), ErrorCode::UnknownTopicOrPartition.code())
    );
}

/// A fetch session that was judged for one who may not goes on when he may.
#[test]
fn a_session_is_judged_again_when_permissions_are_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = start(folder.path(), &[]);
    add(&node, "CN=bob", None);
    let bob = connect(&mut node, Some("CN=bob"));
    let opened = node.fetch(bob, &kafka_wire::fetch::FetchRequest { session_epoch: 0, ..wants(QUEUE, &[(0, 0)]) });
    assert_eq!(partitions(&opened)[0].1, ABSENT);
    let again = |node: &mut Node, epoch| {
        let request = kafka_wire::fetch::FetchRequest {
            session_id: opened.session_id,
            session_epoch: epoch,
            ..crate::node::wants_news()
        };
        partitions(&node.fetch(bob, &request))
    };
    assert_eq!(again(&mut node, 1), [(0, ABSENT, 0)]);
    add(&node, "CN=root", None);
    node.broker()
        .put_user(UserWish {
            name: "CN=bob".to_owned(),
            password: PasswordWish::Remove,
            tags: Some(vec!["administrator".to_owned()]),
            limits: None,
        })
        .expect("changed");
    let root = connect(&mut node, Some("CN=root"));
    assert_eq!(produce(&mut node, root, QUEUE), 0);
    let found = again(&mut node, 2);
    assert!(found.len() == 1 && found[0].1 == 0 && found[0].2 > 0, "{found:?}");
    node.stop();
}

/// A queue limited by bytes admits what has room while a transaction is open, whatever its log holds beside what its messages weigh.
#[test]
fn an_open_transaction_takes_the_room_of_its_records() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let vhost = node.broker().vhosts().get("/").expect("it is always there");
    let overflow =
        Argument { name: b"x-overflow"[..].into(), tag: b'S', value: OwnedValue::Bytes(b"reject-publish"[..].into()) };
    let bytes = Argument { name: b"x-max-length-bytes"[..].into(), tag: b'l', value: OwnedValue::Int(1_500) };
    let arguments = Arguments::new(vec![bytes, overflow]);
    let wish = QueueDeclaration {
        name: Name::new(b"t").expect("a short name"),
        durable: true,
        owner: None,
        auto_delete: false,
        arguments,
    };
    let queue = node.broker().declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
    let build = |count, value: &[u8]| {
        (0..count)
            .fold(BatchBuilder::default(), |builder, number| builder.record(1_000 + number, None, Some(value)))
            .build()
    };
    let full = ErrorCode::PolicyViolation.code();
    let large = build(100, b"a value");
    assert!(large.len() > 1_500, "{} bytes weigh 700", large.len());
    assert_eq!(node.produce(client, "t", 0, large).0, 0);
    let (code, producer) = transactions::init_of(&mut node, client, "writer", 60_000);
    assert_eq!(code, 0);
    assert_eq!(
        transactions::produce_of(
            &mut node,
            client,
            "writer",
            transactions::PRODUCE_V2,
            0,
            transactions::batch(producer, 0)
        )
        .0,
        0
    );
    let hundred = |node: &mut Node| node.produce(client, "t", 0, build(1, &[7; 100])).0;
    let taken: Vec<i16> = (0..9).map(|_| hundred(&mut node)).collect();
    assert_eq!(taken, [0, 0, 0, 0, 0, 0, 0, full, full]);
    assert_eq!(transactions::end_of(&mut node, client, "writer", transactions::END_V2, producer, false).0, 0);
    let began = Instant::now();
    while queue.log().last_stable() < queue.log().high_watermark() {
        assert!(began.elapsed() < Duration::from_secs(120), "it is over");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(hundred(&mut node), 0, "its records are gone");
    assert_eq!((hundred(&mut node), node.broker().counts(&queue).ready), (full, 108));
    node.stop();
}

/// A queue that refuses what is too much keeps room for the records of an open transaction, so that it is not too long once that is committed, and has the
/// room back when it is aborted; a restart changes nothing.
#[test]
fn an_open_transaction_takes_room_after_a_restart_and_gives_it_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let (code, producer) = transactions::init_of(&mut node, client, "writer", 60_000);
    assert_eq!(code, 0);
    for sequence in 0..2 {
        assert_eq!(
            transactions::produce_of(
                &mut node,
                client,
                "writer",
                transactions::PRODUCE_V2,
                0,
                transactions::batch(producer, sequence)
            )
            .0,
            0
        );
    }
    let overflow =
        Argument { name: b"x-overflow"[..].into(), tag: b'S', value: OwnedValue::Bytes(b"reject-publish"[..].into()) };
    let limit = Argument { name: b"x-max-length"[..].into(), tag: b'l', value: OwnedValue::Int(3) };
    let arguments = Arguments::new(vec![limit, overflow]);
    let wish = QueueDeclaration {
        name: Name::new(b"t").expect("a short name"),
        durable: true,
        owner: None,
        auto_delete: false,
        arguments,
    };
    let vhost = node.broker().vhosts().get("/").expect("it is always there");
    node.broker().declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared over the topic");
    let publish = |node: &mut Node, client| {
        node.produce(client, "t", 0, BatchBuilder::default().record(1_000, None, Some(b"one")).build()).0
    };
    let full = ErrorCode::PolicyViolation.code();
    assert_eq!([publish(&mut node, client), publish(&mut node, client)], [0, full]);
    node.stop();

    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let vhost = node.broker().vhosts().get("/").expect("it is always there");
    let queue = vhost.queue(b"t").expect("it is there again");
    assert_eq!((publish(&mut node, client), node.broker().counts(&queue).ready), (full, 0));
    assert_eq!(transactions::end_of(&mut node, client, "writer", transactions::END_V2, producer, false).0, 0);
    let began = Instant::now();
    while queue.log().last_stable() < queue.log().high_watermark() {
        assert!(began.elapsed() < Duration::from_secs(120), "it is over");
        std::thread::sleep(Duration::from_millis(5));
    }
    // What the transaction has left is found on the disk: until then nobody knows that its records are no messages.
    while publish(&mut node, client) == full {
        assert!(began.elapsed() < Duration::from_secs(120), "there is room");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!([publish(&mut node, client), publish(&mut node, client)], [0, full]);
    assert_eq!(node.broker().counts(&queue).ready, 3);
    node.stop();
}

/// A message that a transaction has written and not committed is in nobody's sight, and goes with nobody's `if-empty`.
#[test]
fn a_queue_with_an_open_transaction_is_not_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let vhost = node.broker().vhosts().get("/").expect("it is always there");
    let wish = QueueDeclaration {
        name: Name::new(b"t").expect("a short name"),
        durable: true,
        owner: None,
        auto_delete: false,
        arguments: Arguments::default(),
    };
    let queue = node.broker().declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
    let (code, producer) = transactions::init_of(&mut node, client, "writer", 60_000);
    assert_eq!(code, 0);
    assert_eq!(
        transactions::produce_of(
            &mut node,
            client,
            "writer",
            transactions::PRODUCE_V2,
            0,
            transactions::batch(producer, 0)
        )
        .0,
        0
    );
    assert_eq!(node.broker().counts(&queue).ready, 0);
    assert!(matches!(node.broker().delete_queue(&queue, false, true), Err(broker::QueueError::NotEmpty { .. })));
    assert_eq!(transactions::end_of(&mut node, client, "writer", transactions::END_V2, producer, false).0, 0);
    let began = Instant::now();
    while queue.log().last_stable() < queue.log().high_watermark() {
        assert!(began.elapsed() < Duration::from_secs(120), "it is over");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(node.broker().delete_queue(&queue, false, true).is_ok(), "it was aborted");
    node.stop();
}

/// What a queue limited by bytes admits is what it counts afterwards, however a batch is packed.
#[test]
fn a_batch_is_admitted_by_what_its_records_weigh() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let vhost = node.broker().vhosts().get("/").expect("it is always there");
    let declare = |name: &str, limit: i64| {
        let text = |name: &str, value: &str| Argument {
            name: name.as_bytes().into(),
            tag: b'S',
            value: OwnedValue::Bytes(value.as_bytes().into()),
        };
        let bytes = Argument { name: b"x-max-length-bytes"[..].into(), tag: b'l', value: OwnedValue::Int(limit) };
        let arguments = Arguments::new(vec![bytes, text("x-overflow", "reject-publish")]);
        let wish = QueueDeclaration {
            name: Name::new(name.as_bytes()).expect("a short name"),
            durable: true,
            owner: None,
            auto_delete: false,
            arguments,
        };
        node.broker().declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared")
    };
    let (packed, plain) = (declare("packed", 10_000), declare("plain", 1_500));
    let build = |compression, count: usize, value: &[u8]| {
        let empty = BatchBuilder::default().compression(compression);
        (0..count).fold(empty, |builder, number| builder.record(1_000 + number as i64, None, Some(value))).build()
    };
    let full = ErrorCode::PolicyViolation.code();
    for compression in [Compression::Zstd, Compression::Lz4] {
        let batch = build(compression, 8, &[7; 1_000]);
        assert!(batch.len() < 1_000, "{} bytes weigh 8000", batch.len());
        assert_eq!(node.produce(client, "packed", 0, batch.clone()).0, 0);
        assert_eq!(node.produce(client, "packed", 0, batch).0, full, "{compression:?}: two would be 16,000");
        assert_eq!(node.broker().counts(&packed).ready, 8);
        assert_eq!(node.broker().purge(&packed), 8);
    }
    // Heads of records weigh nothing.
    let batch = build(Compression::None, 100, b"a value");
    assert!(batch.len() > 1_500, "{} bytes weigh 700", batch.len());
    assert_eq!([(); 3].map(|()| node.produce(client, "plain", 0, batch.clone()).0), [0, 0, full]);
    assert_eq!(node.broker().counts(&plain).ready, 200);
    node.stop();
}

fn streams_beat(node: &mut Node, client: usize, group: &str, topic: &str, epoch: i32) -> StreamsGroupHeartbeatResponse {
    let joins = epoch == 0;
    let subtopology =
        Subtopology { subtopology_id: "0".into(), source_topics: vec![topic.into()], ..Subtopology::default() };
    let request = StreamsGroupHeartbeatRequest {
        group_id: group.into(),
        member_id: "member".into(),
        member_epoch: epoch,
        rebalance_timeout_ms: if joins { 30_000 } else { -1 },
        topology: joins.then(|| Topology { epoch: 1, subtopologies: vec![subtopology], ..Topology::default() }),
        active_tasks: joins.then(Vec::new),
        standby_tasks: joins.then(Vec::new),
        warmup_tasks: joins.then(Vec::new),
        process_id: joins.then(|| "process".into()),
        ..StreamsGroupHeartbeatRequest::default()
    };
    node.send(client, STREAMS_HEARTBEAT, 1, |writer| request.encode(writer, STREAMS_HEARTBEAT.1)).expect("taken");
    let (_, body) = node.answer(client);
    StreamsGroupHeartbeatResponse::decode(&mut flexible(STREAMS_HEARTBEAT, body), STREAMS_HEARTBEAT.1)
        .expect("an answer")
}

/// What a streams application is told of a queue that is not there for its user is what it is told of a topic that nobody has.
#[test]
fn a_streams_application_misses_a_queue_that_is_hidden() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = start(
        folder.path(),
        &[("group.streams.initial.rebalance.delay.ms", "0"), ("group.streams.assignment.interval.ms", "0")],
    );
    ["CN=root", "CN=reader", "CN=eve"].iter().for_each(|name| add(&node, name, None));
    // Those of other virtual hosts have names that no application may use.
    let (vhost, name) =
        (node.broker().vhosts().get("/").expect("it is always there"), Name::new(b"till").expect("a short name"));
    let wish =
        QueueDeclaration { name, durable: true, owner: None, auto_delete: false, arguments: Arguments::default() };
    node.broker().declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
    node.broker()
        .set_permissions("/", "CN=reader", Permissions::new("", "", "^till$").expect("expressions"))
        .expect("set");
    let told = |node: &mut Node, name: &str, group: &str, topic: &str| {
        let client = connect(node, Some(name));
        let first = streams_beat(node, client, group, topic, 0);
        let second = streams_beat(node, client, group, topic, first.member_epoch);
        let request =
            StreamsGroupDescribeRequest { group_ids: vec![group.into()], ..StreamsGroupDescribeRequest::default() };
        node.send(client, STREAMS_DESCRIBE, 1, |writer| request.encode(writer, STREAMS_DESCRIBE.1)).expect("taken");
        let (_, body) = node.answer(client);
        let described = StreamsGroupDescribeResponse::decode(&mut flexible(STREAMS_DESCRIBE, body), STREAMS_DESCRIBE.1)
            .expect("an answer");
        let (status, again) = (first.status.unwrap_or_default(), second.status.unwrap_or_default());
        let status: Vec<(i8, String)> = status
            .iter()
            .chain(&again)
            .map(|one| (one.status_code, one.status_detail.replace(topic, "TOPIC")))
            .collect();
        let tasks = first
            .active_tasks
            .iter()
            .chain(&second.active_tasks)
            .flatten()
            .map(|task| task.partitions.len())
            .sum::<usize>();
        let state = described.groups[0].group_state.to_string();
        (
            (first.error_code, second.error_code, described.groups[0].error_code),
            (first.member_epoch, second.member_epoch),
            status,
            tasks,
            state,
        )
    };
    let missing = told(&mut node, "CN=eve", "one", "nobody-has-it");
    assert_eq!((missing.0, missing.2[0].0, missing.3), ((0, 0, 0), 1, 0));
    assert_eq!(told(&mut node, "CN=eve", "two", "till"), missing);
    let seen = told(&mut node, "CN=reader", "three", "till");
    assert_eq!((seen.0, seen.3), ((0, 0, 0), 1), "who may read it is given its task");
    // In the group of somebody else he learns nothing either.
    let eve = connect(&mut node, Some("CN=eve"));
    let request =
        StreamsGroupDescribeRequest { group_ids: vec!["three".into()], ..StreamsGroupDescribeRequest::default() };
    node.send(eve, STREAMS_DESCRIBE, 1, |writer| request.encode(writer, STREAMS_DESCRIBE.1)).expect("taken");
    let (_, body) = node.answer(eve);
    let described = StreamsGroupDescribeResponse::decode(&mut flexible(STREAMS_DESCRIBE, body), STREAMS_DESCRIBE.1)
        .expect("an answer");
    assert_eq!((described.groups[0].error_code, described.groups[0].topology.is_none()), (DENIED, true));
    node.stop();
}

/// Nor are settings and share groups told of a queue that is not there for who asks.
#[test]
fn settings_and_share_offsets_miss_a_queue_that_is_hidden() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = start(folder.path(), &[]);
    ["CN=root", "CN=eve"].iter().for_each(|name| add(&node, name, None));
    let (vhost, name) =
        (node.broker().vhosts().get("/").expect("it is always there"), Name::new(b"till").expect("a short name"));
    let wish =
        QueueDeclaration { name, durable: true, owner: None, auto_delete: false, arguments: Arguments::default() };
    node.broker().declare_queue(&vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
    let eve = connect(&mut node, Some("CN=eve"));
    let request = ListConfigResourcesRequest::default();
    node.send(eve, LIST_CONFIG_RESOURCES, 1, |writer| request.encode(writer, LIST_CONFIG_RESOURCES.1)).expect("taken");
    let (_, body) = node.answer(eve);
    let listed =
        ListConfigResourcesResponse::decode(&mut flexible(LIST_CONFIG_RESOURCES, body), LIST_CONFIG_RESOURCES.1)
            .expect("an answer");
    let topics: Vec<&str> = listed
        .config_resources
        .iter()
        .filter(|one| one.resource_type == 2)
        .map(|one| one.resource_name.as_str())
        .collect();
    assert_eq!((listed.error_code, topics), (0, vec!["t"]));
    let altered = |node: &mut Node, topic: &str| {
        let config =
            AlterableConfig { name: "retention.ms".into(), value: Some("5".into()), ..AlterableConfig::default() };
        let resource = AlterConfigsResource {
            resource_type: 2,
            resource_name: topic.into(),
            configs: vec![config],
            ..AlterConfigsResource::default()
        };
        let request = IncrementalAlterConfigsRequest {
            resources: vec![resource],
            validate_only: true,
            ..IncrementalAlterConfigsRequest::default()
        };
        node.send(eve, ALTER_CONFIGS, 1, |writer| request.encode(writer, ALTER_CONFIGS.1)).expect("taken");
        let (_, body) = node.answer(eve);
        let response = IncrementalAlterConfigsResponse::decode(&mut flexible(ALTER_CONFIGS, body), ALTER_CONFIGS.1)
            .expect("an answer");
        (response.responses[0].error_code, response.responses[0].error_message.as_ref().map(ToString::to_string))
    };
    assert_eq!(altered(&mut node, "nobody-has-it").0, ABSENT);
    assert_eq!(altered(&mut node, "till"), altered(&mut node, "nobody-has-it"));
    node.make_share_group("g", &[]);
    let offsets = |node: &mut Node, topic: &str| {
        let topic = DescribeShareGroupOffsetsRequestTopic {
            topic_name: topic.into(),
            partitions: vec![0],
            ..Default::default()
        };
        let group = DescribeShareGroupOffsetsRequestGroup {
            group_id: "g".into(),
            topics: Some(vec![topic]),
            ..Default::default()
        };
        let request = DescribeShareGroupOffsetsRequest { groups: vec![group], ..Default::default() };
        node.send(eve, SHARE_OFFSETS, 1, |writer| request.encode(writer, SHARE_OFFSETS.1)).expect("taken");
        let (_, body) = node.answer(eve);
        let response = DescribeShareGroupOffsetsResponse::decode(&mut flexible(SHARE_OFFSETS, body), SHARE_OFFSETS.1)
            .expect("an answer");
        let topic = &response.groups[0].topics[0];
        (topic.topic_id, topic.partitions[0].error_code, topic.partitions[0].start_offset)
    };
    assert_eq!(offsets(&mut node, "till"), offsets(&mut node, "nobody-has-it"));
    node.stop();
}

/// Members of classic groups say by name what they read, to each other and to who describes their group.
#[test]
fn a_classic_group_does_not_tell_of_a_queue_that_is_hidden() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = start(folder.path(), &[("group.initial.rebalance.delay.ms", "0")]);
    add(&node, "CN=eve", None);
    add(&node, "CN=bob", Some(["", "", ".*"]));
    let (eve, bob) = (connect(&mut node, Some("CN=eve")), connect(&mut node, Some("CN=bob")));
    let text = |topic: &str| [&(topic.len() as u16).to_be_bytes()[..], topic.as_bytes()].concat();
    // Version, the topics that it reads, no data of its own, and those it has; version, and partition 0 of a topic.
    let metadata = |read: &str, has: &str| {
        let owned = [&text(has)[..], &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
        [&[0, 1, 0, 0, 0, 1][..], &text(read), &[255; 4], &[0, 0, 0, 1], &owned].concat()
    };
    let assigned = |topic: &str| [&[0, 0, 0, 0, 0, 1][..], &text(topic), &[0, 0, 0, 1, 0, 0, 0, 0], &[255; 4]].concat();
    let mut told = |group: &str, metadata: Vec<u8>, assignment: Vec<u8>| {
        let protocol = JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: metadata.clone().into(),
            ..JoinGroupRequestProtocol::default()
        };
        let join = JoinGroupRequest {
            group_id: group.into(),
            session_timeout_ms: 30_000,
            rebalance_timeout_ms: 30_000,
            protocol_type: "consumer".into(),
            protocols: vec![protocol],
            ..JoinGroupRequest::default()
        };
        node.send(bob, JOIN_GROUP, 1, |writer| join.encode(writer, JOIN_GROUP.1)).expect("taken");
        let joined = JoinGroupResponse::decode(&mut Reader::new(node.answer(bob).1), JOIN_GROUP.1).expect("an answer");
        assert_eq!(joined.error_code, 0);
        let own = SyncGroupRequestAssignment {
            member_id: joined.member_id.clone(),
            assignment: assignment.clone().into(),
            ..SyncGroupRequestAssignment::default()
        };
        let sync = SyncGroupRequest {
            group_id: group.into(),
            generation_id: joined.generation_id,
            member_id: joined.member_id,
            assignments: vec![own],
            ..SyncGroupRequest::default()
        };
        node.send(bob, SYNC_GROUP, 2, |writer| sync.encode(writer, SYNC_GROUP.1)).expect("taken");
        let synced = SyncGroupResponse::decode(&mut Reader::new(node.answer(bob).1), SYNC_GROUP.1).expect("an answer");
        assert_eq!(synced.error_code, 0);
        [eve, bob].map(|client| {
            let request = DescribeGroupsRequest { groups: vec![group.into()], ..DescribeGroupsRequest::default() };
            node.send(client, DESCRIBE_GROUPS, 3, |writer| request.encode(writer, DESCRIBE_GROUPS.1)).expect("taken");
            let (_, body) = node.answer(client);
            let response = DescribeGroupsResponse::decode(&mut flexible(DESCRIBE_GROUPS, body), DESCRIBE_GROUPS.1)
                .expect("an answer");
            let member = &response.groups[0].members[0];
            let both = [(&member.member_metadata, &metadata), (&member.member_assignment, &assignment)];
            assert!(both.iter().all(|(told, said)| told.is_empty() || **told == said[..]));
            both.map(|(told, _)| !told.is_empty())
        })
    };
    let (nothing, all) = ([false; 2], [true; 2]);
    assert_eq!(told("plain", metadata("t", "t"), assigned("t")), [all, all]);
    assert_eq!(told("read", metadata(QUEUE, "t"), assigned("t")), [nothing, all]);
    assert_eq!(told("had", metadata("t", QUEUE), assigned("t")), [nothing, all]);
    assert_eq!(told("given", metadata("t", "t"), assigned(QUEUE)), [nothing, all]);
    node.stop();
}
