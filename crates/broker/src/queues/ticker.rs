//! What queues need time for: acknowledgements become durable together, and messages, consumers' patience and queues themselves run out.
//! One thread for all queues, `queues`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use routing::QueueId;

use super::queue::Queue;
use crate::Broker;
use crate::groups::now;

/// Longest sleep, in ms.
const LONGEST: u64 = 60_000;

/// How long a queue whose end could not be written waits for the next try, in ms.
const RETRY: u64 = 1000;

/// A queue that is to be deleted, and whether it goes with its connection.
pub(super) type Doomed = (Arc<Queue>, bool);

/// The thread's letter box.
#[derive(Default)]
pub(crate) struct Ticker {
    state: Mutex<State>,
    wakes: Condvar,
}

#[derive(Default)]
struct State {
    /// Queues of which something changed, and since when.
    dirty: Vec<Arc<Queue>>,
    dirty_since: u64,
    /// When which queue is to be looked after, steady ms.
    due: BTreeSet<(u64, QueueId)>,
    /// Queues that are to be deleted, and when that is tried again.
    doomed: Vec<Doomed>,
    retry_at: u64,
    closed: bool,
}

impl Ticker {
    /// What consumers said of messages of `queue` is to be made durable soon.
    pub fn touch(&self, queue: &Arc<Queue>) {
        let mut state = self.state.lock();
        if state.dirty.is_empty() {
            state.dirty_since = now();
            self.wakes.notify_one();
        }
        state.dirty.push(Arc::clone(queue));
    }

    /// `queue` is to be looked after at `at`, steady ms, and no more at `before`.
    pub fn set_due(&self, queue: QueueId, before: Option<u64>, at: Option<u64>) {
        if before == at {
            return;
        }
        let mut state = self.state.lock();
        if let Some(before) = before {
            state.due.remove(&(before, queue));
        }
        if let Some(at) = at {
            let first = state.due.first().is_none_or(|(first, _)| at < *first);
            state.due.insert((at, queue));
            if first {
                self.wakes.notify_one();
            }
        }
    }

    /// Has a queue deleted by and by: that could not be written.
    pub fn delete_later(&self, queue: Doomed) {
        let mut state = self.state.lock();
        if state.doomed.is_empty() {
            state.retry_at = now() + RETRY;
            self.wakes.notify_one();
        }
        state.doomed.push(queue);
    }

    /// Somebody uses `queue` again: it is not deleted by and by.
    pub fn keep(&self, queue: &Queue) {
        self.state.lock().doomed.retain(|(doomed, with_connection)| *with_connection || doomed.id != queue.id);
    }

    pub fn close(&self) {
        self.state.lock().closed = true;
        self.wakes.notify_all();
    }

    /// The body of the thread.
    pub fn run(&self, broker: &Arc<Broker>) {
        let flush_ms = broker.settings().int("mainstem.queue.ack.flush.ms").max(0) as u64;
        loop {
            let (dirty, due, doomed) = {
                let mut state = self.state.lock();
                loop {
                    if state.closed {
                        break;
                    }
                    let time = now();
                    let flush_at = if state.dirty.is_empty() { u64::MAX } else { state.dirty_since + flush_ms };
                    let due_at = state.due.first().map_or(u64::MAX, |(at, _)| *at);
                    let retry_at = if state.doomed.is_empty() { u64::MAX } else { state.retry_at };
                    let next = flush_at.min(due_at).min(retry_at);
                    if next <= time {
                        break;
                    }
                    self.wakes.wait_for(&mut state, Duration::from_millis((next - time).min(LONGEST)));
                }
                let time = now();
                let mut due = Vec::new();
                while let Some((at, queue)) = state.due.first().copied().filter(|(at, _)| *at <= time && !state.closed)
                {
                    state.due.remove(&(at, queue));
                    due.push(queue);
                }
                let flush = state.closed || time >= state.dirty_since + flush_ms;
                let doomed = if time >= state.retry_at { std::mem::take(&mut state.doomed) } else { Vec::new() };
                (if flush { std::mem::take(&mut state.dirty) } else { Vec::new() }, due, doomed)
            };
            if !doomed.is_empty() && !broker.try_deletions(doomed.clone()) {
                doomed.into_iter().for_each(|queue| self.delete_later(queue));
            }
            for queue in dirty {
                broker.write_queue(&queue, None);
            }
            for queue in due.into_iter().filter_map(|id| broker.vhosts().queue(id)) {
                broker.look_after(&queue);
            }
            if self.state.lock().closed {
                return;
            }
        }
    }
}
