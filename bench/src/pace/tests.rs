//! Due times.

use super::*;

#[test]
fn due_times_neither_drift_nor_wait_for_the_sender() {
    let mut pace = Pace::new(1_000, 3.0, 0.0);
    let dues: Vec<Nanos> = (0..4)
        .map(|_| {
            let due = pace.due();
            pace.advance();
            due
        })
        .collect();
    assert_eq!(dues, [1_000, 333_334_333, 666_667_666, 1_000_001_000]);
}

#[test]
fn threads_take_turns() {
    assert_eq!(Pace::new(0, 1000.0, 0.5).due(), 500_000);
}

#[test]
fn a_window_of_due_times_holds_its_begin_and_not_its_end() {
    let window = DueWindow::default();
    assert!(!window.holds(0) && !window.holds(5));
    window.set(10, 20);
    assert_eq!([9, 10, 19, 20].map(|due| window.holds(due)), [false, true, true, false]);
}
