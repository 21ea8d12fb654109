//! Transactions over two journals: the parts become durable in the order that a loss of power needs.

use std::sync::Arc;

use delivery::TransactionState;
use journal::disk::Storage;
use types::{Durability, Offset, PartitionIndex};

use crate::gated::Disk;
use crate::node::Node;
use crate::offsets::{send_end, wait_until};
use crate::transactions::{DONE, PRODUCE_V2, batch, init, produce_of};

#[test]
fn a_transaction_is_done_when_its_markers_are_durable_also_in_logs_of_class_memory() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let disks: Vec<Arc<Disk>> = folders.iter().map(|folder| Disk::new(folder.path())).collect();
    let mut node = Node::start_on(disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Storage>).collect(), &[]);
    let (client, other) = (node.connect(), node.connect());
    for topic in ["t", "u"] {
        node.create_topic(client, topic, 2);
    }
    node.set_durability("t", Durability::Memory);
    let broker = Arc::clone(node.broker());
    let partition_in = |topic: &str, journal: usize| {
        let topic = broker.topic(topic).expect("it is there");
        let found = (0..2).find(|index| {
            topic.log(PartitionIndex(*index)).is_some_and(|log| broker.journal_number(log.id()) == journal)
        });
        found.expect("logs go to the journals in turn")
    };
    let far = partition_in("t", 1);
    let log = broker.topic("t").and_then(|topic| topic.log(PartitionIndex(far))).expect("it is there");
    let (_, producer) = init(&mut node, client);
    assert_eq!(produce_of(&mut node, client, "orders", PRODUCE_V2, far as i32, batch(producer, 0)), (DONE, 0));

    disks[1].flushes.close();
    send_end(&mut node, client, producer);
    wait_until("readers see the marker", || log.high_watermark() == Offset(2));
    // The first journal has long had the time to write that it is done.
    let near = partition_in("u", 0) as i32;
    for _ in 0..20 {
        assert_eq!(node.produce(other, "u", near, crate::node::batch(1)).0, DONE);
    }
    let state = || broker.transactions().look_at("orders", |known| known.state).expect("it is there");
    assert_eq!(state(), TransactionState::PrepareCommit, "the marker is not durable");
    disks[1].flushes.open();
    node.answer(client);
    assert_eq!(state(), TransactionState::CompleteCommit);
    node.stop();
}
