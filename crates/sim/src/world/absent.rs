//! An archive object that is not there for a while: `verify` says which; readers get all that is before it and behind it, and it is told which object it is
//! that cannot be read; when it is back everything is as it was.

use std::sync::Arc;

use bytes::Bytes;
use journal::ColdWant;
use types::{LogId, Offset};

use super::{Coverage, World};
use crate::archive::log_and_base;

/// A reader asks for so much at once.
const WANTED_BYTES: usize = 200_000;
/// Records of an object, at most.
const RECORDS_MAX: u64 = 100_000;

impl World {
    /// One of the objects, at random.
    pub(super) fn miss_object(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        let taken = self.archive.take(&mut self.absences);
        taken.map_or(Ok(()), |taken| self.read_without(taken, coverage).map(drop))
    }

    /// One that was gone, and verify has not missed it.
    pub(super) fn check_unmissed(&mut self, name: &str, coverage: &mut Coverage) -> Result<(), String> {
        let Some(taken) = self.archive.take_named(name) else { return Ok(()) };
        if self.read_without(taken, coverage)? {
            return Err(format!("object {name} was gone, and verify reported nothing"));
        }
        Ok(())
    }

    /// True: something was in it.
    fn read_without(&mut self, taken: (String, Bytes), coverage: &mut Coverage) -> Result<bool, String> {
        let outcome =
            self.read_around(&taken.0, coverage).map_err(|failure| format!("without object {}: {failure}", taken.0));
        self.archive.put_back(taken);
        outcome
    }

    fn read_around(&mut self, name: &str, coverage: &mut Coverage) -> Result<bool, String> {
        let journal = Arc::clone(&self.running.as_ref().expect("a journal is open between operations").journal);
        let Some((id, base)) = log_and_base(name) else { return Err("a name that no object has".to_owned()) };
        // A log may have ended, or not be told yet.
        let Some(log) = journal.log(LogId(id)).filter(|log| self.ids().contains(&log.id())) else { return Ok(false) };
        self.look_at_start(log.id(), coverage)?;
        let (mut at, end) = (log.start(), log.high_watermark());
        let mut failed: Option<Offset> = None;
        while at < end {
            let want = ColdWant { log: Arc::clone(&log), from: at, until: end, max_bytes: WANTED_BYTES };
            let answer = journal.read_cold(&[want], WANTED_BYTES).pop().ok_or("no result")?;
            match (answer, failed) {
                (Ok(data), _) if data.next <= at => return Err(format!("{}: no progress at {at}", log.id())),
                (Ok(data), before) => {
                    let bytes = data.slices.concat();
                    super::reads::check_answer(log.id(), at, data.next, &bytes, &self.done)?;
                    self.saw(log.id(), &bytes)?;
                    if before.is_some_and(|first| at.0 - first.0 > 0) {
                        coverage.add("reads behind a missing object", 1);
                    }
                    at = data.next;
                }
                (Err(error), before) => {
                    if at.0 < base {
                        return Err(format!(
                            "{}: nothing from {at} on, and the object begins at {base}: {error}",
                            log.id()
                        ));
                    }
                    let first = before.unwrap_or(at);
                    if !journal.unreadable().iter().any(|one| one.file == name) {
                        return Err(format!("{}: nothing from {at} on, and nobody is told why: {error}", log.id()));
                    }
                    if at.0 - first.0 > RECORDS_MAX {
                        return Err(format!("{}: nothing from {first} on up to {at}: {error}", log.id()));
                    }
                    coverage.add("reads of a missing object", u64::from(before.is_none()));
                    failed = Some(first);
                    at = at.plus(1);
                }
            }
        }
        Ok(failed.is_some())
    }
}
