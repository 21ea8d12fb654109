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
    let all = of((1..=1000).cycle().take(100_000));
    let curve = all.curve(0).expect("something was counted");
    for (found, wanted) in [(curve.p50_ms, 500.0), (curve.p99_ms, 990.0), (curve.p999_ms, 999.0)] {
        assert!(near(found.unwrap(), wanted), "{curve:?}");
    }
    assert!(near(curve.max_ms, 1000.0) && near(curve.mean_ms, 500.5), "{curve:?}");
    assert!(curve.points.is_sorted_by(|one, next| one.0 <= next.0 && one.1 <= next.1));
}

#[test]
fn no_percentile_is_told_with_fewer_than_a_hundred_samples_beyond_it() {
    let told = |samples| {
        let curve = of((1..=1000).cycle().take(samples)).curve(0).unwrap();
        assert!(
            curve.points.iter().all(|(percentile, _)| (100.0 - percentile) / 100.0 * samples as f64 >= 99.9),
            "{samples}"
        );
        [curve.p50_ms, curve.p95_ms, curve.p99_ms, curve.p999_ms].map(|found| found.is_some())
    };
    assert_eq!(told(199), [false; 4]);
    assert_eq!(told(600), [true, false, false, false], "a p99 of 600 messages is that of six");
    assert_eq!(told(9_999), [true, true, false, false]);
    assert_eq!(told(10_000), [true, true, true, false]);
    assert_eq!(told(100_000), [true; 4]);
}

#[test]
fn what_never_ended_counts() {
    let mut latency = of([1; 10_000]);
    latency.record_unended(9_000_000_000, 200);
    let curve = latency.curve(200).unwrap();
    assert!(near(curve.p99_ms.unwrap(), 9000.0) && near(curve.p50_ms.unwrap(), 1.0), "{curve:?}");
    assert_eq!((curve.count, curve.unended), (10_200, 200));
}

#[test]
fn histograms_add_up() {
    let mut both = of([1; 99]);
    both.add(&of([2000]));
    assert_eq!(both.count(), 100);
    assert!(near(both.quantile_ms(0.99).unwrap(), 1.0));
    assert!(near(both.curve(0).unwrap().max_ms, 2000.0));
    both.clear();
    assert!(both.curve(0).is_none(), "nothing is left after clearing");
}

#[test]
fn bytes_bring_it_to_another_machine() {
    let sent = of([1, 5, 2000]);
    let arrived = Latency::from_bytes(&sent.to_bytes()).expect("it is one");
    assert_eq!(arrived.to_bytes(), sent.to_bytes());
    assert!(Latency::from_bytes(b"something else").is_err());
}
