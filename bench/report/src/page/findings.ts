// Where Mainstem loses, then where it wins: a sentence, the figures of both sides, and the ratio with its range on a track.

import { experimentAnchor } from './navigation.ts';
import { h } from '../element.ts';
import { figureKind, findingSentence, loses, wins } from '../figure.ts';
import { count, rangeText, times } from '../format.ts';
import { peerTitle } from '../system.ts';
import type { Finding, Report } from '../types.ts';

/** Wins beyond these are folded away; losses never are. */
const SHOWN_WINS = 12;

export function findings(report: Report): HTMLElement[] {
  const lost = report.findings.filter(loses).sort((a, b) => a.advantage - b.advantage);
  const won = report.findings.filter(wins).sort((a, b) => b.advantage - a.advantage);
  const unclear = report.findings.filter((finding) => !loses(finding) && !wins(finding));
  const reach = trackReach(report.findings);
  const rows = (list: Finding[]): HTMLElement =>
    h('ol.findings', {}, ...list.map((finding) => row(finding, report, reach)));
  const none = report.findings.length === 0 ? 'No target was compared with another yet.' : null;
  return [
    section('loses', 'Where Mainstem loses', lost.length, [
      lost.length > 0 ? scale(reach) : h('p', {}, none ?? 'In none of the comparisons made here.'),
      lost.length > 0 && rows(lost),
    ]),
    section('wins', 'Where it wins', won.length, [
      won.length > 0 ? scale(reach) : h('p', {}, none ?? 'In none of the comparisons made here.'),
      won.length > 0 && rows(won.slice(0, SHOWN_WINS)),
      won.length > SHOWN_WINS &&
        h('details.more', {}, h('summary', {}, `${won.length - SHOWN_WINS} more`), rows(won.slice(SHOWN_WINS))),
    ]),
    ...(unclear.length > 0 ? [section('unclear', 'No difference that this session can tell', unclear.length, [rows(unclear)])] : []),
  ];
}

function section(id: string, title: string, number: number, children: (HTMLElement | false)[]): HTMLElement {
  return h(
    'section.verdicts',
    { id, 'data-side': id },
    h('h2', {}, title, h('span.number', {}, String(number))),
    ...children,
  );
}

function row(finding: Finding, report: Report, reach: number): HTMLElement {
  const kind = figureKind(finding.figure);
  const peer = peerTitle(finding.peer);
  const experiment = report.experiments.find((one) => one.id === finding.experiment);
  const side = (name: string, value: number, [least, greatest]: [number, number]): HTMLElement =>
    h(
      'span.side',
      {},
      h('span.name', {}, name),
      ' ',
      h('b', {}, kind.write(value)),
      least !== greatest && h('span.range', {}, ` (${rangeText(kind.write, least, greatest)})`),
    );
  const circumstances = [finding.variation, finding.variation.includes(finding.durability) ? '' : finding.durability];
  return h(
    'li',
    {},
    h(
      'div.said',
      {},
      h('p.sentence', {}, findingSentence(finding, 'Mainstem', peer)),
      h(
        'p.sides',
        {},
        side('Mainstem', finding.ours, finding.ours_range),
        side(peer, finding.theirs, finding.theirs_range),
      ),
      h(
        'p.place',
        {},
        h('a', { href: `#${experimentAnchor(finding.experiment)}` }, experiment?.title ?? finding.experiment),
        ...circumstances.filter((part) => part !== '').map((part) => ` · ${part}`),
      ),
      caveats(finding),
    ),
    h(
      'div.ratio',
      {},
      track(finding, reach),
      h(
        'p',
        {},
        h('b', {}, times(finding.advantage)),
        h('span.range', {}, ` ${ratioRange(finding)}${count(finding.pairs, 'pair')}`),
      ),
    ),
  );
}

function ratioRange({ interval }: Finding): string {
  return interval === null ? '' : `(${rangeText(times, interval[0], interval[1])}) `;
}

function caveats(finding: Finding): HTMLElement | null {
  const found: [string, string][] = [];
  if (finding.indicative) found.push(['indicative', 'Fewer than six pairs.']);
  if (finding.client_limited)
    found.push([
      'client-limited',
      'A run of either side was limited by the client: take the difference as a lower bound.',
    ]);
  if (finding.floor === null)
    found.push(['no floor', 'Fewer than three pairs of runs of the same binary: how far noise reaches is not known.']);
  else found.push([`floor ${times(finding.floor)}`, 'As far two runs of the same binary differed in this session.']);
  if (found.length === 0) return null;
  return h(
    'p.caveats',
    {},
    ...found.map(([text, meaning]) =>
      h('span', {}, h('span.chip', { 'data-kind': 'care' }, text), h('span.meaning', {}, ` ${meaning} `)),
    ),
  );
}

/** A track from 1/8 to 8; what lies beyond is an arrow at its end, so that the near ones stay apart. */
const MOST = 3;

/** Half the width of the track, as a power of two. */
function trackReach(list: readonly Finding[]): number {
  const ratios = list.flatMap((finding) => [finding.advantage, ...finding.advantage_range]);
  const powers = ratios
    .filter((ratio) => ratio > 0 && Number.isFinite(ratio))
    .map((ratio) => Math.abs(Math.log2(ratio)));
  return Math.min(MOST, Math.max(1, Math.ceil(Math.max(0, ...powers) * 1.05)));
}

/** Place of a ratio on the track, in percent; 1× is in the middle, halving and doubling have the same width. */
function place(ratio: number, reach: number): number {
  const power = ratio > 0 ? Math.log2(ratio) : -reach;
  return 50 + (50 * Math.max(-reach, Math.min(reach, power))) / reach;
}

function track(finding: Finding, reach: number): HTMLElement {
  const [least, greatest] = finding.advantage_range.map((end) => place(end, reach)) as [number, number];
  const line = h('span.extent');
  line.style.left = `${least}%`;
  line.style.width = `${greatest - least}%`;
  const beyond = Math.abs(Math.log2(finding.advantage)) > reach;
  const known = Number.isFinite(finding.advantage);
  const point = h('span.point', {
    hidden: !known,
    'data-beyond': beyond && (finding.advantage > 1 ? 'right' : 'left'),
  });
  point.style.left = `${place(finding.advantage, reach)}%`;
  return h('div.track', { 'aria-hidden': 'true' }, h('span.one'), line, point);
}

function scale(reach: number): HTMLElement {
  const powers = [-2, -1, 0, 1, 2].filter((power) => Math.abs(power) < reach || reach === 1);
  return h(
    'div.scale',
    { 'aria-hidden': 'true' },
    h('span.ends', {}, h('span', {}, '← peer better'), h('span', {}, 'Mainstem better →')),
    h(
      'span.ticks',
      {},
      ...powers.map((power) => {
        const tick = h('span', {}, power < 0 ? `1/${2 ** -power}×` : `${2 ** power}×`);
        tick.style.left = `${place(2 ** power, reach)}%`;
        return tick;
      }),
    ),
  );
}
