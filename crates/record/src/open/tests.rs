//! Pieces of batches in every codec: whole, within their bounds, and without what is too large.

use super::*;
use crate::{BatchBuilder, records, set_base_offset, sliced_batches, unpacked_bytes};

const LIMITS: OpenLimits = OpenLimits { memory: 100_000, unpacked: 4 << 20, record: 1 << 20 };
const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// A batch of records of so many bytes each, from offset 100 on.
fn batch(codec: Compression, count: i64, bytes: usize) -> (Vec<Bytes>, SlicedBatch) {
    let value = vec![b'v'; bytes];
    let add =
        |batch: BatchBuilder, number| batch.record_with_headers(number, Some(b"key"), Some(&value), &[(b"name", None)]);
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
        let opened =
            open_records(slices, batch, at, limits, &Bytes::from, |record| found.push(record)).expect("records");
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
        let opened =
            open_records(&slices, &batch, Offset(0), limits, &Bytes::from, |_| found += 1).expect("the first ones");
        assert!((90..105).contains(&found) && opened.next == Some(Offset(100 + found)), "{codec:?}: {found}");
        assert!(unpacked_bytes() - before <= (1 << 20) + 40_000, "{codec:?}");
        let beyond = open_records(&slices, &batch, Offset(390), limits, &Bytes::from, |_| {});
        assert!(matches!(beyond, Err(BatchError::TooLarge { .. })), "{codec:?}: {beyond:?}");
    }
}

#[test]
fn a_record_whose_headers_take_too_much_comes_with_the_first_of_them() {
    let none: (&[u8], Option<&[u8]>) = (b"", None);
    let room = LIMITS.record / size_of::<(Bytes, Option<Bytes>)>();
    for codec in CODECS {
        let many = BatchBuilder::default().compression(codec).record(1, None, Some(b"first"));
        let built = many
            .record_with_headers(1, None, Some(b"many"), &vec![none; 100_000])
            .record(1, None, Some(b"last"))
            .build();
        let slices = [built];
        let batch = sliced_batches(&slices).expect("a batch")[0];
        let (found, _) = all(&slices, &batch, 0, OpenLimits { memory: 4 << 20, ..LIMITS });
        let seen: Vec<_> =
            found.iter().map(|record| (record.offset.0, record.headers.len(), record.value.as_deref())).collect();
        assert_eq!(seen, [(0, 0, Some(&b"first"[..])), (1, room, Some(b"many")), (2, 0, Some(b"last"))], "{codec:?}");
    }
}

#[test]
fn a_record_that_is_too_long_is_not_unpacked_and_those_around_it_are() {
    for codec in CODECS.into_iter().skip(1) {
        let long = vec![b'v'; 2 << 20];
        let add = |batch: BatchBuilder, value: &[u8]| batch.record(1, None, Some(value));
        let built =
            [&b"first"[..], &long, b"last"].into_iter().fold(BatchBuilder::default().compression(codec), add).build();
        let slices = [built];
        let batch = sliced_batches(&slices).expect("a batch")[0];
        let open = |from| {
            let mut found = Vec::new();
            open_records(&slices, &batch, Offset(from), LIMITS, &Bytes::from, |record| found.push(record.offset.0))
                .map(|opened| (found, opened.next))
        };
        assert_eq!(open(0).expect("the first"), (vec![0], Some(Offset(1))), "{codec:?}");
        assert!(matches!(open(1), Err(BatchError::TooLarge { max, .. }) if max == LIMITS.record), "{codec:?}");
        assert_eq!(open(2).expect("the last"), (vec![2], None), "{codec:?}");
    }
}
