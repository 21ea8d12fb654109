//! Which records of a log nobody needs any more although its start lies before them, for the journal of the log: what is done behind a message
//! that somebody keeps. Of logs that are trimmed behind one subscription, those of queues.
//!
//! Only what is on stable storage counts, of whatever class the log is: what is not done after a power loss has to be there. The journal is
//! answered from a copy of what is done, and asks for newer ones by asking:
//!
//! ```text
//! the journal asks ───▶ the next write of the subscription copies what is done by then, and is flushed
//!   ▲                                       │ behind all that was written of it before
//!   └─ it hears that there is something ◀───┘ durable: the copy is the answer from now on
//! ```
//!
//! A write that fails makes worthless what was copied behind it. Nothing is kept of a subscription in which nothing is done behind the start.

use std::ops::Range;
use std::sync::{Arc, Weak};

use delivery::{DoneOffsets, Subscription};
use hashbrown::HashMap;
use journal::{DoneRecords, Journal};
use parking_lot::Mutex;
use types::{LogId, Offset};

use super::SharedSubscription;
use crate::Broker;

/// Has a subscription written soon.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

/// What was done when it was copied.
pub(super) struct DoneCopy {
    of: LogId,
    offsets: DoneOffsets,
    /// See [`Subscription::settled`].
    settled: u64,
}

/// What is done inside one log.
struct DoneInside {
    journal: Weak<Journal>,
    wake: Wake,
    copies: Mutex<Copies>,
}

#[derive(Default)]
struct Copies {
    durable: Option<Arc<DoneCopy>>,
    /// On its way.
    written: Option<Arc<DoneCopy>>,
    /// The journal has asked since the last copy was made.
    asked: bool,
}

/// The logs in which something is done.
#[derive(Default)]
pub(super) struct DoneLogs(Mutex<HashMap<LogId, Arc<DoneInside>>>);

impl DoneRecords for DoneInside {
    fn done_within(&self, range: Range<Offset>) -> Vec<Range<Offset>> {
        let (durable, wakes) = {
            let mut copies = self.copies.lock();
            // When what is on its way is there the journal asks again.
            let wakes = copies.written.is_none() && !std::mem::replace(&mut copies.asked, true);
            (copies.durable.clone(), wakes)
        };
        if wakes {
            (self.wake)();
        }
        let Some(copy) = durable else { return Vec::new() };
        let runs = copy.offsets.within(range.start.0, range.end.0 - 1);
        runs.into_iter().map(|(first, last)| Offset(first)..Offset(last + 1)).collect()
    }
}

impl DoneInside {
    fn note_released(&self) {
        self.journal.upgrade().iter().for_each(|journal| journal.note_released());
    }

    /// The copy that is written now, if the journal has asked and there is something new.
    fn copy(&self, of: LogId, state: &Subscription) -> Option<Arc<DoneCopy>> {
        let mut copies = self.copies.lock();
        if copies.written.is_some() || !std::mem::take(&mut copies.asked) {
            return None;
        }
        let settled = state.settled();
        if copies.durable.as_ref().is_some_and(|copy| copy.settled == settled) {
            return None;
        }
        let copy = Arc::new(DoneCopy { of, offsets: state.done_offsets(), settled });
        copies.written = Some(Arc::clone(&copy));
        Some(copy)
    }

    fn end(&self, copy: &Arc<DoneCopy>, durable: bool) {
        let mut copies = self.copies.lock();
        // What was lost before it has made it worthless.
        if copies.written.as_ref().is_none_or(|written| !Arc::ptr_eq(written, copy)) {
            return;
        }
        copies.written = None;
        if durable {
            copies.durable = Some(Arc::clone(copy));
            drop(copies);
            self.note_released();
        }
    }
}

impl DoneLogs {
    /// What is to be written of a subscription, locked, and flushed, so that the journal may forget it.
    fn to_write(
        &self,
        shared: &SharedSubscription,
        state: &Subscription,
        journal: &Arc<Journal>,
        wake: impl FnOnce() -> Wake,
    ) -> Option<Arc<DoneCopy>> {
        if !state.has_done() || shared.is_dropped() {
            self.forget(shared);
            return None;
        }
        let log = shared.log();
        let (inside, is_new) = {
            let mut logs = self.0.lock();
            let before = logs.len();
            let new =
                || Arc::new(DoneInside { journal: Arc::downgrade(journal), wake: wake(), copies: Mutex::default() });
            let inside = Arc::clone(logs.entry(log.id()).or_insert_with(new));
            (inside, logs.len() > before)
        };
        if is_new {
            let records = Arc::clone(&inside) as Arc<dyn DoneRecords>;
            log.set_done(Some(Arc::downgrade(&records)));
            inside.note_released();
        }
        inside.copy(log.id(), state)
    }

    /// Nothing is done behind the start of a subscription, or it has gone.
    pub fn forget(&self, shared: &SharedSubscription) {
        if self.0.lock().remove(&shared.log().id()).is_some() {
            shared.log().set_done(None);
        }
    }

    /// What was written of a subscription is lost: what was copied behind that is not known to be durable.
    pub fn lost(&self, shared: &SharedSubscription) {
        if let Some(inside) = self.0.lock().get(&shared.log().id()) {
            inside.copies.lock().written = None;
        }
    }

    /// A copy has been written and flushed, with all of its subscription before it, or not.
    pub fn end(&self, copy: &Arc<DoneCopy>, durable: bool) {
        let inside = self.0.lock().get(&copy.of).cloned();
        inside.iter().for_each(|inside| inside.end(copy, durable));
    }
}

impl Broker {
    /// As [`DoneLogs::to_write`]. Of a subscription behind which alone its log is trimmed.
    pub(super) fn done_to_write(
        &self,
        shared: &SharedSubscription,
        state: &Subscription,
        wake: impl FnOnce() -> Wake,
    ) -> Option<Arc<DoneCopy>> {
        let logs = &self.subscriptions().writes.done;
        logs.to_write(shared, state, self.journal_of(shared.log().id()), wake)
    }
}
