//! Transactions in a log: what readers of committed records see, and that a restart, from chunks or a checkpoint, sees the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::disk::IoMode;
use journal::{AbortedTransaction, AppendError, AppendItem, Appended, ColdWant, Log, TailRead};
use record::{BatchBuilder, BatchHeader, Marker};
use types::{Durability, Gate, LogId, LogIndex, Offset};

use crate::node::{Node, small};

/// A producer and where its sequence stands.
struct Writer {
    id: i64,
    epoch: i16,
    sequence: i32,
}

impl Writer {
    fn new(id: i64) -> Self {
        Self { id, epoch: 0, sequence: 0 }
    }

    fn append(&mut self, node: &Node, log: &Arc<Log>, gate: Option<&Arc<Gate>>) -> Result<Appended, AppendError> {
        let batch = BatchBuilder::default().producer(self.id, self.epoch, self.sequence).transactional();
        let appended = put(node, log, batch.record(1, None, Some(b"one")).record(2, None, Some(b"two")).build(), gate)?;
        self.sequence += 2;
        Ok(appended)
    }

    fn end(&self, node: &Node, log: &Arc<Log>, marker: Marker) -> Result<Appended, AppendError> {
        put(node, log, marker.batch(self.id, self.epoch, 0, 3), None)
    }
}

fn put(node: &Node, log: &Arc<Log>, bytes: Bytes, gate: Option<&Arc<Gate>>) -> Result<Appended, AppendError> {
    let header = BatchHeader::parse(&bytes).unwrap();
    node.append(log.id().0, vec![AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: gate.cloned() }])
}

fn aborted(log: &Log) -> Vec<AbortedTransaction> {
    log.aborted_between(Offset(0), Offset(u64::MAX))
}

#[test]
fn readers_of_committed_records_wait_for_the_earliest_open_transaction_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::open(folder.path(), IoMode::Buffered, small()).unwrap();
    let log = node.log(1);
    let (mut first, mut second) = (Writer::new(1), Writer::new(2));
    node.append_batch(&log, 4, 10).unwrap();
    first.append(&node, &log, None).unwrap();
    second.append(&node, &log, None).unwrap();
    assert_eq!((log.last_stable(), log.high_watermark()), (Offset(4), Offset(8)));
    second.end(&node, &log, Marker::Abort).unwrap();
    assert_eq!(log.last_stable(), Offset(4), "the first is still open");
    let expected = [AbortedTransaction { producer_id: 2, first: Offset(6), last: Offset(8) }];
    assert_eq!(aborted(&log), expected);

    let read =
        |node: &Node, log: &Arc<Log>| match node.journal.read_tail(log, Offset(0)..log.last_stable(), 1 << 20, true) {
            TailRead::Data { next, .. } => next,
            TailRead::Cold => {
                let want =
                    ColdWant { log: Arc::clone(log), from: Offset(0), until: log.last_stable(), max_bytes: 1 << 20 };
                node.journal.read_cold(&[want], 1 << 20).remove(0).unwrap().next
            }
            other => panic!("{other:?}"),
        };
    assert_eq!(read(&node, &log), Offset(4), "nothing from the open transaction on");
    node.close();

    let node = Node::open(folder.path(), IoMode::Buffered, small()).unwrap();
    let log = node.log(1);
    assert_eq!((log.last_stable(), aborted(&log)), (Offset(4), expected.to_vec()));
    assert_eq!(read(&node, &log), Offset(4), "the same from the disk");
    first.end(&node, &log, Marker::Commit).unwrap();
    assert_eq!((log.last_stable(), log.high_watermark()), (Offset(10), Offset(10)));
    assert_eq!(read(&node, &log), Offset(10));
    first.append(&node, &log, None).unwrap();
    assert_eq!(log.last_stable(), Offset(10), "its next transaction");
    node.close();
}

#[test]
fn a_checkpoint_keeps_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::open(folder.path(), IoMode::Buffered, small()).unwrap();
    let log = node.log(1);
    let (mut first, mut second) = (Writer::new(1), Writer::new(2));
    first.append(&node, &log, None).unwrap();
    second.append(&node, &log, None).unwrap();
    second.end(&node, &log, Marker::Abort).unwrap();
    // One in which nothing is open or aborted: that there are markers is known all the same.
    let (ended, mut third) = (node.log(3), Writer::new(3));
    third.append(&node, &ended, None).unwrap();
    third.end(&node, &ended, Marker::Commit).unwrap();
    node.append_batch(&ended, 4, 10).unwrap();
    assert_eq!((ended.dense_from(), ended.end()), (Offset(3), Offset(7)));
    // Segments are sealed behind it, until a checkpoint covers it.
    let other = node.log(2);
    let began = Instant::now();
    while !folder.path().join("checkpoint").exists() {
        node.append_batch(&other, 10, 50_000).unwrap();
        assert!(began.elapsed() < Duration::from_secs(120), "a checkpoint in time");
    }
    for _ in 0..10 {
        node.append_batch(&other, 10, 50_000).unwrap();
    }
    node.close();

    let node = Node::open(folder.path(), IoMode::Buffered, small()).unwrap();
    let log = node.log(1);
    assert_eq!(log.last_stable(), Offset(0));
    assert_eq!(aborted(&log), [AbortedTransaction { producer_id: 2, first: Offset(2), last: Offset(4) }]);
    let open: Vec<_> = log.producers().into_iter().filter_map(|(id, _, open)| Some((id, open?.first))).collect();
    assert_eq!(open, [(1, Offset(0))]);
    let denses: Vec<_> = (1..=3).map(|id| node.log(id).dense_from()).collect();
    assert_eq!(denses, [Offset(5), Offset(0), Offset(3)]);
    first.append(&node, &log, None).unwrap();
    first.end(&node, &log, Marker::Commit).unwrap();
    assert_eq!(log.last_stable(), log.high_watermark());
    node.close();
}

#[test]
fn what_does_not_belong_to_a_transaction_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::open(folder.path(), IoMode::Buffered, small()).unwrap();
    let log = node.log(1);
    let gate = Arc::new(Gate::default());
    let mut writer = Writer::new(1);
    writer.append(&node, &log, Some(&gate)).unwrap();
    let outside = BatchBuilder::default().producer(1, 0, writer.sequence).record(1, None, None).build();
    assert_eq!(put(&node, &log, outside, None), Err(AppendError::NotInTransaction));
    gate.close();
    assert_eq!(writer.append(&node, &log, Some(&gate)), Err(AppendError::TransactionEnded));

    // A marker of a newer epoch fences the older, whose successor begins at sequence 0.
    writer.epoch = 1;
    writer.end(&node, &log, Marker::Abort).unwrap();
    let fenced = Writer { id: 1, epoch: 0, sequence: writer.sequence };
    assert_eq!(fenced.end(&node, &log, Marker::Commit), Err(AppendError::InvalidProducerEpoch));
    assert_eq!(writer.append(&node, &log, None), Err(AppendError::OutOfOrderSequence));
    writer.sequence = 0;
    writer.append(&node, &log, None).unwrap();
    node.close();
}

#[test]
fn a_marker_is_answered_when_it_is_durable_whatever_the_class_of_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::open(folder.path(), IoMode::Buffered, small()).unwrap();
    let log = node.journal.create_log(LogId(1), Durability::Memory);
    for marker in [Marker::Commit, Marker::Abort] {
        let mut writer = Writer::new(marker as i64);
        writer.append(&node, &log, None).unwrap();
        let before = node.journal.durable_index();
        writer.end(&node, &log, marker).unwrap();
        // Its records were in a chunk of their own: they had been answered.
        assert!(
            node.journal.durable_index() >= LogIndex(before.0 + 2),
            "that the transaction is done may be written now"
        );
    }
    assert_eq!(log.last_stable(), Offset(6));
    node.close();
}
