//! Batches as readers get them: pieces of shared memory that follow each other, where a batch may cross from one piece into the next.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::{BatchError, BatchHeader, HEADER_BYTES};

/// A batch among slices: its head, and where its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlicedBatch {
    /// Its head.
    pub header: BatchHeader,
    /// Position of its first byte in all slices together.
    pub at: usize,
}

/// `length` bytes from `at` on of slices that follow each other.
pub fn cut(slices: &[Bytes], mut at: usize, mut length: usize) -> SmallVec<[Bytes; 4]> {
    let mut out = SmallVec::new();
    for slice in slices {
        if at >= slice.len() {
            at -= slice.len();
            continue;
        }
        let take = length.min(slice.len() - at);
        if take == 0 {
            break;
        }
        out.push(slice.slice(at..at + take));
        (at, length) = (0, length - take);
    }
    out
}

/// The same in one piece; copied only where it crosses slices.
pub fn whole(slices: &[Bytes], at: usize, length: usize) -> Bytes {
    let mut parts = cut(slices, at, length);
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut joined = BytesMut::with_capacity(length);
    parts.iter().for_each(|part| joined.extend_from_slice(part));
    joined.freeze()
}

/// The batches that lie in slices whole, in order.
///
/// # Errors
/// Those of [`BatchHeader::parse`].
pub fn sliced_batches(slices: &[Bytes]) -> Result<Vec<SlicedBatch>, BatchError> {
    let total: usize = slices.iter().map(Bytes::len).sum();
    let (mut found, mut at) = (Vec::new(), 0);
    while at + HEADER_BYTES <= total {
        let header = BatchHeader::parse(&whole(slices, at, HEADER_BYTES))?;
        let length = header.total_bytes();
        if at + length > total {
            break;
        }
        found.push(SlicedBatch { header, at });
        at += length;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, Compression, OpenLimits, Record, open_records, records, set_base_offset};
    use types::Offset;

    #[test]
    fn records_are_the_same_however_their_bytes_are_cut() {
        let mut bytes = BytesMut::new();
        let (mut expected, mut next) = (Vec::new(), 100);
        for (codec, count) in [(Compression::None, 3), (Compression::Lz4, 2), (Compression::None, 1)] {
            let mut builder = BatchBuilder::default().compression(codec);
            for number in 0..count {
                builder = builder.record_with_headers(
                    number,
                    Some(b"key"),
                    Some(&[number as u8; 50]),
                    &[(b"name", Some(b"value"))],
                );
            }
            let mut batch = builder.build().to_vec();
            set_base_offset(&mut batch, Offset(next));
            next += count as u64;
            expected.extend(records(&batch).expect("valid"));
            bytes.extend_from_slice(&batch);
        }
        let bytes = bytes.freeze();
        for step in [1, 7, 61, 100, 1000] {
            let slices: Vec<Bytes> =
                (0..bytes.len()).step_by(step).map(|at| bytes.slice(at..(at + step).min(bytes.len()))).collect();
            let found = sliced_batches(&slices).expect("batches");
            let (mut got, limits): (Vec<Record>, _) =
                (Vec::new(), OpenLimits { memory: 1 << 20, unpacked: 1 << 20, record: 1 << 20 });
            for batch in &found {
                open_records(&slices, batch, Offset(0), limits, &Bytes::from, |record| got.push(record))
                    .expect("records");
            }
            assert_eq!(got, expected, "in pieces of {step}");
        }
        assert_eq!(
            sliced_batches(&[bytes.slice(..bytes.len() - 1)]).expect("batches").len(),
            2,
            "what is not whole is left"
        );
    }
}
