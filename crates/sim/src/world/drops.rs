//! Logs that end: those that there are have names, and when one ends another takes its name, with an id that none has had. Checked: what ended
//! stays away, what did not end is there with all it had, whenever the machine dies.

use journal::{AppendError, AppendItem, Appended, Journal};
use types::{Durability, LogId};

use super::{Coverage, Waiting, World, durability};
use crate::random::Random;

/// Names of logs that come and go.
const NAMES: usize = 4;
/// Their first id.
const FIRST: u64 = 1001;

/// The logs that come and go.
#[derive(Clone)]
pub(super) struct Drops {
    random: Random,
    next: u64,
    living: Vec<LogId>,
    /// Their end was submitted, and nobody knows whether it is durable.
    ending: Vec<LogId>,
    ended: Vec<LogId>,
}

impl Drops {
    pub fn new(seed: u64) -> Self {
        let living = (FIRST..FIRST + NAMES as u64).map(LogId).collect();
        Self {
            random: Random::new(seed ^ 0xD20B),
            next: FIRST + NAMES as u64,
            living,
            ending: Vec::new(),
            ended: Vec::new(),
        }
    }
}

/// Logs of which batches may be longer than others: nothing is retained or compacted by length.
pub(super) fn may_be_large(id: LogId) -> bool {
    id.0 == 4 || id.0 >= FIRST
}

impl World {
    /// All logs that there are.
    pub(super) fn ids(&self) -> Vec<LogId> {
        (1..=self.made).map(LogId).chain(self.drops.living.iter().copied()).collect()
    }

    /// Any of them.
    pub(super) fn any_log(&mut self) -> LogId {
        let ids = self.ids();
        ids[self.random.below(ids.len() as u64) as usize]
    }

    /// One of them ends, another takes its name.
    pub(super) fn drop_log(&mut self, coverage: &mut Coverage) {
        let name = self.drops.random.below(self.drops.living.len() as u64) as usize;
        let id = self.drops.living[name];
        let log = self.log(id);
        if !self.submit(id.0, AppendItem::Drop { log }, Waiting::Drop(id)) {
            return;
        }
        let new = LogId(self.drops.next);
        self.drops.next += 1;
        self.drops.living[name] = new;
        self.drops.ending.push(id);
        let running = self.running.as_ref().expect("a journal is open between operations");
        running.journal.create_log(new, durability(new));
        coverage.add("logs dropped, and others made", 1);
    }

    pub(super) fn drop_answered(&mut self, id: LogId, result: Result<Appended, AppendError>, coverage: &mut Coverage) {
        match result {
            Ok(_) => {
                self.drops.ending.retain(|ending| *ending != id);
                self.drops.ended.push(id);
            }
            // Nothing of it was placed.
            Err(AppendError::DiskFull | AppendError::NoSegment) => {
                self.drops.ending.retain(|ending| *ending != id);
                self.drops.living.push(id);
            }
            Err(_) => coverage.add("ends of logs refused", 1),
        }
    }

    /// What has ended is not there, and what may have ended is there or not.
    pub(super) fn drops_after_restart(
        &mut self,
        journal: &Journal,
        power_lost: bool,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        for id in std::mem::take(&mut self.drops.ending) {
            let is_there = journal.log(id).is_some();
            coverage.add(if is_there { "logs that had not ended" } else { "logs that had ended unanswered" }, 1);
            if is_there { self.drops.living.push(id) } else { self.drops.ended.push(id) }
        }
        let forgives = |id: LogId| power_lost && durability(id) == Durability::Memory;
        let back: Vec<LogId> = self.drops.ended.iter().copied().filter(|id| journal.log(*id).is_some()).collect();
        for id in back {
            if !forgives(id) {
                return Err(format!("{id} had ended, and is there again"));
            }
            self.drops.ended.retain(|ended| *ended != id);
            self.drops.living.push(id);
        }
        coverage.add("logs that stayed away", self.drops.ended.len() as u64);
        Ok(())
    }
}
