//! Transactions: who may write under a transactional id, what the transaction under way has touched, and how it ends.
//!
//! Rules (Apache Kafka's transaction coordinator, both versions of the protocol):
//!
//! * Every initialisation and, with [`Version::V2`], every end raises the producer's epoch; older epochs are fenced.
//! * A transaction begins with the first log or group that is added to it, and ends by its producer, by a newer producer
//!   under the same id, by its time-out, or by an administrator.
//! * The decision how it ends is durable before the first marker, so that a crash in between only delays the rest.
//! * While it is ending nothing else happens under its id.
//!
//! Each change comes with the record that must be durable before anybody is told.

mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use types::{Gate, LogId};

use crate::coordinator::Commit;
use crate::offsets::CommittedOffset;
use crate::transaction_account::{Account, more_bytes};
use crate::transaction_pieces::{Addition, Change, FoundPiece, Pieces, Whole};
use crate::transaction_record::key_of;
use crate::weight;

/// Transactional ids at most.
const IDS_MAX: usize = 1_000_000;
/// From here on an epoch is not raised any more: the id gets a new producer id.
const EPOCH_LAST: i16 = i16::MAX - 1;
/// Twice the bytes of a log in the record of a transaction.
const RECORDED_LOG: usize = 16;

/// Limits of the coordinator.
#[derive(Clone, Debug)]
pub struct TransactionSettings {
    /// `transaction.max.timeout.ms`
    pub timeout_max: u64,
    /// `transactional.id.expiration.ms`
    pub id_expiration: u64,
    /// What a transaction has touched is one record: bytes that it may have, at least, and that what it holds may take. A journal takes a record of as many.
    pub record_bytes_max: usize,
}

/// Which rules a client follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Logs are added by request; the epoch stays when a transaction ends.
    V1,
    /// Logs are added by what is written; the epoch rises when a transaction ends (KIP-890).
    V2,
}

/// Why the coordinator refuses; each stands for one error code of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TransactionError {
    #[error("the empty text is no transactional id")]
    InvalidId,
    #[error("transaction time-out is outside the allowed range")]
    InvalidTimeout,
    #[error("a newer producer has this transactional id")]
    Fenced,
    #[error("producer id does not belong to this transactional id")]
    UnknownProducer,
    #[error("another transaction under this id is ending")]
    Concurrent,
    #[error("transaction is not in a state for this")]
    InvalidState,
    #[error("there are as many transactional ids as allowed")]
    TooMany,
    #[error("transactions take as much memory as they may")]
    NoMemory,
    #[error("transaction touches more than its record may name")]
    TooMuch,
}

/// Where a transactional id stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in the protocol")]
pub enum TransactionState {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

impl TransactionState {
    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    fn ending(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::PrepareAbort)
    }
}

/// Offsets that take effect when the transaction commits, by topic and partition.
pub(crate) type PendingOffsets = BTreeMap<(String, u32), CommittedOffset>;

/// A producer: its id and epoch.
pub type ProducerEpoch = (i64, i16);

/// Who claims to write under a transactional id.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Transactional id.
    pub id: &'a str,
    /// As whom.
    pub producer: ProducerEpoch,
}

/// One transactional id.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Who writes under it.
    pub producer: ProducerEpoch,
    /// Who did before the last change of producer id or epoch that a client may not have heard of.
    pub previous: Option<ProducerEpoch>,
    /// Longest time from the first to the last, in ms.
    pub timeout: u64,
    /// Where it stands.
    pub state: TransactionState,
    /// When the transaction under way began; ms since 1970.
    pub started: u64,
    /// When anything last changed; ms since 1970.
    pub updated: u64,
    /// What it has written to.
    pub logs: BTreeSet<LogId>,
    /// What it will commit for groups; a group may have nothing yet.
    pub offsets: BTreeMap<String, PendingOffsets>,
    /// While it ends: the epoch of the markers.
    pub marker_epoch: i16,
    /// Whom appends of the transaction under way ask.
    pub gate: Arc<Gate>,
    /// Bytes of memory that `offsets` take, about.
    pub(crate) offset_bytes: usize,
    /// Bytes of memory by which it is in the account, about.
    pub(crate) counted: usize,
    pub(crate) pieces: Pieces,
}

/// A record to be made durable.
pub type TransactionRecord = (Bytes, Option<Bytes>);

/// A transaction that ends. The steps, each durable before the next: `prepare`; the markers in `logs`; `complete`
/// with the offsets; then [`TransactionCoordinator::complete`].
#[derive(Clone, Debug)]
pub struct Ending {
    /// Transactional id.
    pub id: String,
    /// Or abort.
    pub commit: bool,
    /// Of the markers.
    pub producer: ProducerEpoch,
    /// Where markers go.
    pub logs: Vec<LogId>,
    /// What takes effect, by group; nothing for an abort.
    pub offsets: Vec<(String, Commit)>,
    /// The decision.
    pub prepare: TransactionRecord,
    /// Keys of records that go with it: it says what they say.
    pub unneeded: Vec<Bytes>,
    /// That it is done.
    pub complete: TransactionRecord,
}

/// A log holds records of a transaction without a marker.
#[derive(Clone, Copy, Debug)]
pub struct FoundOpen {
    /// The log.
    pub log: LogId,
    /// Whose.
    pub producer_id: i64,
    /// Of the first of them; ms since 1970.
    pub since: u64,
}

/// What initialisation came to.
#[derive(Debug)]
pub enum Initialised {
    /// Once the record is durable.
    Granted(ProducerEpoch, TransactionRecord),
    /// As before; nothing to be made durable.
    Unchanged(ProducerEpoch),
    /// A transaction is in the way and is aborted; the client comes again.
    Aborting(Box<Ending>),
}

/// What the end of a transaction came to.
#[derive(Debug)]
pub enum Ended {
    /// It had ended so before.
    Already(ProducerEpoch),
    /// Once the steps are done; the producer that goes on.
    Ending(Box<Ending>, ProducerEpoch),
}

/// All transactional ids of a node.
pub struct TransactionCoordinator {
    settings: TransactionSettings,
    by_id: HashMap<Arc<str>, Transaction>,
    /// The same ids in order: so they can be looked through in pieces.
    ids: BTreeSet<Arc<str>>,
    /// Ids by the groups for which they hold offsets.
    by_group: HashMap<String, BTreeSet<String>>,
    deadlines: BTreeSet<(u64, String)>,
    account: Account,
    /// At a start.
    found: BTreeMap<(String, u32), FoundPiece>,
}

impl TransactionCoordinator {
    /// No ids yet.
    pub fn new(settings: TransactionSettings) -> Self {
        let (by_id, by_group) = (HashMap::new(), HashMap::new());
        Self {
            settings,
            by_id,
            ids: BTreeSet::new(),
            by_group,
            deadlines: BTreeSet::new(),
            account: Account::default(),
            found: BTreeMap::new(),
        }
    }

    /// Puts a record back at start; false when it is none of ours. Then come [`Self::restored`], [`Self::found_open`], [`Self::unfinished`] and
    /// [`Self::handle_timeouts`].
    pub fn restore(&mut self, key: &[u8], value: &[u8]) -> bool {
        if let Some(piece) = crate::transaction_pieces::decode(key, value) {
            self.found.insert((piece.id.clone(), piece.number), piece);
            return true;
        }
        let Some((id, transaction)) = crate::transaction_record::decode(key, value) else { return false };
        if transaction.state == TransactionState::Ongoing {
            self.deadlines.insert((transaction.started + transaction.timeout, id.clone()));
        }
        for group in transaction.offsets.keys() {
            self.by_group.entry(group.clone()).or_default().insert(id.clone());
        }
        self.enter(&id, transaction);
        true
    }

    /// All records are back. The keys of those that are not needed any more.
    pub fn restored(&mut self) -> Vec<Bytes> {
        let (mut unneeded, mut changed) = (Vec::new(), BTreeSet::new());
        for ((id, _), piece) in std::mem::take(&mut self.found) {
            let key = piece.key();
            if self.by_id.get_mut(id.as_str()).is_some_and(|known| known.take_piece(piece)) {
                changed.insert(id);
            } else {
                unneeded.push(key);
            }
        }
        for id in changed {
            if let Some(known) = self.by_id.get_mut(id.as_str()) {
                known.offset_bytes = weight::offsets_of_transaction(&id, &known.offsets);
                for group in known.offsets.keys() {
                    self.by_group.entry(group.clone()).or_default().insert(id.clone());
                }
            }
            self.recount(&id);
        }
        unneeded
    }

    /// A whole record is durable. The keys of records that are not needed any more.
    pub fn written(&mut self, whole: &Whole) -> Vec<Bytes> {
        self.by_id.get_mut(whole.id()).map_or_else(Vec::new, |known| known.written(whole))
    }

    fn enter(&mut self, id: &str, transaction: Transaction) {
        let id: Arc<str> = id.into();
        match self.by_id.insert(Arc::clone(&id), transaction) {
            None => _ = self.ids.insert(Arc::clone(&id)),
            Some(before) => self.account.bytes -= before.counted,
        }
        self.recount(&id);
    }

    /// At start: what logs hold of transactions without a marker. That tells more than the record of the id, which is not written
    /// for every log that is added. Returns the producers that no id has.
    pub fn found_open(&mut self, found: impl IntoIterator<Item = FoundOpen>) -> BTreeSet<i64> {
        let mut by_writer: HashMap<i64, (&Arc<str>, &mut Transaction)> =
            self.by_id.iter_mut().map(|(id, known)| (known.writer(), (id, known))).collect();
        let mut of_nobody = BTreeSet::new();
        for FoundOpen { log, producer_id, since } in found {
            let Some((id, known)) = by_writer.get_mut(&producer_id) else {
                of_nobody.insert(producer_id);
                continue;
            };
            known.logs.insert(log);
            if !known.state.ending() && known.begin(since) {
                self.deadlines.insert((since + known.timeout, id.to_string()));
            }
            self.account.recount(id, known);
        }
        of_nobody
    }

    /// Transactions whose end was decided before a restart.
    pub fn unfinished(&self) -> Vec<Ending> {
        let ending = self.by_id.iter().filter(|(_, transaction)| transaction.state.ending());
        ending.map(|(id, transaction)| transaction.ending(id)).collect()
    }

    /// Does initialisation of this id take a new producer id?
    pub fn wants_producer_id(&self, id: &str) -> bool {
        self.by_id.get(id).is_none_or(|known| known.producer.1 >= EPOCH_LAST)
    }

    /// A producer begins, or begins anew when it says who it was. `fresh`: a new producer id, if one [is wanted](Self::wants_producer_id).
    ///
    /// # Errors
    /// `InvalidTimeout`, `Fenced`, `Concurrent`, `TooMany`, `NoMemory`.
    pub fn init(
        &mut self,
        id: &str,
        timeout: i32,
        expected: Option<ProducerEpoch>,
        fresh: Option<i64>,
        now: u64,
    ) -> Result<Initialised, TransactionError> {
        let timeout = u64::try_from(timeout).ok().filter(|timeout| (1..=self.settings.timeout_max).contains(timeout));
        let timeout = timeout.ok_or(TransactionError::InvalidTimeout)?;
        let Some(known) = self.by_id.get_mut(id) else {
            if self.by_id.len() >= IDS_MAX {
                return Err(TransactionError::TooMany);
            }
            let producer = (fresh.ok_or(TransactionError::Concurrent)?, 0);
            let transaction = Transaction::new(producer, timeout, now);
            self.account.check_new(weight::transaction(id, &transaction))?;
            let record = transaction.record(id);
            self.enter(id, transaction);
            return Ok(Initialised::Granted(producer, record));
        };
        let again = match expected {
            Some(expected) if expected == known.producer => false,
            Some(expected) if Some(expected) == known.previous => true,
            Some(_) => return Err(TransactionError::Fenced),
            None => false,
        };
        match known.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => Err(TransactionError::Concurrent),
            TransactionState::Ongoing => {
                let ending = known.fence(id, now);
                self.unschedule(id);
                Ok(Initialised::Aborting(Box::new(ending)))
            }
            _ if again => Ok(Initialised::Unchanged(known.producer)),
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort => {
                let (producer_id, epoch) = known.producer;
                let next = if epoch >= EPOCH_LAST {
                    (fresh.ok_or(TransactionError::Concurrent)?, 0)
                } else {
                    (producer_id, epoch + 1)
                };
                known.previous = expected;
                known.producer = next;
                (known.timeout, known.state, known.updated) = (timeout, TransactionState::Empty, now);
                Ok(Initialised::Granted(next, known.record(id)))
            }
        }
    }

    /// The id, if this producer may write under it and nothing is ending.
    fn of(&mut self, Claim { id, producer }: Claim<'_>) -> Result<&mut Transaction, TransactionError> {
        let known = self.by_id.get_mut(id).ok_or_else(|| unknown(id))?;
        if known.producer.0 != producer.0 {
            return Err(TransactionError::UnknownProducer);
        }
        if known.producer.1 != producer.1 {
            return Err(TransactionError::Fenced);
        }
        if known.state.ending() { Err(TransactionError::Concurrent) } else { Ok(known) }
    }

    /// Adds logs to the transaction, which begins with the first, for a producer that has not written to them yet; a record when
    /// there is anything new.
    ///
    /// # Errors
    /// See [`Self::enter_logs`].
    pub fn add_logs(
        &mut self,
        claim: Claim<'_>,
        logs: impl IntoIterator<Item = LogId>,
        now: u64,
    ) -> Result<Option<Change>, TransactionError> {
        let (_, new, added) = self.take_logs(claim, logs, now)?;
        let known = self.of(claim)?;
        Ok(new.then(|| {
            let piece = known.piece(Addition { logs: &added, group: None });
            known.change(claim.id, piece)
        }))
    }

    /// Adds the logs of what is about to be written; its gate, and whether there is anything new. That needs no record, which would
    /// name all logs for each one that is new: what is written says itself to which transaction it belongs.
    ///
    /// # Errors
    /// `UnknownProducer`, `Fenced`, `Concurrent`, `NoMemory`, `TooMuch`.
    pub fn enter_logs(
        &mut self,
        claim: Claim<'_>,
        logs: impl IntoIterator<Item = LogId>,
        now: u64,
    ) -> Result<(Arc<Gate>, bool), TransactionError> {
        self.take_logs(claim, logs, now).map(|(gate, new, _)| (gate, new))
    }

    /// The same, and what is new.
    fn take_logs(
        &mut self,
        claim: Claim<'_>,
        logs: impl IntoIterator<Item = LogId>,
        now: u64,
    ) -> Result<(Arc<Gate>, bool, Vec<LogId>), TransactionError> {
        let id = claim.id;
        let known = self.of(claim)?;
        let added: Vec<LogId> = logs.into_iter().filter(|log| !known.logs.contains(log)).collect();
        let (holds, held) = (known.record_weight(), weight::held_by_transaction(known));
        self.check_record(holds, added.len() * RECORDED_LOG)?;
        self.account.check_more(held, added.len() * weight::LOG_OF_TRANSACTION)?;
        let known = self.of(claim)?;
        let begins = known.begin(now);
        let new = begins || !added.is_empty();
        known.logs.extend(&added);
        let (gate, deadline) = (Arc::clone(&known.gate), now + known.timeout);
        if begins {
            self.deadlines.insert((deadline, id.to_owned()));
        }
        if new {
            self.recount(id);
        }
        Ok((gate, new, added))
    }

    /// Are these logs part of the transaction under way? Its gate, if so.
    ///
    /// # Errors
    /// `UnknownProducer`, `Fenced`, `Concurrent`; `InvalidState` when not all of them are.
    pub fn verify_logs(
        &mut self,
        claim: Claim<'_>,
        logs: impl IntoIterator<Item = LogId>,
    ) -> Result<Arc<Gate>, TransactionError> {
        let known = self.of(claim)?;
        let all = known.state == TransactionState::Ongoing && logs.into_iter().all(|log| known.logs.contains(&log));
        if all { Ok(Arc::clone(&known.gate)) } else { Err(TransactionError::InvalidState) }
    }

    /// Adds a group to the transaction, which begins with it if it is the first; a record when it is new.
    ///
    /// # Errors
    /// `UnknownProducer`, `Fenced`, `Concurrent`, `NoMemory`, `TooMuch`.
    pub fn add_group(&mut self, claim: Claim<'_>, group: &str, now: u64) -> Result<Option<Change>, TransactionError> {
        let new = self.enter_group(claim, group, now)?;
        let known = self.of(claim)?;
        Ok(new.then(|| {
            let piece = known.piece(Addition { logs: &[], group: Some((group, &[])) });
            known.change(claim.id, piece)
        }))
    }

    /// True: the group is new to the transaction, or the transaction begins with it.
    fn enter_group(&mut self, claim: Claim<'_>, group: &str, now: u64) -> Result<bool, TransactionError> {
        let id = claim.id;
        let known = self.of(claim)?;
        let (new, holds, held) =
            (!known.offsets.contains_key(group), known.record_weight(), weight::held_by_transaction(known));
        let bytes = weight::group_of_transaction(id, group);
        if new {
            self.check_record(holds, bytes)?;
            self.account.check_more(held, bytes)?;
        }
        let known = self.of(claim)?;
        let begins = known.begin(now);
        if new {
            known.offsets.insert(group.to_owned(), PendingOffsets::new());
            known.offset_bytes += bytes;
        }
        let deadline = now + known.timeout;
        if new {
            self.by_group.entry(group.to_owned()).or_default().insert(id.to_owned());
        }
        if begins {
            self.deadlines.insert((deadline, id.to_owned()));
        }
        self.recount(id);
        Ok(begins || new)
    }

    /// Adds offsets that take effect when the transaction commits. With `V2` the group is added by it.
    ///
    /// # Errors
    /// `UnknownProducer`, `Fenced`, `Concurrent`, `NoMemory`, `TooMuch`; `InvalidState` when the group is not part of the transaction.
    pub fn add_offsets(
        &mut self,
        claim: Claim<'_>,
        group: &str,
        commits: Vec<Commit>,
        version: Version,
        now: u64,
    ) -> Result<Change, TransactionError> {
        let known = self.of(claim)?;
        if version == Version::V1 && !(known.state == TransactionState::Ongoing && known.offsets.contains_key(group)) {
            return Err(TransactionError::InvalidState);
        }
        let (more, holds, held) =
            (more_bytes(known.offsets.get(group), &commits), known.record_weight(), weight::held_by_transaction(known));
        self.check_record(holds, more)?;
        self.account.check_more(held, more)?;
        if version == Version::V2 {
            self.enter_group(claim, group, now)?;
        }
        let known = self.of(claim)?;
        let piece = known.piece(Addition { logs: &[], group: Some((group, &commits)) });
        let offsets = known.offsets.get_mut(group).ok_or(TransactionError::InvalidState)?;
        for Commit { topic, partition, offset } in commits {
            known.offset_bytes += weight::offset_of_transaction(&topic, &offset.metadata);
            let name_bytes = topic.len();
            if let Some(before) = offsets.insert((topic, partition), offset) {
                known.offset_bytes -= weight::offset_of_transaction("", &before.metadata) + 2 * name_bytes;
            }
        }
        let change = known.change(claim.id, piece);
        self.recount(claim.id);
        Ok(change)
    }

    /// Does a transaction hold an offset of this group that may take effect?
    pub fn holds_offset(&self, group: &str, topic: &str, partition: u32) -> bool {
        let key = (topic.to_owned(), partition);
        let may_take_effect =
            |id: &String| self.by_id.get(id.as_str()).filter(|known| known.state != TransactionState::PrepareAbort);
        let holds = |id: &String| {
            may_take_effect(id)
                .and_then(|known| known.offsets.get(group))
                .is_some_and(|offsets| offsets.contains_key(&key))
        };
        self.by_group.get(group).is_some_and(|ids| ids.iter().any(holds))
    }

    /// The producer ends its transaction.
    ///
    /// # Errors
    /// `UnknownProducer`, `Fenced`, `Concurrent`; `InvalidState` when there is none, or it has ended otherwise; `TooMuch`: it could be begun with larger segments, and can
    /// be aborted.
    pub fn end(
        &mut self,
        claim: Claim<'_>,
        commit: bool,
        version: Version,
        fresh: Option<i64>,
        now: u64,
    ) -> Result<Ended, TransactionError> {
        let Claim { id, producer } = claim;
        let known = self.by_id.get_mut(id).ok_or_else(|| unknown(id))?;
        let again = version == Version::V2 && known.previous == Some(producer);
        if known.producer.0 != producer.0 && !again {
            return Err(TransactionError::UnknownProducer);
        }
        if known.producer.1 != producer.1 && !again {
            return Err(TransactionError::Fenced);
        }
        match (known.state, commit) {
            (TransactionState::PrepareCommit, true) | (TransactionState::PrepareAbort, false) => {
                Err(TransactionError::Concurrent)
            }
            (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false)
                if again || version == Version::V1 =>
            {
                Ok(Ended::Already(known.producer))
            }
            (TransactionState::Ongoing, true) if !again && known.is_too_much(self.settings.record_bytes_max) => {
                Err(TransactionError::TooMuch)
            }
            (TransactionState::Ongoing, _) if !again => {
                let ending = known.end(id, commit, version, fresh, now)?;
                let next = known.producer;
                self.unschedule(id);
                Ok(Ended::Ending(Box::new(ending), next))
            }
            // A producer that has met an error raises its epoch by an abort, whether or not anything was written.
            (TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort, false)
                if !again && version == Version::V2 =>
            {
                let ending = known.end(id, false, version, fresh, now)?;
                Ok(Ended::Ending(Box::new(ending), known.producer))
            }
            _ => Err(TransactionError::InvalidState),
        }
    }

    /// All steps of an ending are done.
    pub fn complete(&mut self, id: &str) {
        if let Some(known) = self.by_id.get_mut(id)
            && known.state.ending()
        {
            for group in known.offsets.keys() {
                if let Some(ids) = self.by_group.get_mut(group) {
                    ids.remove(id);
                    if ids.is_empty() {
                        self.by_group.remove(group);
                    }
                }
            }
            known.finish();
            self.recount(id);
        }
    }

    /// When [`Self::handle_timeouts`] is due.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Aborts what is open for too long.
    pub fn handle_timeouts(&mut self, now: u64) -> Vec<Ending> {
        let mut endings = Vec::new();
        while let Some((_, id)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now).cloned() {
            self.deadlines.pop_first();
            if let Some(known) =
                self.by_id.get_mut(id.as_str()).filter(|known| known.state == TransactionState::Ongoing)
            {
                endings.push(known.fence(&id, now));
            }
        }
        endings
    }

    /// Looks at most at so many ids, those behind `after`, and forgets those that have not been used for long. Returns the keys to be removed,
    /// and the id behind which to go on; `None` when all were looked at.
    pub fn expire(&mut self, now: u64, after: Option<&str>, most: usize) -> (Vec<Bytes>, Option<Arc<str>>) {
        let before = now.saturating_sub(self.settings.id_expiration);
        let unused = |known: &Transaction| {
            known.updated <= before && !known.state.ending() && known.state != TransactionState::Ongoing
        };
        let looked_at: Vec<Arc<str>> = self.ids_after(after).take(most).cloned().collect();
        let mut keys = Vec::new();
        for id in &looked_at {
            if self.by_id.get(id).is_none_or(unused) {
                keys.push(key_of(id));
                self.account.bytes -= self.by_id.remove(id).map_or(0, |known| known.counted);
                self.ids.remove(id);
            }
        }
        let last = looked_at.into_iter().next_back();
        let goes_on = last.as_deref().is_some_and(|last| self.ids_after(Some(last)).next().is_some());
        (keys, last.filter(|_| goes_on))
    }

    /// One transactional id.
    pub fn describe(&self, id: &str) -> Option<&Transaction> {
        self.by_id.get(id)
    }

    /// How many transactional ids there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// So many transactional ids at most, those behind `after`, in their order. What is not removed meanwhile is met once by who goes through
    /// all of them in pieces.
    pub fn after(&self, after: Option<&str>, most: usize) -> impl Iterator<Item = (&Arc<str>, &Transaction)> {
        self.ids_after(after).take(most).filter_map(|id| Some((id, self.by_id.get(id)?)))
    }

    fn ids_after(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<str>> {
        self.ids.range::<str, _>((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
    }

    /// Bytes of memory that transactional ids may take with what their transactions hold, about. Beyond them no id is taken that would be
    /// new; transactions of ids that are there have a quarter more. What comes back at a start is taken whatever it takes.
    pub fn set_bytes_max(&mut self, bytes: usize) {
        self.account.bytes_max = bytes;
    }

    /// Bytes of memory that they take, about.
    pub fn bytes(&self) -> usize {
        self.account.bytes
    }

    /// How often something was refused because they take as much as they may.
    pub fn refused_for_memory(&self) -> u64 {
        self.account.refused
    }

    /// A transactional id or its transaction has changed.
    fn recount(&mut self, id: &str) {
        if let Some(known) = self.by_id.get_mut(id) {
            self.account.recount(id, known);
        }
    }

    /// Of a transaction that holds so much and is to hold more. What is nothing more is never too much.
    fn check_record(&self, holds: usize, more: usize) -> Result<(), TransactionError> {
        if more == 0 || holds.saturating_add(more) <= self.settings.record_bytes_max {
            Ok(())
        } else {
            Err(TransactionError::TooMuch)
        }
    }

    fn unschedule(&mut self, id: &str) {
        if let Some(known) = self.by_id.get(id) {
            self.deadlines.remove(&(known.started + known.timeout, id.to_owned()));
        }
    }
}

/// Why an id is not there.
fn unknown(id: &str) -> TransactionError {
    if id.is_empty() { TransactionError::InvalidId } else { TransactionError::UnknownProducer }
}
