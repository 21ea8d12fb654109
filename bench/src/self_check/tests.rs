//! Planted faults are found, and a benchmark that does not find one says which.

use super::*;

#[test]
fn everything_that_is_planted_is_found() {
    let mut missed = missed().unwrap();
    // A machine that differs from itself by more than what is planted cannot tell: that ends a benchmark, and says nothing of its code.
    missed.retain(|said| !said.starts_with("a slow-down of 10 %"));
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn what_is_not_planted_is_not_found() {
    let brought = make(Fault::Lose(u64::MAX), &steady()).unwrap();
    assert_eq!(
        (brought.verdict.complete, brought.verdict.ordered, brought.verdict.intact),
        (Some(true), Some(true), Some(true))
    );
    for fault in [
        Fault::Lose(1),
        Fault::Double(1),
        Fault::Swap(1),
        Fault::Change(1),
        Fault::Stall { after: STALL_AFTER, time: 20 * STALL },
    ] {
        assert!(missed_fault(fault, &brought).is_some(), "a run without it does not pass for one with it: {fault:?}");
    }
}

#[test]
fn a_fault_hurts_nothing_but_what_finds_it() {
    let swapped = make(Fault::Swap(DELIVERY), &steady()).unwrap().verdict;
    assert_eq!(
        (swapped.complete, swapped.ordered, swapped.intact),
        (Some(true), Some(false), Some(true)),
        "{swapped:?}"
    );
    let changed = make(Fault::Change(DELIVERY), &steady()).unwrap().verdict;
    assert_eq!(
        (changed.complete, changed.ordered, changed.intact),
        (Some(true), Some(true), Some(false)),
        "{changed:?}"
    );
}

#[test]
fn a_slow_down_that_no_finding_tells_is_missed() {
    assert!(missed_slow_down(None, SLOWER).is_some_and(|said| said.starts_with("a slow-down of 10 %")));
}

#[test]
fn a_rate_that_is_not_acknowledged_is_unstable_whatever_the_client_buffers() {
    // A confirm every 10 ms is half of what is due.
    let late = make(Fault::Pace(Duration::from_millis(10)), &steady()).unwrap();
    assert!(late.verdict.remarks.iter().any(|remark| remark.contains("in flight grow")), "{:?}", late.verdict);
    // From the middle of the measured time on nothing is confirmed for a while: seconds of messages wait in the client.
    let stalled = make(Fault::Stall { after: STALL_AFTER, time: Duration::from_secs(4) }, &steady()).unwrap();
    assert!(!stalled.verdict.stable, "{:?}", stalled.verdict);
    assert!(stalled.verdict.remarks.iter().any(|remark| remark.contains("in flight grow")), "{:?}", stalled.verdict);
    let curve = stalled.measured.publish_latency.unwrap();
    assert!(curve.max_ms > 2000.0, "what was due before the end and ended after it counts: {curve:?}");
}

#[test]
fn a_folder_is_checked_once_by_each_build() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.keep_state(&crate::store::State { self_checked: Some(build()), ..Default::default() }).unwrap();
    let began = std::time::Instant::now();
    once(&store).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "not again");
}
