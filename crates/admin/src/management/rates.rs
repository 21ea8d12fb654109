//! How fast counts grow: every five seconds the counts of queues, channels, connections and the node are looked at, and the last two
//! looks are kept. Nobody looks while nobody asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{ChannelTally, QueueTally};
use hashbrown::HashMap;
use parking_lot::Mutex;
use routing::QueueId;
use serde_json::{Map, Value, json};
use types::LogId;

use super::{Management, Totals};

/// Between two looks.
pub(crate) const EVERY: Duration = Duration::from_secs(5);
/// Without a question for so long nobody looks any more.
const ASKED_WITHIN: Duration = Duration::from_secs(300);

/// Counts of a thing that are looked at, in an order of its own.
pub(crate) const COUNTS: usize = 12;
pub(crate) type Counts = [u64; COUNTS];

/// Whose counts they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Queue(QueueId),
    /// By the number of its channel in the broker.
    Channel(u64),
    Connection(u64),
    /// What passes clients of AMQP.
    Node,
    /// What passes clients of all protocols, as [`NodeTotals::counts`] has it.
    Protocols,
}

#[derive(Default)]
struct Look {
    at: Option<Instant>,
    counts: HashMap<Subject, Counts>,
    /// High watermarks.
    ends: HashMap<LogId, u64>,
}

#[derive(Default)]
struct Looks {
    asked: Option<Instant>,
    before: Look,
    last: Look,
}

/// The last two looks.
#[derive(Default)]
pub(crate) struct Rates(Mutex<Looks>);

impl Rates {
    /// Somebody asks.
    pub fn touch(&self) {
        self.0.lock().asked = Some(Instant::now());
    }

    /// Has somebody asked lately? If not, what was seen is forgotten.
    pub fn is_wanted(&self) -> bool {
        let mut looks = self.0.lock();
        let wanted = looks.asked.is_some_and(|at| at.elapsed() < ASKED_WITHIN);
        if !wanted {
            *looks = Looks::default();
        }
        wanted
    }

    fn keep(&self, counts: HashMap<Subject, Counts>, ends: HashMap<LogId, u64>) {
        let mut looks = self.0.lock();
        let look = Look { at: Some(Instant::now()), counts, ends };
        looks.before = std::mem::replace(&mut looks.last, look);
    }

    /// Growth of a subject's counts in a second; signed, because some shrink.
    pub fn of(&self, subject: Subject) -> [f64; COUNTS] {
        let looks = self.0.lock();
        let Some(seconds) = looks.seconds() else { return [0.0; COUNTS] };
        let (Some(before), Some(last)) = (looks.before.counts.get(&subject), looks.last.counts.get(&subject)) else {
            return [0.0; COUNTS];
        };
        let mut rates = [0.0; COUNTS];
        for (rate, (before, last)) in rates.iter_mut().zip(before.iter().zip(last)) {
            *rate = rounded((*last as f64 - *before as f64) / seconds);
        }
        rates
    }
}

impl Looks {
    fn seconds(&self) -> Option<f64> {
        Some(self.last.at?.duration_since(self.before.at?).as_secs_f64().max(0.001))
    }
}

/// One decimal is enough for people.
fn rounded(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

impl Rates {
    /// Records that came to a log in a second.
    pub fn of_log(&self, log: LogId) -> f64 {
        let looks = self.0.lock();
        let ends = looks.before.ends.get(&log).zip(looks.last.ends.get(&log));
        let rate = |(from, to): (&u64, &u64)| Some(to.saturating_sub(*from) as f64 / looks.seconds()?);
        rounded(ends.and_then(rate).unwrap_or(0.0))
    }
}

/// A count and how fast it grows, under its name.
pub(crate) fn put(into: &mut Map<String, Value>, name: &str, count: u64, rate: f64) {
    into.insert(name.to_owned(), count.into());
    into.insert(format!("{name}_details"), json!({"rate": rate}));
}

const NAMES_OF_QUEUE: [&str; 9] =
    ["publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver", "ack", "deliver_get"];

/// A queue's counts: messages that came in, left and came back, then ready and unacknowledged.
pub(crate) fn of_queue(tally: &QueueTally, ready: u64, unacknowledged: u64) -> Counts {
    let QueueTally { published, delivered, delivered_no_ack, got, got_no_ack, got_empty, redelivered, acknowledged } =
        *tally;
    let all = delivered + delivered_no_ack + got + got_no_ack;
    [
        published,
        delivered,
        delivered_no_ack,
        got,
        got_no_ack,
        got_empty,
        redelivered,
        acknowledged,
        all,
        ready,
        unacknowledged,
        ready + unacknowledged,
    ]
}

/// `message_stats` of a queue; nothing before something has happened.
pub(crate) fn message_stats(counts: &Counts, rates: &[f64; COUNTS]) -> Option<Value> {
    counts[..NAMES_OF_QUEUE.len()].iter().any(|count| *count > 0).then(|| {
        let mut stats = Map::new();
        for (name, (count, rate)) in NAMES_OF_QUEUE.iter().zip(counts.iter().zip(rates)) {
            put(&mut stats, name, *count, *rate);
        }
        Value::Object(stats)
    })
}

/// Ready, unacknowledged, and all messages.
pub(crate) fn put_messages(into: &mut Map<String, Value>, counts: &Counts, rates: &[f64; COUNTS]) {
    for (name, at) in [("messages_ready", 9), ("messages_unacknowledged", 10), ("messages", 11)] {
        put(into, name, counts[at], rates[at]);
    }
}

pub(crate) const NAMES_OF_CHANNEL: [&str; 11] = [
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "redeliver",
    "ack",
    "deliver_get",
];

/// A channel's counts.
pub(crate) fn of_channel(notes: &broker::ChannelNotes, tally: &ChannelTally) -> Counts {
    let ChannelTally { delivered, delivered_no_ack, got, got_no_ack, redelivered, acknowledged, .. } = *tally;
    let all = delivered + delivered_no_ack + got + got_no_ack;
    let of = [notes.published.get(), notes.confirmed.get(), notes.returned.get(), notes.dropped.get()];
    [of[0], of[1], of[2], of[3], delivered, delivered_no_ack, got, got_no_ack, redelivered, acknowledged, all, 0]
}

pub(crate) const NAMES_OF_NODE: [&str; 5] = ["publish", "confirm", "drop_unroutable", "get", "ack"];

/// Counts of all connections, then connections and channels opened and closed.
pub(crate) fn of_node(totals: &Totals, churn: &broker::Churn) -> Counts {
    use std::sync::atomic::Ordering::Relaxed;
    let Totals { published, confirmed, unroutable, delivered, got, settled } = *totals;
    let opened = [&churn.connections_opened, &churn.connections_closed, &churn.channels_opened, &churn.channels_closed];
    let [a, b, c, d] = opened.map(|count| count.load(Relaxed));
    [published, confirmed, unroutable, got, settled, delivered, delivered + got, a, b, c, d, 0]
}

impl Management {
    /// Looks at all counts, if somebody wants to know.
    pub(crate) fn look(self: &Arc<Self>) {
        if !self.rates.is_wanted() {
            return;
        }
        let mut counts = HashMap::new();
        for queue in self.broker.vhosts().all().iter().flat_map(|vhost| vhost.queues()) {
            let held = self.broker.counts(&queue);
            counts.insert(
                Subject::Queue(queue.id()),
                of_queue(&self.broker.tally(&queue), held.ready, held.unacknowledged),
            );
        }
        for connected in self.broker.connections().all() {
            let mut own = [0; COUNTS];
            own[0] = connected.received_bytes.get();
            own[1] = connected.sent_bytes.get();
            counts.insert(Subject::Connection(connected.id().0), own);
            for (_, flow) in connected.channels() {
                counts.insert(Subject::Channel(flow.id().0), of_channel(flow.notes(), &flow.tally()));
            }
        }
        counts.insert(Subject::Node, of_node(&self.gateway.totals(), self.broker.connections().churn()));
        for (id, connected) in self.broker.kafka_connections().all() {
            let mut own = [0; COUNTS];
            own[..2].copy_from_slice(&[connected.received_bytes.get(), connected.sent_bytes.get()]);
            counts.insert(Subject::Connection(id.0), own);
        }
        counts.insert(Subject::Protocols, self.vitals.totals().counts());
        let topics = self.broker.topics();
        let logs = topics
            .iter()
            .flat_map(|topic| topic.logs().iter().map(|log| (log.id(), log.high_watermark().0)).collect::<Vec<_>>());
        let ends = logs.collect();
        self.rates.keep(counts, ends);
    }
}
