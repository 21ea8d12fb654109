//! Work that blocks, off the shards: the controller (one thread, in order, waits for durable commits) and the
//! cold-read pool (two threads). A job's result goes to the mailbox of the shard that asked.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use journal::ReplyTo;
use parking_lot::{Condvar, Mutex};
use types::{ConnectionId, ShardId};

use crate::Broker;
use crate::mailbox::Reply;

/// Jobs that may wait in one queue; an asker beyond that is told that the broker is busy.
pub const JOBS_MAX: usize = 10_000;

/// Nobody waits for the outcome of such a job.
pub(crate) const NOBODY: ReplyTo = ReplyTo { shard: ShardId(u16::MAX), connection: ConnectionId(u64::MAX), token: 0 };

/// Niceness of the cold-read pool.
const NICE: i32 = 10;

/// What to do, and for whom.
pub(crate) struct Job {
    pub to: ReplyTo,
    pub work: Work,
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
        self.push_within(job, JOBS_MAX)
    }

    /// False when so many wait, or the queue is closed.
    pub fn push_within(&self, job: Job, most: usize) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed || inner.jobs.len() >= most {
            return false;
        }
        inner.jobs.push_back(job);
        self.arrives.notify_one();
        true
    }

    /// Ends the threads once what is queued is done.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.arrives.notify_all();
    }

    /// The body of a thread of this queue.
    pub fn run(&self, broker: &Arc<Broker>) {
        loop {
            let mut inner = self.inner.lock();
            let job = loop {
                if let Some(job) = inner.jobs.pop_front() {
                    break job;
                }
                if inner.closed {
                    return;
                }
                self.arrives.wait(&mut inner);
            };
            drop(inner);
            // A defect in one piece of work costs its connection, not the thread.
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| (job.work)(broker)));
            broker.reply(job.to, outcome.map_or(Reply::Failed, Reply::Done));
        }
    }
}
