//! Merging of runs.

use types::Offset;

use super::*;
use crate::disk::{IoMode, RealStorage, Storage};

#[test]
fn a_merged_run_has_no_more_offsets_than_its_entry_can_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("a folder");
    let mut copy = Copy::new(storage.create("one", SECTOR as u64).expect("a file"));
    let span = i32::MAX as u64;
    for number in 0..5 {
        let (base, next) = (Offset(number * span), Offset((number + 1) * span));
        let run = Run {
            log: LogId(1),
            base,
            next,
            position: 0,
            bytes: 3,
            crc: 0,
            records: 0,
            shared: false,
            max_timestamp: 0,
            append_time: 0,
        };
        copy.add(&run, b"one").expect("written");
    }
    let (_, runs, _) = copy.finish().expect("written");
    let spans: Vec<u64> = runs.iter().map(|run| run.next.since(run.base)).collect();
    assert_eq!(spans, [2 * span, 2 * span, span]);
}

#[test]
fn a_body_that_comes_out_of_its_order_is_an_error_and_no_panic() {
    let run = |position| Run {
        log: LogId(1),
        base: Offset(0),
        next: Offset(1),
        position,
        bytes: 3,
        crc: 0,
        records: 1,
        shared: false,
        max_timestamp: 0,
        append_time: 0,
    };
    let part = Part { source: 0, alone: true, run: run(4096), at: 3 };
    assert!(check_place(Some(part), &run(4096), 3, String::new).is_ok());
    for (part, run, at) in [(Some(part), run(8192), 3), (Some(part), run(4096), 6), (None, run(4096), 3)] {
        let error = check_place(part, &run, at, String::new).expect_err("out of order");
        assert!(
            matches!(&error, SegmentError::Corrupt { position, .. } if *position == u64::from(run.position)),
            "{error}"
        );
    }
}
