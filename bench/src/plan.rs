//! What a comparison will do, in which order, and about how long it takes.
//!
//! A session is one start of one target. It is primed once; the runs in it differ only in what needs no restart, and experiments of one
//! group share it. Pairs follow each other: each begins when all targets have had the one before, so that what changes on the machine
//! meets all alike. Within a pair the order of the targets, and within a start that of the runs, is drawn by lot.

pub mod budget;
mod lot;
pub mod peaks;
pub mod time;

use std::time::Duration;

use crate::experiment::Experiment;
use crate::findings::PAIRS_MIN;
use crate::target::{Setup, Target, is_again};
use crate::workload::{Confirm, Workload};
use lot::Lot;

/// One variation of one experiment, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub experiment: usize,
    pub variation: usize,
}

impl Asked {
    /// Its workload.
    pub fn workload(self, experiments: &[Experiment]) -> &Workload {
        &experiments[self.experiment].variations[self.variation].workload
    }
}

/// One start of a target.
#[derive(Clone, Debug)]
pub struct Session {
    pub target: usize,
    pub setup: Setup,
    pub pair: u32,
    /// How many targets of the same group and pair come before.
    pub order: u32,
    pub runs: Vec<Asked>,
}

impl Session {
    /// How long the target is primed at least.
    pub fn priming_time(&self, experiments: &[Experiment]) -> Duration {
        let seconds = self.runs.iter().map(|asked| asked.workload(experiments).priming_seconds).fold(0.0, f64::max);
        Duration::from_secs_f64(seconds)
    }

    /// The run whose load primes the target: the first of those that wait least for confirms.
    pub fn primed_by(&self, experiments: &[Experiment]) -> Option<Asked> {
        let waits = |asked: &&Asked| match asked.workload(experiments).confirm {
            Confirm::Async => 0,
            Confirm::Batch => 1,
            Confirm::Each => 2,
        };
        self.runs.iter().min_by_key(waits).copied()
    }

    /// The experiments of its runs, each once.
    pub fn experiments(&self) -> Vec<usize> {
        let mut found: Vec<usize> = self.runs.iter().map(|asked| asked.experiment).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// What a plan is made of.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    pub experiments: &'a [Experiment],
    pub targets: &'a [Target],
    /// Instead of each experiment's own; then all targets take part in all of them.
    pub pairs: Option<u32>,
    /// In how many pairs the same binary takes part again, at most.
    pub again_pairs: u32,
    pub seed: u32,
}

impl Outline<'_> {
    /// All sessions, in order. `variants` are the ways in which a target is run.
    pub fn sessions(&self, variants: impl Fn(&Experiment, &Target) -> Vec<String>) -> Vec<Session> {
        let mut lot = Lot::new(u64::from(self.seed));
        let mut all = Vec::new();
        let pairs = self.experiments.iter().map(|experiment| self.pairs_of(experiment)).max().unwrap_or(0);
        for pair in 1..=pairs {
            for group in self.groups() {
                let order = lot.shuffled(self.targets.len());
                // For all targets, also those that are left out, so that the lots of the others do not depend on them.
                let lots: Vec<Vec<usize>> = self.targets.iter().map(|_| lot.shuffled(group.len())).collect();
                let mut place = 0;
                for target in order {
                    let drawn = lots[target].iter().map(|number| group[*number]);
                    let mut runs: Vec<Asked> = drawn.filter(|asked| self.takes_part(target, *asked, pair)).collect();
                    if is_again(&self.targets[target].name) {
                        self.keep_one_of_each_figure(&mut runs);
                    }
                    let starts = self.starts(target, &runs, &variants);
                    place += u32::from(!starts.is_empty());
                    let order = place.saturating_sub(1);
                    all.extend(starts.into_iter().map(|(setup, runs)| Session { target, setup, pair, order, runs }));
                }
            }
        }
        all
    }

    fn pairs_of(&self, experiment: &Experiment) -> u32 {
        self.pairs.unwrap_or(experiment.pairs)
    }

    /// All variations of all experiments, by group.
    fn groups(&self) -> Vec<Vec<Asked>> {
        let mut names: Vec<&str> = Vec::new();
        let mut groups: Vec<Vec<Asked>> = Vec::new();
        for (number, experiment) in self.experiments.iter().enumerate() {
            let place = names.iter().position(|name| *name == experiment.group).unwrap_or_else(|| {
                names.push(&experiment.group);
                groups.push(Vec::new());
                names.len() - 1
            });
            groups[place]
                .extend((0..experiment.variations.len()).map(|variation| Asked { experiment: number, variation }));
        }
        groups
    }

    fn takes_part(&self, target: usize, asked: Asked, pair: u32) -> bool {
        let (experiment, target) = (&self.experiments[asked.experiment], &self.targets[target]);
        let variation = &experiment.variations[asked.variation];
        let pairs = self.pairs_of(experiment);
        let once = self.pairs.is_none() && pair > 1 && target.is_among(&experiment.once);
        // With fewer pairs no difference is told, so the floor is not needed.
        let again = !is_again(&target.name) || pairs as usize >= PAIRS_MIN && pair <= self.again_pairs;
        pair <= pairs
            && target.is_among(&experiment.targets)
            && !once
            && again
            && variation.is_for(target)
            && target.promise(variation.workload.durability).is_some()
    }

    /// For the floor one run by each figure is enough, each time another.
    fn keep_one_of_each_figure(&self, runs: &mut Vec<Asked>) {
        let mut seen = Vec::new();
        runs.retain(|asked| {
            let figure = self.experiments[asked.experiment].record.figure;
            let first = !seen.contains(&figure);
            seen.push(figure);
            first
        });
    }

    /// These runs by what the target must be started with, in this order.
    fn starts(
        &self,
        target: usize,
        runs: &[Asked],
        variants: impl Fn(&Experiment, &Target) -> Vec<String>,
    ) -> Vec<(Setup, Vec<Asked>)> {
        let target = &self.targets[target];
        let mut found: Vec<(Setup, Vec<Asked>)> = Vec::new();
        for asked in runs {
            for variant in variants(&self.experiments[asked.experiment], target) {
                let setup = setup_of(target, asked.workload(self.experiments), &variant);
                match found.iter_mut().find(|(known, _)| *known == setup) {
                    Some((_, runs)) => runs.push(*asked),
                    None => found.push((setup, vec![*asked])),
                }
            }
        }
        found
    }
}

/// What a target must be started with for this workload.
pub fn setup_of(target: &Target, workload: &Workload, variant: &str) -> Setup {
    Setup {
        variant: variant.to_owned(),
        durability: target.started_for(workload.durability),
        memory_limit_mb: workload.memory_limit_mb,
        arguments: workload.broker_arguments.clone(),
    }
}

#[cfg(test)]
mod tests;
