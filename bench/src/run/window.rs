//! A stretch of a run, and the figures of it.

use crate::clock::Nanos;
use crate::process::{Account, MachineTimes, MachineUse};
use crate::result::{Measured, Moment, Phase, ProcessorTime};
use crate::stability::{self, Seen};
use crate::worker::{Sample, Speed};

/// What was counted from one moment to another.
pub struct Window {
    from_s: f64,
    to_s: f64,
    sample: Sample,
    /// (seconds, messages) at each tick: acknowledged and not received; due and not acknowledged.
    backlogs: Vec<(f64, f64)>,
    in_flight: Vec<(f64, f64)>,
    /// Published and received a second, and median publish latency, at each tick.
    rates: Vec<(f64, f64, f64)>,
    broker_from: Option<Account>,
    broker_to: Option<Account>,
    generator_cpu_from: f64,
    generator_cpu_to: f64,
    busiest: Vec<f64>,
    machine_from: MachineTimes,
    machine: MachineUse,
    /// Messages of the measured time that were not acknowledged, and receipts of them that did not come.
    unended: [u64; 2],
}

impl Window {
    /// Begins.
    pub fn new(at_s: f64, broker: Option<Account>, generator_cpu_s: f64, machine: MachineTimes) -> Self {
        Self {
            from_s: at_s,
            to_s: at_s,
            sample: Sample::default(),
            backlogs: Vec::new(),
            in_flight: Vec::new(),
            rates: Vec::new(),
            broker_from: broker,
            broker_to: broker,
            generator_cpu_from: generator_cpu_s,
            generator_cpu_to: generator_cpu_s,
            busiest: Vec::new(),
            machine_from: machine,
            machine: MachineUse::default(),
            unended: [0; 2],
        }
    }

    /// A second more.
    pub fn add(&mut self, sample: &Sample, moment: Moment) {
        self.sample.add(sample);
        self.backlogs.push((moment.at_s, moment.backlog));
        self.in_flight.push((moment.at_s, moment.in_flight));
        self.rates.push((moment.publish_rate, moment.receive_rate, moment.publish_p50_ms.unwrap_or(0.0)));
        self.busiest.push(sample.busiest_thread);
        self.to_s = moment.at_s;
    }

    /// Ends.
    pub fn close(&mut self, at_s: f64, broker: Option<Account>, generator_cpu_s: f64) {
        self.to_s = at_s.max(self.from_s + 1e-3);
        self.broker_to = broker;
        self.generator_cpu_to = generator_cpu_s;
        self.machine = self.machine_from.used();
    }

    /// Whether all that was due in the measured time has ended, with what came after it; at least `due` messages were.
    pub fn have_ended(&self, tail: &Self, due: u64) -> bool {
        self.open_with(tail.sample(), due) == [0; 2]
    }

    /// Messages and receipts of the measured time that are missing.
    fn open_with(&self, tail: &Sample, due: u64) -> [u64; 2] {
        let sent = self.sample.handed.measured + tail.handed.measured;
        let unsent = due.saturating_sub(sent);
        let acknowledged = self.sample.published.measured.since_due.count() + tail.published.measured.since_due.count();
        let wanted = self.sample.handed.measured_wanted + tail.handed.measured_wanted;
        let received = self.sample.received.measured.count() + tail.received.measured.count();
        // What was never sent is missing at each reader too: as many as the others have.
        let readers = wanted as f64 / sent.max(1) as f64;
        [
            sent.saturating_sub(acknowledged) + unsent,
            wanted.saturating_sub(received) + (unsent as f64 * readers).round() as u64,
        ]
    }

    /// Takes what ended after the measured time, and counts what has not ended as long as was waited.
    pub fn add_tail(&mut self, tail: Option<&Self>, waited: Nanos, due: u64) {
        if let Some(tail) = tail {
            self.sample.handed.measured += tail.sample.handed.measured;
            self.sample.handed.measured_wanted += tail.sample.handed.measured_wanted;
            self.sample.published.measured.add(&tail.sample.published.measured);
            self.sample.received.measured.add(&tail.sample.received.measured);
        }
        self.unended = self.open_with(&Sample::default(), due);
        self.sample.published.measured.since_due.record_unended(waited, self.unended[0]);
        self.sample.published.measured.since_sent.record_unended(waited, self.unended[0]);
        self.sample.received.measured.record_unended(waited, self.unended[1]);
    }

    /// Messages of the measured time that were not acknowledged, and receipts of them that did not come.
    pub fn unended(&self) -> [u64; 2] {
        self.unended
    }

    fn sample(&self) -> &Sample {
        &self.sample
    }

    /// Seconds.
    pub fn seconds(&self) -> f64 {
        (self.to_s - self.from_s).max(1e-3)
    }

    /// Messages acknowledged.
    pub fn published(&self) -> u64 {
        self.sample.published.acknowledged
    }

    /// Messages received, all subscriptions together.
    pub fn received(&self) -> u64 {
        self.sample.received.prints.messages
    }

    /// Messages acknowledged a second.
    pub fn publish_rate(&self) -> f64 {
        self.published() as f64 / self.seconds()
    }

    /// Messages received a second.
    pub fn receive_rate(&self) -> f64 {
        self.received() as f64 / self.seconds()
    }

    /// Messages published a second, over the last so many seconds.
    pub fn last_rate(&self, seconds: usize) -> f64 {
        let last = &self.rates[self.rates.len().saturating_sub(seconds)..];
        last.iter().map(|rates| rates.0).sum::<f64>() / last.len().max(1) as f64
    }

    /// Whether its last three windows of so many seconds agree: in what was published and received, and at a fixed rate
    /// also in latency.
    pub fn is_steady(&self, seconds: usize, speed: Speed) -> bool {
        let windows = self.rates.chunks_exact(seconds.max(1));
        let mean = |window: &[(f64, f64, f64)], of: fn(&(f64, f64, f64)) -> f64| {
            window.iter().map(of).sum::<f64>() / window.len() as f64
        };
        let rates: Vec<f64> = windows.clone().map(|window| mean(window, |tick| tick.0 + tick.1)).collect();
        let latencies: Vec<f64> = windows.map(|window| mean(window, |tick| tick.2)).collect();
        stability::steady(&rates) && (!matches!(speed, Speed::Rate(_)) || stability::warm(&latencies))
    }

    /// Messages published a second in each stretch of so many seconds.
    pub fn publish_rates(&self, seconds: usize) -> Vec<f64> {
        let stretches = self.rates.chunks_exact(seconds.max(1));
        stretches.map(|stretch| stretch.iter().map(|tick| tick.0).sum::<f64>() / stretch.len() as f64).collect()
    }

    /// Messages a second by which the backlog grows.
    pub fn backlog_slope(&self) -> f64 {
        stability::slope(&self.backlogs)
    }

    /// Backlog at the last tick.
    pub fn backlog_last(&self) -> f64 {
        self.backlogs.last().map_or(0.0, |(_, backlog)| *backlog)
    }

    /// Nothing is unacknowledged and nothing unread at the last tick.
    pub fn is_drained(&self) -> bool {
        [&self.in_flight, &self.backlogs]
            .into_iter()
            .all(|series| series.last().is_some_and(|(_, messages)| *messages == 0.0))
    }

    /// What decides whether this rate is stable.
    pub fn seen(&self, rate: f64) -> Seen {
        Seen {
            due: rate,
            acknowledged: self.publish_rate(),
            in_flight_slope: stability::slope(&self.in_flight),
            backlog_slope: self.backlog_slope(),
            idle_percent: self.machine.percent(self.machine.idle_s),
            publish_p99_ms: self.publish_p99_ms(),
        }
    }

    /// Far beyond what is stable: a second's worth of messages waits, or half of them.
    pub fn is_hopeless(&self, rate: f64) -> bool {
        let waiting = |series: &[(f64, f64)]| series.last().map_or(0.0, |(_, messages)| *messages);
        self.seconds() > 5.0 && (waiting(&self.in_flight) > 2.0 * rate || self.publish_rate() < rate / 2.0)
    }

    /// How late (p99) the generator was although its client had room for every message: that says nothing about the broker.
    pub fn late_by_itself_ms(&self) -> Option<f64> {
        let lag = self.sample.handed.lag.quantile_ms(0.99)?;
        (lag > stability::LAG_P99_MAX_MS && self.sample.handed.held_back == 0).then_some(lag)
    }

    /// Due time to acknowledgement, p99.
    pub fn publish_p99_ms(&self) -> Option<f64> {
        self.sample.published.since_due.quantile_ms(0.99)
    }

    /// Share of a core that the client's busiest thread used, on average.
    pub fn busiest_thread(&self) -> f64 {
        self.busiest.iter().sum::<f64>() / self.busiest.len().max(1) as f64
    }

    /// Due time to acknowledgement, p99, of the measured time; absent with fewer than 100 samples beyond it.
    pub fn measured_publish_p99_ms(&self) -> Option<f64> {
        self.sample.published.measured.since_due.sure_quantile_ms(0.99)
    }

    /// Where the machine's processor time went.
    pub fn processor(&self) -> ProcessorTime {
        let broker_s = self.broker_from.zip(self.broker_to).map(|(from, to)| (to.cpu_s - from.cpu_s).max(0.0));
        let machine = &self.machine;
        ProcessorTime {
            all_s: machine.all_s,
            busy_s: machine.busy_s(),
            broker_s,
            generator_s: machine.own_s,
            kernel_s: machine.kernel_s,
            interrupts_s: machine.interrupts_s,
            others_s: broker_s.map(|seconds| machine.others_s(seconds)),
        }
    }

    /// Processor time of the workers.
    pub fn generator_cpu_s(&self) -> f64 {
        (self.generator_cpu_to - self.generator_cpu_from).max(0.0)
    }

    /// Bytes that the broker wrote to disk; nothing where its processes are not to be seen.
    pub fn written_bytes(&self) -> Option<u64> {
        self.broker_from.zip(self.broker_to).map(|(from, to)| to.written_bytes.saturating_sub(from.written_bytes))
    }

    /// What the whole machine did.
    pub fn machine(&self) -> MachineUse {
        self.machine
    }

    /// For the list of phases.
    pub fn phase(&self, name: &str, speed: Speed) -> Phase {
        Phase {
            name: name.to_owned(),
            from_s: self.from_s,
            to_s: self.to_s,
            target_rate: target_rate(speed),
            publish_rate: self.publish_rate(),
            receive_rate: self.receive_rate(),
            publish_p99_ms: self.sample.published.since_due.sure_quantile_ms(0.99),
        }
    }

    /// The figures, for messages of so many bytes.
    pub fn measured(&self, speed: Speed, bytes: f64) -> Measured {
        Measured {
            seconds: self.seconds(),
            target_rate: target_rate(speed),
            published: self.published(),
            received: self.received(),
            failed: self.sample.published.failed,
            publish_rate: self.publish_rate(),
            receive_rate: self.receive_rate(),
            publish_mb_s: self.publish_rate() * bytes / 1e6,
            receive_mb_s: self.receive_rate() * bytes / 1e6,
            wire_mb_s: Some(self.sample.received.wire_bytes)
                .filter(|bytes| *bytes > 0)
                .map(|bytes| bytes as f64 / self.seconds() / 1e6),
            publish_latency: self.sample.published.measured.since_due.curve(self.unended[0]),
            acknowledge_latency: self.sample.published.measured.since_sent.curve(self.unended[0]),
            end_to_end_latency: self.sample.received.measured.curve(self.unended[1]),
            schedule_lag: self.sample.handed.lag.curve(0),
            backlog_slope: self.backlog_slope() / self.publish_rate().max(1.0),
            in_flight_slope: stability::slope(&self.in_flight) / self.publish_rate().max(1.0),
            tried: Vec::new(),
            drain: None,
        }
    }
}

fn target_rate(speed: Speed) -> Option<f64> {
    match speed {
        Speed::Rate(rate) => Some(rate),
        Speed::Still => Some(0.0),
        Speed::Full | Speed::Flood => None,
    }
}
