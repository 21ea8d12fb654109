//! What a record has to be like to be shown: its key, a header, text in its value, or a place in a value that is JSON.
//!
//! A condition on JSON is a path and, if its value matters, a comparison:
//!
//! ```text
//! $.order.lines[0].sku = A-17      order.total >= 100      lines[*].sku ~ 17      customer.vip
//! ```
//!
//! `$` and the dot behind it may be left out. `[*]` is any element of a list. Names with other characters stand in brackets and quotes:
//! `["a.b"]`. `=` and `!=` compare numbers as numbers and everything else as it is written, `~` is "contains", `<`, `<=`, `>` and `>=`
//! are for numbers. A path alone asks whether there is something that is not null.

use memchr::memmem::{self, Finder};
use record::Record;
use serde_json::Value;

/// A value of JSON that is longer is not taken apart.
const JSON_MAX: usize = 1 << 20;
/// Steps of a path.
const STEPS_MAX: usize = 32;

/// All of them have to hold.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub key: Option<Vec<u8>>,
    pub key_part: Option<Finder<'static>>,
    /// A header of this name, and of this value if one is given.
    pub header: Option<(String, Option<String>)>,
    /// Somewhere in the value.
    pub text: Option<Finder<'static>>,
    pub json: Option<JsonCondition>,
}

impl Conditions {
    pub fn hold(&self, record: &Record) -> bool {
        let key = record.key.as_deref();
        let value = record.value.as_deref();
        self.key.as_ref().is_none_or(|wanted| key == Some(&**wanted))
            && self.key_part.as_ref().is_none_or(|part| key.is_some_and(|key| part.find(key).is_some()))
            && self.header.as_ref().is_none_or(|(name, wanted)| has_header(record, name, wanted.as_deref()))
            && self.text.as_ref().is_none_or(|part| value.is_some_and(|value| part.find(value).is_some()))
            && self.json.as_ref().is_none_or(|json| value.is_some_and(|value| json.holds(value)))
    }
}

/// What looks for a part, in time in proportion to what it looks through, whatever the part is like.
pub(super) fn finder(part: &str) -> Finder<'static> {
    Finder::new(part).into_owned()
}

fn has_header(record: &Record, name: &str, wanted: Option<&str>) -> bool {
    let fits = |value: &Option<bytes::Bytes>| wanted.is_none_or(|wanted| value.as_deref() == Some(wanted.as_bytes()));
    record.headers.iter().any(|(found, value)| &found[..] == name.as_bytes() && fits(value))
}

/// Where to look, and what has to be there.
#[derive(Debug, PartialEq)]
pub(super) struct JsonCondition {
    path: Vec<Step>,
    test: Test,
}

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Element(usize),
    Any,
}

#[derive(Debug, PartialEq)]
enum Test {
    /// There is something.
    There,
    Equal(String),
    Unequal(String),
    Contains(String),
    /// Less, equal, greater: which of them count.
    Ordered(f64, [bool; 3]),
}

/// What is wrong with a condition, and where: bytes from its beginning.
#[derive(Debug, PartialEq)]
pub(super) struct Wrong {
    pub position: usize,
    pub reason: &'static str,
}

impl JsonCondition {
    /// # Errors
    /// Where it makes no sense.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let mut at = text.len() - text.trim_start().len();
        if text[at..].starts_with('$') {
            at += 1;
        }
        let mut path = Vec::new();
        loop {
            let rest = &text[at..];
            let (step, length) = match rest.chars().next() {
                Some('[') => bracketed(rest).map_err(|reason| Wrong { position: at, reason })?,
                Some('.') => named(&rest[1..])
                    .map(|(step, length)| (step, length + 1))
                    .map_err(|reason| Wrong { position: at + 1, reason })?,
                Some(letter) if path.is_empty() && !is_operator(letter) => {
                    named(rest).map_err(|reason| Wrong { position: at, reason })?
                }
                _ => break,
            };
            path.push(step);
            at += length;
            if path.len() > STEPS_MAX {
                return Err(Wrong { position: at, reason: "the path has more than 32 steps" });
            }
        }
        if path.is_empty() {
            return Err(Wrong { position: at, reason: "a path is wanted, such as order.id" });
        }
        let test = test(&text[at..]).map_err(|reason| Wrong { position: at, reason })?;
        Ok(Self { path, test })
    }

    fn holds(&self, value: &[u8]) -> bool {
        // Most values are not JSON: their first letter says so.
        let starts = value.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"{[".contains(byte));
        if !starts || value.len() > JSON_MAX {
            return false;
        }
        serde_json::from_slice(value).is_ok_and(|value| self.reaches(&value, &self.path))
    }

    fn reaches(&self, value: &Value, path: &[Step]) -> bool {
        let Some((step, rest)) = path.split_first() else { return self.test.passes(value) };
        match (step, value) {
            (Step::Field(name), Value::Object(fields)) => {
                fields.get(name).is_some_and(|found| self.reaches(found, rest))
            }
            (Step::Element(place), Value::Array(all)) => all.get(*place).is_some_and(|found| self.reaches(found, rest)),
            (Step::Any, Value::Array(all)) => all.iter().any(|found| self.reaches(found, rest)),
            (Step::Any, Value::Object(all)) => all.values().any(|found| self.reaches(found, rest)),
            _ => false,
        }
    }
}

impl Test {
    fn passes(&self, value: &Value) -> bool {
        match self {
            Self::There => !value.is_null(),
            Self::Equal(wanted) => is_equal(value, wanted),
            Self::Unequal(wanted) => !is_equal(value, wanted),
            Self::Contains(part) => memmem::find(written(value).as_bytes(), part.as_bytes()).is_some(),
            Self::Ordered(wanted, counts) => value
                .as_f64()
                .and_then(|found| found.partial_cmp(wanted))
                .is_some_and(|order| counts[(order as i8 + 1) as usize]),
        }
    }
}

/// As people write it: text without quotes.
fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn is_equal(value: &Value, wanted: &str) -> bool {
    match (value.as_f64(), wanted.parse::<f64>()) {
        (Some(found), Ok(wanted)) => found == wanted,
        _ => written(value) == wanted,
    }
}

fn is_operator(letter: char) -> bool {
    "=!<>~".contains(letter)
}

fn named(text: &str) -> Result<(Step, usize), &'static str> {
    let length = text
        .find(|letter: char| letter == '.' || letter == '[' || is_operator(letter) || letter.is_whitespace())
        .unwrap_or(text.len());
    if length == 0 { Err("a name is wanted here") } else { Ok((Step::Field(text[..length].to_owned()), length)) }
}

fn bracketed(text: &str) -> Result<(Step, usize), &'static str> {
    if let Some(quoted) = text.strip_prefix("[\"") {
        let length = quoted.find("\"]").ok_or("the bracket is not closed by \"]")?;
        return Ok((Step::Field(quoted[..length].to_owned()), length + 4));
    }
    let length = text.find(']').ok_or("the bracket is not closed")?;
    let step = match text[1..length].trim() {
        "*" => Step::Any,
        number => Step::Element(number.parse().map_err(|_| "brackets hold a number, * or a name in quotes")?),
    };
    Ok((step, length + 1))
}

fn test(text: &str) -> Result<Test, &'static str> {
    let text = text.trim();
    let operators = ["!=", "<=", ">=", "==", "=", "<", ">", "~"];
    let Some(operator) = operators.into_iter().find(|operator| text.starts_with(operator)) else {
        return if text.is_empty() { Ok(Test::There) } else { Err("a comparison is wanted: =, !=, <, <=, >, >= or ~") };
    };
    let wanted = text[operator.len()..].trim();
    let wanted = wanted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(wanted);
    let ordered = |counts| {
        wanted.parse().map(|number: f64| Test::Ordered(number, counts)).map_err(|_| "this comparison is for numbers")
    };
    match operator {
        "!=" => Ok(Test::Unequal(wanted.to_owned())),
        "~" => Ok(Test::Contains(wanted.to_owned())),
        "<" => ordered([true, false, false]),
        "<=" => ordered([true, true, false]),
        ">" => ordered([false, false, true]),
        ">=" => ordered([false, true, true]),
        _ => Ok(Test::Equal(wanted.to_owned())),
    }
}

#[cfg(test)]
mod tests;
