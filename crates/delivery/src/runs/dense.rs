//! Pages of offsets as bits, for parts of a map in which runs are so short that a bit for every offset takes less than they do.
//!
//! A page has [`PAGE`] offsets and is 512 bytes; there is one for each value that is frequent in it.

use std::collections::BTreeMap;

use super::Run;

/// Offsets of a page.
pub(super) const PAGE: u64 = 1 << 12;
const WORDS: usize = (PAGE / 64) as usize;

/// Which offsets of a page have a value.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    words: Box<[u64; WORDS]>,
    count: u16,
}

impl Bits {
    fn new() -> Self {
        Self { words: Box::new([0; WORDS]), count: 0 }
    }

    fn has(&self, at: u16) -> bool {
        self.words[usize::from(at) / 64] >> (at % 64) & 1 != 0
    }

    fn set(&mut self, first: u16, last: u16) {
        for at in first..=last {
            self.words[usize::from(at) / 64] |= 1 << (at % 64);
        }
        self.count += last - first + 1;
    }

    /// Takes out those in the range; `None`: none are left.
    fn clear(&mut self, first: u16, last: u16) {
        for at in first..=last {
            let (word, bit) = (&mut self.words[usize::from(at) / 64], 1 << (at % 64));
            self.count -= u16::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    /// The first one in the range whose bit is `set`. Looks at no more words than the range has: most ranges are a single offset.
    fn next(&self, first: u16, last: u16, set: bool) -> Option<u16> {
        let (mut at, end) = (usize::from(first) / 64, usize::from(last) / 64);
        let flip = if set { 0 } else { u64::MAX };
        let mut word = (self.words.get(at)? ^ flip) & (u64::MAX << (first % 64));
        while word == 0 && at < end {
            at += 1;
            word = self.words.get(at)? ^ flip;
        }
        let found = if word == 0 { return None } else { (at * 64) as u16 + word.trailing_zeros() as u16 };
        (found <= last).then_some(found)
    }

    /// The first run in the range.
    fn run(&self, first: u16, last: u16) -> Option<(u16, u16)> {
        let from = self.next(first, last, true)?;
        let until = self.next(from, last, false).map_or(last, |end| end - 1);
        Some((from, until))
    }
}

/// What became of offsets that were to be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// The page has no bits for the value.
    No,
    Yes,
    /// With them all offsets of the page have the value: it is no page of bits any more.
    Full,
}

/// All pages of a map, by number; none is empty, but while it is made.
#[derive(Clone, Debug)]
pub(super) struct Pages<V> {
    by_number: BTreeMap<u64, Vec<(V, Bits)>>,
}

impl<V> Default for Pages<V> {
    fn default() -> Self {
        Self { by_number: BTreeMap::new() }
    }
}

/// The part of `first..=last` that lies in a page, as places in it.
fn part(page: u64, first: u64, last: u64) -> (u16, u16) {
    let base = page * PAGE;
    ((first.max(base) - base) as u16, (last.min(base + PAGE - 1) - base) as u16)
}

impl<V: Copy + PartialEq> Pages<V> {
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Makes a page of bits for a value, or finds the one that is there.
    pub fn make(&mut self, page: u64, value: V) {
        let values = self.by_number.entry(page).or_default();
        if values.iter().all(|(other, _)| *other != value) {
            values.push((value, Bits::new()));
        }
    }

    /// Enters offsets of one page, if it has bits for the value.
    pub fn insert(&mut self, first: u64, last: u64, value: V) -> Entered {
        let page = first / PAGE;
        let Some(values) = self.by_number.get_mut(&page) else { return Entered::No };
        let Some(at) = values.iter().position(|(other, _)| *other == value) else { return Entered::No };
        let (low, high) = part(page, first, last);
        values[at].1.set(low, high);
        if u64::from(values[at].1.count) < PAGE {
            return Entered::Yes;
        }
        values.swap_remove(at);
        if values.is_empty() {
            self.by_number.remove(&page);
        }
        Entered::Full
    }

    pub fn get(&self, offset: u64) -> Option<V> {
        let values = self.by_number.get(&(offset / PAGE))?;
        values.iter().find(|(_, bits)| bits.has((offset % PAGE) as u16)).map(|(value, _)| *value)
    }

    /// Adds the runs of the range with values that are wanted, page by page and value by value.
    pub fn select(&self, first: u64, last: u64, wanted: impl Fn(&V) -> bool, out: &mut Vec<Run<V>>) {
        for (page, values) in self.by_number.range(first / PAGE..=last / PAGE) {
            let base = page * PAGE;
            for (value, bits) in values.iter().filter(|(value, _)| wanted(value)) {
                let (mut low, high) = part(*page, first, last);
                while let Some((from, until)) = bits.run(low, high) {
                    out.push(Run { first: base + u64::from(from), last: base + u64::from(until), value: *value });
                    if until == high {
                        break;
                    }
                    low = until + 1;
                }
            }
        }
    }

    /// The first run from `from` on that begins before or at `last`, cut to the range.
    pub fn next(&self, from: u64, last: u64) -> Option<Run<V>> {
        for (page, values) in self.by_number.range(from / PAGE..=last / PAGE) {
            let (low, high) = part(*page, from, last);
            let runs = values
                .iter()
                .filter_map(|(value, bits)| bits.run(low, high).map(|(first, last)| (first, last, *value)));
            if let Some((first, last, value)) = runs.min_by_key(|(first, _, _)| *first) {
                let base = page * PAGE;
                return Some(Run { first: base + u64::from(first), last: base + u64::from(last), value });
            }
        }
        None
    }

    /// Takes out whatever lies in the range; in order, if `out` is given.
    pub fn take(&mut self, first: u64, last: u64, out: &mut Vec<Run<V>>) {
        let mut from = first;
        while let Some(run) = self.next(from, last) {
            let page = run.first / PAGE;
            let Some(values) = self.by_number.get_mut(&page) else { break };
            let (low, high) = part(page, run.first, run.last);
            if let Some((_, bits)) = values.iter_mut().find(|(value, _)| *value == run.value) {
                bits.clear(low, high);
            }
            values.retain(|(_, bits)| bits.count > 0);
            if values.is_empty() {
                self.by_number.remove(&page);
            }
            out.push(run);
            if run.last == last {
                break;
            }
            from = run.last + 1;
        }
    }
}
