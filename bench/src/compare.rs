//! A comparison: which targets are asked what, and everything that is made of it.

mod making;
mod probe;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::experiment::Experiment;
use crate::findings::PAIRS_MIN;
use crate::plan::peaks::{self, PeakStart};
use crate::plan::{Asked, Outline, Session, budget, time};
use crate::result::Run;
use crate::store::{State, Store};
use crate::target::{Places, Target};
use crate::workload::Workload;
use making::Making;

/// What is compared, and how.
pub struct Comparison {
    pub experiments: Vec<Experiment>,
    pub targets: Vec<Target>,
    /// Instead of each experiment's own.
    pub pairs: Option<u32>,
    /// In how many pairs the same binary takes part again, at most.
    pub again_pairs: u32,
    /// Workers elsewhere, `host:port`; none = this process.
    pub workers: Vec<String>,
    pub places: Places,
    pub store: Store,
    /// The command that repeats it.
    pub command: String,
    /// From which orders are drawn.
    pub seed: u32,
}

/// What is left to be done.
pub struct Planned {
    pub sessions: Vec<Session>,
    pub peaks: Vec<PeakStart>,
    /// How long it takes to find the better variants, the slowest peaks and the generator's ceilings.
    pub looks: Duration,
    /// Of everything, the looks included.
    pub time: Duration,
}

impl Comparison {
    fn outline(&self) -> Outline<'_> {
        Outline {
            experiments: &self.experiments,
            targets: &self.targets,
            pairs: self.pairs,
            again_pairs: self.again_pairs,
            seed: self.seed,
        }
    }

    /// Changes pairs and lengths of the experiments so that the whole plan takes no longer than this; what was cut is kept for the report.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn fit(&mut self, budget: Duration) -> Result<()> {
        self.again_pairs = PAIRS_MIN as u32;
        let fitted = budget::fit(self.outline(), budget, budget::priming(&self.experiments));
        let mut state = self.store.state();
        state.cuts = fitted.cuts;
        if fitted.time > budget {
            let minutes = |time: Duration| time.as_secs().div_ceil(60);
            state.cuts.push(format!("the least takes {} minutes, not {}", minutes(fitted.time), minutes(budget)));
        }
        self.experiments = fitted.experiments;
        self.store.keep_state(&state)
    }

    /// Says what will be done, about how long it takes, and with what.
    pub fn plan(&self) -> Planned {
        let state = self.store.state();
        let outline = self.outline();
        let variant_of = |target: &Target| match state.variants.get(&target.name) {
            Some(better) => better.clone(),
            None => target.variants().pop().unwrap_or("stock").to_owned(),
        };
        let sessions = outline.sessions(|experiment, target| {
            if experiment.variants {
                target.variants().into_iter().map(str::to_owned).collect()
            } else {
                vec![variant_of(target)]
            }
        });
        let sessions: Vec<Session> = sessions.into_iter().filter_map(|session| self.without_done(session)).collect();
        let peaks = outline.peak_starts(&sessions, &state.slowest_peaks, variant_of);
        let choices = self.targets.iter().filter(|target| self.has_open_choice(target, &state));
        let priming = budget::priming(&self.experiments);
        let looks = choices.map(|target| peaks::of_choice(target, priming)).sum::<Duration>()
            + peaks.iter().map(|start| start.time(&self.targets)).sum::<Duration>()
            + time::of_ceilings(&sessions, &outline);
        let runs: Duration = sessions.iter().map(|session| self.time_of(session)).sum();
        Planned { sessions, peaks, looks, time: looks + runs }
    }

    /// About how long this session takes.
    pub fn time_of(&self, session: &Session) -> Duration {
        time::of_session(session, &self.experiments, &self.targets)
    }

    fn has_open_choice(&self, target: &Target, state: &State) -> bool {
        peaks::has_choice(target, &self.experiments) && !state.variants.contains_key(&target.name)
    }

    /// The session without runs that are there; nothing when all are.
    fn without_done(&self, mut session: Session) -> Option<Session> {
        let target = &self.targets[session.target];
        let name = format!("{}-{}", target.name, session.setup.variant);
        let done = |asked: &Asked| {
            let experiment = &self.experiments[asked.experiment];
            let variation = &experiment.variations[asked.variation];
            let run = self.store.whole(&experiment.record.id, &variation.label, &name, session.pair);
            run.is_some_and(|run| self.is_of(&run, &variation.workload, target))
        };
        session.runs.retain(|asked| !done(asked));
        (!session.runs.is_empty()).then_some(session)
    }

    /// Whether a run that is there was made of this workload, with these settings, and of this build of our broker: else it
    /// says nothing about what is asked now, and is made again.
    fn is_of(&self, run: &Run, workload: &Workload, target: &Target) -> bool {
        let mut wanted = workload.clone();
        if wanted.rate_of_slowest_peak.is_some() {
            wanted.producer_rate = run.workload.producer_rate;
        }
        let same =
            run.workload == wanted && run.target.settings == target.settings(&run.target.variant, wanted.durability);
        same && target.built(&self.places).is_none_or(|built| built <= run.started)
    }

    /// Makes all runs that are not there yet, or those that there is time for until `end`, and at least a session. Returns how many sessions
    /// are left for the next time.
    ///
    /// # Errors
    /// Results cannot be written. That a target fails is no error: it is kept as missing.
    pub fn make(&self, interrupted: &AtomicBool, end: Option<Instant>) -> Result<usize> {
        let mut making = Making::new(self, interrupted);
        making.choose_variants()?;
        // The plan again: it takes the better variants.
        let Planned { sessions, peaks, .. } = self.plan();
        making.find_slowest_peaks(&peaks)?;
        let mut left = sessions.len();
        for session in &sessions {
            let first = left == sessions.len();
            let late = |end: Instant| Instant::now() + self.time_of(session) > end;
            if interrupted.load(Ordering::Relaxed) || !first && end.is_some_and(late) {
                break;
            }
            making.make_session(session)?;
            left -= 1;
        }
        making.note_left(&sessions[sessions.len() - left..]);
        making.keep_state()?;
        Ok(left)
    }
}

/// The seed of a folder: the one with which it was begun, so that what is resumed keeps its order; else this one, or one made of its path.
///
/// # Errors
/// It was begun with another, or cannot be written.
pub fn seed(store: &Store, given: Option<u32>) -> Result<u32> {
    let mut state = store.state();
    let hash = |path: &Path| {
        path.to_string_lossy()
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    };
    if let (Some(begun), Some(given)) = (state.seed, given) {
        anyhow::ensure!(begun == given, "{} was begun with --seed {begun}", store.folder().display());
    }
    let seed = state.seed.or(given).unwrap_or_else(|| hash(store.folder()));
    state.seed = Some(seed);
    store.keep_state(&state)?;
    Ok(seed)
}

#[cfg(test)]
mod tests;
