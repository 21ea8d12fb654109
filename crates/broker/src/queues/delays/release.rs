//! Routes messages whose time has come, as if they were published now to the exchange that has kept them. An exchange that is gone leads nowhere.
//! As when they are published, what goes to several queues of one journal is written once, and each queue gets its messages in the order in
//! which they are due.
//!
//! Messages are routed once: what other journals have taken of their copies is not appended again when the exchange's own does not take the
//! rest, and what a journal refuses waits for it.

use std::sync::Arc;

use ::record::{BatchWriter, Record};
use bytes::Bytes;
use journal::{AppendError, AppendItem};
use routing::{QueueId, STEPS_MAX, Scratch};
use smallvec::SmallVec;

use super::Delays;
use super::record::Delay;
use super::store::{DelayError, put, record_bytes};
use crate::Broker;
use crate::queues::batches::{Admitted, Batches, Targets};
use crate::queues::queue::Queue;

/// Bytes of what says that messages have left, at most, about.
const LEFT_BYTES: usize = 64 << 10;

/// Copies of messages that leave, without those that are durable in their queues.
#[derive(Default)]
pub(super) struct Copies {
    /// By journal; they are durable before it is written that the messages have left.
    before: Vec<(usize, Vec<AppendItem>)>,
    /// In the journal of the exchange's log, together with that.
    together: Vec<AppendItem>,
    /// As long as these are not in their queues.
    _admitted: Admitted,
}

impl Copies {
    /// What is appended together with the record that the messages have left.
    pub fn together(&self) -> &[AppendItem] {
        &self.together
    }

    /// Makes those durable that come before.
    ///
    /// # Errors
    /// A journal has refused some: these are left.
    pub fn commit_before(&mut self, broker: &Broker) -> Result<(), AppendError> {
        let mut refused = None;
        self.before.retain_mut(|(journal, items)| {
            let mut results = broker.commit_all(*journal, items.clone()).into_iter();
            items.retain(|_| match results.next() {
                // A queue that is gone takes nothing.
                Some(Ok(_) | Err(AppendError::LogDeleted)) => false,
                other => {
                    refused = other.and_then(Result::err).or(Some(AppendError::Stopped));
                    true
                }
            });
            !items.is_empty()
        });
        refused.map_or(Ok(()), Err)
    }
}

impl Broker {
    /// Copies of messages of an exchange that are due, in this order.
    pub(super) fn address_delayed<'r>(
        self: &Arc<Self>,
        delays: &Delays,
        records: impl ExactSizeIterator<Item = &'r Record> + Clone,
    ) -> Result<Copies, DelayError> {
        let undertaker = self.undertaker.get().ok_or(DelayError::NoGateway)?;
        let Some(vhost) = self.vhosts.get(&delays.vhost) else { return Ok(Copies::default()) };
        let mut targets: Vec<SmallVec<[QueueId; 2]>> = Vec::with_capacity(records.len());
        {
            let (mut scratch, mut found) = (Scratch::default(), Vec::new());
            let (mut table, mut steps) = (vhost.exchanges().read(), 0);
            for record in records.clone() {
                if steps >= STEPS_MAX {
                    // Who changes the table has a turn.
                    drop(table);
                    (table, steps) = (vhost.exchanges().read(), 0);
                }
                let Some(exchange) = table.exchange(&delays.exchange) else { return Ok(Copies::default()) };
                if let Err(refused) =
                    exchange.route(&Delay::of(record).keys, &*undertaker.headers(record), &mut scratch, &mut found)
                {
                    tracing::debug!(%refused, exchange = %exchange.name(), "a delayed message is for no queue");
                }
                steps += scratch.steps();
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
                put(record, now_ms, false, batches.batch_for(takers, record_bytes(record), room / 2));
            }
        }
        let home = self.journal_number(delays.queue.log().id());
        let (mut items, admitted) = batches.into_items(self);
        // What is too large for one append comes first as well.
        let fits = self.journals()[home].takes(&items[home], LEFT_BYTES);
        let together = if fits { std::mem::take(&mut items[home]) } else { Vec::new() };
        let before = items.into_iter().enumerate().filter(|(_, items)| !items.is_empty()).collect();
        Ok(Copies { before, together, _admitted: admitted })
    }

    /// A queue that is full may refuse; nobody is there any more to be told.
    fn takes(self: &Arc<Self>, queue: &Arc<Queue>, record: &Record, batches: &mut Batches, now_ms: i64) -> bool {
        let size = record.value.as_ref().map_or(0, Bytes::len);
        if batches.admit(self, queue, (size, record.key.is_some())) {
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
