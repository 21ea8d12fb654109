//! About how long a plan takes: from the parameters of its workloads alone, without a clock.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Outline, Session};
use crate::ceiling;
use crate::experiment::Experiment;
use crate::target::Target;
use crate::workload::Workload;

/// Planting faults and finding them.
pub const SELF_CHECK: Duration = Duration::from_secs(45);
/// Priming goes on until its rate is level, then waits for what it has sent: this much more than the least, on average.
const PRIMING: f64 = 1.2;
/// Settling the disk, creating topics, connecting, waiting for the last messages.
const RUN: Duration = Duration::from_secs(6);
/// A look at the generator's ceiling; each that is needed is taken once a pair.
const CEILING: Duration = Duration::from_millis(2600);
/// Trials of a search, on average: one or two until a stable and an unstable rate are known, then halvings.
const TRIALS: u32 = 6;
/// Emptying what the rate before has left, and the begin of a rate that does not count.
const TRIAL: Duration = Duration::from_secs(4);
/// Writing and reading a backlog, MB/s.
const BACKLOG_RATE: f64 = 150.0;

/// Priming for at least so long, with what comes after it.
pub fn priming(least: Duration) -> Duration {
    least.mul_f64(PRIMING)
}

/// Starting a target, priming it once, its runs, and stopping it.
pub fn of_session(session: &Session, experiments: &[Experiment], targets: &[Target]) -> Duration {
    let runs: Duration = session.runs.iter().map(|asked| of_run(asked.workload(experiments))).sum();
    of_start(session, experiments, targets) + runs
}

/// Starting a target, priming it once, and stopping it.
pub fn of_start(session: &Session, experiments: &[Experiment], targets: &[Target]) -> Duration {
    targets[session.target].start_time() + priming(session.priming_time(experiments))
}

/// A run, without priming.
pub fn of_run(workload: &Workload) -> Duration {
    let windows = Duration::from_secs_f64(workload.warmup_window_seconds * 3.0 + 1.0);
    let warm = workload.warmup_time().min(windows);
    let measured = if workload.consumer_backlog_size_gb > 0.0 {
        // With a look before and after.
        let backlog = Duration::from_secs_f64(workload.consumer_backlog_size_gb * 2000.0 / BACKLOG_RATE);
        backlog + workload.test_time() * 2
    } else if workload.searches() && workload.rate_of_slowest_peak.is_none() {
        (workload.trial_time() + TRIAL) * TRIALS + workload.watch_time() + TRIAL
    } else {
        workload.test_time()
    };
    RUN + warm + measured
}

/// Looks at the generator's ceiling for these sessions.
pub fn of_ceilings(sessions: &[Session], outline: &Outline<'_>) -> Duration {
    let mut keys = BTreeSet::new();
    for session in sessions {
        let driver = &outline.targets[session.target].driver;
        let workloads = session.runs.iter().map(|asked| asked.workload(outline.experiments));
        keys.extend(workloads.map(|workload| (session.pair, ceiling::key(driver, workload))));
    }
    CEILING * keys.len() as u32
}
