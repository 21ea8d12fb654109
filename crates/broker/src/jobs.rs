//! Work that blocks, off the shards: the controller (one thread, waits for durable commits), the cold-read pool (two threads), and two
//! that write dead letters and wait for commits. A job's result goes to the mailbox of the shard that asked.
//!
//! Those who ask take turns, a job each: who asks for much waits for himself. What one asks for is done in the order in which it
//! came, and what is long in parts ([`Task::Turns`]). Each has his share of the jobs that may wait, and of the memory that they may take ([`JobOwner`]); the broker itself has all that there is.
//!
//! The controller writes what staged jobs want to have written together: those that wait, up to the first job that is not staged.

use std::any::Any;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use journal::{AppendError, AppendItem, Appended, ReplyTo};
use parking_lot::{Condvar, Mutex};
use routing::Name;
use types::{ConnectionId, ShardId};

use crate::Broker;
use crate::mailbox::Reply;
use crate::security::place_of;

/// Jobs that may wait in one queue; who asks beyond that is told that the broker is busy.
pub const JOBS_MAX: usize = 10_000;
/// Bytes that any job takes, about.
const JOB_BYTES: usize = 1 << 10;
/// An owner may have so many times what it leaves free, of jobs and of their bytes: alone three quarters.
const LEFT_FREE: usize = 3;

/// Nobody waits for the outcome of such a job.
pub const NOBODY: ReplyTo = ReplyTo { shard: ShardId(u16::MAX), connection: ConnectionId(u64::MAX), token: 0 };

/// Niceness of the cold-read pool.
const NICE: i32 = 10;

/// Access control entries or quotas that one request changes, in one commit, for which all others wait: as many as Kafka's.
pub(crate) const CHANGES_MAX: usize = 10_000;
/// Records that staged jobs write together, about.
pub(crate) const TOGETHER_MAX: usize = 1000;

/// Whose turn a job takes, and the memory that it holds meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct JobOwner {
    key: u64,
    bytes: usize,
}

impl JobOwner {
    /// The broker itself: how many jobs it has is bounded by what there is of other things.
    pub const BROKER: Self = Self { key: 0, bytes: 0 };

    /// A user, empty for none, at an address, or wherever he is. Two of the same hash have their turns together.
    pub fn of(user: &str, address: Option<IpAddr>) -> Self {
        let mut hasher = DefaultHasher::new();
        (user, address.map(place_of)).hash(&mut hasher);
        Self { key: hasher.finish().max(1), bytes: 0 }
    }

    /// What the job keeps in memory until it is done, beside what is counted elsewhere.
    pub fn holding(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// The same one, with turns of their own for something that takes long, and of which he hears before he asks for what comes after it.
    pub fn apart(self) -> Self {
        Self { key: if self.is_broker() { self.key } else { self.key.rotate_left(1) }, ..self }
    }

    fn is_broker(self) -> bool {
        self.key == Self::BROKER.key
    }

    fn taken(self) -> usize {
        self.bytes + JOB_BYTES
    }
}

/// What to do, for whom, and where its outcome goes.
pub(crate) struct Job {
    pub to: ReplyTo,
    pub of: JobOwner,
    pub task: Task,
}

pub(crate) enum Task {
    Work(Work),
    Staged(Staged),
    /// In parts, between which others have their turns; what its owner asked for later comes behind it.
    Turns(Turns),
}

/// Does a part each time it is called, and has an outcome after the last of them.
pub type Turns = Box<dyn FnMut(&Arc<Broker>) -> Option<Box<dyn Any + Send>> + Send>;

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
pub(crate) struct JobQueue {
    inner: Mutex<Inner>,
    arrives: Condvar,
}

impl Default for JobQueue {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { bytes_max: usize::MAX, ..Inner::default() }), arrives: Condvar::new() }
    }
}

/// Lets everybody else of the machine go first: readers of history are to use what others leave.
pub(crate) fn lower_priority() {
    // SAFETY: a system call without pointers; 0 names the calling thread, and lowering needs no privilege.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[derive(Default)]
struct Inner {
    by_owner: HashMap<u64, Share>,
    /// Each of those who have jobs that wait, once; the first is next.
    turns: VecDeque<u64>,
    waiting: usize,
    /// Of jobs that wait or are being done.
    bytes: usize,
    bytes_max: usize,
    closed: bool,
}

/// What an owner has. There is none who has nothing.
#[derive(Default)]
struct Share {
    jobs: VecDeque<Job>,
    /// Of those, and of its jobs that are being done.
    bytes: usize,
}

impl Inner {
    /// Is there room for another job of this owner?
    fn has_room(&self, of: JobOwner) -> bool {
        let (free, free_bytes) = (JOBS_MAX.saturating_sub(self.waiting), self.bytes_max.saturating_sub(self.bytes));
        if of.is_broker() {
            return free > 0;
        }
        let (jobs, bytes) = self.by_owner.get(&of.key).map_or((0, 0), |share| (share.jobs.len(), share.bytes));
        let within_share = || bytes + of.taken() <= free_bytes.saturating_sub(of.taken()).saturating_mul(LEFT_FREE);
        // Who has nothing finds room for one job, as long as anything is free.
        free > 0 && jobs < free * LEFT_FREE && free_bytes > 0 && (bytes == 0 || within_share())
    }

    fn push(&mut self, job: Job) {
        let share = self.by_owner.entry(job.of.key).or_default();
        if share.jobs.is_empty() {
            self.turns.push_back(job.of.key);
        }
        share.bytes += job.of.taken();
        self.bytes += job.of.taken();
        self.waiting += 1;
        share.jobs.push_back(job);
    }

    /// A job that was popped goes on with its owner's next turn.
    fn put_back(&mut self, job: Job) {
        let Some(share) = self.by_owner.get_mut(&job.of.key) else { return };
        if share.jobs.is_empty() {
            self.turns.push_back(job.of.key);
        }
        self.waiting += 1;
        share.jobs.push_front(job);
    }

    /// The next job of him whose turn it is.
    fn pop(&mut self) -> Option<Job> {
        let key = self.turns.pop_front()?;
        let share = self.by_owner.get_mut(&key)?;
        let job = share.jobs.pop_front()?;
        if !share.jobs.is_empty() {
            self.turns.push_back(key);
        }
        self.waiting -= 1;
        Some(job)
    }

    /// A job of this owner is done.
    fn finish(&mut self, of: JobOwner) {
        self.bytes -= of.taken();
        if let Some(share) = self.by_owner.get_mut(&of.key) {
            share.bytes -= of.taken();
            if share.bytes == 0 {
                self.by_owner.remove(&of.key);
            }
        }
    }
}

impl JobQueue {
    /// Jobs that wait may hold so many bytes.
    pub fn set_bytes_max(&self, bytes: usize) {
        self.inner.lock().bytes_max = bytes;
    }

    /// False when the queue is closed, or full as far as this owner is concerned.
    pub fn push(&self, job: Job) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed || !inner.has_room(job.of) {
            return false;
        }
        inner.push(job);
        self.arrives.notify_one();
        true
    }

    /// Of a kind of which only so many can wait: it always has room. False when the queue is closed.
    pub fn push_always(&self, job: Job) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed {
            return false;
        }
        inner.push(job);
        self.arrives.notify_one();
        true
    }

    /// Does one wait for a thread?
    pub fn has_jobs(&self) -> bool {
        self.inner.lock().waiting > 0
    }

    /// Bytes of jobs that wait or are being done.
    pub fn bytes(&self) -> usize {
        self.inner.lock().bytes
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
            let waiting = self.inner.lock().pop();
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
            let (to, of) = (job.to, job.of);
            match job.task {
                Task::Staged(staged) => together.take(broker, to, staged),
                Task::Work(work) => {
                    together.write(broker);
                    self.reply(broker, to, guarded(|| work(broker)).map_or(Reply::Failed, Reply::Done));
                }
                Task::Turns(mut turns) => {
                    together.write(broker);
                    match guarded(|| turns(broker)) {
                        Some(None) => {
                            self.inner.lock().put_back(Job { to, of, task: Task::Turns(turns) });
                            continue;
                        }
                        Some(Some(outcome)) => self.reply(broker, to, Reply::Done(outcome)),
                        None => self.reply(broker, to, Reply::Failed),
                    }
                }
            }
            self.inner.lock().finish(of);
        }
    }

    fn reply(&self, broker: &Broker, to: ReplyTo, outcome: Reply) {
        if std::ptr::eq(self, &broker.controller) {
            broker.reply_of_controller(to, outcome);
        } else {
            broker.reply(to, outcome);
        }
    }

    /// Waits for a job; `None`: there will be none.
    fn next(&self) -> Option<Job> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(job) = inner.pop() {
                return Some(job);
            }
            if inner.closed {
                return None;
            }
            self.arrives.wait(&mut inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(user: &str) -> JobOwner {
        JobOwner::of(user, Some([127, 0, 0, 1].into()))
    }

    /// A job that is told apart by a number.
    fn job(of: JobOwner, number: u64) -> Job {
        Job { to: ReplyTo { token: number, ..NOBODY }, of, task: Task::Work(Box::new(|_| Box::new(()))) }
    }

    fn pop(queue: &JobQueue) -> Option<u64> {
        queue.inner.lock().pop().map(|job| job.to.token)
    }

    #[test]
    fn owners_take_turns_and_each_keeps_his_order() {
        let queue = JobQueue::default();
        for (user, number) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("", 5), ("b", 6)] {
            assert!(queue.push(job(owner(user), number)));
        }
        assert!(queue.push(job(JobOwner::of("a", Some([10, 0, 0, 1].into())), 7)), "the same user elsewhere");
        let order: Vec<_> = std::iter::from_fn(|| pop(&queue)).collect();
        assert_eq!(order, [1, 4, 5, 7, 2, 6, 3]);
        assert!(!queue.has_jobs());
    }

    #[test]
    fn what_is_long_goes_on_before_what_its_owner_asked_for_later() {
        let queue = JobQueue::default();
        for (user, number) in [("a", 1), ("a", 2), ("b", 3), ("b", 4)] {
            assert!(queue.push(job(owner(user), number)));
        }
        let first = queue.inner.lock().pop().expect("a job");
        queue.inner.lock().put_back(first);
        let order: Vec<_> = std::iter::from_fn(|| pop(&queue)).collect();
        assert_eq!(order, [3, 1, 4, 2]);
        let last = job(owner("c"), 5);
        assert!(queue.push(last));
        let last = queue.inner.lock().pop().expect("a job");
        queue.inner.lock().put_back(last);
        assert_eq!((pop(&queue), queue.has_jobs()), (Some(5), false));
    }

    #[test]
    fn nobody_has_so_many_that_another_finds_no_room() {
        let queue = JobQueue::default();
        let many = (0..).take_while(|number| queue.push(job(owner("a"), *number))).count();
        assert_eq!(many, JOBS_MAX * 3 / 4);
        let others = (0..).take_while(|number| queue.push(job(owner("b"), *number))).count();
        assert_eq!(others, (JOBS_MAX - many) * 3 / 4);
        assert!(!queue.push(job(owner("a"), 0)) && queue.push(job(owner("c"), 0)));
        let left = (0..).take_while(|number| queue.push(job(JobOwner::BROKER, *number))).count();
        assert_eq!(many + others + 1 + left, JOBS_MAX, "the broker has the rest");
        assert!(queue.push_always(job(owner("a"), 0)));
    }

    #[test]
    fn memory_is_shared_likewise_until_jobs_are_done() {
        let queue = JobQueue::default();
        let large = |user: &str| owner(user).holding((1 << 20) - JOB_BYTES);
        queue.set_bytes_max(16 << 20);
        let many = (0..).take_while(|number| queue.push(job(large("a"), *number))).count();
        assert_eq!((many, queue.bytes()), (12, 12 << 20));
        while pop(&queue).is_some() {}
        assert!(!queue.push(job(large("a"), 0)), "they are under way");
        assert!(queue.push(job(large("b"), 0)) && queue.push(job(large("c").holding(100 << 20), 0)), "one at least");
        assert!(!queue.push(job(large("d"), 0)), "nothing is free");
        (0..many).for_each(|_| queue.inner.lock().finish(large("a")));
        assert!(!queue.inner.lock().by_owner.contains_key(&large("a").key));
        assert!(!queue.push(job(large("a"), 0)), "the one that is too large");
        queue.inner.lock().finish(large("c").holding(100 << 20));
        assert!(queue.push(job(large("a"), 0)));
    }
}
