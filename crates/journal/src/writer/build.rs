//! Building a chunk: items from the lanes are judged, given offsets, sorted by log and copied, once, into the
//! memory from which they are written and served.

mod chunk_in_making;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use record::{BatchHeader, Marker};
use types::{Durability, LogId, LogIndex, Offset, Timestamp};

use super::{OpenBlock, Writer};
use crate::append::{AppendError, AppendItem, Appended};
use crate::chunk::{
    ChunkHeader, Entry, EntryKind, FLAG_CONTROL, FLAG_LEFT, FLAG_TRANSACTIONAL, HEADER_BYTES, bodies_at, crc32c, padded,
};
use crate::disk::{SECTOR, Submitter, WriteOp};
use crate::log::Log;
use crate::pool::{BLOCK_BYTES, Block};
use crate::producers::{Producers, Verdict};
use crate::queue::{Pass, Place, Placing, WhenFull};
use crate::run::Run;
use crate::segments;
use crate::tail::TailChunk;
use crate::writer::SMALL_CHUNK_BYTES;
use crate::writer::commit::Flight;
use crate::writer::shared_bodies::{BODIES_MAX, Shared, place_shared};
pub(super) use chunk_in_making::ChunkInMaking;

/// Commits up to this size are written with `RWF_DSYNC` when nothing before them is unflushed.
const DSYNC_BYTES_MAX: usize = 64 << 10;

/// On a full disk this much of the reserve is for what gives space back …
const LAST_BYTES: usize = 64 << 10;
/// … but not more than this part of it.
const LAST_SHARE: usize = 4;
/// Room for one chunk, and for what the index of the segment grows by.
const LAST_LEAST: usize = 2 * SECTOR;

/// Memory for this many batches of a chunk is kept for the next.
const BATCHES_KEPT: usize = 4096;
/// The same for requests that are placed whole.
const FINISHED_KEPT: usize = 1024;
/// Logs are fetched from memory this many batches before they are needed.
pub(super) const LOGS_AHEAD: usize = 12;

/// A batch with its place.
pub(super) struct PlacedBatch {
    /// The log's id, at hand for sorting.
    id: LogId,
    log: Arc<Log>,
    bytes: Bytes,
    base: Offset,
    records: u32,
    /// The shared body behind which it lies.
    stage: u16,
    flags: u8,
    max_timestamp: Timestamp,
}

impl PlacedBatch {
    pub fn new(log: Arc<Log>, bytes: Bytes, header: &BatchHeader, base: Offset, stage: u16) -> Self {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(header.transactional(), FLAG_TRANSACTIONAL) | flag(header.control(), FLAG_CONTROL);
        let records = header.records_count as u32;
        Self { id: log.id(), log, bytes, base, records, stage, flags, max_timestamp: header.max_timestamp }
    }

    fn next(&self) -> Offset {
        self.base.plus(u64::from(self.records))
    }

    fn of_one_run(&self, other: &Self) -> bool {
        self.id == other.id && self.stage == other.stage
    }
}

/// What goes into the next chunk.
#[derive(Default)]
pub(super) struct Plan {
    pub batches: Vec<PlacedBatch>,
    state: Vec<(Bytes, Option<Bytes>)>,
    trims: Vec<(Arc<Log>, Offset)>,
    drops: Vec<Arc<Log>>,
    pub shared: Shared,
    body_bytes: usize,
    pub entries_max: usize,
    pub fsync: bool,
}

impl Plan {
    /// Length of the chunk with this item, at most.
    fn chunk_bytes_with(&self, item: &AppendItem) -> usize {
        let references = self.shared.references() + item.references();
        padded(bodies_at(self.entries_max + item.entries(), references) + self.body_bytes + item.body_bytes())
    }

    fn is_empty(&self) -> bool {
        self.entries_max == 0
    }
}

/// What an item that did not fit waits for.
#[derive(Default)]
struct Wants {
    roll: bool,
    /// State has used up even what is reserved for it.
    for_state: bool,
    /// Something is written into the reserve of a full disk.
    reserve: bool,
    /// There was no room for it.
    reserve_spent: bool,
    /// A block of its own, and the pool has given out all that it may.
    memory: bool,
}

/// How much a chunk may take where it will be written.
struct Room {
    /// For data; on a full disk for what may use the reserve.
    data: usize,
    /// For state and markers of transactions, which may use the reserve too: what readers wait for ends also on a full disk.
    state: usize,
    /// For what lets go of records: the last of the reserve is for that alone, so that no amount of state keeps a full disk full.
    gives_back: usize,
    /// Longest chunk that there is memory for.
    memory: usize,
    /// Data is refused but for what may use the reserve, which goes on while it has room …
    disk_full: bool,
    /// … here, or in the segment that follows, if that is not for state alone.
    follows_for_data: bool,
    /// A segment follows.
    follows: bool,
    /// A segment follows, or may follow; otherwise data that does not fit waits, and state goes on.
    rolls: bool,
    /// The journal is being shut down, and no segment follows, or none for clients' data: nobody would bring one.
    closing: bool,
    /// Why what finds no room is refused, if it does not wait.
    refused: Option<AppendError>,
    /// Longest chunk that fits into an empty segment of the usual length.
    largest: usize,
    /// A planted defect: what belongs together is placed one by one.
    #[cfg(feature = "planted")]
    parts: bool,
}

impl<S: Submitter> Writer<S> {
    /// Builds and submits the next chunk. False when nothing could be built.
    pub(super) fn build_chunk(&mut self, pass: Pass) -> bool {
        let Some(mut room) = self.room() else { return false };
        if pass == Pass::Small {
            room.memory = room.memory.min(SMALL_CHUNK_BYTES);
        }
        let now = self.journal.now_ms();
        let mut plan = Plan { batches: std::mem::take(&mut self.batches), ..Plan::default() };
        let mut finished = std::mem::take(&mut self.finished);
        let mut wants = Wants::default();
        let mut lanes = std::mem::take(&mut self.lanes);
        let left =
            lanes.fill(pass, |request, item| place(&mut plan, &room, &mut wants, request, item, now), &mut finished);
        self.lanes = lanes;
        self.release_queue(left);
        self.tell_wants(&wants);
        if plan.is_empty() {
            self.batches = plan.batches;
            self.answer_unplaced(&mut finished);
            self.finished = finished;
            if wants.memory {
                self.journal.tail().shrink();
                return self.journal.pool().may_take_single();
            }
            // What does not fit before the zeroes that are being written fits behind them. A roll takes a snapshot of every log that
            // was touched: work for the journal's own thread.
            return if wants.roll { !self.here && self.zeroing.is_none() && self.roll() } else { left > 0 };
        }
        let (mut flight, bytes) = self.write_plan(plan, now);
        flight.take_answers(&mut finished);
        finished.shrink_to(FINISHED_KEPT);
        self.finished = finished;
        self.submit(flight, bytes);
        true
    }

    /// Tells the keeper and whoever measures what is waited for.
    fn tell_wants(&mut self, wants: &Wants) {
        if wants.reserve {
            self.journal.note_reserve_used();
        }
        if wants.reserve_spent {
            self.journal.note_reserve_spent();
        }
        if !wants.roll || self.journal.has_prepared() {
            return;
        }
        self.journal.note_segment_wanted();
        let window = self.journal.window();
        if window.is_held() && self.window_wait.is_none() {
            self.window_wait = Some(Instant::now());
            window.set_waiting(true);
        }
        if wants.for_state && window.want_for_state() {
            self.journal.wake_keeper(false);
        }
    }

    /// Requests whose items were all refused or duplicates: they wait for what is under way, if anything.
    fn answer_unplaced(&mut self, finished: &mut Vec<Placing>) {
        for request in finished.drain(..) {
            if let Some(event) = self.flights.attach_to_newest(request) {
                self.post(event.0, event.1);
            }
        }
    }

    /// Room in the active segment, or after a roll; `None` when there is no memory for any chunk.
    fn room(&mut self) -> Option<Room> {
        let memory = self.memory();
        if memory < SECTOR * 2 {
            return None;
        }
        let takes_data = self.journal.prepared_takes_data();
        let (prepared, follows_for_data) = (takes_data.is_some(), takes_data == Some(true));
        // Segments may have been longer before: what is dead in one comes back only once it is sealed.
        let is_overlong = self.active.position > self.journal.config().segment_bytes;
        let end = if prepared && (is_overlong || self.has_too_much_state()) {
            0
        } else {
            segments::usable_end(&self.active, self.active.size)
        };
        let usable = end.saturating_sub(self.active.position) as usize;
        if let Some(since) = self.window_wait.take_if(|_| prepared) {
            self.journal.window().set_waiting(false);
            self.journal.metrics().window_wait_seconds.observe(since.elapsed().as_secs_f64());
        }
        let usual = self.journal.config().segment_bytes.min(2 * self.active.size);
        let kept = segments::STATE_RESERVE_BYTES.min(usual / 4) as usize;
        let disk_full = self.journal.is_disk_full();
        // Of a segment for state that is very short nothing.
        let last = Some(LAST_BYTES.min(kept / LAST_SHARE))
            .filter(|last| disk_full && !prepared && *last >= LAST_LEAST)
            .unwrap_or(0);
        #[cfg(feature = "planted")]
        let last = if self.journal.planted() == Some(crate::Planted::SpendLast) { 0 } else { last };
        if disk_full && !prepared && usable < kept / 2 + last {
            self.journal.note_state_short();
        }
        let reserve = match (self.active.for_state, follows_for_data) {
            (true, _) => usable,
            (false, true) => 0,
            (false, false) => kept,
        };
        let unzeroed = if self.zeroing.is_some() {
            self.active.written_before.saturating_sub(self.active.position) as usize
        } else {
            usize::MAX
        };
        Some(Room {
            data: usable.saturating_sub(reserve).min(unzeroed),
            state: usable.saturating_sub(last).min(unzeroed),
            gives_back: usable.min(unzeroed),
            memory,
            disk_full,
            follows_for_data,
            follows: prepared,
            rolls: prepared || self.zeroing.is_some(),
            closing: (disk_full || !prepared) && self.shutting_down,
            refused: match disk_full {
                true => Some(AppendError::DiskFull),
                false => (self.zeroing.is_none() && self.journal.lacks_segments()).then_some(AppendError::NoSegment),
            },
            // A segment that was made on a full disk may be shorter.
            largest: segments::largest_chunk(self.active.size.max(self.journal.config().segment_bytes)),
            #[cfg(feature = "planted")]
            parts: self.journal.planted() == Some(crate::Planted::PartTogether),
        })
    }

    /// The keys of the active segment take as much memory as they may: it counts as full, so that they go into a checkpoint.
    fn has_too_much_state(&self) -> bool {
        self.active.state.bytes() > self.journal.config().state_bytes
    }

    /// Longest chunk that [`Writer::take_memory`] has memory for: this thread alone takes from the pool, so what is there
    /// now will be there then.
    fn memory(&mut self) -> usize {
        if self.spare_block.is_none() {
            let pool = self.journal.pool();
            self.spare_block = pool.take(BLOCK_BYTES).or_else(|| {
                self.journal.tail().shrink();
                pool.take(BLOCK_BYTES)
            });
            if pool.wants_touching() {
                self.journal.wake_keeper(false);
            }
        }
        match &self.spare_block {
            Some(_) if self.journal.pool().may_take_single() => usize::MAX,
            Some(_) => BLOCK_BYTES,
            None => self.open_block.as_ref().map_or(0, |open| open.block.len() - open.filled),
        }
    }

    /// Memory for a chunk: its block, where it begins in it, and the block's number.
    fn take_memory(&mut self, bytes: usize) -> (Arc<Block>, usize, u64) {
        const LOOKED_FOR: &str = "memory was looked for before anything was placed";
        if bytes > BLOCK_BYTES {
            // Nothing else goes into it; kept open it would take the memory of the next.
            self.open_block = None;
            let block = Arc::new(self.journal.pool().take(bytes).expect(LOOKED_FOR));
            self.block_number += block.len().div_ceil(BLOCK_BYTES) as u64;
            return (block, 0, self.block_number);
        }
        if self.open_block.as_ref().is_none_or(|open| open.filled + bytes > open.block.len()) {
            let block = Arc::new(self.spare_block.take().expect(LOOKED_FOR));
            self.block_number += 1;
            self.open_block = Some(OpenBlock { block, filled: 0, number: self.block_number });
        }
        let open = self.open_block.as_mut().expect("set above");
        let start = open.filled;
        open.filled += bytes;
        (Arc::clone(&open.block), start, open.number)
    }

    /// Copies the plan into memory, enters its runs into their logs, and returns the chunk and its bytes, ready to be written.
    fn write_plan(&mut self, mut plan: Plan, now: Timestamp) -> (Flight, Bytes) {
        match plan.shared.is_empty() {
            true => plan.batches.sort_by_key(|placed| placed.id),
            false => plan.batches.sort_by_key(|placed| (placed.stage, placed.id)),
        }
        let runs = plan.batches.chunk_by(PlacedBatch::of_one_run).count();
        let entries = runs + plan.shared.len() + plan.state.len() + plan.trims.len() + plan.drops.len();
        let references = plan.shared.references();
        let used = bodies_at(entries, references) + plan.body_bytes;
        let chunk_bytes = padded(used);
        let (block, start, block_number) = self.take_memory(chunk_bytes);
        // SAFETY: the range lies behind everything that was filled and shared before.
        let memory = unsafe { block.range_mut(start, chunk_bytes) };
        let mut chunk = ChunkInMaking::new(memory, entries, references, self.term.0);
        let index = self.next_index;
        let (mut at, mut stage) = (0, 0);
        for group in plan.batches.chunk_by(PlacedBatch::of_one_run) {
            at += group.len();
            self.write_shared(&mut chunk, plan.shared.until(&mut stage, group[0].stage), index, now);
            if let Some(ahead) = plan.batches.get(at + LOGS_AHEAD) {
                ahead.log.prefetch_whole();
            }
            let entry = chunk.add_batches(group);
            self.enter_run(&group[0].log, &entry, index, now);
        }
        self.write_shared(&mut chunk, plan.shared.until(&mut stage, u16::MAX), index, now);
        for (key, value) in &plan.state {
            chunk.add_state(key, value.as_ref());
            self.active.state.put(key, value.as_deref());
        }
        self.journal.set_state_memory(self.active.state.bytes());
        for (log, to) in &plan.trims {
            chunk.add_trim(log.id(), *to);
            self.active.touch(log);
        }
        for log in &plan.drops {
            chunk.add_drop(log);
            self.active.touch(log);
        }
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::DropUnwritten) {
            self.journal.forget_logs(&plan.drops);
        }
        chunk.memory[used..].fill(0);
        chunk.drops = !plan.drops.is_empty();
        let header = self.finish_header(&mut chunk, (entries, references), plan.body_bytes, chunk_bytes, now);
        let bytes = block.share(start, chunk_bytes);
        let position = self.active.position;
        let rows = (runs + references) as u32;
        let tail = TailChunk { bytes: bytes.clone(), position: position as u32, rows, block: block_number };
        self.journal.tail().push(index, tail);
        self.previous_crc = header;
        self.next_index = index.next();
        self.active.position += chunk_bytes as u64;
        self.journal.metrics().chunk_bytes.observe(chunk_bytes as f64);
        self.journal.metrics().runs.inc_by(u64::from(rows));
        let mut flight = Flight::new(index, bytes.len(), Arc::clone(&self.active.file), position);
        flight.fsync = plan.fsync;
        flight.take_ends(&mut plan.batches, runs);
        flight.take_shared_ends(plan.shared);
        plan.batches.shrink_to(BATCHES_KEPT);
        self.batches = plan.batches;
        flight.trims = plan.trims;
        flight.drops = plan.drops;
        flight.dsync = plan.fsync && chunk_bytes <= DSYNC_BYTES_MAX && self.may_dsync();
        (flight, bytes)
    }

    fn may_dsync(&self) -> bool {
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::DsyncOverUnflushed) {
            return true;
        }
        self.flights.is_empty()
    }

    fn finish_header(
        &self,
        chunk: &mut ChunkInMaking<'_>,
        (entries, references): (usize, usize),
        body_bytes: usize,
        chunk_bytes: usize,
        now: Timestamp,
    ) -> u32 {
        let directory_crc = crc32c(&chunk.memory[HEADER_BYTES..bodies_at(entries, references)]);
        let header = ChunkHeader {
            journal: self.journal.uuid(),
            segment: self.active.sequence,
            index: self.next_index,
            durable_index: self.flights.durable(),
            term: self.term,
            previous_crc: self.previous_crc,
            time: now,
            entries: entries as u32,
            references: references as u32,
            drops: chunk.drops,
            body_bytes: body_bytes as u32,
            chunk_bytes: chunk_bytes as u32,
            directory_crc,
        };
        header.encode(chunk.memory)
    }

    pub(super) fn enter_run(&mut self, log: &Arc<Log>, entry: &Entry, chunk: LogIndex, now: Timestamp) {
        let run = Run {
            log: log.id(),
            base: entry.base,
            next: entry.next(),
            position: self.active.position as u32 + entry.position,
            bytes: entry.bytes,
            crc: entry.crc,
            records: entry.records,
            shared: entry.shared,
            max_timestamp: entry.max_timestamp,
            append_time: now,
        };
        let place = self.active.touch(log);
        let number = self.active.runs.push(&run, place, chunk);
        let mut inner = log.inner();
        inner.enter_term(self.term, entry.base);
        inner.runs.push(number);
        drop(inner);
        log.add_bytes(u64::from(entry.bytes));
    }

    fn submit(&mut self, flight: Flight, bytes: Bytes) {
        #[cfg(feature = "planted")]
        let flight = self.planted_elsewhere(flight);
        let op = WriteOp {
            token: flight.index.0,
            file: Arc::clone(&flight.file),
            position: flight.position,
            data: bytes,
            dsync: flight.dsync,
        };
        self.flights.push(flight);
        self.journal.metrics().flushed_writes.inc_by(u64::from(op.dsync));
        if self.here {
            self.journal.metrics().direct_commits.inc();
            self.completions.push(self.submitter.write_now(op));
        } else {
            self.submitter.write(op);
        }
    }

    #[cfg(feature = "planted")]
    fn planted_elsewhere(&self, mut flight: Flight) -> Flight {
        if self.journal.planted() == Some(crate::Planted::RewriteAcknowledged)
            && flight.position > 8192
            && flight.index.0.is_multiple_of(3)
        {
            flight.position -= SECTOR as u64;
        }
        flight
    }

    /// The first chunk of a term: no records, flushed like any commit of class `fsync`.
    pub(super) fn write_new_term(&mut self) {
        assert!(self.memory() >= SECTOR, "an unused pool has a block");
        let (mut flight, bytes) = self.write_mark(0);
        flight.fsync = true;
        flight.dsync = true;
        self.submit(flight, bytes);
    }

    /// The last chunk of a segment, durable before anything that follows it. A segment that an older release has filled may have no room.
    pub(super) fn end_segment(&mut self) {
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::LeaveUnmarked) {
            return;
        }
        if self.active.position + SECTOR as u64 > self.active.size || self.memory() < SECTOR {
            return;
        }
        let (mut flight, bytes) = self.write_mark(FLAG_LEFT);
        flight.dsync = self.may_dsync();
        self.submit(flight, bytes);
    }

    /// A chunk without records.
    fn write_mark(&mut self, flags: u8) -> (Flight, Bytes) {
        let now = self.journal.now_ms();
        let (block, start, block_number) = self.take_memory(SECTOR);
        // SAFETY: the range lies behind everything that was filled and shared before.
        let memory = unsafe { block.range_mut(start, SECTOR) };
        memory.fill(0);
        let mut chunk = ChunkInMaking::new(memory, 1, 0, self.term.0);
        chunk.add_entry(Entry { kind: EntryKind::NewTerm, flags, ..Entry::EMPTY });
        let crc = self.finish_header(&mut chunk, (1, 0), 0, SECTOR, now);
        let bytes = block.share(start, SECTOR);
        let position = self.active.position;
        let index = self.next_index;
        self.journal
            .tail()
            .push(index, TailChunk { bytes: bytes.clone(), position: position as u32, rows: 0, block: block_number });
        self.previous_crc = crc;
        self.next_index = index.next();
        self.active.position += SECTOR as u64;
        (Flight::new(index, bytes.len(), Arc::clone(&self.active.file), position), bytes)
    }
}

impl Flight {
    /// The new ends of the logs of these batches, which are sorted by log; `runs` logs.
    fn take_ends(&mut self, batches: &mut Vec<PlacedBatch>, runs: usize) {
        let mut batches = batches.drain(..).peekable();
        while let Some(placed) = batches.next() {
            if batches.peek().is_some_and(|next| placed.of_one_run(next)) {
                continue;
            }
            let end = placed.next();
            let memory = placed.log.durability() == Durability::Memory;
            let ends = if memory { &mut self.ends_memory } else { &mut self.ends_fsync };
            if ends.is_empty() {
                ends.reserve(runs);
            }
            ends.push((placed.log, end));
        }
    }
}

/// Decides on one item: an error or duplicate is answered, a new one gets its offset and enters the plan.
fn place(
    plan: &mut Plan,
    room: &Room,
    wants: &mut Wants,
    request: &mut Placing,
    item: AppendItem,
    now: Timestamp,
) -> Place {
    let bytes = plan.chunk_bytes_with(&item);
    let data = item.is_data();
    let alone = padded(bodies_at(item.entries(), item.references()) + item.body_bytes());
    if alone > room.largest || item.entries() > BODIES_MAX {
        request.results.push(Err(AppendError::TooLarge));
        return Place::Done;
    }
    let from_reserve = data && request.when_full == WhenFull::FromReserve;
    wants.reserve |= from_reserve && room.disk_full;
    // What is left on a full disk is for what brings space back.
    let shut_out = data && !from_reserve && room.disk_full;
    let waits = data && request.when_full == WhenFull::Wait && !room.closing;
    if shut_out {
        return if waits { Place::Held(item) } else { refuse_for_space(request, AppendError::DiskFull) };
    }
    let limit = match data {
        true => room.data,
        false if item.gives_back() => room.gives_back,
        false => room.state,
    };
    if bytes > limit {
        let follows = if data { room.follows_for_data } else { room.follows };
        if let Some(error) = room.refused.filter(|_| !follows && !waits && plan.is_empty()) {
            wants.reserve_spent |= from_reserve && room.disk_full;
            return refuse_for_space(request, error);
        }
        if room.closing && !follows {
            return refuse_for_space(request, AppendError::Stopped);
        }
        wants.roll = true;
        wants.for_state |= !data;
        return if data && !room.rolls && !room.disk_full { Place::Held(item) } else { Place::Full(item) };
    }
    wants.memory |= plan.is_empty() && bytes > BLOCK_BYTES && bytes > room.memory;
    if bytes > room.memory || bytes > BLOCK_BYTES && !plan.is_empty() || plan.shared.len() + item.entries() > BODIES_MAX
    {
        return Place::Full(item);
    }
    let result = match item {
        #[cfg(feature = "planted")]
        AppendItem::Together(mut items) if items.len() > 1 && room.parts => {
            let first = items.remove(0);
            let _ = place_item(plan, request, first, now);
            return Place::Full(AppendItem::Together(items));
        }
        AppendItem::Together(items) => place_together(plan, request, items, now),
        item => place_item(plan, request, item, now),
    };
    request.results.push(result);
    Place::Done
}

/// All of them into this chunk, which has room.
fn place_together(
    plan: &mut Plan,
    request: &mut Placing,
    items: Vec<AppendItem>,
    now: Timestamp,
) -> Result<Appended, AppendError> {
    if let Some(error) = request.no_space {
        return Err(error);
    }
    let mut outcome = Ok(Appended { base: Offset::ZERO, log_start: Offset::ZERO, duplicate: false });
    for item in items {
        match place_item(plan, request, item, now) {
            Ok(_) | Err(AppendError::LogDeleted) => {}
            failed => outcome = outcome.and(failed),
        }
    }
    outcome
}

fn place_item(
    plan: &mut Plan,
    request: &mut Placing,
    item: AppendItem,
    now: Timestamp,
) -> Result<Appended, AppendError> {
    let body_bytes = item.body_bytes();
    let appended = match item {
        AppendItem::Batch { log, bytes, header, gate } => {
            if gate.is_some_and(|gate| gate.is_closed()) {
                return Err(AppendError::TransactionEnded);
            }
            let appended = place_batch(plan, request, log, bytes, header, now)?;
            if appended.duplicate {
                return Ok(appended);
            }
            appended
        }
        // A record behind data that found no space may say that the data is there.
        AppendItem::State { .. } | AppendItem::StateOf { .. } if let Some(error) = request.no_space => {
            return Err(error);
        }
        AppendItem::Shared { logs, bytes, header } => {
            let appended = place_shared(plan, request, &logs, bytes, &header)?;
            // It may have joined another: then it needs no entry.
            plan.body_bytes += body_bytes;
            return Ok(appended);
        }
        AppendItem::State { key, value } => place_state(plan, request, (key, value), Durability::Fsync),
        AppendItem::StateOf { log, key, value } => place_state(plan, request, (key, value), log.durability()),
        AppendItem::Trim { log, to } => {
            let to = {
                let mut inner = log.inner();
                if inner.ended {
                    return Err(AppendError::LogDeleted);
                }
                let to = to.min(log.end()).max(log.start()).max(inner.start_placed);
                inner.start_placed = to;
                to
            };
            plan.trims.push((log, to));
            plan.fsync = true;
            request.fsync = true;
            Appended { base: to, log_start: to, duplicate: false }
        }
        AppendItem::Drop { log } => {
            let appended = Appended { base: log.end(), log_start: log.start(), duplicate: false };
            let fsync = log.durability() == Durability::Fsync;
            request.fsync |= fsync;
            if std::mem::replace(&mut log.inner().ended, true) {
                return Ok(appended);
            }
            plan.drops.push(log);
            plan.fsync |= fsync;
            appended
        }
        AppendItem::Together(items) => return place_together(plan, request, items, now),
    };
    plan.entries_max += 1;
    plan.body_bytes += body_bytes;
    Ok(appended)
}

/// An item finds no space, and state behind it may not be placed either.
fn refuse_for_space(request: &mut Placing, error: AppendError) -> Place {
    request.no_space = Some(error);
    request.results.push(Err(error));
    Place::Done
}

fn place_state(plan: &mut Plan, request: &mut Placing, record: (Bytes, Option<Bytes>), class: Durability) -> Appended {
    plan.state.push(record);
    plan.fsync |= class == Durability::Fsync;
    request.fsync |= class == Durability::Fsync;
    Appended { base: Offset::ZERO, log_start: Offset::ZERO, duplicate: false }
}

fn place_batch(
    plan: &mut Plan,
    request: &mut Placing,
    log: Arc<Log>,
    bytes: Bytes,
    header: BatchHeader,
    now: Timestamp,
) -> Result<Appended, AppendError> {
    let mut inner = log.inner();
    let outcome = if inner.ended {
        Err(AppendError::LogDeleted)
    } else if header.idempotent() {
        judge(&mut inner.producers, &log, &header, &bytes, now)
    } else {
        Ok((log.claim(header.records_count as u64), false))
    };
    drop(inner);
    let (base, duplicate) = outcome?;
    // That a transaction has ended is written behind its markers, perhaps in another journal: they are answered when they are durable.
    let fsync = log.durability() == Durability::Fsync || header.control();
    request.fsync |= fsync;
    let appended = Appended { base, log_start: log.start(), duplicate };
    if !duplicate {
        plan.fsync |= fsync;
        let stage = plan.shared.stage_of(log.id());
        plan.batches.push(PlacedBatch::new(log, bytes, &header, base, stage));
    }
    Ok(appended)
}

/// Offset of an idempotent batch, and whether it had been there before.
fn judge(
    producers: &mut Option<Box<Producers>>,
    log: &Log,
    header: &BatchHeader,
    bytes: &[u8],
    now: Timestamp,
) -> Result<(Offset, bool), AppendError> {
    let producers = producers.get_or_insert_with(|| Box::new(Producers::counted(log.producer_room())));
    match producers.judge(header) {
        Verdict::Append if !header.control() && !producers.admit(header.producer_id, now) => {
            Err(AppendError::TooManyProducers)
        }
        Verdict::Append => {
            let base = log.claim(header.records_count as u64);
            if header.transactional() {
                log.set_transactional();
                log.set_marked(base.plus(header.records_count as u64));
            }
            match Marker::of(header, bytes) {
                Some(marker) => {
                    producers.end_transaction(header, marker, base, now, (log.start(), log.high_watermark()))
                }
                None => producers.remember(header, base, now),
            }
            Ok((base, false))
        }
        Verdict::Duplicate { base, .. } => Ok((base, true)),
        Verdict::OutOfOrder => Err(AppendError::OutOfOrderSequence),
        Verdict::Fenced => Err(AppendError::InvalidProducerEpoch),
        Verdict::NotInTransaction => Err(AppendError::NotInTransaction),
    }
}
