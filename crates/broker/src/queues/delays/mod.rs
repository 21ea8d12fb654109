//! Delayed messages: what an exchange of type `x-delayed-message` keeps until its time has come, and then routes. The exchange has a log of its
//! own, to which a message is appended as to a queue, so that it counts when that does. What lies there, and when it is due, is an index in
//! memory (`store.rs`), beyond a bound sorted on disk. When a message is due it is appended to its queues together with the record
//! that it has left, where both are in one journal: a crash in between does neither.
//!
//! One thread for all exchanges, `delays`. Who publishes hears nothing of it; counts are told by [`Delays::count`].

mod behind;
mod clock;
mod fresh;
mod record;
mod release;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use journal::{Append, AppendError, AppendItem, EventSink, JournalEvent, Log};
use parking_lot::{Condvar, Mutex, RwLock};
use routing::{Arguments, Name, QueueId, Removal};
use types::{Clock, LogId, PartitionIndex, ShardId};

use super::Vhost;
use super::arguments::QueueArguments;
use super::dispatch::Dispatch;
use super::policies::{InForce, Matched};
use super::queue::Queue;
use crate::Broker;
use crate::catalog::TopicRecord;
use crate::log_ends::in_one;
use crate::mailbox::Event;
use crate::topic::Topic;
use behind::Behind;
use clock::DelayClock;
use record::{ClockRecord, DelaysRecord, decode, run_key};
use store::Store;

pub(crate) use record::DELAYS_KEY;
use record::FoundDelays;
pub use record::{DELAY_HEADER, Delay};

/// The shard number under which the thread hears of its logs.
pub(crate) const SHARD: ShardId = ShardId(57);
/// The group under which the messages of an exchange that have left are known.
const GROUP: &str = "amqp.delayed";
/// Longest sleep while something is delayed, in ms.
const LONGEST_MS: u64 = 1000;
/// How often it is written what time it is, in ms.
const SEEN_MS: u64 = 60_000;

/// The delayed messages of one exchange.
pub struct Delays {
    vhost: String,
    exchange: Name,
    queue: Arc<Queue>,
    /// How many were found in the log and have not left, and where the search ended.
    found: Mutex<(u64, u64)>,
}

impl Delays {
    /// Where messages are published to that are to be delayed: as to a queue that nobody consumes. Their records have a [`DELAY_HEADER`].
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// How many messages wait for their time.
    pub fn count(&self) -> u64 {
        let (found, until) = *self.found.lock();
        found + self.queue.log().last_stable().0.saturating_sub(until)
    }
}

/// With the logs of what was sorted in an earlier life.
type New = (Arc<Delays>, Vec<Arc<Log>>);
/// Logs that have more, and exchanges that are new.
type Told = (HashSet<LogId>, Vec<New>);

/// What the thread is told.
#[derive(Default)]
struct Inbox {
    new: Vec<New>,
    advanced: HashSet<LogId>,
    closed: bool,
}

/// See the head of the file.
pub(crate) struct DelayService {
    clock: DelayClock,
    behind: Behind,
    inbox: Mutex<Inbox>,
    wakes: Condvar,
}

impl EventSink for DelayService {
    fn deliver(&self, events: &mut Vec<JournalEvent>) {
        for event in events.drain(..) {
            if let JournalEvent::Advanced(log) = event {
                self.touch(log);
            }
        }
    }
}

impl DelayService {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock: DelayClock::new(clock),
            behind: Behind::default(),
            inbox: Mutex::default(),
            wakes: Condvar::new(),
        })
    }

    /// Something is to be done for the exchange that has this log.
    fn touch(&self, log: LogId) {
        self.inbox.lock().advanced.insert(log);
        self.wakes.notify_one();
    }

    fn enter(&self, delays: Arc<Delays>, runs: Vec<Arc<Log>>) {
        self.inbox.lock().new.push((delays, runs));
        self.wakes.notify_one();
    }

    pub fn close(&self) {
        self.inbox.lock().closed = true;
        self.wakes.notify_one();
    }

    /// The body of the thread.
    pub fn run(&self, broker: &Arc<Broker>) {
        let mut stores: HashMap<LogId, Store> = HashMap::new();
        let kept = Arc::new(AtomicUsize::new(0));
        let mut due: BTreeSet<(u64, LogId)> = BTreeSet::new();
        let mut seen_at = 0;
        loop {
            let now = self.clock.now();
            let Some((mut touched, new)) = self.wait(due.first().map(|(at, _)| *at), now) else { return };
            for (delays, runs) in new {
                let log = delays.queue.log().id();
                stores.insert(log, Store::new(delays, runs, Arc::clone(&kept)));
                touched.insert(log);
            }
            let now = self.clock.now();
            touched.extend(due.iter().take_while(|(at, _)| *at <= now).map(|(_, log)| *log));
            for log in touched {
                let Some(store) = stores.get_mut(&log) else { continue };
                due.remove(&(store.wakes_at, log));
                if store.is_dropped() {
                    stores.remove(&log).into_iter().for_each(|store| store.forget(broker));
                    continue;
                }
                store.step(broker, &self.clock);
                due.insert((store.wakes_at, log));
            }
            if !stores.is_empty() && now >= seen_at + SEEN_MS {
                seen_at = now;
                broker.write_clock(self.clock.record());
            }
        }
    }

    /// Waits until something is to be done; `None`: the end.
    fn wait(&self, due: Option<u64>, now: u64) -> Option<Told> {
        let mut inbox = self.inbox.lock();
        if inbox.advanced.is_empty() && inbox.new.is_empty() && !inbox.closed {
            let rest = due.map_or(LONGEST_MS, |at| at.saturating_sub(now).min(LONGEST_MS));
            if rest > 0 {
                self.wakes.wait_for(&mut inbox, Duration::from_millis(rest));
            }
        }
        if inbox.closed {
            return None;
        }
        Some((std::mem::take(&mut inbox.advanced), std::mem::take(&mut inbox.new)))
    }
}

/// Ends a log of what was sorted of that of an exchange, and the record of it.
fn end_of_run(of: LogId, run: &Arc<Log>) -> AppendItem {
    AppendItem::Together(vec![
        AppendItem::State { key: run_key(of, run.id()), value: None },
        AppendItem::Drop { log: Arc::clone(run) },
    ])
}

/// What was found in the catalog.
#[derive(Default)]
pub(crate) struct Found {
    clock: Option<ClockRecord>,
    exchanges: Vec<(String, Name, DelaysRecord)>,
    runs: Vec<(LogId, LogId)>,
}

impl Found {
    /// Takes a state record.
    pub fn take(&mut self, key: &[u8], value: &[u8]) {
        match decode(key, value) {
            Some(FoundDelays::Clock(record)) => self.clock = Some(record),
            Some(FoundDelays::Exchange(vhost, name, record)) => self.exchanges.push((vhost, name, record)),
            Some(FoundDelays::Run(of, run)) => self.runs.push((of, run)),
            None => {
                tracing::warn!(key = %key.escape_ascii(), "record of delayed messages that is not readable ignored")
            }
        }
    }

    /// Logs that are no topics' and no queues'.
    pub fn logs(&self) -> impl Iterator<Item = LogId> + '_ {
        self.exchanges.iter().map(|(_, _, record)| record.log).chain(self.runs.iter().map(|(_, run)| *run))
    }
}

impl Broker {
    /// The time at which a message is due that is delayed by so many ms from now on: never before they have passed.
    pub fn delayed_by(&self, delay_ms: u64) -> u64 {
        self.delays.clock.now().saturating_add(delay_ms).saturating_add(1)
    }

    /// Appends what a client publishes. `here`: this thread may write it.
    ///
    /// # Errors
    /// There is no room for it, in the journal or among what is delayed: its shard hears [`Event::Space`] when there is.
    pub fn append_published(&self, journal: usize, append: Append, here: bool) -> Result<(), Append> {
        if self.delays.behind.holds_up(&append) {
            return Err(append);
        }
        self.journals()[journal].append_when_possible(append, here)
    }

    /// Of what this log has so many messages of so many bytes each have not been looked at.
    fn note_unseen(&self, log: LogId, unseen: u64, each: u64) {
        self.delays.behind.note(log, unseen, each).for_each(|shard| self.mailboxes.push(shard, Event::Space));
    }

    fn write_clock(&self, record: ClockRecord) {
        let item = AppendItem::State { key: ClockRecord::key(), value: Some(record.encode()) };
        self.subscriptions().append_alone(0, vec![item]);
    }

    /// Makes room for what an exchange delays. On the controller's thread.
    pub(super) fn open_delays(
        self: &Arc<Self>,
        vhost: &Vhost,
        exchange: &Name,
        durable: bool,
    ) -> Result<(), AppendError> {
        let topic = self.make_log(durable, |topic| {
            let record = DelaysRecord { topic: topic.id, log: topic.logs[0] };
            AppendItem::State { key: DelaysRecord::key(&vhost.name, exchange), value: Some(record.encode()) }
        })?;
        if durable {
            self.write_clock(self.delays.clock.record());
        }
        self.enter_delays(vhost, exchange, durable, topic, Vec::new());
        Ok(())
    }

    fn enter_delays(&self, vhost: &Vhost, exchange: &Name, durable: bool, topic: Arc<Topic>, runs: Vec<Arc<Log>>) {
        let shared = if durable {
            self.own_subscription(GROUP, &topic, PartitionIndex(0), Log::start)
        } else {
            self.queue_subscription(GROUP, &topic, PartitionIndex(0), false)
        };
        let shared = shared.expect("its topic has a log");
        // No policy is about it.
        let understood = QueueArguments::new(&Arguments::default()).expect("there are none");
        let in_force = Arc::new(InForce::new(understood, Matched::default()));
        let queue = Arc::new(Queue {
            id: QueueId(shared.log().id().0),
            vhost: Arc::clone(&vhost.name),
            name: exchange.clone(),
            durable,
            owner: None,
            auto_delete: false,
            arguments: Default::default(),
            dispatch: Mutex::new(Dispatch::new(&in_force, false, &shared)),
            burials: Mutex::default(),
            in_force: RwLock::new(in_force),
            may_refuse: false.into(),
            line: OnceLock::new(),
            stream: None,
            topic,
            attached: false,
            shared,
            others: Box::default(),
            on_the_way: Default::default(),
            publishers: Default::default(),
            dropped: false.into(),
            dirty: false.into(),
        });
        let until = queue.shared.lock().start();
        let delays = Arc::new(Delays {
            vhost: vhost.name.to_string(),
            exchange: exchange.clone(),
            queue,
            found: Mutex::new((0, until)),
        });
        vhost.delays.write().insert(exchange.clone(), Arc::clone(&delays));
        self.delays.enter(delays, runs);
    }

    /// Exchanges are gone: what they have delayed goes with them. Adds keys that are to be deleted; the logs go with
    /// [`Broker::drop_delays`], once that is durable.
    pub(super) fn close_delays(&self, vhost: &Vhost, removal: &Removal, keys: &mut Vec<Bytes>) -> Vec<Arc<Delays>> {
        let mut closed = Vec::new();
        for one in &removal.exchanges {
            let Some(delays) = vhost.delays.write().remove(&one.name) else { continue };
            delays.queue.dropped.store(true, Ordering::SeqCst);
            if delays.queue.durable {
                keys.push(DelaysRecord::key(&vhost.name, &one.name));
            }
            closed.push(delays);
        }
        closed
    }

    /// What deletes the records of what an exchange has delayed, to be written to journal 0 in one chunk with the deletion of its own; then
    /// [`Broker::end_delays`] or [`Broker::close_delays`].
    pub(super) fn ends_of_delays(&self, vhost: &Vhost, exchange: &[u8]) -> Vec<AppendItem> {
        let Some(delays) = vhost.delays(exchange).filter(|delays| delays.queue.durable) else { return Vec::new() };
        let mut items = vec![AppendItem::State { key: DelaysRecord::key(&vhost.name, exchange), value: None }];
        items.extend(self.ends_of(std::slice::from_ref(delays.queue.log())));
        items
    }

    /// An exchange is gone: what it has delayed goes with it.
    pub(super) fn end_delays(&self, vhost: &Vhost, exchange: &[u8]) {
        let Some(delays) = vhost.delays.write().remove(exchange) else { return };
        delays.queue.dropped.store(true, Ordering::SeqCst);
        self.drop_delays(vec![delays]);
    }

    pub(super) fn drop_delays(&self, closed: Vec<Arc<Delays>>) {
        for delays in closed {
            let queue = &delays.queue;
            self.catalog.remove(&queue.topic);
            match queue.durable {
                true => self.follow_ends(std::slice::from_ref(queue.log())),
                false => self.end_passing(queue.log()),
            }
            self.drop_leftovers(&self.subscriptions().of_topic(queue.topic.id));
            // The thread forgets what it has sorted.
            self.delays.touch(queue.log().id());
        }
    }

    /// Makes topics of the logs in which exchanges keep messages; before subscriptions are restored, which look for them.
    pub(crate) fn restore_delayed_topics(&self, found: &Found) {
        self.delays.clock.resume(found.clock);
        for (_, _, record) in &found.exchanges {
            let topic =
                TopicRecord { id: record.topic, logs: vec![record.log], overrides: super::admin::queue_overrides() };
            self.publish_hidden(topic, self.durability());
        }
    }

    /// Gives exchanges back what they have delayed; once all exchanges are there. What belongs to none of them is forgotten.
    pub(crate) fn restore_delays(self: &Arc<Self>, found: Found) {
        let is_delayed = |vhost: &Vhost, name: &Name| {
            vhost.exchanges.read().exchange(name).is_some_and(|exchange| exchange.delayed())
        };
        let mut runs: HashMap<LogId, Vec<LogId>> = HashMap::new();
        let open = |id: &LogId| self.journal_of(*id).create_log(*id, self.durability());
        for (of, run) in found.runs {
            runs.entry(of).or_default().push(run);
        }
        for (vhost, name, record) in found.exchanges {
            let logs = runs.remove(&record.log).unwrap_or_default();
            let (host, topic) = (self.vhosts.get(&vhost), self.topic_by_id(record.topic));
            let (Some(host), Some(topic)) = (host.filter(|host| is_delayed(host, &name)), topic) else {
                let log = open(&record.log);
                let mut items = vec![AppendItem::State { key: DelaysRecord::key(&vhost, &name), value: None }];
                items.extend(self.ends_of(std::slice::from_ref(&log)));
                self.subscriptions().append_alone(0, in_one(items, Vec::new()));
                self.follow_ends(std::slice::from_ref(&log));
                runs.insert(record.log, logs);
                continue;
            };
            self.enter_delays(&host, &name, true, topic, logs.iter().map(open).collect());
        }
        for host in self.vhosts.all() {
            let names = |host: &Vhost| -> Vec<(Name, bool)> {
                let table = host.exchanges.read();
                table.exchanges().filter(|one| one.delayed()).map(|one| (one.name().clone(), one.durable())).collect()
            };
            for (name, durable) in names(&host).into_iter().filter(|(name, _)| host.delays(name).is_none()) {
                if let Err(error) = self.open_delays(&host, &name, durable) {
                    tracing::warn!(%error, exchange = %name, vhost = &*host.name, "exchange cannot delay anything");
                }
            }
        }
        for (of, run) in runs.iter().flat_map(|(of, logs)| logs.iter().map(move |run| (*of, *run))) {
            self.subscriptions().append_alone(self.journal_number(of), vec![end_of_run(of, &open(&run))]);
        }
    }
}
