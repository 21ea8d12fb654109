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

/// Numbers among which one is looked up.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Ascending.
    wholes: Vec<i64>,
    /// Ascending.
    fractions: Vec<f64>,
}

impl FromIterator<Number> for Numbers {
    fn from_iter<I: IntoIterator<Item = Number>>(numbers: I) -> Self {
        let mut all = Self::default();
        for number in numbers {
            match number {
                Number::Whole(number) => all.wholes.push(number),
                Number::Fraction(number) => all.fractions.push(number),
            }
        }
        all.wholes.sort_unstable();
        all.fractions.sort_unstable_by(f64::total_cmp);
        all
    }
}

impl Numbers {
    pub fn is_empty(&self) -> bool {
        self.wholes.is_empty() && self.fractions.is_empty()
    }

    /// Is one of them equal to this?
    pub fn contain(&self, number: Number) -> bool {
        let whole = match number {
            Number::Whole(number) => self.wholes.binary_search(&number).is_ok(),
            // What is nearest to a larger whole number is no smaller.
            Number::Fraction(number) => {
                self.wholes.binary_search_by(|whole| (*whole as f64).total_cmp(&number)).is_ok()
            }
        };
        let nearest = match number {
            Number::Whole(number) => number as f64,
            Number::Fraction(number) => number,
        };
        whole || self.fractions.binary_search_by(|fraction| fraction.total_cmp(&nearest)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_as_if_each_was_compared() {
        let whole = [0, 1, -1, 7, i64::MAX, i64::MIN, 9_007_199_254_740_993, 9_007_199_254_740_992].map(Number::Whole);
        let fraction = [0.0, -0.0, 1.0, 0.5, 7.0, -1.5, 9_007_199_254_740_992.0, 9.3e18, 1e300].map(Number::Fraction);
        let all: Vec<Number> = whole.into_iter().chain(fraction).collect();
        for set in 0..1_u32 << all.len() {
            // All sets of up to three.
            if set.count_ones() > 3 {
                continue;
            }
            let of: Vec<Number> =
                all.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, number)| *number).collect();
            let numbers: Numbers = of.iter().copied().collect();
            for one in &all {
                assert_eq!(
                    numbers.contain(*one),
                    of.iter().any(|number| one.compare(*number).is_eq()),
                    "{one:?} of {of:?}"
                );
            }
        }
    }
}
