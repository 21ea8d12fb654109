//! Consumer groups and share groups as keyed records, big-endian; those of share groups are written in their own file.
//!
//! ```text
//! key "c" group           value u8 version (1), i32 epoch, i32 assignment epoch, u64 assigned at, u64 hash of topics,
//!                               u64 hash of targets, u64 emptied at
//! key "d" u16 length, group, member id
//!                         value u8 version (1), i32 epoch, i32 previous epoch, u8 state (0 stable, 1 unrevoked, 2 unreleased),
//!                               opt instance, opt rack, client id, host, u64 rebalance timeout, opt expression, opt assignor,
//!                               u32 count of topic names, u8 1 if classic, and then u64 session timeout, u32 count of
//!                               protocols: name, bytes metadata; partitions assigned, being revoked (with epochs), of the target;
//!                               opt user (what earlier releases have written ends before)
//! key "h" group           value u8 version (1), i32 epoch, i32 assignment epoch, u64 assigned at, u64 hash of topics, u64 hash of
//!                               targets: a share group
//! key "i" u16 length, group, member id
//!                         value u8 version (1), i32 epoch, i32 previous epoch, opt rack, client id, host, u32 count of topic names,
//!                               partitions assigned, partitions of the target: a member of a share group
//! partitions: u32 count of topics: 16 bytes id, u32 count of u32 index (and i32 epoch)
//! text, bytes: u32 length and content; opt: u8 0, or 1 and a text
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::TopicId;

use crate::consumer_group::{ClassicSide, ConsumerGroup, ConsumerMember};
use crate::reconcile::MemberState;
use crate::record::{put, put_option, take, take_option, take_text};
use crate::topology::{Owned, Target};

const VERSION: u8 = 1;

pub(crate) fn key_of_group(kind: u8, group: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(group.len() + 1);
    key.put_u8(kind);
    key.put_slice(group.as_bytes());
    key.freeze()
}

pub(crate) fn key_of_member(kind: u8, group: &str, member: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(group.len() + member.len() + 3);
    key.put_u8(kind);
    key.put_u16(group.len() as u16);
    key.put_slice(group.as_bytes());
    key.put_slice(member.as_bytes());
    key.freeze()
}

/// Group and member of such a key.
pub(crate) fn names_of_member(kind: u8, key: &[u8]) -> Option<(&str, &str)> {
    let mut rest = key.strip_prefix(&[kind])?;
    let length = usize::from(rest.try_get_u16().ok()?);
    let (group, member) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(group).ok()?, std::str::from_utf8(member).ok()?))
}

pub(crate) fn put_target(out: &mut BytesMut, target: &Target) {
    out.put_u32(target.len() as u32);
    for (topic, partitions) in target {
        out.put_slice(topic.0.as_bytes());
        out.put_u32(partitions.len() as u32);
        partitions.iter().for_each(|partition| out.put_u32(*partition));
    }
}

pub(crate) fn take_target(from: &mut &[u8]) -> Option<Target> {
    let mut target = Target::new();
    for _ in 0..from.try_get_u32().ok()? {
        let topic = TopicId(uuid::Uuid::from_u128(from.try_get_u128().ok()?));
        let mut partitions = BTreeSet::new();
        for _ in 0..from.try_get_u32().ok()? {
            partitions.insert(from.try_get_u32().ok()?);
        }
        target.insert(topic, partitions);
    }
    Some(target)
}

fn put_owned(out: &mut BytesMut, owned: &Owned) {
    out.put_u32(owned.len() as u32);
    for (topic, partitions) in owned {
        out.put_slice(topic.0.as_bytes());
        out.put_u32(partitions.len() as u32);
        for (partition, epoch) in &**partitions {
            out.put_u32(*partition);
            out.put_i32(*epoch);
        }
    }
}

fn take_owned(from: &mut &[u8]) -> Option<Owned> {
    let mut owned = Owned::new();
    for _ in 0..from.try_get_u32().ok()? {
        let topic = TopicId(uuid::Uuid::from_u128(from.try_get_u128().ok()?));
        let mut partitions = BTreeMap::new();
        for _ in 0..from.try_get_u32().ok()? {
            partitions.insert(from.try_get_u32().ok()?, from.try_get_i32().ok()?);
        }
        owned.insert(topic, Arc::new(partitions));
    }
    Some(owned)
}

pub(crate) fn put_topics(out: &mut BytesMut, topics: &BTreeSet<String>) {
    out.put_u32(topics.len() as u32);
    topics.iter().for_each(|topic| put(out, topic.as_bytes()));
}

pub(crate) fn take_topics(from: &mut &[u8]) -> Option<BTreeSet<String>> {
    let mut topics = BTreeSet::new();
    for _ in 0..from.try_get_u32().ok()? {
        topics.insert(take_text(from)?);
    }
    Some(topics)
}

/// First byte of the key of a consumer group, and of its members.
pub(crate) const GROUP: u8 = b'c';
pub(crate) const MEMBER: u8 = b'd';

impl ConsumerGroup {
    pub(crate) fn group_key(&self) -> Bytes {
        key_of_group(GROUP, &self.name)
    }

    pub(crate) fn member_key(&self, id: &str) -> Bytes {
        key_of_member(MEMBER, &self.name, id)
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_i32(self.epoch);
        out.put_i32(self.assignment_epoch);
        for number in [self.assigned_at, self.topics_hash, self.targets_hash(), self.emptied_at] {
            out.put_u64(number);
        }
        out.freeze()
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
        Some(targets)
    }

    /// `None` deletes: the member is gone.
    pub(crate) fn encode_member(&self, id: &str) -> Option<Bytes> {
        let member = self.members.get(id)?;
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_i32(member.epoch);
        out.put_i32(member.previous_epoch);
        out.put_u8(member.state.code());
        put_option(&mut out, member.instance.as_deref());
        put_option(&mut out, member.rack.as_deref());
        put(&mut out, member.client_id.as_bytes());
        put(&mut out, member.host.as_bytes());
        out.put_u64(member.rebalance_timeout);
        put_option(&mut out, member.regex.as_deref());
        put_option(&mut out, member.assignor.as_deref());
        put_topics(&mut out, &member.topics);
        out.put_u8(u8::from(member.classic.is_some()));
        if let Some(classic) = &member.classic {
            out.put_u64(classic.session_timeout);
            out.put_u32(classic.protocols.len() as u32);
            for (name, metadata) in &classic.protocols {
                put(&mut out, name.as_bytes());
                put(&mut out, metadata);
            }
        }
        put_owned(&mut out, &member.assigned);
        put_owned(&mut out, &member.revoking);
        put_target(&mut out, self.targets.get(id).unwrap_or(&Target::new()));
        put_option(&mut out, member.user.as_deref());
        Some(out.freeze())
    }

    pub(crate) fn restore_member(&mut self, id: &str, mut from: &[u8]) -> Option<()> {
        (from.try_get_u8().ok()? == VERSION).then_some(())?;
        let mut member = ConsumerMember::new(id);
        member.epoch = from.try_get_i32().ok()?;
        member.previous_epoch = from.try_get_i32().ok()?;
        member.state = MemberState::of_code(from.try_get_u8().ok()?)?;
        member.instance = take_option(&mut from)?;
        member.rack = take_option(&mut from)?;
        member.client_id = take_text(&mut from)?;
        member.host = take_text(&mut from)?;
        member.rebalance_timeout = from.try_get_u64().ok()?;
        member.regex = take_option(&mut from)?;
        member.assignor = take_option(&mut from)?;
        member.topics = Arc::new(take_topics(&mut from)?);
        if from.try_get_u8().ok()? == 1 {
            let session_timeout = from.try_get_u64().ok()?;
            let mut protocols = Vec::new();
            for _ in 0..from.try_get_u32().ok()? {
                protocols.push((take_text(&mut from)?, take(&mut from)?));
            }
            member.classic = Some(ClassicSide { session_timeout, protocols });
        }
        member.assigned = Arc::new(take_owned(&mut from)?);
        member.revoking = Arc::new(take_owned(&mut from)?);
        let target = take_target(&mut from)?;
        member.user = if from.has_remaining() { take_option(&mut from)? } else { None };
        self.targets.insert(id.to_owned(), target);
        self.put(member);
        Some(())
    }
}
