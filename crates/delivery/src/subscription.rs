//! A shared subscription: what competing consumers of one log have been given, have done with, and may still get. It knows no
//! protocol: share groups are a face of it.
//!
//! ```text
//!      start                                end
//! done │ done, ready or in flight, as runs   │ never looked at
//! ─────┴─────────────────────────────────────┴──────────────▶ offsets
//! ```
//!
//! Each offset is in exactly one state: available (ready, or not below `end`), acquired (in flight), acknowledged or archived.
//! What is kept is runs of offsets: the cost is that of requests, not of records, unless keys are ordered.
//!
//! **Ordered keys.** Records of one key are in flight to at most one consumer, and those of a key are given out in the order of
//! their offsets. For that the hashes of keys are kept for what is ready or in flight: a bounded number.
//!
//! **Durable** are `start`, what is done after it, what is dead, and how often a returned record was delivered. What is in flight
//! is available again after a restart. [`Subscription::take_changes`] gives the records, in pages of 16,384 offsets, so that one
//! acknowledgement writes the pages that it changed, and most often none: only `start`.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::runs::{Run, Runs};
use crate::subscription_record::{PAGE_OFFSETS, PageRun, StoredState};

/// Who acquires: chosen by the caller, one number a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(pub u64);

/// Holds what is on its way to a dead-letter topic.
pub const DEAD_LETTERS: ConsumerId = ConsumerId(u64::MAX);

/// Where an offset stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// To be given to somebody.
    Available,
    /// Somebody has it.
    Acquired(ConsumerId),
    /// Somebody has done with it. What lies before the start is here as well.
    Acknowledged,
    /// Nobody will get it any more: rejected, too often delivered, or no record of a producer.
    Archived,
}

/// How a record left the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Accepted by a consumer.
    Acknowledged,
    /// Rejected, too often delivered, dead-lettered, or no record of a producer.
    Archived,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flight {
    consumer: ConsumerId,
    /// Deliveries, with this one.
    count: u16,
    /// Milliseconds.
    deadline: u64,
}

/// What a consumer says of records it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done with.
    Accept,
    /// Somebody may try again.
    Release,
    /// Nobody can do it.
    Reject,
    /// There is no record here.
    Gap,
    /// It takes longer.
    Renew,
}

/// Given to a consumer: `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// First offset.
    pub first: u64,
    /// Last offset.
    pub last: u64,
    /// How often it has been delivered, with this time.
    pub count: u16,
}

/// Offsets that nobody will get any more, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead {
    /// First offset.
    pub first: u64,
    /// Last offset.
    pub last: u64,
    /// How often it was delivered.
    pub count: u16,
    /// A consumer rejected it; otherwise it was delivered too often.
    pub rejected: bool,
}

/// The rules of a subscription at the time of a call; they may change in between.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A record that is returned after this many deliveries is dead.
    pub deliveries_max: u16,
    /// Ready and in flight together; from there on nothing new is looked at.
    pub unfinished_max: u64,
    /// How long a consumer may keep a record, in ms.
    pub lock: u64,
    /// Dead records are held for [`DEAD_LETTERS`] instead of being archived at once.
    pub dead_letters: bool,
}

/// The consumer does not have these records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the consumer does not have these records")]
pub struct NotHeld;

/// The hash of a record's key; `None`: it has none, and no order.
pub type KeyHash = Option<u64>;

/// What is needed for ordered keys.
#[derive(Clone, Debug, Default)]
struct Keys {
    /// Of what is ready or in flight and has been looked at.
    hashes: HashMap<u64, u64>,
    /// Who has records of a key, and how many.
    owners: HashMap<u64, (ConsumerId, u32)>,
}

impl Keys {
    fn may_have(&self, offset: u64, consumer: ConsumerId) -> bool {
        let owner = self.hashes.get(&offset).and_then(|hash| self.owners.get(hash));
        owner.is_none_or(|(owner, _)| *owner == consumer)
    }

    fn own(&mut self, offset: u64, consumer: ConsumerId) {
        if let Some(hash) = self.hashes.get(&offset) {
            self.owners.entry(*hash).or_insert((consumer, 0)).1 += 1;
        }
    }

    fn disown(&mut self, offset: u64) {
        if let Some(hash) = self.hashes.get(&offset)
            && let Some((_, count)) = self.owners.get_mut(hash)
        {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(hash);
            }
        }
    }
}

/// The state of one subscription to one log.
#[derive(Clone, Debug)]
pub struct Subscription {
    start: u64,
    end: u64,
    done: Runs<Done>,
    /// With the number of deliveries so far.
    ready: Runs<u16>,
    in_flight: Runs<Flight>,
    /// No deadline is earlier.
    earliest: u64,
    keys: Option<Keys>,
    changed: BTreeSet<u64>,
    start_changed: bool,
    stored: BTreeSet<u64>,
}

impl Subscription {
    /// Nothing before `start` is to be delivered.
    pub fn new(start: u64) -> Self {
        Self {
            start,
            end: start,
            done: Runs::default(),
            ready: Runs::default(),
            in_flight: Runs::default(),
            earliest: u64::MAX,
            keys: None,
            changed: BTreeSet::new(),
            start_changed: true,
            stored: BTreeSet::new(),
        }
    }

    /// From what was durable: the start and the runs of all pages.
    pub fn restore(start: u64, runs: impl IntoIterator<Item = PageRun>) -> Self {
        let mut restored = Self { start_changed: false, ..Self::new(start) };
        for PageRun { first, last, state } in runs {
            restored.stored.insert(first / PAGE_OFFSETS);
            let first = first.max(start);
            // A page may be older than the start; what overlaps another run is damage that the journal's checksums exclude.
            if last < first || restored.knows(first, last) {
                continue;
            }
            match state {
                StoredState::Done(done) => restored.done.insert(first, last, done),
                StoredState::Returned(count) => restored.ready.insert(first, last, count),
                StoredState::Dead(count) => {
                    restored.in_flight.insert(first, last, Flight { consumer: DEAD_LETTERS, count, deadline: 0 });
                    restored.earliest = 0;
                }
            }
            restored.end = restored.end.max(last + 1);
        }
        let mut free = restored.start;
        let mut known = restored.known();
        known.sort_unstable();
        for (first, last) in known {
            if free < first {
                restored.ready.insert(free, first - 1, 0);
            }
            free = last + 1;
        }
        restored.advance();
        restored
    }

    /// Everything before it is done.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Nothing from here on has been looked at.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Nothing before it is to be given to anybody, as things stand.
    pub fn available_from(&self) -> u64 {
        self.ready.first().map_or(self.end, |run| run.first)
    }

    /// Records that consumers have.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.count()
    }

    /// Records that are not done, of a log that ends at `log_end`; gaps count.
    pub fn backlog(&self, log_end: u64) -> u64 {
        log_end.saturating_sub(self.end.max(self.start)) + self.ready.count() + self.in_flight.count()
    }

    /// Where one offset stands.
    pub fn state(&self, offset: u64) -> RecordState {
        if offset < self.start {
            return RecordState::Acknowledged;
        }
        if let Some(flight) = self.in_flight.get(offset) {
            return RecordState::Acquired(flight.consumer);
        }
        match self.done.get(offset) {
            Some(Done::Acknowledged) => RecordState::Acknowledged,
            Some(Done::Archived) => RecordState::Archived,
            None => RecordState::Available,
        }
    }

    /// Keeps records of one key with one consumer from now on, or no longer.
    pub fn set_key_ordered(&mut self, ordered: bool) {
        match (ordered, &self.keys) {
            (true, None) => self.keys = Some(Keys::default()),
            (false, Some(_)) => self.keys = None,
            _ => {}
        }
    }

    /// Are records of one key kept with one consumer?
    pub fn is_key_ordered(&self) -> bool {
        self.keys.is_some()
    }

    /// Where to read for `consumer`: the first offset that it may get. `None`: nothing until others have done with something.
    pub fn wanted(&self, consumer: ConsumerId, rules: &Rules) -> Option<u64> {
        let ready = match &self.keys {
            None => self.ready.first().map(|run| run.first),
            Some(keys) => self.ready.iter().flat_map(|run| run.first..=run.last).find(|offset| keys.may_have(*offset, consumer)),
        };
        ready.or_else(|| (self.unfinished() < rules.unfinished_max).then_some(self.end))
    }

    /// Records that have been looked at, and are not done.
    pub fn unfinished(&self) -> u64 {
        self.ready.count() + self.in_flight.count()
    }

    /// Gives `consumer` up to `limit` of what is available in `first..=last`, which has been read. `hash` tells the keys, when they
    /// are ordered.
    #[expect(clippy::too_many_arguments, reason = "a range, a limit and who wants it")]
    pub fn acquire(
        &mut self,
        consumer: ConsumerId,
        first: u64,
        last: u64,
        limit: u64,
        now: u64,
        rules: &Rules,
        hash: &mut dyn FnMut(u64) -> KeyHash,
        out: &mut Vec<Acquired>,
    ) {
        self.look_at(first, last, rules);
        let deadline = now + rules.lock;
        let mut left = limit;
        let mut given: Vec<Run<u16>> = Vec::new();
        if let Some(keys) = &mut self.keys {
            let ready: Vec<Run<u16>> = self.ready.within(first, last).collect();
            for offset in ready.iter().flat_map(|run| run.first..=run.last) {
                if let hashbrown::hash_map::Entry::Vacant(vacant) = keys.hashes.entry(offset)
                    && let Some(hash) = hash(offset)
                {
                    vacant.insert(hash);
                }
                if left > 0 && keys.may_have(offset, consumer) {
                    keys.own(offset, consumer);
                    given.extend(self.ready.take(offset, offset));
                    left -= 1;
                }
            }
        } else {
            let ready: Vec<Run<u16>> = self.ready.within(first, last).collect();
            for run in ready {
                if left == 0 {
                    break;
                }
                let until = run.last.min(run.first.saturating_add(left - 1));
                given.extend(self.ready.take(run.first, until));
                left -= until - run.first + 1;
            }
        }
        for Run { first, last, value } in given {
            let count = value.saturating_add(1);
            self.in_flight.insert(first, last, Flight { consumer, count, deadline });
            self.earliest = self.earliest.min(deadline);
            match out.last_mut() {
                Some(before) if before.last + 1 == first && before.count == count => before.last = last,
                _ => out.push(Acquired { first, last, count }),
            }
        }
    }

    /// What is new in `first..=last` becomes ready: all of it if the bound allows any, but where keys are ordered no more than it
    /// allows. What follows on something that has not been looked at stays as it is.
    fn look_at(&mut self, first: u64, last: u64, rules: &Rules) {
        if !(first..=last).contains(&self.end) {
            return;
        }
        let room = rules.unfinished_max.saturating_sub(self.unfinished());
        if room > 0 {
            let until = if self.keys.is_none() { last } else { last.min(self.end.saturating_add(room - 1)) };
            self.ready.insert(self.end, until, 0);
            self.end = until + 1;
        }
    }

    /// There are no records for consumers in `first..=last`: what is available there is archived. What follows on something
    /// that has not been looked at stays as it is.
    pub fn skip(&mut self, first: u64, last: u64) {
        if first <= self.end && last >= self.end {
            self.ready.insert(self.end, last, 0);
            self.end = last + 1;
        }
        for run in self.ready.take(first, last) {
            self.settle(run.first, run.last, Done::Archived);
        }
        self.advance();
    }

    /// Records before `to` are gone.
    pub fn trim(&mut self, to: u64) {
        if to <= self.start {
            return;
        }
        for run in self.in_flight.take(self.start, to - 1) {
            self.forget_keys(run.first, run.last, run.value.consumer != DEAD_LETTERS);
        }
        for run in self.ready.take(self.start, to - 1) {
            self.forget_keys(run.first, run.last, false);
        }
        self.done.take(self.start, to - 1);
        self.set_start(to);
        self.end = self.end.max(to);
        self.advance();
    }

    /// Has `consumer` all that is not done or gone of `first..=last`?
    ///
    /// # Errors
    /// `NotHeld`: it has not.
    pub fn check(&self, consumer: ConsumerId, first: u64, last: u64) -> Result<(), NotHeld> {
        let first = first.max(self.start);
        if last < first {
            return Ok(());
        }
        let held = self.in_flight.within(first, last).filter(|run| run.value.consumer == consumer);
        let count: u64 = held.map(|run| run.last - run.first + 1).sum();
        if count == last - first + 1 { Ok(()) } else { Err(NotHeld) }
    }

    /// `consumer` says what is to become of `first..=last`, which it has (see [`Subscription::check`]). What is dead is added
    /// to `dead`.
    #[expect(clippy::too_many_arguments, reason = "a range and what is said of it")]
    pub fn judge(
        &mut self,
        consumer: ConsumerId,
        first: u64,
        last: u64,
        verdict: Verdict,
        now: u64,
        rules: &Rules,
        dead: &mut Vec<Dead>,
    ) {
        let first = first.max(self.start);
        let held: Vec<Run<Flight>> = self.in_flight.within(first, last).filter(|run| run.value.consumer == consumer).collect();
        for run in held {
            self.in_flight.take(run.first, run.last);
            match verdict {
                Verdict::Accept | Verdict::Gap => {
                    self.forget_keys(run.first, run.last, true);
                    self.settle(run.first, run.last, if verdict == Verdict::Accept { Done::Acknowledged } else { Done::Archived });
                }
                Verdict::Release => self.give_back(run, rules, dead, now),
                Verdict::Reject => self.bury(run, true, rules, dead, now),
                Verdict::Renew => {
                    self.in_flight.insert(run.first, run.last, Flight { deadline: now + rules.lock, ..run.value });
                }
            }
        }
        self.advance();
    }

    /// What is on its way to a dead-letter topic in `first..=last` is there.
    pub fn buried(&mut self, first: u64, last: u64) {
        let held: Vec<Run<Flight>> = self.in_flight.within(first, last).filter(|run| run.value.consumer == DEAD_LETTERS).collect();
        for run in held {
            self.in_flight.take(run.first, run.last);
            self.settle(run.first, run.last, Done::Archived);
        }
        self.advance();
    }

    /// Gives back everything that `consumer` has; true when there was something.
    pub fn release_all(&mut self, consumer: ConsumerId, now: u64, rules: &Rules, dead: &mut Vec<Dead>) -> bool {
        let held: Vec<Run<Flight>> = self.in_flight.iter().filter(|run| run.value.consumer == consumer).collect();
        for run in &held {
            self.in_flight.take(run.first, run.last);
            self.give_back(*run, rules, dead, now);
        }
        self.advance();
        !held.is_empty()
    }

    /// Gives back what consumers have kept for too long; how many records that were.
    pub fn expire(&mut self, now: u64, rules: &Rules, dead: &mut Vec<Dead>) -> u64 {
        if now < self.earliest {
            return 0;
        }
        let due: Vec<Run<Flight>> = self.in_flight.iter().filter(|run| run.value.deadline <= now).collect();
        for run in &due {
            self.in_flight.take(run.first, run.last);
            if run.value.consumer == DEAD_LETTERS {
                self.bury(*run, run.value.count < rules.deliveries_max, rules, dead, now);
            } else {
                self.give_back(*run, rules, dead, now);
            }
        }
        self.earliest = self.in_flight.iter().map(|run| run.value.deadline).min().unwrap_or(u64::MAX);
        self.advance();
        due.iter().map(|run| run.last - run.first + 1).sum()
    }

    /// No earlier time has anything for [`Subscription::expire`]; `None`: nothing is in flight.
    pub fn next_deadline(&self) -> Option<u64> {
        (!self.in_flight.is_empty()).then_some(self.earliest)
    }

    /// Starts anew at `start`: as if nothing had ever been delivered.
    pub fn reset(&mut self, start: u64) {
        let (ordered, mut changed) = (self.is_key_ordered(), std::mem::take(&mut self.changed));
        let stored = std::mem::take(&mut self.stored);
        changed.extend(stored.iter().copied());
        *self = Self { changed, stored, ..Self::new(start) };
        self.set_key_ordered(ordered);
    }

    fn give_back(&mut self, run: Run<Flight>, rules: &Rules, dead: &mut Vec<Dead>, now: u64) {
        if run.value.count >= rules.deliveries_max {
            self.bury(run, false, rules, dead, now);
            return;
        }
        self.disown(run.first, run.last);
        self.ready.insert(run.first, run.last, run.value.count);
        self.touch(run.first, run.last);
    }

    fn bury(&mut self, run: Run<Flight>, rejected: bool, rules: &Rules, dead: &mut Vec<Dead>, now: u64) {
        let Run { first, last, value } = run;
        dead.push(Dead { first, last, count: value.count, rejected });
        // The dead hold up nobody.
        self.forget_keys(first, last, value.consumer != DEAD_LETTERS);
        if rules.dead_letters {
            let deadline = now + rules.lock;
            self.in_flight.insert(first, last, Flight { consumer: DEAD_LETTERS, deadline, ..value });
            self.earliest = self.earliest.min(deadline);
            self.touch(first, last);
        } else {
            self.settle(first, last, Done::Archived);
        }
    }

    fn settle(&mut self, first: u64, last: u64, done: Done) {
        self.done.insert(first, last, done);
        self.touch(first, last);
    }

    fn disown(&mut self, first: u64, last: u64) {
        if let Some(keys) = &mut self.keys {
            (first..=last).for_each(|offset| keys.disown(offset));
        }
    }

    fn forget_keys(&mut self, first: u64, last: u64, owned: bool) {
        if let Some(keys) = &mut self.keys {
            for offset in first..=last {
                if owned {
                    keys.disown(offset);
                }
                keys.hashes.remove(&offset);
            }
        }
    }

    fn touch(&mut self, first: u64, last: u64) {
        self.changed.extend(first / PAGE_OFFSETS..=last / PAGE_OFFSETS);
    }

    fn set_start(&mut self, start: u64) {
        self.start = start;
        self.start_changed = true;
    }

    /// The start moves over what is done.
    fn advance(&mut self) {
        while let Some(run) = self.done.first()
            && run.first == self.start
        {
            self.done.take(run.first, run.last);
            self.set_start(run.last + 1);
        }
    }

    /// What has to be made durable since the last call: the new start, if it moved, and pages with their runs; an empty page
    /// is to be deleted.
    pub fn take_changes(&mut self) -> Changes {
        let mut pages = Vec::new();
        let first_page = self.start / PAGE_OFFSETS;
        let passed: Vec<u64> = self.stored.range(..first_page).copied().collect();
        for page in passed {
            self.stored.remove(&page);
            pages.push((page, Vec::new()));
        }
        for page in std::mem::take(&mut self.changed) {
            if page < first_page {
                continue;
            }
            let (first, last) = (page * PAGE_OFFSETS, page * PAGE_OFFSETS + (PAGE_OFFSETS - 1));
            let done = self.done.within(first, last).map(|run| PageRun { first: run.first, last: run.last, state: StoredState::Done(run.value) });
            let returned = self.returned(first, last);
            let mut runs: Vec<PageRun> = done.chain(returned).collect();
            runs.sort_unstable_by_key(|run| run.first);
            if runs.is_empty() {
                if self.stored.remove(&page) {
                    pages.push((page, runs));
                }
            } else {
                self.stored.insert(page);
                pages.push((page, runs));
            }
        }
        Changes { start: std::mem::take(&mut self.start_changed).then_some(self.start), pages }
    }

    /// What has been delivered and came back, or is out again, and what is dead: how often it was delivered must outlive a restart.
    fn returned(&self, first: u64, last: u64) -> impl Iterator<Item = PageRun> + '_ {
        let ready = self.ready.within(first, last).map(|run| PageRun { first: run.first, last: run.last, state: StoredState::Returned(run.value) });
        let out = self.in_flight.within(first, last).map(|Run { first, last, value }| {
            let dead = value.consumer == DEAD_LETTERS;
            PageRun { first, last, state: if dead { StoredState::Dead(value.count) } else { StoredState::Returned(value.count - 1) } }
        });
        ready.chain(out).filter(|run| run.state != StoredState::Returned(0))
    }

    /// The changes taken last did not become durable: everything counts as changed.
    pub fn set_changed(&mut self) {
        self.start_changed = true;
        self.changed.extend(self.stored.iter().copied());
        for (first, last) in self.known() {
            self.touch(first, last);
        }
    }

    /// All runs, in no order.
    fn known(&self) -> Vec<(u64, u64)> {
        let done = self.done.iter().map(|run| (run.first, run.last));
        let ready = self.ready.iter().map(|run| (run.first, run.last));
        done.chain(ready).chain(self.in_flight.iter().map(|run| (run.first, run.last))).collect()
    }

    fn knows(&self, first: u64, last: u64) -> bool {
        let (done, ready) = (self.done.within(first, last).next(), self.ready.within(first, last).next());
        done.is_some() || ready.is_some() || self.in_flight.within(first, last).next().is_some()
    }

    /// Numbers of the pages that are durable, or on their way.
    pub fn stored_pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.stored.iter().copied()
    }
}

/// What changed in a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The new start.
    pub start: Option<u64>,
    /// Pages by number, with their runs.
    pub pages: Vec<(u64, Vec<PageRun>)>,
}

impl Changes {
    /// Nothing changed.
    pub fn is_empty(&self) -> bool {
        self.start.is_none() && self.pages.is_empty()
    }
}
