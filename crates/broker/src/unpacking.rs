//! Unpacking of batches that takes longer than a network thread has time for, searches by time, and requests that name much: two threads at low priority. Addresses
//! take turns, and so do the connections of an address; a turn is one batch, one search or one request. A connection has one job at a time and is not read meanwhile, so that as many wait as
//! there are connections, and what they wait with is memory of requests.
//!
//! No batch may unpack to more than a bound, which is a setting and at most a sixteenth of the memory budget: the threads that unpack and
//! those that read history do no more of it at once than fits beside the caches.

use std::any::Any;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use journal::ReplyTo;
use parking_lot::{Condvar, Mutex};

use crate::jobs::guarded;
use crate::mailbox::Reply;
use crate::security::place_of;
use crate::settings::Settings;
use crate::Broker;

/// Part of the memory budget that one batch may unpack to.
const BATCH_SHARE: usize = 16;
/// Whatever the budget is, a batch may unpack to so much.
const BATCH_BYTES_LEAST: usize = 8 << 20;
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
    counts: UnpackCounts,
}

/// What was done since the start.
#[derive(Debug, Default)]
pub struct UnpackCounts {
    /// Turns of the threads.
    pub turns: AtomicU64,
    /// Bytes that came out of batches on these threads.
    pub bytes: AtomicU64,
    /// Batches of which AMQP consumers did not get all records, because they unpack to too much.
    pub passed_over: AtomicU64,
    /// … because their records make no sense.
    pub damaged: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// None is empty.
    by_address: HashMap<IpAddr, VecDeque<Job>>,
    /// Each of them once; the first is next. One whose job is being done is not among them, unless it has more.
    turns: VecDeque<IpAddr>,
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
        let address = self.turns.pop_front()?;
        let waiting = self.by_address.get_mut(&address)?;
        let job = waiting.pop_front()?;
        if waiting.is_empty() {
            self.by_address.remove(&address);
        } else {
            self.turns.push_back(address);
        }
        Some((address, job))
    }
}

impl Unpacking {
    pub(crate) fn new(settings: &Settings) -> Self {
        let bytes_max = AtomicUsize::new(setting(settings));
        Self { inner: Mutex::default(), arrives: Condvar::new(), bytes_max, counts: UnpackCounts::default() }
    }

    /// What one batch may unpack to, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
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
        while let Some((address, Job { to, mut work })) = self.wait() {
            let before = record::unpacked_bytes();
            let outcome = guarded(|| work(broker));
            self.counts.turns.fetch_add(1, Ordering::Relaxed);
            self.counts.bytes.fetch_add(record::unpacked_bytes() - before, Ordering::Relaxed);
            match outcome {
                Some(None) => self.push(address, Job { to, work }),
                Some(Some(answer)) => broker.reply(to, Reply::Done(answer)),
                None => broker.reply(to, Reply::Failed),
            }
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
        self.unpacking.bytes_max.store(setting(&self.config.settings).min(most), Ordering::Relaxed);
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
    use types::{ConnectionId, ShardId};

    use super::*;

    fn job(token: u64) -> Job {
        Job { to: ReplyTo { shard: ShardId(0), connection: ConnectionId(0), token }, work: Box::new(|_| None) }
    }

    #[test]
    fn addresses_take_turns_and_so_do_the_connections_of_one() {
        let mut inner = Inner::default();
        let (many, one): (IpAddr, IpAddr) = ("192.0.2.1".parse().expect("an address"), "192.0.2.2".parse().expect("an address"));
        (0..3).for_each(|token| inner.push(many, job(token)));
        inner.push(one, job(10));
        let mut order = Vec::new();
        for _ in 0..8 {
            let (address, job) = inner.next().expect("all have more to do");
            order.push(job.to.token);
            inner.push(address, job);
        }
        assert_eq!(order, [0, 10, 1, 10, 2, 10, 0, 10]);
        while inner.next().is_some() {}
        assert!(inner.by_address.is_empty() && inner.turns.is_empty());
    }
}
