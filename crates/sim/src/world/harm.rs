//! The process dies while the keeper or the archiver works, or the disk answers the keeper with errors.

use journal::JournalStatus;

use super::{Coverage, World};
use crate::disk::REWRITING;

/// How names of files begin that get another one: of those to be used again (twice as often), a rewritten one, a checkpoint.
const RENAMED: [&str; 4] = ["spare-", "spare-", REWRITING, "checkpoint"];
/// Turns of the keeper with a disk that fails.
const FAILING_TURNS: u64 = 8;
/// One in so many writes and syncs fails then.
const FILE_ERRORS: u64 = 3;
/// Turns of the keeper after that, in which everything is as it should be.
const TURNS_AFTER: u64 = 4;

impl World {
    /// One of these, at random.
    pub(super) fn harm(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        match self.starts.below(6) {
            0 => self.fail_files(coverage),
            5 if self.starts.one_in(2) => {
                self.disk.stick();
                Ok(())
            }
            5 => {
                self.disk.fail_behind_rewriting(self.starts.below(4));
                Ok(())
            }
            1 | 2 => {
                let renamed = RENAMED[self.starts.below(RENAMED.len() as u64) as usize];
                self.disk.light_fuse_at_rename(renamed, self.starts.below(4));
                Ok(())
            }
            _ => self.die_within(coverage),
        }
    }

    fn die_within(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.disk.light_fuse(1 + self.random.next() % 30);
        let archives = self.random.one_in(2);
        for _ in 0..4 {
            if archives {
                self.archive(coverage)
            } else {
                self.keep(coverage)?
            }
            if archives && !self.disk.is_dead() {
                self.step(coverage)?;
            }
        }
        if !self.disk.is_dead() {
            self.disk.put_out_fuses();
            return Ok(());
        }
        coverage.add(if archives { "deaths inside the archiver" } else { "deaths inside the keeper" }, 1);
        let power = self.random.one_in(2);
        self.crash(power, coverage)
    }

    fn fail_files(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.disk.set_file_errors(FILE_ERRORS);
        for _ in 0..FAILING_TURNS {
            self.append(coverage);
            self.step(coverage)?;
            self.keep(coverage)?;
        }
        self.disk.set_file_errors(0);
        // What it has left undone is done now.
        self.rest(TURNS_AFTER, coverage)?;
        let status = self.running.as_ref().map(|running| running.journal.status());
        if let Some(JournalStatus::Hindered { reason }) = status.filter(|_| !self.disk.is_dead()) {
            return Err(format!("no writes after errors that are over: {reason}"));
        }
        if self.starts.one_in(2) {
            let power = self.starts.one_in(2);
            self.crash(power, coverage)?;
        }
        Ok(())
    }
}
