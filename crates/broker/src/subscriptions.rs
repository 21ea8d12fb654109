//! Subscriptions that consumers share: the machines of `delivery` behind locks, one a group and partition, and their records in
//! the journal that holds the partition's log.
//!
//! Changes become records under the subscription's lock and go through a lane of their own, so that they are placed in the order
//! in which they were made; an answer to a consumer waits until they count as a record of the log would: written for class
//! `memory`, flushed for class `fsync`. What an administrator changes is flushed in any case. Locks of consumers that run out are noticed by
//! whoever looks at a subscription next, and twice a second by the thread `groups`, which looks at those that have any and is woken by the first.

mod done;
mod dropped;
mod held;
mod listed;
mod looked_after;
mod released;
mod writes;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use delivery::{
    Acquired, Changes, ConsumerId, Dead, PageRun, Rules, Subscription, SubscriptionName, SubscriptionRecord,
    subscription_record,
};
use hashbrown::HashMap;
use journal::{AppendItem, EventSink, Log, ReplyTo};
use parking_lot::{Mutex, RwLock};
use types::{ConnectionId, Offset, PartitionIndex, ShardId, TopicId};

use done::DoneCopy;
pub(crate) use done::Wake;
pub use held::Held;
use held::Kept;
use listed::Listed;
use looked_after::LookedAfter;
use writes::Write;
pub(crate) use writes::Writes;
pub use writes::{Acknowledged, Acknowledgement, NotWritten};

use crate::groups::now;
use crate::jobs::TOGETHER_MAX;
use crate::lane::Inbox;
use crate::mailbox::{Event, Mailboxes};
use crate::queues::MembersTally;
use crate::read_ahead::Kept as KeptAhead;
use crate::{Broker, ShareRules, ShareStart, Topic};

/// The shard number under which subscriptions append.
pub(crate) const SHARD: ShardId = ShardId(59);

/// All shared subscriptions of the node.
pub struct Subscriptions {
    /// By topic and partition; those of all groups together.
    by_log: RwLock<Listed>,
    looked_after: Arc<LookedAfter>,
    writes: Arc<Writes>,
    next_lane: AtomicU64,
    next_consumer: AtomicU64,
    /// That was asked for last.
    last_group: Mutex<Arc<str>>,
    counts: [AtomicU64; ShareEvent::ALL.len()],
    /// Those of groups, which no queue has, and how many there may be.
    of_groups: AtomicUsize,
    of_groups_max: AtomicUsize,
    /// How often one was refused because of that.
    refused: AtomicU64,
}

/// Why a subscription does not start where it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReset {
    /// There are as many as there may be.
    NoRoom,
    /// The journal does not take it.
    NotWritten,
}

/// A subscription of a group that has little to remember takes so many bytes.
const SUBSCRIPTION_BYTES: usize = 1024;

/// What happens to records of shared subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareEvent {
    /// Given to a consumer.
    Acquired,
    /// A consumer has done with it.
    Accepted,
    /// A consumer gave it back.
    Released,
    /// A consumer could not do it.
    Rejected,
    /// A consumer kept it for too long.
    Expired,
    /// Copied to a dead-letter topic.
    DeadLettered,
}

impl ShareEvent {
    /// All, with their names in measurements.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Acquired, "acquired"),
        (Self::Accepted, "accepted"),
        (Self::Released, "released"),
        (Self::Rejected, "rejected"),
        (Self::Expired, "expired"),
        (Self::DeadLettered, "dead_lettered"),
    ];
}

/// One subscription; whoever works with it locks it.
pub struct SharedSubscription {
    name: SubscriptionName,
    log: Arc<Log>,
    lane: ConnectionId,
    state: Mutex<Kept>,
    /// Shards of consumers that wait for something to become available, as bits.
    waiting: AtomicU64,
    /// Somebody reads history for it.
    pub(crate) reading: AtomicBool,
    /// What was read of history, until it is taken.
    pub(crate) ahead: Mutex<Option<Box<KeptAhead>>>,
    /// Records of it were not written: all of it has to be written again.
    lost: AtomicBool,
    /// It was deleted: what is said of it has no effect.
    dropped: AtomicBool,
    /// It goes with a restart: nothing of it is written.
    volatile: bool,
    /// It is a queue's, or was.
    of_queue: AtomicBool,
    /// It counts among those of groups.
    counted: AtomicBool,
    /// Made when a member of a share group is given something.
    members: OnceLock<Box<MembersTally>>,
    me: Weak<SharedSubscription>,
    /// Where it is entered while something of it runs out, …
    looked_after: Arc<LookedAfter>,
    /// … and whether it is.
    is_looked_after: AtomicBool,
}

impl SharedSubscription {
    /// Its name.
    pub fn name(&self) -> &SubscriptionName {
        &self.name
    }

    /// The log that it reads.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Its state. Held for a look or a change, never across a read from disk.
    pub fn lock(&self) -> Held<'_> {
        Held::new(self.state.lock(), self)
    }

    /// Something of it runs out.
    pub(crate) fn look_after(&self) {
        let (list, entered) = (&self.looked_after, &self.is_looked_after);
        if !entered.load(Ordering::SeqCst) && !entered.swap(true, Ordering::SeqCst) {
            self.me.upgrade().into_iter().for_each(|me| list.enter(me));
        }
    }

    /// It counts among those of groups no more; true: it did.
    fn uncount(&self) -> bool {
        self.counted.swap(false, Ordering::SeqCst)
    }

    /// Is it a queue's, or was it?
    pub fn is_of_queue(&self) -> bool {
        self.of_queue.load(Ordering::Relaxed)
    }

    /// What went through members of share groups, if it is a queue's.
    pub(crate) fn members(&self) -> Option<&MembersTally> {
        self.members.get().map(|members| &**members)
    }

    /// Is it still there?
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }

    /// The log begins where everything before is done; `None`: it does so already.
    pub(crate) fn trim(&self, state: &Subscription) -> Option<AppendItem> {
        let to = Offset(state.start());
        (to > self.log.start()).then(|| AppendItem::Trim { log: Arc::clone(&self.log), to })
    }

    /// A consumer of `shard` waits for something to become available: it hears [`Event::Advanced`] of the log.
    pub fn watch(&self, shard: ShardId) {
        self.waiting.fetch_or(1 << shard.0, Ordering::SeqCst);
    }
}

impl Subscriptions {
    pub(crate) fn new(mailboxes: Mailboxes, journals: &[Arc<journal::Journal>]) -> Self {
        let writes = Writes::new(mailboxes, journals);
        Self {
            by_log: RwLock::default(),
            looked_after: Arc::default(),
            writes: Arc::new(writes),
            next_lane: AtomicU64::new(0),
            next_consumer: AtomicU64::new(0),
            last_group: Mutex::new(Arc::default()),
            counts: Default::default(),
            of_groups: AtomicUsize::new(0),
            of_groups_max: AtomicUsize::new(usize::MAX),
            refused: AtomicU64::new(0),
        }
    }

    /// Those of groups may take so many bytes of memory, about. What is there stays.
    pub fn set_bytes_max(&self, bytes: usize) {
        self.of_groups_max.store(bytes / SUBSCRIPTION_BYTES, Ordering::Relaxed);
    }

    /// Bytes that those of groups take, about, and how often one was refused because there were too many.
    pub fn memory(&self) -> (usize, u64) {
        (self.of_groups.load(Ordering::Relaxed) * SUBSCRIPTION_BYTES, self.refused.load(Ordering::Relaxed))
    }

    /// Is there no room for another one of a group? That is counted.
    pub fn refuses(&self) -> bool {
        let full = self.of_groups.load(Ordering::Relaxed) >= self.of_groups_max.load(Ordering::Relaxed);
        self.refused.fetch_add(u64::from(full), Ordering::Relaxed);
        full
    }

    /// One is a queue's from now on.
    pub(crate) fn set_of_queue(&self, shared: &SharedSubscription) {
        shared.of_queue.store(true, Ordering::SeqCst);
        self.uncount(shared);
    }

    fn uncount(&self, shared: &SharedSubscription) {
        self.of_groups.fetch_sub(usize::from(shared.uncount()), Ordering::Relaxed);
    }

    /// How many a group has.
    pub fn count_of_group(&self, group: &str) -> usize {
        self.by_log.read().count_of_group(group)
    }

    pub(crate) fn sink(&self) -> Arc<dyn EventSink> {
        Arc::clone(&self.writes) as Arc<dyn EventSink>
    }

    /// The thread that looks after those of which something runs out.
    pub(crate) fn looked_after_by(&self, thread: Arc<Inbox>) {
        self.looked_after.set_thread(thread);
    }

    /// A number that no other consumer has.
    pub fn new_consumer(&self) -> ConsumerId {
        ConsumerId(self.next_consumer.fetch_add(1, Ordering::Relaxed))
    }

    /// Something happened to so many records.
    pub fn note(&self, event: ShareEvent, records: u64) {
        self.counts[event as usize].fetch_add(records, Ordering::Relaxed);
    }

    /// Appends what belongs to no subscription any more.
    pub(crate) fn append_alone(&self, journal: usize, items: Vec<AppendItem>) {
        self.writes.append(journal, ConnectionId(u64::MAX), items, Write::alone(None));
    }

    /// A member of a share group was given these.
    pub fn note_given(&self, shared: &SharedSubscription, acquired: &[Acquired]) {
        self.note(ShareEvent::Acquired, acquired.iter().map(|one| one.last - one.first + 1).sum());
        if shared.is_of_queue() {
            shared.members.get_or_init(Box::default).note_given(acquired);
        }
    }

    /// A member of a share group has done so many.
    pub fn note_accepted(&self, shared: &SharedSubscription, records: u64) {
        self.note(ShareEvent::Accepted, records);
        if shared.is_of_queue() {
            shared.members.get_or_init(Box::default).acknowledged.fetch_add(records, Ordering::Relaxed);
        }
    }

    /// To how many records it happened since the start.
    pub fn count(&self, event: ShareEvent) -> u64 {
        self.counts[event as usize].load(Ordering::Relaxed)
    }

    /// All that there are, by group, topic and partition.
    pub fn all(&self) -> Vec<Arc<SharedSubscription>> {
        let mut all: Vec<_> = self.by_log.read().iter().cloned().collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// One that is there.
    pub fn get(&self, group: &str, topic: TopicId, partition: u32) -> Option<Arc<SharedSubscription>> {
        self.by_log.read().get((topic.0.as_u128(), partition, group)).cloned()
    }

    /// All of a group, by topic and partition.
    pub fn of_group(&self, group: &str) -> Vec<Arc<SharedSubscription>> {
        self.by_log.read().of_group(group).cloned().collect()
    }

    fn name(&self, group: &str, topic: TopicId, partition: PartitionIndex) -> SubscriptionName {
        SubscriptionName { group: self.shared_name(group), topic: topic.0.as_u128(), partition: partition.0 }
    }

    /// The name of a group, the same piece of memory as the last time if it is the same group: almost all queues are of one.
    fn shared_name(&self, group: &str) -> Arc<str> {
        let mut last = self.last_group.lock();
        if **last != *group {
            *last = group.into();
        }
        Arc::clone(&last)
    }

    /// It is one of a group, unless a queue has it.
    fn count_in(&self, shared: &SharedSubscription) {
        if !shared.is_of_queue() && !shared.counted.swap(true, Ordering::SeqCst) {
            self.of_groups.fetch_add(1, Ordering::Relaxed);
        }
        if shared.is_dropped() {
            self.uncount(shared);
        }
    }

    fn enter(
        &self,
        name: SubscriptionName,
        log: Arc<Log>,
        state: Subscription,
        volatile: bool,
    ) -> Arc<SharedSubscription> {
        let mut by_log = self.by_log.write();
        if let Some(there) = by_log.get((name.topic, name.partition, &name.group)) {
            return Arc::clone(there);
        }
        let entered = self.make(name, log, state, volatile);
        by_log.insert(Arc::clone(&entered));
        entered
    }

    /// One to a partition that nobody finds, of which nothing is written, and to which nothing comes: a stream's.
    pub(crate) fn unlisted(
        &self,
        group: &str,
        topic: &Topic,
        partition: PartitionIndex,
    ) -> Option<Arc<SharedSubscription>> {
        let log = topic.log(partition)?;
        let name = self.name(group, topic.id, partition);
        Some(self.make(name, log, Subscription::new(0), true))
    }

    fn make(
        &self,
        name: SubscriptionName,
        log: Arc<Log>,
        state: Subscription,
        volatile: bool,
    ) -> Arc<SharedSubscription> {
        Arc::new_cyclic(|me| SharedSubscription {
            lane: ConnectionId(self.next_lane.fetch_add(1, Ordering::Relaxed)),
            me: Weak::clone(me),
            looked_after: Arc::clone(&self.looked_after),
            is_looked_after: AtomicBool::new(false),
            state: Mutex::new(Kept::new(state)),
            waiting: AtomicU64::new(0),
            reading: AtomicBool::new(false),
            ahead: Mutex::default(),
            lost: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            volatile,
            of_queue: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            members: OnceLock::new(),
            name,
            log,
        })
    }

    /// All to a topic, by partition and group.
    pub fn of_topic(&self, topic: TopicId) -> Vec<Arc<SharedSubscription>> {
        self.by_log.read().of_topic(topic.0.as_u128()).cloned().collect()
    }

    fn remove(&self, shared: &SharedSubscription) {
        self.uncount(shared);
        self.by_log.write().remove(shared);
    }
}

/// Records of subscriptions as they are found in the journals at the start.
#[derive(Default)]
pub(crate) struct Found {
    by_name: HashMap<SubscriptionName, FoundOne>,
}

#[derive(Default)]
struct FoundOne {
    start: Option<u64>,
    given: Option<u64>,
    runs: Vec<PageRun>,
    levels: Vec<(u64, delivery::LevelPage)>,
    lists: Vec<(u64, usize, delivery::DoneList)>,
    keys: Vec<Bytes>,
}

impl Found {
    /// Takes a state record; false: it is none of a subscription.
    pub fn take(&mut self, key: &Bytes, value: &[u8]) -> bool {
        let Some(record) = subscription_record(key, value) else { return false };
        let Some((name, record)) = record else {
            tracing::warn!(key = %key.escape_ascii(), "record of a subscription that is not readable ignored");
            return true;
        };
        let entry = self.by_name.entry(name).or_default();
        entry.keys.push(key.clone());
        match record {
            SubscriptionRecord::Start { start, given } => (entry.start, entry.given) = (Some(start), given),
            SubscriptionRecord::Page(runs) => entry.runs.extend(runs),
            SubscriptionRecord::Levels(page, levels) => entry.levels.push((page, levels)),
            SubscriptionRecord::List(number, list) => entry.lists.push((number, value.len(), list)),
        }
        true
    }
}

impl Broker {
    /// Makes subscriptions of what was found; records of topics that are gone are deleted.
    pub(crate) fn restore_subscriptions(&self, found: Found) {
        let mut orphans: Vec<AppendItem> = Vec::new();
        for (mut name, FoundOne { start, given, runs, levels, lists, keys }) in found.by_name {
            name.group = self.subscriptions().shared_name(&name.group);
            let log = self
                .topic_by_id(TopicId(uuid::Uuid::from_u128(name.topic)))
                .and_then(|topic| topic.log(PartitionIndex(name.partition)));
            match (log, start) {
                (Some(log), Some(start)) => {
                    let mut state = Subscription::restore_with(start, runs, lists);
                    levels.into_iter().for_each(|(page, levels)| state.restore_levels(page, levels));
                    if let Some(given) = given {
                        state.remember_given(given);
                    }
                    // Queues take theirs when they are restored.
                    self.subscriptions().count_in(&self.subscriptions().enter(name, log, state, false));
                }
                // The log's journal is not known any more; its key is deleted from all.
                _ => orphans.extend(keys.into_iter().map(|key| AppendItem::State { key, value: None })),
            }
        }
        if !orphans.is_empty() {
            for (number, _) in self.journals().iter().enumerate() {
                self.subscriptions().append_alone(number, orphans.clone());
            }
        }
    }

    /// The subscription of a queue to its log, made at the log's start if it is not there. Not `durable`: it goes with a restart. There is
    /// no record of it before something has happened: the queue's own says that it is there. `None`: no such partition.
    pub(crate) fn queue_subscription(
        &self,
        group: &str,
        topic: &Topic,
        partition: PartitionIndex,
        durable: bool,
    ) -> Option<Arc<SharedSubscription>> {
        let log = topic.log(partition)?;
        let name = self.subscriptions().name(group, topic.id, partition);
        let start = log.start().0;
        let state = if durable { Subscription::unwritten(start) } else { Subscription::new(start) };
        Some(self.subscriptions().enter(name, log, state, !durable))
    }

    /// The subscription of a group to a partition; made at the offset that `start` gives, durably by and by, if it is new.
    /// `None`: no such partition, or there are as many as there may be.
    pub fn subscription(
        &self,
        group: &str,
        topic: &Topic,
        partition: PartitionIndex,
        start: impl FnOnce(&Log) -> Offset,
    ) -> Option<Arc<SharedSubscription>> {
        if let Some(found) = self.subscriptions().get(group, topic.id, partition.0) {
            return Some(found);
        }
        if self.subscriptions().refuses() {
            return None;
        }
        let made = self.make_subscription(group, topic, partition, start)?;
        self.subscriptions().count_in(&made);
        Some(made)
    }

    /// The same for the broker's own use, which is bounded elsewhere.
    pub(crate) fn own_subscription(
        &self,
        group: &str,
        topic: &Topic,
        partition: PartitionIndex,
        start: impl FnOnce(&Log) -> Offset,
    ) -> Option<Arc<SharedSubscription>> {
        let found = self.subscriptions().get(group, topic.id, partition.0);
        let own = found.or_else(|| self.make_subscription(group, topic, partition, start))?;
        self.subscriptions().uncount(&own);
        Some(own)
    }

    fn make_subscription(
        &self,
        group: &str,
        topic: &Topic,
        partition: PartitionIndex,
        start: impl FnOnce(&Log) -> Offset,
    ) -> Option<Arc<SharedSubscription>> {
        let log = topic.log(partition)?;
        let name = self.subscriptions().name(group, topic.id, partition);
        let first = start(&log).0;
        let entered = self.subscriptions().enter(name, log, Subscription::new(first), false);
        self.write_subscription(&entered, &mut entered.lock(), None);
        Some(entered)
    }

    /// As [`Broker::subscription`], at the offset that the group's configuration says. `None` as well: a thread that may read from disk is looking for
    /// the offset.
    pub fn open_subscription(
        &self,
        group: &str,
        topic: &Arc<Topic>,
        partition: PartitionIndex,
        rules: &ShareRules,
    ) -> Option<Arc<SharedSubscription>> {
        let committed_only = rules.committed_only();
        match rules.start() {
            ShareStart::Earliest => self.subscription(group, topic, partition, Log::start),
            ShareStart::Latest => self.subscription(group, topic, partition, |log| {
                if committed_only { log.last_stable() } else { log.high_watermark() }
            }),
            ShareStart::Duration(ms) => {
                let found = self.subscriptions().get(group, topic.id, partition.0);
                if found.is_none() {
                    self.find_start(group, topic, partition, self.now_ms().saturating_sub_unsigned(ms));
                }
                found
            }
        }
    }

    fn find_start(&self, group: &str, topic: &Arc<Topic>, partition: PartitionIndex, at: i64) {
        let (group, topic) = (group.to_owned(), Arc::clone(topic));
        let work = Box::new(move |broker: &Arc<Self>| {
            if let Some(log) = topic.log(partition) {
                match broker.journal_of(log.id()).find_by_time(&log, at) {
                    Ok(found) => drop(broker.subscription(&group, &topic, partition, |log| {
                        found.map_or(log.high_watermark(), |(offset, _)| offset)
                    })),
                    Err(error) => {
                        tracing::warn!(%error, group, topic = topic.name, "no offset for the start of a share group")
                    }
                }
            }
            Box::new(()) as Box<dyn std::any::Any + Send>
        });
        let nobody = ReplyTo { shard: SHARD, connection: ConnectionId(u64::MAX), token: 0 };
        // A queue that is full: the next fetch asks again.
        let _ = self.read_history(nobody, crate::jobs::JobOwner::BROKER, work);
    }

    /// Writes what changed, in the class of the log; `asker` waits for it.
    pub fn write_subscription(
        &self,
        shared: &SharedSubscription,
        state: &mut Subscription,
        asker: Option<&Arc<Acknowledgement>>,
    ) {
        let item = |(key, value)| AppendItem::StateOf { log: Arc::clone(&shared.log), key, value };
        self.write_changes(shared, state, asker, item);
    }

    /// As [`Broker::write_subscription`]; in the same append the log is trimmed behind it: what a reader finds gone is done. Two appends would
    /// be two chunks, twice as much of the disk. What is done behind the start its journal is told of as well (see `subscriptions/done.rs`), which
    /// has the subscription written by `wake` when it wants to know more.
    pub(crate) fn write_subscription_and_trim(
        &self,
        shared: &SharedSubscription,
        state: &mut Subscription,
        asker: Option<&Arc<Acknowledgement>>,
        wake: impl FnOnce() -> Wake,
    ) {
        let of_log = |(key, value)| AppendItem::StateOf { log: Arc::clone(&shared.log), key, value };
        let mut items = self.changed_items(shared, state, of_log);
        if let Some(asker) = asker.filter(|_| items.is_empty()) {
            // Nobody waits for a trim alone.
            self.subscriptions().writes.wait_for(shared, asker);
        }
        let asker = asker.filter(|_| !items.is_empty());
        let done = self.done_to_write(shared, state, wake);
        // A trim is flushed, wherever it is to.
        let flushed =
            || done.is_some().then(|| AppendItem::Trim { log: Arc::clone(&shared.log), to: shared.log.start() });
        items.extend(shared.trim(state).or_else(flushed));
        self.append_changes(shared, items, asker, done);
    }

    /// Writes what changed, `changes` that count once they are durable, and `others`, of the same journal, in one chunk: a crash leaves all of it or
    /// nothing. `asker` waits for it.
    pub(crate) fn write_subscription_with(
        &self,
        shared: &SharedSubscription,
        state: &mut Subscription,
        others: Vec<AppendItem>,
        changes: &Changes,
        asker: &Arc<Acknowledgement>,
    ) {
        let item = |(key, value)| AppendItem::StateOf { log: Arc::clone(&shared.log), key, value };
        let mut items = others;
        items.extend(self.changed_items(shared, state, item));
        if !shared.volatile {
            items.extend(shared.name.records(changes).into_iter().map(item));
        }
        let together = if items.is_empty() { Vec::new() } else { vec![AppendItem::Together(items)] };
        self.append_changes(shared, together, Some(asker), None);
    }

    fn write_changes(
        &self,
        shared: &SharedSubscription,
        state: &mut Subscription,
        asker: Option<&Arc<Acknowledgement>>,
        item: impl Fn((Bytes, Option<Bytes>)) -> AppendItem,
    ) {
        let items = self.changed_items(shared, state, item);
        self.append_changes(shared, items, asker, None);
    }

    /// Appends what is no change of the subscription, behind what was written of it before, in the same journal. `asker` waits for it.
    pub(crate) fn append_beside(
        &self,
        shared: &SharedSubscription,
        items: Vec<AppendItem>,
        asker: &Arc<Acknowledgement>,
    ) {
        let write = Write::alone(Some(asker));
        self.subscriptions().writes.append(self.journal_number(shared.log.id()), shared.lane, items, write);
    }

    /// What changed as items.
    fn changed_items(
        &self,
        shared: &SharedSubscription,
        state: &mut Subscription,
        item: impl Fn((Bytes, Option<Bytes>)) -> AppendItem,
    ) -> Vec<AppendItem> {
        if shared.is_dropped() {
            return Vec::new();
        }
        if shared.lost.swap(false, Ordering::SeqCst) {
            state.set_changed();
        }
        let changes = state.take_changes();
        if shared.volatile { Vec::new() } else { shared.name.records(&changes).into_iter().map(item).collect() }
    }

    fn append_changes(
        &self,
        shared: &SharedSubscription,
        items: Vec<AppendItem>,
        asker: Option<&Arc<Acknowledgement>>,
        done: Option<Arc<DoneCopy>>,
    ) {
        if shared.is_dropped() {
            return;
        }
        if items.is_empty() {
            // Somebody else may have taken what the asker changed, and be writing it.
            return asker.into_iter().for_each(|asker| self.subscriptions().writes.wait_for(shared, asker));
        }
        let write = Write::of(shared, asker, done);
        self.subscriptions().writes.append(self.journal_number(shared.log.id()), shared.lane, items, write);
    }

    /// Something has become available: who waits for it looks again.
    pub fn wake_subscription(&self, shared: &SharedSubscription) {
        let mut waiting = shared.waiting.swap(0, Ordering::SeqCst);
        while waiting != 0 {
            let shard = waiting.trailing_zeros();
            waiting &= waiting - 1;
            self.subscriptions().writes.mailboxes().push(ShardId(shard as u16), Event::Advanced(shared.log.id()));
        }
    }

    /// Takes back what consumers have kept for too long: each has been delivered in vain.
    pub fn expire_subscription(&self, shared: &Arc<SharedSubscription>, state: &mut Subscription, rules: &Rules) {
        let mut dead = Vec::new();
        let expired = state.expire(now(), rules, &mut dead);
        if expired > 0 {
            self.subscriptions().note(ShareEvent::Expired, expired);
            self.write_subscription(shared, state, None);
            self.wake_subscription(shared);
            self.bury(shared, dead, rules);
        }
    }

    /// What has run out in all subscriptions. On the thread `groups`; false: it has none to look after, and is woken when it has.
    pub(crate) fn expire_subscriptions(&self) -> bool {
        let due = now();
        let entered = self.subscriptions().looked_after.take();
        let some = !entered.is_empty();
        for shared in entered {
            // Before it is looked at: what comes in between enters it again, as does what is left.
            shared.is_looked_after.store(false, Ordering::SeqCst);
            if shared.forget_stale_ahead(due) {
                shared.look_after();
            }
            let mut state = shared.lock();
            if state.next_deadline().is_some_and(|deadline| deadline <= due) {
                let rules = self.rules_of(&shared);
                self.expire_subscription(&shared, &mut state, &rules);
            }
        }
        some || !self.subscriptions().looked_after.may_rest()
    }

    /// Sends records that nobody could do to the dead letters of the queue or the group, if the rules by which they died hold them for that. The
    /// subscription may be locked.
    pub fn bury(&self, shared: &Arc<SharedSubscription>, dead: Vec<Dead>, rules: &Rules) {
        if dead.is_empty() || !rules.dead_letters {
            return;
        }
        match self.queue_with(shared) {
            Some(queue) => self.bury_of_queue(&queue, dead),
            None => self.send_dead_letters(shared, dead),
        }
    }

    /// Starts subscriptions of a group anew, durably, many of them with one commit; for each: is there room for it, and does the journal take it? On the
    /// controller's thread.
    pub fn reset_subscriptions(
        &self,
        group: &str,
        places: &[(Arc<Topic>, PartitionIndex, Offset)],
    ) -> Vec<Result<(), NotReset>> {
        let mut outcomes = Vec::with_capacity(places.len());
        for piece in places.chunks(TOGETHER_MAX) {
            let found: Vec<Option<(Arc<SharedSubscription>, Offset)>> = piece
                .iter()
                .map(|(topic, partition, start)| {
                    Some((self.subscription(group, topic, *partition, |_| *start)?, *start))
                })
                .collect();
            let write = |(shared, start): &(Arc<SharedSubscription>, Offset)| {
                let (shared, start) = (Arc::clone(shared), *start);
                move |asker: &Arc<Acknowledgement>| {
                    let mut state = shared.lock();
                    state.reset(start.0);
                    self.write_changes(&shared, &mut state, Some(asker), |(key, value)| AppendItem::State {
                        key,
                        value,
                    });
                }
            };
            let mut durable = self.durably_each(found.iter().flatten().map(write)).into_iter();
            found.iter().flatten().for_each(|(shared, _)| self.wake_subscription(shared));
            outcomes.extend(found.iter().map(|one| match one {
                None => Err(NotReset::NoRoom),
                Some(_) if durable.next().unwrap_or(false) => Ok(()),
                Some(_) => Err(NotReset::NotWritten),
            }));
        }
        outcomes
    }
}
