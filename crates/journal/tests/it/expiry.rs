//! Producers that have been silent are forgotten by time, whether or not anything else happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use journal::disk::IoMode;
use journal::{AppendItem, JournalConfig};
use record::{BatchBuilder, BatchHeader};

use crate::node::{Node, small};

const EXPIRY_MS: u64 = 600_000;
const PRODUCERS: i64 = 5_000;

#[test]
fn silent_producers_go_on_time_without_a_checkpoint() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), IoMode::Buffered, JournalConfig { producer_expiry_ms: EXPIRY_MS, ..small() })
        .expect("it opens");
    let log = node.log(1);
    let write = |producer: i64, sequence: i32, transactional: bool| {
        let mut batch = BatchBuilder::default().producer(producer, 0, sequence);
        if transactional {
            batch = batch.transactional();
        }
        let bytes = batch.record(1, None, Some(b"one")).build();
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        AppendItem::Batch { log: Arc::clone(&log), bytes, header, gate: None }
    };
    let open = PRODUCERS + 1;
    node.append(1, (0..PRODUCERS).map(|producer| write(producer, 0, false)).chain([write(open, 0, true)]).collect())
        .expect("taken");
    assert_eq!(log.producers().len(), PRODUCERS as usize + 1);
    node.clock.advance(EXPIRY_MS as i64 / 2);
    node.append(1, vec![write(7, 1, false)]).expect("taken");
    node.clock.advance(EXPIRY_MS as i64 / 2 + 1_000);
    let began = Instant::now();
    while log.producers().len() > 2 {
        assert!(began.elapsed() < Duration::from_secs(120), "{} producers are known", log.producers().len());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut left: Vec<i64> = log.producers().into_iter().map(|(id, ..)| id).collect();
    left.sort_unstable();
    assert_eq!(left, [7, open], "who wrote lately, and who has a transaction open");
    node.close();
}
