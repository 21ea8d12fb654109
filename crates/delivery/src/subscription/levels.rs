//! Levels that outlive a restart: once all records of a page have been read for their levels, these are written, unless the page is done
//! by then. After a restart only what came behind the last whole page has to be read again before the order is right.
//!
//! ```text
//! u8 form    0: u8 level of all; 1: a level in half a byte each, the first in the lower half; 2: a byte each
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};

use super::Subscription;
use crate::subscription_record::PAGE_OFFSETS;

const ALL: u8 = 0;
const HALVES: u8 = 1;
const WHOLE: u8 = 2;
const OFFSETS: usize = PAGE_OFFSETS as usize;

/// The levels of the records of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelPage(Bytes);

impl LevelPage {
    fn of(levels: &[u8]) -> Self {
        let mut out = BytesMut::with_capacity(1 + OFFSETS);
        if levels.iter().all(|level| *level == levels[0]) {
            out.put_slice(&[ALL, levels[0]]);
        } else if levels.iter().all(|level| *level < 16) {
            out.put_u8(HALVES);
            out.extend(levels.chunks(2).map(|pair| pair[0] | pair[1] << 4));
        } else {
            out.put_u8(WHOLE);
            out.put_slice(levels);
        }
        Self(out.freeze())
    }

    /// As it was written; `None`: it is damaged, or of another form.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (form, rest) = bytes.split_first()?;
        let length = [1, OFFSETS / 2, OFFSETS].get(usize::from(*form))?;
        (rest.len() == *length).then(|| Self(Bytes::copy_from_slice(bytes)))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn level(&self, place: usize) -> u8 {
        match self.0[0] {
            ALL => self.0[1],
            HALVES => self.0[1 + place / 2] >> (place % 2 * 4) & 15,
            _ => self.0[1 + place],
        }
    }
}

/// Which pages are written, and which are to be.
#[derive(Clone, Debug, Default)]
pub(super) struct LevelPages {
    /// To be written.
    complete: BTreeSet<u64>,
    stored: BTreeSet<u64>,
    /// To be deleted.
    gone: BTreeSet<u64>,
    /// Of an earlier life, until it is known whether there are levels.
    found: BTreeMap<u64, LevelPage>,
}

impl LevelPages {
    /// Nothing of it counts any more.
    pub fn forget(&mut self) {
        self.complete.clear();
        self.found.clear();
        self.gone.append(&mut self.stored);
    }

    /// Is nothing of it stored, or to be?
    pub fn is_empty(&self) -> bool {
        let Self { complete, stored, gone, found } = self;
        complete.is_empty() && stored.is_empty() && gone.is_empty() && found.is_empty()
    }

    pub fn has_changes(&self) -> bool {
        !self.complete.is_empty() || !self.gone.is_empty()
    }

    pub fn stored(&self) -> impl Iterator<Item = u64> + '_ {
        self.stored.iter().copied()
    }

    /// What was written last did not become durable.
    pub fn set_changed(&mut self) {
        self.complete.append(&mut self.stored);
    }
}

impl Subscription {
    /// A page of levels of an earlier life, before [`Subscription::set_levelled`].
    pub fn restore_levels(&mut self, page: u64, levels: LevelPage) {
        self.levels.stored.insert(page);
        self.levels.found.insert(page, levels);
    }

    /// Gives what is available the levels that were found.
    pub(super) fn apply_found_levels(&mut self) {
        for (page, levels) in std::mem::take(&mut self.levels.found) {
            let base = page * PAGE_OFFSETS;
            if base + PAGE_OFFSETS <= self.start {
                continue;
            }
            // They were there when the page was written, which lies behind them in the journal.
            self.reach(self.end, base + (PAGE_OFFSETS - 1));
            self.level_plain(base, base + (PAGE_OFFSETS - 1), &mut |offset| levels.level((offset - base) as usize));
        }
    }

    /// What is available up to `last` has levels: pages that end before it are complete.
    pub(super) fn note_levels(&mut self, first: u64, last: u64) {
        for page in first / PAGE_OFFSETS..(last + 1) / PAGE_OFFSETS {
            let base = page * PAGE_OFFSETS;
            if !self.levels.stored.contains(&page) && !self.ready.has_plain(base, base + (PAGE_OFFSETS - 1)) {
                self.levels.complete.insert(page);
            }
        }
    }

    /// Levels that are to be written; `None`: a page that is to be deleted.
    pub(super) fn take_level_changes(&mut self) -> Vec<(u64, Option<LevelPage>)> {
        let first_page = self.start / PAGE_OFFSETS;
        let passed: Vec<u64> = self.levels.stored.range(..first_page).copied().collect();
        for page in passed {
            self.levels.stored.remove(&page);
            self.levels.gone.insert(page);
        }
        let mut changes = Vec::new();
        for page in std::mem::take(&mut self.levels.complete).range(first_page..) {
            if let Some(levels) = self.level_page(*page) {
                self.levels.stored.insert(*page);
                self.levels.gone.remove(page);
                changes.push((*page, Some(levels)));
            }
        }
        changes.extend(std::mem::take(&mut self.levels.gone).into_iter().map(|page| (page, None)));
        changes
    }

    /// `None`: nothing of it is available or out.
    fn level_page(&self, page: u64) -> Option<LevelPage> {
        let base = page * PAGE_OFFSETS;
        let (mut levels, mut known) = (None::<Vec<u8>>, 0);
        let mut enter = |first: u64, last: u64, level: u8| {
            // What is done has no level any more: that of its neighbours makes the page small.
            let levels = levels.get_or_insert_with(|| vec![level; OFFSETS]);
            levels[(first - base) as usize..=(last - base) as usize].fill(level);
            known += last - first + 1;
        };
        self.ready.levels_within(base, base + (PAGE_OFFSETS - 1), &mut enter);
        for run in self.in_flight.within(base, base + (PAGE_OFFSETS - 1)) {
            if let Some(level) = run.value.level {
                enter(run.first, run.last, level);
            }
        }
        // A few records are read faster than a page is kept.
        const FEW: u64 = 16;
        levels.filter(|_| known > FEW).map(|levels| LevelPage::of(&levels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_as_small_as_its_levels_allow() {
        for (levels, bytes) in
            [(1, 2), (10, 1 + OFFSETS / 2), (16, 1 + OFFSETS / 2), (17, 1 + OFFSETS), (256, 1 + OFFSETS)]
        {
            let all: Vec<u8> = (0..OFFSETS).map(|place| (place * 7 % levels) as u8).collect();
            let page = LevelPage::of(&all);
            assert_eq!(page.as_bytes().len(), bytes, "{levels} levels");
            assert!(all.iter().enumerate().all(|(place, level)| page.level(place) == *level));
            assert_eq!(LevelPage::decode(page.as_bytes()), Some(page.clone()));
            assert_eq!(LevelPage::decode(&page.as_bytes()[1..]), None);
        }
    }

    #[test]
    fn what_was_read_once_is_not_read_again_after_a_restart() {
        let level = |offset: u64| (offset * 7 % 10) as u8;
        let mut subscription = Subscription::new(0);
        subscription.set_levelled(true);
        let read = 3 * PAGE_OFFSETS + 100;
        for first in (0..read).step_by(1000) {
            subscription.set_levels(first, (first + 999).min(read - 1), &mut |offset| level(offset));
        }
        // The first page is done, of the second something is out.
        for offset in 0..PAGE_OFFSETS {
            subscription.give_away(offset);
        }
        subscription.give(super::super::ConsumerId(1), PAGE_OFFSETS + 4, super::super::NO_LOCK);
        let changes = subscription.take_changes();
        assert_eq!(
            changes.levels.iter().map(|(page, levels)| (*page, levels.is_some())).collect::<Vec<_>>(),
            [(1, true), (2, true)]
        );
        assert!(!subscription.has_changes());
        let mut after = Subscription::restore(PAGE_OFFSETS, []);
        for (page, levels) in changes.levels {
            after.restore_levels(page, levels.expect("written"));
        }
        after.set_levelled(true);
        let rules = super::super::Rules {
            deliveries_max: None,
            unfinished_max: u64::MAX,
            lock: super::super::NO_LOCK,
            dead_letters: false,
            retry: None,
        };
        assert_eq!(
            after.unlevelled(read, &rules),
            Some((3 * PAGE_OFFSETS, read - 1)),
            "what came behind the last whole page"
        );
        after.accept_available(3 * PAGE_OFFSETS, read - 1);
        let mut last = (u8::MAX, 0);
        for _ in PAGE_OFFSETS..3 * PAGE_OFFSETS {
            let offset = after.head(read).expect("there is one");
            let next = (level(offset), u64::MAX - offset);
            assert!(next < last, "{offset} is next");
            last = next;
            after.give_away(offset).expect("it is available");
        }
        assert_eq!(after.head(read), None);
        assert_eq!(after.take_changes().levels, [(1, None), (2, None)], "pages go with what they tell of");
    }
}
