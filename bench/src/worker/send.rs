//! A sending thread: it keeps the schedule of its producers and hands messages to their clients.
//!
//! With a rate, messages are due at fixed moments (`pace`) and go to the thread's producers in turn. At full speed the
//! next message is due when its producer may send it. A producer that confirms each message or batch waits for its
//! confirms in between; one that confirms asynchronously waits only while its window or its client is full.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Result;

use super::{IDLE, Speed};
use crate::clock::{Clock, Nanos};
use crate::drivers::{Offer, Publisher};
use crate::latency::Latency;
use crate::outcome::Outcomes;
use crate::pace::{DueWindow, Pace};
use crate::payload::Pool;
use crate::process;
use crate::receipt::Receipts;
use crate::stamp::{Fingerprint, Stamp};
use crate::wants::{Wants, class_name};
use crate::workload::{Confirm, KeyDistributor, Workload};

/// Keys that `KEY_ROUND_ROBIN` goes through.
const KEYS: u64 = 10_000;
/// How often a thread hands over what it counted.
const REPORT_EVERY: Nanos = 100_000_000;
/// At high rates a thread sends what has become due in this time at once instead of waking for each message.
const NAP_NS: Nanos = 200_000;
/// At full speed producers wait while a subscription has more than this to read: throughput is what comes through, not
/// what is poured in.
const BACKLOG_BYTES_MAX: u64 = 32 << 20;
/// Messages after which that is looked at.
const BACKLOG_LOOK: u64 = 64;
/// Sleeping longer, a thread would notice late that its speed has changed.
const LONGEST_SLEEP_NS: Nanos = 20_000_000;

/// What sending threads handed to their clients.
#[derive(Clone, Debug, Default)]
pub struct Handed {
    pub messages: Fingerprint,
    /// Each as many times as subscriptions want it.
    pub wanted: Fingerprint,
    /// Due time to send.
    pub lag: Latency,
    /// Times that a client was full or a window closed: who is late then is not the generator.
    pub held_back: u64,
    /// Messages that were due in the measured time, and how many receipts of them subscriptions want.
    pub measured: u64,
    pub measured_wanted: u64,
}

impl Handed {
    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        self.messages.merge(other.messages);
        self.wanted.merge(other.wanted);
        self.lag.add(&other.lag);
        self.held_back = self.held_back.saturating_add(other.held_back);
        self.measured = self.measured.saturating_add(other.measured);
        self.measured_wanted = self.measured_wanted.saturating_add(other.measured_wanted);
    }

    fn clear(&mut self) {
        self.messages = Fingerprint::default();
        self.wanted = Fingerprint::default();
        self.lag.clear();
        self.held_back = 0;
        self.measured = 0;
        self.measured_wanted = 0;
    }
}

/// What the worker tells its sending threads, and they it.
#[derive(Default)]
pub struct Control {
    speed: Mutex<(Option<Speed>, Nanos)>,
    version: AtomicU64,
    handed: Mutex<Handed>,
    trouble: OnceLock<String>,
}

impl Control {
    /// Send at this speed from `now` on.
    pub fn set(&self, speed: Speed, now: Nanos) {
        *self.speed.lock().unwrap_or_else(PoisonError::into_inner) = (Some(speed), now);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn speed(&self) -> (Speed, Nanos) {
        let (speed, since) = *self.speed.lock().unwrap_or_else(PoisonError::into_inner);
        (speed.unwrap_or(Speed::Still), since)
    }

    /// What was sent since the last call.
    pub fn take(&self) -> Handed {
        std::mem::take(&mut *self.handed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why a producer cannot go on.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.get().cloned()
    }
}

/// A thread's part in sending.
pub struct Sent {
    /// Share of all messages that this thread sends.
    pub portion: f64,
    /// Share of an interval by which its schedule is behind the first thread's.
    pub phase: f64,
    pub outcomes: Arc<Outcomes>,
    pub receipts: Arc<Receipts>,
    pub window: Arc<DueWindow>,
}

/// One sending thread.
pub struct Sender {
    clock: Clock,
    producers: Vec<Producer>,
    next: usize,
    part: Sent,
    pool: Pool,
    keys: KeyDistributor,
    confirm: Confirm,
    confirm_batch: u64,
    window: u64,
    topics: usize,
    wants: Wants,
    backlog_max: u64,
    handed: Handed,
    reported: Nanos,
}

struct Producer {
    number: usize,
    publisher: Box<dyn Publisher>,
    messages: u64,
}

/// Whether a message went out.
enum Step {
    Sent,
    /// Stopped or another speed while it waited.
    Interrupted,
}

impl Sender {
    /// For these producers, by their numbers.
    pub fn new(clock: Clock, workload: &Workload, seats: Vec<(usize, Box<dyn Publisher>)>, part: Sent) -> Result<Self> {
        let seed = seats.first().map_or(0, |(number, _)| *number as u64 + 1);
        let producers =
            seats.into_iter().map(|(number, publisher)| Producer { number, publisher, messages: 0 }).collect();
        let window = match (workload.confirm, workload.window) {
            (Confirm::Each, _) => 1,
            (Confirm::Batch, _) => u64::from(workload.confirm_batch),
            (Confirm::Async, 0) => u64::MAX,
            (Confirm::Async, window) => u64::from(window),
        };
        Ok(Self {
            clock,
            producers,
            next: 0,
            part,
            pool: Pool::new(workload, seed)?,
            keys: workload.key_distributor,
            confirm: workload.confirm,
            confirm_batch: u64::from(workload.confirm_batch),
            window,
            topics: workload.topics as usize,
            wants: Wants::new(workload),
            backlog_max: (BACKLOG_BYTES_MAX / u64::from(workload.message_size)).max(BACKLOG_LOOK),
            handed: Handed::default(),
            reported: 0,
        })
    }

    /// Sends until it is ended.
    pub fn run(mut self, control: &Control, ended: &AtomicBool) {
        process::wake_on_time();
        if self.window != u64::MAX {
            for producer in &self.producers {
                self.part.outcomes.wake_me(producer.number);
            }
        }
        while !ended.load(Ordering::Relaxed) {
            let version = control.version.load(Ordering::Acquire);
            let (speed, since) = control.speed();
            let current = || control.version.load(Ordering::Acquire) == version && !ended.load(Ordering::Relaxed);
            let done = match speed {
                Speed::Still => {
                    std::thread::park_timeout(IDLE);
                    Ok(())
                }
                Speed::Rate(rate) => self.keep_schedule(control, rate, since, &current),
                Speed::Full => self.hurry(control, self.wants.readers_mean(), &current),
                Speed::Flood => self.hurry(control, 0.0, &current),
            };
            self.report(control, self.clock.now());
            if let Err(error) = done {
                control.trouble.get_or_init(|| format!("a producer cannot go on: {error:#}"));
                return;
            }
        }
    }

    fn keep_schedule(&mut self, control: &Control, rate: f64, since: Nanos, current: &dyn Fn() -> bool) -> Result<()> {
        let mut pace = Pace::new(since, rate * self.part.portion, self.part.phase);
        while current() {
            let now = self.clock.now();
            let due = pace.due();
            self.report_sometimes(control, now);
            if due > now {
                let wake = if pace.interval() < NAP_NS as f64 { now + NAP_NS } else { due };
                self.clock.sleep_until(wake.min(now + LONGEST_SLEEP_NS));
                continue;
            }
            if let Step::Interrupted = self.send(due, current)? {
                break;
            }
            pace.advance();
        }
        Ok(())
    }

    /// Sends as fast as these many readers of each message keep up.
    fn hurry(&mut self, control: &Control, readers: f64, current: &dyn Fn() -> bool) -> Result<()> {
        while current() {
            if self.handed.messages.messages.is_multiple_of(BACKLOG_LOOK) && self.backlog(readers) > self.backlog_max {
                self.handed.held_back += 1;
                std::thread::park_timeout(IDLE / 4);
                self.report_sometimes(control, self.clock.now());
                continue;
            }
            if !self.wait_for_room(current) {
                break;
            }
            let now = self.clock.now();
            if let Step::Interrupted = self.send(now, current)? {
                break;
            }
            self.report_sometimes(control, now);
        }
        Ok(())
    }

    /// Acknowledged messages that the slowest reader has not read, if all read at the same speed.
    fn backlog(&self, readers: f64) -> u64 {
        let wanted = self.part.outcomes.acknowledged_total() as f64 * readers;
        ((wanted - self.part.receipts.received_total() as f64) / readers.max(1.0)) as u64
    }

    /// Sends one message of the next producer, waiting as long as it may not or its client is full.
    fn send(&mut self, due: Nanos, current: &dyn Fn() -> bool) -> Result<Step> {
        if !self.wait_for_room(current) {
            return Ok(Step::Interrupted);
        }
        let producer = &mut self.producers[self.next];
        let number = Stamp::number(producer.number, producer.messages);
        let message = self.pool.take();
        Stamp { due, number }.write(message);
        let of_eight = match self.keys {
            KeyDistributor::NoKey => None,
            KeyDistributor::KeyRoundRobin => Some(producer.messages % KEYS),
            KeyDistributor::RandomNano => Some(self.clock.now()),
        };
        let of_eight = of_eight.map(u64::to_be_bytes);
        let class = self.wants.class(number).map(class_name);
        let key = of_eight.as_ref().map(|key| &key[..]).or(class.as_deref().map(str::as_bytes));
        loop {
            let now = self.clock.now();
            let ticket = self.part.outcomes.depart(producer.number, due, now);
            match producer.publisher.offer(key, message, ticket) {
                Ok(Offer::Taken) => {
                    self.handed.lag.record(now.saturating_sub(due));
                    break;
                }
                Ok(Offer::Full) => {
                    self.part.outcomes.recall(ticket);
                    self.handed.held_back += 1;
                    if !current() {
                        return Ok(Step::Interrupted);
                    }
                    std::thread::park_timeout(IDLE / 4);
                }
                Err(error) => {
                    self.part.outcomes.recall(ticket);
                    return Err(error);
                }
            }
        }
        let print = Fingerprint::of(number);
        self.handed.messages.merge(print);
        let readers = self.wants.readers(producer.number % self.topics, number);
        self.handed.wanted.merge(print.times(readers));
        if self.part.window.holds(due) {
            self.handed.measured += 1;
            self.handed.measured_wanted += readers;
        }
        producer.messages += 1;
        self.next = (self.next + 1) % self.producers.len();
        Ok(Step::Sent)
    }

    /// Waits until the next producer may send; false when it was interrupted.
    fn wait_for_room(&mut self, current: &dyn Fn() -> bool) -> bool {
        if self.window == u64::MAX {
            return true;
        }
        let producer = &self.producers[self.next];
        let number = producer.number;
        let begins_batch = self.confirm == Confirm::Batch && producer.messages.is_multiple_of(self.confirm_batch);
        let most = if begins_batch { 0 } else { self.window - 1 };
        while self.part.outcomes.in_flight(number) > most {
            self.handed.held_back += 1;
            if !current() {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        true
    }

    fn report_sometimes(&mut self, control: &Control, now: Nanos) {
        if now.saturating_sub(self.reported) >= REPORT_EVERY {
            self.report(control, now);
        }
    }

    fn report(&mut self, control: &Control, now: Nanos) {
        self.reported = now;
        if self.handed.messages.messages > 0 || self.handed.held_back > 0 {
            control.handed.lock().unwrap_or_else(PoisonError::into_inner).add(&self.handed);
            self.handed.clear();
        }
    }
}
