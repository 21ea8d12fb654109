//! Routes messages whose time has come, as if they were published now to the exchange that has kept them. An exchange that is gone leads nowhere.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use journal::AppendItem;
use ::record::{BatchHeader, BatchWriter, Record};
use routing::{QueueId, Scratch};
use smallvec::SmallVec;

use super::Delays;
use super::record::Delay;
use super::store::{BATCH_BYTES, DelayError, put};
use crate::queues::queue::Queue;
use crate::Broker;

/// Batches by queue.
#[derive(Default)]
struct Batches {
    open: HashMap<QueueId, (Arc<Queue>, BatchWriter)>,
    whole: Vec<(Arc<Queue>, Bytes)>,
    /// Messages and bytes on their way to queues that may refuse some.
    waiting: HashMap<QueueId, (u64, u64)>,
}

impl Batches {
    fn add(&mut self, queue: Arc<Queue>, record: &Record, now_ms: i64) {
        let id = queue.id();
        let (_, batch) = self.open.entry(id).or_insert_with(|| (queue, BatchWriter::with_capacity(4 << 10)));
        put(record, now_ms, false, batch);
        if batch.bytes() >= BATCH_BYTES
            && let Some((queue, batch)) = self.open.remove(&id)
        {
            self.whole.push((queue, batch.finish()));
        }
    }

    fn finish(mut self) -> Vec<(Arc<Queue>, Bytes)> {
        self.whole.extend(self.open.into_values().map(|(queue, batch)| (queue, batch.finish())));
        self.whole
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
        for (record, ids) in records.zip(targets) {
            for queue in ids.into_iter().filter_map(|id| self.vhosts.queue(id)) {
                let queue = if queue.is_partitioned() {
                    Arc::clone(queue.part(&*undertaker.headers(record), record.offset.0))
                } else {
                    queue
                };
                if self.takes(&queue, record, &mut batches, now_ms) {
                    batches.add(queue, record, now_ms);
                }
            }
        }
        let home = self.journal_number(delays.queue.log().id());
        let mut near = Vec::new();
        let mut far: Vec<Vec<AppendItem>> = self.journals().iter().map(|_| Vec::new()).collect();
        for (queue, bytes) in batches.finish() {
            let header = BatchHeader::parse(&bytes).expect("a batch that was just written");
            let (log, journal) = (Arc::clone(queue.log()), self.journal_number(queue.log().id()));
            let item = AppendItem::Batch { log, bytes, header, gate: None };
            if journal == home { near.push(item) } else { far[journal].push(item) }
        }
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
