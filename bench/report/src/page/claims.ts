// What published comparisons say, sentence by sentence, and whether it holds here.

import { h } from '../element.ts';
import { count, rangeText, times } from '../format.ts';
import type { Claim, Report } from '../types.ts';

const JUDGED = {
  confirmed: ['confirmed', 'good'],
  refuted: ['refuted', 'bad'],
  'not-decidable': ['not decidable', 'care'],
} as const;

export function claims(report: Report): HTMLElement | null {
  if (report.claims.length === 0) return null;
  const decided = report.claims.filter((claim) => claim.judgement !== 'not-decidable');
  const open = report.claims.filter((claim) => claim.judgement === 'not-decidable');
  return h(
    'section',
    { id: 'claims' },
    h('h2', {}, 'Published claims', h('span.number', {}, String(report.claims.length))),
    h('p.hint', {}, 'Sentences of published comparisons, judged by these runs: other hardware, one node, newer versions.'),
    decided.length > 0 ? h('ul.claims', {}, ...decided.map(entry)) : h('p', {}, 'These runs decide none of them.'),
    open.length > 0 &&
      h('details.more', {}, h('summary', {}, `${open.length} not decidable by these runs`), h('ul.claims', {}, ...open.map(entry))),
  );
}

function entry(claim: Claim): HTMLElement {
  const [word, kind] = JUDGED[claim.judgement];
  const interval = claim.interval === null ? '' : ` (${rangeText(times, claim.interval[0], claim.interval[1])})`;
  const measured = claim.ratio === null ? '' : `${times(claim.ratio)}${interval}, ${count(claim.pairs, 'pair')}: `;
  return h(
    'li',
    {},
    h('span.chip', { 'data-kind': kind }, word),
    ' ',
    h('span.says', {}, claim.says),
    h('p.place', {}, `${claim.experiment} · ${measured}${claim.reason}`),
    h('p.place', {}, claim.source),
  );
}
