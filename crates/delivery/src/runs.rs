//! A map from offsets to values that keeps neighbours with the same value as one run. Where runs of a value are short and many, they are kept as
//! bits: the cost of a value that is anywhere is at most a bit an offset, and that of a long run is that of a run.

use std::collections::BTreeMap;

mod dense;

use dense::{Entered, PAGE, Pages};

/// Offsets `first` to `last`, both included, with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run<V> {
    pub first: u64,
    pub last: u64,
    pub value: V,
}

/// Runs of one page that have one value, from which on they are bits.
const RUNS_MAX: usize = 24;
/// Looked after for that once in so many insertions.
const LOOK_EVERY: u32 = 16;

/// Runs that do not overlap; neighbours with equal values are one run, but where they are bits of pages.
#[derive(Clone, Debug)]
pub(crate) struct Runs<V> {
    by_first: BTreeMap<u64, (u64, V)>,
    dense: Pages<V>,
    /// Offsets in all runs.
    count: u64,
    inserted: u32,
}

impl<V> Default for Runs<V> {
    fn default() -> Self {
        Self { by_first: BTreeMap::new(), dense: Pages::default(), count: 0, inserted: 0 }
    }
}

impl<V: Copy + PartialEq> Runs<V> {
    /// Offsets, not runs.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn first(&self) -> Option<Run<V>> {
        if self.dense.is_empty() {
            return self.by_first.first_key_value().map(|(first, (last, value))| Run {
                first: *first,
                last: *last,
                value: *value,
            });
        }
        self.iter().next()
    }

    pub fn iter(&self) -> Within<'_, V> {
        self.within(0, u64::MAX)
    }

    /// The parts of runs that lie in `first..=last`, in order.
    pub fn within(&self, first: u64, last: u64) -> Within<'_, V> {
        if self.is_empty() {
            return Within { runs: self, first, last, head: None, inside: None, from: None, pending: None };
        }
        let before = self.by_first.range(..first).next_back().filter(|(_, (end, _))| *end >= first);
        let head = before.map(|(start, (end, value))| Run { first: *start, last: *end, value: *value });
        let inside = (first <= last).then(|| self.by_first.range(first..=last));
        Within { runs: self, first, last, head, inside, from: Some(first), pending: None }
    }

    pub fn get(&self, offset: u64) -> Option<V> {
        if !self.dense.is_empty()
            && let Some(value) = self.dense.get(offset)
        {
            return Some(value);
        }
        let (_, (end, value)) = self.by_first.range(..=offset).next_back()?;
        (*end >= offset).then_some(*value)
    }

    /// Enters a run that overlaps no other.
    pub fn insert(&mut self, first: u64, last: u64, value: V) {
        debug_assert!(first <= last && self.within(first, last).next().is_none(), "runs do not overlap");
        self.count += last - first + 1;
        let mut rest = Some(first);
        while let Some(from) = rest.filter(|_| !self.dense.is_empty()) {
            let until = last.min(from | (PAGE - 1));
            match self.dense.insert(from, until, value) {
                Entered::No => self.insert_run(from, until, value),
                Entered::Yes => {}
                Entered::Full => self.insert_run(until / PAGE * PAGE, until | (PAGE - 1), value),
            }
            rest = (until < last).then_some(until + 1);
        }
        if let Some(from) = rest {
            self.insert_run(from, last, value);
        }
        self.inserted = self.inserted.wrapping_add(1);
        if self.inserted.is_multiple_of(LOOK_EVERY) && self.by_first.len() > RUNS_MAX {
            self.condense(first / PAGE, value);
        }
    }

    /// Makes bits of the runs of a page that have this value, if they are many.
    fn condense(&mut self, page: u64, value: V) {
        let (base, end) = (page * PAGE, page * PAGE + (PAGE - 1));
        let of_page = self.by_first.range(base..=end).filter(|(_, (last, held))| *held == value && *last <= end);
        let runs: Vec<(u64, u64)> = of_page.map(|(first, (last, _))| (*first, *last)).collect();
        if runs.len() <= RUNS_MAX {
            return;
        }
        for (first, last) in runs {
            self.by_first.remove(&first);
            self.dense.make(page, value);
            if self.dense.insert(first, last, value) == Entered::Full {
                self.insert_run(base, end, value);
            }
        }
    }

    fn insert_run(&mut self, first: u64, last: u64, value: V) {
        let (mut first, mut last) = (first, last);
        if let Some((before, (end, held))) = self.by_first.range(..first).next_back()
            && *end + 1 == first
            && *held == value
        {
            first = *before;
        }
        if let Some((end, held)) = last.checked_add(1).and_then(|next| self.by_first.get(&next))
            && *held == value
        {
            let (end, next) = (*end, last + 1);
            self.by_first.remove(&next);
            last = end;
        }
        self.by_first.insert(first, (last, value));
    }

    /// Takes out one offset.
    pub fn take_one(&mut self, offset: u64) -> Option<V> {
        if !self.dense.is_empty() {
            let mut taken = Vec::new();
            self.dense.take(offset, offset, &mut taken);
            if let Some(run) = taken.pop() {
                self.count -= 1;
                return Some(run.value);
            }
        }
        let (start, (end, value)) = self.by_first.range(..=offset).next_back().map(|(start, held)| (*start, *held))?;
        if end < offset {
            return None;
        }
        if start == offset {
            self.by_first.remove(&start);
        } else if let Some((end, _)) = self.by_first.get_mut(&start) {
            *end = offset - 1;
        }
        if offset < end {
            self.by_first.insert(offset + 1, (end, value));
        }
        self.count -= 1;
        Some(value)
    }

    /// Parts of runs in `first..=last` with values that are wanted, in order. Where many values share a page, the others' bits are not looked at.
    pub fn select(&self, first: u64, last: u64, wanted: impl Fn(&V) -> bool) -> Vec<Run<V>> {
        if first > last {
            return Vec::new();
        }
        let head = self.by_first.range(..first).next_back().filter(|(_, (end, _))| *end >= first);
        let all = head.into_iter().chain(self.by_first.range(first..=last)).filter(|(_, (_, value))| wanted(value));
        let mut found: Vec<Run<V>> = all
            .map(|(start, (end, value))| Run { first: first.max(*start), last: last.min(*end), value: *value })
            .collect();
        if !self.dense.is_empty() {
            self.dense.select(first, last, wanted, &mut found);
            found.sort_unstable_by_key(|run| run.first);
        }
        found
    }

    /// Takes out whatever lies in `first..=last`, in order.
    pub fn take(&mut self, first: u64, last: u64) -> Vec<Run<V>> {
        if self.is_empty() {
            return Vec::new();
        }
        let taken: Vec<Run<V>> = self.within(first, last).collect();
        for run in &taken {
            self.count -= run.last - run.first + 1;
            let found = self.by_first.range(..=run.first).next_back().map(|(start, held)| (*start, *held));
            let Some((start, (end, value))) = found.filter(|(_, (end, _))| *end >= run.first) else { continue };
            self.by_first.remove(&start);
            if start < run.first {
                self.by_first.insert(start, (run.first - 1, value));
            }
            if run.last < end {
                self.by_first.insert(run.last + 1, (end, value));
            }
        }
        if !self.dense.is_empty() {
            self.dense.take(first, last, &mut Vec::new());
        }
        taken
    }
}

/// Parts of runs, in order.
pub(crate) struct Within<'a, V> {
    runs: &'a Runs<V>,
    first: u64,
    last: u64,
    /// A run that begins before the range.
    head: Option<Run<V>>,
    inside: Option<std::collections::btree_map::Range<'a, u64, (u64, V)>>,
    /// Where bits are looked for next; `None`: there are no more.
    from: Option<u64>,
    /// A run that was looked at.
    pending: Option<Run<V>>,
}

impl<V: Copy + PartialEq> Iterator for Within<'_, V> {
    type Item = Run<V>;

    fn next(&mut self) -> Option<Run<V>> {
        if self.first > self.last {
            return None;
        }
        if self.pending.is_none() {
            let inside = || {
                self.inside.as_mut()?.next().map(|(start, (end, value))| Run {
                    first: *start,
                    last: *end,
                    value: *value,
                })
            };
            self.pending = self.head.take().or_else(inside).map(|run| Run {
                first: run.first.max(self.first),
                last: run.last.min(self.last),
                value: run.value,
            });
        }
        let bits = if self.runs.dense.is_empty() {
            None
        } else {
            self.from.and_then(|from| self.runs.dense.next(from, self.last))
        };
        match (bits, self.pending) {
            (None, _) => {
                self.from = None;
                self.pending.take()
            }
            (Some(bits), Some(run)) if run.first < bits.first => self.pending.take(),
            (Some(bits), _) => {
                self.from = bits.last.checked_add(1).filter(|next| *next <= self.last);
                Some(bits)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(runs: &Runs<u64>, first: u64, last: u64) -> Vec<(u64, u64)> {
        runs.within(first, last).flat_map(|run| (run.first..=run.last).map(move |offset| (offset, run.value))).collect()
    }

    /// Thousands of random steps beside a plain map: few offsets, where runs are long, and many, where they become bits.
    #[test]
    fn runs_agree_with_a_plain_map() {
        let mut random = 7u64;
        let mut next = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        for (offsets, steps, longest, values) in
            [(60, 1000, 12, 3), (3 * PAGE, 30_000, 3, 3), (2 * PAGE, 20_000, 1, 1), (3 * PAGE, 3_000, 2 * PAGE, 2)]
        {
            let (mut runs, mut plain, mut dense) = (Runs::default(), BTreeMap::new(), false);
            for step in 0..steps {
                let first = next(offsets);
                let last = first + next(longest);
                let span = if next(50) == 0 { (first / 2, first / 2 + offsets / 3) } else { (first, last) };
                let taken: Vec<(u64, u64)> = runs
                    .take(span.0, span.1)
                    .iter()
                    .flat_map(|run| (run.first..=run.last).map(|one| (one, run.value)))
                    .collect();
                let expected: Vec<(u64, u64)> =
                    plain.range(span.0..=span.1).map(|(offset, value)| (*offset, *value)).collect();
                plain.retain(|offset, _| !(span.0..=span.1).contains(offset));
                assert_eq!(taken, expected);
                let one = next(offsets + 12);
                assert_eq!(runs.take_one(one), plain.remove(&one));
                if next(4) > 0 {
                    runs.take(first, last);
                    plain.retain(|offset, _| !(first..=last).contains(offset));
                    let value = next(values);
                    runs.insert(first, last, value);
                    plain.extend((first..=last).map(|offset| (offset, value)));
                }
                assert_eq!(runs.get(one), plain.get(&one).copied());
                assert_eq!(runs.count(), plain.len() as u64);
                assert_eq!(
                    runs.first().map(|run| (run.first, run.value)),
                    plain.first_key_value().map(|(offset, value)| (*offset, *value))
                );
                dense |= !runs.dense.is_empty();
                if step % 50 == 0 || offsets < 100 {
                    assert_eq!(
                        flat(&runs, 0, u64::MAX),
                        plain.iter().map(|(offset, value)| (*offset, *value)).collect::<Vec<_>>()
                    );
                    assert_eq!(
                        flat(&runs, first, first + 500),
                        plain.range(first..=first + 500).map(|(offset, value)| (*offset, *value)).collect::<Vec<_>>()
                    );
                    let all: Vec<Run<u64>> = runs.iter().collect();
                    let whole = |pair: &[Run<u64>]| pair[0].last + 1 < pair[1].first || pair[0].value != pair[1].value;
                    assert!(dense || all.windows(2).all(whole), "neighbours are one run");
                }
            }
            assert_eq!(dense, offsets > 100 && longest < PAGE, "{offsets} offsets");
        }
    }

    /// Ten million offsets with ten values at random take a bit and a half each and value; when one value has all, it is one run.
    #[test]
    fn what_is_scattered_is_compact() {
        let mut levels: Vec<Runs<()>> = (0..10).map(|_| Runs::default()).collect();
        let mut random = 1u64;
        let count = 50 * PAGE;
        for offset in 0..count {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            levels[(random >> 40) as usize % 10].insert(offset, offset, ());
        }
        assert!(
            levels.iter().all(|runs| runs.by_first.len() < 1000),
            "{:?}",
            levels.iter().map(|runs| runs.by_first.len()).collect::<Vec<_>>()
        );
        assert_eq!(levels.iter().map(Runs::count).sum::<u64>(), count);
        let mut all = Runs::default();
        for offset in (0..count).step_by(2).chain((1..count).step_by(2)) {
            all.insert(offset, offset, ());
        }
        assert!(all.dense.is_empty());
        assert_eq!((all.by_first.len(), all.first()), (1, Some(Run { first: 0, last: count - 1, value: () })));
    }
}
