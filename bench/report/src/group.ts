// Runs put together: by what makes them comparable (variation, durability, scale), then by target; and which of them count.

import { systemOrder, targetTitle } from './system.ts';
import { medianIndex, type Maybe, spread, type Spread } from './statistics.ts';
import type { Run, TargetRecord } from './types.ts';

/** One target within a group: its runs, one per pair. */
export interface Contender {
  /** The same for the same target in every group. */
  id: string;
  title: string;
  target: TargetRecord;
  /** Out of the box, where the report has a tuned one of the same system: drawn dashed and lighter. */
  secondary: boolean;
  runs: Run[];
}

/** Runs that may be compared with one another. */
export interface Group {
  title: string;
  contenders: Contender[];
}

/** Runs that are ranked: nothing unstable, invalid, cold or broken off, and none that lost or repeated messages. Mirrors `flaws` in `findings.rs`. */
export function counts(run: Run): boolean {
  const { valid, stable, complete, ordered, intact } = run.verdict;
  const whole = complete !== false && ordered !== false && intact !== false && run.measured.failed === 0;
  return valid && stable && whole && run.stopped === null && run.priming !== null;
}

/** The groups of one experiment, in the order in which the runs name them. `all` are the runs of the report. */
export function groups(runs: readonly Run[], all: readonly Run[]): Group[] {
  const durabilityMatters = (variation: string): boolean =>
    new Set(runs.filter((run) => run.variation === variation).map((run) => run.target.durability)).size > 1;
  const scaleMatters = new Set(runs.map((run) => run.scale)).size > 1;
  const byTitle = new Map<string, Run[]>();
  for (const run of runs) {
    const parts = [run.variation];
    if (durabilityMatters(run.variation)) parts.push(`durability=${run.target.durability}`);
    if (scaleMatters) parts.push(run.scale);
    const title = parts.filter((part) => part !== '').join(', ');
    byTitle.set(title, [...(byTitle.get(title) ?? []), run]);
  }
  return [...byTitle].map(([title, members]) => ({ title, contenders: contenders(members, all) }));
}

/** Mainstem first; what is tuned before what is stock. `all` tells whether a version or a variant sets two apart. */
export function contenders(members: readonly Run[], all: readonly Run[]): Contender[] {
  const versions = new Map<string, Set<string>>();
  for (const run of all) {
    const title = targetTitle(run.target);
    versions.set(title, (versions.get(title) ?? new Set()).add(run.target.version));
  }
  const byTitle = new Map<string, Contender>();
  for (const run of members) {
    const plain = targetTitle(run.target);
    const title = versions.get(plain)!.size > 1 ? `${plain} ${run.target.version}` : plain;
    const known = byTitle.get(title);
    if (known) known.runs.push(run);
    else
      byTitle.set(title, { id: title, title, target: run.target, secondary: secondary(run.target, all), runs: [run] });
  }
  const found = [...byTitle.values()];
  for (const contender of found) contender.runs.sort((a, b) => a.pair - b.pair);
  const variantOrder = (target: TargetRecord): number => (target.variant === 'tuned' ? 0 : 1);
  return found.sort(
    (a, b) =>
      systemOrder(a.target.name) - systemOrder(b.target.name) ||
      variantOrder(a.target) - variantOrder(b.target) ||
      a.title.localeCompare(b.title),
  );
}

function secondary(target: TargetRecord, all: readonly Run[]): boolean {
  return (
    target.variant === 'stock' && all.some((run) => run.target.name === target.name && run.target.variant === 'tuned')
  );
}

/** Median and range over the runs that count. */
export function contenderSpread(contender: Contender, figure: (run: Run) => Maybe): Spread | null {
  return spread(contender.runs.filter(counts).map(figure));
}

/**
 * The run that stands for the contender where only one may be drawn: the one whose figure is the median; when none
 * counts, the first there is, so that a failure is seen.
 */
export function middleRun(contender: Contender, figure: (run: Run) => Maybe): Run | undefined {
  const counted = contender.runs.filter(counts);
  return counted[medianIndex(counted.map(figure))] ?? counted[0] ?? contender.runs[0];
}
