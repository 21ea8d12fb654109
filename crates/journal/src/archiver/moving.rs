//! Keeping the journal within its window: the live runs of the oldest segments go into objects, so that the keeper finds nothing
//! live in these segments and frees them.
//!
//! A log with little in the oldest segments stays there, and is merged with others by rewriting, until it is enough for an
//! object: a small object costs as much to keep track of as a large one. When room in the window is short and nobody has more, less
//! is enough; then the oldest segments are emptied whole, so that none of them has to be rewritten first, for which there may be no room.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use record::Batches;
use types::{LogId, Offset};

use super::{Archiver, ArchiverError, Pending, Turn};
use crate::archive::{Archived, ObjectWriter};
use crate::cold::{ColdWant, ReadError};
use crate::index::{LogRow, SealedIndex};
use crate::log::Log;
use crate::run::Run;
use crate::segments::Segment;
use crate::sweep::Sweep;
use crate::window::Relief;

/// Runs with the segments that hold them.
type PlacedRuns = Vec<(Arc<Segment>, Run)>;

/// Batches gathered for one append, in objects, at least.
const OBJECTS_AT_ONCE: u64 = 4;
/// Of what is read for one append this part is to go into objects: where many logs have a little each, their batches lie so close together that all
/// of the segments is read for whichever of them are gathered, and commits wait for the disk meanwhile.
const READ_SHARE: u64 = 4;
/// A log with less than this part of an object in the oldest segments stays there.
const WORTH_SHARE: u64 = 8;
/// In a hurry a log with less than this part of that does, …
const LITTLE_SHARE: u64 = 16;
/// … unless another one has that much: then this part of it is enough, …
const BESIDE_SHARE: u64 = 4;
/// … or nobody has, in all of the window, or a segment is waited for: then this part of it is.
const LEAST_SHARE: u64 = 16;

/// While nothing can be stored so many logs are tried at once, each with this part of an object at most.
const TRIED_SHARE: u64 = 16;

/// Of so many segments as many as are looked at next, where there are to be fewer: what is live in them is counted anew each time.
const fn fewer_than(segments: usize) -> usize {
    segments - segments.div_ceil(8)
}

/// What a log has in the segments that are to go.
struct Candidate {
    log: Arc<Log>,
    bytes: u64,
    until: Offset,
}

/// What is live in some segments.
struct Live {
    /// That with the most first.
    logs: Vec<Candidate>,
    /// The one that is tried again of those of which the store takes nothing. What it has says nothing of what is enough.
    again: Option<Candidate>,
    /// There is more, which is left to retention.
    left: bool,
    /// There is more, of a log that is being compacted.
    compacting: bool,
    /// There is more, of a log of which the store takes nothing.
    refused: bool,
}

impl Live {
    /// What the log with the most has.
    fn most(&self) -> u64 {
        self.logs.first().map_or(0, |candidate| candidate.bytes)
    }

    /// What those have that have enough.
    fn bytes_of(&self, enough: u64) -> u64 {
        self.logs.iter().map(|candidate| candidate.bytes).filter(|bytes| *bytes >= enough).sum()
    }
}

impl Archiver {
    /// Moves a part of what is beyond the calm mark of the window.
    pub(super) fn move_beyond_window(&mut self) -> Result<Turn, ArchiverError> {
        let outcome = self.move_oldest();
        if !matches!(outcome, Ok(Turn::Waiting)) {
            self.journal.window().set_emptied_below(0);
        }
        outcome
    }

    fn move_oldest(&mut self) -> Result<Turn, ArchiverError> {
        self.passed_over.clear();
        loop {
            let before = self.passed_over.len();
            let turn = self.move_some()?;
            // What has nothing that could be read is in nobody's way.
            if turn != Turn::Idle || self.passed_over.len() == before {
                return Ok(turn);
            }
        }
    }

    fn move_some(&mut self) -> Result<Turn, ArchiverError> {
        self.refused.forget_what_is_gone(&self.journal, self.journal.now_ms());
        let Some(marks) = self.journal.marks() else { return Ok(Turn::Idle) };
        let used = self.journal.used_bytes();
        let Some(excess) = used.checked_sub(marks.calm).filter(|excess| *excess > 0) else {
            self.full = None;
            self.found(Relief::Likely);
            return Ok(Turn::Idle);
        };
        // A segment that is wanted and not granted is all the hurry there is, wherever the marks lie: in a small window they lie closer
        // together than a segment is long.
        let hurried = marks.pressure(used) >= 1.0 || self.journal.window().is_held();
        #[cfg(feature = "planted")]
        let hurried = hurried && (self.journal.planted() != Some(crate::Planted::AwaitHurry) || used > marks.full);
        let sealed = self.journal.segments().sealed();
        let (mut victims, mut freed) = (Vec::new(), 0);
        let mut wanted = excess;
        let (enough, mut live) = loop {
            for (segment, index) in &sealed[victims.len()..] {
                if freed >= wanted {
                    break;
                }
                freed += segment.bytes();
                victims.push(Arc::clone(index));
            }
            let mut live = self.live_in(&victims, hurried)?;
            let keeps_pass = self.full.is_some();
            #[cfg(feature = "planted")]
            let keeps_pass = keeps_pass && self.journal.planted() != Some(crate::Planted::GiveUpWhenFull);
            if hurried && live.logs.is_empty() && live.compacting && !keeps_pass {
                // A pass may end anywhere; what of it is not in the archive yet can be moved then.
                self.give_up_pass();
                live = self.live_in(&victims, hurried)?;
            }
            // Where the oldest segments hold too little of each log, it is looked further.
            let all = victims.len() == sealed.len();
            let enough = self.enough(live.most(), hurried, all, used);
            if !live.logs.is_empty() && live.most() >= enough || !hurried || all {
                break (enough, live);
            }
            wanted *= 2;
        };
        let (left, refused, compacting) = (live.left || !live.logs.is_empty(), live.refused, live.compacting);
        let lengths: Vec<u64> = sealed.iter().map(|(segment, _)| segment.bytes()).collect();
        let enough = self.read_less(&mut victims, &lengths, &mut live, enough, hurried)?;
        if enough < self.journal.config().object_bytes / WORTH_SHARE {
            // What is moved at once is all of some segments rather than something of each.
            while live.bytes_of(enough) > self.room_at_once() {
                let fewer = fewer_than(victims.len());
                let live_in_fewer = self.live_in(&victims[..fewer], hurried)?;
                if live_in_fewer.logs.is_empty() || live_in_fewer.most() < enough {
                    break;
                }
                victims.truncate(fewer);
                live = live_in_fewer;
            }
        }
        live.logs.retain(|candidate| candidate.bytes >= enough);
        self.journal.window().set_emptied_below(if hurried { self.emptied_below(&victims, &live)? } else { 0 });
        // There is room for the one that is tried again, whatever the others have; it is put last, as it may be of no use to try more behind it.
        let worth = live.again.into_iter().chain(live.logs).collect();
        // A segment that somebody holds is not written again.
        drop((sealed, victims));
        let passed_over = self.passed_over.len();
        let mut objects = self.gather(worth)?;
        objects.sort_by_key(|(log, _)| self.refused.has(log.id()));
        if self.passed_over.len() > passed_over {
            return Ok(Turn::Idle);
        }
        if objects.is_empty() {
            if let Some((_, since)) = self.full.as_mut().filter(|_| compacting) {
                // There is space when the pass has given some back.
                *since = self.journal.steady_ms();
                self.found(Relief::Failing);
                return Ok(Turn::Idle);
            }
            self.full = None;
            // What is only left to retention, or for later, will be taken when it has to be.
            self.found(match hurried {
                true if refused => Relief::Failing,
                true if left => Relief::Nothing,
                _ => Relief::Likely,
            });
            return Ok(Turn::Idle);
        }
        let with_aborted = |(log, object): (Arc<Log>, ObjectWriter)| {
            let range = object.base()..object.next();
            let aborted = log.aborted_between(range.start, range.end);
            (object, aborted.into_iter().filter(|aborted| range.contains(&aborted.last)).collect())
        };
        let stored = self.put(objects.into_iter().map(with_aborted).collect(), false);
        if !stored.is_full {
            self.refused_more = stored.failed.iter().any(|(log, _)| !self.refused.has(*log));
            self.refused.note(&stored.failed, stored.made.iter().map(|object| object.log), self.journal.now_ms());
        }
        // On a full disk less would find room, which is what compaction needs.
        self.nothing_stored = stored.made.is_empty() && !stored.is_full;
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::FillWithLittle) {
            self.nothing_stored = stored.made.is_empty();
        }
        if stored.made.is_empty() {
            let is_full = stored.is_full;
            let error = stored.error();
            self.full = is_full.then(|| (error.to_string(), self.journal.steady_ms()));
            return Err(error);
        }
        self.full = None;
        self.found(Relief::Likely);
        let made = stored.made;
        let taken = made.iter().map(|object| object.bytes).sum();
        self.commit(Pending { append: None, made, gone: Vec::new(), passed: Vec::new(), taken });
        Ok(Turn::Waiting)
    }

    /// Leaves out the last of some segments as long as too little of what would be read went into objects. With less of each log a smaller object is
    /// enough; how much is.
    fn read_less(
        &self,
        victims: &mut Vec<Arc<SealedIndex>>,
        lengths: &[u64],
        live: &mut Live,
        mut enough: u64,
        hurried: bool,
    ) -> Result<u64, ArchiverError> {
        // A log that has much of a segment is read for itself.
        let taken = |live: &Live, enough| live.bytes_of(enough).min(self.room_at_once()).max(live.most());
        while victims.len() > 1
            && taken(live, enough).saturating_mul(READ_SHARE) < lengths[..victims.len()].iter().sum()
        {
            let fewer = fewer_than(victims.len());
            let in_fewer = self.live_in(&victims[..fewer], hurried)?;
            let less = enough.min(in_fewer.most() / 2);
            if in_fewer.logs.is_empty() || less < self.journal.config().object_bytes / WORTH_SHARE / LITTLE_SHARE {
                break;
            }
            victims.truncate(fewer);
            (*live, enough) = (in_fewer, less);
        }
        Ok(enough)
    }

    /// What is live in segments that are to go, by log, that with the most first. In a hurry also what retention will soon let go.
    fn live_in(&self, victims: &[Arc<SealedIndex>], hurried: bool) -> Result<Live, ArchiverError> {
        let now = self.journal.now_ms();
        let soon = self.journal.config().retention_check_ms.saturating_mul(2);
        let (mut left, mut compacting, mut refused) = (false, false, false);
        let mut found: HashMap<LogId, Candidate> = HashMap::new();
        for index in victims {
            for row in index.rows()? {
                let Some(log) = self.journal.log(row.log) else { continue };
                if row.next <= log.start().max(log.archived_until()) {
                    continue;
                }
                if self.passed_over.contains(&row.log) {
                    left = true;
                    continue;
                }
                if self.pass.as_ref().is_some_and(|pass| pass.is_of(row.log)) {
                    // One that is refused gives up its pass when it is to be tried again.
                    let waits = self.refused.has(row.log) && self.refused.next([row.log].into_iter(), now).is_none();
                    (refused, compacting) = (refused || waits, compacting || !waits);
                    continue;
                }
                let expires = log
                    .inner()
                    .retention
                    .ms
                    .is_some_and(|ms| ((now - row.last_append).max(0) as u64).saturating_add(soon) > ms);
                if expires && !hurried && !found.contains_key(&row.log) {
                    left = true;
                    continue;
                }
                let candidate = found.entry(row.log).or_insert_with(|| Candidate { log, bytes: 0, until: row.next });
                candidate.bytes += row.bytes;
                candidate.until = row.next;
            }
        }
        let again = self.refused.next(found.keys().copied(), now);
        #[cfg(feature = "planted")]
        let again = if self.journal.planted() == Some(crate::Planted::AwaitIdleRefused) {
            self.refused.next(self.journal.log_ids().into_iter(), now)
        } else {
            again
        };
        let again = again.and_then(|log| found.remove(&log));
        found.retain(|log, _| {
            let is_refused = self.refused.has(*log);
            refused |= is_refused;
            !is_refused
        });
        let mut logs: Vec<Candidate> = found.into_values().collect();
        logs.sort_by_key(|candidate| (std::cmp::Reverse(candidate.bytes), candidate.log.id()));
        Ok(Live { logs, again, left, compacting, refused })
    }

    /// How much of a log is enough for an object, if `most` is what one has; `all`: of all sealed segments. The shorter of room the window is, the
    /// less, if nobody has more.
    fn enough(&self, most: u64, hurried: bool, all: bool, used: u64) -> u64 {
        let worth = self.journal.config().object_bytes / WORTH_SHARE;
        let little = worth / LITTLE_SHARE;
        let is_over = |window| used >= window + window / 2;
        match most {
            _ if most >= worth || !hurried => worth,
            _ if most >= little && !self.journal.window().is_held() => little / BESIDE_SHARE,
            _ if most >= little || most >= little / LEAST_SHARE && all => little / LEAST_SHARE,
            _ if self.journal.config().window_bytes.is_some_and(is_over) => 0,
            _ => little,
        }
    }

    /// The first of some segments that keeps something when the logs in `taken` have nothing left there: those before it are empty then.
    fn emptied_below(&self, victims: &[Arc<SealedIndex>], taken: &Live) -> Result<u64, ArchiverError> {
        let taken: HashSet<LogId> = taken.logs.iter().map(|candidate| candidate.log.id()).collect();
        let mut below = 0;
        for index in victims {
            let stays = |row: &LogRow| {
                let is_live = |log: Arc<Log>| row.next > log.start().max(log.archived_until());
                !taken.contains(&row.log) && self.journal.log(row.log).is_some_and(is_live)
            };
            if index.rows()?.iter().any(stays) {
                break;
            }
            below = index.info().sequence + 1;
        }
        Ok(below)
    }

    /// Bytes of batches that are gathered for one append.
    fn room_at_once(&self) -> u64 {
        let config = self.journal.config();
        config.gather_bytes.max(OBJECTS_AT_ONCE * config.object_bytes)
    }

    /// Reads what some of the candidates have, in the order of the journal, into objects. None: those are passed over that were tried.
    fn gather(&mut self, candidates: Vec<Candidate>) -> Result<Vec<(Arc<Log>, ObjectWriter)>, ArchiverError> {
        let object_bytes = self.journal.config().object_bytes;
        let mut room = self.room_at_once();
        // While nothing can be stored little of many logs is tried.
        let most = if self.nothing_stored { object_bytes / TRIED_SHARE } else { room };
        room = room.min(most.saturating_mul(TRIED_SHARE));
        let mut logs: HashMap<LogId, (Arc<Log>, Vec<ObjectWriter>)> = HashMap::new();
        let (mut runs, mut tried) = (Vec::new(), Vec::new());
        for Candidate { log, until, .. } in candidates {
            if room == 0 {
                break;
            }
            tried.push(log.id());
            // Of one that was refused it is tried with little.
            let own = room.min(if self.refused.has(log.id()) { object_bytes.min(most) } else { most });
            match self.runs_of(&log, until, own) {
                Ok((own, bytes)) => {
                    room = room.saturating_sub(bytes);
                    runs.extend(own);
                    logs.insert(log.id(), (log, Vec::new()));
                }
                // Deleted or trimmed meanwhile.
                Err(ReadError::Gone) => {}
                Err(ReadError::Segment(error)) => {
                    self.journal.note_unreadable(error.file(), None, (log.id(), log.archived_until()), &error)
                }
                Err(error) => tracing::debug!(log = log.id().0, %error, "records cannot be archived"),
            }
        }
        let mut sweep = Sweep::new(runs);
        let mut unreadable = HashSet::new();
        while let Some((run, bytes)) = sweep.next() {
            let Some((log, objects)) = logs.get_mut(&run.log).filter(|_| !unreadable.contains(&run.log)) else {
                continue;
            };
            match bytes {
                Ok(bytes) => self.add_run(log, objects, &run, bytes, object_bytes),
                Err(error) => {
                    // What lies before it can be archived.
                    self.journal.note_unreadable(error.file(), Some(run.position), (run.log, run.base), &error);
                    unreadable.insert(run.log);
                }
            }
        }
        self.journal.metrics().archive_taken_bytes.inc_by(sweep.read_bytes());
        let mut all: Vec<(Arc<Log>, ObjectWriter)> = logs
            .into_values()
            .flat_map(|(log, objects)| objects.into_iter().map(move |object| (Arc::clone(&log), object)))
            .collect();
        all.sort_by_key(|(log, object)| (log.id(), object.base()));
        all.retain(|(_, object)| object.next() > object.base());
        if all.is_empty() {
            self.passed_over.extend(tried);
        }
        Ok(all)
    }

    /// The runs of a log that are not in the archive yet, up to `until`, and their length: at least one, and about `room`.
    pub(super) fn runs_of(&self, log: &Arc<Log>, until: Offset, room: u64) -> Result<(PlacedRuns, u64), ReadError> {
        let from = log.start().max(log.archived_until());
        self.runs_between(log, from, until, room)
    }

    /// The runs of a log from the one that holds `from` on.
    pub(super) fn runs_between(
        &self,
        log: &Arc<Log>,
        from: Offset,
        until: Offset,
        room: u64,
    ) -> Result<(PlacedRuns, u64), ReadError> {
        let (mut runs, mut bytes) = (Vec::new(), 0);
        let want = ColdWant { log: Arc::clone(log), from, until, max_bytes: 0 };
        self.journal.visit_runs(
            &want,
            |_: &Archived| true,
            |segment, run, _| {
                if run.base >= until {
                    return false;
                }
                bytes += u64::from(run.bytes);
                runs.push((Arc::clone(segment), *run));
                bytes < room
            },
        )?;
        Ok((runs, bytes))
    }

    /// Adds the batches of a run that are not in the archive yet to the last object of their log, or to a new one.
    fn add_run(&mut self, log: &Log, objects: &mut Vec<ObjectWriter>, run: &Run, bytes: &[u8], object_bytes: u64) {
        for (position, header) in Batches::new(bytes).map_while(Result::ok) {
            let from = objects.last().map_or(log.archived_until(), ObjectWriter::next);
            if header.next() <= from || header.next() <= log.start() && objects.is_empty() {
                continue;
            }
            if objects.last().is_none_or(|object| object.batch_bytes() >= object_bytes) {
                // Before its first batch nothing may be left, and who begins to read there has to find that out.
                let base = if from > log.start() { from } else { header.base().min(log.start()) };
                objects.push(self.begin_object(run.log, base));
            }
            let batch = &bytes[position..position + header.total_bytes()];
            if let Some(object) = objects.last_mut() {
                object.add(
                    batch,
                    header.next(),
                    header.records_count.max(0) as u32,
                    header.max_timestamp,
                    run.append_time,
                );
            }
        }
    }
}
