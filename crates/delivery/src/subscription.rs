//! A shared subscription: what competing consumers of one log have been given, have done with, and may still get. It knows no
//! protocol: share groups are a face of it, queues ([`crate::Queue`]) another, and both may work on the same one at a time.
//!
//! ```text
//!      start                                end
//! done │ done, ready or in flight, as runs   │ never looked at
//! ─────┴─────────────────────────────────────┴──────────────▶ offsets
//! ```
//!
//! Each offset is in exactly one state: available (ready, or not below `end`), acquired (in flight), acknowledged or archived.
//! What is kept is runs of offsets: the cost is that of requests, not of records, unless keys are ordered or there are levels.
//!
//! **Ordered keys.** Records of one key are in flight to at most one consumer, and those of a key are given out in the order of
//! their offsets. For that the hashes of keys are kept for what is ready or in flight: a bounded number.
//!
//! **Levels.** Records of a higher level are given out first, within a level by offset; what is returned goes back to its level, at
//! its place, or before all others in the order of the returns ([`Subscription::set_returned_first`]). A level is a property of the record:
//! what has not been read has none ([`Subscription::unlevelled`]). Levels of a page are stored once, when all of it has been read, so that
//! little has to be read again after a restart (`levels.rs`).
//!
//! **Durable** are `start`, what is done after it, what is dead and why, and how often a returned record was delivered. What is in
//! flight is available again after a restart. [`Subscription::take_changes`] gives the records: most often only `start`; what is done out of order as
//! lists, and in pages of 16,384 offsets when lists have come to as much as those (`acks.rs`).
//!
//! **Dead letters.** A caller that gets dead records ([`Dead`]) has claimed them: no other call returns them, however long the copies take, until
//! they are done ([`Subscription::buried`], [`Subscription::end_dead_lettering`]) or released ([`Subscription::release_dead`]). What was released is
//! returned again after a while by [`Subscription::expire`].
//!
//! **Given before.** A delivery that a crash interrupts is not counted. Who must be able to say "perhaps delivered before" asks
//! for the end of what was given out to be kept beside `start` ([`Subscription::remember_given`]); after a restart all before it
//! counts as such.

use std::collections::{BTreeMap, BTreeSet};

use crate::runs::{Run, Runs};
use crate::subscription_record::PAGE_OFFSETS;

mod acks;
mod available;
mod balance;
mod durable;
mod dying;
mod gaps;
mod inside;
mod keys;
mod leaving;
mod levels;
mod ready;
mod rest;
mod returned;
pub(crate) mod time_outs;

use acks::{Acks, Written};
use balance::Balance;
pub use durable::{Changes, DoneList};
pub use dying::DeadLettering;
pub use gaps::{Gaps, Searched};
pub use inside::DoneOffsets;
use keys::Keys;
pub use leaving::Leaving;
pub use levels::LevelPage;
use levels::LevelPages;
use ready::{Ready, Waiting};
pub use rest::Rest;
use returned::RETURNED;
use time_outs::DELAYED;
pub use time_outs::{Retry, RetryOf};

/// Who acquires: chosen by the caller, one number a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(pub u64);

/// Holds what is on its way to a dead-letter topic.
pub const DEAD_LETTERS: ConsumerId = ConsumerId(u64::MAX);

/// As [`Rules::lock`]: a consumer may keep a record for ever.
pub const NO_LOCK: u64 = u64::MAX;

/// After how many ms dead records that were released are tried again, where there is no lock.
const DEAD_LETTER_RETRY_MS: u64 = 30_000;

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

/// How often a record was delivered; both counts stop at 65,535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// Deliveries that the limit counts.
    pub counted: u16,
    /// Deliveries that it does not count.
    pub spared: u16,
}

impl Tries {
    /// All deliveries.
    pub fn deliveries(self) -> u16 {
        self.counted.saturating_add(self.spared)
    }

    fn delivered(self) -> Self {
        Self { counted: self.counted.saturating_add(1), ..self }
    }

    fn not_delivered(self) -> Self {
        Self { counted: self.counted.saturating_sub(1), ..self }
    }

    fn forgiven(self) -> Self {
        Self { spared: self.spared.saturating_add(1), ..self.not_delivered() }
    }
}

/// Why nobody will get a record any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeadReason {
    /// A consumer rejected it.
    Rejected,
    /// It was delivered too often.
    DeliveryLimit,
    /// It was not consumed in time.
    Expired,
    /// There was no room for it.
    MaxLength,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flight {
    consumer: ConsumerId,
    /// Milliseconds; [`NO_LOCK`]: none; from [`time_outs::FIRST`] on the queue's.
    deadline: u64,
    /// With this delivery.
    tries: Tries,
    /// Where it goes back to.
    level: Option<u8>,
    /// What is held for [`DEAD_LETTERS`] has one.
    reason: Option<DeadReason>,
}

/// What a consumer says of records it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done with.
    Accept,
    /// Somebody may try again.
    Release,
    /// As `Release`, and the limit of deliveries does not count this one.
    Return,
    /// Nobody can do it.
    Reject,
    /// As `Reject`, and this delivery has failed.
    RejectFailed,
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
    /// How many of those deliveries failed.
    pub failed: u16,
    /// Why.
    pub reason: DeadReason,
}

impl Dead {
    /// Do these lie behind others, and have died alike?
    pub fn follows(&self, before: &Self) -> bool {
        before.last.checked_add(1) == Some(self.first)
            && Self { first: self.first, last: self.last, ..*before } == *self
    }

    /// Adds to a list; what follows on its last makes that longer.
    fn add_to(self, dead: &mut Vec<Self>) {
        match dead.last_mut().filter(|before| self.follows(before)) {
            Some(before) => before.last = self.last,
            None => dead.push(self),
        }
    }
}

/// The rules of a subscription at the time of a call; they may change in between.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A record that is returned after this many deliveries is dead. `None`: never.
    pub deliveries_max: Option<u16>,
    /// Ready and in flight together; from there on nothing new is looked at.
    pub unfinished_max: u64,
    /// How long a consumer may keep a record, in ms; [`NO_LOCK`]: for ever.
    pub lock: u64,
    /// Dead records are held for [`DEAD_LETTERS`] instead of being archived at once.
    pub dead_letters: bool,
    /// What comes back waits before it is given out again; `None`: it does not.
    pub retry: Option<Retry>,
}

/// The consumer does not have these records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the consumer does not have these records")]
pub struct NotHeld;

/// The hash of a record's key; `None`: it has none, and no order.
pub type KeyHash = Option<u64>;

/// The state of one subscription to one log.
#[derive(Clone, Debug)]
pub struct Subscription {
    start: u64,
    end: u64,
    done: Runs<Done>,
    ready: Ready,
    levelled: bool,
    returned_first: bool,
    levels: LevelPages,
    in_flight: Runs<Flight>,
    /// Offsets in flight that are held for [`DEAD_LETTERS`].
    dying: u64,
    /// Offsets in flight that wait until they may be given out again.
    delayed: u64,
    /// No lock is over earlier.
    earliest: u64,
    /// No time of a queue is over earlier.
    earliest_time: u64,
    /// Everything before it may have been given out in an earlier life.
    given_before: u64,
    /// The end of what was given out since, if that is to be kept.
    given: Option<u64>,
    /// Grows whenever something that was available is not any more, or the other way round.
    turnover: u64,
    keys: Option<Keys>,
    changed: BTreeSet<u64>,
    start_changed: bool,
    /// Nothing of it is durable: there is nothing to tell.
    unwritten: bool,
    /// Pages that are durable, or on their way, with their bytes.
    stored: BTreeMap<u64, usize>,
    acks: Acks,
    /// From `end` on: no messages.
    gaps: Gaps,
    /// What consumers have and compaction has removed from the log.
    removed: Gaps,
    searched: Searched,
    balance: Balance,
}

impl Subscription {
    /// Nothing before `start` is to be delivered.
    pub fn new(start: u64) -> Self {
        Self {
            start,
            end: start,
            done: Runs::default(),
            ready: Ready::default(),
            levelled: false,
            returned_first: false,
            levels: LevelPages::default(),
            in_flight: Runs::default(),
            dying: 0,
            delayed: 0,
            earliest: u64::MAX,
            earliest_time: u64::MAX,
            given_before: 0,
            given: None,
            turnover: 0,
            keys: None,
            changed: BTreeSet::new(),
            start_changed: true,
            unwritten: false,
            stored: BTreeMap::new(),
            acks: Acks::default(),
            gaps: Gaps::default(),
            removed: Gaps::default(),
            searched: Searched::ALL,
            balance: Balance { from: start, left: 0 },
        }
    }

    /// As [`Subscription::new`], for one that is known to be there without a record of it: what is to be durable begins with the first change.
    pub fn unwritten(start: u64) -> Self {
        Self { start_changed: false, unwritten: true, ..Self::new(start) }
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
        self.ready.first().unwrap_or(self.end)
    }

    /// Records that consumers have.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.count()
    }

    /// Records that are not done, of a log that ends at `log_end`; gaps that are not known count.
    pub fn backlog(&self, log_end: u64) -> u64 {
        log_end.saturating_sub(self.end.max(self.start)) - self.gaps_ahead(log_end)
            + self.ready.count()
            + self.in_flight.count()
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
            None => self.ready.first(),
            Some(keys) => self.ready.find(|offset| keys.may_have(offset, consumer)),
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
        let deadline = now.saturating_add(rules.lock);
        let mut left = limit;
        let mut given: Vec<Run<Waiting>> = Vec::new();
        if let Some(keys) = &mut self.keys {
            for offset in self.ready.within(first, last).iter().flat_map(|run| run.first..=run.last) {
                keys.learn(offset, hash);
                if left > 0 && keys.may_have(offset, consumer) {
                    keys.own(offset, consumer);
                    given.extend(self.ready.take(offset, offset));
                    left -= 1;
                }
            }
        } else {
            for run in self.ready.within(first, last) {
                if left == 0 {
                    break;
                }
                let until = run.last.min(run.first.saturating_add(left - 1));
                given.extend(self.ready.take(run.first, until));
                left -= until - run.first + 1;
            }
        }
        self.turnover += u64::from(!given.is_empty());
        for Run { first, last, value } in given {
            let tries = value.tries.delivered();
            self.hold(first, last, Flight { consumer, deadline, tries, level: value.level, reason: None });
            let count = tries.deliveries();
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
            self.extend(until);
        }
    }

    /// There are no records for consumers in `first..=last`: what is available there is archived. What follows on something
    /// that has not been looked at stays as it is.
    pub fn skip(&mut self, first: u64, last: u64) {
        if first <= self.end && last >= self.end {
            self.extend(last);
        }
        for run in self.take_ready(first, last) {
            self.settle(run.first, run.last, Done::Archived);
        }
        self.advance();
    }

    /// Records before `to` are gone.
    pub fn trim(&mut self, to: u64) {
        if to <= self.start {
            return;
        }
        for run in self.let_go(self.start, to - 1) {
            self.forget_keys(run.first, run.last, ![DEAD_LETTERS, DELAYED].contains(&run.value.consumer));
        }
        for run in self.take_ready(self.start, to - 1) {
            self.forget_keys(run.first, run.last, false);
        }
        let done: u64 = self.done.take(self.start, to - 1).iter().map(|run| run.last - run.first + 1).sum();
        self.balance.left += to - self.start - done;
        self.trim_gaps(to);
        self.set_start(to);
        self.end = self.end.max(to);
        self.pass_gaps();
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
        let held = self.in_flight.select(first, last, |flight| flight.consumer == consumer).into_iter();
        let count: u64 = held.map(|run| run.last - run.first + 1).sum();
        if count == last - first + 1 { Ok(()) } else { Err(NotHeld) }
    }

    /// What `consumer` has of `first..=last`, as runs, both ends included.
    pub fn held(&self, consumer: ConsumerId, first: u64, last: u64) -> Vec<(u64, u64)> {
        self.in_flight
            .select(first, last, |flight| flight.consumer == consumer)
            .into_iter()
            .map(|run| (run.first, run.last))
            .collect()
    }

    /// `consumer` says what is to become of `first..=last`, which it has (see [`Subscription::check`]). What is dead is added
    /// to `dead`. Returns of how many records it has been said: what others have, or nobody, stays as it is.
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
    ) -> u64 {
        let first = first.max(self.start);
        let held = self.in_flight.select(first, last, |flight| flight.consumer == consumer);
        for run in &held {
            self.let_go(run.first, run.last);
            match verdict {
                Verdict::Accept | Verdict::Gap => {
                    self.forget_keys(run.first, run.last, true);
                    self.forget_removed(run.first, run.last);
                    self.settle(
                        run.first,
                        run.last,
                        if verdict == Verdict::Accept { Done::Acknowledged } else { Done::Archived },
                    );
                }
                Verdict::Release => self.give_back(*run, true, rules, dead, now),
                Verdict::Return => {
                    let forgiven = Flight { tries: run.value.tries.forgiven(), ..run.value };
                    self.give_back(Run { value: forgiven, ..*run }, false, rules, dead, now);
                }
                Verdict::Reject | Verdict::RejectFailed => {
                    let spared = u16::from(verdict == Verdict::Reject);
                    let one = self.bury(*run, DeadReason::Rejected, rules);
                    Dead { failed: one.failed.saturating_sub(spared), ..one }.add_to(dead);
                }
                Verdict::Renew => {
                    self.hold(run.first, run.last, Flight { deadline: now.saturating_add(rules.lock), ..run.value });
                }
            }
        }
        self.advance();
        held.iter().map(|run| run.last - run.first + 1).sum()
    }

    /// Gives back everything that `consumer` has; true when there was something.
    pub fn release_all(&mut self, consumer: ConsumerId, now: u64, rules: &Rules, dead: &mut Vec<Dead>) -> bool {
        let held = self.in_flight.select(0, u64::MAX, |flight| flight.consumer == consumer);
        for run in &held {
            self.let_go(run.first, run.last);
            self.give_back(*run, true, rules, dead, now);
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
            self.let_go(run.first, run.last);
            if let Some(reason) = run.value.reason {
                self.bury(*run, reason, rules).add_to(dead);
            } else {
                self.give_back(*run, true, rules, dead, now);
            }
        }
        self.earliest = self.in_flight.iter().map(|run| run.value.deadline).min().unwrap_or(u64::MAX);
        self.advance();
        due.iter().map(|run| run.last - run.first + 1).sum()
    }

    /// No earlier time has anything for [`Subscription::expire`]; `None`: nothing is in flight, or for ever.
    pub fn next_deadline(&self) -> Option<u64> {
        (!self.in_flight.is_empty() && self.earliest < time_outs::FIRST).then_some(self.earliest)
    }

    /// Starts anew at `start`: as if nothing had ever been delivered.
    pub fn reset(&mut self, start: u64) {
        let (ordered, mut changed) = (self.is_key_ordered(), std::mem::take(&mut self.changed));
        let stored = std::mem::take(&mut self.stored);
        changed.extend(stored.keys().copied());
        let mut acks = std::mem::take(&mut self.acks);
        acks.forget();
        acks.forget_open();
        let mut levels = std::mem::take(&mut self.levels);
        levels.forget();
        let (levelled, returned_first, given, turnover) =
            (self.levelled, self.returned_first, self.given.map(|_| 0), self.turnover + 1);
        // What lies before may be given out again: it is searched again.
        let searched =
            Searched { until: if self.searched.until == u64::MAX { u64::MAX } else { start }, ..self.searched };
        *self = Self {
            changed,
            stored,
            levelled,
            returned_first,
            levels,
            acks,
            given,
            turnover,
            searched,
            ..Self::new(start)
        };
        self.set_key_ordered(ordered);
        self.ready.set_returned_first(returned_first);
    }

    fn give_back(&mut self, run: Run<Flight>, failed: bool, rules: &Rules, dead: &mut Vec<Dead>, now: u64) {
        let Run { first, last, .. } = run;
        if self.has_removed() {
            for (first, last) in self.settle_removed(first, last) {
                self.give_back_there(Run { first, last, ..run }, failed, rules, dead, now);
            }
            return;
        }
        self.give_back_there(run, failed, rules, dead, now);
    }

    /// As [`Self::give_back`], of what is in the log.
    fn give_back_there(&mut self, run: Run<Flight>, failed: bool, rules: &Rules, dead: &mut Vec<Dead>, now: u64) {
        let Run { first, last, value: Flight { tries, level, .. } } = run;
        if rules.deliveries_max.is_some_and(|max| tries.counted >= max) {
            self.bury(run, DeadReason::DeliveryLimit, rules).add_to(dead);
            return;
        }
        self.disown(first, last);
        self.touch(first, last);
        if let Some(wait) = rules.retry.and_then(|retry| retry.wait(tries, failed)) {
            return self.hold(
                first,
                last,
                Flight { consumer: DELAYED, deadline: time_outs::deadline(now, wait), ..run.value },
            );
        }
        let level = if self.returned_first { Some(RETURNED) } else { level };
        self.ready.insert(first, last, Waiting { tries, level: level.filter(|_| self.levelled) });
        self.turnover += 1;
    }

    /// No consumer is to get these any more; the caller has claimed them.
    #[must_use]
    fn bury(&mut self, run: Run<Flight>, reason: DeadReason, rules: &Rules) -> Dead {
        let Run { first, last, value } = run;
        self.forget_removed(first, last);
        // The dead hold up nobody.
        self.forget_keys(first, last, value.reason.is_none());
        if rules.dead_letters {
            self.hold(first, last, Flight { consumer: DEAD_LETTERS, deadline: NO_LOCK, reason: Some(reason), ..value });
            self.touch(first, last);
        } else {
            self.settle(first, last, Done::Archived);
        }
        Dead { first, last, count: value.tries.deliveries(), failed: value.tries.counted, reason }
    }

    /// Somebody has these from now on.
    fn hold(&mut self, first: u64, last: u64, flight: Flight) {
        if flight.consumer == DEAD_LETTERS {
            self.dying += last - first + 1;
        } else if flight.consumer == DELAYED {
            self.delayed += last - first + 1;
        } else if let Some(given) = &mut self.given
            && *given <= last
        {
            *given = last + 1;
            self.start_changed = true;
        }
        self.earliest = self.earliest.min(flight.deadline);
        self.note_time(flight.deadline);
        self.in_flight.insert(first, last, flight);
    }

    /// Nobody has these any more.
    fn let_go(&mut self, first: u64, last: u64) -> Vec<Run<Flight>> {
        let taken = self.in_flight.take(first, last);
        let of = |holder: ConsumerId| {
            taken.iter().filter(|run| run.value.consumer == holder).map(|run| run.last - run.first + 1).sum::<u64>()
        };
        self.dying -= of(DEAD_LETTERS);
        self.delayed -= of(DELAYED);
        taken
    }

    fn take_ready(&mut self, first: u64, last: u64) -> Vec<Run<Waiting>> {
        self.turnover += 1;
        self.ready.take(first, last)
    }

    fn settle(&mut self, first: u64, last: u64, done: Done) {
        self.balance.left += last - first + 1;
        self.done.insert(first, last, done);
        self.acks.push(first, last, done);
    }

    fn disown(&mut self, first: u64, last: u64) {
        if let Some(keys) = &mut self.keys {
            (first..=last).for_each(|offset| keys.disown(offset));
        }
    }

    fn forget_keys(&mut self, first: u64, last: u64, owned: bool) {
        if let Some(keys) = &mut self.keys {
            (first..=last).for_each(|offset| keys.forget(offset, owned));
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
}
