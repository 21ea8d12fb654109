//! Items of a list as texts, held until their order is known: only those that may be on the page.

use std::cmp::Ordering;

use serde_json::Value;

use super::Text;

/// Lines that are held before those that are not on the page are looked for.
const HELD_MIN: usize = 4096;
/// What a line takes in memory beside its texts.
const LINE_BYTES: usize = 128;

/// An item.
struct Line<K> {
    key: K,
    text: Box<[u8]>,
    /// What it takes of the account.
    bytes: usize,
}

/// The first so many items in an order by their keys. No more than about twice as many are held at any time, however many come.
pub(crate) struct Lines<K, O> {
    order: O,
    count: usize,
    held: Vec<Line<K>>,
    /// Items that would be held if there were room.
    short: usize,
}

impl<K, O: Fn(&K, &K) -> Ordering> Lines<K, O> {
    pub fn new(count: usize, order: O) -> Self {
        Self { order, count, held: Vec::new(), short: 0 }
    }

    /// One more; what its key takes beside its place is `key_bytes`.
    pub fn put(&mut self, to: &mut Text, (key, key_bytes): (K, usize), item: &Value) {
        let most = self.count.saturating_mul(2).max(HELD_MIN);
        let text = serde_json::to_vec(item).unwrap_or_default().into_boxed_slice();
        let bytes = LINE_BYTES + key_bytes + text.len();
        if self.short < most {
            to.take(bytes);
        }
        if to.is_short() {
            self.short += 1 + std::mem::take(&mut self.held).len();
            return;
        }
        self.held.push(Line { key, text, bytes });
        if self.held.len() >= most {
            self.held.select_nth_unstable_by(self.count, |one, other| (self.order)(&one.key, &other.key));
            self.held.drain(self.count..).for_each(|line| to.give(line.bytes));
        }
    }

    /// Those of the page, in order, as elements of a list.
    pub fn write(mut self, to: &mut Text, offset: usize) {
        self.held.sort_unstable_by(|one, other| (self.order)(&one.key, &other.key));
        to.raw(b"[");
        for (place, line) in self.held.drain(..).take(self.count).skip(offset).enumerate() {
            if place > 0 {
                to.raw(b",");
            }
            to.give(line.bytes);
            to.raw(&line.text);
        }
        to.raw(b"]");
    }

    /// How many a page from `offset` on has.
    pub fn shown(&self, offset: usize) -> usize {
        self.held.len().min(self.count).saturating_sub(offset)
    }
}

/// What a value takes as a key, about: only words and numbers are ordered among themselves.
pub(crate) fn key_of(value: Option<&Value>) -> (Value, usize) {
    match value {
        None => (Value::Null, 0),
        Some(Value::Array(_) | Value::Object(_)) => (Value::Array(Vec::new()), 0),
        Some(value) => (value.clone(), value.as_str().map_or(0, str::len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_found_without_holding_all() {
        let (mut text, mut lines) = (Text::default(), Lines::new(10, u64::cmp));
        // All numbers below 100,003, which is prime, in an order of their own.
        for number in 0..100_003_u64 {
            let number = number * 48_271 % 100_003;
            lines.put(&mut text, (number, 0), &number.into());
            assert!(lines.held.len() <= HELD_MIN);
        }
        lines.write(&mut text, 2);
        assert_eq!(text.to_vec(), b"[2,3,4,5,6,7,8,9]");
        let (mut text, mut lines) = (Text::default(), Lines::new(usize::MAX, u64::cmp));
        (0..5).rev().for_each(|number| lines.put(&mut text, (number, 0), &number.into()));
        assert_eq!(lines.shown(1), 4);
        lines.write(&mut text, 0);
        assert_eq!(text.to_vec(), b"[0,1,2,3,4]");
    }
}
