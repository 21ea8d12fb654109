//! Filters on batches: what passes, what is looked into, and the bound of what is remembered.

use super::*;
use bytes::BytesMut;
use record::{BatchBuilder, Marker, Record, records, set_base_offset};

const LOG: LogId = LogId(7);

/// Batches of ten records; those of the n-th have the keys of `key`.
fn batches(count: u64, key: impl Fn(u64) -> String) -> Vec<Bytes> {
    let one = |batch: u64| {
        let mut builder = BatchBuilder::default();
        for at in 0..10 {
            builder = builder.record(0, Some(key(batch * 10 + at).as_bytes()), Some(b"value"));
        }
        let mut bytes = BytesMut::from(&builder.build()[..]);
        set_base_offset(&mut bytes, Offset(batch * 10));
        bytes.freeze()
    };
    (0..count).map(one).collect()
}

fn filters(texts: &[(&str, &str)]) -> Filters {
    let filters = Filters::default();
    texts.iter().for_each(|(group, text)| filters.set(group, text, ""));
    filters
}

fn passed(filters: &Filters, group: &str, slices: &[Bytes]) -> Vec<Record> {
    let filter = filters.of_group(group).expect("it has a filter");
    let passed = filters.pass(LOG, slices, &filter.filter, Room::ANY, &mut { UnpackRoom::HISTORY });
    assert_eq!(passed.bytes, passed.slices.iter().map(Bytes::len).sum::<usize>());
    passed.slices.iter().flat_map(|batch| records(batch).expect("a batch")).collect()
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn groups_with_one_filter_look_into_a_batch_once() {
    let filters = filters(&[("a", "key = '3'"), ("b", "key = '3'"), ("c", "key = '3'")]);
    let slices = batches(20, |number| (number % 10).to_string());
    let first = passed(&filters, "a", &slices);
    assert_eq!(
        first.iter().map(|record| record.offset.0).collect::<Vec<_>>(),
        (0..20).map(|batch| batch * 10 + 3).collect::<Vec<_>>()
    );
    assert_eq!(passed(&filters, "b", &slices), first);
    assert_eq!(passed(&filters, "c", &slices), first);
    assert_eq!((count(&filters.counts.decoded), count(&filters.counts.remembered)), (20, 40));
}

#[test]
fn a_summary_spares_other_filters_the_look() {
    let filters = filters(&[("a", "key = '3'"), ("b", "key IN ('4', '5')"), ("c", "key LIKE '4%'")]);
    let slices = batches(20, |number| (number / 10).to_string());
    assert_eq!(passed(&filters, "a", &slices).len(), 10);
    assert_eq!(count(&filters.counts.decoded), 20);
    assert_eq!(passed(&filters, "b", &slices).len(), 20);
    assert_eq!((count(&filters.counts.decoded), count(&filters.counts.skipped)), (22, 18));
    assert_eq!(passed(&filters, "c", &slices).len(), 10);
    assert_eq!(count(&filters.counts.decoded), 42, "a pattern asks for no value that a summary could lack");
}

#[test]
fn memory_is_bounded_and_nothing_is_lost_by_it() {
    let filters = filters(&[("a", "key = '3'")]);
    filters.set_notes_bytes_max(NOTES_BYTES_FEW);
    let slices = batches(500, |number| (number % 10).to_string());
    for _ in 0..2 {
        assert_eq!(passed(&filters, "a", &slices).len(), 500);
        assert!(filters.notes_bytes() <= NOTES_BYTES_FEW, "{}", filters.notes_bytes());
    }
    assert!(count(&filters.counts.decoded) > 500, "what was forgotten was looked into again");
    assert!(filters.notes_bytes() > 0);
}

/// For two hundred batches, about.
const NOTES_BYTES_FEW: usize = 64 * 1000;

#[test]
fn memory_for_all_batches_once_suffices_for_groups_that_read_together() {
    let slices = batches(500, |number| (number % 10).to_string());
    let words = |group: &str| format!("key IN ('3', '{}')", &group[..1]);
    let filters = Filters::default();
    let groups = ["a1", "b1", "c1", "c2", "c3", "c4", "c5"];
    groups.iter().for_each(|group| filters.set(group, &words(group), ""));
    let read = |group: &str| assert_eq!(passed(&filters, group, &slices).len(), 500);
    read("a1");
    let once = filters.notes_bytes();
    filters.set_notes_bytes_max(once);
    // What other groups wanted of the same batches, and were there first, makes room.
    read("b1");
    let before = count(&filters.counts.decoded);
    assert_eq!(before, 1000);
    std::thread::scope(|scope| {
        for group in ["c1", "c2", "c3", "c4", "c5"] {
            scope.spawn(move || read(group));
        }
    });
    assert_eq!(count(&filters.counts.decoded) - before, 500, "each batch is looked into once");
    assert!(filters.notes_bytes() <= once);
    read("c3");
    assert_eq!(count(&filters.counts.decoded) - before, 500);
}

#[test]
fn no_more_passes_than_there_is_room_for() {
    let filters = filters(&[("a", "key = '3'"), ("b", "key = '999'")]);
    let slices = batches(20, |number| (number % 10).to_string());
    let (some, none) = (filters.of_group("a").unwrap().filter.clone(), filters.of_group("b").unwrap().filter.clone());
    let pass = |filter: &SharedFilter, bytes: usize, first_fits: bool| {
        filters.pass(LOG, &slices, filter, Room { bytes, first_fits }, &mut { UnpackRoom::TURN })
    };
    let all = pass(&some, usize::MAX, false);
    assert_eq!((all.next, all.full_at), (Offset(194), None));
    let one = all.bytes / 20;
    let three = pass(&some, 3 * one + one / 2, false);
    assert_eq!((three.bytes, three.next, three.full_at), (3 * one, Offset(24), Some(Offset(30))));
    let first = pass(&some, 1, true);
    assert_eq!((first.bytes, first.next, first.full_at), (one, Offset(4), Some(Offset(10))));
    let nothing = pass(&some, 1, false);
    assert_eq!((nothing.bytes, nothing.next, nothing.full_at), (0, Offset(0), Some(Offset(0))));
    // What does not pass needs no room.
    assert_eq!((pass(&none, 0, false).full_at, pass(&none, 0, false).bytes), (None, 0));
}

#[test]
fn markers_pass_and_so_does_what_cannot_be_read() {
    let filters = filters(&[("a", "FALSE")]);
    let mut slices = batches(1, |_| "x".to_owned());
    slices.push(Marker::Commit.batch(1, 0, 0, 0));
    assert_eq!(passed(&filters, "a", &slices).len(), 1, "the marker");
    let mut damaged = slices[0].to_vec();
    damaged[record::HEADER_BYTES] = 0xff;
    set_base_offset(&mut damaged, Offset(99));
    let damaged = Bytes::from(damaged);
    let filter = filters.of_group("a").unwrap();
    assert_eq!(
        filters
            .pass(LOG, std::slice::from_ref(&damaged), &filter.filter, Room::ANY, &mut { UnpackRoom::TURN })
            .slices
            .as_slice(),
        [damaged]
    );
    assert_eq!(count(&filters.counts.unreadable), 1);
}

#[test]
fn a_filter_comes_and_goes() {
    let filters = Filters::default();
    assert!(!filters.any());
    filters.set("a", "key = 'x'", " one, two,,");
    filters.set("b", "key = 'x'", "");
    let (a, b) = (filters.of_group("a").unwrap(), filters.of_group("b").unwrap());
    assert_eq!(a.client_ids, ["one", "two"]);
    assert!(Arc::ptr_eq(&a.filter, &b.filter), "one expression is kept once");
    let named = |id: &str| filters.named(id).map(|found| found.group.clone());
    assert_eq!((named("two").as_deref(), named("consumer-b-1").as_deref()), (Some("a"), Some("b")));
    filters.set("c", "TRUE", "two,three");
    assert_eq!((named("two"), named("three").as_deref()), (None, Some("c")), "two groups are not one");
    filters.set("c", "TRUE", "consumer-c-1");
    assert_eq!(
        (named("two").as_deref(), named("three"), named("consumer-c-1").as_deref()),
        (Some("a"), None, Some("c"))
    );
    filters.set("c", "TRUE", "consumer-b-1");
    assert_eq!(named("consumer-b-1"), None);
    filters.set("c", "", "");
    assert_eq!(named("consumer-b-1").as_deref(), Some("b"));
    filters.set("a", "", "");
    assert!(filters.any() && filters.of_group("a").is_none());
    filters.set("b", "", "");
    assert!(!filters.any());
}

#[test]
fn a_turn_unpacks_so_much_and_batches_that_unpack_to_too_much_pass_as_they_are() {
    let filters = filters(&[("a", "key = '3'")]);
    let filter = filters.of_group("a").expect("it has a filter");
    let packed = |number: u64, bytes: usize| {
        let builder = BatchBuilder::default().compression(record::Compression::Zstd).record(
            0,
            Some(b"4"),
            Some(&vec![b'x'; bytes]),
        );
        let mut bytes = BytesMut::from(&builder.build()[..]);
        set_base_offset(&mut bytes, Offset(number));
        bytes.freeze()
    };
    // Each unpacks to less than a megabyte, all of them to much more than a turn may unpack.
    let slices: Vec<Bytes> = (0..60).map(|number| packed(number, 900_000)).collect();
    let (mut at, mut turns) = (0, 0);
    while at < slices.len() {
        let (before, mut unpack) = (record::unpacked_bytes(), UnpackRoom::TURN);
        let passed = filters.pass(LOG, &slices[at..], &filter.filter, Room::ANY, &mut unpack);
        assert!(record::unpacked_bytes() - before <= room::TURN_UNPACKED_MAX as u64);
        assert_eq!(passed.bytes, 0, "none of them is wanted");
        at = passed.full_at.map_or(slices.len(), |full_at| full_at.0 as usize);
        turns += 1;
    }
    assert!((4..10).contains(&turns), "{turns}");
    let bomb = packed(100, 30 << 20);
    for known in [false, true] {
        let before = record::unpacked_bytes();
        let passed =
            filters.pass(LOG, std::slice::from_ref(&bomb), &filter.filter, Room::ANY, &mut { UnpackRoom::TURN });
        assert_eq!(passed.slices.as_slice(), std::slice::from_ref(&bomb), "nothing that may be wanted is lost");
        assert!(record::unpacked_bytes() - before <= if known { 0 } else { 2 << 20 });
    }
    assert_eq!(count(&filters.counts.unreadable), 1);
}

/// A filter that takes some ten thousand steps for each record, and wants those whose key ends with 3.
fn long_filter() -> String {
    let never = vec!["key LIKE '%never%'"; 700].join(" OR ");
    format!("{never} OR key LIKE '%3'")
}

#[test]
fn a_batch_that_takes_longer_than_a_turn_is_gone_on_with_in_others() {
    let filters = filters(&[("a", &long_filter())]);
    let filter = filters.of_group("a").expect("it has a filter");
    let mut builder = BatchBuilder::default();
    for at in 0..2000 {
        builder = builder.record(0, Some(format!("key-number-{at}").as_bytes()), Some(b"value"));
    }
    let slices = [builder.build()];
    let batch = &sliced_batches(&slices).expect("a batch")[0];
    let expected: Vec<(u64, u64)> = (0..2000).filter(|at| at % 10 == 3).map(|at| (at, at)).collect();
    // Turns on a network thread that leave it to others, then all of it there, and elsewhere.
    for (room, least, most) in [(UnpackRoom::ALL_TURNS, 16, 40), (UnpackRoom::HISTORY, 4, 10)] {
        let mut turns = 0;
        let found = loop {
            let mut turn = room;
            let found = filters.pass_one(LOG, &slices, batch, &filter.filter, &mut turn);
            assert!(found.is_some() || turn.is_used_up() && turn.steps() == 0);
            turns += 1;
            if let Some(found) = found {
                break found;
            }
            assert_eq!(count(&filters.counts.decoded), 0, "it is not known yet");
            let mut here = UnpackRoom::TURN;
            assert!(
                filters.pass_one(LOG, &slices, batch, &filter.filter, &mut here).is_none()
                    && here.take_long()
                    && !here.is_used_up(),
                "nothing is done here"
            );
        };
        assert!((least..most).contains(&turns), "{turns} turns");
        let Passed::Part { runs, .. } = found else { panic!("some of its records are wanted") };
        assert_eq!(runs, expected);
        assert_eq!(count(&filters.counts.decoded), 1);
        let mut turn = UnpackRoom::TURN;
        assert!(
            filters.pass_one(LOG, &slices, batch, &filter.filter, &mut turn).is_some() && !turn.take_long(),
            "now it is"
        );
        // Another bound of memory forgets all of it.
        filters.set_notes_bytes_max(0);
        assert!(
            matches!(
                filters.pass_one(LogId(8), &slices, batch, &filter.filter, &mut { UnpackRoom::TURN }),
                Some(Passed::All)
            ),
            "there is no memory to go on"
        );
        filters.set_notes_bytes_max(1 << 20);
        filters.counts.decoded.store(0, Ordering::Relaxed);
        assert!(filters.notes_bytes() == 0);
    }
}

#[test]
fn what_a_turn_judges_is_bounded_over_all_of_its_batches() {
    let filters = filters(&[("a", &long_filter())]);
    let filter = filters.of_group("a").expect("it has a filter");
    let slices = batches(100, |number| format!("key-number-{number}"));
    let (mut at, mut turns, mut passed) = (0, 0, 0);
    while at < slices.len() {
        let mut turn = UnpackRoom::TURN;
        let one = filters.pass(LOG, &slices[at..], &filter.filter, Room::ANY, &mut turn);
        assert!(!turn.take_long(), "no batch takes longer than a turn");
        at = one.full_at.map_or(slices.len(), |full_at| full_at.0 as usize / 10);
        passed += one.slices.iter().map(|batch| records(batch).expect("a batch").len()).sum::<usize>();
        turns += 1;
    }
    assert_eq!(passed, 100);
    assert!((8..30).contains(&turns), "{turns} turns");
}

#[test]
fn what_is_begun_stays_while_it_is_gone_on_with() {
    let filters = filters(&[("a", &long_filter()), ("b", "key = 'none'")]);
    let (long, other) = (filters.of_group("a").unwrap().filter.clone(), filters.of_group("b").unwrap().filter.clone());
    let mut builder = BatchBuilder::default();
    for at in 0..1000 {
        builder = builder.record(0, Some(format!("key-number-{at}").as_bytes()), None);
    }
    let slices = [builder.build()];
    let batch = &sliced_batches(&slices).expect("a batch")[0];
    let others = batches(30, |number| number.to_string());
    filters.set_notes_bytes_max(16 * 1024);
    let mut turns = 0;
    while filters.pass_one(LOG, &slices, batch, &long, &mut { UnpackRoom::ALL_TURNS }).is_none() {
        turns += 1;
        assert!(turns < 40, "it is begun again and again");
        // Meanwhile others' outcomes take most of the memory, so that what was there goes in two turns.
        assert_eq!(filters.pass(LogId(9 + turns), &others, &other, Room::ANY, &mut { UnpackRoom::TURN }).bytes, 0);
        assert!(filters.notes_bytes() <= 20 * 1024);
    }
    assert!(turns > 5);
    // Left alone, it goes.
    filters.pass_one(LogId(8), &slices, batch, &long, &mut { UnpackRoom::TURN });
    for log in 1000..1003 {
        filters.pass(LogId(log), &others, &other, Room::ANY, &mut { UnpackRoom::TURN });
    }
    assert!(filters.notes_bytes() <= 16 * 1024);
    let decoded = count(&filters.counts.decoded);
    assert!(
        filters.pass_one(LogId(8), &slices, batch, &long, &mut { UnpackRoom::TURN }).is_none(),
        "so it is begun anew"
    );
    assert_eq!(count(&filters.counts.decoded), decoded);
}

#[test]
fn a_record_that_takes_longer_than_anything_may_passes() {
    let filters = filters(&[(
        "a",
        "key LIKE '%a%b' OR key LIKE '%c%d' OR key LIKE '%e%f' OR key LIKE '%g%h' OR key LIKE '%i%j'",
    )]);
    let filter = filters.of_group("a").expect("it has a filter");
    let slices = [BatchBuilder::default()
        .record(0, Some(b"x"), None)
        .record(0, Some(&vec![b'x'; 1 << 20]), None)
        .record(0, Some(b"x"), None)
        .build()];
    let batch = &sliced_batches(&slices).expect("a batch")[0];
    let found = (0..3)
        .find_map(|_| filters.pass_one(LOG, &slices, batch, &filter.filter, &mut { UnpackRoom::ALL_TURNS }))
        .expect("three turns");
    assert!(matches!(found, Passed::Part { runs, .. } if runs == [(1, 1)]), "nothing that may be wanted is lost");
}
