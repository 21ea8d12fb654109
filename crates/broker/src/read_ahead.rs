//! History that was read for a shared subscription, and is kept with it until a consumer takes it: what a fetch asked for, or what
//! follows on what was taken last, so that the next fetch finds it in memory. One read for a subscription at a time, and one piece
//! kept. What nobody takes is forgotten soon.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use journal::{ColdData, ColdWant, ReadError, TailRead};
use smallvec::SmallVec;
use types::Offset;

use crate::Broker;
use crate::groups::now;
use crate::jobs::NOBODY;
use crate::subscriptions::SharedSubscription;

/// What was not taken for this long, in ms, is forgotten.
const KEPT_MS: u64 = 2_000;

/// Batches that were read.
pub struct Ahead {
    /// What was looked for and found: the batches cover it, and may begin before it.
    pub range: Range<Offset>,
    /// The batches, in order.
    pub slices: SmallVec<[Bytes; 4]>,
    /// The asker's account of the memory.
    pub held: Box<dyn Any + Send>,
}

/// A piece that waits to be taken, or why there is none.
pub(crate) struct Kept {
    since: u64,
    outcome: Result<Ahead, ReadError>,
}

/// Accounts for what was read, and may copy it out of the memory that it was read into.
pub type HoldAhead = Box<dyn FnOnce(&mut SmallVec<[Bytes; 4]>) -> Box<dyn Any + Send> + Send>;

/// What to read.
pub struct AheadWant {
    /// From here, and to before this.
    pub range: Range<Offset>,
    /// At most about this much.
    pub max_bytes: usize,
    /// Makes an account of the memory, which is kept with what was read.
    pub hold: HoldAhead,
    /// A consumer waits for it: it is to hear of an error. Nobody waits for what may be in the tail cache by then.
    pub asked_for: bool,
}

/// Ends a read however it ends.
struct Reading {
    broker: Arc<Broker>,
    shared: Arc<SharedSubscription>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.shared.reading.store(false, Ordering::SeqCst);
        self.broker.wake_subscription(&self.shared);
    }
}

impl SharedSubscription {
    /// Is history being read for it?
    pub fn is_reading(&self) -> bool {
        self.reading.load(Ordering::SeqCst)
    }

    /// What has been read from `from` on, or around it.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn take_ahead(&self, from: Offset) -> Option<Result<Ahead, ReadError>> {
        let fits = |kept: &mut Box<Kept>| kept.outcome.as_ref().map_or(true, |ahead| ahead.range.contains(&from));
        self.ahead.lock().take_if(fits).map(|kept| kept.outcome)
    }

    /// Puts back what was not wanted yet.
    pub fn put_back(&self, ahead: Ahead) {
        *self.ahead.lock() = Some(Box::new(Kept { since: now(), outcome: Ok(ahead) }));
        self.look_after();
    }

    /// True: something is kept that is not stale.
    pub(crate) fn forget_stale_ahead(&self, now: u64) -> bool {
        let mut ahead = self.ahead.lock();
        ahead.take_if(|kept| now.saturating_sub(kept.since) >= KEPT_MS);
        ahead.is_some()
    }
}

impl Broker {
    /// Reads history for a subscription, on a thread that may wait; whoever waits for the subscription looks again when it is there.
    /// False: a read is under way, or there is no room for another.
    pub fn read_ahead(self: &Arc<Self>, shared: &Arc<SharedSubscription>, want: AheadWant) -> bool {
        if shared.reading.swap(true, Ordering::SeqCst) {
            return false;
        }
        let reading = Reading { broker: Arc::clone(self), shared: Arc::clone(shared) };
        let work = Box::new(move |broker: &Arc<Self>| {
            if let Some(outcome) = broker.read_for(&reading.shared, want) {
                *reading.shared.ahead.lock() = Some(Box::new(Kept { since: now(), outcome }));
                reading.shared.look_after();
            }
            drop(reading);
            Box::new(()) as Box<dyn Any + Send>
        });
        self.read_history(NOBODY, crate::jobs::JobOwner::BROKER, work)
    }

    fn read_for(&self, shared: &SharedSubscription, want: AheadWant) -> Option<Result<Ahead, ReadError>> {
        let AheadWant { range, max_bytes, hold, asked_for } = want;
        let (log, journal) = (shared.log(), self.journal_of(shared.log().id()));
        if !asked_for && !matches!(journal.read_tail(log, range.clone(), 1, true), TailRead::Cold) {
            return None;
        }
        let want = ColdWant { log: Arc::clone(log), from: range.start, until: range.end, max_bytes };
        match journal.read_cold(&[want], max_bytes).pop()? {
            Ok(ColdData { next, .. }) if next <= range.start => None,
            Ok(ColdData { mut slices, next, .. }) => {
                let held = hold(&mut slices);
                Some(Ok(Ahead { range: range.start..next, slices, held }))
            }
            Err(error) => asked_for.then_some(Err(error)),
        }
    }
}
