//! Pinning: all files of the journal get a second name each, between two steps of the keeper, when none of them appears, goes or is renamed.
//! What has a second name is neither recycled nor cut ([`crate::disk::File::is_linked`]).

use std::path::Path;

use super::Keeper;
use crate::backup::{BackupError, PinJob, Pinned};
use crate::checkpoint;
use crate::segments::sequence_of;

impl Keeper {
    pub(super) fn pin(&mut self, job: PinJob) {
        let outcome = self.pin_files(&job.folder);
        let _ = job.answer.send(outcome);
    }

    /// Behind a fresh checkpoint, so that all but the segment that is being written is sealed and covered.
    fn pin_files(&mut self, folder: &Path) -> Result<Pinned, BackupError> {
        let failed = |what: &'static str| move |source| BackupError::Io { what, source };
        self.write_checkpoint().map_err(failed("write a checkpoint"))?;
        let mut sealed = Vec::new();
        for name in self.storage.list().map_err(failed("list the journal's folder"))? {
            let sequence = sequence_of(&name);
            if sequence.is_none() && name != checkpoint::NAME {
                continue;
            }
            self.storage.link(&name, &folder.join(&name)).map_err(failed("give a file a second name"))?;
            if sequence.is_none_or(|sequence| sequence < self.replay.segment) {
                sealed.push(name);
            }
        }
        // Whatever was acknowledged is in a chunk that was made before.
        let until = self.journal.tail().last().unwrap_or_else(|| self.journal.durable_index());
        Ok(Pinned { journal: self.journal.uuid(), sealed, replay: self.replay, until })
    }
}
