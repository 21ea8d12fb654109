//! One classic group: members, generations, rebalances. The rules are those of Apache Kafka's classic
//! protocol (KIP-394 two-step join, KIP-345 static members, KIP-814 skipped assignment).
//!
//! ```text
//! Empty ── join ──▶ PreparingRebalance ── all joined, or time over ──▶ CompletingRebalance
//!   ▲                 ▲        │ nobody left                               │ leader syncs
//!   └── last leaves ──┼────────┘            ┌──────────────────────────────┘
//!                     └── join, leave, expiry ── Stable ◀┘
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};

use crate::GroupError;

/// So many protocols are compared one by one.
const FEW: usize = 8;

/// Names of these protocols that all members know. Takes as long as all names are together: members may have a hundred thousand of them.
fn known_to_all<'a, W: 'a>(
    protocols: &'a [(String, Bytes)],
    members: impl Iterator<Item = &'a Member<W>>,
) -> HashSet<&'a str> {
    let mut known: HashSet<&str> = protocols.iter().map(|(name, _)| name.as_str()).collect();
    for member in members {
        let of_member = member.protocols.iter().map(|(name, _)| name.as_str());
        if member.protocols.len() <= FEW {
            known.retain(|name| of_member.clone().any(|other| other == *name));
        } else {
            known = of_member.filter(|name| known.contains(name)).collect();
        }
        if known.is_empty() {
            break;
        }
    }
    known
}

/// How long a rebalance that nobody joins takes at least.
const AWAY_MS_MIN: u64 = 1_000;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// No members; perhaps offsets.
    Empty,
    /// Waiting for members to join.
    PreparingRebalance,
    /// Waiting for the leader's assignment.
    CompletingRebalance,
    /// Everybody has an assignment.
    Stable,
}

impl GroupState {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// A member of a group.
#[derive(Clone, Debug)]
pub struct Member<W> {
    /// Given by the coordinator.
    pub id: String,
    /// Of a static member.
    pub instance: Option<String>,
    /// As the client says.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// Who is at the other end of its connection; empty: somebody without a login. `None`: a record of an earlier release does not say.
    pub user: Option<String>,
    /// Milliseconds.
    pub rebalance_timeout: u64,
    /// Milliseconds.
    pub session_timeout: u64,
    /// In order of preference, with the member's metadata.
    pub protocols: Vec<(String, Bytes)>,
    /// From the leader.
    pub assignment: Bytes,
    pub(crate) expires: u64,
    pub(crate) joining: Option<W>,
    pub(crate) syncing: Option<W>,
}

/// A wish to join.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// Empty at first.
    pub member_id: String,
    /// Of a static member.
    pub instance: Option<String>,
    /// As the client says.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// Who is at the other end of its connection; empty: somebody without a login.
    pub user: String,
    /// "consumer", "connect", …
    pub protocol_type: String,
    /// In order of preference.
    pub protocols: Vec<(String, Bytes)>,
    /// Milliseconds.
    pub session_timeout: u64,
    /// Milliseconds.
    pub rebalance_timeout: u64,
    /// The client understands `MemberIdRequired`.
    pub two_step: bool,
    /// The client understands a skipped assignment.
    pub may_skip: bool,
    /// The id that a new member gets.
    pub fresh_id: String,
}

/// The answer to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// `None`: fine.
    pub error: Option<GroupError>,
    /// −1 on error.
    pub generation: i32,
    /// Of the group.
    pub protocol_type: Option<String>,
    /// The one chosen.
    pub protocol: Option<String>,
    /// Its id.
    pub leader: String,
    /// The leader need not compute an assignment.
    pub skip_assignment: bool,
    /// Of the member that is answered.
    pub member_id: String,
    /// For the leader: id, instance, metadata.
    pub members: Vec<(String, Option<String>, Bytes)>,
}

/// Who waits for the answer to a request to join, and when it came; times in ms.
#[derive(Clone, Copy)]
pub(crate) struct Asked<W> {
    pub waiter: W,
    pub now: u64,
    /// How long the first rebalance of an empty group waits for more members.
    pub initial_delay: u64,
}

/// A member's wish for its assignment.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// Who.
    pub member_id: String,
    /// Of a static member.
    pub instance: Option<String>,
    /// As joined.
    pub generation: i32,
    /// When the client sends it.
    pub protocol_type: Option<String>,
    /// When the client sends it.
    pub protocol: Option<String>,
    /// From the leader.
    pub assignments: Vec<(String, Bytes)>,
}

/// The answer to a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// `None`: fine.
    pub error: Option<GroupError>,
    /// Of the group.
    pub protocol_type: Option<String>,
    /// The one chosen.
    pub protocol: Option<String>,
    /// The member's part.
    pub assignment: Bytes,
}

/// A late answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a join.
    Joined(Joined),
    /// To a sync.
    Synced(Synced),
}

/// What follows from an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<W> {
    /// Somebody gets an answer.
    Answer(W, Answer),
    /// A keyed record is to be made durable; `None` deletes.
    Persist(Bytes, Option<Bytes>),
}

impl Joined {
    /// A refusal.
    pub fn refused(error: GroupError, member_id: &str) -> Self {
        Self {
            error: Some(error),
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: String::new(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }
}

impl Synced {
    /// A refusal.
    pub fn refused(error: GroupError) -> Self {
        Self { error: Some(error), protocol_type: None, protocol: None, assignment: Bytes::new() }
    }
}

/// A group; `W` names whoever waits for an answer.
#[derive(Clone, Debug)]
pub struct Group<W> {
    pub(crate) name: String,
    pub(crate) state: GroupState,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: Option<String>,
    pub(crate) members: BTreeMap<String, Member<W>>,
    pub(crate) instances: HashMap<String, String>,
    /// Ids that were given out and not used yet, with the time they expire.
    pub(crate) pending: BTreeMap<String, u64>,
    /// End of the present phase of a rebalance.
    pub(crate) phase_ends: Option<u64>,
    /// In the first rebalance: how much longer it may be prolonged, and whether somebody joined since.
    pub(crate) initial: Option<(u64, bool)>,
    pub(crate) emptied_at: u64,
}

impl<W: Copy> Group<W> {
    pub(crate) fn new(name: &str, now: u64) -> Self {
        Self {
            name: name.to_owned(),
            state: GroupState::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: HashMap::new(),
            pending: BTreeMap::new(),
            phase_ends: None,
            initial: None,
            emptied_at: now,
        }
    }

    /// When something is to be done next without any input.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let waiting = |member: &&Member<W>| member.joining.is_none() && member.syncing.is_none();
        let sessions = self.members.values().filter(waiting).map(|member| member.expires);
        sessions.chain(self.pending.values().copied()).chain(self.phase_ends).min()
    }

    pub(crate) fn join(&mut self, request: JoinRequest, asked: Asked<W>, size_max: usize, out: &mut Vec<Effect<W>>) {
        match self.try_join(request, asked, size_max, out) {
            Ok(()) => {}
            Err((error, id)) => out.push(Effect::Answer(asked.waiter, Answer::Joined(Joined::refused(error, &id)))),
        }
    }

    fn try_join(
        &mut self,
        request: JoinRequest,
        asked: Asked<W>,
        size_max: usize,
        out: &mut Vec<Effect<W>>,
    ) -> Result<(), (GroupError, String)> {
        let id = request.member_id.clone();
        if !self.supports(&request) {
            return Err((GroupError::InconsistentProtocol, id));
        }
        if id.is_empty() {
            let replaced = request.instance.as_ref().and_then(|instance| self.instances.get(instance)).cloned();
            if let Some(replaced) = replaced {
                self.replace_static(&replaced, request, asked, out);
                return Ok(());
            }
            if self.members.len() + self.pending.len() >= size_max {
                return Err((GroupError::GroupFull, id));
            }
            if request.instance.is_none() && request.two_step {
                self.pending.insert(request.fresh_id.clone(), asked.now + request.session_timeout);
                return Err((GroupError::MemberIdRequired, request.fresh_id));
            }
            self.add_member(request, asked.waiter, asked.now);
            self.rebalance(asked.now, asked.initial_delay, out);
            return Ok(());
        }
        if self.pending.remove(&id).is_some() {
            self.add_member(request, asked.waiter, asked.now);
            self.rebalance(asked.now, asked.initial_delay, out);
            return Ok(());
        }
        self.check_member(&id, request.instance.as_deref()).map_err(|error| (error, id.clone()))?;
        self.rejoin(&id, request, asked, out);
        Ok(())
    }

    /// Does the protocol type fit, and is there a protocol that everybody knows?
    fn supports(&self, request: &JoinRequest) -> bool {
        if request.protocols.is_empty() || request.protocol_type.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        let others = self.members.values().filter(|member| member.id != request.member_id);
        self.protocol_type.as_ref().is_none_or(|kind| *kind == request.protocol_type)
            && !known_to_all(&request.protocols, others).is_empty()
    }

    pub(crate) fn check_member(&self, id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        if let Some(instance) = instance {
            let holder = self.instances.get(instance).ok_or(GroupError::UnknownMember)?;
            if holder != id {
                return Err(GroupError::FencedInstance);
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(GroupError::UnknownMember) }
    }

    fn add_member(&mut self, request: JoinRequest, waiter: W, now: u64) {
        let id = if request.member_id.is_empty() { request.fresh_id } else { request.member_id };
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type);
        }
        if let Some(instance) = &request.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        let member = Member {
            id: id.clone(),
            instance: request.instance,
            client_id: request.client_id,
            host: request.host,
            user: Some(request.user),
            rebalance_timeout: request.rebalance_timeout,
            session_timeout: request.session_timeout,
            protocols: request.protocols,
            assignment: Bytes::new(),
            expires: now + request.session_timeout,
            joining: Some(waiter),
            syncing: None,
        };
        self.members.insert(id, member);
        if let Some((_, joined)) = &mut self.initial {
            *joined = true;
        }
    }

    /// A static member comes back without its id: it takes its old place under a new one.
    fn replace_static(&mut self, old: &str, request: JoinRequest, asked: Asked<W>, out: &mut Vec<Effect<W>>) {
        let Asked { waiter, now, initial_delay } = asked;
        let Some(mut member) = self.members.remove(old) else { return };
        if let Some(waiting) = member.joining.take() {
            out.push(Effect::Answer(waiting, Answer::Joined(Joined::refused(GroupError::FencedInstance, old))));
        }
        if let Some(waiting) = member.syncing.take() {
            out.push(Effect::Answer(waiting, Answer::Synced(Synced::refused(GroupError::FencedInstance))));
        }
        let id = request.fresh_id.clone();
        let led = self.leader.as_deref() == Some(old);
        member.id.clone_from(&id);
        member.protocols = request.protocols;
        member.rebalance_timeout = request.rebalance_timeout;
        member.session_timeout = request.session_timeout;
        member.expires = now + member.session_timeout;
        self.instances.extend(member.instance.clone().map(|instance| (instance, id.clone())));
        self.members.insert(id.clone(), member);
        let former_leader = self.leader.clone().unwrap_or_default();
        if led {
            self.leader = Some(id.clone());
        }
        // What it says of itself may be other than before: one that owned partitions comes back with none, and has its assignment still.
        if self.state == GroupState::Stable && self.vote() == self.protocol {
            let skip = led && request.may_skip;
            let mut joined = self.joined(&id);
            joined.skip_assignment = skip;
            if led && !skip {
                // An older client would compute an assignment that nobody asked for.
                joined.leader = former_leader;
                joined.members.clear();
            }
            self.persist(out);
            out.push(Effect::Answer(waiter, Answer::Joined(joined)));
            return;
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.joining = Some(waiter);
        }
        self.rebalance(now, initial_delay, out);
    }

    fn rejoin(&mut self, id: &str, request: JoinRequest, asked: Asked<W>, out: &mut Vec<Effect<W>>) {
        let Asked { waiter, now, initial_delay } = asked;
        let leads = self.leader.as_deref() == Some(id);
        let Some(member) = self.members.get_mut(id) else { return };
        let same = member.protocols == request.protocols;
        let answer_now = match self.state {
            GroupState::CompletingRebalance => same,
            GroupState::Stable => same && !leads,
            GroupState::Empty | GroupState::PreparingRebalance => false,
        };
        member.expires = now + request.session_timeout;
        if answer_now {
            let joined = self.joined(id);
            out.push(Effect::Answer(waiter, Answer::Joined(joined)));
            return;
        }
        member.protocols = request.protocols;
        member.rebalance_timeout = request.rebalance_timeout;
        member.session_timeout = request.session_timeout;
        if let Some(earlier) = member.joining.replace(waiter) {
            out.push(Effect::Answer(earlier, Answer::Joined(Joined::refused(GroupError::Rebalancing, id))));
        }
        self.rebalance(now, initial_delay, out);
    }

    /// What a member of the present generation is told.
    fn joined(&self, id: &str) -> Joined {
        let leader = self.leader.clone().unwrap_or_default();
        let metadata = |member: &Member<W>| {
            let chosen = member.protocols.iter().find(|(name, _)| Some(name) == self.protocol.as_ref());
            chosen.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
        };
        let members = if leader == id {
            self.members.values().map(|member| (member.id.clone(), member.instance.clone(), metadata(member))).collect()
        } else {
            Vec::new()
        };
        Joined {
            error: None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader,
            skip_assignment: false,
            member_id: id.to_owned(),
            members,
        }
    }

    /// Starts a rebalance, or looks whether the one under way is complete.
    pub(crate) fn rebalance(&mut self, now: u64, initial_delay: u64, out: &mut Vec<Effect<W>>) {
        let timeout = self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or(0);
        match self.state {
            GroupState::Empty => {
                let delay = initial_delay.min(timeout);
                self.initial = Some((timeout - delay, false));
                self.phase_ends = Some(now + delay);
                self.state = GroupState::PreparingRebalance;
                if delay == 0 {
                    self.initial = None;
                    self.phase_ends = Some(now + timeout);
                }
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                for member in self.members.values_mut() {
                    if let Some(waiting) = member.syncing.take() {
                        member.expires = now + member.session_timeout;
                        out.push(Effect::Answer(waiting, Answer::Synced(Synced::refused(GroupError::Rebalancing))));
                    }
                }
                self.phase_ends = Some(now + timeout);
                self.state = GroupState::PreparingRebalance;
            }
            GroupState::PreparingRebalance => {}
        }
        self.complete_join_if_ready(now, out);
    }

    pub(crate) fn complete_join_if_ready(&mut self, now: u64, out: &mut Vec<Effect<W>>) {
        if self.state != GroupState::PreparingRebalance || self.initial.is_some() && !self.members.is_empty() {
            return;
        }
        if self.pending.is_empty() && self.members.values().all(|member| member.joining.is_some()) {
            self.complete_join(now, out);
        }
    }

    /// Ends the joining phase with whoever has joined.
    fn complete_join(&mut self, now: u64, out: &mut Vec<Effect<W>>) {
        let late: Vec<String> = self
            .members
            .values()
            .filter(|member| member.joining.is_none() && member.instance.is_none())
            .map(|member| member.id.clone())
            .collect();
        late.iter().for_each(|id| self.remove(id));
        self.initial = None;
        self.phase_ends = None;
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        if !self.members.values().any(|member| member.joining.is_some()) {
            if self.members.is_empty() {
                self.become_empty(now, out);
            } else {
                // Only static members that are away: they keep their places until their sessions end. A time-out of nothing would be over
                // at once, again and again.
                let timeout = self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or(0);
                self.phase_ends = Some(now + timeout.max(AWAY_MS_MIN));
            }
            return;
        }
        let leads = self
            .leader
            .as_ref()
            .and_then(|leader| self.members.get(leader))
            .is_some_and(|leader| leader.joining.is_some());
        if !leads {
            self.leader = self.members.values().find(|member| member.joining.is_some()).map(|member| member.id.clone());
        }
        self.protocol = self.vote();
        self.state = GroupState::CompletingRebalance;
        let answers: Vec<(String, W)> =
            self.members.values_mut().filter_map(|member| Some((member.id.clone(), member.joining.take()?))).collect();
        for (id, waiter) in answers {
            let joined = self.joined(&id);
            out.push(Effect::Answer(waiter, Answer::Joined(joined)));
        }
        let mut timeout = 0;
        for member in self.members.values_mut() {
            member.expires = now + member.session_timeout;
            timeout = timeout.max(member.rebalance_timeout);
        }
        self.phase_ends = Some(now + timeout);
    }

    fn become_empty(&mut self, now: u64, out: &mut Vec<Effect<W>>) {
        self.state = GroupState::Empty;
        self.protocol = None;
        self.leader = None;
        self.emptied_at = now;
        self.persist(out);
    }

    /// Each member votes for the first of its protocols that all know.
    pub(crate) fn vote(&self) -> Option<String> {
        let first = self.members.values().next()?;
        let known = known_to_all(&first.protocols, self.members.values());
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| known.contains(name.as_str())) {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name.to_owned())
    }

    pub(crate) fn sync(&mut self, request: SyncRequest, waiter: W, now: u64, out: &mut Vec<Effect<W>>) {
        match self.try_sync(&request, now) {
            Err(error) => out.push(Effect::Answer(waiter, Answer::Synced(Synced::refused(error)))),
            Ok(()) if self.state == GroupState::Stable => {
                let synced = self.synced(&request.member_id);
                out.push(Effect::Answer(waiter, Answer::Synced(synced)));
            }
            Ok(()) => {
                if let Some(member) = self.members.get_mut(&request.member_id)
                    && let Some(earlier) = member.syncing.replace(waiter)
                {
                    out.push(Effect::Answer(earlier, Answer::Synced(Synced::refused(GroupError::Rebalancing))));
                }
                if self.leader.as_deref() == Some(request.member_id.as_str()) {
                    self.assign(request.assignments, now, out);
                }
            }
        }
    }

    fn try_sync(&mut self, request: &SyncRequest, now: u64) -> Result<(), GroupError> {
        self.check_member(&request.member_id, request.instance.as_deref())?;
        if request.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let differs = |asked: &Option<String>, have: &Option<String>| asked.is_some() && asked != have;
        if differs(&request.protocol_type, &self.protocol_type) || differs(&request.protocol, &self.protocol) {
            return Err(GroupError::InconsistentProtocol);
        }
        if let Some(member) = self.members.get_mut(&request.member_id) {
            member.expires = now + member.session_timeout;
        }
        match self.state {
            GroupState::Empty => Err(GroupError::UnknownMember),
            GroupState::PreparingRebalance => Err(GroupError::Rebalancing),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
        }
    }

    /// The leader has spoken.
    fn assign(&mut self, assignments: Vec<(String, Bytes)>, now: u64, out: &mut Vec<Effect<W>>) {
        let mut assignments: HashMap<String, Bytes> = assignments.into_iter().collect();
        for member in self.members.values_mut() {
            member.assignment = assignments.remove(&member.id).unwrap_or_default();
        }
        self.state = GroupState::Stable;
        self.phase_ends = None;
        self.persist(out);
        let waiting: Vec<(String, W)> =
            self.members.values_mut().filter_map(|member| Some((member.id.clone(), member.syncing.take()?))).collect();
        for (id, waiter) in waiting {
            if let Some(member) = self.members.get_mut(&id) {
                member.expires = now + member.session_timeout;
            }
            let synced = self.synced(&id);
            out.push(Effect::Answer(waiter, Answer::Synced(synced)));
        }
        // Those who have not asked yet must do so before their sessions end.
    }

    fn synced(&self, id: &str) -> Synced {
        Synced {
            error: None,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: self.members.get(id).map(|member| member.assignment.clone()).unwrap_or_default(),
        }
    }

    pub(crate) fn heartbeat(
        &mut self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
        now: u64,
    ) -> Result<(), GroupError> {
        self.check_member(id, instance)?;
        if generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        if let Some(member) = self.members.get_mut(id) {
            member.expires = now + member.session_timeout;
        }
        match self.state {
            GroupState::Empty => Err(GroupError::UnknownMember),
            GroupState::PreparingRebalance => Err(GroupError::Rebalancing),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
        }
    }

    /// Takes a member out and tells it if it waits; the caller rebalances.
    fn remove(&mut self, id: &str) {
        let Some(member) = self.members.remove(id) else { return };
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// A member goes, by its own wish or because its session ended.
    pub(crate) fn leave(&mut self, id: &str, now: u64, out: &mut Vec<Effect<W>>) {
        if self.pending.remove(id).is_some() {
            self.complete_join_if_ready(now, out);
            return;
        }
        if let Some(member) = self.members.get_mut(id) {
            if let Some(waiting) = member.joining.take() {
                out.push(Effect::Answer(waiting, Answer::Joined(Joined::refused(GroupError::UnknownMember, id))));
            }
            if let Some(waiting) = member.syncing.take() {
                out.push(Effect::Answer(waiting, Answer::Synced(Synced::refused(GroupError::UnknownMember))));
            }
        }
        self.remove(id);
        match self.state {
            GroupState::Stable | GroupState::CompletingRebalance => self.rebalance(now, 0, out),
            GroupState::PreparingRebalance => self.complete_join_if_ready(now, out),
            GroupState::Empty => {}
        }
    }

    /// Does what is due at `now`.
    pub(crate) fn handle_timeouts(&mut self, now: u64, initial_delay: u64, out: &mut Vec<Effect<W>>) {
        let expired: Vec<String> = self
            .members
            .values()
            .filter(|member| member.joining.is_none() && member.syncing.is_none() && member.expires <= now)
            .map(|member| member.id.clone())
            .chain(self.pending.iter().filter(|(_, expires)| **expires <= now).map(|(id, _)| id.clone()))
            .collect();
        expired.iter().for_each(|id| self.leave(id, now, out));
        if self.phase_ends.is_none_or(|ends| ends > now) {
            return;
        }
        match self.state {
            GroupState::PreparingRebalance => {
                if let Some((left, true)) = self.initial.filter(|(left, _)| *left > 0) {
                    let more = initial_delay.min(left);
                    self.initial = Some((left - more, false));
                    self.phase_ends = Some(now + more);
                } else {
                    self.complete_join(now, out);
                }
            }
            GroupState::CompletingRebalance => {
                // The leader did not sync: whoever has not asked for an assignment goes.
                let silent: Vec<String> = self
                    .members
                    .values()
                    .filter(|member| member.syncing.is_none())
                    .map(|member| member.id.clone())
                    .collect();
                self.phase_ends = None;
                silent.iter().for_each(|id| self.remove(id));
                self.rebalance(now, 0, out);
            }
            GroupState::Empty | GroupState::Stable => self.phase_ends = None,
        }
    }
}
