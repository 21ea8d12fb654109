//! Quotas: who has taken more than his is told so at once and not read from for that long.

use std::time::Duration;

use broker::{Cause, QuotaChange, QuotaEntity};
use kafka_wire::ErrorCode;
use kafka_wire::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, AlteredEntity, AlteredEntry, OpData,
};
use kafka_wire::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use kafka_wire::describe_client_quotas::{ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use kafka_wire::heartbeat::HeartbeatRequest;
use kafka_wire::produce::ProduceResponse;

use crate::node::{CREATE_TOPICS, Node, PRODUCE, batch, fetched, flexible, partitions, wants};

const DESCRIBE: (i16, i16) = (48, 1);
const ALTER: (i16, i16) = (49, 1);

fn limit(node: &Node, parts: &[(&str, Option<&str>)], key: &str, value: Option<f64>) {
    let entity = QuotaEntity::of(parts.iter().copied()).expect("an entity");
    node.broker().alter_quotas(&[QuotaChange::of(entity, [(key, value)]).expect("a quota")]).expect("taken");
}

fn produce(node: &mut Node, client: usize, bytes: usize) -> i32 {
    node.send_produce(client, 1, "t", 0, batch(bytes / 15));
    let (_, body) = node.answer(client);
    ProduceResponse::decode(&mut flexible(PRODUCE, body), PRODUCE.1).expect("an answer").throttle_time_ms
}

#[test]
fn a_producer_is_told_at_once_and_not_read_for_so_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (one, other) = (node.connect(), node.connect());
    node.create_topic(one, "t", 1);
    assert_eq!(produce(&mut node, one, 30_000), 0);
    limit(&node, &[("client-id", Some("test"))], "producer_byte_rate", Some(10_000.0));
    let told = produce(&mut node, one, 30_000);
    assert!((2_000..4_000).contains(&told), "{told} ms");
    assert!(!node.session(one).wants_read());
    assert_eq!(node.session(one).causes(), Cause::Quota.bit());
    // The account is that of all connections with this client id: the debts add up.
    assert!(node.session(other).wants_read());
    assert!(produce(&mut node, other, 10_000) > told);
    node.advance(Duration::from_millis(told as u64));
    assert!(node.session(one).wants_read() && !node.session(other).wants_read());
    // A quota that is taken away ends the pause when the connection looks again.
    limit(&node, &[("client-id", Some("test"))], "producer_byte_rate", None);
    assert!(node.timeout(other).is_some_and(|until| until <= Duration::from_millis(200)));
    node.advance(Duration::from_millis(200));
    assert!(node.session(other).wants_read());
    assert_eq!(produce(&mut node, other, 30_000), 0);
    node.stop();
}

#[test]
fn a_fetch_gets_what_may_be_had_in_a_second_and_then_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (one, other) = (node.connect(), node.connect());
    node.create_topic(one, "t", 1);
    for _ in 0..10 {
        produce(&mut node, one, 10_000);
    }
    limit(&node, &[("user", None)], "consumer_byte_rate", Some(20_000.0));
    let first = node.fetch(one, &wants("t", &[(0, 0)]));
    let [(_, 0, bytes)] = partitions(&first)[..] else { panic!("a partition") };
    assert!(
        (10_000..30_000).contains(&bytes) && first.throttle_time_ms > 0,
        "{bytes} bytes, {} ms",
        first.throttle_time_ms
    );
    let second = node.fetch(other, &wants("t", &[(0, 0)]));
    assert_eq!(partitions(&second), [(0, 0, 0)]);
    assert!(second.throttle_time_ms > 0 && !node.session(other).wants_read());
    node.advance(Duration::from_secs(3));
    let third = node.fetch(other, &wants("t", &[(0, 0)]));
    assert!(partitions(&third)[0].2 > 0);
    node.stop();
}

#[test]
fn topics_have_quotas_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (one, other) = (node.connect(), node.connect());
    node.create_topic(one, "t", 1);
    node.create_topic(one, "free", 1);
    let rates = [("mainstem.producer.byte.rate", "10000"), ("mainstem.consumer.byte.rate", "10000")];
    node.broker()
        .set_topic_config("t", rates.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
        .expect("settings");
    assert!(produce(&mut node, one, 30_000) > 2_000);
    assert_eq!(node.session(one).causes(), Cause::TopicQuota.bit());
    assert_eq!(node.produce(other, "free", 0, batch(1000)), (0, 0));
    assert!(node.session(other).wants_read());
    // Accounts begin when they are made, which is after the sessions' now.
    node.advance(Duration::from_millis(500));
    let found = node.fetch(other, &wants("t", &[(0, 0)]));
    assert!(found.throttle_time_ms > 2_000 && partitions(&found)[0].2 > 0, "{found:?}");
    node.stop();
}

/// It says what cannot be read all the same: otherwise it would tell what is there of what is hidden.
#[test]
fn a_fetch_that_gets_nothing_for_now_says_no_more_of_partitions_than_any() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    node.broker()
        .set_topic_config("t", [("mainstem.consumer.byte.rate".to_owned(), "1000".to_owned())].into())
        .expect("settings");
    node.produce(client, "t", 0, batch(5000));
    node.advance(Duration::from_millis(500));
    assert!(node.fetch(client, &wants("t", &[(0, 0)])).throttle_time_ms > 2_000);
    let mut request = wants("t", &[(0, 0), (1, 0)]);
    request.topics.extend(wants("nosuch", &[(0, 0)]).topics);
    let found = node.fetch(client, &request);
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(partitions(&found), [(0, 0, 0), (1, unknown, 0), (0, unknown, 0)]);
    node.stop();
}

#[test]
fn a_group_that_is_far_behind_is_slowed_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (reader, producer) = (node.connect(), node.connect());
    node.create_topic(reader, "t", 1);
    for _ in 0..10 {
        produce(&mut node, producer, 10_000);
    }
    node.configure_group("g", &[("mainstem.laggard.rules", "lag>20KB 60KB/min")]);
    let speaks = HeartbeatRequest { group_id: "g".into(), ..HeartbeatRequest::default() };
    node.send(reader, (12, 4), 1, |writer| speaks.encode(writer, 4)).expect("taken");
    node.answer(reader);
    let far = node.fetch(reader, &wants("t", &[(0, 0)]));
    assert!(far.throttle_time_ms > 1_000, "{far:?}");
    assert_eq!(node.session(reader).causes(), Cause::Laggard.bit());
    let free = node.fetch(producer, &wants("t", &[(0, 0)]));
    assert_eq!(free.throttle_time_ms, 0, "a connection of no group");
    node.advance(Duration::from_secs(60));
    let near = node.fetch(reader, &wants("t", &[(0, 9 * (10_000 / 15))]));
    assert!(near.throttle_time_ms == 0 && partitions(&near)[0].2 > 0, "{near:?}");
    node.stop();
}

#[test]
fn what_a_group_that_is_far_behind_may_have_in_a_second_comes_in_pieces() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (reader, producer) = (node.connect(), node.connect());
    node.create_topic(reader, "t", 1);
    for _ in 0..50 {
        produce(&mut node, producer, 1000);
    }
    node.configure_group("g", &[("mainstem.laggard.rules", "lag>10KB 1200KB/min")]);
    let speaks = HeartbeatRequest { group_id: "g".into(), ..HeartbeatRequest::default() };
    node.send(reader, (12, 4), 1, |writer| speaks.encode(writer, 4)).expect("taken");
    node.answer(reader);
    let piece = node.fetch(reader, &wants("t", &[(0, 0)]));
    // 20 KB a second.
    let bytes = partitions(&piece)[0].2;
    assert!(
        (1000..=2000).contains(&bytes) && (40..=120).contains(&piece.throttle_time_ms),
        "{bytes} bytes, {} ms",
        piece.throttle_time_ms
    );
    node.stop();
}

#[test]
fn partitions_beyond_the_quota_are_refused_to_newer_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("controller.quota.window.num", "2")]);
    let client = node.connect();
    limit(&node, &[("client-id", None)], "controller_mutation_rate", Some(10.0));
    let create_of = |node: &mut Node, names: [&str; 3], num_partitions: i32| {
        let topics = names.map(|name| CreatableTopic {
            name: name.into(),
            num_partitions,
            replication_factor: 1,
            ..CreatableTopic::default()
        });
        let request =
            CreateTopicsRequest { topics: topics.into(), timeout_ms: 30_000, ..CreateTopicsRequest::default() };
        node.send(client, CREATE_TOPICS, 0, |writer| request.encode(writer, CREATE_TOPICS.1)).expect("taken");
        let (_, body) = node.answer(client);
        let response =
            CreateTopicsResponse::decode(&mut flexible(CREATE_TOPICS, body), CREATE_TOPICS.1).expect("an answer");
        let mut codes: Vec<(String, i16)> =
            response.topics.iter().map(|topic| (topic.name.to_string(), topic.error_code)).collect();
        codes.sort();
        (codes, response.throttle_time_ms)
    };
    // What is refused for another reason takes nothing of the quota.
    let (codes, told) = create_of(&mut node, ["x", "y", "z"], i32::MAX);
    assert!(codes.iter().all(|(_, code)| *code == 37) && told == 0, "{codes:?}, {told} ms");
    let create = |node: &mut Node, names: [&str; 3]| create_of(node, names, 8);
    let (codes, told) = create(&mut node, ["a", "b", "c"]);
    assert_eq!(codes.iter().map(|(_, code)| *code).collect::<Vec<_>>(), [0, 0, 89]);
    assert!((500..=700).contains(&told), "{told} ms");
    node.advance(Duration::from_secs(1));
    assert_eq!(create(&mut node, ["c", "d", "e"]).0.iter().map(|(_, code)| *code).collect::<Vec<_>>(), [0, 89, 89]);
    node.stop();
}

#[test]
fn a_share_of_time_pauses_whoever_takes_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    limit(&node, &[("user", Some("ANONYMOUS"))], "request_percentage", Some(0.001));
    let told = produce(&mut node, client, 100_000);
    // It costs some microseconds at least; nobody waits for longer than a window.
    assert!((1..=1000).contains(&told), "{told} ms");
    assert!(!node.session(client).wants_read());
    node.stop();
}

fn alter(node: &mut Node, client: usize, entries: Vec<AlteredEntry>, validate_only: bool) -> Vec<i16> {
    let request = AlterClientQuotasRequest { entries, validate_only, ..AlterClientQuotasRequest::default() };
    node.send(client, ALTER, 1, |writer| request.encode(writer, ALTER.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = AlterClientQuotasResponse::decode(&mut flexible(ALTER, body), ALTER.1).expect("an answer");
    response.entries.iter().map(|entry| entry.error_code).collect()
}

fn entry(parts: &[(&str, Option<&str>)], ops: &[(&str, Option<f64>)]) -> AlteredEntry {
    let part = |(kind, name): &(&str, Option<&str>)| AlteredEntity {
        entity_type: (*kind).into(),
        entity_name: name.map(Into::into),
        ..AlteredEntity::default()
    };
    let op = |(key, value): &(&str, Option<f64>)| OpData {
        key: (*key).into(),
        value: value.unwrap_or(0.0),
        remove: value.is_none(),
        ..OpData::default()
    };
    AlteredEntry {
        entity: parts.iter().map(part).collect(),
        ops: ops.iter().map(op).collect(),
        ..AlteredEntry::default()
    }
}

/// As with Kafka; what is there already, and is to be the same, does not count.
#[test]
fn a_request_changes_ten_thousand_quotas_and_no_more() {
    const MOST: usize = 10_000;
    let refused = ErrorCode::PolicyViolation.code();
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let mut change = |count: usize, ops: &[(&str, Option<f64>)]| {
        let named = |at: usize| entry(&[("client-id", Some(format!("c{at}").as_str()))], ops);
        let told = alter(&mut node, client, (0..count).map(named).collect(), true);
        let mut codes = alter(&mut node, client, (0..count).map(named).collect(), false);
        assert_eq!((codes.len(), &told), (count, &codes), "what would be said is said");
        codes.dedup();
        (codes, describe(&mut node, client, &[("client-id", 2, None)], false).1)
    };
    let (produce, both) = ([("producer_byte_rate", Some(1e6))], ["producer_byte_rate", "consumer_byte_rate"]);
    assert_eq!(change(MOST + 1, &produce), (vec![refused], 0), "none of them is changed");
    assert_eq!(change(MOST / 2 + 1, &both.map(|key| (key, Some(1e6)))), (vec![refused], 0), "each value counts");
    assert_eq!(change(MOST, &produce), (vec![0], MOST));
    assert_eq!(change(MOST + 5, &produce), (vec![0], MOST + 5));
    assert_eq!(change(MOST + 5, &both.map(|key| (key, None))), (vec![refused], MOST + 5));
    node.stop();
}

/// What one request changes first counts for what it changes then, also when it is only looked at.
#[test]
fn what_would_be_refused_for_its_number_is_told_so() {
    const MOST: usize = 100_000;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let named =
        |at: usize| entry(&[("client-id", Some(format!("c{at}").as_str()))], &[("producer_byte_rate", Some(1e6))]);
    for first in (0..MOST - 1).step_by(10_000) {
        let entries = (first..(first + 10_000).min(MOST - 1)).map(named).collect();
        assert!(alter(&mut node, client, entries, false).iter().all(|code| *code == 0));
    }
    // Beside very many that change nothing.
    let same = 91_000;
    let expected: Vec<i16> =
        (0..same + 9_000).map(|at| if at <= same { 0 } else { ErrorCode::PolicyViolation.code() }).collect();
    for validate_only in [true, false] {
        let entries = (0..same).chain(MOST..MOST + 9_000).map(named).collect();
        let told = alter(&mut node, client, entries, validate_only);
        assert!(told == expected, "validate only: {validate_only}");
    }
    node.stop();
}

fn describe(node: &mut Node, client: usize, components: &[(&str, i8, Option<&str>)], strict: bool) -> (i16, usize) {
    let component = |(kind, match_type, name): &(&str, i8, Option<&str>)| ComponentData {
        entity_type: (*kind).into(),
        match_type: *match_type,
        match_name: name.map(Into::into),
        ..ComponentData::default()
    };
    let request = DescribeClientQuotasRequest {
        components: components.iter().map(component).collect(),
        strict,
        ..Default::default()
    };
    node.send(client, DESCRIBE, 1, |writer| request.encode(writer, DESCRIBE.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = DescribeClientQuotasResponse::decode(&mut flexible(DESCRIBE, body), DESCRIBE.1).expect("an answer");
    (response.error_code, response.entries.map_or(0, |entries| entries.len()))
}

#[test]
fn quotas_are_altered_described_and_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let user = entry(&[("user", Some("u"))], &[("producer_byte_rate", Some(1e6)), ("consumer_byte_rate", Some(2e6))]);
    let pair = entry(&[("user", None), ("client-id", Some("c"))], &[("request_percentage", Some(12.5))]);
    let wrong = entry(&[("user", Some("u"))], &[("no_such_rate", Some(1.0))]);
    let ip = entry(&[("ip", Some("192.0.2.1"))], &[("connection_creation_rate", Some(5.0))]);
    assert_eq!(alter(&mut node, client, vec![user.clone(), pair.clone()], true), [0, 0]);
    assert_eq!(describe(&mut node, client, &[], false), (0, 0));
    assert_eq!(alter(&mut node, client, vec![user, wrong, pair, ip], false), [0, 42, 0, 0]);
    assert_eq!(
        alter(&mut node, client, vec![entry(&[("user", Some("u"))], &[("consumer_byte_rate", None)])], false),
        [0]
    );
    node.stop();
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    assert_eq!(describe(&mut node, client, &[], false), (0, 3));
    assert_eq!(describe(&mut node, client, &[("user", 2, None)], false), (0, 2));
    assert_eq!(describe(&mut node, client, &[("user", 2, None)], true), (0, 1));
    assert_eq!(describe(&mut node, client, &[("user", 0, Some("u"))], true), (0, 1));
    assert_eq!(describe(&mut node, client, &[("user", 1, None), ("client-id", 0, Some("c"))], true), (0, 1));
    assert_eq!(describe(&mut node, client, &[("user", 3, None)], true), (42, 0));
    assert_eq!(describe(&mut node, client, &[("group", 2, None)], true), (35, 0));
    let all = node.broker().quotas().describe(&broker::QuotaFilter::default());
    assert_eq!(all.iter().map(|(_, values)| values.len()).sum::<usize>(), 3, "{all:?}");
    node.stop();
}

#[test]
fn a_fetch_that_is_paused_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    produce(&mut node, client, 50_000);
    limit(&node, &[("client-id", None)], "consumer_byte_rate", Some(1000.0));
    node.send_fetch(client, 7, &wants("t", &[(0, 0)]));
    let (correlation, body) = node.answer(client);
    assert_eq!(correlation, 7);
    assert!(fetched(body).throttle_time_ms > 40_000, "the first batch comes whole");
    node.stop();
}
