//! Messages that nobody will get any more go where their queue sends them: through an exchange to other queues, in one chunk with the
//! record that they are gone from this one, where all of them are in one journal: after a crash a message is here or there. With more
//! journals the copy comes first.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use delivery::{Dead, DeadReason, QueueKind, UnderWay};
use journal::{AppendItem, JournalStatus, Log};
use record::{BatchHeader, Record};
use routing::{Headers, Name, Scratch};

use super::burials::Burial;
use super::queue::Queue;
use crate::subscriptions::Acknowledgement;
use crate::Broker;

/// Letters are written together with the record of their removal, in one chunk: about so many bytes of them at once.
const PAGE_BYTES: usize = 256 << 10;

/// Makes letters of dead messages: who knows what the protocol of their publishers wants.
pub trait Undertaker: Send + Sync {
    /// A message of `queue` that is dead, as it is to be published again.
    fn letter(&self, queue: &Queue, record: &Record, dead: &Dead, now_ms: i64) -> Letter;

    /// The headers by which a message is routed.
    fn headers(&self, record: &Record) -> Box<dyn Headers>;
}

/// A dead message as it is published again.
pub struct Letter {
    /// Its routing keys.
    pub keys: Vec<Bytes>,
    /// For routing.
    pub headers: Box<dyn Headers>,
    /// A batch of one record.
    pub batch: Bytes,
    /// Queues that do not get it: it has come from there without anybody having rejected it.
    pub passed: Vec<Name>,
}

/// Who is asked, once a gateway is there.
pub(crate) type TheUndertaker = OnceLock<Arc<dyn Undertaker>>;

impl Broker {
    /// Who makes letters of dead messages; the first one stays.
    pub fn set_undertaker(&self, undertaker: Arc<dyn Undertaker>) {
        let _ = self.undertaker.set(undertaker);
    }

    /// Sends dead messages of a queue to its dead-letter exchange; without one they are gone already.
    pub(crate) fn bury_of_queue(&self, queue: &Arc<Queue>, dead: Vec<Dead>) {
        if dead.is_empty() {
            return;
        }
        if queue.understood().dead_letter_exchange.is_none() {
            let mut state = queue.shared.lock();
            // Held for an exchange that a policy named and names no longer.
            for one in dead.iter().filter(|_| state.has_dying()).copied().collect::<Vec<_>>() {
                state.buried(one.first, one.last);
            }
            return;
        }
        self.bury_next(queue, Burial::Dead(dead));
    }

    /// A message that a full queue has refused goes where its dead ones go; `batch` has it alone.
    pub fn bury_refused(&self, queue: &Arc<Queue>, batch: Bytes) {
        self.bury_next(queue, Burial::Refused(batch));
    }

    pub(super) fn send_refused(self: &Arc<Self>, queue: &Arc<Queue>, batch: &[u8]) {
        let dead = Dead { first: 0, last: 0, count: 0, failed: 0, reason: DeadReason::MaxLength };
        let mut items = Vec::new();
        for record in record::records(batch).unwrap_or_default() {
            self.address(queue, &dead, &record, &mut items);
        }
        for (journal, item) in items {
            if let Err(error) = self.commit(journal, vec![item]) {
                tracing::warn!(%error, ?queue, "a refused message is not among the dead letters");
            }
        }
    }

    /// Reads what is dead and sends it, page by page. On a thread that may wait.
    pub(super) fn send_letters(self: &Arc<Self>, queue: &Arc<Queue>, dead: Dead) {
        let mut from = dead.first.max(queue.log().start().0);
        while from <= dead.last && !queue.is_dropped() {
            let (records, next) = match self.read_records(&queue.shared, from, dead.last) {
                Ok(read) => read,
                Err(error) => {
                    tracing::warn!(%error, ?queue, first = from, last = dead.last, "dead messages wait to be sent");
                    return;
                }
            };
            let next = next.clamp(from + 1, dead.last + 1);
            for (page, until) in pages(&records, next) {
                if !self.send_page(queue, &dead, page, from, until - 1) {
                    return;
                }
                from = until;
            }
        }
    }

    fn send_page(self: &Arc<Self>, queue: &Arc<Queue>, dead: &Dead, records: &[Record], first: u64, last: u64) -> bool {
        let home = self.journal_number(queue.log().id());
        // A full disk would take the record that they are gone, and not them.
        if self.journals()[home].status() != JournalStatus::Running {
            return false;
        }
        let mut near = Vec::new();
        let mut far: Vec<Vec<AppendItem>> = self.journals().iter().map(|_| Vec::new()).collect();
        // What nobody takes stays where that is wanted: it is tried again later.
        let mut waiting: Vec<u64> = Vec::new();
        for record in records {
            let mut items = Vec::new();
            let taken = self.address(queue, dead, record, &mut items);
            if !taken && queue.understood().letters_wait {
                waiting.push(record.offset.0);
                continue;
            }
            for (journal, item) in items {
                if journal == home { near.push(item) } else { far[journal].push(item) }
            }
        }
        for (journal, items) in far.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
            if let Err(error) = self.commit(journal, items) {
                tracing::warn!(%error, ?queue, "dead messages wait to be sent");
                return false;
            }
        }
        self.durably(|asker: &Arc<Acknowledgement>| {
            let mut state = queue.shared.lock();
            let mut from = first;
            for kept in waiting.into_iter().chain([last + 1]) {
                if from < kept {
                    state.buried(from, kept - 1);
                }
                from = kept + 1;
            }
            self.write_subscription_with(&queue.shared, &mut state, near, asker);
        })
    }

    /// Finds out where a dead message goes; false: nobody takes it, or not all who should.
    fn address(self: &Arc<Self>, queue: &Queue, dead: &Dead, record: &Record, items: &mut Vec<(usize, AppendItem)>) -> bool {
        let understood = queue.understood();
        let (Some(undertaker), Some(exchange), Some(vhost)) =
            (self.undertaker.get(), &understood.dead_letter_exchange, self.vhosts.get(queue.vhost()))
        else {
            return false;
        };
        let letter = undertaker.letter(queue, record, dead, self.now_ms());
        let Ok(header) = BatchHeader::parse(&letter.batch) else { return false };
        let keys: Vec<&[u8]> = letter.keys.iter().map(|key| &key[..]).collect();
        let (mut scratch, mut found) = (Scratch::default(), Vec::new());
        // An exchange that is not there takes nothing, as in RabbitMQ.
        if let Some(exchange) = vhost.exchanges().read().exchange(exchange) {
            exchange.route(&keys, &*letter.headers, &mut scratch, &mut found);
        }
        let mut taken = !found.is_empty();
        let mut logs: Vec<Vec<Arc<Log>>> = self.journals().iter().map(|_| Vec::new()).collect();
        let size = record.value.as_ref().map_or(0, Bytes::len);
        for target in found.into_iter().filter_map(|id| self.vhosts.queue(id)) {
            if letter.passed.contains(target.name()) {
                continue;
            }
            // A quorum queue refuses publishers, not queues, unless these wait for it.
            let asks = target.understood().kind == QueueKind::Classic || queue.understood().letters_wait;
            if asks && !self.admits(&target, UnderWay::NONE, size) {
                taken = false;
                continue;
            }
            let log = Arc::clone(target.part(&*letter.headers, record.offset.0).log());
            logs[self.journal_number(log.id())].push(log);
        }
        for (journal, logs) in logs.iter().enumerate() {
            items.extend(AppendItem::for_all(logs, &letter.batch, header).map(|item| (journal, item)));
        }
        taken
    }
}

/// Parts of records that were read up to `next`, each with the offset where it ends.
fn pages(records: &[Record], next: u64) -> Vec<(&[Record], u64)> {
    let (mut pages, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, record) in records.iter().enumerate() {
        if at > begin && bytes >= PAGE_BYTES {
            pages.push((&records[begin..at], record.offset.0));
            (begin, bytes) = (at, 0);
        }
        bytes += record.value.as_ref().map_or(0, Bytes::len);
    }
    pages.push((&records[begin..], next));
    pages
}
