// Title, machine and yardsticks: what the figures were measured on, before any figure.

import { h } from '../element.ts';
import { count, list, megabytes, megabytesPerSecond, microseconds, moment, NONE, rangeText } from '../format.ts';
import { copies, distinct } from '../charts/common.ts';
import { type Maybe, spread } from '../statistics.ts';
import type { Machine, Report, Run } from '../types.ts';

export function header(report: Report): HTMLElement {
  const machines = byMachine(report.runs);
  const scales = distinct(report.runs.map((run) => run.scale));
  return h(
    'header.page-header',
    {},
    h('p.eyebrow', {}, 'mainstem-bench'),
    h('h1', {}, report.title),
    h('p.lead', {}, `${copies(report.runs)} Figures compare within this machine and run; they are not absolute.`),
    h(
      'p.made',
      {},
      `Made ${moment(report.made)} · Mainstem ${report.version} · ${count(report.runs.length, 'run')} in ${count(report.experiments.length, 'experiment')}`,
      scales.length > 0 && ` · scale: ${list(scales)}`,
    ),
    scales.includes('quick') &&
      h('p.notice', {}, 'Runs of the quick scale are short. Use them to see that things work, not to decide.'),
    machines.size > 1 &&
      h(
        'p.notice',
        {},
        `The runs come from ${machines.size} machines. Do not compare figures of one with figures of another.`,
      ),
    ...[...machines.values()].map(machine),
    reading(),
  );
}

function byMachine(runs: readonly Run[]): Map<string, Run[]> {
  const machines = new Map<string, Run[]>();
  for (const run of runs) {
    const { cpu, cores, memory_mb, kernel, disk, mount, scheduler, governor, huge_pages } = run.machine;
    const key = [cpu, cores, memory_mb, kernel, disk, mount, scheduler, governor, huge_pages].join('|');
    machines.set(key, [...(machines.get(key) ?? []), run]);
  }
  return machines;
}

function machine(runs: Run[]): HTMLElement {
  const { cpu, cores, memory_mb, kernel, disk, mount, scheduler, governor, huge_pages } = runs[0]!.machine;
  return h(
    'section.machine',
    { 'aria-label': 'Machine and yardsticks' },
    facts('Machine', [
      ['CPU', `${cpu}, ${count(cores, 'core')}`],
      ['Memory', megabytes(memory_mb)],
      ['Kernel', kernel],
      ['Disk', disk],
      ['Mounted', mount || NONE],
      ['I/O scheduler', scheduler || NONE],
      ['Governor', governor || 'none: the machine has no say in its frequency'],
      ['Huge pages', huge_pages || NONE],
    ]),
    facts(`Yardsticks of the machine${runs.length > 1 ? ', median (range) over the runs' : ''}`, [
      ['Sequential write', over(runs, (one) => one.write_mb_s, megabytesPerSecond)],
      ['fdatasync p50', over(runs, (one) => one.fdatasync_p50_us, microseconds)],
      ['fdatasync p99', over(runs, (one) => one.fdatasync_p99_us, microseconds)],
      ['Loopback', over(runs, (one) => one.loopback_mb_s, megabytesPerSecond)],
      ['Memory copy', over(runs, (one) => one.memory_copy_mb_s, megabytesPerSecond)],
      ['CRC-32C', over(runs, (one) => one.crc32c_mb_s, megabytesPerSecond)],
    ]),
  );
}

function facts(title: string, rows: [string, string | HTMLElement][]): HTMLElement {
  return h(
    'div.facts',
    {},
    h('h2', {}, title),
    h('dl', {}, ...rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))),
  );
}

function over(runs: Run[], of: (machine: Machine) => Maybe, write: (value: Maybe) => string): HTMLElement {
  const found = spread(runs.map((run) => of(run.machine)));
  return h(
    'span',
    {},
    write(found?.median),
    found &&
      found.least !== found.greatest &&
      h('span.range', {}, ` (${rangeText(write, found.least, found.greatest)})`),
  );
}

function reading(): HTMLElement {
  const terms: [string, string][] = [
    ['Pair', 'Runs of all targets made one after the other, in random order. Bars are medians over pairs.'],
    [
      'From due time',
      'Latency starts when a message was due by the schedule, not when the generator came to send it. A broker that makes the generator wait is charged for the wait.',
    ],
    ['Stable', 'What was due was acknowledged and received, by one rule for all targets. A search finds the highest such rate.'],
    [
      'Client-limited',
      'The rate is above 80 % of what the generator does against a broker that does nothing. The broker could do more; compare CPU per GB instead.',
    ],
    ['Invalid', 'The generator did not keep up. Such runs are shown in grey and enter no median.'],
    ['Indicative', 'Fewer than six pairs.'],
    ['Advantage', 'How many times better Mainstem is, by the figure that decides the experiment. Below 1× it loses.'],
  ];
  return h(
    'details.reading',
    {},
    h('summary', {}, 'How to read this page'),
    h('dl', {}, ...terms.map(([term, meaning]) => h('div', {}, h('dt', {}, term), h('dd', {}, meaning)))),
  );
}
