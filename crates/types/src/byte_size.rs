//! A number of bytes that people write and read: `512`, `64KiB`, `1GB`, `2g`.

use std::fmt;
use std::str::FromStr;

/// A count of bytes. Parsed from a plain number or a number with a unit; units are powers of 1024
/// (`k`, `kb`, `kib`, …, `t`), case does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `count` KiB.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }
    /// `count` MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }
    /// `count` GiB.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }
    /// The bare count.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// The text is not a byte size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseByteSizeError(String);

impl fmt::Display for ParseByteSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a byte size; write a number with an optional unit, like 512MiB or 2g", self.0)
    }
}

impl std::error::Error for ParseByteSizeError {}

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseByteSizeError(text.to_owned());
        let trimmed = text.trim();
        let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let count: u64 = trimmed[..digits_end].parse().map_err(|_| fail())?;
        let shift = match trimmed[digits_end..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(fail()),
        };
        count.checked_mul(1 << shift).map(Self).ok_or_else(fail)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        for (shift, unit) in UNITS {
            if self.0 >= 1 << shift {
                let whole = self.0 as f64 / (1u64 << shift) as f64;
                return if whole.fract() < 0.05 {
                    write!(f, "{whole:.0} {unit}")
                } else {
                    write!(f, "{whole:.1} {unit}")
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_units() {
        for (text, bytes, shown) in [
            ("0", 0, "0 B"),
            ("512", 512, "512 B"),
            ("64KiB", 65_536, "64 KiB"),
            ("1g", 1 << 30, "1 GiB"),
            ("1536 mb", 1536 << 20, "1.5 GiB"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, shown), "{text}");
        }
        for text in ["", "x", "1x", "-1", "99999999999t", "1.5g"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
