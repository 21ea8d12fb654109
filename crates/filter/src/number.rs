//! Numbers of expressions, and those that keys and headers spell.

use std::cmp::Ordering;

/// A whole number, or one with a fraction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Whole(i64),
    Fraction(f64),
}

impl Number {
    /// What a text of digits, with a sign and a decimal point if there are such, spells.
    pub fn spelt(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim_ascii();
        if let Ok(whole) = text.parse() {
            return Some(Self::Whole(whole));
        }
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        text.parse().ok().filter(|value: &f64| plain && value.is_finite()).map(Self::Fraction)
    }

    /// Whole numbers are compared exactly with each other, with fractions as the nearest of those.
    pub fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => one.cmp(&other),
            (Self::Whole(one), Self::Fraction(other)) => (one as f64).total_cmp(&other),
            (Self::Fraction(one), Self::Whole(other)) => one.total_cmp(&(other as f64)),
            (Self::Fraction(one), Self::Fraction(other)) => one.total_cmp(&other),
        }
    }
}
