//! One journal, its disk, and the model of what it must hold.
//!
//! Checked all the time: a reader sees at every offset the same batch for ever, batches of a log in the order in
//! which they were appended, none twice, nothing that was not appended. Checked after every restart: what was
//! acknowledged is there (class `memory`: unless the power went), offsets have no gaps, terms rise, no
//! term and index name two chunks, and what the journal says of transactions is what their batches say. The oldest of what is
//! written moves into an archive meanwhile, and some logs are compacted: of these a record may be gone of which a newer
//! one is there; of two others what is done behind the start (`world/done.rs`). Checked before every restart: what
//! `mainstem journal verify` reports (`world/start.rs`).

mod absent;
mod backup;
mod clock;
mod damage;
mod done;
mod drops;
mod full;
mod harm;
mod reads;
mod report;
mod rewriting;
mod silent;
mod start;
mod store;
mod ties;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use journal::{
    Append, AppendError, AppendItem, AppendResults, Archiver, Compaction, EventSink, Journal, JournalConfig,
    JournalEvent, Keeper, Log, Planted, ReplyTo, Retention, SegmentLook, Writer,
};
use parking_lot::Mutex;
use record::{BatchBuilder, Marker};
use types::{Clock, ConnectionId, Durability, LogId, Offset, ShardId, Timestamp};

use clock::SimClock;

use crate::archive::SimArchive;
use crate::compacted;
use crate::coverage::Coverage;
use crate::disk::{Faults, SimDisk, SimSubmitter};
use crate::random::Random;
use crate::state::{self, State};
use crate::transactions;

const LOGS: u64 = 12;
/// The others are made while the journal runs.
const LOGS_AT_FIRST: u64 = 10;
/// A log of which the keeper lets go what is more than …
const RETAINED_BY_SIZE: u64 = 1;
const RETAINED_BYTES: u64 = 100_000;
/// … (of which so much may be there without having been acknowledged or read) …
const UNKNOWN_BYTES: u64 = 60_000;
/// … and one of which it lets go what is older than this, one of those that are made late.
const RETAINED_BY_TIME: u64 = 11;
const RETAINED_MS: u64 = 400;
/// Logs that are compacted: of both classes of durability, and one of idempotent producers.
const COMPACTED: [u64; 3] = [5, 9, 10];
const SEGMENT_BYTES: u64 = 256 << 10;
/// Memory for keys of a segment: less than all take.
const STATE_BYTES: usize = 300;
/// Segment files may take so much, …
/// At this choice of an operation the archive begins to take nothing …
const ARCHIVE_RESTS_AT: u64 = 700;
/// … for fewer operations than these.
const ARCHIVE_RESTS_MAX: u64 = 300;
const WINDOW_SEGMENTS: u64 = 6;
/// In some runs segments are longer, for chunks beyond 4 MiB.
const LARGE_SEGMENT_BYTES: u64 = 16 << 20;
/// One in so many runs is one of those …
const LARGE_RUNS: u64 = 25;
/// … and one in so many batches there is as long as this and more.
const LARGE_BATCHES: u64 = 60;
const LARGE_BYTES: u64 = 4_300_000;
/// In one of so many operations an object is gone for a while, in another one more is written than the window holds, in others segments are rewritten behind a record
/// that is kept, or while the process dies.
const BESIDE: u64 = 800;
/// One in so many times that a disk has space again it is filled before.
const FULL_FOR_LONG: u64 = 3;
/// … and objects are about so long, …
const OBJECT_BYTES: u64 = 16 << 10;
/// … or, in one of so many runs, so long.
const LONG_OBJECT_BYTES: u64 = 512 << 10;
const LONG_OBJECTS: u64 = 5;
/// In one of so many runs files come back from older copies.
const AGED: u64 = 8;
/// In one of so many runs stores have no space now and then, or take nothing of several logs.
const SHORT_STORES: u64 = 4;
/// … and compaction notes all keys at once there.
const KEY_BYTES: usize = 1 << 16;
/// In one of so many runs the two journals are backed up together now and then, …
const BACKED_UP: u64 = 4;
/// … before one of so many operations.
const BACKUP: u64 = 500;

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many operations.
    pub operations: u64,
    /// A defect to be found.
    pub planted: Option<Planted>,
}

#[derive(Default)]
struct Sink(Mutex<Vec<(ReplyTo, AppendResults)>>);

impl EventSink for Sink {
    fn deliver(&self, events: &mut Vec<JournalEvent>) {
        for event in events.drain(..) {
            if let JournalEvent::Appended { to, results } = event {
                self.0.lock().push((to, results));
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    InTransaction,
    /// Ends the transaction of this producer.
    End(i64, Marker),
}

/// A batch that was submitted.
#[derive(Clone, Debug)]
struct Sent {
    log: LogId,
    id: u64,
    records: u64,
    producer: Option<(i64, i32)>,
    kind: Kind,
    at: Timestamp,
    bytes: u64,
}

enum Waiting {
    Batch(Sent),
    State { key: u64, value: Option<u64> },
    Trim { log: LogId, to: Offset },
    Tie(u64),
    Drop(LogId),
}

#[derive(Clone, Default)]
struct ModelLog {
    /// What readers saw: first offset of a batch, its id and its records.
    visible: BTreeMap<u64, (u64, u64)>,
    /// What was acknowledged.
    acknowledged: BTreeMap<u64, (u64, u64)>,
    start: u64,
    /// When acknowledged batches were submitted.
    times: BTreeMap<u64, Timestamp>,
    /// Bytes of batches that were acknowledged or read.
    sizes: BTreeMap<u64, u64>,
    /// Trims that may or may not have happened.
    start_possible: u64,
    transactions: transactions::Batches,
    /// Of a compacted log.
    records: compacted::Records,
    next_sequence: i32,
    last: Option<(u64, Sent)>,
}

struct Running {
    journal: Arc<Journal>,
    writer: Writer<SimSubmitter>,
    keeper: Keeper,
    archiver: Archiver,
    sink: Arc<Sink>,
}

struct World {
    name: &'static str,
    random: Random,
    disk: SimDisk,
    archive: SimArchive,
    clock: Arc<SimClock>,
    running: Option<Running>,
    logs: BTreeMap<LogId, ModelLog>,
    state: State,
    /// How often it was, for want of space.
    state_refused: u64,
    trims_refused: u64,
    ties: ties::Ties,
    waiting: BTreeMap<u64, Waiting>,
    /// Batches that were sent again, and when.
    sent_again: BTreeMap<u64, Timestamp>,
    next_token: u64,
    next_id: u64,
    last_term: u32,
    /// Logs that there are; the last of them come late.
    made: u64,
    planted: Option<Planted>,
    watch: window::Watch,
    /// Operations during which the archive takes nothing.
    archive_rests: u64,
    /// Logs that end, and others that take their place.
    drops: drops::Drops,
    /// Records that are done behind the starts of their logs.
    done: done::Done,
    /// What happens at starts, and to the keeper.
    starts: Random,
    /// What happens to rewritings.
    reclaims: Random,
    /// What is not there for a while, and what else is tried beside everything.
    absences: Random,
    segment_bytes: u64,
    has_long_objects: bool,
    /// Its archive is full now and then.
    has_short_store: bool,
    trace: u64,
}

fn durability(log: LogId) -> Durability {
    if log.0.is_multiple_of(3) { Durability::Memory } else { Durability::Fsync }
}

/// What the keeper may let go, in two of the logs; a unit of time is an operation.
fn retention(log: LogId) -> Retention {
    match log.0 {
        RETAINED_BY_SIZE => Retention { ms: None, bytes: Some(RETAINED_BYTES) },
        RETAINED_BY_TIME => Retention { ms: Some(RETAINED_MS), bytes: None },
        _ => Retention::default(),
    }
}

fn is_compacted(log: LogId) -> bool {
    COMPACTED.contains(&log.0)
}

/// At once, whatever is there; a unit of time is an operation.
fn compaction(log: LogId) -> Option<Compaction> {
    let eager = Compaction {
        min_lag_ms: 0,
        max_lag_ms: u64::MAX,
        dirty_ratio: 0.2,
        delete_retention_ms: 100,
        segment_ms: 20,
        segment_bytes: 20_000,
    };
    is_compacted(log).then_some(eager)
}

/// Runs one seed on two journals; the result is a fingerprint of all that happened.
///
/// # Errors
/// What contradicts the model.
pub fn run(seed: u64, options: Options, coverage: &mut Coverage) -> Result<u64, String> {
    let mut worlds = [World::new(seed, "a", options.planted), World::new(seed ^ 0xABCD_EF01, "b", options.planted)];
    for world in &mut worlds {
        if seed % AGED == AGED - 3 {
            world.disk.age(Random::new(seed ^ 0xA6ED));
        }
        world.has_short_store = seed % SHORT_STORES == SHORT_STORES - 1;
        world.open(true, coverage)?;
    }
    let mut order = Random::new(seed ^ 0x55AA);
    let mut backups = (seed % BACKED_UP == BACKED_UP - 1).then(|| Random::new(seed ^ 0xBAC2_0B00));
    for operation in 0..options.operations {
        if let Some(random) = &mut backups
            && random.one_in(BACKUP)
        {
            backup::back_up(&mut worlds, random, coverage)
                .map_err(|failure| format!("operation {operation}: {failure}"))?;
        }
        let world = &mut worlds[order.below(2) as usize];
        let outcome = world.operate(coverage);
        outcome.map_err(|failure| format!("journal {} operation {operation}: {failure}", world.name))?;
    }
    for world in &mut worlds {
        world
            .settle(coverage)
            .and_then(|()| world.crash(true, coverage))
            .map_err(|failure| format!("journal {} at the end: {failure}", world.name))?;
        world.report(coverage);
    }
    Ok(worlds[0].trace ^ worlds[1].trace.rotate_left(1))
}

impl World {
    fn new(seed: u64, name: &'static str, planted: Option<Planted>) -> Self {
        let disk = SimDisk::new(seed ^ 0x1234_5678);
        Self {
            name,
            random: Random::new(seed),
            archive: SimArchive::new(seed ^ 0x0BB1_EC75, &disk),
            disk,
            clock: Arc::new(SimClock(AtomicI64::new(1_000_000))),
            running: None,
            logs: BTreeMap::new(),
            state: State::default(),
            state_refused: 0,
            trims_refused: 0,
            ties: ties::Ties::default(),
            waiting: BTreeMap::new(),
            sent_again: BTreeMap::new(),
            next_token: 1,
            next_id: 1,
            last_term: 0,
            made: LOGS_AT_FIRST,
            planted,
            watch: window::Watch::default(),
            archive_rests: 0,
            drops: drops::Drops::new(seed),
            done: done::Done::new(seed),
            starts: Random::new(seed ^ 0x57A2_7500),
            reclaims: Random::new(seed ^ 0x2EC1_A135),
            absences: Random::new(seed ^ 0xAB5E_4CE5),
            segment_bytes: if seed.is_multiple_of(LARGE_RUNS) { LARGE_SEGMENT_BYTES } else { SEGMENT_BYTES },
            has_long_objects: seed % LONG_OBJECTS == 3,
            has_short_store: false,
            trace: seed,
        }
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x100_0000_01b3).rotate_left(7);
    }

    fn open(&mut self, power_lost: bool, coverage: &mut Coverage) -> Result<(), String> {
        self.disk.revive();
        self.disk.set_faults(Faults::default());
        let config = JournalConfig {
            segment_bytes: self.segment_bytes,
            tail_bytes: 1 << 20,
            cold_bytes: 1 << 20,
            index_bytes: 1 << 18,
            retention_check_ms: 500,
            window_bytes: Some(WINDOW_SEGMENTS * self.segment_bytes),
            // What logs have of the oldest segments is not enough for an object in some runs.
            object_bytes: if self.has_long_objects { LONG_OBJECT_BYTES } else { OBJECT_BYTES },
            archive_check_ms: 50,
            key_bytes: if self.has_short_store { KEY_BYTES } else { 1 },
            producer_expiry_ms: if self.forgets_producers() { silent::EXPIRY_MS } else { u64::MAX >> 1 },
            // One of the two seals segments for their keys alone.
            state_bytes: if self.name == "b" { STATE_BYTES } else { usize::MAX },
            planted: self.planted,
            ..JournalConfig::default()
        };
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let mut start = start::Start {
            disk: &self.disk,
            archive: &self.archive,
            config,
            clock,
            random: &mut self.starts,
            absences: &mut self.absences,
            unmissed: None,
        };
        let opened = damage::open(&mut start, coverage)?;
        let unmissed = start.unmissed;
        let sink = Arc::new(Sink::default());
        opened.journal.add_sink(ShardId(0), Arc::clone(&sink) as Arc<dyn EventSink>);
        let mut running = Running {
            journal: opened.journal,
            writer: opened.writer,
            keeper: opened.keeper,
            archiver: opened.archiver,
            sink,
        };
        let term = running.journal.term().0;
        if term <= self.last_term {
            return Err(format!("term {term} after term {}", self.last_term));
        }
        self.last_term = term;
        self.drops_after_restart(&running.journal, power_lost, coverage)?;
        for id in self.ids() {
            let log = running.journal.create_log(id, durability(id));
            log.set_retention(retention(id));
            log.set_compaction(compaction(id));
            self.done.tell(&log);
        }
        // Nothing is shown before the first chunk of the term is durable.
        for _ in 0..1000 {
            running.writer.step(false);
        }
        let state = running.journal.take_state();
        window::check_lengths(&running.journal, &self.disk)?;
        self.running = Some(running);
        self.watch = window::Watch::of(&self.disk, self.segment_bytes);
        coverage.add("restarts", 1);
        self.check_after_restart(power_lost, coverage)?;
        self.check_ties(&state, power_lost, coverage)?;
        let in_memory =
            |key| state::log_of(key, LOGS_AT_FIRST).is_some_and(|log| durability(log) == Durability::Memory);
        let gone = self.state.check(state, |key| power_lost && in_memory(key))?;
        coverage.add("memory state lost with the power", gone);
        unmissed.map_or(Ok(()), |name| self.check_unmissed(&name, coverage))
    }

    fn check_after_restart(&mut self, power_lost: bool, coverage: &mut Coverage) -> Result<(), String> {
        self.waiting.clear();
        for id in self.ids() {
            let log = self.log(id);
            let (start, end) = (log.start().0, log.high_watermark().0);
            self.look_at_start(id, coverage)?;
            let model = self.logs.entry(id).or_default();
            model.start_possible = start;
            model.last = None;
            let forgives = power_lost && durability(id) == Durability::Memory;
            if forgives {
                let lost = model.acknowledged.split_off(&end).len() as u64;
                coverage.add("memory batches lost with the power", lost);
                model.visible.split_off(&end);
                model.transactions.forget_from(end);
                model.records.forget_from(end);
            }
            let missing = model.acknowledged.iter().next_back().filter(|(base, (_, records))| **base + records > end);
            if let Some((base, (batch, _))) = missing {
                return Err(format!("{id}: acknowledged batch {batch} at {base} is lost, the log ends at {end}"));
            }
            self.read_all(id, coverage)?;
            self.check_committed(id, coverage)?;
            self.logs.entry(id).or_default().transactions.compare(&log)?;
            // A producer goes on after what survived; the easiest is a new one.
            let next_id = self.next_id as i32;
            if let Some(model) = self.logs.get_mut(&id) {
                model.next_sequence = 0;
                model.last = None;
            }
            self.note(u64::from(next_id as u32) ^ end);
        }
        self.next_id += 1_000;
        Ok(())
    }

    fn log(&self, id: LogId) -> Arc<Log> {
        let running = self.running.as_ref().expect("a journal is open between operations");
        running.journal.log(id).expect("logs are created at the start")
    }

    fn operate(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.clock.0.fetch_add(1, Ordering::Relaxed);
        let choice = self.random.below(1000);
        self.note(choice);
        self.archive_rests = self.archive_rests.saturating_sub(1);
        match self.absences.below(BESIDE) {
            0 => self.miss_object(coverage)?,
            1 => self.press_window(coverage)?,
            2 => self.rewrite_beside(rewriting::Harm::KeptRecord, coverage)?,
            3 if self.absences.one_in(2) => self.rewrite_beside(rewriting::Harm::Death, coverage)?,
            3 => self.archive_beside_refused(coverage)?,
            4 if self.has_short_store => self.fill_archive(coverage)?,
            _ => {}
        }
        if choice == ARCHIVE_RESTS_AT {
            // An archive that takes long.
            self.archive_rests = self.random.below(ARCHIVE_RESTS_MAX);
        }
        match choice {
            0..390 => self.append(coverage),
            390..420 => {
                self.tie(coverage);
                // The power goes while what belongs together is being written, and before a flush.
                if self.random.one_in(24) {
                    self.step(coverage)?;
                    self.step(coverage)?;
                    self.crash(true, coverage)?;
                }
            }
            420..449 => self.put_state(),
            449..450 => self.make_log(coverage),
            450..457 => self.trim(),
            457..460 => self.drop_log(coverage),
            460..480 => self.finish_some(coverage),
            480..740 => self.step(coverage)?,
            740..810 => self.archive(coverage),
            810..880 => self.keep(coverage)?,
            880..935 => {
                let id = self.any_log();
                self.read_some(id, coverage)?;
            }
            935..985 => self.drain(coverage)?,
            985..990 => self.harm(coverage)?,
            990..993 => {
                let left = self.segment_bytes / 8 * [0, 4, 7, 12][self.random.below(4) as usize];
                let capacity = Some(self.disk.used() + left);
                self.disk.set_faults(Faults { capacity, ..Faults::default() });
                coverage.add("disks filled", 1);
            }
            993 => self.harm_rewriting(coverage)?,
            994 if self.starts.one_in(FULL_FOR_LONG) => self.go_on_when_full(coverage)?,
            994 => self.disk.set_faults(Faults::default()),
            995..997 => {
                let faults = Faults { write_errors: 4, sync_errors: 3, ..Faults::default() };
                self.disk.set_faults(faults);
                if self.random.one_in(2) {
                    self.drop_log(coverage);
                }
                self.drain(coverage)?;
                (0..3).try_for_each(|_| self.keep(coverage))?;
                let power = self.random.one_in(2);
                self.crash(power, coverage)?;
            }
            _ => {
                let power = self.random.one_in(2);
                self.crash(power, coverage)?;
            }
        }
        if self.disk.is_dead() {
            coverage.add("deaths behind a rename", 1);
            let power = self.random.one_in(2);
            self.crash(power, coverage)?;
        }
        if let Some((term, index)) = self.disk.chunk_named_twice() {
            return Err(format!("term {term} index {index} names two different chunks"));
        }
        self.running.as_ref().map_or(Ok(()), |running| self.watch.look(&running.journal, &self.disk, coverage))
    }

    fn clock_now(&self) -> Timestamp {
        self.clock.now_ms()
    }

    /// False: the queue is full.
    fn submit(&mut self, connection: u64, item: AppendItem, waiting: Waiting) -> bool {
        let token = self.next_token;
        self.next_token += 1;
        let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(connection), token };
        let running = self.running.as_ref().expect("a journal is open between operations");
        // What is tied goes on when the disk is full.
        let take = if matches!(waiting, Waiting::Tie(_)) { Journal::append_from_reserve } else { Journal::append };
        let taken = take(&running.journal, Append { to, items: vec![item], acknowledge: true }).is_ok();
        if taken {
            self.waiting.insert(token, waiting);
        }
        taken
    }

    fn append(&mut self, coverage: &mut Coverage) {
        let id = self.any_log();
        self.append_to(id, coverage);
    }

    fn append_to(&mut self, id: LogId, coverage: &mut Coverage) {
        let log = self.log(id);
        let repeat = self.random.one_in(12);
        let model = self.logs.entry(id).or_default();
        let sent = match model.last.clone() {
            Some((_, sent))
                if repeat && sent.producer.is_some() && self.clock.now_ms() - sent.at < silent::SENT_AGAIN_MS =>
            {
                coverage.add("batches sent again", 1);
                self.sent_again.insert(sent.id, self.clock.now_ms());
                sent
            }
            _ => {
                let mut open: Vec<i64> =
                    log.producers().iter().filter_map(|(producer, _, open)| open.map(|_| *producer)).collect();
                open.sort_unstable();
                let ends = !open.is_empty() && self.random.one_in(6);
                let records = if ends { 1 } else { 1 + self.random.below(5) };
                // Even logs have one idempotent producer per run of the journal.
                let producer = (id.0.is_multiple_of(2) && !ends)
                    .then(|| (i64::from(self.last_term) * 100 + id.0 as i64, model.next_sequence));
                model.next_sequence += if ends { 0 } else { records as i32 };
                let kind = if ends {
                    coverage.add("transactions ended", 1);
                    let marker = if self.random.one_in(2) { Marker::Commit } else { Marker::Abort };
                    Kind::End(open[self.random.below(open.len() as u64) as usize], marker)
                } else if id.0.is_multiple_of(4) {
                    Kind::InTransaction
                } else {
                    Kind::Plain
                };
                self.next_id += 1;
                Sent { log: id, id: self.next_id, records, producer, kind, at: self.clock.now_ms(), bytes: 0 }
            }
        };
        let filler = if self.random.one_in(10) { self.random.below(30_000) } else { self.random.below(1_500) };
        let is_large = self.segment_bytes == LARGE_SEGMENT_BYTES
            && drops::may_be_large(id)
            && sent.bytes == 0
            && self.random.one_in(LARGE_BATCHES);
        // Any length up to twice that, or beyond it.
        let filler = match is_large {
            true if self.absences.one_in(2) => (1 << (15 + self.absences.below(8))) + filler,
            true => LARGE_BYTES + filler,
            false => filler,
        };
        coverage.add("batches beyond 4 MiB", u64::from(filler >= LARGE_BYTES));
        let batch = make_batch(&sent, filler as usize);
        let sent = Sent { bytes: batch.len() as u64, ..sent };
        let header = record::BatchHeader::parse(&batch).expect("the builder makes valid batches");
        self.submit(id.0, AppendItem::Batch { log, bytes: batch, header, gate: None }, Waiting::Batch(sent));
    }

    /// One more log, as when a topic is created.
    fn make_log(&mut self, coverage: &mut Coverage) {
        if let Some(running) = self.running.as_ref().filter(|_| self.made < LOGS) {
            self.made += 1;
            let id = LogId(self.made);
            let log = running.journal.create_log(id, durability(id));
            log.set_retention(retention(id));
            log.set_compaction(compaction(id));
            coverage.add("logs made late", 1);
        }
    }

    fn put_state(&mut self) {
        let key = state::choose(&mut self.random);
        let value = (!self.random.one_in(5)).then(|| self.random.next());
        let log = state::log_of(key, LOGS_AT_FIRST).map(|id| self.log(id));
        let item = self.state.put(key, value, log);
        self.submit(900, item, Waiting::State { key, value });
    }

    fn trim(&mut self) {
        let id = self.any_log();
        let log = self.log(id);
        let span = log.high_watermark().since(log.start());
        let to = log.start().plus(self.random.below(span + 1));
        let model = self.logs.entry(id).or_default();
        model.start_possible = model.start_possible.max(to.0);
        self.submit(id.0, AppendItem::Trim { log, to }, Waiting::Trim { log: id, to });
    }

    fn step(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        if let Some(running) = &mut self.running {
            if running.writer.rests() && self.random.one_in(3) {
                let queued = running.journal.queued_bytes();
                running.writer.commit_here();
                coverage.add("commits on the spot", u64::from(running.journal.queued_bytes() < queued));
            } else {
                running.writer.step(false);
            }
        }
        self.take_answers(coverage)
    }

    fn keep(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        if let Some(running) = &mut self.running {
            running.keeper.step(Duration::ZERO);
            self.disk.end_turn();
            let is_short = |segment: &&SegmentLook| !segment.sealed && segment.bytes < self.segment_bytes;
            let short = running.journal.segments_listed().iter().filter(is_short).count();
            coverage.add("segments of a full disk that are shorter", short as u64);
        }
        coverage.add("keeper turns", 1);
        self.look_for_silent()
    }

    fn archive(&mut self, coverage: &mut Coverage) {
        if self.archive_rests > 0 {
            return;
        }
        if let Some(running) = &mut self.running {
            running.archiver.step();
            self.disk.end_turn();
        }
        coverage.add("archiver turns", 1);
    }

    /// Lets everything that is under way finish.
    fn drain(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        for _ in 0..40 {
            self.step(coverage)?;
            if self.random.one_in(2) {
                self.archive(coverage);
            }
        }
        self.keep(coverage)
    }

    fn take_answers(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        let Some(running) = &self.running else { return Ok(()) };
        let answers = std::mem::take(&mut *running.sink.0.lock());
        for (to, results) in answers {
            let Some(waiting) = self.waiting.remove(&to.token) else {
                return Err(format!("token {} answered twice", to.token));
            };
            let result = results.into_iter().next().ok_or("an answer without a result")?;
            self.note(to.token);
            match (waiting, result) {
                (Waiting::Batch(sent), Ok(appended)) => self.acknowledged(sent, appended, coverage)?,
                (Waiting::State { key, value }, Ok(_)) => self.state.acknowledge(key, value),
                (Waiting::Trim { log, to }, Ok(_)) => {
                    let model = self.logs.entry(log).or_default();
                    model.start = model.start.max(to.0);
                }
                (Waiting::Drop(id), result) => self.drop_answered(id, result, coverage),
                (Waiting::Tie(number), result) => self.tie_answered(number, result.is_ok(), coverage)?,
                (Waiting::State { .. }, Err(AppendError::DiskFull)) => self.state_refused += 1,
                (Waiting::Trim { .. }, Err(AppendError::DiskFull)) => self.trims_refused += 1,
                (_, Err(_)) => coverage.add("appends refused", 1),
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, sent: Sent, appended: journal::Appended, coverage: &mut Coverage) -> Result<(), String> {
        coverage.add(if durability(sent.log) == Durability::Fsync { "fsync batches" } else { "memory batches" }, 1);
        let base = appended.base.0;
        let model = self.logs.entry(sent.log).or_default();
        if appended.duplicate {
            coverage.add("duplicates found", 1);
        }
        let before = model.acknowledged.insert(base, (sent.id, sent.records));
        if before.is_some_and(|(id, _)| id != sent.id) {
            return Err(format!("{}: offset {base} acknowledged for batches {before:?} and {}", sent.log, sent.id));
        }
        if is_compacted(sent.log) {
            model
                .records
                .acknowledge(base, sent.id, sent.records)
                .map_err(|failure| format!("{}: {failure}", sent.log))?;
        }
        if !appended.duplicate {
            model.times.insert(base, sent.at);
            model.sizes.insert(base, sent.bytes);
        }
        model.last = Some((base, sent));
        Ok(())
    }

    fn crash(&mut self, power: bool, coverage: &mut Coverage) -> Result<(), String> {
        self.take_answers(coverage)?;
        if power {
            coverage.add("power losses", 1);
            self.disk.lose_power();
            self.archive.lose_power();
        } else {
            coverage.add("kills", 1);
            self.disk.kill();
        }
        if let Some(running) = self.running.take() {
            self.count(&running, coverage);
        }
        self.open(power, coverage)?;
        // Now and then at once again.
        if self.random.one_in(5) {
            coverage.add("restarts without work between", 1);
            let power = self.random.one_in(2);
            return self.crash(power, coverage);
        }
        Ok(())
    }
}

/// A batch whose first value begins with its id; a marker has it in place of the coordinator's epoch.
fn make_batch(sent: &Sent, filler: usize) -> Bytes {
    if let Kind::End(producer, marker) = sent.kind {
        return marker.batch(producer, 0, sent.id as i32, 1_000);
    }
    let mut builder = BatchBuilder::default();
    if sent.kind == Kind::InTransaction {
        builder = builder.transactional();
    }
    if let Some((producer, sequence)) = sent.producer {
        builder = builder.producer(producer, 0, sequence);
    }
    for record in 0..sent.records {
        let mut value = sent.id.to_be_bytes().to_vec();
        value.resize(8 + filler / sent.records as usize, record as u8);
        let key = is_compacted(sent.log).then(|| compacted::key(sent.id, record).to_be_bytes());
        builder = builder.record(1_000 + record as i64, key.as_ref().map(<[u8; 8]>::as_slice), Some(&value));
    }
    builder.build()
}
