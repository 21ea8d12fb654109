//! The one lane of journal 0 in which groups and transactions append their records. Two rules follow from it:
//!
//! * Records are placed in the order in which they were given to the lane, whoever decided them.
//! * Outcomes come back in the order of the journal. Those with which committed offsets of groups take effect all go to the thread of
//!   the groups, so that memory changes in that order too.

use std::sync::Arc;
use std::time::Duration;

use journal::{Append, AppendItem, AppendResults, EventSink, Journal, JournalEvent, ReplyTo};
use parking_lot::{Condvar, Mutex};
use types::{ConnectionId, ShardId};

use crate::unsent::Unsent;

/// The shard number of the lane.
pub(crate) const SHARD: ShardId = ShardId(61);
const LANE: ConnectionId = ConnectionId(u64::MAX);

/// In a token: the append is one of transactions …
pub(crate) const OF_TRANSACTIONS: u64 = 1 << 63;
/// … and committed offsets take effect with it.
pub(crate) const WITH_OFFSETS: u64 = 1 << 62;

/// Outcomes of appends, for the thread that waits for them.
#[derive(Default)]
pub(crate) struct Inbox {
    arrived: Mutex<Arrived>,
    wakes: Condvar,
}

#[derive(Default)]
struct Arrived {
    results: Vec<(u64, AppendResults)>,
    woken: bool,
}

impl Inbox {
    /// Wakes the thread.
    pub fn wake(&self) {
        self.arrived.lock().woken = true;
        self.wakes.notify_one();
    }

    /// Takes what has come, in its order.
    pub fn take(&self) -> Vec<(u64, AppendResults)> {
        std::mem::take(&mut self.arrived.lock().results)
    }

    /// Adds an outcome.
    pub fn push(&self, token: u64, results: AppendResults) {
        self.arrived.lock().results.push((token, results));
        self.wakes.notify_one();
    }

    /// Waits until something comes, or somebody wakes the thread, at most so long.
    pub fn wait(&self, longest: Duration) {
        let mut arrived = self.arrived.lock();
        if !arrived.woken && arrived.results.is_empty() {
            self.wakes.wait_for(&mut arrived, longest);
        }
        arrived.woken = false;
    }
}

impl EventSink for Inbox {
    fn deliver(&self, events: &mut Vec<JournalEvent>) {
        let mut arrived = self.arrived.lock();
        arrived.results.extend(events.drain(..).filter_map(outcome));
        self.wakes.notify_one();
    }
}

fn outcome(event: JournalEvent) -> Option<(u64, AppendResults)> {
    let JournalEvent::Appended { to, results } = event else { return None };
    Some((to.token, results))
}

/// The lane.
#[derive(Default)]
pub(crate) struct Lane {
    unsent: Mutex<Unsent>,
    groups: Arc<Inbox>,
    transactions: Arc<Inbox>,
}

impl Lane {
    /// Where the groups hear of outcomes.
    pub fn groups(&self) -> &Arc<Inbox> {
        &self.groups
    }

    /// Where the transactions do.
    pub fn transactions(&self) -> &Arc<Inbox> {
        &self.transactions
    }

    /// Appends behind everything that was appended before; what the journal has no room for waits, and the groups' thread sends it.
    /// The token says to whom the outcome goes.
    pub fn append(&self, journals: &[Arc<Journal>], token: u64, items: Vec<AppendItem>, acknowledge: bool) {
        let append = Append { to: ReplyTo { shard: SHARD, connection: LANE, token }, items, acknowledge };
        let waits = {
            let mut unsent = self.unsent.lock();
            unsent.append(journals, 0, append);
            !unsent.is_empty()
        };
        if waits {
            self.groups.wake();
        }
    }

    /// Gives the journal what it has room for. How many appends wait on.
    pub fn send(&self, journals: &[Arc<Journal>]) -> usize {
        let mut unsent = self.unsent.lock();
        unsent.send(journals);
        unsent.len()
    }

    /// How many appends wait because the journal's queue is full.
    pub fn waiting(&self) -> usize {
        self.unsent.lock().len()
    }
}

impl EventSink for Lane {
    fn deliver(&self, events: &mut Vec<JournalEvent>) {
        let (mut groups, mut transactions) = (Vec::new(), Vec::new());
        for (token, results) in events.drain(..).filter_map(outcome) {
            let only_transactions = token & (OF_TRANSACTIONS | WITH_OFFSETS) == OF_TRANSACTIONS;
            if only_transactions { &mut transactions } else { &mut groups }.push((token, results));
        }
        for (inbox, results) in [(&self.groups, groups), (&self.transactions, transactions)] {
            if !results.is_empty() {
                inbox.arrived.lock().results.extend(results);
                inbox.wakes.notify_one();
            }
        }
    }
}
