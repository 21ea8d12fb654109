//! Filters of groups: who gets what, and that nobody else ever does without.

use std::time::Duration;

use bytes::Bytes;
use kafka_wire::consumer_group_heartbeat::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use kafka_wire::fetch::FetchResponse;
use kafka_wire::find_coordinator::FindCoordinatorRequest;
use kafka_wire::list_groups::ListGroupsRequest;
use kafka_wire::{ErrorCode, Str};
use record::{BatchBuilder, BatchHeader, Batches, records};
use types::Offset;

use crate::node::{Node, fetched, flexible, partitions, wants};

const HEARTBEAT: (i16, i16) = (68, 1);
const FIND_COORDINATOR: (i16, i16) = (10, 4);
const LIST_GROUPS: (i16, i16) = (16, 4);
const GROUP: &str = "readers";
/// Longer than anybody is in doubt.
const LONG: Duration = Duration::from_secs(8);

struct World {
    node: Node,
    /// Connection to the coordinator, and the member's epoch.
    member: usize,
    epoch: i32,
    _folder: tempfile::TempDir,
}

/// A topic of five batches of ten records with keys 0 to 9, the last of them with other keys, and a group with one member.
fn world() -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    for number in 0..5 {
        assert_eq!(node.produce(client, "t", 0, batch(number == 4)).0, 0);
    }
    node.configure_group(GROUP, &[("mainstem.filter", "key IN ('3', '7')")]);
    let member = node.connect();
    let mut world = World { node, member, epoch: 0, _folder: folder };
    assert_eq!(world.heartbeat(), 0);
    world
}

fn batch(other_keys: bool) -> Bytes {
    let mut builder = BatchBuilder::default();
    for number in 0..10 {
        let key = if other_keys { "x".to_owned() } else { number.to_string() };
        builder = builder.record(1000 + number, Some(key.as_bytes()), Some(b"a value"));
    }
    builder.build()
}

/// Offsets of records, and where the answer ends.
fn read(response: &FetchResponse) -> (Vec<u64>, u64) {
    let Some(partition) = response.responses.first().map(|topic| &topic.partitions[0]) else { return (Vec::new(), 0) };
    assert_eq!(partition.error_code, 0);
    let bytes = Bytes::from(partition.records.as_ref().map(|records| records.0.concat()).unwrap_or_default());
    let (mut offsets, mut end) = (Vec::new(), 0);
    for found in Batches::new(&bytes) {
        let (at, header): (usize, BatchHeader) = found.expect("a batch");
        let batch = &bytes[at..at + header.total_bytes()];
        assert_eq!(header.crc, record::crc32c(&batch[21..]), "the checksum fits");
        end = header.next().0;
        if !header.control() {
            offsets.extend(records(batch).expect("records").iter().map(|record| record.offset.0));
        }
    }
    (offsets, end)
}

/// A filter that takes some ten thousand steps for each record, and wants those whose key ends with 3.
pub(crate) fn long_filter() -> String {
    format!("{} OR key LIKE '%3'", vec!["key LIKE '%never%'"; 700].join(" OR "))
}

/// A batch of so many records that have their numbers for keys.
pub(crate) fn numbered(count: i64) -> Bytes {
    let numbers = (0..count).map(|number| (number, format!("key-number-{number}")));
    numbers
        .fold(BatchBuilder::default(), |builder, (number, key)| builder.record(number, Some(key.as_bytes()), None))
        .build()
}

impl World {
    fn heartbeat(&mut self) -> i16 {
        let joins = self.epoch == 0;
        let request = ConsumerGroupHeartbeatRequest {
            group_id: GROUP.into(),
            member_id: "m".into(),
            member_epoch: self.epoch,
            rebalance_timeout_ms: if joins { 10_000 } else { -1 },
            subscribed_topic_names: joins.then(|| vec![Str::from("t")]),
            topic_partitions: joins.then(Vec::new),
            ..ConsumerGroupHeartbeatRequest::default()
        };
        self.node.send(self.member, HEARTBEAT, 0, |writer| request.encode(writer, HEARTBEAT.1)).expect("taken");
        let (_, body) = self.node.answer(self.member);
        let response =
            ConsumerGroupHeartbeatResponse::decode(&mut flexible(HEARTBEAT, body), HEARTBEAT.1).expect("an answer");
        if response.error_code == 0 {
            self.epoch = response.member_epoch;
        }
        response.error_code
    }

    fn ask_for(&mut self, client: usize, groups: &[&str]) {
        let coordinator_keys = groups.iter().map(|group| Str::from(*group)).collect();
        let request = FindCoordinatorRequest { coordinator_keys, ..FindCoordinatorRequest::default() };
        self.node
            .send(client, FIND_COORDINATOR, 0, |writer| request.encode(writer, FIND_COORDINATOR.1))
            .expect("taken");
        self.node.answer(client);
    }

    fn fetch(&mut self, client: usize, offset: i64) -> (Vec<u64>, u64) {
        read(&self.node.fetch(client, &wants("t", &[(0, offset)])))
    }

    /// A connection that gets everything, at once.
    fn gets_everything(&mut self, client: usize) {
        assert_eq!(self.fetch(client, 0), ((0..50).collect(), 50));
    }

    /// A connection that gets what passes.
    fn is_filtered(&mut self, client: usize) {
        assert_eq!(self.fetch(client, 0), (vec![3, 7, 13, 17, 23, 27, 33, 37], 50));
        assert_eq!(self.fetch(client, 14), (vec![13, 17, 23, 27, 33, 37], 50), "from within a batch");
        assert_eq!(self.fetch(client, 40), (vec![], 50), "only where it ends");
        assert_eq!(self.fetch(client, 50), (vec![], 0), "nothing new");
    }
}

#[test]
fn a_member_gets_what_passes_and_hears_how_far_it_was_read() {
    let mut world = world();
    let client = world.node.connect();
    world.ask_for(client, &[GROUP]);
    world.is_filtered(client);
    // The connection to the coordinator is a member's too, if it fetches.
    let member = world.member;
    world.is_filtered(member);
    // Another filter counts from the next fetch on.
    world.node.configure_group(GROUP, &[("mainstem.filter", "key = 'x'")]);
    assert_eq!(world.fetch(client, 0), ((40..50).collect(), 50));
    world.node.configure_group(GROUP, &[]);
    world.gets_everything(client);
    world.node.stop();
}

#[test]
fn client_ids_that_say_the_group() {
    let mut world = world();
    world
        .node
        .configure_group(GROUP, &[("mainstem.filter", "key IN ('3', '7')"), ("mainstem.filter.client.ids", "a, test")]);
    let client = world.node.connect();
    world.is_filtered(client);
    // Somebody with another one is nobody's: nobody of that name is a member.
    world.node.client_id = "consumer-readers-1";
    let client = world.node.connect();
    world.gets_everything(client);
    world.node.stop();
}

#[test]
fn others_with_the_same_client_id_get_everything() {
    let mut world = world();
    // Of another group, of two, an administrator, and one that is said nothing of, after a while.
    let other = world.node.connect();
    world.ask_for(other, &["others"]);
    world.gets_everything(other);
    let both = world.node.connect();
    world.ask_for(both, &[GROUP]);
    world.ask_for(both, &["others"]);
    world.gets_everything(both);
    let administrator = world.node.connect();
    world.ask_for(administrator, &[GROUP, "others"]);
    world.gets_everything(administrator);
    let administrator = world.node.connect();
    world.ask_for(administrator, &[GROUP]);
    let request = ListGroupsRequest::default();
    world.node.send(administrator, LIST_GROUPS, 0, |writer| request.encode(writer, LIST_GROUPS.1)).expect("taken");
    world.node.answer(administrator);
    world.gets_everything(administrator);
    let nobody = world.node.connect();
    assert_eq!(world.fetch(nobody, 0), (vec![], 0), "in doubt");
    world.node.advance(LONG);
    world.gets_everything(nobody);
    world.node.client_id = "stranger";
    let stranger = world.node.connect();
    world.gets_everything(stranger);
    world.node.stop();
}

/// Client ids and addresses anybody at that host can have: what a member's connections are known by is who has logged in on them as well.
#[test]
fn another_user_with_the_same_client_id_gets_everything_at_once() {
    let mut world = world();
    let group = [("mainstem.filter", "key IN ('3', '7')"), ("mainstem.filter.client.ids", "a, test")];
    for settings in [&group[..], &group[..1]] {
        world.node.configure_group(GROUP, settings);
        let other = world.node.connect();
        world.node.set_certified(other, "CN=vic");
        world.gets_everything(other);
    }
    world.node.configure_group(GROUP, &group);
    let client = world.node.connect();
    world.is_filtered(client);
    world.node.stop();
}

#[test]
fn a_member_in_doubt_is_asked_once_to_look_for_its_coordinator() {
    let mut world = world();
    assert_eq!(world.heartbeat(), 0, "nobody is in doubt");
    let client = world.node.connect();
    assert_eq!(world.fetch(client, 0), (vec![], 0), "it may be the member's");
    assert_eq!(world.heartbeat(), ErrorCode::NotCoordinator.code());
    assert_eq!(world.heartbeat(), 0, "once");
    world.ask_for(client, &[GROUP]);
    world.is_filtered(client);
    assert_eq!(world.heartbeat(), 0);
    world.node.stop();
}

#[test]
fn a_wait_goes_on_where_it_was_and_ends_with_the_first_record_that_passes() {
    let mut world = world();
    let (client, producer) = (world.node.connect(), world.node.connect());
    world.ask_for(client, &[GROUP]);
    let mut request = wants("t", &[(0, 40)]);
    request.max_wait_ms = 500;
    world.node.send_fetch(client, 0, &request);
    assert!(world.node.poll(client).is_none(), "what is not wanted ends no wait");
    assert_eq!(world.node.produce(producer, "t", 0, batch(true)).0, 0);
    assert!(world.node.poll(client).is_none());
    assert_eq!(world.node.produce(producer, "t", 0, batch(false)).0, 0);
    let (_, body) = world.node.answer(client);
    assert_eq!(read(&fetched(body)), (vec![63, 67], 70));
    // Time ends it too, and tells how far it was read.
    request = wants("t", &[(0, 70)]);
    request.max_wait_ms = 500;
    world.node.send_fetch(client, 0, &request);
    assert_eq!(world.node.produce(producer, "t", 0, batch(true)).0, 0);
    assert!(world.node.poll(client).is_none());
    world.node.advance(Duration::from_millis(501));
    let (_, body) = world.node.answer(client);
    assert_eq!(read(&fetched(body)), (vec![], 80));
    world.node.stop();
}

#[test]
fn an_answer_keeps_to_the_bounds_of_its_fetch() {
    let mut world = world();
    let client = world.node.connect();
    world.ask_for(client, &[GROUP]);
    let bytes = |response: &FetchResponse| partitions(response)[0].2;
    let mut request = wants("t", &[(0, 0)]);
    request.max_bytes = 1;
    let first = world.node.fetch(client, &request);
    assert_eq!(read(&first), (vec![3, 7], 10), "the first comes, however large it is");
    // An answer ends with a marker, which comes on top.
    let one = bytes(&first) - record::gap_marker(Offset(9), 0, 0).len();
    for (of_partition, of_all) in [(3 * one, 1 << 20), (1 << 20, 3 * one), (4 * one - 1, 4 * one - 1)] {
        let mut request = wants("t", &[(0, 10)]);
        request.topics[0].partitions[0].partition_max_bytes = of_partition as i32;
        request.max_bytes = of_all as i32;
        assert_eq!(read(&world.node.fetch(client, &request)), (vec![13, 17, 23, 27, 33, 37], 50));
        request.topics[0].partitions[0].fetch_offset = 0;
        assert_eq!(
            read(&world.node.fetch(client, &request)),
            (vec![3, 7, 13, 17, 23, 27], 30),
            "there is no room for a fourth"
        );
    }
    world.node.stop();
}

#[test]
fn what_has_passed_is_sent_when_another_partition_fills_the_answer() {
    for (early, late) in [(0, 1), (1, 0)] {
        let mut world = world();
        let (client, producer) = (world.node.connect(), world.node.connect());
        world.node.create_topic(producer, "two", 2);
        world.ask_for(client, &[GROUP]);
        let mut request = wants("two", &[(0, 0), (1, 0)]);
        (request.min_bytes, request.max_bytes, request.max_wait_ms) = (300, 310, 60_000);
        world.node.send_fetch(client, 0, &request);
        assert_eq!(world.node.produce(producer, "two", early, batch(false)).0, 0);
        assert_eq!(world.node.produce(producer, "two", early, batch(true)).0, 0);
        assert!(world.node.poll(client).is_none(), "too little has passed");
        let mut many = BatchBuilder::default();
        for _ in 0..40 {
            many = many.record(1000, Some(b"3"), Some(b"a value"));
        }
        assert_eq!(world.node.produce(producer, "two", late, many.build()).0, 0);
        let (_, body) = world.node.answer(client);
        let mut response = fetched(body);
        response.responses[0].partitions.retain(|partition| partition.partition_index == early);
        assert_eq!(read(&response), (vec![3, 7], 20), "and that nothing follows which passes");
        world.node.stop();
    }
}

#[test]
fn what_takes_long_to_judge_is_judged_by_other_threads() {
    let mut world = world();
    let client = world.node.connect();
    world.ask_for(client, &[GROUP]);
    world.is_filtered(client);
    let turns =
        |world: &World| world.node.broker().unpacking().counts().turns.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(turns(&world), 0, "this takes no time");
    assert_eq!(world.node.produce(client, "t", 0, numbered(3000)).0, 0);
    world.node.configure_group(GROUP, &[("mainstem.filter", &long_filter())]);
    let (mut at, mut found, mut answers) = (0, Vec::new(), 0);
    while at < 3050 {
        let (offsets, end) = world.fetch(client, at);
        found.extend(offsets);
        at = at.max(end as i64);
        answers += 1;
        assert!(answers < 20, "it comes no further than {at}");
    }
    let expected: Vec<u64> = [3, 13, 23, 33].into_iter().chain((50..3050).filter(|offset| offset % 10 == 3)).collect();
    assert_eq!(found, expected);
    // About 35 million steps, four million in each turn.
    assert!((5..20).contains(&turns(&world)), "{}", turns(&world));
    let before = turns(&world);
    assert_eq!(world.fetch(client, 50).0.len(), 300);
    assert_eq!(turns(&world), before, "it is known now");
    world.node.stop();
}
