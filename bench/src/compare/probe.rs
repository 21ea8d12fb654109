//! Looks before runs: the better of a target's variants, the slowest target's peak, the generator's own ceiling.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};

use super::making::Making;
use crate::ceiling;
use crate::experiment::Experiment;
use crate::plan::peaks::{self, PeakStart};
use crate::plan::{self, Session, budget, time};
use crate::progress::count;
use crate::target::{Running, Setup, Target};
use crate::workload::Workload;

impl Making<'_> {
    /// Runs each target with a tuned variant briefly in both, and remembers the better one.
    ///
    /// # Errors
    /// The choice cannot be written down.
    pub fn choose_variants(&mut self) -> Result<()> {
        let base = Experiment::find("peak-throughput", "quick")?;
        let workload = &base.variations[0].workload;
        let least = budget::priming(&self.comparison.experiments);
        for target in &self.comparison.targets {
            if !self.comparison.has_open_choice(target, &self.state) || self.interrupted.load(Ordering::Relaxed) {
                continue;
            }
            let mut rates = Vec::new();
            for variant in target.variants() {
                let setup = plan::setup_of(target, workload, variant);
                let title = format!("{} {variant}: a look, to choose its settings", target.name);
                self.progress.begin(&title, target.start_time() + time::priming(least));
                match self.start(target, setup).and_then(|running| self.probe(target, &running, workload, least)) {
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

    /// For experiments at a share of the slowest peak: finds it, once for each experiment and durability.
    ///
    /// # Errors
    /// A peak cannot be written down.
    pub fn find_slowest_peaks(&mut self, starts: &[PeakStart]) -> Result<()> {
        let mut slowest: BTreeMap<&str, f64> = BTreeMap::new();
        for PeakStart { target, setup, looks } in starts {
            if self.interrupted.load(Ordering::Relaxed) {
                return Ok(());
            }
            let target = &self.comparison.targets[*target];
            self.progress.begin(&format!("{}: a look at its peak", target.name), Duration::ZERO);
            let Ok(running) = self.start(target, setup.clone()) else { continue };
            for (place, (key, workload)) in looks.iter().enumerate() {
                let least = if place == 0 { Duration::from_secs_f64(workload.priming_seconds) } else { peaks::FURTHER };
                let used = running.used_bytes();
                if let Ok(rate) = self.probe(target, &running, workload, least) {
                    let known = slowest.entry(key).or_insert(rate);
                    *known = known.min(rate);
                }
                running.settle(used);
            }
        }
        self.state.slowest_peaks.extend(slowest.into_iter().map(|(key, rate)| (key.to_owned(), rate)));
        self.comparison.store.keep_state(&self.state)
    }

    fn start(&self, target: &Target, setup: Setup) -> Result<Running> {
        Running::start(target, &self.comparison.places, setup)
    }

    /// Messages a second at full speed with consumers reading along, once priming has ended.
    fn probe(&self, target: &Target, running: &Running, workload: &Workload, least: Duration) -> Result<f64> {
        let job = self.job(target, workload, "probe");
        let primed = self.prime(&job, running, least)?;
        Ok(primed.context("primingSeconds is 0: there is no peak")?.last_rate)
    }

    /// The generator's ceiling for each run of a session, measured once in each pair: the machine changes. None where a client logs in or encrypts,
    /// which null brokers know nothing of.
    pub fn find_ceilings(&mut self, session: &Session) -> Vec<Option<f64>> {
        let target = &self.comparison.targets[session.target];
        if !target.options.is_empty() {
            return vec![None; session.runs.len()];
        }
        let workloads = session.runs.iter().map(|asked| asked.workload(&self.comparison.experiments));
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
