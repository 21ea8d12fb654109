//! Looks before runs: the better of a target's variants, the slowest target's peak, the generator's own ceiling.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::making::Making;
use crate::ceiling;
use crate::experiment::Experiment;
use crate::plan::{self, Session};
use crate::progress::count;
use crate::target::{Running, Setup, Target};
use crate::workload::{Durability, Workload};

/// A short run at full speed, which chooses between variants and finds a peak for fixed rates.
fn probe_workload(base: &Workload) -> Workload {
    Workload { warmup_seconds: Some(4.0), warmup_window_seconds: 1.0, test_seconds: Some(5.0), ..base.at_full_speed() }
}

impl Making<'_> {
    /// Runs each target with a tuned variant briefly in both, and remembers the better one.
    ///
    /// # Errors
    /// The choice cannot be written down.
    pub fn choose_variants(&mut self) -> Result<()> {
        let wants = |target: &Target| {
            let takes_part =
                |experiment: &&Experiment| experiment.targets.contains(&target.name) && !experiment.variants;
            target.tuned.is_some() && self.comparison.experiments.iter().any(|experiment| takes_part(&experiment))
        };
        let base = Experiment::find("peak-throughput", "quick")?;
        let workload = probe_workload(&base.variations[0].workload);
        for target in self.comparison.targets.iter().filter(|target| wants(target)) {
            if self.state.variants.contains_key(&target.name) || self.interrupted.load(Ordering::Relaxed) {
                continue;
            }
            let mut rates = Vec::new();
            for variant in target.variants() {
                let setup = plan::setup_of(&workload, variant);
                self.progress
                    .begin(&format!("{} {variant}: a look, to choose its settings", target.name), Duration::ZERO);
                match self.probe(target, setup, &workload) {
                    Ok(rate) => rates.push((rate, variant)),
                    Err(error) => self.lost(&format!("{} ({variant})", target.name), &error),
                }
            }
            if let Some((_, better)) = rates.iter().copied().max_by(|one, other| one.0.total_cmp(&other.0)) {
                let said: Vec<String> = rates.iter().map(|(rate, name)| format!("{name} {}/s", count(*rate))).collect();
                self.progress.say(&format!("  {}: {}; {better} is compared", target.name, said.join(", ")));
                self.state.variants.insert(target.name.clone(), better.to_owned());
                self.comparison.store.keep_state(&self.state)?;
            }
        }
        Ok(())
    }

    /// For an experiment at a share of the slowest peak: finds that peak, once for each durability.
    ///
    /// # Errors
    /// No target answers, or the peak cannot be written down.
    pub fn find_slowest_peak(&mut self, session: &Session) -> Result<()> {
        let experiment = &self.comparison.experiments[session.experiment];
        let asks = |number: &usize| experiment.variations[*number].workload.rate_of_slowest_peak.is_some();
        let Some(variation) = session.variations.iter().find(|number| asks(number)) else { return Ok(()) };
        let workload = probe_workload(&experiment.variations[*variation].workload);
        let key = peak_key(experiment, workload.durability);
        if self.state.slowest_peaks.contains_key(&key) {
            return Ok(());
        }
        let mut slowest = f64::MAX;
        for target in self.comparison.targets.iter().filter(|target| experiment.targets.contains(&target.name)) {
            if target.promise(workload.durability).is_none() {
                continue;
            }
            let better = self.state.variants.get(&target.name);
            let setup = plan::setup_of(&workload, better.map_or(target.variants()[0], String::as_str));
            self.progress.begin(&format!("{}: a look at its peak", target.name), Duration::ZERO);
            if let Ok(rate) = self.probe(target, setup, &workload) {
                slowest = slowest.min(rate);
            }
        }
        ensure!(slowest < f64::MAX, "no target of {} answers", experiment.record.id);
        self.state.slowest_peaks.insert(key, slowest);
        self.comparison.store.keep_state(&self.state)
    }

    /// Messages a second at full speed, consumers included.
    fn probe(&self, target: &Target, setup: Setup, workload: &Workload) -> Result<f64> {
        let running = Running::start(target, &self.comparison.places, setup)?;
        let job = self.job(target, workload, "probe");
        let used = running.used_bytes();
        self.prime(&job, &running, plan::priming_time(workload, Duration::ZERO))?;
        running.settle(used);
        let brought = self.execute(&job, &running, None)?;
        match brought.stopped {
            Some(reason) => anyhow::bail!("{reason}"),
            None if job.workload.subscriptions_per_topic > 0 => {
                let subscriptions = f64::from(job.workload.subscriptions_per_topic);
                Ok(brought.measured.publish_rate.min(brought.measured.receive_rate / subscriptions))
            }
            None => Ok(brought.measured.publish_rate),
        }
    }

    /// The generator's ceiling for each run of a session, measured once in each pair: the machine changes.
    pub fn find_ceilings(&mut self, session: &Session) -> Vec<Option<f64>> {
        let experiment = &self.comparison.experiments[session.experiment];
        let target = &self.comparison.targets[session.target];
        let workloads = session.variations.iter().map(|number| &experiment.variations[*number].workload);
        workloads
            .map(|workload| {
                let key = format!("pair {}, {}", session.pair, ceiling::key(&target.driver, workload));
                if !self.state.ceilings.contains_key(&key) && !self.interrupted.load(Ordering::Relaxed) {
                    let found = ceiling::measure(&self.job(target, workload, "ceiling")).unwrap_or(0.0);
                    self.progress.say(&format!("  the generator alone: {}/s ({key})", count(found)));
                    self.state.ceilings.insert(key.clone(), found);
                }
                self.state.ceilings.get(&key).copied().filter(|rate| *rate > 0.0)
            })
            .collect()
    }
}

/// Under which a slowest peak is remembered.
pub fn peak_key(experiment: &Experiment, durability: Durability) -> String {
    format!("{} {}", experiment.record.id, durability.name())
}
