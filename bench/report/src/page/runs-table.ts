// All runs of an experiment, a row each; the details of a run open below its row.

import { h, slug } from '../element.ts';
import { count, digits, measuredOr, megabytes, NONE, short } from '../format.ts';
import { type Contender, counts, type Group } from '../group.ts';
import type { Curve, ExperimentRecord, Run } from '../types.ts';
import { swatch } from './legend.ts';
import { runDetail } from './run-detail.ts';
import { chipElement, chips } from './verdict.ts';

interface Column {
  title: string;
  /** Columns side by side with the same one get a common heading. */
  over: string;
  text?: boolean;
  cell(run: Run): Node | string;
}

const latency = (over: string, of: (run: Run) => Curve | null): Column[] =>
  (
    [
      ['p50', 'p50_ms'],
      ['p99', 'p99_ms'],
      ['p99.9', 'p999_ms'],
      ['max', 'max_ms'],
    ] as const
  ).map(([title, key]) => ({
    title,
    over,
    cell: (run) => digits(of(run)?.[key]),
  }));

const COLUMNS: Column[] = [
  { title: 'Verdict', over: '', text: true, cell: verdict },
  { title: 'Pair', over: '', cell: (run) => String(run.pair) },
  { title: 'msg/s', over: 'Published', cell: (run) => short(run.measured.publish_rate) },
  { title: 'MB/s', over: 'Published', cell: (run) => digits(run.measured.publish_mb_s) },
  ...latency('Publish latency, ms', (run) => run.measured.publish_latency),
  ...latency('End-to-end latency, ms', (run) => run.measured.end_to_end_latency),
  { title: 'CPU-s/GB', over: 'Used by the target', cell: (run) => measuredOr(run.broker.cpu_s_per_gb, digits) },
  { title: 'Peak memory', over: 'Used by the target', cell: (run) => measuredOr(run.broker.memory_peak_mb, megabytes) },
  { title: 'Page cache', over: 'Used by the target', cell: (run) => measuredOr(run.broker.page_cache_peak_mb, megabytes) },
  { title: 'Disk B/B', over: 'Used by the target', cell: (run) => measuredOr(run.broker.disk_bytes_per_byte, digits) },
  { title: 'Handles', over: 'Used by the target', cell: (run) => measuredOr(run.broker.handles, short) },
  { title: 'Connections', over: 'Used by the target', cell: (run) => measuredOr(run.broker.connections, short) },
  { title: 'Version', over: '', text: true, cell: (run) => run.target.version },
  {
    title: 'Durability',
    over: '',
    text: true,
    cell: (run) => h('span', { title: run.target.durability_note }, run.target.durability),
  },
];

export function runsTable(experiment: ExperimentRecord, found: readonly Group[]): HTMLElement {
  const runs = found.flatMap((group) => group.contenders.flatMap((contender) => contender.runs));
  const out = runs.filter((run) => !counts(run)).length;
  return h(
    'div.table-block',
    {},
    h('h3', {}, 'All runs'),
    h(
      'p.hint',
      {},
      `${count(runs.length, 'run')}${out > 0 ? `, ${out} of them in no median (grey)` : ''}. "Details" has the remarks, the command that repeats the run, the workload and how durability is provided.`,
    ),
    scrolling(
      `All runs: ${experiment.title}`,
      h(
        'table.figures.runs',
        {},
        head(),
        ...found.map((group, index) => body(group, `${slug(experiment.id)}-${index}`)),
      ),
    ),
  );
}

/** A table wider than the page scrolls by itself; focusable, so that a keyboard can scroll it. */
export function scrolling(label: string, table: HTMLElement): HTMLElement {
  return h('div.scrolling', { role: 'region', tabindex: 0, 'aria-label': label }, table);
}

function head(): HTMLElement {
  const over: { title: string; span: number }[] = [];
  for (const column of COLUMNS) {
    const last = over[over.length - 1];
    if (last && last.title === column.over) last.span += 1;
    else over.push({ title: column.over, span: 1 });
  }
  return h(
    'thead',
    {},
    h(
      'tr',
      {},
      h('td', {}),
      ...over.map(({ title, span }) =>
        title === '' ? h('td', { colspan: span }) : h('th.group', { colspan: span, scope: 'colgroup' }, title),
      ),
    ),
    h(
      'tr',
      {},
      h('th', { scope: 'col' }, 'Target'),
      ...COLUMNS.map((column) => h(column.text ? 'th.text' : 'th', { scope: 'col' }, column.title)),
    ),
  );
}

function body(group: Group, prefix: string): HTMLElement {
  const rows = group.contenders.flatMap((contender, place) =>
    contender.runs.flatMap((run, index) => runRows(contender, run, `${prefix}-${place}-${index}`)),
  );
  const title =
    group.title !== '' &&
    h('tr.variation', {}, h('th', { colspan: COLUMNS.length + 1, scope: 'rowgroup' }, h('span', {}, group.title)));
  return h('tbody', {}, title, ...rows);
}

/** The row of figures, and a row that opens; its content is made when it is first opened. */
function runRows(contender: Contender, run: Run, id: string): HTMLElement[] {
  const place = h('td', { colspan: COLUMNS.length + 1 });
  const detail = h('tr.detail', { id: `run-${id}`, hidden: true }, place);
  const button = h('button.open', { type: 'button', 'aria-expanded': 'false', 'aria-controls': detail.id }, 'Details');
  button.setAttribute('aria-label', `Details of ${contender.title}, pair ${run.pair}`);
  button.addEventListener('click', () => {
    if (place.childElementCount === 0) place.append(runDetail(run));
    detail.hidden = !detail.hidden;
    button.setAttribute('aria-expanded', String(!detail.hidden));
  });
  const figures = h(
    'tr',
    { 'data-counts': String(counts(run)) },
    h('th', { scope: 'row' }, h('div.row-head', {}, h('span.target', {}, swatch(contender), contender.title), button)),
    ...COLUMNS.map((column) => h(column.text ? 'td.text' : 'td', {}, column.cell(run))),
  );
  return [figures, detail];
}

function verdict(run: Run): Node {
  const found = chips(run);
  if (found.length === 0) return document.createTextNode(NONE);
  const remarks = [...run.verdict.remarks, ...(run.stopped === null ? [] : [run.stopped])];
  return h('span.chips', {}, ...found.map((chip) => chipElement(chip, remarks)));
}
