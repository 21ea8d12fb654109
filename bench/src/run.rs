//! One run: phases of load against a broker that runs, and what was counted in each.
//!
//! ```text
//! priming       connect → full speed until it is level → drain; on topics of its own, before each of the others
//! fixed rate    connect → warm-up → measure
//! search        connect → warm-up at full speed → (drain → fixed rate)… → drain → the highest stable one again, which is the measurement
//! backlog       warm-up → fill, nobody reads → before → measure while the backlog is read → after
//! ```
//!
//! Every second each worker hands over what it counted; the seconds make the timeline, and those of a phase make its
//! figures. A run that breaks keeps what it has and says where it stopped.

mod phases;
mod search;
mod window;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::clock::{Clock, Nanos};
use crate::drivers::Job;
use crate::process::{Account, MachineTimes};
use crate::progress::Progress;
use crate::result::{BrokerAccount, GeneratorAccount, Measured, Moment, Phase, Priming, ProcessorTime, Verdict};
use crate::stability;
use crate::stamp::Fingerprint;
use crate::wants::Wants;
use crate::worker::{Sample, Share, Speed, Worker};
use crate::workload::Confirm;
pub use window::Window;

/// How often workers are asked.
const TICK: Duration = Duration::from_secs(1);
/// Above this share of its ceiling, or of a core for its busiest thread, the generator is the bound.
const CLIENT_LIMIT: f64 = 0.8;
/// Above this share of the processor time that others used than the broker, the kernel and the generator, a run is void.
const OTHERS_PERCENT_MAX: f64 = 5.0;
/// A machine that is idle for more than this share at full speed waits: for the disk, or because somebody sleeps.
const IDLE_PERCENT_MAX: f64 = 40.0;

/// The longest wait for messages of the measured time to end; the load goes on meanwhile.
const TAIL: Duration = Duration::from_secs(10);
/// Messages by which what was sent may differ from what was due, of rounding.
const DUE_SLACK: f64 = 64.0;

/// What a run is made with.
pub struct Setting<'a> {
    pub job: &'a Job,
    pub workers: &'a mut [Box<dyn Worker>],
    /// What the target's processes used, asked anew each second; nothing where they are not to be seen.
    pub broker: &'a dyn Fn() -> Option<Account>,
    pub progress: &'a Progress,
    /// Ctrl-C.
    pub interrupted: &'a AtomicBool,
    /// A worker is another process of this machine: what it uses cannot be told from what others do.
    pub has_worker_beside: bool,
    /// Messages a second of this workload against a broker that does nothing.
    pub ceiling_rate: Option<f64>,
}

/// What a run brought, whole or broken off.
#[derive(Debug, Default)]
pub struct Brought {
    /// Client library and version.
    pub driver: String,
    pub verdict: Verdict,
    pub phases: Vec<Phase>,
    pub timeline: Vec<Moment>,
    pub measured: Measured,
    pub broker: BrokerAccount,
    pub generator: GeneratorAccount,
    pub processor: Option<ProcessorTime>,
    pub stopped: Option<String>,
}

/// Makes the run. Workers are connected at its begin and disconnected at its end, whatever happens.
pub fn execute(setting: Setting<'_>) -> Brought {
    let mut run = Run::new(setting);
    if let Err(error) = run.connect().and_then(|()| run.phases()) {
        run.brought.stopped = Some(format!("{}: {error:#}", run.phase_name));
    }
    for worker in run.setting.workers.iter_mut() {
        worker.end();
    }
    run.brought
}

/// Drives the target at full speed for at least so long and until it is no longer getting faster, and waits until all of it has been
/// acknowledged and received. Of the job only the load counts: its rate is not kept.
///
/// # Errors
/// The load broke off.
pub fn prime(setting: Setting<'_>, least: Duration) -> Result<Priming> {
    let mut run = Run::new(setting);
    let primed = run.connect().and_then(|()| run.prime(least));
    for worker in run.setting.workers.iter_mut() {
        worker.end();
    }
    primed.with_context(|| format!("priming ({})", run.phase_name))
}

/// A run under way.
struct Run<'a> {
    setting: Setting<'a>,
    clock: Clock,
    began: Nanos,
    phase_name: &'static str,
    speed: Speed,
    /// Everything sent, as many times as subscriptions want it, received and acknowledged since the begin.
    wanted: Fingerprint,
    received: Fingerprint,
    acknowledged: u64,
    failed: u64,
    strange: u64,
    disordered: u64,
    changed: u64,
    in_flight: u64,
    /// Since when messages are due at a rate, and what was acknowledged, given up and in flight then.
    rate_since: (Nanos, u64, u64),
    last: Option<Account>,
    cpu_of_workers: f64,
    brought: Brought,
}

impl<'a> Run<'a> {
    fn new(setting: Setting<'a>) -> Self {
        let clock = Clock::local();
        Self {
            clock,
            began: clock.now(),
            phase_name: "connecting",
            speed: Speed::Still,
            wanted: Fingerprint::default(),
            received: Fingerprint::default(),
            acknowledged: 0,
            failed: 0,
            strange: 0,
            disordered: 0,
            changed: 0,
            in_flight: 0,
            rate_since: (0, 0, 0),
            last: (setting.broker)(),
            cpu_of_workers: 0.0,
            brought: Brought::default(),
            setting,
        }
    }

    fn connect(&mut self) -> Result<()> {
        let workers = self.setting.workers.len();
        for (number, worker) in self.setting.workers.iter_mut().enumerate() {
            worker.begin(self.setting.job, Share { worker: number, workers })?;
        }
        self.brought.generator.workers = workers as u32;
        let uncertain = self.setting.workers.iter().map(|worker| worker.clock_uncertainty_ms());
        self.brought.generator.clock_uncertainty_ms = uncertain.fold(0.0, f64::max);
        Ok(())
    }

    fn subscribe(&mut self) -> Result<()> {
        self.setting.workers.iter_mut().try_for_each(|worker| worker.subscribe())
    }

    fn set_speed(&mut self, speed: Speed) -> Result<()> {
        self.speed = speed;
        self.rate_since = (self.clock.now(), self.acknowledged + self.failed, self.in_flight);
        self.setting.workers.iter_mut().try_for_each(|worker| worker.set_speed(speed))
    }

    fn subscriptions(&self) -> u64 {
        let workload = &self.setting.job.workload;
        if workload.consumer_per_subscription == 0 { 0 } else { u64::from(workload.subscriptions_per_topic) }
    }

    /// Acknowledged messages that have not arrived, all subscriptions together.
    fn backlog(&self) -> f64 {
        let wants = Wants::new(&self.setting.job.workload);
        if !wants.are_whole() && self.in_flight == 0 && self.failed == 0 {
            return self.wanted.messages.saturating_sub(self.received.messages) as f64;
        }
        (self.acknowledged as f64 * wants.readers_mean() - self.received.messages as f64).max(0.0)
    }

    /// Messages that are due and not acknowledged, those that wait in the generator included; without a rate, those that were sent.
    fn unacknowledged(&self) -> f64 {
        let (since, ended, in_flight) = self.rate_since;
        match self.speed {
            Speed::Rate(rate) => {
                let due = rate * self.clock.now().saturating_sub(since) as f64 / 1e9;
                (in_flight as f64 + due - (self.acknowledged + self.failed - ended) as f64).max(0.0)
            }
            _ => self.in_flight as f64,
        }
    }

    fn elapsed_s(&self) -> f64 {
        (self.clock.now() - self.began) as f64 / 1e9
    }

    /// Goes on for at most so long, or until `enough` says so after a second.
    fn go_on(&mut self, name: &'static str, most: Duration, mut enough: impl FnMut(&Window) -> bool) -> Result<Window> {
        self.phase_name = name;
        let mut window = Window::new(self.elapsed_s(), self.last, self.cpu_of_workers, MachineTimes::now());
        let until = self.clock.now() + most.as_nanos() as Nanos;
        let outcome = loop {
            let next = (self.clock.now() + TICK.as_nanos() as Nanos).min(until);
            self.clock.sleep_until(next);
            match self.tick() {
                Ok((sample, moment)) => window.add(&sample, moment),
                Err(error) => break Err(error),
            }
            if self.setting.interrupted.load(Ordering::Relaxed) {
                break Err(anyhow::anyhow!("interrupted"));
            }
            if enough(&window) || next >= until {
                break Ok(());
            }
        };
        window.close(self.elapsed_s(), self.last, self.cpu_of_workers);
        self.brought.phases.push(window.phase(name, self.speed));
        match outcome {
            Ok(()) => Ok(window),
            Err(error) => {
                // What the phase that was to be measured had is kept.
                if name == "measure" {
                    self.keep(&window);
                }
                Err(error)
            }
        }
    }

    /// Goes on like [`Run::go_on`] and measures latency by when messages were due: it waits for those of this time to end while the load
    /// goes on, and those that have not ended then count as long as was waited.
    fn measure(&mut self, name: &'static str, most: Duration, enough: impl FnMut(&Window) -> bool) -> Result<Window> {
        let from = self.clock.now();
        self.set_due_window(from, Nanos::MAX)?;
        let mut window = self.go_on(name, most, enough)?;
        let to = self.clock.now();
        self.set_due_window(from, to)?;
        let due = match self.speed {
            Speed::Rate(rate) => (rate * (to - from) as f64 / 1e9 - DUE_SLACK).max(0.0) as u64,
            _ => 0,
        };
        let tail = self.go_on("tail", TAIL, |tail| window.have_ended(tail, due));
        // A run that is interrupted now has its measurement all the same.
        let broken = tail.as_ref().err().map(ToString::to_string);
        window.add_tail(tail.ok().as_ref(), self.clock.now() - to, due);
        self.set_due_window(0, 0)?;
        if let Some(reason) = broken {
            if name == "measure" {
                self.keep(&window);
            }
            bail!("{reason}");
        }
        Ok(window)
    }

    fn set_due_window(&mut self, from: Nanos, to: Nanos) -> Result<()> {
        self.setting.workers.iter_mut().try_for_each(|worker| worker.set_window(from, to))
    }

    /// A second has passed: asks the workers and the kernel.
    fn tick(&mut self) -> Result<(Sample, Moment)> {
        let mut all = Sample::default();
        for worker in self.setting.workers.iter_mut() {
            all.add(&worker.sample()?);
        }
        self.wanted.merge(all.handed.wanted);
        self.received.merge(all.received.prints);
        self.acknowledged += all.published.acknowledged;
        self.failed += all.published.failed;
        self.strange += all.received.strange;
        self.disordered += all.received.disordered;
        self.changed += all.received.changed;
        self.in_flight = all.in_flight;
        let at_s = self.elapsed_s();
        let since = (at_s - self.brought.timeline.last().map_or(0.0, |moment| moment.at_s)).max(1e-3);
        let account = (self.setting.broker)();
        let moment = Moment {
            at_s,
            publish_rate: all.published.acknowledged as f64 / since,
            receive_rate: all.received.prints.messages as f64 / since,
            backlog: self.backlog(),
            in_flight: self.unacknowledged(),
            publish_p50_ms: all.published.since_due.quantile_ms(0.5),
            publish_p99_ms: all.published.since_due.quantile_ms(0.99),
            end_to_end_p50_ms: all.received.since_due.quantile_ms(0.5),
            end_to_end_p99_ms: all.received.since_due.quantile_ms(0.99),
            broker_cores: account.zip(self.last).map(|(now, before)| (now.cpu_s - before.cpu_s).max(0.0) / since),
            generator_cores: (all.cpu_s - self.cpu_of_workers).max(0.0) / since,
            broker_memory_mb: account.map(|account| account.memory_mb),
        };
        self.last = account;
        self.cpu_of_workers = all.cpu_s;
        let broker = &mut self.brought.broker;
        if let Some(account) = account {
            let peak = |before: Option<f64>, now: f64| Some(before.map_or(now, |before| before.max(now)));
            broker.processes = broker.processes.max(account.processes);
            broker.memory_peak_mb = peak(broker.memory_peak_mb, account.memory_mb);
            broker.page_cache_peak_mb =
                account.page_cache_mb.map_or(broker.page_cache_peak_mb, |cache| peak(broker.page_cache_peak_mb, cache));
            broker.threads = broker.threads.max(Some(account.threads));
            broker.handles = broker.handles.max(Some(account.handles));
            broker.connections = broker.connections.max(Some(account.sockets));
        }
        self.brought.timeline.push(moment.clone());
        self.setting.progress.second(self.phase_name, &moment);
        if account.is_none() && broker.processes > 0 {
            bail!("the broker has ended");
        }
        Ok((all, moment))
    }

    /// Takes the figures of a window as the measurement.
    fn keep(&mut self, window: &Window) {
        let bytes = f64::from(self.setting.job.workload.message_size);
        let workers = self.brought.generator.workers;
        let tried = std::mem::take(&mut self.brought.measured.tried);
        self.brought.measured = Measured { tried, ..window.measured(self.speed, bytes) };
        let broker = &mut self.brought.broker;
        let moved = (window.published() + window.received()) as f64 * bytes / 1e9;
        let written = window.published() as f64 * bytes;
        let mut processor = window.processor();
        if self.setting.has_worker_beside {
            processor.others_s = None;
        }
        let per = |amount: f64, unit: f64| (unit > 0.0).then(|| amount / unit);
        broker.cpu_s = processor.broker_s;
        broker.cpu_s_per_gb = processor.broker_s.and_then(|seconds| per(seconds + processor.kernel_s, moved));
        broker.disk_write_mb = window.written_bytes().map(|bytes| bytes as f64 / 1e6);
        broker.disk_bytes_per_byte = window.written_bytes().and_then(|bytes| per(bytes as f64, written));
        let used = window.machine();
        self.brought.processor = Some(processor);
        let generator = &mut self.brought.generator;
        *generator = GeneratorAccount {
            cpu_s: window.generator_cpu_s(),
            workers,
            ceiling_rate: self.setting.ceiling_rate,
            of_ceiling: self.setting.ceiling_rate.map(|ceiling| window.publish_rate() / ceiling),
            steal_percent: used.percent(used.stolen_s),
            idle_percent: used.percent(used.idle_s),
            clock_uncertainty_ms: generator.clock_uncertainty_ms,
        };
        self.judge(window);
    }

    fn judge(&mut self, window: &Window) {
        let verdict = &mut self.brought.verdict;
        verdict.valid = true;
        let busiest = window.busiest_thread();
        let of_ceiling = self.brought.generator.of_ceiling.unwrap_or(0.0);
        verdict.client_limited = of_ceiling > CLIENT_LIMIT || busiest > CLIENT_LIMIT;
        if of_ceiling > CLIENT_LIMIT {
            let percent = of_ceiling * 100.0;
            verdict.remarks.push(format!("client-limited: {percent:.0} % of what the client does against nothing"));
        }
        if busiest > CLIENT_LIMIT {
            let percent = busiest * 100.0;
            verdict.remarks.push(format!("client-limited: the client's busiest thread uses {percent:.0} % of a core"));
        }
        if let Speed::Rate(rate) = self.speed {
            let reasons = stability::unstable(&window.seen(rate));
            verdict.stable = reasons.is_empty();
            if let Some(late) = window.late_by_itself_ms() {
                verdict.valid = false;
                verdict.remarks.push(format!("invalid: the generator was {late:.0} ms late (p99) by itself"));
            }
            verdict.remarks.extend(reasons.into_iter().map(|reason| format!("unstable: {reason}")));
        } else {
            verdict.stable = true;
            let waits = self.setting.job.workload.confirm == Confirm::Async && self.brought.broker.processes > 0;
            if waits && self.brought.generator.idle_percent > IDLE_PERCENT_MAX {
                let percent = self.brought.generator.idle_percent;
                verdict.remarks.push(format!("{percent:.0} % idle at full speed: the bound is not the processor"));
            }
        }
        for (unended, what) in window.unended().into_iter().zip(["acknowledged", "received"]) {
            if unended > 0 {
                verdict.remarks.push(format!(
                    "{unended} messages of the measured time were not {what} within {} s after it",
                    TAIL.as_secs()
                ));
            }
        }
        if self.failed > 0 {
            verdict.remarks.push(format!("{} messages were refused or lost by the client", self.failed));
        }
        let machine = window.machine();
        let others =
            self.brought.processor.and_then(|processor| processor.others_s).map(|seconds| machine.percent(seconds));
        if let Some(percent) = others.filter(|share| *share > OTHERS_PERCENT_MAX) {
            verdict.valid = false;
            verdict.remarks.push(format!(
                "invalid: other processes of the machine used {percent:.0} % of the processor time, more than {OTHERS_PERCENT_MAX:.0} %"
            ));
        }
        if self.strange > 0 {
            verdict.valid = false;
            verdict.remarks.push(format!("invalid: {} messages that are not ours", self.strange));
        }
    }

    /// Producers rest; waits until everything has arrived, and tells whether it was everything, once.
    fn check_completeness(&mut self) -> Result<()> {
        self.set_speed(Speed::Still)?;
        let (mut last, mut quiet) = (u64::MAX, 0);
        let most = if self.subscriptions() > 0 { Duration::from_secs(20) } else { Duration::from_secs(3) };
        let until = self.clock.now() + most.as_nanos() as Nanos;
        while self.clock.now() < until && quiet < 3 {
            std::thread::sleep(TICK / 2);
            self.phase_name = "settle";
            self.tick()?;
            let all_there = self.in_flight == 0 && self.backlog() == 0.0;
            let rests = all_there || self.in_flight == 0 && self.received.messages == last;
            quiet = if rests { quiet + 1 + u32::from(all_there) } else { 0 };
            last = self.received.messages;
        }
        if self.subscriptions() > 0 {
            let verdict = &mut self.brought.verdict;
            verdict.ordered = Some(self.disordered == 0);
            verdict.intact = Some(self.changed == 0);
            for (count, what) in [
                (self.disordered, "came after a later one of their producer and partition"),
                (self.changed, "have another content than was sent"),
            ] {
                if count > 0 {
                    verdict.remarks.push(format!("{count} messages {what}"));
                }
            }
        }
        if self.in_flight > 0 {
            self.brought.verdict.remarks.push(format!("{} messages were never acknowledged", self.in_flight));
            self.brought.verdict.complete = Some(false);
            return Ok(());
        }
        if self.subscriptions() == 0 || self.failed > 0 {
            return Ok(());
        }
        let wanted = self.wanted;
        self.brought.verdict.complete = Some(wanted == self.received);
        if wanted.messages != self.received.messages {
            let remark = format!("{} messages were to arrive, {} did", wanted.messages, self.received.messages);
            self.brought.verdict.remarks.push(remark);
        } else if wanted != self.received {
            self.brought.verdict.remarks.push("messages were lost and others repeated".to_owned());
        }
        Ok(())
    }
}
