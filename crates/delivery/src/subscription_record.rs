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
//!                         value u8 version (3), [2048] a bit for each offset that is acknowledged, the lowest bit of a byte first, then the
//!                               other runs as in version 2
//! key "z" name u64 number value u8 version (1), runs of what is done since pages were written, ascending, as numbers of 7 bits a byte, the
//!                               lowest first: offsets from the end of the run before, then twice the offsets after the first, and 1 if archived
//! key "y" name u64 page   value u8 version (1), levels of the page as in `subscription/levels.rs`
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

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
/// What a run takes in a page.
pub(crate) const RUN_BYTES: usize = 5;

/// What the acknowledged offsets of a page take at most.
pub(crate) const fn page_bytes_max() -> usize {
    BITS_BYTES
}
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
        let pages = changes.pages.iter().map(|(page, runs)| (self.key(PAGE, Some(*page)), (!runs.is_empty()).then(|| encode_runs(runs))));
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

fn put_number(out: &mut BytesMut, mut number: u64) {
    while number > 127 {
        out.put_u8(number as u8 | 128);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.try_get_u8().ok()?;
        number |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

fn encode_list(runs: &[(u64, u64, Done)]) -> Bytes {
    let mut value = BytesMut::with_capacity(1 + runs.len() * 4);
    value.put_u8(PLAIN);
    let mut end = 0;
    for (first, last, done) in runs {
        put_number(&mut value, first - end);
        put_number(&mut value, (last - first) * 2 + u64::from(*done == Done::Archived));
        end = last + 1;
    }
    value.freeze()
}

fn decode_list(mut value: &[u8]) -> Option<DoneList> {
    let (mut end, mut runs) = (0u64, Vec::new());
    while value.has_remaining() {
        let first = end.checked_add(take_number(&mut value)?)?;
        let rest = take_number(&mut value)?;
        let last = first.checked_add(rest / 2).filter(|last| *last < u64::MAX)?;
        runs.push((first, last, if rest % 2 == 0 { Done::Acknowledged } else { Done::Archived }));
        end = last + 1;
    }
    Some(runs)
}

fn encode_runs(runs: &[PageRun]) -> Bytes {
    let acknowledged = |run: &&PageRun| run.state == StoredState::Done(Done::Acknowledged);
    if runs.iter().filter(acknowledged).count() * RUN_BYTES <= BITS_BYTES {
        let mut value = BytesMut::with_capacity(1 + runs.len() * 9);
        value.put_u8(FULL);
        put_runs(&mut value, runs.iter());
        return value.freeze();
    }
    let mut value = BytesMut::zeroed(1 + BITS_BYTES);
    value[0] = BITS;
    for offset in runs.iter().filter(acknowledged).flat_map(|run| run.first..=run.last) {
        let place = (offset % PAGE_OFFSETS) as usize;
        value[1 + place / 8] |= 1 << (place % 8);
    }
    put_runs(&mut value, runs.iter().filter(|run| !acknowledged(run)));
    value.freeze()
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
                runs.push(PageRun { first: base + first, last: base + place - 1, state: StoredState::Done(Done::Acknowledged) });
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
        let group = String::from_utf8(group.to_vec()).ok()?;
        let name = SubscriptionName { group, topic: key.try_get_u128().ok()?, partition: key.try_get_u32().ok()? };
        let version = value.try_get_u8().ok().filter(|version| [PLAIN, FULL].contains(version) || kind == PAGE && *version == BITS)?;
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
            return Some((name, SubscriptionRecord::List(page, decode_list(value)?)));
        }
        let base = page.checked_mul(PAGE_OFFSETS)?;
        let mut runs = if version == BITS { decode_bits(base, &mut value)? } else { Vec::with_capacity(value.len() / RUN_BYTES) };
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
