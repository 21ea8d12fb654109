//! The runs of the newest segments: those whose index is not on disk yet, or whose chunks may still be cached.
//!
//! One table for the journal, in the order of writing, and in each log only the numbers of its own runs: with many logs a
//! commit writes to one place instead of to as many as it has runs, and a segment is let go page by page.
//!
//! ```text
//! table   page 7 (segment 3) │ page 8 (segment 3, closed early) │ page 9 (segment 4) │ …
//! log     numbers, ascending: page * RUNS_PER_PAGE + row
//! ```
//!
//! * The writer (or recovery) alone enters runs. It enters a run before its number, and the number under the log's lock, under
//!   which look-ups read it: a row is seen whole or not at all.
//! * The keeper removes a page after the numbers that point into it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use types::{LogId, LogIndex, Offset};

use crate::run::Run;

/// In a row's number of bytes: the run is shared. No run is so long.
const SHARED: u32 = 1 << 31;

/// Rows of a page: 64 KiB.
const RUNS_PER_PAGE: usize = 1024;

/// A run of a segment whose index is not on disk yet, or whose chunk is still cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecentRun {
    pub run: Run,
    pub segment: u64,
    pub chunk: LogIndex,
}

/// Newest numbers that lie in the log itself: a cache line.
const NEWEST: usize = 8;

/// Room for older ones, once there are any.
const OLDER_MIN: usize = 56;

/// Numbers of a log's runs, ascending. The newest lie here and not behind a pointer: with many logs, each written now and then,
/// the memory behind it would have to be fetched for every run.
#[derive(Default)]
#[repr(C)]
pub(crate) struct RunNumbers {
    count: usize,
    newest: [u64; NEWEST],
    older: VecDeque<u64>,
}

impl RunNumbers {
    /// Adds the largest.
    pub fn push(&mut self, number: u64) {
        if self.count == NEWEST {
            if self.older.capacity() == 0 {
                self.older.reserve(OLDER_MIN);
            }
            self.older.extend(self.newest);
            self.count = 0;
        }
        self.newest[self.count] = number;
        self.count += 1;
    }

    /// Lets go of those below `end`.
    pub fn remove_below(&mut self, end: u64) {
        let gone = self.older.partition_point(|number| *number < end);
        self.older.drain(..gone);
        if self.older.is_empty() {
            self.older = VecDeque::new();
        } else if self.older.len() * 8 < self.older.capacity() {
            self.older.shrink_to((self.older.len() * 2).max(OLDER_MIN));
        }
        let gone = self.newest[..self.count].partition_point(|number| *number < end);
        self.newest.copy_within(gone..self.count, 0);
        self.count -= gone;
    }

    pub fn first(&self) -> Option<u64> {
        self.older.front().or(self.newest[..self.count].first()).copied()
    }

    /// Those from the first on that is not `before`; `before` holds for a prefix.
    fn from(&self, mut before: impl FnMut(u64) -> bool) -> impl Iterator<Item = u64> {
        let newest = &self.newest[..self.count];
        // Most look-ups are for what came last.
        let among_newest = newest.first().is_none_or(|first| before(*first));
        let (older, newest) = if among_newest {
            (self.older.len(), newest.partition_point(|number| before(*number)))
        } else {
            (self.older.partition_point(|number| before(*number)), 0)
        };
        self.older.range(older..).chain(&self.newest[newest..self.count]).copied()
    }
}

/// A run as it lies in a page: one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Row([AtomicU64; 8]);

impl Row {
    fn put(&self, run: &Run, log_place: u32, chunk: LogIndex) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let fields = [
            run.log.0,
            run.base.0,
            pair(run.next.since(run.base) as u32, run.position),
            pair(run.bytes | if run.shared { SHARED } else { 0 }, run.crc),
            pair(run.records, log_place),
            run.max_timestamp as u64,
            run.append_time as u64,
            chunk.0,
        ];
        for (place, field) in self.0.iter().zip(fields) {
            place.store(field, Ordering::Relaxed);
        }
    }

    fn field(&self, number: usize) -> u64 {
        self.0[number].load(Ordering::Relaxed)
    }

    fn next(&self) -> Offset {
        Offset(self.field(1)).plus(u64::from(self.field(2) as u32))
    }

    fn run(&self) -> Run {
        let (log, base, place, content) = (self.field(0), self.field(1), self.field(2), self.field(3));
        Run {
            log: LogId(log),
            base: Offset(base),
            next: self.next(),
            position: (place >> 32) as u32,
            bytes: content as u32 & !SHARED,
            shared: content as u32 & SHARED != 0,
            crc: (content >> 32) as u32,
            records: self.field(4) as u32,
            max_timestamp: self.field(5) as i64,
            append_time: self.field(6) as i64,
        }
    }

    /// Place of its log in the segment's list.
    fn log_place(&self) -> u32 {
        (self.field(4) >> 32) as u32
    }

    fn chunk(&self) -> LogIndex {
        LogIndex(self.field(7))
    }
}

/// Runs of one segment.
struct Page {
    segment: u64,
    rows: Box<[Row]>,
}

/// The pages that are still needed, with consecutive numbers.
#[derive(Default)]
struct Pages {
    first: u64,
    pages: VecDeque<Arc<Page>>,
}

impl Pages {
    fn row(&self, number: u64) -> Option<(&Page, &Row)> {
        let page = (number / RUNS_PER_PAGE as u64).checked_sub(self.first)?;
        let page = self.pages.get(page as usize)?;
        Some((page, page.rows.get(number as usize % RUNS_PER_PAGE)?))
    }
}

/// The table of a journal.
#[derive(Default)]
pub(crate) struct RecentRuns {
    pages: RwLock<Pages>,
}

impl RecentRuns {
    /// Appends a page and returns it with the number of its first row.
    fn add_page(&self, segment: u64) -> (Arc<Page>, u64) {
        let page = Arc::new(Page { segment, rows: (0..RUNS_PER_PAGE).map(|_| Row::default()).collect() });
        let mut pages = self.pages.write();
        let number = pages.first + pages.pages.len() as u64;
        pages.pages.push_back(Arc::clone(&page));
        (page, number * RUNS_PER_PAGE as u64)
    }

    /// Lets go of the segments up to this one. No log holds a number of theirs any more.
    pub fn remove_through(&self, segment: u64) {
        // They are freed when the lock is, not under it.
        let mut gone = Vec::new();
        let mut pages = self.pages.write();
        while pages.pages.front().is_some_and(|page| page.segment <= segment) {
            pages.first += 1;
            gone.extend(pages.pages.pop_front());
        }
        drop(pages);
    }

    /// Shows the runs with these numbers, ascending, from the first on that ends behind `from`, until `visit` says no.
    /// Under the lock of their log.
    pub fn visit_from(&self, numbers: &RunNumbers, from: Offset, mut visit: impl FnMut(RecentRun) -> bool) {
        let pages = self.pages.read();
        let numbers = numbers.from(|number| pages.row(number).is_none_or(|(_, row)| row.next() <= from));
        for (page, row) in numbers.map_while(|number| pages.row(number)) {
            if !visit(RecentRun { run: row.run(), segment: page.segment, chunk: row.chunk() }) {
                return;
            }
        }
    }

    /// The run with this number.
    pub fn run(&self, number: u64) -> Option<Run> {
        Some(self.pages.read().row(number)?.1.run())
    }
}

/// The runs of one segment, in the order of writing, as its writer holds them and then its sealing.
pub(crate) struct SegmentRuns {
    table: Arc<RecentRuns>,
    segment: u64,
    pages: Vec<Arc<Page>>,
    len: usize,
    /// Number of the next run while the newest page has room.
    next: u64,
}

impl SegmentRuns {
    pub fn new(table: &Arc<RecentRuns>, segment: u64) -> Self {
        Self { table: Arc::clone(table), segment, pages: Vec::new(), len: 0, next: 0 }
    }

    /// Enters a run of the log at `log_place` in the segment's list, and returns its number, larger than any before.
    pub fn push(&mut self, run: &Run, log_place: u32, chunk: LogIndex) -> u64 {
        let row = self.len % RUNS_PER_PAGE;
        if row == 0 {
            let (page, number) = self.table.add_page(self.segment);
            self.pages.push(page);
            self.next = number;
        }
        self.pages[self.len / RUNS_PER_PAGE].rows[row].put(run, log_place, chunk);
        self.len += 1;
        self.next += 1;
        self.next - 1
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Every number of the segment, and of those before, is below this one.
    pub fn end(&self) -> u64 {
        self.next
    }

    /// All of them in the order of writing, each with the place of its log in the segment's list.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Run)> + Clone {
        let rows = self.pages.iter().flat_map(|page| page.rows.iter());
        rows.take(self.len).map(|row| (row.log_place(), row.run()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(log: u64, base: u64, bytes: u32) -> Run {
        Run {
            log: LogId(log),
            base: Offset(base),
            next: Offset(base + 3),
            position: bytes * 7,
            bytes,
            crc: !bytes,
            records: 3,
            shared: bytes % 3 == 1,
            max_timestamp: -1,
            append_time: i64::from(bytes) << 33,
        }
    }

    fn found(table: &RecentRuns, numbers: &RunNumbers, from: u64) -> Vec<RecentRun> {
        let mut all = Vec::new();
        table.visit_from(numbers, Offset(from), |run| {
            all.push(run);
            true
        });
        all
    }

    /// Two logs in turns over four segments of several pages each, the last page of each cut short; every look-up is compared with
    /// a plain list, while segments go from the front.
    #[test]
    fn every_run_is_found_until_its_segment_goes() {
        let table = Arc::new(RecentRuns::default());
        let mut logs = [(RunNumbers::default(), Vec::new(), 0), (RunNumbers::default(), Vec::new(), 0)];
        let mut ends = Vec::new();
        for segment in 0..4u64 {
            let mut runs = SegmentRuns::new(&table, segment);
            let count = 2 * RUNS_PER_PAGE + 100 * segment as usize;
            for at in 0..count {
                let log = usize::from(at % 5 == 0);
                let (numbers, expected, next) = &mut logs[log];
                let (run, chunk) = (run(log as u64, *next, at as u32 + 1), LogIndex(at as u64 / 10));
                numbers.push(runs.push(&run, log as u32, chunk));
                expected.push(RecentRun { run, segment, chunk });
                *next += 3;
            }
            let listed: Vec<(u32, Run)> = runs.iter().collect();
            assert_eq!((runs.len(), listed.len()), (count, count));
            assert!(listed.iter().zip(1..).all(|((log, run), at)| u64::from(*log) == run.log.0 && run.bytes == at));
            ends.push(runs.end());
        }
        for gone in 0..=4 {
            for (numbers, expected, next) in &logs {
                for from in (0..*next + 4).step_by(97).chain([*next - 1, *next]) {
                    let wanted: Vec<_> = expected.iter().filter(|run| run.run.next.0 > from).copied().collect();
                    assert_eq!(found(&table, numbers, from), wanted, "from {from} with {gone} segments gone");
                }
                let first = numbers.first().and_then(|number| table.run(number));
                assert_eq!(first, expected.first().map(|recent| recent.run));
            }
            if let Some(end) = ends.get(gone) {
                for (numbers, expected, _) in &mut logs {
                    numbers.remove_below(*end);
                    expected.retain(|run| run.segment > gone as u64);
                }
                table.remove_through(gone as u64);
            }
        }
        assert!(table.pages.read().pages.is_empty());
    }
}
