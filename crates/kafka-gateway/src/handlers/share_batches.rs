//! From batches that were read to records that one member of a share group gets: whole batches or single records, without
//! control batches, without aborted transactions where only committed records count, by key where keys are ordered.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::ops::Range;

use broker::{Filters, Log, Passed, SharedFilter, Sharing, UnpackRoom, aborted};
use bytes::Bytes;
use delivery::{Acquired, ConsumerId, Subscription};
use hashbrown::{DefaultHashBuilder, HashMap};
use record::{BatchError, SlicedBatch, cut, scan_keys, sliced_batches, unpacked_bytes, whole};
use smallvec::SmallVec;
use types::Offset;

/// To whom, and how much.
pub(crate) struct Giving<'a> {
    pub consumer: ConsumerId,
    pub sharing: &'a Sharing,
    /// Steady, in ms.
    pub now: u64,
    pub records_max: u64,
    /// One batch at least.
    pub bytes_max: usize,
    /// Offsets that are acknowledged together, at best.
    pub batch_size: u64,
    /// No more than `records_max`; otherwise a batch is given as a whole.
    pub by_record: bool,
    /// What the group wants; the rest is archived.
    pub filter: Option<(&'a Filters, &'a SharedFilter)>,
    /// What may be unpacked in this turn.
    pub unpack: Cell<UnpackRoom>,
}

impl Giving<'_> {
    fn unpacking<T>(&self, look: impl FnOnce(&mut UnpackRoom) -> T) -> T {
        let mut room = self.unpack.get();
        let found = look(&mut room);
        self.unpack.set(room);
        found
    }

    /// What of a batch passes the filter. `None`: there is no room to look into it in this turn.
    fn passed(&self, log: &Log, slices: &[Bytes], batch: &SlicedBatch) -> Option<Passed> {
        let Some((filters, filter)) = self.filter else { return Some(Passed::All) };
        self.unpacking(|room| filters.pass_one(log.id(), slices, batch, filter, room))
    }

    /// The keys of a batch's records, where they count. `None`: as for the filter.
    fn keys(&self, state: &Subscription, slices: &[Bytes], batch: &SlicedBatch) -> Result<Option<Keys>, BatchError> {
        if !state.is_key_ordered() {
            return Ok(Some(Keys::None));
        }
        self.unpacking(|room| hashes(&whole(slices, batch.at, batch.header.total_bytes()), room))
    }
}

/// By what a batch's records are ordered.
enum Keys {
    /// Not at all.
    None,
    /// Hashes of the keys, by offset.
    Of(HashMap<u64, u64>),
    /// It unpacks to too much: its records are given as if they all had one key.
    One,
}

impl Keys {
    fn hash(&self, offset: u64) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Of(hashes) => hashes.get(&offset).copied(),
            Self::One => Some(0),
        }
    }
}

/// What was given.
#[derive(Default)]
pub(crate) struct Given {
    pub slices: SmallVec<[Bytes; 4]>,
    pub bytes: usize,
    pub records: u64,
    pub acquired: Vec<Acquired>,
    /// Where the first batch begins of which something is left, for whoever comes next.
    pub rest: Option<(Offset, usize)>,
}

impl Given {
    fn add_slices(&mut self, slices: SmallVec<[Bytes; 4]>) {
        self.bytes += slices.iter().map(Bytes::len).sum::<usize>();
        self.slices.extend(slices);
    }
}

/// Calls `acquire` for the runs of a batch that pass, with how many records it may take, until there is no room; it says how many it
/// took. What lies between them is archived.
fn for_runs(
    passed: &Passed,
    (first, last): (u64, u64),
    limit: u64,
    state: &mut Subscription,
    mut acquire: impl FnMut(&mut Subscription, (u64, u64), u64) -> u64,
) {
    let Passed::Part { runs, .. } = passed else {
        acquire(state, (first, last), limit);
        return;
    };
    let (mut at, mut left) = (first, limit);
    for run in runs {
        if at < run.0 {
            state.skip(at, run.0 - 1);
        }
        left = left.saturating_sub(acquire(state, *run, left));
        at = run.1 + 1;
        if left == 0 {
            return;
        }
    }
    if at <= last {
        state.skip(at, last);
    }
}

/// Acquires for one member what may be given to it of what was read, which is all that there is in `range`.
pub(crate) fn give(
    giving: &Giving<'_>,
    log: &Log,
    state: &mut Subscription,
    slices: SmallVec<[Bytes; 4]>,
    range: Range<Offset>,
) -> Result<Given, BatchError> {
    let (from, next) = (range.start, range.end);
    let found = sliced_batches(&slices)?;
    if found.is_empty() && from < next {
        state.skip(from.0, next.0 - 1);
    }
    let rules = &giving.sharing.rules;
    let dead = if giving.sharing.committed_only { aborted(log, &slices, &found, from, next) } else { Vec::new() };
    let now = giving.now;
    // Single records are not given beyond the bound, but for what a batch has left beyond it.
    let room = rules.unfinished_max.saturating_sub(state.unfinished());
    let records_max = if giving.by_record && room > 0 { giving.records_max.min(room) } else { giving.records_max };
    let mut given = Given::default();
    let mut span: Option<(usize, usize)> = None;
    let mut expected = from.0;
    for (number, one) in found.iter().enumerate() {
        let (first, last) = (one.header.base().0, one.header.next().0 - 1);
        if expected < first {
            // Retention or compaction has left a hole.
            state.skip(expected, first - 1);
        }
        expected = last + 1;
        if one.header.control() || dead.get(number) == Some(&true) {
            state.skip(first.max(from.0), last);
            continue;
        }
        let left = records_max.saturating_sub(given.records);
        let length = one.header.total_bytes();
        let Some(passed) = giving.passed(log, &slices, one) else {
            given.rest.get_or_insert((Offset(first.max(from.0)), one.at));
            break;
        };
        if matches!(passed, Passed::Nothing) {
            state.skip(first.max(from.0), last);
            continue;
        }
        let bytes = span.map_or(given.bytes, |(start, _)| one.at - start);
        let full = bytes > 0 && bytes + length > giving.bytes_max;
        let keys = if left == 0 || full { None } else { giving.keys(state, &slices, one)? };
        let Some(keys) = keys else {
            given.rest.get_or_insert((Offset(first.max(from.0)), one.at));
            break;
        };
        let limit = if giving.by_record || state.is_key_ordered() { left } else { u64::MAX };
        let mut hash = |offset: u64| keys.hash(offset);
        let mut acquired = Vec::new();
        for_runs(&passed, (first, last), limit, state, |state, (first, last), left| {
            let before = acquired.len();
            state.acquire(giving.consumer, first, last, left, now, rules, &mut hash, &mut acquired);
            acquired[before..].iter().map(|run: &Acquired| run.last - run.first + 1).sum()
        });
        let available = state.available_from();
        if (first.max(from.0)..=last).contains(&available) {
            given.rest.get_or_insert((Offset(available), one.at));
        }
        if acquired.is_empty() {
            continue;
        }
        match passed {
            _ if giving.filter.is_none() => span = Some((span.map_or(one.at, |(start, _)| start), one.at + length)),
            Passed::Part { batch, .. } => given.add_slices([batch].into_iter().collect()),
            Passed::All | Passed::Nothing => given.add_slices(cut(&slices, one.at, length)),
        }
        given.records += acquired.iter().map(|run| run.last - run.first + 1).sum::<u64>();
        add(&mut given.acquired, acquired, giving.batch_size);
    }
    if let Some((start, end)) = span {
        given.slices = cut(&slices, start, end - start);
        given.bytes = end - start;
    }
    Ok(given)
}

/// Puts runs of neighbouring batches together up to `size`.
fn add(all: &mut Vec<Acquired>, more: Vec<Acquired>, size: u64) {
    for run in more {
        match all.last_mut() {
            Some(before)
                if before.last + 1 == run.first
                    && before.count == run.count
                    && before.last - before.first + 1 < size =>
            {
                before.last = run.last
            }
            _ => all.push(run),
        }
    }
}

/// `None`: there is no room to look into the batch in this turn.
fn hashes(batch: &[u8], room: &mut UnpackRoom) -> Result<Option<Keys>, BatchError> {
    let Some(limit) = room.of(batch.len()) else { return Ok(None) };
    let (hasher, mut hashes, before) = (hasher(), HashMap::new(), unpacked_bytes());
    let scanned = scan_keys(batch, limit, |record, key| {
        if record.keyed {
            hashes.insert(record.offset.0, hasher.hash_one(key));
        }
    });
    room.take(unpacked_bytes() - before);
    match scanned {
        Ok(()) => Ok(Some(Keys::Of(hashes))),
        Err(BatchError::TooLarge { .. }) => Ok(Some(Keys::One)),
        Err(error) => Err(error),
    }
}

/// One for the life of the process: hashes are compared between requests, and are not stored.
fn hasher() -> &'static DefaultHashBuilder {
    static HASHER: std::sync::OnceLock<DefaultHashBuilder> = std::sync::OnceLock::new();
    HASHER.get_or_init(DefaultHashBuilder::default)
}
