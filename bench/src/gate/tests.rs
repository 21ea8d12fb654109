//! What counts as worse, and what is named as its cause.

use super::*;

fn baseline(per_record: f64, push: f64, cpu: f64, kafka: Option<(f64, f64)>) -> Baseline {
    let functions = BTreeMap::from([("queue::push".to_owned(), push), ("memcpy".to_owned(), 50.0)]);
    Baseline {
        cpu: "any".to_owned(),
        instructions: BTreeMap::from([("bulk".to_owned(), Instructions { per_record, functions })]),
        cpu_s_per_gb: cpu,
        times_kafka: kafka,
    }
}

#[test]
fn what_is_within_its_bounds_passes() {
    let before = baseline(100.0, 10.0, 0.30, Some((3.0, 4.0)));
    assert!(regressions(&before, &baseline(104.0, 14.0, 0.32, Some((2.5, 3.1)))).is_empty());
    assert!(regressions(&before, &baseline(90.0, 1.0, 0.20, None)).is_empty());
}

#[test]
fn a_regression_is_named_with_the_function_that_grew() {
    let before = baseline(100.0, 10.0, 0.30, Some((3.0, 4.0)));
    let found = regressions(&before, &baseline(110.0, 20.0, 0.40, Some((2.0, 2.9))));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("bulk: 110 instructions per record instead of 100 (+10.0 %)"), "{}", found[0]);
    assert!(found[0].ends_with("most of it in queue::push (+10.0)"), "{}", found[0]);
    assert!(found[1].contains("see the functions above"), "{}", found[1]);
    assert!(found[2].contains("2.90 times Kafka's throughput at best"), "{}", found[2]);
    let slow = regressions(&before, &baseline(100.0, 10.0, 0.40, None));
    assert!(slow[0].contains("system calls, waiting or the machine"), "{slow:?}");
}

#[test]
fn annotations_are_added_up_by_function() {
    let text = "--------\n1,002,300  PROGRAM TOTALS\n\n1,000,000  src/queue.rs:queue::push [/t/mainstem]\n  \
                2,000  ???:memcpy [/lib/libc.so]\n    300  src/other.rs:queue::push [/t/mainstem]\n";
    let found = parse_annotation(text);
    assert_eq!(found.get("queue::push"), Some(&1_000_300));
    assert_eq!(found.get("memcpy"), Some(&2_000));
    assert_eq!(found.len(), 2);
}
