//! Lists as they are asked for: filtered by name, sorted, cut into pages, with the columns that are wanted. Source: RabbitMQ 4.3,
//! `rabbit_mgmt_util:reply_list`.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use regex::RegexBuilder;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;

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
fn rank(value: Option<&Value>) -> u8 {
    match value {
        None | Some(Value::Null) => 0,
        Some(Value::Number(_)) => 1,
        Some(Value::Bool(_)) => 2,
        Some(Value::String(_)) => 3,
        Some(Value::Array(_) | Value::Object(_)) => 4,
    }
}

fn compare(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    match (one, other) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => {
            one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Some(Value::String(one)), Some(Value::String(other))) => one.cmp(other),
        (Some(Value::Bool(one)), Some(Value::Bool(other))) => one.cmp(other),
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

    /// With its items.
    fn answer(&self, total: usize, filtered: usize, item_count: usize, items: Value) -> Answer {
        let Self { number, size } = *self;
        Answer::of(json!({
            "total_count": total,
            "filtered_count": filtered,
            "item_count": item_count,
            "page": number,
            "page_size": size,
            "page_count": filtered.div_ceil(size).max(1),
            "items": items,
        }))
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

/// Keeps what has a name that is wanted.
fn filter(call: &Call<'_>, items: Vec<Value>) -> Result<Vec<Value>, Refusal> {
    let Some(wanted) = call.query("name").filter(|name| !name.is_empty()) else { return Ok(items) };
    let name = |item: &Value| item.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if call.flag("use_regex") {
        let expression = RegexBuilder::new(wanted).case_insensitive(true).size_limit(EXPRESSION_BYTES).build();
        let expression = expression.map_err(|error| Answer::bad_request(error.to_string()))?;
        return Ok(items.into_iter().filter(|item| expression.is_match(&name(item))).collect());
    }
    let wanted = wanted.to_lowercase();
    Ok(items.into_iter().filter(|item| name(item).to_lowercase().contains(&wanted)).collect())
}

/// Answers with a list; without a wish it is in the order in which it comes.
pub(crate) fn list(call: &Call<'_>, items: Vec<Value>) -> Outcome {
    let wanted = call.query("columns").filter(|text| !text.is_empty()).map(Columns::of);
    let cut = |items: Vec<Value>| match &wanted {
        None => Value::Array(items),
        Some(wanted) => Value::Array(items.into_iter().map(|item| Value::Object(wanted.take(&item))).collect()),
    };
    let page = page(call)?;
    let total = items.len();
    let mut items = if page.is_some() { filter(call, items)? } else { items };
    if let Some(sort) = call.query("sort").filter(|sort| !sort.is_empty()) {
        items.sort_by(|one, other| compare(field(one, sort), field(other, sort)));
        if call.flag("sort_reverse") {
            items.reverse();
        }
    }
    let Some(page) = page else { return Ok(Answer::of(cut(items))) };
    let filtered = items.len();
    let first = page.first(filtered)?;
    let shown: Vec<Value> = items.into_iter().skip(first).take(page.size).collect();
    Ok(page.answer(total, filtered, shown.len(), cut(shown)))
}

/// The same of things that are described only if they are on the page, unless a name is looked for or another order wanted.
pub(crate) fn list_described<T>(call: &Call<'_>, things: Vec<T>, describe: impl Fn(&T) -> Value) -> Outcome {
    let asks = |name: &str| call.query(name).is_some_and(|text| !text.is_empty());
    match page(call)? {
        Some(page) if !["name", "sort", "columns"].into_iter().any(asks) => {
            let first = page.first(things.len())?;
            let shown: Vec<Value> = things.iter().skip(first).take(page.size).map(describe).collect();
            Ok(page.answer(things.len(), things.len(), shown.len(), shown.into()))
        }
        _ => list(call, things.iter().map(describe).collect()),
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
mod tests {
    use super::*;

    #[test]
    fn columns_are_taken_by_paths() {
        let item = json!({"name": "a", "messages": 3, "arguments": {"x": 1, "y": {"z": 2}}, "a.b": 5, "tags": [1]});
        let take = |text: &str| Value::Object(Columns::of(text).take(&item));
        assert_eq!(take("name,messages,nothing,name"), json!({"name": "a", "messages": 3}));
        assert_eq!(take("arguments.x,arguments.y.z,arguments.q,a.b"), json!({"arguments": {"x": 1, "y": {"z": 2}}, "a.b": 5}));
        assert_eq!(take("arguments.x,arguments"), json!({"arguments": {"x": 1, "y": {"z": 2}}}));
        assert_eq!(take("tags.x,arguments.y.z.q,arguments.nothing"), json!({}));
    }

    /// Each looked for in each item they would be a billion look-ups.
    #[test]
    fn very_many_columns_cost_what_the_items_have() {
        let text = (0..50_000).map(|number| format!("c{number},arguments.c{number}")).collect::<Vec<String>>().join(",");
        let wanted = Columns::of(&text);
        let item = json!({"name": "a", "c7": 1, "arguments": {"c49999": 2, "other": 3}});
        for _ in 0..20_000 {
            assert_eq!(wanted.take(&item).len(), 2);
        }
        let deep = format!("a{}", ".a".repeat(100_000));
        assert_eq!(Columns::of(&deep).take(&item).len(), 0);
    }
}
