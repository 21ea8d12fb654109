//! How much a turn may do to look into batches: unpack them, and judge their records. Judging is counted in steps of a few nanoseconds each
//! ([`Filter::judge`]); a batch of which the judgement takes longer than a turn is gone on with in another one (`notes.rs`).

use filter::{Filter, Steps};
use record::Fields;

/// How much more a turn may do. The first batch of a turn may always be unpacked, and its first record always be judged.
#[derive(Clone, Copy, Debug)]
pub struct UnpackRoom {
    left: usize,
    max: usize,
    steps: usize,
    /// Nothing was judged yet.
    first: bool,
    /// A batch that takes longer than a turn may be gone on with.
    goes_on: bool,
    /// Such a batch was left.
    long: bool,
}

impl UnpackRoom {
    /// Of a turn on a network thread.
    pub const TURN: Self = Self { goes_on: false, ..Self::ALL_TURNS };
    /// The same for who does all of it there, turn by turn.
    pub const ALL_TURNS: Self = Self {
        left: TURN_UNPACKED_MAX,
        max: TURN_UNPACKED_MAX,
        steps: TURN_STEPS_MAX,
        first: true,
        goes_on: true,
        long: false,
    };
    /// Of a read of history, or of a turn on a thread for what takes long.
    pub const HISTORY: Self = Self {
        left: HISTORY_UNPACKED_MAX,
        max: HISTORY_UNPACKED_MAX,
        steps: RECORD_STEPS_MAX,
        first: true,
        goes_on: true,
        long: false,
    };

    /// What a batch of so many bytes may unpack to; one that unpacks to more is not looked into. `None`: it is for the next turn.
    pub fn of(&mut self, batch_bytes: usize) -> Option<usize> {
        let limit = batch_bytes.saturating_mul(RATIO_MAX).saturating_add(BATCH_UNPACKED_LEAST).min(TURN_UNPACKED_MAX);
        if self.left < limit && self.left < self.max || self.steps == 0 && !self.first {
            self.left = 0;
            return None;
        }
        Some(limit)
    }

    /// So much was unpacked.
    pub fn take(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// The turn is over.
    pub fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// There is as much to unpack as at first, and what is left of the steps.
    pub fn begin_partition(&mut self) {
        self.left = self.max;
    }

    /// A turn on a network thread that may look at so many more bytes, of which some stand for a step.
    pub(crate) fn of_bytes(bytes: usize) -> Self {
        Self { steps: bytes / STEP_BYTES, ..Self::TURN }
    }

    /// The bytes that stand for what was done since there were so many.
    pub(crate) fn spent_of(&self, bytes: usize) -> usize {
        (bytes / STEP_BYTES).saturating_sub(self.steps) * STEP_BYTES
    }

    /// Takes so many steps, if there are any. `None`: what they are for is to be done in another turn.
    pub(crate) fn spend(&mut self, steps: usize) -> Option<()> {
        (self.steps > 0 || self.first).then(|| self.steps = self.steps.saturating_sub(steps))
    }

    /// Does a filter want a record? One that takes too long is wanted: nothing that may be wanted is lost. `None`: it is to be judged in another
    /// turn, and so is what comes behind it.
    pub fn judge(&mut self, filter: &Filter, record: &impl Fields) -> Option<bool> {
        let first = std::mem::take(&mut self.first);
        let allowed = if first { self.steps.max(RECORD_STEPS_MAX) } else { self.steps };
        let mut steps = Steps::new(allowed);
        let judged = filter.judge(record, &mut steps);
        let spent = if judged.is_ok() { allowed - steps.left() } else { allowed };
        self.steps = self.steps.saturating_sub(spent);
        judged.ok().or(first.then_some(true))
    }

    /// Is there all of a turn?
    pub(super) fn is_whole(&self) -> bool {
        self.first
    }

    /// A batch has taken all that this turn had.
    pub(super) fn use_up(&mut self) {
        (self.left, self.steps) = (0, 0);
    }

    /// A batch is left that takes longer than a turn.
    pub(super) fn leave_long(&mut self) {
        self.long = true;
    }

    /// Was a batch left, since this was asked last, that takes longer to judge than a turn?
    pub fn take_long(&mut self) -> bool {
        std::mem::take(&mut self.long)
    }

    /// May a batch that takes longer than a turn be gone on with?
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Steps that are left.
    #[cfg(test)]
    pub(super) fn steps(&self) -> usize {
        self.steps
    }
}

/// What may be unpacked in a turn on a network thread, and for a read of history.
pub(super) const TURN_UNPACKED_MAX: usize = 16 << 20;
const HISTORY_UNPACKED_MAX: usize = 64 << 20;
/// A batch may unpack to so many times its own bytes and this, to be looked into on the way out.
const RATIO_MAX: usize = 16;
const BATCH_UNPACKED_LEAST: usize = 1 << 20;
/// Steps of a turn on a network thread: some milliseconds.
pub(super) const TURN_STEPS_MAX: usize = 1 << 20;
/// Steps of a turn elsewhere, and for one record.
pub(super) const RECORD_STEPS_MAX: usize = 4 << 20;
/// Where turns are measured in bytes, so many of them take as long as a step.
const STEP_BYTES: usize = 4;
