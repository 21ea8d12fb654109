// The five figures by which an experiment may be judged: how each is read from a run, written, and said in a sentence.

import {
  cpuSecondsPerGigabyte,
  megabytesPerSecond,
  messageRate,
  milliseconds,
  NONE,
  NOT_MEASURED,
  short,
  times,
  trimmed,
} from './format.ts';
import type { Maybe } from './statistics.ts';
import type { Figure, Finding, Run } from './types.ts';

export interface FigureKind {
  /** Title of a chart, with the unit. */
  title: string;
  /** For tight places. */
  short: string;
  moreIsBetter: boolean;
  of(run: Run): Maybe;
  write(value: Maybe): string;
  /** What stands where a run has none. */
  absent: string;
  /** For an axis that names the unit itself. */
  tick(value: number): string;
  /** `better` and `worse` are names, `factor` is above 1: how far `better` is ahead. */
  sentence(better: string, worse: string, factor: string): string;
  equal(one: string, other: string): string;
}

const KINDS: Record<Figure, FigureKind> = {
  'publish-rate': {
    title: 'Publish rate, msg/s',
    short: 'publish rate',
    moreIsBetter: true,
    absent: NONE,
    // A rate of 0 is no measurement; the benchmark's findings leave it out too.
    of: (run) => (run.measured.publish_rate > 0 ? run.measured.publish_rate : null),
    write: messageRate,
    tick: short,
    sentence: (better, worse, factor) => `${better} publishes ${factor} as many messages a second as ${worse}.`,
    equal: (one, other) => `${one} and ${other} publish at the same rate.`,
  },
  'publish-p99': {
    title: 'Publish p99 from due time, ms',
    short: 'publish p99',
    moreIsBetter: false,
    absent: NONE,
    of: (run) => run.measured.publish_latency?.p99_ms,
    write: milliseconds,
    tick: trimmed,
    sentence: (better, worse, factor) => `The publish p99 of ${worse} is ${factor} that of ${better}.`,
    equal: (one, other) => `${one} and ${other} have the same publish p99.`,
  },
  'end-to-end-p99': {
    title: 'End-to-end p99 from due time, ms',
    short: 'end-to-end p99',
    moreIsBetter: false,
    absent: NONE,
    of: (run) => run.measured.end_to_end_latency?.p99_ms,
    write: milliseconds,
    tick: trimmed,
    sentence: (better, worse, factor) => `The end-to-end p99 of ${worse} is ${factor} that of ${better}.`,
    equal: (one, other) => `${one} and ${other} have the same end-to-end p99.`,
  },
  'cpu-per-gb': {
    title: 'Broker CPU-seconds per GB',
    short: 'CPU per GB',
    moreIsBetter: false,
    absent: NOT_MEASURED,
    of: (run) => run.broker.cpu_s_per_gb,
    write: cpuSecondsPerGigabyte,
    tick: trimmed,
    sentence: (better, worse, factor) => `${worse} spends ${factor} the CPU of ${better} per GB.`,
    equal: (one, other) => `${one} and ${other} spend the same CPU per GB.`,
  },
  'drain-rate': {
    title: 'Reading the backlog, MB/s',
    short: 'drain rate',
    moreIsBetter: true,
    absent: NONE,
    of: (run) => run.measured.drain?.read_mb_s,
    write: megabytesPerSecond,
    tick: trimmed,
    sentence: (better, worse, factor) => `${better} reads a backlog ${factor} as fast as ${worse}.`,
    equal: (one, other) => `${one} and ${other} read a backlog at the same rate.`,
  },
};

export function figureKind(figure: Figure): FigureKind {
  return KINDS[figure];
}

/** Who is ahead and by how much, in one sentence; never a factor below 1. */
export function findingSentence(finding: Finding, ours: string, peer: string): string {
  if (!Number.isFinite(finding.advantage)) return `${ours} and ${peer} have no ratio.`;
  const kind = KINDS[finding.figure];
  if (undecided(finding)) return `${ours} and ${peer}: no difference that this session can tell.`;
  const behind = loses(finding);
  const factor = times(behind ? 1 / finding.advantage : finding.advantage);
  if (factor === times(1)) return kind.equal(ours, peer);
  return behind ? kind.sentence(peer, ours, factor) : kind.sentence(ours, peer, factor);
}

/** Mainstem is behind, further than the same binary is from itself. */
export function loses(finding: Finding): boolean {
  return finding.conclusion === 'worse';
}

export function wins(finding: Finding): boolean {
  return finding.conclusion === 'better';
}

/** No difference that the session can tell. */
export function undecided(finding: Finding): boolean {
  return finding.conclusion === 'no-difference';
}
