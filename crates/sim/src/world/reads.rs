//! Readers: what they get is compared with the model, at random offsets and across every seam: where one place of a log's records ends, an
//! archive object as it was moved or compacted, a segment that was merged, is full or is being written, and the next begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use journal::{ColdWant, Log, Place, Retention, TailRead};
use record::Batches;
use types::{LogId, Offset};

use super::done::Done;
use super::{Coverage, ModelLog, UNKNOWN_BYTES, World, is_compacted, retention};

/// Fetches of one operation.
const FETCHES: u64 = 25;
/// Logs of one fetch, at most.
const LOGS_AT_ONCE: u64 = 3;
/// How many bytes a fetch wants: less than a batch, some, all.
const WANTED_BYTES: [usize; 5] = [1, 700, 5_000, 20_000, 200_000];
/// Which two places the records of one answer came from.
const SEAMS: [(Place, Place, &str); 10] = [
    (Place::Archived, Place::Compacted, "fetches across objects as moved and compacted ones"),
    (Place::Archived, Place::Rewritten, "fetches across objects and merged segments"),
    (Place::Archived, Place::Sealed, "fetches across objects and full segments"),
    (Place::Archived, Place::Open, "fetches across objects and the open segment"),
    (Place::Compacted, Place::Rewritten, "fetches across compacted objects and merged segments"),
    (Place::Compacted, Place::Sealed, "fetches across compacted objects and full segments"),
    (Place::Compacted, Place::Open, "fetches across compacted objects and the open segment"),
    (Place::Rewritten, Place::Sealed, "fetches across merged and full segments"),
    (Place::Rewritten, Place::Open, "fetches across merged segments and the open one"),
    (Place::Sealed, Place::Open, "fetches across full segments and the open one"),
];

/// An answer begins with the batch that holds the offset asked for, or with the next there is; its batches ascend, and none is there twice.
/// Of a log that is not compacted none is missing either but what is done.
pub(super) fn check_answer(id: LogId, from: Offset, next: Offset, bytes: &[u8], done: &Done) -> Result<(), String> {
    let may_miss =
        |missing: std::ops::Range<Offset>| is_compacted(id) || done.has_all(id, missing.start.0..missing.end.0);
    let (mut end, mut first) = (from, true);
    for batch in Batches::new(bytes) {
        let (_, header) = batch.map_err(|error| format!("{id}: {error}"))?;
        let (base, behind) = (header.base(), header.next());
        if behind <= end || !first && base < end {
            return Err(format!("{id}: asked for from {from} on, batch {base}..{behind} comes at {end}"));
        }
        let follows = if first { base <= end } else { base == end };
        if !follows && !may_miss(end..base) {
            return Err(format!(
                "{id}: asked for from {from} on, batch {base}..{behind} comes at {end}, and what lies between is missing"
            ));
        }
        (end, first) = (behind, false);
    }
    if next > end && !may_miss(end..next) {
        return Err(format!(
            "{id}: asked for from {from} on, is to go on at {next}, and what lies behind {end} is missing"
        ));
    }
    if next < end {
        return Err(format!("{id}: asked for from {from} on, is to go on at {next}, and had got up to {end}"));
    }
    Ok(())
}

impl World {
    /// Fetches of one or more logs that begin near where one run ends and the next begins.
    pub(super) fn fetch_at_seams(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        let journal = Arc::clone(&self.running.as_ref().expect("a journal is open between operations").journal);
        let count = 1 + self.random.below(LOGS_AT_ONCE);
        let mut logs = Vec::new();
        for _ in 0..count {
            let id = self.any_log();
            self.look_at_start(id, coverage)?;
            let log = self.log(id);
            let places = journal.places(&log).map_err(|error| format!("{id}: {error}"))?;
            if !places.is_empty() && logs.iter().all(|(other, _): &(Arc<Log>, _)| other.id() != id) {
                logs.push((log, places));
            }
        }
        for _ in 0..FETCHES {
            let max_bytes = WANTED_BYTES[self.random.below(WANTED_BYTES.len() as u64) as usize];
            let wants: Vec<ColdWant> = logs.iter().map(|(log, places)| self.want(log, places, max_bytes)).collect();
            let results = journal.read_cold(&wants, max_bytes);
            for ((want, result), (_, places)) in wants.iter().zip(results).zip(&logs) {
                let id = want.log.id();
                let data = result.map_err(|error| format!("{id} from {}: {error}", want.from))?;
                let bytes = data.slices.concat();
                check_answer(id, want.from, data.next, &bytes, &self.done)?;
                self.saw(id, &bytes)?;
                coverage.add("fetches at seams", 1);
                count_seams(places, want.from, data.next, coverage);
            }
        }
        Ok(())
    }

    fn want(&mut self, log: &Arc<Log>, places: &[(Place, std::ops::Range<Offset>)], max_bytes: usize) -> ColdWant {
        let (start, end) = (log.start().0, log.high_watermark().0);
        let (_, run) = &places[self.random.below(places.len() as u64) as usize];
        let edge = if self.random.one_in(2) { run.start } else { run.end };
        let from = (edge.0 + self.random.below(7)).saturating_sub(3).clamp(start, end - 1);
        let until = if self.random.one_in(8) { from + 1 + self.random.below(20) } else { u64::MAX };
        ColdWant { log: Arc::clone(log), from: Offset(from), until: Offset(until), max_bytes }
    }

    /// The start that readers see never goes back, not even after a crash, and retention takes nothing too early.
    pub(super) fn look_at_start(&mut self, id: LogId, coverage: &mut Coverage) -> Result<(), String> {
        let (log, now) = (self.log(id), self.clock_now());
        let start = log.start().0;
        let model = self.logs.entry(id).or_default();
        if start < model.start {
            return Err(format!("{id}: starts at {start}, and readers had seen it start at {}", model.start));
        }
        if start > model.start && start > model.start_possible {
            coverage.add("starts moved by retention", 1);
            let newest_gone = model.times.range(..start).next_back().map(|(_, at)| now - at);
            let is_short = |model: &ModelLog, bytes: u64| {
                model.sizes.range(start..).map(|(_, size)| size).sum::<u64>() + UNKNOWN_BYTES < bytes
            };
            let too_early = match retention(id) {
                Retention { ms: Some(ms), .. } => newest_gone.is_some_and(|age| age <= ms as i64),
                // What was never acknowledged may be there: it is looked at, if that can be read now.
                Retention { bytes: Some(bytes), .. } if is_short(model, bytes) => {
                    // Readers look at the start, too.
                    model.start = start;
                    self.read_all(id, coverage).is_ok() && is_short(self.logs.entry(id).or_default(), bytes)
                }
                Retention { bytes: Some(_), .. } => false,
                _ => true,
            };
            if too_early {
                return Err(format!(
                    "{id}: starts at {start}, which is more than was to go; the newest that is gone was {newest_gone:?} old"
                ));
            }
        }
        self.logs.entry(id).or_default().start = start;
        Ok(())
    }

    /// Checks what a reader got, and remembers it.
    pub(super) fn saw(&mut self, id: LogId, bytes: &[u8]) -> Result<(), String> {
        if is_compacted(id) {
            let model = self.logs.entry(id).or_default();
            return model.records.saw(bytes).map_err(|failure| format!("{id}: {failure}"));
        }
        for batch in Batches::new(bytes) {
            let (position, header) = batch.map_err(|error| format!("{id}: {error}"))?;
            let whole = &bytes[position..position + header.total_bytes()];
            if !header.control() {
                record::validate_produced(whole, usize::MAX).map_err(|error| format!("{id}: {error}"))?;
            }
            let records = record::records(whole).map_err(|error| format!("{id}: {error}"))?;
            let value = records[0].value.as_ref().ok_or("a record without a value")?;
            let number = if header.control() { number(&value[2..]) } else { number(&value[..8]) };
            let seen = (number, records.len() as u64);
            let base = header.base().0;
            let model = self.logs.entry(id).or_default();
            let other = |known: &BTreeMap<u64, (u64, u64)>| known.get(&base).copied().filter(|known| *known != seen);
            if let Some(known) = other(&model.visible).or_else(|| other(&model.acknowledged)) {
                return Err(format!("{id}: offset {base} was batch {known:?}, now {seen:?}"));
            }
            model.visible.insert(base, seen);
            model.transactions.saw(&header, whole);
            model.sizes.insert(base, whole.len() as u64);
        }
        Ok(())
    }

    /// Reads a log from its start to its end, from the disk or from memory.
    pub(super) fn read_all(&mut self, id: LogId, coverage: &mut Coverage) -> Result<(), String> {
        self.look_at_start(id, coverage)?;
        let log = self.log(id);
        let mut from = log.start();
        let end = log.high_watermark();
        let mut turns = 0;
        self.logs.entry(id).or_default().records.begin();
        while from < end {
            turns += 1;
            let next = self.read_from(&log, from, self.random.clone().one_in(2), coverage)?;
            if next <= from || turns > 100_000 {
                return Err(format!("{id}: no progress at {from}, the log ends at {end}"));
            }
            from = next;
        }
        if is_compacted(id) {
            let model = self.logs.entry(id).or_default();
            let gone = model.records.check(model.start, end.0).map_err(|failure| format!("{id}: {failure}"))?;
            coverage.add("records compacted away", gone);
            return Ok(());
        }
        self.check_order(id, end.0)
    }

    /// Batch ids rise with offsets, except that a retried batch keeps its place; none appears twice.
    pub(super) fn check_order(&self, id: LogId, end: u64) -> Result<(), String> {
        let Some(model) = self.logs.get(&id) else { return Ok(()) };
        let mut seen = std::collections::BTreeSet::new();
        let mut expected = None;
        for (base, (batch, records)) in model.visible.range(model.start..end) {
            if !seen.insert(*batch) && !self.may_be_twice(*batch) {
                return Err(format!("{id}: batch {batch} is there twice"));
            }
            if expected.is_some_and(|expected| expected != *base && !self.done.has_all(id, expected..*base)) {
                return Err(format!("{id}: gap between {expected:?} and {base}"));
            }
            expected = Some(base + records);
        }
        for (base, known) in model.acknowledged.range(model.start..end) {
            if model.visible.get(base) != Some(known) && !self.done.has_all(id, *base..base + known.1) {
                return Err(format!("{id}: acknowledged batch {known:?} at {base} is not readable"));
            }
        }
        Ok(())
    }

    pub(super) fn read_some(&mut self, id: LogId, coverage: &mut Coverage) -> Result<(), String> {
        self.look_at_start(id, coverage)?;
        let log = self.log(id);
        let span = log.high_watermark().since(log.start());
        if span == 0 {
            return Ok(());
        }
        if self.random.one_in(4) {
            return self.fetch_at_seams(coverage);
        }
        let from = log.start().plus(self.random.below(span));
        let cold = self.random.one_in(2);
        self.read_from(&log, from, cold, coverage).map(drop)
    }

    pub(super) fn read_from(
        &mut self,
        log: &Arc<Log>,
        from: Offset,
        cold: bool,
        coverage: &mut Coverage,
    ) -> Result<Offset, String> {
        let journal = Arc::clone(&self.running.as_ref().expect("a journal is open between operations").journal);
        if !cold {
            match journal.read_tail(log, from..Offset(u64::MAX), 20_000, true) {
                TailRead::Data { slices, next, .. } => {
                    coverage.add("reads of the tail", 1);
                    let bytes = slices.concat();
                    check_answer(log.id(), from, next, &bytes, &self.done)?;
                    self.saw(log.id(), &bytes)?;
                    return Ok(next);
                }
                TailRead::OutOfRange => return Err(format!("{}: {from} is out of range", log.id())),
                TailRead::Empty => return Err(format!("{}: {from} is below the end, and there is nothing", log.id())),
                TailRead::Cold => {}
            }
        }
        let want = ColdWant { log: Arc::clone(log), from, until: Offset(u64::MAX), max_bytes: 20_000 };
        let result = journal.read_cold(&[want], 20_000).pop().ok_or("no result")?;
        coverage.add("reads of history", 1);
        match result {
            Ok(data) => {
                let bytes = data.slices.concat();
                check_answer(log.id(), from, data.next, &bytes, &self.done)?;
                self.saw(log.id(), &bytes)?;
                Ok(data.next)
            }
            Err(error) if self.disk.is_dead() => Err(format!("read on a dead disk: {error}")),
            Err(error) => Err(format!("{} from {from}: {error}", log.id())),
        }
    }
}

/// A number written big-endian.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Between which kinds of places an answer goes over.
fn count_seams(places: &[(Place, std::ops::Range<Offset>)], from: Offset, next: Offset, coverage: &mut Coverage) {
    let behind = places.partition_point(|(_, run)| run.end <= from);
    let kinds = places[behind..].iter().take_while(|(_, run)| run.start < next).map(|(place, _)| *place);
    let kinds: std::collections::BTreeSet<Place> = kinds.collect();
    for (one, other, what) in SEAMS {
        coverage.add(what, u64::from(kinds.contains(&one) && kinds.contains(&other)));
    }
}
