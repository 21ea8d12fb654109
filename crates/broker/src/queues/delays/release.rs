//! Routes messages whose time has come, as if they were published now to the exchange that has kept them. An exchange that is gone leads nowhere.
//! As when they are published, what goes to several queues of one journal is written once, and each queue gets its messages in the order in
//! which they are due.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use journal::{AppendItem, Log};
use ::record::{BatchHeader, BatchWriter, Record};
use routing::{QueueId, Scratch};
use smallvec::SmallVec;

use super::Delays;
use super::record::Delay;
use super::store::{BATCH_BYTES, DelayError, put};
use crate::queues::queue::Queue;
use crate::Broker;

/// Batches among which a message looks for one that goes where it goes.
const LOOK_BACK: usize = 16;

type Targets = SmallVec<[Arc<Queue>; 2]>;

/// What leaves, in order: each batch for some queues.
#[derive(Default)]
struct Batches {
    all: Vec<(Targets, BatchWriter)>,
    /// Messages and bytes on their way to queues that may refuse some.
    waiting: HashMap<QueueId, (u64, u64)>,
}

impl Batches {
    fn add(&mut self, targets: Targets, record: &Record, now_ms: i64, bytes_max: usize) {
        if targets.is_empty() {
            return;
        }
        let at = self.find(&targets, bytes_max).unwrap_or_else(|| {
            self.all.push((targets, BatchWriter::with_capacity(4 << 10)));
            self.all.len() - 1
        });
        put(record, now_ms, false, &mut self.all[at].1);
    }

    /// The batch that a message for these queues may join: none of them has got a message in a later one.
    fn find(&self, targets: &Targets, bytes_max: usize) -> Option<usize> {
        for (at, (others, batch)) in self.all.iter().enumerate().rev().take(LOOK_BACK) {
            if others.len() == targets.len() && others.iter().zip(targets).all(|(one, other)| one.id() == other.id()) {
                return (batch.bytes() < bytes_max).then_some(at);
            }
            if targets.iter().any(|queue| others.iter().any(|other| other.id() == queue.id())) {
                return None;
            }
        }
        None
    }
}

impl Broker {
    /// What is to be appended for messages of an exchange that are due, in this order, in the journal of its log; what belongs
    /// to other journals is durable by then.
    pub(super) fn address_delayed<'r>(
        self: &Arc<Self>,
        delays: &Delays,
        records: impl ExactSizeIterator<Item = &'r Record> + Clone,
    ) -> Result<Vec<AppendItem>, DelayError> {
        let undertaker = self.undertaker.get().ok_or(DelayError::NoGateway)?;
        let Some(vhost) = self.vhosts.get(&delays.vhost) else { return Ok(Vec::new()) };
        let mut targets: Vec<SmallVec<[QueueId; 2]>> = Vec::with_capacity(records.len());
        {
            let (mut scratch, mut found) = (Scratch::default(), Vec::new());
            let table = vhost.exchanges().read();
            let Some(exchange) = table.exchange(&delays.exchange) else { return Ok(Vec::new()) };
            for record in records.clone() {
                exchange.route(&Delay::of(record).keys, &*undertaker.headers(record), &mut scratch, &mut found);
                targets.push(SmallVec::from_slice(&found));
            }
        }
        let (now_ms, mut batches) = (self.now_ms(), Batches::default());
        let room = self.journals().iter().map(|journal| journal.item_bytes_max()).min().unwrap_or(BATCH_BYTES);
        for (record, ids) in records.zip(targets) {
            let mut takers = Targets::new();
            for queue in ids.into_iter().filter_map(|id| self.vhosts.queue(id)) {
                let queue = if queue.is_partitioned() {
                    Arc::clone(queue.part(&*undertaker.headers(record), record.offset.0))
                } else {
                    queue
                };
                if self.takes(&queue, record, &mut batches, now_ms) {
                    takers.push(queue);
                }
            }
            batches.add(takers, record, now_ms, BATCH_BYTES.min(room / 2));
        }
        let home = self.journal_number(delays.queue.log().id());
        let mut far: Vec<Vec<AppendItem>> = self.journals().iter().map(|_| Vec::new()).collect();
        for (targets, batch) in batches.all {
            let bytes = batch.finish();
            let header = BatchHeader::parse(&bytes).expect("a batch that was just written");
            let mut logs: Vec<Vec<Arc<Log>>> = far.iter().map(|_| Vec::new()).collect();
            for queue in targets {
                logs[self.journal_number(queue.log().id())].push(Arc::clone(queue.log()));
            }
            // The queues of one journal share the bytes.
            for (items, logs) in far.iter_mut().zip(&logs) {
                items.extend(AppendItem::for_all(logs, &bytes, header));
            }
        }
        let near = std::mem::take(&mut far[home]);
        for (journal, items) in far.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
            self.commit(journal, items)?;
        }
        Ok(near)
    }

    /// A queue that is full may refuse; nobody is there any more to be told.
    fn takes(self: &Arc<Self>, queue: &Arc<Queue>, record: &Record, batches: &mut Batches, now_ms: i64) -> bool {
        if !queue.understood().is_bounded() {
            return true;
        }
        let size = record.value.as_ref().map_or(0, Bytes::len);
        let waiting = batches.waiting.entry(queue.id()).or_default();
        let under_way = delivery::UnderWay { messages: waiting.0, bytes: waiting.1, ..delivery::UnderWay::NONE };
        if self.admits(queue, under_way, size) {
            *waiting = (waiting.0 + 1, waiting.1 + size as u64);
            return true;
        }
        if queue.understood().overflow == delivery::Overflow::RejectPublishDeadLetter {
            let mut alone = BatchWriter::with_capacity(size);
            put(record, now_ms, false, &mut alone);
            self.bury_refused(queue, alone.finish());
        }
        false
    }
}
