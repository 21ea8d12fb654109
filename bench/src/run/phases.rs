//! The phases of a run, one function for each kind of experiment.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::search::Search;
use super::{Run, Window};
use crate::result::{Drain, Priming, PrimingEnd, Trial};
use crate::stability;
use crate::worker::Speed;

/// Seconds at a new rate that do not count.
const RAMP: Duration = Duration::from_secs(2);
/// How many candidates of a search are tried again until one is stable a second time.
const CONFIRMATIONS: usize = 5;
/// The longest wait for consumers to catch up between two rates of a search.
const CATCH_UP: Duration = Duration::from_secs(30);
/// Messages a second while consumers connect, and how long they may take.
const TRICKLE: f64 = 100.0;
const CONNECT: Duration = Duration::from_secs(30);
/// Priming takes no longer than this many times what it takes at least, or so many stretches.
const PRIMING_TIMES: u32 = 3;
const PRIMING_STRETCHES: u32 = 8;
/// The longest wait for what priming has left to be acknowledged and received.
const PRIMING_DRAIN: Duration = Duration::from_secs(60);
/// Filling a backlog takes at most this long, reading it too.
const FILL: Duration = Duration::from_secs(600);

impl Run<'_> {
    /// All phases of the workload.
    pub fn phases(&mut self) -> Result<()> {
        let workload = self.setting.job.workload.clone();
        let done = if workload.consumer_backlog_size_gb > 0.0 {
            self.backlog_phases()
        } else if workload.searches() {
            self.search_phases()
        } else {
            self.connect_consumers()?;
            self.set_speed(self.given_speed())?;
            self.warm_up()?;
            let window = self.measure("measure", workload.test_time(), |_| false)?;
            self.keep(&window);
            Ok(())
        };
        done?;
        self.check_completeness()
    }

    /// Drives the target at full speed, for at least so long, until that is level.
    pub fn prime(&mut self, least: Duration) -> Result<Priming> {
        let bytes = f64::from(self.setting.job.workload.message_size);
        let seconds = self.setting.job.workload.warmup_window_seconds.round() as usize;
        let most = (least * PRIMING_TIMES).max(Duration::from_secs(seconds as u64) * PRIMING_STRETCHES);
        self.connect_consumers()?;
        self.set_speed(Speed::Full)?;
        let is_level = |window: &Window| stability::is_level(&window.publish_rates(seconds));
        let window = self.go_on("prime", most, |window| window.seconds() >= least.as_secs_f64() && is_level(window))?;
        self.set_speed(Speed::Still)?;
        let drained = self.go_on("drain", PRIMING_DRAIN, Window::is_drained)?.is_drained();
        let rates = window.publish_rates(seconds);
        Ok(Priming {
            least_s: least.as_secs_f64(),
            by: String::new(),
            seconds: window.seconds(),
            published: window.published(),
            received: window.received(),
            published_mb: window.published() as f64 * bytes / 1e6,
            first_rate: rates.first().copied().unwrap_or(0.0),
            best_rate: rates.iter().copied().fold(0.0, f64::max),
            last_rate: window.last_rate(seconds * 3),
            ended: if is_level(&window) { PrimingEnd::Level } else { PrimingEnd::Time },
            drained,
        })
    }

    fn given_speed(&self) -> Speed {
        match self.setting.job.workload.producer_rate {
            _ if self.setting.job.workload.saturate => Speed::Full,
            rate => Speed::Rate(rate),
        }
    }

    /// Connects the consumers and waits until messages reach them: one that joins while its machine is at its limit may
    /// take long, and nothing before that says anything about the broker.
    fn connect_consumers(&mut self) -> Result<()> {
        self.subscribe()?;
        if self.subscriptions() > 0 {
            self.set_speed(Speed::Rate(TRICKLE))?;
            self.go_on("connect", CONNECT, |window| window.received() > 0 && window.backlog_last() <= TRICKLE)?;
        }
        Ok(())
    }

    /// Until three windows agree, or its time is up.
    fn warm_up(&mut self) -> Result<Window> {
        let seconds = self.setting.job.workload.warmup_window_seconds.round() as usize;
        let most = self.setting.job.workload.warmup_time();
        let speed = self.speed;
        let window = self.go_on("warm-up", most, |window| window.is_steady(seconds, speed))?;
        if !window.is_steady(seconds, speed) {
            self.brought.verdict.remarks.push(format!("not steady after a warm-up of {:.0} s", window.seconds()));
        }
        Ok(window)
    }

    fn search_phases(&mut self) -> Result<()> {
        self.connect_consumers()?;
        self.set_speed(Speed::Full)?;
        let warm = self.warm_up()?;
        let full = warm.last_rate(self.setting.job.workload.warmup_window_seconds as usize * 2);
        ensure!(full > 0.0, "nothing comes through at full speed");
        let mut search = Search::new(full);
        while let Some(rate) = search.next() {
            let stable = self.try_rate(rate, false)?.is_some();
            search.tried(rate, stable);
        }
        // The trial that was the highest stable one was picked because it came out well: the figure is that of another.
        let mut candidate = search.found();
        for _ in 0..CONFIRMATIONS {
            let Some(rate) = candidate else { break };
            if let Some(window) = self.try_rate(rate, true)? {
                self.speed = Speed::Rate(rate);
                self.keep(&window);
                return Ok(());
            }
            candidate = Some(Search::below(rate));
        }
        let remark = if candidate.is_some() { "no stable rate was confirmed" } else { "no stable rate was found" };
        self.brought.verdict.remarks.push(remark.to_owned());
        Ok(())
    }

    /// Watches a fixed rate, from nothing in flight on; the window when it was stable.
    fn try_rate(&mut self, rate: f64, confirms: bool) -> Result<Option<Window>> {
        self.set_speed(Speed::Still)?;
        self.go_on("drain", CATCH_UP, Window::is_drained)?;
        self.set_speed(Speed::Rate(rate))?;
        let name = if confirms { "confirm" } else { "search" };
        self.go_on(name, RAMP, |_| false)?;
        let workload = &self.setting.job.workload;
        let watch = if confirms { workload.watch_time() } else { workload.trial_time() };
        // Far beyond what is stable there is no point in watching to the end.
        let is_hopeless = |window: &Window| window.is_hopeless(rate);
        let window =
            if confirms { self.measure(name, watch, is_hopeless)? } else { self.go_on(name, watch, is_hopeless)? };
        let mut reasons = stability::unstable(&window.seen(rate));
        if let Some(late) = window.late_by_itself_ms() {
            reasons.push(format!("the generator was {late:.0} ms late (p99) by itself"));
        }
        let stable = reasons.is_empty();
        self.brought.measured.tried.push(Trial { rate, stable, confirms, remark: reasons.join("; ") });
        self.setting.progress.tried(rate, stable);
        Ok(stable.then_some(window))
    }

    fn backlog_phases(&mut self) -> Result<()> {
        let workload = self.setting.job.workload.clone();
        let bytes = f64::from(workload.message_size);
        let messages = workload.consumer_backlog_size_gb * 1e9 / bytes * self.subscriptions() as f64;
        // Without consumers: there is no backlog but of what nobody reads.
        ensure!(messages >= 1.0, "consumerBacklogSizeGB needs a subscription");
        self.set_speed(Speed::Flood)?;
        let filled = self.go_on("backlog", FILL, |window| window.backlog_last() >= messages)?;
        ensure!(filled.backlog_last() >= messages, "the backlog was not written in {} s", FILL.as_secs());
        self.set_speed(Speed::Still)?;
        self.go_on("settle", Duration::from_secs(30), |window| window.published() == 0 && window.seconds() > 2.0)?;
        if self.setting.job.workload.memory_limit_mb == 0 && !crate::target::drop_page_cache() {
            self.brought
                .verdict
                .remarks
                .push("the page cache could not be dropped: part of the backlog was in memory".to_owned());
        }
        let rate = workload.producer_rate;
        self.set_speed(if rate > 0.0 { Speed::Rate(rate) } else { Speed::Still })?;
        self.go_on("before", RAMP, |_| false)?;
        let aside = workload.test_time().clamp(Duration::from_secs(5), Duration::from_secs(30));
        let before = self.measure("before", aside, |_| false)?;
        let backlog = self.backlog();
        let rest = backlog * (1.0 - workload.backlog_drain_ratio) + rate * 0.5 * self.subscriptions() as f64;
        self.subscribe()?;
        let read = |window: &Window| window.backlog_last() <= rest;
        let most = FILL.min(workload.test_time() * 10);
        let during = self.measure("measure", most, read)?;
        self.keep(&during);
        let after = self.measure("after", aside, |_| false)?;
        let p99 = Window::measured_publish_p99_ms;
        self.brought.measured.drain = Some(Drain {
            backlog_mb: backlog * bytes / 1e6,
            seconds: during.seconds(),
            read_mb_s: during.receive_rate() * bytes / 1e6,
            finished: during.backlog_last() <= rest,
            publish_p99_before_ms: p99(&before),
            publish_p99_during_ms: p99(&during),
            publish_p99_after_ms: p99(&after),
        });
        Ok(())
    }
}
