//! A run: the batches of one log that lie side by side in one chunk. The unit of every index, look-up and
//! checksum below the chunk.
//!
//! The bytes of a *shared* run belong to several logs. Where the offset of the first record of a batch is kept, they have its distance from
//! that of the run; a reader gets them with offsets of his own log ([`Run::placed`]).

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use types::{LogId, Offset, Timestamp};

/// Where a batch says how long it is: behind its offset, not counting the two.
const LENGTH_AT: usize = 8;
/// What the length does not count.
const PREFIX_BYTES: usize = 12;

/// Where the records `base..next` of a log lie in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whose records.
    pub log: LogId,
    /// Offset of the first record.
    pub base: Offset,
    /// Offset after the last record.
    pub next: Offset,
    /// Byte position of the first batch in the segment file.
    pub position: u32,
    /// Length of all batches together, in bytes.
    pub bytes: u32,
    /// CRC-32C of those bytes.
    pub crc: u32,
    /// Number of records.
    pub records: u32,
    /// The bytes are those of other logs too.
    pub shared: bool,
    /// Largest record timestamp.
    pub max_timestamp: Timestamp,
    /// Wall-clock time of the append, for retention.
    pub append_time: Timestamp,
}

/// A run has at most so many offsets, as an entry of the index can say.
pub(crate) const OFFSETS_MAX: u64 = 1 << 32;

impl Run {
    /// Stands for offsets of which no record is needed any more, in place of this run.
    pub(crate) fn gap(&self) -> Self {
        Self { bytes: 0, crc: 0, records: 0, shared: false, max_timestamp: Timestamp::MIN, ..*self }
    }

    /// Does it hold nothing?
    pub(crate) fn is_gap(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes of the run, which lie in `pieces`, as readers of its log get them. Only the offsets are copied.
    pub(crate) fn placed<const N: usize>(&self, pieces: SmallVec<[Bytes; N]>) -> SmallVec<[Bytes; N]> {
        if !self.shared {
            return pieces;
        }
        let starts = self.batches(&pieces);
        let mut offsets = BytesMut::with_capacity(starts.len() * 8);
        for (_, distance) in &starts {
            offsets.put_u64(self.base.0 + distance);
        }
        let offsets = offsets.freeze();
        let mut placed = SmallVec::new();
        for (number, (start, _)) in starts.iter().enumerate() {
            let end = starts.get(number + 1).map_or(self.bytes as usize, |(next, _)| *next);
            placed.push(offsets.slice(number * 8..number * 8 + 8));
            placed.extend(range(&pieces, start + 8, end));
        }
        placed
    }

    /// The same in memory of one's own.
    pub(crate) fn place_in(&self, bytes: &mut [u8]) {
        if !self.shared {
            return;
        }
        let mut at = 0;
        while let Some((distance, length)) = bytes.get(at..).and_then(head) {
            bytes[at..at + 8].copy_from_slice(&(self.base.0 + distance).to_be_bytes());
            at += length;
        }
    }

    /// Where the batches of a shared run begin, and the distances of their offsets. What passed its checksum is as it was written.
    fn batches(&self, pieces: &[Bytes]) -> SmallVec<[(usize, u64); 4]> {
        let (mut starts, mut at) = (SmallVec::new(), 0);
        let mut field = [0; PREFIX_BYTES];
        while at + PREFIX_BYTES <= self.bytes as usize {
            let mut filled = 0;
            for piece in range(pieces, at, at + PREFIX_BYTES) {
                field[filled..filled + piece.len()].copy_from_slice(&piece);
                filled += piece.len();
            }
            let Some((distance, length)) = head(&field[..filled]) else { break };
            starts.push((at, distance));
            at += length;
        }
        starts
    }
}

/// Offset, as it lies there, and length of the batch that begins here.
fn head(bytes: &[u8]) -> Option<(u64, usize)> {
    let offset = u64::from_be_bytes(*bytes.first_chunk()?);
    let length = u32::from_be_bytes(*bytes.get(LENGTH_AT..)?.first_chunk()?);
    Some((offset, PREFIX_BYTES + length as usize))
}

/// The part of the pieces from `start` to `end` of their concatenation.
pub(crate) fn range(pieces: &[Bytes], start: usize, end: usize) -> impl Iterator<Item = Bytes> + '_ {
    let mut begin = 0;
    pieces.iter().filter_map(move |piece| {
        let (from, to) = (start.max(begin), end.min(begin + piece.len()));
        let part = (from < to).then(|| piece.slice(from - begin..to - begin));
        begin += piece.len();
        part
    })
}

#[cfg(test)]
mod tests {
    use record::{BatchBuilder, Batches, set_base_offset};

    use super::*;

    /// Three batches of two records, with distances for offsets; and the run of a log that they are the bytes of.
    fn shared() -> (Vec<u8>, Run) {
        let mut bytes = Vec::new();
        for number in 0..3u64 {
            let mut batch = BatchBuilder::default()
                .record(1, None, Some(&[7; 90]))
                .record(2, None, Some(&[8; 50]))
                .build()
                .to_vec();
            set_base_offset(&mut batch, Offset(2 * number));
            bytes.extend(batch);
        }
        let run = Run {
            log: LogId(1),
            base: Offset(1000),
            next: Offset(1006),
            position: 0,
            bytes: bytes.len() as u32,
            crc: crate::chunk::crc32c(&bytes),
            records: 6,
            shared: true,
            max_timestamp: 2,
            append_time: 0,
        };
        (bytes, run)
    }

    #[test]
    fn a_reader_gets_offsets_of_his_log_however_the_bytes_are_cut() {
        let (bytes, run) = shared();
        let mut expected = bytes.clone();
        run.place_in(&mut expected);
        let offsets: Vec<u64> = Batches::new(&expected).map(|batch| batch.unwrap().1.base().0).collect();
        assert_eq!(offsets, [1000, 1002, 1004]);
        let whole = Bytes::from(bytes);
        for at in 0..=whole.len() {
            let pieces: SmallVec<[Bytes; 2]> =
                [whole.slice(..at), whole.slice(at..)].into_iter().filter(|piece| !piece.is_empty()).collect();
            assert_eq!(run.placed(pieces).concat(), expected, "cut at {at}");
        }
    }

    #[test]
    fn a_run_of_one_log_stays_as_it_is() {
        let (bytes, run) = shared();
        let run = Run { shared: false, ..run };
        let pieces: SmallVec<[Bytes; 2]> = SmallVec::from_iter([Bytes::from(bytes.clone())]);
        assert_eq!(run.placed(pieces).concat(), bytes);
        let mut own = bytes.clone();
        run.place_in(&mut own);
        assert_eq!(own, bytes);
    }
}
