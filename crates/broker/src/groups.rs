//! Groups: the coordinator of `delivery` behind a lock, with a thread for its deadlines. Answers go to mailboxes; what must
//! be durable goes to journal 0, in the order in which the coordinator decided it: through one lane, under its lock. Committed
//! offsets are in [`crate::group_offsets`].
//!
//! Members of the classic protocol are answered at once. Of the others, what is told is durable: the answer waits for it, so
//! that a restart never knows less than a member was told.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use delivery::{
    Answer, Assignor, Client, ConsumerGroupSummary, ConsumerHeartbeat, CoordinatorSettings, Effect, GroupCoordinator,
    GroupError, GroupLine, GroupSummary, GroupTimes, HeartbeatAnswer, JoinRequest, LeaveMember, Migration,
    ShareGroupSummary, ShareHeartbeat, Sight, StreamsAnswer, StreamsConfig, StreamsError, StreamsGroupSummary,
    StreamsHeartbeat, StreamsTopology, SyncRequest, Topics,
};
use hashbrown::{HashMap, HashSet};
use journal::{AppendError, AppendItem, AppendResults, ReplyTo};
use parking_lot::Mutex;

use crate::expressions::{Expressions, Matching};
use crate::group_offsets::Coming;
use crate::jobs::TOGETHER_MAX;
use crate::lane::{Inbox, OF_TRANSACTIONS};
use crate::{Broker, GroupConfig, Reply, Settings};

/// How long state waits that a full queue did not take.
const FULL_QUEUE: Duration = Duration::from_millis(1);
/// How long a thread waits for an append.
const PATIENCE: Duration = Duration::from_secs(30);
/// Groups that are looked at for expiry under one hold of the lock.
const GROUPS_AT_ONCE: usize = 500;
/// Groups that are listed under one hold of the lock.
const LISTED_AT_ONCE: usize = 100;
/// Between such pieces, in ms.
const PIECE_PAUSE: u64 = 1;
/// How often shared subscriptions are looked at for locks that have run out, in ms, …
const LOCKS_INTERVAL: u64 = 500;
/// … and how often at most: outcomes of commits, which wake the thread, come by the thousand.
const LOCKS_PAUSE: u64 = 20;

/// All groups of the node.
pub struct Groups {
    pub(crate) state: Mutex<State>,
    expressions: Arc<Expressions>,
    inbox: Arc<Inbox>,
    closed: std::sync::atomic::AtomicBool,
}

pub(crate) struct State {
    pub coordinator: GroupCoordinator<ReplyTo>,
    /// Offsets that take effect with an append, by its token.
    pub coming: HashMap<u64, Coming>,
    /// Answers that wait for an append, by its token.
    waiting: HashMap<u64, Vec<(ReplyTo, GroupReply)>>,
    /// Threads that wait for an append, by its token.
    blocked: HashMap<u64, Sender<Result<(), AppendError>>>,
    next_token: u64,
    /// The thread has ended: outcomes are taken no more.
    ended: bool,
}

/// An answer to a member; `Err`: what it would tell is not durable.
pub type GroupReply = Result<Heard, NotDurable>;

/// The journal did not take what an answer would tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDurable;

/// What a member is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Of the classic protocol.
    Classic(Answer),
    /// To a heartbeat.
    Heartbeat(Result<HeartbeatAnswer, GroupError>),
    /// To a heartbeat of a member of a streams group.
    Streams(Result<StreamsAnswer, StreamsError>),
    /// Outcomes of leaving, by member.
    Left(Result<Vec<Result<(), GroupError>>, GroupError>),
}

impl Groups {
    pub(crate) fn new(settings: &Settings, expressions: Arc<Expressions>, inbox: Arc<Inbox>) -> Self {
        let int = |name: &str| settings.int(name).max(0) as u64;
        let times = |kind: &str| GroupTimes {
            session_timeout: int(&format!("group.{kind}.session.timeout.ms")),
            heartbeat_interval: int(&format!("group.{kind}.heartbeat.interval.ms")),
            assignment_interval: int(&format!("group.{kind}.assignment.interval.ms")),
        };
        let chosen = CoordinatorSettings {
            initial_delay: int("group.initial.rebalance.delay.ms"),
            session_timeout: int("group.min.session.timeout.ms")..=int("group.max.session.timeout.ms"),
            size_max: int("group.max.size") as usize,
            metadata_bytes_max: int("offset.metadata.max.bytes") as usize,
            offsets_retention: int("offsets.retention.minutes") * 60_000,
            consumer_size_max: int("group.consumer.max.size") as usize,
            consumer_assignors: settings
                .text("group.consumer.assignors")
                .0
                .split(',')
                .filter_map(|name| Assignor::find(name.trim()))
                .collect(),
            migration: Migration::find(settings.text("group.consumer.migration.policy").0)
                .unwrap_or(Migration::Bidirectional),
            consumer_times: times("consumer"),
            share_size_max: int("group.share.max.size") as usize,
            share_times: times("share"),
            streams_size_max: int("group.streams.max.size") as usize,
            streams_config: StreamsConfig {
                times: times("streams"),
                standbys: int("group.streams.num.standby.replicas") as u32,
                initial_delay: int("group.streams.initial.rebalance.delay.ms"),
            },
        };
        let coordinator = GroupCoordinator::with_topics(chosen, Arc::clone(&expressions) as Arc<dyn Topics>);
        let state = State {
            coordinator,
            coming: HashMap::new(),
            waiting: HashMap::new(),
            blocked: HashMap::new(),
            next_token: 0,
            ended: false,
        };
        Self { state: Mutex::new(state), expressions, inbox, closed: false.into() }
    }

    /// After all records are back.
    pub(crate) fn resume(&self) {
        self.state.lock().coordinator.resume(now());
    }

    pub(crate) fn set_times(&self, group: &str, config: Option<&GroupConfig>) {
        let mut state = self.state.lock();
        state.coordinator.set_consumer_times(group, config.map(|config| config.consumer));
        state.coordinator.set_share_times(group, config.map(|config| config.share));
        state.coordinator.set_streams_config(group, config.map(|config| config.streams));
    }

    pub(crate) fn restore(&self, key: &[u8], value: &[u8]) {
        if !self.state.lock().coordinator.restore(key, value, now()) {
            tracing::warn!(key = %key.escape_ascii(), "state record of an unknown kind ignored");
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, std::sync::atomic::Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        self.inbox.wake();
    }

    /// The thread that keeps the deadlines, and tells who waited for the journal.
    pub(crate) fn run(&self, broker: &Arc<Broker>) {
        let interval = expiry_interval(broker.settings().int("offsets.retention.minutes").max(0) as u64 * 60_000);
        let mut expiry_at = now() + interval;
        // Behind which group it goes on.
        let mut expiring: Option<String> = None;
        let mut locks_at = 0;
        while !self.closed.load(std::sync::atomic::Ordering::SeqCst) {
            self.take_results(broker, self.inbox.take());
            let full = broker.lane().send(broker.journals()) > 0;
            let next = {
                let mut state = self.state.lock();
                let mut effects = Vec::new();
                state.coordinator.handle_timeouts(now(), &mut effects);
                state.perform(broker, effects, None);
                state.coordinator.next_deadline()
            };
            let looks = now() >= locks_at;
            let looks_after_some = looks && broker.expire_subscriptions();
            if looks {
                locks_at = now() + LOCKS_PAUSE;
            }
            if expiring.is_none() && now() >= expiry_at {
                expiry_at = now() + interval;
                expiring = Some(String::new());
            }
            expiring = expiring.and_then(|after| self.expire(broker, &after));
            let longest = match expiring {
                Some(_) => PIECE_PAUSE,
                None if !looks => LOCKS_PAUSE,
                None if looks_after_some => LOCKS_INTERVAL,
                None => interval,
            };
            let wait = next.map_or(longest, |next| next.saturating_sub(now()).max(1));
            let mut wait = Duration::from_millis(wait.min(longest));
            if full {
                wait = wait.min(FULL_QUEUE);
            }
            self.inbox.wait(wait);
        }
        // Nobody tells them any more.
        let mut state = self.state.lock();
        state.ended = true;
        state.blocked.clear();
    }

    /// Forgets what is too old of the groups behind `after`, or of some of them; behind which it goes on.
    fn expire(&self, broker: &Broker, after: &str) -> Option<String> {
        let mut state = self.state.lock();
        let State { coordinator, coming, .. } = &mut *state;
        // What is under way may have been placed already, before what would be appended here.
        let spared: HashSet<&str> = coming.values().flat_map(Coming::groups).collect();
        let expired =
            coordinator.expire(broker.now_ms().max(0) as u64, after, GROUPS_AT_ONCE, |group| spared.contains(group));
        drop(spared);
        let items = expired.keys.into_iter().map(|key| AppendItem::State { key, value: None }).collect();
        state.append(broker, items, Vec::new(), false);
        expired.after
    }

    /// Appends have an outcome: offsets take effect, in the order of the journal, and whoever waits is told.
    fn take_results(&self, broker: &Broker, results: Vec<(u64, AppendResults)>) {
        if results.is_empty() {
            return;
        }
        let (mut replies, mut ends) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        for (token, results) in results {
            let tell = state.take_effect(token, &results);
            if token & OF_TRANSACTIONS != 0 {
                ends.push((token, results));
                continue;
            }
            let failed = results.iter().find_map(|result| result.err());
            if let Some(thread) = state.blocked.remove(&token) {
                // It may have given up.
                let _ = thread.send(failed.map_or(Ok(()), Err));
            }
            for (to, reply) in state.waiting.remove(&token).unwrap_or_default() {
                let reply: GroupReply = if failed.is_some() { Err(NotDurable) } else { reply };
                replies.push((to, Reply::Done(Box::new(reply))));
            }
            replies.extend(tell.map(|to| (to, Reply::Appended(results))));
        }
        drop(state);
        ends.into_iter().for_each(|(token, results)| broker.lane().transactions().push(token, results));
        replies.into_iter().for_each(|(to, reply)| broker.reply(to, reply));
    }

    /// Bytes of memory that groups and committed offsets may take, about.
    pub fn set_bytes_max(&self, bytes: usize) {
        self.state.lock().coordinator.set_bytes_max(bytes);
        self.expressions.set_bytes_max(bytes);
    }

    /// Bytes of memory that they take, about, and how often something was refused because they took as much as they may.
    pub fn memory(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.coordinator.bytes(), state.coordinator.refused_for_memory())
    }

    /// Names of all groups.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().coordinator.names()
    }

    /// How many groups there are, of whatever kind.
    pub fn count(&self) -> usize {
        self.state.lock().coordinator.count()
    }

    /// Bytes of memory that these groups take without their offsets, about.
    pub fn weight_of<'n>(&self, names: impl Iterator<Item = &'n str>) -> usize {
        let state = self.state.lock();
        names.map(|name| state.coordinator.weight_of(name)).sum()
    }

    /// All groups, of whatever kind, in the order of their names: not of one moment, since members wait for the lock.
    pub fn list(&self) -> Vec<GroupLine> {
        let mut all: Vec<GroupLine> = Vec::new();
        loop {
            let next = self.list_after(all.last().map(|line| &*line.group));
            if next.is_empty() {
                return all;
            }
            all.extend(next);
        }
    }

    /// One of them.
    pub fn line(&self, name: &str) -> Option<GroupLine> {
        self.state.lock().coordinator.line(name)
    }

    /// The next groups behind `after`, a hundred at most, in the order of their names. All members wait for the lock.
    pub fn list_after(&self, after: Option<&str>) -> Vec<GroupLine> {
        self.state.lock().coordinator.list_after(after, LISTED_AT_ONCE)
    }

    /// Is there a group with this name, of whatever kind?
    pub fn exists(&self, name: &str) -> bool {
        self.state.lock().coordinator.exists(name)
    }

    /// Has this group, which is no share group, this client as a member?
    pub fn has_member(&self, name: &str, client: Client<'_>) -> bool {
        self.state.lock().coordinator.has_member(name, client)
    }

    /// Groups with such a member; of a client that is a member of hundreds not all of them.
    pub fn groups_of(&self, client: Client<'_>) -> Vec<Arc<str>> {
        self.state.lock().coordinator.groups_of(client)
    }

    /// Is there such a member in this group, and none in another one?
    pub fn has_only_member(&self, name: &str, client: Client<'_>) -> bool {
        matches!(&*self.groups_of(client), [only] if **only == *name)
    }

    /// One consumer group.
    pub fn describe_consumers(&self, name: &str) -> Option<ConsumerGroupSummary> {
        self.state.lock().coordinator.describe_consumers(name)
    }

    /// One share group.
    pub fn describe_share(&self, name: &str) -> Option<ShareGroupSummary> {
        self.state.lock().coordinator.describe_share(name)
    }

    /// The topology of a streams group, once it has one.
    pub fn streams_topology(&self, name: &str) -> Option<Arc<StreamsTopology>> {
        self.state.lock().coordinator.streams_topology(name)
    }

    /// One streams group.
    pub fn describe_streams(&self, name: &str) -> Option<StreamsGroupSummary> {
        self.state.lock().coordinator.describe_streams(name)
    }

    /// Does a member of this consumer or streams group read the topic? `None`: it is neither.
    pub fn consumers_read(&self, name: &str, topic: &str) -> Option<bool> {
        self.state.lock().coordinator.consumers_read(name, topic)
    }

    /// May a member read committed offsets under this epoch?
    ///
    /// # Errors
    /// See [`GroupCoordinator::check_fetch`].
    pub fn check_fetch(&self, name: &str, member_id: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        self.state.lock().coordinator.check_fetch(name, member_id, epoch)
    }

    /// One classic group.
    pub fn describe(&self, name: &str) -> Option<GroupSummary<ReplyTo>> {
        self.state.lock().coordinator.describe(name)
    }
}

/// Milliseconds since 1970 by a clock that never goes back.
pub fn now() -> u64 {
    static START: std::sync::OnceLock<(std::time::Instant, u64)> = std::sync::OnceLock::new();
    let wall = || {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    };
    let (start, epoch) = START.get_or_init(|| (std::time::Instant::now(), wall()));
    epoch + start.elapsed().as_millis() as u64
}

impl State {
    /// Has the groups' own thread to wake up earlier than it thought?
    fn wakes_earlier(&self, before: Option<u64>) -> bool {
        self.coordinator.next_deadline().is_some_and(|after| before.is_none_or(|before| after < before))
    }

    pub fn take_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Carries effects out. With a group whose answers wait until they are durable, answers do.
    fn perform(&mut self, broker: &Broker, effects: Vec<Effect<ReplyTo>>, durable: Option<&str>) {
        let (mut items, mut answers) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Answer(to, answer) => answers.push((to, Ok(Heard::Classic(answer)))),
                Effect::Persist(key, value) => items.push(AppendItem::State { key, value }),
            }
        }
        let waits = durable.is_some_and(|group| self.coordinator.answers_when_durable(group));
        self.append(broker, items, answers, waits);
    }

    /// Appends records; `waits`: the answers are given when they are durable.
    fn append(&mut self, broker: &Broker, items: Vec<AppendItem>, answers: Vec<(ReplyTo, GroupReply)>, waits: bool) {
        let waits = waits && !items.is_empty() && !answers.is_empty();
        let answers = if waits { answers } else { tell(broker, answers) };
        if items.is_empty() {
            return;
        }
        let token = self.take_token();
        if waits {
            self.waiting.insert(token, answers);
        }
        broker.lane().append(broker.journals(), token, items, waits);
    }

    /// Appends records for a thread, which [waits](durable) for the outcome without the lock.
    pub fn append_blocking(
        &mut self,
        broker: &Broker,
        items: Vec<AppendItem>,
    ) -> (u64, Receiver<Result<(), AppendError>>) {
        let (sender, receiver) = channel();
        let token = self.take_token();
        if !self.ended {
            self.blocked.insert(token, sender);
        }
        broker.lane().append(broker.journals(), token, items, true);
        (token, receiver)
    }
}

/// How often is looked for what has not been used for so long, in ms: what expires goes a tenth of that later at most, or a minute.
pub(crate) fn expiry_interval(expiry: u64) -> u64 {
    (expiry / 10).clamp(1_000, 60_000)
}

/// Waits until records of a thread are durable. Not on a shard's thread.
pub(crate) fn durable(outcome: &Receiver<Result<(), AppendError>>) -> Result<(), AppendError> {
    outcome.recv_timeout(PATIENCE).unwrap_or(Err(AppendError::Stopped))
}

fn tell(broker: &Broker, answers: Vec<(ReplyTo, GroupReply)>) -> Vec<(ReplyTo, GroupReply)> {
    for (to, reply) in answers {
        broker.reply(to, Reply::Done(Box::new(reply)));
    }
    Vec::new()
}

/// A member's answer: at once, or by mailbox when what it tells is durable.
pub enum GroupTold {
    /// Nothing has to become durable.
    Now(Heard),
    /// Comes as [`GroupReply`].
    Later,
}

impl Broker {
    /// Lets the coordinator decide; what follows goes to the journal in this order.
    fn with_groups<T>(
        &self,
        group: &str,
        decide: impl FnOnce(&mut GroupCoordinator<ReplyTo>, &mut Vec<Effect<ReplyTo>>) -> T,
    ) -> T {
        let mut effects = Vec::new();
        let (outcome, earlier) = {
            let mut state = self.groups().state.lock();
            let before = state.coordinator.next_deadline();
            let outcome = decide(&mut state.coordinator, &mut effects);
            state.perform(self, effects, Some(group));
            (outcome, state.wakes_earlier(before))
        };
        if earlier {
            self.groups().wake();
        }
        outcome
    }

    /// As `with_groups`, for an answer that is given to `to` when its records are durable, if there are any.
    fn told_by_groups(
        &self,
        group: &str,
        to: ReplyTo,
        decide: impl FnOnce(&mut GroupCoordinator<ReplyTo>, &mut Vec<Effect<ReplyTo>>) -> Heard,
    ) -> GroupTold {
        let mut state = self.groups().state.lock();
        let mut effects = Vec::new();
        let before = state.coordinator.next_deadline();
        let heard = decide(&mut state.coordinator, &mut effects);
        let waits = state.coordinator.answers_when_durable(group)
            && effects.iter().any(|effect| matches!(effect, Effect::Persist(..)));
        let mut items = Vec::new();
        let mut answers = Vec::new();
        for effect in effects {
            match effect {
                Effect::Answer(to, answer) => answers.push((to, Ok(Heard::Classic(answer)))),
                Effect::Persist(key, value) => items.push(AppendItem::State { key, value }),
            }
        }
        let told = if waits {
            answers.push((to, Ok(heard)));
            GroupTold::Later
        } else {
            GroupTold::Now(heard)
        };
        state.append(self, items, answers, waits);
        let earlier = state.wakes_earlier(before);
        drop(state);
        if earlier {
            self.groups().wake();
        }
        told
    }

    /// A member wants in; the answer comes as [`GroupReply`].
    pub fn join_group(&self, group: &str, request: JoinRequest, to: ReplyTo) {
        self.with_groups(group, |groups, effects| groups.join(group, request, to, now(), effects));
    }

    /// A member wants its assignment; the answer comes as for a join.
    pub fn sync_group(&self, group: &str, request: SyncRequest, to: ReplyTo) {
        self.with_groups(group, |groups, effects| groups.sync(group, request, to, now(), effects));
    }

    /// A member is alive.
    ///
    /// # Errors
    /// See [`GroupCoordinator::heartbeat`].
    pub fn heartbeat(
        &self,
        group: &str,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        self.with_groups(group, |groups, _| groups.heartbeat(group, member, instance, generation, now()))
    }

    /// What is to be matched before [`Self::consumer_heartbeat`] does what it says, which takes no more over than what is known by then.
    pub fn unmatched(&self, group: &str, request: &ConsumerHeartbeat) -> Option<Matching> {
        let unmatched = self.groups().state.lock().coordinator.unmatched(group, request);
        if unmatched.is_empty() { None } else { self.groups().expressions.matching(&unmatched) }
    }

    /// A member of the new protocol is alive, joins or goes.
    pub fn consumer_heartbeat(
        &self,
        group: &str,
        request: &ConsumerHeartbeat,
        sight: Sight<'_>,
        to: ReplyTo,
    ) -> GroupTold {
        self.told_by_groups(group, to, |groups, effects| {
            Heard::Heartbeat(groups.consumer_heartbeat(group, request, sight, now(), effects))
        })
    }

    /// A member of a share group is alive, joins or goes.
    pub fn share_heartbeat(&self, group: &str, request: &ShareHeartbeat, sight: Sight<'_>, to: ReplyTo) -> GroupTold {
        self.told_by_groups(group, to, |groups, effects| {
            Heard::Heartbeat(groups.share_heartbeat(group, request, sight, now(), effects))
        })
    }

    /// A member of a streams group is alive, joins or goes.
    pub fn streams_heartbeat(&self, group: &str, request: &StreamsHeartbeat, to: ReplyTo) -> GroupTold {
        self.told_by_groups(group, to, |groups, effects| {
            Heard::Streams(groups.streams_heartbeat(group, request, now(), effects))
        })
    }

    /// Members of a share group; `None`: there is no such group.
    pub fn share_group_members(&self, group: &str) -> Option<usize> {
        self.groups().state.lock().coordinator.share_members(group)
    }

    /// Makes a share group without members, if there is no group of that name.
    ///
    /// # Errors
    /// `GroupNotFound` when there is one of another kind.
    pub fn make_share_group(&self, group: &str) -> Result<(), GroupError> {
        self.with_groups(group, |groups, effects| groups.make_share_group(group, effects))
    }

    /// Members go.
    pub fn leave_group(&self, group: &str, members: &[LeaveMember], to: ReplyTo) -> GroupTold {
        self.told_by_groups(group, to, |groups, effects| Heard::Left(groups.leave(group, members, now(), effects)))
    }

    /// Deletes a group, durably. On the controller's thread.
    ///
    /// # Errors
    /// `GroupNotFound`, `NonEmptyGroup`; `None` inside when the journal does not take it.
    pub fn delete_group(&self, group: &str) -> Result<(), Option<GroupError>> {
        self.delete_groups(&[group]).pop().unwrap_or(Ok(()))
    }

    /// Deletes groups, durably, each for itself, many of them with one commit; an outcome for each. What a group had done with records goes with it;
    /// its settings outlive it, as in Kafka. On the controller's thread.
    pub fn delete_groups(&self, groups: &[&str]) -> Vec<Result<(), Option<GroupError>>> {
        let mut outcomes = Vec::with_capacity(groups.len());
        for piece in groups.chunks(TOGETHER_MAX) {
            let begun: Vec<_> = piece.iter().map(|group| self.begin_group_deletion(group)).collect();
            let deleted: Vec<Result<(), Option<GroupError>>> =
                begun.into_iter().map(|begun| durable(&begun?).map_err(|_| None)).collect();
            let gone: Vec<&str> =
                piece.iter().zip(&deleted).filter(|(_, deleted)| deleted.is_ok()).map(|(group, _)| *group).collect();
            let mut dropped = self.drop_subscriptions_of_groups(&gone).into_iter();
            outcomes.extend(
                deleted
                    .into_iter()
                    .map(|deleted| deleted.and_then(|()| dropped.next().unwrap_or(Ok(())).map_err(|_| None))),
            );
        }
        outcomes
    }

    /// A group goes, durably when what is returned says so.
    fn begin_group_deletion(&self, group: &str) -> Result<Receiver<Result<(), AppendError>>, Option<GroupError>> {
        let mut state = self.groups().state.lock();
        let mut keys = state.coordinator.delete(group)?;
        keys.extend(state.withdraw(|of, _| of == group));
        let items = keys.into_iter().map(|key| AppendItem::State { key, value: None }).collect();
        Ok(state.append_blocking(self, items).1)
    }
}
