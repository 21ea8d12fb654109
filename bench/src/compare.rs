//! A comparison: starts each target in turn, makes its runs, keeps them, and goes on whatever a single target does.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};

use crate::ceiling;
use crate::clock::Clock;
use crate::drivers::{self, Job};
use crate::experiment::{Experiment, Variation};
use crate::plan::{self, Lot, Session};
use crate::progress::{Progress, count};
use crate::result::{FORMAT, Machine, Measured, Run, TargetRecord};
use crate::run::{self, Brought, Setting};
use crate::store::{State, Store};
use crate::target::{Places, Running, Setup, Target};
use crate::worker::{Local, Remote, Worker};
use crate::workload::{Durability, Workload};
use crate::{payload, yardstick};

/// A short run at full speed, which chooses between variants and finds a peak for fixed rates.
fn probe_workload(base: &Workload) -> Workload {
    Workload {
        saturate: true,
        producer_rate: 0.0,
        consumer_backlog_size_gb: 0.0,
        warmup_seconds: Some(4.0),
        warmup_window_seconds: 1.0,
        test_seconds: Some(5.0),
        rate_of_slowest_peak: None,
        ..base.clone()
    }
}

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
}

impl Comparison {
    /// Says what will be done, about how long it takes, and with what.
    pub fn plan(&self) -> (Vec<Session>, Duration) {
        let mut lot = Lot::new(seed(&self.store));
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
        let target = format!("{}-{}", self.targets[session.target].name, session.setup.variant);
        let done = |number: &usize| {
            self.store.has(&experiment.record.id, &experiment.variations[*number].label, &target, session.pair)
        };
        let open: Vec<usize> = session.variations.iter().copied().filter(|number| !done(number)).collect();
        session.variations = open;
        (!session.variations.is_empty()).then_some(session)
    }

    /// Makes all runs that are not there yet.
    ///
    /// # Errors
    /// Results cannot be written. That a target fails is no error: it is kept as missing.
    pub fn make(&self, interrupted: &AtomicBool) -> Result<()> {
        let mut state = self.store.state();
        let (_, planned) = self.plan();
        let progress = Progress::over(planned);
        self.choose_variants(&mut state, &progress, interrupted)?;
        let (sessions, _) = self.plan();
        for session in sessions {
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            self.find_slowest_peak(&session, &mut state, &progress, interrupted)?;
            self.make_session(&session, &mut state, &progress, interrupted)?;
        }
        self.store.keep_state(&state)
    }

    /// Runs each target with a tuned variant briefly in both, and remembers the better one.
    fn choose_variants(&self, state: &mut State, progress: &Progress, interrupted: &AtomicBool) -> Result<()> {
        let wants = |target: &Target| {
            let takes_part =
                |experiment: &&Experiment| experiment.targets.contains(&target.name) && !experiment.variants;
            target.tuned.is_some() && self.experiments.iter().any(|experiment| takes_part(&experiment))
        };
        let base = Experiment::find("peak-throughput", "quick")?;
        let workload = probe_workload(&base.variations[0].workload);
        for target in self.targets.iter().filter(|target| wants(target)) {
            if state.variants.contains_key(&target.name) || interrupted.load(Ordering::Relaxed) {
                continue;
            }
            let mut rates = Vec::new();
            for variant in target.variants() {
                let setup = plan::setup_of(&workload, variant);
                progress.begin(&format!("{} {variant}: a look, to choose its settings", target.name), Duration::ZERO);
                match self.probe(target, setup, &workload, progress, interrupted) {
                    Ok(rate) => rates.push((rate, variant)),
                    Err(error) => self.lost(state, progress, &format!("{} ({variant})", target.name), &error),
                }
            }
            if let Some((_, better)) = rates.iter().copied().max_by(|one, other| one.0.total_cmp(&other.0)) {
                let said: Vec<String> = rates.iter().map(|(rate, name)| format!("{name} {}/s", count(*rate))).collect();
                progress.say(&format!("  {}: {}; {better} is compared", target.name, said.join(", ")));
                state.variants.insert(target.name.clone(), better.to_owned());
                self.store.keep_state(state)?;
            }
        }
        Ok(())
    }

    /// For an experiment at a share of the slowest peak: finds that peak, once for each durability.
    fn find_slowest_peak(
        &self,
        session: &Session,
        state: &mut State,
        progress: &Progress,
        interrupted: &AtomicBool,
    ) -> Result<()> {
        let experiment = &self.experiments[session.experiment];
        let asks = |number: &usize| experiment.variations[*number].workload.rate_of_slowest_peak.is_some();
        let Some(variation) = session.variations.iter().find(|number| asks(number)) else { return Ok(()) };
        let workload = probe_workload(&experiment.variations[*variation].workload);
        let key = peak_key(experiment, workload.durability);
        if state.slowest_peaks.contains_key(&key) {
            return Ok(());
        }
        let mut slowest = f64::MAX;
        for target in self.targets.iter().filter(|target| experiment.targets.contains(&target.name)) {
            if target.promise(workload.durability).is_none() {
                continue;
            }
            let setup = Setup { variant: session.setup.variant.clone(), ..plan::setup_of(&workload, "") };
            progress.begin(&format!("{}: a look at its peak", target.name), Duration::ZERO);
            if let Ok(rate) = self.probe(target, setup, &workload, progress, interrupted) {
                slowest = slowest.min(rate);
            }
        }
        ensure!(slowest < f64::MAX, "no target of {} answers", experiment.record.id);
        state.slowest_peaks.insert(key, slowest);
        self.store.keep_state(state)
    }

    /// Messages a second at full speed, consumers included.
    fn probe(
        &self,
        target: &Target,
        setup: Setup,
        workload: &Workload,
        progress: &Progress,
        interrupted: &AtomicBool,
    ) -> Result<f64> {
        let running = Running::start(target, &self.places, setup)?;
        let job = self.job(target, workload, "probe");
        let brought = self.execute(&job, &running, progress, interrupted, None)?;
        match brought.stopped {
            Some(reason) => anyhow::bail!("{reason}"),
            None if job.workload.subscriptions_per_topic > 0 => {
                let subscriptions = f64::from(job.workload.subscriptions_per_topic);
                Ok(brought.measured.publish_rate.min(brought.measured.receive_rate / subscriptions))
            }
            None => Ok(brought.measured.publish_rate),
        }
    }

    fn make_session(
        &self,
        session: &Session,
        state: &mut State,
        progress: &Progress,
        interrupted: &AtomicBool,
    ) -> Result<()> {
        let experiment = &self.experiments[session.experiment];
        let target = &self.targets[session.target];
        let name = format!("{} {}", target.name, session.setup.variant);
        let ceilings = self.find_ceilings(session, state, interrupted);
        progress.begin(
            &format!("{} · pair {} · {name}", experiment.record.id, session.pair),
            plan::session_time(session, experiment),
        );
        let machine = yardstick::measure(&self.places.scratch)?;
        if target.start.is_empty() || session.setup.arguments.is_empty() || target.foreground {
            match Running::start(target, &self.places, session.setup.clone()) {
                Ok(running) => {
                    for (number, ceiling) in session.variations.iter().zip(ceilings) {
                        if interrupted.load(Ordering::Relaxed) {
                            break;
                        }
                        let made = Made { session, experiment, target, running: &running, machine: &machine, ceiling };
                        self.make_run(&made, &experiment.variations[*number], state, progress, interrupted)?;
                    }
                }
                Err(error) => self.lost(state, progress, &name, &error),
            }
        } else {
            self.lost(state, progress, &name, &anyhow::anyhow!("brokerArguments: it is not started by us"));
        }
        self.store.keep_state(state)
    }

    fn make_run(
        &self,
        made: &Made<'_>,
        variation: &Variation,
        state: &mut State,
        progress: &Progress,
        interrupted: &AtomicBool,
    ) -> Result<()> {
        let Made { session, experiment, target, running, .. } = made;
        let mut workload = variation.workload.clone();
        if let Some(share) = workload.rate_of_slowest_peak {
            let peak = state.slowest_peaks.get(&peak_key(experiment, workload.durability));
            workload.producer_rate = (peak.context("the slowest peak is not known")? * share).round();
        }
        let label = if variation.label.is_empty() { "" } else { &variation.label };
        progress.say(&format!("  {} {label}", target.name));
        let job = self.job(target, &workload, &format!("{}-{}", experiment.record.id, session.pair));
        let brought = match self.execute(&job, running, progress, interrupted, made.ceiling) {
            Ok(brought) => brought,
            Err(error) => {
                let reason = format!("{} {} {label}", experiment.record.id, target.name);
                self.lost(state, progress, reason.trim(), &error);
                return Ok(());
            }
        };
        let mut run = self.record(made, variation, workload, &job, brought);
        run.verdict.remarks.extend(payload::remark(&run.workload));
        progress.say(&format!("    {}", summary(&run.measured, run.stopped.as_deref())));
        if run.stopped.is_some() {
            run.verdict.valid = false;
            let lines = running.last_lines();
            progress.say(&lines);
        }
        self.store.keep(&run)
    }

    fn record(&self, made: &Made<'_>, variation: &Variation, workload: Workload, job: &Job, brought: Brought) -> Run {
        let Made { session, experiment, target, running, machine, .. } = made;
        let durability = workload.durability;
        Run {
            format: FORMAT,
            experiment: experiment.record.id.clone(),
            title: experiment.record.title.clone(),
            variation: variation.label.clone(),
            scale: experiment.scale.clone(),
            pair: session.pair,
            order: session.order,
            target: TargetRecord {
                name: target.name.clone(),
                variant: session.setup.variant.clone(),
                version: running.version.clone(),
                durability: durability.name().to_owned(),
                durability_note: target.promise(durability).map_or(String::new(), |promise| promise.note.clone()),
                driver: drivers::open(job).map_or_else(|_| target.driver.clone(), |driver| driver.name()),
                settings: target.settings(&session.setup.variant, durability),
                memory_limit_mb: running.memory.as_ref().map(crate::cgroup::MemoryGroup::limit_mb),
                heap: target.variant(&session.setup.variant).heap.clone(),
            },
            command: self.command.clone(),
            started: seconds_since_1970(),
            machine: (*machine).clone(),
            workload,
            verdict: brought.verdict,
            phases: brought.phases,
            timeline: brought.timeline,
            measured: brought.measured,
            broker: brought.broker,
            generator: brought.generator,
            stopped: brought.stopped,
        }
    }

    fn execute(
        &self,
        job: &Job,
        running: &Running,
        progress: &Progress,
        interrupted: &AtomicBool,
        ceiling_rate: Option<f64>,
    ) -> Result<Brought> {
        let driver = drivers::open(job)?;
        driver.prepare()?;
        let mut workers = self.connect_workers()?;
        let pids = || -> BTreeSet<u32> { running.pids() };
        let setting = Setting { job, workers: &mut workers, pids: &pids, progress, interrupted, ceiling_rate };
        let brought = run::execute(setting);
        driver.clear();
        Ok(brought)
    }

    fn connect_workers(&self) -> Result<Vec<Box<dyn Worker>>> {
        if self.workers.is_empty() {
            return Ok(vec![Box::new(Local::new(Clock::local()))]);
        }
        self.workers.iter().map(|address| Ok(Box::new(Remote::connect(address)?) as Box<dyn Worker>)).collect()
    }

    fn find_ceilings(&self, session: &Session, state: &mut State, interrupted: &AtomicBool) -> Vec<Option<f64>> {
        let experiment = &self.experiments[session.experiment];
        let target = &self.targets[session.target];
        let workloads = session.variations.iter().map(|number| &experiment.variations[*number].workload);
        workloads
            .map(|workload| {
                let key = ceiling::key(&target.driver, workload);
                if !state.ceilings.contains_key(&key) && !interrupted.load(Ordering::Relaxed) {
                    let found = ceiling::measure(&self.job(target, workload, "ceiling"));
                    state.ceilings.insert(key.clone(), found.unwrap_or(0.0));
                }
                state.ceilings.get(&key).copied().filter(|rate| *rate > 0.0)
            })
            .collect()
    }

    fn job(&self, target: &Target, workload: &Workload, run: &str) -> Job {
        let promise = target.promise(workload.durability);
        Job {
            driver: target.driver.clone(),
            address: target.address.clone(),
            run: topic_prefix(run),
            workload: workload.clone(),
            options: promise.map(|promise| promise.options.clone()).unwrap_or_default(),
        }
    }

    fn lost(&self, state: &mut State, progress: &Progress, what: &str, error: &anyhow::Error) {
        progress.say(&format!("  {what} was not run: {error:#}"));
        let first = format!("{error:#}");
        state.missing.insert(format!("{what}: {}", first.lines().next().unwrap_or_default()));
    }
}

/// What the runs of a session share.
struct Made<'a> {
    session: &'a Session,
    experiment: &'a Experiment,
    target: &'a Target,
    running: &'a Running,
    machine: &'a Machine,
    ceiling: Option<f64>,
}

fn peak_key(experiment: &Experiment, durability: Durability) -> String {
    format!("{} {}", experiment.record.id, durability.name())
}

fn summary(measured: &Measured, stopped: Option<&str>) -> String {
    let ms = |curve: &Option<crate::result::Curve>| {
        curve.as_ref().map_or("–".to_owned(), |curve| format!("{:.2} / {:.2} ms", curve.p50_ms, curve.p99_ms))
    };
    let mut line = format!(
        "{}/s = {:.1} MB/s in, {}/s out, publish p50/p99 {}, end to end {}",
        count(measured.publish_rate),
        measured.publish_mb_s,
        count(measured.receive_rate),
        ms(&measured.publish_latency),
        ms(&measured.end_to_end_latency)
    );
    if let Some(drain) = &measured.drain {
        line.push_str(&format!(", backlog read at {:.0} MB/s in {:.0} s", drain.read_mb_s, drain.seconds));
    }
    if let Some(reason) = stopped {
        line.push_str(&format!("; stopped in {reason}"));
    }
    line
}

/// What every protocol takes as the begin of a name, and no run before has used.
fn topic_prefix(run: &str) -> String {
    let plain = run.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    format!("bench-{}-{}", plain.take(40).collect::<String>(), seconds_since_1970() % 1_000_000)
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The same folder draws the same lots, so that a plan that is resumed keeps its order.
fn seed(store: &Store) -> u64 {
    let path: PathBuf = store.folder().to_owned();
    path.to_string_lossy()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
