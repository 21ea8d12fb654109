//! Batches are taken apart and put together in every codec; what is left is what was wanted, and nothing else changes.

use super::*;
use crate::{BatchBuilder, Marker, records, set_base_offset};

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// Twenty records from offset 100 on, of which every fifth has no value; keys repeat every seven.
fn batch(codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::default().vouched().producer(9, 3, 17).compression(codec).transactional();
    for number in 0..20i64 {
        let (key, value) = (format!("key-{}", number % 7), vec![number as u8; 100]);
        let value = (number % 5 != 0).then_some(&value[..]);
        builder = builder.record_with_headers(
            5_000 - 40 * number,
            Some(key.as_bytes()),
            value,
            &[(b"h", None), (b"h", Some(b"x"))],
        );
    }
    let mut bytes = builder.build().to_vec();
    set_base_offset(&mut bytes, Offset(100));
    bytes
}

#[test]
fn what_is_kept_is_kept_as_it_was() {
    for codec in CODECS {
        let whole = batch(codec);
        let before = BatchHeader::parse(&whole).unwrap();
        let all = records(&whole).unwrap();
        assert_eq!(retain(&whole, 77, |_| false), Ok(Retained::Nothing));
        assert_eq!(
            retain(&whole, 77, |record| record.offset != Offset(100) && !record.tombstone)
                .map(|kept| kept == Retained::All),
            Ok(false)
        );
        for horizon in [false, true] {
            let keep = |record: &RecordKey<'_>| record.offset.0 % 3 == 1 && (horizon || !record.tombstone);
            let Ok(Retained::Changed { batch, removed, horizon: set }) = retain(&whole, 1_000_000, keep) else {
                panic!("{codec:?}")
            };
            let after = BatchHeader::parse(&batch).unwrap();
            let expected: Vec<_> = all
                .iter()
                .filter(|record| record.offset.0 % 3 == 1 && (horizon || record.value.is_some()))
                .cloned()
                .collect();
            assert_eq!(records(&batch).unwrap(), expected, "{codec:?}");
            assert_eq!((removed as usize, set), (20 - expected.len(), horizon.then_some(1_000_000)));
            assert_eq!((after.base(), after.next(), after.compression()), (before.base(), before.next(), Some(codec)));
            assert_eq!((after.producer_id, after.producer_epoch, after.base_sequence), (9, 3, 17));
            assert_eq!(after.delete_horizon(), horizon.then_some(1_000_000));
            assert_eq!(after.max_timestamp, expected.iter().map(|record| record.timestamp).max().unwrap());
            assert!(
                after.transactional() && crc32c(&batch[CRC_FROM..]) == after.crc && after.total_bytes() == batch.len()
            );
            // Once more: the horizon stays what it is.
            assert_eq!(retain(&batch, 5, |_| true), Ok(Retained::All));
            let Ok(Retained::Changed { batch, .. }) = retain(&batch, 5, |record| record.offset != expected[0].offset)
            else {
                panic!()
            };
            assert_eq!(BatchHeader::parse(&batch).unwrap().delete_horizon(), horizon.then_some(1_000_000));
            assert_eq!(records(&batch).unwrap(), expected[1..]);
        }
    }
}

#[test]
fn keys_are_shown_in_order() {
    for codec in CODECS {
        let whole = batch(codec);
        let mut seen = Vec::new();
        visit_keys(&whole, |record| seen.push((record.offset.0, record.key.map(<[u8]>::to_vec), record.tombstone)))
            .unwrap();
        let expected: Vec<_> = (0..20u64)
            .map(|number| (100 + number, Some(format!("key-{}", number % 7).into_bytes()), number % 5 == 0))
            .collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn markers_get_a_horizon_and_batches_are_emptied() {
    let marker = Marker::Abort.batch(7, 2, 5, 1_234);
    let changed = with_delete_horizon(&marker, 99_999).unwrap();
    let header = BatchHeader::parse(&changed).unwrap();
    assert_eq!((Marker::of(&header, &changed), header.delete_horizon()), (Some(Marker::Abort), Some(99_999)));
    assert_eq!(records(&changed).unwrap(), records(&marker).unwrap());
    let whole = batch(Compression::Lz4);
    let empty = emptied(&whole).unwrap();
    let header = BatchHeader::parse(&empty).unwrap();
    assert_eq!(
        (header.records_count, header.base(), header.next(), header.last_sequence()),
        (0, Offset(100), Offset(120), 36)
    );
    assert_eq!((records(&empty), crc32c(&empty[CRC_FROM..])), (Ok(Vec::new()), header.crc));
    assert_eq!(retain(&empty, 1, |_| true), Ok(Retained::Nothing));
}

#[test]
fn damaged_batches_are_errors() {
    let whole = batch(Compression::None);
    for at in HEADER_BYTES..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x81;
        let _ = retain(&damaged, 1, |record| record.key.is_some_and(|key| key.len() == 5));
        let _ = visit_keys(&damaged[..at], |_| {});
    }
    let mut many = whole;
    many[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    assert!(retain(&many, 1, |_| true).is_err());
}

#[test]
fn every_codec_can_be_packed_into_every_other() {
    for codec in CODECS {
        let whole = batch(codec);
        let expected = records(&whole).unwrap();
        let before = BatchHeader::parse(&whole).unwrap();
        for other in CODECS {
            for level in [-1, 1, 9] {
                let packing = Packing { codec: other, level };
                let Some(batch) = repacked(&whole, packing, 1 << 20, 256 << 20).unwrap() else {
                    assert_eq!(codec, other);
                    continue;
                };
                let after = BatchHeader::parse(&batch).unwrap();
                assert_eq!(records(&batch).unwrap(), expected, "{codec:?} into {packing:?}");
                let same = BatchHeader {
                    attributes: before.attributes,
                    batch_length: before.batch_length,
                    crc: before.crc,
                    ..after
                };
                assert_eq!((same, after.compression()), (before, Some(other)));
                assert!(
                    after.transactional()
                        && crc32c(&batch[CRC_FROM..]) == after.crc
                        && after.total_bytes() == batch.len()
                );
                let size = batch.len();
                assert!(matches!(repacked(&whole, packing, size - 1, 256 << 20), Err(BatchError::TooLarge { .. })));
            }
        }
    }
}

#[test]
fn what_is_no_batch_inside_is_not_packed_again() {
    let packing = Packing { codec: Compression::Zstd, level: 3 };
    for codec in CODECS {
        let whole = batch(codec);
        for count in [19i32, 21] {
            let mut wrong = whole.clone();
            wrong[57..61].copy_from_slice(&count.to_be_bytes());
            assert!(
                codec == packing.codec || repacked(&wrong, packing, 1 << 20, 256 << 20).is_err(),
                "{codec:?} {count}"
            );
        }
        let mut noise = whole;
        noise[HEADER_BYTES..].fill(0xa5);
        assert!(codec == packing.codec || repacked(&noise, packing, 1 << 20, 256 << 20).is_err(), "{codec:?}");
    }
    // It would unpack to a megabyte.
    let bomb = BatchBuilder::default().compression(Compression::Gzip).record(0, None, Some(&vec![0; 1 << 20])).build();
    let unpacked = Packing { codec: Compression::None, level: 0 };
    assert!(matches!(repacked(&bomb, unpacked, 1 << 16, 256 << 20), Err(BatchError::TooLarge { .. })));
    assert!(repacked(&bomb, unpacked, 2 << 20, 256 << 20).is_ok());
}
