//! An expression as a tree, and what it says of a record. Logic has three values: `None` is neither true nor false.

use std::cmp::Ordering;

use hashbrown::HashSet;
use record::Fields;

use crate::number::{Number, Numbers};
use crate::pattern::Pattern;
use crate::steps::{Steps, UsedUp};
use crate::summary::{Place, Wanted};

#[derive(Debug)]
pub(crate) enum Expression {
    Constant(bool),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// Of a key or header.
    Test(Place, Test),
    /// Of the timestamp.
    Time(TimeTest),
}

/// What a literal stands for.
#[derive(Debug)]
pub(crate) enum Literal {
    Bytes(Box<[u8]>),
    Number(Number),
}

/// How two values are to stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Unequal => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Test {
    Compare(Relation, Literal),
    In(HashSet<Box<[u8]>>, Numbers),
    Between(Literal, Literal),
    Like(Pattern),
    IsNull,
}

#[derive(Debug)]
pub(crate) enum TimeTest {
    Compare(Relation, Number),
    In(Numbers),
    Between(Number, Number),
    IsNull,
}

impl Literal {
    fn compare(&self, value: &[u8]) -> Option<Ordering> {
        match self {
            Self::Bytes(bytes) => Some(value.cmp(bytes)),
            Self::Number(number) => Some(Number::spelt(value)?.compare(*number)),
        }
    }

    /// What it takes to compare a value of so many bytes. How long a text is that it is compared with was bounded when it was parsed.
    fn steps(&self, length: usize) -> usize {
        match self {
            Self::Bytes(_) => 1,
            Self::Number(_) => NUMBER_STEPS + length,
        }
    }
}

/// Steps to see whether a value spells a number, beside one for each of its bytes.
const NUMBER_STEPS: usize = 4;
/// Bytes of a value that are hashed in one step.
const HASHED_BYTES: usize = 8;

impl Test {
    /// What it takes for a value of so many bytes.
    fn steps(&self, length: usize) -> usize {
        match self {
            Self::Compare(_, literal) => literal.steps(length),
            Self::In(_, numbers) => {
                2 + length / HASHED_BYTES + if numbers.is_empty() { 0 } else { NUMBER_STEPS + length }
            }
            Self::Between(low, high) => low.steps(length) + high.steps(length),
            Self::Like(pattern) => pattern.steps(length),
            Self::IsNull => 0,
        }
    }

    fn evaluate(&self, value: Option<&[u8]>) -> Option<bool> {
        if let Self::IsNull = self {
            return Some(value.is_none());
        }
        let value = value?;
        match self {
            Self::Compare(relation, literal) => Some(relation.holds(literal.compare(value)?)),
            Self::In(texts, numbers) => {
                if texts.contains(value) {
                    return Some(true);
                }
                if numbers.is_empty() {
                    return Some(false);
                }
                let spelt = Number::spelt(value)?;
                Some(numbers.contain(spelt))
            }
            Self::Between(low, high) => {
                and(low.compare(value).map(Ordering::is_ge), high.compare(value).map(Ordering::is_le))
            }
            Self::Like(pattern) => Some(pattern.matches(value)),
            Self::IsNull => None,
        }
    }
}

impl TimeTest {
    fn holds(&self, timestamp: i64) -> bool {
        let at = Number::Whole(timestamp);
        match self {
            Self::Compare(relation, number) => relation.holds(at.compare(*number)),
            Self::In(numbers) => numbers.contain(at),
            Self::Between(low, high) => at.compare(*low).is_ge() && at.compare(*high).is_le(),
            Self::IsNull => false,
        }
    }
}

fn and(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

impl Expression {
    /// What is paid for before it is done comes out of `steps`.
    pub fn evaluate(&self, record: &impl Fields, steps: &mut Steps) -> Result<Option<bool>, UsedUp> {
        match self {
            Self::Constant(value) => steps.take(1).map(|()| Some(*value)),
            Self::All(parts) => some_or(parts, false, record, steps),
            Self::Any(parts) => some_or(parts, true, record, steps),
            Self::Not(inner) => Ok(inner.evaluate(record, steps)?.map(|value| !value)),
            Self::Test(place, test) => {
                steps.take(place.steps(record))?;
                let value = place.of(record);
                if let Some(value) = value {
                    steps.take(test.steps(value.len()))?;
                }
                Ok(test.evaluate(value))
            }
            Self::Time(test) => steps.take(2).map(|()| Some(test.holds(record.timestamp()))),
        }
    }

    /// How many tests it has.
    pub fn tests(&self) -> usize {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::tests).sum(),
            Self::Not(inner) => inner.tests(),
            Self::Constant(_) | Self::Test(..) | Self::Time(_) => 1,
        }
    }

    /// See [`crate::Filter::wanted`].
    pub fn wanted(&self) -> Option<Wanted> {
        match self {
            Self::Test(place, Test::Compare(Relation::Equal, Literal::Bytes(value))) => {
                Some(Wanted::new(place, [&**value]))
            }
            Self::Test(place, Test::In(texts, numbers)) if numbers.is_empty() => {
                Some(Wanted::new(place, texts.iter().map(|text| &**text)))
            }
            Self::All(parts) => parts.iter().filter_map(Self::wanted).min_by_key(Wanted::len),
            Self::Any(parts) => {
                let mut parts = parts.iter().map(Self::wanted);
                let first = parts.next()??;
                parts.try_fold(first, |all, part| all.or(part?))
            }
            _ => None,
        }
    }
}

/// `decisive` when a part is that; the opposite when all parts are; nothing otherwise.
fn some_or(
    parts: &[Expression],
    decisive: bool,
    record: &impl Fields,
    steps: &mut Steps,
) -> Result<Option<bool>, UsedUp> {
    let mut outcome = Some(!decisive);
    for part in parts {
        match part.evaluate(record, steps)? {
            Some(value) if value == decisive => return Ok(Some(decisive)),
            Some(_) => {}
            None => outcome = None,
        }
    }
    Ok(outcome)
}
