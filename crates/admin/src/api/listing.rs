//! Lists: searched by name, sorted, cut into pages. What is not on the page is not described, unless the order asks for it.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;

/// Items of a page when nothing is said, and at most.
const LIMIT_DEFAULT: u64 = 100;
const LIMIT_MAX: u64 = 1000;

/// What every list can be asked for.
pub(crate) const QUERY: &[(&str, &str)] = &[
    ("search", "Part of the name, in any case."),
    ("offset", "Items to leave out at the beginning."),
    ("limit", "Items of the page: 100, at most 1000."),
    ("sort", "A field of the items, with dots inside (rates.in_records); `-` before it: the largest first. By name if absent."),
];

/// A value by a path of names with dots between.
fn field<'v>(item: &'v Value, path: &str) -> Option<&'v Value> {
    match path.split_once('.') {
        None => item.get(path),
        Some((first, rest)) => field(item.get(first)?, rest),
    }
}

fn compare(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    let rank = |value: Option<&Value>| match value {
        None | Some(Value::Null) => 0,
        Some(Value::Bool(_)) => 1,
        Some(Value::Number(_)) => 2,
        Some(Value::String(_)) => 3,
        Some(_) => 4,
    };
    match (one, other) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal),
        (Some(Value::String(one)), Some(Value::String(other))) => one.cmp(other),
        (Some(Value::Bool(one)), Some(Value::Bool(other))) => one.cmp(other),
        _ => rank(one).cmp(&rank(other)),
    }
}

/// Answers with a list of things: their names, by which they are found and ordered, and how each is described. What is gone by the
/// time that it is described is left out.
///
/// # Errors
/// 400: a parameter that makes no sense.
pub(crate) fn list<T>(call: &Call<'_>, items: impl IntoIterator<Item = (String, T)>, describe: impl Fn(&T) -> Option<Value>) -> Outcome {
    let mut items: Vec<(String, T)> = items.into_iter().collect();
    if let Some(wanted) = call.query("search").filter(|wanted| !wanted.is_empty()) {
        let wanted = wanted.to_lowercase();
        items.retain(|(name, _)| name.to_lowercase().contains(&wanted));
    }
    items.sort_by(|(one, _), (other, _)| one.cmp(other));
    let total = items.len();
    let (offset, limit) = page(call)?;
    let page = |from: usize| from.min(total)..from.saturating_add(limit).min(total);
    let (descending, sort) = match call.query("sort").filter(|sort| !sort.is_empty()) {
        None => (false, "name"),
        Some(sort) => sort.strip_prefix('-').map_or((false, sort), |sort| (true, sort)),
    };
    let shown: Vec<Value> = if sort == "name" {
        if descending {
            items.reverse();
        }
        items[page(offset)].iter().filter_map(|(_, item)| describe(item)).collect()
    } else {
        let mut all: Vec<Value> = items.iter().filter_map(|(_, item)| describe(item)).collect();
        if !all.is_empty() && all.iter().all(|item| field(item, sort).is_none()) {
            return Err(Answer::invalid("sort", "items have no such field"));
        }
        // Stable: what is equal stays in the order of names.
        all.sort_by(|one, other| {
            let order = compare(field(one, sort), field(other, sort));
            if descending { order.reverse() } else { order }
        });
        all.into_iter().skip(offset).take(limit).collect()
    };
    Ok(Answer::of(json!({"items": shown, "total": total, "offset": offset})))
}

fn page(call: &Call<'_>) -> Result<(usize, usize), Refusal> {
    let limit = call.number("limit")?.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Answer::invalid("limit", format!("it is a number from 1 to {LIMIT_MAX}")));
    }
    let offset = call.number("offset")?.unwrap_or(0);
    Ok((usize::try_from(offset).unwrap_or(usize::MAX), limit as usize))
}
