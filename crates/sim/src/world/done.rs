//! Logs of which records behind the start are done, as behind a message of a queue that somebody keeps: these may be gone when segments are
//! rewritten, and no other. What is done stays so, whatever a crash undoes. Checked too: what a client gets of committed records, who goes by
//! what he is told of aborted transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Weak};

use journal::{ColdWant, DoneRecords, Log};
use parking_lot::Mutex;
use record::{Batches, Marker};
use types::{LogId, Offset};

use super::{Coverage, World};
use crate::random::Random;

/// Both of class `fsync`: what a reader sees of them is durable. The second one has transactions.
pub(super) const LOGS: [u64; 2] = [7, 8];
/// Batches of one operation, at most.
const BATCHES_MAX: u64 = 60;
/// One in so many batches among them is kept.
const KEPT: u64 = 20;

/// Offsets that are done.
#[derive(Default)]
struct Offsets(Mutex<BTreeSet<u64>>);

impl DoneRecords for Offsets {
    fn done_within(&self, range: Range<Offset>) -> Vec<Range<Offset>> {
        let mut found: Vec<Range<Offset>> = Vec::new();
        for offset in self.0.lock().range(range.start.0..range.end.0) {
            match found.last_mut() {
                Some(last) if last.end.0 == *offset => last.end = Offset(offset + 1),
                _ => found.push(Offset(*offset)..Offset(offset + 1)),
            }
        }
        found
    }
}

/// What is done of which log.
#[derive(Clone)]
pub(super) struct Done {
    random: Random,
    logs: BTreeMap<LogId, Arc<Offsets>>,
}

impl Done {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0xD04E), logs: LOGS.iter().map(|id| (LogId(*id), Arc::default())).collect() }
    }

    /// The journal is told, or after a start it is not: then only what is gone is gone.
    pub fn tell(&mut self, log: &Log) {
        if self.logs.contains_key(&log.id()) && !self.random.one_in(5) {
            self.tell_again(log);
        }
    }

    /// The journal is told in any case.
    pub fn tell_again(&self, log: &Log) {
        if let Some(offsets) = self.logs.get(&log.id()) {
            let records = Arc::clone(offsets) as Arc<dyn DoneRecords>;
            log.set_done(Some(Arc::downgrade(&records) as Weak<dyn DoneRecords>));
        }
    }

    /// Everything that readers have seen of a log is, but the first batch behind its start.
    pub fn finish_all_but_first(&self, log: &Log, visible: Option<&BTreeMap<u64, (u64, u64)>>) {
        let (Some(offsets), Some(visible)) = (self.logs.get(&log.id()), visible) else { return };
        let range = log.start().0..log.last_stable().0;
        for (base, (_, records)) in visible.range(range).skip(1) {
            offsets.0.lock().extend(*base..base + records);
        }
    }

    /// Is each offset of a range done?
    pub fn has_all(&self, id: LogId, range: Range<u64>) -> bool {
        range.is_empty()
            || self
                .logs
                .get(&id)
                .is_some_and(|offsets| offsets.0.lock().range(range.clone()).count() as u64 == range.end - range.start)
    }
}

impl World {
    /// Some of the batches that readers have seen are done.
    pub(super) fn finish_some(&mut self, coverage: &mut Coverage) {
        let random = &mut self.done.random;
        let id = LogId(LOGS[random.below(LOGS.len() as u64) as usize]);
        let log = self
            .running
            .as_ref()
            .expect("a journal is open between operations")
            .journal
            .log(id)
            .expect("it is always there");
        let (Some(model), Some(offsets)) = (self.logs.get(&id), self.done.logs.get(&id)) else { return };
        let seen: Vec<(u64, u64)> = model
            .visible
            .range(log.start().0..log.last_stable().0)
            .map(|(base, (_, records))| (*base, *records))
            .collect();
        if seen.is_empty() {
            return;
        }
        let from = random.below(seen.len() as u64) as usize;
        let count = 1 + random.below(BATCHES_MAX) as usize;
        for (base, records) in seen.into_iter().skip(from).take(count) {
            if !random.one_in(KEPT) {
                offsets.0.lock().extend(base..base + records);
                coverage.add("batches done behind the start", 1);
            }
        }
        self.running.iter().for_each(|running| running.journal.note_released());
    }

    /// What a client gets that reads committed records, from everywhere it may begin. It takes from each answer the aborted transactions that it is told
    /// of, and leaves out what their producers have written from the first record up to the marker.
    pub(super) fn check_committed(&mut self, id: LogId, coverage: &mut Coverage) -> Result<(), String> {
        if !LOGS.contains(&id.0) {
            return Ok(());
        }
        let (log, journal) =
            (self.log(id), Arc::clone(&self.running.as_ref().expect("a journal is open between operations").journal));
        let model = self.logs.entry(id).or_default();
        let aborted = model.transactions.aborted();
        let (mut at, end) = (log.start(), log.last_stable());
        while at < end {
            let want = ColdWant { log: Arc::clone(&log), from: at, until: end, max_bytes: 20_000 };
            let data = journal
                .read_cold(&[want], 20_000)
                .pop()
                .ok_or("no result")?
                .map_err(|error| format!("{id} from {at}: {error}"))?;
            let mut told = log.aborted_between(at, data.next);
            told.sort_unstable_by_key(|one| std::cmp::Reverse(one.first));
            let (bytes, mut without) = (data.slices.concat(), BTreeSet::new());
            for batch in Batches::new(&bytes) {
                let (position, header) = batch.map_err(|error| format!("{id}: {error}"))?;
                while let Some(one) = told.pop_if(|one| one.first < header.next()) {
                    without.insert(one.producer_id);
                }
                match Marker::of(&header, &bytes[position..position + header.total_bytes()]) {
                    Some(Marker::Abort) => drop(without.remove(&header.producer_id)),
                    Some(Marker::Commit) => {}
                    None if header.transactional() => {
                        let (left_out, base) = (without.contains(&header.producer_id), header.base().0);
                        if left_out != aborted.contains(&base) {
                            return Err(format!(
                                "{id}: batch {base} is left out: {left_out}, by who reads committed records from {at} on"
                            ));
                        }
                        coverage.add("batches read by clients of committed records", 1);
                    }
                    None => {}
                }
            }
            if data.next <= at {
                return Err(format!("{id}: no progress at {at} of committed records, which end at {end}"));
            }
            coverage.add("offsets passed over that are done", u64::from(bytes.is_empty()));
            at = data.next;
        }
        Ok(())
    }
}
