//! One name has one kind of group: the coordinator's map holds them side by side, and here is what it does with those that are not
//! classic, and how one kind becomes another.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::GroupError;
use crate::classic_members::JoinedAs;
use crate::consumer_group::{
    ConsumerGroup, ConsumerGroupState, ConsumerHeartbeat, ConsumerMember, GroupTimes, HeartbeatAnswer, Surroundings,
};
use crate::consumer_record::{GROUP, MEMBER, names_of_member};
use crate::coordinator::GroupCoordinator;
use crate::group::{Answer, Effect, Group, GroupState, JoinRequest, Joined, Synced};
use crate::record::group_key;
use crate::share_group::{self, ShareGroup, ShareHeartbeat, ShareMember};
use crate::sight::Sight;
use crate::streams_group::StreamsGroup;
use crate::streams_record;
use crate::topology::{Matches, Target};
use crate::weight;

/// What members are known by on other connections of theirs: what the client calls itself, where it is, and who it is. The first two anybody at that
/// host can say.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// As the client says.
    pub id: &'a str,
    /// Where it connects from.
    pub host: &'a str,
    /// Who has logged in; empty: nobody. `None`: whoever it is.
    pub user: Option<&'a str>,
}

/// A group of one kind or the other.
pub(crate) enum Kind<W> {
    Classic(Box<Group<W>>),
    Consumer(Box<ConsumerGroup>),
    Share(Box<ShareGroup>),
    Streams(Box<StreamsGroup>),
}

impl<W: Copy> Kind<W> {
    /// Members of share groups are none: those name their group wherever they read.
    pub fn has_member(&self, client: Client<'_>) -> bool {
        let is_it = |id: &str, at: &str, user: Option<&str>| {
            let same = |user: &str| client.user.is_none_or(|own| own == user);
            id == client.id && at == client.host && user.is_none_or(same)
        };
        match self {
            Self::Classic(group) => {
                group.members.values().any(|member| is_it(&member.client_id, &member.host, member.user.as_deref()))
            }
            Self::Consumer(group) => {
                group.members.values().any(|member| is_it(&member.client_id, &member.host, member.user.as_deref()))
            }
            Self::Streams(group) => {
                group.members.values().any(|member| is_it(&member.client_id, &member.host, member.user.as_deref()))
            }
            Self::Share(_) => false,
        }
    }

    fn line(&self, name: &str) -> GroupLine {
        let (state, kind) = match self {
            Self::Classic(group) => {
                let protocol_type = group.protocol_type.clone().unwrap_or_default();
                return GroupLine { group: name.to_owned(), state: group.state.name(), protocol_type, kind: "classic" };
            }
            Self::Consumer(group) => (group.state().name(), "consumer"),
            Self::Share(group) => (group.state(), "share"),
            Self::Streams(group) => (group.state(), "streams"),
        };
        GroupLine { group: name.to_owned(), state, protocol_type: kind.to_owned(), kind }
    }

    /// What its members are known by elsewhere, and where they are; of share groups none.
    pub fn each_client(&self, mut each: impl FnMut(&str, &str)) {
        match self {
            Self::Classic(group) => group.members.values().for_each(|member| each(&member.client_id, &member.host)),
            Self::Consumer(group) => group.members.values().for_each(|member| each(&member.client_id, &member.host)),
            Self::Streams(group) => group.members.values().for_each(|member| each(&member.client_id, &member.host)),
            Self::Share(_) => {}
        }
    }

    pub fn next_deadline(&self) -> Option<u64> {
        match self {
            Self::Classic(group) => group.next_deadline(),
            Self::Consumer(group) => group.next_deadline(),
            Self::Share(group) => group.next_deadline(),
            Self::Streams(group) => group.next_deadline(),
        }
    }

    /// Bytes of memory that it takes, about, without what all groups have.
    pub fn weight(&self) -> usize {
        match self {
            Self::Classic(group) => weight::classic(group),
            Self::Consumer(group) => group.weight(),
            Self::Share(group) => group.weight(),
            Self::Streams(group) => group.weight(),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Classic(group) => group.state == GroupState::Empty,
            Self::Consumer(group) => group.members.is_empty(),
            Self::Share(group) => group.members.is_empty(),
            Self::Streams(group) => group.members.is_empty(),
        }
    }

    /// Since when nobody has been in it; `None` when somebody is, or is about to be.
    pub fn expires_from(&self) -> Option<u64> {
        match self {
            Self::Classic(group) => (self.is_empty() && group.pending.is_empty()).then_some(group.emptied_at),
            Self::Consumer(group) => self.is_empty().then_some(group.emptied_at),
            Self::Streams(group) => self.is_empty().then_some(group.emptied_at),
            // What it has done with records is kept until it is deleted.
            Self::Share(_) => None,
        }
    }

    /// Keys of its records, without those of its offsets.
    pub fn keys(&self) -> Vec<Bytes> {
        match self {
            Self::Classic(group) => vec![group_key(&group.name)],
            Self::Consumer(group) => {
                group.members.keys().map(|id| group.member_key(id)).chain([group.group_key()]).collect()
            }
            Self::Share(group) => group.keys(),
            Self::Streams(group) => group.keys(),
        }
    }
}

/// A line of the list of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLine {
    /// Its name.
    pub group: String,
    /// Where it stands, as Kafka calls it.
    pub state: &'static str,
    /// Empty for a group that only keeps offsets.
    pub protocol_type: String,
    /// "classic", "consumer", "share" or "streams".
    pub kind: &'static str,
}

/// A share group as it stands.
#[derive(Clone, Debug)]
pub struct ShareGroupSummary {
    /// As Kafka calls it.
    pub state: &'static str,
    /// Of the group.
    pub epoch: i32,
    /// Of the target.
    pub assignment_epoch: i32,
    /// In order of their ids.
    pub members: Vec<ShareMember>,
}

/// A consumer group as it stands.
#[derive(Clone, Debug)]
pub struct ConsumerGroupSummary {
    /// Where it stands.
    pub state: ConsumerGroupState,
    /// Of the group.
    pub epoch: i32,
    /// Of the target.
    pub assignment_epoch: i32,
    /// By name.
    pub assignor: &'static str,
    /// In order of their ids, each with its target.
    pub members: Vec<(ConsumerMember, Target)>,
}

impl<W: Copy> GroupCoordinator<W> {
    pub(crate) fn consumer_times(&self, name: &str) -> GroupTimes {
        self.consumer_times.get(name).copied().unwrap_or(self.settings.consumer_times)
    }

    /// Gives a consumer group times of its own, or takes them away. They count from each member's next heartbeat.
    pub fn set_consumer_times(&mut self, name: &str, times: Option<GroupTimes>) {
        match times {
            Some(times) => drop(self.consumer_times.insert(name.to_owned(), times)),
            None => drop(self.consumer_times.remove(name)),
        }
    }

    /// Puts a record of a group back that is not classic; `None`: it is none.
    pub(crate) fn restore_kind(&mut self, key: &[u8], value: &[u8], now: u64) -> Option<bool> {
        let (name, member) = match *key.first()? {
            GROUP => (std::str::from_utf8(key.get(1..)?).ok()?, None),
            MEMBER => names_of_member(MEMBER, key).map(|(group, member)| (group, Some(member)))?,
            share_group::GROUP => (std::str::from_utf8(key.get(1..)?).ok()?, None),
            share_group::MEMBER => {
                names_of_member(share_group::MEMBER, key).map(|(group, member)| (group, Some(member)))?
            }
            streams_record::GROUP | streams_record::TOPOLOGY => (std::str::from_utf8(key.get(1..)?).ok()?, None),
            streams_record::MEMBER => {
                names_of_member(streams_record::MEMBER, key).map(|(group, member)| (group, Some(member)))?
            }
            _ => return None,
        };
        let fresh = || match key.first() {
            Some(&(GROUP | MEMBER)) => Kind::Consumer(Box::new(ConsumerGroup::new(name, now))),
            Some(&(streams_record::GROUP | streams_record::TOPOLOGY | streams_record::MEMBER)) => {
                Kind::Streams(Box::new(StreamsGroup::new(name, now)))
            }
            _ => Kind::Share(Box::new(ShareGroup::new(name))),
        };
        let kind = self.groups.entry(name.to_owned()).or_insert_with(fresh);
        if matches!(kind, Kind::Classic(_)) {
            // It was made for its offsets, which came first.
            *kind = fresh();
        }
        let restored = match (kind, member) {
            (Kind::Consumer(group), Some(member)) => group.restore_member(member, value).map(|()| None),
            (Kind::Share(group), Some(member)) => group.restore_member(member, value).map(|()| None),
            (Kind::Consumer(group), None) => group.restore(value).map(Some),
            (Kind::Share(group), None) => group.restore(value).map(Some),
            (Kind::Streams(group), Some(member)) => group.restore_member(member, value).map(|()| None),
            (Kind::Streams(group), None) if key.first() == Some(&streams_record::TOPOLOGY) => {
                group.restore_topology(value).map(|()| None)
            }
            (Kind::Streams(group), None) => group.restore(value).map(Some),
            (Kind::Classic(_), _) => None,
        };
        let Some(recorded) = restored else { return Some(false) };
        self.recorded.extend(recorded.map(|targets| (name.to_owned(), targets)));
        Some(true)
    }

    /// All records are back, and the times of groups are set: members have a whole session from now.
    pub fn resume(&mut self, now: u64) {
        let names: Vec<String> = self.groups.keys().cloned().collect();
        for name in names {
            let times = self.consumer_times(&name);
            let recorded = self.recorded.remove(&name);
            let share_times = self.share_times(&name);
            let streams_times = self.streams_config(&name).times;
            match self.groups.get_mut(&name) {
                Some(Kind::Consumer(group)) => group.resume(now, times.session_timeout, recorded, &*self.topics),
                Some(Kind::Share(group)) => group.resume(now, share_times.session_timeout, recorded),
                Some(Kind::Streams(group)) => group.resume(now, streams_times.session_timeout, recorded, &*self.topics),
                Some(Kind::Classic(_)) | None => {}
            }
            self.reschedule(&name);
        }
        self.weigh_all();
    }

    /// Is there a consumer group with members?
    pub(crate) fn has_consumers(&self, name: &str) -> bool {
        matches!(self.groups.get(name), Some(Kind::Consumer(group)) if !group.members.is_empty())
    }

    /// Are answers of this group to wait until what they tell is durable?
    pub fn answers_when_durable(&self, name: &str) -> bool {
        matches!(self.groups.get(name), Some(Kind::Consumer(_) | Kind::Share(_) | Kind::Streams(_)))
    }

    /// The classic group that a member may join; an empty group of another kind makes room for it.
    pub(crate) fn classic_for_join(&mut self, name: &str, now: u64, out: &mut Vec<Effect<W>>) -> Option<&mut Group<W>> {
        let kind = self.groups.entry(name.to_owned()).or_insert_with(|| Kind::Classic(Box::new(Group::new(name, now))));
        match kind {
            Kind::Consumer(group) => group.forget(out),
            Kind::Streams(group) if group.members.is_empty() => group.forget(out),
            Kind::Classic(_) | Kind::Share(_) | Kind::Streams(_) => {}
        }
        if matches!(kind, Kind::Consumer(_)) || matches!(kind, Kind::Streams(group) if group.members.is_empty()) {
            *kind = Kind::Classic(Box::new(Group::new(name, now)));
        }
        match kind {
            Kind::Classic(group) => Some(group),
            Kind::Consumer(_) | Kind::Share(_) | Kind::Streams(_) => None,
        }
    }

    /// Expressions that a heartbeat, or another member of its group, brings and that have not been matched against all names of topics. They are to be
    /// matched before the heartbeat is carried out, without whatever lock holds the groups: this takes over what is known of them, and no more.
    pub fn unmatched(&self, name: &str, request: &ConsumerHeartbeat) -> Vec<Arc<dyn Matches>> {
        let wanted = request.regex.as_deref().filter(|regex| !regex.is_empty());
        match self.groups.get(name) {
            _ if ConsumerGroup::is_farewell(request.epoch) => Vec::new(),
            Some(Kind::Consumer(group)) => group.unmatched(wanted, &*self.topics),
            Some(Kind::Classic(_)) | None if request.epoch == 0 => wanted
                .map(|wanted| self.topics.matches(wanted))
                .into_iter()
                .filter(|matches| !matches.is_current())
                .collect(),
            Some(Kind::Classic(_) | Kind::Share(_) | Kind::Streams(_)) | None => Vec::new(),
        }
    }

    /// A heartbeat of the new protocol. Its answer may be given once the effects are durable.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn consumer_heartbeat(
        &mut self,
        name: &str,
        request: &ConsumerHeartbeat,
        sight: Sight<'_>,
        now: u64,
        out: &mut Vec<Effect<W>>,
    ) -> Result<HeartbeatAnswer, GroupError> {
        if let Some(assignor) = &request.assignor
            && !self.settings.consumer_assignors.iter().any(|one| one.name() == assignor)
        {
            return Err(GroupError::UnsupportedAssignor);
        }
        if ConsumerGroup::is_farewell(request.epoch) {
            return self.consumer_leave(name, request, now, out);
        }
        self.check_consumer(name, request)?;
        self.note_client(name, &request.client_id, &request.host);
        let times = self.consumer_times(name);
        let joins = request.epoch == 0;
        let mut changed_over = None;
        let mut effects = Vec::new();
        let around = Surroundings { now, topics: &*self.topics, times, settings: &self.settings, sight };
        let outcome = match self.groups.get_mut(name) {
            Some(Kind::Consumer(group)) => group.heartbeat(request, &around, &mut effects),
            Some(Kind::Share(_) | Kind::Streams(_)) => Err(GroupError::GroupNotFound),
            Some(Kind::Classic(_)) | None if !joins => Err(GroupError::GroupNotFound),
            found => {
                let mut group = match found {
                    Some(Kind::Classic(classic)) if classic.state != GroupState::Empty => {
                        let fits = around.settings.migration.up()
                            && classic.can_change_over()
                            && classic.members.len() <= around.settings.consumer_size_max;
                        let group = if fits { ConsumerGroup::from_classic(classic, around.topics, now) } else { None };
                        group.ok_or(GroupError::GroupNotFound)?
                    }
                    _ => ConsumerGroup::new(name, now),
                };
                let outcome = group.heartbeat(request, &around, &mut effects);
                changed_over = Some(group);
                outcome
            }
        };
        let answer = outcome?;
        let Some(group) = changed_over else {
            // Nothing that it weighs has changed without a record.
            let changed = !effects.is_empty();
            out.append(&mut effects);
            self.reschedule(name);
            if changed {
                self.weigh(name);
            }
            return Ok(answer);
        };
        if let Some(Kind::Classic(classic)) = self.groups.get_mut(name) {
            classic.dismiss(out);
            out.push(Effect::Persist(group_key(name), None));
        }
        // Members that were there before have no records yet.
        group.persist_all(out);
        self.groups.insert(name.to_owned(), Kind::Consumer(Box::new(group)));
        self.reschedule(name);
        self.weigh(name);
        Ok(answer)
    }

    fn consumer_leave(
        &mut self,
        name: &str,
        request: &ConsumerHeartbeat,
        now: u64,
        out: &mut Vec<Effect<W>>,
    ) -> Result<HeartbeatAnswer, GroupError> {
        let Some(Kind::Consumer(group)) = self.groups.get_mut(name) else { return Err(GroupError::GroupNotFound) };
        let id = group.find_for_leave(request)?.id.clone();
        if request.epoch == crate::consumer_group::AWAY && request.instance.is_some() {
            group.go_away(&id, out);
        } else {
            self.remove_consumers(name, std::slice::from_ref(&id), now, out);
        }
        self.reschedule(name);
        self.weigh(name);
        Ok(HeartbeatAnswer { member_id: id, epoch: request.epoch, interval: 0, assignment: None })
    }

    /// Members of a consumer group go; when only classic ones are left, it is a classic group again.
    pub(crate) fn remove_consumers(&mut self, name: &str, leaving: &[String], now: u64, out: &mut Vec<Effect<W>>) {
        let Some(Kind::Consumer(group)) = self.groups.get_mut(name) else { return };
        if leaving.is_empty() {
            return;
        }
        let around = Surroundings {
            now,
            topics: &*self.topics,
            times: self.settings.consumer_times,
            settings: &self.settings,
            sight: Sight::ALL,
        };
        if !group.is_classic_without(leaving, &around) {
            return group.remove(leaving, now, &*self.topics, out);
        }
        self.change_back(name, leaving, true, now, out);
    }

    /// A consumer group becomes a classic one.
    fn change_back(&mut self, name: &str, leaving: &[String], rebalance: bool, now: u64, out: &mut Vec<Effect<W>>) {
        let Some(Kind::Consumer(group)) = self.groups.remove(name) else { return };
        group.forget(out);
        let mut classic = group.into_classic(leaving, &*self.topics, now);
        classic.persist(out);
        if rebalance {
            classic.rebalance(now, 0, out);
        }
        self.groups.insert(name.to_owned(), Kind::Classic(Box::new(classic)));
        self.reschedule(name);
    }

    /// A classic member joins a consumer group.
    pub(crate) fn join_consumers(
        &mut self,
        name: &str,
        request: &JoinRequest,
        now: u64,
        out: &mut Vec<Effect<W>>,
    ) -> Result<Joined, (GroupError, String)> {
        let around = Surroundings {
            now,
            topics: &*self.topics,
            times: self.settings.consumer_times,
            settings: &self.settings,
            sight: Sight::ALL,
        };
        let around = Surroundings { times: self.consumer_times.get(name).copied().unwrap_or(around.times), ..around };
        let Some(Kind::Consumer(group)) = self.groups.get_mut(name) else {
            return Err((GroupError::UnknownMember, request.member_id.clone()));
        };
        let joined = match group.classic_join(request, &around, out)? {
            JoinedAs::Member(joined) => joined,
            JoinedAs::Last(joined) => {
                let stale = group.assignment_epoch < group.epoch;
                self.change_back(name, &[], stale, now, out);
                joined
            }
        };
        self.reschedule(name);
        Ok(joined)
    }

    pub(crate) fn share_times(&self, name: &str) -> GroupTimes {
        self.share_times.get(name).copied().unwrap_or(self.settings.share_times)
    }

    /// Gives a share group times of its own, or takes them away.
    pub fn set_share_times(&mut self, name: &str, times: Option<GroupTimes>) {
        match times {
            Some(times) => drop(self.share_times.insert(name.to_owned(), times)),
            None => drop(self.share_times.remove(name)),
        }
    }

    /// A heartbeat of a member of a share group. Its answer may be given once the effects are durable.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn share_heartbeat(
        &mut self,
        name: &str,
        request: &ShareHeartbeat,
        sight: Sight<'_>,
        now: u64,
        out: &mut Vec<Effect<W>>,
    ) -> Result<HeartbeatAnswer, GroupError> {
        self.check_share(name, request)?;
        let (times, before) = (self.share_times(name), out.len());
        let around = Surroundings { now, topics: &*self.topics, times, settings: &self.settings, sight };
        let outcome = match self.groups.get_mut(name) {
            Some(Kind::Share(group)) if request.epoch < 0 => {
                group.members.get(&request.member_id).ok_or(GroupError::UnknownMember)?;
                group.remove(std::slice::from_ref(&request.member_id), around.topics, out);
                Ok(HeartbeatAnswer {
                    member_id: request.member_id.clone(),
                    epoch: request.epoch,
                    interval: 0,
                    assignment: None,
                })
            }
            Some(Kind::Share(group)) => group.heartbeat(request, &around, out),
            None if request.epoch == 0 => {
                let mut group = ShareGroup::new(name);
                let answer = group.heartbeat(request, &around, out)?;
                self.groups.insert(name.to_owned(), Kind::Share(Box::new(group)));
                Ok(answer)
            }
            _ => Err(GroupError::GroupNotFound),
        };
        self.reschedule(name);
        if out.len() > before {
            self.weigh(name);
        }
        outcome
    }

    /// Makes a share group without members, if there is no group of that name.
    ///
    /// # Errors
    /// `GroupNotFound` when there is one of another kind.
    pub fn make_share_group(&mut self, name: &str, out: &mut Vec<Effect<W>>) -> Result<(), GroupError> {
        match self.groups.get(name) {
            Some(Kind::Share(_)) => Ok(()),
            Some(_) => Err(GroupError::GroupNotFound),
            None => {
                self.check_new_group(name)?;
                let group = ShareGroup::new(name);
                group.persist_all(out);
                self.groups.insert(name.to_owned(), Kind::Share(Box::new(group)));
                self.weigh(name);
                Ok(())
            }
        }
    }

    /// How many members a share group has; `None`: there is no such share group.
    pub fn share_members(&self, name: &str) -> Option<usize> {
        let Kind::Share(group) = self.groups.get(name)? else { return None };
        Some(group.members.len())
    }

    /// A share group as it stands.
    pub fn describe_share(&self, name: &str) -> Option<ShareGroupSummary> {
        let Kind::Share(group) = self.groups.get(name)? else { return None };
        Some(ShareGroupSummary {
            state: group.state(),
            epoch: group.epoch,
            assignment_epoch: group.assignment_epoch,
            members: group.members.values().cloned().collect(),
        })
    }

    /// A consumer group as it stands.
    pub fn describe_consumers(&self, name: &str) -> Option<ConsumerGroupSummary> {
        let Kind::Consumer(group) = self.groups.get(name)? else { return None };
        let target = |id: &String| group.targets.get(id).cloned().unwrap_or_default();
        Some(ConsumerGroupSummary {
            state: group.state(),
            epoch: group.epoch,
            assignment_epoch: group.assignment_epoch,
            assignor: group.assignor(&self.settings).name(),
            members: group.members.values().map(|member| (member.clone(), target(&member.id))).collect(),
        })
    }

    /// How many groups there are, of whatever kind.
    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// So many groups at most, of whatever kind, those behind `after`, in the order of their names.
    pub fn list_after(&self, after: Option<&str>, most: usize) -> Vec<GroupLine> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.groups.range::<str, _>(behind).take(most).map(|(name, group)| group.line(name)).collect()
    }

    /// One group.
    pub fn line(&self, name: &str) -> Option<GroupLine> {
        self.groups.get(name).map(|group| group.line(name))
    }

    /// Is there a group with this name, of whatever kind?
    pub fn exists(&self, name: &str) -> bool {
        self.groups.contains_key(name)
    }

    /// Has this group, which is no share group, this client as a member?
    pub fn has_member(&self, name: &str, client: Client<'_>) -> bool {
        self.groups.get(name).is_some_and(|group| group.has_member(client))
    }

    /// Does a member of this consumer or streams group read the topic? `None`: it is neither.
    pub fn consumers_read(&self, name: &str, topic: &str) -> Option<bool> {
        match self.groups.get(name)? {
            Kind::Consumer(group) => Some(group.reads_topic(topic)),
            Kind::Streams(group) => Some(group.reads_topic(topic)),
            Kind::Classic(_) | Kind::Share(_) => None,
        }
    }

    /// May a member read committed offsets under this epoch?
    ///
    /// # Errors
    /// `UnknownMember`, `StaleEpoch`, `IllegalGeneration`.
    pub fn check_fetch(&self, name: &str, member_id: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        match self.groups.get(name) {
            Some(Kind::Consumer(group)) => group.check_fetch(member_id, epoch),
            Some(Kind::Streams(group)) => group.check_fetch(member_id, epoch),
            _ => Ok(()),
        }
    }
}

impl<W: Copy> Group<W> {
    /// Tells everybody who waits to ask again: the group is of another kind now.
    fn dismiss(&mut self, out: &mut Vec<Effect<W>>) {
        for member in self.members.values_mut() {
            if let Some(waiting) = member.joining.take() {
                out.push(Effect::Answer(waiting, Answer::Joined(Joined::refused(GroupError::Rebalancing, &member.id))));
            }
            if let Some(waiting) = member.syncing.take() {
                out.push(Effect::Answer(waiting, Answer::Synced(Synced::refused(GroupError::Rebalancing))));
            }
        }
    }
}
