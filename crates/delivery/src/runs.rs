//! A map from offsets to values that keeps neighbours with the same value as one run.

use std::collections::BTreeMap;

/// Offsets `first` to `last`, both included, with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run<V> {
    pub first: u64,
    pub last: u64,
    pub value: V,
}

/// Runs that do not overlap; neighbours with equal values are one run.
#[derive(Clone, Debug)]
pub(crate) struct Runs<V> {
    by_first: BTreeMap<u64, (u64, V)>,
    /// Offsets in all runs.
    count: u64,
}

impl<V> Default for Runs<V> {
    fn default() -> Self {
        Self { by_first: BTreeMap::new(), count: 0 }
    }
}

impl<V: Copy + PartialEq> Runs<V> {
    /// Offsets, not runs.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.by_first.is_empty()
    }

    pub fn first(&self) -> Option<Run<V>> {
        self.by_first.first_key_value().map(|(first, (last, value))| Run { first: *first, last: *last, value: *value })
    }

    pub fn iter(&self) -> impl Iterator<Item = Run<V>> + '_ {
        self.by_first.iter().map(|(first, (last, value))| Run { first: *first, last: *last, value: *value })
    }

    /// The parts of runs that lie in `first..=last`, in order.
    pub fn within(&self, first: u64, last: u64) -> impl Iterator<Item = Run<V>> + '_ {
        let before = self.by_first.range(..first).next_back().filter(|(_, (end, _))| *end >= first);
        let inside = if first <= last { Some(self.by_first.range(first..=last)) } else { None };
        before.into_iter().chain(inside.into_iter().flatten()).filter(move |_| first <= last).map(move |(start, (end, value))| Run {
            first: (*start).max(first),
            last: (*end).min(last),
            value: *value,
        })
    }

    pub fn get(&self, offset: u64) -> Option<V> {
        self.within(offset, offset).next().map(|run| run.value)
    }

    /// Enters a run that overlaps no other.
    pub fn insert(&mut self, first: u64, last: u64, value: V) {
        debug_assert!(first <= last && self.within(first, last).next().is_none(), "runs do not overlap");
        self.count += last - first + 1;
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

    /// Takes out whatever lies in `first..=last`, in order.
    pub fn take(&mut self, first: u64, last: u64) -> Vec<Run<V>> {
        let taken: Vec<Run<V>> = self.within(first, last).collect();
        for run in &taken {
            let Some((start, (end, value))) = self.by_first.range(..=run.first).next_back().map(|(start, held)| (*start, *held)) else { break };
            self.by_first.remove(&start);
            if start < run.first {
                self.by_first.insert(start, (run.first - 1, value));
            }
            if run.last < end {
                self.by_first.insert(run.last + 1, (end, value));
            }
            self.count -= run.last - run.first + 1;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand random steps beside a plain map.
    #[test]
    fn runs_agree_with_a_plain_map() {
        let mut random = 7u64;
        let mut next = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let (mut runs, mut plain) = (Runs::default(), BTreeMap::new());
        for _ in 0..1000 {
            let first = next(60);
            let last = first + next(12);
            let taken: Vec<u64> = runs.take(first, last).iter().flat_map(|run| run.first..=run.last).collect();
            assert_eq!(taken, (first..=last).filter(|offset| plain.remove(offset).is_some()).collect::<Vec<_>>());
            let one = next(72);
            assert_eq!(runs.take_one(one), plain.remove(&one));
            if next(3) > 0 {
                let value = next(3);
                runs.insert(first, last, value);
                plain.extend((first..=last).map(|offset| (offset, value)));
            }
            assert_eq!(runs.count(), plain.len() as u64);
            let flat: Vec<(u64, u64)> = runs.iter().flat_map(|run| (run.first..=run.last).map(move |offset| (offset, run.value))).collect();
            assert_eq!(flat, plain.iter().map(|(offset, value)| (*offset, *value)).collect::<Vec<_>>());
            let all: Vec<Run<u64>> = runs.iter().collect();
            assert!(all.windows(2).all(|pair| pair[0].last + 1 < pair[1].first || pair[0].value != pair[1].value), "neighbours are one run");
        }
    }
}
