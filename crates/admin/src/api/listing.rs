//! Lists: searched by name, sorted, cut into pages. What is not on the page, or before it, is not described unless the order asks for it, and
//! not held.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::schema::{Field, Kind};

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
    ("sort", Kind::Text, "A field of the items, with dots inside (rates.in_records); `-` before it: the largest first. By name if absent."),
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

/// Answers with a list of things: their names, by which they are found and ordered, and how each is described. What is gone by the
/// time that it is described is left out.
///
/// # Errors
/// 400: a parameter that makes no sense.
pub(crate) fn list<T>(call: &Call<'_>, items: impl IntoIterator<Item = (String, T)>, describe: impl Fn(&T) -> Option<Value>) -> Outcome {
    let wanted = call.query("search").map(str::to_lowercase).filter(|wanted| !wanted.is_empty());
    let (offset, limit) = page(call)?;
    let (descending, sort) = match call.query("sort").filter(|sort| !sort.is_empty()) {
        None => (false, "name"),
        Some(sort) => sort.strip_prefix('-').map_or((false, sort), |sort| (true, sort)),
    };
    let turned = |order: Ordering| if descending { order.reverse() } else { order };
    let (mut total, mut known) = (0_usize, false);
    let found = items.into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| name.to_lowercase().contains(wanted)));
    // Of those with one name the place in which they come says which is first, on every page alike.
    let found = found.zip(0_usize..).map(|((name, item), place)| (name, place, item)).inspect(|_| total += 1);
    let count = offset.saturating_add(limit);
    let shown: Vec<Value> = if sort == "name" {
        let page = first(found, count, |one, other| turned((&one.0, one.1).cmp(&(&other.0, other.1))));
        page.iter().skip(offset).filter_map(|(_, _, item)| describe(item)).collect()
    } else {
        let described = found.filter_map(|(name, place, item)| Some((name, place, describe(&item)?)));
        let described = described.inspect(|(_, _, shown)| known |= field(shown, sort).is_some());
        let page = first(described, count, |one, other| {
            // What is equal stays in the order of names.
            turned(compare(field(&one.2, sort), field(&other.2, sort))).then_with(|| (&one.0, one.1).cmp(&(&other.0, other.1)))
        });
        if !page.is_empty() && !known {
            return Err(Answer::invalid("sort", "items have no such field"));
        }
        page.into_iter().skip(offset).map(|(_, _, shown)| shown).collect()
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
