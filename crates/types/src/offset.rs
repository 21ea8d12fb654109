//! Positions: of a record in a log, of a chunk in a journal, of a reign in a journal's history.

use std::fmt;

/// Position of a record in a log, from 0. Ranges of offsets are half-open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The first position of every log.
    pub const ZERO: Self = Self(0);

    /// The position `count` records further on.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.checked_add(count).expect("offsets stay below 2^63"))
    }

    /// How many records lie from `earlier` up to here; 0 when `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Position of a chunk in its journal; rises by one from chunk to chunk. The first chunk is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogIndex(pub u64);

impl LogIndex {
    /// The next chunk's position.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for LogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A reign over a journal: every open, and later every election, starts a higher one. The first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u32);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
