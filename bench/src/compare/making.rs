//! Making a comparison: starts each target in turn, makes its runs, keeps them, and goes on whatever a single target does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use super::Comparison;
use crate::clock::{Clock, seconds_since_1970};
use crate::drivers::{self, Job};
use crate::experiment::{Experiment, Variation};
use crate::plan::{Asked, Session, peaks};
use crate::progress::{Progress, count};
use crate::result::{FORMAT, Machine, Measured, Position, Priming, PrimingEnd, Run, TargetRecord, Verdict};
use crate::run::{self, Brought, Setting};
use crate::store::State;
use crate::target::{Running, Target};
use crate::worker::{Local, Remote, Worker};
use crate::workload::Workload;
use crate::{payload, yardstick};

/// A comparison that is being made.
pub struct Making<'a> {
    pub comparison: &'a Comparison,
    pub state: State,
    pub progress: Progress,
    pub interrupted: &'a AtomicBool,
}

/// What the runs of a session share.
struct Made<'a> {
    session: &'a Session,
    experiment: &'a Experiment,
    target: &'a Target,
    running: &'a Running,
    machine: &'a Machine,
    ceiling: Option<f64>,
    /// How many runs of this start came before.
    place: u32,
    /// Bytes in use on the disk when the target had started.
    used: u64,
    priming: Option<&'a Priming>,
}

impl<'a> Making<'a> {
    /// Begins where an earlier one of the same folder ended.
    pub fn new(comparison: &'a Comparison, interrupted: &'a AtomicBool) -> Self {
        let mut state = comparison.store.state();
        // What cannot be run now will be missed again.
        state.missing.clear();
        state.left.clear();
        Self { comparison, state, progress: Progress::over(comparison.plan().time), interrupted }
    }

    /// Keeps what was found out besides runs.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_state(&self) -> Result<()> {
        self.comparison.store.keep_state(&self.state)
    }

    /// Keeps what there was no time for.
    pub fn note_left(&mut self, sessions: &[Session]) {
        for session in sessions {
            let target = &self.comparison.targets[session.target].name;
            let ids =
                session.experiments().into_iter().map(|number| self.comparison.experiments[number].record.id.as_str());
            let ids: Vec<&str> = ids.collect();
            self.state.left.insert(format!(
                "pair {} of {target}: {} were not made, there was no time",
                session.pair,
                ids.join(", ")
            ));
        }
    }

    /// Starts a target, primes it and makes its runs.
    ///
    /// # Errors
    /// Results cannot be written.
    pub fn make_session(&mut self, session: &Session) -> Result<()> {
        let target = &self.comparison.targets[session.target];
        let name = format!("{} {}", target.name, session.setup.variant);
        let ceilings = self.find_ceilings(session);
        let ids =
            session.experiments().into_iter().map(|number| self.comparison.experiments[number].record.id.as_str());
        let ids: Vec<&str> = ids.collect();
        self.progress.begin(
            &format!("{} · pair {} · {name}: {} runs", ids.join(", "), session.pair, session.runs.len()),
            self.comparison.time_of(session),
        );
        if !session.setup.arguments.is_empty() && !target.foreground {
            self.lost(&name, &anyhow::anyhow!("brokerArguments: it is not started by us"));
            return self.comparison.store.keep_state(&self.state);
        }
        let mut rest: Vec<(Asked, Option<f64>)> = session.runs.iter().copied().zip(ceilings).collect();
        // A broker that has ended in a run is started again for the runs after it.
        while !rest.is_empty() && !self.interrupted.load(Ordering::Relaxed) {
            match self.make_start(session, &rest) {
                Ok(made) => rest.drain(..made).for_each(drop),
                Err(error) => {
                    self.lost(&name, &error);
                    break;
                }
            }
        }
        self.comparison.store.keep_state(&self.state)
    }

    /// Starts a target, primes it and makes these runs until its broker ends; how many were made, at least one.
    fn make_start(&mut self, session: &Session, runs: &[(Asked, Option<f64>)]) -> Result<usize> {
        let target = &self.comparison.targets[session.target];
        let machine = yardstick::measure(&self.comparison.places.scratch)?;
        let running = Running::start(target, &self.comparison.places, session.setup.clone())?;
        let (used, was_seen) = (running.used_bytes(), !running.has_ended());
        let priming = self.prime_session(session, &running)?;
        for (place, (asked, ceiling)) in runs.iter().enumerate() {
            if self.interrupted.load(Ordering::Relaxed) {
                break;
            }
            let experiment = &self.comparison.experiments[asked.experiment];
            let (running, machine, ceiling, priming) = (&running, &machine, *ceiling, priming.as_ref());
            let made =
                Made { session, experiment, target, running, machine, ceiling, place: place as u32, used, priming };
            self.make_run(&made, &experiment.variations[asked.variation])?;
            if was_seen && running.has_ended() {
                return Ok(place + 1);
            }
        }
        Ok(runs.len())
    }

    /// Primes a target once for all runs of its start, by the load of one of them.
    fn prime_session(&self, session: &Session, running: &Running) -> Result<Option<Priming>> {
        let (target, experiments) = (&self.comparison.targets[session.target], &self.comparison.experiments);
        let Some(asked) = session.primed_by(experiments) else { return Ok(None) };
        let experiment = &experiments[asked.experiment];
        let label = &experiment.variations[asked.variation].label;
        let job = self.job(target, asked.workload(experiments), &format!("{}-{}", experiment.record.id, session.pair));
        let primed = self.prime(&job, running, session.priming_time(experiments))?;
        let by = format!("{} {label}", experiment.record.id).trim().to_owned();
        Ok(primed.map(|priming| Priming { by, ..priming }))
    }

    /// Makes a run.
    fn make_run(&mut self, made: &Made<'_>, variation: &Variation) -> Result<()> {
        let Made { session, experiment, target, running, .. } = made;
        let mut workload = variation.workload.clone();
        let label = &variation.label;
        let what = format!("{} {} {label}", experiment.record.id, target.name).trim().to_owned();
        if let Some(share) = workload.rate_of_slowest_peak {
            let Some(peak) = self.state.slowest_peaks.get(&peaks::key(experiment, workload.durability)) else {
                self.lost(&what, &anyhow::anyhow!("the slowest peak is not known"));
                return Ok(());
            };
            workload.producer_rate = (peak * share).round();
        }
        self.progress.say(&format!("  {what}"));
        let job = self.job(target, &workload, &format!("{}-{}", experiment.record.id, session.pair));
        let settled = running.settle(made.used);
        let brought = match self.execute(&job, running, made.ceiling) {
            Ok(brought) => brought,
            Err(error) => {
                self.lost(&what, &error);
                return Ok(());
            }
        };
        let mut run = self.record(made, variation, workload, brought);
        judge_priming(made.priming, &mut run.verdict);
        run.priming = made.priming.cloned();
        run.position = Position {
            seed: self.comparison.seed,
            place: made.place,
            settled_s: settled.seconds,
            left_mb: settled.left_mb,
        };
        if settled.left_mb > 0.0 {
            run.verdict
                .remarks
                .push(format!("{:.0} MB of what was deleted before were still on the disk", settled.left_mb));
        }
        run.verdict.remarks.extend(payload::remark(&run.workload));
        self.progress.say(&format!("    {}", summary(&run.measured, run.stopped.as_deref())));
        if run.stopped.is_some() {
            run.verdict.valid = false;
            let lines = running.last_lines();
            self.progress.say(&lines);
        }
        self.comparison.store.keep(&run)
    }

    fn record(&self, made: &Made<'_>, variation: &Variation, workload: Workload, brought: Brought) -> Run {
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
            position: Position::default(),
            target: TargetRecord {
                name: target.name.clone(),
                variant: session.setup.variant.clone(),
                version: running.version.clone(),
                durability: durability.name().to_owned(),
                durability_note: target.promise(durability).map_or(String::new(), |promise| promise.note.clone()),
                driver: brought.driver,
                settings: target.settings(&session.setup.variant, durability),
                memory_limit_mb: running.group.as_ref().and_then(crate::cgroup::Group::limit_mb),
                heap: target.variant(&session.setup.variant).heap.clone(),
                runtime: running.runtime(),
                replication: target.replication,
            },
            command: self.comparison.command.clone(),
            started: seconds_since_1970(),
            machine: (*machine).clone(),
            workload,
            priming: None,
            verdict: brought.verdict,
            phases: brought.phases,
            timeline: brought.timeline,
            measured: brought.measured,
            broker: brought.broker,
            generator: brought.generator,
            processor: brought.processor,
            stopped: brought.stopped,
        }
    }

    /// Drives the target at full speed by the load of this job, on topics of its own that are deleted; nothing when the time is 0.
    ///
    /// # Errors
    /// The load broke off.
    pub fn prime(&self, job: &Job, running: &Running, least: Duration) -> Result<Option<Priming>> {
        if least.is_zero() {
            return Ok(None);
        }
        let job = Job { run: format!("{}-prime", job.run), workload: job.workload.at_full_speed(), ..job.clone() };
        let driver = drivers::open(&job)?;
        driver.prepare()?;
        let mut workers = self.connect_workers()?;
        let broker = || running.account();
        let setting = Setting {
            job: &job,
            workers: &mut workers,
            broker: &broker,
            has_worker_beside: self.has_worker_beside(),
            progress: &self.progress,
            interrupted: self.interrupted,
            ceiling_rate: None,
        };
        let priming = run::prime(setting, least)?;
        driver.clear();
        self.progress.say(&format!(
            "    primed for {:.0} s: {}/s at first, {}/s at best{}",
            priming.seconds,
            count(priming.first_rate),
            count(priming.best_rate),
            if priming.ended == PrimingEnd::Time { ", still improving" } else { "" }
        ));
        Ok(Some(priming))
    }

    /// Creates the topics, makes the run and deletes them.
    ///
    /// # Errors
    /// The broker refuses the topics, or a worker cannot be reached.
    pub fn execute(&self, job: &Job, running: &Running, ceiling_rate: Option<f64>) -> Result<Brought> {
        let driver = drivers::open(job)?;
        driver.prepare()?;
        let mut workers = self.connect_workers()?;
        let broker = || running.account();
        let setting = Setting {
            job,
            workers: &mut workers,
            broker: &broker,
            has_worker_beside: self.has_worker_beside(),
            progress: &self.progress,
            interrupted: self.interrupted,
            ceiling_rate,
        };
        let mut brought = run::execute(setting);
        brought.driver = driver.name();
        // Of a broker that broke nothing more is asked.
        if brought.stopped.is_none() {
            driver.clear();
        }
        Ok(brought)
    }

    fn has_worker_beside(&self) -> bool {
        let here = |address: &String| ["127.", "localhost", "[::1]"].iter().any(|begin| address.starts_with(begin));
        self.comparison.workers.iter().any(here)
    }

    fn connect_workers(&self) -> Result<Vec<Box<dyn Worker>>> {
        if self.comparison.workers.is_empty() {
            return Ok(vec![Box::new(Local::new(Clock::local()))]);
        }
        self.comparison
            .workers
            .iter()
            .map(|address| Ok(Box::new(Remote::connect(address)?) as Box<dyn Worker>))
            .collect()
    }

    /// What a driver is told.
    pub fn job(&self, target: &Target, workload: &Workload, run: &str) -> Job {
        let promised = target.promise(workload.durability).map(|promise| &promise.options);
        let mut options = target.options.clone();
        options.extend(promised.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        // What we start ourselves is one node.
        if target.replication != 1 || target.start.is_empty() {
            options.insert("replication".to_owned(), target.replication.to_string());
        }
        Job {
            driver: target.driver.clone(),
            address: target.address.clone(),
            run: topic_prefix(run),
            workload: workload.clone(),
            options,
        }
    }

    /// A target or a run that could not be made.
    pub fn lost(&mut self, what: &str, error: &anyhow::Error) {
        self.progress.say(&format!("  {what} was not run: {error:#}"));
        let first = format!("{error:#}");
        self.state.missing.insert(format!("{what}: {}", first.lines().next().unwrap_or_default()));
    }
}

/// What priming says about the run that followed.
fn judge_priming(priming: Option<&Priming>, verdict: &mut Verdict) {
    match priming {
        None => verdict.remarks.push("not primed: this run is not ranked".to_owned()),
        Some(priming) if !priming.drained => {
            verdict.valid = false;
            verdict
                .remarks
                .push("invalid: what priming sent was not acknowledged and received within a minute".to_owned());
        }
        Some(priming) if priming.ended == PrimingEnd::Time => {
            verdict.remarks.push(format!("throughput still improved after {:.0} s of priming", priming.seconds));
        }
        Some(_) => {}
    }
}

fn summary(measured: &Measured, stopped: Option<&str>) -> String {
    let ms = |curve: &Option<crate::result::Curve>| {
        let text = |value: Option<f64>| value.map_or("–".to_owned(), |ms| format!("{ms:.2}"));
        curve.as_ref().map_or("–".to_owned(), |curve| format!("{} / {} ms", text(curve.p50_ms), text(curve.p99_ms)))
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
