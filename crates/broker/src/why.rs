//! Why is somebody slow? Two looks at the accounts of connections (`waits.rs`) and at what the node does for all, some time apart; what
//! of the time between them went where. Not on a shard's thread: it waits for the second look.
//!
//! Each reason has a share of that time: of the connections that have some of it, of which the text says how many they are, and of the one that has most of it.
//! What is only the consequence of another reason joins that one (`chain.rs`), in the list of connections as well. Tested from outside by `conformance/why.py`.

mod chain;
mod channels;
mod node;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::waits::{About, CAUSES, Cause, ThreadTime, Waits};
use crate::{Broker, GroupLag, QuotaKey};
use channels::FullChannels;

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
    /// Of the time of the connections that have some of it, 0 to 1; of what holds for the node, as far as it can be said.
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
    /// Parts of the time, by the words of the reasons that they belong to; causes may hold at once.
    pub shares: Vec<(&'static str, f64)>,
}

/// Parts of the time that a connection's list has, at least.
const LISTED_FROM: f64 = 0.005;

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
/// Channels are looked at so often meanwhile.
const LOOKS_AT_CHANNELS: u32 = 10;

/// One look.
struct Look {
    at: Instant,
    /// In the order of their numbers.
    connections: Vec<Totals>,
    threads: Vec<ThreadTime>,
    handshakes: u64,
    /// Of each journal, and the time that they took together, in ns.
    commits: Vec<(u64, u64)>,
}

/// A connection, and its times so far by cause, in ns.
type Totals = (Arc<Waits>, [u64; CAUSES]);
/// A connection, and what part of the time each cause had.
type Shares = (Arc<Waits>, [f64; CAUSES]);

fn word(count: usize) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{count} connections") }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

impl Broker {
    /// Why are these slow? Looks for `window`. `None`: there is no such connection, topic or group.
    pub fn why(&self, subject: &WhySubject, window: Duration) -> Option<Why> {
        if !self.is_known(subject) {
            return None;
        }
        let first = self.look(subject);
        let mut channels = FullChannels::default();
        for _ in 0..LOOKS_AT_CHANNELS {
            std::thread::sleep(window / LOOKS_AT_CHANNELS);
            channels.look(self, &first.connections);
        }
        let second = self.look(subject);
        Some(self.explain(subject, (&first, &second), &channels))
    }

    /// What has this name: a client, a topic, a group, or several of them.
    pub fn why_subjects(&self, name: &str) -> Vec<WhySubject> {
        let all = [
            WhySubject::Client(name.to_owned()),
            WhySubject::Topic(name.to_owned()),
            WhySubject::Group(name.to_owned()),
        ];
        all.into_iter().filter(|subject| self.is_known(subject)).collect()
    }

    fn is_known(&self, subject: &WhySubject) -> bool {
        match subject {
            WhySubject::Topic(name) => self.topic(name).is_some(),
            WhySubject::Group(name) => self.groups().exists(name),
            WhySubject::Client(_) => self.waits().all().iter().any(|waits| self.concerns(subject, waits)),
            WhySubject::All => true,
        }
    }

    fn look(&self, subject: &WhySubject) -> Look {
        let at = Instant::now();
        let book = self.waits();
        let concerned = book.all().into_iter().filter(|waits| self.concerns(subject, waits));
        let account = |waits: Arc<Waits>| {
            let totals = waits.totals(at);
            (waits, totals)
        };
        Look {
            at,
            connections: concerned.map(account).collect(),
            threads: book.threads(),
            handshakes: book.handshakes(),
            commits: self.journals().iter().map(|journal| journal.metrics().commits_so_far()).collect(),
        }
    }

    fn concerns(&self, subject: &WhySubject, waits: &Waits) -> bool {
        let about = waits.about();
        match subject {
            WhySubject::All => true,
            WhySubject::Client(name) => {
                about.client_id == *name || about.user == *name || waits.peer.to_string() == *name
            }
            WhySubject::Topic(name) => self.topic(name).is_some_and(|topic| about.topics.contains(&topic.id)),
            WhySubject::Group(name) => {
                let host = format!("/{}", waits.peer.ip().to_canonical());
                let client = delivery::Client { id: &about.client_id, host: &host, user: None };
                about.groups.contains(name) || !about.client_id.is_empty() && self.groups().has_member(name, client)
            }
        }
    }

    fn explain(&self, subject: &WhySubject, looks: (&Look, &Look), channels: &FullChannels) -> Why {
        let (first, second) = looks;
        let window = second.at.duration_since(first.at);
        let full = channels.parts();
        let all: Vec<Shares> = second
            .connections
            .iter()
            .filter_map(|(waits, totals)| {
                let place = first.connections.binary_search_by_key(&waits.id, |(other, _)| other.id).ok()?;
                let before = &first.connections[place].1;
                let share =
                    |at: usize| (totals[at].saturating_sub(before[at]) as f64 / window.as_nanos() as f64).min(1.0);
                let mut shares: [f64; CAUSES] = std::array::from_fn(share);
                // Nothing comes to who has as much as he may: he is waited for, not the records.
                let full = full.get(&waits.id).copied().unwrap_or(0.0).min(shares[Cause::Records as usize]);
                shares[Cause::Records as usize] -= full;
                shares[Cause::Client as usize] += full;
                Some((Arc::clone(waits), shares))
            })
            .collect();
        let journals = self.journals_of(subject, &all);
        let disk = all.iter().map(|(_, shares)| shares[Cause::Disk as usize]).fold(0.0, f64::max);
        let mut reasons = self.reasons_of_journals(looks, &journals, disk);
        reasons.extend(node::reasons_of_threads(looks));
        reasons.extend(self.reasons_of_connections(&all, looks, &journals));
        reasons.extend(channels.reason());
        reasons.extend(self.behind(subject));
        let (mut reasons, of_disk) = chain::join(reasons);
        // What the client could change comes last: it asks for more once the rest lets it.
        let rank = |reason: &WhyReason| (is_rest(reason.cause), -(reason.worst.max(reason.share) * 1000.0) as i64);
        reasons.sort_by_key(rank);
        let word = |cause: Cause| if cause == Cause::Disk { of_disk } else { cause.name() };
        let mut connections: Vec<_> = all
            .iter()
            .map(|(waits, shares)| {
                let full = ("unacknowledged", full.get(&waits.id).copied().unwrap_or(0.0));
                let shares = Cause::ALL.into_iter().map(|cause| (word(cause), shares[cause as usize])).chain([full]);
                let shares = shares.filter(|(_, share)| *share >= LISTED_FROM).collect();
                WhyConnection { peer: waits.peer, protocol: waits.protocol, about: waits.about(), shares }
            })
            .collect();
        let waiting = |one: &WhyConnection| {
            one.shares.iter().filter(|(cause, _)| !is_rest(cause)).map(|(_, share)| share).sum::<f64>()
        };
        connections.sort_by(|one, other| waiting(other).total_cmp(&waiting(one)));
        let connection_count = connections.len();
        connections.truncate(LISTED_MAX);
        Why { window, reasons, connections, connection_count }
    }

    fn reasons_of_connections(&self, all: &[Shares], looks: (&Look, &Look), journals: &[bool]) -> Vec<WhyReason> {
        let idle = |shares: &[f64; CAUSES]| shares[Cause::Client as usize] >= IDLE_FROM;
        let some_work = all.iter().any(|(_, shares)| !idle(shares));
        let judged: Vec<_> = all.iter().filter(|(_, shares)| !some_work || !idle(shares)).collect();
        let mut reasons = Vec::new();
        for cause in Cause::ALL {
            let shares = judged.iter().map(|(_, shares)| shares[cause as usize]);
            let shares: Vec<f64> = shares.filter(|share| *share >= SHARE_MIN).collect();
            let (connections, worst) = (shares.len(), shares.iter().copied().fold(0.0, f64::max));
            if connections == 0 {
                continue;
            }
            let share = shares.iter().sum::<f64>() / connections as f64;
            let text = match cause {
                Cause::Disk => {
                    format!("{}; {}", self.text(cause, &judged, share, connections), node::commits_of(looks, journals))
                }
                _ => self.text(cause, &judged, share, connections),
            };
            reasons.push(WhyReason { cause: cause.name(), share, worst, connections, text });
        }
        reasons
    }

    fn text(&self, cause: Cause, judged: &[&Shares], share: f64, count: usize) -> String {
        let (part, who) = (percent(share), word(count));
        match cause {
            Cause::Quota => {
                let worst =
                    judged.iter().max_by(|one, other| one.1[cause as usize].total_cmp(&other.1[cause as usize]));
                let quotas = worst.map(|(waits, _)| self.quotas_of(&waits.about())).unwrap_or_default();
                format!("{who} paused by quota for {part} of the time: {quotas}")
            }
            Cause::TopicQuota => format!("{who} paused by the quota of a topic for {part} of the time"),
            Cause::Laggard => {
                format!("{who} slowed down by a rule for groups that are far behind, for {part} of the time")
            }
            Cause::Disk => format!("{who} waited for appends to be durable for {part} of the time"),
            Cause::Memory => format!("{who} waited for memory for {part} of the time{}", self.memory_held()),
            Cause::Reader => format!(
                "{who} did not take what was sent for {part} of the time: client or network is slower than the broker"
            ),
            Cause::History => format!("{who} waited for records to be read from the disk for {part} of the time"),
            Cause::Records => {
                format!("{who} waited for records to come for {part} of the time: all there are have been read")
            }
            Cause::Filter => format!("going through records that a filter looks at took {part} of the time of {who}"),
            Cause::Tls => format!("{who} in the handshake of TLS for {part} of the time"),
            Cause::Client => format!(
                "{who} asked for nothing for {part} of the time: the client itself takes that long between requests"
            ),
            Cause::Login => format!("{who} waited for a password to be verified for {part} of the time"),
            Cause::Coordinator => {
                format!("{who} waited for a group, a transaction or an administrative command for {part} of the time")
            }
        }
    }

    /// The quotas of a client, with figures.
    fn quotas_of(&self, about: &About) -> String {
        let user = if about.user.is_empty() { crate::ANONYMOUS_NAME } else { &about.user };
        let Some(limits) = self.quotas().of(user, &about.client_id, Instant::now()) else {
            return "it has none any more".to_owned();
        };
        let accounts = [
            (QuotaKey::ProducerByteRate, &limits.produce),
            (QuotaKey::ConsumerByteRate, &limits.fetch),
            (QuotaKey::RequestPercentage, &limits.request),
            (QuotaKey::ControllerMutationRate, &limits.mutation),
        ];
        let shown = |(key, account): (QuotaKey, &Option<Arc<crate::Account>>)| {
            let account = account.as_ref()?;
            let value = if key == QuotaKey::RequestPercentage { account.rate() / 1e7 } else { account.rate() };
            Some(format!("{} {value} (user {user:?}, client id {:?})", key.name(), about.client_id))
        };
        accounts.into_iter().filter_map(shown).collect::<Vec<_>>().join(", ")
    }

    /// The shares of the budget that connections wait for, with figures.
    fn memory_held(&self) -> String {
        let named = ["requests", "answers that clients have not read"].into_iter().zip(self.waits().memory());
        named
            .filter_map(|(what, share)| share.map(|(used, max)| format!("; {what} hold {used} of {max} bytes")))
            .collect()
    }

    /// How far a group is behind.
    fn behind(&self, subject: &WhySubject) -> Option<WhyReason> {
        let WhySubject::Group(name) = subject else { return None };
        let GroupLag { records, partitions_unknown, records_unknown } = GroupLag::of(&self.group_progress(name));
        let unknown = match partitions_unknown {
            1 => "1 partition without an offset".to_owned(),
            count => format!("{count} partitions without an offset"),
        };
        let text = match (records, records_unknown) {
            (0, 0) => return None,
            (_, 0) => format!("the group has not done with {records} records yet"),
            (0, _) => format!("the group has yet to read up to {records_unknown} records of {unknown}"),
            _ => format!(
                "the group has not done with {records} records yet, and has up to {records_unknown} more to read in {unknown}"
            ),
        };
        Some(WhyReason { cause: "behind", share: 0.0, worst: 0.0, connections: 0, text })
    }
}

/// Is that no waiting for the broker?
fn is_rest(cause: &str) -> bool {
    ["client", "no-records"].contains(&cause)
}
