//! A comparison: which targets are asked what, and everything that is made of it.

mod making;
mod probe;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::experiment::Experiment;
use crate::plan::{self, Lot, Session};
use crate::result::Run;
use crate::store::Store;
use crate::target::{Places, Target};
use crate::workload::Workload;
use making::Making;

/// What is compared, and how.
pub struct Comparison {
    pub experiments: Vec<Experiment>,
    pub targets: Vec<Target>,
    /// Instead of each experiment's own.
    pub pairs: Option<u32>,
    /// Workers elsewhere, `host:port`; none = this process.
    pub workers: Vec<String>,
    pub places: Places,
    pub store: Store,
    /// The command that repeats it.
    pub command: String,
    /// From which orders are drawn.
    pub seed: u32,
}

impl Comparison {
    /// Says what will be done, about how long it takes, and with what.
    pub fn plan(&self) -> (Vec<Session>, Duration) {
        let mut lot = Lot::new(u64::from(self.seed));
        let state = self.store.state();
        let sessions = plan::sessions(
            &self.experiments,
            &self.targets,
            |experiment, target| match state.variants.get(&target.name) {
                _ if experiment.variants => target.variants().into_iter().map(str::to_owned).collect(),
                Some(better) => vec![better.clone()],
                None => vec![target.variants().pop().unwrap_or("stock").to_owned()],
            },
            self.pairs,
            &mut lot,
        );
        let open: Vec<Session> = sessions.into_iter().filter_map(|session| self.without_done(session)).collect();
        let time = open.iter().map(|session| plan::session_time(session, &self.experiments[session.experiment])).sum();
        (open, time)
    }

    /// The session without runs that are there; nothing when all are.
    fn without_done(&self, mut session: Session) -> Option<Session> {
        let experiment = &self.experiments[session.experiment];
        let target = &self.targets[session.target];
        let name = format!("{}-{}", target.name, session.setup.variant);
        let done = |number: &usize| {
            let variation = &experiment.variations[*number];
            let run = self.store.whole(&experiment.record.id, &variation.label, &name, session.pair);
            run.is_some_and(|run| self.is_of(&run, &variation.workload, target))
        };
        let open: Vec<usize> = session.variations.iter().copied().filter(|number| !done(number)).collect();
        session.variations = open;
        (!session.variations.is_empty()).then_some(session)
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

    /// Makes all runs that are not there yet, or those that `most` leaves time for, and at least a session. Returns how many sessions are
    /// left for the next time.
    ///
    /// # Errors
    /// Results cannot be written. That a target fails is no error: it is kept as missing.
    pub fn make(&self, interrupted: &AtomicBool, most: Option<Duration>) -> Result<usize> {
        let began = Instant::now();
        let mut making = Making::new(self, interrupted);
        making.choose_variants()?;
        // The plan again: it takes the better variants.
        let sessions = self.plan().0;
        let mut left = sessions.len();
        for session in &sessions {
            let first = left == sessions.len();
            let end = began.elapsed() + plan::session_time(session, &self.experiments[session.experiment]);
            if interrupted.load(Ordering::Relaxed) || !first && most.is_some_and(|most| end > most) {
                break;
            }
            making.find_slowest_peak(session)?;
            making.make_session(session)?;
            left -= 1;
        }
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
    let hash = |path: &Path| path.to_string_lossy().bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
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
