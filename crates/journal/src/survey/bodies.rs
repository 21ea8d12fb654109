//! The bodies of a rewritten segment: only its index says where they are.

use super::{Opened, Surveyor};
use crate::chunk::crc32c;
use crate::run::Run;

impl Surveyor<'_> {
    /// Those of `runs` whose bytes are as they were written, in the order of the index.
    pub(super) fn bodies(&mut self, one: &Opened, mut runs: Vec<Run>) -> Vec<Run> {
        // As they lie on the disk; a shared body comes once for each of its logs.
        runs.sort_by_key(|run| run.position);
        let mut whole = Vec::with_capacity(runs.len());
        let mut last: Option<(u32, u32, bool)> = None;
        let mut bytes = Vec::new();
        for run in runs {
            let is_whole = match last {
                Some((position, length, is_whole)) if (position, length) == (run.position, run.bytes) => is_whole,
                _ => {
                    bytes.resize(run.bytes as usize, 0);
                    let outcome = one.file.read_at(u64::from(run.position), &mut bytes);
                    self.read(u64::from(run.bytes));
                    match outcome {
                        Ok(got) if got == bytes.len() && crc32c(&bytes) == run.crc => true,
                        Ok(_) => {
                            self.damage(
                                one.sequence,
                                &*one.file,
                                u64::from(run.position),
                                format!("run checksum, {} offsets {}..{}", run.log, run.base, run.next),
                            );
                            false
                        }
                        Err(error) => {
                            self.damage(one.sequence, &*one.file, u64::from(run.position), error.to_string());
                            false
                        }
                    }
                }
            };
            last = Some((run.position, run.bytes, is_whole));
            if is_whole {
                self.found.runs += 1;
                whole.push(run);
            }
        }
        whole.sort_by_key(|run| (run.log, run.base));
        whole
    }
}
