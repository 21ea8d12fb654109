//! Members of a consumer group that still speak the classic protocol, and the ways between the two kinds of group: a classic group
//! becomes a consumer group with the first heartbeat of the new protocol, and is one again when the last member that speaks
//! it has gone. Nobody has to stop reading for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use types::TopicId;

use crate::GroupError;
use crate::consumer_group::{ClassicSide, ConsumerGroup, ConsumerMember, Surroundings};
use crate::coordinator::LeaveMember;
use crate::embedded::{Subscription, decode_assignment, encode_assignment};
use crate::group::{Effect, Group, GroupState, JoinRequest, Joined, Member, SyncRequest, Synced};
use crate::reconcile::MemberState;
use crate::sight::targeted_hash;
use crate::topology::{Target, Topics, with_epoch, without_epochs};

/// The type of protocol whose members can change over.
const CONSUMER: &str = "consumer";

/// What becomes of a join that was taken.
pub(crate) enum JoinedAs {
    /// The answer.
    Member(Joined),
    /// The answer, and the group is to be a classic one.
    Last(Joined),
}

impl ConsumerGroup {
    fn classic_count(&self) -> usize {
        self.members.values().filter(|member| member.classic.is_some()).count()
    }

    /// Does every classic member know one of these?
    fn supports(&self, kind: &str, protocols: &[(String, Bytes)]) -> bool {
        let known = |name: &String| {
            let mut classic = self.members.values().filter_map(|member| member.classic.as_ref());
            classic.all(|classic| classic.protocols.iter().any(|(other, _)| other == name))
        };
        kind == CONSUMER && protocols.iter().any(|(name, _)| known(name))
    }

    /// A classic member joins. Nothing has changed when it is refused.
    pub(crate) fn classic_join<W>(
        &mut self,
        request: &JoinRequest,
        around: &Surroundings<'_>,
        out: &mut Vec<Effect<W>>,
    ) -> Result<JoinedAs, (GroupError, String)> {
        let unknown = request.member_id.is_empty();
        let id = if unknown { request.fresh_id.clone() } else { request.member_id.clone() };
        let refuse = |error| (error, String::new());
        if !around.settings.migration.any() {
            return Err(refuse(GroupError::InconsistentProtocol));
        }
        if self.members.len() >= around.settings.consumer_size_max && !self.members.contains_key(&id) {
            return Err(refuse(GroupError::GroupFull));
        }
        if !self.supports(&request.protocol_type, &request.protocols) {
            return Err(refuse(GroupError::InconsistentProtocol));
        }
        if unknown && request.instance.is_none() && request.two_step {
            return Err((GroupError::MemberIdRequired, id));
        }
        let Some((protocol, metadata)) = request.protocols.first() else {
            return Err(refuse(GroupError::InconsistentProtocol));
        };
        let said = Subscription::decode(metadata).ok_or_else(|| refuse(GroupError::InconsistentProtocol))?;
        let existing = request
            .instance
            .as_ref()
            .and_then(|instance| self.instances.get(instance))
            .and_then(|id| self.members.get(id));
        let (before, replaces) = match (existing, &request.instance) {
            (Some(existing), _) if unknown => (Self::successor(existing, &id), Some(existing.id.clone())),
            (Some(existing), _) if existing.id != id => return Err(refuse(GroupError::FencedInstance)),
            (Some(existing), _) => (existing.clone(), None),
            (None, Some(_)) if !unknown => return Err(refuse(GroupError::UnknownMember)),
            (None, _) => (self.members.get(&id).cloned().unwrap_or_else(|| ConsumerMember::new(&id)), None),
        };
        let last = existing
            .is_some_and(|existing| existing.classic.is_none() && self.classic_count() + 1 == self.members.len())
            && around.settings.migration.down()
            && self.members.len() <= around.settings.size_max;
        let mut updated = before.clone();
        updated.instance = request.instance.clone().or(updated.instance);
        updated.rack = said.rack.or(updated.rack);
        updated.rebalance_timeout = request.rebalance_timeout;
        updated.topics = Arc::new(said.topics.into_iter().collect());
        updated.regex = None;
        updated.client_id.clone_from(&request.client_id);
        updated.host.clone_from(&request.host);
        updated.user = Some(request.user.clone());
        updated.classic =
            Some(ClassicSide { session_timeout: request.session_timeout, protocols: request.protocols.clone() });
        if let Some(existing) = replaces {
            self.replace(&existing, &before, out);
        }
        let owned: Vec<(TopicId, Vec<u32>)> = said
            .owned
            .into_iter()
            .filter_map(|(topic, partitions)| Some((around.topics.find(&topic)?.0, partitions)))
            .collect();
        let (updated, _) = self.lead(before, updated, Some(&owned), around, out);
        self.set_timers(&updated.id, |timers| {
            timers.session = Some(around.now + request.session_timeout);
            timers.join = None;
            timers.rebalance = None;
            timers.sync = Some(around.now + request.rebalance_timeout);
        });
        let joined = Joined {
            error: None,
            generation: updated.epoch,
            protocol_type: Some(CONSUMER.to_owned()),
            protocol: Some(protocol.clone()),
            leader: String::new(),
            skip_assignment: false,
            member_id: updated.id.clone(),
            members: Vec::new(),
        };
        Ok(if last { JoinedAs::Last(joined) } else { JoinedAs::Member(joined) })
    }

    /// The member that a classic request names.
    fn find_classic(&self, id: &str, instance: Option<&str>) -> Result<&ConsumerMember, GroupError> {
        let member = match instance {
            None => self.members.get(id).ok_or(GroupError::UnknownMember)?,
            Some(instance) => {
                let member = self
                    .instances
                    .get(instance)
                    .and_then(|id| self.members.get(id))
                    .ok_or(GroupError::UnknownMember)?;
                if member.id != id {
                    return Err(GroupError::FencedInstance);
                }
                member
            }
        };
        if member.classic.is_some() { Ok(member) } else { Err(GroupError::UnknownMember) }
    }

    pub(crate) fn classic_sync(
        &mut self,
        request: &SyncRequest,
        around: &Surroundings<'_>,
    ) -> Result<Synced, GroupError> {
        let member = self.find_classic(&request.member_id, request.instance.as_deref())?.clone();
        let classic = member.classic.as_ref().ok_or(GroupError::UnknownMember)?;
        if request.generation != member.epoch {
            return Err(GroupError::IllegalGeneration);
        }
        let (protocol, metadata) = classic.protocols.first().ok_or(GroupError::InconsistentProtocol)?;
        let other = |asked: &Option<String>, is: &str| asked.as_ref().is_some_and(|asked| asked != is);
        if other(&request.protocol_type, CONSUMER) || other(&request.protocol, protocol) {
            return Err(GroupError::InconsistentProtocol);
        }
        if self.assignment_epoch > member.epoch && member.state != MemberState::Unrevoked {
            self.expect_join(&member, around.now);
            return Err(GroupError::Rebalancing);
        }
        let session = around.now + classic.session_timeout;
        self.set_timers(&member.id, |timers| {
            timers.sync = None;
            timers.session = Some(session);
        });
        let version = Subscription::decode(metadata).map_or(0, |said| said.version);
        Ok(Synced {
            error: None,
            protocol_type: request.protocol_type.clone(),
            protocol: request.protocol.clone(),
            assignment: encode_target(version, &without_epochs(&member.assigned), around.topics),
        })
    }

    /// A member that has been told to join again has its rebalance time-out for it.
    fn expect_join(&mut self, member: &ConsumerMember, now: u64) {
        let until = now + member.rebalance_timeout;
        self.set_timers(&member.id, |timers| timers.join = timers.join.or(Some(until)));
    }

    pub(crate) fn classic_heartbeat(
        &mut self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
        now: u64,
    ) -> Result<(), GroupError> {
        let member = self.find_classic(id, instance)?.clone();
        if generation != member.epoch {
            return Err(GroupError::IllegalGeneration);
        }
        let session = now + member.classic.as_ref().map_or(0, |classic| classic.session_timeout);
        self.set_timers(id, |timers| timers.session = Some(session));
        let can_go_on = member.state == MemberState::Unreleased && !self.waits_for_others(&member);
        if member.epoch < self.assignment_epoch || member.state == MemberState::Unrevoked || can_go_on {
            self.expect_join(&member, now);
            return Err(GroupError::Rebalancing);
        }
        Ok(())
    }

    /// Who leaves by a classic request; members of the new protocol can be put out by it too.
    pub(crate) fn find_leaving(&self, leaving: &LeaveMember) -> Result<String, GroupError> {
        let Some(instance) = &leaving.instance else {
            return self
                .members
                .get(&leaving.member_id)
                .map(|member| member.id.clone())
                .ok_or(GroupError::UnknownMember);
        };
        let holder = self.instances.get(instance).ok_or(GroupError::UnknownMember)?;
        if leaving.member_id.is_empty() || *holder == leaving.member_id {
            Ok(holder.clone())
        } else {
            Err(GroupError::FencedInstance)
        }
    }

    /// Is the group to be a classic one when these have gone?
    pub(crate) fn is_classic_without(&self, leaving: &[String], around: &Surroundings<'_>) -> bool {
        let left = self.members.values().filter(|member| !leaving.contains(&member.id));
        let count = left.clone().count();
        count > 0
            && left.clone().all(|member| member.classic.is_some())
            && around.settings.migration.down()
            && count <= around.settings.size_max
    }

    /// A consumer group of the members of a classic one; `None` when what they told each other is not understood.
    pub(crate) fn from_classic<W: Copy>(classic: &Group<W>, topics: &dyn Topics, now: u64) -> Option<Self> {
        let mut group = Self::new(&classic.name, now);
        group.epoch = classic.generation;
        group.assignment_epoch = classic.generation;
        let mut taken = BTreeSet::new();
        for member in classic.members.values() {
            let chosen = member.protocols.iter().find(|(name, _)| Some(name) == classic.protocol.as_ref());
            let (_, metadata) = chosen.or(member.protocols.first())?;
            let said = Subscription::decode(metadata)?;
            let mut target = Target::new();
            for (topic, partitions) in decode_assignment(&member.assignment)? {
                let Some((id, count)) = topics.find(&topic) else { continue };
                let exists = |partition: &u32| *partition < count;
                // Assignors of clients are not to be trusted with giving a partition to one member only.
                let partitions: BTreeSet<u32> =
                    partitions.into_iter().filter(exists).filter(|one| taken.insert((id, *one))).collect();
                if !partitions.is_empty() {
                    target.insert(id, partitions);
                }
            }
            let mut new = ConsumerMember::new(&member.id);
            (new.epoch, new.previous_epoch) = (classic.generation, classic.generation);
            new.instance.clone_from(&member.instance);
            new.rack = said.rack;
            new.client_id.clone_from(&member.client_id);
            new.host.clone_from(&member.host);
            new.user.clone_from(&member.user);
            new.rebalance_timeout = member.rebalance_timeout;
            new.topics = Arc::new(said.topics.into_iter().collect());
            new.assigned = Arc::new(with_epoch(&target, classic.generation));
            new.classic =
                Some(ClassicSide { session_timeout: member.session_timeout, protocols: member.protocols.clone() });
            group.targets.insert(member.id.clone(), target);
            group.put(new);
            group.set_timers(&member.id, |timers| timers.session = Some(now + member.session_timeout));
        }
        group.topics_hash = targeted_hash(&group.targets, topics);
        Some(group)
    }

    /// The classic group of the members that are left, in the generation after their epoch's.
    pub(crate) fn into_classic<W: Copy>(mut self, leaving: &[String], topics: &dyn Topics, now: u64) -> Group<W> {
        let mut group = Group::new(&self.name, now);
        group.generation = self.epoch;
        group.protocol_type = Some(CONSUMER.to_owned());
        group.state = GroupState::Stable;
        let members = std::mem::take(&mut self.members);
        for (id, member) in members.into_iter().filter(|(id, _)| !leaving.contains(id)) {
            let Some(classic) = member.classic else { continue };
            let version = classic
                .protocols
                .first()
                .and_then(|(_, metadata)| Subscription::decode(metadata))
                .map_or(0, |said| said.version);
            let target = self.targets.remove(&id).unwrap_or_default();
            group.instances.extend(member.instance.clone().map(|instance| (instance, id.clone())));
            group.leader.get_or_insert_with(|| id.clone());
            let new = Member {
                id: id.clone(),
                instance: member.instance,
                client_id: member.client_id,
                host: member.host,
                user: member.user,
                rebalance_timeout: member.rebalance_timeout,
                session_timeout: classic.session_timeout,
                protocols: classic.protocols,
                assignment: encode_target(version, &target, topics),
                expires: now + classic.session_timeout,
                joining: None,
                syncing: None,
            };
            group.members.insert(id, new);
        }
        group.protocol = group.vote();
        group
    }

    /// Takes all records of the group away.
    pub(crate) fn forget<W>(&self, out: &mut Vec<Effect<W>>) {
        out.extend(self.members.keys().map(|id| Effect::Persist(self.member_key(id), None)));
        out.push(Effect::Persist(self.group_key(), None));
    }
}

fn encode_target(version: i16, target: &Target, topics: &dyn Topics) -> Bytes {
    let named = target
        .iter()
        .filter_map(|(topic, partitions)| Some((topics.name(*topic)?, partitions.iter().copied().collect())));
    encode_assignment(version, &named.collect::<Vec<_>>())
}

impl<W: Copy> Group<W> {
    /// May it become a consumer group?
    pub(crate) fn can_change_over(&self) -> bool {
        self.protocol_type.as_deref().is_none_or(|kind| kind == CONSUMER)
    }
}
