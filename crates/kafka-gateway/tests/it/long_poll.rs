//! A fetch without news waits: for data, for enough of it, or for its time to pass.

use std::time::Duration;

use kafka_gateway::MemoryPressure;
use kafka_wire::fetch::FetchRequest;

use crate::memory::kept;
use crate::node::{Node, batch, fetched, partitions, wants};

fn patient(request: FetchRequest, max_wait_ms: i32, min_bytes: i32) -> FetchRequest {
    FetchRequest { max_wait_ms, min_bytes, ..request }
}

#[test]
fn it_ends_when_a_record_arrives() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (reader, producer) = (node.connect(), node.connect());
    node.create_topic(reader, "t", 2);
    node.send_fetch(reader, 5, &patient(wants("t", &[(0, 0), (1, 0)]), 60_000, 1));
    assert!(node.poll(reader).is_none(), "nothing to tell yet");
    assert_eq!(node.timeout(reader), Some(Duration::from_secs(60)));
    assert_eq!(node.produce(producer, "t", 1, batch(2)), (0, 0));
    let (correlation, body) = node.answer(reader);
    let found = partitions(&fetched(body));
    assert_eq!(correlation, 5);
    assert!(found[0].2 == 0 && found[1].2 > 0, "{found:?}");
    node.stop();
}

#[test]
fn it_ends_when_its_time_has_passed_and_not_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let reader = node.connect();
    node.create_topic(reader, "t", 1);
    node.send_fetch(reader, 1, &patient(wants("t", &[(0, 0)]), 500, 1));
    node.advance(Duration::from_millis(499));
    assert!(node.poll(reader).is_none());
    node.advance(Duration::from_millis(1));
    let (_, body) = node.poll(reader).expect("an empty answer on time");
    assert_eq!(partitions(&fetched(body)), [(0, 0, 0)]);
    node.stop();
}

#[test]
fn it_waits_for_as_many_bytes_as_it_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (reader, producer) = (node.connect(), node.connect());
    node.create_topic(reader, "t", 1);
    let (one, wanted) = (batch(1), 2 * batch(1).len() as i32);
    node.send_fetch(reader, 1, &patient(wants("t", &[(0, 0)]), 60_000, wanted));
    node.produce(producer, "t", 0, one.clone());
    assert!(node.poll(reader).is_none(), "half of it is not enough");
    node.produce(producer, "t", 0, one);
    let (_, body) = node.answer(reader);
    assert_eq!(partitions(&fetched(body)), [(0, 0, wanted as usize)]);
    node.stop();
}

#[test]
fn an_error_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let reader = node.connect();
    node.create_topic(reader, "t", 1);
    node.send_fetch(reader, 1, &patient(wants("t", &[(0, 99)]), 60_000, 1));
    let (_, body) = node.poll(reader).expect("at once");
    assert_eq!(partitions(&fetched(body)), [(0, kafka_wire::ErrorCode::OffsetOutOfRange.code(), 0)]);
    node.stop();
}

#[test]
fn it_does_not_wait_for_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let reader = node.connect();
    node.create_topic(reader, "t", 1);
    // What a consumer that closes sends after its last fetch: the end of its session, of no partition.
    node.send_fetch(reader, 1, &patient(wants("t", &[]), 60_000, 1));
    let (_, body) = node.poll(reader).expect("an answer at once");
    assert_eq!(partitions(&fetched(body)), []);
    node.send_fetch(reader, 2, &patient(wants("t", &[(0, 0)]), 60_000, 0));
    let (_, body) = node.poll(reader).expect("no byte is enough for whoever asks for none");
    assert_eq!(partitions(&fetched(body)), [(0, 0, 0)]);
    node.stop();
}

#[test]
fn it_waits_for_no_more_than_it_has_room_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (reader, producer) = (node.connect(), node.connect());
    node.create_topic(reader, "t", 2);
    let one = batch(1);
    let room = one.len() as i32 * 5 / 2;
    for _ in 0..3 {
        node.produce(producer, "t", 0, one.clone());
    }
    // More is asked for than may be sent, and what may be sent is no whole number of batches.
    node.send_fetch(reader, 1, &FetchRequest { max_bytes: room, ..patient(wants("t", &[(0, 0)]), 60_000, 1 << 20) });
    let (_, body) = node.answer(reader);
    assert_eq!(partitions(&fetched(body)), [(0, 0, 2 * one.len())]);
    // All that there is has room: it waits for more.
    node.send_fetch(reader, 2, &FetchRequest { max_bytes: room, ..patient(wants("t", &[(0, 1)]), 60_000, 1 << 20) });
    assert!(node.poll(reader).is_none());
    node.produce(producer, "t", 0, one.clone());
    let (_, body) = node.answer(reader);
    assert_eq!(partitions(&fetched(body)), [(0, 0, 2 * one.len())]);
    node.stop();
}

#[test]
fn who_reads_gets_short_answers_while_others_do_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start_with_answers(folder.path(), 1 << 20);
    let (deaf, reader, producer) = (node.connect(), node.connect(), node.connect());
    node.create_topic(reader, "t", 3);
    let (small, large) = (batch(500), batch(5_000));
    assert!((2_000..32 << 10).contains(&small.len()) && large.len() > 64 << 10);
    for _ in 0..20 {
        node.produce(producer, "t", 0, small.clone());
    }
    node.produce(producer, "t", 1, large.clone());
    node.send_fetch(deaf, 1, &patient(wants("t", &[(0, 0), (1, 0)]), 60_000, 1));
    assert!(node.gateway.memory_pressure() == MemoryPressure::Full && node.gateway.pinned_bytes() >= 1 << 20);
    // What is short comes, and as much of what is not as is short.
    let one = |node: &mut Node, partition| {
        partitions(&node.fetch(reader, &patient(wants("t", &[(partition, 0)]), 60_000, 1)))
    };
    let (_, _, bytes) = one(&mut node, 0)[0];
    assert!(bytes > 0 && bytes <= 32 << 10 && bytes % small.len() == 0, "{bytes} bytes");
    node.send_fetch(reader, 2, &patient(wants("t", &[(2, 0)]), 60_000, 1));
    assert!(node.poll(reader).is_none(), "nothing to tell yet");
    node.produce(producer, "t", 2, small.clone());
    let (_, body) = node.answer(reader);
    assert_eq!(partitions(&fetched(body)), [(2, 0, small.len())]);
    // What is not short in any part has to wait until the other one has read.
    node.send_fetch(reader, 3, &patient(wants("t", &[(1, 0)]), 60_000, 1));
    node.advance(Duration::from_millis(100));
    assert!(node.poll(reader).is_none());
    assert!(node.poll(deaf).is_some());
    node.advance(Duration::from_millis(100));
    let (_, body) = node.answer(reader);
    assert_eq!(partitions(&fetched(body)), [(1, 0, large.len())]);
    node.stop();
}

/// Of all partitions of `t`.
fn all(count: i32) -> FetchRequest {
    patient(wants("t", &(0..count).map(|partition| (partition, 0)).collect::<Vec<_>>()), 60_000, 1)
}

#[test]
fn one_of_many_partitions_counts_while_it_waits_and_takes_no_more() {
    const COUNT: i32 = 900;
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let (before, reader, producer) = (node.connect(), node.connect(), node.connect());
    node.create_topic(reader, "t", COUNT);
    let request = all(COUNT);
    // Who waits for a log is told in a table of the shard, which is there then.
    node.send_fetch(before, 1, &request);
    assert!(node.poll(before).is_none());
    let others = node.gateway.long_poll_bytes();
    let ((), held) = kept(|| node.send_fetch(reader, 1, &request));
    assert!(node.poll(reader).is_none(), "nothing to tell yet");
    let counted = (node.gateway.long_poll_bytes() - others) as isize;
    assert!(held < counted && counted < 200 * COUNT as isize, "{held} bytes, {counted} count");
    node.produce(producer, "t", 7, batch(2));
    let (_, body) = node.answer(reader);
    assert!(partitions(&fetched(body)).iter().all(|(index, code, bytes)| *code == 0 && (*bytes > 0) == (*index == 7)));
    node.answer(before);
    assert_eq!(node.gateway.long_poll_bytes(), 0);
    node.stop();
}

#[test]
fn without_memory_for_it_one_is_answered_and_its_connection_rests() {
    let folder = tempfile::tempdir().expect("a folder");
    // For answers; half as much for those that wait, which the first is more than.
    let mut node = Node::start_with_answers(folder.path(), 32 << 10);
    let (first, second, few, producer) = (node.connect(), node.connect(), node.connect(), node.connect());
    node.create_topic(first, "t", 300);
    node.send_fetch(first, 1, &all(300));
    assert!(node.poll(first).is_none() && node.gateway.long_poll_bytes() > 16 << 10);
    node.send_fetch(second, 1, &all(300));
    let (_, body) = node.poll(second).expect("an answer at once");
    let response = fetched(body);
    assert!(
        response.throttle_time_ms == 500
            && partitions(&response).iter().all(|(_, code, bytes)| (*code, *bytes) == (0, 0))
    );
    assert!(!node.session(second).wants_read(), "it asks again when it has rested");
    // Few partitions may always wait.
    node.send_fetch(few, 1, &all(100));
    assert!(node.poll(few).is_none());
    // What is there is told.
    node.produce(producer, "t", 200, batch(2));
    let (_, body) = node.answer(first);
    assert_eq!(partitions(&fetched(body)).iter().filter(|(_, _, bytes)| *bytes > 0).count(), 1);
    node.advance(Duration::from_millis(500));
    assert!(node.session(second).wants_read());
    node.send_fetch(
        second,
        2,
        &patient(wants("t", &(0..200).map(|partition| (partition, 0)).collect::<Vec<_>>()), 60_000, 1),
    );
    assert!(node.poll(second).is_none(), "there is memory again");
    node.stop();
}
