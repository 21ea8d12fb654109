//! Limits of the node, met by Kafka clients.

use broker::LimitKind;
use kafka_wire::create_partitions::{CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic};
use kafka_wire::create_topics::{CreatableTopic, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse};

use crate::node::{CREATE_TOPICS, Node, batch, flexible};

const CREATE_PARTITIONS: (i16, i16) = (37, 3);
const POLICY_VIOLATION: i16 = 44;
const MESSAGE_TOO_LARGE: i16 = 10;

fn set(node: &Node, name: &str, value: &str) {
    node.broker().alter_settings(&[(name.to_owned(), Some(value.to_owned()))]).expect("a limit");
}

fn create(
    node: &mut Node,
    client: usize,
    topics: &[(&str, i32)],
    validate_only: bool,
) -> Vec<(String, i16, Option<String>)> {
    let one = |(name, num_partitions): &(&str, i32)| CreatableTopic {
        name: (*name).into(),
        num_partitions: *num_partitions,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let topics = topics.iter().map(one).collect();
    let request = CreateTopicsRequest { topics, timeout_ms: 1000, validate_only, ..CreateTopicsRequest::default() };
    node.send(client, CREATE_TOPICS, 1, |writer| request.encode(writer, CREATE_TOPICS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        CreateTopicsResponse::decode(&mut flexible(CREATE_TOPICS, body), CREATE_TOPICS.1).expect("an answer");
    let told = |topic: CreatableTopicResult| {
        (topic.name.to_string(), topic.error_code, topic.error_message.map(|text| text.to_string()))
    };
    response.topics.into_iter().map(told).collect()
}

fn codes(answers: &[(String, i16, Option<String>)]) -> Vec<i16> {
    answers.iter().map(|(_, code, _)| *code).collect()
}

fn enlarge(node: &mut Node, client: usize, name: &str, count: i32) -> i16 {
    let topics =
        vec![CreatePartitionsTopic { name: name.into(), count, assignments: None, ..CreatePartitionsTopic::default() }];
    let request = CreatePartitionsRequest { topics, timeout_ms: 1000, ..CreatePartitionsRequest::default() };
    node.send(client, CREATE_PARTITIONS, 1, |writer| request.encode(writer, CREATE_PARTITIONS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = CreatePartitionsResponse::decode(&mut flexible(CREATE_PARTITIONS, body), CREATE_PARTITIONS.1)
        .expect("an answer");
    response.results[0].error_code
}

#[test]
fn topics_are_as_many_as_there_may_be_those_of_one_request_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    set(&node, "mainstem.max.topics", "2");
    assert_eq!(codes(&create(&mut node, client, &[("a", 1), ("b", 1), ("c", 1)], false)), [0, 0, POLICY_VIOLATION]);
    let again = create(&mut node, client, &[("c", 1)], true);
    assert_eq!(again[0].2.as_deref(), Some("The node may have 2 topics and no more (mainstem.max.topics)."));
    assert_eq!(
        (node.broker().limit_use(LimitKind::Topics), node.broker().limits().refused(LimitKind::Topics)),
        (Some(2), 1)
    );
    node.broker().delete_topic(&node.broker().topic("a").expect("it is there")).expect("deleted");
    assert_eq!(codes(&create(&mut node, client, &[("c", 1)], false)), [0]);
    node.stop();
}

#[test]
fn partitions_are_as_many_as_there_may_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("mainstem.max.partitions", "10")]);
    let client = node.connect();
    assert_eq!(codes(&create(&mut node, client, &[("a", 6), ("b", 5), ("c", 3)], false)), [0, POLICY_VIOLATION, 0]);
    assert_eq!(node.broker().limit_use(LimitKind::Partitions), Some(9));
    assert_eq!(enlarge(&mut node, client, "c", 5), POLICY_VIOLATION);
    assert_eq!(enlarge(&mut node, client, "c", 4), 0);
    assert_eq!(node.broker().limit_use(LimitKind::Partitions), Some(10));
    node.broker().delete_topic(&node.broker().topic("c").expect("it is there")).expect("deleted");
    assert_eq!(node.broker().limit_use(LimitKind::Partitions), Some(6));
    set(&node, "mainstem.max.partitions", "1000");
    assert_eq!(enlarge(&mut node, client, "a", 900), 0);
    // What is there is there, whatever the limits say.
    set(&node, "mainstem.max.partitions", "1");
    node.stop();
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    assert_eq!(
        (node.broker().limit_use(LimitKind::Partitions), node.broker().limit(LimitKind::Partitions)),
        (Some(900), 1)
    );
    assert_eq!(codes(&create(&mut node, client, &[("d", 1)], false)), [POLICY_VIOLATION]);
    node.stop();
}

#[test]
fn batches_that_are_too_large_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    set(&node, "message.max.bytes", "1000");
    assert_eq!(node.produce(client, "t", 0, batch(1000)).0, MESSAGE_TOO_LARGE);
    assert_eq!(node.broker().limits().refused(LimitKind::BatchBytes), 1);
    node.stop();
}

#[test]
fn partitions_are_no_more_than_the_memory_has_room_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("mainstem.max.partitions", "100000")]);
    let client = node.connect();
    node.broker().limits().bound_by_memory(10 << 10);
    assert_eq!(node.broker().limit(LimitKind::Partitions), 10);
    assert_eq!(
        codes(&create(&mut node, client, &[("a", 6), ("b", 50_000), ("c", 5), ("d", 4)], false)),
        [0, POLICY_VIOLATION, POLICY_VIOLATION, 0]
    );
    assert_eq!(enlarge(&mut node, client, "a", 7), POLICY_VIOLATION);
    node.stop();
}

#[test]
fn queues_channels_and_settings_of_topics_are_no_more_than_the_memory_has_room_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.broker().limits().bound_by_memory(300 << 10);
    let partitions = |node: &Node| node.broker().limit(LimitKind::Partitions);
    assert_eq!([LimitKind::Queues, LimitKind::Channels].map(|kind| node.broker().limit(kind)), [100, 37]);
    assert_eq!(codes(&create(&mut node, client, &[("a", 1), ("b", 1)], false)), [0, 0]);
    let before = partitions(&node);
    let set = |node: &Node, topic: &str, count: usize| {
        let text = vec!["0:0"; count].join(",");
        let overrides = [("leader.replication.throttled.replicas".to_owned(), text)].into();
        node.broker().set_topic_configs(vec![(topic.to_owned(), overrides)]).pop().expect("an outcome").is_ok()
    };
    assert!(set(&node, "a", 8_000));
    let after = partitions(&node);
    assert!(after + 90 < before, "96 KB, with what they are kept in: {after} of {before}");
    assert!(set(&node, "b", 8_000) && set(&node, "b", 8_000), "as much as there was takes no more");
    assert!(set(&node, "a", 1) && partitions(&node) + 1 >= after, "what is given back is there for others");
    node.broker().limits().bound_by_memory(150 << 10);
    assert!(!set(&node, "a", 8_000), "there is no room for both");
    node.broker().delete_topic(&node.broker().topic("b").expect("it is there")).expect("deleted");
    assert!(set(&node, "a", 8_000));
    node.stop();
}
