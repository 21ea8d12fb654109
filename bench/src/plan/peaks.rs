//! Looks before the first run: which of a target's variants is the better one, and which target has the lowest peak.

use std::collections::BTreeMap;
use std::time::Duration;

use super::time;
use super::{Outline, Session, setup_of};
use crate::experiment::Experiment;
use crate::target::{Setup, Target, is_again};
use crate::workload::{Durability, Workload};

/// How long each further look in the same start drives the target at least.
pub const FURTHER: Duration = Duration::from_secs(10);

/// A start of a target in which peaks are looked for, by the names under which they are remembered.
#[derive(Clone, Debug)]
pub struct PeakStart {
    pub target: usize,
    pub setup: Setup,
    pub looks: Vec<(String, Workload)>,
}

impl PeakStart {
    /// About how long it takes.
    pub fn time(&self, targets: &[Target]) -> Duration {
        let first = self.looks.iter().map(|(_, workload)| workload.priming_seconds).fold(0.0, f64::max);
        let further = self.looks.len().saturating_sub(1) as u32;
        targets[self.target].start_time()
            + time::priming(Duration::from_secs_f64(first))
            + time::priming(FURTHER) * further
    }
}

/// Under which a slowest peak is remembered.
pub fn key(experiment: &Experiment, durability: Durability) -> String {
    format!("{} {}", experiment.record.id, durability.name())
}

/// Does this target's better variant have to be found?
pub fn has_choice(target: &Target, experiments: &[Experiment]) -> bool {
    let takes_part = |experiment: &Experiment| target.is_among(&experiment.targets) && !experiment.variants;
    target.tuned.is_some() && !is_again(&target.name) && experiments.iter().any(takes_part)
}

impl Outline<'_> {
    /// The starts in which the peaks are found that these sessions need and that are not `known`.
    pub fn peak_starts(
        &self,
        sessions: &[Session],
        known: &BTreeMap<String, f64>,
        variant_of: impl Fn(&Target) -> String,
    ) -> Vec<PeakStart> {
        let mut needed: BTreeMap<String, (usize, &Workload)> = BTreeMap::new();
        for asked in sessions.iter().flat_map(|session| &session.runs) {
            let workload = asked.workload(self.experiments);
            let key = key(&self.experiments[asked.experiment], workload.durability);
            if workload.rate_of_slowest_peak.is_some() && !known.contains_key(&key) {
                needed.insert(key, (asked.experiment, workload));
            }
        }
        let mut starts: Vec<PeakStart> = Vec::new();
        for (key, (experiment, workload)) in needed {
            for (number, target) in self.targets.iter().enumerate() {
                let asked = target.is_among(&self.experiments[experiment].targets) && !is_again(&target.name);
                if !asked || target.promise(workload.durability).is_none() {
                    continue;
                }
                let setup = setup_of(target, workload, &variant_of(target));
                let look = (key.clone(), workload.at_full_speed());
                match starts.iter_mut().find(|start| start.target == number && start.setup == setup) {
                    Some(start) => start.looks.push(look),
                    None => starts.push(PeakStart { target: number, setup, looks: vec![look] }),
                }
            }
        }
        starts
    }

    /// About how long everything takes when nothing is there yet: the self-check, looks and runs.
    pub fn time_of_all(&self, priming: Duration) -> Duration {
        let sessions = self.sessions(|experiment, target| {
            let all = target.variants().into_iter().map(str::to_owned);
            if experiment.variants { all.collect() } else { all.take(1).collect() }
        });
        let none = BTreeMap::new();
        let peaks = self.peak_starts(&sessions, &none, |target| target.variants()[0].to_owned());
        let looks: Duration = peaks.iter().map(|start| start.time(self.targets)).sum();
        let choices: Duration = self
            .targets
            .iter()
            .filter(|target| has_choice(target, self.experiments))
            .map(|target| of_choice(target, priming))
            .sum();
        let runs: Duration =
            sessions.iter().map(|session| time::of_session(session, self.experiments, self.targets)).sum();
        time::SELF_CHECK + choices + looks + time::of_ceilings(&sessions, self) + runs
    }
}

/// About how long it takes to find the better variant.
pub fn of_choice(target: &Target, least: Duration) -> Duration {
    (target.start_time() + time::priming(least)) * target.variants().len() as u32
}
