//! One machine's share of the load: producers and consumers of a job, and what they counted.
//!
//! The controller in `run` talks to workers only through the [`Worker`] trait: the one in this process ([`Local`]), or
//! others over HTTP ([`Remote`], [`serve()`]). A worker keeps a rate until it is told another; it knows nothing of phases.

mod remote;
mod send;
mod serve;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Nanos};
use crate::drivers::{self, Driver, Job, Place, Seat, Subscriber};
use crate::outcome::{Outcomes, Published};
use crate::pace::DueWindow;
use crate::process;
use crate::receipt::{Receipts, Received};
use crate::workload::Confirm;
pub use remote::Remote;
pub use send::Handed;
use send::{Control, Sender, Sent};
pub use serve::serve;

/// How fast producers send, all workers together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Speed {
    /// Not at all.
    Still,
    /// So many messages a second, each at its due time.
    Rate(f64),
    /// As fast as confirms, windows and consumers allow; see `BACKLOG_BYTES_MAX` in `send`.
    Full,
    /// As fast as confirms and windows allow, whatever consumers do.
    Flood,
}

/// Which part of a job a worker does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Share {
    pub worker: usize,
    pub workers: usize,
}

impl Share {
    fn takes(self, number: usize) -> bool {
        number % self.workers == self.worker
    }
}

/// What a worker counted since it was last asked.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// What client libraries took.
    pub handed: Handed,
    pub published: Published,
    pub received: Received,
    /// Messages sent and not yet acknowledged, at this moment.
    pub in_flight: u64,
    /// Processor time of the worker since the job began, seconds.
    pub cpu_s: f64,
    /// Busiest thread of the worker since it was last asked, share of a core.
    pub busiest_thread: f64,
}

impl Sample {
    /// Adds what another worker, or the next sample of the same one, says.
    pub fn add(&mut self, other: &Self) {
        self.handed.add(&other.handed);
        self.published.add(&other.published);
        self.received.add(&other.received);
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.cpu_s += other.cpu_s;
        self.busiest_thread = self.busiest_thread.max(other.busiest_thread);
    }
}

/// A generator of load.
pub trait Worker {
    /// Connects the producers of its share.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses.
    fn begin(&mut self, job: &Job, share: Share) -> Result<()>;

    /// Connects the consumers of its share; they read from the first message on.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses.
    fn subscribe(&mut self) -> Result<()>;

    /// Sends at this speed from now on.
    ///
    /// # Errors
    /// The worker cannot be reached.
    fn set_speed(&mut self, speed: Speed) -> Result<()>;

    /// Measures messages that are due in this time, in nanoseconds since 1970, whenever they end.
    ///
    /// # Errors
    /// The worker cannot be reached.
    fn set_window(&mut self, from: Nanos, to: Nanos) -> Result<()>;

    /// What was counted since the last call.
    ///
    /// # Errors
    /// The worker cannot be reached, or a producer or consumer cannot go on.
    fn sample(&mut self) -> Result<Sample>;

    /// Disconnects.
    fn end(&mut self);

    /// Largest error of its clock against the coordinator's, milliseconds.
    fn clock_uncertainty_ms(&self) -> f64 {
        0.0
    }
}

/// The worker in this process.
pub struct Local {
    clock: Clock,
    running: Option<Running>,
}

struct Running {
    job: Job,
    share: Share,
    driver: Arc<dyn Driver>,
    outcomes: Arc<Outcomes>,
    receipts: Arc<Receipts>,
    window: Arc<DueWindow>,
    control: Arc<Control>,
    ended: Arc<AtomicBool>,
    senders: Vec<JoinHandle<()>>,
    subscribers: Vec<Box<dyn Subscriber>>,
    cpu_begin: f64,
    threads: process::ThreadTimes,
}

impl Local {
    /// A worker whose clock is this one.
    pub fn new(clock: Clock) -> Self {
        Self { clock, running: None }
    }

    fn running(&mut self) -> Result<&mut Running> {
        self.running.as_mut().ok_or_else(|| anyhow::anyhow!("no job has begun"))
    }
}

impl Worker for Local {
    fn begin(&mut self, job: &Job, share: Share) -> Result<()> {
        ensure!(self.running.is_none(), "a job is running");
        let driver = drivers::open(job)?;
        let producers: Vec<usize> = (0..job.workload.producers()).filter(|one| share.takes(*one)).collect();
        let window = Arc::new(DueWindow::default());
        let outcomes = Arc::new(Outcomes::new(self.clock, job.workload.producers(), window.clone()));
        let control = Arc::new(Control::default());
        let ended = Arc::new(AtomicBool::new(false));
        let mut running = Running {
            share,
            receipts: Arc::new(Receipts::new(self.clock, window.clone())),
            window: window.clone(),
            outcomes: outcomes.clone(),
            control: control.clone(),
            ended: ended.clone(),
            senders: Vec::new(),
            subscribers: Vec::new(),
            cpu_begin: process::own_cpu_s(),
            threads: process::ThreadTimes::now(),
            driver: driver.clone(),
            job: job.clone(),
        };
        let threads = match job.workload.confirm {
            Confirm::Async if !job.workload.saturate => producers.len().min(job.workload.threads as usize),
            Confirm::Async => producers.len().min(job.workload.threads.max(job.workload.clients) as usize),
            Confirm::Each | Confirm::Batch => producers.len(),
        };
        for thread in 0..threads {
            let mut seats = Vec::new();
            for producer in producers.iter().copied().skip(thread).step_by(threads) {
                let seat = Seat {
                    topic: producer % job.workload.topics as usize,
                    client: producer % job.publishing_clients(),
                };
                seats.push((producer, driver.publisher(seat, &outcomes)?));
            }
            let portion = seats.len() as f64 / job.workload.producers() as f64;
            let phase = (thread * share.workers + share.worker) as f64 / (threads * share.workers) as f64;
            let part = Sent {
                portion,
                phase,
                outcomes: outcomes.clone(),
                receipts: running.receipts.clone(),
                window: window.clone(),
            };
            let sender = Sender::new(self.clock, &job.workload, seats, part)?;
            let (control, ended) = (control.clone(), ended.clone());
            let handle = std::thread::Builder::new()
                .name(format!("send-{thread}"))
                .spawn(move || sender.run(&control, &ended))?;
            running.senders.push(handle);
        }
        self.running = Some(running);
        Ok(())
    }

    fn subscribe(&mut self) -> Result<()> {
        let running = self.running()?;
        let clients = running.job.subscribing_clients();
        for subscription in 0..running.job.workload.subscriptions_per_topic as usize {
            for client in (0..clients).filter(|client| running.share.takes(subscription * clients + client)) {
                let place = Place { subscription, client, clients };
                running.subscribers.push(running.driver.subscriber(place, &running.receipts)?);
            }
        }
        Ok(())
    }

    fn set_speed(&mut self, speed: Speed) -> Result<()> {
        let now = self.clock.now();
        self.running()?.control.set(speed, now);
        Ok(())
    }

    fn set_window(&mut self, from: Nanos, to: Nanos) -> Result<()> {
        self.running()?.window.set(from, to);
        Ok(())
    }

    fn sample(&mut self) -> Result<Sample> {
        let running = self.running()?;
        let sample = Sample {
            handed: running.control.take(),
            published: running.outcomes.take(),
            received: running.receipts.take(),
            in_flight: running.outcomes.in_flight_total(),
            cpu_s: process::own_cpu_s() - running.cpu_begin,
            busiest_thread: running.threads.busiest(),
        };
        if let Some(trouble) = running.control.trouble().or_else(|| running.receipts.trouble()) {
            anyhow::bail!("{trouble}");
        }
        if sample.published.failed > 0
            && sample.published.acknowledged == 0
            && let Some(trouble) = running.outcomes.trouble()
        {
            anyhow::bail!("messages are not acknowledged: {trouble}");
        }
        Ok(sample)
    }

    fn end(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.ended.store(true, Ordering::Relaxed);
        running.control.set(Speed::Still, self.clock.now());
        // Consumers first: they would otherwise see connections break.
        drop(running.subscribers);
        for sender in running.senders {
            let _ = sender.join();
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.end();
    }
}

/// How long a thread with nothing to do sleeps before it looks again.
const IDLE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
