//! The account of the groups' memory. A group is weighed again when its members have changed, an offset counts from when it takes effect.
//! Beyond the bound no group, member or offset is taken that would be new; what is there goes on, and has a quarter more for what members say
//! of themselves again and what they are assigned. What comes back from the journal at a start is taken whatever it weighs.

use std::collections::btree_map::Entry;

use super::{Commit, GroupCoordinator, Offsets};
use crate::GroupError;
use crate::consumer_group::ConsumerHeartbeat;
use crate::group::{JoinRequest, SyncRequest};
use crate::kinds::Kind;
use crate::offsets::CommittedOffset;
use crate::share_group::ShareHeartbeat;
use crate::streams_group::StreamsHeartbeat;
use crate::weight;

impl<W: Copy> GroupCoordinator<W> {
    /// Bytes of memory that groups may take, about.
    pub fn set_bytes_max(&mut self, bytes: usize) {
        self.bytes_max = bytes;
    }

    /// Bytes of memory that they take, about.
    pub fn bytes(&self) -> usize {
        self.bytes + self.readers.weight()
    }

    /// Bytes of memory that a group takes without its offsets, about: so large is what describes it, too.
    pub fn weight_of(&self, group: &str) -> usize {
        self.weights.get(group).copied().unwrap_or(0)
    }

    /// How often something was refused because they take as much as they may.
    pub fn refused_for_memory(&self) -> u64 {
        self.refused
    }

    /// The members of a group have changed, or it is new or gone.
    pub(crate) fn weigh(&mut self, name: &str) {
        let Some(found) = self.groups.get(name) else {
            self.bytes -= self.weights.remove(name).unwrap_or(0);
            return;
        };
        let now = weight::group(name, found.weight());
        let before = match self.weights.get_mut(name) {
            Some(weight) => std::mem::replace(weight, now),
            None => {
                self.weights.insert(name.to_owned(), now);
                0
            }
        };
        self.bytes = self.bytes + now - before;
    }

    /// All of them.
    pub(crate) fn weigh_all(&mut self) {
        let names: Vec<String> = self.groups.keys().cloned().collect();
        names.iter().for_each(|name| self.weigh(name));
    }

    pub(super) fn put_offset(&mut self, group: &str, topic: String, partition: u32, offset: CommittedOffset) {
        self.bytes += weight::offset(&topic, &offset.metadata);
        let offsets = match self.offsets.get_mut(group) {
            Some(offsets) => offsets,
            None => self.offsets.entry(group.into()).or_default(),
        };
        let name_bytes = topic.len();
        let topic = match offsets.entry((topic, partition)) {
            Entry::Occupied(mut known) => {
                self.bytes -= weight::offset("", &known.insert(offset).metadata) + name_bytes;
                return;
            }
            Entry::Vacant(new) => {
                let topic = new.key().0.clone();
                new.insert(offset);
                topic
            }
        };
        if let Some((group, _)) = self.offsets.get_key_value(group) {
            self.readers.insert(group, &topic);
        }
    }

    /// An offset is gone.
    pub(super) fn note_removed(&mut self, topic: &str, offset: &CommittedOffset) {
        self.bytes -= weight::offset(topic, &offset.metadata);
    }

    /// All offsets of a group are gone.
    pub(super) fn note_all_removed(&mut self, group: &str, offsets: &Offsets) {
        for ((topic, _), offset) in offsets {
            self.note_removed(topic, offset);
            self.readers.remove(group, topic);
        }
    }

    /// May something that takes `known` bytes, if it is there, take as many as this?
    fn admits(&mut self, known: usize, wanted: usize) -> bool {
        let max = if known > 0 { self.bytes_max.saturating_add(self.bytes_max / 4) } else { self.bytes_max };
        let admits = wanted <= known || self.bytes() + (wanted - known) <= max;
        self.refused += u64::from(!admits);
        admits
    }

    fn check(&mut self, known: usize, wanted: usize, error: GroupError) -> Result<(), GroupError> {
        if self.admits(known, wanted) { Ok(()) } else { Err(error) }
    }

    /// # Errors
    /// `GroupFull`
    pub(super) fn check_join(&mut self, name: &str, request: &JoinRequest) -> Result<(), GroupError> {
        let known = match self.groups.get(name) {
            Some(Kind::Classic(group)) => {
                let id = request
                    .instance
                    .as_ref()
                    .and_then(|instance| group.instances.get(instance))
                    .unwrap_or(&request.member_id);
                group.members.get(id).map_or(0, |member| weight::MEMBER + weight::protocols(&member.protocols))
            }
            Some(Kind::Consumer(group)) => {
                let id = request
                    .instance
                    .as_ref()
                    .and_then(|instance| group.instances.get(instance))
                    .unwrap_or(&request.member_id);
                let member = group.members.get(id).and_then(|member| member.classic.as_ref());
                member.map_or(0, |classic| weight::MEMBER + weight::protocols(&classic.protocols))
            }
            Some(Kind::Share(_) | Kind::Streams(_)) | None => 0,
        };
        self.check(known, weight::MEMBER + weight::protocols(&request.protocols), GroupError::GroupFull)
    }

    /// # Errors
    /// `NoMemory`
    pub(super) fn check_sync(&mut self, name: &str, request: &SyncRequest) -> Result<(), GroupError> {
        if request.assignments.is_empty() {
            return Ok(());
        }
        let bytes: usize = request.assignments.iter().map(|(_, assignment)| assignment.len()).sum();
        let known = match self.groups.get(name) {
            Some(Kind::Classic(group)) => {
                group.members.values().map(|member| member.assignment.len()).sum::<usize>().max(1)
            }
            _ => 0,
        };
        self.check(known, bytes, GroupError::NoMemory)
    }

    /// # Errors
    /// `GroupFull`
    pub(crate) fn check_consumer(&mut self, name: &str, request: &ConsumerHeartbeat) -> Result<(), GroupError> {
        if request.epoch != 0 && request.topics.is_none() && request.regex.is_none() {
            return Ok(());
        }
        let known = match self.groups.get(name) {
            Some(Kind::Consumer(group)) => {
                let id = request
                    .instance
                    .as_ref()
                    .and_then(|instance| group.instances.get(instance))
                    .unwrap_or(&request.member_id);
                group.members.get(id)
            }
            _ => None,
        };
        let said =
            known.map_or(0, |member| weight::MEMBER + weight::subscription(member.topics.len(), member.regex.as_ref()));
        let topics = request.topics.as_ref().map_or_else(|| known.map_or(0, |member| member.topics.len()), Vec::len);
        let regex = request.regex.as_ref().or_else(|| known.and_then(|member| member.regex.as_ref()));
        let wanted = weight::MEMBER + weight::subscription(topics, regex);
        self.check(said, wanted, GroupError::GroupFull)
    }

    /// # Errors
    /// `GroupFull`
    pub(crate) fn check_share(&mut self, name: &str, request: &ShareHeartbeat) -> Result<(), GroupError> {
        let Some(topics) = request.topics.as_ref().map(Vec::len).or((request.epoch == 0).then_some(0)) else {
            return Ok(());
        };
        let known = match self.groups.get(name) {
            Some(Kind::Share(group)) => group.members.get(&request.member_id),
            _ => None,
        };
        let known = known.map_or(0, |member| weight::MEMBER + weight::subscription(member.topics.len(), None));
        self.check(known, weight::MEMBER + weight::subscription(topics, None), GroupError::GroupFull)
    }

    /// # Errors
    /// `GroupFull`
    pub(crate) fn check_streams(&mut self, name: &str, request: &StreamsHeartbeat) -> Result<(), GroupError> {
        if request.epoch != 0 && request.topology.is_none() && request.tags.is_none() {
            return Ok(());
        }
        let (member, topology) = match self.groups.get(name) {
            Some(Kind::Streams(group)) => (group.members.get(&request.member_id), group.topology.as_deref()),
            _ => (None, None),
        };
        let known = member.map_or(0, weight::streams_member) + topology.map_or(0, weight::topology);
        let tags: usize = request.tags.iter().flatten().map(|(name, value)| weight::offset(name, value)).sum();
        let wanted = weight::MEMBER + tags + request.topology.as_ref().or(topology).map_or(0, weight::topology);
        self.check(known, wanted, GroupError::GroupFull)
    }

    /// A group that there is not yet.
    ///
    /// # Errors
    /// `NoMemory`
    pub(crate) fn check_new_group(&mut self, name: &str) -> Result<(), GroupError> {
        self.check(0, weight::group(name, 0), GroupError::NoMemory)
    }

    /// Which of these offsets are refused, because they would be new; none: all may be committed.
    pub(super) fn refused_offsets(&mut self, name: &str, commits: &[Commit]) -> Vec<bool> {
        let of = |commit: &Commit| weight::offset(&commit.topic, &commit.offset.metadata);
        let mut left = self.bytes_max.saturating_sub(self.bytes());
        // Which of them are there already matters only where there is little room.
        if commits.iter().map(of).sum::<usize>() <= left {
            return Vec::new();
        }
        let there = self.offsets.get(name);
        let refused = commits.iter().map(|commit| {
            let is_there = there.is_some_and(|there| there.contains_key(&(commit.topic.clone(), commit.partition)));
            let fits = is_there || of(commit) <= left;
            left -= if fits && !is_there { of(commit) } else { 0 };
            !fits
        });
        let refused: Vec<bool> = refused.collect();
        self.refused += refused.iter().filter(|refused| **refused).count() as u64;
        refused
    }
}

#[cfg(test)]
mod tests;
