//! Steadiness and slopes.

use super::*;

#[test]
fn three_windows_must_agree() {
    assert!(!steady(&[100.0, 100.0]));
    assert!(!steady(&[100.0, 104.0, 94.0]));
    assert!(steady(&[10.0, 100.0, 104.0, 100.0]));
    assert!(!steady(&[0.0, 0.0, 0.0]), "nothing is not steady");
    assert!(warm(&[9.0, 1.0, 1.2, 1.1]) && !warm(&[3.0, 2.0, 1.0]));
}

#[test]
fn priming_goes_on_as_long_as_throughput_improves() {
    let compiling = [10.0, 40.0, 80.0, 120.0, 150.0, 160.0];
    assert!(
        (1..=compiling.len()).all(|so_far| !is_level(&compiling[..so_far])),
        "each stretch was faster than those before"
    );
    assert!(!is_level(&[100.0, 100.0, 100.0]), "three stretches have nothing before them");
    assert!(is_level(&[10.0, 160.0, 150.0, 166.0, 158.0]), "less than 5 % faster is no improvement");
    assert!(is_level(&[100.0, 60.0, 60.0, 60.0]), "slower is no improvement");
    assert!(!is_level(&[100.0, 100.0, 100.0, 100.0, 120.0]));
    assert!(!is_level(&[0.0; 9]), "nothing came through");
}

#[test]
fn a_growing_backlog_is_seen_through_its_noise() {
    let noisy: Vec<(f64, f64)> =
        (0..20).map(|at| (f64::from(at), f64::from(at) * 30.0 + f64::from(at % 2) * 50.0)).collect();
    assert!((slope(&noisy) - 30.0).abs() < 2.0, "{}", slope(&noisy));
    assert_eq!(slope(&[]), 0.0);
    assert_eq!(slope(&[(1.0, 5.0)]), 0.0);
}

#[test]
fn reasons_are_said() {
    let good = Seen {
        due: 1000.0,
        acknowledged: 981.0,
        in_flight_slope: 9.0,
        backlog_slope: 9.0,
        idle_percent: 6.0,
        publish_p99_ms: Some(190.0),
    };
    assert!(unstable(&good).is_empty());
    assert_eq!(unstable(&Seen { acknowledged: 900.0, ..good }), ["90.0 % of the rate is acknowledged"]);
    assert_eq!(unstable(&Seen { in_flight_slope: 20.0, ..good }), ["messages in flight grow by 2.0 % of the rate"]);
    assert_eq!(unstable(&Seen { backlog_slope: 20.0, ..good }), ["the backlog grows by 2.0 % of the rate"]);
    assert_eq!(unstable(&Seen { idle_percent: 2.0, ..good }), ["2.0 % of the processor time is idle"]);
    assert_eq!(unstable(&Seen { publish_p99_ms: Some(726.0), ..good }), ["publish p99 is 726 ms"]);
    assert!(
        unstable(&Seen { publish_p99_ms: None, in_flight_slope: -500.0, ..good }).is_empty(),
        "shrinking is no reason"
    );
    assert!(rule().contains("98 %") && rule().contains("200 ms"), "{}", rule());
}
