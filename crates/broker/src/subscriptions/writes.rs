//! What is written of subscriptions and not answered by the journals yet, and who waits for it. An answer waits for what its asker has changed,
//! whoever writes that: the asker, or a thread that has taken the changes before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hashbrown::HashMap;
use journal::{Append, AppendItem, EventSink, JournalEvent, ReplyTo};
use parking_lot::{Condvar, Mutex, RwLock};
use smallvec::SmallVec;
use types::ConnectionId;

use super::done::{DoneCopy, DoneLogs};
use super::{SHARD, SharedSubscription};
use crate::mailbox::{Event, Mailboxes};
use crate::unsent::{FromReserve, Unsent};
use crate::{Broker, Reply};

/// Those who wait for one or more writes.
pub struct Acknowledgement {
    to: Told,
    open: AtomicUsize,
    failed: AtomicBool,
}

/// All writes of an acknowledgement count, or not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged(pub bool);

/// The journal did not take what was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal does not take it")]
pub struct NotWritten;

enum Told {
    Shard(ReplyTo),
    Thread(Arc<Waiting>),
}

/// A thread that waits for an outcome.
#[derive(Default)]
struct Waiting {
    outcome: Mutex<Option<bool>>,
    comes: Condvar,
}

impl Waiting {
    fn wait(&self) -> bool {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(durable) = *outcome {
                return durable;
            }
            self.comes.wait(&mut outcome);
        }
    }
}

/// Writes on their way, by token.
pub(crate) struct Writes {
    mailboxes: Mailboxes,
    /// What is data here takes the place of other data: dead letters, and delayed messages in another order.
    journals: RwLock<Vec<FromReserve>>,
    state: Mutex<WritesState>,
    pub(super) done: DoneLogs,
}

#[derive(Default)]
struct WritesState {
    next: u64,
    open: HashMap<u64, Write>,
    /// The last open write of a subscription, by its lane.
    last: HashMap<ConnectionId, u64>,
    unsent: Unsent,
}

/// An append on its way.
pub(super) struct Write {
    /// Of which records are lost if they are not written.
    of: Option<Arc<SharedSubscription>>,
    /// Who waits for it; true: and for all that was written of the subscription before.
    askers: SmallVec<[(Arc<Acknowledgement>, bool); 1]>,
    /// What was done when it was made; then it is flushed.
    done: Option<Arc<DoneCopy>>,
}

impl Write {
    /// Of no subscription, or of one that is deleted.
    pub fn alone(asker: Option<&Arc<Acknowledgement>>) -> Self {
        Self { of: None, askers: asker.map(|asker| (Arc::clone(asker), false)).into_iter().collect(), done: None }
    }

    /// What changed in a subscription.
    pub fn of(shared: &SharedSubscription, asker: Option<&Arc<Acknowledgement>>, done: Option<Arc<DoneCopy>>) -> Self {
        Self { of: shared.me.upgrade(), done, ..Self::alone(asker) }
    }
}

impl WritesState {
    /// A write has its outcome.
    fn take(&mut self, of: ReplyTo) -> Option<Write> {
        if self.last.get(&of.connection) == Some(&of.token) {
            self.last.remove(&of.connection);
        }
        self.open.remove(&of.token)
    }
}

impl Acknowledgement {
    /// `to` gets a [`Reply::Done`] with an [`Acknowledged`] once [`Acknowledgement::close`] was called and all writes are done.
    pub fn new(to: ReplyTo) -> Arc<Self> {
        Self::to(Told::Shard(to))
    }

    fn to(to: Told) -> Arc<Self> {
        Arc::new(Self { to, open: AtomicUsize::new(1), failed: AtomicBool::new(false) })
    }
}

impl Writes {
    pub fn new(mailboxes: Mailboxes, journals: &[Arc<journal::Journal>]) -> Self {
        Self {
            mailboxes,
            journals: RwLock::new(journals.iter().cloned().map(FromReserve).collect()),
            state: Mutex::default(),
            done: DoneLogs::default(),
        }
    }

    pub fn mailboxes(&self) -> &Mailboxes {
        &self.mailboxes
    }

    fn leave(&self, asker: &Acknowledgement) {
        if asker.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            let durable = !asker.failed.load(Ordering::SeqCst);
            match &asker.to {
                Told::Shard(to) => {
                    self.mailboxes
                        .push(to.shard, Event::Reply { to: *to, reply: Reply::Done(Box::new(Acknowledged(durable))) });
                }
                Told::Thread(waiting) => {
                    *waiting.outcome.lock() = Some(durable);
                    waiting.comes.notify_one();
                }
            }
        }
    }

    /// Appends in the order of the calls, also when the journal's queue is full. The askers wait for it.
    pub(super) fn append(&self, journal: usize, lane: ConnectionId, items: Vec<AppendItem>, write: Write) {
        let mut state = self.state.lock();
        state.next += 1;
        let token = state.next;
        for (asker, _) in &write.askers {
            asker.open.fetch_add(1, Ordering::SeqCst);
        }
        if write.of.is_some() {
            state.last.insert(lane, token);
        }
        state.open.insert(token, write);
        let append = Append { to: ReplyTo { shard: SHARD, connection: lane, token }, items, acknowledge: true };
        state.unsent.append(&self.journals.read(), journal, append);
    }

    /// `asker` waits for what was written of a subscription last, if that is on its way: what was written before is durable by then.
    pub(super) fn wait_for(&self, shared: &SharedSubscription, asker: &Arc<Acknowledgement>) {
        let mut state = self.state.lock();
        let last = state.last.get(&shared.lane).copied();
        if let Some(write) = last.and_then(|token| state.open.get_mut(&token)) {
            asker.open.fetch_add(1, Ordering::SeqCst);
            write.askers.push((Arc::clone(asker), true));
        }
    }
}

impl EventSink for Writes {
    fn deliver(&self, events: &mut Vec<JournalEvent>) {
        for event in events.drain(..) {
            match event {
                JournalEvent::Appended { to, results } => {
                    let Some(write) = self.state.lock().take(to) else { continue };
                    let failed = results.iter().any(Result::is_err);
                    if let (true, Some(shared)) = (failed, &write.of) {
                        self.done.lost(shared);
                    }
                    if let Some(copy) = &write.done {
                        self.done.end(copy, !failed);
                    }
                    let lost = write.of.is_some_and(|shared| shared.lost.fetch_or(failed, Ordering::SeqCst));
                    for (asker, of_all) in write.askers {
                        asker.failed.fetch_or(failed || of_all && lost, Ordering::SeqCst);
                        self.leave(&asker);
                    }
                }
                JournalEvent::Space => self.state.lock().unsent.send(&self.journals.read()),
                JournalEvent::Advanced(_) => {}
            }
        }
    }
}

impl Broker {
    /// No more is written for `asker`: its answer comes when what was written is durable, at once if nothing was.
    pub fn close_acknowledgement(&self, asker: &Acknowledgement) {
        self.subscriptions().writes.leave(asker);
    }

    /// Waits until what `write` writes is durable. Not on a shard's thread.
    pub(crate) fn durably(&self, write: impl FnOnce(&Arc<Acknowledgement>)) -> bool {
        self.write_for_thread(write).wait()
    }

    /// Waits until what each of these writes is durable; an outcome for each. All are on their way before the first is waited for, so that they share
    /// commits. Not on a shard's thread.
    pub(crate) fn durably_each<W: FnOnce(&Arc<Acknowledgement>)>(&self, writes: impl Iterator<Item = W>) -> Vec<bool> {
        let begun: Vec<Arc<Waiting>> = writes.map(|write| self.write_for_thread(write)).collect();
        begun.iter().map(|waiting| waiting.wait()).collect()
    }

    fn write_for_thread(&self, write: impl FnOnce(&Arc<Acknowledgement>)) -> Arc<Waiting> {
        let waiting = Arc::new(Waiting::default());
        let asker = Acknowledgement::to(Told::Thread(Arc::clone(&waiting)));
        write(&asker);
        self.close_acknowledgement(&asker);
        waiting
    }
}
