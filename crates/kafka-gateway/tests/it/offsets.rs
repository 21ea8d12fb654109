//! Committed offsets: what a group is told is what a restart finds, whoever hears of the journal first or not at all, and what was
//! committed later wins.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::GoOn;
use journal::disk::Storage;
use kafka_wire::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use record::BatchBuilder;

use crate::gated::Disk;
use crate::node::{Node, flexible};
use crate::transactions::{DONE, END_V2, Producer, commit_offset, committed, init};

const OFFSET_COMMIT: (i16, i16) = (8, 9);
const GROUP: &str = "readers";
/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// A node with topic "t" on a disk of its own.
fn start(folder: &Path, clients: usize) -> (Arc<Disk>, Node) {
    let disk = Disk::new(folder);
    let mut node = Node::start_on(vec![Arc::clone(&disk) as Arc<dyn Storage>], &[]);
    for _ in 0..clients {
        node.connect();
    }
    node.create_topic(0, "t", 1);
    (disk, node)
}

/// The gate closes before a write, so that what is sent from now on is queued.
fn hold_up(disk: &Disk, node: &mut Node, client: usize) {
    disk.writes.close();
    send_bulk(node, client, 100_000);
    wait_until("the journal's thread waits", || node.broker().journals()[0].queued_bytes() == 0);
}

fn send_bulk(node: &mut Node, client: usize, bytes: usize) {
    let value = vec![b'x'; bytes];
    node.send_produce(client, 1, "t", 0, BatchBuilder::default().record(1, None, Some(&value)).build());
}

fn send_commit(node: &mut Node, client: usize, offset: i64) {
    let partition =
        OffsetCommitRequestPartition { committed_offset: offset, committed_leader_epoch: -1, ..Default::default() };
    let topic = OffsetCommitRequestTopic { name: "t".into(), partitions: vec![partition], ..Default::default() };
    let request = OffsetCommitRequest {
        group_id: GROUP.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..OffsetCommitRequest::default()
    };
    node.send(client, OFFSET_COMMIT, 2, |writer| request.encode(writer, OFFSET_COMMIT.1)).expect("taken");
}

fn commit_is_done(node: &mut Node, client: usize) {
    loop {
        let (correlation, body) = node.answer(client);
        if correlation == 2 {
            let response =
                OffsetCommitResponse::decode(&mut flexible(OFFSET_COMMIT, body), OFFSET_COMMIT.1).expect("an answer");
            return assert_eq!(response.topics[0].partitions[0].error_code, DONE);
        }
    }
}

/// What the group has committed, asked by a client of its own; a restart finds the same.
fn committed_also_after_a_restart(mut node: Node, folder: &Path) -> i64 {
    let asks = node.connect();
    let (code, before) = committed(&mut node, asks, true);
    node.stop();
    let mut node = Node::start(folder, &[]);
    let asks = node.connect();
    assert_eq!((code, committed(&mut node, asks, true)), (DONE, (DONE, before)), "what a restart finds");
    node.stop();
    before
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_follows_the_journal_whichever_connection_hears_of_it_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_disk, mut node) = start(folder.path(), 2);
    send_commit(&mut node, 0, 5);
    let first = node.arrived(1);
    send_commit(&mut node, 1, 6);
    let second = node.arrived(1);
    // Connections of other shards hear when those get to it.
    node.hand_out(second);
    commit_is_done(&mut node, 1);
    node.hand_out(first);
    commit_is_done(&mut node, 0);
    assert_eq!(committed_also_after_a_restart(node, folder.path()), 6);
}

#[test]
fn a_commit_takes_effect_though_its_connection_has_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_disk, mut node) = start(folder.path(), 1);
    send_commit(&mut node, 0, 7);
    // A shard passes over what comes for a connection that it has no more.
    node.close(0);
    drop(node.arrived(1));
    assert_eq!(committed_also_after_a_restart(node, folder.path()), 7);
}

#[test]
fn a_commit_that_was_allowed_earlier_lies_earlier() {
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, mut node) = start(folder.path(), 3);
    hold_up(&disk, &mut node, 2);
    // The first one's connection has bulk before it, which small commits of others overtake.
    send_bulk(&mut node, 0, 900_000);
    send_commit(&mut node, 0, 5);
    send_commit(&mut node, 1, 6);
    disk.writes.open();
    commit_is_done(&mut node, 0);
    commit_is_done(&mut node, 1);
    assert_eq!(committed_also_after_a_restart(node, folder.path()), 6);
}

#[test]
fn a_group_that_is_deleted_behind_a_commit_stays_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, mut node) = start(folder.path(), 3);
    send_commit(&mut node, 0, 4);
    commit_is_done(&mut node, 0);
    hold_up(&disk, &mut node, 2);
    send_commit(&mut node, 0, 5);
    let broker = Arc::clone(node.broker());
    let deletes = std::thread::spawn(move || broker.delete_group(GROUP));
    wait_until("the group goes", || !node.broker().groups().exists(GROUP));
    disk.writes.open();
    assert_eq!(deletes.join().expect("no panic"), Ok(()));
    commit_is_done(&mut node, 0);
    assert!(!node.broker().groups().exists(GROUP), "the commit was before the deletion");
    assert_eq!(committed_also_after_a_restart(node, folder.path()), -1);
}

#[test]
fn an_offset_that_is_deleted_or_reset_behind_a_commit_stays_so() {
    for (reset, expected) in [(None, -1), (Some(2), 2)] {
        let folder = tempfile::tempdir().expect("a folder");
        let (disk, mut node) = start(folder.path(), 3);
        send_commit(&mut node, 0, 4);
        commit_is_done(&mut node, 0);
        hold_up(&disk, &mut node, 2);
        // It waits behind the bulk of its connection, if it waits there.
        send_bulk(&mut node, 0, 900_000);
        send_commit(&mut node, 0, 5);
        let queued = node.broker().journals()[0].queued_bytes();
        let broker = Arc::clone(node.broker());
        let changes = std::thread::spawn(move || match reset {
            None => broker.delete_offset(GROUP, "t", 0, false).is_ok(),
            Some(offset) => {
                broker.set_group_offsets(GROUP, &[GoOn { topic: "t".to_owned(), partition: 0, offset }]).is_ok()
            }
        });
        wait_until("the change is queued", || node.broker().journals()[0].queued_bytes() > queued);
        disk.writes.open();
        assert!(changes.join().expect("no panic"));
        commit_is_done(&mut node, 0);
        assert_eq!(committed_also_after_a_restart(node, folder.path()), expected);
    }
}

#[test]
fn offsets_of_a_transaction_and_of_its_group_take_effect_in_the_order_of_the_journal() {
    for round in 0..20 {
        let folder = tempfile::tempdir().expect("a folder");
        let (disk, mut node) = start(folder.path(), 4);
        let (_, producer) = init(&mut node, 3);
        assert_eq!(commit_offset(&mut node, 3, producer, 5), DONE);
        hold_up(&disk, &mut node, 2);
        let plain_first = round % 2 == 0;
        for plain in [plain_first, !plain_first] {
            if plain {
                send_commit(&mut node, 0, 6);
            } else {
                send_end(&mut node, 3, producer);
            }
        }
        disk.writes.open();
        commit_is_done(&mut node, 0);
        node.answer(3);
        assert_eq!(committed_also_after_a_restart(node, folder.path()), if plain_first { 5 } else { 6 });
    }
}

#[test]
fn offsets_of_a_transaction_do_not_outlive_their_topic() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_disk, mut node) = start(folder.path(), 2);
    let (_, producer) = init(&mut node, 1);
    assert_eq!(commit_offset(&mut node, 1, producer, 5), DONE);
    let topic = node.broker().topic("t").expect("it is there");
    node.broker().delete_topic(&topic).expect("deleted");
    send_end(&mut node, 1, producer);
    node.answer(1);
    node.create_topic(0, "t", 1);
    assert_eq!(committed_also_after_a_restart(node, folder.path()), -1, "that was another topic");
}

pub fn send_end(node: &mut Node, client: usize, producer: Producer) {
    let request = kafka_wire::end_txn::EndTxnRequest {
        transactional_id: "orders".into(),
        producer_id: producer.0,
        producer_epoch: producer.1,
        committed: true,
        ..Default::default()
    };
    node.send(client, END_V2, 3, |writer| request.encode(writer, END_V2.1)).expect("taken");
}
