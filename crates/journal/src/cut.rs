//! Cutting runs at batch boundaries for one reader: drops what lies before an offset, stops at another or at a number of bytes, copies
//! nothing.
//!
//! * K1 Batches of an answer ascend, and none is there twice. The first holds the offset asked for, or is the next there is. Runs of a log may
//!   overlap where one place ends and the next begins: an archive object may end inside a run of a segment, and such a run is cut at the
//!   running end of the answer.

use bytes::Bytes;
use record::{BatchHeader, HEADER_BYTES};
use smallvec::SmallVec;
use types::Offset;

use crate::run::{Run, range};

/// What one reader gets of a log.
pub(crate) struct Cut {
    from: Offset,
    until: Offset,
    max_bytes: usize,
    min_one: bool,
    slices: SmallVec<[Bytes; 4]>,
    bytes: usize,
    /// The running end: everything before is in the answer, or is not there.
    next: Offset,
    full: bool,
    visited: bool,
    /// A planted defect: cuts at the offset asked for instead of the running end.
    #[cfg(feature = "planted")]
    pub overlaps: bool,
}

impl Cut {
    /// The batches of `range`, at most `max_bytes` of them; with `min_one` at least one.
    pub fn new(range: std::ops::Range<Offset>, max_bytes: usize, min_one: bool) -> Self {
        let (from, until) = (range.start, range.end);
        Self {
            from,
            until,
            max_bytes,
            min_one,
            slices: SmallVec::new(),
            bytes: 0,
            next: from,
            full: false,
            visited: false,
            #[cfg(feature = "planted")]
            overlaps: false,
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn visited(&self) -> bool {
        self.visited
    }
    pub fn finish(self) -> (SmallVec<[Bytes; 4]>, usize, Offset) {
        debug_assert!(self.planted() || self.ascends(), "K1: from {} to {}", self.from, self.next);
        (self.slices, self.bytes, self.next)
    }

    #[cfg(feature = "planted")]
    fn planted(&self) -> bool {
        self.overlaps
    }

    #[cfg(not(feature = "planted"))]
    fn planted(&self) -> bool {
        false
    }

    /// Where the next batch of the answer may begin at the earliest.
    fn floor(&self) -> Offset {
        if self.planted() { self.from } else { self.next }
    }

    /// K1, by the heads of the batches.
    fn ascends(&self) -> bool {
        let (mut slices, mut at, mut end, mut first) = (&self.slices[..], 0, self.from, true);
        loop {
            while slices.first().is_some_and(|slice| slice.len() <= at) {
                at -= slices[0].len();
                slices = &slices[1..];
            }
            let Some(header) = header_at(&slices[..slices.len().min(HEADER_BYTES)], at) else { break };
            // Only the first may begin before: it holds the offset asked for.
            if header.next() <= end || !first && header.base() < end {
                return false;
            }
            (end, first) = (header.next(), false);
            at += header.total_bytes();
        }
        end <= self.next
    }

    /// Is there room for all of the run?
    pub fn takes_whole(&self, run: &Run) -> bool {
        !self.full
            && run.base >= self.floor()
            && run.next <= self.until
            && run.bytes as usize <= self.max_bytes.saturating_sub(self.bytes)
    }

    /// Adds what is wanted of a run, whose bytes lie in one or more pieces.
    pub fn add(&mut self, pieces: &[Bytes], run: &Run) {
        self.visited = true;
        if self.takes_whole(run) {
            self.bytes += run.bytes as usize;
            self.next = run.next;
            self.slices.extend(pieces.iter().cloned());
        } else if !self.full {
            self.add_part(pieces, run);
        }
    }

    fn add_part(&mut self, pieces: &[Bytes], run: &Run) {
        let (mut start, mut end, mut at) = (None, 0, 0);
        let floor = self.floor();
        // A run passed its checksum when it was built or read: a malformed head ends the run here.
        while let Some(header) = header_at(pieces, at) {
            let total = header.total_bytes();
            if at + total > run.bytes as usize {
                break;
            }
            if header.base() >= self.until {
                // Of what lies between nothing is left.
                self.next = self.next.max(self.until);
                self.full = true;
                break;
            }
            if header.next() > floor {
                let already = self.bytes + start.map_or(0, |start: usize| end - start);
                let first = self.bytes == 0 && start.is_none();
                if already + total > self.max_bytes && !(first && self.min_one) {
                    self.full = true;
                    break;
                }
                start.get_or_insert(at);
                end = at + total;
                self.next = header.next();
            }
            at += total;
        }
        if !self.full && at >= run.bytes as usize {
            // Behind its last batch a run may stand for offsets of which nothing is left; where a reader ends among them, it is through.
            self.next = self.next.max(run.next.min(self.until));
        }
        if let Some(start) = start {
            self.bytes += end - start;
            self.slices.extend(range(pieces, start, end));
        }
    }
}

/// The head of the batch at a position of the pieces' concatenation; none beyond the end.
fn header_at(pieces: &[Bytes], at: usize) -> Option<BatchHeader> {
    let mut head = [0; HEADER_BYTES];
    let mut filled = 0;
    for piece in range(pieces, at, at + HEADER_BYTES) {
        head[filled..filled + piece.len()].copy_from_slice(&piece);
        filled += piece.len();
    }
    BatchHeader::parse(&head[..filled]).ok()
}

#[cfg(test)]
mod tests {
    use record::BatchBuilder;
    use types::LogId;

    use super::*;

    /// Five batches of two records, and the run they make.
    fn run() -> (Bytes, Run, usize) {
        let batch = |base: u64| {
            let bytes =
                BatchBuilder::default().record(1, None, Some(&[7; 300])).record(2, None, Some(&[8; 200])).build();
            let mut bytes = bytes.to_vec();
            bytes[..8].copy_from_slice(&base.to_be_bytes());
            bytes
        };
        let one = batch(0).len();
        let bytes: Vec<u8> = (0..5).flat_map(|number| batch(100 + 2 * number)).collect();
        let run = Run {
            log: LogId(1),
            base: Offset(100),
            next: Offset(110),
            position: 0,
            bytes: bytes.len() as u32,
            crc: 0,
            records: 10,
            shared: false,
            max_timestamp: 2,
            append_time: 0,
        };
        (Bytes::from(bytes), run, one)
    }

    /// However a run is cut into pieces, a reader gets the same bytes.
    #[test]
    fn pieces_make_no_difference() {
        let (bytes, run, one) = run();
        for from in 100..110 {
            for max_bytes in [1, one, one + 1, 3 * one, 5 * one] {
                let expected = cut(std::slice::from_ref(&bytes), &run, from, max_bytes);
                for at in (1..bytes.len()).step_by(13) {
                    let pieces = [bytes.slice(..at), bytes.slice(at..)];
                    assert_eq!(
                        cut(&pieces, &run, from, max_bytes),
                        expected,
                        "from {from}, {max_bytes} bytes, cut at {at}"
                    );
                }
            }
        }
    }

    fn cut(pieces: &[Bytes], run: &Run, from: u64, max_bytes: usize) -> (Vec<u8>, Offset) {
        let mut cut = Cut::new(Offset(from)..Offset(110), max_bytes, true);
        cut.add(pieces, run);
        let (slices, bytes, next) = cut.finish();
        let got = slices.concat();
        assert_eq!(got.len(), bytes);
        (got, next)
    }

    #[test]
    fn whole_batches_from_the_one_that_holds_the_offset() {
        let (bytes, run, one) = run();
        let pieces = [bytes.slice(..one + 20), bytes.slice(one + 20..)];
        assert_eq!(cut(&pieces, &run, 103, 2 * one), (bytes[one..3 * one].to_vec(), Offset(106)));
        assert_eq!(cut(&pieces, &run, 108, 10), (bytes[4 * one..].to_vec(), Offset(110)));
        assert_eq!(cut(&pieces, &run, 100, 5 * one), (bytes.to_vec(), Offset(110)));
    }

    #[test]
    fn nothing_from_the_end_on() {
        let (bytes, run, one) = run();
        let mut cut = Cut::new(Offset(102)..Offset(106), 5 * one, true);
        cut.add(&[bytes.slice(..)], &run);
        cut.add(&[bytes.slice(..)], &Run { base: run.next, ..run });
        let (slices, _, next) = cut.finish();
        assert_eq!((slices.concat(), next), (bytes[one..3 * one].to_vec(), Offset(106)));
    }

    /// Of a gap nobody gets anything, and everybody gets behind it, wherever he begins and ends.
    #[test]
    fn a_reader_that_ends_inside_a_gap_is_through() {
        let (bytes, run, one) = run();
        let gap = run.gap();
        for (from, until, next) in [(100, 105, 105), (103, 110, 110), (103, 107, 107), (90, 200, 110)] {
            let mut cut = Cut::new(Offset(from)..Offset(until), 1, true);
            cut.add(&[], &gap);
            assert_eq!(cut.finish(), (SmallVec::new(), 0, Offset(next)), "{from} to {until}");
        }
        let mut cut = Cut::new(Offset(102)..Offset(115), bytes.len(), true);
        cut.add(&[bytes.slice(..)], &run);
        cut.add(&[], &Run { base: Offset(110), next: Offset(130), ..gap });
        let (slices, _, next) = cut.finish();
        assert_eq!((slices.concat().len(), next), (bytes.len() / 5 * 4, Offset(115)));
        // Merged with what lies around it: the batches of a run need not follow each other.
        let (first, last) = (&bytes[..one], &bytes[4 * one..]);
        let merged = Bytes::from([first, last].concat());
        let run = Run { bytes: merged.len() as u32, ..run };
        for (from, until, got, next) in [(103, 106, 0, 106), (100, 106, one, 106), (103, 110, one, 110)] {
            let mut cut = Cut::new(Offset(from)..Offset(until), bytes.len(), true);
            cut.add(std::slice::from_ref(&merged), &run);
            let (slices, _, end) = cut.finish();
            assert_eq!((slices.concat().len(), end), (got, Offset(next)), "{from} to {until}");
        }
    }

    #[test]
    fn nothing_follows_a_batch_that_did_not_fit() {
        let (bytes, run, one) = run();
        let mut cut = Cut::new(Offset(100)..Offset(200), 3 * one, true);
        cut.add(&[bytes.slice(..)], &run);
        assert!(!cut.takes_whole(&Run { bytes: 1, ..run }));
        cut.add(&[bytes.slice(..)], &Run { base: run.next, ..run });
        assert_eq!(cut.finish().2, Offset(106));
    }
}
