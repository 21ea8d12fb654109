//! Pinning: all files of the journal get a second name each, between two steps of the keeper, when none of them appears, goes or is renamed.
//! What has a second name is neither recycled nor cut ([`crate::disk::File::is_linked`]). The newest chunk that counts is chosen afterwards: segments
//! that were begun meanwhile get theirs in a second step, and until then none of them is freed or rewritten.
//!
//! An immutable file takes no second name: it is copied, which few may be, as the keeper has other things to do. Files on their way out are in no backup.

use std::io;
use std::path::Path;

use super::Keeper;
use types::LogIndex;

use crate::backup::{BackupError, PinJob, Pinned};
use crate::checkpoint;
use crate::disk::naming;
use crate::segments::sequence_of;

/// Files that are copied for one backup.
const COPIES_MAX: usize = 4;

impl Keeper {
    pub(super) fn pin(&mut self, job: PinJob) {
        let outcome = if job.rest { self.pin_rest(&job.folder) } else { self.pin_files(&job.folder) };
        // Nobody waits for it any more.
        if job.answer.send(outcome).is_err() {
            self.pinned_from = None;
        }
    }

    /// Behind a fresh checkpoint, so that all but the segment that is being written is sealed and covered.
    fn pin_files(&mut self, folder: &Path) -> Result<Pinned, BackupError> {
        let failed = |what: &'static str| move |source| BackupError::Io { what, source };
        self.write_checkpoint().map_err(failed("write a checkpoint"))?;
        let (mut sealed, mut copies) = (Vec::new(), 0);
        for name in self.storage.list().map_err(failed("list the journal's folder"))? {
            let sequence = sequence_of(&name);
            if sequence.is_none() && name != self.newest || self.undeleted.iter().any(|file| file.name == name) {
                continue;
            }
            // A backup has one checkpoint, under its usual name.
            let name_there = if sequence.is_none() { checkpoint::NAME.to_owned() } else { name.clone() };
            let is_whole = sequence.is_none_or(|sequence| sequence < self.replay.segment);
            self.give_second_name(&name, &folder.join(&name_there), is_whole.then_some(&mut copies))
                .map_err(failed("give a file a second name"))?;
            if is_whole {
                sealed.push(name_there);
            }
        }
        self.pinned_from = Some(self.replay.segment);
        Ok(Pinned { journal: self.journal.uuid(), sealed, replay: self.replay, until: LogIndex(0) })
    }

    /// `copies`: how many there are by now; None for a file that is still written, of which a copy has no more than there was.
    fn give_second_name(&self, name: &str, path: &Path, copies: Option<&mut usize>) -> io::Result<()> {
        let outcome = match (self.storage.link(name, path), copies) {
            (Err(error), Some(copies)) if error.kind() == io::ErrorKind::PermissionDenied && *copies < COPIES_MAX => {
                *copies += 1;
                self.storage.copy(name, path)
            }
            (outcome, _) => outcome,
        };
        outcome.map_err(naming(name))
    }

    /// The segments that have been begun since.
    fn pin_rest(&mut self, folder: &Path) -> Result<Pinned, BackupError> {
        let failed = |what: &'static str| move |source| BackupError::Io { what, source };
        let from = self.pinned_from.take().unwrap_or(u64::MAX);
        for name in self.storage.list().map_err(failed("list the journal's folder"))? {
            // Some have it since the first step.
            if sequence_of(&name).is_some_and(|sequence| sequence >= from) {
                self.storage.link(&name, &folder.join(&name)).map_err(failed("give a file a second name"))?;
            }
        }
        Ok(Pinned { journal: self.journal.uuid(), sealed: Vec::new(), replay: self.replay, until: LogIndex(0) })
    }
}
