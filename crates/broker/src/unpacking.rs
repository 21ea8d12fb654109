//! Unpacking of batches that takes longer than a network thread has time for, searches by time, and requests that name much: four threads at low priority. Addresses
//! take turns, and so do the connections of an address; a turn is one batch, one search or one request. A connection has one job at a time and is not read meanwhile, so that as many wait as
//! there are connections, and what they wait with is memory of requests.
//!
//! A turn may take seconds (much that is packed anew), and cannot be interrupted. So an address has at most as many threads as it leaves idle: two while it is alone, and one
//! waits for others. Jobs that run at once share the processors as the system does.
//!
//! No batch may unpack to more than a bound, which is a setting and at most a sixteenth of the memory budget: the threads that unpack and
//! those that read history do no more of it at once than fits beside the caches. What a queue has taken under a larger bound it still gives
//! out, record by record, as long as one takes no more than a quarter of the budget.

use std::any::Any;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use journal::ReplyTo;
use parking_lot::{Condvar, Mutex};
use record::{OpenLimits, UNPACKED_BYTES_MAX};

use crate::Broker;
use crate::jobs::guarded;
use crate::mailbox::Reply;
use crate::security::place_of;
use crate::settings::Settings;

/// Part of the memory budget that one batch may unpack to.
const BATCH_SHARE: usize = 16;
/// Part of it that a record may unpack to which a queue has to give out.
const RECORD_SHARE: usize = 4;
/// Whatever the budget is, a batch may unpack to so much.
const BATCH_BYTES_LEAST: usize = 8 << 20;
/// Threads.
pub(crate) const THREADS: usize = 4;
/// The setting.
pub(crate) const BATCH_BYTES_MAX: &str = "mainstem.batch.unpacked.max.bytes";

/// Looks at one batch each time it is called, and has an answer after the last of them, which arrives as [`Reply::Done`].
pub type Unpack = Box<dyn FnMut(&Arc<Broker>) -> Option<Box<dyn Any + Send>> + Send>;

struct Job {
    to: ReplyTo,
    work: Unpack,
}

/// See the head of the file.
pub struct Unpacking {
    inner: Mutex<Inner>,
    arrives: Condvar,
    bytes_max: AtomicUsize,
    record_max: AtomicUsize,
    counts: UnpackCounts,
}

/// What was done since the start.
#[derive(Debug, Default)]
pub struct UnpackCounts {
    /// Turns of the threads.
    pub turns: AtomicU64,
    /// Bytes that came out of batches on these threads.
    pub bytes: AtomicU64,
    /// Times that AMQP consumers or dead letters did not get all records of a batch, because it unpacks to too much.
    pub passed_over: AtomicU64,
    /// … because their records make no sense.
    pub damaged: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// None is empty.
    by_address: HashMap<IpAddr, VecDeque<Job>>,
    /// Each of them once; the first is next, if it may. One whose job is being done is not among them, unless it has more.
    turns: VecDeque<IpAddr>,
    /// Jobs that are being done; none has none.
    running: HashMap<IpAddr, usize>,
    /// Threads that do nothing.
    idle: usize,
    closed: bool,
}

impl Inner {
    fn push(&mut self, address: IpAddr, job: Job) {
        let waiting = self.by_address.entry(address).or_default();
        if waiting.is_empty() {
            self.turns.push_back(address);
        }
        waiting.push_back(job);
    }

    fn next(&mut self) -> Option<(IpAddr, Job)> {
        let may_run = |address: &IpAddr| self.running.get(address).copied().unwrap_or(0) < self.idle;
        let at = self.turns.iter().position(may_run)?;
        let address = self.turns.remove(at)?;
        let waiting = self.by_address.get_mut(&address)?;
        let job = waiting.pop_front()?;
        if waiting.is_empty() {
            self.by_address.remove(&address);
        } else {
            self.turns.push_back(address);
        }
        *self.running.entry(address).or_default() += 1;
        self.idle -= 1;
        Some((address, job))
    }

    /// A job of this address is done.
    fn finish(&mut self, address: IpAddr) {
        self.idle += 1;
        if let Some(running) = self.running.get_mut(&address) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&address);
            }
        }
    }
}

impl Unpacking {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (bytes_max, record_max) = (AtomicUsize::new(setting(settings)), AtomicUsize::new(setting(settings)));
        Self {
            inner: Mutex::default(),
            arrives: Condvar::new(),
            bytes_max,
            record_max,
            counts: UnpackCounts::default(),
        }
    }

    /// What one batch may unpack to, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// What one record may unpack to that a queue has to give out, in bytes. A queue that comes to a longer one waits.
    pub(crate) fn record_max(&self) -> usize {
        self.record_max.load(Ordering::Relaxed)
    }

    /// For records that were taken and are not to be lost: a batch may unpack to what no setting has ever gone beyond. `memory`: of those that are opened
    /// at once.
    pub(crate) fn limits_of_taken(&self, memory: usize) -> OpenLimits {
        OpenLimits { memory, unpacked: UNPACKED_BYTES_MAX, record: self.record_max() }
    }

    /// What was done.
    pub fn counts(&self) -> &UnpackCounts {
        &self.counts
    }

    /// Ends the threads once what waits is done.
    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.arrives.notify_all();
    }

    fn push(&self, address: IpAddr, job: Job) {
        self.inner.lock().push(address, job);
        self.arrives.notify_one();
    }

    fn wait(&self) -> Option<(IpAddr, Job)> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(job) = inner.next() {
                if inner.idle > 0 && !inner.turns.is_empty() {
                    // It may be another's turn, too, now that a job has ended.
                    self.arrives.notify_one();
                }
                return Some(job);
            }
            if inner.closed {
                return None;
            }
            self.arrives.wait(&mut inner);
        }
    }

    /// The body of a thread.
    pub(crate) fn run(&self, broker: &Arc<Broker>) {
        self.inner.lock().idle += 1;
        while let Some((address, Job { to, mut work })) = self.wait() {
            let before = record::unpacked_bytes();
            let outcome = guarded(|| work(broker));
            self.counts.turns.fetch_add(1, Ordering::Relaxed);
            self.counts.bytes.fetch_add(record::unpacked_bytes() - before, Ordering::Relaxed);
            let (again, reply) = match outcome {
                Some(None) => (Some(Job { to, work }), None),
                Some(Some(answer)) => (None, Some(Reply::Done(answer))),
                None => (None, Some(Reply::Failed)),
            };
            self.finish(address, again);
            if let Some(reply) = reply {
                broker.reply(to, reply);
            }
        }
    }

    /// A turn is over; what is left of the job waits for its next one.
    fn finish(&self, address: IpAddr, again: Option<Job>) {
        let mut inner = self.inner.lock();
        inner.finish(address);
        if let Some(job) = again {
            inner.push(address, job);
        }
    }
}

fn setting(settings: &Settings) -> usize {
    usize::try_from(settings.int(BATCH_BYTES_MAX)).unwrap_or(0)
}

impl Broker {
    /// Work on batches that unpack to much.
    pub fn unpacking(&self) -> &Unpacking {
        &self.unpacking
    }

    /// Bounds what a batch may unpack to by the memory budget.
    pub fn bound_unpacking(&self, budget: usize) {
        let most = (budget / BATCH_SHARE).max(BATCH_BYTES_LEAST);
        let bytes_max = setting(&self.config.settings).min(most);
        self.unpacking.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.unpacking.record_max.store((budget / RECORD_SHARE).max(bytes_max), Ordering::Relaxed);
    }

    /// Has batches looked at for a connection from `address`, which has no other such job. False: the broker ends.
    pub fn unpack(&self, address: IpAddr, to: ReplyTo, work: Unpack) -> bool {
        if self.unpacking.inner.lock().closed {
            return false;
        }
        self.unpacking.push(place_of(address), Job { to, work });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use types::{ConnectionId, ShardId};

    use super::*;
    use crate::jobs::NOBODY;
    use crate::queues::testing::Node;

    fn job(token: u64) -> Job {
        Job { to: ReplyTo { shard: ShardId(0), connection: ConnectionId(0), token }, work: Box::new(|_| None) }
    }

    #[test]
    fn addresses_take_turns_and_so_do_the_connections_of_one() {
        let mut inner = Inner { idle: THREADS, ..Inner::default() };
        let (many, one): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().expect("an address"), "192.0.2.2".parse().expect("an address"));
        (0..3).for_each(|token| inner.push(many, job(token)));
        inner.push(one, job(10));
        let mut order = Vec::new();
        for _ in 0..8 {
            let (address, job) = inner.next().expect("all have more to do");
            order.push(job.to.token);
            inner.finish(address);
            inner.push(address, job);
        }
        assert_eq!(order, [0, 10, 1, 10, 2, 10, 0, 10]);
        while let Some((address, _)) = inner.next() {
            inner.finish(address);
        }
        assert!(inner.by_address.is_empty() && inner.turns.is_empty() && inner.running.is_empty());
    }

    #[test]
    fn an_address_has_as_many_threads_as_it_leaves_idle() {
        let mut inner = Inner { idle: THREADS, ..Inner::default() };
        let addresses: Vec<IpAddr> = (1..=4).map(|last| IpAddr::from([192, 0, 2, last])).collect();
        let mut take = |address: &IpAddr| {
            (0..5).for_each(|token| inner.push(*address, job(token)));
            std::iter::from_fn(|| inner.next()).map(|(address, _)| address).collect::<Vec<_>>()
        };
        let [a, b, c, d] = addresses[..] else { panic!("four") };
        assert_eq!([take(&a), take(&b), take(&c), take(&d)], [vec![a, a], vec![b], vec![c], vec![]]);
        inner.finish(a);
        assert_eq!(inner.next().map(|(address, _)| address), Some(d));
        assert!(inner.next().is_none());
    }

    #[test]
    fn long_jobs_of_one_address_keep_no_other_waiting() {
        let node = Node::open(1);
        let threads = node.broker.start();
        let (release, blocked) = channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let (many, one): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().expect("an address"), "192.0.2.2".parse().expect("an address"));
        for _ in 0..8 {
            let blocked = Arc::clone(&blocked);
            let work: Unpack = Box::new(move |_| {
                _ = blocked.lock().recv();
                Some(Box::new(()))
            });
            assert!(node.broker.unpack(many, NOBODY, work));
        }
        let (done, is_done) = channel();
        for _ in 0..3 {
            let (done, mut left) = (done.clone(), 5);
            let work: Unpack = Box::new(move |_| {
                left -= 1;
                (left == 0).then(|| {
                    done.send(()).expect("somebody waits");
                    Box::new(()) as Box<dyn Any + Send>
                })
            });
            assert!(node.broker.unpack(one, NOBODY, work));
        }
        (0..3).for_each(|_| {
            is_done.recv_timeout(Duration::from_secs(30)).expect("it is done while the others are under way")
        });
        drop(release);
        node.broker.shutdown();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        node.close();
    }
}
