//! How much of a segment is live: what a rewriting would keep of it.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Keeper;
use crate::disk::SECTOR;
use crate::index::{INDEX_ENTRY_BYTES, LogRow, ROW_BYTES, SealedIndex};
use crate::log::Log;
use crate::run::Run;
use crate::segments::{Segment, SegmentError};

/// What a rewritten segment takes beside bodies and index: its header, its footer, and what fills sections up to whole sectors.
const AROUND_BYTES: u64 = 8 * SECTOR as u64;

/// How much of a segment is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub sequence: u64,
    /// Length of its file.
    pub file_bytes: u64,
    /// Live bodies; at least 1 as long as a log needs anything of it.
    pub live_bytes: u64,
    /// What a rewritten segment with all that is live would take, at most.
    pub kept_bytes: u64,
    /// Live runs.
    pub runs: u64,
}

impl Usage {
    /// Of a segment whose index cannot be read: all of it may be live, so it is neither freed nor rewritten.
    pub fn unknown(segment: &Segment, segment_bytes: u64) -> Self {
        let bytes = segment.bytes().max(1);
        Self {
            sequence: segment.sequence,
            file_bytes: bytes,
            live_bytes: bytes,
            kept_bytes: bytes.max(segment_bytes),
            runs: 0,
        }
    }
}

/// What is live in one segment, while it is counted.
#[derive(Default)]
struct Count {
    bytes: u64,
    entries: u64,
    rows: u64,
    /// Runs that logs share are counted one by one.
    exact: bool,
}

impl Keeper {
    /// Counts a segment. Each row that is live is shown to `live_row`.
    pub(super) fn measure_segment(
        &self,
        segment: &Segment,
        index: &SealedIndex,
        mut live_row: impl FnMut(&Arc<Log>, &LogRow),
    ) -> Result<Usage, SegmentError> {
        let rows = index.rows()?;
        let mut live_rows = vec![false; rows.len()];
        let mut count = Count::default();
        for (row, is_live) in rows.iter().zip(&mut live_rows) {
            let Some(log) = self.journal.log(row.log) else { continue };
            // A trim counts when it is durable: after a crash before that the records are still the log's. So does a record of the archive.
            let start = log.start().max(log.archived_until());
            if row.next <= start {
                continue;
            }
            *is_live = true;
            count.rows += 1;
            if row.base >= start && !log.has_done() {
                count.bytes += row.bytes - u64::from(row.shared_bytes);
                count.entries += u64::from(row.entries);
            } else {
                let runs = self.live_runs(&log, row, index)?;
                count.bytes += runs.iter().filter(|run| !run.shared).map(|run| u64::from(run.bytes)).sum::<u64>();
                count.entries += runs.len() as u64;
                count.exact |= row.shared_bytes > 0;
            }
            live_row(&log, row);
        }
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::FreeSharedBody) {
            live_rows.iter_mut().skip(2).for_each(|is_live| *is_live = false);
        }
        count.bytes +=
            if count.exact { self.live_shared(&rows, &live_rows, index)? } else { shared_of(index, &rows, &live_rows) };
        let kept = count.bytes + count.entries * INDEX_ENTRY_BYTES as u64 + count.rows * ROW_BYTES as u64;
        Ok(Usage {
            sequence: segment.sequence,
            file_bytes: segment.bytes(),
            live_bytes: count.bytes.max(u64::from(count.rows > 0)),
            // Checksums of the index' pages and the sets of logs that share runs.
            kept_bytes: kept + kept / 64 + AROUND_BYTES,
            runs: count.entries,
        })
    }

    /// Bytes of the shared runs that a log still has, each counted once.
    fn live_shared(&self, rows: &[LogRow], live: &[bool], index: &SealedIndex) -> Result<u64, SegmentError> {
        let mut bodies: HashMap<u32, u64> = HashMap::new();
        for (row, _) in rows.iter().zip(live).filter(|(row, live)| **live && row.shared_bytes > 0) {
            let Some(log) = self.journal.log(row.log) else { continue };
            let runs = self.live_runs(&log, row, index)?;
            bodies.extend(runs.iter().filter(|run| run.shared).map(|run| (run.position, u64::from(run.bytes))));
        }
        Ok(bodies.values().sum())
    }

    /// What a log still has in a segment: its runs, and in place of those of which everything is done, gaps, which are runs of no bytes.
    pub(super) fn live_runs(&self, log: &Log, row: &LogRow, index: &SealedIndex) -> Result<Vec<Run>, SegmentError> {
        let start = log.start().max(log.archived_until());
        let done = log.done_within(row.base.max(start)..row.next);
        #[cfg(feature = "planted")]
        let done = if self.journal.planted() == Some(crate::Planted::CountDone) { Default::default() } else { done };
        let mut runs: Vec<Run> = Vec::new();
        for number in index.first_run_after(row, start)?..row.entries {
            let run = index.run(row, number)?;
            let from = run.base.max(start);
            let is_done = || {
                let at = done.partition_point(|range| range.end < run.next);
                done.get(at).is_some_and(|range| range.start <= from)
            };
            if run.bytes > 0 && !is_done() {
                runs.push(run);
                continue;
            }
            match runs.last_mut() {
                Some(gap)
                    if gap.is_gap() && gap.next == run.base && run.next.since(gap.base) <= crate::run::OFFSETS_MAX =>
                {
                    gap.next = run.next
                }
                _ => runs.push(run.gap()),
            }
        }
        Ok(runs)
    }
}

/// What logs share counts once, as long as one of them has it.
fn shared_of(index: &SealedIndex, rows: &[LogRow], live: &[bool]) -> u64 {
    let any = rows.iter().zip(live).any(|(row, live)| *live && row.shared_bytes > 0);
    index.sharers().usage(|row| live[row as usize], any).1
}
