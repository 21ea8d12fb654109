//! Answers to Metadata, ListGroups, ListTransactions, DescribeTransactions, DescribeProducers and DescribeLogDirs are as long as there is memory for answers, and say so where they are not whole; one to
//! DescribeConfigs takes what the client reads. What goes through much is done by other threads, however short the request is.

use broker::NOBODY;
use delivery::Claim;
use kafka_wire::consumer_group_heartbeat::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use kafka_wire::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use kafka_wire::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse};
use kafka_wire::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use kafka_wire::describe_producers::{DescribeProducersRequest, DescribeProducersResponse, TopicRequest};
use kafka_wire::describe_transactions::{DescribeTransactionsRequest, DescribeTransactionsResponse};
use kafka_wire::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use kafka_wire::list_groups::{ListGroupsRequest, ListGroupsResponse};
use kafka_wire::list_transactions::{ListTransactionsRequest, ListTransactionsResponse};
use kafka_wire::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use kafka_wire::{ErrorCode, Reader, Writer};
use types::LogId;

use crate::memory::peak;
use crate::node::{CREATE_TOPICS, Node, batch_of, flexible};
use crate::transactions::{DONE, init_of};

const CONSUMER_HEARTBEAT: (i16, i16) = (68, 1);
const LIST_GROUPS: (i16, i16) = (16, 4);
/// Without a name given first.
const JOIN_GROUP: (i16, i16) = (11, 3);
const METADATA: (i16, i16) = (3, 12);
const DESCRIBE_LOG_DIRS: (i16, i16) = (35, 4);
const DESCRIBE_CONFIGS: (i16, i16) = (32, 4);
const DESCRIBE_PRODUCERS: (i16, i16) = (61, 0);
const DESCRIBE_TRANSACTIONS: (i16, i16) = (65, 0);
const LIST_TRANSACTIONS: (i16, i16) = (66, 2);
const TOPICS: usize = 60;
const PARTITIONS: usize = 1_000;
/// What an answer may have whatever others have not read.
const USUAL_BYTES: usize = 1 << 20;

/// A node with 60,000 partitions and little memory for answers.
fn start(folder: &std::path::Path) -> (Node, usize) {
    let mut node = Node::start_with_answers(folder, 64 << 10);
    let client = node.connect();
    let topic = |number| CreatableTopic {
        name: format!("t{number:02}").into(),
        num_partitions: PARTITIONS as i32,
        replication_factor: 1,
        ..Default::default()
    };
    let request =
        CreateTopicsRequest { topics: (0..TOPICS).map(topic).collect(), timeout_ms: 60_000, ..Default::default() };
    node.send(client, CREATE_TOPICS, 1, |writer| request.encode(writer, CREATE_TOPICS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        CreateTopicsResponse::decode(&mut flexible(CREATE_TOPICS, body), CREATE_TOPICS.1).expect("an answer");
    assert!(response.topics.iter().all(|topic| topic.error_code == 0));
    (node, client)
}

/// Length of an answer, and name, code and partitions of its topics.
fn metadata(
    node: &mut Node,
    client: usize,
    version: i16,
    topics: Option<&[&str]>,
) -> (usize, Vec<(String, i16, usize)>) {
    let named = |name: &&str| MetadataRequestTopic { name: Some((*name).into()), ..Default::default() };
    let request =
        MetadataRequest { topics: topics.map(|topics| topics.iter().map(named).collect()), ..Default::default() };
    node.send(client, (3, version), 1, |writer| request.encode(writer, version)).expect("taken");
    let (_, body) = node.answer(client);
    let bytes = body.len();
    let response = MetadataResponse::decode(&mut flexible((3, version), body), version).expect("an answer");
    assert_eq!(response.brokers.len(), 1);
    let told = response
        .topics
        .into_iter()
        .map(|topic| (topic.name.unwrap_or_default().to_string(), topic.error_code, topic.partitions.len()));
    (bytes, told.collect())
}

#[test]
fn topics_for_which_there_is_no_room_are_to_be_asked_for_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    for version in [9, 10, 12, 13] {
        let (bytes, told) = metadata(&mut node, client, version, None);
        assert!(bytes < USUAL_BYTES + (TOPICS << 8), "{bytes} bytes in version {version}");
        let whole: Vec<bool> =
            told.iter().map(|(_, code, partitions)| (*code, *partitions) == (0, PARTITIONS)).collect();
        let later = told
            .iter()
            .filter(|(_, code, partitions)| (*code, *partitions) == (ErrorCode::LeaderNotAvailable.code(), 0));
        let count = whole.iter().filter(|whole| **whole).count();
        assert!(
            told.len() == TOPICS && count > 10 && count + later.count() == TOPICS,
            "{count} of {TOPICS} in version {version}"
        );
        let missing =
            told.iter().find(|(_, code, _)| *code != 0).map(|(name, _, _)| name.clone()).expect("one that had no room");
        let (_, told) = metadata(&mut node, client, version, Some(&[&missing]));
        assert_eq!(told, [(missing, 0, PARTITIONS)], "who asks again gets on");
    }
    node.stop();
}

#[test]
fn sizes_for_which_there_is_no_room_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    let request = DescribeLogDirsRequest { topics: None, ..Default::default() };
    node.send(client, DESCRIBE_LOG_DIRS, 1, |writer| request.encode(writer, DESCRIBE_LOG_DIRS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = DescribeLogDirsResponse::decode(&mut flexible(DESCRIBE_LOG_DIRS, body), DESCRIBE_LOG_DIRS.1)
        .expect("an answer");
    let told: Vec<(i16, usize)> =
        response.results.iter().map(|result| (result.error_code, result.topics.len())).collect();
    assert_eq!(told, [(ErrorCode::PolicyViolation.code(), 0)]);
    node.stop();
}

/// Sends a request of a few bytes, and says whether other threads make its answer: the connection is not read until then.
fn is_made_elsewhere(node: &mut Node, client: usize, api: (i16, i16), body: impl FnOnce(&mut Writer)) -> bool {
    node.send(client, api, 1, body).expect("taken");
    let elsewhere = !node.session(client).wants_read();
    node.answer(client);
    assert!(node.session(client).wants_read());
    elsewhere
}

#[test]
fn short_requests_that_ask_for_much_are_answered_by_other_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, client) = start(folder.path());
    let metadata = |names: Option<&[&str]>| {
        let named = |name: &&str| MetadataRequestTopic { name: Some((*name).into()), ..Default::default() };
        let request =
            MetadataRequest { topics: names.map(|names| names.iter().map(named).collect()), ..Default::default() };
        move |writer: &mut Writer| request.encode(writer, METADATA.1)
    };
    assert!(is_made_elsewhere(&mut node, client, METADATA, metadata(None)), "60,000 partitions");
    assert!(is_made_elsewhere(&mut node, client, METADATA, metadata(Some(&["t00", "t01"]))), "2,000 of them");
    node.create_topic(client, "few", 500);
    assert!(!is_made_elsewhere(&mut node, client, METADATA, metadata(Some(&["few"]))));
    assert!(!is_made_elsewhere(&mut node, client, METADATA, metadata(Some(&["no topic"]))));
    let sizes = DescribeLogDirsRequest { topics: Some(Vec::new()), ..Default::default() };
    assert!(is_made_elsewhere(&mut node, client, DESCRIBE_LOG_DIRS, |writer| sizes.encode(writer, DESCRIBE_LOG_DIRS.1)));
    let groups = ListGroupsRequest::default();
    let list =
        |node: &mut Node| is_made_elsewhere(node, client, LIST_GROUPS, |writer| groups.encode(writer, LIST_GROUPS.1));
    assert!(!list(&mut node));
    (0..501).for_each(|number| node.broker().make_share_group(&format!("g{number}")).expect("a name that is free"));
    assert!(list(&mut node));
    node.stop();
}

#[test]
fn many_groups_are_gone_through_in_turns() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let names: Vec<String> = (0..2_500).map(|number| format!("g{number:04}")).collect();
    names.iter().for_each(|name| node.broker().make_share_group(name).expect("a name that is free"));
    let turns = |node: &Node| node.broker().unpacking().counts().turns.load(std::sync::atomic::Ordering::Relaxed);
    for version in 0..=5 {
        let before = turns(&node);
        node.send(client, (LIST_GROUPS.0, version), 1, |writer| ListGroupsRequest::default().encode(writer, version))
            .expect("taken");
        let (_, body) = node.answer(client);
        let mut reader = if version >= 3 { flexible((LIST_GROUPS.0, version), body) } else { Reader::new(body) };
        let response = ListGroupsResponse::decode(&mut reader, version).expect("an answer");
        assert!(response.groups.iter().map(|group| &*group.group_id).eq(&names), "all of them, each once");
        assert!(turns(&node) - before >= 3, "a thousand groups in each, and {} turns", turns(&node) - before);
    }
    assert_eq!(node.gateway.pinned_bytes(), 0, "nothing of it stays");
    node.stop();
}

#[test]
fn a_list_of_groups_is_whole_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start_with_answers(folder.path(), 64 << 10);
    let client = node.connect();
    let list = |node: &mut Node| {
        let request = ListGroupsRequest::default();
        node.send(client, LIST_GROUPS, 1, |writer| request.encode(writer, LIST_GROUPS.1)).expect("taken");
        let (_, body) = node.answer(client);
        let response = ListGroupsResponse::decode(&mut flexible(LIST_GROUPS, body), LIST_GROUPS.1).expect("an answer");
        (response.error_code, response.groups.len())
    };
    let make = |node: &Node, from: usize, to: usize| {
        (from..to)
            .for_each(|number| node.broker().make_share_group(&format!("{number:0200}")).expect("a name that is free"))
    };
    make(&node, 0, 3_000);
    assert_eq!(list(&mut node), (0, 3_000), "a usual answer always fits");
    make(&node, 3_000, 6_000);
    assert_eq!(list(&mut node), (ErrorCode::CoordinatorLoadInProgress.code(), 0));
    node.stop();
}

#[test]
fn producers_for_which_there_is_no_room_are_to_be_asked_for_again() {
    const PRODUCERS: usize = 400;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start_with_answers(folder.path(), 64 << 10);
    let client = node.connect();
    node.create_topic(client, "t", 3);
    for producer in 0..PRODUCERS as i64 {
        (0..3).for_each(|partition| node.send_produce(client, 1, "t", partition, batch_of(producer, 0, 0, 1)));
        (0..3).for_each(|_| _ = node.answer(client));
    }
    let request = |partitions: &[i32]| {
        let topic = TopicRequest { name: "t".into(), partition_indexes: partitions.to_vec(), ..Default::default() };
        let request = DescribeProducersRequest { topics: vec![topic], ..Default::default() };
        move |writer: &mut Writer| request.encode(writer, DESCRIBE_PRODUCERS.1)
    };
    let described = |node: &mut Node, partitions: &[i32]| {
        node.send(client, DESCRIBE_PRODUCERS, 1, request(partitions)).expect("taken");
        let (_, body) = node.answer(client);
        let response = DescribeProducersResponse::decode(&mut flexible(DESCRIBE_PRODUCERS, body), DESCRIBE_PRODUCERS.1)
            .expect("an answer");
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|one| (one.partition_index, one.error_code, one.active_producers.len())).collect::<Vec<_>>()
    };
    let later = ErrorCode::NotLeaderOrFollower.code();
    assert_eq!(
        described(&mut node, &[0, 1, 2]),
        [(0, 0, PRODUCERS), (1, 0, PRODUCERS), (2, later, 0)],
        "half of the memory for answers"
    );
    assert_eq!(described(&mut node, &[2]), [(2, 0, PRODUCERS)], "a client that asks again makes progress");
    assert!(is_made_elsewhere(&mut node, client, DESCRIBE_PRODUCERS, request(&[0, 1])), "800 producers");
    assert!(!is_made_elsewhere(&mut node, client, DESCRIBE_PRODUCERS, request(&[0, 7])));
    node.stop();
}

/// Error code, ids.
fn list_transactions(node: &mut Node, client: usize, pattern: Option<&str>) -> (i16, Vec<String>) {
    node.send(client, LIST_TRANSACTIONS, 1, transactions_like(pattern)).expect("taken");
    let (_, body) = node.answer(client);
    let response = ListTransactionsResponse::decode(&mut flexible(LIST_TRANSACTIONS, body), LIST_TRANSACTIONS.1)
        .expect("an answer");
    let mut ids: Vec<String> =
        response.transaction_states.iter().map(|state| state.transactional_id.to_string()).collect();
    ids.sort_unstable();
    (response.error_code, ids)
}

fn transactions_like(pattern: Option<&str>) -> impl FnOnce(&mut Writer) {
    let transactional_id_pattern = pattern.map(Into::into);
    let request = ListTransactionsRequest { duration_filter: -1, transactional_id_pattern, ..Default::default() };
    move |writer: &mut Writer| request.encode(writer, LIST_TRANSACTIONS.1)
}

#[test]
fn a_pattern_is_compiled_and_matched_by_other_threads_and_is_small() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    for id in ["orders-1", "orders-2", "other"] {
        assert_eq!(init_of(&mut node, client, id, 60_000).0, DONE);
    }
    assert!(!is_made_elsewhere(&mut node, client, LIST_TRANSACTIONS, transactions_like(None)));
    assert!(!is_made_elsewhere(&mut node, client, LIST_TRANSACTIONS, transactions_like(Some(""))), "no pattern");
    assert!(
        is_made_elsewhere(&mut node, client, LIST_TRANSACTIONS, transactions_like(Some("a"))),
        "however few ids there are"
    );
    assert_eq!(
        list_transactions(&mut node, client, Some("orders-.*")),
        (0, vec!["orders-1".to_owned(), "orders-2".to_owned()])
    );
    assert_eq!(list_transactions(&mut node, client, Some("orders")), (0, Vec::new()), "all of an id matches");
    assert_eq!(list_transactions(&mut node, client, Some(r"\w+-\d{1,20}")).1.len(), 2);
    assert_eq!(init_of(&mut node, client, "aéb", 60_000).0, DONE);
    assert_eq!(
        list_transactions(&mut node, client, Some("a.b")).1,
        ["aéb"],
        "a character is one, however many bytes it has"
    );
    let refused = (ErrorCode::InvalidRegularExpression.code(), Vec::new());
    assert_eq!(list_transactions(&mut node, client, Some("(")), refused);
    assert_eq!(list_transactions(&mut node, client, Some("(.*(a|c)[ac]{3000})?")), refused, "too large");
    node.stop();
}

#[test]
fn a_list_of_transactions_is_whole_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start_with_answers(folder.path(), 64 << 10);
    let client = node.connect();
    let make = |node: &mut Node, numbers: std::ops::Range<usize>| {
        numbers.for_each(|number| assert_eq!(init_of(node, client, &format!("{number:030000}"), 60_000).0, DONE));
    };
    make(&mut node, 0..30);
    let (code, ids) = list_transactions(&mut node, client, None);
    assert_eq!((code, ids.len()), (0, 30), "a usual answer always fits");
    make(&mut node, 30..40);
    assert_eq!(list_transactions(&mut node, client, None), (ErrorCode::CoordinatorLoadInProgress.code(), Vec::new()));
    assert_eq!(list_transactions(&mut node, client, Some("0*3.")).1.len(), 10, "a part of them fits");
    node.stop();
}

#[test]
fn many_transactional_ids_are_gone_through_in_turns_with_one_bound_for_the_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start_with_answers(folder.path(), 64 << 10);
    let client = node.connect();
    let make = |node: &mut Node, numbers: std::ops::Range<usize>, width: usize| -> Vec<String> {
        let ids: Vec<String> = numbers.map(|number| format!("{number:0width$}")).collect();
        ids.iter().for_each(|id| assert_eq!(init_of(node, client, id, 60_000).0, DONE));
        ids
    };
    let turns = |node: &Node| node.broker().unpacking().counts().turns.load(std::sync::atomic::Ordering::Relaxed);
    let mut ids = make(&mut node, 0..1_500, 600);
    ids.extend(make(&mut node, 1_500..2_500, 4));
    ids.sort_unstable();
    for pattern in [None, Some(".*")] {
        let before = turns(&node);
        assert!(list_transactions(&mut node, client, pattern) == (0, ids.clone()), "all of them, each once");
        assert!(turns(&node) - before >= 3, "a thousand ids in each, and {} turns", turns(&node) - before);
    }
    make(&mut node, 2_500..2_900, 600);
    let (code, listed) = list_transactions(&mut node, client, None);
    assert_eq!((code, listed.len()), (ErrorCode::CoordinatorLoadInProgress.code(), 0), "no turn has more than is left");
    assert_eq!(node.gateway.pinned_bytes(), 0, "nothing of it stays");
    assert_eq!(list_transactions(&mut node, client, Some("(0*)24..")).1.len(), 100);
    node.stop();
}

#[test]
fn transactions_for_which_there_is_no_room_are_to_be_asked_for_again() {
    const PARTITIONS: usize = 10_000;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start_with_answers(folder.path(), 64 << 10);
    let client = node.connect();
    node.create_topic(client, "t", PARTITIONS as i32);
    let logs: Vec<LogId> = node.broker().topic("t").expect("it is there").logs().iter().map(|log| log.id()).collect();
    for (id, count) in [("a", PARTITIONS), ("b", PARTITIONS), ("c", 1), ("d", 0)] {
        let (code, producer) = init_of(&mut node, client, id, 60_000);
        assert_eq!(code, DONE);
        if count > 0 {
            let claim = Claim { id, producer };
            node.broker().add_to_transaction(claim, logs[..count].to_vec(), NOBODY).expect("it is the producer's");
        }
    }
    let described = |node: &mut Node, ids: &[&str]| {
        let request = DescribeTransactionsRequest {
            transactional_ids: ids.iter().map(|id| (*id).into()).collect(),
            ..Default::default()
        };
        node.send(client, DESCRIBE_TRANSACTIONS, 1, |writer| request.encode(writer, DESCRIBE_TRANSACTIONS.1))
            .expect("taken");
        let (_, body) = node.answer(client);
        let response =
            DescribeTransactionsResponse::decode(&mut flexible(DESCRIBE_TRANSACTIONS, body), DESCRIBE_TRANSACTIONS.1)
                .expect("an answer");
        let told = response.transaction_states.into_iter().map(|one| {
            let partitions = one.topics.iter().map(|topic| topic.partitions.len()).sum();
            (one.transactional_id.to_string(), one.error_code, partitions)
        });
        told.collect::<Vec<(String, i16, usize)>>()
    };
    let told = |id: &str, code: ErrorCode, partitions: usize| (id.to_owned(), code.code(), partitions);
    let (none, later, unknown) =
        (ErrorCode::None, ErrorCode::CoordinatorLoadInProgress, ErrorCode::TransactionalIdNotFound);
    // The first may have more than there is room for, and nothing follows what did not fit.
    let ids = ["no", "a", "b", "c"];
    assert_eq!(
        described(&mut node, &ids),
        [told("no", unknown, 0), told("a", none, PARTITIONS), told("b", later, 0), told("c", later, 0)]
    );
    assert_eq!(described(&mut node, &["b"]), [told("b", none, PARTITIONS)], "a client that asks again makes progress");
    assert_eq!(
        described(&mut node, &["d", "c", "no"]),
        [told("d", none, 0), told("c", none, 1), told("no", unknown, 0)]
    );
    node.stop();
}

#[test]
fn settings_of_many_groups_take_the_memory_of_their_answer() {
    // So few that a network thread answers, whose memory is counted.
    const GROUPS: usize = 4_000;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let group = |number| DescribeConfigsResource {
        resource_type: 32,
        resource_name: format!("g{number}").into(),
        configuration_keys: None,
        ..Default::default()
    };
    let request = DescribeConfigsRequest { resources: (0..GROUPS).map(group).collect(), ..Default::default() };
    let (sent, held) =
        peak(|| node.send(client, DESCRIBE_CONFIGS, 1, |writer| request.encode(writer, DESCRIBE_CONFIGS.1)));
    sent.expect("taken");
    let (_, body) = node.answer(client);
    let answer = body.len();
    let response =
        DescribeConfigsResponse::decode(&mut flexible(DESCRIBE_CONFIGS, body), DESCRIBE_CONFIGS.1).expect("an answer");
    assert!(
        response.results.len() == GROUPS
            && response.results.iter().all(|one| one.error_code == 0 && one.configs.len() > 10)
    );
    assert!(held < 2 * answer, "{held} bytes for an answer of {answer}");
    node.stop();
}

#[test]
fn answers_that_wait_for_another_one_are_few_and_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("group.initial.rebalance.delay.ms", "60000")]);
    let client = node.connect();
    // So few that the connection's own thread tells of them.
    node.create_topic(client, "t", 500);
    let join = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), ..Default::default() }],
        ..Default::default()
    };
    node.send(client, JOIN_GROUP, 1, |writer| join.encode(writer, JOIN_GROUP.1)).expect("taken");
    assert!(node.poll(client).is_none(), "it waits for other members");
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: Some("t".into()), ..Default::default() }]),
        ..Default::default()
    };
    let mut taken = 0;
    while node.session(client).wants_read() {
        node.send(client, (3, 4), 2, |writer| request.encode(writer, 4)).expect("taken");
        taken += 1;
    }
    let held = node.gateway.pinned_bytes();
    assert!(
        (4..8).contains(&taken) && node.session(client).holds_answers() && held > 64 << 10,
        "{taken} answers, {held} bytes"
    );
    node.drain(client);
    (0..=taken).for_each(|_| _ = node.answer(client));
    assert!(node.session(client).wants_read() && !node.session(client).holds_answers());
    assert_eq!(node.gateway.pinned_bytes(), 0);
    node.stop();
}

/// A heartbeat of a member of a consumer group; it joins in epoch 0.
fn beat_with(member: &str, epoch: i32, regex: Option<&str>) -> impl FnOnce(&mut Writer) {
    let joins = epoch == 0;
    let request = ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: member.into(),
        member_epoch: epoch,
        rebalance_timeout_ms: if joins { 30_000 } else { -1 },
        subscribed_topic_regex: regex.map(Into::into),
        topic_partitions: joins.then(Vec::new),
        ..Default::default()
    };
    move |writer: &mut Writer| request.encode(writer, CONSUMER_HEARTBEAT.1)
}

#[test]
fn expressions_of_groups_are_matched_by_other_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("group.consumer.assignment.interval.ms", "0")]);
    let client = node.connect();
    node.create_topic(client, "orders-1", 1);
    node.create_topic(client, "other", 1);
    let told = |node: &mut Node, epoch: i32, regex: Option<&str>| {
        node.send(client, CONSUMER_HEARTBEAT, 1, beat_with("m", epoch, regex)).expect("taken");
        let elsewhere = !node.session(client).wants_read();
        let (_, body) = node.answer(client);
        assert!(node.session(client).wants_read());
        let answer =
            ConsumerGroupHeartbeatResponse::decode(&mut flexible(CONSUMER_HEARTBEAT, body), CONSUMER_HEARTBEAT.1)
                .expect("an answer");
        (
            elsewhere,
            answer.error_code,
            answer.member_epoch,
            answer.assignment.map(|assignment| assignment.topic_partitions.len()),
        )
    };
    let invalid = ErrorCode::InvalidRegularExpression.code();
    assert_eq!(told(&mut node, 0, Some("(")), (true, invalid, 0, None));
    assert_eq!(told(&mut node, 0, Some("(.*(a|c)[ac]{3000})?")), (true, invalid, 0, None), "too large");
    let (elsewhere, code, epoch, topics) = told(&mut node, 0, Some("orders.*"));
    assert_eq!((elsewhere, code, topics), (true, 0, Some(1)));
    assert_eq!(told(&mut node, epoch, None), (false, 0, epoch, None), "nothing has changed");
    assert_eq!(told(&mut node, epoch, Some("orders.*")), (false, 0, epoch, None));
    node.create_topic(client, "orders-2", 1);
    let (elsewhere, code, newer, topics) = told(&mut node, epoch, None);
    assert_eq!((elsewhere, code, newer, topics), (true, 0, epoch + 1, Some(2)), "the heartbeat that meets it");
    node.create_topic(client, "other-2", 1);
    assert_eq!(told(&mut node, newer, None), (true, 0, newer, None));
    assert_eq!(told(&mut node, -1, None), (false, 0, -1, None), "who goes waits for nothing");
    node.stop();
}
