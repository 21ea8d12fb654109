//! Pieces of batches in every codec: whole, within their bounds, and without what is too large.

use super::*;
use crate::{BatchBuilder, records, set_base_offset, sliced_batches, unpacked_bytes};

const LIMITS: OpenLimits = OpenLimits { memory: 100_000, unpacked: 4 << 20, record: 1 << 20 };
const CODECS: [Compression; 5] = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// A batch of records of so many bytes each, from offset 100 on.
fn batch(codec: Compression, count: i64, bytes: usize) -> (Vec<Bytes>, SlicedBatch) {
    let value = vec![b'v'; bytes];
    let add = |batch: BatchBuilder, number| batch.record_with_headers(number, Some(b"key"), Some(&value), &[(b"name", None)]);
    let mut built = (0..count).fold(BatchBuilder::default().compression(codec), add).build().to_vec();
    set_base_offset(&mut built, Offset(100));
    let slices = vec![Bytes::from(built)];
    let batch = sliced_batches(&slices).expect("a batch")[0];
    (slices, batch)
}

/// All records, opened again and again from where there was no room; and how often.
fn all(slices: &[Bytes], batch: &SlicedBatch, from: u64, limits: OpenLimits) -> (Vec<Record>, usize) {
    let (mut found, mut next, mut times) = (Vec::new(), Some(Offset(from)), 0);
    while let Some(at) = next {
        let opened = open_records(slices, batch, at, limits, &Bytes::from, |record| found.push(record)).expect("records");
        // What headers take is known when they are read.
        assert!(opened.memory <= 2 * limits.memory, "{}", opened.memory);
        (next, times) = (opened.next, times + 1);
    }
    (found, times)
}

#[test]
fn records_are_handed_out_piece_by_piece_whatever_the_codec() {
    for codec in CODECS {
        let (slices, batch) = batch(codec, 300, 1000);
        let expected = records(&slices[0]).expect("valid");
        let (found, times) = all(&slices, &batch, 0, LIMITS);
        assert_eq!(found, expected, "{codec:?}");
        assert!(codec == Compression::None || times > 2, "{codec:?}: what is unpacked takes memory");
        assert_eq!(all(&slices, &batch, 250, LIMITS).0, expected[150..], "{codec:?}");
        assert_eq!(all(&slices, &batch, 400, LIMITS).0, [], "{codec:?}");
    }
}

#[test]
fn many_small_records_take_memory_beside_their_bytes() {
    for codec in CODECS {
        let (slices, batch) = batch(codec, 5000, 1);
        let (found, times) = all(&slices, &batch, 0, LIMITS);
        assert_eq!(found, records(&slices[0]).expect("valid"), "{codec:?}");
        assert!(times > 5, "{codec:?}");
    }
}

#[test]
fn no_more_is_unpacked_than_is_allowed() {
    for codec in CODECS.into_iter().skip(1) {
        let (slices, batch) = batch(codec, 300, 10_000);
        let limits = OpenLimits { memory: 10 << 20, unpacked: 1 << 20, record: 1 << 20 };
        let before = unpacked_bytes();
        let mut found = 0;
        let opened = open_records(&slices, &batch, Offset(0), limits, &Bytes::from, |_| found += 1).expect("the first ones");
        assert!((90..105).contains(&found) && opened.next == Some(Offset(100 + found)), "{codec:?}: {found}");
        assert!(unpacked_bytes() - before <= (1 << 20) + 40_000, "{codec:?}");
        let beyond = open_records(&slices, &batch, Offset(390), limits, &Bytes::from, |_| {});
        assert!(matches!(beyond, Err(BatchError::TooLarge { .. })), "{codec:?}: {beyond:?}");
    }
}

#[test]
fn a_record_whose_headers_take_too_much_is_passed_over() {
    let none: (&[u8], Option<&[u8]>) = (b"", None);
    for codec in CODECS {
        let many = BatchBuilder::default().compression(codec).record(1, None, Some(b"first"));
        let built = many.record_with_headers(1, None, None, &vec![none; 100_000]).record(1, None, Some(b"last")).build();
        let slices = [built];
        let batch = sliced_batches(&slices).expect("a batch")[0];
        let mut found = Vec::new();
        let opened = open_records(&slices, &batch, Offset(0), LIMITS, &Bytes::from, |record| found.push(record.offset.0)).expect("records");
        let mut passed_over = opened.passed_over;
        if let Some(next) = opened.next {
            passed_over += open_records(&slices, &batch, next, LIMITS, &Bytes::from, |record| found.push(record.offset.0)).expect("records").passed_over;
        }
        assert_eq!((found, passed_over), (vec![0, 2], 1), "{codec:?}");
    }
}
