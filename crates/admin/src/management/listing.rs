//! Lists as they are asked for: filtered by name, sorted, cut into pages, with the columns that are wanted. Source: RabbitMQ 4.3,
//! `rabbit_mgmt_util:reply_list`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use crate::answers::{Lines, Part, Text, key_of};

/// Items of a page, at most, and when nothing is said.
const PAGE_MAX: usize = 500;
const PAGE_DEFAULT: usize = 100;
/// Bytes that an expression may take when it is compiled.
const EXPRESSION_BYTES: usize = 1 << 20;
/// Names with dots between in the path of a column: nothing lies deeper.
const DEPTH_MAX: usize = 8;

/// A value by a path of names with dots between.
fn field<'v>(item: &'v Value, path: &str) -> Option<&'v Value> {
    if let Some(found) = item.get(path) {
        return Some(found);
    }
    let (first, rest) = path.split_once('.')?;
    field(item.get(first)?, rest)
}

/// Numbers before words, and what is not there before all.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Number(_) => 1,
        Value::Bool(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) | Value::Object(_) => 4,
    }
}

fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        _ => rank(one).cmp(&rank(other)),
    }
}

/// The columns that are wanted, as a tree: to take them of an item costs what the item has, however many are named.
#[derive(Default)]
struct Columns<'q> {
    /// Names that are taken whole, with dots or without.
    whole: HashSet<&'q str>,
    /// Of what has this name, these.
    within: HashMap<&'q str, Columns<'q>>,
}

impl<'q> Columns<'q> {
    fn of(text: &'q str) -> Self {
        let mut all = Self::default();
        text.split(',').for_each(|path| all.add(path, 0));
        all
    }

    fn add(&mut self, path: &'q str, depth: usize) {
        if self.whole.insert(path)
            && depth < DEPTH_MAX
            && let Some((first, rest)) = path.split_once('.')
        {
            self.within.entry(first).or_default().add(rest, depth + 1);
        }
    }

    /// Those that an item has.
    fn take(&self, item: &Value) -> Map<String, Value> {
        let mut kept = Map::new();
        for (name, value) in item.as_object().into_iter().flatten() {
            if self.whole.contains(name.as_str()) {
                kept.insert(name.clone(), value.clone());
            } else if let Some(columns) = self.within.get(name.as_str()) {
                let inner = columns.take(value);
                if !inner.is_empty() {
                    kept.insert(name.clone(), Value::Object(inner));
                }
            }
        }
        kept
    }
}

struct Page {
    number: usize,
    size: usize,
}

impl Page {
    /// The place of its first item among so many.
    ///
    /// # Errors
    /// 400: there are not so many pages.
    fn first(&self, filtered: usize) -> Result<usize, Refusal> {
        let Self { number, size } = *self;
        if number > filtered.div_ceil(size).max(1) {
            let reason = format!("Page out of range, page: {number} page size: {size}, len: {filtered}");
            return Err(Answer::bad_page("page_out_of_range", reason));
        }
        Ok((number - 1) * size)
    }

    /// Writes it: its items are what `items` writes.
    fn write(&self, text: &mut Text, [total, filtered, shown]: [usize; 3], items: impl FnOnce(&mut Text)) {
        let Self { number, size } = *self;
        let pages = filtered.div_ceil(size).max(1);
        let numbers = [
            ("total_count", total),
            ("filtered_count", filtered),
            ("item_count", shown),
            ("page", number),
            ("page_size", size),
            ("page_count", pages),
        ];
        let mut parts: BTreeMap<&str, Part<'_>> =
            numbers.into_iter().map(|(name, number)| (name, Part::Value(number.into()))).collect();
        parts.insert("items", Part::Written(Box::new(items)));
        text.object(parts);
    }
}

fn page(call: &Call<'_>) -> Result<Option<Page>, Refusal> {
    let number = |name| match call.query(name) {
        None => Ok(None),
        Some(text) => match text.parse::<i64>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Answer::bad_request("Pagination parameters are invalid")),
        },
    };
    let Some(at) = number("page")? else { return Ok(None) };
    let size = number("page_size")?.unwrap_or(PAGE_DEFAULT as i64);
    if at < 1 || size < 1 || size > PAGE_MAX as i64 {
        let reason = format!("Invalid pagination parameters: page number {at}, page size {size}");
        return Err(Answer::bad_page("invalid_pagination_parameters", reason));
    }
    Ok(Some(Page { number: at as usize, size: size as usize }))
}

/// Names that are wanted.
enum Names {
    All,
    /// With this in them, in any case.
    With(String),
    Like(Regex),
}

impl Names {
    /// # Errors
    /// 400: it is no expression.
    fn of(call: &Call<'_>) -> Result<Self, Refusal> {
        let Some(wanted) = call.query("name").filter(|name| !name.is_empty()) else { return Ok(Self::All) };
        if !call.flag("use_regex") {
            return Ok(Self::With(wanted.to_lowercase()));
        }
        let expression = RegexBuilder::new(wanted).case_insensitive(true).size_limit(EXPRESSION_BYTES).build();
        expression.map(Self::Like).map_err(|error| Answer::bad_request(error.to_string()))
    }

    fn has(&self, item: &Value) -> bool {
        let name = || item.get("name").and_then(Value::as_str).unwrap_or_default();
        match self {
            Self::All => true,
            Self::With(wanted) => name().to_lowercase().contains(wanted),
            Self::Like(expression) => expression.is_match(name()),
        }
    }
}

/// What is wanted of a list.
struct Wish<'q> {
    page: Option<Page>,
    /// Only pages are filtered.
    names: Names,
    sort: Option<&'q str>,
    reversed: bool,
    columns: Option<Columns<'q>>,
}

impl<'q> Wish<'q> {
    /// # Errors
    /// 400.
    fn of(call: &'q Call<'_>) -> Result<Self, Refusal> {
        let asked = |name| call.query(name).filter(|text| !text.is_empty());
        let page = page(call)?;
        let names = if page.is_some() { Names::of(call)? } else { Names::All };
        Ok(Self {
            page,
            names,
            sort: asked("sort"),
            reversed: call.flag("sort_reverse"),
            columns: asked("columns").map(Columns::of),
        })
    }

    fn cut<'v>(&self, item: &'v Value) -> Cow<'v, Value> {
        match &self.columns {
            None => Cow::Borrowed(item),
            Some(wanted) => Cow::Owned(Value::Object(wanted.take(item))),
        }
    }

    /// Writes the items that `each` puts, as they come if that is their order.
    ///
    /// # Errors
    /// 400: there is no such page.
    fn write(&self, text: &mut Text, each: impl FnOnce(&mut dyn FnMut(&Value))) -> Result<(), Refusal> {
        let (mut total, mut filtered) = (0, 0);
        if self.page.is_none() && self.sort.is_none() {
            text.list(|put| each(&mut |item| put(&self.cut(item))));
            return Ok(());
        }
        let turned = self.reversed && self.sort.is_some();
        let order = |one: &(Value, usize), other: &(Value, usize)| {
            let order = compare(&one.0, &other.0).then(one.1.cmp(&other.1));
            if turned { order.reverse() } else { order }
        };
        let (end, size) = self
            .page
            .as_ref()
            .map_or((usize::MAX, usize::MAX), |page| (page.number.saturating_mul(page.size), page.size));
        let mut lines = Lines::new(if self.sort.is_some() { end } else { size }, order);
        each(&mut |item| {
            total += 1;
            if !self.names.has(item) {
                return;
            }
            filtered += 1;
            let (key, key_bytes) = key_of(self.sort.and_then(|sort| field(item, sort)));
            if self.sort.is_some() || (filtered <= end && filtered > end - size) {
                lines.put(text, ((key, filtered), key_bytes), &self.cut(item));
            }
        });
        let Some(page) = &self.page else {
            lines.write(text, 0);
            return Ok(());
        };
        let first = page.first(filtered)?;
        let first = if self.sort.is_some() { first } else { 0 };
        let shown = lines.shown(first);
        page.write(text, [total, filtered, shown], |text| lines.write(text, first));
        Ok(())
    }
}

/// Answers with a list; without a wish it is in the order in which it comes. One item at a time is there, beside the texts of those that are shown.
pub(crate) fn list(call: &Call<'_>, items: impl IntoIterator<Item = Value>) -> Outcome {
    list_each(call, |put| items.into_iter().for_each(|item| put(&item)))
}

/// The same of what `each` puts.
pub(crate) fn list_each(call: &Call<'_>, each: impl FnOnce(&mut dyn FnMut(&Value))) -> Outcome {
    let (wish, mut text) = (Wish::of(call)?, call.text.take());
    wish.write(&mut text, each)?;
    Ok(Answer::of_text(text))
}

/// The same of things that are described only if they are on the page, unless a name is looked for or another order wanted.
pub(crate) fn list_described<T>(call: &Call<'_>, things: Vec<T>, describe: impl Fn(&T) -> Value) -> Outcome {
    let asks = |name: &str| call.query(name).is_some_and(|text| !text.is_empty());
    match page(call)? {
        Some(page) if !["name", "sort", "columns"].into_iter().any(asks) => {
            let first = page.first(things.len())?;
            let (total, shown) = (things.len(), things.iter().skip(first).take(page.size));
            let mut text = call.text.take();
            page.write(&mut text, [total, total, shown.len()], |text| {
                text.list(|put| shown.for_each(|thing| put(&describe(thing))))
            });
            Ok(Answer::of_text(text))
        }
        _ => list(call, things.iter().map(describe)),
    }
}

/// Answers with one thing, or the columns of it that are wanted.
pub(crate) fn one(call: &Call<'_>, item: Value) -> Outcome {
    match call.query("columns").filter(|text| !text.is_empty()) {
        None => Ok(Answer::of(item)),
        Some(text) => Ok(Answer::of(Value::Object(Columns::of(text).take(&item)))),
    }
}

#[cfg(test)]
mod tests;
