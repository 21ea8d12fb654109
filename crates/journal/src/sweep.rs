//! Reading many runs of segments in the order in which they lie: neighbours with one read. It goes past the cache of history,
//! which is for readers.

use std::ops::Range;
use std::sync::Arc;

use crate::chunk::crc32c;
use crate::disk::SECTOR;
use crate::run::Run;
use crate::segments::{Segment, SegmentError};

/// Bytes between two runs that are read rather than passed over, unless it is said otherwise.
const GAP_BYTES: u64 = 128 << 10;
/// Longest read, unless a run is longer: a commit may have to wait for one.
const READ_BYTES: u64 = 1 << 20;

/// Runs, and how far they have been read.
pub(crate) struct Sweep {
    runs: Vec<(Arc<Segment>, Run)>,
    at: usize,
    /// Bytes between two runs that are read.
    gap_bytes: u64,
    /// What was read, behind what the first whole sector skips, and where it begins.
    held: Vec<u8>,
    held_skip: usize,
    held_bytes: usize,
    held_at: u64,
    held_until: usize,
    /// What was read altogether.
    read_bytes: u64,
    /// A shared run with the offsets of its log.
    placed: Vec<u8>,
}

impl Sweep {
    /// In the order of segments and positions; the runs of a log are in the order of offsets then too.
    pub fn new(mut runs: Vec<(Arc<Segment>, Run)>) -> Self {
        runs.sort_by_key(|(segment, run)| (segment.sequence, run.base, run.position));
        runs.sort_by_key(|(segment, run)| (segment.sequence, run.position));
        Self::in_order(runs)
    }

    /// The same of runs that are in this order.
    pub fn in_order(runs: Vec<(Arc<Segment>, Run)>) -> Self {
        debug_assert!(runs.is_sorted_by_key(|(segment, run)| (segment.sequence, run.position)));
        Self {
            runs,
            at: 0,
            gap_bytes: GAP_BYTES,
            held: Vec::new(),
            held_skip: 0,
            held_bytes: 0,
            held_at: 0,
            held_until: 0,
            read_bytes: 0,
            placed: Vec::new(),
        }
    }

    /// The same, passing over what is longer than this between two runs.
    pub fn with_gap(self, gap_bytes: u64) -> Self {
        Self { gap_bytes, ..self }
    }

    /// Bytes that were read so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The next run and its bytes, checked, with the offsets of its log.
    pub fn next(&mut self) -> Option<(Run, Result<&[u8], SegmentError>)> {
        let (run, found) = self.find_next()?;
        let found = match found {
            Ok(found) => found,
            Err(error) => return Some((run, Err(error))),
        };
        if !run.shared {
            return Some((run, Ok(&self.held[found])));
        }
        self.placed.clear();
        self.placed.extend_from_slice(&self.held[found]);
        run.place_in(&mut self.placed);
        Some((run, Ok(&self.placed)))
    }

    /// The same as it lies in the segment.
    pub fn next_as_written(&mut self) -> Option<(Run, Result<&[u8], SegmentError>)> {
        let (run, found) = self.find_next()?;
        Some((run, found.map(|found| &self.held[found])))
    }

    /// Where in `held` the next run is.
    fn find_next(&mut self) -> Option<(Run, Result<Range<usize>, SegmentError>)> {
        let (segment, run) = self.runs.get(self.at)?.clone();
        if self.at >= self.held_until
            && let Err(error) = self.read_from(self.at)
        {
            self.at += 1;
            return Some((run, Err(error)));
        }
        self.at += 1;
        let from = self.held_skip + (u64::from(run.position) - self.held_at) as usize;
        let found = from..from + run.bytes as usize;
        let is_held = found.end <= self.held_skip + self.held_bytes;
        if is_held && crc32c(&self.held[found.clone()]) == run.crc {
            return Some((run, Ok(found)));
        }
        let damaged = SegmentError::Corrupt {
            file: segment.file.name(),
            position: u64::from(run.position),
            what: format!("run checksum ({} from offset {})", run.log, run.base),
        };
        Some((run, Err(damaged)))
    }

    /// Reads the run at `from` and those that follow closely.
    fn read_from(&mut self, from: usize) -> Result<(), SegmentError> {
        let (segment, first) = &self.runs[from];
        let start = u64::from(first.position);
        let mut end = start + u64::from(first.bytes);
        let mut until = from + 1;
        for (other, run) in &self.runs[from + 1..] {
            let run_end = u64::from(run.position) + u64::from(run.bytes);
            if other.id != segment.id || u64::from(run.position) > end + self.gap_bytes || run_end > start + READ_BYTES
            {
                break;
            }
            end = end.max(run_end);
            until += 1;
        }
        // Whole sectors into memory that begins with one: the file reads straight into it.
        let start = start / SECTOR as u64 * SECTOR as u64;
        let wanted = ((end - start) as usize).next_multiple_of(SECTOR);
        if self.held.len() < wanted + SECTOR {
            self.held.resize(wanted.max(READ_BYTES as usize + SECTOR) + SECTOR, 0);
        }
        self.held_skip = self.held.as_ptr().align_offset(SECTOR);
        let got = segment.file.read_at(start, &mut self.held[self.held_skip..self.held_skip + wanted]);
        self.held_bytes = got.map_err(|source| SegmentError::Io { file: segment.file.name(), source })?;
        self.read_bytes += self.held_bytes as u64;
        (self.held_at, self.held_until) = (start, until);
        Ok(())
    }
}
