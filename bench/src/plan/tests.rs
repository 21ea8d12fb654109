//! Plans of shipped experiments, without a clock.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;

fn stock(_: &Experiment, _: &Target) -> Vec<String> {
    vec!["stock".to_owned()]
}

fn targets(names: &[&str]) -> Vec<Target> {
    names.iter().map(|name| Target::find(name).unwrap()).collect()
}

fn quick(names: &[&str]) -> Vec<Experiment> {
    names.iter().map(|name| Experiment::find(name, "quick").unwrap()).collect()
}

/// All shipped targets, and Mainstem's again.
fn all_targets() -> Vec<Target> {
    let mut all: Vec<Target> = Target::names().map(|name| Target::find(name).unwrap()).collect();
    let again: Vec<Target> =
        all.iter().filter(|target| crate::findings::is_ours(&target.name)).map(Target::again).collect();
    all.extend(again);
    all
}

fn suite() -> Vec<Experiment> {
    quick(&Experiment::names().collect::<Vec<_>>())
}

fn plan(experiments: &[Experiment], targets: &[Target], pairs: Option<u32>, seed: u32) -> Vec<Session> {
    Outline { experiments, targets, pairs, again_pairs: u32::MAX, seed }.sessions(stock)
}

/// The suite within so many minutes.
fn fitted(minutes: u64) -> budget::Fitted {
    let (experiments, targets) = (suite(), all_targets());
    let outline = Outline { experiments: &experiments, targets: &targets, pairs: None, again_pairs: 3, seed: 7 };
    budget::fit(outline, Duration::from_secs(minutes * 60), budget::priming(&experiments))
}

#[test]
fn the_default_plan_takes_no_longer_than_ninety_minutes() {
    for seed in 1..6 {
        let (experiments, targets) = (suite(), all_targets());
        let outline = Outline { experiments: &experiments, targets: &targets, pairs: None, again_pairs: 3, seed };
        let fitted = budget::fit(outline, Duration::from_secs(90 * 60), budget::priming(&experiments));
        assert!(fitted.time <= Duration::from_secs(90 * 60), "{:?}", fitted.time);
        assert!(fitted.time > Duration::from_secs(75 * 60), "time is left: {:?}", fitted.time);
        let pairs = |id: &str| fitted.experiments.iter().find(|one| one.record.id == id).unwrap().pairs;
        assert!(
            pairs("peak-throughput") >= 3 && pairs("latency") >= 3,
            "the headlines can tell a difference: {:?}",
            fitted.cuts
        );
        // Every variation of every experiment is still asked of every target.
        for (asked, made) in experiments.iter().zip(&fitted.experiments) {
            assert_eq!(asked.variations.len(), made.variations.len());
            assert!(made.pairs >= 1 && made.pairs != 2, "{}", made.record.id);
        }
    }
}

#[test]
fn a_plan_never_goes_below_its_minima() {
    let (fitted, asked) = (fitted(1), suite());
    for (experiment, asked) in fitted.experiments.iter().zip(&asked) {
        assert_eq!(experiment.pairs, 1);
        for (variation, asked) in experiment.variations.iter().zip(&asked.variations) {
            let workload = &variation.workload;
            assert_eq!(workload.priming_seconds, 30.0, "priming is never cut");
            assert_eq!(workload.stability_seconds, 20.0, "nor the run that confirms a rate");
            assert!(workload.trial_time() >= Duration::from_secs(10));
            if !workload.searches() {
                let least = Duration::from_secs(5).min(asked.workload.test_time());
                assert!(workload.test_time() >= least, "{workload:?}");
            }
            let fixed = workload.producer_rate > 0.0 && !workload.saturate;
            assert!(
                !fixed || workload.producer_rate * workload.test_time().as_secs_f64() > 10_000.0,
                "{}",
                experiment.record.id
            );
        }
    }
    assert!(fitted.time > Duration::from_secs(60), "the sum says that it does not fit");
}

#[test]
fn more_time_is_used_for_more_pairs_and_what_was_cut_is_told() {
    let pairs = |fitted: &budget::Fitted| fitted.experiments.iter().map(|one| one.pairs).sum::<u32>();
    let (less, more, most) = (fitted(90), fitted(200), fitted(2000));
    assert!(pairs(&less) < pairs(&more) && pairs(&more) < pairs(&most));
    assert!(less.cuts.iter().any(|cut| cut.contains("of 6 pairs, too few to tell a difference")), "{:?}", less.cuts);
    assert!(most.cuts.is_empty(), "{:?}", most.cuts);
    assert!(more.time <= Duration::from_secs(200 * 60));
}

#[test]
fn the_sum_of_a_plan_is_that_of_its_parts() {
    let (experiments, targets) = (quick(&["peak-throughput"]), targets(&["mainstem"]));
    let outline = Outline { experiments: &experiments, targets: &targets, pairs: Some(2), again_pairs: 3, seed: 7 };
    let sessions = outline.sessions(stock);
    let runs: Duration = sessions.iter().map(|session| time::of_session(session, &experiments, &targets)).sum();
    let ceilings = time::of_ceilings(&sessions, &outline);
    assert_eq!(
        outline.time_of_all(Duration::from_secs(30)),
        time::SELF_CHECK + ceilings + runs,
        "nothing to choose and no slowest peak"
    );
    // Start 6, priming 30 and a fifth; six trials of 20 and 4, a confirmation, 7 of warm-up, 6 around it.
    assert_eq!(runs, Duration::from_secs(2 * (6 + 36 + 6 * 24 + 24 + 7 + 6)));
}

#[test]
fn targets_alternate_and_each_pair_has_all() {
    let targets = targets(&["mainstem", "kafka"]);
    let sessions = plan(&quick(&["peak-throughput"]), &targets, Some(4), 7);
    assert_eq!(sessions.len(), 8);
    for pair in sessions.chunks(2) {
        assert_eq!(pair[0].pair, pair[1].pair);
        assert_ne!(targets[pair[0].target].name, targets[pair[1].target].name);
    }
    let first: BTreeSet<usize> = sessions.chunks(2).map(|pair| pair[0].target).collect();
    assert_eq!(first.len(), 2, "who begins is drawn by lot");
}

#[test]
fn who_is_far_behind_takes_part_once_unless_pairs_are_asked_for() {
    let (experiments, targets) = (quick(&["peak-throughput"]), all_targets());
    let starts = |pairs: Option<u32>, name: &str| {
        let made = plan(&experiments, &targets, pairs, 7);
        made.iter().filter(|session| targets[session.target].name == name).count()
    };
    assert_eq!([starts(None, "mainstem"), starts(None, "kafka"), starts(None, "pulsar")], [3, 3, 1]);
    assert_eq!(starts(Some(3), "pulsar"), 3);
}

#[test]
fn the_order_of_variations_is_drawn_by_the_seed() {
    let (experiments, targets) = (quick(&["fsync-batch"]), targets(&["mainstem", "kafka"]));
    let orders = |seed| -> Vec<(usize, Vec<usize>)> {
        let made = plan(&experiments, &targets, Some(6), seed);
        made.into_iter()
            .map(|session| (session.target, session.runs.iter().map(|asked| asked.variation).collect()))
            .collect()
    };
    assert_eq!(orders(7), orders(7), "a plan is repeated");
    assert_ne!(orders(7), orders(8));
    let different: BTreeSet<Vec<usize>> = orders(7).into_iter().map(|(_, order)| order).collect();
    assert!(different.len() > 6, "not the order of the file each time: {different:?}");
}

#[test]
fn the_same_binary_again_takes_part_with_one_variation_in_each_pair_where_a_difference_can_be_told() {
    let mainstem = Target::find("mainstem").unwrap();
    let targets = [mainstem.again(), mainstem, Target::find("kafka").unwrap()];
    let made = plan(&quick(&["fsync-batch"]), &targets, Some(6), 7);
    let again: Vec<&Session> = made.iter().filter(|session| session.target == 0).collect();
    assert!(again.len() == 6 && again.iter().all(|session| session.runs.len() == 1), "{again:?}");
    let chosen: BTreeSet<usize> = again.iter().map(|session| session.runs[0].variation).collect();
    assert!(chosen.len() > 1, "each time another: {chosen:?}");
    assert_eq!(made.iter().filter(|session| session.target == 1).count(), 12, "two durabilities");
    let one = plan(&quick(&["fsync-batch"]), &targets, Some(1), 7);
    assert!(one.iter().all(|session| session.target != 0), "of one pair nothing is told, with or without a floor");
    let both = plan(&quick(&["peak-throughput", "latency"]), &targets, Some(3), 7);
    let figures: Vec<usize> =
        both.iter().filter(|session| session.target == 0).map(|session| session.runs.len()).collect();
    assert_eq!(figures, [2, 2, 2], "one by each figure, in one start");
}

#[test]
fn a_start_is_shared_by_all_that_needs_no_other_one() {
    let (experiments, targets) = (suite(), all_targets());
    let sessions = plan(&experiments, &targets, Some(1), 7);
    let starts = |name: &str, id: &str| {
        let wanted = |asked: &Asked| experiments[asked.experiment].record.id == id;
        sessions
            .iter()
            .filter(|session| targets[session.target].name == name && session.runs.iter().any(wanted))
            .count()
    };
    assert_eq!(starts("kafka", "fsync-batch"), 1, "Kafka's durability is a setting of a topic");
    assert_eq!(starts("mainstem", "fsync-batch"), 2, "ours is one of the broker");
    assert_eq!(starts("mainstem", "cache-size"), 3, "each has arguments of its own");
    let log = sessions
        .iter()
        .find(|session| targets[session.target].name == "kafka" && session.runs.len() > 20)
        .expect("a shared start");
    assert!(log.experiments().len() >= 6, "experiments of a group share it: {log:?}");
    let at = |asked: &Asked| asked.experiment;
    assert!(
        log.runs.windows(3).any(|three| at(&three[0]) == at(&three[2]) && at(&three[0]) != at(&three[1])),
        "in one order drawn by lot"
    );
}

#[test]
fn a_start_is_primed_once_by_the_load_that_waits_least() {
    let (experiments, targets) = (quick(&["confirm-modes"]), targets(&["rabbitmq"]));
    for seed in 1..10 {
        let sessions = plan(&experiments, &targets, Some(1), seed);
        assert_eq!((sessions.len(), sessions[0].runs.len()), (1, 3));
        assert_eq!(sessions[0].priming_time(&experiments), Duration::from_secs(30));
        let by = sessions[0].primed_by(&experiments).unwrap().workload(&experiments);
        assert_eq!(by.confirm, Confirm::Async);
    }
}

#[test]
fn peaks_that_are_needed_are_found_in_as_few_starts_as_possible() {
    let (experiments, targets) = (quick(&["queues"]), all_targets());
    let outline = Outline { experiments: &experiments, targets: &targets, pairs: Some(1), again_pairs: 3, seed: 7 };
    let sessions = outline.sessions(stock);
    let mut known = std::collections::BTreeMap::new();
    let starts = outline.peak_starts(&sessions, &known, |_| "stock".to_owned());
    let mut looks: Vec<(&str, usize)> =
        starts.iter().map(|start| (targets[start.target].name.as_str(), start.looks.len())).collect();
    looks.sort_unstable();
    assert_eq!(
        looks,
        [("mainstem-amqp", 1), ("mainstem-amqp", 1), ("rabbitmq", 2)],
        "the same binary again has no look"
    );
    known.extend([("queues memory".to_owned(), 1.0), ("queues fsync".to_owned(), 1.0)]);
    assert!(outline.peak_starts(&sessions, &known, |_| "stock".to_owned()).is_empty());
}
