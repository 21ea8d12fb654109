// The data of the page: mirrors `Report` and what it holds in `bench/src/result.rs`, name by name.
//
// Units are in the names: `_s` seconds, `_ms` milliseconds, `_mb` 10^6 bytes; rates are per second. A number that JSON
// cannot write (NaN, infinity) arrives as null whatever is declared here; `format.ts` and `statistics.ts` take that.

/** Number of the layout this page reads. */
export const FORMAT = 2;

/** The figure by which an experiment is judged. */
export type Figure = 'publish-rate' | 'publish-p99' | 'end-to-end-p99' | 'cpu-per-gb' | 'drain-rate';

export interface Report {
  format: number;
  title: string;
  /** Seconds since 1970. */
  made: number;
  version: string;
  experiments: ExperimentRecord[];
  runs: Run[];
  /** How far each experiment got with each system. */
  matrix: MatrixRow[];
  /** What published comparisons say, judged by these runs. */
  claims: Claim[];
  findings: Finding[];
  missing: string[];
  /** What was cut or left out to end in time. */
  cuts: string[];
}

export interface MatrixRow {
  experiment: string;
  cells: MatrixCell[];
}

/** What there is of one system in one experiment; 0 runs: it was not run. */
export interface MatrixCell {
  system: string;
  ranked: number;
  runs: number;
  variations_ranked: number;
  variations: number;
  remark: string;
}

/** A sentence of a published comparison, judged. */
export interface Claim {
  experiment: string;
  says: string;
  source: string;
  judgement: 'confirmed' | 'refuted' | 'not-decidable';
  reason: string;
  /** How many times better the one is than the other; null without pairs. */
  ratio: number | null;
  interval: [number, number] | null;
  pairs: number;
}

export interface ExperimentRecord {
  id: string;
  title: string;
  question: string;
  published: string;
  figure: Figure;
}

export interface Finding {
  experiment: string;
  variation: string;
  durability: string;
  figure: Figure;
  ours: number;
  ours_range: [number, number];
  peer: string;
  theirs: number;
  theirs_range: [number, number];
  /** Above 1 Mainstem is better, whichever way the figure counts. */
  advantage: number;
  advantage_range: [number, number];
  /** 95 % interval of the median ratio; null with fewer than three pairs. */
  interval: [number, number] | null;
  /** The largest factor between two runs of the same binary; null where it is not known. */
  floor: number | null;
  conclusion: 'better' | 'worse' | 'no-difference';
  pairs: number;
  /** Fewer than six pairs. */
  indicative: boolean;
  client_limited: boolean;
}

export interface Run {
  format: number;
  experiment: string;
  title: string;
  variation: string;
  scale: string;
  pair: number;
  order: number;
  /** Orders are drawn from the seed; `place` runs of the same start came before. */
  position: { seed: number; place: number; settled_s: number; left_mb: number };
  target: TargetRecord;
  command: string;
  /** Seconds since 1970. */
  started: number;
  machine: Machine;
  workload: Workload;
  /** What came before the measurement; null when the workload wants none. */
  priming: Priming | null;
  verdict: Verdict;
  phases: Phase[];
  timeline: Moment[];
  measured: Measured;
  broker: BrokerAccount;
  generator: GeneratorAccount;
  processor: ProcessorTime | null;
  stopped: string | null;
}

/** Shown as it is, key by key. */
export type Workload = Record<string, unknown>;

export interface TargetRecord {
  name: string;
  variant: string;
  version: string;
  durability: string;
  durability_note: string;
  driver: string;
  settings: Setting[];
  memory_limit_mb: number | null;
  heap: string;
  /** Copies of each message; 0 = whatever the broker does by itself. */
  replication: number;
  /** What its processes run on; empty where that was not to be told. */
  runtime: string;
}

export interface Setting {
  name: string;
  value: string;
  reason: string;
}

export interface Machine {
  cpu: string;
  cores: number;
  memory_mb: number;
  kernel: string;
  disk: string;
  mount: string;
  scheduler: string;
  /** Empty where the machine has none. */
  governor: string;
  huge_pages: string;
  write_mb_s: number;
  fdatasync_p50_us: number;
  fdatasync_p99_us: number;
  loopback_mb_s: number;
  memory_copy_mb_s: number;
  crc32c_mb_s: number;
}

export interface Verdict {
  valid: boolean;
  client_limited: boolean;
  stable: boolean;
  complete: boolean | null;
  /** No message came after a later one; null without consumers. */
  ordered: boolean | null;
  /** Every content was what was sent; null without consumers. */
  intact: boolean | null;
  remarks: string[];
}

export interface Priming {
  least_s: number;
  /** The run whose load it was; it holds for all runs of the same start. */
  by: string;
  seconds: number;
  published: number;
  received: number;
  published_mb: number;
  first_rate: number;
  best_rate: number;
  last_rate: number;
  /** `level`: throughput no longer improved; `time`: it still did when the longest time was over. */
  ended: 'level' | 'time';
  drained: boolean;
}

export interface Phase {
  name: string;
  from_s: number;
  to_s: number;
  target_rate: number | null;
  publish_rate: number;
  receive_rate: number;
  publish_p99_ms: number | null;
}

export interface Moment {
  at_s: number;
  publish_rate: number;
  receive_rate: number;
  backlog: number;
  /** Due and not acknowledged. */
  in_flight: number;
  publish_p50_ms: number | null;
  publish_p99_ms: number | null;
  end_to_end_p50_ms: number | null;
  end_to_end_p99_ms: number | null;
  /** Null where its processes are not to be seen. */
  broker_cores: number | null;
  generator_cores: number;
  broker_memory_mb: number | null;
}

export interface Measured {
  seconds: number;
  target_rate: number | null;
  published: number;
  received: number;
  failed: number;
  publish_rate: number;
  receive_rate: number;
  publish_mb_s: number;
  receive_mb_s: number;
  wire_mb_s: number | null;
  publish_latency: Curve | null;
  acknowledge_latency: Curve | null;
  end_to_end_latency: Curve | null;
  schedule_lag: Curve | null;
  backlog_slope: number;
  in_flight_slope: number;
  tried: Trial[];
  drain: Drain | null;
}

export interface Trial {
  rate: number;
  stable: boolean;
  /** It repeats a rate that the search had found. */
  confirms: boolean;
  remark: string;
}

export interface Drain {
  backlog_mb: number;
  seconds: number;
  read_mb_s: number;
  finished: boolean;
  publish_p99_before_ms: number | null;
  publish_p99_during_ms: number | null;
  publish_p99_after_ms: number | null;
}

export interface Curve {
  count: number;
  /** Of these, the ones that had not ended when waiting for them did. */
  unended: number;
  mean_ms: number;
  /** A percentile is null where fewer than 100 samples lie beyond it. */
  p50_ms: number | null;
  p75_ms: number | null;
  p95_ms: number | null;
  p99_ms: number | null;
  p999_ms: number | null;
  p9999_ms: number | null;
  max_ms: number;
  /** (percentile 0 to 100, milliseconds), rising in both. */
  points: [number, number][];
}

/** Null is what was not measured, as of a broker whose processes are not to be seen. */
export interface BrokerAccount {
  /** 0: not to be seen. */
  processes: number;
  cpu_s: number | null;
  /** Of its processes and of kernel threads. */
  cpu_s_per_gb: number | null;
  /** Without the page cache. */
  memory_peak_mb: number | null;
  /** Of its cgroup. */
  page_cache_peak_mb: number | null;
  threads: number | null;
  handles: number | null;
  connections: number | null;
  disk_write_mb: number | null;
  disk_bytes_per_byte: number | null;
}

/** Where the machine's processor time went during the measured phase. */
export interface ProcessorTime {
  all_s: number;
  busy_s: number;
  broker_s: number | null;
  generator_s: number;
  kernel_s: number;
  interrupts_s: number;
  /** Null where the broker's processes are not to be seen. */
  others_s: number | null;
}

export interface GeneratorAccount {
  cpu_s: number;
  workers: number;
  ceiling_rate: number | null;
  of_ceiling: number | null;
  steal_percent: number;
  idle_percent: number;
  clock_uncertainty_ms: number;
}
