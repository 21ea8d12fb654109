//! A disk that is full while nothing but what lets records go is written: that finds room all the same, for as long as it takes, out of what the
//! keeper had kept back before.

use journal::JournalStatus;

use super::{Coverage, Running, SEGMENT_BYTES, World};
use crate::disk::Faults;

/// What the keeper keeps back for rewriting.
const KEPT: &str = "reserve-rewriting";
/// Appends of state, each in a chunk of its own: more than the rest of a segment and a dozen of those for state take.
const APPENDS: u64 = 160;
/// So many of them may be refused: those that come before the keeper has heard that room is short.
const REFUSED_MAX: u64 = 10;

/// More than what is left of a segment, and of what was prepared, takes.
const APPENDS_LAST: u64 = 400;
/// So much of it has to be taken when that is known.
const TAKEN_LEAST: u64 = 4;
/// Until a trim is answered.
const STEPS_LAST: u64 = 20;

impl World {
    /// Fills the disk, and goes on with state.
    pub(super) fn go_on_when_full(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        // Nothing dies meanwhile.
        self.disk.put_out_fuses();
        self.disk.unstick();
        self.disk.set_faults(Faults::default());
        for _ in 0..4 {
            self.drain(coverage)?;
        }
        if self.disk.is_dead() || self.segment_bytes != SEGMENT_BYTES || self.disk.size_of(KEPT) < SEGMENT_BYTES / 2 {
            return Ok(());
        }
        if self.next_token.is_multiple_of(2) {
            let outcome = self.let_go_beyond_a_quota(coverage);
            self.disk.set_faults(Faults::default());
            return outcome;
        }
        let (capacity, refused) = (Some(self.disk.used()), self.state_refused);
        self.disk.set_faults(Faults { capacity, ..Faults::default() });
        for _ in 0..APPENDS {
            self.put_state();
            for _ in 0..3 {
                self.step(coverage)?;
            }
            self.keep(coverage)?;
        }
        self.disk.set_faults(Faults::default());
        coverage.add("disks that were full for long", 1);
        match self.state_refused - refused {
            0..=REFUSED_MAX => Ok(()),
            refused => Err(format!("{refused} of {APPENDS} appends of state were refused on a full disk")),
        }
    }

    /// Nothing can be had any more, whatever is given back, as under a quota that was lowered: what lets records go finds room when state finds none.
    fn let_go_beyond_a_quota(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.disk.set_faults(Faults { capacity: Some(0), ..Faults::default() });
        let (states, trims, mut taken) = (self.state_refused, self.trims_refused, 0);
        for _ in 0..APPENDS_LAST {
            let is_full =
                self.running.as_ref().is_some_and(|running| running.journal.status() == JournalStatus::DiskFull);
            taken = if is_full { taken + 1 } else { 0 };
            self.put_state();
            for _ in 0..3 {
                self.step(coverage)?;
            }
            self.keep(coverage)?;
            if self.state_refused > states {
                break;
            }
        }
        let is_short = |running: &Running| {
            running.journal.segments_listed().iter().any(|one| !one.sealed && one.bytes < SEGMENT_BYTES / 2)
        };
        // Of a segment for state nothing is kept here: it has room for two chunks. Before it is known that the disk is full state may have used up the segment.
        if self.state_refused == states
            || taken < TAKEN_LEAST
            || self.disk.is_dead()
            || self.running.as_ref().is_none_or(is_short)
        {
            return Ok(());
        }
        self.trim();
        for _ in 0..STEPS_LAST {
            self.step(coverage)?;
        }
        coverage.add("trims when there was no room for state", 1);
        if self.trims_refused > trims {
            Err("a trim was refused on a disk that had no room for state".to_owned())
        } else {
            Ok(())
        }
    }
}
