//! What the journal promises of its window: its files stay within it unless it says that it goes beyond, and what waits for the
//! archive gets its answer.

use journal::Journal;

use super::{Coverage, WINDOW_SEGMENTS, World};
use crate::disk::{Faults, SimDisk};

/// Time that passes while it is waited for the last answers, in steps of 100 ms.
const STEPS_MAX: u64 = 400;
/// Batches that are written until data waits, at most.
pub(super) const PRESSING_MAX: u64 = 1500;
/// Turns of the archiver, with those of writer and keeper, in which it takes a segment: some five, and as many again for each time that its store refuses.
const TURNS_MAX: u64 = 200;

/// Looks at the files of one run of a journal.
#[derive(Default)]
pub(super) struct Watch {
    /// They may be beyond the window: an earlier run left them so.
    excused: bool,
    segment_bytes: u64,
    /// Tries to use a spare that stays, before: such a file is no part of what the journal counts.
    stuck_spares: u64,
}

impl Watch {
    /// When a journal is opened.
    pub fn of(disk: &SimDisk, segment_bytes: u64) -> Self {
        let used = disk.used();
        Self {
            stuck_spares: stuck_spares(disk),
            excused: used + segment_bytes > WINDOW_SEGMENTS * segment_bytes,
            segment_bytes,
        }
    }

    /// After each operation.
    pub fn look(&self, journal: &Journal, disk: &SimDisk, coverage: &mut Coverage) -> Result<(), String> {
        let stays = if stuck_spares(disk) > self.stuck_spares { self.segment_bytes } else { 0 };
        let used = disk.used().saturating_sub(stays);
        coverage.add("operations while data waited for the archive", u64::from(journal.waits_for_archive()));
        let beyond = journal.metrics().window_exceeded.get() > 0;
        let window = WINDOW_SEGMENTS * self.segment_bytes;
        if used > window && !beyond && !self.excused {
            return Err(format!(
                "files take {used} bytes of a window of {window}, the journal counts {}: {}",
                journal.file_bytes(),
                disk.described()
            ));
        }
        Ok(())
    }
}

/// Segments are as long as the journal counts them.
pub(super) fn check_lengths(journal: &Journal, disk: &SimDisk) -> Result<(), String> {
    let wrong = journal.segments_listed().into_iter().find(|segment| disk.size_of(&segment.file) != segment.bytes);
    wrong.map_or(Ok(()), |segment| Err(format!("{segment:?} is {} bytes long", disk.size_of(&segment.file))))
}

fn stuck_spares(disk: &SimDisk) -> u64 {
    disk.counters().stuck_by_kind[1]
}

impl World {
    /// More is written than the window holds while the archive takes what it is given. Data that waits for it goes on after a few turns, in which next to no
    /// time passes: while it waits the archiver does not rest.
    pub(super) fn press_window(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        if self.disk.stuck().is_some() {
            return Ok(());
        }
        self.disk.set_faults(Faults::default());
        self.disk.put_out_fuses();
        self.archive_rests = 0;
        for _ in 0..PRESSING_MAX {
            if self.disk.is_dead() {
                return Ok(());
            }
            self.append(coverage);
            self.step(coverage)?;
            self.keep(coverage)?;
            let mut turns = 0;
            while self.running.as_ref().is_some_and(|running| running.journal.waits_for_archive()) {
                if turns > TURNS_MAX {
                    return Err(format!(
                        "data waits for the archive after {turns} turns of it: {}",
                        self.disk.described()
                    ));
                }
                turns += 1;
                self.archive(coverage);
                self.step(coverage)?;
                self.keep(coverage)?;
            }
            if turns > 0 {
                coverage.add("waits for the archive that had an end", 1);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Everything that was submitted is answered in the end.
    pub(super) fn settle(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.disk.set_faults(Faults::default());
        self.disk.put_out_fuses();
        self.archive_rests = 0;
        for _ in 0..STEPS_MAX {
            if self.waiting.is_empty() {
                return Ok(());
            }
            self.clock.0.fetch_add(100, std::sync::atomic::Ordering::Relaxed);
            self.drain(coverage)?;
        }
        Err(format!("{} appends are never answered", self.waiting.len()))
    }
}
