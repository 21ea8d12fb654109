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
    assert_eq!(node.fetch(client, &in_session(wants_news(), first, 1)).error_code, ErrorCode::FetchSessionIdNotFound.code());
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
    let first = node.fetch(client, &in_session(wants("t", &many(300_000)), 0, 0)).session_id;
    assert!(first != 0);
    let second = node.fetch(client, &in_session(wants("t", &many(300_000)), 0, 0));
    assert_eq!((second.error_code, second.session_id, partitions(&second).len()), (0, 0, 300_000), "served in full, without a session");
    let third = node.fetch(client, &in_session(wants("t", &many(10)), 0, 0)).session_id;
    assert!(third != 0);
    let grown = node.fetch(client, &in_session(wants("t", &many(300_000)), third, 1));
    assert_eq!(grown.error_code, ErrorCode::FetchSessionIdNotFound.code(), "it is over");
    node.fetch(client, &in_session(wants_news(), first, -1));
    let again = node.fetch(client, &in_session(wants("t", &many(300_000)), 0, 0)).session_id;
    assert!(again != 0, "the room was given back");
    let long = "x".repeat(30_000);
    assert_eq!(node.fetch(client, &in_session(wants(&long, &[(0, 0)]), 0, 0)).session_id, 0, "of no topic");
    node.stop();
}
