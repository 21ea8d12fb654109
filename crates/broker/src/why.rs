//! Why is somebody slow? Two looks at the accounts of connections (`waits.rs`) and at what the node does for all, some time apart; what
//! of the time between them went where. Not on a shard's thread: it waits for the second look.
//!
//! Each reason has a share of that time: of all connections asked for that did anything, and of the one that has most of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use journal::JournalStatus;

use crate::waits::{About, CAUSES, Cause, Waits};
use crate::{Broker, QuotaKey};

/// Whom it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhySubject {
    /// A client id, the name of an AMQP connection, a user, or the address of a client (`HOST:PORT`).
    Client(String),
    /// A topic, or an AMQP queue of virtual host `/`.
    Topic(String),
    /// A group.
    Group(String),
    /// All connections.
    All,
}

/// A part of the time.
#[derive(Clone, Debug, PartialEq)]
pub struct WhyReason {
    /// A word for programs: [`Cause::name`], or one of the node's (`disk-full`, `disk-failed`, `slow-disk`, `archive`, `threads-busy`,
    /// `unacknowledged`).
    pub cause: &'static str,
    /// Of the time, 0 to 1; of what holds for the node, as far as it can be said.
    pub share: f64,
    /// The share of the connection that has most of it.
    pub worst: f64,
    /// Connections that have some of it.
    pub connections: usize,
    /// For people, with figures.
    pub text: String,
}

/// A connection, and where its time went.
#[derive(Clone, Debug)]
pub struct WhyConnection {
    /// The client's address.
    pub peer: std::net::SocketAddr,
    /// `kafka` or `amqp`.
    pub protocol: &'static str,
    /// Who, what, which groups.
    pub about: About,
    /// Parts of the time, by cause; causes may hold at once.
    pub shares: Vec<(Cause, f64)>,
}

/// The chain of reasons.
#[derive(Clone, Debug)]
pub struct Why {
    /// What was looked at.
    pub window: Duration,
    /// What weighs most comes first.
    pub reasons: Vec<WhyReason>,
    /// Those asked for, those that wait most first.
    pub connections: Vec<WhyConnection>,
    /// How many there were; not all of them are listed.
    pub connection_count: usize,
}

/// Connections that are listed.
const LISTED_MAX: usize = 100;
/// A smaller part of the time is no reason.
const SHARE_MIN: f64 = 0.05;
/// Who asks for nothing in more than this part of the time is not judged, unless nobody does.
const IDLE_FROM: f64 = 0.995;
/// Commits that take longer on average mean a slow disk.
const SLOW_COMMIT: Duration = Duration::from_millis(20);
/// A part of the threads' time that counts as much.
const THREADS_BUSY_FROM: f64 = 0.8;
const EFFORT_FROM: f64 = 0.15;

/// One look.
struct Look {
    at: Instant,
    connections: Vec<(Arc<Waits>, [u64; CAUSES])>,
    busy: Vec<u64>,
    handshakes: (u64, u64),
    filtered: u64,
    commits: (u64, u64),
}

fn word(count: usize) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{count} connections") }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

impl Broker {
    /// Why are these slow? Looks for `window`. `None`: there is no such connection, topic or group.
    pub fn why(&self, subject: &WhySubject, window: Duration) -> Option<Why> {
        let first = self.look(subject);
        let known = match subject {
            WhySubject::Topic(name) => self.topic(name).is_some(),
            WhySubject::Group(name) => self.groups().exists(name),
            WhySubject::Client(_) => !first.connections.is_empty(),
            WhySubject::All => true,
        };
        if !known {
            return None;
        }
        std::thread::sleep(window);
        let second = self.look(subject);
        Some(self.explain(subject, &first, &second))
    }

    fn look(&self, subject: &WhySubject) -> Look {
        let at = Instant::now();
        let book = self.waits();
        let load = |effort: &crate::waits::Effort| (effort.count.load(Ordering::Relaxed), effort.spent_ns.load(Ordering::Relaxed));
        let commits = self.journals().iter().map(|journal| journal.metrics().commits_so_far());
        Look {
            at,
            connections: book.all().into_iter().filter(|waits| self.concerns(subject, waits)).map(|waits| {
                let totals = waits.totals(at);
                (waits, totals)
            }).collect(),
            busy: book.busy(),
            handshakes: load(&book.handshakes),
            filtered: load(&book.filtered).1,
            commits: commits.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
        }
    }

    fn concerns(&self, subject: &WhySubject, waits: &Waits) -> bool {
        let about = waits.about();
        match subject {
            WhySubject::All => true,
            WhySubject::Client(name) => about.client_id == *name || about.user == *name || waits.peer.to_string() == *name,
            WhySubject::Topic(name) => self.topic(name).is_some_and(|topic| about.topics.contains(&topic.id)),
            WhySubject::Group(name) => {
                let host = format!("/{}", waits.peer.ip().to_canonical());
                about.groups.contains(name) || !about.client_id.is_empty() && self.groups().has_member(name, &about.client_id, &host)
            }
        }
    }

    fn explain(&self, subject: &WhySubject, first: &Look, second: &Look) -> Why {
        let window = second.at.duration_since(first.at);
        let all: Vec<(Arc<Waits>, [f64; CAUSES])> = second
            .connections
            .iter()
            .filter_map(|(waits, totals)| {
                // Both are in the order of the numbers.
                let (_, before) = &first.connections[first.connections.binary_search_by_key(&waits.id, |(other, _)| other.id).ok()?];
                let share = |at: usize| (totals[at].saturating_sub(before[at]) as f64 / window.as_nanos() as f64).min(1.0);
                Some((Arc::clone(waits), std::array::from_fn(share)))
            })
            .collect();
        let mut reasons = self.reasons_of_node(first, second, window);
        reasons.extend(self.reasons_of_connections(&all, first, second));
        reasons.extend(self.unacknowledged(&all));
        reasons.extend(self.behind(subject));
        // What the client could change comes last: it asks for more once the rest lets it.
        let rank = |reason: &WhyReason| (["client", "no-records"].contains(&reason.cause), -(reason.worst.max(reason.share) * 1000.0) as i64);
        reasons.sort_by_key(rank);
        let mut connections: Vec<_> = all
            .iter()
            .map(|(waits, shares)| WhyConnection {
                peer: waits.peer,
                protocol: waits.protocol,
                about: waits.about(),
                shares: Cause::ALL.into_iter().map(|cause| (cause, shares[cause as usize])).filter(|(_, share)| *share >= 0.005).collect(),
            })
            .collect();
        let waiting = |one: &WhyConnection| one.shares.iter().filter(|(cause, _)| !is_rest(*cause)).map(|(_, share)| share).sum::<f64>();
        connections.sort_by(|one, other| waiting(other).total_cmp(&waiting(one)));
        let connection_count = connections.len();
        connections.truncate(LISTED_MAX);
        Why { window, reasons, connections, connection_count }
    }

    fn reasons_of_connections(&self, all: &[(Arc<Waits>, [f64; CAUSES])], first: &Look, second: &Look) -> Vec<WhyReason> {
        let idle = |shares: &[f64; CAUSES]| shares[Cause::Client as usize] >= IDLE_FROM;
        let some_work = all.iter().any(|(_, shares)| !idle(shares));
        let judged: Vec<_> = all.iter().filter(|(_, shares)| !some_work || !idle(shares)).collect();
        let mut reasons = Vec::new();
        for cause in Cause::ALL {
            let shares: Vec<f64> = judged.iter().map(|(_, shares)| shares[cause as usize]).collect();
            let worst = shares.iter().copied().fold(0.0, f64::max);
            if worst < SHARE_MIN {
                continue;
            }
            let connections = shares.iter().filter(|share| **share >= SHARE_MIN).count();
            let share = shares.iter().sum::<f64>() / shares.len() as f64;
            let text = self.text(cause, &judged, share, connections, (first, second));
            reasons.push(WhyReason { cause: cause.name(), share, worst, connections, text });
        }
        reasons
    }

    fn text(&self, cause: Cause, judged: &[&(Arc<Waits>, [f64; CAUSES])], share: f64, count: usize, looks: (&Look, &Look)) -> String {
        let (part, who) = (percent(share), word(count));
        match cause {
            Cause::Quota => {
                let worst = judged.iter().max_by(|one, other| one.1[cause as usize].total_cmp(&other.1[cause as usize]));
                let quotas = worst.map(|(waits, _)| self.quotas_of(&waits.about())).unwrap_or_default();
                format!("{who} paused by quota for {part} of the time: {quotas}")
            }
            Cause::TopicQuota => format!("{who} paused by the quota of a topic for {part} of the time"),
            Cause::Laggard => format!("{who} slowed down by a rule for groups that are far behind, for {part} of the time"),
            Cause::Disk => {
                let (count, ns) = difference(looks.0.commits, looks.1.commits);
                let mean = ns as f64 / count.max(1) as f64 / 1e6;
                format!("{who} waited for appends to be durable for {part} of the time; {count} commits took {mean:.1} ms each")
            }
            Cause::Memory => match self.waits().answer_memory() {
                Some((used, max)) => format!("{who} waited for memory for {part} of the time; unread answers hold {used} of {max} bytes"),
                None => format!("{who} waited for memory for {part} of the time"),
            },
            Cause::Reader => format!("{who} did not take what was sent for {part} of the time: client or network is slower than the broker"),
            Cause::History => format!("{who} waited for records to be read from the disk for {part} of the time"),
            Cause::Records => format!("{who} waited for records to come for {part} of the time: all there are have been read"),
            Cause::Filter => format!("going through records that a filter looks at took {part} of the time of {who}"),
            Cause::Tls => format!("{who} in the handshake of TLS for {part} of the time"),
            Cause::Client => format!("{who} asked for nothing for {part} of the time: the client itself takes that long between requests"),
            Cause::Login => format!("{who} waited for a password to be verified for {part} of the time"),
            Cause::Coordinator => format!("{who} waited for a group, a transaction or an administrative command for {part} of the time"),
        }
    }

    /// The quotas of a client, with figures.
    fn quotas_of(&self, about: &About) -> String {
        let user = if about.user.is_empty() { crate::ANONYMOUS_NAME } else { &about.user };
        let Some(limits) = self.quotas().of(user, &about.client_id, Instant::now()) else { return "it has none any more".to_owned() };
        let accounts = [
            (QuotaKey::ProducerByteRate, &limits.produce), (QuotaKey::ConsumerByteRate, &limits.fetch),
            (QuotaKey::RequestPercentage, &limits.request), (QuotaKey::ControllerMutationRate, &limits.mutation),
        ];
        let shown = |(key, account): (QuotaKey, &Option<Arc<crate::Account>>)| {
            let account = account.as_ref()?;
            let value = if key == QuotaKey::RequestPercentage { account.rate() / 1e7 } else { account.rate() };
            Some(format!("{} {value} (user {user:?}, client id {:?})", key.name(), about.client_id))
        };
        accounts.into_iter().filter_map(shown).collect::<Vec<_>>().join(", ")
    }

    fn reasons_of_node(&self, first: &Look, second: &Look, window: Duration) -> Vec<WhyReason> {
        let mut reasons = Vec::new();
        let mut add = |cause, share: f64, text| reasons.push(WhyReason { cause, share, worst: share, connections: 0, text });
        for journal in self.journals() {
            let number = journal.number();
            match journal.status() {
                JournalStatus::Stopped { reason } => add("disk-failed", 1.0, format!("journal {number} takes nothing more: {reason}")),
                _ if journal.is_disk_full() => add("disk-full", 1.0, format!("the disk of journal {number} is full: data is refused")),
                _ if journal.waits_for_archive() => {
                    add("archive", 1.0, format!("journal {number} waits for the archive: its window is full"));
                }
                _ => {}
            }
        }
        let (commits, ns) = difference(first.commits, second.commits);
        let mean = Duration::from_nanos(ns / commits.max(1));
        if mean >= SLOW_COMMIT {
            let busy = (ns as f64 / window.as_nanos() as f64).min(1.0);
            add("slow-disk", busy, format!("{commits} commits took {:.0} ms each until they were on the disk", mean.as_secs_f64() * 1e3));
        }
        let threads = second.busy.len().max(1) as f64;
        let of_threads = |ns: u64| ns as f64 / window.as_nanos() as f64 / threads;
        let busy = second.busy.iter().zip(&first.busy).map(|(now, then)| (now - then) as f64 / window.as_nanos() as f64);
        let busiest = busy.fold(0.0, f64::max).min(1.0);
        if busiest >= THREADS_BUSY_FROM {
            let all = of_threads(second.busy.iter().sum::<u64>() - first.busy.iter().sum::<u64>());
            let text = format!("a network thread was busy for {} of the time, all together {}", percent(busiest), percent(all));
            add("threads-busy", busiest, text);
        }
        let (handshakes, ns) = difference(first.handshakes, second.handshakes);
        if of_threads(ns) >= EFFORT_FROM {
            let each = ns as f64 / handshakes.max(1) as f64 / 1e6;
            let part = percent(of_threads(ns));
            let text = format!("{handshakes} handshakes of TLS, {each:.1} ms each, took {part} of the time of network threads");
            add("tls-handshake", of_threads(ns), text);
        }
        let filtered = of_threads(second.filtered - first.filtered);
        if filtered >= EFFORT_FROM {
            add("filter", filtered, format!("filters took as much as {} of the time of network threads", percent(filtered)));
        }
        reasons
    }

    /// AMQP consumers that have as much as they may have unacknowledged.
    fn unacknowledged(&self, all: &[(Arc<Waits>, [f64; CAUSES])]) -> Option<WhyReason> {
        let mut full = Vec::new();
        for connected in all.iter().filter_map(|(waits, _)| self.connections().get(waits.id)) {
            for (number, flow) in connected.channels() {
                let (tally, prefetch) = (flow.tally(), flow.notes().prefetch.get());
                let limit = if tally.limit > 0 { tally.limit } else { prefetch };
                if limit > 0 && tally.unacknowledged >= limit {
                    full.push((connected.name(), number, tally.unacknowledged));
                }
            }
        }
        let (name, number, count) = full.first()?;
        let channels = full.len();
        let text = format!("{channels} channels wait for acknowledgements; channel {number} of {name} has {count} messages, as many as it may");
        Some(WhyReason { cause: "unacknowledged", share: 1.0, worst: 1.0, connections: full.len(), text })
    }

    /// How far a group is behind.
    fn behind(&self, subject: &WhySubject) -> Option<WhyReason> {
        let WhySubject::Group(name) = subject else { return None };
        let mut records = 0;
        for (topic, partition, committed) in self.groups().offsets(name) {
            if let Some(log) = self.topic(&topic).and_then(|topic| topic.log(types::PartitionIndex(partition))) {
                records += log.high_watermark().0.saturating_sub(u64::try_from(committed.offset).unwrap_or(0));
            }
        }
        let text = format!("the group has not committed {records} records yet");
        (records > 0).then_some(WhyReason { cause: "behind", share: 0.0, worst: 0.0, connections: 0, text })
    }
}

/// Is that no waiting for the broker?
fn is_rest(cause: Cause) -> bool {
    matches!(cause, Cause::Client | Cause::Records)
}

fn difference(before: (u64, u64), after: (u64, u64)) -> (u64, u64) {
    (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1))
}
