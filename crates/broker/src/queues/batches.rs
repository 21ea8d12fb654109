//! Records that the broker itself sends to queues: those that go to the same queues share a batch, as long as each queue gets its records in
//! their order, and queues of one journal share its bytes.

use std::sync::Arc;

use ::record::{BatchHeader, BatchWriter};
use hashbrown::{HashMap, HashSet};
use journal::{AppendItem, Log};
use routing::QueueId;
use smallvec::SmallVec;

use super::admission::Admission;
use super::queue::Queue;
use super::unfinished::{Journals, Marked};
use crate::Broker;

/// Batches among which a record looks for one that goes where it goes.
const LOOK_BACK: usize = 16;
/// Up to so many pairs of queues are compared one by one.
const PAIRS_FEW: usize = 1024;
/// A batch that is larger takes no more, in bytes.
const BATCH_BYTES: usize = 256 << 10;

/// The queues, or partitions of queues, that a record goes to.
pub(super) type Targets = SmallVec<[Arc<Queue>; 2]>;

/// The journals that have the logs of these.
pub(super) fn journals_of(broker: &Broker, targets: &Targets) -> Journals {
    Journals::of(targets.iter().map(|queue| broker.journal_number(queue.log().id())))
}

/// Is one of the queues among the others? So many that a fan-out may have are not compared each with each.
fn have_one_in_common(others: &Targets, queues: &Targets) -> bool {
    if others.len() * queues.len() <= PAIRS_FEW {
        return queues.iter().any(|queue| others.iter().any(|other| other.id() == queue.id()));
    }
    let others: HashSet<QueueId> = others.iter().map(|other| other.id()).collect();
    queues.iter().any(|queue| others.contains(&queue.id()))
}

/// What was admitted by queues that may refuse some. When it goes, what was to be appended has its outcome.
#[derive(Default)]
pub(super) struct Admitted(HashMap<QueueId, Admission>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.drain().for_each(|(_, admission)| admission.end());
    }
}

/// Batches in the order in which they are appended.
#[derive(Default)]
pub(super) struct Batches {
    all: Vec<(Targets, BatchWriter)>,
    admitted: Admitted,
}

impl Batches {
    /// Where a record for these queues is written; there is at least one. A batch that has come to `bytes_max`, or would have twice as much with this record, takes no more.
    pub fn batch_for(&mut self, targets: Targets, record_bytes: usize, bytes_max: usize) -> &mut BatchWriter {
        let fits =
            |bytes: usize| bytes < bytes_max.min(BATCH_BYTES) && bytes + record_bytes <= bytes_max.saturating_mul(2);
        let at = self.find(&targets, fits).unwrap_or_else(|| {
            self.all.push((targets, BatchWriter::with_capacity(record_bytes.max(4 << 10))));
            self.all.len() - 1
        });
        &mut self.all[at].1
    }

    /// The batch that a record for these queues may join: none of them has got a record in a later one.
    fn find(&self, targets: &Targets, fits: impl Fn(usize) -> bool) -> Option<usize> {
        for (at, (others, batch)) in self.all.iter().enumerate().rev().take(LOOK_BACK) {
            if others.len() == targets.len() && others.iter().zip(targets).all(|(one, other)| one.id() == other.id()) {
                return fits(batch.bytes()).then_some(at);
            }
            if have_one_in_common(others, targets) {
                return None;
            }
        }
        None
    }

    /// Does a queue take a message with a body of `size` bytes, with or without a key of a record, behind those that are on their way to it? Then it counts.
    pub fn admit(&mut self, broker: &Arc<Broker>, queue: &Arc<Queue>, (size, keyed): (usize, bool)) -> bool {
        (keyed || queue.topic().takes_keyless())
            && (!queue.understood().is_bounded()
                || self
                    .admitted
                    .0
                    .entry(queue.id())
                    .or_insert_with(|| Admission::to(queue))
                    .admit_keyed(broker, 1, size))
    }

    /// What is to be appended, by journal, and what of it was admitted, to be kept until it is there.
    pub fn into_items(self, broker: &Broker) -> (Vec<Vec<AppendItem>>, Admitted) {
        let (items, admitted) = self.into_marked(broker);
        (items.into_iter().map(|items| items.into_iter().map(|(_, item)| item).collect()).collect(), admitted)
    }

    /// The same, each with the journals that have it.
    pub fn into_marked(mut self, broker: &Broker) -> (Vec<Marked>, Admitted) {
        let mut items: Vec<Marked> = broker.journals().iter().map(|_| Vec::new()).collect();
        for (targets, batch) in self.all {
            let bytes = batch.finish();
            let header = BatchHeader::parse(&bytes).expect("a batch that was just written");
            let journals = journals_of(broker, &targets);
            let mut logs: Vec<Vec<Arc<Log>>> = items.iter().map(|_| Vec::new()).collect();
            for queue in targets {
                logs[broker.journal_number(queue.log().id())].push(Arc::clone(queue.log()));
            }
            for (items, logs) in items.iter_mut().zip(&logs) {
                items.extend(AppendItem::for_all(logs, &bytes, header).map(|item| (journals, item)));
            }
        }
        self.admitted.0.values_mut().for_each(|admission| admission.sent(u64::MAX));
        (items, self.admitted)
    }
}
