//! Tickets keep their times; counts and waiting.

use super::*;

/// Everything is measured.
fn always() -> Arc<DueWindow> {
    let window = DueWindow::default();
    window.set(0, Nanos::MAX);
    Arc::new(window)
}

#[test]
fn a_late_send_counts_in_one_latency_and_not_in_the_other() {
    let clock = Clock::local();
    let outcomes = Outcomes::new(clock, 3, Arc::default());
    let now = clock.now();
    let ticket = outcomes.depart(2, now.saturating_sub(0), now + 2_000_000_000);
    assert_eq!((outcomes.in_flight(2), outcomes.in_flight(1)), (1, 0));
    // As if it had been due two seconds before it could be sent: acknowledged right away.
    outcomes.acknowledged(ticket);
    let early = outcomes.take();
    assert!(early.since_due.quantile_ms(1.0).unwrap() < 100.0);

    let waiting = Outcomes { epoch: now - 5_000_000_000, ..Outcomes::new(clock, 1, always()) };
    waiting.acknowledged(waiting.depart(0, now - 2_000_000_000, now));
    let counted = waiting.take();
    assert!(counted.since_due.quantile_ms(1.0).unwrap() >= 2000.0, "what waited to be sent counts");
    assert!(counted.measured.since_sent.quantile_ms(1.0).unwrap() < 100.0, "but not since it was sent");
    assert_eq!((counted.acknowledged, counted.failed, waiting.in_flight(0)), (1, 0, 0));
}

#[test]
fn due_times_survive_the_end_of_their_bits() {
    let clock = Clock::local();
    let around = (1u64 << DUE_BITS) * 1000;
    let outcomes = Outcomes { epoch: clock.now() - around - 5_000_000, ..Outcomes::new(clock, 1, always()) };
    let now = clock.now();
    outcomes.acknowledged(outcomes.depart(0, now - 1_000_000_000, now));
    let waited = outcomes.take().since_due.quantile_ms(1.0).unwrap();
    assert!((1000.0..1100.0).contains(&waited), "{waited} ms");
}

#[test]
fn failures_are_counted_and_the_first_reason_is_kept() {
    let outcomes = Outcomes::new(Clock::local(), 1, Arc::default());
    for reason in ["disk full", "later"] {
        let now = outcomes.clock.now();
        outcomes.failed(outcomes.depart(0, now, now), || reason.to_owned());
    }
    assert_eq!(outcomes.take().failed, 2);
    assert_eq!(outcomes.trouble().as_deref(), Some("disk full"));
    assert_eq!(outcomes.in_flight_total(), 0);
}

#[test]
fn what_is_measured_is_told_by_when_it_was_due() {
    let clock = Clock::local();
    let window = Arc::new(DueWindow::default());
    let now = clock.now();
    let outcomes = Outcomes { epoch: now - 9_000_000_000, ..Outcomes::new(clock, 1, window.clone()) };
    let due = [now - 4_000_000_000, now - 2_000_000_000, now];
    let tickets = due.map(|due| outcomes.depart(0, due, now));
    window.set(now - 3_000_000_000, now - 1_000_000_000);
    tickets.into_iter().for_each(|ticket| outcomes.acknowledged(ticket));
    let counted = outcomes.take();
    assert_eq!((counted.since_due.count(), counted.measured.since_due.count()), (3, 1));
    assert!(
        (2000.0..2100.0).contains(&counted.measured.since_due.quantile_ms(1.0).unwrap()),
        "it ended after the window"
    );
}
