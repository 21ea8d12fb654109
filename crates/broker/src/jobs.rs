//! Work that blocks, off the shards: the controller (one thread, in order, waits for durable commits), the cold-read pool (two
//! threads), and two that write dead letters and wait for commits. A job's result goes to the mailbox of the shard that asked.
//!
//! The controller writes what staged jobs want to have written together: those that wait, up to the first job that is not staged.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use journal::{AppendError, AppendItem, Appended, ReplyTo};
use parking_lot::{Condvar, Mutex};
use routing::Name;
use types::{ConnectionId, ShardId};

use crate::Broker;
use crate::mailbox::Reply;

/// Jobs that may wait in one queue; an asker beyond that is told that the broker is busy.
pub const JOBS_MAX: usize = 10_000;

/// Nobody waits for the outcome of such a job.
pub const NOBODY: ReplyTo = ReplyTo { shard: ShardId(u16::MAX), connection: ConnectionId(u64::MAX), token: 0 };

/// Niceness of the cold-read pool.
const NICE: i32 = 10;

/// Records that staged jobs write together, about.
pub(crate) const TOGETHER_MAX: usize = 1000;

/// What to do, and for whom.
pub(crate) struct Job {
    pub to: ReplyTo,
    pub task: Task,
}

pub(crate) enum Task {
    Work(Work),
    Staged(Staged),
}

/// Work of which the middle, a write to the catalog, is done together with that of others. Told what others before it have not written
/// yet.
pub type Staged = Box<dyn FnOnce(&Arc<Broker>, &Pending) -> Stage + Send>;

/// What comes after a write, with its outcome.
pub type AfterWrite = Box<dyn FnOnce(&Arc<Broker>, Result<(), AppendError>) -> Box<dyn Any + Send> + Send>;

/// How far staged work has come.
pub enum Stage {
    /// It is done.
    Done(Box<dyn Any + Send>),
    /// It goes on with `then` once `items` are durable.
    Write {
        /// For journal 0. The first of them counts; what is behind it can be done without.
        items: Vec<AppendItem>,
        /// A virtual host, and the queue of it that comes to life, or goes.
        of: (String, Name),
        /// It comes to life.
        comes: bool,
        /// What then.
        then: AfterWrite,
    },
    /// Nothing was done: what is pending has to be written before.
    Wait(Staged),
}

/// Queues that come to life or go when what is pending is written, by virtual host.
#[derive(Default)]
pub struct Pending(HashMap<String, PendingOf>);

#[derive(Default)]
struct PendingOf {
    names: HashSet<Name>,
    coming: usize,
}

impl Pending {
    /// Is it one of them?
    pub fn holds(&self, vhost: &str, queue: &[u8]) -> bool {
        self.0.get(vhost).is_some_and(|of| of.names.contains(queue))
    }

    /// It comes to life, or goes.
    pub(crate) fn add(&mut self, vhost: String, queue: Name, comes: bool) {
        let of = self.0.entry(vhost).or_default();
        of.names.insert(queue);
        of.coming += usize::from(comes);
    }

    /// Is there nothing that waits to be written?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many come to a virtual host.
    pub fn count(&self, vhost: &str) -> usize {
        self.0.get(vhost).map_or(0, |of| of.coming)
    }

    /// How many come to all of them.
    pub fn count_all(&self) -> usize {
        self.0.values().map(|of| of.coming).sum()
    }
}

/// What is to be written together.
#[derive(Default)]
struct Together {
    items: Vec<AppendItem>,
    then: Vec<Waiting>,
    pending: Pending,
}

/// What waits for a write.
struct Waiting {
    to: ReplyTo,
    then: AfterWrite,
    /// The item that is to be durable.
    item: usize,
    /// So is the next id of a log.
    comes: bool,
}

/// A defect in one piece of work costs its connection, not the thread.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

/// The outcome of an item.
pub(crate) fn durable(result: Option<&Result<Appended, AppendError>>) -> Result<(), AppendError> {
    result.map_or(Err(AppendError::Stopped), |result| result.map(drop))
}

impl Together {
    fn write(&mut self, broker: &Arc<Broker>) {
        let Self { items, then, .. } = std::mem::take(self);
        if then.is_empty() {
            return;
        }
        // Of several chunks some may find space and others none.
        let results = broker.commit_all_with_next_log(items);
        let next_log = durable(results.last());
        for Waiting { to, then, item, comes } in then {
            let written = durable(results.get(item)).and(if comes { next_log } else { Ok(()) });
            let outcome = guarded(|| then(broker, written));
            broker.reply_of_controller(to, outcome.map_or(Reply::Failed, Reply::Done));
        }
    }

    fn take(&mut self, broker: &Arc<Broker>, to: ReplyTo, mut staged: Staged) {
        loop {
            match guarded(|| staged(broker, &self.pending)) {
                None => return broker.reply_of_controller(to, Reply::Failed),
                Some(Stage::Done(outcome)) => return broker.reply_of_controller(to, Reply::Done(outcome)),
                Some(Stage::Wait(again)) => {
                    self.write(broker);
                    staged = again;
                }
                Some(Stage::Write { items, of: (vhost, queue), comes, then }) => {
                    let item = self.items.len();
                    self.items.extend(items);
                    self.pending.add(vhost, queue, comes);
                    self.then.push(Waiting { to, then, item, comes });
                    if self.items.len() >= TOGETHER_MAX {
                        self.write(broker);
                    }
                    return;
                }
            }
        }
    }
}

/// Runs on a thread of the queue; what it returns becomes `Reply::Done`.
pub type Work = Box<dyn FnOnce(&Arc<Broker>) -> Box<dyn Any + Send> + Send>;

/// A queue with one or more threads behind it.
#[derive(Default)]
pub(crate) struct JobQueue {
    inner: Mutex<Inner>,
    arrives: Condvar,
}

/// Lets everybody else of the machine go first: readers of history are to use what others leave.
pub(crate) fn lower_priority() {
    // SAFETY: a system call without pointers; 0 names the calling thread, and lowering needs no privilege.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl JobQueue {
    /// False when the queue is full or closed.
    pub fn push(&self, job: Job) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed || inner.jobs.len() >= JOBS_MAX {
            return false;
        }
        inner.jobs.push_back(job);
        self.arrives.notify_one();
        true
    }

    /// Of a kind of which only so many can wait: it always has room. False when the queue is closed.
    pub fn push_always(&self, job: Job) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed {
            return false;
        }
        inner.jobs.push_back(job);
        self.arrives.notify_one();
        true
    }

    /// Does one wait for a thread?
    pub fn has_jobs(&self) -> bool {
        !self.inner.lock().jobs.is_empty()
    }

    /// Is the broker ending?
    pub fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }

    /// Ends the threads once what is queued is done.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.arrives.notify_all();
    }

    /// The body of a thread of this queue.
    pub fn run(&self, broker: &Arc<Broker>) {
        let mut together = Together::default();
        loop {
            let waiting = self.inner.lock().jobs.pop_front();
            let job = match waiting {
                Some(job) => job,
                None => {
                    together.write(broker);
                    match self.next() {
                        Some(job) => job,
                        None => return,
                    }
                }
            };
            match job.task {
                Task::Staged(staged) => together.take(broker, job.to, staged),
                Task::Work(work) => {
                    together.write(broker);
                    let outcome = guarded(|| work(broker)).map_or(Reply::Failed, Reply::Done);
                    if std::ptr::eq(self, &broker.controller) {
                        broker.reply_of_controller(job.to, outcome);
                    } else {
                        broker.reply(job.to, outcome);
                    }
                }
            }
        }
    }

    /// Waits for a job; `None`: there will be none.
    fn next(&self) -> Option<Job> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(job) = inner.jobs.pop_front() {
                return Some(job);
            }
            if inner.closed {
                return None;
            }
            self.arrives.wait(&mut inner);
        }
    }
}
