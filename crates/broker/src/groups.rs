//! Consumer groups: the coordinator of `delivery` behind locks, with a thread for its deadlines. Answers go to
//! mailboxes; what must be durable goes to journal 0.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use delivery::{Commit, CommittedOffset, Committer, CoordinatorSettings, Effect, GroupCoordinator, GroupError, GroupSummary, JoinRequest, LeaveMember, SyncRequest};
use journal::{Append, AppendItem, ReplyTo};
use parking_lot::{Condvar, Mutex};
use types::{ConnectionId, ShardId};

use crate::{Broker, Reply, Settings};

/// Group state without anybody waiting is appended under this shard number, which has no sink.
const NOBODY: ReplyTo = ReplyTo { shard: ShardId(61), connection: ConnectionId(u64::MAX), token: 0 };
/// How often offsets are looked at for expiry, in ms.
const EXPIRY_INTERVAL: u64 = 600_000;
/// How often shared subscriptions are looked at for locks that have run out, in ms.
const LOCKS_INTERVAL: u64 = 500;

/// All groups of the node.
pub struct Groups {
    coordinator: Mutex<GroupCoordinator<ReplyTo>>,
    woken: Mutex<bool>,
    wakes: Condvar,
    closed: std::sync::atomic::AtomicBool,
}

impl Groups {
    pub(crate) fn new(settings: &Settings) -> Self {
        let int = |name| settings.int(name).max(0) as u64;
        let coordinator = GroupCoordinator::new(CoordinatorSettings {
            initial_delay: int("group.initial.rebalance.delay.ms"),
            session_timeout: int("group.min.session.timeout.ms")..=int("group.max.session.timeout.ms"),
            size_max: int("group.max.size") as usize,
            metadata_bytes_max: int("offset.metadata.max.bytes") as usize,
            offsets_retention: int("offsets.retention.minutes") * 60_000,
        });
        Self { coordinator: Mutex::new(coordinator), woken: Mutex::new(false), wakes: Condvar::new(), closed: false.into() }
    }

    pub(crate) fn restore(&self, key: &[u8], value: &[u8]) {
        if !self.coordinator.lock().restore(key, value, now()) {
            tracing::warn!(key = %key.escape_ascii(), "state record of an unknown kind ignored");
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, std::sync::atomic::Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        *self.woken.lock() = true;
        self.wakes.notify_one();
    }

    /// The thread that keeps the deadlines.
    pub(crate) fn run(&self, broker: &Arc<Broker>) {
        let mut expiry_at = now() + EXPIRY_INTERVAL;
        while !self.closed.load(std::sync::atomic::Ordering::SeqCst) {
            let mut effects = Vec::new();
            let next = {
                let mut coordinator = self.coordinator.lock();
                coordinator.handle_timeouts(now(), &mut effects);
                coordinator.next_deadline()
            };
            broker.perform(effects);
            broker.expire_subscriptions();
            if now() >= expiry_at {
                expiry_at = now() + EXPIRY_INTERVAL;
                let keys = self.coordinator.lock().expire(broker.now_ms().max(0) as u64);
                let records = keys.into_iter().map(|key| (key, None)).collect::<Vec<_>>();
                if !records.is_empty()
                    && let Err(error) = broker.commit_state(records)
                {
                    tracing::warn!(%error, "expired offsets stay for now");
                }
            }
            let longest = if broker.subscriptions().is_empty() { EXPIRY_INTERVAL } else { LOCKS_INTERVAL };
            let wait = next.map_or(longest, |next| next.saturating_sub(now()).max(1));
            let mut woken = self.woken.lock();
            if !*woken {
                self.wakes.wait_for(&mut woken, Duration::from_millis(wait.min(longest)));
            }
            *woken = false;
        }
    }

    /// Names of all groups.
    pub fn names(&self) -> Vec<String> {
        self.coordinator.lock().names()
    }

    /// One group.
    pub fn describe(&self, name: &str) -> Option<GroupSummary<ReplyTo>> {
        self.coordinator.lock().describe(name)
    }

    /// One committed offset.
    pub fn offset(&self, group: &str, topic: &str, partition: u32) -> Option<CommittedOffset> {
        self.coordinator.lock().offset(group, topic, partition)
    }

    /// All committed offsets.
    pub fn offsets(&self, group: &str) -> Vec<(String, u32, CommittedOffset)> {
        self.coordinator.lock().offsets(group)
    }

    /// May these offsets be committed? See [`GroupCoordinator::prepare_commit`].
    ///
    /// # Errors
    /// When none may.
    #[expect(clippy::type_complexity, reason = "a record is a key and a value")]
    pub fn prepare_commit(
        &self,
        group: &str,
        member: Committer<'_>,
        commits: &[Commit],
    ) -> Result<Vec<Result<(Bytes, Bytes), GroupError>>, GroupError> {
        self.coordinator.lock().prepare_commit(group, member, commits, now())
    }

    /// Enters offsets that are durable.
    pub fn apply_commit(&self, group: &str, commits: Vec<Commit>) {
        let mut coordinator = self.coordinator.lock();
        commits.into_iter().for_each(|commit| coordinator.apply_commit(group, commit));
    }

    pub(crate) fn forget_topic(&self, topic: &str) -> Vec<Bytes> {
        self.coordinator.lock().forget_topic(topic)
    }
}

/// Milliseconds since 1970 by a clock that never goes back.
pub fn now() -> u64 {
    static START: std::sync::OnceLock<(std::time::Instant, u64)> = std::sync::OnceLock::new();
    let wall = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let (start, epoch) = START.get_or_init(|| (std::time::Instant::now(), wall()));
    epoch + start.elapsed().as_millis() as u64
}

impl Broker {
    /// For callers other than the groups' own thread, which may have to wait for an earlier deadline now.
    fn apply_group_effects(&self, effects: Vec<Effect<ReplyTo>>) {
        self.perform(effects);
        self.groups().wake();
    }

    fn perform(&self, effects: Vec<Effect<ReplyTo>>) {
        let mut items = Vec::new();
        for effect in effects {
            match effect {
                Effect::Answer(to, answer) => self.reply(to, Reply::Done(Box::new(answer))),
                Effect::Persist(key, value) => items.push(AppendItem::State { key, value }),
            }
        }
        if !items.is_empty() {
            // Lost only if the journal's queue is full; the members of that generation then join again after a
            // restart, as they do when a coordinator moves.
            let _ = self.journals()[0].append(Append { to: NOBODY, items, acknowledge: false });
        }
    }

    /// A member wants in; the answer comes as `Reply::Done` with a [`delivery::Answer`].
    pub fn join_group(&self, group: &str, request: JoinRequest, to: ReplyTo) {
        let mut effects = Vec::new();
        self.groups().coordinator.lock().join(group, request, to, now(), &mut effects);
        self.apply_group_effects(effects);
    }

    /// A member wants its assignment; the answer comes as for a join.
    pub fn sync_group(&self, group: &str, request: SyncRequest, to: ReplyTo) {
        let mut effects = Vec::new();
        self.groups().coordinator.lock().sync(group, request, to, now(), &mut effects);
        self.apply_group_effects(effects);
    }

    /// A member is alive.
    ///
    /// # Errors
    /// See [`GroupCoordinator::heartbeat`].
    pub fn heartbeat(&self, group: &str, member: &str, instance: Option<&str>, generation: i32) -> Result<(), GroupError> {
        self.groups().coordinator.lock().heartbeat(group, member, instance, generation, now())
    }

    /// Members go.
    ///
    /// # Errors
    /// When there is no such group.
    pub fn leave_group(&self, group: &str, members: &[LeaveMember]) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        let mut effects = Vec::new();
        let outcome = self.groups().coordinator.lock().leave(group, members, now(), &mut effects);
        self.apply_group_effects(effects);
        outcome
    }

    /// Deletes a group, durably. On the controller's thread.
    ///
    /// # Errors
    /// `GroupNotFound`, `NonEmptyGroup`; `None` inside when the journal does not take it.
    pub fn delete_group(&self, group: &str) -> Result<(), Option<GroupError>> {
        let keys = self.groups().coordinator.lock().delete(group)?;
        self.commit_state(keys.into_iter().map(|key| (key, None)).collect()).map_err(|_| None)
    }

    /// Deletes a committed offset, durably. On the controller's thread.
    ///
    /// # Errors
    /// `GroupNotFound`, `Subscribed`; `None` inside when the journal does not take it.
    pub fn delete_offset(&self, group: &str, topic: &str, partition: u32, subscribed: bool) -> Result<(), Option<GroupError>> {
        let key = self.groups().coordinator.lock().delete_offset(group, topic, partition, subscribed)?;
        self.commit_state(key.into_iter().map(|key| (key, None)).collect()).map_err(|_| None)
    }
}
