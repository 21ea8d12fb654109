//! Subscriptions as keyed records, big-endian.
//!
//! ```text
//! name                    u16 length, group, [16] topic id, u32 partition
//! key "s" name            value u8 version (1), u64 start
//! key "p" name u64 page   value u8 version (1), runs of the page: u16 first offset within it, u16 offsets after the first,
//!                               u8 state: 0 acknowledged, 1 archived, 2 + n delivered n times and returned (n up to 125),
//!                               128 + n delivered n times and on its way to the dead letters
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::subscription::{Changes, Done};

/// Offsets that one record describes.
pub const PAGE_OFFSETS: u64 = 1 << 14;

const VERSION: u8 = 1;
const START: u8 = b's';
const PAGE: u8 = b'p';
const RETURNED: u8 = 2;
const DEAD: u8 = 128;

/// The state of a run that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredState {
    /// It will not be delivered again.
    Done(Done),
    /// Delivered so often, and to be delivered again.
    Returned(u16),
    /// Delivered so often, and on its way to the dead letters.
    Dead(u16),
}

/// A run inside a page: `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// First offset.
    pub first: u64,
    /// Last offset.
    pub last: u64,
    /// What became of it.
    pub state: StoredState,
}

/// Which subscription: a group's, to one partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionName {
    /// The group.
    pub group: String,
    /// The topic's id.
    pub topic: u128,
    /// The partition.
    pub partition: u32,
}

/// One record, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionRecord {
    /// Where it starts.
    Start(u64),
    /// What became of some offsets after the start.
    Page(Vec<PageRun>),
}

impl SubscriptionName {
    fn key(&self, kind: u8, page: Option<u64>) -> Bytes {
        let mut key = BytesMut::with_capacity(self.group.len() + 31);
        key.put_u8(kind);
        key.put_u16(self.group.len() as u16);
        key.put_slice(self.group.as_bytes());
        key.put_u128(self.topic);
        key.put_u32(self.partition);
        key.extend(page.map(u64::to_be_bytes).into_iter().flatten());
        key.freeze()
    }

    /// The records of what changed, for [`journal state`](crate::Effect::Persist): key and value, `None` deletes.
    pub fn records(&self, changes: &Changes) -> Vec<(Bytes, Option<Bytes>)> {
        let start = changes.start.map(|start| {
            let mut value = BytesMut::with_capacity(9);
            value.put_u8(VERSION);
            value.put_u64(start);
            (self.key(START, None), Some(value.freeze()))
        });
        let pages = changes.pages.iter().map(|(page, runs)| (self.key(PAGE, Some(*page)), (!runs.is_empty()).then(|| encode_runs(runs))));
        start.into_iter().chain(pages).collect()
    }

    /// The keys to be removed with a subscription that has these pages.
    pub fn keys(&self, pages: impl Iterator<Item = u64>) -> Vec<Bytes> {
        std::iter::once(self.key(START, None)).chain(pages.map(|page| self.key(PAGE, Some(page)))).collect()
    }
}

fn encode_runs(runs: &[PageRun]) -> Bytes {
    let mut value = BytesMut::with_capacity(1 + runs.len() * 5);
    value.put_u8(VERSION);
    for run in runs {
        value.put_u16((run.first % PAGE_OFFSETS) as u16);
        value.put_u16((run.last - run.first) as u16);
        value.put_u8(match run.state {
            StoredState::Done(Done::Acknowledged) => 0,
            StoredState::Done(Done::Archived) => 1,
            StoredState::Returned(count) => RETURNED + count.min(u16::from(DEAD - RETURNED - 1)) as u8,
            StoredState::Dead(count) => DEAD + count.min(u16::from(u8::MAX - DEAD)) as u8,
        });
    }
    value.freeze()
}

/// A state record, if it is one of a subscription; the inner `None`: it is damaged, or of another version.
pub fn subscription_record(mut key: &[u8], mut value: &[u8]) -> Option<Option<(SubscriptionName, SubscriptionRecord)>> {
    let kind = key.try_get_u8().ok().filter(|kind| [START, PAGE].contains(kind))?;
    let decoded = || -> Option<(SubscriptionName, SubscriptionRecord)> {
        let length = key.try_get_u16().ok()? as usize;
        let (group, rest) = key.split_at_checked(length)?;
        key = rest;
        let group = String::from_utf8(group.to_vec()).ok()?;
        let name = SubscriptionName { group, topic: key.try_get_u128().ok()?, partition: key.try_get_u32().ok()? };
        (value.try_get_u8().ok()? == VERSION).then_some(())?;
        if kind == START {
            return Some((name, SubscriptionRecord::Start(value.try_get_u64().ok()?)));
        }
        let base = key.try_get_u64().ok()?.checked_mul(PAGE_OFFSETS)?;
        let mut runs = Vec::with_capacity(value.len() / 5);
        while value.has_remaining() {
            let first = base + u64::from(value.try_get_u16().ok()?);
            let last = first + u64::from(value.try_get_u16().ok()?);
            let state = match value.try_get_u8().ok()? {
                0 => StoredState::Done(Done::Acknowledged),
                1 => StoredState::Done(Done::Archived),
                dead if dead >= DEAD => StoredState::Dead(u16::from(dead - DEAD)),
                returned => StoredState::Returned(u16::from(returned - RETURNED)),
            };
            runs.push(PageRun { first, last, state });
        }
        Some((name, SubscriptionRecord::Page(runs)))
    };
    Some({ decoded }())
}
