//! Subscriptions as keyed records, big-endian.
//!
//! ```text
//! name                    u16 length, group, [16] topic id, u32 partition
//! key "s" name            value u8 version (1), u64 start; or u8 version (2), u64 start, u64 end of what was given out
//! key "p" name u64 page   value u8 version (2), runs of the page: u16 first offset within it, u16 offsets after the first, u8 state
//!                               0 acknowledged, 1 archived, 2 returned; on its way to the dead letters: 3 rejected,
//!                               4 delivered too often, 5 expired, 6 no room; from 2 on u16 deliveries counted, u16 not counted
//!                         value u8 version (1), runs as above, with u8 state 0, 1, 2 + n delivered n times and returned,
//!                               128 + n delivered n times and on its way to the dead letters; read, and not written any more
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::subscription::{Changes, DeadReason, Done, Tries};

/// Offsets that one record describes.
pub const PAGE_OFFSETS: u64 = 1 << 14;

/// A start alone, a page without reasons.
const PLAIN: u8 = 1;
/// A start with what was given out, a page with reasons.
const FULL: u8 = 2;
const START: u8 = b's';
const PAGE: u8 = b'p';
/// States of pages: of version 1 the first with a count, and the first that is dead; of version 2 likewise.
const PLAIN_DEAD: u8 = 128;
const RETURNED: u8 = 2;
const REASONS: [DeadReason; 4] = [DeadReason::Rejected, DeadReason::DeliveryLimit, DeadReason::Expired, DeadReason::MaxLength];

/// The state of a run that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredState {
    /// It will not be delivered again.
    Done(Done),
    /// Delivered so often, and to be delivered again.
    Returned(Tries),
    /// Delivered so often, and on its way to the dead letters.
    Dead(Tries, DeadReason),
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
    Start {
        /// Everything before it is done.
        start: u64,
        /// The end of what was given out, where that is kept.
        given: Option<u64>,
    },
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
            let mut value = BytesMut::with_capacity(17);
            value.put_u8(if changes.given.is_some() { FULL } else { PLAIN });
            value.put_u64(start);
            value.extend(changes.given.map(u64::to_be_bytes).into_iter().flatten());
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
    let mut value = BytesMut::with_capacity(1 + runs.len() * 9);
    value.put_u8(FULL);
    for run in runs {
        value.put_u16((run.first % PAGE_OFFSETS) as u16);
        value.put_u16((run.last - run.first) as u16);
        let (state, tries) = match run.state {
            StoredState::Done(Done::Acknowledged) => (0, None),
            StoredState::Done(Done::Archived) => (1, None),
            StoredState::Returned(tries) => (RETURNED, Some(tries)),
            StoredState::Dead(tries, reason) => (RETURNED + 1 + reason as u8, Some(tries)),
        };
        value.put_u8(state);
        if let Some(Tries { counted, spared }) = tries {
            value.put_u16(counted);
            value.put_u16(spared);
        }
    }
    value.freeze()
}

fn decode_state(version: u8, state: u8, value: &mut &[u8]) -> Option<StoredState> {
    let once = |counted: u8| Tries { counted: u16::from(counted), spared: 0 };
    Some(match (state, version) {
        (0, _) => StoredState::Done(Done::Acknowledged),
        (1, _) => StoredState::Done(Done::Archived),
        (dead, PLAIN) if dead >= PLAIN_DEAD => StoredState::Dead(once(dead - PLAIN_DEAD), DeadReason::Rejected),
        (returned, PLAIN) => StoredState::Returned(once(returned - RETURNED)),
        (state, _) => {
            let tries = Tries { counted: value.try_get_u16().ok()?, spared: value.try_get_u16().ok()? };
            match state {
                RETURNED => StoredState::Returned(tries),
                dead => StoredState::Dead(tries, *REASONS.get(usize::from(dead - RETURNED - 1))?),
            }
        }
    })
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
        let version = value.try_get_u8().ok().filter(|version| [PLAIN, FULL].contains(version))?;
        if kind == START {
            let start = value.try_get_u64().ok()?;
            let given = if version == FULL { Some(value.try_get_u64().ok()?) } else { None };
            return Some((name, SubscriptionRecord::Start { start, given }));
        }
        let base = key.try_get_u64().ok()?.checked_mul(PAGE_OFFSETS)?;
        let mut runs = Vec::with_capacity(value.len() / 5);
        while value.has_remaining() {
            let first = base + u64::from(value.try_get_u16().ok()?);
            let last = first + u64::from(value.try_get_u16().ok()?);
            let state = value.try_get_u8().ok()?;
            runs.push(PageRun { first, last, state: decode_state(version, state, &mut value)? });
        }
        Some((name, SubscriptionRecord::Page(runs)))
    };
    Some({ decoded }())
}
