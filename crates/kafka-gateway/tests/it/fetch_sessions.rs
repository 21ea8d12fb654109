//! Incremental fetch sessions (KIP-227): epochs, news only, forgetting, and a cache that does not grow.

use kafka_wire::fetch::{FetchRequest, ForgottenTopic};
use kafka_wire::{ErrorCode, Str};

use crate::node::{Node, batch, partitions, wants, wants_news};

fn in_session(request: FetchRequest, id: i32, epoch: i32) -> FetchRequest {
    FetchRequest { session_id: id, session_epoch: epoch, ..request }
}

#[test]
fn a_session_answers_only_what_is_new() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 3);
    let first = node.fetch(client, &in_session(wants("t", &[(0, 0), (1, 0), (2, 0)]), 0, 0));
    assert!(first.session_id != 0 && first.error_code == 0);
    assert_eq!(partitions(&first), [(0, 0, 0), (1, 0, 0), (2, 0, 0)], "a full answer names all");
    assert_eq!(node.produce(client, "t", 1, batch(3)), (0, 0));
    let news = node.fetch(client, &in_session(wants_news(), first.session_id, 1));
    let found = partitions(&news);
    assert!(found.len() == 1 && found[0].0 == 1 && found[0].2 > 0, "{found:?}");
    assert_eq!(news.session_id, first.session_id);
    // The consumer has read them and says so; nothing else is new.
    let nothing = node.fetch(client, &in_session(wants("t", &[(1, 3)]), first.session_id, 2));
    assert_eq!(partitions(&nothing), []);
    // What is forgotten is not reported any more.
    let forgotten = ForgottenTopic { topic: Str::from("t"), partitions: vec![1], ..ForgottenTopic::default() };
    node.produce(client, "t", 1, batch(1));
    node.produce(client, "t", 2, batch(1));
    let request = FetchRequest { forgotten_topics_data: vec![forgotten], ..wants_news() };
    let rest = node.fetch(client, &in_session(request, first.session_id, 3));
    assert_eq!(partitions(&rest).iter().map(|(partition, ..)| *partition).collect::<Vec<_>>(), [2]);
    node.stop();
}

/// A consumer names a partition again only when it wants something else of it.
#[test]
fn a_session_reads_what_has_the_name_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let id = node.fetch(client, &in_session(wants("t", &[(0, 0), (1, 0)]), 0, 0)).session_id;
    let mut epoch = 0;
    let mut news = |node: &mut Node| {
        epoch += 1;
        partitions(&node.fetch(client, &in_session(wants_news(), id, epoch)))
    };
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(news(&mut node).iter().map(|one| (one.0, one.1)).collect::<Vec<_>>(), [(1, unknown)]);
    node.broker().add_partitions("t", 2).expect("there is room");
    assert_eq!(node.produce(client, "t", 1, batch(1)), (0, 0));
    let found = news(&mut node);
    assert!(found.len() == 1 && found[0].0 == 1 && found[0].1 == 0 && found[0].2 > 0, "the new partition: {found:?}");
    node.broker().delete_topic(&node.broker().topic("t").expect("it is there")).expect("deleted");
    assert_eq!(news(&mut node).iter().map(|one| one.1).collect::<Vec<_>>(), [unknown; 2]);
    node.create_topic(client, "t", 2);
    assert_eq!(node.produce(client, "t", 0, batch(1)), (0, 0));
    let found = news(&mut node);
    assert!(found.iter().any(|one| one.0 == 0 && one.1 == 0 && one.2 > 0), "the new topic: {found:?}");
    node.stop();
}

#[test]
fn a_wrong_epoch_or_session_is_refused_and_a_closed_session_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let id = node.fetch(client, &in_session(wants("t", &[(0, 0)]), 0, 0)).session_id;
    let code = |node: &mut Node, id, epoch| node.fetch(client, &in_session(wants_news(), id, epoch)).error_code;
    assert_eq!(code(&mut node, id, 5), ErrorCode::InvalidFetchSessionEpoch.code());
    assert_eq!(code(&mut node, id ^ 1, 1), ErrorCode::FetchSessionIdNotFound.code());
    assert_eq!(code(&mut node, id, 1), 0, "the right epoch still works");
    let last = node.fetch(client, &in_session(wants("t", &[(0, 0)]), id, -1));
    assert_eq!((last.error_code, last.session_id), (0, 0), "the final epoch closes it");
    assert_eq!(code(&mut node, id, 2), ErrorCode::FetchSessionIdNotFound.code());
    node.stop();
}

#[test]
fn sessions_are_bounded_and_the_idle_give_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("max.incremental.fetch.session.cache.slots", "2")]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let open = |node: &mut Node| node.fetch(client, &in_session(wants("t", &[(0, 0)]), 0, 0));
    let (first, second) = (open(&mut node).session_id, open(&mut node).session_id);
    assert!(first != 0 && second != 0 && first != second);
    let third = open(&mut node);
    assert_eq!((third.error_code, third.session_id), (0, 0), "served in full, without a session");
    node.advance(std::time::Duration::from_secs(100));
    assert_eq!(node.fetch(client, &in_session(wants_news(), second, 1)).error_code, 0, "used, so it stays");
    node.advance(std::time::Duration::from_secs(60));
    let fourth = open(&mut node).session_id;
    assert!(fourth != 0, "the one that nobody used for two minutes gave way");
    assert_eq!(
        node.fetch(client, &in_session(wants_news(), first, 1)).error_code,
        ErrorCode::FetchSessionIdNotFound.code()
    );
    assert_eq!(node.fetch(client, &in_session(wants_news(), second, 2)).error_code, 0);
    node.stop();
}

#[test]
fn sessions_have_room_for_so_many_partitions_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let many = |count: i32| (0..count).map(|partition| (partition, 0)).collect::<Vec<_>>();
    let open = |node: &mut Node, count| node.fetch(client, &in_session(wants("t", &many(count)), 0, 0));
    let too_long = open(&mut node, 20_001);
    assert_eq!(
        (too_long.error_code, too_long.session_id, partitions(&too_long).len()),
        (0, 0, 20_001),
        "one alone has not so much"
    );
    let ids: Vec<i32> = (0..25).map(|_| open(&mut node, 20_000).session_id).collect();
    assert!(ids.iter().all(|id| *id != 0));
    let one_more = open(&mut node, 1);
    assert_eq!(
        (one_more.error_code, one_more.session_id, partitions(&one_more).len()),
        (0, 0, 1),
        "served in full, without a session"
    );
    node.fetch(client, &in_session(wants_news(), ids[0], -1));
    let third = open(&mut node, 10).session_id;
    assert!(third != 0, "the room was given back");
    for more in [20_000, 20_001] {
        let third = open(&mut node, 10).session_id;
        let grown = node.fetch(client, &in_session(wants("t", &many(more)), third, 1));
        assert_eq!(grown.error_code, ErrorCode::FetchSessionIdNotFound.code(), "it is over");
    }
    node.fetch(client, &in_session(wants_news(), third, -1));
    let last = open(&mut node, 20_000).session_id;
    assert!(last != 0, "that of those, too");
    node.advance(std::time::Duration::from_secs(100));
    assert_eq!(node.fetch(client, &in_session(wants_news(), last, 1)).error_code, 0, "used, so it stays");
    assert_eq!(open(&mut node, 15_000).session_id, 0);
    node.advance(std::time::Duration::from_secs(60));
    assert!(open(&mut node, 15_000).session_id != 0, "what nobody used for two minutes gave way");
    assert_eq!(node.fetch(client, &in_session(wants_news(), last, 2)).error_code, 0);
    let long = "x".repeat(30_000);
    assert_eq!(node.fetch(client, &in_session(wants(&long, &[(0, 0)]), 0, 0)).session_id, 0, "of no topic");
    node.stop();
}

/// As for Kafka, which keeps one entry a partition: each look goes through all of them.
#[test]
fn of_a_partition_that_is_named_twice_the_last_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 3);
    node.produce(client, "t", 1, batch(7));
    let mut named: Vec<(i32, i64)> = (0..100_000).map(|number| (number % 2, 7 - i64::from(number % 3))).collect();
    named.extend([(1, 7), (2, 0), (0, 0)]);
    let all = node.fetch(client, &in_session(wants("t", &named), 0, 0));
    assert_eq!(partitions(&all), [(0, 0, 0), (1, 0, 0), (2, 0, 0)], "none of it out of range");
    assert!(all.session_id != 0);
    node.produce(client, "t", 1, batch(1));
    let news = node.fetch(client, &in_session(wants_news(), all.session_id, 1));
    assert_eq!(partitions(&news).iter().map(|(partition, code, _)| (*partition, *code)).collect::<Vec<_>>(), [(1, 0)]);
    node.stop();
}
