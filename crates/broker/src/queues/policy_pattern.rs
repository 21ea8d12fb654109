//! Patterns of policies: regular expressions with look-around and references to what they have matched, as people write them for RabbitMQ (`^(?!amq\.)`). Such
//! a pattern has to step back, and who may set policies chooses it, so each one has bounds, and a cost by which others are let in between
//! (`policy_search.rs`).
//!
//! The library counts steps back and no others. A run without a step back goes over a name once, but again for each condition that repeats something, and such a
//! condition may itself be repeated inside another one. How many steps a run can have is computed of the pattern: the more these are, the fewer steps back it
//! may take, and with too many it is refused.

use fancy_regex::{AstNode, BytesMode, Expr, Regex, RegexBuilder};
use serde_json::Value;

use super::erlang::Term;

/// Bytes of a pattern, as in RabbitMQ.
const TEXT_BYTES_MAX: usize = 1024;
/// Bytes of a compiled pattern that does not step back. It is gone through once for each byte of a name.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// The cost of one by the bytes that it takes compiled. A unit takes 0.3 ms at the most.
const COSTS: [(usize, usize); 4] = [(8 << 10, 1), (64 << 10, 8), (256 << 10, 32), (COMPILED_BYTES_MAX, 128)];
/// How often one that steps back may do so for a name, by the bytes that the largest of its parts without steps back takes compiled. Beyond that the name does
/// not match, as in RabbitMQ.
const STEPS_BACK: [(usize, usize); 3] = [(1 << 10, 20_000), (8 << 10, 4_000), (64 << 10, 2_000)];
/// Steps that are no steps back for a name …
const STEPS_MAX: u64 = 30_000_000;
/// … and between two steps back.
const STEPS_BETWEEN_MAX: u64 = 300_000;
/// Bytes of a name, about.
const NAME_BYTES: u64 = 256;
/// The cost of one that steps back.
const COST_STEPPING_BACK: usize = 200;
/// What is kept of what a part has found out about names, at most.
const FOUND_BYTES_MAX: usize = 64 << 10;
/// Instructions of one that steps back.
const INSTRUCTIONS_MAX: usize = 10_000;
/// What one takes in memory beside its parts, of each of its two forms; its parts take what they may.
const AROUND: usize = 8 << 10;

/// See above.
#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    /// For names of ASCII, of which it says the same: without Unicode's classes it is much smaller.
    ascii: Option<Regex>,
    /// For others.
    unicode: Option<Regex>,
    cost: usize,
    weight: usize,
}

impl Pattern {
    /// # Errors
    /// In RabbitMQ's words.
    pub fn new(value: &Value) -> Result<Self, String> {
        let Value::String(text) = value else {
            return Err(format!("pattern should be a binary but was {}", Term(value)));
        };
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("pattern must not exceed {TEXT_BYTES_MAX} bytes"));
        }
        let shape = shape(text).map_err(invalid)?;
        let ascii = if text.is_ascii() { compiled(text, shape, BytesMode::Ascii).ok() } else { None };
        let (ascii, unicode) = match (ascii, compiled(text, shape, BytesMode::Unicode)) {
            (None, Err(error)) => return Err(invalid(error)),
            (ascii, unicode) => (ascii, unicode.ok()),
        };
        let both = || ascii.iter().chain(&unicode);
        let cost = both().map(|one| one.cost).max().unwrap_or(0);
        let weight = 2 * text.len() + both().map(|one| AROUND + one.bytes_max).sum::<usize>();
        Ok(Self {
            text: text.clone(),
            ascii: ascii.map(|one| one.regex),
            unicode: unicode.map(|one| one.regex),
            cost,
            weight,
        })
    }

    /// One that the broker kept. If it is from an earlier version and would be refused now, it matches nothing.
    pub fn kept(value: &Value) -> Option<Self> {
        let text = value.as_str()?;
        Some(Self::new(value).unwrap_or_else(|error| {
            tracing::warn!(
                pattern = text,
                error,
                "a pattern that was kept is not taken any more: its policy is for nothing"
            );
            Self { text: text.to_owned(), ascii: None, unicode: None, cost: 0, weight: 2 * text.len() }
        }))
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it costs to ask it for one name.
    pub fn cost(&self) -> usize {
        self.cost
    }

    /// Bytes of memory that it takes, at the most.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Does it match anywhere in this name?
    pub fn is_match(&self, name: &[u8]) -> bool {
        let regex = if name.is_ascii() {
            self.ascii.as_ref().or(self.unicode.as_ref())
        } else {
            self.unicode.as_ref().or(self.ascii.as_ref())
        };
        regex.is_some_and(|regex| regex.is_match(name).unwrap_or(false))
    }
}

fn invalid(error: String) -> String {
    format!("pattern should be regular expression but is invalid: {error}")
}

/// What a pattern is made of, if it may be.
fn shape(text: &str) -> Result<Shape, String> {
    let tree = Expr::parse_tree(text).map_err(|error| error.to_string())?;
    let shape = Shape::of(&tree.expr);
    if tree.contains_subroutines || shape.is_absent {
        return Err("recursion, calls of groups and absent operators are not known here".to_owned());
    }
    if shape.steps_back && shape.run() > STEPS_BETWEEN_MAX {
        return Err("conditions are repeated too often inside each other".to_owned());
    }
    Ok(shape)
}

/// A pattern for names of one kind.
struct Compiled {
    regex: Regex,
    cost: usize,
    bytes_max: usize,
}

fn compiled(text: &str, shape: Shape, mode: BytesMode) -> Result<Compiled, String> {
    let build = |bytes, steps_back| {
        let mut builder = RegexBuilder::new(text);
        builder.bytes_mode(mode);
        builder
            .backtrack_limit(steps_back)
            .max_prog_size(INSTRUCTIONS_MAX)
            .delegate_size_limit(bytes)
            .delegate_dfa_size_limit(FOUND_BYTES_MAX);
        builder.build()
    };
    let mut refused = None;
    if !shape.steps_back {
        for (bytes, cost) in COSTS {
            match build(bytes, STEPS_BACK[0].1) {
                Ok(regex) => return Ok(Compiled { regex, cost, bytes_max: bytes }),
                Err(error) => refused = Some(error),
            }
        }
    } else {
        for (bytes, steps_back) in STEPS_BACK {
            match build(bytes, steps_back.min((STEPS_MAX / shape.run()) as usize)) {
                Ok(regex) => return Ok(Compiled { regex, cost: COST_STEPPING_BACK, bytes_max: bytes * shape.parts }),
                Err(error) => refused = Some(error),
            }
        }
    }
    Err(refused.map_or_else(String::new, |error| error.to_string()))
}

/// What its parts are.
#[derive(Clone, Copy)]
struct Shape {
    /// It may have to step back.
    steps_back: bool,
    /// It has an absent operator.
    is_absent: bool,
    /// What it matches has at least a byte.
    consumes: bool,
    /// It repeats something that does.
    repeats: bool,
    /// Steps of a run of it without steps back, for each byte that repetitions consume.
    steps: u64,
    /// Parts that it has without steps back, at the most.
    parts: usize,
}

impl Shape {
    const NOTHING: Self =
        Self { steps_back: false, is_absent: false, consumes: false, repeats: false, steps: 0, parts: 1 };
    const EMPTY: Self = Self { steps: 1, ..Self::NOTHING };
    const BYTE: Self = Self { consumes: true, ..Self::EMPTY };
    const REFERENCE: Self = Self { steps_back: true, steps: 2, ..Self::NOTHING };

    /// Steps of a run without steps back.
    fn run(self) -> u64 {
        if self.repeats { self.steps.saturating_mul(NAME_BYTES) } else { self.steps.max(1) }
    }

    fn beside(self, other: Self) -> Self {
        Self {
            steps_back: self.steps_back || other.steps_back,
            is_absent: self.is_absent || other.is_absent,
            consumes: self.consumes || other.consumes,
            repeats: self.repeats || other.repeats,
            steps: self.steps.saturating_add(other.steps),
            parts: self.parts + other.parts,
        }
    }

    /// One after the other.
    fn all(children: &[Expr]) -> Self {
        children.iter().map(Self::of).fold(Self::NOTHING, Self::beside)
    }

    fn of(expr: &Expr) -> Self {
        match expr {
            Expr::Empty | Expr::Assertion(_) => Self::EMPTY,
            Expr::Any { .. } | Expr::Literal { .. } | Expr::LiteralBytes { .. } | Expr::Delegate { .. } => Self::BYTE,
            Expr::GeneralNewline { .. } => Self { steps_back: true, ..Self::BYTE },
            Expr::Concat(children) => Self::all(children),
            Expr::Alt(children) => {
                let each = || children.iter().map(Self::of);
                // To come to another one is a step back.
                Self {
                    consumes: each().all(|child| child.consumes),
                    steps: each().map(|child| child.steps).max().unwrap_or(1),
                    ..Self::all(children)
                }
            }
            Expr::Group(child) => Self::of(child),
            Expr::AstNode(AstNode::AstGroup { inner, .. }, _) => Self::of(inner),
            Expr::Repeat { child, lo, hi, .. } => {
                let child = Self::of(child);
                let consumes = child.consumes && *lo > 0;
                if child.consumes {
                    return Self { consumes, repeats: child.repeats || *hi > 1, ..child };
                }
                // Without an end it ends when nothing more was consumed.
                let times = if *hi == usize::MAX { *lo } else { *hi };
                Self {
                    consumes,
                    steps: child.steps.saturating_mul(times.max(1) as u64),
                    repeats: child.repeats || *hi == usize::MAX,
                    ..child
                }
            }
            Expr::LookAround(child, _) => Self::condition(child),
            // It may repeat what it consumes, and no more.
            Expr::AtomicGroup(child) => Self { steps_back: true, ..Self::of(child) },
            Expr::Conditional { condition, true_branch, false_branch } => {
                let branches = Self::of(true_branch).beside(Self::of(false_branch));
                Self { consumes: false, ..Self::condition(condition).beside(branches) }
            }
            Expr::DefineGroup { definitions } => Self { steps_back: true, ..Self::of(definitions) },
            Expr::Absent(_) => Self { steps_back: true, is_absent: true, ..Self::EMPTY },
            // References, and what else the other library does not know.
            _ => Self::REFERENCE,
        }
    }

    /// What is not consumed by it is gone over again.
    fn condition(inner: &Expr) -> Self {
        let inside = Self::of(inner);
        // The other library does it in one step.
        let steps = if inside.steps_back { inside.run() } else { 8 };
        Self { steps_back: true, consumes: false, repeats: false, steps, ..inside }
    }
}

#[cfg(test)]
mod tests;
