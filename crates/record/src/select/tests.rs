//! Selected batches against a look at each record.

use super::*;
use crate::{BatchHeader, Compression, records};

fn batch(codec: Compression, count: i64) -> Bytes {
    let mut builder = BatchBuilder::default().compression(codec).producer(7, 3, 100);
    for number in 0..count {
        let key = number.to_string();
        let headers: [(&[u8], Option<&[u8]>); 3] = [
            (b"kind", Some(b"first")),
            (b"none", None),
            (b"kind", Some(if number % 3 == 0 { b"third" } else { b"other" })),
        ];
        builder = builder.record_with_headers(1000 + number, Some(key.as_bytes()), Some(&[number as u8; 40]), &headers);
    }
    let mut bytes = BytesMut::from(&builder.build()[..]);
    set_base_offset(&mut bytes, Offset(500));
    bytes.freeze()
}

#[test]
fn what_is_selected_is_what_a_look_at_each_record_selects() {
    for codec in [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        for modulus in [1, 2, 3, 7, 1000] {
            let whole = batch(codec, 50);
            let wants = |record: &Record| record.offset.0 % modulus == 1 % modulus;
            let selected = select(&whole, 1 << 20, |view| Some(view.offset.0 % modulus == 1 % modulus)).expect("valid");
            let expected: Vec<Record> = records(&whole).unwrap().into_iter().filter(|record| wants(record)).collect();
            match selected {
                Selected::All => assert_eq!(expected.len(), 50),
                Selected::Nothing => assert!(expected.is_empty()),
                Selected::Stopped => panic!("nobody stops it"),
                Selected::Part(part) => {
                    assert_eq!(records(&part).unwrap(), expected);
                    let (header, before) = (BatchHeader::parse(&part).unwrap(), BatchHeader::parse(&whole).unwrap());
                    assert_eq!(header.crc, crate::crc32c(&part[21..]), "the checksum is that of the new batch");
                    let last = expected.last().map(|record| record.offset.plus(1));
                    assert_eq!(
                        (header.base_offset, Some(header.next())),
                        (before.base_offset, last),
                        "it ends with its last record"
                    );
                    assert_eq!((header.producer_id, header.base_sequence), (before.producer_id, before.base_sequence));
                    assert_eq!(header.compression(), Some(codec));
                    assert_eq!(header.records_count as usize, expected.len());
                }
            }
        }
    }
}

#[test]
fn a_view_shows_key_time_and_the_last_header_of_a_name() {
    let whole = batch(Compression::Lz4, 4);
    let mut seen = Vec::new();
    select(&whole, 1 << 20, |view| {
        let header = view.header(b"kind").map(<[u8]>::to_vec);
        seen.push((view.offset.0, view.timestamp, view.key.map(<[u8]>::to_vec), header));
        assert_eq!((view.header(b"none"), view.header(b"absent")), (None, None));
        Some(true)
    })
    .expect("valid");
    assert_eq!(seen[0], (500, 1000, Some(b"0".to_vec()), Some(b"third".to_vec())));
    assert_eq!(seen[1], (501, 1001, Some(b"1".to_vec()), Some(b"other".to_vec())));
    assert_eq!(seen.len(), 4);
}

#[test]
fn damaged_batches_are_errors() {
    let whole = batch(Compression::None, 3);
    for cut in 0..whole.len() {
        assert!(select(&whole[..cut], 1 << 20, |_| Some(true)).is_err(), "cut to {cut}");
    }
    for at in crate::HEADER_BYTES..whole.len() {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0xff;
        // Any outcome but a panic: the checksum is somebody else's to look at.
        let _ = select(&bytes, 1 << 20, |view| Some(view.header(b"kind").is_some()));
    }
}

#[test]
fn a_gap_marker_is_a_control_batch_without_a_producer() {
    let marker = gap_marker(Offset(41), 7, 99);
    let header = BatchHeader::parse(&marker).unwrap();
    assert!(header.control() && !header.idempotent());
    assert_eq!((header.base_offset, header.next(), header.leader_epoch, header.records_count), (41, Offset(42), 7, 1));
    assert_eq!(header.crc, crate::crc32c(&marker[21..]));
    assert_eq!(crate::Marker::of(&header, &marker), Some(crate::Marker::Commit));
}
