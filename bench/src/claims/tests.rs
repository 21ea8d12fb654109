//! Judgements of ratios that are given, and that the shipped sentences can be asked.

use super::*;
use crate::experiment::Experiment;
use crate::report::sample_run;
use crate::result::{Drain, Priming};
use crate::target::Target;

fn sentence(text: &str) -> Sentence {
    let whole = format!(
        "experiment: one\nsays: that\nsource: kafka\none: {{target: kafka}}\nother: {{target: pulsar}}\n{text}"
    );
    serde_yaml_ng::from_str(&whole).unwrap()
}

/// The judgement of three pairs around this ratio, with this floor.
fn judged(text: &str, ratio: f64, floor: f64) -> Judgement {
    conclude(&sentence(text), &[ratio * 0.99, ratio, ratio * 1.01], Some(floor)).0
}

#[test]
fn a_factor_is_confirmed_refuted_or_left_open() {
    let claimed = "times: [3, 5]";
    assert_eq!(judged(claimed, 4.0, 1.1), Judgement::Confirmed);
    assert_eq!(judged(claimed, 40.0, 1.1), Judgement::Confirmed, "more than is claimed");
    assert_eq!(judged(claimed, 1.5, 1.1), Judgement::Refuted, "the same direction, by less");
    assert_eq!(judged(claimed, 0.2, 1.1), Judgement::Refuted, "the other way round");
    assert_eq!(judged(claimed, 4.0, 6.0), Judgement::NotDecidable, "within the noise");
    let wide = conclude(&sentence(claimed), &[1.0, 2.0, 6.0], Some(1.1));
    assert_eq!(wide.0, Judgement::NotDecidable, "{wide:?}");
}

#[test]
fn equal_is_within_a_bound_that_noise_widens() {
    assert_eq!(judged("equal: 1.15", 1.05, 1.0), Judgement::Confirmed);
    assert_eq!(judged("equal: 1.15", 0.7, 1.0), Judgement::Refuted);
    assert_eq!(judged("equal: 1.15", 1.15, 1.0), Judgement::NotDecidable);
    assert_eq!(judged("equal: 1.15", 1.3, 1.5), Judgement::Confirmed, "the same binary differs by more");
}

#[test]
fn without_pairs_or_a_floor_nothing_is_decided() {
    let few = conclude(&sentence("times: [3, 5]"), &[4.0, 4.0], Some(1.0));
    assert_eq!(few, (Judgement::NotDecidable, "2 of 3 pairs that an interval needs".to_owned()));
    let noise = conclude(&sentence("times: [3, 5]"), &[4.0, 4.0, 4.0], None);
    assert_eq!(noise.0, Judgement::NotDecidable);
}

fn run(target: &str, variation: &str, pair: u32, rate: f64) -> Run {
    let mut run = sample_run();
    (run.experiment, run.variation, run.pair) = ("fsync-batch".to_owned(), variation.to_owned(), pair);
    (run.target.name, run.target.variant) = (target.to_owned(), "stock".to_owned());
    run.measured.publish_rate = rate;
    (run.measured.failed, run.stopped) = (0, None);
    run.priming = Some(Priming::default());
    (run.verdict.valid, run.verdict.stable, run.verdict.complete) = (true, true, Some(true));
    run
}

/// Six pairs of Kafka with and without fsync in batches of 1 KB, and of Mainstem twice.
fn session() -> Vec<Run> {
    let mut runs = Vec::new();
    for pair in 1..=6 {
        runs.push(run("kafka", "durability=memory, batchBytes=1100", pair, 4000.0));
        runs.push(run("kafka", "durability=fsync, batchBytes=1100", pair, 1000.0));
        for name in ["mainstem", "mainstem-again"] {
            runs.push(run(name, "durability=fsync, batchBytes=1100", pair, 1000.0 + f64::from(pair)));
        }
    }
    runs
}

fn claim(runs: &[Run], says: &str) -> Claim {
    let figures =
        BTreeMap::from([("fsync-batch".to_owned(), Figure::PublishRate), ("catch-up".to_owned(), Figure::DrainRate)]);
    let found =
        judge(runs, &figures).unwrap().into_iter().filter(|claim| claim.says.contains(says)).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{says}");
    found.into_iter().next().unwrap()
}

#[test]
fn settings_of_one_system_are_compared_with_each_other() {
    let told = claim(&session(), "3 to 5 times as fast with batches of 1 KB");
    assert_eq!((told.judgement, told.pairs, told.ratio), (Judgement::Confirmed, 6, Some(4.0)), "{told:?}");
    assert!(told.source.contains("confluent.io"), "{told:?}");
    let other = claim(&session(), "3 to 5 times as fast with batches of 10 KB");
    assert_eq!(
        (other.judgement, other.reason.as_str()),
        (Judgement::NotDecidable, "kafka was not asked with durability=memory, batchBytes=10000")
    );
    assert_eq!(claim(&session(), "Pulsar reads history").reason, "pulsar was not run");
    assert_eq!(claim(&session(), "TubeMQ is flat over partitions").judgement, Judgement::NotDecidable);
}

#[test]
fn workload_files_are_no_reason_to_judge() {
    let figures = BTreeMap::from([("workload".to_owned(), Figure::PublishRate)]);
    assert!(judge(&session(), &figures).unwrap().is_empty());
}

#[test]
fn a_run_with_a_flaw_decides_nothing() {
    let mut runs = session();
    runs.iter_mut().filter(|run| run.variation.contains("memory")).for_each(|run| run.verdict.stable = false);
    let told = claim(&runs, "3 to 5 times as fast with batches of 1 KB");
    assert_eq!(
        (told.judgement, told.reason.as_str()),
        (Judgement::NotDecidable, "no run of kafka is ranked: unstable")
    );
}

#[test]
fn a_rise_is_of_one_run() {
    let runs: Vec<Run> = (1..=3)
        .map(|pair| {
            let mut run = run("kafka", "", pair, 1000.0);
            run.experiment = "catch-up".to_owned();
            let drain =
                Drain { publish_p99_before_ms: Some(2.0), publish_p99_during_ms: Some(3.0), ..Drain::default() };
            run.measured.drain = Some(drain);
            run
        })
        .collect();
    let told = claim(&runs, "rises a hundredfold");
    assert_eq!((told.judgement, told.ratio), (Judgement::Refuted, Some(1.5)), "{told:?}");
}

#[test]
fn every_sentence_can_be_asked_at_full_scale() {
    let absent = ["layers", "live-tuning"];
    for sentence in read().unwrap().claims {
        if sentence.not_today.is_some() && absent.contains(&sentence.experiment.as_str()) {
            continue;
        }
        let experiment = Experiment::find(&sentence.experiment, "full").unwrap();
        for side in sentence.one.iter().chain(&sentence.other) {
            let target = Target::find(&side.target).unwrap();
            let asked = experiment.variations.iter().any(|one| side.means(&one.label) && one.is_for(&target));
            assert!(asked && target.is_among(&experiment.targets), "{}: {side:?}", sentence.says);
        }
    }
}
