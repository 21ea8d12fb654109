//! What one run left behind: the JSON file of a run, and the files that are made from many (`report`, `docs`).
//!
//! A run is one target, one variation of an experiment, once. Its file stands on its own: it names the command, the
//! versions, the durability and the machine, so that no figure is ever without them. Written by `compare` when a run ends
//! (also when it breaks: then `stopped` says where), read by `report`, by the gate and by a `compare` that resumes.
//! `report/src/types.ts` mirrors these names; `tests/it/report.rs` holds both to one fixture.
//!
//! Units are in the names: `_s` seconds, `_ms` milliseconds, `_mb` 10^6 bytes; rates are per second.

use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// Number of this layout; a file with another is refused by name.
pub const FORMAT: u32 = 2;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub format: u32,
    pub experiment: String,
    pub title: String,
    /// What differs between the runs of this experiment, like `durability=fsync, batch=10 KB`; empty when nothing does.
    pub variation: String,
    /// `quick` or `full`.
    pub scale: String,
    /// From 1; runs with the same number were made one after the other.
    pub pair: u32,
    /// Place in the randomised order of its pair, from 0.
    pub order: u32,
    #[serde(default)]
    pub position: Position,
    pub target: TargetRecord,
    /// The command that repeats it.
    pub command: String,
    /// Seconds since 1970.
    pub started: u64,
    pub machine: Machine,
    pub workload: Workload,
    /// What came before the measurement; absent when the workload wants none.
    #[serde(default)]
    pub priming: Option<Priming>,
    pub verdict: Verdict,
    pub phases: Vec<Phase>,
    pub timeline: Vec<Moment>,
    pub measured: Measured,
    pub broker: BrokerAccount,
    pub generator: GeneratorAccount,
    /// Where the machine's processor time went; absent when nothing was measured.
    #[serde(default)]
    pub processor: Option<ProcessorTime>,
    /// Where and why it broke off; what was measured until then is kept.
    pub stopped: Option<String>,
}

/// The system under test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TargetRecord {
    pub name: String,
    /// `stock` or `tuned`.
    pub variant: String,
    pub version: String,
    /// `memory` or `fsync`.
    pub durability: String,
    /// How this system provides it, in its own words.
    pub durability_note: String,
    pub driver: String,
    pub settings: Vec<Setting>,
    /// Bound on memory, page cache included; absent where no cgroup could be had.
    pub memory_limit_mb: Option<u64>,
    /// Size of the heap where the system has one, for the reader; empty otherwise.
    pub heap: String,
    /// Copies of each message that its topics and queues were made with; 0 = whatever the broker does by itself.
    #[serde(default = "one")]
    pub replication: u16,
    /// What its processes run on, like `Java 21.0.4`; empty where that was not to be told.
    #[serde(default)]
    pub runtime: String,
}

fn one() -> u16 {
    1
}

/// A setting that differs from the system's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub name: String,
    pub value: String,
    pub reason: String,
}

/// The machine, and its yardsticks of the same run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: u32,
    pub memory_mb: u64,
    pub kernel: String,
    pub disk: String,
    /// How the file system below the data is mounted.
    #[serde(default)]
    pub mount: String,
    /// Of the disk's requests.
    #[serde(default)]
    pub scheduler: String,
    /// Of the first processor's frequency; empty where the machine has none.
    #[serde(default)]
    pub governor: String,
    /// Transparent huge pages.
    #[serde(default)]
    pub huge_pages: String,
    pub write_mb_s: f64,
    pub fdatasync_p50_us: f64,
    pub fdatasync_p99_us: f64,
    pub loopback_mb_s: f64,
    pub memory_copy_mb_s: f64,
    pub crc32c_mb_s: f64,
}

/// Whether the figures may be used, and for what.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The generator kept up; otherwise the run says nothing about the target.
    pub valid: bool,
    /// Above 80 % of what the generator does against a broker that does nothing: compare CPU per GB, not throughput.
    pub client_limited: bool,
    /// What was due was acknowledged and received, by the rule in `stability`; for a search: such a rate was found and confirmed.
    pub stable: bool,
    /// Every message that was acknowledged arrived once at each subscription; absent where that was not to be told.
    pub complete: Option<bool>,
    /// No message came after a later one of the same producer and partition (or queue), at any consumer; absent without consumers.
    #[serde(default)]
    pub ordered: Option<bool>,
    /// The content of every message was what was sent, by its checksum; absent without consumers.
    #[serde(default)]
    pub intact: Option<bool>,
    /// Why not valid, not stable, or what else a reader must know.
    pub remarks: Vec<String>,
}

/// Where in its session a run was made. Orders are drawn by lot, because what ran before changes what is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// From which the order of targets and of variations was drawn.
    pub seed: u32,
    /// How many runs of the same start came before it.
    pub place: u32,
    /// How long the disk was waited for before it: until what was deleted is gone, and what was written is on it.
    pub settled_s: f64,
    /// What was deleted and still on the disk then.
    pub left_mb: f64,
}

/// The load at full speed by which a target was primed after its start, on topics of its own: no measurement is a target's first load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Priming {
    /// How long it was asked for at least.
    pub least_s: f64,
    /// The run whose load it was; it holds for all runs of the same start.
    #[serde(default)]
    pub by: String,
    pub seconds: f64,
    pub published: u64,
    pub received: u64,
    pub published_mb: f64,
    /// Messages published a second in its first and in its best stretch, and over its last three.
    pub first_rate: f64,
    pub best_rate: f64,
    #[serde(default)]
    pub last_rate: f64,
    /// The rule by which it ended.
    pub ended: PrimingEnd,
    /// Nothing was in flight and nothing unread after it.
    pub drained: bool,
}

/// Why priming ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrimingEnd {
    /// Throughput no longer improved.
    #[default]
    Level,
    /// It still improved when the longest time was over.
    Time,
}

/// A stretch of the timeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// `warm-up`, `measure`, `search`, `backlog`, `drain`, `after`.
    pub name: String,
    pub from_s: f64,
    pub to_s: f64,
    /// Messages a second that were due; absent when as many as possible.
    pub target_rate: Option<f64>,
    pub publish_rate: f64,
    pub receive_rate: f64,
    pub publish_p99_ms: Option<f64>,
}

/// One second of the timeline. Times are seconds since the run's first message.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Moment {
    pub at_s: f64,
    pub publish_rate: f64,
    pub receive_rate: f64,
    /// Acknowledged messages that a subscription has not received yet, all subscriptions together.
    pub backlog: f64,
    /// Messages that are due and not acknowledged; at full speed, those that were sent and are not.
    #[serde(default)]
    pub in_flight: f64,
    pub publish_p50_ms: Option<f64>,
    pub publish_p99_ms: Option<f64>,
    pub end_to_end_p50_ms: Option<f64>,
    pub end_to_end_p99_ms: Option<f64>,
    /// Cores that the target kept busy; absent where its processes are not to be seen.
    pub broker_cores: Option<f64>,
    pub generator_cores: f64,
    pub broker_memory_mb: Option<f64>,
}

/// The figures of the measured phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub seconds: f64,
    /// Messages a second that were due; absent when as many as possible.
    pub target_rate: Option<f64>,
    pub published: u64,
    pub received: u64,
    pub failed: u64,
    pub publish_rate: f64,
    pub receive_rate: f64,
    pub publish_mb_s: f64,
    pub receive_mb_s: f64,
    /// What consumers took from the network, all subscriptions together; absent where it was not counted.
    #[serde(default)]
    pub wire_mb_s: Option<f64>,
    /// Due time to acknowledgement.
    pub publish_latency: Option<Curve>,
    /// Send to acknowledgement.
    pub acknowledge_latency: Option<Curve>,
    /// Due time to receipt.
    pub end_to_end_latency: Option<Curve>,
    /// Due time to send: how late the generator was.
    pub schedule_lag: Option<Curve>,
    /// Slope of the backlog (acknowledged and not received) as a share of the rate.
    pub backlog_slope: f64,
    /// Slope of messages in flight (due and not acknowledged) as a share of the rate.
    #[serde(default)]
    pub in_flight_slope: f64,
    /// For a search: each rate that was tried, and whether it was stable.
    pub tried: Vec<Trial>,
    /// For `catch-up`: how the backlog was read.
    pub drain: Option<Drain>,
}

/// A fixed rate that a search tried.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trial {
    pub rate: f64,
    pub stable: bool,
    /// It repeats a rate that the search had found; such a run is the measurement if it is stable.
    #[serde(default)]
    pub confirms: bool,
    pub remark: String,
}

/// Reading a backlog while producing goes on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Drain {
    pub backlog_mb: f64,
    pub seconds: f64,
    pub read_mb_s: f64,
    /// False when time ran out first; `seconds` is then how long it was waited.
    pub finished: bool,
    pub publish_p99_before_ms: Option<f64>,
    pub publish_p99_during_ms: Option<f64>,
    pub publish_p99_after_ms: Option<f64>,
}

/// A distribution of latencies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Curve {
    /// All that was due in the measured time, whenever it ended.
    pub count: u64,
    /// Of these, the ones that had not ended when waiting for them did; they count as long as was waited, which is the least they took.
    #[serde(default)]
    pub unended: u64,
    pub mean_ms: f64,
    /// A percentile is absent where fewer than 100 samples lie beyond it.
    pub p50_ms: Option<f64>,
    pub p75_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p999_ms: Option<f64>,
    pub p9999_ms: Option<f64>,
    pub max_ms: f64,
    /// Points of the percentile curve: (percentile 0 to 100, milliseconds), rising in both.
    pub points: Vec<(f64, f64)>,
}

/// What the target's processes used during the measured phase; peaks are of the whole run. All is absent that was not measured, as of a broker
/// whose processes are not to be seen from here.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BrokerAccount {
    /// 0: not to be seen.
    pub processes: u32,
    pub cpu_s: Option<f64>,
    /// Per GB published plus received: of its processes and of kernel threads, which write back what it has written.
    pub cpu_s_per_gb: Option<f64>,
    /// Without the page cache.
    pub memory_peak_mb: Option<f64>,
    /// Of its cgroup; absent without one.
    #[serde(default)]
    pub page_cache_peak_mb: Option<f64>,
    pub threads: Option<u64>,
    pub handles: Option<u64>,
    pub connections: Option<u64>,
    pub disk_write_mb: Option<f64>,
    /// Bytes written to disk per byte published.
    pub disk_bytes_per_byte: Option<f64>,
}

/// Where the processor time of the machine went during the measured phase, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorTime {
    /// Of all processors together, idle or not.
    pub all_s: f64,
    pub busy_s: f64,
    pub broker_s: Option<f64>,
    /// This process, which makes the load unless workers elsewhere do.
    pub generator_s: f64,
    /// Kernel threads.
    pub kernel_s: f64,
    pub interrupts_s: f64,
    /// What is left of the busy time: processes that have nothing to do with the run. Absent where the broker's are not to be seen.
    pub others_s: Option<f64>,
}

/// What the generator says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GeneratorAccount {
    pub cpu_s: f64,
    pub workers: u32,
    /// Messages a second against a broker that does nothing; absent where the driver has none.
    pub ceiling_rate: Option<f64>,
    /// The measured rate as a share of that.
    pub of_ceiling: Option<f64>,
    /// Share of processor time that the host took away, in percent.
    pub steal_percent: f64,
    /// Share of processor time that nobody used, in percent.
    pub idle_percent: f64,
    /// Largest uncertainty of a worker's clock against the coordinator's; 0 with one machine.
    pub clock_uncertainty_ms: f64,
}

/// What the report is made of: all runs, and what was judged from them. The page reads this as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub format: u32,
    pub title: String,
    /// Seconds since 1970.
    pub made: u64,
    pub version: String,
    pub experiments: Vec<ExperimentRecord>,
    pub runs: Vec<Run>,
    /// How far each experiment got with each system.
    #[serde(default)]
    pub matrix: Vec<MatrixRow>,
    /// What published comparisons say, judged by these runs.
    #[serde(default)]
    pub claims: Vec<Claim>,
    /// Where Mainstem loses comes first.
    pub findings: Vec<Finding>,
    /// What could not be run, and why.
    pub missing: Vec<String>,
    /// What was cut or left out to end in time.
    #[serde(default)]
    pub cuts: Vec<String>,
}

/// An experiment, and how far it got with each system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MatrixRow {
    pub experiment: String,
    pub cells: Vec<MatrixCell>,
}

/// What there is of one system in one experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MatrixCell {
    /// Name of the target.
    pub system: String,
    /// Runs that are ranked, of so many; 0 of 0: it was not run.
    pub ranked: u32,
    pub runs: u32,
    /// Variations that have a ranked run, of so many that were run.
    pub variations_ranked: u32,
    pub variations: u32,
    /// Why runs are not ranked; for a system that was not run, whether the experiment asks for it.
    pub remark: String,
}

/// A sentence of a published comparison, judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub experiment: String,
    pub says: String,
    pub source: String,
    pub judgement: Judgement,
    pub reason: String,
    /// How many times better the one is than the other, median over pairs.
    pub ratio: Option<f64>,
    pub interval: Option<(f64, f64)>,
    pub pairs: u32,
}

/// Whether a sentence holds here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    Confirmed,
    Refuted,
    #[default]
    NotDecidable,
}

/// The question behind an experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExperimentRecord {
    pub id: String,
    pub title: String,
    pub question: String,
    pub published: String,
    /// The figure that decides, one of the keys of `Figure`.
    pub figure: Figure,
}

/// The figure by which an experiment is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Messages published a second; more is better.
    #[default]
    PublishRate,
    /// Publish latency p99; less is better.
    PublishP99,
    /// End-to-end latency p99; less is better.
    EndToEndP99,
    /// Broker CPU-seconds per GB; less is better.
    CpuPerGb,
    /// Rate at which a backlog was read; more is better.
    DrainRate,
}

/// Mainstem against one peer in one variation, by the experiment's figure, median over pairs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    pub experiment: String,
    pub variation: String,
    pub durability: String,
    pub figure: Figure,
    pub ours: f64,
    pub ours_range: (f64, f64),
    /// Name of the target, and its variant unless that is `stock`.
    pub peer: String,
    pub theirs: f64,
    pub theirs_range: (f64, f64),
    /// Above 1 Mainstem is better, whichever way the figure counts.
    pub advantage: f64,
    pub advantage_range: (f64, f64),
    /// 95 % interval of the median of the pairs' ratios, by bootstrap of their logarithms; absent with fewer than three pairs.
    #[serde(default)]
    pub interval: Option<(f64, f64)>,
    /// The largest factor between two runs of the same binary in this session; absent with fewer than three such pairs.
    #[serde(default)]
    pub floor: Option<f64>,
    #[serde(default)]
    pub conclusion: Conclusion,
    pub pairs: u32,
    /// Fewer than six pairs.
    pub indicative: bool,
    /// A run of either side was limited by the client: the ratio is a lower bound of the difference.
    pub client_limited: bool,
}

/// What a session can tell of a difference: one is told only where the interval has no 1 in it and the ratio is further from 1 than the floor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    Better,
    Worse,
    /// No difference that this session can tell.
    #[default]
    NoDifference,
}
