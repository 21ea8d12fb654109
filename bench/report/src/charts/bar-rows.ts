// The rows of a bar chart: targets under the lines of their variation's name, and the marks behind their values.

import type { FigureKind } from '../figure.ts';
import { type Contender, contenderSpread, counts, type Group } from '../group.ts';
import type { Spread } from '../statistics.ts';
import type { Run } from '../types.ts';
import { textWidth } from './common.ts';

/** A target, or a line of the heading above some. */
export interface Row {
  heading: string;
  contender: Contender | null;
  spread: Spread | null;
  marks: string;
}

/** `†` and the like behind a value; explained in the caption where they are used. */
const MARKS: [string, string, (run: Run) => boolean][] = [
  ['†', 'limited by the client: compare CPU per GB, not throughput', (run) => run.verdict.client_limited],
  ['‡', 'not stable', (run) => !run.verdict.stable],
  ['§', 'messages missing or doubled', (run) => run.verdict.complete === false],
  ['¶', 'time ran out before the backlog was read', (run) => run.measured.drain?.finished === false],
];

export function rowsOf(groups: readonly Group[], kind: FigureKind, width: number): Row[] {
  return groups.flatMap((group) => [
    ...wrapped(group.title, width).map((heading) => ({ heading, contender: null, spread: null, marks: '' })),
    ...group.contenders.map((contender) => ({
      heading: '',
      contender,
      spread: contenderSpread(contender, kind.of),
      marks: marksOf(contender),
    })),
  ]);
}

/** Lines of a heading; a variation may name many things. */
function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ').filter((part) => part !== '')) {
    const longer = `${lines[lines.length - 1]} ${word}`;
    if (lines.length > 0 && textWidth(longer, 12, 600) < width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

function marksOf(contender: Contender): string {
  const counted = contender.runs.filter(counts);
  return MARKS.filter(([, , holds]) => counted.some(holds))
    .map(([mark]) => mark)
    .join('');
}

/** How to read bars and marks, of those that are there. */
export function legendOfMarks(rows: readonly Row[]): string {
  const most = Math.max(0, ...rows.map((row) => row.spread?.count ?? 0));
  const runs = rows.flatMap((row) => row.contender?.runs ?? []);
  const sentences = [most > 1 ? `Bar: median of up to ${most} pairs; line: least to greatest.` : 'One run per bar.'];
  if (rows.some((row) => row.contender?.secondary)) sentences.push('Pale: stock settings.');
  if (!runs.every(counts)) sentences.push('Grey: invalid or stopped, not in the median.');
  for (const [mark, meaning] of MARKS) {
    if (rows.some((row) => row.marks.includes(mark))) sentences.push(`${mark} ${meaning}.`);
  }
  return sentences.join(' ');
}
