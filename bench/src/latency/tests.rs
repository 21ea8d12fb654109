//! Quantiles, addition, and the way over the wire.

use super::*;

fn of(millis: impl IntoIterator<Item = u64>) -> Latency {
    let mut latency = Latency::default();
    millis.into_iter().for_each(|value| latency.record(value * 1_000_000));
    latency
}

fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= wanted * 0.002
}

#[test]
fn quantiles_are_those_of_what_was_counted() {
    let curve = of(1..=1000).curve().expect("something was counted");
    assert!(near(curve.p50_ms, 500.0) && near(curve.p99_ms, 990.0) && near(curve.p999_ms, 999.0), "{curve:?}");
    assert!(near(curve.max_ms, 1000.0) && near(curve.mean_ms, 500.5), "{curve:?}");
    assert!(curve.points.is_sorted_by(|one, next| one.0 <= next.0 && one.1 <= next.1));
    assert_eq!(curve.points.last().map(|point| point.0), Some(100.0));
}

#[test]
fn histograms_add_up() {
    let mut both = of([1; 99]);
    both.add(&of([2000]));
    assert_eq!(both.count(), 100);
    assert!(near(both.quantile_ms(0.99).unwrap(), 1.0));
    assert!(near(both.curve().unwrap().max_ms, 2000.0));
    both.clear();
    assert!(both.curve().is_none(), "nothing is left after clearing");
}

#[test]
fn bytes_bring_it_to_another_machine() {
    let sent = of([1, 5, 2000]);
    let arrived = Latency::from_bytes(&sent.to_bytes()).expect("it is one");
    assert_eq!(arrived.curve().unwrap().points, sent.curve().unwrap().points);
    assert!(Latency::from_bytes(b"something else").is_err());
}
