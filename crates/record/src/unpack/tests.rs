//! Looks at records without memory for them, compared with the records as they are decoded whole.

use super::*;
use crate::{BatchBuilder, Marker, Record, records, set_base_offset};

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn batch(codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::default().compression(codec);
    for number in 0..2000i64 {
        let (key, value) = (number.to_string(), vec![number as u8; number as usize % 700]);
        let key = (number % 3 != 0).then_some(key.as_bytes());
        let value = (number % 5 != 0).then_some(&value[..]);
        builder = builder.record_with_headers(
            1_000_000 - number * 1000,
            key,
            value,
            &[(b"name", None), (b"", Some(b"value"))],
        );
    }
    let mut built = builder.build().to_vec();
    set_base_offset(&mut built, Offset(77));
    built
}

#[test]
fn a_scan_shows_what_is_in_the_records() {
    for codec in CODECS {
        let batch = batch(codec);
        let expected: Vec<Record> = records(&batch).expect("valid");
        let mut seen = Vec::new();
        let whole = scan(&batch, 10 << 20, |record| {
            seen.push(*record);
            ControlFlow::Continue(())
        });
        assert_eq!(whole, Ok(()), "{codec:?}");
        let of = |record: &Record| Scanned {
            offset: record.offset,
            timestamp: record.timestamp,
            keyed: record.key.is_some(),
            tombstone: record.value.is_none(),
            value_bytes: record.value.as_ref().map_or(0, bytes::Bytes::len),
        };
        assert_eq!(seen, expected.iter().map(of).collect::<Vec<_>>(), "{codec:?}");
        let mut keys = Vec::new();
        scan_keys(&batch, 10 << 20, |record, key| keys.push((record.offset, record.keyed.then(|| key.to_vec()))))
            .expect("valid");
        let of = |record: &Record| (record.offset, record.key.as_ref().map(|key| key.to_vec()));
        assert_eq!(keys, expected.iter().map(of).collect::<Vec<_>>(), "{codec:?}");
    }
}

#[test]
fn a_scan_ends_when_enough_was_seen_or_unpacked() {
    for codec in CODECS.into_iter().skip(1) {
        let batch = batch(codec);
        let before = unpacked_bytes();
        let mut seen = 0;
        let first = scan(&batch, 10 << 20, |_| {
            seen += 1;
            ControlFlow::Break(())
        });
        assert_eq!((first, seen), (Ok(()), 1), "{codec:?}");
        let of_first = unpacked_bytes() - before;
        assert!((1..=100_000).contains(&of_first), "{codec:?}: {of_first}");
        let (before, mut seen) = (unpacked_bytes(), 0);
        let cut = scan(&batch, 200_000, |_| {
            seen += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(cut, Err(BatchError::TooLarge { bytes: 200_001, max: 200_000 }), "{codec:?}");
        assert!(seen > 100 && unpacked_bytes() - before <= 200_001, "{codec:?}");
    }
}

#[test]
fn damaged_records_are_refused_wherever_they_end() {
    let whole = Marker::Commit.batch(1, 0, 0, 1).to_vec();
    assert_eq!(scan(&whole, 1000, |_| ControlFlow::Continue(())), Ok(()));
    for codec in CODECS {
        let batch = batch(codec);
        for cut in (HEADER_BYTES..batch.len()).step_by(batch.len() / 50) {
            let mut short = batch[..cut].to_vec();
            short[8..12].copy_from_slice(&((cut - 12) as i32).to_be_bytes());
            assert!(scan(&short, 10 << 20, |_| ControlFlow::Continue(())).is_err(), "{codec:?} of {cut} bytes");
            assert!(records(&short).is_err(), "{codec:?} of {cut} bytes");
        }
    }
}

#[test]
fn a_snappy_block_that_says_more_than_it_can_hold_takes_no_memory() {
    // Half a gigabyte, it says, in ten bytes.
    let block = [0x80, 0x80, 0x80, 0x80, 0x02, 0, 0, 0, 0, 0];
    assert!(matches!(unpack(Compression::Snappy, &block, usize::MAX), Err(BatchError::Corrupt { .. })));
}
