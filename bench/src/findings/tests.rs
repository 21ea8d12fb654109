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
    let flawed: [(&str, fn(&mut Run)); 6] = [
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
