//! All groups of a node, or of a part of it: finds the group, keeps its offsets and its deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::GroupError;
use crate::assignors::Assignor;
use crate::consumer_group::{GroupTimes, Surroundings};
use crate::group::{Answer, Asked, Effect, Group, GroupState, JoinRequest, Joined, Member, SyncRequest, Synced};
use crate::kinds::{Client, Kind};
use crate::offsets::CommittedOffset;
use crate::record::{decode_offset_key, offset_key, offset_record};
use crate::sight::Sight;
use crate::streams_group::StreamsConfig;
use crate::topology::{NoTopics, Topics};
use crate::weight;

mod account;
mod clients;
mod readers;

use clients::Clients;
use readers::Readers;

/// Keys that a piece of expiring returns, about, at most.
const KEYS_AT_ONCE: usize = 1000;
/// A group that nobody is in is forgotten after this long where it has no offsets.
const WITHOUT_OFFSETS_MS: u64 = 60_000;

/// Limits of the coordinator.
#[derive(Clone, Debug)]
pub struct CoordinatorSettings {
    /// `group.initial.rebalance.delay.ms`
    pub initial_delay: u64,
    /// `group.min.session.timeout.ms` and `group.max.session.timeout.ms`
    pub session_timeout: std::ops::RangeInclusive<u64>,
    /// `group.max.size`
    pub size_max: usize,
    /// `offset.metadata.max.bytes`
    pub metadata_bytes_max: usize,
    /// `offsets.retention.minutes`, in ms
    pub offsets_retention: u64,
    /// `group.consumer.max.size`
    pub consumer_size_max: usize,
    /// `group.consumer.assignors`; the first one counts when members ask for none.
    pub consumer_assignors: Vec<Assignor>,
    /// `group.consumer.migration.policy`
    pub migration: Migration,
    /// Of consumer groups that have no times of their own.
    pub consumer_times: GroupTimes,
    /// `group.share.max.size`
    pub share_size_max: usize,
    /// Of share groups that have no times of their own.
    pub share_times: GroupTimes,
    /// `group.streams.max.size`
    pub streams_size_max: usize,
    /// Of streams groups that have no settings of their own.
    pub streams_config: StreamsConfig,
}

/// Which groups with members may change from one protocol to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// None.
    Disabled,
    /// From the classic one.
    Upgrade,
    /// To the classic one.
    Downgrade,
    /// Both ways.
    Bidirectional,
}

impl Migration {
    /// By Kafka's name.
    pub fn find(name: &str) -> Option<Self> {
        Some(match name {
            "disabled" => Self::Disabled,
            "upgrade" => Self::Upgrade,
            "downgrade" => Self::Downgrade,
            "bidirectional" => Self::Bidirectional,
            _ => return None,
        })
    }

    pub(crate) fn any(self) -> bool {
        self != Self::Disabled
    }

    pub(crate) fn up(self) -> bool {
        matches!(self, Self::Upgrade | Self::Bidirectional)
    }

    pub(crate) fn down(self) -> bool {
        matches!(self, Self::Downgrade | Self::Bidirectional)
    }
}

/// One offset to be committed.
#[derive(Clone, Debug)]
pub struct Commit {
    /// By name.
    pub topic: String,
    /// Index.
    pub partition: u32,
    /// What.
    pub offset: CommittedOffset,
}

/// Who commits offsets.
#[derive(Clone, Copy, Debug)]
pub struct Committer<'a> {
    /// Empty for one who is no member.
    pub member_id: &'a str,
    /// Of a static member.
    pub instance: Option<&'a str>,
    /// -1 for one who is no member.
    pub generation: i32,
    /// As part of a transaction; before Kafka 2.5 its clients did not say which member they are.
    pub transactional: bool,
    /// The request is of a version that knows epochs of members.
    pub knows_epochs: bool,
}

/// Who leaves.
#[derive(Clone, Debug)]
pub struct LeaveMember {
    /// May be empty for a static member.
    pub member_id: String,
    /// Of a static member.
    pub instance: Option<String>,
}

/// A line of the list of groups.
#[derive(Clone, Debug)]
pub struct GroupSummary<W> {
    /// Its name.
    pub group: String,
    /// Where it stands.
    pub state: GroupState,
    /// Empty for a group that only keeps offsets.
    pub protocol_type: String,
    /// The one chosen.
    pub protocol: String,
    /// In order of their ids.
    pub members: Vec<Member<W>>,
}

/// What a piece of the work of [`GroupCoordinator::expire`] came to.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired {
    /// Of records to be removed.
    pub keys: Vec<Bytes>,
    /// Behind this group the next piece begins; `None`: all were looked at.
    pub after: Option<String>,
}

type Offsets = BTreeMap<(String, u32), CommittedOffset>;

/// The groups.
pub struct GroupCoordinator<W> {
    pub(crate) settings: CoordinatorSettings,
    pub(crate) topics: Arc<dyn Topics>,
    /// In the order of their names: so they can be looked through in pieces.
    pub(crate) groups: BTreeMap<String, Kind<W>>,
    /// Of groups that have their own.
    pub(crate) consumer_times: HashMap<String, GroupTimes>,
    pub(crate) share_times: HashMap<String, GroupTimes>,
    pub(crate) streams_configs: HashMap<String, StreamsConfig>,
    /// After a restart: the hash of a group's targets as it was recorded.
    pub(crate) recorded: HashMap<String, u64>,
    offsets: HashMap<Arc<str>, Offsets>,
    /// Which groups have offsets of a topic.
    readers: Readers,
    /// Which groups clients are members of.
    clients: Clients,
    /// What each group weighs without its offsets, and all together with theirs.
    weights: HashMap<String, usize>,
    bytes: usize,
    bytes_max: usize,
    /// How often something was refused because of that.
    refused: u64,
    deadlines: BTreeSet<(u64, String)>,
    deadline_of: HashMap<String, u64>,
}

impl<W: Copy> GroupCoordinator<W> {
    /// No groups yet, and no topics.
    pub fn new(settings: CoordinatorSettings) -> Self {
        Self::with_topics(settings, Arc::new(NoTopics))
    }

    /// No groups yet.
    pub fn with_topics(settings: CoordinatorSettings, topics: Arc<dyn Topics>) -> Self {
        Self {
            settings,
            topics,
            groups: BTreeMap::new(),
            consumer_times: HashMap::new(),
            share_times: HashMap::new(),
            streams_configs: HashMap::new(),
            recorded: HashMap::new(),
            offsets: HashMap::new(),
            readers: Readers::default(),
            clients: Clients::default(),
            weights: HashMap::new(),
            bytes: 0,
            bytes_max: usize::MAX,
            refused: 0,
            deadlines: BTreeSet::new(),
            deadline_of: HashMap::new(),
        }
    }

    /// Puts a record back at start; false when it is none of ours.
    pub fn restore(&mut self, key: &[u8], value: &[u8], now: u64) -> bool {
        self.clients.note_restored();
        if let Some((group, topic, partition)) = decode_offset_key(key) {
            if let Some(offset) = CommittedOffset::decode(value) {
                self.groups.entry(group.clone()).or_insert_with(|| Kind::Classic(Box::new(Group::new(&group, now))));
                self.put_offset(&group, topic, partition, offset);
                return true;
            }
            return false;
        }
        if let Some(restored) = self.restore_kind(key, value, now) {
            return restored;
        }
        let Some(name) = key.strip_prefix(b"g").and_then(|name| std::str::from_utf8(name).ok()) else { return false };
        let Some(group) = Group::decode(name, value, now) else { return false };
        self.groups.insert(name.to_owned(), Kind::Classic(Box::new(group)));
        self.reschedule(name);
        true
    }

    /// A client speaks as a member of a group, which is no share group: those name their group wherever they read.
    pub(crate) fn note_client(&mut self, group: &str, id: &str, host: &str) {
        let (groups, client) = (&self.groups, Client { id, host, user: None });
        self.clients.note(group, id, host, |name| groups.get(name).is_some_and(|group| group.has_member(client)));
        if self.clients.is_to_be_made() {
            self.make_clients();
        }
    }

    fn make_clients(&mut self) {
        self.clients.make(|clients| {
            for (name, group) in &self.groups {
                group.each_client(|id, host| clients.note(name, id, host, |_| false));
            }
        });
    }

    /// The groups, which are no share groups, that this client is a member of; of one that is a member of hundreds not all of them.
    pub fn groups_of(&mut self, client: Client<'_>) -> Vec<Arc<str>> {
        if self.clients.is_to_be_made() {
            self.make_clients();
        }
        let noted = self.clients.of(client.id, client.host);
        noted.iter().filter(|name| self.has_member(name, client)).cloned().collect()
    }

    /// How many clients are noted with a group, of which some may have gone: twice as many as there are, and a thousand, at most.
    pub fn clients_noted(&self) -> usize {
        self.clients.count()
    }

    pub(crate) fn reschedule(&mut self, name: &str) {
        let next = self.groups.get(name).and_then(Kind::next_deadline);
        if let Some(before) = self.deadline_of.get(name).copied() {
            if Some(before) == next {
                return;
            }
            self.deadlines.remove(&(before, name.to_owned()));
            self.deadline_of.remove(name);
        }
        if let Some(next) = next {
            self.deadlines.insert((next, name.to_owned()));
            self.deadline_of.insert(name.to_owned(), next);
        }
    }

    /// When [`Self::handle_timeouts`] is due.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Does what is due.
    pub fn handle_timeouts(&mut self, now: u64, out: &mut Vec<Effect<W>>) {
        while let Some((deadline, name)) = self.deadlines.first().cloned() {
            if deadline > now {
                return;
            }
            match self.groups.get_mut(&name) {
                Some(Kind::Classic(group)) => group.handle_timeouts(now, self.settings.initial_delay, out),
                Some(Kind::Consumer(group)) => {
                    let expired = group.expired(now);
                    self.remove_consumers(&name, &expired, now, out);
                }
                Some(Kind::Share(group)) => {
                    let expired = group.expired(now);
                    group.remove(&expired, &*self.topics, out);
                }
                Some(Kind::Streams(_)) => self.streams_timeouts(&name, now, out),
                None => drop(self.deadlines.pop_first()),
            }
            self.reschedule(&name);
            self.weigh(&name);
        }
    }

    /// A member wants in; the answer is an effect, at once or later.
    pub fn join(&mut self, name: &str, request: JoinRequest, waiter: W, now: u64, out: &mut Vec<Effect<W>>) {
        let refuse = |error| Effect::Answer(waiter, Answer::Joined(Joined::refused(error, &request.member_id)));
        if name.is_empty() {
            return out.push(refuse(GroupError::InvalidGroupId));
        }
        if !self.settings.session_timeout.contains(&request.session_timeout) {
            return out.push(refuse(GroupError::InvalidSessionTimeout));
        }
        if !request.member_id.is_empty() && !self.groups.contains_key(name) {
            return out.push(refuse(GroupError::UnknownMember));
        }
        if let Err(error) = self.check_join(name, &request) {
            return out.push(refuse(error));
        }
        self.note_client(name, &request.client_id, &request.host);
        if self.has_consumers(name) {
            let joined = self.join_consumers(name, &request, now, out);
            let joined = joined.unwrap_or_else(|(error, id)| Joined::refused(error, &id));
            self.weigh(name);
            return out.push(Effect::Answer(waiter, Answer::Joined(joined)));
        }
        let asked = Asked { waiter, now, initial_delay: self.settings.initial_delay };
        let size_max = self.settings.size_max;
        match self.classic_for_join(name, now, out) {
            Some(group) => group.join(request, asked, size_max, out),
            None => {
                return out.push(Effect::Answer(
                    waiter,
                    Answer::Joined(Joined::refused(GroupError::InconsistentProtocol, "")),
                ));
            }
        }
        self.reschedule(name);
        self.weigh(name);
    }

    /// A member wants its assignment.
    pub fn sync(&mut self, name: &str, request: SyncRequest, waiter: W, now: u64, out: &mut Vec<Effect<W>>) {
        let error = if name.is_empty() { GroupError::InvalidGroupId } else { GroupError::UnknownMember };
        let answer = |synced| Effect::Answer(waiter, Answer::Synced(synced));
        if let Err(error) = self.check_sync(name, &request) {
            return out.push(answer(Synced::refused(error)));
        }
        let (times, assigns) = (self.consumer_times(name), !request.assignments.is_empty());
        let around = Surroundings { now, topics: &*self.topics, times, settings: &self.settings, sight: Sight::ALL };
        match self.groups.get_mut(name) {
            Some(Kind::Classic(group)) => group.sync(request, waiter, now, out),
            Some(Kind::Consumer(group)) => {
                out.push(answer(group.classic_sync(&request, &around).unwrap_or_else(Synced::refused)))
            }
            Some(Kind::Share(_) | Kind::Streams(_)) | None => out.push(answer(Synced::refused(error))),
        }
        self.reschedule(name);
        if assigns {
            self.weigh(name);
        }
    }

    /// A member is alive.
    ///
    /// # Errors
    /// Also `Rebalancing`: join again.
    pub fn heartbeat(
        &mut self,
        name: &str,
        member_id: &str,
        instance: Option<&str>,
        generation: i32,
        now: u64,
    ) -> Result<(), GroupError> {
        if name.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        let outcome = match self.groups.get_mut(name).ok_or(GroupError::UnknownMember)? {
            Kind::Classic(group) => group.heartbeat(member_id, instance, generation, now),
            Kind::Consumer(group) => group.classic_heartbeat(member_id, instance, generation, now),
            Kind::Share(_) | Kind::Streams(_) => Err(GroupError::UnknownMember),
        };
        self.reschedule(name);
        outcome
    }

    /// Members go.
    ///
    /// # Errors
    /// When there is no such group; else one outcome a member.
    pub fn leave(
        &mut self,
        name: &str,
        members: &[LeaveMember],
        now: u64,
        out: &mut Vec<Effect<W>>,
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        if name.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        let group = match self.groups.get_mut(name).ok_or(GroupError::UnknownMember)? {
            Kind::Classic(group) => group,
            Kind::Consumer(group) => {
                let found: Vec<Result<String, GroupError>> =
                    members.iter().map(|leaving| group.find_leaving(leaving)).collect();
                let leaving: Vec<String> = found.iter().flatten().cloned().collect();
                self.remove_consumers(name, &leaving, now, out);
                self.reschedule(name);
                self.weigh(name);
                return Ok(found.into_iter().map(|found| found.map(drop)).collect());
            }
            Kind::Share(_) | Kind::Streams(_) => return Err(GroupError::UnknownMember),
        };
        let mut outcomes = Vec::new();
        for leaving in members {
            let id = match &leaving.instance {
                Some(instance) if leaving.member_id.is_empty() => group.instances.get(instance).cloned(),
                _ => Some(leaving.member_id.clone()),
            };
            let checked = match &id {
                Some(id) if group.pending.contains_key(id) => Ok(()),
                Some(id) => group.check_member(id, leaving.instance.as_deref()),
                None => Err(GroupError::UnknownMember),
            };
            if let (Ok(()), Some(id)) = (checked, &id) {
                group.leave(id, now, out);
            }
            outcomes.push(checked);
        }
        self.reschedule(name);
        self.weigh(name);
        Ok(outcomes)
    }

    /// May these offsets be committed? One record or refusal each; `Err`: none may.
    ///
    /// # Errors
    /// When the member or its generation is not right.
    #[expect(clippy::type_complexity, reason = "a record is a key and a value")]
    pub fn prepare_commit(
        &mut self,
        name: &str,
        member: Committer<'_>,
        commits: &[Commit],
        now: u64,
    ) -> Result<Vec<Result<(Bytes, Bytes), GroupError>>, GroupError> {
        let limit = self.settings.metadata_bytes_max;
        let refused = self.refused_offsets(name, commits);
        let prepare = |(number, commit): (usize, &Commit)| {
            if commit.offset.metadata.len() > limit {
                return Err(GroupError::MetadataTooLarge);
            }
            if refused.get(number) == Some(&true) {
                return Err(GroupError::NoMemory);
            }
            Ok(offset_record(name, commit))
        };
        let numbered = || commits.iter().enumerate();
        if let Some(Kind::Consumer(group)) = self.groups.get_mut(name) {
            let Some(older) = group.check_commit(&member)? else {
                if group.members.is_empty() {
                    group.emptied_at = now;
                }
                return Ok(numbered().map(prepare).collect());
            };
            let topics = &self.topics;
            let fits = |commit: &Commit| {
                let topic = topics.find(&commit.topic).map(|(id, _)| id);
                older.check_older_commit(member.generation, topic, commit.partition)
            };
            return Ok(numbered()
                .map(|(number, commit)| fits(commit).and_then(|()| prepare((number, commit))))
                .collect());
        }
        if let Some(Kind::Streams(group)) = self.groups.get_mut(name) {
            let Some(older) = group.check_commit(&member)? else {
                if group.members.is_empty() {
                    group.emptied_at = now;
                }
                return Ok(numbered().map(prepare).collect());
            };
            let readers = group.topology.as_ref().map(|topology| topology.readers()).unwrap_or_default();
            let fits = |commit: &Commit| {
                older.check_older_commit(
                    member.generation,
                    readers.get(commit.topic.as_str()).copied(),
                    commit.partition,
                )
            };
            return Ok(numbered()
                .map(|(number, commit)| fits(commit).and_then(|()| prepare((number, commit))))
                .collect());
        }
        if let Some(Kind::Share(_)) = self.groups.get(name) {
            return Err(GroupError::GroupNotFound);
        }
        self.check_commit(name, member, now)?;
        Ok(numbered().map(prepare).collect())
    }

    fn check_commit(&mut self, name: &str, member: Committer<'_>, now: u64) -> Result<(), GroupError> {
        let Committer { member_id, instance, generation, transactional, knows_epochs } = member;
        if name.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        let Some(Kind::Classic(group)) = self.groups.get_mut(name) else {
            if generation >= 0 {
                return Err(if knows_epochs { GroupError::GroupNotFound } else { GroupError::IllegalGeneration });
            }
            self.check_new_group(name)?;
            self.groups.insert(name.to_owned(), Kind::Classic(Box::new(Group::new(name, now))));
            self.weigh(name);
            return Ok(());
        };
        if transactional && generation < 0 && member_id.is_empty() && instance.is_none() {
            return Ok(());
        }
        if generation < 0 && group.state == GroupState::Empty {
            group.emptied_at = now;
            return Ok(());
        }
        group.check_member(member_id, instance)?;
        if generation != group.generation {
            return Err(GroupError::IllegalGeneration);
        }
        if group.state == GroupState::CompletingRebalance {
            return Err(GroupError::Rebalancing);
        }
        if let Some(member) = group.members.get_mut(member_id) {
            member.expires = now + member.session_timeout;
        }
        self.reschedule(name);
        Ok(())
    }

    /// Enters an offset that is durable. A group that was deleted meanwhile is there again.
    pub fn apply_commit(&mut self, name: &str, commit: Commit) {
        if !self.groups.contains_key(name) {
            self.groups.insert(name.to_owned(), Kind::Classic(Box::new(Group::new(name, commit.offset.committed_at))));
            self.weigh(name);
        }
        self.put_offset(name, commit.topic, commit.partition, commit.offset);
    }

    /// One committed offset.
    pub fn offset(&self, group: &str, topic: &str, partition: u32) -> Option<CommittedOffset> {
        self.offsets.get(group)?.get(&(topic.to_owned(), partition)).cloned()
    }

    /// All committed offsets of a group.
    pub fn offsets(&self, group: &str) -> Vec<(String, u32, CommittedOffset)> {
        let all = self.offsets.get(group).into_iter().flatten();
        all.map(|((topic, partition), offset)| (topic.clone(), *partition, offset.clone())).collect()
    }

    /// How many they are.
    pub fn offset_count(&self, group: &str) -> usize {
        self.offsets.get(group).map_or(0, BTreeMap::len)
    }

    /// Has a group committed an offset of this topic?
    pub fn has_offsets_of(&self, group: &str, topic: &str) -> bool {
        let Some(all) = self.offsets.get(group) else { return false };
        all.range((topic.to_owned(), 0)..).next().is_some_and(|((found, _), _)| found == topic)
    }

    /// Names of all groups.
    pub fn names(&self) -> Vec<String> {
        self.groups.keys().cloned().collect()
    }

    /// A classic group as it stands.
    pub fn describe(&self, name: &str) -> Option<GroupSummary<W>> {
        let Kind::Classic(group) = self.groups.get(name)? else { return None };
        Some(GroupSummary {
            group: name.to_owned(),
            state: group.state,
            protocol_type: group.protocol_type.clone().unwrap_or_default(),
            protocol: group.protocol.clone().unwrap_or_default(),
            members: group.members.values().cloned().collect(),
        })
    }

    /// Deletes a group without members; returns the keys to be removed.
    ///
    /// # Errors
    /// `GroupNotFound`, `NonEmptyGroup`, `InvalidGroupId`.
    pub fn delete(&mut self, name: &str) -> Result<Vec<Bytes>, GroupError> {
        let group = self.groups.get(name).ok_or(GroupError::GroupNotFound)?;
        if !group.is_empty() {
            return Err(GroupError::NonEmptyGroup);
        }
        let own = group.keys();
        self.groups.remove(name);
        self.reschedule(name);
        self.weigh(name);
        let offsets = self.offsets.remove(name).unwrap_or_default();
        self.note_all_removed(name, &offsets);
        let keys = offsets.into_keys().map(|(topic, partition)| offset_key(name, &topic, partition));
        Ok(keys.chain(own).collect())
    }

    /// Deletes offsets of one topic; `subscribed` says whether a member reads it. Returns the key to be removed.
    ///
    /// # Errors
    /// `Subscribed`, `GroupNotFound`.
    pub fn delete_offset(
        &mut self,
        name: &str,
        topic: &str,
        partition: u32,
        subscribed: bool,
    ) -> Result<Option<Bytes>, GroupError> {
        if let None | Some(Kind::Share(_)) = self.groups.get(name) {
            return Err(GroupError::GroupNotFound);
        }
        if subscribed {
            return Err(GroupError::Subscribed);
        }
        let removed = self.offsets.get_mut(name).and_then(|offsets| offsets.remove(&(topic.to_owned(), partition)));
        Ok(removed.map(|offset| {
            self.note_removed(topic, &offset);
            if !self.has_offsets_of(name, topic) {
                self.readers.remove(name, topic);
            }
            offset_key(name, topic, partition)
        }))
    }

    /// Topics of which groups have committed offsets.
    pub fn topics_with_offsets(&self) -> Vec<Arc<str>> {
        self.readers.topics()
    }

    /// Keys of what is committed of a topic.
    pub fn offset_keys(&self, topic: &str) -> Vec<Bytes> {
        let all = (topic.to_owned(), 0)..=(topic.to_owned(), u32::MAX);
        let of_group = |group: Arc<str>| -> Vec<Bytes> {
            let own = self.offsets.get(&group).into_iter().flat_map(|offsets| offsets.range(all.clone()));
            own.map(|((_, partition), _)| offset_key(&group, topic, *partition)).collect()
        };
        self.readers.of(topic).into_iter().flat_map(of_group).collect()
    }

    /// Forgets all offsets of a topic that is deleted; returns the keys to be removed. Takes no longer for groups that have none of it.
    pub fn forget_topic(&mut self, topic: &str) -> Vec<Bytes> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let all = (topic.to_owned(), 0)..=(topic.to_owned(), u32::MAX);
        for group in self.readers.of(topic) {
            self.readers.remove(&group, topic);
            let Some(offsets) = self.offsets.get_mut(&group) else { continue };
            for ((_, partition), offset) in offsets.extract_if(all.clone(), |_, _| true) {
                bytes += weight::offset(topic, &offset.metadata);
                keys.push(offset_key(&group, topic, partition));
            }
        }
        self.bytes -= bytes;
        keys
    }

    /// Looks at the groups behind `after`, in the order of their names, at most at so many. Forgets offsets of those that have been empty
    /// for longer than offsets are kept, and groups that have been empty for a minute and have none; not those that are spared, because offsets
    /// of theirs are under way.
    pub fn expire(&mut self, now: u64, after: &str, most: usize, spared: impl Fn(&str) -> bool) -> Expired {
        let (before, recently) =
            (now.saturating_sub(self.settings.offsets_retention), now.saturating_sub(WITHOUT_OFFSETS_MS));
        let mut expired = Expired { keys: Vec::new(), after: Some(after.to_owned()) };
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        let looked_at: Vec<(String, Option<u64>)> = self
            .groups
            .range::<str, _>(behind)
            .take(most)
            .map(|(name, group)| (name.clone(), group.expires_from()))
            .collect();
        let all = looked_at.len() < most;
        for (name, emptied) in looked_at {
            let old = |emptied: u64| {
                emptied <= before
                    || emptied <= recently && self.offsets.get(name.as_str()).is_none_or(BTreeMap::is_empty)
            };
            if let Some(emptied) = emptied.filter(|emptied| old(*emptied) && !spared(&name)) {
                self.expire_group(&name, emptied, before, &mut expired.keys);
                if expired.keys.len() >= KEYS_AT_ONCE {
                    // The rest of this one is looked at again.
                    return expired;
                }
            }
            expired.after = Some(name);
        }
        if all {
            expired.after = None;
        }
        expired
    }

    /// Forgets what is too old of a group that has been empty since `emptied`; leaves some when there is much.
    fn expire_group(&mut self, name: &str, emptied: u64, before: u64, keys: &mut Vec<Bytes>) {
        let (mut bytes, mut topics) = (0, BTreeSet::new());
        if let Some(offsets) = self.offsets.get_mut(name) {
            let old = offsets.extract_if(.., |_, offset| offset.committed_at.max(emptied) <= before);
            let left = KEYS_AT_ONCE.saturating_sub(keys.len());
            keys.extend(old.take(left).map(|((topic, partition), offset)| {
                bytes += weight::offset(&topic, &offset.metadata);
                let key = offset_key(name, &topic, partition);
                topics.insert(topic);
                key
            }));
        }
        self.bytes -= bytes;
        topics.retain(|topic| !self.has_offsets_of(name, topic));
        topics.iter().for_each(|topic| self.readers.remove(name, topic));
        if self.offsets.get(name).is_none_or(BTreeMap::is_empty) {
            keys.extend(self.groups.remove(name).into_iter().flat_map(|group| group.keys()));
            self.offsets.remove(name);
            self.reschedule(name);
            self.weigh(name);
        }
    }
}
