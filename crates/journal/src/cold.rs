//! Reading history: records that are no longer in the tail cache. Extents of 1 MiB come from disk into a
//! bounded cache of their own, shared by all logs; a reader of history cannot evict the tail. A run that is nearly as
//! long as an extent, or longer, has pieces of its own there: by extents twice as much would be read of it where logs are
//! read at different places, and what lies beside it is thrown out before it is wanted. Everything here blocks and runs
//! on the cold-read pool of the broker.
//!
//! What is in the archive is read the same way: an object is a file of its own, and its extents share the cache.
//!
//! A fetch over many logs follows the journal, not the logs: it serves what all of them have in one window of
//! the file, so that a consumer of a thousand partitions reads the disk once, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Condvar, Mutex};
use record::Batches;
use smallvec::SmallVec;
use types::{LogId, Offset, Timestamp};

use crate::archive::{Archived, OpenObject};
use crate::chunk::crc32c;
use crate::cut::Cut;
use crate::disk::SECTOR;
use crate::journal::Journal;
use crate::log::Log;
use crate::pool::BlockPool;
use crate::recent::RecentRun;
use crate::run::Run;
use crate::segments::{Segment, SegmentError};

const EXTENT_BYTES: usize = 1 << 20;
/// Runs from this length on are read by themselves.
const OWN_PIECES_BYTES: usize = EXTENT_BYTES / 4 * 3;
/// How much one fetch returns at most: what it has read is still in the processor's cache when it is sent, and the client uses
/// the same memory again. With 64 MiB broker and client together took 40 % more processor time per byte.
pub const HISTORY_BYTES_MAX: usize = 16 << 20;
/// How much of the journal one fetch covers at most.
const WINDOW_BYTES: usize = 32 << 20;

/// One log's part of a fetch.
#[derive(Clone)]
pub struct ColdWant {
    /// Whose records.
    pub log: Arc<Log>,
    /// From here on …
    pub from: Offset,
    /// … to before this, as far as it is readable.
    pub until: Offset,
    /// At most about this much.
    pub max_bytes: usize,
}

/// What a log's part came to; may be empty when the log has nothing in the window.
#[derive(Debug, Default)]
pub struct ColdData {
    /// Whole batches, in order.
    pub slices: SmallVec<[Bytes; 4]>,
    /// Their length.
    pub bytes: usize,
    /// Where to go on.
    pub next: Offset,
}

/// Why history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The segment is unreadable or damaged.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The offset is below the log's start, or was trimmed while reading.
    #[error("records are no longer there")]
    Gone,
    /// No segment holds records that the log should have.
    #[error("log {log} from offset {offset}: no segment holds these records")]
    Missing {
        /// Whose.
        log: LogId,
        /// The first.
        offset: Offset,
    },
}

/// How often a look-up begins again because segments were rewritten or freed under it. A keeper's pass over its
/// segments moves a log a few times; beyond this it is not the keeper.
const LOOKUPS_MAX: usize = 1000;

/// What a walk over sealed segments came to.
enum Walk {
    /// The visitor has what it wants.
    Enough,
    /// Everything sealed was visited.
    Through,
    /// The next records were not where they are expected: the keeper has just moved or freed them.
    Moved,
}

/// A part of a file that is read and kept as one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Piece {
    /// The segment's id.
    segment: u64,
    position: u64,
    /// At most an extent.
    bytes: usize,
}

impl Piece {
    fn extent(segment: &Segment, number: usize) -> Self {
        Self { segment: segment.id, position: (number * EXTENT_BYTES) as u64, bytes: EXTENT_BYTES }
    }

    fn end(&self) -> u64 {
        self.position + self.bytes as u64
    }

    /// The pieces from which a run is put together.
    fn of_run(segment: &Segment, run: &Run) -> SmallVec<[Self; 4]> {
        let (start, end) = (run.position as usize, run.position as usize + run.bytes as usize);
        if (run.bytes as usize) < OWN_PIECES_BYTES {
            return (start / EXTENT_BYTES..end.div_ceil(EXTENT_BYTES))
                .map(|number| Self::extent(segment, number))
                .collect();
        }
        let (start, end) = (start / SECTOR * SECTOR, end.next_multiple_of(SECTOR));
        let piece = |at: usize| Self { segment: segment.id, position: at as u64, bytes: EXTENT_BYTES.min(end - at) };
        (start..end).step_by(EXTENT_BYTES).map(piece).collect()
    }
}

/// A piece that is kept.
struct Held {
    bytes: Bytes,
    /// So much of it, from its start on, was written when it was read, and will never change.
    written: usize,
    /// When somebody had it last, by the clock of the reader.
    used: u64,
}

#[derive(Default)]
struct Extents {
    held: HashMap<Piece, Held>,
    loading: HashSet<Piece>,
}

/// The cache of extents.
pub(crate) struct ColdReader {
    extents: Mutex<Extents>,
    loaded: Condvar,
    clock: AtomicU64,
    pool: Arc<BlockPool>,
    extents_max: usize,
    /// Everything before this place of the journal, a segment's number and a position in it ([`packed`]), is written for good.
    written_until: AtomicU64,
}

/// A place of the journal as a number that grows along it. There are never 2^32 segments.
fn packed(segment: u64, position: u64) -> u64 {
    (segment << 32) + position
}

/// An extent is being loaded; others wait for it, however that ends.
struct Loading<'a> {
    reader: &'a ColdReader,
    piece: Piece,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.reader.extents.lock().loading.remove(&self.piece);
        self.reader.loaded.notify_all();
    }
}

impl ColdReader {
    /// A cache of `bytes`, and memory for `held_bytes` more in the hands of readers.
    pub fn new(bytes: usize, held_bytes: usize) -> Self {
        let extents_max = (bytes / EXTENT_BYTES).max(8);
        let pool = BlockPool::new(extents_max * EXTENT_BYTES + held_bytes);
        Self {
            extents: Mutex::default(),
            loaded: Condvar::new(),
            clock: AtomicU64::new(0),
            pool,
            extents_max,
            written_until: AtomicU64::new(0),
        }
    }

    /// What two fetches at once may go through without the one throwing out what the other has read: the logs of a fetch are
    /// read one after the other, each through the same extents.
    fn fetch_window(&self) -> usize {
        (self.extents_max / 2 * EXTENT_BYTES).min(WINDOW_BYTES)
    }

    /// Notes a run that can be read. Writes are released in the journal's order, so all of the journal before its end is
    /// written, and nothing written is written again.
    fn note_readable(&self, recent: &RecentRun) {
        let end = u64::from(recent.run.position) + u64::from(recent.run.bytes);
        self.written_until.fetch_max(packed(recent.segment, end), Ordering::Release);
    }

    /// How much of a piece, from its start on, will never change again. `usize::MAX` where nothing is written any more: there the last
    /// extent may be shorter than others, and will be so for ever.
    fn written_of(&self, segment: &Segment, piece: Piece) -> usize {
        if segment.archived || segment.index.get().is_some() {
            return usize::MAX;
        }
        let written =
            self.written_until.load(Ordering::Acquire).saturating_sub(packed(segment.sequence, piece.position));
        written.min(piece.bytes as u64) as usize
    }

    /// Forgets the extents of a segment that is gone.
    pub fn forget(&self, id: u64) {
        self.extents.lock().held.retain(|piece, _| piece.segment != id);
    }

    /// A piece, as it is up to `until` at least, which is written.
    fn piece(&self, journal: &Journal, segment: &Segment, piece: Piece, until: usize) -> Result<Bytes, SegmentError> {
        let mut extents = self.extents.lock();
        loop {
            let now = self.clock.fetch_add(1, Ordering::Relaxed);
            if let Some(held) = extents.held.get_mut(&piece).filter(|held| until <= held.written) {
                held.used = now;
                journal.metrics().cold_hits.inc();
                return Ok(held.bytes.clone());
            }
            if extents.loading.insert(piece) {
                break;
            }
            self.loaded.wait(&mut extents);
        }
        self.make_room(&mut extents);
        drop(extents);
        // What is being written behind that grows stale. Asked before the read: what is written meanwhile may be in it or not.
        let written = self.written_of(segment, piece);
        let loading = Loading { reader: self, piece };
        let outcome = self.load(segment, piece);
        drop(loading);
        let bytes = outcome?;
        let mut extents = self.extents.lock();
        journal.metrics().cold_misses.inc();
        journal.metrics().cold_read_bytes.inc_by(bytes.len() as u64);
        if segment.archived {
            journal.metrics().archive_reads.inc();
            journal.metrics().archive_read_bytes.inc_by(bytes.len() as u64);
        }
        if written == usize::MAX || (1..=bytes.len()).contains(&written) {
            let used = self.clock.fetch_add(1, Ordering::Relaxed);
            extents.held.insert(piece, Held { bytes: bytes.clone(), written, used });
        }
        Ok(bytes)
    }

    fn make_room(&self, extents: &mut Extents) {
        while extents.held.len() >= self.extents_max {
            let oldest = extents.held.iter().min_by_key(|(_, held)| held.used).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                extents.held.remove(&oldest);
            }
        }
    }

    fn load(&self, segment: &Segment, piece: Piece) -> Result<Bytes, SegmentError> {
        let io = |source| SegmentError::Io { file: segment.file.name(), source };
        let Piece { position, bytes, .. } = piece;
        match self.pool.take(EXTENT_BYTES) {
            Some(block) => {
                // SAFETY: the block was just taken and nothing of it is shared.
                let memory = unsafe { block.range_mut(0, bytes) };
                let got = segment.file.read_at(position, memory).map_err(io)?;
                Ok(Arc::new(block).share(0, got))
            }
            None => {
                // Slow readers hold the whole pool: this one gets memory of its own, which is not kept.
                let mut memory = vec![0; bytes];
                let got = segment.file.read_at(position, &mut memory).map_err(io)?;
                memory.truncate(got);
                Ok(Bytes::from(memory))
            }
        }
    }

    /// The bytes of a run as they are written, checked, in one or more slices.
    pub fn read_run(
        &self,
        journal: &Journal,
        segment: &Segment,
        run: &Run,
    ) -> Result<SmallVec<[Bytes; 2]>, SegmentError> {
        let mut slices: SmallVec<[Bytes; 2]> = SmallVec::new();
        if run.is_gap() {
            return Ok(slices);
        }
        let (start, end) = (u64::from(run.position), u64::from(run.position) + u64::from(run.bytes));
        for piece in Piece::of_run(segment, run) {
            let from = start.saturating_sub(piece.position) as usize;
            let until = (end.min(piece.end()) - piece.position) as usize;
            let bytes = self.piece(journal, segment, piece, until)?;
            if bytes.len() < until {
                return Err(corrupt(segment, run, "file ends inside a run".to_owned()));
            }
            slices.push(bytes.slice(from..until));
        }
        let got = match slices.as_slice() {
            [one] => crc32c(one),
            many => {
                let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
                many.iter().for_each(|slice| digest.update(slice));
                digest.finalize() as u32
            }
        };
        if got != run.crc {
            let what = format!(
                "run checksum is {got:#010x}, expected {:#010x} ({} from offset {})",
                run.crc, run.log, run.base
            );
            return Err(corrupt(segment, run, what));
        }
        Ok(slices)
    }
}

fn corrupt(segment: &Segment, run: &Run, what: String) -> SegmentError {
    SegmentError::Corrupt { file: segment.file.name(), position: u64::from(run.position), what }
}

/// Where a run lies in the order of the journal. What is in the archive lies before all of it, and in no order.
fn place(segment_bytes: u64, segment: &Segment, run: &Run) -> u64 {
    if segment.archived { 0 } else { segment.sequence * segment_bytes + u64::from(run.position) }
}

impl Journal {
    /// Reads for one fetch over one or more logs; one result per want, in their order. At least the log
    /// that is furthest behind gets something.
    pub fn read_cold(&self, wants: &[ColdWant], max_bytes: usize) -> Vec<Result<ColdData, ReadError>> {
        let unit = self.config().segment_bytes.max(1);
        let window = self.cold().fetch_window() as u64;
        let max_bytes = max_bytes.min(window as usize).min(HISTORY_BYTES_MAX);
        let mut firsts: Vec<Result<Option<u64>, ReadError>> = Vec::with_capacity(wants.len());
        for want in wants {
            let mut first = None;
            let outcome = self.visit_runs(
                want,
                |_| true,
                |segment, run, _| {
                    first = (run.base < want.until).then(|| place(unit, segment, run));
                    false
                },
            );
            firsts.push(outcome.map(|()| first));
        }
        let lowest = firsts.iter().filter_map(|first| *first.as_ref().ok()?).min().unwrap_or(0);
        let mut order: Vec<(usize, u64)> = Vec::new();
        let mut results: Vec<Result<ColdData, ReadError>> = Vec::with_capacity(wants.len());
        for (number, first) in firsts.into_iter().enumerate() {
            let empty = ColdData { next: wants[number].from, ..ColdData::default() };
            results.push(match first {
                Ok(Some(first)) if first < lowest + window => {
                    order.push((number, first));
                    Ok(empty)
                }
                Ok(_) => Ok(empty),
                Err(error) => Err(error),
            });
        }
        order.sort_by_key(|(_, first)| *first);
        let mut served = 0;
        for (number, _) in order {
            if served >= max_bytes {
                break;
            }
            let want = &wants[number];
            let limit = want.max_bytes.min(max_bytes - served);
            results[number] = self.read_in_window(want, limit, served == 0, lowest + window, unit);
            served += results[number].as_ref().map_or(0, |data| data.bytes);
        }
        results
    }

    /// Offsets of which no record is left may fill a window: then it goes on behind them, so that a reader gets somewhere.
    fn read_in_window(
        &self,
        want: &ColdWant,
        limit: usize,
        min_one: bool,
        end: u64,
        unit: u64,
    ) -> Result<ColdData, ReadError> {
        let mut want = want.clone();
        loop {
            let data = self.read_once(&want, limit, min_one, end, unit)?;
            if data.bytes > 0 || data.next <= want.from || data.next >= want.until {
                return Ok(data);
            }
            want.from = data.next;
        }
    }

    fn read_once(
        &self,
        want: &ColdWant,
        limit: usize,
        min_one: bool,
        end: u64,
        unit: u64,
    ) -> Result<ColdData, ReadError> {
        let mut runs: SmallVec<[(Arc<Segment>, Run); 16]> = SmallVec::new();
        let mut bytes = 0;
        let found = self.visit_runs(
            want,
            |_| true,
            |segment, run, _| {
                if run.base >= want.until || place(unit, segment, run) >= end && !runs.is_empty() {
                    return false;
                }
                bytes += run.bytes as usize;
                runs.push((Arc::clone(segment), *run));
                bytes < limit
            },
        );
        #[cfg(feature = "planted")]
        if self.planted() == Some(crate::Planted::HideBehindMissing) {
            runs.retain(|_| found.is_ok());
        }
        match found {
            Err(error) if runs.is_empty() => {
                if let ReadError::Missing { log, offset } = error {
                    self.note_unreadable(&log.to_string(), None, (log, offset), &error);
                }
                return Err(error);
            }
            // What lies before it is whole; the next fetch begins where it is not.
            Ok(()) | Err(_) => {}
        }
        let mut cut = Cut::new(want.from..want.until, limit, min_one);
        #[cfg(feature = "planted")]
        {
            cut.overlaps = self.planted() == Some(crate::Planted::OverlapSeams);
        }
        for (segment, run) in &runs {
            // Part of a run is as dear as all of it: read for the checksum, and again with the next fetch.
            if cut.bytes() > 0 && !cut.takes_whole(run) {
                break;
            }
            match self.cold().read_run(self, segment, run) {
                Ok(pieces) => {
                    self.note_read(|| segment.file.name(), Some(run.position));
                    cut.add(&run.placed(pieces), run);
                }
                Err(_) if cut.bytes() > 0 => break,
                Err(_) if run.next <= want.log.start() => return Err(ReadError::Gone),
                Err(error) => {
                    self.note_unreadable(&segment.file.name(), Some(run.position), (run.log, run.base), &error);
                    return Err(error.into());
                }
            }
        }
        let (slices, bytes, next) = cut.finish();
        Ok(ColdData { slices, bytes, next })
    }

    /// Calls `visit` for the runs of a log from the one that holds `from`, in order, until it says no. Archive objects that are not
    /// `wanted` are passed over. With each run comes the first offset that is to be taken of it: what lies before is not asked for, or is
    /// where the run before is. An archive object may end inside a run of a segment.
    pub(crate) fn visit_runs(
        &self,
        want: &ColdWant,
        wanted: impl Fn(&Archived) -> bool,
        mut visit: impl FnMut(&Arc<Segment>, &Run, Offset) -> bool,
    ) -> Result<(), ReadError> {
        let mut visit = |segment: &Arc<Segment>, run: &Run, wanted: Offset| {
            debug_assert!(run.base <= wanted && wanted < run.next, "{run:?} does not hold {wanted}");
            visit(segment, run, wanted)
        };
        let log = &want.log;
        let readable = log.high_watermark();
        let mut from = want.from;
        let mut attempts = 0;
        loop {
            if from < log.start() {
                return Err(ReadError::Gone);
            }
            if from < log.archived_until() {
                match self.visit_archived(log, &mut from, &wanted, &mut visit)? {
                    Walk::Enough => return Ok(()),
                    Walk::Through => attempts = 0,
                    Walk::Moved => attempts += 1,
                }
                if attempts > LOOKUPS_MAX {
                    return Err(ReadError::Missing { log: log.id(), offset: from });
                }
                continue;
            }
            let recent = self.recent_runs(log, from, readable, 1 << 20);
            if let Some(last) = recent.last() {
                self.cold().note_readable(last);
            }
            // A sealed segment may be rewritten or freed: only its index says where its runs are.
            let unsealed =
                |segment: u64| self.segments().get(segment).is_some_and(|segment| segment.index.get().is_none());
            if recent.first().is_some_and(|first| first.run.base <= from && unsealed(first.segment)) {
                for recent in &recent {
                    let Some(segment) =
                        self.segments().get(recent.segment).filter(|segment| segment.index.get().is_none())
                    else {
                        break;
                    };
                    let wanted = std::mem::replace(&mut from, recent.run.next);
                    if !visit(&segment, &recent.run, wanted) {
                        return Ok(());
                    }
                }
                continue;
            }
            if from >= readable {
                return Ok(());
            }
            let before = from;
            let walk = self.visit_sealed(log, &mut from, &mut visit)?;
            match walk {
                Walk::Enough => return Ok(()),
                Walk::Through if from > before => attempts = 0,
                Walk::Through | Walk::Moved => {
                    attempts += 1;
                    if attempts > LOOKUPS_MAX {
                        return Err(ReadError::Missing { log: log.id(), offset: from });
                    }
                    std::thread::yield_now();
                }
            }
        }
    }

    /// The archive object that holds `from`. Moves `from` behind what was visited.
    fn visit_archived(
        &self,
        log: &Log,
        from: &mut Offset,
        wanted: &impl Fn(&Archived) -> bool,
        visit: &mut impl FnMut(&Arc<Segment>, &Run, Offset) -> bool,
    ) -> Result<Walk, ReadError> {
        let Some(object) = log.inner().archive.at(*from).cloned() else { return Ok(Walk::Moved) };
        if object.length > 0 && wanted(&object) {
            let open = self.open_object(&object)?;
            for run in open.from(*from) {
                let begins = std::mem::replace(from, run.next);
                if !visit(&open.segment, run, begins) {
                    return Ok(Walk::Enough);
                }
            }
        }
        *from = object.next;
        Ok(Walk::Through)
    }

    /// An archive object, to be looked into.
    pub(crate) fn open_object(&self, object: &Arc<Archived>) -> Result<Arc<OpenObject>, SegmentError> {
        let opened = self.archive().open.get(&self.archive().store, object, self.uuid(), || self.segments().next_id());
        match &opened {
            Ok(_) => self.note_read(|| object.name(self.uuid()), None),
            Err(error) => self.note_unreadable(&object.name(self.uuid()), None, (object.log, object.base), error),
        }
        opened
    }

    /// The sealed part. Moves `from` behind what was visited.
    fn visit_sealed(
        &self,
        log: &Log,
        from: &mut Offset,
        visit: &mut impl FnMut(&Arc<Segment>, &Run, Offset) -> bool,
    ) -> Result<Walk, ReadError> {
        let mut candidates: SmallVec<[u64; 32]> = log.inner().segments.iter().collect();
        // The last segment whose first offset is not above `from` holds it, unless it was trimmed away.
        let (mut low, mut high) = (0, candidates.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.row(candidates[middle], log)? {
                Some((_, row)) if row.base <= *from => low = middle + 1,
                Some(_) => high = middle,
                // Freed or rewritten since the set was read.
                None => {
                    candidates.remove(middle);
                    high -= 1;
                }
            }
        }
        for sequence in &candidates[low.saturating_sub(1)..] {
            let Some((segment, row)) = self.row(*sequence, log)? else { continue };
            let Some(index) = segment.index.get() else { continue };
            for number in index.first_run_after(&row, *from)?..row.entries {
                let run = index.run(&row, number)?;
                if run.base > *from {
                    return Ok(Walk::Moved);
                }
                let begins = std::mem::replace(from, run.next);
                if !visit(&segment, &run, begins) {
                    return Ok(Walk::Enough);
                }
            }
        }
        Ok(Walk::Through)
    }

    /// Bytes of a log from an offset on, about: of a segment that begins before it, or of which the archive has a part, a share.
    pub(crate) fn bytes_from(&self, log: &Log, from: Offset) -> Result<u64, ReadError> {
        let mut bytes = log.inner().archive.bytes_from(from);
        let from = from.max(log.archived_until());
        let sealed: SmallVec<[u64; 32]> = log.inner().segments.iter().collect();
        for sequence in sealed {
            let Some((_, row)) = self.row(sequence, log)?.filter(|(_, row)| row.next > from) else { continue };
            bytes += row.bytes_from(from);
        }
        self.recent().visit_from(&log.inner().runs, from, |recent| {
            bytes += if self.segments().is_unsealed(recent.segment) { u64::from(recent.run.bytes) } else { 0 };
            true
        });
        Ok(bytes)
    }

    /// Bytes of the oldest batches that a log has, and how many records they are: of those whose segments have no index on the disk yet or are still in memory, and of
    /// about so many. Nothing is read.
    pub fn sample(&self, log: &Log, batches: usize) -> (u64, u64) {
        let (mut bytes, mut records, mut left) = (0, 0, batches);
        self.recent().visit_from(&log.inner().runs, log.start(), |recent| {
            if !recent.run.is_gap() {
                bytes += u64::from(recent.run.bytes);
                records += recent.run.next.since(recent.run.base);
                left = left.saturating_sub(1);
            }
            left > 0
        });
        (bytes, records)
    }

    fn row(&self, sequence: u64, log: &Log) -> Result<Option<(Arc<Segment>, crate::index::LogRow)>, ReadError> {
        let Some(segment) = self.segments().get(sequence) else { return Ok(None) };
        let Some(index) = segment.index.get() else { return Ok(None) };
        let row = index.row(log.id())?;
        Ok(row.map(|row| (segment, row)))
    }

    /// The first record whose timestamp is at least `at`, with its timestamp. Blocks.
    ///
    /// # Errors
    /// `Segment`: unreadable. `Gone`: trimmed meanwhile.
    pub fn find_by_time(&self, log: &Arc<Log>, at: Timestamp) -> Result<Option<(Offset, Timestamp)>, ReadError> {
        let start = log.start();
        let want = ColdWant { log: Arc::clone(log), from: start, until: log.high_watermark(), max_bytes: 0 };
        let mut from = start;
        loop {
            let mut candidate: Option<(Arc<Segment>, Run, Offset)> = None;
            self.visit_runs(
                &ColdWant { from, ..want.clone() },
                |object| object.max_timestamp >= at,
                |segment, run, wanted| {
                    from = run.next;
                    if run.max_timestamp >= at {
                        candidate = Some((Arc::clone(segment), *run, wanted));
                    }
                    candidate.is_none()
                },
            )?;
            let Some((segment, run, wanted)) = candidate else { return Ok(None) };
            let bytes = run.placed(self.cold().read_run(self, &segment, &run)?).concat();
            for (position, header) in Batches::new(&bytes).map_while(Result::ok) {
                if header.next() <= wanted {
                    continue;
                }
                let found = record::offset_for_timestamp(&bytes[position..position + header.total_bytes()], start, at);
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
    }

    /// The record with the largest timestamp, the first of several. Blocks.
    ///
    /// # Errors
    /// As [`Journal::find_by_time`].
    pub fn max_timestamp(&self, log: &Arc<Log>) -> Result<Option<(Offset, Timestamp)>, ReadError> {
        let start = log.start();
        // What begins before the log's start, object or run, says the largest of what is trimmed, too.
        let whole = |object: &&Arc<Archived>| object.length > 0 && object.base >= start;
        let mut largest = log.inner().archive.from(start).iter().filter(whole).map(|object| object.max_timestamp).max();
        let mut cut: SmallVec<[(Arc<Segment>, Run, Offset); 2]> = SmallVec::new();
        let want = ColdWant { log: Arc::clone(log), from: start, until: log.high_watermark(), max_bytes: 0 };
        self.visit_runs(
            &want,
            |object| object.base < start,
            |segment, run, wanted| {
                if run.base < wanted {
                    cut.push((Arc::clone(segment), *run, wanted));
                } else {
                    largest = largest.max(Some(run.max_timestamp));
                }
                true
            },
        )?;
        for (segment, run, wanted) in cut {
            let bytes = run.placed(self.cold().read_run(self, &segment, &run)?).concat();
            for (position, header) in Batches::new(&bytes).map_while(Result::ok) {
                // What cannot be read has no records, as for who looks for a time.
                let before = largest;
                let scanned = record::scan(
                    &bytes[position..position + header.total_bytes()],
                    record::UNPACKED_BYTES_MAX,
                    |record| {
                        largest = largest.max((record.offset >= wanted).then_some(record.timestamp));
                        std::ops::ControlFlow::Continue(())
                    },
                );
                largest = if scanned.is_ok() { largest } else { before };
            }
        }
        let Some(largest) = largest else { return Ok(None) };
        self.find_by_time(log, largest)
    }
}
