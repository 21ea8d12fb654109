//! Lists: searched by name, sorted, cut into pages. What is not on the page, or before it, is not described unless the order asks for it, and
//! not held. Of items that are described no more than one is there at a time, beside their texts.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value;

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::schema::{Field, Kind};
use crate::answers::{Lines, Part, key_of};

/// Items of a page when nothing is said, and at most.
const LIMIT_DEFAULT: u64 = 100;
const LIMIT_MAX: u64 = 1000;
/// Items that are held before those that are not on the page are looked for.
const HELD_MIN: usize = 4096;

/// What every list can be asked for.
pub(crate) const QUERY: &[Field] = &[
    ("search", Kind::Text, "Part of the name, in any case."),
    ("offset", Kind::Int, "Items to leave out at the beginning."),
    ("limit", Kind::Int, "Items of the page: 100, at most 1000."),
    (
        "sort",
        Kind::Text,
        "A field of the items, with dots inside (rates.in_records); `-` before it: the largest first. By name if absent.",
    ),
];

/// A value by a path of names with dots between.
fn field<'v>(item: &'v Value, path: &str) -> Option<&'v Value> {
    match path.split_once('.') {
        None => item.get(path),
        Some((first, rest)) => field(item.get(first)?, rest),
    }
}

/// What is not there is null.
fn compare(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        _ => 4,
    };
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        _ => rank(one).cmp(&rank(other)),
    }
}

/// Answers with a list of things: their names, by which they are found and ordered, and how each is described. What is gone by the
/// time that it is described is left out.
///
/// # Errors
/// 400: a parameter that makes no sense.
pub(crate) fn list<T>(
    call: &Call<'_>,
    items: impl IntoIterator<Item = (String, T)>,
    describe: impl Fn(&T) -> Option<Value>,
) -> Outcome {
    let wanted = call.query("search").map(str::to_lowercase).filter(|wanted| !wanted.is_empty());
    let (offset, limit) = page(call)?;
    let (descending, sort) = match call.query("sort").filter(|sort| !sort.is_empty()) {
        None => (false, "name"),
        Some(sort) => sort.strip_prefix('-').map_or((false, sort), |sort| (true, sort)),
    };
    let turned = |order: Ordering| if descending { order.reverse() } else { order };
    let mut total = 0_usize;
    let found =
        items.into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| name.to_lowercase().contains(wanted)));
    // Of those with one name the place in which they come says which is first, on every page alike.
    let found = found.zip(0_usize..).map(|((name, item), place)| (name, place, item)).inspect(|_| total += 1);
    let (count, mut text) = (offset.saturating_add(limit), call.text.take());
    if sort == "name" {
        let page = first(found, count, |one, other| turned((&one.0, one.1).cmp(&(&other.0, other.1))));
        let shown = page.iter().skip(offset).filter_map(|(_, _, item)| describe(item));
        text.object(framed(Part::items(shown), total, offset));
    } else {
        // What is equal stays in the order of names.
        type Key = (Value, String, usize);
        let order = |one: &Key, other: &Key| {
            turned(compare(&one.0, &other.0)).then_with(|| (&one.1, one.2).cmp(&(&other.1, other.2)))
        };
        let (mut lines, mut any, mut known) = (Lines::new(count, order), false, false);
        for (name, place, item) in found {
            let Some(shown) = describe(&item) else { continue };
            let value = field(&shown, sort);
            (any, known) = (true, known || value.is_some());
            let (key, key_bytes) = key_of(value);
            let key_bytes = key_bytes + name.len();
            lines.put(&mut text, ((key, name, place), key_bytes), &shown);
        }
        if any && !known {
            return Err(Answer::invalid("sort", "items have no such field"));
        }
        text.object(framed(Part::Written(Box::new(|text| lines.write(text, offset))), total, offset));
    }
    Ok(Answer::of_text(text))
}

fn framed(items: Part<'_>, total: usize, offset: usize) -> BTreeMap<&'static str, Part<'_>> {
    BTreeMap::from([("items", items), ("total", Part::Value(total.into())), ("offset", Part::Value(offset.into()))])
}

/// The first so many in an order. No more than about twice as many are held at any time, however many come.
fn first<T>(items: impl Iterator<Item = T>, count: usize, order: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    let most = count.saturating_mul(2).max(HELD_MIN);
    let mut held: Vec<T> = Vec::new();
    for item in items {
        held.push(item);
        if held.len() >= most {
            held.select_nth_unstable_by(count, &order);
            held.truncate(count);
        }
    }
    held.sort_by(&order);
    held.truncate(count);
    held
}

fn page(call: &Call<'_>) -> Result<(usize, usize), Refusal> {
    let limit = call.number("limit")?.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Answer::invalid("limit", format!("it is a number from 1 to {LIMIT_MAX}")));
    }
    let offset = call.number("offset")?.unwrap_or(0);
    Ok((usize::try_from(offset).unwrap_or(usize::MAX), limit as usize))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn the_first_are_found_without_holding_all() {
        let held = Rc::new(());
        // All numbers below 100,003, which is prime, in an order of their own.
        let numbers = (0..100_003_u64).map(|number| {
            assert!(Rc::strong_count(&held) <= HELD_MIN + 2, "no more are held");
            (number * 48_271 % 100_003, Rc::clone(&held))
        });
        let found = first(numbers, 10, |one, other| one.0.cmp(&other.0));
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        let all = first((0..5).rev(), usize::MAX, u64::cmp);
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }
}
