//! Fetches, heartbeats and joins that name very much are decoded, looked at and answered by other threads: the thread of the connection does little for them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_gateway::RequestRoom;
use kafka_wire::consumer_group_heartbeat::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use kafka_wire::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use kafka_wire::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use kafka_wire::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberIdentity};
use kafka_wire::share_group_heartbeat::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use kafka_wire::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
use kafka_wire::{ErrorCode, Reader, Str, Writer};

use crate::memory::peak;
use crate::node::{FETCH, Node, batch, fetched, flexible, partitions, wants, wants_news};

const CONSUMER_HEARTBEAT: (i16, i16) = (68, 1);
const SHARE_HEARTBEAT: (i16, i16) = (76, 1);
const JOIN: (i16, i16) = (11, 3);
const SYNC: (i16, i16) = (14, 2);
const LEAVE: (i16, i16) = (13, 3);
const MANY: usize = 100_000;
/// What a network thread looks at itself.
const SHORT: i32 = 5_000;
/// What it watches for one fetch.
const WATCHED: i32 = 20_000;
/// What the thread of a connection may allocate at once for a request.
const BYTES: usize = 400_000;

/// The same of a join or a sync, with the set of names that the coordinator makes; decoding it takes three times as much.
const GROUP_BYTES: usize = 8_000_000;

struct Plenty;

impl RequestRoom for Plenty {
    fn is_wanted(&self) -> bool {
        false
    }
}

/// The most bytes that the thread of the connection has allocated in one turn until a request is answered, and the answer.
fn turns(node: &mut Node, client: usize, api: (i16, i16), body: impl FnOnce(&mut Writer)) -> (usize, Bytes) {
    let frame = node.frame(api, 1, body);
    let (outcome, mut most) = peak(|| node.hand(client, frame));
    outcome.expect("taken");
    if node.session(client).wants_room().is_some() {
        let (outcome, bytes) = peak(|| node.give_room(client, Arc::new(Plenty)));
        outcome.expect("served");
        most = most.max(bytes);
    }
    loop {
        if let Some((_, body)) = node.poll(client) {
            return (most, body);
        }
        let events = node.arrived(1);
        let ((), bytes) = peak(|| node.hand_out(events));
        most = most.max(bytes);
    }
}

fn all(topic: &str, count: i32) -> FetchRequest {
    let all: Vec<(i32, i64)> = (0..count).map(|partition| (partition, 0)).collect();
    FetchRequest { max_wait_ms: 60_000, session_epoch: -1, ..wants(topic, &all) }
}

fn start(count: i32) -> (tempfile::TempDir, Node, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", count);
    (folder, node, client)
}

/// Hands a session what other threads have found, until none of them is at it.
fn settle(node: &mut Node, times: usize) {
    for _ in 0..times {
        let events = node.arrived(1);
        node.hand_out(events);
    }
}

#[test]
fn a_fetch_of_very_many_partitions_is_answered_elsewhere() {
    let (_folder, mut node, client) = start(2);
    let request = all("none", MANY as i32);
    let (most, body) = turns(&mut node, client, FETCH, |writer| request.encode(writer, FETCH.1));
    assert!(most < BYTES, "{most} bytes at once on the thread of the connection");
    let found = partitions(&fetched(body));
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert!(
        found.len() == MANY
            && found.iter().enumerate().all(|(at, (partition, code, _))| (*partition, *code) == (at as i32, unknown))
    );
    assert!(node.session(client).is_idle() && node.session(client).wants_read());
    // Records come with the codes of those that are not there.
    node.produce(client, "t", 1, batch(3));
    let request = all("t", MANY as i32);
    let (_, body) = turns(&mut node, client, FETCH, |writer| request.encode(writer, FETCH.1));
    let found = partitions(&fetched(body));
    assert!(
        found[0] == (0, 0, 0)
            && found[1].1 == 0
            && found[1].2 > 0
            && found[2..].iter().all(|(_, code, bytes)| (*code, *bytes) == (unknown, 0))
    );
    node.stop();
}

#[test]
fn a_fetch_of_long_names_is_answered_elsewhere() {
    let (_folder, mut node, client) = start(1);
    let partition = FetchPartition { partition_max_bytes: 1 << 20, ..FetchPartition::default() };
    let topic = |number: usize| FetchTopic {
        topic: format!("{number:032000}").into(),
        partitions: vec![partition.clone()],
        ..FetchTopic::default()
    };
    let request =
        FetchRequest { max_wait_ms: 60_000, topics: (0..200).map(topic).collect(), ..FetchRequest::default() };
    let (most, body) = turns(&mut node, client, FETCH, |writer| request.encode(writer, FETCH.1));
    assert!(most < BYTES, "{most} bytes at once on the thread of the connection");
    let response = fetched(body);
    let names: Vec<&Str> = response.responses.iter().map(|topic| &topic.topic).collect();
    assert!(names.len() == 200 && names.iter().zip(&request.topics).all(|(name, topic)| **name == topic.topic));
    node.stop();
}

#[test]
fn a_fetch_of_many_partitions_waits_for_records_and_no_longer_than_it_may() {
    let count = SHORT + 1;
    let (_folder, mut node, client) = start(count);
    let producer = node.connect();
    node.send_fetch(client, 1, &all("t", count));
    // It is listed, looked at, and looked at once more when its logs are watched.
    settle(&mut node, 3);
    assert!(node.poll(client).is_none() && !node.session(client).wants_read());
    node.produce(producer, "t", count - 1, batch(1));
    let (correlation, body) = node.answer(client);
    let found = partitions(&fetched(body));
    assert_eq!((correlation, found.len()), (1, count as usize));
    assert!(
        found[..SHORT as usize].iter().all(|(_, code, bytes)| (*code, *bytes) == (0, 0)) && found[SHORT as usize].2 > 0
    );
    let (mut nothing_new, until) = (all("t", count), Duration::from_secs(60));
    nothing_new.topics[0].partitions[SHORT as usize].fetch_offset = 1;
    node.send_fetch(client, 2, &nothing_new);
    settle(&mut node, 3);
    assert!(node.poll(client).is_none());
    node.advance(until);
    let (correlation, body) = node.answer(client);
    assert_eq!((correlation, partitions(&fetched(body)).iter().map(|(_, _, bytes)| bytes).sum::<usize>()), (2, 0));
    // A connection that is gone while others look, or while it waits, leaves nothing behind.
    node.send_fetch(client, 3, &nothing_new);
    settle(&mut node, 2);
    node.end(client);
    node.produce(producer, "t", 0, batch(1));
    node.stop();
}

#[test]
fn a_session_of_many_partitions_goes_on() {
    let count = SHORT + 1;
    let (_folder, mut node, client) = start(count);
    node.produce(client, "t", 7, batch(2));
    let first = node.fetch(client, &FetchRequest { session_epoch: 0, ..all("t", count) });
    assert!(first.session_id != 0 && partitions(&first).len() == count as usize);
    node.produce(client, "t", 8, batch(1));
    let news = FetchRequest { session_id: first.session_id, session_epoch: 1, ..wants_news() };
    let next = node.fetch(client, &news);
    let mut told = partitions(&next).iter().map(|(partition, _, _)| *partition).collect::<Vec<_>>();
    told.sort_unstable();
    assert_eq!((next.session_id, told), (first.session_id, vec![7, 8]));
    node.stop();
}

/// More partitions than are watched for one fetch: it is answered at once, and its connection rests.
#[test]
fn a_fetch_of_more_than_is_watched_does_not_wait() {
    let count = WATCHED + 1;
    let (_folder, mut node, client) = start(count);
    let request = all("t", count);
    let (most, body) = turns(&mut node, client, FETCH, |writer| request.encode(writer, FETCH.1));
    assert!(most < BYTES, "{most} bytes at once on the thread of the connection");
    let response: FetchResponse = fetched(body);
    assert_eq!((response.throttle_time_ms, partitions(&response).len()), (500, count as usize));
    assert!(!node.session(client).wants_read(), "it rests");
    node.advance(Duration::from_millis(501));
    assert!(node.session(client).wants_read());
    node.stop();
}

#[test]
fn what_members_name_is_looked_at_elsewhere() {
    let (_folder, mut node, client) = start(1);
    let mut epochs = Vec::new();
    for (number, count) in [1, MANY].into_iter().enumerate() {
        let names = || Some(vec![Str::from("t"); count]);
        let consumer = ConsumerGroupHeartbeatRequest {
            group_id: format!("consumers {number}").into(),
            member_id: "one".into(),
            rebalance_timeout_ms: 30_000,
            subscribed_topic_names: names(),
            topic_partitions: Some(Vec::new()),
            ..ConsumerGroupHeartbeatRequest::default()
        };
        let (most, body) =
            turns(&mut node, client, CONSUMER_HEARTBEAT, |writer| consumer.encode(writer, CONSUMER_HEARTBEAT.1));
        assert!(most < BYTES, "{most} bytes at once on the thread of the connection");
        let response =
            ConsumerGroupHeartbeatResponse::decode(&mut flexible(CONSUMER_HEARTBEAT, body), CONSUMER_HEARTBEAT.1)
                .expect("an answer");
        let group = format!("share {number}").into();
        let share = ShareGroupHeartbeatRequest {
            group_id: group,
            member_id: "one".into(),
            subscribed_topic_names: names(),
            ..Default::default()
        };
        let (most, body) = turns(&mut node, client, SHARE_HEARTBEAT, |writer| share.encode(writer, SHARE_HEARTBEAT.1));
        assert!(most < BYTES, "{most} bytes at once on the thread of the connection");
        let shared = ShareGroupHeartbeatResponse::decode(&mut flexible(SHARE_HEARTBEAT, body), SHARE_HEARTBEAT.1)
            .expect("an answer");
        assert_eq!((response.error_code, shared.error_code), (0, 0));
        epochs.push((response.member_epoch, shared.member_epoch));
    }
    assert!(epochs[0] == epochs[1] && epochs[0].0 > 0, "{epochs:?}");
    node.stop();
}

#[test]
fn what_members_of_classic_groups_bring_is_decoded_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("group.initial.rebalance.delay.ms", "0")]);
    let client = node.connect();
    let protocol = |number| JoinGroupRequestProtocol {
        name: format!("p{number:08}").into(),
        metadata: Bytes::from_static(b"m"),
        ..Default::default()
    };
    let join = JoinGroupRequest {
        group_id: "g".into(),
        protocol_type: "consumer".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocols: (0..MANY).map(protocol).collect(),
        ..JoinGroupRequest::default()
    };
    let (most, body) = turns(&mut node, client, JOIN, |writer| join.encode(writer, JOIN.1));
    // The coordinator looks for a protocol that all members know.
    assert!(most < GROUP_BYTES, "join: {most} bytes at once on the thread of the connection");
    let joined = JoinGroupResponse::decode(&mut Reader::new(body), JOIN.1).expect("an answer");
    assert_eq!((joined.error_code, joined.protocol_name.as_deref()), (0, Some("p00000000")));
    let assignment = |number| SyncGroupRequestAssignment {
        member_id: if number == MANY - 1 { joined.member_id.clone() } else { format!("m{number:08}").into() },
        assignment: Bytes::from_static(b"a"),
        ..Default::default()
    };
    let sync = SyncGroupRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        assignments: (0..MANY).map(assignment).collect(),
        ..SyncGroupRequest::default()
    };
    let (most, body) = turns(&mut node, client, SYNC, |writer| sync.encode(writer, SYNC.1));
    assert!(most < GROUP_BYTES, "sync: {most} bytes at once on the thread of the connection");
    let synced = SyncGroupResponse::decode(&mut Reader::new(body), SYNC.1).expect("an answer");
    assert_eq!((synced.error_code, &*synced.assignment), (0, &b"a"[..]));
    let member = |number| MemberIdentity { member_id: format!("m{number:08}").into(), ..MemberIdentity::default() };
    let leave = LeaveGroupRequest {
        group_id: "g".into(),
        members: (0..MANY).map(member).collect(),
        ..LeaveGroupRequest::default()
    };
    let (_, body) = turns(&mut node, client, LEAVE, |writer| leave.encode(writer, LEAVE.1));
    let left = LeaveGroupResponse::decode(&mut Reader::new(body), LEAVE.1).expect("an answer");
    assert!(
        left.members.len() == MANY
            && left.members.iter().all(|one| one.error_code == ErrorCode::UnknownMemberId.code())
    );
    node.stop();
}
