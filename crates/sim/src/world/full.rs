//! A disk that is full while nothing but what lets records go is written: that finds room all the same, for as long as it takes, out of what the
//! keeper had kept back before.

use super::{Coverage, SEGMENT_BYTES, World};
use crate::disk::Faults;

/// What the keeper keeps back for rewriting.
const KEPT: &str = "reserve-rewriting";
/// Appends of state, each in a chunk of its own: more than the rest of a segment and a dozen of those for state take.
const APPENDS: u64 = 160;
/// So many of them may be refused: those that come before the keeper has heard that room is short.
const REFUSED_MAX: u64 = 10;

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
        let (capacity, refused) = (Some(self.disk.used()), self.state_refused);
        self.disk.set_faults(Faults { capacity, ..Faults::default() });
        for _ in 0..APPENDS {
            self.put_state();
            for _ in 0..3 {
                self.step(coverage)?;
            }
            self.keep(coverage);
        }
        self.disk.set_faults(Faults::default());
        coverage.add("disks that were full for long", 1);
        match self.state_refused - refused {
            0..=REFUSED_MAX => Ok(()),
            refused => Err(format!("{refused} of {APPENDS} appends of state were refused on a full disk")),
        }
    }
}
