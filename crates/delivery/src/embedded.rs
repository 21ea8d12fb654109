//! The protocol that classic consumers speak among themselves inside the group protocol: what a member reads and has, and
//! what it gets. Big-endian; every count is a stranger's word.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub version: i16,
    pub topics: Vec<String>,
    /// What it has, by topic.
    pub owned: Vec<(String, Vec<u32>)>,
    pub rack: Option<String>,
}

fn take_text(from: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(from.try_get_i16().ok()?).ok()?;
    let (head, rest) = from.split_at_checked(length)?;
    *from = rest;
    String::from_utf8(head.to_vec()).ok()
}

/// Nullable bytes; their length.
fn skip_bytes(from: &mut &[u8]) -> Option<usize> {
    let length = usize::try_from(from.try_get_i32().ok()?).unwrap_or(0);
    let (_, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(length)
}

fn take_list<T>(from: &mut &[u8], take: impl Fn(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    // No room is made ahead: what is not there ends the list.
    let mut list = Vec::new();
    for _ in 0..from.try_get_i32().ok()? {
        list.push(take(from)?);
    }
    Some(list)
}

fn take_partitions(from: &mut &[u8]) -> Option<(String, Vec<u32>)> {
    let topic = take_text(from)?;
    let partitions = take_list(from, |from| u32::try_from(from.try_get_i32().ok()?).ok())?;
    Some((topic, partitions))
}

impl Subscription {
    /// `None` when the bytes are none.
    pub fn decode(mut from: &[u8]) -> Option<Self> {
        let version = from.try_get_i16().ok().filter(|version| *version >= 0)?;
        let mut subscription = Self { version, topics: take_list(&mut from, take_text)?, ..Self::default() };
        skip_bytes(&mut from)?;
        if version >= 1 {
            subscription.owned = take_list(&mut from, take_partitions)?;
        }
        if version >= 2 {
            from.try_get_i32().ok()?;
        }
        if version >= 3 {
            subscription.rack = match from.try_get_i16().ok()? {
                -1 => None,
                length => {
                    let (head, _) = from.split_at_checked(usize::try_from(length).ok()?)?;
                    Some(String::from_utf8(head.to_vec()).ok()?)
                }
            };
        }
        Some(subscription)
    }
}

/// Partitions by topic; `None` when the bytes are none, or hold what only another assignor understands.
pub(crate) fn decode_assignment(mut from: &[u8]) -> Option<Vec<(String, Vec<u32>)>> {
    if from.is_empty() {
        return Some(Vec::new());
    }
    from.try_get_i16().ok().filter(|version| *version >= 0)?;
    let partitions = take_list(&mut from, take_partitions)?;
    (skip_bytes(&mut from)? == 0).then_some(partitions)
}

/// Partitions by topic, whatever an assignor has added behind them; none when the bytes are no assignment.
pub fn assigned_partitions(mut from: &[u8]) -> Vec<(String, Vec<u32>)> {
    let is_one = from.try_get_i16().is_ok_and(|version| version >= 0);
    is_one.then(|| take_list(&mut from, take_partitions)).flatten().unwrap_or_default()
}

/// Topics that a member names: those it reads, and those it has or had. None where the bytes are no subscription.
pub fn subscribed_topics(mut from: &[u8]) -> Vec<String> {
    let mut topics = Vec::new();
    if let Ok(version @ 0..) = from.try_get_i16()
        && let Some(read) = take_list(&mut from, take_text)
    {
        topics = read;
        if skip_bytes(&mut from).is_some()
            && version >= 1
            && let Some(owned) = take_list(&mut from, take_partitions)
        {
            topics.extend(owned.into_iter().map(|(topic, _)| topic));
        }
    }
    topics
}

pub(crate) fn encode_assignment(version: i16, partitions: &[(String, Vec<u32>)]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(version.min(3));
    out.put_i32(partitions.len() as i32);
    for (topic, partitions) in partitions {
        out.put_i16(topic.len() as i16);
        out.put_slice(topic.as_bytes());
        out.put_i32(partitions.len() as i32);
        partitions.iter().for_each(|partition| out.put_i32(*partition as i32));
    }
    out.put_i32(-1);
    out.freeze()
}
