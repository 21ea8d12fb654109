//! One share group's members (KIP-932): who reads which partitions. Partitions have several readers, so nobody has to give
//! anything up before somebody else begins: a member has its target as soon as it hears of it. What becomes of the records is not
//! decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::TopicId;

use crate::GroupError;
use crate::assignors::{Subscriber, Targets, simple};
use crate::consumer_group::{HeartbeatAnswer, Surroundings};
use crate::consumer_record::{key_of_group, key_of_member, put_target, put_topics, take_target, take_topics};
use crate::group::Effect;
use crate::record::{put, put_option, take_option, take_text};
use crate::sight::{Mention, Sight, Views, targeted, targeted_hash};
use crate::topology::{Owned, Target, Topics, target_hash};
use crate::weight;

/// First byte of the key of a share group, and of its members.
pub(crate) const GROUP: u8 = b'h';
pub(crate) const MEMBER: u8 = b'i';
const VERSION: u8 = 1;

/// A member of a share group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareMember {
    /// Its own choice.
    pub id: String,
    /// Of the target that it has.
    pub epoch: i32,
    /// The one before: the answer with the newer one may have got lost.
    pub previous_epoch: i32,
    /// Where it is.
    pub rack: Option<String>,
    /// As the client says.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// Topics that it names. Copies of a member share them, as they do what it has: each heartbeat compares a member with what it was.
    pub topics: Arc<BTreeSet<String>>,
    /// Of these, those that are there and that it may not see. Not kept: it is known again with its next heartbeat.
    pub hidden: Arc<BTreeSet<String>>,
    /// What it reads.
    pub assigned: Arc<Target>,
}

/// A heartbeat of a member of a share group; what did not change since the last one is `None`.
#[derive(Clone, Debug, Default)]
pub struct ShareHeartbeat {
    /// The member's choice.
    pub member_id: String,
    /// 0 joins, −1 leaves.
    pub epoch: i32,
    /// Where the member is.
    pub rack: Option<String>,
    /// Names of topics.
    pub topics: Option<Vec<String>>,
    /// As the client says.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
}

/// A share group.
#[derive(Clone, Debug)]
pub struct ShareGroup {
    pub(crate) name: String,
    pub(crate) epoch: i32,
    pub(crate) assignment_epoch: i32,
    assigned_at: u64,
    topics_hash: u64,
    pub(crate) members: BTreeMap<String, ShareMember>,
    targets: Targets,
    /// When a member is out.
    sessions: BTreeMap<String, u64>,
    /// No session ends before this.
    wakes_at: Option<u64>,
    seen: Option<u64>,
    views: Views,
}

impl ShareGroup {
    /// Bytes of memory that it takes, about, without what all groups have.
    pub(crate) fn weight(&self) -> usize {
        weight::sharers(self.members.values(), &self.targets)
    }

    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            // Never 0: that is what joining members say.
            epoch: 1,
            assignment_epoch: 0,
            assigned_at: 0,
            topics_hash: 0,
            members: BTreeMap::new(),
            targets: Targets::new(),
            sessions: BTreeMap::new(),
            wakes_at: None,
            seen: None,
            views: Views::default(),
        }
    }

    /// Kafka's name for where the group stands.
    pub(crate) fn state(&self) -> &'static str {
        if self.members.is_empty() { "Empty" } else { "Stable" }
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.wakes_at
    }

    fn expect(&mut self, id: &str, until: u64) {
        self.sessions.insert(id.to_owned(), until);
        self.wakes_at = self.wakes_at.into_iter().chain([until]).min();
    }

    /// Members whose sessions are over.
    pub(crate) fn expired(&mut self, now: u64) -> Vec<String> {
        let (over, live): (Vec<_>, Vec<_>) = self.sessions.iter().partition(|(_, until)| **until <= now);
        let expired = over.into_iter().map(|(id, _)| id.clone()).collect();
        self.wakes_at = live.into_iter().map(|(_, until)| *until).min();
        expired
    }

    fn targets_hash(&self) -> u64 {
        self.targets.iter().fold(0, |sum, (id, target)| sum ^ target_hash(id, target))
    }

    /// After a restart members have a whole session. Targets that are not those of the group's record were being written when the
    /// broker stopped, and are computed again.
    pub(crate) fn resume(&mut self, now: u64, session_timeout: u64, recorded: Option<u64>) {
        let ids: Vec<String> = self.members.keys().cloned().collect();
        self.views.resume(ids.iter().cloned());
        ids.iter().for_each(|id| self.expect(id, now + session_timeout));
        if recorded != Some(self.targets_hash()) {
            self.topics_hash = !self.topics_hash;
        }
    }

    /// A heartbeat that is not a farewell. Nothing has changed when it is refused.
    pub(crate) fn heartbeat<W>(
        &mut self,
        request: &ShareHeartbeat,
        around: &Surroundings<'_>,
        out: &mut Vec<Effect<W>>,
    ) -> Result<HeartbeatAnswer, GroupError> {
        let id = &request.member_id;
        self.look(around.topics, Some(&around.sight));
        let known = self.members.get(id);
        if known.is_none() && self.members.len() >= around.settings.share_size_max {
            return Err(GroupError::GroupFull);
        }
        let before = match known {
            Some(member) if [0, member.epoch, member.previous_epoch].contains(&request.epoch) => member.clone(),
            Some(_) => return Err(GroupError::FencedEpoch),
            None if request.epoch == 0 => ShareMember { id: id.clone(), ..ShareMember::default() },
            None => return Err(GroupError::UnknownMember),
        };
        let mut updated = before.clone();
        updated.rack = request.rack.clone().or(updated.rack);
        updated.topics =
            request.topics.as_ref().map_or(updated.topics, |topics| Arc::new(topics.iter().cloned().collect()));
        updated.client_id.clone_from(&request.client_id);
        updated.host.clone_from(&request.host);
        let mut changed = BTreeSet::new();
        if known != Some(&updated) {
            changed.insert(id.clone());
        }
        let sees_others = self.hide(&before, &mut updated, around);
        let resubscribed = updated.topics != before.topics || sees_others;
        self.members.insert(id.clone(), updated);
        let epochs = (self.epoch, self.assignment_epoch);
        self.update_epoch(resubscribed, around);
        changed.extend(self.update_target(around));
        let updated = self.follow(id, resubscribed, around.topics);
        if updated != before {
            changed.insert(id.clone());
        }
        changed.iter().for_each(|id| self.persist_member(id, out));
        if epochs != (self.epoch, self.assignment_epoch) {
            self.persist_group(out);
        }
        self.expect(id, around.now + around.times.session_timeout);
        let told = request.epoch == 0 || request.topics.is_some() || before.assigned != updated.assigned;
        Ok(HeartbeatAnswer {
            member_id: id.clone(),
            epoch: updated.epoch,
            interval: around.times.heartbeat_interval,
            assignment: told.then(|| Target::clone(&updated.assigned)),
        })
    }

    fn update_epoch(&mut self, resubscribed: bool, around: &Surroundings<'_>) {
        let version = around.topics.version();
        if !resubscribed && self.seen == Some(version) {
            return;
        }
        let (news, hash) = (self.views.take_news(), targeted_hash(&self.targets, around.topics));
        if resubscribed || news || hash != self.topics_hash {
            self.epoch += 1;
            self.topics_hash = hash;
        }
        self.seen = Some(version);
    }

    /// Looks at the topics as they are, if they have changed, and at what the members may see of what is new.
    fn look(&mut self, topics: &dyn Topics, sight: Option<&Sight<'_>>) {
        if self.views.is_current(topics) {
            return;
        }
        let fresh = self.views.look(self.members.values().flat_map(|member| &*member.topics), topics);
        if fresh.is_empty() {
            return;
        }
        let all = targeted(&self.targets);
        for member in self.members.values_mut() {
            let own = fresh.iter().filter(|name| member.topics.contains(*name)).map(|name| (name, Mention::Named));
            let hidden = &mut member.hidden;
            let hide = |name: &str| {
                Arc::make_mut(hidden).insert(name.to_owned());
            };
            self.views.judge(&member.id, hide, own, (sight, topics, &all));
        }
    }

    /// Finds out which of the topics that a member names it may not see. Does it read others than before because of that?
    fn hide(&mut self, before: &ShareMember, updated: &mut ShareMember, around: &Surroundings<'_>) -> bool {
        let (topics, sight) = (around.topics, &around.sight);
        if before.topics == updated.topics && self.views.is_as_before(&updated.id, sight, topics) {
            return false;
        }
        let named: Vec<&String> = updated.topics.iter().filter(|name| topics.find(name).is_some()).collect();
        self.views.note_present(named.iter().copied().cloned());
        let hidden = named
            .iter()
            .copied()
            .filter(|name| sight.sees.is_some_and(|sees| !sees(name, Mention::Named)))
            .cloned()
            .collect();
        let others =
            self.views.hear(&updated.id, (&*before.hidden, &hidden), named.into_iter(), sight, (topics, &self.targets));
        updated.hidden = Arc::new(hidden);
        others
    }

    /// Ids of the topics that a member reads and that exist.
    fn reads(&self, member: &ShareMember, topics: &dyn Topics) -> BTreeMap<TopicId, u32> {
        let seen =
            member.topics.iter().filter(|name| !member.hidden.contains(*name)).filter_map(|name| topics.find(name));
        if !self.views.is_unheard(&member.id) {
            return seen.collect();
        }
        let own = self.targets.get(&member.id);
        seen.filter(|(topic, _)| own.is_some_and(|own| own.contains_key(topic))).collect()
    }

    /// Computes a target for the group's epoch, if it has none and it is time; the members whose target changed.
    fn update_target(&mut self, around: &Surroundings<'_>) -> Vec<String> {
        let early = self.assigned_at > 0 && around.now < self.assigned_at + around.times.assignment_interval;
        if self.assignment_epoch >= self.epoch || early {
            return Vec::new();
        }
        let mut partitions = BTreeMap::new();
        let mut subscribers = Vec::with_capacity(self.members.len());
        for member in self.members.values() {
            let reads = self.reads(member, around.topics);
            let topics = reads.keys().copied().collect();
            partitions.extend(reads);
            subscribers.push(Subscriber { id: member.id.clone(), instance: None, topics, has: Owned::new() });
        }
        let targets = simple(&subscribers, &partitions, &self.targets);
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

    /// Gives a member its target.
    fn follow(&mut self, id: &str, resubscribed: bool, topics: &dyn Topics) -> ShareMember {
        let reads = self
            .members
            .get(id)
            .filter(|member| member.epoch != self.assignment_epoch || resubscribed)
            .map(|member| self.reads(member, topics));
        let Some(member) = self.members.get_mut(id) else { return ShareMember::default() };
        if let Some(reads) = reads {
            let target = self.targets.get(id).into_iter().flatten();
            member.assigned = Arc::new(
                target
                    .filter(|(topic, _)| reads.contains_key(*topic))
                    .map(|(topic, set)| (*topic, set.clone()))
                    .collect(),
            );
        }
        if member.epoch != self.assignment_epoch {
            (member.previous_epoch, member.epoch) = (member.epoch, self.assignment_epoch);
        }
        member.clone()
    }

    /// Members go.
    pub(crate) fn remove<W>(&mut self, ids: &[String], topics: &dyn Topics, out: &mut Vec<Effect<W>>) {
        let mut any = false;
        for id in ids {
            self.sessions.remove(id);
            self.targets.remove(id);
            self.views.forget(id);
            if self.members.remove(id).is_some() {
                out.push(Effect::Persist(key_of_member(MEMBER, &self.name, id), None));
                any = true;
            }
        }
        if any {
            self.look(topics, None);
            self.views.take_news();
            self.topics_hash = targeted_hash(&self.targets, topics);
            self.epoch += 1;
            self.persist_group(out);
        }
    }

    pub(crate) fn persist_all<W>(&self, out: &mut Vec<Effect<W>>) {
        self.members.keys().for_each(|id| self.persist_member(id, out));
        self.persist_group(out);
    }

    fn persist_member<W>(&self, id: &str, out: &mut Vec<Effect<W>>) {
        let Some(member) = self.members.get(id) else { return };
        let mut value = BytesMut::new();
        value.put_u8(VERSION);
        value.put_i32(member.epoch);
        value.put_i32(member.previous_epoch);
        put_option(&mut value, member.rack.as_deref());
        put(&mut value, member.client_id.as_bytes());
        put(&mut value, member.host.as_bytes());
        put_topics(&mut value, &member.topics);
        put_target(&mut value, &member.assigned);
        put_target(&mut value, self.targets.get(id).unwrap_or(&Target::new()));
        out.push(Effect::Persist(key_of_member(MEMBER, &self.name, id), Some(value.freeze())));
    }

    fn persist_group<W>(&self, out: &mut Vec<Effect<W>>) {
        let mut value = BytesMut::new();
        value.put_u8(VERSION);
        value.put_i32(self.epoch);
        value.put_i32(self.assignment_epoch);
        for number in [self.assigned_at, self.topics_hash, self.targets_hash()] {
            value.put_u64(number);
        }
        out.push(Effect::Persist(key_of_group(GROUP, &self.name), Some(value.freeze())));
    }

    /// Keys of its records.
    pub(crate) fn keys(&self) -> Vec<Bytes> {
        let members = self.members.keys().map(|id| key_of_member(MEMBER, &self.name, id));
        members.chain([key_of_group(GROUP, &self.name)]).collect()
    }

    /// Takes the group's own record over; the hash of the targets as it was recorded.
    pub(crate) fn restore(&mut self, mut from: &[u8]) -> Option<u64> {
        (from.try_get_u8().ok()? == VERSION).then_some(())?;
        self.epoch = from.try_get_i32().ok()?;
        self.assignment_epoch = from.try_get_i32().ok()?;
        self.assigned_at = from.try_get_u64().ok()?;
        self.topics_hash = from.try_get_u64().ok()?;
        from.try_get_u64().ok()
    }

    pub(crate) fn restore_member(&mut self, id: &str, mut from: &[u8]) -> Option<()> {
        (from.try_get_u8().ok()? == VERSION).then_some(())?;
        let member = ShareMember {
            id: id.to_owned(),
            epoch: from.try_get_i32().ok()?,
            previous_epoch: from.try_get_i32().ok()?,
            rack: take_option(&mut from)?,
            client_id: take_text(&mut from)?,
            host: take_text(&mut from)?,
            topics: Arc::new(take_topics(&mut from)?),
            hidden: Arc::default(),
            assigned: Arc::new(take_target(&mut from)?),
        };
        let target = take_target(&mut from)?;
        self.targets.insert(id.to_owned(), target);
        self.members.insert(id.to_owned(), member);
        Some(())
    }
}
