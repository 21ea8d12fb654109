//! What it takes to judge records, counted as it is done.

/// Work that may be done: each step stands for some nanoseconds.
#[derive(Debug)]
pub struct Steps(usize);

/// A record was not judged: that would take more than there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedUp;

impl Steps {
    /// So many.
    pub fn new(steps: usize) -> Self {
        Self(steps)
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        self.0
    }

    pub(crate) fn take(&mut self, steps: usize) -> Result<(), UsedUp> {
        self.0 = self.0.checked_sub(steps).ok_or(UsedUp)?;
        Ok(())
    }
}
