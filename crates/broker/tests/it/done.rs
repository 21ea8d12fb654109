//! What is acknowledged behind a message that nobody acknowledges does not stay on the disk, and is gone for good: through restarts, in both
//! classes, with counts that are right.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use broker::{ChannelFlow, ColdWant, Got, Outcome, Queue, ReplyTo, Settlement};
use delivery::ConsumerId;
use record::Batches;
use routing::{Argument, Arguments, Value};
use types::{ConnectionId, Durability, Offset, ShardId};

use crate::node::{Node, SEGMENT_BYTES, journal_folder, wait_for};

/// Messages of a round: of 8 KiB, so that a round takes some four segments.
const ROUND: u64 = 500;
const ROUNDS: u64 = 4;

/// Somebody who takes messages one by one.
struct Taker<'a> {
    node: &'a Node,
    queue: Arc<Queue>,
    channel: Arc<ChannelFlow>,
    holder: ConsumerId,
}

impl<'a> Taker<'a> {
    fn new(node: &'a Node, queue: Arc<Queue>) -> Self {
        let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(7), token: 0 };
        let (channel, holder) = (node.broker.new_channel(to), node.broker.subscriptions().new_consumer());
        Self { node, queue, channel, holder }
    }

    /// The offset of the next message; what has to be read from the disk is waited for.
    fn take(&self) -> Option<u64> {
        let next = std::cell::Cell::new(None);
        wait_for("a message is read", || {
            let got = match self.node.broker.get(&self.queue, &self.channel, self.holder, false) {
                Got::Later => return false,
                Got::Empty => None,
                Got::Message(message, _) => Some(message.offset),
            };
            next.set(got);
            true
        });
        next.get()
    }

    fn settle(&self, offset: u64, outcome: Outcome) {
        let said = Settlement { consumer: self.holder, first: offset, last: offset, outcome };
        self.node.broker.settle(&self.queue, &self.channel, &[said]);
    }

    /// Ready and unacknowledged messages.
    fn counts(&self) -> (u64, u64) {
        let counts = self.node.broker.counts(&self.queue);
        (counts.ready, counts.unacknowledged)
    }

    /// The offsets of all records that are in the log.
    fn records(&self) -> BTreeSet<u64> {
        let (log, mut at, mut found) = (self.queue.log(), self.queue.log().start(), BTreeSet::new());
        while at < log.high_watermark() {
            let want = ColdWant { log: Arc::clone(log), from: at, until: Offset(u64::MAX), max_bytes: 1 << 20 };
            let data =
                self.node.broker.journal_of(log.id()).read_cold(&[want], 1 << 20).remove(0).expect("it can be read");
            assert!(data.next > at, "it gets somewhere");
            found.extend(Batches::new(&data.slices.concat()).map(|batch| batch.expect("whole batches").1.base().0));
            at = data.next;
        }
        found
    }
}

/// What the segments of all journals take.
fn segment_bytes(data: &Path, journals: usize) -> u64 {
    let files = |number| std::fs::read_dir(journal_folder(data, number)).expect("a folder").filter_map(Result::ok);
    let segments =
        (0..journals).flat_map(files).filter(|file| file.file_name().to_string_lossy().starts_with("segment-"));
    // One may go while it is looked at.
    segments.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

#[test]
fn one_message_that_nobody_acknowledges_keeps_nothing_else_on_the_disk() {
    for (durability, durable, journals) in [
        (Durability::Fsync, true, 1),
        (Durability::Memory, true, 1),
        (Durability::Fsync, false, 1),
        (Durability::Memory, true, 3),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Node::open_in(folder.path(), journals, durability).expect("it opens");
        let node = open();
        let taker = Taker::new(&node, node.queue("stuck", durable));
        node.fill(taker.queue.log(), 1);
        assert_eq!(taker.take(), Some(0));
        for round in 0..ROUNDS {
            node.fill(taker.queue.log(), ROUND);
            let taken: Vec<u64> = (0..ROUND).filter_map(|_| taker.take()).collect();
            assert!(taken.iter().copied().eq(1 + round * ROUND..=(round + 1) * ROUND), "each once, in order");
            taken.iter().rev().for_each(|offset| taker.settle(*offset, Outcome::Ack));
            assert_eq!(taker.counts(), (0, 1));
        }
        let what = format!("{durability:?}, durable {durable}, {journals} journals: room for one message");
        wait_for(&what, || segment_bytes(folder.path(), journals) <= 4 * SEGMENT_BYTES * journals as u64);
        assert_eq!((taker.counts(), taker.queue.log().start()), ((0, 1), Offset(0)));
        drop(taker);
        node.close();
        for _ in 0..if durable { 2 } else { 0 } {
            let node = open();
            let taker = Taker::new(&node, node.queue("stuck", true));
            assert_eq!(taker.counts(), (1, 0));
            assert_eq!((taker.take(), taker.take()), (Some(0), None), "the one message, once");
            assert!(segment_bytes(folder.path(), journals) <= 4 * SEGMENT_BYTES * journals as u64);
            drop(taker);
            node.close();
        }
        if durable {
            let node = open();
            let taker = Taker::new(&node, node.queue("stuck", true));
            let end = taker.queue.log().end();
            node.fill(taker.queue.log(), 2);
            assert_eq!([(); 4].map(|()| taker.take()), [Some(0), Some(end.0), Some(end.0 + 1), None]);
            taker.settle(0, Outcome::Ack);
            wait_for("the log begins behind all of it", || taker.queue.log().start() == end);
            drop(taker);
            node.close();
        }
    }
}

/// Messages of which nobody has said that they are done are there, whatever lies around them: kept, given back, rejected and on their way to the
/// dead letters, which nobody takes here.
#[test]
fn what_is_not_acknowledged_stays_wherever_it_lies() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Node::open(folder.path(), 1);
    let node = open();
    let dead_letters =
        Argument { name: b"x-dead-letter-exchange"[..].into(), tag: b'S', value: Value::Bytes(b"amq.direct").into() };
    let arguments = || Arguments::new(vec![dead_letters.clone()]);
    let taker = Taker::new(&node, node.queue_with("work", true, arguments()));
    let (mut kept, mut returned, mut dead) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for _ in 0..ROUNDS {
        let first = taker.queue.log().end().0;
        // What lies in one chunk with a message that is needed stays with it.
        (0..ROUND / 4).for_each(|_| node.fill(taker.queue.log(), 4));
        let mut taken = Vec::new();
        while taken.len() < ROUND as usize {
            let offset = taker.take().expect("there is more");
            // What was given back comes first again.
            if offset >= first {
                taken.push(offset);
            } else {
                assert!(returned.contains(&offset), "{offset} is done");
                kept.insert(offset);
            }
        }
        for offset in taken {
            match offset % 150 {
                0 => drop(kept.insert(offset)),
                50 => {
                    taker.settle(offset, Outcome::Requeue);
                    returned.insert(offset);
                }
                100 => {
                    taker.settle(offset, Outcome::Reject);
                    dead.insert(offset);
                }
                _ => taker.settle(offset, Outcome::Ack),
            }
        }
    }
    let needed: BTreeSet<u64> = &(&kept | &returned) | &dead;
    wait_for("most is given back", || segment_bytes(folder.path(), 1) <= 5 * SEGMENT_BYTES);
    let check = |taker: &Taker<'_>| {
        let there = taker.records();
        assert!(needed.is_subset(&there), "{:?} are missing", &needed - &there);
        assert!(there.len() < ROUND as usize, "{} records are left", there.len());
    };
    check(&taker);
    drop(taker);
    node.close();
    let node = open();
    let taker = Taker::new(&node, node.queue_with("work", true, arguments()));
    check(&taker);
    let living = &kept | &returned;
    assert_eq!(taker.counts(), (living.len() as u64, 0));
    let taken: BTreeSet<u64> = living.iter().filter_map(|_| taker.take()).collect();
    assert_eq!((taken, taker.take()), (living, None));
    // All of it goes, but the dead.
    assert_eq!(node.broker.purge(&taker.queue), 0);
    drop(taker);
    node.close();
}
