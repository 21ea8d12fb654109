//! Which objects are a log's when records replace each other, in whatever order a crash left them.

use super::*;

fn object(base: u64, next: u64, id: u64) -> Arc<Archived> {
    Arc::new(Archived {
        log: LogId(7),
        base: Offset(base),
        next: Offset(next),
        id,
        bytes: 10 * (next - base),
        length: 500,
        max_timestamp: id as i64,
        last_append: -1,
        horizon: NO_HORIZON,
        cleaned: id.is_multiple_of(2),
        aborted: vec![
            AbortedTransaction { producer_id: 4, first: Offset(base), last: Offset(next - 1) };
            (id % 3) as usize
        ],
    })
}

fn ids(log: &ArchivedLog) -> Vec<u64> {
    log.iter().map(|object| object.id).collect()
}

#[test]
fn a_record_is_what_was_written() {
    for id in 0..6 {
        let object = object(3, 12, id);
        assert_eq!(Archived::decode(&object.key(), &object.value()).as_ref(), Some(&*object));
        let value = object.value();
        for end in 0..value.len() {
            assert_eq!(Archived::decode(&object.key(), &value[..end]), None, "cut at {end}");
        }
    }
    assert!(is_record(&object(0, 1, 1).key()) && !is_record(b"another") && !is_record(b"t123456789012345678"));
}

#[test]
fn the_later_object_takes_the_place_of_those_that_it_covers() {
    let mut log = ArchivedLog::default();
    for (base, next, id) in [(0, 100, 1), (100, 150, 2), (150, 200, 3)] {
        assert_eq!(log.enter(object(base, next, id)), []);
    }
    assert_eq!((log.until(), log.bytes_from(Offset(120))), (Offset(200), 1000));
    let replaced = log.enter(object(0, 150, 4));
    assert_eq!(replaced.iter().map(|object| object.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(ids(&log), [4, 3]);
    // What a crash left of the objects before is no part of the log.
    assert_eq!(log.enter(object(100, 150, 2)).len(), 1);
    assert_eq!(ids(&log), [4, 3]);
    assert_eq!(log.at(Offset(149)).map(|object| object.id), Some(4));
    assert_eq!(log.at(Offset(150)).map(|object| object.id), Some(3));
    assert_eq!(log.at(Offset(200)), None);
    log.remove_through(Offset(150));
    assert_eq!((ids(&log), log.until()), (vec![3], Offset(200)));
    assert_eq!(log.at(Offset(100)), None);
}
