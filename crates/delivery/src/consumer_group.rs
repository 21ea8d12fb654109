//! One consumer group of the new protocol (KIP-848): the coordinator decides who reads what, and members are led there by
//! their heartbeats.
//!
//! * The **group epoch** rises when a subscription, the set of members or a topic changes.
//! * A **target** is computed for an epoch: what each member is to have in the end.
//! * The **member epoch** is the target's once the member has given up what is not its own any more.
//!
//! A partition has one holder from the moment a member may read it until that member has said that it does not any more, or is
//! out of the group. Classic members can be among the members: `crates/delivery/src/classic_members.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use types::TopicId;

use crate::GroupError;
use crate::assignors::{Assignor, Subscriber, Targets, assign};
use crate::consumer_topics::Resolved;
use crate::coordinator::CoordinatorSettings;
use crate::group::Effect;
use crate::reconcile::{MemberState, Step};
use crate::sight::{Sight, Views, targeted_hash};
use crate::timers::{MemberTimers, Timers};
use crate::topology::{MatchState, Owned, Target, Topics, target_hash};
use crate::weight;

/// A member that waits is to be heard so many times as often,
const WAITING_SHARE: u64 = 10;
/// but all members of a group, if all of them wait, no more often than every so many ms.
const WAITING_GAP_MS: u64 = 5;
/// A static member that is away and comes back.
pub(crate) const AWAY: i32 = -2;
/// A member that goes for good.
const GONE: i32 = -1;

/// What a member that speaks the classic protocol has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicSide {
    /// Milliseconds.
    pub session_timeout: u64,
    /// In order of preference, with the member's metadata.
    pub protocols: Vec<(String, Bytes)>,
}

/// A member of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerMember {
    /// Its own choice, or the coordinator's for the first version of the protocol.
    pub id: String,
    /// Of the target it has got to; −2: a static member that is away.
    pub epoch: i32,
    /// The one before: the answer with the newer one may have got lost.
    pub previous_epoch: i32,
    /// On its way to the target.
    pub state: MemberState,
    /// Of a static member.
    pub instance: Option<String>,
    /// Where it is.
    pub rack: Option<String>,
    /// As the client says.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// Who is at the other end of its connection; empty: somebody without a login. `None`: a record of an earlier release does not say.
    pub user: Option<String>,
    /// Milliseconds that it has for giving partitions up.
    pub rebalance_timeout: u64,
    /// Topics that it names. Copies of a member share them, as they do what it has: each heartbeat compares a member with what it was.
    pub topics: Arc<BTreeSet<String>>,
    /// Topics that it describes.
    pub regex: Option<String>,
    /// Of all these, those that are there and that it may not see. Not kept: it is known again with its next heartbeat.
    pub hidden: Arc<BTreeSet<String>>,
    /// The assignor that it asks for.
    pub assignor: Option<String>,
    /// When it speaks the classic protocol.
    pub classic: Option<ClassicSide>,
    /// What it may read.
    pub assigned: Arc<Owned>,
    /// What it is to give up and still holds.
    pub revoking: Arc<Owned>,
}

impl ConsumerMember {
    pub(crate) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            epoch: 0,
            previous_epoch: 0,
            state: MemberState::Stable,
            instance: None,
            rack: None,
            client_id: String::new(),
            host: String::new(),
            user: None,
            rebalance_timeout: 0,
            topics: Arc::default(),
            regex: None,
            hidden: Arc::default(),
            assignor: None,
            classic: None,
            assigned: Arc::default(),
            revoking: Arc::default(),
        }
    }

    pub(crate) fn expression(&self) -> Option<&str> {
        self.regex.as_deref().filter(|regex| !regex.is_empty())
    }

    pub(crate) fn reconciled(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// Since when the member has this partition.
    fn held_since(&self, topic: TopicId, partition: u32) -> Option<i32> {
        let find = |owned: &Owned| owned.get(&topic).and_then(|partitions| partitions.get(&partition)).copied();
        find(&self.assigned).or_else(|| find(&self.revoking))
    }
}

/// A heartbeat as it came; what did not change since the last one is `None`.
#[derive(Clone, Debug, Default)]
pub struct ConsumerHeartbeat {
    /// May be empty in the first version of the protocol.
    pub member_id: String,
    /// 0 joins, −1 leaves, −2 leaves for a while.
    pub epoch: i32,
    /// Of a static member.
    pub instance: Option<String>,
    /// Where the member is.
    pub rack: Option<String>,
    /// Milliseconds.
    pub rebalance_timeout: Option<u64>,
    /// Names of topics.
    pub topics: Option<Vec<String>>,
    /// An expression that topics match.
    pub regex: Option<String>,
    /// By name.
    pub assignor: Option<String>,
    /// What the member has.
    pub owned: Option<Vec<(TopicId, Vec<u32>)>>,
    /// As the client says.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// Who is at the other end of its connection; empty: somebody without a login.
    pub user: String,
    /// The id that a new member without one gets.
    pub fresh_id: String,
}

/// What a member is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// Its id.
    pub member_id: String,
    /// Its epoch.
    pub epoch: i32,
    /// Milliseconds to the next heartbeat: the group's interval, or less for a member that waits; 0 for one that leaves.
    pub interval: u64,
    /// What it may read; `None`: as before.
    pub assignment: Option<Target>,
}

/// Times of one group, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTimes {
    /// A member that is silent for so long is out.
    pub session_timeout: u64,
    /// How often members are to be heard.
    pub heartbeat_interval: u64,
    /// Targets are not computed more often.
    pub assignment_interval: u64,
}

/// What a request meets.
pub(crate) struct Surroundings<'a> {
    pub now: u64,
    pub topics: &'a dyn Topics,
    pub times: GroupTimes,
    pub settings: &'a CoordinatorSettings,
    /// Of him who asks.
    pub sight: Sight<'a>,
}

/// Where a consumer group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerGroupState {
    /// No members; perhaps offsets.
    Empty,
    /// A new target is to be computed.
    Assigning,
    /// Members are on their way to the target.
    Reconciling,
    /// All members have what they are to have.
    Stable,
}

impl ConsumerGroupState {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        }
    }
}

/// A consumer group.
#[derive(Clone, Debug)]
pub struct ConsumerGroup {
    pub(crate) name: String,
    pub(crate) epoch: i32,
    pub(crate) assignment_epoch: i32,
    /// When the target was computed; 0 never.
    pub(crate) assigned_at: u64,
    /// Stands for the topics that targets have, as they were when the epoch last rose or the target was computed.
    pub(crate) topics_hash: u64,
    pub(crate) members: BTreeMap<String, ConsumerMember>,
    pub(crate) instances: HashMap<String, String>,
    pub(crate) targets: Targets,
    /// Who holds what: from when a member may read it until it has given it up.
    holders: HashMap<(TopicId, u32), Arc<str>>,
    timers: MemberTimers,
    /// State of the topics that was looked at last.
    pub(crate) seen: Option<u64>,
    pub(crate) resolved: HashMap<String, Resolved>,
    pub(crate) views: Views,
    pub(crate) emptied_at: u64,
}

impl ConsumerGroup {
    /// Bytes of memory that it takes, about, without what all groups have.
    pub(crate) fn weight(&self) -> usize {
        let resolved: usize =
            self.resolved.values().map(|resolved| weight::subscription(resolved.topics().len(), None)).sum();
        resolved + weight::consumers(self.members.values(), &self.targets, self.holders.len())
    }

    pub(crate) fn new(name: &str, now: u64) -> Self {
        Self {
            name: name.to_owned(),
            // Never 0: that is what joining members say.
            epoch: 1,
            assignment_epoch: 0,
            assigned_at: 0,
            topics_hash: 0,
            members: BTreeMap::new(),
            instances: HashMap::new(),
            targets: Targets::new(),
            holders: HashMap::new(),
            timers: MemberTimers::default(),
            seen: None,
            resolved: HashMap::new(),
            views: Views::default(),
            emptied_at: now,
        }
    }

    pub(crate) fn state(&self) -> ConsumerGroupState {
        if self.members.is_empty() {
            ConsumerGroupState::Empty
        } else if self.epoch > self.assignment_epoch {
            ConsumerGroupState::Assigning
        } else if self.members.values().all(|member| member.reconciled(self.assignment_epoch)) {
            ConsumerGroupState::Stable
        } else {
            ConsumerGroupState::Reconciling
        }
    }

    /// The assignor that most members ask for.
    pub(crate) fn assignor(&self, settings: &CoordinatorSettings) -> Assignor {
        let mut votes: BTreeMap<Assignor, usize> = BTreeMap::new();
        for assignor in self.members.values().filter_map(|member| Assignor::find(member.assignor.as_deref()?)) {
            *votes.entry(assignor).or_default() += 1;
        }
        let most = votes.into_iter().max_by_key(|(_, count)| *count).map(|(assignor, _)| assignor);
        most.or(settings.consumer_assignors.first().copied()).unwrap_or(Assignor::Uniform)
    }

    /// Puts a member in, or in the place of what it was.
    pub(crate) fn put(&mut self, member: ConsumerMember) {
        let known = self.members.get(&member.id);
        if known.is_none_or(|known| known.assigned != member.assigned || known.revoking != member.revoking) {
            self.release(&member.id);
            self.hold(&member);
        }
        if let Some(instance) = &member.instance {
            self.instances.insert(instance.clone(), member.id.clone());
        }
        self.members.insert(member.id.clone(), member);
    }

    fn hold(&mut self, member: &ConsumerMember) {
        let id: Arc<str> = member.id.as_str().into();
        self.holders
            .reserve(member.assigned.values().chain(member.revoking.values()).map(|partitions| partitions.len()).sum());
        for (topic, partitions) in member.assigned.iter().chain(&*member.revoking) {
            for partition in partitions.keys() {
                let before = self.holders.insert((*topic, *partition), Arc::clone(&id));
                debug_assert!(before.is_none(), "a partition has one holder");
            }
        }
    }

    fn release(&mut self, id: &str) {
        let Some(member) = self.members.get(id) else { return };
        for (topic, partitions) in member.assigned.iter().chain(&*member.revoking) {
            for partition in partitions.keys() {
                if self.holders.get(&(*topic, *partition)).is_some_and(|holder| **holder == *id) {
                    self.holders.remove(&(*topic, *partition));
                }
            }
        }
    }

    /// Takes a member out, with all that is kept of it.
    fn take(&mut self, id: &str) -> Option<ConsumerMember> {
        self.release(id);
        let member = self.members.remove(id)?;
        if let Some(instance) = &member.instance
            && self.instances.get(instance).is_some_and(|holder| holder == id)
        {
            self.instances.remove(instance);
        }
        self.timers.remove(id);
        self.targets.remove(id);
        self.views.forget(id);
        Some(member)
    }

    /// Members as durable records; the group's own comes last, so that a beginning of them is never taken for the whole.
    fn persist_member<W>(&self, id: &str, out: &mut Vec<Effect<W>>) {
        out.push(Effect::Persist(self.member_key(id), self.encode_member(id)));
    }

    pub(crate) fn persist_all<W>(&self, out: &mut Vec<Effect<W>>) {
        self.members.keys().for_each(|id| self.persist_member(id, out));
        self.persist_group(out);
    }

    pub(crate) fn persist_group<W>(&self, out: &mut Vec<Effect<W>>) {
        out.push(Effect::Persist(self.group_key(), Some(self.encode())));
    }

    /// Sum over the targets of all members, as the group's record keeps it.
    pub(crate) fn targets_hash(&self) -> u64 {
        self.targets.iter().fold(0, |sum, (id, target)| sum ^ target_hash(id, target))
    }

    /// After a restart: members have a whole session from now. Targets that are not those of the group's record were being written
    /// when the broker stopped, and are computed again.
    pub(crate) fn resume(&mut self, now: u64, session_timeout: u64, recorded: Option<u64>, topics: &dyn Topics) {
        if recorded != Some(self.targets_hash()) || self.targets.keys().any(|id| !self.members.contains_key(id)) {
            self.topics_hash = !self.topics_hash;
        }
        self.follow_expressions(topics);
        self.views
            .resume(self.members.values().filter(|member| member.classic.is_none()).map(|member| member.id.clone()));
        for member in self.members.values() {
            let session = member.classic.as_ref().map_or(session_timeout, |classic| classic.session_timeout);
            let revokes = member.state == MemberState::Unrevoked && member.classic.is_none();
            let rebalance = revokes.then_some((now + member.rebalance_timeout, member.epoch));
            self.timers.set(&member.id, |timers| {
                *timers = Timers { session: Some(now + session), rebalance, ..Timers::default() }
            });
        }
    }

    // Timers.

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.timers.next_deadline()
    }

    pub(crate) fn set_timers(&mut self, id: &str, set: impl FnOnce(&mut Timers)) {
        self.timers.set(id, set);
    }

    /// Members whose time is over at `now`.
    pub(crate) fn expired(&mut self, now: u64) -> Vec<String> {
        self.timers.expired(now, |id| self.members.get(id).map(|member| member.epoch))
    }

    // Members.

    /// Checks an epoch against the member's.
    fn check_epoch(
        member: &ConsumerMember,
        epoch: i32,
        owned: Option<&[(TopicId, Vec<u32>)]>,
    ) -> Result<(), GroupError> {
        if epoch == 0 || epoch == member.epoch {
            return Ok(());
        }
        // The answer with the newer epoch got lost, and the member has nothing that it does not have by now.
        let inside = |owned: &[(TopicId, Vec<u32>)]| {
            owned.iter().all(|(topic, partitions)| {
                member
                    .assigned
                    .get(topic)
                    .is_some_and(|assigned| partitions.iter().all(|partition| assigned.contains_key(partition)))
            })
        };
        if epoch < member.epoch && epoch == member.previous_epoch && owned.is_some_and(inside) {
            return Ok(());
        }
        Err(GroupError::FencedEpoch)
    }

    /// The member that a request names, and whether it takes the place of another.
    fn find_for_heartbeat(
        &self,
        request: &ConsumerHeartbeat,
        id: &str,
    ) -> Result<(ConsumerMember, Option<String>), GroupError> {
        let joins = request.epoch == 0;
        let owned = request.owned.as_deref();
        let Some(instance) = &request.instance else {
            return match self.members.get(id) {
                Some(member) => Self::check_epoch(member, request.epoch, owned).map(|()| (member.clone(), None)),
                None if joins => Ok((ConsumerMember::new(id), None)),
                None => Err(GroupError::UnknownMember),
            };
        };
        let existing = self.instances.get(instance).and_then(|id| self.members.get(id));
        match existing {
            None if joins => Ok((self.members.get(id).cloned().unwrap_or_else(|| ConsumerMember::new(id)), None)),
            None => Err(GroupError::UnknownMember),
            Some(existing) if joins => {
                if existing.classic.is_none() && existing.epoch != AWAY {
                    return Err(GroupError::UnreleasedInstance);
                }
                Ok((Self::successor(existing, id), Some(existing.id.clone())))
            }
            Some(existing) if existing.id != id => Err(GroupError::FencedInstance),
            Some(existing) => Self::check_epoch(existing, request.epoch, owned).map(|()| (existing.clone(), None)),
        }
    }

    /// A static member under its new id.
    pub(crate) fn successor(existing: &ConsumerMember, id: &str) -> ConsumerMember {
        ConsumerMember { id: id.to_owned(), epoch: 0, previous_epoch: 0, ..existing.clone() }
    }

    /// Puts a static member's successor in its place: the target goes with it.
    pub(crate) fn replace<W>(&mut self, existing: &str, successor: &ConsumerMember, out: &mut Vec<Effect<W>>) {
        let target = self.targets.get(existing).cloned();
        self.take(existing);
        out.push(Effect::Persist(self.member_key(existing), None));
        self.put(successor.clone());
        self.targets.extend(target.map(|target| (successor.id.clone(), target)));
        self.persist_member(&successor.id, out);
        self.persist_group(out);
    }

    /// A heartbeat of the new protocol that is not a farewell. Nothing has changed when it is refused.
    pub(crate) fn heartbeat<W>(
        &mut self,
        request: &ConsumerHeartbeat,
        around: &Surroundings<'_>,
        out: &mut Vec<Effect<W>>,
    ) -> Result<HeartbeatAnswer, GroupError> {
        let id = if request.member_id.is_empty() { &request.fresh_id } else { &request.member_id };
        if self.members.len() >= around.settings.consumer_size_max && !self.members.contains_key(&request.member_id) {
            return Err(GroupError::GroupFull);
        }
        let (before, replaces) = self.find_for_heartbeat(request, id)?;
        let mut updated = before.clone();
        updated.instance = request.instance.clone().or(updated.instance);
        updated.rack = request.rack.clone().or(updated.rack);
        updated.rebalance_timeout = request.rebalance_timeout.unwrap_or(updated.rebalance_timeout);
        updated.assignor = request.assignor.clone().or(updated.assignor);
        updated.topics =
            request.topics.as_ref().map_or(updated.topics, |topics| Arc::new(topics.iter().cloned().collect()));
        updated.regex = request.regex.clone().or(updated.regex);
        updated.client_id.clone_from(&request.client_id);
        updated.host.clone_from(&request.host);
        updated.user = Some(request.user.clone());
        updated.classic = None;
        if let Some(expression) = updated.expression()
            && updated.regex != before.regex
        {
            match self.match_state(expression, around.topics) {
                MatchState::Invalid => return Err(GroupError::InvalidRegex),
                MatchState::NoMemory => return Err(GroupError::GroupFull),
                MatchState::Unknown | MatchState::Known => {}
            }
        }
        if let Some(existing) = replaces {
            self.replace(&existing, &before, out);
        }
        let (updated, _) = self.lead(before.clone(), updated, request.owned.as_deref(), around, out);
        self.set_timers(&updated.id, |timers| {
            timers.session = Some(around.now + around.times.session_timeout);
            (timers.join, timers.sync) = (None, None);
        });
        let whole = request.rebalance_timeout.is_some()
            && (request.topics.is_some() || request.regex.is_some())
            && request.owned.is_some();
        let told = request.epoch == 0 || whole || before.assigned != updated.assigned;
        Ok(HeartbeatAnswer {
            member_id: updated.id.clone(),
            epoch: updated.epoch,
            interval: self.next_heartbeat(&updated, around.times.heartbeat_interval),
            assignment: told.then(|| crate::topology::without_epochs(&updated.assigned)),
        })
    }

    /// In how many ms a member is to be heard again. One that waits for a target, or for what others hold, comes back sooner: what becomes
    /// free meanwhile is read by nobody until then.
    fn next_heartbeat(&self, member: &ConsumerMember, interval: u64) -> u64 {
        let waits = member.state == MemberState::Unreleased || !self.targets.contains_key(&member.id);
        let sooner = (interval / WAITING_SHARE).max(self.members.len() as u64 * WAITING_GAP_MS).max(1);
        if waits { interval.min(sooner) } else { interval }
    }

    /// Takes a member's word over, computes what follows for the group, and takes the member a step towards its target. Also tells
    /// whether its subscription changed, or what it may see of it.
    pub(crate) fn lead<W>(
        &mut self,
        mut before: ConsumerMember,
        mut updated: ConsumerMember,
        owned: Option<&[(TopicId, Vec<u32>)]>,
        around: &Surroundings<'_>,
        out: &mut Vec<Effect<W>>,
    ) -> (ConsumerMember, bool) {
        self.look(around.topics, Some(&around.sight));
        if let Some(known) = self.members.get(&before.id) {
            before.hidden.clone_from(&known.hidden);
        }
        let sees_others = self.hide(&before, &mut updated, around);
        let resubscribed =
            before.topics != updated.topics || before.expression() != updated.expression() || sees_others;
        let known = self.members.get(&updated.id).is_some_and(|member| *member == updated);
        let id = updated.id.clone();
        self.put(updated);
        let epochs = (self.epoch, self.assignment_epoch);
        self.update_epoch(resubscribed, around);
        let mut changed: BTreeSet<String> = self.update_target(around);
        let member = self.step(&id, resubscribed, owned, around);
        if !known || member != before {
            changed.insert(id);
        }
        for id in &changed {
            self.persist_member(id, out);
        }
        if epochs != (self.epoch, self.assignment_epoch) {
            self.persist_group(out);
        }
        (member, resubscribed)
    }

    /// Lets the epoch rise when a subscription or a topic has changed.
    fn update_epoch(&mut self, resubscribed: bool, around: &Surroundings<'_>) {
        let version = around.topics.version();
        if !resubscribed && self.seen == Some(version) {
            return;
        }
        self.look(around.topics, Some(&around.sight));
        if resubscribed {
            self.drop_unused();
        }
        let (news, hash) = (self.views.take_news(), targeted_hash(&self.targets, around.topics));
        if resubscribed || news || hash != self.topics_hash {
            self.epoch += 1;
            self.topics_hash = hash;
        }
        self.seen = Some(version);
    }

    /// Computes a target for the group's epoch, if it has none and it is time; the members whose target changed.
    fn update_target(&mut self, around: &Surroundings<'_>) -> BTreeSet<String> {
        let early = self.assigned_at > 0 && around.now < self.assigned_at + around.times.assignment_interval;
        if self.assignment_epoch >= self.epoch || early {
            return BTreeSet::new();
        }
        let mut partitions = BTreeMap::new();
        let mut subscribers = Vec::with_capacity(self.members.len());
        for member in self.members.values() {
            let reads = self.reads(member, around.topics);
            let topics = reads.keys().copied().collect();
            partitions.extend(reads);
            subscribers.push(Subscriber {
                id: member.id.clone(),
                instance: member.instance.clone(),
                topics,
                has: Owned::clone(&member.assigned),
            });
        }
        let targets = assign(self.assignor(around.settings), &subscribers, &partitions, &self.targets);
        let changed = targets
            .iter()
            .filter(|(id, target)| self.targets.get(*id) != Some(*target))
            .map(|(id, _)| id.clone())
            .collect();
        self.targets = targets;
        self.assignment_epoch = self.epoch;
        self.assigned_at = around.now;
        self.topics_hash = targeted_hash(&self.targets, around.topics);
        self.views.note_assigned();
        changed
    }

    /// Takes a member a step towards its target.
    fn step(
        &mut self,
        id: &str,
        resubscribed: bool,
        owned: Option<&[(TopicId, Vec<u32>)]>,
        around: &Surroundings<'_>,
    ) -> ConsumerMember {
        let Some(member) = self.members.get(id) else { return ConsumerMember::new(id) };
        if !resubscribed && member.reconciled(self.assignment_epoch) {
            return member.clone();
        }
        let nothing = Target::new();
        let reads: BTreeSet<TopicId> = self.reads(member, around.topics).into_keys().collect();
        let step = Step {
            epoch: self.assignment_epoch,
            target: self.targets.get(id).unwrap_or(&nothing),
            reads: &reads,
            owned,
            resubscribed,
            free: &|topic, partition| !self.holders.contains_key(&(topic, partition)),
        };
        let next = step.take(member);
        if next == *member {
            return next;
        }
        if next.classic.is_none() {
            let rebalance =
                (next.state == MemberState::Unrevoked).then_some((around.now + next.rebalance_timeout, next.epoch));
            self.set_timers(id, |timers| timers.rebalance = rebalance);
        }
        self.put(next.clone());
        next
    }

    /// Does a member wait for partitions that are not free yet?
    pub(crate) fn waits_for_others(&self, member: &ConsumerMember) -> bool {
        let target = self.targets.get(&member.id).into_iter().flatten();
        let mut places = target.flat_map(|(topic, partitions)| partitions.iter().map(|partition| (*topic, *partition)));
        let has = |(topic, partition): &(TopicId, u32)| {
            member.assigned.get(topic).is_some_and(|has| has.contains_key(partition))
        };
        member.state == MemberState::Unreleased && places.any(|place| !has(&place) && self.holders.contains_key(&place))
    }

    /// The member that says farewell.
    pub(crate) fn find_for_leave(&self, request: &ConsumerHeartbeat) -> Result<&ConsumerMember, GroupError> {
        let Some(instance) = &request.instance else {
            return self.members.get(&request.member_id).ok_or(GroupError::UnknownMember);
        };
        let member =
            self.instances.get(instance).and_then(|id| self.members.get(id)).ok_or(GroupError::UnknownMember)?;
        if member.id == request.member_id { Ok(member) } else { Err(GroupError::FencedInstance) }
    }

    /// A static member goes for a while: what it has is kept for it.
    pub(crate) fn go_away<W>(&mut self, id: &str, out: &mut Vec<Effect<W>>) {
        let Some(member) = self.members.get(id) else { return };
        let mut away = member.clone();
        away.epoch = AWAY;
        away.revoking = Arc::default();
        for partitions in Arc::make_mut(&mut away.assigned).values_mut() {
            Arc::make_mut(partitions).values_mut().for_each(|epoch| *epoch = 0);
        }
        self.put(away);
        self.persist_member(id, out);
    }

    /// Members go for good: the others get what they had, by a new target.
    pub(crate) fn remove<W>(&mut self, ids: &[String], now: u64, topics: &dyn Topics, out: &mut Vec<Effect<W>>) {
        let mut any = false;
        for id in ids {
            if self.take(id).is_some() {
                out.push(Effect::Persist(self.member_key(id), None));
                any = true;
            }
        }
        if any {
            self.look(topics, None);
            self.drop_unused();
            self.views.take_news();
            self.topics_hash = targeted_hash(&self.targets, topics);
            self.epoch += 1;
            if self.members.is_empty() {
                self.emptied_at = now;
            }
            self.persist_group(out);
        }
    }

    /// Does a request say farewell?
    pub(crate) fn is_farewell(epoch: i32) -> bool {
        matches!(epoch, GONE | AWAY)
    }

    // Offsets.

    /// May this member commit, and under which condition on each partition?
    pub(crate) fn check_commit(&self, member: &crate::Committer<'_>) -> Result<Option<&ConsumerMember>, GroupError> {
        if member.generation < 0 && self.members.is_empty() {
            return Ok(None);
        }
        if member.transactional && member.generation == -1 && member.member_id.is_empty() && member.instance.is_none() {
            return Ok(None);
        }
        let known = self.members.get(member.member_id).ok_or(GroupError::UnknownMember)?;
        if !member.transactional && known.classic.is_none() && !member.knows_epochs {
            return Err(GroupError::UnsupportedVersion);
        }
        if member.generation == known.epoch {
            return Ok(None);
        }
        if member.generation > known.epoch { Err(known.stale()) } else { Ok(Some(known)) }
    }

    /// May offsets be read under this member epoch?
    pub(crate) fn check_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        if member_id.is_none() && epoch < 0 {
            return Ok(());
        }
        let known = member_id.and_then(|id| self.members.get(id)).ok_or(GroupError::UnknownMember)?;
        if known.epoch == epoch { Ok(()) } else { Err(known.stale()) }
    }

    /// Does a member read this topic?
    pub(crate) fn reads_topic(&self, topic: &str) -> bool {
        self.members.values().any(|member| member.topics.contains(topic))
            || self.resolved.values().any(|resolved| resolved.topics().contains(topic))
    }
}

impl ConsumerMember {
    /// How an epoch that is not the member's is refused.
    fn stale(&self) -> GroupError {
        if self.classic.is_some() { GroupError::IllegalGeneration } else { GroupError::StaleEpoch }
    }

    /// A commit of an older epoch holds for what the member has had since then.
    pub(crate) fn check_older_commit(
        &self,
        epoch: i32,
        topic: Option<TopicId>,
        partition: u32,
    ) -> Result<(), GroupError> {
        match topic.and_then(|topic| self.held_since(topic, partition)) {
            Some(since) if epoch >= since => Ok(()),
            _ => Err(self.stale()),
        }
    }
}
