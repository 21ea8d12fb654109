//! Logs of which a segment is gone that the checkpoint counts on: whether records are missing with it, and whether somebody wants them.

use types::LogId;

use super::OpenError;
use crate::Journal;

impl Journal {
    /// Fails when a log that is `wanted` misses records: a segment that the checkpoint counts on is gone, and was
    /// neither replaced by rewriting nor dead; or it begins where it should not. Called once; before, nothing is freed. Nobody wants logs that an older release has dropped
    /// without an entry that says so.
    ///
    /// # Errors
    /// `MissingSegment`, `MissingRecords`; `Segment` when an index is unreadable.
    pub fn check_segments(&self, wanted: &dyn Fn(LogId) -> bool) -> Result<(), OpenError> {
        if let Some((log, base)) = self.take_begun_late().into_iter().find(|(log, _)| wanted(*log)) {
            return Err(OpenError::MissingRecords { log, base });
        }
        let lacking = self.take_lacking();
        #[cfg(feature = "planted")]
        let lacking = self.judge_late(lacking);
        if let Some((_, error)) = lacking.into_iter().find(|(id, _)| self.log(*id).is_some() && wanted(*id)) {
            return Err(error);
        }
        self.set_checked();
        Ok(())
    }

    #[cfg(feature = "planted")]
    fn judge_late(&self, lacking: Vec<(LogId, OpenError)>) -> Vec<(LogId, OpenError)> {
        let late = self.planted() == Some(crate::Planted::JudgeLate);
        let is_missing = |(id, error): &(LogId, OpenError)| match error {
            OpenError::MissingSegment { sequence } if late => misses(self, *id, *sequence).is_err(),
            _ => true,
        };
        lacking.into_iter().filter(is_missing).collect()
    }
}

/// Whether log `id`, of which `sequence` is gone, misses records with it. Asked before keeper and archiver run, which move what is left.
pub(super) fn misses(journal: &Journal, id: LogId, sequence: u64) -> Result<(), OpenError> {
    let Some(log) = journal.log(id) else { return Ok(()) };
    let mut next = log.start().max(log.archived_until());
    let held: Vec<u64> = log.inner().segments.iter().collect();
    for segment in held.into_iter().filter_map(|sequence| journal.segments().get(sequence)) {
        let Some(index) = segment.index.get() else { continue };
        let Some(row) = index.row(id)?.filter(|row| row.next > next) else { continue };
        if row.base > next {
            break;
        }
        next = row.next;
    }
    let recent = log.inner().runs.first().and_then(|number| journal.recent().run(number)).map(|run| run.base);
    if next < recent.unwrap_or_else(|| log.end()) { Err(OpenError::MissingSegment { sequence }) } else { Ok(()) }
}
