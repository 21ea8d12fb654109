//! What was done out of order, on its way to the disk. Writing a page for each of its acknowledgements would cost a page for each: so what
//! is new is written as a list, and pages only when lists have come to as much as the pages would take. Then the lists go. An acknowledgement
//! that is anywhere costs a few bytes in a list and its share of a page that is written once for many.

use std::collections::BTreeMap;

use super::Done;
use crate::runs::Run;
use crate::subscription_record::{PAGE_OFFSETS, RUN_BYTES, page_bytes_max};

/// What a record takes beside its value, about: its entry in a chunk's directory, and its key.
const RECORD_BYTES: usize = 96;
/// What a run takes in a list, about.
const RUN_IN_LIST: usize = 2;

/// What happened to offsets since pages were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Acks {
    /// Since something was written.
    new: Vec<Run<Done>>,
    /// Pages that lack what is in lists, with how many runs.
    lagging: BTreeMap<u64, usize>,
    /// Numbers of lists that are durable, or on their way, and bytes of all.
    lists: Vec<u64>,
    bytes: usize,
    /// Number of the next list.
    next: u64,
    /// Lists that are on their way and count once they are durable, by number.
    open: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Lists that are to be deleted.
    gone: Vec<u64>,
}

/// How what is new is to be written.
pub(super) enum Written {
    /// As the list with this number.
    List(u64, Vec<Run<Done>>),
    /// With these pages.
    Pages(Vec<u64>),
}

impl Acks {
    /// These lists were found.
    pub fn restore(&mut self, number: u64, bytes: usize, runs: &[Run<Done>]) {
        self.lists.push(number);
        self.next = self.next.max(number + 1);
        self.bytes += RECORD_BYTES + bytes;
        runs.iter().for_each(|run| self.lag(run));
    }

    fn lag(&mut self, run: &Run<Done>) {
        for page in run.first / PAGE_OFFSETS..=run.last / PAGE_OFFSETS {
            *self.lagging.entry(page).or_default() += 1;
        }
    }

    pub fn push(&mut self, first: u64, last: u64, value: Done) {
        match self.new.last_mut() {
            Some(run) if run.last + 1 == first && run.value == value => run.last = last,
            _ => self.new.push(Run { first, last, value }),
        }
    }

    /// Is nothing new, and in no list?
    pub fn is_empty(&self) -> bool {
        let Self { new, lagging, lists, open, gone, .. } = self;
        new.is_empty() && lagging.is_empty() && lists.is_empty() && open.is_empty() && gone.is_empty()
    }

    pub fn has_changes(&self) -> bool {
        !self.new.is_empty() || !self.gone.is_empty()
    }

    pub fn lists(&self) -> impl Iterator<Item = u64> + '_ {
        self.lists.iter().chain(self.open.keys()).copied()
    }

    /// A list of these runs is written, which counts if it becomes durable; its number.
    pub fn begin(&mut self, runs: &[(u64, u64)]) -> u64 {
        let number = self.new_number();
        self.open.insert(number, runs.to_vec());
        number
    }

    /// The list is durable, or not; its runs if it is, and still counts.
    pub fn end(&mut self, number: u64, durable: bool) -> Vec<(u64, u64)> {
        let Some(runs) = self.open.remove(&number) else { return Vec::new() };
        if !durable {
            // Whether it is there is not known of a journal that has stopped.
            self.gone.push(number);
            return Vec::new();
        }
        self.lists.push(number);
        self.bytes += RECORD_BYTES + runs.len() * RUN_IN_LIST;
        runs.iter().for_each(|(first, last)| self.lag(&Run { first: *first, last: *last, value: Done::Archived }));
        runs
    }

    fn new_number(&mut self) -> u64 {
        if self.lists.is_empty() && self.open.is_empty() && self.gone.is_empty() {
            // Few numbers are used again and again: whoever keeps the last word of each key keeps little.
            self.next = 0;
        }
        self.next += 1;
        self.next - 1
    }

    /// Nothing in lists counts any more.
    pub fn forget(&mut self) {
        self.new.clear();
        self.lagging.clear();
        self.bytes = 0;
        self.gone.append(&mut self.lists);
    }

    /// Nor in lists that are on their way.
    pub fn forget_open(&mut self) {
        self.gone.extend(std::mem::take(&mut self.open).into_keys());
    }

    /// These pages are written anyway.
    pub fn written(&mut self, page: u64) {
        self.lagging.remove(&page);
    }

    /// How to write what is new, now that everything before `start` is done; `stored` tells the bytes of a page.
    pub fn take(&mut self, start: u64, stored: impl Fn(u64) -> usize) -> Written {
        let mut new = std::mem::take(&mut self.new);
        new.retain(|run| run.last >= start);
        new.sort_unstable_by_key(|run| run.first);
        new.iter().for_each(|run| self.lag(run));
        self.lagging = self.lagging.split_off(&(start / PAGE_OFFSETS));
        let page =
            |(page, runs): (&u64, &usize)| RECORD_BYTES + (stored(*page) + runs * RUN_BYTES).min(page_bytes_max());
        let (list, pages) = (RECORD_BYTES + new.len() * RUN_IN_LIST, self.lagging.iter().map(page).sum::<usize>());
        if !new.is_empty() && self.bytes + list < pages {
            self.bytes += list;
            let number = self.new_number();
            self.lists.push(number);
            return Written::List(number, new);
        }
        if new.is_empty() && !self.lagging.is_empty() && self.bytes <= pages {
            return Written::Pages(Vec::new());
        }
        self.bytes = 0;
        self.gone.append(&mut self.lists);
        Written::Pages(std::mem::take(&mut self.lagging).into_keys().collect())
    }

    /// Lists that are to be deleted.
    pub fn take_gone(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.gone)
    }
}

#[cfg(test)]
mod tests {
    use crate::{PAGE_OFFSETS, Subscription, SubscriptionName, SubscriptionRecord, subscription_record};
    use bytes::Bytes;
    use std::collections::BTreeMap;

    /// An entry in the directory of a chunk, and the length of the key (`docs/formats/chunk.md`).
    const AROUND_RECORD: usize = 48 + 4;

    /// What the records of a change take in the journal.
    fn bytes_of(records: &[(Bytes, Option<Bytes>)]) -> usize {
        records.iter().map(|(key, value)| AROUND_RECORD + key.len() + value.as_ref().map_or(0, Bytes::len)).sum()
    }

    fn name() -> SubscriptionName {
        SubscriptionName { group: "amqp.queue".into(), topic: 1, partition: 0 }
    }

    /// A consumer who acknowledges in order, a hundred between two flushes; several who each acknowledge theirs in order, so that the
    /// whole is nearly so; and a few who keep one message each for a long time.
    #[test]
    fn acknowledgements_in_order_cost_a_record_a_flush() {
        for (consumers, stuck) in [(1u64, 0u64), (10, 0), (10, 10)] {
            let mut subscription = Subscription::new(0);
            let (mut bytes, mut acked) = (0, 0);
            // Each consumer has a hundred, and is somewhere in them.
            for flush in 0..1000 {
                for one in 0..100 {
                    let (consumer, turn) = (one % consumers, flush * 100 / consumers + one / consumers);
                    let offset =
                        if consumers == 1 { turn } else { turn / 100 * 100 * consumers + consumer * 100 + turn % 100 };
                    if offset >= stuck {
                        subscription.accept_available(offset, offset);
                        acked += 1;
                    }
                }
                bytes += bytes_of(&name().records(&subscription.take_changes()));
            }
            let each = bytes as f64 / acked as f64;
            assert!(each < 10.0, "{consumers} consumers, {stuck} messages kept: {each} bytes for an acknowledgement");
        }
    }

    /// Half of a million messages that somebody has are acknowledged in random order, a thousand at a time: what is written is a few bytes for each,
    /// and after any of it a restart finds what was acknowledged.
    #[test]
    fn acknowledgements_anywhere_cost_a_few_bytes_each() {
        const COUNT: u64 = 60 * PAGE_OFFSETS;
        let mut subscription = Subscription::new(0);
        let mut stored: BTreeMap<Bytes, Bytes> = BTreeMap::new();
        let (mut random, mut bytes, mut acked) = (1u64, 0, 0u64);
        for round in 0..500 {
            for _ in 0..1000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let offset = (random >> 33) % COUNT;
                if subscription.state(offset) == crate::RecordState::Available {
                    subscription.accept_available(offset, offset);
                    acked += 1;
                }
            }
            let records = name().records(&subscription.take_changes());
            bytes += bytes_of(&records);
            for (key, value) in records {
                match value {
                    Some(value) => drop(stored.insert(key, value)),
                    None => drop(stored.remove(&key)),
                }
            }
            assert!(!subscription.has_changes());
            if round % 100 == 99 {
                let (mut start, mut runs, mut lists) = (0, Vec::new(), Vec::new());
                for (key, value) in &stored {
                    match subscription_record(key, value).expect("its kind").expect("whole").1 {
                        SubscriptionRecord::Start { start: from, .. } => start = from,
                        SubscriptionRecord::Page(page) => runs.extend(page),
                        SubscriptionRecord::List(number, list) => lists.push((number, value.len(), list)),
                        SubscriptionRecord::Levels(..) => panic!("there are no levels"),
                    }
                }
                let after = Subscription::restore_with(start, runs, lists);
                assert_eq!(after.ready(COUNT), COUNT - acked);
                assert!((0..COUNT).step_by(7).all(|offset| after.state(offset) == subscription.state(offset)));
            }
        }
        let each = bytes as f64 / acked as f64;
        assert!(each < 10.0, "{each} bytes for an acknowledgement");
        let all: usize = stored.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(all < 400 << 10, "{all} bytes are kept");
    }
}
