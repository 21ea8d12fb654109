//! The archiver: the background thread of a journal that fills its archive. It moves what lies beyond the journal's window into
//! objects, compacts logs, and deletes objects that are not needed any more. One piece of work at a time, each ended by one append to the
//! journal:
//!
//! ```text
//! objects into the store ── append of their records ── durable ── part of their logs ── what they replace is deleted
//! ```
//!
//! A crash before the records are durable leaves objects that nobody names: they are deleted at the next start, before
//! anything is made, unless one that is named is missing: then somebody may have moved them. A crash after it leaves objects that
//! were replaced: their records, then they, are deleted.

mod compaction;
mod keys;
mod moving;
mod refused;
mod rules;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use types::{ConnectionId, LogId, Offset, ShardId, Timestamp};

use crate::append::{Append, AppendError, AppendItem, AppendResults, ReplyTo};
use crate::archive::{self, Archived, ObjectWriter, Put};
use crate::cold::ReadError;
use crate::journal::Journal;
use crate::log::Log;
use crate::segments::SegmentError;
use crate::transactions::AbortedTransaction;
use crate::window::Relief;

/// Under which it appends.
pub(crate) const SHARD: ShardId = ShardId(58);
/// After work that nothing waits for it rests this many times as long as the work took.
const REST: u32 = 3;
/// Longest rest at once, so that a shutdown is not kept waiting.
const REST_MAX: Duration = Duration::from_millis(500);
/// Wait for the outcome of an append, before it is looked at whether it has come.
const PATIENCE: Duration = Duration::from_millis(100);
/// After an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// After one that is about logs of which it was not known.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);
/// For so long what there is of a full store is left to compaction, in ms: then it is looked whether more can be moved.
const FULL_MS: u64 = 10_000;
/// Until a store is looked through again that could not be, in ms.
const LIST_AGAIN_MS: i64 = 60_000;
/// So many objects that could not be deleted, and still cannot, are tried at once; of so many it is logged.
const FAILURES_MAX: usize = 16;
/// A log that could not be compacted is left alone for so long, at least.
const FAILED_REST_MS: i64 = 60_000;
/// Records in one append.
const RECORDS_MAX: usize = 1000;
/// Niceness of its thread: readers of history and it are to use what others leave.
const NICE: i32 = 10;

/// Why archiving failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiverError {
    #[error("archive store: {0}")]
    Store(#[from] io::Error),
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("log {log}, batch at offset {offset} cannot be compacted: {what}")]
    Batch { log: LogId, offset: Offset, what: String },
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There is nothing to do.
    Idle,
    /// An append is under way.
    Waiting,
    /// Something was done, and there may be more.
    Worked,
    Failed,
}

/// Objects whose records are on their way.
struct Pending {
    /// Not taken by the journal yet.
    append: Option<Append>,
    made: Vec<Arc<Archived>>,
    /// Their records are deleted with it.
    gone: Vec<Arc<Archived>>,
    /// Logs whose objects up to an offset go, because the start has passed them.
    passed: Vec<(Arc<Log>, Offset)>,
    /// What of it lay in segments.
    taken: u64,
}

/// The thread of normal priority: it works on an archiver that it is given while room is short, and gives it back.
fn spawn_hurried(borrow: Receiver<Archiver>, give_back: SyncSender<Archiver>) -> bool {
    let name = std::thread::current().name().map_or_else(|| "archiver".to_owned(), |name| format!("{name}-now"));
    let spawned = std::thread::Builder::new().name(name).spawn(move || {
        while let Ok(mut archiver) = borrow.recv() {
            archiver.run_while(|journal| journal.pressure() >= 0.5);
            if give_back.send(archiver).is_err() {
                return;
            }
        }
    });
    if let Err(error) = &spawned {
        tracing::warn!(%error, "no thread for archiving in a hurry: it goes on at low priority");
    }
    spawned.is_ok()
}

/// What became of objects that were put into the store.
#[derive(Default)]
struct Stored {
    /// To be entered into their logs.
    made: Vec<Arc<Archived>>,
    /// Logs of which one could not be stored, and why.
    failed: Vec<(LogId, io::Error)>,
    /// There is no space.
    is_full: bool,
}

impl Stored {
    /// Why nothing was stored.
    fn error(self) -> ArchiverError {
        let nothing = || io::Error::other("nothing was stored");
        self.failed.into_iter().next().map_or_else(nothing, |(_, error)| error).into()
    }
}

/// Objects that could not be deleted: they are tried again now and then, and hold up nothing.
#[derive(Default)]
struct Undeleted {
    names: VecDeque<String>,
    tried: Timestamp,
}

/// The thread's work. `step` is called by it, or by a simulator.
pub struct Archiver {
    journal: Arc<Journal>,
    pending: Option<Pending>,
    /// Objects without a record, to be deleted when no reader has them.
    retired: Vec<Arc<Archived>>,
    undeleted: Undeleted,
    /// Logs of which nothing could be read in this turn.
    passed_over: HashSet<LogId>,
    /// Logs of which the store takes nothing.
    refused: refused::Refused,
    /// Of the last object made in this term.
    counter: u32,
    /// Nothing that a crash left is in the store any more.
    tidy: bool,
    /// Why the store could not be looked through, and when that was.
    untidy: Option<(String, Timestamp)>,
    /// A log that is being compacted.
    pass: Option<compaction::Pass>,
    /// Logs that have been lately, or that failed; until when they are left alone.
    resting: HashMap<LogId, Timestamp>,
    /// Between which offsets a log was compacted last: if these are the same again, nothing can come of it.
    compacted: HashMap<LogId, (Offset, Offset)>,
    /// When no log was found that wants compaction.
    looked: Option<Timestamp>,
    failed: Option<String>,
    /// Of what was put last nothing was stored, and not for want of space.
    nothing_stored: bool,
    /// Some of the logs of which the store takes nothing are known only now: others may be next.
    refused_more: bool,
    /// Nothing more could be moved, as the store has no space: what it says, and since when on the steady clock.
    full: Option<(String, u64)>,
    /// The journal had no room for the archive's records.
    shut_out: bool,
    /// What was last told to be wrong.
    trouble: Option<String>,
}

impl Archiver {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self {
            journal,
            pending: None,
            retired: Vec::new(),
            undeleted: Undeleted::default(),
            passed_over: HashSet::new(),
            refused: refused::Refused::default(),
            counter: 0,
            tidy: false,
            untidy: None,
            pass: None,
            resting: HashMap::new(),
            compacted: HashMap::new(),
            looked: None,
            failed: None,
            nothing_stored: false,
            refused_more: false,
            full: None,
            shut_out: false,
            trouble: None,
        }
    }

    /// Runs until the journal is shut down: on a thread of low priority, and while the window is short of room, on one of normal
    /// priority. A thread that has lowered its priority may not raise it again.
    pub fn run(self) {
        let (lend, borrow) = std::sync::mpsc::sync_channel::<Self>(1);
        let (give_back, returned) = std::sync::mpsc::sync_channel::<Self>(1);
        let hurries = self.journal.marks().is_some() && spawn_hurried(borrow, give_back);
        // SAFETY: a system call without pointers; 0 names the calling thread, and lowering needs no privilege.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        let mut archiver = self;
        loop {
            archiver.run_while(|journal| !hurries || journal.pressure() < 1.0);
            if archiver.journal.is_shutting_down() || lend.send(archiver).is_err() {
                return;
            }
            let Ok(back) = returned.recv() else { return };
            archiver = back;
        }
    }

    /// Works as long as it is so, and the journal is not shut down.
    fn run_while(&mut self, so: impl Fn(&Journal) -> bool) {
        let check = Duration::from_millis(self.journal.config().archive_check_ms);
        let (mut wait, mut busy) = (Duration::ZERO, Duration::ZERO);
        while so(&self.journal) && !self.journal.is_shutting_down() {
            let results = self.journal.take_archiver_inbox(wait).results;
            // It may have ceased to be so while this waited: what is to be done now is another thread's.
            if results.is_none() && !so(&self.journal) {
                return;
            }
            let began = Instant::now();
            let turn = self.turn(results);
            busy += began.elapsed();
            wait = match turn {
                Turn::Idle => check,
                Turn::Waiting => PATIENCE,
                Turn::Worked => {
                    let rest = std::mem::take(&mut busy) * REST;
                    std::thread::sleep(rest.mul_f64(1.0 - self.journal.pressure()).min(REST_MAX));
                    Duration::ZERO
                }
                Turn::Failed => {
                    std::thread::sleep(if self.refused_more { AFTER_REFUSAL } else { AFTER_ERROR });
                    Duration::ZERO
                }
            };
        }
    }

    /// One piece of work, if there is any. True when there may be more.
    pub fn step(&mut self) -> bool {
        let results = self.journal.take_archiver_inbox(Duration::ZERO).results;
        self.turn(results) != Turn::Idle
    }

    fn turn(&mut self, results: Option<AppendResults>) -> Turn {
        if self.journal.has_stopped() {
            return Turn::Idle;
        }
        let outcome = self.advance(results);
        self.tell_trouble(outcome.as_ref().err());
        match outcome {
            Ok(turn) => {
                self.failed.take_if(|_| self.full.is_none());
                self.journal.metrics().archive_idle.inc_by(u64::from(turn == Turn::Idle));
                turn
            }
            Err(error) => {
                let text = error.to_string();
                if self.failed.as_ref() != Some(&text) {
                    tracing::warn!(journal = self.journal.number(), %error, "archiving failed, will be tried again");
                }
                self.failed = Some(text);
                self.found(Relief::Failing);
                Turn::Failed
            }
        }
    }

    /// Tells those who look on what is wrong, when that has changed.
    fn tell_trouble(&mut self, error: Option<&ArchiverError>) {
        let unlisted = || self.untidy.as_ref().map(|(error, _)| format!("the archive cannot be listed: {error}"));
        let left = || self.undeleted.names.front().map(|name| format!("{name} cannot be deleted")).or_else(unlisted);
        let failing = error.map(ToString::to_string).or_else(|| self.full.as_ref().map(|(error, _)| error.clone()));
        let trouble =
            failing.map(|error| format!("archiving fails: {error}")).or_else(|| self.refused.told()).or_else(left);
        if self.trouble != trouble {
            self.journal.set_archive_trouble(trouble.clone());
            self.trouble = trouble;
        }
    }

    /// Tells the keeper whether archiving helps it.
    fn found(&self, relief: Relief) {
        if self.journal.window().set_relief(relief) {
            self.journal.wake_keeper(false);
        }
    }

    fn advance(&mut self, results: Option<AppendResults>) -> Result<Turn, ArchiverError> {
        if let Some(pending) = self.pending.take() {
            return Ok(self.follow(pending, results));
        }
        if !self.tidy {
            self.tidy_up_if_due();
        }
        self.delete_retired();
        self.delete_undeleted();
        self.shut_out &= self.journal.lacks_segments();
        if self.shut_out {
            return Ok(Turn::Idle);
        }
        if self.delete_leftover() || self.delete_passed() {
            return Ok(Turn::Waiting);
        }
        // What there is of a full store is left to compaction for a while, which gives back more than it takes.
        let is_left = |since: u64| self.journal.steady_ms().saturating_sub(since) < FULL_MS;
        if self.full.as_ref().is_some_and(|(_, since)| is_left(*since)) {
            return self.compact();
        }
        self.refused_more = false;
        match self.move_beyond_window() {
            Ok(Turn::Idle) => self.compact(),
            Err(error) if self.full.as_ref().is_some_and(|(full, _)| *full == error.to_string()) => {
                // What was stored before the space was used up is in its way.
                self.delete_retired();
                self.found(Relief::Failing);
                match self.compact()? {
                    Turn::Idle => Err(error),
                    turn => Ok(turn),
                }
            }
            outcome => outcome,
        }
    }

    /// Looks after an append that was begun.
    fn follow(&mut self, mut pending: Pending, results: Option<AppendResults>) -> Turn {
        if let Some(append) = pending.append.take() {
            pending.append = self.journal.append(append).err();
            self.pending = Some(pending);
            return Turn::Waiting;
        }
        let Some(results) = results else {
            self.pending = Some(pending);
            return Turn::Waiting;
        };
        match results.iter().find_map(|result| result.err()) {
            None => {
                self.settle(pending);
                Turn::Worked
            }
            // Whether the records are there shows the next start.
            Some(AppendError::Stopped) => Turn::Idle,
            Some(error) => {
                tracing::warn!(journal = self.journal.number(), %error, "the journal does not take the archive's records");
                self.shut_out = error == AppendError::NoSegment;
                self.settle_part(pending, &results);
                Turn::Failed
            }
        }
    }

    /// Some of the records are durable.
    fn settle_part(&mut self, pending: Pending, results: &AppendResults) {
        let Pending { append, made, gone, .. } = pending;
        let mut entered = Vec::new();
        for (at, object) in made.into_iter().enumerate() {
            if results.get(at).is_some_and(Result::is_ok) { entered.push(object) } else { self.retire(object) }
        }
        // Of what these do not replace the records are deleted another time.
        let replaced = |object: &Arc<Archived>| {
            entered.iter().any(|new| new.log == object.log && new.base <= object.base && object.next <= new.next)
        };
        let left: Vec<_> = gone.into_iter().filter(|object| !replaced(object)).collect();
        self.journal.archive().leave(left.into_iter().filter(|object| !self.is_live(object)));
        self.settle(Pending { append, made: entered, gone: Vec::new(), passed: Vec::new(), taken: 0 });
    }

    /// Is it part of a log?
    fn is_live(&self, object: &Archived) -> bool {
        self.journal.log(object.log).is_some_and(|log| log.inner().archive.iter().any(|live| live.id == object.id))
    }

    /// The records are durable: what they say is so from now on.
    fn settle(&mut self, pending: Pending) {
        for object in pending.made {
            let cleaned = object.cleaned;
            let entered = match self.journal.log(object.log) {
                Some(log) => {
                    let entered = log.enter_archived(object);
                    if cleaned {
                        self.journal.tell_removals(&log);
                    }
                    entered
                }
                None => Err(object),
            };
            match entered {
                Ok(replaced) => replaced.into_iter().for_each(|object| self.retire(object)),
                Err(object) => self.journal.archive().leave([object]),
            }
        }
        for (log, through) in pending.passed {
            log.forget_archived(through);
        }
        pending.gone.into_iter().for_each(|object| self.retire(object));
        self.journal.window().note_taken(pending.taken);
        self.journal.runs_moved();
    }

    fn retire(&mut self, object: Arc<Archived>) {
        if object.length > 0 && !self.retired.iter().any(|retired| retired.id == object.id) {
            self.retired.push(object);
        }
    }

    /// Deletes objects that are no part of a log, once no reader has them. Who wants none to go may say so between any two.
    fn delete_retired(&mut self) {
        let journal = Arc::clone(&self.journal);
        for object in std::mem::take(&mut self.retired) {
            let holders = journal.archive().holders.lock();
            if *holders > 0 {
                self.retired.push(object);
                continue;
            }
            let number = journal.archive().open.forget(object.id);
            number.into_iter().for_each(|number| journal.cold().forget(number));
            if Arc::strong_count(&object) > 1 {
                self.retired.push(object);
                continue;
            }
            let name = object.name(journal.uuid());
            journal.unreadable_places().forget(&name);
            self.delete(name);
        }
    }

    /// Deletes an object that nobody has; sooner or later.
    fn delete(&mut self, name: String) {
        match self.journal.archive().store.delete(&name) {
            Ok(()) => _ = self.journal.metrics().archive_deletes.inc(),
            Err(error) => {
                if self.undeleted.names.len() < FAILURES_MAX {
                    tracing::warn!(journal = self.journal.number(), name, %error, "an archive object cannot be deleted, that will be tried again");
                }
                self.undeleted.names.push_back(name);
            }
        }
    }

    /// Tries those again that could not be deleted.
    fn delete_undeleted(&mut self) {
        let (now, interval) = (self.journal.now_ms(), self.journal.config().archive_check_ms as i64);
        if self.undeleted.names.is_empty() || (0..interval).contains(&now.saturating_sub(self.undeleted.tried)) {
            return;
        }
        self.undeleted.tried = now;
        let mut failures = 0;
        for _ in 0..self.undeleted.names.len() {
            if failures >= FAILURES_MAX {
                break;
            }
            let Some(name) = self.undeleted.names.pop_front() else { break };
            let holders = self.journal.archive().holders.lock();
            let deleted =
                if *holders > 0 { Ok(false) } else { self.journal.archive().store.delete(&name).map(|()| true) };
            drop(holders);
            match deleted {
                Ok(true) => {
                    self.journal.metrics().archive_deletes.inc();
                    tracing::info!(
                        journal = self.journal.number(),
                        name,
                        "an archive object that could not be deleted is"
                    );
                }
                outcome => {
                    failures += usize::from(outcome.is_err());
                    self.undeleted.names.push_back(name);
                }
            }
        }
    }

    /// A store that cannot be listed, as one folder of it cannot be read, takes objects all the same.
    fn tidy_up_if_due(&mut self) {
        let now = self.journal.now_ms();
        // The clock may go back.
        if self.untidy.as_ref().is_some_and(|(_, tried)| (*tried..tried.saturating_add(LIST_AGAIN_MS)).contains(&now)) {
            return;
        }
        let before = self.untidy.take();
        if let Err(error) = self.tidy_up() {
            let error = error.to_string();
            if before.is_none_or(|(told, _)| told != error) {
                let journal = self.journal.number();
                tracing::warn!(
                    journal,
                    error,
                    "the archive cannot be listed: what a crash has left in it stays for now"
                );
            }
            self.untidy = Some((error, now));
        }
    }

    /// Deletes objects that no record names, which a crash left, and says which are missing. None is being made.
    fn tidy_up(&mut self) -> Result<(), io::Error> {
        let uuid = self.journal.uuid();
        let found: BTreeSet<String> = self.journal.archive().store.list(&uuid.to_string())?.into_iter().collect();
        let leftover = self.journal.archive().take_leftover();
        let mut known: BTreeSet<String> =
            leftover.iter().chain(&self.retired).map(|object| object.name(uuid)).collect();
        self.journal.archive().leave(leftover);
        let mut missing = 0;
        for log in self.logs() {
            for object in log.inner().archive.iter().filter(|object| object.length > 0) {
                let name = object.name(uuid);
                if !found.contains(&name) {
                    missing += 1;
                    self.journal.note_unreadable(
                        &name,
                        None,
                        (object.log, object.base),
                        &"the archive object is missing",
                    );
                }
                known.insert(name);
            }
        }
        let unknown: Vec<&String> = found.difference(&known).filter(|name| archive::is_name(name, uuid)).collect();
        if missing > 0 {
            // Somebody may have moved them: nothing goes.
            let (journal, left) = (self.journal.number(), unknown.len());
            tracing::warn!(journal, missing, left, "archive objects are missing: those that nobody names are left");
        } else {
            for name in unknown {
                tracing::info!(name, "an archive object that the journal does not name is deleted");
                self.delete(name.clone());
            }
        }
        self.tidy = true;
        Ok(())
    }

    /// Deletes the records of objects that are no part of a log. True when there were any.
    fn delete_leftover(&mut self) -> bool {
        let mut gone = self.journal.archive().take_leftover();
        let rest = gone.split_off(gone.len().min(RECORDS_MAX));
        self.journal.archive().leave(rest);
        if gone.is_empty() {
            return false;
        }
        self.commit(Pending { append: None, made: Vec::new(), gone, passed: Vec::new(), taken: 0 });
        true
    }

    /// Deletes the records of objects that the start of their log has passed. True when there were any.
    fn delete_passed(&mut self) -> bool {
        let (mut gone, mut passed) = (Vec::new(), Vec::new());
        for log in self.logs() {
            if gone.len() >= RECORDS_MAX {
                break;
            }
            if log.archived_until() == Offset::ZERO {
                continue;
            }
            let start = log.start();
            let objects = log.inner().archive.through(start).to_vec();
            if let Some(last) = objects.last() {
                passed.push((log, last.next));
                gone.extend(objects);
            }
        }
        if gone.is_empty() {
            return false;
        }
        self.commit(Pending { append: None, made: Vec::new(), gone, passed, taken: 0 });
        true
    }

    /// All logs, by id.
    fn logs(&self) -> Vec<Arc<Log>> {
        let mut logs = self.journal.all_logs();
        logs.sort_unstable_by_key(|log| log.id());
        logs
    }

    /// Appends the records of what was made, and after them the deletion of those of what is gone.
    fn commit(&mut self, mut pending: Pending) {
        let mut items: Vec<AppendItem> = pending
            .made
            .iter()
            .map(|object| AppendItem::State { key: object.key(), value: Some(object.value()) })
            .collect();
        let taken: HashSet<_> = pending.made.iter().map(|object| (object.log, object.base)).collect();
        let gone = pending.gone.iter().filter(|object| !taken.contains(&(object.log, object.base)));
        items.extend(gone.map(|object| AppendItem::State { key: object.key(), value: None }));
        let to = ReplyTo { shard: SHARD, connection: ConnectionId(u64::MAX - 1), token: 0 };
        pending.append = self.journal.append(Append { to, items, acknowledge: true }).err();
        self.pending = Some(pending);
    }

    /// An object in the making, with an id that none has had.
    fn begin_object(&mut self, log: LogId, base: Offset) -> ObjectWriter {
        self.counter += 1;
        let id = u64::from(self.journal.term().0) << 32 | u64::from(self.counter);
        ObjectWriter::new(self.journal.uuid(), log, id, base)
    }

    /// Ends objects, which are in the order of logs and offsets, and puts them into the store, each with the transactions whose markers it holds. Of a log
    /// of which one fails none behind it is kept; where there is no space none is at all.
    fn put(&mut self, objects: Vec<(ObjectWriter, Vec<AbortedTransaction>)>, cleaned: bool) -> Stored {
        let (mut ended, mut to_store) = (Vec::with_capacity(objects.len()), Vec::with_capacity(objects.len()));
        for (object, aborted) in objects {
            let (bytes, mut archived) = object.finish(cleaned, aborted);
            if !cleaned {
                // The object says it; nobody asks its record, which is kept in memory.
                archived.aborted = Vec::new();
            }
            if archived.length > 0 {
                to_store.push((archived.name(self.journal.uuid()), bytes));
            }
            ended.push(Arc::new(archived));
        }
        // A journal that was restored makes names again that were made after the backup.
        self.undeleted.names.retain(|name| to_store.iter().all(|(new, _)| new != name));
        let mut outcomes = self.journal.archive().store.put_all(&to_store).into_iter();
        let mut stored = Stored::default();
        let mut failed = HashSet::new();
        for object in ended {
            let outcome = if object.length > 0 { outcomes.next().unwrap_or(Put::NotTried) } else { Put::Stored };
            if let Put::Failed(error) = outcome {
                if failed.insert(object.log) {
                    stored.failed.push((object.log, error));
                }
            } else if matches!(outcome, Put::NotTried) {
                failed.insert(object.log);
            }
            if failed.contains(&object.log) { self.retire(object) } else { stored.made.push(object) }
        }
        // The last of a full disk is left to compaction, which gives back more than it takes.
        stored.is_full = stored.failed.iter().any(|(_, error)| archive::is_full(error));
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::InsistOnRefused) && !stored.failed.is_empty() {
            stored.is_full = true;
        }
        if stored.is_full {
            stored.made.drain(..).for_each(|object| self.retire(object));
        }
        self.journal
            .metrics()
            .archive_objects
            .inc_by(stored.made.iter().filter(|object| object.length > 0).count() as u64);
        self.journal.metrics().archive_written_bytes.inc_by(stored.made.iter().map(|object| object.length).sum());
        stored
    }
}
