//! What a comparison will do, in which order, and about how long it takes.
//!
//! A session is one start of one target; the runs in it differ only in what needs no restart. Within a pair the order of
//! the targets is drawn by lot, and pairs follow each other, so that what changes on the machine meets all alike.

use std::time::Duration;

use crate::experiment::Experiment;
use crate::target::{Setup, Target, is_again};
use crate::workload::Workload;

/// Starting, settling and stopping a target, on average.
const SESSION_TIME: Duration = Duration::from_secs(14);
/// Creating topics, connecting, waiting for the last messages, and the share of a look at the generator's ceiling.
const RUN_TIME: Duration = Duration::from_secs(7);

/// One start of a target.
#[derive(Clone, Debug)]
pub struct Session {
    pub experiment: usize,
    pub target: usize,
    pub setup: Setup,
    pub pair: u32,
    pub order: u32,
    /// Variations of the experiment, by number.
    pub variations: Vec<usize>,
}

/// All sessions of these experiments with these targets, in order. `variants` are the ways in which a target is run;
/// `pairs` replaces each experiment's own number, and then all targets take part in all of them.
pub fn sessions(
    experiments: &[Experiment],
    targets: &[Target],
    variants: impl Fn(&Experiment, &Target) -> Vec<String>,
    pairs: Option<u32>,
    lot: &mut Lot,
) -> Vec<Session> {
    let mut all = Vec::new();
    for (number, experiment) in experiments.iter().enumerate() {
        for pair in 1..=pairs.unwrap_or(experiment.pairs) {
            let mut order = lot.shuffled(targets.len());
            // For all targets, also those that are left out, so that the lots of the others do not depend on them.
            let variations: Vec<Vec<usize>> = targets.iter().map(|_| lot.shuffled(experiment.variations.len())).collect();
            let takes_part = |name: &str| experiment.targets.iter().any(|target| target == name);
            let once = |name: &str| pairs.is_none() && pair > 1 && experiment.once.iter().any(|target| target == name);
            order.retain(|target| takes_part(targets[*target].known_as()) && !once(targets[*target].known_as()));
            for (place, target) in order.into_iter().enumerate() {
                for variant in variants(experiment, &targets[target]) {
                    let mut made = sessions_of(experiment, &targets[target], &variant, &variations[target]);
                    // For the floor one variation is enough, each time another.
                    if is_again(&targets[target].name) {
                        made.truncate(1);
                        made.iter_mut().for_each(|(_, variations)| variations.truncate(1));
                    }
                    all.extend(made.into_iter().map(|(setup, variations)| Session {
                        experiment: number,
                        target,
                        setup,
                        pair,
                        order: place as u32,
                        variations,
                    }));
                }
            }
        }
    }
    all
}

/// The variations that this target takes part in, by what it must be started with, in this order.
fn sessions_of(experiment: &Experiment, target: &Target, variant: &str, order: &[usize]) -> Vec<(Setup, Vec<usize>)> {
    let mut found: Vec<(Setup, Vec<usize>)> = Vec::new();
    for number in order.iter().copied() {
        let variation = &experiment.variations[number];
        let workload = &variation.workload;
        if !variation.is_for(target.known_as()) || target.promise(workload.durability).is_none() {
            continue;
        }
        let setup = setup_of(workload, variant);
        match found.iter_mut().find(|(known, _)| *known == setup) {
            Some((_, variations)) => variations.push(number),
            None => found.push((setup, vec![number])),
        }
    }
    found
}

/// What a target must be started with for this workload.
pub fn setup_of(workload: &Workload, variant: &str) -> Setup {
    Setup {
        variant: variant.to_owned(),
        durability: workload.durability,
        memory_limit_mb: workload.memory_limit_mb,
        arguments: workload.broker_arguments.clone(),
    }
}

/// How long a run's priming takes at least, when earlier runs of the same start have primed the target for so long: what is left, but never
/// less than a third, because another workload takes other ways through a broker.
pub fn priming_time(workload: &Workload, before: Duration) -> Duration {
    let whole = Duration::from_secs_f64(workload.priming_seconds);
    whole.saturating_sub(before).max(whole / 3)
}

/// About how long a session takes.
pub fn session_time(session: &Session, experiment: &Experiment) -> Duration {
    let mut primed = Duration::ZERO;
    let mut all = SESSION_TIME;
    for number in &session.variations {
        let workload = &experiment.variations[*number].workload;
        let priming = priming_time(workload, primed);
        primed += priming;
        all += priming + run_time(workload);
    }
    all
}

/// About how long a run takes.
pub fn run_time(workload: &Workload) -> Duration {
    let windows = Duration::from_secs_f64(workload.warmup_window_seconds * 3.0 + 1.0);
    let warm = workload.warmup_time().min(windows);
    let watch = Duration::from_secs_f64(workload.stability_seconds + 6.0);
    let measured = if workload.consumer_backlog_size_gb > 0.0 {
        // Written and read at 150 MB/s, with a look before and after.
        Duration::from_secs_f64(workload.consumer_backlog_size_gb * 1000.0 / 75.0) + workload.test_time() * 2
    } else if workload.searches() && workload.rate_of_slowest_peak.is_none() {
        // A few steps up or down, four to five halvings, and a confirmation.
        watch * 8
    } else {
        workload.test_time()
    };
    RUN_TIME + warm + measured
}

/// A lottery: a small generator, seeded by the caller so that a plan can be repeated.
pub struct Lot(u64);

impl Lot {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The numbers below `count` in an order drawn by lot.
    pub fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            numbers.swap(last, (self.0 % (last as u64 + 1)) as usize);
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(experiment: &str, pairs: Option<u32>) -> (Vec<Session>, Experiment, Vec<Target>) {
        let experiment = Experiment::find(experiment, "quick").unwrap();
        let targets: Vec<Target> = ["mainstem", "kafka"].map(|name| Target::find(name).unwrap()).into();
        let made = sessions(
            std::slice::from_ref(&experiment),
            &targets,
            |_, _| vec!["stock".to_owned()],
            pairs,
            &mut Lot::new(7),
        );
        (made, experiment, targets)
    }

    #[test]
    fn targets_alternate_and_each_pair_has_all() {
        let (sessions, _, targets) = plan("peak-throughput", Some(4));
        assert_eq!(sessions.len(), 8);
        for pair in sessions.chunks(2) {
            assert_eq!(pair[0].pair, pair[1].pair);
            assert_ne!(targets[pair[0].target].name, targets[pair[1].target].name);
        }
        let first: std::collections::BTreeSet<usize> = sessions.chunks(2).map(|pair| pair[0].target).collect();
        assert_eq!(first.len(), 2, "who begins is drawn by lot");
    }

    #[test]
    fn who_is_far_behind_takes_part_once_unless_pairs_are_asked_for() {
        let experiment = Experiment::find("peak-throughput", "quick").unwrap();
        let targets: Vec<Target> = Target::names().map(|name| Target::find(name).unwrap()).collect();
        let starts = |pairs: Option<u32>, name: &str| {
            let stock = |_: &Experiment, _: &Target| vec!["stock".to_owned()];
            let made = sessions(std::slice::from_ref(&experiment), &targets, stock, pairs, &mut Lot::new(7));
            made.iter().filter(|session| targets[session.target].name == name).count()
        };
        assert_eq!([starts(None, "mainstem"), starts(None, "kafka"), starts(None, "pulsar")], [3, 3, 1]);
        assert_eq!(starts(Some(3), "pulsar"), 3);
    }

    #[test]
    fn the_first_run_of_a_start_is_primed_longest_and_each_for_a_third() {
        let workload = Workload::default();
        let seconds = |before| priming_time(&workload, Duration::from_secs(before)).as_secs();
        assert_eq!([seconds(0), seconds(12), seconds(30), seconds(500)], [30, 18, 10, 10]);
        assert_eq!(priming_time(&Workload { priming_seconds: 0.0, ..workload }, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_order_of_variations_is_drawn_by_the_seed() {
        let experiment = Experiment::find("fsync-batch", "quick").unwrap();
        let targets: Vec<Target> = ["mainstem", "kafka"].map(|name| Target::find(name).unwrap()).into();
        let orders = |seed| -> Vec<(usize, Vec<usize>)> {
            let stock = |_: &Experiment, _: &Target| vec!["stock".to_owned()];
            let made = sessions(std::slice::from_ref(&experiment), &targets, stock, Some(6), &mut Lot::new(seed));
            made.into_iter().map(|session| (session.target, session.variations)).collect()
        };
        assert_eq!(orders(7), orders(7), "a plan is repeated");
        assert_ne!(orders(7), orders(8));
        let different: std::collections::BTreeSet<Vec<usize>> = orders(7).into_iter().map(|(_, order)| order).collect();
        assert!(different.len() > 6, "not the order of the file each time: {different:?}");
    }

    #[test]
    fn the_same_binary_again_takes_part_with_one_variation_in_each_pair() {
        let experiment = Experiment::find("fsync-batch", "quick").unwrap();
        let mainstem = Target::find("mainstem").unwrap();
        let targets = [mainstem.again(), mainstem, Target::find("kafka").unwrap()];
        let stock = |_: &Experiment, _: &Target| vec!["stock".to_owned()];
        let made = sessions(std::slice::from_ref(&experiment), &targets, stock, Some(6), &mut Lot::new(7));
        let again: Vec<&Session> = made.iter().filter(|session| session.target == 0).collect();
        assert!(again.len() == 6 && again.iter().all(|session| session.variations.len() == 1), "{again:?}");
        let chosen: std::collections::BTreeSet<usize> = again.iter().map(|session| session.variations[0]).collect();
        assert!(chosen.len() > 1, "each time another: {chosen:?}");
        assert_eq!(made.iter().filter(|session| session.target == 1).count(), 12, "two durabilities");
    }

    #[test]
    fn a_session_holds_what_needs_no_restart() {
        let (sessions, experiment, _) = plan("fsync-batch", None);
        assert_eq!(sessions.len(), 4, "two targets, two durabilities");
        assert!(sessions.iter().all(|session| session.variations.len() == 4));
        assert!(session_time(&sessions[0], &experiment) > SESSION_TIME + RUN_TIME * 4);
    }
}
