//! A start that changes nothing: a broker that would refuse says so, and nothing is left of it in memory.

use std::path::Path;
use std::sync::{Arc, Weak};

use broker::append::AppendItem;
use broker::{Broker, BrokerConfig, Journal, Settings};
use bytes::Bytes;
use types::{Durability, LogId, NodeId, SystemClock};

use crate::node::{Node, journal_folder, log_of};

fn rehearse(data: &Path, journals: usize) -> (Result<(), String>, Vec<Weak<Journal>>) {
    let journals: Vec<Arc<Journal>> = (0..journals)
        .map(|number| journal::rehearse(&journal_folder(data, number), number as u16).expect("it opens"))
        .collect();
    let left = journals.iter().map(Arc::downgrade).collect();
    let config = BrokerConfig {
        cluster_id: "test".to_owned(),
        node_id: NodeId(1),
        settings: Settings::default(),
        durability: Durability::Fsync,
        clock: Arc::new(SystemClock),
    };
    (Broker::rehearse(config, journals).map_err(|error| error.to_string()), left)
}

#[test]
fn a_rehearsal_says_what_a_start_would_and_leaves_nothing_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), 2);
    let (topic, queue) = (node.topic("t", 4), node.queue("q", true));
    node.fill(&log_of(&topic), 200);
    node.fill(queue.log(), 200);
    node.close();
    let (outcome, left) = rehearse(folder.path(), 2);
    assert_eq!(outcome, Ok(()));
    assert!(left.iter().all(|journal| journal.strong_count() == 0), "nothing holds a journal");
    // A record of a topic that this release does not know.
    let node = Node::open(folder.path(), 2);
    let (key, value) = (Bytes::from_static(b"tnewer"), Some(Bytes::from_static(&[255])));
    node.append(LogId(0), AppendItem::State { key, value });
    node.close();
    let (outcome, left) = rehearse(folder.path(), 2);
    assert_eq!(Err(outcome.expect_err("a start refuses it")), Node::try_open(folder.path(), 2).map(|_| ()));
    assert!(left.iter().all(|journal| journal.strong_count() == 0), "nothing holds a journal");
}
