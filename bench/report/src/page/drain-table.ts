// How each run read its backlog.

import { h } from '../element.ts';
import { digits, grouped } from '../format.ts';
import { counts, type Group } from '../group.ts';
import { scrolling } from './runs-table.ts';
import { swatch } from './legend.ts';

export function drainTable(found: readonly Group[]): HTMLElement | null {
  const rows = found.flatMap((group) =>
    group.contenders.flatMap((contender) =>
      contender.runs.flatMap((run) =>
        run.measured.drain ? [{ group, contender, run, drain: run.measured.drain }] : [],
      ),
    ),
  );
  if (rows.length === 0) return null;
  const named = found.length > 1;
  const head = [
    'Target',
    ...(named ? ['Variation'] : []),
    'Pair',
    'Backlog, MB',
    'Seconds',
    'Read, MB/s',
    'Finished',
    'Before',
    'During',
    'After',
  ];
  return h(
    'div.table-block',
    {},
    h('h3', {}, 'Reading the backlog'),
    scrolling(
      'Reading the backlog',
      h(
        'table.figures',
        {},
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            h('th', { colspan: head.length - 3 }),
            h('th.group', { colspan: 3, scope: 'colgroup' }, 'Publish p99, ms'),
          ),
          h('tr', {}, ...head.map((title) => h('th', { scope: 'col' }, title))),
        ),
        h(
          'tbody',
          {},
          ...rows.map(({ group, contender, run, drain }) =>
            h(
              'tr',
              { 'data-counts': String(counts(run)) },
              h('th', { scope: 'row' }, h('span.target', {}, swatch(contender), contender.title)),
              named && h('td.text', {}, group.title),
              h('td', {}, String(run.pair)),
              h('td', {}, grouped(drain.backlog_mb)),
              h('td', {}, drain.finished ? digits(drain.seconds) : `> ${digits(drain.seconds)}`),
              h('td', {}, digits(drain.read_mb_s)),
              h('td.text', {}, drain.finished ? 'yes' : h('span.chip', { 'data-kind': 'bad' }, 'time ran out')),
              h('td', {}, digits(drain.publish_p99_before_ms)),
              h('td', {}, digits(drain.publish_p99_during_ms)),
              h('td', {}, digits(drain.publish_p99_after_ms)),
            ),
          ),
        ),
      ),
    ),
  );
}
