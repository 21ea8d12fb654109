// Experiments by systems: how many variations have a run that counts, and why others have none.

import { h } from '../element.ts';
import { peerTitle } from '../system.ts';
import type { MatrixCell, Report } from '../types.ts';
import { experimentAnchor } from './navigation.ts';
import { scrolling } from './runs-table.ts';

export function matrix(report: Report): HTMLElement | null {
  const first = report.matrix[0];
  if (!first) return null;
  return h(
    'section',
    { id: 'matrix' },
    h('h2', {}, 'What was run'),
    h('p.hint', {}, 'Variations with a ranked run, of those that were run.'),
    scrolling(
      'Experiments by systems',
      h(
        'table.figures.matrix',
        {},
        h(
          'thead',
          {},
          h('tr', {}, h('th', { scope: 'col' }, 'Experiment'), ...first.cells.map((cell) => h('th.text', { scope: 'col' }, peerTitle(cell.system)))),
        ),
        h('tbody', {}, ...report.matrix.map((row) => h('tr', {}, h('th', { scope: 'row' }, name(report, row.experiment)), ...row.cells.map(entry)))),
      ),
    ),
  );
}

function name(report: Report, id: string): HTMLElement | string {
  const known = report.experiments.some((one) => one.id === id);
  return known ? h('a', { href: `#${experimentAnchor(id)}` }, id) : id;
}

function entry(cell: MatrixCell): HTMLElement {
  const state = cell.runs === 0 ? 'none' : cell.variations_ranked === cell.variations ? 'whole' : 'part';
  const figures = cell.runs === 0 ? '' : `${cell.variations_ranked} of ${cell.variations}`;
  const text = [figures, cell.remark].filter((part) => part !== '').join(': ');
  return h('td.text', { 'data-state': state, title: `${cell.ranked} of ${cell.runs} runs are ranked` }, text);
}
