//! What connections wait for. Each has one account of its time: whenever a connection's task goes to rest it says what it is waiting
//! for, which may be several things at once, and until it says something else that time counts for these causes ([`Waits::enter`]).
//! Somebody who wants to know why a client is slow takes the difference of two accounts (`why.rs`).
//!
//! Times are written by the connection's shard alone, and read by anybody. Saying the same again costs one comparison.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use types::{ConnectionId, ShardId, TopicId};

/// What a connection waits for, or what takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// A quota of its user or client id.
    Quota,
    /// A quota of a topic.
    TopicQuota,
    /// A rule for groups that are far behind.
    Laggard,
    /// Its appends are not durable yet.
    Disk,
    /// There is no memory for its requests or answers.
    Memory,
    /// Its client does not take what is sent.
    Reader,
    /// Records are being read from the disk.
    History,
    /// There is nothing to be read.
    Records,
    /// A filter goes through records for it.
    Filter,
    /// The handshake of TLS.
    Tls,
    /// Its client asks for nothing.
    Client,
    /// Its password is being verified.
    Login,
    /// A group, a transaction or an administrative command.
    Coordinator,
}

/// Causes that hold at once, a bit each.
pub type Causes = u32;

impl Cause {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Quota,
        Self::TopicQuota,
        Self::Laggard,
        Self::Disk,
        Self::Memory,
        Self::Reader,
        Self::History,
        Self::Records,
        Self::Filter,
        Self::Tls,
        Self::Client,
        Self::Login,
        Self::Coordinator,
    ];

    /// Its bit.
    pub const fn bit(self) -> Causes {
        1 << self as u8
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::TopicQuota => "topic-quota",
            Self::Laggard => "laggard-rule",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Reader => "slow-reader",
            Self::History => "history",
            Self::Records => "no-records",
            Self::Filter => "filter",
            Self::Tls => "tls-handshake",
            Self::Client => "client",
            Self::Login => "login",
            Self::Coordinator => "coordinator",
        }
    }
}

/// Causes, counted.
pub const CAUSES: usize = Cause::ALL.len();

/// Topics and groups that are remembered of a connection.
const REMEMBERED_MAX: usize = 64;
/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 256;

/// As much of a name as is kept.
fn kept(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

fn nanoseconds(now: Instant) -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    now.saturating_duration_since(*FIRST.get_or_init(|| now)).as_nanos() as u64
}

/// What a connection is about, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Who has logged in.
    pub user: String,
    /// What the client calls itself.
    pub client_id: String,
    /// Topics and queues that it has used, those of queues too.
    pub topics: Vec<TopicId>,
    /// Groups of which it has spoken.
    pub groups: Vec<String>,
}

/// The account of a connection's time.
#[derive(Debug)]
pub struct Waits {
    /// Its number.
    pub id: ConnectionId,
    /// Whose it is.
    pub peer: SocketAddr,
    /// What it speaks.
    pub protocol: &'static str,
    active: AtomicU32,
    since: AtomicU64,
    totals: [AtomicU64; CAUSES],
    about: Mutex<About>,
    /// The topic that it used last: its other uses need no look at `about`.
    last_topic: AtomicU64,
}

impl Waits {
    /// From now on it waits for these.
    pub fn enter(&self, causes: Causes, now: Instant) {
        let before = self.active.load(Ordering::Relaxed);
        if before == causes {
            return;
        }
        let now = nanoseconds(now);
        let elapsed = now.saturating_sub(self.since.load(Ordering::Relaxed));
        let mut left = before;
        while left != 0 {
            let total = &self.totals[left.trailing_zeros() as usize];
            total.store(total.load(Ordering::Relaxed) + elapsed, Ordering::Relaxed);
            left &= left - 1;
        }
        self.since.store(now, Ordering::Relaxed);
        self.active.store(causes, Ordering::Release);
    }

    /// Time that something took which is no waiting; by any thread, for causes that are not entered.
    pub fn add(&self, cause: Cause, time: Duration) {
        self.totals[cause as usize].fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Times so far in ns, what goes on included.
    pub fn totals(&self, now: Instant) -> [u64; CAUSES] {
        let (active, since) = (self.active.load(Ordering::Acquire), self.since.load(Ordering::Relaxed));
        let running = nanoseconds(now).saturating_sub(since);
        let mut totals: [u64; CAUSES] = std::array::from_fn(|at| self.totals[at].load(Ordering::Relaxed));
        for cause in Cause::ALL.into_iter().filter(|cause| active & cause.bit() != 0) {
            totals[cause as usize] += running;
        }
        totals
    }

    /// Somebody has logged in, or a client says what it calls itself.
    pub fn introduce(&self, user: &str, client_id: &str) {
        let mut about = self.about.lock();
        (about.user, about.client_id) = (kept(user).to_owned(), kept(client_id).to_owned());
    }

    /// It uses a topic.
    pub fn use_topic(&self, id: TopicId) {
        let short = id.0.as_u128() as u64;
        if self.last_topic.load(Ordering::Relaxed) == short {
            return;
        }
        self.last_topic.store(short, Ordering::Relaxed);
        remember(&mut self.about.lock().topics, &id);
    }

    /// It speaks of a group.
    pub fn use_group(&self, group: &str) {
        let group = kept(group);
        let mut about = self.about.lock();
        if !about.groups.iter().any(|known| known == group) {
            remember(&mut about.groups, &group.to_owned());
        }
    }

    /// What it is about.
    pub fn about(&self) -> About {
        self.about.lock().clone()
    }
}

/// The newest are remembered.
fn remember<T: PartialEq + Clone>(known: &mut Vec<T>, one: &T) {
    if !known.contains(one) {
        if known.len() >= REMEMBERED_MAX {
            known.remove(0);
        }
        known.push(one.clone());
    }
}

/// What a network thread spends its time on, in ns since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// All that it did.
    pub busy: u64,
    /// Of that, handshakes of TLS.
    pub handshakes: u64,
    /// Of that, going through records for filters.
    pub filters: u64,
}

/// The account of a network thread, by itself.
#[derive(Debug)]
struct Thread {
    busy: Arc<AtomicU64>,
    handshakes: AtomicU64,
    filters: AtomicU64,
}

/// The accounts of all connections.
#[derive(Debug, Default)]
pub struct WaitBook {
    open: RwLock<HashMap<ConnectionId, Arc<Waits>>>,
    /// Times of connections that are gone, in ns.
    gone: [AtomicU64; CAUSES],
    /// Handshakes of TLS so far.
    handshakes: AtomicU64,
    /// In the order of the shards.
    threads: RwLock<Vec<Thread>>,
    /// Memory for answers that clients have not read.
    answers: OnceLock<MemoryShare>,
    /// Memory for requests.
    requests: OnceLock<MemoryShare>,
}

/// A share of the memory budget, and how much of it is held.
pub struct MemoryShare {
    /// Bytes held now.
    pub used: Box<dyn Fn() -> usize + Send + Sync>,
    /// At most.
    pub max: usize,
}

impl std::fmt::Debug for MemoryShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", (self.used)(), self.max)
    }
}

impl WaitBook {
    /// A connection comes.
    pub fn enter(&self, id: ConnectionId, peer: SocketAddr, protocol: &'static str, now: Instant) -> Arc<Waits> {
        let waits = Arc::new(Waits {
            id,
            peer,
            protocol,
            active: AtomicU32::new(0),
            since: AtomicU64::new(nanoseconds(now)),
            totals: Default::default(),
            about: Mutex::default(),
            last_topic: AtomicU64::new(0),
        });
        self.open.write().insert(id, Arc::clone(&waits));
        waits
    }

    /// A connection is gone.
    pub fn leave(&self, id: ConnectionId) {
        if let Some(waits) = self.open.write().remove(&id) {
            for (sum, total) in self.gone.iter().zip(waits.totals(Instant::now())) {
                sum.fetch_add(total, Ordering::Relaxed);
            }
        }
    }

    /// All that are open, in the order in which they came.
    pub fn all(&self) -> Vec<Arc<Waits>> {
        let mut all: Vec<_> = self.open.read().values().cloned().collect();
        all.sort_by_key(|one| one.id);
        all
    }

    /// Times of all connections since the start, by cause, in ns.
    pub fn totals(&self) -> [u64; CAUSES] {
        let now = Instant::now();
        let mut sums: [u64; CAUSES] = std::array::from_fn(|at| self.gone[at].load(Ordering::Relaxed));
        for waits in self.open.read().values() {
            for (sum, total) in sums.iter_mut().zip(waits.totals(now)) {
                *sum += total;
            }
        }
        sums
    }

    /// A network thread counts in `busy` for how many ns it was busy. They come in the order of their shards.
    pub fn add_thread(&self, busy: Arc<AtomicU64>) {
        self.threads.write().push(Thread { busy, handshakes: AtomicU64::new(0), filters: AtomicU64::new(0) });
    }

    fn add_to(&self, shard: ShardId, time: Duration, part: impl Fn(&Thread) -> &AtomicU64) {
        if let Some(thread) = self.threads.read().get(usize::from(shard.0)) {
            part(thread).fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// A handshake of TLS is over, for which a shard's thread was busy so long.
    pub fn add_handshake(&self, shard: ShardId, time: Duration) {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        self.add_to(shard, time, |thread| &thread.handshakes);
    }

    /// A shard's thread went through records for a filter.
    pub fn add_filtering(&self, shard: ShardId, time: Duration) {
        self.add_to(shard, time, |thread| &thread.filters);
    }

    /// Handshakes of TLS so far.
    pub fn handshakes(&self) -> u64 {
        self.handshakes.load(Ordering::Relaxed)
    }

    /// Where the time of each network thread went so far.
    pub fn threads(&self) -> Vec<ThreadTime> {
        let look = |thread: &Thread| ThreadTime {
            busy: thread.busy.load(Ordering::Relaxed),
            handshakes: thread.handshakes.load(Ordering::Relaxed),
            filters: thread.filters.load(Ordering::Relaxed),
        };
        self.threads.read().iter().map(look).collect()
    }

    /// Who knows how much memory answers hold.
    pub fn set_answer_memory(&self, memory: MemoryShare) {
        let _ = self.answers.set(memory);
    }

    /// Who knows how much memory requests hold.
    pub fn set_request_memory(&self, memory: MemoryShare) {
        let _ = self.requests.set(memory);
    }

    /// Of requests and of answers that clients have not read: bytes held, and how many may be.
    pub fn memory(&self) -> [Option<(usize, usize)>; 2] {
        [&self.requests, &self.answers].map(|share| share.get().map(|memory| ((memory.used)(), memory.max)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_for_all_causes_that_hold() {
        let (book, start) = (WaitBook::default(), Instant::now());
        let waits = book.enter(ConnectionId(1), "127.0.0.1:1".parse().expect("an address"), "kafka", start);
        let at = |ms| start + Duration::from_millis(ms);
        let ms = |cause: Cause, now| waits.totals(now)[cause as usize] / 1_000_000;
        waits.enter(Cause::Quota.bit() | Cause::Disk.bit(), at(10));
        waits.enter(Cause::Disk.bit(), at(30));
        waits.enter(Cause::Disk.bit(), at(40));
        assert_eq!((ms(Cause::Quota, at(50)), ms(Cause::Disk, at(50)), ms(Cause::Client, at(50))), (20, 40, 0));
        waits.enter(0, at(60));
        waits.add(Cause::Filter, Duration::from_millis(5));
        assert_eq!((ms(Cause::Disk, at(100)), ms(Cause::Filter, at(100))), (50, 5));
        book.leave(ConnectionId(1));
        assert!(book.all().is_empty());
        assert_eq!(book.totals()[Cause::Disk as usize] / 1_000_000, 50);
    }

    #[test]
    fn what_a_connection_is_about_is_bounded() {
        let book = WaitBook::default();
        let waits = book.enter(ConnectionId(1), "127.0.0.1:1".parse().expect("an address"), "kafka", Instant::now());
        for number in 0..1000u128 {
            waits.use_topic(TopicId(uuid::Uuid::from_u128(number + 1)));
            waits.use_group(&number.to_string());
        }
        let about = waits.about();
        assert_eq!((about.topics.len(), about.groups.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert_eq!(about.groups.last().map(String::as_str), Some("999"));
        waits.introduce("u", &"ä".repeat(1000));
        waits.use_group(&"g".repeat(1000));
        let about = waits.about();
        assert_eq!(
            (about.client_id.len(), about.groups.last().map(String::len)),
            (NAME_BYTES_MAX, Some(NAME_BYTES_MAX))
        );
    }
}
