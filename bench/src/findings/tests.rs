//! Findings from a handful of runs.

use super::*;
use crate::report::sample_run;

fn run(target: &str, variant: &str, pair: u32, rate: f64) -> Run {
    let mut run = sample_run();
    run.target.name = target.to_owned();
    run.target.variant = variant.to_owned();
    run.pair = pair;
    run.measured.publish_rate = rate;
    run.verdict.valid = true;
    run.verdict.stable = true;
    run.verdict.complete = Some(true);
    run.measured.failed = 0;
    run.priming = Some(crate::result::Priming::default());
    run.verdict.client_limited = false;
    run.stopped = None;
    run
}

fn found(runs: &[Run]) -> Vec<Finding> {
    find(runs, &BTreeMap::from([(runs[0].experiment.clone(), Figure::PublishRate)]))
}

#[test]
fn the_peers_better_variant_counts_and_pairs_are_compared_with_each_other() {
    let runs = [
        run("mainstem", "stock", 1, 100.0),
        run("mainstem", "stock", 2, 50.0),
        run("kafka", "stock", 1, 10.0),
        run("kafka", "stock", 2, 10.0),
        run("kafka", "tuned", 1, 50.0),
        run("kafka", "tuned", 2, 20.0),
    ];
    let findings = found(&runs);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].advantage_range, (2.0, 2.5), "100 to 50 and 50 to 20");
    assert_eq!(findings[0].advantage, 2.25);
    assert!(findings[0].indicative, "two pairs");
    assert_eq!(findings[0].peer, "kafka tuned");
    assert_eq!((findings[0].ours, findings[0].theirs), (75.0, 35.0));
}

#[test]
fn losses_come_first_and_unusable_runs_count_for_nothing() {
    let mut invalid = run("pulsar", "stock", 1, 900.0);
    invalid.verdict.valid = false;
    let mut broken = run("nats", "stock", 1, 900.0);
    broken.stopped = Some("measure: gone".to_owned());
    let runs = [
        run("mainstem", "stock", 1, 100.0),
        run("kafka", "stock", 1, 50.0),
        run("rabbitmq", "stock", 1, 200.0),
        invalid,
        broken,
    ];
    let peers: Vec<String> = found(&runs).into_iter().map(|finding| finding.peer).collect();
    assert_eq!(peers, ["rabbitmq", "kafka"]);
}

#[test]
fn less_latency_is_better() {
    let mut ours = run("mainstem", "stock", 1, 1.0);
    let mut theirs = run("kafka", "stock", 1, 1.0);
    ours.measured.publish_latency.as_mut().unwrap().p99_ms = Some(2.0);
    theirs.measured.publish_latency.as_mut().unwrap().p99_ms = Some(8.0);
    let figures = BTreeMap::from([(ours.experiment.clone(), Figure::PublishP99)]);
    assert_eq!(find(&[ours, theirs], &figures)[0].advantage, 4.0);
}

#[test]
fn medians() {
    assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[])), (2.0, 2.5, 0.0));
}

#[test]
fn runs_that_are_unstable_or_lost_messages_or_were_cold_are_not_ranked() {
    type Flaw = fn(&mut Run);
    let flawed: [(&str, Flaw); 8] = [
        ("out of order", |run| run.verdict.ordered = Some(false)),
        ("content changed", |run| run.verdict.intact = Some(false)),
        ("invalid", |run| run.verdict.valid = false),
        ("unstable", |run| run.verdict.stable = false),
        ("not complete", |run| run.verdict.complete = Some(false)),
        ("messages failed", |run| run.measured.failed = 1),
        ("not primed", |run| run.priming = None),
        ("stopped", |run| run.stopped = Some("measure: gone".to_owned())),
    ];
    for (name, spoil) in flawed {
        let mut theirs = run("kafka", "stock", 1, 50.0);
        spoil(&mut theirs);
        assert_eq!(flaws(&theirs), [name]);
        assert_eq!(figure_of(&theirs, Figure::PublishRate), None, "{name}");
        assert_eq!(shown_figure_of(&theirs, Figure::PublishRate), Some(50.0), "{name}");
        assert!(found(&[run("mainstem", "stock", 1, 100.0), theirs]).is_empty(), "{name}");
    }
}

/// Six pairs of Mainstem, itself again and Kafka, at these rates in each pair.
fn session(rates: impl Fn(u32) -> [f64; 3]) -> Finding {
    let mut runs = Vec::new();
    for pair in 1..=6 {
        let names = ["mainstem", "mainstem-again", "kafka"];
        runs.extend(names.into_iter().zip(rates(pair)).map(|(name, rate)| run(name, "stock", pair, rate)));
    }
    let mut findings = found(&runs);
    assert_eq!(findings.len(), 1, "the same binary again is no peer");
    findings.remove(0)
}

#[test]
fn a_difference_is_told_only_beyond_the_floor() {
    // The same binary differs by up to 25 %.
    let noisy = |pair: u32| 100.0 * [1.25, 1.0, 1.1, 0.9, 1.0, 0.95][pair as usize - 1];
    let little = session(|pair| [100.0, noisy(pair), 90.0]);
    assert!((1.24..1.26).contains(&little.floor.unwrap()), "{little:?}");
    assert_eq!(little.interval.map(|(low, _)| low > 1.0), Some(true), "all six pairs agree");
    assert_eq!(little.conclusion, Conclusion::NoDifference, "11 % are less than a binary differs from itself");
    assert_eq!(session(|pair| [100.0, noisy(pair), 70.0]).conclusion, Conclusion::Better);
    assert_eq!(session(|pair| [100.0, noisy(pair), 140.0]).conclusion, Conclusion::Worse);
    assert!(!little.indicative);
}

#[test]
fn pairs_that_disagree_tell_nothing() {
    let finding = session(|pair| [100.0, 101.0, if pair % 2 == 0 { 50.0 } else { 160.0 }]);
    let (low, high) = finding.interval.unwrap();
    assert!(low < 1.0 && high > 1.0, "{finding:?}");
    assert_eq!(finding.conclusion, Conclusion::NoDifference);
}

#[test]
fn without_a_floor_or_with_two_pairs_nothing_is_told() {
    let pairs = |count: u32| {
        let runs: Vec<Run> = (1..=count)
            .flat_map(|pair| [run("mainstem", "stock", pair, 100.0), run("kafka", "stock", pair, 10.0)])
            .collect();
        found(&runs).remove(0)
    };
    assert_eq!((pairs(6).floor, pairs(6).conclusion), (None, Conclusion::NoDifference));
    assert_eq!(pairs(2).interval, None);
}

#[test]
fn a_binary_beside_itself_has_no_findings_in_a_hundred_sessions() {
    let mut state = 7_u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        100.0 * (1.0 + (state % 2000) as f64 / 10_000.0)
    };
    let sessions: Vec<[[f64; 3]; 6]> =
        (0..100).map(|_| std::array::from_fn(|_| std::array::from_fn(|_| noise()))).collect();
    let told =
        sessions.iter().filter(|rates| session(|pair| rates[pair as usize - 1]).conclusion != Conclusion::NoDifference);
    assert_eq!(told.count(), 0);
}

#[test]
fn the_interval_is_the_same_each_time() {
    let ratios = [1.1, 1.3, 0.9, 1.2, 1.15, 1.05];
    assert_eq!(interval(&ratios), interval(&ratios));
    let (low, high) = interval(&ratios).unwrap();
    assert!((0.9..1.125).contains(&low) && high > 1.125 && high <= 1.3, "{low} {high}");
}
