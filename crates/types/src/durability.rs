//! The two durability classes of a log.

use std::fmt;
use std::str::FromStr;

/// When an append counts as acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// On stable storage: a power loss takes nothing that was acknowledged.
    #[default]
    Fsync,
    /// The write has completed without a flush: a killed process loses nothing, a power loss at most
    /// the last flush interval (1 s or 64 MiB).
    Memory,
}

/// The text names no durability class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDurabilityError(String);

impl fmt::Display for ParseDurabilityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a durability; it is \"fsync\" or \"memory\"", self.0)
    }
}

impl std::error::Error for ParseDurabilityError {}

impl FromStr for Durability {
    type Err = ParseDurabilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "fsync" => Ok(Self::Fsync),
            "memory" => Ok(Self::Memory),
            _ => Err(ParseDurabilityError(text.to_owned())),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fsync => "fsync",
            Self::Memory => "memory",
        })
    }
}
