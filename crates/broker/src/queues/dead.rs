//! Messages that nobody will get any more go where their queue sends them: through an exchange to other queues, in one chunk with the
//! record that they are gone from this one, where all of them are in one journal: after a crash a message is here or there. With more
//! journals the copy comes first. Many leave in one append: what one append takes is bounded, so that others have their turn in between.
//!
//! A message is done with when that append is durable. If it is not taken the message stays claimed, and is released with all else that
//! could not be sent: it is tried again after a while. On a full disk all that is dead in the queue waits then, with what dies meanwhile, and goes on
//! with the first: segments become free one after the other, and what they give makes room for the next ones. A letter to a journal of which the disk
//! is full waits alone: those to others go. With what its death adds to it a message may be larger than a segment takes: it stays in
//! its queue, out of the way of the others, and is tried again each hour.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use delivery::{Dead, DeadReason, Overflow, QueueKind};
use journal::{AppendItem, Journal, JournalStatus};
use record::{BatchWriter, Record};
use routing::{Headers, Name, QueueId, Scratch};

use super::Vhost;
use super::batches::{Batches, Targets, journals_of};
use super::burials::Burial;
use super::policies::Understood;
use super::queue::Queue;
use super::unfinished::{Journals, Marked, Unfinished};
use crate::Broker;
use crate::dead_letters::{DeadLetterError, Turn};
use crate::groups::now;

/// Dead letters of one append, about: bytes, and messages.
const APPEND_BYTES: usize = 256 << 10;
const APPEND_MESSAGES: usize = 2000;
/// Bytes of what says that dead messages are gone, at most, about.
const GONE_BYTES: usize = 64 << 10;
/// What no segment has room for is tried again after so many ms.
const TOO_LARGE_RETRY_MS: u64 = 3_600_000;
/// What a full disk does not take is tried again after so many ms, from the first on.
const FULL_RETRY_MS: u64 = 1_000;
/// So many ms more for each message that waits for another journal.
const WAITING_RETRY_MS: u64 = 4;
/// The same of a journal that has stopped.
const STOPPED_RETRY_MS: u64 = 30_000;
/// What is dead within so many offsets is read together.
const TOGETHER_OFFSETS: u64 = 4000;

/// Makes letters of dead messages: who knows what the protocol of their publishers wants.
pub trait Undertaker: Send + Sync {
    /// Makes of a message of `queue` that is dead one that is published again, and writes its record where `address` says.
    fn letter(&self, queue: &Queue, record: &Record, dead: &Dead, now_ms: i64, address: &mut dyn Address);

    /// The headers by which a message is routed.
    fn headers(&self, record: &Record) -> Box<dyn Headers>;
}

/// A dead message as it is published again.
pub struct Letter<'a> {
    /// Its routing keys.
    pub keys: &'a [&'a [u8]],
    /// For routing.
    pub headers: &'a dyn Headers,
    /// Queues that do not get it: it has come from there without anybody having rejected it.
    pub passed: &'a [Name],
    /// What its record takes, about.
    pub record_bytes: usize,
}

/// Finds out where dead messages go.
pub trait Address {
    /// The batch that takes this one; `None`: nobody does.
    fn batch_for(&mut self, letter: &Letter<'_>) -> Option<&mut BatchWriter>;
}

/// Who is asked, once a gateway is there.
pub(crate) type TheUndertaker = OnceLock<Arc<dyn Undertaker>>;

/// Why dead messages are not sent yet.
#[derive(Debug, thiserror::Error)]
enum NotSent {
    #[error(transparent)]
    Read(#[from] DeadLetterError),
    #[error("the journal of the queue takes nothing")]
    NotWritten,
}

/// The way of a queue's dead messages through its exchange.
struct Way<'a> {
    broker: &'a Arc<Broker>,
    queue: &'a Queue,
    understood: &'a Understood,
    vhost: &'a Vhost,
    scratch: Scratch,
    found: Vec<QueueId>,
    batches: Batches,
    /// What the batches take, about, and what they may take.
    bytes: usize,
    bytes_max: usize,
    /// Bytes of the body of the one that is on its way, its offset, and whether all who should take it do.
    body_bytes: usize,
    keyed: bool,
    offset: u64,
    taken: bool,
    /// It has to be alone in its append, and others are in the one that is being made.
    wants_alone: bool,
    /// It waits for space on the disk of another journal.
    waits: bool,
    /// The journals that it goes to.
    journals: Journals,
    /// Queues that refuse this one and have refused messages go to their own dead-letter exchange; then those of the append, each alone.
    refusing: Vec<Arc<Queue>>,
    refused: Vec<(Arc<Queue>, Bytes)>,
    /// Journals of which no copy is taken now: earlier letters wait for them.
    behind: Journals,
    /// The journal of the queue, and by journal whether it takes copies, if that was asked for this append.
    home: usize,
    takes_copies: Vec<Option<bool>>,
}

impl Address for Way<'_> {
    fn batch_for(&mut self, letter: &Letter<'_>) -> Option<&mut BatchWriter> {
        let exchange = self.understood.dead_letter_exchange.as_ref()?;
        self.found.clear();
        // An exchange that is not there takes nothing, as in RabbitMQ.
        if let Some(exchange) = self.vhost.exchanges().read().exchange(exchange)
            && let Err(refused) = exchange.route(letter.keys, letter.headers, &mut self.scratch, &mut self.found)
        {
            // Nor does one whose bindings are made to be reached in vain.
            tracing::debug!(%refused, exchange = %exchange.name(), "a dead letter is for no queue");
        }
        self.taken = !self.found.is_empty();
        let found = std::mem::take(&mut self.found);
        self.waits = found.iter().any(|id| self.is_far_and_full(*id, letter));
        self.found = found;
        if self.waits {
            self.taken = false;
            return None;
        }
        let mut targets = Targets::new();
        for target in self.found.iter().filter_map(|id| self.broker.vhosts.queue(*id)) {
            if letter.passed.contains(target.name()) {
                continue;
            }
            // A quorum queue refuses publishers, not queues, unless these wait for it.
            let asks = target.understood().kind == QueueKind::Classic || self.understood.letters_wait;
            if asks && !self.batches.admit(self.broker, &target, (self.body_bytes, self.keyed)) {
                self.taken = false;
                // Who waits for them asks again.
                if target.understood().overflow == Overflow::RejectPublishDeadLetter && !self.understood.letters_wait {
                    self.refusing.push(target);
                }
                continue;
            }
            targets.push(Arc::clone(target.part(letter.headers, self.offset)));
        }
        if targets.is_empty() || !self.taken && self.understood.letters_wait {
            return None;
        }
        self.journals = journals_of(self.broker, &targets);
        // No segment may have room for it: then that is not the others' fault.
        self.wants_alone = letter.record_bytes > self.bytes_max && self.bytes > 0;
        if self.wants_alone {
            return None;
        }
        self.bytes += letter.record_bytes;
        Some(self.batches.batch_for(targets, letter.record_bytes, self.bytes_max))
    }
}

/// One letter, whoever takes it.
struct Alone(BatchWriter);

impl Address for Alone {
    fn batch_for(&mut self, _: &Letter<'_>) -> Option<&mut BatchWriter> {
        Some(&mut self.0)
    }
}

/// Dead messages of a queue on their way, with those of the append that is being made.
struct Sending<'a> {
    broker: &'a Arc<Broker>,
    queue: &'a Arc<Queue>,
    undertaker: &'a dyn Undertaker,
    way: Way<'a>,
    /// What was read last, from where and up to before where.
    read: Vec<Record>,
    read_from: u64,
    /// What packed records are kept under.
    turn: Option<Turn<'a>>,
    read_to: u64,
    messages: usize,
    /// Of which the append has all copies there are to be: runs, both ends included, and where the copies go.
    covered: Vec<(u64, u64, Journals)>,
    /// What waits for another journal, likewise.
    waiting: Vec<(u64, u64)>,
    /// Appends that other journals have not taken whole.
    unfinished: Vec<Unfinished>,
}

/// What of these is claimed when it goes was not sent, and is released.
struct Claim<'a> {
    queue: &'a Queue,
    dead: &'a [Dead],
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let (rules, mut state) = (self.queue.rules().subscription(), self.queue.shared.lock());
        if state.has_dying() {
            self.dead.iter().for_each(|one| state.release_dead(one.first, one.last, now(), &rules));
        }
    }
}

impl Sending<'_> {
    /// Sends one run of `dead`, whatever of it is claimed.
    fn send(&mut self, dead: &[Dead], at: usize) -> Result<(), NotSent> {
        let one = dead[at];
        let claimed = self.queue.shared.lock().claimed_dead(one.first, one.last);
        for (first, last) in claimed {
            let mut from = first.max(self.queue.log().start().0);
            if first < from {
                self.cover(first, last.min(from - 1), Journals::default());
            }
            while from <= last && !self.queue.is_dropped() {
                if self.way.bytes >= self.way.bytes_max || self.messages >= APPEND_MESSAGES {
                    self.append()?;
                }
                from = self.step(&one, (from, last), until(&dead[at..], from))?;
            }
        }
        Ok(())
    }

    /// Takes one record of a run, or what lies before the next one; where to go on.
    fn step(&mut self, dead: &Dead, (from, last): (u64, u64), read_to: u64) -> Result<u64, NotSent> {
        if !(self.read_from..self.read_to).contains(&from) {
            // What was read before goes first.
            (self.read, self.turn) = (Vec::new(), None);
            let (records, next) = self.broker.read_records(&self.queue.shared, from, read_to, &mut self.turn)?;
            (self.read, self.read_from, self.read_to) = (records, from, next.clamp(from + 1, read_to + 1));
        }
        let at = self.read.partition_point(|record| record.offset.0 < from);
        let Some(record) = self.read.get(at).filter(|record| record.offset.0 <= last) else {
            // Nothing is there to be copied.
            let next = self.read.get(at).map_or(self.read_to, |record| record.offset.0).clamp(from + 1, last + 1);
            self.cover(from, next - 1, Journals::default());
            return Ok(next);
        };
        let offset = record.offset.0;
        let taken = self.way.take(self.undertaker, record, dead);
        if self.way.wants_alone {
            self.append()?;
            return Ok(from);
        }
        if taken {
            self.messages += 1;
            self.cover(from, offset, self.way.journals);
        } else if from < offset {
            self.cover(from, offset - 1, Journals::default());
        }
        if self.way.waits {
            match self.waiting.last_mut() {
                Some((_, end)) if *end + 1 == offset => *end = offset,
                _ => self.waiting.push((offset, offset)),
            }
        }
        Ok(offset + 1)
    }

    fn cover(&mut self, first: u64, last: u64, journals: Journals) {
        match self.covered.last_mut() {
            Some((_, end, before)) if *end + 1 == first && *before == journals => *end = last,
            _ => self.covered.push((first, last, journals)),
        }
    }

    /// Makes the copies durable, and with them that the originals are gone.
    fn append(&mut self) -> Result<(), NotSent> {
        let (broker, queue) = (self.broker, self.queue);
        let (covered, batches) = (std::mem::take(&mut self.covered), std::mem::take(&mut self.way.batches));
        let refused = std::mem::take(&mut self.way.refused);
        (self.way.bytes, self.messages) = (0, 0);
        self.way.takes_copies.fill(None);
        if covered.is_empty() {
            return Ok(());
        }
        let home = self.way.home;
        if !broker.journals()[home].takes_copies() {
            return Err(NotSent::NotWritten);
        }
        let (mut items, _admitted) = batches.into_marked(broker);
        let fits = |(journal, items): (&Arc<Journal>, &Marked)| {
            items.iter().all(|(_, item)| journal.takes(std::slice::from_ref(item), 0))
        };
        if !broker.journals().iter().zip(&items).all(fits) {
            let runs: Vec<(u64, u64)> = covered.iter().map(|(first, last, _)| (*first, *last)).collect();
            broker.put_off_too_large(&queue.shared, &runs);
            return Ok(());
        }
        let near = std::mem::take(&mut items[home]);
        let (mut left, mut refusing) = (Vec::new(), Journals::default());
        for (journal, items) in items.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
            let (waiting, now): (Marked, Marked) =
                items.into_iter().partition(|(journals, _)| journals.meets(refusing));
            let mut refused = broker.commit_letters(journal, unmarked(now));
            if !refused.is_empty() {
                refusing.add(journal);
            }
            refused.extend(unmarked(waiting));
            if !refused.is_empty() {
                left.push((journal, refused));
            }
        }
        let (waiting, near): (Marked, Marked) = near.into_iter().partition(|(journals, _)| journals.meets(refusing));
        let (waits, now): (Vec<_>, Vec<_>) = covered.into_iter().partition(|(_, _, journals)| journals.meets(refusing));
        let runs = |all: Vec<(u64, u64, Journals)>| all.into_iter().map(|(first, last, _)| (first, last)).collect();
        if !refusing.is_none() {
            self.leave(Unfinished { runs: runs(waits), far: left, near: unmarked(waiting) });
        }
        let (now, near): (Vec<(u64, u64)>, _) = (runs(now), unmarked(near));
        if now.is_empty() {
            broker.bury_all_refused(refused);
            return Ok(());
        }
        match broker.dead_letters_are_there(&queue.shared, now.clone(), near) {
            Ok(()) => {
                broker.touch_queue(queue);
                broker.bury_all_refused(refused);
                Ok(())
            }
            Err(near) => {
                // Others may have their copies: these are kept as they are, and nobody is asked again.
                if broker.journals().len() > 1 {
                    self.unfinished.push(Unfinished { runs: now, far: Vec::new(), near });
                    broker.bury_all_refused(refused);
                }
                Err(NotSent::NotWritten)
            }
        }
    }

    /// What is left of an append waits for a while, and with it whatever goes to the journals that have not taken it.
    fn leave(&mut self, left: Unfinished) {
        let (mut state, at) = (self.queue.shared.lock(), now() + FULL_RETRY_MS);
        left.runs.iter().for_each(|(first, last)| state.put_off_dead(*first, *last, at));
        drop(state);
        self.way.behind.join(left.journals());
        self.unfinished.push(left);
    }

    /// Appends what is left of earlier appends. False: the queue's own journal takes nothing.
    fn finish_earlier(&mut self) -> bool {
        let mut takes = true;
        for mut left in self.broker.vhosts.burials.take_unfinished(self.queue) {
            if takes && left.finish(self.broker, self.queue) {
                self.broker.touch_queue(self.queue);
                continue;
            }
            takes &= !left.far.is_empty();
            self.leave(left);
        }
        takes
    }
}

fn unmarked(items: Marked) -> Vec<AppendItem> {
    items.into_iter().map(|(_, item)| item).collect()
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.broker.vhosts.burials.put_unfinished(self.queue, std::mem::take(&mut self.unfinished));
    }
}

/// Up to where it is worth reading for the first of these from `from` on, included.
fn until(dead: &[Dead], from: u64) -> u64 {
    let mut until = dead.first().map_or(from, |one| one.last);
    for pair in dead.windows(2) {
        if pair[1].first <= pair[0].last || pair[1].last > from + TOGETHER_OFFSETS {
            break;
        }
        until = pair[1].last;
    }
    until
}

impl<'a> Way<'a> {
    fn new(broker: &'a Arc<Broker>, queue: &'a Queue, understood: &'a Understood, vhost: &'a Vhost) -> Self {
        let (scratch, found, batches) = (Scratch::default(), Vec::new(), Batches::default());
        // What is appended together is one item of a journal.
        let room = broker.journals().iter().map(|journal| journal.item_bytes_max()).min().unwrap_or(usize::MAX);
        let bytes_max = APPEND_BYTES.min(room / 4);
        let (home, takes_copies) = (broker.journal_number(queue.log().id()), vec![None; broker.journals().len()]);
        let (taken, wants_alone, waits, nowhere) = (false, false, false, Journals::default());
        let (journals, behind) = (nowhere, nowhere);
        let (refusing, refused) = (Vec::new(), Vec::new());
        Self {
            broker,
            queue,
            understood,
            vhost,
            scratch,
            found,
            batches,
            bytes: 0,
            bytes_max,
            body_bytes: 0,
            keyed: false,
            offset: 0,
            taken,
            wants_alone,
            waits,
            journals,
            refusing,
            refused,
            behind,
            home,
            takes_copies,
        }
    }

    /// Does another journal, which takes nothing, have this queue's log? What was copied to others before it refuses would be copied again.
    fn is_far_and_full(&mut self, id: QueueId, letter: &Letter<'_>) -> bool {
        let (broker, home) = (self.broker, self.home);
        if broker.journals().len() == 1 {
            return false;
        }
        let Some(target) = broker.vhosts.queue(id).filter(|target| !letter.passed.contains(target.name())) else {
            return false;
        };
        let journal = broker.journal_number(target.part(letter.headers, self.offset).log().id());
        journal != home
            && (self.behind.has(journal)
                || !*self.takes_copies[journal].get_or_insert_with(|| broker.journals()[journal].takes_copies()))
    }

    /// Writes a dead message into the batch of its queues; false: not all who should take it do, and it waits for them.
    fn take(&mut self, undertaker: &dyn Undertaker, record: &Record, dead: &Dead) -> bool {
        (self.body_bytes, self.keyed) = (record.value.as_ref().map_or(0, Bytes::len), record.key.is_some());
        (self.offset, self.taken, self.wants_alone, self.waits, self.journals) =
            (record.offset.0, false, false, false, Journals::default());
        self.refusing.clear();
        undertaker.letter(self.queue, record, dead, self.broker.now_ms(), self);
        if !self.wants_alone && !self.refusing.is_empty() {
            let mut alone = Alone(BatchWriter::with_capacity(self.body_bytes));
            undertaker.letter(self.queue, record, dead, self.broker.now_ms(), &mut alone);
            let letter = alone.0.finish();
            self.bytes += letter.len();
            self.refused.extend(self.refusing.drain(..).map(|queue| (queue, letter.clone())));
        }
        !self.waits && (self.taken || !self.understood.letters_wait)
    }
}

impl Broker {
    /// Who makes letters of dead messages; the first one stays. What has died before goes on.
    pub fn set_undertaker(&self, undertaker: Arc<dyn Undertaker>) {
        self.begin_burying(|| self.undertaker.set(undertaker).is_ok());
    }

    /// Copies of dead records that no segment has room for are not in the way of others.
    pub(crate) fn put_off_too_large(&self, shared: &crate::SharedSubscription, runs: &[(u64, u64)]) {
        let (mut state, mut count) = (shared.lock(), 0);
        for (first, last) in runs {
            count += last - first + 1;
            state.put_off_dead(*first, *last, now() + TOO_LARGE_RETRY_MS);
            tracing::warn!(subscription = ?shared.name(), offset = last, "a dead message is larger than a segment takes with what its death adds: it stays, and is tried again in an hour");
        }
        self.vhosts.too_large_letters.fetch_add(count, Ordering::Relaxed);
    }

    /// How often since the start a dead message was not copied because no segment has room for its copy.
    pub fn too_large_letters(&self) -> u64 {
        self.vhosts.too_large_letters.load(Ordering::Relaxed)
    }

    /// Sends dead messages of a queue to its dead-letter exchange; they are claimed, by rules that hold them for that. The subscription may be locked.
    pub(crate) fn bury_of_queue(&self, queue: &Arc<Queue>, dead: Vec<Dead>) {
        self.bury_next(queue, dead.into_iter().map(Burial::Dead));
    }

    /// A message that a full queue has refused goes where its dead ones go; `batch` has it alone.
    pub fn bury_refused(&self, queue: &Arc<Queue>, batch: Bytes) {
        self.bury_next(queue, [Burial::Refused(batch)]);
    }

    fn bury_all_refused(&self, refused: Vec<(Arc<Queue>, Bytes)>) {
        refused.into_iter().for_each(|(queue, letter)| self.bury_refused(&queue, letter));
    }

    /// Sends what a full queue has refused; each batch has one record.
    pub(super) fn send_refused(self: &Arc<Self>, queue: &Arc<Queue>, batches: &[Bytes]) {
        let dead = Dead { first: 0, last: 0, count: 0, failed: 0, reason: DeadReason::MaxLength };
        let (understood, vhost) = (queue.understood(), self.vhosts.get(queue.vhost()));
        let (Some(undertaker), Some(vhost)) = (self.undertaker.get(), vhost) else { return };
        let mut records = batches.iter().flat_map(|batch| record::records(batch).unwrap_or_default()).peekable();
        while records.peek().is_some() {
            let mut way = Way::new(self, queue, &understood, &vhost);
            while way.bytes < way.bytes_max
                && let Some(record) = records.peek()
            {
                let taken = way.take(&**undertaker, record, &dead);
                if way.wants_alone {
                    break;
                }
                if !taken && way.waits {
                    tracing::warn!(
                        ?queue,
                        "a refused message is not among the dead letters: the disk of another journal is full"
                    );
                }
                records.next();
            }
            let (refused, (items, _admitted)) = (std::mem::take(&mut way.refused), way.batches.into_items(self));
            self.bury_all_refused(refused);
            for (journal, items) in items.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
                if let Err(error) = self.commit(journal, items) {
                    tracing::warn!(%error, ?queue, "refused messages are not among the dead letters");
                }
            }
        }
    }

    /// Reads what is dead and sends it. On a thread that may wait.
    pub(super) fn send_letters(self: &Arc<Self>, queue: &Arc<Queue>, dead: &[Dead]) {
        let _claim = Claim { queue, dead };
        let (understood, vhost) = (queue.understood(), self.vhosts.get(queue.vhost()));
        if understood.dead_letter_exchange.is_none() {
            // Held for an exchange that a policy named and names no longer.
            let mut state = queue.shared.lock();
            dead.iter().for_each(|one| state.buried(one.first, one.last));
            drop(state);
            return self.touch_queue(queue);
        }
        let (Some(undertaker), Some(vhost)) = (self.undertaker.get(), vhost) else { return };
        let Some(dead) = self.behind_those_that_wait(queue, dead) else { return };
        let _claim = Claim { queue, dead: &dead };
        let way = Way::new(self, queue, &understood, &vhost);
        let (read, covered, waiting) = (Vec::new(), Vec::new(), Vec::new());
        let undertaker = &**undertaker;
        let unfinished = Vec::new();
        let mut sending = Sending {
            broker: self,
            queue,
            undertaker,
            way,
            read,
            read_from: 0,
            read_to: 0,
            turn: None,
            messages: 0,
            covered,
            waiting,
            unfinished,
        };
        let sent = if sending.finish_earlier() {
            (0..dead.len()).try_for_each(|at| sending.send(&dead, at)).and_then(|()| sending.append())
        } else {
            Err(NotSent::NotWritten)
        };
        if !sending.waiting.is_empty() {
            // All of them are read then to see where they go: the more there are, the later.
            let count: u64 = sending.waiting.iter().map(|(first, last)| last - first + 1).sum();
            let (mut state, at) =
                (queue.shared.lock(), now() + (FULL_RETRY_MS + WAITING_RETRY_MS * count).min(STOPPED_RETRY_MS));
            sending.waiting.iter().for_each(|(first, last)| state.put_off_dead(*first, *last, at));
        }
        let Err(error) = sent else { return };
        if matches!(error, NotSent::NotWritten) {
            self.put_off_all(queue, &dead);
        }
        if !self.journal_of(queue.log().id()).is_disk_full()
            && let Some(first) = dead.first()
        {
            tracing::warn!(%error, ?queue, first = first.first, "dead messages wait to be sent");
        }
    }

    /// What of `dead` is to be sent now, in its order. `None`: it waits as long as what died before it. When all that waited is due again it comes
    /// in the order of its offsets, with what has died since.
    fn behind_those_that_wait(&self, queue: &Queue, dead: &[Dead]) -> Option<Vec<Dead>> {
        let mut all = dead.to_vec();
        if let Some(until) = self.vhosts.burials.put_off_until(queue) {
            let mut state = queue.shared.lock();
            if state.is_put_off_until(until) {
                dead.iter().for_each(|one| state.put_off_dead(one.first, one.last, until));
                return None;
            }
            drop(state);
            self.vhosts.burials.go_on(queue);
            all.extend(self.take_dead_that_wait(queue));
            all.sort_unstable_by_key(|one| one.first);
        }
        Some(all)
    }

    /// The journal of the queue takes nothing: what of the queue is dead and not sent waits, this and all that comes behind it.
    fn put_off_all(&self, queue: &Queue, dead: &[Dead]) {
        let behind = self.take_dead_that_wait(queue);
        let has_stopped = matches!(self.journal_of(queue.log().id()).status(), JournalStatus::Stopped { .. });
        let (mut state, at) = (queue.shared.lock(), now() + if has_stopped { STOPPED_RETRY_MS } else { FULL_RETRY_MS });
        self.vhosts.burials.put_off(queue, at);
        dead.iter().chain(&behind).for_each(|one| state.put_off_dead(one.first, one.last, at));
    }

    /// Appends copies of dead records of a subscription, of its journal, together with the record that those are done with; they are when that is
    /// durable. Copies for which one append is too small come first.
    ///
    /// # Errors
    /// It is not, and they stay claimed: copies that are left.
    pub(crate) fn dead_letters_are_there(
        &self,
        shared: &Arc<crate::SharedSubscription>,
        runs: Vec<(u64, u64)>,
        mut copies: Vec<AppendItem>,
    ) -> Result<(), Vec<AppendItem>> {
        let home = self.journal_number(shared.log().id());
        if !self.journals()[home].takes(&copies, GONE_BYTES) {
            copies = self.commit_letters(home, copies);
            if !copies.is_empty() {
                return Err(copies);
            }
        }
        let (mut lettering, left) = (None, copies.clone());
        let durable = self.durably(|asker| {
            let mut state = shared.lock();
            let begun = state.begin_dead_lettering(runs);
            self.write_subscription_with(shared, &mut state, copies, &begun.changes(), asker);
            lettering = Some(begun);
        });
        let mut state = shared.lock();
        if let Some(begun) = lettering {
            state.end_dead_lettering(begun, durable);
        }
        if durable { Ok(()) } else { Err(left) }
    }
}
