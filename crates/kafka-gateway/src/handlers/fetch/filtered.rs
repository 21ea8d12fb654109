//! A fetch of a member of a group with a filter: it reads on through what is not wanted, keeps what is, and tells the client how far it
//! has come, although there may be nothing in it. A batch of which the records take longer to judge than a turn is left to the threads for what
//! takes long, which go on with it turn by turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{Broker, ColdData, ColdWant, GroupFilter, Let, Log, ReadError, Room, TailRead, UnpackRoom};
use bytes::Bytes;
use record::gap_marker;
use smallvec::SmallVec;
use types::Offset;

/// What is read at once.
const PIECE_BYTES: usize = 1 << 20;
/// What of one partition is gone through in a turn …
const PARTITION_BYTES_MAX: usize = 4 << 20;
/// … and of all together. Then the client is told how far that is, and others get their turn.
const TURN_BYTES_MAX: usize = 8 << 20;

/// How far a partition has been read, and what of that is wanted.
#[derive(Clone, Default)]
struct Passed {
    /// Offset after what was gone through; `None` before the first read.
    next: Option<Offset>,
    slices: SmallVec<[Bytes; 4]>,
    bytes: usize,
    /// Offset after the last batch of `slices`.
    covered: Offset,
}

/// The filter of a fetch, and what has come of it so far.
pub(super) struct Filtered {
    filter: Arc<GroupFilter>,
    passed: Vec<Passed>,
    /// Bytes that have passed, of all partitions, …
    bytes: usize,
    /// … and how many of them there may be.
    bytes_max: usize,
    /// Bytes that may be gone through in this turn.
    left: usize,
    /// What may be unpacked for that.
    unpack: UnpackRoom,
    /// A partition has been gone through as far as it may in this turn, or as there was room for what passes.
    spent: bool,
    /// The next batch of a partition takes long to judge.
    long: bool,
}

impl Filtered {
    pub fn new(filter: Arc<GroupFilter>, partitions: usize) -> Self {
        Self {
            filter,
            passed: vec![Passed::default(); partitions],
            bytes: 0,
            bytes_max: 0,
            left: TURN_BYTES_MAX,
            unpack: UnpackRoom::TURN,
            spent: false,
            long: false,
        }
    }

    pub fn filter(&self) -> &Arc<GroupFilter> {
        &self.filter
    }

    /// A new turn begins, for an answer of at most so many bytes.
    pub fn begin_turn(&mut self, bytes_max: usize) {
        (self.left, self.unpack, self.spent, self.long, self.bytes_max) =
            (TURN_BYTES_MAX, UnpackRoom::TURN, false, false, bytes_max);
    }

    /// It has gone through as much as it may in a turn.
    pub fn is_spent(&self) -> bool {
        self.spent || self.left == 0
    }

    /// Where partition `at` is to be read on, which begins at `offset`.
    pub fn from(&self, at: usize, offset: Offset) -> Offset {
        self.passed[at].next.unwrap_or(offset)
    }

    /// Has it come to batches in this turn that take long to judge? Their partitions are to be read like history, elsewhere.
    pub fn is_long(&self) -> bool {
        self.long
    }

    /// Reads on in memory until `max_bytes` of this partition, or as many as the answer takes, have passed; all that has passed so far. As for
    /// everybody, what passes first may be larger.
    pub fn read_tail(
        &mut self,
        at: usize,
        broker: &Broker,
        log: &Log,
        range: std::ops::Range<Offset>,
        max_bytes: usize,
    ) -> TailRead {
        let passed = &mut self.passed[at];
        let journal = broker.journal_of(log.id());
        let mut partition_left = PARTITION_BYTES_MAX;
        let (mut full, mut long) = (false, false);
        loop {
            let from = passed.next.unwrap_or(range.start);
            let piece = PIECE_BYTES.min(self.left).min(partition_left);
            if full || from >= range.end || piece == 0 {
                break;
            }
            match journal.read_tail(log, from..range.end, piece, true) {
                TailRead::Data { slices, bytes, next } => {
                    self.left = self.left.saturating_sub(bytes);
                    partition_left = partition_left.saturating_sub(bytes);
                    let bytes = self.bytes_max.saturating_sub(self.bytes).min(max_bytes.saturating_sub(passed.bytes));
                    let room = Room { bytes, first_fits: self.bytes == 0 };
                    let more = broker.filters().pass(log.id(), &slices, &self.filter.filter, room, &mut self.unpack);
                    self.bytes += more.bytes;
                    full = more.full_at.is_some();
                    long = self.unpack.take_long() && more.full_at.is_some_and(|at| at <= range.start);
                    passed.enter(more, next);
                }
                TailRead::Cold if passed.bytes == 0 => return TailRead::Cold,
                TailRead::OutOfRange if passed.next.is_none() => return TailRead::OutOfRange,
                TailRead::Cold | TailRead::OutOfRange | TailRead::Empty => break,
            }
        }
        if long && passed.bytes == 0 {
            self.long = true;
            return TailRead::Cold;
        }
        self.spent |= full || partition_left == 0;
        match passed.next {
            Some(next) => TailRead::Data { slices: passed.slices.clone(), bytes: passed.bytes, next },
            None => TailRead::Empty,
        }
    }

    /// Takes what was read from history and has been through the filter.
    pub fn take_cold(&mut self, at: usize, data: ColdData, covered: Offset) -> ColdData {
        let passed = &mut self.passed[at];
        passed.next = Some(data.next);
        passed.bytes += data.bytes;
        self.bytes += data.bytes;
        passed.slices.extend(data.slices);
        passed.covered = passed.covered.max(covered);
        ColdData { slices: passed.slices.clone(), bytes: passed.bytes, next: data.next }
    }

    /// What tells the client that partition `at` has been gone through further than its last batch says; `offset` is where it began.
    pub fn gap(&self, at: usize, offset: Offset, broker: &Broker, log: &Log) -> Option<Bytes> {
        let passed = &self.passed[at];
        let next = passed.next.filter(|next| *next > offset && *next > passed.covered)?;
        Some(gap_marker(Offset(next.0 - 1), log.leader_epoch(), broker.now_ms()))
    }
}

impl Passed {
    /// Takes what passed of what was read up to `next`.
    fn enter(&mut self, more: Let, next: Offset) {
        let next = more.full_at.unwrap_or(next);
        self.next = Some(next);
        self.bytes += more.bytes;
        self.slices.extend(more.slices);
        self.covered = self.covered.max(more.next.min(next));
    }
}

/// Puts what was read from history through a filter; where the last batch that passes ends. On a thread for history.
fn pass_cold(
    broker: &Broker,
    log: &Log,
    filter: &GroupFilter,
    data: ColdData,
    unpack: &mut UnpackRoom,
) -> (ColdData, Offset) {
    unpack.begin_partition();
    let passed = broker.filters().pass(log.id(), &data.slices, &filter.filter, Room::ANY, unpack);
    let next = passed.full_at.unwrap_or(data.next);
    let covered = passed.next.min(next);
    (ColdData { slices: passed.slices, bytes: passed.bytes, next }, covered)
}

/// What was read of partitions.
pub(super) struct ReadOn {
    pub results: Vec<Option<Result<(ColdData, Offset), ReadError>>>,
    /// Nothing has come of it yet: a batch takes longer to judge than a turn.
    pub long: bool,
    /// What the filter took.
    pub took: Duration,
}

/// Reads on in partitions of which the journals are numbered, through a filter if there is one, and as far as that gets in one turn. On a thread that may
/// wait.
pub(super) fn read_on(
    broker: &Broker,
    wants: &[(usize, ColdWant)],
    room: usize,
    filter: Option<&GroupFilter>,
    in_memory: bool,
) -> ReadOn {
    let mut results: Vec<Option<Result<ColdData, ReadError>>> =
        wants.iter().map(|(number, want)| if in_memory { read_tail(broker, *number, want) } else { None }).collect();
    for (number, journal) in broker.journals().iter().enumerate() {
        let own: Vec<usize> = (0..wants.len()).filter(|at| wants[*at].0 == number && results[*at].is_none()).collect();
        let part: Vec<ColdWant> = own.iter().map(|at| wants[*at].1.clone()).collect();
        if part.is_empty() {
            continue;
        }
        for (at, result) in own.into_iter().zip(journal.read_cold(&part, room)) {
            results[at] = Some(result);
        }
    }
    let (mut unpack, mut further, began) = (UnpackRoom::HISTORY, false, Instant::now());
    let results = results.into_iter().zip(wants).map(|(result, (_, want))| {
        let passed = result?.map(|data| match filter {
            Some(filter) => pass_cold(broker, &want.log, filter, data, &mut unpack),
            None => (data, Offset::ZERO),
        });
        further |= passed.as_ref().map_or(true, |(data, _)| data.next > want.from);
        Some(passed)
    });
    let results = results.collect();
    ReadOn { results, long: unpack.take_long() && !further, took: began.elapsed() }
}

/// What is still in memory of a partition.
fn read_tail(broker: &Broker, journal: usize, want: &ColdWant) -> Option<Result<ColdData, ReadError>> {
    let journal = broker.journals().get(journal)?;
    match journal.read_tail(&want.log, want.from..want.until, want.max_bytes.min(PIECE_BYTES), true) {
        TailRead::Data { slices, bytes, next } => Some(Ok(ColdData { slices, bytes, next })),
        TailRead::Cold | TailRead::Empty | TailRead::OutOfRange => None,
    }
}
