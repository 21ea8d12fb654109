//! Streams groups as keyed records, big-endian; text, opt and lists as in the records of consumer groups.
//!
//! ```text
//! key "u" group           value u8 version (1), i32 epoch, i32 assignment epoch, u64 assigned at, u64 hash of topics,
//!                               u64 hash of targets, u64 emptied at, i32 epoch of the topology that has been found good (−1: none),
//!                               i32 standbys that the target counts on (−1: none yet), opt member that wants all to stop
//! key "v" u16 length, group, member id
//!                         value u8 version (1), i32 epoch, i32 previous epoch, u8 state (0 stable, 1 unrevoked, 2 unreleased),
//!                               opt rack, client id, host, u64 rebalance timeout, i32 epoch of its topology, process,
//!                               u8 1 if it has an endpoint, and then host, u16 port; u32 count of tags: name, value;
//!                               held tasks assigned, held tasks being given up, tasks of the target (active, standby);
//!                               opt user (what earlier releases have written ends before)
//! key "w" group           value u8 version (1), i32 epoch, u32 count of subtopologies: id, texts sources, texts sinks, topics
//!                               repartition, topics changelogs, u32 count of copartition groups: two times u32 count of u16
//! tasks: u32 count of subtopologies: id, u32 count of u32 partition; held tasks: the same with i32 epoch each (active), tasks (standby)
//! topics: u32 count: name, u32 partitions, i16 replication, u32 count of settings: name, value; texts: u32 count of text
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::consumer_record::{key_of_group, key_of_member};
use crate::group::Effect;
use crate::reconcile::MemberState;
use crate::record::{put, put_option, take_option, take_text};
use crate::streams_assignor::{TaskSets, Tasks};
use crate::streams_group::{HeldTasks, StreamsGroup, StreamsMember};
use crate::streams_topology::{CopartitionGroup, InternalTopic, StreamsTopology, Subtopology};

const VERSION: u8 = 1;

/// First byte of the key of a streams group, of its members, and of its topology.
pub(crate) const GROUP: u8 = b'u';
pub(crate) const MEMBER: u8 = b'v';
pub(crate) const TOPOLOGY: u8 = b'w';

fn put_text(out: &mut BytesMut, text: &str) {
    put(out, text.as_bytes());
}

fn put_list<T>(out: &mut BytesMut, list: impl ExactSizeIterator<Item = T>, one: impl Fn(&mut BytesMut, T)) {
    out.put_u32(list.len() as u32);
    list.for_each(|item| one(out, item));
}

/// No room is made ahead: what is not there ends the list.
fn take_list<T, C: Default + Extend<T>>(from: &mut &[u8], one: impl Fn(&mut &[u8]) -> Option<T>) -> Option<C> {
    let mut list = C::default();
    for _ in 0..from.try_get_u32().ok()? {
        list.extend([one(from)?]);
    }
    Some(list)
}

fn put_pair(out: &mut BytesMut, (name, value): (&String, &String)) {
    put_text(out, name);
    put_text(out, value);
}

fn take_pair(from: &mut &[u8]) -> Option<(String, String)> {
    Some((take_text(from)?, take_text(from)?))
}

fn put_tasks(out: &mut BytesMut, tasks: &Tasks) {
    put_list(out, tasks.iter(), |out, (id, partitions)| {
        put_text(out, id);
        put_list(out, partitions.iter(), |out, partition| out.put_u32(*partition));
    });
}

fn take_tasks(from: &mut &[u8]) -> Option<Tasks> {
    take_list(from, |from| {
        Some((take_text(from)?, take_list::<u32, BTreeSet<u32>>(from, |from| from.try_get_u32().ok())?))
    })
}

fn put_held(out: &mut BytesMut, held: &HeldTasks) {
    put_list(out, held.active.iter(), |out, (id, partitions)| {
        put_text(out, id);
        put_list(out, partitions.iter(), |out, (partition, epoch)| {
            out.put_u32(*partition);
            out.put_i32(*epoch);
        });
    });
    put_tasks(out, &held.standby);
}

fn take_held(from: &mut &[u8]) -> Option<HeldTasks> {
    let since = |from: &mut &[u8]| Some((from.try_get_u32().ok()?, from.try_get_i32().ok()?));
    let active = take_list(from, |from| Some((take_text(from)?, take_list::<_, BTreeMap<u32, i32>>(from, since)?)))?;
    Some(HeldTasks { active, standby: take_tasks(from)? })
}

fn put_topic(out: &mut BytesMut, topic: &InternalTopic) {
    put_text(out, &topic.name);
    out.put_u32(topic.partitions);
    out.put_i16(topic.replication);
    put_list(out, topic.configs.iter(), |out, (name, value)| put_pair(out, (name, value)));
}

fn take_topic(from: &mut &[u8]) -> Option<InternalTopic> {
    Some(InternalTopic {
        name: take_text(from)?,
        partitions: from.try_get_u32().ok()?,
        replication: from.try_get_i16().ok()?,
        configs: take_list(from, take_pair)?,
    })
}

fn put_subtopology(out: &mut BytesMut, (id, one): (&String, &Subtopology)) {
    put_text(out, id);
    for names in [&one.sources, &one.sinks] {
        put_list(out, names.iter(), |out, name| put_text(out, name));
    }
    for topics in [&one.repartition, &one.changelogs] {
        put_list(out, topics.iter(), put_topic);
    }
    put_list(out, one.copartitioned.iter(), |out, group| {
        for places in [&group.sources, &group.repartition] {
            put_list(out, places.iter(), |out, place| out.put_u16(*place));
        }
    });
}

fn take_subtopology(from: &mut &[u8]) -> Option<(String, Subtopology)> {
    let places = |from: &mut &[u8]| take_list(from, |from| from.try_get_u16().ok());
    let id = take_text(from)?;
    let one = Subtopology {
        sources: take_list(from, take_text)?,
        sinks: take_list(from, take_text)?,
        repartition: take_list(from, take_topic)?,
        changelogs: take_list(from, take_topic)?,
        copartitioned: take_list(from, |from| {
            Some(CopartitionGroup { sources: places(from)?, repartition: places(from)? })
        })?,
    };
    Some((id, one))
}

impl StreamsGroup {
    pub(crate) fn member_key(&self, id: &str) -> Bytes {
        key_of_member(MEMBER, &self.name, id)
    }

    /// Keys of its records.
    pub(crate) fn keys(&self) -> Vec<Bytes> {
        let members = self.members.keys().map(|id| self.member_key(id));
        members.chain([TOPOLOGY, GROUP].map(|kind| key_of_group(kind, &self.name))).collect()
    }

    /// Takes all records of the group away.
    pub(crate) fn forget<W>(&self, out: &mut Vec<Effect<W>>) {
        out.extend(self.keys().into_iter().map(|key| Effect::Persist(key, None)));
    }

    /// Members as durable records; the group's own comes last, so that a beginning of them is never taken for the whole.
    pub(crate) fn persist_member<W>(&self, id: &str, out: &mut Vec<Effect<W>>) {
        let Some(member) = self.members.get(id) else { return };
        let mut value = BytesMut::new();
        value.put_u8(VERSION);
        value.put_i32(member.epoch);
        value.put_i32(member.previous_epoch);
        value.put_u8(member.state.code());
        put_option(&mut value, member.rack.as_deref());
        put_text(&mut value, &member.client_id);
        put_text(&mut value, &member.host);
        value.put_u64(member.rebalance_timeout);
        value.put_i32(member.topology_epoch);
        put_text(&mut value, &member.process);
        value.put_u8(u8::from(member.endpoint.is_some()));
        if let Some((host, port)) = &member.endpoint {
            put_text(&mut value, host);
            value.put_u16(*port);
        }
        put_list(&mut value, member.tags.iter(), put_pair);
        put_held(&mut value, &member.assigned);
        put_held(&mut value, &member.revoking);
        let nothing = TaskSets::default();
        let target = self.targets.get(id).unwrap_or(&nothing);
        put_tasks(&mut value, &target.active);
        put_tasks(&mut value, &target.standby);
        put_option(&mut value, member.user.as_deref());
        out.push(Effect::Persist(self.member_key(id), Some(value.freeze())));
    }

    pub(crate) fn persist_group<W>(&self, out: &mut Vec<Effect<W>>) {
        let mut value = BytesMut::new();
        value.put_u8(VERSION);
        value.put_i32(self.epoch);
        value.put_i32(self.assignment_epoch);
        for number in [self.assigned_at, self.topics_hash, self.targets_hash(), self.emptied_at] {
            value.put_u64(number);
        }
        value.put_i32(self.validated_epoch);
        value.put_i32(self.standbys.map_or(-1, |standbys| standbys as i32));
        put_option(&mut value, self.shutdown.as_deref());
        out.push(Effect::Persist(key_of_group(GROUP, &self.name), Some(value.freeze())));
    }

    pub(crate) fn persist_topology<W>(&self, out: &mut Vec<Effect<W>>) {
        let Some(topology) = &self.topology else { return };
        let mut value = BytesMut::new();
        value.put_u8(VERSION);
        value.put_i32(topology.epoch);
        put_list(&mut value, topology.subtopologies.iter(), put_subtopology);
        out.push(Effect::Persist(key_of_group(TOPOLOGY, &self.name), Some(value.freeze())));
    }

    /// Takes the group's own record over; the hash of the targets as it was recorded.
    pub(crate) fn restore(&mut self, mut from: &[u8]) -> Option<u64> {
        (from.try_get_u8().ok()? == VERSION).then_some(())?;
        self.epoch = from.try_get_i32().ok()?;
        self.assignment_epoch = from.try_get_i32().ok()?;
        self.assigned_at = from.try_get_u64().ok()?;
        self.topics_hash = from.try_get_u64().ok()?;
        let targets = from.try_get_u64().ok()?;
        self.emptied_at = from.try_get_u64().ok()?;
        self.validated_epoch = from.try_get_i32().ok()?;
        self.standbys = u32::try_from(from.try_get_i32().ok()?).ok();
        self.shutdown = take_option(&mut from)?;
        Some(targets)
    }

    pub(crate) fn restore_topology(&mut self, mut from: &[u8]) -> Option<()> {
        (from.try_get_u8().ok()? == VERSION).then_some(())?;
        let epoch = from.try_get_i32().ok()?;
        self.topology =
            Some(Arc::new(StreamsTopology { epoch, subtopologies: take_list(&mut from, take_subtopology)? }));
        Some(())
    }

    pub(crate) fn restore_member(&mut self, id: &str, mut from: &[u8]) -> Option<()> {
        (from.try_get_u8().ok()? == VERSION).then_some(())?;
        let mut member = StreamsMember::new(id);
        member.epoch = from.try_get_i32().ok()?;
        member.previous_epoch = from.try_get_i32().ok()?;
        member.state = MemberState::of_code(from.try_get_u8().ok()?)?;
        member.rack = take_option(&mut from)?;
        member.client_id = take_text(&mut from)?;
        member.host = take_text(&mut from)?;
        member.rebalance_timeout = from.try_get_u64().ok()?;
        member.topology_epoch = from.try_get_i32().ok()?;
        member.process = take_text(&mut from)?;
        if from.try_get_u8().ok()? == 1 {
            member.endpoint = Some((take_text(&mut from)?, from.try_get_u16().ok()?));
        }
        member.tags = take_list(&mut from, take_pair)?;
        member.assigned = take_held(&mut from)?;
        member.revoking = take_held(&mut from)?;
        let target = TaskSets { active: take_tasks(&mut from)?, standby: take_tasks(&mut from)? };
        member.user = if from.has_remaining() { take_option(&mut from)? } else { None };
        self.targets.insert(id.to_owned(), target);
        self.put(member);
        Some(())
    }
}
