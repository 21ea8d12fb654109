//! Producer state: sequence checks, deduplication, expiry.

use super::*;

fn batch(epoch: i16, first: i32, count: i32) -> BatchHeader {
    BatchHeader {
        base_offset: 0,
        batch_length: 49,
        leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta: count - 1,
        base_timestamp: 0,
        max_timestamp: 0,
        producer_id: 7,
        producer_epoch: epoch,
        base_sequence: first,
        records_count: count,
    }
}

#[test]
fn remembers_five_batches_and_refuses_gaps() {
    let mut producers = Producers::default();
    for number in 0..7 {
        let header = batch(0, number * 10, 10);
        assert_eq!(producers.judge(&header), Verdict::Append, "batch {number}");
        producers.remember(&header, Offset(number as u64 * 10), 1);
    }
    for number in 2..7 {
        let expected = Verdict::Duplicate { base: Offset(number as u64 * 10), last_delta: 9 };
        assert_eq!(producers.judge(&batch(0, number * 10, 10)), expected, "batch {number}");
    }
    assert_eq!(producers.judge(&batch(0, 10, 10)), Verdict::OutOfOrder, "forgotten batch");
    assert_eq!(producers.judge(&batch(0, 80, 10)), Verdict::OutOfOrder, "gap");
}

#[test]
fn a_new_epoch_starts_at_zero_and_fences_the_old() {
    let mut producers = Producers::default();
    producers.remember(&batch(3, 5, 1), Offset(0), 1);
    assert_eq!(producers.judge(&batch(4, 6, 1)), Verdict::OutOfOrder);
    assert_eq!(producers.judge(&batch(4, 0, 1)), Verdict::Append);
    assert_eq!(producers.judge(&batch(2, 6, 1)), Verdict::Fenced);
}

#[test]
fn sequences_wrap_to_zero() {
    let mut producers = Producers::default();
    let last = batch(0, i32::MAX - 1, 2);
    assert_eq!(last.last_sequence(), i32::MAX);
    producers.remember(&last, Offset(0), 1);
    assert_eq!(producers.judge(&batch(0, 0, 3)), Verdict::Append);
    assert_eq!(batch(0, i32::MAX, 3).last_sequence(), 1);
}

#[test]
fn an_unknown_producer_may_start_anywhere_and_idle_ones_expire() {
    let mut producers = Producers::default();
    assert_eq!(producers.judge(&batch(1, 99, 1)), Verdict::Append);
    producers.remember(&batch(1, 99, 1), Offset(0), 50);
    assert_eq!(producers.expire(50, 0, 10), None);
    assert!(!producers.is_empty());
    assert_eq!(producers.expire(51, 0, 10), None);
    assert!(producers.is_empty());
    assert_eq!(producers.judge(&batch(1, 42, 1)), Verdict::Append);
}

#[test]
fn producers_are_looked_through_in_pieces_and_each_once() {
    let mut producers = Producers::default();
    for id in 0..1000 {
        // Every fifth wrote late, every tenth has a transaction open.
        let attributes = if id % 10 == 1 { 1 << 4 } else { 0 };
        let header = BatchHeader { producer_id: id, attributes, ..batch(0, 0, 1) };
        producers.remember(&header, Offset(id as u64), if id % 5 == 0 { 100 } else { 50 });
    }
    let (mut at, mut pieces) = (Some(0), 0);
    while let Some(from) = at {
        let before = producers.iter().len();
        at = producers.expire(100, from, 64);
        pieces += 1;
        assert!(before - producers.iter().len() <= 64, "no more than were to be looked at");
    }
    assert_eq!(pieces, 1000_usize.div_ceil(64));
    let mut left: Vec<i64> = producers.iter().map(|(id, _)| id).collect();
    left.sort_unstable();
    let expected: Vec<i64> = (0..1000).filter(|id| id % 5 == 0 || id % 10 == 1).collect();
    assert_eq!(left, expected);
}

#[test]
fn at_the_bound_of_memory_new_producers_take_the_place_of_silent_ones() {
    let by = |id: i64| BatchHeader { producer_id: id, ..batch(0, 0, 1) };
    let room = Arc::new(ProducerRoom::new(64 << 10));
    let mut producers = Producers::counted(Arc::clone(&room));
    let write = |producers: &mut Producers, id: i64, now: i64| {
        let admitted = producers.admit(id, now);
        if admitted {
            producers.remember(&by(id), Offset(0), now);
        }
        admitted
    };
    let taken = (0..10_000).take_while(|id| write(&mut producers, *id, 1)).count();
    assert!((100..300).contains(&taken), "{taken}");
    assert!(room.bytes() <= 64 << 10, "{}", room.bytes());
    assert_eq!(room.refused(), 1);
    assert!(write(&mut producers, 5, 2), "it is known");
    let full = room.bytes();
    (70_000..71_000)
        .for_each(|id| producers.end_transaction(&by(id), Marker::Abort, Offset(9), 2, (Offset(0), Offset(9))));
    assert_eq!(room.bytes(), full, "markers of producers that are not known");
    producers.end_transaction(
        &BatchHeader { producer_epoch: 3, ..by(5) },
        Marker::Abort,
        Offset(9),
        2,
        (Offset(0), Offset(9)),
    );
    assert_eq!(producers.judge(&by(5)), Verdict::Fenced, "of one that is known");

    // Another log takes some in any case, and no more.
    let mut other = Producers::counted(Arc::clone(&room));
    assert_eq!((0..100).filter(|id| write(&mut other, *id, 2)).count(), 4);

    // Those that have been silent make place, as many as are needed.
    let later = 1 + SILENT_MS + 1;
    let before = room.bytes();
    assert!((20_000..20_100).all(|id| write(&mut producers, id, later)));
    assert!(room.bytes() <= before, "{} {before}", room.bytes());
    assert_eq!(
        producers.judge(&BatchHeader { base_sequence: 5, ..by(20_050) }),
        Verdict::OutOfOrder,
        "who is not silent stays"
    );

    // What a start brings back is counted, and goes with its log.
    let mut restored = Producers::default();
    (0..1000).for_each(|id| restored.restore(id, Producer::default()));
    assert!(restored.admit(5000, later), "no log's yet");
    restored.count_in(Arc::clone(&room));
    assert!(room.bytes() > 200_000, "{}", room.bytes());
    assert!(restored.admit(5000, later), "its producers have been silent for long");
    drop((producers, other, restored));
    assert_eq!(room.bytes(), 0);
}
