//! Routes messages whose time has come, as if they were published now to the exchange that has kept them. An exchange that is gone leads nowhere.
//! As when they are published, what goes to several queues of one journal is written once, and each queue gets its messages in the order in
//! which they are due.

use std::sync::Arc;

use bytes::Bytes;
use journal::AppendItem;
use ::record::{BatchWriter, Record};
use routing::{QueueId, Scratch};
use smallvec::SmallVec;

use super::Delays;
use super::record::Delay;
use super::store::{DelayError, put};
use crate::queues::batches::{Batches, Targets};
use crate::queues::queue::Queue;
use crate::Broker;

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
        let room = self.journals().iter().map(|journal| journal.item_bytes_max()).min().unwrap_or(usize::MAX);
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
            if !takers.is_empty() {
                put(record, now_ms, false, batches.batch_for(takers, 0, room / 2));
            }
        }
        let home = self.journal_number(delays.queue.log().id());
        let mut far = batches.into_items(self);
        let near = std::mem::take(&mut far[home]);
        for (journal, items) in far.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
            self.commit(journal, items)?;
        }
        Ok(near)
    }

    /// A queue that is full may refuse; nobody is there any more to be told.
    fn takes(self: &Arc<Self>, queue: &Arc<Queue>, record: &Record, batches: &mut Batches, now_ms: i64) -> bool {
        let size = record.value.as_ref().map_or(0, Bytes::len);
        if batches.admit(self, queue, size) {
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
