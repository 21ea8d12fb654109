//! Transactions: the coordinator of `delivery` behind a lock, and a thread that carries out what it decides.
//!
//! All its records go into journal 0 in one lane, that of the groups too, in the order in which the coordinator changed. The end of a transaction is
//! one append there when all its logs are in journal 0: the decision, the markers, the offsets, that it is done, in this
//! order, of which a crash leaves a beginning. With logs in other journals the decision is durable before their markers are
//! appended, and they are before it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use delivery::{
    Change, Claim, Commit, Committer, Ended, Ending, FoundOpen, GroupError, Initialised, ProducerEpoch, Transaction,
    TransactionCoordinator, TransactionError, TransactionRecord, TransactionSettings, Version, Whole,
};
use hashbrown::HashMap;
use journal::{Append, AppendError, AppendItem, AppendResults, EventSink, ReplyTo};
use parking_lot::Mutex;
use record::{BatchHeader, Marker};
use types::{ConnectionId, Gate, LogId, ShardId};

use crate::group_offsets::OffsetsRefused;
use crate::groups::{expiry_interval, now};
use crate::lane::{Inbox, OF_TRANSACTIONS, WITH_OFFSETS};
use crate::unsent::Unsent;
use crate::{Broker, Reply, Settings};

/// The shard number under which transactions append to other journals than the first.
pub(crate) const SHARD: ShardId = ShardId(60);
const LANE: ConnectionId = ConnectionId(u64::MAX - 1);
/// Ids that are looked at for expiry under one hold of the lock.
const IDS_AT_ONCE: usize = 1000;
/// Ids that are listed under one hold of the lock.
const LISTED_AT_ONCE: usize = 100;
/// Between such pieces, and between tries to give a journal what it had no room for.
const PAUSE: Duration = Duration::from_millis(1);
/// An end that the journal has refused is tried again after this long.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a transaction touches is one record, which each TxnOffsetCommit writes anew: so many bytes at most. Some 10,000 offsets, or 260,000 partitions.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// When the asker may be told.
#[derive(Debug, PartialEq, Eq)]
pub enum Told<T> {
    /// At once.
    Now(T),
    /// When `Reply::Done` has come with a `Result<(), AppendError>` that is `Ok`.
    Later(T),
}

/// All transactional ids of the node.
pub struct Transactions {
    state: Mutex<State>,
    inbox: Arc<Inbox>,
    closed: AtomicBool,
}

struct State {
    coordinator: TransactionCoordinator,
    unsent: Unsent,
    /// By token.
    steps: HashMap<u64, Step>,
    next_token: u64,
    /// Ends under way, by id.
    ends: HashMap<String, End>,
    /// Ids whose end is to be tried again.
    again: Vec<String>,
}

/// What is to be done when an append is durable.
enum Step {
    /// And if that is there, the transaction has a whole record.
    Tell(ReplyTo, Option<Whole>),
    Prepared(Attempt),
    /// With the number of the journal.
    Marked(Attempt, usize),
    Completed(Attempt),
}

/// A transactional id whose transaction ends, and the token of the append with which the attempt began.
#[derive(Clone)]
struct Attempt {
    id: String,
    token: u64,
}

/// A transaction that ends.
struct End {
    ending: Ending,
    tell: Option<ReplyTo>,
    /// Token of the attempt: what comes of an earlier one is not looked at.
    attempt: u64,
    /// Journals whose markers are not there yet.
    open: usize,
    /// The decision is durable.
    decided: bool,
    /// Journals whose markers are there.
    marked: Vec<usize>,
    /// An attempt has failed.
    failed: bool,
}

impl Transactions {
    /// `item_bytes_max`: bytes that journal 0 takes in one item.
    pub(crate) fn new(settings: &Settings, item_bytes_max: usize, inbox: Arc<Inbox>) -> Self {
        let int = |name| settings.int(name).max(0) as u64;
        let coordinator = TransactionCoordinator::new(TransactionSettings {
            timeout_max: int("transaction.max.timeout.ms"),
            id_expiration: int("transactional.id.expiration.ms"),
            record_bytes_max: item_bytes_max.min(RECORD_BYTES_MAX),
        });
        let state = State {
            coordinator,
            unsent: Unsent::default(),
            steps: HashMap::new(),
            next_token: 0,
            ends: HashMap::new(),
            again: Vec::new(),
        };
        Self { state: Mutex::new(state), inbox, closed: AtomicBool::new(false) }
    }

    pub(crate) fn sink(&self) -> Arc<dyn EventSink> {
        Arc::clone(&self.inbox) as Arc<dyn EventSink>
    }

    pub(crate) fn restore(&self, key: &[u8], value: &[u8]) -> bool {
        self.state.lock().coordinator.restore(key, value)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.inbox.wake();
    }

    /// Does a transaction hold an offset of this group that may take effect?
    pub fn holds_offset(&self, group: &str, topic: &str, partition: u32) -> bool {
        self.state.lock().coordinator.holds_offset(group, topic, partition)
    }

    /// Does initialisation or an end of this id take a new producer id? See [`Broker::take_producer_id`].
    pub fn wants_producer_id(&self, id: &str) -> bool {
        self.state.lock().coordinator.wants_producer_id(id)
    }

    /// What `look` takes of one transactional id.
    pub fn look_at<T>(&self, id: &str, look: impl FnOnce(&Transaction) -> T) -> Option<T> {
        self.state.lock().coordinator.describe(id).map(look)
    }

    /// Bytes of memory that transactional ids may take with what their transactions hold, about.
    pub fn set_bytes_max(&self, bytes: usize) {
        self.state.lock().coordinator.set_bytes_max(bytes);
    }

    /// Bytes of memory that they take, about, and how often something was refused because they took as much as they may.
    pub fn memory(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.coordinator.bytes(), state.coordinator.refused_for_memory())
    }

    /// How many transactional ids there are.
    pub fn count(&self) -> usize {
        self.state.lock().coordinator.count()
    }

    /// The next transactional ids behind `after`, a hundred at most, in their order. All producers wait for the lock: of each only what `look` takes leaves it.
    pub fn after<T>(&self, after: Option<&str>, look: impl Fn(&Arc<str>, &Transaction) -> T) -> Vec<T> {
        self.state.lock().coordinator.after(after, LISTED_AT_ONCE).map(|(id, known)| look(id, known)).collect()
    }

    /// The transactions that readers of committed records wait for: id, and for how long, in ms; the longest first.
    pub fn open(&self) -> Vec<(Arc<str>, u64)> {
        let (now, mut open, mut after) = (now(), Vec::new(), None::<Arc<str>>);
        loop {
            let piece = self.after(after.as_deref(), |id, known| {
                (Arc::clone(id), (!known.logs.is_empty()).then_some(known.started))
            });
            let Some((last, _)) = piece.last() else { break };
            after = Some(Arc::clone(last));
            open.extend(piece.into_iter().filter_map(|(id, started)| Some((id, now.saturating_sub(started?)))));
        }
        open.sort_by_key(|(_, since)| std::cmp::Reverse(*since));
        open
    }

    /// The thread that carries out ends and keeps deadlines.
    pub(crate) fn run(&self, broker: &Arc<Broker>) {
        let id_expiration = broker.settings().int("transactional.id.expiration.ms").max(0) as u64;
        let interval = Duration::from_millis(expiry_interval(id_expiration));
        let mut expiry_at = std::time::Instant::now() + interval;
        // Behind which id it goes on, if it has begun.
        let mut expiring: Option<Option<Arc<str>>> = None;
        let mut retry_at: Option<std::time::Instant> = None;
        while !self.closed.load(Ordering::SeqCst) {
            let results = self.inbox.take();
            let now_at = std::time::Instant::now();
            let (mut next, waits) = {
                let mut state = self.state.lock();
                for (token, results) in results {
                    state.take_results(broker, token, &results);
                }
                state.unsent.send(broker.journals());
                for ending in state.coordinator.handle_timeouts(now()) {
                    tracing::info!(transactional_id = ending.id, "transaction timed out and is aborted");
                    state.begin_end(broker, ending, None);
                }
                if retry_at.is_some_and(|at| at <= now_at) {
                    retry_at = None;
                    state.try_again(broker);
                } else if retry_at.is_none() && !state.again.is_empty() {
                    retry_at = Some(now_at + RETRY_AFTER);
                }
                if expiring.is_none() && now_at >= expiry_at {
                    expiry_at = now_at + interval;
                    expiring = Some(None);
                }
                if let Some(after) = expiring.take() {
                    let (keys, next) = state.coordinator.expire(now(), after.as_deref(), IDS_AT_ONCE);
                    expiring = next.map(Some);
                    state.remove(broker, keys);
                }
                (state.coordinator.next_deadline(), !state.unsent.is_empty())
            };
            let mut wait =
                next.take().map_or(interval, |next| Duration::from_millis(next.saturating_sub(now()).max(1)));
            if waits || expiring.is_some() {
                wait = wait.min(PAUSE);
            }
            if let Some(at) = retry_at {
                wait = wait.min(at.saturating_duration_since(now_at)).max(PAUSE);
            }
            self.inbox.wait(wait.min(interval));
        }
    }
}

impl State {
    /// Appends in the lane of the journal; `step` follows when that is durable.
    fn append(&mut self, broker: &Broker, journal: usize, items: Vec<AppendItem>, step: Option<Step>) {
        let acknowledge = step.is_some();
        let token = self.take_token(step);
        if journal == 0 {
            return broker.lane().append(broker.journals(), token | OF_TRANSACTIONS, items, acknowledge);
        }
        let append = Append { to: ReplyTo { shard: SHARD, connection: LANE, token }, items, acknowledge };
        self.unsent.append(broker.journals(), journal, append);
    }

    /// Appends the records that end an end behind `items`. Its offsets take effect when all is durable, in the journal's order.
    fn append_completion(&mut self, broker: &Broker, mut items: Vec<AppendItem>, ending: &Ending, attempt: Attempt) {
        let (key, value) = ending.complete.clone();
        let complete = AppendItem::State { key, value };
        if ending.offsets.is_empty() {
            items.push(complete);
            return self.append(broker, 0, items, Some(Step::Completed(attempt)));
        }
        let token = self.take_token(Some(Step::Completed(attempt))) | OF_TRANSACTIONS | WITH_OFFSETS;
        broker.append_with_offsets(token, items, &ending.offsets, complete);
    }

    fn take_token(&mut self, step: Option<Step>) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        if let Some(step) = step {
            self.steps.insert(token, step);
        }
        token
    }

    fn record(&mut self, broker: &Broker, (key, value): TransactionRecord, step: Step) {
        self.append(broker, 0, vec![AppendItem::State { key, value }], Some(step));
    }

    /// Removes records that are not needed any more; those that a full disk keeps are found by the next start.
    fn remove(&mut self, broker: &Broker, keys: Vec<Bytes>) {
        if !keys.is_empty() {
            self.append(broker, 0, keys.into_iter().map(removed).collect(), None);
        }
    }

    fn begin_end(&mut self, broker: &Broker, ending: Ending, tell: Option<ReplyTo>) {
        self.attempt(
            broker,
            End { ending, tell, attempt: 0, open: 0, decided: false, marked: Vec::new(), failed: false },
        );
    }

    /// Begins with what is not there yet: a decision or a marker that is durable is not written again, because each attempt on a
    /// full disk would use up space that is kept back.
    fn attempt(&mut self, broker: &Broker, mut end: End) {
        let attempt = Attempt { id: end.ending.id.clone(), token: self.next_token };
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            end.markers(broker).into_iter().partition(|(journal, _)| *journal == 0);
        let mut items = Vec::new();
        if !end.decided {
            let (key, value) = end.ending.prepare.clone();
            items.push(AppendItem::State { key, value });
            items.extend(end.ending.unneeded.iter().cloned().map(removed));
            // Only with segments that were larger when it began. No marker may be where the decision is not.
            if !broker.journals()[0].takes(&items, 0) {
                let id = attempt.id.clone();
                self.ends.insert(attempt.id, end);
                return self.fail(broker, id, AppendError::TooLarge);
            }
        }
        items.extend(here.into_iter().flat_map(|(_, markers)| markers));
        end.attempt = attempt.token;
        if elsewhere.is_empty() {
            self.append_completion(broker, items, &end.ending, attempt.clone());
            self.ends.insert(attempt.id, end);
            return;
        }
        self.ends.insert(attempt.id.clone(), end);
        if items.is_empty() {
            self.append_markers(broker, &attempt);
        } else {
            self.append(broker, 0, items, Some(Step::Prepared(attempt)));
        }
    }

    /// The markers of other journals than the first, in whose append the decision was.
    fn append_markers(&mut self, broker: &Broker, attempt: &Attempt) {
        let Some(end) = self.ends.get_mut(&attempt.id) else { return };
        let markers = end.markers(broker);
        end.open = markers.len();
        if markers.is_empty() {
            // Their topics were deleted meanwhile.
            self.complete(broker, attempt.clone());
            return;
        }
        for (journal, items) in markers {
            self.append(broker, journal, items, Some(Step::Marked(attempt.clone(), journal)));
        }
    }

    fn take_results(&mut self, broker: &Broker, token: u64, results: &AppendResults) {
        let Some(step) = self.steps.remove(&(token & !(OF_TRANSACTIONS | WITH_OFFSETS))) else { return };
        let failed = failure(results);
        let attempt = match &step {
            Step::Tell(to, whole) => {
                if let Some(whole) = whole
                    && failed.is_none()
                {
                    let contained = self.coordinator.written(whole);
                    self.remove(broker, contained);
                }
                return broker.reply(*to, Reply::Done(Box::new(failed.map_or(Ok(()), Err))));
            }
            Step::Prepared(attempt) | Step::Marked(attempt, _) | Step::Completed(attempt) => attempt.clone(),
        };
        let Some(end) = self.ends.get_mut(&attempt.id).filter(|end| end.attempt == attempt.token) else { return };
        // The first thing of the first attempt is the decision.
        end.decided |= results.first().is_some_and(Result::is_ok);
        if let Some(error) = failed {
            return self.fail(broker, attempt.id, error);
        }
        match step {
            Step::Prepared(_) => {
                end.marked.push(0);
                note_markers(broker, &end.ending, 0);
                self.append_markers(broker, &attempt);
            }
            Step::Marked(_, journal) => {
                end.marked.push(journal);
                note_markers(broker, &end.ending, journal);
                end.open -= 1;
                if end.open == 0 {
                    self.complete(broker, attempt);
                }
            }
            Step::Completed(_) | Step::Tell(..) => {
                if !end.marked.contains(&0) {
                    note_markers(broker, &end.ending, 0);
                }
                self.finish(broker, &attempt.id);
            }
        }
    }

    /// All markers are there.
    fn complete(&mut self, broker: &Broker, attempt: Attempt) {
        if let Some(ending) = self.ends.get(&attempt.id).map(|end| end.ending.clone()) {
            self.append_completion(broker, Vec::new(), &ending, attempt);
        }
    }

    fn finish(&mut self, broker: &Broker, id: &str) {
        let Some(End { tell, failed, .. }) = self.ends.remove(id) else { return };
        if failed {
            tracing::info!(transactional_id = id, "transaction has ended after all");
        }
        self.coordinator.complete(id);
        if let Some(to) = tell {
            broker.reply(to, Reply::Done(Box::new(Ok::<(), AppendError>(()))));
        }
    }

    /// The asker is told; the end stays decided and is tried again.
    fn fail(&mut self, broker: &Broker, id: String, error: AppendError) {
        if let Some(end) = self.ends.get_mut(&id) {
            if !std::mem::replace(&mut end.failed, true) {
                tracing::warn!(transactional_id = id, %error, "transaction cannot end now, will be tried again");
            }
            if let Some(to) = end.tell.take() {
                broker.reply(to, Reply::Done(Box::new(Err::<(), _>(error))));
            }
        }
        if error != AppendError::Stopped && !self.again.contains(&id) {
            self.again.push(id);
        }
    }

    fn try_again(&mut self, broker: &Broker) {
        for id in std::mem::take(&mut self.again) {
            if let Some(end) = self.ends.remove(&id) {
                self.attempt(broker, end);
            }
        }
    }
}

impl End {
    /// The markers that are not there yet, with the numbers of their journals.
    fn markers(&self, broker: &Broker) -> Vec<(usize, Vec<AppendItem>)> {
        let all = markers(broker, &self.ending).into_iter().enumerate();
        all.filter(|(journal, items)| !items.is_empty() && !self.marked.contains(journal)).collect()
    }
}

/// Why an append of an end has failed. A log that is gone, or that knows a newer epoch of the producer, holds nothing of the transaction.
pub(crate) fn failure(results: &AppendResults) -> Option<AppendError> {
    let harmless = |error: &AppendError| matches!(error, AppendError::LogDeleted | AppendError::InvalidProducerEpoch);
    results.iter().filter_map(|result| result.err()).find(|error| !harmless(error))
}

/// A record that is not needed any more.
fn removed(key: Bytes) -> AppendItem {
    AppendItem::State { key, value: None }
}

/// The markers of an end, by journal.
fn markers(broker: &Broker, ending: &Ending) -> Vec<Vec<AppendItem>> {
    let mut items: Vec<Vec<AppendItem>> = broker.journals().iter().map(|_| Vec::new()).collect();
    let marker = if ending.commit { Marker::Commit } else { Marker::Abort };
    let (bytes, header) = marker_batch(marker, ending.producer, broker);
    for id in &ending.logs {
        if let Some(log) = broker.journal_of(*id).log(*id) {
            items[broker.journal_number(*id)].push(AppendItem::Batch { log, bytes: bytes.clone(), header, gate: None });
        }
    }
    items
}

/// Markers of an end are in their logs of a journal.
fn note_markers(broker: &Broker, ending: &Ending, journal: usize) {
    ending.logs.iter().filter(|id| broker.journal_number(**id) == journal).for_each(|id| broker.note_marker(*id));
}

/// A marker and its head. A transaction that ended without its markers would be torn: that our own batch is one is not in doubt.
fn marker_batch(marker: Marker, (producer_id, epoch): ProducerEpoch, broker: &Broker) -> (Bytes, BatchHeader) {
    let bytes = marker.batch(producer_id, epoch, 0, broker.now_ms());
    let header = BatchHeader::parse(&bytes).expect("a batch that was just built has a head");
    (bytes, header)
}

impl Broker {
    /// After recovery, before anybody asks: logs with records of a transaction that has no marker tell what was under way, and what
    /// was decided is carried out.
    pub(crate) fn resume_transactions(&self) {
        let mut state = self.transactions().state.lock();
        let unneeded = state.coordinator.restored();
        state.remove(self, unneeded);
        let mut found: Vec<(FoundOpen, i16)> = Vec::new();
        for topic in self.topics() {
            for log in topic.logs().iter() {
                let open = log
                    .producers()
                    .into_iter()
                    .filter_map(|(id, known, open)| open.map(|open| (id, known.epoch, open.since)));
                found.extend(open.map(|(id, epoch, since)| {
                    (FoundOpen { log: log.id(), producer_id: id, since: since.max(0) as u64 }, epoch)
                }));
            }
        }
        let of_nobody = state.coordinator.found_open(found.iter().map(|(found, _)| *found));
        for (FoundOpen { log: id, producer_id, .. }, epoch) in found {
            let Some(log) = self.journal_of(id).log(id).filter(|_| of_nobody.contains(&producer_id)) else { continue };
            tracing::warn!(log = %id, producer_id, "a transaction of nobody is aborted");
            let (bytes, header) = marker_batch(Marker::Abort, (producer_id, epoch), self);
            let item = AppendItem::Batch { log, bytes, header, gate: None };
            state.append(self, self.journal_number(id), vec![item], None);
        }
        for ending in state.coordinator.unfinished() {
            state.begin_end(self, ending, None);
        }
    }

    /// A producer begins under a transactional id. `fresh`: a new producer id, if one [is wanted](Transactions::wants_producer_id).
    ///
    /// # Errors
    /// See [`TransactionCoordinator::init`].
    pub fn init_transactions(
        &self,
        id: &str,
        timeout: i32,
        expected: Option<ProducerEpoch>,
        fresh: Option<i64>,
        tell: ReplyTo,
    ) -> Result<Told<ProducerEpoch>, TransactionError> {
        let mut state = self.transactions().state.lock();
        let initialised = state.coordinator.init(id, timeout, expected, fresh, now()).inspect_err(|error| {
            let refused = state.coordinator.refused_for_memory();
            if *error == TransactionError::NoMemory && refused.is_power_of_two() {
                tracing::warn!(
                    bytes = state.coordinator.bytes(),
                    refused,
                    "transactional ids take as much memory as they may, new ones are refused"
                );
            }
        });
        match initialised? {
            Initialised::Granted(producer, record) => {
                state.record(self, record, Step::Tell(tell, None));
                Ok(Told::Later(producer))
            }
            Initialised::Unchanged(producer) => Ok(Told::Now(producer)),
            Initialised::Aborting(ending) => {
                state.begin_end(self, *ending, None);
                Err(TransactionError::Concurrent)
            }
        }
    }

    /// Adds logs to a transaction, for a producer that is about to write to them.
    ///
    /// # Errors
    /// See [`TransactionCoordinator::add_logs`].
    pub fn add_to_transaction(
        &self,
        claim: Claim<'_>,
        logs: Vec<LogId>,
        tell: ReplyTo,
    ) -> Result<Told<()>, TransactionError> {
        let mut state = self.transactions().state.lock();
        let record = state.coordinator.add_logs(claim, logs, now())?;
        let told = state.tell_when_durable(self, record, tell);
        self.transactions().wake();
        Ok(told)
    }

    /// May records of this transaction be appended to these logs? With [`Version::V2`] that adds them. The appends carry the gate.
    ///
    /// # Errors
    /// See [`TransactionCoordinator::enter_logs`], [`TransactionCoordinator::verify_logs`].
    pub fn write_in_transaction(
        &self,
        claim: Claim<'_>,
        logs: impl IntoIterator<Item = LogId>,
        version: Version,
    ) -> Result<Arc<Gate>, TransactionError> {
        let mut state = self.transactions().state.lock();
        if version == Version::V1 {
            return state.coordinator.verify_logs(claim, logs);
        }
        let before = state.coordinator.next_deadline();
        let (gate, _) = state.coordinator.enter_logs(claim, logs, now())?;
        if state.coordinator.next_deadline() != before {
            self.transactions().wake();
        }
        Ok(gate)
    }

    /// Adds a group to a transaction.
    ///
    /// # Errors
    /// See [`TransactionCoordinator::add_group`].
    pub fn add_group_to_transaction(
        &self,
        claim: Claim<'_>,
        group: &str,
        tell: ReplyTo,
    ) -> Result<Told<()>, TransactionError> {
        let mut state = self.transactions().state.lock();
        let record = state.coordinator.add_group(claim, group, now())?;
        let told = state.tell_when_durable(self, record, tell);
        self.transactions().wake();
        Ok(told)
    }

    /// Adds offsets to a transaction, which take effect when it commits; refusals of single ones, each with its number. The group is
    /// asked while nothing else happens to transactions: whoever asks for stable offsets after a rebalance sees what was added before it.
    ///
    /// # Errors
    /// What the group says of the member, or see [`TransactionCoordinator::add_offsets`].
    #[expect(clippy::type_complexity, reason = "outcomes are told with the whole")]
    pub fn add_offsets_to_transaction(
        &self,
        (claim, version): (Claim<'_>, Version),
        group: &str,
        member: Committer<'_>,
        commits: Vec<Commit>,
        tell: ReplyTo,
    ) -> Result<(Told<()>, Vec<(usize, GroupError)>), OffsetsRefused> {
        let mut state = self.transactions().state.lock();
        let checked = self
            .groups()
            .state
            .lock()
            .coordinator
            .prepare_commit(group, member, &commits, now())
            .map_err(OffsetsRefused::Group)?;
        let (mut kept, mut refused) = (Vec::with_capacity(commits.len()), Vec::new());
        for (number, (commit, outcome)) in commits.into_iter().zip(checked).enumerate() {
            match outcome {
                Ok(_) => kept.push(commit),
                Err(error) => refused.push((number, error)),
            }
        }
        if kept.is_empty() {
            return Ok((Told::Now(()), refused));
        }
        let record = state.coordinator.add_offsets(claim, group, kept, version, now());
        let told = state.tell_when_durable(
            self,
            Some(record.map_err(|error| OffsetsRefused::Transaction(error, refused.clone()))?),
            tell,
        );
        self.transactions().wake();
        Ok((told, refused))
    }

    /// Ends a transaction; told is the producer that goes on.
    ///
    /// # Errors
    /// See [`TransactionCoordinator::end`].
    pub fn end_transaction(
        &self,
        claim: Claim<'_>,
        commit: bool,
        version: Version,
        fresh: Option<i64>,
        tell: ReplyTo,
    ) -> Result<Told<ProducerEpoch>, TransactionError> {
        let mut state = self.transactions().state.lock();
        match state.coordinator.end(claim, commit, version, fresh, now())? {
            Ended::Already(next) => Ok(Told::Now(next)),
            Ended::Ending(ending, next) => {
                state.begin_end(self, *ending, Some(tell));
                Ok(Told::Later(next))
            }
        }
    }
}

impl State {
    fn tell_when_durable(&mut self, broker: &Broker, change: Option<Change>, tell: ReplyTo) -> Told<()> {
        match change {
            Some(Change { key, value, whole }) => {
                self.record(broker, (key, Some(value)), Step::Tell(tell, whole));
                Told::Later(())
            }
            None => Told::Now(()),
        }
    }
}
