//! Groups and offsets as keyed records, big-endian.
//!
//! ```text
//! key "g" group           value u8 version (1), i32 generation, u64 emptied at, opt protocol type, opt protocol,
//!                               opt leader, u32 count, members: id, opt instance, client id, host,
//!                               u64 rebalance timeout, u64 session timeout, bytes assignment,
//!                               u32 count, protocols: name, bytes metadata; then of each member, in their order, opt user
//!                               (what earlier releases have written ends before)
//! key "o" u16 length, group, u16 length, topic, u32 partition
//!                         value u8 version (1), i64 offset, i32 leader epoch, u64 commit time, text metadata
//! text, bytes: u32 length and content; opt: u8 0, or 1 and a text
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::coordinator::Commit;
use crate::group::{Effect, Group, GroupState, Member};
use crate::offsets::CommittedOffset;

const VERSION: u8 = 1;

pub(crate) fn put(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(bytes.len() as u32);
    out.put_slice(bytes);
}

pub(crate) fn put_option(out: &mut BytesMut, text: Option<&str>) {
    out.put_u8(u8::from(text.is_some()));
    if let Some(text) = text {
        put(out, text.as_bytes());
    }
}

pub(crate) fn take(from: &mut &[u8]) -> Option<Bytes> {
    let length = from.try_get_u32().ok()? as usize;
    let (head, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(Bytes::copy_from_slice(head))
}

pub(crate) fn take_text(from: &mut &[u8]) -> Option<String> {
    String::from_utf8(take(from)?.to_vec()).ok()
}

pub(crate) fn take_option(from: &mut &[u8]) -> Option<Option<String>> {
    match from.try_get_u8().ok()? {
        0 => Some(None),
        _ => take_text(from).map(Some),
    }
}

pub(crate) fn group_key(group: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(group.len() + 1);
    key.put_u8(b'g');
    key.put_slice(group.as_bytes());
    key.freeze()
}

/// The key of the record of an offset that a group commits.
pub fn offset_key(group: &str, topic: &str, partition: u32) -> Bytes {
    let mut key = BytesMut::with_capacity(group.len() + topic.len() + 9);
    key.put_u8(b'o');
    for text in [group, topic] {
        key.put_u16(text.len() as u16);
        key.put_slice(text.as_bytes());
    }
    key.put_u32(partition);
    key.freeze()
}

/// The record of an offset that a group commits: key and value.
pub fn offset_record(group: &str, commit: &Commit) -> (Bytes, Bytes) {
    (offset_key(group, &commit.topic, commit.partition), commit.offset.encode())
}

/// Group, topic, partition.
pub(crate) fn decode_offset_key(mut key: &[u8]) -> Option<(String, String, u32)> {
    let text = |key: &mut &[u8]| -> Option<String> {
        let length = key.try_get_u16().ok()? as usize;
        let (head, rest) = key.split_at_checked(length)?;
        *key = rest;
        String::from_utf8(head.to_vec()).ok()
    };
    (key.try_get_u8().ok()? == b'o').then_some(())?;
    Some((text(&mut key)?, text(&mut key)?, key.try_get_u32().ok()?))
}

impl CommittedOffset {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_i64(self.offset);
        out.put_i32(self.leader_epoch);
        out.put_u64(self.committed_at);
        put(&mut out, self.metadata.as_bytes());
        out.freeze()
    }

    pub(crate) fn decode(mut from: &[u8]) -> Option<Self> {
        (from.try_get_u8().ok()? == VERSION).then_some(())?;
        Some(Self {
            offset: from.try_get_i64().ok()?,
            leader_epoch: from.try_get_i32().ok()?,
            committed_at: from.try_get_u64().ok()?,
            metadata: take_text(&mut from)?,
        })
    }
}

impl<W: Copy> Group<W> {
    pub(crate) fn persist(&self, out: &mut Vec<Effect<W>>) {
        out.push(Effect::Persist(group_key(&self.name), Some(self.encode())));
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_i32(self.generation);
        out.put_u64(self.emptied_at);
        for text in [&self.protocol_type, &self.protocol, &self.leader] {
            put_option(&mut out, text.as_deref());
        }
        out.put_u32(self.members.len() as u32);
        for member in self.members.values() {
            put(&mut out, member.id.as_bytes());
            put_option(&mut out, member.instance.as_deref());
            put(&mut out, member.client_id.as_bytes());
            put(&mut out, member.host.as_bytes());
            out.put_u64(member.rebalance_timeout);
            out.put_u64(member.session_timeout);
            put(&mut out, &member.assignment);
            out.put_u32(member.protocols.len() as u32);
            for (name, metadata) in &member.protocols {
                put(&mut out, name.as_bytes());
                put(&mut out, metadata);
            }
        }
        self.members.values().for_each(|member| put_option(&mut out, member.user.as_deref()));
        out.freeze()
    }

    /// Members get a whole session from `now`: the coordinator was away, not they.
    pub(crate) fn decode(name: &str, mut from: &[u8], now: u64) -> Option<Self> {
        (from.try_get_u8().ok()? == VERSION).then_some(())?;
        let mut group = Self::new(name, now);
        group.generation = from.try_get_i32().ok()?;
        group.emptied_at = from.try_get_u64().ok()?;
        group.protocol_type = take_option(&mut from)?;
        group.protocol = take_option(&mut from)?;
        group.leader = take_option(&mut from)?;
        let mut ids = Vec::new();
        for _ in 0..from.try_get_u32().ok()? {
            let (id, instance) = (take_text(&mut from)?, take_option(&mut from)?);
            let (client_id, host) = (take_text(&mut from)?, take_text(&mut from)?);
            let (rebalance_timeout, session_timeout) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
            let assignment = take(&mut from)?;
            let mut protocols = Vec::new();
            for _ in 0..from.try_get_u32().ok()? {
                protocols.push((take_text(&mut from)?, take(&mut from)?));
            }
            group.instances.extend(instance.clone().map(|instance| (instance, id.clone())));
            let expires = now + session_timeout;
            let member = Member {
                id: id.clone(),
                instance,
                client_id,
                host,
                user: None,
                rebalance_timeout,
                session_timeout,
                protocols,
                assignment,
                expires,
                joining: None,
                syncing: None,
            };
            ids.push(id.clone());
            group.members.insert(id, member);
        }
        for id in ids.iter().take_while(|_| from.has_remaining()).collect::<Vec<_>>() {
            let user = take_option(&mut from)?;
            group.members.get_mut(id).into_iter().for_each(|member| member.user.clone_from(&user));
        }
        group.state = if group.members.is_empty() { GroupState::Empty } else { GroupState::Stable };
        Some(group)
    }
}
