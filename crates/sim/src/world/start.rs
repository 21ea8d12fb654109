//! A start, and what `mainstem journal verify` reports before it about the same files. Checked: verify reports nothing where nobody has damaged
//! anything, whatever a crash has left; what a start refuses is what verify reports; and both find the same logs with the same offsets.

use std::sync::Arc;
use std::time::Duration;

use journal::disk::Storage;
use journal::{Archiver, Journal, JournalConfig, Keeper, OpenError, Opened, Survey, Writer, survey_on};
use parking_lot::Mutex;
use types::{Clock, Offset};

use super::Coverage;
use crate::archive::SimArchive;
use crate::disk::{CHECKPOINT, SimDisk, SimSubmitter};
use crate::random::Random;

/// Steps of the journal's threads before the start says which logs are wanted, at most.
const STEPS_MAX: u64 = 30;

/// What a process starts with.
pub(super) struct Start<'a> {
    pub disk: &'a SimDisk,
    pub archive: &'a SimArchive,
    pub config: JournalConfig,
    pub clock: Arc<dyn Clock>,
    pub random: &'a mut Random,
    pub absences: &'a mut Random,
    /// An object that was gone for a while, and verify has not missed it.
    pub unmissed: Option<String>,
}

struct Threads {
    writer: Writer<SimSubmitter>,
    keeper: Keeper,
    archiver: Archiver,
}

impl Threads {
    fn step(&mut self) {
        self.writer.step(false);
        self.keeper.step(Duration::ZERO);
        self.archiver.step();
    }
}

impl Start<'_> {
    /// What verify finds; nothing is changed.
    pub fn verify(&self, coverage: &mut Coverage) -> Result<Survey, String> {
        let storage: Arc<dyn Storage> = Arc::new(self.disk.clone());
        let survey = survey_on(&storage, &self.config, self.archive, &|_| {});
        let mut survey = survey.map_err(|error| format!("verify: {error}"))?;
        survey.miss(&|_| true);
        if self.disk.has_only_copy() {
            survey.damages.retain(|damage| damage.file != CHECKPOINT || !damage.is_repairable());
        }
        // Older ones that could not be replaced, and those that cannot be read, are reported, and nothing is lost with them.
        survey.damages.retain(|damage| !(damage.is_repairable() && self.disk.is_excused(&damage.file)));
        let files = self.disk.files();
        for (what, count) in [
            ("verified before a start", true),
            ("verified with files to be used again", files.used_again),
            ("verified with rewritten segments", files.rewritten),
            ("verified within a rewriting", !files.replaced.is_empty()),
            ("verified with archive objects", survey.objects > 0),
        ] {
            coverage.add(what, u64::from(count));
        }
        Ok(survey)
    }

    /// [`Start::verify`] where nobody has damaged anything; not always, where a crash has left nothing that is seldom there.
    pub fn verify_whole(&mut self, coverage: &mut Coverage) -> Result<Option<Survey>, String> {
        let files = self.disk.files();
        if !(files.used_again || !files.replaced.is_empty() || self.random.one_in(2)) {
            return Ok(None);
        }
        let survey = self.verify(coverage)?;
        match wrong(&survey) {
            Some(wrong) => Err(format!("nothing is damaged, and verify reports {wrong}")),
            None => Ok(Some(survey)),
        }
    }

    /// Opens the journal and asks whether records are missing; `survey` is what verify said about these files, if it was asked.
    pub fn open(&mut self, survey: Option<&Survey>) -> Result<Result<Opened<SimSubmitter>, OpenError>, String> {
        let (storage, archive) = (Arc::new(self.disk.clone()), Arc::new(self.archive.clone()));
        let uuid = uuid::Uuid::from_u128(7);
        let opened = match journal::open(
            self.config.clone(),
            storage,
            archive,
            self.disk.submitter(),
            Arc::clone(&self.clock),
            uuid,
        ) {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(survey) = survey.filter(|survey| wrong(survey).is_none()) {
            compare(survey, &opened.journal)?;
        }
        let checked = self.check(opened)?;
        if checked.is_err() {
            // The process ends.
            self.disk.kill();
            self.disk.revive();
        }
        Ok(checked)
    }

    /// Opens what may be damaged; `survey` is what verify said. `reads_less`: a start does not read what is damaged.
    pub fn attempt(
        &mut self,
        survey: &Survey,
        reads_less: bool,
    ) -> Result<Result<Opened<SimSubmitter>, OpenError>, String> {
        match (self.open(Some(survey))?, wrong(survey)) {
            (Ok(_), Some(wrong)) if !reads_less => Err(format!("it opens, and verify reports {wrong}")),
            (Err(error), _) if !error.is_damage() => Err(format!("does not open: {error}")),
            (Ok(_), None) if reads_less => Err("a file is damaged, and verify reports nothing".to_owned()),
            (Err(error), None) => Err(format!("does not open: {error}, and verify reports nothing")),
            (outcome, _) => Ok(outcome),
        }
    }

    /// In the broker writer, keeper and archiver run already when it asks which records are missing.
    fn check(&mut self, opened: Opened<SimSubmitter>) -> Result<Result<Opened<SimSubmitter>, OpenError>, String> {
        let Opened { journal, writer, keeper, archiver, replayed_bytes } = opened;
        let threads = Arc::new(Mutex::new(Threads { writer, keeper, archiver }));
        for _ in 0..self.random.below(STEPS_MAX) {
            threads.lock().writer.step(false);
            if self.random.one_in(10) {
                threads.lock().step();
            }
        }
        let others = Arc::clone(&threads);
        self.disk.set_meanwhile(Some(Box::new(move || others.lock().step())));
        let outcome = journal.check_segments(&|_| true);
        self.disk.set_meanwhile(None);
        let threads = Arc::into_inner(threads).ok_or("somebody else holds the threads of a journal")?;
        let Threads { writer, keeper, archiver } = threads.into_inner();
        Ok(outcome.map(|()| Opened { journal, writer, keeper, archiver, replayed_bytes }))
    }
}

/// What verify reports, if anything.
pub(super) fn wrong(survey: &Survey) -> Option<String> {
    let lost = survey
        .logs
        .iter()
        .find(|(_, log)| !log.lost.is_empty())
        .map(|(id, log)| format!("lost records of {id}: {:?}", log.lost));
    survey.damages.first().map(|damage| format!("{damage:?}")).or(lost)
}

/// Do verify and the start find the same?
fn compare(survey: &Survey, journal: &Journal) -> Result<(), String> {
    if let Some(id) = survey.logs.keys().find(|id| journal.log(**id).is_none()) {
        return Err(format!("verify finds {id}, and the start does not"));
    }
    for log in journal.log_ids().into_iter().filter_map(|id| journal.log(id)) {
        let found = survey.logs.get(&log.id()).map_or((Offset::ZERO, Offset::ZERO), |found| (found.start, found.end));
        if found != (log.start(), log.end()) {
            return Err(format!(
                "{}: verify finds offsets {found:?}, the start {:?}",
                log.id(),
                (log.start(), log.end())
            ));
        }
    }
    Ok(())
}
