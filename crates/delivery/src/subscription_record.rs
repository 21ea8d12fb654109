//! Subscriptions as keyed records, big-endian.
//!
//! ```text
//! name                    u16 length, group, [16] topic id, u32 partition
//! key "s" name            value u8 version (1), u64 start; or u8 version (2), u64 start, u64 end of what was given out
//! key "p" name u64 page   value u8 version (4), u16 bytes of runs, what is done of the page as in `done_list.rs`, then the other runs: u16
//!                               first offset within the page, u16 offsets after the first, u8 state 2 returned; on its way to the dead
//!                               letters: 3 rejected, 4 delivered too often, 5 expired, 6 no room; u16 deliveries counted, u16 not counted
//!                         value u8 version (3), where that is shorter: [2048] a bit for each offset that is acknowledged, the lowest bit of
//!                               a byte first, then the other runs as in version 4, those with u8 state 1 archived without counts
//!                         value u8 version (2), all runs as in version 3, and u8 state 0 acknowledged; read, and not written any more
//!                         value u8 version (1), runs as in version 2, with u8 state 2 + n delivered n times and returned,
//!                               128 + n delivered n times and on its way to the dead letters; read, and not written any more
//! key "z" name u64 number value u8 version (2), runs of what is done since pages were written, as in `done_list.rs`; version 1 is read
//! key "y" name u64 page   value u8 version (1), levels of the page as in `subscription/levels.rs`
//! ```

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::done_list;
use crate::subscription::{Changes, DeadReason, Done, DoneList, LevelPage, Subscription, Tries};

/// Offsets that one record describes.
pub const PAGE_OFFSETS: u64 = 1 << 14;

/// A start alone, a page without reasons.
const PLAIN: u8 = 1;
/// A start with what was given out, a page with reasons.
const FULL: u8 = 2;
const START: u8 = b's';
const PAGE: u8 = b'p';
const LEVELS: u8 = b'y';
const LIST: u8 = b'z';
/// A page with bits.
const BITS: u8 = 3;
const BITS_BYTES: usize = PAGE_OFFSETS as usize / 8;
/// A page with runs of what is done.
const DONE: u8 = 4;
/// What a run takes in a page, about.
pub(crate) const RUN_BYTES: usize = 2;

/// What the acknowledged offsets of a page take at most.
pub(crate) const fn page_bytes_max() -> usize {
    BITS_BYTES
}
/// States of pages: of version 1 the first with a count, and the first that is dead; of version 2 likewise.
const PLAIN_DEAD: u8 = 128;
const RETURNED: u8 = 2;
const REASONS: [DeadReason; 4] =
    [DeadReason::Rejected, DeadReason::DeliveryLimit, DeadReason::Expired, DeadReason::MaxLength];

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
    /// The group, shared by those that are of one.
    pub group: Arc<str>,
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
    /// Levels of the records of a page.
    Levels(u64, LevelPage),
    /// What is done since pages were written, with the list's number.
    List(u64, DoneList),
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
        let pages = changes
            .pages
            .iter()
            .map(|(page, runs)| (self.key(PAGE, Some(*page)), (!runs.is_empty()).then(|| encode_runs(*page, runs))));
        let levels = changes.levels.iter().map(|(page, levels)| {
            let value = levels.as_ref().map(|levels| [&[PLAIN], levels.as_bytes()].concat().into());
            (self.key(LEVELS, Some(*page)), value)
        });
        let list = changes.list.iter().map(|(number, runs)| (self.key(LIST, Some(*number)), Some(encode_list(runs))));
        let gone = changes.lists_gone.iter().map(|number| (self.key(LIST, Some(*number)), None));
        start.into_iter().chain(pages).chain(levels).chain(list).chain(gone).collect()
    }

    /// The keys to be removed with a subscription.
    pub fn keys(&self, of: &Subscription) -> Vec<Bytes> {
        let pages = of.stored_pages().map(|page| self.key(PAGE, Some(page)));
        let levels = of.stored_levels().map(|page| self.key(LEVELS, Some(page)));
        let lists = of.stored_lists().map(|number| self.key(LIST, Some(number)));
        std::iter::once(self.key(START, None)).chain(pages).chain(levels).chain(lists).collect()
    }
}

fn encode_list(runs: &[(u64, u64, Done)]) -> Bytes {
    let mut value = BytesMut::with_capacity(1 + runs.len() * 3);
    value.put_u8(FULL);
    done_list::put_runs(&mut value, 0, runs.iter().copied());
    value.freeze()
}

fn encode_runs(page: u64, runs: &[PageRun]) -> Bytes {
    let done = |run: &PageRun| match run.state {
        StoredState::Done(done) => Some((run.first, run.last, done)),
        _ => None,
    };
    let mut value = BytesMut::with_capacity(3 + runs.len() * RUN_BYTES);
    value.put_u8(DONE);
    value.put_u16(0);
    done_list::put_runs(&mut value, page * PAGE_OFFSETS, runs.iter().filter_map(done));
    if let Ok(bytes) = u16::try_from(value.len() - 3)
        && usize::from(bytes) <= BITS_BYTES
    {
        value[1..3].copy_from_slice(&bytes.to_be_bytes());
        put_runs(&mut value, runs.iter().filter(|run| done(run).is_none()));
        return value.freeze();
    }
    let acknowledged = |run: &&PageRun| run.state == StoredState::Done(Done::Acknowledged);
    value.clear();
    value.resize(1 + BITS_BYTES, 0);
    value[0] = BITS;
    for offset in runs.iter().filter(acknowledged).flat_map(|run| run.first..=run.last) {
        let place = (offset % PAGE_OFFSETS) as usize;
        value[1 + place / 8] |= 1 << (place % 8);
    }
    put_runs(&mut value, runs.iter().filter(|run| !acknowledged(run)));
    value.freeze()
}

fn decode_done(base: u64, value: &mut &[u8]) -> Option<Vec<PageRun>> {
    let bytes = usize::from(value.try_get_u16().ok()?);
    let (list, rest) = value.split_at_checked(bytes)?;
    *value = rest;
    let runs = done_list::take_runs(list, base)?;
    Some(runs.into_iter().map(|(first, last, done)| PageRun { first, last, state: StoredState::Done(done) }).collect())
}

fn decode_bits(base: u64, value: &mut &[u8]) -> Option<Vec<PageRun>> {
    let (bits, rest) = value.split_at_checked(BITS_BYTES)?;
    *value = rest;
    let (mut runs, mut from) = (Vec::new(), None);
    for place in 0..=PAGE_OFFSETS {
        let set = place < PAGE_OFFSETS && bits[place as usize / 8] >> (place % 8) & 1 != 0;
        match (set, from) {
            (true, None) => from = Some(place),
            (false, Some(first)) => {
                runs.push(PageRun {
                    first: base + first,
                    last: base + place - 1,
                    state: StoredState::Done(Done::Acknowledged),
                });
                from = None;
            }
            _ => {}
        }
    }
    Some(runs)
}

fn put_runs<'r>(value: &mut BytesMut, runs: impl Iterator<Item = &'r PageRun>) {
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
    let kind = key.try_get_u8().ok().filter(|kind| [START, PAGE, LEVELS, LIST].contains(kind))?;
    let decoded = || -> Option<(SubscriptionName, SubscriptionRecord)> {
        let length = key.try_get_u16().ok()? as usize;
        let (group, rest) = key.split_at_checked(length)?;
        key = rest;
        let group = std::str::from_utf8(group).ok()?.into();
        let name = SubscriptionName { group, topic: key.try_get_u128().ok()?, partition: key.try_get_u32().ok()? };
        let version = value
            .try_get_u8()
            .ok()
            .filter(|version| [PLAIN, FULL].contains(version) || kind == PAGE && [BITS, DONE].contains(version))?;
        if kind == START {
            let start = value.try_get_u64().ok()?;
            let given = if version == FULL { Some(value.try_get_u64().ok()?) } else { None };
            return Some((name, SubscriptionRecord::Start { start, given }));
        }
        let page = key.try_get_u64().ok()?;
        if kind == LEVELS {
            return Some((name, SubscriptionRecord::Levels(page, LevelPage::decode(value)?)));
        }
        if kind == LIST {
            let runs = if version == PLAIN {
                done_list::take_runs_of_version_1(value)
            } else {
                done_list::take_runs(value, 0)
            };
            return Some((name, SubscriptionRecord::List(page, runs?)));
        }
        let base = page.checked_mul(PAGE_OFFSETS)?;
        let mut runs = match version {
            BITS => decode_bits(base, &mut value)?,
            DONE => decode_done(base, &mut value)?,
            _ => Vec::with_capacity(value.len() / 5),
        };
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
