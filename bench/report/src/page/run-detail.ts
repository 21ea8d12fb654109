// Everything else about a run, as text: remarks, command, durability, rates tried, workload, generator.

import { h } from '../element.ts';
import { digits, grouped, measuredOr, megabytes, messageRate, milliseconds, moment, NONE, percent, seconds } from '../format.ts';
import type { Maybe } from '../statistics.ts';
import type { Priming, Run } from '../types.ts';
import { chipElement, chips } from './verdict.ts';

export function runDetail(run: Run): HTMLElement {
  return h(
    'div.run-detail',
    {},
    h('div.wide', {}, h('h4', {}, 'Repeat'), h('pre', { tabindex: 0 }, h('code', {}, run.command))),
    h(
      'div',
      {},
      h('h4', {}, 'Verdict'),
      h(
        'ul',
        {},
        ...chips(run).map((chip) => h('li', {}, chipElement(chip), ` ${chip.meaning}`)),
        run.stopped !== null && h('li', {}, `Stopped: ${run.stopped}`),
        ...run.verdict.remarks.map((remark) => h('li', {}, remark)),
      ),
      h('h4', {}, 'Durability'),
      h('p', {}, `${run.target.durability}: ${run.target.durability_note || 'not explained'}`),
    ),
    facts('Measured phase', measured(run)),
    facts('Target', target(run)),
    facts('Generator', generator(run)),
    facts('Processor time of the machine', processor(run)),
    facts(
      'Workload',
      Object.entries(run.workload).map(([name, value]) => [name, written(value)]),
    ),
    phases(run),
    trials(run),
  );
}

type Fact = [string, string];

function facts(title: string, rows: Fact[]): HTMLElement | null {
  if (rows.length === 0) return null;
  return h(
    'div',
    {},
    h('h4', {}, title),
    h('dl', {}, ...rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))),
  );
}

function measured({ measured: figures, verdict }: Run): Fact[] {
  const complete = verdict.complete === null ? 'not to be told' : verdict.complete ? 'yes' : 'no';
  return [
    ['Length', seconds(figures.seconds)],
    ['Rate due', figures.target_rate === null ? 'as many as possible' : messageRate(figures.target_rate)],
    ['Published', grouped(figures.published)],
    ['Received', `${grouped(figures.received)}, ${digits(figures.receive_mb_s)} MB/s`],
    ...(figures.wire_mb_s === null ? [] : [['From the network', `${digits(figures.wire_mb_s)} MB/s`] satisfies Fact]),
    ['Failed', grouped(figures.failed)],
    ['Each arrived once', complete],
    ['Acknowledge p99, from send', milliseconds(figures.acknowledge_latency?.p99_ms)],
    ['Generator late, p99', milliseconds(figures.schedule_lag?.p99_ms)],
    [
      'Growth of the backlog',
      figures.backlog_slope === 0 ? 'none' : `${percent(figures.backlog_slope * 100)} of the rate`,
    ],
  ];
}

function target({ target: record, broker, started, scale, order, priming }: Run): Fact[] {
  return [
    ['Driver', record.driver],
    ['Heap', record.heap || NONE],
    ['Memory limit', record.memory_limit_mb === null ? 'none' : megabytes(record.memory_limit_mb)],
    ['Runs on', record.runtime || NONE],
    ['Processes', measuredOr(broker.processes || null, grouped)],
    ['Threads', measuredOr(broker.threads, grouped)],
    ['CPU', measuredOr(broker.cpu_s, seconds)],
    ['Disk written', measuredOr(broker.disk_write_mb, megabytes)],
    ['Started', moment(started)],
    ['Scale', scale],
    ['Place in its pair', String(order + 1)],
    ...primed(priming),
  ];
}

function primed(priming: Priming | null | undefined): Fact[] {
  if (!priming) return [['Primed', 'no']];
  const end = priming.ended === 'level' ? 'until no longer faster' : 'still getting faster';
  return [
    ['Primed', `${seconds(priming.seconds)} at full speed, ${end}`],
    ['Primed by the load of', priming.by || NONE],
    ['First and best rate of priming', `${messageRate(priming.first_rate)}, ${messageRate(priming.best_rate)}`],
  ];
}

function generator({ generator: account }: Run): Fact[] {
  return [
    ['Workers', grouped(account.workers)],
    ['CPU', seconds(account.cpu_s)],
    ['Ceiling', messageRate(account.ceiling_rate)],
    ['Share of the ceiling', account.of_ceiling === null ? NONE : percent(account.of_ceiling * 100)],
    ['Taken by the host', percent(account.steal_percent)],
    ['Idle', percent(account.idle_percent)],
    ['Uncertainty of clocks', milliseconds(account.clock_uncertainty_ms)],
  ];
}

function processor({ processor: time }: Run): Fact[] {
  if (!time) return [];
  const share = (value: Maybe): string => `${seconds(value)}, ${percent(((value ?? 0) / time.all_s) * 100)}`;
  return [
    ['Busy', share(time.busy_s)],
    ['Broker', measuredOr(time.broker_s, share)],
    ['This process', share(time.generator_s)],
    ['Kernel threads', share(time.kernel_s)],
    ['Interrupts', share(time.interrupts_s)],
    ['Others', measuredOr(time.others_s, share)],
  ];
}

function phases(run: Run): HTMLElement | null {
  return facts(
    'Phases',
    run.phases.map((phase) => [
      `${phase.name}, ${digits(phase.from_s)}–${digits(phase.to_s)} s`,
      `${messageRate(phase.publish_rate)} published, ${messageRate(phase.receive_rate)} received, publish p99 ${milliseconds(phase.publish_p99_ms)}`,
    ]),
  );
}

function trials(run: Run): HTMLElement | null {
  return facts(
    'Rates tried',
    run.measured.tried.map((trial) => [
      messageRate(trial.rate),
      `${trial.stable ? 'stable' : 'not stable'}${trial.remark && `: ${trial.remark}`}`,
    ]),
  );
}

function written(value: unknown): string {
  if (value === null || value === '') return NONE;
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? NONE);
}
